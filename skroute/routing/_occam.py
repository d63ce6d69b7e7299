"""OCCAM: which classifier answers, per query."""

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import check_is_fitted

from skroute.assignment._decide import check_policy
from skroute.base import check_affordable, check_budget, check_costs, note_failure
from skroute.metrics import pareto_front
from skroute.routing._base import BaseRouter
from skroute.routing._draws import tie_draws
from skroute.routing._embedding import call_with_layer, check_layer, reads_tensors
from skroute.routing._fit_members import METHOD_OF_RESPONSE, response_quality
from skroute.routing._priced import LoggedMixin, check_lambda, fit_policy
from skroute.routing._stream import Look, Trade
from skroute.routing._values import check_default_reads, default_accuracy_estimator, folds_of
from skroute.utils._compat import HasMethods, Interval, Real, StrOptions, num_samples
from skroute.utils._timing import seconds_per_sample

# Rows whose layer is held at once when deciding: one row of a convolution can be a megabyte.
_BLOCK = 1024


class OccamRouterClassifier(LoggedMixin, BaseRouter):
    r"""Answer each row with the classifier that is worth its cost for that row.

    `fit` fits the members and records how each does on rows that it has not seen: the
    success probability :math:`SP_i(x) = f_i(x)[y]`. An accuracy estimator learns to
    predict it for new rows. A row then goes to the member with the best
    :math:`\widehat{SP}_i(x) - \lambda \sigma_i - p\, c_i`, where the price :math:`p` is
    learned so that the mean cost meets the budget. Only that member is called.

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
        unlimited. Raising it sends more rows to more expensive members.

    accuracy_estimator : multi-output regressor, default=None
        Predicts the members' success from the embedding. None takes
        :class:`~skroute.quality.QualityRegressor`. The paper's own is
        :class:`~skroute.quality.BaggedNeighborsRegressor`, on features scaled to [0, 1].

    embedding : None, transformer, str or (str, str), default=None
        What the accuracy estimator sees: X itself; the output of a transformer, which is
        cloned and fitted; or ``predict_proba`` of the member of that name, out of fold in
        `fit`. That member is then called on every row: its cost is charged to every row and
        deducted from the budget, and choosing it costs nothing more. Unless it answers
        otherwise than by its largest probability, which `fit` checks on held-out rows, as
        nets and classifiers with a decision threshold do: then it is asked for its answer,
        and paid, a second time where it is chosen.

        The name of a net (skorch, or anything with a ``module_``) and a layer of it, for
        example ``("cnn", "features.3")``, a path of attributes from its module: the output
        of that layer instead of ``predict_proba``. It is computed in the pass that answers,
        so that it costs nothing more. The net must be a
        :class:`~sklearn.frozen.FrozenEstimator` fitted on other rows than those given to
        `fit`, of which it would know the labels. In `fit` the layer of all rows is held in
        memory, in float32; prefer a pooled layer to a wide convolution.

    response : {"predict", "proba"}, default="predict"
        Success as whether the answer is right, or as the probability that the member gives
        to the true label. Probabilities are finer, but only comparable when the members
        are calibrated alike: a forest that is right with 0.7 looks worse than a naive
        Bayes that is right with 1.0.

    reg_lambda : float, default=0.0
        Lambda: how many standard deviations of its estimation error (measured out of
        sample) a member is docked. Raising it prefers members that are predicted
        reliably.

    policy : {"online", "batch"}, default="online"
        ``"online"`` decides each row alone by the price learned in `fit`; the budget
        holds on average. ``"batch"`` solves the assignment for the rows given; the
        budget is a hard cap on them.

    objective : {"mean", "min"}, default="mean"
        With ``policy="batch"``: maximise the mean estimated success or the smallest one.

    drop_dominated : bool, default=False
        Whether to leave out members that are more expensive and on average no better than
        another.

    routing_cost : float, default=None
        Cost of deciding on one row (embedding transformer and estimate), in the unit of
        `costs`; part of the budget. None measures it with ``costs="time"`` and is 0
        otherwise.

    cv : int, splitter or iterable of splits, default=5
        Folds that make the members' answers and the accuracy estimates out-of-sample. An
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
        Names of the members that `route` indexes.

    estimators_ : list of classifiers
        The fitted members, in the order of ``choices_``.

    costs_ : ndarray of shape (n_choices,)
        Cost of each member's call.

    min_budget_ : float
        The smallest feasible budget: the cheapest member and what every row pays for routing.

    routing_cost_ : float
        What each row pays before its member is known: `routing_cost`, measured where
        ``costs="time"``, and the member that embeds.

    accuracy_estimator_ : estimator
        Fitted on all rows.

    quality_std_ : ndarray of shape (n_choices,)
        Sigma: out-of-sample standard deviation of the estimation error.

    price_path_ : AssignmentPath
        Price for every budget, `routing_cost_` not included.

    price_ : float
        Price at `budget`; infinite where it is the smallest feasible one.

    validation_quality_ : float
        Mean quality of the cross-fitted decisions at `budget`, each at a price that was
        learned without the row's fold.

    validation_cost_ : float
        What they cost on average.

    validation_quality_se_, validation_cost_se_ : float
        Standard errors of the two, as estimates for new rows.

    embedding_ : transformer or None
        Fitted on all rows.

    mean_quality_ : ndarray of shape (n_choices,)
        Mean out-of-sample success of each member.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    BudgetRouter : The same policy from logged outcomes, without classifiers.
    SingleBestClassifier, RandomRouterClassifier, OracleRouterClassifier : Baselines.

    Notes
    -----
    `reg_lambda` and `costs` act at once on a fitted router, as `budget`, `policy` and
    `objective` do: estimates and quality of the rows of `fit` are kept, and the price is
    solved for anew. Members left out by `drop_dominated` stay out.

    Rows that are worth exactly the price are mixed, so that all of the budget is used: which
    way such a row goes is drawn from a hash of the row and of how often it came before in the
    call.

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
    ...     [("bayes", GaussianNB()), ("forest", RandomForestClassifier(random_state=0))],
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

    _acts_at_once = ("budget", "policy", "objective", "reg_lambda", "costs")
    _parameter_constraints: dict = {
        **BaseRouter._parameter_constraints,
        "response": [StrOptions({"proba", "predict"})],
        "cv": ["cv_object"],
        "accuracy_estimator": [HasMethods(["fit", "predict"]), None],
        "embedding": [HasMethods(["fit", "transform"]), str, tuple, None],
        "reg_lambda": [Interval(Real, 0, None, closed="left")],
        "policy": [StrOptions({"online", "batch"})],
        "objective": [StrOptions({"mean", "min"})],
        "drop_dominated": ["boolean"],
        "routing_cost": [Interval(Real, 0, None, closed="left"), None],
    }

    def __init__(
        self,
        estimators,
        *,
        costs,
        budget=None,
        accuracy_estimator=None,
        embedding=None,
        response="predict",
        reg_lambda=0.0,
        policy="online",
        objective="mean",
        drop_dominated=False,
        routing_cost=None,
        cv=5,
        n_jobs=None,
    ):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.accuracy_estimator = accuracy_estimator
        self.embedding = embedding
        self.response = response
        self.reg_lambda = reg_lambda
        self.policy = policy
        self.objective = objective
        self.drop_dominated = drop_dominated
        self.routing_cost = routing_cost
        self.cv = cv
        self.n_jobs = n_jobs

    def _asks(self):
        return METHOD_OF_RESPONSE[self.response]

    def _asks_member(self, name):
        # Of the member that embeds both are needed: what it says, and what it answers.
        return "both" if name == self._named_embedding()[0] else self._asks()

    def _named_embedding(self):
        """The name of the member that embeds and of its layer; None where there is none."""
        if isinstance(self.embedding, tuple):
            return self.embedding
        return (self.embedding if isinstance(self.embedding, str) else None), None

    def _check(self, X, members):
        check_policy(self.policy, self.objective)
        if isinstance(self.embedding, (str, tuple)):
            pair = self.embedding if isinstance(self.embedding, tuple) else (self.embedding, "")
            if len(pair) != 2 or pair[0] not in members or not isinstance(pair[1], str):
                raise ValueError(
                    f"embedding={self.embedding!r} is not the name of a member, or of a member "
                    f"and a layer of it; the members are {list(members)!r}. It may also be a "
                    "transformer or None."
                )
            name, layer = self._named_embedding()
            if not hasattr(members[name], "predict_proba"):
                raise ValueError(
                    f"embedding={self.embedding!r} needs predict_proba, which that member "
                    f"({members[name]!r}) does not have."
                )
            if layer is not None:
                check_layer(name, members[name], layer)
        if self.embedding is None and self.accuracy_estimator is None:
            check_default_reads(
                X,
                "Give the name of a member or a transformer as embedding, or an "
                "accuracy_estimator that reads such rows.",
            )

    def _split_costs(self, costs, names, embedder, answered=None):
        """What every row pays whoever answers, and what choosing each member adds."""
        deciding, added = float(self.routing_cost or 0.0), np.array(costs, dtype=np.float64)
        if embedder is not None:
            at = names.index(embedder)
            deciding += added[at]
            # It is asked once, unless its answers are not what its probabilities say.
            if self._answered if answered is None else answered:
                added[at] = 0.0
        return deciding, added

    def _least_cost(self, costs, names):
        embedder, _ = self._named_embedding()
        deciding, added = self._split_costs(costs, names, embedder, answered=True)
        return deciding + float(added.min())

    def _learn(self, X, target, answers):
        names, responses = answers.names, list(answers.responses)
        self.embedding_, self._embedder = None, None
        features = X
        embedder, layer = self._named_embedding()
        if embedder is not None:
            at = names.index(embedder)
            proba, labels = responses[at][:, :-1], responses[at][:, -1].astype(np.int64)
            self._embedder = (names[at], self.estimators_[at])
            self._answered = bool((proba.argmax(axis=1) == labels).all())
            responses[at] = labels if self.response == "predict" else proba
            features = proba
            if layer is not None:
                # A layer of a frozen net, which has not seen the rows. One row alone first:
                # where rows are not the first axis of the layer, it gives another number.
                self._embed(_safe_indexing(X, [0]))
                features = self._embed(X)[0]
        elif self.embedding is not None:
            self.embedding_ = clone(self.embedding)
            with note_failure("embedding", num_samples(X), "fit"):
                features = self.embedding_.fit_transform(X, self.classes_[target])
        quality = response_quality(target, responses)
        deciding, added = self._split_costs(self._costs_of_fit, names, embedder)
        check_affordable(check_budget(self.budget), deciding + float(added.min()))
        kept = np.arange(len(names))
        if self.drop_dominated:
            kept = np.sort(pareto_front(added, quality.mean(axis=0)))
        estimator = self.accuracy_estimator
        policy = fit_policy(
            default_accuracy_estimator() if estimator is None else estimator,
            features,
            quality[:, kept],
            added[kept],
            folds=folds_of(answers.folds, features),
            task=None,
            reg_lambda=self.reg_lambda,
            deciding=deciding,
            n_jobs=self.n_jobs,
        )
        self._routing_seconds = 0.0
        if isinstance(self.costs, str) and self.routing_cost is None:
            # A member that embeds is charged as a member: its rows are embedded already.
            rows = X if self._embedder is None else features
            self._routing_seconds = seconds_per_sample(self._timed_decision(policy), rows)
            policy = policy.solved(self.reg_lambda, deciding=deciding + self._routing_seconds)
        check_affordable(check_budget(self.budget), policy.least)
        self._priced, self._all_names = policy, names
        self._measured = isinstance(self.costs, str)
        self._kept = kept
        self.estimators_ = [self.estimators_[i] for i in kept]
        self.member_names_ = [names[i] for i in kept]
        self.choices_ = list(self.member_names_)
        policy.warn(self.choices_, check_budget(self.budget))

    def _timed_decision(self, policy):
        def decide(rows):
            features = rows if self.embedding_ is None else self.embedding_.transform(rows)
            policy.decide(policy.values(features), policy.planned, np.inf, policy="online")

        return decide

    @property
    def routing_cost_(self):
        """What each row pays before its member is known: deciding, and who embeds it."""
        return self._policy().deciding

    @property
    def costs_(self):
        """Cost of each member's call, ndarray of shape (n_choices,)."""
        return self._now()[self._kept]

    @costs_.setter
    def costs_(self, costs):
        self._costs_of_fit, self._kept = costs, np.arange(len(costs))

    def _now(self):
        """The cost of every member of `fit`, by the constructor's `costs` of now."""
        if not isinstance(self.costs, str):
            return check_costs(self.costs, self._all_names)
        if self._measured:
            return self._costs_of_fit
        raise ValueError(
            f"costs={self.costs!r} was set after fit, which measures them: fit again, or give "
            "the costs."
        )

    def _policy(self):
        check_is_fitted(self)
        embedder = self._embedder and self._embedder[0]
        deciding, added = self._split_costs(self._now(), self._all_names, embedder)
        if isinstance(self.costs, str):
            deciding += self._routing_seconds
        check_lambda(self.reg_lambda)
        return self._priced.solved(self.reg_lambda, added[self._kept], deciding)

    def _embed(self, X):
        """What the accuracy estimator sees, and the probabilities that came with it."""
        if self._embedder is not None:
            name, member = self._embedder

            def call(rows):
                return self._target.call("predict_proba", name, member, rows)

            if (layer := self._named_embedding()[1]) is not None:
                as_tensor = reads_tensors(self.accuracy_estimator)
                return call_with_layer(name, member, layer, call, X, as_tensor=as_tensor)[::-1]
            proba = call(X)
            return proba, proba
        if self.embedding_ is not None:
            with note_failure("embedding", num_samples(X), "transform"):
                return self.embedding_.transform(X), None
        return X, None

    def _estimates_and_state(self, X, of):
        """What is made of the features of each row, and the answers that came with them."""
        if self._named_embedding()[1] is None:
            features, proba = self._embed(X)
            return of(features), self._state(proba)
        estimates, probas = [], []
        for start in range(0, num_samples(X), _BLOCK):
            stop = min(start + _BLOCK, num_samples(X))
            features, proba = self._embed(_safe_indexing(X, np.arange(start, stop)))
            estimates.append(of(features))
            probas.append(proba)
        if isinstance(estimates[0], tuple):
            found = tuple(map(np.concatenate, zip(*estimates)))
        else:
            found = np.concatenate(estimates)
        return found, self._state(np.concatenate(probas))

    def _estimates(self, X, of):
        return self._estimates_and_state(X, of)[0]

    def _plan(self, X, budget):
        policy = self._policy()
        estimates, state = self._estimates_and_state(X, policy.estimates)
        plan = policy.decide(
            estimates - policy.docked,
            policy.planned,
            budget,
            policy=self.policy,
            objective=self.objective,
            draw=tie_draws(X),
        )
        return plan._replace(state=state)

    def _state(self, proba):
        """What the member that embeds has answered already, if that is its answer."""
        if proba is None or not self._answered or self._embedder[0] not in self.choices_:
            return None
        choice = self.choices_.index(self._embedder[0])
        return {(choice, "predict_proba"): proba, (choice, "predict"): proba.argmax(axis=1)}

    def _trade(self, budget):
        return Trade(self._policy())

    def _look(self, x, trade):
        features, proba = self._embed(x)
        state = self._state(proba)
        answered = {
            choice: self.classes_[answer[0]]
            for (choice, method), answer in (state or {}).items()
            if method == "predict"
        }
        return Look(features, answered, state)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if self.embedding is None:
            # The default accuracy estimator reads X itself.
            reader = self.accuracy_estimator
            known = hasattr(reader, "__sklearn_tags__")
            reader_tags = get_tags(reader).input_tags if known else None
            tags.input_tags.sparse &= reader_tags is not None and reader_tags.sparse
            tags.input_tags.allow_nan &= reader_tags is not None and reader_tags.allow_nan
        return tags
