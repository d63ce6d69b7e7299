"""`solve_assignment`: one call for every solver."""

from bisect import bisect_left
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skroute.assignment._exact import solve_cvxpy, solve_exact, solve_highs
from skroute.assignment._hulls import solve_greedy
from skroute.assignment._problem import check_values_and_costs, problem_of, total_cost, totals
from skroute.base import check_budget
from skroute.utils._compat import Interval, Real, StrOptions, validate_params

# A greedy plan this close (relatively) to its bound is not polished: each single change takes a
# scan of all values.
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
    tol: float = 1e-9,
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
        Relative gap that counts as optimal. Raising it ends the search earlier.

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

    See Also
    --------
    assignment_path : Every budget from one sort.
    choose_at_price : The plan of a price, each row alone.

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
    n, price = len(problem.values), np.nan
    if objective == "min":
        choices, value = solve_max_min(problem)
        spent = total_cost(problem, choices) / n
        return Assignment(choices, value, spent, value, 0.0, price, "optimal")
    if solver in ("highs", "cvxpy"):
        # HiGHS stops at an absolute gap; scale the relative one by the largest sum possible.
        tolerance = tol * max(float(np.abs(problem.values).max(axis=1).sum()), 1e-300)
        if solver == "highs":
            choices, bound = solve_highs(problem, tolerance, options=solver_options)
        else:
            # No dual bound comes through cvxpy: that of the relaxation is one, too.
            choices = solve_cvxpy(problem, solver_options)
            bound = solve_greedy(problem, tol).bound
    else:
        greedy = solve_greedy(problem, max(tol, _POLISHED) if solver == "greedy" else tol)
        choices, bound, price = greedy.choices, greedy.bound, greedy.price
        if solver != "greedy":
            tolerance = tol * max(abs(bound), 1e-300)
            choices, bound = solve_exact(problem, greedy, tolerance, finish=solver == "exact")
    value, spent = totals(problem, choices)
    bound = max(bound, value)
    gap = (bound - value) / max(abs(bound), 1e-300)
    status = "optimal" if gap <= tol else "feasible"
    return Assignment(choices, value / n, spent / n, bound / n, gap, price, status)


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
    values: ArrayLike, costs: ArrayLike, price: float, *, tolerance: float = 1e-9
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
    _kernels.choose_at_price(checked, prices, order, float(price), float(tolerance), choices)
    return choices
