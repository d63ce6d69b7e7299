"""Rules on a curve: what they cost, what they bring, and which to mix for a budget."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skroute.assignment import assignment_path, choose_at_price
from skroute.base import affords
from skroute.routing._draws import row_uniforms
from skroute.utils._compat import num_samples


class Mixture(NamedTuple):
    """Rules none of which is beaten by a mixture of others, by rising cost.

    Attributes
    ----------
    cost : ndarray of shape (n_rules,)
        Mean cost of each, rising.

    quality : ndarray of shape (n_rules,)
        Mean quality of each, rising.
    """

    cost: NDArray[np.float64]
    quality: NDArray[np.float64]

    def share(self, budget):
        """Two neighbouring rules and how often to take the more expensive one.

        Parameters
        ----------
        budget : float
            Mean cost that the mixture should have.

        Returns
        -------
        low, high : int
            Positions; the same where one rule alone is best.
        share : float
            Share of rows for `high`, so that the mean cost is the budget.
        """
        low = max(int(np.count_nonzero(affords(budget, self.cost))) - 1, 0)
        if low == len(self.cost) - 1:
            return low, low, 0.0
        share = (budget - self.cost[low]) / (self.cost[low + 1] - self.cost[low])
        return low, low + 1, float(min(max(share, 0.0), 1.0))

    def draw(self, X, budget):
        """For each row the position of the rule that it follows."""
        low, high, share = self.share(budget)
        rule = np.full(num_samples(X), low, dtype=np.int64)
        if share > 0:
            rule[row_uniforms(X, 1)[:, 0] < share] = high
        return rule

    def quality_at(self, budget):
        """Mean quality of the mixture for a budget."""
        return float(np.interp(budget, self.cost, self.quality))


def best_mixture(cost, quality):
    """The rules that are worth mixing, from the cheapest to the best one.

    Parameters
    ----------
    cost, quality : array-like of shape (n_rules,)

    Returns
    -------
    mixture : Mixture
    kept : ndarray of shape (n_kept,), dtype=int64
        Which of the rules given these are.
    """
    cost, quality = np.asarray(cost, dtype=np.float64), np.asarray(quality, dtype=np.float64)
    # A problem of one row whose choices are the rules: its plans are the hull.
    values = quality[np.newaxis]
    path = assignment_path(values, cost)
    kept = np.array([choose_at_price(values, cost, price)[0] for price in path.prices])
    return Mixture(cost[kept], quality[kept]), kept


def docked_quality(cost, quality, simple, slack):
    """Mean quality of rules, less what may be luck where they beat mixtures of simple ones.

    Parameters
    ----------
    cost, quality : ndarray of shape (n_rules, n_rows)
        On rows that did not fit the rules.

    simple : ndarray of shape (n_rules,), dtype=bool
        Rules that are taken at their word.

    slack : float
        Standard errors that any other rule is docked, of the difference, row by row, to the
        mixture of simple rules that costs as much. Raising it takes simple rules more often.

    Returns
    -------
    ndarray of shape (n_rules,)
    """
    found, mean = quality.mean(axis=1), cost.mean(axis=1)
    mixture, kept = best_mixture(mean[simple], found[simple])
    kept = np.flatnonzero(simple)[kept]
    docked = found.copy()
    for rule in np.flatnonzero(~simple):
        low, high, share = mixture.share(mean[rule])
        price = 0.0
        if high > low:
            price = np.diff(mixture.quality)[low] / np.diff(mixture.cost)[low]
        gain = quality[rule] - price * cost[rule]
        for position, weight in ((low, 1 - share), (high, share)):
            other = kept[position]
            if weight:
                gain = gain - weight * (quality[other] - price * cost[other])
        docked[rule] -= slack * gain.std() / np.sqrt(len(gain))
    return docked


def best_of(quality, spent, rows):
    """Which of some policies to take: the best one or, within noise of it, one that spends less.

    What is best of several on validation rows is so by luck too, and one that needs more of the
    budget for it is no better on new rows.

    Parameters
    ----------
    quality, spent : ndarray of shape (n_policies,)
        Mean quality and mean cost.

    rows : sequence of ndarray of shape (n_rows,)
        Quality of each row under each policy, whose differences tell what noise is.

    Returns
    -------
    int
    """
    best = int(np.argmax(quality))
    found = best
    for other in np.flatnonzero(spent < 0.99 * spent[best]):
        noise = np.std(rows[best] - rows[other]) / np.sqrt(len(rows[best]))
        within = quality[best] - quality[other] <= noise
        if within and (found == best or quality[other] > quality[found]):
            found = int(other)
    return found


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


def spread_prices(path, n_prices, power=1.0):
    """Prices at evenly spaced budgets from the cheapest plan to the most expensive, falling.

    Parameters
    ----------
    path : AssignmentPath

    n_prices : int

    power : float, default=1.0
        Above 1 budgets lie closer at the cheap end.

    Returns
    -------
    ndarray of shape (at most n_prices,)
        Distinct; the last is 0.
    """
    low, high = path.budgets[[0, -1]]
    budgets = low + np.linspace(0, 1, n_prices) ** power * (high - low)
    # The last budget itself: no rounding.
    budgets[-1] = high
    return np.unique([path.price(budget) for budget in budgets])[::-1]


def reduced_budget(budget, fixed_cost, delta):
    """FrugalMCT, eq. 4.2: ``(1 - delta)`` of what the fixed cost leaves, and the fixed cost."""
    return fixed_cost + (1 - delta) * (budget - fixed_cost)


def search_delta(estimate, realised, costs, fixed_cost, budget):
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

    Returns
    -------
    float
    """
    n = len(estimate)
    if not np.isfinite(budget) or n < 4:
        return 0.0
    deltas = np.arange(10, -11, -1) * np.log(n) / n
    deltas = deltas[deltas <= 1]
    halves = np.array_split(np.random.default_rng(0).permutation(n), 2)
    cost, value = np.zeros(len(deltas)), np.zeros(len(deltas))
    for learn, check in (halves, halves[::-1]):
        path = assignment_path(estimate[learn], costs)
        prices = [path.price(reduced_budget(budget, fixed_cost, delta)) for delta in deltas]
        part = price_curve(estimate[check], realised[check], costs, prices)
        cost += part[0] * len(check) / n
        value += part[1] * len(check) / n
    allowed = affords(budget, cost)
    if not allowed.any():
        return float(deltas[0])
    return float(deltas[int(np.where(allowed, value, -np.inf).argmax())])
