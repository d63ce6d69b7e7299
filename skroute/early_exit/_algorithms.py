"""QWYC: the order of evaluation (Algorithm 1) and the thresholds (Algorithm 2).

The numbers are those of the paper, "Quit When You Can" (arXiv:1806.11202).
"""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from joblib import effective_n_jobs
from scipy.special import ndtr

from skroute.utils._typing import NDArray
from skroute.utils._validation import read_only

# At each position, the order search may use this share of the wrong answers that are
# still allowed. The paper leaves the share open. 0.02 was chosen on Adult, 500 trees:
# with this share, 25 trees were evaluated at 0.85 % disagreement on held-out rows. If
# the first position could use all allowed errors, 37 trees were evaluated at 1.0 %.
SHARE = 0.02

# Smallest saving by which new thresholds replace others, as a multiple of the mean cost
# of a member. Smaller savings are rounding.
_LEAST_SAVING = 1e-9


# Partial sums -------------------------------------------------------------------------


def running_values(scores, order, offset, beta):
    """Return partial sums or margins, and if leaving at the upper threshold is wrong.

    Thresholds are compared with the sums or margins. A row is bad at a position if it
    gets a wrong answer by leaving there above the upper threshold. An answer is wrong
    if the full ensemble gives another one.

    Parameters
    ----------
    scores : ndarray of shape (n_members, n_samples, n_outputs)
        What each member adds.

    order : ndarray of shape (n_members,)
        Members in order of evaluation.

    offset : ndarray of shape (n_outputs,)
        Score before any member.

    beta : float
        Full score of one output above which the answer is positive.

    Returns
    -------
    values : ndarray of shape (n_members, n_samples), dtype=float32
        By position, the partial sum (one output), or the margin between the two leading
        classes.

    bad : ndarray of shape (n_members, n_samples), dtype=bool
        True if leaving above the upper threshold gives a wrong answer. Leaving below
        the lower threshold gives a wrong answer to all other rows. Read-only.
    """
    n_members, n_samples, n_outputs = scores.shape
    values = np.empty((n_members, n_samples), dtype=np.float32)
    totals = np.empty((n_samples, n_outputs))
    totals[:] = offset
    if n_outputs == 1:
        for position, member in enumerate(order):
            totals += scores[member]
            values[position] = totals[:, 0]
        # A row that leaves above the upper threshold is answered positive, at each
        # position. This is wrong for rows that the full ensemble answers negative.
        is_negative = totals[:, 0] <= beta
        return values, np.broadcast_to(is_negative, values.shape)
    # For several outputs, a row that leaves is answered with its leading class.
    leaders = np.empty((n_members, n_samples), dtype=np.int32)
    for position, member in enumerate(order):
        totals += scores[member]
        leaders[position], values[position] = leader_and_margin(totals)
    full_leaders = leaders[-1]
    return values, leaders != full_leaders


def full_answers(scores, offset, beta):
    """Return the full ensemble's answer to each row, as a position among the classes.

    Parameters are those of :func:`running_values`.

    Returns
    -------
    ndarray of shape (n_samples,), dtype=int64
    """
    totals = _full_totals(scores, offset)
    n_outputs = scores.shape[2]
    if n_outputs == 1:
        # 1 is the position of the positive class, 0 that of the negative one.
        return (totals[:, 0] > beta).astype(np.int64)
    return np.argmax(totals, axis=1)


def _full_totals(scores, offset):
    """Return the full scores of rows, of shape (n_samples, n_outputs)."""
    return offset + scores.sum(axis=0, dtype=np.float64)


def doubtful(values, bad, beta, softness):
    """Return each row's chance of a wrong answer if it exceeds the upper threshold.

    The full ensemble's answer to a row whose full score is near `beta` counts as
    uncertain. Its full score is taken as normally distributed around the observed one.
    A threshold then depends on all rows beyond it that may be wrong, and not only on
    the few rows that are wrong.

    Parameters
    ----------
    values, bad : ndarray of shape (n_members, n_samples)
        From :func:`running_values`, for one output.

    beta : float
        As for :func:`running_values`.

    softness : float
        Standard deviation of the normal distribution. Its unit is the standard
        deviation of all rows' full scores. If 0, `bad` is returned.

    Returns
    -------
    ndarray of shape (n_members, n_samples), dtype=float32 or bool
        A row that leaves below gets a wrong answer with 1 minus this chance. Read-only.
    """
    # The value after the last member is the full score.
    full_scores = values[-1].astype(np.float64)
    deviation = softness * full_scores.std()
    if deviation == 0:
        # There is no doubt if `softness` is 0 or all full scores are equal.
        return bad
    # The chance that the full score is at most `beta`, so that the full ensemble
    # answers negative. Chances too small for single precision are 0: the answers to
    # these rows are certain.
    with np.errstate(under="ignore"):
        chance = ndtr((beta - full_scores) / deviation).astype(np.float32)
    return np.broadcast_to(chance, values.shape)


def leader_and_margin(totals):
    """Return the leading class of each row and its margin; the first class wins ties.

    Parameters
    ----------
    totals : ndarray of shape (n_samples, n_outputs)
        Sums of scores, with at least two outputs.

    Returns
    -------
    leader : ndarray of shape (n_samples,), dtype=int64
    margin : ndarray of shape (n_samples,)
        Distance from the largest to the second largest sum.
    """
    leader = np.argmax(totals, axis=1)
    ordered = np.partition(totals, -2, axis=1)
    return leader, ordered[:, -1] - ordered[:, -2]


# Algorithm 2: thresholds of one position ----------------------------------------------


def optimal_thresholds(values, bad, k, use_lo=True, use_hi=True):
    """Return the thresholds at which most rows leave with at most `k` wrong answers.

    This is Algorithm 2 of the paper, for the undecided rows at one position.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Partial sums, or margins, of the undecided rows.

    bad : ndarray of shape (n,), dtype=bool
        True for rows for which leaving above is wrong. Leaving below is wrong for the
        others.

    k : int
        Number of wrong answers that are allowed.

    use_lo, use_hi : bool, default=True
        If False, there is no lower (upper) threshold: no row leaves below (above).

    Returns
    -------
    lo, hi : float
        Rows below `lo` or above `hi` leave. Thresholds lie halfway between values.
        They are -inf and inf if no row leaves below or above.
    """
    tails = tails_of(values, bad, k, use_lo=use_lo, use_hi=use_hi)
    # The `k` errors are divided between the tails. In the following arrays, entry `j`
    # has `j` errors above the upper threshold and `k - j` errors below the lower one:
    # the lower tail is reversed.
    tails_meet = tails.upper_limits < tails.lower_limits[::-1]
    if use_lo and use_hi and tails_meet.any():
        # A threshold between the two limits decides every row. The rows up to the upper
        # limit are below it.
        upper_limit = tails.upper_limits[np.argmax(tails_meet)]
        n_below = np.searchsorted(tails.ordered, upper_limit, side="right")
        threshold = _between(tails.ordered, int(n_below))
        return threshold, threshold
    n_decided = tails.n_above + tails.n_below[::-1]
    errors_above = int(np.argmax(n_decided))
    n_below = int(tails.n_below[k - errors_above])
    n_above = int(tails.n_above[errors_above])
    lo = _between(tails.ordered, n_below)
    hi = _between(tails.ordered, len(values) - n_above)
    return lo, hi


class Tails(NamedTuple):
    """Thresholds beyond which 0, ..., k answers are wrong, and counts of rows beyond.

    Attributes
    ----------
    ordered : ndarray of shape (n,)
        The values, sorted.

    upper_limits : ndarray of shape (k + 1,)
        Entry `j` is the (j + 1)-th largest value of a bad row: `j` wrong answers are
        above it. It is -inf if there are fewer such rows.

    lower_limits : ndarray of shape (k + 1,)
        Entry `j` is the (j + 1)-th smallest value of a row that is not bad: `j` wrong
        answers are below it. It is inf if there are fewer such rows.

    n_above, n_below : ndarray of shape (k + 1,), dtype=int64
        Number of rows above each upper limit, and below each lower limit. 0 if no row
        may leave on that side.
    """

    ordered: NDArray
    upper_limits: NDArray[np.float64]
    lower_limits: NDArray[np.float64]
    n_above: NDArray[np.int64]
    n_below: NDArray[np.int64]


def tails_of(values, bad, k, *, use_lo, use_hi):
    """Return how many rows may leave at each threshold with 0, ..., `k` wrong answers.

    Parameters are those of :func:`optimal_thresholds`. `bad` is True for rows that are
    wrong if they leave above. The other rows are wrong if they leave below.

    Returns
    -------
    Tails
    """
    # Smallest values of the rows that are wrong if they leave below the lower
    # threshold, rising.
    wrong_below = np.sort(values[~bad])[: k + 1]
    # Largest values of the rows that are wrong if they leave above the upper threshold,
    # falling.
    wrong_above = np.sort(values[bad])[::-1][: k + 1]
    # Infinite limits stay where there are fewer than `k + 1` such rows.
    upper_limits = np.full(k + 1, -np.inf)
    upper_limits[: len(wrong_above)] = wrong_above
    lower_limits = np.full(k + 1, np.inf)
    lower_limits[: len(wrong_below)] = wrong_below
    ordered = np.sort(values)
    n_above = np.zeros(k + 1, dtype=np.int64)
    n_below = np.zeros(k + 1, dtype=np.int64)
    if use_hi:
        n_above = len(ordered) - np.searchsorted(ordered, upper_limits, side="right")
    if use_lo:
        n_below = np.searchsorted(ordered, lower_limits, side="left")
    return Tails(ordered, upper_limits, lower_limits, n_above, n_below)


def _between(ordered, n_below):
    """Return a threshold with exactly `n_below` of the sorted values below it."""
    if n_below == 0:
        return np.float64(-np.inf)
    if n_below == len(ordered):
        return np.float64(np.inf)
    # The threshold is a numpy scalar. Numpy would round a Python float to the precision
    # of the values that it is compared with.
    return 0.5 * (np.float64(ordered[n_below - 1]) + np.float64(ordered[n_below]))


# Algorithm 1: the order ---------------------------------------------------------------


class Undecided(NamedTuple):
    """Rows that have not left the ensemble after some members of the order search.

    Attributes
    ----------
    rows : ndarray of shape (n,), dtype=int64
        Positions of the rows among the samples of the scores.

    totals : ndarray of shape (n, n_outputs)
        Partial sums of the rows.

    target : ndarray of shape (n,), dtype=bool or int64
        For one output, True if the row is bad: leaving above is wrong. For several
        outputs, the class that the full ensemble answers.
    """

    rows: NDArray[np.int64]
    totals: NDArray
    target: NDArray

    def after(self, added):
        """Return the undecided rows with the scores of one more member added.

        Parameters
        ----------
        added : ndarray of shape (n_samples, n_outputs)
            Scores of the member.

        Returns
        -------
        Undecided
        """
        return self._replace(totals=self.totals + added[self.rows])

    def values_and_bad(self):
        """Return sums or margins, and where leaving at the upper threshold is wrong.

        They are `values` and `bad` of :func:`optimal_thresholds`.
        """
        if self.totals.shape[1] == 1:
            # For one output, `target` is the same at each position: True if leaving
            # above the upper threshold is wrong.
            return self.totals[:, 0], self.target
        leader, margin = leader_and_margin(self.totals)
        return margin, leader != self.target

    def taken(self, stays):
        """Return the rows for which `stays`, of shape (n,), is True."""
        return Undecided(self.rows[stays], self.totals[stays], self.target[stays])


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
    """Return an order in which each member lets most rows leave per cost (Algorithm 1).

    At each position, every remaining member is tried on the undecided rows. Algorithm 2
    counts the rows that its best thresholds decide. The member with the smallest
    ``J = cost * n_undecided / n_decided`` is taken, or the first remaining one if none
    decides a row.

    Parameters
    ----------
    scores : ndarray of shape (n_members, n_samples, n_outputs), dtype=float32
        What each member adds.

    offset : ndarray of shape (n_outputs,)
        Score before any member.

    beta : float
        Full score of one output above which the answer is positive.

    costs : ndarray of shape (n_members,)
        Cost of each member.

    alpha : float
        Share of rows that may get another answer than from the full ensemble.

    use_lo, use_hi : bool, default=True
        If False, there is no lower (upper) threshold: no row leaves below (above).

    spread : int, default=0
        The paper compares members by the rows decided with `k` errors. The best
        threshold then depends on the one row that would be the next error. With a
        spread, the rows decided are averaged over ``k - spread, ..., k + spread``
        errors.

    n_jobs : int, default=None
        Number of threads that try candidates.

    on_position : callable, default=None
        Called without arguments after each position, to show progress.

    Returns
    -------
    order : ndarray of shape (n_members,), dtype=int64
    lo, hi : ndarray of shape (n_members,)
        Thresholds by position, under which at most the share `alpha` of the samples is
        wrong. Infinite at positions that the search did not reach.
    """
    n_members, n_samples, _ = scores.shape
    scores = np.ascontiguousarray(scores)
    undecided = _all_rows(scores, offset, beta)
    order = []
    remaining = np.arange(n_members)
    lo, hi = never(n_members)
    n_wrong = 0
    n_threads = effective_n_jobs(n_jobs)
    with ThreadPoolExecutor(n_threads) as pool:
        # The last position needs no search: it decides all rows.
        for position in range(n_members - 1):
            n_allowed_so_far = allowance(alpha * n_samples, position)
            # Number of wrong answers that this position may add.
            n_allowed = int(n_allowed_so_far - n_wrong)
            n_decided = _count_decided(
                scores,
                remaining,
                undecided,
                error_range=(max(0, n_allowed - spread), n_allowed + spread),
                sides=(use_lo, use_hi),
                pool=pool,
                n_threads=n_threads,
            )
            # All candidates have the same undecided rows. J of Algorithm 1, the cost
            # times these rows per decided row, is thus smallest if most rows are
            # decided per unit of cost.
            decided_per_cost = _per_cost(n_decided, costs[remaining])
            member = remaining[np.argmax(decided_per_cost)]
            order.append(member)
            remaining = remaining[remaining != member]

            undecided = undecided.after(scores[member])
            values, bad = undecided.values_and_bad()
            lo[position], hi[position] = optimal_thresholds(
                values, bad, n_allowed, use_lo, use_hi
            )
            above = values > hi[position]
            below = values < lo[position]
            n_wrong += int(np.sum(above & bad) + np.sum(below & ~bad))
            undecided = undecided.taken(~(above | below))

            if on_position is not None:
                on_position()
            n_undecided = len(undecided.rows)
            if n_undecided == 0:
                break
            if 2 * n_undecided <= scores.shape[1]:
                # At most half of the rows are undecided. Their scores are copied, so
                # that they are next to each other in memory. Between the scores of
                # decided rows, each score would need a cache line of its own.
                scores = np.take(scores, undecided.rows, axis=1)
                undecided = undecided._replace(rows=np.arange(n_undecided))
    # Members that the search did not choose follow in the ensemble's own order.
    order = np.concatenate([order, remaining]).astype(np.int64)
    return order, lo, hi


def _all_rows(scores, offset, beta):
    """Return all rows as :class:`Undecided`, before any member is evaluated.

    Parameters are those of :func:`qwyc_order`.
    """
    _, n_samples, n_outputs = scores.shape
    full_totals = _full_totals(scores, offset)
    if n_outputs == 1:
        target = full_totals[:, 0] <= beta
    else:
        target = np.argmax(full_totals, axis=1)
    totals = np.empty((n_samples, n_outputs), dtype=scores.dtype)
    totals[:] = offset
    return Undecided(np.arange(n_samples), totals, target)


def _count_decided(
    scores, candidates, undecided, *, error_range, sides, pool, n_threads
):
    """Count the rows that each candidate would decide next, in threads.

    Parameters
    ----------
    scores : ndarray of shape (n_members, n_samples, n_outputs)
        What each member adds.

    candidates : ndarray of shape (n_candidates,), dtype=int64
        Members to try.

    undecided : Undecided
        The undecided rows.

    error_range : (int, int)
        Smallest and largest number of wrong answers. The rows decided with each number
        between them are added up.

    sides : (bool, bool)
        True if rows may leave below the lower threshold, and above the upper one.

    pool : ThreadPoolExecutor
    n_threads : int

    Returns
    -------
    ndarray of shape (n_candidates,), dtype=int64
    """
    from skroute.early_exit import _kernels

    fewest_errors, most_errors = error_range
    use_lo, use_hi = sides

    def count(chunk):
        return _kernels.count_decided(
            scores, chunk, undecided, fewest_errors, most_errors, use_lo, use_hi
        )

    # Two chunks per thread, so that no thread waits long for another one.
    n_chunks = min(2 * n_threads, len(candidates))
    counts = pool.map(count, np.array_split(candidates, n_chunks))
    return np.concatenate(list(counts))


def _per_cost(n_decided, costs):
    """Return numbers of rows per unit of cost, infinite for members without a cost."""
    # The inverse of a cost that is almost 0 overflows to infinity. 0 rows times
    # infinity would be NaN.
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(costs > 0, 1.0 / costs, np.inf)
        return np.where(np.isinf(rate), np.inf, n_decided * rate)


def allowance(total, position):
    """Return how many of all allowed wrong answers may be made up to a position.

    Parameters
    ----------
    total : float
        Number allowed over all positions.

    position : int
        Each position may use the share `SHARE` of the number that is left before it.

    Returns
    -------
    float
    """
    # Each position leaves the share `1 - SHARE` to the positions after it.
    share_left = (1.0 - SHARE) ** (position + 1)
    return total * (1.0 - share_left)


# Thresholds of all positions ----------------------------------------------------------


def lagrangian_path(values, bad, costs, prices, use_lo=True, use_hi=True, weights=None):
    """Return, for each price, thresholds of least mean cost plus price times errors.

    An error is a wrong answer. Thresholds are found by coordinate descent over
    positions, from the largest price of an error to the smallest. Each price starts
    from the thresholds of the price before it.

    Parameters
    ----------
    values, bad : ndarray of shape (n_members, n_samples)
        From :func:`running_values`. `bad` may contain the chances of :func:`doubtful`.

    costs : ndarray of shape (n_members,)
        In evaluation order.

    prices : ndarray of shape (n_prices,)
        Decreasing, in units of cost.

    use_lo, use_hi : bool, default=True
        If False, there is no lower (upper) threshold: no row leaves below (above).

    weights : ndarray of shape (2, n_samples), default=None
        Number of errors that a wrong answer to each row counts for. ``weights[0]`` is
        for leaving above, ``weights[1]`` for leaving below. None is 1 for all.

    Returns
    -------
    list of (lo, hi)
        For each price, arrays of shape (n_members,).
    """
    lo, hi = never(len(values))
    path = []
    for price in prices:
        # Neighbouring prices are close, so that one sweep at each is enough.
        position, _ = leaving(values, lo, hi)
        # The sweep writes the new thresholds into `lo` and `hi`.
        sweep_back(
            values,
            bad,
            costs,
            float(price),
            lo,
            hi,
            position,
            use_lo=use_lo,
            use_hi=use_hi,
            weights=weights,
        )
        path.append((lo.copy(), hi.copy()))
    return path


def sweep_back(
    values, bad, costs, price, lo, hi, position, use_lo=True, use_hi=True, weights=None
):
    """Improve thresholds by one backward sweep of coordinate descent.

    The objective is ``cost + price * wrong``. The sweep goes from the last position but
    one to the first. At each position, it takes the pair of thresholds that minimises
    the objective, while the thresholds of all other positions are fixed. No step raises
    the objective.

    Parameters
    ----------
    values, bad, costs, use_lo, use_hi, weights
        As for :func:`lagrangian_path`.

    price : float
        Price of a wrong answer, in units of cost.

    lo, hi : ndarray of shape (n_members,)
        Thresholds before the sweep. The new ones are written into these arrays.

    position : ndarray of shape (n_samples,), dtype=int64
        Position at which each row leaves under the thresholds before the sweep.
    """
    from skroute.early_exit._kernels import best_cuts, settle

    n_members, n_samples = values.shape
    if weights is None:
        weights = np.ones((2, n_samples))
    prices = price * weights
    least_saving = _LEAST_SAVING * costs.mean()
    # Cost of each row after position `r`, errors included, if it does not leave there.
    to_go = np.zeros(n_samples)
    # `r` is a position. No row leaves early at the last one.
    for r in range(n_members - 2, -1, -1):
        # Chance that leaving above the upper threshold is wrong. It is 0 or 1 if `bad`
        # is Boolean.
        wrong_above = np.array(bad[r], dtype=np.float64)
        # A row that does not leave at `r` pays for the next member.
        to_go += costs[r + 1]
        # Rows that reach position `r`. The sweep has not changed earlier thresholds.
        rows = np.flatnonzero(position >= r)
        if len(rows):
            # numpy's vectorised sort is far faster than a compiled one.
            rows = rows[np.argsort(values[r, rows])]
            ordered = values[r, rows]
            cuts = best_cuts(
                ordered,
                rows,
                wrong_above,
                to_go,
                prices,
                least_saving=least_saving,
                use_lo=use_lo,
                use_hi=use_hi,
            )
            lo[r] = _between(ordered, cuts.n_below)
            hi[r] = _between(ordered, cuts.first_above)
        # Changes `to_go`: rows that leave at `r` cost only their errors from there on.
        settle(values[r], wrong_above, lo[r], hi[r], prices, to_go)


def widened(values, lo, hi, factors):
    """Return thresholds moved outwards by each factor, so that fewer rows leave early.

    They are moved by multiples of the remaining deviation: the standard deviation of
    the full score less the partial one.

    Parameters
    ----------
    values : ndarray of shape (n_members, n_samples)
        Values of all rows after each member, from :func:`running_values`.

    lo, hi : ndarray of shape (n_members,)
        Thresholds by position.

    factors : ndarray of shape (n_factors,)
        Multiples of the remaining deviation.

    Returns
    -------
    list of (lo, hi)
        For each factor, arrays of shape (n_members,).
    """
    # The value after the last member is the full score.
    full_scores = values[-1]
    # Standard deviation of what the remaining members add, by position.
    deviations = np.array(
        [np.std(full_scores - running) for running in values], np.float64
    )
    return [(lo - factor * deviations, hi + factor * deviations) for factor in factors]


def never(n_members):
    """Return thresholds under which no row leaves early, `lo` and `hi`."""
    return np.full(n_members, -np.inf), np.full(n_members, np.inf)


def checked(thresholds, n_members):
    """Return thresholds as one array, or raise an error if they are damaged.

    Parameters
    ----------
    thresholds : (lo, hi)
        Perhaps from a damaged file.

    n_members : int

    Returns
    -------
    ndarray of shape (2, n_members), dtype=float64
        Read-only.

    Raises
    ------
    ValueError
        If they have another shape or type.
    """
    for limits in thresholds:
        if limits.dtype != np.float64 or limits.shape != (n_members,):
            raise ValueError(f"The thresholds of {n_members} members are damaged.")
    return read_only(thresholds)


def leaving(values, lo, hi):
    """Return the position at which each row leaves, and on which side.

    Parameters
    ----------
    values : ndarray of shape (n_members, n_samples)
        From :func:`running_values`.

    lo, hi : ndarray of shape (n_members,)
        Thresholds by position.

    Returns
    -------
    position : ndarray of shape (n_samples,), dtype=int64
        Index of the last member evaluated.

    side : ndarray of shape (n_samples,), dtype=int8
        1 if a row leaves above, -1 below, 0 if it never leaves early.
    """
    from skroute.early_exit._kernels import leave_at

    return leave_at(values, read_only(lo), read_only(hi))


def is_wrong(position, side, bad):
    """Return True for rows that get another answer than from the full ensemble.

    Parameters
    ----------
    position, side : ndarray of shape (n_samples,)
        From :func:`leaving`.

    bad : ndarray of shape (n_members, n_samples), dtype=bool
        From :func:`running_values`.

    Returns
    -------
    ndarray of shape (n_samples,), dtype=bool
    """
    # True if leaving above the upper threshold is wrong, at the position where the row
    # leaves.
    wrong_above = bad[position, np.arange(len(position))]
    leaves_above = side > 0
    leaves_below = side < 0
    return (leaves_above & wrong_above) | (leaves_below & ~wrong_above)
