"""Estimator of success probabilities from the paper on OCCAM, by nearest rows."""

from typing import NamedTuple, Self

import numpy as np
from joblib import effective_n_jobs
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import gen_batches
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data

from skroute.utils._compat import Integral, Interval, StrOptions, _fit_context
from skroute.utils._named import check_rows_match
from skroute.utils._pickles import VersionedPickleMixin
from skroute.utils._scored import CheckedScoreMixin
from skroute.utils._tensors import on_host
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import (
    check_numbers,
    given_weights,
    none_if_equal,
    read_only,
    refuse_masked,
    refuse_texts,
    relative_weights,
    whole_rows,
)

# By default there is one row of a subset for this number of reference rows. The page on
# quality in the user guide compares other values.
_ROWS_PER_SUBSET_ROW = 10
# An estimate leaves out the farthest rows if their weights sum to less than this. So
# the estimate changes by at most this share of the range of the outcomes.
_TAIL = 1e-6
# Distances that each thread has in memory at once: 8 MB.
_DISTANCES = 2**20
# Names of the metrics in scipy, except for chebyshev, which has its own kernel. Squared
# distances sort rows as euclidean distances do.
_SCIPY_METRICS = {"manhattan": "cityblock", "euclidean": "sqeuclidean"}


class BaggedNeighborsRegressor(
    VersionedPickleMixin,
    CheckedScoreMixin,
    MultiOutputMixin,
    RegressorMixin,
    BaseEstimator,
):
    """Mean outcome of the nearest row of a random subset, over all subsets of one size.

    OCCAM chooses one of several classifiers for each row. This is its estimator of
    success probabilities [1]_. The outcomes of the reference rows are known: for each
    model, the quality of its answer. Each subset of `subset_size` reference rows
    estimates a new row by the outcome of its nearest row, and the estimate is the mean
    over the subsets. In larger subsets, the nearest row is nearer (less bias). The mean
    is then over fewer different rows (more variance).

    The mean is over *all* subsets of that size, and none is drawn. The j-th nearest of
    N rows is the nearest one in a share ``C(N - j, subset_size - 1) / C(N,
    subset_size)`` of the subsets. So the estimate is a weighted mean of the nearest
    rows. A mean over drawn subsets has the same expectation. Since all subsets overlap,
    the estimate has about half the variance of a mean over ``N / subset_size`` disjoint
    subsets.

    All outputs share one search, in double precision. Rows are not scaled here, so
    scale the features if their units differ.

    Parameters
    ----------
    subset_size : int, default=None
        Rows in a subset. Raising it follows local changes of the outcomes more closely,
        and more of their noise. None takes a tenth of the rows (at least one), which
        averages about 20 rows. Noisy outcomes need smaller subsets: see :ref:`quality`,
        and tune the parameter by a search.

    metric : {"chebyshev", "manhattan", "euclidean"}, default="chebyshev"
        Distance between rows. The default is the one recommended in [1]_.

    n_jobs : int, default=None
        Threads that share the rows of `predict`. None means one, -1 all processors.

    Attributes
    ----------
    subset_size_ : int
        Rows in a subset.

    weights_ : ndarray of shape (n_neighbors,)
        Weight of the j-th nearest row, if all rows weigh one. The weights fall. They
        end where the rest sums to less than 1e-6, and are scaled to sum to one.

    n_features_in_ : int
        Number of features seen during `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, if all are strings.

    See Also
    --------
    sklearn.neighbors.KNeighborsRegressor : Equal weights or weights by distance.
    sklearn.ensemble.RandomForestRegressor : Chooses the features that matter by itself.

    Notes
    -----
    Rows at the same distance share their weights, so that the estimate does not depend
    on the order of the rows.

    With a `sample_weight`, a row of weight 2 is two rows at the same distance.
    `predict` then sorts all rows for each query.

    References
    ----------
    .. [1] D. Ding, B. Xu, L. V. S. Lakshmanan, "OCCAM: Towards Cost-Efficient and
       Accuracy-Aware Classification Inference", 2024 (estimator: Lemmas 4.5 and 4.6).

    Examples
    --------
    Two models, and whether each was right on 1000 rows:

    >>> import numpy as np
    >>> from skroute.quality import BaggedNeighborsRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((1000, 2))
    >>> success_probability = np.column_stack([X[:, 0], np.full(1000, 0.7)])
    >>> success = rng.random((1000, 2)) < success_probability
    >>> estimator = BaggedNeighborsRegressor().fit(X, success.astype(float))
    >>> mean, std = estimator.predict([[0.1, 0.5], [0.9, 0.5]], return_std=True)
    >>> mean.round(2)
    array([[0.24, 0.6 ],
           [0.94, 0.66]])
    >>> std.round(2)
    array([[0.1 , 0.12],
           [0.05, 0.11]])
    """

    _parameter_constraints = {
        "subset_size": [None, Interval(Integral, 1, None, closed="left")],
        "metric": [StrOptions({"chebyshev", "manhattan", "euclidean"})],
        "n_jobs": [None, Integral],
    }

    def __init__(self, *, subset_size=None, metric="chebyshev", n_jobs=None):
        self.subset_size = subset_size
        self.metric = metric
        self.n_jobs = n_jobs

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Store the rows and outcomes that `predict` takes nearest neighbours from.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Reference rows.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Outcomes. For routing, the quality of each model's answer, out of sample.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. Their unit does not matter: whole multiples of the
            smallest weight, up to 16, count rows, and other weights get the mean 1. A
            row of weight 0 is left out. None weights all rows alike.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If `X` has fewer rows than a subset.

        TypeError
            If `X` is sparse.
        """
        # `weights_` marks a fitted estimator, and is set last. So the estimator is not
        # fitted after a fit that fails.
        self.__dict__.pop("weights_", None)
        refuse_masked(X=X, y=y)
        check_rows_match(X=X, y=y, sample_weight=sample_weight)
        return self._fit(X, y, sample_weight)

    @_fit_context(prefer_skip_nested_validation=True)
    def _fit(self, X, y, sample_weight):
        """Check the arguments of :meth:`fit`, and store the reference rows.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        y : array-like of shape (n_rows,) or (n_rows, n_outputs)
        sample_weight : array-like of shape (n_rows,), or None
            None: all rows weigh one.

        Returns
        -------
        self
        """
        # This call raises an error for n_jobs=0. Otherwise only `predict` would do so.
        effective_n_jobs(self.n_jobs)
        # Sparse rows are refused below: `validate_data` has a message for them.
        is_sparse = hasattr(X, "tocsr")
        if not is_sparse:
            refuse_texts(X=X)
        rows, outcomes = validate_data(
            self,
            on_host(X),
            on_host(y),
            dtype=[np.float64, np.float32],
            multi_output=True,
            y_numeric=True,
        )
        # Weights of the reference rows, of shape (n_rows,). None: all weigh one.
        self._row_weight = None
        # Number of reference rows. With weights, it is replaced by their total weight.
        n_rows = len(rows)
        weight = given_weights(sample_weight, rows)
        if weight is not None:
            weight = relative_weights(weight)
            has_weight = weight > 0
            rows = rows[has_weight]
            outcomes = outcomes[has_weight]
            self._row_weight = none_if_equal(weight[has_weight])
            # `relative_weights` returns counts of rows, or weights of mean 1. The sum
            # of these weights is the number of rows that they stand for.
            n_rows = round(weight.sum())
        subset_size = self.subset_size
        if subset_size is not None and subset_size > n_rows:
            raise ValueError(
                f"subset_size={subset_size!r} is more than the n_samples = {n_rows} "
                f"given to fit; it can be at most {n_rows}."
            )
        if subset_size is None:
            subset_size = max(1, n_rows // _ROWS_PER_SUBSET_ROW)
        self.subset_size_ = subset_size
        # `predict` uses the metric of `fit`, also if the parameter is set later.
        self._metric = self.metric
        # (n_features, n_rows): the search reads feature by feature.
        self._columns = np.ascontiguousarray(rows.T, dtype=np.float64)
        # scikit-learn refuses NaN among numbers, but not None among objects.
        self._outcomes = check_numbers(outcomes, "y")
        self.weights_ = nearest_weights(n_rows, self.subset_size_)
        return self

    def predict(
        self, X: ArrayLike, return_std: bool = False
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], ...]:
        """Estimate the outcomes of new rows, from the outcomes of their neighbours.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.

        return_std : bool, default=False
            Whether to return the standard error of each estimate as well.

        Returns
        -------
        y_mean : ndarray of shape (n_samples,) or (n_samples, n_outputs), dtype=float64
            The estimates.

        y_std : ndarray of the same shape, dtype=float64
            Their standard errors given the reference rows. Only if `return_std`. With
            weights w and estimate f, they are ``sqrt(sum(w**2) * sum(w * (y - f)**2) /
            (1 - sum(w**2)))``. Their square is unbiased if the nearest rows have the
            same expected outcome and noise. If the expected outcomes differ, it is too
            large on average. NaN if a single row has all the weight (`subset_size`
            equal to the number of rows).
        """
        check_is_fitted(self)
        queries = whole_rows(X, self)
        estimate_block = self._estimates
        if self._row_weight is not None:
            estimate_block = self._weighted_estimates
        # Number of queries whose distances to all reference rows are in memory at once.
        n_reference_rows = self._columns.shape[1]
        block_size = max(1, _DISTANCES // n_reference_rows)
        blocks = Parallel(n_jobs=self.n_jobs, require="sharedmem")(
            delayed(estimate_block)(queries[block], return_std)
            for block in gen_batches(len(queries), block_size)
        )
        shape = (len(queries), *self._outcomes.shape[1:])
        mean = np.concatenate([block.mean for block in blocks]).reshape(shape)
        if not return_std:
            return mean
        std = np.concatenate([block.std for block in blocks]).reshape(shape)
        return mean, std

    def _distances(self, queries):
        """Return distances of queries to all reference rows, squared if euclidean.

        Callers only sort and compare distances. Squares have the same order.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, n_features)

        Returns
        -------
        ndarray of shape (n_queries, n_rows)
        """
        if self._metric != "chebyshev":
            return cdist(queries, self._columns.T, _SCIPY_METRICS[self._metric])
        from skroute.quality._kernels import chebyshev

        distances = np.empty((len(queries), self._columns.shape[1]))
        chebyshev(read_only(self._columns), read_only(queries), distances)
        return distances

    def _estimates(self, queries, return_std):
        """Estimate queries (new rows) if all reference rows have the same weight.

        Each query has as many neighbours as `weights_` has entries. If further rows are
        at the distance of the last neighbour, they become neighbours as well. Such a
        query is computed alone, over all its neighbours.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, n_features)
        return_std : bool

        Returns
        -------
        _Estimates
        """
        distances = self._distances(queries)
        # A table of shape (n_rows, n_outputs), also if `y` had one dimension.
        outcomes = self._outcomes.reshape(len(self._outcomes), -1)
        nearest = _nearest_rows(distances, len(self.weights_))
        nearest_distances = np.take_along_axis(distances, nearest, axis=1)
        weights = share_tied_weights(self.weights_, nearest_distances)
        last_distances = nearest_distances[:, -1]
        tied_neighbors = _tied_with_last(
            distances, last_distances, nearest=nearest, weights=weights
        )
        # Indices of the sums: query q, its neighbour k, output o.
        mean = np.einsum("qk,qko->qo", weights, outcomes[nearest])
        for tied in tied_neighbors:
            mean[tied.query] = tied.weights @ outcomes[tied.rows]
        if not return_std:
            return _Estimates(mean, std=None)
        # Variance of the outcomes of a query's neighbours, and sum of squared weights.
        squared_residuals = (outcomes[nearest] - mean[:, None]) ** 2
        variance = np.einsum("qk,qko->qo", weights, squared_residuals)
        sum_of_squared_weights = (weights**2).sum(axis=1)
        for tied in tied_neighbors:
            squared_residuals = (outcomes[tied.rows] - mean[tied.query]) ** 2
            variance[tied.query] = tied.weights @ squared_residuals
            sum_of_squared_weights[tied.query] = (tied.weights**2).sum()
        return _Estimates(mean, _standard_errors(variance, sum_of_squared_weights))

    def _weighted_estimates(self, queries, return_std):
        """Estimate queries (new rows) if reference rows have different weights.

        All reference rows are sorted for each query, because the number of rows that
        have a share depends on their weights.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, n_features)
        return_std : bool

        Returns
        -------
        _Estimates
        """
        # A table of shape (n_rows, n_outputs), also if `y` had one dimension.
        outcomes = self._outcomes.reshape(len(self._outcomes), -1)
        shares = weighted_shares(
            self._distances(queries), self._row_weight, place_weights=self.weights_
        )  # (n_queries, n_rows)
        mean = shares @ outcomes
        if not return_std:
            return _Estimates(mean, std=None)
        variance = np.empty(mean.shape)
        # Outputs are computed one at a time, so that no array has three axes.
        for output in range(mean.shape[1]):
            residuals = outcomes[:, output] - mean[:, [output]]  # (n_queries, n_rows)
            variance[:, output] = (shares * residuals**2).sum(axis=1)
        # Sum of the squared shares of single rows. A row of weight w is w single rows,
        # and each of them has the part 1 / w of its share.
        sum_of_squares = (shares**2 / self._row_weight).sum(axis=1)
        return _Estimates(mean, _standard_errors(variance, sum_of_squares))

    def __sklearn_is_fitted__(self):
        return hasattr(self, "weights_")


class _Estimates(NamedTuple):
    """Estimates of the outcomes of some queries, with standard errors.

    Attributes
    ----------
    mean : ndarray of shape (n_queries, n_outputs)
    std : ndarray of shape (n_queries, n_outputs), or None
        Standard errors. None if they are not needed.
    """

    mean: np.ndarray
    std: np.ndarray | None


class _TiedNeighbors(NamedTuple):
    """All neighbours of a query whose last neighbour is tied with other rows.

    Attributes
    ----------
    query : int
        Position of the query.
    rows : ndarray of int, of shape (n_neighbors,)
        All rows up to the distance of the last neighbour.
    weights : ndarray of shape (n_neighbors,)
        All rows at the last distance have the same weight.
    """

    query: int
    rows: np.ndarray
    weights: np.ndarray


def _nearest_rows(distances, n_neighbors):
    """Return the positions of the nearest rows of each query, by rising distance.

    Parameters
    ----------
    distances : ndarray of shape (n_queries, n_rows)
    n_neighbors : int
        Number of nearest rows of each query.

    Returns
    -------
    ndarray of shape (n_queries, n_neighbors), dtype=intp
    """
    # The first columns of the partition are the nearest rows, in any order.
    nearest = np.argpartition(distances, n_neighbors - 1, axis=1)[:, :n_neighbors]
    order = np.take_along_axis(distances, nearest, axis=1).argsort(axis=1)
    return np.take_along_axis(nearest, order, axis=1)


def _tied_with_last(distances, last_distances, nearest, weights):
    """Return all neighbours of queries whose last neighbour is tied with other rows.

    The tied rows become neighbours as well. Some rows at this distance are in `nearest`
    and have weights. All rows at this distance get equal parts of the sum of these
    weights.

    Parameters
    ----------
    distances : ndarray of shape (n_queries, n_rows)
    last_distances : ndarray of shape (n_queries,)
        Distance of the last of the nearest rows.
    nearest : ndarray of shape (n_queries, n_neighbors), dtype=intp
        Positions of the nearest rows, by rising distance.
    weights : ndarray of shape (n_queries, n_neighbors)
        Weights of the nearest rows.

    Returns
    -------
    list of _TiedNeighbors
    """
    n_neighbors = nearest.shape[1]
    # Number of rows that are not farther than the last neighbour of each query.
    n_within = np.count_nonzero(distances <= last_distances[:, None], axis=1)
    tied_neighbors = []
    for query in np.flatnonzero(n_within > n_neighbors):
        distances_of_query = distances[query]
        rows = np.flatnonzero(distances_of_query <= last_distances[query])
        last_rows = np.flatnonzero(distances_of_query == last_distances[query])
        weight_of_row = np.zeros(distances.shape[1])
        weight_of_row[nearest[query]] = weights[query]
        # All rows at the last distance get equal parts of their total weight. So far,
        # only the rows that are in `nearest` have weights.
        weight_of_row[last_rows] = weight_of_row[last_rows].sum() / len(last_rows)
        tied_neighbors.append(_TiedNeighbors(query, rows, weight_of_row[rows]))
    return tied_neighbors


def _standard_errors(variance, sum_of_squared_weights):
    """Return the standard errors of weighted means, NaN if one row has all the weight.

    With the sum ``s`` of squared weights, the squared standard error is ``variance / (1
    - s) * s``. The quotient is an unbiased variance of the outcomes. The variance of
    their weighted mean is the share ``s`` of it.

    Parameters
    ----------
    variance : ndarray of shape (n_queries, n_outputs)
        Weighted means of squared residuals.
    sum_of_squared_weights : ndarray of shape (n_queries,)
        It is 1 if one row has all the weight.

    Returns
    -------
    ndarray of shape (n_queries, n_outputs)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(
            sum_of_squared_weights < 1,
            sum_of_squared_weights / (1 - sum_of_squared_weights),
            np.nan,
        )
    return np.sqrt(variance * factor[:, None])


def nearest_weights(n_rows, subset_size, tail=_TAIL):
    """Return the probability that the j-th nearest row is nearest in a random subset.

    There are ``C(n_rows, subset_size)`` subsets. A subset whose nearest row is the j-th
    nearest of all has this row, and ``subset_size - 1`` of the ``n_rows - j`` rows
    beyond it: ``w_j = C(n_rows - j, subset_size - 1) / C(n_rows, subset_size)``. Hence
    ``w_1 = subset_size / n_rows`` and ``w_{j+1} / w_j = (n_rows - j - subset_size + 1)
    / (n_rows - j)``.

    Parameters
    ----------
    n_rows : int

    subset_size : int
        From 1 (all weights equal) to `n_rows` (the nearest row has all the weight).

    tail : float, default=1e-6
        The farthest rows are left out if their weights sum to less than this.

    Returns
    -------
    ndarray of shape (n_neighbors,), dtype=float64
        Falling weights, scaled to sum to one.
    """
    j = np.arange(1, n_rows - subset_size + 1, dtype=np.float64)
    log_ratios = np.log((n_rows - j - subset_size + 1) / (n_rows - j))
    # The weight beyond the j-th row is the probability that a subset has none of the j
    # nearest rows: C(n_rows - j, subset_size) / C(n_rows, subset_size). This number is
    # computed as a product, because a difference from 1 would lose all its digits.
    rows_left = n_rows - j + 1  # rows without the j - 1 nearest ones
    log_beyond = np.cumsum(np.log((rows_left - subset_size) / rows_left))
    # The first row always has a weight. Row j + 1 has a weight if the rows beyond the
    # j-th one have a total weight of at least `tail`.
    n_neighbors = 1 + int(np.count_nonzero(log_beyond >= np.log(tail)))
    # Weights are in units of the first weight, so that its logarithm is 0.
    log_weights = np.concatenate([[0.0], np.cumsum(log_ratios)])[:n_neighbors]
    weights = np.exp(log_weights)
    return weights / weights.sum()


def weighted_shares(distances, row_weight, place_weights):
    """Return the share of each weighted row in the estimate of each query.

    Rows have places on a line, by rising distance. A row of weight w has w places. Rows
    at the same distance have their places in common, and share the weight of these
    places in proportion to their weights.

    Parameters
    ----------
    distances : ndarray of shape (n_queries, n_rows)
    row_weight : ndarray of shape (n_rows,)
        Weights above 0, in units of one row.
    place_weights : ndarray of shape (n_neighbors,)
        Weights of the places, see :func:`nearest_weights`.

    Returns
    -------
    ndarray of shape (n_queries, n_rows)
    """
    order = distances.argsort(axis=1, kind="stable")
    sorted_distances = np.take_along_axis(distances, order, axis=1)
    sorted_weight = row_weight[order]
    # Rows are on a line, by rising distance. A row of weight w takes w places of the
    # line, from `begin` to `end`, (n_queries, n_rows).
    end = sorted_weight.cumsum(axis=1)
    begin = np.zeros(end.shape)
    begin[:, 1:] = end[:, :-1]
    # Rows are in sorted order. Entry j is True if row j + 1 is tied with row j.
    is_tied = sorted_distances[:, 1:] == sorted_distances[:, :-1]
    # Tied rows get the first `begin` and the last `end` of all rows at their distance.
    # An infinite bound has no effect on the running maximum or minimum.
    begin[:, 1:][is_tied] = -np.inf
    begin = np.maximum.accumulate(begin, axis=1)
    end[:, :-1][is_tied] = np.inf
    # The running minimum starts with the last row.
    end = np.minimum.accumulate(end[:, ::-1], axis=1)[:, ::-1]
    # Entry j is the total weight of the j nearest places, which rows take by rising
    # distance. Places beyond the last entry of `place_weights` have the weight 0.
    n_places = np.arange(len(place_weights) + 1)
    total = np.append(0.0, np.cumsum(place_weights))
    # Total weight of all rows at the distance of each row, (n_queries, n_rows).
    weight_of_distance = np.interp(end, n_places, total)
    weight_of_distance -= np.interp(begin, n_places, total)
    shares = np.empty(distances.shape)
    # Rows at one distance share `weight_of_distance` in proportion to their weights.
    sorted_shares = weight_of_distance * sorted_weight / (end - begin)
    np.put_along_axis(shares, order, sorted_shares, axis=1)
    return shares / shares.sum(axis=1, keepdims=True)


def share_tied_weights(weights, distances):
    """Return weights of neighbours, equal for neighbours at the same distance.

    The nearest neighbour has rank 1. Neighbours at one distance get the mean of the
    weights of their ranks.

    Parameters
    ----------
    weights : ndarray of shape (n_neighbors,)
        Weight of each rank.
    distances : ndarray of shape (n_queries, n_neighbors)
        Rising along each row.

    Returns
    -------
    ndarray of shape (n_queries, n_neighbors)
    """
    # True where the distance is not equal to the distance of the neighbour before.
    is_new = np.ones(distances.shape, dtype=bool)
    is_new[:, 1:] = distances[:, 1:] != distances[:, :-1]
    # The queries are put one after another in a flat array. A group has neighbours of
    # one query at one distance.
    group_starts = np.flatnonzero(is_new)
    group_sizes = np.diff(group_starts, append=distances.size)
    all_weights = np.broadcast_to(weights, distances.shape).ravel()
    group_means = np.add.reduceat(all_weights, group_starts) / group_sizes
    return np.repeat(group_means, group_sizes).reshape(distances.shape)
