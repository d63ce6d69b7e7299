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

# All registered readers. `find_reader` asks them in this order.
READERS: list[ForestReader] = [
    LightGBMReader(),
    XGBoostReader(),
    CatBoostReader(),
    AveragedTreesReader(),
    AdaBoostReader(),
    GradientBoostingReader(),
    HistGradientBoostingReader(),
]


def register_reader(reader):
    """Register a reader of the ensembles of another library.

    That library calls this function when it is imported.
    :class:`~skroute.early_exit.QWYCEnsemble` and :class:`~skroute.forests.FastForest`
    then take its ensembles.

    Parameters
    ----------
    reader : ForestReader
        It replaces a registered reader of the same package and classes.

    Returns
    -------
    ForestReader
        The reader given.

    Raises
    ------
    TypeError
        If `reader` is not a :class:`ForestReader`.

    ValueError
        If another reader already names one of its classes, but not the same ones.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.forests import ForestBuilder, ForestReader, register_reader
    >>> class StumpReader(ForestReader):
    ...     package = "mystumps"
    ...     class_names = ("Stump",)
    ...     def read(self, estimator):
    ...         builder = ForestBuilder()
    ...         builder.add_tree(
    ...             left=[1, -1, -1],
    ...             right=[2, -1, -1],
    ...             feature=[estimator.feature, 0, 0],
    ...             threshold=[estimator.threshold, 0.0, 0.0],
    ...             value=np.array([[0.0], *estimator.values]),
    ...             flags=np.zeros(3),
    ...         )
    ...         builder.end_member()
    ...         return builder.build([0.0], n_features=estimator.n_features)
    >>> reader = register_reader(StumpReader())
    >>> reader.class_names
    ('Stump',)
    """
    if not isinstance(reader, ForestReader):
        raise TypeError(
            "reader must be an instance of a subclass of skroute.forests.ForestReader, "
            f"got {reader!r}."
        )
    for position, registered in enumerate(READERS):
        if registered.package != reader.package:
            continue
        shared = set(registered.class_names) & set(reader.class_names)
        if set(registered.class_names) == set(reader.class_names):
            # A module that is imported again registers its reader again.
            READERS[position] = reader
            return reader
        if shared:
            raise ValueError(
                f"{min(shared)!r} of {reader.package!r} has a reader already, "
                f"{registered!r}, which names {registered.class_names!r}. Name the "
                "same classes to replace it, or other ones."
            )
    READERS.append(reader)
    return reader


def find_reader(estimator):
    """Return the reader of an ensemble, which may be fitted or not.

    Parameters
    ----------
    estimator : object
        The ensemble, of any library.

    Returns
    -------
    ForestReader or None
        None if there is no reader for the ensemble. A call of the reader with the
        fitted ensemble returns a :class:`Forest`, or None if the ensemble has no trees.

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
