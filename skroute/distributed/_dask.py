"""Assignment over Dask arrays, on any scheduler."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from skroute.distributed._blocks import row_blocks
from skroute.distributed._passes import PassedAssignment, choices_of, solve_in_passes
from skroute.utils._optional import import_optional
from skroute.utils._validation import check_numbers

# Largest number of results of blocks that one task merges. It bounds the memory of a
# task: a result of the first passes (`Sketch`) has 1.6 MB.
_GROUP_SIZE = 8


class BlockedAssignment(NamedTuple):
    """A plan for the rows of a Dask array: its choices, and its means per row.

    Attributes
    ----------
    choices : dask.array.Array of shape (n_rows,), dtype=int64
        Lazy: computing it is one more pass over the values.

    plan : PassedAssignment
        Objective, cost, bound, gap and price, as means per row.
    """

    choices: Any
    plan: PassedAssignment


def solve_assignment(
    values: Any, costs: Any, budget: float | Callable[[int], float] | None
) -> BlockedAssignment:
    """Make one choice per row of a Dask array, with one budget for all rows.

    Parameters
    ----------
    values : dask.array.Array of shape (n_rows, n_choices)
        Value of each choice for each row, in blocks of rows. The number of rows may be
        unknown. The array is computed once in each of the two to four passes. Persist
        it if that is expensive and it fits.

    costs : {array-like, dask.array.Array} of shape (n_choices,) or (n_rows, n_choices)
        Cost of each choice, shared by all rows or per row. It must be a Dask array in
        the same blocks if the sizes of the blocks are unknown.

    budget : float, callable or None
        Mean cost per row. A hard cap over all rows. None is unlimited. A function gets
        the number of rows, which the first pass counts, and returns the mean:
        ``lambda n_rows: 1000 / n_rows`` caps the total at 1000.

    Returns
    -------
    BlockedAssignment
        Named tuple ``(choices, plan)``. The plan does not depend on how the rows are
        divided into blocks, except for the rounding of sums.

    Raises
    ------
    TypeError
        If values are not a Dask array, or costs are a mapping.
    ValueError
        For bad values or costs, or a budget that the cheapest plan exceeds.
    ImportError
        If dask is not installed.

    See Also
    --------
    solve_in_passes : Assignment over blocks that are read one by one.

    Examples
    --------
    >>> import dask.array as da  # doctest: +SKIP
    >>> rows = [[0.6, 0.9], [0.7, 0.8], [0.2, 0.9]]  # doctest: +SKIP
    >>> values = da.from_array(rows, chunks=(2, 2))  # doctest: +SKIP
    >>> solve_assignment(values, [1, 3], budget=2).choices.compute()  # doctest: +SKIP
    array([0, 0, 1])
    """
    dask = import_optional("dask", "skroute.distributed.solve_assignment")
    array = import_optional("dask.array", "skroute.distributed.solve_assignment")
    if not isinstance(values, array.Array) or values.ndim != 2:
        raise TypeError(
            f"values must be a dask array with two axes, got {type(values).__name__}: "
            "for numpy use skroute.assignment.solve_assignment."
        )
    row_costs = _checked_costs(array, costs, values)
    value_blocks, _, companions = row_blocks(values, costs=row_costs)
    cost_blocks = [companion["costs"] for companion in companions]
    blocks = list(zip(value_blocks, cost_blocks, strict=True))
    plan = solve_in_passes(blocks, budget, run=_run_delayed)
    choices = []
    block_sizes = np.diff(plan.starts)  # number of rows of each block
    for block, rule, size in zip(blocks, plan.rules, block_sizes, strict=True):
        block_values, block_costs = block
        block_choices = dask.delayed(choices_of)(block_values, block_costs, rule)
        choices.append(array.from_delayed(block_choices, (int(size),), dtype=np.int64))
    return BlockedAssignment(array.concatenate(choices), plan)


def _run_delayed(function, blocks, merge):
    """Run a pass over delayed blocks, and merge the results in a tree of tasks.

    This function is passed to :func:`solve_in_passes` as its parameter `run`.

    Parameters
    ----------
    function : callable
        ``function(values, costs)`` returns the result of a block.
    blocks : list of tuple
        Values and costs of each block, delayed or in memory.
    merge : callable
        It takes a list of results, and returns one.

    Returns
    -------
    object
        The merged result of all blocks, computed.
    """
    import dask

    results = [dask.delayed(function)(values, costs) for values, costs in blocks]
    while len(results) > 1:
        groups = [
            results[start : start + _GROUP_SIZE]
            for start in range(0, len(results), _GROUP_SIZE)
        ]
        results = [dask.delayed(merge)(group) for group in groups]
    (computed,) = dask.compute(results[0])
    return computed


def _checked_costs(array, costs, values):
    """Return checked costs for all blocks of values.

    Parameters
    ----------
    array : module
        ``dask.array``.
    costs : {array-like, dask.array.Array} of shape (n_choices,) or (n_rows, n_choices)
        Costs as the user gave them.
    values : dask.array.Array of shape (n_rows, n_choices)

    Returns
    -------
    ndarray of shape (n_choices,), or dask.array.Array of shape (n_rows, n_choices)
        Costs that all rows share are in memory.
    """
    if isinstance(costs, Mapping):
        raise TypeError(
            "costs must be an array in the order of the columns, got a mapping."
        )
    if not isinstance(costs, array.Array):
        costs = check_numbers(costs, "costs")
    n_rows, n_choices = values.shape
    # A number of rows is NaN if Dask does not know it. The passes over the blocks then
    # compare the numbers.
    has_right_shape = costs.ndim in (1, 2) and costs.shape[-1] == n_choices
    if has_right_shape and costs.ndim == 2:
        is_unknown = np.isnan(n_rows) or np.isnan(costs.shape[0])
        has_right_shape = is_unknown or costs.shape[0] == n_rows
    if not has_right_shape:
        rows_text = "n_rows" if np.isnan(n_rows) else n_rows
        raise ValueError(
            f"costs must have shape ({n_choices},) or ({rows_text}, {n_choices}), got "
            f"{costs.shape}."
        )
    if isinstance(costs, array.Array):
        # Costs that all rows share are computed once.
        return costs.compute() if costs.ndim == 1 else costs
    if costs.ndim == 1:
        return costs
    if np.isnan(n_rows):
        raise ValueError(
            "costs per row must be a Dask array in the blocks of values, whose sizes "
            "are unknown."
        )
    return array.from_array(costs, chunks=values.chunks)
