"""Numba kernels of the multiple-choice knapsack problem.

Parameters with the same meaning in all kernels:

- `values`: ndarray of shape (n_rows, n_choices), float64, C-contiguous;
- `costs`: ndarray of shape (n_rows, n_choices), or (1, n_choices) if all rows share
  their costs, float64, C-contiguous;
- `order`: ndarray of shape (n_choices,), int64: positions of the choices, by rising
  cost in the first row of the costs.

An increment is a step on the concave hull of a row, from a choice to the next more
expensive one. Its efficiency is the additional value per additional cost. Only
`row_hull` computes efficiencies. All other kernels use its results, also the kernels of
`skroute.distributed`. So all of them agree whether an efficiency is above a price.
"""

import numpy as np
from numba import njit

# What `best_upgrade` returns in place of a row if no change adds value.
NO_ROW = -1


@njit(cache=True, nogil=True)
def sort_row(costs, cost_row, order):
    """Sort the choices by a row of the costs, in place. Ties go to the smaller index.

    This is an insertion sort. It is fast, because rows have few choices, and `order`
    has the order of the row before, which is nearly right.

    Parameters
    ----------
    costs : ndarray
    cost_row : int
        Row of `costs`.
    order : ndarray of shape (n_choices,), dtype=int64
        Positions of the choices, in any order. Sorted in place.
    """
    # The choices at positions before `n_sorted` are sorted.
    for n_sorted in range(1, order.shape[0]):
        choice = order[n_sorted]
        position = n_sorted - 1
        # Sorted choices that cost more than `choice` move by one position. Choices of
        # equal cost move if their index is larger.
        while position >= 0 and (
            costs[cost_row, order[position]] > costs[cost_row, choice]
            or (
                costs[cost_row, order[position]] == costs[cost_row, choice]
                and order[position] > choice
            )
        ):
            order[position + 1] = order[position]
            position -= 1
        order[position + 1] = choice


@njit(cache=True, nogil=True)
def row_hull(values, costs, row, cost_row, order, hull, efficiency):
    """Find the upper concave hull of a row's choices, as points of a cost and a value.

    Parameters
    ----------
    values, costs : ndarray
    row, cost_row : int
        Row of `values`, and row of `costs`.
    order : ndarray of shape (n_choices,), dtype=int64
        Choices by their cost in this row.
    hull : ndarray of shape (n_choices,), dtype=int64
        Written: the choices on the hull, by rising cost. The first one is the cheapest
        choice. Ties of costs go to the higher value, then to the smaller index.
    efficiency : ndarray of shape (n_choices,), dtype=float64
        Written: the efficiency of the increment that leads to each choice on the hull.
        Efficiencies fall strictly. The first choice has no increment: infinity is
        written.

    Returns
    -------
    int
        Number of choices on the hull.
    """
    hull[0] = order[0]
    efficiency[0] = np.inf
    hull_size = 1
    # Value and cost of the last choice on the hull.
    top_value = values[row, order[0]]
    top_cost = costs[cost_row, order[0]]
    for position in range(1, order.shape[0]):
        choice = order[position]
        new_value = values[row, choice]
        if new_value <= top_value:
            # The choice costs at least as much as the last one, and adds no value.
            continue
        new_cost = costs[cost_row, choice]
        if new_cost == top_cost:
            # The choice replaces the last one, which has the same cost and less value.
            hull_size -= 1
            if hull_size == 0:
                # It was the only choice on the hull.
                hull[0] = choice
                hull_size = 1
                top_value = new_value
                continue
            top_value = values[row, hull[hull_size - 1]]
            top_cost = costs[cost_row, hull[hull_size - 1]]
        new_efficiency = (new_value - top_value) / (new_cost - top_cost)
        # The last choice leaves the hull while it is below the line from the choice
        # before it to the new choice. The cheapest choice stays, even if the efficiency
        # overflows to infinity because the costs hardly differ.
        while hull_size > 1 and new_efficiency >= efficiency[hull_size - 1]:
            hull_size -= 1
            new_efficiency = (new_value - values[row, hull[hull_size - 1]]) / (
                new_cost - costs[cost_row, hull[hull_size - 1]]
            )
        hull[hull_size] = choice
        efficiency[hull_size] = new_efficiency
        hull_size += 1
        top_value = new_value
        top_cost = new_cost
    return hull_size


@njit(cache=True, nogil=True)
def build_hulls(values, costs, order, starts, choice, efficiency, extra_cost, cheapest):
    """Write the steps between choices (increments) on the concave hulls of all rows.

    Parameters
    ----------
    values, costs, order : ndarray
    starts : ndarray of shape (n_rows + 1,), dtype=int64
        Written: the increments of row ``j`` are ``starts[j]:starts[j + 1]``.
    choice : ndarray of int32
        Written: the choice that each increment leads to. This array and the next two
        have room for ``n_rows * (n_choices - 1)`` increments.
    efficiency, extra_cost : ndarray of float64
        Written: efficiency and additional cost of each increment.
    cheapest : ndarray of shape (n_rows,), dtype=int64
        Written: the cheapest choice of each row.

    Returns
    -------
    int
        Number of increments.
    """
    n_rows, n_choices = values.shape
    has_shared_costs = costs.shape[0] == 1
    # The copy is sorted in place for each row.
    order = order.copy()
    # Overwritten for each row.
    hull = np.empty(n_choices, np.int64)
    row_efficiency = np.empty(n_choices)
    n_increments = 0
    for row in range(n_rows):
        cost_row = 0 if has_shared_costs else row
        if not has_shared_costs:
            sort_row(costs, row, order)
        hull_size = row_hull(values, costs, row, cost_row, order, hull, row_efficiency)
        cheapest[row] = hull[0]
        starts[row] = n_increments
        for position in range(1, hull_size):
            choice[n_increments] = hull[position]
            efficiency[n_increments] = row_efficiency[position]
            extra_cost[n_increments] = (
                costs[cost_row, hull[position]] - costs[cost_row, hull[position - 1]]
            )
            n_increments += 1
    starts[n_rows] = n_increments
    return n_increments


@njit(cache=True, nogil=True)
def choose_at_price(values, costs, order, price, tolerance, choices):
    """Write the best choice of each row at a price: ``argmax values - price * costs``.

    Ties go to the cheaper choice (Algorithm 1 of FrugalMCT).

    Parameters
    ----------
    values, costs, order : ndarray
    price : float
    tolerance : float
        An increment is taken if its efficiency is above ``price * (1 + tolerance)``.
    choices : ndarray of shape (n_rows,), dtype=int64
        Written.
    """
    n_rows, n_choices = values.shape
    has_shared_costs = costs.shape[0] == 1
    # The copy is sorted in place for each row.
    order = order.copy()
    # Overwritten for each row.
    hull = np.empty(n_choices, np.int64)
    row_efficiency = np.empty(n_choices)
    least_efficiency = price * (1.0 + tolerance)
    for row in range(n_rows):
        cost_row = 0 if has_shared_costs else row
        if not has_shared_costs:
            sort_row(costs, row, order)
        hull_size = row_hull(values, costs, row, cost_row, order, hull, row_efficiency)
        # Efficiency falls along the hull. `position` is the position on the hull that
        # the last increment taken leads to. 0: no increment is taken.
        position = 0
        while (
            position + 1 < hull_size and row_efficiency[position + 1] > least_efficiency
        ):
            position += 1
        choices[row] = hull[position]


@njit(cache=True, nogil=True)
def best_upgrade(values, costs, choices, room):
    """Find the change of one row's choice that adds most value for at most `room`.

    Ties go to the cheaper change.

    Parameters
    ----------
    values, costs : ndarray
    choices : ndarray of shape (n_rows,), dtype=int64
        The plan that is changed.
    room : float
        Largest additional cost of the change.

    Returns
    -------
    row : int
        `NO_ROW` if no change within the room adds value.
    choice : int
        The new choice of this row.
    """
    n_rows, n_choices = values.shape
    has_shared_costs = costs.shape[0] == 1
    best_row = NO_ROW
    best_choice = -1  # without a meaning, as long as there is no best row
    best_gain = 0.0
    best_cost = 0.0
    for row in range(n_rows):
        row_costs = costs[0] if has_shared_costs else costs[row]
        value_before = values[row, choices[row]]
        cost_before = row_costs[choices[row]]
        for choice in range(n_choices):
            gain = values[row, choice] - value_before
            extra_cost = row_costs[choice] - cost_before
            # The bound of 0 excludes the present choice, whose gain is 0.
            if extra_cost <= room and (
                gain > best_gain or (gain == best_gain > 0.0 and extra_cost < best_cost)
            ):
                best_row = row
                best_choice = choice
                best_gain = gain
                best_cost = extra_cost
    return best_row, best_choice
