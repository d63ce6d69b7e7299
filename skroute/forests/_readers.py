"""The registry of readers: the names of an ensemble's classes determine its reader."""

from skroute.forests._catboost import CatBoostReader
from skroute.forests._lightgbm import LightGBMReader
from skroute.forests._reader import ForestReader
from skroute.forests._sklearn import (
    AdaBoostReader,
    AveragedTreesReader,
    GradientBoostingReader,
    HistGradientBoostingReader,
)
from skroute.forests._xgboost import XGBoostReader

READERS: list[ForestReader] = [
    LightGBMReader(),
    XGBoostReader(),
    CatBoostReader(),
    AveragedTreesReader(),
    AdaBoostReader(),
    GradientBoostingReader(),
    HistGradientBoostingReader(),
]


def find_reader(estimator):
    """Return the reader of an ensemble, which may be fitted or not.

    Parameters
    ----------
    estimator : object
        The ensemble, of any library.

    Returns
    -------
    ForestReader or None
        A call with the fitted ensemble returns a :class:`Forest`, or None if this
        ensemble has no trees. None if there is no reader for the ensemble.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skroute.forests import find_reader
    >>> find_reader(RandomForestClassifier()) is None, find_reader(GaussianNB()) is None
    (False, True)
    """
    # The class itself comes first: a subclass may have a reader of its own.
    for cls in type(estimator).__mro__:
        for reader in READERS:
            if reader.names_class(cls):
                return reader
    return None


def read_forest(estimator):
    """Return the trees and the labels of a fitted ensemble.

    Parameters
    ----------
    estimator : object
        Ensemble of LightGBM, XGBoost, CatBoost or scikit-learn, or a booster.

    Returns
    -------
    (Forest, classes) or None
        `classes` is None if the ensemble does not store its labels. None if there is no
        reader for the ensemble, or it has no trees.

    Raises
    ------
    ValueError
        If there is a reader for the ensemble, but not for one of its options.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skroute.forests import read_forest
    >>> X, y = load_iris(return_X_y=True)
    >>> model = RandomForestClassifier(7, random_state=0).fit(X, y)
    >>> forest, classes = read_forest(model)
    >>> forest.n_members
    7
    """
    reader = find_reader(estimator)
    if reader is None:
        return None
    forest = reader.read(estimator)
    if forest is None:
        return None
    return forest, forest.classes
