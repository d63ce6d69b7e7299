"""Compiled loops: Chebyshev distances.

This module is imported at its first use, because the import of numba takes longer than
a small prediction.
"""

from numba import njit

# Number of reference rows whose distances are computed together. These rows stay in the
# processor's cache.
_BLOCK = 512


# The flags promise that there is no NaN, and that the sign of zero does not matter. The
# compiler then computes the maximum for several rows in one instruction.
@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def chebyshev(columns, queries, out):
    """Write Chebyshev distances of queries to reference rows (`columns`) to `out`.

    A distance is the largest absolute difference in one feature.

    Parameters
    ----------
    columns : ndarray of shape (n_features, n_rows), dtype=float64
        The reference rows, feature by feature.
    queries : ndarray of shape (n_queries, n_features), dtype=float64
    out : ndarray of shape (n_queries, n_rows), dtype=float64
        Overwritten with the distances.
    """
    n_rows = columns.shape[1]
    for begin in range(0, n_rows, _BLOCK):
        # Rows from `begin` to before `end` are one block.
        end = min(begin + _BLOCK, n_rows)
        for query in range(len(queries)):
            largest = out[query, begin:end]  # a view: results are written to `out`
            largest[:] = 0.0
            for feature in range(len(columns)):
                row_values = columns[feature, begin:end]
                query_value = queries[query, feature]
                for row in range(len(row_values)):
                    difference = abs(row_values[row] - query_value)
                    largest[row] = max(largest[row], difference)
