"""Hypergeometric test of a batch: a promise about all rows from labels of few rows.

A row *disagrees* if its answer differs from the label that the reference would give it.
Labels are bought for rows that are drawn at random without replacement. The bought
labels replace the answers, so only rows without a label can break the promise.
`certified.certify_path` has the proof.

Parameters with the same meaning in all functions:

- `n_rows`, `n_labelled`: number of rows of the batch, and of its rows with a label;
- `n_disagreements`: number of labelled rows that disagree;
- `n_allowed`: number of unlabelled rows that may disagree by the promise;
- `level`: probability that the promise does not hold.
"""

from bisect import bisect_left

import numpy as np


def accepts(n_rows, n_labelled, n_allowed, n_disagreements, level):
    """Return True if the test accepts up to `n_allowed` wrong unlabelled answers.

    An answer is wrong if it differs from the label of the reference: its row disagrees.

    The promise is about the rows without a label. Suppose it is just broken: `n_allowed
    + 1` of them disagree. The test accepts the promise if then the probability of at
    most `n_disagreements` disagreements among `n_labelled` drawn rows is at most
    `level`.

    The test is monotone: if it accepts a number of disagreements, it accepts all
    smaller numbers. With one more disagreement, the batch has one more row that
    disagrees, and the drawn rows have at most one more. So the probability does not
    fall.

    Parameters
    ----------
    n_rows, n_labelled : int
        Number of rows of the batch, and of its rows with a label.
    n_allowed : int
        Number of unlabelled rows that may disagree by the promise.
    n_disagreements : int
        Number of labelled rows that disagree.
    level : float
        Probability that the test accepts a broken promise.
    """
    from scipy.stats import hypergeom

    # Number of wrong answers in the batch if it breaks the promise by one answer.
    n_disagree = n_allowed + 1 + n_disagreements
    if n_disagree > n_rows:
        # The batch has too few rows to break the promise.
        return True
    p_value = hypergeom.cdf(n_disagreements, n_rows, n_disagree, n_labelled)
    return bool(p_value <= level)


def tolerated_disagreements(n_rows, n_labelled, n_allowed, level):
    """Compute the largest number of wrong labelled answers that the test accepts.

    With one more wrong answer, the test rejects the promise.

    Parameters
    ----------
    n_rows, n_labelled : int
        Number of rows of the batch, and of its rows with a label.
    n_allowed : int
        Number of unlabelled rows that may disagree by the promise.
    level : float
        Probability that the test accepts a broken promise.

    Returns
    -------
    int
        -1 if the test does not accept even 0 disagreements.
    """

    # The test is monotone: all numbers from the first rejected one on are rejected.
    def rejects(n_disagreements):
        return not accepts(n_rows, n_labelled, n_allowed, n_disagreements, level)

    first_rejected = _first_true(n_labelled + 1, rejects)
    return first_rejected - 1


def smallest_allowed(n_rows, n_labelled, n_disagreements, level):
    """Compute the smallest number of wrong unlabelled answers that can be promised.

    The result is from 0 to `n_rows`, which is always accepted: no larger number of rows
    can disagree. The parameters are those of `accepts`.
    """

    def accepts_promise(n_allowed):
        return accepts(n_rows, n_labelled, n_allowed, n_disagreements, level)

    return _first_true(n_rows, accepts_promise)


def labels_needed(n_rows, n_allowed, level, share=0.0):
    """Compute how many labels the test needs if a share of the answers is wrong.

    `n_rows`, `n_allowed` and `level` are those of `accepts`.

    Parameters
    ----------
    share : float, default=0.0
        Expected share of the labelled rows that disagree. The result is exact for 0.
        For other shares, a smaller number may also be enough: the search assumes that
        more labels are never worse, but the number of disagreements is rounded up.

    Returns
    -------
    float
        A whole number. Infinity if labels of all rows are not enough.
    """

    def is_enough(n_labelled):
        n_disagreements = int(np.ceil(share * n_labelled))
        return accepts(n_rows, n_labelled, n_allowed, n_disagreements, level)

    if not is_enough(n_rows):
        return np.inf
    # At least one label is needed: the search is over the numbers of further labels.
    return 1.0 + _first_true(n_rows, lambda n_further: is_enough(n_further + 1))


def _first_true(n, condition):
    """Return the smallest i from 0 to n - 1 with ``condition(i)``, or n if none has it.

    The condition must be monotone: if it is true for i, it is true for all larger
    numbers. It is computed for about log2(n) numbers.
    """
    return bisect_left(range(n), True, key=condition)
