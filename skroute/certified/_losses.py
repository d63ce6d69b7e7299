"""The loss that a promise is about, and targets as candidates read them."""

from typing import Any, NamedTuple

from sklearn.base import is_classifier, is_regressor
from sklearn.utils import _safe_indexing

from skroute.guarantees._measures import Measure, key_of, own_measure
from skroute.utils._named import columns_of


def measure_of(names, models, y, loss, loss_range):
    """What losses are measured by: a function of one's own, or what the candidates measure by.

    Parameters
    ----------
    names : list of str
    models : list of decision estimators
        Fitted or not.
    y : ndarray of shape (n_rows,) or (n_rows, n_columns), or None
        Of the evidence rows; None where another model's answers are the truth.
    loss : callable or None
    loss_range : float or None

    Returns
    -------
    Measure

    Raises
    ------
    ValueError
        Where no bound of the loss is known and none was given, or candidates differ.
    """
    if loss is not None:
        if loss_range is None:
            raise ValueError(
                "loss_range must be given beside loss: what two losses of a row can differ by at "
                "most, also on rows that are in no sample."
            )
        return Measure(float(loss_range), "by the loss given", loss=loss)
    found = [_measure_within(model, y, loss_range) for model in models]
    for name, other in zip(names, found):
        if key_of(other) != key_of(found[0]):
            raise ValueError(
                f"{name!r} and {names[0]!r} measure answers differently, by their parameter "
                "quality: give loss and loss_range."
            )
    # One may hand over what another answers.
    return found[0]._replace(range=max(one.range for one in found))


def _measure_within(model, y, loss_range):
    """The measure of a candidate; of a certified router its own loss, or what is inside of it."""
    while hasattr(model, "_asked"):
        if model.loss is not None:
            return measure_of([], [], y, model.loss, model.loss_range)
        loss_range = model.loss_range if loss_range is None else loss_range
        model = model._asked()[1][0]
        model = model.estimator if type(model).__name__ == "FrozenEstimator" else model
    return own_measure(model, y, loss_range)


# Targets ------------------------------------------------------------------------------


def column_names(y):
    """Names of the columns of a frame of several; None of anything else."""
    columns = columns_of(y)
    if columns is None or len(columns) < 2:
        return None
    names = [str(column) for column in columns]
    if len(set(names)) < len(names):
        raise ValueError(f"y must not have two columns of the same name, got {names!r}.")
    return names


def of_path(table, columns, path, name="y"):
    """A table with a column for each choice, in the order of the path's ``choices_``.

    Parameters
    ----------
    table : ndarray of shape (n_rows,) or (n_rows, n_columns)
        Anything but a table of choices is returned as it is.
    columns : list of str or None
        Names of its columns, where it was a frame: it is read by them.
    path : fitted decision estimator
    name : str, default="y"

    Returns
    -------
    ndarray
    """
    if table.ndim != 2 or is_classifier(path) or is_regressor(path):
        return table
    choices = [str(choice) for choice in getattr(path, "model_names_", path.choices_)]
    # A router that leaves choices out knows the names of all.
    every = [str(known) for known in path._names] if hasattr(path, "columns_") else choices
    kept = list(getattr(path, "columns_", range(len(choices))))
    if columns is None or not getattr(path, "_named", True):
        return table[:, kept] if table.shape[1] == len(every) else table
    if sorted(columns) != sorted(every):
        raise ValueError(f"{name} must have the columns {every!r}, got {columns!r}.")
    return table[:, [columns.index(choice) for choice in choices]]


class Target(NamedTuple):
    """The target as it was given, as an array, and the names of its columns.

    Attributes
    ----------
    given : ndarray or dataframe
    values : ndarray of shape (n_rows,) or (n_rows, n_columns)
    columns : list of str or None
    """

    given: Any
    values: Any
    columns: Any

    def of_rows(self, rows):
        """Some rows; a frame of qualities stays one."""
        return _safe_indexing(self.given, rows)

    def of_path(self, path):
        """The target as a path reads it."""
        return of_path(self.values, self.columns, path)
