"""What a log of one answer per request says: propensities, estimates, pseudo-outcomes."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.stats import sem
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skroute.quality._frame_encoder import FrameEncoder
from skroute.utils._frames import is_frame, needs_encoding, table_of_numbers
from skroute.utils._tensors import on_host
from skroute.utils._typing import NDArray
from skroute.utils._validation import check_numbers, relative_weights

# Estimated propensities are mixed with this share of the choices' shares in the log.
_FLOOR = 0.02
_N_TREES = 40
# Room for the rounding of a mean, as a share of the largest number.
_ROUNDING = 1e-9
# A choice that was never made may be needed for fewer rows than these.
_LEAST_ROWS, _LEAST_SHARE = 10, 0.02
_EXPECTED = 7.0
# Rows of equal weight that an estimate needs at least.
_LEAST_SIZE = 10
# The weights of the rows on which log and policy agree have the mean 1. Where the mean is smaller
# by more than this share, and by more than this many standard errors, there is no overlap.
_LACKS, _ERRORS = 0.1, 5.0
# Of a table with more known cells as many are drawn.
_MOST_CELLS = 200_000


def as_numbers(X):
    """Rows of anything as a table that trees and linear models read."""
    if needs_encoding(X):
        # The outcomes are not read: one encoder serves all folds.
        return FrameEncoder().fit_transform(X)
    if sparse.issparse(X):
        return X.tocsr()
    if is_frame(X):
        return table_of_numbers(X)
    rows = np.asarray(on_host(X), dtype=np.float64)
    return rows.reshape(len(rows), -1)


def folds_of_log(n_rows, cv=5):
    """Shuffled folds with a fixed seed; fewer where rows are few."""
    if n_rows < 2:
        raise ValueError(
            f"X must have at least two rows to learn from some of them, got {n_rows}."
        )
    return list(
        KFold(min(cv, n_rows), shuffle=True, random_state=0).split(np.empty(n_rows))
    )


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
        StandardScaler(with_mean=not sparse.issparse(rows)),
        LogisticRegression(max_iter=300),
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
            if len(np.unique(choice[train])) == 1 or (
                model is linear and np.isnan(rows.sum())
            ):
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

    def fit(self, rows, table, row_weight=None):
        """Learn from rows (n_rows, n_features) and a table (n_rows, n_choices) with NaN.

        `row_weight` are the weights of the rows; None weights all alike.
        """
        row, choice = np.nonzero(~np.isnan(table))
        if len(row) > _MOST_CELLS:
            some = np.random.default_rng(0).choice(len(row), _MOST_CELLS, replace=False)
            row, choice = row[some], choice[some]
        values, n_choices = table[row, choice], table.shape[1]
        weight = np.ones(len(row)) if row_weight is None else row_weight[row]
        known = np.bincount(choice, weight, n_choices)
        # That of all cells where a choice was never made.
        self.mean = np.full(n_choices, np.average(values, weights=weight))
        total = np.bincount(choice, weight * values, n_choices)
        np.divide(total, known, out=self.mean, where=known > 0)
        self.unit = np.where(self.ratio & (self.mean > 0), self.mean, 1.0)
        leaf = int(np.clip(len(row) // 200, 3, 50))
        self.forest = ExtraTreesRegressor(
            _N_TREES, min_samples_leaf=leaf, max_features=0.5, random_state=0
        )
        target = (values - self.mean[choice]) / self.unit[choice]
        cells = _beside(rows[row], np.eye(n_choices)[choice])
        self.forest.fit(
            cells, target, sample_weight=None if row_weight is None else weight
        )
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
    return (
        sparse.hstack(parts, format="csr")
        if sparse.issparse(rows)
        else np.hstack(parts)
    )


def estimate_cells(rows, table, folds, *, ratio=False, row_weight=None):
    """Estimates of all cells of a table, each row's from the other folds.

    Parameters
    ----------
    rows : {ndarray, csr matrix} of shape (n_rows, n_features)
    table : ndarray of shape (n_rows, n_choices)
        NaN where a value is not known.
    folds : list of (ndarray of int, ndarray of int)
    ratio : bool, default=False
        As in `CellForest`.
    row_weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    ndarray of shape (n_rows, n_choices)
    """
    found = np.empty(table.shape)
    for train, test in folds:
        weights = {} if row_weight is None else {"row_weight": row_weight[train]}
        forest = CellForest(ratio).fit(rows[train], table[train], **weights)
        found[test] = forest.predict(rows[test])
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

    def fit(self, X, y, sample_weight=None, **fit_params):
        """Fit on rows and a table (n_rows, n_choices) with NaN."""
        table = y.reshape(len(y), -1)
        self.encoder_ = None
        if needs_encoding(X):
            self.encoder_ = FrameEncoder()
            rows = self.encoder_.fit_transform(X)
        else:
            rows = as_numbers(X)
        row_weight = None
        if sample_weight is not None:
            # The estimator gets the weights as they are given.
            fit_params = fit_params | {"sample_weight": sample_weight}
            row_weight = relative_weights(np.asarray(sample_weight, dtype=np.float64))
        self.estimator_ = None
        if self.estimator is None:
            self.forest_ = CellForest(self.ratio).fit(rows, table, row_weight)
            return self
        filled = table
        if np.isnan(table).any():
            inner = folds_of_log(len(table), 3)
            estimates = estimate_cells(rows, table, inner, row_weight=row_weight)
            filled = np.where(np.isnan(table), estimates, table)
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
    """Return True if the log lacks a choice on the rows where a policy makes it, beyond chance.

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


class Agreement(NamedTuple):
    """Where a log made the choices that a policy makes.

    Attributes
    ----------
    needed : ndarray of shape (n_choices,), dtype=float64
        Number of rows for which the policy makes each choice.

    matched : ndarray of shape (n_choices,), dtype=float64
        Number of these rows on which the log made the same choice.

    made : ndarray of shape (n_choices,), dtype=int64
        Number of rows on which the log made each choice at all.

    weight : ndarray of shape (n_rows,), dtype=float64
        One over the propensity where log and policy agree, else 0.
    """

    needed: NDArray[np.float64]
    matched: NDArray[np.float64]
    made: NDArray[np.int64]
    weight: NDArray[np.float64]


def lack_of_overlap(agreement, names):
    """Return why a log cannot say how good a policy is, or None if it can.

    This is the one test of overlap: fits of logs and off-policy curves make it.

    Parameters
    ----------
    agreement : Agreement
    names : list of str
        The choices.

    Returns
    -------
    str or None
        The end of a sentence that begins with the policy's budget.
    """
    weight = agreement.weight
    n_rows = len(weight)
    for name, needed, matched, made in zip(
        names, agreement.needed, agreement.matched, agreement.made
    ):
        if never_matched(needed, matched, made, n_rows):
            return (
                f"the policy sends {needed / n_rows:.1%} of the rows to {name!r}, and on none of "
                "them has the log made this choice: it cannot say what that is worth."
            )
    missing_share = 1 - weight.mean()
    if missing_share > max(_LACKS, _ERRORS * sem(weight)):
        return (
            f"the rows on which log and policy agree stand for {weight.mean():.1%} of all rows by "
            "their propensities: the log never made the policy's choice on the others (or "
            "propensities are too large), and cannot say what it is worth there."
        )
    size = effective_size(weight)
    n_agreed = np.count_nonzero(weight)
    if n_agreed < (1 - _LACKS) * n_rows:
        # A row stands for itself and for rows on which the log made another choice. A rule with
        # few exceptions has many rows of the first kind and few that stand for any other row.
        size = min(size, effective_size(np.maximum(weight - 1, 0.0)))
    if size < _LEAST_SIZE:
        return (
            f"the log agrees with the policy on {n_agreed} of {n_rows} rows, which stand for the "
            f"others with an effective sample size of {size:.1f}, below {_LEAST_SIZE}: too few to "
            "say what the policy is worth."
        )
    return None


def beyond_range(estimates, known, what):
    """Return a message if means of quality are outside of the qualities in a log, else None.

    Parameters
    ----------
    estimates : float or ndarray of float
        Estimates of means, NaN where there is none.
    known : ndarray of float
        The qualities in the log, NaN where they are not known.
    what : str
        Name of the estimates.

    Returns
    -------
    str or None
    """
    low = np.nanmin(known)
    high = np.nanmax(known)
    room = _ROUNDING * max(abs(low), abs(high))
    found = np.ravel(estimates)
    outside = found[(found < low - room) | (found > high + room)]
    if not len(outside):
        return None
    return (
        f"{what} of {outside[0]:.4g} is outside of the qualities in the log, {low:.4g} to "
        f"{high:.4g}: a few rows with large weights decide it. Do not rely on it. Log more "
        "requests at random, with their propensities."
    )


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
            raise ValueError(
                f"choice must have numbers from 0 up, got {int(found.min())!r}."
            )
        if found.max() >= max(len(names), n_rows):
            raise ValueError(
                f"choice has the column number {int(found.max())!r}, but there are not as many "
                "choices nor rows. Give names, or the numbers of columns."
            )
        added = [f"choice{k}" for k in range(len(names), int(found.max()) + 1)]
        return found.astype(np.int64), [*names, *added]
    if found.dtype.kind not in "OUST" or not all(
        isinstance(name, str) for name in found.tolist()
    ):
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
        raise ValueError(
            f"propensity must have numbers above 0, got {float(found.min())!r}."
        )
    return found


def read_values(values, name, n_rows, *, least=-np.inf, allow_nan=False):
    """One finite number per row, or NaN where it is not known; not NaN in every row."""
    found = check_numbers(values, name, shape=(n_rows,), low=least, allow_nan=allow_nan)
    if np.isnan(found).all():
        raise ValueError(f"{name} must have a number for some row, and all are NaN.")
    return found
