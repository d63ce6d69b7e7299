"""Compiled loops: Chebyshev distances.

This module is imported at its first use, because the import of numba takes longer than
a small prediction.
"""

from numba import njit

# Reference rows whose distances are computed together. They stay in the processor's
# cache.
_BLOCK = 512


# Without NaN, the compiler computes the maximum for several rows in one instruction.
@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def chebyshev(columns, queries, out):
    """Compute the largest difference in a feature between queries and reference rows.

    Parameters
    ----------
    columns : ndarray of shape (n_features, n_rows), dtype=float64
        The reference rows, feature by feature.
    queries : ndarray of shape (n_queries, n_features), dtype=float64
    out : ndarray of shape (n_queries, n_rows), dtype=float64
        Overwritten with the distances.
    """
    n_rows = columns.shape[1]
    for first in range(0, n_rows, _BLOCK):
        last = min(first + _BLOCK, n_rows)
        for query in range(len(queries)):
            largest = out[query, first:last]  # a view: results are written to `out`
            largest[:] = 0.0
            for feature in range(len(columns)):
                values = columns[feature, first:last]
                value = queries[query, feature]
                for i in range(len(values)):
                    difference = abs(values[i] - value)
                    largest[i] = max(largest[i], difference)
