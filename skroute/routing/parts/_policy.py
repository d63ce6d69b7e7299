"""The policy of a router: estimates of quality, the price of each budget, validation.

Prices, exclusions, ties and standard errors are computed here and nowhere else.
Routers, streams, exports and `DaskRouter` decide by a policy.
"""

import inspect
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline

from skroute.assignment import Rule, assignment_path, choose_at_price, solve_assignment
from skroute.assignment._solve import choose_checked
from skroute.base import Plan, affords, check_affordable, note_failure
from skroute.routing.parts._estimates import MAX_PARTS, predict_matrix, rows_and_others
from skroute.routing.parts._limits import (
    AmountTables,
    LimitedLog,
    Limits,
    LimitState,
    dual_of_log,
    learn_limit_rule,
    least_amount,
    order_limits,
    plan_within_limits,
)
from skroute.routing.parts._log import with_last
from skroute.utils._compat import Real, num_samples
from skroute.utils._row_hash import even_draws
from skroute.utils._statistics import standard_error
from skroute.utils._tolerances import ROUNDING, TIE

# Number of evenly spaced budgets at which held-out decisions are compared: 32 steps of
# 3 % from the cheapest plan to the best one.
_N_CURVE = 33
# A larger budget is spent only if quality on held-out rows rises by more than this many
# standard errors. With 0.5, routers buy noise on tables where nothing can be gained.
# With 1, they miss half a point of quality on the logs of MMLU and TriviaQA.
_BEYOND_NOISE = 0.75
# Estimated gains are wrong if held-out gains are smaller by more than this many
# standard errors. Two errors are the usual 95 % of a normal distribution.
_CONTRADICTED = 2.0
# Maximal number of rows on which prices are compared. It bounds the time of a fit. The
# mean of a quality of 0 or 1 over this many rows has a standard error of at most
# 0.0035, which is 0.5 / sqrt(20 000).
_MAX_JUDGED = 20_000
# The price at which nothing is bought exceeds the price of the first purchase by this
# share, which is far above the relative tolerance of ties, `TIE`.
_ABOVE = 1e-6
# Names of the fields of `Policy` whose last axis is the choices. Some may be None.
_FIELDS_BY_CHOICE = (
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
# Strength of shrinkage in a `Correction`: each choice gets this many added rows with
# the means of all choices. A choice that fewer rows make has mostly these means.
_PRIOR_ROWS = 20.0
# Maximal number of levels of an `ErrorCurve`: the deciles of the estimates.
_N_ERROR_LEVELS = 10
# Fewest rows of a level of an `ErrorCurve`. The standard deviation of 30 normal numbers
# has a standard error of 13 %, which is 1 / sqrt(2 * 30).
_MIN_ROWS_OF_LEVEL = 30


class Choices(NamedTuple):
    """Choice of each row at a price, or two tied choices and a probability.

    Attributes
    ----------
    low : ndarray of shape (n_rows,), dtype=int64
        Position of the choice. For a tied row, it is the cheapest tied choice.
    high : ndarray of shape (n_rows,), dtype=int64
        Position of the choice. For a tied row, it is the most expensive tied choice.
    share : ndarray of shape (n_rows,)
        Probability of the choice `high`. It is 0 for rows that are not tied.
    """

    low: np.ndarray
    high: np.ndarray
    share: np.ndarray

    def mean(self, table):
        """Return each row's entry of `table` (n_rows, n_choices), its mean if tied."""
        rows = np.arange(len(self.low))
        low_entries = table[rows, self.low]
        high_entries = table[rows, self.high]
        return low_entries + self.share * (high_entries - low_entries)

    def totals(self, table):
        """Sum the entries of `table` (n_rows, n_choices) over the rows of each choice.

        A tied row counts for both its choices, with their probabilities. The result has
        shape (n_choices,).
        """
        rows = np.arange(len(self.low))
        n_choices = table.shape[1]
        low_entries = (1 - self.share) * table[rows, self.low]
        high_entries = self.share * table[rows, self.high]
        low_totals = np.bincount(self.low, low_entries, n_choices)
        high_totals = np.bincount(self.high, high_entries, n_choices)
        return low_totals + high_totals


class Validation(NamedTuple):
    """Cross-fitted decisions and their outcomes.

    No row is decided by estimates or by a price that this row has helped to fit.

    Attributes
    ----------
    choices : Choices
        The decisions.
    quality, cost : ndarray of shape (n_rows,)
        Quality and cost of each row, by the log. Deciding is included in the cost.
    """

    choices: Choices
    quality: np.ndarray
    cost: np.ndarray


class PricedDecisions(NamedTuple):
    """Decisions on held-out rows at several prices, with their quality and cost.

    Attributes
    ----------
    prices : ndarray of shape (n_prices,)
        From the largest, which buys nothing, down to 0.
    rows : ndarray of shape (n_judged,), dtype=int64
        Positions of the rows of the log that are decided.
    quality, cost : ndarray of shape (n_prices, n_judged)
        Quality and cost of the decisions, by the log. Deciding is not included.
    expected : ndarray of shape (n_prices, n_judged)
        Out-of-fold estimates of `quality`.
    """

    prices: np.ndarray
    rows: np.ndarray
    quality: np.ndarray
    cost: np.ndarray
    expected: np.ndarray


class GroupPath(NamedTuple):
    """The price of each budget for one group of rows, learned from all other rows.

    Attributes
    ----------
    rows : ndarray of shape (n_rows_of_group,), dtype=int64
        Positions of the rows of the group.
    others : ndarray of shape (n_other_rows,), dtype=int64
        Positions of the rows of the other groups.
    path : AssignmentPath
        Price of each budget, by the other groups.
    price_floors : tuple of two floats
        As `Policy.price_floors`, by the other groups.
    """

    rows: np.ndarray
    others: np.ndarray
    path: Any
    price_floors: tuple


class Correction(NamedTuple):
    """Mean differences between outcomes and estimates, for each choice.

    Attributes
    ----------
    quality : ndarray of shape (n_choices,)
        Mean of quality minus its estimate, over rows that make the choice.
    cost_factor : ndarray of shape (n_choices,)
        Ratio of paid and planned costs, over rows that make the choice.
    """

    quality: np.ndarray
    cost_factor: np.ndarray


class ValidationMeans(NamedTuple):
    """Mean quality and mean cost on validation rows, with standard errors for new rows.

    The errors are those of the means as estimates for new rows.
    """

    quality: float
    quality_se: float
    cost: float
    cost_se: float


def choose_by_rule(values, costs, rule):
    """Choose for each row alone, at the price of `rule`. Tied rows keep two choices.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_choices)
        Estimated quality less the penalty. Finite, since estimates are checked before.
    costs : ndarray of shape (n_choices,) or (n_rows, n_choices)
        Costs by which rows are decided. Finite, too.
    rule : Rule
        The price, and the share of tied rows that take the more expensive choice.

    Returns
    -------
    Choices
    """
    # A positive tolerance gives tied rows the cheaper choice, a negative one the more
    # expensive choice.
    low = choose_checked(values, costs, rule.price, tolerance=TIE)
    if not rule.share:
        return Choices(low, low, np.zeros(len(low)))
    high = choose_checked(values, costs, rule.price, tolerance=-TIE)
    return Choices(low, high, np.where(low == high, 0.0, rule.share))


def last_useful(gains, fold=None, weight=None, *, priced=False, expected=None):
    """Return the index of the cheapest policy that the best does not beat beyond noise.

    Parameters
    ----------
    gains : ndarray of shape (n_policies, n_rows)
        Quality of the decisions of each policy on held-out rows, from the cheapest
        policy to the most expensive one. No policy may have been fitted on these rows.
    fold : ndarray of shape (n_rows,), default=None
        Fold of each row, as in `standard_error`.
    weight : ndarray of shape (n_rows,), default=None
        Weight of each row; None weights all rows alike.
    priced : bool, default=False
        True if costs have been subtracted from `gains`, because quality and cost are
        money. Then the best policy is returned, since a cheaper one has no further
        advantage.
    expected : ndarray of shape (n_policies, n_rows), default=None
        Out-of-fold estimates of `gains`. If the last policy gains as much as is
        estimated, the estimates are right, and the last policy is returned without a
        test. With None it is always tested.

    Returns
    -------
    int
    """
    means = np.average(gains, axis=1, weights=weight)
    # Means that differ by rounding are tied, and ties go to the cheaper policy.
    best = int(np.argmax(means >= means.max() - ROUNDING * np.abs(means).max()))
    if priced:
        return best
    # Find the cheapest policy that the best one does not beat beyond noise. With
    # `expected`, such a policy is returned only if the last policy leads it by clearly
    # less than is estimated.
    for position in range(best):
        noise = standard_error(gains[best] - gains[position], weight, fold)
        # With a single row the noise is NaN, the comparison is False, and the lead of
        # the best policy does not count.
        if means[best] - means[position] > _BEYOND_NOISE * noise:
            continue
        if expected is None or _falls_short(gains, expected, position, fold, weight):
            return position
    if expected is None or _falls_short(gains, expected, best, fold, weight):
        return best
    return len(gains) - 1


def _falls_short(gains, expected, position, fold, weight):
    """Return True if the last policy leads policy `position` by less than estimated.

    The lead is the gain of the last policy less the gain of the policy at `position`.
    The other parameters are those of `last_useful`.
    """
    expected_lead = expected[-1] - expected[position]
    lead = gains[-1] - gains[position]
    shortfall = expected_lead - lead
    noise = standard_error(shortfall, weight, fold)
    # With a single row the noise is NaN. The comparison is False, the result is True,
    # and the estimates are not trusted.
    return not np.average(shortfall, weights=weight) <= _CONTRADICTED * noise


@dataclass(eq=False)
class Policy:
    """Out-of-fold estimates of quality, and the decisions that follow from them.

    All tables have one row for each row of the log and one column for each choice.
    Costs are such tables, or have one number for each choice.

    Attributes
    ----------
    estimator : fitted estimator
        Estimates the quality of all choices of the log.
    estimate : ndarray of shape (n_rows, n_choices)
        Out-of-fold estimates of quality.
    as_new : ndarray of shape (n_rows, n_choices)
        The same estimates, with the distribution that the estimates of new rows have.
        The price is learned from them.
    quality : ndarray of shape (n_rows, n_choices)
        Logged or imputed quality of each choice.
    planned : ndarray of shape (n_choices,) or (n_rows, n_choices)
        Costs by which rows are decided.
    fold : ndarray of shape (n_rows,), dtype=int64
        Fold of each row.
    sigma : ndarray of shape (n_choices,)
        Standard deviation of the estimation error.
    reg_lambda : float, default=0.0
        Number of standard deviations that are subtracted from the estimates.
    deciding_cost : float, default=0.0
        Cost of a row before it is decided.
    margin : float, default=0.0
        Share of a budget that is left unspent (FrugalMCT's delta).
    least_prices : tuple of two floats, default=(0.0, 0.0)
        The smallest price with a budget and without one. If quality is money, it is
        what one unit of cost is worth.
    realised : ndarray of shape (n_rows, n_choices), default=None
        Logged costs, which the mean of a budget is about. None if they are `planned`.
    weight : ndarray of shape (n_rows,), default=None
        Weight of each row.
    noise : float, default=1.0
        Variance of the means of outcomes, divided by the variance that a complete log
        would have.
    planned_as_new : ndarray of shape (n_rows, n_choices), default=None
        Estimated costs with the distribution of new rows. None if costs are not
        estimated.
    by_fold : ndarray of shape (n_folds, n_rows, n_choices), default=None
        For each fold, the table `estimate` with the distribution that the estimates of
        the fold's rows have. The price for these rows is learned from it. None if
        `estimate` has this distribution for all folds.
    planned_by_fold : ndarray of shape (n_folds, n_rows, n_choices), default=None
        For each fold, the table `planned` with the distribution that the estimated
        costs of the fold's rows have. None if costs are not estimated, or if `planned`
        has this distribution for all folds.
    kind : ndarray of shape (n_rows,), dtype=int64, default=None
        Number that equal rows share, if they occur often, else -1. None if no row
        occurs often.
    abstain_quality : float, default=None
        Quality of abstaining, which is then the last choice. None if no row can
        abstain.
    columns : ndarray of int, default=None
        Positions of the choices among the outputs of the estimator and, last,
        abstaining. Routes of plans are these positions. None if the policy has all
        choices.
    trusts_estimates : bool, default=True
        If True, a larger budget is spent without a test where held-out gains are as
        estimated.
    amounts : AmountTables, default=None
        Further amounts of each choice. None if the log has none.
    limits : Limits, default=None
        Limits in addition to the budget. None if there are none.
    """

    estimator: Any
    estimate: np.ndarray
    as_new: np.ndarray
    quality: np.ndarray
    planned: np.ndarray
    fold: np.ndarray
    sigma: np.ndarray
    reg_lambda: float = 0.0
    deciding_cost: float = 0.0
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
    amounts: AmountTables | None = None
    limits: Limits | None = None
    # Results of methods. The keys of restricted policies are their choices. Other keys
    # are names, and their entries have the argument and the result of the last call.
    _cache: dict = field(default_factory=dict, repr=False)

    def __getstate__(self):
        """Return the fields for a pickle, without cached values."""
        # Cached properties are not among the fields.
        state = {name: vars(self)[name] for name in self.__dataclass_fields__}
        state["_cache"] = {}
        return state

    # Other policies -------------------------------------------------------------------

    def with_changes(self, *, costs=None, **changes):
        """Return the policy with new list prices `costs`, or new values of fields.

        Parameters
        ----------
        costs : ndarray of shape (n_choices,), default=None
            New list prices. The logged costs are scaled: a call that cost twice its
            list price costs twice the new one. Abstaining, the last choice, may be left
            out. None keeps the costs.
        **changes : dict
            New values of scalar fields.

        Returns
        -------
        Policy
            The policy itself if nothing changes, so that its cached values are used
            again.
        """
        changes = {
            name: value
            for name, value in changes.items()
            if value != getattr(self, name)
        }
        if costs is not None:
            # `costs` may lack its last entry, the cost of abstaining. This cost is 0.
            n_missing = len(self.planned) - len(costs)
            costs = np.append(costs, np.zeros(n_missing))
            if not np.array_equal(costs, self.planned):
                changes["planned"] = costs
                changes["realised"] = self._realised_at(costs)
        if not changes:
            return self
        return replace(self, **changes, _cache={})

    def _realised_at(self, costs):
        """Return the logged costs, scaled from the prices `planned` to the new `costs`.

        `costs` are the new prices (n_choices,). None is returned if rows are decided by
        the logged costs.
        """
        if self.realised is None:
            return None
        # 1 for a choice whose list price is 0: its logged costs are not scaled.
        factor = np.ones_like(costs)
        np.divide(costs, self.planned, out=factor, where=self.planned > 0)
        return self.realised * factor

    def restricted(self, positions):
        """Return the policy that has only the choices at `positions`.

        Parameters
        ----------
        positions : ndarray of int
            The choices that are left, as positions among the choices of this policy.

        Returns
        -------
        Policy
        """
        if len(positions) == self.quality.shape[1]:
            return self
        key = tuple(positions)
        if key not in self._cache:
            tables = {}
            for name in _FIELDS_BY_CHOICE:
                table = getattr(self, name)
                if table is not None:
                    tables[name] = np.ascontiguousarray(table[..., positions])
            if self.amounts is not None:
                tables["amounts"] = self.amounts.restricted(positions)
            columns = self.choice_positions[positions]
            self._cache[key] = replace(self, **tables, columns=columns, _cache={})
        return self._cache[key]

    def limited(self, limits):
        """Return the policy with these `limits` in place of its own. The budget stays.

        Parameters
        ----------
        limits : Limits or None
            None has no limits but the budget.

        Returns
        -------
        Policy
            The policy itself if it has these limits. The last other policy is cached.
        """
        key = None if limits is None else limits.key
        own_key = None if self.limits is None else self.limits.key
        if key == own_key:
            return self
        cached = self._cache.get("limited")  # (key of the limits, policy), or None
        if cached is None or cached[0] != key:
            cached = (key, replace(self, limits=limits, _cache={}))
            self._cache["limited"] = cached
        return cached[1]

    @property
    def paid(self):
        """Costs whose mean meets the budget: the logged ones, or else the planned ones.

        The shape is (n_choices,) or (n_rows, n_choices).
        """
        return self.planned if self.realised is None else self.realised

    @property
    def choice_positions(self):
        """Positions of the choices among those of the whole log, (n_choices,)."""
        if self.columns is None:
            return np.arange(self.quality.shape[1])
        return self.columns

    # Prices ---------------------------------------------------------------------------

    @property
    def penalty(self):
        """Amount that is subtracted from the estimates of each choice, (n_choices,)."""
        return self.reg_lambda * self.sigma

    @property
    def has_row_costs(self):
        """True if rows differ in costs: `planned` has the shape (n_rows, n_choices)."""
        return self.planned.ndim == 2

    @property
    def _decided_as_new(self):
        """Pair (values, costs) of the logged rows, distributed as those of new rows.

        Values are estimates less the penalty, (n_rows, n_choices). Costs are those by
        which rows are decided, (n_choices,) or (n_rows, n_choices).
        """
        planned = self.planned if self.planned_as_new is None else self.planned_as_new
        return self.as_new - self.penalty, planned

    @cached_property
    def path(self):
        """Price of each mean budget, cost of deciding excluded (`AssignmentPath`)."""
        values, planned = self._decided_as_new
        return assignment_path(values, planned, self.realised, self.weight)

    @property
    def least(self):
        """Mean cost of the cheapest plan within the limits, with cost of deciding."""
        return self._least_without_deciding + self.deciding_cost

    @cached_property
    def _least_without_deciding(self):
        """Mean cost of the cheapest plan within the limits, without cost of deciding.

        With the cost of deciding, it is `least`.
        """
        least = float(self.path.budgets[0])
        if self.limits is None:
            return least
        # A budget of twice the largest cost, which no plan exceeds: only the other
        # limits have an effect. The 1 keeps it above 0 if all costs are 0.
        budget_without_effect = 2.0 * float(np.max(self.paid)) + 1.0
        order = self._limit_order(budget_without_effect)
        floor_with_budget, _ = self.price_floors
        dual = self._dual_function(order, floor_with_budget, group=None)
        # The budget is the first limit of the order, at position 0.
        return max(least, least_amount(dual, order, limit=0))

    # Several limits -------------------------------------------------------------------

    def check_feasible(self, budget):
        """Raise a ValueError if no plan is within the budget and the limits."""
        check_affordable(budget, self.least, advice=self._advice_on_limits())
        if self.limits is not None:
            # Limits that exclude each other are an error here.
            self.limit_rule(budget)

    def _limit_order(self, budget):
        """Return names and sizes of the limits, the budget first (`LimitOrder`).

        `budget` does not include deciding.
        """
        return order_limits(
            self.limits,
            budget=budget,
            amounts=self.amount_tables,
            positions=self.choice_positions,
        )

    @property
    def amount_tables(self):
        """Amounts of the log, such as seconds (`AmountTables`), or empty tables."""
        if self.amounts is not None:
            return self.amounts
        # No amounts: the first axis, that of the amounts, has length 0.
        n_rows, n_choices = self.quality.shape
        return AmountTables(
            [], np.empty((0, n_rows, n_choices)), np.empty((0, n_choices))
        )

    def _dual_function(self, order, price_floor, group):
        """Build the `DualFunction` of the log, from which prices of limits are learned.

        It is not cached, because it stores the plans that it computes. With the plans
        of earlier calls, decisions would depend on these calls.

        Parameters
        ----------
        order : LimitOrder
        price_floor : float
            Smallest price of the cost.
        group : GroupPath or None
            A group of rows that is left out. None takes all rows.
        """
        values, planned = self._decided_as_new
        paid = self.paid
        amounts = self.amount_tables
        weight = self.weight
        if group is not None:
            rows = group.rows
            others = group.others
            values = self._as_group(self.estimate, self.by_fold, rows)[others]
            values = values - self.penalty
            planned = self._as_group(self.planned, self.planned_by_fold, rows)
            planned = of_rows(planned, others)
            paid = of_rows(paid, others)
            amounts = amounts._replace(realised=amounts.realised[:, others])
            weight = None if weight is None else weight[others]
        log = LimitedLog(values, planned, paid, amounts, weight)
        return dual_of_log(log, order, price_floor)

    def limit_rule(self, budget, group=None):
        """Return the dual prices of a mean budget and of the limits (`LimitRule`).

        Parameters
        ----------
        budget : float
            Mean cost per row, deciding included.
        group : GroupPath, default=None
            A group of rows that the prices do not depend on. None takes all rows.

        Raises
        ------
        ValueError
            If the limits exclude each other.
        """
        floors = self.price_floors if group is None else group.price_floors
        floor_with_budget, floor_without_budget = floors
        spendable = budget
        price_floor = floor_without_budget
        if budget != np.inf:
            spendable = (1 - self.margin) * (budget - self.deciding_cost)
            price_floor = floor_with_budget
        order = self._limit_order(spendable)
        dual = self._dual_function(order, price_floor, group)
        return learn_limit_rule(
            dual,
            order,
            price_floor,
            # For all rows, limits that exclude each other are an error. Without the
            # rows of a group, the least amounts may exceed the limits a little.
            must_hold=group is None,
        )

    def _choices_at(self, budget, values, costs, *, group=None, draw=None):
        """Choose for each row alone, at the prices of budget and limits (`Choices`).

        Parameters
        ----------
        budget : float
            Mean cost per row, deciding included.
        values : ndarray of shape (n_rows, n_choices)
            With several limits, NaN where a row may not get a choice.
        costs : ndarray of shape (n_choices,) or (n_rows, n_choices)
            Costs by which rows are decided.
        group : GroupPath, default=None
            As in `limit_rule`.
        draw : callable, default=None
            As in `decide`. With the budget alone, ties are left open. With further
            limits, they are drawn. None spreads the draws evenly.
        """
        if self.limits is None:
            rule = self.rule(budget)
            if group is not None:
                rule = self.rule(budget, group.path, group.price_floors)
            return choose_by_rule(values, costs, rule)
        rule = self._cached_limit_rule(budget, group)
        n_rows = len(values)
        if len(rule.prices.shares) == 1:
            # All rows follow a single plan, and the draws have no effect.
            draws = np.zeros(n_rows)
        elif draw is None:
            draws = even_draws(np.arange(n_rows, dtype=np.uint64))
        else:
            draws = draw(np.arange(n_rows))
        route = rule.decide(values, costs, self.amount_tables.planned, draws)
        return Choices(route, route, np.zeros(n_rows))

    def _cached_limit_rule(self, budget, group):
        """Return ``limit_rule(budget, group)``, cached for each group's last budget."""
        # Groups share no rows, so that the first row identifies a group. None is the
        # key of the rule that is learned from all rows.
        first_row = None if group is None else int(group.rows[0])
        key = ("limit rule", first_row)
        cached = self._cache.get(key)  # (budget, rule), or None
        if cached is None or cached[0] != budget:
            cached = (budget, self.limit_rule(budget, group))
            self._cache[key] = cached
        return cached[1]

    @cached_property
    def _priced_decisions(self):
        """Held-out decisions at falling prices, down to 0 (`PricedDecisions`)."""
        budgets = self.path.budgets
        prices = self.path.prices
        even_budgets = np.linspace(budgets[0], budgets[-1], _N_CURVE)
        # For each of `even_budgets`, which are evenly spaced, the position of the
        # largest budget of the path that does not exceed it.
        segments = np.searchsorted(budgets, even_budgets, side="right") - 1
        # prices[0] is the price of the first purchase.
        buys_nothing = prices[0] * (1 + _ABOVE)
        all_prices = np.append(prices[segments], buys_nothing)
        falling_prices = np.unique(all_prices)[::-1]

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

    def _floors_without(self, group=None):
        """Compute `price_floors` from the held-out rows that are not in `group`.

        Parameters
        ----------
        group : int, default=None
            Group of rows that is left out. None takes all rows.

        Returns
        -------
        tuple of two floats
            As `price_floors`.
        """
        decisions = self._priced_decisions
        group_of_row = self._group_of_row[decisions.rows]
        # Mask of the rows that the floors depend on.
        is_used = np.ones(len(group_of_row), dtype=bool)
        # A group that has all rows cannot be left out.
        if group is not None and (group_of_row != group).any():
            is_used = group_of_row != group
        weight = None  # all rows weigh the same
        if self.weight is not None:
            weight = self.weight[decisions.rows][is_used]
        expected = None  # larger budgets are always tested
        if self.trusts_estimates:
            expected = decisions.expected[:, is_used]

        floors = []
        for least_price in self.least_prices:
            quality = decisions.quality[:, is_used]
            gains = quality - least_price * decisions.cost[:, is_used]
            position = last_useful(
                gains,
                group_of_row[is_used],
                weight,
                priced=least_price > 0,
                expected=expected,
            )
            floors.append(max(float(decisions.prices[position]), float(least_price)))
        return tuple(floors)

    @cached_property
    def price_floors(self):
        """Smallest price of a unit of cost, with a budget and without one (two floats).

        Smaller prices spend more, and held-out rows show no gain beyond noise from
        them. The floor is at least what a unit of cost is worth as money
        (`least_prices`).
        """
        return self._floors_without()

    def rule(self, budget, path=None, floors=None):
        """Return the price of a mean budget, and how it splits tied rows (`Rule`).

        Parameters
        ----------
        budget : float
            Mean cost per row, deciding included.
        path : AssignmentPath, default=None
            Price of each budget. None takes the path of all rows.
        floors : tuple of two floats, default=None
            Smallest price with a budget, and without one. None takes the floors of all
            rows.

        Returns
        -------
        Rule
        """
        path = self.path if path is None else path
        floors = self.price_floors if floors is None else floors
        floor_with_budget, floor_without_budget = floors
        if budget == np.inf:
            # No budget has to be spent exactly: tied rows get the cheaper choice.
            return Rule(floor_without_budget, share=0.0)
        # A smaller budget is raised to the cost of the cheapest plan: that of all rows
        # or that of the rows of `path`, the larger one.
        least = max(float(self.path.budgets[0]), float(path.budgets[0]))
        spendable = (1 - self.margin) * (budget - self.deciding_cost)
        rule = path.rule(max(spendable, least))
        if rule.price < floor_with_budget:
            return Rule(floor_with_budget, share=0.0)
        return rule

    def planned_cap(self, budget):
        """Return the cap on mean planned cost that keeps the mean bill at `budget`.

        Parameters
        ----------
        budget : float
            Mean bill per row, deciding included.

        Returns
        -------
        float
            Mean per row, without the cost of deciding.
        """
        mean_bill = budget - self.deciding_cost
        if self.realised is None:
            # The planned costs are the bills.
            return mean_bill
        return self.path.planned_at(mean_bill)

    # Decisions ------------------------------------------------------------------------

    def estimates(self, X):
        """Return the estimated quality of each choice. `penalty` is not subtracted."""
        outputs = predict_matrix(self.estimator, X, "quality_estimator")
        return self._by_choice(outputs, self.abstain_quality)

    def estimates_and_std(self, X):
        """Return estimated qualities and standard deviations of their errors.

        An estimator whose `predict` takes ``return_std`` gives both. For any other
        estimator the deviation is that of the out-of-fold error at the level of the
        estimate.
        """
        n_rows = num_samples(X)
        if offers_std(self.estimator):
            with note_failure("quality_estimator", n_rows, "predict"):
                outputs, std = self.estimator.predict(X, return_std=True)
            outputs = np.asarray(outputs, dtype=np.float64).reshape(n_rows, -1)
            std = np.asarray(std, dtype=np.float64).reshape(n_rows, -1)
            estimates = self._by_choice(outputs, self.abstain_quality)
            # The quality of abstaining is known, and its error is 0.
            return estimates, self._by_choice(std, 0.0)
        estimates = self.estimates(X)
        std = np.empty_like(estimates)
        for choice, curve in enumerate(error_by_level(self.estimate, self.quality)):
            std[:, choice] = np.interp(estimates[:, choice], curve.level, curve.error)
        return estimates, std

    def _by_choice(self, outputs, abstaining):
        """Return estimator outputs as one column for each choice of this policy.

        Parameters
        ----------
        outputs : ndarray of shape (n_rows, n_outputs)
            One column for each choice of the log but abstaining.
        abstaining : float
            Entry of the choice that abstains. It has no effect if no row can abstain.

        Returns
        -------
        ndarray of shape (n_rows, n_choices)
        """
        if self.abstain_quality is not None:
            outputs = with_last(outputs, abstaining)
        return outputs if self.columns is None else outputs[:, self.columns]

    def decide(
        self,
        estimates,
        costs,
        budget,
        *,
        draw,
        policy="online",
        costs_given=False,
        allowed=None,
    ):
        """Choose for each row of a call, within a mean budget (`Plan`).

        Parameters
        ----------
        estimates : ndarray of shape (n_rows, n_choices)
            From `estimates`.
        costs : ndarray of shape (n_choices,) or (n_rows, n_choices)
            Costs by which rows are decided.
        budget : float
            Mean cost per row, deciding included.
        draw : callable
            ``draw(rows)`` returns a uniform random number for each of the rows at these
            positions. The numbers divide tied rows.
        policy : {"online", "batch"}, default="online"
            Each row alone, or all rows together under a hard cap.
        costs_given : bool, default=False
            True if the user gave `costs` for this call. False if they are estimated, or
            come from a price list.
        allowed : ndarray of bool of shape (n_rows, n_choices), default=None
            Choices that each row may make. None allows all.

        Returns
        -------
        Plan
        """
        penalised = estimates - self.penalty  # (n_rows, n_choices)
        values = penalised
        stand_in = None  # every row may make every choice: none is replaced
        if allowed is not None and self.limits is None:
            # A choice that is not allowed has the value and the cost of `stand_in`, the
            # row's cheapest allowed choice, and is replaced by it below.
            values, costs, stand_in = stand_ins(values, costs, allowed)
        elif allowed is not None:
            # With limits, a choice whose value is NaN is not made.
            values = np.where(allowed, values, np.nan)
        # The budget must pay for the cheapest plan: that of these rows, or else that of
        # the log.
        least_of_log = self.least
        # Mean of `costs` if each row gets its cheapest choice, with cost of deciding.
        least_of_rows = float(np.min(costs, axis=-1).mean()) + self.deciding_cost
        # True if `costs` are estimates, quotes or list prices, and bills come later.
        # Without `realised`, the costs of the log are the bills.
        costs_differ_from_bills = self.realised is not None and not costs_given
        # True if the budget is the mean over the rows of this call: they are decided
        # together, or several rows have known costs. Otherwise it is the mean over many
        # calls, and the rows of this call may cost more.
        budget_is_of_rows = policy == "batch" or (costs_given and len(values) > 1)
        smallest_budget = least_of_log
        # The mean bill of these rows is known only if `costs` are the bills.
        if budget_is_of_rows and not costs_differ_from_bills:
            smallest_budget = least_of_rows
        check_affordable(budget, smallest_budget, advice=self._advice_on_limits())

        if policy == "online":
            route = self._route_online(values, costs, budget, draw)
        else:
            # Cap on the mean of `costs` over the choices. The budget is in bills, and
            # includes the cost of deciding.
            cap = budget - self.deciding_cost
            if costs_differ_from_bills:
                cap = self.planned_cap(budget)
                # The budget was compared with the cheapest plan of the log only. The
                # cheapest allowed choices of these rows may cost much more.
                if allowed is not None:
                    self._check_cap(cap, budget, least_of_rows)
            # The cheapest plan of these rows is within every cap.
            cap = max(cap, least_of_rows - self.deciding_cost)
            route = self._route_batch(values, costs, budget, cap=cap)
        rows = np.arange(len(values))
        if stand_in is not None:
            route = np.where(allowed[rows, route], route, stand_in)

        quoted_cost = np.broadcast_to(costs, values.shape)[rows, route]
        correction = self.correction(budget)
        # The expected quality is the estimate without the penalty, which only serves to
        # decide, plus the mean error of such estimates in the log.
        added_quality = (self.penalty + correction.quality)[route]
        quality = penalised[rows, route] + added_quality
        cost = quoted_cost
        if costs_differ_from_bills:
            # The expected bill.
            cost = quoted_cost * correction.cost_factor[route]
        return Plan(
            self.choice_positions[route],
            cost=cost + self.deciding_cost,
            quality=quality,
            quoted_cost=quoted_cost + self.deciding_cost,
            amounts=self._amounts_of(route),
        )

    def _advice_on_limits(self):
        """Return the end of a message about a budget that is too small.

        It says that the cheapest plan must be within the limits. Without limits it is
        empty.
        """
        if self.limits is None:
            return ""
        limits = []
        for name, most in self.limits.means.items():
            limits.append(f"{name} <= {most:.6g}")
        for name, share in self.limits.capacities.items():
            limits.append(f"share of {name} <= {share:.6g}")
        return f"It is that within {', '.join(limits)}. Raise the budget or a limit."

    def _amounts_of(self, route):
        """Return mean amounts, such as seconds, of each row's choice, by their names.

        Parameters
        ----------
        route : ndarray of shape (n_rows,)
            Choice of each row, as its position in this policy.

        Returns
        -------
        dict from str to ndarray of shape (n_rows,), or None
            For each amount, such as seconds, the mean of the row's choice in the log.
            None if the log has no amounts next to the cost.
        """
        if self.amounts is None:
            return None
        amounts = {}
        for name, planned in zip(self.amounts.names, self.amounts.planned):
            amounts[name] = planned[route]
        return amounts

    def _route_online(self, values, costs, budget, draw):
        """Return the choice of each row, decided alone at the price of the budget.

        The parameters are those of `_choices_at`. `draw` divides tied rows.
        """
        route, high, share = self._choices_at(budget, values, costs, draw=draw)
        tied = np.flatnonzero(share)
        if len(tied):
            takes_high = tied[draw(tied) < share[tied]]
            route[takes_high] = high[takes_high]
        return route

    def _route_batch(self, values, costs, budget, *, cap):
        """Choose for all rows together, so that the mean of `costs` is at most `cap`.

        Parameters
        ----------
        values, costs
            As in `_choices_at`.
        budget : float
            Mean cost per row, deciding included. It is read only to select the price
            floor: there is one with a budget, and one without.
        cap : float
            Largest mean of `costs` over the choices. Infinity is no cap.

        Returns
        -------
        ndarray of shape (n_rows,), dtype=int64
        """
        floor_with_budget, floor_without_budget = self.price_floors
        floor = floor_without_budget if budget == np.inf else floor_with_budget
        # A unit of cost has at least the price `floor`, also within the cap.
        net_values = values - floor * costs
        if self.limits is None:
            return solve_assignment(net_values, costs, cap).choices
        order = self._limit_order(cap)
        return plan_within_limits(net_values, costs, self.amount_tables.planned, order)

    def _check_cap(self, cap, budget, least_of_rows):
        """Raise an error if a cap does not pay for the cheapest allowed choices.

        Parameters
        ----------
        cap : float
            Largest mean planned cost per row, without the cost of deciding.
        budget : float
            The budget as the user gave it, in bills, for the message.
        least_of_rows : float
            Mean planned cost per row of the cheapest allowed choices, with deciding.
        """
        if affords(cap, least_of_rows - self.deciding_cost):
            return
        raise ValueError(
            f"budget={budget!r} does not pay for the cheapest choices that allowed "
            f"leaves: by the costs that rows are decided by they cost "
            f"{least_of_rows:.6g} per sample, and the budget pays for "
            f"{cap + self.deciding_cost:.6g}."
        )

    # Validation -----------------------------------------------------------------------

    @cached_property
    def _group_of_row(self):
        """Number of the validation group of each row: one fold, or a union of folds.

        A group is a union only if there are more than `MAX_PARTS` folds. The result is
        an int array (n_rows,).
        """
        if len(np.unique(self.fold)) > MAX_PARTS:
            return self.fold % MAX_PARTS
        return self.fold

    @cached_property
    def _group_paths(self):
        """Prices of each group, learned from other groups (list of `GroupPath`)."""
        group_paths = []
        for rows, others in rows_and_others(self._group_of_row):
            # Values and costs of all rows, with the distribution that those of the rows
            # of this group have.
            values = self._as_group(self.estimate, self.by_fold, rows) - self.penalty
            planned = self._as_group(self.planned, self.planned_by_fold, rows)
            weight = None if self.weight is None else self.weight[others]
            path = assignment_path(
                values[others],
                of_rows(planned, others),
                of_rows(self.realised, others),
                weight,
            )
            # All rows of the group have the same number.
            number_of_group = self._group_of_row[rows[0]]
            floors = self._floors_without(number_of_group)
            group_paths.append(
                GroupPath(
                    rows=rows,
                    others=others,
                    path=path,
                    price_floors=floors,
                )
            )
        return group_paths

    def _as_group(self, table, by_fold, rows):
        """Return `table` with the distribution that estimates of a group's `rows` have.

        Parameters
        ----------
        table : ndarray of shape (n_choices,) or (n_rows, n_choices)
            Estimates or costs.
        by_fold : ndarray of shape (n_folds, n_rows, n_choices) or None
            The table for each fold, if the folds differ.
        rows : ndarray of int
            Positions of the rows of the group.

        Returns
        -------
        ndarray in the shape of `table`
        """
        if by_fold is not None:
            # Groups of several folds exist only if there are no tables by fold. The
            # group is therefore one fold, that of its first row.
            fold_of_group = self.fold[rows[0]]
            table = by_fold[fold_of_group]
        if self.kind is None or table.ndim == 1:
            return table
        return self._with_copies_alike(table, rows)

    def _with_copies_alike(self, table, rows):
        """Return `table` with the entries of `rows` in all copies of these rows, too.

        An estimator decides all copies of a row alike. The price for the copies in
        `rows` is therefore learned from copies that are decided as they are.

        Parameters
        ----------
        table : ndarray of shape (n_rows, n_choices)
            Estimates or costs of all rows.
        rows : ndarray of int
            Positions of the rows of the group.

        Returns
        -------
        ndarray of shape (n_rows, n_choices)
        """
        frequent = rows[self.kind[rows] >= 0]
        n_kinds = self.kind.max() + 1
        # The last row stays NaN. Rows that are not frequent read it by their kind, -1.
        values_of_kind = np.full((n_kinds + 1, table.shape[1]), np.nan)
        # If there are several copies among `rows`, the last one counts.
        values_of_kind[self.kind[frequent]] = table[frequent]
        # Entries of each row's copy in the group. NaN if the group has no copy of it.
        values_of_copies = values_of_kind[self.kind]  # (n_rows, n_choices)
        return np.where(np.isnan(values_of_copies), table, values_of_copies)

    def validate(self, budget):
        """Return the cross-fitted decisions at a mean budget (`Validation`)."""
        check_affordable(budget, self.least, advice=self._advice_on_limits())
        n_rows = len(self.quality)
        values = self.estimate - self.penalty
        choices = Choices(
            low=np.empty(n_rows, np.int64),
            high=np.empty(n_rows, np.int64),
            share=np.empty(n_rows),
        )
        for group in self._group_paths:
            rows = group.rows
            decided = self._choices_at(
                budget, values[rows], of_rows(self.planned, rows), group=group
            )
            choices.low[rows] = decided.low
            choices.high[rows] = decided.high
            choices.share[rows] = decided.share
        paid = np.broadcast_to(self.paid, self.quality.shape)
        cost = choices.mean(paid) + self.deciding_cost
        return Validation(choices, choices.mean(self.quality), cost)

    def validated(self, budget):
        """Return mean quality and cost of cross-fitted decisions (`ValidationMeans`).

        New rows are decided by the estimator of all rows. If the rows of the log are
        decided in this way ("as new"), quality and cost have other means than with
        cross-fitted decisions. The difference of the means is a part of the standard
        errors.
        """
        validation = self.validate(budget)
        values_as_new, planned_as_new = self._decided_as_new
        choices_as_new = self._choices_at(budget, values_as_new, planned_as_new)
        paid = np.broadcast_to(self.paid, self.quality.shape)
        quality_as_new = choices_as_new.mean(self.quality)
        cost_as_new = choices_as_new.mean(paid) + self.deciding_cost
        quality_se = self._error_of_mean(validation.quality, quality_as_new)
        cost_se = self._error_of_mean(validation.cost, cost_as_new)
        return ValidationMeans(
            quality=float(np.average(validation.quality, weights=self.weight)),
            quality_se=quality_se,
            cost=float(np.average(validation.cost, weights=self.weight)),
            cost_se=cost_se,
        )

    def limit_states(self, budget):
        """Return use and price of the budget and each limit (list of `LimitState`).

        The rows of the log are decided twice. For `LimitState.spent`, they are decided
        as new rows are, by the estimator of all rows. For `LimitState.validation`, each
        row is decided by the estimator that was not fitted on it.

        Parameters
        ----------
        budget : float
            Mean cost per row, deciding included. Infinity is no budget.
        """
        rule = self._cached_limit_rule(budget, None)
        order = rule.order
        values, planned = self._decided_as_new
        as_new = self._choices_at(budget, values, planned)
        validation = self.validate(budget)
        paid = np.broadcast_to(self.paid, self.quality.shape)
        # For each limit, in the order of `order.names`, a table of the amounts that it
        # counts: (n_rows, n_choices).
        tables = [paid] if order.has_budget else []
        for position in order.amount_positions:
            tables.append(self.amount_tables.realised[position])
        n_choices = self.quality.shape[1]
        for choice in order.capacity_choice:
            # A capacity counts 1 for its choice, and 0 for the other choices.
            is_choice = np.arange(n_choices) == choice
            tables.append(np.broadcast_to(is_choice.astype(float), paid.shape))
        states = []
        for position, table in enumerate(tables):
            is_budget = order.has_budget and position == 0
            # The budget includes the cost of deciding. Its price includes the floor.
            deciding = 0.0
            price = float(rule.prices.prices[position])
            if is_budget:
                deciding = self.deciding_cost
                price = rule.budget_price
            # What each row takes of the limit under the two decisions: (n_rows,)
            spent_cross_fitted = validation.choices.mean(table) + deciding
            spent_as_new = as_new.mean(table) + deciding
            states.append(
                LimitState(
                    name=order.names[position],
                    most=float(order.most[position]) + deciding,
                    spent=float(np.average(spent_as_new, weights=self.weight)),
                    price=price,
                    validation=float(
                        np.average(spent_cross_fitted, weights=self.weight)
                    ),
                    validation_se=self._error_of_mean(spent_cross_fitted, spent_as_new),
                )
            )
        return states

    def _error_of_mean(self, cross_fitted, as_new):
        """Return the error of the mean of `cross_fitted` as an estimate for new rows.

        Parameters
        ----------
        cross_fitted : ndarray of shape (n_rows,)
            Quality, cost or amount of each row under the cross-fitted decisions.
        as_new : ndarray of shape (n_rows,)
            The same under the decisions of the estimator of all rows.

        Returns
        -------
        float
        """
        distance = np.average(as_new - cross_fitted, weights=self.weight)
        noise = standard_error(cross_fitted, self.weight, self.fold)
        return float(np.hypot(distance, noise))

    @cached_property
    def curve(self):
        """Budgets between the cheapest and the best plan, and their validations.

        A tuple of an ndarray of shape (n_budgets,) and a list of `Validation`.
        """
        low = self.least
        high = self.path.budgets[-1] + self.deciding_cost
        budgets = np.unique(np.linspace(low, high, _N_CURVE))
        return budgets, [self.validate(float(budget)) for budget in budgets]

    def correction(self, budget):
        """Return how outcomes of decisions at a budget differ from estimates.

        A choice is made partly because its estimate is too high (the winner's curse).

        Returns
        -------
        Correction
        """
        cached = self._cache.get("correction")  # (budget, correction), or None
        if cached is None or cached[0] != budget:
            values, planned = self._decided_as_new
            # A call with costs of its own may have a budget below that of the cheapest
            # plan of the log. It is then raised to this plan.
            choices = self._choices_at(max(budget, self.least), values, planned)
            cached = (budget, self._correction_of(choices))
            self._cache["correction"] = cached
        return cached[1]

    @cached_property
    def cost_factor(self):
        """Ratio of paid and planned costs of each choice over all rows of the log.

        It is 1 for a choice that is planned to cost nothing.
        """
        shape = self.quality.shape
        factor = np.ones(shape[1])
        if self.realised is None:
            return factor
        # Mean costs of the choices: (n_choices,)
        paid_table = np.broadcast_to(self.paid, shape)
        paid = np.average(paid_table, axis=0, weights=self.weight)
        planned_table = np.broadcast_to(self.planned, shape)
        planned = np.average(planned_table, axis=0, weights=self.weight)
        np.divide(paid, planned, out=factor, where=planned > 0)
        # Means of costs that are partly unknown are estimates (doubly robust), and may
        # be below 0 by noise. A factor of costs is at least 0.
        return np.maximum(factor, 0.0)

    def _correction_of(self, choices):
        """Compute the `Correction` of each choice, shrunk towards that of all choices.

        `choices` are the `Choices` of the rows of the log: what the policy decides for
        each of them.
        """
        shape = self.quality.shape
        weight = np.ones((shape[0], 1))
        if self.weight is not None:
            weight = self.weight[:, np.newaxis]
        # Sums over the rows that make each choice, in units of their weights:
        # (n_choices,)
        n_made = choices.totals(np.broadcast_to(weight, shape))
        error = choices.totals((self.quality - self.as_new) * weight)
        paid = choices.totals(np.broadcast_to(self.paid, shape) * weight)
        planned = choices.totals(np.broadcast_to(self.planned, shape) * weight)

        # Each choice gets this number of added rows, which have the means of all rows.
        # The noise is 1 for a complete log, and larger for others.
        n_prior = _PRIOR_ROWS * self.noise
        mean_error = error.sum() / n_made.sum()
        quality = (error + n_prior * mean_error) / (n_made + n_prior)

        mean_factor = 1.0  # nothing was planned to be paid
        if planned.sum() > 0:
            mean_factor = paid.sum() / planned.sum()
        # Sum of the planned costs of the added rows of each choice. Each row has the
        # mean planned cost of the choice. The maximum prevents 0 / 0 for a choice that
        # no row makes.
        prior_planned = n_prior * planned / np.maximum(n_made, 1.0)
        cost_factor = np.full(len(n_made), mean_factor)
        np.divide(
            paid + mean_factor * prior_planned,
            planned + prior_planned,
            out=cost_factor,
            where=planned > 0,
        )
        # Means of costs that are partly unknown are estimates (doubly robust), and may
        # be below 0 by noise. A factor of costs is at least 0.
        return Correction(quality, np.maximum(cost_factor, 0.0))


def check_lambda(reg_lambda):
    """Return `reg_lambda` as a float. Raise an error if it is negative or not finite.

    It may have been set after `fit`, which checks parameters.
    """
    if not (isinstance(reg_lambda, Real) and 0 <= reg_lambda < np.inf):
        raise ValueError(
            f"reg_lambda must be a finite number from 0 up, got {reg_lambda!r}."
        )
    return float(reg_lambda)


def of_rows(table, rows):
    """Return ``table[rows]``, or `table` itself if it has no rows.

    Costs by choice, of shape (n_choices,), and None have no rows.
    """
    if table is None or table.ndim == 1:
        return table
    return table[rows]


def choose_one(values, costs, price, affordable):
    """Return the choice in `affordable` with the largest value less price times cost.

    Parameters
    ----------
    values, costs : list of float
        Value and cost of each choice.
    price : float
        Value of one unit of cost.
    affordable : iterable of int
        Positions of the choices that the caller can pay.

    Returns
    -------
    int
        Position of the choice. Among ties it is the cheapest, then the best, then the
        first.
    """
    # Each choice has a tuple, compared entry by entry. The largest tuple wins. Its last
    # entry is minus the position, so that the first of equal choices wins.
    if price == inf:
        # The cheapest choice wins. (Infinity times a cost of 0 would be NaN.)
        _, _, minus_position = max(
            (-costs[choice], values[choice], -choice) for choice in affordable
        )
        return -minus_position
    # At a slightly higher price, the cheaper of two tied choices has the larger value.
    price *= 1 + TIE
    _, _, _, minus_position = max(
        (
            values[choice] - price * costs[choice],
            -costs[choice],
            values[choice],
            -choice,
        )
        for choice in affordable
    )
    return -minus_position


def stand_ins(values, costs, allowed):
    """Give choices that are not allowed the entries of the row's cheapest allowed one.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_choices)
        Values of the choices.
    costs : ndarray of shape (n_choices,) or (n_rows, n_choices)
        Costs of the choices.
    allowed : ndarray of bool of shape (n_rows, n_choices)
        Choices that each row may make.

    Returns
    -------
    values, costs : ndarray of shape (n_rows, n_choices)
        Copies of the arguments. In each row, choices that are not allowed have the
        value and the cost of the row's cheapest allowed choice.
    cheapest : ndarray of shape (n_rows,), dtype=int64
        Position of the cheapest allowed choice. If several have the smallest cost, it
        is the one with the largest value.
    """
    rows = np.arange(len(values))
    costs = np.broadcast_to(costs, values.shape)
    allowed_costs = np.where(allowed, costs, np.inf)
    is_cheapest = allowed_costs == allowed_costs.min(axis=1, keepdims=True)
    # Among choices of the smallest cost, the largest value decides.
    cheapest = np.where(is_cheapest, values, -np.inf).argmax(axis=1)
    values = np.where(allowed, values, values[rows, cheapest][:, np.newaxis])
    costs = np.where(allowed, costs, costs[rows, cheapest][:, np.newaxis])
    return values, costs, cheapest


def offers_std(estimator):
    """Return True if `predict` of an estimator can return standard errors."""
    # `WithNewcomers` passes ``return_std`` on to its `base`, the estimator of `fit`.
    last = getattr(estimator, "base", estimator)
    if isinstance(last, Pipeline):
        last = last[-1]
    try:
        parameters = inspect.signature(last.predict).parameters
    except (TypeError, ValueError):
        return False
    # `QualityRegressor` computes standard errors in `fit`, unless its parameter
    # `standard_errors` is False.
    return "return_std" in parameters and getattr(last, "standard_errors", True)


class ErrorCurve(NamedTuple):
    """Error of the estimates of one choice, by the size of the estimate.

    Attributes
    ----------
    level : ndarray of shape (n_levels,)
        Mean estimate of each level, ascending.
    error : ndarray of shape (n_levels,)
        Root of the mean squared out-of-fold error in each level.
    """

    level: np.ndarray
    error: np.ndarray


def error_by_level(estimate, quality):
    """Return the error of estimates by their size, an `ErrorCurve` for each choice.

    Parameters
    ----------
    estimate, quality : ndarray of shape (n_rows, n_choices)
        Out-of-fold estimates, and what was estimated.

    Returns
    -------
    list of ErrorCurve
    """
    curves = []
    for estimates, qualities in zip(estimate.T, quality.T):
        n_levels = len(estimates) // _MIN_ROWS_OF_LEVEL
        n_levels = int(np.clip(n_levels, 1, _N_ERROR_LEVELS))
        # Rows by rising estimate are divided into levels of nearly equal size.
        rising_rows = np.argsort(estimates, kind="stable")
        rows_of_levels = np.array_split(rising_rows, n_levels)
        levels = np.empty(n_levels)
        errors = np.empty(n_levels)
        for position, rows in enumerate(rows_of_levels):
            levels[position] = estimates[rows].mean()
            squared = (qualities[rows] - estimates[rows]) ** 2
            errors[position] = np.sqrt(np.mean(squared))
        curves.append(ErrorCurve(levels, errors))
    return curves
