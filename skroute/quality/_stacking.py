"""Weights for a family of estimates, judged by the decisions that they lead to."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from skroute.assignment import assignment_path, choose_at_price
from skroute.quality._corrections import (
    corrected,
    corrections,
    corrections_of_several,
    finished,
)

# Where between the cheapest choice and the best one the decisions are judged.
SHARES = np.array([0.1, 0.25, 0.5, 0.75, 1.0])
# Of the mean square of the members: penalty on the weights.
_PENALTY = 0.02
# Rows are kept for at least this share more of gain.
_WORTH_KEEPING = 0.05
# Estimates are true where outcomes agree with them in this share of bins.
_TRUE = 0.9
# Estimates are corrected together, so many numbers at a time.
_TOGETHER = 100_000
# Prices that differ by less, relatively, are one.
_TIE = 1e-9
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


def stacked_weights(found, some=None):
    """Least squares with weights of at least zero, for differences and for the level.

    Parameters
    ----------
    found : Moments
    some : list of int, default=None
        The members that may have weight; None: all.

    Returns
    -------
    Weights
    """
    some = list(range(len(found.level[1]))) if some is None else some
    parts = []
    for products, with_outcomes in found:
        weights = np.zeros(len(products))
        weights[some] = _least_squares(products[np.ix_(some, some)], with_outcomes[some])
        parts.append(weights)
    return Weights(*parts)


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


def as_one_price_each(costs, quality):
    """Costs of one row or of each, or None, as one number for each choice."""
    if costs is None:
        return supposed_costs(quality)
    costs = np.asarray(costs, dtype=np.float64)
    return costs.mean(axis=0) if costs.ndim == 2 else costs


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


class Mix(NamedTuple):
    """A random mix of two choices.

    Attributes
    ----------
    below, above : int
        The choices; the same where one is best.
    share : float
        Of the rows that `above` gets.
    slope : float
        Quality that one more unit of cost buys.
    """

    below: int
    above: int
    share: float
    slope: float

    def of(self, quality):
        """Expected quality of each row, from that of each choice."""
        return (1 - self.share) * quality[:, self.below] + self.share * quality[:, self.above]


def best_mix(quality, costs, spent):
    """The best random mix of choices at a mean cost, picked with the rows in hand.

    Parameters
    ----------
    quality : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_choices,)
    spent : float

    Returns
    -------
    Mix
    """
    mean = quality.mean(axis=0)
    return _mix_on(upper_hull(costs, mean), mean, costs, spent)


def _mix_on(hull, mean, costs, spent):
    if len(hull) == 1 or spent >= costs[hull[-1]]:
        return Mix(hull[-1], hull[-1], 0.0, 0.0)
    k = max(int(np.searchsorted(costs[hull], spent, side="right")) - 1, 0)
    below, above = hull[k], hull[k + 1]
    apart = costs[above] - costs[below]
    share = float(np.clip((spent - costs[below]) / apart, 0, 1))
    return Mix(below, above, share, float((mean[above] - mean[below]) / apart))


def judged_budgets(quality, costs):
    """Five budgets between the cheapest choice and the best one of the hull."""
    hull = upper_hull(costs, quality.mean(axis=0))
    low, high = costs.min(), costs[hull[-1]]
    return low + SHARES * ((high if high > low else costs.max()) - low)


def decided(estimate, costs, rule):
    """Choices at a price; where rows are tied at it and mixed, below it and above it.

    Parameters
    ----------
    estimate : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_choices,)
    rule : Rule
        The price, and the share of tied rows that are decided as above.

    Returns
    -------
    below, above : ndarray of shape (n_rows,), dtype=int
    """
    below = above = choose_at_price(estimate, costs, rule.price)
    if rule.share:
        above = choose_at_price(estimate, costs, rule.price, tolerance=-_TIE)
    return below, above


def gain_over_mix(estimate, quality, costs, budgets=None):
    """What deciding by estimates gains over the best random mix that spends the same.

    Each budget is spent as routers spend it: at its price for these estimates, where rows that
    are tied at the price are mixed. Outcomes judge and do not decide.

    Parameters
    ----------
    estimate, quality : ndarray of shape (n_rows, n_choices)
        Estimates that did not see the outcomes of these rows, and what came out.
    costs : ndarray of shape (n_choices,)
    budgets : ndarray, default=None
        None takes :func:`judged_budgets`.

    Returns
    -------
    ndarray of shape (n_rows,)
        Mean over the budgets, for each row; where it is tied, of its two choices.
    """
    budgets = judged_budgets(quality, costs) if budgets is None else budgets
    path, rows = assignment_path(estimate, costs), np.arange(len(quality))
    mean, total = quality.mean(axis=0), np.zeros(len(quality))
    hull = upper_hull(costs, mean)
    for budget in budgets:
        rule = path.rule(budget)
        (low, high), share = decided(estimate, costs, rule), rule.share
        spent = (1 - share) * costs[low].mean() + share * costs[high].mean()
        total += (1 - share) * quality[rows, low] + share * quality[rows, high]
        total -= _mix_on(hull, mean, costs, spent).of(quality)
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
    knots : list of ndarray of shape (2, n_points), or None
        Corrections of the weighted sum, one for each choice.
    estimate : ndarray of shape (n_rows, n_choices)
        Of each row by the weights, the corrections, and the choice between stack, members
        and means, that the rows of the other folds make.
    kept : ndarray of shape (n_rows, n_choices)
        Of each row by `weights` and `knots`.
    gain : ndarray of shape (n_rows,)
        Of `estimate` over the best random mix.
    compared : list of Compared
    """

    weights: Weights
    knots: list | None
    estimate: np.ndarray
    kept: np.ndarray
    gain: np.ndarray
    compared: list[Compared]

    def in_units(self, sizes):
        """The same with estimates and corrections multiplied by the size of each choice."""
        knots = self.knots and [knot * size for knot, size in zip(self.knots, sizes)]
        return self._replace(knots=knots, estimate=self.estimate * sizes, kept=self.kept * sizes)


class Candidate(NamedTuple):
    """A way to weigh and to correct.

    Attributes
    ----------
    key : str or tuple
        A member, or ``("stack", its member with rows or None)``.
    deviation : ndarray of shape (n_rows, n_choices)
        The weighted sum, by weights of the other folds.
    curves : {"own", "shared", None}
        How choices are corrected.
    estimate : ndarray of shape (n_rows, n_choices)
        Corrected by the other folds.
    gain : ndarray of shape (n_rows,)
    """

    key: str | tuple
    deviation: np.ndarray
    curves: str | None
    estimate: np.ndarray
    gain: np.ndarray


def nearest_first(candidates, quality, rows=slice(None)):
    """Candidates by rising squared error on some rows.

    Curves learned of a few rare and expensive outcomes are further off on other rows than no
    curves are.
    """
    return sorted(candidates, key=lambda one: float(((one.estimate - quality)[rows] ** 2).mean()))


def best_candidate(base, rivals, quality, rows=slice(None)):
    """What decides best on some rows, of those that are as true as they must be.

    Others than `base` must gain more beyond noise, and be true, or as true as `base` is.

    Parameters
    ----------
    base : Candidate
    rivals : list of Candidate
    quality : ndarray of shape (n_rows, n_choices)
    rows : slice or ndarray of int, default=slice(None)

    Returns
    -------
    Candidate
    """

    def true(candidate):
        return share_of_true_bins(candidate.estimate[rows], quality[rows])

    ahead = [one for one in rivals if beyond_noise((one.gain - base.gain)[rows])]
    least = min(_TRUE, true(base)) if ahead else _TRUE
    best_first = sorted(ahead, key=lambda one: -one.gain[rows].mean())
    return next((one for one in best_first if true(one) >= least), base)


def others(n_rows, folds):
    """For each fold its rows, and those of the others."""
    return [(rows, np.setdiff1d(np.arange(n_rows), rows)) for rows in folds]


def choose_weights(names, estimates, outcomes, quality, folds, costs, heavy=(), sizes=1.0):
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
    heavy : sequence of str, default=()
        Members that must be worth keeping; of these one at most is taken.
    sizes : ndarray of shape (n_choices,), default=1.0
        What outcomes were divided by (:func:`~skroute.quality._corrections.sizes_of`): errors
        are added up so, decisions are judged as they were.

    Returns
    -------
    Choice
    """
    splits = others(len(quality), folds)
    parts = [moments(estimates[:, rows], outcomes[rows]) for rows in folds]
    total = moments(estimates, outcomes)
    light = [name for name in names if name not in heavy]
    rules = {}
    for i, name in enumerate(names):
        rules[name] = lambda found, i=i: single_weights(found, i)
    for one in [None, *heavy]:
        some = [i for i, name in enumerate(names) if name in light or name == one]
        rules["stack", one] = lambda found, some=some: stacked_weights(found, some)

    def candidates(keys):
        deviations = np.empty((len(keys), *quality.shape))
        for deviation, key in zip(deviations, keys):
            for rows, part in zip(folds, parts):
                deviation[rows] = weigh(estimates[:, rows], rules[key](total.less(part)))
        return dict(zip(keys, correct_by_others(keys, deviations, quality, splits, costs, sizes)))

    # Stacks with rows that are kept: only those that are asked for.
    found = candidates([*names, ("stack", None)])

    def best_of(some, one, rows):
        """The stack of some members, or what decides better, by some rows."""
        base, *curves = nearest_first(found["stack", one], quality, rows)
        return best_candidate(base, [*curves, *(c for n in some for c in found[n])], quality, rows)

    def taken(rows):
        """What decides best on some rows; None where that is worse than a coin."""
        best = best_of(light, None, rows)
        if heavy:
            one = max(heavy, key=lambda name: max(c.gain[rows].mean() for c in found[name]))
            if ("stack", one) not in found:
                found.update(candidates([("stack", one)]))
            large = best_of([*light, one], one, rows)
            lead, gain = (large.gain - best.gain)[rows], best.gain[rows].mean()
            if beyond_noise(lead) and lead.mean() > _WORTH_KEEPING * gain:
                best = large
        return None if best.gain[rows].mean() < 0 else best

    of_others = [taken(rest) for _, rest in splits]
    best = taken(slice(None))
    estimate = np.empty(quality.shape)
    for (rows, rest), one in zip(splits, of_others):
        mean = quality[rest].mean(axis=0)
        estimate[rows] = mean if one is None else one.estimate[rows]
    key = None if best is None else best.key
    stack = key if isinstance(key, tuple) else ("stack", key if key in heavy else None)
    weights = Weights(np.zeros(len(names)), np.zeros(len(names)))
    knots, kept = None, np.tile(quality.mean(axis=0), (len(quality), 1))
    if best is not None:
        weights = rules[key](total)
    # Without any weight the means are what is left: there is nothing to correct them by.
    if max(weights.level.max(), weights.difference.max()) > 0:
        if best.curves is not None:
            whole = quality.mean(axis=0) + best.deviation
            knots = corrections(whole, quality, best.curves == "own")
        kept += weigh(estimates, weights)
        kept = kept if knots is None else corrected(kept, knots)
        kept = finished(kept, quality.min(axis=0), quality.max(axis=0))
    compared = []
    for name in [stack, *names]:
        base, *curves = nearest_first(found[name], quality)
        gain = best_candidate(base, curves, quality).gain
        whole = isinstance(name, tuple)
        taken_of = [float(w.sum() if whole else w[names.index(name)]) for w in weights]
        shown = "stack" if whole else name
        compared.append(Compared(shown, float(gain.mean()), standard_error(gain), *taken_of))
    gain = gain_over_mix(estimate * sizes, quality * sizes, costs)
    return Choice(weights, knots, estimate, kept, gain, compared)


def correct_by_others(keys, deviations, quality, splits, costs, sizes=1.0):
    """Several estimates of each fold, corrected by what the rows of the others say.

    Parameters
    ----------
    keys : list of str or tuple
        Their names.
    deviations : ndarray of shape (n_estimates, n_rows, n_choices)
    quality : ndarray of shape (n_rows, n_choices)
    splits : list of (ndarray of int, ndarray of int)
        Rows, and those of the other folds.
    costs : ndarray of shape (n_choices,)
    sizes : ndarray of shape (n_choices,), default=1.0
        What outcomes were divided by.

    Returns
    -------
    list of (Candidate, Candidate, Candidate)
        Of each estimate: with curves of each choice, with one that all share, and as it is.
    """
    found, low, high = [], quality.min(axis=0), quality.max(axis=0)
    together = max(1, _TOGETHER // quality.size)
    for i in range(0, len(deviations), together):
        some = deviations[i : i + together]
        estimates = np.empty((3, *some.shape))
        for rows, rest in splits:
            mean = quality[rest].mean(axis=0)
            estimates[2, :, rows] = (mean + some[:, rows]).swapaxes(0, 1)
            for kind, curves in enumerate(
                corrections_of_several(mean + some[:, rest], quality[rest])
            ):
                for j, of_one in enumerate(curves):
                    estimates[kind, j, rows] = corrected(estimates[2, j, rows], of_one)
        for j, deviation in enumerate(some):
            of_one = []
            for curves, estimate in zip(("own", "shared", None), estimates[:, j]):
                estimate = finished(estimate, low, high)
                gain = gain_over_mix(estimate * sizes, quality * sizes, costs)
                of_one.append(Candidate(keys[i + j], deviation, curves, estimate, gain))
            found.append(tuple(of_one))
    return found


def share_of_true_bins(estimate, quality, n_bins=10):
    """In which share of bins of the estimate outcomes agree with it.

    Rows are cut into bins of equal size by the estimate of each choice, equal ones at random.
    Outcomes agree where their mean is within 1.96 standard errors of the mean estimate.

    Parameters
    ----------
    estimate, quality : ndarray of shape (n_rows, n_choices)
        Out of sample, and what came out.
    n_bins : int, default=10

    Returns
    -------
    float
    """
    n_bins = min(n_bins, len(estimate))
    first = np.arange(n_bins) * len(estimate) // n_bins
    counts = np.diff(first, append=len(estimate))
    at_random = np.random.RandomState(0).permutation(len(estimate))
    agree = []
    for e, q in zip(estimate[at_random].T, quality[at_random].T):
        order = np.argsort(e, kind="stable")
        mean, expected, squares = (
            np.add.reduceat(values[order], first) / counts for values in (q, e, q**2)
        )
        spread = np.maximum(squares - mean**2, 0.0)
        low, high = q.min(), q.max()
        if np.all((q == low) | (q == high)):
            # The spread that the estimates imply, where outcomes happen to be all alike.
            spread = np.maximum(spread, (expected - low) * (high - expected))
        rounding = 1e-9 * max(abs(low), abs(high))
        agree.append(abs(mean - expected) <= 1.96 * np.sqrt(spread / counts) + rounding)
    return float(np.mean(agree))


def standard_error(values):
    """Of the mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.inf


def beyond_noise(lead):
    """Whether a mean is above zero by more than two standard errors."""
    return lead.mean() > 2 * standard_error(lead)
