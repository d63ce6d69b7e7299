"""Cost and budget in scikit-learn's model selection."""

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.metrics import check_scoring, get_scorer
from sklearn.model_selection import GridSearchCV, ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skroute.base import affords, check_budget
from skroute.base._delegation import DelegatedViewsMixin, inner_has
from skroute.metrics._curve import Walk, accuracy_cost_curve, check_budgets, find_router
from skroute.utils._compat import Interval, Real, is_scorer
from skroute.utils._named import check_rows_match
from skroute.utils._typing import ArrayLike
from skroute.utils._validation import refuse_missing, warn

# Parameters of decision estimators that act without a fit.
_AT_ONCE = ("budget", "reg_lambda", "exchange_rate")
_SCORES = ("quality", "cost")


def mean_cost_scorer(estimator: Any, X: Any, y: Any = None, **kwargs: Any) -> float:
    """Mean cost per sample of a fitted estimator: a scorer for model selection.

    .. warning::
       Of a **cost** less is better: a search that maximises it chooses the most expensive
       candidate. Use it beside a quality and choose with :func:`best_within_budget`.

    Parameters
    ----------
    estimator, X
        As in :func:`accuracy_cost_curve`.

    y : object, default=None
        Ignored, present for the scorer protocol.

    **kwargs : keyword arguments
        Further arguments of ``predict_cost``, for example ``costs`` of each row.

    Returns
    -------
    float
        In the unit of the estimator's costs.

    Raises
    ------
    TypeError
        If `estimator` is not cost-aware.

    Examples
    --------
    >>> from skroute.metrics import best_within_budget, mean_cost_scorer
    >>> scoring = {"accuracy": "accuracy", "cost": mean_cost_scorer}
    >>> refit = best_within_budget(0.5)

    and then ``GridSearchCV(router, grid, scoring=scoring, refit=refit)``.
    """
    check_rows_match(X=X, **kwargs)
    router, X = find_router(estimator, X)
    return float(np.mean(router.predict_cost(X, **kwargs)))


def mean_quality_scorer(estimator: Any, X: Any, y: Any, **kwargs: Any) -> float:
    """Quality of an estimator's answers by its own `quality`: a scorer for model selection.

    Parameters
    ----------
    estimator, X, y
        As in :func:`accuracy_cost_curve`.

    **kwargs : keyword arguments
        ``sample_weight``, ``budget`` and further arguments of ``predict_routed``.

    Returns
    -------
    float
        Higher is better: minus the mean cost of errors for a cost matrix, minus a loss; without a
        `quality` accuracy, or the mean quality of the choices made.

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
    return float(Walk(estimator, X, y, **kwargs).curve([budget]).quality[0])


def _check_scored(estimator, scoring, X, y, params):
    """Check rows and true answers before one of scikit-learn's scorers reads them.

    Raises
    ------
    ValueError
        If rows have the same labels in another order, or if a true answer is missing that
        scikit-learn would read, such as a masked one.
    """
    check_rows_match(X=X, y=y, **params)
    answers = is_classifier(estimator) or is_regressor(estimator)
    if answers and (isinstance(scoring, str) or is_scorer(scoring)):
        refuse_missing(y=y)


def _score_at(estimator, X, y=None, *, budget, scoring, **kwargs):
    _check_scored(estimator, scoring, X, y, kwargs)
    router, X = find_router(estimator, X)
    # A budget acts at once on a fitted estimator.
    router = copy(router)
    router.budget = budget
    return check_scoring(router, scoring)(router, X, y, **kwargs)


def make_budget_scorer(
    budget: float | None, scoring: str | Callable[..., float] | None = "accuracy"
) -> Callable[..., float]:
    """A scorer that evaluates an estimator at a given budget.

    Parameters
    ----------
    budget : float or None
        Mean cost per sample, in place of the estimator's own `budget`. None is unlimited.

    scoring : str, callable or None, default="accuracy"
        One of scikit-learn's scorers by name; a callable ``scoring(estimator, X, y, **kwargs)``,
        for example :func:`mean_cost_scorer`; or None for the estimator's own ``score``.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, **kwargs)``; it can be pickled.

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
    >>> cross_val_score(router, X, y, cv=2, scoring=make_budget_scorer(1.0)).mean() > 0.9
    np.True_

    Several budgets in one search: ``scoring={"at 0.1": make_budget_scorer(0.1), "at 1":
    make_budget_scorer(1.0)}``.
    """
    if isinstance(scoring, str):
        get_scorer(scoring)
    elif scoring is not None and not callable(scoring):
        raise ValueError(
            f"scoring must be the name of a scorer, a callable or None, got {scoring!r}."
        )
    return partial(_score_at, budget=check_budget(budget), scoring=scoring)


def _score_curve(estimator, X, y, *, metric, budgets, options, **kwargs):
    curve = accuracy_cost_curve(estimator, X, y, budgets, **kwargs)
    return float(metric(curve.cost, curve.quality, **options))


def make_curve_scorer(
    metric: Callable[..., float], budgets: ArrayLike, **kwargs: Any
) -> Callable[..., float]:
    """Make a scorer from a function that summarises the curve of cost and quality.

    Parameters
    ----------
    metric : callable
        Called as ``metric(cost, quality, **kwargs)`` with the means at each budget, such as
        :func:`cost_quality_auc`, :func:`average_performance_gap_recovered`,
        :func:`call_performance_threshold` and :func:`cost_reduction_at`.

    budgets : array-like of shape (n_budgets,)
        Mean costs per sample at which the estimator is evaluated.

    **kwargs : keyword arguments
        Further arguments of `metric`.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, **kwargs)``, with the keyword arguments of
        :func:`accuracy_cost_curve`; it can be pickled if `metric` can. More is better where it is
        for `metric`: of those above for all but :func:`call_performance_threshold`.

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
    >>> router = BudgetRouter(Ridge(), costs=problem.costs).fit(problem.data, problem.quality)
    >>> scorer = make_curve_scorer(cost_quality_auc, [0.1, 0.5, 1.0], low=0.1, high=1.0)
    >>> 0.7 < scorer(router, problem.data, problem.quality) < 1
    True
    """
    if not callable(metric):
        raise ValueError(f"metric must be callable, got {metric!r}.")
    return partial(
        _score_curve, metric=metric, budgets=check_budgets(budgets), options=kwargs
    )


class _BestWithinBudget:
    """The rule of :func:`best_within_budget`.

    It is equal to the name of the quality, under which ``search.score`` looks its scorer up.
    """

    def __init__(self, budget, quality, cost):
        self.budget = budget
        self.quality = quality
        self.cost = cost

    def __eq__(self, other):
        if isinstance(other, str):
            return self.quality == other
        return isinstance(other, _BestWithinBudget) and vars(self) == vars(other)

    def __hash__(self):
        return hash(self.quality)

    def __call__(self, cv_results: Mapping[str, Any]) -> int:
        keys = [f"mean_test_{name}" for name in (self.quality, self.cost)]
        if missing := [key for key in keys if key not in cv_results]:
            raise ValueError(
                f"{self!r} needs cv_results to have {missing[0]!r}. Give the search "
                f"scoring={{{self.quality!r}: ..., {self.cost!r}: mean_cost_scorer}}."
            )
        quality, cost = (np.asarray(cv_results[key], dtype=np.float64) for key in keys)
        valid = np.isfinite(quality) & np.isfinite(cost)
        if not valid.any():
            raise ValueError(
                f"All {len(valid)} candidates failed in fit or in scoring: none has both a finite "
                f"{self.quality!r} and a finite {self.cost!r}. scikit-learn warned of each error; "
                'with error_score="raise" the search ends at the first one and shows it.'
            )
        fits = np.flatnonzero(valid & affords(self.budget, cost))
        if not len(fits):
            cheapest = int(np.where(valid, cost, np.inf).argmin())
            failed = len(valid) - int(valid.sum())
            raise ValueError(
                f"No candidate keeps to budget={self.budget!r}. The cheapest spends "
                f"{cost[cheapest]:.6g} per sample: {cv_results['params'][cheapest]!r}."
                + (
                    f" {failed} of {len(valid)} candidates failed and were left out."
                    * bool(failed)
                )
            )
        # The best quality; of equals the cheapest, then the first.
        return int(fits[np.lexsort((cost[fits], -quality[fits]))[0]])

    def __repr__(self):
        return f"best_within_budget({self.budget!r}, quality={self.quality!r}, cost={self.cost!r})"


def best_within_budget(
    budget: float, quality: str = "accuracy", cost: str = "cost"
) -> Callable[[Mapping[str, Any]], int]:
    """Make a ``refit`` rule for a search: the best candidate with a cost within the budget.

    Parameters
    ----------
    budget : float
        Largest mean cost per sample over the validation folds, in the unit of the
        estimator's costs.

    quality : str, default="accuracy"
        Name of the score to maximise, a key of the search's `scoring`. A router that is fitted to
        a quality matrix has no accuracy: give ``quality="quality"`` and
        ``scoring={"quality": None, "cost": mean_cost_scorer}`` (None is its own ``score``).

    cost : str, default="cost"
        Name of the score that holds the cost, see :func:`mean_cost_scorer`.

    Returns
    -------
    callable
        ``refit(cv_results) -> index`` for :class:`~sklearn.model_selection.GridSearchCV`
        and its kin; it can be pickled. Of equally good candidates it takes the cheapest;
        candidates that failed are left out.

    Raises
    ------
    ValueError
        If `budget` is not valid; at the end of the search, if no candidate keeps to it
        (the message names the cheapest) or a score is missing.

    Notes
    -----
    scikit-learn has no ``best_score_`` where `refit` is a function, and no calls with a budget:
    those are of ``search.best_estimator_``, or of :class:`BudgetSearchCV`.

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
    return _BestWithinBudget(check_budget(budget), quality, cost)


def _score_settings(estimator, X, y=None, *, settings, quality, error_score, **kwargs):
    """Quality and cost of a fitted estimator at each of some settings that act at once."""
    scorer, found = check_scoring(estimator, quality), {}
    for j, setting in enumerate(settings):
        estimator.set_params(**setting)
        try:
            worth = scorer(estimator, X, y, **kwargs)
            cost = mean_cost_scorer(estimator, X)
        except ValueError as error:
            if error_score == "raise":
                raise
            warn(f"{setting!r} cannot be scored and is left out: {error}")
            worth = cost = np.nan
        found |= {f"quality{j}": worth, f"cost{j}": cost}
    return found


class BudgetSearchCV(DelegatedViewsMixin, GridSearchCV):
    """Grid search for the best estimator whose mean cost is within a budget.

    What :class:`~sklearn.model_selection.GridSearchCV` does with :func:`best_within_budget` and
    :func:`mean_cost_scorer`, and more: it fits once for all values of ``budget``, ``reg_lambda``
    and ``exchange_rate``, which act without a fit; it has a ``best_score_``, ``predict_routed``,
    ``predict_cost`` and ``route``, and its calls take a `budget`, also of a pipeline.

    Parameters
    ----------
    estimator : estimator
        A cost-aware estimator, or a pipeline that ends in one.

    param_grid : dict or list of dict
        As in :class:`~sklearn.model_selection.GridSearchCV`. In a list of grids every candidate
        is fitted.

    budget : float
        Largest mean cost per sample over the validation folds, in the unit of the
        estimator's costs.

    quality : str or callable, default=None
        Scorer of the quality, higher being better. None is the estimator's own ``score``.

    cv, n_jobs, error_score, verbose
        As in :class:`~sklearn.model_selection.GridSearchCV`. A candidate that fails is left out.

    Attributes
    ----------
    best_score_ : float
        Mean quality of the best candidate over the validation folds.

    best_cost_ : float
        Its mean cost.

    best_estimator_, best_params_, best_index_, cv_results_, scorer_
        As in :class:`~sklearn.model_selection.GridSearchCV`; the scores are named ``"quality"``
        and ``"cost"``.

    Raises
    ------
    ValueError
        In `fit`, if no candidate keeps to the budget; the message names the cheapest.

    See Also
    --------
    best_within_budget : The same rule for any search of scikit-learn.

    Notes
    -----
    Rows that choose a candidate do not report its quality: ``best_score_`` is the best of many,
    partly by luck.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skroute.gating import AdaptGatingClassifier, BoostedGate
    >>> from skroute.metrics import BudgetSearchCV
    >>> X, y = load_iris(return_X_y=True)
    >>> search = BudgetSearchCV(
    ...     AdaptGatingClassifier(
    ...         LogisticRegression(max_iter=1000), p_full=0.0, gate=BoostedGate(n_estimators=5)
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
        **{
            name: allowed
            for name, allowed in GridSearchCV._parameter_constraints.items()
            if name
            in ("estimator", "param_grid", "cv", "n_jobs", "error_score", "verbose")
        },
        "budget": [Interval(Real, 0, None, closed="both")],
        "quality": [str, callable, None],
    }
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

    @property
    def scoring(self):
        """Scores of quality and cost at each setting."""
        how = {"quality": self.quality, "error_score": self.error_score}
        return partial(_score_settings, settings=self._settings()[1], **how)

    @property
    def refit(self):
        """The rule that chooses."""
        return _BestWithinBudget(self.budget, "quality", "cost")

    @property
    def best_score_(self):
        """Mean quality of the best candidate over the validation folds."""
        return float(self.cv_results_["mean_test_quality"][self.best_index_])

    @property
    def best_cost_(self):
        """Mean cost of the best candidate over the validation folds."""
        return float(self.cv_results_["mean_test_cost"][self.best_index_])

    def _settings(self):
        """The grid of what takes a fit, and the settings of what does not."""
        inner, prefix = self.estimator, ""
        while hasattr(inner, "steps"):
            prefix += f"{inner.steps[-1][0]}__"
            inner = inner.steps[-1][1]
        if not isinstance(self.param_grid, Mapping):
            return self.param_grid, [{}]
        at_once = [
            prefix + name for name in _AT_ONCE if prefix + name in self.param_grid
        ]
        fits = {
            name: values
            for name, values in self.param_grid.items()
            if name not in at_once
        }
        return fits, list(
            ParameterGrid({name: self.param_grid[name] for name in at_once})
        )

    def _run_search(self, evaluate_candidates):
        evaluate_candidates(ParameterGrid(self._settings()[0]))

    def _format_results(self, candidate_params, n_splits, out, more_results=None):
        """The results of a search with one candidate for each setting of each fitted one."""
        settings = self._settings()[1]
        candidates = [
            {**fitted, **one} for fitted in candidate_params for one in settings
        ]
        spread = [
            {
                **fit,
                "test_scores": {
                    name: fit["test_scores"][f"{name}{j}"] for name in _SCORES
                },
            }
            for start in range(0, len(out), n_splits)
            for j in range(len(settings))
            for fit in out[start : start + n_splits]
        ]
        return super()._format_results(candidates, n_splits, spread, more_results)

    # The cost protocol ----------------------------------------------------------------

    def decision_estimator(self):
        """Return the decision estimator inside the best estimator, before fit in `estimator`.

        Returns
        -------
        estimator
        """
        inner = getattr(self, "best_estimator_", self.estimator)
        while hasattr(inner, "steps"):
            inner = inner.steps[-1][1]
        return inner

    def rows_for_decision(self, X):
        """Return what the decision estimator gets.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        array-like
        """
        check_is_fitted(self)
        return find_router(self.best_estimator_, X)[1]

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
        """
        # Within a fold labels can be those of other rows.
        check_rows_match(X=X, y=y, **params)
        return super().fit(X, y, **params)

    @available_if(inner_has("predict"))
    def predict(self, X, **params):
        """Answers of the best estimator.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures} of shape (n_samples, n_features)
            The rows.

        **params : keyword arguments
            What the estimator takes in a call, such as `budget`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._call_inner("predict", X, **params)

    @available_if(inner_has("predict_proba"))
    def predict_proba(self, X, **params):
        """Class probabilities of the best estimator.

        Parameters
        ----------
        X, **params
            As in `predict`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return self._call_inner("predict_proba", X, **params)

    def score(self, X, y=None, budget=None, **params):
        """Quality of the best estimator.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,), default=None
            True targets.

        budget : float, default=None
            Mean cost per sample for this call. None takes the estimator's.

        **params : keyword arguments
            Of the scorer.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        _check_scored(self.best_estimator_, self.quality, X, y, params)
        if budget is None:
            scorer = check_scoring(self.best_estimator_, self.quality)
        else:
            scorer = make_budget_scorer(budget, self.quality)
        return float(scorer(self.best_estimator_, X, y, **params))
