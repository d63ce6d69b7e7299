"""The assignment problem with several limits: what the user gives, and the plan."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from skroute.assignment._dual import ConflictError, DualFunction
from skroute.assignment._limit_plans import plan_within
from skroute.assignment._problem import (
    by_names,
    check_sums_are_finite,
    check_values_and_costs,
)
from skroute.utils._frames import column_keys
from skroute.utils._named import by_label, check_rows_match
from skroute.utils._tables import RecordList
from skroute.utils._tolerances import ROUNDING
from skroute.utils._validation import is_amount

# Name of the budget among the limits.
BUDGET_NAME = "budget"
# Largest dual price of a limit that does not bind, in the units of `DualFunction`.
# Prices that are not 0 are about 1 in these units, and so this price is rounding.
_SLACK_PRICE = 1e-9


class PlanLimit(NamedTuple):
    """A limit of a plan, and what the plan uses of it.

    Attributes
    ----------
    name : str

    most : float
        The limit on the mean per row. For a floor it is the least mean.

    spent : float
        Mean per row of the plan.

    price : float
        Dual price: value that one more unit of the limit would add per row. 0 if the
        limit does not bind.

    is_floor : bool
        True for a floor of the mean value of a segment.

    Examples
    --------
    >>> from skroute.assignment import PlanLimit
    >>> PlanLimit("seconds", 0.8, 0.7, 0.0, False).binds
    False
    """

    name: str
    most: float
    spent: float
    price: float
    is_floor: bool

    @property
    def binds(self) -> bool:
        """True if the dual price is above 0: more of the limit would add value."""
        return self.price > 0


class LimitsOfProblem(NamedTuple):
    """All limits of a problem: means of amounts, capacities and floors, in this order.

    Attributes
    ----------
    names : list of str
        Name of each limit, for messages and results.
    most : ndarray of shape (n_limits,)
        The largest mean of each limited amount, the largest share of rows of each
        capacity, and minus the least mean value of each floor.
    n_floors : int
        Number of floors, which are the last limits.
    amounts : ndarray of shape (n_rows, n_means, n_choices)
        The costs are the first amount if there is a budget.
    capacity_choice : ndarray of shape (n_capacities,), dtype=int64
        Position of the choice of each capacity.
    segment : ndarray of shape (n_rows,), dtype=int64, or None
        Index of the floor of each row. -1: the row has no floor. None: there are no
        floors.
    """

    names: list
    most: np.ndarray
    n_floors: int
    amounts: np.ndarray
    capacity_choice: np.ndarray
    segment: np.ndarray | None

    @property
    def first_floor(self):
        """Position of the first floor."""
        return len(self.names) - self.n_floors


class SeveralPlan(NamedTuple):
    """A plan within several limits.

    Attributes
    ----------
    choices : ndarray of shape (n_rows,), dtype=int64
    value, bound : float
        Mean value of the plan, and an upper bound on the mean value of all plans.
    limits : list of PlanLimit
    """

    choices: np.ndarray
    value: float
    bound: float
    limits: list


def read_limits(
    values, costs, budget, *, names, limits, amounts, capacities, floors, segments
):
    """Check the limits of a problem, and return them as arrays.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_rows, n_choices) or (1, n_choices)
    budget : float
        Infinity is no limit.
    names : list of str or None
        Names of the choices. None: they are numbers.
    limits, amounts, capacities, floors, segments
        As the user gave them to `solve_assignment`.

    Returns
    -------
    LimitsOfProblem

    Raises
    ------
    ValueError
        If a limit has an invalid number, or a name that does not exist.
    """
    n_rows, n_choices = values.shape
    check_sums_are_finite(values, "values", n_rows)
    check_sums_are_finite(costs, "costs", n_rows)
    limit_names = []
    most = []
    amount_tables = []
    if np.isfinite(budget):
        limit_names.append(BUDGET_NAME)
        most.append(float(budget))
        amount_tables.append(np.broadcast_to(costs, values.shape))
    limits = _as_mapping("limits", limits)
    amounts = _as_mapping("amounts", amounts)
    for name, largest_mean in limits.items():
        if name not in amounts:
            raise ValueError(
                f"limits names {name!r}, which is not one of amounts, "
                f"{list(amounts)!r}. Give amounts={{{name!r}: table}}."
            )
        if not is_amount(largest_mean):
            raise ValueError(
                f"limits of {name!r} must be a finite number that is not negative, got "
                f"{largest_mean!r}."
            )
        _, table = check_values_and_costs(
            values, amounts[name], name=f"amounts of {name!r}"
        )
        check_sums_are_finite(table, f"amounts of {name!r}", n_rows)
        limit_names.append(name)
        most.append(float(largest_mean))
        amount_tables.append(np.broadcast_to(table, values.shape))
    capacity_choice = []
    for name, share in _as_mapping("capacities", capacities).items():
        if not (is_amount(share) and share <= 1):
            raise ValueError(
                f"capacities of {name!r} must be a share of the rows from 0 to 1, got "
                f"{share!r}."
            )
        limit_names.append(f"share of {name}")
        most.append(float(share))
        capacity_choice.append(_position_of(name, names, n_choices))
    floors = _as_mapping("floors", floors)
    segment = None
    if floors:
        segment = _segment_of_rows(segments, list(floors), n_rows)
    for name, least in floors.items():
        if not (np.isscalar(least) and np.isfinite(least)):
            raise ValueError(
                f"floors of {name!r} must be a finite number, got {least!r}."
            )
        limit_names.append(f"value of {name}")
        # A floor is a limit on minus the value.
        most.append(-float(least))
    # Without limits on means, the axis of means has the length 0.
    stacked = np.empty((n_rows, 0, n_choices))
    if amount_tables:
        stacked = np.stack(amount_tables, axis=1)
    return LimitsOfProblem(
        names=limit_names,
        most=np.array(most, dtype=np.float64),
        n_floors=len(floors),
        amounts=stacked,
        capacity_choice=np.array(capacity_choice, dtype=np.int64),
        segment=segment,
    )


def _as_mapping(name, mapping):
    """Return a mapping as a dict with text keys, empty for None.

    `name` is the name of the parameter that has the mapping, for messages.
    """
    mapping = by_label(mapping)
    if mapping is None:
        return {}
    if not isinstance(mapping, Mapping):
        raise ValueError(
            f"{name} must be a mapping from name to value, got {mapping!r}."
        )
    return {str(key): value for key, value in mapping.items()}


def _position_of(name, names, n_choices):
    """Return the position of the choice that a capacity names.

    Parameters
    ----------
    name : str
        Name of the choice, or its position as text if `names` is None.
    names : list of str or None
        Names of all choices.
    n_choices : int
    """
    known_names = names
    if names is None:
        # Choices without names have their positions as names.
        known_names = [str(position) for position in range(n_choices)]
    if name not in known_names:
        raise ValueError(
            f"capacities names {name!r}, which is not one of the choices "
            f"{known_names!r}."
        )
    return known_names.index(name)


def _segment_of_rows(segments, floor_names, n_rows):
    """Return the position of the floor of each row, -1 for rows without a floor.

    Parameters
    ----------
    segments : array-like of shape (n_rows,), or None
        Labels of the rows, as the user gave them.
    floor_names : list of str
        The labels that have a floor, as text.
    n_rows : int

    Returns
    -------
    ndarray of shape (n_rows,), dtype=int64
    """
    if segments is None:
        raise ValueError(
            "segments must have the segment of each row for floors, got None."
        )
    labels = np.asarray(segments)
    if labels.shape != (n_rows,):
        raise ValueError(
            f"segments must have one entry for each of {n_rows} rows, got shape "
            f"{labels.shape}."
        )
    # -1: the row counts for no floor (`NO_SEGMENT` of the kernels).
    segment = np.full(n_rows, -1, dtype=np.int64)
    label_texts = np.array([str(label) for label in labels])
    for position, name in enumerate(floor_names):
        is_in_segment = label_texts == name
        if not is_in_segment.any():
            raise ValueError(
                f"floors names {name!r}, which is the segment of no row. The segments "
                f"are {sorted(set(label_texts))!r}."
            )
        segment[is_in_segment] = position
    return segment


def solve_within_limits(values, costs, problem_limits, *, solver, tol, options):
    """Return the best plan that is found within several limits.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_rows, n_choices) or (1, n_choices)
        Costs that break ties.
    problem_limits : LimitsOfProblem
    solver : {"auto", "exact", "highs"}
        As in `plan_within`.
    tol : float
        Relative gap at which the search ends.
    options : dict or None
        Options of HiGHS by name.

    Returns
    -------
    SeveralPlan

    Raises
    ------
    ValueError
        If the limits exclude each other.
    """
    dual = DualFunction(
        values,
        problem_limits.amounts,
        costs=costs,
        capacity_choice=problem_limits.capacity_choice,
        segment=problem_limits.segment,
        n_floors=problem_limits.n_floors,
    )
    most = problem_limits.most
    try:
        plan = plan_within(dual, most, solver=solver, tol=tol, options=options)
    except ConflictError as error:
        message = conflict_message(
            error, problem_limits.names, first_floor=problem_limits.first_floor
        )
        raise ValueError(message) from None
    is_slack = plan.prices * dual.units <= _SLACK_PRICE * dual.value_unit
    prices = np.where(is_slack, 0.0, plan.prices)
    plan_limits = []
    for position, name in enumerate(problem_limits.names):
        is_floor = position >= problem_limits.first_floor
        # In the problem, a floor is a limit on minus the value.
        sign = -1.0 if is_floor else 1.0
        plan_limits.append(
            PlanLimit(
                name=name,
                most=sign * float(most[position]),
                spent=sign * float(plan.means[position]),
                price=float(prices[position]),
                is_floor=is_floor,
            )
        )
    limits = RecordList(
        plan_limits,
        "Limits of a plan (means per row)",
        labels={"most": "limit"},
        hidden=["is_floor"],
    )
    return SeveralPlan(
        choices=plan.choices, value=plan.value, bound=plan.bound, limits=limits
    )


def conflict_message(error, names, *, first_floor=None):
    """Return the message about limits that exclude each other.

    Parameters
    ----------
    error : ConflictError
    names : list of str
        Names of the limits, in the order of their prices.
    first_floor : int, default=None
        Position of the first floor. None: there are no floors.

    Returns
    -------
    str
    """
    if error.in_whole_rows:
        return (
            "The limits can be met on average, but not by a plan of whole rows: raise "
            "one of them a little."
        )
    if first_floor is None:
        first_floor = len(names)  # behind the last limit

    def text(limit, amount, sign):
        """Return a limit as text, such as "seconds <= 0.8".

        `limit` is its position, `amount` the number, and `sign` "<=" or ">=".
        """
        if limit < first_floor:
            return f"{names[limit]} {sign} {amount:.6g}"
        # A floor is a limit on minus the value: the number changes its sign, and the
        # comparison its direction.
        direction = ">=" if sign == "<=" else "<="
        return f"{names[limit]} {direction} {-amount:.6g}"

    conflicting = error.dual.conflict(error.most)  # positions of limits
    limit_texts = [text(limit, error.most[limit], "<=") for limit in conflicting]
    possible_texts = []
    for limit in conflicting:
        least = error.dual.least(limit, error.most)
        # `least` is infinite if the other limits exclude each other. No value of this
        # limit is then enough.
        if np.isfinite(least):
            possible_texts.append(text(limit, least, ">="))
    if len(conflicting) == 1:
        possible = possible_texts[0] if possible_texts else "nothing"
        return f"No plan has {limit_texts[0]}. Possible is {possible}."
    message = f"These limits exclude each other: {', '.join(limit_texts)}."
    if possible_texts:
        message += (
            " With the others as they are, one of these is possible: "
            f"{', '.join(possible_texts)}."
        )
    return message + " Change one of them."


def names_of_choices(values):
    """Return the column names of a frame of values as text, or None without names."""
    columns = column_keys(values)
    return None if columns is None else [str(column) for column in columns]


def amounts_by_names(amounts, values):
    """Return amounts with their choices in the order of the columns of `values`.

    Parameters
    ----------
    amounts : mapping from str to array-like, or None
        As the user gave them to `solve_assignment`.
    values : array-like or frame

    Returns
    -------
    dict of str to array-like, or None
    """
    if amounts is None:
        return None
    ordered = {}
    for name, table in _as_mapping("amounts", amounts).items():
        if np.ndim(table) == 2:
            check_rows_match(values=values, amounts=table)
        ordered[name] = by_names(table, values, name=f"amounts of {name!r}")
    return ordered


def gap_to_bound(value, bound):
    """Return `bound` less `value`, or 0 if this difference is only rounding."""
    difference = bound - value
    if difference <= ROUNDING * max(abs(bound), abs(value)):
        return 0.0
    return difference
