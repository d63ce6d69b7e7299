"""How far to go: calibration on rows that nothing else has looked at."""

from bisect import bisect_right
from typing import Any, NamedTuple

import numpy as np

from skroute.base import affords, check_affordable
from skroute.guarantees import fixed_sequence_test
from skroute.guarantees._means import share_upper_bound


class Tradeoff(NamedTuple):
    """What each set of thresholds does, from cautious to hurried.

    Attributes
    ----------
    thresholds : list of ndarray of shape (2, n_members)
        Lower and upper ones, by position.

    cost : ndarray of shape (n_policies,)
        Mean cost per row.

    disagreement : ndarray of shape (n_policies,)
        Share of rows answered differently from the full ensemble.

    chosen : int
        Which one is in use.
    """

    thresholds: Any
    cost: Any
    disagreement: Any
    chosen: int

    def __repr__(self):
        first, last, chosen = (
            f"cost {self.cost[k]:.4g} and disagreement {self.disagreement[k]:.2%}"
            for k in (0, -1, self.chosen)
        )
        return (
            f"<Tradeoff of {len(self.cost)} sets of thresholds, from {first} to {last}; "
            f"number {self.chosen} is in use: {chosen}>"
        )


def held_out_share(calibration, X_calibration, guarantee):
    """Share of the rows to hold out: none where the caller gives rows of their own."""
    share = float(calibration or 0.0) if X_calibration is None else 0.0
    if guarantee and X_calibration is None and not share:
        raise ValueError(
            "guarantee=True needs calibration rows that nothing else has used, got "
            f"calibration={calibration!r}. Hold out a share such as calibration=0.25, "
            "or pass X_calibration."
        )
    return share


def hold_out(n, share, rng, y):
    """Positions of the rows to fit on and of those held out, with the same shares of answers.

    One row at least of each answer in `y` is kept to fit on. The second is None where `share`, of
    `n` rows, is 0; else it has one row at least, and not all.
    """
    if not share or n < 2:
        return np.arange(n), None
    order = rng.permutation(n)
    first = np.unique(y[order], return_index=True)[1]
    kept, rest = order[first], np.delete(order, first)
    n_held_out = min(max(1, round(share * n)), n - 1)
    if n_held_out >= len(rest):
        order = np.concatenate([kept, rest])
        return np.sort(order[: n - n_held_out]), np.sort(order[n - n_held_out :])
    # Every so many rows of each answer: all rows of it are equally likely.
    rest = rest[np.argsort(y[rest], kind="stable")]
    at = (np.arange(n_held_out) + rng.uniform()) * (len(rest) / n_held_out)
    held_out = np.zeros(len(rest), dtype=bool)
    held_out[np.minimum(at.astype(np.intp), len(rest) - 1)] = True
    return np.sort(np.concatenate([kept, rest[~held_out]])), np.sort(rest[held_out])


def allowed_wrong(n_samples, alpha, confidence, guarantee):
    """Wrong answers on calibration rows that are compatible with `alpha`; -1 for too few rows.

    With `guarantee` the upper bound must meet `alpha`, else the expectation
    (``(k + 1) / (n + 1) <= alpha``, conformal risk control).
    """
    if not guarantee:
        return int(np.floor(alpha * (n_samples + 1) + 1e-9)) - 1

    def bound(wrong):
        return share_upper_bound(wrong, n_samples, confidence=confidence)

    return bisect_right(range(n_samples + 1), alpha, key=bound) - 1


def fewest_rows(alpha, confidence, guarantee):
    """Calibration rows that it takes for any thresholds, all of them right, to keep `alpha`."""
    if alpha <= 0:
        return np.inf
    if guarantee:
        return int(np.ceil(np.log1p(-confidence) / np.log1p(-min(alpha, 1 - 1e-12)) - 1e-9))
    return int(np.ceil(1 / alpha - 1e-9)) - 1


def last_accepted(n_wrong, allowed):
    """Return the last policy before the first that makes too many errors, -1 if the first does.

    Policies are tested in an order that was fixed beforehand, from the most cautious on. A test
    counts errors: its p-value is at most its level exactly if the count is at most `allowed`. If
    the true share of the policy returned is above the limit that belongs to `allowed`, then so is
    that of the first such policy in the sequence, and that one passed by chance. The limit of a
    single test thus holds for the whole search.

    Parameters
    ----------
    n_wrong : ndarray of shape (n_policies, n_limits)
        Errors on the calibration rows, of all answers or of each.

    allowed : ndarray of shape (n_limits,)
        Largest number of errors with which a policy is accepted.

    Returns
    -------
    int
    """
    too_many = np.any(n_wrong > allowed, axis=1)
    # A test that is decided by its count has the p-value 0 or 1 for every level.
    accepted = fixed_sequence_test(too_many.astype(np.float64))
    return int(np.count_nonzero(accepted)) - 1


def affordable(tradeoff, budget):
    """Index of the policy in use, or of the most faithful one that costs at most the budget."""
    chosen, cost = tradeoff.chosen, tradeoff.cost
    if affords(budget, cost[chosen]):
        return chosen
    check_affordable(budget, float(cost.min()))
    within = np.flatnonzero(affords(budget, cost))
    return within[np.argmin(tradeoff.disagreement[within])]
