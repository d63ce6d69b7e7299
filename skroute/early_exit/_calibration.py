"""How far to go: calibration on rows that nothing else has looked at."""

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from skroute.early_exit._thresholds import is_wrong, running_values
from skroute.guarantees._means import share_upper_bound


class Tradeoff(NamedTuple):
    """What each set of thresholds does, from cautious to hurried.

    Attributes
    ----------
    thresholds : list of ExitThresholds
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


class Calibration(NamedTuple):
    """On which rows it is decided how hurried the thresholds may be.

    Attributes
    ----------
    given : object
        The parameter.

    share : float
        Share of the rows to hold out, 0 for none.

    n_folds : int
        Number of folds, 0 for none.

    has_rows : bool
        Whether the caller gave rows of their own.
    """

    given: Any
    share: float
    n_folds: int
    has_rows: bool

    @classmethod
    def from_parameter(cls, calibration, X_calibration=None):
        """From the parameter `calibration` and rows given to the call, which go first."""
        if X_calibration is not None:
            return cls(calibration, 0.0, 0, True)
        if isinstance(calibration, Integral):
            return cls(calibration, 0.0, int(calibration), False)
        return cls(calibration, float(calibration or 0.0), 0, False)

    def check(self, n_rows, guarantee):
        """Refuse too few rows, and a guarantee without rows of its own."""
        if self.n_folds > n_rows:
            raise ValueError(
                f"calibration={self.given!r} folds need as many rows, got {n_rows}. Give more "
                "rows or fewer folds."
            )
        if guarantee and not (self.has_rows or self.share):
            raise ValueError(
                "guarantee=True needs calibration rows that nothing else has used, got "
                f"calibration={self.given!r}. Hold out a share such as calibration=0.25, "
                "or pass X_calibration."
            )

    def split(self, n_rows, rng, y=None):
        """Positions of the rows to fit on and of those held out (None: none)."""
        if not self.share or n_rows < 2:
            return np.arange(n_rows), None
        return hold_out(n_rows, self.share, rng, y)


def hold_out(n, share, rng, y=None):
    """Split rows into those to fit on and those held out.

    Parameters
    ----------
    n : int
    share : float
        Share held out; one row at least, and not all.

    rng : RandomState
    y : ndarray of shape (n,), default=None
        One row at least of each class is kept to fit on.

    Returns
    -------
    kept, held_out : ndarray of int
        Sorted.
    """
    order = rng.permutation(n)
    if y is not None:
        first = np.unique(y[order], return_index=True)[1]
        order = np.concatenate([order[first], np.delete(order, first)])
    n_held_out = min(max(1, round(share * n)), n - 1)
    return np.sort(order[: n - n_held_out]), np.sort(order[n - n_held_out :])


def upper_bound(n_wrong, n_samples, confidence):
    """Exact binomial (Clopper-Pearson) upper confidence limit of a share.

    Parameters
    ----------
    n_wrong, n_samples : int
    confidence : float

    Returns
    -------
    float
    """
    return share_upper_bound(n_wrong, n_samples, confidence=confidence)


def allowed_wrong(n_samples, alpha, confidence, guarantee):
    """Wrong answers on calibration rows that are compatible with `alpha`.

    Parameters
    ----------
    n_samples : int
        Calibration rows.

    alpha : float
    confidence : float
    guarantee : bool
        Whether the upper bound must meet `alpha`, or the expectation
        (``(k + 1) / (n + 1) <= alpha``, conformal risk control).

    Returns
    -------
    int
        -1 when there are too few rows for any.
    """
    if not guarantee:
        return int(np.floor(alpha * (n_samples + 1) + 1e-9)) - 1
    lowest, highest = -1, n_samples
    while lowest < highest:
        middle = (lowest + highest + 1) // 2
        if upper_bound(middle, n_samples, confidence) <= alpha:
            lowest = middle
        else:
            highest = middle - 1
    return lowest


def fixed_sequence(n_wrong, allowed):
    """The last policy before the first that makes too many errors.

    Policies are tried from the most cautious on, in an order fixed beforehand. If the
    true share of the policy returned is above the limit that belongs to `allowed`, then
    so is that of some first policy in the sequence, and that one passed by chance: the
    limit of a single test holds for the whole search.

    Parameters
    ----------
    n_wrong : ndarray of shape (n_policies,)
        Errors on the calibration rows.

    allowed : int

    Returns
    -------
    int
        Index of the policy, -1 when the first fails.
    """
    failed = np.flatnonzero(np.asarray(n_wrong) > allowed)
    return int(failed[0]) - 1 if len(failed) else len(n_wrong) - 1


def judge(policies, values, bad, spent):
    """What each policy does on rows.

    Parameters
    ----------
    policies : list of ExitThresholds
    values, bad : ndarray of shape (n_members, n_samples)
        From :func:`running_values`.

    spent : ndarray of shape (n_members,)
        Cost up to each position.

    Returns
    -------
    cost : ndarray of shape (n_policies,)
        Summed over the rows.

    wrong : ndarray of shape (n_policies, n_members), dtype=int64
        Rows that leave with another answer at each position.
    """
    cost = np.empty(len(policies))
    wrong = np.empty((len(policies), len(spent)), dtype=np.int64)
    for i, policy in enumerate(policies):
        position, side = policy.leaving(values)
        cost[i] = spent[position].sum()
        wrong[i] = np.bincount(position[is_wrong(position, side, bad)], minlength=len(spent))
    return cost, wrong


def cross_fit(recipe, scores, offset, beta, costs, fold, steps):
    """Judge a recipe on all rows, each by what was learned without its fold.

    Policies with the same index were made in the same way, by the same price of an error,
    on each set of folds and, in the end, on all rows: what is pooled is how the recipe
    does on rows that it has not seen. The last fit has more rows than any of these.

    Parameters
    ----------
    recipe : Recipe
    scores, offset, beta, costs
        As for :meth:`Recipe.learn`.

    fold : ndarray of shape (n_samples,), dtype=int
        Fold of each row, 0, 1, ...

    steps : sequence of FitTask
        One for each fold.

    Returns
    -------
    cost, wrong
        As from :func:`judge`.
    """
    cost, wrong = 0.0, 0
    for left_out, step in enumerate(steps):
        with step:
            order, policies, _, _ = recipe.learn(
                np.compress(fold != left_out, scores, axis=1), offset, beta, costs, step
            )
        values, bad = running_values(
            np.compress(fold == left_out, scores, axis=1), order, offset, beta
        )
        fold_cost, fold_wrong = judge(policies, values, bad, np.cumsum(costs[order]))
        cost, wrong = cost + fold_cost, wrong + fold_wrong
    return cost, wrong
