"""Stack several estimators, with weights selected by the gain of their decisions.

A *deviation* is an estimate, or an outcome, less the mean quality of its choice.
Members estimate deviations. A *candidate* is a set of members with fitted weights, with
or without calibration.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from skroute.quality._corrections import (
    CorrectionCurves,
    OutcomeRange,
    fit_corrections,
    range_of,
)
from skroute.quality._gains import gain_over_mix
from skroute.quality._members import weigh_outputs
from skroute.quality._row_means import beyond_noise, mean_of, weights_of_rows
from skroute.utils._statistics import standard_error

# Ridge penalty on the weights, relative to the mean square of the members' estimates.
# This small penalty makes members that are almost equal share their weight. It hardly
# shrinks the sum of the weights.
_PENALTY = 0.02
# Largest weight of a member. If its estimates hardly vary, least squares may find a
# very large weight, which multiplies rounding. Weights usually sum to about 1.
_LARGEST_WEIGHT = 2.0
# Name of the candidates that use all members together. Other candidates have the name
# of their only member.
_STACK = "stack"


# Fits of the weights of members -------------------------------------------------------


class MemberWeights(NamedTuple):
    """Weights of the members of a family in a stacked estimate.

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
        """Return weights of zero for all members."""
        return cls(np.zeros(n_members), np.zeros(n_members))

    def used_members(self):
        """Return the positions of the members with a weight above 0, (n_used,)."""
        return np.flatnonzero((self.difference != 0) | (self.level != 0))

    def taken(self, members):
        """Return the weights of the members at the positions `members`, (n_taken,)."""
        return MemberWeights(self.difference[members], self.level[members])

    def weigh(self, deviations):
        """Return the weighted sum of the members' estimates of quality less its mean.

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
    """Fit non-negative weights of members by ridge regression on out-of-fold estimates.

    The level of a row is the mean over its choices. The differences of a row are its
    choices less the level. There is one regression for levels and one for differences.
    Each member has a weight in both.

    Parameters
    ----------
    deviations : ndarray of shape (n_members, n_rows, n_choices)
        Out-of-fold estimates of the members.
    outcome_deviations : ndarray of shape (n_rows, n_choices)
        Deviations of the outcomes.
    members : list of int
        Positions of the members that may have weight. The others have weight 0.
    row_weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    MemberWeights
    """
    estimates = deviations[members]  # (n_used, n_rows, n_choices)
    if row_weight is not None:
        # Least squares with weights are least squares without weights, after each row
        # is multiplied by the root of its weight.
        root_weight = np.sqrt(row_weight)[:, None]
        estimates = root_weight * estimates
        outcome_deviations = root_weight * outcome_deviations
    level = estimates.mean(axis=2)  # (n_used, n_rows)
    outcome_level = outcome_deviations.mean(axis=1)
    # Estimates of all rows and choices less the level of the row, one after another in
    # one axis. (n_used, n_rows * n_choices)
    difference = (estimates - level[..., None]).reshape(len(estimates), -1)
    # Outcomes less the level of the row, (n_rows * n_choices,).
    outcome_difference = (outcome_deviations - outcome_level[:, None]).ravel()
    # The weights of `members` are replaced in place. Weights of other members stay 0.
    weights = MemberWeights.zeros(len(deviations))
    weights.difference[members] = _non_negative_ridge(difference, outcome_difference)
    weights.level[members] = _non_negative_ridge(level, outcome_level)
    return weights


def _non_negative_ridge(estimates, target):
    """Return ridge regression weights of members, each from 0 to `_LARGEST_WEIGHT`.

    Parameters
    ----------
    estimates : ndarray of shape (n_members, n_entries)
        Estimates of each member: an entry for each row, or for each row and choice.
    target : ndarray of shape (n_entries,)
        Outcomes that the weighted sum of the estimates is fitted to.

    Returns
    -------
    ndarray of shape (n_members,)
    """
    n_members = len(estimates)
    mean_square = (estimates**2).sum() / n_members
    if mean_square <= 0:
        # All estimates are 0: no member has weight.
        return np.zeros(n_members)
    gram = estimates @ estimates.T / mean_square + _PENALTY * np.eye(n_members)
    products = estimates @ target / mean_square
    # With gram = triangle.T @ triangle, the ridge regression is plain least squares of
    # `triangle_target` on `triangle`, which `nnls` can solve.
    triangle = np.linalg.cholesky(gram).T
    triangle_target = np.linalg.solve(triangle.T, products)
    # The second result, the length of the residual, is not used.
    coef, _ = nnls(triangle, triangle_target)
    return np.minimum(coef, _LARGEST_WEIGHT)


# Selection of a candidate: members, weights and curves --------------------------------


class Compared(NamedTuple):
    """Out-of-fold results of the stack or of one member of the family.

    Attributes
    ----------
    name : str
        Name of the member, or ``"stack"`` for all members together.
    gain : float
        Mean quality over the best random mix at equal spend, mean of five budgets.
    gain_se : float
        Standard error of `gain`.
    difference : float
        Weight of the member's differences between the choices of a row. For ``"stack"``
        the sum over all members.
    level : float
        Weight of the member's mean over the choices of a row. For ``"stack"`` the sum
        over all members.
    """

    name: str
    gain: float
    gain_se: float
    difference: float
    level: float


class Combination(NamedTuple):
    """Weights and corrections that turn the members' estimates into one estimate.

    Attributes
    ----------
    mean : ndarray of shape (n_choices,)
        Mean quality of each choice.
    weights : MemberWeights
        All are zero if the means are the estimate.
    curves : CorrectionCurves or None
        Calibration curves. None: the weighted sum is the estimate.
    limits : OutcomeRange
        Range and unit of the estimates.
    """

    mean: np.ndarray
    weights: MemberWeights
    curves: CorrectionCurves | None
    limits: OutcomeRange

    def estimate(self, deviations):
        """Return estimates of quality from those of the members: quality less its mean.

        Parameters
        ----------
        deviations : ndarray of shape (n_members, n_rows, n_choices)

        Returns
        -------
        ndarray of shape (n_rows, n_choices)
        """
        if not len(self.weights.used_members()):
            # No member has weight: each row gets the mean of each choice.
            return np.tile(self.mean, (deviations.shape[1], 1))
        estimate = self.mean + self.weights.weigh(deviations)
        if self.curves is not None:
            estimate = self.curves.apply(estimate)
        return self.limits.limit(estimate)


class Selection(NamedTuple):
    """Weights and corrections, selected by all rows, and by the rows outside each fold.

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
        """Return estimates of all rows, by the combination selected without each fold.

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
        Positions of the members that may have weight.
    is_corrected : bool
        Whether calibration curves are applied.
    deviation : ndarray of shape (n_rows, n_choices)
        Weighted sums of the members, with weights that are fitted on the other folds.
    estimate : ndarray of shape (n_rows, n_choices)
        Estimates, with weights and curves that are fitted on the other folds.
    gain : ndarray of shape (n_rows,)
        Gain over the best random mix, see :func:`gain_over_mix`.
    """

    members: list[int]
    is_corrected: bool
    deviation: np.ndarray
    estimate: np.ndarray
    gain: np.ndarray

    def mean_gain(self, rows, weight):
        """Return the mean gain over the random mix on some rows.

        `rows` is an array of positions or a slice. `weight` has the weights of these
        rows. None weights all alike.
        """
        return mean_of(self.gain[rows], weight)

    def squared_error(self, quality, rows, weight):
        """Return the mean squared error on some rows.

        Parameters
        ----------
        quality : ndarray of shape (n_all_rows, n_choices)
            The outcomes.
        rows : ndarray of int or slice
        weight : ndarray of shape (n_rows,), or None
            Weights of these rows. None weights all alike.
        """
        squares = (self.estimate - quality)[rows] ** 2
        if weight is None:
            return float(squares.mean())
        return float(np.average(squares.mean(axis=1), weights=weight))


class _Split(NamedTuple):
    """The rows inside and outside of one fold.

    Attributes
    ----------
    rows : ndarray of int
        Positions of the rows of the fold.
    rest : ndarray of int
        Positions of the rows of the other folds.
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
        Outcomes less the mean of each choice over the rows outside the row's fold.
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
        """Return the mean quality of each choice on some rows, shape (n_choices,).

        `rows` is an array of positions or a slice.
        """
        return mean_of(self.quality[rows], weights_of_rows(self.weight, rows))

    def fit_weights(self, members, rows):
        """Return weights of all members (`MemberWeights`), fitted on some rows.

        `members` has the positions of the members that may have weight. The weights of
        other members are 0.
        """
        return stacked_weights(
            self.deviations[:, rows],
            self.outcome_deviations[rows],
            members=members,
            row_weight=weights_of_rows(self.weight, rows),
        )

    def fit_curves(self, deviation, rows):
        """Fit calibration curves on some rows, for the weighted sum of the members.

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
    divisors=1.0,
    row_weight=None,
):
    """Fit weights of all members, or select one member if it is significantly better.

    Weights and corrections are compared out of fold: for each fold they are fitted on
    the other folds.

    Parameters
    ----------
    names : list of str
        Names of the members.
    deviations : ndarray of shape (n_members, n_rows, n_choices)
        Out-of-fold estimates of `outcome_deviations` by the members.
    outcome_deviations : ndarray of shape (n_rows, n_choices)
        `quality` less the mean of each choice over the rows outside the row's fold.
    quality : ndarray of shape (n_rows, n_choices)
        The outcomes, already divided by `divisors`.
    folds : list of ndarray of int
        Positions of the rows of each fold.
    costs : ndarray of shape (n_choices,)
        Costs of the choices, for the decisions by which candidates are compared.
    divisors : ndarray of shape (n_choices,), default=1.0
        The numbers that the user's outcomes were divided by to get `quality`, see
        :func:`~skroute.quality._corrections.outcome_divisors`. Decisions are compared
        in the user's unit: estimates and `quality` are multiplied by `divisors`.
        Squared errors are compared in the unit of `quality`. 1.0: the outcomes were not
        divided.
    row_weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    Selection
    """
    table = _Table(
        deviations=deviations,
        outcome_deviations=outcome_deviations,
        quality=quality,
        weight=row_weight,
        limits=range_of(quality),
    )
    splits = _splits_of(folds, len(quality))
    all_members = list(range(len(names)))
    # For the stack and for each member, by name: the candidate without calibration,
    # then the candidate with calibration.
    candidates = {
        _STACK: _candidates(all_members, table, splits, costs=costs, divisors=divisors)
    }
    for member, name in enumerate(names):
        candidates[name] = _candidates(
            [member], table, splits, costs=costs, divisors=divisors
        )
    by_fold = []
    estimate = np.empty(quality.shape)
    for split in splits:
        combination_of_fold = _select(candidates, table, split.rest)
        estimate[split.rows] = combination_of_fold.estimate(deviations[:, split.rows])
        by_fold.append(combination_of_fold)
    combination = _select(candidates, table, slice(None))  # all rows
    compared = _compare(candidates, table, combination.weights)
    return Selection(combination, by_fold=by_fold, estimate=estimate, compared=compared)


def _splits_of(folds, n_rows):
    """Return the rows inside and outside of each fold, a list of `_Split`.

    `folds` is a list of arrays, with the positions of the rows of each fold.
    """
    all_rows = np.arange(n_rows)
    splits = []
    for rows in folds:
        splits.append(_Split(rows, rest=np.setdiff1d(all_rows, rows)))
    return splits


def _candidates(members, table, splits, costs, divisors):
    """Return the candidates of a set of members: without and with calibration.

    Parameters
    ----------
    members : list of int
        Positions of the members of the set.
    table : _Table
    splits : list of _Split
    costs : ndarray of shape (n_choices,)
        As in `choose_weights`.
    divisors : ndarray of shape (n_choices,) or float
        Estimates and outcomes times `divisors` are in the user's unit, in which
        decisions are compared.

    Returns
    -------
    list of two Candidate
    """
    # The weights and the curves of a fold are fitted on the rest of the rows.
    deviation = np.empty(table.quality.shape)
    for rows, rest in splits:
        weights = table.fit_weights(members, rest)
        deviation[rows] = weights.weigh(table.deviations[:, rows])
    corrected = np.empty(table.quality.shape)
    for rows, rest in splits:
        curves = table.fit_curves(deviation, rest)
        corrected[rows] = curves.apply(table.mean(rest) + deviation[rows])
    # For each row, the means of the choices in the other folds: the outcomes, less the
    # outcomes from which these means were subtracted.
    means = table.quality - table.outcome_deviations  # (n_rows, n_choices)
    plain = means + deviation  # estimates without calibration

    candidates = []
    for is_corrected, estimate in ((False, plain), (True, corrected)):
        estimate = table.limits.limit(estimate)
        gain = gain_over_mix(
            estimate * divisors,
            table.quality * divisors,
            costs=costs,
            weight=table.weight,
        )
        candidate = Candidate(
            members,
            is_corrected=is_corrected,
            deviation=deviation,
            estimate=estimate,
            gain=gain,
        )
        candidates.append(candidate)
    return candidates


def _select(candidates, table, rows):
    """Select the best candidate on some rows, and fit it on these rows.

    Parameters
    ----------
    candidates : dict of list of Candidate
        For the stack and for each member, by name: the candidate without calibration,
        then the candidate with calibration.
    table : _Table
    rows : ndarray of int or slice
        The rows that the candidates are compared on.

    Returns
    -------
    Combination
        Its weights are zero if even the best candidate is worse than a random mix.
    """
    best = _best_candidate(candidates, table, rows)
    if best is None:
        # The means are the estimate: no member has weight.
        weights = MemberWeights.zeros(len(table.deviations))
        return Combination(table.mean(rows), weights, curves=None, limits=table.limits)
    weights = table.fit_weights(best.members, rows)
    curves = None  # not corrected
    if best.is_corrected and len(weights.used_members()):
        curves = table.fit_curves(best.deviation, rows)
    return Combination(table.mean(rows), weights, curves=curves, limits=table.limits)


def _best_candidate(candidates, table, rows):
    """Return the best candidate on some rows, or None if it is worse than a random mix.

    The more accurate of the two candidates of the stack is the best, unless others have
    a larger gain, with a lead that is beyond noise. Among these others, the candidate
    with the largest mean gain is the best.

    Parameters
    ----------
    candidates : dict of list of Candidate
        For the stack and for each member, by name: without and with calibration.
    table : _Table
    rows : ndarray of int or slice
        The rows that the candidates are compared on.

    Returns
    -------
    Candidate or None
    """
    weight = weights_of_rows(table.weight, rows)
    best = _most_accurate(candidates[_STACK], table, rows)
    ahead = []
    for pair in candidates.values():
        for candidate in pair:
            lead = candidate.gain - best.gain  # of each row
            if beyond_noise(lead[rows], weight):
                ahead.append(candidate)
    if ahead:
        best = max(ahead, key=lambda candidate: candidate.mean_gain(rows, weight))
    # The random mix has the gain 0.
    if best.mean_gain(rows, weight) < 0:
        return None
    return best


def _most_accurate(candidates, table, rows):
    """Return the candidate with the smallest squared error on some rows.

    Parameters
    ----------
    candidates : list of Candidate
    table : _Table
    rows : ndarray of int or slice
        The rows that the error is computed on.

    Returns
    -------
    Candidate
    """
    weight = weights_of_rows(table.weight, rows)
    return min(
        candidates,
        key=lambda candidate: candidate.squared_error(table.quality, rows, weight),
    )


def _compare(candidates, table, weights):
    """Return out-of-fold gains, and the selected weights, of the stack and each member.

    Parameters
    ----------
    candidates : dict of list of Candidate
        For the stack and for each member, by name: without and with calibration.
    table : _Table
    weights : MemberWeights
        Weights of the combination that all rows select.

    Returns
    -------
    list of Compared
    """
    compared = []
    for name, pair in candidates.items():
        # The candidates with and without calibration have the same members.
        members = pair[0].members
        # The more accurate of the two candidates is reported.
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
