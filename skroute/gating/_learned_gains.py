"""What a regression model expects each group to gain: a policy for up to some twenty groups."""

from typing import Any, NamedTuple

import numpy as np

from skroute.gating._masked import prefix_masks, random_masks

# Groups of the static order among which gains are learned; behind them the order is followed.
MOST_GROUPS = 16
# Purchases by learned gains.
HORIZON = 8
MOST_STATES = 18_000
_SENTINEL = -1e6


class LearnedGains(NamedTuple):
    """The policy that buys the group of the largest expected gain per unit of cost.

    Attributes
    ----------
    groups : Groups
    order : ndarray of int
        The static order: its first group is bought first, and it is followed at the end.
    tried : ndarray of int
        Groups whose gains are known.
    columns : ndarray of int
        Columns that the models read.
    model : BoostedTrees
        Class probabilities of what is known.
    forest : Forest
        Gains of the groups in `tried`.
    margin : float
        Lead that another group needs over the next one of the order.
    """

    groups: Any
    order: Any
    tried: Any
    columns: Any
    model: Any
    forest: Any
    margin: float

    def start(self, n_rows, itself=None):
        """Nothing needs to be remembered of rows."""
        return self

    def next_groups(self, rows, values, known):
        """The group of the largest expected gain; -1 where all are known."""
        found = self.groups.first_unknown(known, self.order)
        priced = known & self.groups.priced
        asking = np.flatnonzero(
            priced.any(axis=1)
            & (priced.sum(axis=1) <= HORIZON)
            & ~known[:, self.tried].all(axis=1)
            & (found >= 0)
        )
        if len(asking):
            gains = self._gains(values[asking])
            first = self.tried[None, :] == found[asking][:, None]
            gains = (gains + self.margin * first) / self.groups.prices[self.tried]
            gains[known[np.ix_(asking, self.tried)]] = -np.inf
            found[asking] = self.tried[gains.argmax(axis=1)]
        return found

    def _gains(self, values):
        from skroute.forests import leaf_sums

        features = gain_features(values[:, self.columns], self.model.proba(values))
        return leaf_sums(self.forest, features)


def as_forest(model):
    """A fitted regression forest of several outputs, as arrays that are walked fast."""
    from skroute.forests import ForestBuilder

    builder, n_trees = ForestBuilder(), len(model.estimators_)
    for member in model.estimators_:
        tree = member.tree_
        builder.add_tree(
            tree.children_left,
            tree.children_right,
            np.maximum(tree.feature, 0).astype(np.int32),
            tree.threshold,
            tree.value[:, :, 0] / n_trees,
            np.zeros(tree.node_count, dtype=np.int32),
            -1,
        )
        builder.end_member()
    return builder.build(
        np.zeros(model.n_outputs_), n_features=model.n_features_in_, dtype="float32"
    )


def gain_features(values, proba):
    """What gains are read off: the known values and the answer so far."""
    known = np.where(np.isnan(values), _SENTINEL, values)
    return np.column_stack([known, proba[:, 1:]]).astype(np.float32)


def cross_entropy(teacher, proba):
    """Loss of probabilities against those of a teacher."""
    return -(teacher * np.log(np.clip(proba, 1e-3, 1))).sum(axis=1)


def learn_gains(task, order, rng, *, margin=0.005, copies=4):
    """Learn what each group gains, out of sample, from states at random.

    Two halves of the rows teach each other: a model of all subsets of one half says how much
    each group would lower the loss of the rows of the other, against what it says of them
    when all is known, halfway to their labels. A forest regresses that on what is known.

    Parameters
    ----------
    task : Task
    order : ndarray of int
    rng : Generator
    margin : float, default=0.005
    copies : int, default=4

    Returns
    -------
    LearnedGains
    """
    from sklearn.ensemble import ExtraTreesRegressor

    groups, n, n_groups = task.groups, len(task.y), len(order)
    free = ~groups.priced
    n_free = int(free.sum())
    tried = order[n_free : n_free + MOST_GROUPS]
    usable = np.append(order[:n_free], tried)
    columns = np.flatnonzero(np.isin(groups.group_of, usable))
    short = np.concatenate([usable, np.setdiff1d(order, usable)])
    allowed = np.isin(np.arange(n_groups), usable)

    def states(rows):
        masks = random_masks(rng, len(rows), short, n_free, min(HORIZON, len(tried)))
        half = len(rows) // 2
        sizes = n_free + rng.integers(0, min(HORIZON, len(tried)) + 1, half)
        masks[:half] = prefix_masks(order, sizes, n_groups)
        return masks & allowed

    half = rng.integers(0, 2, n)
    per_row = int(np.clip(MOST_STATES // n, 1, 3))
    features, gains = [], []
    boosting = task.boosting()
    options = {"learning_rate": 0.1, "num_leaves": 31, "max_bin": 63}
    trees = 100 if task.n_classes == 2 else max(30, 150 // task.n_classes)

    def fit(own):
        rows = np.tile(own, copies)
        hidden = groups.hidden(task.X[rows], states(rows))
        return boosting.fit(hidden, task.y[rows], columns, trees, **options)

    for side in (0, 1):
        own, other = np.flatnonzero(half != side), np.flatnonzero(half == side)
        model = fit(own)
        truth = np.eye(task.n_classes)[task.y[other]]
        teacher = 0.5 * truth + 0.5 * model.proba(
            groups.hidden(task.X[other], np.tile(allowed, (len(other), 1)))
        )
        at = rng.permutation(np.tile(np.arange(len(other)), per_row))[: MOST_STATES // 2]
        masks = states(at)
        known = groups.hidden(task.X[other[at]], masks)
        proba = model.proba(known)
        before = cross_entropy(teacher[at], proba)
        gain = np.zeros((len(at), len(tried)))
        for place, g in enumerate(tried):
            asked = np.flatnonzero(~masks[:, g])
            if not len(asked):
                continue
            more = known[asked].copy()
            own_columns = groups.of_group(g)
            more[:, own_columns] = task.X[np.ix_(other[at[asked]], own_columns)]
            gain[asked, place] = before[asked] - cross_entropy(
                teacher[at[asked]], model.proba(more)
            )
        features.append(gain_features(known[:, columns], proba))
        gains.append(gain)
    features, gains = np.concatenate(features), np.concatenate(gains)
    forest = ExtraTreesRegressor(
        40,
        min_samples_leaf=int(np.clip(len(features) // 200, 5, 40)),
        max_features=0.5,
        random_state=task.seed,
        n_jobs=task.n_threads,
    ).fit(features, gains)
    return LearnedGains(groups, order, tried, columns, fit(np.arange(n)), as_forest(forest), margin)
