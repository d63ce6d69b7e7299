"""Hypergeometric test of a batch: a promise about all rows from labels of a few.

A row *disagrees* if its answer differs from the label that the reference would give it.
Labels are bought for rows that are drawn at random without replacement. The bought
labels replace the answers, so only rows without a label can break the promise.
:ref:`guarantees` has the proof.

Parameters with the same meaning in all functions:

- `n_rows`, `n_labelled`: number of rows of the batch, and of its rows with a label;
- `n_disagreements`: number of labelled rows that disagree;
- `n_allowed`: number of unlabelled rows that may disagree by the promise;
- `level`: probability that the promise does not hold.
"""

from bisect import bisect_left

import numpy as np


def accepts(n_rows, n_labelled, n_allowed, n_disagreements, level):
    """Return True if the test accepts at most `n_allowed` unlabelled disagreements.

    The test accepts if P[Hyp(n_rows, n_allowed + 1 + n_disagreements, n_labelled) <=
    n_disagreements] is at most `level`. This probability never falls as
    `n_disagreements` rises: the population has one more row that disagrees, and the
    sample at most one more. So a test that accepts a number of disagreements accepts
    all smaller ones.
    """
    from scipy.stats import hypergeom

    # Number of rows that disagree if the promise is just broken.
    n_marked = n_allowed + 1 + n_disagreements
    if n_marked > n_rows:
        # The batch has too few rows to break the promise.
        return True
    p_value = hypergeom.cdf(n_disagreements, n_rows, n_marked, n_labelled)
    return bool(p_value <= level)


def tolerated_disagreements(n_rows, n_labelled, n_allowed, level):
    """Compute the largest number of labelled disagreements that the test accepts.

    Returns
    -------
    int
        -1 if the test does not accept even 0 disagreements.
    """

    def rejects(n_disagreements):
        return not accepts(n_rows, n_labelled, n_allowed, n_disagreements, level)

    first_rejected = _first_true(n_labelled + 1, rejects)
    return first_rejected - 1


def smallest_allowed(n_rows, n_labelled, n_disagreements, level):
    """Compute the smallest `n_allowed` that the test accepts, from 0 to `n_rows`."""

    def accepts_promise(n_allowed):
        return accepts(n_rows, n_labelled, n_allowed, n_disagreements, level)

    return _first_true(n_rows, accepts_promise)


def labels_needed(n_rows, n_allowed, level, share=0.0):
    """Compute how many labels the test needs if a share of the labelled rows disagrees.

    Parameters
    ----------
    share : float, default=0.0
        Expected share of the labelled rows that disagree. The result is exact for 0.

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
    # At least one label is needed, so that the search starts with 1.
    return 1.0 + _first_true(n_rows, lambda i: is_enough(i + 1))


def _first_true(n, condition):
    """Return the smallest i below n with ``condition(i)``, or n if there is none.

    The condition must be monotone: if it is true for `i`, it is true for all larger
    numbers. It is computed for about log2(n) of them.
    """
    return bisect_left(range(n), True, key=condition)
