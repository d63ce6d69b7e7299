"""A compact layout for forests of any library, and its reference evaluation.

Siblings are neighbours, so a node stores one child; a leaf is its own child, so a walk
may take steps beyond it. A node has 16 bytes.
"""

from dataclasses import dataclass, field, replace

import numpy as np

NODE = np.dtype([("threshold", np.float64), ("feature", np.int32), ("child", np.int32)])

# The upper bits of NODE["feature"].
FEATURE_MASK = (1 << 28) - 1
MISSING_RIGHT = 1 << 28
CATEGORICAL = 1 << 29
ZERO_MISSING = 1 << 30

# LightGBM's kZeroThreshold: what counts as zero where zero means missing.
ZERO = 1e-35


@dataclass
class Forest:
    """An additive ensemble of trees as plain arrays.

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

    offset : ndarray of shape (n_outputs,), dtype=float64
        Score before any member.

    beta : float
        Binary decision: positive where the score is above.

    link : {"logistic", "softmax", "ova", "mean"}
        How scores become probabilities.

    slope : float
        Factor of the score inside the link.

    n_features : int
    dtype : str
        What the source library casts its input to.

    finite : bool or "allow-nan"
        What it accepts, as `ensure_all_finite` of scikit-learn's ``check_array``.

    categories : dict from int to ndarray
        Columns that the source library encodes as positions in these categories.

    encode_arrays : bool
        Whether plain arrays are encoded too, or only data frames.
    """

    nodes: np.ndarray
    values: np.ndarray
    roots: np.ndarray
    depths: np.ndarray
    outputs: np.ndarray
    member_start: np.ndarray
    cat_words: np.ndarray
    cat_start: np.ndarray
    offset: np.ndarray
    beta: float
    link: str
    n_features: int
    slope: float = 1.0
    dtype: str = "float64"
    finite: object = True
    categories: dict = field(default_factory=dict)
    encode_arrays: bool = False

    @property
    def n_members(self):
        """Number of members (boosting iterations, or trees of a bagged forest)."""
        return len(self.member_start) - 1

    @property
    def n_outputs(self):
        """Number of scores per row: 1 for two classes, else the number of classes."""
        return len(self.offset)

    @property
    def special(self):
        """Whether some node is categorical or takes zero as missing."""
        return bool(np.any(self.nodes["feature"] & (CATEGORICAL | ZERO_MISSING)))

    def reordered(self, order):
        """The same forest with its members, and their nodes in memory, in another order."""
        members = [np.arange(self.member_start[t], self.member_start[t + 1]) for t in order]
        trees = np.concatenate(members)
        ends = np.append(self.roots[1:], len(self.nodes))
        spans = [np.arange(self.roots[t], ends[t]) for t in trees]
        sizes = np.array([len(span) for span in spans])
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
        take = np.concatenate(spans)
        nodes = self.nodes[take]
        nodes["child"] += np.repeat(roots - self.roots[trees], sizes)
        sizes = np.array([len(member) for member in members])
        return replace(
            self,
            nodes=nodes,
            values=np.ascontiguousarray(self.values[take]),
            roots=roots,
            depths=self.depths[trees],
            outputs=self.outputs[trees],
            member_start=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32),
        )


class ForestBuilder:
    """Collects trees given as parallel arrays and lays them out breadth first."""

    def __init__(self):
        self._nodes, self._values, self._depths, self._outputs = [], [], [], []
        self._roots, self._starts, self._size = [], [0], 0
        self._words, self._cat_start = [], [0]

    def add_set(self, words):
        """Store a bit set of categories and return its number."""
        self._words.extend(words)
        self._cat_start.append(len(self._words))
        return len(self._cat_start) - 2

    def add_tree(self, left, right, feature, threshold, value, flags, output=0):
        """Append one tree to the member that is being built.

        Parameters
        ----------
        left, right : ndarray of shape (n,), dtype=int
            Children, negative at leaves; node 0 is the root.

        feature, threshold, flags : ndarray of shape (n,)
            The split; `flags` holds the upper bits of ``NODE["feature"]``.

        value : ndarray of shape (n, width)
            What a leaf adds.

        output : int, default=0
            Output that a leaf adds to, -1 when it has one value for each.
        """
        source, children, depth, level = [], [], -1, np.array([0])
        size = self._size + 1
        while len(level):
            depth += 1
            source.append(level)
            inner = left[level] >= 0
            child = np.full(len(level), -1)
            child[inner] = size + 2 * np.arange(inner.sum())
            children.append(child)
            size += 2 * int(inner.sum())
            level = np.column_stack([left[level[inner]], right[level[inner]]]).ravel()
        source, child = np.concatenate(source), np.concatenate(children)
        leaf = child < 0
        child[leaf] = self._size + np.flatnonzero(leaf)
        nodes = np.empty(len(source), dtype=NODE)
        # Nothing is above infinity and a missing value stays left: a leaf keeps its rows.
        nodes["threshold"] = np.where(leaf, np.inf, threshold[source])
        nodes["feature"] = np.where(leaf, 0, feature[source] | flags[source])
        nodes["child"] = child
        self._roots.append(self._size)
        self._nodes.append(nodes)
        self._values.append(np.where(leaf[:, None], value[source], 0.0))
        self._depths.append(depth)
        self._outputs.append(output)
        self._size = size

    def end_member(self):
        """Close the member: trees added from here on belong to the next one."""
        self._starts.append(len(self._roots))

    def build(self, offset, beta=0.0, **keywords):
        """The :class:`Forest` of all trees added."""
        return Forest(
            nodes=np.concatenate(self._nodes),
            values=np.ascontiguousarray(np.concatenate(self._values), dtype=np.float64),
            roots=np.array(self._roots, dtype=np.int32),
            depths=np.array(self._depths, dtype=np.int32),
            outputs=np.array(self._outputs, dtype=np.int32),
            member_start=np.array(self._starts, dtype=np.int32),
            cat_words=np.array(self._words or [0], dtype=np.uint32),
            cat_start=np.array(self._cat_start, dtype=np.int32),
            offset=np.atleast_1d(np.asarray(offset, dtype=np.float64)),
            beta=float(beta),
            **keywords,
        )


def go_right(x, node, cat_words, cat_start):
    """Whether values `x` go right at nodes `node`; the numpy twin of one kernel step."""
    feature = node["feature"]
    missing = np.isnan(x) | (((feature & ZERO_MISSING) != 0) & (np.abs(x) <= ZERO))
    with np.errstate(invalid="ignore"):
        right = x > node["threshold"]
    for i in np.flatnonzero((feature & CATEGORICAL) != 0):
        s = int(node["threshold"][i])
        words = cat_words[cat_start[s] : cat_start[s + 1]]
        # Truncation as in C: -0.5 is category 0.
        code = int(x[i]) if -1 < x[i] < 2**31 else -1
        in_set = 0 <= code < 32 * len(words) and (int(words[code // 32]) >> (code % 32)) & 1
        right[i] = not in_set
    return np.where(missing, (feature & MISSING_RIGHT) != 0, right)


def forest_scores_reference(forest, X):
    """What each member adds, with numpy alone.

    Parameters
    ----------
    forest : Forest
    X : ndarray of shape (n_samples, n_features)

    Returns
    -------
    ndarray of shape (n_members, n_samples, n_outputs), dtype=float64
    """
    scores = np.zeros((forest.n_members, len(X), forest.n_outputs))
    rows = np.arange(len(X))
    for t in range(forest.n_members):
        for tree in range(forest.member_start[t], forest.member_start[t + 1]):
            at = np.full(len(X), forest.roots[tree])
            for _ in range(forest.depths[tree]):
                node = forest.nodes[at]
                x = X[rows, node["feature"] & FEATURE_MASK].astype(np.float64)
                at = node["child"] + go_right(x, node, forest.cat_words, forest.cat_start)
            if forest.outputs[tree] < 0:
                scores[t] += forest.values[at]
            else:
                scores[t, :, forest.outputs[tree]] += forest.values[at, 0]
    return scores
