"""FrugalMCT's label combiner: scores of several members made into one label set.

Scores are arrays of shape (n_samples, n_labels), 0 where a member did not name a label.
A target is an indicator matrix of that shape (multi-label) or the positions of the true
labels, shape (n_samples,) (single-label, the one-label case).
"""

from itertools import combinations

import numpy as np

# {0, 1/M, ..., 1} with the M = 10 of the paper, for the weight and for the threshold.
GRID = np.linspace(0.0, 1.0, 11)


def named_labels(scores, threshold=None):
    """Labels that scores amount to.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_labels)

    threshold : float or ndarray of shape (n_samples, 1), default=None
        Theta. None means single-label.

    Returns
    -------
    ndarray
        Indicator matrix of the labels above the threshold, or the position of the best
        label, shape (n_samples,).
    """
    if threshold is None:
        return scores.argmax(axis=1)
    return scores > threshold


def combine(scores, weights):
    """Weighted mean of the members' scores.

    Parameters
    ----------
    scores : sequence of ndarray of shape (n_samples, n_labels)

    weights : sequence of float
        One for each; they sum to 1.

    Returns
    -------
    ndarray of shape (n_samples, n_labels)
    """
    return sum(weight * part for weight, part in zip(weights, scores))


def search_threshold(scores, target, quality, thresholds=GRID):
    """Theta of one score matrix by training quality.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_labels)

    target : ndarray
        True labels, see the module.

    quality : callable
        ``quality(target, answers) -> ndarray of shape (n_samples,)``.

    thresholds : sequence of float, default=GRID
        Candidates; of equally good ones the first is taken.

    Returns
    -------
    threshold : float or None
        None in the single-label case, which has none.
    per_row : ndarray of shape (n_samples,)
        Quality of each row with it.
    """
    if target.ndim == 1:
        return None, quality(target, named_labels(scores))
    candidates = [quality(target, named_labels(scores, theta)) for theta in thresholds]
    best = int(np.argmax([per_row.mean() for per_row in candidates]))
    return float(thresholds[best]), candidates[best]


def search_combination(first, second, target, quality, weights=GRID, thresholds=GRID):
    """(w, theta) of two members by training quality: FrugalMCT, section 4.3.

    The combined score is ``w * first + (1 - w) * second``.

    Parameters
    ----------
    first, second : ndarray of shape (n_samples, n_labels)
        Scores of the base and of the add-on.

    target : ndarray
        True labels, see the module.

    quality : callable
        ``quality(target, answers) -> ndarray of shape (n_samples,)``.

    weights, thresholds : sequence of float, default=GRID
        Candidates. Of equally good pairs the one with the weight nearest 1/2 is taken.

    Returns
    -------
    weight : float
    threshold : float or None
        None in the single-label case.
    per_row : ndarray of shape (n_samples,)
        Quality of each row with them.
    """
    rows = slice(None)
    fixed = np.empty(0)
    if target.ndim == 1:
        # Where both members name the same label every weight names it.
        agree = first.argmax(axis=1) == second.argmax(axis=1)
        rows = np.flatnonzero(~agree)
        fixed = quality(target[agree], named_labels(first[agree])) if agree.any() else fixed
        if len(rows) == 0:
            return 0.5, None, fixed
    best = None
    for weight in sorted(weights, key=lambda w: abs(w - 0.5)):
        combined = combine((first[rows], second[rows]), (weight, 1 - weight))
        theta, per_row = search_threshold(combined, target[rows], quality, thresholds)
        if best is None or per_row.mean() > best[2].mean():
            best = (float(weight), theta, per_row)
    if target.ndim == 1:
        per_row = np.empty(len(target))
        per_row[agree] = fixed
        per_row[rows] = best[2]
        best = (*best[:2], per_row)
    return best


def search_combinations(scores, target, quality, max_members, weights=GRID, thresholds=GRID):
    """Combiner of every set of members, each grown from its best part and one more member.

    A set of one has its own threshold; of two it has the (w, theta) of
    `search_combination`; a larger set S takes, among all its members k, the best
    combination of the combined scores of S without k and the scores of k. Since w = 1 and
    w = 0 are candidates, a set is on training rows never worse than the sets it contains
    that it was grown from.

    Parameters
    ----------
    scores : sequence of ndarray of shape (n_samples, n_labels)
        One for each member.

    target : ndarray
        True labels, see the module.

    quality : callable
        ``quality(target, answers) -> ndarray of shape (n_samples,)``.

    max_members : int
        Largest size of a set.

    weights, thresholds : sequence of float, default=GRID
        Candidates.

    Returns
    -------
    dict from frozenset of int to (ndarray of shape (n_members,), float or None, ndarray)
        Weights that sum to 1, threshold, and quality of each row; smaller sets first.
    """
    n_members = len(scores)
    unit = np.eye(n_members)
    found = {}
    for k in range(n_members):
        theta, per_row = search_threshold(scores[k], target, quality, thresholds)
        found[frozenset([k])] = (unit[k], theta, per_row)
    for size in range(2, min(max_members, n_members) + 1):
        for members in combinations(range(n_members), size):
            best = None
            # A pair is the same from either side.
            for k in members[1:] if size == 2 else members:
                part, _, _ = found[frozenset(members) - {k}]
                weight, theta, per_row = search_combination(
                    combine(scores, part), scores[k], target, quality, weights, thresholds
                )
                if best is None or per_row.mean() > best[2].mean():
                    best = (weight * part + (1 - weight) * unit[k], theta, per_row)
            found[frozenset(members)] = best
    return found
