"""When to stop buying and what to buy next: backward induction over sets of features.

The *lead* of a larger set over stopping is the gain in quality that it brings, less the
price of the additional cost. It counts the best course from the larger set on: to
answer there, or to buy still more. The expected lead of a row is a mean over rows that
have shown similar values at the same set. A `State` groups these rows.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.ensemble import RandomForestRegressor

from skroute.assignment._induction import STOP, best_move, induce_backward, take_moves
from skroute.utils._tolerances import ROUNDING, SCORE_TIE

# In place of the left child of a leaf, in scikit-learn and in the kernel.
LEAF = -1
# In place of the leaf of a row in a tree that was grown on the row.
_NO_LEAF = -1
# A dual price, in the unit of `price_grid`, at which no purchase is worth it.
_NO_PURCHASE = 1e12
# Largest number of bins of an `AnswerState`, which groups rows by their answers.
_MOST_BINS = 24
# Least number of rows of a bin of an `AnswerState`.
_ROWS_OF_A_BIN = 25
# Weights of the bin before, of the bin itself and of the bin after in a smoothed mean.
_SMOOTHING = (0.25, 0.5, 0.25)
# A smaller sum of weights is a rounding error: no row is in the sum. Weights are in
# units of one row.
_LEAST_WEIGHT = 1e-6
# Number of trees in the forest of a `LeafState`.
_N_TREES = 20
# Largest number of leaves of a tree of a `LeafState`. With more leaves, rows exceed
# the budget, since the few other rows of its leaf decide for a row.
_MOST_LEAVES = 64
# Least number of rows of a leaf of a `LeafState`.
_ROWS_OF_A_LEAF = 15


class PriceRange(NamedTuple):
    """Number and range of the dual prices of cost for which purchases are learned.

    The unit of the prices is that of `price_grid`.

    Attributes
    ----------
    n_prices : int
        Number of all prices. The first is 0. At the last one nothing is bought.
    lowest, highest : float
        Ends of the other prices, which are a geometric series.
    """

    n_prices: int
    lowest: float
    highest: float


# Dual prices of the policies that group rows by answers (`AnswerState`). Nearly all
# rows buy at the lowest price, and no row buys at the highest.
ANSWER_PRICES = PriceRange(40, 1e-3, 1e2)
# Dual prices of the policies that group rows by leaves (`LeafState`). They are fewer,
# since learning takes fifty times as long for each price.
LEAF_PRICES = PriceRange(20, 2e-3, 3.0)

# States -------------------------------------------------------------------------------


class Shown(NamedTuple):
    """Bought values of the features of one set, and the answers of the set's model.

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
    """Division of the rows that have bought one set into cells of similar rows.

    The rows of a cell have similar bought values. A row belongs to one or more cells,
    with a share in each. The shares of a row sum to 1. The expected lead of a row is
    the mean lead of its cells, weighted by these shares.
    """

    @abstractmethod
    def cells(self, shown):
        """Return the share of each new row in each cell, by its bought values.

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
        """Return mean leads (gains over stopping) of cells, and expected leads of rows.

        The rows are those that the state was made of.

        Parameters
        ----------
        lead : ndarray of shape (n_rows, n_leads)
            Leads of these rows. Each pair of a larger set and a price is a column.
        weight : ndarray of shape (n_rows,)
            Weights of these rows.

        Returns
        -------
        cell_means : ndarray of shape (n_cells, n_leads)
            Mean leads, from which the leads of new rows are expected.
        expected : ndarray of shape (n_rows, n_leads)
            The expected leads of these rows. The lead of a row does not count in its
            own expectation.
        """


class AnswerState(State):
    """Division of rows into bins of the answer, which is one number for each row.

    Parameters
    ----------
    key : ndarray of shape (n_rows,)
        The answers, as in `Shown`.

    Attributes
    ----------
    borders : ndarray of shape (n_bins - 1,)
        Rising borders between the bins.
    """

    def __init__(self, key):
        self.borders = borders_of(key)
        self._bin_of_row = np.searchsorted(self.borders, key, side="right")

    @property
    def _n_bins(self):
        """Number of bins: one more than there are borders."""
        return len(self.borders) + 1

    def cells(self, shown):
        """Return a matrix that is 1 at the bin of each row, as `State.cells`."""
        bins = np.searchsorted(self.borders, shown.key, side="right")
        return _one_cell_each(bins, self._n_bins)

    def means(self, lead, weight):
        """Return mean leads (gains over stopping) of bins, and expected leads of rows.

        This is `State.means`. `lead` has shape (n_rows, n_leads), `weight` has shape
        (n_rows,).
        """
        bins = self._bin_of_row
        weight = weight.astype(np.float32)[:, np.newaxis]  # (n_rows, 1)
        weighted_lead = weight * lead
        members = _one_cell_each(bins, self._n_bins)
        # Sums over the rows of each bin.
        total_weight = np.asarray(members.T @ weight)  # (n_bins, 1)
        total_lead = np.asarray(members.T @ weighted_lead)  # (n_bins, n_leads)
        bin_means = total_lead / np.maximum(total_weight, _LEAST_WEIGHT)
        smooth_means = _smooth(bin_means)
        # The mean of the other rows in a row's bin. (n_rows, n_leads)
        # 0: the row is alone in its bin.
        other_weight = total_weight[bins] - weight
        other_lead = total_lead[bins] - weighted_lead
        other_means = other_lead / np.maximum(other_weight, _LEAST_WEIGHT)
        other_means = np.where(other_weight > _LEAST_WEIGHT, other_means, 0.0)
        # In the smoothed mean, the mean of the other rows replaces the mean of the
        # row's bin.
        own_share = _own_share_in_smoothing(self._n_bins)[bins, np.newaxis]
        expected = smooth_means[bins] + own_share * (other_means - bin_means[bins])
        return smooth_means, expected


class LeafState(State):
    """Division of rows into leaves of a small forest on bought values and the answer.

    The trees predict the gains of the larger sets, so that the rows of a leaf should
    buy the same set next.

    Parameters
    ----------
    shown : Shown
        The bought values and the answers.
    gains : ndarray of shape (n_rows, n_larger_sets)
        Value of answering with each larger set, less the value of answering with this
        set.
    weight : ndarray of shape (n_rows,)
        Weights of the rows.
    n_trees : int
        Number of trees.
    most_leaves : int
        Largest number of leaves of a tree.

    Attributes
    ----------
    trees : LeafTrees
    n_leaves : int
        Number of the leaves of all trees.
    """

    def __init__(
        self, shown, gains, weight, *, n_trees=_N_TREES, most_leaves=_MOST_LEAVES
    ):
        """Grow the forest on the gains, and find the leaves of the rows."""
        forest = RandomForestRegressor(
            n_trees,
            max_leaf_nodes=most_leaves,
            min_samples_leaf=_ROWS_OF_A_LEAF,
            # Each tree is grown on half of the rows.
            max_samples=0.5,
            # Each split may use any column, so that no tree misses a column that shows
            # which other columns matter.
            max_features=1.0,
            random_state=0,
        )
        # scikit-learn warns if a single target is a table.
        target = gains[:, 0] if gains.shape[1] == 1 else gains
        # None: equal weights have no effect.
        sample_weight = None if np.ptp(weight) == 0 else weight
        forest.fit(_columns_of(shown), target, sample_weight=sample_weight)
        self.trees = joined_trees([tree.tree_ for tree in forest.estimators_])
        self.n_leaves = int(np.count_nonzero(self.trees.left == LEAF))
        # int16 makes pickles small. The numbers fit: there are 20 * 64 leaves at most.
        self._leaves_of_rows = self._leaves(shown).astype(np.int16)
        # True for the rows that a tree was grown on. (n_rows, n_trees)
        self._is_grown_on = np.zeros(self._leaves_of_rows.shape, dtype=bool)
        for tree, rows in enumerate(forest.estimators_samples_):
            self._is_grown_on[rows, tree] = True

    def cells(self, shown):
        """Return the share of each row in each leaf, as `State.cells`."""
        return self._cells_of(self._leaves(shown))

    def honest_cells(self):
        """Return cells of the state's own rows, from trees not grown on the row.

        The result is as in `cells`. The splits of the trees that were grown on a row
        follow the noise of the row.
        """
        leaves = np.where(self._is_grown_on, _NO_LEAF, self._leaves_of_rows)
        return self._cells_of(leaves)

    def _leaves(self, shown):
        """Return the leaf of each row of a `Shown`, int64 (n_rows, n_trees)."""
        # Imported here, so that numba is loaded only where a kernel is called.
        from skroute.gating._leaf_kernels import leaves_of_rows

        columns = _columns_of(shown)
        leaves = np.empty((len(columns), len(self.trees.roots)), dtype=np.int64)
        # The kernel writes into `leaves`.
        leaves_of_rows(self.trees, columns, leaves)
        return leaves

    def _cells_of(self, leaves):
        """Return the share of each row in each leaf: the same in all of its leaves.

        Parameters
        ----------
        leaves : ndarray of shape (n_rows, n_trees), dtype=int
            Number of the leaf of each row in each tree, or `_NO_LEAF`.

        Returns
        -------
        csr matrix of shape (n_rows, n_leaves)
        """
        is_leaf = leaves != _NO_LEAF
        n_leaves_of_row = is_leaf.sum(axis=1)
        # The divisor 1 avoids a division by 0. It has no effect: a row without a leaf
        # has no entry in the matrix.
        share_of_row = (1 / np.maximum(n_leaves_of_row, 1)).astype(np.float32)
        shares = np.repeat(share_of_row, n_leaves_of_row)
        columns = leaves[is_leaf].astype(np.int64)  # row by row
        # Position of the first entry of each row, and the number of all entries.
        starts = np.concatenate([[0], np.cumsum(n_leaves_of_row)])
        shape = (len(leaves), self.n_leaves)
        return sparse.csr_matrix((shares, columns, starts), shape=shape)

    def means(self, lead, weight):
        """Return mean leads (gains over stopping) of leaves, expected leads of rows.

        This is `State.means`. `lead` has shape (n_rows, n_leads), `weight` has shape
        (n_rows,). The means of a leaf are over all of its rows. The expected lead of a
        row comes only from trees that were not grown on it.
        """
        weight = weight.astype(np.float32)
        # 1 where a row is in a leaf.
        members = self._cells_of(self._leaves_of_rows)
        members.data = np.ones_like(members.data)
        # Sums over the rows of each leaf.
        total_weight = members.T @ weight  # (n_cells,)
        weighted_lead = weight[:, np.newaxis] * lead
        total_lead = np.asarray(members.T @ weighted_lead)  # (n_cells, n_leads)
        divisor = np.maximum(total_weight, _LEAST_WEIGHT)
        cell_means = total_lead / divisor[:, np.newaxis]
        # Pairs of a row and its leaf in a tree that was not grown on it: the row, the
        # leaf and the share of the row in the leaf.
        pairs = self.honest_cells().tocoo()
        # In the leaf, the mean of the other rows is (total_lead - weighted_lead) /
        # other_weight. It counts as 0 if the row is alone there.
        other_weight = total_weight[pairs.col] - weight[pairs.row]
        inverse_weight = 1 / np.maximum(other_weight, _LEAST_WEIGHT)
        inverse_weight = np.where(other_weight > _LEAST_WEIGHT, inverse_weight, 0.0)
        # Share of a row in each leaf, divided by `other_weight`. (n_rows, n_cells)
        factor_of_pair = (pairs.data * inverse_weight).astype(np.float32)
        factors = sparse.csr_matrix(
            (factor_of_pair, (pairs.row, pairs.col)), shape=members.shape
        )
        # The expected lead of a row is the sum over its leaves of factor * (total_lead
        # - weighted_lead).
        summed_factors = np.asarray(factors.sum(axis=1))  # (n_rows, 1)
        expected = np.asarray(factors @ total_lead) - summed_factors * weighted_lead
        return cell_means, expected


def _columns_of(shown):
    """Return the values and answers of `Shown` as float32 columns for the trees.

    Numbers beyond the range of float32 become the nearest end of the range. The
    probability of the first class is left out: it is 1 less the other probabilities.
    """
    columns = np.column_stack([shown.values, shown.proba[:, 1:]])
    largest = np.finfo(np.float32).max
    return np.ascontiguousarray(np.clip(columns, -largest, largest), dtype=np.float32)


def joined_trees(trees):
    """Return scikit-learn's trees (``tree_`` of the estimators) as `LeafTrees`.

    Each split compares one column with a threshold. The predictions of the nodes are
    left out.
    """
    from skroute.gating._leaf_kernels import LeafTrees

    n_nodes = np.array([tree.node_count for tree in trees])
    # Number of the first node of each tree, if all nodes are numbered in one series.
    first_node = np.cumsum(n_nodes) - n_nodes
    left = []
    right = []
    # scikit-learn numbers the nodes of each tree from 0 on, so that `start` is added.
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
        # Leaves are numbered from 0 on. The numbers of other nodes have no meaning.
        leaf=np.cumsum(left == LEAF) - 1,
    )


def _one_cell_each(cell_of_row, n_cells):
    """Return the csr matrix (n_rows, n_cells) that is 1 at the one cell of each row.

    `cell_of_row` are the cells, integers of shape (n_rows,).
    """
    n_rows = len(cell_of_row)
    ones = np.ones(n_rows, dtype=np.float32)
    # Position of the first entry of each row, and the number of all entries.
    starts = np.arange(n_rows + 1)
    return sparse.csr_matrix((ones, cell_of_row, starts), shape=(n_rows, n_cells))


def borders_of(key):
    """Return the rising borders of bins that have about the same number of rows.

    A border is half-way between neighbouring numbers that differ by more than rounding.
    There may be fewer borders than wanted, or none.

    Parameters
    ----------
    key : ndarray of shape (n_rows,)
        The number by which rows are binned.
    """
    n_bins = int(np.clip(len(key) // _ROWS_OF_A_BIN, 1, _MOST_BINS))
    rising = np.sort(key)
    # Wanted position in `rising` of the first row of each bin but the first bin.
    first_rows = np.linspace(0, len(key), n_bins, endpoint=False).astype(int)[1:]
    # Positions after which numbers rise by more than rounding.
    largest = max(1.0, float(np.abs(rising).max()))
    rises = np.flatnonzero(np.diff(rising) > SCORE_TIE * largest)
    if not len(rises) or not len(first_rows):
        # All numbers are equal, or only one bin is wanted: there is no border.
        return np.empty(0)
    # For each wanted border, the position in `rises` of the next rise. The last rise if
    # there is no next one.
    next_rise = np.searchsorted(rises, first_rows - 1)
    next_rise = np.minimum(next_rise, len(rises) - 1)
    last_rows = np.unique(rises[next_rise])  # the last row before each border
    return 0.5 * (rising[last_rows] + rising[last_rows + 1])


def _smooth(bin_means):
    """Return the means of bins, each averaged with the means of its neighbours.

    `bin_means` and the result have shape (n_bins, n_leads). Fewer than 3 bins are not
    smoothed.
    """
    if len(bin_means) < 3:
        return bin_means
    # The first and the last bin stand for the neighbour that they do not have.
    padded = np.pad(bin_means, ((1, 1), (0, 0)), mode="edge")
    before, here, after = _SMOOTHING
    return before * padded[:-2] + here * padded[1:-1] + after * padded[2:]


def _own_share_in_smoothing(n_bins):
    """Return the weight of each bin's own mean in its smoothed mean, (n_bins,)."""
    if n_bins < 3:
        # `_smooth` does not change these means.
        return np.ones(n_bins)
    before, here, after = _SMOOTHING
    own_share = np.full(n_bins, here)
    # The first and the last bin stand for the neighbour that they do not have.
    own_share[0] += before
    own_share[-1] += after
    return own_share


# The induction ------------------------------------------------------------------------


class Moves(NamedTuple):
    """Larger sets that rows with one set may buy next, and their leads over stopping.

    Attributes
    ----------
    larger : ndarray of shape (n_larger,), dtype=int64
        Positions of the sets that may be bought.
    leads : ndarray of shape (n_cells, n_larger, n_prices)
        Mean lead over stopping of buying each of these sets, by cell of the state.
    """

    larger: np.ndarray
    leads: np.ndarray


class Expectation(NamedTuple):
    """Expected leads over stopping: gain in quality less dual price times added cost.

    Attributes
    ----------
    larger : ndarray of shape (n_larger,), dtype=int64
        Positions of the sets that may be bought.
    leads : ndarray of shape (n_rows, n_larger, n_prices)
        Expected lead over stopping of buying each of these sets.
    """

    larger: np.ndarray
    leads: np.ndarray

    @property
    def go(self):
        """The set to buy next at each dual price, or STOP: (n_rows, n_prices)."""
        if not len(self.larger):
            n_rows, _, n_prices = self.leads.shape
            return np.full((n_rows, n_prices), STOP)
        best = best_move(self.leads, value_of_stopping=0.0).position
        return np.where(best == STOP, STOP, self.larger[best])


class Policies(NamedTuple):
    """Learned purchases of rows that have each set, at each of several dual prices.

    Attributes
    ----------
    prices : ndarray of shape (n_prices,)
        Quality that a unit of cost must bring, rising. At the last one no row buys.
    states : list of State or None
        One for each set. None where nothing larger can be bought.
    moves : list of dict from int to Moves
        Moves by the position of the set that rows have. In the first dict one purchase
        is left, in the second two, and so on. If the purchases are not limited, there
        is one dict.
    ends : list of ndarray of shape (n_prices, n_sets, n_rows), dtype=int16
        For each dict of `moves`, the set that each held-out row ends at, from each
        first set.
    nexts : list of ndarray of shape (n_prices, n_sets, n_rows), dtype=int16
        For each dict of `moves`, the set that each held-out row buys next, from each
        set. STOP: none.
    """

    prices: np.ndarray
    states: list
    moves: list
    ends: list
    nexts: list

    def moves_left(self, n_left):
        """Return the moves of each set for rows that may buy `n_left` more times.

        `n_left` is at least 1. With `n_left` of None, purchases are not limited, and
        `moves` has one entry.
        """
        return self.moves[-1 if n_left is None else n_left - 1]

    def ends_left(self, n_left):
        """Return the set that each held-out row ends at, by dual price and first set.

        The result has shape (n_prices, n_sets, n_rows). `n_left` is as in `moves_left`,
        or 0: then each row stays at its first set.
        """
        if n_left == 0:
            ends = np.empty_like(self.ends[-1])
            n_prices, n_sets, n_rows = ends.shape
            ends[:] = np.arange(n_sets)[:, np.newaxis]
            return ends
        return self.ends[-1 if n_left is None else n_left - 1]

    def at_prices(self, positions):
        """Return the policies at some dual prices, given by their `positions`.

        The result is for new rows only. It is small, since `ends` and `nexts`, which
        are about held-out rows, are empty lists.
        """
        all_moves = []
        for moves_of_sets in self.moves:
            selected = {}
            for set_position, moves in moves_of_sets.items():
                leads = moves.leads[:, :, positions]
                selected[set_position] = moves._replace(leads=leads)
            all_moves.append(selected)
        prices = self.prices[positions]
        return Policies(prices, self.states, all_moves, ends=[], nexts=[])

    def shares(self, value, costs, weight, *, n_first):
        """Return for each set the largest share of held-out rows that ever have it.

        The share is the largest over prices, first sets and rounds.

        Parameters
        ----------
        value : ndarray of shape (n_sets, n_rows)
            Value of answering each row with each set.
        costs : ndarray of shape (n_sets,)
        weight : ndarray of shape (n_rows,)
        n_first : int
            Number of first sets, the best at each price, from which rows are followed.

        Returns
        -------
        ndarray of shape (n_sets,)
        """
        # The last entries: those with the most purchases left.
        ends = self.ends[-1]
        nexts = self.nexts[-1]
        n_sets, n_rows = value.shape
        rows = np.arange(n_rows)
        total_weight = weight.sum()
        share = np.zeros(n_sets)
        # At the last price nothing is bought.
        for index, price in enumerate(self.prices[:-1]):
            # Value of the set that a row ends at, less price times cost, from each
            # first set. (n_sets, n_rows)
            worth = value[ends[index], rows] - price * costs[ends[index]]
            mean_worth = np.average(worth, axis=1, weights=weight)
            for start in np.argsort(-mean_worth, kind="stable")[:n_first]:
                # The set that each row has, round by round.
                set_of_row = np.full(n_rows, start)
                is_going = np.ones(n_rows, dtype=bool)
                while is_going.any():
                    # Rows that have stopped count at the set that they have.
                    weight_of_set = np.bincount(set_of_row, weight, minlength=n_sets)
                    share = np.maximum(share, weight_of_set / total_weight)
                    next_set = nexts[index, set_of_row, rows]
                    is_going = next_set != STOP
                    set_of_row = np.where(is_going, next_set, set_of_row)
        return share

    def expect(self, position, shown, n_left):
        """Return the expected leads over stopping of larger sets, for rows of one set.

        Parameters
        ----------
        position : int
            The set.
        shown : Shown
            Bought values and answers of the rows.
        n_left : int or None
            Purchases that are left, at least 1; None is any number.

        Returns
        -------
        Expectation
        """
        n_rows = len(shown.key)
        moves = self.moves_left(n_left).get(position)
        if moves is None:
            # Nothing larger can be bought.
            no_sets = np.empty(0, dtype=np.int64)
            no_leads = np.empty((n_rows, 0, len(self.prices)))
            return Expectation(no_sets, no_leads)
        n_cells, n_larger, n_prices = moves.leads.shape
        cells = self.states[position].cells(shown)
        # A sparse matrix multiplies tables only, so that each pair of a larger set and
        # a price becomes a column.
        leads = cells @ moves.leads.reshape(n_cells, -1)
        return Expectation(moves.larger, leads.reshape(n_rows, n_larger, n_prices))


def price_grid(value, costs, price_range):
    """Return rising dual prices, from 0 to a price at which nothing is bought.

    Their unit is the gain in mean value from the worst set to the best one, divided by
    the mean cost of the sets that are not free.

    Parameters
    ----------
    value : ndarray of shape (n_sets,)
        Mean value of each set.
    costs : ndarray of shape (n_sets,)
    price_range : PriceRange
        Number of prices, and the ends of their range.

    Returns
    -------
    ndarray of shape (n_prices,)
        Quality per unit of cost.
    """
    # 1e-9 keeps the grid above 0 if all sets have the same value.
    spread = max(float(np.ptp(value)), 1e-9)
    positive = costs[costs > 0]
    # If all sets are free, prices have no effect, and the unit is arbitrary.
    mean_cost = float(positive.mean()) if len(positive) else 1.0
    # 1e-300 keeps the quotient finite.
    unit = spread / max(mean_cost, 1e-300)
    lowest = price_range.lowest
    highest = price_range.highest
    # The 2 other prices are 0 and the one at which nothing is bought.
    grid = unit * np.geomspace(lowest, highest, price_range.n_prices - 2)
    return np.concatenate([[0.0], grid, [_NO_PURCHASE * unit]])


def learn_policies(value, states, sets, costs, *, prices, allowed, n_rounds, weight):
    """Learn purchases after each set and at each dual price, by backward induction.

    The sets are taken from the most expensive one to the cheapest. So the worth of all
    larger sets for each held-out row is computed before it is needed. The expectation
    of a new row is a mean of this worth over rows that have shown similar values.

    Parameters
    ----------
    value : ndarray of shape (n_sets, n_rows)
        Value of answering each held-out row with each set.
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
    following = {}
    for position, state in enumerate(states):
        if state is None:
            following[position] = np.empty(0, dtype=np.int64)
        else:
            following[position] = _larger_sets(position, sets, costs, allowed)
    purchases = _Purchases(value, states, costs, following, prices, weight)
    policies = Policies(prices, states, moves=[], ends=[], nexts=[])
    if n_rounds is None:
        _add_outcomes(policies, induce_backward(following, purchases.decide))
        return policies
    # With no purchase left, all rows stop. Each pass allows one purchase more.
    outcomes = {position: purchases.stop(position) for position in following}
    for _ in range(n_rounds):
        outcomes = induce_backward(following, purchases.decide, outcomes_after=outcomes)
        _add_outcomes(policies, outcomes)
    return policies


class _SetOutcomes(NamedTuple):
    """Next sets, final sets and their worth, for held-out rows that have one set.

    Attributes
    ----------
    worth : ndarray of shape (n_prices, n_rows), dtype=float32
        Value of the set that each row ends at, less the price of the purchases from
        this set on.
    ends : ndarray of shape (n_prices, n_rows), dtype=int16
        The set that each row ends at.
    nexts : ndarray of shape (n_prices, n_rows), dtype=int16
        The set that each row buys next. STOP: none.
    moves : Moves or None
        None if nothing can be bought after this set.
    """

    worth: np.ndarray
    ends: np.ndarray
    nexts: np.ndarray
    moves: Moves | None


class _Purchases:
    """Decisions of held-out rows after each set: stop, or buy a larger set.

    Parameters
    ----------
    value, states, costs, prices, weight
        As in `learn_policies`.
    following : dict from int to ndarray of int
        For each set the larger sets that may be bought.
    """

    def __init__(self, value, states, costs, following, prices, weight):
        # Single precision takes half of the memory.
        self._value = value.astype(np.float32)
        self._prices = prices.astype(np.float32)
        self._states = states
        self._costs = costs
        self._following = following
        self._weight = weight

    def stop(self, position):
        """Return the outcomes of a set after which no row buys (`_SetOutcomes`)."""
        value = self._value[position]
        shape = (len(self._prices), len(value))
        return _SetOutcomes(
            worth=np.broadcast_to(value, shape),
            ends=np.full(shape, position, dtype=np.int16),
            nexts=np.full(shape, STOP, dtype=np.int16),
            moves=None,
        )

    def decide(self, position, next_outcomes):
        """Return the outcomes of a set after which rows may buy a larger one.

        `position` is that of the set. `next_outcomes` are the `_SetOutcomes` of the
        larger sets that may be bought.
        """
        if not next_outcomes:
            return self.stop(position)
        larger = self._following[position]
        # Additional cost of each larger set. (n_larger,)
        extra = self._costs[larger] - self._costs[position]
        # Lead over stopping of each larger set. (n_prices, n_larger, n_rows)
        lead = np.stack([outcomes.worth for outcomes in next_outcomes], axis=1)
        lead -= self._value[position]
        price_of_move = self._prices[:, np.newaxis] * extra.astype(np.float32)
        lead -= price_of_move[:, :, np.newaxis]
        moves, best = _learn_moves(lead, larger, self._states[position], self._weight)
        is_going = best != STOP
        # Entries of rows that stop have no meaning, here and in `extra[best]` and
        # `larger[best]`. They are replaced below. The worth is stacked once more, since
        # `lead` was changed in place.
        worth_after = take_moves(
            np.stack([outcomes.worth for outcomes in next_outcomes], axis=1), best
        )
        ends_after = take_moves(
            np.stack([outcomes.ends for outcomes in next_outcomes], axis=1), best
        )
        worth_of_going = worth_after - self._prices[:, np.newaxis] * extra[best]
        worth = np.where(is_going, worth_of_going, self._value[position])
        return _SetOutcomes(
            worth=worth.astype(np.float32),
            ends=np.where(is_going, ends_after, position).astype(np.int16),
            nexts=np.where(is_going, larger[best], STOP).astype(np.int16),
            moves=moves,
        )


def _learn_moves(lead, larger, state, weight):
    """Return the leads of larger sets by cell, and the set that each row buys next.

    Parameters
    ----------
    lead : ndarray of shape (n_prices, n_larger, n_rows)
        Lead over stopping of buying each larger set, for each row.
    larger : ndarray of shape (n_larger,), dtype=int64
        Positions of these sets.
    state : State
        The state of the set that rows have.
    weight : ndarray of shape (n_rows,)

    Returns
    -------
    moves : Moves
    best : ndarray of shape (n_prices, n_rows)
        Position in `larger` of the set that each row buys, by the leads of the other
        rows. STOP: none.
    """
    n_prices, n_larger, n_rows = lead.shape
    # A column for each pair of a larger set and a price.
    lead_of_rows = lead.transpose(2, 1, 0).reshape(n_rows, -1)
    cell_means, expected = state.means(lead_of_rows, weight)
    # One axis for the sets and one for the prices again. (n_cells, n_larger, n_prices)
    cell_leads = cell_means.reshape(-1, n_larger, n_prices).astype(np.float32)
    row_leads = expected.reshape(n_rows, n_larger, n_prices)
    # The lead of stopping over stopping is 0.
    best = best_move(row_leads, value_of_stopping=0.0).position  # (n_rows, n_prices)
    return Moves(larger, cell_leads), best.T


def _add_outcomes(policies, outcomes):
    """Add the decisions with one purchase more to the lists of `Policies`.

    `outcomes` is a dict from each set to its `_SetOutcomes`.
    """
    moves_of_sets = {}
    for position, outcomes_of_set in outcomes.items():
        if outcomes_of_set.moves is not None:
            moves_of_sets[position] = outcomes_of_set.moves
    policies.moves.append(moves_of_sets)
    # Sets are numbered from 0 on. `outcomes` may have another order.
    ends = [outcomes[position].ends for position in range(len(outcomes))]
    nexts = [outcomes[position].nexts for position in range(len(outcomes))]
    policies.ends.append(np.stack(ends, axis=1))
    policies.nexts.append(np.stack(nexts, axis=1))


def _larger_sets(position, sets, costs, allowed):
    """Return the positions of allowed sets that contain a set and cost more.

    `position` is that of the set. `costs` and `allowed` have shape (n_sets,), `sets`
    has shape (n_sets, n_groups).
    """
    contains = (sets[position] <= sets).all(axis=1)
    return np.flatnonzero(allowed & (costs > costs[position]) & contains)


class Spending(NamedTuple):
    """Two dual prices at which rows buy, so that the mean cost of a row is the budget.

    Attributes
    ----------
    price_index, lower_index : int
        Positions, among all prices, of the higher and of the lower price. They are
        equal if the budget pays for the purchases of all rows at every price.
    share : float
        Share of the rows that buy at the lower price. The others buy at the higher.
    """

    price_index: int
    lower_index: int
    share: float


def spend(cost, budget):
    """Return two dual prices at which a row's mean cost is the budget (`Spending`).

    Parameters
    ----------
    cost : ndarray of shape (n_prices,)
        Mean cost at each price. The cost at the last price is within the budget.
    budget : float
        Largest mean cost.
    """
    within = cost <= budget * (1 + ROUNDING)
    # Position of the dual price at which most is spent within the budget. -inf leaves
    # out prices at which the cost exceeds the budget.
    price_index = int(np.argmax(np.where(within, cost, -np.inf)))
    if within.all():
        # No row needs to buy at a lower price.
        return Spending(price_index, price_index, 0.0)
    # Position of the dual price at which the cost exceeds the budget least. inf leaves
    # out prices at which the cost is within the budget.
    lower_index = int(np.argmin(np.where(within, np.inf, cost)))
    # With this share of the rows at the lower price, the mean cost is the budget.
    extra_cost = cost[lower_index] - cost[price_index]
    share = float((budget - cost[price_index]) / extra_cost)
    return Spending(price_index, lower_index, share)
