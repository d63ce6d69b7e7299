"""Numba kernels of the assignment problem with several limits.

The rows are decided by prices: the best choice has the largest gain less the sum of
price times amount. `PricedTables` bundles the arrays that all kernels take.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

# Entry of `PricedTables.segment` for a row whose value counts for no floor.
NO_SEGMENT = -1

# Number of rows that are priced together. Their values and amounts fit in the cache of
# a processor core.
_BLOCK = 256

# Least gain of a change in the local search, in units of the mean spread of a row's
# values. Smaller gains are the rounding of sums.
_LEAST_GAIN = 1e-12

# The local search ends after this number of changes. It usually needs fewer than 30.
_MAX_CHANGES = 300

# Position of the second option of a change of only one row, which has no second option.
_NO_OPTION = -1

# Value of the parameter `locked` if all rows may change.
_NO_ROW = -1


class PricedTables(NamedTuple):
    """A problem with limits, as arrays.

    The rows are the last axis, so that the inner loops run over rows.

    Attributes
    ----------
    gains : ndarray of shape (n_choices, n_rows)
        Value of each choice minus the value of the row's best choice. 0 if the choice
        is not allowed.
    allowed : ndarray of shape (n_choices, n_rows), dtype=bool
        The choices that a row may get, at least one.
    costs : ndarray of shape (n_choices, n_rows) or (n_choices, 1)
        Costs that break ties. One row if all rows share them.
    amounts : ndarray of shape (n_means, n_choices, n_rows)
        Amounts whose means are limited.
    capacity_choice : ndarray of shape (n_capacities,), dtype=int64
        The choices whose share of rows is limited.
    segment : ndarray of shape (n_rows,), dtype=int64
        Index of the floor that a row counts for, or `NO_SEGMENT`.
    segment_share : ndarray of shape (n_floors,)
        Share of the rows, by weight, that each floor is about.
    weight : ndarray of shape (n_rows,)
        Weights of the rows, with mean 1.
    all_allowed : bool
        True if each row may get each choice.
    largest_gain : float
        The largest absolute gain.
    largest_amount : ndarray of shape (n_means,)
        The largest absolute amounts.
    """

    gains: np.ndarray
    allowed: np.ndarray
    costs: np.ndarray
    amounts: np.ndarray
    capacity_choice: np.ndarray
    segment: np.ndarray
    segment_share: np.ndarray
    weight: np.ndarray
    all_allowed: bool
    largest_gain: float
    largest_amount: np.ndarray


class Prices(NamedTuple):
    """Prices of all limits, in the layout of the kernels.

    Attributes
    ----------
    value : float
        Factor of the gains. 1 for plans, 0 where only the limits matter.
    means : ndarray of shape (n_means,)
    choices : ndarray of shape (n_choices,)
        Price of each choice's share of rows. 0 for a choice without capacity.
    floors : ndarray of shape (n_floors,)
    """

    value: float
    means: np.ndarray
    choices: np.ndarray
    floors: np.ndarray


@njit(cache=True, nogil=True)
def floor_factor(tables, prices, row):
    """Return the factor of a row's gain from the least mean value of its segment.

    It is 0 for a row without a floor.

    Parameters
    ----------
    tables : PricedTables
    prices : Prices
    row : int

    Returns
    -------
    float
    """
    segment = tables.segment[row]
    if segment == NO_SEGMENT:
        return 0.0
    return prices.floors[segment] / tables.segment_share[segment]


@njit(cache=True, nogil=True)
def price_block(tables, prices, start, end, net):
    """Write each choice's gain less its priced amounts, for the rows ``start:end``.

    Parameters
    ----------
    tables : PricedTables
    prices : Prices
    start, end : int
    net : ndarray of shape (n_choices, at least end - start)
        Written: in column j, the net values of row ``start + j``. A net value is the
        gain less the sum of price times amount. -inf: the choice is not allowed.
    """
    n_rows = end - start
    for choice in range(net.shape[0]):
        choice_net = net[choice]
        gains = tables.gains[choice, start:end]
        choice_price = prices.choices[choice]
        for row in range(n_rows):
            choice_net[row] = prices.value * gains[row] - choice_price
        if prices.floors.shape[0] > 0:
            for row in range(n_rows):
                factor = floor_factor(tables, prices, start + row)
                choice_net[row] += factor * gains[row]
        for mean in range(tables.amounts.shape[0]):
            price = prices.means[mean]
            # The price is 0 if the limit does not bind. Most limits do not.
            if price == 0.0:
                continue
            amounts = tables.amounts[mean, choice, start:end]
            for row in range(n_rows):
                choice_net[row] -= price * amounts[row]
        if not tables.all_allowed:
            allowed = tables.allowed[choice, start:end]
            for row in range(n_rows):
                if not allowed[row]:
                    choice_net[row] = -np.inf


@njit(cache=True, nogil=True)
def largest_priced(tables, prices):
    """Return an upper bound of `priced_amount` for all rows and choices."""
    total = prices.choices.max()
    for mean in range(prices.means.shape[0]):
        total += prices.means[mean] * tables.largest_amount[mean]
    largest_floor_factor = 0.0
    for floor in range(prices.floors.shape[0]):
        floor_factor_of_rows = prices.floors[floor] / tables.segment_share[floor]
        largest_floor_factor = max(largest_floor_factor, floor_factor_of_rows)
    return total + largest_floor_factor * tables.largest_gain


@njit(cache=True, nogil=True)
def priced_amount(tables, prices, row, choice):
    """Return the sum of absolute amounts times prices of one choice of one row.

    Ties are relative to this number. The gain counts as an amount, too, with the price
    of the floor of the row.
    """
    factor = floor_factor(tables, prices, row)
    total = prices.choices[choice] + abs(factor * tables.gains[choice, row])
    for mean in range(prices.means.shape[0]):
        total += abs(prices.means[mean] * tables.amounts[mean, choice, row])
    return total


@njit(cache=True, nogil=True)
def cheapest_tied(tables, prices, row, net, top, tolerance):
    """Return the cheapest choice of a row among those tied with its best one.

    Two choices are tied if their net values differ by at most `tolerance`, relative to
    the sum of their priced amounts. Among tied choices of equal cost, the larger net
    value wins, then `top`, then the smaller index.

    Parameters
    ----------
    tables : PricedTables
    prices : Prices
    row : int
    net : ndarray of shape (n_choices,)
        Net values of the choices of the row.
    top : int
        The choice with the largest net value.
    tolerance : float

    Returns
    -------
    int
    """
    # All rows share the costs if there is one row of them.
    cost_row = 0 if tables.costs.shape[1] == 1 else row
    top_amount = priced_amount(tables, prices, row, top)
    best = top
    for choice in range(net.shape[0]):
        if not tables.allowed[choice, row]:
            continue
        amount = priced_amount(tables, prices, row, choice)
        if net[choice] < net[top] - tolerance * (top_amount + amount):
            continue
        cost = tables.costs[choice, cost_row]
        best_cost = tables.costs[best, cost_row]
        if cost < best_cost or (cost == best_cost and net[choice] > net[best]):
            best = choice
    return best


@njit(cache=True, nogil=True)
def plan_at_prices(tables, prices, tolerance, choices):
    """Write the best choice of each row at the prices. Ties are as in `cheapest_tied`.

    Parameters
    ----------
    tables : PricedTables
    prices : Prices
    tolerance : float
        As in `cheapest_tied`.
    choices : ndarray of shape (n_rows,), dtype=int64
        Written.

    Returns
    -------
    float
        Weighted sum of the largest net values of all rows.
    """
    n_choices, n_rows = tables.gains.shape
    net = np.empty((n_choices, _BLOCK))
    # Largest net value of each row of the block.
    top_net = np.empty(_BLOCK)
    # Number of choices of each row that may be tied with its best choice.
    n_near = np.empty(_BLOCK, np.int64)
    # Choices whose net values differ by more than this are not tied. It is an upper
    # bound, so that most rows need no exact test.
    widest_tie = 2.0 * tolerance * largest_priced(tables, prices)
    total = 0.0
    for start in range(0, n_rows, _BLOCK):
        end = min(start + _BLOCK, n_rows)
        price_block(tables, prices, start, end, net)
        block_choices = choices[start:end]
        for row in range(end - start):
            top_net[row] = net[0, row]
            block_choices[row] = 0
        for choice in range(1, n_choices):
            choice_net = net[choice]
            for row in range(end - start):
                if choice_net[row] > top_net[row]:
                    top_net[row] = choice_net[row]
                    block_choices[row] = choice
        n_near[:] = 0
        for choice in range(n_choices):
            choice_net = net[choice]
            for row in range(end - start):
                n_near[row] += choice_net[row] >= top_net[row] - widest_tie
        for row in range(end - start):
            total += tables.weight[start + row] * top_net[row]
            # `n_near` counts the best choice itself. If it is 1, no other choice may be
            # tied with the best one.
            if n_near[row] > 1:
                block_choices[row] = cheapest_tied(
                    tables,
                    prices,
                    start + row,
                    net[:, row],
                    block_choices[row],
                    tolerance,
                )
    return total


@njit(cache=True, nogil=True)
def use_of_plan(tables, choices, used):
    """Write what a plan uses of each limit, as weighted sums over the rows.

    Parameters
    ----------
    tables : PricedTables
    choices : ndarray of shape (n_rows,), dtype=int64
        The plan.
    used : ndarray of shape (n_means + n_capacities + n_floors,)
        Written: the use of means, capacities and floors, in this order. The use of a
        floor is minus the sum of the gains of its segment, divided by the segment's
        share.

    Returns
    -------
    float
        Weighted sum of the gains of all rows.
    """
    n_means = tables.amounts.shape[0]
    n_capacities = tables.capacity_choice.shape[0]
    first_floor = n_means + n_capacities
    used[:] = 0.0
    weight_of_choice = np.zeros(tables.gains.shape[0])
    total_gain = 0.0
    for row in range(choices.shape[0]):
        choice = choices[row]
        weight = tables.weight[row]
        weight_of_choice[choice] += weight
        gain = weight * tables.gains[choice, row]
        total_gain += gain
        for mean in range(n_means):
            used[mean] += weight * tables.amounts[mean, choice, row]
        segment = tables.segment[row]
        if segment != NO_SEGMENT:
            used[first_floor + segment] -= gain
    for capacity in range(n_capacities):
        used[n_means + capacity] = weight_of_choice[tables.capacity_choice[capacity]]
    for floor in range(used.shape[0] - first_floor):
        used[first_floor + floor] /= tables.segment_share[floor]
    return total_gain


@njit(cache=True, nogil=True)
def losses_at_prices(tables, prices, losses):
    """Write how far each choice is below the best one of its row at the prices.

    Parameters
    ----------
    tables : PricedTables
    prices : Prices
    losses : ndarray of shape (n_rows, n_choices)
        Written: differences of net values, times the weight of the row. Infinity: the
        choice is not allowed.
    """
    n_choices, n_rows = tables.gains.shape
    net = np.empty((n_choices, _BLOCK))
    for start in range(0, n_rows, _BLOCK):
        end = min(start + _BLOCK, n_rows)
        price_block(tables, prices, start, end, net)
        for row in range(end - start):
            top = net[:, row].max()
            for choice in range(n_choices):
                if tables.allowed[choice, start + row]:
                    loss = tables.weight[start + row] * (top - net[choice, row])
                    losses[start + row, choice] = loss
                else:
                    losses[start + row, choice] = np.inf


@njit(cache=True, nogil=True)
def lacking_after(room, extra, first, second):
    """Return how far a plan is above its limits after one change or two.

    Parameters
    ----------
    room, extra
        As in `find_improvement`.
    first, second : int
        Positions of the options that are taken. `second` is `_NO_OPTION` for a single
        change.

    Returns
    -------
    float
        Sum over the limits. 0 if the plan is within all limits.
    """
    lacking = 0.0
    for limit in range(room.shape[0]):
        left = room[limit] - extra[first, limit]
        if second != _NO_OPTION:
            left -= extra[second, limit]
        if left < 0.0:
            lacking -= left
    return lacking


@njit(cache=True, nogil=True)
def find_repair(row_of_option, gain, extra, room, locked):
    """Find the one or two changes after which a plan is least far above its limits.

    Ties go to the larger gain.

    Parameters
    ----------
    row_of_option, gain, extra, room, locked
        As in `find_improvement`.

    Returns
    -------
    first, second : int
        Positions of the options to take. `second` is `_NO_OPTION` for a single change.
        Both are `_NO_OPTION` if no change is allowed.
    lacking : float
        Sum of what the changed plan is above its limits.
    """
    n_options = row_of_option.shape[0]
    best_first = _NO_OPTION
    best_second = _NO_OPTION
    best_lacking = np.inf
    best_gain = -np.inf
    for first in range(n_options):
        if row_of_option[first] == locked:
            continue
        # `partner == first` stands for a single change, without a second option.
        for partner in range(first, n_options):
            second = partner
            if partner == first:
                second = _NO_OPTION
            elif (
                row_of_option[first] == row_of_option[partner]
                or row_of_option[partner] == locked
            ):
                continue
            total_gain = gain[first]
            if second != _NO_OPTION:
                total_gain += gain[second]
            lacking = lacking_after(room, extra, first, second)
            if lacking < best_lacking or (
                lacking == best_lacking and total_gain > best_gain
            ):
                best_first = first
                best_second = second
                best_lacking = lacking
                best_gain = total_gain
    return best_first, best_second, best_lacking


@njit(cache=True, nogil=True)
def find_improvement(row_of_option, gain, extra, room, locked):
    """Find the one or two changes of rows that gain most within the limits.

    Parameters
    ----------
    row_of_option : ndarray of shape (n_options,), dtype=int64
        Row of each option.
    gain : ndarray of shape (n_options,)
        Value of each option, less the value of the row's option in the plan.
    extra : ndarray of shape (n_options, n_limits)
        Amounts of each option, less the amounts of the row's option in the plan.
    room : ndarray of shape (n_limits,)
        What the plan leaves of the limits.
    locked : int
        Row that does not change. `_NO_ROW`: all rows may change.

    Returns
    -------
    first, second : int
        Positions of the options to take. `second` is `_NO_OPTION` for a single change.
        Both are `_NO_OPTION` if no change gains.
    """
    n_options = row_of_option.shape[0]
    best_first = _NO_OPTION
    best_second = _NO_OPTION
    best_gain = _LEAST_GAIN
    # Options by falling gain.
    order = np.argsort(-gain)
    for first_position in range(n_options):
        first = order[first_position]
        # No second option gains more than the first one. So no pair from here on gains
        # enough.
        if 2.0 * gain[first] <= best_gain:
            break
        if row_of_option[first] == locked:
            continue
        if gain[first] > best_gain:
            if lacking_after(room, extra, first, _NO_OPTION) == 0.0:
                best_first = first
                best_second = _NO_OPTION
                best_gain = gain[first]
        for second_position in range(first_position + 1, n_options):
            second = order[second_position]
            total_gain = gain[first] + gain[second]
            # No later second option gains enough either.
            if total_gain <= best_gain:
                break
            if (
                row_of_option[first] == row_of_option[second]
                or row_of_option[second] == locked
            ):
                continue
            if lacking_after(room, extra, first, second) == 0.0:
                best_first = first
                best_second = second
                best_gain = total_gain
    return best_first, best_second


@njit(cache=True, nogil=True)
def take_option(option, starts, row_of_option, gain, extra, room, current):
    """Make an option the choice of its row, and update the arrays of the search.

    Writes into `room` and `current`, and into `gain` and `extra` for the options of the
    row.

    Parameters
    ----------
    option : int
        Position of the option.
    starts, row_of_option, gain, extra, room, current
        As in `improve_plan`.
    """
    changed_row = row_of_option[option]
    option_gain = gain[option]
    option_extra = extra[option].copy()
    for other in range(starts[changed_row], starts[changed_row + 1]):
        gain[other] -= option_gain
        for limit in range(room.shape[0]):
            extra[other, limit] -= option_extra[limit]
    for limit in range(room.shape[0]):
        room[limit] -= option_extra[limit]
    current[changed_row] = option


@njit(cache=True, nogil=True)
def improve_plan(starts, row_of_option, gain, extra, room, current, locked):
    """Change one or two rows at a time until the plan fits, then until no change gains.

    Writes into `gain`, `extra`, `room` and `current`.

    Parameters
    ----------
    starts : ndarray of shape (n_rows + 1,)
        The options of row ``j`` are ``starts[j]:starts[j + 1]``.
    row_of_option, gain, extra, room, locked
        As in `find_improvement`.
    current : ndarray of shape (n_rows,)
        Position of the option of each row in the plan.

    Returns
    -------
    bool
        True if the plan is within the limits.
    """
    # Sum of what the plan is above its limits.
    lacking = 0.0
    for limit in range(room.shape[0]):
        lacking += max(-room[limit], 0.0)
    for _ in range(_MAX_CHANGES):
        if lacking > 0.0:
            first, second, lacking_then = find_repair(
                row_of_option, gain, extra, room, locked
            )
            if first == _NO_OPTION or lacking_then >= lacking:
                # No change brings the plan nearer to its limits.
                return False
            lacking = lacking_then
        else:
            first, second = find_improvement(row_of_option, gain, extra, room, locked)
            if first == _NO_OPTION:
                # The plan fits, and no change gains.
                return True
        take_option(first, starts, row_of_option, gain, extra, room, current)
        if second != _NO_OPTION:
            take_option(second, starts, row_of_option, gain, extra, room, current)
    return lacking == 0.0


@njit(cache=True, nogil=True)
def search_around(
    starts, row_of_option, value, gain, extra, room, current, order, enough
):
    """Improve a plan. Repeat this from plans in which one row has another choice.

    No change of one or two rows improves the first result. To force an option is to
    make it the choice of its row, and to change other rows first. The new plan replaces
    the best plan if it fits and is worth more. If the best plan does not fit, any plan
    that fits replaces it.

    Parameters
    ----------
    starts, row_of_option
        As in `improve_plan`.
    gain, extra, room, current
        As in `improve_plan`: gain and amounts of the options in addition to those of
        the plan, what the plan leaves of the limits, and the option of each row. They
        are written: they become the arrays of the best plan.
    value : ndarray of shape (n_options,)
        Value of each option less the best value of its row, at most 0. It does not
        depend on the plan.
    order : ndarray of shape (n_forced,), dtype=int64
        Positions of the options to force, the most promising first.
    enough : float
        The search ends if the summed `value` of the plan is at least this.

    Returns
    -------
    fits : bool
        True if the best plan is within the limits.
    """
    fits = improve_plan(starts, row_of_option, gain, extra, room, current, _NO_ROW)
    best_value = value[current].sum()
    for option in order:
        if fits and best_value >= enough:
            break
        row = row_of_option[option]
        if current[row] == option:
            # The best plan has this option already.
            continue
        trial_gain = gain.copy()
        trial_extra = extra.copy()
        trial_room = room.copy()
        trial = current.copy()
        take_option(
            option, starts, row_of_option, trial_gain, trial_extra, trial_room, trial
        )
        # The forced option stays at first: only other rows change, to fit this option.
        improve_plan(
            starts, row_of_option, trial_gain, trial_extra, trial_room, trial, row
        )
        # Then all rows, which may give up the forced option.
        trial_fits = improve_plan(
            starts, row_of_option, trial_gain, trial_extra, trial_room, trial, _NO_ROW
        )
        if not trial_fits:
            continue
        trial_value = value[trial].sum()
        if not fits or trial_value > best_value + _LEAST_GAIN:
            fits = True
            best_value = trial_value
            gain[:] = trial_gain
            extra[:] = trial_extra
            room[:] = trial_room
            current[:] = trial
    return fits
