"""The assignment over Dask arrays, on whatever scheduler runs them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from skroute.distributed._blocks import row_blocks
from skroute.distributed._passes import PassedAssignment, choices_of, solve_in_passes
from skroute.utils._optional import import_optional
from skroute.utils._validation import check_numbers

# How many results of blocks are merged by one task.
_GROUP = 8


def _checked_costs(array, costs, values):
    """Costs shared by all rows in memory, costs per row as a Dask array."""
    if not isinstance(costs, array.Array):
        if isinstance(costs, Mapping):
            raise TypeError(
                "costs must be an array in the order of the columns, got a mapping."
            )
        costs = check_numbers(costs, "costs")
    n_rows, n_choices = values.shape
    # Of unknown sizes the passes tell.
    known = costs.ndim != 2 or np.isnan(n_rows) or np.isnan(costs.shape[0])
    if (
        costs.shape[-1:] != (n_choices,)
        or costs.ndim > 2
        or not (known or len(costs) == n_rows)
    ):
        rows = "n_rows" if np.isnan(n_rows) else n_rows
        raise ValueError(
            f"costs must have shape ({n_choices},) or ({rows}, {n_choices}), got {costs.shape}."
        )
    if isinstance(costs, array.Array):
        return costs.compute() if costs.ndim == 1 else costs
    if costs.ndim == 1:
        return costs
    if np.isnan(n_rows):
        raise ValueError(
            "costs per row must be a Dask array in the blocks of values, whose sizes are unknown."
        )
    return array.from_array(costs, chunks=values.chunks)


class BlockedAssignment(NamedTuple):
    """A plan for a Dask array of values.

    Attributes
    ----------
    choices : dask.array.Array of shape (n_rows,), dtype=int64
        Lazy: computing it is one more pass over the values.

    plan : PassedAssignment
        Objective, spend, bound, gap and price, as means per row.
    """

    choices: Any
    plan: PassedAssignment


def solve_assignment(
    values: Any, costs: Any, budget: float | None
) -> BlockedAssignment:
    """Make one choice per row of a Dask array, with one budget for all rows.

    Parameters
    ----------
    values : dask.array.Array of shape (n_rows, n_choices)
        Value of each choice for each row; in blocks of rows, whose number may be unknown.
        It is computed once in each of the two to four passes: persist it where that is
        expensive and it fits.

    costs : {array-like, dask.array.Array} of shape (n_choices,) or (n_rows, n_choices)
        Cost of each choice, shared by all rows, or per row; a Dask array in the same blocks
        where the sizes of the blocks are unknown.

    budget : float or None
        Mean cost per row. A hard cap over all rows. None is unlimited.

    Returns
    -------
    BlockedAssignment
        Named tuple ``(choices, plan)``. The plan does not depend on how the rows are
        divided into blocks, but for the rounding of sums.

    Raises
    ------
    TypeError
        For values that are no Dask array, or a mapping of costs.
    ValueError
        For bad values or costs, or a budget that the cheapest plan exceeds.
    ImportError
        Where dask is not installed.

    See Also
    --------
    solve_in_passes : The same over blocks that are read one by one.

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
            "values must be a dask array with two axes, got "
            f"{type(values).__name__}: for numpy use skroute.assignment.solve_assignment."
        )
    blocks, _, beside = row_blocks(values, costs=_checked_costs(array, costs, values))
    pairs = [(block, told["costs"]) for block, told in zip(blocks, beside)]

    def run(function, pairs, merge):
        parts = [dask.delayed(function)(*pair) for pair in pairs]
        while len(parts) > 1:
            groups = (parts[i : i + _GROUP] for i in range(0, len(parts), _GROUP))
            parts = [dask.delayed(merge)(group) for group in groups]
        return dask.compute(parts[0])[0]

    plan = solve_in_passes(pairs, budget, run=run)
    parts = []
    for i, size in enumerate(np.diff(plan.starts)):
        made = dask.delayed(choices_of)(*pairs[i], *plan.rules[i])
        parts.append(array.from_delayed(made, (int(size),), dtype=np.int64))
    return BlockedAssignment(array.concatenate(parts), plan)
