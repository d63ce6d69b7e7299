"""A forest as early exit adds it up: partial sums that lie around the decision."""

import math
from dataclasses import replace

import numpy as np

# The link of each answer.
_LINKS = {"sigmoid": "logistic", "expit": "logistic", "mean": "mean"} | dict.fromkeys(
    ("softmax", "sk_softmax", "position", "vote"), "softmax"
)


def partial_sums(forest, name):
    """The view of a classifier's forest whose sums say how far the decision is.

    Two classes have one output. Averages of two classes are centred: the sum of each tree's
    distance from even chances. Weighted votes are divided by the sum of the weights. `link` and
    `shift` are set, and `cut` is applied to the decision.

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
    link, trees, n_outputs = _LINKS.get(forest.answer), forest.trees, forest.n_outputs
    if link is None or (link == "mean" and forest.classes is None):
        raise ValueError(
            f"The {name} answers with numbers ({forest.answer!r}), not with labels: early exit "
            "must have a classifier, for example one with the objective 'binary' or 'multiclass'."
        )
    if forest.scale != 1.0:
        # A partial sum is scaled as each of its members is.
        trees = trees._replace(values=trees.values * forest.scale)
        forest = replace(forest, scale=1.0)
    slope = forest.slope / forest.divisor
    if forest.answer == "vote":
        values = trees.values / forest.divisor
        trees = trees._replace(values=2 * values if n_outputs == 1 else values)
        slope = 1.0 / max(1, n_outputs - 1)
        link = "logistic" if n_outputs == 1 else link
    elif link == "mean":
        slope = 1.0
        if n_outputs <= 2:
            # Sums of pure leaves are exact, so that ties stay ties.
            trees = _with_leaves(trees, trees.values[:, -1:] - 0.5)
            trees = trees._replace(outputs=np.zeros_like(trees.outputs))
            forest = replace(forest, offset=np.zeros(1))
    elif link == "logistic" and n_outputs > 1:
        link = "ova"
    forest = replace(forest, trees=trees, link=link, slope=slope, shift=forest.beta)
    return forest if forest.cut is None else moved(forest, forest.cut)


def _with_leaves(trees, values):
    leaf = trees.nodes["child"] == np.arange(len(trees.nodes))
    return trees._replace(values=np.where(leaf[:, None], values, 0.0))


def moved(forest, cut):
    """The view of :func:`partial_sums` with the decision at a moved threshold, of two classes."""
    share = cut.threshold
    second = cut.positive is None or forest.classes[1] == cut.positive
    if cut.response == "decision_function":
        beta = share if second else -share
        blur = 16 * np.finfo(np.float64).eps * (1 + abs(beta))
        return replace(forest, beta=beta, shift=beta, least_rounding=blur)
    if not 0 < share < 1:
        raise ValueError(
            f"The threshold is {share!r}: every row gets the same answer, and nothing is to be "
            "evaluated. Give one between 0 and 1."
        )
    share = share if second else 1 - share
    # How far scores may be from each other where probabilities are equal but for rounding.
    blur = 64 * np.finfo(forest.sums).eps / (share * (1 - share))
    if forest.link == "mean":
        # Each tree's distance from the threshold in place of that from even chances.
        trees = _with_leaves(forest.trees, forest.trees.values + (0.5 - share))
        blur *= forest.n_members
        return replace(forest, trees=trees, shift=share - 0.5, least_rounding=blur)
    beta, blur = math.log(share / (1 - share)) / forest.slope, blur / forest.slope
    return replace(forest, beta=beta, shift=beta, least_rounding=blur)
