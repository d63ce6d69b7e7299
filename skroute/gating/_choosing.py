"""Choice of a first set and of a policy for the rest of a budget, on held-out rows.

A candidate is a first set with a policy of later purchases, or a *fixed* set: every row
buys it, and nothing else.
"""

from typing import Any, NamedTuple

import numpy as np

from skroute.gating._induction import Spending, spend
from skroute.utils._row_hash import GOLDEN
from skroute.utils._statistics import standard_error
from skroute.utils._tolerances import LIMIT_ROOM

# Factor by which sums of costs may exceed a limit, since rounding may raise the sums.
ROOM = 1 + LIMIT_ROOM
# Mean qualities that differ by less are equal: the difference is rounding.
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
        ``score(proba, rows)`` returns a scorer's value of the class probabilities of
        some rows (positions or a mask). None if quality is a mean over rows.
    proba : ndarray of shape (n_sets, n_rows, n_classes) or None
        Class probabilities with each set, for `score`. None without a scorer.
    """

    quality: np.ndarray
    weight: np.ndarray
    score: Any = None
    proba: Any = None

    def mean(self, values, rows=slice(None)):
        """Return the weighted mean over rows, which are the last axis of `values`.

        `values` has only the rows that `rows` selects. By default these are all rows.
        """
        return np.average(values, axis=-1, weights=self.weight[rows])


class Candidate(NamedTuple):
    """First set and policy of later purchases, with their outcomes on held-out rows.

    Attributes
    ----------
    policy : int or None
        Position of the policies in the list of policies. None: the first set is bought
        and nothing else.
    start : int
        Position of the first set.
    n_left : int or None
        Largest number of purchases after the first set. None is any number. 0 for a
        fixed set.
    spending : Spending or None
        The two prices at which rows buy, and the share of the rows at the lower one.
        None if `policy` is None.
    quality, cost : ndarray of shape (n_rows,)
        Expected quality and cost of each held-out row.
    proba : ndarray of shape (n_rows, n_classes) or None
        Class probabilities that answer the rows. None without a scorer.
    """

    policy: int | None
    start: int
    n_left: int | None
    spending: Spending | None
    quality: np.ndarray
    cost: np.ndarray
    proba: Any


class Judgement(NamedTuple):
    """The chosen candidate, and its estimated quality on new rows.

    Attributes
    ----------
    candidate : Candidate
        The candidate that all held-out rows choose.
    quality, quality_se : float
        Mean quality and its standard error. Each half of the rows is answered by the
        candidate that the other half chooses. With a scorer, they are the mean of the
        scores of the two halves, and half of the difference of the scores.
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
        ``n_left_of(start)`` is the largest number of purchases after a first set, None
        for any number.

    Returns
    -------
    fixed : list of Candidate
        Candidates that buy one set for every row, and nothing else.
    by_policy : list of Candidate
        Candidates whose rows may go on from a first set, by a policy.
    """
    rows = np.arange(held_out.quality.shape[1])
    fixed = []
    by_policy = []
    for start in starts:
        start = int(start)
        fixed.append(_fixed_candidate(held_out, start, costs))
        n_left = n_left_of(start)
        for position, policy in enumerate(policies):
            # The set that each row ends at, at each dual price: (n_prices, n_rows)
            ends = policy.ends_left(n_left)[:, start]
            mean_costs = held_out.mean(costs[ends])  # (n_prices,)
            # Two dual prices, the second one lower. A share of the rows buys at the
            # lower one, so that the mean cost is the budget.
            spending = spend(mean_costs, budget)
            share = spending.share
            # The set that each row ends at, at one of two dual prices: (n_rows,)
            ends_at_price = ends[spending.price_index]
            ends_at_lower = ends[spending.lower_index]
            # The quality and cost of each row at one of two dual prices: (n_rows,)
            quality_at_price = held_out.quality[ends_at_price, rows]
            quality_at_lower = held_out.quality[ends_at_lower, rows]
            cost_at_price = costs[ends_at_price]
            cost_at_lower = costs[ends_at_lower]
            by_policy.append(
                Candidate(
                    policy=position,
                    start=start,
                    n_left=n_left,
                    spending=spending,
                    quality=(1 - share) * quality_at_price + share * quality_at_lower,
                    cost=(1 - share) * cost_at_price + share * cost_at_lower,
                    proba=_mixed_answers(held_out, ends_at_price, ends_at_lower, share),
                )
            )
    return fixed, by_policy


def _fixed_candidate(held_out, start, costs):
    """Return the `Candidate` that buys one set for every row.

    `held_out` has the outcomes, `start` is the position of the set, and `costs`
    (n_sets,) are those of all sets.
    """
    n_rows = held_out.quality.shape[1]
    # Only a scorer of the user reads probabilities. `held_out.score` is this scorer.
    proba = None if held_out.score is None else held_out.proba[start]
    return Candidate(
        policy=None,
        start=start,
        n_left=0,  # number of purchases after the set
        spending=None,
        quality=held_out.quality[start],
        cost=np.full(n_rows, costs[start]),
        proba=proba,
    )


def _mixed_answers(held_out, ends_at_price, ends_at_lower, share):
    """Return class probabilities if a share of the rows buys at the lower dual price.

    Parameters
    ----------
    held_out : HeldOut
    ends_at_price, ends_at_lower : ndarray of shape (n_rows,)
        The set that each row ends at, at the higher and at the lower price.
    share : float
        Share of the rows at the lower price.

    Returns
    -------
    ndarray of shape (n_rows, n_classes), or None
        None without a scorer, which alone needs them.
    """
    if held_out.score is None:
        return None
    rows = np.arange(len(ends_at_price))
    # The fractional parts of multiples of the golden ratio are spread evenly over
    # [0, 1), so that no random numbers are needed.
    has_lower_price = (GOLDEN * rows) % 1 < share
    ends = np.where(has_lower_price, ends_at_lower, ends_at_price)
    return held_out.proba[ends, rows]


def first_half(n_rows):
    """Return True for the rows of the first half: those at even positions, (n_rows,).

    The two halves of held-out rows judge each other.
    """
    return np.arange(n_rows) % 2 == 0


def judge(held_out, fixed, by_policy):
    """Return the best candidate, and an estimate of its quality on new rows.

    Parameters
    ----------
    held_out : HeldOut
    fixed, by_policy : list of Candidate
        Fixed sets, and candidates with a policy, from `candidates_within`.

    Returns
    -------
    Judgement
    """
    n_rows = held_out.quality.shape[1]
    is_first = first_half(n_rows)
    # The candidate that is returned is chosen by all rows.
    chosen = _best(held_out, fixed, by_policy, np.ones(n_rows, dtype=bool))
    # The candidates that each half chooses alone. They are rated on the other half.
    chosen_by_first = _best(held_out, fixed, by_policy, is_first)
    chosen_by_second = _best(held_out, fixed, by_policy, ~is_first)
    if held_out.score is None:
        quality = np.where(is_first, chosen_by_second.quality, chosen_by_first.quality)
        return Judgement(
            chosen,
            quality=float(held_out.mean(quality)),
            quality_se=standard_error(quality, held_out.weight),
        )
    scores = [
        held_out.score(chosen_by_second.proba[is_first], is_first),
        held_out.score(chosen_by_first.proba[~is_first], ~is_first),
    ]
    return Judgement(
        chosen,
        quality=float(np.mean(scores)),
        quality_se=float(np.ptp(scores) / 2),
    )


def _best(held_out, fixed, by_policy, rows):
    """Return the candidate that is best on some rows.

    This is the best candidate with a policy, unless the best fixed set is better by
    more than a standard error.

    Parameters
    ----------
    held_out : HeldOut
    fixed, by_policy : list of Candidate
        Fixed sets, and candidates with a policy, from `candidates_within`.
    rows : ndarray of bool of shape (n_rows,)
        The rows on which candidates are compared.

    Returns
    -------
    Candidate
        If several candidates with a policy have the same quality, the cheapest.
    """
    fixed_values = _values(held_out, fixed, rows)
    best_fixed = fixed[int(np.argmax(fixed_values))]
    if not by_policy:
        return best_fixed
    values = _values(held_out, by_policy, rows)
    # Positions in `by_policy` of the candidates of best quality.
    equal = np.flatnonzero(values >= values.max() - _EQUAL)
    costs = [held_out.mean(by_policy[position].cost) for position in equal]
    cheapest = equal[int(np.argmin(costs))]
    best = by_policy[cheapest]
    if held_out.score is not None:
        # A scorer has no value for a single row, so that a difference of two candidates
        # has no standard error.
        return best
    lead = best_fixed.quality[rows] - best.quality[rows]
    noise = standard_error(lead, held_out.weight[rows])
    if held_out.mean(lead, rows) > noise:
        return best_fixed
    return best


def _values(held_out, candidates, rows):
    """Return the mean quality of candidates on some rows, shape (n_candidates,).

    `rows` are booleans of shape (n_rows,). If `held_out` has a scorer, the results are
    the scorer's values.
    """
    if held_out.score is None:
        quality = np.array([candidate.quality[rows] for candidate in candidates])
        return held_out.mean(quality, rows)
    return np.array(
        [held_out.score(candidate.proba[rows], rows) for candidate in candidates]
    )


def buys_on(candidate, policies):
    """Return True if rows may buy something after the first set of a candidate.

    `policies` is the list from which `candidates_within` made the candidate.
    """
    if candidate.policy is None or candidate.n_left == 0:
        return False
    policy = policies[candidate.policy]
    # The set that each held-out row ends at. (n_prices, n_rows)
    ends = policy.ends_left(candidate.n_left)[:, candidate.start]
    spending = candidate.spending
    price_indices = [spending.price_index, spending.lower_index]
    return bool((ends[price_indices] != candidate.start).any())
