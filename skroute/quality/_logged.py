"""Models of a log with one answer per request: propensities and missing outcomes."""

import warnings

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skroute.quality._frame_encoder import FrameEncoder
from skroute.utils._frames import (
    as_rows,
    cells_of,
    is_frame,
    is_text,
    names_and_columns,
    needs_encoding,
    table_of_numbers,
    texts_of,
)
from skroute.utils._tensors import on_host
from skroute.utils._texts_of_fit import texts_counted_once
from skroute.utils._validation import relative_weights

# The share of each choice in the log is mixed into estimated propensities, with this
# weight. So no propensity is near 0, unless the choice is rare in the whole log.
_FLOOR = 0.02
# Trees of each forest. Bounds the time of a fit.
_N_TREES = 40
# Largest number of iterations of logistic regression. Bounds the time of a fit.
_MOST_ITERATIONS = 300
# Number of rows that is added to the count of each choice, so that no share is 0. The
# Jeffreys prior of a share adds a half.
_ADDED_ROWS = 0.5
# A cell is the outcome of one choice on one row. A split of a forest of cells compares
# this share of the features. With half of them, trees differ, and each split can
# still use about half of the indicators of choices.
_SPLIT_FEATURES = 0.5
# Largest number of cells that a forest is fitted on. If more are known, this number is
# drawn at random. Bounds the time of a fit.
_MOST_CELLS = 200_000
# A cell is the outcome of one choice on one row. A leaf of a forest of cells has at
# least this share of the known cells. This least number is kept within the two bounds
# that follow.
_SHARE_OF_LEAF = 1 / 200
# Lower bound of the least number of cells in a leaf. It holds for tables with few known
# cells, whose leaves would have one or two cells otherwise.
_FEWEST_CELLS_OF_LEAF = 3
# Upper bound of the least number of cells in a leaf. It holds for tables with many
# known cells. Larger leaves would mix rows that are different.
_MOST_CELLS_OF_LEAF = 50
# Folds of the estimates that fill unknown cells for a user's estimator. The number is
# small, because each of the many fits in a cross-validation fills cells.
_FOLDS_OF_FILLING = 3


def as_numbers(X):
    """Return rows of any kind as an array or csr matrix of numbers.

    Parameters
    ----------
    X : data frame, array-like, sparse matrix, tensor or sequence of str

    Returns
    -------
    {ndarray, csr matrix} of shape (n_rows, n_features)
    """
    if needs_encoding(X):
        # The encoder does not use outcomes, so one fit serves all folds.
        return FrameEncoder().fit_transform(X)
    if sparse.issparse(X):
        return X.tocsr()
    if is_frame(X):
        return table_of_numbers(X)
    rows = np.asarray(on_host(X), dtype=np.float64)
    return rows.reshape(len(rows), -1)


def with_text_lengths(numbers, X):
    """Add the lengths of texts, in characters and in words, to rows as numbers.

    Many services send long texts to another model. A model of propensities can learn
    this rule from lengths, but hardly from the words that `as_numbers` encodes.

    Parameters
    ----------
    numbers : {ndarray, csr matrix} of shape (n_rows, n_features)
        The rows by `as_numbers`.
    X : as in `as_numbers`
        The same rows.

    Returns
    -------
    {ndarray, csr matrix} of shape (n_rows, n_features + n_lengths)
        The argument itself if the rows have no texts.
    """
    if not needs_encoding(X):
        return numbers
    lengths = []  # two lists of n_rows numbers for each column of texts
    _, columns = names_and_columns(as_rows(X))
    for column in columns:
        if any(is_text(cell) for cell in cells_of(column)):
            # A missing text has no characters.
            texts = [text or "" for text in texts_of(column)]
            lengths.append([len(text) for text in texts])
            lengths.append([len(text.split()) for text in texts])
    return np.column_stack([numbers, *lengths])


def folds_of_log(n_rows, cv=5):
    """Return `cv` shuffled folds, or one for each row if there are fewer rows.

    Parameters
    ----------
    n_rows : int
    cv : int, default=5
        Number of folds.

    Returns
    -------
    list of (ndarray of int, ndarray of int)
        Pairs ``(train, test)`` of positions, as splitters of scikit-learn yield them.
    """
    # With a single row, there are no rows outside of its fold.
    if n_rows < 2:
        raise ValueError(
            f"X must have at least two rows to learn from some of them, got {n_rows}."
        )
    splitter = KFold(min(cv, n_rows), shuffle=True, random_state=0)
    return list(splitter.split(np.empty(n_rows)))


# Estimates of propensities ------------------------------------------------------------


def estimate_propensities(rows, choice, n_choices, folds):
    """Return out-of-fold propensities, by the model with the lowest log loss.

    Four models of P(choice | row) are compared: the choices' shares, a forest, a
    multinomial logistic regression, and a tree, which finds a rule on one of many
    features. The choices must depend on the rows and on chance only, not on anything
    else that is related to quality.

    Parameters
    ----------
    rows : {ndarray, csr matrix} of shape (n_rows, n_features)
    choice : ndarray of shape (n_rows,), dtype=int64
        Position of the choice that was made on each row.
    n_choices : int
    folds : list of (ndarray of int, ndarray of int)
        Pairs ``(train, test)`` of positions, as splitters of scikit-learn yield them.

    Returns
    -------
    ndarray of shape (n_rows,)
        Propensities of the choices that were made, all above 0.
    """
    linear = make_pipeline(
        StandardScaler(with_mean=not sparse.issparse(rows)),
        LogisticRegression(max_iter=_MOST_ITERATIONS),
    )
    # A leaf has at least a hundredth of the rows, within bounds. A propensity is a
    # share of the rows of a leaf. Shares of few rows would be noise.
    min_samples_leaf = int(np.clip(len(choice) // 100, 5, 50))
    forest = ExtraTreesClassifier(
        _N_TREES, min_samples_leaf=min_samples_leaf, random_state=0
    )
    tree = DecisionTreeClassifier(min_samples_leaf=min_samples_leaf, random_state=0)
    by_shares = np.empty(len(choice))
    by_forest = np.empty(len(choice))
    by_tree = np.empty(len(choice))
    by_linear = np.empty(len(choice))
    for train, test in folds:
        shares = _shares_of_choices(choice[train], n_choices)
        fallback = shares[choice[test]]
        by_shares[test] = fallback
        by_forest[test] = fallback
        by_tree[test] = fallback
        by_linear[test] = fallback
        if len(np.unique(choice[train])) == 1:
            # A classifier needs two classes. The estimate stays the share of the choice
            # in the rows of `train`.
            continue
        by_forest[test] = _modelled_propensities(
            forest, rows, choice, train=train, test=test, fallback=fallback
        )
        by_tree[test] = _modelled_propensities(
            tree, rows, choice, train=train, test=test, fallback=fallback
        )
        # Logistic regression takes no missing values. If there are any, the sum is NaN.
        if not np.isnan(rows.sum()):
            by_linear[test] = _modelled_propensities(
                linear, rows, choice, train=train, test=test, fallback=fallback
            )
    return min([by_shares, by_forest, by_tree, by_linear], key=_log_loss)


def _shares_of_choices(choice, n_choices):
    """Return the share of each choice in the rows, shape (n_choices,). No share is 0.

    `choice` (n_rows,) has the position of the choice of each row.
    """
    counts = np.bincount(choice, minlength=n_choices)
    n_rows = len(choice)
    return (counts + _ADDED_ROWS) / (n_rows + _ADDED_ROWS * n_choices)


def _modelled_propensities(model, rows, choice, *, train, test, fallback):
    """Fit a classifier of the logged choices, and return propensities of other rows.

    Parameters
    ----------
    model : classifier
    rows : {ndarray, csr matrix} of shape (n_rows, n_features)
    choice : ndarray of shape (n_rows,), dtype=int64
        Position of the choice that was made on each row.
    train, test : ndarray of int
        Positions of the rows that the model is fitted on, and of the rows of the
        result.
    fallback : ndarray of shape (n_test_rows,)
        Propensities that are mixed in, so that none is 0.

    Returns
    -------
    ndarray of shape (n_test_rows,)
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(rows[train], choice[train])
    probability = model.predict_proba(rows[test])
    # One column for each position of a choice, up to the largest position in the log. A
    # choice that is not in the rows of `train` has the probability 0.
    n_columns = choice.max() + 1
    probability_of_choice = np.zeros((len(test), n_columns))
    probability_of_choice[:, model.classes_] = probability
    modelled = probability_of_choice[np.arange(len(test)), choice[test]]
    return (1 - _FLOOR) * modelled + _FLOOR * fallback


def _log_loss(propensity):
    """Return the mean log loss, from the propensities of the choices that were made."""
    return -np.log(propensity).mean()


# Estimates of unknown cells of a table ------------------------------------------------


class CellForest:
    """Forest estimator of unknown cells in a table of outcomes, by row and choice.

    A cell is the outcome of one choice on one row. Most cells may be unknown. All
    choices share one forest. So the difficulty of rows is learned from all known cells.

    Parameters
    ----------
    ratio : bool, default=False
        Whether the forest learns relative differences from the mean of a choice, as
        suits costs. Estimates are then at least 0. If False, it learns the differences
        themselves.
    min_samples_leaf : int, default=None
        Least number of cells of a leaf. None takes `leaf_size` of the cells of `fit`.

    Attributes
    ----------
    mean_ : ndarray of shape (n_choices,)
        Mean of the known cells of each choice. A choice without known cells has the
        mean of all known cells.
    unit_ : ndarray of shape (n_choices,)
        Divisor of the differences from the mean: the mean itself for a ratio, else 1.
    forest_ : ExtraTreesRegressor
        Estimates ``(value - mean_) / unit_``.
    """

    def __init__(self, ratio=False, min_samples_leaf=None):
        self.ratio = ratio
        self.min_samples_leaf = min_samples_leaf

    def fit(self, rows, table, row_weight=None):
        """Fit the forest on the known cells of a table.

        Parameters
        ----------
        rows : {ndarray, csr matrix} of shape (n_rows, n_features)
        table : ndarray of shape (n_rows, n_choices)
            NaN where a value is not known.
        row_weight : ndarray of shape (n_rows,), default=None
            Weights of the rows. None weights all alike.

        Returns
        -------
        self
        """
        n_choices = table.shape[1]
        row_of_cell, choice_of_cell = _known_cells(table)
        values = table[row_of_cell, choice_of_cell]
        weight = None if row_weight is None else row_weight[row_of_cell]
        self.mean_ = _means_of_choices(values, choice_of_cell, n_choices, weight=weight)
        self.unit_ = np.ones(n_choices)
        if self.ratio:
            # Differences from a mean of 0 or less are not divided.
            self.unit_ = np.where(self.mean_ > 0, self.mean_, 1.0)
        indicators = np.eye(n_choices)[choice_of_cell]  # (n_cells, n_choices)
        cells = _cells(rows[row_of_cell], indicators)
        deviations = values - self.mean_[choice_of_cell]
        scaled_deviations = deviations / self.unit_[choice_of_cell]
        min_samples_leaf = self.min_samples_leaf
        if min_samples_leaf is None:
            min_samples_leaf = leaf_size(len(values))
        self.forest_ = ExtraTreesRegressor(
            _N_TREES,
            min_samples_leaf=min_samples_leaf,
            max_features=_SPLIT_FEATURES,
            random_state=0,
        )
        self.forest_.fit(cells, scaled_deviations, sample_weight=weight)
        return self

    def predict(self, rows):
        """Return estimates of all choices, of shape (n_rows, n_choices).

        Parameters
        ----------
        rows : {ndarray, csr matrix} of shape (n_rows, n_features)
        """
        n_rows = rows.shape[0]
        n_choices = len(self.mean_)
        row_of_cell = np.repeat(np.arange(n_rows), n_choices)
        # All cells of the first row come first, then all cells of the second row, ...
        indicators = np.tile(np.eye(n_choices), (n_rows, 1))  # (n_cells, n_choices)
        scaled_deviations = self.forest_.predict(_cells(rows[row_of_cell], indicators))
        scaled_deviations = scaled_deviations.reshape(n_rows, n_choices)
        estimates = self.mean_ + self.unit_ * scaled_deviations
        if self.ratio:
            # Ratios are for costs, which are at least 0.
            estimates = np.maximum(estimates, 0.0)
        return estimates


def leaf_size(n_cells):
    """Return the least number of cells in a leaf, if `n_cells` of a table are known.

    Estimates of smaller leaves vary more from row to row. A dual price that is set by
    the estimates of one forest would spend another amount by the estimates of a forest
    with other leaves. So the forests of the folds and the forest of all rows get the
    same number, computed from the cells of all rows.
    """
    size_by_share = int(n_cells * _SHARE_OF_LEAF)
    return int(np.clip(size_by_share, _FEWEST_CELLS_OF_LEAF, _MOST_CELLS_OF_LEAF))


def _known_cells(table):
    """Return the row and the choice of each known cell (not NaN) of a table.

    If more than `_MOST_CELLS` cells are known, this number of them is drawn at random.

    Parameters
    ----------
    table : ndarray of shape (n_rows, n_choices)
        NaN where a value is not known.

    Returns
    -------
    row_of_cell, choice_of_cell : ndarray of shape (n_cells,), dtype=intp
        Positions of the row and of the choice of each cell.
    """
    row_of_cell, choice_of_cell = np.nonzero(~np.isnan(table))
    n_cells = len(row_of_cell)
    if n_cells > _MOST_CELLS:
        rng = np.random.default_rng(0)
        drawn = rng.choice(n_cells, _MOST_CELLS, replace=False)
        row_of_cell = row_of_cell[drawn]
        choice_of_cell = choice_of_cell[drawn]
    return row_of_cell, choice_of_cell


def _means_of_choices(values, choice_of_cell, n_choices, *, weight):
    """Return the mean value of the cells of each choice.

    A choice without values gets the mean of all values.

    Parameters
    ----------
    values : ndarray of shape (n_cells,)
    choice_of_cell : ndarray of shape (n_cells,), dtype=intp
        Position of the choice of each cell.
    n_choices : int
    weight : ndarray of shape (n_cells,), or None
        Weights of the cells. None weights all alike.

    Returns
    -------
    ndarray of shape (n_choices,)
    """
    if weight is None:
        weight = np.ones(len(values))
    means = np.full(n_choices, np.average(values, weights=weight))
    weight_of_choice = np.bincount(choice_of_cell, weight, n_choices)
    total = np.bincount(choice_of_cell, weight * values, n_choices)
    np.divide(total, weight_of_choice, out=means, where=weight_of_choice > 0)
    return means


def _cells(rows, indicators):
    """Return features of cells: features of the row, then indicators of the choice.

    Parameters
    ----------
    rows : {ndarray, csr matrix} of shape (n_cells, n_features)
        The row of each cell.
    indicators : ndarray of shape (n_cells, n_choices)
        1 at the choice of the cell, else 0.

    Returns
    -------
    {ndarray, csr matrix} of shape (n_cells, n_features + n_choices)
    """
    if sparse.issparse(rows):
        return sparse.hstack([rows, indicators], format="csr")
    return np.hstack([rows, indicators])


def estimate_cells(rows, table, folds, *, ratio=False, row_weight=None):
    """Return out-of-fold estimates of all cells of a table, known or not (NaN).

    Parameters
    ----------
    rows : {ndarray, csr matrix} of shape (n_rows, n_features)
    table : ndarray of shape (n_rows, n_choices)
        NaN where a value is not known.
    folds : list of (ndarray of int, ndarray of int)
        Pairs ``(train, test)`` of positions, as splitters of scikit-learn yield them.
    ratio : bool, default=False
        As in `CellForest`.
    row_weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    ndarray of shape (n_rows, n_choices)
    """
    estimates = np.empty(table.shape)
    # The forests of all folds have the same size of leaves.
    min_samples_leaf = leaf_size(np.count_nonzero(~np.isnan(table)))
    for train, test in folds:
        weight = None if row_weight is None else row_weight[train]
        forest = CellForest(ratio, min_samples_leaf)
        forest.fit(rows[train], table[train], row_weight=weight)
        estimates[test] = forest.predict(rows[test])
    return estimates


class KnownCellsRegressor(RegressorMixin, BaseEstimator):
    """Wrapper of a multi-output regressor for tables with unknown cells (NaN).

    Unknown cells are filled with out-of-fold estimates of a `CellForest`. Known cells
    stay as they are.

    Parameters
    ----------
    estimator : multi-output regressor or None
        None: a `CellForest` itself makes the estimates.
    ratio : bool, default=False
        As in `CellForest`. Only used if `estimator` is None.
    min_samples_leaf : int, default=None
        As in `CellForest`. Only used if `estimator` is None.

    Attributes
    ----------
    encoder_ : FrameEncoder or None
        Makes numbers of rows for the forest. None for rows of numbers.
    estimator_ : regressor or None
        The fitted estimator, on the rows as they are. None if `estimator` is None.
    forest_ : CellForest
        The fitted forest. Only if `estimator` is None.
    """

    def __init__(self, estimator=None, ratio=False, min_samples_leaf=None):
        self.estimator = estimator
        self.ratio = ratio
        self.min_samples_leaf = min_samples_leaf

    def fit(self, X, y, sample_weight=None, **fit_params):
        """Fit on rows and on a table of outcomes, of which most may be unknown (NaN).

        Parameters
        ----------
        X : as in `as_numbers`
            The rows.
        y : ndarray of shape (n_rows,) or (n_rows, n_choices)
            NaN where a value is not known.
        sample_weight : array-like of shape (n_rows,), default=None
            Weights of the rows. The estimator gets them without a change of unit.
        **fit_params : dict
            Parameters of the estimator's `fit`.

        Returns
        -------
        self
        """
        # The words of each text are counted once in this fit. In a worker of a parallel
        # loop, the counts of the router's fit are not available.
        with texts_counted_once():
            return self._fit(X, y, sample_weight, fit_params)

    def _fit(self, X, y, sample_weight, fit_params):
        """Fill unknown cells and fit the estimator, or fit only a `CellForest`."""
        table = y.reshape(len(y), -1)
        self.encoder_ = None  # None is for rows of numbers.
        if needs_encoding(X):
            # `as_numbers` would encode X as well, but `predict` needs the encoder.
            self.encoder_ = FrameEncoder()
            rows = self.encoder_.fit_transform(X)
        else:
            rows = as_numbers(X)
        row_weight = None
        if sample_weight is not None:
            row_weight = relative_weights(np.asarray(sample_weight, dtype=np.float64))
            fit_params = fit_params | {"sample_weight": sample_weight}
        self.estimator_ = None  # None: the forest itself estimates
        if self.estimator is None:
            forest = CellForest(self.ratio, self.min_samples_leaf)
            self.forest_ = forest.fit(rows, table, row_weight)
            return self
        filled = _filled(table, rows, row_weight)
        # The table of one choice becomes a target of one dimension, because not every
        # regressor takes the shape (n_rows, 1).
        target = filled[:, 0] if filled.shape[1] == 1 else filled
        self.estimator_ = clone(self.estimator).fit(X, target, **fit_params)
        return self

    def predict(self, X):
        """Return estimates of all choices, of shape (n_rows, n_choices).

        `X` has rows as in `fit`. An estimator that was fitted on a single choice may
        return the shape (n_rows,).
        """
        if self.estimator_ is not None:
            return self.estimator_.predict(X)
        if self.encoder_ is not None:
            return self.forest_.predict(self.encoder_.transform(X))
        return self.forest_.predict(as_numbers(X))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _filled(table, rows, row_weight):
    """Return a table with out-of-fold estimates in place of its unknown cells.

    Parameters
    ----------
    table : ndarray of shape (n_rows, n_choices)
        NaN where a value is not known. The array is not changed. If all values are
        known, the array itself is returned.
    rows : {ndarray, csr matrix} of shape (n_rows, n_features)
    row_weight : ndarray of shape (n_rows,), or None
        Weights of the rows. None weights all alike.

    Returns
    -------
    ndarray of shape (n_rows, n_choices)
    """
    is_unknown = np.isnan(table)
    if not is_unknown.any():
        return table
    folds = folds_of_log(len(table), cv=_FOLDS_OF_FILLING)
    estimates = estimate_cells(rows, table, folds, row_weight=row_weight)
    return np.where(is_unknown, estimates, table)
