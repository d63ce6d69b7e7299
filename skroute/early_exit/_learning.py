"""Order, thresholds and how far to go with them: what QWYC learns from rows."""

from collections.abc import Mapping
from numbers import Real
from typing import NamedTuple

import numpy as np

from skroute.base import note_failure
from skroute.early_exit._algorithms import (
    checked,
    doubtful,
    full_answers,
    is_wrong,
    lagrangian_path,
    leaving,
    never,
    qwyc_order,
    running_values,
    widened,
)
from skroute.early_exit._calibration import (
    Tradeoff,
    allowed_wrong,
    fewest_rows,
    fixed_sequence,
    hold_out,
)
from skroute.early_exit._votes import vote_path
from skroute.guarantees._means import share_upper_bound
from skroute.utils._compat import num_samples
from skroute.utils._typing import NDArray
from skroute.utils._validation import warn

# A warning says where more than this share of an answer's rows may be answered otherwise.
MOST_OF_AN_ANSWER = 0.1


# Thresholds and votes are compared on this share of the rows to learn from, if they are enough.
COMPARED_ON = 1 / 3
FEWEST_TO_COMPARE = 100

# Policies between "never leave early" and the most hurried, fixed before calibration. The
# grids are fine enough that neighbours differ by about a tenth in disagreement.
N_POLICIES = 40
# What a wrong answer costs, in evaluations of the full ensemble.
PRICES = np.geomspace(256.0, 0.5, N_POLICIES)
# The same for votes, whose errors are counted by a law in place of rows: it goes further.
VOTE_PRICES = np.geomspace(65536.0, 0.5, N_POLICIES)
# More cautious still, for rows on which the first of them is wrong too often: thresholds
# moved out by these many deviations of what is still to come.
WIDER = np.geomspace(3.0, 0.02, 16)

# The order search. Errors that it may make: so many at least that their number is known to about
# a tenth, 1 / sqrt(80); beyond that a part of what alpha allows, since thresholds are fitted anew
# once the order is known. Members are compared by the mean over 2 * 10 + 1 numbers of errors: at
# one number alone, the place of a single row decides between them. The values were chosen on splits
# of the training rows of Adult, Covertype and Letter.
SEARCH_ERRORS = 80
SEARCH_SHARE = 1 / 3
SEARCH_SPREAD = 10
# Doubt about the full ensemble's answer while thresholds are fitted, in deviations of its score:
# a threshold then depends on all rows near a tie, and decided rows stay decided. Chosen likewise.
SOFTNESS = 0.01


class Certified(NamedTuple):
    """What sets of thresholds do on rows, and which one is in use.

    Attributes
    ----------
    tradeoff : Tradeoff
    bounds : ndarray of shape (1,) or (n_answers,)
        Upper bounds of the disagreement, of all rows or of the rows of each answer, as `alpha`
        is; NaN where no rows were kept for it.

    staged_disagreement : ndarray of shape (n_members,)
        Share of rows that left with another answer, up to each position.

    wrong, n_rows : ndarray of shape (n_answers,), dtype=int64
        By the full ensemble's answer, rows that got another one, and all rows.
    """

    tradeoff: Tradeoff
    bounds: NDArray[np.float64]
    staged_disagreement: NDArray[np.float64]
    wrong: NDArray[np.int64]
    n_rows: NDArray[np.int64]


def order_of(order, engine, rng):
    """The parameter `order`: the members in order, or "qwyc", which looks for it in the scores."""
    n_members = engine.n_members
    natural, named = np.arange(n_members), isinstance(order, str)
    given = natural if named else np.asarray(order)
    if given.ndim != 1 or not np.array_equal(np.sort(given), natural):
        raise ValueError(
            f"order must be a permutation of 0, ..., {n_members - 1} (the ensemble has "
            f"{n_members} members) or a name, got {order!r}."
        )
    if engine.in_order and ((named and order == "random") or not np.array_equal(given, natural)):
        raise ValueError(
            f"order={order!r} is not possible: each exit goes on from the one before it, so "
            'that the exits of a net have one order, which "qwyc" and "natural" are.'
        )
    if engine.in_order or not named or order == "natural":
        return given.astype(np.int64)
    return rng.permutation(n_members) if order == "random" else order


def shares_of(alpha, classes):
    """The parameter `alpha` as a number, or as a float64 array with one for each class (two where
    there is one class); a ValueError where a label has no share, a share no label or no sense."""
    if not isinstance(alpha, Mapping):
        return float(alpha)
    known = classes.tolist()
    missing = [label for label in known if label not in alpha]
    unknown = [label for label in alpha if label not in known]
    if missing or unknown:
        raise ValueError(
            f"alpha must have a share for each class {known!r} and for nothing else: "
            f"{missing!r} have none, {unknown!r} are no classes. The same share for all is "
            "dict.fromkeys(classes, share)."
        )
    shares = [alpha[label] for label in known]
    for label, share in zip(known, shares):
        if not isinstance(share, Real) or isinstance(share, bool) or not 0 <= share <= 1:
            raise ValueError(f"alpha[{label!r}] must be a number from 0 to 1, got {share!r}.")
    return np.array(shares * (2 if len(shares) == 1 else 1), dtype=np.float64)


def stopping_of(engine, mode, stopping, order):
    """The parameter `stopping`, "auto" only where there is something to choose from."""
    if engine.n_outputs > 1 and mode == "negative":
        raise ValueError(
            "mode='negative' needs two classes: there is no negative class among "
            f"{engine.n_outputs}. Use mode='both'."
        )
    # Whether the answer is the mean, or the majority, of members with the same weight.
    alike = bool(engine.votes) and np.ptp(engine.weights) == 0
    if stopping == "votes" and not alike:
        raise ValueError(
            "stopping='votes' needs members that count alike, as those of a forest or of bagging, "
            "and not of boosting or with weights. Use stopping='auto' or 'thresholds'."
        )
    free = isinstance(order, str) and order == "qwyc"
    return "thresholds" if stopping == "auto" and not (free and alike) else stopping


def learn(
    scores,
    offset,
    beta,
    costs,
    *,
    alpha,
    order="qwyc",
    stopping="thresholds",
    use_lo=True,
    use_hi=True,
    never_leave=False,
    n_jobs=None,
    on_position=None,
):
    """Order and thresholds, from the scores of the members on rows: what each member adds, float32
    of shape (n_members, n_samples, n_outputs).

    `alpha` is the share of all rows that may be answered otherwise, or an array with one for each
    answer; `order` is a permutation or "qwyc"; `use_lo` and `use_hi` are which thresholds there
    are, and with `never_leave` there are none. ``on_position()`` is called after each position of
    the order search. Returns the order, thresholds from cautious to hurried, and what
    :func:`running_values` does.
    """
    sides = use_lo, use_hi
    share, weights = _errors(scores, offset, beta, alpha)
    if isinstance(order, str) and stopping == "votes":
        # Members that count alike: nothing but their cost tells them apart.
        order = np.argsort(costs, kind="stable")
    elif isinstance(order, str):
        allowed = max(share * SEARCH_SHARE, min(SEARCH_ERRORS / scores.shape[1], 0.05))
        search = allowed, *sides, SEARCH_SPREAD, n_jobs, on_position
        order = qwyc_order(scores, offset, beta, costs, *search)[0]
    values, bad = running_values(scores, order, offset, beta)
    first = never(len(values))
    if never_leave:
        return order, [first], values, bad
    if stopping == "votes":
        prices = costs.sum() * VOTE_PRICES
        path = vote_path(scores[order], offset, beta, costs[order], prices, *sides)
    else:
        # Margins of several classes say who leads, not by how much that may change.
        wrong = doubtful(values, bad, beta, SOFTNESS) if use_lo else bad
        prices = costs.sum() * PRICES
        path = lagrangian_path(values, wrong, costs[order], prices, *sides, weights=weights)
    return order, [first, *widened(values, *path[0], WIDER), *path], values, bad


def _errors(scores, offset, beta, alpha):
    """Share of all rows that may be answered otherwise, and what errors count for."""
    if np.ndim(alpha) == 0:
        return float(alpha), None
    answers = full_answers(scores, offset, beta)
    share = float(alpha[answers].mean())
    if not share:
        return share, None
    # Errors that are allowed less often count for more; on average they count as one.
    allowed = np.maximum(alpha * np.bincount(answers, minlength=len(alpha)), 1e-3)
    weight = share * len(answers) / (allowed * np.count_nonzero(alpha))
    if scores.shape[2] == 1:
        # A row that leaves above wrongly is one of the first class, below of the second.
        return share, np.repeat(weight[[0, -1]][:, None], len(answers), axis=1)
    return share, np.stack([weight[answers]] * 2)


def certify(policies, values, bad, answers, n_answers, costs, alpha, limits=None, labels=()):
    """What sets of thresholds, from cautious to hurried, change on rows, the one to use, and bounds
    of what it changes.

    `values` and `bad` are those of :func:`running_values`, `answers` those of :func:`full_answers`,
    of which there are `n_answers`, and `costs` are in evaluation order. `limits` is the confidence,
    and whether the bound must hold with it; None where the rows are those that the thresholds were
    learned from. `labels` are for a warning.
    """
    policies = [checked(policy, len(costs)) for policy in policies]
    n_rows, spent = np.bincount(answers, minlength=n_answers), np.cumsum(costs)
    cost, disagreement = np.empty(len(policies)), np.empty(len(policies))
    # Rows that these thresholds or more cautious ones answer otherwise: the count grows from
    # one to the next, as conformal risk control asks.
    so_far = np.empty((len(policies), n_answers), dtype=np.int64)
    ever = np.zeros(len(answers), dtype=bool)
    for i, policy in enumerate(policies):
        position, side = leaving(values, *policy)
        wrong = is_wrong(position, side, bad)
        ever |= wrong
        cost[i], disagreement[i] = spent[position].mean(), wrong.mean()
        so_far[i] = np.bincount(answers[ever], minlength=n_answers)
    chosen, bounds = _choose(so_far, n_rows, alpha, limits, labels)
    position, side = leaving(values, *policies[chosen])
    wrong = is_wrong(position, side, bad)
    return Certified(
        Tradeoff(policies, cost, disagreement, chosen),
        bounds,
        np.cumsum(np.bincount(position[wrong], minlength=len(costs))) / len(answers),
        np.bincount(answers[wrong], minlength=n_answers),
        n_rows,
    )


def _choose(counts, n_rows, alpha, limits, labels):
    """Thresholds in use, and the upper bounds of what they change: of all rows or by answer."""
    shares = np.atleast_1d(alpha)
    if np.ndim(alpha) == 0:
        counts, n_rows = counts.sum(axis=1, keepdims=True), n_rows.sum(keepdims=True)
    if limits is None:
        # As far as alpha goes on these rows, and nothing is promised.
        chosen = fixed_sequence(counts, (shares * n_rows).astype(np.int64))
        return max(0, chosen), np.full(len(shares), np.nan)
    # Bounds of several answers hold at the same time.
    confidence, guarantee = 1 - (1 - limits[0]) / len(shares), limits[1]
    allowed = np.array(
        [allowed_wrong(n, share, confidence, guarantee) for n, share in zip(n_rows, shares)]
    )
    # The first thresholds never leave early and are never wrong.
    chosen = max(0, fixed_sequence(counts, allowed))
    if not chosen and len(counts) > 1:
        _warn_of_no_exit(alpha, n_rows, guarantee, confidence, labels)
    if not chosen:
        return chosen, np.zeros(len(shares))
    bounds = [share_upper_bound(k, n, confidence=confidence) for k, n in zip(allowed, n_rows)]
    return chosen, np.array(bounds)


def learn_exits(engine, how, share, limits, X, X_calibration, costs, rng, task, labels):
    """Order and thresholds learned on rows, and certified on others.

    `how` has the arguments of :func:`learn`, where `stopping` may be "auto"; a `share` of `X` is
    held out where there is no `X_calibration`, of rows that nothing else has used; `limits` are
    those of :func:`certify`. Returns the stopping that is used, the order, and
    :class:`Certified`.
    """
    n_rows = num_samples(X)
    with note_failure("the ensemble", n_rows, "scoring members"):
        scores = engine.scores(X)
    begin, held_out = (engine.offset, engine.beta), None
    if X_calibration is not None:
        held_out = engine.scores(X_calibration)
    else:
        train, apart = hold_out(n_rows, share, rng, full_answers(scores, *begin))
        if apart is not None:
            held_out, scores = scores[:, apart], scores[:, train]
    if how["stopping"] == "auto":
        with task.step("thresholds or votes"):
            how = how | {"stopping": better_stopping(how, scores, *begin, costs, rng)}
    n_positions = engine.n_members - 1 if isinstance(how["order"], str) else 0
    with task.step("order and thresholds", n_positions) as step:

        def on_position():
            with step.step("position"):
                pass

        order, policies, values, bad = learn(scores, *begin, costs, **how, on_position=on_position)
    if held_out is None:
        limits, held_out = None, scores
    else:
        values, bad = running_values(held_out, order, *begin)
    answers = full_answers(held_out, *begin)
    known = answers, max(2, engine.n_outputs), costs[order], how["alpha"]
    return how["stopping"], order, certify(policies, values, bad, *known, limits, labels)


def better_stopping(how, scores, offset, beta, costs, rng):
    """What costs less on rows that it was not learned from: thresholds or votes."""
    n_rows = scores.shape[1]
    if how["never_leave"] or n_rows < FEWEST_TO_COMPARE:
        return "thresholds"
    answers = full_answers(scores, offset, beta)
    fit, apart = hold_out(n_rows, COMPARED_ON, rng, answers)
    found = {}
    for stopping in ("thresholds", "votes"):
        one = how | {"stopping": stopping}
        order, policies, _, _ = learn(scores[:, fit], offset, beta, costs, **one)
        values, bad = running_values(scores[:, apart], order, offset, beta)
        known = answers[apart], max(2, scores.shape[2]), costs[order], how["alpha"]
        tradeoff = certify(policies, values, bad, *known).tradeoff
        found[stopping] = tradeoff.cost[tradeoff.chosen]
    return min(found, key=lambda stopping: found[stopping])


def _warn_of_no_exit(alpha, n_rows, guarantee, confidence, labels):
    shares = np.atleast_1d(alpha)
    why = ""
    if np.ndim(alpha):
        at = int(np.argmin(n_rows * shares))
        # An ensemble of one class answers with the last of two.
        label = labels[max(0, at - len(shares) + len(labels))]
        may = "none may change, which no number of rows shows."
        if shares[at] > 0:
            needed = fewest_rows(shares[at], confidence, guarantee)
            may = f"{shares[at]:g} may change: that takes {needed} rows at least."
        why = f" The full ensemble gives {n_rows[at]} of them the answer {label!r}, of which {may}"
        alpha = dict(zip(labels, shares[-len(labels) :].tolist()))
    warn(
        f"No early exit keeps alpha={alpha!r} on {n_rows.sum()} "
        f"calibration rows: every member is evaluated on every row.{why} Give more rows, hold "
        "out a larger share of them, give rows that the ensemble was not fitted on, or raise "
        "alpha."
    )


def warn_of_rare_answers(alpha, certified, labels, confidence):
    """Say so where many rows of a rare answer may be answered otherwise, unless the calibration
    rows show that few of them are."""
    if np.ndim(alpha) or not certified.tradeoff.chosen:
        return
    n_rows, found, kept = certified.n_rows.sum(), [], not np.isnan(certified.bounds[0])
    for label, wrong, n in zip(labels, certified.wrong, certified.n_rows):
        may_change = min(1.0, alpha * n_rows / n) if n else 0.0
        if may_change <= MOST_OF_AN_ANSWER:
            continue
        if kept and share_upper_bound(wrong, n, confidence=confidence) <= MOST_OF_AN_ANSWER:
            continue
        found.append((-may_change, label, wrong, n))
    if found:
        share, label, wrong, n = min(found, key=lambda one: one[0])
        more = f" {len(found) - 1} more classes are alike." if len(found) > 1 else ""
        warn(
            f"alpha={alpha!r} is a share of all rows: of the rows that the full ensemble answers "
            f"with {label!r}, {n} of {n_rows}, it is {-share:.0%}, and {wrong} of these {n} got "
            f"another answer.{more} Give a share for each answer, "
            "alpha=dict.fromkeys(classes, share), to keep those of rare classes."
        )
