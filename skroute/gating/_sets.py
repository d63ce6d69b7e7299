"""Search for sets of groups that are worth a model, by forward selection.

Selection goes on from every undominated set, by small boosted trees. A set is
undominated if no cheaper one has a lower loss, so that the best set within each cost is
found. Sets of what may be bought first come in addition, so that the second purchase
can depend on what a row has shown.
"""

import numpy as np

from skroute.gating._set_models import of_classes
from skroute.metrics import pareto_front

# Rows that sets are tried on at most, and parts of them, of which one judges.
_MOST_ROWS = 12_000
_PARTS = 4
# Trees of a trial: for two classes, and at least for many.
_TREES = 40
_FEWEST_TREES = 8
# Leaves of a tree of a trial.
_LEAVES = 15
# Learning rate of a trial, and for many classes, whose trees are fewer.
_RATE = 0.1
_RATE_OF_MANY_CLASSES = 0.2
# Trees that show how much each group promises after a set, and their learning rate.
_TREES_OF_A_PROMISE = 8
_RATE_OF_A_PROMISE = 0.2
# Groups that are tried next to a set, and sets that others are tried from.
_TRIED = 8
_MOST_SETS = 60
# Purchases in which every trial counts on all parts; later ones count on two.
_SURE_PURCHASES = 3
# With fewer rows every trial counts on all parts.
_FEW_ROWS = 400
# Sets that cost less than this much more than the one before have no model.
_RATIO = 1.15
# Branches: the groups that may be bought next, and for how many purchases.
_BRANCHES = 4
_DEPTH = 2
# Smallest share of a class, as a probability of an empty set.
_LEAST_SHARE = 1e-6


class Trials:
    """Losses of sets on parts of the rows that small boosters have not seen.

    Parameters
    ----------
    task : Task
    rng : numpy Generator
    """

    def __init__(self, task, rng):
        rows = rng.permutation(len(task.y))[:_MOST_ROWS]
        self.task = task.of(rows)
        self.parts = np.array_split(np.arange(len(rows)), _PARTS)
        # For each part the task of the other parts.
        self.fitted = []
        for judging in range(_PARTS):
            others = [rows for k, rows in enumerate(self.parts) if k != judging]
            self.fitted.append(self.task.of(np.concatenate(others)))
        self.n_trees = _TREES
        rate = _RATE
        if task.n_classes > 2:
            # A round of many classes has a tree for each.
            self.n_trees = max(_FEWEST_TREES, _TREES // task.n_classes)
            rate = _RATE_OF_MANY_CLASSES
        self.params = self.fitted[0].params(_LEAVES, learning_rate=rate)
        # By set and part, and the boosters of the first part by set.
        self._losses = {}
        self._boosters = {}
        every_column = np.arange(task.X.shape[1])
        self._every = self.fitted[0].data(every_column, self.params).construct()

    def cost(self, groups):
        """Return the cost of a set."""
        return float(self.task.costs[groups].sum())

    def loss(self, groups, n_parts=_PARTS):
        """Return the mean log loss of a set on the first parts."""
        return np.mean([self._loss(groups, judging) for judging in range(n_parts)])

    def _loss(self, groups, judging):
        """Return the log loss of a set on one part, by a booster of the other parts.

        `judging` is the position of the part.
        """
        key = groups.tobytes(), judging
        if key in self._losses:
            return self._losses[key]
        task = self.fitted[judging]
        held_out = self.task.of(self.parts[judging])
        columns = task.columns(groups)
        if len(columns):
            data = task.data(columns, self.params)
            booster = grow_trees(self.params, data, self.n_trees)
            raw = raw_scores(booster, held_out.X[:, columns])
            scores = of_classes(raw.reshape(len(raw), -1))
            if judging == 0:
                self._boosters[groups.tobytes()] = booster
        else:
            log_shares = np.log(np.clip(task.shares, _LEAST_SHARE, 1.0))
            scores = np.tile(log_shares, (len(held_out.y), 1))
        self._losses[key] = held_out.log_loss(scores)
        return self._losses[key]

    def promise(self, groups):
        """Return the importance by cost of every group after a set, (n_groups,).

        Boosting goes on from the answers of the set. It is -1 for groups of the set.
        """
        task = self.fitted[0]
        # Fits the booster of the set.
        self._loss(groups, 0)
        booster = self._boosters.get(groups.tobytes())
        start = None
        if booster is not None:
            raw = raw_scores(booster, task.X[:, task.columns(groups)])
            start = raw.ravel(order="F")
        self._every.set_init_score(start)
        params = self.params | {"learning_rate": _RATE_OF_A_PROMISE}
        more = grow_trees(params, self._every, _TREES_OF_A_PROMISE)
        gain = np.bincount(
            task.group_of, more.feature_importance("gain"), len(task.costs)
        )
        gain_by_cost = gain / np.where(task.costs > 0, task.costs, 1.0)
        return np.where(groups, -1.0, gain_by_cost)


def grow_trees(params, data, n_trees):
    """Return a booster of this number of trees.

    For few rows ``lightgbm.train`` itself takes as long as the trees.
    """
    import lightgbm

    booster = lightgbm.Booster(params, data)
    for _ in range(n_trees):
        is_finished = booster.update()
        if is_finished:
            break
    return booster


def raw_scores(booster, X):
    """Return the scores of a booster: (n_rows,), or (n_rows, n_classes)."""
    return booster.predict(np.ascontiguousarray(X), raw_score=True, num_threads=1)


def sorted_sets(sets, costs):
    """Return different sets by cost, ndarray of bool of shape (n_sets, n_groups)."""
    different = np.unique(sets, axis=0)
    order = np.lexsort((different.sum(axis=1), different @ costs))
    return different[order]


def find_sets(trials, limits=()):
    """Return sets of groups to fit a model for.

    Parameters
    ----------
    trials : Trials
    limits : sequence of float, default=()
        Costs within which the best set is to be among them.

    Returns
    -------
    ndarray of bool of shape (n_sets, n_groups)
        By cost: the free groups first, all groups last.
    """
    # What costs nothing is in every set.
    root = trials.task.costs == 0
    front = _search(trials, root)
    chosen = [root]
    for groups in front:
        so_far = trials.cost(chosen[-1])
        is_dearer = so_far == 0 or trials.cost(groups) >= _RATIO * so_far
        if is_dearer or groups.all():
            chosen.append(groups)
    for limit in limits:
        chosen.append(best_within(trials, front, limit))
    start = [root]
    if not root.any():
        # The best single group, which is bought first.
        start = [groups for groups in front if groups.sum() == 1][-1:]
    return sorted_sets([*chosen, *_branches(trials, start)], trials.task.costs)


def _search(trials, root):
    """Return undominated sets by cost, and then one group more at a time up to all."""
    costs = trials.task.costs
    has_few_rows = len(trials.task.y) < _FEW_ROWS
    sets = [root]
    losses = [trials.loss(root)]
    expanded = set()
    while True:
        set_costs = [costs[groups].sum() for groups in sets]
        front = pareto_front(set_costs, -np.array(losses))
        todo = []
        for position in front:
            if position not in expanded and not sets[position].all():
                todo.append(position)
        if not todo or len(expanded) >= _MOST_SETS:
            break
        position = todo[0]
        expanded.add(position)
        n_purchases = sets[position].sum() - root.sum()
        n_parts = 2
        if has_few_rows or n_purchases < _SURE_PURCHASES:
            n_parts = _PARTS
        for child in _race(trials, sets[position], n_parts):
            is_new = not any((child == groups).all() for groups in sets)
            if is_new:
                sets.append(child)
                losses.append(trials.loss(child, n_parts))
        # Sets are compared on as many parts as their parent.
        losses[position] = trials.loss(sets[position], n_parts)
    chain = [sets[position] for position in front]
    last = chain[-1]
    by_promise = np.argsort(-trials.promise(last), kind="stable")
    n_missing = int((~last).sum())
    for group in by_promise[:n_missing]:
        chain.append(with_groups(chain[-1], [group]))
    return chain


def with_groups(groups, more):
    """Return a set with some more groups, which are given by position."""
    larger = groups.copy()
    larger[list(more)] = True
    return larger


def _race(trials, groups, n_parts):
    """Return sets of one promising group more, the best first.

    After each part of the rows, the worse half of them is out of the race.
    """
    by_promise = np.argsort(-trials.promise(groups), kind="stable")
    n_missing = int((~groups).sum())
    children = []
    for group in by_promise[: min(_TRIED, n_missing)]:
        children.append(with_groups(groups, [group]))
    cost = trials.cost(groups)
    for n_seen in range(1, n_parts + 1):
        before = trials.loss(groups, n_seen)
        gains = []
        for child in children:
            gain = before - trials.loss(child, n_seen)
            gains.append(gain / (trials.cost(child) - cost))
        order = np.argsort(-np.array(gains), kind="stable")
        children = [children[position] for position in order]
        if n_seen < n_parts:
            # At least two, and the half of them, rounded up.
            n_left = max(2, (len(children) + 1) // 2)
            children = children[:n_left]
    return children


def best_within(trials, sets, limit):
    """Return the best set within a cost, grown until no group more fits and gains.

    Parameters
    ----------
    trials : Trials
    sets : list of ndarray of bool
        Sets to start from.
    limit : float

    Returns
    -------
    ndarray of bool of shape (n_groups,)
    """
    within = [groups for groups in sets if trials.cost(groups) <= limit]
    # The free groups are within every limit, and the first of the sets.
    losses = [trials.loss(groups) for groups in within]
    best = within[int(np.argmin(losses))]
    loss = min(losses)
    while True:
        room = limit - trials.cost(best)
        fits = ~best & (trials.task.costs <= room)
        promise = np.where(fits, trials.promise(best), -np.inf)
        by_promise = np.argsort(-promise, kind="stable")
        children = []
        for group in by_promise[: min(_TRIED, int(fits.sum()))]:
            children.append(with_groups(best, [group]))
        losses = [trials.loss(child) for child in children]
        if not losses or min(losses) >= loss:
            return best
        loss = min(losses)
        best = children[int(np.argmin(losses))]


def _branches(trials, level):
    """Return sets of what may be bought next, after those of `level`."""
    branches = []
    for _ in range(_DEPTH):
        next_level = []
        for groups in level:
            promise = trials.promise(groups)
            by_promise = np.argsort(-promise, kind="stable")
            for group in by_promise[:_BRANCHES]:
                if promise[group] > 0:
                    next_level.append(with_groups(groups, [group]))
        level = next_level
        branches += level
    return branches
