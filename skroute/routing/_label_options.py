"""FrugalML: for each label of a base a threshold and an add-on, chosen by assignment."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skroute.assignment import assignment_path, choose_at_price
from skroute.routing._mixtures import best_mixture

# A label that a base gave to fewer rows shares its thresholds with the other rare ones.
_MIN_ROWS = 30


class LabelOptions(NamedTuple):
    """What one base offers for each group of its labels.

    An option is a threshold and an add-on: the base's answer is kept where its score is at
    least the threshold, else the add-on's is bought. The first option never buys.

    Attributes
    ----------
    thresholds : ndarray of shape (n_groups, n_options)

    addons : ndarray of shape (n_options,), dtype=int64

    quality : ndarray of shape (n_groups, n_options)
        Share of the group's rows answered correctly.

    cost : ndarray of shape (n_groups, n_options)
        Mean cost of the group's rows, the base included.

    share : ndarray of shape (n_groups,)
        Share of all rows.
    """

    thresholds: NDArray[np.float64]
    addons: NDArray[np.int64]
    quality: NDArray[np.float64]
    cost: NDArray[np.float64]
    share: NDArray[np.float64]


class LabelRules(NamedTuple):
    """Rules that are worth mixing, over all bases and budgets, by rising cost.

    Attributes
    ----------
    base : ndarray of shape (n_rules,), dtype=int64

    thresholds : ndarray of shape (n_rules, n_groups)

    addons : ndarray of shape (n_rules, n_groups), dtype=int64

    cost, quality : ndarray of shape (n_rules,)
        Means on training rows.
    """

    base: NDArray[np.int64]
    thresholds: NDArray[np.float64]
    addons: NDArray[np.int64]
    cost: NDArray[np.float64]
    quality: NDArray[np.float64]


def label_groups(labels, n_labels, min_rows):
    """Group of each label: itself, or group 0 for all labels with fewer than `min_rows` rows.

    Parameters
    ----------
    labels : ndarray of shape (n_samples,), dtype=int
        Answers of the base.

    n_labels : int

    min_rows : int

    Returns
    -------
    ndarray of shape (n_labels,), dtype=int64
        Group of each label, ``label + 1`` or 0.
    """
    often = np.bincount(labels, minlength=n_labels) >= min_rows
    return np.where(often, np.arange(n_labels) + 1, 0)


def label_options(groups, scores, correct, costs, base, n_groups, n_thresholds):
    """Mean quality and cost of each (threshold, add-on) for each group of labels.

    Thresholds split the group at quantiles of the base's score, and at infinity. Each lies between
    two scores, where the share of later rows below it is that of the group in the mean: at a score
    with i of n below it, :math:`(i + 1) / (n + 1)` of later rows would be, and budgets too small.

    Parameters
    ----------
    groups : ndarray of shape (n_samples,), dtype=int
        Group of the base's answer.

    scores : ndarray of shape (n_samples,)
        The base's score of its answer.

    correct : ndarray of shape (n_samples, n_members)
        Quality of each member's answer.

    costs : ndarray of shape (n_members,)

    base : int

    n_groups : int

    n_thresholds : int
        Quantiles per group.

    Returns
    -------
    LabelOptions
    """
    addons = np.delete(np.arange(len(costs)), base)
    option_addons = np.r_[base, np.repeat(addons, n_thresholds)]
    thresholds = np.full((n_groups, len(option_addons)), -np.inf)
    quality = np.zeros((n_groups, len(option_addons)))
    cost = np.full((n_groups, len(option_addons)), costs[base])
    share = np.bincount(groups, minlength=n_groups) / len(groups)
    for group in np.flatnonzero(share):
        rows = np.flatnonzero(groups == group)
        score, right = scores[rows], correct[rows]
        levels = np.quantile(score, np.linspace(0, 1, n_thresholds)[1:], method="higher")
        levels = np.r_[levels, np.inf]
        kept = score >= levels[:, np.newaxis]
        sent = 1 - kept.mean(axis=1)
        levels = between(np.sort(score), levels)
        quality[group, 0] = right[:, base].mean()
        for j, addon in enumerate(addons):
            at = slice(1 + j * n_thresholds, 1 + (j + 1) * n_thresholds)
            gain = (~kept) @ (right[:, addon] - right[:, base]) / len(rows)
            thresholds[group, at] = levels
            quality[group, at] = quality[group, 0] + gain
            cost[group, at] += sent * costs[addon]
    return LabelOptions(thresholds, option_addons, quality, cost, share)


def between(scores, levels):
    """Thresholds that keep the same of some rows, and the same share of later ones in the mean.

    Parameters
    ----------
    scores : ndarray of shape (n_rows,)
        Rising.

    levels : ndarray of shape (n_levels,)
        Of these scores, or infinite.

    Returns
    -------
    ndarray of shape (n_levels,)
        With i of n scores below a level: i / n of the way from the largest of these to the level;
        minus infinity for the smallest score.
    """
    n_below = np.searchsorted(scores, levels)
    below = scores[np.maximum(n_below - 1, 0)]
    inner = np.isfinite(levels) & np.isfinite(below) & (n_below > 0)
    way = np.where(inner, levels, below) - below
    found = below + n_below / len(scores) * way
    # Rounding may end at the score below, which is to be sent.
    found = np.where(inner & (found <= below), levels, found)
    return np.where(inner, found, np.where(n_below > 0, levels, -np.inf))


def label_rules(options, bases):
    """Best option of every label for every budget, over all bases.

    One option per label under a budget is the assignment problem with labels weighted by
    their frequency; its path has a plan for each of its breaks. The hull
    over the plans of all bases leaves those of which two neighbours are mixed.

    Parameters
    ----------
    options : sequence of LabelOptions
        One for each base.

    bases : sequence of int

    Returns
    -------
    LabelRules
    """
    base, thresholds, addons, cost, quality = [], [], [], [], []
    for member, option in zip(bases, options):
        seen = option.share > 0
        weight = (option.share[seen] * seen.sum())[:, np.newaxis]
        values, costs = option.quality[seen] * weight, option.cost[seen] * weight
        path = assignment_path(values, costs)
        for price in path.prices:
            choice = np.zeros(len(seen), dtype=np.int64)
            choice[seen] = choose_at_price(values, costs, price)
            group = np.arange(len(seen))
            base.append(member)
            thresholds.append(option.thresholds[group, choice])
            addons.append(option.addons[choice])
            cost.append(option.share @ option.cost[group, choice])
            quality.append(option.share @ option.quality[group, choice])
    mixture, kept = best_mixture(cost, quality)
    return LabelRules(
        np.array(base)[kept], np.array(thresholds)[kept], np.array(addons)[kept], *mixture
    )


def learn_label_rules(labels, tops, quality, costs, bases, n_labels, n_thresholds):
    """Rules that some rows choose, and for each base the group of each label.

    Parameters
    ----------
    labels, tops : sequence of ndarray of shape (n_rows,)
        For each member its labels, and their scores.

    quality : ndarray of shape (n_rows, n_addons)

    costs : ndarray of shape (n_addons,)

    bases : sequence of int

    n_labels, n_thresholds : int

    Returns
    -------
    rules : LabelRules
    groups : dict from int to ndarray of shape (n_labels,)
    """
    groups = {base: label_groups(labels[base], n_labels, _MIN_ROWS) for base in bases}
    options = [
        label_options(
            groups[base][labels[base]],
            tops[base],
            quality,
            costs,
            base,
            n_labels + 1,
            n_thresholds,
        )
        for base in bases
    ]
    return label_rules(options, bases), groups
