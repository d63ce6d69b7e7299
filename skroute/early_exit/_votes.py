"""When a vote is settled: optimal stopping of members that count alike."""

from typing import NamedTuple

import numpy as np

from skroute.early_exit._algorithms import leader_and_margin
from skroute.utils._typing import NDArray

# The standard deviation of the members' votes is measured on this share of the rows,
# those closest to the decision.
_NEAR = 0.1
# Least number of these rows. The deviation on fewer would be noise.
_FEWEST_NEAR = 50
# Standard deviation of the normal kernel that smooths the observed numbers of votes, as
# a share of the number of members.
_SPREAD = 0.01
# Number of standard deviations at which the smoothing kernel is cut off. Less than 1e-4
# of its weight is beyond.
_REACH = 4


# The backward pass --------------------------------------------------------------------


class _States(NamedTuple):
    """The states of a vote after `t` members: ``k = 0, ..., t`` positive votes.

    Attributes
    ----------
    weight : ndarray of shape (t + 1,)
        Weight of the rows that pass through each state.

    negative_weight : ndarray of shape (t + 1,)
        The part of `weight` for which the positive answer is wrong.
    """

    weight: NDArray[np.float64]
    negative_weight: NDArray[np.float64]


class _Step(NamedTuple):
    """The states of a vote after `t` members, and the chances of the next vote.

    Attributes
    ----------
    states : _States
        After `t` members.

    chance_positive : ndarray of shape (t + 1,)
        Chance that the next vote is positive.

    chance_wrong : ndarray of shape (t + 1,)
        Chance that the positive answer is wrong.
    """

    states: _States
    chance_positive: NDArray[np.float64]
    chance_wrong: NDArray[np.float64]


def optimal_stopping(
    distribution, negative_share, costs, prices, use_lo=True, use_hi=True
):
    """Return the numbers of votes at which a row stops with an answer, by price.

    They minimise mean cost plus price times wrong answers.

    Votes are drawn one after another, without replacement. The state ``(t, k)``, `k`
    votes of `t` members, determines the distribution of the votes that follow. The
    linear program of Kalman and Moscovich (2026) has a variable for the mass that stops
    at each state or goes on. For a given price of its constraint, one backward
    induction solves it.

    Parameters
    ----------
    distribution : ndarray of shape (n_members + 1,)
        Weight of the rows with 0, ..., `n_members` positive votes of all members.

    negative_share : ndarray of shape (n_members + 1,)
        Share of the rows with each number of votes for which the positive answer is
        wrong. The negative answer is wrong for the others.

    costs : ndarray of shape (n_members,)
        In evaluation order.

    prices : ndarray of shape (n_prices,)
        Prices of a wrong answer, in units of cost.

    use_lo, use_hi : bool, default=True
        If False, no row gets the negative (positive) answer early.

    Returns
    -------
    below, above : ndarray of shape (n_prices, n_members), dtype=int64
        After member `r`, a row with at most ``below[:, r]`` votes stops with the
        negative answer, and with at least ``above[:, r]`` votes with the positive one.
        No row stops where ``below`` is -1, or ``above`` is more than ``r + 1``.
    """
    n_members = len(distribution) - 1
    prices = np.asarray(prices, dtype=np.float64)[:, None]
    # At first no row stops: no number of votes is as small as -1, or as large as
    # `n_members` + 1.
    below = np.full((len(prices), n_members), -1)
    above = np.full((len(prices), n_members), n_members + 1)
    # The states after all members.
    states = _States(distribution.astype(np.float64), distribution * negative_share)
    # Least expected cost from each state on, by price and number of votes. After all
    # members it is 0: the full ensemble's answer is never wrong.
    to_go = np.zeros((len(prices), n_members + 1))
    # `t` members have voted. The last of them is member `t - 1`.
    for t in range(n_members - 1, 0, -1):
        step = _one_vote_back(states, t)
        states = step.states
        chance_positive = step.chance_positive
        # The next vote, of member `t`, leads to the state (t + 1, k) or (t + 1, k + 1).
        to_go = (
            costs[t]
            + to_go[:, :-1] * (1.0 - chance_positive)
            + to_go[:, 1:] * chance_positive
        )
        cost_of_negative = prices * (1.0 - step.chance_wrong)
        cost_of_positive = prices * step.chance_wrong
        if use_lo:
            below[:, t - 1] = _last_before_going_on(cost_of_negative > to_go)
        if use_hi:
            # In reverse, position `i` is the state with `t - i` positive votes.
            goes_on_from_most = (cost_of_positive > to_go)[:, ::-1]
            above[:, t - 1] = t - _last_before_going_on(goes_on_from_most)
        if use_lo and use_hi:
            cost_of_stopping = np.minimum(cost_of_negative, cost_of_positive)
        elif use_lo:
            cost_of_stopping = cost_of_negative
        else:
            # Rows stop with the positive answer only. Without `use_hi` no row stops, so
            # that this cost is not used.
            cost_of_stopping = cost_of_positive
        k = np.arange(t + 1)
        # `k` (t + 1,) is compared with the limit of each price, (n_prices, 1).
        stops_below = k <= below[:, t - 1 : t]
        stops_above = k >= above[:, t - 1 : t]
        to_go = np.where(stops_below | stops_above, cost_of_stopping, to_go)
    return below, above


def _one_vote_back(states, t):
    """Return the states after `t` members, from those after one more.

    Parameters
    ----------
    states : _States
        After ``t + 1`` members.

    t : int
        At least 1.

    Returns
    -------
    _Step
    """
    k = np.arange(t + 1)  # number of positive votes after t members
    # Each of the t + 1 votes of a row is equally likely to be the last.
    last_was_positive = (k + 1) / (t + 1)
    last_was_negative = (t + 1 - k) / (t + 1)
    weight_then_positive = states.weight[1:] * last_was_positive
    weight_then_negative = states.weight[:-1] * last_was_negative
    weight = weight_then_positive + weight_then_negative
    negative_weight = (
        states.negative_weight[:-1] * last_was_negative
        + states.negative_weight[1:] * last_was_positive
    )
    # Values for states that no row passes through. `np.divide` replaces the values of
    # all other states. The chance that the next vote is positive is the share of
    # positive votes so far. The positive answer is right if most votes are positive.
    chance_positive = k / t
    chance_wrong = (2 * k <= t).astype(np.float64)
    has_rows = weight > 0
    np.divide(weight_then_positive, weight, out=chance_positive, where=has_rows)
    np.divide(negative_weight, weight, out=chance_wrong, where=has_rows)
    return _Step(_States(weight, negative_weight), chance_positive, chance_wrong)


def _last_before_going_on(goes_on):
    """Return the position before the first True of each row.

    A row without True has the last position.

    Parameters
    ----------
    goes_on : ndarray of shape (n_prices, n_states), dtype=bool

    Returns
    -------
    ndarray of shape (n_prices,), dtype=int64
        -1 if the first entry is True.
    """
    n_states = goes_on.shape[1]
    first_true = np.where(goes_on.any(axis=1), np.argmax(goes_on, axis=1), n_states)
    return first_true - 1


# Thresholds of partial sums -----------------------------------------------------------


def vote_path(scores, offset, beta, costs, prices, use_lo=True, use_hi=True):
    """Return thresholds of partial sums by :func:`optimal_stopping`, for each price.

    Members with probabilities have soft votes. They are approximated by hard votes, of
    one size, with the same standard deviation. With several classes, a vote counts for
    the class that leads in the full ensemble, against the second one.

    Parameters
    ----------
    scores : ndarray of shape (n_members, n_samples, n_outputs)
        What each member adds, in evaluation order.

    offset : ndarray of shape (n_outputs,)
        Score before any member.

    beta : float
        Full score of one output above which the answer is positive.

    costs, prices, use_lo, use_hi
        As for :func:`optimal_stopping`. With several classes there is only an upper
        threshold, and `use_lo` and `use_hi` are not used.

    Returns
    -------
    list of (lo, hi)
        For each price, arrays of shape (n_members,).
    """
    n_members = len(scores)
    has_one_output = scores.shape[2] == 1
    votes = _votes(scores, offset, beta)  # (n_members, n_samples)
    margins = votes.sum(axis=0, dtype=np.float64)
    vote_size = _vote_size(votes, margins)
    distribution = _distribution_of_votes(margins / vote_size, n_members)
    n_votes = np.arange(n_members + 1)
    # For each number of positive votes, the share of rows for which the full ensemble
    # answers with the first class, "negative": 1 without a majority of positive votes.
    negative_share = (2 * n_votes <= n_members).astype(np.float64)
    if has_one_output:
        # Partial sums of a row whose votes are divided equally, after each member. They
        # go from `offset` to `beta` in equal steps.
        start = offset[0]
        step = (beta - start) / n_members
        tied_sums = start + np.arange(1, n_members + 1) * step
    else:
        # Either of the two classes may lead at the end: the distribution is symmetric.
        distribution = distribution + distribution[::-1]
        # A tie of all votes is as often wrong as right.
        negative_share[2 * n_votes == n_members] = 0.5
        use_lo = True
        use_hi = True
        tied_sums = np.zeros(n_members)
    below, above = optimal_stopping(
        distribution, negative_share, costs, prices, use_lo, use_hi
    )
    # Number of members that have voted, by position.
    t = np.arange(1, n_members + 1)
    # If `k` of `t` votes are positive, the sum is that of a tie plus `2 * k - t` vote
    # sizes. The next sum has one more positive vote and is two vote sizes larger.
    # Each threshold lies halfway between two such sums.
    lower_sums = tied_sums + vote_size * (2 * below + 1 - t)
    upper_sums = tied_sums + vote_size * (2 * above - 1 - t)
    lo = np.where(below >= 0, lower_sums, -np.inf)
    hi = np.where(above <= t, upper_sums, np.inf)
    # After the last member there is nothing to stop.
    lo[:, -1] = -np.inf
    hi[:, -1] = np.inf
    if not has_one_output:
        # Margins have no lower threshold.
        lo[:] = -np.inf
    return list(zip(lo, hi, strict=True))


def _votes(scores, offset, beta):
    """Return what each member adds to the distance of a row from the decision.

    With several classes, it is the distance between the two classes that lead in the
    full ensemble.

    Parameters are those of :func:`vote_path`.

    Returns
    -------
    ndarray of shape (n_members, n_samples)
    """
    n_outputs = scores.shape[2]
    if n_outputs == 1:
        # Each member gets an equal part of the distance from `offset` to `beta`.
        return scores[:, :, 0] - (beta - offset[0]) / len(scores)
    totals = offset + scores.sum(axis=0, dtype=np.float64)
    rows = np.arange(len(totals))
    leader, _ = leader_and_margin(totals)
    # Without the leading class, the largest sum is that of the second one.
    totals[rows, leader] = -np.inf
    second = np.argmax(totals, axis=1)
    return scores[:, rows, leader] - scores[:, rows, second]


def _vote_size(votes, margins):
    """Return the size of hard votes with the same standard deviation as `votes`.

    A hard vote adds this size to the distance from the decision, or its negative.

    Parameters
    ----------
    votes : ndarray of shape (n_members, n_samples)
    margins : ndarray of shape (n_samples,)
        Sums of the votes of each row.

    Returns
    -------
    float
        1 if the deviation is 0, as a size of 0 would count no votes.
    """
    # The rows closest to the decision need most members, so that their votes matter
    # most.
    n_near = max(_FEWEST_NEAR, int(_NEAR * len(margins)))
    near = np.argsort(np.abs(margins), kind="stable")[:n_near]
    # Variance of the votes of each row, by row.
    variances = votes[:, near].var(axis=0, dtype=np.float64)
    deviation = float(np.sqrt(variances.mean()))
    if deviation == 0:
        return 1.0
    return deviation


def _distribution_of_votes(margins, n_members):
    """Return the smoothed share of rows with each number of positive votes.

    Parameters
    ----------
    margins : ndarray of shape (n_samples,)
        Votes for the positive answer less those for the negative one.

    n_members : int

    Returns
    -------
    ndarray of shape (n_members + 1,)
        Share of the rows with 0, ..., `n_members` positive votes. Their sum is 1.
    """
    # There are `n_members` votes: the positive ones are half of them, plus half of the
    # margin.
    votes = np.rint(0.5 * (n_members + margins))
    votes = np.clip(votes, 0, n_members).astype(np.int64)
    # Rounding must not change the answer. For a margin above 0 the answer is positive,
    # so that most votes must be positive. A tie is answered negative.
    most_without_majority = n_members // 2
    votes = np.where(
        margins > 0,
        np.maximum(votes, most_without_majority + 1),
        np.minimum(votes, most_without_majority),
    )
    count = np.bincount(votes, minlength=n_members + 1).astype(np.float64)
    # One more row is spread evenly over all numbers of votes, so that none has the
    # share 0.
    count += 1.0 / len(count)
    deviation = _SPREAD * n_members
    # Largest difference of numbers of votes that the kernel covers.
    reach = min(int(np.ceil(_REACH * deviation)), n_members)
    distances = np.arange(-reach, reach + 1) / deviation
    kernel = np.exp(-0.5 * distances**2)
    kernel = kernel / kernel.sum()
    # The counts are reflected at both ends, so that smoothing moves no rows beyond 0 or
    # beyond `n_members` votes.
    padded = np.pad(count, reach, mode="reflect")
    smooth = np.convolve(padded, kernel, mode="valid")
    return smooth / smooth.sum()
