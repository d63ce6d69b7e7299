"""Rows in any container get the answers of the library of the forest."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.tree import DecisionTreeClassifier

from skroute.early_exit import QWYCEnsemble
from skroute.forests import FastForest, leaf_sums, read_forest

lgb = pytest.importorskip("lightgbm")
xgb = pytest.importorskip("xgboost")
cat = pytest.importorskip("catboost")

MODELS = {
    "forest": RandomForestClassifier(6, max_depth=4, random_state=0),
    "extra trees": ExtraTreesClassifier(4, random_state=0),
    "bagging": BaggingClassifier(
        DecisionTreeClassifier(max_depth=3), 4, random_state=0
    ),
    "adaboost": AdaBoostClassifier(n_estimators=4, random_state=0),
    "gradient boosting": GradientBoostingClassifier(n_estimators=4, random_state=0),
    "histograms": HistGradientBoostingClassifier(max_iter=4),
    "lightgbm": lgb.LGBMClassifier(n_estimators=4, verbose=-1, n_jobs=1),
    "xgboost": xgb.XGBClassifier(n_estimators=4, n_jobs=1),
    "catboost": cat.CatBoostClassifier(
        iterations=4, verbose=0, thread_count=1, allow_writing_files=False
    ),
}
# Models that take missing values in a sparse frame.
READ_GAPS = ("forest", "extra trees", "lightgbm", "xgboost")


class ArrayInterface:
    """Rows that have an array interface, and nothing else that an array has."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.array, dtype)


class ArrayInterfaceWithShape(ArrayInterface):
    """Rows that also tell their shape, but cannot be indexed."""

    @property
    def shape(self):
        return self.array.shape

    def __len__(self):
        return len(self.array)


def sparse_matrices(X):
    """The rows, or some with explicit zeros, in all formats of scipy."""
    for form in "csr csc coo lil dok dia bsr".split():
        for kind in ("matrix", "array"):
            yield f"{form}_{kind}", getattr(sp, f"{form}_{kind}")(X)
    explicit = sp.csr_matrix(X)
    explicit.data[::7] = 0
    yield "explicit zeros", explicit
    yield (
        "explicit zeros of a diagonal",
        sp.dia_array(([[0.0, 1, 2, 0, 4]], [0]), shape=X.shape),
    )
    rows, columns = np.arange(len(X)), np.arange(len(X)) % X.shape[1]
    twice = np.append(rows, rows), np.append(columns, columns)
    yield "entries twice", sp.coo_array((np.ones(2 * len(X)), twice), shape=X.shape)


def sparse_frames(X):
    """The rows as frames of pandas of which all columns are sparse, or some."""
    frame = pd.DataFrame(X)
    yield "sparse frame", frame.astype(pd.SparseDtype(float, 0.0))
    yield (
        "sparse frame of NaN",
        frame.where(frame != 0).astype(pd.SparseDtype(float, np.nan)),
    )
    yield "sparse frame of whole numbers", frame.astype(pd.SparseDtype(int, 0))
    yield "sparse frame of booleans", (frame > 0).astype(pd.SparseDtype(bool, False))
    yield (
        "frame of a sparse matrix",
        pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(X)),
    )
    some = frame.copy()
    some[1] = pd.arrays.SparseArray(X[:, 1], fill_value=0.0)
    yield "some sparse columns", some


def arrays(X):
    """The rows as arrays, and as what becomes one."""
    yield "array interface", ArrayInterface(X)
    yield "array interface with a shape", ArrayInterfaceWithShape(X)
    yield "lists", X.tolist()
    yield "tuples", tuple(map(tuple, X))
    yield "series", [pd.Series(row) for row in X]
    yield "objects", X.astype(object)
    yield "columns first", np.asfortranarray(X)


def with_gaps(rows):
    """Some missing values in a sparse frame."""
    changed = rows.sparse.to_dense().astype(float)
    changed.iloc[::3, 0] = np.nan
    return changed.astype(pd.SparseDtype(float, 0.0))


@pytest.mark.parametrize("containers", [sparse_matrices, sparse_frames, arrays])
@pytest.mark.parametrize("kind", MODELS)
def test_rows_in_any_container(kind, containers):
    rng = np.random.default_rng(0)
    X = rng.integers(-2, 3, (90, 5)) * (rng.random((90, 5)) < 0.6).astype(float)
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    n_compared = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for position, (name, rows) in enumerate(containers(X)):
            # Some of the models see other containers in `fit` than afterwards.
            plain = (
                pd.DataFrame(X, columns=rows.columns) if hasattr(rows, "columns") else X
            )
            for trained in [rows, plain] if position % 3 == 0 else [rows]:
                try:
                    model = clone(MODELS[kind]).fit(trained, y)
                    expected = model.predict_proba(rows)
                except Exception:
                    # The library takes no such rows.
                    continue
                check(model, trained is rows, rows, expected, y, name)
                n_compared += 1
                if name == "sparse frame" and kind in READ_GAPS:
                    gaps = with_gaps(rows)
                    fast = FastForest.from_ensemble(model, rows)
                    np.testing.assert_allclose(
                        fast.predict_proba(gaps), model.predict_proba(gaps), rtol=1e-12
                    )
    # Histogram boosting takes no sparse rows.
    assert n_compared > 3 or kind == "histograms"


def check(model, is_same, rows, expected, y, name):
    """Compare all that is read of a model with its answers to some rows."""
    readers = [FastForest.from_ensemble(model), FastForest.from_ensemble(model, rows)]
    if is_same:
        readers.append(FastForest(clone(model)).fit(rows, y))
    for fast in readers:
        np.testing.assert_allclose(
            fast.predict_proba(rows), expected, rtol=1e-12, err_msg=name
        )
    early = QWYCEnsemble(FrozenEstimator(model), alpha=0, random_state=0).optimize(rows)
    np.testing.assert_allclose(
        early.predict_proba(rows), expected, rtol=1e-4, err_msg=name
    )
    forest, _ = read_forest(model)
    sums = leaf_sums(forest, rows)
    assert sums.shape == (len(y), forest.n_outputs), name
