"""Rules on a curve of cost and quality: which are worth mixing, and what a budget mixes."""

from typing import NamedTuple

import numpy as np

from skroute.assignment import assignment_path, choose_at_price
from skroute.base import affords
from skroute.routing.parts._estimates import rows_and_others
from skroute.routing.parts._policy import Validated, last_useful
from skroute.utils._compat import num_samples
from skroute.utils._row_hash import row_uniforms
from skroute.utils._statistics import standard_error
from skroute.utils._typing import NDArray


class Mixture(NamedTuple):
    """Rules by rising cost; a budget mixes two neighbours.

    Attributes
    ----------
    cost : ndarray of shape (n_rules,)
        Mean cost of each rule.

    quality : ndarray of shape (n_rules,)
        Mean quality of each rule.
    """

    cost: NDArray[np.float64]
    quality: NDArray[np.float64]

    def n_within(self, budget):
        """Return the number of rules that cost at most a budget, at least the cheapest one."""
        return max(int(np.count_nonzero(affords(budget, self.cost))), 1)

    def up_to(self, budget):
        """Return the mixture of the rules that cost at most a budget."""
        n_rules = self.n_within(budget)
        return Mixture(self.cost[:n_rules], self.quality[:n_rules])

    def mean_at(self, budget, table):
        """Return the mean over the two rules of a budget of a table (n_rules, n_rows)."""
        low, high, share = self.share(budget)
        return (1 - share) * table[low] + share * table[high]

    def share(self, budget):
        """Two neighbouring rules, and the share of rows that takes the more expensive one."""
        low = self.n_within(budget) - 1
        if low == len(self.cost) - 1:
            return low, low, 0.0
        share = (budget - self.cost[low]) / (self.cost[low + 1] - self.cost[low])
        return low, low + 1, float(min(max(share, 0.0), 1.0))

    def draw(self, X, budget, request_id=None):
        """For each row the position of the rule that it follows."""
        low, high, share = self.share(budget)
        rule = np.full(num_samples(X), low, dtype=np.int64)
        if share > 0:
            rule[row_uniforms(X, 1, request_id=request_id)[:, 0] < share] = high
        return rule

    def quality_at(self, budget):
        """Mean quality of the mixture for a budget."""
        return float(np.interp(budget, self.cost, self.quality))


def best_mixture(cost, quality):
    """The mixture of the rules on the upper hull, from the cheapest to the best, and which."""
    cost, quality = (
        np.asarray(cost, dtype=np.float64),
        np.asarray(quality, dtype=np.float64),
    )
    # A problem of one row whose choices are the rules: its plans are the hull.
    values = quality[np.newaxis]
    path = assignment_path(values, cost)
    kept = np.array([choose_at_price(values, cost, price)[0] for price in path.prices])
    return Mixture(cost[kept], quality[kept]), kept


def useful_rules(quality, part=None):
    """Return the positions of the rules that held-out rows show to be worth their cost.

    Parameters
    ----------
    quality : ndarray of shape (n_rules, n_rows)
        Quality of each held-out row under each rule, from the cheapest rule to the most
        expensive one.
    part : ndarray of shape (n_rows,), default=None
        Fold of each row.

    Returns
    -------
    ndarray of int
        The cheapest rule, then each rule that is better than all cheaper ones, up to the last
        that is better beyond noise (`last_useful`).
    """
    means = quality[: last_useful(quality, part) + 1].mean(axis=1)
    before = np.maximum.accumulate(np.r_[-np.inf, means])[:-1]
    return np.flatnonzero(means > before)


def docked_quality(cost, quality, simple, slack, weight=None):
    """Mean quality of rules, less what may be luck where they beat mixtures of simple ones.

    `cost` and `quality` (n_rules, n_rows) are of rows that did not fit the rules. A rule that is
    not `simple` is docked `slack` standard errors of the difference, row by row, to the mixture
    of simple rules that costs as much. `weight` are those of the rows; None weights all alike.
    """
    found, mean = mean_of_rows(quality, weight), mean_of_rows(cost, weight)
    mixture, kept = best_mixture(mean[simple], found[simple])
    kept = np.flatnonzero(simple)[kept]
    docked = found.copy()
    for rule in np.flatnonzero(~simple):
        low, high, share = mixture.share(mean[rule])
        price = 0.0
        if high > low:
            price = np.diff(mixture.quality)[low] / np.diff(mixture.cost)[low]
        gain = quality[rule] - price * cost[rule]
        for position, fraction in ((low, 1 - share), (high, share)):
            other = kept[position]
            gain = gain - fraction * (quality[other] - price * cost[other])
        if len(gain) > 1:
            docked[rule] -= slack * standard_error(gain, weight)
    return docked


def mean_of_rows(table, weight=None):
    """Return means over the rows, which are the last axis."""
    return (
        table.mean(axis=-1)
        if weight is None
        else np.average(table, axis=-1, weights=weight)
    )


def spread_prices(path, n_prices, power=1.0):
    """Prices at budgets of a path, falling to 0; a higher power has more where little is spent."""
    low, high = path.budgets[[0, -1]]
    budgets = low + np.linspace(0, 1, n_prices) ** power * (high - low)
    # The last budget itself: no rounding.
    budgets[-1] = high
    return np.unique([path.price(budget) for budget in budgets])[::-1]


class ValidatedPart(NamedTuple):
    """Rules that the other rows have chosen, and what they do on the rows of a part.

    `sums` has for each rule the sums over these rows of cost, quality and their squares, each row
    counted by its weight; `n_rows` is the sum of the weights.
    """

    mixture: Mixture
    sums: NDArray[np.float64]
    n_rows: float

    @classmethod
    def of(cls, mixture, cost, quality, weight=None):
        """From the cost and the quality of each rule on each row, tables (n_rules, n_rows)."""
        if weight is None:
            weight = np.ones(cost.shape[1])
        sums = [
            (table * weight).sum(axis=-1)
            for table in (cost, quality, cost**2, quality**2)
        ]
        return cls(mixture, np.stack(sums, axis=-1), float(weight.sum()))


class HeldOutRules(NamedTuple):
    """Rules that the other rows have chosen, and what they do on the rows of a part.

    Attributes
    ----------
    rows : ndarray of int
        Positions of the rows of the part.
    mixture : Mixture
        Of the rules, by the other rows.
    cost, quality : ndarray of shape (n_rules, n_rows)
        Of each row of the part under each rule.
    weight : ndarray of shape (n_rows,), default=None
        Weight of each row of the part. None weights all rows alike.
    """

    rows: NDArray[np.int64]
    mixture: Mixture
    cost: NDArray[np.float64]
    quality: NDArray[np.float64]
    weight: NDArray[np.float64] | None = None

    def validated_up_to(self, budget):
        """Return the validation of the rules that cost at most a budget."""
        mixture = self.mixture.up_to(budget)
        n_rules = len(mixture.cost)
        return ValidatedPart.of(
            mixture, self.cost[:n_rules], self.quality[:n_rules], weight=self.weight
        )


def limit_path(budgets, held_out):
    """Find the largest budget that held-out rows show to be worth it, and validate up to it.

    Parameters
    ----------
    budgets : ndarray of shape (n_budgets,)
        Rising mean costs, those of the rules that all rows have chosen.
    held_out : list of HeldOutRules
        One for each part of the rows.

    Returns
    -------
    largest : float
        The largest useful one of the budgets (`last_useful`).
    validated_parts : list of ValidatedPart
        Each up to the largest budget that the rows of the other parts find useful.
    """
    part = np.empty(sum(len(rules.rows) for rules in held_out), dtype=np.int64)
    quality = np.empty((len(budgets), len(part)))
    weight = np.ones(len(part))
    for number, rules in enumerate(held_out):
        part[rules.rows] = number
        if rules.weight is not None:
            weight[rules.rows] = rules.weight
        for position, budget in enumerate(budgets):
            quality[position, rules.rows] = rules.mixture.mean_at(budget, rules.quality)

    validated_parts = []
    for rules, (_, others) in zip(held_out, rows_and_others(part)):
        useful = last_useful(quality[:, others], part[others], weight[others])
        validated_parts.append(rules.validated_up_to(budgets[useful]))
    return float(budgets[last_useful(quality, part, weight)]), validated_parts


def validated_mixture(parts, budget):
    """Mean quality and cost, at a budget, of mixtures on rows that did not choose them."""
    sums, sizes = [], np.array([part.n_rows for part in parts])
    for part in parts:
        low, high, share = part.mixture.share(budget)
        sums.append((1 - share) * part.sums[low] + share * part.sums[high])
    table, n = np.array(sums), sizes.sum()
    mean = table.sum(axis=0) / n
    spread = np.maximum(mean[2:] - mean[:2] ** 2, 0.0)
    error = np.sqrt(spread / (n - 1)) if n > 1 else np.full(2, np.nan)
    if len(parts) > 1:
        means = table[:, :2] / sizes[:, np.newaxis]
        error = np.maximum(error, means.std(axis=0, ddof=1) / np.sqrt(len(parts)))
    return Validated(float(mean[1]), float(error[1]), float(mean[0]), float(error[0]))


def best_of(quality, spent, rows, weight=None):
    """Which of some policies to take: the best one or, within noise of it, one that spends less.

    `quality` and `spent` have one number for each policy, `rows` the quality of each row, and
    `weight` the weight of each row, None if all count alike.
    """
    best = int(np.argmax(quality))
    noise = [standard_error(rows[best] - own, weight) for own in rows]
    near = quality[best] - quality <= noise
    cheaper = np.flatnonzero(near & (spent < 0.99 * spent[best]))
    return int(cheaper[quality[cheaper].argmax()]) if len(cheaper) else best
