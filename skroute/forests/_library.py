"""What a library answers by itself, and the comparison of what is read of its ensembles with it."""

import sys
import warnings

import numpy as np
from sklearn.utils import check_random_state

from skroute.forests._trees import CATEGORICAL, FEATURE_MASK
from skroute.utils._compat import _safe_indexing, num_samples
from skroute.utils._frames import is_sparse_type

# Rows that are compared, in each of the ways in which they are varied.
_N_PROBES = 100
# What replaces some of their cells.
_VALUES = {
    "missing values": (np.nan,),
    "extreme values": (0.0, -0.0, 1e-40, -1e-36, 1e-30, 1e30, -1e30, 3e38, -3e38),
    "codes that were not there": (
        -1.0,
        -0.5,
        0.5,
        31.0,
        32.0,
        300.0,
        1e6,
        2.0**31,
        -(2.0**31),
    ),
    "infinite values": (np.inf, -np.inf),
    "values beyond single precision": (1e300, -1e300),
    "categories that were not there": ("never seen",),
}


# How a library is asked for the sums of the leaves.
_RAW = {
    "lightgbm": {"raw_score": True},
    "xgboost": {"output_margin": True},
    "catboost": {"prediction_type": "RawFormulaVal"},
}


def _raw_options(model):
    """What `predict` of a model takes to answer with the sums; None where it cannot."""
    for cls in type(model).__mro__:
        # This one answers with sums, and has no parameter for it.
        if cls.__name__ == "CatBoostRanker":
            return {}
        if (options := _RAW.get(cls.__module__.split(".")[0])) is not None:
            return options
    return None


def _is_xgboost_booster(model):
    """Whether a model is a raw booster of XGBoost, which takes rows in a class of its own."""
    return _raw_options(model) == _RAW["xgboost"] and not hasattr(model, "get_booster")


def own_predict(model, X, raw=False):
    """What ``predict`` of a model answers, or with `raw` the sums of its leaves.

    A single column, which CatBoost has of labels, is flat.
    """
    options = _raw_options(model) if raw else {}
    if _is_xgboost_booster(model):
        X = sys.modules["xgboost"].DMatrix(X, enable_categorical=True)
        options = options | {"validate_features": False}
    found = np.asarray(model.predict(X, **options))
    return found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found


def own_sums(model, X):
    """Return the library's own sums of the leaves, or None if it does not return sums."""
    if _raw_options(model) is not None:
        return own_predict(model, X, raw=True)
    return model.decision_function(X) if hasattr(model, "decision_function") else None


def own_labels(model, X, classes):
    """Labels by the library itself; `classes` are those of a booster, which does not know them."""
    if hasattr(model, "classes_"):
        return own_predict(model, X)
    proba = own_proba(model, X)
    # Where there are none, the objective answers with positions.
    at = own_predict(model, X) if proba is None else np.argmax(proba, axis=1)
    return classes[at.astype(np.intp)]


def own_proba(model, X):
    """Probabilities by the library itself; None where it does not tell them."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X))
    if hasattr(model, "classes_"):
        return None
    proba = own_predict(model, X)
    if (
        proba.ndim == 1
        and _is_xgboost_booster(model)
        and own_predict(model, X, raw=True).ndim == 2
    ):
        # The objective answers with positions.
        return None
    return np.column_stack([1 - proba, proba]) if proba.ndim == 1 else proba


def rows_at_thresholds(forest, n=200):
    """Rows at the thresholds of a forest and one step beside them; None where they are text."""
    rng, nodes = check_random_state(0), forest.trees.nodes
    inner = nodes[nodes["child"] != np.arange(len(nodes))]
    dtype = forest.read_rule.dtype
    X = rng.normal(size=(n, forest.n_features)).astype(dtype)
    for feature in np.unique(inner["feature"] & FEATURE_MASK):
        split = inner[(inner["feature"] & FEATURE_MASK) == feature]
        if (split["feature"] & CATEGORICAL).any():
            X[:, feature] = rng.randint(0, 70, n)
        else:
            with np.errstate(over="ignore"):
                at = rng.choice(split["threshold"], n).astype(dtype)
                to = rng.choice(np.array([-np.inf, np.inf]), n).astype(dtype)
                at = np.where(rng.rand(n) < 0.5, at, np.nextafter(at, to))
            X[:, feature] = np.where(np.isfinite(at), at, X[:, feature])
    for feature, values in forest.read_rule.columns.categories_of_arrays.items():
        if np.asarray(values).dtype.kind not in "fiu":
            return None
        X[:, feature] = rng.choice(np.asarray(values), n)
    if forest.read_rule.finite is not True:
        X[rng.rand(*X.shape) < 0.05] = np.nan
    return X


def varied_rows(X, unseen=True):
    """Return test rows by kind, plain and with changed cells, to compare a reader with its library.

    Cells are changed in arrays of floats and in frames of pandas. If `unseen`, some cells of text
    get a category that no row has.
    """
    X = X.tocsr() if hasattr(X, "tocsr") else X
    n = num_samples(X)
    rows = _safe_indexing(
        X, np.unique(np.linspace(0, n - 1, min(n, _N_PROBES)).astype(int))
    )
    probes = {"rows as they are": rows}
    if isinstance(rows, np.ndarray) and rows.dtype.kind == "f" and rows.ndim == 2:
        columns = {j: rows[:, j] for j in range(rows.shape[1])}
    elif type(rows).__module__.startswith("pandas") and hasattr(rows, "dtypes"):
        kinds = [getattr(kind, "kind", "O") for kind in rows.dtypes]
        columns = {j: rows.iloc[:, j] for j, kind in enumerate(kinds) if kind in "fO"}
    else:
        return probes
    unseen = unseen and any(column.dtype.kind == "O" for column in columns.values())
    for name, values in _VALUES.items():
        if unseen or not isinstance(values[0], str):
            probes[name] = _varied(rows, columns, values)
    return probes


@np.errstate(over="ignore")
def _varied(rows, columns, values):
    """Every third cell of the columns that can hold them replaced by values."""
    rows = rows.copy()
    for j, column in columns.items():
        at = np.arange(j % 3, len(column), 3)
        new = [values[k % len(values)] for k in range(len(at))]
        if not hasattr(rows, "iloc"):
            rows[at, j] = new
            continue
        text, missing = column.dtype.kind == "O", values[0] != values[0]
        # Numbers in columns of numbers, texts in others, missing values in both.
        if text == isinstance(values[0], str) or missing:
            if is_sparse_type(column.dtype):
                changed = column.sparse.to_dense()
            else:
                changed = column.astype(object) if text else column.copy()
            changed.iloc[at] = new
            new_category = text and not missing and hasattr(column, "cat")
            rows.isetitem(
                j, changed.astype("category" if new_category else column.dtype)
            )
    return rows


def compare(name, probes, own, ours, rtol, atol):
    """Raise where an ensemble, as it is read, answers rows otherwise than its library does.

    Parameters
    ----------
    name : str
        Of the ensemble.

    probes : dict from str to indexable
        Rows by what is in them, first those that the library must answer.

    own, ours : callable
        Of rows, what the library answers and what is read of it: dicts of arrays, "labels" and
        "sums", which must be equal, and others, which may differ by `rtol` and `atol`. Of the
        second also "compared", the rows that can be.

    rtol, atol : float
    """
    # Those that are not varied: the library answers them, or nothing would be compared.
    given = next(iter(probes))
    for kind, rows in probes.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = own(rows)
            except Exception as error:
                if kind == given:
                    error.add_note(
                        f"This {name} was asked for its own answers to compare them."
                    )
                    raise
                # It refuses such rows, to which there is no wrong answer.
                continue
            found = ours(rows)
        wrong, differ = [], np.zeros(num_samples(rows), dtype=bool)
        compared = found.get("compared", True)
        for what, values in expected.items():
            if values is None:
                continue
            read, values = found[what], np.reshape(values, np.shape(found[what]))
            if what in ("labels", "sums"):
                same = (read == values) | ((read != read) & (values != values))
            else:
                same = np.isclose(read, values, rtol=rtol, atol=atol, equal_nan=True)
            other = ~same.reshape(len(same), -1).all(axis=1) & compared
            wrong += [what] if other.any() else []
            differ |= other
        if wrong:
            raise ValueError(
                f"This {name} answers {differ.sum()} of {len(differ)} rows ({kind}) otherwise than "
                f"its members do as they are read here ({', '.join(wrong)}), so that other answers "
                "would be given. One of its options is not supported; please report it with the "
                "parameters of the ensemble."
            )
