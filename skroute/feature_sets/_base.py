"""The base of selectors of feature sets: sizes, costs, budgets, answers."""

import reprlib
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse
from sklearn.base import ClassifierMixin, MetaEstimatorMixin
from sklearn.metrics import check_scoring, get_scorer_names
from sklearn.model_selection import check_cv
from sklearn.utils import column_or_1d, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from skroute.base import (
    CallParameter,
    CostAwareMixin,
    Plan,
    affords,
    check_rows,
    dispatch,
    inherit_member_tags,
    note_failure,
)
from skroute.base._inspection import may_take_weights
from skroute.feature_sets._costs import (
    MeasuredCosts,
    given_costs,
    measured_costs,
    timed_rows,
)
from skroute.feature_sets._extractors import ItemExtractors, check_extractors
from skroute.feature_sets._lattice import (
    EMPTY_SET,
    NO_FEATURES,
    indicator,
    members,
    set_name,
)
from skroute.feature_sets._training import SetTrainer
from skroute.metrics import pareto_front
from skroute.utils._cache import cache_of
from skroute.utils._compat import (
    BaseComposition,
    HasMethods,
    Integral,
    Interval,
    Real,
    StrOptions,
    _safe_indexing,
    num_samples,
    routing_enabled,
    will_have,
)
from skroute.utils._frames import as_rows, indexable_rows
from skroute.utils._tables import Column, Table
from skroute.utils._tensors import on_host
from skroute.utils._timing import timed
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import check_numbers

# Number of costs in a block, one for each pair of a feature set and an item: 1.6 MB,
# which fit a processor's cache.
_BLOCK = 200_000
# Largest number of items on which the time of each model is measured. It bounds the
# time of `fit`, as models are slow.
_N_ANSWERED = 30


class Skyline(NamedTuple):
    """The feature sets that are the best for some budget, for items of one size.

    Attributes
    ----------
    route : ndarray of shape (n_sets,), dtype=int64
        Indices into ``choices_``, by rising cost.

    cost : ndarray of shape (n_sets,), dtype=float64
        Cost of each set at the size, rising.

    quality : ndarray of shape (n_sets,), dtype=float64
        Cross-validated quality of each set, rising.
    """

    route: NDArray[np.int64]
    cost: NDArray[np.float64]
    quality: NDArray[np.float64]

    def __repr__(self) -> str:
        return str(self._table())

    def to_frame(self) -> Any:
        """Return the sets as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row for each set, with the columns ``route``, ``cost`` and ``quality``.
        """
        return self._table().to_frame()

    def _table(self):
        """Return the sets as a `Table`, which can be printed or made a data frame."""
        return Table(
            f"Skyline: {len(self.route)} sets of features",
            [
                Column("route", self.route, unit="in choices_"),
                Column("cost", self.cost, unit="per item"),
                Column("quality", self.quality, unit="cross-validated"),
            ],
        )


class RoutedParams(NamedTuple):
    """Metadata that `fit` passes to the models, to the scorer and to the splitter.

    Attributes
    ----------
    fit : dict
        For the models.

    score : dict
        For the scorer.

    split : dict
        For the splitter.
    """

    fit: dict
    score: dict
    split: dict


SIZE = CallParameter(
    "size",
    "float or array-like of shape (n_samples,), default=None",
    """Sizes of the items, or one size of all. None takes them by the constructor's
    `size`.""",
)
ANYTIME = CallParameter(
    "anytime",
    "bool, default=False",
    """If True, features are computed one after the other, and the choice of the set is
    revised by the measured time. It becomes larger if features were faster than their
    cost, and smaller if they were slower. Costs are then the measured seconds. A slow
    extractor may exceed the budget, and answers depend on the load of the machine.
    Needs measured costs.""",
)


class BaseFeatureSelector(
    CostAwareMixin, ClassifierMixin, MetaEstimatorMixin, BaseComposition
):
    """Base of classifiers that compute, for each item, the features its budget allows.

    A subclass writes

    ``_max_extractors`` : int
        Maximal number of extractors.

    ``_choose(trainer, reference) -> masks``
        Train sets, and return the bit masks of those that can be chosen. `trainer` is a
        `SetTrainer`. `reference` is the median training size, or None if items have no
        size. The method may set fitted attributes.

    ``_lookup(cost, budget) -> route``
        Return the choice of each query, from the costs of the sets, of shape
        (n_queries, n_sets), and the budgets of the queries.

    ``_goals(budget) -> choices``
        Return the choices at which any-time retrieval may end, the worst first.
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
    call_parameters = (SIZE, ANYTIME)
    _max_extractors: int
    # Last words of the error for too many extractors. They begin with a comma.
    _advice = ""

    def get_params(self, deep=True):
        """Return the parameters, if `deep` also those of transformers and model.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include nested parameters.

        Returns
        -------
        dict
            Names of the parameters, and their values.
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
            The estimator.
        """
        if isinstance(params.get("extractors", self.extractors), (list, tuple)):
            self._set_params("extractors", **params)
            return self
        return super().set_params(**params)

    # Fit: extractors, costs, models of sets -------------------------------------------

    def fit(
        self, X: Any, y: Any = None, size: ArrayLike | None = None, **params: Any
    ) -> Self:
        """Train the models of the feature sets.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} or list
            Rows, of shape (n_samples, n_features), or raw items if `extractors` are
            transformers.

        y : array-like of shape (n_samples,)
            Labels.

        size : float or array-like of shape (n_samples,), default=None
            Sizes of the items; overrides the constructor's. Used to measure costs and
            for the median size at which greedy sequences grow.

        **params : dict
            ``sample_weight``, passed to the models and to the scorer; with metadata
            routing enabled, what the model, the scorer or the splitter requests.

        Returns
        -------
        self
            The fitted estimator.
        """
        return super().fit(X, y, size=size, **params)

    def _fit(self, X, y, *, task, size=None, **params):
        """Fit the extractors, score feature sets, and fit the models of `choices_`.

        Parameters
        ----------
        X, y, size, params
            As in :meth:`fit`.

        task : FitTask
            Reports the training to callbacks.
        """
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        routed_params = self._routed(params)
        # Attributes of an earlier fit that this fit may not set.
        for name in (
            "n_features_in_",
            "feature_names_in_",
            "measured_sizes_",
            "measured_costs_",
        ):
            vars(self).pop(name, None)
        X = self._check_rows(X, reset=True)
        X, y = indexable(X, on_host(y))
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        extractors = check_extractors(self.extractors, X, self._validate_names)
        self._check_set_names(extractors.names)
        splitter = check_cv(self.cv, y, classifier=True)
        splits = list(splitter.split(X, y, **routed_params.split))
        sizes = self._sizes(X, size)
        self.classes_ = np.unique(y)
        self.extractors_ = extractors.fit(X, y)
        self.costs_ = self._feature_costs(X, sizes)
        if sizes is not None:
            # Refuses sizes that are too large for the costs.
            self._known_sizes(sizes)
        names = extractors.names
        n_extractors = len(names)
        prepared = self.extractors_.prepare(X, range(n_extractors))
        table_of = partial(self._table_of_set, prepared)
        trainer = SetTrainer(
            self,
            table_of,
            y=y,
            splits=splits,
            fit_params=routed_params.fit,
            score_params=routed_params.score,
            task=task,
        )
        median_size = None if sizes is None else float(np.median(sizes))
        # Bit masks of the sets that may be chosen for an item.
        self._masks = self._choose(trainer, median_size)
        self.candidates_ = indicator(self._masks, n_extractors)
        self.quality_ = np.array(trainer.evaluate(self._masks.tolist()))
        self.estimators_ = trainer.fit(self._masks)
        # `trainer.quality` has the masks of all sets with a score, and their scores.
        self.expanded_ = indicator(list(trainer.quality), n_extractors)
        self.expanded_quality_ = np.array(list(trainer.quality.values()))
        self.n_trained_ = len(self.expanded_) - 1  # without the empty set
        # The cost of a set has two parts. The cost of its features is a combination of
        # functions of the size, with these coefficients (equation 1 of Battle et al.).
        self._coef = self.candidates_ @ self.costs_.coef  # (n_choices, n_functions)
        # The cost of a set's model does not depend on the size of the item.
        self._model_cost = np.zeros(len(self._masks))
        self.choices_ = [set_name(names, mask) for mask in self._masks]
        if isinstance(self.costs, MeasuredCosts) and self.costs.include_model:
            seconds = self._measure_models(X, sizes, table_of)
            # The model of the empty set takes no time that is counted.
            has_features = self.candidates_.any(axis=1)
            self._model_cost = np.where(has_features, seconds, 0.0)

    def _table_of_set(self, prepared, mask):
        """Return the features of a set as a table.

        Parameters
        ----------
        prepared : object
            Result of the method `prepare` of the extractors.

        mask : int
            Bit mask of the set.

        Returns
        -------
        {ndarray, csr matrix, data frame} of shape (n_rows, n_features)
        """
        return self.extractors_.take(prepared, members(mask))

    def _routed(self, params):
        """Return the metadata of `fit` for the models, the scorer and the splitter.

        Parameters
        ----------
        params : dict
            Metadata that `fit` got. Entries that are None are left out.

        Returns
        -------
        RoutedParams
        """
        params = {name: value for name, value in params.items() if value is not None}
        if not routing_enabled() and set(params) <= {"sample_weight"}:
            if params and not may_take_weights(self.estimator):
                raise ValueError(
                    f"sample_weight was given, but estimator={self.estimator!r} does "
                    "not take it. Leave it out, or give a model that takes it."
                )
            # The weights are for models and scorer.
            return RoutedParams(fit=params, score=params, split={})
        # Without metadata routing, this raises an error.
        routed = self._route_metadata(params)
        return RoutedParams(
            fit=routed["estimator"]["fit"],
            score=routed["scorer"]["score"],
            split=routed["splitter"]["split"],
        )

    def _check_rows(self, X, reset=False):
        """Return validated rows or items. Lists of rows become arrays.

        If each column is an extractor, the whole table is checked. If the user has
        named the extractors, values that a row does not need may be missing, and only
        the number and the names of the columns are checked. Raw items have no columns.

        Parameters
        ----------
        X : indexable
            Rows or raw items, as the user gave them.

        reset : bool, default=False
            Whether to set (in `fit`) or to compare the number and names of columns.

        Returns
        -------
        indexable
        """
        are_columns = self.extractors is None or isinstance(self.extractors, Mapping)
        if are_columns:
            X = as_rows(X) if isinstance(X, (list, tuple)) else on_host(X)
        X = indexable_rows(X)
        if self.extractors is None:
            return check_rows(self, X, reset=reset)
        (X,) = indexable(X)
        if num_samples(X) == 0:
            raise ValueError(
                "Found 0 sample(s) while a minimum of 1 is required by "
                f"{type(self).__name__}."
            )
        if are_columns or len(getattr(X, "shape", ())) == 2:
            validate_data(self, X, reset=reset, skip_check_array=True)
        return X

    def _check_set_names(self, names):
        """Refuse too many extractors, and extractors with names like those of sets.

        `names` is a list of str.
        """
        if len(names) > self._max_extractors:
            raise ValueError(
                f"{type(self).__name__} handles at most {self._max_extractors} "
                f"extractors, got {len(names)}. Group columns under one name in "
                f"extractors{self._advice}."
            )
        for name in names:
            if " + " in name or name == NO_FEATURES:
                raise ValueError(
                    f"The extractor {name!r} would be mistaken for a set of "
                    "extractors: "
                    f'those have " + " between names, or are {NO_FEATURES!r}. Give it '
                    "another name."
                )

    def _feature_costs(self, X, sizes):
        """Return the cost functions of the extractors, given or measured.

        Parameters
        ----------
        X : indexable
            Rows or raw items, on which transformers are timed.

        sizes : ndarray of shape (n_samples,) or None
            None: items have no size.

        Returns
        -------
        FeatureCosts
        """
        names = self.extractors_.names
        # The only text that is allowed is "time".
        measured = MeasuredCosts() if isinstance(self.costs, str) else self.costs
        if isinstance(measured, MeasuredCosts):
            if not isinstance(self.extractors_, ItemExtractors):
                raise ValueError(
                    'costs="time" measures transformers, but extractors are columns of '
                    "X, which take no time to compute. Give numbers, polynomials or "
                    "callables."
                )
            percentile = measured.percentile
            if not (isinstance(percentile, Real) and 0 < percentile < 1):
                raise ValueError(
                    "percentile of MeasuredCosts must be a number above 0 and below 1, "
                    f"got {percentile!r}."
                )
            measurement = measured_costs(self.extractors_, X, sizes, percentile)
            self.measured_sizes_ = measurement.sizes
            self.measured_costs_ = measurement.seconds
            return measurement.costs
        if self.costs is not None:
            return given_costs(self.costs, names)
        if self.extractors is not None:
            raise ValueError(
                "costs=None is allowed with extractors=None only, where each column "
                "costs 1; "
                f'give the costs of {names!r}, or "time".'
            )
        return given_costs([1.0] * len(names), names)

    def _measure_models(self, X, sizes, table_of):
        """Measure the seconds of choosing a set for one item and calling its model.

        The time of the features is not included. The result is a percentile of the
        seconds of the slowest model, plus the same percentile of the selector's own
        seconds (see `MeasuredCosts`).

        Parameters
        ----------
        X : indexable of n_items items

        sizes : ndarray of shape (n_items,) or None
            None: items have no size.

        table_of : callable
            ``table_of(mask)`` returns the features of a set for all items.

        Returns
        -------
        float
        """
        if sizes is None:
            rows = timed_rows(np.zeros(num_samples(X)), _N_ANSWERED)
        else:
            rows = timed_rows(sizes, _N_ANSWERED)
        percentile = self.costs.percentile
        slowest = 0.0
        for mask, model in zip(self._masks, self.estimators_):
            if mask == EMPTY_SET:
                continue
            table = table_of(mask)
            items = [_safe_indexing(table, [row]) for row in rows]
            # A first call is slower, and is not measured.
            model.predict(items[0])
            seconds = [timed(model.predict, item) for item in items]
            slowest = max(slowest, np.quantile(seconds, percentile))
        selector_seconds = []
        for row in rows:
            size = None  # taken by the constructor's `size`
            if sizes is not None and self.size is None:
                size = sizes[[row]]
            # With a budget of 0, nothing is computed but the choice.
            predict = partial(self.predict, budget=0.0, size=size)
            selector_seconds.append(timed(predict, _safe_indexing(X, [row])))
        return float(slowest + np.quantile(selector_seconds, percentile))

    # Checks of sizes and budgets ------------------------------------------------------

    def _sizes(self, X, size):
        """Return the sizes of the items, or None if they have none.

        Parameters
        ----------
        X : indexable of n_samples rows or items

        size : float, array-like of shape (n_samples,) or None
            Sizes that the user gave to a method. None takes the constructor's `size`.

        Returns
        -------
        ndarray of shape (n_samples,), or None
        """
        if size is not None:
            sizes = size
        elif self.size is None:
            return None
        elif callable(self.size):
            # Only X[i] returns the items of an object array as they are.
            is_sequence = isinstance(X, (list, np.ndarray))
            sizes = []
            for i in range(num_samples(X)):
                item = X[i] if is_sequence else _safe_indexing(X, i)
                sizes.append(self.size(item))
        else:
            # The sizes are a column of X.
            sizes = _safe_indexing(X, self.size, axis=1)
        # One size of all items, or one for each.
        shape = () if np.ndim(sizes) == 0 else (num_samples(X),)
        checked_sizes = check_numbers(sizes, "size", shape=shape, low=0)
        return np.broadcast_to(checked_sizes, num_samples(X))

    def _known_sizes(self, sizes):
        """Return checked sizes of items, zeros if costs do not depend on them.

        Parameters
        ----------
        sizes : float, array-like or None
            None raises an error if costs depend on the size.

        Returns
        -------
        ndarray of the shape of `sizes`
            Without an axis if `sizes` is a number or None.
        """
        largest = self.costs_.largest_size  # 0: costs do not depend on the size
        if sizes is not None:
            # If costs do not depend on the size, any size is allowed.
            largest_allowed = largest if largest else np.inf
            sizes = check_numbers(sizes, "size", low=0, high=largest_allowed)
        elif largest:
            raise ValueError(
                "size is needed because the costs depend on it: pass size to the "
                "method, or give the constructor a column or a callable."
            )
        return sizes if largest else np.zeros(np.shape(sizes))

    def _effective_budget(self, budget):
        """Return the budget of a call, one number or one per item.

        Parameters
        ----------
        budget : float, array-like or None
            None takes the constructor's.

        Returns
        -------
        float or ndarray of shape (n_samples,)
            Infinity is unlimited.
        """
        if budget is None:
            budget = self.budget
        if budget is None:
            budget = np.inf
        if np.ndim(budget) == 0:
            # A single number keeps its type, which is checked below.
            values = np.asarray(budget)
        else:
            values = np.asarray(budget, dtype=np.float64)
        # Kinds of dtypes: whole numbers with and without sign, floats. Booleans are
        # refused. NaN is not at least 0.
        if values.dtype.kind not in "iuf" or not (values >= 0).all():
            raise ValueError(
                "budget must be a non-negative number, the same for each item, or an "
                "array of one for each; or None for unlimited, got "
                f"{reprlib.repr(budget)}."
            )
        # [()] makes a number of an array without axes. Other arrays stay as they are.
        return values[()]

    def _smallest_budget(self):
        """Return 0, the cost of the empty set."""
        return 0.0

    # Decisions by size and budget, and answers ----------------------------------------

    def _find(self, sizes, budgets):
        """Return the best set for each pair of a size and a budget, block by block.

        Parameters
        ----------
        sizes, budgets : ndarray of shape (n_queries,)

        Returns
        -------
        ndarray of int of shape (n_queries,)
            Indices of choices.
        """
        # Number of queries (pairs of a size and a budget) in a block.
        block_size = max(1, _BLOCK // len(self._masks))
        if len(sizes) <= block_size:
            # (n_queries, n_sets)
            cost = self.costs_.basis(sizes) @ self._coef.T + self._model_cost
            return self._lookup(cost, budgets)
        routes = []
        for start in range(0, len(sizes), block_size):
            block = slice(start, start + block_size)
            routes.append(self._find(sizes[block], budgets[block]))
        return np.concatenate(routes)

    def _cost_of(self, route, sizes):
        """Return the cost of each feature set in `route`, for items of the given sizes.

        Parameters
        ----------
        route : ndarray of int of shape (n_queries,)
            Index of the feature set of each query, into ``choices_``.

        sizes : ndarray of shape (n_queries,)
            Size of the item of each query.

        Returns
        -------
        ndarray of shape (n_queries,)
        """
        # A product of matrices would round differently for other numbers of queries.
        feature_costs = self.costs_.basis(sizes) * self._coef[route]
        return feature_costs.sum(axis=1) + self._model_cost[route]

    def select(
        self, size: ArrayLike | None = None, budget: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """Return the feature set to compute, by size and budget.

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
        if not self.__sklearn_is_fitted__():
            # `check_is_fitted` raises the error. It is called only here, since it takes
            # as long as a query.
            check_is_fitted(self)
        sizes = self._known_sizes(size)
        budgets = np.asarray(self._effective_budget(budget))
        shape = np.broadcast(sizes, budgets).shape
        if sizes.shape != shape:
            sizes = np.full(shape, sizes)
        if budgets.shape != shape:
            budgets = np.full(shape, budgets)
        return self._find(sizes.reshape(-1), budgets.reshape(-1)).reshape(shape)

    def skyline(self, size: float | None = None) -> Skyline:
        """Return the sets that are the best for some budget, for items of one size.

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
        n_choices = len(self._masks)
        # All sets are compared at this one size.
        sizes = np.broadcast_to(self._known_sizes(size).reshape(1), n_choices)
        cost = self._cost_of(np.arange(n_choices), sizes)
        route = pareto_front(cost, self.quality_)
        return Skyline(route, cost[route], self.quality_[route])

    def _plan(self, X, call):
        """Choose a set for each row, by its size and budget.

        Parameters
        ----------
        X : indexable of n_samples rows or items

        call : Call
            Its budget is one number or has one for each row.

        Returns
        -------
        Plan
            With ``anytime=True`` its state has the computed features of each row.
        """
        budget = call.budget
        size = call.option("size")
        n_samples = num_samples(X)
        if np.ndim(budget) and np.shape(budget) != (n_samples,):
            raise ValueError(
                f"budget must be one number or have one for each of the {n_samples} "
                f"items, got shape {np.shape(budget)!r}."
            )
        sizes = self._known_sizes(self._sizes(X, size))
        sizes = np.broadcast_to(sizes, (n_samples,))
        budgets = np.broadcast_to(np.asarray(budget, dtype=np.float64), (n_samples,))
        if call.option("anytime"):
            return self._watch_the_clock(X, sizes, budgets)
        route = self._find(sizes, budgets)
        return Plan(route, self._cost_of(route, sizes))

    def _watch_the_clock(self, X, sizes, budgets):
        """Choose a set for each item by measured time, while its features are computed.

        Parameters
        ----------
        X : indexable of n_items items

        sizes, budgets : ndarray of shape (n_items,)

        Returns
        -------
        Plan
            Its state is a list: for each item a dict of its computed features, by the
            number of the extractor.
        """
        if not hasattr(self, "measured_costs_"):
            raise ValueError(
                'anytime=True watches the clock and needs costs="time" in fit, which '
                f"measures seconds; the selector was fitted with costs={self.costs!r}."
            )
        route = np.empty(len(sizes), dtype=np.int64)
        spent = np.empty(len(sizes))
        computed = []
        # Expected cost of each extractor on each item. (n_items, n_extractors)
        expected_costs = self.costs_(sizes).T
        for i, expected_cost in enumerate(expected_costs):
            # Computed features of the item, by the number of the extractor. The walk
            # fills the dict: it calls `extract`, which writes into it.
            features = {}
            extract = partial(self._extract_into, features, item=_safe_indexing(X, [i]))
            # Choices at which the walk may end, the worst first.
            goals = self._goals(budgets[i])
            # `timed` calls `extract`, and returns the seconds that it took. The walk
            # returns a position among `goals`.
            position, spent[i] = anytime_walk(
                self.candidates_[goals],
                expected_cost,
                self._model_cost[goals],
                budget=budgets[i],
                compute=partial(timed, extract),
            )
            route[i] = goals[position]
            computed.append(features)
        return Plan(route, spent + self._model_cost[route], state=computed)

    def _extract_into(self, features, number, *, item):
        """Compute the features of one extractor, and store them in `features`.

        Parameters
        ----------
        features : dict from int to table
            Changed in place.

        number : int
            Number of the extractor.

        item : indexable of one item
        """
        features[number] = self.extractors_.extract(item, number)

    def _answer(self, plan, response):
        """Return the answers of the models that a plan chose, one for each row.

        `response` is "predict" or "predict_proba".
        """
        return dispatch(plan.route, partial(self._answer_rows, plan, response))

    def _answer_rows(self, plan, response, choice, rows):
        """Return the answers of one feature set's model to some rows.

        A sweep over budgets asks a model once for each row. Later answers to the row
        come from the cache of the sweep.

        Parameters
        ----------
        plan : Plan

        response : {"predict", "predict_proba"}

        choice : int
            Index in ``choices_``.

        rows : ndarray of int
            Positions of the rows.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes)
        """
        return cache_of(self).get_or_compute_rows(
            ("answers", choice, response),
            rows,
            n_rows=len(plan.route),
            compute=partial(self._ask_model, plan, response, choice),
        )

    def _ask_model(self, plan, response, choice, rows):
        """Call the model of a feature set on the features of some rows.

        The parameters are those of `_answer_rows`, and so is the result.
        """
        cache_of(self).count_rows(self.choices_[choice], len(rows))
        table = self._features_of_choice(plan, choice, rows)
        with note_failure(self.choices_[choice], len(rows), response):
            return getattr(self.estimators_[choice], response)(table)

    def _features_of_choice(self, plan, choice, rows):
        """Return the features of one set for some rows, of shape (n_rows, n_features).

        Parameters
        ----------
        plan : Plan
            Its state is None, or has the features that were computed for each row.

        choice : int
            Index in ``choices_``.

        rows : ndarray of int
            Positions of the rows.
        """
        extractors = members(self._masks[choice])
        if not extractors:
            # The model of the empty set reads no features.
            return np.zeros((len(rows), 1))
        if plan.state is None:
            prepared = self.extractors_.prepare(
                _safe_indexing(plan.X, rows), extractors
            )
            return self.extractors_.take(prepared, extractors)
        # Any-time retrieval has computed the features one row at a time.
        tables = [self.extractors_.take(plan.state[row], extractors) for row in rows]
        stack = sparse.vstack if sparse.issparse(tables[0]) else np.vstack
        return stack(tables)

    def _offers_proba(self):
        """Return True if the model has probabilities, or raise an AttributeError."""
        if will_have(self.estimator, "predict_proba"):
            return True
        # The model has no such method: reading it raises the model's AttributeError,
        # which contains the reason.
        return self.estimator.predict_proba is not None

    def get_metadata_routing(self):
        """Return the routing of metadata to the model, the scorer and the splitter.

        Returns
        -------
        MetadataRouter
            The routing of this estimator.
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        # From a method that gets metadata to the object that has the method, by name.
        owners = {
            "fit": {"estimator": self.estimator},
            "score": {"scorer": check_scoring(self.estimator, scoring=self.scoring)},
            "split": {"splitter": check_cv(self.cv, classifier=True)},
        }
        for callee, owner in owners.items():
            router.add(
                **owner,
                method_mapping=MethodMapping().add(caller="fit", callee=callee),
            )
        return router

    def __sklearn_tags__(self):
        return inherit_member_tags(super().__sklearn_tags__(), [self.estimator])


def anytime_walk(sets, expected_costs, model_costs, budget, compute):
    """Compute features one at a time, and revise the chosen set by their real costs.

    The goal is the most preferred set that the rest of the budget allows. The cheapest
    missing feature of the goal is computed next.

    Parameters
    ----------
    sets : ndarray of bool of shape (n_sets, n_extractors)
        Sets at which the walk may end, the least preferred first. The empty set is one
        of them.

    expected_costs : ndarray of shape (n_extractors,)
        Expected cost of each extractor.

    model_costs : ndarray of shape (n_sets,)
        Expected cost of the model of each set.

    budget : float
        Largest cost of features and model.

    compute : callable
        ``compute(number)`` computes the features of an extractor, and returns their
        real cost.

    Returns
    -------
    goal : int
        Position in `sets` of the set at which the walk ended.

    spent : float
        Real cost of the features.
    """
    # True for extractors of a set that are not computed yet.
    is_missing = sets.copy()
    spent = 0.0
    while True:
        expected_totals = spent + is_missing @ expected_costs + model_costs
        # A set without missing features is possible at any cost: nothing more is spent
        # on features. The empty set is always complete.
        is_complete = ~is_missing.any(axis=1)
        is_possible = affords(budget, expected_totals) | is_complete
        # The most preferred of the possible sets comes last.
        goal = int(np.flatnonzero(is_possible)[-1])
        missing = np.flatnonzero(is_missing[goal])
        if len(missing) == 0:
            # All features of the goal are computed.
            return goal, spent
        cheapest = int(missing[np.argmin(expected_costs[missing])])
        spent += compute(cheapest)
        is_missing[:, cheapest] = False
