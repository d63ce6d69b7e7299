"""QWYC: in which order to evaluate (Algorithm 1), and when to stop (Algorithm 2)."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from joblib import effective_n_jobs
from scipy.special import ndtr

from skroute.utils._validation import read_only

SHARE = 0.02


def running_values(scores, order, offset, beta):
    """What the thresholds look at, by position, and which way of leaving is wrong.

    Parameters
    ----------
    scores : ndarray of shape (n_members, n_samples, n_outputs)
        What each member adds.

    order : ndarray of shape (n_members,)
    offset : ndarray of shape (n_outputs,)
        Score before any member.

    beta : float
        Binary decision: positive where the full score is above.

    Returns
    -------
    values : ndarray of shape (n_members, n_samples), dtype=float32
        The partial sum (one output), or the margin between the two leading classes.

    bad : ndarray of shape (n_members, n_samples), dtype=bool
        Whether leaving above the upper threshold gives another answer than the full
        ensemble; leaving below the lower one does for the others. Read-only.
    """
    n_members, n_samples, n_outputs = scores.shape
    values = np.empty((n_members, n_samples), dtype=np.float32)
    total = np.empty((n_samples, n_outputs))
    total[:] = offset
    if n_outputs == 1:
        for r, t in enumerate(order):
            total += scores[t]
            values[r] = total[:, 0]
        return values, np.broadcast_to(total[:, 0] <= beta, values.shape)
    leaders = np.empty((n_members, n_samples), dtype=np.int32)
    for r, t in enumerate(order):
        total += scores[t]
        leaders[r], values[r] = leader_and_margin(total)
    return values, leaders != leaders[-1]


def full_answers(scores, offset, beta):
    """Position of the full ensemble's answer to each row among the classes, dtype int64."""
    total = offset + scores.sum(axis=0, dtype=np.float64)
    if scores.shape[2] == 1:
        return (total[:, 0] > beta).astype(np.int64)
    return np.argmax(total, axis=1)


def doubtful(values, bad, beta, softness):
    """Which way of leaving is wrong, with doubt about rows that the full ensemble barely decides.

    A row whose full score is just above `beta` says that one like it may be just below. Its
    answer counts as normally distributed around the score, and thresholds hang on many rows
    that are somewhat wrong beyond them in place of the few that are so.

    Parameters
    ----------
    values, bad : ndarray of shape (n_members, n_samples)
        Partial sums, and which way of leaving is wrong, from :func:`running_values`.

    beta : float
    softness : float
        Deviation, in deviations of the full score over the rows. 0 returns `bad`.

    Returns
    -------
    ndarray of shape (n_members, n_samples), dtype=float32 or bool
        Chance that leaving above is wrong; that leaving below is, is the rest. Read-only.
    """
    full = values[-1].astype(np.float64)
    deviation = softness * full.std()
    if not deviation:
        return bad
    # Chances that are no numbers in single precision are 0: their rows are not doubtful.
    with np.errstate(under="ignore"):
        chance = ndtr((beta - full) / deviation).astype(np.float32)
    return np.broadcast_to(chance, values.shape)


def leader_and_margin(total):
    """Leading class of each row and its margin to the second; the first class wins ties."""
    leader = np.argmax(total, axis=1)
    top = np.partition(total, -2, axis=1)
    return leader, top[:, -1] - top[:, -2]


def optimal_thresholds(values, bad, k, use_lo=True, use_hi=True):
    """Algorithm 2: thresholds that decide most rows with at most `k` wrong.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Partial sums (or margins) of the undecided rows.

    bad : ndarray of shape (n,), dtype=bool
        Rows for which leaving above is wrong; leaving below is wrong for the others.

    k : int
    use_lo, use_hi : bool, default=True
        Which thresholds there are.

    Returns
    -------
    lo, hi : float
        Rows below `lo` or above `hi` leave. Thresholds lie halfway between values.
    """
    ordered, top, bottom, above, below = tails(values, bad, k, use_lo, use_hi)
    n = len(ordered)
    meet = top < bottom[::-1]
    if use_lo and use_hi and meet.any():
        # Errors on either side fit the budget at any cut in between: decide all.
        first = int(np.argmax(meet))
        cut = _between(ordered, int(np.searchsorted(ordered, top[first], side="right")))
        return cut, cut
    best = int(np.argmax(above + below[::-1]))
    return (
        _between(ordered, int(below[k - best])),
        _between(ordered, n - int(above[best])),
    )


def tails(values, bad, k, use_lo, use_hi):
    """Values in order; the limits of 0, ..., `k` errors on either side; rows beyond them."""
    wrong_below = np.sort(values[~bad])
    wrong_above = np.sort(values[bad])[::-1]
    # With j errors above, the threshold is the (j + 1)-th largest value of a bad row.
    top = np.full(k + 1, -np.inf)
    top[: min(k + 1, len(wrong_above))] = wrong_above[: k + 1]
    bottom = np.full(k + 1, np.inf)
    bottom[: min(k + 1, len(wrong_below))] = wrong_below[: k + 1]
    ordered = np.sort(values)
    none = np.zeros(k + 1, dtype=np.int64)
    above = (
        len(ordered) - np.searchsorted(ordered, top, side="right") if use_hi else none
    )
    below = np.searchsorted(ordered, bottom, side="left") if use_lo else none
    return ordered, top, bottom, above, below


def _between(ordered, cut):
    """A threshold with exactly `cut` of the sorted values below it."""
    if cut == 0:
        return np.float64(-np.inf)
    if cut == len(ordered):
        return np.float64(np.inf)
    # A numpy scalar: numpy would round a Python float to the precision of the values.
    return 0.5 * (np.float64(ordered[cut - 1]) + np.float64(ordered[cut]))


def allowance(total, position):
    """Wrong answers allowed up to a position (0-based), of `total` in all."""
    return total * (1.0 - (1.0 - SHARE) ** (position + 1))


def is_wrong(position, side, bad):
    """Whether each row got another answer than from the full ensemble."""
    wrong_above = bad[position, np.arange(len(position))]
    return np.where(side == 0, False, np.where(side > 0, wrong_above, ~wrong_above))


def lagrangian_path(values, bad, costs, prices, use_lo=True, use_hi=True, weights=None):
    """Thresholds that minimise mean cost plus price times wrong answers, for each price.

    Coordinate descent over positions, from the most expensive price of a wrong answer to the
    cheapest, each started from the solution before it.

    Parameters
    ----------
    values, bad : ndarray of shape (n_members, n_samples)
        From :func:`running_values`, or :func:`doubtful` with chances for `bad`.

    costs : ndarray of shape (n_members,)
        In evaluation order.

    prices : ndarray of shape (n_prices,)
        Decreasing, in units of cost.

    use_lo, use_hi : bool, default=True
    weights : ndarray of shape (2, n_samples), default=None
        How many wrong answers it counts for if a row leaves above, and below, where that is
        wrong. None counts each once.

    Returns
    -------
    list of (lo, hi)
    """
    lo, hi = never(len(values))
    path, sides = [], (use_lo, use_hi)
    for price in prices:
        # Where prices are close, one sweep at each is enough.
        position, _ = leaving(values, lo, hi)
        sweep_back(values, bad, costs, float(price), lo, hi, position, *sides, weights)
        path.append((lo.copy(), hi.copy()))
    return path


def sweep_back(
    values, bad, costs, price, lo, hi, position, use_lo=True, use_hi=True, weights=None
):
    """One backward sweep of coordinate descent on ``cost + price * wrong``, into `lo` and `hi`.

    At each position, from the last but one to the first, the rows that reach it choose
    the pair of thresholds that minimises what they cost from there on, all other
    positions held fixed. Each step lowers the objective or keeps it. `position` is where each
    row leaves under the thresholds given; the rest is as for :func:`lagrangian_path`.
    """
    from skroute.early_exit._kernels import best_cuts, settle

    prices = price * (np.ones((2, values.shape[1])) if weights is None else weights)
    to_go = np.zeros(values.shape[1])
    for r in range(len(values) - 2, -1, -1):
        wrong = np.array(bad[r], dtype=np.float64)
        to_go += costs[r + 1]
        rows = np.flatnonzero(position >= r)
        if len(rows):
            # numpy's vectorised sort is far faster than a compiled one.
            rows = rows[np.argsort(values[r, rows])]
            ordered = values[r, rows]
            cuts = best_cuts(ordered, rows, wrong, to_go, prices, use_lo, use_hi)
            lo[r], hi[r] = (_between(ordered, cut) for cut in cuts)
        settle(values[r], wrong, lo[r], hi[r], prices, to_go)


def widened(values, lo, hi, factors):
    """Thresholds moved outwards by multiples of the deviation of what is still to come."""
    spread = np.array(
        [np.std(values[-1] - running) for running in values], dtype=np.float64
    )
    return [(lo - factor * spread, hi + factor * spread) for factor in factors]


def never(n_members):
    """Thresholds under which no row leaves early."""
    return np.full(n_members, -np.inf), np.full(n_members, np.inf)


def checked(thresholds, n_members):
    """Lower and upper thresholds as one read-only array of shape (2, n_members): files can be
    damaged."""
    if any(
        part.dtype != np.float64 or part.shape != (n_members,) for part in thresholds
    ):
        raise ValueError(f"The thresholds of {n_members} members are damaged.")
    return read_only(thresholds)


def leaving(values, lo, hi):
    """Where rows leave: index of the last member evaluated (int64), and 1 above, -1 below, 0 never
    (int8), of values and thresholds as in :func:`lagrangian_path`."""
    from skroute.early_exit._kernels import leave_at

    return leave_at(values, read_only(lo), read_only(hi))


def qwyc_order(
    scores,
    offset,
    beta,
    costs,
    alpha,
    use_lo=True,
    use_hi=True,
    spread=0,
    n_jobs=None,
    on_position=None,
):
    """Algorithm 1: the member that decides most rows per unit of cost goes next.

    At each position, every remaining member is tried on the undecided rows; Algorithm 2
    counts the rows that its best thresholds decide, and the member with the smallest
    ``J = cost * n_undecided / n_decided`` is taken. Where none decides a row the first
    remaining one is.

    Parameters
    ----------
    scores : ndarray of shape (n_members, n_samples, n_outputs), dtype=float32
    offset : ndarray of shape (n_outputs,)
    beta : float
    costs : ndarray of shape (n_members,)
    alpha : float
        Share of rows that may get another answer than from the full ensemble.

    use_lo, use_hi : bool, default=True
    spread : int, default=0
        Where the paper compares members by the rows decided with `k` errors, the best
        threshold hangs on the one row that would be the next error. With a spread, the
        rows decided are averaged over ``k - spread, ..., k + spread`` errors.

    n_jobs : int, default=None
        Threads over the candidates.

    on_position : callable, default=None
        Called without arguments after each position, to show progress.

    Returns
    -------
    order : ndarray of shape (n_members,), dtype=int64
    lo, hi : ndarray of shape (n_members,)
        Thresholds of the positions, all of the training budget spent.
    """
    from skroute.early_exit._kernels import scan

    n_members, n_samples, n_outputs = scores.shape
    total = offset + scores.sum(axis=0, dtype=np.float64)
    target = total[:, 0] <= beta if n_outputs == 1 else np.argmax(total, axis=1)
    scores = np.ascontiguousarray(scores)
    order, left = [], np.arange(n_members)
    lo, hi = never(n_members)
    active, used = np.arange(n_samples), 0
    g = np.empty((n_samples, n_outputs), dtype=scores.dtype)
    g[:] = offset
    with np.errstate(divide="ignore"):
        rate = np.where(costs > 0, 1.0 / costs, np.inf)
    n_threads = effective_n_jobs(n_jobs)
    with ThreadPoolExecutor(n_threads) as pool:
        for r in range(n_members - 1):
            k = int(allowance(alpha * n_samples, r) - used)
            rows = active, g, target, max(0, k - spread), k + spread, use_lo, use_hi
            decided = np.empty(len(left), dtype=np.int64)
            # A few chunks per thread, so that none waits long for another.
            n_chunks = min(2 * n_threads, len(left))

            def count(candidates, found, scores=scores, rows=rows):
                scan(scores, candidates, *rows, found)

            parts = (np.array_split(values, n_chunks) for values in (left, decided))
            list(pool.map(count, *parts))
            with np.errstate(invalid="ignore"):
                # A free member goes first, whatever it decides.
                gain = np.where(np.isinf(rate[left]), np.inf, decided * rate[left])
            t = left[np.argmax(gain)]
            order.append(t)
            left = left[left != t]
            g = g + scores[t, active]
            v, bad = g[:, 0], target
            if n_outputs > 1:
                leader, v = leader_and_margin(g)
                bad = leader != target
            lo[r], hi[r] = optimal_thresholds(v, bad, k, use_lo, use_hi)
            up, down = v > hi[r], v < lo[r]
            used += int(np.sum(up & bad) + np.sum(down & ~bad))
            keep = ~(up | down)
            active, g, target = active[keep], g[keep], target[keep]
            if on_position is not None:
                on_position()
            if len(active) == 0:
                break
            if 2 * len(active) <= scores.shape[1]:
                # Scores of rows that are left move together, or each costs a cache line.
                scores, active = np.take(scores, active, axis=1), np.arange(len(active))
    return np.concatenate([order, left]).astype(np.int64), lo, hi
