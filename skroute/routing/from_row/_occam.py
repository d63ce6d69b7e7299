"""OCCAM: a member is chosen for each row by its estimated quality and its cost."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from skroute.base import check_affordable, check_budget, note_failure
from skroute.base._calls import ALLOWED, EXCLUDE, REQUEST_ID
from skroute.base._inspection import may_take_missing, names_best_score
from skroute.metrics._objectives import OF_LABELS, OF_NUMBERS, asks_of
from skroute.quality import QualityRegressor
from skroute.routing.parts._estimates import folds_of, with_weights
from skroute.routing.parts._learn import learn_policy, warn_of_fit
from skroute.routing.parts._limits import (
    CAPACITIES,
    LIMITS,
    check_limits,
    limits_now,
    read_amounts,
)
from skroute.routing.parts._log import Log, check_row_costs, kept_choices, with_last
from skroute.routing.parts._member_router import (
    AMOUNT,
    MemberRouter,
    least_prices,
    objective_of,
)
from skroute.routing.parts._members import members_by_name
from skroute.routing.parts._policy import check_lambda
from skroute.routing.parts._priced_router import (
    DecisionInputs,
    LimitedRouter,
    estimate_once,
)
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


class SplitCosts(NamedTuple):
    """Cost of deciding on a row, and further costs of the members.

    Attributes
    ----------
    deciding : float
        Cost of deciding, which each row pays: the sum of `routing_cost` and the cost of
        the member that embeds.
    added : ndarray of shape (n_members,)
        Further cost of each member if it is chosen.
    """

    deciding: float
    added: np.ndarray


# End of the error for rows that the default quality estimator cannot read.
_ADVICE_ON_ROWS = (
    "Give the name of a member or a transformer as embedding, or a quality_estimator "
    "that reads such rows."
)


class Occam(LimitedRouter, MemberRouter):
    """Base of the OCCAM routers for labels and for numbers.

    The quality of each member is estimated for each row, from the row itself or from an
    embedding. A fitted router has these private attributes:

    ``_learned`` : Policy
        The policy as `fit` has learned it, at the parameters of `fit`.
    ``_embedder`` : int or None
        Position of the member that embeds. None if no member does.
    ``_embedder_answers`` : bool
        True if the answer of the member that embeds is its most probable label. The
        call that embeds a row then also answers the row, so that choosing this member
        costs nothing more.
    ``_routing_seconds`` : float
        Measured time of deciding on a row. 0 if it is not measured.
    """

    _parameter_constraints: dict = {
        **MemberRouter._parameter_constraints,
        "quality_estimator": [HasMethods(["fit", "predict"]), None],
        "embedding": [HasMethods(["fit", "transform"]), str, None],
        "exchange_rate": AMOUNT,
        "reg_lambda": [Interval(Real, 0, None, closed="left")],
        "policy": [StrOptions({"online", "batch"})],
        "abstain_cost": AMOUNT,
        "routing_cost": AMOUNT,
        "amounts": [Mapping, None],
        "limits": [Mapping, None],
        "capacities": [Mapping, None],
    }
    call_parameters = (EXCLUDE, ALLOWED, REQUEST_ID, LIMITS, CAPACITIES)

    # Fit ------------------------------------------------------------------------------

    def _fit(self, X, y, *, task, **params):
        """Fit and ask the members, and learn which of them answers a row.

        Parameters are those of `CostAwareMixin._fit`. `params` are `sample_weight` and
        metadata for the `fit` of members.
        """
        members = members_by_name(self.estimators, self._validate_names)
        names = list(members)
        check_embedding(self.embedding, members)
        # Here the amounts serve for checks alone, on which the number of rows has no
        # effect. `_read_amounts` reads them again for the policy.
        amounts = read_amounts(self.amounts, names, n_rows=1, named=True)
        check_limits(self.limits, self.capacities, amounts=amounts, choices=names)
        method = asks_of(self.quality)
        embedder = None
        if isinstance(self.embedding, str):
            embedder = names.index(self.embedding)

        def methods_of(name, member, target):
            """Return the methods by which a member is asked about training rows."""
            if name == self.embedding:
                # The probabilities of this member are the embedding. Its predictions
                # need not be the most probable labels.
                return ["predict_proba", "predict"]
            return [method]

        def cheapest_plan(costs):
            """Return the mean cost of the cheapest plan, deciding included."""
            # It is not known yet if the call that embeds a row also answers the row.
            # The mean cost is lowest if it does: the member is then paid once.
            split = split_costs(
                costs,
                routing_cost=self.routing_cost,
                embedder=embedder,
                embedder_answers=True,
            )
            # In the cheapest plan all rows abstain, if they may. This costs nothing
            # more.
            cheapest = 0.0 if self.abstain_cost is not None else split.added.min()
            return split.deciding + cheapest

        advice = None
        if self.embedding is None and self.quality_estimator is None:
            advice = _ADVICE_ON_ROWS
        X, answers = self._fit_members(
            members,
            X,
            y,
            params=params,
            task=task,
            method=method,
            methods_of=methods_of,
            cheapest_plan=cheapest_plan,
            advice_on_rows=advice,
        )
        with task.step("learn routing"):
            self._learn(X, answers)

    def _learn(self, X, answers):
        """Learn the policy from out-of-fold answers of the members (`OutOfFold`).

        Sets ``choices_``, ``abstain_quality_``, ``_learned``, ``_routing_seconds`` and
        the attributes of ``_fit_embedding``.
        """
        features = self._fit_embedding(X, answers)
        log = self._log_of(answers)
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
            memory=self.memory,
            n_jobs=self.n_jobs,
            fit_params=fit_params,
        )
        self._routing_seconds = 0.0  # not timed
        # The only text that `costs` may be is "time". Deciding is then timed as well,
        # unless `routing_cost` is given.
        if isinstance(self.costs, str) and self.routing_cost is None:
            self._routing_seconds = self._time_decisions(policy, X)
        self._learned = replace(policy, amounts=self._read_amounts(log))
        self.choices_ = log.names
        # `_policy` applies the parameters of `fit` to `_learned`. Its result replaces
        # `_learned`, so that the first call need not compute the prices again.
        self._learned = self._policy()
        budget = check_budget(self.budget)
        self._learned.check_feasible(budget)
        warn_of_fit(self._learned, self.choices_, budget)

    def _read_amounts(self, log):
        """Return the parameter `amounts` as `AmountTables`, or None if there are none.

        `log` is the `Log` of the members, whose number of rows is taken.
        """
        names = self._members.names
        n_rows = len(log.quality)
        amounts = read_amounts(self.amounts, names, n_rows=n_rows, named=True)
        if amounts is None or log.abstain_quality is None:
            return amounts
        return amounts.with_abstaining()

    def _fit_embedding(self, X, answers):
        """Fit the embedding, and return the input of the quality estimator.

        Sets ``embedding_``, ``_embedder`` and ``_embedder_answers``.

        Parameters
        ----------
        X : indexable of n_rows rows
        answers : OutOfFold
            Answers of the members to these rows.

        Returns
        -------
        indexable of n_rows rows
            X, the embedded rows, or the out-of-fold probabilities of the member that
            embeds.
        """
        self.embedding_ = None
        self._embedder = None
        self._embedder_answers = True  # has no effect if no member embeds
        if self.embedding is None:
            return X
        if isinstance(self.embedding, str):
            # The name of a member, whose probabilities are the embedding.
            self._embedder = answers.names.index(self.embedding)
            responses = answers.by_method[self._embedder]
            # If the answers of this member are its most probable labels, the call that
            # embeds a row has also answered the row. Otherwise a row that chooses this
            # member pays a second call.
            self._embedder_answers = names_best_score(
                self._members.models[self._embedder],
                responses["predict_proba"],
                responses["predict"],
            )
            return responses["predict_proba"]
        self.embedding_ = clone(self.embedding)
        with note_failure("embedding", num_samples(X), "fit"):
            labels = self._members.target.labels(answers.target)
            return self.embedding_.fit_transform(X, labels)

    def _log_of(self, answers):
        """Return the quality of each member on each row, and its costs (`Log`).

        `answers` are the out-of-fold answers of the members (`OutOfFold`). The costs
        are ``SplitCosts.added``: the cost of deciding, which all rows pay, is left out.
        """
        objective = objective_of(self, self._members.target)
        bound_objective = objective.bound(answers.target, answers.weight)
        responses = answers.answers_by(objective.asks)
        # (n_rows, n_members)
        quality = bound_objective.table(answers.target, responses)
        split = split_costs(
            self._members.costs_of_fit,
            routing_cost=self.routing_cost,
            embedder=self._embedder,
            embedder_answers=self._embedder_answers,
        )
        log = Log(answers.names, quality, split.added)
        return log.with_abstaining(self.abstain_cost)

    def _time_decisions(self, policy, X):
        """Return the measured seconds of deciding on one row, without calling a member.

        `policy` decides on rows of `X`, without a budget: the time does not depend on
        it.
        """
        # The call of the member that embeds is not timed.
        rows_to_decide = X if self._embedder is None else self._embed(X)

        def decide(rows):
            if self.embedding_ is not None:
                rows = self.embedding_.transform(rows)
            estimates = policy.estimates(rows)
            policy.decide(estimates, policy.planned, np.inf, draw=tie_draws(rows))

        return seconds_per_sample(decide, rows_to_decide)

    # Decisions ------------------------------------------------------------------------

    def _policy(self):
        """Return the fitted policy at the present parameters (`Policy`)."""
        check_is_fitted(self)
        split = split_costs(
            self._members.costs_now(self.costs, self.estimators),
            routing_cost=self.routing_cost,
            embedder=self._embedder,
            embedder_answers=self._embedder_answers,
        )
        deciding = split.deciding
        # The only text that `costs` may be is "time": the seconds that `fit` measured.
        if isinstance(self.costs, str):
            deciding += self._routing_seconds
        policy = self._learned.with_changes(
            costs=split.added,
            deciding_cost=deciding,
            reg_lambda=check_lambda(self.reg_lambda),
            least_prices=least_prices(self.exchange_rate, self.quality),
        )
        return policy.limited(limits_now(self, self.choices_))

    def _embed(self, X):
        """Return the input of the quality estimator: X, or an embedding of X."""
        n_rows = num_samples(X)
        if self._embedder is not None:
            sweep = cache_of(self)
            return self._members.ask(
                self._embedder,
                "predict_proba",
                X,
                np.arange(n_rows),
                counter=sweep,
                cache=sweep,
            )
        if self.embedding_ is None:
            return X
        with note_failure("embedding", n_rows, "transform"):
            return cache_of(self).get_or_compute(
                "embedded", lambda: self.embedding_.transform(X)
            )

    def _decision_inputs(self, X, choices):
        """Return what is known before rows are decided (`DecisionInputs`).

        Parameters
        ----------
        X : indexable of n_rows rows
        choices : ndarray of int or None
            Choices that are offered. It is not read, since the result is always the
            same.

        Returns
        -------
        features : indexable of n_rows rows
            Input of the quality estimator.
        state : dict or None
            Answers of the member that embeds, by position and method. They are paid.
            None if there is no such member, or if its answers are not its most probable
            labels.
        answers : dict
            Answer of the member that embeds to the first row, by its position. It is
            empty if `state` is None.
        """
        features = self._embed(X)
        if self._embedder is None or not self._embedder_answers:
            return DecisionInputs(features, None, {})
        # Deciding has paid for the answers of the member that embeds.
        labels = features.argmax(axis=1)
        state = {
            (self._embedder, "predict_proba"): features,
            (self._embedder, "predict"): labels,
        }
        first_label = self._members.target.labels(labels)[0]
        return DecisionInputs(features, state, {self._embedder: first_label})

    def _plan_single(self, X, name, call):
        """Return the plan by which one member, of this name, answers all rows."""
        plan = super()._plan_single(X, name, call)
        # Only a sweep over budgets has a cache.
        is_sweep = cache_of(self) is not NO_CACHE
        if is_sweep and name == self.embedding:
            # The plans of other budgets ask this member for its embedding of the rows.
            # The cache keeps the answers, which this plan then uses too.
            inputs = self._decision_inputs(X, choices=None)
            plan = plan._replace(state=inputs.state)
        return plan

    def _plan(self, X, call):
        """Return the choices for the rows of a call (`Plan`)."""
        # `choices` are positions of the choices that are not excluded. `allowed` has
        # True where a row may get one of them. None: each row may get all of them.
        choices, allowed = kept_choices(
            self.choices_, num_samples(X), call.exclude, call.allowed
        )
        if self._embedder is not None and self._embedder not in choices:
            raise ValueError(
                f"exclude={call.exclude!r} names {self.embedding!r}, which embeds "
                "every row: without it nothing can be decided."
            )
        policy = self._policy().limited(limits_now(self, self.choices_, call))
        policy = policy.restricted(choices)
        # If the budget is too small, the error comes before the member that embeds is
        # called.
        check_affordable(call.budget, policy.least)
        # `state` has the answers that deciding has paid for. Answering does not ask for
        # them again.
        estimates, state = estimate_once(
            self, policy, partial(self._decision_inputs, X, policy.choice_positions)
        )
        plan = policy.decide(
            estimates,
            policy.planned,
            call.budget,
            draw=tie_draws(X, call.request_id),
            policy=self.policy,
            allowed=allowed,
        )
        return plan._replace(state=state)

    def bill(self, plan, costs):
        """Return the bill of each row of a plan, from the bill of each member.

        Parameters
        ----------
        plan : Plan
            From :meth:`plan` or :meth:`plan_single`.

        costs : {array-like, dataframe} of shape (n_samples, n_members)
            Bill of each member on each row. A frame is read by name.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=float64
            Every row that was decided pays for deciding, the member that embeds
            included.
        """
        check_is_fitted(self)
        n_rows = len(plan.route)
        names = self._members.names
        bills = check_row_costs(costs, names, (n_rows, len(names)))
        bill_of_choice = bills
        if self.abstain_quality_ is not None:
            # Abstaining is the last choice, and costs nothing.
            bill_of_choice = with_last(bills, 0.0)
        row_bills = bill_of_choice[np.arange(n_rows), plan.route]
        if not plan.decided:
            return row_bills
        deciding = self.routing_cost_
        if self._embedder is None:
            return row_bills + deciding
        # The bill of the member that embeds replaces its fixed cost.
        member_costs = self._members.costs_now(self.costs, self.estimators)
        deciding -= member_costs[self._embedder]
        if self._embedder_answers:
            # A row that chooses this member does not pay it a second time.
            row_bills = np.where(plan.route == self._embedder, 0.0, row_bills)
        return row_bills + bills[:, self._embedder] + deciding

    def request_policy(self, budget, exclude=()):
        """Return the `RequestPolicy` for requests that come one by one.

        Parameters
        ----------
        budget : float
            Mean budget per request, in the unit of `costs`. It is not read here: the
            price follows from ``price_at`` of the result.

        exclude : sequence of str, default=()
            Names of members that are not offered.

        Returns
        -------
        RequestPolicy
            Deciding asks the member that embeds, if there is one.
        """
        check_is_fitted(self)
        asked_first = []
        if self._embedder is not None:
            asked_first.append(self._members.names[self._embedder])
        return self._priced_requests(exclude, asked_first=asked_first)

    # Attributes -----------------------------------------------------------------------

    @property
    def costs_(self):
        """Cost of each choice by `costs` as it is now. 0 for abstaining."""
        check_is_fitted(self)
        costs = self._members.costs_now(self.costs, self.estimators)
        return costs if self.abstain_quality_ is None else with_last(costs, 0.0)

    @property
    def routing_cost_(self):
        """Cost of deciding on a row, with the call of the member that embeds it."""
        return self._policy().deciding_cost

    @property
    def quality_estimator_(self):
        """The quality estimator, fitted on all rows."""
        check_is_fitted(self)
        return self._learned.estimator

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if self.embedding is not None:
            return tags
        # Without an embedding the quality estimator reads X itself: only what it takes
        # is allowed.
        reader = self.quality_estimator
        if reader is None:
            reader = QualityRegressor()
        if hasattr(reader, "__sklearn_tags__"):
            tags.input_tags.sparse &= get_tags(reader).input_tags.sparse
            tags.input_tags.allow_nan &= may_take_missing(reader)
        else:
            tags.input_tags.sparse = False
            tags.input_tags.allow_nan = False
        return tags


def split_costs(costs, *, routing_cost, embedder, embedder_answers):
    """Return the cost of deciding and the further costs of members (`SplitCosts`).

    Parameters
    ----------
    costs : array-like of shape (n_members,)
        Cost of each member's call.
    routing_cost : float or None
        The parameter of the router. None is 0.
    embedder : int or None
        Position of the member that embeds. None if no member does.
    embedder_answers : bool
        True if the call that embeds a row is also the member's answer, so that choosing
        this member costs nothing more.

    Returns
    -------
    SplitCosts
    """
    deciding = 0.0 if routing_cost is None else float(routing_cost)
    added = np.array(costs, dtype=np.float64)
    if embedder is not None:
        deciding += float(added[embedder])
        if embedder_answers:
            added[embedder] = 0.0
    return SplitCosts(deciding, added)


def check_embedding(embedding, members):
    """Raise an error if `embedding` is a name, but not of a member that can embed rows.

    `embedding` is the parameter, `members` a dict from name to estimator.
    """
    if not isinstance(embedding, str):
        return
    if embedding not in members:
        raise ValueError(
            f"embedding={embedding!r} is not the name of a member; the "
            f"members are {list(members)!r}. It may also be a transformer or None."
        )
    if not will_have(members[embedding], "predict_proba"):
        raise ValueError(
            f"embedding={embedding!r} needs predict_proba, which that member "
            f"({members[embedding]!r}) does not have."
        )


class OccamRouterClassifier(Occam, ClassifierMixin, BaseEstimator):
    r"""Answer each row with the classifier that is worth its cost for that row (OCCAM).

    `fit` fits the members and records their out-of-fold quality. A quality estimator
    learns to predict it for new rows. A row then goes to the member with the best
    :math:`\hat q_i(x) - \lambda \sigma_i - p\, c_i` [1]_ (equation 9). The price
    :math:`p` is learned so that the mean cost meets the budget. Only that member is
    called.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The members. Each is cloned and fitted. A fitted one is passed as
        :class:`~sklearn.frozen.FrozenEstimator`. It should not have been fitted on the
        rows of `fit`. ``set_params(name="drop")`` leaves one out.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member, in any one unit (seconds, dollars, FLOPs).
        ``"time"`` measures it in `fit`: median seconds per sample, synchronised with
        the device.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`, everything included. None is
        unlimited. A larger budget sends more rows to more expensive members. It is
        spent as far as held-out rows show a gain beyond noise.

    quality_estimator : multi-output regressor, default=None
        Predicts the members' quality from the embedding. None takes
        :class:`~skroute.quality.QualityRegressor`. The paper's own is
        :class:`~skroute.quality.BaggedNeighborsRegressor`, on features scaled to [0,
        1].

    embedding : None, transformer or str, default=None
        Input of the quality estimator: X itself; the output of a transformer, which is
        cloned and fitted; or ``predict_proba`` of the member of that name, out of fold
        in `fit`. That member is then called on every row, and every row pays its cost,
        which is included in the budget. Choosing it costs nothing more, unless its
        answer is not its most probable label.

    quality : str, mapping, array-like, callable or (str, callable), default="accuracy"
        Quality of an answer, higher is better. Price and validation figures are in its
        unit. ``score`` is always accuracy.

        - ``"accuracy"``: right answers.
        - ``"balanced_accuracy"``: right answers, with the same weight for all true
          classes.
        - A cost matrix: a mapping from (true label, predicted label) to money, or an
          array with a row for each true label of ``classes_`` and a column for each
          predicted one. The quality is minus that money. See `exchange_rate`.
        - ``"log_loss"``, ``"brier"``: minus these losses of ``predict_proba``.
          ``"probability"``: the probability of the true label, which is the paper's
          success probability. These favour the least overconfident member: calibrate
          members first, for example by
          :class:`~sklearn.calibration.CalibratedClassifierCV`.
        - A function of true and predicted labels to one number per row, higher is
          better, or ``("predict_proba", function)`` of true labels and probabilities.

    exchange_rate : float, default=None
        Value of one unit of `costs` in the unit of `quality`. Quality minus the value
        of the costs is then maximised within the budget. None is 1 if `quality` is a
        cost matrix and there is no budget, which minimises the sum of the costs of
        errors and calls. None is 0 otherwise. A larger rate leaves more of a budget
        unspent.

    reg_lambda : float, default=0.0
        Lambda: the number of standard deviations of the out-of-sample estimation error
        that are subtracted from the estimate of a member. A larger value prefers
        members whose quality is predicted reliably.

    policy : {"online", "batch"}, default="online"
        ``"online"`` decides each row alone by the price learned in `fit`. The budget
        holds on average. ``"batch"`` solves the assignment for the rows of a call. The
        budget is a hard cap on them.

    abstain_cost : float, default=None
        Cost, in units of `quality`, of abstaining from a row, so that a person answers
        it. The row counts as the best quality of any answer in `fit` minus this, and
        costs only `routing_cost_`. `predict` returns `abstain_label` for it, and
        `predict_proba` NaN. With None, no row abstains. With a higher cost, fewer rows
        abstain.

    abstain_label : object, default=None
        Value of `predict` for a row that abstains. No class may have this label. None
        takes ``"abstain"`` if labels are texts, and -1 if they are numbers.

    routing_cost : float, default=None
        Cost of deciding on one row (embedding transformer and estimate), in the unit of
        `costs`. It is included in the budget. None measures it with ``costs="time"``
        and is 0 otherwise.

    amounts : mapping, default=None
        Further amounts of a call of each member, by name, such as ``{"seconds":
        {"small": 0.1, "large": 0.9}}``. `limits` limits their means. They act at the
        next `fit`.

    limits, capacities : mapping from str to float, default=None
        Largest mean of each amount, and largest share of the rows of each member, as in
        :class:`BudgetRouter`. They act at once.

    cv : int, splitter or iterable of splits, default=5
        Folds for out-of-fold answers of the members and out-of-fold estimates of
        quality. The folds of an int are stratified by class for the members, and
        shuffled with a fixed seed for the estimates. A splitter or a list of (train,
        test) serves both. ``groups`` reach a splitter through metadata routing.

    memory : None, str or joblib.Memory, default=None
        Cache of fitted members and their out-of-fold answers, as in
        :class:`~sklearn.pipeline.Pipeline`. A str is the path of a directory. A search
        over `budget` or `costs` then fits each member once for the same rows. See
        :ref:`cached_members`.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        Names of the members that `route` indexes. With an `abstain_cost` the last one
        is ``"abstain"``.

    estimators_ : list of classifiers
        The fitted members, in the order of `choices_`.

    costs_ : ndarray of shape (n_choices,)
        Cost of each member's call. 0 for abstaining.

    routing_cost_ : float
        Cost of deciding, which each row pays: `routing_cost`, measured with
        ``costs="time"``, and the cost of the member that embeds.

    quality_estimator_ : estimator
        Fitted on all rows.

    embedding_ : transformer or None
        Fitted on all rows.

    min_budget_, quality_std_, price_path_, price_, mean_quality_, abstain_quality_
        As in :class:`BudgetRouter`. The log is made of out-of-fold answers of members.

    validation_quality_, validation_quality_se_ : float
        As in :class:`BudgetRouter`.

    validation_cost_, validation_cost_se_ : float
        As in :class:`BudgetRouter`.

    n_features_in_, feature_names_in_ : int, ndarray of shape (`n_features_in_`,)
        Number and names of the features seen during `fit`, if X has them.

    See Also
    --------
    BudgetRouter : The same policy from logged outcomes, without classifiers.
    DummyRouterClassifier : Single best member, random routing, oracle.

    Notes
    -----
    There is no `random_state`: set that of the members and of a `quality_estimator` of
    your own.

    `budget`, `policy`, `reg_lambda`, `costs` and `exchange_rate` can be changed after
    `fit`, without a new fit: estimates and quality of the rows of `fit` are kept, and
    the dual price is computed again.

    ``fit(X, y, sample_weight=...)`` fits every member with the weights, and weights
    rows in price, validation figures and mean quality. With scikit-learn's metadata
    routing, the request of each member decides. A `quality_estimator` whose `fit` takes
    ``sample_weight``, as the default does, gets the weights unless it refuses them. The
    estimates of another one, such as a pipeline, are not weighted. An `embedding` that
    is a transformer is not weighted either. Members and a `quality_estimator` of the
    user get the weights as they are given. The router itself does not depend on their
    unit, and ignores rows of weight 0.

    At the price, some rows are tied between two members. They are divided, so that the
    whole budget is used: a hash of the row, and of how often it came before in the
    call, or of its ``request_id``, decides for each tied row.

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
    >>> members = [
    ...     ("bayes", GaussianNB()),
    ...     ("forest", RandomForestClassifier(30, random_state=0)),
    ... ]
    >>> costs = {"bayes": 1, "forest": 10}
    >>> router = OccamRouterClassifier(members, costs=costs, budget=5)
    >>> router = router.fit(X_train, y_train)
    >>> y_pred, route, cost = router.predict_routed(X_test)
    >>> bool(4 < cost.mean() < 6)
    True
    >>> bayes = router.named_estimators_.bayes
    >>> router.score(X_test, y_test) > bayes.score(X_test, y_test) + 0.04
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
        amounts=None,
        limits=None,
        capacities=None,
        cv=5,
        memory=None,
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
        self.amounts = amounts
        self.limits = limits
        self.capacities = capacities
        self.cv = cv
        self.memory = memory
        self.n_jobs = n_jobs


class OccamRouterRegressor(Occam, RegressorMixin, BaseEstimator):
    r"""Answer each row with the regressor that is worth its cost for that row (OCCAM).

    This is :class:`OccamRouterClassifier` for numbers. The quality of an answer is
    minus its loss. Attributes and notes are the same.

    Parameters
    ----------
    estimators : list of (str, regressor)
        The members, as in :class:`OccamRouterClassifier`.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`. A larger budget sends more rows to
        more expensive members.

    quality_estimator : multi-output regressor, default=None
        Predicts the members' quality from the embedding.

    embedding : None or transformer, default=None
        Input of the quality estimator: X itself, or the output of a transformer, which
        is cloned and fitted.

    quality : str or callable, default="squared_error"
        Quality of an answer: minus this loss, one of "squared_error", "absolute_error",
        "squared_log_error", "absolute_percentage_error", "poisson_deviance" and
        "gamma_deviance"; or a function of true and predicted numbers to one number per
        row, higher is better. ``score`` is always R².

    exchange_rate : float, default=None
        Value of one unit of `costs` in the unit of `quality`. Quality minus the value
        of the costs is then maximised within the budget. None is 0. A larger rate
        leaves more of a budget unspent.

    reg_lambda : float, default=0.0
        Number of standard deviations of the estimation error that are subtracted from
        the estimate of a member. A larger value prefers members whose losses are
        predicted reliably.

    policy : {"online", "batch"}, default="online"
        ``"online"`` decides each row alone, and the budget holds on average.
        ``"batch"`` decides the rows of a call together, under a hard cap.

    abstain_cost : float, default=None
        Cost, in units of `quality`, of abstaining from a row, so that a person answers
        it. `predict` returns NaN for it. With None, no row abstains. With a higher
        cost, fewer rows abstain.

    routing_cost : float, default=None
        Cost of deciding on one row. None measures it with ``costs="time"`` and is 0
        otherwise.

    amounts : mapping, default=None
        Further amounts of a call of each member, as in :class:`OccamRouterClassifier`.

    limits, capacities : mapping from str to float, default=None
        Largest mean of each amount, and largest share of the rows of each member, as in
        :class:`OccamRouterClassifier`.

    cv : int, splitter or iterable of splits, default=5
        Folds for out-of-fold answers of the members and out-of-fold estimates of
        quality. An int is this number of consecutive folds for the members: if rows are
        sorted, give a shuffled splitter.

    memory : None, str or joblib.Memory, default=None
        Cache of fitted members and their out-of-fold answers, as in
        :class:`~sklearn.pipeline.Pipeline`. A str is the path of a directory. A search
        over `budget` or `costs` then fits each member once for the same rows. See
        :ref:`cached_members`.

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
    >>> members = [
    ...     ("line", LinearRegression()),
    ...     ("tree", DecisionTreeRegressor(max_depth=6)),
    ... ]
    >>> router = OccamRouterRegressor(members, costs=[1, 10], budget=6)
    >>> router = router.fit(X[:400], y[:400])
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
        amounts=None,
        limits=None,
        capacities=None,
        cv=5,
        memory=None,
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
        self.amounts = amounts
        self.limits = limits
        self.capacities = capacities
        self.cv = cv
        self.memory = memory
        self.n_jobs = n_jobs
