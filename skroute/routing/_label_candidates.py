"""FrugalML's rules as candidates beside others: judged by rows that did not choose them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skroute.routing._label_options import label_groups, label_options, label_rules
from skroute.routing._mixtures import Mixture
from skroute.routing._validation import parts_of

# As `FrugalMLClassifier` has them.
N_THRESHOLDS, MIN_ROWS = 20, 30


class LabelRule(NamedTuple):
    """For each label of a base a threshold and an add-on.

    Attributes
    ----------
    groups : ndarray of shape (n_labels,), dtype=int64
        Group of each label.

    thresholds : ndarray of shape (n_groups,)
        The base's answer is kept where its score is at least this.

    addons : ndarray of shape (n_groups,), dtype=int64
        Position of the member that answers otherwise.
    """

    groups: NDArray[np.int64]
    thresholds: NDArray[np.float64]
    addons: NDArray[np.int64]

    def choose(self, scores, base):
        """Who answers each row: the base or an add-on, ndarray of shape (n_rows,)."""
        group = self.groups[scores.argmax(axis=1)]
        keep = scores.max(axis=1) >= self.thresholds[group]
        return np.where(keep, base, self.addons[group])


def label_candidates(scores, quality, costs, base):
    """FrugalML's rules of one base for every budget, by rising cost.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_labels)
        Of the base.

    quality : ndarray of shape (n_rows, n_members)
        Of each member's own answer.

    costs : ndarray of shape (n_members,)

    base : int

    Returns
    -------
    rules : list of LabelRule
    cost, quality : ndarray of shape (n_rules,)
        Means over each part of the rows of the rules that the others learn for the same budgets:
        no row judges thresholds that it has chosen.
    """
    part = parts_of(None, len(scores))
    rules, budgets, _ = _learn(scores, quality, costs, base)
    spent, worth = np.zeros(len(rules)), np.zeros(len(rules))
    for number in np.unique(part):
        rows, others = part == number, part != number
        if not others.any():
            others = rows
        learned, *curve = _learn(scores[others], quality[others], costs, base)
        mixture = Mixture(*curve)
        routes = [one.choose(scores[rows], base) for one in learned]
        table, each = quality[rows], np.arange(rows.sum())
        price = np.where(np.arange(len(costs)) == base, 0.0, costs)
        made = np.array([[price[r].sum(), table[each, r].sum()] for r in routes])
        for j, budget in enumerate(budgets):
            low, high, share = mixture.share(max(budget, mixture.cost[0]))
            found = (1 - share) * made[low] + share * made[high]
            spent[j] += found[0]
            worth[j] += found[1]
    return rules, costs[base] + spent / len(scores), worth / len(scores)


def _learn(scores, quality, costs, base):
    labels = scores.argmax(axis=1)
    n_labels = scores.shape[1]
    groups = label_groups(labels, n_labels, MIN_ROWS)
    option = label_options(
        groups[labels], scores.max(axis=1), quality, costs, base, n_labels + 1, N_THRESHOLDS
    )
    found = label_rules([option], [base])
    rules = [LabelRule(groups, *one) for one in zip(found.thresholds, found.addons)]
    return rules, found.cost, found.quality
