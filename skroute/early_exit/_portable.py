"""Export of an optimised ensemble to a file of arrays, and answers from that file."""

import os
from collections.abc import Mapping
from reprlib import repr as short_repr
from typing import Self

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import check_is_fitted

from skroute.base import Routed
from skroute.early_exit._algorithms import checked
from skroute.early_exit._answers import probabilities, sided
from skroute.early_exit._engine import Engine
from skroute.early_exit._learning import shares_of
from skroute.early_exit._qwyc import QWYCEnsemble
from skroute.forests._columns import NumbersOnly
from skroute.forests._forest import Forest
from skroute.forests._rules import PartialRule, ReadRule
from skroute.forests._trees import NODE, Trees
from skroute.utils._compat import validate_params
from skroute.utils._typing import ArrayLike
from skroute.utils._validation import read_only

__all__ = ["PortableEnsemble", "export_ensemble"]

# Entry "format" of each exported file, which is compared when the file is read.
FORMAT = "skroute-early-exit"
# Version of the format of exported files. Files of other versions are refused.
VERSION = 1

# Names of a file's entries that are fields of `Trees`. Not among them are `nodes`,
# whose fields have an entry each, and `special`, which is computed from the nodes.
_ARRAYS = tuple(name for name in Trees._fields if name not in ("nodes", "special"))
# Names of a file's entries that are fields of `ReadRule`.
_OF_READING = ("dtype", "finite", "cast")
# Names of a file's entries that are fields of `PartialRule`.
_OF_PARTIAL_SUMS = ("link", "slope", "shift", "beta")
# Names of a file's entries that are fields of `NumbersOnly`, the rule of columns.
_OF_COLUMNS = ("reads_negative_codes",)
# Names of a file's entries that are arrays with one dimension.
_VECTORS = ("lo", "hi", "offset", *(NODE.names or ()))
# Names of a file's entries in which NaN is an error.
_NOT_NAN = ("lo", "hi", "offset", "threshold", "values", "beta", "slope", "shift")
# Allowed values of a file's entries, by name of the entry.
_ALLOWED = {
    "finite": (True, False, "allow-nan"),
    "cast": ("", "float32"),
    "reads_negative_codes": (True, False),
}
# Names of the entries that each file must have. Files of the first release of skroute
# lack other fields of the rules, which have defaults.
_NUMBERS = ("offset", "beta", "link", "slope", "n_features", "dtype")
_NEEDED = (*_ARRAYS, *_NUMBERS, *(NODE.names or ()), "lo", "hi", "classes")


@validate_params({"path": [str, os.PathLike]}, prefer_skip_nested_validation=True)
def export_ensemble(estimator, path):
    """Write a fitted forest ensemble with its order and thresholds as plain arrays.

    Parameters
    ----------
    estimator : QWYCEnsemble
        Fitted, with trees as members.

    path : str or path-like
        File to write, whose name ends in ``.npz``: compressed arrays.

    Raises
    ------
    ValueError
        If it is not a QWYCEnsemble, the members are not trees, the labels are neither
        numbers nor strings, the source library encodes categories by itself, or `path`
        has another ending.

    See Also
    --------
    PortableEnsemble : Reads the file and answers by the compiled walk.

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
    ...     export_ensemble(quick, Path(folder) / "quick.npz")
    """
    if not isinstance(estimator, QWYCEnsemble):
        raise ValueError(
            "estimator must be a QWYCEnsemble, whose order and thresholds the file "
            f"holds, got {type(estimator).__name__}. Others, such as FastForest, are "
            "pickled, or made anew from the library's model."
        )
    check_is_fitted(estimator)
    forest = estimator._engine.as_forest()
    if forest is None or estimator._transformers:
        evaluated_by = type(estimator._engine).__name__
        if estimator._transformers:
            evaluated_by = "a pipeline"
        raise ValueError(
            "Only trees without a pipeline before them can be exported; this ensemble "
            f"is evaluated by {evaluated_by!r}."
        )
    if forest.read_rule.columns.keeps_categories:
        raise ValueError(
            "This ensemble encodes categories of its own before it reads them, which "
            "plain arrays cannot hold; train it on encoded columns to export it."
        )
    path = os.fspath(path)
    if not path.endswith(".npz"):
        raise ValueError(f"path must end in '.npz', got {path!r}.")
    # `thresholds_` has shape (n_members, 2).
    lo, hi = estimator.thresholds_.T
    entries = {
        "format": FORMAT,
        "version": VERSION,
        "lo": lo,
        "hi": hi,
        "order": estimator.order_,
        # Labels of strings may be objects, which only a pickle can contain.
        "classes": np.asarray(estimator.classes_.tolist()),
        # An array of shares in the order of the classes, or one number.
        "alpha": shares_of(estimator.alpha, estimator.classes_),
    }
    np.savez_compressed(path, **_entries_of_forest(forest), **entries)


def _entries_of_forest(forest):
    """Return the entries of a file that describe a forest, by name."""
    entries = {"offset": forest.offset, "n_features": forest.n_features}
    for name in NODE.names:
        entries[name] = np.ascontiguousarray(forest.trees.nodes[name])
    for name in _ARRAYS:
        entries[name] = getattr(forest.trees, name)
    for name in _OF_READING:
        entries[name] = getattr(forest.read_rule, name)
    for name in _OF_COLUMNS:
        entries[name] = getattr(forest.read_rule.columns, name)
    for name in _OF_PARTIAL_SUMS:
        entries[name] = getattr(forest.partial_rule, name)
    return entries


def load_exported(path):
    """Return the arrays and numbers of a file of :func:`export_ensemble`, by name.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    dict from str to object

    Raises
    ------
    ValueError
        If the file is of another format or version, or damaged.
    """
    path = os.fspath(path)
    content = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            for name, value in file.items():
                # Numbers and strings were written as arrays without a dimension.
                content[name] = value.item() if value.ndim == 0 else value
    except ValueError as error:
        raise ValueError(
            f"path={path!r} is not an exported ensemble: it holds no plain arrays."
        ) from error
    if content.get("format") != FORMAT or content.get("version") != VERSION:
        raise ValueError(
            f"{path!r} is not an exported early-exit ensemble of version {VERSION}: "
            f"format {short_repr(content.get('format'))}, version "
            f"{short_repr(content.get('version'))}."
        )
    forest_of(content)
    return content


def forest_of(exported):
    """Check the entries of an exported file, and return the forest in them.

    Parameters
    ----------
    exported : dict
        From :func:`load_exported`.

    Returns
    -------
    Forest

    Raises
    ------
    TypeError
        If it is not a dict.

    ValueError
        If an entry is missing or damaged.
    """
    _check_entries(exported)
    nodes = np.empty(len(exported["child"]), dtype=NODE)
    for name in NODE.names:
        nodes[name] = exported[name]
    trees = Trees(nodes=nodes, **_fields(exported, _ARRAYS))
    for name, allowed in _ALLOWED.items():
        if name in exported and exported[name] not in allowed:
            raise ValueError(
                f"The entry {name!r} of an exported ensemble must be one of "
                f"{allowed!r}."
            )
    offset = exported["offset"]
    n_features = exported["n_features"]
    # Raises an error if a walk could leave the arrays.
    trees.check(n_features, len(offset))
    columns = NumbersOnly(**_fields(exported, _OF_COLUMNS))
    forest = Forest(
        trees.read_only(),
        read_only(offset),
        n_features,
        read_rule=ReadRule(columns=columns, **_fields(exported, _OF_READING)),
        partial_rule=PartialRule(**_fields(exported, _OF_PARTIAL_SUMS)),
    )
    # Raises an error if the thresholds are damaged.
    checked((exported["lo"], exported["hi"]), forest.n_members)
    # A forest with one output has one class or two.
    possible_n_classes = [forest.n_outputs]
    if forest.n_outputs == 1:
        possible_n_classes = [1, 2]
    if len(exported["classes"]) not in possible_n_classes:
        raise ValueError(
            "The classes of an exported ensemble are not as many as its scores."
        )
    return forest


def _check_entries(exported):
    """Raise an error if entries are missing, or are not arrays of numbers.

    Parameters and errors are those of :func:`forest_of`.
    """
    if not isinstance(exported, Mapping):
        raise TypeError(
            "exported must be a dict of arrays, got "
            f"{type(exported).__name__}. PortableEnsemble.load(path) reads a file."
        )
    missing = [name for name in _NEEDED if name not in exported]
    if missing:
        raise ValueError(
            f"exported has no entry for {missing!r}; it must be what "
            "PortableEnsemble.load reads."
        )
    for name in _VECTORS:
        if not isinstance(exported[name], np.ndarray) or exported[name].ndim != 1:
            raise ValueError(
                f"The entry {name!r} of an exported ensemble must be an array."
            )
    for name in _NOT_NAN:
        # 0 stands for an entry that the file lacks.
        numbers = np.asarray(exported.get(name, 0.0), dtype=np.float64)
        if np.isnan(numbers).any():
            raise ValueError(
                f"The entry {name!r} of an exported ensemble must not be NaN."
            )
    lengths = {len(exported[name]) for name in NODE.names}
    if len(lengths) > 1:
        raise ValueError(
            "The arrays of the nodes of an exported ensemble differ in length."
        )


def _fields(exported, names):
    """Return a dict of the entries with these names.

    Names that `exported` lacks are left out: the fields have defaults.
    """
    return {name: exported[name] for name in names if name in exported}


class PortableEnsemble:
    """An early-exit ensemble from a data file without pickle.

    :func:`export_ensemble` writes such a file. No code is read from the file. Compiled
    code evaluates the ensemble. Neither the library that grew the trees nor the
    estimator that learned the thresholds is needed.

    Parameters
    ----------
    exported : dict
        The arrays of a file of :func:`export_ensemble`. :meth:`load` reads such a file.

    n_jobs : int, default=None
        Threads for batches of rows.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.

    n_features_in_ : int
        Columns of a row.

    Notes
    -----
    If the full score of a row is a tie within rounding, the sum of this ensemble
    decides. For such a row, :class:`QWYCEnsemble` asks the library. All other answers
    are the same.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> from skroute.early_exit import PortableEnsemble, QWYCEnsemble, export_ensemble
    >>> X, y = make_classification(2000, class_sep=2.0, random_state=0)
    >>> boosted = HistGradientBoostingClassifier(max_iter=30)
    >>> quick = QWYCEnsemble(boosted, alpha=0.02, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_ensemble(quick, Path(folder) / "quick.npz")
    ...     portable = PortableEnsemble.load(Path(folder) / "quick.npz")
    >>> bool((portable.predict(X) == quick.predict(X)).all())
    True
    """

    def __init__(self, exported: dict, *, n_jobs: int | None = None) -> None:
        from skroute.early_exit._forest_engine import ForestEngine

        forest = forest_of(exported)
        self.classes_ = np.asarray(exported["classes"])
        self.n_features_in_ = forest.n_features
        self.n_jobs = n_jobs
        self._engine: Engine = ForestEngine(forest)
        self._thresholds = checked((exported["lo"], exported["hi"]), forest.n_members)

    @classmethod
    def load(cls, path: str | os.PathLike, *, n_jobs: int | None = None) -> Self:
        """Read a file of :func:`export_ensemble`.

        Parameters
        ----------
        path : str or path-like
            Ends in ``.npz``.

        n_jobs : int, default=None
            Threads for batches of rows.

        Returns
        -------
        PortableEnsemble

        Raises
        ------
        ValueError
            If the file is of another format or version, or damaged.
        """
        return cls(load_exported(path), n_jobs=n_jobs)

    def _walk(self, X):
        """Evaluate rows member by member, until the thresholds stop them (`Walk`)."""
        if issparse(X):
            raise TypeError(
                "X is sparse, and the file does not say what its library reads where "
                "there is no entry: give a dense array."
            )
        return self._engine.walk(X, self._thresholds, self.n_jobs)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the labels of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers as the source library reads them.

        Returns
        -------
        ndarray of shape (n_samples,)
            The answers, one for each row.
        """
        return self.predict_routed(X).y_pred

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return probabilities, from the members that were evaluated.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers as the source library reads them.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities of the classes.

        Raises
        ------
        AttributeError
            If the scores have no known link.
        """
        if self._engine.link is None:
            raise AttributeError(
                "The scores of the members have no known link to probabilities."
            )
        walk = self._walk(X)
        scores = sided(self._engine, walk.scores, walk.answers)
        return probabilities(self._engine, scores, walk.n_evaluated, len(self.classes_))

    def predict_routed(self, X: ArrayLike) -> Routed:
        """Return labels, and the number of members that were evaluated for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers as the source library reads them.

        Returns
        -------
        Routed
            Unpacks into ``(y_pred, route, cost)``. A member costs one.
        """
        walk = self._walk(X)
        labels = self.classes_.take(walk.answers, mode="clip")
        return Routed(labels, walk.n_evaluated, walk.n_evaluated.astype(np.float64))
