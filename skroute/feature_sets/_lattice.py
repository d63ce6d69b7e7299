"""The lattice of feature sets: which sets to train, and what training some proves of the rest.

A set is an integer bit mask: bit ``j`` stands for extractor ``j``. Arrays over the
lattice of `k` extractors are indexed by it: 2 ** k entries.
"""

import time
from typing import NamedTuple

import numpy as np

NO_FEATURES = "(none)"
# With more extractors the arrays over the lattice no longer fit a small machine.
MAX_LATTICE_EXTRACTORS = 20
# Under a training budget the search starts with this alpha, and lowers it by this
# factor.
_FIRST_ALPHA = 2.0
_ALPHA_STEP = 0.9


def members(mask):
    """Extractors of one set, in rising order."""
    mask = int(mask)
    return [j for j in range(mask.bit_length()) if mask >> j & 1]


def set_name(names, mask):
    """Name of a set, such as "header + content"."""
    return " + ".join(names[j] for j in members(mask)) or NO_FEATURES


def indicator(masks, n_extractors):
    """Sets as rows of a boolean matrix of shape (n_sets, n_extractors)."""
    masks = np.asarray(masks, dtype=np.int64)
    return (masks[:, None] >> np.arange(n_extractors) & 1).astype(bool)


class Expansion(NamedTuple):
    """Sets that were trained, in that order, with their qualities; and what that guarantees.

    Every set `t` of the lattice has a trained subset `s` with
    ``(1 + alpha) * quality(s) >= quality(t)``.
    """

    masks: np.ndarray
    quality: np.ndarray
    alpha: float


def subset_max(values):
    """Largest value over all subsets of each set, itself included."""
    out = values.copy()
    for bit in range(len(out).bit_length() - 1):
        pairs = out.reshape(-1, 2, 1 << bit)
        np.maximum(pairs[:, 1], pairs[:, 0], out=pairs[:, 1])
    return out


def superset_min(values):
    """Smallest value over all supersets of each set, itself included."""
    # From last to first, the supersets of a set are the subsets of what it leaves out.
    return -subset_max(-values[::-1])[::-1]


def bounds(quality, monotonicity_tol):
    """What the trained sets say of every set: the best trained subset, and an upper bound.

    `quality` has NaN where a set was not trained. A set is at most `monotonicity_tol`
    better than one that contains it.
    """
    trained = ~np.isnan(quality)
    offered = subset_max(np.where(trained, quality, -np.inf))
    upper = superset_min(np.where(trained, quality, np.inf)) + monotonicity_tol
    return offered, upper


def certified_alpha(quality, monotonicity_tol):
    """Smallest alpha that the sets trained so far guarantee."""
    missing = np.isnan(quality)
    offered, upper = (part[missing] for part in bounds(quality, monotonicity_tol))
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

    ``evaluate(masks)``, a list of int, trains these sets and returns their qualities.
    No set is asked for twice, and never the empty one. `max_models` and `max_seconds`
    are the training budget.
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
        self.deadline = (
            np.inf if max_seconds is None else time.monotonic() + max_seconds
        )
        self.quality = np.full(1 << n_extractors, np.nan)
        self.quality[0] = empty_quality
        self.sizes = np.bitwise_count(np.arange(1 << n_extractors))
        self.order = [0]

    def run(self, alpha):
        """Search for `alpha`; under a training budget, progressively down to it."""
        limited = np.isfinite(self.max_models) or np.isfinite(self.deadline)
        now = max(alpha, _FIRST_ALPHA) if limited else alpha
        try:
            self._pass_down_and_up(now)
            while now > alpha:
                # What is certified already needs no pass of its own.
                now = _ALPHA_STEP * min(now, self._certified())
                now = alpha if now < alpha + 1e-3 else now
                self._pass_down_and_up(now)
        except _Spent:
            pass
        masks = np.array(self.order, dtype=np.int64)
        return Expansion(masks, self.quality[masks], self._certified())

    def _certified(self):
        return certified_alpha(self.quality, self.monotonicity_tol)

    def _pass_down_and_up(self, alpha):
        """One search: layers from the top and from the bottom in turn until they meet."""
        k = self.n_extractors
        for depth in range(k // 2 + 1):
            self._layer(k - depth, alpha)
            if depth and depth != k - depth:
                self._layer(depth, alpha)

    def _layer(self, size, alpha):
        """Train the sets of one size, but for those that trained ones sandwich.

        The relaxed sandwich property (3.3 and 3.11): a trained subset is, but for a
        factor of 1 + alpha, as good as the set can be.
        """
        offered, upper = bounds(self.quality, self.monotonicity_tol)
        wanted = (self.sizes == size) & np.isnan(self.quality)
        masks = np.flatnonzero(wanted & ~((1.0 + alpha) * offered >= upper))
        room = self.max_models - (len(self.order) - 1)
        if cut := len(masks) > room:
            # Those that may bring most are trained first.
            with np.errstate(divide="ignore"):
                promise = upper[masks] / offered[masks]
            masks = masks[np.argsort(-promise, kind="stable")[: int(room)]]
        if len(masks):
            self.quality[masks] = self.evaluate(masks.tolist())
            self.order.extend(masks.tolist())
        if cut or time.monotonic() > self.deadline:
            raise _Spent


def expand_all(n_extractors, evaluate, empty_quality):
    """Train every set (Naive-Expand-All)."""
    masks = np.arange(1 << n_extractors)
    quality = np.concatenate([[empty_quality], evaluate(masks[1:].tolist())])
    return Expansion(masks, quality, 0.0)


def monotonicity_violations(masks, quality, tol):
    """Trained sets that a trained subset beats by more than `tol`: (subset, set, drop), sorted."""
    found = []
    for mask, own in zip(masks, quality):
        subsets = np.flatnonzero((masks & ~mask) == 0)
        best = subsets[np.argmax(quality[subsets])]
        if quality[best] - own > tol:
            found.append((int(masks[best]), int(mask), float(quality[best] - own)))
    return sorted(found, key=lambda one: -one[2])
