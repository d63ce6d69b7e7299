"""Compiled links of the boosting libraries: their formulas, and the C library's exponential."""

import math

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def sigmoid(scores, slope):
    """``1 / (1 + exp(-slope * score))``, in the precision of the scores."""
    out = np.empty_like(scores)
    one = scores.dtype.type(1)
    # XGBoost stays below the overflow of single precision; double precision never gets there.
    most = scores.dtype.type(88.7 if scores.itemsize == 4 else np.inf)
    for i in range(scores.shape[0]):
        for k in range(scores.shape[1]):
            out[i, k] = one / (one + math.exp(min(-slope * scores[i, k], most)))
    return out


@njit(cache=True, nogil=True)
def softmax(scores):
    """Exponentials above the largest score, divided by their sum in double precision."""
    out = np.empty_like(scores)
    for i in range(scores.shape[0]):
        top = scores[i, 0]
        for k in range(1, scores.shape[1]):
            top = max(top, scores[i, k])
        total = 0.0
        for k in range(scores.shape[1]):
            out[i, k] = math.exp(scores[i, k] - top)
            total += out[i, k]
        for k in range(scores.shape[1]):
            out[i, k] /= scores.dtype.type(total)
    return out


@njit(cache=True, nogil=True)
def exponential(scores):
    """``exp(score)``, in the precision of the scores."""
    out = np.empty_like(scores)
    for i in range(scores.shape[0]):
        for k in range(scores.shape[1]):
            out[i, k] = math.exp(scores[i, k])
    return out
