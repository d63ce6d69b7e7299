"""A forest as early exit adds it up: partial sums that lie around the decision."""

import math
from dataclasses import replace

import numpy as np

from skroute.forests._rules import PartialRule
from skroute.utils._validation import read_only

# Probability of each of two classes where neither is more likely.
_EVEN_CHANCES = 0.5
# The link of each answer.
_LINKS = {"sigmoid": "logistic", "expit": "logistic", "mean": "mean"} | dict.fromkeys(
    ("softmax", "sk_softmax", "position", "vote"), "softmax"
)


def partial_sums(forest, name):
    """Return the view of a classifier's forest whose sums say how far the decision is.

    Two classes have one output. Averages of two classes are centred: the sum of each tree's
    distance from even chances. Weighted votes are divided by the sum of the weights. The
    `partial_rule` is set, and a moved threshold is applied to it.

    Parameters
    ----------
    forest : Forest
        As a reader gives it.

    name : str
        Of the ensemble, for the error.

    Returns
    -------
    Forest

    Raises
    ------
    ValueError
        If it does not classify, or all rows would get one answer.
    """
    rule = forest.answer_rule
    link = _LINKS.get(rule.kind)
    if link is None or (link == "mean" and forest.classes is None):
        raise ValueError(
            f"The {name} answers with numbers ({rule.kind!r}), not with labels: early exit "
            "must have a classifier, for example one with the objective 'binary' or 'multiclass'."
        )
    forest = _unscaled(forest)
    trees = forest.trees
    n_outputs = forest.n_outputs
    slope = rule.slope / rule.divisor
    if rule.kind == "vote":
        values = trees.values / rule.divisor
        slope = 1.0 / max(1, n_outputs - 1)
        if n_outputs == 1:
            values = 2 * values
            link = "logistic"
        forest = replace(forest, trees=trees.with_values(values))
    elif link == "mean":
        slope = 1.0
        if n_outputs <= 2:
            forest = _centred(forest)
    elif link == "logistic" and n_outputs > 1:
        link = "ova"
    partial_rule = PartialRule(link=link, slope=slope, shift=rule.beta, beta=rule.beta)
    forest = replace(forest, partial_rule=partial_rule)
    if rule.cut is None:
        return forest
    return moved(forest, rule.cut)


def _unscaled(forest):
    """Return the forest with the scale of its sums in its leaves."""
    scale = forest.sum_rule.scale
    if scale == 1.0:
        return forest
    # A partial sum is scaled as each of its members is.
    trees = forest.trees.with_values(forest.trees.values * scale)
    return replace(forest, trees=trees, sum_rule=replace(forest.sum_rule, scale=1.0))


def _centred(forest):
    """Return the forest of two classes whose leaves add their distance from even chances."""
    trees = forest.trees
    # Sums of pure leaves are exact, so that ties stay ties.
    values = trees.values[:, -1:] - _EVEN_CHANCES
    trees = trees.with_values(values, outputs=np.zeros_like(trees.outputs))
    return replace(forest, trees=trees, offset=read_only(np.zeros(1)))


def moved(forest, cut):
    """Return the view of :func:`partial_sums` with the decision at a moved threshold.

    Parameters
    ----------
    forest : Forest
        Of two classes, with a `partial_rule`.

    cut : Cut
        The moved threshold.

    Returns
    -------
    Forest
    """
    rule = forest.partial_rule
    threshold = cut.threshold
    is_second = cut.positive is None or forest.classes[1] == cut.positive
    if cut.response == "decision_function":
        beta = threshold if is_second else -threshold
        rounding = 16 * np.finfo(np.float64).eps * (1 + abs(beta))
        rule = replace(rule, beta=beta, shift=beta, least_rounding=rounding)
        return replace(forest, partial_rule=rule)
    if not 0 < threshold < 1:
        raise ValueError(
            f"The threshold is {threshold!r}: every row gets the same answer, and nothing is to be "
            "evaluated. Give one between 0 and 1."
        )
    # Probability of the second class at which the answer changes.
    share = threshold if is_second else 1 - threshold
    # How far scores may be from each other where probabilities are equal but for rounding.
    rounding = 64 * np.finfo(forest.sum_rule.dtype).eps / (share * (1 - share))
    if rule.link == "mean":
        # Each tree's distance from the threshold in place of that from even chances.
        values = forest.trees.values + (_EVEN_CHANCES - share)
        rule = replace(
            rule,
            shift=share - _EVEN_CHANCES,
            least_rounding=rounding * forest.n_members,
        )
        return replace(
            forest, trees=forest.trees.with_values(values), partial_rule=rule
        )
    beta = math.log(share / (1 - share)) / rule.slope
    rule = replace(rule, beta=beta, shift=beta, least_rounding=rounding / rule.slope)
    return replace(forest, partial_rule=rule)
