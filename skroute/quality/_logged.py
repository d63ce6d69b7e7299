"""What a log of one answer per request says: propensities, estimates, pseudo-outcomes."""

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skroute.quality._frame_encoder import FrameEncoder
from skroute.utils._frames import needs_encoding
from skroute.utils._tensors import on_host
from skroute.utils._validation import check_numbers

# Estimated propensities are mixed with this share of the choices' shares in the log.
_FLOOR = 0.02
_N_TREES = 40
# A choice that was never made may be needed for fewer rows than these.
_LEAST_ROWS, _LEAST_SHARE = 10, 0.02
_EXPECTED = 7.0
# Of a table with more known cells as many are drawn.
_MOST_CELLS = 200_000


def as_numbers(X):
    """Rows of anything as a table that trees and linear models read."""
    if needs_encoding(X):
        # The outcomes are not read: one encoder serves all folds.
        return FrameEncoder().fit_transform(X)
    if sparse.issparse(X):
        return X.tocsr()
    found = np.asarray(on_host(X), dtype=np.float64)
    return found.reshape(len(found), -1)


def folds_of_log(n_rows, cv=5):
    """Shuffled folds with a fixed seed; fewer where rows are few."""
    if n_rows < 2:
        raise ValueError(f"X must have at least two rows to learn from some of them, got {n_rows}.")
    return list(KFold(min(cv, n_rows), shuffle=True, random_state=0).split(np.empty(n_rows)))


def estimate_propensities(rows, choice, n_choices, folds):
    """P(choice | row) out of sample, by whichever of three models foretells choices best.

    The choices' shares, a multinomial logistic regression and a forest are compared by
    their log loss on rows that did not fit them. It is supposed that the log chose by what
    is in the rows, and by chance, and by nothing else that says something of quality.

    Parameters
    ----------
    rows : {ndarray, csr matrix} of shape (n_rows, n_features)
    choice : ndarray of shape (n_rows,), dtype=int64
    n_choices : int
    folds : list of (ndarray of int, ndarray of int)

    Returns
    -------
    ndarray of shape (n_rows,)
        Of the choice that was made.
    """
    linear = make_pipeline(
        StandardScaler(with_mean=not sparse.issparse(rows)), LogisticRegression(max_iter=300)
    )
    leaf = int(np.clip(len(choice) // 100, 5, 50))
    forest = ExtraTreesClassifier(_N_TREES, min_samples_leaf=leaf, random_state=0)
    found: list[Any] = [np.empty(len(choice)) for _ in range(3)]
    for train, test in folds:
        shares = (np.bincount(choice[train], minlength=n_choices) + 0.5) / (
            len(train) + 0.5 * n_choices
        )
        own = shares[choice[test]]
        found[0][test] = own
        for into, model in zip(found[1:], (forest, linear)):
            into[test] = own
            if len(np.unique(choice[train])) == 1 or (model is linear and np.isnan(rows.sum())):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(rows[train], choice[train])
            table = np.zeros((len(test), n_choices))
            table[:, model.classes_] = model.predict_proba(rows[test])
            known = table[np.arange(len(test)), choice[test]]
            into[test] = (1 - _FLOOR) * known + _FLOOR * own
    return min(found, key=lambda known: -np.log(known).mean())


class CellForest:
    """A forest that reads a row and a choice: cells of a table in which most may be unknown.

    What makes a row hard for all choices is learned from all rows, whichever choice was made.

    Parameters
    ----------
    ratio : bool, default=False
        Whether values of a choice lie at a ratio to its mean, as costs do, and not at a
        distance.
    """

    def __init__(self, ratio=False):
        self.ratio = ratio

    def fit(self, rows, table):
        """Learn from rows (n_rows, n_features) and a table (n_rows, n_choices) with NaN."""
        row, choice = np.nonzero(~np.isnan(table))
        if len(row) > _MOST_CELLS:
            some = np.random.default_rng(0).choice(len(row), _MOST_CELLS, replace=False)
            row, choice = row[some], choice[some]
        values, n_choices = table[row, choice], table.shape[1]
        known = np.bincount(choice, minlength=n_choices)
        # That of all cells where a choice was never made.
        self.mean = np.full(n_choices, values.mean())
        total = np.bincount(choice, values, n_choices)
        np.divide(total, known, out=self.mean, where=known > 0)
        self.unit = np.where(self.ratio & (self.mean > 0), self.mean, 1.0)
        leaf = int(np.clip(len(row) // 200, 3, 50))
        self.forest = ExtraTreesRegressor(
            _N_TREES, min_samples_leaf=leaf, max_features=0.5, random_state=0
        )
        target = (values - self.mean[choice]) / self.unit[choice]
        self.forest.fit(_beside(rows[row], np.eye(n_choices)[choice]), target)
        return self

    def predict(self, rows):
        """Estimates of all choices, of shape (n_rows, n_choices)."""
        n, k = rows.shape[0], len(self.mean)
        cells = _beside(rows[np.repeat(np.arange(n), k)], np.tile(np.eye(k), (n, 1)))
        found = self.mean + self.unit * self.forest.predict(cells).reshape(n, k)
        return np.maximum(found, 0.0) if self.ratio else found


def _beside(rows, columns):
    """Rows with more columns, sparse where the rows are."""
    parts = [rows, columns]
    return sparse.hstack(parts, format="csr") if sparse.issparse(rows) else np.hstack(parts)


def estimate_cells(rows, table, folds, *, ratio=False):
    """Estimates of all cells of a table, each row's from the other folds.

    Parameters
    ----------
    rows : {ndarray, csr matrix} of shape (n_rows, n_features)
    table : ndarray of shape (n_rows, n_choices)
        NaN where a value is not known.
    folds : list of (ndarray of int, ndarray of int)
    ratio : bool, default=False
        As in `CellForest`.

    Returns
    -------
    ndarray of shape (n_rows, n_choices)
    """
    found = np.empty(table.shape)
    for train, test in folds:
        found[test] = CellForest(ratio).fit(rows[train], table[train]).predict(rows[test])
    return found


class KnownCellsRegressor(RegressorMixin, BaseEstimator):
    """Any multi-output regressor on a table in which most cells may be NaN: not known.

    Unknown cells are filled with what a `CellForest` makes of the others, each row's without
    it; known ones stay as they are.

    Parameters
    ----------
    estimator : multi-output regressor or None
        None: the forest itself is the estimate.
    ratio : bool, default=False
        As in `CellForest`.
    """

    def __init__(self, estimator=None, ratio=False):
        self.estimator = estimator
        self.ratio = ratio

    def fit(self, X, y, **fit_params):
        """Fit on rows and a table (n_rows, n_choices) with NaN."""
        table = y.reshape(len(y), -1)
        self.encoder_ = None
        if needs_encoding(X):
            self.encoder_ = FrameEncoder()
            rows = self.encoder_.fit_transform(X)
        else:
            rows = as_numbers(X)
        self.estimator_ = None
        if self.estimator is None:
            self.forest_ = CellForest(self.ratio).fit(rows, table)
            return self
        filled = table
        if np.isnan(table).any():
            inner = folds_of_log(len(table), 3)
            filled = np.where(np.isnan(table), estimate_cells(rows, table, inner), table)
        target = filled[:, 0] if filled.shape[1] == 1 else filled
        self.estimator_ = clone(self.estimator).fit(X, target, **fit_params)
        return self

    def predict(self, X):
        """Estimates of all choices, of shape (n_rows, n_choices)."""
        if self.estimator_ is not None:
            return self.estimator_.predict(X)
        return self.forest_.predict(self._rows(X))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _rows(self, X):
        return as_numbers(X) if self.encoder_ is None else self.encoder_.transform(X)


def effective_size(weight):
    """``(sum w)^2 / sum w^2``: rows of equal weight that say as much."""
    squares = float(weight @ weight)
    return float(weight.sum()) ** 2 / squares if squares > 0 else 0.0


def never_matched(needed, matched, made, n_rows):
    """Whether a log lacks a choice where a policy makes it, beyond what chance explains.

    Parameters
    ----------
    needed : float
        Rows for which the policy makes the choice.
    matched : int
        Those of them on which the log made it.
    made : int
        Rows on which the log made it at all.
    n_rows : int

    Returns
    -------
    bool
    """
    if made == 0:
        return needed >= max(_LEAST_SHARE * n_rows, _LEAST_ROWS)
    # Of a log that made it anywhere alike as many would be expected: e^-7 is one in a thousand.
    return matched < 0.5 and needed * made / n_rows > _EXPECTED


def read_choice(choice, names, n_rows):
    """Positions of logged choices among names; what is none of them is added behind.

    Parameters
    ----------
    choice : array-like of shape (n_rows,)
        Names, or numbers of columns: positions among the names.
    names : list of str
    n_rows : int

    Returns
    -------
    positions : ndarray of shape (n_rows,), dtype=int64
    names : list of str
        With those that were added.
    """
    found = np.asarray(choice)
    if found.shape != (n_rows,):
        raise ValueError(
            f"choice must name one choice for each of the {n_rows} rows, got shape {found.shape}."
        )
    if found.dtype.kind in "iu":
        if found.min() < 0:
            raise ValueError(f"choice must have numbers from 0 up, got {int(found.min())!r}.")
        if found.max() >= max(len(names), n_rows):
            raise ValueError(
                f"choice has the column number {int(found.max())!r}, but there are not as many "
                "choices nor rows. Give names, or the numbers of columns."
            )
        added = [f"choice{k}" for k in range(len(names), int(found.max()) + 1)]
        return found.astype(np.int64), [*names, *added]
    if found.dtype.kind not in "OUST" or not all(isinstance(name, str) for name in found.tolist()):
        raise ValueError(
            "choice must be names of choices or whole numbers of columns, got an array of "
            f"{found.dtype}."
        )
    labels, code = np.unique(found.astype(str), return_inverse=True)
    names = [*names, *(label for label in labels.tolist() if label not in names)]
    return np.array([names.index(label) for label in labels.tolist()])[code], names


def read_propensity(propensity, n_rows):
    """Probabilities of the choices made, checked."""
    found = check_numbers(propensity, "propensity", shape=(n_rows,), high=1.0)
    if not (found > 0).all():
        raise ValueError(f"propensity must have numbers above 0, got {float(found.min())!r}.")
    return found


def read_values(values, name, n_rows, *, least=-np.inf, allow_nan=False):
    """One finite number per row, or NaN where it is not known; not NaN in every row."""
    found = check_numbers(values, name, shape=(n_rows,), low=least, allow_nan=allow_nan)
    if np.isnan(found).all():
        raise ValueError(f"{name} must have a number for some row, and all are NaN.")
    return found
