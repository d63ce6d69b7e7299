"""Numba kernels of the multiple-choice knapsack.

All of them take ``values`` (n, m) and ``costs`` (n, m), or (1, m) when the costs are shared
by all rows, as C-contiguous float64, and ``order`` (m,) int64, a permutation of the choices
that sorts the first row of costs.

``row_hull`` defines, once, which increments exist and what their efficiency is to the last
bit; everything else walks it, so that "efficiency above the price" never depends on who
asks.
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
            costs[j, order[s]] > costs[j, i] or (costs[j, order[s]] == costs[j, i] and order[s] > i)
        ):
            order[s + 1] = order[s]
            s -= 1
        order[s + 1] = i


@njit(cache=True, nogil=True)
def row_hull(values, costs, j, k, order, hull, efficiency):
    """Upper concave hull of the points (``costs[k]``, ``values[j]``), by rising cost.

    `order` sorts ``costs[k]``. Writes the choices on the hull into `hull` (m,) int64, the
    cheapest first (ties: the higher value, then the smaller index), and into `efficiency`
    (m,) what each adds in value per cost over the one before, which falls strictly.
    Returns the hull's size.
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
        # The cheapest stays, also under a gain that a tiny cost difference made infinite.
        while size > 1 and gain >= efficiency[size - 1]:
            size -= 1
            gain = (value - values[j, hull[size - 1]]) / (cost - costs[k, hull[size - 1]])
        hull[size] = i
        efficiency[size] = gain
        size += 1
        top_value, top_cost = value, cost
    return size


@njit(cache=True, nogil=True)
def build_hulls(values, costs, order, starts, choice, efficiency, extra_cost, cheapest):
    """Hull increments of all rows.

    Fills ``starts`` (n + 1,) int64: increments of row j are ``starts[j]:starts[j + 1]``;
    ``choice`` int32, ``efficiency`` and ``extra_cost`` (each n (m - 1) long at most needed);
    and ``cheapest`` (n,) int64. Returns how many increments there are.
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
def walk_hulls(starts, choice, efficiency, price, choices):
    """Take every increment worth more than `price`; `choices` starts at the cheapest."""
    for j in range(choices.shape[0]):
        for k in range(starts[j], starts[j + 1]):
            if efficiency[k] <= price:
                break
            choices[j] = choice[k]


@njit(cache=True, nogil=True)
def take_ties(starts, choice, efficiency, extra_cost, price, choices, room):
    """Take increments worth exactly `price`, in row order, while they fit `room`.

    Changes `choices` in place.
    """
    for j in range(choices.shape[0]):
        for k in range(starts[j], starts[j + 1]):
            if efficiency[k] <= price:
                if efficiency[k] == price and extra_cost[k] <= room:
                    choices[j] = choice[k]
                    room -= extra_cost[k]
                break


@njit(cache=True, nogil=True)
def choose_at_price(values, costs, order, price, tolerance, choices):
    """Algorithm 1's choice per row: ``argmax values - price * costs``, ties to the cheaper.

    An increment is worth its cost when its efficiency exceeds ``price (1 + tolerance)``.
    Fills `choices` (n,) int64.
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
    """The single change of choice within `room` that adds most value.

    Ties go to the cheaper change. Returns ``(row, choice, gain)``; row is -1 when no
    change gains.
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
            if dc <= room and (gain > best_gain or (gain == best_gain > 0.0 and dc < best_cost)):
                best_row, best_choice, best_gain, best_cost = j, i, gain, dc
    return best_row, best_choice


@njit(cache=True, nogil=True)
def cheapest_repair(values, costs, choices, frozen_row, excess):
    """The single change of choice, outside `frozen_row`, that frees `excess` at least loss.

    Returns ``(row, choice, loss)``; row is -1 when no change frees enough.
    """
    n, m = values.shape
    shared = costs.shape[0] == 1
    best_row, best_choice, best_loss = -1, -1, np.inf
    for j in range(n):
        if j == frozen_row:
            continue
        c = costs[0] if shared else costs[j]
        v0 = values[j, choices[j]]
        c0 = c[choices[j]]
        for i in range(m):
            if c0 - c[i] >= excess and v0 - values[j, i] < best_loss:
                best_row, best_choice, best_loss = j, i, v0 - values[j, i]
    return best_row, best_choice


@njit(cache=True, nogil=True)
def expand_core(starts, loss, extra, price, slack, gap, step, tolerance, max_nodes):
    """Best combination of core alternatives (Pisinger's expanding core, as a list DP).

    A plan that departs from the break plan by a set of alternatives is worth the LP
    bound minus ``gap = sum(loss) + price * (slack - sum(extra))``. States are partial
    sums ``(extra, loss)`` with dominance. Rows should come roughly in order of their
    smallest loss (the first alternative of each), since the search ends as soon as every
    departure to come costs more than the best gap.

    Parameters
    ----------
    starts : ndarray of shape (n_rows + 1,), dtype=int64
        Alternatives of core row r are ``starts[r]:starts[r + 1]``.
    loss, extra : ndarray of shape (n_alternatives,)
    price, slack : float
        Dual price, and the room that the break plan leaves.
    gap : float
        Gap of the best plan known.
    step : float
        Smallest difference between two plans' values, 0 when unknown.
    tolerance : float
        Gap that counts as closed.
    max_nodes : int
        Give up beyond this many departures.

    Returns
    -------
    gap : float
        Best gap found.
    node : int
        Last departure of that plan, -1 when none was better than `gap`.
    parent, item : ndarray, dtype=int64
        Departures as a linked list: previous node and index of the alternative.
    complete : bool
        Whether the search proved that nothing is better.
    """
    n_rows = starts.shape[0] - 1
    # What the rows still to come can at most add or free, to cut states that cannot return.
    can_add = np.zeros(n_rows + 1)
    can_free = np.zeros(n_rows + 1)
    least_loss = np.full(n_rows + 1, np.inf)
    for r in range(n_rows - 1, -1, -1):
        least_loss[r] = min(least_loss[r + 1], loss[starts[r]])
        up, down = 0.0, 0.0
        for a in range(starts[r], starts[r + 1]):
            up = max(up, extra[a])
            down = min(down, extra[a])
        can_add[r] = can_add[r + 1] + up
        can_free[r] = can_free[r + 1] - down

    parent = np.empty(1024, np.int64)
    item = np.empty(1024, np.int64)
    n_nodes = 0
    best_node = -1
    # A better plan is better by at least `step`.
    margin = max(step * (1.0 - 1e-6), 0.0)

    spent = np.zeros(1)
    lost = np.zeros(1)
    node = np.full(1, -1, np.int64)
    for r in range(n_rows):
        if gap <= tolerance or gap - margin <= 0.0:
            return gap, best_node, parent[:n_nodes], item[:n_nodes], True
        if least_loss[r] >= gap - margin:
            break
        if loss[starts[r]] >= gap - margin:
            continue
        n_states = spent.shape[0]
        width = starts[r + 1] - starts[r] + 1
        size = n_states * width
        if n_nodes + size > max_nodes:
            return gap, best_node, parent[:n_nodes], item[:n_nodes], False
        new_spent = np.empty(size)
        new_lost = np.empty(size)
        new_node = np.empty(size, np.int64)
        new_item = np.empty(size, np.int64)
        count = 0
        for w in range(width):
            a = starts[r] + w - 1
            for s in range(n_states):
                x = spent[s] if w == 0 else spent[s] + extra[a]
                y = lost[s] if w == 0 else lost[s] + loss[a]
                if w > 0 and x <= slack:
                    candidate = y + price * (slack - x)
                    if candidate < gap - margin:
                        gap = candidate
                        if n_nodes == parent.shape[0]:
                            parent = np.concatenate((parent, np.empty_like(parent)))
                            item = np.concatenate((item, np.empty_like(item)))
                        parent[n_nodes] = node[s]
                        item[n_nodes] = a
                        best_node = n_nodes
                        n_nodes += 1
                reach = y + price * max(slack - x - can_add[r + 1], 0.0)
                if reach >= gap - margin or x - can_free[r + 1] > slack:
                    continue
                new_spent[count] = x
                new_lost[count] = y
                new_node[count] = node[s]
                new_item[count] = -1 if w == 0 else a
                count += 1
        # Dominance: by rising cost only rising value (price * spent - lost) survives.
        by_cost = np.argsort(new_spent[:count])
        kept = 0
        spent = np.empty(count)
        lost = np.empty(count)
        node = np.empty(count, np.int64)
        frontier = -np.inf
        for t in range(count):
            s = by_cost[t]
            worth = price * new_spent[s] - new_lost[s]
            if worth <= frontier + 1e-14 * (1.0 + abs(frontier)) or new_lost[s] >= gap - margin:
                continue
            frontier = worth
            spent[kept] = new_spent[s]
            lost[kept] = new_lost[s]
            if new_item[s] < 0:
                node[kept] = new_node[s]
            else:
                if n_nodes == parent.shape[0]:
                    parent = np.concatenate((parent, np.empty_like(parent)))
                    item = np.concatenate((item, np.empty_like(item)))
                parent[n_nodes] = new_node[s]
                item[n_nodes] = new_item[s]
                node[kept] = n_nodes
                n_nodes += 1
            kept += 1
        spent, lost, node = spent[:kept], lost[:kept], node[:kept]
        if kept == 0:
            break
    return gap, best_node, parent[:n_nodes], item[:n_nodes], True
