"""Decisions on the requests of a stream by the `Policy` of a router."""

from collections.abc import Callable, Sequence

from skroute.base import RequestEstimates, RequestPolicy


class PricedRequests(RequestPolicy):
    """Decisions on requests by the estimates of quality and the dual price of a policy.

    Parameters
    ----------
    policy : Policy
        It has the choices that are offered, and no others.

    positions : ndarray of int of shape (n_offered,)
        The choices that are offered, as indices into ``choices_``.

    compute_inputs : callable
        ``compute_inputs(X, positions)`` returns what the quality estimator reads, and
        the answers that deciding has paid for (`DecisionInputs`).

    excludable, asked_first : sequence of str
        As in :class:`~skroute.base.RequestPolicy`.

    cost_estimator : callable, default=None
        ``cost_estimator(X)`` returns estimated costs of all choices, shape (n_rows,
        n_choices). None: costs are fixed, or each request comes with its costs.

    quotes_costs : bool, default=False
        As in :class:`~skroute.base.RequestPolicy`.
    """

    def __init__(
        self,
        policy,
        positions,
        *,
        compute_inputs,
        excludable: Sequence[str],
        asked_first: Sequence[str],
        cost_estimator: Callable | None = None,
        quotes_costs: bool = False,
    ):
        # If costs differ by row, those of the policy belong to the rows of `fit`. None:
        # each request comes with its own costs, or they are estimated.
        costs = None if policy.has_row_costs else policy.planned
        super().__init__(
            positions,
            costs,
            deciding_cost=policy.deciding_cost,
            smallest_budget=policy.least,
            penalty=policy.penalty,
            excludable=excludable,
            asked_first=asked_first,
            estimates_costs=cost_estimator is not None,
            quotes_costs=quotes_costs,
        )
        self.policy = policy
        self._compute_inputs = compute_inputs
        self._cost_estimator = cost_estimator

    def price_at(self, budget):
        """Return the dual price of a mean budget per request."""
        return self.policy.rule(budget).price

    def estimate(self, X):
        """Estimate the quality of the choices at `positions` (`RequestEstimates`)."""
        inputs = self._compute_inputs(X, self.positions)
        quality = self.policy.estimates(inputs.features)
        return RequestEstimates(quality, inputs.state, inputs.answers)

    def estimate_costs(self, X):
        """Estimate the costs of the choices at `positions`, (n_rows, n_offered)."""
        return self._cost_estimator(X)[:, self.positions]
