"""OCCAM's estimator of success probabilities, as a multi-output regressor."""

from typing import Self

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

# Rows per row of a subset by default: see the page on quality in the user guide.
_SUBSETS = 10
# Weight of the farthest rows that is left out.
_TAIL = 1e-6
# Distances that are in memory at once, by each thread.
_DISTANCES = 2**20


class BaggedNeighborsRegressor(
    VersionedPickleMixin,
    CheckedScoreMixin,
    MultiOutputMixin,
    RegressorMixin,
    BaseEstimator,
):
    """Outcomes of the nearest row of a random subset, averaged over all subsets.

    This is OCCAM's estimator of success probabilities [1]_. A subset of `subset_size` of the
    reference rows, whose outcomes are known (for each model, how well it answered), answers a
    new row with the outcome of its nearest row, and the estimate is the mean of these answers.
    Larger subsets hold nearer rows (less bias) and average fewer of them (more variance).

    The mean is taken over *all* subsets of that size, without drawing one: the j-th nearest of N
    rows is the nearest one in a share ``C(N - j, subset_size - 1) / C(N, subset_size)`` of them,
    so the estimate is a weighted mean of the nearest rows. It has the expectation of drawn
    subsets and, since the subsets overlap, about half the variance of ``N / subset_size``
    disjoint ones.

    All outputs share one search, in double precision. Rows are not scaled here, so scale the
    features if their units differ.

    Parameters
    ----------
    subset_size : int, default=None
        Rows in a subset. Raising it follows local changes of the outcomes more closely,
        and more of their noise. None takes a tenth of the rows (at least one), which averages
        about 20 rows. Noisy outcomes want smaller subsets: see :ref:`quality`, and search it.

    metric : {"chebyshev", "manhattan", "euclidean"}, default="chebyshev"
        Distance between rows. The default is the one recommended in [1]_.

    n_jobs : int, default=None
        Threads that share the rows of `predict`. None means one, -1 all processors.

    Attributes
    ----------
    subset_size_ : int
        Rows in a subset.

    weights_ : ndarray of shape (n_neighbors,)
        Weight of the j-th nearest row, if all rows weigh one: falling, cut where the rest sums to
        less than 1e-6 and scaled to sum to one.

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
    Rows at the same distance share their weights, so that the estimate does not depend on the
    order of the rows.

    With a `sample_weight` a row stands for as many rows as it weighs, all at its distance: a row of
    weight 2 has the weights of two neighbours. `predict` then sorts all rows for each query.

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
        """Store the reference rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Reference rows.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Outcomes; for routing, the quality of each model's answer, out of sample.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. Their unit does not matter: whole multiples of the smallest
            weight, up to 16, count rows, and other weights get the mean 1. A row of weight 0 is
            left out. None weights all rows alike.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If `X` has fewer rows than a subset.

        TypeError
            If `X` is sparse.
        """
        self.__dict__.pop("weights_", None)
        refuse_masked(X=X, y=y)
        check_rows_match(X=X, y=y, sample_weight=sample_weight)
        return self._fit(X, y, sample_weight)

    @_fit_context(prefer_skip_nested_validation=True)
    def _fit(self, X, y, sample_weight):
        # Refuses 0 here rather than in `predict`.
        effective_n_jobs(self.n_jobs)
        if not hasattr(X, "tocsr"):
            refuse_texts(X=X)
        rows, outcomes = validate_data(
            self,
            on_host(X),
            on_host(y),
            dtype=[np.float64, np.float32],
            multi_output=True,
            y_numeric=True,
        )
        self._row_weight = None
        n_rows = len(rows)
        weight = given_weights(sample_weight, rows)
        if weight is not None:
            weight = relative_weights(weight)
            kept = weight > 0
            rows, outcomes = rows[kept], outcomes[kept]
            self._row_weight = none_if_equal(weight[kept])
            n_rows = round(weight.sum())
        size = self.subset_size
        if size is not None and size > n_rows:
            raise ValueError(
                f"subset_size={size!r} is more than the n_samples = {n_rows} given to fit; "
                f"it can be at most {n_rows}."
            )
        self.subset_size_ = max(1, n_rows // _SUBSETS) if size is None else size
        self._metric = self.metric
        # Feature by feature, as the search reads them.
        self._columns = np.ascontiguousarray(rows.T, dtype=np.float64)
        # scikit-learn looks for NaN among numbers, not for None among objects.
        self._outcomes = check_numbers(outcomes, "y")
        self.weights_ = nearest_weights(n_rows, self.subset_size_)
        return self

    def predict(
        self, X: ArrayLike, return_std: bool = False
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], ...]:
        """Estimate the outcomes of rows.

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
            Their standard errors given the reference rows; only if `return_std`. With weights w
            and estimate f, ``sqrt(sum(w**2) * sum(w * (y - f)**2) / (1 - sum(w**2)))``: unbiased
            (squared) where the nearest rows have the same expected outcome and noise, too large
            rather than too small where the expected outcomes differ. NaN where a single
            row decides (`subset_size` equal to the number of rows).
        """
        check_is_fitted(self)
        queries = whole_rows(X, self)
        each = max(1, _DISTANCES // self._columns.shape[1])
        estimates = (
            self._estimates if self._row_weight is None else self._weighted_estimates
        )
        parts = Parallel(n_jobs=self.n_jobs, require="sharedmem")(
            delayed(estimates)(queries[some], return_std)
            for some in gen_batches(len(queries), each)
        )
        shape = (len(queries), *self._outcomes.shape[1:])
        found = [np.concatenate(part).reshape(shape) for part in zip(*parts)]
        return tuple(found) if return_std else found[0]

    def _distances(self, queries):
        """Distances of all reference rows; for the order alone those of euclidean are squared."""
        if self._metric != "chebyshev":
            name = {"manhattan": "cityblock", "euclidean": "sqeuclidean"}[self._metric]
            return cdist(queries, self._columns.T, name)
        from skroute.quality._kernels import chebyshev

        distances = np.empty((len(queries), self._columns.shape[1]))
        chebyshev(read_only(self._columns), read_only(queries), distances)
        return distances

    def _estimates(self, queries, return_std):
        """Weighted means of the nearest rows' outcomes, ties sharing their weights."""
        distances, k = self._distances(queries), len(self.weights_)
        outcomes = self._outcomes.reshape(len(self._outcomes), -1)
        nearest = np.argpartition(distances, k - 1, axis=1)[:, :k]
        near = np.take_along_axis(distances, nearest, axis=1)
        order = near.argsort(axis=1)
        nearest, near = (
            np.take_along_axis(part, order, axis=1) for part in (nearest, near)
        )
        weights = share_tied_weights(self.weights_, near)
        # Rows that are as far as the last one, and share its weight.
        n_tied = np.count_nonzero(distances <= near[:, -1:], axis=1)
        mean = np.einsum("qk,qko->qo", weights, outcomes[nearest])
        tied = {}
        for q in np.flatnonzero(n_tied > k):
            rows = np.flatnonzero(distances[q] <= near[q, -1])
            own = np.zeros(distances.shape[1])
            own[nearest[q]] = weights[q]
            at_end = rows[distances[q, rows] == near[q, -1]]
            own[at_end] = own[at_end].sum() / len(at_end)
            tied[q] = rows, own[rows]
            mean[q] = own[rows] @ outcomes[rows]
        if not return_std:
            return (mean,)
        spread = np.einsum(
            "qk,qko->qo", weights, (outcomes[nearest] - mean[:, None]) ** 2
        )
        squares = (weights**2).sum(axis=1)
        for q, (rows, own) in tied.items():
            spread[q] = own @ (outcomes[rows] - mean[q]) ** 2
            squares[q] = (own**2).sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            inflation = np.where(squares < 1, squares / (1 - squares), np.nan)
        return mean, np.sqrt(spread * inflation[:, None])

    def _weighted_estimates(self, queries, return_std):
        """Return weighted means of outcomes, where rows weigh differently."""
        outcomes = self._outcomes.reshape(len(self._outcomes), -1)
        shares = weighted_shares(
            self._distances(queries), self._row_weight, self.weights_
        )
        mean = shares @ outcomes
        if not return_std:
            return (mean,)
        spread = np.empty(mean.shape)
        for output in range(mean.shape[1]):
            apart = outcomes[:, output] - mean[:, [output]]
            spread[:, output] = (shares * apart**2).sum(axis=1)
        # A row of weight 2 is two rows with half of its share each.
        squares = (shares**2 / self._row_weight).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            inflation = np.where(squares < 1, squares / (1 - squares), np.nan)
        return mean, np.sqrt(spread * inflation[:, None])

    def __sklearn_is_fitted__(self):
        return hasattr(self, "weights_")


def nearest_weights(n_rows, subset_size, tail=_TAIL):
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


def weighted_shares(distances, row_weight, weights):
    """Return the share of each row in the estimate of each query.

    A row takes as many of the places among the nearest rows as it weighs.

    Parameters
    ----------
    distances : ndarray of shape (n_queries, n_rows)
    row_weight : ndarray of shape (n_rows,)
        Weights above 0, in units of one row.
    weights : ndarray of shape (n_neighbors,)
        Weights of the places, see :func:`nearest_weights`.

    Returns
    -------
    ndarray of shape (n_queries, n_rows)
    """
    order = distances.argsort(axis=1, kind="stable")
    near = np.take_along_axis(distances, order, axis=1)
    own_weight = row_weight[order]
    end = own_weight.cumsum(axis=1)
    begin = end - own_weight
    begin[:, 1:] = end[:, :-1]
    begin[:, 0] = 0.0
    # Rows at one distance have all the places of these rows in common.
    differs = near[:, 1:] != near[:, :-1]
    begin[:, 1:][~differs] = -np.inf
    begin = np.maximum.accumulate(begin, axis=1)
    end[:, :-1][~differs] = np.inf
    end = np.minimum.accumulate(end[:, ::-1], axis=1)[:, ::-1]
    places = np.arange(len(weights) + 1)
    taken = np.append(0.0, np.cumsum(weights))
    of_distance = np.interp(end, places, taken) - np.interp(begin, places, taken)
    shares = np.empty(distances.shape)
    np.put_along_axis(shares, order, of_distance * own_weight / (end - begin), axis=1)
    return shares / shares.sum(axis=1, keepdims=True)


def share_tied_weights(weights, distances):
    """Weights by rank, averaged over rows at the same distance; distances rise along a row."""
    new = np.ones(distances.shape, dtype=bool)
    new[:, 1:] = distances[:, 1:] != distances[:, :-1]
    starts = np.flatnonzero(new)
    counts = np.diff(starts, append=distances.size)
    sums = np.add.reduceat(np.broadcast_to(weights, distances.shape).ravel(), starts)
    return np.repeat(sums / counts, counts).reshape(distances.shape)
