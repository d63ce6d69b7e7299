"""A fitted LightGBM booster as plain arrays: what a gate asks for every row, it asks fast."""

import numpy as np

_NODE_FIELDS = ("feature", "threshold", "left", "right", "missing")


def forest_arrays(booster, n_outputs):
    """Arrays of all trees of a booster.

    Parameters
    ----------
    booster : lightgbm.Booster
        Without categorical splits.
    n_outputs : int
        Trees per boosting round.

    Returns
    -------
    dict of ndarray
        ``feature``, ``threshold``, ``left``, ``right``, ``missing`` (one entry per inner
        node, see :func:`skroute.gating._kernels.add_trees`), ``leaf`` (per leaf),
        ``nodes``, ``leaves`` (first of each tree), ``n_outputs``.
    """
    fields = {name: [] for name in ("split_feature", "threshold", "left_child", "right_child")}
    decision, leaf, nodes, leaves = [], [], [0], [0]
    for block in booster.model_to_string(num_iteration=-1).split("\nTree=")[1:]:
        entries = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        n_leaves = int(entries["num_leaves"])
        values = entries["leaf_value"].split()
        leaf.extend(values)
        leaves.append(leaves[-1] + len(values))
        nodes.append(nodes[-1] + n_leaves - 1)
        if n_leaves > 1:
            for name, column in fields.items():
                column.extend(entries[name].split())
            decision.extend(entries["decision_type"].split())
    # LightGBM's decision bits: 1 default left, 2-3 missing type (2 is NaN).
    decision = np.array(decision, dtype=np.int64)
    knows_nan = (decision >> 2) & 3 == 2
    return {
        "feature": np.array(fields["split_feature"], dtype=np.int32),
        "threshold": np.array(fields["threshold"], dtype=np.float64),
        "left": np.array(fields["left_child"], dtype=np.int32),
        "right": np.array(fields["right_child"], dtype=np.int32),
        "missing": (knows_nan + (decision & 2)).astype(np.int8),
        "leaf": np.array(leaf, dtype=np.float64),
        "nodes": np.array(nodes, dtype=np.int64),
        "leaves": np.array(leaves, dtype=np.int64),
        "n_outputs": n_outputs,
    }


def truncate(forest, n_rounds):
    """The first rounds of a forest."""
    n_trees = n_rounds * forest["n_outputs"]
    nodes, leaves = forest["nodes"][: n_trees + 1], forest["leaves"][: n_trees + 1]
    kept = {name: forest[name][: nodes[-1]].copy() for name in _NODE_FIELDS}
    return kept | {
        "leaf": forest["leaf"][: leaves[-1]].copy(),
        "nodes": nodes.copy(),
        "leaves": leaves.copy(),
        "n_outputs": forest["n_outputs"],
    }


def features_of(forest, outputs):
    """Sorted features that the trees of some outputs split on."""
    n_trees = len(forest["nodes"]) - 1
    tree_of = np.repeat(np.arange(n_trees), np.diff(forest["nodes"]))
    return np.unique(forest["feature"][np.isin(tree_of % forest["n_outputs"], outputs)]).astype(
        np.intp
    )


def forest_scores(forest, X, outputs, rounds=None):
    """Sum of the trees of some outputs.

    Parameters
    ----------
    forest : dict
        From :func:`forest_arrays`.
    X : ndarray of shape (n_samples, n_features)
    outputs : sequence of int
        Outputs to evaluate; only their trees are walked.
    rounds : range, default=None
        Boosting rounds to add up. None takes all.

    Returns
    -------
    ndarray of shape (n_samples, len(outputs))
    """
    from skroute.gating._kernels import add_trees

    X = np.ascontiguousarray(X, dtype=np.float64)
    n_outputs = forest["n_outputs"]
    n_rounds = (len(forest["nodes"]) - 1) // n_outputs
    of_round = np.asarray(range(n_rounds) if rounds is None else rounds, dtype=np.int64)
    outputs = np.asarray(outputs, dtype=np.int64)
    # A tree without a split adds its one leaf, which is 0 for rounds that skip the gate.
    trees = (of_round[:, None] * n_outputs + outputs).ravel()
    columns = np.tile(np.arange(len(outputs)), len(of_round))
    grows = (np.diff(forest["nodes"])[trees] > 0) | (forest["leaf"][forest["leaves"][trees]] != 0)
    out = np.zeros((len(X), len(outputs)))
    add_trees(
        X,
        trees[grows],
        columns[grows],
        *(forest[name] for name in _NODE_FIELDS),
        forest["leaf"],
        forest["nodes"],
        forest["leaves"],
        out,
    )
    return out
