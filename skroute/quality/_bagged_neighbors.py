"""OCCAM's estimator of success probabilities, as a multi-output regressor."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skroute.quality._bagging import exact_estimate, nearest_weights, subsets_estimate
from skroute.quality._search import METRICS, encode_references, query_batches
from skroute.utils._compat import Integral, Interval, StrOptions, _fit_context


class BaggedNeighborsRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """TODO"""

    _parameter_constraints = {
        "n_subsets": [StrOptions({"exact"}), Interval(Integral, 1, None, closed="left")],
        "subset_size": [None, Interval(Integral, 1, None, closed="left")],
        "metric": [StrOptions(set(METRICS))],
        "random_state": ["random_state"],
        "n_jobs": [None, Integral],
    }

    def __init__(
        self,
        *,
        n_subsets="exact",
        subset_size=None,
        metric="chebyshev",
        random_state=None,
        n_jobs=None,
    ):
        self.n_subsets = n_subsets
        self.subset_size = subset_size
        self.metric = metric
        self.random_state = random_state
        self.n_jobs = n_jobs

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Store and index the reference rows."""
        _reject_sparse(X)
        X, y = validate_data(
            self,
            X,
            y,
            dtype=[np.float64, np.float32],
            order="C",
            multi_output=True,
            y_numeric=True,
        )
        y = np.asarray(y, dtype=np.float64)
        subset_size = self._resolve_subset_size(len(X))
        if self.n_subsets == "exact":
            self.weights_ = nearest_weights(len(X), subset_size)
            self._starts = None
        else:
            rows = check_random_state(self.random_state).permutation(len(X))
            subsets = rows[: self.n_subsets * subset_size].reshape(self.n_subsets, subset_size)
            # In each subset in their own order, for ties to go to the first row.
            rows = np.sort(subsets, axis=1).ravel()
            X, y = X[rows], y[rows]
            self.weights_ = None
            self._starts = np.arange(0, len(rows) + 1, subset_size, dtype=np.int64)
        self._X = X
        self._y = y
        self._index = encode_references(X, self.metric)
        self.subset_size_ = subset_size
        return self

    def _resolve_subset_size(self, n_rows):
        if self.n_subsets == "exact":
            if self.subset_size is None:
                return max(1, n_rows // 40)
            if self.subset_size > n_rows:
                raise ValueError(
                    f"subset_size={self.subset_size!r} is more than the {n_rows} rows given to "
                    f"fit; it can be at most {n_rows}."
                )
            return self.subset_size
        if self.n_subsets > n_rows:
            raise ValueError(
                f"n_subsets={self.n_subsets!r} disjoint subsets need as many rows, got "
                f'{n_rows}. Use at most {n_rows} subsets, or n_subsets="exact".'
            )
        largest = n_rows // self.n_subsets
        if self.subset_size is None:
            return largest
        if self.subset_size > largest:
            raise ValueError(
                f"n_subsets={self.n_subsets!r} disjoint subsets of subset_size="
                f"{self.subset_size!r} need {self.n_subsets * self.subset_size} rows, got "
                f"{n_rows}. With this n_subsets a subset_size of at most {largest} fits (None "
                f"takes it), with this subset_size at most {n_rows // self.subset_size} subsets."
            )
        return self.subset_size

    def predict(self, X: ArrayLike, return_std: bool = False):
        """Estimate the outcomes of rows."""
        check_is_fitted(self)
        _reject_sparse(X)
        X = validate_data(self, X, dtype=[np.float64, np.float32], order="C", reset=False)
        y = self._y.reshape(len(self._y), -1)
        if self._starts is None:
            n_neighbors = len(self.weights_)

            def estimate(rows):
                return exact_estimate(self._index, self._X, self.weights_, y, X[rows], return_std)
        else:
            n_neighbors = len(self._starts) - 1

            def estimate(rows):
                return subsets_estimate(self._index, self._X, self._starts, y, X[rows], return_std)

        result = query_batches(len(X), n_neighbors, self.n_jobs, estimate)
        result = tuple(values.reshape(len(X), *self._y.shape[1:]) for values in result)
        return result if return_std else result[0]

    def __sklearn_is_fitted__(self):
        return hasattr(self, "subset_size_")


def _reject_sparse(X):
    if issparse(X):
        raise TypeError(
            "BaggedNeighborsRegressor got a sparse X and takes dense rows only: distances to "
            "the nearest rows mean little in a sparse high-dimensional space. Reduce it "
            "first, for example with make_pipeline(TruncatedSVD(100), BaggedNeighborsRegressor())."
        )
