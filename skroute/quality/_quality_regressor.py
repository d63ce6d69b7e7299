"""The default estimator of quality: a stack, selected by the gain of its decisions."""

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

from skroute.quality._corrections import (
    CorrectionCurves,
    OutcomeRange,
    outcome_divisors,
    range_of,
)
from skroute.quality._frame_encoder import FrameEncoder, few_columns_dense
from skroute.quality._gains import cost_of_choices
from skroute.quality._members import MEMBERS, SummedTrees, pack, unpack
from skroute.quality._row_means import mean_of, weights_of_rows
from skroute.quality._stacking import Compared, choose_weights
from skroute.quality._uncertainty import ErrorCurves, error_curves, simulate_outcomes
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
from skroute.utils._tolerances import ROUNDING
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import (
    folds_among,
    given_weights,
    none_if_equal,
    refuse_masked,
    relative_weights,
    whole_rows,
)

# Number of rows that are estimated at once. Bounds the memory.
_BLOCK = 4096
# With fewer rows than this, members are not compared: the means are the estimate. Each
# of five folds would have fewer than four rows.
_FEWEST_ROWS = 20
# Largest absolute outcome. The sum of the squares of a table must not overflow.
_LARGEST = 1e30
# Largest standardised feature. Squared distances of rows must not overflow in single
# precision.
_LARGEST_FEATURE = 1e18
# Attributes that are records in memory and tuples in a file, with the class of each.
_RECORDS = {
    "_curves": CorrectionCurves,
    "_errors": ErrorCurves,
    "_limits": OutcomeRange,
}


class CrossEstimates(NamedTuple):
    """Out-of-fold estimates for the rows of a fit, with three ways to weigh members.

    Attributes
    ----------
    estimate : ndarray of shape (n_rows, n_choices)
        Out-of-fold estimates.
    as_new : ndarray of shape (n_rows, n_choices)
        Estimates on the scale of new rows, called `kept` in `cross_fit`.
    by_fold : ndarray of shape (n_folds, n_rows, n_choices), or None
        For each fold, estimates of all rows by the combination of the fold. None if
        they are not needed.
    """

    estimate: np.ndarray
    as_new: np.ndarray
    by_fold: np.ndarray | None


class _Problem(NamedTuple):
    """Validated arguments of `QualityRegressor.cross_fit`.

    Attributes
    ----------
    X : ndarray of shape (n_rows, n_features)
        Rows as finite numbers.
    quality : ndarray of shape (n_rows, n_choices)
    folds : list of (ndarray of int, ndarray of int), or None
        Pairs ``(train, test)`` of positions, as splitters of scikit-learn yield them.
        None: folds are drawn.
    costs : array-like of shape (n_choices,) or (n_rows, n_choices), or None
        None: better choices are supposed to cost more.
    weight : ndarray of shape (n_rows,), or None
        Weights of the rows in units of one row. None: each row weighs one.
    names : list of str
        Names of the members to compare.
    """

    X: np.ndarray
    quality: np.ndarray
    folds: list | None
    costs: ArrayLike | None
    weight: np.ndarray | None
    names: list[str]

    def taken(self, rows):
        """Return the arguments of a fit on some of the rows.

        Folds without any of these rows are left out.

        Parameters
        ----------
        rows : ndarray of int
            Positions of the rows. The problem must have weights.

        Returns
        -------
        _Problem
            Folds have the positions of their rows among `rows`.
        """
        folds = self.folds
        if folds is not None:
            folds = folds_among(folds, rows, len(self.X))
        costs = self.costs
        if np.ndim(costs) == 2:
            costs = np.asarray(costs)[rows]
        return self._replace(
            X=self.X[rows],
            quality=self.quality[rows],
            folds=folds,
            costs=costs,
            weight=none_if_equal(self.weight[rows]),
        )


class _TrainingTable(NamedTuple):
    """Standardised rows, outcomes and folds that members are fitted on.

    Attributes
    ----------
    rows : ndarray of shape (n_rows, n_features), dtype=float32
        Standardised rows.
    quality : ndarray of shape (n_rows, n_choices)
        Outcomes divided by `outcome_divisors`.
    folds : list of (ndarray of int, ndarray of int)
        Pairs ``(train, test)`` of positions, as splitters of scikit-learn yield them.
    weight : ndarray of shape (n_rows,), or None
        Weights of the rows. None weights all alike.
    """

    rows: np.ndarray
    quality: np.ndarray
    folds: list
    weight: np.ndarray | None

    def means_of_other_folds(self):
        """Return for each row the means of the outcomes outside of its fold.

        The shape is (n_rows, n_choices).
        """
        means = np.empty(self.quality.shape)
        for train, test in self.folds:
            train_weight = weights_of_rows(self.weight, train)
            means[test] = mean_of(self.quality[train], train_weight)
        return means


class _FoldJob(NamedTuple):
    """The fit of one member without one fold.

    Attributes
    ----------
    position : int
        Position of the member in the family.
    name : str
        Name of the member in `MEMBERS`.
    train : ndarray of int
        Positions of the rows outside of the fold.
    test : ndarray of int
        Positions of the rows of the fold.
    seed : int
    """

    position: int
    name: str
    train: np.ndarray
    test: np.ndarray
    seed: int


class _FoldFits(NamedTuple):
    """Members as they were fitted without each fold, and their out-of-fold estimates.

    Attributes
    ----------
    deviations : ndarray of shape (n_members, n_rows, n_choices)
        Out-of-fold estimates of the members. A deviation is the quality, less its mean
        over the rows outside of the fold.
    members : dict of list of Member
        For each name, the member as it was fitted without each fold.
    """

    deviations: np.ndarray
    members: dict


class QualityRegressor(
    VersionedPickleMixin,
    CheckedScoreMixin,
    MultiOutputMixin,
    RegressorMixin,
    BaseEstimator,
):
    """Estimate the quality of each choice, with several estimators that are stacked.

    This is the default of the routers. The members of the family are extremely
    randomised trees, boosted trees, ridge regression on factors that the choices share,
    and the same regression on similarities to cluster centres. Each member estimates
    all choices in one model.

    The members are stacked with weights of at least zero, which are fitted on held-out
    rows. Each member has one weight for the differences between the choices of a row,
    and one for their level. Members and the stack are compared by the decisions that
    they lead to: the realised quality over the best random mix at equal spend, at five
    budgets. A member gets all the weight if it leads to better decisions than the
    stack, by more than noise. If even the best decisions are worse than the random mix,
    the estimate is each choice's mean. Last, the estimates of each choice are
    calibrated on held-out rows, with corrections that are shrunk by their noise.

    Parameters
    ----------
    family : list of str, default=None
        Members to compare, from ``"trees"``, ``"boosted"``, ``"linear"`` and
        ``"landmarks"``. None compares all.

    cv : int, default=5
        Number of shuffled folds that the family is compared on. Raising it leaves each
        member more rows, and takes longer.

    standard_errors : bool, default=False
        Whether `fit` estimates the standard errors that ``predict(X, return_std=True)``
        returns. Standard errors are errors on simulated outcomes, whose true quality is
        the out-of-fold estimate. The noise of a row is its residual with a random sign.
        The members with weight are fitted again on the simulated outcomes. This takes
        about half as long as the rest of `fit`.

    random_state : int, RandomState instance or None, default=0
        Determines the folds, the trees and the clusters. Pass an int for the same
        result at every fit.

    n_jobs : int, default=None
        Threads that fit members and folds. None means one, -1 all processors.

    Attributes
    ----------
    mean_ : ndarray of shape (n_outputs,)
        Mean quality of each choice.

    compared_ : list of Compared
        For the stack and for each member: its `name`, the out-of-fold `gain` over the
        random mix with its standard error `gain_se`, and its weights, `difference` and
        `level`.

    encoder_ : FrameEncoder or None
        Makes numbers of rows with texts, categories, dates or missing values, and of
        sparse rows with more than 1,000 columns. None for other rows of numbers.

    n_features_in_ : int
        Number of features seen during `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, if all are strings.

    See Also
    --------
    BaggedNeighborsRegressor : The estimator of OCCAM, by nearest rows.
    skroute.quality.FrameEncoder : Encoder of texts and data frames.

    Notes
    -----
    Time is bounded. A tree is fitted on at most 10,000 rows, a split compares at most
    40 features, and the linear member uses at most 1,000 columns. The forest for new
    rows has about sixty trees, from the forests of all folds, at least one of each.
    Other members with weight are fitted again on all rows. Rows are not stored.

    Texts and categories are encoded once, from all rows, without their outcomes.
    Out-of-fold estimates of a row are by members that were fitted without its outcomes.

    Standard errors depend on the size of the estimate only. A row far from all others
    has the standard error of its estimate.

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
        """Compare the members, and fit those that get a weight.

        Parameters
        ----------
        X : data frame, {array-like, sparse matrix} of shape (n_samples, n_features), \
                or sequence of str
            The rows. :class:`~skroute.quality.FrameEncoder` encodes texts, categories,
            dates, missing values and sparse rows of many columns.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Quality of each choice, finite numbers of any scale.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, for the fits of all members and for their comparison.
            Their unit does not matter: whole multiples of the smallest weight, up to
            16, count rows, and other weights get the mean 1. A row of weight 0 is left
            out. The number of rows in a leaf, the places of landmarks, the encoding of
            texts and the curve of standard errors are not weighted. None weights all
            rows alike.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If a member of the family is unknown, `X` has an infinite number, or `y` is
            not finite.
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
        """Fit, and return out-of-fold estimates of the same rows.

        A router needs the fit and the estimates. This method fits each fold only once.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            As in `fit`.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            As in `fit`.

        folds : list of (ndarray of int, ndarray of int), default=None
            Pairs ``(train, test)`` of positions, as splitters of scikit-learn yield
            them. Each row is in `test` of one fold. None draws `cv` folds.

        costs : array-like of shape (n_outputs,) or (n_samples, n_outputs), default=None
            Cost of each choice, for the budgets at which decisions are compared. None
            supposes that better choices cost more, in even steps.

        n_jobs : int, default=None
            Number of threads, if the parameter `n_jobs` of the estimator is None.

        return_kept : bool, default=False
            Whether to return `kept` as well.

        sample_weight : array-like of shape (n_samples,), default=None
            As in `fit`. Rows of weight 0 get the estimates of new rows.

        return_by_fold : bool, default=False
            Whether to return `by_fold` as well.

        Returns
        -------
        estimate : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Out-of-fold estimates. Members and means are fitted without the fold of the
            row, and weights and corrections are fitted and selected on the other folds.
            The stack is not nested: the members that estimate the other folds were
            fitted with the row. This moves the estimate of the row away from its
            outcome, by about one over the number of rows.

        kept : ndarray of the same shape
            Estimates on the scale of new rows: out-of-fold estimates of the members,
            with the weights and corrections of `predict`, which are fitted on all rows.
            Use them to set prices for new rows, never to evaluate decisions. Only if
            `return_kept`.

        by_fold : ndarray of shape (n_folds, n_samples) or \
                (n_folds, n_samples, n_outputs)
            For each fold, estimates of all rows with the weights and corrections of
            this fold, which are fitted and selected on the other folds. On the rows of
            the fold, they are equal to `estimate`. To set prices for the rows of a
            fold, use the estimates of the rows outside of it. Only if `return_by_fold`.
        """
        # `mean_` marks a fitted estimator, and is set at the end. So the estimator is
        # not fitted after a fit that fails.
        self.__dict__.pop("mean_", None)
        refuse_masked(X=X, y=y)
        check_rows_match(X=X, y=y, costs=costs, sample_weight=sample_weight)
        estimates = self._validate_and_fit(
            X,
            y,
            folds=folds,
            costs=costs,
            n_jobs=n_jobs,
            sample_weight=sample_weight,
            with_by_fold=return_by_fold,
        )
        tables = [estimates.estimate]
        if return_kept:
            tables.append(estimates.as_new)
        if return_by_fold:
            tables.append(estimates.by_fold)
        return _in_shape_of_y(tables, self._is_single)

    @_fit_context(prefer_skip_nested_validation=True)
    def _validate_and_fit(
        self, X, y, folds, costs, n_jobs, sample_weight, with_by_fold
    ):
        """Check the arguments of `cross_fit`, and fit.

        Parameters
        ----------
        X, y, folds, costs, n_jobs, sample_weight
            As in `cross_fit`.
        with_by_fold : bool
            Whether to compute `CrossEstimates.by_fold`.

        Returns
        -------
        CrossEstimates
        """
        # The parameter of the estimator takes precedence over the argument.
        self._threads = n_jobs if self.n_jobs is None else self.n_jobs
        self._seed = seed_of(self.random_state)
        names = check_family(self.family)
        checks = {
            "dtype": [np.float64, np.float32],
            "order": "C",
            "multi_output": True,
            "y_numeric": True,
        }
        self.encoder_ = None  # None is for rows of numbers.
        X = few_columns_dense(indexable_rows(X))
        if issparse(X) or needs_encoding(X) or holds_missing(X):
            # This call stores the feature names. Rows are checked as numbers below.
            validate_data(self, X, skip_check_array=True)
            encoder = FrameEncoder(random_state=self._seed)
            # The encoder returns an array, also if the user has set another output.
            self.encoder_ = encoder.set_output(transform="default")
            numbers = self.encoder_.fit_transform(X)
            numbers, outcomes = check_X_y(numbers, on_host(y), **checks)
            self.n_features_in_ = self.encoder_.n_features_in_
        else:
            numbers, outcomes = validate_data(self, on_host(X), on_host(y), **checks)
        outcomes = np.asarray(outcomes, dtype=np.float64)
        self._is_single = outcomes.ndim == 1
        problem = _Problem(
            X=numbers,
            quality=outcomes.reshape(len(outcomes), -1),
            folds=folds,
            costs=costs,
            weight=None,
            names=names,
        )
        # The matrices are small. Several threads of BLAS would wait for one another.
        with threadpool_controller().limit(limits=1, user_api="blas"):
            if sample_weight is None:
                return self._cross_fit(problem, with_by_fold)
            weight = relative_weights(given_weights(sample_weight, numbers))
            problem = problem._replace(weight=weight)
            return self._weighted_cross_fit(problem, with_by_fold)

    def _weighted_cross_fit(self, problem, with_by_fold):
        """Fit on the rows of weight above 0, and predict the rows of weight 0.

        Parameters
        ----------
        problem : _Problem
            With weights.
        with_by_fold : bool
            Whether to compute `CrossEstimates.by_fold`.

        Returns
        -------
        CrossEstimates
            Estimates for all rows, also those of weight 0.
        """
        weight = problem.weight
        fitted_rows = np.flatnonzero(weight)
        if len(fitted_rows) == len(weight):
            # All rows have weight.
            problem = problem._replace(weight=none_if_equal(weight))
            return self._cross_fit(problem, with_by_fold)
        fitted_estimates = self._cross_fit(problem.taken(fitted_rows), with_by_fold)
        # Rows of weight 0 keep these estimates in all tables.
        as_new = self._estimates_of(problem.X)
        estimate = as_new.copy()
        estimate[fitted_rows] = fitted_estimates.estimate
        estimate_as_new = as_new.copy()
        estimate_as_new[fitted_rows] = fitted_estimates.as_new
        by_fold = None  # not needed
        if with_by_fold:
            # True for each fold that has a row with weight. Folds that were drawn have
            # only such rows.
            has_fitted_rows = np.ones(len(fitted_estimates.by_fold), dtype=bool)
            if problem.folds is not None:
                # `fitted_estimates` has no table for a fold without weight.
                has_fitted_rows = np.array(
                    [weight[test].any() for _, test in problem.folds]
                )
            by_fold = np.tile(as_new, (len(has_fitted_rows), 1, 1))
            by_fold[np.ix_(has_fitted_rows, fitted_rows)] = fitted_estimates.by_fold
        return CrossEstimates(estimate, as_new=estimate_as_new, by_fold=by_fold)

    def _cross_fit(self, problem, with_by_fold):
        """Fit the mean of each choice, or stack members. Return `CrossEstimates`.

        Parameters
        ----------
        problem : _Problem
            All weights are above zero.
        with_by_fold : bool
            Whether to compute `CrossEstimates.by_fold`.

        Returns
        -------
        CrossEstimates
        """
        largest = np.abs(problem.quality).max()
        # Not `largest > _LARGEST`, because NaN must be refused as well.
        if not largest <= _LARGEST:
            raise ValueError(
                f"y must have entries of at most {_LARGEST:g} in size, got "
                f"{largest:g}. Give quality in another unit."
            )
        n_rows = len(problem.X)
        if problem.folds is None and n_rows >= _FEWEST_ROWS:
            splitter = KFold(self.cv, shuffle=True, random_state=self._seed)
            problem = problem._replace(folds=list(splitter.split(problem.X)))
        # The results of a fit without members. `_fit_family` replaces them.
        self.compared_ = []
        # Weighted members. The estimate of a row is the mean plus their predictions.
        self._terms = []
        self._curves = None  # CorrectionCurves, or None: estimates are not corrected
        self._errors = None  # ErrorCurves, or None: standard errors are not estimated
        # Estimates stay in the range of the outcomes.
        self._limits = range_of(problem.quality)
        self._centre, self._spread = _scale(problem.X, problem.weight)
        if n_rows < _FEWEST_ROWS or len(problem.folds) < 2:
            return self._fit_means(problem, with_by_fold)
        return self._fit_family(problem, with_by_fold)

    def _fit_means(self, problem, with_by_fold):
        """Fit the mean of each choice alone, and return `CrossEstimates`.

        Without folds, the estimate of a row is its own outcome.

        Parameters
        ----------
        problem : _Problem
        with_by_fold : bool
            Whether to compute `CrossEstimates.by_fold`.

        Returns
        -------
        CrossEstimates
        """
        quality = problem.quality
        n_rows = len(quality)
        mean = mean_of(quality, problem.weight)
        if self.standard_errors:
            # A single row has no standard deviation, and gets NaN.
            spread = np.full(mean.shape, np.nan)
            if n_rows > 1:
                spread = quality.std(axis=0, ddof=1)
            error_of_mean = spread / n_rows**0.5
            # The curve of a choice has one bin.
            self._errors = ErrorCurves(
                estimate=mean[:, None], error=error_of_mean[:, None]
            )
        # Lowest and highest estimate are the mean: each estimate becomes the mean, to
        # the last digit.
        self._limits = OutcomeRange(low=mean, high=mean, unit=None)
        # Rows outside of all folds have their own outcomes as estimates.
        estimate = quality.copy()
        means_by_fold = []
        folds = problem.folds
        if folds is None:
            folds = []  # few rows, and the user gave no folds
        for train, test in folds:
            mean_without_fold = mean_of(
                quality[train], weights_of_rows(problem.weight, train)
            )
            estimate[test] = mean_without_fold
            means_by_fold.append(mean_without_fold)
        by_fold = None  # not needed
        if with_by_fold:
            by_fold = np.empty((len(means_by_fold), *quality.shape))
            for number, mean_without_fold in enumerate(means_by_fold):
                by_fold[number] = mean_without_fold
        self.mean_ = mean
        as_new = np.tile(mean, (n_rows, 1))
        return CrossEstimates(estimate, as_new=as_new, by_fold=by_fold)

    def _fit_family(self, problem, with_by_fold):
        """Fit, compare and stack the members of the family; return `CrossEstimates`.

        Parameters
        ----------
        problem : _Problem
            With at least two folds.
        with_by_fold : bool
            Whether to compute `CrossEstimates.by_fold`.

        Returns
        -------
        CrossEstimates
        """
        mean = mean_of(problem.quality, problem.weight)
        costs = cost_of_choices(problem.costs, problem.quality)
        # Squared errors are added up over choices, so outcomes with a heavy tail are
        # divided. All results are multiplied by the divisors again. (n_choices,)
        divisors = outcome_divisors(problem.quality)
        table = _TrainingTable(
            rows=self._standardised(problem.X),
            quality=problem.quality / divisors,
            folds=problem.folds,
            weight=problem.weight,
        )
        fold_fits = self._fit_folds(problem.names, table)
        selection = choose_weights(
            problem.names,
            fold_fits.deviations,
            outcome_deviations=table.quality - table.means_of_other_folds(),
            quality=table.quality,
            folds=[test for _, test in table.folds],
            costs=costs,
            divisors=divisors,
            row_weight=table.weight,
        )
        combination = selection.combination
        # Outcomes less the means of all rows, not of the other folds: the members that
        # are fitted to them are for new rows.
        deviations = table.quality - mean / divisors
        self._terms = self._fit_terms(
            fold_fits,
            weights=combination.weights,
            table=table,
            deviations=deviations,
            divisors=divisors,
        )
        if self.standard_errors:
            errors = self._simulate_errors(problem.names, selection, table)
            self._errors = errors.scaled(divisors)
        self.compared_ = selection.compared
        if combination.curves is not None:
            self._curves = combination.curves.scaled(divisors)
        if not self._terms:
            # No member has weight. Lowest and highest estimate are the mean: each
            # estimate becomes the mean, to the last digit.
            self._limits = OutcomeRange(low=mean, high=mean, unit=None)
        self.mean_ = mean
        as_new = combination.estimate(fold_fits.deviations) * divisors
        by_fold = None  # not needed
        if with_by_fold:
            by_fold = selection.estimates_by_fold(fold_fits.deviations) * divisors
        return CrossEstimates(
            estimate=selection.estimate * divisors, as_new=as_new, by_fold=by_fold
        )

    def _standardised(self, X):
        """Return standardised rows in single precision, clipped to `_LARGEST_FEATURE`.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_features)

        Returns
        -------
        ndarray of shape (n_rows, n_features), dtype=float32
        """
        with np.errstate(over="ignore"):
            rows = (X - self._centre) / self._spread
        # `np.clip` would take twice the time for a single row.
        clipped = np.minimum(np.maximum(rows, -_LARGEST_FEATURE), _LARGEST_FEATURE)
        return clipped.astype(np.float32)

    def _fit_folds(self, names, table):
        """Fit members without each fold in turn, and estimate the rows of this fold.

        Parameters
        ----------
        names : list of str
            Names of the members to fit.
        table : _TrainingTable

        Returns
        -------
        _FoldFits
        """
        jobs = []
        for position, name in enumerate(names):
            for fold, (train, test) in enumerate(table.folds):
                # Each fold has its own seed. `_seed` itself is for fits on all rows.
                seed = (self._seed + fold + 1) % N_SEEDS
                job = _FoldJob(position, name, train=train, test=test, seed=seed)
                jobs.append(job)
        fits = self._in_threads(delayed(_fit_without_fold)(job, table) for job in jobs)
        fold_fits = _FoldFits(
            deviations=np.empty((len(names), *table.quality.shape)),
            members={name: [] for name in names},
        )
        for job, (member, deviations) in zip(jobs, fits):
            fold_fits.members[job.name].append(member)
            fold_fits.deviations[job.position, job.test] = deviations
        return fold_fits

    def _in_threads(self, jobs):
        """Run delayed calls in threads, and return their results in order."""
        return Parallel(n_jobs=self._threads, require="sharedmem")(jobs)

    def _fit_terms(self, fold_fits, *, weights, table, deviations, divisors):
        """Return members for new rows, with outputs multiplied by the members' weights.

        The estimate of a new row is the mean of each choice, plus the sum of these
        outputs. A member without weight is left out.

        Parameters
        ----------
        fold_fits : _FoldFits
        weights : MemberWeights
            Weights of the family, in the order of the members of `fold_fits`.
        table : _TrainingTable
        deviations : ndarray of shape (n_rows, n_choices)
            Outcomes divided by `divisors`, less their mean over all rows.
        divisors : ndarray of shape (n_choices,)
            Divisors of the outcomes. The weighted outputs are multiplied by them.

        Returns
        -------
        list of Member
        """
        names = list(fold_fits.members)
        used_members = weights.used_members()
        jobs = []
        for position in used_members:
            name = names[position]
            jobs.append(
                delayed(_fit_for_new_rows)(
                    name,
                    fold_fits.members[name],
                    table=table,
                    deviations=deviations,
                    seed=self._seed,
                )
            )
        terms = []
        forests = []
        for position, members in zip(used_members, self._in_threads(jobs)):
            # `members` may have one forest for each fold. The estimate is the mean of
            # the forests, so each forest gets an equal part of the weights.
            level_weight = weights.level[position] / len(members)
            difference_weight = weights.difference[position] / len(members)
            for member in members:
                term = member.weighted(
                    level_weight, difference_weight, factors=divisors
                )
                if isinstance(term, SummedTrees):
                    forests.append(term)
                else:
                    terms.append(term)
        if forests:
            terms.append(SummedTrees.sum_of(forests))
        # A file has the leaves in half precision. With the same rounding here, an
        # estimator predicts the same before and after it is written to a file.
        return [unpack(*pack(term)) for term in terms]

    def _simulate_errors(self, names, selection, table):
        """Estimate standard errors on simulated outcomes, whose true quality is known.

        The members that have weight are fitted again on the simulated outcomes, out of
        fold. Weights and corrections stay the same.

        Parameters
        ----------
        names : list of str
            Names of all members, in the order of their weights.
        selection : skroute.quality._stacking.Selection
            The chosen weights and corrections, and the estimates that they give.
        table : _TrainingTable

        Returns
        -------
        ErrorCurves
        """
        rng = np.random.default_rng(self._seed)
        truth = selection.estimate  # the true quality of the simulated outcomes
        simulated = table._replace(
            quality=simulate_outcomes(truth, table.quality, rng=rng)
        )
        weights = selection.combination.weights
        curves = selection.combination.curves  # None: estimates are not corrected
        used_members = weights.used_members()
        used_names = [names[position] for position in used_members]
        fold_fits = self._fit_folds(used_names, simulated)
        used_weights = weights.taken(used_members)
        estimate = used_weights.weigh(fold_fits.deviations)  # (n_rows, n_choices)
        estimate += simulated.means_of_other_folds()
        if curves is not None:
            estimate = curves.apply(estimate)
        lowest = table.quality.min(axis=0)
        highest = table.quality.max(axis=0)
        estimate = np.clip(estimate, lowest, highest)
        return error_curves(
            estimate, estimate - truth, spread_of_truth=truth.std(axis=0)
        )

    def predict(
        self, X: ArrayLike, return_std: bool = False
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], ...]:
        """Estimate the quality of each choice on new rows.

        Parameters
        ----------
        X : data frame, {array-like, sparse matrix} of shape (n_samples, n_features), \
                or sequence of str
            The rows, as in `fit`. A missing number becomes the mean if none was missing
            in `fit`.

        return_std : bool, default=False
            Whether to return the standard error of each estimate as well. It needs
            ``standard_errors=True`` in `fit`.

        Returns
        -------
        y_mean : ndarray of shape (n_samples,) or (n_samples, n_outputs), dtype=float64
            The estimates.

        y_std : ndarray of the same shape, dtype=float64
            Standard errors: the root mean squared difference between the true quality
            and estimates close to this one. The spread of single outcomes is not
            included. Only if `return_std`. NaN after a fit on one row.

        Raises
        ------
        ValueError
            If `return_std` and `fit` did not estimate standard errors.
        """
        check_is_fitted(self)
        if return_std and self._errors is None:
            raise ValueError(
                "return_std=True needs the standard errors that fit estimates with "
                "QualityRegressor(standard_errors=True). Set it and fit again."
            )
        if self.encoder_ is None:
            numbers = self._plain_rows(X)
        else:
            numbers = self.encoder_.transform(X)
        tables = [self._estimates_of(numbers)]
        if return_std:
            tables.append(self._errors.standard_errors(tables[0]))
        return _in_shape_of_y(tables, self._is_single)

    def _plain_rows(self, X):
        """Return rows of numbers as an array, with means for missing numbers.

        Parameters
        ----------
        X : data frame, {array-like, sparse matrix} of shape (n_rows, n_features)

        Returns
        -------
        ndarray of shape (n_rows, n_features)
        """
        X = few_columns_dense(indexable_rows(X))
        if not holds_missing(X):
            return whole_rows(X, self, dtype=[np.float64, np.float32])
        refuse_masked(X=X)
        # This call checks only the feature names and the number of features.
        validate_data(self, X, reset=False, skip_check_array=True)
        rows = table_of_numbers(on_host(X))
        check_array(rows, ensure_all_finite="allow-nan", input_name="X")
        return np.where(np.isnan(rows), self._centre, rows)

    def _estimates_of(self, numbers):
        """Return the estimates of all choices for rows of numbers.

        Parameters
        ----------
        numbers : ndarray of shape (n_rows, n_features)
            Rows as numbers, not yet standardised.

        Returns
        -------
        ndarray of shape (n_rows, n_choices)
        """
        # Each row starts with the means of the choices.
        estimate = np.full((len(numbers), len(self.mean_)), self.mean_)
        for begin in range(0, len(numbers), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            rows = self._standardised(numbers[block])
            estimate_of_block = estimate[block]  # a view: it is changed in place
            for term in self._terms:
                estimate_of_block += term.predict(rows)
        if self._curves is not None:
            estimate = self._curves.apply(estimate)
        return self._limits.limit(estimate)

    def __getstate__(self):
        """Return the state as plain tuples, dicts and arrays."""
        # A skops file asks its reader to trust each class that it contains. So members
        # and records are stored as tuples, dicts and arrays, which need no trust.
        state = dict(super().__getstate__())
        if "_terms" in state:
            state["_terms"] = [pack(term) for term in state["_terms"]]
            state["compared_"] = [tuple(result) for result in state["compared_"]]
        for name in _RECORDS:
            if state.get(name) is not None:
                state[name] = tuple(state[name])
        return state

    def __setstate__(self, state):
        """Set a state that `__getstate__` has returned: build members and records."""
        state = dict(state)
        if "_terms" in state:
            state["_terms"] = [unpack(*packed) for packed in state["_terms"]]
            state["compared_"] = [Compared(*result) for result in state["compared_"]]
        for name, record_class in _RECORDS.items():
            if state.get(name) is not None:
                state[name] = record_class(*state[name])
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


def _fit_without_fold(job, table):
    """Fit a member on the rows outside of a fold, and estimate the rows of the fold.

    Parameters
    ----------
    job : _FoldJob
    table : _TrainingTable

    Returns
    -------
    member : Member
    deviations : ndarray of shape (n_rows_of_fold, n_choices)
        Estimates for the rows of the fold: quality less its mean over `job.train`.
    """
    weight = weights_of_rows(table.weight, job.train)
    quality = table.quality[job.train]
    deviations = quality - mean_of(quality, weight)
    fit = MEMBERS[job.name]
    member = fit(table.rows[job.train], deviations, seed=job.seed, weight=weight)
    return member, member.predict_once(table.rows[job.test])


def _fit_for_new_rows(name, members_of_folds, *, table, deviations, seed):
    """Return a member for new rows: fitted again, or made of the fits on the folds.

    The forests of the folds stay in use, because together they were fitted on all rows.
    Any other member is fitted again, on all rows.

    Parameters
    ----------
    name : str
        Name of the member in `MEMBERS`.
    members_of_folds : list of Member
        The member as it was fitted without each fold.
    table : _TrainingTable
    deviations : ndarray of shape (n_rows, n_choices)
        Outcomes less their mean over all rows.
    seed : int

    Returns
    -------
    list of Member
        The member predicts the mean of their predictions.
    """
    if name == "trees":
        n_folds = len(members_of_folds)
        return [forest.first_trees(n_folds) for forest in members_of_folds]
    return [MEMBERS[name](table.rows, deviations, seed=seed, weight=table.weight)]


def _in_shape_of_y(tables, is_single):
    """Return tables without their last axis if `y` had one dimension, else as they are.

    Several tables are returned as a tuple, and one table as an array.

    Parameters
    ----------
    tables : list of ndarray of shape (..., n_outputs)
    is_single : bool
        Whether `y` had one dimension. The axis of outputs is then left out.
    """
    if is_single:
        tables = [table[..., 0] for table in tables]
    return tuple(tables) if len(tables) > 1 else tables[0]


def check_family(family):
    """Return the names in `family`, or raise a ValueError. None is for all names.

    Parameters
    ----------
    family : list of str, or None
        None: all members.

    Returns
    -------
    list of str
    """
    names = list(MEMBERS if family is None else family)
    # Entries that are not strings may not be hashable: they are not looked up.
    unknown = [
        name for name in names if not isinstance(name, str) or name not in MEMBERS
    ]
    is_valid = len(names) > 0 and not unknown
    if not is_valid or len(set(names)) < len(names):
        raise ValueError(
            f"family must be a list of different members of {list(MEMBERS)!r}, got "
            f"{names!r}."
        )
    return names


def _scale(X, weight=None):
    """Return the mean and the standard deviation of each feature.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    mean : ndarray of shape (n_features,)
    spread : ndarray of shape (n_features,)
        1 for a feature that does not vary beyond rounding.
    """
    # Features are divided by their largest absolute number. So no square overflows.
    largest = np.abs(X).max(axis=0).astype(np.float64)
    unit = np.where(largest > 0, largest, 1.0)  # 1 for a feature of zeros
    scaled = X / unit
    if weight is None:
        mean = scaled.mean(axis=0, dtype=np.float64)
        spread = scaled.std(axis=0, dtype=np.float64)
    else:
        mean = mean_of(scaled, weight)
        spread = np.sqrt(mean_of((scaled - mean) ** 2, weight))
    spread = np.where(spread > ROUNDING, spread * unit, 1.0)
    return mean * unit, spread
