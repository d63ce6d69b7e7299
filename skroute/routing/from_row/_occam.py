"""OCCAM: which member answers, row by row; for labels and for numbers."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from skroute.base import check_affordable, check_budget, note_failure
from skroute.base._calls import ALLOWED, EXCLUDE, REQUEST_ID
from skroute.base._inspection import may_take_missing, names_best_score
from skroute.metrics._objectives import OF_LABELS, OF_NUMBERS
from skroute.quality import QualityRegressor
from skroute.routing.parts._estimates import folds_of, with_weights
from skroute.routing.parts._learn import learn_policy, warn_of_fit
from skroute.routing.parts._log import Log, kept_choices, with_last
from skroute.routing.parts._member_router import AMOUNT, MemberRouter
from skroute.routing.parts._policy import check_lambda
from skroute.routing.parts._targets import Numbers
from skroute.utils._cache import NO_CACHE, cache_of
from skroute.utils._compat import (
    HasMethods,
    Interval,
    Real,
    StrOptions,
    num_samples,
    will_have,
)
from skroute.utils._row_hash import tie_draws
from skroute.utils._timing import seconds_per_sample


class Occam(MemberRouter):
    """Members whose quality is estimated for each row; the best at the price answers."""

    _parameter_constraints: dict = {
        **MemberRouter._parameter_constraints,
        "quality_estimator": [HasMethods(["fit", "predict"]), None],
        "embedding": [HasMethods(["fit", "transform"]), str, None],
        "exchange_rate": AMOUNT,
        "reg_lambda": [Interval(Real, 0, None, closed="left")],
        "policy": [StrOptions({"online", "batch"})],
        "abstain_cost": AMOUNT,
        "routing_cost": AMOUNT,
    }
    call_parameters = (EXCLUDE, ALLOWED, REQUEST_ID)

    # Fit ------------------------------------------------------------------------------------

    def _response_methods_of(self, name, member, target):
        # Of the member that embeds both are needed: its probabilities and what it answers.
        if name == self.embedding:
            return ["predict_proba", "predict"]
        return super()._response_methods_of(name, member, target)

    def _advice_on_rows(self):
        if self.embedding is not None or self.quality_estimator is not None:
            return None
        return (
            "Give the name of a member or a transformer as embedding, or a quality_estimator that "
            "reads such rows."
        )

    def _check_members(self, members):
        super()._check_members(members)
        if isinstance(self.embedding, str):
            if self.embedding not in members:
                raise ValueError(
                    f"embedding={self.embedding!r} is not the name of a member; the members are "
                    f"{list(members)!r}. It may also be a transformer or None."
                )
            if not will_have(members[self.embedding], "predict_proba"):
                raise ValueError(
                    f"embedding={self.embedding!r} needs predict_proba, which that member "
                    f"({members[self.embedding]!r}) does not have."
                )

    def _cheapest_plan(self, costs, names):
        deciding, added = self._split_costs(costs, names, answers=True)
        return deciding + super()._cheapest_plan(added, names)

    def _split_costs(self, costs, names, answers):
        """What every row pays whoever answers, and what choosing each member adds.

        `answers` says whether the probabilities of the member that embeds are its answer.
        """
        deciding, added = (
            float(self.routing_cost or 0.0),
            np.array(costs, dtype=np.float64),
        )
        if isinstance(self.embedding, str):
            at = names.index(self.embedding)
            deciding += float(added[at])
            if answers:
                added[at] = 0.0
        return deciding, added

    def _learn(self, X, answers):
        names = answers.names
        self.embedding_, self._embedder, self._embedder_answers = None, None, True
        features = X
        if isinstance(self.embedding, str):
            self._embedder = names.index(self.embedding)
            said = answers.by_method[self._embedder]
            features = said["predict_proba"]
            # It is asked once, unless its answers are not its most probable labels.
            embedder = self._members.models[self._embedder]
            self._embedder_answers = names_best_score(
                embedder, features, said["predict"]
            )
        elif self.embedding is not None:
            self.embedding_ = clone(self.embedding)
            with note_failure("embedding", num_samples(X), "fit"):
                labels = self._target.labels(answers.target)
                features = self.embedding_.fit_transform(X, labels)
        objective = self._objective_of(self._target).bound(
            answers.target, answers.weight
        )
        quality = objective.table(answers.target, answers.to(self._response_method()))
        _, added = self._split_costs(
            self._members.costs_of_fit, names, self._embedder_answers
        )
        log = Log(names, quality, added).with_abstaining(self.abstain_cost)
        self.abstain_quality_ = log.abstain_quality
        estimator = self.quality_estimator
        if estimator is None:
            estimator = QualityRegressor()
        estimator, fit_params = with_weights(estimator, answers.given_weight)
        policy = learn_policy(
            estimator,
            features,
            log,
            folds_of(answers.folds, features),
            weight=answers.weight,
            n_jobs=self.n_jobs,
            fit_params=fit_params,
        )
        self._routing_seconds = 0.0
        if isinstance(self.costs, str) and self.routing_cost is None:
            self._routing_seconds = self._time_decisions(policy, X)
        self._learned, self.choices_ = policy, log.names
        self._learned = policy = self._policy()
        budget = check_budget(self.budget)
        check_affordable(budget, policy.least)
        warn_of_fit(policy, self.choices_, budget)

    def _time_decisions(self, policy, X):
        """Measured seconds of deciding on a row, without the member that embeds."""
        features = X if self._embedder is None else self._embed(X)

        def decide(rows):
            if self.embedding_ is not None:
                rows = self.embedding_.transform(rows)
            policy.decide(
                policy.estimates(rows), policy.planned, np.inf, draw=tie_draws(rows)
            )

        return seconds_per_sample(decide, features)

    # Decisions ------------------------------------------------------------------------------

    def _policy(self):
        check_is_fitted(self)
        deciding, added = self._split_costs(
            self._member_costs, self.member_names_, self._embedder_answers
        )
        if isinstance(self.costs, str):
            deciding += self._routing_seconds
        return self._learned.at(
            costs=added,
            deciding=deciding,
            reg_lambda=check_lambda(self.reg_lambda),
            least_prices=self._least_prices(),
        )

    def _embed(self, X):
        """What the quality estimator sees: X, or the probabilities of the member that embeds."""
        n = num_samples(X)
        if self._embedder is not None:
            return self._ask_member(X, self._embedder, "predict_proba", np.arange(n))
        if self.embedding_ is None:
            return X
        with note_failure("embedding", n, "transform"):
            return cache_of(self).get_or_compute(
                "embedded", lambda: self.embedding_.transform(X)
            )

    def _look(self, X, kept):
        features = self._embed(X)
        if self._embedder is None or not self._embedder_answers:
            return features, None, {}
        # Deciding has paid for the answers of the member that embeds.
        k, labels = self._embedder, features.argmax(axis=1)
        state = {(k, "predict_proba"): features, (k, "predict"): labels}
        return features, state, {k: self._target.labels(labels)[0]}

    def _plan_single(self, X, name, call):
        plan = super()._plan_single(X, name, call)
        if name == self.embedding and cache_of(self) is not NO_CACHE:
            # In a sweep over budgets this member has answered when it embedded.
            _, state, _ = self._look(X, None)
            plan = plan._replace(state=state)
        return plan

    def _plan(self, X, call):
        kept, allowed = kept_choices(
            self.choices_, num_samples(X), call.exclude, call.allowed
        )
        if self._embedder is not None and self._embedder not in kept:
            raise ValueError(
                f"exclude={call.exclude!r} names {self.embedding!r}, which embeds every row: "
                "without it nothing can be decided."
            )
        policy = self._policy().restricted(kept)
        # Before the member that embeds is called.
        check_affordable(call.budget, policy.least)
        estimates, state = self._estimated(X, policy)
        plan = policy.decide(
            estimates,
            policy.planned,
            call.budget,
            draw=tie_draws(X, call.request_id),
            policy=self.policy,
            allowed=allowed,
        )
        return plan._replace(state=state)

    def _asked_first(self, kept):
        return [] if self._embedder is None else [self.member_names_[self._embedder]]

    # Attributes -----------------------------------------------------------------------------

    @property
    def costs_(self):
        """Cost of each choice by `costs` as it is now; 0 for abstaining."""
        check_is_fitted(self)
        costs = self._member_costs
        return costs if self.abstain_quality_ is None else with_last(costs, 0.0)

    @property
    def routing_cost_(self):
        """What each row pays before its member is known: deciding, and who embeds it."""
        return self._policy().deciding

    @property
    def quality_estimator_(self):
        """The quality estimator, fitted on all rows."""
        check_is_fitted(self)
        return self._learned.estimator

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if self.embedding is None:
            # The quality estimator reads X itself.
            reader = self.quality_estimator
            if reader is None:
                reader = QualityRegressor()
            if hasattr(reader, "__sklearn_tags__"):
                tags.input_tags.sparse &= get_tags(reader).input_tags.sparse
                tags.input_tags.allow_nan &= may_take_missing(reader)
            else:
                tags.input_tags.sparse = tags.input_tags.allow_nan = False
        return tags


class OccamRouterClassifier(Occam, ClassifierMixin, BaseEstimator):
    r"""Answer each row with the classifier that is worth its cost for that row (OCCAM).

    `fit` fits the members and records how each does on rows that it has not seen. A quality
    estimator learns to predict it for new rows. A row then goes to the member with the best
    :math:`\hat q_i(x) - \lambda \sigma_i - p\, c_i` [1]_ (equation 9), where the price :math:`p`
    is learned so that the mean cost meets the budget. Only that member is called.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The members. Each is cloned and fitted; a fitted one is passed as
        :class:`~sklearn.frozen.FrozenEstimator`, and then the rows given to `fit` should
        be new to it. ``set_params(name="drop")`` leaves one out.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member, in any one unit (seconds, dollars, FLOPs).
        ``"time"`` measures it in `fit`: median seconds per sample, device-synchronised.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`, everything included. None is
        unlimited. Raising it sends more rows to more expensive members. It is spent as far
        as held-out rows show a gain beyond noise.

    quality_estimator : multi-output regressor, default=None
        Predicts the members' quality from the embedding. None takes
        :class:`~skroute.quality.QualityRegressor`. The paper's own is
        :class:`~skroute.quality.BaggedNeighborsRegressor`, on features scaled to [0, 1].

    embedding : None, transformer or str, default=None
        What the quality estimator sees: X itself; the output of a transformer, which is
        cloned and fitted; or ``predict_proba`` of the member of that name, out of fold in
        `fit`. That member is then called on every row: its cost is charged to every row and
        deducted from the budget, and choosing it costs nothing more, unless it answers
        otherwise than by its largest probability.

    quality : str, mapping, array-like, callable or (str, callable), default="accuracy"
        What an answer is worth, higher is better; price and validation are in its unit. ``score``
        stays accuracy.

        - ``"accuracy"``, or ``"balanced_accuracy"``: right answers, all true classes alike.
        - A cost matrix: a mapping from (true label, given label) to money, or an array with a
          row for each true label of ``classes_`` and a column for each given one. The quality
          is minus that money. See `exchange_rate`.
        - ``"log_loss"``, ``"brier"``: minus these losses of ``predict_proba``, and
          ``"probability"`` of the true label, the paper's success probability. They favour the
          least overconfident member: calibrate members first, for example by
          :class:`~sklearn.calibration.CalibratedClassifierCV`.
        - A function of true and given labels to one number per row, higher is better, or
          ``("predict_proba", function)`` of true labels and probabilities.

    exchange_rate : float, default=None
        What one unit of `costs` is worth in the unit of `quality`. Quality minus that is then
        maximised within the budget. None is 1 where `quality` is a cost matrix and there is no
        budget, so that the sum of both, errors and prices, is least; 0 otherwise. Raising it
        leaves more of a budget unspent.

    reg_lambda : float, default=0.0
        Lambda: how many standard deviations of its estimation error (measured out of
        sample) are taken off a member's estimate. Raising it prefers members that are predicted
        reliably.

    policy : {"online", "batch"}, default="online"
        ``"online"`` decides each row alone by the price learned in `fit`; the budget
        holds on average. ``"batch"`` solves the assignment for the rows given; the
        budget is a hard cap on them.

    abstain_cost : float, default=None
        What it costs, in units of `quality`, to abstain from a row, so that a person answers it.
        The row counts as the best quality of any answer in `fit` minus this, and costs no more
        than `routing_cost_`. `predict` marks the row by `abstain_label`, `predict_proba` by NaN.
        None never abstains. If it is higher, fewer rows abstain.

    abstain_label : object, default=None
        What `predict` gives for a row that abstains; no class may have this label. None takes
        ``"abstain"`` where labels are texts and -1 where they are numbers.

    routing_cost : float, default=None
        Cost of deciding on one row (embedding transformer and estimate), in the unit of
        `costs`; part of the budget. None measures it with ``costs="time"`` and is 0
        otherwise.

    cv : int, splitter or iterable of splits, default=5
        Folds that make the members' answers and the quality estimates out-of-sample. An
        int is stratified by class for the members, and shuffled with a fixed seed for the
        estimates; a splitter or a list of (train, test) serves both. ``groups`` reach a
        splitter through metadata routing.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        Names of the members that `route` indexes; with an `abstain_cost` ``"abstain"`` as the
        last one.

    estimators_ : list of classifiers
        The fitted members, in this order.

    costs_ : ndarray of shape (n_choices,)
        Cost of each member's call; 0 for abstaining.

    routing_cost_ : float
        What each row pays before its member is known: `routing_cost`, measured where
        ``costs="time"``, and the member that embeds.

    quality_estimator_ : estimator
        Fitted on all rows.

    embedding_ : transformer or None
        Fitted on all rows.

    min_budget_, quality_std_, price_path_, price_, mean_quality_, abstain_quality_
        As of :class:`BudgetRouter`, where a log is what members answered out of fold.

    validation_quality_, validation_cost_, validation_quality_se_, validation_cost_se_ : float
        As there.

    n_features_in_, feature_names_in_ : int, ndarray of shape (`n_features_in_`,)
        Number and names of the features seen during `fit`, where X has them.

    See Also
    --------
    BudgetRouter : The same policy from logged outcomes, without classifiers.
    DummyRouterClassifier : Single best member, random routing, oracle.

    Notes
    -----
    There is no `random_state`: set that of the members and of a `quality_estimator` of your own.

    `budget`, `policy`, `reg_lambda`, `costs` and `exchange_rate` can be changed after `fit`,
    without a new fit: estimates and quality of the rows of `fit` are kept, and the dual price is
    computed again.

    ``fit(X, y, sample_weight=...)`` fits every member with the weights, and price, validation
    and mean quality count rows by them. With scikit-learn's metadata routing each member says
    whether it takes them. They reach a `quality_estimator` whose `fit` takes ``sample_weight``,
    as the default does, unless it has said that it does not request them; the estimates of
    another one, such as a pipeline, are not weighted, nor is an `embedding` that is a transformer.
    Members and a `quality_estimator` of the user get the weights as they are given. What the
    router itself learns does not depend on their unit, and a row of weight 0 is as good as absent.

    Rows that are worth exactly the price are divided, so that all of the budget is used: which
    way such a row goes is drawn from a hash of the row and of how often it came before in the
    call, or of its ``request_id``.

    References
    ----------
    .. [1] D. Ding, B. Xu, L. V. S. Lakshmanan, "OCCAM: Towards Cost-Efficient and
       Accuracy-Aware Classification Inference", ICLR 2025.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn.model_selection import train_test_split
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skroute.routing import OccamRouterClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> router = OccamRouterClassifier(
    ...     [("bayes", GaussianNB()), ("forest", RandomForestClassifier(30, random_state=0))],
    ...     costs={"bayes": 1, "forest": 10},
    ...     budget=5,
    ... )
    >>> router = router.fit(X_train, y_train)
    >>> y_pred, route, cost = router.predict_routed(X_test)
    >>> bool(4 < cost.mean() < 6)
    True
    >>> router.score(X_test, y_test) > router.named_estimators_.bayes.score(X_test, y_test) + 0.04
    True
    """

    _parameter_constraints: dict = {
        **Occam._parameter_constraints,
        "abstain_label": "no_validation",
        "quality": [StrOptions(set(OF_LABELS)), dict, tuple, callable, "array-like"],
    }

    def __init__(
        self,
        estimators,
        *,
        costs,
        budget=None,
        quality_estimator=None,
        embedding=None,
        quality="accuracy",
        exchange_rate=None,
        reg_lambda=0.0,
        policy="online",
        abstain_cost=None,
        abstain_label=None,
        routing_cost=None,
        cv=5,
        n_jobs=None,
    ):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.quality_estimator = quality_estimator
        self.embedding = embedding
        self.quality = quality
        self.exchange_rate = exchange_rate
        self.reg_lambda = reg_lambda
        self.policy = policy
        self.abstain_cost = abstain_cost
        self.abstain_label = abstain_label
        self.routing_cost = routing_cost
        self.cv = cv
        self.n_jobs = n_jobs


class OccamRouterRegressor(Occam, RegressorMixin, BaseEstimator):
    r"""Answer each row with the regressor that is worth its cost for that row (OCCAM).

    :class:`OccamRouterClassifier` for numbers: the quality of an answer is minus its loss. All
    that is not listed here is as it is there.

    Parameters
    ----------
    estimators : list of (str, regressor)
        The members, as in :class:`OccamRouterClassifier`.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`. Raising it sends more rows to more
        expensive members.

    quality_estimator : multi-output regressor, default=None
        Predicts the members' quality from the embedding.

    embedding : None or transformer, default=None
        What the quality estimator sees: X itself, or the output of a transformer, which is
        cloned and fitted.

    quality : str or callable, default="squared_error"
        What an answer is worth: minus this loss, one of "squared_error", "absolute_error",
        "squared_log_error", "absolute_percentage_error", "poisson_deviance" and
        "gamma_deviance"; or a function of true and answered numbers to one number per row, higher
        is better. ``score`` stays R².

    exchange_rate : float, default=None
        What one unit of `costs` is worth in the unit of `quality`. Quality minus that is then
        maximised within the budget. None is 0. Raising it leaves more of a budget unspent.

    reg_lambda : float, default=0.0
        How many standard deviations of its estimation error are taken off a member's estimate.
        Raising it prefers members whose losses are predicted reliably.

    policy : {"online", "batch"}, default="online"
        Each row alone, the budget on average; or the rows of a call together, under a hard cap.

    abstain_cost : float, default=None
        What it costs, in units of `quality`, to abstain from a row, so that a person answers it.
        `predict` marks the row by NaN. None never abstains. If it is higher, fewer rows abstain.

    routing_cost : float, default=None
        Cost of deciding on one row. None measures it with ``costs="time"`` and is 0 otherwise.

    cv : int, splitter or iterable of splits, default=5
        Folds that make the members' answers and the quality estimates out-of-sample. An int is
        that many consecutive folds for the members: where rows are sorted, give a shuffled
        splitter.

    n_jobs : int, default=None
        Members fitted in parallel.

    See Also
    --------
    OccamRouterClassifier : The same for labels, with all attributes.
    DummyRouterRegressor : Single best member, random routing, oracle.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from skroute.routing import OccamRouterRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(600, 1))
    >>> y = np.where(X[:, 0] > 0, np.sin(9 * X[:, 0]), X[:, 0])
    >>> members = [("line", LinearRegression()), ("tree", DecisionTreeRegressor(max_depth=6))]
    >>> router = OccamRouterRegressor(members, costs=[1, 10], budget=6).fit(X[:400], y[:400])
    >>> bool(router.predict_cost(X[400:]).mean() < 7)
    True
    >>> router.score(X[400:], y[400:]) > 0.9
    True
    """

    _target_kinds = (Numbers,)
    _parameter_constraints: dict = {
        **Occam._parameter_constraints,
        "embedding": [HasMethods(["fit", "transform"]), None],
        "quality": [StrOptions(set(OF_NUMBERS)), callable],
    }

    def __init__(
        self,
        estimators,
        *,
        costs,
        budget=None,
        quality_estimator=None,
        embedding=None,
        quality="squared_error",
        exchange_rate=None,
        reg_lambda=0.0,
        policy="online",
        abstain_cost=None,
        routing_cost=None,
        cv=5,
        n_jobs=None,
    ):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.quality_estimator = quality_estimator
        self.embedding = embedding
        self.quality = quality
        self.exchange_rate = exchange_rate
        self.reg_lambda = reg_lambda
        self.policy = policy
        self.abstain_cost = abstain_cost
        self.routing_cost = routing_cost
        self.cv = cv
        self.n_jobs = n_jobs
