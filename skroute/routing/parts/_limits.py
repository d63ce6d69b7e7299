"""Limits in addition to the budget: on means of amounts, and on shares of rows.

A log has one table for each amount. An amount is, for example, a number of seconds, or
1 for a slow row and 0 for others. Amounts are known only after a call. Rows are
therefore decided by the mean amount of each choice, and the prices are learned so that
the amounts in the log meet the limits.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from skroute.assignment._dual import (
    ConflictError,
    DualFunction,
    LimitPrices,
    choose_by_mixture,
)
from skroute.assignment._limit_plans import plan_within
from skroute.assignment._several import BUDGET_NAME, conflict_message
from skroute.base import CallParameter
from skroute.routing.parts._log import check_matrix
from skroute.utils._frames import column_keys
from skroute.utils._named import by_label, check_entries, in_order
from skroute.utils._validation import is_amount

LIMITS = CallParameter(
    "limits",
    "mapping from str to float, default=None",
    """Largest mean per row of each amount, in addition to the budget. None takes the
    constructor's. Names are those of ``amounts`` in `fit`.""",
)
CAPACITIES = CallParameter(
    "capacities",
    "mapping from str to float, default=None",
    """Largest share of the rows of each choice. None takes the constructor's.""",
)


class AmountTables(NamedTuple):
    """Further amounts of each choice, such as seconds, next to its cost.

    Attributes
    ----------
    names : list of str
        Names of the amounts.
    realised : ndarray of shape (n_amounts, n_rows, n_choices)
        Amounts in the log. An unknown amount is the mean of its choice.
    planned : ndarray of shape (n_amounts, n_choices)
        Mean amount of each choice, by which rows are decided.
    """

    names: list
    realised: np.ndarray
    planned: np.ndarray

    def with_abstaining(self):
        """Return the tables with a last choice, abstaining, whose amounts are 0."""
        # One column of zeros at the end of the last axis, that of the choices.
        return AmountTables(
            self.names,
            np.pad(self.realised, ((0, 0), (0, 0), (0, 1))),
            np.pad(self.planned, ((0, 0), (0, 1))),
        )

    def restricted(self, positions):
        """Return the tables of some choices, by their positions."""
        return AmountTables(
            self.names, self.realised[:, :, positions], self.planned[:, positions]
        )


def read_amounts(amounts, names, *, n_rows, named, weight=None):
    """Read the amounts of a log, such as seconds. Return None if there are none.

    Parameters
    ----------
    amounts : mapping, dataframe or None
        For each amount a table (n_rows, n_choices), or one number for each choice. A
        frame has two levels of columns: amounts and choices.
    names : list of str
        The choices.
    n_rows : int
    named : bool
        True if the choices have names. Columns of a frame are then read by name.
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    AmountTables or None
    """
    if amounts is None:
        return None
    by_name = _tables_by_name(amounts)
    tables = []
    for name, table in by_name.items():
        tables.append(_read_table(name, table, names, n_rows=n_rows, named=named))
    realised = np.array(tables)  # (n_amounts, n_rows, n_choices)
    is_known = ~np.isnan(realised)
    row_weight = np.ones(n_rows) if weight is None else weight
    # Weight of each known amount, 0 for unknown ones: (n_amounts, n_rows, n_choices)
    known_weight = is_known * row_weight[:, np.newaxis]
    # Weighted means over the rows with a known amount: (n_amounts, n_choices)
    totals = (known_weight * np.where(is_known, realised, 0.0)).sum(axis=1)
    planned = totals / known_weight.sum(axis=1)
    # If an amount of a choice is the same on all rows, `planned` is this number. The
    # mean may differ from it by rounding.
    smallest = np.nanmin(realised, axis=1)
    largest = np.nanmax(realised, axis=1)
    planned = np.where(smallest == largest, smallest, planned)
    realised = np.where(is_known, realised, planned[:, np.newaxis, :])
    return AmountTables(list(by_name), realised, planned)


def _tables_by_name(amounts):
    """Return the table of each amount by its name, as the user gave them.

    Parameters
    ----------
    amounts : mapping or dataframe
        As in `read_amounts`. Others are refused.

    Returns
    -------
    dict from str to table
    """
    columns = getattr(amounts, "columns", None)
    # A frame of pandas with two levels of columns: the amount, then the choice.
    if getattr(columns, "nlevels", 1) == 2:
        by_name = {}
        for name in columns.get_level_values(0).unique():
            by_name[str(name)] = amounts[name]
        _check_amount_names(by_name)
        return by_name
    if not isinstance(amounts, Mapping) or not amounts:
        raise ValueError(
            "amounts must be a mapping from the name of an amount to a table with one "
            "column for each choice, or a frame with two levels of columns (amount, "
            f"choice), got {type(amounts).__name__}."
        )
    by_name = {str(name): table for name, table in amounts.items()}
    _check_amount_names(by_name)
    return by_name


def _check_amount_names(names):
    """Raise an error if an amount has the name that the limit on the cost has."""
    if BUDGET_NAME in names:
        raise ValueError(
            f"amounts must not have the name {BUDGET_NAME!r}, which is the limit on "
            "the cost. Give the amount another name."
        )


def _read_table(name, table, names, *, n_rows, named):
    """Read the table of one amount, such as seconds, for all rows and choices.

    Parameters
    ----------
    name : str
        Name of the amount, for messages.
    table : {array-like, dataframe} of shape (n_rows, n_choices), mapping or array-like
        The amount on each row and of each choice, or one number for each choice.
    names : list of str
        The choices.
    n_rows : int
    named : bool
        As in `read_amounts`.

    Returns
    -------
    ndarray of shape (n_rows, n_choices)
        NaN where an amount is not known. Each choice has at least one that is known.
    """
    label = f"amounts of {name!r}"
    # A series with labels becomes a mapping from choice to number.
    labelled = by_label(table)
    if isinstance(labelled, Mapping):
        check_entries(label, labelled, names)
        number_of_choice = {str(choice): number for choice, number in labelled.items()}
        table = [number_of_choice[choice] for choice in names]
    elif column_keys(table) is not None and named:
        table = in_order(table, names, label)
    values = check_matrix(table, label, allow_nan=True)
    # `check_matrix` returns a list of numbers as a column.
    is_list_of_choices = values.shape == (len(names), 1) and np.ndim(table) == 1
    if is_list_of_choices:
        # One number for each choice, the same on all rows.
        values = np.tile(values.T, (n_rows, 1))
    if values.shape != (n_rows, len(names)):
        raise ValueError(
            f"{label} must have one column for each of {names!r} and one row for each "
            f"of {n_rows} rows, or one number for each choice, got shape "
            f"{np.shape(table)}."
        )
    known_values = values[~np.isnan(values)]
    if not np.isfinite(known_values).all() or (known_values < 0).any():
        raise ValueError(
            f"{label} must be finite numbers that are not negative, or NaN where an "
            "amount is not known."
        )
    is_never_known = np.isnan(values).all(axis=0)  # (n_choices,)
    if is_never_known.any():
        raise ValueError(
            f"{label} are NaN, not known, on every row for "
            f"{names[int(np.argmax(is_never_known))]!r}. Give at least one."
        )
    return values


class Limits(NamedTuple):
    """Limits of a call in addition to the budget: on amounts, and on shares of rows.

    Attributes
    ----------
    means : dict from str to float
        Largest mean of an amount, by its name.
    capacities : dict from str to float
        Largest share of the rows of a choice, by its name.
    positions : dict from str to int
        Position of each choice with a capacity among the choices of the log.
    """

    means: dict
    capacities: dict
    positions: dict

    @property
    def key(self):
        """Hashable value that equal limits share."""
        return tuple(self.means.items()), tuple(self.capacities.items())


def check_limits(limits, capacities, *, amounts, choices):
    """Validate the limits of a call (`Limits`). Return None if there are none.

    Parameters
    ----------
    limits, capacities : mapping or None
        As the user gave them.
    amounts : AmountTables or None
        The amounts of the log. None if it has none.
    choices : list of str
        Names of all choices of the log.

    Returns
    -------
    Limits or None
    """
    amount_names = [] if amounts is None else amounts.names
    means = {}
    for name, most in _as_mapping("limits", limits).items():
        if name not in amount_names:
            raise ValueError(
                f"limits names {name!r}, which is not one of the amounts that fit was "
                f"given, {amount_names!r}. Give fit amounts={{{name!r}: table}}."
            )
        if not is_amount(most):
            raise ValueError(
                f"limits of {name!r} must be a finite number that is not negative, "
                f"got {most!r}."
            )
        means[name] = float(most)
    shares = {}
    for name, share in _as_mapping("capacities", capacities).items():
        if name not in choices:
            raise ValueError(
                f"capacities names {name!r}, which is not one of the choices "
                f"{choices!r}."
            )
        if not (is_amount(share) and share <= 1):
            raise ValueError(
                f"capacities of {name!r} must be a share of the rows from 0 to 1, got "
                f"{share!r}."
            )
        shares[name] = float(share)
    if not means and not shares:
        return None
    positions = {name: choices.index(name) for name in shares}
    return Limits(means, shares, positions)


def limits_now(router, choices, call=None):
    """Return the limits of a call, or else of the constructor (`Limits` or None).

    Parameters
    ----------
    router : LimitedRouter
        It has ``_learned``, the policy as `fit` learned it.
    choices : list of str
        Names of all choices of the log.
    call : Call, default=None
        None takes the limits of the constructor.
    """
    limits = None if call is None else call.option("limits")
    capacities = None if call is None else call.option("capacities")
    return check_limits(
        router.limits if limits is None else limits,
        router.capacities if capacities is None else capacities,
        amounts=router._learned.amounts,
        choices=choices,
    )


def _as_mapping(name, values):
    """Return `limits` or `capacities` as a dict with text keys, empty for None.

    `name` is the parameter that error messages name.
    """
    values = by_label(values)
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise ValueError(
            f"{name} must be a mapping from name to number, got {values!r}."
        )
    return {str(key): value for key, value in values.items()}


# Learning -----------------------------------------------------------------------------


class LimitOrder(NamedTuple):
    """All limits of a policy, in this order: the budget, means of amounts, capacities.

    Dual prices of the limits have this order, too.

    Attributes
    ----------
    names : list of str
        Names of the limits.
    most : ndarray of shape (n_limits,)
        Largest mean per row of each limit. The budget's does not include deciding.
    has_budget : bool
        True if the first limit is the budget.
    amount_positions : ndarray of int
        The limited amounts, among all amounts of the log.
    capacity_choice : ndarray of int
        The choices that have a capacity, among the choices of the policy.
    """

    names: list
    most: np.ndarray
    has_budget: bool
    amount_positions: np.ndarray
    capacity_choice: np.ndarray


def order_limits(limits, *, budget, amounts, positions):
    """Return all limits: the budget first, then amounts, then capacities.

    Parameters
    ----------
    limits : Limits
    budget : float
        Mean cost per row, without that of deciding. Infinity is no limit.
    amounts : AmountTables
    positions : ndarray of int
        Positions of the choices of the policy among those of the log. Capacities of
        other choices have no effect.

    Returns
    -------
    LimitOrder
    """
    has_budget = bool(np.isfinite(budget))
    names = [BUDGET_NAME] if has_budget else []
    most = [budget] if has_budget else []
    amount_positions = []
    for name, largest_mean in limits.means.items():
        names.append(name)
        most.append(largest_mean)
        amount_positions.append(amounts.names.index(name))
    capacity_choice = []
    for name, share in limits.capacities.items():
        # Position of the choice in the policy. Empty if the policy does not have it.
        matches = np.flatnonzero(positions == limits.positions[name])
        if len(matches):
            names.append(f"share of {name}")
            most.append(share)
            capacity_choice.append(int(matches[0]))
    return LimitOrder(
        names=names,
        most=np.array(most, dtype=np.float64),
        has_budget=has_budget,
        amount_positions=np.array(amount_positions, dtype=np.int64),
        capacity_choice=np.array(capacity_choice, dtype=np.int64),
    )


class LimitState(NamedTuple):
    """Use and dual price of the budget, or of one further limit, of a router.

    Attributes
    ----------
    name : str
    most : float
        The limit: largest mean per row.
    spent : float
        Mean per row in the log, by the decisions that new rows get.
    price : float
        Dual price: quality that one more unit of the limit would add per row. 0 if the
        limit does not bind.
    validation : float
        Mean per row of cross-fitted decisions.
    validation_se : float
        Standard error of `validation` as an estimate for new rows.
    """

    name: str
    most: float
    spent: float
    price: float
    validation: float
    validation_se: float


class LimitRule(NamedTuple):
    """The prices of a budget and of further limits, learned from a log.

    Attributes
    ----------
    prices : LimitPrices
        In the order of `order`.
    order : LimitOrder
    price_floor : float
        Smallest price of a unit of cost. The price of the budget is added to it.
    dual : DualFunction
        The dual function of the limits, with the plans that it has computed.
    """

    prices: LimitPrices
    order: LimitOrder
    price_floor: float
    dual: DualFunction

    @property
    def budget_price(self):
        """Price of a unit of cost: `price_floor`, plus the price of any budget."""
        if not self.order.has_budget:
            return self.price_floor
        return self.price_floor + float(self.prices.prices[0])

    def decide(self, values, costs, planned_amounts, draws):
        """Choose for each row alone, at the prices of the limits.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_choices)
            NaN where a row may not get a choice.
        costs : ndarray of shape (n_choices,) or (n_rows, n_choices)
            Costs by which rows are decided.
        planned_amounts : ndarray of shape (n_amounts, n_choices)
            Mean amounts of each choice, by which rows are decided.
        draws : ndarray of shape (n_rows,)
            A uniform number for each row, which divides ties.

        Returns
        -------
        ndarray of shape (n_rows,), dtype=int64
        """
        costs = np.broadcast_to(costs, values.shape)
        # A unit of cost has at least the price `price_floor`. If there is a budget, its
        # price in `self.prices` is added.
        net_values = values - self.price_floor * costs
        return choose_by_mixture(
            self.prices,
            net_values,
            _limited_amounts(costs, planned_amounts, self.order),
            draws,
            costs=costs,  # they break ties
            capacity_choice=self.order.capacity_choice,
        )


def _limited_amounts(costs, amounts, order):
    """Stack the tables of cost and amounts that are limited, in the order of `order`.

    The limits on means are the budget, if there is one, and those of the amounts.

    Parameters
    ----------
    costs : ndarray of shape (n_rows, n_choices)
        Amounts of the budget. Not in the result if there is no budget.
    amounts : ndarray of shape (n_amounts, n_choices) or (n_amounts, n_rows, n_choices)
        All amounts of the log.
    order : LimitOrder

    Returns
    -------
    ndarray of shape (n_rows, n_means, n_choices)
        `n_means` is the number of these limits.
    """
    tables = [costs] if order.has_budget else []
    for position in order.amount_positions:
        tables.append(np.broadcast_to(amounts[position], costs.shape))
    if not tables:
        # Only shares of rows are limited: neither the cost nor an amount is.
        return np.empty((len(costs), 0, costs.shape[1]))
    return np.stack(tables, axis=1)


class LimitedLog(NamedTuple):
    """The tables of a log from which prices of limits are learned.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_choices)
        Estimated quality less the penalty.
    planned, paid : ndarray of shape (n_choices,) or (n_rows, n_choices)
        Costs by which rows are decided, and the bills.
    amounts : AmountTables
    weight : ndarray of shape (n_rows,) or None
    """

    values: np.ndarray
    planned: np.ndarray
    paid: np.ndarray
    amounts: AmountTables
    weight: Any


def dual_of_log(log, order, price_floor):
    """Return the dual function of the limits on a log (`DualFunction`).

    Parameters
    ----------
    log : LimitedLog
    order : LimitOrder
        It says which amounts are limited. `order.most` is not read, so that the
        function serves all limits on the same amounts.
    price_floor : float
        Smallest price of the cost.
    """
    planned = np.broadcast_to(log.planned, log.values.shape)
    paid = np.broadcast_to(log.paid, log.values.shape)
    return DualFunction(
        log.values - price_floor * planned,
        _limited_amounts(planned, log.amounts.planned, order),
        costs=planned,
        capacity_choice=order.capacity_choice,
        weight=log.weight,
        realised=_limited_amounts(paid, log.amounts.realised, order),
    )


def learn_limit_rule(dual, order, price_floor, *, must_hold=True):
    """Return the prices at which the means of a log meet the limits (`LimitRule`).

    Parameters
    ----------
    dual : DualFunction
        From `dual_of_log`.
    order : LimitOrder
    price_floor : float
        Smallest price of the cost.
    must_hold : bool, default=True
        True raises an error for limits that exclude each other. With False, no price
        exceeds a cap, and the limits that are exceeded most count most.

    Raises
    ------
    ValueError
        If `must_hold` and the limits exclude each other.
    """
    try:
        prices = dual.prices_for(order.most)
    except ConflictError as error:
        if must_hold:
            raise ValueError(conflict_message(error, order.names)) from None
        prices = dual.prices_by_cuts(order.most)
    return LimitRule(prices, order, float(price_floor), dual)


def least_amount(dual, order, *, limit):
    """Return the smallest mean of one limited amount that the other limits allow.

    Parameters
    ----------
    dual : DualFunction
    order : LimitOrder
    limit : int
        Position of the limit.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the other limits exclude each other.
    """
    least = dual.least(limit, order.most)
    if not np.isfinite(least):
        # No plan is within the other limits.
        error = ConflictError(dual, order.most)
        raise ValueError(conflict_message(error, order.names))
    return least


def plan_within_limits(values, costs, planned_amounts, order):
    """Choose for all rows of a call together, so that their means meet the limits.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_choices)
        NaN where a row may not get a choice.
    costs : ndarray of shape (n_choices,) or (n_rows, n_choices)
        Costs by which rows are decided.
    planned_amounts : ndarray of shape (n_amounts, n_choices)
        Mean amounts of each choice, by which rows are decided.
    order : LimitOrder

    Returns
    -------
    ndarray of shape (n_rows,), dtype=int64

    Raises
    ------
    ValueError
        If the limits exclude each other.
    """
    costs = np.broadcast_to(costs, values.shape)
    dual = DualFunction(
        values,
        _limited_amounts(costs, planned_amounts, order),
        costs=costs,
        capacity_choice=order.capacity_choice,
    )
    try:
        return plan_within(dual, order.most).choices
    except ConflictError as error:
        raise ValueError(conflict_message(error, order.names)) from None
