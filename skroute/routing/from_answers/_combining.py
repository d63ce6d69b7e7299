"""Routers whose choices are sets of members that are asked and combined."""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from skroute.base import Plan, dispatch
from skroute.base._inspection import names_best_score, predicts_best_score
from skroute.metrics import sample_quality
from skroute.metrics._objectives import OF_LABELS
from skroute.routing.parts._member_router import AMOUNT, MemberRouter
from skroute.routing.parts._mixtures import mean_of_rows, validated_mixture
from skroute.routing.parts._targets import MultiLabel, SingleLabel
from skroute.utils._cache import NO_CACHE, CallCache, cache_of
from skroute.utils._compat import StrOptions, num_samples

# {0, 1/M, ..., 1} with the M = 10 of the paper, for the weight and for the threshold.
GRID = np.linspace(0.0, 1.0, 11)
# By how much, relatively, a label must be more probable than others to be the first of them.
_HAIR = 1e-9


class MemberAnswers:
    """What members say of the rows of one call. None is asked twice for the same rows.

    Parameters
    ----------
    router : CombiningRouter
        Fitted.

    X : indexable
        Checked rows.
    """

    def __init__(self, router, X):
        cache = cache_of(router)
        self._router = router
        self._X = X
        self._kept = CallCache() if cache is NO_CACHE else cache

    def _ask(self, member, method, rows):
        return self._router._ask_member(self._X, member, method, rows, self._kept)

    def __call__(self, member, rows):
        """Return the scores of one member on some rows."""
        return self.scores(member, rows)

    def scores(self, member, rows):
        """Return the scores of one member on some rows."""
        return self._ask(member, "scores", rows)

    def labels(self, member, rows):
        """Return the encoded answers of one member: what it predicts."""
        has_own_labels = self._router._has_own_labels
        if has_own_labels is not None and has_own_labels[member]:
            return self._ask(member, "predict", rows)
        return named_labels(self.scores(member, rows))

    def probabilities(self, member, rows):
        """Return the probabilities of one member."""
        if hasattr(self._router.estimators_[member], "predict_scores"):
            return self._ask(member, "predict_proba", rows)
        return self.scores(member, rows)


class SingleMember(NamedTuple):
    """State of a plan in which one member answers every row: its position."""

    position: int


class CombiningRouter(MemberRouter, ClassifierMixin, BaseEstimator):
    """Base of classifiers that ask a member, look at its answer, and may ask others.

    Each choice is a set of members and their weights in the answer: ``choice_members_``,
    ``choice_weights_`` and, for several labels, ``choice_thresholds_``. The state of a plan is
    a `MemberAnswers`. A row whose answer is that of one member gets what the member predicts.
    """

    _parameter_constraints: dict = {
        **MemberRouter._parameter_constraints,
        "base": [str],
        "quality": [StrOptions(set(OF_LABELS)), dict, tuple, callable, "array-like"],
        "abstain_cost": AMOUNT,
        "abstain_label": "no_validation",
    }
    # Where it is no parameter.
    base = "auto"
    _target_kinds: tuple[type, ...] = (SingleLabel, MultiLabel)
    _qualities = ("accuracy", "balanced_accuracy", "cost matrix")
    # For each member, True if it must be asked for its answers: set by `_read`. None takes the
    # best scores of all members.
    _has_own_labels = None
    # Rules were chosen for the costs of fit: new ones act at the next.
    _new_costs_act_at_once = False

    def _response_method(self):
        return "scores"

    def _cheapest_plan(self, costs, names):
        return float(costs[possible_bases(self.base, names)].min())

    def _smallest_budget(self):
        return self.choice_costs_.min()

    def _check_members(self, members):
        super()._check_members(members)
        if self.base != "auto" and self.base not in members:
            raise ValueError(
                f"base={self.base!r} is not the name of a member; the members are "
                f'{list(members)!r}. "auto" chooses by validation.'
            )

    def _asked_answers(self, X):
        """Return what asks members about rows of X, and has what they have answered."""
        return MemberAnswers(self, X)

    def _response_methods_of(self, name, member, target):
        if isinstance(target, MultiLabel) or predicts_best_score(member):
            return ["scores"]
        return ["scores", "predict"]

    def _read(self, answers):
        """Return the scores of each member on the rows of `fit`, and its encoded answers.

        Answers to several labels are those that the router finds in the scores: None.
        """
        scores = answers.to("scores")
        self._has_own_labels = [
            "predict" in said
            and not names_best_score(model, said["scores"], said["predict"])
            for model, said in zip(self._members.models, answers.by_method)
        ]
        if self._multilabel:
            return scores, None
        labels = [
            said["predict"] if has_own else named_labels(said["scores"])
            for said, has_own in zip(answers.by_method, self._has_own_labels)
        ]
        return scores, labels

    def _quality_of_abstaining(self, qualities):
        """What a row counts as that abstains, by tables of the quality of answers."""
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
            cache_of(self).count_rows(self.member_names_[member], n_rows)
            return self.estimators_[member].predict(X)
        answers = MemberAnswers(self, X)
        rows = np.arange(n_rows)
        if response == "predict":
            return self._target.labels(answers.labels(member, rows))
        return self._target.probabilities(answers.probabilities(member, rows))

    def _answers_to(self, plan, response, rows):
        route = plan.route[rows]
        if response == "predict_proba":
            proba = dispatch(
                route, lambda k, some: self._mixed(plan.state, k, rows[some])
            )
            return self._target.probabilities(proba)
        if self._multilabel:
            scores = dispatch(
                route, lambda k, some: self._combined(plan.state, k, rows[some])
            )
            thresholds = self.choice_thresholds_[route, np.newaxis]
            return self._target.labels(named_labels(scores, thresholds))
        labels = dispatch(route, lambda k, some: self._named(plan.state, k, rows[some]))
        return self._target.labels(labels)

    def _combined(self, asked, choice, rows):
        """Return the combined scores of the members of a choice, all of which are asked."""
        used = np.flatnonzero(self.choice_members_[choice])
        scores = [asked.scores(k, rows) for k in used]
        return combine(scores, self.choice_weights_[choice, used])

    def _named(self, asked, choice, rows):
        """Return the encoded answers of a choice."""
        combined = self._combined(asked, choice, rows)
        single = single_member(self.choice_weights_[choice])
        return named_labels(combined) if single is None else asked.labels(single, rows)

    def _mixed(self, asked, choice, rows):
        """Return the probabilities of a choice: the weighted mean of those of its members."""
        combined = self._combined(asked, choice, rows)
        weights = self.choice_weights_[choice]
        answering = np.flatnonzero(weights)
        proba = [asked.probabilities(k, rows) for k in answering]
        mixed = combine(proba, weights[answering])
        if self._multilabel or len(answering) == 1:
            return mixed
        return with_named_on_top(mixed, named_labels(combined))

    def _score_answers(self, y, answers, weight):
        if self._multilabel:
            return float(np.average(sample_quality(y, answers), weights=weight))
        return super()._score_answers(y, answers, weight)


def possible_bases(base, names):
    """Positions of the members that may be the base."""
    return list(range(len(names))) if base == "auto" else [names.index(base)]


# FrugalMCT's combiner -------------------------------------------------------------------------


def single_member(weights):
    """Return the position of the only member that has a weight, None if there are several."""
    weighted = np.flatnonzero(weights)
    return int(weighted[0]) if len(weighted) == 1 else None


def with_named_on_top(proba, labels):
    """Return probabilities in which the label that is named is the most probable one.

    Where recorded scores name another label, its probability is raised to a hair above the
    largest, as `RecordedClassifier` does.
    """
    below = np.flatnonzero(proba.argmax(axis=1) != labels)
    if not len(below):
        return proba
    raised = proba.astype(np.float64)
    raised[below, labels[below]] = raised[below].max(axis=1) * (1 + _HAIR)
    return raised


def named_labels(scores, threshold=None):
    """Encoded answers that scores amount to: the best label, or those above a threshold."""
    return scores.argmax(axis=1) if threshold is None else scores > threshold


def combine(scores, weights):
    """Weighted mean of the scores of the members that have a weight."""
    return sum(weight * part for weight, part in zip(weights, scores) if weight)


def search_threshold(
    scores, target, quality, thresholds=GRID, labels=None, row_weight=None
):
    """Theta of one score matrix, best by training quality, and the quality of each row.

    `labels` are the answers of the member whose scores they are; None takes its best scores.
    `row_weight` are the weights of the rows.
    """
    if target.ndim == 1:
        return None, quality(target, named_labels(scores) if labels is None else labels)
    candidates = [quality(target, named_labels(scores, theta)) for theta in thresholds]
    best = int(np.argmax([mean_of_rows(per_row, row_weight) for per_row in candidates]))
    return float(thresholds[best]), candidates[best]


def search_combination(
    first,
    second,
    target,
    quality,
    weights=GRID,
    thresholds=GRID,
    labels=(None, None),
    row_weight=None,
):
    """(w, theta) of two members by training quality: FrugalMCT, section 4.3.

    `weights` are candidates for w; `row_weight` are the weights of the rows. `labels` are the
    answers of the first and of the second where no other is combined with it; None takes the best
    scores. Returns the weight of the first, the threshold, and the quality of each row.
    """
    rows, agree = slice(None), None
    if target.ndim == 1:
        # Where both members name the same label every weight names it.
        best_scores = named_labels(first)
        named = [named_labels(second), *(own for own in labels if own is not None)]
        agree = np.all([answers == best_scores for answers in named], axis=0)
        fixed = (
            quality(target[agree], named_labels(first[agree]))
            if agree.any()
            else np.empty(0)
        )
        rows = np.flatnonzero(~agree)
        if len(rows) == 0:
            return 0.5, None, fixed
    own_weight = None if row_weight is None else row_weight[rows]
    best, most = None, -np.inf
    for weight in sorted(weights, key=lambda w: abs(w - 0.5)):
        combined = combine((first[rows], second[rows]), (weight, 1 - weight))
        own = labels_at(labels, weight)
        theta, per_row = search_threshold(
            combined,
            target[rows],
            quality,
            thresholds=thresholds,
            labels=None if own is None else own[rows],
            row_weight=own_weight,
        )
        mean = mean_of_rows(per_row, own_weight)
        if best is None or mean > most:
            best, most = (float(weight), theta, per_row), mean
    if agree is not None:
        per_row = np.empty(len(target))
        per_row[agree], per_row[rows] = fixed, best[2]
        best = (*best[:2], per_row)
    return best


def labels_at(labels, weight):
    """Return the answers of the one of two members that has all of the weight, else None."""
    first, second = labels
    if weight == 1:
        return first
    return second if weight == 0 else None


def search_combinations(
    scores, target, quality, max_members, labels=None, row_weight=None
):
    """Combiner of every set of members, each grown from its best part and one more member.

    `labels` are the answers of each member; None takes its best scores. Returns a dict from
    frozenset to weights of all members, threshold, and quality of each row.
    """
    n_members = len(scores)
    if labels is None:
        labels = [None] * n_members
    unit = np.eye(n_members)
    found = {}
    for k in range(n_members):
        theta, per_row = search_threshold(
            scores[k], target, quality, labels=labels[k], row_weight=row_weight
        )
        found[frozenset([k])] = (unit[k], theta, per_row)
    for size in range(2, min(max_members, n_members) + 1):
        for members in combinations(range(n_members), size):
            best, most = None, -np.inf
            # A pair is the same from either side.
            for k in members[1:] if size == 2 else members:
                part, _, _ = found[frozenset(members) - {k}]
                single = single_member(part)
                weight, theta, per_row = search_combination(
                    combine(scores, part),
                    scores[k],
                    target,
                    quality,
                    labels=(None if single is None else labels[single], labels[k]),
                    row_weight=row_weight,
                )
                mean = mean_of_rows(per_row, row_weight)
                if best is None or mean > most:
                    best = (weight * part + (1 - weight) * unit[k], theta, per_row)
                    most = mean
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
