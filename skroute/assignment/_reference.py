"""Reference solvers: the integer program handed to HiGHS, or to any solver through cvxpy."""

import numpy as np

from skroute.assignment._problem import total_cost
from skroute.utils._optional import import_optional


def solve_highs(problem, tolerance, *, allowed=None, options=None):
    """The whole multiple-choice knapsack as one integer program in HiGHS.

    Parameters
    ----------
    problem : Problem
    tolerance : float
        Absolute gap at which HiGHS may stop.
    allowed : ndarray of shape (n, m), dtype=bool, default=None
        Choices that may be made; None allows all.
    options : dict, default=None
        Further HiGHS options by name.

    Returns
    -------
    choices : ndarray of shape (n,), dtype=int64
    bound : float
        HiGHS's upper bound on the summed value.

    Raises
    ------
    RuntimeError
        If HiGHS ends without a plan.
    """
    import highspy

    values, costs, total, _ = problem
    n, m = values.shape
    size = n * m
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = size, n + 1
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = values.ravel()
    lp.col_lower_ = np.zeros(size)
    lp.col_upper_ = np.ones(size) if allowed is None else allowed.ravel().astype(np.float64)
    lp.row_lower_ = np.r_[np.ones(n), -np.inf]
    lp.row_upper_ = np.r_[np.ones(n), total + problem.slack_for_rounding]
    # Column (j, i) stands in row j (choose one) and in row n (the budget).
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.arange(0, 2 * size + 1, 2, dtype=np.int32)
    index = np.empty((size, 2), dtype=np.int32)
    index[:, 0] = np.repeat(np.arange(n), m)
    index[:, 1] = n
    lp.a_matrix_.index_ = index.ravel()
    weight = np.ones((size, 2))
    weight[:, 1] = np.broadcast_to(costs, values.shape).ravel()
    lp.a_matrix_.value_ = weight.ravel()
    lp.integrality_ = [highspy.HighsVarType.kInteger] * size

    model = highspy.Highs()
    settings = {
        "output_flag": False,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": tolerance,
        "mip_feasibility_tolerance": 1e-9,
        "primal_feasibility_tolerance": 1e-9,
    }
    for name, setting in {**settings, **(options or {})}.items():
        if model.setOptionValue(name, setting) != highspy.HighsStatus.kOk:
            raise ValueError(f"HiGHS does not take {name}={setting!r} (solver_options).")
    model.passModel(lp)
    bound = None
    cap = total + problem.slack_for_rounding
    while True:
        model.run()
        info = model.getInfo()
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            status = model.modelStatusToString(model.getModelStatus())
            raise RuntimeError(f"HiGHS ended without a plan: {status}.")
        # The first bound is that of the problem; later ones are of a smaller budget.
        bound = float(info.mip_dual_bound) if bound is None else bound
        taken = np.asarray(model.getSolution().col_value).reshape(n, m)
        choices = taken.argmax(axis=1).astype(np.int64)
        excess = total_cost(problem, choices) - cap
        if excess <= 0:
            return choices, bound
        # HiGHS meets rows to a tolerance; the budget is a hard cap. Ask again, below it.
        model.changeRowBounds(n, -np.inf, cap - 2 * excess)


def solve_cvxpy(problem, options):
    """The same integer program through cvxpy, with any solver that the user owns.

    Parameters
    ----------
    problem : Problem
    options : dict or None
        Passed to :meth:`cvxpy.Problem.solve`, for example ``{"solver": "GUROBI"}``.

    Returns
    -------
    ndarray of shape (n,), dtype=int64

    Raises
    ------
    ImportError
        If cvxpy is not installed.
    RuntimeError
        If the solver ends without an optimum.
    """
    cp = import_optional("cvxpy", 'solve_assignment(solver="cvxpy")')
    values, costs, total, _ = problem
    take = cp.Variable(values.shape, boolean=True)
    constraints = [cp.sum(take, axis=1) == 1]
    if np.isfinite(total):
        weights = np.broadcast_to(costs, values.shape)
        room = total + problem.slack_for_rounding
        constraints.append(cp.sum(cp.multiply(weights, take)) <= room)
    program = cp.Problem(cp.Maximize(cp.sum(cp.multiply(values, take))), constraints)
    program.solve(**(options or {"solver": "HIGHS"}))
    if take.value is None:
        raise RuntimeError(f"cvxpy ended without a plan: {program.status}.")
    return take.value.argmax(axis=1).astype(np.int64)
