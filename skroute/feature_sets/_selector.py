"""Poly-Dom and greedy selection of the features to compute for an item and a budget."""

import reprlib
import warnings
from collections.abc import Mapping
from contextlib import contextmanager
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
    Plan,
    Routed,
    check_budget,
    check_rows,
    dispatch,
    inherit_member_tags,
    note_failure,
)
from skroute.feature_sets._anytime import anytime_plan
from skroute.feature_sets._choices import greedy_choices, lattice_choices
from skroute.feature_sets._costs import (
    FeatureCosts,
    check_feature_costs,
    measure_feature_costs,
)
from skroute.feature_sets._extractors import check_extractors
from skroute.feature_sets._greedy import default_trade_offs
from skroute.feature_sets._lattice import (
    MAX_LATTICE_FEATURES,
    LatticeSearch,
    expand_all,
    indicator,
    members,
    monotonicity_violations,
)
from skroute.feature_sets._sized_items import SizedItemsMixin
from skroute.feature_sets._training import SetTrainer
from skroute.utils._compat import (
    BaseComposition,
    HasMethods,
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


class Skyline(NamedTuple):
    """The feature sets worth choosing for items of one size.

    Attributes
    ----------
    route : ndarray of shape (n_sets,), dtype=int64
        Index of each set into ``choices_``.

    cost : ndarray of shape (n_sets,), dtype=float64
        Cost of each set at the size, rising.

    accuracy : ndarray of shape (n_sets,), dtype=float64
        Cross-validated score of each set, rising.
    """

    route: NDArray[np.int64]
    cost: NDArray[np.float64]
    accuracy: NDArray[np.float64]


class PolyDomSelector(SizedItemsMixin, ClassifierMixin, MetaEstimatorMixin, BaseComposition):
    """The most accurate model whose features can be computed within an item's budget.

    A feature costs what its extractor costs on the item at hand, which depends on the
    item's size. For every set of extractors worth it, `fit` trains a clone of
    `estimator` on the features of that set. Given an item's size and its budget,
    `predict` finds the set in two binary searches, computes the features of that set and
    no others, and asks its model.

    With ``strategy="poly_dom"`` the answer has a guarantee: among all sets of extractors
    that the budget allows, none is more accurate than ``1 + alpha`` times the chosen one.
    Accuracy here is the cross-validated score. Most sets are never trained: when a set is
    nearly as good as one of its supersets, all sets between the two are skipped.

    Read more in the :ref:`User Guide <feature_sets>`.

    Parameters
    ----------
    estimator : classifier
        Model that is cloned for every set of features. Must have `fit` and `predict`.

    extractors : mapping from str to columns or list of (str, transformer), default=None
        Where features come from. At most 20 for the strategies that search the lattice.

        - A mapping from a name to the columns of X that it yields: a column name or
          number, a list of them, a slice or a boolean mask. Entries of columns that are
          not used for a row may be missing (NaN) in `predict`.
        - A list of ``(name, transformer)``: transformers of raw items (images, texts,
          arrays of differing size). `fit` calls each on all items, `predict` only those
          of the chosen set, on the items that need them.
        - None: each column of X is an extractor of its own, and X must be complete.

    costs : mapping from str to cost, sequence of costs or "time", default=None
        Cost of each extractor on one item, in any unit. A cost is a number, a sequence of
        polynomial coefficients in the size (lowest degree first, none negative, as
        :mod:`numpy.polynomial`), or a callable of an array of sizes. ``"time"`` measures
        seconds on at most 100 training items of all sizes, one item at a time, and fits a
        quadratic in the size without negative coefficients to a percentile of the times
        (a constant where items have no size); only for transformers. None is allowed
        with ``extractors=None`` only: each column costs 1, and `budget` is a number of
        columns. The time that the model itself takes is not part of the cost.

    alpha : float, default=0.1
        Accepted factor of accuracy: the best set within the budget is at most ``1 +
        alpha`` times as accurate as the chosen one. Larger values train fewer sets. 0
        trains every set that may be the best for some size and budget.

    monotonicity_tol : float, default=0.0
        How much more accurate a set of extractors may be than one that contains it, in
        the unit of the score. The guarantee assumes this bound. Cross-validated scores
        are noisy: with 0, `fit` usually warns and names the value that would have held.
        Larger values train more sets.

    size : str, int or callable, default=None
        Size of an item: a column of X by name or number, or a function that is called
        with one item and returns a number. For a size of two dimensions return one
        number, for example ``lambda image: image.shape[0] * image.shape[1]``. Can be
        passed to each method instead. None: costs must not depend on the size.

    budget : float or array-like of shape (n_samples,), default=None
        What may be spent on each item, in the unit of `costs`; an array has one budget
        per row of the X that is predicted. Every item keeps within its own budget. With
        a budget of 0 the answer is the most frequent class, which needs no features.
        None is unlimited.

    strategy : {"poly_dom", "greedy", "greedy_acc", "greedy_cost", "expand_all"}, \
default="poly_dom"
        Which sets are trained.

        - "poly_dom": as few as the guarantee allows.
        - "expand_all": all ``2 ** n_extractors - 1``.
        - "greedy": sequences that add one extractor after the other, by increase in score
          minus a trade-off times increase in cost at the median training size. No
          guarantee, and at most ``n_extractors ** 2`` sets for each trade-off.
        - "greedy_acc", "greedy_cost": one sequence by score or by cost alone.

    trade_offs : array-like of float, default=None
        For "greedy": the scores that a unit of cost must bring, one sequence each. None
        takes 0 and eight values relative to the cost of all extractors.

    anytime : bool, default=False
        Whether `predict` watches the clock: it computes one feature after the other, and
        revises which set to aim for by the time that was truly spent. It goes on when
        features came in below their estimate and stops early when they came in above.
        Needs ``costs="time"``; answers then depend on the machine's load.

    max_models : int, default=None
        For "poly_dom": train at most this many sets. The search starts with a large alpha
        and lowers it towards `alpha` while sets may be trained; ``alpha_`` is what was
        reached.

    max_seconds : float, default=None
        For "poly_dom": start no new layer of the lattice after this many seconds; as
        `max_models` otherwise.

    cost_percentile : float, default=0.95
        For ``costs="time"``: share of the measured times that must not lie above the
        fitted cost. A higher value keeps more items within their budget and leaves more
        of it unused.

    scoring : str or callable, default=None
        Score of a set, not negative, higher being better. None is accuracy.

    cv : int, cross-validation generator or iterable, default=5
        Splits on which the sets are scored, the same for all.

    memory : str or object with the joblib.Memory interface, default=None
        Cache of the scores, so that fitting again with another `alpha` or `budget`
        trains only what is new.

    n_jobs : int, default=None
        Sets of one layer that are trained at the same time.

    Attributes
    ----------
    choices_ : list of tuple of str
        Extractors of each set that can be chosen; `route` indexes it.

    candidates_ : ndarray of shape (n_choices, n_extractors), dtype=bool
        The same as an indicator matrix.

    scores_ : ndarray of shape (n_choices,)
        Cross-validated score of each choice.

    estimators_ : list of estimators
        Model of each choice, trained on all rows.

    expanded_ : ndarray of shape (n_expanded, n_extractors), dtype=bool
        All sets with a score, in the order of training; the empty set is the first.

    expanded_scores_ : ndarray of shape (n_expanded,)
        Their scores.

    n_trained_ : int
        Number of sets trained, the empty set not counted.

    alpha_ : float
        Smallest alpha for which the trained sets give the guarantee. Infinite when
        `max_models` was too small to show anything. Not set by the greedy strategies.

    monotonicity_violations_ : list of (tuple of str, tuple of str, float)
        ``(subset, superset, drop)`` for every trained set that a subset of it beats by
        more than `monotonicity_tol`, the largest drop first.

    index_ : object
        What :meth:`select` looks sets up in.

    costs_ : FeatureCosts
        Costs of the extractors as functions of the size; ``costs_(sizes)`` returns an
        array of shape (n_extractors, n_sizes).

    measured_sizes_ : ndarray of shape (n_measurements,)
        Only with ``costs="time"``: sizes of the timed items, zeros where they have none.

    measured_costs_ : ndarray of shape (n_measurements, n_extractors)
        Only with ``costs="time"``: their times in seconds.

    classes_ : ndarray of shape (n_classes,)
        Class labels.

    n_features_in_ : int
        Number of columns of X. Only for two-dimensional X.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names. Only when X has names that are all strings.

    References
    ----------
    .. [1] L. Battle, E. Benson, A. Parameswaran, E. Wu. "Indexing Cost Sensitive
       Prediction". arXiv 1408.4072, 2014. Algorithms 1 to 4.

    Examples
    --------
    Two groups of columns, of which the second costs more the larger the item is:

    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skroute.feature_sets import PolyDomSelector
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=200)
    >>> X = y[:, None] + rng.normal(size=(200, 3)) * [2.0, 0.5, 0.5]
    >>> selector = PolyDomSelector(
    ...     LogisticRegression(),
    ...     {"header": [0], "content": [1, 2]},
    ...     costs={"header": 1.0, "content": [1.0, 0.5]},
    ...     monotonicity_tol=0.01,
    ... ).fit(X, y)
    >>> route = selector.select(size=[0, 1000, 10], budget=4.0)
    >>> [selector.choices_[i] for i in route]
    [('header', 'content'), ('header',), ('header',)]
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "predict"])],
        "extractors": [None, Mapping, list, tuple],
        "costs": [None, StrOptions({"time"}), Mapping, "array-like"],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "monotonicity_tol": [Interval(Real, 0, None, closed="left")],
        "size": [None, str, Integral, callable],
        "budget": [None, Interval(Real, 0, None, closed="both"), "array-like"],
        "strategy": [StrOptions({"poly_dom", "greedy", "greedy_acc", "greedy_cost", "expand_all"})],
        "trade_offs": [None, "array-like"],
        "anytime": ["boolean"],
        "max_models": [None, Interval(Integral, 1, None, closed="left")],
        "max_seconds": [None, Interval(Real, 0, None, closed="left")],
        "cost_percentile": [Interval(Real, 0, 1, closed="neither")],
        "scoring": [None, StrOptions(set(get_scorer_names())), callable],
        "cv": ["cv_object"],
        "memory": [None, str, HasMethods(["cache"])],
        "n_jobs": [None, Integral],
    }

    def __init__(
        self,
        estimator,
        extractors=None,
        *,
        costs=None,
        alpha=0.1,
        monotonicity_tol=0.0,
        size=None,
        budget=None,
        strategy="poly_dom",
        trade_offs=None,
        anytime=False,
        max_models=None,
        max_seconds=None,
        cost_percentile=0.95,
        scoring=None,
        cv=5,
        memory=None,
        n_jobs=None,
    ):
        self.estimator = estimator
        self.extractors = extractors
        self.costs = costs
        self.alpha = alpha
        self.monotonicity_tol = monotonicity_tol
        self.size = size
        self.budget = budget
        self.strategy = strategy
        self.trade_offs = trade_offs
        self.anytime = anytime
        self.max_models = max_models
        self.max_seconds = max_seconds
        self.cost_percentile = cost_percentile
        self.scoring = scoring
        self.cv = cv
        self.memory = memory
        self.n_jobs = n_jobs

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

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: ArrayLike, *, size: ArrayLike | None = None, **params: Any):
        """Train the models of the feature sets and index them.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features) or list
            Rows, or raw items when `extractors` are transformers.

        y : array-like of shape (n_samples,)
            Labels.

        size : array-like of shape (n_samples,), default=None
            Sizes of the items; overrides the constructor's. Used to measure costs and for
            the median size of the greedy strategies.

        **params : dict
            ``sample_weight``, passed to the models and to the scorer; with metadata
            routing enabled, whatever the model, the scorer or the splitter requests.

        Returns
        -------
        self
        """
        self.__dict__.pop("choices_", None)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        routed = self._routed_fit_params(params)
        for attribute in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(attribute, None)
        X = self._check_columns(X, reset=True)
        X, y = indexable(X, y)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        extractors = check_extractors(
            self.extractors,
            getattr(self, "n_features_in_", None),
            getattr(self, "feature_names_in_", None),
            self._validate_names,
        )
        self._check_number(len(extractors.names))
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)

        @contextmanager
        def progress(n_sets):
            task = context.subcontext(task_name=f"train-{n_sets}-sets")
            task.call_on_fit_task_begin(estimator=self, X=X, y=y)
            yield
            task.call_on_fit_task_end(estimator=self, X=X, y=y)

        splits = list(check_cv(self.cv, y, classifier=True).split(X, y, **routed["splitter"]))
        sizes = self._sizes(X, size)
        self.classes_ = np.unique(y)
        self.extractors_ = extractors.fit(X, y)
        self.costs_ = self._feature_costs(X, sizes)
        trainer = SetTrainer(
            self.estimator,
            extractors,
            extractors.prepare(X, range(len(extractors.names))),
            y,
            splits,
            check_scoring(self.estimator, scoring=self.scoring),
            routed["fit"],
            routed["score"],
            self.n_jobs,
            check_memory(self.memory),
            progress,
        )
        if self.strategy in ("poly_dom", "expand_all"):
            choices = self._fit_lattice(trainer)
        else:
            choices = self._fit_greedy(trainer, sizes)
        self._masks, self._set_costs, self.index_ = choices
        expanded = np.array(list(trainer.accuracy), dtype=np.int64)
        self.expanded_ = indicator(expanded, len(extractors.names))
        self.expanded_scores_ = np.array(list(trainer.accuracy.values()))
        self.n_trained_ = len(expanded) - 1
        self.candidates_ = indicator(self._masks, len(extractors.names))
        self.scores_ = np.array(trainer.evaluate(self._masks.tolist()))
        self.estimators_ = trainer.fit(self._masks)
        self.choices_ = [self._named(mask) for mask in self._masks]
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _routed_fit_params(self, params):
        """Metadata for the models, the scorer and the splitter."""
        if routing_enabled():
            routed = process_routing(self, "fit", **params)
            return {
                "fit": routed["estimator"]["fit"],
                "score": routed["scorer"]["score"],
                "splitter": routed["splitter"]["split"],
            }
        raise_for_params(params, self, "fit", allow=["sample_weight"])
        return {"fit": params, "score": params, "splitter": {}}

    def _check_columns(self, X, *, reset):
        """Check X as far as its columns are there to be read; lists of rows become arrays.

        A table of which each column is an extractor is checked as one. Where the user
        named the extractors, what a row does not need may be missing, and only number and
        names of the columns are checked. Raw items have none.
        """
        of_columns = self.extractors is None or isinstance(self.extractors, Mapping)
        if of_columns and isinstance(X, list):
            X = np.asarray(X)
        if self.extractors is None:
            return check_rows(self, X, reset=reset)
        (X,) = indexable(X)
        if num_samples(X) == 0:
            raise ValueError(
                "Found 0 sample(s) while a minimum of 1 is required by "
                f"{type(self).__name__}, got {X!r}."
            )
        if of_columns or len(getattr(X, "shape", ())) == 2:
            validate_data(self, X, reset=reset, skip_check_array=True)
        return X

    def _check_number(self, n_extractors):
        """Whether the strategy can handle that many extractors."""
        limit = MAX_LATTICE_FEATURES if self.strategy in ("poly_dom", "expand_all") else 62
        if n_extractors > limit:
            raise ValueError(
                f"strategy={self.strategy!r} handles at most {limit} extractors, got "
                f"{n_extractors}. Group columns under one name in extractors"
                + (', or use strategy="greedy".' if limit < 62 else ".")
            )

    def _feature_costs(self, X, sizes):
        """Cost functions of the extractors, given or measured."""
        names = self.extractors_.names
        timed = isinstance(self.costs, str)
        if self.anytime and not timed:
            raise ValueError(
                f'anytime=True watches the clock and needs costs="time", got costs={self.costs!r}.'
            )
        for attribute in ("measured_sizes_", "measured_costs_"):
            self.__dict__.pop(attribute, None)
        if timed:
            if not self.extractors_.measurable:
                raise ValueError(
                    'costs="time" measures transformers, but extractors are columns of X, which '
                    "take no time to compute. Give numbers, polynomials or callables."
                )
            functions, self.measured_sizes_, self.measured_costs_ = measure_feature_costs(
                self.extractors_, X, sizes, self.cost_percentile
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

    def _fit_lattice(self, trainer):
        """Poly-Dom, or all sets."""
        n_extractors = len(self.extractors_.names)
        if self.strategy == "expand_all":
            found = expand_all(n_extractors, trainer.evaluate, trainer.accuracy[0])
        else:
            found = LatticeSearch(
                n_extractors,
                trainer.evaluate,
                trainer.accuracy[0],
                monotonicity_tol=self.monotonicity_tol,
                max_models=self.max_models,
                max_seconds=self.max_seconds,
            ).run(self.alpha)
        self.alpha_ = found.alpha
        self._report_violations(found)
        return lattice_choices(found, self.costs_)

    def _report_violations(self, found):
        """Say where the assumption of the guarantee did not hold on the trained sets."""
        violations = monotonicity_violations(found.masks, found.accuracy, self.monotonicity_tol)
        self.monotonicity_violations_ = [
            (self._named(subset), self._named(superset), drop)
            for subset, superset, drop in violations
        ]
        if violations and self.strategy == "poly_dom":
            subset, superset, drop = self.monotonicity_violations_[0]
            warnings.warn(
                f"The guarantee assumes that a set of extractors is at most monotonicity_tol="
                f"{self.monotonicity_tol!r} less accurate than any of its subsets. "
                f"{len(violations)} of the {len(found.masks)} scored sets are not so, the worst "
                f"being {superset!r}, which is {drop:.4g} below {subset!r}. "
                f"monotonicity_tol={np.ceil(drop * 1e4) / 1e4:.4g} would hold on these sets; "
                "see monotonicity_violations_.",
                UserWarning,
                stacklevel=5,
            )

    def _fit_greedy(self, trainer, sizes):
        """Greedy: one sequence for each trade-off at the median size."""
        self.__dict__.pop("alpha_", None)
        self.monotonicity_violations_ = []
        if sizes is None and self.costs_.depends_on_size:
            raise ValueError(
                f"strategy={self.strategy!r} grows its sequences at the median training size, but "
                "the items have no size. Give size, here or to the constructor."
            )
        reference = 0.0 if sizes is None else float(np.median(sizes))
        trade_offs = self._trade_offs(self.costs_(np.array([reference]))[:, 0])
        return greedy_choices(
            trainer.evaluate, trainer.accuracy[0], self.costs_, reference, trade_offs
        )

    def _trade_offs(self, cost):
        if self.strategy == "greedy_acc":
            return [0.0]
        if self.strategy == "greedy_cost":
            return [np.inf]
        if self.trade_offs is None:
            return default_trade_offs(cost)
        given = np.asarray(self.trade_offs, dtype=np.float64)
        if given.ndim != 1 or len(given) == 0 or not (given >= 0).all():
            raise ValueError(
                "trade_offs must be a one-dimensional sequence of at least one number, none "
                f"negative, got {self.trade_offs!r}."
            )
        return given

    def _named(self, mask):
        return tuple(self.extractors_.names[j] for j in members(mask))

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
        sizes = np.asarray(size, dtype=np.float64)
        if sizes.shape != (num_samples(X),) or not (np.isfinite(sizes) & (sizes >= 0)).all():
            raise ValueError(
                f"size must have one finite number that is not negative for each of the "
                f"{num_samples(X)} items, got {reprlib.repr(size)}."
            )
        return sizes

    def _known_sizes(self, sizes):
        """Sizes for a decision: required where costs depend on them."""
        if not self.costs_.depends_on_size:
            return 0.0
        if sizes is None:
            raise ValueError(
                "size is needed because the costs depend on it: pass size to the method, or give "
                "the constructor a column or a callable."
            )
        return sizes

    def _effective_budget(self, budget):
        budget = self.budget if budget is None else budget
        if np.ndim(budget) == 0:
            return check_budget(budget)
        values = np.asarray(budget, dtype=np.float64)
        if not (values >= 0).all():
            raise ValueError(
                "budget must have numbers that are not negative, one for each item, "
                f"got {budget!r}."
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
            given, size = size, np.asarray(size, dtype=np.float64)
            if not (np.isfinite(size) & (size >= 0)).all():
                raise ValueError(f"size must be finite and not negative, got {given!r}.")
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
            Named tuple ``(route, cost, accuracy)`` of arrays, by rising cost.
        """
        check_is_fitted(self)
        size = float(self._known_sizes(size))
        route = self.index_.skyline(size)
        return Skyline(
            route, self._set_costs.chosen(route, np.full(len(route), size)), self.scores_[route]
        )

    def _respond(self, X, response, *, budget=None, **context):
        check_is_fitted(self)
        X = self._check_columns(X, reset=False)
        plan = self._plan(X, self._effective_budget(budget), **context)
        y_pred = None if response is None else self._answer(X, plan, response)
        return Routed(y_pred, plan.route, plan.cost)

    def _plan(self, X, budget, size=None):
        n_samples = num_samples(X)
        if np.ndim(budget) and budget.shape != (n_samples,):
            raise ValueError(
                f"budget must be one number or have one for each of the {n_samples} items, got "
                f"shape {budget.shape!r}."
            )
        sizes = np.broadcast_to(self._known_sizes(self._sizes(X, size)), (n_samples,))
        budgets = np.broadcast_to(budget, (n_samples,))
        if self.anytime:
            estimates = self.costs_(sizes)
            return Plan(
                *anytime_plan(self.extractors_, self.index_, self._masks, estimates, X, budgets)
            )
        route = self.index_.lookup(sizes, budgets)
        return Plan(route, self._set_costs.chosen(route, sizes))

    def _answer(self, X, plan, response):
        def answer(choice, rows):
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
