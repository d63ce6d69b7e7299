"""The log: quality and cost of each choice on each row, from which routers learn.

A log comes from a table of outcomes (`read_table`), from one answer per request
(`read_answers`), or from the out-of-fold answers of members. This file also checks
names of choices, their costs, and the choices that a call excludes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from skroute.base import check_costs
from skroute.base._inspection import ABSTAIN_NAME, is_abstaining
from skroute.quality._log_arguments import read_choice, read_propensity, read_values
from skroute.quality._logged import (
    as_numbers,
    estimate_cells,
    estimate_propensities,
    folds_of_log,
    with_text_lengths,
)
from skroute.quality._overlap import (
    Agreement,
    effective_size,
    lack_of_overlap,
    never_matched,
)
from skroute.utils._compat import num_samples
from skroute.utils._frames import column_keys
from skroute.utils._named import by_label, in_order, made_up_names
from skroute.utils._tables import Column, Table, list_names, share_column
from skroute.utils._typing import NDArray
from skroute.utils._validation import check_numbers

# A choice must have a known quality on this many rows, or nothing can be learned of it.
_FEWEST_ROWS = 2
# Divisor in place of the total weight of a choice without known cells, which is 0. The
# dividend is 0, too, so that the result is 0 and not NaN.
_TINY = 1e-300

# The records --------------------------------------------------------------------------


class Overlap(NamedTuple):
    """Counts of rows on which a log of one answer per request agrees with a policy.

    Attributes
    ----------
    choices : list of str
        Names of the choices, in the order of the arrays.

    n_rows : ndarray of shape (n_choices,), dtype=int64
        Logged answers of each choice.

    effective_sample_size : ndarray of shape (n_choices,), dtype=float64
        ``(sum w)^2 / sum w^2`` over the logged answers of each choice, with
        ``w = 1 / propensity``. An estimate from this many rows of equal weight would be
        as precise.

    max_weight : ndarray of shape (n_choices,), dtype=float64
        The largest ``1 / propensity`` of these rows, which is the largest number of
        rows that one row stands for.

    needed : ndarray of shape (n_choices,), dtype=float64
        Share of the rows that the policy sends to each choice.

    matched : ndarray of shape (n_choices,), dtype=int64
        Number of these rows on which the log made the same choice.

    mean_weight : ndarray of shape (n_choices,), dtype=float64
        Mean over the rows that the policy sends to each choice: ``1 / propensity`` if
        the log made the same choice, else 0. It is 1, but for noise, if the log could
        make the choice on all these rows. If it is less, it is the share of these rows
        on which the log could make it. NaN for a choice that the policy does not make.

    never : list of str
        Choices that the log never made on the rows where the policy makes them. Their
        quality there is extrapolated.

    estimated : bool
        True if propensities are estimates.

    lack : str or None
        Why the log cannot say how good the policy is, by the test that
        :func:`~skroute.metrics.off_policy_curve` makes. None if it can.
    """

    choices: list[str]
    n_rows: NDArray[np.int64]
    effective_sample_size: NDArray[np.float64]
    max_weight: NDArray[np.float64]
    needed: NDArray[np.float64]
    matched: NDArray[np.int64]
    mean_weight: NDArray[np.float64]
    never: list[str]
    estimated: bool
    lack: str | None

    def __repr__(self) -> str:
        return str(self._table())

    def to_frame(self) -> Any:
        """Return the overlap as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row for each choice, with the columns ``choice``, ``n_rows``,
            ``effective_sample_size``, ``max_weight``, ``needed``, ``matched`` and
            ``mean_weight``.
        """
        return self._table().to_frame()

    def _table(self):
        """Return the overlap of each choice as a `Table`."""
        propensities = "estimated" if self.estimated else "given"
        notes = []
        if self.never:
            names = list_names(self.never)
            notes.append(f"Never logged where the policy chooses them: {names}.")
        if self.lack is not None:
            notes.append(f"The log cannot judge the policy: {self.lack}")
        return Table(
            f"Overlap of log and policy, propensities {propensities}",
            [
                Column("choice", self.choices),
                Column("n_rows", self.n_rows, label="logged", unit="rows"),
                Column(
                    "effective_sample_size",
                    self.effective_sample_size,
                    label="effective",
                    unit="rows",
                ),
                Column("max_weight", self.max_weight, unit="rows"),
                share_column("needed", self.needed),
                Column("matched", self.matched, unit="rows"),
                Column(
                    "mean_weight",
                    self.mean_weight,
                    unit="1 is best",
                    missing="not chosen",
                ),
            ],
            notes=notes,
        )


class KnownCells(NamedTuple):
    """A table by row and choice of which some cells are known, and their weights.

    Attributes
    ----------
    table : ndarray of shape (n_rows, n_choices)
        NaN where a cell is not known.
    weight : ndarray of shape (n_rows, n_choices)
        Number of rows that each known cell stands for. 0 where a cell is not known.
    noise : float
        Mean weight of the known cells. Means over rows have a variance that is larger
        by this factor than means of a complete table.
    """

    table: np.ndarray
    weight: np.ndarray
    noise: float

    def with_last(self, value):
        """Return the table with one more choice, whose value is `value` on all rows."""
        return KnownCells(
            table=with_last(self.table, value),
            weight=with_last(self.weight, 1.0),
            noise=self.noise,
        )

    def agreement(self, choices):
        """Return how often the log made the `Choices` of a policy (`Agreement`)."""
        return Agreement(
            needed=choices.totals(np.ones(self.weight.shape)),
            matched=choices.totals((self.weight > 0).astype(np.float64)),
            made=np.count_nonzero(self.weight, axis=0),
            weight=choices.mean(self.weight),
        )

    def has_overlap(self, names):
        """Return for each choice True if its mean over all rows can be estimated.

        Parameters
        ----------
        names : list of str
            The choices.

        Returns
        -------
        ndarray of shape (n_choices,), dtype=bool
        """
        n_rows = len(self.weight)
        n_made = np.count_nonzero(self.weight, axis=0)
        has_overlap = np.empty(len(names), dtype=bool)
        for choice in range(len(names)):
            # The policy that makes this choice on all rows.
            is_choice = np.arange(len(names)) == choice
            # Counts of the other choices are 0.
            agreement = Agreement(
                needed=n_rows * is_choice,
                matched=n_made * is_choice,
                made=n_made,
                weight=self.weight[:, choice],
            )
            # None: the log lacks nothing to judge this policy.
            has_overlap[choice] = lack_of_overlap(agreement, names) is None
        return has_overlap

    def doubly_robust(self, estimate):
        """Return estimates of all cells, corrected by weighted errors of known cells.

        Their means over rows have no bias if the weights or the estimates are right.
        `estimate` has the shape (n_rows, n_choices), as the result.
        """
        return estimate + self.weight * self._errors(estimate)

    def error_deviation(self, estimate, row_weight=None):
        """Return the standard deviation of the error of each choice's estimates.

        Parameters
        ----------
        estimate : ndarray of shape (n_rows, n_choices)
        row_weight : ndarray of shape (n_rows,), default=None
            Weights of the rows. None weights all alike.

        Returns
        -------
        ndarray of shape (n_choices,)
            Over the known cells.
        """
        error = self._errors(estimate)  # (n_rows, n_choices)
        weight = self.weight
        if row_weight is not None:
            weight = weight * row_weight[:, np.newaxis]
        total = np.maximum(weight.sum(axis=0), _TINY)
        mean = (weight * error).sum(axis=0) / total
        return np.sqrt((weight * (error - mean) ** 2).sum(axis=0) / total)

    def _errors(self, estimate):
        """Return outcomes less estimates, and 0 where a cell is not known."""
        return np.where(self.weight > 0, self.table - estimate, 0.0)


@dataclass(frozen=True)
class Log:
    """Quality and cost of each choice on each row.

    Attributes
    ----------
    names : list of str
        The choices, which are the columns of the tables.
    quality : ndarray of shape (n_rows, n_choices)
        NaN where it is not known.
    paid : ndarray of shape (n_choices,) or (n_rows, n_choices)
        Real costs of the choices. NaN where they are not known.
    planned : ndarray of shape (n_choices,) or (n_rows, n_choices), default=None
        Costs by which rows are decided: a price list, or estimates. None if `paid` is
        known before a row is decided.
    planned_as_new : ndarray of shape (n_rows, n_choices), default=None
        Estimated `planned`, with the distribution of estimates of new rows. None if
        costs are not estimated.
    planned_by_fold : ndarray of shape (n_folds, n_rows, n_choices), default=None
        For each fold, `planned` of all rows with the distribution of the estimates of
        its rows. None if that is `planned` for every fold.
    known_quality : KnownCells, default=None
        The known cells of `quality`. None if all are known.
    known_costs : KnownCells, default=None
        The known cells of `paid`. None if all are known.
    propensity : {"given", "estimated"}, default=None
        Source of the propensities in a log of one answer per request. None for other
        logs.
    named : bool
        True if the user has named the choices. Otherwise `names` are made up, and
        answers are column numbers.
    abstain_quality : float, default=None
        Quality of abstaining, which is the last choice then. None if no row can
        abstain.
    """

    names: list
    quality: np.ndarray
    paid: np.ndarray
    planned: np.ndarray | None = None
    planned_as_new: np.ndarray | None = None
    planned_by_fold: np.ndarray | None = None
    known_quality: KnownCells | None = None
    known_costs: KnownCells | None = None
    propensity: str | None = None
    named: bool = False
    abstain_quality: float | None = None

    @property
    def has_single_answers(self):
        """True for a log of one answer per request."""
        return self.propensity is not None

    @property
    def is_known(self):
        """Mask of the cells of `quality` that are known, (n_rows, n_choices)."""
        if self.known_quality is None:
            return np.isfinite(self.quality)
        return self.known_quality.weight > 0

    def with_abstaining(self, abstain_cost):
        """Return the log with one more choice: to abstain, for which nothing is paid.

        Parameters
        ----------
        abstain_cost : float or None
            Abstaining has the best quality in the log less this. None adds no choice.

        Returns
        -------
        Log
        """
        if abstain_cost is None:
            return self
        if any(is_abstaining(name) for name in self.names):
            raise ValueError(
                f"With an abstain_cost no model may be named {ABSTAIN_NAME!r}; "
                "rename it."
            )
        abstain_quality = float(np.nanmax(self.quality)) - abstain_cost
        return replace(
            self,
            names=[*self.names, ABSTAIN_NAME],
            quality=with_last(self.quality, abstain_quality),
            paid=with_last(self.paid, 0.0),
            planned=_with_last_or_none(self.planned, 0.0),
            planned_as_new=_with_last_or_none(self.planned_as_new, 0.0),
            planned_by_fold=_with_last_or_none(self.planned_by_fold, 0.0),
            known_quality=_cells_with_last(self.known_quality, abstain_quality),
            known_costs=_cells_with_last(self.known_costs, 0.0),
            abstain_quality=abstain_quality,
        )

    def realised_costs(self, X):
        """Return the real costs for validation, with estimates where they are unknown.

        If only some are known, they are doubly robust: estimates of all cells, which
        the known cells correct.

        Parameters
        ----------
        X : indexable of n_rows rows
            The rows. Costs are estimated from them if the log has no estimates.

        Returns
        -------
        ndarray of shape (n_choices,) or (n_rows, n_choices)
        """
        if self.known_costs is None:
            return self.paid
        estimated = self.planned
        # A price list is the same for all rows. It is not an estimate for each row.
        if estimated is None or estimated.ndim < 2:
            folds = folds_of_log(len(self.paid))
            estimated = estimate_cells(as_numbers(X), self.paid, folds, ratio=True)
        return self.known_costs.doubly_robust(estimated)


def with_last(table, values):
    """Return a table with one more column at its end.

    Parameters
    ----------
    table : ndarray of shape (..., n_columns)
        If it has one axis, it gets one more entry.
    values : float or array-like of shape (...,)
        The new column.

    Returns
    -------
    ndarray of shape (..., n_columns + 1)
    """
    column = np.broadcast_to(values, table.shape[:-1])[..., np.newaxis]
    return np.concatenate([table, column], axis=-1)


def _with_last_or_none(table, values):
    """Return a table with one more column, or None if there is no table."""
    return None if table is None else with_last(table, values)


def _cells_with_last(cells, value):
    """Return known cells with one more choice, or None if all cells are known."""
    return None if cells is None else cells.with_last(value)


# Reading a log ------------------------------------------------------------------------


class LogCosts(NamedTuple):
    """Costs of a log: those that were paid, and those by which rows are decided.

    Attributes
    ----------
    paid : ndarray of shape (n_choices,) or (n_rows, n_choices)
        As in `Log`.
    planned : ndarray of shape (n_choices,) or (n_rows, n_choices), or None
        As in `Log`.
    known : KnownCells, default=None
        The known cells of `paid`. None if all are known.
    """

    paid: np.ndarray
    planned: np.ndarray | None
    known: KnownCells | None = None


def read_table(
    y, costs, listed, quoted=None, *, estimates_costs=False, row_weight=None
):
    """Read a table of outcomes: quality (and cost) of each choice on each row.

    Parameters
    ----------
    y : {array-like, dataframe} of shape (n_rows, n_choices)
        Quality, NaN where it is not known.
    costs : {array-like, dataframe} of shape (n_rows, n_choices) or None
        Real costs, NaN where they are not known.
    listed : mapping, array-like of shape (n_choices,) or None
        The price list.
    quoted : {array-like, dataframe} of shape (n_rows, n_choices), default=None
        Estimates of the costs that are known before the call.
    estimates_costs : bool, default=False
        True if the router learns costs from the rows.
    row_weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    Log
    """
    # `named` is True if the user named the choices.
    names, named = choice_names(y, listed)
    quality = check_matrix(y, "y", allow_nan=True)
    log_costs = _read_costs(
        costs,
        listed,
        names,
        quoted=quoted,
        named=named,
        row_weight=row_weight,
        shape=quality.shape,
        estimates_costs=estimates_costs,
    )
    return Log(
        names,
        quality,
        log_costs.paid,
        log_costs.planned,
        known_quality=_known_cells_of_table(quality, names, "y", row_weight),
        known_costs=log_costs.known,
        named=named,
    )


def _read_costs(
    costs, listed, names, *, quoted, named, shape, estimates_costs, row_weight
):
    """Return the costs of a log, by row and choice or by choice (`LogCosts`).

    Parameters
    ----------
    costs, listed, quoted, estimates_costs
        As in `read_table`.
    row_weight : ndarray of shape (n_rows,) or None
        Weights of the rows. None weights all alike.
    names : list of str
        The choices.
    named : bool
        As in `Log`. A data frame of costs then has these columns.
    shape : tuple of two ints
        Number of rows and of choices.
    """
    columns = names if named else None
    planned = None if listed is None else check_costs(listed, names)
    if quoted is not None:
        planned = check_row_costs(quoted, columns, shape, "quoted_costs")
    if costs is not None:
        paid = check_row_costs(costs, columns, shape, allow_nan=True)
        known = _known_cells_of_table(paid, names, "costs", row_weight)
        if known is not None and planned is None and not estimates_costs:
            n_unknown = np.count_nonzero(np.isnan(paid))
            raise ValueError(
                f"costs have {n_unknown} NaN. Rows are decided by what each choice "
                "costs them, and that is not known of all. Give the price list to the "
                "constructor (the budget is then met in the known bills), or a "
                "cost_estimator that learns the others, or quoted_costs to fit."
            )
        return LogCosts(paid, planned, known)
    if planned is None:
        raise ValueError(
            f"costs must say what each of {names!r} costs, got None. Give a mapping or "
            "an array to the constructor, or one cost for each row and choice to fit."
        )
    # Real costs were not given: list prices or quotes are the bills.
    return LogCosts(paid=planned, planned=None)


def _known_cells_of_table(table, names, parameter, row_weight):
    """Return the known cells of a table with NaN, or None if all are known.

    Parameters
    ----------
    table : ndarray of shape (n_rows, n_choices)
        Quality or cost.
    names : list of str
        The choices, for messages.
    parameter : {"y", "costs"}
        The parameter of `fit` that the table comes from, for messages.
    row_weight : ndarray of shape (n_rows,) or None
        Weights of the rows. None weights all alike.

    Returns
    -------
    KnownCells or None
    """
    is_known = ~np.isnan(table)
    if is_known.all():
        return None
    is_usable = is_known
    if row_weight is not None:
        # Nothing is learned from a row of weight 0.
        is_usable = is_known[row_weight > 0]
    # Positions of choices with too few cells to learn from.
    too_few = np.flatnonzero(is_usable.sum(axis=0) < _FEWEST_ROWS)
    if len(too_few):
        raise ValueError(
            f"{parameter} has fewer than two rows on which the value of "
            f"{names[too_few[0]]!r} is known (is not NaN). Leave the choice out."
        )
    # Within a choice, cells are missing at random: each known cell of it stands for
    # equally many rows.
    weight = is_known * _rows_per_known_row(is_known, row_weight)
    return KnownCells(table, weight, noise=_mean_weight(weight, row_weight))


def _rows_per_known_row(is_known, row_weight):
    """Return the number of rows that each row with a known value stands for.

    Parameters
    ----------
    is_known : ndarray of shape (n_rows,) or (n_rows, n_choices), dtype=bool
        True where the value is known.
    row_weight : ndarray of shape (n_rows,) or None
        Weights of the rows. None weights all alike.

    Returns
    -------
    float or ndarray of shape (n_choices,)
        All rows, divided by the rows with a known value. One number, or one for each
        choice.
    """
    if row_weight is None:
        return len(is_known) / is_known.sum(axis=0)
    return row_weight.sum() / (row_weight @ is_known)


def _mean_weight(weight, row_weight):
    """Return the mean of `weight` over its known cells, those with a weight above 0.

    `weight` has shape (n_rows, n_choices). `row_weight` (n_rows,) are weights of the
    rows, None weights all alike.
    """
    is_known = weight > 0
    if row_weight is None:
        return float(weight[is_known].mean())
    row_weight_of_cell = np.broadcast_to(row_weight[:, np.newaxis], weight.shape)
    return float(np.average(weight[is_known], weights=row_weight_of_cell[is_known]))


class LoggedChoices(NamedTuple):
    """Choices that were made for the requests of a log of one answer per request.

    Attributes
    ----------
    positions : ndarray of shape (n_rows,), dtype=int64
        For each row, the position of its choice in `names`.
    names : list of str
        All choices.
    named : bool
        As in `Log`.
    """

    positions: np.ndarray
    names: list
    named: bool


def read_answers(
    X,
    y,
    *,
    choice,
    propensity,
    costs,
    listed,
    estimates_costs,
    quoted=None,
    row_weight=None,
):
    """Read a log of one answer per request: one choice and its quality on each row.

    Parameters
    ----------
    X : indexable of n_rows rows
    y : array-like of shape (n_rows,)
        Quality of the answers, NaN where it is not known.
    choice : array-like of shape (n_rows,)
        The choice of each row: a name, or a column number.
    propensity : array-like of shape (n_rows,) or None
        Probability of each choice. None estimates it from X.
    costs : array-like of shape (n_rows,) or (n_rows, n_choices), or None
        Real costs, of the answers or of all choices.
    listed : mapping, array-like of shape (n_choices,) or None
        The price list.
    estimates_costs : bool
        True if the router learns the costs of choices that were not made.
    quoted : {array-like, dataframe} of shape (n_rows, n_choices), default=None
        Estimates of the costs of all choices that are known before the call.
    row_weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    Log
    """
    n_rows = num_samples(X)
    quality = read_values(y, "y", n_rows, allow_nan=True)
    logged = _read_logged_choices(choice, listed, n_rows)
    names = logged.names
    _check_answers_of_all(logged, quality)
    # Propensities of the choices that were made: (n_rows,)
    if propensity is None:
        source = "estimated"
        propensities = estimate_propensities(
            with_text_lengths(as_numbers(X), X),
            logged.positions,
            len(names),
            folds_of_log(n_rows),
        )
    else:
        source = "given"
        propensities = read_propensity(propensity, n_rows)
    known_quality = _known_cells_of_answers(quality, logged, propensities, row_weight)
    if costs is not None and np.ndim(costs) == 1:
        # One bill for each row, that of its answer.
        log_costs = _read_costs_of_answers(
            costs,
            listed,
            logged,
            propensities=propensities,
            estimates_costs=estimates_costs,
            quoted=quoted,
            row_weight=row_weight,
        )
    else:
        if costs is not None:
            # Raises an error if a table of costs has NaN. NaN would be read as missing
            # at random, but in this log the missing bills depend on the choices.
            check_matrix(costs, "costs")
        log_costs = _read_costs(
            costs,
            listed,
            names,
            quoted=quoted,
            named=logged.named,
            shape=(n_rows, len(names)),
            estimates_costs=estimates_costs,
            row_weight=row_weight,
        )
    return Log(
        names,
        known_quality.table,
        log_costs.paid,
        log_costs.planned,
        known_quality=known_quality,
        known_costs=log_costs.known,
        propensity=source,
        named=logged.named,
    )


def _read_logged_choices(choice, listed, n_rows):
    """Return the choices that a log of one answer per request has made.

    Parameters
    ----------
    choice : array-like of shape (n_rows,)
        Name or number of the choice of each row, as the user gave it.
    listed : mapping or array-like of shape (n_choices,), or None
        Price list, whose choices come first and in its order. Others are then refused.
        None: there is none, and the choices are those that the log has made.
    n_rows : int

    Returns
    -------
    LoggedChoices
    """
    listed_names = []
    named = False
    if listed is not None:
        listed_names, named = choice_names(None, listed)
    # Choices that are not in the list come after those that are.
    positions, names = read_choice(choice, listed_names, n_rows)
    if listed is not None and len(names) > len(listed_names):
        message = (
            f"choice has {names[len(listed_names)]!r}, which is not among "
            f"{listed_names!r}."
        )
        if not named:
            message += " Give costs as a mapping from name to number."
        raise ValueError(message)
    # Integers (kinds "i" and "u" of dtypes) are positions. Others are names.
    has_names = np.asarray(choice).dtype.kind not in "iu"
    return LoggedChoices(positions, names, named=named or has_names)


def _check_answers_of_all(logged, quality):
    """Raise an error if a choice has too few answers of known quality.

    Parameters
    ----------
    logged : LoggedChoices
    quality : ndarray of shape (n_rows,)
        Quality of the answers, NaN where it is not known.
    """
    positions = logged.positions[~np.isnan(quality)]
    n_answers = np.bincount(positions, minlength=len(logged.names))
    too_few = np.flatnonzero(n_answers < _FEWEST_ROWS)
    if len(too_few):
        raise ValueError(
            f"The log has fewer than two answers of {logged.names[too_few[0]]!r} with "
            "a known quality: nothing can be learned of it. Leave the choice out of "
            "the router."
        )


def _known_cells_of_answers(values, logged, propensities, row_weight):
    """Return a table with one known cell on each row: the value of its answer.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        Quality or cost of the answers, NaN where it is not known.
    logged : LoggedChoices
    propensities : ndarray of shape (n_rows,)
        Propensity of the choice of each row.
    row_weight : ndarray of shape (n_rows,) or None
        Weights of the rows. None weights all alike.

    Returns
    -------
    KnownCells
    """
    n_rows = len(values)
    is_known = ~np.isnan(values)
    rows = np.flatnonzero(is_known)
    choices = logged.positions[rows]
    table = np.full((n_rows, len(logged.names)), np.nan)
    table[rows, choices] = values[rows]
    weight = np.zeros((n_rows, len(logged.names)))
    # An answer stands for 1 / propensity rows. Among the answers, values are missing at
    # random, so that known values stand for those that are missing, too.
    rows_per_known_row = _rows_per_known_row(is_known, row_weight)
    weight[rows, choices] = rows_per_known_row / propensities[rows]
    return KnownCells(table, weight, noise=_mean_weight(weight, row_weight))


def _read_costs_of_answers(
    costs, listed, logged, *, propensities, estimates_costs, quoted, row_weight
):
    """Return the costs of a log in which only those of the answers are known.

    Parameters
    ----------
    costs : array-like of shape (n_rows,)
    listed, estimates_costs, quoted
        As in `read_answers`. One of them must have the costs of the other choices.
    logged : LoggedChoices
    propensities : ndarray of shape (n_rows,)
        Propensity of the choice of each row.
    row_weight : ndarray of shape (n_rows,) or None
        Weights of the rows. None weights all alike.

    Returns
    -------
    LogCosts
    """
    planned = None if listed is None else check_costs(listed, logged.names)
    if quoted is not None:
        columns = logged.names if logged.named else None
        shape = (len(propensities), len(logged.names))
        planned = check_row_costs(quoted, columns, shape, "quoted_costs")
    if planned is None and not estimates_costs:
        raise ValueError(
            "costs of the answers given, of shape (n_samples,), do not say what the "
            "other choices would have cost. Give the price list to the constructor "
            "(the budget is then met in the logged costs), or a cost_estimator that "
            "learns them, or quoted_costs to fit."
        )
    costs = read_values(costs, "costs", len(propensities), least=0.0)
    known_costs = _known_cells_of_answers(costs, logged, propensities, row_weight)
    return LogCosts(known_costs.table, planned, known=known_costs)


# Names, costs and excluded choices ----------------------------------------------------


def choice_names(y, listed):
    """Return names of the choices: those of `y` or `listed`, or else "choice0", ...

    Parameters
    ----------
    y : {array-like, dataframe} of shape (n_rows, n_choices) or None
        A table of outcomes. None if there is no table: for a log of one answer per
        request, and without a log.
    listed : mapping, array-like of shape (n_choices,) or None
        The price list. None if there is none, which is allowed only with a table.

    Returns
    -------
    names : list of str
    named : bool
        True if they are the user's names.
    """
    names = column_names(y)
    listed = by_label(listed)
    has_named_prices = isinstance(listed, Mapping)
    named = names is not None or has_named_prices
    if y is None:
        n_choices = len(listed)
    elif len(np.shape(y)) == 2:
        _, n_choices = np.shape(y)
    else:
        n_choices = 1  # a single column of shape (n_rows,)
    if names is None and has_named_prices:
        names = [str(name) for name in listed]
    elif names is None:
        names = made_up_names(n_choices)
    if len(names) != n_choices:
        message = (
            f"y has {n_choices} columns but costs names {len(names)} choices: "
            f"{names!r}."
        )
        if n_choices == 1:
            message += " For a log of one answer for each request give choice, too."
        raise ValueError(message)
    return names, named


def costs_now(costs, names, current, n_fitted):
    """Return the costs of all choices by the router's present parameter `costs`.

    The parameter may have changed after `fit`.

    Parameters
    ----------
    costs : mapping or array-like
        The parameter. A mapping may leave out choices, which keep their current costs.
        An array of the choices of `fit` leaves out those that were added later.
    names : list of str
        All choices.
    current : array-like of shape (n_choices,)
        Their current costs.
    n_fitted : int
        Number of choices of `fit`.

    Returns
    -------
    ndarray of shape (n_choices,)
    """
    costs = by_label(costs)
    if isinstance(costs, Mapping):
        new_costs = dict(zip(names, np.asarray(current).tolist()))
        for name, cost in costs.items():
            new_costs[str(name)] = cost
        return check_costs(new_costs, names)
    if np.ndim(costs) == 1 and len(costs) == n_fitted:
        # Choices that were added after `fit` come last, and keep their costs.
        costs = [*costs, *current[n_fitted:]]
    return check_costs(costs, names)


def column_names(frame, name="y"):
    """Return the columns of a data frame as strings, or None if it is no data frame.

    `name` is the parameter that error messages name.
    """
    columns = column_keys(frame)
    if columns is None:
        return None
    names = [str(column) for column in columns]
    if len(set(names)) < len(names):
        raise ValueError(
            f"{name} must not have two columns of the same name, got {names!r}."
        )
    return names


def check_matrix(matrix, name, columns=None, allow_nan=False):
    """Validate a matrix of numbers with one column for each choice.

    Parameters
    ----------
    matrix : {array-like, dataframe} of shape (n_rows, n_choices) or (n_rows,)
        A single column is a single choice.
    name : str
        The parameter that error messages name.
    columns : list of str, default=None
        Names of the choices. The columns of a data frame are put into this order. None
        leaves them in their order.
    allow_nan : bool, default=False
        True if NaN is allowed.

    Returns
    -------
    ndarray of shape (n_rows, n_choices)
    """
    if columns is not None:
        matrix = in_order(matrix, columns, name)
    matrix = check_numbers(matrix, name, allow_nan=allow_nan)
    if matrix.ndim not in (1, 2) or not len(matrix):
        raise ValueError(
            f"{name} must have one row for each row of X and one column for each "
            f"choice, got shape {matrix.shape}."
        )
    return matrix.reshape(len(matrix), -1)


def check_row_costs(costs, columns, shape, name="costs", *, allow_nan=False):
    """Return costs of rows as an array, or raise an error if they are not valid.

    Parameters
    ----------
    costs : {array-like, dataframe} of shape (n_rows, n_choices)
        At least 0.
    columns : list of str or None
        Names of the choices. The columns of a data frame are put into this order. None
        leaves them in their order.
    shape : tuple of two ints
        The shape that the costs must have.
    name : str, default="costs"
        The parameter that error messages name.
    allow_nan : bool, default=False
        True if NaN is allowed, which is a cost that is not known.

    Returns
    -------
    ndarray of shape (n_rows, n_choices)
    """
    costs = check_matrix(costs, name, columns, allow_nan=allow_nan)
    if costs.shape != shape:
        raise ValueError(
            f"{name} must have one cost for each row and choice, shape {shape}, "
            f"got {costs.shape}."
        )
    return check_numbers(costs, name, low=0.0, allow_nan=allow_nan)


def check_new_choice(name, cost, names):
    """Validate name and cost of a new choice, and return the cost.

    Parameters
    ----------
    name : str
        Name of the new choice, not among `names`.
    cost : float
        Cost of its call.
    names : list of str
        The choices so far.

    Returns
    -------
    float
    """
    if not isinstance(name, str) or name in names:
        raise ValueError(f"name must be a new one beside {names!r}, got {name!r}.")
    return float(check_costs({name: cost}, [name], name="cost")[0])


def check_names(names, choices):
    """Return names of choices as a list, or raise an error for an unknown name."""
    if isinstance(names, (str, bytes)) or not np.iterable(names):
        raise ValueError(f"names must be a list of names of choices, got {names!r}.")
    for name in names:
        if name not in choices:
            raise ValueError(f"There is no choice {name!r} among {choices!r}.")
    return list(names)


def kept_choices(names, n_samples, exclude, allowed):
    """Return the choices that a call may make, without those in `exclude`.

    Parameters
    ----------
    names : list of str
        All choices.
    n_samples : int
        Number of rows of the call.
    exclude : list of str or None
        Choices that no row may make.
    allowed : array-like of bool of shape (n_samples, n_choices) or None
        Choices that each row may make. None allows all.

    Returns
    -------
    positions : ndarray of int
        Choices that are not excluded.
    allowed : ndarray of bool of shape (n_samples, n_positions) or None
        The columns of `allowed` for these choices. None allows all.
    """
    if isinstance(exclude, str):
        raise ValueError(f"exclude must be a list of names, got {exclude!r}.")
    exclude = [] if exclude is None else list(exclude)
    unknown = [name for name in exclude if name not in names]
    if unknown:
        raise ValueError(f"exclude names {unknown!r}, which are not among {names!r}.")
    is_left = [name not in exclude for name in names]
    positions = np.flatnonzero(is_left)
    if not len(positions):
        raise ValueError(f"exclude={exclude!r} leaves no choice of {names!r}.")
    if allowed is None:
        return positions, None
    allowed = np.asarray(in_order(allowed, names, "allowed"))
    if allowed.dtype != bool or allowed.shape != (n_samples, len(names)):
        raise ValueError(
            f"allowed must be booleans of shape ({n_samples}, {len(names)}), a column "
            f"for each of {names!r}, got {allowed.dtype} of shape {allowed.shape}."
        )
    allowed = allowed[:, positions]
    stuck_rows = np.flatnonzero(~allowed.any(axis=1))
    if len(stuck_rows):
        message = (
            f"allowed leaves row {stuck_rows[0]} and {len(stuck_rows) - 1} others no "
            "choice"
        )
        if exclude:
            message += f", with {exclude!r} excluded"
        raise ValueError(message + ".")
    return positions, allowed


# Overlap of a log and a policy --------------------------------------------------------


def overlap_of(log, choices):
    """Return how often a log made the choices of a policy.

    Parameters
    ----------
    log : Log
        A log of one answer per request.
    choices : Choices
        Those of the policy on the rows of the log.

    Returns
    -------
    Overlap
    """
    weight = log.known_quality.weight  # (n_rows, n_choices)
    n_rows = len(weight)
    # Numbers of rows by choice. The policy makes the choice on `needed` rows. On
    # `matched` of these, the log made it, too. The log made it on `made` rows in all.
    agreement = log.known_quality.agreement(choices)
    # NaN for a choice that the policy never makes.
    mean_weight = np.full(len(log.names), np.nan)
    np.divide(
        choices.totals(weight),
        agreement.needed,
        out=mean_weight,
        where=agreement.needed > 0,
    )
    effective_sizes = []
    largest_weights = []
    never = []  # choices that the log never made where the policy makes them
    for position, name in enumerate(log.names):
        weight_of_choice = weight[:, position]
        # A weight of 0: the log made another choice.
        weights = weight_of_choice[weight_of_choice > 0]
        effective_sizes.append(effective_size(weights))
        largest_weights.append(np.max(weights, initial=0.0))
        is_never_matched = never_matched(
            needed=agreement.needed[position],
            matched=agreement.matched[position],
            made=agreement.made[position],
            n_rows=n_rows,
        )
        if is_never_matched:
            never.append(name)
    return Overlap(
        choices=list(log.names),
        # The field is the number of logged rows of each choice. The variable `n_rows`
        # is the number of all rows.
        n_rows=agreement.made,
        effective_sample_size=np.array(effective_sizes),
        max_weight=np.array(largest_weights),
        # The field is a share of the rows, not a number of rows.
        needed=agreement.needed / n_rows,
        # A tied row counts in part for each of its two choices.
        matched=np.rint(agreement.matched).astype(np.int64),
        mean_weight=mean_weight,
        never=never,
        estimated=log.propensity == "estimated",
        lack=lack_of_overlap(agreement, log.names),
    )
