"""Calibration of thresholds on rows that nothing else was learned from."""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from skroute.base import affords, check_affordable
from skroute.guarantees import fixed_sequence_test
from skroute.guarantees._means import share_upper_bound
from skroute.utils._tables import Column, Table, share_column
from skroute.utils._typing import NDArray


class Tradeoff(NamedTuple):
    """Cost and disagreement of each set of thresholds, from cautious to hurried.

    Attributes
    ----------
    thresholds : list of ndarray of shape (2, n_members)
        For each policy the lower and the upper thresholds, by position. A policy is one
        set of thresholds.

    cost : ndarray of shape (n_policies,)
        Mean cost per row.

    disagreement : ndarray of shape (n_policies,)
        Share of rows answered differently from the full ensemble.

    chosen : int
        Index of the set in use.
    """

    thresholds: list[NDArray[np.float64]]
    cost: NDArray[np.float64]
    disagreement: NDArray[np.float64]
    chosen: int

    def __repr__(self):
        return str(self._table())

    def to_frame(self):
        """Return the sets of thresholds as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row for each set, with the columns ``cost``, ``disagreement`` and
            ``chosen``, which is True for the set in use.
        """
        return self._table().to_frame()

    def _table(self):
        """Return cost and disagreement of each set of thresholds as a `Table`."""
        return Table(
            f"Tradeoff: {len(self.cost)} sets of thresholds, from cautious to hurried",
            [
                Column("cost", self.cost, unit="per row"),
                share_column("disagreement", self.disagreement),
                Column("chosen", np.arange(len(self.cost)) == self.chosen),
            ],
        )


def held_out_share(calibration, X_calibration, guarantee):
    """Return the share of the rows to hold out, 0 if the caller gives calibration rows.

    Parameters are those of :class:`~skroute.early_exit.QWYCEnsemble` and its ``fit``.

    Raises
    ------
    ValueError
        If a guarantee is wanted and no rows are held out.
    """
    share = 0.0
    if X_calibration is None and calibration is not None:
        share = float(calibration)
    if guarantee and X_calibration is None and not share:
        raise ValueError(
            "guarantee=True needs calibration rows that nothing else has used, got "
            f"calibration={calibration!r}. Hold out a share such as calibration=0.25, "
            "or pass X_calibration."
        )
    return share


def hold_out(n, share, rng, y):
    """Divide rows into those to fit on and those held out, stratified by answer.

    Parameters
    ----------
    n : int
        Number of rows.

    share : float
        Share of the rows that is held out: at least one row, and not all.

    rng : RandomState
        Draws the rows.

    y : ndarray of shape (n,)
        Answers. If there are enough rows, one row of each is always kept to fit on.

    Returns
    -------
    train : ndarray of int
        Positions of the rows to fit on, sorted.

    held_out : ndarray of int or None
        Positions of the others, sorted. None if `share` is 0 or there is one row only.
    """
    if not share or n < 2:
        return np.arange(n), None
    shuffled = rng.permutation(n)
    # Positions in `shuffled` of the first row with each answer. It is kept to fit on.
    first_of_answer = np.unique(y[shuffled], return_index=True)[1]
    always_train = shuffled[first_of_answer]
    other_rows = np.delete(shuffled, first_of_answer)
    n_held_out = max(1, round(share * n))
    n_held_out = min(n_held_out, n - 1)
    if n_held_out >= len(other_rows):
        # Too few rows: some answers keep no row to fit on.
        shuffled = np.concatenate([always_train, other_rows])
        # `shuffled` starts with a row of each answer. Its first rows are kept.
        n_train = n - n_held_out
        return np.sort(shuffled[:n_train]), np.sort(shuffled[n_train:])
    # Rows are sorted by answer and drawn at equal distances: each answer gets its share
    # of them, and all rows are equally likely.
    other_rows = other_rows[np.argsort(y[other_rows], kind="stable")]
    # Distance between drawn rows, which need not be a whole number.
    distance = len(other_rows) / n_held_out
    drawn = (np.arange(n_held_out) + rng.uniform()) * distance
    # Positions in `other_rows`. Rounding must not lead beyond the last row.
    drawn = np.minimum(drawn.astype(np.intp), len(other_rows) - 1)
    is_held_out = np.zeros(len(other_rows), dtype=bool)
    is_held_out[drawn] = True
    train = np.concatenate([always_train, other_rows[~is_held_out]])
    return np.sort(train), np.sort(other_rows[is_held_out])


# Added before rounding to whole rows, so that a product such as 0.1 * 30 is not just
# below 3.
_ROUNDING = 1e-9
# Larger shares count as this one where log(1 - share) is computed, so that it is
# finite.
_LARGEST_SHARE = 1 - 1e-12


def allowed_wrong(n_samples, alpha, confidence, guarantee):
    """Return the largest number of wrong calibration rows with which `alpha` holds.

    Parameters
    ----------
    n_samples : int
        Number of calibration rows.

    alpha : float
        Share of rows that may be answered otherwise.

    confidence : float
        Confidence of the upper bound.

    guarantee : bool
        If True, the upper bound must meet `alpha`. If False, the expectation must:
        ``(k + 1) / (n + 1) <= alpha`` (conformal risk control).

    Returns
    -------
    int
        -1 if there are too few rows: `alpha` does not hold with any number.
    """
    if not guarantee:
        # The largest `k` with (k + 1) / (n + 1) <= alpha.
        return int(np.floor(alpha * (n_samples + 1) + _ROUNDING)) - 1

    def bound(n_wrong):
        return share_upper_bound(n_wrong, n_samples, confidence=confidence)

    # Bounds grow with the number of wrong rows. The bisection counts the numbers 0, 1,
    # ... with a bound of at most `alpha`. The largest of them is one less.
    return bisect_right(range(n_samples + 1), alpha, key=bound) - 1


def fewest_rows(alpha, confidence, guarantee):
    """Return the least number of calibration rows that can show that `alpha` holds.

    This number is enough if no answer to these rows is wrong. It is infinite if `alpha`
    is 0. Parameters are those of :func:`allowed_wrong`.
    """
    if alpha <= 0:
        return np.inf
    if not guarantee:
        # The least `n` with 1 / (n + 1) <= alpha.
        return int(np.ceil(1 / alpha - _ROUNDING)) - 1
    # The least `n` with (1 - alpha) ** n <= 1 - confidence: the chance that none of `n`
    # rows is wrong if the share of wrong rows is `alpha`.
    n_rows = np.log1p(-confidence) / np.log1p(-min(alpha, _LARGEST_SHARE))
    return int(np.ceil(n_rows - _ROUNDING))


def last_accepted(n_wrong, allowed):
    """Return the index of the last policy before the first one with too many errors.

    Policies are tested in an order that was fixed beforehand, from the most cautious
    on. A policy passes its test if it has at most `allowed` errors. The test is of the
    hypothesis that the policy's true share of errors is above a limit, to which
    `allowed` belongs.

    The level of a single test holds for the whole search. The reason is the first
    policy of the sequence whose true share is above the limit: it is one fixed policy.
    The returned policy can be above the limit only if this one passed its test by
    chance.

    Parameters
    ----------
    n_wrong : ndarray of shape (n_policies, n_limits)
        Errors on the calibration rows: of all answers together (one limit), or of each
        answer.

    allowed : ndarray of shape (n_limits,)
        Largest number of errors with which a policy is accepted.

    Returns
    -------
    int
        -1 if the first policy has too many errors already.
    """
    too_many = np.any(n_wrong > allowed, axis=1)
    # The count alone decides the test. The p-value 0 stands for a policy that passes, 1
    # for a policy with too many errors. At each level, 0 is accepted and 1 is not.
    accepted = fixed_sequence_test(too_many.astype(np.float64))
    return int(np.count_nonzero(accepted)) - 1


def affordable(tradeoff, budget):
    """Return the index of the thresholds in use, or of cheaper ones within a budget.

    If the thresholds in use cost more than the budget, the index is that of the policy
    within the budget that disagrees least with the full ensemble.

    Parameters
    ----------
    tradeoff : Tradeoff
    budget : float
        Mean cost per row.

    Returns
    -------
    int
        Index of a policy of `tradeoff`.

    Raises
    ------
    ValueError
        If each policy costs more than the budget.
    """
    cost = tradeoff.cost
    if affords(budget, cost[tradeoff.chosen]):
        return tradeoff.chosen
    check_affordable(budget, float(cost.min()))
    affordable_policies = np.flatnonzero(affords(budget, cost))
    most_faithful = np.argmin(tradeoff.disagreement[affordable_policies])
    return affordable_policies[most_faithful]
