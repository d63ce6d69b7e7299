"""Groups of columns that are bought together, as an estimator's parameters name them."""

from contextlib import contextmanager
from numbers import Integral

import numpy as np

from skroute.base import check_costs


class FeatureGroupsMixin:
    """Mixin for estimators with the parameters `feature_groups` and `feature_costs`.

    Before a transformer, groups name the raw columns: a :class:`CostAwarePipeline` then says
    which group each column of its output is made of.
    """

    @contextmanager
    def _made_of(self, raw_names, group_of):
        """Groups name raw columns while this lasts; `group_of` is of the columns seen."""
        self._made_from = raw_names, group_of
        try:
            yield
        finally:
            del self._made_from

    def _set_groups(self):
        """``group_of_``, ``group_costs_``, ``group_names_`` from the parameters."""
        names, made_of = vars(self).get("_made_from", (self._column_names(), None))
        self.group_names_, group_of = self._read_groups(names)
        group_of = group_of if made_of is None else made_of
        self.group_of_ = np.asarray(group_of).astype(np.intp)
        self.group_costs_ = self._group_costs(self.group_names_)

    def _group_costs(self, group_names):
        if self.feature_costs is None:
            return np.ones(len(group_names))
        return check_costs(self.feature_costs, group_names, name="feature_costs")

    def _read_groups(self, names):
        """Names of the groups of some columns, and the group of each column."""
        names = list(names)
        if self.feature_groups is None:
            return names, np.arange(len(names))
        group_names = list(self.feature_groups)
        group_of = np.full(len(names), -1)
        for index, (group, columns) in enumerate(self.feature_groups.items()):
            for column in columns:
                position = position_of(column, names, f"feature_groups[{group!r}]")
                if group_of[position] >= 0:
                    raise ValueError(
                        f"feature_groups has column {column!r} in "
                        f"{group_names[group_of[position]]!r} and in {group!r}; a column "
                        "belongs to one group."
                    )
                group_of[position] = index
        if (group_of < 0).any():
            left_out = [names[i] for i in np.flatnonzero(group_of < 0)]
            raise ValueError(
                f"feature_groups leaves out {left_out!r}. Every column belongs to a group; a "
                "column that is bought alone is a group of one."
            )
        if empty := [
            name for i, name in enumerate(group_names) if not (group_of == i).any()
        ]:
            raise ValueError(f"feature_groups has no column in {empty!r}.")
        return group_names, group_of

    def _column_names(self):
        names = getattr(self, "feature_names_in_", None)
        return list(range(self.n_features_in_)) if names is None else names.tolist()

    def _position(self, column, where):
        """Position of a column given by name or position."""
        return position_of(column, self._column_names(), where)


def position_of(column, names, where):
    """Position of a column given by name or position."""
    if column in names:
        return names.index(column)
    if isinstance(column, Integral) and 0 <= column < len(names):
        return int(column)
    renamed = [name for name in names if isinstance(name, str) and str(column) in name]
    hint = f" Is it encoded in {renamed!r}? Then name these." if renamed else ""
    raise ValueError(
        f"{where} names column {column!r}, which is not among {names!r}.{hint}"
    )
