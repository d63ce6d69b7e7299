"""Reference solvers: the integer program handed to HiGHS, or to any solver through cvxpy."""

import numpy as np

from skroute.assignment._problem import total_cost
from skroute.utils._optional import import_optional


def within_cap(problem, solve):
    """Choices by a solver that meets constraints to a tolerance, and its first bound.

    The budget is a hard cap: where a plan exceeds it the solver is called again, below it.
    """
    limit = cap = problem.total + problem.slack_for_rounding
    bound = None
    while True:
        choices, found = solve(limit)
        bound = found if bound is None else bound
        excess = total_cost(problem, choices) - cap
        if not excess > 0:
            return choices, bound
        limit -= 2 * excess


def solve_highs(problem, tolerance, *, allowed=None, options=None):
    """Choices by HiGHS, and its dual bound on the summed value."""
    import highspy

    values, costs, _, _ = problem
    n, m = values.shape
    size = n * m
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = size, n + 1
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = values.ravel()
    lp.col_lower_ = np.zeros(size)
    lp.col_upper_ = np.ones(size) if allowed is None else allowed.ravel().astype(np.float64)
    lp.row_lower_ = np.r_[np.ones(n), -np.inf]
    lp.row_upper_ = np.r_[np.ones(n), np.inf]
    # Column (j, i) stands in row j (choose one) and in row n (the budget).
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.arange(0, 2 * size + 1, 2, dtype=np.int32)
    lp.a_matrix_.index_ = np.column_stack(
        [np.repeat(np.arange(n, dtype=np.int32), m), np.full(size, n, dtype=np.int32)]
    ).ravel()
    weight = np.broadcast_to(costs, values.shape).ravel()
    lp.a_matrix_.value_ = np.column_stack([np.ones(size), weight]).ravel()
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

    def solve(limit):
        model.changeRowBounds(n, -np.inf, limit)
        model.run()
        info = model.getInfo()
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            status = model.modelStatusToString(model.getModelStatus())
            raise RuntimeError(f"HiGHS ended without a plan: {status}.")
        taken = np.asarray(model.getSolution().col_value).reshape(n, m)
        return taken.argmax(axis=1), float(info.mip_dual_bound)

    return within_cap(problem, solve)


def solve_cvxpy(problem, options):
    """Choices by any solver that the user has; cvxpy passes on no dual bound."""
    cp = import_optional("cvxpy", 'solve_assignment(solver="cvxpy")')
    values, costs, _, _ = problem

    def solve(limit):
        take = cp.Variable(values.shape, boolean=True)
        constraints = [cp.sum(take, axis=1) == 1]
        if np.isfinite(limit):
            weights = np.broadcast_to(costs, values.shape)
            constraints.append(cp.sum(cp.multiply(weights, take)) <= limit)
        program = cp.Problem(cp.Maximize(cp.sum(cp.multiply(values, take))), constraints)
        program.solve(**(options or {"solver": "HIGHS"}))
        if take.value is None:
            raise RuntimeError(f"cvxpy ended without a plan: {program.status}.")
        return take.value.argmax(axis=1), None

    return within_cap(problem, solve)[0]
