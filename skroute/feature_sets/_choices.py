"""From trained sets to the choices that prediction has, with the index over them."""

from typing import Any, NamedTuple

import numpy as np

from skroute.feature_sets._costs import SetCosts
from skroute.feature_sets._index import CandidateScan, build_index
from skroute.feature_sets._lattice import candidate_sets
from skroute.feature_sets._sequences import GreedyIndex, greedy_sequence


class Choices(NamedTuple):
    """What prediction chooses from.

    Attributes
    ----------
    masks : ndarray of shape (n_choices,), dtype=int64
        The sets.

    costs : SetCosts
        Their costs as functions of the size.

    index : object
        Has ``lookup(size, budget)``, ``skyline(size)`` and ``goals(budget)``.
    """

    masks: np.ndarray
    costs: SetCosts
    index: Any


def lattice_choices(expansion, costs):
    """Candidates of a lattice search and their index.

    Parameters
    ----------
    expansion : Expansion
        The trained sets.

    costs : FeatureCosts
        Costs of the features.

    Returns
    -------
    Choices
    """
    kept = candidate_sets(expansion.masks, expansion.quality, costs.of_sets(expansion.masks).coef)
    masks, quality = expansion.masks[kept], expansion.quality[kept]
    set_costs = costs.of_sets(masks)
    if set_costs.coef is None:
        return Choices(masks, set_costs, CandidateScan(set_costs, quality))
    return Choices(masks, set_costs, build_index(set_costs.coef, quality))


def greedy_choices(evaluate, empty_quality, costs, reference, trade_offs):
    """Sets of all greedy sequences and their index.

    Parameters
    ----------
    evaluate : callable
        Called as ``evaluate(masks)``; returns qualities.

    empty_quality : float
        Quality of answering without any feature.

    costs : FeatureCosts
        Costs of the features.

    reference : float
        Size at which the sequences are grown.

    trade_offs : sequence of float
        One sequence for each; see :func:`greedy_sequence`.

    Returns
    -------
    Choices
    """
    size = np.array([reference])
    cost = costs(size)[:, 0]
    sequences = np.array(
        [greedy_sequence(evaluate, empty_quality, cost, trade_off) for trade_off in trade_offs]
    )
    masks, positions = np.unique(sequences, return_inverse=True)
    set_costs = costs.of_sets(masks)
    index = GreedyIndex(
        positions.reshape(sequences.shape),
        set_costs(size)[:, 0],
        np.array(evaluate(masks.tolist())),
        set_costs,
    )
    return Choices(masks, set_costs, index)
