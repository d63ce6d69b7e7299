"""The base of routers over members: the steps of `fit`, answers, quality and score."""

from functools import partial
from typing import NamedTuple

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.model_selection import check_cv
from sklearn.utils import Bunch, check_consistent_length, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted

from skroute.base import (
    check_affordable,
    check_budget,
    check_costs,
    dispatch,
    inherit_member_tags,
    measure_costs,
)
from skroute.base._inspection import ABSTAIN_NAME, abstained, answered_rows
from skroute.metrics._objectives import (
    is_money,
    objective_of_labels,
    objective_of_numbers,
    rows_of,
    worth_of,
)
from skroute.routing.parts._estimates import folds_of, read_rows
from skroute.routing.parts._members import (
    DROP,
    Members,
    OutOfFold,
    dropped_names,
    fit_members,
    members_by_name,
    weights_for_members,
    without_dropped,
)
from skroute.routing.parts._router import BUDGET, Router, metadata_of_fit
from skroute.routing.parts._targets import (
    MultiLabel,
    Numbers,
    SingleLabel,
    all_classes,
    make_target,
)
from skroute.utils._cache import cache_of
from skroute.utils._compat import (
    BaseHeterogeneousEnsemble,
    HasMethods,
    Integral,
    Interval,
    Real,
    StrOptions,
    VisualBlock,
    num_samples,
    will_have,
)
from skroute.utils._named import check_rows_match
from skroute.utils._tensors import on_host
from skroute.utils._typing import NDArray
from skroute.utils._validation import (
    check_known_labels,
    check_row_weights,
    given_weights,
    holds_texts,
    refuse_missing,
)

# Constraint of a parameter that is a number of at least 0, or None.
AMOUNT = [Interval(Real, 0, None, closed="left"), None]


class RowQuality(NamedTuple):
    """Quality, choice and cost of the answer to each row.

    Attributes
    ----------
    quality : ndarray of shape (n_samples,)
        Quality of the answer. Higher is better.

    route : ndarray of shape (n_samples,), dtype=int64
        Index of the choice, into ``choices_``.

    cost : ndarray of shape (n_samples,)
        Cost of the row.
    """

    quality: NDArray[np.float64]
    route: NDArray[np.int64]
    cost: NDArray[np.float64]


class Splits(NamedTuple):
    """The folds in which `fit` trains the members, and those for the router.

    Attributes
    ----------
    of_members : list of (train, test)
        Folds in which members answer rows that they were not fitted on.

    of_router : list of (train, test)
        Folds in which the router estimates rows that it was not fitted on.
    """

    of_members: list
    of_router: list


class MemberRouter(Router, BaseHeterogeneousEnsemble):
    """Base of routers with constructor parameters ``estimators``, ``costs`` and ``cv``.

    A subclass writes the methods of :class:`~skroute.base.CostAwareMixin` and `Router`.
    Its ``_fit`` calls ``_fit_members``, which fits the members and returns their
    out-of-fold answers. A fitted router has its members as one object, ``_members``
    (`Members`).

    The choices of a router are its members, and answers are theirs. A router whose
    choices are combinations of members replaces ``_answer``. A router that chose rules
    for the costs of `fit` replaces ``costs_``, which follows the parameter `costs`.

    It may set these class attributes:

    ``_target_kinds`` : tuple of type
        The kinds of target that the router takes.

    ``_qualities`` : tuple of str or None
        Names of the qualities of labels that the router can maximise. None is all of
        them.
    """

    _parameter_constraints: dict = {
        "estimators": [list],
        "costs": [dict, "array-like", StrOptions({"time"})],
        "budget": BUDGET,
        "cv": ["cv_object"],
        "memory": [None, str, HasMethods("cache")],
        "n_jobs": [Integral, None],
    }
    _target_kinds: tuple[type, ...] = (SingleLabel,)
    _qualities: tuple[str, ...] | None = None

    # The members ----------------------------------------------------------------------

    @property
    def estimators_(self):
        """The fitted members, a list in the order of ``member_names_``."""
        return self._members.models

    @property
    def member_names_(self):
        """Names of the members, a list of str."""
        return self._members.names

    @property
    def named_estimators_(self):
        """The fitted members by name (:class:`~sklearn.utils.Bunch`)."""
        return Bunch(**dict(zip(self.member_names_, self.estimators_)))

    @property
    def costs_(self):
        """Cost of a call of each member by the present `costs`, shape (n_members,)."""
        check_is_fitted(self)
        return self._members.costs_now(self.costs, self.estimators)

    # Fit ------------------------------------------------------------------------------

    def _fit_members(
        self,
        members,
        X,
        y,
        *,
        params,
        task,
        method,
        methods_of=None,
        cheapest_plan=np.min,
        advice_on_rows=None,
    ):
        """Fit the members, measure their costs if asked for, and ask them out of fold.

        Sets ``_members`` and, for labels, ``classes_``. Before a member is fitted,
        everything is checked that can be.

        Parameters
        ----------
        members : dict from str to estimator
            From `members_by_name`.
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        params : dict
            `sample_weight`, and metadata for the `fit` of members.
        task : FitTask
            Progress of the fit.
        method : str or None
            The method by which members answer rows, see `SingleLabel.call`. None: they
            are asked about no row of `fit`.
        methods_of : callable, default=None
            ``methods_of(name, member, target)`` returns all methods by which one member
            is asked about the rows of `fit`. None takes `method` for all members.
        cheapest_plan : callable, default=numpy.min
            ``cheapest_plan(costs)`` returns the mean cost of the cheapest plan, for the
            costs of the members. The default is the cheapest member for every row.
        advice_on_rows : str, default=None
            End of the error message for rows that the quality estimator cannot read.

        Returns
        -------
        X : indexable
            The rows of positive weight.
        answers : OutOfFold
            Answers of the members to these rows.
        """
        names = list(members)
        X = read_rows(self, X, advice_on_rows)
        check_member_kinds(members, self, method)
        # The parameter is a text only if it is "time", for costs that are measured.
        has_measured_costs = isinstance(self.costs, str)
        if not has_measured_costs:
            listed = without_dropped(self.costs, dropped_names(self.estimators))
            costs = check_costs(listed, names)
            check_affordable(check_budget(self.budget), float(cheapest_plan(costs)))

        y, target = read_target(X, on_host(y), self._target_kinds, members, self)
        check_objective(self, target)
        given_weight = given_weights(params.get("sample_weight"), X)
        metadata = metadata_of_fit(
            self, params, given_weight, partial(weights_for_members, members)
        )
        splits = self._splits(X, y, type(target), metadata)
        methods = {}
        for name, member in members.items():
            if methods_of is not None:
                methods[name] = methods_of(name, member, target)
            else:
                methods[name] = [] if method is None else [method]
        models, answers_by_method = fit_members(
            members,
            X,
            y,
            target=target,
            methods=methods,
            splits=splits.of_members,
            metadata=metadata,
            task=task,
            memory=self.memory,
            n_jobs=self.n_jobs,
        )
        if has_measured_costs:
            costs = measure_members(names, models, method, X)
            check_affordable(check_budget(self.budget), float(cheapest_plan(costs)))

        self._members = Members(
            names=names,
            models=models,
            target=target,
            costs_of_fit=costs,
            has_measured_costs=has_measured_costs,
        )
        if not isinstance(target, Numbers):
            self.classes_ = target.classes
        answers = OutOfFold(
            names, answers_by_method, target.encode(y), splits.of_router
        )
        if given_weight is not None:
            X, answers = answers.weighted(X, given_weight)
        return X, answers

    def _splits(self, X, y, kind, metadata):
        """Return the folds of the members and the folds of the router (`Splits`).

        Parameters
        ----------
        X, y : indexable of n_rows rows
        kind : subclass of Target
        metadata : mapping from str to Bunch
            Metadata of `fit`, of which the splitter gets the entry ``"cv"``.
        """
        splitter = check_cv(self.cv, y, classifier=kind is not Numbers)
        if self.cv is None or isinstance(self.cv, Integral):
            # The router learns qualities, which are not classes, so that its own folds
            # are not stratified.
            splits = list(splitter.split(np.zeros(num_samples(X)), y))
            return Splits(of_members=splits, of_router=folds_of(self.cv, X))
        splits = folds_of(splitter, X, y, **metadata["cv"]["split"])
        return Splits(of_members=splits, of_router=splits)

    # Answers --------------------------------------------------------------------------

    def _single_choices(self):
        """Return the names of the members, a list of str."""
        return list(self.member_names_)

    def _answer(self, plan, response):
        """Return the answers to all rows of a plan, as the user gets them."""
        answer_rows = partial(self._answers_of_members, plan, response)
        return answer_unless_abstained(self, plan, response, answer_rows)

    def _answers_of_members(self, plan, response, rows):
        """Return the answers to some rows of a plan, each by the member of its choice.

        Parameters
        ----------
        plan : Plan
        response : {"predict", "predict_proba"}
        rows : ndarray of int
            Positions in the plan. None of these rows abstains.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_outputs)
        """
        members = self._members
        # Answers that deciding has paid for, by (position of the member, method).
        paid_answers = plan.state or {}
        sweep = cache_of(self)

        def answer(choice, positions):
            """Return a member's answers to rows given by their positions in `rows`."""
            rows_of_choice = rows[positions]
            if (choice, response) in paid_answers:
                # The member is not called again.
                return paid_answers[choice, response][rows_of_choice]
            return members.ask(
                choice, response, plan.X, rows_of_choice, counter=sweep, cache=sweep
            )

        answers = dispatch(plan.route[rows], answer)
        if response == "predict":
            return members.target.labels(answers)
        return members.target.probabilities(answers)

    def _offers_proba(self):
        """Return True if all members have `predict_proba`."""
        if self._target_kinds == (Numbers,):
            return False
        models = getattr(self, "estimators_", None)
        if models is None:
            models = [member for _, member in self.estimators if member != DROP]
        for model in models:
            # If a member has no `predict_proba`, the access below raises the member's
            # own AttributeError, which says why.
            if not will_have(model, "predict_proba") and not callable(
                model.predict_proba
            ):
                return False
        return True

    # Quality --------------------------------------------------------------------------

    def _encoded(self, y):
        """Encode true answers as members' answers are. Refuse new labels."""
        refuse_missing(y=y)
        y = _dense(y)
        if isinstance(self._members.target, SingleLabel):
            check_known_labels(y, self.classes_)
        return self._members.target.encode(y)

    def row_quality(self, X, y, sample_weight=None, budget=None, **parameters):
        """Return the quality of the answer to each row, by this router's `quality`.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            True answers.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, for qualities that weight classes by how many rows they
            have.

        budget : float, default=None
            As in `predict_routed`.

        **parameters : keyword arguments
            The other keywords of `predict_routed`.

        Returns
        -------
        RowQuality
            Named tuple ``(quality, route, cost)``. The quality of a row that abstains
            is the best quality in the log of `fit` minus `abstain_cost`.
        """
        check_is_fitted(self)
        check_rows_match(X=X, y=y, sample_weight=sample_weight, **parameters)
        check_consistent_length(X, y)
        if sample_weight is not None:
            sample_weight = check_row_weights(sample_weight, num_samples(X))
        # New labels are refused before a model is called.
        self._encoded(y)
        worth = worth_of(self, y)
        # The router's `quality` measures labels or probabilities. `response` is the
        # method that returns them.
        response = worth.asks
        routed = self.respond(X, self.make_call(budget, **parameters), response)
        quality = worth.of_routed(rows_of(y, self), routed, self, sample_weight)
        return RowQuality(quality, routed.route, routed.cost)

    def _score_routed(self, y, routed, sample_weight):
        """Return the score of the rows that do not abstain, NaN if all rows do."""
        y = _dense(y)
        check_consistent_length(routed.route, y)
        rows = answered_rows(self, routed.route)
        if not len(rows):
            return np.nan
        # If some rows abstain, `y_pred` can be an array of objects. By way of a list,
        # the answers become an array of labels again.
        answers = np.array(routed.y_pred[rows].tolist())
        weight = None if sample_weight is None else sample_weight[rows]
        return self._members.target.score(y[rows], answers, weight)

    # scikit-learn ---------------------------------------------------------------------

    def get_metadata_routing(self):
        """Metadata routing of this object.

        Returns
        -------
        sklearn.utils.metadata_routing.MetadataRouter
            The routing of this estimator.
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        fit = MethodMapping().add(caller="fit", callee="fit")
        for name, member in self.estimators:
            if member != DROP:
                router.add(**{name: member}, method_mapping=fit)
        split = MethodMapping().add(caller="fit", callee="split")
        return router.add(cv=self.cv, method_mapping=split)

    def __sklearn_tags__(self):
        """Return tags that follow from the members and the kinds of target."""
        tags = super().__sklearn_tags__()
        try:
            members = members_by_name(self.estimators, self._validate_names).values()
        except ValueError:
            # Tags are read before parameters are validated. `fit` refuses such members.
            return tags
        member_tags = [get_tags(member).classifier_tags for member in members]
        router_tags = tags.classifier_tags
        # Classifier tags of a router or of a member are None if it is no classifier.
        if router_tags is not None:
            router_tags.multi_class = all(
                kind is None or kind.multi_class for kind in member_tags
            )
            members_take_several = all(
                kind is not None and kind.multi_label for kind in member_tags
            )
            router_takes_several = MultiLabel in self._target_kinds
            router_tags.multi_label = router_takes_several and members_take_several
        return inherit_member_tags(tags, members)

    def _sk_visual_block_(self):
        """Return the members as parallel blocks, for scikit-learn's HTML display."""
        names, members = zip(*self.estimators)
        return VisualBlock("parallel", members, names=names)


# Checks before any member is fitted ---------------------------------------------------


def method_for_new_rows(method):
    """Return the member's method that answers new rows, from that used in `fit`.

    If costs are times, the time of this method is measured.

    Parameters
    ----------
    method : {"predict", "predict_proba", "scores"} or None
        The method by which members answer rows of `fit`. None: they answer none.

    Returns
    -------
    {"predict", "predict_proba"}
    """
    if method is None:
        # `fit` gets no answers of members. New rows are answered by `predict`.
        return "predict"
    if method == "scores":
        # Only recorded members have scores. Others have probabilities.
        return "predict_proba"
    return method


def check_member_kinds(members, router, method):
    """Raise an error if a member is of the wrong kind, or lacks the method needed.

    Parameters
    ----------
    members : dict from str to estimator
    router : MemberRouter
    method : str or None
        As in ``MemberRouter._fit_members``. Classifiers must have it.
    """
    routes_numbers = router._target_kinds == (Numbers,)
    for name, member in members.items():
        if routes_numbers:
            wanted = "regressor"
            is_wrong = is_classifier(member)
        else:
            wanted = "classifier"
            is_wrong = is_regressor(member)
        if is_wrong:
            raise ValueError(
                f"The estimator {name!r} should be a {wanted}, got {member!r}. "
                "BudgetRouter routes between models of any kind, from a log of "
                "their quality."
            )
        needed = method_for_new_rows(method)
        if not routes_numbers and not will_have(member, needed):
            raise ValueError(
                f"{type(router).__name__} needs {needed}, which {name!r} "
                f"({member!r}) does not have. Wrap it in "
                "sklearn.calibration.CalibratedClassifierCV, or take a quality of "
                "labels where there is one."
            )


def read_target(X, y, kinds, members, router):
    """Return the validated target of the rows, and its kind as an object.

    Parameters
    ----------
    X : indexable
        The rows.
    y : array-like
        True answers.
    kinds : tuple of type
        The kinds of target that the router takes.
    members : dict from str to estimator
        The members. Those that come fitted may know further labels.
    router : MemberRouter
        Its name is in error messages.

    Returns
    -------
    y : ndarray
        Validated answers, not encoded.
    target : SingleLabel, MultiLabel or Numbers
    """
    y, classes, kind = make_target(X, y, kinds, type(router).__name__)
    if kind is SingleLabel:
        classes = all_classes(classes, members.values())
    return y, kind(classes)


def check_objective(router, target):
    """Raise an error if the parameters of quality or abstaining do not fit the target.

    They are `quality`, `abstain_cost` and `abstain_label` of `router`. `target` is that
    of the rows of `fit`.
    """
    objective = objective_of(router, target)
    abstain_cost = getattr(router, "abstain_cost", None)  # baselines never abstain
    if abstain_cost is None:
        return
    if isinstance(target, SingleLabel):
        # Raises an error if a class has the label.
        label_of_abstaining(router.abstain_label, target.classes)
    if objective.by_class:
        raise ValueError(
            f"abstain_cost={abstain_cost!r} is the cost of one row, but "
            f"quality={objective.name!r} is no plain mean over rows. Take another "
            "quality, or None."
        )


def measure_members(names, models, method, X):
    """Return the seconds that each fitted member takes for a row, (n_members,).

    Parameters
    ----------
    names : list of str
    models : list of estimators
        The fitted members.
    method : str or None
        As in ``MemberRouter._fit_members``.
    X : indexable
        Rows on which the time is measured.
    """
    calls = {}
    for name, model in zip(names, models):
        calls[name] = getattr(model, method_for_new_rows(method))
    return measure_costs(calls, X)


# Quality ------------------------------------------------------------------------------


def _dense(y):
    """Return true answers as an array. They may be sparse, or on a device."""
    if hasattr(y, "todense"):
        return np.asarray(y.todense())
    return np.asarray(on_host(y))


def objective_of(router, target):
    """Return the `Objective` of the quality of a router over members."""
    if isinstance(target, Numbers):
        return objective_of_numbers(router.quality)
    return objective_of_labels(
        router.quality,
        target.classes,
        several=isinstance(target, MultiLabel),
        takes=router._qualities,
        who=type(router).__name__,
    )


def least_prices(exchange_rate, quality):
    """Return the quality that a unit of cost is worth: with a budget, and without one.

    Parameters
    ----------
    exchange_rate : float or None
        What a unit of cost is worth. None: 1 if `quality` is money and there is no
        budget, else 0.
    quality : object
        Parameter of the router.

    Returns
    -------
    tuple of two floats
    """
    if exchange_rate is None:
        price_without_budget = 1.0 if is_money(quality) else 0.0
        return 0.0, price_without_budget
    rate = float(exchange_rate)
    return rate, rate


# Abstaining ---------------------------------------------------------------------------


def answer_unless_abstained(router, plan, response, answer_rows):
    """Return the answers to all rows of a plan. Rows that abstain have no answer.

    Parameters
    ----------
    router : MemberRouter
    plan : Plan
    response : {"predict", "predict_proba"}
    answer_rows : callable
        ``answer_rows(rows)`` returns the answers to the rows at these positions,
        (n_rows,) or (n_rows, n_outputs). It is called only for rows that do not
        abstain.

    Returns
    -------
    ndarray of shape (n_rows,) or (n_rows, n_outputs)
        A row that abstains has NaN or, if answers are labels, `abstain_label`.
    """
    abstains = abstained(router, plan.route)
    n_rows = len(abstains)
    if not abstains.any():
        return answer_rows(np.arange(n_rows))
    target = router._members.target
    # An array in which every row abstains. The other rows are filled below.
    if response == "predict_proba" or isinstance(target, MultiLabel):
        answers = np.full((n_rows, len(router.classes_)), np.nan)
    elif isinstance(target, Numbers):
        answers = np.full(n_rows, np.nan)
    else:
        answers = labels_that_abstain(n_rows, router.abstain_label, router.classes_)
    rows = np.flatnonzero(~abstains)
    if len(rows):
        answers[rows] = answer_rows(rows)
    return answers


def label_of_abstaining(label, classes):
    """Return the label of a row that abstains. No class may have it.

    `label` is the router's `abstain_label`. None becomes "abstain" if classes are texts
    and -1 if they are numbers.
    """
    if label is None:
        label = ABSTAIN_NAME if holds_texts(classes) else -1
    if label in classes.tolist():
        raise ValueError(
            f"abstain_label={label!r} is one of the classes {classes.tolist()!r}. Give "
            "a label that no class has."
        )
    return label


def labels_that_abstain(n_rows, label, classes):
    """Return an array (n_rows,) of abstaining's label that can hold `classes`, too.

    Other rows may get these labels. `label` is the router's `abstain_label`.
    """
    label = label_of_abstaining(label, classes)
    labels = np.asarray([label])
    # Only an array of objects holds texts and numbers.
    is_mixed = holds_texts(labels) != holds_texts(classes)
    dtype = np.dtype(object) if is_mixed else np.result_type(labels, classes)
    return np.full(n_rows, label, dtype=dtype)
