"""Weights for a family of estimates, judged by the decisions that they lead to."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from skroute.assignment import assignment_path, choose_at_price

# Where between the cheapest choice and the best one the decisions are judged.
SHARES = np.array([0.1, 0.25, 0.5, 0.75, 1.0])
# Of the mean square of the members: penalty on the weights.
_PENALTY = 0.02
# Of the sum of squares over all rows: what is less than this without some rows is rounding.
_ROUNDING = 1e-10


class Weights(NamedTuple):
    """How much of each member's estimate is taken.

    Attributes
    ----------
    difference : ndarray of shape (n_members,)
        Weights of what tells the choices of a row apart.
    level : ndarray of shape (n_members,)
        Weights of the mean over the choices of a row.
    """

    difference: np.ndarray
    level: np.ndarray


class Moments(NamedTuple):
    """Second moments of members' estimates and of outcomes, less their means.

    Attributes
    ----------
    difference, level : tuple of (ndarray of shape (m, m), ndarray of shape (m,))
        Products of the members, and of the members with the outcomes.
    """

    difference: tuple
    level: tuple

    def less(self, other):
        """These without those of some rows; nothing where only rounding is left."""
        return Moments(*(_less(*pair) for pair in zip(self, other)))


def _less(all_rows, some):
    products = all_rows[0] - some[0]
    if np.trace(products) <= _ROUNDING * np.trace(all_rows[0]):
        return np.zeros_like(products), np.zeros_like(all_rows[1])
    return products, all_rows[1] - some[1]


def moments(estimates, outcomes):
    """Second moments of some rows.

    Parameters
    ----------
    estimates : ndarray of shape (n_members, n_rows, n_choices)
        Deviations from the mean quality of each choice, out of sample.
    outcomes : ndarray of shape (n_rows, n_choices)
        The same of the outcomes.

    Returns
    -------
    Moments
    """
    level = estimates.mean(axis=2)
    apart = (estimates - level[..., None]).reshape(len(estimates), -1)
    target = outcomes.mean(axis=1)
    target_apart = (outcomes - target[:, None]).ravel()
    return Moments((apart @ apart.T, apart @ target_apart), (level @ level.T, level @ target))


def stacked_weights(found):
    """Least squares with weights of at least zero, for differences and for the level.

    Parameters
    ----------
    found : Moments

    Returns
    -------
    Weights
    """
    return Weights(*(_least_squares(*part) for part in found))


def _least_squares(products, with_outcomes):
    m = len(products)
    scale = np.trace(products) / m
    if not scale > 0:
        return np.zeros(m)
    # A difference of moments need not be quite positive.
    squares, basis = np.linalg.eigh(products / scale + _PENALTY * np.eye(m))
    root = np.sqrt(np.maximum(squares, _PENALTY / 2))
    return nnls(root[:, None] * basis.T, (basis.T @ with_outcomes) / scale / root)[0]


def single_weights(found, member):
    """One member alone, shrunk to the means by least squares."""
    parts = []
    for products, with_outcomes in found:
        weights = np.zeros(len(products))
        if products[member, member] > 0:
            weights[member] = np.clip(with_outcomes[member] / products[member, member], 0, 1)
        parts.append(weights)
    return Weights(*parts)


def weigh(estimates, weights):
    """The weighted sum of members' deviations.

    Parameters
    ----------
    estimates : ndarray of shape (n_members, n_rows, n_choices)
    weights : Weights

    Returns
    -------
    ndarray of shape (n_rows, n_choices)
    """
    level = estimates.mean(axis=2)
    found = np.tensordot(weights.difference, estimates - level[..., None], axes=1)
    return found + (weights.level @ level)[:, None]


def supposed_costs(quality):
    """Costs where none are known: evenly spaced, in the order of mean quality."""
    costs = np.empty(quality.shape[1])
    costs[np.argsort(quality.mean(axis=0), kind="stable")] = np.arange(1, len(costs) + 1)
    return costs


def upper_hull(costs, quality):
    """Choices that mix to the best mean quality at each cost, by rising cost."""
    hull: list[int] = []
    for j in np.lexsort((-quality, costs)):
        if hull and (quality[j] <= quality[hull[-1]] or costs[j] == costs[hull[-1]]):
            continue
        while len(hull) > 1:
            a, b = hull[-2:]
            along = (quality[j] - quality[a]) * (costs[b] - costs[a])
            if (quality[b] - quality[a]) * (costs[j] - costs[a]) > along:
                break
            hull.pop()
        hull.append(int(j))
    return np.array(hull)


def mixed_quality(quality, costs, spent):
    """Each row's expected quality under the best random mix of choices at a mean cost.

    Parameters
    ----------
    quality : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_choices,)
    spent : float

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    hull = upper_hull(costs, quality.mean(axis=0))
    if len(hull) == 1 or spent >= costs[hull[-1]]:
        return quality[:, hull[-1]]
    k = max(int(np.searchsorted(costs[hull], spent, side="right")) - 1, 0)
    below, above = hull[k], hull[k + 1]
    share = np.clip((spent - costs[below]) / (costs[above] - costs[below]), 0, 1)
    return (1 - share) * quality[:, below] + share * quality[:, above]


def judged_budgets(quality, costs):
    """Five budgets between the cheapest choice and the best one of the hull."""
    hull = upper_hull(costs, quality.mean(axis=0))
    low, high = costs.min(), costs[hull[-1]]
    return low + SHARES * ((high if high > low else costs.max()) - low)


def gain_over_mix(estimate, quality, costs, new_estimate=None, new_quality=None, budgets=None):
    """What deciding by estimates gains over the best random mix that spends the same.

    The prices of the budgets are learned on the estimates, as a router does, and the
    decisions are judged by the outcomes.

    Parameters
    ----------
    estimate, quality : ndarray of shape (n_rows, n_choices)
        Out of sample, and what came out.
    costs : ndarray of shape (n_choices,)
    new_estimate, new_quality : ndarray of shape (n_new, n_choices), default=None
        The rows that are decided and judged; None: the same rows.
    budgets : ndarray, default=None
        None takes :func:`judged_budgets`.

    Returns
    -------
    ndarray of shape (n_new,)
        Mean over the budgets, for each row.
    """
    new_estimate = estimate if new_estimate is None else new_estimate
    new_quality = quality if new_quality is None else new_quality
    budgets = judged_budgets(quality, costs) if budgets is None else budgets
    path = assignment_path(estimate, costs)
    total = np.zeros(len(new_quality))
    rows = np.arange(len(new_quality))
    for budget in budgets:
        route = choose_at_price(new_estimate, costs, path.price(budget))
        total += new_quality[rows, route]
        total -= mixed_quality(new_quality, costs, costs[route].mean())
    return total / len(budgets)


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


class Choice(NamedTuple):
    """What is taken of a family, by all rows, and what rows of other folds would have taken.

    Attributes
    ----------
    weights : Weights
    estimate : ndarray of shape (n_rows, n_choices)
        Of each row by the weights, and by the choice between stack, members and means, that
        the rows of the other folds make.
    gain : ndarray of shape (n_rows,)
        Of `estimate` over the best random mix.
    compared : list of Compared
    """

    weights: Weights
    estimate: np.ndarray
    gain: np.ndarray
    compared: list[Compared]


def others(n_rows, folds):
    """For each fold its rows, and those of the others."""
    return [(rows, np.setdiff1d(np.arange(n_rows), rows)) for rows in folds]


def choose_weights(names, estimates, outcomes, quality, folds, costs=None):
    """Stack a family, or take one member where that is better by more than noise.

    Weights are compared as they are used: those of each fold are learned on the others.

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
    costs : ndarray of shape (n_choices,) or (n_rows, n_choices), default=None
        None supposes some.

    Returns
    -------
    Choice
    """
    if costs is None:
        costs = supposed_costs(quality)
    elif np.ndim(costs) == 2:
        costs = costs.mean(axis=0)
    parts = [moments(estimates[:, rows], outcomes[rows]) for rows in folds]
    total = moments(estimates, outcomes)
    rules = {"stack": stacked_weights}
    for i, name in enumerate(names):
        rules[name] = lambda found, i=i: single_weights(found, i)
    means = quality - outcomes
    candidates, gains = {}, {}
    for name, rule in rules.items():
        estimate = means.copy()
        for rows, part in zip(folds, parts):
            estimate[rows] += weigh(estimates[:, rows], rule(total.less(part)))
        candidates[name] = estimate
        gains[name] = gain_over_mix(estimate, quality, costs)

    def taken(rows):
        """The rule that decides best on some rows; None where that is worse than a coin."""
        best = max(names, key=lambda name: gains[name][rows].mean())
        name = best if beyond_noise((gains[best] - gains["stack"])[rows]) else "stack"
        return None if gains[name][rows].mean() < 0 else name

    nothing = Weights(np.zeros(len(names)), np.zeros(len(names)))
    name = taken(slice(None))
    weights = nothing if name is None else rules[name](total)
    estimate = means.copy()
    for rows, rest in others(len(quality), folds):
        if (name := taken(rest)) is not None:
            estimate[rows] = candidates[name][rows]
    compared = []
    for name in rules:
        own = [w.sum() if name == "stack" else w[names.index(name)] for w in weights]
        gain = gains[name]
        compared.append(
            Compared(name, float(gain.mean()), standard_error(gain), float(own[0]), float(own[1]))
        )
    return Choice(weights, estimate, gain_over_mix(estimate, quality, costs), compared)


def standard_error(values):
    """Of the mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.inf


def beyond_noise(lead):
    """Whether a mean is above zero by more than two standard errors."""
    return lead.mean() > 2 * standard_error(lead)


def corrections(estimate, quality, rows_each=300, most=20):
    """How far estimates of one choice are off, by their size; shrunk to what is no noise.

    Parameters
    ----------
    estimate, quality : ndarray of shape (n_rows,)
        Out of sample, and what came out.
    rows_each, most : int
        Rows of a bin at least, and bins at most.

    Returns
    -------
    ndarray of shape (2, n_bins)
        Mean estimate of each bin, and what to add there; in between it is interpolated.
    """
    n_bins = int(np.clip(len(estimate) // rows_each, 1, most))
    bins = np.array_split(np.argsort(estimate, kind="stable"), n_bins)
    at = np.array([estimate[rows].mean() for rows in bins])
    apart = [quality[rows] - estimate[rows] for rows in bins]
    found = np.array([values.mean() for values in apart])
    noise = np.array([values.var() / len(values) for values in apart])
    real = max((found**2 - noise).mean(), 0.0)
    shrunk = found * np.divide(real, real + noise, where=real + noise > 0, out=np.zeros(n_bins))
    # Never in another order than the estimates.
    return np.stack([at, np.maximum.accumulate(at + shrunk) - at])


def corrected(estimate, knots):
    """Estimates with the corrections of each choice.

    Parameters
    ----------
    estimate : ndarray of shape (n_rows, n_choices)
    knots : list of ndarray of shape (2, n_bins)

    Returns
    -------
    ndarray of shape (n_rows, n_choices)
    """
    return np.column_stack([e + np.interp(e, *knot) for e, knot in zip(estimate.T, knots)])


def cross_corrected(estimate, quality, folds):
    """Estimates corrected by what the rows of other folds say."""
    found = estimate.copy()
    for rows, rest in others(len(estimate), folds):
        pairs = zip(estimate[rest].T, quality[rest].T)
        found[rows] = corrected(estimate[rows], [corrections(*pair) for pair in pairs])
    return found
