"""Compiled loops: distances under chebyshev.

Imported on first use, since importing numba takes longer than a small prediction.
"""

from numba import njit

# Reference rows whose distances are found together: they stay in the cache.
_BLOCK = 512


# No NaN comes here: the maximum of two numbers is one instruction for several rows then.
@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def chebyshev(columns, queries, out):
    """Largest difference of a feature, of each query and each reference row.

    Parameters
    ----------
    columns : ndarray of shape (n_features, n_rows), dtype=float64
        The reference rows, feature by feature.
    queries : ndarray of shape (n_queries, n_features), dtype=float64
    out : ndarray of shape (n_queries, n_rows), dtype=float64
        Changed: the distances.
    """
    n_rows = columns.shape[1]
    for first in range(0, n_rows, _BLOCK):
        last = min(first + _BLOCK, n_rows)
        for query in range(len(queries)):
            largest = out[query, first:last]
            largest[:] = 0.0
            for feature in range(len(columns)):
                values, value = columns[feature, first:last], queries[query, feature]
                for i in range(len(values)):
                    difference = abs(values[i] - value)
                    largest[i] = difference if difference > largest[i] else largest[i]
