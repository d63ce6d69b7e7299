"""The lattice of feature sets: which sets to train, and bounds for the other sets.

A set is an integer bit mask, in which bit ``j`` is extractor ``j``. Arrays over the
lattice of `k` extractors have 2 ** k entries, and masks as positions.
"""

import time
from typing import NamedTuple

import numpy as np

# Name of the empty set.
NO_FEATURES = "(none)"
# Mask of the empty set: no bit is 1.
EMPTY_SET = 0
# Maximal number of extractors. With more, arrays over the lattice are too large: with
# 20, each has 8 MB.
MAX_LATTICE_EXTRACTORS = 20
# Under a training budget, the search starts with this alpha. It trains only sets that
# may be more than 3 times as good as their best trained subset. These are few sets.
_FIRST_ALPHA = 2.0
# Under a training budget, alpha is multiplied by this factor in each step. Small steps
# train the sets first that lower alpha most.
_ALPHA_STEP = 0.9
# An alpha that exceeds the wanted alpha by less than this becomes the wanted alpha. The
# search then needs no further steps for a small difference.
_ALPHA_ROOM = 1e-3


def members(mask):
    """Return the numbers of the extractors of a set, ascending, from its mask."""
    mask = int(mask)
    return [j for j in range(mask.bit_length()) if mask >> j & 1]


def set_name(names, mask):
    """Return the name of a set, such as "header + content".

    Parameters
    ----------
    names : list of str
        Names of all extractors.
    mask : int
        The set.
    """
    if mask == EMPTY_SET:
        return NO_FEATURES
    return " + ".join(names[j] for j in members(mask))


def indicator(masks, n_extractors):
    """Return sets as rows of a boolean matrix of shape (n_sets, n_extractors).

    `masks` are integers, of shape (n_sets,).
    """
    masks = np.asarray(masks, dtype=np.int64)
    return (masks[:, None] >> np.arange(n_extractors) & 1).astype(bool)


class Expansion(NamedTuple):
    """Trained feature sets, their qualities, and a bound on the gain of other sets.

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
    """Return the largest value over all subsets of each set, itself included.

    Parameters
    ----------
    values : ndarray of shape (2 ** n_extractors,)
        A value for each set, by its mask.

    Returns
    -------
    ndarray of the same shape
    """
    largest = values.copy()
    # The length is 2 ** n_extractors.
    n_extractors = len(values).bit_length() - 1
    for extractor in range(n_extractors):
        # A view. The middle axis is 0 for sets without the extractor, 1 for sets with
        # it. The larger value is written into `largest`.
        pairs = largest.reshape(-1, 2, 1 << extractor)
        np.maximum(pairs[:, 1], pairs[:, 0], out=pairs[:, 1])
    return largest


def superset_min(values):
    """Return the smallest value over all supersets of each set, itself included.

    `values`, and the result, have an entry for each set, by its mask.
    """
    # In reversed order, each set has the position of its complement. The supersets of a
    # set are then subsets. The smallest value is the largest negated one.
    return -subset_max(-values[::-1])[::-1]


def bounds(quality, monotonicity_tol):
    """Return the quality of each set's best trained subset, and its own upper bound.

    Parameters
    ----------
    quality : ndarray of shape (2 ** n_extractors,)
        NaN for sets that are not trained.

    monotonicity_tol : float
        A set is at most this much better than a set that contains it.

    Returns
    -------
    offered : ndarray of shape (2 ** n_extractors,)
        Quality of the best trained subset of each set. -inf without one.

    upper : ndarray of shape (2 ** n_extractors,)
        Upper bound of the quality of each set. inf without a trained superset.
    """
    is_trained = ~np.isnan(quality)
    offered = subset_max(np.where(is_trained, quality, -np.inf))
    upper = superset_min(np.where(is_trained, quality, np.inf)) + monotonicity_tol
    return offered, upper


def certified_alpha(quality, monotonicity_tol):
    """Return the largest possible relative gain of a set over its best trained subset.

    This is the smallest alpha that the trained sets guarantee: see `Expansion`.

    Parameters
    ----------
    quality : ndarray of shape (2 ** n_extractors,)
        NaN for sets that are not trained.

    monotonicity_tol : float
        A set is at most this much better than a set that contains it.

    Returns
    -------
    float
        Infinite if a set has no trained superset, or if it may be better than its best
        trained subset while the quality of this subset is 0.
    """
    is_missing = np.isnan(quality)
    offered, upper = bounds(quality, monotonicity_tol)
    # From here on, both arrays are for the sets that are not trained.
    offered = offered[is_missing]
    upper = upper[is_missing]
    may_be_better = upper > offered
    if not may_be_better.any():
        return 0.0  # no set is better than its best trained subset
    with np.errstate(divide="ignore"):
        ratio = float(np.max(upper[may_be_better] / offered[may_be_better]))
    # Rounded up, so that (1 + alpha) * offered >= upper holds in floating point too.
    return ratio * (1.0 + 4 * np.finfo(float).eps) - 1.0


class _TrainingBudgetSpent(Exception):
    """The training budget is used up. :meth:`LatticeSearch.run` catches this error."""


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
        # Infinity is no limit.
        self.max_models = np.inf if max_models is None else max_models
        # Reading of `time.monotonic`. Infinity is no limit.
        self.deadline = np.inf
        if max_seconds is not None:
            self.deadline = time.monotonic() + max_seconds
        # Quality of each set, by its mask. NaN: the set is not trained.
        self.quality = np.full(1 << n_extractors, np.nan)
        self.quality[EMPTY_SET] = empty_quality
        # Number of extractors of each set, by mask.
        self.sizes = np.bitwise_count(np.arange(1 << n_extractors))
        # Masks of the sets with a score, in the order of training.
        self.order = [EMPTY_SET]

    def run(self, alpha):
        """Train sets until others gain at most `alpha`, or the training budget ends.

        With a training budget, alpha begins large and falls step by step to the wanted
        alpha. So the sets that lower alpha most are trained first.

        Parameters
        ----------
        alpha : float
            The wanted alpha, as in `Expansion`.

        Returns
        -------
        Expansion
        """
        is_limited = np.isfinite(self.max_models) or np.isfinite(self.deadline)
        current = max(alpha, _FIRST_ALPHA) if is_limited else alpha
        try:
            self._pass_down_and_up(current)
            while current > alpha:
                # A smaller alpha may already be certified.
                current = _ALPHA_STEP * min(current, self._certified())
                if current < alpha + _ALPHA_ROOM:
                    current = alpha
                self._pass_down_and_up(current)
        except _TrainingBudgetSpent:
            # The sets that were trained are the result.
            pass
        masks = np.array(self.order, dtype=np.int64)
        return Expansion(masks, self.quality[masks], self._certified())

    def _certified(self):
        """Return the present bound on a set's gain over its best trained subset."""
        return certified_alpha(self.quality, self.monotonicity_tol)

    def _pass_down_and_up(self, alpha):
        """Train layers of sets from the top and the bottom in turn until they meet.

        A layer has all sets of one size. `alpha` is that of :meth:`_train_layer`.
        """
        n_extractors = self.n_extractors
        for depth in range(n_extractors // 2 + 1):
            self._train_layer(n_extractors - depth, alpha)
            # The layer of depth 0 is the empty set, which has a score. Layers in the
            # middle may be the same.
            if depth and depth != n_extractors - depth:
                self._train_layer(depth, alpha)

    def _train_layer(self, size, alpha):
        """Train the sets of one size, except sets with a good trained subset.

        By the relaxed sandwich property (3.3 and 3.11), a good subset is as good as the
        set can be, up to a factor of 1 + alpha.

        Parameters
        ----------
        size : int
            Number of extractors of the sets.

        alpha : float
            A subset is good if ``(1 + alpha)`` times its quality reaches the upper
            bound of the set's quality.

        Raises
        ------
        _TrainingBudgetSpent
            If sets were left out, or the time is over.
        """
        offered, upper = bounds(self.quality, self.monotonicity_tol)
        is_candidate = (self.sizes == size) & np.isnan(self.quality)
        is_covered = (1.0 + alpha) * offered >= upper
        masks = np.flatnonzero(is_candidate & ~is_covered)
        # Number of sets that may still be trained. The empty set does not count.
        room = self.max_models - (len(self.order) - 1)
        exceeds_budget = len(masks) > room
        if exceeds_budget:
            # The sets with the largest possible gain are trained.
            with np.errstate(divide="ignore"):
                possible_gain = upper[masks] / offered[masks]
            order = np.argsort(-possible_gain, kind="stable")
            masks = masks[order[: int(room)]]
        if len(masks):
            self.quality[masks] = self.evaluate(masks.tolist())
            self.order.extend(masks.tolist())
        if exceeds_budget or time.monotonic() > self.deadline:
            raise _TrainingBudgetSpent


def expand_all(n_extractors, evaluate, empty_quality):
    """Train every feature set, and return their qualities (Naive-Expand-All).

    Parameters
    ----------
    n_extractors : int

    evaluate : callable
        ``evaluate(masks)`` trains a list of sets and returns their qualities.

    empty_quality : float
        Quality of the empty set.

    Returns
    -------
    Expansion
    """
    masks = np.arange(1 << n_extractors)
    # The first mask is that of the empty set.
    quality = np.concatenate([[empty_quality], evaluate(masks[1:].tolist())])
    return Expansion(masks, quality, alpha=0.0)


def monotonicity_violations(masks, quality, tol):
    """Return trained sets that are worse than a trained subset by more than `tol`.

    Parameters
    ----------
    masks : ndarray of int of shape (n_trained,)
        The sets.

    quality : ndarray of shape (n_trained,)
        Their qualities.

    tol : float
        Difference of qualities up to which a set is not counted as worse.

    Returns
    -------
    list of (subset, superset, drop)
        Masks, and the difference of their qualities, the largest first.
    """
    violations = []
    for mask, set_quality in zip(masks, quality):
        # A subset has no bit that the set does not have. The set itself is a subset.
        subsets = np.flatnonzero((masks & ~mask) == 0)
        # Position of the best subset among the trained sets.
        best = subsets[np.argmax(quality[subsets])]
        drop = quality[best] - set_quality
        if drop > tol:
            violations.append((int(masks[best]), int(mask), float(drop)))
    # The entries are sorted by their drop.
    return sorted(violations, key=lambda violation: -violation[2])
