"""The hypergeometric test of a batch: what labels bought on a few of its rows can promise."""

from bisect import bisect_left

import numpy as np


def vouches(n_rows, n_labelled, allowed, found, level):
    """Whether `found` labelled disagreements promise at most `allowed` unlabelled ones.

    They do where P[Hyp(n_rows, allowed + 1 + found, n_labelled) <= found] is at most the level;
    the user guide has the proof. One more marked row is at most one more that is found: the
    probability never falls as `found` rises, and what holds for it holds for fewer.
    """
    from scipy.stats import hypergeom

    marked = allowed + 1 + found
    # Where too few rows are left to break the promise there is nothing to test.
    return marked > n_rows or bool(
        hypergeom.cdf(found, n_rows, marked, n_labelled) <= level
    )


def tolerated_disagreements(n_rows, n_labelled, allowed, level):
    """The most labelled disagreements that vouch for `allowed` unlabelled ones; -1: none do."""
    return (
        _first(
            n_labelled + 1, lambda d: not vouches(n_rows, n_labelled, allowed, d, level)
        )
        - 1
    )


def smallest_allowed(n_rows, n_labelled, found, level):
    """The fewest unlabelled disagreements that `found` labelled ones vouch for."""
    return _first(
        n_rows, lambda allowed: vouches(n_rows, n_labelled, allowed, found, level)
    )


def labels_needed(n_rows, allowed, level, share=0.0):
    """About how many labels vouch for `allowed` disagreements, if `share` of them disagree.

    Exact for a share of 0; infinity where the share alone is too much.
    """

    def enough(n_labelled):
        return vouches(
            n_rows, n_labelled, allowed, int(np.ceil(share * n_labelled)), level
        )

    return 1.0 + _first(n_rows, lambda k: enough(k + 1)) if enough(n_rows) else np.inf


def _first(n, holds):
    """The first of 0 to n - 1 from which on something holds; n where it never does."""
    return bisect_left(range(n), True, key=holds)
