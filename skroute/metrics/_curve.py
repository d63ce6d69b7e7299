"""Curves of an estimator: quality over cost at some budgets, risk over coverage."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from skroute.base import check_budget
from skroute.base._inspection import ABSTAIN_NAME, abstained, takes_keyword
from skroute.base._protocol import routed_of
from skroute.metrics._objectives import qualities_of, rows_of, worth_of
from skroute.utils._cache import with_cache
from skroute.utils._compat import num_samples
from skroute.utils._named import check_rows_match
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import (
    check_numbers,
    check_row_weights,
    check_some_known,
    refuse_missing,
)


class AccuracyCostCurve(NamedTuple):
    """Quality and cost of an estimator at each budget.

    Attributes
    ----------
    budget : ndarray of shape (n_budgets,), dtype=float64
        The budgets asked for, in the order given; infinity where unlimited.

    quality : ndarray of shape (n_budgets,), dtype=float64
        Mean quality: accuracy for one label per row.

    cost : ndarray of shape (n_budgets,), dtype=float64
        Mean cost per row, as ``predict_cost`` has it: an estimate where the estimator has a
        ``cost_estimator``.

    route_share : ndarray of shape (n_budgets, n_choices), dtype=float64
        Share of the rows for which each choice was made; rows sum to 1.

    choices : list
        Names of the choices, the columns of `route_share`.

    row_quality, row_cost : ndarray of shape (n_samples, n_budgets), dtype=float64
        Of each row, for :func:`bootstrap_interval`.
    """

    budget: NDArray[np.float64]
    quality: NDArray[np.float64]
    cost: NDArray[np.float64]
    route_share: NDArray[np.float64]
    choices: list[Any]
    row_quality: NDArray[np.float64]
    row_cost: NDArray[np.float64]


def check_budgets(budgets):
    """A list of budgets as an array; None becomes infinity."""
    usable = np.iterable(budgets) and not isinstance(budgets, str)
    given = list(budgets) if usable else []
    if not given:
        raise ValueError(
            f"budgets must be a non-empty list of numbers (mean costs per sample), got {budgets!r}."
        )
    return np.array([check_budget(budget, name="each of budgets") for budget in given])


def find_router(estimator, X):
    """The cost-aware estimator inside a search or a pipeline, and the rows that it sees."""
    if hasattr(estimator, "best_estimator_"):
        return find_router(estimator.best_estimator_, X)
    if hasattr(estimator, "rows_for_decision"):
        return find_router(
            estimator.decision_estimator(), estimator.rows_for_decision(X)
        )
    if hasattr(estimator, "predict_routed"):
        check_is_fitted(estimator)
        return estimator, X
    if hasattr(estimator, "steps"):
        X = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
        return find_router(estimator[-1], X)
    raise TypeError(
        "estimator must be a fitted cost-aware estimator (one with predict_routed), a pipeline "
        f"that ends with one, or a search over one of these; got {estimator!r}."
    )


def checked_targets(y, router):
    """Return targets as an array, by which the answers of a fitted router can be judged.

    Parameters
    ----------
    y : array-like
        True labels or numbers, none of them missing; or qualities of the choices of a router that
        only routes, of which some may be unknown.
    router : fitted decision estimator

    Returns
    -------
    ndarray of shape (n_samples,) or (n_samples, n_columns)
        Unknown qualities are NaN.
    """
    answers = is_classifier(router) or is_regressor(router)
    if not answers and getattr(y, "ndim", np.ndim(y)) == 2:
        return qualities_of(y, router)
    refuse_missing(y=y)
    targets = rows_of(y, router)
    if is_classifier(router) and targets.ndim == 1:
        check_some_known(targets, router.classes_)
    return targets


class Walk:
    """A fitted estimator on the rows that it is judged by: no model is asked twice about one."""

    def __init__(self, estimator, X, y, row_quality=None, sample_weight=None, **call):
        # What the transformers of a pipeline make of the rows may have no labels.
        check_rows_match(X=X, y=y, sample_weight=sample_weight, **call)
        router, self.X = find_router(estimator, X)
        # A cascade may be asked by signals alone.
        rows = y if self.X is None else self.X
        check_consistent_length(rows, y)
        self.n = num_samples(rows)
        self.weight = check_row_weights(sample_weight, self.n)
        if row_quality is None:
            self.y = checked_targets(y, router)
        else:
            # What a missing label is worth is for the function to say.
            self.y = rows_of(y, router)
        self.worth = worth_of(router, y, row_quality)
        # The oracle is told what is right.
        self.call = {"y_true": y, **call} if takes_keyword(router, "y_true") else call
        self.router = with_cache(router)

    @property
    def label(self):
        """What the quality is called in pictures; None for accuracy and logged qualities."""
        names = {"cost matrix": "minus cost", "callable": "given function"}
        name = names.get(self.worth.name, self.worth.name)
        return None if name in ("accuracy", "row_quality") else f"Quality ({name})"

    def at(self, budget):
        """Quality, route and cost of each row at a budget."""
        call = self.router.make_call(budget, **self.call)
        routed = self.router.respond(self.X, call, self.worth.asks)
        quality = self.worth.of_routed(self.y, routed, self.router, self.weight)
        return quality, routed.route, routed.cost

    def singles(self):
        """Names of the single choices, abstaining included, and their quality and cost by row."""
        names = self.router.single_choices_
        if getattr(self.router, "abstain_quality_", None) is not None:
            names = [*dict.fromkeys([*names, ABSTAIN_NAME])]
        quality, cost = np.empty((2, self.n, len(names)))
        for k, name in enumerate(names):
            if name == ABSTAIN_NAME:
                quality[:, k], cost[:, k] = self.router.abstain_quality_, 0.0
                continue
            plan = self.router.plan_single(
                self.X, name, self.router.make_call(**self.call)
            )
            seen = routed_of(plan, self.router.answer(plan, self.worth.asks))
            quality[:, k] = self.worth.of_single(self.y, seen, self.router, self.weight)
            cost[:, k] = seen.cost
        return names, quality, cost

    def curve(self, limits):
        """The curve over budgets."""
        names = list(self.router.choices_)
        quality, cost = np.empty((2, self.n, len(limits)))
        share = np.empty((len(limits), len(names)))
        for k, limit in enumerate(limits):
            quality[:, k], route, cost[:, k] = self.at(limit)
            share[k] = np.bincount(route, weights=self.weight, minlength=len(names))
        share, means = share / self.weight.sum(), self.means(quality)
        if np.isnan(means).any():
            raise ValueError("y is NaN, not known, for every choice that was made.")
        return AccuracyCostCurve(
            limits, means, self.means(cost), share, names, quality, cost
        )

    def means(self, values):
        """Weighted mean of each column over the rows where it is known; NaN where it never is."""
        known = ~np.isnan(values)
        total, counted = self.weight @ np.where(known, values, 0.0), self.weight @ known
        # Divided last: rows that all cost 1 cost exactly 1 on average.
        return np.divide(
            total, counted, out=np.full(len(total), np.nan), where=counted > 0
        )


def accuracy_cost_curve(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    budgets: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    row_quality: Any = None,
    **params: Any,
) -> AccuracyCostCurve:
    """Quality, cost and routes of a fitted estimator at several budgets.

    Answers, choices and costs come from the same pass; no model is asked twice about a row.

    Parameters
    ----------
    estimator : estimator
        A fitted cost-aware estimator, a pipeline that ends with one, or a search over one
        of these.

    X : array-like of shape (n_samples, n_features)
        Rows that the estimator has not been fitted on.

    y : array-like of shape (n_samples,) or (n_samples, n_columns)
        True labels, an indicator matrix for multi-label predictions, or, for an estimator
        that only routes, the quality of each choice on each row, a frame's columns by name;
        rows on which that of the choice made is NaN, not known, do not count in the mean.

    budgets : array-like of shape (n_budgets,)
        Mean costs per sample, in the unit of the estimator's costs; None is unlimited.

    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each row in the means. None weights all alike.

    row_quality : callable, default=None
        Called as ``row_quality(y, y_pred)``, returns the quality of each row, shape
        (n_samples,), higher is better. None takes the estimator's own `quality`; without one, by
        the shapes: :func:`sample_quality`, or the quality of the choice made. A row that
        abstains instead of being answered counts as the estimator's ``abstain_quality_``.

    **params : keyword arguments
        Further arguments of ``predict_routed``, for example ``costs`` of each row for
        :class:`~skroute.routing.BudgetRouter` where they are known before the call.

    Returns
    -------
    :class:`AccuracyCostCurve`

    Raises
    ------
    ValueError
        If a budget is not feasible, with the smallest feasible one; or if `y` does not go with the
        predictions.
    TypeError
        If `estimator` is not cost-aware.

    See Also
    --------
    AccuracyCostDisplay : Draws this curve.
    reference_curves : Oracle, random mix and best single model over the same budgets.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.datasets import make_routing_problem
    >>> from skroute.metrics import accuracy_cost_curve
    >>> from skroute.routing import BudgetRouter
    >>> problem = make_routing_problem(600, n_models=2, n_features=2, random_state=0)
    >>> X, Q = problem.data, problem.quality
    >>> router = BudgetRouter(Ridge(), costs=problem.costs, budget=0.5).fit(X[:300], Q[:300])
    >>> curve = accuracy_cost_curve(router, X[300:], Q[300:], budgets=[0.1, 0.5])
    >>> curve.cost.round(2), curve.quality.round(2)
    (array([0.1, 0.5]), array([0.67, 0.77]))
    >>> curve.route_share.round(2)
    array([[1.  , 0.  ],
           [0.56, 0.44]])
    """
    limits = check_budgets(budgets)
    return Walk(estimator, X, y, row_quality, sample_weight, **params).curve(limits)


class RiskCoverageCurve(NamedTuple):
    """See :func:`risk_coverage_curve`."""

    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    area: float


def risk_coverage_curve(
    loss: ArrayLike, confidence: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> RiskCoverageCurve:
    """Risk against coverage, if the least confident rows abstain first.

    Parameters
    ----------
    loss : array-like of shape (n_samples,)
        What each answer loses, such as 1 for a wrong one.

    confidence : array-like of shape (n_samples,)
        By which rows are ranked, such as ``predict_quality`` of a
        :class:`~skroute.routing.CascadeRouter`. Equal ones abstain together.

    sample_weight : array-like of shape (n_samples,), default=None
        Sample weights.

    Returns
    -------
    RiskCoverageCurve
        Named tuple: ``coverage``, the share of the rows that are answered, rising to 1; ``risk``,
        their mean loss; ``thresholds``, the smallest confidence that is answered; and ``area``,
        the mean risk over all coverages, lower is better.

    Raises
    ------
    ValueError
        For numbers that are not finite, negative weights, or lengths that differ.

    References
    ----------
    .. [1] Y. Geifman, R. El-Yaniv, "Selective Classification for Deep Neural Networks",
       NeurIPS 2017.

    Examples
    --------
    >>> from skroute.metrics import risk_coverage_curve
    >>> curve = risk_coverage_curve([0, 1, 0, 1], [0.9, 0.6, 0.8, 0.2])
    >>> curve.coverage.tolist(), curve.risk.round(2).tolist()
    ([0.25, 0.5, 0.75, 1.0], [0.0, 0.0, 0.33, 0.5])
    """
    check_rows_match(loss=loss, confidence=confidence, sample_weight=sample_weight)
    lost = check_numbers(loss, "loss", shape=(None,))
    rank = check_numbers(confidence, "confidence", shape=lost.shape)
    weight = check_row_weights(sample_weight, len(lost))
    steps, step = np.unique(-rank, return_inverse=True)
    weights, losses = np.bincount(step, weight), np.bincount(step, weight * lost)
    # Rows without weight make no point of their own.
    keep = weights > 0
    total = np.cumsum(weights[keep])
    coverage, risk = total / total[-1], np.cumsum(losses[keep]) / total
    area = np.diff(coverage, prepend=0.0) @ risk
    return RiskCoverageCurve(coverage, risk, -steps[keep], float(area))


def risk_coverage_scorer(estimator: Any, X: Any, y: Any, **params: Any) -> float:
    """Scorer: minus the area under the risk-coverage curve of a fitted estimator.

    Rows are ranked by the estimated quality of their answer, ``predict_quality``, of an
    estimator that routes; else by the largest of ``predict_proba``.

    Parameters
    ----------
    estimator, X, y
        As in :func:`accuracy_cost_curve`. Rows that abstain are left out.

    **params : keyword arguments
        ``sample_weight``, ``budget`` and further arguments of ``predict_routed``.

    Returns
    -------
    float
        Higher is better, at most 0 where no quality is above 1. The loss of an answer is one
        less its quality, or minus its quality by a `quality` of the estimator other than accuracy.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.metrics import risk_coverage_scorer
    >>> from skroute.routing import CascadeRouter
    >>> rng = np.random.default_rng(0)
    >>> sure = rng.uniform(size=400)
    >>> Q = np.column_stack([sure > rng.uniform(size=400), rng.uniform(size=400) < 0.9])
    >>> router = CascadeRouter(costs={"small": 1, "large": 10})
    >>> router = router.fit(None, Q, signals={"small": sure})
    >>> cheap = risk_coverage_scorer(router, None, Q, signals={"small": sure}, budget=1)
    >>> bool(-0.35 < cheap < -0.1)
    True
    """
    budget = params.pop("budget", None)
    walk = Walk(estimator, X, y, **params)
    router, call = walk.router, {"budget": budget, **walk.call}
    quality, route, _ = walk.at(budget)
    rows = np.flatnonzero(~abstained(router, route))
    if not len(rows):
        return 0.0
    if hasattr(router, "predict_proba"):
        confidence = router.predict_proba(walk.X, **call)[rows].max(axis=1)
    elif hasattr(router, "model_names_"):
        confidence = router.predict_quality(walk.X, **call)[rows]
    elif hasattr(router, "predict_quality"):
        # Of each choice, whatever is bought.
        confidence = router.predict_quality(walk.X)[rows, route[rows]]
    else:
        raise TypeError(
            "estimator must have predict_quality or predict_proba to rank its answers by, which "
            f"{type(router).__name__} has not."
        )
    best = 1.0 if walk.worth.name == "accuracy" else 0.0
    loss, weight = best - quality[rows], walk.weight[rows]
    return -risk_coverage_curve(loss, confidence, sample_weight=weight).area
