"""Rows as the numbers that a router decides by: what it would do without them, and with others."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skroute.routing._draws import tie_draws
from skroute.utils._compat import num_samples


class RowTable(NamedTuple):
    """What a router with a price decides some rows by; nothing else of them is kept.

    Attributes
    ----------
    estimates : ndarray of shape (n_rows, n_choices)
        Of quality, before the penalty.
    planned : ndarray of shape (n_rows, n_choices) or None
        Costs that rows are decided by, where they differ from row to row.
    told : bool
        Whether these were said, and are no estimates.
    draws : ndarray of shape (n_rows,)
        Uniform numbers by which ties go.
    """

    estimates: NDArray[np.float64]
    planned: Any
    told: bool
    draws: NDArray[np.float64]


class RowTablesMixin:
    """Mixin for routers with one `PricedPolicy`, for what is promised about them."""

    def _has_bills(self):
        """Whether the budget is one of costs that are known only after calls."""
        return self._policy()._realised is not None

    def _single_costs(self, X, choice, costs=None):
        """What each row costs if one choice answers all, without a decision."""
        if self._policy().per_row:
            return self._row_costs(X, costs)[:, choice]
        return np.full(num_samples(X), float(self.costs_[choice]))

    def _row_table(self, X, costs=None, request_id=None):
        """The numbers of some rows (`RowTable`); None where deciding calls a member."""
        if getattr(self, "_embedder", None) is not None:
            return None
        policy = self._policy()
        return RowTable(
            self._estimated(X, policy)[0],
            self._row_costs(X, costs) if policy.per_row else None,
            costs is not None,
            tie_draws(X, request_id)(np.arange(num_samples(X))),
        )

    def _replan(self, table, budget, kept):
        """Routes and costs of the rows of a table where some choices are left, one by one."""
        policy = self._policy_at(budget).restricted(kept)
        plan = policy.decide(
            table.estimates[:, kept] - policy.docked,
            policy.planned if table.planned is None else table.planned[:, kept],
            budget,
            policy="online",
            told=table.told,
            draw=lambda tied: table.draws[tied],
        )
        return kept[plan.route], plan.cost

    def _range_of_budgets(self, kept):
        """The smallest and the largest budget that is of use, by the log."""
        policy = self._policy_at(np.inf).restricted(kept)
        return policy.least, max(float(policy.path.budgets[-1]) + policy.deciding, policy.least)
