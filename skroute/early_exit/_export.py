"""The optimised ensemble as plain arrays, and how to evaluate them without its library."""

import json
import os
from collections.abc import Mapping
from reprlib import repr as short_repr

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skroute.early_exit._exit_thresholds import ExitThresholds
from skroute.early_exit._learning import shares_of
from skroute.forests._forest import (
    CATEGORICAL,
    NODE,
    ZERO_MISSING,
    Forest,
    Trees,
    member_scores_reference,
)
from skroute.forests._rows import cast_numbers
from skroute.utils._compat import validate_params

__all__ = ["evaluate_exported", "export_ensemble", "load_exported"]

FORMAT = "skroute-early-exit"
VERSION = 1

_ARRAYS = tuple(name for name in Trees._fields if name not in ("nodes", "special"))
_NUMBERS = ("offset", "beta", "link", "slope", "n_features", "dtype")
# What files of the first release may lack.
_MORE = ("shift", "finite", "cast")
_NEEDED = (*_ARRAYS, *_NUMBERS, *(NODE.names or ()), "lo", "hi", "classes")


@validate_params({"path": [str, os.PathLike]}, prefer_skip_nested_validation=True)
def export_ensemble(estimator, path):
    """Write a fitted forest ensemble with its order and thresholds as plain arrays.

    Parameters
    ----------
    estimator : QWYCEnsemble
        Fitted, with trees as members, and another `stopping` than ``"fan"``.

    path : str or path-like
        File to write: ``.npz`` (compressed arrays) or ``.json`` (text, four times as
        large; numbers round-trip exactly).

    Raises
    ------
    ValueError
        If it is no QWYCEnsemble, the members are not trees, the labels are neither numbers nor
        strings, the source library encodes categories by itself, or the ending is another one.

    See Also
    --------
    PortableEnsemble : Reads the file and answers by the compiled walk.
    load_exported : Read the file.
    evaluate_exported : Predict from it with numpy alone.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skroute.early_exit import QWYCEnsemble, export_ensemble
    >>> X, y = make_classification(2000, class_sep=2.0, random_state=0)
    >>> forest = RandomForestClassifier(30, max_depth=4, random_state=0)
    >>> quick = QWYCEnsemble(forest, alpha=0.02, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_ensemble(quick, Path(folder) / "quick.json")

    :func:`evaluate_exported` shows how the file is read and used.
    """
    if not hasattr(estimator, "stopping"):
        raise ValueError(
            "estimator must be a QWYCEnsemble, whose order and thresholds the file holds, got "
            f"{type(estimator).__name__}. Others (FastForest, QWYCRegressor, QWYCRanker) are "
            "pickled, or made anew from the library's model."
        )
    check_is_fitted(estimator)
    forest = getattr(estimator._engine, "forest", None)
    if forest is None or estimator.stopping == "fan":
        raise ValueError(
            "Only trees with stopping='thresholds' and without a pipeline before them can be "
            f"exported; the members of this ensemble are {type(estimator._engine).__name__!r}, "
            f"stopping={estimator.stopping!r}."
        )
    if forest.categories:
        raise ValueError(
            "This ensemble encodes categories of its own before it reads them, which plain "
            "arrays cannot hold; train it on encoded columns to export it."
        )
    content = {name: getattr(forest.trees, name) for name in _ARRAYS}
    content |= {name: getattr(forest, name) for name in (*_NUMBERS, *_MORE)}
    for name in NODE.names:
        content[name] = np.ascontiguousarray(forest.trees.nodes[name])
    lo, hi = estimator.thresholds_.T
    # Labels of strings may be objects, which only a pickle holds.
    classes = np.asarray(estimator.classes_.tolist())
    content |= {"lo": lo, "hi": hi, "order": estimator.order_, "classes": classes}
    # A share for each class in their order, or one number.
    content |= {"format": FORMAT, "version": VERSION}
    content["alpha"] = shares_of(estimator.alpha, estimator.classes_)
    path = os.fspath(path)
    if path.endswith(".npz"):
        np.savez_compressed(path, **content)
    elif path.endswith(".json"):
        plain = {
            key: _plain(value) if isinstance(value, np.ndarray) else value
            for key, value in content.items()
        }
        with open(path, "w", encoding="utf-8") as file:
            json.dump(plain, file, allow_nan=False)
    else:
        raise ValueError(f"path must end in '.npz' or '.json', got {path!r}.")


def _plain(values):
    """Lists in which infinity, which JSON has no number for, is a string."""
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return values.tolist()
    plain = np.where(
        np.isinf(values), np.where(values > 0, "Infinity", "-Infinity"), values.astype(object)
    )
    return plain.tolist()


@validate_params({"path": [str, os.PathLike]}, prefer_skip_nested_validation=True)
def load_exported(path):
    """Read what :func:`export_ensemble` wrote.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    dict
        Arrays and numbers: the nodes (``threshold``, ``feature``, ``child``), ``values``
        of the leaves, the trees in order of evaluation (``roots``, ``member_start``,
        ``outputs``), the thresholds ``lo`` and ``hi`` of each position, ``classes``. In the
        JSON file an infinite number is the string ``"Infinity"`` or ``"-Infinity"``.

    Raises
    ------
    ValueError
        If the file is of another format or version, or its arrays are damaged: a walk
        through them would leave them, or not end.

    Examples
    --------
    >>> from skroute.early_exit import load_exported
    >>> exported = load_exported("quick.json")  # doctest: +SKIP
    """
    path = os.fspath(path)
    if path.endswith(".json"):
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        kinds = {
            "feature": np.int32,
            "child": np.int32,
            "cat_words": np.uint32,
            "classes": None,
            "threshold": np.float64,
            "values": np.float64,
            "offset": np.float64,
            "alpha": np.float64,
            "lo": np.float64,
            "hi": np.float64,
        }
        content = {
            key: _array(key, value, kinds.get(key, np.int32)) if isinstance(value, list) else value
            for key, value in content.items()
        }
    else:
        try:
            with np.load(path, allow_pickle=False) as file:
                content = {
                    key: value.item() if value.ndim == 0 else value for key, value in file.items()
                }
        except ValueError as error:
            raise ValueError(
                f"path={path!r} is not an exported ensemble: it holds no plain arrays."
            ) from error
    if content.get("format") != FORMAT or content.get("version") != VERSION:
        raise ValueError(
            f"{path!r} is not an exported early-exit ensemble of version {VERSION}: format "
            f"{short_repr(content.get('format'))}, version {short_repr(content.get('version'))}."
        )
    forest_of(content)
    return content


def _array(name, values, dtype):
    """An array of a list in which infinity is a string, and nothing else is."""
    if dtype is np.float64:
        cells = np.array(values, dtype=object).ravel().tolist()
        texts = {cell for cell in cells if isinstance(cell, str)}
        if texts - {"Infinity", "-Infinity"}:
            raise ValueError(
                f"The entry {name!r} of an exported ensemble has texts that are neither "
                "'Infinity' nor '-Infinity'."
            )
    return np.asarray(values, dtype=dtype)


def forest_of(exported):
    """The forest, checked, of what a file holds."""
    if not isinstance(exported, Mapping):
        raise TypeError(
            "exported must be a dict, as load_exported returns, got "
            f"{type(exported).__name__}. PortableEnsemble.load(path) reads a file."
        )
    if missing := [name for name in _NEEDED if name not in exported]:
        raise ValueError(
            f"exported has no entry for {missing!r}; it must be what load_exported returns."
        )
    for name in ("lo", "hi", "offset", *NODE.names):
        if not isinstance(exported[name], np.ndarray) or exported[name].ndim != 1:
            raise ValueError(f"The entry {name!r} of an exported ensemble must be an array.")
    for name in ("lo", "hi", "offset", "threshold", "values", "beta", "slope"):
        if np.isnan(np.asarray(exported[name], dtype=np.float64)).any():
            raise ValueError(f"The entry {name!r} of an exported ensemble must not be NaN.")
    if len({len(exported[name]) for name in NODE.names}) > 1:
        raise ValueError("The arrays of the nodes of an exported ensemble differ in length.")
    nodes = np.empty(len(exported["child"]), dtype=NODE)
    for name in NODE.names:
        nodes[name] = exported[name]
    special = bool(np.any(nodes["feature"] & (CATEGORICAL | ZERO_MISSING)))
    trees = Trees(nodes, *(exported[name] for name in _ARRAYS), special)
    more = {name: exported[name] for name in _MORE if name in exported}
    if more.get("finite", True) not in (True, False, "allow-nan"):
        raise ValueError("The entry 'finite' of an exported ensemble must be a truth value.")
    if not np.isfinite(more.get("shift", 0.0)):
        raise ValueError("The entry 'shift' of an exported ensemble must be a number.")
    if more.get("cast", "") not in ("", "float32"):
        raise ValueError("The entry 'cast' of an exported ensemble must be '' or 'float32'.")
    forest = Forest(trees, **{name: exported[name] for name in _NUMBERS}, **more)
    trees.checked(forest.n_features, forest.n_outputs)
    ExitThresholds.per_position(exported["lo"], exported["hi"]).checked(forest.n_members)
    if len(exported["classes"]) not in ((1, 2) if forest.n_outputs == 1 else (forest.n_outputs,)):
        raise ValueError("The classes of an exported ensemble are not as many as its scores.")
    return forest


@validate_params({"exported": [dict]}, prefer_skip_nested_validation=True)
def evaluate_exported(exported, X):
    """Predict from an exported ensemble with numpy alone.

    A reference for other languages rather than a fast path, which decides ties by its own
    sums: every tree is evaluated, and
    rows take the answer of the first position whose threshold they cross.

    Parameters
    ----------
    exported : dict
        From :func:`load_exported`.

    X : array-like of shape (n_samples, n_features)
        Numbers as the source library reads them.

    Returns
    -------
    y_pred : ndarray of shape (n_samples,)
        Labels.

    members : ndarray of shape (n_samples,), dtype=int64
        Members that an early-exit evaluation needs.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skroute.early_exit import (
    ...     QWYCEnsemble,
    ...     evaluate_exported,
    ...     export_ensemble,
    ...     load_exported,
    ... )
    >>> X, y = make_classification(500, class_sep=2.0, random_state=0)
    >>> forest = RandomForestClassifier(10, max_depth=4, random_state=0)
    >>> quick = QWYCEnsemble(forest, alpha=0.05, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "quick.json"
    ...     export_ensemble(quick, path)
    ...     exported = load_exported(path)
    >>> y_pred, members = evaluate_exported(exported, X)
    >>> bool((y_pred == quick.predict(X)).all() and (members == quick.route(X)).all())
    True
    """
    forest = forest_of(exported)
    X = np.ascontiguousarray(cast_numbers(forest, np.asarray(X)), dtype=forest.dtype)
    if X.ndim != 2 or X.shape[1] != forest.n_features or not len(X):
        raise ValueError(
            f"X must be a table of at least one row and {forest.n_features} columns, those that "
            f"the ensemble was fitted on, got shape {X.shape}."
        )
    total = forest.offset + np.cumsum(member_scores_reference(forest, X), axis=0)
    if forest.n_outputs == 1:
        running, positive = total[:, :, 0], total[-1, :, 0] > forest.beta
        answers = np.where(positive, len(exported["classes"]) - 1, 0)
    else:
        ranked = np.sort(total, axis=2)
        running = ranked[:, :, -1] - ranked[:, :, -2]
    up = running > exported["hi"][:, None]
    leave = up | (running < exported["lo"][:, None])
    leave[-1] = True
    at, rows = np.argmax(leave, axis=0), np.arange(len(X))
    if forest.n_outputs == 1:
        early = at < len(leave) - 1
        answers = np.where(early, np.where(up[at, rows], len(exported["classes"]) - 1, 0), answers)
    else:
        answers = np.argmax(total[at, rows], axis=1)
    return exported["classes"][answers], at + 1
