"""Dual prices of a stream's limits, such as seconds per request, next to its budget."""

import numpy as np

# Number of requests after which the prices are computed again. This takes 0.2 ms, thus
# 0.04 ms per request. The amounts that are left hardly change within 5 requests.
_REQUESTS_PER_UPDATE = 5
# Prices are computed for the mean amount that is left per request. It is clipped to
# these multiples of the limit, since the log shows little about means far from it. The
# two values are set by hand.
_LEAST_LEFT = 0.5
_MOST_LEFT = 2.0


class LimitUse:
    """Amounts that the requests of a stream have used, by limit.

    A decision counts with the mean amount of its choice until the real one is known.
    Only requests of this process are counted.

    Attributes
    ----------
    n_requests : int
        Number of requests, without the requests whose call failed.
    totals : dict from str to float
        By limit, the sum of its amount over these requests.
    """

    def __init__(self):
        self.n_requests = 0
        self.totals = {}
        # Mean amounts of the decisions that are not settled: by the number of the
        # ticket, a dict by limit.
        self._open = {}

    def start(self, number, amounts):
        """Count a decision with the mean amounts of its choice.

        Nothing is counted a second time if the ticket is already open.

        Parameters
        ----------
        number : int
            Number of the ticket.
        amounts : dict from str to float
            Mean amounts of the choice by limit.
        """
        if number in self._open:
            return
        self._open[number] = amounts
        self.n_requests += 1
        self._add(amounts, sign=1)

    def settle(self, number, amounts):
        """Replace the mean amounts of a ticket by the real amounts of its call.

        A ticket that is not open is ignored.

        Parameters
        ----------
        number : int
            Number of the ticket.
        amounts : dict from str to float
            Real amounts by limit. For a limit that is left out, the mean stays counted.
        """
        mean_amounts = self._open.pop(number, None)
        if mean_amounts is None:  # unknown number
            return
        real_amounts = {name: amounts[name] for name in mean_amounts if name in amounts}
        replaced_means = {name: mean_amounts[name] for name in real_amounts}
        self._add(replaced_means, sign=-1)
        self._add(real_amounts, sign=1)

    def cancel(self, number):
        """Subtract the amounts of a ticket whose call failed, if it is open.

        `number` is the number of the ticket.
        """
        mean_amounts = self._open.pop(number, None)
        if mean_amounts is None:  # unknown number
            return
        self.n_requests -= 1
        self._add(mean_amounts, sign=-1)

    def _add(self, amounts, *, sign):
        """Add amounts by limit to the totals, or subtract them if `sign` is -1."""
        for name, amount in amounts.items():
            self.totals[name] = self.totals.get(name, 0.0) + sign * amount


class LimitPacer:
    """Prices by which a stream decides, so that its limits hold over all requests.

    Parameters
    ----------
    policy : Policy
        Its `limits` are not None.
    mean : float
        Mean budget per request. The cost of deciding is paid from it. Infinity is no
        budget.
    choices : list of str
        Names of the choices of the policy.

    Attributes
    ----------
    names : list of str
        Names of the limits, without the budget.
    """

    def __init__(self, policy, mean, choices):
        rule = policy.limit_rule(mean)
        # Names and sizes of all limits, the budget included, in the order of `_prices`.
        order = rule.order
        self._rule = rule
        self._deciding = policy.deciding_cost  # cost of deciding on a request
        # If there is a budget, it is the limit at position 0. The others begin at 1.
        self._position_after_budget = int(order.has_budget)
        self.names = order.names[self._position_after_budget :]
        # Largest mean per request under each limit, (n_limits,). For the budget, it is
        # the budget minus the cost of deciding.
        self._largest_means = order.most
        # A call of a choice takes 1 of the capacity of this choice, and 0 of others:
        # (n_capacities, n_choices)
        uses_capacity = np.arange(len(choices)) == order.capacity_choice[:, np.newaxis]
        # Mean amounts of each choice, such as seconds: (n_limited_amounts, n_choices)
        planned = policy.amount_tables.planned[order.amount_positions]
        # One row for each limit except the budget.
        self._amounts = np.vstack([planned, uses_capacity.astype(np.float64)])
        # The limits are on realised amounts, but `prices_by_cuts` takes limits on
        # planned amounts. `update_prices` adds this difference of means, (n_limits,).
        planned_means = _planned_means(rule)
        realised_means = rule.dual.realised_means(rule.prices)
        self._planned_excess = planned_means - realised_means
        self._prices = rule.prices.prices  # of all limits, the budget included

    def amounts_of(self, position):
        """Return the mean amount of a choice under each limit, a dict by limit.

        `position` is the position of the choice in the policy.
        """
        return dict(zip(self.names, self._amounts[:, position].tolist()))

    @property
    def charges(self):
        """Price times amount of each choice, summed over the limits, a list of float.

        The budget is not among these limits.
        """
        return (self._prices[self._position_after_budget :] @ self._amounts).tolist()

    @property
    def budget_price(self):
        """Price of one unit of cost, a float.

        It is the smallest price of the cost (`LimitRule.price_floor`), plus the price
        of the budget if there is a budget.
        """
        price = self._rule.price_floor
        if self._rule.order.has_budget:
            # The budget is the first limit.
            price += float(self._prices[0])
        return price

    def is_update_due(self, use):
        """Return True if `update_prices` must be called before the next request.

        `use` are the amounts that the requests so far have used (`LimitUse`).
        """
        return use.n_requests % _REQUESTS_PER_UPDATE == 0

    def update_prices(self, books, use):
        """Compute the prices of all limits from the amounts that are left.

        Parameters
        ----------
        books : Books
            Money and counts of the stream. If `n_expected` is None, the number of
            requests to come is unknown, and the prices do not change.
        use : LimitUse
            Amounts that the requests so far have used. Without requests, the prices
            that were learned from the log are set.
        """
        if books.n_expected is None:
            return
        if not use.n_requests:
            self._prices = self._rule.prices.prices
            return
        # If more requests than expected have come, the present one is the last.
        n_left = max(books.n_expected - books.n_started, 1)
        n_before = books.n_expected - n_left
        # Mean amount that each limit leaves for a request to come: (n_limits,)
        means_left = np.empty(len(self._largest_means))
        if self._rule.order.has_budget:
            money_left = books.total - books.spent - books.pending
            # The budget is the first limit.
            means_left[0] = money_left / n_left - self._deciding
        for position, name in enumerate(self.names, start=self._position_after_budget):
            # `use` has only the requests of this process. Requests of other processes
            # are assumed to have the same mean amount.
            mean_so_far = use.totals.get(name, 0.0) / use.n_requests
            total = self._largest_means[position] * books.n_expected
            amount_left = total - mean_so_far * n_before
            means_left[position] = amount_left / n_left
        smallest_left = _LEAST_LEFT * self._largest_means
        largest_left = _MOST_LEFT * self._largest_means
        means_left = np.clip(means_left, smallest_left, largest_left)
        planned_left = means_left + self._planned_excess
        self._prices = self._rule.dual.prices_by_cuts(planned_left).prices


def _planned_means(rule):
    """Return the mean planned amount per row of the log under each limit.

    Parameters
    ----------
    rule : LimitRule

    Returns
    -------
    ndarray of shape (n_limits,)
        At the prices of the rule, the decisions are a mixture of plans. These are the
        means of the mixture.
    """
    means_of_plans = []  # for each plan, an array (n_limits,)
    for prices_of_plan in rule.prices.points:
        plan = rule.dual.plan_at(prices_of_plan)
        _, means_of_limits = rule.dual.means_of(plan)
        means_of_plans.append(means_of_limits)
    return rule.prices.shares @ np.array(means_of_plans)
