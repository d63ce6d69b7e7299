"""`solve_assignment`: one call for every solver."""

from bisect import bisect_left
from typing import Any, NamedTuple

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
from skroute.base import check_budget
from skroute.utils._compat import Interval, Real, StrOptions, validate_params
from skroute.utils._tolerances import ROUNDING, TIE, TINY
from skroute.utils._typing import ArrayLike, NDArray

# Relative to the bound on the gain: a greedy plan this close to it is not polished, since each
# single change takes a scan of all values.
_POLISHED = 1e-7


class Assignment(NamedTuple):
    """A choice for each row, with a bound on the gap to the optimum. All amounts are means per row.

    Attributes
    ----------
    choices : ndarray of shape (n_rows,), dtype=int64
        The choice made for each row.

    objective : float
        Mean value of the plan, or its smallest value with ``objective="min"``.

    spent : float
        Mean cost per row, in the unit of `costs`; never above the budget.

    upper_bound : float
        No plan within the budget has a larger objective.

    gap : float
        ``(upper_bound - objective) / max(|upper_bound|, tiny)``.

    price : float
        Dual price of the budget: value per unit of cost at the margin. 0 when the budget
        does not bind; NaN where the solver or the objective has none.

    status : {"optimal", "feasible"}
        Whether `gap` is within the tolerance.
    """

    choices: NDArray[np.int64]
    objective: float
    spent: float
    upper_bound: float
    gap: float
    price: float
    status: str


@validate_params(
    {
        "values": ["array-like"],
        "costs": ["array-like"],
        "budget": [Interval(Real, 0, None, closed="both"), None],
        "objective": [StrOptions({"mean", "min"})],
        "solver": [StrOptions({"auto", "greedy", "exact", "highs", "cvxpy"})],
        "tol": [Interval(Real, 0, None, closed="left")],
        "solver_options": [dict, None],
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
    solver_options: dict[str, Any] | None = None,
) -> Assignment:
    r"""Make one choice per row: the largest sum of values with a mean cost within the budget.

    The multiple-choice knapsack problem

    .. math::

        \max_t \frac1n \sum_{j,i} V_{ji} t_{ji} \quad \text{s.t.} \quad
        \frac1n \sum_{j,i} C_{ji} t_{ji} \le b, \quad \sum_i t_{ji} = 1,
        \quad t_{ji} \in \{0, 1\}.

    Parameters
    ----------
    values : array-like of shape (n_rows, n_choices)
        Value of each choice for each row, for example its estimated quality.

    costs : array-like of shape (n_choices,) or (n_rows, n_choices)
        Cost of each choice, shared by all rows or per row; not negative.

    budget : float or None
        Mean cost per row, in the unit of `costs`. A hard cap. None is unlimited.

    objective : {"mean", "min"}, default="mean"
        Maximise the mean value, or the smallest one. With ``"min"`` the plan is the
        cheapest that attains it, always exact, and `solver` is not used.

    solver : {"auto", "greedy", "exact", "highs", "cvxpy"}, default="auto"
        - ``"greedy"``: increments of the rows' concave hulls by falling efficiency, with
          the bound of the relaxation as certificate. Within one increment of the optimum;
          linear time.
        - ``"exact"``: closes the certificate by core reduction; what the core search
          cannot finish is proven by HiGHS.
        - ``"auto"``: as ``"exact"``, but a core that is too hard for the search is
          returned as the best plan found, with its certificate, instead of going to
          HiGHS.
        - ``"highs"``, ``"cvxpy"``: the whole integer program, as a reference.

    tol : float, default=1e-9
        Gap that counts as optimal, relative to ``|upper_bound|``. The search ends at a gap of
        `tol` relative to what ``upper_bound`` gains over the cheapest plan, where that is
        smaller: an offset of all values does not change the plan. Raising it ends the search
        earlier.

    solver_options : dict, default=None
        Options of HiGHS by name (``solver="highs"``), or keyword arguments of
        ``cvxpy.Problem.solve`` (``solver="cvxpy"``), for example ``{"solver": "SCIP"}``.

    Returns
    -------
    Assignment
        Named tuple ``(choices, objective, spent, upper_bound, gap, price, status)``.

    Raises
    ------
    ValueError
        For NaN or infinity, wrong shapes, negative costs, or a budget that the cheapest
        plan exceeds; the message names the smallest feasible budget.
    ImportError
        For ``solver="cvxpy"`` where cvxpy is not installed.
    RuntimeError
        If HiGHS or the solver of cvxpy ends without a plan, or without one within the
        budget.

    See Also
    --------
    assignment_path : Every budget from one sort.
    choose_at_price : The plan of a price, each row alone.

    Notes
    -----
    The unit of the values and that of the costs do not matter. The solvers are given gains
    and extra costs over the cheapest choice of each row, scaled to about 1. All tolerances
    are relative: `tol` as described, the budget to ``1e-12`` of the budget for the rounding
    of sums, and a gap below ``1e-12`` of the gain over the cheapest plan is the rounding of
    sums and counts as none. HiGHS meets the budget to ``1e-9`` of the largest extra cost; a
    plan above the budget is not returned.

    References
    ----------
    .. [1] D. Ding, B. Xu, L. V. S. Lakshmanan, "OCCAM: Towards Cost-Efficient and
       Accuracy-Aware Classification Inference", ICLR 2025, section 4.
    .. [2] D. Pisinger, "A minimal algorithm for the multiple-choice knapsack problem",
       European Journal of Operational Research 83, 1995.

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
    """
    if solver_options is not None and solver not in ("highs", "cvxpy"):
        raise ValueError(
            f'solver_options={solver_options!r} is for solver="highs" or "cvxpy", got '
            f"solver={solver!r}."
        )
    checked, prices = check_values_and_costs(values, costs)
    problem = problem_of(checked, prices, check_budget(budget))
    n = len(problem.values)
    if objective == "min":
        choices, value = solve_max_min(problem)
        spent = total_cost(problem, choices) / n
        return Assignment(choices, value, spent, value, 0.0, np.nan, "optimal")
    greedy = solve_greedy(problem, max(tol, _POLISHED) if solver == "greedy" else tol)
    cheapest_value = total_value(problem, greedy.cheapest)
    bound_gain = greedy.bound
    rounding = ROUNDING * bound_gain
    tolerance = max(tol * min(bound_gain, abs(cheapest_value + bound_gain)), rounding)
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
        # No dual bound comes through cvxpy: that of the relaxation is one, too.
        choices = solve_cvxpy(problem, tolerance, solver_options)
        price = np.nan
    open_gain = bound_gain - total_gain(problem, choices, greedy.cheapest)
    if open_gain <= rounding:
        open_gain = 0.0
    value = total_value(problem, choices)
    gap = open_gain / max(abs(value + open_gain), TINY)
    return Assignment(
        choices=choices,
        objective=value / n,
        spent=total_cost(problem, choices) / n,
        upper_bound=(value + open_gain) / n,
        gap=gap,
        price=price,
        status="optimal" if gap <= tol else "feasible",
    )


def solve_max_min(problem):
    """The plan whose smallest value is largest, among those the cheapest, and that value."""
    values, costs, total, _ = problem

    def cheapest_sufficient(threshold):
        return np.where(values >= threshold, costs, np.inf).argmin(axis=1)

    def is_too_expensive(threshold):
        cost = total_cost(problem, cheapest_sufficient(threshold))
        return cost > total + problem.slack_for_rounding

    # No threshold above a row's best value can be met; the lowest always can.
    thresholds = np.unique(values[values <= values.max(axis=1).min()])
    highest = bisect_left(thresholds[1:], True, key=is_too_expensive)
    choices = cheapest_sufficient(thresholds[highest])
    return choices, float(values[np.arange(len(values)), choices].min())


def choose_at_price(
    values: ArrayLike, costs: ArrayLike, price: float, *, tolerance: float = TIE
) -> NDArray[np.int64]:
    """Best choice of each row at a dual price: ``argmax values - price * costs``.

    The online rule of FrugalMCT (Algorithm 1): a row is decided alone. Ties go to the
    cheaper choice.

    Parameters
    ----------
    values : array-like of shape (n_rows, n_choices)
        Value of each choice for each row.

    costs : array-like of shape (n_choices,) or (n_rows, n_choices)
        Cost of each choice, shared by all rows or per row; not negative.

    price : float
        Value that one unit of cost must buy, not negative. Raising it buys less.

    tolerance : float, default=1e-9
        Relative difference in value per cost that is taken as a tie, so that averages
        that differ by rounding do not turn thousands of ties into the more expensive choice.
        A negative one sends ties to the more expensive choice.

    Returns
    -------
    ndarray of shape (n_rows,), dtype=int64

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
    from skroute.assignment import _kernels

    if not price >= 0:
        raise ValueError(f"price must be a number that is not negative, got {price!r}.")
    checked, prices = check_values_and_costs(values, costs)
    order = np.argsort(prices[0], kind="stable").astype(np.int64)
    choices = np.empty(len(checked), np.int64)
    _kernels.choose_at_price(
        checked, prices, order, float(price), float(tolerance), choices
    )
    return choices
