"""What every router of classifiers shares: members fitted out-of-fold, and called on demand."""

import numpy as np
from sklearn.base import ClassifierMixin, MetaEstimatorMixin, clone, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.utils import _safe_indexing, check_consistent_length, column_or_1d, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _is_fitted

from skroute.base import (
    CostAwareMixin,
    NamedMembersMixin,
    check_budget,
    check_costs,
    check_rows,
    dispatch,
    measure_costs,
    note_failure,
)
from skroute.utils._compat import (
    Integral,
    Interval,
    Real,
    StrOptions,
    _fit_context,
    num_samples,
    process_routing,
    raise_for_params,
    routing_enabled,
)
from skroute.utils._tensors import on_host


def _all_members_have_proba(router):
    """`predict_proba` exists when every member, whichever a row is routed to, has it."""
    members = getattr(router, "estimators_", None)
    if members is None:
        members = [member for _, member in router.estimators if member != "drop"]
    # A member's own AttributeError goes through: it says why.
    return all(callable(member.predict_proba) for member in members)


def call_proba(name, member, classes, X):
    """Probabilities of one member in the order of the router's classes."""
    with note_failure(name, num_samples(X), "predict_proba"):
        proba = np.asarray(member.predict_proba(X))
        own_classes = member.classes_
        if proba.shape[1] != len(own_classes):
            raise ValueError(
                f"The probabilities have {proba.shape[1]} columns, but classes_ names "
                f"{len(own_classes)} labels: {own_classes!r}."
            )
    return align_proba(proba, own_classes, classes)


def align_proba(proba, own_classes, classes):
    """Columns of `own_classes` put in the order of `classes`; 0 where there is none."""
    if np.array_equal(own_classes, classes):
        return proba
    aligned = np.zeros((len(proba), len(classes)), dtype=proba.dtype)
    aligned[:, np.searchsorted(classes, own_classes)] = proba
    return aligned


def call_predict(name, member, classes, X):
    """Answers of one member as indices into the router's classes."""
    with note_failure(name, num_samples(X), "predict"):
        answers = np.asarray(member.predict(X))
        positions = np.minimum(np.searchsorted(classes, answers), len(classes) - 1)
        if (unknown := classes[positions] != answers).any():
            raise ValueError(
                f"The answer {answers[unknown].tolist()[0]!r} is not among the labels "
                f"{classes.tolist()!r}. "
                "(The nets of skorch answer with positions: encode y as 0, ..., n_classes - 1.)"
            )
        return positions


def comes_fitted(member):
    """Whether `fit` teaches it nothing: frozen, or a recorded or remote model.

    Such a member has not seen the rows and knows its own labels.
    """
    return isinstance(member, FrozenEstimator) or not get_tags(member).requires_fit


def _fit_member(router, context, name, member, X, y, classes, *, method, cv, fit_params):
    """Fit one member on all rows and answer them out-of-fold.

    A member that comes fitted has not seen the rows: it is asked directly.
    """
    context.call_on_fit_task_begin(estimator=router, X=X, y=y)
    fitted = clone(member)
    response = None
    if comes_fitted(fitted):
        with note_failure(name, num_samples(X), "fit"):
            fitted.fit(X, y, **fit_params)
        if method is not None:
            response = router._call_member(method, name, fitted, classes, X)
    else:
        with note_failure(name, num_samples(X), "fit"):
            fitted.fit(X, y, **fit_params)
        if method is not None:
            with note_failure(name, num_samples(X), "cross-validation"):
                response = cross_val_predict(
                    clone(member), X, y, cv=cv, method=method, params=fit_params
                )
            response = router._align_response(method, response, y, classes)
    context.call_on_fit_task_end(estimator=router, X=X, y=y)
    return fitted, response


class BaseRouterClassifier(CostAwareMixin, ClassifierMixin, MetaEstimatorMixin, NamedMembersMixin):
    """Classifiers with prices, of which each row is answered by one.

    Subclasses implement ``_fit_routing(X, y, names, responses)``, called when the members
    are fitted and ``costs_`` is known, which sets ``choices_`` last; and ``_plan``.
    """

    # Whether routing is learned from out-of-fold answers; otherwise none are computed.
    _learns_from_answers = True

    _parameter_constraints: dict = {
        "estimators": [list],
        "costs": [dict, "array-like", StrOptions({"time"})],
        "budget": [Interval(Real, 0, None, closed="both"), None],
        "response": [StrOptions({"proba", "predict"})],
        "cv": ["cv_object"],
        "n_jobs": [Integral, None],
    }

    def _check_parameters(self, members):
        """Rules between parameters, checked before any member is fitted."""
        asks_proba = self.response == "proba" and self._learns_from_answers
        for name, member in members.items():
            if is_regressor(member):
                raise ValueError(
                    f"The estimator {name!r} should be a classifier, got the regressor {member!r}. "
                    "BudgetRouter routes between models of any kind, from a log of their quality."
                )
            if asks_proba and not hasattr(member, "predict_proba"):
                optional = "response" in self.get_params(deep=False)
                raise ValueError(
                    f"{type(self).__name__} needs predict_proba, which {name!r} ({member!r}) does "
                    "not have. Wrap it in sklearn.calibration.CalibratedClassifierCV"
                    + (', or use response="predict".' if optional else ".")
                )

    def _check_inputs(self, X):
        """Rules between parameters and rows, checked before any member is fitted."""

    def _fixed_cost(self, costs, names):
        """What every row pays whoever answers, once `costs` are known."""
        return 0.0

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, **params):
        """Fit the members, learn from their out-of-sample answers where each is good.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Training rows; anything that can be indexed by row and the members take.

        y : array-like of shape (n_samples,)
            Labels.

        **params : dict
            Metadata for the members' `fit`, such as ``sample_weight``, through metadata
            routing.

        Returns
        -------
        self
            Fitted router.

        Raises
        ------
        ValueError
            For a budget below the cheapest member, or bad costs, before any member is
            fitted.
        """
        raise_for_params(params, self, "fit")
        # From here on a failure leaves the estimator unfitted.
        vars(self).pop("choices_", None)
        names, members = self._check_members()
        self._check_parameters(dict(zip(names, members)))
        costs = None
        if not isinstance(self.costs, str):
            costs = check_costs(self.costs, names)
            self._check_affordable(costs, names)
        X, y = check_rows(self, X, reset=True), on_host(y)
        self._check_inputs(X)
        y, classes, target = self._check_target(X, y, members)

        # Contexts are made before the parallel loop: a worker must not change the estimator.
        root = self._init_callback_context(max_subtasks=len(members) + 1)
        root.call_on_fit_task_begin(estimator=self, X=X, y=y)
        method = None
        if self._learns_from_answers:
            method = "predict_proba" if self.response == "proba" else "predict"
        cv = check_cv(self.cv, y, classifier=True)
        routed = process_routing(self, "fit", **params) if routing_enabled() else {}
        contexts = [root.subcontext(task_name=f"fit {name}") for name in names]
        fitted, responses = zip(
            *Parallel(n_jobs=self.n_jobs)(
                delayed(_fit_member)(
                    self,
                    context,
                    name,
                    member,
                    X,
                    y,
                    classes,
                    method=method,
                    cv=cv,
                    fit_params=routed[name]["fit"] if routed else {},
                )
                for name, member, context in zip(names, members, contexts)
            )
        )
        if costs is None:
            costs = measure_costs(self._timed_calls(names, fitted), X)
            self._check_affordable(costs, names)
        context = root.subcontext(task_name="learn routing")
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        self.classes_ = classes
        self.costs_ = costs
        self.estimators_ = list(fitted)
        self._fit_routing(X, target, names, responses)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        root.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _timed_calls(self, names, fitted):
        """For each member a function of rows that takes the time that it costs."""
        method = "predict_proba" if self.response == "proba" else "predict"
        return {name: getattr(member, method) for name, member in zip(names, fitted)}

    def _check_target(self, X, y, members):
        """Validated y, the classes, and y as the positions of its labels in them."""
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        check_classification_targets(y)
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes in y, got one class: "
                f"{classes.tolist()[0]!r}."
            )
        classes = _all_classes(classes, members)
        return y, classes, np.searchsorted(classes, y)

    def _call_member(self, method, name, member, classes, X):
        """Answers of a fitted member in the order of the router's classes."""
        call = call_proba if method == "predict_proba" else call_predict
        return call(name, member, classes, X)

    def _align_response(self, method, response, y, classes):
        """Cross-validated answers in the order of the router's classes."""
        if method == "predict":
            return np.searchsorted(classes, response)
        return align_proba(response, np.unique(y), classes)

    def _check_affordable(self, costs, names):
        fixed = self._fixed_cost(costs, names)
        budget = check_budget(self.budget)
        least = fixed + float(self._call_costs(costs, names).min())
        if budget < least * (1 - 1e-12):
            raise ValueError(
                f"budget={budget!r} is below the cheapest feasible plan: the smallest "
                f"feasible budget is {least:.17g} per sample."
            )

    def _call_costs(self, costs, names):
        """What choosing each member adds to the fixed cost."""
        return costs

    def _success(self, y, response):
        """Success probability SP of one member: probability or correctness of the label."""
        if self.response == "proba":
            return response[np.arange(len(y)), y]
        return (response == y).astype(np.float64)

    def _answer(self, X, plan, response):
        call = call_predict if response == "predict" else call_proba

        def answer(choice, rows):
            reused = self._reuse(choice, rows, plan.state, response)
            if reused is not None:
                return reused
            part = _safe_indexing(X, rows)
            try:
                return call(self.choices_[choice], self.estimators_[choice], self.classes_, part)
            except Exception as error:
                # A failed service counts the rows that it lost from its own first one.
                if hasattr(error, "rows"):
                    error.rows = rows[error.rows]
                raise

        answers = dispatch(plan.route, answer)
        return self.classes_[answers] if response == "predict" else answers

    def _reuse(self, choice, rows, state, response):
        """Answers that planning has already paid for, or None."""
        return None

    @available_if(_all_members_have_proba)
    def predict_proba(self, X, budget=None):
        """Class probabilities of the member that each row is routed to.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            Mean cost per sample for this call, in the unit of `costs`. None takes the
            constructor's; ``numpy.inf`` is unlimited.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        return self._respond(X, "predict_proba", budget=budget).y_pred

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        try:
            _, members = self._check_members()
        except ValueError:
            return tags
        tags.classifier_tags.multi_class = all(
            get_tags(member).classifier_tags is None or get_tags(member).classifier_tags.multi_class
            for member in members
        )
        return tags

    def get_metadata_routing(self):
        """Metadata routing of this object.

        Returns
        -------
        MetadataRouter
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        for name, member in self.estimators:
            if member != "drop":
                router.add(
                    **{name: member},
                    method_mapping=MethodMapping().add(caller="fit", callee="fit"),
                )
        return router


def _all_classes(classes, members):
    """The labels of y and of members that come fitted."""
    fitted = [m.classes_ for m in members if comes_fitted(m) and _is_fitted(m)]
    return np.unique(np.concatenate([classes, *fitted])) if fitted else classes
