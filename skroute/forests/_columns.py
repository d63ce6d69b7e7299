"""How each library makes numbers of the columns of its rows, categories among them."""

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

# What pandas has as the code of a cell that is missing.
_NO_CODE = -1
# The largest number of single precision: no tree of scikit-learn has a threshold above it.
_RIGHTMOST = float(np.finfo(np.float32).max)


class ColumnRule(ABC):
    """The rule by which a library makes numbers of the columns of rows.

    Attributes
    ----------
    refuses_unseen : bool
        Whether a category that the ensemble has not seen is an error rather than missing.

    reads_negative_codes : bool
        Whether the library cuts a code between -1 and 0 off to 0. Otherwise each negative number
        is no category.

    ignores_names : bool
        Whether the library takes columns by their place, whatever their names. Its `fit` may have
        been given other names than those of the frame.
    """

    refuses_unseen: bool = False
    ignores_names: bool = False
    reads_negative_codes: bool = True

    @property
    def keeps_categories(self) -> bool:
        """Whether the library has lists of categories, which plain numbers do not show."""
        return False

    @property
    def categories_of_arrays(self) -> Mapping[int, Any]:
        """Categories, by column, that are also looked up in the cells of plain arrays."""
        return {}

    def dense(self, X):
        """Return rows whose sparse columns of pandas are dense; other rows as they are."""
        return with_dense_columns(X)

    @abstractmethod
    def numbers(self, X):
        """Return rows whose columns of categories are the numbers that the library reads.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_samples, n_features)
            Rows without sparse columns, as many columns as the ensemble has.

        Returns
        -------
        array-like or dataframe of shape (n_samples, n_features)
            The rows themselves where there is nothing to encode.

        Raises
        ------
        ValueError
            If the library does not read such columns.
        """


@dataclass(frozen=True)
class ValuesAsTheyAre(ColumnRule):
    """scikit-learn: the cells of a column of categories are its numbers."""

    def dense(self, X):
        """Return dense rows; a frame of sparse columns alone has `_RIGHTMOST` for missing values.

        scikit-learn makes a sparse matrix of such a frame. Trees that read a sparse matrix compare
        a missing value with each threshold, and send it to the right.
        """
        dense = with_dense_columns(X)
        if dense is not X and all(is_sparse_type(dtype) for dtype in X.dtypes):
            return dense.to_numpy(dtype=np.float64, na_value=_RIGHTMOST)
        return dense

    def numbers(self, X):
        """Return the rows."""
        return X


@dataclass(frozen=True)
class NumbersOnly(ColumnRule):
    """Ensembles that read no columns of categories: those of CatBoost, and those from a file.

    Parameters
    ----------
    reads_negative_codes : bool, default=True
        See :class:`ColumnRule`.
    """

    reads_negative_codes: bool = True

    def numbers(self, X):
        """Return the rows, without columns of categories."""
        columns = category_columns(X)
        if columns:
            raise _not_numbers(X, columns)
        return X


@dataclass(frozen=True)
class PairedByOrder(ColumnRule):
    """LightGBM: lists of categories belong to the columns of category type, in their order.

    The library pairs them again for each frame that it is given, wherever the columns stand in it,
    and whether it splits them as categories or as numbers.

    Parameters
    ----------
    categories : sequence of list, or None
        The lists. None of a model that was not trained on a data frame: then a frame's own codes
        are its numbers.
    """

    categories: Sequence[list] | None
    ignores_names = True

    @property
    def keeps_categories(self) -> bool:
        """Whether there is a list."""
        return bool(self.categories)

    def numbers(self, X):
        """Return the rows with codes; a ValueError unless as many columns are categories."""
        columns = category_columns(X)
        if columns and not hasattr(X, "iloc"):
            raise _not_numbers(X, columns)
        if self.categories is None:
            return _with_codes(X, dict.fromkeys(columns))
        if not hasattr(X, "iloc"):
            return X
        if len(columns) != len(self.categories):
            raise ValueError(
                f"X has {len(columns)} columns of category type, and the data frame of fit had "
                f"{len(self.categories)}: LightGBM pairs them by their order. Give the columns "
                "the types that they had in fit."
            )
        return _with_codes(X, dict(zip(columns, self.categories)))


@dataclass(frozen=True)
class PairedByPlace(ColumnRule):
    """XGBoost: a list of categories belongs to the column at its place.

    Parameters
    ----------
    categories : dict from int to list
        The lists by column. Without any, a frame's own codes are its numbers.
    """

    categories: Mapping[int, list] = field(default_factory=dict)
    refuses_unseen = True
    reads_negative_codes = False

    @property
    def keeps_categories(self) -> bool:
        """Whether there is a list."""
        return bool(self.categories)

    def numbers(self, X):
        """Return the rows with codes; a ValueError if other columns are categories than in fit."""
        columns = category_columns(X)
        if not is_frame(X):
            return X
        if not self.categories:
            if columns and not hasattr(X, "iloc"):
                raise _not_numbers(X, columns)
            return _with_codes(X, dict.fromkeys(columns))
        if columns != sorted(self.categories):
            raise ValueError(
                f"X has categories in the columns {columns!r}, and in fit they were in "
                f"{sorted(self.categories)!r}. Give the columns the types that they had in fit."
            )
        numbers = np.empty((num_samples(X), len(_dtypes(X))))
        for column in range(numbers.shape[1]):
            values = _safe_indexing(X, column, axis=1)
            if column in self.categories:
                numbers[:, column] = self._codes(values, column)
            else:
                numbers[:, column] = _checked_numbers(values, column)
        return numbers

    def _codes(self, values, column):
        """Return the positions of cells among the categories; an error at one that is new."""
        if hasattr(values, "cat") and hasattr(values, "iloc"):
            # Few categories are looked up in place of many cells. The code of a missing cell, -1,
            # takes the last one.
            names = np.append(cells_of(values.cat.categories), [None])
            cells = names[values.cat.codes.to_numpy()]
            codes = _positions(names, self.categories[column])[
                values.cat.codes.to_numpy()
            ]
        else:
            cells = cells_of(values)
            codes = _positions(cells, self.categories[column])
        if any(cell is not None for cell in cells[np.isnan(codes)]):
            raise ValueError(
                f"Column {column} of X has categories that the ensemble was not fitted on; "
                "make them missing, or fit it on them."
            )
        return codes


@dataclass(frozen=True)
class EncodedCells(ColumnRule):
    """Histogram boosting of scikit-learn: an encoder looks up the cells of arrays and of frames.

    Parameters
    ----------
    categories : dict from int to ndarray
        The categories of the encoder by column.
    """

    categories: Mapping[int, np.ndarray]

    @property
    def keeps_categories(self) -> bool:
        """Whether there are categories."""
        return bool(self.categories)

    @property
    def categories_of_arrays(self) -> Mapping[int, Any]:
        """The categories."""
        return self.categories

    def numbers(self, X):
        """Return the rows with positions among the categories; NaN for a cell that is new."""
        if not self.categories:
            return X
        if not hasattr(X, "columns"):
            X = check_array(X, dtype=None, ensure_all_finite=False)
        numbers = np.empty(X.shape)
        for column in range(X.shape[1]):
            values = _safe_indexing(X, column, axis=1)
            if column not in self.categories:
                numbers[:, column] = np.asarray(values)
                continue
            known = np.asarray(self.categories[column])
            cells = np.asarray(values)
            if known.dtype.kind == "f" and cells.dtype.kind in "biuf":
                # scikit-learn compares numbers as floats: some beyond 2**53 become equal. Texts
                # equal no number.
                cells = cells.astype(known.dtype)
            numbers[:, column] = _positions(cells.tolist(), known.tolist())
        return numbers


def category_columns(X):
    """Return the positions of the columns of a data frame whose type is that of categories."""
    if not is_frame(X):
        return []
    return [column for column, dtype in enumerate(_dtypes(X)) if _is_category(dtype)]


def _is_category(dtype):
    """Return whether a type of pandas, polars or Arrow is one of categories."""
    # Types of numbers, which most columns have, need no look at their names.
    return getattr(dtype, "kind", "O") == "O" and kind_of_type(dtype) == CATEGORY


def _dtypes(X):
    """Return the types of the columns of a data frame, or of an Arrow table."""
    return list(X.dtypes if hasattr(X, "dtypes") else X.schema.types)


def _not_numbers(X, columns):
    """Return the error for columns of categories of a kind that the library does not read."""
    return ValueError(
        f"X is a {type(X).__name__} with categories in the columns {columns!r}, which the library "
        "of the ensemble does not read there, or reads by codes of their own. Give the numbers "
        "that the ensemble was trained on."
    )


def _with_codes(X, categories):
    """Return the numbers of a frame of pandas, and codes for its columns of categories.

    Parameters
    ----------
    X : pandas.DataFrame of shape (n_samples, n_features)
    categories : dict from int to list or None
        By column of category type, what its codes are positions in. None leaves the codes that the
        column has.

    Returns
    -------
    ndarray of shape (n_samples, n_features), or the frame where no column has a category
    """
    if not categories:
        return X
    others = [column for column in range(X.shape[1]) if column not in categories]
    text = [column for column in others if X.dtypes.iloc[column].kind not in "fiub"]
    if text:
        raise ValueError(
            f"Columns of X must have numbers or categories, got {text!r} of other types. Turn "
            "them into the types that they had in fit."
        )
    numbers = np.empty(X.shape)
    numbers[:, others] = X.iloc[:, others].to_numpy(dtype=np.float64, na_value=np.nan)
    for column, values in categories.items():
        cells = X.iloc[:, column]
        # Equal lists, such as 0 and 1 beside False and True, keep their codes, as in LightGBM.
        if values is not None and list(cells.cat.categories) != list(values):
            cells = cells.cat.set_categories(values)
        codes = cells.cat.codes.to_numpy()
        numbers[:, column] = np.where(codes == _NO_CODE, np.nan, codes)
    return numbers


def _checked_numbers(values, column):
    """Return a column as float64; a ValueError if a cell is no number."""
    numbers = numbers_of(values)
    if numbers is None:
        raise ValueError(
            f"Column {column} of X has cells that are no numbers. Give numbers, as in fit."
        )
    return numbers


def _positions(cells, categories):
    """Return the positions of cells among categories; NaN of a cell that is not among them."""
    # Missing is no category, also where the encoder lists it as the last one.
    codes = {
        value: code for code, value in enumerate(categories) if not is_missing(value)
    }
    return np.array([codes.get(cell, np.nan) for cell in cells], dtype=np.float64)
