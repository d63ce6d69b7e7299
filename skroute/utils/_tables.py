"""Results as tables: as text to read, and as a data frame to compute with.

A record of results makes a `Table`. Its ``__repr__`` is the text of the table, and its
``to_frame`` the data frame, which has one row for each thing (a budget, a choice, an
operating point). The frame has the numbers as they were computed, NaN and infinity
included. The text has a word in place of both.
"""

import textwrap
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from skroute.utils._optional import import_optional

# Width of a printed table in characters. Columns that do not fit stand in a further
# block of lines below.
_WIDTH = 88
# Spaces before each line below the title.
_INDENT = "  "
# Number of choices that have a column in a text. The others share one column, see
# `choice_columns`.
_MAX_CHOICES = 5
# Largest number of rows of a text. The text of a longer table has the first rows and
# the last ones.
_MAX_ROWS = 20
# Spaces between two columns of a text.
_GAP = "  "
# Printed in place of the rows that a text leaves out.
_ELLIPSIS = "..."
# Significant digits of a number in a text.
_DIGITS = 4
# Significant digits of a cost in the repr of an estimator.
_COST_DIGITS = 6
# A number from here on is printed without decimals, and with commas.
_LARGE = 1e3
# A number from here on is printed in scientific notation. It is too large for an amount
# of money.
_HUGE = 1e15
# A smaller number is a rounding error of a zero.
_ROUNDED_TO_ZERO = 1e-14


class Column(NamedTuple):
    """A column of a `Table`: its entries in the data frame and in the printed text.

    Attributes
    ----------
    name : str
        Name in the frame.

    values : sequence of n_rows entries
        The entries of the frame.

    label : str, default=None
        Name in the text. None takes `name`, with spaces in place of underscores.

    unit : str, default=""
        Unit of the values, for the text.

    texts : sequence of n_rows str, default=None
        The entries of the text. None formats the values.

    missing : str, default="unknown"
        Word for NaN and None in the text.

    infinite : str, default="unlimited"
        Word for infinity in the text.

    in_text, in_frame : bool, default=True
        False for a column that is left out of the text, or of the frame.
    """

    name: str
    values: Any
    label: str | None = None
    unit: str = ""
    texts: Any = None
    missing: str = "unknown"
    infinite: str = "unlimited"
    in_text: bool = True
    in_frame: bool = True

    def entries(self):
        """Return the entries of the text, one str for each row."""
        if self.texts is not None:
            return list(self.texts)
        words = {"missing": self.missing, "infinite": self.infinite}
        return [format_value(value, **words) for value in self.values]


class Table(NamedTuple):
    """A table of results that is printed as text or converted to a data frame.

    Attributes
    ----------
    title : str
        First line of the text.

    columns : list of Column
        All have the same number of rows.

    notes : sequence of str, default=()
        Lines below the text.
    """

    title: str
    columns: list[Column]
    notes: Any = ()

    def __str__(self):
        columns = [column for column in self.columns if column.in_text]
        if columns and len(columns[0].values) == 1:
            lines = _lines_of_single_row(columns)
        else:
            lines = _lines_of_rows(columns)
        notes = []
        for note in self.notes:
            notes.extend(_wrapped(note, indent=_INDENT))
        return "\n".join([self.title, *lines, *notes])

    def to_frame(self):
        """Return the columns as a pandas data frame."""
        pandas = import_optional("pandas", "to_frame")
        values = {}
        for column in self.columns:
            if column.in_frame:
                values[column.name] = list(column.values)
        return pandas.DataFrame(values)


class RecordList(list):
    """List of named tuples of one type that prints as a table.

    Parameters
    ----------
    records : sequence of NamedTuple
    title : str
        First line of the text.
    labels : dict from str to str, default=None
        Labels of fields in the text. A field that is not in it has its own name.
    hidden : sequence of str, default=()
        Fields that are in the frame, but not in the text.
    """

    def __init__(self, records, title, *, labels=None, hidden=()):
        super().__init__(records)
        self.title = title
        self.labels = labels or {}
        self.hidden = hidden

    def _table(self):
        """Return the records, at least one, as a `Table`: one column for each field."""
        columns = []
        for field in self[0]._fields:
            values = [getattr(record, field) for record in self]
            columns.append(
                Column(
                    field,
                    values,
                    label=self.labels.get(field),
                    in_text=field not in self.hidden,
                )
            )
        return Table(self.title, columns)

    def __repr__(self):
        """Return the table as text."""
        return str(self._table()) if self else f"{self.title}: none"

    def to_frame(self):
        """Return the records as a pandas data frame, one row for each.

        An empty list gives a frame without rows and columns.
        """
        if not self:
            return import_optional("pandas", "to_frame").DataFrame()
        return self._table().to_frame()


def frame_of_record(fields):
    """Return a data frame of one row, with the fields of a record as columns.

    Parameters
    ----------
    fields : mapping from str to object

    Returns
    -------
    pandas.DataFrame
    """
    columns = [Column(name, [value]) for name, value in fields.items()]
    return Table("", columns).to_frame()


def format_value(value, *, missing="unknown", infinite="unlimited"):
    """Return a value as a short text for a cell of a table.

    Parameters
    ----------
    value : object
        A number, a bool, None, or anything with a text.
    missing, infinite : str
        Words for NaN or None, and for infinity. Minus infinity is the word for infinity
        with a minus sign.

    Returns
    -------
    str
    """
    if value is None:
        return missing
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)):
        return _format_float(float(value), missing=missing, infinite=infinite)
    return str(value)


def _format_float(number, *, missing, infinite):
    """Return a number as a short text: see `format_value`."""
    if np.isnan(number):
        return missing
    if np.isinf(number):
        return infinite if number > 0 else f"-{infinite}"
    size = abs(number)
    if size < _ROUNDED_TO_ZERO:
        return "0"
    if _LARGE <= size < _HUGE:
        return f"{number:,.0f}"
    return f"{number:.{_DIGITS}g}"


def format_interval(estimate, low, high, *, missing="unknown"):
    """Return an estimate with the ends of its interval, unless they are NaN.

    Parameters
    ----------
    estimate, low, high : float
        The estimate, and the ends of its interval. NaN ends are not known.
    missing : str
        Word for an estimate that is NaN.

    Returns
    -------
    str
    """
    text = format_value(estimate, missing=missing)
    if np.isnan(low) or np.isnan(high):
        return text
    return f"{text} ({format_value(low)} to {format_value(high)})"


def share_column(name, shares, *, label=None, whole="rows", missing="unknown"):
    """Return a column of shares: numbers up to 1 in the frame, per cent in the text.

    Parameters
    ----------
    name : str
        Name in the frame.
    shares : sequence of float
        NaN is unknown.
    label : str or None
        As in `Column`.
    whole : str
        Plural noun for the things that are counted. The unit is "% of `whole`".
    missing : str
        Word for NaN in the text.

    Returns
    -------
    Column
    """
    texts = [missing if np.isnan(share) else f"{100 * share:.1f}" for share in shares]
    return Column(name, shares, label=label, unit=f"% of {whole}", texts=texts)


def choice_columns(choices, route_share):
    """Return columns with the share of the rows on which each choice was made.

    Parameters
    ----------
    choices : sequence of str
        Names of the choices.
    route_share : ndarray of shape (n_budgets, n_choices)
        Share of the rows on which each choice is made, at each budget.

    Returns
    -------
    list of Column
        The frame has all choices as ``share_<name>``. The text has the choices that
        were made most, and one column for the others.
    """
    shares = np.asarray(route_share)
    total_shares = shares.sum(axis=0)  # over the budgets
    n_used = int((total_shares > 0).sum())
    # If only one choice exceeds the maximum, it has a column, too. A column of "1
    # others" would be as wide.
    n_shown = n_used if n_used <= _MAX_CHOICES + 1 else _MAX_CHOICES
    # Positions of the choices, the most frequent one first.
    by_share = np.argsort(-total_shares, kind="stable")
    is_shown = np.zeros(len(total_shares), dtype=bool)
    is_shown[by_share[:n_shown]] = True
    columns = []
    for position, name in enumerate(choices):
        column = share_column(f"share_{name}", shares[:, position], label=str(name))
        columns.append(column._replace(in_text=bool(is_shown[position])))
    if n_used > n_shown:
        rest = shares[:, ~is_shown].sum(axis=1)
        column = share_column("others", rest, label=f"{n_used - n_shown} others")
        columns.append(column._replace(in_frame=False))
    return columns


def note_of_unused(choices, route_share):
    """Return a list with a line about choices made at no budget, or an empty list.

    Parameters
    ----------
    choices, route_share
        As in `choice_columns`.

    Returns
    -------
    list of str
        One line, or none if every choice was made.
    """
    is_used = (np.asarray(route_share) > 0).any(axis=0)
    unused = [name for name, used in zip(choices, is_used) if not used]
    if not unused:
        return []
    return [f"Never chosen: {list_names(unused)}."]


def list_names(names):
    """Return names as one text, separated by commas; "none" if there are none."""
    if not len(names):
        return "none"
    return ", ".join(str(name) for name in names)


def _lines_of_single_row(columns):
    """Return the lines for the columns of a table that has one row."""
    label_width = max(len(_label(column)) for column in columns)
    lines = []
    for column in columns:
        # The only row.
        entry = column.entries()[0]
        if column.unit and _has_number(entry):
            entry = f"{entry} {column.unit}"
        label = _label(column).ljust(label_width)
        heading = f"{_INDENT}{label}{_GAP}"
        lines.extend(_wrapped(entry, indent=" " * len(heading), heading=heading))
    return lines


def _wrapped(text, *, indent, heading=None):
    """Return a text as lines that are not too wide.

    Parameters
    ----------
    text : str
    indent : str
        Spaces before each line.
    heading : str or None
        Start of the first line, in place of `indent`.
    """
    return textwrap.wrap(
        text,
        width=_WIDTH,
        initial_indent=indent if heading is None else heading,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _has_number(entry):
    """Return True if an entry has a digit: a unit may follow it, but not a word."""
    return any(character.isdigit() for character in entry)


def _lines_of_rows(columns):
    """Return a heading of names and units, and a line for each row.

    Columns that do not fit stand in a further block, next to the first column.

    Parameters
    ----------
    columns : list of Column
        At least one.

    Returns
    -------
    list of str
    """
    has_units = any(column.unit for column in columns)
    cells = []  # one list of str for each column, all of the same length
    for column in columns:
        heading_cells = [_label(column)]
        if has_units:
            heading_cells.append(column.unit)
        cells.append([*heading_cells, *_shortened(column.entries())])
    lines = []
    first_column, *further = cells
    if not further:
        # There is no column next to the first one.
        lines.extend(_lines_of_block([first_column]))
    while further:
        n_fitting = _number_that_fits(first_column, further)
        lines.extend(_lines_of_block([first_column, *further[:n_fitting]]))
        further = further[n_fitting:]
    if not len(columns[0].values):
        lines.append(f"{_INDENT}(no rows)")
    return lines


def _number_that_fits(first_column, further):
    """Return the number of further columns that fit next to the first, at least 1.

    Parameters
    ----------
    first_column : list of str
        The cells of the column.
    further : list of list of str
        The cells of each further column.

    Returns
    -------
    int
    """
    width = len(_INDENT) + _width_of(first_column)
    for n_fitting, cells in enumerate(further):
        width += len(_GAP) + _width_of(cells)
        if width > _WIDTH:
            # A column that is too wide alone has a block, too.
            return max(n_fitting, 1)
    return len(further)


def _width_of(cells):
    """Return the number of characters of the longest cell."""
    return max(len(cell) for cell in cells)


def _lines_of_block(columns):
    """Return the lines of some columns, each a list of str of the same length."""
    widths = [_width_of(cells) for cells in columns]
    lines = []
    for row in zip(*columns):
        # The first column names the row, and is aligned to the left. The other cells
        # are aligned to the right.
        parts = [f"{row[0]:<{widths[0]}}"]
        for cell, width in zip(row[1:], widths[1:]):
            parts.append(f"{cell:>{width}}")
        lines.append((_INDENT + _GAP.join(parts)).rstrip())
    return lines


def _label(column):
    """Return the name of a column in a text."""
    if column.label is not None:
        return column.label
    return column.name.replace("_", " ")


def _shortened(entries):
    """Return the entries that a text shows, with an ellipsis for those left out."""
    if len(entries) <= _MAX_ROWS:
        return entries
    # As many rows from the start as from the end.
    n_half = _MAX_ROWS // 2
    return [*entries[:n_half], _ELLIPSIS, *entries[-n_half:]]


def printed_estimator(estimator, indent=0):
    """Return an object whose repr is the estimator's repr with short costs.

    The costs are in the order of the choices. scikit-learn sorts the names of a dict,
    and prints all digits.

    Parameters
    ----------
    estimator : estimator
        `costs` may be one of its constructor parameters.
    indent : int, default=0
        Number of characters that stand before its name in the line.

    Returns
    -------
    BaseEstimator
        It has the name and the parameters of the estimator.
    """
    estimator_class = type(estimator)
    # scikit-learn finds the names of the parameters in the signature of `__init__`.
    constructor = {"__init__": estimator_class.__init__}
    plain_class = type(estimator_class.__name__, (BaseEstimator,), constructor)
    # Without a call of `__init__`: the parameters are copied.
    shown = plain_class.__new__(plain_class)
    vars(shown).update(estimator.get_params(deep=False))
    costs = getattr(shown, "costs", None)
    if isinstance(costs, dict):
        # The order of the choices, `choices_`, is there after `fit` only.
        names = [name for name in getattr(estimator, "choices_", ()) if name in costs]
        if len(names) < len(costs):
            # Before `fit`, or if a cost has no choice: the order of the dict.
            names = list(costs)
        ordered_costs = {name: costs[name] for name in names}
        # The characters before the first name: "Router(costs={".
        indent += len(f"{estimator_class.__name__}(costs={{")
        shown.costs = _CostText(ordered_costs, indent=indent)
    elif isinstance(costs, (list, tuple)):
        shown.costs = _CostText(dict(enumerate(costs)), has_names=False)
    return shown


class _CostText:
    """Text of costs: short numbers in a fixed order, with or without names.

    Parameters
    ----------
    costs : dict from str or int to object
        Costs by the names of the choices, or by their positions.
    has_names : bool, default=True
        False if the keys are positions, which are not printed.
    indent : int, default=0
        Number of characters before the text in its first line. Further lines begin with
        as many spaces.
    """

    def __init__(self, costs, *, has_names=True, indent=0):
        self.costs = costs
        self.has_names = has_names
        self.indent = indent

    def __repr__(self):
        numbers = [_short_number(cost) for cost in self.costs.values()]
        if not self.has_names:
            return f"[{', '.join(numbers)}]"
        items = [f"{name!r}: {text}" for name, text in zip(self.costs, numbers)]
        text = "{" + ", ".join(items) + "}"
        if self.indent + len(text) > _WIDTH:
            separator = ",\n" + " " * self.indent
            text = "{" + separator.join(items) + "}"
        return text


def _short_number(cost):
    """Return a cost as a text with few digits, and any other object as its repr."""
    if isinstance(cost, (int, np.integer)):
        return str(int(cost))
    if isinstance(cost, (float, np.floating)):
        return f"{cost:.{_COST_DIGITS}g}"
    return repr(cost)
