"""Numpy twins of compiled code: slow, and short enough to be read."""

from unittest.mock import patch

import numpy as np

from skroute.early_exit._algorithms import qwyc_order, tails_of
from skroute.forests._trees import (
    CATEGORICAL,
    FEATURE_MASK,
    MISSING_RIGHT,
    ZERO,
    ZERO_MISSING,
)


def most_decided(values, bad, k, use_lo=True, use_hi=True):
    """Rows that the thresholds of Algorithm 2 decide with at most 0, ..., `k` wrong."""
    tails = tails_of(values, bad, k, use_lo=use_lo, use_hi=use_hi)
    if not use_lo:
        return tails.n_above
    if not use_hi:
        return tails.n_below
    best = np.empty(k + 1, dtype=np.int64)
    for errors in range(k + 1):
        # Entry `j` has `j` errors above, and below the others.
        upper_limits = tails.upper_limits[: errors + 1]
        lower_limits = tails.lower_limits[errors::-1]
        if (upper_limits < lower_limits).any():
            best[errors] = len(values)
        else:
            n_decided = tails.n_above[: errors + 1] + tails.n_below[errors::-1]
            best[errors] = n_decided.max()
    return best


def qwyc_order_reference(
    scores, offset, beta, costs, alpha, use_lo=True, use_hi=True, spread=0
):
    """Numpy twin of :func:`qwyc_order`: the values of each candidate are sorted."""

    def count_decided(
        scores, candidates, undecided, fewest_errors, most_errors, use_lo, use_hi
    ):
        n_decided = np.empty(len(candidates), dtype=np.int64)
        for c, member in enumerate(candidates):
            values, bad = undecided.after(scores[member]).values_and_bad()
            counts = most_decided(values, bad, most_errors, use_lo, use_hi)
            n_decided[c] = counts[fewest_errors:].sum()
        return n_decided

    with patch("skroute.early_exit._kernels.count_decided", count_decided):
        return qwyc_order(scores, offset, beta, costs, alpha, use_lo, use_hi, spread)


def leaving(values, lo, hi):
    """The last member evaluated, and 1 or -1 where a row left above or below: a twin."""
    up, down = values > hi[:, None], values < lo[:, None]
    out = up | down
    out[-1] = True
    position = np.argmax(out, axis=0)
    rows = np.arange(values.shape[1])
    side = np.where(up[position, rows], 1, -1).astype(np.int8)
    side[position == len(values) - 1] = 0
    return position, side


def go_right(x, node, cat_words, cat_start):
    """Return True for values `x` that go right at nodes `node`, as one kernel step."""
    feature = node["feature"]
    missing = np.isnan(x) | (((feature & ZERO_MISSING) != 0) & (np.abs(x) <= ZERO))
    with np.errstate(invalid="ignore"):
        right = x > node["threshold"]
    for i in np.flatnonzero((feature & CATEGORICAL) != 0):
        s = int(node["threshold"][i])
        words = cat_words[cat_start[s] : cat_start[s + 1]]
        # Truncation as in C: -0.5 is category 0.
        code = int(x[i]) if -1 < x[i] < 2**31 else -1
        in_set = (
            0 <= code < 32 * len(words) and (int(words[code // 32]) >> (code % 32)) & 1
        )
        right[i] = not in_set
    return np.where(missing, (feature & MISSING_RIGHT) != 0, right)


def member_scores_reference(forest, X):
    """Return what each member adds to each row and output, with numpy alone."""
    trees = forest.trees
    scores = np.zeros((forest.n_members, len(X), forest.n_outputs))
    rows = np.arange(len(X))
    for t in range(forest.n_members):
        for tree in range(trees.member_start[t], trees.member_start[t + 1]):
            position = np.full(len(X), trees.roots[tree])
            for _ in range(trees.depths[tree]):
                node = trees.nodes[position]
                x = X[rows, node["feature"] & FEATURE_MASK].astype(np.float64)
                goes_right = go_right(x, node, trees.cat_words, trees.cat_start)
                position = node["child"] + goes_right
            if trees.outputs[tree] < 0:
                scores[t] += trees.values[position]
            else:
                scores[t, :, trees.outputs[tree]] += trees.values[position, 0]
    return scores


def random_scores(seed, n_members=8, n_samples=200, n_outputs=1):
    rng = np.random.RandomState(seed)
    signal = rng.randn(n_samples, n_outputs)
    noise = rng.randn(n_members, n_samples, n_outputs)
    # Few distinct values, as trees have.
    return np.round(signal * rng.rand(n_members, 1, 1) + noise, 1).astype(np.float32)
