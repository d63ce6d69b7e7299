"""Measured time as a cost."""

import sys
import time

import numpy as np

from skroute.utils._compat import _safe_indexing, num_samples

_clock = time.perf_counter


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
            # Waiting for a device that is not in use would set it up: memory on it says
            # so.
            if backend.memory_reserved(device):
                backend.synchronize(device)
    if torch.backends.mps.is_available():
        torch.mps.synchronize()


def timed(call, *given):
    """Seconds that a call takes, those of devices included."""
    synchronize_device()
    start = _clock()
    call(*given)
    synchronize_device()
    return _clock() - start


def seconds_per_sample(call, X):
    """Median seconds that a call takes per row of `X`, of five with the first 1,000 rows.

    One call with many rows measures throughput, which is what a batch prediction pays.
    A first call is not counted.
    """
    n = min(num_samples(X), 1000)
    rows = _safe_indexing(X, np.arange(n))
    call(rows)
    return float(np.median([timed(call, rows) for _ in range(5)])) / n
