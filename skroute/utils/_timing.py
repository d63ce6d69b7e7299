"""Measured time as a cost."""

import sys
import time

import numpy as np

from skroute.utils._compat import _safe_indexing, num_samples


def synchronize_device():
    """Wait until every accelerator that this process already uses is idle.

    Device work is asynchronous: a clock read without this measures the launch.
    Nothing is imported; a process that has not loaded torch has nothing to wait for.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for backend in (torch.cuda, torch.xpu):
        for device in range(backend.device_count() if backend.is_initialized() else 0):
            # Waiting for a device that is not in use would set it up: memory on it says so.
            if backend.memory_reserved(device):
                backend.synchronize(device)
    if torch.backends.mps.is_available():
        torch.mps.synchronize()


def seconds_per_sample(call, X, *, max_samples=1000, n_repeats=5):
    """Median wall-clock seconds that `call` takes per row of `X`.

    Parameters
    ----------
    call : callable
        Called as ``call(rows)`` with a subset of `X`.

    X : indexable
        Rows to measure on; the first `max_samples` are used.

    max_samples : int, default=1000
        Rows per timed call. One call with many rows measures throughput, which is what
        a batch prediction pays.

    n_repeats : int, default=5
        Timed calls, after one that is not counted.

    Returns
    -------
    float
        Seconds per sample.
    """
    n = min(num_samples(X), max_samples)
    rows = _safe_indexing(X, np.arange(n))
    call(rows)
    elapsed = np.empty(n_repeats)
    for repeat in range(n_repeats):
        synchronize_device()
        start = time.perf_counter()
        call(rows)
        synchronize_device()
        elapsed[repeat] = time.perf_counter() - start
    return float(np.median(elapsed)) / n
