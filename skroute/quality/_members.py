"""Estimators that `QualityRegressor` stacks, called members: trees, ridge, ...

Each of `MEMBERS` is a function ``(rows, deviations, seed, weight=None)`` that fits a
:class:`Member`. The arguments are standardised rows in single precision and in C order,
outcomes less their mean, a seed, and weights of the rows.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Self

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.tree import ExtraTreeRegressor

from skroute.forests import Forest, ForestBuilder
from skroute.forests._code_walk import walk_of
from skroute.forests._rules import ReadRule
from skroute.forests._trees import FEATURE_MASK, MISSING_RIGHT, NODE, Trees, joined
from skroute.utils._tolerances import TINY
from skroute.utils._validation import read_only

# Largest number of rows that a tree is fitted on. Bounds the time of a fit.
_MOST_ROWS = 10_000
# Largest number of features that a split of a tree compares. Bounds the time of a fit.
_MOST_CANDIDATES = 40
# Largest number of columns of the ridge regression. Bounds the time of a fit.
_MOST_COLUMNS = 1000
# Number of trees that are fitted on the rows outside of each fold. Bounds the time of a
# fit.
_TREES = 24
# Number of trees, of all folds together, that predict new rows. Bounds the time of a
# prediction.
_KEPT_TREES = 60
# Steps of boosting. A step with `_RATE` leaves 0.9 of a residual that trees can
# estimate. All steps leave 0.9**60 of it, 0.2 %.
_STEPS = 60
# Learning rate of boosting, the default of scikit-learn.
_RATE = 0.1
# Share of the rows that each step of boosting is fitted on. Each step draws other rows,
# so that the trees are less alike. This lowers the variance of their sum.
_SUBSAMPLE = 0.7
# Depth of the trees of boosting. A tree of this depth can express interactions of at
# most four features.
_BOOSTED_DEPTH = 4
# Largest number of cluster centres. Bounds the time of a fit and of a prediction.
_CENTRES = 200
# Number of rows that are drawn for each centre. Bounds the time of a fit.
_ROWS_OF_CENTRE = 20
# Number of rows whose distances determine the width of similarities. Bounds the time of
# a fit.
_ROWS_OF_WIDTH = 300
# Ridge penalties that are compared, in units of the mean squared singular value of the
# columns: three in each power of ten, from almost no shrinkage to almost a full one.
_PENALTIES = np.geomspace(1e-4, 1e3, 22)
# A squared singular value below this share of the largest one is rounding. The share is
# far above the rounding of double precision, about 1e-16.
_LEAST_SQUARE = 1e-10
# Rule by which forests read rows: the rows of members are in single precision.
_READ_RULE = ReadRule(dtype="float32")
# Mark in place of the position of an output, for a tree that adds to all outputs. Its
# leaves have a number for each output.
_ALL_OUTPUTS = -1
# Feature of a leaf in packed trees: a leaf has none.
_LEAF = -1


# Fewest rows for which a faster layout of the trees is built for a single prediction.
# For this number of rows, building the layout takes as long as it saves in the
# prediction (measured with 60 trees).
_FEWEST_ROWS_OF_LAYOUT = 1_500


def weigh_outputs(values, level, difference, factors=1.0):
    """Weigh the mean over outputs by `level`, and differences from it by `difference`.

    Parameters
    ----------
    values : ndarray of shape (..., n_outputs)
        Outputs, or coefficients that outputs are linear in.
    level : float or ndarray
        Weight of the mean over outputs.
    difference : float or ndarray
        Weight of the differences of the outputs from their mean.
    factors : float or ndarray of shape (n_outputs,), default=1.0
        Factors of the weighted outputs.

    Returns
    -------
    ndarray of the shape of `values`
    """
    mean = values.mean(axis=-1, keepdims=True)
    return (difference * (values - mean) + level * mean) * factors


class Member(ABC):
    """Fitted estimator of the quality of all choices, less the mean of each choice."""

    @abstractmethod
    def predict(self, rows) -> np.ndarray:
        """Return estimates of quality less its mean, of shape (n_rows, n_outputs).

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_features), dtype=float32
            Standardised rows in C order.
        """

    def predict_once(self, rows) -> np.ndarray:
        """Return the result of `predict`, without preparation for further calls.

        A member that prepares itself for many calls of `predict` can override this
        method, and leave the preparation out.
        """
        return self.predict(rows)

    @abstractmethod
    def weighted(self, level, difference, factors=1.0) -> Self:
        """Weigh the mean output by `level`, and differences from it by `difference`.

        The result is a new member. The parameters are as in :func:`weigh_outputs`.
        """

    @abstractmethod
    def to_arrays(self) -> dict:
        """Return the member as plain numbers and arrays by name, for `from_arrays`."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays) -> Self:
        """Return the member that has these numbers and arrays, from `to_arrays`."""


class SummedTrees(Member):
    """Member of trees: its estimate for a row is a sum of one leaf value per tree.

    Parameters
    ----------
    forest : skroute.forests.Forest
        Its leaves have one number for each output, in single precision.
    """

    def __init__(self, forest):
        self.forest = forest
        # Copies of the forest's attributes. Looking them up in the forest would make a
        # prediction for a single row slower.
        self._n_trees = forest.n_members
        self._n_outputs = forest.n_outputs
        self._all_outputs = np.arange(forest.n_outputs)

    @classmethod
    def from_trees(cls, regressors, weight):
        """Return the sum of fitted trees of scikit-learn, with leaves times `weight`.

        All trees are built into one forest at once. A forest of each tree would take as
        long to build as the tree takes to grow.

        Parameters
        ----------
        regressors : list of ExtraTreeRegressor
            Fitted to the same features and outputs.
        weight : float
            Factor of the leaves: 1 / n_trees for a mean, the learning rate of boosting.

        Returns
        -------
        SummedTrees
        """
        builder = ForestBuilder()
        for regressor in regressors:
            tree = regressor.tree_
            value = _values_of_nodes(regressor, weight)
            builder.add_tree(
                left=tree.children_left,
                right=tree.children_right,
                # Leaves have a negative feature in scikit-learn, and 0 here.
                feature=np.maximum(tree.feature, 0),
                threshold=_in_single_precision(tree.threshold),
                value=value,
                flags=np.full(len(value), MISSING_RIGHT),
                output=_ALL_OUTPUTS,
            )
            builder.end_member()
        offset = np.zeros(regressors[0].n_outputs_)  # the sum starts at 0
        n_features = regressors[0].n_features_in_
        forest = builder.build(offset, n_features, read_rule=_READ_RULE)
        return cls(forest)

    @classmethod
    def sum_of(cls, members):
        """Return the sum of several members, as one forest.

        Parameters
        ----------
        members : list of SummedTrees

        Returns
        -------
        SummedTrees
        """
        # All members start their sums at 0, and read the same features. So the first
        # forest with the trees of all members is their sum.
        forest = members[0].forest
        trees = joined([member.forest.trees for member in members])
        return cls(replace(forest, trees=trees))

    def first_trees(self, n_folds):
        """Return the first trees, with leaf values scaled up for the trees left out.

        This forest was fitted without one fold. The forest for new rows has about
        `_KEPT_TREES` trees, equally many of the forest of each fold. Leaves of the
        returned trees are multiplied by ``_TREES / n_trees``. So the sum of these fewer
        trees is as large as the sum of all trees.

        Parameters
        ----------
        n_folds : int
            Number of folds whose trees are in the forest for new rows.

        Returns
        -------
        SummedTrees
        """
        trees_of_fold = -(-_KEPT_TREES // n_folds)  # rounded up
        n_trees = min(trees_of_fold, self.forest.n_members)
        forest = self.forest.taken(range(n_trees))
        values = forest.trees.values.astype(np.float32) * _TREES / n_trees
        return SummedTrees(replace(forest, trees=forest.trees.with_values(values)))

    def predict(self, rows):
        """Return the sum of the leaf values of each row, shape (n_rows, n_outputs)."""
        # From tree 0 to the last one: all trees.
        walk, layout = walk_of(self.forest, len(rows), first=0, last=self._n_trees)
        return self._sums(rows, walk, layout)

    def predict_once(self, rows):
        """Return the result of `predict`. For few rows, do not build a faster layout.

        For few rows, a layout that predicts faster takes longer to build than it saves.
        """
        if len(rows) >= _FEWEST_ROWS_OF_LAYOUT:
            return self.predict(rows)
        # Kernels are imported where they are needed: the import of numba takes long.
        from skroute.forests._kernels import add_leaves

        return self._sums(rows, add_leaves, self.forest.plain)

    def _sums(self, rows, walk, layout):
        """Return the sum of the leaf values of each row, by the kernel `walk`.

        `layout` has the trees in the form that the kernel takes. `walk_of` returns
        both.
        """
        rows = read_only(rows)
        n_rows = len(rows)
        # `walk` adds the leaves of the trees to `out`, in place. Ranges of rows and of
        # trees have a first and an end: here all rows, and all trees.
        out = np.zeros((n_rows, self._n_outputs))
        walk(rows, 0, n_rows, layout, 0, self._n_trees, self._all_outputs, out)
        return out

    def weighted(self, level, difference, factors=1.0):
        """Return trees with leaves that are weighted as by :func:`weigh_outputs`.

        The mean over outputs gets the weight `level`, and differences from it get the
        weight `difference`. `factors` are factors of the outputs: see `weigh_outputs`.
        """
        trees = self.forest.trees
        values = weigh_outputs(
            trees.values.astype(np.float32), level, difference, factors=factors
        )
        trees = trees.with_values(values.astype(np.float32))
        return SummedTrees(replace(self.forest, trees=trees))

    def to_arrays(self):
        """Return the arrays of the trees, with leaves in half precision."""
        return _packed_trees(self.forest)._asdict()

    @classmethod
    def from_arrays(cls, arrays):
        """Return the trees of packed arrays, or raise a ValueError for damaged ones."""
        return cls(_unpacked_forest(_PackedTrees(**arrays)))


def _values_of_nodes(regressor, weight):
    """Return the values of the nodes of a tree of scikit-learn, times `weight`.

    Parameters
    ----------
    regressor : ExtraTreeRegressor
        Fitted.
    weight : float

    Returns
    -------
    ndarray of shape (n_nodes, n_outputs), dtype=float32
    """
    # The last axis is for classes. A regression tree has one entry there.
    values = regressor.tree_.value[:, :, 0]
    return (weight * values).astype(np.float32)


def _in_single_precision(threshold):
    """Return thresholds rounded down to float32.

    A float32 number is at most the rounded threshold if and only if it is at most the
    exact one. So rows take the same branches.

    Parameters
    ----------
    threshold : ndarray of shape (n_nodes,), dtype=float64

    Returns
    -------
    ndarray of shape (n_nodes,), dtype=float32
    """
    rounded = threshold.astype(np.float32)  # to the nearest number
    below = np.nextafter(rounded, np.float32(-np.inf))
    return np.where(rounded > threshold, below, rounded)


@dataclass(frozen=True)
class Linear(Member):
    """Member with a linear function of some columns of the rows.

    Parameters
    ----------
    columns : ndarray of int, or None
        The columns that are read. None: all.
    coef : ndarray of shape (n_columns, n_outputs)
    offset : ndarray of shape (n_outputs,)
    """

    columns: np.ndarray | None
    coef: np.ndarray
    offset: np.ndarray

    def predict(self, rows):
        """Return the linear function of rows, of shape (n_rows, n_outputs)."""
        X = rows if self.columns is None else rows[:, self.columns]
        return X @ self.coef + self.offset

    def weighted(self, level, difference, factors=1.0):
        """Return the function with outputs weighted by :func:`weigh_outputs`."""
        coef = weigh_outputs(self.coef, level, difference, factors=factors)
        offset = weigh_outputs(self.offset, level, difference, factors=factors)
        return Linear(self.columns, coef, offset)

    def to_arrays(self):
        """Return the columns, the coefficients and the offset by name."""
        return _values_of_fields(self)

    @classmethod
    def from_arrays(cls, arrays):
        """Return the function that has these columns, coefficients and offset."""
        return cls(**arrays)


@dataclass(frozen=True)
class Similarities:
    """Similarities of rows to centres: ``exp(-(distance / width)**2 / 2)``.

    Parameters
    ----------
    centres : ndarray of shape (n_features, n_centres)
        The centres divided by the width.
    half_squares : ndarray of shape (n_centres,)
        Half the squared length of each column of `centres`.
    width : float
        Distance that is one unit. The similarity at it is exp(-1/2).
    """

    centres: np.ndarray
    half_squares: np.ndarray
    width: float

    def to(self, rows):
        """Return similarities of rows to the centres, (n_rows, n_centres).

        `rows` (n_rows, n_features) are standardised.
        """
        X = rows.astype(np.float64) / self.width
        half_squares_of_rows = (X**2).sum(axis=1)[:, None] / 2
        # This is -distance**2 / 2, multiplied out. Only rounding can make it positive.
        exponent = X @ self.centres - self.half_squares - half_squares_of_rows
        return np.exp(np.minimum(exponent, 0))


@dataclass(frozen=True)
class Landmarks(Member):
    """Member with a linear function of similarities of rows to cluster centres.

    Parameters
    ----------
    similarities : Similarities
    coef : ndarray of shape (n_centres, n_outputs)
        Coefficients of the similarities to the centres.
    offset : ndarray of shape (n_outputs,)
        Output of a row that is far from all centres.
    """

    similarities: Similarities
    coef: np.ndarray
    offset: np.ndarray

    def predict(self, rows):
        """Return the linear function of similarities of rows, (n_rows, n_outputs)."""
        return self.similarities.to(rows) @ self.coef + self.offset

    def weighted(self, level, difference, factors=1.0):
        """Return the member with outputs that are weighted by :func:`weigh_outputs`."""
        coef = weigh_outputs(self.coef, level, difference, factors=factors)
        offset = weigh_outputs(self.offset, level, difference, factors=factors)
        return Landmarks(self.similarities, coef, offset)

    def to_arrays(self):
        """Return the centres, the coefficients and the offset by name."""
        arrays = _values_of_fields(self.similarities)
        return arrays | {"coef": self.coef, "offset": self.offset}

    @classmethod
    def from_arrays(cls, arrays):
        """Return the member that has these centres, coefficients and offset."""
        similarities = Similarities(
            centres=arrays["centres"],
            half_squares=arrays["half_squares"],
            width=arrays["width"],
        )
        return cls(similarities, arrays["coef"], arrays["offset"])


def _values_of_fields(record):
    """Return the values of a dataclass by name, without copies."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


# Functions that fit the members -------------------------------------------------------


def _random_tree(rows, outcomes, rng, n_used, *, weight, min_samples_leaf, max_depth):
    """Fit an extremely randomised tree on rows that are drawn at random.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features), dtype=float32
    outcomes : ndarray of shape (n_rows, n_outputs)
        Target of the tree.
    rng : RandomState
    n_used : int
        Number of rows to draw, at most `_MOST_ROWS`. If there are no more rows than
        this, all are used, and none is drawn.
    weight : ndarray of shape (n_rows,), or None
        Weights of the rows. None weights all alike.
    min_samples_leaf : int
        Least number of rows of a leaf.
    max_depth : int or None
        None: the depth has no bound.

    Returns
    -------
    ExtraTreeRegressor
    """
    n_used = min(n_used, _MOST_ROWS)
    used_rows = slice(None)  # all rows
    if n_used < len(rows):
        used_rows = rng.permutation(len(rows))[:n_used]
    tree = ExtraTreeRegressor(
        max_features=min(rows.shape[1], _MOST_CANDIDATES),
        min_samples_leaf=min_samples_leaf,
        max_depth=max_depth,
        random_state=rng,
    )
    used_weight = None if weight is None else weight[used_rows]
    # The check of the input would take as long as the fit of the tree.
    return tree.fit(
        rows[used_rows],
        outcomes[used_rows],
        sample_weight=used_weight,
        check_input=False,
    )


def fit_trees(rows, deviations, seed, weight=None):
    """Fit extremely randomised trees. The member is their mean.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features), dtype=float32
        Standardised rows in C order.
    deviations : ndarray of shape (n_rows, n_outputs)
        Outcomes less their mean.
    seed : int
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    SummedTrees
    """
    rng = np.random.RandomState(seed)
    # A leaf has at least a thousandth of the rows, within bounds. The mean of such a
    # small leaf is noisy, but the mean over all trees is not.
    min_samples_leaf = int(np.clip(len(rows) // 1000, 5, 100))
    trees = []
    for _ in range(_TREES):
        tree = _random_tree(
            rows,
            deviations,
            rng=rng,
            n_used=len(rows),
            weight=weight,
            min_samples_leaf=min_samples_leaf,
            max_depth=None,
        )
        trees.append(tree)
    return SummedTrees.from_trees(trees, weight=1 / _TREES)


def fit_boosted(rows, deviations, seed, weight=None):
    """Fit gradient boosting of shallow trees on random subsamples.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features), dtype=float32
        Standardised rows in C order.
    deviations : ndarray of shape (n_rows, n_outputs)
        Outcomes less their mean.
    seed : int
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    SummedTrees
    """
    rng = np.random.RandomState(seed)
    # A leaf has at least a fiftieth of the rows, within bounds. A step with smaller
    # leaves would fit noise.
    min_samples_leaf = int(np.clip(len(rows) // 50, 5, 50))
    residual = deviations.copy()
    trees = []
    for _ in range(_STEPS):
        tree = _random_tree(
            rows,
            residual,
            rng=rng,
            n_used=int(np.ceil(_SUBSAMPLE * len(rows))),
            weight=weight,
            min_samples_leaf=min_samples_leaf,
            max_depth=_BOOSTED_DEPTH,
        )
        trees.append(tree)
        # These are the numbers that `SummedTrees.predict` returns for the tree. A
        # forest of the tree alone would take as long to build as the tree takes to
        # grow.
        leaf_of_row = tree.tree_.apply(rows)
        residual -= _values_of_nodes(tree, _RATE)[leaf_of_row]
    return SummedTrees.from_trees(trees, weight=_RATE)


def fit_linear(rows, deviations, seed, weight=None):
    """Fit a ridge regression of all outputs by `shared_ridge`.

    If the rows have many columns, some are selected. The selected columns have the
    largest sums of absolute covariances with the outputs.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features), dtype=float32
        Standardised rows in C order.
    deviations : ndarray of shape (n_rows, n_outputs)
        Outcomes less their mean.
    seed : int
        Not used: the fit is not random.
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    Linear
    """
    columns = None  # all
    X = rows
    if rows.shape[1] > _MOST_COLUMNS:
        target = deviations
        if weight is not None:
            target = weight[:, None] * deviations
        covariance = rows.T @ target.astype(np.float32)  # (n_features, n_outputs)
        strength = np.abs(covariance).sum(axis=1)
        strongest = np.argsort(-strength, kind="stable")[:_MOST_COLUMNS]
        columns = np.sort(strongest)
        X = rows[:, columns]
    coef, offset = shared_ridge(X.astype(np.float64), deviations, weight)
    return Linear(columns, coef, offset)


def fit_landmarks(rows, deviations, seed, weight=None):
    """Fit a ridge regression on similarities to cluster centres.

    Rows are drawn at random. The first of the drawn rows are the starts of the
    clusters. A centre is the mean of the drawn rows that are nearest to one start.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features), dtype=float32
        Standardised rows in C order.
    deviations : ndarray of shape (n_rows, n_outputs)
        Outcomes less their mean.
    seed : int
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    Landmarks
    """
    rng = np.random.RandomState(seed)
    drawn = rng.permutation(len(rows))[: _ROWS_OF_CENTRE * _CENTRES]
    drawn_rows = rows[drawn].astype(np.float64)
    width = _typical_distance(drawn_rows[:_ROWS_OF_WIDTH])
    # There are at least four rows for each centre. The similarities to the centres are
    # the columns of a regression, which must have far fewer columns than rows.
    n_centres = max(1, min(_CENTRES, len(rows) // 4))
    centres = _cluster_centres(drawn_rows, n_centres)
    centres /= width  # now in units of the width
    half_squares = (centres**2).sum(axis=1) / 2
    similarities = Similarities(centres.T, half_squares, width)
    coef, offset = shared_ridge(similarities.to(rows), deviations, weight)
    return Landmarks(similarities, coef, offset)


def _cluster_centres(rows, n_centres):
    """Group rows by the nearest of the first `n_centres` rows, and return group means.

    This is one step of k-means that starts with the first rows.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
    n_centres : int
        Number of first rows. Equal rows give one centre.

    Returns
    -------
    ndarray of shape (at most n_centres, n_features)
    """
    first_rows = np.unique(rows[:n_centres], axis=0)
    # Half the squared length of a row, less half its squared distance to each of
    # `first_rows`. The length is the same for all of these. So the nearest of
    # `first_rows` has the largest closeness. (n_rows, n_first_rows)
    closeness = rows @ first_rows.T - (first_rows**2).sum(axis=1) / 2
    cluster_of_row = closeness.argmax(axis=1)
    # A row of `first_rows` has no cluster if it is not the nearest one of any row.
    clusters = np.unique(cluster_of_row)
    centres = [rows[cluster_of_row == cluster].mean(axis=0) for cluster in clusters]
    return np.array(centres)


def _typical_distance(rows):
    """Return the root of half the median squared distance of rows, or 1 if all equal.

    Each row in the first half of the rows has a distance to each row in the second
    half. Distances of 0 do not count.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)

    Returns
    -------
    float
    """
    first, second = np.array_split(rows, 2)
    squared_distances = cdist(first, second, "sqeuclidean")
    positive = squared_distances[squared_distances > 0]
    if not len(positive):
        return 1.0  # the rows are equal, and have no distance
    return float(np.median(positive) / 2) ** 0.5


def shared_ridge(X, Y, weight=None):
    """Fit a ridge regression of several outputs, by their principal components.

    The outputs are rotated to their principal components. Each component has its own
    penalty, which minimises generalised cross-validation. So the common part of the
    choices, which varies most, is shrunk least.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns)
    Y : ndarray of shape (n_rows, n_outputs)
    weight : ndarray of shape (n_rows,), default=None
        Weights in units of one row. None: each row weighs one.

    Returns
    -------
    coef : ndarray of shape (n_columns, n_outputs)
    offset : ndarray of shape (n_outputs,)
    """
    if weight is None:
        total_weight = len(X)
        x_mean = X.mean(axis=0)
        y_mean = Y.mean(axis=0)
        x_centred = X - x_mean
        y_centred = Y - y_mean
    else:
        total_weight = weight.sum()
        x_mean = np.average(X, axis=0, weights=weight)
        y_mean = np.average(Y, axis=0, weights=weight)
        # Least squares with weights are least squares without weights, after each row
        # is multiplied by the root of its weight.
        root_weight = np.sqrt(weight)[:, None]
        x_centred = root_weight * (X - x_mean)
        y_centred = root_weight * (Y - y_mean)
    # The columns of `rotation` are the principal axes of the outputs. The shape is
    # (n_outputs, n_outputs).
    _, rotation = np.linalg.eigh(y_centred.T @ y_centred)
    components = y_centred @ rotation
    rotated = _cross_validated_ridge(x_centred, components, total_weight)
    if rotated is None:
        # The columns of X do not vary: the estimate is the mean of Y.
        return np.zeros((X.shape[1], Y.shape[1])), y_mean
    coef = rotated @ rotation.T
    return coef, y_mean - x_mean @ coef


def _cross_validated_ridge(X, Y, total_weight):
    """Fit a ridge regression of each output, with a cross-validated penalty.

    The penalty of each output minimises generalised cross-validation: the residual sum
    of squares, divided by the squared number of residual degrees of freedom.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns)
        Centred columns.
    Y : ndarray of shape (n_rows, n_outputs)
        Centred outputs.
    total_weight : float
        Number of rows, or the sum of their weights.

    Returns
    -------
    ndarray of shape (n_columns, n_outputs), or None
        Coefficients. None if the columns do not vary.
    """
    # Squared singular values of the columns, rising, and their right singular vectors.
    squares, basis = np.linalg.eigh(X.T @ X)
    # The bound is above 0, so that no value is used if all columns are 0.
    is_used = squares > _LEAST_SQUARE * max(squares[-1], TINY)
    squares = squares[is_used]
    basis = basis[:, is_used]
    if len(squares) == 0:
        return None
    products = basis.T @ (X.T @ Y)  # (n_used, n_outputs)
    # Factor by which each penalty shrinks each coefficient, (n_penalties, n_used).
    shrinkage = squares / (squares + _PENALTIES[:, None] * squares.mean())
    # Degrees of freedom of the fit. The mean has one more. At least one degree is left
    # for the residual.
    fit_freedom = np.minimum(shrinkage.sum(axis=1), total_weight - 2)
    residual_freedom = np.maximum(total_weight - 1 - fit_freedom, 1)
    # Sum of squares that the fit explains, (n_penalties, n_outputs). A coefficient of
    # least squares explains ``products**2 / squares``. If the coefficient is multiplied
    # by s, it explains the share ``2 s - s**2`` of this.
    explained = ((2 * shrinkage - shrinkage**2) / squares) @ products**2
    residual = np.maximum((Y**2).sum(axis=0) - explained, 0)
    cross_validation = residual / residual_freedom[:, None] ** 2
    best_penalty = cross_validation.argmin(axis=0)  # of each output
    # For each penalty, the coefficients are the products times this factor.
    factor = shrinkage / squares  # (n_penalties, n_used)
    # Coefficients in the basis, (n_used, n_outputs).
    coef = products * factor[best_penalty].T
    return basis @ coef


# Functions that fit the members, by the names of the parameter `family`.
MEMBERS = {
    "trees": fit_trees,
    "boosted": fit_boosted,
    "linear": fit_linear,
    "landmarks": fit_landmarks,
}


# Members as plain arrays, for files ---------------------------------------------------

# Classes of members, by the names that `pack` returns.
_CLASSES = {"SummedTrees": SummedTrees, "Linear": Linear, "Landmarks": Landmarks}


def pack(member):
    """Return the name of a member's class, and its plain numbers and arrays by name.

    `member` is a `Member`. The numbers and arrays are a dict. Leaves of trees are
    rounded to half precision.
    """
    return type(member).__name__, member.to_arrays()


def unpack(class_name, arrays):
    """Return the member that :func:`pack` packed."""
    return _CLASSES[class_name].from_arrays(arrays)


class _PackedTrees(NamedTuple):
    """The arrays of a forest with leaves in half precision.

    Attributes
    ----------
    n_features : int
        Number of columns of a row.
    roots : ndarray of shape (n_trees,), dtype=int32
        First node of each tree.
    depths : ndarray of shape (n_trees,), dtype=int32
        Depth of each tree.
    feature : ndarray of shape (n_nodes,), dtype=int16 or int32
        Feature of an inner node, `_LEAF` of a leaf.
    threshold : ndarray of shape (n_nodes,), dtype=float32
        Rows whose feature is at most this number go left.
    child : ndarray of shape (n_nodes,), dtype=int32
        Position of the left child. A leaf is its own child.
    leaf_values : ndarray of shape (n_leaves, n_outputs), dtype=float16
        Values of the leaves, divided by `unit`.
    unit : ndarray of shape (n_outputs,), dtype=float64
        Unit of each output, a power of two.
    """

    n_features: int
    roots: np.ndarray
    depths: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    child: np.ndarray
    leaf_values: np.ndarray
    unit: np.ndarray


def _packed_trees(forest):
    """Return the arrays of a forest, with leaves in half precision.

    Parameters
    ----------
    forest : skroute.forests.Forest

    Returns
    -------
    _PackedTrees
    """
    trees = forest.trees
    nodes = trees.nodes
    # A leaf is its own child.
    is_leaf = nodes["child"] == np.arange(len(nodes))
    feature = np.where(is_leaf, _LEAF, nodes["feature"] & FEATURE_MASK)
    feature_dtype = np.int32
    # Files are smaller with 16 bits, which hold all features below 2**15.
    if feature.max(initial=0) < 2**15:
        feature_dtype = np.int16
    values = trees.values[is_leaf]  # (n_leaves, n_outputs)
    largest = np.abs(values).max(axis=0, initial=0)
    # Leaf values of each output are divided by a unit. An output whose leaves are all 0
    # has the unit 1.
    positive = np.where(largest > 0, largest, 1.0)
    # Values in this unit are at most 1, so that none is too large for half precision.
    # Division by a power of two does not round.
    unit = 2.0 ** np.ceil(np.log2(positive))
    # Values that are far smaller than the largest one become 0, without a warning.
    with np.errstate(under="ignore"):
        leaf_values = (values / unit).astype(np.float16)
    return _PackedTrees(
        n_features=forest.n_features,
        roots=trees.roots,
        depths=trees.depths,
        feature=feature.astype(feature_dtype),
        threshold=nodes["threshold"].astype(np.float32),
        child=np.ascontiguousarray(nodes["child"]),
        leaf_values=leaf_values,
        unit=unit,
    )


def _unpacked_forest(packed):
    """Return the forest of packed trees, or raise a ValueError for damaged ones.

    Parameters
    ----------
    packed : _PackedTrees

    Returns
    -------
    skroute.forests.Forest
        The forest shares arrays with `packed`.
    """
    n_nodes = len(packed.child)
    n_trees = len(packed.roots)
    n_outputs = len(packed.unit)
    is_leaf = packed.feature == _LEAF
    nodes = np.empty(n_nodes, dtype=NODE)
    nodes["threshold"] = packed.threshold
    # An inner node has the number of its feature, with the flag that missing numbers go
    # right. Rows of members have no missing numbers. A leaf has the feature 0.
    inner_feature = packed.feature.astype(np.int32) | MISSING_RIGHT
    nodes["feature"] = np.where(is_leaf, 0, inner_feature)
    nodes["child"] = packed.child
    values = np.zeros((n_nodes, n_outputs))
    # Leaves were divided by the unit of each output, to fit into half precision.
    values[is_leaf] = (packed.leaf_values * packed.unit).astype(np.float32)
    trees = Trees(
        nodes=nodes,
        values=values,
        roots=packed.roots,
        depths=packed.depths,
        outputs=np.full(n_trees, _ALL_OUTPUTS, dtype=np.int32),
        # The trees are not grouped: group t starts with tree t.
        member_start=np.arange(n_trees + 1, dtype=np.int32),
        # No split is by categories.
        cat_words=np.zeros(0, dtype=np.uint32),
        cat_start=np.zeros(1, dtype=np.int32),
    )
    trees.check(packed.n_features, n_outputs)
    return Forest(
        trees.read_only(),
        offset=read_only(np.zeros(n_outputs)),
        n_features=packed.n_features,
        read_rule=_READ_RULE,
    )
