"""The interface of a reader: the ensembles of one library become forests."""

from abc import ABC, abstractmethod

import numpy as np

from skroute.forests._forest import Forest


class ForestReader(ABC):
    """Reader of the ensembles of one library, or of one family of a library.

    A reader contains the names of the classes that it reads. No library is imported to
    find the reader of an ensemble.

    Attributes
    ----------
    package : str
        Top-level package of the library.

    class_names : tuple of str
        Classes of that package that are read. Their subclasses are read, too.

    averages_probabilities : bool
        True if a classifier answers with the mean of its trees' probabilities. It has
        no ``decision_function`` then.

    Examples
    --------
    :func:`register_reader` shows a complete reader.

    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skroute.forests import ForestReader, find_reader
    >>> isinstance(find_reader(RandomForestClassifier()), ForestReader)
    True
    """

    package: str
    class_names: tuple[str, ...]
    averages_probabilities: bool = False

    def names_class(self, cls):
        """Return True if a class is in `package` and has one of `class_names`.

        Parameters
        ----------
        cls : type
            The class of an ensemble, or one that it inherits from.

        Returns
        -------
        bool
        """
        package = cls.__module__.split(".")[0]
        return package == self.package and cls.__name__ in self.class_names

    @abstractmethod
    def read(self, estimator) -> Forest | None:
        """Read a fitted ensemble.

        Parameters
        ----------
        estimator : object
            Fitted ensemble of a class that this reader names, or of a subclass.

        Returns
        -------
        Forest or None
            The trees, and the rules by which the library reads rows and answers. None
            if the members of the ensemble are not trees.

        Raises
        ------
        ValueError
            If an option of the ensemble is not supported. The message says what to do
            instead.
        """

    def __call__(self, estimator):
        """Read a fitted ensemble, as :meth:`read` does."""
        return self.read(estimator)


def labels_of(model):
    """Return the labels of a fitted model, or None if it has none."""
    classes = getattr(model, "classes_", None)
    if classes is None:
        return None
    return np.asarray(classes)
