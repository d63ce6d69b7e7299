"""The lattice of feature sets: which sets to train, and what training some proves of the rest.

A set is an integer bit mask: bit ``j`` stands for feature ``j``. Arrays over the lattice
are indexed by the mask, so the lattice of `k` features is an array of ``2 ** k`` entries.
"""

import time
from typing import NamedTuple

import numpy as np

MAX_LATTICE_FEATURES = 20
"""More features than this and the arrays over the lattice no longer fit a small machine."""

NO_FEATURES = "(none)"
"""Name of the set that computes nothing."""

_FIRST_ALPHA = 2.0
_ALPHA_STEP = 0.9


class Expansion(NamedTuple):
    """What a lattice search has trained and what that guarantees.

    Attributes
    ----------
    masks : ndarray of shape (n_expanded,), dtype=int64
        The sets that were trained, in the order of training.

    quality : ndarray of shape (n_expanded,), dtype=float64
        Their qualities.

    alpha : float
        Smallest `a` for which the trained sets prove that every set `t` of the lattice
        has a trained subset `s` with ``(1 + a) * quality(s) >= quality(t)``.
    """

    masks: np.ndarray
    quality: np.ndarray
    alpha: float


def popcount(masks):
    """Number of features in each set.

    Parameters
    ----------
    masks : array-like of int
        Bit masks.

    Returns
    -------
    ndarray of int64
    """
    return np.bitwise_count(np.asarray(masks, dtype=np.int64)).astype(np.int64)


def members(mask):
    """Features of one set, in rising order.

    Parameters
    ----------
    mask : int
        Bit mask.

    Returns
    -------
    list of int
    """
    mask = int(mask)
    return [j for j in range(mask.bit_length()) if mask >> j & 1]


def set_name(names, mask):
    """Name of a set.

    Parameters
    ----------
    names : list of str
        The features.

    mask : int
        Bit mask.

    Returns
    -------
    str
    """
    return " + ".join(names[j] for j in members(mask)) or NO_FEATURES


def indicator(masks, n_features):
    """Sets as rows of a boolean matrix.

    Parameters
    ----------
    masks : array-like of int of shape (n_sets,)
        Bit masks.

    n_features : int
        Number of features.

    Returns
    -------
    ndarray of shape (n_sets, n_features), dtype=bool
    """
    masks = np.asarray(masks, dtype=np.int64)
    return (masks[:, None] >> np.arange(n_features) & 1).astype(bool)


def subset_max(values):
    """Largest value over all subsets of each set, itself included.

    Parameters
    ----------
    values : ndarray of shape (2 ** k,)
        A value per mask; ``-inf`` where there is none.

    Returns
    -------
    ndarray of shape (2 ** k,)
    """
    out = values.copy()
    for bit in range(len(out).bit_length() - 1):
        pairs = out.reshape(-1, 2, 1 << bit)
        np.maximum(pairs[:, 1], pairs[:, 0], out=pairs[:, 1])
    return out


def superset_min(values):
    """Smallest value over all supersets of each set, itself included.

    Parameters
    ----------
    values : ndarray of shape (2 ** k,)
        A value per mask; ``inf`` where there is none.

    Returns
    -------
    ndarray of shape (2 ** k,)
    """
    out = values.copy()
    for bit in range(len(out).bit_length() - 1):
        pairs = out.reshape(-1, 2, 1 << bit)
        np.minimum(pairs[:, 0], pairs[:, 1], out=pairs[:, 0])
    return out


def bounds(quality, monotonicity_tol):
    """What the trained sets say about the quality of every set.

    Parameters
    ----------
    quality : ndarray of shape (2 ** k,)
        Quality of each trained set, NaN for the others.

    monotonicity_tol : float
        The `e` of relaxed monotonicity (Axiom 3.10): a subset is better by `e` at most.

    Returns
    -------
    offered : ndarray of shape (2 ** k,)
        Best quality of a trained subset: what one gets instead of the set, for no more
        cost.

    upper : ndarray of shape (2 ** k,)
        Smallest quality of a trained superset, plus `e`: the set cannot be better.
    """
    trained = ~np.isnan(quality)
    offered = subset_max(np.where(trained, quality, -np.inf))
    upper = superset_min(np.where(trained, quality, np.inf)) + monotonicity_tol
    return offered, upper


def sandwiched(offered, upper, alpha):
    """Relaxed sandwich property (3.3 and 3.11) for the whole lattice at once.

    A set `t` between trained sets ``s < t < r`` with
    ``(1 + alpha) A_s >= A_r + e`` needs no training: `s` is never more expensive and within the
    factor. The best `s` and the smallest `r` decide, and those are what `bounds` returns.

    The covering property (3.4) is this rule met by all parents of one set: when trained
    sets ``r_1, ...`` contain `s`, cover all features and are each dominated by `s`, every
    parent of `s` lies between `s` and some ``r_i``. Reading the rule off the arrays
    instead of walking from neighbour to neighbour finds the larger sets that lie inside
    no single ``r_i`` although the walk upwards from `s` has ended.

    Parameters
    ----------
    offered, upper : ndarray of shape (2 ** k,)
        From `bounds`.

    alpha : float
        Quality may be lower by the factor ``1 + alpha``.

    Returns
    -------
    ndarray of shape (2 ** k,), dtype=bool
        Of interest for sets that are not trained.
    """
    return (1.0 + alpha) * offered >= upper


def certified_alpha(quality, monotonicity_tol):
    """Smallest alpha that the sets trained so far guarantee.

    Parameters
    ----------
    quality : ndarray of shape (2 ** k,)
        Quality of each trained set, NaN for the others.

    monotonicity_tol : float
        Tolerance of monotonicity.

    Returns
    -------
    float
        0 when every set is trained or proven no better; infinite when nothing is proven.
    """
    missing = np.isnan(quality)
    offered, upper = bounds(quality, monotonicity_tol)
    offered, upper = offered[missing], upper[missing]
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
    n_features : int
        Number of features, at most ``MAX_LATTICE_FEATURES``.

    evaluate : callable
        Called as ``evaluate(masks)`` with a list of sets that do not depend on each
        other; returns their qualities. Never called twice with the same set, and not
        with the empty set.

    empty_quality : float
        Quality of answering without any feature.

    monotonicity_tol : float, default=0.0
        A subset may be better than a superset by this much.

    max_models : int, default=None
        Train at most this many sets.

    max_seconds : float, default=None
        Start no further layer after this many seconds.
    """

    def __init__(
        self,
        n_features,
        evaluate,
        empty_quality,
        *,
        monotonicity_tol=0.0,
        max_models=None,
        max_seconds=None,
    ):
        self.n_features = n_features
        self.evaluate = evaluate
        self.monotonicity_tol = monotonicity_tol
        self.max_models = np.inf if max_models is None else max_models
        self.deadline = np.inf if max_seconds is None else time.monotonic() + max_seconds
        self.quality = np.full(1 << n_features, np.nan)
        self.quality[0] = empty_quality
        self.sizes = popcount(np.arange(1 << n_features))
        self.order = [0]
        self._bounds = None

    def _train(self, masks, priority):
        """Train `masks`, the most valuable first where the budget does not allow all."""
        room = self.max_models - (len(self.order) - 1)
        cut = len(masks) > room
        if cut:
            masks = masks[np.argsort(-priority, kind="stable")[: int(room)]]
        if len(masks):
            self.quality[masks] = self.evaluate(masks.tolist())
            self.order.extend(masks.tolist())
            self._bounds = None
        if cut or time.monotonic() > self.deadline:
            raise _Spent

    def _layer(self, size, alpha):
        if self._bounds is None:
            self._bounds = bounds(self.quality, self.monotonicity_tol)
        offered, upper = self._bounds
        wanted = (self.sizes == size) & np.isnan(self.quality)
        wanted &= ~sandwiched(offered, upper, alpha)
        masks = np.flatnonzero(wanted)
        if len(masks):
            with np.errstate(divide="ignore"):
                self._train(masks, upper[masks] / offered[masks])

    def pass_down_and_up(self, alpha):
        """One search: layers from the top and from the bottom in turn until they meet."""
        k = self.n_features
        for depth in range(k // 2 + 1):
            self._layer(k - depth, alpha)
            if depth and depth != k - depth:
                self._layer(depth, alpha)

    def run(self, alpha):
        """Search for `alpha`; under a training budget, progressively down to it.

        With a training budget the search starts at a large alpha and lowers it in small
        steps while the budget lasts (the paper's progressive mode). By Property 3.9 no
        training is wasted, and nothing is trained twice.

        Parameters
        ----------
        alpha : float
            Where to stop.

        Returns
        -------
        Expansion
        """
        limited = np.isfinite(self.max_models) or np.isfinite(self.deadline)
        now = max(alpha, _FIRST_ALPHA) if limited else alpha
        try:
            self.pass_down_and_up(now)
            while now > alpha:
                # What is certified already needs no pass of its own.
                now = _ALPHA_STEP * min(now, self.certified())
                now = alpha if now < alpha + 1e-3 else now
                self.pass_down_and_up(now)
        except _Spent:
            pass
        masks = np.array(self.order, dtype=np.int64)
        return Expansion(masks, self.quality[masks], self.certified())

    def certified(self):
        return certified_alpha(self.quality, self.monotonicity_tol)


def expand_all(n_features, evaluate, empty_quality):
    """Train every set (Naive-Expand-All).

    Parameters
    ----------
    n_features : int
        Number of features.

    evaluate : callable
        As in `LatticeSearch`.

    empty_quality : float
        Quality of answering without any feature.

    Returns
    -------
    Expansion
    """
    masks = np.arange(1 << n_features)
    quality = np.concatenate([[empty_quality], evaluate(masks[1:].tolist())])
    return Expansion(masks, quality, 0.0)


def monotonicity_violations(masks, quality, tol):
    """Trained sets that a trained subset beats by more than `tol`.

    Parameters
    ----------
    masks : ndarray of shape (n_sets,), dtype=int64
        The trained sets.

    quality : ndarray of shape (n_sets,)
        Their qualities.

    tol : float
        Differences up to this are not reported.

    Returns
    -------
    list of (int, int, float)
        ``(subset, superset, drop)`` with the best subset of each superset that is beaten,
        the largest drop first.
    """
    pairs = []
    for start in range(0, len(masks), 256):
        block = masks[start : start + 256]
        inside = (masks[None, :] & ~block[:, None]) == 0
        best = np.argmax(np.where(inside, quality[None, :], -np.inf), axis=1)
        drop = quality[best] - quality[start : start + 256]
        for row in np.flatnonzero(drop > tol):
            pairs.append((int(masks[best[row]]), int(block[row]), float(drop[row])))
    return sorted(pairs, key=lambda pair: -pair[2])


def set_coefficients(masks, coef):
    """Cost polynomials of sets: the sum of those of their features (equation 1).

    Parameters
    ----------
    masks : ndarray of shape (n_sets,), dtype=int64
        The sets.

    coef : ndarray of shape (n_features, degree + 1)
        Cost polynomials, lowest degree first.

    Returns
    -------
    ndarray of shape (n_sets, degree + 1)
    """
    total = np.zeros((len(masks), coef.shape[1]))
    # Feature by feature in one fixed order, so that a set's cost is never below that of
    # a subset by rounding: adding a non-negative number is monotone in floating point.
    for j in range(len(coef)):
        total[(masks >> j & 1).astype(bool)] += coef[j]
    return total


def candidate_sets(masks, quality, coef=None):
    """Sets that some size and budget may choose (Algorithm 1, Properties 3.6 and 3.7).

    A set goes when a kept one is at least as good and, at every size, not more expensive.
    `alpha` plays no part here: it is spent in the sandwich rule, and approximate
    dominance does not compose.

    Parameters
    ----------
    masks : ndarray of shape (n_sets,), dtype=int64
        The trained sets.

    quality : ndarray of shape (n_sets,)
        Their qualities.

    coef : ndarray of shape (n_sets, degree + 1), default=None
        Their cost polynomials. None when costs are not polynomials: then only a subset
        is known to be cheaper (Property 3.6).

    Returns
    -------
    ndarray of shape (n_kept,), dtype=int64
        Positions of the kept sets, by rising quality.
    """
    keys = [masks, popcount(masks)]
    if coef is not None:
        # A dominating curve is nowhere above the other, so it comes first among equals.
        keys.extend(np.polynomial.polynomial.polyval([0.0, 1.0, 30.0, 1e3, 1e5], coef.T).T)
    order = np.lexsort((*keys, -quality))
    if coef is None:
        kept = []
        for i in order:
            before = masks[kept]
            if not np.any((before & ~masks[i]) == 0):
                kept.append(i)
        kept = np.array(kept, dtype=np.int64)
    else:
        from skroute.feature_sets._kernels import undominated

        ordered = np.ascontiguousarray(coef[order], dtype=np.float64)
        kept = order[undominated(ordered, quality[order])]
    return kept[::-1]
