"""Sets of groups behind switches: groups whose value tells which other groups matter.

Where one group decides which others are worth buying, one order of purchases serves no
row well. A model of everything says how much each group matters for each row (its
attributions). A shallow tree on the values of one group splits the rows into parts for
which different groups matter. In each part sets are grown by forward selection again,
from the switch on.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn.tree import DecisionTreeRegressor

from skroute.gating._set_models import of_classes
from skroute.gating._sets import grow_trees, raw_scores, sorted_sets, with_groups

# The next three numbers bound time. Larger ones lead to nearly the same sets.
# Largest number of rows that the boosters of trials are fitted on.
_MOST_FITTED = 8000
# Largest number of rows that judge sets.
_MOST_JUDGING = 3000
# Largest number of judging rows whose attributions are computed.
_MOST_ATTRIBUTED = 1200
# The rows that judge are at most one in this number.
_JUDGING_PART = 3
# The model of everything is a booster of all columns. Largest number of its rounds.
_TREES_OF_EVERYTHING = 150
# Number of rounds without progress after which it ends.
_PATIENCE = 20
# Boosting rounds of a trial for two classes.
_TREES = 40
# Least number of boosting rounds of a trial for many classes.
_FEWEST_TREES = 8
# Leaves of a tree of a trial.
_LEAVES = 15
# Learning rate of a trial.
_RATE = 0.1
# The same for many classes, whose rounds are fewer.
_RATE_OF_MANY_CLASSES = 0.2
# Largest number of leaves of a tree of the model of everything.
_LEAVES_OF_EVERYTHING = 63
# Largest number of sets that are tried in all. It bounds the time.
_MOST_TRIALS = 200
# Largest number of switches behind one another.
_DEPTH = 3
# Largest number of steps of a forward selection.
_MOST_STEPS = 7
# Number of groups that a step tries alone.
_SINGLES = 6
# Number of groups that a step tries in pairs.
_PAIRED = 4
# A step must close this share of the gap to the model of everything, for each unit of
# cost.
_LEAST_STEP = 0.01
# The gap counts as at least this much log loss.
_LEAST_GAP = 0.01
# Pairs are tried if no group alone closes this share of the gap.
_CLOSES_ENOUGH = 0.1
# Largest number of leaves of the tree of a switch.
_LEAVES_OF_A_SWITCH = 4
# Least number of rows of a leaf of this tree.
_ROWS_OF_A_LEAF = 30
# A leaf of this tree also has at least one in this number of all rows.
_LEAF_SHARE = 20
# Number of switches that are followed from one set.
_SWITCHES = 2
# With fewer attributed rows, no switch is looked for.
_ROWS_OF_A_SWITCH = 100
# A part of the rows is followed if it has this many rows and this share of all.
_ROWS_OF_A_PART = 60
_SHARE_OF_A_PART = 0.02
# Probabilities are at least this in a loss.
_LEAST_PROBABILITY = 1e-6


def cross_entropy(truth, proba):
    """Return the log loss of probabilities against soft labels, over the last axis."""
    return -(truth * np.log(np.clip(proba, _LEAST_PROBABILITY, 1.0))).sum(axis=-1)


class Trial(NamedTuple):
    """Answer of a small booster of a set for the judging rows.

    Attributes
    ----------
    loss : ndarray of shape (n_judging,)
    proba : ndarray of shape (n_judging, n_classes)
    """

    loss: np.ndarray
    proba: np.ndarray


class Part(NamedTuple):
    """Rows for which sets are grown from one set on.

    Attributes
    ----------
    groups : ndarray of bool of shape (n_groups,)
        The set that they have bought.
    rows : ndarray of int
        Positions of judging rows.
    depth : int
        Number of switches behind one another so far.
    """

    groups: np.ndarray
    rows: np.ndarray
    depth: int


class Switch(NamedTuple):
    """A group whose value tells which other groups matter.

    Attributes
    ----------
    group : int
    worth : float
        Variance of the attributions of other groups that its value explains, by cost.
    parts : list of ndarray of int
        Positions of the judging rows of each leaf of its tree.
    """

    group: int
    worth: float
    parts: list


class SwitchSearch:
    """Losses of sets on judging rows, and the groups that matter for each of them.

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
        The rows that judge.
    fitted : Task
        The rows that the boosters of trials are fitted on.
    matters : ndarray of shape (n_attributed, n_groups)
        Absolute attributions of the first judging rows.
    """

    def __init__(self, task, rng):
        rows = rng.permutation(len(task.y))
        n_judging = min(len(rows) // _JUDGING_PART, _MOST_JUDGING)
        self.judging = task.of(rows[:n_judging])
        others = rows[n_judging:]
        everything = self._fit_everything(task.of(others))
        self.fitted = task.of(others[:_MOST_FITTED])
        scores = of_classes(_as_matrix(raw_scores(everything, self.judging.X)))
        # Probabilities of the classes by the model of everything. They are judged by as
        # soft labels, which have less noise than the labels. (n_judging, n_classes)
        self._soft_labels = softmax(scores, axis=1)
        self.matters = self._attributions(everything)
        # Trials so far, by bytes of the set.
        self._trials = {}

    @property
    def n_trials(self):
        """Number of sets that were tried."""
        return len(self._trials)

    def _fit_everything(self, task):
        """Return a booster of all columns. The loss of the judging rows ends it."""
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
        """Return how much each group matters for the first judging rows.

        It is the sum of the absolute attributions of the group's columns, over all
        classes. The result has shape (n_attributed, n_groups).
        """
        task = self.judging
        values = np.ascontiguousarray(task.X[:_MOST_ATTRIBUTED])
        n_columns = values.shape[1]
        attributions = booster.predict(values, pred_contrib=True, num_threads=1)
        # For each class the columns, and an intercept as the last one.
        attributions = np.asarray(attributions).reshape(len(values), -1, n_columns + 1)
        by_column = np.abs(attributions[:, :, :-1]).sum(axis=1)
        matters = np.zeros((len(values), len(task.costs)))
        for group in range(len(task.costs)):
            matters[:, group] = by_column[:, task.group_of == group].sum(axis=1)
        return matters

    def trial(self, groups):
        """Return how a small booster of a set answers the judging rows (`Trial`).

        Each set is tried once: its trial is remembered in `_trials`.
        """
        key = groups.tobytes()
        if key not in self._trials:
            proba = self._proba(groups)
            loss = cross_entropy(self._soft_labels, proba)
            self._trials[key] = Trial(loss, proba)
        return self._trials[key]

    def _proba(self, groups):
        """Return class probabilities of the judging rows by a small booster of a set.

        The result has shape (n_judging, n_classes).
        """
        task = self.fitted
        columns = task.columns(groups)
        if not len(columns):
            # Without columns, each row is answered with the shares of the classes.
            return np.tile(task.shares, (len(self.judging.y), 1))
        n_trees = _TREES
        rate = _RATE
        if task.n_classes > 2:
            n_trees = max(_FEWEST_TREES, _TREES // (task.n_classes - 1))
            rate = _RATE_OF_MANY_CLASSES
        params = task.params(_LEAVES, learning_rate=rate)
        booster = grow_trees(params, task.data(columns, params), n_trees)
        raw = raw_scores(booster, self.judging.X[:, columns])
        return softmax(of_classes(_as_matrix(raw)), axis=1)

    def mean_loss(self, groups, rows):
        """Return the mean loss of a set over some judging rows."""
        weight = self.judging.weight[rows]
        return float(np.average(self.trial(groups).loss[rows], weights=weight))

    def attributed(self, rows):
        """Return those of some judging rows (positions) that have attributions."""
        # The first judging rows have them.
        return rows[rows < len(self.matters)]


def _as_matrix(raw):
    """Return scores as (n_rows, n_scores), also if each row has one."""
    return np.asarray(raw).reshape(len(raw), -1)


def grow_behind_switches(search):
    """Return sets by forward selection, and behind each switch again.

    Parameters
    ----------
    search : SwitchSearch

    Returns
    -------
    ndarray of bool of shape (n_sets, n_groups)
    """
    costs = search.judging.costs
    n_judging = len(search.judging.y)
    root = costs == 0
    queue = [Part(root, np.arange(n_judging), depth=0)]
    sets = [root]
    while queue and search.n_trials < _MOST_TRIALS:
        # The part with the most rows is next.
        sizes = [len(waiting.rows) for waiting in queue]
        followed = queue.pop(int(np.argmax(sizes)))
        chain = _select_forward(search, followed.groups, followed.rows)
        sets += [followed.groups, *chain]
        if followed.depth >= _DEPTH:
            continue
        # The first group that forward selection buys. Empty if it buys nothing.
        first_groups = np.empty(0, dtype=np.int64)
        if chain:
            first_groups = np.flatnonzero(chain[0] & ~followed.groups)[:1]
        for switch in _find_switches(search, followed, first_groups):
            larger = with_groups(followed.groups, [switch.group])
            for rows in switch.parts:
                is_large = len(rows) >= max(
                    _ROWS_OF_A_PART, _SHARE_OF_A_PART * n_judging
                )
                if is_large:
                    queue.append(Part(larger, rows, followed.depth + 1))
    return sorted_sets(sets, costs)


def _select_forward(search, groups, rows):
    """Return a chain of sets, by forward selection on some judging rows.

    A step adds one group, or two where no group alone closes enough of the gap.

    Parameters
    ----------
    search : SwitchSearch
    groups : ndarray of bool of shape (n_groups,)
        The set to start from. It is not in the chain.
    rows : ndarray of int
        Positions of judging rows.

    Returns
    -------
    list of ndarray of bool of shape (n_groups,)
    """
    costs = search.judging.costs
    everything = np.ones(len(costs), dtype=bool)
    least_loss = search.mean_loss(everything, rows)
    chain = []
    for _ in range(_MOST_STEPS):
        loss = search.mean_loss(groups, rows)
        gap = loss - least_loss
        step = _best_step(search, groups, rows, loss=loss, gap=gap)
        if step is None:
            # No step gains enough.
            break
        groups = with_groups(groups, step)
        chain.append(groups)
    return chain


def _best_step(search, groups, rows, *, loss, gap):
    """Return the groups to add that gain most per cost, or None if none gains enough.

    Parameters
    ----------
    search : SwitchSearch
    groups : ndarray of bool of shape (n_groups,)
    rows : ndarray of int
        Judging rows.
    loss : float
        Mean loss of `groups`.
    gap : float
        `loss` less that of everything.

    Returns
    -------
    tuple of int or None
    """
    costs = search.judging.costs
    attributed = search.attributed(rows)
    if not len(attributed):
        # Nothing shows which groups matter for these rows.
        return None
    missing = np.flatnonzero(~groups)
    # Groups that cost nothing are in every set.
    promise = search.matters[attributed].mean(axis=0)[missing] / costs[missing]
    by_promise = missing[np.argsort(-promise, kind="stable")]
    singles = [(int(group),) for group in by_promise[:_SINGLES]]
    pairs = []
    for first in by_promise[:_PAIRED]:
        for second in by_promise[:_PAIRED]:
            if first < second:
                pairs.append((int(first), int(second)))
    best = None
    best_worth = _LEAST_STEP * max(gap, _LEAST_GAP)
    for steps in (singles, pairs):
        gains = []
        for step in steps:
            gain = loss - search.mean_loss(with_groups(groups, step), rows)
            gains.append(gain)
            worth = gain / costs[list(step)].sum()
            if worth > best_worth:
                best_worth = worth
                best = step
        if gains and max(gains) > _CLOSES_ENOUGH * gap:
            # A single group closes enough of the gap: no pairs are tried.
            break
    return best


def _find_switches(search, followed, first_groups):
    """Return the best switches from a set, and those among `first_groups`.

    Parameters
    ----------
    search : SwitchSearch
    followed : Part
    first_groups : ndarray of int
        Groups that forward selection buys first.

    Returns
    -------
    list of Switch
    """
    missing = np.flatnonzero(~followed.groups)
    attributed = search.attributed(followed.rows)
    if len(attributed) < _ROWS_OF_A_SWITCH or len(missing) < 2:
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
    """Return one group as a switch (`Switch`).

    Parameters
    ----------
    search : SwitchSearch
    rows, attributed : ndarray of int
        Positions of judging rows, and of those with attributions.
    group : int
        Position of the group.
    missing : ndarray of int
        All groups that are not bought.
    """
    task = search.judging
    columns = task.group_of == group  # bool (n_columns,)
    others = missing[missing != group]
    smallest_leaf = max(_ROWS_OF_A_LEAF, len(attributed) // _LEAF_SHARE)
    tree = DecisionTreeRegressor(
        max_leaf_nodes=_LEAVES_OF_A_SWITCH,
        min_samples_leaf=smallest_leaf,
        random_state=0,
    )
    values = task.X[:, columns]
    # The tree predicts how much the other groups matter from the values of this one.
    tree.fit(values[attributed], search.matters[attributed][:, others])
    explained = tree.predict(values[attributed]).reshape(len(attributed), -1)
    worth = explained.var(axis=0).sum() / task.costs[group]
    leaf_of_row = tree.apply(values[rows])
    parts = [rows[leaf_of_row == leaf] for leaf in np.unique(leaf_of_row)]
    return Switch(int(group), float(worth), parts)
