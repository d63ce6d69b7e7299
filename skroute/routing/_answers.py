"""Answers that are paid for once, and routers that combine them."""

import numpy as np
from sklearn.utils import _safe_indexing, check_consistent_length

from skroute.base import Routed, dispatch
from skroute.metrics import sample_quality
from skroute.metrics._report import ReportMixin
from skroute.routing._base import BaseRouter, LabelsMixin
from skroute.routing._combiner import combine
from skroute.routing._targets import MultiLabel, SingleLabel, rows_of_failure
from skroute.utils._compat import num_samples
from skroute.utils._once import once_of
from skroute.utils._tensors import on_host


class Answers:
    """Scores of the members on some rows, asked for when needed and never twice.

    Parameters
    ----------
    router : CombiningRouter
        Fitted.

    X : indexable
        The rows.
    """

    def __init__(self, router, X):
        self.router = router
        self.X = X
        self.scores = {}
        self.asked = np.zeros((num_samples(X), len(router.member_names_)), dtype=bool)

    def ask(self, member, rows):
        """Scores of one member on some rows.

        Parameters
        ----------
        member : int
        rows : ndarray of int

        Returns
        -------
        ndarray of shape (len(rows), n_labels)
        """
        new = rows[~self.asked[rows, member]]
        if len(new):
            with rows_of_failure(new):
                part = self._call(member, new)
            if member not in self.scores:
                shape = (len(self.asked), part.shape[1])
                self.scores[member] = np.zeros(shape, dtype=part.dtype)
            self.scores[member][new] = part
            self.asked[new, member] = True
        return self.scores[member][rows]

    def _call(self, member, new):
        router = self.router
        name, estimator = router.member_names_[member], router.estimators_[member]
        once_of(router).count(name, len(new))
        method = router._asks() or "votes"
        return router._target.call(method, name, estimator, _safe_indexing(self.X, new))


class CombiningRouter(ReportMixin, LabelsMixin, BaseRouter):
    """Routers whose choices are sets of members that are asked and combined.

    A subclass implements ``_learn``, which calls `_set_choices` last, and ``_plan``, whose
    state is an `Answers`.
    """

    _target_kinds: tuple[type, ...] = (SingleLabel, MultiLabel)

    _answers_kind = Answers

    def _asks(self):
        return "scores"

    def _asked_answers(self, X):
        """The members' answers to rows, none of them asked for yet; a walk has one for all."""
        return once_of(self).whole("answers", lambda: self._answers_kind(self, X))

    @property
    def _multilabel(self):
        return isinstance(self._target, MultiLabel)

    def _set_choices(self, names, used, weights, thresholds=None):
        """Fitted state of the choices; makes the estimator fitted.

        Parameters
        ----------
        names : sequence of str of length n_choices
        used : array-like of shape (n_choices, n_members), dtype=bool
            Members that are asked.
        weights : array-like of shape (n_choices, n_members)
            What their scores are multiplied with before they are added.
        thresholds : sequence of float, default=None
            Score above which a label is named, where there may be several.
        """
        self.choice_members_ = np.asarray(used, dtype=bool)
        self.choice_weights_ = np.asarray(weights, dtype=np.float64)
        if self._multilabel:
            self.choice_thresholds_ = np.asarray(thresholds, dtype=np.float64)
        self.choice_costs_ = np.array([self.costs_[row].sum() for row in self.choice_members_])
        self.choices_ = list(names)

    def _alone(self, X, name, response, **call):
        """Every row answered by one member, without a decision."""
        n, at = num_samples(X), self.member_names_.index(name)
        route = np.full(n, self.choices_.index(name) if name in self.choices_ else -1)
        y_pred = None if response is None else self._answers_alone(X, at, response)
        return Routed(y_pred, route, np.full(n, self.costs_[at]))

    def _answers_alone(self, X, at, response):
        if self._multilabel:
            once_of(self).count(self.member_names_[at], num_samples(X))
            return self.estimators_[at].predict(X)
        scores = self._asked_answers(X).ask(at, np.arange(num_samples(X)))
        scores = combine([scores], np.ones(1))
        if response == "predict_proba":
            return scores
        return self._target.labels(self._target.decide(scores, None))

    def _answers_to(self, X, plan, response, rows):
        route = plan.route[rows]

        def answer(choice, some):
            used = np.flatnonzero(self.choice_members_[choice])
            scores = [plan.state.ask(k, rows[some]) for k in used]
            return combine(scores, self.choice_weights_[choice, used])

        combined = dispatch(route, answer)
        if response == "predict_proba":
            return combined
        thresholds = self.choice_thresholds_[route] if self._multilabel else None
        return self._target.labels(self._target.decide(combined, thresholds))

    def _score_of(self, y, y_pred, weight):
        return float(np.average(sample_quality(y, y_pred), weights=weight))

    def score(self, X, y, sample_weight=None, budget=None, **context):
        """Mean quality of `predict` at the budget.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            True labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            Mean cost per sample for this call, in the unit of `costs`. None takes the
            constructor's; ``numpy.inf`` is unlimited.

        **context : keyword arguments
            As in `predict_routed`.

        Returns
        -------
        float
            Share of rows answered correctly; for several labels the mean of labels in
            common by labels in either.
        """
        y_pred = self.predict(X, budget=budget, **context)
        y = np.asarray(y.todense() if hasattr(y, "todense") else on_host(y))
        check_consistent_length(y, y_pred)
        return self._score_of(y, y_pred, sample_weight)


def check_base(base, members):
    """Refuse a base that is not a member.

    Parameters
    ----------
    base : str
        ``"auto"`` or a name.

    members : mapping from str to estimator

    Raises
    ------
    ValueError
    """
    if base != "auto" and base not in members:
        raise ValueError(
            f"base={base!r} is not the name of a member; the members are "
            f'{list(members)!r}. "auto" chooses by validation.'
        )


def possible_bases(base, names):
    """Positions of the members that may be the base."""
    return list(range(len(names))) if base == "auto" else [names.index(base)]
