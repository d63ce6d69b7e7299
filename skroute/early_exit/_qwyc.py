"""QWYC: evaluate an ensemble member by member and quit when the answer is settled."""

from reprlib import repr as short_repr

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import check_random_state, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from skroute.base import (
    CostAwareMixin,
    Plan,
    check_budget,
    check_costs,
    check_rows,
    inherit_member_tags,
    measure_costs,
)
from skroute.base._inspection import is_frozen, unfrozen
from skroute.early_exit._algorithms import checked
from skroute.early_exit._answers import (
    ReadEnsemble,
    check_same_answers,
    probabilities,
    sided,
    ties_of,
)
from skroute.early_exit._calibration import affordable, held_out_share, hold_out
from skroute.early_exit._engines import (
    check_estimator,
    engine_of,
    fit_models,
    fittable_models,
    offers_proba,
    takes_nan,
)
from skroute.early_exit._learning import (
    ExitOptions,
    learn_exits,
    order_of,
    shares_of,
    stopping_of,
    warn_of_rare_answers,
)
from skroute.forests._wrapped import prepared, take_apart, weights_alone
from skroute.utils._cache import cache_of
from skroute.utils._compat import (
    Integral,
    Interval,
    Real,
    StrOptions,
    VisualBlock,
    _safe_indexing,
    check_method_params,
    routing_enabled,
)
from skroute.utils._tensors import on_host
from skroute.utils._typing import ArrayLike
from skroute.utils._validation import check_weights

__all__ = ["QWYCEnsemble"]


class QWYCEnsemble(CostAwareMixin, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Quit When You Can: early exit from an ensemble, with a learnt order.

    The members of an additive ensemble are evaluated one after the other in an
    optimised order. After member `r` a row whose partial sum is above or below the
    thresholds of that position gets its answer and costs no further member. Order and
    thresholds are chosen so that at most a share `alpha` of the rows is answered
    differently from the full ensemble, at the smallest mean cost. Labels are needed for
    fitting the ensemble only; :meth:`optimize` works on rows without labels.

    Parameters
    ----------
    estimator : estimator, booster or list of members
        The ensemble is one of these:

        - a classifier of LightGBM, XGBoost or CatBoost, or GradientBoosting,
          HistGradientBoosting, RandomForest, ExtraTrees, Bagging, AdaBoost or Voting of
          scikit-learn. It may stand at the end of a Pipeline. Its threshold may be
          moved by FixedThresholdClassifier or TunedThresholdClassifierCV, and exits
          decide at the moved threshold;
        - a raw LightGBM or XGBoost booster, which is never refitted;
        - a deep net with exits, :class:`~skroute.members.MultiExitClassifier`. Its
          exits are evaluated in their own order;
        - a list of members whose scores are added: estimators with
          ``decision_function`` or ``predict_proba``, or functions of rows. Functions
          have no classes and need :meth:`fit`.

        Wrap a fitted ensemble in :class:`~sklearn.frozen.FrozenEstimator`.

    alpha : float or mapping from class label to float, default=0.005
        Share of rows that may be answered differently from the full ensemble. A larger
        value evaluates fewer members. A number does not limit the share of a rare
        class: all of its rows may be among the rows that change. `fit` warns if more
        than a tenth of a class may change. A mapping has a share for each class: a
        share of the rows to which the full ensemble gives that answer.
        ``dict.fromkeys(classes, 0.01)`` keeps 99 % of each answer.

    mode : {"both", "negative"}, default="both"
        Answers that may come early. With "negative", only rows of the first of two
        classes leave early. Rows of the second class are always evaluated in full, so
        that their scores can rank them.

    order : {"qwyc", "natural", "random"} or array-like of int, default="qwyc"
        Order of evaluation: Algorithm 1 ("qwyc"), the ensemble's own order ("natural"),
        a random order, or a permutation of the members.

    stopping : {"auto", "thresholds", "votes"}, default="auto"
        The thresholds per position of "Quit When You Can", or the optimal stopping of a
        vote [2]_ [3]_. Votes are for members that count alike, and need no order
        search. "auto" learns both on two thirds of the rows to learn from, compares
        them on the other third, and takes votes if they cost less. It does so for
        forests, bagging and voting in the order "qwyc". Otherwise it takes thresholds.

    calibration : float or None, default=0.25
        Share of the rows that is held out to choose among thresholds. The ensemble is
        not fitted on these rows either. ``disagreement_bound_`` needs such rows. None
        chooses on the rows that the thresholds are fitted on, which is optimistic.

    confidence : float, default=0.95
        Confidence of ``disagreement_bound_``.

    guarantee : bool, default=False
        If True, the upper bound meets `alpha`. If False, the expected disagreement
        does. True evaluates more members and needs held-out rows.

    costs : None, "time", mapping or array-like of shape (n_members,), default=None
        Cost of evaluating each member. None counts members. "time" measures seconds per
        row. A mapping has the positions of the members as keys.

    budget : float, default=None
        Mean cost per row, in the unit of `costs`. If the thresholds that meet `alpha`
        cost more on the calibration rows, more hurried ones are used, which do not meet
        `alpha`. None is unlimited.

    n_jobs : int, default=None
        Threads for the order search and for batches of rows.

    random_state : int, RandomState instance or None, default=None
        Determines the calibration rows and the random order. Pass an int for the same
        result at every fit.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    estimator_ : object
        The fitted ensemble or list of members.

    order_ : ndarray of shape (n_members,), dtype=int64
        Members in order of evaluation.

    stopping_ : {"thresholds", "votes"}
        The stopping in use, which ``stopping="auto"`` chose.

    thresholds_ : ndarray of shape (n_members, 2), dtype=float64
        Lower and upper threshold of each position, of the partial sum (two classes) or
        of the margin between the two leading classes. Infinite if no row leaves.

    costs_ : ndarray of shape (n_members,), dtype=float64
        Cost of each member, in the ensemble's own order.

    disagreement_ : float
        Share of the calibration rows answered differently from the full ensemble.

    disagreement_bound_ : float
        Upper bound on the expected share. It holds with probability `confidence` over
        the draw of the calibration rows, the choice among thresholds included. NaN
        without held-out rows. If `alpha` is a mapping, it is the largest of
        `class_disagreement_bound_`. This is a bound for the share of all rows too.

    class_disagreement_ : ndarray of shape (n_classes,), dtype=float64
        For each class, the share of changed answers among the calibration rows to which
        the full ensemble gives this class. NaN if there is no such row.

    class_disagreement_bound_ : ndarray of shape (n_classes,), dtype=float64
        Upper bounds of the expected shares of changed answers, by class. They hold
        together with probability `confidence`.
        NaN unless `alpha` has a share for each class and rows are held out.

    staged_disagreement_ : ndarray of shape (n_members,), dtype=float64
        Share of the calibration rows that have left with another answer by each
        position.

    tradeoff_ : Tradeoff
        Named tuple of the sets of thresholds that were compared, from cautious to
        hurried: ``thresholds``, and ``cost`` and ``disagreement`` of each set on the
        calibration rows. ``chosen`` is the index of the set in use. It prints as a
        table.

    min_budget_ : float
        The smallest cost in `tradeoff_`.

    choices_ : list of str
        Number of members evaluated: ``choices_[k]`` is ``str(k)``.

    n_features_in_ : int
        Number of features seen during fit, if the ensemble has it.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during fit, if the ensemble has them.

    See Also
    --------
    ExitDisplay : When rows leave.
    TradeoffDisplay : Members against disagreement.

    Notes
    -----
    Deep trees overfit the rows that they were fitted on. Thresholds fitted on such rows
    stop too early on others, and calibration then falls back to cautious ones. For a
    bagged forest, fit it first, and pass ``FrozenEstimator(forest)`` and rows that it
    has not seen.

    The members as they are read are compared with the library's own ``predict`` on rows
    that are varied (missing values, unseen categories, extreme values). An ensemble
    that is read wrongly is refused. If the full score of a row is a tie within
    rounding, the library is asked for the answer.

    The bound rests on a fixed sequence of tests: thresholds are ordered from cautious
    to hurried without the calibration rows, and the last one before the first that
    makes too many errors on them is taken.

    References
    ----------
    .. [1] S. Wang, M. Gupta and S. You, "Quit When You Can: Efficient Evaluation of
       Ensembles with Ordering Optimization", arXiv:1806.11202. Algorithms 1 and 2.

    .. [2] W. Fan, F. Chu, H. Wang and P. S. Yu, "Pruning and Dynamic Scheduling of
       Cost-sensitive Ensembles", AAAI 2002.

    .. [3] J. Kalman and A. Moscovich, "Optimal Sequential Testing for Binary Ensemble
       Classifiers", arXiv:2606.15237.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> from skroute.early_exit import QWYCEnsemble
    >>> X, y = make_classification(3000, class_sep=2.0, random_state=0)
    >>> gb = GradientBoostingClassifier(random_state=0)
    >>> quick = QWYCEnsemble(gb, alpha=0.01, random_state=0).fit(X[:2000], y[:2000])
    >>> bool(quick.predict_cost(X[2000:]).mean() < 50)  # of 100 trees
    True
    >>> full_answers = quick.estimator_.predict(X[2000:])
    >>> bool((quick.predict(X[2000:]) != full_answers).mean() <= 0.02)
    True
    """

    _parameter_constraints: dict = {
        "estimator": "no_validation",
        "alpha": [Interval(Real, 0, 1, closed="left"), dict],
        "mode": [StrOptions({"both", "negative"})],
        "order": [StrOptions({"qwyc", "natural", "random"}), "array-like"],
        "stopping": [StrOptions({"auto", "thresholds", "votes"})],
        "calibration": [Interval(Real, 0, 1, closed="neither"), None],
        "confidence": [Interval(Real, 0, 1, closed="neither")],
        "guarantee": ["boolean"],
        "costs": [StrOptions({"time"}), dict, "array-like", None],
        "budget": [Interval(Real, 0, None, closed="both"), None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator,
        *,
        alpha=0.005,
        mode="both",
        order="qwyc",
        stopping="auto",
        calibration=0.25,
        confidence=0.95,
        guarantee=False,
        costs=None,
        budget=None,
        n_jobs=None,
        random_state=None,
    ):
        self.estimator = estimator
        self.alpha = alpha
        self.mode = mode
        self.order = order
        self.stopping = stopping
        self.calibration = calibration
        self.confidence = confidence
        self.guarantee = guarantee
        self.costs = costs
        self.budget = budget
        self.n_jobs = n_jobs
        self.random_state = random_state

    # Fitting --------------------------------------------------------------------------

    def fit(self, X, y, X_calibration=None, **fit_params):
        """Fit the ensemble, unless it is frozen, and learn order and thresholds.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Training rows.

        y : array-like of shape (n_samples,)
            Labels.

        X_calibration : {array-like, dataframe}, default=None
            Calibration rows, of shape (n_calibration, n_features), without labels. With
            them, none of `X` is held out.

        **fit_params : dict
            Passed to the ``fit`` of the ensemble through metadata routing. Without it,
            `sample_weight` alone is passed on, an array-like of shape (n_samples,), to
            the ensemble or to each member of a list. The order and the thresholds count
            each row once.

        Returns
        -------
        self
            Fitted estimator.
        """
        # An ensemble of an earlier fit must not remain if this fit fails: `optimize`
        # would use it.
        self.__dict__.pop("estimator_", None)
        params = {"X_calibration": X_calibration, **fit_params}
        return self._run_fit(self._fit, X, y, params)

    def _fit(self, X, y, *, task, X_calibration=None, **fit_params):
        """Fit the ensemble on rows not held out, and learn order and thresholds.

        `task` reports steps to a callback. The other parameters are those of `fit`.
        """
        check_estimator(self.estimator)
        routed = self._routed(fit_params)
        rows, labels = indexable(check_rows(self, X, reset=True), on_host(y))
        check_classification_targets(labels)
        labels = column_or_1d(labels, warn=True)
        n_rows = len(labels)
        share = held_out_share(self.calibration, X_calibration, self.guarantee)
        rng = check_random_state(self.random_state)
        train, held_out = hold_out(n_rows, share, rng, labels)
        if held_out is not None:
            X_calibration = _safe_indexing(rows, held_out)
            rows = _safe_indexing(rows, train)

        def params_of(name):
            # Metadata of the rows to fit on, for the model with this name.
            check_weights(routed[name]["fit"], n_rows)
            return check_method_params(labels, routed[name]["fit"], indices=train)

        step_name = "fit ensemble"
        if isinstance(self.estimator, (list, tuple)):
            step_name = "fit members"
        with task.step(step_name):
            fitted = fit_models(self.estimator, rows, labels[train], params_of)
        engine, classes = engine_of(fitted, labels)
        self._learn(
            fitted,
            engine,
            classes,
            X=rows,
            X_calibration=X_calibration,
            share=share,
            rng=rng,
            task=task,
        )

    def _routed(self, params):
        """Return the metadata for each model's `fit`: weights only, if not routed.

        Parameters
        ----------
        params : dict
            Metadata of a call of `fit`.

        Returns
        -------
        dict from str to dict
            ``routed[name]["fit"]`` are the metadata of a model of
            :func:`fittable_models`.
        """
        if routing_enabled():
            return self._route_metadata(params)
        models = fittable_models(self.estimator)
        routed = {name: {"fit": {}} for name in models}
        # Names of the models that get the weights: those that are fitted.
        takes_weights = [name for name in models if not is_frozen(models[name])]
        if not takes_weights:
            # All models are frozen: the first one refuses weights with an error.
            takes_weights = list(models)
        for name in takes_weights:
            routed[name]["fit"] = weights_alone(models[name], params, self)
        return routed

    def optimize(
        self, X: ArrayLike, X_calibration: ArrayLike | None = None
    ) -> "QWYCEnsemble":
        """Learn order and thresholds of a fitted ensemble, on rows without labels.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Rows as they will be predicted. The ensemble is the one of an earlier
            :meth:`fit`, or a frozen one.

        X_calibration : {array-like, dataframe}, default=None
            Calibration rows, of shape (n_calibration, n_features). With them, none of
            `X` is held out.

        Returns
        -------
        self
            Fitted estimator.
        """
        params = {"X_calibration": X_calibration}
        return self._run_fit(self._optimize, X, None, params, name="optimize")

    def _optimize(self, X, y, *, task, X_calibration):
        """Learn order and thresholds of an ensemble that is frozen or fitted.

        `task` reports steps to a callback, and `y` is not used. The other parameters
        are those of `optimize`.
        """
        models = list(fittable_models(self.estimator).values())
        # None stands for the classes that the ensemble itself stores.
        known_classes = None
        if all(map(is_frozen, models)):
            check_estimator(self.estimator)
            if isinstance(self.estimator, (list, tuple)):
                fitted = [unfrozen(model) for model in models]
            else:
                fitted = unfrozen(models[0])
            if vars(self).get("estimator_") is fitted:
                # A raw booster has no labels. An earlier fit has seen them.
                known_classes = self.classes_
        elif hasattr(self, "estimator_"):
            fitted = self.estimator_
            known_classes = self.classes_
        else:
            raise ValueError(
                "optimize needs a fitted ensemble: call fit first, or pass "
                "FrozenEstimator(ensemble), got "
                f"estimator={short_repr(self.estimator)}."
            )
        X = check_rows(self, X, reset=True)
        share = held_out_share(self.calibration, X_calibration, self.guarantee)
        engine, classes = engine_of(fitted, known_classes=known_classes)
        rng = check_random_state(self.random_state)
        self._learn(
            fitted,
            engine,
            classes,
            X=X,
            X_calibration=X_calibration,
            share=share,
            rng=rng,
            task=task,
        )

    def _learn(self, fitted, engine, classes, *, X, X_calibration, share, rng, task):
        """Learn order and thresholds, calibrate them, and set the fitted attributes.

        Parameters
        ----------
        fitted : object or list
            Fitted ensemble, or list of fitted members.

        engine : Engine
            In the ensemble's own order.

        classes : array-like of shape (n_classes,)
        X : indexable
            Rows to learn from, before the steps of a pipeline.

        X_calibration : indexable or None
            Calibration rows. If None, a `share` of `X` is held out.

        share : float
            0 if nothing is held out.

        rng : RandomState
        task : task of a callback
            Reports steps.
        """
        stopping = stopping_of(engine, self.mode, self.stopping, self.order)
        self.estimator_ = fitted
        self.classes_ = np.asarray(classes)
        # The steps of a pipeline before the ensemble. Members of a list have none.
        self._transformers = ()
        if not isinstance(fitted, list):
            self._transformers = take_apart(fitted).transformers
            ensemble = ReadEnsemble(fitted, engine, self.classes_, self._transformers)
            check_same_answers(ensemble, X)
        X = prepared(self._transformers, X)
        if X_calibration is not None:
            X_calibration = prepared(self._transformers, X_calibration)
        costs = _member_costs(self.costs, engine, X)
        alpha = shares_of(self.alpha, self.classes_)
        labels = self.classes_.tolist()
        options = ExitOptions(
            alpha=alpha,
            order=order_of(self.order, engine, rng),
            stopping=stopping,
            # Margins of several classes have no lower threshold.
            use_lo=engine.n_outputs == 1,
            # With mode "negative", no row is answered positive early.
            use_hi=self.mode == "both",
            # No error is allowed, and no budget asks for thresholds.
            never_leave=not np.any(alpha) and self.budget is None,
            n_jobs=self.n_jobs,
        )
        exits = learn_exits(
            engine,
            options,
            X=X,
            X_calibration=X_calibration,
            share=share,
            confidence=self.confidence,
            guarantee=self.guarantee,
            costs=costs,
            rng=rng,
            task=task,
            labels=labels,
        )
        calibrated = exits.calibrated
        tradeoff = calibrated.tradeoff
        self.costs_ = costs
        self.order_ = exits.order
        self.stopping_ = exits.stopping
        self.tradeoff_ = tradeoff
        chosen_thresholds = tradeoff.thresholds[tradeoff.chosen]  # (2, n_members)
        self.thresholds_ = np.column_stack(chosen_thresholds)  # (n_members, 2)
        self.disagreement_ = float(tradeoff.disagreement[tradeoff.chosen])
        self.disagreement_bound_ = float(calibrated.bounds.max())
        self.staged_disagreement_ = calibrated.staged_disagreement
        self._set_class_disagreements(calibrated, bounds_by_class=np.ndim(alpha) > 0)
        # Entry `k` is the cost of the first `k` members.
        self._cost_of_count = np.concatenate([[0.0], np.cumsum(costs[self.order_])])
        self._engine = engine.reordered(self.order_)
        # Raises an error if no set of thresholds fits the budget.
        affordable(tradeoff, check_budget(self.budget))
        # The choice for a row is the number of members that are evaluated.
        self.choices_ = [str(k) for k in range(engine.n_members + 1)]
        warn_of_rare_answers(alpha, calibrated, labels, self.confidence)

    def _set_class_disagreements(self, calibrated, bounds_by_class):
        """Set the disagreement of each class and its upper bound.

        Parameters
        ----------
        calibrated : Calibrated
        bounds_by_class : bool
            True if its bounds are those of each answer. Otherwise the bounds of the
            classes are NaN.
        """
        # 0 / 0 is NaN: no row has this answer.
        with np.errstate(invalid="ignore"):
            disagreement = calibrated.wrong / calibrated.n_rows
        # A bound on the share among all rows does not bound the share of a class, which
        # gets NaN.
        bounds = np.full(len(disagreement), np.nan)
        if bounds_by_class:
            bounds = calibrated.bounds
        # An ensemble of one class has one output, and thus two answers. Its class is
        # the last answer.
        n_classes = len(self.classes_)
        self.class_disagreement_ = disagreement[-n_classes:]
        self.class_disagreement_bound_ = bounds[-n_classes:]

    def __setstate__(self, state):
        super().__setstate__(state)
        if "tradeoff_" in state:
            # Thresholds from a pickle are checked before compiled code reads them.
            thresholds = []
            for pair in self.tradeoff_.thresholds:
                thresholds.append(checked(pair, len(self.order_)))
            self.tradeoff_ = self.tradeoff_._replace(thresholds=thresholds)

    # Prediction -----------------------------------------------------------------------

    def decision_function(
        self, X: ArrayLike, budget: float | None = None
    ) -> np.ndarray:
        """Return the score of each row, the sum over the members that were evaluated.

        If a row left early, the sum is partial. A partial sum on the wrong side of the
        decision is moved just to the side of the answer.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            Mean cost per row for this call.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Positive means the second class, for two classes.
        """
        return self.respond(X, self.make_call(budget), "decision_function").y_pred

    def _offers_proba(self):
        """Return True if rows have probabilities, or raise an AttributeError."""
        if hasattr(self, "choices_"):
            has_proba = self._engine.link is not None
        else:
            has_proba = offers_proba(self.estimator)
        if not has_proba:
            raise AttributeError(
                "The scores of the members have no known link to probabilities."
            )
        return True

    def _check_rows(self, X):
        """Return the rows of a call, checked unless the engine checks them itself."""
        # Scikit-learn's checks of one row take ten times as long as its trees. They are
        # needed to compare the names of columns that `fit` saw.
        has_names = hasattr(self, "feature_names_in_")
        if not has_names and not self._transformers and self._engine.reads_unchecked(X):
            return X
        return check_rows(self, X, reset=False)

    def _smallest_budget(self):
        """Return the smallest mean cost of the sets of thresholds."""
        return self.tradeoff_.cost.min()

    def _plan(self, X, call):
        """Evaluate rows with the thresholds that the budget of a call allows.

        Parameters
        ----------
        X : indexable
            The rows of the call, before the steps of a pipeline.

        call : Call

        Returns
        -------
        Plan
            The choice for a row is its number of evaluated members. The state is the
            `Walk`.
        """
        index = affordable(self.tradeoff_, call.budget)
        walk = self._walk(X, self.tradeoff_.thresholds[index])
        costs = self._cost_of_count[walk.n_evaluated]
        return Plan(walk.n_evaluated, costs, state=walk)

    def _walk(self, X, thresholds):
        """Evaluate rows, with the steps of a pipeline before them, until they stop."""
        cache = cache_of(self)
        if self._transformers:
            # The cache has the prepared rows if these rows were walked before.
            X = cache.get_or_compute(
                "prepared", lambda: prepared(self._transformers, X)
            )
        return self._engine.walk(X, thresholds, self.n_jobs, cache)

    def _answer(self, plan, response):
        """Return labels, scores or probabilities of the rows of a plan.

        `response` is "predict", "decision_function" or "predict_proba".
        """
        walk = plan.state
        answers = self._settled(plan.X, walk)
        if response == "predict":
            return self._engine.labels(self.classes_, answers)
        scores = sided(self._engine, walk.scores, answers)
        if response == "decision_function":
            if self._engine.n_outputs == 1:
                return scores[:, 0]
            return scores
        n_classes = len(self.classes_)
        return probabilities(self._engine, scores, walk.n_evaluated, n_classes)

    def _settled(self, X, walk):
        """Return the answers of a walk. The ensemble itself answers rows with a tie.

        `X` are the rows of the call, before the steps of a pipeline.
        """
        ties = ties_of(self._engine, walk)
        if len(ties):
            ensemble = ReadEnsemble(
                self.estimator_, self._engine, self.classes_, self._transformers
            )
            # The walk is of this call only, so that its answers may be overwritten.
            walk.answers[ties] = ensemble.own_answers(X, ties, cache_of(self))
        return walk.answers

    def tradeoff(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return disagreement and cost of each set of thresholds, on the rows `X`.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Rows, without labels.

        Returns
        -------
        disagreement : ndarray of shape (n_policies,)
            Share answered differently from the full ensemble, from cautious to hurried.

        cost : ndarray of shape (n_policies,)
            Mean cost per row.
        """
        check_is_fitted(self)
        X = self._check_rows(X)
        n_policies = len(self.tradeoff_.thresholds)
        disagreement = np.empty(n_policies)
        cost = np.empty(n_policies)
        full_answers = None
        for i, thresholds in enumerate(self.tradeoff_.thresholds):
            walk = self._walk(X, thresholds)
            answers = self._settled(X, walk)
            if full_answers is None:
                # The first policy never leaves early.
                full_answers = answers
            disagreement[i] = np.mean(answers != full_answers)
            cost[i] = self._cost_of_count[walk.n_evaluated].mean()
        return disagreement, cost

    # scikit-learn ---------------------------------------------------------------------

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        models = fittable_models(self.estimator).values()
        members = []
        for model in models:
            if hasattr(unfrozen(model), "__sklearn_tags__"):
                members.append(model)
        # A raw booster and a function have no tags. They check rows by themselves.
        tags.input_tags.allow_nan = True
        if members:
            inherit_member_tags(tags, members)
            tags.input_tags.allow_nan |= all(map(takes_nan, models))
            tags.classifier_tags.multi_class = all(map(_takes_many_classes, members))
        return tags

    def get_metadata_routing(self):
        """Return the metadata routing of this object: see the scikit-learn user guide.

        Returns
        -------
        MetadataRouter
            The routing of this estimator.
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        mapping = MethodMapping().add(caller="fit", callee="fit")
        for name, model in fittable_models(self.estimator).items():
            if hasattr(model, "get_metadata_routing"):
                router.add(**{name: model}, method_mapping=mapping)
        return router

    def _sk_visual_block_(self):
        models = fittable_models(self.estimator)
        names = [name.replace("_", " ") for name in models]
        return VisualBlock("parallel", list(models.values()), names=names)


def _takes_many_classes(member):
    """Return True unless a member's tags are those of a classifier of two classes."""
    classifier_tags = get_tags(member).classifier_tags
    return classifier_tags is None or classifier_tags.multi_class


def _member_costs(costs, engine, X):
    """Return the parameter `costs` as an array, in the ensemble's own order.

    Parameters
    ----------
    costs : None, "time", mapping or array-like
    engine : Engine
    X : indexable
        Rows on which time is measured.

    Returns
    -------
    ndarray of shape (n_members,), dtype=float64
    """
    if costs is None:
        return np.ones(engine.n_members)
    if isinstance(costs, str):
        return measure_costs(engine.timed_calls(), X)
    return check_costs(costs, range(engine.n_members))
