"""Routers whose choices are sets of members that are asked and combined."""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from skroute.base import Plan, dispatch
from skroute.metrics import sample_quality
from skroute.metrics._objectives import OF_LABELS
from skroute.routing._members import AMOUNT, MemberRouter
from skroute.routing._mixtures import validated_mixture
from skroute.routing._targets import MultiLabel, SingleLabel
from skroute.utils._compat import StrOptions, num_samples
from skroute.utils._once import EVERY, Once, once_of

# {0, 1/M, ..., 1} with the M = 10 of the paper, for the weight and for the threshold.
GRID = np.linspace(0.0, 1.0, 11)


class SingleMember(NamedTuple):
    """State of a plan in which one member answers every row: its position."""

    position: int


class CombiningRouter(MemberRouter, ClassifierMixin, BaseEstimator):
    """Base of classifiers that ask a member, look at its answer, and may ask others.

    Each choice is a set of members and their weights in the answer: ``choice_members_``,
    ``choice_weights_`` and, for several labels, ``choice_thresholds_``. The state of a plan is
    a function that asks members and has what they have answered.
    """

    _parameter_constraints: dict = {
        **MemberRouter._parameter_constraints,
        "base": [str],
        "quality": [StrOptions(set(OF_LABELS)), dict, tuple, callable, "array-like"],
        "abstain_cost": AMOUNT,
    }
    # Where it is no parameter.
    base = "auto"
    _target_kinds: tuple[type, ...] = (SingleLabel, MultiLabel)
    _qualities = ("accuracy", "balanced_accuracy", "cost matrix")

    def _asks(self):
        return "scores"

    def _least_cost(self, costs, names):
        return float(costs[possible_bases(self.base, names)].min())

    def _smallest_budget(self):
        return self.choice_costs_.min()

    def _check(self, members):
        super()._check(members)
        if self.base != "auto" and self.base not in members:
            raise ValueError(
                f"base={self.base!r} is not the name of a member; the members are "
                f'{list(members)!r}. "auto" chooses by validation.'
            )

    def _asked_answers(self, X):
        """``ask(member, rows)``: scores of a member on some rows of X, of none of them twice."""
        once = once_of(self)
        kept = Once() if once is EVERY else once
        return lambda member, rows: self._answers_of(X, member, "scores", rows, kept)

    def _worth_of_handing(self, qualities):
        """What a row counts as that is handed over, by tables of the quality of answers."""
        if self.abstain_cost is None:
            return None
        return max(float(table.max()) for table in qualities) - self.abstain_cost

    def _validated(self, budget):
        # Of rules that other rows have chosen.
        return validated_mixture(self._validated_parts, budget)

    @property
    def _multilabel(self):
        return isinstance(self._target, MultiLabel)

    def _set_choices(self, names, used, weights, thresholds=None):
        """Fitted state of the choices; makes the estimator fitted."""
        self.choice_members_ = np.asarray(used, dtype=bool)
        self.choice_weights_ = np.asarray(weights, dtype=np.float64)
        if self._multilabel:
            self.choice_thresholds_ = np.asarray(thresholds, dtype=np.float64)
        self.choices_ = list(names)

    @property
    def _member_costs(self):
        # Rules were chosen for the costs of fit: new ones act at the next.
        return self._costs_of_fit

    @property
    def choice_costs_(self):
        """Cost of each choice, all members that it asks included."""
        return np.array([self._member_costs[row].sum() for row in self.choice_members_])

    def _plan_single(self, X, name, call):
        n_rows = num_samples(X)
        member = self.member_names_.index(name)
        choice = self.choices_.index(name) if name in self.choices_ else -1
        cost = np.full(n_rows, float(self.costs_[member]))
        return Plan(np.full(n_rows, choice), cost, SingleMember(member))

    def _answer(self, plan, response):
        if isinstance(plan.state, SingleMember):
            return self._answers_of_single(plan.X, plan.state.position, response)
        return super()._answer(plan, response)

    def _answers_of_single(self, X, member, response):
        """Return the answers of one member to all rows."""
        n_rows = num_samples(X)
        if self._multilabel:
            # As the member answers where no other is asked.
            once_of(self).count(self.member_names_[member], n_rows)
            return self.estimators_[member].predict(X)
        scores = self._asked_answers(X)(member, np.arange(n_rows))
        if response == "predict":
            return self._target.labels(named_labels(scores))
        return scores

    def _answers_to(self, plan, response, rows):
        route = plan.route[rows]

        def answer(choice, some):
            used = np.flatnonzero(self.choice_members_[choice])
            scores = [plan.state(k, rows[some]) for k in used]
            return combine(scores, self.choice_weights_[choice, used])

        combined = dispatch(route, answer)
        if response == "predict_proba":
            return combined
        thresholds = self.choice_thresholds_[route, np.newaxis] if self._multilabel else None
        return self._target.labels(named_labels(combined, thresholds))

    def _score_of(self, y, answers, weight):
        if self._multilabel:
            return float(np.average(sample_quality(y, answers), weights=weight))
        return super()._score_of(y, answers, weight)


def possible_bases(base, names):
    """Positions of the members that may be the base."""
    return list(range(len(names))) if base == "auto" else [names.index(base)]


# FrugalMCT's combiner -------------------------------------------------------------------------


def named_labels(scores, threshold=None):
    """Encoded answers that scores amount to: the best label, or those above a threshold."""
    return scores.argmax(axis=1) if threshold is None else scores > threshold


def combine(scores, weights):
    """Weighted mean of the scores of the members that have a weight."""
    return sum(weight * part for weight, part in zip(weights, scores) if weight)


def search_threshold(scores, target, quality, thresholds=GRID):
    """Theta of one score matrix, best by training quality, and the quality of each row."""
    if target.ndim == 1:
        return None, quality(target, named_labels(scores))
    candidates = [quality(target, named_labels(scores, theta)) for theta in thresholds]
    best = int(np.argmax([per_row.mean() for per_row in candidates]))
    return float(thresholds[best]), candidates[best]


def search_combination(first, second, target, quality, weights=GRID, thresholds=GRID):
    """(w, theta) of two members by training quality: FrugalMCT, section 4.3.

    Returns the weight of the first, the threshold, and the quality of each row.
    """
    rows, agree = slice(None), None
    if target.ndim == 1:
        # Where both members name the same label every weight names it.
        agree = first.argmax(axis=1) == second.argmax(axis=1)
        fixed = quality(target[agree], named_labels(first[agree])) if agree.any() else np.empty(0)
        rows = np.flatnonzero(~agree)
        if len(rows) == 0:
            return 0.5, None, fixed
    best = None
    for weight in sorted(weights, key=lambda w: abs(w - 0.5)):
        combined = combine((first[rows], second[rows]), (weight, 1 - weight))
        theta, per_row = search_threshold(combined, target[rows], quality, thresholds)
        if best is None or per_row.mean() > best[2].mean():
            best = (float(weight), theta, per_row)
    if agree is not None:
        per_row = np.empty(len(target))
        per_row[agree], per_row[rows] = fixed, best[2]
        best = (*best[:2], per_row)
    return best


def search_combinations(scores, target, quality, max_members):
    """Combiner of every set of members, each grown from its best part and one more member.

    Returns a dict from frozenset to weights of all members, threshold, and quality of each row.
    """
    n_members = len(scores)
    unit = np.eye(n_members)
    found = {}
    for k in range(n_members):
        theta, per_row = search_threshold(scores[k], target, quality)
        found[frozenset([k])] = (unit[k], theta, per_row)
    for size in range(2, min(max_members, n_members) + 1):
        for members in combinations(range(n_members), size):
            best = None
            # A pair is the same from either side.
            for k in members[1:] if size == 2 else members:
                part, _, _ = found[frozenset(members) - {k}]
                weight, theta, per_row = search_combination(
                    combine(scores, part), scores[k], target, quality
                )
                if best is None or per_row.mean() > best[2].mean():
                    best = (weight * part + (1 - weight) * unit[k], theta, per_row)
            found[frozenset(members)] = best
    return found


def answer_features(scores, weights=None, multilabel=False):
    """What a predictor sees of the answers so far, ndarray of shape (n_rows, n_features)."""
    tops = [part.max(axis=1) for part in scores]
    if multilabel:
        columns = [*scores, *tops, *(part.sum(axis=1) for part in scores)]
    elif len(scores) == 1:
        columns = [scores[0], tops[0], scores[0].argmax(axis=1)]
    else:
        combined = combine(scores, weights)
        leading = np.partition(combined, -2, axis=1)[:, -2:]
        codes = [part.argmax(axis=1) for part in scores]
        agree = [code == combined.argmax(axis=1) for code in codes]
        columns = [combined, leading[:, 1] - leading[:, 0], *tops, *codes, *agree]
    return np.column_stack(columns).astype(np.float32)
