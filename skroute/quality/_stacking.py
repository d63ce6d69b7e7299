"""Stack the members of a family, with weights selected by their decisions.

A *deviation* is an estimate, or an outcome, less the mean quality of its choice.
Members estimate deviations. A *candidate* is a set of members with fitted weights, with
or without calibration.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from skroute.assignment import assignment_path, choose_at_price
from skroute.quality._corrections import (
    CorrectionCurves,
    OutcomeRange,
    fit_corrections,
    range_of,
)
from skroute.quality._members import weigh_outputs
from skroute.utils._statistics import standard_error
from skroute.utils._tolerances import TIE

# Budgets at which decisions are compared: 0 is the cost of the cheapest choice, 1 that
# of the choice of best mean quality.
SHARES = np.array([0.1, 0.25, 0.5, 0.75, 1.0])
# Ridge penalty on the weights, relative to the mean square of the members.
_PENALTY = 0.02
# Largest weight. Where estimates hardly vary, least squares would multiply their
# rounding.
_LARGEST_WEIGHT = 2.0
# A lead above this many standard errors is beyond noise.
_ERRORS_OF_LEAD = 2
# Name of the candidates of all members together.
_STACK = "stack"


# Rows and their weights ---------------------------------------------------------------


def mean_of(values, weight=None):
    """Return means over rows, the first axis, where each row counts by its weight."""
    if weight is None:
        return values.mean(axis=0)
    return np.average(values, axis=0, weights=weight)


def weights_of_rows(weight, rows):
    """Return the weights of some rows, or None if all rows weigh one."""
    return None if weight is None else weight[rows]


def beyond_noise(lead, weight=None):
    """Return True if a mean is above zero by more than two standard errors."""
    # The standard error of a single row is NaN: the comparison is then False.
    return mean_of(lead, weight) > _ERRORS_OF_LEAD * standard_error(lead, weight)


# Weights of members -------------------------------------------------------------------


class MemberWeights(NamedTuple):
    """Weights of the members in the estimate.

    Attributes
    ----------
    difference : ndarray of shape (n_members,)
        Weights of the differences between the choices of a row.
    level : ndarray of shape (n_members,)
        Weights of the mean over the choices of a row.
    """

    difference: np.ndarray
    level: np.ndarray

    @classmethod
    def zeros(cls, n_members):
        """Return weights of zero."""
        return cls(np.zeros(n_members), np.zeros(n_members))

    def used_members(self):
        """Return the positions of the members that have a weight."""
        return np.flatnonzero((self.difference != 0) | (self.level != 0))

    def taken(self, members):
        """Return the weights of some members."""
        return MemberWeights(self.difference[members], self.level[members])

    def weigh(self, deviations):
        """Return the weighted sum of the deviations that the members estimate.

        Parameters
        ----------
        deviations : ndarray of shape (n_members, n_rows, n_choices)

        Returns
        -------
        ndarray of shape (n_rows, n_choices)
        """
        level = self.level[:, None, None]
        difference = self.difference[:, None, None]
        return weigh_outputs(deviations, level, difference).sum(axis=0)


def stacked_weights(deviations, outcome_deviations, members, row_weight=None):
    """Fit weights of at least zero by least squares, for differences and for the level.

    Parameters
    ----------
    deviations : ndarray of shape (n_members, n_rows, n_choices)
        Out-of-fold estimates of the members.
    outcome_deviations : ndarray of shape (n_rows, n_choices)
        Deviations of the outcomes.
    members : list of int
        Members that may have weight. The others have weight 0.
    row_weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    MemberWeights
    """
    used = deviations[members]
    if row_weight is not None:
        root = np.sqrt(row_weight)[:, None]
        used = root * used
        outcome_deviations = root * outcome_deviations
    level = used.mean(axis=2)  # (n_used, n_rows)
    outcome_level = outcome_deviations.mean(axis=1)
    difference = (used - level[..., None]).reshape(len(used), -1)
    outcome_difference = (outcome_deviations - outcome_level[:, None]).ravel()
    weights = MemberWeights.zeros(len(deviations))
    weights.difference[members] = _non_negative_ridge(difference, outcome_difference)
    weights.level[members] = _non_negative_ridge(level, outcome_level)
    return weights


def _non_negative_ridge(columns, target):
    """Return the coefficients of a ridge regression with coefficients from 0 to 2.

    Parameters
    ----------
    columns : ndarray of shape (n_columns, n_entries)
    target : ndarray of shape (n_entries,)

    Returns
    -------
    ndarray of shape (n_columns,)
    """
    n_columns = len(columns)
    mean_square = (columns**2).sum() / n_columns
    if mean_square <= 0:
        return np.zeros(n_columns)
    gram = columns @ columns.T / mean_square + _PENALTY * np.eye(n_columns)
    products = columns @ target / mean_square
    # With gram = root.T @ root, the penalised problem is plain least squares on `root`.
    root = np.linalg.cholesky(gram).T
    coef, _ = nnls(root, np.linalg.solve(root.T, products))
    return np.minimum(coef, _LARGEST_WEIGHT)


# Gain of decisions --------------------------------------------------------------------


def supposed_costs(quality):
    """Return evenly spaced costs that rise with the mean quality of the choices."""
    order = np.argsort(quality.mean(axis=0), kind="stable")
    costs = np.empty(quality.shape[1])
    costs[order] = np.arange(1, len(costs) + 1)
    return costs


def cost_of_choices(costs, quality):
    """Return one cost for each choice.

    Parameters
    ----------
    costs : array-like of shape (n_choices,) or (n_rows, n_choices), or None
        None takes :func:`supposed_costs`.
    quality : ndarray of shape (n_rows, n_choices)

    Returns
    -------
    ndarray of shape (n_choices,)
    """
    if costs is None:
        return supposed_costs(quality)
    costs = np.asarray(costs, dtype=np.float64)
    return costs.mean(axis=0) if costs.ndim == 2 else costs


def gain_over_mix(estimate, quality, costs, weight=None):
    """Return the gain of deciding by estimates over the best random mix of equal spend.

    It is a mean over five budgets between the cheapest choice and the best one. They
    are spent as routers spend them: at the dual price for these estimates, where rows
    that are tied at the price are mixed. The decisions do not use the outcomes of the
    rows.

    Parameters
    ----------
    estimate : ndarray of shape (n_rows, n_choices)
        Out-of-fold estimates.
    quality : ndarray of shape (n_rows, n_choices)
        Outcomes of the same rows.
    costs : ndarray of shape (n_choices,)
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    ndarray of shape (n_rows,)
        Gain of each row. A tied row has the mean gain of its two choices.
    """
    path = assignment_path(estimate, costs, weight=weight)
    hull = _hull_of_means(mean_of(quality, weight), costs)
    total = np.zeros(len(quality))
    for budget in _compared_budgets(costs, hull):
        decisions = _decide(path.rule(budget), estimate, costs)
        total += decisions.quality(quality)
        spent = decisions.mean_cost(costs, weight)
        total -= _quality_of_mix(quality, hull, costs, spent)
    return total / len(SHARES)


class _Decisions(NamedTuple):
    """The choices at a budget, where tied rows are mixed.

    Attributes
    ----------
    cheaper : ndarray of shape (n_rows,), dtype=intp
        Choice of each row if ties take the cheaper choice.
    more_expensive : ndarray of shape (n_rows,), dtype=intp
        Choice of each row if ties take the more expensive choice.
    share : float
        Share of the second.
    """

    cheaper: np.ndarray
    more_expensive: np.ndarray
    share: float

    def quality(self, quality):
        """Return the expected quality of each row."""
        rows = np.arange(len(quality))
        expected = (1 - self.share) * quality[rows, self.cheaper]
        return expected + self.share * quality[rows, self.more_expensive]

    def mean_cost(self, costs, weight):
        """Return the expected cost per row."""
        expected = (1 - self.share) * mean_of(costs[self.cheaper], weight)
        return expected + self.share * mean_of(costs[self.more_expensive], weight)


def _decide(rule, estimate, costs):
    """Return the decisions at the dual price of a budget.

    Parameters
    ----------
    rule : skroute.assignment._path.Rule
    estimate : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_choices,)

    Returns
    -------
    _Decisions
    """
    cheaper = choose_at_price(estimate, costs, rule.price)
    more_expensive = cheaper
    if rule.share:
        # A negative tolerance breaks ties towards the more expensive choice.
        more_expensive = choose_at_price(estimate, costs, rule.price, tolerance=-TIE)
    return _Decisions(cheaper, more_expensive, rule.share)


def _compared_budgets(costs, hull):
    """Return the budgets at which decisions are compared.

    They lie between the cheapest cost and that of the best choice, the last one of the
    hull. If the best choice is the cheapest one, they lie between the extremes of the
    costs.
    """
    low = costs.min()
    high = costs[hull[-1]]
    if high <= low:
        high = costs.max()
    return low + SHARES * (high - low)


def _hull_of_means(mean, costs):
    """Return the choices whose random mixes have the best mean quality, by rising cost.

    Parameters
    ----------
    mean : ndarray of shape (n_choices,)
        Mean quality of each choice.
    costs : ndarray of shape (n_choices,)

    Returns
    -------
    list of int
    """
    hull = []
    # By rising cost; of choices at one cost, the best one first.
    for choice in np.lexsort((-mean, costs)):
        while len(hull) > 1 and not _is_above(
            hull[-1], left=hull[-2], right=choice, costs=costs, mean=mean
        ):
            hull.pop()
        if not hull or mean[choice] > mean[hull[-1]]:
            hull.append(choice)
    return hull


def _is_above(middle, left, right, costs, mean):
    """Return True if a choice is better than a mix of two others at its cost.

    The slope from `left` to `middle` is compared with that from `left` to `right`. Both
    are multiplied by the two differences of cost, which may be zero.
    """
    slope_to_right = (mean[right] - mean[left]) * (costs[middle] - costs[left])
    slope_to_middle = (mean[middle] - mean[left]) * (costs[right] - costs[left])
    return slope_to_middle > slope_to_right


def _quality_of_mix(quality, hull, costs, spent):
    """Return the expected quality of each row under the random mix that spends `spent`.

    Parameters
    ----------
    quality : ndarray of shape (n_rows, n_choices)
    hull : list of int
        Choices by rising cost, see :func:`_hull_of_means`.
    costs : ndarray of shape (n_choices,)
    spent : float
        Mean cost per row.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    # Position along the hull: 1.25 is a quarter of the way from its second to its third
    # choice.
    place = np.interp(spent, costs[hull], np.arange(len(hull)))
    cheaper = hull[int(place)]
    more_expensive = hull[int(np.ceil(place))]
    share = place % 1
    return (1 - share) * quality[:, cheaper] + share * quality[:, more_expensive]


# Selection of weights -----------------------------------------------------------------


class Compared(NamedTuple):
    """Out-of-fold results of the stack or of one member of the family.

    Attributes
    ----------
    name : str
        Name of the member, or ``"stack"`` for all together.
    gain : float
        Mean quality over the best random mix at equal spend, mean of five budgets.
    gain_se : float
        Standard error of `gain`.
    difference : float
        Weight of the member in what tells the choices of a row apart. For ``"stack"``
        the sum.
    level : float
        Weight of the member in the mean over choices. For ``"stack"`` the sum.
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
    weights : MemberWeights
        All are zero if the means are the estimate.
    curves : CorrectionCurves or None
        Corrections of the weighted sum. None: it is not corrected.
    limits : OutcomeRange
        Range and unit of the estimates.
    """

    mean: np.ndarray
    weights: MemberWeights
    curves: CorrectionCurves | None
    limits: OutcomeRange

    def estimate(self, deviations):
        """Return the estimates of rows.

        Parameters
        ----------
        deviations : ndarray of shape (n_members, n_rows, n_choices)

        Returns
        -------
        ndarray of shape (n_rows, n_choices)
        """
        if not len(self.weights.used_members()):
            return np.tile(self.mean, (deviations.shape[1], 1))
        estimate = self.mean + self.weights.weigh(deviations)
        if self.curves is not None:
            estimate = self.curves.apply(estimate)
        return self.limits.limit(estimate)


class Selection(NamedTuple):
    """The combinations that all rows select, and the rows outside of each fold.

    Attributes
    ----------
    combination : Combination
        The combination that all rows select.
    by_fold : list of Combination
        For each fold, the combination that the rows of the other folds select.
    estimate : ndarray of shape (n_rows, n_choices)
        Estimates of each row by the combination of its fold.
    compared : list of Compared
        Results of the stack and of each member.
    """

    combination: Combination
    by_fold: list[Combination]
    estimate: np.ndarray
    compared: list[Compared]

    def estimates_by_fold(self, deviations):
        """Return the estimates of all rows by the combination of each fold.

        Parameters
        ----------
        deviations : ndarray of shape (n_members, n_rows, n_choices)

        Returns
        -------
        ndarray of shape (n_folds, n_rows, n_choices)
        """
        tables = [combination.estimate(deviations) for combination in self.by_fold]
        return np.stack(tables)


class Candidate(NamedTuple):
    """A set of members, with or without calibration, and its out-of-fold results.

    Attributes
    ----------
    members : list of int
        Members that may have weight.
    is_corrected : bool
        Whether calibration curves are applied.
    deviation : ndarray of shape (n_rows, n_choices)
        Weighted sums of the members, with the weights of the other folds.
    estimate : ndarray of shape (n_rows, n_choices)
        Estimates, with the weights and the curves of the other folds.
    gain : ndarray of shape (n_rows,)
        Gain over the best random mix, see :func:`gain_over_mix`.
    """

    members: list[int]
    is_corrected: bool
    deviation: np.ndarray
    estimate: np.ndarray
    gain: np.ndarray

    def mean_gain(self, rows, weight):
        """Return the mean gain of some rows, weighted by `weight`."""
        return mean_of(self.gain[rows], weight)

    def squared_error(self, quality, rows, weight):
        """Return the mean squared error on some rows, weighted by `weight`."""
        squares = (self.estimate - quality)[rows] ** 2
        if weight is None:
            return float(squares.mean())
        return float(np.average(squares.mean(axis=1), weights=weight))


class _Split(NamedTuple):
    """One fold.

    Attributes
    ----------
    rows : ndarray of int
        Rows of the fold.
    rest : ndarray of int
        Rows of the other folds.
    """

    rows: np.ndarray
    rest: np.ndarray


class _Table(NamedTuple):
    """Out-of-fold estimates of the members, and the outcomes of the same rows.

    Attributes
    ----------
    deviations : ndarray of shape (n_members, n_rows, n_choices)
        Deviations that the members estimate.
    outcome_deviations : ndarray of shape (n_rows, n_choices)
        Deviations of the outcomes.
    quality : ndarray of shape (n_rows, n_choices)
        The outcomes.
    weight : ndarray of shape (n_rows,), or None
        Weights of the rows. None weights all alike.
    limits : OutcomeRange
        Range and unit of the outcomes of all rows.
    """

    deviations: np.ndarray
    outcome_deviations: np.ndarray
    quality: np.ndarray
    weight: np.ndarray | None
    limits: OutcomeRange

    def mean(self, rows):
        """Return the mean quality of each choice on some rows."""
        return mean_of(self.quality[rows], weights_of_rows(self.weight, rows))

    def fit_weights(self, members, rows):
        """Return weights of some members that are fitted on some rows."""
        return stacked_weights(
            self.deviations[:, rows],
            self.outcome_deviations[rows],
            members=members,
            row_weight=weights_of_rows(self.weight, rows),
        )

    def fit_curves(self, deviation, rows):
        """Return calibration curves of weighted sums that are fitted on some rows.

        Parameters
        ----------
        deviation : ndarray of shape (n_all_rows, n_choices)
            Weighted sums of members, for all rows.
        rows : ndarray of int or slice
            Rows that the curves are fitted on.

        Returns
        -------
        CorrectionCurves
        """
        return fit_corrections(
            self.mean(rows) + deviation[rows],
            self.quality[rows],
            weight=weights_of_rows(self.weight, rows),
        )


def choose_weights(
    names,
    deviations,
    outcome_deviations,
    quality,
    folds,
    costs,
    sizes=1.0,
    row_weight=None,
):
    """Stack a family, or take one member if its lead is beyond noise.

    Weights and corrections are compared out of fold: those of each fold are fitted on
    the other folds.

    Parameters
    ----------
    names : list of str
        Names of the members.
    deviations : ndarray of shape (n_members, n_rows, n_choices)
        Out-of-fold deviations that the members estimate.
    outcome_deviations : ndarray of shape (n_rows, n_choices)
        Outcomes less the means that the deviations are from.
    quality : ndarray of shape (n_rows, n_choices)
        The outcomes.
    folds : list of ndarray of int
        The rows of each fold.
    costs : ndarray of shape (n_choices,)
    sizes : ndarray of shape (n_choices,), default=1.0
        Divisors of the outcomes (:func:`~skroute.quality._corrections.sizes_of`).
        Squared errors are those of the divided outcomes. Decisions are those of the
        outcomes times `sizes`.
    row_weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    Selection
    """
    table = _Table(
        deviations, outcome_deviations, quality, row_weight, range_of(quality)
    )
    splits = _splits_of(folds, len(quality))
    all_members = list(range(len(names)))
    # For each name the candidate as it is, and the corrected one.
    candidates = {_STACK: _candidates(all_members, table, splits, costs, sizes)}
    for member, name in enumerate(names):
        candidates[name] = _candidates([member], table, splits, costs, sizes)
    by_fold = []
    estimate = np.empty(quality.shape)
    for split in splits:
        combination = _select(candidates, table, split.rest)
        estimate[split.rows] = combination.estimate(deviations[:, split.rows])
        by_fold.append(combination)
    combination = _select(candidates, table, slice(None))
    compared = _compare(candidates, table, combination.weights)
    return Selection(combination, by_fold, estimate, compared)


def _splits_of(folds, n_rows):
    """Return the rows inside and outside of each fold."""
    splits = []
    for rows in folds:
        splits.append(_Split(rows, rest=np.setdiff1d(np.arange(n_rows), rows)))
    return splits


def _candidates(members, table, splits, costs, sizes):
    """Return the candidates of a set of members: without and with calibration.

    Parameters
    ----------
    members : list of int
    table : _Table
    splits : list of _Split
    costs, sizes
        As in :func:`choose_weights`.

    Returns
    -------
    list of two Candidate
    """
    deviation = np.empty(table.quality.shape)
    for rows, rest in splits:
        weights = table.fit_weights(members, rest)
        deviation[rows] = weights.weigh(table.deviations[:, rows])
    corrected = np.empty(table.quality.shape)
    for rows, rest in splits:
        curves = table.fit_curves(deviation, rest)
        corrected[rows] = curves.apply(table.mean(rest) + deviation[rows])
    means = table.quality - table.outcome_deviations
    plain = means + deviation

    candidates = []
    for is_corrected, estimate in ((False, plain), (True, corrected)):
        estimate = table.limits.limit(estimate)
        gain = gain_over_mix(
            estimate * sizes, table.quality * sizes, costs=costs, weight=table.weight
        )
        candidates.append(Candidate(members, is_corrected, deviation, estimate, gain))
    return candidates


def _select(candidates, table, rows):
    """Return the combination that some rows select, fitted on these rows.

    Parameters
    ----------
    candidates : dict of list of Candidate
        Candidates of the stack and of each member.
    table : _Table
    rows : ndarray of int or slice

    Returns
    -------
    Combination
    """
    best = _best_candidate(candidates, table, rows)
    if best is None:
        weights = MemberWeights.zeros(len(table.deviations))
        return Combination(table.mean(rows), weights, None, table.limits)
    weights = table.fit_weights(best.members, rows)
    curves = None
    if best.is_corrected and len(weights.used_members()):
        curves = table.fit_curves(best.deviation, rows)
    return Combination(table.mean(rows), weights, curves, table.limits)


def _best_candidate(candidates, table, rows):
    """Return the best candidate on some rows, or None if it is worse than a random mix.

    A member is better than the stack only if its lead is beyond noise.
    """
    weight = weights_of_rows(table.weight, rows)
    best = _most_accurate(candidates[_STACK], table, rows)
    ahead = []
    for pair in candidates.values():
        for candidate in pair:
            lead = candidate.gain - best.gain
            if beyond_noise(lead[rows], weight):
                ahead.append(candidate)
    if ahead:
        best = max(ahead, key=lambda candidate: candidate.mean_gain(rows, weight))
    if best.mean_gain(rows, weight) < 0:
        return None
    return best


def _most_accurate(candidates, table, rows):
    """Return the candidate of the smallest squared error on some rows."""
    weight = weights_of_rows(table.weight, rows)
    return min(
        candidates,
        key=lambda candidate: candidate.squared_error(table.quality, rows, weight),
    )


def _compare(candidates, table, weights):
    """Return the results of the stack and of each member.

    Parameters
    ----------
    candidates : dict of list of Candidate
    table : _Table
    weights : MemberWeights
        Those of the combination that all rows select.

    Returns
    -------
    list of Compared
    """
    compared = []
    for name, pair in candidates.items():
        members = pair[0].members
        gain = _most_accurate(pair, table, rows=slice(None)).gain
        compared.append(
            Compared(
                name=name,
                gain=float(mean_of(gain, table.weight)),
                gain_se=standard_error(gain, table.weight),
                difference=float(weights.difference[members].sum()),
                level=float(weights.level[members].sum()),
            )
        )
    return compared
