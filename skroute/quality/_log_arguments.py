"""Checks of the columns of a log: choices, propensities and values."""

import numpy as np

from skroute.utils._validation import check_numbers


def read_choice(choice, names, n_rows):
    """Return each logged choice as a position in a list of names, and this list.

    Parameters
    ----------
    choice : array-like of shape (n_rows,)
        Names, or numbers of columns, which are positions among the names. If one of
        `names` is the text of a number, numbers in `choice` are names as well.
    names : list of str
    n_rows : int

    Returns
    -------
    positions : ndarray of shape (n_rows,), dtype=int64
    names : list of str
        All names: the argument, followed by the choices that have no name in it.

    Raises
    ------
    ValueError
        If `choice` has another length, is not of names or whole numbers, or has a
        number of a column that does not exist.
    """
    choice = np.asarray(choice)
    if choice.shape != (n_rows,):
        raise ValueError(
            f"choice must name one choice for each of the {n_rows} rows, got shape "
            f"{choice.shape}."
        )
    # Kinds of dtypes in numpy: i and u are whole numbers, with and without sign.
    if choice.dtype.kind in "iu":
        if any(_is_whole_number(name) for name in names):
            # A name is the text of a number: the logged numbers are names, too.
            return _read_names(choice.astype(str), names)
        return _read_column_numbers(choice, names)
    # O are objects, U texts of one width, T texts of any width, S bytes.
    may_be_text = choice.dtype.kind in "OUST"
    # Bytes and other objects are refused: they are not of class `str`.
    if not may_be_text or not all(isinstance(name, str) for name in choice.tolist()):
        raise ValueError(
            "choice must be names of choices or whole numbers of columns, got an array "
            f"of {choice.dtype}."
        )
    return _read_names(choice, names)


def _is_whole_number(name):
    """Return True if a name is the text of a whole number, such as "12"."""
    return name.removeprefix("-").isdecimal()


def _read_column_numbers(choice, names):
    """Read choices that are numbers of columns: return positions and all names.

    Parameters
    ----------
    choice : ndarray of int of shape (n_rows,)
        Numbers of columns.
    names : list of str
        Names of the first columns. May be empty: then all names are made up.

    Returns
    -------
    positions : ndarray of shape (n_rows,), dtype=int64
    names : list of str
        As `names`, then ``"choice<number>"`` for each column up to the largest number.
    """
    smallest = int(choice.min())
    largest = int(choice.max())
    if smallest < 0:
        raise ValueError(f"choice must have numbers from 0 up, got {smallest!r}.")
    # A column without a name is allowed, even if it is not chosen on any row. But a
    # number as large as the number of rows is probably an identifier, not the number of
    # a column.
    if largest >= max(len(names), len(choice)):
        raise ValueError(
            f"choice has the column number {largest!r}, but there are not as many "
            "choices nor rows. Give names, or the numbers of columns."
        )
    new_names = [f"choice{number}" for number in range(len(names), largest + 1)]
    return choice.astype(np.int64), [*names, *new_names]


def _read_names(choice, names):
    """Read choices that are names: return positions and all names.

    Parameters
    ----------
    choice : ndarray of str of shape (n_rows,)
    names : list of str

    Returns
    -------
    positions : ndarray of shape (n_rows,), dtype=int64
    names : list of str
        As `names`, then the other names in `choice`, sorted.
    """
    # The different names, sorted, and the position of each row's name among them.
    labels, label_of_row = np.unique(choice.astype(str), return_inverse=True)
    labels = labels.tolist()
    new_names = [label for label in labels if label not in names]
    all_names = [*names, *new_names]
    position_of_label = np.array([all_names.index(label) for label in labels])
    return position_of_label[label_of_row], all_names


def read_propensity(propensity, n_rows):
    """Return the propensities of logged choices, or raise an error.

    Parameters
    ----------
    propensity : array-like of shape (n_rows,)
        Numbers above 0, up to 1.
    n_rows : int

    Returns
    -------
    ndarray of shape (n_rows,), dtype=float64
    """
    propensity = check_numbers(
        propensity, "propensity", shape=(n_rows,), low=0.0, high=1.0
    )
    if not (propensity > 0).all():
        raise ValueError(
            f"propensity must have numbers above 0, got {float(propensity.min())!r}."
        )
    return propensity


def read_values(values, name, n_rows, *, least=-np.inf, allow_nan=False):
    """Return one number per row, or raise an error for invalid ones.

    Parameters
    ----------
    values : array-like of shape (n_rows,)
    name : str
        Name of the argument, for messages.
    n_rows : int
    least : float, default=-inf
        Smallest number that is allowed. With -inf there is no smallest one.
    allow_nan : bool, default=False
        Whether values may be NaN, which means unknown. At least one must be a number.

    Returns
    -------
    ndarray of shape (n_rows,), dtype=float64
    """
    values = check_numbers(
        values, name, shape=(n_rows,), low=least, allow_nan=allow_nan
    )
    if np.isnan(values).all():
        raise ValueError(f"{name} must have a number for some row, and all are NaN.")
    return values
