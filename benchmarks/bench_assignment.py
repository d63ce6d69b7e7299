"""The assignment room beside HiGHS and beside a sort. ``python benchmarks/bench_assignment.py``"""

import argparse
import time
import tracemalloc

import numpy as np
from _common import alternate, record, table

from skroute.assignment import solve_assignment
from skroute.assignment._hulls import build_hulls
from skroute.assignment._problem import check_values_and_costs, problem_of

COSTS = np.array([0.15, 0.22, 0.29, 0.52, 0.53, 0.98, 1.0])  # OCCAM, table 1
BUDGET = 0.4


def make_values(n, kind):
    rng = np.random.default_rng(0)
    if kind == "random":
        return rng.random((n, len(COSTS)))
    return rng.integers(0, 41, (n, len(COSTS))) / 40


def against_highs(n):
    rows = []
    for kind in ("random", "multiples of 1/40"):
        values = make_values(n, kind)
        start = time.perf_counter()
        reference = solve_assignment(values, COSTS, BUDGET, solver="highs", tol=0.0)
        highs = time.perf_counter() - start
        solve = {
            solver: lambda v=values, s=solver: solve_assignment(
                v, COSTS, BUDGET, solver=s
            )
            for solver in ("exact", "greedy")
        }
        seconds = alternate(solve, repeats=9)
        exact, greedy = solve["exact"](), solve["greedy"]()
        apart = abs(exact.objective - reference.objective) / reference.objective
        row = [
            f"{n} x 7, {kind}",
            highs,
            seconds["exact"],
            highs / seconds["exact"],
            apart,
        ]
        rows.append([*row, seconds["greedy"], highs / seconds["greedy"], greedy.gap])
    header = ["problem", "HiGHS s", "exact s", "ratio (>= 200)", "difference (<= 1e-9)"]
    header += ["greedy s", "ratio (>= 2000)", "gap (< 1e-5)"]
    table("Exact and greedy against HiGHS's full MILP", header, rows)


def against_argsort(n):
    values = make_values(n, "random")
    increments = len(
        build_hulls(problem_of(*check_values_and_costs(values, COSTS), BUDGET)).choice
    )
    keys = np.random.default_rng(1).random(increments)
    seconds = alternate(
        {
            "argsort": lambda: np.argsort(keys),
            "greedy": lambda: solve_assignment(values, COSTS, BUDGET, solver="greedy"),
            "exact": lambda: solve_assignment(values, COSTS, BUDGET, solver="exact"),
        },
        repeats=9,
        warmup=2,
    )
    ratios = [seconds[solver] / seconds["argsort"] for solver in ("greedy", "exact")]
    row = [f"{n} x 7", increments, seconds["argsort"], *ratios, peak_memory(values)]
    header = ["problem", "increments", "argsort s", "greedy / argsort (< 4)"]
    header += ["exact / argsort (< 20)", "peak memory / input (< 6)"]
    table("A million rows against sorting their increments", header, [row])


def peak_memory(values):
    """Peak of all allocations while solving, the input included, as a multiple of it.

    Counts what is asked for; of the increments' upper bounds the operating system gives
    only what is written.
    """
    tracemalloc.start()
    solve_assignment(values, COSTS, BUDGET, solver="exact")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return 1 + peak / values.nbytes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    against_highs(500 if short else 10_000)
    against_argsort(50_000 if short else 1_000_000)
    if not short:
        record("assignment")


if __name__ == "__main__":
    main()
