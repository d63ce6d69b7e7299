"""In which order to evaluate: QWYC (Algorithm 1) and the fixed orders it is compared with."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from joblib import effective_n_jobs

from skroute.early_exit._thresholds import allowance, leader_and_margin, optimal_thresholds


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
        What each member adds.

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

    n_threads = effective_n_jobs(n_jobs)
    with ThreadPoolExecutor(n_threads) as pool:

        def count(scores, candidates, active, g, target, first, last):
            decided = np.empty(len(candidates), dtype=np.int64)
            # A few chunks per thread, so that none waits long for another.
            bounds = np.linspace(0, len(decided), min(n_threads * 2, len(decided)) + 1).astype(int)

            def part(start, stop):
                rows = active, g, target, first, last, use_lo, use_hi
                scan(scores, candidates[start:stop], *rows, decided[start:stop])

            list(pool.map(part, bounds[:-1], bounds[1:]))
            return decided

        return search(
            scores, offset, beta, costs, alpha, use_lo, use_hi, spread, count, on_position
        )


def candidate_values(total, target):
    """What thresholds look at, and which rows leave wrongly above."""
    if total.shape[1] == 1:
        return total[:, 0], target
    leader, margin = leader_and_margin(total)
    return margin, leader != target


def search(scores, offset, beta, costs, alpha, use_lo, use_hi, spread, count, on_position=None):
    """Algorithm 1 with a function that counts the rows that each candidate decides."""
    n_members, n_samples, n_outputs = scores.shape
    total = offset + scores.sum(axis=0, dtype=np.float64)
    target = total[:, 0] <= beta if n_outputs == 1 else np.argmax(total, axis=1)
    scores = np.ascontiguousarray(scores)
    order, left = [], np.arange(n_members)
    lo, hi = np.full(n_members, -np.inf), np.full(n_members, np.inf)
    active, used = np.arange(n_samples), 0
    g = np.empty((n_samples, n_outputs), dtype=scores.dtype)
    g[:] = offset
    with np.errstate(divide="ignore"):
        rate = np.where(costs > 0, 1.0 / costs, np.inf)
    for r in range(n_members - 1):
        k = int(allowance(alpha * n_samples, r) - used)
        decided = count(scores, left, active, g, target, max(0, k - spread), k + spread)
        with np.errstate(invalid="ignore"):
            # A free member goes first, whatever it decides.
            gain = np.where(np.isinf(rate[left]), np.inf, decided * rate[left])
        t = left[np.argmax(gain)]
        order.append(t)
        left = left[left != t]
        g = g + scores[t, active]
        v, bad = candidate_values(g, target)
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
