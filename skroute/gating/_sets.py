"""Which sets of groups are worth a model: the best within each cost, and branches from the first.

Forward selection from every undominated set, by small boosted trees: a set is undominated where
no cheaper one has a lower loss, so that the best set found within each cost is kept.
"""

import numpy as np

from skroute.gating._set_models import Task, of_classes
from skroute.metrics import pareto_front

# Rows that sets are tried on at most, in four parts.
_MOST_ROWS = 12_000
_PARTS = 4
# Trees of a trial, groups tried beside a set, and sets that others are tried from.
_TREES = 40
_TRIED = 8
_MOST_SETS = 60
# Purchases in which every trial counts on all parts; later ones on two.
_SURE = 3
# Sets that cost less than this much more than the one before have no model of their own.
_RATIO = 1.15
# Branches: the groups that may be bought next, and for how many purchases.
_BRANCHES = 4
_DEPTH = 2


class _Trials:
    """Losses of sets on parts of the rows that small boosters have not seen."""

    def __init__(self, task, rng):
        rows = rng.permutation(len(task.y))[:_MOST_ROWS]
        self.task = task.of(rows)
        self.parts = np.array_split(np.arange(len(rows)), _PARTS)
        self.fitted = [
            self.task.of(np.concatenate([own for own in self.parts if own is not part]))
            for part in self.parts
        ]
        many = task.n_classes > 2
        self.trees = max(8, _TREES // task.n_classes) if many else _TREES
        self.params = self.fitted[0].params(15, learning_rate=0.2 if many else 0.1)
        self._losses, self._boosters = {}, {}
        self._every = (
            self.fitted[0].data(np.arange(task.X.shape[1]), self.params).construct()
        )

    def loss(self, groups, n_parts):
        """Mean log loss of a set on the first parts."""
        return np.mean([self._loss(groups, part) for part in range(n_parts)])

    def _loss(self, groups, part):
        key = groups.tobytes(), part
        if key not in self._losses:
            task, judge = self.fitted[part], self.task.of(self.parts[part])
            columns = task.columns(groups)
            if len(columns):
                booster = _grown(
                    self.params, task.data(columns, self.params), self.trees
                )
                raw = _raw(booster, judge.X[:, columns])
                scores = of_classes(raw.reshape(len(raw), -1))
                if part == 0:
                    self._boosters[groups.tobytes()] = booster
            else:
                scores = np.log(np.clip(task.shares, 1e-6, 1.0))[None].repeat(
                    len(judge.y), axis=0
                )
            self._losses[key] = judge.log_loss(scores)
        return self._losses[key]

    def promise(self, groups):
        """Importance by cost of every group where boosting goes on from the answers of a set."""
        task = self.fitted[0]
        self._loss(groups, 0)
        start = None
        if (booster := self._boosters.get(groups.tobytes())) is not None:
            start = _raw(booster, task.X[:, task.columns(groups)]).ravel(order="F")
        self._every.set_init_score(start)
        more = _grown(self.params | {"learning_rate": 0.2}, self._every, 8)
        gain = np.bincount(
            task.group_of, more.feature_importance("gain"), len(task.costs)
        )
        gain = gain / np.where(task.costs > 0, task.costs, 1.0)
        return np.where(groups, -1.0, gain)


def _grown(params, data, trees):
    """A booster of so many trees; `lightgbm.train` takes as long as few rows do."""
    import lightgbm

    booster = lightgbm.Booster(params, data)
    for _ in range(trees):
        if booster.update():
            break
    return booster


def _raw(booster, X):
    return booster.predict(np.ascontiguousarray(X), raw_score=True, num_threads=1)


def find_sets(task: Task, rng):
    """Sets of groups to fit a model for, by cost: the free groups first, all groups last."""
    trials = _Trials(task, rng)
    # What costs nothing is in every set.
    root = task.costs == 0
    front = _search(trials, root)
    kept = [root]
    for groups in front:
        so_far = task.costs[kept[-1]].sum()
        if groups.all() or so_far == 0 or task.costs[groups].sum() >= _RATIO * so_far:
            kept.append(groups)
    single = [groups for groups in front if groups.sum() == root.sum() + 1]
    start = [root] if root.any() else single[-1:]
    sets = np.unique([*kept, *_branches(trials, start)], axis=0)
    return sets[np.lexsort((sets.sum(axis=1), sets @ task.costs))]


def _search(trials, root):
    """Undominated sets, cheapest first, and then one group more at a time until all are there."""
    costs, few = trials.task.costs, len(trials.task.y) < 400
    sets, losses, expanded = [root], [trials.loss(root, _PARTS)], set()
    while True:
        front = pareto_front(
            [costs[groups].sum() for groups in sets], -np.array(losses)
        )
        todo = [at for at in front if at not in expanded and not sets[at].all()]
        if not todo or len(expanded) >= _MOST_SETS:
            break
        at = todo[0]
        expanded.add(at)
        n_parts = _PARTS if few or sets[at].sum() - root.sum() < _SURE else 2
        for child in _race(trials, sets[at], n_parts):
            if not any((child == known).all() for known in sets):
                sets.append(child)
                losses.append(trials.loss(child, n_parts))
        # Sets are compared on as many parts as their parent.
        losses[at] = trials.loss(sets[at], n_parts)
    front = [sets[at] for at in front]
    last = front[-1]
    for group in np.argsort(-trials.promise(last), kind="stable")[: int((~last).sum())]:
        front.append(_with(front[-1], group))
    return front


def _with(groups, group):
    """A set and one group more."""
    more = groups.copy()
    more[group] = True
    return more


def _race(trials, groups, n_parts):
    """The sets of one promising group more; the worse half of them does not see all parts."""
    tried = np.argsort(-trials.promise(groups), kind="stable")[:_TRIED]
    children = [_with(groups, group) for group in tried[: int((~groups).sum())]]
    costs = {
        child.tobytes(): trials.task.costs[child & ~groups].sum() for child in children
    }
    for part in range(1, n_parts + 1):
        before = trials.loss(groups, part)
        gains = [
            (before - trials.loss(one, part)) / costs[one.tobytes()] for one in children
        ]
        children = [children[at] for at in np.argsort(-np.array(gains), kind="stable")]
        if part < n_parts:
            children = children[: max(2, -(-len(children) // 2))]
    return children


def _branches(trials, level):
    """Sets of what may be bought next, so that it can depend on what a row has shown."""
    found = []
    for _ in range(_DEPTH):
        level = [
            _with(groups, group)
            for groups in level
            for promise in [trials.promise(groups)]
            for group in np.argsort(-promise, kind="stable")[:_BRANCHES]
            if promise[group] > 0
        ]
        found += level
    return found
