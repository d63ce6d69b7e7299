"""Tables for routers from a log with one line per call, as gateways write them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skroute.utils._frames import (
    array_of,
    cells_of,
    column_keys,
    is_missing,
    is_text,
    numbers_of,
)
from skroute.utils._optional import import_optional
from skroute.utils._typing import NDArray

# Code of a missing label, and number of a request or a choice that is dropped.
_NO_LABEL = -1
# Texts of flags, in lower case. LiteLLM writes "True", "False" and "".
_TRUE_TEXTS = ("true", "1", "yes")
_FALSE_TEXTS = ("false", "0", "no", "none", "")


@dataclass(frozen=True, eq=False)
class LogRecord:
    """The counts of what `tables_from_log` has read, merged and dropped.

    ``print(record)`` writes it as a short table.

    Attributes
    ----------
    n_lines : int
        Number of lines of the log.

    n_without_label : int
        Lines that are dropped, because their request or their choice is missing.

    n_unscored_lines : int
        Lines that are dropped, because no line of their request, or no line of their
        choice, has a score.

    n_repeated : int
        Lines that are merged with an earlier line of the same request and choice.

    n_cached : int
        Lines of cached answers, without dropped lines. Their cost and amounts are left
        out.

    n_zero_costs : int
        Lines with a cost of 0, without dropped lines. Cached answers are included.

    n_requests : int
        Number of requests, the rows of the tables.

    n_dropped_requests : int
        Requests that are dropped, because no line has a score.

    n_changed_requests : int
        Requests whose features differ between their lines. The first line is used.

    choices : list of str
        Names of the choices, the columns of the tables.

    dropped_choices : list of str
        Names of choices that are dropped, because no line has a score.

    n_scored : ndarray of shape (n_choices,), dtype=int64
        Number of requests with a score, for each choice.

    n_with_cost : ndarray of shape (n_choices,), dtype=int64
        Number of requests with a cost, for each choice.

    mean_quality, mean_cost : ndarray of shape (n_choices,)
        For each choice, mean of its scores, and of its costs. The requests differ
        between choices. NaN if there is no score or no cost.

    overlap : ndarray of shape (n_choices, n_choices), dtype=int64
        Number of requests with a score for both of two choices.

    n_by_answers : ndarray of shape (n_choices,), dtype=int64
        Number of requests with a score for 1, 2, ... choices.

    Examples
    --------
    >>> import pandas as pd
    >>> from skroute.datasets import tables_from_log
    >>> log = pd.DataFrame(
    ...     {"id": [1, 1, 2, 3], "model": list("sttt"), "score": [0, 1, 1, None]}
    ... )
    >>> record = tables_from_log(
    ...     log, request="id", choice="model", quality="score"
    ... ).record
    >>> record.n_requests, record.n_dropped_requests, record.overlap.tolist()
    (2, 1, [[1, 1], [1, 2]])
    """

    n_lines: int
    n_without_label: int
    n_unscored_lines: int
    n_repeated: int
    n_cached: int
    n_zero_costs: int
    n_requests: int
    n_dropped_requests: int
    n_changed_requests: int
    choices: list[str]
    dropped_choices: list[str]
    n_scored: NDArray[np.int64]
    n_with_cost: NDArray[np.int64]
    mean_quality: NDArray[np.float64]
    mean_cost: NDArray[np.float64]
    overlap: NDArray[np.int64]
    n_by_answers: NDArray[np.int64]

    def __str__(self):
        """Return a short table of the counts."""
        counts = [
            ("lines of the log", self.n_lines),
            ("  dropped: no request or no choice", self.n_without_label),
            ("  dropped: request or choice without a score", self.n_unscored_lines),
            ("  merged: repeated calls", self.n_repeated),
            ("  cached: cost and amounts left out", self.n_cached),
            ("  with a cost of 0", self.n_zero_costs),
            ("requests without a score, dropped", self.n_dropped_requests),
            ("requests with changing features", self.n_changed_requests),
            ("requests, the rows", self.n_requests),
        ]
        for n_answers, n_requests in enumerate(self.n_by_answers, start=1):
            counts.append((f"  choices with a score: {n_answers}", n_requests))
        lines = [f"{name:<46}{count:>10,}" for name, count in counts]
        width = max([len(name) for name in [*self.choices, "choice"]]) + 2
        lines.append("")
        lines.append(
            f"{'choice':<{width}}{'scored':>8}{'share':>8}{'quality':>9}"
            f"{'with cost':>11}{'mean cost':>12}"
        )
        for position, name in enumerate(self.choices):
            n_scored = self.n_scored[position]
            share = n_scored / self.n_requests
            lines.append(
                f"{name:<{width}}{n_scored:>8,}{share:>8.1%}"
                f"{self.mean_quality[position]:>9.3f}{self.n_with_cost[position]:>11,}"
                f"{self.mean_cost[position]:>12.3g}"
            )
        if self.dropped_choices:
            lines.append("without a score, dropped: " + ", ".join(self.dropped_choices))
        return "\n".join(lines)


class OneAnswer(NamedTuple):
    """A log of one answer per request, for ``fit(X, quality, choice=choice)``.

    Attributes
    ----------
    choice : ndarray of shape (n_requests,), dtype=object
        Name of the choice that answered.

    quality : ndarray of shape (n_requests,), dtype=float64
        Score of the answer.

    cost : ndarray of shape (n_requests,), dtype=float64
        Cost of the answer. NaN if it is not known.
    """

    choice: NDArray[Any]
    quality: NDArray[np.float64]
    cost: NDArray[np.float64]


class LogTables(NamedTuple):
    """Tables with one row per request, see `tables_from_log`.

    Attributes
    ----------
    X : dataframe of shape (n_requests, n_features) or ndarray of shape (n_requests,)
        Features of the requests. An array if `features` is one name.

    Q : dataframe of shape (n_requests, n_choices)
        Quality of each choice. NaN if it is not known.

    C : dataframe of shape (n_requests, n_choices)
        Cost of each choice. NaN if it is not known.

    amounts : dict from str to dataframe of shape (n_requests, n_choices)
        Further amounts, by the name of their column. NaN if they are not known.

    requests : ndarray of shape (n_requests,), dtype=object
        Labels of the requests, in the order of the log.

    record : LogRecord
        Counts of what was read, merged and dropped.
    """

    X: Any
    Q: Any
    C: Any
    amounts: dict[str, Any]
    requests: NDArray[Any]
    record: LogRecord

    def one_answer(self) -> OneAnswer:
        """Return the choice, quality and cost of the only answer of each request.

        Returns
        -------
        OneAnswer
            Named tuple ``(choice, quality, cost)``, for ``fit(X, quality,
            choice=choice, costs=cost)``.

        Raises
        ------
        ValueError
            If a request has scores of several choices.
        """
        # Entry 0 counts the requests with a score for one choice.
        n_several = int(self.record.n_by_answers[1:].sum())
        if n_several:
            raise ValueError(
                f"{n_several} requests have scores of several choices, and this is for "
                "logs of one answer per request. Select the other requests, or give Q "
                "to fit."
            )
        quality = self.Q.to_numpy()
        # The only choice with a score.
        column = np.argmax(~np.isnan(quality), axis=1)
        row = np.arange(len(quality))
        names = np.array(self.record.choices, dtype=object)
        return OneAnswer(
            names[column], quality[row, column], self.C.to_numpy()[row, column]
        )


class _Calls(NamedTuple):
    """Calls of a log with a request and a choice, one array for each property.

    Attributes
    ----------
    line : ndarray of shape (n_calls,), dtype=int64
        Number of the line in the log.
    row, column : ndarray of shape (n_calls,), dtype=int64
        Number of the request, and of the choice: the cell of the call in a table.
    quality, cost : ndarray of shape (n_calls,)
        NaN if it is missing.
    is_cached : ndarray of shape (n_calls,), dtype=bool
        True if the answer came from a cache.
    """

    line: NDArray[np.int64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]
    quality: NDArray[np.float64]
    cost: NDArray[np.float64]
    is_cached: NDArray[np.bool_]

    def take(self, selected):
        """Return the calls of a mask, `selected` of shape (n_calls,)."""
        return _Calls(*[values[selected] for values in self])


def tables_from_log(
    log: Any,
    *,
    request: str,
    choice: str,
    quality: str,
    features: str | Sequence[str] | None = None,
    cost: str | None = None,
    cached: str | None = None,
    amounts: Sequence[str] = (),
    repeated: str = "retry",
) -> LogTables:
    """Return the tables X, Q and C from a log with one line per call.

    The rows of the tables are the requests, in the order of the log. The columns of Q
    and C are the choices, in alphabetical order. Cells without a call are NaN.

    Parameters
    ----------
    log : pandas or polars data frame
        One line per call, in order of time.

    request : str
        Column that identifies the request, for example a trace id. If several models
        answered the same prompts, it can be the prompt.

    choice : str
        Column with the name of the model that answered.

    quality : str
        Column with the score of the answer, higher is better. A missing cell is an
        answer without a score.

    features : str or sequence of str, default=None
        Columns that describe the request before the call. One name gives an array of
        its values, such as prompts. A sequence gives a data frame. None is `request`.

    cost : str, default=None
        Column with the amount billed for the call. None has no costs: C is NaN.

    cached : str, default=None
        Column with flags, True for an answer that came from a cache: booleans, or texts
        such as ``"True"``. Cost and amounts of cached answers are left out, since they
        are not those of a call. Their scores are used. If it is None, a cost of 0 is a
        cached answer, unless all costs of the choice are 0.

    amounts : sequence of str, default=()
        Further columns with numbers per call, such as seconds and tokens.

    repeated : {"retry", "draw"}, default="retry"
        Meaning of several calls of the same request and choice. ``"retry"``: a call
        failed and was made again. Costs and amounts are summed, and the last score
        counts. ``"draw"``: each call is a separate answer. Means of scores, costs and
        amounts are taken.

    Returns
    -------
    LogTables
        Named tuple ``(X, Q, C, amounts, requests, record)``. ``print(tables.record)``
        says what was merged and dropped, and how the choices overlap.

    Raises
    ------
    TypeError
        If `log` is not a data frame of pandas or polars.
    ValueError
        If a column does not exist, does not hold numbers or flags, if a cost is
        negative, or if no line has a request, a choice and a score.

    See Also
    --------
    skroute.routing.BudgetRouter : Router that is fitted on such tables.

    Notes
    -----
    Most logs of a service have one answer per request, and the choice was not made at
    random. A router must know this: use ``tables.one_answer()`` and ``fit(X, quality,
    choice=choice)``. In tables with several answers per request, unknown cells are
    taken as missing at random.

    Examples
    --------
    >>> import pandas as pd
    >>> from skroute.datasets import tables_from_log
    >>> log = pd.DataFrame({
    ...     "prompt": ["1 + 1?", "1 + 1?", "2 * 3?", "2 * 3?", "2 * 3?"],
    ...     "model": ["small", "large", "small", "large", "large"],
    ...     "spend": [0.1, 0.5, 0.1, 0.5, 0.5],
    ...     "score": [1.0, 1.0, 0.0, None, 1.0],
    ... })
    >>> tables = tables_from_log(
    ...     log, request="prompt", choice="model", quality="score", cost="spend"
    ... )
    >>> tables.Q
       large  small
    0    1.0    1.0
    1    1.0    0.0
    >>> tables.C
       large  small
    0    0.5    0.1
    1    1.0    0.1
    >>> tables.record.n_repeated
    1
    """
    if features is None:
        features = request  # the label of the request is its only feature
    if isinstance(features, str):
        feature_names = [features]
    else:
        feature_names = _list_of_names(features, "features")
    amounts = _list_of_names(amounts, "amounts")
    if not (isinstance(repeated, str) and repeated in ("retry", "draw")):
        raise ValueError(f'repeated must be "retry" or "draw", got {repeated!r}.')
    names = [request, choice, quality, *feature_names, *amounts]
    # None is a column that the user does not have.
    names += [name for name in (cost, cached) if name is not None]
    _check_columns(log, names)
    read = _read_calls(log, request, choice, quality, cost, cached)
    calls = read.calls
    shape = (len(read.requests), len(read.choices))  # of each table
    Q = _quality_table(calls, shape, repeated)
    C = _amount_table(calls, calls.cost, shape, repeated)
    amount_tables = {}
    for name in amounts:
        values = _numbers(log, name)[calls.line]
        table = _amount_table(calls, values, shape, repeated)
        amount_tables[name] = _frame_like(log, table, read.choices)
    # Calls are in the order of the log, so that the first call of a request has its
    # first line.
    _, first_calls = np.unique(calls.row, return_index=True)
    first_lines = calls.line[first_calls]
    n_changed = _n_changed_requests(log, feature_names, calls, first_lines)
    return LogTables(
        X=_features_of_lines(log, features, first_lines),
        Q=_frame_like(log, Q, read.choices),
        C=_frame_like(log, C, read.choices),
        amounts=amount_tables,
        requests=read.requests,
        record=_record_of(read, Q, C, n_lines=len(log), n_changed_requests=n_changed),
    )


class _ReadLog(NamedTuple):
    """Calls of a log, their requests and their choices.

    Attributes
    ----------
    calls : _Calls
        Calls whose request and choice have a score. Their `row` and `column` are
        positions in `requests` and `choices`.
    requests : ndarray of shape (n_requests,), dtype=object
        Labels of the requests with a score.
    choices, dropped_choices : list of str
        Names of the choices with a score, and without one.
    n_labelled : int
        Number of lines with a request and a choice.
    n_dropped_requests : int
        Number of requests without a score.
    """

    calls: _Calls
    requests: NDArray[Any]
    choices: list[str]
    dropped_choices: list[str]
    n_labelled: int
    n_dropped_requests: int


def _read_calls(log, request, choice, quality, cost, cached):
    """Return the calls of the requests and choices with a score (`_ReadLog`).

    The parameters after `log` are names of columns, as in `tables_from_log`. `cost` and
    `cached` may be None.
    """
    # Numbers of the request and of the choice of each line: (n_lines,)
    row_labels, row_of_line = _codes_of(log[request])
    choice_names, column_of_line = _sorted_codes_of(log[choice])
    # NaN: the user has no costs.
    costs = np.full(len(log), np.nan)
    if cost is not None:
        costs = _numbers(log, cost, may_be_negative=False)
    has_labels = (row_of_line != _NO_LABEL) & (column_of_line != _NO_LABEL)
    labelled = _Calls(
        line=np.arange(len(log)),
        row=row_of_line,
        column=column_of_line,
        quality=_numbers(log, quality),
        cost=costs,
        is_cached=_cached_lines(log, cached, costs, column_of_line),
    ).take(has_labels)
    is_scored = ~np.isnan(labelled.quality)
    if not is_scored.any():
        raise ValueError(
            f"No line of the log has {request!r}, {choice!r} and a score in "
            f"{quality!r}: there is nothing to learn from. Join the scores first."
        )
    # New numbers of the requests and choices with a score, `_NO_LABEL` for the others:
    # (n_row_labels,) and (n_choice_names,)
    new_row = _renumbered(labelled.row, is_scored, len(row_labels))
    new_column = _renumbered(labelled.column, is_scored, len(choice_names))
    renumbered = labelled._replace(
        row=new_row[labelled.row], column=new_column[labelled.column]
    )
    is_used = (renumbered.row != _NO_LABEL) & (renumbered.column != _NO_LABEL)
    choices = []
    dropped_choices = []
    for name, number in zip(choice_names, new_column):
        # The choices keep the order of `choice_names`.
        if number == _NO_LABEL:
            dropped_choices.append(name)
        else:
            choices.append(name)
    requests = np.array(row_labels, dtype=object)[new_row != _NO_LABEL]
    return _ReadLog(
        calls=renumbered.take(is_used),
        requests=requests,
        choices=choices,
        dropped_choices=dropped_choices,
        n_labelled=len(labelled.line),
        # A request whose lines all lack a choice is in `row_labels`, and is counted as
        # dropped, too.
        n_dropped_requests=len(row_labels) - len(requests),
    )


def _record_of(read, Q, C, *, n_lines, n_changed_requests):
    """Return the counts of what was read, merged and dropped (`LogRecord`).

    Parameters
    ----------
    read : _ReadLog
    Q, C : ndarray of shape (n_requests, n_choices)
        Tables of quality and cost, NaN where they are not known.
    n_lines : int
        Number of lines of the log.
    n_changed_requests : int
        Number of requests whose features differ between their lines.
    """
    calls = read.calls
    n_calls = len(calls.line)
    # For each call, a number that calls of the same request and choice share.
    pairs = calls.row * len(read.choices) + calls.column
    n_pairs = len(np.unique(pairs))
    has_score = ~np.isnan(Q)
    n_scores = has_score.sum(axis=1)  # by request
    return LogRecord(
        n_lines=n_lines,
        n_without_label=n_lines - read.n_labelled,
        n_unscored_lines=read.n_labelled - n_calls,
        n_repeated=n_calls - n_pairs,
        n_cached=int(calls.is_cached.sum()),
        n_zero_costs=int((calls.cost == 0).sum()),
        n_requests=len(read.requests),
        n_dropped_requests=read.n_dropped_requests,
        n_changed_requests=n_changed_requests,
        choices=read.choices,
        dropped_choices=read.dropped_choices,
        n_scored=has_score.sum(axis=0),
        n_with_cost=(~np.isnan(C)).sum(axis=0),
        mean_quality=_mean_of_known(Q),
        mean_cost=_mean_of_known(C),
        overlap=_overlap(Q),
        # Each request has a score, so that the count of requests with 0 scores is left
        # out.
        n_by_answers=np.bincount(n_scores, minlength=len(read.choices) + 1)[1:],
    )


# Columns ------------------------------------------------------------------------------


def _list_of_names(names, parameter):
    """Return a sequence of column names as a list, or raise a ValueError.

    `parameter` is the argument that the message names.
    """
    is_sequence = isinstance(names, Sequence) or hasattr(names, "__array__")
    if is_text(names) or not is_sequence or np.ndim(names) != 1:
        raise ValueError(
            f"{parameter} must be a sequence of names of columns, got {names!r}. Give "
            "a list."
        )
    return list(names)


def _check_columns(log, names):
    """Raise an error unless `log` is a data frame with these columns."""
    # Frames of polars have no `ndim`.
    library = type(log).__module__.partition(".")[0]
    is_data_frame = getattr(log, "ndim", None) == 2 or library == "polars"
    if column_keys(log) is None or not is_data_frame or not hasattr(log, "to_numpy"):
        raise TypeError(
            f"log must be a data frame of pandas or polars, got {type(log).__name__}."
        )
    columns = column_keys(log)
    for name in names:
        if not (isinstance(name, str) and name in columns):
            raise ValueError(
                f"The log has no column {name!r}, it has {columns!r}. Name one of them."
            )


def _numbers(log, name, *, may_be_negative=True):
    """Return a column as float64, with NaN for missing cells, or raise a ValueError.

    `name` is the name of the column in the data frame `log`.
    """
    numbers = numbers_of(log[name])
    if numbers is None:
        raise ValueError(
            f"The column {name!r} must hold numbers, and holds other values. Convert "
            "it, for example texts by astype(float)."
        )
    if np.isinf(numbers).any():
        raise ValueError(f"The column {name!r} must be finite, got infinity.")
    if not may_be_negative and (numbers < 0).any():
        smallest = float(np.nanmin(numbers))
        raise ValueError(f"The column {name!r} must be at least 0, got {smallest!r}.")
    return numbers


def _codes_of(column):
    """Return the distinct labels of a column, and the position of each cell's label.

    Returns
    -------
    labels : list
        In the order in which they first appear.
    codes : ndarray of shape (n_cells,), dtype=int64
        Position of the label of each cell in `labels`. `_NO_LABEL` is a missing cell.
    """
    codes = np.empty(len(column), np.int64)
    code_of_label = {}
    for i, cell in enumerate(cells_of(column)):
        if is_missing(cell):
            codes[i] = _NO_LABEL
        else:
            # A new label gets the next code.
            next_code = len(code_of_label)
            codes[i] = code_of_label.setdefault(_hashable(cell), next_code)
    return list(code_of_label), codes


def _hashable(cell):
    """Return a cell, or its text if the cell is a list or a mapping.

    A prompt may be a list of messages.
    """
    try:
        hash(cell)
    except TypeError:
        return str(cell)
    return cell


def _sorted_codes_of(column):
    """Return a column's labels as sorted texts, and the position of each cell's label.

    The results are as in `_codes_of`, except for their order.
    """
    labels, codes = _codes_of(column)
    names = [str(label) for label in labels]
    sorted_names = sorted(set(names))
    # By code, the position of the label in `sorted_names`.
    new_codes = np.array([sorted_names.index(name) for name in names], dtype=np.int64)
    # Cells without a label have the code -1, which reads the last entry.
    new_codes = np.append(new_codes, _NO_LABEL)
    return sorted_names, new_codes[codes]


def _cached_lines(log, cached, costs, column_of_line):
    """Return a mask of the lines that count as cached answers, by flag or by cost.

    Parameters
    ----------
    log : dataframe
    cached : str or None
        Column with flags. None: a cost of 0 is a flag, unless the choice is free.
    costs : ndarray of shape (n_lines,)
    column_of_line : ndarray of shape (n_lines,), dtype=int64
        Number of the choice. -1 is missing.

    Returns
    -------
    ndarray of shape (n_lines,), dtype=bool
    """
    if cached is not None:
        return np.array([_flag(cell, cached) for cell in cells_of(log[cached])], bool)
    # Choices with a cost above 0 on some line.
    priced_choices = np.unique(column_of_line[costs > 0])
    return (costs == 0) & np.isin(column_of_line, priced_choices)


def _flag(cell, name):
    """Return a flag as a boolean. A missing cell is False.

    `name` is the name of the column, for the message.
    """
    if is_missing(cell):
        return False
    text = str(cell).strip().lower()
    if text in _TRUE_TEXTS:
        return True
    if text in _FALSE_TEXTS:
        return False
    raise ValueError(
        f"The column {name!r} must hold True or False, got {cell!r}. Compare it with "
        "the value that means cached."
    )


# Tables -------------------------------------------------------------------------------


def _renumbered(codes, is_scored, n_labels):
    """Return new numbers of the labels with a score, from 0. Others get `_NO_LABEL`.

    Parameters
    ----------
    codes : ndarray of shape (n_calls,), dtype=int64
        Number of the label of each call.
    is_scored : ndarray of shape (n_calls,), dtype=bool
        True if the call has a score.
    n_labels : int
        Number of labels.

    Returns
    -------
    ndarray of shape (n_labels,), dtype=int64
        The new number of each label. `_NO_LABEL` is a label without a score.
    """
    new_codes = np.full(n_labels, _NO_LABEL)
    scored_codes = np.unique(codes[is_scored])
    new_codes[scored_codes] = np.arange(len(scored_codes))
    return new_codes


def _quality_table(calls, shape, repeated):
    """Return the score of each request and choice, NaN without one.

    `shape` is (n_requests, n_choices). `repeated` is that of `tables_from_log`.
    """
    is_scored = ~np.isnan(calls.quality)
    scored = calls.take(is_scored)
    if repeated == "draw":
        return _merged(scored, scored.quality, shape, "draw")
    # "retry": the last score counts.
    table = np.full(shape, np.nan)
    # If a cell is repeated, NumPy keeps the last value: that of the last call.
    table[scored.row, scored.column] = scored.quality
    return table


def _amount_table(calls, values, shape, repeated):
    """Return the table of an amount, such as cost, by request and choice.

    Cached calls are left out.

    `values` has the amount of each call, NaN if it is missing. `shape` is (n_requests,
    n_choices), and `repeated` is that of `tables_from_log`. Cells without an amount are
    NaN.
    """
    is_used = ~np.isnan(values) & ~calls.is_cached
    return _merged(calls.take(is_used), values[is_used], shape, repeated)


def _merged(calls, values, shape, repeated):
    """Return the sum ("retry") or mean ("draw") of values by request and choice.

    Parameters
    ----------
    calls : _Calls
    values : ndarray of shape (n_calls,)
        Without NaN.
    shape : tuple of int
        (n_requests, n_choices).
    repeated : {"retry", "draw"}

    Returns
    -------
    ndarray of shape (n_requests, n_choices)
        NaN for cells without a value.
    """
    n_rows, n_columns = shape
    # Number of the cell of each call, row by row.
    cell = calls.row * n_columns + calls.column
    n_values = np.bincount(cell, minlength=n_rows * n_columns)
    sums = np.bincount(cell, weights=values, minlength=n_rows * n_columns)
    table = np.full(n_rows * n_columns, np.nan)
    is_known = n_values > 0
    table[is_known] = sums[is_known]
    if repeated == "draw":
        table[is_known] /= n_values[is_known]
    return table.reshape(shape)


def _features_of_lines(log, features, lines):
    """Return the features of some lines: an array of one column, or a data frame.

    `features` is one name of a column, or a sequence of names. `lines` are numbers of
    lines, one for each request.
    """
    if isinstance(features, str):
        return array_of(cells_of(log[features])[lines].tolist())
    names = list(features)
    if hasattr(log, "iloc"):  # a frame of pandas
        return log[names].iloc[lines].reset_index(drop=True)
    return log.select(names)[lines]


def _n_changed_requests(log, names, calls, first_lines):
    """Return the number of requests whose lines differ in their features.

    A line is compared with the first line of its request.

    Parameters
    ----------
    log : dataframe
    names : list of str
        Columns of the features.
    calls : _Calls
    first_lines : ndarray of shape (n_requests,), dtype=int64
        First line of each request.
    """
    is_changed = np.zeros(len(first_lines), dtype=bool)
    for name in names:
        _, codes = _codes_of(log[name])
        first_codes = codes[first_lines]
        differs = codes[calls.line] != first_codes[calls.row]
        is_changed[calls.row[differs]] = True
    return int(is_changed.sum())


def _frame_like(log, table, names):
    """Return a table as a data frame of the library of the log.

    `table` is an array of shape (n_requests, n_choices). `names` are the choices.
    """
    columns = dict(zip(names, table.T))
    library = "pandas" if hasattr(log, "iloc") else "polars"
    return import_optional(library, "tables_from_log").DataFrame(columns)


def _mean_of_known(table):
    """Return the mean of each column over entries that are not NaN, NaN without any."""
    is_known = ~np.isnan(table)
    n_known = is_known.sum(axis=0)
    sums = np.where(is_known, table, 0.0).sum(axis=0)
    return np.divide(sums, n_known, out=np.full(len(sums), np.nan), where=n_known > 0)


def _overlap(Q):
    """Return the number of rows of `Q` with both of two choices, for each pair.

    The result has shape (n_choices, n_choices). NaN in `Q` is an unknown quality.
    """
    is_known = (~np.isnan(Q)).astype(np.int64)
    return is_known.T @ is_known
