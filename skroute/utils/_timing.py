"""Measured time as a cost."""

import sys
import time

import numpy as np

from skroute.utils._compat import _safe_indexing, num_samples

# Clock in seconds. It has a name of its own, so that tests can replace it.
_clock = time.perf_counter

# Number of calls that are timed. The median of five ignores two calls that were
# interrupted.
_N_CALLS = 5

# Largest number of rows of a timed call. It bounds the time of a measurement.
_MAX_ROWS = 1000


def synchronize_device():
    """Wait until every accelerator that this process already uses is idle.

    Work on devices is asynchronous. Without waiting, a clock measures the launch only.
    Torch is not imported: a process that has not loaded it has nothing to wait for.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for backend in (torch.cuda, torch.xpu):
        if not backend.is_initialized():
            continue
        for device in range(backend.device_count()):
            # Waiting for an unused device would initialise it. A used one has memory.
            if backend.memory_reserved(device):
                backend.synchronize(device)
    if torch.backends.mps.is_available():
        torch.mps.synchronize()


def timed(call, *arguments):
    """Return the seconds that ``call(*arguments)`` takes, also on accelerators."""
    synchronize_device()
    start = _clock()
    call(*arguments)
    synchronize_device()
    return _clock() - start


def seconds_per_sample(call, X):
    """Return the median seconds that a call takes per row of `X`.

    The call gets at most the first 1,000 rows. It is made once without a clock, and
    then five times with a clock. All rows are in one call, so that the throughput of
    batch prediction is measured.
    """
    n_rows = min(num_samples(X), _MAX_ROWS)
    rows = _safe_indexing(X, np.arange(n_rows))
    call(rows)
    seconds = [timed(call, rows) for _ in range(_N_CALLS)]
    return float(np.median(seconds)) / n_rows
