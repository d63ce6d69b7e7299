"""Choice of a first set and of how the rest of a budget is spent, on held-out rows.

Candidates are all policies from all first sets, and all sets bought for every row.
"""

from typing import Any, NamedTuple

import numpy as np

from skroute.gating._induction import Spending, spend
from skroute.utils._row_hash import GOLDEN
from skroute.utils._statistics import standard_error
from skroute.utils._tolerances import LIMIT_ROOM

# Factor of a limit: a sum of costs may exceed it by rounding.
ROOM = 1 + LIMIT_ROOM
# Mean qualities that differ by less are equal.
_EQUAL = 1e-12


class HeldOut(NamedTuple):
    """Quality of answering held-out rows with each set.

    Attributes
    ----------
    quality : ndarray of shape (n_sets, n_rows)
        Quality of the answer to each row with each set.
    weight : ndarray of shape (n_rows,)
        Weights of the rows.
    score : callable or None
        Returns the value of a scorer, of probabilities and positions of rows. None if
        quality is a mean over rows.
    proba : ndarray of shape (n_sets, n_rows, n_classes) or None
        Probabilities for `score`.
    """

    quality: np.ndarray
    weight: np.ndarray
    score: Any = None
    proba: Any = None

    def mean(self, values, rows=slice(None)):
        """Return the weighted mean over rows, which are the last axis of `values`.

        `rows` selects the weights: `values` has these rows only.
        """
        return np.average(values, axis=-1, weights=self.weight[rows])


class Candidate(NamedTuple):
    """A way to spend a budget, with its outcomes on held-out rows.

    Attributes
    ----------
    policy : int or None
        Position of the policies. None buys the first set and nothing else.
    start : int
        The first set.
    n_left : int or None
        Purchases after it. None is any number.
    spending : Spending or None
        None if nothing else is bought.
    quality, cost : ndarray of shape (n_rows,)
        Expected quality and cost of each held-out row.
    proba : ndarray of shape (n_rows, n_classes) or None
        Probabilities that answer the rows. None if no scorer judges.
    """

    policy: int | None
    start: int
    n_left: int | None
    spending: Spending | None
    quality: np.ndarray
    cost: np.ndarray
    proba: Any


class Judgement(NamedTuple):
    """The chosen candidate, and its quality by rows that did not choose it.

    Attributes
    ----------
    candidate : Candidate
    quality, quality_se : float
        Each half of the rows is judged by the choice of the other half. If a scorer
        judges, they are the mean of the two halves, and half of their difference.
    """

    candidate: Candidate
    quality: float
    quality_se: float


def candidates_within(held_out, policies, costs, *, budget, starts, n_left_of):
    """Return all candidates within a budget.

    Parameters
    ----------
    held_out : HeldOut
    policies : list of Policies
        Empty if nothing may be bought after the first set.
    costs : ndarray of shape (n_sets,)
    budget : float
        Largest mean cost of a row.
    starts : ndarray of int
        Positions of the sets that every row may buy first.
    n_left_of : callable
        Returns the number of purchases after a first set, None for any number.

    Returns
    -------
    fixed : list of Candidate
        Candidates that buy one set for every row, and nothing else.
    going : list of Candidate
        Candidates whose rows may go on from a first set, by a policy.
    """
    rows = np.arange(held_out.quality.shape[1])
    fixed = []
    going = []
    for start in starts:
        start = int(start)
        fixed.append(_fixed_candidate(held_out, start, costs))
        n_left = n_left_of(start)
        for position, policy in enumerate(policies):
            # The set that each row ends at. (n_prices, n_rows)
            ends = policy.ends_left(n_left)[:, start]
            spending = spend(held_out.mean(costs[ends]), budget)
            high = ends[spending.price]  # at the price
            low = ends[spending.lower]  # at the lower price
            share = spending.share
            quality = held_out.quality
            going.append(
                Candidate(
                    policy=position,
                    start=start,
                    n_left=n_left,
                    spending=spending,
                    quality=(1 - share) * quality[high, rows]
                    + share * quality[low, rows],
                    cost=(1 - share) * costs[high] + share * costs[low],
                    proba=_mixed_answers(held_out, high, low, share),
                )
            )
    return fixed, going


def _fixed_candidate(held_out, start, costs):
    """Return the candidate that buys one set for every row (`Candidate`).

    `start` is the position of the set, and `costs` are those of all sets.
    """
    n_rows = held_out.quality.shape[1]
    proba = None if held_out.score is None else held_out.proba[start]
    return Candidate(
        policy=None,
        start=start,
        n_left=0,
        spending=None,
        quality=held_out.quality[start],
        cost=np.full(n_rows, costs[start]),
        proba=proba,
    )


def _mixed_answers(held_out, high, low, share):
    """Return the probabilities that answer each row, or None if no scorer judges.

    Parameters
    ----------
    held_out : HeldOut
    high, low : ndarray of shape (n_rows,)
        The set of each row at the price, and at the lower price.
    share : float
        Share of the rows at the lower price.

    Returns
    -------
    ndarray of shape (n_rows, n_classes), or None
    """
    if held_out.score is None:
        return None
    rows = np.arange(len(high))
    # Multiples of the golden ratio are spread evenly over [0, 1), without a generator.
    is_low = (GOLDEN * rows) % 1 < share
    return held_out.proba[np.where(is_low, low, high), rows]


def first_half(n_rows):
    """Return the first of two halves of held-out rows, which judge each other."""
    return np.arange(n_rows) % 2 == 0


def judge(held_out, fixed, going):
    """Return the best candidate, judged by rows that did not choose it.

    Parameters
    ----------
    held_out : HeldOut
    fixed, going : list of Candidate
        From `candidates_within`.

    Returns
    -------
    Judgement
    """
    n_rows = held_out.quality.shape[1]
    is_first = first_half(n_rows)
    # The candidate in use is chosen by all rows.
    chosen = _best(held_out, fixed, going, np.ones(n_rows, dtype=bool))
    by_first = _best(held_out, fixed, going, is_first)
    by_second = _best(held_out, fixed, going, ~is_first)
    if held_out.score is None:
        quality = np.where(is_first, by_second.quality, by_first.quality)
        return Judgement(
            chosen,
            quality=float(held_out.mean(quality)),
            quality_se=standard_error(quality, held_out.weight),
        )
    scores = [
        held_out.score(by_second.proba[is_first], is_first),
        held_out.score(by_first.proba[~is_first], ~is_first),
    ]
    return Judgement(
        chosen,
        quality=float(np.mean(scores)),
        quality_se=float(np.ptp(scores) / 2),
    )


def _best(held_out, fixed, going, rows):
    """Return the best policy on some rows, or a fixed set that leads beyond noise.

    Parameters
    ----------
    held_out : HeldOut
    fixed, going : list of Candidate
        From `candidates_within`.
    rows : ndarray of bool of shape (n_rows,)
        Rows that choose.

    Returns
    -------
    Candidate
        Of policies with equal quality, the cheapest.
    """
    best_fixed = fixed[int(np.argmax(_values(held_out, fixed, rows)))]
    if not going:
        return best_fixed
    values = _values(held_out, going, rows)
    equal = np.flatnonzero(values >= values.max() - _EQUAL)
    costs = [held_out.mean(going[position].cost) for position in equal]
    best = going[equal[int(np.argmin(costs))]]
    if held_out.score is not None:
        # A scorer says nothing of one row, so that there is no error of a lead.
        return best
    lead = best_fixed.quality[rows] - best.quality[rows]
    noise = standard_error(lead, held_out.weight[rows])
    if held_out.mean(lead, rows) > noise:
        return best_fixed
    return best


def _values(held_out, candidates, rows):
    """Return the quality of candidates on some rows (booleans), (n_candidates,)."""
    if held_out.score is None:
        quality = np.array([candidate.quality[rows] for candidate in candidates])
        return held_out.mean(quality, rows)
    return np.array(
        [held_out.score(candidate.proba[rows], rows) for candidate in candidates]
    )


def buys_on(candidate, policies):
    """Return True if rows may buy something after the first set of a candidate.

    `policies` are those of `candidates_within`.
    """
    if candidate.policy is None or candidate.n_left == 0:
        return False
    policy = policies[candidate.policy]
    ends = policy.ends_left(candidate.n_left)[:, candidate.start]
    prices = [candidate.spending.price, candidate.spending.lower]
    return bool((ends[prices] != candidate.start).any())
