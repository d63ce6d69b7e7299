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
        """These trees, not to be written to: kernels are compiled once for them. Sets `special`."""
        special = bool(np.any(self.nodes["feature"] & (CATEGORICAL | ZERO_MISSING)))
        arrays = {name: read_only(getattr(self, name)) for name in _KINDS}
        return self._replace(**arrays, special=special)

    def taken(self, order):
        """These members in this order, and their nodes in memory as well."""
        start, order = self.member_start, np.asarray(order)
        picked = np.concatenate([np.arange(start[t], start[t + 1]) for t in order])
        sizes = np.diff(self.roots, append=len(self.nodes))[picked]
        roots = (np.cumsum(sizes) - sizes).astype(np.int32)
        moved = np.repeat(roots - self.roots[picked], sizes)
        take = np.arange(len(moved)) - moved
        nodes = self.nodes[take]
        nodes["child"] += moved
        return self._replace(
            nodes=nodes,
            values=np.ascontiguousarray(self.values[take]),
            roots=roots,
            depths=self.depths[picked],
            outputs=self.outputs[picked],
            member_start=np.append(0, np.cumsum(np.diff(start)[order])).astype(np.int32),
        )

    def check(self, n_features, n_outputs):
        """A ValueError unless a walk through these trees stays inside the arrays and ends.

        Files can be damaged, and compiled code trusts its arrays.
        """
        if not _are_whole(self, n_features, n_outputs):
            raise ValueError(
                "The arrays of the forest are damaged: a walk through them would leave them, or "
                "not end. Make the file anew."
            )


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


def _are_whole(trees, n_features, n_outputs):
    """Whether the arrays are those of trees, and all that they point to is there."""
    for name, (dtype, ndim) in _KINDS.items():
        array = getattr(trees, name)
        if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != ndim:
            return False
    nodes, roots, size = trees.nodes, trees.roots, len(trees.nodes)
    at, child, feature = np.arange(size), nodes["child"], nodes["feature"]
    if not _rises_from_0(roots, 1) or roots[-1] >= size:
        return False
    leaf = child == at
    left = np.where(leaf, -1, child)
    below = np.sort(np.concatenate([left[~leaf], left[~leaf] + 1]))
    # Children come after their parents and have one each: a walk ends.
    if (child < at).any() or not np.array_equal(below, np.setdiff1d(at, roots)):
        return False
    order, *_, depths = breadth_first(left, left + 1, roots)
    outputs, start, width = trees.outputs, trees.member_start, trees.values.shape[1]
    sets = nodes["threshold"][(feature & CATEGORICAL) != 0]
    lowest = 0 if width == 1 and n_outputs > 1 else -1
    return bool(
        np.array_equal(order, at)
        and np.array_equal(trees.depths, depths)
        and ((nodes["threshold"] == np.inf) & (feature == 0))[leaf].all()
        and ((feature >= 0) & ((feature & FEATURE_MASK) < n_features)).all()
        and len(trees.values) == size
        and width in (1, n_outputs)
        and len(outputs) == len(roots)
        and ((outputs >= lowest) & (outputs < n_outputs)).all()
        and _rises_from_0(start, 1)
        and len(start) > 1
        and start[-1] == len(roots)
        and _rises_from_0(trees.cat_start, 0)
        and trees.cat_start[-1] <= len(trees.cat_words)
        and np.isin(sets, np.arange(len(trees.cat_start) - 1)).all()
    )


def _rises_from_0(numbers, least):
    return len(numbers) > 0 and numbers[0] == 0 and (np.diff(numbers) >= least).all()


def laid_out(
    left, right, feature, threshold, value, flags, roots, outputs, member_start, words, cat_start
):
    """The trees of some roots, of parallel arrays of nodes in any order; children are positions."""
    source, child, leaf, roots, depths = breadth_first(left, right, roots)
    nodes = np.empty(len(source), dtype=NODE)
    # Nothing is above infinity and a missing value stays left: a leaf keeps its rows.
    nodes["threshold"] = np.where(leaf, np.inf, threshold[source])
    nodes["feature"] = np.where(leaf, 0, feature[source] | flags[source])
    nodes["child"] = child
    values = np.where(leaf[:, None], value[source], 0.0)
    arrays = nodes, values, roots, depths, outputs, member_start, words, cat_start
    return Trees(*(np.asarray(array, dtype) for array, (dtype, _) in zip(arrays, _KINDS.values())))


def breadth_first(left, right, roots):
    """The order of :func:`laid_out`, tree after tree: where each node was, where its left child is
    (a leaf's is itself), which nodes are leaves, and the root and the depth of each tree."""
    depths, level, tree = np.full(len(roots), -1), roots, np.arange(len(roots))
    levels, trees = [], []
    # Level by level of all trees at once.
    while len(level):
        levels.append(level)
        trees.append(tree)
        depths[tree] += 1
        parents, tree = level[left[level] >= 0], np.repeat(tree[left[level] >= 0], 2)
        level = np.column_stack([left[parents], right[parents]]).ravel()
    tree = np.concatenate(trees)
    order = np.argsort(tree, kind="stable")
    source, tree = np.concatenate(levels)[order], tree[order]
    at, place = np.arange(len(source)), np.zeros(len(left), dtype=np.int64)
    place[source] = at
    leaf = left[source] < 0
    child = np.where(leaf, at, place[left[source]])
    return source, child, leaf, np.searchsorted(tree, np.arange(len(roots))), depths
