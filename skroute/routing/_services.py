"""What routers share that may ask several members about a row and combine the answers."""

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.utils import _safe_indexing, check_consistent_length, get_tags
from sklearn.utils.multiclass import type_of_target

from skroute.base import dispatch, note_failure
from skroute.routing._combiner import combine, equal_samples, jaccard_samples, named_labels
from skroute.routing._members import BaseRouterClassifier, align_proba
from skroute.routing._values import note_outputs, out_of_sample_quality
from skroute.utils._compat import num_samples
from skroute.utils._tensors import on_host


def default_predictor(n_samples):
    """Forest on the answers so far, with out-of-bag estimates.

    Its leaves hold 150 rows where there are thousands: a forest with small leaves takes
    its own noise for differences between services, and the argmax then prefers whichever
    service the noise favours.
    """
    return RandomForestRegressor(
        n_estimators=30,
        min_samples_leaf=int(np.clip(n_samples // 60, 5, 150)),
        oob_score=True,
        random_state=0,
    )


def fit_predictor(estimator, features, target, cv, name="accuracy_estimator"):
    """Fit a multi-output regressor, and estimate its own training rows out of sample.

    A regressor that keeps ``oob_prediction_`` (a forest with ``oob_score=True``) is
    fitted once, any other is cross-validated.

    Parameters
    ----------
    estimator : multi-output regressor or None
        None takes the default forest.

    features : ndarray of shape (n_samples, n_features)

    target : ndarray of shape (n_samples, n_outputs)

    cv : int or splitter

    Returns
    -------
    fitted : estimator
    estimate : ndarray of shape (n_samples, n_outputs)
    """
    estimator = default_predictor(len(target)) if estimator is None else estimator
    flat = target[:, 0] if target.shape[1] == 1 else target
    with note_failure(name, len(target), "fit"), note_outputs(estimator, target.shape[1]):
        fitted = clone(estimator).fit(features, flat)
        estimate = getattr(fitted, "oob_prediction_", None)
        if estimate is None:
            cv = cv if isinstance(cv, int) else 5
            estimate = out_of_sample_quality(estimator, features, target, cv)
    return fitted, np.asarray(estimate, dtype=np.float64).reshape(target.shape)


def predict_values(fitted, features, n_outputs):
    """Outputs of a multi-output regressor as a matrix, whatever it makes of one output."""
    values = np.asarray(fitted.predict(features), dtype=np.float64)
    return values.reshape(len(features), n_outputs)


def answer_features(scores, weights=None, multilabel=False):
    """What a predictor sees of the answers so far.

    Single-label: the combined scores, and for each service its best label, that label's
    score, and the lead of the best combined label. Multi-label: all scores, and for each
    service its best score and its sum of scores.

    Parameters
    ----------
    scores : sequence of ndarray of shape (n_samples, n_labels)
        Of the services asked so far.

    weights : sequence of float, default=None
        Combiner weights of these services; None for one service.

    multilabel : bool, default=False

    Returns
    -------
    ndarray of shape (n_samples, n_features), dtype=float32
    """
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


class Answers:
    """Scores of the members on some rows, asked for when needed and never twice.

    Parameters
    ----------
    router : BaseServicesClassifier
        Fitted.

    X : indexable
        The rows.
    """

    def __init__(self, router, X):
        self.router = router
        self.X = X
        self.scores = {}
        self.asked = np.zeros((num_samples(X), len(router.members_)), dtype=bool)

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
            try:
                part = self._call(member, new)
            except Exception as error:
                # A failed service counts the rows that it lost from its own first one.
                if hasattr(error, "rows"):
                    error.rows = new[error.rows]
                raise
            if member not in self.scores:
                shape = (len(self.asked), part.shape[1])
                self.scores[member] = np.zeros(shape, dtype=part.dtype)
            self.scores[member][new] = part
            self.asked[new, member] = True
        return self.scores[member][rows]

    def _call(self, member, new):
        router = self.router
        return router._call_member(
            router._method,
            router.members_[member],
            router.estimators_[member],
            router.classes_,
            _safe_indexing(self.X, new),
        )


class BaseServicesClassifier(BaseRouterClassifier):
    """Routers whose choices are sets of members that are asked and combined.

    A subclass implements ``_fit_policy(X, target, scores)`` with the members' out-of-fold
    scores, which calls ``_set_choices`` last, and ``_plan``, whose state is an `Answers`.
    """

    _parameter_constraints: dict = {**BaseRouterClassifier._parameter_constraints}
    _parameter_constraints.pop("response")
    response = "proba"
    _method = "predict_proba"
    _multilabel_allowed = True
    # Replaced by a parameter where the accuracy of a label set is one.
    sample_accuracy = None

    @property
    def named_estimators_(self):
        """The fitted members by name (:class:`~sklearn.utils.Bunch`)."""
        from sklearn.utils import Bunch

        return Bunch(**dict(zip(self.members_, self.estimators_)))

    def _check_target(self, X, y, members):
        self._multilabel = type_of_target(y, input_name="y") == "multilabel-indicator"
        if not self._multilabel:
            return super()._check_target(X, y, members)
        if not self._multilabel_allowed:
            raise ValueError(
                f"{type(self).__name__} is for one label per row, but y is an indicator matrix. "
                "FrugalMCTClassifier and SequentialRouterClassifier take several labels."
            )
        y = np.asarray(y.todense() if hasattr(y, "todense") else y).astype(np.int64)
        check_consistent_length(X, y)
        return y, np.arange(y.shape[1]), y.astype(bool)

    def _call_member(self, method, name, member, classes, X):
        # Probabilities of a log are made up where it has one score per answer.
        if method == "predict_proba" and hasattr(member, "predict_scores"):
            with note_failure(name, num_samples(X), "predict_scores"):
                scores = np.asarray(member.predict_scores(X))
            return scores if self._multilabel else align_proba(scores, member.classes_, classes)
        if not self._multilabel:
            return super()._call_member(method, name, member, classes, X)
        with note_failure(name, num_samples(X), method):
            scores = getattr(member, method)(X)
            own = member.classes_ if isinstance(scores, list) else None
            return label_scores(scores, own, len(classes), name)

    def _align_response(self, method, response, y, classes):
        if not self._multilabel:
            return super()._align_response(method, response, y, classes)
        return label_scores(response, [np.unique(part) for part in y.T], len(classes), method)

    def _row_accuracy(self, target, answers):
        """Accuracy of each row's answer, by the default or the user's function."""
        if self.sample_accuracy is None:
            return (jaccard_samples if self._multilabel else equal_samples)(target, answers)
        if not self._multilabel:
            target, answers = self.classes_[target], self.classes_[answers]
        per_row = np.asarray(self.sample_accuracy(target, answers), dtype=np.float64)
        if per_row.shape != (len(target),) or not np.isfinite(per_row).all():
            raise ValueError(
                "sample_accuracy must return one finite number for each row, shape "
                f"({len(target)},), got shape {per_row.shape}."
            )
        return per_row

    def _fit_routing(self, X, y, names, responses):
        self.members_ = list(names)
        self._fit_policy(X, y, [np.asarray(part) for part in responses])

    def _set_choices(self, names, used, weights, thresholds):
        """Fitted state of the choices; makes the estimator fitted."""
        self.choice_members_ = np.asarray(used, dtype=bool)
        self.choice_weights_ = np.asarray(weights, dtype=np.float64)
        if self._multilabel:
            self.choice_thresholds_ = np.asarray(thresholds, dtype=np.float64)
        self.choice_costs_ = np.array([self.costs_[row].sum() for row in self.choice_members_])
        self.choices_ = list(names)

    def _check_call_budget(self, budget, least=None):
        least = float(self.choice_costs_.min()) if least is None else least
        if budget < least * (1 - 1e-12):
            raise ValueError(
                f"budget={budget!r} is below the cheapest feasible plan: the smallest "
                f"feasible budget is {least:.17g} per sample."
            )

    def _answer(self, X, plan, response):
        answers = plan.state

        def answer(choice, rows):
            used = np.flatnonzero(self.choice_members_[choice])
            scores = [answers.ask(k, rows) for k in used]
            return combine(scores, self.choice_weights_[choice, used])

        combined = dispatch(plan.route, answer)
        if response == "predict_proba":
            return combined
        if self._multilabel:
            thresholds = self.choice_thresholds_[plan.route][:, np.newaxis]
            return named_labels(combined, thresholds).astype(np.int64)
        return self.classes_[named_labels(combined)]

    def score(self, X, y, sample_weight=None, budget=None):
        """Mean accuracy of `predict` at the budget.

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

        Returns
        -------
        float
            Share of rows answered correctly; for several labels the mean of labels in
            common by labels in either.
        """
        y_pred = self.predict(X, budget=budget)
        y = np.asarray(y.todense() if hasattr(y, "todense") else on_host(y))
        check_consistent_length(y, y_pred)
        accuracy = jaccard_samples if self._multilabel else equal_samples
        return float(np.average(accuracy(y, y_pred), weights=sample_weight))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        try:
            _, members = self._check_members()
        except ValueError:
            return tags
        tags.classifier_tags.multi_label = self._multilabel_allowed and all(
            get_tags(member).classifier_tags is not None
            and get_tags(member).classifier_tags.multi_label
            for member in members
        )
        return tags


class BaseFirstClassifier(BaseServicesClassifier):
    """Routers that ask a base about every row before they decide: parameter ``base``."""

    _parameter_constraints: dict = {
        **BaseServicesClassifier._parameter_constraints,
        "base": [str],
    }

    def _check_parameters(self, members):
        super()._check_parameters(members)
        if self.base != "auto" and self.base not in members:
            raise ValueError(
                f"base={self.base!r} is not the name of a member; the members are "
                f'{list(members)!r}. "auto" chooses by validation.'
            )

    def _possible_bases(self):
        """Positions of the members that may be the base."""
        if self.base == "auto":
            return list(range(len(self.members_)))
        return [self.members_.index(self.base)]

    def _fixed_cost(self, costs, names):
        return 0.0 if self.base == "auto" else float(costs[names.index(self.base)])

    def _call_costs(self, costs, names):
        added = np.array(costs, dtype=np.float64)
        if self.base != "auto":
            added[names.index(self.base)] = 0.0
        return added


def label_scores(scores, own_classes, n_labels, name):
    """Scores of each label as one matrix, in whichever form a classifier gives them.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_labels), or list of ndarray
        A list has one matrix per label, the last column for its presence.

    own_classes : sequence of array-like
        For a list: the values that each label had in training, of which there may be one.

    n_labels : int

    name : str
        Whose scores they are.

    Returns
    -------
    ndarray of shape (n_samples, n_labels), dtype=float64

    Raises
    ------
    ValueError
    """
    if isinstance(scores, list):
        scores = np.column_stack(
            [
                part[:, -1] * (classes[-1] == 1) if len(classes) == 1 else part[:, 1]
                for part, classes in zip(scores, own_classes)
            ]
        )
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] != n_labels:
        raise ValueError(
            f"{name!r} must give a score for each of {n_labels} labels, got shape {scores.shape}."
        )
    return scores
