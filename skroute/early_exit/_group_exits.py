"""When a row cannot enter the top of its group any more: early exit of rankers.

Rows of a group are compared at a few positions, the checkpoints. A row leaves whose partial
sum is further below the k-th best of those still there than the checkpoint's gap.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from joblib import effective_n_jobs

from skroute.early_exit._exit_thresholds import ExitThresholds
from skroute.early_exit._order import greedy_mse_order
from skroute.early_exit._policies import N_POLICIES, WIDER
from skroute.early_exit._thresholds import lagrangian_path, widened
from skroute.forests._bitvector import bit_trees

# What a top that changes costs, in evaluations of all rows of a group by all members.
_PRICES = np.geomspace(16.0, 1 / 64, N_POLICIES)
# Rows that pass through all stages together, but for the rest of a group.
_CHUNK = 16384


def checkpoints(n_members):
    """Positions after which rows may leave, and the last one.

    Parameters
    ----------
    n_members : int

    Returns
    -------
    ndarray of int64
        Numbers of members: distances grow by about a third.
    """
    ends = np.rint(4 * 1.35 ** np.arange(60)).astype(np.int64)
    return np.append(np.unique(ends[ends < n_members]), n_members)


def runs_of(groups):
    """Rows sorted by group, as few moved as possible.

    Parameters
    ----------
    groups : ndarray of shape (n_samples,), dtype=int64

    Returns
    -------
    order : ndarray of shape (n_samples,), dtype=int64
        Rows so that groups are runs.

    group : ndarray of shape (n_samples,), dtype=int64
        The group of each of them.
    """
    order = np.argsort(groups, kind="stable")
    return order, groups[order]


def top_scores(score, group, k):
    """The k-th best score of each row's group: minus infinity where it has fewer rows.

    Parameters
    ----------
    score : ndarray of shape (n_samples,)
    group : ndarray of shape (n_samples,), dtype=int64
        Groups are runs.

    k : int

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    from skroute.early_exit._number_kernels import kth_largest

    return kth_largest(score, group, k)


def below_top(score, group, k):
    """How far each row is above the k-th best of its group; below zero for most.

    Parameters
    ----------
    score : ndarray of shape (n_samples,)
    group : ndarray of shape (n_samples,), dtype=int64
        Groups are runs.

    k : int

    Returns
    -------
    ndarray of shape (n_samples,)
        Infinite in groups of fewer than `k` rows.
    """
    return score - top_scores(score, group, k)


def learn_group_exits(scores, offset, group, k):
    """Order, and gaps from cautious to hurried.

    Parameters
    ----------
    scores : ndarray of shape (n_members, n_samples)
    offset : float
    group : ndarray of shape (n_samples,), dtype=int64
        Groups are runs 0, 1, ...

    k : int

    Returns
    -------
    order : ndarray of shape (n_members,), dtype=int64
    policies : list of ndarray of shape (n_checkpoints,)
        A row leaves where it is above the k-th best by less than this, which is at most 0.
    """
    n_members, n_samples = scores.shape
    ends = checkpoints(n_members)
    never = [np.full(len(ends), -np.inf)]
    sizes = np.bincount(group)
    # Only what differs within a group ranks it, and only groups with more than k rows.
    long = sizes[group] > k
    if not long.any():
        return np.arange(n_members), never
    centred = scores[:, long].astype(np.float32)
    counted = np.unique(group[long], return_inverse=True)[1]
    sums = np.stack([np.bincount(counted, row) for row in centred])
    centred -= (sums / np.bincount(counted))[:, counted].astype(np.float32)
    order = greedy_mse_order(centred[:, :, None])
    above = staged_gaps(scores[:, long], order, ends, offset, counted, k)
    top = above[-1] >= 0
    costs = np.diff(ends, prepend=0).astype(np.float64)
    prices = n_members * (n_samples / len(sizes)) * _PRICES
    bad = np.broadcast_to(~top, above.shape)
    path = lagrangian_path(above, bad, costs, prices, use_hi=False)
    path = widened(above, *path[0], WIDER) + path
    return order, never + [np.minimum(lo, 0.0) for lo, _ in path]


def staged_gaps(scores, order, ends, offset, group, k):
    """How far rows are above the k-th best, at each checkpoint.

    Parameters
    ----------
    scores : ndarray of shape (n_members, n_samples)
    order, ends : ndarray of int64
    offset : float
    group : ndarray of shape (n_samples,), dtype=int64
    k : int

    Returns
    -------
    ndarray of shape (n_checkpoints, n_samples), dtype=float32
    """
    sums = staged_sums(scores, order, ends, offset)
    gaps = np.empty(sums.shape, dtype=np.float32)
    for i, score in enumerate(sums):
        # Rounded after the subtraction: the k-th best is at zero.
        gaps[i] = below_top(score, group, k)
    return gaps


def staged_sums(scores, order, ends, offset):
    """Sums at the checkpoints: ndarray of shape (n_checkpoints, n_samples)."""
    sums, total, first = np.empty((len(ends), scores.shape[1])), offset, 0
    for i, last in enumerate(ends):
        total = total + scores[order[first:last]].sum(axis=0, dtype=np.float64)
        sums[i], first = total, last
    return sums


def judge_groups(policies, sums, ends, group, k):
    """What each policy does to groups.

    Parameters
    ----------
    policies : list of ndarray of shape (n_checkpoints,)
    sums : ndarray of shape (n_checkpoints, n_samples)
    ends : ndarray of shape (n_checkpoints,)
    group : ndarray of shape (n_samples,), dtype=int64
        Groups are runs 0, 1, ...

    k : int

    Returns
    -------
    cost : ndarray of shape (n_policies,)
        Members per row.

    changed : ndarray of shape (n_policies, n_groups), dtype=bool
        Whether the top of a group is another one.
    """
    n_groups = int(group[-1]) + 1
    cost, changed = np.empty(len(policies)), np.empty((len(policies), n_groups), dtype=bool)
    top = below_top(sums[-1], group, k) >= 0
    needed = np.minimum(np.bincount(group), k)
    for i, gaps in enumerate(policies):
        rows, spent, first = np.arange(len(group)), 0, 0
        for score, last, gap in zip(sums, ends, gaps):
            spent, first = spent + len(rows) * (last - first), last
            if last < ends[-1] and gap > -np.inf:
                rows = rows[below_top(score[rows], group[rows], k) >= gap]
        cost[i] = spent / len(group)
        # Of rows that are equal at the end of the top, any will do.
        kept = np.bincount(group[rows], top[rows], minlength=n_groups)
        changed[i] = kept < needed
    return cost, changed


class GroupWalk:
    """Evaluates trees in stages, and leaves out rows that cannot enter the top of their group.

    Parameters
    ----------
    forest : Forest
        In the order of evaluation, with one output.
    """

    def __init__(self, forest):
        self.forest = forest
        self.ends = checkpoints(forest.n_members)

    def __getstate__(self):
        # The second layout is made again where it is asked for.
        return {name: value for name, value in vars(self).items() if name != "_stages"}

    def _layouts(self):
        kept = vars(self).get("_stages")
        if kept is None:
            kept = []
            for first, last in zip([0, *self.ends], self.ends):
                part = self.forest.taken(range(first, last))
                kept.append((part.trees, bit_trees(part.trees, self.forest.dtype)))
            self._stages = kept
        return kept

    def walk(self, X, group, gaps, k, n_jobs=None):
        """Evaluate until only rows are left that may be in the top of their group.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            As the trees take them.

        group : ndarray of shape (n_samples,), dtype=int64
            Groups are runs.

        gaps : ndarray of shape (n_checkpoints,)
        k : int
        n_jobs : int, default=None
            Threads.

        Returns
        -------
        score : ndarray of shape (n_samples,)
            Partial sums.

        members : ndarray of shape (n_samples,), dtype=int64
            How many are in them.
        """
        n = len(X)
        score = np.full((n, 1), self.forest.offset[0])
        members = np.full(n, self.forest.n_members)
        starts = np.append(0, np.flatnonzero(np.diff(group)) + 1)
        # A chunk ends where a group does.
        cuts = np.unique(starts[np.searchsorted(starts, np.arange(0, n, _CHUNK), "right") - 1])
        spans = list(zip(cuts, np.append(cuts[1:], n)))
        spent, side = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int8)
        never = ExitThresholds.never(self.forest.n_members)
        known = self._layouts(), group, gaps, k, members, (never, score, spent, side)
        n_threads = min(effective_n_jobs(n_jobs), len(spans))
        if n_threads <= 1:
            for start, stop in spans:
                self._walk(X, start, stop, *known)
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(lambda span: self._walk(X, *span, *known), spans))
        return score[:, 0], members

    def _walk(self, X, start, stop, stages, group, gaps, k, members, to):
        from skroute.early_exit._bit_walks import walk_stage
        from skroute.forests._kernels import add_leaves

        rows, score = np.arange(start, stop), to[1]
        first, column = 0, np.zeros(1, dtype=np.int64)
        for (trees, bits), last, gap in zip(stages, self.ends, gaps):
            if bits is None:
                part = np.zeros((len(rows), 1))
                n_here = len(trees.member_start) - 1
                add_leaves(np.ascontiguousarray(X[rows]), trees, 0, n_here, column, part)
                score[rows] += part
            else:
                # It orders nothing anew where nobody leaves.
                walk_stage(X, rows.copy(), len(rows), first, bits, *to)
            first = last
            if last < self.ends[-1] and gap > -np.inf:
                leaves = below_top(score[rows, 0], group[rows], k) < gap
                members[rows[leaves]] = last
                rows = rows[~leaves]
