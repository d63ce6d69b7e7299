"""Scorers and a search for model selection under a budget."""

from collections import UserString
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.metrics import check_scoring, get_scorer
from sklearn.model_selection import GridSearchCV, ParameterGrid
from sklearn.utils import check_consistent_length
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skroute.base import affords, check_budget
from skroute.base._delegation import DelegatedViewsMixin, inner_has
from skroute.metrics._curve import (
    BudgetSweep,
    accuracy_cost_curve,
    check_bills,
    check_budgets,
    checked_targets,
    find_router,
)
from skroute.utils._compat import Interval, Real, is_scorer, num_samples
from skroute.utils._named import check_rows_match
from skroute.utils._typing import ArrayLike
from skroute.utils._validation import check_row_weights, refuse_missing, warn

# Parameters of decision estimators that act on a fitted estimator, without another fit.
_PARAMETERS_AFTER_FIT = ("budget", "reg_lambda", "exchange_rate")


def mean_cost_scorer(estimator: Any, X: Any, y: Any = None, **kwargs: Any) -> float:
    """Compute the mean cost per sample of a fitted estimator, for model selection.

    .. warning::
       A lower **cost** is better. A search that maximises it chooses the most expensive
       candidate: use this scorer next to a quality, with :func:`best_within_budget`.

    Parameters
    ----------
    estimator : estimator
        As in :func:`accuracy_cost_curve`.

    X : array-like of shape (n_samples, n_features)
        As in :func:`accuracy_cost_curve`.

    y : object, default=None
        Ignored, present for the scorer protocol.

    **kwargs : keyword arguments
        ``costs``, the bills of each choice on each row as in
        :func:`accuracy_cost_curve`, and further arguments of ``predict_cost``.

    Returns
    -------
    float
        Mean bill, or its expectation, in the unit of the estimator's costs.

    Raises
    ------
    TypeError
        If `estimator` is not cost-aware.

    Examples
    --------
    >>> from skroute.metrics import best_within_budget, mean_cost_scorer
    >>> scoring = {"accuracy": "accuracy", "cost": mean_cost_scorer}
    >>> refit = best_within_budget(0.5)

    They are arguments of ``GridSearchCV(router, grid, scoring=scoring, refit=refit)``.
    """
    check_rows_match(X=X, **kwargs)
    router, X = find_router(estimator, X)
    bills = kwargs.get("costs")
    if bills is None or router.needs_costs_:
        # Either `costs` is not given, or `predict_cost` takes it itself.
        return float(np.mean(router.predict_cost(X, **kwargs)))
    # The router decides without `costs`, which it does not know before the calls. None
    # is the router's own budget.
    budget = kwargs.pop("budget", None)
    del kwargs["costs"]
    check_bills(router, num_samples(bills if X is None else X), bills)
    plan = router.plan(X, router.make_call(budget, **kwargs))
    return float(np.mean(router.bill(plan, bills)))


def mean_quality_scorer(estimator: Any, X: Any, y: Any, **kwargs: Any) -> float:
    """Compute the mean quality of answers by the estimator's own `quality`.

    This is a scorer for model selection.

    Parameters
    ----------
    estimator : estimator
        As in :func:`accuracy_cost_curve`.

    X : array-like of shape (n_samples, n_features)
        As in :func:`accuracy_cost_curve`.

    y : array-like of shape (n_samples,) or (n_samples, n_columns)
        As in :func:`accuracy_cost_curve`.

    **kwargs : keyword arguments
        ``sample_weight``, ``budget`` and further arguments of ``predict_routed``.

    Returns
    -------
    float
        Higher is better: minus the mean cost of errors for a cost matrix, minus the
        mean of a loss. Without a `quality` it is the accuracy, or the mean quality of
        the choices made.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.dummy import DummyClassifier
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skroute.metrics import mean_quality_scorer
    >>> from skroute.routing import DummyRouterClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> members = [("prior", DummyClassifier()), ("bayes", GaussianNB())]
    >>> best = DummyRouterClassifier(members, costs=[0, 1], quality="brier").fit(X, y)
    >>> -0.1 < mean_quality_scorer(best, X, y) < -0.05
    True
    """
    budget = kwargs.pop("budget", None)
    # The curve has one point. None is the estimator's own budget.
    curve = BudgetSweep(estimator, X, y, **kwargs).curve([budget])
    return float(curve.quality[0])


def _check_scored(estimator, scoring, *, X, y, params):
    """Check rows and true answers before one of scikit-learn's scorers reads them.

    Parameters
    ----------
    estimator : fitted estimator
    scoring : str, callable or None
        As in :func:`make_budget_scorer`.
    X, y : array-like with n_samples rows
    params : dict
        Further arguments of the scorer, such as ``sample_weight``.

    Raises
    ------
    ValueError
        If rows have the same labels in another order. Also if a true answer is missing
        that scikit-learn would read, such as a masked one, or if lengths differ, or
        weights allow no mean.
    """
    check_rows_match(X=X, y=y, **params)
    predicts = is_classifier(estimator) or is_regressor(estimator)
    is_of_sklearn = isinstance(scoring, str) or is_scorer(scoring)
    if predicts and is_of_sklearn:
        # scikit-learn's scorers check their arguments after the models have answered.
        if y is None:
            raise ValueError(
                "y must have the true answer of each row, got None: the scorer "
                f"{scoring!r} compares answers with it. Give y."
            )
        refuse_missing(y=y)
        if not isinstance(X, Mapping):
            check_consistent_length(X, y)
    if y is not None and (scoring is None or is_of_sklearn):
        check_row_weights(params.get("sample_weight"), num_samples(y))


def _score_at_budget(estimator, X, y=None, *, budget, scoring, **kwargs):
    """Return the score of an estimator at a budget.

    The parameters are described at :func:`make_budget_scorer`, which makes a scorer of
    this function.
    """
    _check_scored(estimator, scoring, X=X, y=y, params=kwargs)
    router, router_rows = find_router(estimator, X)
    if isinstance(scoring, str) and (is_classifier(router) or is_regressor(router)):
        checked_targets(y, router)
    # A budget acts on a fitted estimator. It is set in a copy: the estimator of the
    # user stays as it is.
    router = copy(router)
    router.budget = budget
    scorer = check_scoring(router, scoring)
    return scorer(router, router_rows, y, **kwargs)


def make_budget_scorer(
    budget: float | None, scoring: str | Callable[..., float] | None = "accuracy"
) -> Callable[..., float]:
    """Make a scorer that evaluates an estimator at a given budget.

    Parameters
    ----------
    budget : float or None
        Mean cost per sample, in place of the estimator's own `budget`. None is
        unlimited.

    scoring : str, callable or None, default="accuracy"
        The name of a scorer of scikit-learn, or a callable
        ``scoring(estimator, X, y, **kwargs)``, for example :func:`mean_cost_scorer`.
        None takes the estimator's own ``score``.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, **kwargs)``. It can be pickled.

    Raises
    ------
    ValueError
        If `budget` is not a non-negative number, or `scoring` names no scorer.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.dummy import DummyClassifier
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skroute.metrics import make_budget_scorer
    >>> from skroute.routing import OccamRouterClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> members = [("prior", DummyClassifier()), ("bayes", GaussianNB())]
    >>> router = OccamRouterClassifier(members, costs=[0, 1])
    >>> scorer = make_budget_scorer(1.0)
    >>> cross_val_score(router, X, y, cv=2, scoring=scorer).mean() > 0.9
    np.True_

    Several budgets in one search: ``scoring={"at 0.1": make_budget_scorer(0.1), "at 1":
    make_budget_scorer(1.0)}``.
    """
    if isinstance(scoring, str):
        # This call raises an error for an unknown name.
        get_scorer(scoring)
    elif scoring is not None and not callable(scoring):
        raise ValueError(
            "scoring must be the name of a scorer, a callable or None, got "
            f"{scoring!r}."
        )
    return partial(_score_at_budget, budget=check_budget(budget), scoring=scoring)


def _score_curve(estimator, X, y, *, metric, budgets, options, **kwargs):
    """Return a metric of the curve of cost and quality of an estimator.

    The parameters are described at :func:`make_curve_scorer`. `options` are the
    keyword arguments of `metric`.
    """
    curve = accuracy_cost_curve(estimator, X, y, budgets, **kwargs)
    return float(metric(curve.cost, curve.quality, **options))


def _check_options(metric, options):
    """Raise a ValueError if `metric` cannot be called with these keyword arguments."""
    try:
        parameters = signature(metric)
    except (TypeError, ValueError):
        # Compiled functions may have no signature.
        return
    try:
        parameters.bind(None, None, **options)
    except TypeError as error:
        raise ValueError(
            f"metric={metric!r} must be callable as metric(cost, quality, **kwargs), "
            f"with the keywords {list(options)!r}: {error}. Give arguments that it "
            "takes."
        ) from error


def make_curve_scorer(
    metric: Callable[..., float], budgets: ArrayLike, **kwargs: Any
) -> Callable[..., float]:
    """Make a scorer from a function that summarises the curve of cost and quality.

    Parameters
    ----------
    metric : callable
        Called as ``metric(cost, quality, **kwargs)`` with the means at each budget,
        such as :func:`cost_quality_auc`, :func:`average_performance_gap_recovered`,
        :func:`call_performance_threshold` and :func:`cost_reduction_at`.

    budgets : array-like of shape (n_budgets,)
        Mean costs per sample at which the estimator is evaluated.

    **kwargs : keyword arguments
        Further arguments of `metric`.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, **kwargs)``, with the keyword arguments of
        :func:`accuracy_cost_curve`. It can be pickled if `metric` can. It returns the
        number of `metric` with the same sign: higher is better for all metrics above
        except :func:`call_performance_threshold`.

    Raises
    ------
    ValueError
        If `metric` is not callable or a budget is not valid.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.datasets import make_routing_problem
    >>> from skroute.metrics import cost_quality_auc, make_curve_scorer
    >>> from skroute.routing import BudgetRouter
    >>> problem = make_routing_problem(400, n_models=2, random_state=0)
    >>> router = BudgetRouter(Ridge(), costs=problem.costs)
    >>> router = router.fit(problem.data, problem.quality)
    >>> scorer = make_curve_scorer(cost_quality_auc, [0.1, 0.5, 1.0], low=0.1, high=1.0)
    >>> 0.7 < scorer(router, problem.data, problem.quality) < 1
    True
    """
    if not callable(metric):
        raise ValueError(f"metric must be callable, got {metric!r}.")
    _check_options(metric, kwargs)
    return partial(
        _score_curve, metric=metric, budgets=check_budgets(budgets), options=kwargs
    )


class BudgetRule(UserString):
    """Rule that chooses the best candidate of a search within a budget.

    It is made for the parameter `refit` of scikit-learn's searches. `fit` of a search
    calls `refit` to choose a candidate. `score` of a search looks up the scorer whose
    name equals `refit`. So the rule is both: it can be called, and it is a text with
    the name of the score to maximise. It is not a subclass of str, because skops stores
    subclasses of str as plain texts.

    Parameters
    ----------
    quality : str
        Name of the score to maximise.

    budget : float
        Largest mean cost per sample.

    cost : str
        Name of the score that holds the cost.
    """

    def __init__(self, quality, budget, cost):
        super().__init__(quality)
        self.budget = budget
        self.cost = cost

    def __getnewargs__(self):
        """Return no arguments of `__new__` for a copy or a pickle.

        The attributes are in the state of the copy or the pickle.
        """
        return ()

    @property
    def quality(self):
        """Name of the score to maximise, as a plain text."""
        return self.data

    def __call__(self, cv_results: Mapping[str, Any]) -> int:
        """Return the position of the best candidate within the budget.

        Parameters
        ----------
        cv_results : mapping from str to array-like
            ``cv_results_`` of a search.

        Returns
        -------
        int
            The candidate of the best quality. Ties go to the cheapest, then to the
            first.

        Raises
        ------
        ValueError
            If a score is not there, or no candidate is within the budget.
        """
        # Mean over the folds of each candidate, (n_candidates,).
        quality = self._mean_scores(cv_results, self.quality)
        cost = self._mean_scores(cv_results, self.cost)
        # False for a candidate that failed.
        is_scored = np.isfinite(quality) & np.isfinite(cost)
        if not is_scored.any():
            raise ValueError(
                f"All {len(is_scored)} candidates failed in fit or in scoring: none "
                f"has both a finite {self.quality!r} and a finite {self.cost!r}. "
                "scikit-learn warned of each error; "
                'with error_score="raise" the search ends at the first one and '
                "shows it."
            )
        is_affordable = affords(self.budget, cost)
        candidates = np.flatnonzero(is_scored & is_affordable)
        if not len(candidates):
            raise ValueError(self._describe_cheapest(cv_results, cost, is_scored))
        # The best quality comes first, and the lowest cost among equal qualities.
        # `lexsort` sorts by its last key, and by the first one among ties.
        order = np.lexsort((cost[candidates], -quality[candidates]))
        return int(candidates[order[0]])

    def _mean_scores(self, cv_results, name):
        """Return the mean over the validation folds of the score `name`.

        The shape is (n_candidates,), with NaN for a candidate that failed.
        """
        key = f"mean_test_{name}"
        if key not in cv_results:
            raise ValueError(
                f"{self!r} needs cv_results to have {key!r}. Give the search "
                f"scoring={{{self.quality!r}: ..., {self.cost!r}: mean_cost_scorer}}."
            )
        return np.asarray(cv_results[key], dtype=np.float64)

    def _describe_cheapest(self, cv_results, cost, is_scored):
        """Return the message for a search without a candidate within the budget.

        Parameters
        ----------
        cv_results : mapping from str to array-like
        cost : ndarray of shape (n_candidates,)
        is_scored : ndarray of bool of shape (n_candidates,)
            False for candidates that failed.

        Returns
        -------
        str
        """
        # inf excludes candidates that failed.
        cheapest = int(np.where(is_scored, cost, np.inf).argmin())
        message = (
            f"No candidate keeps to budget={self.budget!r}. The cheapest spends "
            f"{cost[cheapest]:.6g} per sample: {cv_results['params'][cheapest]!r}."
        )
        n_failed = len(is_scored) - int(is_scored.sum())
        if n_failed:
            message += (
                f" {n_failed} of {len(is_scored)} candidates failed and were left out."
            )
        return message

    def __repr__(self):
        return (
            f"best_within_budget({self.budget!r}, quality={self.quality!r}, "
            f"cost={self.cost!r})"
        )


def best_within_budget(
    budget: float, quality: str = "accuracy", cost: str = "cost"
) -> Callable[[Mapping[str, Any]], int]:
    """Make a ``refit`` rule for a search: the best candidate within a budget.

    Parameters
    ----------
    budget : float
        Largest mean cost per sample over the validation folds, in the unit of the
        estimator's costs.

    quality : str, default="accuracy"
        Name of the score to maximise, a key of the search's `scoring`. A router that is
        fitted to a quality matrix has no accuracy: give ``quality="quality"`` and
        ``scoring={"quality": None, "cost": mean_cost_scorer}``. None in `scoring` is
        the router's own ``score``.

    cost : str, default="cost"
        Name of the score that holds the cost, see :func:`mean_cost_scorer`.

    Returns
    -------
    callable
        ``refit(cv_results) -> index`` for
        :class:`~sklearn.model_selection.GridSearchCV` and similar searches. It can be
        pickled. It takes the cheapest of equally good candidates. Candidates that
        failed are left out.

    Raises
    ------
    ValueError
        If `budget` is not valid. At the end of the search, if no candidate is within
        the budget (the message has the cheapest one), or if a score is missing.

    Notes
    -----
    scikit-learn's searches have no ``best_score_`` if `refit` can be called, and their
    calls take no budget. Calls of ``search.best_estimator_`` and of
    :class:`BudgetSearchCV` take a budget.

    Examples
    --------
    >>> from skroute.metrics import best_within_budget
    >>> refit = best_within_budget(2.0)
    >>> refit(
    ...     {
    ...         "params": [{"p": 0}, {"p": 1}, {"p": 2}],
    ...         "mean_test_accuracy": [0.7, 0.8, 0.9],
    ...         "mean_test_cost": [1.0, 2.0, 3.0],
    ...     }
    ... )
    1
    """
    return BudgetRule(quality, budget=check_budget(budget), cost=cost)


class SearchGrid(NamedTuple):
    """Parameters of a search, split by when they act: in `fit`, or afterwards.

    A candidate is a combination of values of `param_grid` together with one of the
    `settings`.

    Attributes
    ----------
    param_grid : dict or list of dict
        Values of the parameters that act in `fit`, as in
        :class:`~sklearn.model_selection.GridSearchCV`.

    settings : list of dict
        Values of the parameters that act on a fitted estimator, one dict for each
        combination. If no parameter acts there, the list is ``[{}]``: one setting
        without parameters.
    """

    param_grid: Any
    settings: list[dict[str, Any]]


def split_grid(estimator, param_grid):
    """Split a grid into parameters that need a fit, and settings that do not.

    Parameters
    ----------
    estimator : estimator
        A decision estimator, or a pipeline that ends in one.
    param_grid : dict or list of dict
        In a list of grids every parameter counts as one that needs a fit.

    Returns
    -------
    SearchGrid
    """
    if not isinstance(param_grid, Mapping):
        # A list of grids: every candidate is fitted. The only setting is empty.
        return SearchGrid(param_grid, settings=[{}])
    # In a pipeline, the names of parameters begin with the name of the last step. This
    # step may be a pipeline, too.
    prefix = ""
    while hasattr(estimator, "steps"):
        last_name, estimator = estimator.steps[-1]
        prefix += f"{last_name}__"
    names_after_fit = [prefix + name for name in _PARAMETERS_AFTER_FIT]
    grid_of_fits = {}
    grid_after_fit = {}
    for name, values in param_grid.items():
        if name in names_after_fit:
            grid_after_fit[name] = values
        else:
            grid_of_fits[name] = values
    return SearchGrid(grid_of_fits, settings=list(ParameterGrid(grid_after_fit)))


def _score_settings(estimator, X, y=None, *, settings, quality, error_score, **params):
    """Return quality and cost of a fitted estimator at each setting of parameters.

    Parameters
    ----------
    estimator : fitted estimator
        Its parameters are changed.
    X, y
        Validation rows and their targets.
    settings : list of dict
        As in `SearchGrid`.
    quality, error_score
        As in :class:`BudgetSearchCV`.
    **params : keyword arguments
        Further arguments of the scorer of the quality.

    Returns
    -------
    dict of str to float
        ``"quality0"`` and ``"cost0"`` at the first setting, and so on. NaN at a setting
        that cannot be scored.
    """
    scorer = check_scoring(estimator, quality)
    scores = {}
    for position, setting in enumerate(settings):
        estimator.set_params(**setting)
        try:
            quality_score = scorer(estimator, X, y, **params)
            cost_score = mean_cost_scorer(estimator, X)
        except ValueError as error:
            if error_score == "raise":
                raise
            warn(f"{setting!r} cannot be scored and is left out: {error}")
            # A candidate with NaN is never chosen.
            quality_score = np.nan
            cost_score = np.nan
        scores[f"quality{position}"] = quality_score
        scores[f"cost{position}"] = cost_score
    return scores


class BudgetSearchCV(DelegatedViewsMixin, GridSearchCV):
    """Grid search for the best estimator whose mean cost is within a budget.

    It is a :class:`~sklearn.model_selection.GridSearchCV` with
    :func:`best_within_budget` and :func:`mean_cost_scorer`. In addition, it fits once
    for all values of ``budget``, ``reg_lambda`` and ``exchange_rate``, which act on a
    fitted estimator. It has a ``best_score_``, ``predict_routed``, ``predict_cost`` and
    ``route``, and its calls take a `budget`, also if `estimator` is a pipeline.

    Parameters
    ----------
    estimator : estimator
        A cost-aware estimator, or a pipeline that ends in one.

    param_grid : dict or list of dict
        As in :class:`~sklearn.model_selection.GridSearchCV`. If it is a list of grids,
        every candidate is fitted.

    budget : float
        Largest mean cost per sample over the validation folds, in the unit of the
        estimator's costs.

    quality : str or callable, default=None
        Scorer of the quality; higher is better. None is the estimator's own ``score``.

    cv, n_jobs, error_score, verbose
        As in :class:`~sklearn.model_selection.GridSearchCV`. A candidate that fails is
        left out.

    Attributes
    ----------
    best_score_ : float
        Mean quality of the best candidate over the validation folds.

    best_cost_ : float
        Mean cost of the best candidate over the validation folds.

    best_estimator_, best_params_, best_index_, cv_results_, scorer_
        As in :class:`~sklearn.model_selection.GridSearchCV`; the scores are named
        ``"quality"`` and ``"cost"``.

    Raises
    ------
    ValueError
        In `fit`, if no candidate is within the budget. The message has the cheapest
        one.

    See Also
    --------
    best_within_budget : The same rule for any search of scikit-learn.

    Notes
    -----
    Do not report ``best_score_`` as the quality: it is the highest of many scores on
    the same rows, so it is too high on average.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skroute.gating import AdaptGatingClassifier, BoostedGate
    >>> from skroute.metrics import BudgetSearchCV
    >>> X, y = load_iris(return_X_y=True)
    >>> search = BudgetSearchCV(
    ...     AdaptGatingClassifier(
    ...         LogisticRegression(max_iter=1000),
    ...         p_full=0.0,
    ...         gate=BoostedGate(n_estimators=5),
    ...     ),
    ...     {"gamma": [0.01, 0.3]},
    ...     budget=3,
    ...     cv=2,
    ... ).fit(X, y)
    >>> bool(search.best_cost_ <= 3), search.best_score_ > 0.8
    (True, True)
    >>> bool(search.predict_routed(X).cost.mean() <= 3)
    True
    """

    _parameter_constraints: dict = {
        "estimator": GridSearchCV._parameter_constraints["estimator"],
        "param_grid": GridSearchCV._parameter_constraints["param_grid"],
        "budget": [Interval(Real, 0, None, closed="both")],
        "quality": [str, callable, None],
        "cv": GridSearchCV._parameter_constraints["cv"],
        "n_jobs": GridSearchCV._parameter_constraints["n_jobs"],
        "error_score": GridSearchCV._parameter_constraints["error_score"],
        "verbose": GridSearchCV._parameter_constraints["verbose"],
    }
    # Attributes that replace the parameters of GridSearchCV with the same names. The
    # methods `scoring` and `refit` also replace parameters.
    pre_dispatch = "2*n_jobs"
    return_train_score = False

    def __init__(
        self,
        estimator,
        param_grid,
        *,
        budget,
        quality=None,
        cv=None,
        n_jobs=None,
        error_score=np.nan,
        verbose=0,
    ):
        self.estimator = estimator
        self.param_grid = param_grid
        self.budget = budget
        self.quality = quality
        self.cv = cv
        self.n_jobs = n_jobs
        self.error_score = error_score
        self.verbose = verbose

    def scoring(self, estimator, X, y=None, **params):
        """Return quality and cost at each setting that needs no fit.

        It takes the place of the parameter `scoring` of
        :class:`~sklearn.model_selection.GridSearchCV`.

        Parameters
        ----------
        estimator : estimator
            Fitted on the training folds. Its parameters are changed.

        X : array-like of shape (n_samples, n_features)
            Validation rows.

        y : array-like of shape (n_samples,) or (n_samples, n_choices), default=None
            Targets of the validation rows.

        **params : keyword arguments
            Further arguments of the scorer of the quality.

        Returns
        -------
        dict of str to float
            ``"quality0"`` and ``"cost0"`` at the first setting, and so on. NaN at a
            setting that cannot be scored.
        """
        return self._settings_scorer()(estimator, X, y, **params)

    def _settings_scorer(self):
        """Return a scorer with quality and cost at each setting of the grid, as a dict.

        Settings are parameters that act on a fitted estimator.
        """
        return partial(
            _score_settings,
            settings=self._split_grid().settings,
            quality=self.quality,
            error_score=self.error_score,
        )

    def refit(self, cv_results):
        """Return the position of the best candidate within the budget.

        It takes the place of the parameter `refit` of
        :class:`~sklearn.model_selection.GridSearchCV`.

        Parameters
        ----------
        cv_results : mapping from str to array-like
            As ``cv_results_``.

        Returns
        -------
        int
        """
        rule = BudgetRule("quality", budget=self.budget, cost="cost")
        return rule(cv_results)

    @property
    def best_score_(self):
        """Mean quality of the best candidate over the validation folds."""
        return float(self.cv_results_["mean_test_quality"][self.best_index_])

    @property
    def best_cost_(self):
        """Mean cost of the best candidate over the validation folds."""
        return float(self.cv_results_["mean_test_cost"][self.best_index_])

    def _split_grid(self):
        """Return the parameters of this search in two parts (`SearchGrid`)."""
        return split_grid(self.estimator, self.param_grid)

    def _run_search(self, evaluate_candidates):
        """Fit an estimator for each combination of parameters that need a fit.

        It replaces the method of scikit-learn's search, whose `evaluate_candidates`
        fits and scores on all folds. The settings are scored after each fit.
        """
        evaluate_candidates(ParameterGrid(self._split_grid().param_grid))

    def _format_results(self, candidate_params, n_splits, out, more_results=None):
        """Return ``cv_results_`` with a candidate for each pair of fit and setting.

        Parameters
        ----------
        candidate_params : list of dict
            Parameters of the fits.
        n_splits : int
            Number of folds.
        out : list of dict
            Results of each fit on each fold. The folds of a fit follow one another.
        more_results : dict, default=None
            As in :class:`~sklearn.model_selection.GridSearchCV`.

        Returns
        -------
        dict of str to array-like
        """
        settings = self._split_grid().settings
        candidates = []
        results = []
        for fit_index, fit_params in enumerate(candidate_params):
            first = fit_index * n_splits
            fold_results = out[first : first + n_splits]
            for position, setting in enumerate(settings):
                candidates.append({**fit_params, **setting})
                for fold_result in fold_results:
                    # `scoring` has named the scores by the position of the setting.
                    all_scores = fold_result["test_scores"]
                    scores = {
                        "quality": all_scores[f"quality{position}"],
                        "cost": all_scores[f"cost{position}"],
                    }
                    results.append({**fold_result, "test_scores": scores})
        return super()._format_results(candidates, n_splits, results, more_results)

    # The cost protocol ----------------------------------------------------------------

    def decision_estimator(self):
        """Return the decision estimator inside the best estimator.

        Before `fit`, return the decision estimator inside the parameter `estimator`.

        Returns
        -------
        estimator
        """
        inner = getattr(self, "best_estimator_", self.estimator)
        while hasattr(inner, "steps"):
            # The estimator is a pipeline, whose last step decides.
            _, inner = inner.steps[-1]
        return inner

    def rows_for_decision(self, X):
        """Return the rows that the decision estimator gets.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        array-like
        """
        check_is_fitted(self)
        _, rows = find_router(self.best_estimator_, X)
        return rows

    def fit(self, X, y=None, **params):
        """Fit all candidates on the folds, and the best one on all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Training rows.

        y : array-like of shape (n_samples,) or (n_samples, n_choices), default=None
            Targets, as the estimator takes them.

        **params : dict
            As in :class:`~sklearn.model_selection.GridSearchCV`.

        Returns
        -------
        self
            The fitted estimator.
        """
        # Row labels (the index of a frame) in a wrong order are an error, which a
        # single fold may not show. So all rows are checked together.
        check_rows_match(X=X, y=y, **params)
        if isinstance(self.quality, str):
            # An unknown name is an error before any candidate is fitted.
            get_scorer(self.quality)
        super().fit(X, y, **params)
        # scikit-learn has set `scorer_` to the method `scoring`, which refers to this
        # object. skops cannot store an object that refers to itself.
        self.scorer_ = self._settings_scorer()
        return self

    @available_if(inner_has("predict"))
    def predict(self, X, **params):
        """Return the answers of the best estimator.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures}
            The rows, of shape (n_samples, n_features).

        **params : keyword arguments
            Keywords of the calls of the estimator, such as `budget`.

        Returns
        -------
        ndarray of shape (n_samples,)
            The answers, one for each row.
        """
        return self._call_inner("predict", X, **params)

    @available_if(inner_has("predict_proba"))
    def predict_proba(self, X, **params):
        """Return the class probabilities of the best estimator.

        Parameters
        ----------
        X, **params
            As in `predict`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities of the classes.
        """
        return self._call_inner("predict_proba", X, **params)

    def score(self, X, y=None, budget=None, **params):
        """Return the quality of the best estimator.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,), default=None
            True targets.

        budget : float, default=None
            Mean cost per sample for this call. None takes the estimator's own budget.

        **params : keyword arguments
            Further arguments of the scorer.

        Returns
        -------
        float
            The score. Higher is better.
        """
        check_is_fitted(self)
        _check_scored(self.best_estimator_, self.quality, X=X, y=y, params=params)
        if budget is None:
            scorer = check_scoring(self.best_estimator_, self.quality)
        else:
            scorer = make_budget_scorer(budget, self.quality)
        return float(scorer(self.best_estimator_, X, y, **params))
