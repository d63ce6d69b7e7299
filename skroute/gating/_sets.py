"""Search for sets of groups that are worth a model, by forward selection.

Groups are added to every undominated set, and small boosted trees give its loss. A set
is undominated if no cheaper set has a lower loss. The undominated sets are thus the
best ones within each cost. Sets of a few promising purchases are added, so that the
second purchase can depend on the values of the first.
"""

import numpy as np

from skroute.gating._set_models import of_classes
from skroute.metrics import pareto_front

# Largest number of rows that sets are tried on.
_MOST_ROWS = 12_000
# Number of parts that the rows of trials are divided into. A booster that is fitted on
# all other parts is judged on one part.
_PARTS = 4
# Boosting rounds of a trial for two classes, each of one tree. A trial is a small
# booster that reads the columns of one set.
_TREES = 40
# Least number of boosting rounds of a trial for many classes.
_FEWEST_TREES = 8
# Leaves of a tree of the small booster of a trial.
_LEAVES = 15
# Learning rate of the small booster of a trial for two classes.
_RATE = 0.1
# Learning rate of a trial for many classes, which has fewer rounds.
_RATE_OF_MANY_CLASSES = 0.2
# Boosting rounds for the promise of each group: its gain per cost as an addition to a
# set.
_TREES_OF_A_PROMISE = 8
# Learning rate of the boosting rounds for the promises of groups.
_RATE_OF_A_PROMISE = 0.2
# Largest number of groups that are tried in addition to a set.
_TRIED = 8
# Largest number of sets to which groups are added.
_MOST_SETS = 60
# A set with fewer purchases than this is compared with larger sets on all parts of the
# rows. Other sets are compared on two parts.
_SURE_PURCHASES = 3
# With fewer rows than this, all sets are compared on all parts.
_FEW_ROWS = 400
# A set gets a model if it costs at least this number times the cost of the next
# cheaper set that gets one.
_RATIO = 1.15
# Number of promising groups that `_branches` tries to add to a set, one at a time.
_BRANCHES = 4
# Largest number of groups that `_branches` adds to a set, one after the other.
_DEPTH = 2
# A set without columns answers with the class shares. Smaller shares count as this
# number, so that their logarithm is finite.
_LEAST_SHARE = 1e-6


class Trials:
    """Losses of sets on held-out parts of the rows, by small boosters.

    A set is a Boolean array of shape (n_groups,).

    Parameters
    ----------
    task : Task
        The rows to try sets on. If there are more than `_MOST_ROWS`, this number of
        rows is drawn.
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
        """Draw the rows, divide them into parts, and bin their columns."""
        drawn_rows = rng.permutation(len(task.y))[:_MOST_ROWS]
        self.task = task.of(drawn_rows)
        self.parts = np.array_split(np.arange(len(drawn_rows)), _PARTS)
        self.fitted = []
        for part_index in range(_PARTS):
            other_rows = np.concatenate(
                self.parts[:part_index] + self.parts[part_index + 1 :]
            )
            self.fitted.append(self.task.of(other_rows))
        self.n_trees = _TREES
        rate = _RATE
        if task.n_classes > 2:
            # A round grows one tree for each class, so that fewer rounds are enough.
            self.n_trees = max(_FEWEST_TREES, _TREES // task.n_classes)
            rate = _RATE_OF_MANY_CLASSES
        self.params = self.fitted[0].params(_LEAVES, learning_rate=rate)
        # Losses that were computed. The keys are pairs: bytes of the set, and position
        # of the part.
        self._losses = {}
        # Boosters from which `promise` goes on. The keys are bytes of sets. They are
        # fitted on all parts but the first. A set without columns has no booster.
        self._boosters = {}
        # All columns of all parts but the first, binned once for all calls of
        # `promise`.
        all_columns = np.arange(task.X.shape[1])
        self._all_columns = self.fitted[0].data(all_columns, self.params).construct()

    def cost(self, groups):
        """Return the cost of a set."""
        return float(self.task.costs[groups].sum())

    def loss(self, groups, n_parts=_PARTS):
        """Return the mean log loss of a set over the first `n_parts` parts of rows."""
        return np.mean(
            [self._loss(groups, part_index) for part_index in range(n_parts)]
        )

    def _loss(self, groups, part_index):
        """Return the log loss of a set on one part of the rows, fitted on the others.

        The loss is stored in `_losses` for the next call. If `part_index` is 0, the
        booster is stored in `_boosters` for `promise`.

        Parameters
        ----------
        groups : ndarray of bool of shape (n_groups,)
            The set.
        part_index : int
            Position of the part in `parts`.
        """
        key = groups.tobytes(), part_index
        if key in self._losses:
            return self._losses[key]
        task = self.fitted[part_index]
        held_out = self.task.of(self.parts[part_index])
        columns = task.columns(groups)
        if len(columns):
            data = task.data(columns, self.params)
            booster = grow_trees(self.params, data, self.n_trees)
            scores = class_scores(booster, held_out.X[:, columns])
            if part_index == 0:
                self._boosters[groups.tobytes()] = booster
        else:
            # Without columns, each row is answered with the shares of the classes.
            log_shares = np.log(np.clip(task.shares, _LEAST_SHARE, 1.0))
            scores = np.tile(log_shares, (len(held_out.y), 1))
        self._losses[key] = held_out.log_loss(scores)
        return self._losses[key]

    def promise(self, groups):
        """Return the gain per cost that each group promises as an addition to a set.

        Boosting goes on from the answers of the set, with all columns. A promise is the
        gain of the splits on a group's columns, divided by the group's cost. It is -1
        for groups of the set. The result has shape (n_groups,).
        """
        # The rows of all parts but the first.
        task = self.fitted[0]
        # `_loss` writes the booster of the set on these rows into `_boosters`. The loss
        # that it returns is not used.
        self._loss(groups, 0)
        booster = self._boosters.get(groups.tobytes())
        # None: boosting starts from nothing after a set without columns.
        start = None
        if booster is not None:
            raw = raw_scores(booster, task.X[:, task.columns(groups)])
            # LightGBM takes the scores of all rows for the first class, then those for
            # the next.
            start = raw.ravel(order="F")
        self._all_columns.set_init_score(start)
        params = self.params | {"learning_rate": _RATE_OF_A_PROMISE}
        new_booster = grow_trees(params, self._all_columns, _TREES_OF_A_PROMISE)
        gain_of_columns = new_booster.feature_importance("gain")
        gain = np.bincount(task.group_of, gain_of_columns, len(task.costs))
        # The gain of a free group is divided by 1. The quotient is not used, since free
        # groups are in every set.
        divisor = np.where(task.costs > 0, task.costs, 1.0)
        # -1: the group is in the set already.
        return np.where(groups, -1.0, gain / divisor)


def grow_trees(params, data, n_trees):
    """Return a LightGBM booster of at most `n_trees` rounds.

    It does not call ``lightgbm.train``: with few rows, this call takes as long as the
    trees do.

    Parameters
    ----------
    params : dict
        LightGBM's parameters.
    data : lightgbm.Dataset
    n_trees : int
        Rounds end earlier if no split gains.
    """
    import lightgbm

    booster = lightgbm.Booster(params, data)
    for _ in range(n_trees):
        is_finished = booster.update()
        if is_finished:
            break
    return booster


def raw_scores(booster, X):
    """Return the raw scores of the rows `X` by a booster.

    The shape is (n_rows,) for two classes, and else (n_rows, n_classes).
    """
    return booster.predict(np.ascontiguousarray(X), raw_score=True, num_threads=1)


def class_scores(booster, X):
    """Return the scores of the classes by a booster, shape (n_rows, n_classes)."""
    raw = raw_scores(booster, X)
    return of_classes(raw.reshape(len(raw), -1))


def sorted_sets(sets, costs):
    """Return the different sets by rising cost, ndarray of bool (n_sets, n_groups).

    `sets` are Boolean rows, and `costs` (n_groups,) are those of the groups. If several
    sets have the same cost, the set with fewer groups comes first.
    """
    different_sets = np.unique(sets, axis=0)
    n_groups_of_set = different_sets.sum(axis=1)
    # np.lexsort sorts by its last key first: by cost, then by number of groups.
    order = np.lexsort((n_groups_of_set, different_sets @ costs))
    return different_sets[order]


def find_sets(trials, limits=()):
    """Return the sets of groups that get a model.

    Parameters
    ----------
    trials : Trials
        Gives the losses of sets, and the promises of groups.
    limits : sequence of float, default=()
        Costs within which the best set gets a model, too.

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
        # A set that costs nearly the same as the last chosen one is skipped, unless it
        # has all groups.
        costs_enough = last_cost == 0 or trials.cost(groups) >= _RATIO * last_cost
        if costs_enough or groups.all():
            chosen.append(groups)
    for limit in limits:
        chosen.append(best_within(trials, front, limit))
    branch_starts = [root]
    if not root.any():
        # Without free groups, the best single group is bought first. Losses fall
        # along `front`, so that its last set of one group is the best. There may be
        # none.
        single_groups = [groups for groups in front if groups.sum() == 1]
        branch_starts = single_groups[-1:]
    branches = _branches(trials, branch_starts)
    return sorted_sets([*chosen, *branches], trials.task.costs)


def _search(trials, root):
    """Return the sets of lowest loss within a cost, then larger sets up to all groups.

    The sets of lowest loss are the undominated ones: no cheaper set has a lower loss.
    After the last of them, each set has one group more than the set before.

    Parameters
    ----------
    trials : Trials
        Gives the losses of sets, and the promises of groups.
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
        # Positions of the undominated sets, by rising cost.
        front = pareto_front(set_costs, -np.array(losses))
        not_expanded = []
        for position in front:
            if position not in expanded and not sets[position].all():
                not_expanded.append(position)
        if not not_expanded or len(expanded) >= _MOST_SETS:
            break
        # The cheapest of these sets is next.
        position = not_expanded[0]
        expanded.add(position)
        # Free groups are not purchases.
        n_purchases = sets[position].sum() - root.sum()
        # Losses on two parts of the rows are enough for late purchases, which matter
        # less.
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
    # `chain` begins with the undominated sets. The groups that the last of them
    # misses are then added, one at a time.
    chain = [sets[position] for position in front]
    last = chain[-1]
    # Groups of the set itself have a promise of -1, so that they come last.
    by_promise = np.argsort(-trials.promise(last), kind="stable")
    n_missing = int((~last).sum())
    for group in by_promise[:n_missing]:
        chain.append(with_groups(chain[-1], [group]))
    return chain


def with_groups(groups, more):
    """Return a copy of the set `groups` with the groups `more`, which are positions."""
    larger = groups.copy()
    larger[list(more)] = True
    return larger


def _race(trials, groups, n_parts):
    """Return the best sets that have one group more than a set, the best first.

    Each promising group is added to a copy of the set. The new sets are compared by
    their gain per cost, first on one part of the rows, then on two, and so on. After
    each comparison but the last, the worse half of the sets is dropped.

    Parameters
    ----------
    trials : Trials
        Gives the losses of sets, and the promises of groups.
    groups : ndarray of bool of shape (n_groups,)
        The set to which groups are added.
    n_parts : int
        Number of parts on which the last sets are compared.

    Returns
    -------
    list of ndarray of bool of shape (n_groups,)
    """
    # Groups of the set itself have a promise of -1, so that they come last.
    by_promise = np.argsort(-trials.promise(groups), kind="stable")
    n_missing = int((~groups).sum())
    children = []
    for group in by_promise[: min(_TRIED, n_missing)]:
        children.append(with_groups(groups, [group]))
    parent_cost = trials.cost(groups)
    for n_compared in range(1, n_parts + 1):
        parent_loss = trials.loss(groups, n_compared)
        gains_per_cost = []
        for child in children:
            gain = parent_loss - trials.loss(child, n_compared)
            gains_per_cost.append(gain / (trials.cost(child) - parent_cost))
        order = np.argsort(-np.array(gains_per_cost), kind="stable")
        children = [children[position] for position in order]
        if n_compared < n_parts:
            # Half of the sets stay, rounded up, and at least two.
            n_left = max(2, (len(children) + 1) // 2)
            children = children[:n_left]
    return children


def best_within(trials, sets, limit):
    """Return the best set within a cost, grown group by group while the loss falls.

    Parameters
    ----------
    trials : Trials
        Gives the losses of sets, and the promises of groups.
    sets : list of ndarray of bool of shape (n_groups,)
        Sets, of which the best within the cost is grown.
    limit : float
        Largest cost of the set.

    Returns
    -------
    ndarray of bool of shape (n_groups,)
    """
    # Not empty: the set of the free groups is within every limit.
    within = [groups for groups in sets if trials.cost(groups) <= limit]
    losses = [trials.loss(groups) for groups in within]
    best = within[int(np.argmin(losses))]
    best_loss = min(losses)
    while True:
        # Cost that one more group may have.
        room = limit - trials.cost(best)
        # True for missing groups that the limit allows. (n_groups,)
        fits = ~best & (trials.task.costs <= room)
        # -inf: groups that do not fit come last.
        promise = np.where(fits, trials.promise(best), -np.inf)
        by_promise = np.argsort(-promise, kind="stable")
        children = []
        for group in by_promise[: min(_TRIED, int(fits.sum()))]:
            children.append(with_groups(best, [group]))
        losses = [trials.loss(child) for child in children]
        if not losses or min(losses) >= best_loss:
            # No group more fits, or none lowers the loss.
            return best
        best_loss = min(losses)
        best = children[int(np.argmin(losses))]


def _branches(trials, starts):
    """Return the sets that have up to `_DEPTH` promising groups more than some sets.

    Parameters
    ----------
    trials : Trials
        Gives the promises of groups.
    starts : list of ndarray of bool of shape (n_groups,)
        The sets to start from. They are not in the result.

    Returns
    -------
    list of ndarray of bool of shape (n_groups,)
    """
    branches = []
    # The sets to which the same number of groups was added.
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
