"""The default estimate of quality: a family compared by the decisions that it leads to."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.model_selection import KFold
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data

from skroute.quality._corrections import corrected, rounding_unit, sizes_of
from skroute.quality._family import (
    MEMBERS,
    MOST_SEARCHED,
    NEIGHBORS,
    Forest,
    Rows,
    pack,
    unpack,
)
from skroute.quality._floors import Floor, floors_of_folds, laid_out, lift
from skroute.quality._frame_encoder import FrameEncoder
from skroute.quality._stacking import Compared, as_one_price_each, choose_weights, weigh
from skroute.quality._trees import join
from skroute.quality._uncertainty import (
    error_curves,
    in_one,
    made_up_outcomes,
    standard_errors,
)
from skroute.utils._compat import Integral, Interval, StrOptions, _fit_context
from skroute.utils._frames import needs_encoding
from skroute.utils._tensors import on_host
from skroute.utils._validation import checked_rows, refuse_masked

# Trees of a fold, as a share of those of the final forest.
_OF_A_FOLD = 0.4
# Rows that are estimated at once: what is between two kernels stays in the cache.
_BLOCK = 1024
# With fewer rows than this there is nothing to compare by: the means are the estimate.
_FEWEST_ROWS = 20
# Squares of larger outcomes, times the rows of a table, are beyond all floats.
_LARGEST = 1e30


class QualityRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """The quality of each choice, by a family of estimators compared on its decisions.

    The routers' default. From rows and the quality of each choice it fits extremely
    randomised trees (small and coarse leaves), boosted trees, ridge regression on factors that
    the choices share, and the same on similarities to cluster centres, all with all choices in
    one model. Estimates of rows that did not fit them then decide how much of each member is
    taken: weights of at least zero, one for what tells the choices of a row apart and one for
    their level. What is compared is what a router makes of the estimates: the realised quality
    over the best random mix at equal spend, at five budgets. A member takes all the weight
    where it decides better than the stack by more than noise, and where even the stack decides
    worse than a coin, the estimate is each choice's mean. Last, the estimates of each choice are
    corrected where outcomes of other rows say, beyond noise, that they are off. And where cheaper
    choices are estimated to be better than an expensive one, by however little, but outcomes of
    such rows contradict, the expensive one stays above them by a hair: where errors are rare and
    expensive, few rows tell choices apart, and a plan must not be worse than the best single
    choice that is affordable.

    Nearest neighbours are part of the family with ``keep_rows="auto"``, and are kept only if
    decisions are better with them by more than noise, since they need the rows of `fit`.

    Standard errors, ``predict(X, return_std=True)``, come from outcomes that are made up: the
    out-of-sample estimates stand for the truth, each row's error for its noise, with a sign drawn
    at random, and what is taken of the family is fitted on these again. They are known by the size
    of the estimate only: a row far from all others has that of its estimate.

    Parameters
    ----------
    family : list of str, default=None
        Members to compare: of ``"trees"``, ``"coarse trees"``, ``"boosted"``, ``"linear"``,
        ``"plain linear"``, ``"landmarks"``, ``"cosine landmarks"``, and ``"cosine neighbors"``,
        ``"euclidean neighbors"``, ``"chebyshev neighbors"``, which keep the rows. None compares
        all that `keep_rows` allows.

    keep_rows : {"auto"} or bool, default="auto"
        Whether neighbours may take part. ``"auto"``: up to 20,000 rows, the best metric only,
        and only if decisions gain a twentieth more with it and more than noise; a row then
        takes a search. True keeps them in the stack, False leaves them out; the fitted
        estimator then keeps sums over rows only.

    cv : int, default=5
        Shuffled folds that the family is compared on. Raising it leaves each member more
        rows, and takes longer.

    random_state : int, default=0
        Seed of folds, trees and clusters. Fits with the same seed are equal.

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
        Makes numbers of rows that hold texts or categories; None where X is of numbers.

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
    Time is bounded: a tree sees at most 10,000 rows and a cut at most 40 features, linear
    members take at most 1,000 columns and neighbours at most 20,000 rows.

    Texts and categories are encoded once, from all rows, without their outcomes; the
    out-of-sample estimates are of members that did not see the outcomes of a row.

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
        "keep_rows": [StrOptions({"auto"}), "boolean"],
        "cv": [Interval(Integral, 2, None, closed="left")],
        "random_state": [Interval(Integral, 0, None, closed="left")],
        "n_jobs": [None, Integral],
    }

    def __init__(self, *, family=None, keep_rows="auto", cv=5, random_state=0, n_jobs=None):
        self.family = family
        self.keep_rows = keep_rows
        self.cv = cv
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Compare the family and fit what is taken of it.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features), or sequence of str
            Rows of numbers; texts and categories, also of a data frame, are made numbers by
            :class:`~skroute.quality.FrameEncoder` first.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Quality of each choice, finite numbers of any scale.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For an unknown member of the family, or X or y that are not finite numbers.
        """
        self.cross_fit(X, y)
        return self

    def cross_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        folds: list | None = None,
        costs: ArrayLike | None = None,
        n_jobs: int | None = None,
        return_kept: bool = False,
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
        """
        self.__dict__.pop("mean_", None)
        refuse_masked(X=X, y=y)
        found = self._validate_and_fit(X, y, folds, costs, n_jobs)
        return _in_shape(found if return_kept else found[:1], self._is_single)

    @_fit_context(prefer_skip_nested_validation=True)
    def _validate_and_fit(self, X, y, folds, costs, n_jobs):
        self._threads = n_jobs if self.n_jobs is None else self.n_jobs
        names = names_of(self.family, self.keep_rows)
        self.encoder_ = None
        if needs_encoding(X):
            validate_data(self, X, skip_check_array=True)
            self.encoder_ = FrameEncoder(random_state=self.random_state)
            names_of_fit = getattr(self, "feature_names_in_", None)
            X, y = self.encoder_.fit_transform(X), on_host(y)
        rows, outcomes = validate_data(
            self,
            on_host(X),
            on_host(y),
            dtype=[np.float64, np.float32],
            order="C",
            multi_output=True,
            y_numeric=True,
        )
        if self.encoder_ is not None:
            # The names of the columns given, not of what they became.
            self.n_features_in_ = self.encoder_.n_features_in_
            if names_of_fit is not None:
                self.feature_names_in_ = names_of_fit
        return self._cross_fit(rows, np.asarray(outcomes, dtype=np.float64), folds, costs, names)

    def _cross_fit(self, X, y, folds, costs, names):
        self._is_single = y.ndim == 1
        quality = y.reshape(len(y), -1)
        if not np.abs(quality).max() <= _LARGEST:
            raise ValueError(
                f"y must have entries of at most {_LARGEST:g} in size, got "
                f"{np.abs(quality).max():g}. Give quality in another unit."
            )
        costs = as_one_price_each(costs, quality)
        if folds is None:
            folds = self._folds(len(X))
        self._set_scales(X)
        rows, mean = self._rows(X), quality.mean(axis=0)
        # No estimate leaves the range of what was seen.
        self._range = quality.min(axis=0), quality.max(axis=0)
        if len(X) < _FEWEST_ROWS or len(folds) < 2:
            self.compared_, self._parts, self._knots, self._floors = [], [], None, []
            of_means = quality.std(axis=0, ddof=1) if len(X) > 1 else np.full(mean.shape, np.nan)
            self._errors = list(np.stack([mean, of_means / len(X) ** 0.5]).T[:, :, None])
            self.mean_ = mean
            estimate = quality.copy()
            for train, test in folds:
                estimate[test] = quality[train].mean(axis=0)
            self._lay_out()
            return estimate, np.tile(mean, (len(X), 1))
        # Errors are added up over choices: from here to the end they are of one size.
        sizes, means = sizes_of(quality), np.empty(quality.shape)
        quality = quality / sizes
        for train, test in folds:
            means[test] = quality[train].mean(axis=0)
        estimates = self._out_of_sample(names, rows, quality, folds)
        picks = self.keep_rows == "auto" and self.family is None
        heavy = [name for name in names if picks and name in NEIGHBORS]
        tests = [test for _, test in folds]
        choice = choose_weights(
            names, estimates, quality - means, quality, tests, costs, heavy, sizes
        )
        self._fit_members(names, choice, rows, quality - mean / sizes, sizes)
        errors = self._made_up_errors(names, choice, rows, quality, folds)
        choice, quality = choice.in_units(sizes), quality * sizes
        self._errors = [curve * size for curve, size in zip(errors, sizes)]
        self.compared_, self._knots = choice.compared, choice.knots
        # Means alone have no rows that are estimated against the best of them.
        step = rounding_unit(*self._range) if self._parts else None
        self._floors, estimate = floors_of_folds(
            choice.estimate, quality, costs, tests, step, self._range
        )
        self.mean_ = mean
        self._lay_out()
        return estimate, lift(choice.kept, self._floors, step, self._range)

    def _folds(self, n_rows):
        if n_rows < _FEWEST_ROWS:
            return []
        splitter = KFold(self.cv, shuffle=True, random_state=self.random_state)
        return list(splitter.split(np.empty(n_rows)))

    def _set_scales(self, X):
        self._centre, self._spread = _scale(X)
        # All features in one unit, in which rows are of length about one.
        widest = float(self._spread.max())
        self._unit = widest * float(np.linalg.norm(self._spread / widest))

    def _rows(self, X):
        """Rows as the members read them; what float32 cannot hold is clipped."""
        from skroute.quality._predict_kernels import two_scales

        standard, plain = np.empty(X.shape, np.float32), np.empty(X.shape, np.float32)
        two_scales(X, self._centre, self._spread, self._unit, standard, plain)
        return Rows(standard, plain)

    def _out_of_sample(self, names, rows, quality, folds):
        """Deviations from the fold's means, of shape (n_members, n_rows, n_outputs)."""
        known = {**MEMBERS, **NEIGHBORS}
        if self.keep_rows == "auto" and self.family is None and len(quality) > MOST_SEARCHED:
            names[:] = [name for name in names if name not in NEIGHBORS]

        def fitted(name, k, train, test):
            deviations = quality[train] - quality[train].mean(axis=0)
            member = known[name](rows[train], deviations, self.random_state + k + 1, _OF_A_FOLD)
            return member.predict(rows[test])

        jobs = [(name, k) for name in names for k in range(len(folds))]
        parts = Parallel(n_jobs=self._threads, require="sharedmem")(
            delayed(fitted)(name, k, *folds[k]) for name, k in jobs
        )
        found = np.empty((len(names), *quality.shape))
        for (name, k), part in zip(jobs, parts):
            found[names.index(name), folds[k][1]] = part
        return found

    def _fit_members(self, names, choice, rows, deviations, sizes):
        """Fit on all rows what has weight; all trees become one forest."""
        known, weights = {**MEMBERS, **NEIGHBORS}, choice.weights
        used = [
            (name, level, difference)
            for name, difference, level in zip(names, weights.difference, weights.level)
            if max(level, difference) > 0
        ]
        fitted = Parallel(n_jobs=self._threads, require="sharedmem")(
            delayed(known[name])(rows, deviations, self.random_state) for name, _, _ in used
        )
        parts = [
            member.weighted(level, difference, sizes)
            for member, (_, level, difference) in zip(fitted, used)
        ]
        forests = [part.trees for part in parts if isinstance(part, Forest)]
        self._parts = [part for part in parts if not isinstance(part, Forest)]
        if forests:
            self._parts.insert(0, Forest(join(forests).rounded()))

    def _made_up_errors(self, names, choice, rows, quality, folds):
        """Errors of what is taken on rows whose quality is known, as it is made up.

        The members are fitted again, out of sample and with the same weights and corrections.
        """
        rng, truth = np.random.default_rng(self.random_state), choice.estimate
        outcomes = made_up_outcomes(truth, quality, rng)
        known, weights = {**MEMBERS, **NEIGHBORS}, choice.weights
        used = np.flatnonzero(np.maximum(weights.level, weights.difference) > 0)

        def deviations(k, i):
            train, test = folds[k]
            apart = outcomes[train] - outcomes[train].mean(axis=0)
            member = known[names[i]](rows[train], apart, self.random_state + k + 1, _OF_A_FOLD)
            return member.predict(rows[test])

        jobs = [(k, i) for k in range(len(folds)) for i in used]
        fits = (delayed(deviations)(*job) for job in jobs)
        found = dict(zip(jobs, Parallel(n_jobs=self._threads, require="sharedmem")(fits)))
        estimate = np.empty(outcomes.shape)
        for k, (train, test) in enumerate(folds):
            parts = np.zeros((len(names), len(test), outcomes.shape[1]))
            for i in used:
                parts[i] = found[k, i]
            estimate[test] = outcomes[train].mean(axis=0) + weigh(parts, weights)
            if choice.knots is not None:
                estimate[test] = corrected(estimate[test], choice.knots)
        estimate = np.clip(estimate, quality.min(axis=0), quality.max(axis=0))
        return error_curves(estimate, estimate - truth, truth.std(axis=0))

    def predict(
        self, X: ArrayLike, return_std: bool = False
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], ...]:
        """Estimate the quality of each choice.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features), or sequence of str
            The rows, as in `fit`.

        return_std : bool, default=False
            Whether to return the standard error of each estimate as well.

        Returns
        -------
        y_mean : ndarray of shape (n_samples,) or (n_samples, n_outputs), dtype=float64
            The estimates.

        y_std : ndarray of the same shape, dtype=float64
            How far estimates of this size are from the true quality, root mean square; the
            spread of single outcomes is not in it. Only if `return_std`. NaN after a fit
            on one row.
        """
        # The check itself takes longer than a row.
        if not hasattr(self, "mean_"):
            check_is_fitted(self)
        rows = checked_rows(self, X) if self.encoder_ is None else self.encoder_.transform(X)
        estimate = self._estimate(rows)
        found = [estimate]
        if return_std:
            found.append(standard_errors(estimate, self._ready[2]))
        return _in_shape(found, self._is_single)

    def _lay_out(self):
        """All that a prediction needs, ready for the kernels; it is not saved."""
        knots = np.zeros((2, len(self.mean_), 0))
        if self._knots is not None:
            knots = np.stack(self._knots, axis=1)
        # Means alone have no parts, and are not rounded.
        unit = rounding_unit(*self._range) if self._parts else None
        ends = np.stack(self._range) if self._parts else np.stack([self.mean_] * 2)
        add, correct = [part.ready() for part in self._parts], tuple(np.ascontiguousarray(knots))
        finishing = self.mean_, *correct, ends, 0.0 if unit is None else unit
        floors = laid_out(self._floors, len(self.mean_))
        self._ready = add, finishing, in_one(self._errors), floors

    def _estimate(self, X):
        from skroute.quality._predict_kernels import finish, lift_rows

        add, to_finish, _, floors = self._ready
        estimate = np.zeros((len(X), len(self.mean_)))
        for first in range(0, len(X), _BLOCK):
            rows, some = self._rows(X[first : first + _BLOCK]), estimate[first : first + _BLOCK]
            for part in add:
                part(rows, some)
            finish(some, *to_finish)
        if self._floors:
            *_, ends, step = to_finish
            lift_rows(estimate, *floors, step, ends)
        return estimate

    def __getstate__(self):
        # Plain arrays: a skops file lists the types of this package that it would build.
        state = dict(super().__getstate__())
        state.pop("_ready", None)
        if "_parts" in state:
            state["_parts"] = [pack(part) for part in state["_parts"]]
            for name in ("compared_", "_floors"):
                state[name] = [tuple(found) for found in state[name]]
        return state

    def __setstate__(self, state):
        state = dict(state)
        if "_parts" in state:
            state["_parts"] = [unpack(*part) for part in state["_parts"]]
            state["compared_"] = [Compared(*found) for found in state["compared_"]]
            state["_floors"] = [Floor(*found) for found in state["_floors"]]
        super().__setstate__(state)
        if "mean_" in state:
            self._lay_out()

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def __sklearn_is_fitted__(self):
        return hasattr(self, "mean_")


def _in_shape(tables, is_single):
    """Tables as those of one output where there is one; one table alone is no tuple."""
    found = tuple(table[:, 0] if is_single else table for table in tables)
    return found if len(found) > 1 else found[0]


def names_of(family, keep_rows):
    """Names of the members that are compared."""
    known = {**MEMBERS, **NEIGHBORS}
    if family is None:
        return list(MEMBERS if keep_rows is False else known)
    names = list(family)
    unknown = [name for name in names if not isinstance(name, str) or name not in known]
    if unknown or not names or len(set(names)) < len(names):
        raise ValueError(
            f"family must be a list of different members of {list(known)!r}, got {names!r}."
        )
    if keep_rows is False and any(name in NEIGHBORS for name in names):
        raise ValueError(
            f"family={names!r} has neighbors, which keep the rows, but keep_rows=False. Leave "
            "them out, or allow rows to be kept."
        )
    return names


def _scale(X):
    """Mean and standard deviation of each feature; 1 where it does not vary."""
    largest = np.abs(X).max(axis=0).astype(np.float64)
    unit = np.where(largest > 0, largest, 1.0)
    scaled = X / unit
    spread = scaled.std(axis=0, dtype=np.float64)
    # Rounding of equal entries is no spread.
    spread = np.where(spread > 1e-12, spread * unit, 1.0)
    return scaled.mean(axis=0, dtype=np.float64) * unit, spread
