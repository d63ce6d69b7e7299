"""Numba kernels of the multiple-choice knapsack.

All of them take ``values`` (n, m) and ``costs`` (n, m), or (1, m) when the costs are
shared by all rows, as C-contiguous float64, and ``order`` (m,) int64, a permutation of
the choices that sorts the first row of costs.

``row_hull`` defines, once, which increments exist and what their efficiency is to the
last bit; everything else walks it, so that "efficiency above the price" never depends
on who asks.
"""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def sort_row(costs, j, order):
    """Sort `order` (m,) int64 in place by row j's costs, ties by index.

    Insertion sort: rows have few choices, and the previous row's order is a good start.
    """
    for t in range(1, order.shape[0]):
        i = order[t]
        s = t - 1
        while s >= 0 and (
            costs[j, order[s]] > costs[j, i]
            or (costs[j, order[s]] == costs[j, i] and order[s] > i)
        ):
            order[s + 1] = order[s]
            s -= 1
        order[s + 1] = i


@njit(cache=True, nogil=True)
def row_hull(values, costs, j, k, order, hull, efficiency):
    """Upper concave hull of the points (``costs[k]``, ``values[j]``), by rising cost.

    `order` sorts ``costs[k]``. Writes the choices on the hull into `hull` (m,) int64,
    the cheapest first (ties: the higher value, then the smaller index), and into
    `efficiency` (m,) what each adds in value per cost over the one before, which falls
    strictly. Returns the hull's size.
    """
    hull[0] = order[0]
    efficiency[0] = np.inf
    size = 1
    top_value = values[j, order[0]]
    top_cost = costs[k, order[0]]
    for t in range(1, order.shape[0]):
        i = order[t]
        value = values[j, i]
        if value <= top_value:
            continue
        cost = costs[k, i]
        if cost == top_cost:
            size -= 1
            if size == 0:
                hull[0] = i
                size = 1
                top_value = value
                continue
            top_value, top_cost = values[j, hull[size - 1]], costs[k, hull[size - 1]]
        gain = (value - top_value) / (cost - top_cost)
        # The cheapest stays, also under a gain that a tiny cost difference made
        # infinite.
        while size > 1 and gain >= efficiency[size - 1]:
            size -= 1
            gain = (value - values[j, hull[size - 1]]) / (
                cost - costs[k, hull[size - 1]]
            )
        hull[size] = i
        efficiency[size] = gain
        size += 1
        top_value, top_cost = value, cost
    return size


@njit(cache=True, nogil=True)
def build_hulls(values, costs, order, starts, choice, efficiency, extra_cost, cheapest):
    """Hull increments of all rows.

    Fills ``starts`` (n + 1,) int64: increments of row j are ``starts[j]:starts[j +
    1]``; ``choice`` int32, ``efficiency`` and ``extra_cost`` (each n (m - 1) long at
    most needed); and ``cheapest`` (n,) int64. Returns how many increments there are.
    """
    n, m = values.shape
    shared = costs.shape[0] == 1
    order = order.copy()
    hull = np.empty(m, np.int64)
    gains = np.empty(m)
    count = 0
    for j in range(n):
        k = 0 if shared else j
        if not shared:
            sort_row(costs, j, order)
        size = row_hull(values, costs, j, k, order, hull, gains)
        cheapest[j] = hull[0]
        starts[j] = count
        for t in range(1, size):
            choice[count] = hull[t]
            efficiency[count] = gains[t]
            extra_cost[count] = costs[k, hull[t]] - costs[k, hull[t - 1]]
            count += 1
    starts[n] = count
    return count


@njit(cache=True, nogil=True)
def choose_at_price(values, costs, order, price, tolerance, choices):
    """Write the best choice of each row at a price: ``argmax values - price * costs``.

    Ties go to the cheaper choice (Algorithm 1 of FrugalMCT).

    An increment is worth its cost when its efficiency exceeds ``price (1 +
    tolerance)``. Fills `choices` (n,) int64.
    """
    n, m = values.shape
    shared = costs.shape[0] == 1
    order = order.copy()
    hull = np.empty(m, np.int64)
    gains = np.empty(m)
    bar = price * (1.0 + tolerance)
    for j in range(n):
        if not shared:
            sort_row(costs, j, order)
        size = row_hull(values, costs, j, 0 if shared else j, order, hull, gains)
        k = 0
        while k + 1 < size and gains[k + 1] > bar:
            k += 1
        choices[j] = hull[k]


@njit(cache=True, nogil=True)
def best_upgrade(values, costs, choices, room):
    """Find the single change of choice within `room` that adds most value.

    Ties go to the cheaper change. Returns ``(row, choice)``; row is -1 when no change
    gains.
    """
    n, m = values.shape
    shared = costs.shape[0] == 1
    best_row, best_choice, best_gain, best_cost = -1, -1, 0.0, 0.0
    for j in range(n):
        c = costs[0] if shared else costs[j]
        v0 = values[j, choices[j]]
        c0 = c[choices[j]]
        for i in range(m):
            gain = values[j, i] - v0
            dc = c[i] - c0
            if dc <= room and (
                gain > best_gain or (gain == best_gain > 0.0 and dc < best_cost)
            ):
                best_row, best_choice, best_gain, best_cost = j, i, gain, dc
    return best_row, best_choice
