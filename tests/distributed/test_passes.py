"""The assignment in passes has the plan of the solver in memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skroute.assignment import assignment_path
from skroute.assignment import solve_assignment as in_memory
from skroute.distributed import _passes as passes
from skroute.distributed import solve_assignment, solve_in_passes

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


def problem(n, m, rng, per_row=False, tied=False):
    """Return random values (n, m) and costs (n, m) or (m,), rounded if `tied`."""
    values = rng.uniform(size=(n, m))
    costs = rng.uniform(0.1, 5, size=(n, m) if per_row else m)
    if tied:
        values = np.round(4 * values) / 4
        costs = np.round(2 * costs) / 2
    return values, costs


def spent_by(choices, costs):
    """Return the cost of each row of a plan."""
    row_costs = np.broadcast_to(costs, (len(choices), np.shape(costs)[-1]))
    return row_costs[np.arange(len(choices)), choices]


def split_rows(values, costs, cuts):
    """Return blocks of values and costs, divided in front of the rows `cuts`."""
    blocks = []
    for rows in np.split(np.arange(len(values)), cuts):
        block_costs = costs[rows] if np.ndim(costs) == 2 else costs
        blocks.append((values[rows], block_costs))
    return blocks


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_plan_is_that_of_the_solver_in_memory(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n = data.draw(st.integers(1, 40))
    m = data.draw(st.integers(1, 5))
    per_row = data.draw(st.booleans())
    tied = data.draw(st.booleans())
    values, costs = problem(n, m, rng, per_row, tied)
    path = assignment_path(values, costs)
    share = data.draw(st.sampled_from([0.0, 0.3, 0.6, 1.0, 2.0]))
    budget = path.budgets[0] + share * (path.budgets[-1] - path.budgets[0])
    budget = data.draw(st.sampled_from([budget, None]))
    cuts = rng.choice(n, size=min(n - 1, 3), replace=False)
    blocks = split_rows(values, costs, np.unique(cuts[cuts > 0]))
    core = data.draw(st.sampled_from([1, 5, 100_000]))
    before = passes._MAX_CORE
    passes._MAX_CORE = core
    readers = [lambda block=block: block for block in blocks]
    try:
        plan = solve_in_passes(data.draw(st.sampled_from([blocks, readers])), budget)
    finally:
        passes._MAX_CORE = before
    choices = np.concatenate(
        [plan.choices(i, *block) for i, block in enumerate(blocks)]
    )
    objective = values[np.arange(n), choices].mean()
    expected = in_memory(values, costs, budget)
    spent = spent_by(choices, costs)
    if budget is not None:
        assert spent.mean() <= budget * (1 + 1e-11)
        # The bound is that of the relaxation.
        assert plan.upper_bound == pytest.approx(path.objective(budget), abs=1e-9)
    assert plan.objective == pytest.approx(objective, abs=1e-12)
    assert plan.spent == pytest.approx(spent.mean(), abs=1e-12)
    assert plan.objective <= expected.upper_bound + 1e-9 <= plan.upper_bound + 2e-9
    if core == 100_000:
        assert plan.objective >= expected.objective - 2e-9


@pytest.mark.parametrize("per_row", [False, True])
def test_the_objective_is_that_of_memory_and_of_any_partitioning(per_row):
    values, costs = problem(10_000, 7, np.random.default_rng(0), per_row)
    budget = float(np.mean(costs)) * 0.7
    expected = in_memory(values, costs, budget)
    objectives = []
    for n_blocks in (1, 2, 16, 160):
        bounds = np.linspace(0, len(values), n_blocks + 1).astype(int)
        blocks = split_rows(values, costs, bounds[1:-1])
        readers = [lambda block=block: block for block in blocks]
        plan = solve_in_passes(readers, budget)
        objectives.append(plan.objective)
        assert plan.spent <= budget * (1 + 1e-12)
        assert plan.gap < 1e-7
        assert plan.n_passes <= 5
    np.testing.assert_allclose(objectives, expected.objective, rtol=1e-9)


@pytest.mark.parametrize("per_row", [False, True])
def test_dask_arrays(per_row):
    values, costs = problem(2000, 4, np.random.default_rng(1), per_row)
    array = da.from_array(values, chunks=(300, 2))
    lazy_costs = da.from_array(costs, chunks=(500, 4)) if per_row else costs
    with dask.config.set(scheduler="threads"):
        assignment = solve_assignment(array, lazy_costs, 1.5)
        choices = assignment.choices.compute()
    expected = in_memory(values, costs, 1.5).objective
    objective = values[np.arange(2000), choices].mean()
    assert objective == pytest.approx(expected, rel=1e-9)
    assert spent_by(choices, costs).mean() <= 1.5 * (1 + 1e-12)
    assert assignment.plan.n_passes <= 5 and assignment.plan.n_rows == 2000
    assert assignment.choices.chunks == ((300,) * 6 + (200,),)
    # Costs in memory are divided as the values are.
    plain = solve_assignment(array, costs, 1.5)
    assert plain.plan.objective == assignment.plan.objective
    # Blocks of unknown sizes, as those of data frames. All rows are selected.
    is_selected = array[:, 0] >= 0
    selected_costs = costs
    if per_row:
        selected_costs = lazy_costs.rechunk((300, 4))[is_selected]
    again = solve_assignment(array[is_selected], selected_costs, 1.5)
    assert again.plan.objective == pytest.approx(assignment.plan.objective, rel=1e-12)


def test_what_is_no_problem_is_refused_in_words():
    values, costs = problem(100, 3, np.random.default_rng(2))
    array = da.from_array(values, chunks=(30, 3))
    with pytest.raises(ValueError, match="is below the cheapest feasible plan"):
        solve_in_passes([(values, costs)], 0.5 * costs.min())
    with pytest.raises(ValueError, match="costs must not be negative"):
        solve_in_passes([(values, -costs)], 1.0)
    with pytest.raises(
        TypeError, match="values must be a dask array with two axes, got ndarray"
    ):
        solve_assignment(values, costs, 1.0)
    with pytest.raises(TypeError, match="blocks must be a sequence .* list"):
        solve_in_passes(((values, costs) for _ in range(2)), 1.0)
    with pytest.raises(
        TypeError, match="costs must be an array in the order of the columns"
    ):
        solve_assignment(array, {"a": 1, "b": 2, "c": 3}, 1.0)
    for bad in (np.ones(2), np.ones((99, 3)), 1.0, [[1.0, 2.0], [1.0]], "costs", None):
        with pytest.raises(ValueError, match="costs must"):
            solve_assignment(array, bad, 1.0)
    with pytest.raises(ValueError, match=r"costs must have shape \(3,\) or \(100, 3\)"):
        solve_assignment(array, da.ones((99, 3), chunks=(30, 3)), 1.0)
    with pytest.raises(ValueError, match=r"costs must have shape \(3,\) or \(100, 3\)"):
        solve_assignment(array, da.ones((100, 2), chunks=(30, 2)), 1.0)
