"""The lattice of feature sets: which sets to train, and bounds for the other sets.

A set is an integer bit mask, in which bit ``j`` is extractor ``j``. Arrays over the
lattice of `k` extractors have 2 ** k entries, and masks as positions.
"""

import time
from typing import NamedTuple

import numpy as np

# Name of the empty set.
NO_FEATURES = "(none)"
# Maximal number of extractors. With more, arrays over the lattice are too large.
MAX_LATTICE_EXTRACTORS = 20
# Under a training budget, the search starts with this alpha.
_FIRST_ALPHA = 2.0
# Under a training budget, alpha is multiplied by this factor in each step.
_ALPHA_STEP = 0.9


def members(mask):
    """Return the extractors of a set, in ascending order."""
    mask = int(mask)
    return [j for j in range(mask.bit_length()) if mask >> j & 1]


def set_name(names, mask):
    """Return the name of a set, such as "header + content"."""
    if not mask:
        return NO_FEATURES
    return " + ".join(names[j] for j in members(mask))


def indicator(masks, n_extractors):
    """Return sets as rows of a boolean matrix of shape (n_sets, n_extractors)."""
    masks = np.asarray(masks, dtype=np.int64)
    return (masks[:, None] >> np.arange(n_extractors) & 1).astype(bool)


class Expansion(NamedTuple):
    """The trained sets and their guarantee.

    Each set `t` of the lattice has a trained subset `s` with
    ``(1 + alpha) * quality(s) >= quality(t)``.

    Attributes
    ----------
    masks : ndarray of shape (n_trained,), dtype=int64
        The sets, in the order of training.

    quality : ndarray of shape (n_trained,)
        Their qualities.

    alpha : float
        Alpha of the guarantee.
    """

    masks: np.ndarray
    quality: np.ndarray
    alpha: float


def subset_max(values):
    """Return the largest value over all subsets of each set, itself included."""
    out = values.copy()
    for bit in range(len(out).bit_length() - 1):
        pairs = out.reshape(-1, 2, 1 << bit)
        np.maximum(pairs[:, 1], pairs[:, 0], out=pairs[:, 1])
    return out


def superset_min(values):
    """Return the smallest value over all supersets of each set, itself included."""
    # In reversed order, the supersets of a set are the subsets of its complement.
    return -subset_max(-values[::-1])[::-1]


def bounds(quality, monotonicity_tol):
    """Return bounds of the quality of every set, by the trained sets.

    Parameters
    ----------
    quality : ndarray of shape (2 ** n_extractors,)
        NaN for sets that are not trained.

    monotonicity_tol : float
        A set is at most this much better than a set that contains it.

    Returns
    -------
    offered, upper : ndarray of shape (2 ** n_extractors,)
        Quality of the best trained subset, and an upper bound.
    """
    is_trained = ~np.isnan(quality)
    offered = subset_max(np.where(is_trained, quality, -np.inf))
    upper = superset_min(np.where(is_trained, quality, np.inf)) + monotonicity_tol
    return offered, upper


def certified_alpha(quality, monotonicity_tol):
    """Return the smallest alpha that the trained sets guarantee."""
    is_missing = np.isnan(quality)
    offered, upper = bounds(quality, monotonicity_tol)
    offered = offered[is_missing]
    upper = upper[is_missing]
    behind = upper > offered
    if not behind.any():
        return 0.0
    with np.errstate(divide="ignore"):
        ratio = float(np.max(upper[behind] / offered[behind]))
    # Rounded up, so that (1 + alpha) * offered >= upper holds in floating point too.
    return ratio * (1.0 + 4 * np.finfo(float).eps) - 1.0


class _Spent(Exception):
    """The training budget is used up."""


class LatticeSearch:
    """Bidirectional search of the lattice (Algorithm 2, Expand-Enumerate).

    Parameters
    ----------
    n_extractors : int
        Number of extractors.

    evaluate : callable
        ``evaluate(masks)`` trains a list of sets and returns their qualities. No set is
        trained twice, and the empty set never.

    empty_quality : float
        Quality of the empty set.

    monotonicity_tol : float, default=0.0
        A set is at most this much better than a set that contains it.

    max_models : int, default=None
        Maximal number of sets to train. None is unlimited.

    max_seconds : float, default=None
        Seconds after which no further layer is trained. None is unlimited.
    """

    def __init__(
        self,
        n_extractors,
        evaluate,
        empty_quality,
        *,
        monotonicity_tol=0.0,
        max_models=None,
        max_seconds=None,
    ):
        self.n_extractors = n_extractors
        self.evaluate = evaluate
        self.monotonicity_tol = monotonicity_tol
        self.max_models = np.inf if max_models is None else max_models
        self.deadline = np.inf
        if max_seconds is not None:
            self.deadline = time.monotonic() + max_seconds
        self.quality = np.full(1 << n_extractors, np.nan)
        self.quality[0] = empty_quality
        self.sizes = np.bitwise_count(np.arange(1 << n_extractors))
        self.order = [0]

    def run(self, alpha):
        """Search for `alpha`, which a training budget lowers step by step."""
        is_limited = np.isfinite(self.max_models) or np.isfinite(self.deadline)
        current = max(alpha, _FIRST_ALPHA) if is_limited else alpha
        try:
            self._pass_down_and_up(current)
            while current > alpha:
                # A smaller alpha may already be certified.
                current = _ALPHA_STEP * min(current, self._certified())
                if current < alpha + 1e-3:
                    current = alpha
                self._pass_down_and_up(current)
        except _Spent:
            pass
        masks = np.array(self.order, dtype=np.int64)
        return Expansion(masks, self.quality[masks], self._certified())

    def _certified(self):
        """Return the smallest alpha that the trained sets guarantee."""
        return certified_alpha(self.quality, self.monotonicity_tol)

    def _pass_down_and_up(self, alpha):
        """Search layers from the top and from the bottom in turn until they meet."""
        k = self.n_extractors
        for depth in range(k // 2 + 1):
            self._layer(k - depth, alpha)
            if depth and depth != k - depth:
                self._layer(depth, alpha)

    def _layer(self, size, alpha):
        """Train the sets of one size, except those with a good trained subset.

        By the relaxed sandwich property (3.3 and 3.11), such a subset is as good as the
        set can be, up to a factor of 1 + alpha.
        """
        offered, upper = bounds(self.quality, self.monotonicity_tol)
        is_candidate = (self.sizes == size) & np.isnan(self.quality)
        is_covered = (1.0 + alpha) * offered >= upper
        masks = np.flatnonzero(is_candidate & ~is_covered)
        room = self.max_models - (len(self.order) - 1)
        exceeds_budget = len(masks) > room
        if exceeds_budget:
            # The sets with the largest possible gain are trained.
            with np.errstate(divide="ignore"):
                promise = upper[masks] / offered[masks]
            masks = masks[np.argsort(-promise, kind="stable")[: int(room)]]
        if len(masks):
            self.quality[masks] = self.evaluate(masks.tolist())
            self.order.extend(masks.tolist())
        if exceeds_budget or time.monotonic() > self.deadline:
            raise _Spent


def expand_all(n_extractors, evaluate, empty_quality):
    """Train every set (Naive-Expand-All)."""
    masks = np.arange(1 << n_extractors)
    quality = np.concatenate([[empty_quality], evaluate(masks[1:].tolist())])
    return Expansion(masks, quality, 0.0)


def monotonicity_violations(masks, quality, tol):
    """Return trained sets that are worse than a trained subset by more than `tol`.

    Returns
    -------
    list of (subset, superset, drop)
        Masks, and the difference of their qualities, the largest first.
    """
    violations = []
    for mask, set_quality in zip(masks, quality):
        subsets = np.flatnonzero((masks & ~mask) == 0)
        best = subsets[np.argmax(quality[subsets])]
        drop = quality[best] - set_quality
        if drop > tol:
            violations.append((int(masks[best]), int(mask), float(drop)))
    return sorted(violations, key=lambda violation: -violation[2])
