"""What a report needs of a router with a price: every member is asked once about every row."""

import numpy as np
from sklearn.utils import check_consistent_length

from skroute.base import check_affordable
from skroute.metrics._report import ReportMixin
from skroute.metrics._report_table import DecisionTable, check_known, no_mean
from skroute.routing._draws import tie_draws
from skroute.routing._fit_tables import check_matrix
from skroute.utils._compat import num_samples


class ReportTablesMixin(ReportMixin):
    """Mixin for routers with one `PricedPolicy`, whose path is walked over stored estimates."""

    def _report_table(self, X, y, budgets, costs=None):
        """As `table_in_passes`, without asking anything twice (`DecisionTable`)."""
        check_consistent_length(X, y)
        of_members = hasattr(self, "estimators_")
        if of_members and self._objective().ratio:
            raise no_mean(self)
        known = self._encoded(y) if of_members else self._known_quality(y)
        check_affordable(float(np.min(budgets)), self._policy_at(float(np.min(budgets))).least)
        return self._table_of_rows(self._check_X(X), known, budgets, costs)

    def _known_quality(self, y):
        """Quality of each model of a router of tables."""
        names, at = self._columns_in(y)
        quality = check_matrix(y, "y", names if self._named else None, allow_nan=True)
        if quality.shape[1] != len(names):
            raise ValueError(
                f"y must have the {len(names)} columns that fit saw, got {quality.shape[1]}."
            )
        check_known(quality[:, at])
        return quality[:, at]

    def _table_of_rows(self, rows, known, budgets, costs):
        policy, n = self._policy_at(np.inf), num_samples(rows)
        estimates, state = self._estimated(rows, policy)
        told = costs is not None
        planned = self._row_costs(rows, costs) if policy.per_row or told else None
        draw, plans, price = tie_draws(rows), [], []
        for budget in np.asarray(budgets).tolist():
            now = self._policy_at(budget)
            plan = now.decide(
                estimates - now.docked,
                now.planned if planned is None else planned,
                budget,
                policy=self.policy,
                objective=getattr(self, "objective", "mean"),
                told=told,
                draw=draw,
            )
            plans.append(plan)
            price.append(now.price(budget))
        route = np.column_stack([plan.route for plan in plans])
        quality = known
        if hasattr(self, "estimators_"):
            quality = self._quality_of_members(rows, known, state or {})
        if self.abstain_quality_ is not None:
            quality = np.column_stack([quality, np.full(n, self.abstain_quality_)])
        one_by_one = self.policy == "online" and getattr(self, "objective", "mean") == "mean"
        decided_by = policy.planned if planned is None else planned
        return DecisionTable(
            np.asarray(budgets, dtype=np.float64),
            list(map(str, self.choices_)),
            route.astype(np.int32),
            np.column_stack([plan.cost for plan in plans]),
            quality[np.arange(n)[:, np.newaxis], route],
            list(map(str, self.choices_)),
            quality,
            np.asarray(self.costs_ if planned is None else planned, dtype=np.float64),
            estimates - policy.docked,
            np.broadcast_to(decided_by, quality.shape),
            np.array(price) if one_by_one else None,
        )

    def _quality_of_members(self, rows, target, state):
        """Quality of each member's answer to each row."""
        objective, columns = self._objective(), []
        every = np.arange(num_samples(rows))
        for at in range(len(self.estimators_)):
            answers = state.get((at, objective.asks))
            if answers is None:
                answers = self._answers_of_member(rows, at, objective.asks, every)
            columns.append(objective.rows(target, answers))
        return np.column_stack(columns)
