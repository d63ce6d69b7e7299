"""Assignment in passes over blocks of rows. Some rows are then solved exactly."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skroute.assignment import assignment_path
from skroute.assignment import solve_assignment as solve_in_memory
from skroute.assignment._problem import check_values_and_costs
from skroute.base import check_affordable, check_budget
from skroute.utils._tolerances import ROUNDING, TINY
from skroute.utils._typing import NDArray
from skroute.utils._validation import read_only

# Number of bits of an efficiency (value per cost) that one pass determines. So the
# sums of a pass (`Sketch`) have 2 ** 16 bins.
_BITS = 16
# Number of bits of a float64 that is not negative, whose sign bit is 0.
_FLOAT_BITS = 63
# Columns of `Sketch.bins`: number, cost and value of the increments in a bin.
_COUNT = 0
_COST = 1
_VALUE = 2
# Largest number of increments around the dual price whose rows are solved exactly. It
# bounds the memory.
_MAX_CORE = 100_000
# Core rows, and core choices, of a block without core rows (`BlockRule`).
_NO_ROWS = np.empty(0, np.int64)


class BlockRule(NamedTuple):
    """Rule by which the rows of a block get their choices.

    An increment is a step of a row to its next more expensive choice. Its efficiency is
    the additional value per additional cost, a float64. `high` is compared with the
    bits of that number.

    Attributes
    ----------
    high : int
        Increments whose efficiency has at least these bits are taken.
    core_rows : ndarray of shape (n_core_rows,), dtype=int64
        Rows of the block that were solved exactly.
    core_choices : ndarray of shape (n_core_rows,), dtype=int64
        Choices of these rows.
    """

    high: int
    core_rows: NDArray[np.int64]
    core_choices: NDArray[np.int64]


class PassedAssignment(NamedTuple):
    """A plan for blocks of rows, with an upper bound of the best plan's value.

    All amounts are means per row.

    Attributes
    ----------
    objective : float
        Mean value of the plan.

    spent : float
        Mean cost per row. Never above the budget.

    upper_bound : float
        Upper bound of the mean value of all plans within the budget: the optimum of the
        relaxation.

    gap : float
        ``(upper_bound - objective) / max(|upper_bound|, tiny)``.

    price : float
        Dual price of the budget. 0 if the budget does not bind.

    n_rows : int
        Number of rows of all blocks.

    n_passes : int
        Number of passes over the blocks that finding the plan took. The pass of
        `choices` is not included.

    starts : ndarray of shape (n_blocks + 1,), dtype=int64
        Position of the first row of each block among all rows. The last entry is the
        number of all rows.

    rules : list of tuple
        For each block, the rule by which :meth:`choices` computes the choices.
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
        """Return the choice of each row of a block.

        Parameters
        ----------
        block : int
            Number of the block.

        values : array-like of shape (n_rows, n_choices)
            Values of the block, equal to those when the plan was found.

        costs : array-like of shape (n_choices,) or (n_rows, n_choices)
            Costs of the block.

        Returns
        -------
        ndarray of shape (n_rows,), dtype=int64
        """
        return choices_of(values, costs, self.rules[block])


class Sketch(NamedTuple):
    """Sums over steps to a more expensive choice (increments), by bins of efficiency.

    The steps are those of all rows of one or several blocks. The efficiency of a step
    is the additional value per additional cost.

    Attributes
    ----------
    block_sizes : list of int
        Number of rows of each block.
    cheapest_cost, cheapest_value : float
        Cost and value of the cheapest choices.
    cost_above, value_above : float
        Cost and value of the increments above all bins.
    bins : ndarray of shape (2 ** _BITS, 3)
        Number of increments, their cost and their value, in each bin.
    """

    block_sizes: list[int]
    cheapest_cost: float
    cheapest_value: float
    cost_above: float
    value_above: float
    bins: NDArray[np.float64]

    @property
    def n_rows(self):
        """Number of rows of all blocks."""
        return sum(self.block_sizes)

    @property
    def starts(self):
        """Position of each block's first row, and last the number of all rows.

        An array of shape (n_blocks + 1,), as in `PassedAssignment`.
        """
        return np.cumsum([0, *self.block_sizes])

    def n_bins_within(self, budget):
        """Return how many bins, from the most efficient on, a mean budget pays for.

        All increments of these bins, and of those above the bins, can be bought.
        """
        total = budget * self.n_rows
        # Without a limit, all bins are within the budget.
        room = np.inf
        if np.isfinite(total):
            room = total * (1 + ROUNDING) - self.cheapest_cost - self.cost_above
        spent_from_top = np.cumsum(self.bins[::-1, _COST])
        return int(np.searchsorted(spent_from_top, room, side="right"))


class CoreOfBlock(NamedTuple):
    """Rows of a block that are solved exactly, and totals of its other rows.

    Attributes
    ----------
    rows : ndarray of shape (n_core_rows,), dtype=int64
        Positions of these rows in the block.
    values, costs : ndarray of shape (n_core_rows, n_choices)
        Values and costs of these rows.
    fixed_value, fixed_cost : float
        Summed value and cost of the other rows, whose choices are settled.
    """

    rows: NDArray[np.int64]
    values: NDArray[np.float64]
    costs: NDArray[np.float64]
    fixed_value: float
    fixed_cost: float


class _WalkedBlock(NamedTuple):
    """Choices of a block after all steps whose value per cost is large enough.

    An increment is a step of a row to its next more expensive choice. Its efficiency is
    the additional value per additional cost.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_rows, n_choices) or (1, n_choices)
    choices : ndarray of shape (n_rows,), dtype=int64
    is_core : ndarray of shape (n_rows,), dtype=bool
        True for rows with an increment in the interval (`low`, `high`) of `_walk`.
    """

    values: NDArray[np.float64]
    costs: NDArray[np.float64]
    choices: NDArray[np.int64]
    is_core: NDArray[np.bool_]


def choices_of(values, costs, rule):
    """Return the choice of each row of a block by a `BlockRule`.

    Parameters
    ----------
    values, costs
        As for :func:`~skroute.assignment.solve_assignment`.
    rule : BlockRule

    Returns
    -------
    ndarray of shape (n_rows,), dtype=int64
    """
    # The interval from `high` to `high` is empty: no row is in the core.
    choices = _walk(values, costs, low=rule.high, high=rule.high).choices
    choices[rule.core_rows] = rule.core_choices
    return choices


def sketch_of_block(values, costs, *, low, shift):
    """Return the `Sketch` of a block, whose bins divide the efficiencies from `low` on.

    A bin has the increments whose efficiency, with its bits read as an int, is one of
    its numbers.

    Parameters
    ----------
    values, costs
        As for :func:`~skroute.assignment.solve_assignment`.
    low : int
        Smallest efficiency of the first bin, a float64 whose bits are read as an int.
    shift : int
        Bin `k` has the efficiencies with bits from ``low + (k << shift)`` up to the
        next bin.

    Returns
    -------
    Sketch
    """
    from skroute.distributed import _kernels

    values, costs, order = _check_block(values, costs)
    bins = np.zeros((2**_BITS, 3))
    # The kernel adds the increments to `bins`.
    sums = _kernels.sketch_block(values, costs, order, low, shift, bins)
    cheapest_cost, cheapest_value, cost_above, value_above = sums
    return Sketch(
        block_sizes=[len(values)],
        cheapest_cost=cheapest_cost,
        cheapest_value=cheapest_value,
        cost_above=cost_above,
        value_above=value_above,
        bins=bins,
    )


def merge_sketches(sketches):
    """Add up the sums of several sketches, and return the `Sketch` of all blocks."""
    block_sizes = []
    for sketch in sketches:
        block_sizes.extend(sketch.block_sizes)
    return Sketch(
        block_sizes=block_sizes,
        cheapest_cost=sum(sketch.cheapest_cost for sketch in sketches),
        cheapest_value=sum(sketch.cheapest_value for sketch in sketches),
        cost_above=sum(sketch.cost_above for sketch in sketches),
        value_above=sum(sketch.value_above for sketch in sketches),
        bins=sum(sketch.bins for sketch in sketches),
    )


def core_of_block(values, costs, *, low, high):
    """Return the rows of a block to solve exactly, as a list with one `CoreOfBlock`.

    The result is a list so that :func:`merge_cores` can join it with others.

    Parameters
    ----------
    values, costs
        As for :func:`~skroute.assignment.solve_assignment`.
    low, high : int
        Core rows have an increment whose efficiency has bits from `low` up to, but
        without, `high`.

    Returns
    -------
    list of CoreOfBlock
    """
    block = _walk(values, costs, low=low, high=high)
    core = np.flatnonzero(block.is_core)
    fixed = np.flatnonzero(~block.is_core)
    row_costs = np.broadcast_to(block.costs, block.values.shape)
    fixed_choices = block.choices[fixed]
    return [
        CoreOfBlock(
            rows=core,
            values=block.values[core],
            costs=row_costs[core],
            fixed_value=float(block.values[fixed, fixed_choices].sum()),
            fixed_cost=float(row_costs[fixed, fixed_choices].sum()),
        )
    ]


def merge_cores(lists_of_cores):
    """Return one list of `CoreOfBlock`, from a list of lists."""
    merged = []
    for cores in lists_of_cores:
        merged.extend(cores)
    return merged


def solve_in_passes(
    blocks: Sequence[Any],
    budget: float | Callable[[int], float] | None,
    *,
    run: Callable | None = None,
) -> PassedAssignment:
    """Solve the assignment problem over blocks of rows, in passes.

    Parameters
    ----------
    blocks : sequence
        For each block a pair ``(values, costs)``, as for
        :func:`~skroute.assignment.solve_assignment`, or a function without arguments
        that returns one and is called once in each pass.

    budget : float, callable or None
        Mean cost per row. A hard cap over all rows of all blocks. None is unlimited. A
        function gets the number of rows, which the first pass counts, and returns the
        mean: ``lambda n_rows: 1000 / n_rows`` caps the total at 1000. It is not called
        if there are no rows.

    run : callable, default=None
        ``run(function, blocks, merge)`` calls ``function(values, costs)`` for every
        block and returns ``merge`` of the results in the order of the blocks. `merge`
        takes a list of results and may be applied in groups. None runs the blocks one
        by one.

    Returns
    -------
    PassedAssignment
        Its method `choices` returns the choices of a block.

    Raises
    ------
    ValueError
        For bad values or costs, or a budget that the cheapest plan exceeds.

    See Also
    --------
    solve_assignment : Assignment over Dask arrays.

    Notes
    -----
    A row may step from its cheapest choice to more expensive ones. The efficiency of a
    step is the value that it adds per unit of cost. At a dual price, each row takes all
    steps whose efficiency is above the price. So the plan follows from the price.

    A first pass sums the values and costs of all steps by bins of efficiency. The bins
    are the same in every block, and the dual price of the budget is in one of them.
    Further passes divide this bin until it has at most 100,000 steps. The rows of the
    100,000 steps around the price are solved exactly, with the part of the budget that
    the other rows leave. The bound is that of the relaxation over all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.distributed import solve_in_passes
    >>> values = np.array([[0.6, 0.9], [0.7, 0.8], [0.2, 0.9]])
    >>> blocks = [(values[:1], [1, 3]), (values[1:], [1, 3])]
    >>> plan = solve_in_passes(blocks, budget=2)
    >>> [plan.choices(i, *block).tolist() for i, block in enumerate(blocks)]
    [[0], [0, 1]]
    """
    is_sequence = hasattr(blocks, "__len__") and not isinstance(blocks, str | bytes)
    if not is_sequence or not len(blocks):
        raise TypeError(
            "blocks must be a sequence of blocks, not empty, since they are passed "
            f"over several times, got {type(blocks).__name__}: give a list, of "
            "functions where blocks are large."
        )
    if run is None:
        run = one_by_one
    if not callable(run):
        raise TypeError(f"run must be callable or None, got {run!r}.")
    if not callable(budget):
        budget = check_budget(budget)
    # The bits of an efficiency, read as an int, rise with the efficiency. The first bin
    # begins at the int `low`, and each bin has 2 ** `shift` ints.
    low = 0
    shift = _FLOAT_BITS - _BITS
    n_passes = 0
    # Each pass divides the bin of the dual price, until this bin is small enough.
    while True:
        function = partial(sketch_of_block, low=low, shift=shift)
        sketch = run(function, blocks, merge_sketches)
        n_passes += 1
        if n_passes == 1:
            if callable(budget):
                # Without rows, no budget is needed. None is unlimited.
                mean_budget = budget(sketch.n_rows) if sketch.n_rows else None
                budget = check_budget(mean_budget)
            if sketch.n_rows:
                check_affordable(budget, sketch.cheapest_cost / sketch.n_rows)
        n_bought_bins = sketch.n_bins_within(budget)
        n_bins = len(sketch.bins)
        # If `low` is 0, no increment lies below the bins. Increments above the bins are
        # bought in any case.
        if n_bought_bins == n_bins and low == 0:
            # The budget buys all increments.
            return _plan_of_best_choices(sketch, n_passes)
        # The previous pass has shown that the budget does not buy the whole interval.
        # By other rounding of the sums, it may seem to buy all bins now.
        n_bought_bins = min(n_bought_bins, n_bins - 1)
        # The first bin from the top that does not fit contains the dual price.
        price_bin = n_bins - 1 - n_bought_bins
        if sketch.bins[price_bin, _COUNT] <= _MAX_CORE or shift == 0:
            break
        low += price_bin << shift
        shift = max(shift - _BITS, 0)
    first_bin, end_bin = _bins_around(sketch.bins[:, _COUNT], price_bin)
    # The end of the last bin of all may be beyond an int64.
    high = min(low + (end_bin << shift), np.iinfo(np.int64).max)
    low += first_bin << shift
    cores = run(partial(core_of_block, low=low, high=high), blocks, merge_cores)
    return _solve_core(
        cores,
        starts=sketch.starts,
        total=budget * sketch.n_rows,
        low=low,
        high=high,
        n_passes=n_passes + 1,
    )


def _plan_of_best_choices(sketch, n_passes):
    """Return the plan with the best choice of every row: all increments are bought.

    Parameters
    ----------
    sketch : Sketch
        Of all blocks, over all efficiencies.
    n_passes : int

    Returns
    -------
    PassedAssignment
    """
    cost_above_bins = sketch.cheapest_cost + sketch.cost_above
    value_above_bins = sketch.cheapest_value + sketch.value_above
    value = value_above_bins + sketch.bins[:, _VALUE].sum()
    # Each increment is taken: the bits of its efficiency, read as an int, are at least
    # 0.
    rule = BlockRule(high=0, core_rows=_NO_ROWS, core_choices=_NO_ROWS)
    return _make_plan(
        value=value,
        cost=cost_above_bins + sketch.bins[:, _COST].sum(),
        bound=value,
        price=0.0,
        n_passes=n_passes,
        starts=sketch.starts,
        rules=[rule] * len(sketch.block_sizes),
    )


def _bins_around(counts, price_bin):
    """Return the widest range of bins around the dual price to be solved exactly.

    The range has at most `_MAX_CORE` increments, unless the bin of the price alone has
    more. There are equally many bins on both sides of the price, except at the ends of
    the sketch. Both sides matter: the best plan may buy an increment below the price
    instead of one above it.

    Parameters
    ----------
    counts : ndarray of shape (n_bins,)
        Number of increments of each bin.
    price_bin : int
        Number of the bin that contains the price.

    Returns
    -------
    first_bin, end_bin : int
        The range ends before `end_bin`.
    """
    n_bins = len(counts)
    # Number of increments in the bins before each bin, and last in all bins:
    # (n_bins + 1,)
    n_below = np.cumsum([0, *counts])
    # Candidate ranges, with 0, 1, 2, ... bins on each side of the bin of the price.
    n_bins_on_side = np.arange(n_bins)
    first_bins = np.maximum(price_bin - n_bins_on_side, 0)
    end_bins = np.minimum(price_bin + n_bins_on_side + 1, n_bins)
    n_around = n_below[end_bins] - n_below[first_bins]
    n_allowed = int(np.searchsorted(n_around, _MAX_CORE, side="right"))
    # If no range is allowed, the bin of the price alone is taken.
    widest = max(n_allowed - 1, 0)
    return int(first_bins[widest]), int(end_bins[widest])


def _solve_core(cores, *, starts, total, low, high, n_passes):
    """Solve the core rows of all blocks with the budget that the other rows leave.

    Parameters
    ----------
    cores : list of CoreOfBlock
    starts : ndarray of shape (n_blocks + 1,), dtype=int64
        As in :class:`PassedAssignment`.
    total : float
        The budget, as a sum over all rows.
    low, high : int
        The core is the rows with an increment whose efficiency has bits from `low` up
        to, but without, `high`.
    n_passes : int
        Number of passes so far.

    Returns
    -------
    PassedAssignment
    """
    values = np.concatenate([core.values for core in cores])
    costs = np.concatenate([core.costs for core in cores])
    fixed_value = np.sum([core.fixed_value for core in cores])
    fixed_cost = np.sum([core.fixed_cost for core in cores])
    n_core = len(values)
    if n_core == 0:
        # By the rounding of sums, no increment is in the interval. Increments above it
        # are bought. The price is the lower end of the interval: `low` are its bits.
        price = float(np.array(low, np.int64).view(np.float64))
        return _make_plan(
            value=fixed_value,
            cost=fixed_cost,
            bound=fixed_value + max(total - fixed_cost, 0.0) * price,
            price=price,
            n_passes=n_passes,
            starts=starts,
            # No block has core rows.
            rules=[BlockRule(high, _NO_ROWS, _NO_ROWS) for core in cores],
        )
    if (costs == costs[0]).all():
        # All rows share their costs, which is faster.
        costs = costs[0]
    smallest_budget = float(np.min(costs, axis=-1).mean())
    # Rounding may leave the core rows less than their cheapest plan costs.
    core_budget = max((total - fixed_cost) / n_core, smallest_budget)
    path = assignment_path(values, costs)
    plan = solve_in_memory(values, costs, core_budget)
    core_value = plan.objective * n_core
    value = fixed_value + core_value
    # The linear relaxation, which may mix choices in a row, differs from the plan only
    # in core rows.
    relaxed_core_value = path.objective(core_budget) * n_core
    bound = max(value - core_value + relaxed_core_value, value)
    rules = []
    start = 0
    for core in cores:
        end = start + len(core.rows)
        rules.append(BlockRule(high, core.rows, plan.choices[start:end]))
        start = end
    return _make_plan(
        value=value,
        cost=fixed_cost + plan.spent * n_core,
        bound=bound,
        # The price is infinite only at the smallest budget.
        price=path.price(core_budget),
        n_passes=n_passes,
        starts=starts,
        rules=rules,
    )


def _make_plan(*, value, cost, bound, price, n_passes, starts, rules):
    """Return the plan of all rows from sums over the rows.

    Parameters
    ----------
    value, cost : float
        Value and cost of the plan.
    bound : float
        Upper bound of the value of all plans within the budget.
    price, n_passes, starts, rules
        As in :class:`PassedAssignment`.

    Returns
    -------
    PassedAssignment
    """
    n_rows = int(starts[-1])
    # Without rows, all means are 0.
    divisor = max(n_rows, 1)
    return PassedAssignment(
        objective=float(value / divisor),
        spent=float(cost / divisor),
        upper_bound=float(bound / divisor),
        gap=float((bound - value) / max(abs(bound), TINY)),
        price=price,
        n_rows=n_rows,
        n_passes=n_passes,
        starts=starts,
        rules=rules,
    )


def one_by_one(function, blocks, merge):
    """Run a pass over blocks one by one, with one of them in memory at a time.

    This function is the default of the parameter `run` of :func:`solve_in_passes`.

    Parameters
    ----------
    function : callable
        ``function(values, costs)`` returns the result of a block.
    blocks : sequence
        Blocks, as for :func:`solve_in_passes`.
    merge : callable
        It takes a list of results, and returns one.

    Returns
    -------
    object
        The merged result of all blocks.
    """
    remaining = iter(blocks)
    merged = _run_block(function, next(remaining))
    for block in remaining:
        # Results are merged at once, because a sketch is as large as a small block.
        merged = merge([merged, _run_block(function, block)])
    return merged


def _run_block(function, block):
    """Call a function with the values and the costs of a block.

    A callable block is read first.
    """
    pair = block() if callable(block) else block
    return function(*pair)


def _check_block(values, costs):
    """Check a block, and return its values, costs, and order of choices by cost.

    Returns
    -------
    values : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_rows, n_choices) or (1, n_choices)
    order : ndarray of shape (n_choices,), dtype=int64
        Choices by their cost in the first row.
    """
    shape = np.shape(values)
    if len(shape) == 2 and shape[0] == 0:
        # A partition without rows, for example after a filter, has no costs to check.
        n_choices = shape[1]
        no_values = read_only(np.empty((0, n_choices)))
        no_costs = read_only(np.zeros((1, n_choices)))
        return no_values, no_costs, np.arange(n_choices)
    values, costs = check_values_and_costs(values, costs)
    order = np.argsort(costs[0], kind="stable").astype(np.int64)
    return values, costs, order


def _walk(values, costs, *, low, high):
    """Take all steps of a block whose value per cost reaches `high`.

    A step (increment) leads from a choice to the next more expensive one. Its
    efficiency is the additional value per additional cost.

    Parameters
    ----------
    values, costs
        As for :func:`~skroute.assignment.solve_assignment`.
    low, high : int
        The interval contains efficiencies with bits from `low` up to, but without,
        `high`.

    Returns
    -------
    _WalkedBlock
    """
    from skroute.distributed import _kernels

    values, costs, order = _check_block(values, costs)
    choices = np.empty(len(values), np.int64)
    is_core = np.empty(len(values), np.bool_)
    # The kernel writes `choices` and `is_core`.
    _kernels.walk_block(values, costs, order, low, high, choices, is_core)
    return _WalkedBlock(values, costs, choices, is_core)
