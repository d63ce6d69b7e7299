"""The rows of a report: what was decided of each at every budget, and what each choice is worth."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length

from skroute.metrics._curve import AccuracyCostCurve, _quality_or_handed, quality_name
from skroute.utils._calls import takes
from skroute.utils._compat import num_samples
from skroute.utils._handing import is_handing


class DecisionTable(NamedTuple):
    """Decisions about some rows at every budget, from models that were asked once.

    Attributes
    ----------
    budget : ndarray of shape (n_budgets,)
        Rising; the last one may be infinite.
    choices : list of str
        What `route` indexes.
    route : ndarray of shape (n_rows, n_budgets), dtype=int32
    cost, quality : ndarray of shape (n_rows, n_budgets)
        As ``predict_cost``, and of the answer given.
    singles : list of str
        What may answer every row without a decision.
    single_quality : ndarray of shape (n_rows, n_singles)
    single_costs : ndarray of shape (n_singles,) or (n_rows, n_singles)
    estimates : ndarray of shape (n_rows, n_choices) or None
        Of quality, less the penalty, by which rows are decided.
    planned : ndarray of shape (n_rows, n_choices) or None
        Costs by which rows are decided.
    price : ndarray of shape (n_budgets,) or None
        What one unit of cost must bring in quality, where rows are decided one by one.
    """

    budget: NDArray[np.float64]
    choices: list[str]
    route: NDArray[np.int32]
    cost: NDArray[np.float64]
    quality: NDArray[np.float64]
    singles: list[str]
    single_quality: NDArray[np.float64]
    single_costs: NDArray[np.float64]
    estimates: Any = None
    planned: Any = None
    price: Any = None

    def curve(self):
        """The same as an `AccuracyCostCurve`."""
        n, n_choices = len(self.route), len(self.choices)
        share = [np.bincount(column, minlength=n_choices) / n for column in self.route.T]
        return AccuracyCostCurve(
            self.budget,
            self.quality.mean(axis=0),
            self.cost.mean(axis=0),
            np.array(share),
            self.choices,
            self.quality,
            self.cost,
        )


def decision_table(router, X, y, budgets, **call):
    """The table of a decision estimator: one pass for each budget.

    Single plans beside it are the choices of a router that decides by estimates of each, else
    the cheapest plan and the unlimited one: what can be had without deciding between them.
    """
    check_consistent_length(X, y)
    n, own = num_samples(X), quality_name(router) is not None
    if takes(router, "y_true"):
        call = {"y_true": y, **call}

    def ask(budget, **more):
        if own:
            given = {name: part for name, part in (call | more).items() if name != "y_true"}
            return router.row_quality(X, y, None, budget, **given)
        y_pred, route, cost = router.predict_routed(X, budget=budget, **call, **more)
        return _quality_or_handed(router, y, y_pred, route, None), route, cost

    found = [ask(budget) for budget in np.asarray(budgets).tolist()]
    quality, route, cost = (np.column_stack(part).reshape(n, -1) for part in zip(*found))
    check_known(quality)
    choices = list(map(str, router.choices_))
    table = DecisionTable(
        np.asarray(budgets, dtype=np.float64),
        choices,
        route.astype(np.int32),
        cost.astype(np.float64),
        quality.astype(np.float64),
        ["cheapest plan", "most expensive plan"],
        quality[:, [0, -1]].astype(np.float64),
        cost[:, [0, -1]].astype(np.float64),
    )
    policy = router._policy() if hasattr(router, "_policy") else None
    if policy is None or policy.planned.shape[-1] != len(choices):
        return table
    only = np.eye(len(choices), dtype=bool)[:, np.newaxis].repeat(n, axis=1)
    singles = np.column_stack([ask(np.inf, allowed=mask)[0] for mask in only])
    check_known(singles)
    costs = np.column_stack(
        [
            np.zeros(n) if is_handing(name) else router._alone(X, name, None, **call).cost
            for name in choices
        ]
    )
    of_rows = policy.per_row or "costs" in call
    prices = [router._policy_at(budget).rule(budget).price for budget in table.budget.tolist()]
    return table._replace(
        singles=choices,
        single_quality=singles,
        single_costs=costs if of_rows else costs[0],
        estimates=router.predict_quality(X) - policy.penalty,
        planned=costs if of_rows else np.broadcast_to(policy.planned, costs.shape),
        price=np.array(prices) if router.policy == "online" else None,
    )


def check_known(quality):
    """Refuse rows of which not all is known."""
    if lacking := int(np.isnan(quality).any(axis=1).sum()):
        raise ValueError(
            f"y has NaN, not known, in {lacking} of {len(quality)} rows: baselines and oracle need "
            "all outcomes. Give the rows on which all are known, ~np.isnan(y).any(axis=1)."
        )
