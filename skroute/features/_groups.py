"""Groups of columns that are bought together, as parameters name them."""

from numbers import Integral
from typing import NamedTuple

import numpy as np

from skroute.base import check_costs
from skroute.utils._typing import NDArray

# In place of the group of a column: no group has named the column yet.
_NO_GROUP = -1


class RawColumns(NamedTuple):
    """Names of a pipeline's raw columns, and the group of each transformed column.

    Attributes
    ----------
    names : list
        Names of the raw columns, or their positions.

    group_of_output : ndarray of shape (n_outputs,), dtype=int
        Group of raw columns that each column of the last transformer is made from.
    """

    names: list
    group_of_output: NDArray[np.intp]


class FeatureGroupsMixin:
    """Mixin for estimators with the parameters `feature_groups` and `feature_costs`.

    After the transformers of a :class:`CostAwarePipeline`, both parameters name raw
    columns. The pipeline sets them for the time of `fit` by :meth:`_name_groups_by`.
    """

    def _name_groups_by(self, raw_columns):
        """Set the columns that `feature_groups` and `feature_costs` name.

        Parameters
        ----------
        raw_columns : RawColumns or None
            The raw columns of a pipeline. None: the columns of `fit`.
        """
        if raw_columns is None:
            vars(self).pop("_raw_columns", None)
        else:
            self._raw_columns = raw_columns

    def _set_groups(self):
        """Set the fitted attributes of the groups from the parameters.

        ``group_names_`` and ``group_costs_`` have one entry for each group.
        ``group_of_`` has the position of the group of each column of `fit`.
        """
        # Set by `_name_groups_by`. None: the parameters name the columns of `fit`.
        raw_columns = vars(self).get("_raw_columns")
        if raw_columns is None:
            self.group_names_, group_of = self._read_groups(self._column_names())
        else:
            self.group_names_, _ = self._read_groups(raw_columns.names)
            group_of = raw_columns.group_of_output
        self.group_of_ = np.asarray(group_of).astype(np.intp)
        self.group_costs_ = self._group_costs(self.group_names_)

    def _group_costs(self, group_names):
        """Return the cost of each group, shape (n_groups,)."""
        if self.feature_costs is None:
            # Each group costs 1.
            return np.ones(len(group_names))
        return check_costs(self.feature_costs, group_names, name="feature_costs")

    def _read_groups(self, names):
        """Return the names of the groups, and the group of each column.

        Parameters
        ----------
        names : sequence of str or int
            Names of the columns, or their positions.

        Returns
        -------
        group_names : list

        group_of : ndarray of int of shape (n_columns,)
            Position of the group of each column among `group_names`.
        """
        names = list(names)
        # None: each column is a group of its own.
        if self.feature_groups is None:
            return names, np.arange(len(names))
        group_names = list(self.feature_groups)
        group_of = np.full(len(names), _NO_GROUP)
        for group, (group_name, columns) in enumerate(self.feature_groups.items()):
            for column in columns:
                position = position_of(
                    column, names, where=f"feature_groups[{group_name!r}]"
                )
                first_group = group_of[position]
                if first_group != _NO_GROUP:
                    first_name = group_names[first_group]
                    raise ValueError(
                        f"feature_groups has column {column!r} in {first_name!r} and "
                        f"in {group_name!r}; a column belongs to one group."
                    )
                group_of[position] = group
        left_out = [names[column] for column in np.flatnonzero(group_of == _NO_GROUP)]
        if left_out:
            raise ValueError(
                f"feature_groups leaves out {left_out!r}. Every column belongs to a "
                "group; a column that is bought alone is a group of one."
            )
        empty = [
            group_name
            for group, group_name in enumerate(group_names)
            if not (group_of == group).any()
        ]
        if empty:
            raise ValueError(f"feature_groups has no column in {empty!r}.")
        return group_names, group_of

    def _column_names(self):
        """Return the names of the columns that `fit` saw, or their positions."""
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return list(range(self.n_features_in_))
        return names.tolist()

    def _position(self, column, where):
        """Return the position of a column that `fit` saw, by its name or position."""
        return position_of(column, self._column_names(), where=where)


def position_of(column, names, *, where):
    """Return the position of a column, which is given by name or by position.

    Parameters
    ----------
    column : str or int
        A number is a position only if no column has it as its name.

    names : list
        Names of all columns, or their positions.

    where : str
        The parameter that names the column, for the message.

    Returns
    -------
    int
    """
    if column in names:
        return names.index(column)
    if isinstance(column, Integral) and 0 <= column < len(names):
        return int(column)
    # The name of an encoded column contains the name of the raw column. The user may
    # mean the encoded column.
    similar = [name for name in names if isinstance(name, str) and str(column) in name]
    hint = ""
    if similar:
        hint = f" Is it encoded in {similar!r}? Then name these."
    raise ValueError(
        f"{where} names column {column!r}, which is not among {names!r}.{hint}"
    )
