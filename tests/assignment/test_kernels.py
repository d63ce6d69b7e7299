"""The kernels interpreted: what is compiled is what is written."""

import numpy as np
import pytest

from skroute.assignment import _kernels, assignment_path, choose_at_price, solve_assignment
from skroute.assignment._hulls import build_hulls
from skroute.assignment._problem import check_problem
from tests.assignment.test_assignment import random_problem


@pytest.fixture
def interpreted(monkeypatch):
    def switch():
        for name, item in list(vars(_kernels).items()):
            if hasattr(item, "py_func"):
                monkeypatch.setattr(_kernels, name, item.py_func)

    yield switch


@pytest.mark.parametrize("n, m", [(1, 1), (4, 3), (60, 6), (400, 4)])
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("degenerate", [False, True])
def test_plans_interpreted(n, m, per_row, degenerate, interpreted):
    problems = [
        random_problem(seed, n, m, per_row=per_row, degenerate=degenerate) for seed in range(3)
    ]

    def run():
        found = []
        for values, costs, budget in problems:
            price = assignment_path(values, costs).price(budget)
            found += [price, choose_at_price(values, costs, price)]
            for solver in ("greedy", "exact"):
                plan = solve_assignment(values, costs, budget, solver=solver)
                found += [plan.choices, plan.objective, plan.upper_bound]
        return found

    compiled = run()
    interpreted()
    for one, two in zip(compiled, run(), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("seed", range(3))
def test_price_of_a_large_problem_interpreted(seed, interpreted):
    """The two passes that only problems of thousands of rows take."""
    values, costs, budget = random_problem(seed, 50, 6, per_row=True, degenerate=seed == 2)
    problem = check_problem(values, costs, budget)
    hulls = build_hulls(problem)
    inside = np.empty((2, len(hulls.efficiency)))
    low, high = np.quantile(hulls.efficiency, [0.3, 0.7])

    def run():
        size, above = _kernels.increments_between(
            hulls.efficiency, hulls.extra_cost, low, high, *inside
        )
        prices = [
            _kernels.select_price(hulls.efficiency.copy(), hulls.extra_cost.copy(), room)
            for room in np.quantile(hulls.extra_cost.cumsum(), [0.0, 0.2, 0.9, 1.0])
        ]
        return [size, above, inside[:, :size].copy(), prices]

    compiled = run()
    interpreted()
    for one, two in zip(compiled, run(), strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_search_that_is_given_up_interpreted(interpreted):
    """The exact search: stopped by its limit of nodes, run to the end, and closed at once."""
    rng = np.random.default_rng(0)
    n_rows, width = 30, 3
    starts = np.arange(n_rows + 1) * width
    loss, extra = np.sort(rng.random(n_rows * width)) / 1000, rng.random(n_rows * width)

    def run():
        return [
            _kernels.expand_core(starts, loss, extra, 1.0, 4.0, 4.0, 0.0, tolerance, max_nodes)
            for tolerance, max_nodes in ((0.0, 20_000), (1e-3, 200_000), (9.0, 20_000))
        ]

    compiled = run()
    stopped, finished, closed = compiled
    assert (stopped[-1], finished[-1], closed[-1]) == (False, True, True)
    assert len(stopped[2]) > 1024 and len(closed[2]) == 0
    assert stopped[0] < 0.1
    interpreted()
    for one, two in zip(compiled, run()):
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)
