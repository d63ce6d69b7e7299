"""Greedy sequences of feature sets (Algorithm 4) and their retrieval."""

import numpy as np

from skroute.feature_sets._index import broadcast_queries
from skroute.metrics import pareto_front


def greedy_sequence(evaluate, empty_quality, cost, trade_off):
    """One sequence of Algorithm 4 (Greedy Candidate-Sequences).

    Starting from the empty set, add the feature of the largest
    ``gain = increase in quality - trade_off * increase in cost`` until all are in.

    Parameters
    ----------
    evaluate : callable
        Called as ``evaluate(masks)`` with a list of sets; returns their qualities. It
        may be asked for the same set again.

    empty_quality : float
        Quality of answering without any feature.

    cost : ndarray of shape (n_features,)
        Cost of each feature at the reference size.

    trade_off : float
        Quality that one unit of cost must bring. 0 looks at quality alone
        (Greedy-Acc), infinity at cost alone (Greedy-Cost).

    Returns
    -------
    ndarray of shape (n_features + 1,), dtype=int64
        The sets, the empty set first.
    """
    left = list(np.argsort(cost, kind="stable"))
    mask, quality = 0, empty_quality
    sequence = [mask]
    while left:
        # Only cost decides: the alternatives need no training.
        asked = left[:1] if np.isinf(trade_off) else left
        reached = np.asarray(evaluate([mask | 1 << int(j) for j in asked]))
        weight = 0.0 if np.isinf(trade_off) else trade_off
        # Ties go to the cheaper feature, which comes first.
        best = int(np.argmax(reached - quality - weight * cost[asked]))
        mask |= 1 << int(left.pop(best))
        quality = reached[best]
        sequence.append(mask)
    return np.array(sequence, dtype=np.int64)


def default_trade_offs(cost):
    """Trade-offs from "quality alone" to "nearly cost alone".

    Parameters
    ----------
    cost : ndarray of shape (n_features,)
        Cost of each feature at the reference size.

    Returns
    -------
    ndarray of shape (9,)
        0 and eight values at which all features together must bring 0.001 to 3 of
        quality.
    """
    total = cost.sum()
    scale = np.geomspace(1e-3, 3.0, 8) / (total if total > 0 else 1.0)
    return np.concatenate([[0.0], scale])


class GreedyIndex:
    """Sequences with the skyline that says which one to follow.

    Parameters
    ----------
    sequences : ndarray of shape (n_sequences, n_features + 1), dtype=int64
        Positions of the sets of each sequence among the choices.

    reference_cost : ndarray of shape (n_choices,)
        Cost of each choice at the reference size.

    quality : ndarray of shape (n_choices,)
        Quality of each choice.

    cost : callable
        Called as ``cost(sizes)``; returns the cost of every choice at every size, of
        shape (n_choices, n_sizes).
    """

    def __init__(self, sequences, reference_cost, quality, cost):
        self.sequences = sequences
        self.quality = quality
        self.cost = cost
        on = pareto_front(reference_cost, quality)
        followed = np.array([int(np.argmax((sequences == i).any(axis=1))) for i in on])
        if len(on) > 1 and on[0] == sequences[0, 0]:
            # The empty set starts every sequence. A budget that buys nothing at the
            # reference size follows the sequence of the cheapest set that is something.
            followed[0] = followed[1]
        self.skyline_cost = reference_cost[on]
        self.skyline_sequence = followed

    def sequence(self, budget):
        """Which sequence the skyline at the reference size names for each budget.

        Parameters
        ----------
        budget : ndarray of float
            Budgets.

        Returns
        -------
        ndarray of int64
        """
        at = np.searchsorted(self.skyline_cost, budget, side="right") - 1
        return self.skyline_sequence[at]

    def goals(self, budget):
        """Choices that any-time retrieval may end at, the least preferred first.

        Parameters
        ----------
        budget : float
            The item's budget.

        Returns
        -------
        ndarray of int64
            The sets of the budget's sequence.
        """
        return self.sequences[self.sequence(budget)]

    def lookup(self, size, budget):
        """Longest part of the budget's sequence that fits the budget at the item's size.

        Parameters
        ----------
        size, budget : array-like of float
            Broadcast against each other.

        Returns
        -------
        ndarray of int64
            Position of the choice. The empty set costs nothing, so one always fits.
        """
        size, budget, shape = broadcast_queries(size, budget)
        follow = self.sequence(budget)
        found = np.empty(len(size), dtype=np.int64)
        for s in np.unique(follow):
            rows = np.flatnonzero(follow == s)
            # Costs rise along a sequence, so those that fit are its beginning.
            fits = self.cost(size[rows])[self.sequences[s]] <= budget[rows]
            found[rows] = self.sequences[s][fits.sum(axis=0) - 1]
        return found.reshape(shape)

    def skyline(self, size):
        """Choices that undercut all others at one size.

        Parameters
        ----------
        size : float
            A size.

        Returns
        -------
        ndarray of int64
            Positions of choices, by rising cost and rising quality.
        """
        return pareto_front(self.cost(np.array([size]))[:, 0], self.quality)
