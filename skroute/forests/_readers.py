"""The registry of readers: the reader of an ensemble is found by the names of its classes."""

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
    """Find the reader of an ensemble, which may be fitted or not.

    Parameters
    ----------
    estimator : object

    Returns
    -------
    ForestReader or None
        Called with the fitted ensemble it returns a :class:`Forest`, or None when this
        ensemble has no trees. None when no reader fits.

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
    """Read the trees and the labels of a fitted ensemble.

    Parameters
    ----------
    estimator : object
        Ensemble of LightGBM, XGBoost, CatBoost or scikit-learn, or a booster.

    Returns
    -------
    (Forest, classes) or None
        `classes` is None where the ensemble does not know its labels. None where no
        reader fits.

    Raises
    ------
    ValueError
        If the ensemble is of a kind that is read, with an option that is not.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skroute.forests import read_forest
    >>> X, y = load_iris(return_X_y=True)
    >>> forest, classes = read_forest(RandomForestClassifier(7, random_state=0).fit(X, y))
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
