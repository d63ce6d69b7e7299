"""Batches within several limits, next to HiGHS on the whole problem.

K = 7 choices, 1 to 4 limits, with capacities and floors. Asked: a gap to the bound of at
most 3e-4, 5e-5 and 1e-5 at 1,000, 3,000 and 10,000 rows; at least 10 times as fast as
HiGHS's integer program at its own gap of 1e-4, 50 times in the median, and never more
than 1e-4 behind; at least 5 times as fast as its linear program from 3,000 rows on.

    python benchmarks/bench_limits.py [--short]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time

import highspy
import numpy as np
from _common import record, table

from skroute.assignment import solve_assignment

N_CHOICES = 7
KINDS = ("1", "2", "3", "4", "3+capacity", "2+floor")
# Seconds after which HiGHS is stopped.
TIME_LIMIT = 60.0
# The gap at which HiGHS's integer program ends.
MIP_GAP = 1e-4


def draw_problem(n_rows, kind, seed=0):
    """Return the arguments of `solve_assignment` for a made-up log.

    Limits are means of two plans mixed, so that they can be met: 40 % of the plan of the
    best values, and 60 % of a frugal one.
    """
    rng = np.random.default_rng(seed)
    skill = np.sort(rng.uniform(-0.5, 2, N_CHOICES))
    hard = rng.normal(size=(n_rows, 1)) * 1.2
    noise = rng.normal(size=(n_rows, N_CHOICES)) * 0.8
    values = 1 / (1 + np.exp(-(skill + noise - hard)))
    length = rng.normal(size=(n_rows, 1))

    def amount(low, high, by_length, spread):
        sizes = rng.permutation(np.geomspace(low, high, N_CHOICES))
        noise = rng.normal(size=(n_rows, N_CHOICES)) * spread
        return sizes * np.exp(by_length * length + noise)

    money = np.sort(amount(0.1, 2, 0.5, 0.1), axis=1)
    seconds = amount(0.2, 1.2, 0.3, 0.4)
    slow = (seconds > 1.0).astype(float)
    energy = amount(0.1, 1, 0.0, 0.2)
    tables = {"budget": money, "seconds": seconds, "slow": slow, "energy": energy}
    n_limits = int(kind[0])
    tables = dict(list(tables.items())[:n_limits])
    rows = np.arange(n_rows)
    free = values.argmax(axis=1)
    frugal = sum(t / t.mean() for t in tables.values()).argmin(axis=1)
    most = {}
    for name, amounts in tables.items():
        mean_free = amounts[rows, free].mean()
        mean_frugal = amounts[rows, frugal].mean()
        most[name] = float(0.4 * mean_free + 0.6 * mean_frugal)
    problem = {
        "values": values,
        "costs": money,
        "budget": most.pop("budget"),
        "limits": most,
        "amounts": {name: t for name, t in tables.items() if name != "budget"},
    }
    if "capacity" in kind:
        share = 0.4 * np.bincount(free, minlength=N_CHOICES)
        share += 0.6 * np.bincount(frugal, minlength=N_CHOICES)
        largest = (np.ceil(share) + n_rows // 50) / n_rows
        problem["capacities"] = dict(enumerate(largest.tolist()))
    if "floor" in kind:
        segments = rng.integers(10, size=n_rows)
        choices = solve_assignment(**problem).choices
        means = [values[rows, choices][segments == s].mean() for s in range(10)]
        worst = np.argsort(means)[:3]
        problem["segments"] = segments
        # The worst three must be better than they would be.
        problem["floors"] = {int(s): float(means[s] + 0.01) for s in worst}
    return problem


def whole_program(problem, is_integer):
    """Return the whole problem as a program of HiGHS."""
    values = problem["values"]
    n_rows, n_choices = values.shape
    tables = [(problem["costs"], problem["budget"])]
    for name, most in problem["limits"].items():
        tables.append((problem["amounts"][name], most))
    for choice, share in problem.get("capacities", {}).items():
        is_choice = (np.arange(n_choices) == choice).astype(float)
        tables.append((np.tile(is_choice, (n_rows, 1)), share))
    for segment, least in problem.get("floors", {}).items():
        weight = (problem["segments"] == segment).astype(float)
        weight *= n_rows / weight.sum()
        tables.append((-values * weight[:, None], -least))
    n_cells = n_rows * n_choices
    lp = highspy.HighsLp()
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.num_col_ = n_cells
    lp.num_row_ = n_rows + len(tables)
    lp.col_cost_ = values.ravel() / n_rows
    lp.col_lower_ = np.zeros(n_cells)
    lp.col_upper_ = np.ones(n_cells)
    lp.row_lower_ = np.r_[np.ones(n_rows), np.full(len(tables), -highspy.kHighsInf)]
    lp.row_upper_ = np.r_[np.ones(n_rows), [most for _, most in tables]]
    # Columnwise: the row of one choice, and each limit.
    cells = np.column_stack(
        [np.ones(n_cells)] + [t.ravel() / n_rows for t, _ in tables]
    )
    of_row = np.column_stack(
        [np.repeat(np.arange(n_rows), n_choices)]
        + [np.full(n_cells, n_rows + k) for k in range(len(tables))]
    )
    is_used = cells != 0
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.r_[0, np.cumsum(is_used.sum(axis=1))].astype(np.int32)
    lp.a_matrix_.index_ = of_row[is_used].astype(np.int32)
    lp.a_matrix_.value_ = cells[is_used]
    if is_integer:
        lp.integrality_ = [highspy.HighsVarType.kInteger] * n_cells
    return lp


def run_highs(lp, **options):
    """Return the objective and the seconds of HiGHS on a program."""
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    for name, value in options.items():
        model.setOptionValue(name, value)
    start = time.perf_counter()
    model.passModel(lp)
    model.run()
    seconds = time.perf_counter() - start
    return model.getInfo().objective_function_value, seconds


def main(short):
    solve_assignment(**draw_problem(200, "2"))
    rows = []
    sizes = (1000,) if short else (1000, 3000, 10000)
    mip_ratios = []
    for n_rows in sizes:
        for kind in KINDS:
            problem = draw_problem(n_rows, kind)
            times = []
            for _ in range(3):
                start = time.perf_counter()
                plan = solve_assignment(**problem)
                times.append(time.perf_counter() - start)
            seconds = float(np.median(times))
            linear = whole_program(problem, is_integer=False)
            solvers = ("simplex", "ipm")
            lp_runs = [run_highs(linear, solver=name) for name in solvers]
            lp_seconds = min(run[1] for run in lp_runs)
            # Below that of the linear program if a limit counts rows.
            bound_error = plan.upper_bound - lp_runs[0][0]
            line = [n_rows, kind, f"{seconds:.3f}", f"{plan.gap:.1e}"]
            line += [f"{bound_error:+.0e}", f"{lp_seconds:.2f}"]
            line.append(f"{lp_seconds / seconds:.0f}")
            objective, mip_seconds = run_highs(
                whole_program(problem, is_integer=True),
                time_limit=5.0 if short else TIME_LIMIT,
                mip_rel_gap=MIP_GAP,
            )
            mip_ratios.append(mip_seconds / seconds)
            is_late = mip_seconds >= (5.0 if short else TIME_LIMIT)
            line += [f"{'> ' if is_late else ''}{mip_seconds:.2f}"]
            line += [f"{mip_seconds / seconds:.0f}"]
            line.append(f"{objective / plan.objective - 1:+.0e}")
            rows.append(line)
    header = ["rows", "limits", "seconds", "gap", "bound - LP's", "LP", "x"]
    header += ["MILP", "x", "better"]
    table("Several limits: HiGHS on the whole problem", header, rows)
    print(
        f"MILP: {np.median(mip_ratios):.0f} times as long in the median, at least "
        f"{np.min(mip_ratios):.0f}"
    )
    if not short:
        record("limits")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    main(parser.parse_args().short)
