"""The nearest row of a random subset, averaged over subsets (OCCAM), on arrays."""

import numpy as np

# Weight of the farthest rows that is left out of the exact limit.
TAIL = 1e-6


def nearest_weights(n_rows, subset_size, tail=TAIL):
    """Probability that the j-th nearest row is the nearest one of a random subset.

    Of the ``C(n_rows, subset_size)`` subsets, those whose nearest row is the j-th nearest
    of all hold it and ``subset_size - 1`` of the ``n_rows - j`` rows beyond it:
    ``w_j = C(n_rows - j, subset_size - 1) / C(n_rows, subset_size)``. Hence
    ``w_1 = subset_size / n_rows`` and
    ``w_{j+1} / w_j = (n_rows - j - subset_size + 1) / (n_rows - j)``.

    Parameters
    ----------
    n_rows : int

    subset_size : int
        From 1 (all weights equal) to `n_rows` (the nearest row has all the weight).

    tail : float, default=1e-6
        The weights are cut where those beyond sum to less than this.

    Returns
    -------
    ndarray of shape (n_neighbors,), dtype=float64
        Falling weights, scaled to sum to one.
    """
    j = np.arange(1, n_rows - subset_size + 1, dtype=np.float64)
    log_ratios = np.log((n_rows - j - subset_size + 1) / (n_rows - j))
    # The weight beyond the j-th row is the chance that a subset avoids the j nearest,
    # C(n_rows - j, s) / C(n_rows, s), a product that does not cancel.
    rows_left = n_rows - j + 1
    log_beyond = np.cumsum(np.log((rows_left - subset_size) / rows_left))
    n_neighbors = 1 + int(np.count_nonzero(log_beyond >= np.log(tail)))
    log_weights = np.concatenate([[0.0], np.cumsum(log_ratios)])[:n_neighbors]
    weights = np.exp(log_weights)
    return weights / weights.sum()


def subsets_estimate(index, queries, starts, return_std):
    """Mean over disjoint subsets of the outcome of the nearest row of each.

    Parameters
    ----------
    index : HostRows or DeviceRows
        The rows, those of a subset contiguous.

    queries : object
        Some queries, as `index` gives them to what it maps.

    starts : ndarray of shape (n_subsets + 1,), dtype=int64
        First row of each subset, and the number of rows.

    return_std : bool

    Returns
    -------
    tuple of ndarrays of shape (n_queries, n_outputs)
        The estimate and, if `return_std`, its standard error: given the query, the
        outcomes from disjoint subsets are independent and alike, so it is their standard
        deviation over the square root of their number. NaN for a single subset.
    """
    return subsets_mean(index.outcomes[index.nearest_of_subsets(queries, starts)], return_std)


def subsets_mean(outcomes, return_std):
    """Mean of the subsets' answers and, if wanted, its standard error.

    Parameters
    ----------
    outcomes : ndarray of shape (n_queries, n_subsets, n_outputs)
    return_std : bool

    Returns
    -------
    tuple of ndarrays of shape (n_queries, n_outputs)
    """
    mean = outcomes.mean(axis=1)
    if not return_std:
        return (mean,)
    n_subsets = outcomes.shape[1]
    if n_subsets == 1:
        return mean, np.full_like(mean, np.nan)
    return mean, outcomes.std(axis=1, ddof=1) / np.sqrt(n_subsets)


def share_tied_weights(weights, distances):
    """Give rows at the same distance the mean of their weights.

    Parameters
    ----------
    weights : ndarray of shape (n_neighbors,)
        Weight of each rank.

    distances : ndarray of shape (n_queries, n_neighbors)
        Rising along the second axis.

    Returns
    -------
    ndarray of shape (n_queries, n_neighbors)
    """
    new = np.ones(distances.shape, dtype=bool)
    new[:, 1:] = distances[:, 1:] != distances[:, :-1]
    starts = np.flatnonzero(new)
    counts = np.diff(starts, append=distances.size)
    sums = np.add.reduceat(np.broadcast_to(weights, distances.shape).ravel(), starts)
    return np.repeat(sums / counts, counts).reshape(distances.shape)


def exact_estimate(index, queries, weights, return_std):
    """The limit of :func:`subsets_estimate` over all subsets of one size.

    Rows at the same distance share their weights, which is what ordering them at random
    in each subset comes to; the result does not depend on the order of the rows.

    Parameters
    ----------
    index : HostRows or DeviceRows

    queries : object
        Some queries, as `index` gives them to what it maps.

    weights : ndarray of shape (n_neighbors,)
        From :func:`nearest_weights`.

    return_std : bool

    Returns
    -------
    tuple of ndarrays of shape (n_queries, n_outputs)
        The estimate ``f = sum_j w_j y_j`` and, if `return_std`, its standard error
        ``sqrt(sum_j w_j^2 * sum_j w_j (y_j - f)^2 / (1 - sum_j w_j^2))``: the second sum
        over ``1 - sum_j w_j^2`` is without bias for the variance of independent outcomes
        that share mean and variance. NaN where one row has all the weight.
    """
    # One neighbour more than has weight: does a group of ties cross the end?
    found = index.k_nearest(queries, min(len(weights) + 1, len(index.outcomes)))
    return weighted_neighbors(weights, found, index.outcomes, return_std)


def weighted_neighbors(weights, found, y, return_std):
    """Weighted mean of the nearest rows' outcomes, ties sharing their weights.

    Parameters
    ----------
    weights : ndarray of shape (n_neighbors,)
        From :func:`nearest_weights`.

    found : Nearest
        The nearest rows, and one more where there is one.

    y : ndarray of shape (n_rows, n_outputs)

    return_std : bool

    Returns
    -------
    tuple of ndarrays of shape (n_queries, n_outputs)
    """
    distances, rows, at_distance = found
    n_neighbors, n_queries = len(weights), len(distances)
    last = distances[:, n_neighbors - 1]
    crossing = np.flatnonzero((distances[:, n_neighbors:] == last[:, None]).any(axis=1))
    distances, rows = distances[:, :n_neighbors], rows[:, :n_neighbors]
    shared = share_tied_weights(weights, distances)
    # A group that crosses the end has the weights of its ranks before the end, over all
    # of its rows.
    group_weight = np.zeros(n_queries)
    shape = (n_queries, y.shape[1])
    group = (np.zeros(n_queries), np.zeros(shape), np.zeros(shape))
    if len(crossing):
        in_group = distances[crossing] == last[crossing, None]
        group_weight[crossing] = np.where(in_group, shared[crossing], 0.0).sum(axis=1)
        shared[crossing] = np.where(in_group, 0.0, shared[crossing])
        for values, values_crossing in zip(group, at_distance(crossing, last[crossing])):
            values[crossing] = values_crossing
    counts, sums, squares = group
    each = group_weight / np.maximum(counts, 1)
    outcomes = y[rows]
    mean = np.einsum("qk,qko->qo", shared, outcomes) + each[:, None] * sums
    if not return_std:
        return (mean,)
    spread = np.einsum("qk,qko->qo", shared, (outcomes - mean[:, None]) ** 2)
    spread += each[:, None] * (squares - 2 * mean * sums + counts[:, None] * mean**2)
    concentration = (shared**2).sum(axis=1) + each**2 * counts
    with np.errstate(divide="ignore", invalid="ignore"):
        inflation = np.where(concentration < 1, concentration / (1 - concentration), np.nan)
    return mean, np.sqrt(np.maximum(spread, 0) * inflation[:, None])
