"""When a sum of trees is as good as known: early exit of regressors."""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from skroute.early_exit._exit_thresholds import ExitThresholds
from skroute.early_exit._order import greedy_mse_order
from skroute.early_exit._policies import PRICES

# Doubt about how far a prediction will move, in units of `tol`, while thresholds are fitted.
SOFTNESS = 0.3
# More cautious than any price of an error: parts of `tol` that thresholds are fitted to.
NARROWER = np.geomspace(0.15, 0.9, 12)


class NumberExits(NamedTuple):
    """What is predicted for rows that leave.

    Attributes
    ----------
    shift, slope : ndarray of shape (n_members,), dtype=float64
        After member `r` the full sum is expected to be ``shift[r] + slope[r] * partial``.
    """

    shift: Any
    slope: Any

    def expected(self, score, members, side):
        """The full sum: as it is where a row went to the end, expected where it left.

        Parameters
        ----------
        score : ndarray of shape (n_samples,)
        members : ndarray of shape (n_samples,), dtype=int64
        side : ndarray of shape (n_samples,)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        at = members - 1
        return np.where(side == 0, score, self.shift[at] + self.slope[at] * score)


def partial_sums(scores, order, offset):
    """Sums after each position.

    Parameters
    ----------
    scores : ndarray of shape (n_members, n_samples)
    order : ndarray of shape (n_members,)
    offset : float

    Returns
    -------
    ndarray of shape (n_members, n_samples), dtype=float64
    """
    sums = np.cumsum(scores[order], axis=0, dtype=np.float64)
    sums += offset
    return sums


def expected_rest(sums):
    """Least squares of the full sum on each partial one.

    Parameters
    ----------
    sums : ndarray of shape (n_members, n_samples)

    Returns
    -------
    NumberExits
    """
    full = sums[-1]
    mean, variance = sums.mean(axis=1), sums.var(axis=1)
    covariance = (sums @ (full - full.mean())) / sums.shape[1]
    # A partial sum that does not vary says nothing; a slope below one would mean that what is
    # to come works against it, which few rows can make it seem.
    flat = variance <= 1e-12 * max(float(variance[-1]), 1e-300)
    slope = np.where(flat, 1.0, covariance / np.where(flat, 1.0, variance))
    return NumberExits(full.mean() - slope * mean, slope)


def moved_too_far(sums, exits, answer, tol, softness=0.0):
    """Whether leaving at each position changes the prediction by more than `tol`.

    Parameters
    ----------
    sums : ndarray of shape (n_members, n_samples)
    exits : NumberExits
    answer : callable
        From sums to predictions.

    tol : float
    softness : float, default=0.0
        Deviation of what the change may be beside what it is, in units of `tol`.

    Returns
    -------
    ndarray of shape (n_members, n_samples), dtype=bool or float32
        Or how likely it does, with `softness`.
    """
    full = answer(sums[-1])
    out = np.empty(sums.shape, dtype=np.float32 if softness else bool)
    for r, partial in enumerate(sums):
        change = np.abs(answer(exits.shift[r] + exits.slope[r] * partial) - full)
        if softness:
            width = softness * tol
            out[r] = 1.0 - ndtr((tol - change) / width) + ndtr((-tol - change) / width)
        else:
            out[r] = change > tol
    return out


def number_path(sums, problems):
    """Thresholds that minimise members plus price times wrong numbers, for each problem.

    Coordinate descent over positions, as :func:`lagrangian_path` does it for answers: here a
    row that leaves above and one that leaves below are wrong alike.

    Parameters
    ----------
    sums : ndarray of shape (n_members, n_samples)
    problems : iterable of (wrong, price)
        How likely leaving is wrong, of shape (n_members, n_samples), and the price of it, in
        members. Each is started from the solution before it.

    Returns
    -------
    list of (lo, hi)
    """
    from skroute.early_exit._kernels import leave_at
    from skroute.early_exit._number_kernels import settle_numbers, settled_cut

    n_members, n_samples = sums.shape
    lo, hi = np.full(n_members, -np.inf), np.full(n_members, np.inf)
    position = np.empty(n_samples, dtype=np.int64)
    side, path = np.empty(n_samples, dtype=np.int8), []
    for wrong, price in problems:
        leave_at(sums, lo, hi, position, side)
        to_go = np.zeros(n_samples)
        for r in range(n_members - 2, -1, -1):
            to_go += 1.0
            rows = np.flatnonzero(position >= r)
            if len(rows):
                x = sums[r, rows]
                lo[r], hi[r] = settled_cut(x, np.argsort(x), rows, wrong[r], to_go, price)
            settle_numbers(sums[r], wrong[r], lo[r], hi[r], price, to_go)
        path.append((lo.copy(), hi.copy()))
    return path


def learn_number_exits(scores, offset, answer, tol):
    """Order, what is expected of the rest, and thresholds from cautious to hurried.

    Parameters
    ----------
    scores : ndarray of shape (n_members, n_samples)
    offset : float
    answer : callable
        From sums to predictions.

    tol : float

    Returns
    -------
    order : ndarray of shape (n_members,), dtype=int64
    exits : NumberExits
    policies : list of ExitThresholds
    """
    n_members = len(scores)
    order = greedy_mse_order(scores[:, :, None])
    sums = partial_sums(scores, order, offset)
    exits = expected_rest(sums)

    def wrong(part):
        return moved_too_far(sums, exits, answer, part * tol, SOFTNESS)

    prices = [float(price) for price in n_members * PRICES]

    def problems():
        yield from ((wrong(part), prices[0]) for part in NARROWER)
        at_tol = wrong(1.0)
        yield from ((at_tol, price) for price in prices)

    path = number_path(sums, problems())
    policies = [ExitThresholds.per_position(lo, hi) for lo, hi in path]
    return order, exits, [ExitThresholds.never(n_members), *policies]


def judge_numbers(policies, sums, wrong):
    """What each policy does on rows.

    Parameters
    ----------
    policies : list of ExitThresholds
    sums, wrong : ndarray of shape (n_members, n_samples)

    Returns
    -------
    cost : ndarray of shape (n_policies,)
        Members per row.

    changed : ndarray of shape (n_policies, n_samples), dtype=bool
        Whether the prediction of a row changed too far.
    """
    n_samples = sums.shape[1]
    cost = np.empty(len(policies))
    changed = np.empty((len(policies), n_samples), dtype=bool)
    for i, policy in enumerate(policies):
        position, side = policy.leaving(sums)
        changed[i] = (side != 0) & wrong[position, np.arange(n_samples)]
        cost[i] = (position + 1).mean()
    return cost, changed
