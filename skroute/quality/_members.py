"""The estimators that `QualityRegressor` compares: trees, boosted trees, ridge, similarities.

Each of `MEMBERS` is a function ``(rows, deviations, seed)`` that fits standardised float32 rows, in
C order, to outcomes less their mean and gives a fitted member. A member has ``predict(rows)``,
deviations from the mean, and ``weighted(level, difference, sizes)``, the same member with its
outputs weighted by :func:`weigh_outputs`.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.tree import ExtraTreeRegressor

from skroute.forests import Forest, ForestBuilder
from skroute.forests._code_walk import walk_of
from skroute.forests._rules import ReadRule
from skroute.forests._trees import FEATURE_MASK, MISSING_RIGHT, NODE, Trees, joined
from skroute.utils._validation import read_only

# Bounds on the time of a fit: rows that a tree sees, features that a cut compares, and columns of
# the ridge regression.
_MOST_ROWS = 10_000
_MOST_CANDIDATES = 40
_MOST_COLUMNS = 1000
# Trees of a forest that was fitted without a fold, of all of which so many are kept; steps of
# boosting and their rate.
_TREES, _KEPT = 24, 60
_STEPS, _RATE = 60, 0.1
_CENTRES = 200
_PENALTIES = np.geomspace(1e-4, 1e3, 22)
# Rows of the members are standardised and in single precision.
_READ_RULE = ReadRule(dtype="float32")
# Output of a tree whose leaves have one number for each output.
_ALL_OUTPUTS = -1
# Feature of a leaf in packed trees.
_LEAF = -1


def weigh_outputs(values, level, difference, sizes=1.0):
    """Weigh the mean over outputs, the last axis, and what tells them apart, times `sizes`."""
    mean = values.mean(axis=-1, keepdims=True)
    return (difference * (values - mean) + level * mean) * sizes


class SummedTrees:
    """Trees whose leaf values are summed.

    Parameters
    ----------
    forest : skroute.forests.Forest
        Its leaves have one number for each output, in single precision.
    """

    def __init__(self, forest):
        self.forest = forest
        # For a single row each look-up counts.
        self._n_trees = forest.n_members
        self._n_outputs = forest.n_outputs
        self._every_output = np.arange(forest.n_outputs)

    @classmethod
    def of(cls, regressor, weight):
        """Return a fitted regression tree of scikit-learn, times `weight`."""
        tree = regressor.tree_
        value = (weight * tree.value[:, :, 0]).astype(np.float32)
        builder = ForestBuilder()
        builder.add_tree(
            left=tree.children_left,
            right=tree.children_right,
            # Leaves have a negative feature.
            feature=np.maximum(tree.feature, 0),
            threshold=_in_single_precision(tree.threshold),
            value=value,
            flags=np.full(len(value), MISSING_RIGHT),
            output=_ALL_OUTPUTS,
        )
        builder.end_member()
        offset = np.zeros(value.shape[1])
        return cls(
            builder.build(offset, regressor.n_features_in_, read_rule=_READ_RULE)
        )

    @classmethod
    def joined(cls, members):
        """Return the sum of several members of this class."""
        forest = members[0].forest
        trees = joined([member.forest.trees for member in members])
        return cls(replace(forest, trees=trees))

    def kept(self, n_folds):
        """Return the share of a fold's trees in the forest of all folds."""
        n_trees = min(-(-_KEPT // n_folds), self.forest.n_members)
        forest = self.forest.taken(range(n_trees))
        values = forest.trees.values.astype(np.float32) * _TREES / n_trees
        return SummedTrees(replace(forest, trees=forest.trees.with_values(values)))

    def predict(self, rows):
        """Return the sums of the leaves of rows, an array of float32 in C order."""
        rows = read_only(rows)
        n_rows = len(rows)
        n_trees = self._n_trees
        out = np.zeros((n_rows, self._n_outputs))
        walk, layout = walk_of(self.forest, n_rows, 0, n_trees)
        walk(rows, 0, n_rows, layout, 0, n_trees, self._every_output, out)
        return out

    def weighted(self, level, difference, sizes=1.0):
        """Return the same trees with weighted outputs, see :func:`weigh_outputs`."""
        trees = self.forest.trees
        values = weigh_outputs(
            trees.values.astype(np.float32), level, difference, sizes
        )
        trees = trees.with_values(values.astype(np.float32))
        return SummedTrees(replace(self.forest, trees=trees))


def _in_single_precision(threshold):
    """Round thresholds down: a float32 row is at most the result where it is at most both."""
    rounded = threshold.astype(np.float32)
    below = np.nextafter(rounded, np.float32(-np.inf))
    return np.where(rounded > threshold, below, rounded)


class Linear(NamedTuple):
    """A matrix and an offset, on some columns of the rows (None: all)."""

    columns: np.ndarray | None
    coef: np.ndarray
    offset: np.ndarray

    def predict(self, rows):
        X = rows if self.columns is None else rows[:, self.columns]
        return X @ self.coef + self.offset

    def weighted(self, level, difference, sizes=1.0):
        coef, offset = (
            weigh_outputs(part, level, difference, sizes)
            for part in (self.coef, self.offset)
        )
        return self._replace(coef=coef, offset=offset)


class Landmarks(NamedTuple):
    """A linear member on similarities ``exp(-distance**2 / 2)`` to centres, in units of a width.

    The centres are columns, of which half the squared lengths are `halves`.
    """

    centres: np.ndarray
    halves: np.ndarray
    width: float
    linear: Linear

    def similarities(self, rows):
        X = rows.astype(np.float64) / self.width
        exponent = X @ self.centres - self.halves - (X**2).sum(axis=1)[:, None] / 2
        return np.exp(np.minimum(exponent, 0))

    def predict(self, rows):
        return self.linear.predict(self.similarities(rows))

    def weighted(self, level, difference, sizes=1.0):
        return self._replace(linear=self.linear.weighted(level, difference, sizes))


def _grown(rows, outcomes, rng, n_used, weight=None, **limits):
    """An extremely randomised tree on so many of the rows, drawn at random, within some limits."""
    n_used = min(n_used, _MOST_ROWS)
    some = rng.permutation(len(rows))[:n_used] if n_used < len(rows) else slice(None)
    tree = ExtraTreeRegressor(
        max_features=min(rows.shape[1], _MOST_CANDIDATES), random_state=rng, **limits
    )
    # Unchecked: that takes as long as a tree.
    own_weight = None if weight is None else weight[some]
    return tree.fit(
        rows[some], outcomes[some], sample_weight=own_weight, check_input=False
    )


def fit_trees(rows, deviations, seed, weight=None):
    """Extremely randomised trees, with leaves of a thousandth of the rows."""
    rng, leaf = np.random.RandomState(seed), int(np.clip(len(rows) // 1000, 5, 100))
    trees = [
        _grown(rows, deviations, rng, len(rows), weight, min_samples_leaf=leaf)
        for _ in range(_TREES)
    ]
    return SummedTrees.joined([SummedTrees.of(tree, 1 / _TREES) for tree in trees])


def fit_boosted(rows, deviations, seed, weight=None):
    """Shallow trees, each fitted to what those before leave over on part of the rows."""
    rng, leaf = np.random.RandomState(seed), int(np.clip(len(rows) // 50, 5, 50))
    left, trees = deviations.copy(), []
    for _ in range(_STEPS):
        n_used = int(np.ceil(0.7 * len(rows)))
        tree = _grown(
            rows, left, rng, n_used, weight, max_depth=4, min_samples_leaf=leaf
        )
        trees.append(SummedTrees.of(tree, _RATE))
        left -= trees[-1].predict(rows)
    return SummedTrees.joined(trees)


def fit_linear(rows, deviations, seed, weight=None):
    """Ridge regression on factors that the choices share."""
    columns = None
    if rows.shape[1] > _MOST_COLUMNS:
        aims = deviations if weight is None else weight[:, None] * deviations
        strength = np.abs(rows.T @ aims.astype(np.float32)).sum(axis=1)
        columns = np.sort(np.argsort(-strength, kind="stable")[:_MOST_COLUMNS])
    X = rows if columns is None else rows[:, columns]
    return Linear(columns, *shared_ridge(X.astype(np.float64), deviations, weight))


def shared_ridge(X, Y, weight=None):
    """Ridge regression of several outputs, shrunk on their common factors.

    The outputs are rotated to their principal components. Each component gets the penalty of
    least generalised cross-validation, so that what choices have in common, which varies most, is
    shrunk least.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns)
    Y : ndarray of shape (n_rows, n_outputs)
    weight : ndarray of shape (n_rows,), default=None
        Weights in units of one row; None: each row weighs one.

    Returns
    -------
    coef : ndarray of shape (n_columns, n_outputs)
    offset : ndarray of shape (n_outputs,)
    """
    n, centre, mean = len(X), X.mean(axis=0), Y.mean(axis=0)
    if weight is not None:
        n = weight.sum()
        centre, mean = (np.average(table, axis=0, weights=weight) for table in (X, Y))
    Z, D = X - centre, Y - mean
    if weight is not None:
        root = np.sqrt(weight)[:, None]
        Z, D = root * Z, root * D
    rotation = np.linalg.eigh(D.T @ D)[1]
    targets = D @ rotation
    squares, basis = np.linalg.eigh(Z.T @ Z)
    keep = squares > 1e-10 * max(squares[-1], 1e-300)
    squares, basis = squares[keep], basis[:, keep]
    if len(squares) == 0:
        return np.zeros((X.shape[1], Y.shape[1])), mean
    along = basis.T @ (Z.T @ targets)
    shrink = squares / (squares + _PENALTIES[:, None] * squares.mean())
    freedom = np.minimum(shrink.sum(axis=1), n - 2)
    explained = ((2 * shrink - shrink**2) / squares) @ along**2
    residual = np.maximum((targets**2).sum(axis=0) - explained, 0)
    best = (residual / np.maximum(n - 1 - freedom, 1)[:, None] ** 2).argmin(axis=0)
    coef = basis @ (along * (shrink / squares)[best].T) @ rotation.T
    return coef, mean - centre @ coef


def fit_landmarks(rows, deviations, seed, weight=None):
    """Ridge regression on similarities to cluster centres: means around rows drawn at random."""
    drawn = np.random.RandomState(seed).permutation(len(rows))[: 20 * _CENTRES]
    drawn = rows[drawn].astype(np.float64)
    first = np.unique(drawn[: max(1, min(_CENTRES, len(rows) // 4))], axis=0)
    # Nearest by squared distance, less what is the same for all.
    near = (drawn @ first.T - (first**2).sum(axis=1) / 2).argmax(axis=1)
    centres = np.array([drawn[near == k].mean(axis=0) for k in np.unique(near)])
    apart = cdist(*np.array_split(drawn[:300], 2), "sqeuclidean")
    width = float(np.median(apart[apart > 0]) / 2) ** 0.5 if (apart > 0).any() else 1.0
    centres /= width
    found = Landmarks(centres.T, (centres**2).sum(axis=1) / 2, width, None)
    linear = Linear(None, *shared_ridge(found.similarities(rows), deviations, weight))
    return found._replace(linear=linear)


MEMBERS = {
    "trees": fit_trees,
    "boosted": fit_boosted,
    "linear": fit_linear,
    "landmarks": fit_landmarks,
}


def pack(part):
    """Return a member as the name of its type and a list of plain arrays.

    Leaves of trees are in half precision.
    """
    if isinstance(part, Landmarks):
        return "Landmarks", [*part[:-1], *part.linear]
    if isinstance(part, Linear):
        return "Linear", list(part)
    return "SummedTrees", list(_packed_trees(part.forest))


def unpack(kind, values):
    """Return the member that :func:`pack` packed."""
    if kind == "Landmarks":
        return Landmarks(*values[:3], Linear(*values[3:]))
    if kind == "Linear":
        return Linear(*values)
    return SummedTrees(_unpacked_forest(_PackedTrees(*values)))


class _PackedTrees(NamedTuple):
    """The arrays of a forest with leaves in half precision.

    Attributes
    ----------
    n_features : int
        Number of columns of a row.

    roots, depths : ndarray of shape (n_trees,), dtype=int32
        First node and depth of each tree.

    feature : ndarray of shape (n_nodes,), dtype=int16 or int32
        Feature of an inner node, `_LEAF` of a leaf.

    threshold : ndarray of shape (n_nodes,), dtype=float32
        Rows up to it go left.

    child : ndarray of shape (n_nodes,), dtype=int32
        Left child. A leaf is its own child.

    halves : ndarray of shape (n_leaves, n_outputs), dtype=float16
        What leaves add, in units.

    unit : ndarray of shape (n_outputs,), dtype=float64
        Unit of each output, a power of two.
    """

    n_features: int
    roots: np.ndarray
    depths: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    child: np.ndarray
    halves: np.ndarray
    unit: np.ndarray


def _packed_trees(forest):
    """Return a forest with leaves in half precision."""
    trees = forest.trees
    nodes = trees.nodes
    leaf = nodes["child"] == np.arange(len(nodes))
    feature = np.where(leaf, _LEAF, nodes["feature"] & FEATURE_MASK)
    small = np.int16 if feature.max(initial=0) < 2**15 else np.int32
    values = trees.values[leaf]
    largest = np.abs(values).max(axis=0, initial=0)
    unit = 2.0 ** np.ceil(np.log2(np.where(largest > 0, largest, 1.0)))
    # Leaves that are small beside the largest one become 0, on purpose.
    with np.errstate(under="ignore"):
        halves = (values / unit).astype(np.float16)
    return _PackedTrees(
        n_features=forest.n_features,
        roots=trees.roots,
        depths=trees.depths,
        feature=feature.astype(small),
        threshold=nodes["threshold"].astype(np.float32),
        child=np.ascontiguousarray(nodes["child"]),
        halves=halves,
        unit=unit,
    )


def _unpacked_forest(packed):
    """Return the forest of packed trees; a ValueError if their arrays are damaged."""
    n_nodes = len(packed.child)
    n_trees = len(packed.roots)
    n_outputs = len(packed.unit)
    leaf = packed.feature == _LEAF
    nodes = np.empty(n_nodes, dtype=NODE)
    nodes["threshold"] = packed.threshold
    nodes["feature"] = np.where(
        leaf, 0, packed.feature.astype(np.int32) | MISSING_RIGHT
    )
    nodes["child"] = packed.child
    values = np.zeros((n_nodes, n_outputs))
    values[leaf] = (packed.halves * packed.unit).astype(np.float32)
    trees = Trees(
        nodes=nodes,
        values=values,
        roots=packed.roots,
        depths=packed.depths,
        outputs=np.full(n_trees, _ALL_OUTPUTS, dtype=np.int32),
        member_start=np.arange(n_trees + 1, dtype=np.int32),
        cat_words=np.zeros(0, dtype=np.uint32),
        cat_start=np.zeros(1, dtype=np.int32),
    )
    trees.check(packed.n_features, n_outputs)
    return Forest(
        trees.read_only(),
        read_only(np.zeros(n_outputs)),
        packed.n_features,
        read_rule=_READ_RULE,
    )
