"""A forest as early exit adds it up: its sums alone decide the label."""

import math
from dataclasses import replace

import numpy as np

from skroute.forests._rules import PartialRule
from skroute.utils._validation import read_only

# Probability of each of two classes if neither is more likely.
_EVEN_PROBABILITY = 0.5
# The link of partial sums by the kind of the answer. Other kinds have no probabilities.
_LINKS = {
    "sigmoid": "logistic",
    "expit": "logistic",
    "mean": "mean",
    "softmax": "softmax",
    "sk_softmax": "softmax",
    "position": "softmax",
    "vote": "softmax",
}
# Bound on the rounding error of a score near a moved threshold, in units of the
# precision. If it is too large, early exit only asks the library about more rows.
_ROUNDINGS_OF_SCORE = 16
# Bound on the rounding error of a probability, which is computed from the score, in
# units of the precision. If it is too large, the library is only asked more often.
_ROUNDINGS_OF_PROBABILITY = 64


def partial_sums(forest, name):
    """Return a classifier's forest as early exit adds it up.

    The sums of the result decide the label. Of two classes it is the second one if the
    sum is above `beta`. Of more classes it is the class with the largest sum.

    Two classes have one output. Averages of two classes are centred: the sum of each
    tree's distance from even chances. Weighted votes are divided by the sum of the
    weights. The `partial_rule` is set, and a moved threshold is applied to it.

    Parameters
    ----------
    forest : Forest
        As a reader returns it.

    name : str
        Name of the ensemble, for the error.

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
    # The kind "mean" is also that of a regressor.
    if link is None or (link == "mean" and forest.classes is None):
        raise ValueError(
            f"The {name} answers with numbers ({rule.kind!r}), not with labels: early "
            "exit must have a classifier, for example one with the objective 'binary' "
            "or 'multiclass'."
        )
    forest = _unscaled(forest)
    n_outputs = forest.n_outputs
    # The library divides sums by `divisor` before the link. Here the slope does so.
    slope = rule.slope / rule.divisor
    if rule.kind == "vote":
        forest = _with_mean_votes(forest)
        # AdaBoost divides mean votes by the number of other classes before the softmax.
        slope = 1.0 / max(1, n_outputs - 1)
        # Two classes: the softmax of their votes is a logistic function.
        if n_outputs == 1:
            link = "logistic"
    elif link == "mean":
        # The link "mean" has no slope: it divides by the members that were evaluated.
        slope = 1.0
        if n_outputs <= 2:
            forest = _centred(forest)
    elif link == "logistic" and n_outputs > 1:
        # Each class has a logistic function of its own.
        link = "ova"
    # Early exit passes distances from the decision at `beta` to the link. The shift by
    # `beta` turns the distances into scores again, from which the library computes
    # probabilities.
    partial_rule = PartialRule(link=link, slope=slope, shift=rule.beta, beta=rule.beta)
    forest = replace(forest, partial_rule=partial_rule)
    if rule.cut is None:
        return forest
    return _with_cut(forest, rule.cut)


def _unscaled(forest):
    """Return the forest whose leaves are multiplied by the scale of the library."""
    scale = forest.sum_rule.scale
    if scale == 1.0:
        return forest
    # Early exit adds leaves without a scale.
    trees = forest.trees.with_values(forest.trees.values * scale)
    return replace(forest, trees=trees, sum_rule=replace(forest.sum_rule, scale=1.0))


def _with_mean_votes(forest):
    """Return the forest whose votes are divided by the sum of the weights.

    Votes of two classes are doubled: their votes have opposite signs, and the
    difference of the votes decides.
    """
    values = forest.trees.values / forest.answer_rule.divisor
    if forest.n_outputs == 1:
        values = 2 * values
    return replace(forest, trees=forest.trees.with_values(values))


def _centred(forest):
    """Return the forest whose leaves add the second class's probability minus 0.5.

    The leaves of `forest`, of two classes, have a probability for each class. The
    result has one output.
    """
    trees = forest.trees
    # The last column is the second class. A leaf with rows of one class only becomes
    # 0.5 or -0.5. Sums of such leaves are exact, so that ties stay ties.
    values = trees.values[:, -1:] - _EVEN_PROBABILITY
    trees = trees.with_values(values, outputs=np.zeros_like(trees.outputs))
    return replace(forest, trees=trees, offset=read_only(np.zeros(1)))


def _with_cut(forest, cut):
    """Return a forest whose decision is at a threshold that the user has moved.

    Parameters
    ----------
    forest : Forest
        Of two classes, with a `partial_rule`.

    cut : Cut
        The moved threshold.

    Returns
    -------
    Forest

    Raises
    ------
    ValueError
        If every row would get the same answer.
    """
    # A `positive` of None stands for the second class.
    is_second = cut.positive is None or forest.classes[1] == cut.positive
    # The sums of the forest are scores of the second class. A threshold of the first
    # class is turned into a threshold of the second one.
    if cut.response == "decision_function":
        score = cut.threshold if is_second else -cut.threshold
        return _moved_to_score(forest, score)
    if not 0 < cut.threshold < 1:
        raise ValueError(
            f"The threshold is {cut.threshold!r}: every row gets the same answer, and "
            "nothing is to be evaluated. Give one between 0 and 1."
        )
    probability = cut.threshold if is_second else 1 - cut.threshold
    return _moved_to_probability(forest, probability)


def _moved_to_score(forest, score):
    """Return the forest whose answer is the second class above a score.

    Its probabilities stay the same: `shift` moves as `beta` does.
    """
    precision = np.finfo(np.float64).eps
    partial_rule = replace(
        forest.partial_rule,
        beta=score,
        shift=score,
        least_rounding=_ROUNDINGS_OF_SCORE * precision * (1 + abs(score)),
    )
    return replace(forest, partial_rule=partial_rule)


def _moved_to_probability(forest, probability):
    """Return the forest whose answer is the second class above a probability.

    `probability` is between 0 and 1. The probabilities of rows stay the same.
    """
    rule = forest.partial_rule
    precision = np.finfo(forest.sum_rule.dtype).eps
    # Bound on the rounding error of a score: the rounding error of the probability,
    # divided by the slope of the logistic function. For the link "mean", the slope is
    # 1, so that this bound is larger than needed.
    slope_of_logistic = probability * (1 - probability)
    rounding = _ROUNDINGS_OF_PROBABILITY * precision / slope_of_logistic
    if rule.link == "mean":
        # Leaves add distances from the threshold in place of distances from 0.5. `beta`
        # stays the same, and `shift` turns the sums into probabilities again.
        values = forest.trees.values + (_EVEN_PROBABILITY - probability)
        partial_rule = replace(
            rule,
            shift=probability - _EVEN_PROBABILITY,
            least_rounding=rounding * forest.n_members,
        )
        trees = forest.trees.with_values(values)
        return replace(forest, trees=trees, partial_rule=partial_rule)
    # The score at which the logistic function is `probability`.
    score = math.log(probability / (1 - probability)) / rule.slope
    partial_rule = replace(
        rule, beta=score, shift=score, least_rounding=rounding / rule.slope
    )
    return replace(forest, partial_rule=partial_rule)
