"""When a vote is settled: optimal stopping of members that count alike."""

import numpy as np

from skroute.early_exit._algorithms import leader_and_margin

# Rows whose votes say how far apart two members are, as a share of all: the closest ones.
_NEAR = 0.1
# Deviation of the numbers of votes around those that were seen, as a share of the members.
_SPREAD = 0.01


def optimal_stopping(law, negative, costs, prices, use_lo=True, use_hi=True):
    """Where to stop counting votes: minimal mean cost plus price times wrong answers.

    Votes are drawn one after the other, without replacement, from as many as there are
    members. What has been counted, `k` of `t`, says all about what is to come, so that the
    linear program of Kalman and Moscovich (2026) over the mass that stops at, or goes on from,
    each state ``(t, k)`` is solved for a price of its constraint by one backward pass.

    Parameters
    ----------
    law : ndarray of shape (n_members + 1,)
        Weight of rows with 0, ..., `n_members` votes in all.

    negative : ndarray of shape (n_members + 1,)
        Share of them for which answering positive is wrong; negative is for the others.

    costs : ndarray of shape (n_members,)
        In evaluation order.

    prices : ndarray of shape (n_prices,)
        Of a wrong answer, in units of cost.

    use_lo, use_hi : bool, default=True
        Which answers may come early.

    Returns
    -------
    below, above : ndarray of shape (n_prices, n_members), dtype=int64
        After member `r` a row with at most ``below[:, r]`` votes, or at least ``above[:, r]``,
        stops; -1 and ``n_members + 1`` where none does.
    """
    n_members, prices = len(law) - 1, np.asarray(prices, dtype=np.float64)[:, None]
    below = np.full((len(prices), n_members), -1)
    above = np.full((len(prices), n_members), n_members + 1)
    weight, against = law.astype(np.float64), law * negative
    to_go = np.zeros((len(prices), n_members + 1))
    for t in range(n_members - 1, 0, -1):
        # The last of t + 1 votes drawn is for or against by their shares.
        k = np.arange(t + 1)
        won, lost = (
            weight[1:] * ((k + 1) / (t + 1)),
            weight[:-1] * ((t + 1 - k) / (t + 1)),
        )
        against = against[:-1] * ((t + 1 - k) / (t + 1)) + against[1:] * (
            (k + 1) / (t + 1)
        )
        weight = won + lost
        seen = weight > 0
        up = np.divide(won, weight, out=k / t, where=seen)
        wrong = np.divide(against, weight, out=(2.0 * k <= t).astype(float), where=seen)
        to_go = costs[t] + to_go[:, :-1] * (1.0 - up) + to_go[:, 1:] * up
        if use_lo:
            stop = prices * (1.0 - wrong)
            stays = stop > to_go
            below[:, t - 1] = (
                np.where(stays.any(axis=1), np.argmax(stays, axis=1), t + 1) - 1
            )
        if use_hi:
            gain = prices * wrong
            stays = (gain > to_go)[:, ::-1]
            above[:, t - 1] = np.where(
                stays.any(axis=1), t + 1 - np.argmax(stays, axis=1), 0
            )
            stop = np.minimum(stop, gain) if use_lo else gain
        stops = (k <= below[:, t - 1 : t]) | (k >= above[:, t - 1 : t])
        to_go = np.where(stops, stop, to_go)
    return below, above


def vote_path(scores, offset, beta, costs, prices, use_lo=True, use_hi=True):
    """Thresholds of partial sums by :func:`optimal_stopping`, for each price: a list of (lo, hi).

    A soft vote drifts as a hard one of the weight that has its deviation. With several
    classes the votes are those for the leading class less those for the second one. `scores`, of
    shape (n_members, n_samples, n_outputs), and `costs` are in evaluation order.
    """
    n_members, one = len(scores), scores.shape[2] == 1
    votes = _votes(scores, offset, beta)
    total = votes.sum(axis=0, dtype=np.float64)
    near = np.argsort(np.abs(total), kind="stable")[: max(50, int(_NEAR * len(total)))]
    weight = float(np.sqrt(votes[:, near].var(axis=0, dtype=np.float64).mean())) or 1.0
    law = _law(total / weight, n_members)
    k = np.arange(n_members + 1)
    negative = (2 * k <= n_members).astype(np.float64)
    if not one:
        # Either of two classes may lead.
        law = law + law[::-1]
        negative[2 * k == n_members] = 0.5
    sides = (use_lo, use_hi) if one else (True, True)
    below, above = optimal_stopping(law, negative, costs, prices, *sides)
    t = np.arange(1, n_members + 1)
    center = (
        offset[0] + t * ((beta - offset[0]) / n_members) if one else np.zeros(n_members)
    )
    # Halfway between two numbers of votes.
    lo = np.where(below >= 0, center + weight * (2 * below + 1 - t), -np.inf)
    hi = np.where(above <= t, center + weight * (2 * above - 1 - t), np.inf)
    # With all members there is nothing to stop.
    lo[:, -1], hi[:, -1] = -np.inf, np.inf
    return [
        (low if one else np.full(n_members, -np.inf), high) for low, high in zip(lo, hi)
    ]


def _votes(scores, offset, beta):
    """What each member adds to the distance from the decision: (n_members, n_samples)."""
    if scores.shape[2] == 1:
        return scores[:, :, 0] - (beta - offset[0]) / len(scores)
    total = offset + scores.sum(axis=0, dtype=np.float64)
    rows, leader = np.arange(len(total)), leader_and_margin(total)[0]
    total[rows, leader] = -np.inf
    return scores[:, rows, leader] - scores[:, rows, np.argmax(total, axis=1)]


def _law(total, n_members):
    """Share of rows by number of votes, of which `total` is the margin in votes."""
    votes = np.clip(np.rint(0.5 * (n_members + total)), 0, n_members).astype(np.int64)
    # A tie is answered negative.
    half = n_members // 2
    votes = np.where(total > 0, np.maximum(votes, half + 1), np.minimum(votes, half))
    count = np.bincount(votes, minlength=n_members + 1).astype(np.float64)
    # One row more may be anywhere.
    count += 1.0 / len(count)
    deviation = _SPREAD * n_members
    reach = min(int(np.ceil(4 * deviation)), n_members)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
    smooth = np.convolve(
        np.pad(count, reach, mode="reflect"), kernel / kernel.sum(), "valid"
    )
    return smooth / smooth.sum()
