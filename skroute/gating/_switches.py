"""Sets of groups behind switches: groups whose value tells which other groups matter.

If one group decides which others are worth buying, no single order of purchases is good
for all rows. The attributions of a model of all columns tell how much each group
matters for each row. A shallow tree on the values of one group splits the rows into
parts for which different groups matter. In each part, forward selection starts again
from the set with this group, the switch.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn.tree import DecisionTreeRegressor

from skroute.gating._sets import class_scores, grow_trees, sorted_sets, with_groups

# Largest number of rows that the boosters of trials are fitted on. It bounds time. More
# rows lead to nearly the same sets.
_MOST_FITTED = 8000
# Largest number of judging rows, on which sets are compared. It bounds time. More rows
# lead to nearly the same sets.
_MOST_JUDGING = 3000
# Largest number of judging rows (on which sets are compared) whose attributions are
# computed. It bounds time. More rows lead to nearly the same sets.
_MOST_ATTRIBUTED = 1200
# At most one row in this number of rows is drawn for comparing sets.
_JUDGING_PART = 3
# Largest number of boosting rounds of the model of everything, which reads all columns.
_TREES_OF_EVERYTHING = 150
# Number of rounds without progress after which the boosting of all columns ends.
_PATIENCE = 20
# Boosting rounds of a trial for two classes. A trial is a small booster that
# reads the columns of one set.
_TREES = 40
# Least number of boosting rounds of a trial for many classes.
_FEWEST_TREES = 8
# Leaves of a tree of the small booster of a trial.
_LEAVES = 15
# Learning rate of the small booster of a trial for two classes.
_RATE = 0.1
# Learning rate of a trial for many classes, which has fewer rounds.
_RATE_OF_MANY_CLASSES = 0.2
# Largest number of leaves of a tree of the model that reads all columns.
_LEAVES_OF_EVERYTHING = 63
# Largest number of sets that are tried in all. It bounds the time.
_MOST_TRIALS = 200
# Largest number of switches that select a part of the rows, one after the other.
_DEPTH = 3
# Largest number of steps of a forward selection.
_MOST_STEPS = 7
# Number of groups that a step of forward selection tries alone.
_SINGLES = 6
# Number of groups that a step of forward selection tries in pairs.
_PAIRED = 4
# The gap of a set is its mean loss less the mean loss of the set of all groups. A step
# must close this share of the gap for each unit of cost.
_LEAST_STEP = 0.01
# A smaller gap in mean loss to the set of all groups counts as this number, in nats.
_LEAST_GAP = 0.01
# Pairs are tried if no group alone closes this share of the gap in mean loss to the set
# of all groups.
_CLOSES_ENOUGH = 0.1
# Largest number of leaves of the tree that splits rows by a switch.
_LEAVES_OF_A_SWITCH = 4
# Least number of rows of a leaf of the tree that splits rows by a switch.
_ROWS_OF_A_LEAF = 30
# A leaf of the tree that splits rows by a switch also has at least the tree's number of
# rows divided by this.
_LEAF_SHARE = 20
# Number of best switches by which the rows with one set are split.
_SWITCHES = 2
# No switch is looked for if attributions are computed for fewer rows than this.
_ROWS_OF_A_SWITCH = 100
# A part is the rows of one leaf of the tree that splits rows by a switch. Sets are
# grown for a part only if at least this many judging rows are in it.
_ROWS_OF_A_PART = 60
# Sets are grown for a part only if at least this share of all judging rows is in it.
_SHARE_OF_A_PART = 0.02
# Smaller probabilities count as this number in a loss, which is then finite.
_LEAST_PROBABILITY = 1e-6


def cross_entropy(truth, proba):
    """Return the log loss of each row, in nats: ``-sum(truth * log(proba))``.

    The classes are the last axis of `truth` (soft labels) and `proba`. The result has
    the other axes.
    """
    return -(truth * np.log(np.clip(proba, _LEAST_PROBABILITY, 1.0))).sum(axis=-1)


class Trial(NamedTuple):
    """Answers of a small booster of one set to the rows on which sets are compared.

    Attributes
    ----------
    loss : ndarray of shape (n_judging,)
        Log loss of each row against the soft labels.
    proba : ndarray of shape (n_judging, n_classes)
        Class probabilities.
    """

    loss: np.ndarray
    proba: np.ndarray


class Part(NamedTuple):
    """Rows with one bought set, on which larger sets are compared.

    Attributes
    ----------
    groups : ndarray of bool of shape (n_groups,)
        The set that these rows have bought.
    rows : ndarray of int
        Positions of the judging rows.
    depth : int
        Number of switches that have selected these rows, one after the other.
    """

    groups: np.ndarray
    rows: np.ndarray
    depth: int


class Switch(NamedTuple):
    """A group whose value tells which other groups matter.

    Attributes
    ----------
    group : int
        Position of the group.
    worth : float
        Variance explained per unit of the group's cost. It is the variance of the
        attributions of the other groups that a tree on the values of this group
        explains.
    parts : list of ndarray of int
        Positions of the judging rows in each leaf of the tree.
    """

    group: int
    worth: float
    parts: list


class SwitchSearch:
    """Losses of sets on drawn rows, and each group's attributions for these rows.

    A set is a Boolean array of shape (n_groups,).

    Parameters
    ----------
    task : Task
        The rows to learn from.
    rng : numpy Generator
        Draws the judging rows.

    Attributes
    ----------
    judging : Task
        The rows that judge sets.
    fitted : Task
        The rows that the boosters of trials are fitted on.
    importance : ndarray of shape (n_attributed, n_groups)
        How much each group matters for each of the first `n_attributed` judging rows:
        the sum of the absolute attributions of the group's columns, over all classes.
    """

    def __init__(self, task, rng):
        """Draw rows to compare sets on. Fit a model of all columns on the others."""
        rows = rng.permutation(len(task.y))
        n_judging = min(len(rows) // _JUDGING_PART, _MOST_JUDGING)
        self.judging = task.of(rows[:n_judging])
        other_rows = rows[n_judging:]
        full_booster = self._fit_everything(task.of(other_rows))
        self.fitted = task.of(other_rows[:_MOST_FITTED])
        scores = class_scores(full_booster, self.judging.X)
        # Class probabilities by the model of all columns, (n_judging, n_classes). They
        # replace the labels in the loss of a trial, since they have less noise.
        self._soft_labels = softmax(scores, axis=1)
        self.importance = self._attributions(full_booster)
        # Trials so far. The keys are bytes of sets.
        self._trials = {}

    @property
    def n_trials(self):
        """Number of sets that were tried."""
        return len(self._trials)

    def _fit_everything(self, task):
        """Return a booster of all columns, fitted on `task`.

        Boosting ends when the loss of the judging rows falls no more.
        """
        import lightgbm

        columns = np.arange(task.X.shape[1])
        params = task.params(_LEAVES_OF_EVERYTHING)
        data = task.data(columns, params)
        held_out = self.judging.data(columns, params, reference=data)
        stop = lightgbm.early_stopping(_PATIENCE, verbose=False)
        return lightgbm.train(
            params, data, _TREES_OF_EVERYTHING, valid_sets=[held_out], callbacks=[stop]
        )

    def _attributions(self, booster):
        """Return the importance of each group to a booster, for each row of a sample.

        The result has shape (n_attributed, n_groups), as the attribute `importance`.
        """
        task = self.judging
        values = np.ascontiguousarray(task.X[:_MOST_ATTRIBUTED])
        n_rows, n_columns = values.shape
        attributions = booster.predict(values, pred_contrib=True, num_threads=1)
        # Each class has a number for each column, and an intercept as the last number.
        # (n_rows, n_class_outputs, n_columns + 1)
        attributions = np.asarray(attributions).reshape(n_rows, -1, n_columns + 1)
        without_intercept = attributions[:, :, :-1]
        # Summed over the classes. (n_rows, n_columns)
        by_column = np.abs(without_intercept).sum(axis=1)
        n_groups = len(task.costs)
        importance = np.zeros((n_rows, n_groups))
        for group in range(n_groups):
            is_of_group = task.group_of == group
            importance[:, group] = by_column[:, is_of_group].sum(axis=1)
        return importance

    def trial(self, groups):
        """Fit a small booster on the columns of a set, and judge it (`Trial`).

        `groups` is the set. Each set is tried once, and its trial stored in `_trials`.
        """
        key = groups.tobytes()
        if key not in self._trials:
            proba = self._proba(groups)
            loss = cross_entropy(self._soft_labels, proba)
            self._trials[key] = Trial(loss, proba)
        return self._trials[key]

    def _proba(self, groups):
        """Return class probabilities of the `judging` rows by a small booster of a set.

        `groups` is the set. The result has shape (n_judging, n_classes).
        """
        task = self.fitted
        columns = task.columns(groups)
        if not len(columns):
            # Without columns, each row is answered with the shares of the classes.
            return np.tile(task.shares, (len(self.judging.y), 1))
        n_trees = _TREES
        rate = _RATE
        if task.n_classes > 2:
            # A round grows one tree for each class, so that fewer rounds are enough.
            n_trees = max(_FEWEST_TREES, _TREES // (task.n_classes - 1))
            rate = _RATE_OF_MANY_CLASSES
        params = task.params(_LEAVES, learning_rate=rate)
        booster = grow_trees(params, task.data(columns, params), n_trees)
        scores = class_scores(booster, self.judging.X[:, columns])
        return softmax(scores, axis=1)

    def mean_loss(self, groups, rows):
        """Return the weighted mean loss of a set over rows (positions in `judging`)."""
        weight = self.judging.weight[rows]
        return float(np.average(self.trial(groups).loss[rows], weights=weight))

    def attributed(self, rows):
        """Return the rows among `rows` (positions) whose attributions are computed."""
        # Only the first judging rows have attributions.
        return rows[rows < len(self.importance)]


def grow_behind_switches(search):
    """Return sets from forward selection, for all rows and for rows split by a group.

    Parameters
    ----------
    search : SwitchSearch
        Tries the sets, and finds the groups that matter.

    Returns
    -------
    ndarray of bool of shape (n_sets, n_groups)
        Sorted by cost.
    """
    costs = search.judging.costs
    n_judging = len(search.judging.y)
    # The free groups are in every set.
    root = costs == 0
    # Parts of the judging rows that are not searched yet. The first has all rows.
    queue = [Part(root, np.arange(n_judging), depth=0)]
    sets = [root]
    while queue and search.n_trials < _MOST_TRIALS:
        # The part with the most rows is next.
        n_rows_of_parts = [len(waiting.rows) for waiting in queue]
        followed = queue.pop(int(np.argmax(n_rows_of_parts)))
        chain = _select_forward(search, followed.groups, followed.rows)
        sets += [followed.groups, *chain]
        if followed.depth >= _DEPTH:
            continue
        # The first group that forward selection buys, or nothing. If it buys a pair
        # first, the group with the lower position.
        first_groups = np.empty(0, dtype=np.int64)
        if chain:
            first_groups = np.flatnonzero(chain[0] & ~followed.groups)[:1]
        least_rows = max(_ROWS_OF_A_PART, _SHARE_OF_A_PART * n_judging)
        for switch in _find_switches(search, followed, first_groups):
            with_switch = with_groups(followed.groups, [switch.group])
            for rows in switch.parts:
                if len(rows) >= least_rows:
                    queue.append(Part(with_switch, rows, followed.depth + 1))
    return sorted_sets(sets, costs)


def _select_forward(search, groups, rows):
    """Return the growing sets of a forward selection on some judging rows.

    A step adds one group, or two if no group alone closes enough of the gap.

    Parameters
    ----------
    search : SwitchSearch
        Tries the sets.
    groups : ndarray of bool of shape (n_groups,)
        The set to start from. It is not in the result.
    rows : ndarray of int
        Positions of judging rows.

    Returns
    -------
    list of ndarray of bool of shape (n_groups,)
    """
    n_groups = len(search.judging.costs)
    all_groups = np.ones(n_groups, dtype=bool)
    loss_of_all = search.mean_loss(all_groups, rows)
    chain = []
    for _ in range(_MOST_STEPS):
        loss = search.mean_loss(groups, rows)
        gap = loss - loss_of_all
        step = _best_step(search, groups, rows, loss=loss, gap=gap)
        if step is None:
            # No step gains enough.
            break
        groups = with_groups(groups, step)
        chain.append(groups)
    return chain


def _best_step(search, groups, rows, *, loss, gap):
    """Return the groups to add that gain most per cost, or None if none gains enough.

    Single groups are tried first. Pairs are tried only if no single group closes enough
    of the gap.

    Parameters
    ----------
    search : SwitchSearch
        Tries the sets.
    groups : ndarray of bool of shape (n_groups,)
        The set to which groups are added.
    rows : ndarray of int
        Positions of judging rows.
    loss : float
        Mean loss of `groups` over these rows.
    gap : float
        `loss` less the mean loss of the set of all groups.

    Returns
    -------
    tuple of int or None
        Positions of one or two groups.
    """
    costs = search.judging.costs
    attributed = search.attributed(rows)
    if not len(attributed):
        # No attributions show which groups matter for these rows.
        return None
    missing = np.flatnonzero(~groups)
    mean_attribution = search.importance[attributed].mean(axis=0)  # (n_groups,)
    # Free groups are in every set, so that the missing ones have a cost above 0.
    promise = mean_attribution[missing] / costs[missing]
    by_promise = missing[np.argsort(-promise, kind="stable")]
    singles = [(int(group),) for group in by_promise[:_SINGLES]]
    pairs = []
    for first in by_promise[:_PAIRED]:
        for second in by_promise[:_PAIRED]:
            if first < second:
                pairs.append((int(first), int(second)))
    best = None
    # The gain per cost that the next best step must exceed.
    best_gain_per_cost = _LEAST_STEP * max(gap, _LEAST_GAP)
    for steps in (singles, pairs):
        gains = []
        for step in steps:
            gain = loss - search.mean_loss(with_groups(groups, step), rows)
            gains.append(gain)
            gain_per_cost = gain / costs[list(step)].sum()
            if gain_per_cost > best_gain_per_cost:
                best_gain_per_cost = gain_per_cost
                best = step
        if gains and max(gains) > _CLOSES_ENOUGH * gap:
            # A single group closes enough of the gap: no pairs are tried.
            break
    return best


def _find_switches(search, followed, first_groups):
    """Return the groups whose values tell best which others matter for some rows.

    Parameters
    ----------
    search : SwitchSearch
        It has the attributions.
    followed : Part
        The judging rows, and the set that they have bought.
    first_groups : ndarray of int
        The group that forward selection buys first for these rows, or nothing. Its
        switch is returned also if it is not among the best.

    Returns
    -------
    list of Switch
        Empty if there are too few rows with attributions, or too few missing groups.
    """
    missing = np.flatnonzero(~followed.groups)
    attributed = search.attributed(followed.rows)
    if len(attributed) < _ROWS_OF_A_SWITCH:
        return []
    if len(missing) < 2:
        # A switch needs another group that it decides about.
        return []
    switches = []
    for group in missing:
        switches.append(_switch_of(search, followed.rows, attributed, group, missing))
    switches.sort(key=lambda switch: -switch.worth)
    best = switches[:_SWITCHES]
    for switch in switches[_SWITCHES:]:
        if switch.group in first_groups:
            best.append(switch)
    return best


def _switch_of(search, rows, attributed, group, missing):
    """Return one group as a `Switch`: its worth, and the parts it divides rows into.

    Parameters
    ----------
    search : SwitchSearch
        It has the attributions.
    rows, attributed : ndarray of int
        Positions of judging rows, and of the rows with attributions among them.
    group : int
        Position of the group.
    missing : ndarray of int
        Positions of all groups that are not bought, `group` among them.
    """
    task = search.judging
    is_of_group = task.group_of == group  # (n_columns,)
    other_groups = missing[missing != group]
    smallest_leaf = max(_ROWS_OF_A_LEAF, len(attributed) // _LEAF_SHARE)
    tree = DecisionTreeRegressor(
        max_leaf_nodes=_LEAVES_OF_A_SWITCH,
        min_samples_leaf=smallest_leaf,
        random_state=0,
    )
    values = task.X[:, is_of_group]
    # The tree predicts how much the other groups matter from the values of this one.
    tree.fit(values[attributed], search.importance[attributed][:, other_groups])
    predicted = tree.predict(values[attributed]).reshape(len(attributed), -1)
    # The variance of the predictions is the variance that the tree explains.
    explained_variance = predicted.var(axis=0).sum()
    worth = explained_variance / task.costs[group]
    leaf_of_row = tree.apply(values[rows])
    parts = [rows[leaf_of_row == leaf] for leaf in np.unique(leaf_of_row)]
    return Switch(int(group), float(worth), parts)
