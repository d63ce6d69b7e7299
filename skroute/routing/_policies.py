"""Policies on a curve: what they cost, what they bring, and which to mix for a budget."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skroute.assignment import assignment_path, choose_at_price


class PolicyHull(NamedTuple):
    """Policies none of which is beaten by a mixture of others, by rising cost.

    Attributes
    ----------
    cost : ndarray of shape (n_vertices,)
        Mean cost of each, rising.

    value : ndarray of shape (n_vertices,)
        Mean value of each, rising.

    policy : ndarray of shape (n_vertices,), dtype=int64
        Which of the policies given each is.
    """

    cost: NDArray[np.float64]
    value: NDArray[np.float64]
    policy: NDArray[np.int64]

    def mixture(self, budget):
        """Two neighbouring policies and how often to take the dearer one.

        Parameters
        ----------
        budget : float
            Mean cost that the mixture should have.

        Returns
        -------
        low, high : int
            Entries of `policy`; the same where one policy alone is best.
        share : float
            Share of rows for `high`, so that the mean cost is the budget.
        """
        at = int(np.searchsorted(self.cost, budget * (1 + 1e-12), side="right")) - 1
        at = max(at, 0)
        low = int(self.policy[at])
        if at == len(self.cost) - 1:
            return low, low, 0.0
        share = (budget - self.cost[at]) / (self.cost[at + 1] - self.cost[at])
        return low, int(self.policy[at + 1]), float(min(max(share, 0.0), 1.0))

    def value_at(self, budget):
        """Mean value of the mixture for a budget."""
        return float(np.interp(budget, self.cost, self.value))


def policy_hull(cost, value):
    """Upper concave hull of (cost, value), from the cheapest policy to the best one.

    Parameters
    ----------
    cost, value : ndarray of shape (n_policies,)

    Returns
    -------
    PolicyHull
    """
    cost, value = np.asarray(cost, dtype=np.float64), np.asarray(value, dtype=np.float64)
    kept: list[int] = []
    for i in np.lexsort((-value, cost)):
        if kept and value[i] <= value[kept[-1]]:
            continue
        # Monotone chain: drop what lies under the line from before it to the new point.
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            rise = (value[b] - value[a]) * (cost[i] - cost[a])
            if rise > (value[i] - value[a]) * (cost[b] - cost[a]):
                break
            kept.pop()
        kept.append(int(i))
    policy = np.array(kept, dtype=np.int64)
    return PolicyHull(cost[policy], value[policy], policy)


def price_curve(estimate, realised, costs, prices):
    """Mean cost and mean realised value of ``argmax estimate - price * costs``.

    Parameters
    ----------
    estimate : ndarray of shape (n_rows, n_choices)
        Out-of-sample estimates, by which rows are decided.

    realised : ndarray of shape (n_rows, n_choices)
        What each choice is in truth worth.

    costs : ndarray of shape (n_choices,)

    prices : sequence of float of length n_prices

    Returns
    -------
    cost : ndarray of shape (n_prices,)
    value : ndarray of shape (n_prices,)
    """
    rows = np.arange(len(estimate))
    cost, value = np.empty(len(prices)), np.empty(len(prices))
    for j, price in enumerate(prices):
        choice = choose_at_price(estimate, costs, price)
        cost[j] = costs[choice].mean()
        value[j] = realised[rows, choice].mean()
    return cost, value


def spread_prices(path, n_prices):
    """Prices at evenly spaced budgets from the cheapest plan to the dearest, falling.

    Parameters
    ----------
    path : AssignmentPath

    n_prices : int

    Returns
    -------
    ndarray of shape (at most n_prices,)
        Distinct; the last is 0.
    """
    budgets = np.linspace(path.budgets[0], path.budgets[-1], n_prices)
    return np.unique([path.price(budget) for budget in budgets])[::-1]


def reduced_budget(budget, fixed_cost, delta):
    """FrugalMCT, eq. 4.2: ``(1 - delta)`` of what the fixed cost leaves, and the fixed cost."""
    return fixed_cost + (1 - delta) * (budget - fixed_cost)


def search_delta(estimate, realised, costs, fixed_cost, budget, seed=0):
    """Delta among ``alpha * log(N) / N``, alpha in -10, ..., 10, on validation rows.

    The price is learned on one half of the rows and met on the other, and the other way
    round. Of the deltas that keep the budget on average the one with the best value is
    taken; where none does, the largest.

    Parameters
    ----------
    estimate, realised : ndarray of shape (n_rows, n_choices)
        Out-of-sample estimates and what each choice is in truth worth.

    costs : ndarray of shape (n_choices,)
        `fixed_cost` included.

    fixed_cost : float
        Cost of the base.

    budget : float

    seed : int, default=0
        Of the halves.

    Returns
    -------
    float
    """
    n = len(estimate)
    if not np.isfinite(budget) or n < 4:
        return 0.0
    deltas = np.arange(10, -11, -1) * np.log(n) / n
    deltas = deltas[deltas <= 1]
    halves = np.array_split(np.random.default_rng(seed).permutation(n), 2)
    cost, value = np.zeros(len(deltas)), np.zeros(len(deltas))
    for learn, check in (halves, halves[::-1]):
        path = assignment_path(estimate[learn], costs)
        prices = [path.price(reduced_budget(budget, fixed_cost, delta)) for delta in deltas]
        part = price_curve(estimate[check], realised[check], costs, prices)
        cost += part[0] * len(check) / n
        value += part[1] * len(check) / n
    allowed = cost <= budget * (1 + 1e-12)
    if not allowed.any():
        return float(deltas[0])
    return float(deltas[int(np.where(allowed, value, -np.inf).argmax())])
