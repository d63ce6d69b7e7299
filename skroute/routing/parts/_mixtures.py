"""Mixtures of decision rules: the rules worth mixing, and the mixture for a budget.

A rule decides any row, for example "ask the small model, then perhaps the large one".
It has a mean cost and a mean quality. Some rows follow one rule and the others another
rule, so that the mean cost is a budget.
"""

from typing import NamedTuple

import numpy as np

from skroute.assignment import assignment_path, choose_at_price
from skroute.base import affords
from skroute.routing.parts._estimates import rows_and_others
from skroute.routing.parts._policy import ValidationMeans, last_useful
from skroute.utils._compat import num_samples
from skroute.utils._row_hash import row_uniforms
from skroute.utils._statistics import standard_error
from skroute.utils._typing import NDArray

# A policy counts as cheaper than the best one if it spends less than this share of what
# the best one spends. Less than 1 % saved does not pay for a worse policy.
_CLEARLY_CHEAPER = 0.99


# Mixtures -----------------------------------------------------------------------------


class MixedRules(NamedTuple):
    """Two decision rules, and the share of the rows that follow the second one.

    Attributes
    ----------
    low, high : int
        Positions of the cheaper and of the more expensive rule. They are equal if one
        rule is followed by all rows.
    share : float
        Share of the rows that follow the more expensive rule.
    """

    low: int
    high: int
    share: float


class Mixture(NamedTuple):
    """Decision rules by rising mean cost. A budget is met by mixing two neighbours.

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
        """Return the number of rules that cost at most a budget, at least 1."""
        return max(int(np.count_nonzero(affords(budget, self.cost))), 1)

    def up_to(self, budget):
        """Return the mixture of the rules that cost at most a budget."""
        n_rules = self.n_within(budget)
        return Mixture(self.cost[:n_rules], self.quality[:n_rules])

    def share(self, budget):
        """Return the two neighbouring rules that a budget mixes (`MixedRules`)."""
        low = self.n_within(budget) - 1
        if low == len(self.cost) - 1:
            # All rows follow the most expensive rule.
            return MixedRules(low, low, 0.0)
        step = self.cost[low + 1] - self.cost[low]
        # Below 0 if the budget is less than the cost of the cheapest rule.
        share = (budget - self.cost[low]) / step
        return MixedRules(low, low + 1, float(min(max(share, 0.0), 1.0)))

    def mean_at(self, budget, table):
        """Return the mean of two rules' entries of `table`, mixed as for a budget.

        `table` has shape (n_rules, ...), and the result the shape of one entry.
        """
        mixed = self.share(budget)
        return (1 - mixed.share) * table[mixed.low] + mixed.share * table[mixed.high]

    def draw(self, X, budget, request_id=None):
        """Return the position of the rule that each row follows, (n_rows,).

        The rules are drawn by a hash of the row or, if there is one, of its request id.
        """
        mixed = self.share(budget)
        rule = np.full(num_samples(X), mixed.low, dtype=np.int64)
        if mixed.share > 0:
            # One number between 0 and 1 for each row: (n_rows,)
            uniforms = row_uniforms(X, 1, request_id=request_id)[:, 0]
            rule[uniforms < mixed.share] = mixed.high
        return rule

    def quality_at(self, budget):
        """Return the mean quality of the mixture for a budget."""
        return float(np.interp(budget, self.cost, self.quality))


def best_mixture(cost, quality):
    """Return the rules on the upper hull of quality over cost, by rising cost.

    Parameters
    ----------
    cost, quality : array-like of shape (n_rules,)
        Means of each rule.

    Returns
    -------
    mixture : Mixture
        Mixture of the rules on the hull.
    positions : ndarray of int
        Positions of these rules among all.
    """
    cost = np.asarray(cost, dtype=np.float64)
    quality = np.asarray(quality, dtype=np.float64)
    # The rules are the choices of an assignment problem of one row. The plans of this
    # problem are the rules on the hull.
    values = quality[np.newaxis]
    path = assignment_path(values, cost)
    choices = []
    for price in path.prices:
        (choice_of_row,) = choose_at_price(values, cost, price)
        choices.append(choice_of_row)
    positions = np.array(choices)
    return Mixture(cost[positions], quality[positions]), positions


def mean_of_rows(table, weight=None):
    """Return weighted means over the last axis, the rows. None weights all alike."""
    if weight is None:
        return table.mean(axis=-1)
    return np.average(table, axis=-1, weights=weight)


def weight_of_rows(weight, rows):
    """Return the weights of some rows; None, which weights all alike, stays None."""
    if weight is None:
        return None
    return weight[rows]


def spread_prices(path, n_prices, power=1.0):
    """Return falling prices: those of budgets spread over the range of `path`.

    Parameters
    ----------
    path : AssignmentPath
    n_prices : int
        Number of budgets. Equal prices are returned once.
    power : float, default=1.0
        1 spreads the budgets evenly. With a higher power more of them are small.

    Returns
    -------
    ndarray of float
    """
    low = path.budgets[0]
    high = path.budgets[-1]
    budgets = low + np.linspace(0, 1, n_prices) ** power * (high - low)
    # The last budget has no rounding error: its price is 0.
    budgets[-1] = high
    return np.unique([path.price(budget) for budget in budgets])[::-1]


# Rules that held-out rows find worth their cost ---------------------------------------


def useful_rules(quality, fold_of_row=None):
    """Return the positions of the rules that held-out rows show to be worth their cost.

    Parameters
    ----------
    quality : ndarray of shape (n_rules, n_rows)
        Quality of each held-out row under each rule, from the cheapest rule to the most
        expensive one.
    fold_of_row : ndarray of shape (n_rows,), default=None
        Fold of each row.

    Returns
    -------
    ndarray of int
        The cheapest rule, then each rule that is better than all cheaper ones, up to
        the last that is better beyond noise (`last_useful`).
    """
    n_rules = last_useful(quality, fold_of_row) + 1
    means = quality[:n_rules].mean(axis=1)
    # No rule is cheaper than the cheapest one, which is compared with -inf: it is
    # always useful.
    best_of_cheaper = np.maximum.accumulate(np.r_[-np.inf, means])[:-1]
    return np.flatnonzero(means > best_of_cheaper)


def quality_less_luck(cost, quality, is_simple, n_errors, weight=None):
    """Return the mean quality of rules, with a penalty where `is_simple` is False.

    If many rules are compared, the best on held-out rows is partly lucky. Simple rules
    are few, and are not penalised.

    Parameters
    ----------
    cost, quality : ndarray of shape (n_rules, n_rows)
        Cost and quality of held-out rows under each rule: no rule was fitted on them.
    is_simple : ndarray of shape (n_rules,), dtype=bool
        True for the rules that are not penalised.
    n_errors : float
        Penalty, in standard errors of the rule's lead. The lead is over the mixture of
        simple rules that has the same mean cost.
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    ndarray of shape (n_rules,)
    """
    mean_quality = mean_of_rows(quality, weight)
    mean_cost = mean_of_rows(cost, weight)
    mixture, positions = best_mixture(mean_cost[is_simple], mean_quality[is_simple])
    simple_rules = np.flatnonzero(is_simple)[positions]
    penalised = mean_quality.copy()
    for rule in np.flatnonzero(~is_simple):
        mixed = mixture.share(mean_cost[rule])
        # Quality that a unit of cost buys between the two simple rules of the mixture.
        # It is 0 for a rule that costs at least as much as all simple rules.
        price = 0.0
        if mixed.high > mixed.low:
            gain = np.diff(mixture.quality)[mixed.low]
            price = gain / np.diff(mixture.cost)[mixed.low]
        low_rule = simple_rules[mixed.low]
        high_rule = simple_rules[mixed.high]
        # Lead of the rule over the mixture on each row, at this price: (n_rows,)
        net_of_rule = quality[rule] - price * cost[rule]
        net_of_low = quality[low_rule] - price * cost[low_rule]
        net_of_high = quality[high_rule] - price * cost[high_rule]
        lead = net_of_rule - (1 - mixed.share) * net_of_low
        lead -= mixed.share * net_of_high
        if len(lead) > 1:
            penalised[rule] -= n_errors * standard_error(lead, weight)
    return penalised


def best_or_cheaper(quality, spent, row_quality, weight=None):
    """Return the index of the best policy, or of a cheaper one within its error.

    A policy is as good as the best one if it is worse by at most one standard error of
    the difference. If some of these policies are clearly cheaper, the one of them with
    the highest quality is returned.

    Parameters
    ----------
    quality : ndarray of shape (n_policies,)
        Mean quality.
    spent : ndarray of shape (n_policies,)
        Mean cost.
    row_quality : sequence of ndarray of shape (n_rows,)
        Quality of each row under each policy.
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    int
    """
    best = int(np.argmax(quality))
    # Standard error of each policy's difference to the best one: (n_policies,)
    noise = []
    for qualities in row_quality:
        difference = row_quality[best] - qualities
        noise.append(standard_error(difference, weight))
    is_as_good = quality[best] - quality <= noise
    is_cheaper = spent < _CLEARLY_CHEAPER * spent[best]
    candidates = np.flatnonzero(is_as_good & is_cheaper)
    if not len(candidates):
        return best
    return int(candidates[quality[candidates].argmax()])


# Validation by folds ------------------------------------------------------------------


class ValidatedPart(NamedTuple):
    """Sums over the rows of one fold under rules that the other folds have chosen.

    Fitted routers store them: the mean and its standard error follow for any budget.

    Attributes
    ----------
    mixture : Mixture
        Mixture of the rules, chosen by the rows of the other folds.
    sums : ndarray of shape (n_rules, 2)
        Weighted sums of cost (first column) and quality (second column).
    squares : ndarray of shape (n_rules, 2)
        Weighted sums of their squares.
    n_rows : float
        Sum of the weights.
    """

    mixture: Mixture
    sums: NDArray[np.float64]
    squares: NDArray[np.float64]
    n_rows: float

    @classmethod
    def from_rows(cls, mixture, cost, quality, weight=None):
        """Sum up cost, quality and their squares over the rows of one fold.

        Parameters
        ----------
        mixture : Mixture
            Mixture of the rules, chosen by the rows of the other folds.
        cost, quality : ndarray of shape (n_rules, n_rows)
            Cost and quality of the fold's rows under each rule.
        weight : ndarray of shape (n_rows,), default=None
            Weights of the rows. None weights all alike.
        """
        if weight is None:
            weight = np.ones(cost.shape[1])
        sums = [(cost * weight).sum(axis=-1), (quality * weight).sum(axis=-1)]
        squares = [(cost**2 * weight).sum(axis=-1), (quality**2 * weight).sum(axis=-1)]
        return cls(
            mixture,
            sums=np.stack(sums, axis=-1),
            squares=np.stack(squares, axis=-1),
            n_rows=float(weight.sum()),
        )


class HeldOutRules(NamedTuple):
    """Cost and quality of each row of one fold, under rules chosen by other folds.

    Attributes
    ----------
    rows : ndarray of int
        Positions of the rows of the fold.
    mixture : Mixture
        Mixture of the rules, chosen by the rows of the other folds.
    cost, quality : ndarray of shape (n_rules, n_rows)
        Cost and quality of each row of the fold under each rule.
    weight : ndarray of shape (n_rows,), default=None
        Weight of each row of the fold. None weights all rows alike.
    """

    rows: NDArray[np.int64]
    mixture: Mixture
    cost: NDArray[np.float64]
    quality: NDArray[np.float64]
    weight: NDArray[np.float64] | None = None

    def validated_up_to(self, budget):
        """Return the `ValidatedPart` of the rules that cost at most a budget.

        It has the sums of their qualities and costs over the rows of this part.
        """
        mixture = self.mixture.up_to(budget)
        n_rules = len(mixture.cost)
        return ValidatedPart.from_rows(
            mixture, self.cost[:n_rules], self.quality[:n_rules], weight=self.weight
        )


def limit_path(budgets, held_out):
    """Find the budget above which held-out quality rises by noise only. Validate it.

    Parameters
    ----------
    budgets : ndarray of shape (n_budgets,)
        Rising mean costs of the rules that were chosen by all rows.
    held_out : list of HeldOutRules
        One for each fold.

    Returns
    -------
    largest : float
        The budget that `last_useful` chooses by all held-out rows.
    validated_parts : list of ValidatedPart
        One for each fold. Its rules cost at most the budget that `last_useful` chooses
        by the rows of the other folds.
    """
    n_rows = sum(len(rules.rows) for rules in held_out)
    fold_of_row = np.empty(n_rows, dtype=np.int64)
    # Quality of each row at each budget, under the rules of the other folds.
    quality = np.empty((len(budgets), n_rows))
    weight = np.ones(n_rows)
    for fold, rules in enumerate(held_out):
        fold_of_row[rules.rows] = fold
        if rules.weight is not None:
            weight[rules.rows] = rules.weight
        for position, budget in enumerate(budgets):
            quality[position, rules.rows] = rules.mixture.mean_at(budget, rules.quality)

    validated_parts = []
    # `held_out` and `rows_and_others` have the folds in the same order.
    for rules, (_, others) in zip(held_out, rows_and_others(fold_of_row)):
        position = last_useful(quality[:, others], fold_of_row[others], weight[others])
        validated_parts.append(rules.validated_up_to(budgets[position]))
    position_of_largest = last_useful(quality, fold_of_row, weight)
    return float(budgets[position_of_largest]), validated_parts


def validated_mixture(validated_parts, budget):
    """Return mean quality and cost of held-out rows at a budget.

    The rules of each fold were chosen by the rows of the other folds.

    Parameters
    ----------
    validated_parts : list of ValidatedPart
        One for each fold.
    budget : float
        Mean cost per row that the rules are mixed to.

    Returns
    -------
    ValidationMeans
        Two standard errors are computed, and the larger one is returned: that of
        independent rows, and that of the means of folds.
    """
    n_parts = len(validated_parts)
    # Each row is a fold. The columns are cost and quality under the mixture of the
    # budget.
    sums = np.empty((n_parts, 2))
    squares = np.empty((n_parts, 2))
    for fold, validated in enumerate(validated_parts):
        sums[fold] = validated.mixture.mean_at(budget, validated.sums)
        squares[fold] = validated.mixture.mean_at(budget, validated.squares)
    # Sum of the weights of each fold's rows: (n_parts,)
    fold_weights = np.array([validated.n_rows for validated in validated_parts])
    n_rows = fold_weights.sum()
    mean = sums.sum(axis=0) / n_rows
    variance = np.maximum(squares.sum(axis=0) / n_rows - mean**2, 0.0)
    error = np.full(2, np.nan)
    if n_rows > 1:
        error = np.sqrt(variance / (n_rows - 1))
    if n_parts > 1:
        fold_means = sums / fold_weights[:, np.newaxis]
        error_of_folds = fold_means.std(axis=0, ddof=1) / np.sqrt(n_parts)
        error = np.maximum(error, error_of_folds)
    mean_cost, mean_quality = mean
    cost_error, quality_error = error
    return ValidationMeans(
        quality=float(mean_quality),
        quality_se=float(quality_error),
        cost=float(mean_cost),
        cost_se=float(cost_error),
    )
