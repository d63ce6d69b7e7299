"""A database as a source of features: one query for each group and batch of rows."""

import sys
from collections.abc import Mapping
from numbers import Integral

import numpy as np

# What stands for a value in a query, by the style that a DB-API module says it has.
_PLACEHOLDERS = {
    "qmark": "?",
    "format": "%s",
    "pyformat": "%s",
    "numeric": ":{0}",
    "numeric_dollar": "${0}",
    "named": ":{0}",
}


class SqlSource:
    """See :meth:`LazyFeatures.from_sql`.

    Attributes
    ----------
    keys : list
        Key of each row.
    group_of : dict from str to str
        The query that selects each column.
    """

    def __init__(self, connection, queries, keys, max_keys):
        if not isinstance(queries, Mapping) or not queries:
            raise ValueError(
                "queries must be a mapping from group to SQL query, with at least one, got "
                f"{type(queries).__name__}."
            )
        if not isinstance(max_keys, Integral) or max_keys < 1:
            raise ValueError(f"max_keys must be a positive integer, got {max_keys!r}.")
        # Drivers take Python's own numbers.
        keys = keys if isinstance(keys, list) else np.asarray(keys)
        if np.ndim(keys) != 1 or not len(keys):
            raise ValueError(
                f"keys must have one axis and at least one key, got shape {np.shape(keys)}."
            )
        if getattr(keys, "dtype", np.dtype(object)).kind == "M":
            # Of finer times numpy makes whole numbers.
            keys = keys.astype("datetime64[us]")
        self.keys = [key.item() if isinstance(key, np.generic) else key for key in keys]
        self.connection, self.queries, self.max_keys = connection, dict(queries), int(max_keys)
        self._placeholder = _placeholder(connection)
        self.group_of, self.key_names = {}, {}
        for group, query in self.queries.items():
            if not isinstance(query, str) or "{keys}" not in query:
                raise ValueError(
                    f"queries[{group!r}] must be an SQL query with {{keys}} in it, where the "
                    "list of keys goes."
                )
            names, _ = self._run(group, "NULL", [])
            self.key_names[names[0]] = group
            for name in names[1:]:
                if name in self.group_of:
                    raise ValueError(
                        f"queries select column {name!r} in {self.group_of[name]!r} and in "
                        f"{group!r}; a column belongs to one group."
                    )
                self.group_of[name] = group

    def _run(self, group, holders, parameters):
        """Names of the columns and rows of one query."""
        connection = self.connection
        query = self.queries[group].replace("{keys}", holders)
        asked = connection if hasattr(connection, "execute") else connection.cursor()
        try:
            done = asked.execute(query, parameters) if parameters else asked.execute(query)
            cursor = done if hasattr(done, "fetchall") else asked
            return [column[0] for column in cursor.description], cursor.fetchall()
        except Exception as error:
            error.add_note(f"This happened in the query of {group!r} for {len(parameters)} keys.")
            raise

    def __call__(self, columns, rows):
        """Cells of columns of rows, None where a query found no row."""
        if missing := [column for column in columns if column not in self.group_of]:
            first = next((name for name in missing if name in self.key_names), None)
            why = (
                ""
                if first is None
                else (
                    f" {first!r} is what queries[{self.key_names[first]!r}] selects first, and the "
                    "first column is the key: select the key before it."
                )
            )
            raise ValueError(
                f"queries select no column {missing!r}; they select {list(self.group_of)!r}.{why}"
            )
        keys = [self.keys[row] for row in rows]
        different = list(dict.fromkeys(keys))
        cells = np.full((len(rows), len(columns)), None, dtype=object)
        for group in dict.fromkeys(self.group_of[column] for column in columns):
            own = [at for at, column in enumerate(columns) if self.group_of[column] == group]
            found = self._of_group(group, different, [columns[at] for at in own])
            nothing = (None,) * len(own)
            for at, key in enumerate(keys):
                cells[at, own] = found.get(key, nothing)
        return cells

    def _of_group(self, group, keys, columns):
        """Cells of columns by key."""
        found = {}
        for begin in range(0, len(keys), self.max_keys):
            part = keys[begin : begin + self.max_keys]
            holders = ", ".join(self._placeholder.format(k) for k in range(1, len(part) + 1))
            names, rows = self._run(group, holders, part)
            places = [names.index(column) for column in columns]
            known = set(part)
            if other := [row[0] for row in rows if row[0] not in known]:
                asked = sorted({type(key).__name__ for key in part})
                raise ValueError(
                    f"The query of {group!r} returned a key that was not asked for, of type "
                    f"{type(other[0]).__name__}; keys are of type {asked!r}. The key must be the "
                    "first column, as it is in keys: convert keys, or cast it in the query."
                )
            n_before = len(found)
            found |= {row[0]: tuple(row[place] for place in places) for row in rows}
            if len(found) < n_before + len(rows):
                raise ValueError(
                    f"The query of {group!r} returned more than one row for a key. The key must "
                    "be the first column, and have one row."
                )
        return found


def _placeholder(connection):
    """What stands for a value in a query of this connection."""
    parts = type(connection).__module__.lstrip("_").split(".")
    names = [".".join(parts[: n + 1]) for n in range(len(parts))]
    styles = [getattr(sys.modules.get(name), "paramstyle", None) for name in names]
    style = next((style for style in styles if isinstance(style, str)), "qmark")
    if style not in _PLACEHOLDERS:
        raise ValueError(f"connection has the paramstyle {style!r}, which is not known.")
    return _PLACEHOLDERS[style]
