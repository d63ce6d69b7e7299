"""The default estimate of quality: a family compared by the decisions that it leads to."""

from typing import NamedTuple, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.model_selection import KFold
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import (
    check_array,
    check_is_fitted,
    check_X_y,
    validate_data,
)

from skroute.quality._corrections import corrected, finished, range_of, sizes_of
from skroute.quality._frame_encoder import FrameEncoder, few_columns_dense
from skroute.quality._members import MEMBERS, SummedTrees, pack, unpack
from skroute.quality._stacking import (
    Compared,
    as_one_price_each,
    choose_weights,
    mean_of,
    some_of,
    weigh,
)
from skroute.quality._uncertainty import error_curves, made_up_outcomes
from skroute.utils._compat import (
    Integral,
    Interval,
    _fit_context,
    threadpool_controller,
)
from skroute.utils._frames import (
    holds_missing,
    indexable_rows,
    needs_encoding,
    table_of_numbers,
)
from skroute.utils._named import check_rows_match
from skroute.utils._pickles import VersionedPickleMixin
from skroute.utils._random import N_SEEDS, seed_of
from skroute.utils._scored import CheckedScoreMixin
from skroute.utils._tensors import on_host
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import (
    folds_among,
    given_weights,
    none_if_equal,
    refuse_masked,
    relative_weights,
    whole_rows,
)

# Rows that are estimated at once, which bounds the memory.
_BLOCK = 4096
# With fewer rows than this there is nothing to compare by: the means are the estimate.
_FEWEST_ROWS = 20
# Squares of larger outcomes, times the rows of a table, are beyond all floats.
_LARGEST = 1e30


class CrossEstimates(NamedTuple):
    """Estimates of the rows of a fit, as `QualityRegressor.cross_fit` describes them.

    Attributes
    ----------
    estimate, kept : ndarray of shape (n_rows, n_choices)
    by_fold : ndarray of shape (n_folds, n_rows, n_choices), or None
        None where nobody needs them.
    """

    estimate: np.ndarray
    kept: np.ndarray
    by_fold: np.ndarray | None


class QualityRegressor(
    VersionedPickleMixin,
    CheckedScoreMixin,
    MultiOutputMixin,
    RegressorMixin,
    BaseEstimator,
):
    """Estimate the quality of each choice, with several estimators that are stacked and compared.

    The routers' default. From rows and the quality of each choice it fits extremely
    randomised trees, boosted trees, ridge regression on factors that the choices share, and the
    same on similarities to cluster centres, all with all choices in one model. Estimates of rows
    that did not fit them then decide how much of each member is taken: weights of at least zero,
    one for what tells the choices of a row apart and one for their level. What is compared is
    what a router makes of the estimates: the realised quality over the best random mix at equal
    spend, at five budgets. A member takes all the weight where it decides better than the stack
    by more than noise, and where even the stack decides worse than a coin, the estimate is each
    choice's mean. Last, the estimates of each choice are corrected where outcomes of other rows
    say, beyond noise, that they are off.

    Parameters
    ----------
    family : list of str, default=None
        Members to compare: of ``"trees"``, ``"boosted"``, ``"linear"`` and ``"landmarks"``.
        None compares all.

    cv : int, default=5
        Shuffled folds that the family is compared on. Raising it leaves each member more
        rows, and takes longer.

    standard_errors : bool, default=False
        Whether `fit` finds the standard errors that ``predict(X, return_std=True)`` returns.
        They come from outcomes that are made up: the out-of-sample estimates stand for the truth,
        each row's error for its noise, with a sign drawn at random, and what is taken of the
        family is fitted on these again, which takes about half as long as the rest of `fit`.

    random_state : int, RandomState instance or None, default=0
        Determines the folds, the trees and the clusters. Pass an int for the same result at
        every fit.

    n_jobs : int, default=None
        Threads that fit members and folds. None means one, -1 all processors.

    Attributes
    ----------
    mean_ : ndarray of shape (n_outputs,)
        Mean quality of each choice.

    compared_ : list of Compared
        For the stack and for each member: its `name`, the `gain` over the random mix out of
        sample with its standard error `gain_se`, and its weights, `difference` and `level`.

    encoder_ : FrameEncoder or None
        Makes numbers of rows that hold texts, categories, dates or missing values, or that are
        sparse with more than 1,000 columns. None for other rows of numbers.

    n_features_in_ : int
        Number of features seen during `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, if all are strings.

    See Also
    --------
    BaggedNeighborsRegressor : OCCAM's estimator of the same.
    skroute.quality.FrameEncoder : What reads texts and data frames.

    Notes
    -----
    Time is bounded: a tree sees at most 10,000 rows and a cut at most 40 features, and the
    linear member takes at most 1,000 columns. The forest is that of all folds together, about
    sixty trees, at least one of each fold; what else has weight is fitted again on all rows, none
    of which is kept.

    Texts and categories are encoded once, from all rows, without their outcomes; the
    out-of-sample estimates are of members that did not see the outcomes of a row.

    Standard errors are known by the size of the estimate only: a row far from all others has
    that of its estimate.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.quality import QualityRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((1000, 2))
    >>> success_probability = np.column_stack([X[:, 0], np.full(1000, 0.7)])
    >>> success = rng.random((1000, 2)) < success_probability
    >>> estimator = QualityRegressor().fit(X, success.astype(float))
    >>> estimator.predict([[0.1, 0.5], [0.9, 0.5]]).round(1)
    array([[0.1, 0.7],
           [0.9, 0.7]])
    """

    _parameter_constraints = {
        "family": [None, list, tuple],
        "cv": [Interval(Integral, 2, None, closed="left")],
        "standard_errors": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [None, Integral],
    }

    def __init__(
        self, *, family=None, cv=5, standard_errors=False, random_state=0, n_jobs=None
    ):
        self.family = family
        self.cv = cv
        self.standard_errors = standard_errors
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Compare the estimators, and fit those that get a weight.

        Parameters
        ----------
        X : data frame, {array-like, sparse matrix} of shape (n_samples, n_features), or \
                sequence of str
            The rows. Texts, categories, dates, missing values and sparse rows of many columns are
            made numbers by :class:`~skroute.quality.FrameEncoder` first.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Quality of each choice, finite numbers of any scale.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, in the fit of every member and in the comparison of them. Their
            unit does not matter: whole multiples of the smallest weight, up to 16, count rows, and
            other weights get the mean 1. A row of weight 0 is left out. The number of rows in a
            leaf, the places of landmarks, the encoding of texts and the curve of standard errors
            are not weighted. None weights all rows alike.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For an unknown member of the family, an infinite number in X, or a y that is not finite.
        """
        self.cross_fit(X, y, sample_weight=sample_weight)
        return self

    def cross_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        folds: list | None = None,
        costs: ArrayLike | None = None,
        n_jobs: int | None = None,
        return_kept: bool = False,
        sample_weight: ArrayLike | None = None,
        return_by_fold: bool = False,
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], ...]:
        """Fit, and give the estimates of the same rows out of sample.

        It saves a router that needs both from fitting each fold again.

        Parameters
        ----------
        X, y
            As in `fit`.

        folds : list of (ndarray of int, ndarray of int), default=None
            A partition of the rows: those that fit and those that are estimated. None draws
            `cv` folds.

        costs : array-like of shape (n_outputs,) or (n_samples, n_outputs), default=None
            Cost of each choice, for the budgets that decisions are compared at. None supposes
            that better choices cost more, in even steps.

        n_jobs : int, default=None
            Threads, where the constructor names none.

        return_kept : bool, default=False
            Whether to return `kept` as well.

        sample_weight : array-like of shape (n_samples,), default=None
            As in `fit`. Rows of weight 0 get the estimates of new rows.

        return_by_fold : bool, default=False
            Whether to return `by_fold` as well.

        Returns
        -------
        estimate : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Estimates of each row by members and means that did not see its outcomes, weighted,
            chosen and corrected by what the rows of the other folds say. (The members that
            estimate those rows have seen it, as in every stack that is not nested: its outcome
            weighs about one over the number of rows, and against itself.)

        kept : ndarray of the same shape
            The same members' estimates, weighted and corrected as `predict` does it, by what all
            rows say. They judge nothing, but new rows are estimated like this: a price that is
            to hold for them is set by these. Only if `return_kept`.

        by_fold : ndarray of shape (n_folds, n_samples) or (n_folds, n_samples, n_outputs)
            For each fold, estimates of all rows as its rows are estimated: the members' estimates,
            weighted, chosen and corrected by what the rows of the other folds say. The rows of
            the fold have those of `estimate`. A price that is to hold for the rows of a fold is
            set by the other rows of its table. Only if `return_by_fold`.
        """
        self.__dict__.pop("mean_", None)
        refuse_masked(X=X, y=y)
        check_rows_match(X=X, y=y, costs=costs, sample_weight=sample_weight)
        found = self._validate_and_fit(
            X, y, folds, costs, n_jobs, sample_weight, with_by_fold=return_by_fold
        )
        tables = [found.estimate]
        if return_kept:
            tables.append(found.kept)
        if return_by_fold:
            tables.append(found.by_fold)
        return _in_shape(tables, self._is_single)

    @_fit_context(prefer_skip_nested_validation=True)
    def _validate_and_fit(
        self, X, y, folds, costs, n_jobs, sample_weight, with_by_fold
    ):
        self._threads = n_jobs if self.n_jobs is None else self.n_jobs
        self._seed = seed_of(self.random_state)
        names = names_of(self.family)
        read = {"dtype": [np.float64, np.float32], "order": "C"}
        read |= {"multi_output": True, "y_numeric": True}
        self.encoder_ = None
        X = few_columns_dense(indexable_rows(X))
        if issparse(X) or needs_encoding(X) or holds_missing(X):
            validate_data(self, X, skip_check_array=True)
            encoder = FrameEncoder(random_state=self._seed)
            # An array, whatever output the user has set for all transformers.
            self.encoder_ = encoder.set_output(transform="default")
            rows, outcomes = check_X_y(
                self.encoder_.fit_transform(X), on_host(y), **read
            )
            self.n_features_in_ = self.encoder_.n_features_in_
        else:
            rows, outcomes = validate_data(self, on_host(X), on_host(y), **read)
        outcomes = np.asarray(outcomes, dtype=np.float64)
        # Of small matrices several threads of BLAS only wait for one another.
        with threadpool_controller().limit(limits=1, user_api="blas"):
            if sample_weight is None:
                return self._cross_fit(
                    rows, outcomes, folds, costs, names, with_by_fold=with_by_fold
                )
            return self._weighted_cross_fit(
                rows,
                outcomes,
                folds,
                costs,
                names,
                sample_weight,
                with_by_fold=with_by_fold,
            )

    def _weighted_cross_fit(
        self, X, y, folds, costs, names, sample_weight, *, with_by_fold
    ):
        """Fit on the rows that have weight; the others get the estimates of new rows."""
        weight = relative_weights(given_weights(sample_weight, X))
        kept = np.flatnonzero(weight)
        if len(kept) == len(weight):
            return self._cross_fit(
                X,
                y,
                folds,
                costs,
                names,
                none_if_equal(weight),
                with_by_fold=with_by_fold,
            )
        folds_of_kept = folds
        if folds is not None:
            folds_of_kept = folds_among(folds, kept, len(weight))
        costs = np.asarray(costs)[kept] if np.ndim(costs) == 2 else costs
        of_kept = self._cross_fit(
            X[kept],
            y[kept],
            folds_of_kept,
            costs,
            names,
            none_if_equal(weight[kept]),
            with_by_fold=with_by_fold,
        )
        as_new = self._estimates_of(X)
        estimate = as_new.copy()
        estimate[kept] = of_kept.estimate
        estimate_as_kept = as_new.copy()
        estimate_as_kept[kept] = of_kept.kept
        by_fold = None
        if with_by_fold:
            has_kept_rows = np.ones(len(of_kept.by_fold), dtype=bool)
            if folds is not None:
                # `folds_among` leaves the other folds out.
                has_kept_rows = np.array([weight[test].any() for _, test in folds])
            by_fold = np.tile(as_new, (len(has_kept_rows), 1, 1))
            by_fold[np.ix_(has_kept_rows, kept)] = of_kept.by_fold
        return CrossEstimates(estimate, estimate_as_kept, by_fold)

    def _cross_fit(self, X, y, folds, costs, names, weight=None, *, with_by_fold):
        self._is_single = y.ndim == 1
        quality = y.reshape(len(y), -1)
        if not np.abs(quality).max() <= _LARGEST:
            raise ValueError(
                f"y must have entries of at most {_LARGEST:g} in size, got "
                f"{np.abs(quality).max():g}. Give quality in another unit."
            )
        if folds is None and len(X) >= _FEWEST_ROWS:
            splitter = KFold(self.cv, shuffle=True, random_state=self._seed)
            folds = list(splitter.split(X))
        mean = mean_of(quality, weight)
        self.compared_, self._parts, self._knots, self._errors = [], [], None, None
        # No estimate leaves the range of what was seen.
        self._range = range_of(quality)
        self._centre, self._spread = _scale(X, weight)
        if len(X) < _FEWEST_ROWS or len(folds) < 2:
            if self.standard_errors:
                error = (
                    quality.std(axis=0, ddof=1)
                    if len(X) > 1
                    else np.full(mean.shape, np.nan)
                )
                self._errors = np.stack([mean, error / len(X) ** 0.5], axis=1)[
                    ..., None
                ]
            self._range = mean, mean, None
            estimate = quality.copy()
            means_by_fold = []
            for train, test in folds or ():
                mean_without_fold = mean_of(quality[train], some_of(weight, train))
                estimate[test] = mean_without_fold
                means_by_fold.append(mean_without_fold)
            by_fold = None
            if with_by_fold:
                by_fold = np.empty((len(means_by_fold), *quality.shape))
                for number, mean_without_fold in enumerate(means_by_fold):
                    by_fold[number] = mean_without_fold
            self.mean_ = mean
            return CrossEstimates(estimate, np.tile(mean, (len(X), 1)), by_fold)
        rows, costs = self._rows(X), as_one_price_each(costs, quality)
        # Errors are added up over choices: from here to the end they are of one size.
        sizes, means = sizes_of(quality), np.empty(quality.shape)
        quality = quality / sizes
        for train, test in folds:
            means[test] = mean_of(quality[train], some_of(weight, train))
        estimates, of_folds = self._out_of_sample(names, rows, quality, folds, weight)
        choice = choose_weights(
            names,
            estimates,
            quality - means,
            quality,
            [test for _, test in folds],
            costs,
            sizes,
            row_weight=weight,
        )
        self._fit_members(
            names, choice, of_folds, rows, quality - mean / sizes, sizes, weight
        )
        if self.standard_errors:
            self._errors = self._made_up_errors(
                names, choice, rows, quality, folds, weight
            )
            self._errors *= sizes[:, None, None]
        self.compared_ = choice.compared
        if choice.combination.knots is not None:
            self._knots = choice.combination.knots * sizes[:, None]
        if not self._parts:
            self._range = mean, mean, None
        self.mean_ = mean
        by_fold = None
        if with_by_fold:
            by_fold = np.empty((len(folds), *quality.shape))
            for number, combination in enumerate(choice.of_folds):
                by_fold[number] = combination.estimate(estimates) * sizes
        kept = choice.combination.estimate(estimates)
        return CrossEstimates(choice.estimate * sizes, kept * sizes, by_fold)

    def _rows(self, X):
        """Standardised rows in single precision; what it cannot hold is clipped."""
        with np.errstate(over="ignore"):
            rows = (X - self._centre) / self._spread
        # What np.clip does, in half the time for a single row.
        return np.minimum(np.maximum(rows, -1e18), 1e18).astype(np.float32)

    def _plain_rows(self, X):
        """Return rows of numbers as an array; what is missing of them becomes the mean of `fit`."""
        X = few_columns_dense(indexable_rows(X))
        if not holds_missing(X):
            return whole_rows(X, self, dtype=[np.float64, np.float32])
        refuse_masked(X=X)
        validate_data(self, X, reset=False, skip_check_array=True)
        rows = table_of_numbers(on_host(X))
        check_array(rows, ensure_all_finite="allow-nan", input_name="X")
        return np.where(np.isnan(rows), self._centre, rows)

    def _out_of_sample(self, names, rows, quality, folds, weight=None):
        """Deviations from the fold's means, (n_members, n_rows, n_outputs), and members by fold."""

        def fitted(name, k, train, test):
            own_weight = some_of(weight, train)
            deviations = quality[train] - mean_of(quality[train], own_weight)
            seed = (self._seed + k + 1) % N_SEEDS
            member = MEMBERS[name](rows[train], deviations, seed, own_weight)
            found[names.index(name), test] = member.predict(rows[test])
            return member

        found = np.empty((len(names), *quality.shape))
        jobs = [(name, k, *fold) for name in names for k, fold in enumerate(folds)]
        members = self._in_threads(delayed(fitted)(*job) for job in jobs)
        return found, [
            members[i : i + len(folds)] for i in range(0, len(jobs), len(folds))
        ]

    def _in_threads(self, jobs):
        return Parallel(n_jobs=self._threads, require="sharedmem")(jobs)

    def _fit_members(
        self, names, choice, of_folds, rows, deviations, sizes, weight=None
    ):
        """What has weight, fitted on all rows; the forests of the folds together have seen all."""

        def fitted(i):
            if names[i] == "trees":
                return [forest.kept(len(of_folds[i])) for forest in of_folds[i]]
            return [MEMBERS[names[i]](rows, deviations, self._seed, weight)]

        weights = choice.combination.weights
        used, parts = np.flatnonzero(weights.any(axis=0)), []
        for i, members in zip(used, self._in_threads(delayed(fitted)(i) for i in used)):
            difference, level = weights[:, i] / len(members)
            parts += [member.weighted(level, difference, sizes) for member in members]
        forests = [part for part in parts if isinstance(part, SummedTrees)]
        parts = [part for part in parts if not isinstance(part, SummedTrees)]
        if forests:
            parts.append(SummedTrees.joined(forests))
        # As they come back from a file, where leaves are in half precision.
        self._parts = [unpack(*pack(part)) for part in parts]

    def _made_up_errors(self, names, choice, rows, quality, folds, weight=None):
        """Errors of what is taken on rows whose quality is known, as it is made up.

        The members are fitted again, out of sample and with the same weights and corrections.
        """
        rng, truth = np.random.default_rng(self._seed), choice.estimate
        outcomes = made_up_outcomes(truth, quality, rng)
        weights, knots = choice.combination.weights, choice.combination.knots
        used = np.flatnonzero(weights.any(axis=0))
        parts, _ = self._out_of_sample(
            [names[i] for i in used], rows, outcomes, folds, weight
        )
        estimate = weigh(parts, weights[:, used])
        for train, test in folds:
            estimate[test] += mean_of(outcomes[train], some_of(weight, train))
        if knots is not None:
            estimate = corrected(estimate, knots)
        estimate = np.clip(estimate, quality.min(axis=0), quality.max(axis=0))
        return error_curves(estimate, estimate - truth, truth.std(axis=0))

    def predict(
        self, X: ArrayLike, return_std: bool = False
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], ...]:
        """Estimate the quality of each choice.

        Parameters
        ----------
        X : data frame, {array-like, sparse matrix} of shape (n_samples, n_features), or \
                sequence of str
            The rows, as in `fit`. A number that is missing here and was not in `fit` is read as
            the mean.

        return_std : bool, default=False
            Whether to return the standard error of each estimate as well; needs
            ``standard_errors=True`` in `fit`.

        Returns
        -------
        y_mean : ndarray of shape (n_samples,) or (n_samples, n_outputs), dtype=float64
            The estimates.

        y_std : ndarray of the same shape, dtype=float64
            How far estimates of this size are from the true quality, root mean square; the
            spread of single outcomes is not in it. Only if `return_std`. NaN after a fit
            on one row.

        Raises
        ------
        ValueError
            If `return_std` and `fit` was without ``standard_errors=True``.
        """
        check_is_fitted(self)
        if return_std and self._errors is None:
            raise ValueError(
                "return_std=True needs the standard errors that fit finds with "
                "QualityRegressor(standard_errors=True). Set it and fit again."
            )
        if self.encoder_ is None:
            given = self._plain_rows(X)
        else:
            given = self.encoder_.transform(X)
        found = [self._estimates_of(given)]
        if return_std:
            levels = zip(found[0].T, self._errors)
            found.append(np.column_stack([np.interp(e, *curve) for e, curve in levels]))
        return _in_shape(found, self._is_single)

    def _estimates_of(self, given):
        """Return the estimates of all choices for rows of numbers."""
        estimate = np.full((len(given), len(self.mean_)), self.mean_)
        for first in range(0, len(given), _BLOCK):
            some = estimate[first : first + _BLOCK]
            rows = self._rows(given[first : first + _BLOCK])
            for part in self._parts:
                some += part.predict(rows)
        if self._knots is not None:
            estimate = corrected(estimate, self._knots)
        return finished(estimate, *self._range)

    def __getstate__(self):
        # Plain arrays: a skops file lists the types of this package that it would build.
        state = dict(super().__getstate__())
        if "_parts" in state:
            state["_parts"] = [pack(part) for part in state["_parts"]]
            state["compared_"] = [tuple(found) for found in state["compared_"]]
        return state

    def __setstate__(self, state):
        state = dict(state)
        if "_parts" in state:
            state["_parts"] = [unpack(*part) for part in state["_parts"]]
            state["compared_"] = [Compared(*found) for found in state["compared_"]]
        super().__setstate__(state)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "mean_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags


def _in_shape(tables, is_single):
    """Tables as those of one output where there is one; one table alone is no tuple."""
    found = tuple(table[..., 0] if is_single else table for table in tables)
    return found if len(found) > 1 else found[0]


def names_of(family):
    """Names of the members that are compared."""
    names = list(MEMBERS if family is None else family)
    unknown = [
        name for name in names if not isinstance(name, str) or name not in MEMBERS
    ]
    if unknown or not names or len(set(names)) < len(names):
        raise ValueError(
            f"family must be a list of different members of {list(MEMBERS)!r}, got {names!r}."
        )
    return names


def _scale(X, weight=None):
    """Return mean and standard deviation of each feature; 1 where it does not vary."""
    largest = np.abs(X).max(axis=0).astype(np.float64)
    unit = np.where(largest > 0, largest, 1.0)
    scaled = X / unit
    if weight is None:
        mean = scaled.mean(axis=0, dtype=np.float64)
        spread = scaled.std(axis=0, dtype=np.float64)
    else:
        mean = mean_of(scaled, weight)
        spread = np.sqrt(mean_of((scaled - mean) ** 2, weight))
    # Rounding of equal entries is no spread.
    spread = np.where(spread > 1e-12, spread * unit, 1.0)
    return mean * unit, spread
