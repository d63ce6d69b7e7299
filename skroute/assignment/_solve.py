"""Solvers of the assignment problem, in one function, and the choices at a price."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from skroute.assignment._exact import solve_cvxpy, solve_exact, solve_highs
from skroute.assignment._hulls import solve_greedy
from skroute.assignment._problem import (
    check_values_and_costs,
    problem_of,
    total_cost,
    total_gain,
    total_value,
)
from skroute.assignment._several import (
    BUDGET_NAME,
    PlanLimit,
    amounts_by_names,
    gap_to_bound,
    names_of_choices,
    read_limits,
    solve_within_limits,
)
from skroute.base import check_budget
from skroute.utils._compat import Interval, Real, StrOptions, validate_params
from skroute.utils._named import check_rows_match
from skroute.utils._tolerances import ROUNDING, TIE, TINY
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import read_only

# Gap, relative to the bound on the gain, at which solver="greedy" does not improve its
# plan further. Each improvement takes a scan of all values.
_GREEDY_TOLERANCE = 1e-7


class Assignment(NamedTuple):
    """A choice for each row, with a bound on the gap to the optimum.

    All amounts are means per row.

    Attributes
    ----------
    choices : ndarray of shape (n_rows,), dtype=int64
        The choice made for each row.

    objective : float
        Mean value of the plan. With ``objective="min"``, the smallest value of a row.

    spent : float
        Mean cost per row, in the unit of `costs`. Never above the budget.

    upper_bound : float
        Upper bound of the objective of all plans within the budget.

    gap : float
        ``(upper_bound - objective) / max(|upper_bound|, tiny)``. `tiny` avoids a
        division by 0.

    price : float
        Dual price of the budget: value per unit of cost at the margin. 0 if the budget
        does not bind, NaN if the solver or the objective has no price.

    status : {"optimal", "feasible"}
        "optimal" if `gap` is within the tolerance.

    limits : list of PlanLimit, default=[]
        The budget and each further limit: the limit, what the plan spends of it, and
        its dual price. Empty if the budget is the only limit.
    """

    choices: NDArray[np.int64]
    objective: float
    spent: float
    upper_bound: float
    gap: float
    price: float
    status: str
    limits: Sequence[PlanLimit] = ()


@validate_params(
    {
        "values": ["array-like"],
        "costs": ["array-like"],
        "budget": [Interval(Real, 0, None, closed="both"), None],
        "objective": [StrOptions({"mean", "min"})],
        "solver": [StrOptions({"auto", "greedy", "exact", "highs", "cvxpy"})],
        "tol": [Interval(Real, 0, None, closed="left")],
        "solver_options": [dict, None],
        "limits": [Mapping, None],
        "amounts": [Mapping, None],
        "capacities": [Mapping, None],
        "floors": [Mapping, None],
    },
    prefer_skip_nested_validation=True,
)
def solve_assignment(
    values: ArrayLike,
    costs: ArrayLike,
    budget: float | None,
    *,
    objective: str = "mean",
    solver: str = "auto",
    tol: float = TIE,
    solver_options: dict | None = None,
    limits: dict | None = None,
    amounts: dict | None = None,
    capacities: dict | None = None,
    floors: dict | None = None,
    segments: ArrayLike | None = None,
) -> Assignment:
    r"""Make one choice per row, with the largest sum of values within limits.

    This is the multiple-choice knapsack problem

    .. math::

        \max_t \frac1n \sum_{j,i} V_{ji} t_{ji} \quad \text{s.t.} \quad
        \frac1n \sum_{j,i} C_{ji} t_{ji} \le b, \quad \sum_i t_{ji} = 1,
        \quad t_{ji} \in \{0, 1\}.

    Parameters
    ----------
    values : array-like of shape (n_rows, n_choices)
        Value of each choice for each row, for example its estimated quality.

    costs : array-like of shape (n_choices,) or (n_rows, n_choices)
        Cost of each choice, shared by all rows or per row. Not negative.

    budget : float or None
        Mean cost per row, in the unit of `costs`. A hard cap. None is unlimited.

    objective : {"mean", "min"}, default="mean"
        Maximise the mean value, or the smallest value of a row. With ``"min"``, the
        result is the cheapest of the optimal plans. It is exact, and `solver` is not
        used.

    solver : {"auto", "greedy", "exact", "highs", "cvxpy"}, default="auto"
        - ``"greedy"``: increments of the concave hulls of rows by falling efficiency,
          with the bound of the relaxation as certificate. Within one increment of the
          optimum, in linear time.
        - ``"exact"``: closes the gap by core reduction. HiGHS solves a core that is too
          hard for the search.
        - ``"auto"``: as ``"exact"``, but without HiGHS. If the core is too hard for the
          search, the result is the best plan found, with its gap.
        - ``"highs"``, ``"cvxpy"``: the whole integer program, as a reference.

    tol : float, default=1e-9
        Relative gap that counts as optimal. The gap is divided by ``|upper_bound|`` or,
        if that is smaller, by the gain of ``upper_bound`` over the cheapest plan. So an
        offset of all values does not change the plan. A larger `tol` ends the search
        earlier.

    solver_options : dict, default=None
        Options of HiGHS by name (``solver="highs"``), or keyword arguments of
        ``cvxpy.Problem.solve`` (``solver="cvxpy"``), for example ``{"solver":
        "SCIP"}``.

    limits : mapping from str to float, default=None
        Largest mean per row of further amounts, next to the budget, for example
        ``{"seconds": 0.8, "slow": 0.05}``.

    amounts : mapping from str to array-like, default=None
        The amounts that `limits` names, each of shape (n_choices,) or (n_rows,
        n_choices). Not negative.

    capacities : mapping from str or int to float, default=None
        Largest share of the rows of a choice, by its name or its position.

    floors : mapping from object to float, default=None
        Smallest mean value of the rows of a segment, by its label.

    segments : array-like of shape (n_rows,), default=None
        Label of the segment of each row, such as its tenant. Required for `floors`.

    Returns
    -------
    Assignment
        Named tuple ``(choices, objective, spent, upper_bound, gap, price, status,
        limits)``.

    Raises
    ------
    ValueError
        For NaN or infinity, wrong shapes, negative costs, or a budget that the cheapest
        plan exceeds. The message has the smallest feasible budget. Also for limits that
        exclude each other. The message names these limits. For each of them it has the
        least value that the others leave possible.
    ImportError
        For ``solver="cvxpy"`` if cvxpy is not installed.
    RuntimeError
        If HiGHS or the solver of cvxpy ends without a plan, or without one within the
        budget.

    See Also
    --------
    assignment_path : Plans of all budgets from one sort.
    choose_at_price : Plan of a price, with each row decided alone.

    Notes
    -----
    The units of values and costs do not matter. The solvers get gains and extra costs
    over the cheapest choice of each row, scaled to about 1. All tolerances are
    relative. By rounding, a plan may exceed the budget by ``1e-12`` of the budget.
    A gap below ``1e-12`` of the gain over the cheapest plan is rounding, too, and
    counts as 0. HiGHS meets the budget to ``1e-9`` of the largest extra cost. If its
    plan is above the budget, it is called again with less room.

    With several limits the bound is the minimum of the dual function of their prices
    [3]_, by cutting planes. Changes of one or two rows improve the plan of the prices.
    ``"auto"`` calls HiGHS for small problems only, and ``"exact"`` for all that is left
    open. ``"greedy"``, ``"cvxpy"`` and ``objective="min"`` take one limit.

    References
    ----------
    .. [1] D. Ding, B. Xu, L. V. S. Lakshmanan, "OCCAM: Towards Cost-Efficient and
       Accuracy-Aware Classification Inference", ICLR 2025, section 4.
    .. [2] D. Pisinger, "A minimal algorithm for the multiple-choice knapsack problem",
       European Journal of Operational Research 83, 1995.
    .. [3] J. E. Kelley, "The cutting-plane method for solving convex programs", Journal
       of the Society for Industrial and Applied Mathematics 8, 1960.

    Examples
    --------
    >>> from skroute.assignment import solve_assignment
    >>> values = [[0.6, 0.9], [0.7, 0.8], [0.2, 0.9]]
    >>> plan = solve_assignment(values, costs=[1, 3], budget=2)
    >>> plan.choices
    array([0, 0, 1])
    >>> plan.spent <= 2
    True
    >>> plan.status
    'optimal'

    At most half a second on average, too, and the second choice for at most a third of
    the rows:

    >>> plan = solve_assignment(
    ...     values,
    ...     costs=[1, 3],
    ...     budget=2,
    ...     limits={"seconds": 0.5},
    ...     amounts={"seconds": [0.4, 0.6]},
    ...     capacities={1: 1 / 3},
    ... )
    >>> plan.choices
    array([0, 0, 1])
    >>> [limit.name for limit in plan.limits]
    ['budget', 'seconds', 'share of 1']
    """
    if solver_options is not None and solver not in ("highs", "cvxpy"):
        raise ValueError(
            f'solver_options={solver_options!r} is for solver="highs" or "cvxpy", got '
            f"solver={solver!r}."
        )
    checked_values, checked_costs = check_values_and_costs(values, costs)
    has_limits = bool(limits) or bool(capacities) or bool(floors)
    if has_limits:
        if objective != "mean" or solver not in ("auto", "exact", "highs"):
            raise ValueError(
                "limits, capacities and floors need objective='mean' and solver "
                f"'auto', 'exact' or 'highs', got {objective!r} and {solver!r}."
            )
        check_rows_match(values=values, costs=costs, segments=segments)
        problem_limits = read_limits(
            checked_values,
            checked_costs,
            check_budget(budget),
            names=names_of_choices(values),
            limits=limits,
            amounts=amounts_by_names(amounts, values),
            capacities=capacities,
            floors=floors,
            segments=segments,
        )
        return _solve_several(
            checked_values,
            checked_costs,
            problem_limits,
            solver=solver,
            tol=tol,
            options=solver_options,
        )
    problem = problem_of(checked_values, checked_costs, check_budget(budget))
    if objective == "min":
        return _solve_max_min(problem)
    return _solve_mean(problem, solver=solver, tol=tol, solver_options=solver_options)


def _solve_several(values, costs, problem_limits, *, solver, tol, options):
    """Return the plan of the largest mean value within several limits.

    Parameters
    ----------
    values, costs, problem_limits, solver, tol, options
        As in `solve_within_limits`.

    Returns
    -------
    Assignment
    """
    plan = solve_within_limits(
        values, costs, problem_limits, solver=solver, tol=tol, options=options
    )
    n_rows = len(values)
    all_costs = np.broadcast_to(costs, values.shape)
    spent = all_costs[np.arange(n_rows), plan.choices].sum() / n_rows
    # Value that a better plan may have in addition.
    open_value = gap_to_bound(plan.value, plan.bound)
    gap = open_value / max(abs(plan.bound), TINY)
    # The budget is the first limit, if there is one. Without a budget, the price is 0.
    price = 0.0
    if plan.limits[0].name == BUDGET_NAME:
        price = plan.limits[0].price
    return Assignment(
        choices=plan.choices,
        objective=plan.value,
        spent=float(spent),
        upper_bound=plan.value + open_value,
        gap=gap,
        price=price,
        status="optimal" if gap <= tol else "feasible",
        limits=plan.limits,
    )


def _solve_mean(problem, *, solver, tol, solver_options):
    """Return the plan of the largest mean value.

    Parameters
    ----------
    problem : Problem
    solver, tol, solver_options
        As in `solve_assignment`.

    Returns
    -------
    Assignment
    """
    greedy_tolerance = tol
    if solver == "greedy":
        greedy_tolerance = max(tol, _GREEDY_TOLERANCE)
    greedy = solve_greedy(problem, greedy_tolerance)
    cheapest_value = total_value(problem, greedy.cheapest)
    # Gains are relative to the value of the cheapest choices.
    bound_gain = greedy.bound
    bound_value = cheapest_value + bound_gain
    # A smaller gap is the rounding of sums.
    rounding = ROUNDING * bound_gain
    # `tol` is relative to the smaller one of the gain and the value. The gain does not
    # depend on an offset of the values.
    scale = min(bound_gain, abs(bound_value))
    tolerance = max(tol * scale, rounding)
    choices = greedy.choices
    price = greedy.price
    if solver in ("auto", "exact"):
        choices, bound_gain = solve_exact(
            problem, greedy, tolerance, finish=solver == "exact"
        )
    elif solver == "highs":
        choices, bound_gain = solve_highs(problem, tolerance, options=solver_options)
        price = np.nan
    elif solver == "cvxpy":
        # cvxpy returns no dual bound. The bound of the relaxation stays in use.
        choices = solve_cvxpy(problem, tolerance, solver_options)
        price = np.nan
    # Gain that a better plan may have in addition.
    open_gain = bound_gain - total_gain(problem, choices, greedy.cheapest)
    if open_gain <= rounding:
        open_gain = 0.0
    value = total_value(problem, choices)
    gap = open_gain / max(abs(value + open_gain), TINY)
    n_rows = len(problem.values)
    return Assignment(
        choices=choices,
        objective=value / n_rows,
        spent=total_cost(problem, choices) / n_rows,
        upper_bound=(value + open_gain) / n_rows,
        gap=gap,
        price=price,
        status="optimal" if gap <= tol else "feasible",
    )


def _solve_max_min(problem):
    """Return the cheapest of the plans whose smallest value is largest.

    A bisection finds the largest threshold that all rows can reach within the budget.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    Assignment
    """
    values = problem.values

    def cheapest_above(threshold):
        """Return the cheapest choices with values of at least the threshold."""
        # Infinity: a choice with a smaller value is not taken.
        return np.where(values >= threshold, problem.costs, np.inf).argmin(axis=1)

    def is_too_expensive(threshold):
        """Return True if the cheapest plan at a threshold exceeds the budget."""
        cost = total_cost(problem, cheapest_above(threshold))
        return cost > problem.total + problem.slack_for_rounding

    # A threshold above the best value of a row has no plan. The smallest value has the
    # cheapest plan, which is within the budget.
    largest_threshold = values.max(axis=1).min()
    thresholds = np.unique(values[values <= largest_threshold])
    # The thresholds rise, and a higher one costs at least as much. The first threshold
    # is possible. `n_further` is the number of possible thresholds after it, which is
    # the position of the last possible one.
    n_further = bisect_left(thresholds[1:], True, key=is_too_expensive)
    choices = cheapest_above(thresholds[n_further])
    smallest_value = float(values[np.arange(len(values)), choices].min())
    return Assignment(
        choices=choices,
        objective=smallest_value,
        spent=total_cost(problem, choices) / len(values),
        upper_bound=smallest_value,
        gap=0.0,
        price=np.nan,
        status="optimal",
    )


def choose_at_price(
    values: ArrayLike, costs: ArrayLike, price: float, *, tolerance: float = TIE
) -> NDArray[np.int64]:
    """Return the best choice of each row at a price: ``argmax values - price * costs``.

    This is Algorithm 1 of FrugalMCT, a router for prediction APIs. Each row is decided
    alone. Ties go to the cheaper choice.

    Parameters
    ----------
    values : array-like of shape (n_rows, n_choices)
        Value of each choice for each row.

    costs : array-like of shape (n_choices,) or (n_rows, n_choices)
        Cost of each choice, shared by all rows or per row. Not negative.

    price : float
        Smallest value that one unit of cost must add. Not negative. Raising it buys
        less.

    tolerance : float, default=1e-9
        Relative difference in value per cost that counts as a tie. With 0, rounding
        would break thousands of ties towards the more expensive choice. A negative
        tolerance sends all ties to the more expensive choice.

    Returns
    -------
    ndarray of shape (n_rows,), dtype=int64
        Index of the choice for each row.

    Raises
    ------
    ValueError
        For bad values or costs, or a negative or missing price.

    Examples
    --------
    >>> from skroute.assignment import choose_at_price
    >>> choose_at_price([[0.6, 0.9], [0.7, 0.8]], costs=[1, 3], price=0.1)
    array([1, 0])
    """
    if not price >= 0:
        raise ValueError(f"price must be a number that is not negative, got {price!r}.")
    checked_values, checked_costs = check_values_and_costs(values, costs)
    return choose_checked(checked_values, checked_costs, price, tolerance=tolerance)


def choose_checked(values, costs, price, *, tolerance=TIE):
    """Return the best choice of each row as `choose_at_price`, without its checks.

    The checks take longer than the choice of a single row.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_choices), dtype=float64
        Finite.
    costs : ndarray of shape (n_choices,) or (n_rows, n_choices), dtype=float64
        Finite, not negative.
    price, tolerance : float
        As in `choose_at_price`.

    Returns
    -------
    ndarray of shape (n_rows,), dtype=int64
    """
    from skroute.assignment import _kernels

    values = read_only(values)
    costs = read_only(np.atleast_2d(costs))
    order = np.argsort(costs[0], kind="stable").astype(np.int64)
    choices = np.empty(len(values), np.int64)
    # The kernel writes into `choices`.
    _kernels.choose_at_price(
        values, costs, order, float(price), float(tolerance), choices
    )
    return choices
