"""QWYC: evaluate an ensemble member by member and quit when the answer is settled."""

import warnings
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import _safe_indexing, check_random_state, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from skroute.base import (
    CostAwareMixin,
    Plan,
    check_costs,
    check_rows,
    inherit_member_tags,
    measure_costs,
    note_failure,
)
from skroute.early_exit._calibration import (
    allowed_wrong,
    cross_fit,
    fixed_sequence,
    hold_out,
    judge,
    upper_bound,
)
from skroute.early_exit._engines import (
    MemberEngine,
    booster_classes,
    check_ensemble,
    ensemble_engine,
    is_frozen,
    is_per_row,
    unfrozen,
)
from skroute.early_exit._exits import only_order
from skroute.early_exit._policies import Recipe, compiled_walk_one, single_row_arguments
from skroute.early_exit._thresholds import running_values
from skroute.utils._compat import (
    Integral,
    Interval,
    Real,
    RealNotInt,
    StrOptions,
    VisualBlock,
    _fit_context,
    num_samples,
    process_routing,
    raise_for_params,
    routing_enabled,
)

__all__ = ["QWYCEnsemble"]


def _has_proba(self):
    """Whether scores can become probabilities."""
    if hasattr(self, "choices_"):
        known = self._engine.link is not None
    elif isinstance(self.estimator, (list, tuple)):
        known = all(hasattr(member, "predict_proba") for member in self.estimator)
    else:
        known = True
    if not known:
        raise AttributeError("The scores of the members have no known link to probabilities.")
    return True


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
    estimator : estimator, lightgbm.Booster or list of members
        The ensemble: a classifier of LightGBM or XGBoost, GradientBoosting,
        HistGradientBoosting, RandomForest, ExtraTrees, Bagging, AdaBoost or soft Voting
        of scikit-learn; a raw LightGBM booster, which is never refitted; a deep net with
        exits, :class:`~skroute.members.MultiExitClassifier`, in whose own order the exits
        are evaluated; or a list of
        members whose scores are added: estimators with ``decision_function`` or
        ``predict_proba``, or functions of rows. Wrap what is fitted in
        :class:`~sklearn.frozen.FrozenEstimator`.

    alpha : float, default=0.005
        Share of rows that may be answered differently from the full ensemble. A larger
        value evaluates fewer members.

    mode : {"both", "negative"}, default="both"
        Which answers may come early. "negative" filters and scores: rows of the second
        class are always evaluated in full, so that their scores can rank them. Two
        classes only.

    order : {"qwyc", "natural", "random", "individual_mse", "greedy_mse"} or array-like of \
            shape (n_members,), default="qwyc"
        Order of evaluation: Algorithm 1, the ensemble's own, a random one, by the squared
        error of each member or of the growing partial sum against the full score, or the
        permutation given.

    stopping : {"thresholds", "fan"}, default="thresholds"
        QWYC's thresholds per position, or dynamic scheduling of Fan et al. [2]_ with
        thresholds per bin of the partial sum (two classes only).

    budget_split : {"lagrangian", "share", "greedy"}, default="lagrangian"
        How errors are spent over the positions: one price of an error for all positions,
        2 % of what is left at each position, or all that is left as soon as it helps.

    calibration : float, int or None, default=0.25
        On which rows it is decided how hurried the thresholds may be. A float is the
        share held out, from fitting the ensemble too; ``disagreement_bound_`` needs such
        rows. An int is a number of folds, for a frozen ensemble: order and thresholds
        are learned once without each fold and judged on it, then on all rows. That wastes
        no row, takes that many times longer and gives no bound. None decides on the rows
        that the thresholds are fitted on, which is optimistic.

    confidence : float, default=0.95
        Confidence of ``disagreement_bound_``.

    guarantee : bool, default=False
        Whether the upper bound meets `alpha` (True), or the expected disagreement does
        (False). True evaluates more members and needs held-out rows.

    costs : None, "time", mapping or array-like of shape (n_members,), default=None
        Cost of evaluating each member. None counts members; "time" measures seconds per
        row. A mapping has the positions of the members as keys.

    budget : float, default=None
        Mean cost per row, in the unit of `costs`. Where the thresholds that meet `alpha`
        cost more on the calibration rows, more hurried ones are used and `alpha` is no
        longer met. None is unlimited.

    n_jobs : int, default=None
        Threads for the order search and for batches of rows.

    random_state : int, RandomState instance or None, default=None
        Draws the calibration rows and the random order.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    estimator_ : object
        The fitted ensemble or list of members.

    order_ : ndarray of shape (n_members,), dtype=int64
        Members in order of evaluation.

    thresholds_ : ndarray of shape (n_members, 2), dtype=float64
        Lower and upper threshold of each position, of the partial sum (two classes) or of
        the margin between the two leading classes; infinite where no row leaves. With
        ``stopping="fan"`` one row for each bin.

    costs_ : ndarray of shape (n_members,), dtype=float64
        Cost of each member, in the ensemble's own order.

    disagreement_ : float
        Share of the calibration rows answered differently from the full ensemble.

    disagreement_bound_ : float
        Upper bound on the expected share: holds with probability `confidence` over the
        draw of the calibration rows, the choice among thresholds included. NaN without
        held-out rows.

    staged_disagreement_ : ndarray of shape (n_members,), dtype=float64
        Share of the calibration rows that have left with another answer by each
        position.

    path_ : dict of ndarray
        For each set of thresholds considered, from cautious to hurried: ``"cost"`` and
        ``"disagreement"`` on the calibration rows; ``"chosen"`` is the one in use.

    choices_ : ndarray of shape (n_members + 1,), dtype=int64
        Number of members evaluated: ``choices_[k]`` is `k`.

    n_features_in_ : int
        Number of features seen during fit, where the ensemble knows it.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during fit, where the ensemble knows them.

    See Also
    --------
    ExitDisplay : When rows leave.
    TradeoffDisplay : Members against disagreement.

    Notes
    -----
    Deep trees know the rows that they were fitted on by heart, and thresholds fitted on
    such rows stop too early elsewhere; calibration then falls back to cautious ones. For
    a bagged forest, fit it first, and pass ``FrozenEstimator(forest)`` and rows that it
    has not seen.

    The bound rests on a fixed sequence of tests: thresholds are ordered from cautious to
    hurried without the calibration rows, and the last one before the first that makes
    too many errors on them is taken.

    References
    ----------
    .. [1] S. Wang, M. Gupta and S. You, "Quit When You Can: Efficient Evaluation of
       Ensembles with Ordering Optimization", arXiv:1806.11202. Algorithms 1 and 2.

    .. [2] W. Fan, F. Chu, H. Wang and P. S. Yu, "Pruning and Dynamic Scheduling of
       Cost-sensitive Ensembles", AAAI 2002.

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
    >>> bool((quick.predict(X[2000:]) != quick.estimator_.predict(X[2000:])).mean() <= 0.02)
    True
    """

    _parameter_constraints: dict = {
        "estimator": "no_validation",
        "alpha": [Interval(Real, 0, 1, closed="left")],
        "mode": [StrOptions({"both", "negative"})],
        "order": [
            StrOptions({"qwyc", "natural", "random", "individual_mse", "greedy_mse"}),
            "array-like",
        ],
        "stopping": [StrOptions({"thresholds", "fan"})],
        "budget_split": [StrOptions({"lagrangian", "share", "greedy"})],
        "calibration": [
            Interval(RealNotInt, 0, 1, closed="neither"),
            Interval(Integral, 2, None, closed="left"),
            None,
        ],
        "confidence": [Interval(Real, 0, 1, closed="neither")],
        "guarantee": ["boolean"],
        "costs": [StrOptions({"time"}), dict, "array-like", None],
        "budget": [Interval(Real, 0, None, closed="left"), None],
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
        stopping="thresholds",
        budget_split="lagrangian",
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
        self.budget_split = budget_split
        self.calibration = calibration
        self.confidence = confidence
        self.guarantee = guarantee
        self.costs = costs
        self.budget = budget
        self.n_jobs = n_jobs
        self.random_state = random_state

    # Fitting ----------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self, X: ArrayLike, y: ArrayLike, X_calibration: ArrayLike | None = None, **fit_params
    ) -> "QWYCEnsemble":
        """Fit the ensemble, unless it is frozen, and optimise its evaluation.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Training rows.

        y : array-like of shape (n_samples,)
            Labels.

        X_calibration : {array-like, dataframe} of shape (n_calibration, n_features), default=None
            Calibration rows, without labels; none of `X` is held out then.

        **fit_params : dict
            Passed to the ``fit`` of the ensemble through metadata routing.

        Returns
        -------
        self
            Fitted estimator.
        """
        # From here on a failure leaves the estimator unfitted.
        for attribute in ("choices_", "estimator_"):
            self.__dict__.pop(attribute, None)
        if not isinstance(self.estimator, (list, tuple)):
            check_ensemble(unfrozen(self.estimator))
        routed = self._route_fit(fit_params)
        rows, labels = indexable(check_rows(self, X, reset=True), y)
        check_classification_targets(labels)
        labels = column_or_1d(labels, warn=True)
        if self._folds(X_calibration) and not is_frozen(self.estimator):
            raise ValueError(
                f"calibration={self.calibration!r} folds need a fitted ensemble: the one that "
                "fit would fit has seen the rows of every fold. Pass "
                "FrozenEstimator(ensemble), or a share to hold out such as calibration=0.25."
            )
        self._check_calibration(len(labels), X_calibration)
        rng = check_random_state(self.random_state)
        train, held_out = self._split(len(labels), rng, X_calibration, labels)
        root = self._init_callback_context(max_subtasks=None)
        root.call_on_fit_task_begin(estimator=self, X=X, y=y)
        if held_out is not None:
            X_calibration = _safe_indexing(rows, held_out)
        X_train = rows if held_out is None else _safe_indexing(rows, train)
        y_train = labels[train]
        if isinstance(self.estimator, (list, tuple)):
            with self._task(root, "fit members"):
                fitted = [
                    self._fit_one(
                        member, X_train, y_train, routed[f"member_{i}"].fit, train, len(labels)
                    )
                    for i, member in enumerate(self.estimator)
                ]
            engine, classes = self._list_engine(fitted, np.unique(labels))
        else:
            with self._task(root, "fit ensemble"):
                fitted = self._fit_one(
                    self.estimator, X_train, y_train, routed["estimator"].fit, train, len(labels)
                )
            engine, classes = ensemble_engine(fitted)
            if classes is None:
                classes = booster_classes(engine, labels)
        self._optimize(fitted, engine, classes, X_train, X_calibration, rng, root)
        root.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    @_fit_context(prefer_skip_nested_validation=False)
    def optimize(self, X: ArrayLike, X_calibration: ArrayLike | None = None) -> "QWYCEnsemble":
        """Optimise the evaluation of a fitted ensemble on rows without labels.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Rows as they will be predicted. The ensemble is the one of an earlier
            :meth:`fit`, or a frozen one.

        X_calibration : {array-like, dataframe} of shape (n_calibration, n_features), default=None
            Calibration rows; none of `X` is held out then.

        Returns
        -------
        self
            Fitted estimator.
        """
        # Not choices_: the validation of parameters has just made it unfitted.
        if hasattr(self, "estimator_"):
            fitted = self.estimator_
        elif is_frozen(self.estimator):
            fitted = unfrozen(self.estimator)
        else:
            raise ValueError(
                "optimize needs a fitted ensemble: call fit first, or pass "
                f"FrozenEstimator(ensemble), got estimator={self.estimator!r}."
            )
        X = check_rows(self, X, reset=True)
        self._check_calibration(num_samples(X), X_calibration)
        rng = check_random_state(self.random_state)
        train, held_out = self._split(num_samples(X), rng, X_calibration)
        if held_out is not None:
            X_calibration, X = _safe_indexing(X, held_out), _safe_indexing(X, train)
        if isinstance(fitted, list):
            engine, classes = self._list_engine(fitted, getattr(self, "classes_", None))
        else:
            engine, classes = ensemble_engine(fitted)
            if classes is None:
                classes = getattr(self, "classes_", np.arange(max(2, engine.n_outputs)))
        root = self._init_callback_context(task_name="optimize", max_subtasks=None)
        root.call_on_fit_task_begin(estimator=self, X=X)
        self._optimize(fitted, engine, classes, X, X_calibration, rng, root)
        root.call_on_fit_task_end(estimator=self, X=X)
        return self

    @contextmanager
    def _task(self, root, name, n_positions=0):
        """Report a task to the callbacks; gives what reports a position."""
        task = root.subcontext(task_name=name, max_subtasks=n_positions)
        task.call_on_fit_task_begin(estimator=self)

        def on_position():
            position = task.subcontext(task_name="position")
            position.call_on_fit_task_begin(estimator=self)
            position.call_on_fit_task_end(estimator=self)

        yield on_position
        task.call_on_fit_task_end(estimator=self)

    def _folds(self, X_calibration):
        """Number of folds to calibrate on, 0 where rows are held out or none are used."""
        if X_calibration is not None or not isinstance(self.calibration, Integral):
            return 0
        return int(self.calibration)

    def _check_calibration(self, n, X_calibration):
        if self._folds(X_calibration) > n:
            raise ValueError(
                f"calibration={self.calibration!r} folds need as many rows, got {n}. Give more "
                "rows or fewer folds."
            )
        held_out = X_calibration is not None or isinstance(self.calibration, float)
        if self.guarantee and not held_out:
            raise ValueError(
                "guarantee=True needs calibration rows that nothing else has used, got "
                f"calibration={self.calibration!r}. Hold out a share such as calibration=0.25, "
                "or pass X_calibration."
            )

    def _split(self, n, rng, X_calibration, y=None):
        """Positions of the rows to fit on and of those held out (None: none)."""
        if X_calibration is not None or not isinstance(self.calibration, float) or n < 2:
            return np.arange(n), None
        return hold_out(n, self.calibration, rng, y)

    def _route_fit(self, fit_params):
        if routing_enabled():
            return process_routing(self, "fit", **fit_params)
        raise_for_params(fit_params, self, "fit")
        return _NothingRouted()

    def _fit_one(self, estimator, X, y, params, train, n):
        if is_frozen(estimator) or not hasattr(estimator, "fit"):
            return unfrozen(estimator)
        params = {
            key: _safe_indexing(value, train) if is_per_row(value, n) else value
            for key, value in params.items()
        }
        estimator = clone(estimator)
        with note_failure(type(estimator).__name__, num_samples(X), "fit"):
            return estimator.fit(X, y, **params)

    def _list_engine(self, members, classes):
        if not members:
            raise ValueError("estimator is an empty list; give at least one member.")
        for member in members:
            classes = getattr(member, "classes_", classes)
        if classes is None:
            raise ValueError(
                "The members do not know their classes; call fit with labels, or use members "
                "with classes_."
            )
        return MemberEngine(members, np.asarray(classes), np.ones(len(members))), classes

    def _optimize(self, fitted, engine, classes, X, X_calibration, rng, root):
        """Order, thresholds, calibration; sets the fitted attributes last."""
        n_members, n_rows = engine.n_members, num_samples(X)
        self._check_supported(engine)
        costs = self._costs(engine, X)
        recipe = Recipe(
            alpha=self.alpha,
            order=only_order(self.order, n_members) if engine.in_order else self.order,
            stopping=self.stopping,
            budget_split=self.budget_split,
            n_jobs=self.n_jobs,
            use_lo=engine.n_outputs == 1,
            use_hi=self.mode == "both",
            never=self.alpha == 0 and self.budget is None,
        ).settled(n_members, rng)
        with note_failure("the ensemble", n_rows, "scoring members"):
            scores = engine.scores(X)
        n_positions = n_members - 1 if isinstance(recipe.order, str) else 0
        known = engine.offset, engine.beta, costs
        n_folds = self._folds(X_calibration)
        if n_folds:
            fold = rng.permutation(n_rows) % n_folds
            mean_cost, wrong = cross_fit(
                recipe, scores, *known, fold, lambda name: self._task(root, name, n_positions)
            )
        with self._task(root, "order and thresholds", n_positions) as on_position:
            order, policies, values, bad = recipe.learn(scores, *known, on_position)
        del scores
        spent = np.cumsum(costs[order])
        if X_calibration is not None:
            n_rows = num_samples(X_calibration)
            values, bad = running_values(
                engine.scores(X_calibration), order, engine.offset, engine.beta
            )
        if not n_folds:
            mean_cost, wrong = judge(policies, values, bad, spent)
        mean_cost /= n_rows
        n_wrong = wrong.sum(axis=1)
        if X_calibration is None and not n_folds:
            chosen = fixed_sequence(n_wrong, int(self.alpha * n_rows))
        else:
            allowed = allowed_wrong(n_rows, self.alpha, self.confidence, self.guarantee)
            # The first policy never leaves early and is never wrong.
            chosen = max(0, fixed_sequence(n_wrong, allowed))
            if not chosen and len(policies) > 1:
                warnings.warn(
                    f"No early exit keeps alpha={self.alpha!r} on {n_rows} calibration rows: every "
                    "member is evaluated on every row. Give more rows, or rows that the "
                    "ensemble was not fitted on, or raise alpha.",
                    UserWarning,
                    stacklevel=4,
                )
        bound = np.nan
        if X_calibration is not None:
            bound = upper_bound(allowed, n_rows, self.confidence) if chosen else 0.0
        self.estimator_ = fitted
        self.classes_ = np.asarray(classes)
        self.costs_ = costs
        self.order_ = order
        self.path_ = {
            "cost": mean_cost,
            "disagreement": n_wrong / n_rows,
            "chosen": chosen,
        }
        self.disagreement_ = float(n_wrong[chosen] / n_rows)
        self.disagreement_bound_ = bound
        self.staged_disagreement_ = np.cumsum(wrong[chosen]) / n_rows
        self._path = policies
        self._spent = np.concatenate([[0.0], spent])
        self._weight = np.concatenate([[0.0], np.cumsum(engine.weights[order])])
        self._engine = engine.reordered(order)
        self.thresholds_ = np.column_stack([policies[chosen].lo, policies[chosen].hi])
        # Arrays without names only: with names, scikit-learn has something to check.
        named = hasattr(self, "feature_names_in_")
        self._single = None if named else single_row_arguments(self._engine, policies[chosen])
        self.choices_ = np.arange(n_members + 1)

    def _check_supported(self, engine):
        if engine.n_outputs > 1 and self.mode == "negative":
            raise ValueError(
                "mode='negative' needs two classes: there is no negative class among "
                f"{engine.n_outputs}. Use mode='both'."
            )
        if engine.n_outputs > 1 and self.stopping == "fan":
            raise ValueError(
                "stopping='fan' needs two classes, the ensemble has "
                f"{engine.n_outputs}. Use stopping='thresholds'."
            )

    def _costs(self, engine, X):
        if self.costs is None:
            return np.ones(engine.n_members)
        if isinstance(self.costs, str):
            return measure_costs(engine.member_calls(), X)
        return check_costs(self.costs, range(engine.n_members))

    # Prediction -------------------------------------------------------------------

    def predict(self, X: ArrayLike, budget: float | None = None) -> np.ndarray:
        """Predict, evaluating each row until its answer is settled.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            The rows. One row as an array of the dtype that the trees read takes a short
            path of a few microseconds.

        budget : float, default=None
            Mean cost per row for this call, in the unit of `costs`. None takes the
            constructor's; ``numpy.inf`` is unlimited.

        Returns
        -------
        ndarray of shape (n_samples,)
            The answers.
        """
        single = self.__dict__.get("_single")
        if (
            single is not None
            and hasattr(self, "choices_")
            and budget is None
            and self.budget is None
            and type(X) is np.ndarray
            and X.shape == single[0]
            and X.dtype == single[1]
            and X.flags.c_contiguous
        ):
            # A row that the library may refuse takes the long path, which says so.
            if single[4] or np.isfinite(X).all():
                score, _, side = compiled_walk_one()(X, *single[2])
                positive = side > 0 or (side == 0 and score > single[3])
                return (self.classes_[-1:] if positive else self.classes_[:1]).copy()
        return self._respond(X, "predict", budget=budget).y_pred

    def decision_function(self, X: ArrayLike, budget: float | None = None) -> np.ndarray:
        """Scores of the members that were evaluated.

        A score is partial where the row left early: the sum so far, moved to the side of
        the answer where it is on the other one.

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
        return self._respond(X, "decision_function", budget=budget).y_pred

    @available_if(_has_proba)
    def predict_proba(self, X: ArrayLike, budget: float | None = None) -> np.ndarray:
        """Probabilities from the members that were evaluated.

        Where a row left early they come from its partial score: they name the right
        class but are less certain than the full ensemble.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            Mean cost per row for this call.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return self._respond(X, "predict_proba", budget=budget).y_pred

    def _plan(self, X, budget):
        policy = self._path[self._policy_for(budget)]
        score, members, side = self._engine.walk(X, policy, self.n_jobs)
        return Plan(members, self._spent[members], (score, side))

    def _policy_for(self, budget):
        """The chosen policy, or the most faithful one that costs at most the budget."""
        chosen, cost = self.path_["chosen"], self.path_["cost"]
        if cost[chosen] <= budget:
            return chosen
        affordable = np.flatnonzero(cost <= budget)
        if len(affordable) == 0:
            raise ValueError(
                f"budget={budget!r} is below the smallest mean cost of this ensemble, "
                f"{cost.min():.6g} per row. Give at least that."
            )
        return affordable[np.argmin(self.path_["disagreement"][affordable])]

    def _answer(self, X, plan, response):
        score, side = plan.state
        if len(self.classes_) > 2:
            if response == "predict":
                return self.classes_[np.argmax(score, axis=1)]
            return self._probabilities(score, plan.route) if response[0] == "p" else score
        decision = score[:, 0] - self._engine.beta
        # The answer of a row that left is that of its threshold.
        tiny = 1e-12
        decision = np.where(side > 0, np.maximum(decision, tiny), decision)
        decision = np.where(side < 0, np.minimum(decision, -tiny), decision)
        if response == "predict":
            return self.classes_[(decision > 0) * (len(self.classes_) - 1)]
        if response == "decision_function":
            return decision
        return self._probabilities(decision[:, None], plan.route)

    def _probabilities(self, score, members):
        link, slope = self._engine.link, self._engine.slope
        if score.shape[1] == 1:
            score = score[:, 0]
            positive = (
                0.5 + score / self._weight[members] if link == "mean" else expit(slope * score)
            )
            proba = np.column_stack([1.0 - positive, positive])
            return proba[:, -len(self.classes_) :]
        if link == "softmax":
            return softmax(slope * score, axis=1)
        proba = expit(slope * score) if link == "ova" else score
        return proba / proba.sum(axis=1, keepdims=True)

    def tradeoff(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """What each set of thresholds that was considered does on other rows.

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
        disagreement, cost = np.empty(len(self._path)), np.empty(len(self._path))
        for i, policy in enumerate(self._path):
            score, members, side = self._engine.walk(X, policy, self.n_jobs)
            answer = self._answer(X, Plan(members, self._spent[members], (score, side)), "predict")
            if i == 0:
                full = answer
            disagreement[i] = np.mean(answer != full)
            cost[i] = self._spent[members].mean()
        return disagreement, cost

    # scikit-learn -------------------------------------------------------------------

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        members = self.estimator if isinstance(self.estimator, (list, tuple)) else [self.estimator]
        members = [member for member in members if hasattr(unfrozen(member), "__sklearn_tags__")]
        # A raw booster, and a function, say themselves what they take.
        tags.input_tags.allow_nan = True
        if members:
            inherit_member_tags(tags, members)
            tags.classifier_tags.multi_class = all(
                get_tags(member).classifier_tags is None
                or get_tags(member).classifier_tags.multi_class
                for member in members
            )
        return tags

    def get_metadata_routing(self):
        """Metadata routing of this object: see the scikit-learn user guide.

        Returns
        -------
        MetadataRouter
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        mapping = MethodMapping().add(caller="fit", callee="fit")
        if isinstance(self.estimator, (list, tuple)):
            children = {f"member_{i}": member for i, member in enumerate(self.estimator)}
        else:
            children = {"estimator": self.estimator}
        for name, child in children.items():
            if hasattr(child, "get_metadata_routing"):
                router.add(**{name: child}, method_mapping=mapping)
        return router

    def _sk_visual_block_(self):
        if isinstance(self.estimator, (list, tuple)):
            members = list(self.estimator)
            names = [f"member {i}" for i in range(len(members))]
        else:
            members, names = [self.estimator], ["estimator"]
        return VisualBlock("parallel", members, names=names)


class _NothingRouted:
    """Stands in for the routing result when nothing is routed."""

    fit: dict = {}

    def __getitem__(self, name):
        return self
