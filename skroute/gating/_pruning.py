"""BudgetPrune: the 0-1 program that prunes a random forest, and its integral LP."""

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array


def split_gains(error, left, right):
    """Change of the error if a node keeps its split: ``e_left + e_right - e_node``.

    Parameters
    ----------
    error : ndarray of shape (n_nodes,)
        Error of each node as a leaf.
    left, right : ndarray of shape (n_nodes,), dtype=int
        Children; -1 for a leaf.

    Returns
    -------
    ndarray of shape (n_nodes,)
        0 for a leaf.
    """
    inner = left >= 0
    gains = np.zeros(len(error))
    gains[inner] = error[left[inner]] + error[right[inner]] - error[inner]
    return gains


def worth_growing(gains, left, right):
    """Splits that can be part of an optimal pruning at all, whatever features cost.

    A split whose subtree cannot lower the error even if features are free can be cut from
    any plan without making it worse. Children come after their parent, as in scikit-learn.

    Returns
    -------
    ndarray of shape (n_nodes,), dtype=bool
    """
    best = gains.copy()
    worth = np.zeros(len(gains), dtype=bool)
    for node in range(len(gains) - 1, -1, -1):
        if left[node] >= 0:
            best[node] += best[left[node]] + best[right[node]]
            worth[node] = best[node] < 0
            best[node] = min(best[node], 0.0)
    # Below a split that is cut nothing is left.
    for node in range(len(gains)):
        if left[node] >= 0 and not worth[node]:
            worth[[left[node], right[node]]] = False
    return worth


def first_uses(paths, group_of_node):
    """For each row, the first node of its path that buys each group.

    Parameters
    ----------
    paths : csr array of shape (n_rows, n_nodes)
        Nodes that each row passes, parents before children.
    group_of_node : ndarray of shape (n_nodes,), dtype=int
        Group that the node's split buys; -1 where there is no split.

    Returns
    -------
    rows, nodes : ndarray of shape (n_uses,)
    """
    nodes = paths.indices
    rows = np.repeat(np.arange(paths.shape[0]), np.diff(paths.indptr))
    group = group_of_node[nodes]
    splits = group >= 0
    rows, nodes, group = rows[splits], nodes[splits], group[splits]
    order = np.lexsort((nodes, group, rows))
    rows, nodes, group = rows[order], nodes[order], group[order]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (rows[1:] != rows[:-1]) | (group[1:] != group[:-1])
    return rows[first], nodes[first]


def prune(gains, parent, row, group, node, group_costs, n_rows, gamma):
    """The pruning of Nan, Wang and Saligrama (2016), equation (IP), as a linear program.

    Minimises ``sum_u gains_u v_u + gamma / n * sum_{i,k} c_k w_{i,k}`` over ``v_u``, 1 where
    node u keeps its split, and ``w_{i,k}``, 1 where row i pays for group k, subject to
    ``v_child <= v_parent`` and ``w_{i,k} >= v_u`` for the first node u of each tree that
    would buy k for i. Each constraint is a difference of two variables, so that the
    matrix is totally unimodular and every vertex of the relaxation is 0-1.

    Parameters
    ----------
    gains : ndarray of shape (n_nodes,)
        Of splits, see :func:`split_gains`.
    parent : ndarray of shape (n_nodes,), dtype=int
        -1 for a root.
    row, group, node : ndarray of shape (n_uses,), dtype=int
        First uses.
    group_costs : ndarray of shape (n_groups,)
    n_rows : int
    gamma : float

    Returns
    -------
    kept : ndarray of shape (n_nodes,), dtype=bool
    value : float
        Optimal objective.
    """
    n_nodes = len(gains)
    if n_nodes == 0:
        return np.zeros(0, dtype=bool), 0.0
    pairs, pair_of = np.unique(row * len(group_costs) + group, return_inverse=True)
    price = gamma / n_rows * group_costs[pairs % len(group_costs)]
    # Above all gains together nothing is bought; the solver must not see larger numbers.
    price = np.minimum(price, 1.0 + np.abs(gains).sum())
    children = np.flatnonzero(parent >= 0)
    lower = np.concatenate([children, node])
    upper = np.concatenate([parent[children], n_nodes + pair_of])
    n_constraints = len(lower)
    at = np.tile(np.arange(n_constraints), 2)
    matrix = csr_array(
        (np.repeat([1.0, -1.0], n_constraints), (at, np.concatenate([lower, upper]))),
        shape=(n_constraints, n_nodes + len(pairs)),
    )
    solution = linprog(
        np.concatenate([gains, price]),
        A_ub=matrix,
        b_ub=np.zeros(n_constraints),
        bounds=(0, 1),
        method="highs",
    )
    if solution.status != 0:
        raise RuntimeError(f"HiGHS did not solve the pruning program: {solution.message}")
    return solution.x[:n_nodes] > 0.5, float(solution.fun)
