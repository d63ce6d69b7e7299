"""Rules by which each library turns columns, also those of categories, into numbers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.utils import check_array

from skroute.utils._compat import _safe_indexing, num_samples
from skroute.utils._frames import (
    CATEGORY,
    cells_of,
    is_frame,
    is_missing,
    is_sparse_type,
    kind_of_type,
    numbers_of,
    with_dense_columns,
)

# Code of pandas for a cell that is missing.
_NO_CODE = -1
# `kind` of a numpy type of objects, and of the types that pandas defines itself.
_OBJECT_KIND = "O"
# The largest number of single precision. It replaces missing values that go right: no
# tree of scikit-learn has a threshold above it.
_RIGHTMOST = float(np.finfo(np.float32).max)


class ColumnRule(ABC):
    """Rule by which a library turns columns of categories into numbers.

    Attributes
    ----------
    refuses_unseen : bool
        True if a category that the ensemble has not seen is an error. Otherwise such a
        cell is read as missing.

    reads_negative_codes : bool
        True if the library reads a number between -1 and 0 as code 0. Otherwise no
        negative number is a category.

    ignores_names : bool
        True if the library takes columns by their position and does not compare their
        names. The names that its `fit` was given may differ from those of the frame.
    """

    refuses_unseen: bool = False
    ignores_names: bool = False
    reads_negative_codes: bool = True

    @property
    def keeps_categories(self) -> bool:
        """True if the model stores the categories that it was fitted on."""
        return False

    @property
    def categories_of_arrays(self) -> Mapping[int, Any]:
        """Categories by column, if the library looks up cells of arrays. Else empty."""
        return {}

    def dense(self, X):
        """Return rows in which sparse columns of pandas are dense."""
        return with_dense_columns(X)

    @abstractmethod
    def numbers(self, X):
        """Return rows in which the library's numbers replace the categories.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_samples, n_features)
            Rows without sparse columns, as many columns as the ensemble has.

        Returns
        -------
        array-like or dataframe of shape (n_samples, n_features)
            The rows themselves if there is nothing to encode.

        Raises
        ------
        ValueError
            If the library does not read such columns.
        """


@dataclass(frozen=True)
class ValuesAsTheyAre(ColumnRule):
    """Rule of scikit-learn: the cells of a column of categories are read as numbers."""

    def dense(self, X):
        """Return rows in which sparse columns of pandas are dense.

        If all columns of a frame are sparse, its missing values become `_RIGHTMOST`.
        scikit-learn makes a sparse matrix of such a frame. Trees that read a sparse
        matrix compare a missing value with each threshold, and send it to the right.
        """
        dense = with_dense_columns(X)
        if dense is not X and all(is_sparse_type(dtype) for dtype in X.dtypes):
            return dense.to_numpy(dtype=np.float64, na_value=_RIGHTMOST)
        return dense

    def numbers(self, X):
        """Return the rows as they are."""
        return X


@dataclass(frozen=True)
class NumbersOnly(ColumnRule):
    """CatBoost, and ensembles from a file: columns of categories are an error.

    Parameters
    ----------
    reads_negative_codes : bool, default=True
        See :class:`ColumnRule`.
    """

    reads_negative_codes: bool = True

    def numbers(self, X):
        """Return the rows, or raise a ValueError if a column has categories."""
        columns = category_columns(X)
        if columns:
            raise _not_numbers(X, columns)
        return X


@dataclass(frozen=True)
class PairedByOrder(ColumnRule):
    """LightGBM: list `k` of categories is for the `k`-th column of category type.

    The library pairs lists and columns again for each frame, also if the columns have
    moved. It does so even for columns of category type that it splits as numbers.

    Parameters
    ----------
    categories : sequence of list, or None
        The lists. None for a model that was not trained on a data frame: the codes of a
        frame's own categories are then its numbers.
    """

    categories: Sequence[list] | None
    ignores_names = True

    @property
    def keeps_categories(self) -> bool:
        """True if there is a list of categories."""
        return bool(self.categories)

    def numbers(self, X):
        """Return the rows with codes in place of categories.

        A ValueError is raised if another number of columns than in fit has categories.
        """
        columns = category_columns(X)
        is_pandas = hasattr(X, "iloc")
        if columns and not is_pandas:
            raise _not_numbers(X, columns)
        if self.categories is None:
            # The model was not trained on a frame: the frame's own codes are read.
            return _with_codes(X, _own_categories(columns))
        if not is_pandas:
            # An array has no categories: its cells are codes.
            return X
        if len(columns) != len(self.categories):
            raise ValueError(
                f"X has {len(columns)} columns of category type, and the data frame of "
                f"fit had {len(self.categories)}: LightGBM pairs them by their order. "
                "Give the columns the types that they had in fit."
            )
        return _with_codes(X, dict(zip(columns, self.categories)))


@dataclass(frozen=True)
class PairedByPlace(ColumnRule):
    """XGBoost: a list of categories belongs to the column at its position.

    Parameters
    ----------
    categories : dict from int to list
        The lists by column. If it is empty, the codes of a frame's own categories are
        its numbers.
    """

    categories: Mapping[int, list] = field(default_factory=dict)
    refuses_unseen = True
    reads_negative_codes = False

    @property
    def keeps_categories(self) -> bool:
        """True if there is a list of categories."""
        return bool(self.categories)

    def numbers(self, X):
        """Return the rows with codes in place of categories.

        A ValueError is raised if fit had categories, and other columns have them now.
        """
        columns = category_columns(X)
        if not is_frame(X):
            # An array has no categories: its cells are codes.
            return X
        if not self.categories:
            # The forest has no lists: the codes of the frame itself are the numbers.
            if columns and not hasattr(X, "iloc"):
                raise _not_numbers(X, columns)
            return _with_codes(X, _own_categories(columns))
        if columns != sorted(self.categories):
            raise ValueError(
                f"X has categories in the columns {columns!r}, and in fit they were in "
                f"{sorted(self.categories)!r}. Give the columns the types that they "
                "had in fit."
            )
        n_columns = len(_dtypes(X))
        numbers = np.empty((num_samples(X), n_columns))
        for column in range(n_columns):
            values = _safe_indexing(X, column, axis=1)
            if column in self.categories:
                numbers[:, column] = self._codes(values, column)
            else:
                numbers[:, column] = _checked_numbers(values, column)
        return numbers

    def _codes(self, values, column):
        """Return the positions of the cells of a column among its categories.

        Parameters
        ----------
        values : pandas.Series, polars.Series or Arrow array
            A column of categories.

        column : int

        Returns
        -------
        ndarray of shape (n_samples,), dtype=float64
            NaN for a missing cell.

        Raises
        ------
        ValueError
            If a cell has a category that was not in fit.
        """
        categories = self.categories[column]
        if hasattr(values, "cat") and hasattr(values, "iloc"):
            # Few categories are looked up in place of many cells. A missing cell has
            # the code -1, which takes the last entry of `names`: None.
            names = np.append(cells_of(values.cat.categories), [None])
            code_of_cell = values.cat.codes.to_numpy()
            position_of_code = _positions(names, categories)
            cells = names[code_of_cell]
            positions = position_of_code[code_of_cell]
        else:
            cells = cells_of(values)
            positions = _positions(cells, categories)
        # A missing cell, None, has no position. Other cells without one are an error.
        without_position = cells[np.isnan(positions)]
        if any(cell is not None for cell in without_position):
            raise ValueError(
                f"Column {column} of X has categories that the ensemble was not fitted "
                "on; make them missing, or fit it on them."
            )
        return positions


@dataclass(frozen=True)
class EncodedCells(ColumnRule):
    """Histogram boosting of scikit-learn: an encoder looks up the cells of all rows.

    Parameters
    ----------
    categories : dict from int to ndarray
        The categories of the encoder by column.
    """

    categories: Mapping[int, np.ndarray]

    @property
    def keeps_categories(self) -> bool:
        """True if there are categories."""
        return bool(self.categories)

    @property
    def categories_of_arrays(self) -> Mapping[int, Any]:
        """Categories by column. The encoder looks up the cells of arrays, too."""
        return self.categories

    def numbers(self, X):
        """Return the rows with positions among the categories, NaN for a new cell."""
        if not self.categories:
            return X
        if not hasattr(X, "columns"):
            # An array, or nested lists, of cells of any type.
            X = check_array(X, dtype=None, ensure_all_finite=False)
        numbers = np.empty(X.shape)
        for column in range(X.shape[1]):
            cells = np.asarray(_safe_indexing(X, column, axis=1))
            if column not in self.categories:
                numbers[:, column] = cells
                continue
            categories = np.asarray(self.categories[column])
            # Kinds of dtypes: booleans, whole numbers with and without sign, floats.
            are_numbers = cells.dtype.kind in "biuf"
            if are_numbers and categories.dtype.kind == "f":
                # scikit-learn compares numbers as floats, so that different numbers
                # beyond 2**53 can become equal.
                cells = cells.astype(categories.dtype)
            numbers[:, column] = _positions(cells.tolist(), categories.tolist())
        return numbers


def category_columns(X):
    """Return the positions of the columns of category type, [] without a frame."""
    if not is_frame(X):
        return []
    return [column for column, dtype in enumerate(_dtypes(X)) if _is_category(dtype)]


def _is_category(dtype):
    """Return True if a type of pandas, polars or Arrow is one of categories."""
    # Names of types are compared only if the type is not numeric, to save time.
    if getattr(dtype, "kind", _OBJECT_KIND) != _OBJECT_KIND:
        return False
    return kind_of_type(dtype) == CATEGORY


def _dtypes(X):
    """Return the types of the columns of a data frame, or of an Arrow table."""
    if hasattr(X, "dtypes"):
        return list(X.dtypes)
    return list(X.schema.types)


def _not_numbers(X, columns):
    """Return the ValueError for columns of categories that the library does not read.

    `columns` are their positions in `X`.
    """
    return ValueError(
        f"X is a {type(X).__name__} with categories in the columns {columns!r}, which "
        "the library of the ensemble does not read there, or reads by codes of their "
        "own. Give the numbers that the ensemble was trained on."
    )


# Entry of `categories` in `_with_codes` for a column whose own codes are its numbers.
_OWN_CATEGORIES = None


def _own_categories(columns):
    """Return the argument with which `_with_codes` keeps the codes of these columns."""
    return dict.fromkeys(columns, _OWN_CATEGORIES)


def _with_codes(X, categories):
    """Return a pandas data frame as an array of numbers, in which categories are codes.

    Parameters
    ----------
    X : pandas.DataFrame of shape (n_samples, n_features)
    categories : dict from int to list or None
        For each column of category type, by position, the list in which its codes are
        positions. `_OWN_CATEGORIES` leaves the codes as they are.

    Returns
    -------
    ndarray of shape (n_samples, n_features), or the frame if no column has categories

    Raises
    ------
    ValueError
        If another column has neither numbers nor categories.
    """
    if not categories:
        return X
    plain_columns = [column for column in range(X.shape[1]) if column not in categories]
    # Kinds of dtypes: floats, whole numbers with and without sign, booleans.
    not_numbers = [
        column for column in plain_columns if X.dtypes.iloc[column].kind not in "fiub"
    ]
    if not_numbers:
        raise ValueError(
            f"Columns of X must have numbers or categories, got {not_numbers!r} of "
            "other types. Turn them into the types that they had in fit."
        )
    numbers = np.empty(X.shape)
    plain_frame = X.iloc[:, plain_columns]
    numbers[:, plain_columns] = plain_frame.to_numpy(dtype=np.float64, na_value=np.nan)
    for column, column_categories in categories.items():
        cells = X.iloc[:, column]
        if column_categories is not _OWN_CATEGORIES:
            # If the lists are equal, such as [0, 1] and [False, True], the codes stay.
            # LightGBM does the same.
            if list(cells.cat.categories) != list(column_categories):
                cells = cells.cat.set_categories(column_categories)
        codes = cells.cat.codes.to_numpy()
        numbers[:, column] = np.where(codes == _NO_CODE, np.nan, codes)
    return numbers


def _checked_numbers(values, column):
    """Return a column as float64. Raise a ValueError if a cell is no number.

    `values` are the cells, and `column` is the position of the column, for the error.
    """
    numbers = numbers_of(values)
    # `numbers_of` returns None if some cell is no number.
    if numbers is None:
        raise ValueError(
            f"Column {column} of X has cells that are no numbers. Give numbers, as in "
            "fit."
        )
    return numbers


def _positions(cells, categories):
    """Return the position of each cell among the categories, NaN if it is no category.

    Parameters
    ----------
    cells : sequence of shape (n_samples,)
    categories : sequence

    Returns
    -------
    ndarray of shape (n_samples,), dtype=float64
    """
    positions = {}
    for position, category in enumerate(categories):
        # A missing value is no category, also if the encoder lists it as the last one.
        if not is_missing(category):
            positions[category] = position
    return np.array([positions.get(cell, np.nan) for cell in cells], dtype=np.float64)
