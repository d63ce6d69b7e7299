"""OCCAM: which classifier answers, per query."""

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_array, get_tags
from sklearn.utils.validation import check_is_fitted

from skroute.base import check_rows, note_failure
from skroute.routing._base import BaseRouter
from skroute.routing._budget_router import BudgetRouter, check_policy
from skroute.routing._embedding import call_with_layer, check_layer, reads_tensors
from skroute.routing._fit_members import METHOD_OF_RESPONSE, response_quality
from skroute.routing._stream import StreamMixin
from skroute.utils._compat import HasMethods, Interval, Real, StrOptions, num_samples
from skroute.utils._tensors import holds_numbers
from skroute.utils._timing import seconds_per_sample


class OccamRouterClassifier(StreamMixin, BaseRouter):
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
        unlimited. Raising it sends more rows to dearer members.

    accuracy_estimator : multi-output regressor, default=None
        Predicts the members' success from the embedding. None takes OCCAM's
        :class:`~skroute.quality.BaggedNeighborsRegressor` on features scaled to [0, 1].

    embedding : None, transformer or str, default=None
        What the accuracy estimator sees: X itself; the output of a transformer, which is
        cloned and fitted; or ``predict_proba`` of the member of that name. That member is
        then called on every row: its cost is charged to every row and deducted from the
        budget, and choosing it costs nothing more.

    embedding_layer : str, default=None
        With the name of a net as `embedding` (skorch, or anything with a ``module_``): the
        layer whose output is the embedding instead of ``predict_proba``, as a path of
        attributes from its module, for example ``"features.3"``. It is computed in the pass
        that answers, so that it costs nothing more. Unless the net is frozen, its layer is
        fitted on the rows that it then embeds in `fit`; a
        :class:`~sklearn.frozen.FrozenEstimator` and new rows give the accuracy estimator
        the embeddings that it will meet later.

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
        Whether to leave out members that are dearer and on average no better than
        another.

    routing_cost : float, default=None
        Cost of deciding on one row (embedding transformer and estimate), in the unit of
        `costs`; part of the budget. None measures it with ``costs="time"`` and is 0
        otherwise.

    cv : int, splitter or iterable, default=5
        Folds that make the members' answers and the accuracy estimates out-of-sample.

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

    router_ : BudgetRouter
        The fitted policy: estimates, price and path. Its costs are what choosing a member
        adds to what every row pays.

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
    Under the online policy a row that is worth exactly the price goes to the cheaper
    member, so that budgets hold; where estimates take few distinct values the mean cost
    can stay below the budget.

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

    _acts_at_once = ("budget", "policy", "objective")
    _parameter_constraints: dict = {
        **BaseRouter._parameter_constraints,
        "response": [StrOptions({"proba", "predict"})],
        "cv": ["cv_object"],
        "accuracy_estimator": [HasMethods(["fit", "predict"]), None],
        "embedding": [HasMethods(["fit", "transform"]), str, None],
        "embedding_layer": [str, None],
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
        embedding_layer=None,
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
        self.embedding_layer = embedding_layer
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

    def _check(self, X, members):
        check_policy(self.policy, self.objective)
        if isinstance(self.embedding, str):
            if self.embedding not in members:
                raise ValueError(
                    f"embedding={self.embedding!r} is not the name of a member; the members are "
                    f"{list(members)!r}. It may also be a transformer or None."
                )
            if not hasattr(members[self.embedding], "predict_proba"):
                raise ValueError(
                    f"embedding={self.embedding!r} needs predict_proba, which that member "
                    f"({members[self.embedding]!r}) does not have."
                )
        if self.embedding_layer is not None:
            if not isinstance(self.embedding, str):
                raise ValueError(
                    f"embedding_layer={self.embedding_layer!r} is a layer of a member: embedding "
                    f"must be the name of one of {list(members)!r}, got {self.embedding!r}."
                )
            check_layer(self.embedding, members[self.embedding], self.embedding_layer)
        self._check_rows_are_read(X)

    def _check_rows_are_read(self, X):
        if self.embedding is not None or self.accuracy_estimator is not None:
            return
        advice = (
            "Give the name of a member or a transformer as embedding, or an accuracy_estimator "
            "that reads such rows."
        )
        shape = tuple(getattr(X, "shape", ()))
        if len(shape) > 2:
            raise ValueError(
                "The default accuracy_estimator reads rows of numbers, but X has the shape "
                f"{shape}. {advice}"
            )
        if holds_numbers(X):
            return
        try:
            check_array(_safe_indexing(X, slice(0, 100)), ensure_all_finite=False)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(
                f"The default accuracy_estimator reads rows of numbers, and X has others. {advice} "
                f"Reading X said: {error}"
            ) from error

    def _fixed_cost(self, costs, names):
        """What every row pays whoever answers."""
        fixed = 0.0 if self.routing_cost is None else float(self.routing_cost)
        if isinstance(self.embedding, str):
            fixed += float(costs[names.index(self.embedding)])
        return fixed

    def _least_cost(self, costs, names):
        return self._fixed_cost(costs, names) + float(self._call_costs(costs, names).min())

    def _call_costs(self, costs, names):
        """What choosing each member adds to the fixed cost."""
        added = np.array(costs, dtype=np.float64)
        if isinstance(self.embedding, str):
            added[names.index(self.embedding)] = 0.0
        return added

    def _learn(self, X, target, answers):
        names, responses = answers.names, answers.responses
        quality = response_quality(target, responses)
        self.embedding_ = None
        features = X
        self._embedder = None
        if isinstance(self.embedding, str):
            at = names.index(self.embedding)
            self._embedder = (names[at], self.estimators_[at])
            out_of_fold = self.response == "proba" and self.embedding_layer is None
            features = responses[at] if out_of_fold else self._embed(X)[0]
        elif self.embedding is not None:
            self.embedding_ = clone(self.embedding)
            with note_failure("embedding", num_samples(X), "fit"):
                features = self.embedding_.fit_transform(X, self.classes_[target])
        router = BudgetRouter(
            self.accuracy_estimator,
            costs=dict(zip(names, self._call_costs(self.costs_, names))),
            budget=self.budget,
            reg_lambda=self.reg_lambda,
            policy=self.policy,
            objective=self.objective,
            drop_dominated=self.drop_dominated,
            routing_cost=self._fixed_cost(self.costs_, names),
            cv=answers.folds,
            n_jobs=self.n_jobs,
        )
        router.fit(features, quality)
        if isinstance(self.costs, str) and self.routing_cost is None:
            self._charge_measured_routing(router, X if self._embedder is None else features)
        kept = [names.index(name) for name in router.choices_]
        self.router_ = router
        self.mean_quality_ = router.mean_quality_
        self.costs_ = self.costs_[kept]
        self.estimators_ = [self.estimators_[i] for i in kept]
        self.member_names_ = list(router.choices_)
        self.choices_ = list(router.choices_)

    def _least(self):
        return self.router_.min_budget_

    def _charge_measured_routing(self, router, rows):
        """With measured time, what routing itself takes is part of the cost.

        A member that embeds is charged as a member: `rows` are embedded by it already.
        """

        def decide(rows):
            features = rows if self.embedding_ is None else self.embedding_.transform(rows)
            router._plan(features, np.inf)

        seconds = seconds_per_sample(decide, rows)
        router.set_params(routing_cost=router.routing_cost + seconds)
        router._check_affordable(self._effective_budget(None), router.costs_)

    def _embed(self, X):
        """What the accuracy estimator sees, and what of it answers can reuse."""
        if self._embedder is not None:
            name, member = self._embedder
            layer = self.embedding_layer

            def call(rows):
                return self._target.call("predict_proba", name, member, rows)

            if layer is not None:
                as_tensor = reads_tensors(self.accuracy_estimator)
                return call_with_layer(name, member, layer, call, X, as_tensor=as_tensor)[::-1]
            proba = call(X)
            return proba, proba
        if self.embedding_ is not None:
            with note_failure("embedding", num_samples(X), "transform"):
                return self.embedding_.transform(X), None
        return X, None

    def _plan(self, X, budget):
        features, proba = self._embed(X)
        # By the parameters of now, as elsewhere: the inner router has those of fit.
        plan = self.router_._plan_by(self.policy, self.objective, features, budget)
        return plan._replace(state=self._embedded_state(proba))

    def _embedded_state(self, proba):
        """What the member that embeds has answered already."""
        if proba is None or self._embedder[0] not in self.choices_:
            return None
        choice = self.choices_.index(self._embedder[0])
        return {(choice, "predict_proba"): proba, (choice, "predict"): proba.argmax(axis=1)}

    def _stream_policy(self, budget):
        return self.router_._stream_policy(budget)._replace(look=self._look)

    def _look(self, x):
        features, proba = self._embed(x)
        state = self._embedded_state(proba)
        if state is None:
            return features, None, state
        known = {
            choice: self.classes_[answer[0]]
            for (choice, method), answer in state.items()
            if method == "predict"
        }
        return features, known, state

    def predict_quality(self, X):
        """Estimated success probability of each member, before the penalty.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_samples, n_choices)
            Columns in the order of ``choices_``.
        """
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        return self.router_.predict_quality(self._embed(X)[0])

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
