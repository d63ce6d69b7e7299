"""The arrays of trees, whatever library grew them.

Siblings are neighbours, so a node stores one child; a leaf is its own child, so a walk
may take steps beyond it. A node has 16 bytes.
"""

from typing import Any, NamedTuple

import numpy as np

from skroute.utils._validation import read_only

NODE = np.dtype([("threshold", np.float64), ("feature", np.int32), ("child", np.int32)])

# The upper bits of NODE["feature"].
FEATURE_MASK = (1 << 28) - 1
MISSING_RIGHT = 1 << 28
CATEGORICAL = 1 << 29
ZERO_MISSING = 1 << 30

# LightGBM's kZeroThreshold, in single precision: what counts as zero.
ZERO = float(np.float32(1e-35))


class Trees(NamedTuple):
    """Trees of an additive ensemble as plain arrays: what compiled kernels take.

    A row with features `x` goes right at a node where ``x > threshold``; a missing value
    goes where the node says. At a categorical node ``threshold`` is the number of a bit
    set, and members of the set go left.

    Attributes
    ----------
    nodes : ndarray of shape (n_nodes,), dtype=NODE
        All nodes, tree after tree.

    values : ndarray of shape (n_nodes, width), dtype=float64
        What a leaf adds: one number, or one for each output.

    roots, depths, outputs : ndarray of shape (n_trees,), dtype=int32
        First node and depth of each tree, and the output that it adds to (-1: leaves
        hold one number for each output).

    member_start : ndarray of shape (n_members + 1,), dtype=int32
        Trees of member `t` are ``member_start[t]:member_start[t + 1]``.

    cat_words, cat_start : ndarray, dtype=uint32 and int32
        Bit sets: set `s` is ``cat_words[cat_start[s]:cat_start[s + 1]]``.

    special : bool
        Whether some node is categorical or takes zero as missing.
    """

    nodes: Any
    values: Any
    roots: Any
    depths: Any
    outputs: Any
    member_start: Any
    cat_words: Any
    cat_start: Any
    special: bool = False

    def read_only(self):
        """Return these trees with read-only arrays, and set `special`.

        Kernels are compiled once, for read-only arrays.
        """
        special = bool(np.any(self.nodes["feature"] & (CATEGORICAL | ZERO_MISSING)))
        arrays = {name: read_only(getattr(self, name)) for name in _KINDS}
        return self._replace(**arrays, special=special)

    def taken(self, order):
        """Return the trees of some members, in an order, with their nodes in that order as well."""
        start = self.member_start
        order = np.asarray(order)
        picked = np.concatenate([np.arange(start[t], start[t + 1]) for t in order])
        sizes = np.diff(self.roots, append=len(self.nodes))[picked]
        roots = (np.cumsum(sizes) - sizes).astype(np.int32)
        moved = np.repeat(roots - self.roots[picked], sizes)
        take = np.arange(len(moved)) - moved
        nodes = self.nodes[take]
        nodes["child"] += moved
        trees = self._replace(
            nodes=nodes,
            values=self.values[take],
            roots=roots,
            depths=self.depths[picked],
            outputs=self.outputs[picked],
            member_start=np.append(0, np.cumsum(np.diff(start)[order])).astype(
                np.int32
            ),
        )
        return trees.read_only()

    def with_values(self, values, outputs=None):
        """Return these trees with other values at their leaves.

        Parameters
        ----------
        values : ndarray of shape (n_nodes, width)
            What a leaf adds. Values of inner nodes are ignored.

        outputs : ndarray of shape (n_trees,), dtype=int32, default=None
            The output that each tree adds to. None leaves it.

        Returns
        -------
        Trees
        """
        if outputs is None:
            outputs = self.outputs
        leaf = self.nodes["child"] == np.arange(len(self.nodes))
        values = np.where(leaf[:, None], values, 0.0).astype(np.float64)
        return self._replace(values=values, outputs=outputs).read_only()

    def check(self, n_features, n_outputs):
        """Raise a ValueError unless a walk through these trees stays inside the arrays and ends.

        Files can be damaged, and compiled code trusts its arrays. The message names the first
        condition that does not hold.
        """
        _check_types(self)
        _check_children(self)
        _check_nodes(self, n_features)
        _check_outputs(self, n_outputs)
        _check_members(self)
        _check_sets(self)


_KINDS = {
    "nodes": (NODE, 1),
    "values": (np.float64, 2),
    "roots": (np.int32, 1),
    "depths": (np.int32, 1),
    "outputs": (np.int32, 1),
    "member_start": (np.int32, 1),
    "cat_words": (np.uint32, 1),
    "cat_start": (np.int32, 1),
}


def _require(holds, condition):
    """Raise a ValueError with a condition that the arrays of a forest do not meet."""
    if not holds:
        raise ValueError(
            f"The arrays of the forest are damaged: {condition}, which is not so. Make the file "
            "again."
        )


def _check_types(trees):
    """Check the type and the number of dimensions of each array."""
    for name, (dtype, ndim) in _KINDS.items():
        array = getattr(trees, name)
        is_right = (
            isinstance(array, np.ndarray)
            and array.dtype == dtype
            and array.ndim == ndim
        )
        _require(
            is_right, f"{name} must be an array of {ndim} dimensions of type {dtype}"
        )


def _check_children(trees):
    """Check that each node is reached once, from its tree's root, in breadth-first order."""
    nodes = trees.nodes
    roots = trees.roots
    _require(_rises_from_0(roots, 1), "roots must rise from 0")
    _require(roots[-1] < len(nodes), "roots must be nodes")
    position = np.arange(len(nodes))
    child = nodes["child"]
    _require((child >= position).all(), "child must not come before its parent")
    leaf = child == position
    left = np.where(leaf, -1, child)
    children = np.sort(np.concatenate([left[~leaf], left[~leaf] + 1]))
    has_one_parent = np.array_equal(children, np.setdiff1d(position, roots))
    _require(has_one_parent, "each node but a root must be the child of one node")
    order = breadth_first(left, left + 1, roots)
    _require(
        np.array_equal(order.source, position), "nodes must be in breadth-first order"
    )
    _require(
        np.array_equal(trees.depths, order.depths), "depths must be those of the trees"
    )


def _check_nodes(trees, n_features):
    """Check what each node compares, and that it has a value."""
    nodes = trees.nodes
    feature = nodes["feature"]
    leaf = nodes["child"] == np.arange(len(nodes))
    keeps_rows = (nodes["threshold"] == np.inf) & (feature == 0)
    _require(
        keeps_rows[leaf].all(), "a leaf must have feature 0 and an infinite threshold"
    )
    is_column = (feature >= 0) & ((feature & FEATURE_MASK) < n_features)
    _require(is_column.all(), f"feature must be one of {n_features} columns")
    _require(len(trees.values) == len(nodes), "values must be as many as nodes")


def _check_outputs(trees, n_outputs):
    """Check that each tree adds to an output that exists."""
    outputs = trees.outputs
    width = trees.values.shape[1]
    _require(width in (1, n_outputs), f"values must have 1 or {n_outputs} columns")
    _require(len(outputs) == len(trees.roots), "outputs must be as many as roots")
    # -1 stands for all outputs, which a leaf with one value does not have.
    lowest = -1
    if width == 1 and n_outputs > 1:
        lowest = 0
    are_outputs = (outputs >= lowest) & (outputs < n_outputs)
    _require(are_outputs.all(), f"outputs must be from {lowest} to {n_outputs - 1}")


def _check_members(trees):
    """Check that each member has at least one tree, and that each tree has a member."""
    start = trees.member_start
    _require(_rises_from_0(start, 1), "member_start must rise from 0")
    _require(len(start) > 1, "member_start must have a member")
    _require(
        start[-1] == len(trees.roots), "member_start must end at the number of trees"
    )


def _check_sets(trees):
    """Check that each categorical node has a bit set that exists."""
    start = trees.cat_start
    nodes = trees.nodes
    _require(_rises_from_0(start, 0), "cat_start must begin at 0 and not fall")
    _require(start[-1] <= len(trees.cat_words), "cat_start must end within cat_words")
    sets = nodes["threshold"][(nodes["feature"] & CATEGORICAL) != 0]
    exists = np.isin(sets, np.arange(len(start) - 1))
    _require(
        exists.all(), "threshold of a categorical node must be the number of a bit set"
    )


def _rises_from_0(numbers, least):
    """Return True if numbers begin with 0, and each exceeds the one before by at least `least`."""
    return len(numbers) > 0 and numbers[0] == 0 and (np.diff(numbers) >= least).all()


class TreeTable(NamedTuple):
    """Trees as parallel arrays of nodes in any order; children are positions in these arrays.

    Attributes
    ----------
    left, right : ndarray of shape (n_nodes,), dtype=int
        Children. `left` is negative at leaves, where `right` is ignored.

    feature, threshold : ndarray of shape (n_nodes,)
        The split of an inner node. Ignored at leaves.

    flags : ndarray of shape (n_nodes,), dtype=int
        Upper bits of ``NODE["feature"]``. Ignored at leaves.

    value : ndarray of shape (n_nodes, width)
        What a leaf adds. Ignored at inner nodes.

    roots : ndarray of shape (n_trees,), dtype=int
        Root of each tree.

    outputs : array-like of shape (n_trees,)
        Output that each tree adds to (-1: leaves hold one number for each output).

    member_start : array-like of shape (n_members + 1,)
        Trees of member `t` are ``member_start[t]:member_start[t + 1]``.

    cat_words, cat_start : array-like
        Bit sets, as in :class:`Trees`.
    """

    left: Any
    right: Any
    feature: Any
    threshold: Any
    flags: Any
    value: Any
    roots: Any
    outputs: Any
    member_start: Any
    cat_words: Any
    cat_start: Any


class BreadthFirst(NamedTuple):
    """Nodes in breadth-first order, tree after tree.

    Attributes
    ----------
    source : ndarray of shape (n_nodes,), dtype=int
        Where each node was.

    child : ndarray of shape (n_nodes,), dtype=int
        Where its left child is. A leaf is its own child.

    leaf : ndarray of shape (n_nodes,), dtype=bool
        Which nodes are leaves.

    roots, depths : ndarray of shape (n_trees,), dtype=int
        Root and depth of each tree.
    """

    source: Any
    child: Any
    leaf: Any
    roots: Any
    depths: Any


def laid_out(table):
    """Return the trees of a table in the layout of kernels.

    Parameters
    ----------
    table : TreeTable

    Returns
    -------
    Trees
        With read-only arrays.
    """
    order = breadth_first(table.left, table.right, table.roots)
    source = order.source
    nodes = np.empty(len(source), dtype=NODE)
    # Nothing is above infinity and a missing value stays left: a leaf keeps its rows.
    nodes["threshold"] = np.where(order.leaf, np.inf, table.threshold[source])
    nodes["feature"] = np.where(
        order.leaf, 0, table.feature[source] | table.flags[source]
    )
    nodes["child"] = order.child
    trees = Trees(
        nodes=nodes,
        values=np.where(order.leaf[:, None], table.value[source], 0.0),
        roots=order.roots,
        depths=order.depths,
        outputs=table.outputs,
        member_start=table.member_start,
        cat_words=table.cat_words,
        cat_start=table.cat_start,
    )
    arrays = {
        name: np.asarray(getattr(trees, name), dtype)
        for name, (dtype, _) in _KINDS.items()
    }
    return trees._replace(**arrays).read_only()


def joined(parts):
    """Return the trees of several forests, one forest after the other.

    Parameters
    ----------
    parts : sequence of Trees
        With values of one width.

    Returns
    -------
    Trees
    """
    first_node = _starts_of([len(part.nodes) for part in parts])
    first_tree = _starts_of([len(part.roots) for part in parts])
    first_word = _starts_of([len(part.cat_words) for part in parts])
    first_set = _starts_of([len(part.cat_start) - 1 for part in parts])
    nodes = np.concatenate([part.nodes for part in parts])
    part_of_node = np.repeat(np.arange(len(parts)), [len(part.nodes) for part in parts])
    nodes["child"] += first_node[part_of_node].astype(np.int32)
    categorical = (nodes["feature"] & CATEGORICAL) != 0
    nodes["threshold"][categorical] += first_set[part_of_node[categorical]]
    trees = Trees(
        nodes=nodes,
        values=np.concatenate([part.values for part in parts]),
        roots=_shifted([part.roots for part in parts], first_node),
        depths=np.concatenate([part.depths for part in parts]),
        outputs=np.concatenate([part.outputs for part in parts]),
        member_start=_bounds([part.member_start for part in parts], first_tree),
        cat_words=np.concatenate([part.cat_words for part in parts]),
        cat_start=_bounds([part.cat_start for part in parts], first_word),
    )
    return trees.read_only()


def _starts_of(sizes):
    """Return where each part starts in an array of all parts."""
    return np.cumsum(sizes) - sizes


def _shifted(arrays, starts):
    """Return the positions of all parts in an array of all parts."""
    shifted = [array + start for array, start in zip(arrays, starts)]
    return np.concatenate(shifted).astype(np.int32)


def _bounds(arrays, starts):
    """Return the bounds of all parts: a part ends where the next one starts."""
    without_first = [array[1:] for array in arrays]
    return np.append(0, _shifted(without_first, starts)).astype(np.int32)


def breadth_first(left, right, roots):
    """Return the nodes of trees in breadth-first order.

    Parameters
    ----------
    left, right : ndarray of shape (n_nodes,), dtype=int
        Children; `left` is negative at leaves.

    roots : ndarray of shape (n_trees,), dtype=int

    Returns
    -------
    BreadthFirst
    """
    depths = np.full(len(roots), -1)
    level = roots
    tree_of_level = np.arange(len(roots))
    levels = []
    trees_of_levels = []
    # Level by level of all trees at once.
    while len(level):
        levels.append(level)
        trees_of_levels.append(tree_of_level)
        depths[tree_of_level] += 1
        is_inner = left[level] >= 0
        parents = level[is_inner]
        tree_of_level = np.repeat(tree_of_level[is_inner], 2)
        level = np.column_stack([left[parents], right[parents]]).ravel()
    tree_of_node = np.concatenate(trees_of_levels)
    order = np.argsort(tree_of_node, kind="stable")
    source = np.concatenate(levels)[order]
    tree_of_node = tree_of_node[order]
    position = np.arange(len(source))
    new_position = np.zeros(len(left), dtype=np.int64)
    new_position[source] = position
    leaf = left[source] < 0
    return BreadthFirst(
        source=source,
        child=np.where(leaf, position, new_position[left[source]]),
        leaf=leaf,
        roots=np.searchsorted(tree_of_node, np.arange(len(roots))),
        depths=depths,
    )
