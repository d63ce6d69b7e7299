"""Prices by which a stream keeps its limits: those next to its budget."""

import numpy as np

# Requests after which the prices are looked up again. A look-up takes 0.2 ms, and what
# is left hardly changes within some requests.
_REQUESTS_PER_LOOK = 5
# Range of the mean that is left per request, relative to the limit. Prices are computed
# from the log, which shows little about means far from the limits.
_LEAST_LEFT = 0.5
_MOST_LEFT = 2.0


class LimitUse:
    """Amounts that the requests of a stream have used, by limit.

    A decision counts with the mean amount of its choice until the real one is known.
    The counts are those of this process.

    Attributes
    ----------
    n_requests : int
        Number of requests, without those whose call failed.
    totals : dict from str to float
        Sum of each amount over these requests.
    """

    def __init__(self):
        self.n_requests = 0
        self.totals = {}
        # Amounts of the decisions that are not settled, by the number of the ticket.
        self._open = {}

    def start(self, number, amounts):
        """Count a decision. A number that is open already is the same decision.

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
        """Count real amounts in place of the means. Unknown numbers are ignored.

        Parameters
        ----------
        number : int
            Number of the ticket.
        amounts : dict from str to float
            Real amounts by limit. Those that are left out count with their means.
        """
        counted = self._open.pop(number, None)
        if counted is None:
            return
        real = {name: amounts[name] for name in counted if name in amounts}
        replaced = {name: counted[name] for name in real}
        self._add(replaced, sign=-1)
        self._add(real, sign=1)

    def cancel(self, number):
        """Take back a decision whose call failed. Unknown numbers are ignored."""
        counted = self._open.pop(number, None)
        if counted is None:
            return
        self.n_requests -= 1
        self._add(counted, sign=-1)

    def _add(self, amounts, *, sign):
        """Add amounts to the totals, or subtract them if `sign` is -1."""
        for name, amount in amounts.items():
            self.totals[name] = self.totals.get(name, 0.0) + sign * amount


class LimitPacer:
    """Prices by which a stream decides, so that its limits hold over all requests.

    Parameters
    ----------
    policy : Policy
        Its `limits` are not None.
    mean : float
        Mean budget per request, deciding included. Infinity is no budget.
    names : list of str
        Names of the choices of the policy.

    Attributes
    ----------
    names : list of str
        Names of the limits, without the budget.
    """

    def __init__(self, policy, mean, names):
        rule = policy.limit_rule(mean)
        order = rule.order
        self._rule = rule
        self._deciding = policy.deciding  # cost of deciding on a request
        # The budget, if there is one, is the limit at position 0.
        self._position_after_budget = int(order.has_budget)
        self.names = order.names[self._position_after_budget :]
        # Largest mean per request of each limit. That of the budget is what the cost of
        # deciding leaves of it.
        self._largest_means = order.most
        # Amounts of each choice under each limit but the budget: (n_limits, n_choices).
        # A call of a choice takes 1 of the capacity of this choice, and 0 of others.
        is_choice = np.arange(len(names)) == order.capacity_choice[:, np.newaxis]
        planned = policy.amount_tables.planned[order.amount_positions]
        self._amounts = np.vstack([planned, is_choice.astype(np.float64)])
        # Limits are on realised amounts. `prices_by_cuts` takes limits on planned
        # amounts. The planned means exceed the realised means by this: (n_limits,)
        planned_means = _planned_means(rule)
        realised_means = rule.dual.realised_means(rule.prices)
        self._planned_excess = planned_means - realised_means
        self._prices = rule.prices.prices  # of all limits, the budget included

    def amounts_of(self, position):
        """Return the mean amounts of a choice, by its position: a dict by limit."""
        return dict(zip(self.names, self._amounts[:, position].tolist()))

    @property
    def charges(self):
        """Price times amount of each choice, summed over the limits, a list of float.

        The budget is not among these limits.
        """
        return (self._prices[self._position_after_budget :] @ self._amounts).tolist()

    @property
    def budget_price(self):
        """Price of the cost: the floor, and the price of the budget if there is one."""
        price = self._rule.price_floor
        if self._rule.order.has_budget:
            price += float(self._prices[0])
        return price

    def needs_look(self, use):
        """Return True if the prices are to be looked up for the next request."""
        return use.n_requests % _REQUESTS_PER_LOOK == 0

    def look(self, books, use):
        """Set the prices of the limits by the amounts that are left.

        Parameters
        ----------
        books : Books
            Money and counts of the stream. If `n_expected` is None, it is not known
            what is left for a request, and the prices stay as they are.
        use : LimitUse
            Amounts that the requests so far have used. Without requests, the prices
            are those that were learned from the log.
        """
        if books.n_expected is None:
            return
        if not use.n_requests:
            self._prices = self._rule.prices.prices
            return
        # If more requests than expected have come, the present one is the last.
        n_left = max(books.n_expected - books.n_started, 1)
        n_before = books.n_expected - n_left
        # Mean that is left of each limit for the requests to come.
        means_left = np.empty(len(self._largest_means))
        if self._rule.order.has_budget:
            money_left = books.total - books.spent - books.pending
            # The budget is the first limit.
            means_left[0] = money_left / n_left - self._deciding
        for position, name in enumerate(self.names, start=self._position_after_budget):
            # Requests of other processes are taken to be like those of this one.
            mean_so_far = use.totals.get(name, 0.0) / use.n_requests
            total = self._largest_means[position] * books.n_expected
            means_left[position] = (total - mean_so_far * n_before) / n_left
        smallest_left = _LEAST_LEFT * self._largest_means
        largest_left = _MOST_LEFT * self._largest_means
        means_left = np.clip(means_left, smallest_left, largest_left)
        planned_left = means_left + self._planned_excess
        self._prices = self._rule.dual.prices_by_cuts(planned_left).prices


def _planned_means(rule):
    """Return the means of all limits in the log, by the amounts that decide.

    Parameters
    ----------
    rule : LimitRule

    Returns
    -------
    ndarray of shape (n_limits,)
        Means under the mixture of plans at the prices of the rule.
    """
    means_of_plans = []
    for prices_of_plan in rule.prices.points:
        plan = rule.dual.plan_at(prices_of_plan)
        _, means_of_limits = rule.dual.means_of(plan)
        means_of_plans.append(means_of_limits)
    return rule.prices.shares @ np.array(means_of_plans)
