"""When to stop buying and what to buy next: backward induction over sets of features.

At a price of cost, going on from a set to a larger one leads over stopping by what the
larger set is worth, less its price. What it is worth is what answering with it is
expected to be worth, or what going on from there is worth. This is backward induction
as for American options (Longstaff and Schwartz, 2001, section 1): the expectation of
the lead, given what a row has shown at its set, is a mean over rows that have shown
something alike. A `State` says which rows these are.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.ensemble import RandomForestRegressor

from skroute.utils._tolerances import ROUNDING, SCORE_TIE

# The move of a row that buys nothing more.
STOP = -1
# The left child of a leaf, in scikit-learn and in the kernel.
LEAF = -1
# A lead over stopping below this is rounding.
_LEAST_LEAD = 1e-12
# A price, in units of the mean gain per mean cost, at which no purchase is worth it.
_NO_PURCHASE = 1e12
# A state by answers has at most this number of bins, and rows of a bin at least.
_MOST_BINS = 24
_ROWS_OF_A_BIN = 25
# Weights of the neighbouring bins in the mean of a bin, which is as noisy as they are.
_SMOOTHING = (0.25, 0.5, 0.25)
# Weights below this are rounding: there are no rows.
_LEAST_WEIGHT = 1e-6
# The forest of a state: trees, leaves of a tree at most, and rows of a leaf at least. A
# finer forest overspends, because the rows of a leaf decide for one another.
_N_TREES = 20
_MOST_LEAVES = 64
_ROWS_OF_A_LEAF = 15


class PriceRange(NamedTuple):
    """The prices of an induction, in units of the mean gain per mean cost.

    Attributes
    ----------
    n_prices : int
        Number of prices, with one of 0 and one at which nothing is bought.
    lowest, highest : float
        Ends of the others, which are a geometric series.
    """

    n_prices: int
    lowest: float
    highest: float


# For a state by answers: from a price at which nearly all is bought to one at which
# nothing is.
ANSWER_PRICES = PriceRange(40, 1e-3, 1e2)
# For a state by leaves, whose induction takes fifty times as long for each price.
LEAF_PRICES = PriceRange(20, 2e-3, 3.0)

# States -------------------------------------------------------------------------------


class Shown(NamedTuple):
    """Features that rows have bought with one set, and the answers of its model.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_columns)
        Values of the columns of the set. NaN is missing.
    proba : ndarray of shape (n_rows, n_classes)
        Class probabilities by the model of the set.
    key : ndarray of shape (n_rows,)
        The answer as one number: the probability of the second of two classes, or the
        quality that the answer is expected to have.
    """

    values: np.ndarray
    proba: np.ndarray
    key: np.ndarray


class State(ABC):
    """Cells of rows that have shown something alike at one set.

    A row belongs to one or more cells with a share each, and the shares of a row sum
    to 1. The expected lead of a row is the mean over its cells.
    """

    @abstractmethod
    def cells(self, shown):
        """Return the cells of new rows.

        Parameters
        ----------
        shown : Shown

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
            The expected lead of these rows. No row counts in its own expectation.
        """


class AnswerState(State):
    """Bins of the answer, as one number.

    Parameters
    ----------
    key : ndarray of shape (n_rows,)
        As in `Shown`.
    """

    def __init__(self, key):
        self.borders = borders_of(key)
        self._bin_of_row = np.searchsorted(self.borders, key, side="right")

    @property
    def _n_bins(self):
        return len(self.borders) + 1

    def cells(self, shown):
        bins = np.searchsorted(self.borders, shown.key, side="right")
        return _one_cell_each(bins, self._n_bins)

    def means(self, lead, weight):
        bins = self._bin_of_row
        weight = weight.astype(np.float32)[:, np.newaxis]
        weighted = weight * lead
        members = _one_cell_each(bins, self._n_bins)
        total_weight = np.asarray(members.T @ weight)  # (n_bins, 1)
        total = np.asarray(members.T @ weighted)
        bin_means = total / np.maximum(total_weight, _LEAST_WEIGHT)
        smooth_means = _smooth(bin_means)
        # The mean of the other rows of a row's own bin, in place of that of all rows.
        other_weight = total_weight[bins] - weight
        other_means = (total[bins] - weighted) / np.maximum(other_weight, _LEAST_WEIGHT)
        other_means = np.where(other_weight > _LEAST_WEIGHT, other_means, 0.0)
        own_share = _own_share_in_smoothing(self._n_bins)[bins, np.newaxis]
        expected = smooth_means[bins] + own_share * (other_means - bin_means[bins])
        return smooth_means, expected


class LeafState(State):
    """Leaves of a small forest on the values that were bought, and the answer.

    The trees are grown on what the larger sets gain, so that rows of a leaf are alike
    in what they should buy next.

    Parameters
    ----------
    shown : Shown
    gains : ndarray of shape (n_rows, n_larger_sets)
        What answering with each larger set is worth, less answering with this one.
    weight : ndarray of shape (n_rows,)
    n_trees, most_leaves : int
    """

    def __init__(
        self, shown, gains, weight, *, n_trees=_N_TREES, most_leaves=_MOST_LEAVES
    ):
        forest = RandomForestRegressor(
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
        forest.fit(_columns_of(shown), target, sample_weight=sample_weight)
        self.trees = joined_trees([tree.tree_ for tree in forest.estimators_])
        self.n_leaves = int(np.count_nonzero(self.trees.left == LEAF))
        leaves = self._leaves(shown)
        # Numbers of leaves are small, and there are many of them in a pickle.
        self._leaves_of_rows = leaves.astype(np.int16)

    def cells(self, shown):
        return self._cells_of(self._leaves(shown))

    def _leaves(self, shown):
        """Return the leaf of each row in each tree, int64 (n_rows, n_trees)."""
        # Kernels are compiled where they are called first.
        from skroute.gating._leaf_kernels import leaves_of_rows

        columns = _columns_of(shown)
        leaves = np.empty((len(columns), len(self.trees.roots)), dtype=np.int64)
        # The kernel writes into `leaves`.
        leaves_of_rows(self.trees, columns, leaves)
        return leaves

    def _cells_of(self, leaves):
        """Return leaves as `cells`."""
        n_rows, n_trees = leaves.shape
        shares = np.full(leaves.size, 1 / n_trees, dtype=np.float32)
        starts = np.arange(0, leaves.size + 1, n_trees)
        shape = (n_rows, self.n_leaves)
        columns = leaves.ravel().astype(np.int64)
        return sparse.csr_matrix((shares, columns, starts), shape=shape)

    def means(self, lead, weight):
        cells = self._cells_of(self._leaves_of_rows)
        weight = weight.astype(np.float32)
        members = cells.copy()
        members.data = np.ones_like(members.data)
        total_weight = members.T @ weight  # (n_cells,)
        weighted = weight[:, np.newaxis] * lead
        total = np.asarray(members.T @ weighted)
        cell_means = total / np.maximum(total_weight, _LEAST_WEIGHT)[:, np.newaxis]
        # For each pair of a row and its leaf, the share of the leaf over the weight of
        # its other rows. A row that is alone in a leaf expects nothing from it.
        pairs = cells.tocoo()
        other_weight = total_weight[pairs.col] - weight[pairs.row]
        inverse = 1 / np.maximum(other_weight, _LEAST_WEIGHT)
        inverse = np.where(other_weight > _LEAST_WEIGHT, inverse, 0.0)
        by_others = sparse.csr_matrix(
            ((pairs.data * inverse).astype(np.float32), (pairs.row, pairs.col)),
            shape=cells.shape,
        )
        own_share = np.asarray(by_others.sum(axis=1))  # (n_rows, 1)
        expected = np.asarray(by_others @ total) - own_share * weighted
        return cell_means, expected


def _columns_of(shown):
    """Return values and answers as float32 columns, which the trees read.

    Numbers beyond the range of float32 are at its ends. The probability of the first
    class is left out, since the others say it.
    """
    columns = np.column_stack([shown.values, shown.proba[:, 1:]])
    largest = np.finfo(np.float32).max
    return np.ascontiguousarray(np.clip(columns, -largest, largest), dtype=np.float32)


def joined_trees(trees):
    """Return trees of scikit-learn as `LeafTrees`.

    Their splits have one column and a threshold each. Values of the nodes are left out.
    """
    from skroute.gating._leaf_kernels import LeafTrees

    n_nodes = np.array([tree.node_count for tree in trees])
    first_node = np.cumsum(n_nodes) - n_nodes
    left = []
    right = []
    for start, tree in zip(first_node, trees):
        is_leaf = tree.children_left == LEAF
        left.append(np.where(is_leaf, LEAF, tree.children_left + start))
        right.append(np.where(is_leaf, LEAF, tree.children_right + start))
    left = np.concatenate(left)
    return LeafTrees(
        roots=first_node.astype(np.int64),
        feature=np.concatenate([tree.feature for tree in trees]).astype(np.int64),
        threshold=np.concatenate([tree.threshold for tree in trees]),
        left=left.astype(np.int64),
        right=np.concatenate(right).astype(np.int64),
        missing_left=np.concatenate([tree.missing_go_to_left for tree in trees]).astype(
            bool
        ),
        leaf=np.cumsum(left == LEAF) - 1,
    )


def _one_cell_each(cell_of_row, n_cells):
    """Return a membership matrix in which each row is in one cell."""
    n_rows = len(cell_of_row)
    ones = np.ones(n_rows, dtype=np.float32)
    starts = np.arange(n_rows + 1)
    return sparse.csr_matrix((ones, cell_of_row, starts), shape=(n_rows, n_cells))


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


def _own_share_in_smoothing(n_bins):
    """Return the weight of each bin's own mean in its smoothed mean, (n_bins,)."""
    if n_bins < 3:
        return np.ones(n_bins)
    before, here, after = _SMOOTHING
    own_share = np.full(n_bins, here)
    # The first and the last bin stand for the neighbour that they do not have.
    own_share[0] += before
    own_share[-1] += after
    return own_share


# The induction ------------------------------------------------------------------------


class Moves(NamedTuple):
    """Sets that rows of one set may buy next, with a number of purchases left.

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
        if not len(self.larger):
            return np.full((len(self.leads), self.leads.shape[2]), STOP)
        best = self.leads.argmax(axis=1)
        # Faster than the maximum along this axis.
        best_lead = np.take_along_axis(self.leads, best[:, np.newaxis], axis=1)[:, 0]
        is_worth = best_lead > _LEAST_LEAD
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
    nexts : list of ndarray of shape (n_prices, n_sets, n_rows), dtype=int16
        For each dict, the set that they buy next. STOP: none.
    """

    prices: np.ndarray
    states: list
    moves: list
    ends: list
    nexts: list

    def moves_left(self, n_left):
        """Return the moves for a number of purchases that are left, from 1 on.

        With `n_left` of None, their number is not limited. Then `moves` has one entry.
        """
        return self.moves[-1 if n_left is None else n_left - 1]

    def ends_left(self, n_left):
        """Return the sets that held-out rows end at, (n_prices, n_sets, n_rows).

        `n_left` is as in `moves_left`, or 0: then each row stays at its first set.
        """
        if n_left == 0:
            ends = np.empty_like(self.ends[-1])
            ends[:] = np.arange(ends.shape[1])[:, np.newaxis]
            return ends
        return self.ends[-1 if n_left is None else n_left - 1]

    def at_prices(self, positions):
        """Return the policies at some prices, for new rows only.

        The result is small: `ends` and `nexts`, which have an entry for each held-out
        row, are empty lists. `positions` are those of the prices.
        """
        all_moves = []
        for moves_of_sets in self.moves:
            at_prices = {}
            for start, moves in moves_of_sets.items():
                at_prices[start] = moves._replace(leads=moves.leads[:, :, positions])
            all_moves.append(at_prices)
        prices = self.prices[positions]
        return Policies(prices, self.states, all_moves, ends=[], nexts=[])

    def shares(self, value, costs, weight, *, n_first):
        """Return the largest share of held-out rows that comes to each set.

        Parameters
        ----------
        value : ndarray of shape (n_sets, n_rows)
            What answering each row with each set is worth.
        costs : ndarray of shape (n_sets,)
        weight : ndarray of shape (n_rows,)
        n_first : int
            Number of first sets from which rows are followed, the best at each price.

        Returns
        -------
        ndarray of shape (n_sets,)
        """
        ends = self.ends[-1]
        nexts = self.nexts[-1]
        n_sets = len(value)
        rows = np.arange(value.shape[1])
        total_weight = weight.sum()
        share = np.zeros(n_sets)
        # At the last price nothing is bought.
        for index, price in enumerate(self.prices[:-1]):
            worth = value[ends[index], rows] - price * costs[ends[index]]
            mean_worth = np.average(worth, axis=1, weights=weight)
            for start in np.argsort(-mean_worth, kind="stable")[:n_first]:
                position = np.full(len(rows), start)
                is_going = np.ones(len(rows), dtype=bool)
                while is_going.any():
                    # Rows that have stopped count where they are.
                    here = np.bincount(position, weight, minlength=n_sets)
                    share = np.maximum(share, here / total_weight)
                    target = nexts[index, position, rows]
                    is_going = target != STOP
                    position = np.where(is_going, target, position)
        return share

    def expect(self, position, shown, n_left):
        """Return what rows of a set may expect of larger sets (`Expectation`).

        Parameters
        ----------
        position : int
            The set.
        shown : Shown
        n_left : int or None
            Purchases that are left, at least 1; None is any number.
        """
        moves = self.moves_left(n_left).get(position)
        if moves is None:
            nothing = np.empty(0, dtype=np.int64)
            leads = np.empty((len(shown.key), 0, len(self.prices)))
            return Expectation(nothing, leads)
        table = moves.leads
        cells = self.states[position].cells(shown)
        leads = cells @ table.reshape(len(table), -1)
        shape = (len(shown.key), *table.shape[1:])
        return Expectation(moves.larger, leads.reshape(shape))


def price_grid(value, costs, price_range):
    """Return prices from none to one at which nothing is bought.

    Parameters
    ----------
    value : ndarray of shape (n_sets,)
        Mean value of each set.
    costs : ndarray of shape (n_sets,)
    price_range : PriceRange

    Returns
    -------
    ndarray of shape (n_prices,)
        Rising from 0.
    """
    # 1e-9 keeps the grid above 0 if all sets have the same value.
    spread = max(float(np.ptp(value)), 1e-9)
    positive = costs[costs > 0]
    # If all sets are free, any unit will do.
    mean_cost = float(positive.mean()) if len(positive) else 1.0
    # 1e-300 keeps the quotient finite.
    unit = spread / max(mean_cost, 1e-300)
    lowest = price_range.lowest
    highest = price_range.highest
    # The 2 other prices are 0 and the one at which nothing is bought.
    grid = unit * np.geomspace(lowest, highest, price_range.n_prices - 2)
    return np.concatenate([[0.0], grid, [_NO_PURCHASE * unit]])


def learn_policies(value, states, sets, costs, *, prices, allowed, n_rounds, weight):
    """Learn the purchases after each set and at each price, by backward induction.

    The sets are taken from the largest one to the smallest. At a set, it is known what
    the larger sets are worth to each held-out row. The mean of this over rows that have
    shown something alike is what a new row may expect.

    Parameters
    ----------
    value : ndarray of shape (n_sets, n_rows)
        What answering each row with each set is worth.
    states : list of State or None
        One for each set, made of these rows. None where rows always stop.
    sets : ndarray of bool of shape (n_sets, n_groups)
        Sorted by cost.
    costs : ndarray of shape (n_sets,)
    prices : ndarray of shape (n_prices,)
        From `price_grid`.
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
    # Single precision takes half of the memory.
    value = value.astype(np.float32)
    prices32 = prices.astype(np.float32)
    n_prices = len(prices)
    # Value of the set that each row ends at, less the price of its purchases, for each
    # first set. At first no row buys. (n_prices, n_sets, n_rows)
    worth = np.repeat(value[np.newaxis], n_prices, axis=0)
    stay = np.arange(n_sets, dtype=np.int16)[:, np.newaxis]
    # The set that each row ends at, of the same shape.
    ends = np.broadcast_to(stay, (n_prices, n_sets, n_rows)).copy()
    price_index = np.arange(n_prices)[:, np.newaxis]
    row = np.arange(n_rows)
    all_moves = []
    all_ends = []
    all_nexts = []
    for _ in range(1 if n_rounds is None else n_rounds):
        # `worth_behind` is what a larger set is worth after it was bought. Without a
        # limit it is `worth` itself, which this loop fills from the largest set on.
        # With a limit it is `worth` with one purchase less: that of the loop before.
        worth_behind = worth if n_rounds is None else worth.copy()
        ends_behind = ends if n_rounds is None else ends.copy()
        moves_of_sets = {}
        nexts = np.full(ends.shape, STOP, dtype=np.int16)
        for position in range(n_sets - 1, -1, -1):
            larger = _larger_sets(position, sets, costs, allowed)
            if not len(larger) or states[position] is None:
                # Rows stop at this set.
                continue
            extra = (costs[larger] - costs[position]).astype(np.float32)
            # (n_prices, n_larger, n_rows)
            lead = worth_behind[:, larger] - value[position]
            lead -= prices32[:, np.newaxis, np.newaxis] * extra[:, np.newaxis]
            moves_of_sets[position], go = _learn_moves(
                lead, larger, states[position], weight
            )
            nexts[:, position] = go
            is_going = go != STOP
            # Rows that stop have their own set as target, which is not read.
            target = np.where(is_going, go, position)
            paid = prices32[:, np.newaxis] * (costs[target] - costs[position])
            going_on = worth_behind[price_index, target, row] - paid
            worth[:, position] = np.where(is_going, going_on, value[position])
            ends[:, position] = np.where(
                is_going, ends_behind[price_index, target, row], position
            )
        all_moves.append(moves_of_sets)
        all_ends.append(ends.copy())
        all_nexts.append(nexts)
    return Policies(prices, states, all_moves, all_ends, all_nexts)


def _learn_moves(lead, larger, state, weight):
    """Return the moves of one set (`Moves`), and what each held-out row buys by them.

    Parameters
    ----------
    lead : ndarray of shape (n_prices, n_larger, n_rows)
        What buying each larger set brings each row over stopping.
    larger : ndarray of shape (n_larger,), dtype=int64
        Positions of these sets.
    state : State
        That of the smaller set.
    weight : ndarray of shape (n_rows,)

    Returns
    -------
    moves : Moves
    go : ndarray of shape (n_prices, n_rows)
        The set that each row buys, by the leads of the other rows. STOP: none.
    """
    n_prices, n_larger, n_rows = lead.shape
    shape = (n_larger, n_prices)
    lead_of_rows = lead.transpose(2, 1, 0).reshape(n_rows, -1)
    cell_means, expected = state.means(lead_of_rows, weight)
    leads = cell_means.reshape(-1, *shape).astype(np.float32)
    expectation = Expectation(larger, expected.reshape(n_rows, *shape))
    return Moves(larger, leads), expectation.go.T


def _larger_sets(position, sets, costs, allowed):
    """Return the allowed sets that contain a set and cost more, as positions."""
    contains = (sets[position] <= sets).all(axis=1)
    return np.flatnonzero(allowed & (costs > costs[position]) & contains)


class Spending(NamedTuple):
    """The two prices at which rows buy, so that they spend a mean budget.

    Attributes
    ----------
    price, lower : int
        Positions of the price and of the lower price. The same if the budget pays for
        what all rows buy at any price.
    share : float
        Share of the rows that buy at the lower price. The others buy at the price.
    """

    price: int
    lower: int
    share: float


def spend(cost, budget):
    """Return the prices at which rows buy, so that their mean cost is a budget.

    The result is a `Spending`.

    Parameters
    ----------
    cost : ndarray of shape (n_prices,)
        Mean cost at each price. That at the last price is within the budget.
    budget : float
    """
    within = cost <= budget * (1 + ROUNDING)
    # The price that spends most within the budget.
    price = int(np.argmax(np.where(within, cost, -np.inf)))
    if within.all():
        # No row needs to buy at a lower price.
        return Spending(price, price, 0.0)
    # The price that exceeds the budget least.
    lower = int(np.argmin(np.where(within, np.inf, cost)))
    share = float((budget - cost[price]) / (cost[lower] - cost[price]))
    return Spending(price, lower, share)
