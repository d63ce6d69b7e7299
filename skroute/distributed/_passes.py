"""One budget over more rows than fit a memory: a sketch, the last interval, its exact solution."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from skroute.assignment import assignment_path
from skroute.assignment import solve_assignment as solve_in_memory
from skroute.assignment._problem import check_values_and_costs
from skroute.base import check_affordable, check_budget
from skroute.utils._tolerances import ROUNDING, TINY
from skroute.utils._typing import NDArray
from skroute.utils._validation import read_only

# A sketch has 2 ** _BITS bins; so many increments around the price are solved exactly.
_BITS = 16
_CORE = 100_000
_NO_ROWS = np.empty(0, np.int64)


class PassedAssignment(NamedTuple):
    """A plan for blocks of rows, with a bound on the gap. All amounts are means per row.

    Attributes
    ----------
    objective : float
        Mean value of the plan.

    spent : float
        Mean cost per row; never above the budget.

    upper_bound : float
        No plan within the budget has a larger mean value: the relaxation's optimum.

    gap : float
        ``(upper_bound - objective) / max(|upper_bound|, tiny)``.

    price : float
        Dual price of the budget; 0 where it does not bind.

    n_rows : int
        Rows of all blocks.

    n_passes : int
        Passes over the blocks that finding the plan took, the last one for writing it down
        not included.

    starts : ndarray of shape (n_blocks + 1,), dtype=int64
        Number of the first row of each block, and of all rows.

    rules : list of tuple
        What `choices` needs, by block.
    """

    objective: float
    spent: float
    upper_bound: float
    gap: float
    price: float
    n_rows: int
    n_passes: int
    starts: NDArray[np.int64]
    rules: list[tuple]

    def choices(self, block: int, values: Any, costs: Any) -> NDArray[np.int64]:
        """The choice for each row of a block.

        Parameters
        ----------
        block : int
            Number of the block.

        values : array-like of shape (n_rows, n_choices)
            Its values, as they were when the plan was found.

        costs : array-like of shape (n_choices,) or (n_rows, n_choices)
            Its costs.

        Returns
        -------
        ndarray of shape (n_rows,), dtype=int64
        """
        return choices_of(values, costs, *self.rules[block])


def choices_of(values, costs, high, rows, chosen):
    """Choices of a block: every increment above, and those of the core as they were solved."""
    choices = _walked(values, costs, high, high)[2]
    choices[rows] = chosen
    return choices


def sketch(values, costs, low, shift):
    """Sketch of a block: its number of rows, sums, and what each bin has."""
    from skroute.distributed import _kernels

    values, costs, order = _checked(values, costs)
    hist = np.zeros((2**_BITS, 3))
    sums = _kernels.sketch_block(values, costs, order, low, shift, hist)
    return [len(values)], sums, hist


def merge(sketches):
    """Sketch of several blocks, in their order."""
    counts = [count for part in sketches for count in part[0]]
    return counts, sum(part[1] for part in sketches), sum(part[2] for part in sketches)


def gather(values, costs, low, high):
    """Rows of a block with an increment in the last interval, and totals of the others."""
    values, costs, choices, core = _walked(values, costs, low, high)
    rows, at = np.flatnonzero(core), np.flatnonzero(~core)
    table = np.broadcast_to(costs, values.shape)
    fixed = values[at, choices[at]].sum(), table[at, choices[at]].sum()
    return [(rows, values[rows], table[rows], *map(float, fixed))]


def solve_in_passes(
    blocks: Sequence[Any], budget: float | None, *, run: Callable | None = None
) -> PassedAssignment:
    """Solve the assignment problem over blocks of rows, in passes.

    Parameters
    ----------
    blocks : sequence
        For each block a pair ``(values, costs)``, as for
        :func:`~skroute.assignment.solve_assignment`, or a function without arguments that
        returns one; it is called once in each pass.

    budget : float or None
        Mean cost per row, a hard cap over all rows of all blocks. None is unlimited.

    run : callable, default=None
        ``run(function, blocks, merge)`` returns ``merge`` of the results of
        ``function(values, costs)`` for every block, in their order; `merge` takes a list of
        results and may be applied in groups. None runs the blocks one by one.

    Returns
    -------
    PassedAssignment
        With `choices`, to be asked for each block.

    Raises
    ------
    ValueError
        For bad values or costs, or a budget that the cheapest plan exceeds.

    See Also
    --------
    solve_assignment : The same over Dask arrays.

    Notes
    -----
    A first pass sums the increments of the rows' concave hulls by bins of their efficiency,
    which are the same in every block; the price lies in one of them. Further passes narrow
    it until it has at most 100,000 increments. The rows of the 100,000 increments around it are
    solved exactly with what the others leave of the budget. The bound is that of the relaxation
    over all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.distributed import solve_in_passes
    >>> blocks = [(np.array([[0.6, 0.9]]), [1, 3]), (np.array([[0.7, 0.8], [0.2, 0.9]]), [1, 3])]
    >>> plan = solve_in_passes(blocks, budget=2)
    >>> [plan.choices(i, *block).tolist() for i, block in enumerate(blocks)]
    [[0], [0, 1]]
    """
    if (
        isinstance(blocks, (str, bytes))
        or not hasattr(blocks, "__len__")
        or not len(blocks)
    ):
        raise TypeError(
            "blocks must be a sequence of blocks, not empty, since they are passed over several "
            f"times, got {type(blocks).__name__}: give a list, of functions where blocks are large."
        )
    run = one_by_one if run is None else run
    if not callable(run):
        raise TypeError(f"run must be callable or None, got {run!r}.")
    budget = check_budget(budget)
    low, shift = 0, 63 - _BITS
    above = np.zeros(2)
    n_passes = 0
    while True:
        counts, sums, hist = run(partial(sketch, low=low, shift=shift), blocks, merge)
        n_passes += 1
        n_rows, starts = sum(counts), np.cumsum([0, *counts])
        total = budget * n_rows
        if n_passes == 1 and n_rows:
            check_affordable(budget, sums[0] / n_rows)
        above += sums[2:]
        room = (
            total * (1 + ROUNDING) - sums[0] - above[0]
            if np.isfinite(total)
            else np.inf
        )
        # From the top: what fits, and the first bin that does not.
        taken = np.cumsum(hist[::-1, 1])
        at = int(np.searchsorted(taken, room, side="right"))
        if at == len(hist):
            if low == 0:
                # The budget buys the best choice of every row.
                spent = sums[0] + above[0] + hist[:, 1].sum()
                value = sums[1] + above[1] + hist[:, 2].sum()
                rules = [(0, _NO_ROWS, _NO_ROWS)] * len(counts)
                return _plan(value, spent, value, 0.0, n_passes, starts, rules)
            # What rounding says of the narrower sums: the lowest bin of the interval.
            at -= 1
        above += hist[::-1][:at, 1:].sum(axis=0)
        bin_of = len(hist) - 1 - at
        if hist[bin_of, 0] <= _CORE or shift == 0:
            # As many bins on both sides as can be solved: the best exchange may be outside.
            below = np.cumsum([0, *hist[:, 0]])
            reach = np.arange(len(hist))
            first, last = (
                np.maximum(bin_of - reach, 0),
                np.minimum(bin_of + reach + 1, len(hist)),
            )
            n_around = below[last] - below[first]
            widest = max(int(np.searchsorted(n_around, _CORE, side="right")) - 1, 0)
            high = min(low + (int(last[widest]) << shift), np.iinfo(np.int64).max)
            low += int(first[widest]) << shift
            break
        low += bin_of << shift
        # Sums above are those above this interval from here on.
        above[:] = 0.0
        shift = max(shift - _BITS, 0)
    parts = run(partial(gather, low=low, high=high), blocks, _joined)
    return _settle(parts, starts, total, low, high, n_passes + 1)


def _settle(parts, starts, total, low, high, n_passes):
    """Solve the rows of the last interval exactly with what the others leave."""
    rows, values, costs, fixed_value, fixed_cost = zip(*parts)
    values, costs = np.concatenate(values), np.concatenate(costs)
    value, cost = np.sum(fixed_value), np.sum(fixed_cost)
    if len(values) == 0:
        # Only rounding can do that: everything above was bought, and nothing else is wanted.
        price = float(np.array(low, np.int64).view(np.float64))
        bound = value + max(total - cost, 0.0) * price
        rules = [(high, own, own) for own in rows]
        return _plan(value, cost, bound, price, n_passes, starts, rules)
    if (costs == costs[0]).all():
        costs = costs[0]
    least = float(np.min(costs, axis=-1).mean())
    left = max((total - cost) / len(values), least)
    path, plan = assignment_path(values, costs), solve_in_memory(values, costs, left)
    value, spent = value + plan.objective * len(values), cost + plan.spent * len(values)
    bound = max(
        value - plan.objective * len(values) + path.objective(left) * len(values), value
    )
    chosen = np.split(plan.choices, np.cumsum([len(own) for own in rows])[:-1])
    rules = [(high, own, choices) for own, choices in zip(rows, chosen)]
    # The price is infinite at the smallest budget alone.
    return _plan(value, spent, bound, path.price(left), n_passes, starts, rules)


def _plan(value, spent, bound, price, n_passes, starts, rules):
    """The plan of all rows from its totals."""
    gap, n_rows = float((bound - value) / max(abs(bound), TINY)), int(starts[-1])
    means = (float(total / max(n_rows, 1)) for total in (value, spent, bound))
    return PassedAssignment(*means, gap, price, n_rows, n_passes, starts, rules)


def _joined(parts):
    return [one for part in parts for one in part]


def one_by_one(function, blocks, merge):
    """Run a pass over blocks that lie here, with one of them in memory at a time."""
    results = (function(*(block() if callable(block) else block)) for block in blocks)
    # Sketches are as large as small blocks: not kept.
    return reduce(lambda done, result: merge([done, result]), results)


def _checked(values, costs):
    shape = np.shape(values)
    if len(shape) == 2 and shape[0] == 0:
        # A partition that a filter left nothing of.
        m = shape[1]
        return read_only(np.empty((0, m))), read_only(np.zeros((1, m))), np.arange(m)
    values, costs = check_values_and_costs(values, costs)
    return values, costs, np.argsort(costs[0], kind="stable").astype(np.int64)


def _walked(values, costs, low, high):
    from skroute.distributed import _kernels

    values, costs, order = _checked(values, costs)
    choices, core = np.empty(len(values), np.int64), np.empty(len(values), np.bool_)
    _kernels.walk_block(values, costs, order, low, high, choices, core)
    return values, costs, choices, core
