"""The policy of a router, for the requests of a stream."""

from skroute.base import RequestEstimates, RequestPolicy


class PricedRequests(RequestPolicy):
    """Requests that are decided by the estimates and the dual price of a policy.

    Parameters
    ----------
    policy : Policy
        The policy of the choices that are offered.

    positions : ndarray of int of shape (n_offered,)
        These choices, as indices into ``choices_``.

    look : callable
        ``look(X, positions)`` returns what the quality estimator reads, and what
        deciding has paid for (`Look`).

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
        look,
        excludable,
        asked_first,
        cost_estimator=None,
        quotes_costs=False,
    ):
        # None: each request has costs of its own. The costs of a policy per row belong
        # to the rows of `fit`.
        costs = None if policy.per_row else policy.planned
        super().__init__(
            positions,
            costs,
            deciding_cost=policy.deciding,
            smallest_budget=policy.least,
            penalty=policy.penalty,
            excludable=excludable,
            asked_first=asked_first,
            estimates_costs=cost_estimator is not None,
            quotes_costs=quotes_costs,
        )
        self.policy = policy
        self._look = look
        self._cost_estimator = cost_estimator

    def price_at(self, budget):
        """Return the dual price of a mean budget per request."""
        return self.policy.rule(budget).price

    def estimate(self, X):
        """Estimate the quality of the choices that are offered."""
        look = self._look(X, self.positions)
        quality = self.policy.estimates(look.features)
        return RequestEstimates(quality, look.state, look.answers)

    def estimate_costs(self, X):
        """Estimate the costs of the choices that are offered, (n_rows, n_offered)."""
        return self._cost_estimator(X)[:, self.positions]
