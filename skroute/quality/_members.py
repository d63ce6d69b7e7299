"""The estimators that `QualityRegressor` compares: trees, boosted trees, ridge, similarities.

Each of `MEMBERS` is a function ``(rows, deviations, seed)`` that fits standardised float32 rows, in
C order, to outcomes less their mean and gives a fitted member. A member has ``predict(rows)``,
deviations from the mean, and ``weighted(level, difference, sizes)``, the same member with its
outputs weighted by :func:`weigh_outputs`.
"""

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.tree import ExtraTreeRegressor

from skroute.utils._validation import read_only

# A tree sees at most so many rows, a cut compares at most so many features, and ridge regression
# takes at most so many columns: time is bounded.
_MOST_ROWS = 10_000
_MOST_CANDIDATES = 40
_MOST_COLUMNS = 1000
# Trees of a forest that was fitted without a fold, of all of which so many are kept; steps of
# boosting and their rate.
_TREES, _KEPT = 24, 60
_STEPS, _RATE = 60, 0.1
_CENTRES = 200
_PENALTIES = np.geomspace(1e-4, 1e3, 22)


def weigh_outputs(values, level, difference, sizes=1.0):
    """Weigh the mean over outputs, the last axis, and what tells them apart, times `sizes`."""
    mean = values.mean(axis=-1, keepdims=True)
    return (difference * (values - mean) + level * mean) * sizes


class Forest(NamedTuple):
    """Trees whose leaf values are summed; arrays as :func:`~skroute.quality._kernels.add_trees`."""

    roots: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    child: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, tree, weight):
        """A fitted scikit-learn tree, times `weight`."""
        tree = tree.tree_
        leaf = tree.children_left < 0
        cut = tree.threshold.astype(np.float32)
        # Rounded down: a float32 row is up to it where it is up to the threshold.
        cut = np.where(cut > tree.threshold, np.nextafter(cut, np.float32(-np.inf)), cut)
        return cls(
            np.zeros(1, dtype=np.int64),
            np.where(leaf, -1, tree.feature).astype(np.int32),
            cut,
            np.where(leaf, np.cumsum(leaf) - 1, tree.children_right).astype(np.int32),
            (weight * tree.value[leaf, :, 0]).astype(np.float32),
        )

    @classmethod
    def joined(cls, forests):
        """The sum of several forests."""
        nodes = np.cumsum([0, *(len(forest.feature) for forest in forests)], dtype=np.int32)
        leaves = np.cumsum([0, *(len(forest.values) for forest in forests)], dtype=np.int32)
        moved = [
            forest._replace(
                roots=forest.roots + node,
                child=forest.child + np.where(forest.feature < 0, leaf, node),
            )
            for forest, node, leaf in zip(forests, nodes, leaves)
        ]
        return cls(*map(np.concatenate, zip(*moved)))

    def kept(self, n_folds):
        """The share of a fold's trees in the forest of all folds."""
        n_trees = min(-(-_KEPT // n_folds), len(self.roots))
        n_nodes = np.append(self.roots, len(self.feature))[n_trees]
        n_leaves = np.count_nonzero(self.feature[:n_nodes] < 0)
        nodes = (part[:n_nodes] for part in (self.feature, self.threshold, self.child))
        return Forest(self.roots[:n_trees], *nodes, self.values[:n_leaves] * _TREES / n_trees)

    def predict(self, rows):
        from skroute.quality._kernels import add_trees

        out = np.zeros((len(rows), self.values.shape[1]))
        add_trees(read_only(rows), *self, out)
        return out

    def weighted(self, level, difference, sizes=1.0):
        values = weigh_outputs(self.values, level, difference, sizes)
        return self._replace(values=values.astype(np.float32))


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
            weigh_outputs(part, level, difference, sizes) for part in (self.coef, self.offset)
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
    return tree.fit(rows[some], outcomes[some], sample_weight=own_weight, check_input=False)


def fit_trees(rows, deviations, seed, weight=None):
    """Extremely randomised trees, with leaves of a thousandth of the rows."""
    rng, leaf = np.random.RandomState(seed), int(np.clip(len(rows) // 1000, 5, 100))
    trees = [
        _grown(rows, deviations, rng, len(rows), weight, min_samples_leaf=leaf)
        for _ in range(_TREES)
    ]
    return Forest.joined([Forest.of(tree, 1 / _TREES) for tree in trees])


def fit_boosted(rows, deviations, seed, weight=None):
    """Shallow trees, each fitted to what those before leave over on part of the rows."""
    rng, leaf = np.random.RandomState(seed), int(np.clip(len(rows) // 50, 5, 50))
    left, trees = deviations.copy(), []
    for _ in range(_STEPS):
        n_used = int(np.ceil(0.7 * len(rows)))
        tree = _grown(rows, left, rng, n_used, weight, max_depth=4, min_samples_leaf=leaf)
        trees.append(Forest.of(tree, _RATE))
        left -= trees[-1].predict(rows)
    return Forest.joined(trees)


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
    """A member as the name of its type and plain arrays, leaves of trees in half precision."""
    if isinstance(part, Landmarks):
        return "Landmarks", [*part[:-1], *part.linear]
    if isinstance(part, Linear):
        return "Linear", list(part)
    largest = np.abs(part.values).max(axis=0, initial=0).astype(np.float64)
    unit = 2.0 ** np.ceil(np.log2(np.where(largest > 0, largest, 1.0)))
    small = np.int16 if part.feature.max(initial=0) < 2**15 else np.int32
    # Leaves that are small beside the largest one become 0, on purpose.
    with np.errstate(under="ignore"):
        halves = (part.values / unit).astype(np.float16)
    return "Forest", [part.roots, part.feature.astype(small), *part[2:4], halves, unit]


def unpack(kind, values):
    """What :func:`pack` packed."""
    if kind == "Landmarks":
        return Landmarks(*values[:3], Linear(*values[3:]))
    if kind == "Linear":
        return Linear(*values)
    roots, feature, threshold, child, halves, unit = values
    leaves = (halves * unit).astype(np.float32)
    return Forest(roots, feature.astype(np.int32), threshold, child, leaves)
