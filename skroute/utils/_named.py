"""Alignment by names: labels of series, columns of frames, classes of models."""

from collections.abc import Mapping

import numpy as np

from skroute.utils._frames import column_keys, is_arrow


def by_label(values):
    """Return a dict from label to value for a pandas series with texts as labels.

    Other containers are returned as they are. So is a series whose labels are not all
    texts, or that has some label twice.

    Parameters
    ----------
    values : object

    Returns
    -------
    dict or object
    """
    if not hasattr(values, "iloc") or values.ndim != 1 or not len(values):
        return values
    has_names = all(isinstance(label, str) for label in values.index)
    if has_names and values.index.is_unique:
        return values.to_dict()
    return values


def check_entries(label, mapping, names):
    """Raise an error unless a mapping has an entry for each name, and no other.

    `label` is the name of the mapping in the message.
    """
    entries = [str(name) for name in mapping]
    if sorted(entries) != sorted(names):
        raise ValueError(
            f"{label} must have an entry for each of {names!r}, got {entries!r}."
        )


def part_of(frame, columns):
    """Return some columns of a data frame or Arrow table, by a list of their keys."""
    return frame.select(columns) if is_arrow(frame) else frame[columns]


def made_up_names(n_choices):
    """Return names for choices that the user has not named: "choice0", ..."""
    return [f"choice{position}" for position in range(n_choices)]


def in_order(table, names, name=None):
    """Return a frame with its columns in the order of `names`.

    Parameters
    ----------
    table : array-like or dataframe of shape (n_rows, n_columns)
    names : sequence of str
    name : str, default=None
        Name of the argument, for the ValueError if a frame has other columns. Such a
        frame is returned as it is if `name` is None, or if `names` are made up.

    Returns
    -------
    array-like or dataframe
        A table without names of columns is returned as it is.
    """
    columns = column_keys(table)
    if columns is None:
        return table  # the columns have no names
    names = list(names)
    if columns == names:
        return table
    key_of_name = {str(column): column for column in columns}
    if sorted(key_of_name) == sorted(names):
        return part_of(table, [key_of_name[column] for column in names])
    if name is not None and names != made_up_names(len(names)):
        raise ValueError(
            f"{name} must have the columns {names!r}, got {list(key_of_name)!r}."
        )
    return table


def align_by_class(scores, own_classes, classes):
    """Return the probabilities or scores of a model as columns of all classes.

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
        The column of a class that the model does not know is 0. The result is `scores`
        itself if the classes are the same.
    """
    if np.array_equal(own_classes, classes):
        return scores
    aligned = np.zeros((len(scores), len(classes)), dtype=scores.dtype)
    positions = np.searchsorted(classes, own_classes)
    aligned[:, positions] = scores
    return aligned


def check_rows_match(**tables):
    """Raise an error if two tables have the same labels of rows in another order.

    Rows belong together by position. If the labels are in another order, either the
    labels are old, or the tables are not sorted alike. Tables with different labels
    pass.

    Parameters
    ----------
    **tables : array-like, series or dataframe
        Tables by the names of the arguments. A mapping stands for the tables in it.

    Raises
    ------
    ValueError
    """
    labelled = {}  # from a name to the index of its table
    for name, table in _with_labels(tables):
        for earlier_name, index in labelled.items():
            if not _is_reordered(table.index, index):
                continue
            raise ValueError(
                f"{earlier_name} and {name} have the same index, in another order: "
                "which rows belong together is not clear. Give "
                f"{name}.loc[{earlier_name}.index] where "
                f"the labels say it, {name}.to_numpy() where the order does."
            )
        labelled[name] = table.index


def _with_labels(tables):
    """Yield the tables whose rows have labels, with their names.

    Tables inside of mappings are yielded, too.

    Parameters
    ----------
    tables : dict of str to object
        Tables or mappings of tables, by the names of the arguments.

    Yields
    ------
    name : str
    table : series or data frame of pandas
    """
    for name, table in tables.items():
        candidates = {name: table}
        if isinstance(table, Mapping):
            for key, inner_table in table.items():
                candidates[f"{name} of {key!r}"] = inner_table
        for candidate_name, candidate in candidates.items():
            # Tables of Dask are left out: their index is not known before it is
            # computed, and has no `equals`.
            if hasattr(candidate, "iloc") and hasattr(candidate.index, "equals"):
                yield candidate_name, candidate


def _is_reordered(index, other):
    """Return True if two indices have the same labels in another order."""
    if len(index) != len(other) or index.equals(other):
        return False
    return bool(index.isin(other).all() and other.isin(index).all())
