"""The first layout: trees of all libraries as arrays, with checks and construction.

Siblings are neighbours, so that a node stores its left child only. A leaf is its own
child, so that a walk may take steps beyond it. A node has 16 bytes.

The constants are compiled into kernels, which are cached. If you change one, delete the
folders ``__pycache__``.
"""

from typing import Any, NamedTuple

import numpy as np

from skroute.utils._validation import read_only

# The type of a node: the threshold of its test, its feature with flags in the upper
# bits, and the position of its left child among all nodes.
NODE = np.dtype([("threshold", np.float64), ("feature", np.int32), ("child", np.int32)])

# Bits of a node's feature that contain the number of a column.
FEATURE_MASK = (1 << 28) - 1
# Flag of a node from which missing values go right.
MISSING_RIGHT = 1 << 28
# Flag of a node that tests if a category is in a set.
CATEGORICAL = 1 << 29
# Flag of a node that reads zero as a missing value.
ZERO_MISSING = 1 << 30

# Largest absolute value that counts as zero: LightGBM's kZeroThreshold in single
# precision.
ZERO = float(np.float32(1e-35))

# Entry of `Trees.outputs` for a tree whose leaves have a value for each output.
ALL_OUTPUTS = -1


class Trees(NamedTuple):
    """Trees of an additive ensemble as plain arrays, for compiled kernels.

    A row whose cell in the column of a node is `x` goes right if ``x > threshold``. A
    missing value goes right at nodes with the flag `MISSING_RIGHT`, otherwise left. At
    a categorical node ``threshold`` is the number of a bit set, and categories in the
    set go left.

    Attributes
    ----------
    nodes : ndarray of shape (n_nodes,), dtype=NODE
        All nodes, tree after tree.

    values : ndarray of shape (n_nodes, width), dtype=float64
        Values that leaves add: one number, or one for each output.

    roots : ndarray of shape (n_trees,), dtype=int32
        First node of each tree.

    depths : ndarray of shape (n_trees,), dtype=int32
        Depth of each tree: 0 for a leaf alone.

    outputs : ndarray of shape (n_trees,), dtype=int32
        Output that each tree adds to, or `ALL_OUTPUTS`.

    member_start : ndarray of shape (n_members + 1,), dtype=int32
        Trees of member `t` are ``member_start[t]:member_start[t + 1]``.

    cat_words : ndarray of shape (n_words,), dtype=uint32
        The bit sets of categories, one set after the other.

    cat_start : ndarray of shape (n_sets + 1,), dtype=int32
        Bit set `s` is ``cat_words[cat_start[s]:cat_start[s + 1]]``.

    special : bool
        True if some node is categorical or takes zero as missing.
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

    @property
    def is_leaf(self):
        """True for the nodes that are leaves, of shape (n_nodes,)."""
        return self.nodes["child"] == np.arange(len(self.nodes))

    @property
    def tree_sizes(self):
        """Number of nodes of each tree, of shape (n_trees,)."""
        return np.diff(self.roots, append=len(self.nodes))

    @property
    def tree_of_node(self):
        """Number of the tree of each node, of shape (n_nodes,)."""
        return np.repeat(np.arange(len(self.roots)), self.tree_sizes)

    def read_only(self):
        """Return the trees with read-only arrays, and compute the field `special`.

        Kernels are compiled once, for read-only arrays.
        """
        special = bool(np.any(self.nodes["feature"] & (CATEGORICAL | ZERO_MISSING)))
        arrays = {name: read_only(getattr(self, name)) for name in _ARRAY_KINDS}
        return self._replace(**arrays, special=special)

    def taken(self, order):
        """Return the trees of only the members listed in `order`, in this order.

        Parameters
        ----------
        order : sequence of int
            Members in their new order.

        Returns
        -------
        Trees
            The nodes are in the new order as well.
        """
        start = self.member_start
        order = np.asarray(order)
        trees_of_members = [
            np.arange(start[member], start[member + 1]) for member in order
        ]
        # Numbers of the trees of these members, in the new order.
        picked = np.concatenate(trees_of_members)
        sizes = self.tree_sizes[picked]
        roots = _starts_of(sizes).astype(np.int32)
        # The new position of each node less its old one.
        shift = np.repeat(roots - self.roots[picked], sizes)
        old_position = np.arange(len(shift)) - shift
        nodes = self.nodes[old_position]
        nodes["child"] += shift
        n_trees_of_members = np.diff(start)[order]
        trees = self._replace(
            nodes=nodes,
            values=self.values[old_position],
            roots=roots,
            depths=self.depths[picked],
            outputs=self.outputs[picked],
            member_start=_bounds_of(n_trees_of_members).astype(np.int32),
        )
        return trees.read_only()

    def with_values(self, values, outputs=None):
        """Return these trees with other values at their leaves.

        Parameters
        ----------
        values : ndarray of shape (n_nodes, width)
            Values that leaves add. Those of inner nodes are ignored.

        outputs : ndarray of shape (n_trees,), dtype=int32, default=None
            Output that each tree adds to. None leaves it as it is.

        Returns
        -------
        Trees
        """
        if outputs is None:
            outputs = self.outputs
        values = np.where(self.is_leaf[:, None], values, 0.0).astype(np.float64)
        return self._replace(values=values, outputs=outputs).read_only()

    def check(self, n_features, n_outputs):
        """Raise a ValueError unless all walks stay inside the arrays and end.

        Files can be damaged, and compiled code trusts its arrays. The message contains
        the first condition that does not hold.

        Parameters
        ----------
        n_features : int
            Number of columns of the rows.

        n_outputs : int
            Number of scores of a row.
        """
        _check_types(self)
        _check_children(self)
        _check_nodes(self, n_features)
        _check_outputs(self, n_outputs)
        _check_members(self)
        _check_sets(self)


class _ArrayKind(NamedTuple):
    """The type and the number of dimensions of an array."""

    dtype: Any
    ndim: int


# The arrays among the fields of `Trees`.
_ARRAY_KINDS = {
    "nodes": _ArrayKind(NODE, 1),
    "values": _ArrayKind(np.float64, 2),
    "roots": _ArrayKind(np.int32, 1),
    "depths": _ArrayKind(np.int32, 1),
    "outputs": _ArrayKind(np.int32, 1),
    "member_start": _ArrayKind(np.int32, 1),
    "cat_words": _ArrayKind(np.uint32, 1),
    "cat_start": _ArrayKind(np.int32, 1),
}


def _require(holds, condition):
    """Raise a ValueError with the text `condition`, unless `holds` is True."""
    if not holds:
        raise ValueError(
            f"The arrays of the forest are damaged: {condition}, which is not so. Make "
            "the file again."
        )


def _check_types(trees):
    """Check the type and the number of dimensions of each array."""
    for name, kind in _ARRAY_KINDS.items():
        array = getattr(trees, name)
        condition = (
            f"{name} must be an array of {kind.ndim} dimensions of type {kind.dtype}"
        )
        _require(isinstance(array, np.ndarray), condition)
        _require(array.dtype == kind.dtype, condition)
        _require(array.ndim == kind.ndim, condition)


def _check_children(trees):
    """Check that each node is reached once, in breadth-first order of its tree."""
    n_nodes = len(trees.nodes)
    roots = trees.roots
    _require(_rises_from_0(roots, least_step=1), "roots must rise from 0")
    _require(roots[-1] < n_nodes, "roots must be nodes")
    position = np.arange(n_nodes)
    child = trees.nodes["child"]
    _require((child >= position).all(), "child must not come before its parent")
    is_leaf = trees.is_leaf
    left_children = child[~is_leaf]
    children = np.sort(np.concatenate([left_children, left_children + 1]))
    not_roots = np.setdiff1d(position, roots)
    _require(
        np.array_equal(children, not_roots),
        "each node but a root must be the child of one node",
    )
    # `breadth_first` reads a negative left child as a leaf.
    left = np.where(is_leaf, -1, child)
    order = breadth_first(left, left + 1, roots)
    _require(
        np.array_equal(order.source, position),
        "nodes must be in breadth-first order",
    )
    _require(
        np.array_equal(trees.depths, order.depths),
        "depths must be those of the trees",
    )


def _check_nodes(trees, n_features):
    """Check that features exist, that leaves keep rows, and the number of values."""
    nodes = trees.nodes
    feature = nodes["feature"]
    # True for nodes whose test sends each row left. The left child of a leaf is the
    # leaf itself.
    keeps_rows = (nodes["threshold"] == np.inf) & (feature == 0)
    _require(
        keeps_rows[trees.is_leaf].all(),
        "a leaf must have feature 0 and an infinite threshold",
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
    # -1 is allowed: it stands for leaves with a value for each output.
    lowest = ALL_OUTPUTS
    if width == 1 and n_outputs > 1:
        # A leaf with one value adds to one output, so that -1 is not allowed here.
        lowest = 0
    exists = (outputs >= lowest) & (outputs < n_outputs)
    _require(exists.all(), f"outputs must be from {lowest} to {n_outputs - 1}")


def _check_members(trees):
    """Check that each member has at least one tree, and that each tree has a member."""
    start = trees.member_start
    _require(_rises_from_0(start, least_step=1), "member_start must rise from 0")
    _require(len(start) > 1, "member_start must have a member")
    _require(
        start[-1] == len(trees.roots), "member_start must end at the number of trees"
    )


def _check_sets(trees):
    """Check that each categorical node has a bit set that exists."""
    start = trees.cat_start
    nodes = trees.nodes
    _require(
        _rises_from_0(start, least_step=0), "cat_start must begin at 0 and not fall"
    )
    _require(start[-1] <= len(trees.cat_words), "cat_start must end within cat_words")
    is_categorical = (nodes["feature"] & CATEGORICAL) != 0
    set_numbers = nodes["threshold"][is_categorical]
    exists = np.isin(set_numbers, np.arange(len(start) - 1))
    _require(
        exists.all(), "threshold of a categorical node must be the number of a bit set"
    )


def _rises_from_0(numbers, least_step):
    """Return True if an array begins with 0 and each step is at least `least_step`."""
    if len(numbers) == 0 or numbers[0] != 0:
        return False
    return (np.diff(numbers) >= least_step).all()


class TreeTable(NamedTuple):
    """Trees as parallel arrays of nodes, in any order.

    Attributes
    ----------
    left, right : ndarray of shape (n_nodes,), dtype=int
        Children, as positions in these arrays. `left` is negative at leaves, where
        `right` is ignored.

    feature, threshold : ndarray of shape (n_nodes,)
        The split of an inner node. Ignored at leaves.

    flags : ndarray of shape (n_nodes,), dtype=int
        Upper bits of ``NODE["feature"]``. Ignored at leaves.

    value : ndarray of shape (n_nodes, width)
        Values that leaves add. Ignored at inner nodes.

    roots : ndarray of shape (n_trees,), dtype=int
        Root of each tree.

    outputs : array-like of shape (n_trees,)
        Output that each tree adds to, or `ALL_OUTPUTS`.

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
        Old position of each node.

    child : ndarray of shape (n_nodes,), dtype=int
        New position of the left child of each node. A leaf is its own child.

    is_leaf : ndarray of shape (n_nodes,), dtype=bool
        True for the nodes that are leaves.

    roots : ndarray of shape (n_trees,), dtype=int
        New position of the root of each tree.

    depths : ndarray of shape (n_trees,), dtype=int
        Depth of each tree: 0 for a leaf alone.
    """

    source: Any
    child: Any
    is_leaf: Any
    roots: Any
    depths: Any


def laid_out(table):
    """Return the trees of a table in the layout that kernels read (`Trees`).

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
    is_leaf = order.is_leaf
    nodes = np.empty(len(source), dtype=NODE)
    # Nothing is above infinity, and a missing value goes left: a row stays at a leaf,
    # which is its own left child.
    nodes["threshold"] = np.where(is_leaf, np.inf, table.threshold[source])
    feature_and_flags = table.feature[source] | table.flags[source]
    nodes["feature"] = np.where(is_leaf, 0, feature_and_flags)
    nodes["child"] = order.child
    arrays = {
        "nodes": nodes,
        "values": np.where(is_leaf[:, None], table.value[source], 0.0),
        "roots": order.roots,
        "depths": order.depths,
        "outputs": table.outputs,
        "member_start": table.member_start,
        "cat_words": table.cat_words,
        "cat_start": table.cat_start,
    }
    for name, kind in _ARRAY_KINDS.items():
        arrays[name] = np.asarray(arrays[name], kind.dtype)
    return Trees(**arrays).read_only()


def joined(trees_by_forest):
    """Return the trees of several forests, one forest after the other.

    Parameters
    ----------
    trees_by_forest : sequence of Trees
        With values of one width.

    Returns
    -------
    Trees
    """
    n_nodes = [len(trees.nodes) for trees in trees_by_forest]
    n_trees = [len(trees.roots) for trees in trees_by_forest]
    n_words = [len(trees.cat_words) for trees in trees_by_forest]
    n_sets = [len(trees.cat_start) - 1 for trees in trees_by_forest]
    # Number of the first node, tree, word and set of each forest in the result.
    first_node = _starts_of(n_nodes)
    first_tree = _starts_of(n_trees)
    first_word = _starts_of(n_words)
    first_set = _starts_of(n_sets)
    nodes = _joined_field(trees_by_forest, "nodes")
    nodes["child"] += np.repeat(first_node, n_nodes).astype(np.int32)
    is_categorical = (nodes["feature"] & CATEGORICAL) != 0
    # The threshold of a categorical node is the number of its set.
    first_set_of_node = np.repeat(first_set, n_nodes)
    nodes["threshold"][is_categorical] += first_set_of_node[is_categorical]
    roots = _joined_field(trees_by_forest, "roots") + np.repeat(first_node, n_trees)
    joined_trees = Trees(
        nodes=nodes,
        values=_joined_field(trees_by_forest, "values"),
        roots=roots.astype(np.int32),
        depths=_joined_field(trees_by_forest, "depths"),
        outputs=_joined_field(trees_by_forest, "outputs"),
        member_start=_joined_bounds(
            [trees.member_start for trees in trees_by_forest], first_tree
        ),
        cat_words=_joined_field(trees_by_forest, "cat_words"),
        cat_start=_joined_bounds(
            [trees.cat_start for trees in trees_by_forest], first_word
        ),
    )
    return joined_trees.read_only()


def _joined_field(trees_by_forest, name):
    """Return the arrays of one field of several :class:`Trees`, joined to one array."""
    return np.concatenate([getattr(trees, name) for trees in trees_by_forest])


def _starts_of(sizes):
    """Return the start of each array in the joined array. `sizes` are their lengths."""
    return np.cumsum(sizes) - sizes


def _bounds_of(sizes):
    """Return the start of each array in the joined array, and the end of the last."""
    return np.append(0, np.cumsum(sizes))


def _joined_bounds(bounds, starts):
    """Return the bounds of slices of several arrays as bounds in the joined array.

    Parameters
    ----------
    bounds : list of ndarray of int
        The bounds of the slices of each array. Slice `p` of an array is
        ``bounds[p]:bounds[p + 1]``. The first bound of each array is 0.

    starts : ndarray of int
        Start of each array in the joined array.

    Returns
    -------
    ndarray, dtype=int32
    """
    # The first bound of each array is left out: in the joined array, it is the last
    # bound of the array before it.
    ends = [array[1:] + start for array, start in zip(bounds, starts)]
    return np.append(0, np.concatenate(ends)).astype(np.int32)


def breadth_first(left, right, roots):
    """Return the nodes of trees in breadth-first order.

    Parameters
    ----------
    left, right : ndarray of shape (n_nodes,), dtype=int
        Children. `left` is negative at leaves.

    roots : ndarray of shape (n_trees,), dtype=int

    Returns
    -------
    BreadthFirst
    """
    # Each level of a tree, from the root on, adds 1 to its depth. A root alone has 0.
    depths = np.full(len(roots), -1)
    # The nodes of one level of all trees, and the tree of each of these nodes.
    level_nodes = roots
    level_trees = np.arange(len(roots))
    nodes_by_level = []
    trees_by_level = []
    while len(level_nodes):
        nodes_by_level.append(level_nodes)
        trees_by_level.append(level_trees)
        # A tree may have several nodes in a level: it is counted once.
        depths[level_trees] += 1
        is_inner = left[level_nodes] >= 0
        parents = level_nodes[is_inner]
        level_trees = np.repeat(level_trees[is_inner], 2)
        level_nodes = np.column_stack([left[parents], right[parents]]).ravel()
    tree_of_node = np.concatenate(trees_by_level)
    # Sorted by tree. The sort is stable, so that each tree keeps the order of levels.
    order = np.argsort(tree_of_node, kind="stable")
    source = np.concatenate(nodes_by_level)[order]
    tree_of_node = tree_of_node[order]
    position = np.arange(len(source))
    new_position = np.zeros(len(left), dtype=np.int64)
    new_position[source] = position
    is_leaf = left[source] < 0
    return BreadthFirst(
        source=source,
        # `left` is negative at leaves. The entry of `new_position` with this negative
        # index is not used.
        child=np.where(is_leaf, position, new_position[left[source]]),
        is_leaf=is_leaf,
        roots=np.searchsorted(tree_of_node, np.arange(len(roots))),
        depths=depths,
    )
