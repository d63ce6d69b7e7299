"""The log: quality and cost by row and choice, however it came about, as routers learn from it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from skroute.base import check_costs
from skroute.base._inspection import ABSTAIN_NAME, is_abstaining
from skroute.quality._log_arguments import read_choice, read_propensity, read_values
from skroute.quality._logged import (
    as_numbers,
    estimate_cells,
    estimate_propensities,
    folds_of_log,
)
from skroute.quality._overlap import (
    Agreement,
    effective_size,
    lack_of_overlap,
    never_matched,
)
from skroute.utils._compat import num_samples
from skroute.utils._frames import column_keys
from skroute.utils._named import by_label, in_order
from skroute.utils._typing import NDArray
from skroute.utils._validation import check_numbers


class Overlap(NamedTuple):
    """What a log of one answer per request says where a policy would go.

    Attributes
    ----------
    choices : list of str
        Names of the choices, in the order of the arrays.

    n_rows : ndarray of shape (n_choices,), dtype=int64
        Logged answers of each choice.

    effective_sample_size : ndarray of shape (n_choices,), dtype=float64
        ``(sum w)^2 / sum w^2`` of its rows, with ``w = 1 / propensity``: as many rows of
        equal weight would say as much.

    max_weight : ndarray of shape (n_choices,), dtype=float64
        The largest ``1 / propensity`` of its rows: one row stands for so many.

    needed : ndarray of shape (n_choices,), dtype=float64
        Share of the rows that the policy sends to each choice.

    matched : ndarray of shape (n_choices,), dtype=int64
        Of these rows those on which the log made the same choice.

    mean_weight : ndarray of shape (n_choices,), dtype=float64
        Mean over the rows that the policy sends to each choice: ``1 / propensity`` if the log
        made the same choice, else 0. It is 1, but for noise, if the log made the choice now and
        then on all such rows. It is the share of them that the log stands for if it is less. NaN
        for a choice that the policy does not make.

    never : list of str
        Choices that the policy makes on rows of which the log made none like it: what they
        are worth there is extrapolated.

    estimated : bool
        Whether propensities are estimates.

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


class KnownCells(NamedTuple):
    """Cells of a table that are known, and the weight of each: what it stands for.

    `table` has NaN and `weight` 0 where a cell is not known.
    """

    table: np.ndarray
    weight: np.ndarray
    noise: float

    def with_last(self, value):
        """With one more choice, all of whose cells are known to have a value."""
        return KnownCells(
            with_last(self.table, value), with_last(self.weight, 1.0), self.noise
        )

    def agreement(self, choices):
        """Return where the log made the choices of a policy (`Agreement`)."""
        return Agreement(
            needed=choices.totals(np.ones(self.weight.shape)),
            matched=choices.totals((self.weight > 0).astype(np.float64)),
            made=np.count_nonzero(self.weight, axis=0),
            weight=choices.mean(self.weight),
        )

    def have_overlap_alone(self, names):
        """Return for which choices the log says what they do on all rows, (n_choices,)."""
        made = np.count_nonzero(self.weight, axis=0)
        n_rows = len(self.weight)
        found = np.empty(len(names), dtype=bool)
        for k in range(len(names)):
            only = np.arange(len(names)) == k
            agreement = Agreement(
                needed=n_rows * only,
                matched=made * only,
                made=made,
                weight=self.weight[:, k],
            )
            found[k] = lack_of_overlap(agreement, names) is None
        return found

    def judged(self, estimate):
        """Doubly robust outcomes of all cells: their means have no bias."""
        return estimate + self.weight * np.where(
            self.weight > 0, self.table - estimate, 0.0
        )

    def deviation(self, estimate, row_weight=None):
        """Standard deviation of each choice's estimation error, over what is known."""
        error = np.where(self.weight > 0, self.table - estimate, 0.0)
        weight = self.weight
        if row_weight is not None:
            weight = weight * row_weight[:, np.newaxis]
        total = np.maximum(weight.sum(axis=0), 1e-300)
        mean = (weight * error).sum(axis=0) / total
        return np.sqrt((weight * (error - mean) ** 2).sum(axis=0) / total)


@dataclass(frozen=True)
class Log:
    """What a router learns from: one row for each request, one column for each choice.

    Attributes
    ----------
    names : list of str
    quality : ndarray of shape (n_rows, n_choices)
        NaN where it is not known.
    paid : ndarray of shape (n_choices,) or (n_rows, n_choices)
        What choices have cost; NaN where it is not known.
    planned : ndarray, default=None
        Costs that rows are decided by: a price list, or estimates. None where `paid` is known
        before a row is decided.
    planned_as_new : ndarray, default=None
        `planned`, where it is estimated, distributed as the estimates of new rows.
    planned_by_fold : ndarray of shape (n_folds, n_rows, n_choices), default=None
        For each fold `planned`, distributed as the estimates of its rows. None where that is
        `planned` for every fold.
    known, known_costs : KnownCells, default=None
        The cells of `quality` and of `paid` that are known; None where all are.
    propensity : {"given", "estimated"}, default=None
        Of a log of one answer for each request, how the chance of each answer is known.
    named : bool
        Whether the user has named the choices; else they are columns.
    abstain_quality : float, default=None
        Quality of abstaining, which is the last choice then. None if no row can abstain.
    """

    names: list
    quality: np.ndarray
    paid: np.ndarray
    planned: np.ndarray | None = None
    planned_as_new: np.ndarray | None = None
    planned_by_fold: np.ndarray | None = None
    known: KnownCells | None = None
    known_costs: KnownCells | None = None
    propensity: str | None = None
    named: bool = False
    abstain_quality: float | None = None

    def with_abstaining(self, abstain_cost):
        """The log with one more choice: a row abstains, which costs nothing.

        It is worth the best quality in the log less `abstain_cost`; None is no such choice.
        """
        if abstain_cost is None:
            return self
        if any(map(is_abstaining, self.names)):
            raise ValueError(
                f"With an abstain_cost no model may be named {ABSTAIN_NAME!r}; rename it."
            )
        worth = float(np.nanmax(self.quality)) - abstain_cost
        planned_as_new = self.planned_as_new
        if planned_as_new is not None:
            planned_as_new = with_last(planned_as_new, 0.0)
        planned_by_fold = self.planned_by_fold
        if planned_by_fold is not None:
            planned_by_fold = with_last(planned_by_fold, 0.0)
        return replace(
            self,
            names=[*self.names, ABSTAIN_NAME],
            quality=with_last(self.quality, worth),
            paid=with_last(self.paid, 0.0),
            planned=None if self.planned is None else with_last(self.planned, 0.0),
            planned_as_new=planned_as_new,
            planned_by_fold=planned_by_fold,
            known=self.known and self.known.with_last(worth),
            known_costs=self.known_costs and self.known_costs.with_last(0.0),
            abstain_quality=worth,
        )

    def judged_costs(self, X):
        """Costs that decisions are judged by, none of them unknown."""
        if self.known_costs is None:
            return self.paid
        estimated = self.planned
        if estimated is None or estimated.ndim < 2:
            folds = folds_of_log(len(self.paid))
            estimated = estimate_cells(as_numbers(X), self.paid, folds, ratio=True)
        return self.known_costs.judged(estimated)


def with_last(table, values):
    """A table, or a row, with one more column at its end: one value, or one for each row."""
    column = np.broadcast_to(values, table.shape[:-1])[..., np.newaxis]
    return np.concatenate([table, column], axis=-1)


def read_table(y, costs, listed):
    """The log of a table of outcomes, NaN where one is not known.

    `costs` are those of the calls, `listed` the price list.
    """
    names, named = choice_names(y, listed)
    quality = check_matrix(y, "y", allow_nan=True)
    planned = None if listed is None else check_costs(listed, names)
    if costs is not None:
        paid = check_row_costs(costs, names if named else None, quality.shape)
    elif planned is None:
        raise ValueError(
            f"costs must say what each of {names!r} costs, got None. Give a mapping or an array to "
            "the constructor, or one cost for each row and choice to fit."
        )
    else:
        paid, planned = planned, None
    missing = np.isnan(quality)
    if not missing.any():
        return Log(names, quality, paid, planned, named=named)
    if len(few := np.flatnonzero((~missing).sum(axis=0) < 2)):
        raise ValueError(
            f"y has fewer than two rows on which the quality of {names[few[0]]!r} is known (is "
            "not NaN). Leave the choice out."
        )
    # Cells are missing at random, choice by choice.
    weight = ~missing * (len(quality) / (~missing).sum(axis=0))
    known = KnownCells(quality, weight, float(weight[~missing].mean()))
    return Log(names, quality, paid, planned, known=known, named=named)


def read_answers(X, y, choice, propensity, costs, listed, *, estimates_costs):
    """The log of one answer for each request; propensities that are not given are estimated.

    Costs as in `read_table`; `estimates_costs`, those of other choices are learned.
    """
    n = num_samples(X)
    quality = read_values(y, "y", n, allow_nan=True)
    names, named = ([], False) if listed is None else choice_names(None, listed)
    position, found = read_choice(choice, names, n)
    if listed is not None and len(found) > len(names):
        unnamed = "" if named else " Give costs as a mapping from name to number."
        raise ValueError(
            f"choice has {found[len(names)]!r}, which is not among {names!r}.{unnamed}"
        )
    named = named or np.asarray(choice).dtype.kind not in "iu"
    made = np.bincount(position[~np.isnan(quality)], minlength=len(found))
    if never := [name for name, count in zip(found, made) if count < 2]:
        raise ValueError(
            f"The log has fewer than two answers of {never[0]!r} with a known quality: nothing can "
            "be learned of it. Leave the choice out of the router."
        )
    if propensity is None:
        chance = estimate_propensities(
            as_numbers(X), position, len(found), folds_of_log(n)
        )
    else:
        chance = read_propensity(propensity, n)

    def table(values):
        known = np.flatnonzero(~np.isnan(values))
        cells, weight = np.full((n, len(found)), np.nan), np.zeros((n, len(found)))
        cells[known, position[known]] = values[known]
        # What is not known is missing at random.
        weight[known, position[known]] = n / len(known) / chance[known]
        return KnownCells(cells, weight, float(weight[weight > 0].mean()))

    known, known_costs = table(quality), None
    planned = None if listed is None else check_costs(listed, found)
    if costs is not None and np.ndim(costs) == 1:
        if planned is None and not estimates_costs:
            raise ValueError(
                "costs of the answers given, of shape (n_samples,), do not say what the other "
                "choices would have cost. Give the price list to the constructor (the budget is "
                "then met in the logged costs), or a cost_estimator that learns them."
            )
        known_costs = table(read_values(costs, "costs", n, least=0.0))
        paid = known_costs.table
    elif costs is not None:
        paid = check_row_costs(costs, found if named else None, (n, len(found)))
    elif planned is None:
        raise ValueError(f"costs must say what each of {found!r} costs, got None.")
    else:
        paid, planned = planned, None
    how = "estimated" if propensity is None else "given"
    return Log(
        found,
        known.table,
        paid,
        planned,
        known=known,
        known_costs=known_costs,
        propensity=how,
        named=named,
    )


def choice_names(y, listed):
    """Names of the columns of a table, and whether they are the user's.

    They are the frame's, else those of the prices, else numbered. A log of single answers, or of
    none, is no table: None.
    """
    names, listed = column_names(y), by_label(listed)
    named = names is not None or isinstance(listed, Mapping)
    shape = (0, len(listed)) if y is None else np.shape(y)
    n_choices = shape[1] if len(shape) == 2 else 1
    if names is None:
        names = (
            [str(key) for key in listed]
            if named
            else [f"choice{k}" for k in range(n_choices)]
        )
    if len(names) != n_choices:
        raise ValueError(
            f"y has {n_choices} columns but costs names {len(names)} choices: {names!r}."
            + " For a log of one answer for each request give choice, too."
            * (n_choices == 1)
        )
    return names, named


def costs_now(costs, names, known, n_fitted):
    """Costs of choices by a parameter that may have changed after `fit`.

    What a mapping does not name stays as it is `known`, and so do choices that came after the
    `n_fitted` of `fit`.
    """
    costs = by_label(costs)
    if isinstance(costs, Mapping):
        known = dict(zip(names, np.asarray(known).tolist()))
        return check_costs(
            known | {str(name): cost for name, cost in costs.items()}, names
        )
    if np.ndim(costs) == 1 and len(costs) == n_fitted:
        costs = [*costs, *known[len(costs) :]]
    return check_costs(costs, names)


def column_names(frame, name="y"):
    """The columns of a data frame as strings; None of anything else."""
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
    """A matrix with one column for each choice; a frame's columns in the order of `columns`."""
    if columns is not None:
        matrix = in_order(matrix, columns, name)
    matrix = check_numbers(matrix, name, allow_nan=allow_nan)
    if matrix.ndim not in (1, 2) or not len(matrix):
        raise ValueError(
            f"{name} must have one row for each row of X and one column for each choice, got shape "
            f"{matrix.shape}."
        )
    return matrix.reshape(len(matrix), -1)


def check_row_costs(costs, columns, shape):
    """Costs of each row and choice, none of them negative."""
    costs = check_matrix(costs, "costs", columns)
    if costs.shape != shape:
        raise ValueError(
            f"costs must have one cost for each row and choice, shape {shape}, got {costs.shape}."
        )
    return check_numbers(costs, "costs", low=0.0)


def check_new_choice(name, cost, names):
    """The cost of a choice that is to be added to others."""
    if not isinstance(name, str) or name in names:
        raise ValueError(f"name must be a new one beside {names!r}, got {name!r}.")
    return float(check_costs({name: cost}, [name], name="cost")[0])


def check_names(names, known):
    """A list of names, all of them of choices that are known."""
    if isinstance(names, (str, bytes)) or not np.iterable(names):
        raise ValueError(f"names must be a list of names of choices, got {names!r}.")
    for name in names:
        if name not in known:
            raise ValueError(f"There is no choice {name!r} among {known!r}.")
    return list(names)


def kept_choices(names, n_samples, exclude, allowed):
    """Positions of the choices that a call leaves, and which of them each row may make."""
    if isinstance(exclude, str):
        raise ValueError(f"exclude must be a list of names, got {exclude!r}.")
    exclude = [] if exclude is None else list(exclude)
    if unknown := [name for name in exclude if name not in names]:
        raise ValueError(f"exclude names {unknown!r}, which are not among {names!r}.")
    kept = np.array(
        [k for k, name in enumerate(names) if name not in exclude], dtype=np.int64
    )
    if not len(kept):
        raise ValueError(f"exclude={exclude!r} leaves no choice of {names!r}.")
    if allowed is None:
        return kept, None
    allowed = np.asarray(in_order(allowed, names, "allowed"))
    if allowed.dtype != bool or allowed.shape != (n_samples, len(names)):
        raise ValueError(
            f"allowed must be booleans of shape ({n_samples}, {len(names)}), a column for "
            f"each of {names!r}, got {allowed.dtype} of shape {allowed.shape}."
        )
    allowed = allowed[:, kept]
    if len(without := np.flatnonzero(~allowed.any(axis=1))):
        raise ValueError(
            f"allowed leaves row {without[0]} and {len(without) - 1} others no choice"
            + (f", with {exclude!r} excluded." if exclude else ".")
        )
    return kept, allowed


def overlap_of(log, choices):
    """Return how often the log made the choices of a policy (`Overlap`)."""
    weight = log.known.weight
    agreement = log.known.agreement(choices)
    weights = [column[column > 0] for column in weight.T]
    needed = agreement.needed
    mean_weight = np.full(len(needed), np.nan)
    np.divide(choices.totals(weight), needed, out=mean_weight, where=needed > 0)
    counts = zip(log.names, needed, agreement.matched, agreement.made)
    never = [
        name
        for name, n_needed, n_matched, n_made in counts
        if never_matched(n_needed, n_matched, n_made, len(weight))
    ]
    return Overlap(
        choices=list(log.names),
        n_rows=agreement.made,
        effective_sample_size=np.array([effective_size(own) for own in weights]),
        max_weight=np.array([own.max() if len(own) else 0.0 for own in weights]),
        needed=needed / len(weight),
        matched=np.rint(agreement.matched).astype(np.int64),
        mean_weight=mean_weight,
        never=never,
        estimated=log.propensity == "estimated",
        lack=lack_of_overlap(agreement, log.names),
    )
