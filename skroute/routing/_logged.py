"""Learning from logs of one answer per request, and from tables that are known in part."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skroute.metrics import Overlap
from skroute.quality._logged import (
    KnownCellsRegressor,
    as_numbers,
    effective_size,
    estimate_cells,
    estimate_propensities,
    folds_of_log,
    never_matched,
    read_choice,
    read_propensity,
    read_values,
)
from skroute.routing._draws import row_keys
from skroute.routing._fit_tables import check_fit_costs
from skroute.routing._values import default_quality_estimator
from skroute.utils._compat import num_samples
from skroute.utils._named import by_label


class Known(NamedTuple):
    """Which cells of a table of outcomes are known, and what each of them stands for.

    Attributes
    ----------
    table : ndarray of shape (n_rows, n_choices)
        The outcomes, NaN where not known.
    weight : ndarray of shape (n_rows, n_choices)
        One over the probability that a cell is known; 0 where it is not.
    noise : float, default=None
        See `prior`; None takes it from `weight`.
    """

    table: np.ndarray
    weight: np.ndarray
    noise: float | None = None

    def of(self, columns):
        """The same of some choices."""
        return Known(self.table[:, columns], self.weight[:, columns], self.noise)

    def with_handed(self, handed):
        """The same with a last choice whose quality is known of every row."""
        tables = zip((self.table, self.weight), (handed, 1.0))
        table, weight = (np.insert(part, part.shape[1], value, axis=1) for part, value in tables)
        return Known(table, weight, self.prior)

    def means(self):
        """Mean of each choice, by weight."""
        total = np.where(self.weight > 0, self.weight * self.table, 0.0).sum(axis=0)
        return total / np.maximum(self.weight.sum(axis=0), 1e-300)

    def judged(self, estimate):
        """Doubly robust outcomes of all cells: their means have no bias.

        Parameters
        ----------
        estimate : ndarray of shape (n_rows, n_choices)
            Of each row without it.
        """
        return estimate + self.weight * np.where(self.weight > 0, self.table - estimate, 0.0)

    def sigma(self, estimate):
        """Standard deviation of each choice's estimation error, over what is known."""
        error = np.where(self.weight > 0, self.table - estimate, 0.0)
        total = np.maximum(self.weight.sum(axis=0), 1e-300)
        mean = (self.weight * error).sum(axis=0) / total
        return np.sqrt((self.weight * (error - mean) ** 2).sum(axis=0) / total)

    @property
    def prior(self):
        """By how much single outcomes are noisier than where all are known."""
        if self.noise is not None:
            return self.noise
        made = self.weight > 0
        return float(self.weight[made].mean()) if made.any() else 1.0


class Outcomes(NamedTuple):
    """What a router learns from: a table of outcomes, or a log of one for each request.

    Attributes
    ----------
    quality : ndarray of shape (n_rows, n_choices)
        NaN where not known.
    known : Known or None
        None where all is known.
    costs : ndarray of shape (n_choices,) or (n_rows, n_choices)
        With NaN where `known_costs` is one.
    known_costs : Known or None
    kind : {"given", "estimated"} or None
        Of propensities; None of tables.
    """

    quality: np.ndarray
    known: Any
    costs: np.ndarray
    known_costs: Any = None
    kind: str | None = None

    def of(self, columns):
        """The same of some choices."""
        known, costs = (part and part.of(columns) for part in (self.known, self.known_costs))
        return Outcomes(self.quality[:, columns], known, self.costs[..., columns], costs, self.kind)

    def means(self):
        """Mean cost and mean quality of each choice."""
        costs = self.costs.mean(axis=0) if self.costs.ndim == 2 else self.costs
        costs = costs if self.known_costs is None else self.known_costs.means()
        return costs, self.quality.mean(axis=0) if self.known is None else self.known.means()

    def cheapest(self):
        """Mean cost of the cheapest plan; 0 where that is not known yet."""
        if self.known_costs is not None:
            return 0.0
        return float(np.min(self.costs, axis=-1).mean())

    def cost_reader(self, estimator):
        """An estimator that learns costs from what is known of them."""
        return estimator if self.known_costs is None else KnownCellsRegressor(estimator, True)

    def judged_costs(self, X, planned, folds):
        """Costs that decisions are judged by."""
        if self.known_costs is None:
            return self.costs
        if np.ndim(planned) < 2:
            planned = estimate_cells(as_numbers(X), self.costs, folds, ratio=True)
        return self.known_costs.judged(planned)

    def quality_reader(self, estimator):
        """An estimator that learns quality from what is known of it; None: any."""
        if self.known is None:
            return None
        if estimator is None and self.kind is None:
            estimator = default_quality_estimator()
        return KnownCellsRegressor(estimator)


def table_outcomes(quality, costs, names):
    """A table in which NaN is not known; of each choice something is."""
    if not np.isnan(quality).any():
        return Outcomes(quality, None, costs)
    known = known_cells(quality)
    if len(few := np.flatnonzero((known.weight > 0).sum(axis=0) < 2)):
        raise ValueError(
            f"y has fewer than two rows on which the quality of {names[few[0]]!r} is known (is "
            "not NaN). Leave the choice out."
        )
    return Outcomes(quality, known, costs)


def read_log(router, X, q, choice, propensity, costs):
    """Check a log of one answer per request; estimate the propensities that it lacks.

    Parameters
    ----------
    router : BudgetRouter
        It gets the names of its choices.
    X : indexable of n_rows rows
    q, choice, propensity, costs
        As `BudgetRouter.fit` takes them.

    Returns
    -------
    Outcomes
    """
    n = num_samples(X)
    quality = read_values(q, "y", n, allow_nan=True)
    fixed = by_label(router.costs)
    named = isinstance(fixed, Mapping)
    names = None
    if fixed is not None:
        names = list(map(str, fixed)) if named else [f"choice{k}" for k in range(len(fixed))]
    position, found = read_choice(choice, names or [], n)
    if names is not None and len(found) > len(names):
        unnamed = "" if named else " Give costs as a mapping from name to number."
        raise ValueError(
            f"choice has {found[len(names)]!r}, which is not among {names!r}.{unnamed}"
        )
    made = np.bincount(position[~np.isnan(quality)], minlength=len(found))
    if never := [name for name, count in zip(found, made) if count < 2]:
        raise ValueError(
            f"The log has fewer than two answers of {never[0]!r} with a known quality: it says "
            "nothing of it. Leave the choice out of the router."
        )
    router._named = named or np.asarray(choice).dtype.kind not in "iu"
    # Frames of costs and of quality are read by these names from here on.
    router._names, router._frame_columns = found, found if router._named else None
    if propensity is None:
        chance = estimate_propensities(as_numbers(X), position, len(found), folds_of_log(n))
    else:
        chance = read_propensity(propensity, n)

    def table(values):
        """What is not known lacks at random."""
        known = np.flatnonzero(~np.isnan(values))
        cells, weight = np.full((2, n, len(found)), np.nan)
        weight[:] = 0.0
        cells[known, position[known]] = values[known]
        weight[known, position[known]] = n / len(known) / chance[known]
        return Known(cells, weight)

    quality, known_costs = table(quality), None
    if costs is not None and np.ndim(costs) == 1:
        if fixed is None and router.cost_estimator is None:
            raise ValueError(
                "costs of the answers given, of shape (n_samples,), do not say what the other "
                "choices would have cost. Give the price list to the constructor (the budget is "
                "then met in the logged costs), or a cost_estimator that learns them."
            )
        if fixed is not None:
            check_fit_costs(router, None, None)
        known_costs = table(read_values(costs, "costs", n, least=0.0))
        costs = known_costs.table
    else:
        costs = check_fit_costs(router, costs, quality.table.shape)
    kind = "given" if propensity is not None else "estimated"
    return Outcomes(quality.table, quality, costs, known_costs, kind)


def known_cells(table):
    """A table in which some cells are NaN, as if they lacked at random, choice by choice."""
    known = ~np.isnan(table)
    weight = known * (len(table) / np.maximum(known.sum(axis=0), 1))
    return Known(table, weight)


def overlap_of(policy, names, budget, estimated):
    """What a log says where a policy would go.

    Parameters
    ----------
    policy : PricedPolicy
        Learned from a log.
    names : list of str
    budget : float
    estimated : bool

    Returns
    -------
    Overlap
    """
    weight = policy.known.weight
    choices = policy.validate(budget).choices
    needed, matched = (
        choices.totals(table) for table in (np.ones(weight.shape), (weight > 0).astype(float))
    )
    made = [column[column > 0] for column in weight.T]
    return Overlap(
        list(names),
        np.array([len(own) for own in made]),
        np.array([effective_size(own) for own in made]),
        np.array([own.max() if len(own) else 0.0 for own in made]),
        needed / len(weight),
        np.rint(matched).astype(np.int64),
        [
            name
            for name, n, m, own in zip(names, needed, matched, made)
            if never_matched(n, m, len(own), len(weight))
        ],
        estimated,
    )


def warn_of_overlap(overlap):
    """Say where the log has no answer to what the policy does."""
    if overlap.never:
        raw = overlap.needed[overlap.choices.index(overlap.never[0])]
        warnings.warn(
            f"The policy sends {raw:.1%} of the rows to {overlap.never[0]!r}, and on none of them "
            "has the log made this choice: its quality there is extrapolated. overlap_ has the "
            "counts; log some of these rows at random, or take a smaller budget.",
            UserWarning,
            stacklevel=4,
        )


class LogReportMixin:
    """Mixin for routers that learn from logs: what these know, and which rows were in them.

    `_fit` sets ``_log``, the `kind` of its `Outcomes`, and ``_row_keys`` of its rows.
    """

    @property
    def n_known_(self):
        """Rows on which the quality of each choice is known, of shape (n_choices,)."""
        policy = self._policy()
        if policy.known is None:
            found = np.full(len(self.choices_), len(policy.quality))
        else:
            found = (policy.known.weight > 0).sum(axis=0)
        for k in np.flatnonzero(policy.added):
            found[k] = self._newcomers[self.choices_[k]].record.n_rows
        return found

    @property
    def overlap_(self):
        """What the log says of the policy at `budget` (:class:`~skroute.metrics.Overlap`)."""
        check_is_fitted(self)
        if self._log is None:
            raise AttributeError("overlap_ is of logs of one answer per request: fit with choice.")
        budget = self._effective_budget(None)
        return overlap_of(self._policy(), self.choices_, budget, self._log == "estimated")

    def _seen(self, X):
        """Which rows are those of `fit`, as far as a row was there once."""
        keys, counts = np.unique(self._row_keys, return_counts=True)
        return np.isin(row_keys(X), keys[counts == 1])
