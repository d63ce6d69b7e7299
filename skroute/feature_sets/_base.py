"""What the selectors of feature sets share: items with sizes, features that cost, trained sets."""

import reprlib
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, MetaEstimatorMixin
from sklearn.metrics import check_scoring, get_scorer_names
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing, column_or_1d, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_memory, validate_data

from skroute.base import (
    CostAwareMixin,
    Plan,
    check_budget,
    check_rows,
    dispatch,
    inherit_member_tags,
    note_failure,
)
from skroute.feature_sets._anytime import anytime_plan
from skroute.feature_sets._costs import (
    FeatureCosts,
    MeasuredCosts,
    check_feature_costs,
    measure_feature_costs,
)
from skroute.feature_sets._extractors import check_extractors
from skroute.feature_sets._lattice import NO_FEATURES, indicator, members, set_name
from skroute.feature_sets._training import SetTrainer
from skroute.metrics._report import ReportMixin
from skroute.utils._compat import (
    BaseComposition,
    HasMethods,
    Integral,
    Interval,
    Real,
    StrOptions,
    num_samples,
    routing_enabled,
)
from skroute.utils._once import once_of
from skroute.utils._tensors import on_host


class Skyline(NamedTuple):
    """The feature sets worth choosing for items of one size.

    Attributes
    ----------
    route : ndarray of shape (n_sets,), dtype=int64
        Index of each set into ``choices_``.

    cost : ndarray of shape (n_sets,), dtype=float64
        Cost of each set at the size, rising.

    quality : ndarray of shape (n_sets,), dtype=float64
        Cross-validated quality of each set, rising.
    """

    route: NDArray[np.int64]
    cost: NDArray[np.float64]
    quality: NDArray[np.float64]


class BaseFeatureSelector(
    ReportMixin, CostAwareMixin, ClassifierMixin, MetaEstimatorMixin, BaseComposition
):
    """Trains models of sets of features, and computes for each item the set its budget allows.

    A subclass declares

    - ``_max_extractors``: how many extractors it can handle;
    - ``_choose(trainer, reference) -> Choices``: which sets to train, and the index over
      them. `reference` is the median training size, None where items have no size. It may
      set fitted attributes of its own.
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "predict"])],
        "extractors": [None, Mapping, list, tuple],
        "costs": [None, StrOptions({"time"}), MeasuredCosts, Mapping, "array-like"],
        "size": [None, str, Integral, callable],
        "budget": [None, Interval(Real, 0, None, closed="both"), "array-like"],
        "scoring": [None, StrOptions(set(get_scorer_names())), callable],
        "cv": ["cv_object"],
        "memory": [None, str, HasMethods(["cache"])],
        "n_jobs": [
            None,
            Interval(Integral, None, -1, closed="right"),
            Interval(Integral, 1, None, closed="left"),
        ],
    }
    _call_context = ("size", "anytime")
    _max_extractors: int
    _advice = ""

    def get_params(self, deep=True):
        """Parameters of this estimator and, if `deep`, of its transformers and its model.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include nested parameters.

        Returns
        -------
        dict
        """
        if isinstance(self.extractors, (list, tuple)):
            return self._get_params("extractors", deep=deep)
        return super().get_params(deep=deep)

    def set_params(self, **params):
        """Set parameters of this estimator, its model or a transformer by name.

        Parameters
        ----------
        **params : keyword arguments
            Parameters to set.

        Returns
        -------
        self
        """
        if isinstance(params.get("extractors", self.extractors), (list, tuple)):
            self._set_params("extractors", **params)
            return self
        return super().set_params(**params)

    def fit(
        self,
        X: Any,
        y: Any = None,
        size: ArrayLike | None = None,
        **params: Any,
    ):
        """Train the models of the feature sets and index them.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features) or list
            Rows, or raw items when `extractors` are transformers.

        y : array-like of shape (n_samples,)
            Labels.

        size : array-like of shape (n_samples,), default=None
            Sizes of the items; overrides the constructor's. Used to measure costs and for
            the median size at which greedy sequences grow.

        **params : dict
            ``sample_weight``, passed to the models and to the scorer; with metadata
            routing enabled, whatever the model, the scorer or the splitter requests.

        Returns
        -------
        self
        """
        return super().fit(X, y, size=size, **params)

    def _fit(self, X, y, *, task, size=None, **params):
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        fit_params, score_params, split_params = self._routed(params)
        for attribute in ("n_features_in_", "feature_names_in_"):
            vars(self).pop(attribute, None)
        X = self._check_columns(X, reset=True)
        X, y = indexable(X, on_host(y))
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        extractors = self._check_extractors()
        splits = list(check_cv(self.cv, y, classifier=True).split(X, y, **split_params))
        sizes = self._sizes(X, size)
        self.classes_ = np.unique(y)
        self.extractors_ = extractors.fit(X, y)
        self.costs_ = self._feature_costs(X, sizes)
        if sizes is not None:
            self.costs_.check_sizes(sizes)
        trainer = SetTrainer(
            self.estimator,
            extractors,
            extractors.prepare(X, range(len(extractors.names))),
            y,
            splits,
            check_scoring(self.estimator, scoring=self.scoring),
            fit_params,
            score_params,
            self.n_jobs,
            check_memory(self.memory),
            lambda n_sets: task.step(f"train-{n_sets}-sets"),
        )
        reference = None if sizes is None else float(np.median(sizes))
        self._masks, self._set_costs, self.index_ = self._choose(trainer, reference)
        expanded = np.array(list(trainer.quality), dtype=np.int64)
        self.expanded_ = indicator(expanded, len(extractors.names))
        self.expanded_quality_ = np.array(list(trainer.quality.values()))
        self.n_trained_ = len(expanded) - 1
        self.candidates_ = indicator(self._masks, len(extractors.names))
        self.quality_ = np.array(trainer.evaluate(self._masks.tolist()))
        self.estimators_ = trainer.fit(self._masks)
        self.choices_ = [set_name(extractors.names, mask) for mask in self._masks]

    def _routed(self, params):
        """Metadata for the models, the scorer and the splitter."""
        if not routing_enabled() and set(params) <= {"sample_weight"}:
            return params, params, {}
        routed = self._route_metadata(params)
        return routed["estimator"]["fit"], routed["scorer"]["score"], routed["splitter"]["split"]

    def _least(self):
        # The empty set costs nothing.
        return 0.0

    def _offers_proba(self):
        # Not hasattr: the model's own AttributeError says why it is absent.
        return self.estimator.predict_proba is not None

    def _check_X(self, X):
        return self._check_columns(X, reset=False)

    def _check_extractors(self):
        extractors = check_extractors(
            self.extractors,
            getattr(self, "n_features_in_", None),
            getattr(self, "feature_names_in_", None),
            self._validate_names,
        )
        check_set_names(extractors.names, self._max_extractors, type(self).__name__, self._advice)
        return extractors

    def _check_columns(self, X, *, reset):
        """Check X as far as its columns are there to be read; lists of rows become arrays.

        A table of which each column is an extractor is checked as one. Where the user
        named the extractors, what a row does not need may be missing, and only number and
        names of the columns are checked. Raw items have none.
        """
        of_columns = self.extractors is None or isinstance(self.extractors, Mapping)
        if of_columns and isinstance(X, list):
            X = np.asarray(X)
        if of_columns:
            X = on_host(X)
        if self.extractors is None:
            return check_rows(self, X, reset=reset)
        (X,) = indexable(X)
        if num_samples(X) == 0:
            raise ValueError(
                f"Found 0 sample(s) while a minimum of 1 is required by {type(self).__name__}."
            )
        if of_columns or len(getattr(X, "shape", ())) == 2:
            validate_data(self, X, reset=reset, skip_check_array=True)
        return X

    def _feature_costs(self, X, sizes):
        """Cost functions of the extractors, given or measured."""
        names = self.extractors_.names
        for attribute in ("measured_sizes_", "measured_costs_"):
            vars(self).pop(attribute, None)
        measured = MeasuredCosts() if isinstance(self.costs, str) else self.costs
        if isinstance(measured, MeasuredCosts):
            if not self.extractors_.measurable:
                raise ValueError(
                    'costs="time" measures transformers, but extractors are columns of X, which '
                    "take no time to compute. Give numbers, polynomials or callables."
                )
            functions, self.measured_sizes_, self.measured_costs_ = measure_feature_costs(
                self.extractors_, X, sizes, measured.check().percentile
            )
            return FeatureCosts(names, functions)
        if self.costs is None:
            if self.extractors is not None:
                raise ValueError(
                    "costs=None is allowed with extractors=None only, where each column costs 1; "
                    f'give the costs of {names!r}, or "time".'
                )
            return FeatureCosts(names, [np.ones(1)] * len(names))
        return FeatureCosts(names, check_feature_costs(self.costs, names))

    def _sizes(self, X, size):
        """Sizes of the items; None where they have none."""
        if size is None:
            if self.size is None:
                return None
            if callable(self.size):
                rows = range(num_samples(X))
                # Items of an object array come out of X[i] alone as they went in.
                frame = not isinstance(X, (list, np.ndarray))
                size = [self.size(_safe_indexing(X, i) if frame else X[i]) for i in rows]
            else:
                size = _safe_indexing(X, self.size, axis=1)
        return check_sizes(size, num_samples(X))

    def _known_sizes(self, sizes):
        """Sizes for a decision: required where costs depend on them."""
        if not self.costs_.depends_on_size:
            return 0.0
        if sizes is None:
            raise ValueError(
                "size is needed because the costs depend on it: pass size to the method, or give "
                "the constructor a column or a callable."
            )
        return self.costs_.check_sizes(sizes)

    def _effective_budget(self, budget):
        budget = self.budget if budget is None else budget
        if np.ndim(budget) == 0:
            return check_budget(budget)
        values = np.asarray(budget, dtype=np.float64)
        if not (values >= 0).all():
            raise ValueError(
                "budget must be one number or one for each item, none of them negative or NaN, "
                f"got {reprlib.repr(budget)}."
            )
        return values

    def select(
        self, size: ArrayLike | None = None, budget: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """Which feature set to compute, from size and budget alone.

        Parameters
        ----------
        size : array-like of float, default=None
            Sizes. Required when costs depend on the size.

        budget : array-like of float, default=None
            Budgets, broadcast against `size`. None takes the constructor's.

        Returns
        -------
        ndarray of int64
            Indices into ``choices_``, in the broadcast shape of `size` and `budget`.
        """
        check_is_fitted(self)
        size = 0.0 if size is None and not self.costs_.depends_on_size else size
        if size is not None:
            size = check_sizes(size)
        return self.index_.lookup(self._known_sizes(size), self._effective_budget(budget))

    def skyline(self, size: float | None = None) -> Skyline:
        """The sets that are the best for some budget, for items of one size.

        Parameters
        ----------
        size : float, default=None
            The size. Required when costs depend on it.

        Returns
        -------
        Skyline
            Named tuple ``(route, cost, quality)`` of arrays, by rising cost.
        """
        check_is_fitted(self)
        size = float(self._known_sizes(size))
        route = self.index_.skyline(size)
        return Skyline(
            route, self._set_costs.chosen(route, np.full(len(route), size)), self.quality_[route]
        )

    def _plan(self, X, budget, size=None, anytime=False):
        n_samples = num_samples(X)
        if np.ndim(budget) and budget.shape != (n_samples,):
            raise ValueError(
                f"budget must be one number or have one for each of the {n_samples} items, got "
                f"shape {budget.shape!r}."
            )
        sizes = np.broadcast_to(self._known_sizes(self._sizes(X, size)), (n_samples,))
        budgets = np.broadcast_to(budget, (n_samples,))
        if anytime:
            if not hasattr(self, "measured_costs_"):
                raise ValueError(
                    'anytime=True watches the clock and needs costs="time" in fit, which measures '
                    f"seconds; the selector was fitted with costs={self.costs!r}."
                )
            estimates = self.costs_(sizes)
            return Plan(
                *anytime_plan(self.extractors_, self.index_, self._masks, estimates, X, budgets)
            )
        route = self.index_.lookup(sizes, budgets)
        return Plan(route, self._set_costs.chosen(route, sizes))

    def _answer(self, X, plan, response):
        once = once_of(self)

        def answer(choice, rows):
            key = "answers", choice, response
            return once.rows(key, rows, len(plan.route), partial(ask, choice))

        def ask(choice, rows):
            once.count(self.choices_[choice], len(rows))
            wanted = members(self._masks[choice])
            if not wanted:
                table = np.zeros((len(rows), 1))
            elif plan.state is not None:
                table = self.extractors_.stack([plan.state[row] for row in rows], wanted)
            else:
                prepared = self.extractors_.prepare(_safe_indexing(X, rows), wanted)
                table = self.extractors_.take(prepared, wanted)
            with note_failure(self.choices_[choice], len(rows), response):
                return getattr(self.estimators_[choice], response)(table)

        return dispatch(plan.route, answer)

    def get_metadata_routing(self):
        """Who receives which metadata.

        Returns
        -------
        MetadataRouter
        """
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(
                estimator=self.estimator,
                method_mapping=MethodMapping().add(caller="fit", callee="fit"),
            )
            .add(
                scorer=check_scoring(self.estimator, scoring=self.scoring),
                method_mapping=MethodMapping().add(caller="fit", callee="score"),
            )
            .add(
                splitter=check_cv(self.cv, classifier=True),
                method_mapping=MethodMapping().add(caller="fit", callee="split"),
            )
        )

    def __sklearn_tags__(self):
        return inherit_member_tags(super().__sklearn_tags__(), [self.estimator])


def check_set_names(names, largest, owner, advice):
    """Refuse more extractors than an estimator handles, and names like those of sets."""
    if len(names) > largest:
        raise ValueError(
            f"{owner} handles at most {largest} extractors, got {len(names)}. Group columns under "
            f"one name in extractors{advice}."
        )
    if ambiguous := [name for name in names if " + " in name or name == NO_FEATURES]:
        raise ValueError(
            f"The extractor {ambiguous[0]!r} would be mistaken for a set of extractors: "
            f'those have " + " between names, or are {NO_FEATURES!r}. Give it another name.'
        )


def check_sizes(size, n_items=None):
    """Sizes of items as numbers.

    Parameters
    ----------
    size : float or array-like of float
        Sizes.

    n_items : int, default=None
        How many there must be.

    Returns
    -------
    ndarray of float64
    """
    try:
        sizes = np.asarray(size, dtype=np.float64)
    except (TypeError, ValueError):
        # What a column or a callable gives may be the text of an item: it is not shown.
        sizes = np.array(np.nan)
        shown = "what is no number"
    else:
        shown = reprlib.repr(size)
    right = n_items is None or sizes.shape == (n_items,)
    if not right or not (np.isfinite(sizes) & (sizes >= 0)).all():
        each = "" if n_items is None else f" for each of the {n_items} items"
        raise ValueError(f"size must be a finite number that is not negative{each}, got {shown}.")
    return sizes
