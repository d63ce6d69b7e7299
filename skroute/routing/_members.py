"""Members: named models that are checked, fitted out of fold, and asked for the rows of each."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import check_cv
from sklearn.utils import Bunch, check_consistent_length, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from skroute.base import (
    check_affordable,
    check_budget,
    check_costs,
    dispatch,
    inherit_member_tags,
    measure_costs,
    note_failure,
)
from skroute.base._inspection import abstained, answered_rows, comes_fitted, may_take_weights
from skroute.metrics._objectives import (
    asks_of,
    is_money,
    objective_of_labels,
    objective_of_numbers,
    rows_of,
    worth_of,
)
from skroute.routing._estimates import folds_of, part_of, read_rows
from skroute.routing._log import costs_now
from skroute.routing._router import BUDGET, Router
from skroute.routing._targets import (
    MultiLabel,
    Numbers,
    SingleLabel,
    all_classes,
    make_target,
    rows_of_failure,
)
from skroute.utils._cache import cache_of
from skroute.utils._compat import (
    BaseHeterogeneousEnsemble,
    Integral,
    Interval,
    Real,
    StrOptions,
    VisualBlock,
    _safe_indexing,
    _safe_split,
    check_method_params,
    num_samples,
    routing_enabled,
    will_have,
)
from skroute.utils._named import by_label, check_rows_match
from skroute.utils._tensors import on_host
from skroute.utils._validation import (
    check_known_labels,
    check_row_weights,
    check_text_names,
    folds_among,
    given_weights,
    none_if_equal,
    refuse_missing,
    relative_weights,
)

AMOUNT = [Interval(Real, 0, None, closed="left"), None]


class RowQuality(NamedTuple):
    """How good the answer to each row is, higher being better, the choice made and its cost."""

    quality: NDArray[np.float64]
    route: NDArray[np.int64]
    cost: NDArray[np.float64]


@dataclass
class OutOfFold:
    """What members said of the rows of a fit, out of fold, and how these rows are divided."""

    names: list
    # For each member, by the method that was asked, one entry or row of scores for each row of
    # the fit.
    by_method: list
    # The true answers, encoded as the responses are.
    target: np.ndarray
    folds: list
    # Weights of the rows, in units of one row (`relative_weights`); None if all weigh the same.
    weight: np.ndarray | None = None
    # The same as the user gave them, which is how an estimator of the user gets them.
    given_weight: np.ndarray | None = None

    @property
    def part(self):
        """Number of the fold that each row is in."""
        return part_of(self.folds, len(self.target))

    def weighted(self, X, given_weight):
        """Return the rows that have weight, and these answers to them with the weights.

        Nothing is learned from rows of weight 0.
        """
        kept = np.flatnonzero(given_weight > 0)
        weight = none_if_equal(relative_weights(given_weight)[kept])
        if len(kept) == len(given_weight):
            return X, replace(self, weight=weight, given_weight=given_weight)
        answers = OutOfFold(
            self.names,
            [{method: said[kept] for method, said in one.items()} for one in self.by_method],
            self.target[kept],
            folds_among(self.folds, kept, len(given_weight)),
            weight,
            given_weight[kept],
        )
        return _safe_indexing(X, kept), answers

    @property
    def responses(self):
        """What each member said by the first method that it was asked by; None if by none."""
        return [next(iter(said.values()), None) for said in self.by_method]

    def to(self, method):
        """Return what each member said when it was asked by one method."""
        return [said[method] for said in self.by_method]


class MemberRouter(Router, BaseHeterogeneousEnsemble):
    """Base of routers with constructor parameters ``estimators``, their ``costs``, and ``cv``.

    A subclass implements ``_learn(X, answers)``, which sets what ``_plan`` needs and
    ``choices_``, and may replace ``_asks``, the method of members that it learns from, and
    ``_asks_member``, all methods that one member is asked by.
    """

    _parameter_constraints: dict = {
        "estimators": [list],
        "costs": [dict, "array-like", StrOptions({"time"})],
        "budget": BUDGET,
        "cv": ["cv_object"],
        "n_jobs": [Integral, None],
    }
    # The kinds of target that the router takes.
    _target_kinds: tuple[type, ...] = (SingleLabel,)
    # Names of the qualities of labels that it has the mathematics for; None: all.
    _qualities: tuple[str, ...] | None = None

    @property
    def named_estimators_(self):
        """The fitted members by name (:class:`~sklearn.utils.Bunch`)."""
        return Bunch(**dict(zip(self.member_names_, self.estimators_)))

    # Fit ------------------------------------------------------------------------------------

    def _fit(self, X, y, *, task, **params):
        members = self._check_members()
        names, X, y = list(members), read_rows(self, X, self._advice()), on_host(y)
        self._check(members)
        costs = None
        if not isinstance(self.costs, str):
            costs = check_costs(self._listed_costs(names), names)
            check_affordable(check_budget(self.budget), self._least_cost(costs, names))
        y, classes, kind = make_target(X, y, self._target_kinds, type(self).__name__)
        target = kind(all_classes(classes, members.values()) if kind is SingleLabel else classes)
        self._check_target(target)
        given_weight = given_weights(params.get("sample_weight"), X)
        routed = self._routed(members, params, given_weight)
        splits, folds = self._splits(X, y, kind, routed)
        # Steps are made before the parallel loop: a worker must not change the estimator.
        steps = [task.step(f"fit {name}") for name in names]
        found = Parallel(n_jobs=self.n_jobs)(
            delayed(fit_member)(
                step, name, member, X, y, target, self._asks_member(name, member, target),
                splits, routed[name]["fit"],
            )
            for step, (name, member) in zip(steps, members.items())
        )  # fmt: skip
        fitted, responses = map(list, zip(*found))
        self._target, self.estimators_, self.member_names_ = target, fitted, names
        if kind is not Numbers:
            self.classes_ = target.classes
        if costs is None:
            calls = {name: getattr(m, self._method()) for name, m in zip(names, fitted)}
            costs = measure_costs(calls, X)
            check_affordable(check_budget(self.budget), self._least_cost(costs, names))
        self._costs_of_fit, self._measured = costs, isinstance(self.costs, str)
        with task.step("learn routing"):
            answers = OutOfFold(names, responses, target.positions(y), folds)
            if given_weight is not None:
                X, answers = answers.weighted(X, given_weight)
            self._learn(X, answers)

    def _asks(self):
        """How members are asked about training rows, see `SingleLabel.call`; None if not."""
        return asks_of(self.quality) if hasattr(self, "quality") else "predict_proba"

    def _asks_member(self, name, member, target):
        """Return the methods by which a member is asked about training rows."""
        method = self._asks()
        return [] if method is None else [method]

    def _method(self):
        """The method of members that takes the time that they cost."""
        return {"scores": "predict_proba", None: "predict"}.get(self._asks(), self._asks())

    def _advice(self):
        """What to do about rows that the default estimator cannot read, if it reads X."""
        return None

    def _check(self, members):
        """Rules between parameters and members (by name), before any is fitted."""
        of_numbers = self._target_kinds == (Numbers,)
        for name, member in members.items():
            if (is_classifier if of_numbers else is_regressor)(member):
                wanted = "regressor" if of_numbers else "classifier"
                raise ValueError(
                    f"The estimator {name!r} should be a {wanted}, got {member!r}. BudgetRouter "
                    "routes between models of any kind, from a log of their quality."
                )
            if not of_numbers and not will_have(member, self._method()):
                raise ValueError(
                    f"{type(self).__name__} needs {self._method()}, which {name!r} ({member!r}) "
                    "does not have. Wrap it in sklearn.calibration.CalibratedClassifierCV, or take "
                    "a quality of labels where there is one."
                )

    def _check_target(self, target):
        """Rules between parameters and labels, before any member is fitted."""
        if not hasattr(self, "quality"):
            return
        objective = self._objective_of(target)
        if getattr(self, "abstain_cost", None) is not None and objective.by_class:
            raise ValueError(
                f"abstain_cost={self.abstain_cost!r} is the cost of one row, but "
                f"quality={objective.name!r} is no plain mean over rows. Take another quality, or "
                "None."
            )

    def _check_members(self):
        """The members that are not dropped, by name."""
        try:
            names, _ = zip(*self.estimators)
        except (TypeError, ValueError):
            raise ValueError(
                "estimators must be a non-empty list of (name, estimator) tuples, "
                f"got {self.estimators!r}."
            ) from None
        check_text_names(names, "estimators")
        self._validate_names(names)
        kept = {name: member for name, member in self.estimators if member != "drop"}
        if not kept:
            raise ValueError(
                f"All of the estimators {list(names)!r} are dropped; keep at least one."
            )
        for name, member in kept.items():
            if not hasattr(member, "fit") or not will_have(member, "predict"):
                raise ValueError(
                    f"The estimator {name!r} must have fit and predict, got {member!r}. "
                    'Use "drop" to leave a member out.'
                )
        return kept

    def _listed_costs(self, names):
        """The constructor's `costs`, where dropped members may have one, without theirs."""
        costs = by_label(self.costs)
        if not isinstance(costs, Mapping):
            return costs
        dropped = {name for name, _ in self.estimators}.difference(names)
        return {name: cost for name, cost in costs.items() if name not in dropped}

    @property
    def _member_costs(self):
        """The cost of every member's call, by the constructor's `costs` of now."""
        if not isinstance(self.costs, str):
            names = self.member_names_
            return costs_now(self._listed_costs(names), names, self._costs_of_fit, len(names))
        if self._measured:
            return self._costs_of_fit
        raise ValueError(
            f"costs={self.costs!r} was set after fit, which measures them: fit again, or give "
            "the costs."
        )

    @property
    def costs_(self):
        """Cost of each member's call, by `costs` as it is now, ndarray of shape (n_members,)."""
        check_is_fitted(self)
        return self._member_costs

    def _least_cost(self, costs, names):
        """Mean cost of the cheapest plan, from the cost of each named member."""
        return 0.0 if getattr(self, "abstain_cost", None) is not None else float(costs.min())

    def _routed(self, members, params, given_weight):
        """Return the metadata for the `fit` of each member and for the splitter."""
        if given_weight is None or routing_enabled():
            return self._route_metadata(params)
        self._route_metadata({name: params[name] for name in params if name != "sample_weight"})
        routed = {"cv": Bunch(split={})}
        for name, member in members.items():
            fitted = comes_fitted(member)
            if not fitted and not may_take_weights(member):
                raise ValueError(
                    f"sample_weight is for every member, but fit of {name!r} ({member!r}) does "
                    "not take it. With sklearn.set_config(enable_metadata_routing=True) each "
                    "member says by set_fit_request whether it does."
                )
            routed[name] = Bunch(fit={} if fitted else {"sample_weight": given_weight})
        return routed

    def _splits(self, X, y, kind, routed):
        """How members are cross-validated, and how what the router learns of them is."""
        splitter = check_cv(self.cv, y, classifier=kind is not Numbers)
        if self.cv is None or isinstance(self.cv, Integral):
            # Values are not classes: what is learned from them is not stratified.
            return list(splitter.split(np.zeros(num_samples(X)), y)), folds_of(self.cv, X)
        splits = folds_of(splitter, X, y, **routed["cv"]["split"])
        return splits, splits

    # Answers --------------------------------------------------------------------------------

    def _single_choices(self):
        return list(self.member_names_)

    def _answer(self, plan, response):
        handed = abstained(self, plan.route)
        if not handed.any():
            return self._answers_to(plan, response, np.arange(len(plan.route)))
        wide = response == "predict_proba" or isinstance(self._target, MultiLabel)
        shape = (len(handed), len(self.classes_)) if wide else len(handed)
        # Rows that nobody answers: None, or NaN among numbers.
        answers = np.full(shape, np.nan if wide or isinstance(self._target, Numbers) else None)
        rows = np.flatnonzero(~handed)
        if len(rows):
            answers[rows] = self._answers_to(plan, response, rows)
        return answers

    def _answers_to(self, plan, response, rows):
        """Answers to some rows of a plan; what deciding has paid for is its state."""
        known = plan.state or {}

        def answer(choice, at):
            if (choice, response) in known:
                return known[choice, response][rows[at]]
            return self._answers_of(plan.X, choice, response, rows[at])

        answers = dispatch(plan.route[rows], answer)
        if response == "predict":
            return self._target.labels(answers)
        return self._target.probabilities(answers)

    def _answers_of(self, X, at, method, rows, kept=None):
        """What a member says of some rows; within a sweep, or `kept`, of each of them once."""
        name, member, cache = self.member_names_[at], self.estimators_[at], cache_of(self)

        def ask(rows):
            cache.count_rows(name, len(rows))
            with rows_of_failure(rows):
                some = X if len(rows) == num_samples(X) else _safe_indexing(X, rows)
                return self._target.call(method, name, member, some, proven=True)

        key = "answers", at, method
        return (kept or cache).get_or_compute_rows(key, rows, num_samples(X), ask)

    def _offers_proba(self):
        """When every member, whichever a row is routed to, has `predict_proba`."""
        if self._target_kinds == (Numbers,):
            return False
        members = [member for _, member in self.estimators if member != "drop"]
        members = getattr(self, "estimators_", members)
        # A member's own AttributeError goes through: it says why.
        return all(
            will_have(member, "predict_proba") or callable(member.predict_proba)
            for member in members
        )

    # Quality --------------------------------------------------------------------------------

    def _objective_of(self, target):
        if isinstance(target, Numbers):
            return objective_of_numbers(self.quality)
        return objective_of_labels(
            self.quality,
            target.classes,
            several=isinstance(target, MultiLabel),
            takes=self._qualities,
            who=type(self).__name__,
        )

    def _least_prices(self):
        """What one unit of cost is worth in quality: within a budget, and where there is none."""
        if getattr(self, "exchange_rate", None) is not None:
            return (float(self.exchange_rate),) * 2
        return 0.0, float(is_money(self.quality))

    def _encoded(self, y):
        """True answers as members' are; labels that `fit` has not seen are refused."""
        refuse_missing(y=y)
        y = np.asarray(y.todense() if hasattr(y, "todense") else on_host(y))
        if isinstance(self._target, SingleLabel):
            check_known_labels(y, self.classes_)
        return self._target.positions(y)

    def row_quality(self, X, y, sample_weight=None, budget=None, **call):
        """How good the answer to each row is, by this router's `quality`, in one pass.

        Parameters
        ----------
        X, budget
            As in `predict_routed`.

        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            True answers.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, for qualities that weight classes by how many rows they have.

        **call : keyword arguments
            What `predict_routed` takes.

        Returns
        -------
        RowQuality
            Named tuple ``(quality, route, cost)``. A row that is handed over counts as the
            best quality in the log of `fit` less `abstain_cost`.
        """
        check_is_fitted(self)
        check_rows_match(X=X, y=y, sample_weight=sample_weight, **call)
        check_consistent_length(X, y)
        if sample_weight is not None:
            sample_weight = check_row_weights(sample_weight, num_samples(X))
        # Refused before a model is asked.
        self._encoded(y)
        worth = worth_of(self, y)
        routed = self.respond(X, self.make_call(budget, **call), worth.asks)
        quality = worth.of_routed(rows_of(y, self), routed, self, sample_weight)
        return RowQuality(quality, routed.route, routed.cost)

    def _score_routed(self, y, routed, sample_weight):
        y = np.asarray(y.todense() if hasattr(y, "todense") else on_host(y))
        check_consistent_length(routed.route, y)
        rows = answered_rows(self, routed.route)
        if not len(rows):
            return np.nan
        # Labels again: rows that abstain made this an array of objects.
        answers = np.array(routed.y_pred[rows].tolist())
        weight = None if sample_weight is None else sample_weight[rows]
        return self._score_of(y[rows], answers, weight)

    def _score_of(self, y, answers, weight):
        if isinstance(self._target, Numbers):
            return r2_score(y, answers, sample_weight=weight)
        return accuracy_score(y, answers, sample_weight=weight)

    # scikit-learn ---------------------------------------------------------------------------

    def get_metadata_routing(self):
        """Metadata routing of this object.

        Returns
        -------
        sklearn.utils.metadata_routing.MetadataRouter
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        fit = MethodMapping().add(caller="fit", callee="fit")
        for name, member in self.estimators:
            if member != "drop":
                router.add(**{name: member}, method_mapping=fit)
        split = MethodMapping().add(caller="fit", callee="split")
        return router.add(cv=self.cv, method_mapping=split)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        try:
            members = self._check_members().values()
        except ValueError:
            # Tags are asked for before parameters are validated; fit will say it.
            return tags
        kinds = [get_tags(member).classifier_tags for member in members]
        if (own := tags.classifier_tags) is not None:
            own.multi_class = all(kind is None or kind.multi_class for kind in kinds)
            own.multi_label = MultiLabel in self._target_kinds
            own.multi_label &= all(kind is not None and kind.multi_label for kind in kinds)
        return inherit_member_tags(tags, members)

    def _sk_visual_block_(self):
        names, members = zip(*self.estimators)
        return VisualBlock("parallel", members, names=names)


def names_best_score(scores, labels):
    """Return True if the answers of a member are its best scores, the first of equal ones."""
    return bool((scores.argmax(axis=1) == labels).all())


def fit_member(step, name, member, X, y, target, asks, splits, fit_params):
    """Return a member fitted on all rows, and what it says of each row out of fold.

    What it says is a dict from each of the methods in `asks` to an array.
    """
    with step:
        fitted = clone(member)
        with note_failure(name, num_samples(X), "fit"):
            fitted.fit(X, y, **fit_params)
        if not asks:
            return fitted, {}
        if comes_fitted(fitted):
            return fitted, {method: target.call(method, name, fitted, X) for method in asks}
        responses = {}
        with note_failure(name, num_samples(X), "cross-validation"):
            for train, test in splits:
                fold = clone(member)
                fold.fit(
                    *_safe_split(fold, X, y, train), **check_method_params(X, fit_params, train)
                )
                rows, _ = _safe_split(fold, X, y, test, train)
                for method in asks:
                    part = target.call(method, name, fold, rows)
                    if method not in responses:
                        shape = (num_samples(X), *part.shape[1:])
                        responses[method] = np.zeros(shape, dtype=part.dtype)
                    responses[method][test] = part
        return fitted, responses
