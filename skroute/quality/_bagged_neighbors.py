"""OCCAM's estimator of success probabilities, as a multi-output regressor."""

import warnings
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn import get_config
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skroute.quality._bagging import exact_estimate, nearest_weights, subsets_estimate
from skroute.quality._search import METRICS, HostRows
from skroute.utils._compat import Integral, Interval, StrOptions, _fit_context
from skroute.utils._tensors import (
    available_device,
    beside,
    check_device_parameter,
    on_host,
    torch_of,
)
from skroute.utils._validation import refuse_masked

# Rows per row of a subset by default: see the page on quality in the user guide.
_EXACT_SUBSETS = 10


class BaggedNeighborsRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Outcomes of the nearest row of each of many random subsets, averaged.

    This is OCCAM's estimator of success probabilities [1]_. From the reference rows, whose
    outcomes are known (for each model, how well it answered), subsets of `subset_size` rows
    are drawn. Each subset answers a new row with the outcome of its nearest row, and the
    estimate is the mean of these answers. Larger subsets hold nearer rows (less bias),
    more subsets average more (less variance).

    With ``n_subsets="exact"`` the mean is taken over *all* subsets of that size, without
    drawing one: the j-th nearest of N rows is the nearest one in a share
    ``C(N - j, subset_size - 1) / C(N, subset_size)`` of them, so the estimate is a weighted
    mean of the nearest rows. It has the expectation of the drawn subsets and, since the
    subsets overlap, about half the variance of ``N / subset_size`` disjoint ones.

    All outputs share one search. Distances are those of a plain float64 search, however
    the search skips; rows are not scaled here, so scale the features if their units differ.

    Parameters
    ----------
    n_subsets : int or "exact", default="exact"
        Number of disjoint subsets drawn, or ``"exact"`` for the limit of infinitely many.
        More subsets lower the variance; a fit needs ``n_subsets * subset_size`` rows, and
        rows beyond these are left out.

    subset_size : int, default=None
        Rows in a subset. Raising it follows local changes of the outcomes more closely,
        and more of their noise. None takes all rows, ``n_samples // n_subsets``, and with
        ``n_subsets="exact"`` a tenth of them (at least one), which averages about 20 rows.
        Noisy outcomes want smaller subsets: see :ref:`quality`, and search it.

    metric : {"chebyshev", "manhattan", "euclidean"}, default="chebyshev"
        Distance between rows. The default is the one recommended in [1]_.

    random_state : int, RandomState instance or None, default=None
        Draws the subsets. Not used with ``n_subsets="exact"``.

    n_jobs : int, default=None
        Threads that share the rows of `predict`. None means one, -1 all processors. Not
        used with `device`.

    device : str or torch.device, default=None
        Where `predict` searches: None for the CPU kernels, or a torch device, such as
        ``"cuda"``. The nearest rows are the same. What is pickled is on the host; a machine
        without the device warns once and answers with the kernels. Needs the extra
        ``[torch]``.

    Attributes
    ----------
    subset_size_ : int
        Rows in a subset.

    weights_ : ndarray of shape (n_neighbors,) or None
        Weight of the j-th nearest row, falling, cut where the rest sums to less than 1e-6
        and scaled to sum to one. None unless ``n_subsets="exact"``.

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
    Of rows at the same distance a drawn subset takes the one that came first in `fit`; the
    exact limit shares their weights among them, so that it does not depend on their order.

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
        "n_subsets": [StrOptions({"exact"}), Interval(Integral, 1, None, closed="left")],
        "subset_size": [None, Interval(Integral, 1, None, closed="left")],
        "metric": [StrOptions(set(METRICS))],
        "random_state": ["random_state"],
        "n_jobs": [None, Integral],
        "device": "no_validation",
    }

    def __init__(
        self,
        *,
        n_subsets="exact",
        subset_size=None,
        metric="chebyshev",
        random_state=None,
        n_jobs=None,
        device=None,
    ):
        self.n_subsets = n_subsets
        self.subset_size = subset_size
        self.metric = metric
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Store and index the reference rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Reference rows. float32 is kept, all else becomes float64.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Outcomes; for routing, the quality of each model's answer, out of sample.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If `X` has fewer rows than the subsets need, or there is no such `device`.

        ImportError
            If `device` is given and torch is not installed.

        TypeError
            If `X` is sparse.
        """
        self.__dict__.pop("subset_size_", None)
        refuse_masked(X=X, y=y)
        return self._fit(X, y)

    @_fit_context(prefer_skip_nested_validation=True)
    def _fit(self, X, y):
        _reject_sparse(X)
        check_device_parameter(self)
        if self.device is not None:
            _searching_device(self.device)
        references, outcomes = validate_data(
            self,
            on_host(X),
            on_host(y),
            dtype=[np.float64, np.float32],
            order="C",
            multi_output=True,
            y_numeric=True,
        )
        outcomes = np.asarray(outcomes, dtype=np.float64)
        n_rows = len(references)
        subset_size = self._resolve_subset_size(n_rows)
        if self.n_subsets == "exact":
            self.weights_ = nearest_weights(n_rows, subset_size)
            self._starts = None
        else:
            rows = check_random_state(self.random_state).permutation(n_rows)
            subsets = rows[: self.n_subsets * subset_size].reshape(self.n_subsets, subset_size)
            # In each subset in their own order, for ties to go to the first row.
            rows = np.sort(subsets, axis=1).ravel()
            references, outcomes = references[rows], outcomes[rows]
            self.weights_ = None
            self._starts = np.arange(0, len(rows) + 1, subset_size, dtype=np.int64)
        self._X, self._y = references, outcomes
        self._metric = self.metric
        self._index = self._ready_rows()
        self.subset_size_ = subset_size
        return self

    def _ready_rows(self):
        """The reference rows ready to be searched, where `device` says or on the host."""
        y = self._y.reshape(len(self._y), -1)
        if self.device is not None:
            from skroute.quality._torch import DeviceRows

            try:
                _searching_device(self.device)
                return DeviceRows(self._X, y, self._metric, self.device)
            except (ImportError, ValueError) as error:
                # A fitted estimator may come from another machine.
                warnings.warn(
                    f"The CPU kernels answer instead of torch, with the same result: {error}",
                    UserWarning,
                    stacklevel=3,
                )
        return HostRows(self._X, y, self._metric, self.device)

    def _resolve_subset_size(self, n_rows):
        size, n_subsets = self.subset_size, self.n_subsets
        if n_subsets == "exact":
            if size is None:
                return max(1, n_rows // _EXACT_SUBSETS)
            if size > n_rows:
                raise ValueError(
                    f"subset_size={size!r} is more than the n_samples = {n_rows} given to fit; "
                    f"it can be at most {n_rows}."
                )
            return size
        if n_subsets > n_rows:
            raise ValueError(
                f"n_subsets={n_subsets!r} disjoint subsets need as many rows, got n_samples = "
                f'{n_rows}. Use at most {n_rows} subsets, or n_subsets="exact".'
            )
        largest = n_rows // n_subsets
        if size is None:
            return largest
        if size > largest:
            fitting = (
                f"at most {n_rows // size} subsets"
                if size <= n_rows
                else f"no subset fits, use n_subsets=1 and a subset_size of at most {n_rows}"
            )
            raise ValueError(
                f"n_subsets={n_subsets!r} disjoint subsets of subset_size={size!r} need "
                f"{n_subsets * size} rows, got n_samples = {n_rows}. With this n_subsets a "
                f"subset_size of at most {largest} fits (None takes it), with this subset_size "
                f"{fitting}."
            )
        return size

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
            The estimates. A tensor where `X` is one and scikit-learn's
            ``array_api_dispatch`` is on.

        y_std : ndarray of the same shape, dtype=float64
            Their standard errors given the reference rows; only if `return_std`. For drawn
            subsets the standard deviation of their answers over the square root of their
            number. For the exact limit with weights w and estimate f,
            ``sqrt(sum(w**2) * sum(w * (y - f)**2) / (1 - sum(w**2)))``: unbiased (squared)
            where the nearest rows have the same expected outcome and noise, too large
            rather than too small where the expected outcomes differ. NaN where a single
            row decides (one subset, or `subset_size` equal to the number of rows).
        """
        check_is_fitted(self)
        _reject_sparse(X)
        index = vars(self).get("_index")
        if index is None or index.device != self.device:
            index = self._index = self._ready_rows()
        queries = index.check(self, X)
        function, how = exact_estimate, self.weights_
        if self._starts is not None:
            function, how = subsets_estimate, self._starts

        def estimate(batch):
            return function(index, batch, how, return_std)

        parts = index.map(estimate, queries, len(how), self.n_jobs)
        result = tuple(values.reshape(len(queries), *self._y.shape[1:]) for values in parts)
        if torch_of(X) is not None and get_config()["array_api_dispatch"]:
            # What scikit-learn asks of an estimator that reads tensors.
            result = tuple(beside(X, values) for values in result)
        return result if return_std else result[0]

    def __getstate__(self):
        # The index is made of what is kept, and another machine may not have the device.
        state = super().__getstate__()
        return {key: value for key, value in state.items() if key != "_index"}

    def __sklearn_is_fitted__(self):
        return hasattr(self, "subset_size_")

    # Under array API dispatch. The tag would promise fitted attributes on the device as well,
    # which a machine without it could not load.
    @property
    def _reads_tensors(self):
        return self.device is not None


def _searching_device(device):
    """The device, if the search can compute on it."""
    advice = 'Use device=None for the CPU kernels, or "cpu" for torch on the CPU.'
    return available_device(device, dtype="float64", advice=advice)


def _reject_sparse(X):
    if issparse(X):
        raise TypeError(
            "BaggedNeighborsRegressor got a sparse X and takes dense rows only: nearest rows mean "
            "little in a sparse high-dimensional space. Reduce it first, for example with "
            "make_pipeline(TruncatedSVD(100), BaggedNeighborsRegressor())."
        )
