"""Columns and rows are put together by name: of series, of frames, and of a model's classes."""

from collections.abc import Mapping

import numpy as np

from skroute.utils._frames import column_keys, is_arrow


def by_label(values):
    """A series whose labels are names as a mapping; anything else as it is."""
    if not hasattr(values, "iloc") or values.ndim != 1:
        return values
    named = len(values) and all(isinstance(label, str) for label in values.index)
    return values.to_dict() if named and values.index.is_unique else values


def part_of(frame, columns):
    """A data frame, or an Arrow table, of some of its columns, by their keys."""
    return frame.select(columns) if is_arrow(frame) else frame[columns]


def in_order(table, names, name=None):
    """A frame's columns in the order of names; anything else as it is.

    Parameters
    ----------
    table : array-like or dataframe of shape (n_rows, n_columns)
    names : sequence of str
    name : str, default=None
        Of the argument: a frame that has other columns is then an error. None leaves
        it.

    Returns
    -------
    array-like or dataframe
    """
    columns = column_keys(table)
    if columns is None:
        return table
    names, own = list(names), {str(column): column for column in columns}
    if sorted(own) == sorted(names):
        return part_of(table, [own[column] for column in names])
    if name is not None:
        raise ValueError(f"{name} must have the columns {names!r}, got {list(own)!r}.")
    return table


def align_by_class(scores, own_classes, classes):
    """Return probabilities or scores of the classes of a model as columns of all classes.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_own_classes)
    own_classes : array-like of shape (n_own_classes,)
        The labels of the columns, in any order. All of them are in `classes`.
    classes : ndarray of shape (n_classes,)
        Sorted.

    Returns
    -------
    ndarray of shape (n_rows, n_classes)
        Of the type of `scores`. The column of a class that the model does not know is
        0. It is `scores` itself if the classes are the same.
    """
    if np.array_equal(own_classes, classes):
        return scores
    aligned = np.zeros((len(scores), len(classes)), dtype=scores.dtype)
    aligned[:, np.searchsorted(classes, own_classes)] = scores
    return aligned


def check_rows_match(**tables):
    """Refuse tables whose rows have the same labels in another order.

    Rows belong together by position: labels that say otherwise are either stale, or the
    tables are not sorted alike. Of tables with other labels nothing is said.

    Parameters
    ----------
    **tables : array-like, series or dataframe
        By the names of the arguments; each with labels is compared with those before
        it. A mapping stands for the tables in it.

    Raises
    ------
    ValueError
    """
    labelled = {}
    for name, table in _with_labels(tables):
        for first, index in labelled.items():
            if not _is_reordered(table.index, index):
                continue
            raise ValueError(
                f"{first} and {name} have the same index, in another order: which rows belong "
                f"together is not clear. Give {name}.loc[{first}.index] where the labels say it, "
                f"{name}.to_numpy() where the order does."
            )
        labelled[name] = table.index


def _with_labels(tables):
    """Yield the tables whose rows have labels, with their names; also those inside mappings."""
    for name, table in tables.items():
        inner = {}
        if isinstance(table, Mapping):
            inner = {f"{name} of {key!r}": values for key, values in table.items()}
        for inner_name, values in {name: table, **inner}.items():
            # The index of a table of Dask is not known before it is computed.
            if hasattr(values, "iloc") and hasattr(values.index, "equals"):
                yield inner_name, values


def _is_reordered(index, other):
    """Return whether two indices have the same labels in another order."""
    if len(index) != len(other) or index.equals(other):
        return False
    return bool(index.isin(other).all() and other.isin(index).all())
