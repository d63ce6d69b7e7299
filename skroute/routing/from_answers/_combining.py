"""Routers whose choices are sets of members that are asked and combined."""

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from skroute.base import Plan, dispatch
from skroute.base._inspection import names_best_score, predicts_best_score
from skroute.metrics._objectives import OF_LABELS
from skroute.routing.parts._estimates import answers_forest, with_weights
from skroute.routing.parts._member_router import (
    AMOUNT,
    MemberRouter,
    answer_unless_abstained,
    objective_of,
)
from skroute.routing.parts._mixtures import (
    mean_of_rows,
    validated_mixture,
    weight_of_rows,
)
from skroute.routing.parts._targets import MultiLabel, SingleLabel
from skroute.utils._cache import NO_CACHE, CallCache, cache_of
from skroute.utils._compat import StrOptions, num_samples
from skroute.utils._typing import NDArray

# Candidates for the weight of a member's scores and for the threshold of scores: 0,
# 1/M, ..., 1 with M = 10 as in the paper of FrugalMCT.
GRID = np.linspace(0.0, 1.0, 11)
# Relative difference by which the probability of the answered label is raised above the
# largest other one. It is larger than rounding.
_MARGIN_OF_ANSWER = 1e-9
# Largest number of labels for which the scores of all labels are features of a quality
# estimator. With 120 labels and 2,400 rows of Gaussian classes, a router that reads
# only the largest scores is as good and takes a third of the time.
_MOST_LABELS = 100
# Number of scores of a row, the largest ones, that are features if there are more
# labels. Lower scores hardly show whether the best label is right.
_LARGEST_SCORES = 20


class MemberAnswers:
    """Answers of members to the rows of one call. A member is asked once about a row.

    Parameters
    ----------
    router : CombiningRouter
        Fitted.

    X : indexable
        Checked rows.
    """

    def __init__(self, router, X):
        # Cache of a sweep over budgets. It also counts the calls of members on rows.
        self._sweep = cache_of(router)
        self._members = router._members
        self._has_own_labels = router._has_own_labels
        self._X = X
        # A router without a cache gets one that lasts as long as this object.
        self._cache = CallCache() if self._sweep is NO_CACHE else self._sweep

    def _ask(self, member, method, rows):
        """Return what a method of one member, a position, returns for some rows."""
        return self._members.ask(
            member, method, self._X, rows, counter=self._sweep, cache=self._cache
        )

    def scores(self, member, rows):
        """Return the scores of one member on some rows, (n_rows, n_labels).

        `member` is its position, and `rows` are positions in `X`.
        """
        return self._ask(member, "scores", rows)

    def labels(self, member, rows):
        """Return the encoded labels that one member predicts, (n_rows,)."""
        if self._has_own_labels[member]:
            return self._ask(member, "predict", rows)
        return named_labels(self.scores(member, rows))

    def probabilities(self, member, rows):
        """Return the probabilities of one member, (n_rows, n_labels)."""
        if hasattr(self._members.models[member], "predict_scores"):
            # Scores of a member with `predict_scores` need not be probabilities.
            return self._ask(member, "predict_proba", rows)
        return self.scores(member, rows)


class SingleMember(NamedTuple):
    """State of a plan in which one member answers every row: the member's position."""

    position: int


class Choice(NamedTuple):
    """A choice of a combining router: members to ask, and their weights in the answer.

    Attributes
    ----------
    name : str
        Entry of ``choices_``.
    members : ndarray of shape (n_members,), dtype=bool
        Members that are asked, and paid.
    weights : ndarray of shape (n_members,)
        Weight of each member's scores in the answer. They have no meaning if the row
        abstains.
    threshold : float or None, default=None
        Score above which a label is named, if rows have several labels. None if rows
        have one label. NaN may stand for it if the row abstains.
    """

    name: str
    members: NDArray[np.bool_]
    weights: NDArray[np.float64]
    threshold: float | None = None


class JudgedAnswers(NamedTuple):
    """Out-of-fold answers of all members to the rows of `fit`, and the true labels.

    Attributes
    ----------
    scores : list of ndarray of shape (n_rows, n_labels)
        Scores of each member.
    labels : list of ndarray of shape (n_rows,), or None
        Encoded answers of each member. None: the answers are the labels with the best
        scores, or those with scores above a threshold.
    target : ndarray of shape (n_rows,) or (n_rows, n_labels)
        Encoded true labels, one or several a row.
    quality : callable
        ``quality(target, answers)`` is the quality of each answer, ndarray of shape
        (n_rows,).
    row_weight : ndarray of shape (n_rows,) or None, default=None
        Weights of the rows. None weights all alike.
    """

    scores: list[NDArray[np.float64]]
    labels: list[NDArray[np.int64]] | None
    target: NDArray[Any]
    quality: Callable[..., NDArray[np.float64]]
    row_weight: NDArray[np.float64] | None = None

    def labels_of(self, member):
        """Return the encoded answers of a member, or None if its scores define them."""
        return None if self.labels is None else self.labels[member]

    def mean(self, row_quality):
        """Return the mean of `row_quality`, (n_rows,), by the weights of the rows."""
        return mean_of_rows(row_quality, self.row_weight)

    def search_threshold(self, member, thresholds=GRID):
        """Return the best threshold of a member's scores, and the quality of each row.

        `member` is its position. See the function `search_threshold`.
        """
        return search_threshold(
            self.scores[member],
            self.target,
            self.quality,
            thresholds=thresholds,
            labels=self.labels_of(member),
            row_weight=self.row_weight,
        )


class CombiningRouter(MemberRouter, ClassifierMixin, BaseEstimator):
    """Base of classifiers that ask a member, read its answer, and may ask others.

    Each choice is a set of members and their weights in the answer:
    ``choice_members_``, ``choice_weights_`` and, if rows have several labels,
    ``choice_thresholds_``. The state of a plan is a `MemberAnswers`. If one member
    alone answers a row, the row gets what this member predicts.

    A subclass calls ``_fit_and_judge`` in its ``_fit``.
    """

    _parameter_constraints: dict = {
        **MemberRouter._parameter_constraints,
        "base": [str],
        "quality": [StrOptions(set(OF_LABELS)), dict, tuple, callable, "array-like"],
        "abstain_cost": AMOUNT,
        "abstain_label": "no_validation",
    }
    # For subclasses without the parameter `base`: any member may be asked first.
    base = "auto"
    _target_kinds: tuple[type, ...] = (SingleLabel, MultiLabel)
    _qualities = ("accuracy", "balanced_accuracy", "cost matrix")

    # Fit ------------------------------------------------------------------------------

    def _fit_and_judge(self, members, X, y, *, task, params):
        """Fit the members, and return their out-of-fold answers with the true labels.

        Sets the attributes of ``_fit_members`` and ``_has_own_labels``: for each
        member, True if its labels are not those of its best scores, so that it is asked
        for `predict`.

        Parameters
        ----------
        members : dict from str to estimator
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
        task : FitTask
        params : dict
            `sample_weight`, and metadata for the `fit` of members.

        Returns
        -------
        answers : OutOfFold
        judged : JudgedAnswers
        """
        names = list(members)
        if self.base != "auto" and self.base not in members:
            raise ValueError(
                f"base={self.base!r} is not the name of a member; the members are "
                f'{names!r}. "auto" chooses by validation.'
            )

        def cheapest_plan(costs):
            """Return the cost of the cheapest member that may be asked first."""
            return costs[possible_bases(self.base, names)].min()

        _, answers = self._fit_members(
            members,
            X,
            y,
            params=params,
            task=task,
            method="scores",
            methods_of=_methods_of,
            cheapest_plan=cheapest_plan,
        )
        self._has_own_labels = []
        # `responses` is a dict from the name of a method to what it returned.
        for model, responses in zip(self._members.models, answers.by_method):
            has_own = False
            if "predict" in responses:
                has_own = not names_best_score(
                    model, responses["scores"], responses["predict"]
                )
            self._has_own_labels.append(has_own)
        # None if rows have several labels: the answers are the labels whose scores
        # are above a threshold.
        labels = None
        if not self._members.is_multilabel:
            labels = []
            for responses, has_own in zip(answers.by_method, self._has_own_labels):
                if has_own:
                    labels.append(responses["predict"])
                else:
                    labels.append(named_labels(responses["scores"]))
        objective = objective_of(self, self._members.target)
        # The weights of the classes in balanced accuracy are those of all rows of
        # `fit`, also if the quality of only some rows is computed.
        objective = objective.bound(answers.target, answers.weight)
        judged = JudgedAnswers(
            answers.answers_by("scores"),
            labels,
            target=answers.target,
            quality=objective.of,
            row_weight=answers.weight,
        )
        return answers, judged

    def _set_choices(self, choices):
        """Set ``choice_members_``, ``choice_weights_`` and ``choice_thresholds_``.

        `choices` is a list of `Choice`. The subclass sets ``choices_`` at the end of
        its `fit`.
        """
        self.choice_members_ = np.array(
            [choice.members for choice in choices], dtype=bool
        )
        self.choice_weights_ = np.array(
            [choice.weights for choice in choices], dtype=np.float64
        )
        if self._members.is_multilabel:
            self.choice_thresholds_ = np.array(
                [choice.threshold for choice in choices], dtype=np.float64
            )

    # Answers --------------------------------------------------------------------------

    def _plan_single(self, X, name, call):
        """Return the plan in which one member answers every row."""
        n_rows = num_samples(X)
        member = self._members.names.index(name)
        # -1: the answer of this member alone is no choice of the router, because
        # another member is always asked first.
        choice = self.choices_.index(name) if name in self.choices_ else -1
        cost = np.full(n_rows, float(self.costs_[member]))
        return Plan(np.full(n_rows, choice), cost, SingleMember(member))

    def _answer(self, plan, response):
        """Return the answers to the rows of a plan.

        `response` is ``"predict"`` or ``"predict_proba"``.
        """
        if isinstance(plan.state, SingleMember):
            return self._answers_of_single(plan.X, plan.state.position, response)
        answer_rows = partial(self._answers_to, plan, response)
        return answer_unless_abstained(self, plan, response, answer_rows)

    def _answers_of_single(self, X, member, response):
        """Return the answers of one member, a position, to all rows."""
        members = self._members
        n_rows = num_samples(X)
        if members.is_multilabel:
            # The labels are the member's own, not those above a threshold of the
            # router.
            cache_of(self).count_rows(members.names[member], n_rows)
            return members.models[member].predict(X)
        answers = MemberAnswers(self, X)
        rows = np.arange(n_rows)
        if response == "predict":
            return members.target.labels(answers.labels(member, rows))
        return members.target.probabilities(answers.probabilities(member, rows))

    def _answers_to(self, plan, response, rows):
        """Return the answers to some rows of a plan, none of which abstains."""
        route = plan.route[rows]
        if response == "predict_proba":
            answer_of_choice = self._probabilities_of_choice
        elif self._members.is_multilabel:
            answer_of_choice = self._scores_of_choice
        else:
            answer_of_choice = self._labels_of_choice

        def answer(choice, positions):
            return answer_of_choice(plan.state, choice, rows[positions])

        answers = dispatch(route, answer)
        if response == "predict_proba":
            return self._members.target.probabilities(answers)
        if self._members.is_multilabel:
            # The answers are scores, (n_rows, n_labels).
            thresholds = self.choice_thresholds_[route, np.newaxis]
            answers = named_labels(answers, thresholds)
        return self._members.target.labels(answers)

    def _scores_of_choice(self, answers, choice, rows):
        """Return the combined scores of a choice, (n_rows, n_labels).

        All members of the choice are asked. `answers` are `MemberAnswers`, `choice` is
        a position, and `rows` are positions of rows.
        """
        members = np.flatnonzero(self.choice_members_[choice])
        scores = [answers.scores(member, rows) for member in members]
        return combine(scores, self.choice_weights_[choice, members])

    def _labels_of_choice(self, answers, choice, rows):
        """Return the encoded labels of a choice, (n_rows,).

        Parameters are those of `_scores_of_choice`.
        """
        # The scores ask all members of the choice. This is needed even if one member
        # alone gives the label, since all of them are paid.
        scores = self._scores_of_choice(answers, choice, rows)
        single = single_member(self.choice_weights_[choice])
        if single is None:
            return named_labels(scores)
        return answers.labels(single, rows)

    def _probabilities_of_choice(self, answers, choice, rows):
        """Return the weighted mean of the probabilities of a choice's members.

        The most probable label of combined members is the label that they answer.
        Parameters are those of `_scores_of_choice`.
        """
        scores = self._scores_of_choice(answers, choice, rows)
        weights = self.choice_weights_[choice]
        answering = np.flatnonzero(weights)
        by_member = [answers.probabilities(member, rows) for member in answering]
        probabilities = combine(by_member, weights[answering])
        if self._members.is_multilabel or len(answering) == 1:
            return probabilities
        return with_answer_on_top(probabilities, named_labels(scores))


class MixtureRouter(CombiningRouter):
    """Base of combining routers that draw a rule for each row from a mixture of rules.

    The rules were chosen for the costs of `fit`, so that new costs act at the next
    `fit`. A subclass sets ``_validated_parts`` in its ``_fit``: the held-out rules of
    each fold, a list of `HeldOutRules`.
    """

    def _smallest_budget(self):
        """Return the smallest feasible budget: the cost of the cheapest choice."""
        return self.choice_costs_.min()

    def _validated(self, budget):
        """Return validated mean cost and quality at a budget (`ValidationMeans`)."""
        return validated_mixture(self._validated_parts, budget)

    @property
    def costs_(self):
        """Cost of a call of each member in `fit`, shape (n_members,).

        Rules were chosen for these costs. New costs act at the next `fit`.
        """
        check_is_fitted(self)
        return self._members.costs_of_fit

    @property
    def choice_costs_(self):
        """Cost of each choice, all members that it asks included."""
        return costs_of_choices(self.choice_members_, self._members.costs_of_fit)


def _methods_of(name, member, target):
    """Return the methods by which a member is asked about the rows of `fit`.

    A member whose labels always have the best scores need not be asked for labels.
    `name` is not read.
    """
    if isinstance(target, MultiLabel) or predicts_best_score(member):
        return ["scores"]
    return ["scores", "predict"]


def costs_of_choices(choice_members, member_costs):
    """Return the cost of each choice: the sum over the members that it asks.

    `choice_members` has shape (n_choices, n_members), dtype=bool.
    """
    return np.array([member_costs[asked].sum() for asked in choice_members])


def estimator_on_answers(quality_estimator, answers, *, max_rows, n_jobs):
    """Return an unfitted regressor of quality on answers, and parameters of its `fit`.

    Parameters
    ----------
    quality_estimator : regressor or None
        None is a forest.
    answers : OutOfFold
        Answers to the rows of `fit`.
    max_rows : int
        Maximal number of training rows per tree of this forest.
    n_jobs : int or None
    """
    if quality_estimator is not None:
        return with_weights(quality_estimator, answers.given_weight)
    forest = answers_forest(len(answers.target), max_rows, n_jobs)
    return with_weights(forest, answers.weight)


def quality_of_abstaining(abstain_cost, qualities):
    """Return the quality of a row that abstains, or None if no row can abstain.

    It is the best quality of any answer to a row of `fit`, less the `abstain_cost`.
    `qualities` are arrays of the quality of answers, of any shape.
    """
    if abstain_cost is None:
        return None
    best = max(float(quality.max()) for quality in qualities)
    return best - abstain_cost


def possible_bases(base, names):
    """Return the positions of the members that may be asked first."""
    if base == "auto":
        return list(range(len(names)))
    return [names.index(base)]


def single_member(weights):
    """Return the position of the only member with a weight, None if there are several.

    It is also None if no member has a weight.

    `weights` has the shape (n_members,).
    """
    weighted = np.flatnonzero(weights)
    return int(weighted[0]) if len(weighted) == 1 else None


def with_answer_on_top(probabilities, labels):
    """Return probabilities in which the answered label is the most probable one.

    `probabilities` has the shape (n_rows, n_labels), `labels` has the shape (n_rows,).
    If another label is more probable, the probability of the answered label is raised
    to just above the largest one, as `RecordedClassifier` does.
    """
    changed_rows = np.flatnonzero(probabilities.argmax(axis=1) != labels)
    if not len(changed_rows):
        return probabilities
    raised = probabilities.astype(np.float64)
    largest = raised[changed_rows].max(axis=1)
    raised[changed_rows, labels[changed_rows]] = largest * (1 + _MARGIN_OF_ANSWER)
    return raised


# FrugalMCT's combiner -----------------------------------------------------------------


# Weight of the first member of a pair if every weight gives the same labels, so that
# none is better: both members count alike.
_ANY_WEIGHT = 0.5


class PairCombination(NamedTuple):
    """The best combination of two score matrices.

    Attributes
    ----------
    weight : float
        w, the weight of the first matrix. The weight of the second is 1 - w.
    threshold : float or None
        theta, the score above which a label is named. None if rows have one label.
    row_quality : ndarray of shape (n_rows,)
        Quality of the combined answer to each row.
    """

    weight: float
    threshold: float | None
    row_quality: NDArray[np.float64]


class Combination(NamedTuple):
    """The best combination of a set of members.

    Attributes
    ----------
    weights : ndarray of shape (n_members,)
        Weight of each member; 0 for members that are not in the set.
    threshold : float or None
        As in `PairCombination`.
    row_quality : ndarray of shape (n_rows,)
        Quality of the combined answer to each row.
    """

    weights: NDArray[np.float64]
    threshold: float | None
    row_quality: NDArray[np.float64]


def named_labels(scores, threshold=None):
    """Return the encoded labels that are answered by scores (n_rows, n_labels).

    Without a threshold they are the best labels, (n_rows,). With a threshold they are
    True for each label with a higher score, (n_rows, n_labels).
    """
    if threshold is None:
        return scores.argmax(axis=1)
    return scores > threshold


def combine(scores, weights):
    """Return the weighted mean of the members' scores, (n_rows, n_labels).

    `scores` is a list of arrays of this shape. Members of weight 0 are skipped.
    """
    return sum(weight * matrix for weight, matrix in zip(weights, scores) if weight)


def search_threshold(
    scores, target, quality, *, thresholds=GRID, labels=None, row_weight=None
):
    """Find theta, the best threshold of one score matrix by training quality.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_labels)
    target : ndarray of shape (n_rows,) or (n_rows, n_labels)
        True labels. If rows have one label, no threshold is searched.
    quality : callable
        As in `JudgedAnswers`.
    thresholds : sequence of float, default=GRID
        Candidates.
    labels : ndarray of shape (n_rows,), default=None
        Answers of the member that has these scores, if rows have one label. None takes
        the labels with the best scores.
    row_weight : ndarray of shape (n_rows,), default=None
        Weights of the rows.

    Returns
    -------
    threshold : float or None
        The best threshold. None if rows have one label.
    row_quality : ndarray of shape (n_rows,)
        Quality of the answer to each row with it.
    """
    if target.ndim == 1:
        answers = named_labels(scores) if labels is None else labels
        return None, quality(target, answers)
    row_qualities = []
    for theta in thresholds:
        row_qualities.append(quality(target, named_labels(scores, theta)))
    means = [mean_of_rows(row_quality, row_weight) for row_quality in row_qualities]
    best = int(np.argmax(means))
    return float(thresholds[best]), row_qualities[best]


def search_combination(
    first,
    second,
    target,
    quality,
    *,
    weights=GRID,
    thresholds=GRID,
    first_labels=None,
    second_labels=None,
    row_weight=None,
):
    """Find the weight and the threshold of two members with the best training quality.

    They are w and theta in section 4.3 of the paper of FrugalMCT.

    Parameters
    ----------
    first, second : ndarray of shape (n_rows, n_labels)
        Scores.
    target : ndarray of shape (n_rows,) or (n_rows, n_labels)
        True labels.
    quality : callable
        As in `JudgedAnswers`.
    weights, thresholds : sequence of float, default=GRID
        Candidates for w and theta.
    first_labels, second_labels : ndarray of shape (n_rows,), default=None
        Answers of the first and of the second member if it answers alone. None takes
        the labels with the best scores.
    row_weight : ndarray of shape (n_rows,), default=None
        Weights of the rows.

    Returns
    -------
    PairCombination
    """
    pair = _Pair(first, second, target, first_labels, second_labels, row_weight)
    if target.ndim == 2:
        return _best_of_weights(pair, quality, weights=weights, thresholds=thresholds)
    # If both members give a row the same answer, they also give it with each weight.
    agree = pair.agree()  # (n_rows,)
    row_quality = np.empty(len(target))
    if agree.any():
        row_quality[agree] = quality(target[agree], named_labels(first[agree]))
    rows = np.flatnonzero(~agree)
    if not len(rows):
        # The two agree on all rows, so that every weight gives the same labels. Rows
        # have one label here, and so there is no threshold.
        return PairCombination(_ANY_WEIGHT, threshold=None, row_quality=row_quality)
    best = _best_of_weights(
        pair.take(rows), quality, weights=weights, thresholds=thresholds
    )
    row_quality[rows] = best.row_quality
    return best._replace(row_quality=row_quality)


class _Pair(NamedTuple):
    """Answers of two members to some rows, and the true labels of these rows.

    The attributes are the parameters of `search_combination`.
    """

    first: NDArray[np.float64]
    second: NDArray[np.float64]
    target: NDArray[Any]
    first_labels: NDArray[np.int64] | None
    second_labels: NDArray[np.int64] | None
    row_weight: NDArray[np.float64] | None

    def take(self, rows):
        """Return the answers to some rows."""
        first_labels = self.first_labels
        if first_labels is not None:
            first_labels = first_labels[rows]
        second_labels = self.second_labels
        if second_labels is not None:
            second_labels = second_labels[rows]
        return _Pair(
            first=self.first[rows],
            second=self.second[rows],
            target=self.target[rows],
            first_labels=first_labels,
            second_labels=second_labels,
            row_weight=weight_of_rows(self.row_weight, rows),
        )

    def agree(self):
        """Return a mask of the rows whose answer does not depend on the weight.

        For these rows the best scores of both members, and their answers alone, name
        one label. The mask has the shape (n_rows,).
        """
        best_scores = named_labels(self.first)
        agree = named_labels(self.second) == best_scores
        for labels in (self.first_labels, self.second_labels):
            if labels is not None:
                agree = agree & (labels == best_scores)
        return agree


def _best_of_weights(pair, quality, *, weights, thresholds):
    """Return the best of some weights of two members (`PairCombination`).

    The weight that is closest to a half is preferred among equally good ones.
    Parameters are those of `search_combination`. `pair` (`_Pair`) has the answers, the
    true labels and the weights of the rows.
    """
    best = None
    best_mean = -np.inf
    for weight in sorted(weights, key=lambda candidate: abs(candidate - 0.5)):
        # A member's own labels are the answer only if it has all the weight. Otherwise
        # None: the combined scores define the labels.
        labels = None
        if weight == 1:
            labels = pair.first_labels
        elif weight == 0:
            labels = pair.second_labels
        threshold, row_quality = search_threshold(
            combine((pair.first, pair.second), (weight, 1 - weight)),
            pair.target,
            quality,
            thresholds=thresholds,
            labels=labels,
            row_weight=pair.row_weight,
        )
        mean = mean_of_rows(row_quality, pair.row_weight)
        if best is None or mean > best_mean:
            best = PairCombination(float(weight), threshold, row_quality)
            best_mean = mean
    return best


def search_combinations(answers, max_members):
    """Find the best weights of every set of members, each set grown from a smaller one.

    Parameters
    ----------
    answers : JudgedAnswers
    max_members : int
        Largest size of a set.

    Returns
    -------
    dict from frozenset of int to Combination
        By the positions of the members in the set.
    """
    n_members = len(answers.scores)
    # Row k has weight 1 for member k, and 0 for the others.
    weights_alone = np.eye(n_members)
    combination_of = {}
    for member in range(n_members):
        threshold, row_quality = answers.search_threshold(member)
        combination_of[frozenset([member])] = Combination(
            weights_alone[member], threshold, row_quality
        )
    for size in range(2, min(max_members, n_members) + 1):
        for members in combinations(range(n_members), size):
            combination_of[frozenset(members)] = _grow(answers, members, combination_of)
    return combination_of


def _grow(answers, members, combination_of):
    """Return the best `Combination` of a set of members, from those of smaller sets.

    Each member in turn is the last one. It is combined with the scores of the other
    members, whose weights are those of their own best combination.

    Parameters
    ----------
    answers : JudgedAnswers
    members : tuple of int
        Positions of the members in the set.
    combination_of : dict from frozenset of int to Combination
        The combinations of all smaller sets.
    """
    # Row k has weight 1 for member k, and 0 for the others.
    weights_alone = np.eye(len(answers.scores))
    best = None
    best_mean = -np.inf
    # In a pair, both orders of the members give the same weights. One is enough.
    last_members = members[1:] if len(members) == 2 else members
    for last in last_members:
        weights_of_others = combination_of[frozenset(members) - {last}].weights
        single = single_member(weights_of_others)
        labels_of_others = None
        if single is not None:
            labels_of_others = answers.labels_of(single)
        pair = search_combination(
            combine(answers.scores, weights_of_others),
            answers.scores[last],
            answers.target,
            answers.quality,
            first_labels=labels_of_others,
            second_labels=answers.labels_of(last),
            row_weight=answers.row_weight,
        )
        mean = answers.mean(pair.row_quality)
        if best is None or mean > best_mean:
            weights = (
                pair.weight * weights_of_others
                + (1 - pair.weight) * weights_alone[last]
            )
            best = Combination(weights, pair.threshold, pair.row_quality)
            best_mean = mean
    return best


# Features of a quality estimator ------------------------------------------------------


def answer_features(scores, weights=None, multilabel=False):
    """Return features of the scores of the members asked so far, (n_rows, n_features).

    The features depend on the kind of labels and on the number of members:

    - several labels a row: scores, best score and sum of scores of each member;
    - one label a row, one member: scores, best score and best label of the member;
    - one label a row, several members: the combined scores, the best combined score
      less the second best, the best score and the best label of each member, and 1 if
      this label is the best one by the combined scores, else 0.

    Parameters
    ----------
    scores : list of ndarray of shape (n_rows, n_labels)
        Scores of the members that were asked.
    weights : ndarray of shape (n_asked,), default=None
        Weight of each member in the combined scores. It is read if there are several
        members and rows have one label.
    multilabel : bool, default=False
        True if rows have several labels.

    Returns
    -------
    ndarray of shape (n_rows, n_features), dtype=float32
        With more than `_MOST_LABELS` labels, the largest scores of each row stand for
        the scores of all labels. Each label then has few rows, so that a tree learns
        nothing from its score, and a fit would take minutes.
    """
    best_scores = [matrix.max(axis=1) for matrix in scores]
    if multilabel:
        sums = [matrix.sum(axis=1) for matrix in scores]
        few_scores = [_few_scores(matrix) for matrix in scores]
        columns = [*few_scores, *best_scores, *sums]
    elif len(scores) == 1:
        columns = [_few_scores(scores[0]), best_scores[0], scores[0].argmax(axis=1)]
    else:
        combined = combine(scores, weights)
        best_labels = combined.argmax(axis=1)
        # The second best score, then the best one.
        top_two = np.partition(combined, -2, axis=1)[:, -2:]
        lead = top_two[:, 1] - top_two[:, 0]
        labels = [matrix.argmax(axis=1) for matrix in scores]
        agrees = [member_labels == best_labels for member_labels in labels]
        columns = [_few_scores(combined), lead, *best_scores, *labels, *agrees]
    return np.column_stack(columns).astype(np.float32)


def _few_scores(scores):
    """Return scores unchanged if labels are few, otherwise each row's largest scores.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_labels)

    Returns
    -------
    ndarray of shape (n_rows, n_labels) or (n_rows, _LARGEST_SCORES)
        The largest scores fall from left to right.
    """
    if scores.shape[1] <= _MOST_LABELS:
        return scores
    largest = np.partition(scores, -_LARGEST_SCORES, axis=1)[:, -_LARGEST_SCORES:]
    # The negated scores are sorted, so that the scores fall.
    return -np.sort(-largest, axis=1)
