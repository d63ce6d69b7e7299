"""An exported ensemble that answers as fast as the one it was written from."""

import os
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from skroute.base import Routed
from skroute.early_exit._exit_thresholds import ExitThresholds
from skroute.early_exit._export import forest_of, load_exported
from skroute.early_exit._forest_engine import ForestEngine
from skroute.early_exit._own_answers import on_side

__all__ = ["PortableEnsemble"]


class PortableEnsemble:
    """Trees, order and thresholds from a file that is no pickle, by the compiled walk.

    :func:`export_ensemble` writes such a file. Reading it takes no code from it, and neither the
    library that grew the trees nor the estimator that learned the thresholds.

    Parameters
    ----------
    exported : dict
        The arrays of a file of :func:`export_ensemble`; :meth:`load` reads one.

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
    A full score that is a tie but for rounding is decided by its own sum, where
    :class:`QWYCEnsemble` asks the library. Answers are the same otherwise.

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
        forest = forest_of(exported)
        self.classes_ = np.asarray(exported["classes"])
        self.n_features_in_ = forest.n_features
        self.n_jobs = n_jobs
        self._engine: Any = ForestEngine(forest)
        self._thresholds = ExitThresholds(exported["lo"], exported["hi"])

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

    def _settled(self, X, proba):
        if issparse(X):
            raise TypeError(
                "X is sparse, and the file does not say what its library reads where there is no "
                "entry: give a dense array."
            )
        score, members, side = self._engine.walk(X, self._thresholds, self.n_jobs)
        return on_side(self._engine, self.classes_, score, members, side, proba), members

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers as the source library reads them.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._settled(X, False)[0].labels

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probabilities, from the members that were evaluated.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers as the source library reads them.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)

        Raises
        ------
        AttributeError
            If the scores have no known link.
        """
        if self._engine.link is None:
            raise AttributeError("The scores of the members have no known link to probabilities.")
        return self._settled(X, True)[0].proba

    def predict_routed(self, X: ArrayLike) -> Routed:
        """Labels, and how many members each row took.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers as the source library reads them.

        Returns
        -------
        Routed
            Named tuple ``(y_pred, route, cost)``; a member costs one.
        """
        settled, members = self._settled(X, False)
        return Routed(settled.labels, members, members.astype(np.float64))
