"""Search for sets of groups that are worth a model, by forward selection.

Selection goes on from every undominated set, by small boosted trees. A set is
undominated if no cheaper one has a lower loss, so that the best set within each cost is
found. Sets of what may be bought first come in addition, so that the second purchase
can depend on what a row has shown.
"""

import numpy as np

from skroute.gating._set_models import of_classes
from skroute.metrics import pareto_front

# Largest number of rows that sets are tried on.
_MOST_ROWS = 12_000
# Number of parts of these rows. A booster of all other parts is judged on one.
_PARTS = 4
# Boosting rounds of a trial for two classes, each of one tree.
_TREES = 40
# Least number of boosting rounds for many classes.
_FEWEST_TREES = 8
# Leaves of a tree of a trial.
_LEAVES = 15
# Learning rate of a trial, and for many classes, whose rounds are fewer.
_RATE = 0.1
_RATE_OF_MANY_CLASSES = 0.2
# Boosting rounds that show how much each group promises after a set, and their learning
# rate.
_TREES_OF_A_PROMISE = 8
_RATE_OF_A_PROMISE = 0.2
# Largest number of groups that are tried in addition to a set.
_TRIED = 8
# Largest number of sets that others are tried from.
_MOST_SETS = 60
# Up to this number of purchases, a set is tried on all parts. Later ones are tried on
# two.
_SURE_PURCHASES = 3
# With fewer rows every trial counts on all parts.
_FEW_ROWS = 400
# Sets that cost less than this much more than the one before have no model.
_RATIO = 1.15
# Number of groups that are tried as the next purchase.
_BRANCHES = 4
# Number of purchases, one after the other, for which groups are tried.
_DEPTH = 2
# Smallest share of a class, as a probability of an empty set.
_LEAST_SHARE = 1e-6


class Trials:
    """Losses of sets on parts of the rows that small boosters have not seen.

    A set is a Boolean array of shape (n_groups,).

    Parameters
    ----------
    task : Task
        The rows to try sets on. Of more than `_MOST_ROWS`, some are drawn.
    rng : numpy Generator
        Draws these rows, and the parts that they are divided into.

    Attributes
    ----------
    task : Task
        The drawn rows, in random order.
    parts : list of ndarray of int
        Positions of the rows of each part among the drawn rows.
    fitted : list of Task
        For each part, the rows of all other parts.
    n_trees : int
        Boosting rounds of a trial.
    params : dict
        LightGBM's parameters of a trial.
    """

    def __init__(self, task, rng):
        drawn_rows = rng.permutation(len(task.y))[:_MOST_ROWS]
        self.task = task.of(drawn_rows)
        self.parts = np.array_split(np.arange(len(drawn_rows)), _PARTS)
        self.fitted = []
        for judging in range(_PARTS):
            others = np.concatenate(self.parts[:judging] + self.parts[judging + 1 :])
            self.fitted.append(self.task.of(others))
        self.n_trees = _TREES
        rate = _RATE
        if task.n_classes > 2:
            # A round grows one tree for each class, so that fewer rounds are enough.
            self.n_trees = max(_FEWEST_TREES, _TREES // task.n_classes)
            rate = _RATE_OF_MANY_CLASSES
        self.params = self.fitted[0].params(_LEAVES, learning_rate=rate)
        # Losses that were computed, by bytes of the set and position of the part.
        self._losses = {}
        # Boosters that `promise` goes on from, by bytes of the set. They are fitted on
        # all parts but the first. A set without columns has none.
        self._boosters = {}
        # The same rows with all columns, binned once for all calls of `promise`.
        all_columns = np.arange(task.X.shape[1])
        self._all_columns = self.fitted[0].data(all_columns, self.params).construct()

    def cost(self, groups):
        """Return the cost of a set."""
        return float(self.task.costs[groups].sum())

    def loss(self, groups, n_parts=_PARTS):
        """Return the mean log loss of a set on the first parts."""
        return np.mean([self._loss(groups, judging) for judging in range(n_parts)])

    def _loss(self, groups, judging):
        """Return the log loss of a set on one part, by a booster of the other parts.

        `judging` is the position of the part. The loss is remembered in `_losses`. The
        booster of the first part is remembered in `_boosters`.
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
            # Without columns, each row is answered with the shares of the classes.
            log_shares = np.log(np.clip(task.shares, _LEAST_SHARE, 1.0))
            scores = np.tile(log_shares, (len(held_out.y), 1))
        self._losses[key] = held_out.log_loss(scores)
        return self._losses[key]

    def promise(self, groups):
        """Return how much each group promises per cost after a set, (n_groups,).

        Boosting goes on from the answers of the set, with all columns. A promise is the
        gain of the splits on a group's columns, divided by the group's cost. It is -1
        for groups of the set.
        """
        task = self.fitted[0]
        # Called for its booster, which it writes into `_boosters`.
        self._loss(groups, 0)
        booster = self._boosters.get(groups.tobytes())
        # None: boosting starts from nothing after a set without columns.
        start = None
        if booster is not None:
            raw = raw_scores(booster, task.X[:, task.columns(groups)])
            # LightGBM takes the scores of all rows for one class, then for the next.
            start = raw.ravel(order="F")
        self._all_columns.set_init_score(start)
        params = self.params | {"learning_rate": _RATE_OF_A_PROMISE}
        more = grow_trees(params, self._all_columns, _TREES_OF_A_PROMISE)
        gain = np.bincount(
            task.group_of, more.feature_importance("gain"), len(task.costs)
        )
        # Free groups are divided by 1.
        gain_by_cost = gain / np.where(task.costs > 0, task.costs, 1.0)
        return np.where(groups, -1.0, gain_by_cost)


def grow_trees(params, data, n_trees):
    """Return a booster of at most `n_trees` rounds, grown on a LightGBM Dataset.

    It does not call ``lightgbm.train``, which takes as long as the trees of few rows.
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
    """Return sets by rising cost, each once, ndarray of bool (n_sets, n_groups).

    `sets` are Boolean rows, and `costs` (n_groups,) are those of the groups. Of sets of
    equal cost, smaller ones come first.
    """
    different = np.unique(sets, axis=0)
    # np.lexsort sorts by its last key first.
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
        By rising cost. The first is the set of the free groups, which may be empty. The
        last has all groups.
    """
    # Groups that cost nothing are in every set.
    root = trials.task.costs == 0
    front = _search(trials, root)
    chosen = [root]
    for groups in front:
        last_cost = trials.cost(chosen[-1])
        is_dearer = last_cost == 0 or trials.cost(groups) >= _RATIO * last_cost
        if is_dearer or groups.all():
            chosen.append(groups)
    for limit in limits:
        chosen.append(best_within(trials, front, limit))
    branch_starts = [root]
    if not root.any():
        # Without free groups, the best single group is bought first.
        single_groups = [groups for groups in front if groups.sum() == 1]
        branch_starts = single_groups[-1:]
    branches = _branches(trials, branch_starts)
    return sorted_sets([*chosen, *branches], trials.task.costs)


def _search(trials, root):
    """Return undominated sets, and then one group more at a time up to all groups.

    Parameters
    ----------
    trials : Trials
    root : ndarray of bool of shape (n_groups,)
        The set of the free groups.

    Returns
    -------
    list of ndarray of bool of shape (n_groups,)
        By rising cost.
    """
    costs = trials.task.costs
    has_few_rows = len(trials.task.y) < _FEW_ROWS
    sets = [root]
    losses = [trials.loss(root)]
    # Positions of the sets to which groups were added.
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
        # Two parts are enough for late purchases, which matter less.
        n_parts = 2
        if has_few_rows or n_purchases < _SURE_PURCHASES:
            n_parts = _PARTS
        for child in _race(trials, sets[position], n_parts):
            is_new = not any((child == groups).all() for groups in sets)
            if is_new:
                sets.append(child)
                losses.append(trials.loss(child, n_parts))
        # The parent is judged on the same parts as its children.
        losses[position] = trials.loss(sets[position], n_parts)
    chain = [sets[position] for position in front]
    last = chain[-1]
    # Groups of the set itself have a promise of -1, so that they come last.
    by_promise = np.argsort(-trials.promise(last), kind="stable")
    n_missing = int((~last).sum())
    for group in by_promise[:n_missing]:
        chain.append(with_groups(chain[-1], [group]))
    return chain


def with_groups(groups, more):
    """Return a copy of a set with more groups, given by their positions."""
    larger = groups.copy()
    larger[list(more)] = True
    return larger


def _race(trials, groups, n_parts):
    """Return sets that have one promising group more, the best first.

    After each part of the rows, the worse half of the sets is out of the race.

    Parameters
    ----------
    trials : Trials
    groups : ndarray of bool of shape (n_groups,)
        The set that groups are added to.
    n_parts : int
        Number of parts that the last sets are compared on.

    Returns
    -------
    list of ndarray of bool of shape (n_groups,)
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
            # Half of the sets stay, rounded up, and at least two.
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
        Largest cost of the set.

    Returns
    -------
    ndarray of bool of shape (n_groups,)
    """
    # Never empty: the set of the free groups is within every limit.
    within = [groups for groups in sets if trials.cost(groups) <= limit]
    losses = [trials.loss(groups) for groups in within]
    best = within[int(np.argmin(losses))]
    best_loss = min(losses)
    while True:
        room = limit - trials.cost(best)
        fits = ~best & (trials.task.costs <= room)
        # -inf: groups that do not fit come last.
        promise = np.where(fits, trials.promise(best), -np.inf)
        by_promise = np.argsort(-promise, kind="stable")
        children = []
        for group in by_promise[: min(_TRIED, int(fits.sum()))]:
            children.append(with_groups(best, [group]))
        losses = [trials.loss(child) for child in children]
        if not losses or min(losses) >= best_loss:
            return best
        best_loss = min(losses)
        best = children[int(np.argmin(losses))]


def _branches(trials, starts):
    """Return the sets after up to `_DEPTH` promising purchases from the sets `starts`.

    Both are lists of ndarray of bool of shape (n_groups,).
    """
    branches = []
    level = starts
    for _ in range(_DEPTH):
        next_level = []
        for groups in level:
            promise = trials.promise(groups)
            by_promise = np.argsort(-promise, kind="stable")
            for group in by_promise[:_BRANCHES]:
                # Groups of the set itself have a promise of -1.
                if promise[group] > 0:
                    next_level.append(with_groups(groups, [group]))
        level = next_level
        branches += level
    return branches
