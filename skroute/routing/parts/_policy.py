"""The policy of a router: what choices are worth, the price of every budget, how well that does.

It is the only place where a price, an exclusion, a tie or a standard error is computed. Routers
decide by it, streams, exports and `DaskRouter` take it as it is.
"""

import inspect
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline

from skroute.assignment import Rule, assignment_path, choose_at_price, solve_assignment
from skroute.base import Plan, affords, check_affordable, note_failure
from skroute.routing.parts._estimates import MAX_PARTS, predict_matrix, rows_and_others
from skroute.routing.parts._log import with_last
from skroute.utils._compat import Real, num_samples
from skroute.utils._statistics import standard_error
from skroute.utils._tolerances import ROUNDING, TIE

# Budgets at which a policy is compared with others on validation rows.
_N_CURVE = 33
# Standard errors by which held-out rows must be better at a larger budget for it to be spent. On
# tables where nothing is gained, half an error lets noise be bought. On the logs of MMLU and
# TriviaQA, a whole error leaves gains of half a point.
_BEYOND_NOISE = 0.75
# Standard errors by which gains must be smaller than estimated for the estimates to be wrong.
_CONTRADICTED = 2.0
# Rows that find the largest budget worth spending, at most. It bounds the time of a fit, and
# resolves differences of a third of a point.
_MAX_JUDGED = 20_000
# A price that is above that of the first purchase by this share of it buys nothing.
_ABOVE = 1e-6
# What has an entry for each choice, where it is not None.
_OF_CHOICES = (
    "estimate",
    "as_new",
    "by_fold",
    "quality",
    "planned",
    "planned_as_new",
    "planned_by_fold",
    "realised",
    "sigma",
)
# Rows of evidence that the figures of a single choice are shrunk by towards those of all.
_PRIOR_ROWS = 20.0


class Choices(NamedTuple):
    """Two choices for each row, which differ where the row is tied, and the share of the second."""

    low: np.ndarray
    high: np.ndarray
    share: np.ndarray

    def mean(self, table):
        """For each row the mean of its entries in a table (n_rows, n_choices)."""
        rows = np.arange(len(self.low))
        low, high = table[rows, self.low], table[rows, self.high]
        return low + self.share * (high - low)

    def totals(self, table):
        """For each choice the sum of the table's entries over the rows that make it."""
        rows, n_choices = np.arange(len(self.low)), table.shape[1]
        low = (1 - self.share) * table[rows, self.low]
        high = self.share * table[rows, self.high]
        return np.bincount(self.low, low, n_choices) + np.bincount(
            self.high, high, n_choices
        )


class Validation(NamedTuple):
    """What decisions by estimates and a price learned without a row come to, row by row."""

    choices: Choices
    quality: np.ndarray
    cost: np.ndarray


class PricedDecisions(NamedTuple):
    """Held-out decisions at several prices.

    Attributes
    ----------
    prices : ndarray of shape (n_prices,)
        From the largest, which buys nothing, down to 0.
    rows : ndarray of shape (n_judged,), dtype=int64
        Rows of the log that are judged.
    quality, cost : ndarray of shape (n_prices, n_judged)
        What the decisions of these rows bring and cost, deciding not included.
    expected : ndarray of shape (n_prices, n_judged)
        Out-of-fold estimates of `quality`.
    """

    prices: np.ndarray
    rows: np.ndarray
    quality: np.ndarray
    cost: np.ndarray
    expected: np.ndarray


class Validated(NamedTuple):
    """Means over validation rows, and their standard errors as estimates for new rows."""

    quality: float
    quality_se: float
    cost: float
    cost_se: float


def choose_by_rule(values, costs, rule):
    """Choices of rows that are decided alone at a price, ties left open."""
    low = choose_at_price(values, costs, rule.price, tolerance=TIE)
    if not rule.share:
        return Choices(low, low, np.zeros(len(low)))
    high = choose_at_price(values, costs, rule.price, tolerance=-TIE)
    return Choices(low, high, np.where(low == high, 0.0, rule.share))


def last_useful(gains, part=None, weight=None, *, priced=False, expected=None):
    """Return the position of the first policy that no later one beats beyond noise.

    Parameters
    ----------
    gains : ndarray of shape (n_policies, n_rows)
        What each policy brings on each held-out row, from the cheapest policy to the most
        expensive one. No policy may have been fitted on a row that it is judged by.
    part : ndarray of shape (n_rows,), default=None
        Fold of each row, as in `standard_error`.
    weight : ndarray of shape (n_rows,), default=None
        Weight of each row; None weights all rows alike.
    priced : bool, default=False
        Whether gains are net of what is spent, because cost is money. Then less spending is no
        aim in itself, and the best policy is taken.
    expected : ndarray of shape (n_policies, n_rows), default=None
        Out-of-fold estimates of `gains`. Where the gains of the last policy are as expected, the
        estimates are honest, and it is useful without a proof of its own. None expects nothing.

    Returns
    -------
    int
    """
    means = np.average(gains, axis=1, weights=weight)
    # Means that differ by rounding are tied, and ties go to the cheaper policy.
    best = int(np.argmax(means >= means.max() - ROUNDING * np.abs(means).max()))
    if priced:
        return best
    for position in range(best):
        noise = standard_error(gains[best] - gains[position], weight, part)
        # With a single row the noise is NaN, and nothing is beyond it.
        if means[best] - means[position] > _BEYOND_NOISE * noise:
            continue
        if expected is None or _falls_short(gains, expected, position, part, weight):
            return position
    if expected is None or _falls_short(gains, expected, best, part, weight):
        return best
    return len(gains) - 1


def _falls_short(gains, expected, position, part, weight):
    """Return True if the last policy gains less over another one than is expected of it."""
    missing = (expected[-1] - expected[position]) - (gains[-1] - gains[position])
    noise = standard_error(missing, weight, part)
    return not np.average(missing, weights=weight) <= _CONTRADICTED * noise


@dataclass(eq=False)
class Policy:
    """Estimates of quality, out of sample, and what follows from them for every budget.

    All tables have one row for each row of the log and one column for each choice; costs are
    such tables or one number for each choice.

    Attributes
    ----------
    estimator : fitted estimator
        Of the quality of all choices that the log has.
    estimate : ndarray of shape (n_rows, n_choices)
        Cross-fitted quality: no row is estimated by an estimator that was fitted on it.
    as_new : ndarray of shape (n_rows, n_choices)
        The same, distributed as the estimates of new rows: what the price is learned from.
    quality : ndarray of shape (n_rows, n_choices)
        Outcomes that decisions are judged by.
    planned : ndarray
        Costs that rows are decided by.
    part : ndarray of shape (n_rows,), dtype=int64
        Number of the fold that each row was estimated in.
    sigma : ndarray of shape (n_choices,)
        Standard deviation of the estimation error, of which `reg_lambda` times is taken off.
    deciding : float
        What each row pays before it is decided.
    margin : float
        Share of a budget that is left unspent (FrugalMCT's delta).
    least_prices : tuple of two floats
        The smallest price, within a budget and where it is unlimited: what one unit of cost is
        worth in quality where both are money.
    realised : ndarray of shape (n_rows, n_choices), default=None
        What choices have cost, in which budgets are met; None where that is `planned`.
    weight : ndarray of shape (n_rows,), default=None
        How much each row of the log counts.
    noise : float
        By how much single outcomes are noisier than those of a complete table.
    planned_as_new : ndarray, default=None
        `planned` as `as_new`, where costs are estimated too.
    by_fold : ndarray of shape (n_folds, n_rows, n_choices), default=None
        For each fold `estimate` of all rows, distributed as the estimates of its rows: what the
        price for these rows is learned from. None where that is `estimate` for every fold.
    planned_by_fold : ndarray of shape (n_folds, n_rows, n_choices), default=None
        `planned` as `by_fold`, where costs are estimated too.
    kind : ndarray of shape (n_rows,), dtype=int64, default=None
        Number of the kind of a row that occurs often, -1 for others; None where none does.
    abstain_quality : float, default=None
        Quality of abstaining, which is the last choice then. None if no row can abstain.
    columns : ndarray of int, default=None
        Outputs of the estimator, with `abstain_quality` behind them, that are the choices; None
        where all are. Plans are in these positions.
    trusts_estimates : bool, default=True
        Whether a larger budget needs no proof of its own where held-out gains are as estimated.
    """

    estimator: Any
    estimate: np.ndarray
    as_new: np.ndarray
    quality: np.ndarray
    planned: np.ndarray
    part: np.ndarray
    sigma: np.ndarray
    reg_lambda: float = 0.0
    deciding: float = 0.0
    margin: float = 0.0
    least_prices: tuple = (0.0, 0.0)
    realised: np.ndarray | None = None
    weight: np.ndarray | None = None
    noise: float = 1.0
    planned_as_new: np.ndarray | None = None
    by_fold: np.ndarray | None = None
    planned_by_fold: np.ndarray | None = None
    kind: np.ndarray | None = None
    abstain_quality: float | None = None
    columns: np.ndarray | None = None
    trusts_estimates: bool = True
    _kept: dict = field(default_factory=dict, repr=False)

    def __getstate__(self):
        # What is computed when it is asked for stays behind.
        return {name: vars(self)[name] for name in self.__dataclass_fields__} | {
            "_kept": {}
        }

    # Other policies -------------------------------------------------------------------------

    def at(self, *, costs=None, **changes):
        """The policy at other fixed costs, `reg_lambda`, `deciding` or `least_prices`.

        The log is scaled: a call that cost twice its list price costs twice the new one.
        """
        changes = {
            name: now for name, now in changes.items() if now != getattr(self, name)
        }
        if costs is not None:
            # Handing over, the last choice, costs nothing and may be left out.
            costs = np.append(costs, np.zeros(len(self.planned) - len(costs)))
        if costs is not None and not np.array_equal(costs, self.planned):
            changes["planned"] = costs
            if self.realised is not None:
                factor = np.divide(
                    costs, self.planned, out=np.ones_like(costs), where=self.planned > 0
                )
                changes["realised"] = self.realised * factor
        return replace(self, **changes, _kept={}) if changes else self

    def restricted(self, kept):
        """The policy of some of the choices, for the time that the others are down."""
        if len(kept) == self.quality.shape[1]:
            return self
        key = tuple(kept)
        if key not in self._kept:
            tables = {name: getattr(self, name) for name in _OF_CHOICES}
            parts = {
                name: np.ascontiguousarray(table[..., kept])
                for name, table in tables.items()
                if table is not None
            }
            self._kept[key] = replace(self, **parts, columns=self.kept[kept], _kept={})
        return self._kept[key]

    @property
    def paid(self):
        """What choices have cost, in which budgets are met."""
        return self.planned if self.realised is None else self.realised

    @property
    def kept(self):
        """Positions of the choices among those of the log."""
        return (
            np.arange(self.quality.shape[1]) if self.columns is None else self.columns
        )

    # Prices ---------------------------------------------------------------------------------

    @property
    def penalty(self):
        """What is taken off each choice's estimates."""
        return self.reg_lambda * self.sigma

    @property
    def per_row(self):
        """Whether costs are known, or estimated, row by row."""
        return self.planned.ndim == 2

    @property
    def _decided_as_new(self):
        """Values and costs by which new rows would be decided, for the rows of the log."""
        planned = self.planned if self.planned_as_new is None else self.planned_as_new
        return self.as_new - self.penalty, planned

    @cached_property
    def path(self):
        """The price of every budget, what deciding costs not included (`AssignmentPath`)."""
        return assignment_path(*self._decided_as_new, self.realised, self.weight)

    @property
    def least(self):
        """Mean cost of the cheapest plan."""
        return float(self.path.budgets[0]) + self.deciding

    @cached_property
    def _priced_decisions(self):
        """Held-out decisions at prices from the cheapest plan to the most expensive one."""
        budgets, prices = self.path.budgets, self.path.prices
        at_budgets = np.linspace(budgets[0], budgets[-1], _N_CURVE)
        segments = np.searchsorted(budgets, at_budgets, side="right") - 1
        buys_nothing = prices[0] * (1 + _ABOVE)
        falling_prices = np.unique(np.append(prices[segments], buys_nothing))[::-1]

        n_rows = len(self.quality)
        rows = np.arange(n_rows)
        if n_rows > _MAX_JUDGED:
            rng = np.random.default_rng(0)
            rows = np.sort(rng.choice(n_rows, _MAX_JUDGED, replace=False))
        values = self.estimate[rows] - self.penalty
        planned = of_rows(self.planned, rows)
        paid = np.broadcast_to(self.paid, self.quality.shape)
        quality = np.empty((len(falling_prices), len(rows)))
        cost = np.empty((len(falling_prices), len(rows)))
        expected = np.empty((len(falling_prices), len(rows)))
        for position, price in enumerate(falling_prices):
            choices = choose_at_price(values, planned, price, tolerance=TIE)
            quality[position] = self.quality[rows, choices]
            cost[position] = paid[rows, choices]
            expected[position] = self.estimate[rows, choices]
        return PricedDecisions(falling_prices, rows, quality, cost, expected)

    def _floors_without(self, part=None):
        """Return the price floors that held-out rows choose, without those of a part."""
        decisions = self._priced_decisions
        part_of_row = self._merged_part[decisions.rows]
        judges = np.ones(len(part_of_row), dtype=bool)
        # Where all rows are of one part there are no others.
        if part is not None and (part_of_row != part).any():
            judges = part_of_row != part
        weight = None if self.weight is None else self.weight[decisions.rows][judges]

        floors = []
        for least_price in self.least_prices:
            gains = (
                decisions.quality[:, judges] - least_price * decisions.cost[:, judges]
            )
            position = last_useful(
                gains,
                part_of_row[judges],
                weight,
                priced=least_price > 0,
                expected=decisions.expected[:, judges]
                if self.trusts_estimates
                else None,
            )
            floors.append(max(float(decisions.prices[position]), float(least_price)))
        return tuple(floors)

    @cached_property
    def price_floors(self):
        """Smallest price within a budget and without one, tuple of two floats.

        Held-out rows show no gain beyond noise from smaller prices, at which more is spent. The
        floor is at least what a unit of cost is worth as money (`least_prices`).
        """
        return self._floors_without()

    def rule(self, budget, path=None, floors=None):
        """Price of a mean budget, deciding included, and how ties at it are mixed (`Rule`)."""
        path = self.path if path is None else path
        floors = self.price_floors if floors is None else floors
        floor = floors[int(budget == np.inf)]
        if budget == np.inf:
            return Rule(floor, 0.0)
        # The cheapest plan is always allowed, that of the path's own rows too.
        least = max(float(self.path.budgets[0]), float(path.budgets[0]))
        rule = path.rule(max((1 - self.margin) * (budget - self.deciding), least))
        return rule if rule.price >= floor else Rule(floor, 0.0)

    def room(self, budget):
        """What a cap leaves for choices, in the costs that rows are decided by."""
        room = budget - self.deciding
        return room if self.realised is None else self.path.planned_at(room)

    # Decisions ------------------------------------------------------------------------------

    def estimates(self, X):
        """Estimated quality of each choice for each row, before the penalty."""
        outputs = predict_matrix(self.estimator, X, "quality_estimator")
        return self._chosen(outputs, self.abstain_quality)

    def estimates_and_std(self, X):
        """Estimated quality of each choice, and the standard deviation of its error."""
        if offers_std(self.estimator):
            with note_failure("quality_estimator", num_samples(X), "predict"):
                found = self.estimator.predict(X, return_std=True)
            return tuple(
                self._chosen(
                    np.asarray(part, dtype=np.float64).reshape(num_samples(X), -1),
                    known,
                )
                for part, known in zip(found, (self.abstain_quality, 0.0))
            )
        estimates = self.estimates(X)
        levels = zip(estimates.T, error_by_level(self.estimate, self.quality))
        return estimates, np.column_stack(
            [np.interp(part, *level) for part, level in levels]
        )

    def _chosen(self, outputs, abstain_quality):
        """What the estimator says of the choices, with the quality of abstaining."""
        if self.abstain_quality is not None:
            outputs = with_last(outputs, abstain_quality)
        return outputs if self.columns is None else outputs[:, self.columns]

    def decide(
        self,
        estimates,
        costs,
        budget,
        *,
        draw,
        policy="online",
        told=False,
        allowed=None,
    ):
        """Choose for each row of a call (`Plan`).

        `costs` are those of the call itself where it is `told` them; `draw` gives positions of
        tied rows a uniform number each.
        """
        values = worth = estimates - self.penalty
        rows = np.arange(len(values))
        if allowed is not None:
            values, costs, stand_in = stand_ins(values, costs, allowed)
        estimated = self.realised is not None and not told
        least = self.least
        # One row alone has no mean that a budget could hold for.
        if policy == "batch" or (told and len(values) > 1):
            least = float(np.min(costs, axis=-1).mean()) + self.deciding
        check_affordable(budget, self.least if estimated else least)
        if policy == "online":
            route, high, share = choose_by_rule(values, costs, self.rule(budget))
            tied = np.flatnonzero(share)
            if len(tied):
                up = tied[draw(tied) < share[tied]]
                route[up] = high[up]
        else:
            room = self.room(budget) if estimated else budget - self.deciding
            if (
                estimated
                and allowed is not None
                and not affords(room, least - self.deciding)
            ):
                raise ValueError(
                    f"budget={budget!r} does not pay for the cheapest choices that allowed "
                    f"leaves: by the costs that rows are decided by they cost {least:.6g} per "
                    f"sample, and the budget pays for {room + self.deciding:.6g}."
                )
            net = values - self.price_floors[int(budget == np.inf)] * costs
            route = solve_assignment(
                net, costs, max(room, least - self.deciding)
            ).choices
        if allowed is not None:
            route = np.where(allowed[rows, route], route, stand_in)
        cost = np.broadcast_to(costs, values.shape)[rows, route]
        beyond, factor = self.correction(budget)
        quality = worth[rows, route] + (self.penalty + beyond)[route]
        expected = cost * factor[route] if estimated else cost
        deciding = self.deciding
        return Plan(
            self.kept[route], cost + deciding, None, quality, expected + deciding
        )

    # How well it does -----------------------------------------------------------------------

    @cached_property
    def _merged_part(self):
        """Part of each row: its fold, or several folds where there are more than `MAX_PARTS`."""
        if len(np.unique(self.part)) > MAX_PARTS:
            return self.part % MAX_PARTS
        return self.part

    @cached_property
    def _part_paths(self):
        """For each part of the rows their positions, and path and price floors of the others."""
        found = []
        for rows, others in rows_and_others(self._merged_part):
            values = self._as_part(self.estimate, self.by_fold, rows) - self.penalty
            planned = self._as_part(self.planned, self.planned_by_fold, rows)
            path = assignment_path(
                values[others],
                of_rows(planned, others),
                of_rows(self.realised, others),
                None if self.weight is None else self.weight[others],
            )
            floors = self._floors_without(self._merged_part[rows[0]])
            found.append((rows, path, floors))
        return found

    def _as_part(self, table, by_fold, rows):
        """Return a table for all rows, estimated as the rows of one part are."""
        if by_fold is not None:
            # Parts are merged only where there are no tables by fold.
            table = by_fold[self.part[rows[0]]]
        return self._alike(table, rows)

    def _alike(self, table, rows):
        """A table in which frequent rows have what estimators make of their copies in `rows`.

        Those decide all copies alike: the price for them must be learned of rows so decided.
        """
        if self.kind is None or table.ndim == 1:
            return table
        tested = rows[self.kind[rows] >= 0]
        # The last row is that of all that are of no kind.
        own = np.full((self.kind.max() + 2, table.shape[1]), np.nan)
        own[self.kind[tested]] = table[tested]
        return np.where(np.isnan(own[self.kind]), table, own[self.kind])

    def validate(self, budget):
        """The cross-fitted decisions at a mean budget, judged by the log (`Validation`)."""
        check_affordable(budget, self.least)
        n_rows, values = len(self.quality), self.estimate - self.penalty
        low, high, share = (
            np.empty(n_rows, np.int64),
            np.empty(n_rows, np.int64),
            np.empty(n_rows),
        )
        for rows, path, floors in self._part_paths:
            rule = self.rule(budget, path, floors)
            found = choose_by_rule(values[rows], of_rows(self.planned, rows), rule)
            low[rows], high[rows], share[rows] = found
        choices = Choices(low, high, share)
        cost = (
            choices.mean(np.broadcast_to(self.paid, self.quality.shape)) + self.deciding
        )
        return Validation(choices, choices.mean(self.quality), cost)

    def validated(self, budget):
        """Mean quality and cost of these decisions with their standard errors (`Validated`).

        New rows are decided by the estimator of all rows: how far its decisions on the rows of
        the log are from those of the folds is part of the error.
        """
        found = self.validate(budget)
        as_new = choose_by_rule(*self._decided_as_new, self.rule(budget))
        result = []
        for rows, table in ((found.quality, self.quality), (found.cost, self.paid)):
            new = as_new.mean(np.broadcast_to(table, self.quality.shape))
            new = new + self.deciding * (table is self.paid)
            apart = np.average(new - rows, weights=self.weight)
            error = np.hypot(apart, standard_error(rows, self.weight, self.part))
            result += [float(np.average(rows, weights=self.weight)), float(error)]
        return Validated(*result)

    @cached_property
    def curve(self):
        """Budgets from the cheapest plan to the most expensive, and the validations there."""
        low, high = self.path.budgets[[0, -1]] + self.deciding
        budgets = np.unique(np.linspace(low, high, _N_CURVE))
        return budgets, [self.validate(float(budget)) for budget in budgets]

    def correction(self, budget):
        """What choices that are made are worth beyond their estimates, and a factor of their costs.

        It is what is left of the winner's curse.
        """
        known = self._kept.get("correction")
        if known is None or known[0] != budget:
            choices = choose_by_rule(
                *self._decided_as_new, self.rule(max(budget, self.least))
            )
            known = self._kept["correction"] = budget, self._correct(choices)
        return known[1]

    def _correct(self, choices):
        shape = self.quality.shape
        weight = (
            np.ones((shape[0], 1))
            if self.weight is None
            else self.weight[:, np.newaxis]
        )
        made = choices.totals(np.broadcast_to(weight, shape))
        error = choices.totals((self.quality - self.as_new) * weight)
        overall, prior = error.sum() / made.sum(), _PRIOR_ROWS * self.noise
        cost = choices.totals(np.broadcast_to(self.paid, shape) * weight)
        plan = choices.totals(np.broadcast_to(self.planned, shape) * weight)
        ratio = cost.sum() / plan.sum() if plan.sum() > 0 else 1.0
        each = prior * plan / np.maximum(made, 1.0)
        factor = np.full(len(made), ratio)
        np.divide(cost + ratio * each, plan + each, out=factor, where=plan > 0)
        return (error + prior * overall) / (made + prior), np.maximum(factor, 0.0)


def check_lambda(reg_lambda):
    """A penalty that is a finite number from 0 up: it may have been set after `fit`."""
    if not (isinstance(reg_lambda, Real) and 0 <= reg_lambda < np.inf):
        raise ValueError(
            f"reg_lambda must be a finite number from 0 up, got {reg_lambda!r}."
        )
    return float(reg_lambda)


def of_rows(table, rows):
    """Rows of a table of costs; what is one number for each choice, or None, as it is."""
    return table if table is None or table.ndim == 1 else table[rows]


def choose_one(values, costs, price, fitting):
    """As `choose_at_price` for one row, among the choices that fit: lists and plain numbers."""
    if price == inf:
        # Nothing is bought, whatever it is worth. Infinity times a cost of 0 is no number.
        return -max([(-costs[k], values[k], -k) for k in fitting])[2]
    price *= 1 + TIE
    # Ties go to the cheaper choice, of equal costs to the better, then to the first.
    return -max(
        [(values[k] - price * costs[k], -costs[k], values[k], -k) for k in fitting]
    )[3]


def stand_ins(values, costs, allowed):
    """Values and costs in which the cheapest choice allowed stands for those that are not."""
    rows = np.arange(len(values))
    costs = np.broadcast_to(costs, values.shape)
    cost = np.where(allowed, costs, np.inf)
    # Of equal costs the better one.
    cheapest = np.where(
        cost == cost.min(axis=1, keepdims=True), values, -np.inf
    ).argmax(axis=1)
    values = np.where(allowed, values, values[rows, cheapest][:, np.newaxis])
    costs = np.where(allowed, costs, costs[rows, cheapest][:, np.newaxis])
    return values, costs, cheapest


def offers_std(estimator):
    """Whether `predict` says how uncertain it is when asked to."""
    # A router's estimator with newcomers passes the question on to that of `fit`.
    last = getattr(estimator, "base", estimator)
    last = last[-1] if isinstance(last, Pipeline) else last
    try:
        takes = "return_std" in inspect.signature(last.predict).parameters
        # `QualityRegressor` finds them in `fit`, where it is asked to.
        return takes and getattr(last, "standard_errors", True)
    except (TypeError, ValueError):
        return False


def error_by_level(estimate, quality, n_levels=10, least=30):
    """Cross-fitted error of each choice's estimate, by the size of the estimate."""
    found = []
    for value, truth in zip(estimate.T, quality.T):
        n = int(np.clip(len(value) // least, 1, n_levels))
        levels = np.array_split(np.argsort(value, kind="stable"), n)
        middle = np.array([value[rows].mean() for rows in levels])
        error = np.array(
            [np.sqrt(np.mean((truth[rows] - value[rows]) ** 2)) for rows in levels]
        )
        found.append((middle, error))
    return found
