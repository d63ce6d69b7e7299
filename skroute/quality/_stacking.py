"""Weights for several estimates of quality, judged by the decisions that they lead to."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from skroute.assignment import assignment_path, choose_at_price
from skroute.quality._corrections import corrected, corrections, finished, range_of
from skroute.quality._members import weigh_outputs
from skroute.utils._statistics import standard_error

# Where between the cheapest choice and the best one the decisions are judged.
SHARES = np.array([0.1, 0.25, 0.5, 0.75, 1.0])
# Of the mean square of the members: penalty on the weights. And the largest weight: where
# estimates hardly vary, least squares would multiply their rounding.
_PENALTY, _LARGEST_WEIGHT = 0.02, 2.0
# Prices that differ by less, relatively, are one.
_TIE = 1e-9


def weigh(estimates, weights):
    """The weighted sum of members' deviations.

    Parameters
    ----------
    estimates : ndarray of shape (n_members, n_rows, n_choices)
    weights : ndarray of shape (2, n_members)
        Of what tells the choices of a row apart, and of their mean.

    Returns
    -------
    ndarray of shape (n_rows, n_choices)
    """
    difference, level = weights[..., None, None]
    return weigh_outputs(estimates, level, difference).sum(axis=0)


def mean_of(values, weight=None):
    """Return means over rows, the first axis, where each row counts by its weight."""
    return (
        values.mean(axis=0)
        if weight is None
        else np.average(values, axis=0, weights=weight)
    )


def some_of(weight, rows):
    """Return the weights of some rows; None if all rows weigh one."""
    return None if weight is None else weight[rows]


def stacked_weights(estimates, outcomes, members, row_weight=None):
    """Least squares with weights of at least zero, for differences and for the level.

    Parameters
    ----------
    estimates : ndarray of shape (n_members, n_rows, n_choices)
        Deviations from the mean quality of each choice, out of sample.
    outcomes : ndarray of shape (n_rows, n_choices)
        The same of the outcomes.
    members : list of int
        Those that may have weight.
    row_weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    ndarray of shape (2, n_members)
    """
    weights, used = np.zeros((2, len(estimates))), estimates[members]
    if row_weight is not None:
        root = np.sqrt(row_weight)[:, None]
        used, outcomes = root * used, root * outcomes
    level, target = used.mean(axis=2), outcomes.mean(axis=1)
    apart = (used - level[..., None]).reshape(len(used), -1)
    pairs = (apart, (outcomes - target[:, None]).ravel()), (level, target)
    for found, (columns, aim) in zip(weights, pairs):
        scale = (columns**2).sum() / len(used)
        if scale > 0:
            gram = columns @ columns.T / scale + _PENALTY * np.eye(len(used))
            root = np.linalg.cholesky(gram).T
            found[members] = nnls(root, np.linalg.solve(root.T, columns @ aim / scale))[
                0
            ]
    return np.minimum(weights, _LARGEST_WEIGHT)


def supposed_costs(quality):
    """Costs where none are known: evenly spaced, in the order of mean quality."""
    costs = np.empty(quality.shape[1])
    costs[np.argsort(quality.mean(axis=0), kind="stable")] = np.arange(
        1, len(costs) + 1
    )
    return costs


def as_one_price_each(costs, quality):
    """Costs of one row or of each, or None, as one number for each choice."""
    if costs is None:
        return supposed_costs(quality)
    costs = np.asarray(costs, dtype=np.float64)
    return costs.mean(axis=0) if costs.ndim == 2 else costs


def gain_over_mix(estimate, quality, costs, weight=None):
    """What deciding by estimates gains over the best random mix that spends the same.

    Five budgets between the cheapest choice and the best one are spent as routers spend them: at
    the price for these estimates, where rows that are tied at the price are mixed. Outcomes
    judge and do not decide.

    Parameters
    ----------
    estimate, quality : ndarray of shape (n_rows, n_choices)
        Estimates that did not see the outcomes of these rows, and what came out.
    costs : ndarray of shape (n_choices,)
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    ndarray of shape (n_rows,)
        Mean over the budgets, for each row; where it is tied, of its two choices.
    """
    path, mean, hull = (
        assignment_path(estimate, costs, weight=weight),
        mean_of(quality, weight),
        [],
    )
    for j in np.lexsort((-mean, costs)):
        # Choices that mix to the best mean quality at each cost, by rising cost.
        while len(hull) > 1 and not _is_above(hull[-1], hull[-2], j, costs, mean):
            hull.pop()
        if not hull or mean[j] > mean[hull[-1]]:
            hull.append(j)
    low, high = costs.min(), costs[hull[-1]]
    high = high if high > low else costs.max()
    rows, total = np.arange(len(quality)), np.zeros(len(quality))
    for budget in low + SHARES * (high - low):
        rule = path.rule(budget)
        below = above = choose_at_price(estimate, costs, rule.price)
        if rule.share:
            above = choose_at_price(estimate, costs, rule.price, tolerance=-_TIE)
        spent = (1 - rule.share) * mean_of(costs[below], weight)
        spent += rule.share * mean_of(costs[above], weight)
        total += (1 - rule.share) * quality[rows, below] + rule.share * quality[
            rows, above
        ]
        place = np.interp(spent, costs[hull], np.arange(len(hull)))
        below, above = hull[int(place)], hull[int(np.ceil(place))]
        total -= (1 - place % 1) * quality[:, below] + place % 1 * quality[:, above]
    return total / len(SHARES)


def _is_above(middle, left, right, costs, mean):
    """Whether a choice has more quality than the mix of a cheaper and a more expensive one."""
    along = (mean[right] - mean[left]) * (costs[middle] - costs[left])
    return (mean[middle] - mean[left]) * (costs[right] - costs[left]) > along


class Compared(NamedTuple):
    """What a member of the family, or several together, did out of sample.

    Attributes
    ----------
    name : str
        Of the member; ``"stack"`` for all together.
    gain : float
        Mean quality over the best random mix at equal spend, mean of five budgets.
    gain_se : float
        Standard error of `gain`.
    difference, level : float
        Weight of the member in the estimate: of what tells choices apart, and of the mean
        over choices. The sums for ``"stack"``.
    """

    name: str
    gain: float
    gain_se: float
    difference: float
    level: float


class Combination(NamedTuple):
    """Weights and corrections that make one estimate of all members.

    Attributes
    ----------
    mean : ndarray of shape (n_choices,)
        Mean quality of each choice.
    weights : ndarray of shape (2, n_members)
        As in `weigh`. All are zero where the means are the estimate.
    knots : ndarray of shape (n_choices, 2 + n_points), or None
        Corrections of the weighted sum.
    limits : tuple
        Range and unit of estimates, from `range_of`.
    """

    mean: np.ndarray
    weights: np.ndarray
    knots: np.ndarray | None
    limits: tuple

    def estimate(self, deviations):
        """Return the estimates of rows.

        Parameters
        ----------
        deviations : ndarray of shape (n_members, n_rows, n_choices)

        Returns
        -------
        ndarray of shape (n_rows, n_choices)
        """
        if not self.weights.any():
            return np.tile(self.mean, (deviations.shape[1], 1))
        estimate = self.mean + weigh(deviations, self.weights)
        if self.knots is not None:
            estimate = corrected(estimate, self.knots)
        return finished(estimate, *self.limits)


class Choice(NamedTuple):
    """The combination that all rows choose, and those that the rows outside each fold choose.

    Attributes
    ----------
    combination : Combination
        Weights, corrections, and choice between stack, members and means by all rows.
    of_folds : list of Combination
        For each fold, the same by the rows of the other folds.
    estimate : ndarray of shape (n_rows, n_choices)
        Estimates of each row by the combination of its fold.
    compared : list of Compared
    """

    combination: Combination
    of_folds: list[Combination]
    estimate: np.ndarray
    compared: list[Compared]


class Candidate(NamedTuple):
    """Some members, as they are or corrected, by what the rows of other folds say."""

    members: list[int]
    curved: bool
    deviation: np.ndarray
    estimate: np.ndarray
    gain: np.ndarray


def choose_weights(
    names, estimates, outcomes, quality, folds, costs, sizes=1.0, row_weight=None
):
    """Stack a family, or take one member where that is better by more than noise.

    Weights and corrections are compared as they are used: those of each fold are learned on
    the others.

    Parameters
    ----------
    names : list of str
    estimates : ndarray of shape (n_members, n_rows, n_choices)
        Deviations, out of sample.
    outcomes : ndarray of shape (n_rows, n_choices)
        Outcomes less the means that the deviations are from.
    quality : ndarray of shape (n_rows, n_choices)
        The outcomes.
    folds : list of ndarray of int
        The rows of each fold.
    costs : ndarray of shape (n_choices,)
    sizes : ndarray of shape (n_choices,), default=1.0
        What outcomes were divided by (:func:`~skroute.quality._corrections.sizes_of`): errors
        are added up so, decisions are judged as they were.
    row_weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    Choice
    """
    seen = range_of(quality)
    splits = [(rows, np.setdiff1d(np.arange(len(quality)), rows)) for rows in folds]

    def candidates(members):
        """The members' stack, out of sample, as it is and corrected."""
        deviation, curved = np.empty(quality.shape), np.empty(quality.shape)
        for rows, rest in splits:
            of_rest = some_of(row_weight, rest)
            weights = stacked_weights(
                estimates[:, rest], outcomes[rest], members, of_rest
            )
            deviation[rows] = weigh(estimates[:, rows], weights)
        for rows, rest in splits:
            of_rest = some_of(row_weight, rest)
            mean = mean_of(quality[rest], of_rest)
            knots = corrections(mean + deviation[rest], quality[rest], of_rest)
            curved[rows] = corrected(mean + deviation[rows], knots)
        plain = quality - outcomes + deviation
        for is_curved, found in ((False, plain), (True, curved)):
            found = finished(found, *seen)
            gain = gain_over_mix(found * sizes, quality * sizes, costs, row_weight)
            yield Candidate(members, is_curved, deviation, found, gain)

    every = list(range(len(names)))
    found = [list(candidates(members)) for members in (every, *([i] for i in every))]

    def taken(rows):
        """What decides best on some rows; None where that is worse than a coin."""
        of_rows = some_of(row_weight, rows)
        best = _nearest(found[0], quality, rows, of_rows)
        ahead = [
            one
            for pair in found
            for one in pair
            if beyond_noise((one.gain - best.gain)[rows], of_rows)
        ]
        best = max(
            ahead, key=lambda one: mean_of(one.gain[rows], of_rows), default=best
        )
        return None if mean_of(best.gain[rows], of_rows) < 0 else best

    def combination_of(rows):
        """Return the combination that some rows choose, learned from these rows."""
        weight_of_rows = some_of(row_weight, rows)
        mean = mean_of(quality[rows], weight_of_rows)
        weights = np.zeros((2, len(names)))
        knots = None
        best = taken(rows)
        if best is not None:
            weights = stacked_weights(
                estimates[:, rows], outcomes[rows], best.members, weight_of_rows
            )
            if best.curved and weights.any():
                knots = corrections(
                    mean + best.deviation[rows], quality[rows], weight_of_rows
                )
        return Combination(mean, weights, knots, limits=seen)

    estimate = np.empty(quality.shape)
    of_folds = []
    for rows, rest in splits:
        combination = combination_of(rest)
        estimate[rows] = combination.estimate(estimates[:, rows])
        of_folds.append(combination)
    combination = combination_of(slice(None))
    weights = combination.weights
    compared = []
    for name, pair in zip(["stack", *names], found):
        gain = _nearest(pair, quality, weight=row_weight).gain
        of_name = (
            weights.sum(axis=1) if name == "stack" else weights[:, names.index(name)]
        )
        error = standard_error(gain, row_weight)
        compared.append(
            Compared(name, float(mean_of(gain, row_weight)), error, *of_name.tolist())
        )
    return Choice(combination, of_folds, estimate, compared)


def _nearest(candidates, quality, rows=slice(None), weight=None):
    """Return the candidate of the least squared error on some rows, which have these weights."""

    def squared_error(candidate):
        squares = (candidate.estimate - quality)[rows] ** 2
        if weight is None:
            return float(squares.mean())
        return float(np.average(squares.mean(axis=1), weights=weight))

    return min(candidates, key=squared_error)


def beyond_noise(lead, weight=None):
    """Return True if a mean is above zero by more than two standard errors."""
    # The standard error of a single row is NaN, and nothing is beyond it.
    return mean_of(lead, weight) > 2 * standard_error(lead, weight)
