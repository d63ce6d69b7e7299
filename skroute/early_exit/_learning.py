"""Order, thresholds and how far to go with them: what QWYC learns from rows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skroute.base import note_failure
from skroute.early_exit._calibration import (
    Tradeoff,
    allowed_wrong,
    fewest_rows,
    fixed_sequence,
    hold_out,
    judge,
    upper_bound,
)
from skroute.early_exit._order import qwyc_order
from skroute.early_exit._thresholds import (
    doubtful,
    full_answers,
    lagrangian_path,
    never,
    running_values,
    widened,
)
from skroute.early_exit._votes import vote_path
from skroute.utils._compat import num_samples
from skroute.utils._warn import warn

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

# The order search: errors it may make in all, at least, and as a share of what alpha allows;
# over how many errors it averages. Chosen on splits of the training rows of Adult,
# Covertype and Letter.
SEARCH_ERRORS = 80
SEARCH_SHARE = 1 / 3
SEARCH_SPREAD = 10
# Doubt about the full ensemble's answer while thresholds are fitted; chosen likewise.
SOFTNESS = 0.01


@dataclass(frozen=True)
class Recipe:
    """How order and policies are learned from the scores of the members.

    Attributes
    ----------
    alpha : float or ndarray of shape (n_classes,)
        Share of all rows that may be answered otherwise, or of the rows of each answer.

    order, stopping, n_jobs
        As for :class:`~skroute.early_exit.QWYCEnsemble`.

    use_lo, use_hi : bool
        Which thresholds there are.

    never : bool
        Whether every member is evaluated on every row.
    """

    alpha: Any
    order: object
    stopping: str
    n_jobs: object
    use_lo: bool
    use_hi: bool
    never: bool

    def settled(self, n_members, rng):
        """The recipe with a random or given order resolved."""
        if not isinstance(self.order, str):
            order = np.asarray(self.order)
            if order.ndim != 1 or not np.array_equal(np.sort(order), np.arange(n_members)):
                raise ValueError(
                    f"order must be a permutation of 0, ..., {n_members - 1} (the ensemble has "
                    f"{n_members} members) or a name, got {self.order!r}."
                )
            return replace(self, order=order.astype(np.int64))
        if self.order == "random":
            return replace(self, order=rng.permutation(n_members))
        return self

    def learn(self, scores, offset, beta, costs, task=None):
        """Order, policies from cautious to hurried, and what they were fitted on.

        Parameters
        ----------
        scores : ndarray of shape (n_members, n_samples, n_outputs), dtype=float32
        offset : ndarray of shape (n_outputs,)
        beta : float
        costs : ndarray of shape (n_members,)
        task : FitTask, default=None
            Gets a step for each position of the order search.

        Returns
        -------
        order : ndarray of shape (n_members,), dtype=int64
        policies : list of (lo, hi)
        values, bad : ndarray of shape (n_members, n_samples)
            From :func:`running_values`.
        """

        def on_position():
            if task is not None:
                with task.step("position"):
                    pass

        share, weights = self._errors(scores, offset, beta)
        order = self._order(scores, offset, beta, costs, share, on_position)
        values, bad = running_values(scores, order, offset, beta)
        if self.stopping == "votes" and not self.never:
            prices = costs.sum() * VOTE_PRICES
            sides = self.use_lo, self.use_hi
            path = vote_path(scores[order], offset, beta, costs[order], prices, *sides)
            return order, _from_never(values, path), values, bad
        policies = self._policies(values, bad, costs[order], beta, weights)
        return order, policies, values, bad

    def _errors(self, scores, offset, beta):
        """Share of all rows that may be answered otherwise, and what errors count for."""
        if np.ndim(self.alpha) == 0:
            return float(self.alpha), None
        answers = full_answers(scores, offset, beta)
        share = float(self.alpha[answers].mean())
        if not share:
            return share, None
        # Errors that are allowed less often count for more; on average they count as one.
        allowed = np.maximum(self.alpha * np.bincount(answers, minlength=len(self.alpha)), 1e-3)
        weight = share * len(answers) / (allowed * np.count_nonzero(self.alpha))
        if scores.shape[2] == 1:
            # A row that leaves above wrongly is one of the first class, below of the second.
            return share, np.repeat(weight[[0, -1]][:, None], len(answers), axis=1)
        return share, np.stack([weight[answers]] * 2)

    def _order(self, scores, offset, beta, costs, share, on_position):
        if not isinstance(self.order, str):
            return self.order
        if self.order == "natural":
            return np.arange(len(scores))
        if self.stopping == "votes" and self.order == "qwyc":
            # Members that count alike: nothing but their cost tells them apart.
            return np.argsort(costs, kind="stable")
        return qwyc_order(
            scores,
            offset,
            beta,
            costs,
            max(share * SEARCH_SHARE, min(SEARCH_ERRORS / scores.shape[1], 0.05)),
            self.use_lo,
            self.use_hi,
            SEARCH_SPREAD,
            self.n_jobs,
            on_position,
        )[0]

    def _policies(self, values, bad, costs, beta, weights):
        if self.never:
            return [never(len(values))]
        # Margins of several classes say who leads, not by how much that may change.
        wrong = doubtful(values, bad, beta, SOFTNESS) if self.use_lo else bad
        prices, sides = costs.sum() * PRICES, (self.use_lo, self.use_hi)
        path = lagrangian_path(values, wrong, costs, prices, *sides, weights=weights)
        return _from_never(values, path)


def _from_never(values, path):
    """Policies from "never leave early" over wider thresholds than the first to the last."""
    path = widened(values, *path[0], WIDER) + path
    return [never(len(values)), *path]


class LearnedExits(NamedTuple):
    """What was learned.

    Attributes
    ----------
    stopping : {"thresholds", "votes"}
        What was taken.

    order : ndarray of shape (n_members,), dtype=int64
        Members in the order of their evaluation.

    tradeoff : Tradeoff
        Every set of thresholds, and which one is in use.

    bound : float
        Upper bound of the disagreement; NaN where no rows were kept for it.

    bound_by_answer : ndarray of shape (n_answers,)
        The same for the rows of each answer; NaN where `alpha` says nothing about them.

    staged_disagreement : ndarray of shape (n_members,)
        Share of rows that left with another answer, up to each position.

    wrong, n_rows : ndarray of shape (n_answers,), dtype=int64
        By the full ensemble's answer, rows that got another one, and all rows.
    """

    stopping: str
    order: NDArray[np.int64]
    tradeoff: Tradeoff
    bound: float
    bound_by_answer: NDArray[np.float64]
    staged_disagreement: NDArray[np.float64]
    wrong: NDArray[np.int64]
    n_rows: NDArray[np.int64]

    def of(self, classes):
        """Share of each class's rows that got another answer, and its upper bound."""
        with np.errstate(invalid="ignore"):
            found = self.wrong / self.n_rows, self.bound_by_answer
        # An ensemble of one class answers with the last of two.
        return tuple(values[-len(classes) :] for values in found)


def shares_of(alpha, classes):
    """The parameter `alpha` as a number, or as one for each class.

    Parameters
    ----------
    alpha : float or mapping from label to float
    classes : ndarray of shape (n_classes,)

    Returns
    -------
    float or ndarray of shape (max(2, n_classes),)

    Raises
    ------
    ValueError
        If a label has no share, a share no label, or a share is not from 0 to 1.
    """
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


def check_supported(engine, mode, stopping):
    """Refuse, for several classes, what needs two."""
    if engine.n_outputs > 1 and mode == "negative":
        raise ValueError(
            "mode='negative' needs two classes: there is no negative class among "
            f"{engine.n_outputs}. Use mode='both'."
        )
    if stopping == "votes" and not counts_alike(engine):
        raise ValueError(
            "stopping='votes' needs members that count alike, as those of a forest or of bagging, "
            "and not of boosting or with weights. Use stopping='auto' or 'thresholds'."
        )


def counts_alike(engine):
    """Whether the answer is the mean, or the majority, of members with the same weight."""
    return bool(engine.votes) and np.ptp(engine.weights) == 0


def possible_stopping(engine, stopping, order):
    """The parameter `stopping`, "auto" only where there is something to choose from."""
    if stopping != "auto":
        return stopping
    free = isinstance(order, str) and order == "qwyc"
    return "auto" if free and counts_alike(engine) else "thresholds"


def learn_exits(engine, recipe, share, limits, X, X_calibration, costs, rng, task, classes):
    """Optimise order and thresholds on rows, and choose among the thresholds.

    Parameters
    ----------
    engine : Engine
    recipe : Recipe
        Settled.

    share : float
        Share of `X` to hold out where `X_calibration` is None.

    limits : (float, bool)
        Confidence, and whether the bound must hold with it.

    X, X_calibration : indexable
        Rows to learn from; rows that nothing else has used, or None.

    costs : ndarray of shape (n_members,)
    rng : RandomState
    task : FitTask
    classes : ndarray of shape (n_classes,)

    Returns
    -------
    LearnedExits
    """
    n_rows = num_samples(X)
    with note_failure("the ensemble", n_rows, "scoring members"):
        scores = engine.scores(X)
    begin = engine.offset, engine.beta
    known, n_answers = (*begin, costs), max(2, engine.n_outputs)
    held_out = None
    if X_calibration is not None:
        held_out = engine.scores(X_calibration)
    else:
        train, apart = hold_out(n_rows, share, rng, full_answers(scores, *begin))
        if apart is not None:
            held_out, scores = scores[:, apart], scores[:, train]
    if recipe.stopping == "auto":
        # Folds judge what all rows chose, which is one of two.
        with task.step("thresholds or votes"):
            recipe = _better_stopping(recipe, scores, *known, rng, n_answers)
    n_positions = engine.n_members - 1 if isinstance(recipe.order, str) else 0
    with task.step("order and thresholds", n_positions) as step:
        order, thresholds, values, bad = recipe.learn(scores, *known, step)
    in_sample = held_out is None
    if not in_sample:
        values, bad = running_values(held_out, order, *begin)
    answers = full_answers(scores if in_sample else held_out, *begin)
    judged = judge(thresholds, values, bad, np.cumsum(costs[order]), answers, n_answers)
    chosen, bounds = _choose(judged, recipe.alpha, limits, in_sample, classes)
    n_rows = judged.n_rows.sum()
    n_wrong = judged.by_answer.sum(axis=1)
    per_answer = np.ndim(recipe.alpha) > 0
    return LearnedExits(
        recipe.stopping,
        order,
        Tradeoff(thresholds, judged.cost / n_rows, n_wrong / n_rows, chosen),
        float(bounds.max()),
        bounds if per_answer else np.full(n_answers, np.nan),
        np.cumsum(judged.by_position[chosen]) / n_rows,
        judged.by_answer[chosen],
        judged.n_rows,
    )


def _better_stopping(recipe, scores, offset, beta, costs, rng, n_answers):
    """The recipe with what costs less on rows that it was not learned from: thresholds or votes."""
    n_rows = scores.shape[1]
    if recipe.never or n_rows < FEWEST_TO_COMPARE:
        return replace(recipe, stopping="thresholds")
    answers = full_answers(scores, offset, beta)
    fit, apart = hold_out(n_rows, COMPARED_ON, rng, answers)
    found = []
    for stopping in ("thresholds", "votes"):
        one = replace(recipe, stopping=stopping)
        order, policies, _, _ = one.learn(scores[:, fit], offset, beta, costs)
        values, bad = running_values(scores[:, apart], order, offset, beta)
        spent = np.cumsum(costs[order])
        judged = judge(policies, values, bad, spent, answers[apart], n_answers)
        chosen, _ = _choose(judged, recipe.alpha, None, True, None)
        found.append((judged.cost[chosen], one))
    return min(found, key=lambda one: one[0])[1]


def _choose(judged, alpha, limits, in_sample, classes):
    """Thresholds in use, and the upper bounds of what they change: of all rows or by answer."""
    counts, n_rows, shares = judged.so_far, judged.n_rows, np.atleast_1d(alpha)
    if np.ndim(alpha) == 0:
        counts, n_rows = counts.sum(axis=1, keepdims=True), n_rows.sum(keepdims=True)
    if in_sample:
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
        _warn_of_no_exit(alpha, n_rows, guarantee, confidence, classes.tolist())
    if not chosen:
        return chosen, np.zeros(len(shares))
    return chosen, np.array([upper_bound(k, n, confidence) for k, n in zip(allowed, n_rows)])


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
        "alpha.",
    )


def warn_of_rare_answers(alpha, learned, classes, confidence):
    """Say so where many rows of a rare answer may be answered otherwise.

    Nothing is said where the calibration rows show that few of them are.

    Parameters
    ----------
    alpha : float or ndarray
        As from :func:`shares_of`.

    learned : LearnedExits
    classes : ndarray of shape (n_classes,)
    confidence : float
    """
    if np.ndim(alpha) or not learned.tradeoff.chosen:
        return
    n_rows, found = learned.n_rows.sum(), []
    for label, wrong, n in zip(classes.tolist(), learned.wrong, learned.n_rows):
        may_change = min(1.0, alpha * n_rows / n) if n else 0.0
        if may_change <= MOST_OF_AN_ANSWER:
            continue
        if not np.isnan(learned.bound) and upper_bound(wrong, n, confidence) <= MOST_OF_AN_ANSWER:
            continue
        found.append((-may_change, label, wrong, n))
    if found:
        share, label, wrong, n = min(found, key=lambda one: one[0])
        more = f" {len(found) - 1} more classes are alike." if len(found) > 1 else ""
        warn(
            f"alpha={alpha!r} is a share of all rows: of the rows that the full ensemble answers "
            f"with {label!r}, {n} of {n_rows}, it is {-share:.0%}, and {wrong} of these {n} got "
            f"another answer.{more} Give a share for each answer, "
            "alpha=dict.fromkeys(classes, share), to keep those of rare classes.",
        )
