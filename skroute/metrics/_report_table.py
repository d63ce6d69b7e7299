"""The rows of a report: what was decided of each at every budget, and what each choice is worth."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length

from skroute.metrics._curve import AccuracyCostCurve, _quality_or_handed, quality_name
from skroute.utils._compat import num_samples


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


def table_in_passes(router, X, y, budgets, **context):
    """The table of any decision estimator: one pass for each budget.

    The single plans beside it are the cheapest one and the unlimited one: what can be had
    without deciding between them, or with a coin.
    """
    check_consistent_length(X, y)
    n, own = num_samples(X), quality_name(router) is not None
    if "y_true" in router._call_context:
        context = {"y_true": y, **context}

    def ask(budget):
        if own:
            return router.row_quality(X, y, None, budget, **context)
        y_pred, route, cost = router.predict_routed(X, budget=budget, **context)
        return _quality_or_handed(router, y, y_pred, route, None), route, cost

    found = [ask(budget) for budget in np.asarray(budgets).tolist()]
    quality, route, cost = (np.column_stack(part).reshape(n, -1) for part in zip(*found))
    check_known(quality)
    ends = found[0], found[-1]
    return DecisionTable(
        np.asarray(budgets, dtype=np.float64),
        list(map(str, router.choices_)),
        route.astype(np.int32),
        cost.astype(np.float64),
        quality.astype(np.float64),
        ["cheapest plan", "most expensive plan"],
        np.column_stack([end[0] for end in ends]).astype(np.float64),
        np.column_stack([end[2] for end in ends]).astype(np.float64),
    )


def check_known(quality):
    """Refuse rows of which not all is known."""
    if lacking := int(np.isnan(quality).any(axis=1).sum()):
        raise ValueError(
            f"y has NaN, not known, in {lacking} of {len(quality)} rows: baselines and oracle need "
            "all outcomes. Give the rows on which all are known, ~np.isnan(y).any(axis=1)."
        )


def no_mean(router):
    """The error for a quality that cannot be added up over rows."""
    return ValueError(
        f"quality={quality_name(router)!r} is no mean over rows, so that a mix or an oracle of "
        "single rows has none: a report needs another quality. AccuracyCostDisplay draws the "
        "curve of this one."
    )
