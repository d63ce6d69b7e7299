"""What every router of members shares: prices, fitted on all rows and called on demand."""

import numpy as np
from sklearn.base import ClassifierMixin, MetaEstimatorMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Bunch, _safe_indexing, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.parallel import Parallel, delayed

from skroute.base import (
    CostAwareMixin,
    NamedMembersMixin,
    Plan,
    Routed,
    check_affordable,
    check_budget,
    check_rows,
    dispatch,
    measure_costs,
)
from skroute.routing._fit_members import (
    METHODS,
    MemberAnswers,
    all_classes,
    check_classifiers,
    check_regressors,
    fit_member,
    member_folds,
    plain_weights,
)
from skroute.routing._targets import (
    MultiLabel,
    Numbers,
    SingleLabel,
    make_target,
    rows_of_failure,
)
from skroute.utils._compat import (
    Integral,
    Interval,
    Real,
    StrOptions,
    check_sample_weight,
    num_samples,
    routing_enabled,
)
from skroute.utils._once import once_of
from skroute.utils._tensors import on_host

# The range of n_jobs: 0 jobs do nothing.
N_JOBS = [
    Interval(Integral, None, -1, closed="right"),
    Interval(Integral, 1, None, closed="left"),
    None,
]


class BaseRouter(CostAwareMixin, MetaEstimatorMixin, NamedMembersMixin):
    """Models with prices; each row is answered by one of them.

    A router says what it asks its members in `fit` (`_asks`) and implements two steps:

    ``_learn(X, target, answers)``
        Learn where each member is good. `target` are the encoded labels and `answers` a
        `MemberAnswers`. ``costs_``, ``classes_``, ``estimators_`` and ``member_names_`` are
        there already. It sets ``choices_`` last.

    ``_plan(X, budget)``
        Choose: a `Plan` with the index of the choice for each row. Its state may map
        ``(choice, method)`` to answers to all rows that deciding has paid for.
    """

    _parameter_constraints: dict = {
        "estimators": [list],
        "costs": [dict, "array-like", StrOptions({"time"})],
        "budget": [Interval(Real, 0, None, closed="both"), None],
        "n_jobs": N_JOBS,
    }
    # The kinds of target that the router takes.
    _target_kinds: tuple[type, ...] = (SingleLabel,)
    # Whether sample_weight counts in what the router itself learns.
    _weighs = False

    def _asks(self):
        """How members are asked about training rows, see `SingleLabel.call`; None if not."""
        return "predict_proba"

    def _asks_member(self, name):
        """How one member is asked, where that differs from the others."""
        return self._asks()

    def _check_kind(self, members):
        """Refuse members that answer with something else."""
        check_classifiers(self, members, self._asks())

    def _check_target(self, target):
        """Rules between parameters and labels, before any member is fitted."""

    def _check(self, X, members):
        """Rules between parameters, rows and members (by name), before any is fitted."""

    def _least_cost(self, costs, names):
        """Mean cost of the cheapest plan, from the cost of each named member."""
        return float(costs.min())

    def _least(self):
        return self._least_cost(self.costs_, self.member_names_)

    def _timed_calls(self, names, fitted):
        """For each member a function of rows that takes the time that it costs."""
        method = METHODS[self._asks()]
        return {name: getattr(member, method) for name, member in zip(names, fitted)}

    def _fit(self, X, y, *, task, **params):
        names, members = self._check_members()
        self._check_kind(dict(zip(names, members)))
        X, y = check_rows(self, X, reset=True), on_host(y)
        self._check(X, dict(zip(names, members)))
        costs = None
        if not isinstance(self.costs, str):
            costs = self._affordable(self._costs_of(names), names)
        y, classes, kind = make_target(X, y, self._target_kinds, type(self).__name__)
        target = kind(all_classes(classes, members) if kind is SingleLabel else classes)
        self._check_target(target)
        routed, weight = self._routed(dict(zip(names, members)), params, X)
        split_params = routed["cv"]["split"] if hasattr(self, "cv") else {}
        labels = kind is not Numbers
        splits, folds = member_folds(getattr(self, "cv", None), X, y, split_params, labels)
        # Steps are made before the parallel loop: a worker must not change the estimator.
        steps = [task.step(f"fit {name}") for name in names]
        fitted, responses = zip(
            *Parallel(n_jobs=self.n_jobs)(
                delayed(fit_member)(
                    step,
                    name,
                    member,
                    X,
                    y,
                    target,
                    ask=self._asks_member(name),
                    splits=splits,
                    fit_params=routed[name]["fit"],
                )
                for step, name, member in zip(steps, names, members)
            )
        )
        if costs is None:
            costs = measure_costs(self._timed_calls(names, fitted), X)
            self._affordable(costs, names)
        with task.step("learn routing"):
            self._target = target
            if labels:
                self.classes_ = target.classes
            self.costs_ = costs
            self.estimators_ = list(fitted)
            self.member_names_ = list(names)
            answers = MemberAnswers(list(names), list(responses), folds, weight)
            self._learn(X, target.positions(y), answers)

    def _routed(self, members, params, X):
        """Metadata for the `fit` of each member, and the weights of rows in what is learned."""
        weight = params.get("sample_weight") if self._weighs else None
        if weight is not None:
            weight = check_sample_weight(weight, X, dtype=np.float64, ensure_non_negative=True)
            if not 0 < weight.sum() < np.inf:
                raise ValueError("sample_weight must be finite and not zero for every row.")
            if not routing_enabled() and set(params) == {"sample_weight"}:
                return plain_weights(members, params), weight / weight.mean()
            weight = weight / weight.mean()
        return self._route_metadata(params), weight

    def _affordable(self, costs, names):
        check_affordable(check_budget(self.budget), self._least_cost(costs, names))
        return costs

    def _answer(self, X, plan, response):
        return self._answers_to(X, plan, response, np.arange(len(plan.route)))

    def _answers_to(self, X, plan, response, rows):
        """Answers to some rows of a plan."""
        known = plan.state or {}

        def answer(choice, at):
            if (choice, response) in known:
                return known[choice, response][rows[at]]
            return self._answers_of_member(X, choice, response, rows[at])

        answers = dispatch(plan.route[rows], answer)
        return self._target.labels(answers) if response == "predict" else answers

    def _answers_of_member(self, X, at, response, rows):
        """What a fitted member answers to some rows; within a walk to each of them once."""

        name, member, once = self.choices_[at], self.estimators_[at], once_of(self)

        def ask(rows):
            once.count(name, len(rows))
            with rows_of_failure(rows):
                return self._call_member(response, name, member, _safe_indexing(X, rows))

        return once.rows(("answers", at, response), rows, num_samples(X), ask)

    def _alone(self, X, name, response, **call):
        """Every row answered by one member, without a decision."""
        n, at = num_samples(X), self.member_names_.index(name)
        plan = Plan(np.full(n, at), np.full(n, self.costs_[at]), self._known_answers(X))
        answers = None if response is None else self._answer(X, plan, response)
        return Routed(answers, plan.route, plan.cost)

    def _known_answers(self, X):
        """Answers to all rows that deciding has paid for in a walk, as the state of a plan."""
        return None

    def _call_member(self, response, name, member, X):
        """What a fitted member answers."""
        return self._target.call(response, name, member, X)

    @property
    def named_estimators_(self):
        """The fitted members by name (:class:`~sklearn.utils.Bunch`)."""
        return Bunch(**dict(zip(self.member_names_, self.estimators_)))

    def _offers_proba(self):
        """When every member, whichever a row is routed to, has `predict_proba`."""
        members = getattr(self, "estimators_", None)
        if members is None:
            members = [member for _, member in self.estimators if member != "drop"]
        # A member's own AttributeError goes through: it says why.
        return all(callable(member.predict_proba) for member in members)

    def get_metadata_routing(self):
        """Metadata routing of this object.

        Returns
        -------
        MetadataRouter
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        fit = MethodMapping().add(caller="fit", callee="fit")
        for name, member in self.estimators:
            if member != "drop":
                router.add(**{name: member}, method_mapping=fit)
        if hasattr(self, "cv"):
            split = MethodMapping().add(caller="fit", callee="split")
            router.add(cv=self.cv, method_mapping=split)
        return router


class LabelsMixin(CostAwareMixin, ClassifierMixin):
    """Mixin for routers of classifiers; stands before `BaseRouter`."""

    def _score_of(self, y, y_pred, weight):
        return accuracy_score(y, y_pred, sample_weight=weight)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        try:
            _, members = self._check_members()
        except ValueError:
            return tags
        kinds = [get_tags(member).classifier_tags for member in members]
        tags.classifier_tags.multi_class = all(kind is None or kind.multi_class for kind in kinds)
        tags.classifier_tags.multi_label = MultiLabel in self._target_kinds and all(
            kind is not None and kind.multi_label for kind in kinds
        )
        return tags


class NumbersMixin(CostAwareMixin, RegressorMixin):
    """Mixin for routers of regressors; stands before `BaseRouter`."""

    _target_kinds: tuple[type, ...] = (Numbers,)

    def _check_kind(self, members):
        check_regressors(self, members)

    def _offers_proba(self):
        return False

    def _score_of(self, y, y_pred, weight):
        return r2_score(y, y_pred, sample_weight=weight)

    def score(self, X, y, sample_weight=None, budget=None, **context):
        """Coefficient of determination of `predict` at the budget.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,)
            True numbers.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            As in `predict_routed`.

        **context : keyword arguments
            As in `predict_routed`.

        Returns
        -------
        float
            R², at most 1.
        """
        y_pred = self.predict(X, budget=budget, **context)
        return self._score_of(on_host(y), y_pred, sample_weight)
