"""Nearest neighbours by the kernels: encoding, chunks of queries, threads."""

import numpy as np
from sklearn.utils import gen_batches
from sklearn.utils.parallel import Parallel, delayed

METRICS = {"chebyshev": 0, "manhattan": 1, "euclidean": 2}

# Queries per call of a kernel: their codes and a block of rows stay in the cache.
_QUERIES = 64
_ENCODED_ROWS = 1024
# Codes in float32 beyond this are clipped, their squares would overflow.
_LARGEST_CODE = 1e15


def encode_references(X, metric):
    """Codes from which the kernels bound distances from below.

    Features come first if they vary more, so that a far row shows early, and are padded
    with zeros to full blocks.

    For ``metric="chebyshev"`` the code of a value is its bin of width `scale`, clipped to
    0..255. Two values whose codes differ by c are more than ``(c - 1) * scale`` apart, and
    clipping can only bring codes nearer, so outliers cost no accuracy. For the other metrics
    the code is the value in float32, centred and divided by `scale`.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features), float32 or float64
        The reference rows.

    metric : {"chebyshev", "manhattan", "euclidean"}

    Returns
    -------
    dict of arrays and numbers
        ``metric`` (int), ``codes``, ``order`` and ``centre`` of the features, ``scale``,
        ``largest`` (the largest norm of a code; 0 for chebyshev) and ``excess`` (by how
        much each code is clipped; 0 for the other metrics).
    """
    n_rows, n_features = X.shape
    # Any centre, scale and order give the same neighbours, so some of the rows will do.
    sample = X[:: max(1, n_rows // _ENCODED_ROWS)].astype(np.float64)
    low, high = sample.min(axis=0), sample.max(axis=0)
    order = np.argsort(-np.std(sample * (1 / max(1, np.abs(sample).max())), axis=0), kind="stable")
    low, high = low[order], high[order]
    centre = low / 2 + high / 2
    if metric == "chebyshev":
        block, dtype = 256, np.uint16
        with np.errstate(over="ignore"):
            span = min((high - low).max(), np.finfo(np.float64).max)
        scale = span / 2**14
    else:
        block, dtype = 64, np.float32
        with np.errstate(over="ignore"):
            scale = max(
                np.abs(X[rows][:, order] - centre).max()
                for rows in gen_batches(n_rows, _ENCODED_ROWS)
            )
        scale = 2.0 ** np.ceil(np.log2(scale)) if 0 < scale < np.finfo(np.float64).max else scale
    if not 0 < scale < np.inf:
        scale = 1.0
    index = {
        "metric": METRICS[metric],
        "codes": np.zeros((n_rows, -(-n_features // block), block), dtype=dtype),
        "order": order,
        "centre": centre,
        "scale": float(scale),
        "largest": 0.0,
        "excess": np.zeros(n_rows),
    }
    for rows in gen_batches(n_rows, _ENCODED_ROWS):
        index["codes"][rows], extra = _encode(index, X[rows])
        if index["metric"] == 0:
            index["excess"][rows] = extra
        else:
            index["largest"] = max(index["largest"], float(extra.max()))
    return index


def _encode(index, X):
    """Codes of rows, and by how much they are clipped (chebyshev) or their norms."""
    n_features = X.shape[1]
    codes = np.zeros((X.shape[0], *index["codes"].shape[1:]), dtype=index["codes"].dtype)
    padded = codes.reshape(X.shape[0], -1)
    with np.errstate(over="ignore"):
        values = (X[:, index["order"]] - index["centre"]) / index["scale"]
    if index["metric"] == 0:
        bins = np.floor(values) + 2.0**15
        clipped = np.clip(bins, 0.0, 2.0**16 - 1)
        padded[:, :n_features] = clipped
        return codes, np.abs(bins - clipped).max(axis=1)
    clipped = np.clip(values, -_LARGEST_CODE, _LARGEST_CODE)
    padded[:, :n_features] = clipped
    norms = np.linalg.norm(clipped, ord=index["metric"], axis=1)
    norms[np.abs(values).max(axis=1) > _LARGEST_CODE] = np.inf
    return codes, norms


def encode_queries(index, Q):
    """What the kernels need of an index and of queries, in their order of arguments.

    Parameters
    ----------
    index : dict
        From :func:`encode_references`.

    Q : ndarray of shape (n_queries, n_features)

    Returns
    -------
    scale, factor : float
    query_codes : ndarray of shape (n_queries, n_padded)
    slack : ndarray of shape (n_queries,)
    Q : ndarray of shape (n_queries, n_features), dtype=float64
    """
    Q = np.ascontiguousarray(Q, dtype=np.float64)
    codes, extra = _encode(index, Q)
    if index["metric"] == 0:
        # Binning is done in float64 and its one unit of error is in the kernel.
        return index["scale"], 1.0 + 1e-9, codes, extra, Q
    # Rounding values to float32 moves a distance by at most 2^-24 of the two norms, and
    # each operation of the sum by 2^-24 of the result. Twice that, and underflow.
    slack = 2.0**-23 * (index["largest"] + extra) + 1e-20
    return index["scale"], 1.0 + 2.0**-23 * (Q.shape[1] + 8), codes, slack, Q


def query_batches(n_queries, n_neighbors, n_jobs, estimate):
    """Call ``estimate(rows)`` on slices of the queries, in threads, and stack the results.

    Parameters
    ----------
    n_queries : int

    n_neighbors : int
        Neighbours per query; bounds the memory of a slice.

    n_jobs : int or None
        Threads, as in joblib.

    estimate : callable
        From a slice to a tuple of arrays with one row per query.

    Returns
    -------
    tuple of ndarrays
    """
    size = int(np.clip(2**22 // n_neighbors, 1, _QUERIES))
    batches = list(gen_batches(n_queries, size))
    if len(batches) == 1:
        return estimate(batches[0])
    parts = Parallel(n_jobs=n_jobs, require="sharedmem")(
        delayed(estimate)(rows) for rows in batches
    )
    return tuple(np.concatenate(arrays) for arrays in zip(*parts))
