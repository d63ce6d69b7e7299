"""FrugalML's rules as candidates beside others: judged by rows that did not choose them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skroute.routing._label_options import learn_label_rules
from skroute.routing._mixtures import Mixture

# As `FrugalMLClassifier` has it by default.
N_THRESHOLDS = 20
# Rules of one base, for budgets over all its path.
N_RULES = 33


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


def label_candidates(scores, quality, costs, part):
    """FrugalML's rules of one base for budgets from the smallest to the largest.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_labels)
        Of the base.

    quality : ndarray of shape (n_rows, n_members)
        Of each member's own answer, the base first.

    costs : ndarray of shape (n_members,)

    part : ndarray of shape (n_rows,), dtype=int64
        Part of each row.

    Returns
    -------
    rules : list of LabelRule
    cost, quality : ndarray of shape (n_rules, n_rows)
        Of each row under the rules that the other parts learn for the same budgets: no row judges
        thresholds that it has chosen.
    """
    every, budgets, _ = _learn(scores, quality, costs)
    at = np.unique(np.linspace(0, len(every) - 1, min(N_RULES, len(every))).round().astype(int))
    spent, worth = np.empty((2, len(at), len(scores)))
    added = np.r_[0.0, costs[1:]]
    for number in np.unique(part):
        rows, others = np.flatnonzero(part == number), np.flatnonzero(part != number)
        if not len(others):
            others = rows
        learned, *curve = _learn(scores[others], quality[others], costs)
        mixture = Mixture(*curve)
        routes = np.array([rule.choose(scores[rows], 0) for rule in learned])
        paid, found = costs[0] + added[routes], quality[rows, routes]
        for j, budget in enumerate(budgets[at]):
            low, high, share = mixture.share(max(budget, mixture.cost[0]))
            spent[j, rows] = (1 - share) * paid[low] + share * paid[high]
            worth[j, rows] = (1 - share) * found[low] + share * found[high]
    return [every[k] for k in at], spent, worth


def _learn(scores, quality, costs):
    """Rules of the first member, with their mean cost and quality."""
    told = [scores.argmax(axis=1)], [scores.max(axis=1)], quality, costs
    found, groups = learn_label_rules(*told, [0], scores.shape[1], N_THRESHOLDS)
    rules = [LabelRule(groups[0], *one) for one in zip(found.thresholds, found.addons)]
    return rules, found.cost, found.quality
