"""When to stop buying and what to buy next: backward induction over sets of features.

At a price of cost, going on from a set to a larger one leads over stopping by what the
larger set is worth, less its price. What it is worth is what answering with it is
expected to be worth, or what going on from there is worth. This is backward induction
as for American options (Longstaff and Schwartz, 2001, section 1): the expectation of
the lead, given what a row has shown at its set, is a mean over rows that have shown
something alike. A `State` says which rows these are.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.ensemble import RandomForestRegressor

from skroute.utils._tolerances import ROUNDING, SCORE_TIE

# The move of a row that buys nothing more.
STOP = -1
# A lead over stopping below this is rounding.
_LEAST_LEAD = 1e-12
# Number of prices, the two ends included, and their range in units of the mean gain per
# mean cost: from a price at which nearly all is bought to one at which nothing is.
_N_PRICES = 40
_LOWEST_PRICE = 1e-3
_HIGHEST_PRICE = 1e2
# A price, in the same unit, at which no purchase is worth it.
_NO_PURCHASE = 1e12
# A state by answers has at most this number of bins, and rows of a bin at least.
_MOST_BINS = 24
_ROWS_OF_A_BIN = 25
# Weights of the neighbouring bins in the mean of a bin, which is as noisy as they are.
_SMOOTHING = (0.25, 0.5, 0.25)
# The forest of a state: trees, leaves of a tree at most, and rows of a leaf at least. A
# finer forest overspends, because the rows of a leaf decide for one another.
_N_TREES = 20
_MOST_LEAVES = 64
_ROWS_OF_A_LEAF = 15


# States -------------------------------------------------------------------------------


class State(ABC):
    """What rows have shown at one set, as cells that rows belong to.

    A row belongs to one or more cells with a share each, and the shares of a row sum
    to 1. The expected lead of a row is the mean over its cells.
    """

    @abstractmethod
    def cells(self, shown):
        """Return the cells of new rows.

        Parameters
        ----------
        shown : ndarray of shape (n_rows, n_columns)
            Values of the columns of the set, followed by what its model answers.

        Returns
        -------
        csr matrix of shape (n_rows, n_cells)
            The share of each row in each cell.
        """

    @abstractmethod
    def means(self, lead, weight):
        """Return the mean lead of each cell over the rows that the state was made of.

        Parameters
        ----------
        lead : ndarray of shape (n_rows, n_leads)
        weight : ndarray of shape (n_rows,)

        Returns
        -------
        cell_means : ndarray of shape (n_cells, n_leads)
        expected : ndarray of shape (n_rows, n_leads)
            The expected lead of these rows.
        """


class AnswerState(State):
    """Bins of the answer, as one number: a probability, or its expected quality.

    Parameters
    ----------
    key : ndarray of shape (n_rows,)
        The number of each row.
    key_of : callable
        Returns the number of rows from what they have shown.
    """

    def __init__(self, key, key_of):
        self.key_of = key_of
        self.borders = borders_of(key)
        self._bin_of_row = np.searchsorted(self.borders, key, side="right")

    def cells(self, shown):
        key = self.key_of(shown)
        bins = np.searchsorted(self.borders, key, side="right")
        return _one_cell_each(bins, len(self.borders) + 1)

    def means(self, lead, weight):
        cells = _one_cell_each(self._bin_of_row, len(self.borders) + 1)
        total_weight = cells.T @ weight
        cell_means = np.asarray(cells.T @ (weight[:, np.newaxis] * lead))
        # A bin without rows has a mean of 0, and no row of these is in it.
        cell_means /= np.maximum(total_weight, np.finfo(float).tiny)[:, np.newaxis]
        cell_means = _smooth(cell_means)
        return cell_means, cell_means[self._bin_of_row]


class LeafState(State):
    """Leaves of a small forest on the values that were bought, and the answer.

    The trees are grown on what the larger sets gain, so that rows of a leaf are alike
    in what they should buy next.

    Parameters
    ----------
    shown : ndarray of shape (n_rows, n_columns)
        As in `State.cells`.
    gains : ndarray of shape (n_rows, n_larger_sets)
        What answering with each larger set is worth, less answering with this one.
    weight : ndarray of shape (n_rows,)
    n_trees, most_leaves : int
    """

    def __init__(
        self, shown, gains, weight, *, n_trees=_N_TREES, most_leaves=_MOST_LEAVES
    ):
        self.forest = RandomForestRegressor(
            n_trees,
            max_leaf_nodes=most_leaves,
            min_samples_leaf=_ROWS_OF_A_LEAF,
            max_samples=0.5,
            # All columns: a switch is to be found by every tree.
            max_features=1.0,
            random_state=0,
        )
        target = gains[:, 0] if gains.shape[1] == 1 else gains
        sample_weight = None if np.ptp(weight) == 0 else weight
        self.forest.fit(_as_float32(shown), target, sample_weight=sample_weight)
        n_nodes = [tree.tree_.node_count for tree in self.forest.estimators_]
        # Number of the first node of each tree among the nodes of all trees.
        self._first_node = np.concatenate([[0], np.cumsum(n_nodes)])
        self._cells_of_rows = self.cells(shown)

    def __getstate__(self):
        # The cells of the rows of `fit` are read while it learns.
        return {**vars(self), "_cells_of_rows": None}

    def cells(self, shown):
        shown = _as_float32(shown)
        n_trees = len(self.forest.estimators_)
        columns = np.empty((len(shown), n_trees), dtype=np.int64)
        for position, tree in enumerate(self.forest.estimators_):
            columns[:, position] = tree.tree_.apply(shown)
        columns += self._first_node[:-1]
        shares = np.full(columns.size, 1 / n_trees)
        starts = np.arange(0, columns.size + 1, n_trees)
        shape = (len(shown), int(self._first_node[-1]))
        return sparse.csr_matrix((shares, columns.ravel(), starts), shape=shape)

    def means(self, lead, weight):
        """Return the mean lead of each leaf, and that of the other rows of a leaf.

        No row decides by its own lead: it is left out of the mean of its own leaf.
        """
        cells = self._cells_of_rows
        is_member = cells.copy()
        is_member.data = np.ones_like(is_member.data)
        total_weight = is_member.T @ weight
        weighted = weight[:, np.newaxis] * lead
        total = np.asarray(is_member.T @ weighted)
        least = np.finfo(float).tiny
        cell_means = total / np.maximum(total_weight, least)[:, np.newaxis]
        # For each pair of a row and its leaf, 1 over the weight of the other rows.
        pairs = cells.tocoo()
        others = total_weight[pairs.col] - weight[pairs.row]
        # A row that is alone in a leaf has no others there, and the leaf counts 0.
        inverse = np.where(others > least, 1 / np.maximum(others, least), 0.0)
        by_others = sparse.csr_matrix(
            (pairs.data * inverse, (pairs.row, pairs.col)), shape=cells.shape
        )
        own_share = np.asarray(by_others.sum(axis=1))  # (n_rows, 1)
        expected = np.asarray(by_others @ total) - own_share * weighted
        return cell_means, expected


def _as_float32(shown):
    """Return numbers as the trees read them; beyond their range they are at its ends."""
    largest = np.finfo(np.float32).max
    return np.clip(shown, -largest, largest).astype(np.float32)


def _one_cell_each(cell_of_row, n_cells):
    """Return a membership matrix in which each row is in one cell."""
    n_rows = len(cell_of_row)
    return sparse.csr_matrix(
        (np.ones(n_rows), cell_of_row, np.arange(n_rows + 1)), shape=(n_rows, n_cells)
    )


def borders_of(key):
    """Return borders of bins of equally many rows. Rows that are alike share a bin."""
    n_bins = int(np.clip(len(key) // _ROWS_OF_A_BIN, 1, _MOST_BINS))
    rising = np.sort(key)
    cuts = np.linspace(0, len(key), n_bins, endpoint=False).astype(int)[1:]
    # Positions after which numbers rise by more than rounding.
    size = max(1.0, float(np.abs(rising).max()))
    rises = np.flatnonzero(np.diff(rising) > SCORE_TIE * size)
    if not len(rises) or not len(cuts):
        return np.empty(0)
    next_rise = np.minimum(np.searchsorted(rises, cuts - 1), len(rises) - 1)
    before = np.unique(rises[next_rise])
    return 0.5 * (rising[before] + rising[before + 1])


def _smooth(cell_means):
    """Return means of bins averaged with their neighbours, (n_bins, n_leads)."""
    if len(cell_means) < 3:
        return cell_means
    padded = np.pad(cell_means, ((1, 1), (0, 0)), mode="edge")
    before, here, after = _SMOOTHING
    return before * padded[:-2] + here * padded[1:-1] + after * padded[2:]


# The induction ------------------------------------------------------------------------


class Moves(NamedTuple):
    """What rows of one set may buy next, with a number of purchases left.

    Attributes
    ----------
    larger : ndarray of shape (n_larger,), dtype=int64
        Positions of the sets that may be bought.
    leads : ndarray of shape (n_cells, n_larger, n_prices)
        Mean lead of buying each over stopping.
    """

    larger: np.ndarray
    leads: np.ndarray


class Expectation(NamedTuple):
    """Expected leads of rows over stopping, at each price.

    Attributes
    ----------
    larger : ndarray of shape (n_larger,), dtype=int64
    leads : ndarray of shape (n_rows, n_larger, n_prices)
    """

    larger: np.ndarray
    leads: np.ndarray

    @property
    def go(self):
        """The set to buy next, by row and price: (n_rows, n_prices). STOP: none."""
        best = self.leads.argmax(axis=1)
        is_worth = self.leads.max(axis=1) > _LEAST_LEAD
        return np.where(is_worth, self.larger[best], STOP)


class Policies(NamedTuple):
    """The moves of rows at each of some prices, from every set.

    Attributes
    ----------
    prices : ndarray of shape (n_prices,)
        Quality that a unit of cost must bring, rising. At the last one no row buys.
    states : list of State or None
        One for each set. None where nothing larger can be bought.
    moves : list of dict from int to Moves
        For the first dict one purchase is left, for the second two, and so on. If the
        purchases are not limited, there is one dict. The keys are sets.
    ends : list of ndarray of shape (n_prices, n_sets, n_rows), dtype=int16
        For each dict, the set that held-out rows end at, from each first set.
    """

    prices: np.ndarray
    states: list
    moves: list
    ends: list

    def moves_left(self, n_left):
        """Return the moves for a number of purchases that are left; None is any."""
        return self.moves[-1 if n_left is None else n_left - 1]

    def ends_left(self, n_left):
        """Return the ends of held-out rows, as `moves_left`. With 0 left, rows stay."""
        if n_left == 0:
            ends = np.empty_like(self.ends[-1])
            ends[:] = np.arange(ends.shape[1])[:, np.newaxis]
            return ends
        return self.ends[-1 if n_left is None else n_left - 1]

    def expect(self, position, shown, n_left, prices):
        """Return what rows of a set may expect of larger sets (`Expectation`).

        Parameters
        ----------
        position : int
            The set.
        shown : ndarray of shape (n_rows, n_columns)
            As in `State.cells`.
        n_left : int or None
            Purchases that are left, at least 1; None is any number.
        prices : sequence of int or slice
            Positions of the prices.
        """
        moves = self.moves_left(n_left).get(position)
        if moves is None:
            nothing = np.empty(0, dtype=np.int64)
            leads = np.empty((len(shown), 0, len(self.prices[prices])))
            return Expectation(nothing, leads)
        table = moves.leads[:, :, prices]
        cells = self.states[position].cells(shown)
        leads = cells @ table.reshape(len(table), -1)
        return Expectation(moves.larger, leads.reshape(len(shown), *table.shape[1:]))


def price_grid(value, costs):
    """Return prices from none to one at which nothing is bought.

    Parameters
    ----------
    value : ndarray of shape (n_sets,)
        Mean value of each set.
    costs : ndarray of shape (n_sets,)

    Returns
    -------
    ndarray of shape (n_prices,)
        Rising from 0.
    """
    # The floors keep the grid finite if all sets are alike or free.
    spread = max(float(np.ptp(value)), 1e-9)
    positive = costs[costs > 0]
    mean_cost = float(positive.mean()) if len(positive) else 1.0
    unit = spread / max(mean_cost, 1e-300)
    grid = unit * np.geomspace(_LOWEST_PRICE, _HIGHEST_PRICE, _N_PRICES - 2)
    return np.concatenate([[0.0], grid, [_NO_PURCHASE * unit]])


def learn_policies(value, states, sets, costs, *, allowed, n_rounds, weight):
    """Learn what to buy next from held-out rows, backwards from the largest set.

    Parameters
    ----------
    value : ndarray of shape (n_sets, n_rows)
        What answering each row with each set is worth.
    states : list of State or None
        One for each set, made of these rows. None where rows always stop.
    sets : ndarray of bool of shape (n_sets, n_groups)
        Sorted by cost.
    costs : ndarray of shape (n_sets,)
    allowed : ndarray of bool of shape (n_sets,)
        Sets that may be bought.
    n_rounds : int or None
        Largest number of purchases. None is any number.
    weight : ndarray of shape (n_rows,)
        Above 0.

    Returns
    -------
    Policies
    """
    n_sets, n_rows = value.shape
    prices = price_grid(np.average(value, axis=1, weights=weight), costs)
    n_prices = len(prices)
    # What rows are worth at each set, and where they end, at each price.
    worth = np.repeat(value[np.newaxis], n_prices, axis=0)
    stay = np.arange(n_sets, dtype=np.int16)[:, np.newaxis]
    ends = np.broadcast_to(stay, (n_prices, n_sets, n_rows)).copy()
    price_index = np.arange(n_prices)[:, np.newaxis]
    row = np.arange(n_rows)
    all_moves = []
    all_ends = []
    for _ in range(1 if n_rounds is None else n_rounds):
        # Without a limit, what is behind a larger set is known when a smaller one is
        # decided. With one, it is what is behind it with one purchase less.
        worth_behind = worth if n_rounds is None else worth.copy()
        ends_behind = ends if n_rounds is None else ends.copy()
        moves_of_sets = {}
        for position in range(n_sets - 1, -1, -1):
            larger = _larger_sets(position, sets, costs, allowed)
            if not len(larger) or states[position] is None:
                continue
            extra = costs[larger] - costs[position]
            lead = worth_behind[:, larger] - value[position]
            lead -= prices[:, np.newaxis, np.newaxis] * extra[:, np.newaxis]
            # (n_prices, n_larger, n_rows) to (n_rows, n_larger * n_prices)
            flat = lead.transpose(2, 1, 0).reshape(n_rows, -1)
            cell_means, expected = states[position].means(flat, weight)
            shape = (len(larger), n_prices)
            moves_of_sets[position] = Moves(
                larger, cell_means.reshape(-1, *shape).astype(np.float32)
            )
            go = Expectation(larger, expected.reshape(n_rows, *shape)).go.T
            is_going = go != STOP
            target = np.where(is_going, go, position)
            paid = prices[:, np.newaxis] * (costs[target] - costs[position])
            going_on = worth_behind[price_index, target, row] - paid
            worth[:, position] = np.where(is_going, going_on, value[position])
            ends[:, position] = np.where(
                is_going, ends_behind[price_index, target, row], position
            )
        all_moves.append(moves_of_sets)
        all_ends.append(ends.copy())
    return Policies(prices, states, all_moves, all_ends)


def _larger_sets(position, sets, costs, allowed):
    """Return the allowed sets that contain a set and cost more, as positions."""
    contains = (sets[position] <= sets).all(axis=1)
    return np.flatnonzero(allowed & (costs > costs[position]) & contains)


class Spending(NamedTuple):
    """How a mean budget is spent: at one price, and by some rows at a lower one.

    Attributes
    ----------
    price, lower : int
        Positions of the prices.
    share : float
        Share of the rows at the lower price.
    """

    price: int
    lower: int
    share: float


def spend(cost, budget):
    """Return how a budget is spent in the mean (`Spending`).

    Parameters
    ----------
    cost : ndarray of shape (n_prices,)
        Mean cost at each price. That at the last price is within the budget.
    budget : float
    """
    within = cost <= budget * (1 + ROUNDING)
    price = int(np.argmax(np.where(within, cost, -np.inf)))
    if within.all():
        return Spending(price, price, 0.0)
    lower = int(np.argmin(np.where(within, np.inf, cost)))
    share = float((budget - cost[price]) / (cost[lower] - cost[price]))
    return Spending(price, lower, share)
