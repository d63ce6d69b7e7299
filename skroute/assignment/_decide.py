"""The one rule by which every router turns values, costs and a budget into choices."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skroute.assignment._path import AssignmentPath
from skroute.assignment._solve import choose_at_price, solve_assignment
from skroute.base import affords, check_budget
from skroute.utils._compat import Interval, Real, StrOptions, validate_params


def check_policy(policy, objective):
    """Refuse an objective that the policy cannot have.

    Parameters
    ----------
    policy : {"online", "batch"}
    objective : {"mean", "min"}

    Raises
    ------
    ValueError
        For ``objective="min"`` where rows are decided one by one.
    """
    if objective == "min" and policy != "batch":
        raise ValueError(
            f'objective="min" needs policy="batch", got policy={policy!r}: the smallest quality '
            "of a batch is not decided row by row."
        )


@validate_params(
    {
        "values": ["array-like"],
        "costs": ["array-like"],
        "budget": [Interval(Real, 0, None, closed="both"), None],
        "path": [AssignmentPath],
        "policy": [StrOptions({"online", "batch"})],
        "objective": [StrOptions({"mean", "min"})],
    },
    prefer_skip_nested_validation=True,
)
def decide(
    values: ArrayLike,
    costs: ArrayLike,
    budget: float | None,
    path: AssignmentPath,
    *,
    policy: str = "online",
    objective: str = "mean",
) -> NDArray[np.int64]:
    """Choose once per row, alone at the price of a budget or together under a cap.

    Parameters
    ----------
    values : array-like of shape (n_rows, n_choices)
        Value of each choice for each row, for example its estimated quality.

    costs : array-like of shape (n_choices,) or (n_rows, n_choices)
        Cost of each choice, shared by all rows or per row; not negative.

    budget : float or None
        Mean cost per row, in the unit of `costs`; None is unlimited.

    path : AssignmentPath
        Of the rows that the price is learned from; see :func:`assignment_path`.

    policy : {"online", "batch"}, default="online"
        ``"online"`` chooses for each row alone at the price that `path` has for the
        budget, which holds on average. ``"batch"`` solves the assignment for the rows
        given; the budget is a hard cap on them.

    objective : {"mean", "min"}, default="mean"
        With ``policy="batch"``: maximise the mean value or the smallest one.

    Returns
    -------
    ndarray of shape (n_rows,), dtype=int64

    Raises
    ------
    ValueError
        For ``objective="min"`` with the online policy, bad values or costs, or a batch
        whose cheapest plan is above the budget.

    See Also
    --------
    choose_at_price : The online rule at a price.
    solve_assignment : The assignment with its certificate.

    Examples
    --------
    >>> from skroute.assignment import assignment_path, decide
    >>> values, costs = [[0.6, 0.9], [0.7, 0.8]], [1, 3]
    >>> decide(values, costs, 2, assignment_path(values, costs))
    array([1, 0])
    """
    check_policy(policy, objective)
    budget = check_budget(budget)
    if policy == "batch":
        return solve_assignment(values, costs, budget, objective=objective).choices
    # Of estimated costs the cheapest plan may seem more expensive than a feasible budget.
    price = path.price(budget) if affords(budget, path.budgets[0]) else np.inf
    return choose_at_price(values, costs, price)
