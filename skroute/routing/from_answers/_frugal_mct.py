"""FrugalMCT: a base service, then at most one add-on, and both combined."""

from functools import partial
from typing import NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skroute.assignment import assignment_path, choose_at_price
from skroute.base import Plan, affords, check_affordable, check_budget
from skroute.base._calls import EXCLUDE, REQUEST_ID
from skroute.base._inspection import ABSTAIN_NAME
from skroute.routing.from_answers._combining import (
    GRID,
    Choice,
    CombiningRouter,
    MemberAnswers,
    answer_features,
    costs_of_choices,
    estimator_on_answers,
    possible_bases,
    quality_of_abstaining,
    search_combination,
)
from skroute.routing.parts._estimates import rows_and_others
from skroute.routing.parts._learn import learn_policy, message_if_behind
from skroute.routing.parts._log import Log, kept_choices
from skroute.routing.parts._members import members_by_name
from skroute.routing.parts._mixtures import (
    best_or_cheaper,
    mean_of_rows,
    weight_of_rows,
)
from skroute.routing.parts._policy import Policy, ValidationMeans
from skroute.routing.parts._priced_router import DecisionInputs, PricedRouter
from skroute.routing.parts._requests import PricedRequests
from skroute.utils._compat import HasMethods, Interval, Real, StrOptions, num_samples
from skroute.utils._row_hash import tie_draws
from skroute.utils._statistics import standard_error
from skroute.utils._typing import NDArray
from skroute.utils._validation import warn

# Maximal number of training rows per tree of the forest that estimates quality from
# answers. More rows take seconds longer, and the decisions are the same.
_MAX_ROWS_PER_TREE = 8_000
# Candidates for delta, the share of the budget that is left unspent, are
# ``alpha * log(n_rows) / n_rows`` as in the paper. This is the largest alpha. The
# smallest is its negative.
_MAX_ALPHA = 10
# Smallest number of rows on which delta is searched: each of two halves must have
# two.
_MIN_ROWS_FOR_DELTA = 4


# Options after a base -----------------------------------------------------------------


class AddonOption(NamedTuple):
    """Option of a row after the answer of its base: to buy nothing, or one add-on.

    Attributes
    ----------
    service : int
        Position of the add-on; that of the base if nothing is bought.
    weight : float
        w, the weight of the base in the combined scores. 1: the base alone. 0: the
        add-on alone.
    threshold : float or None
        theta, the score above which a label is named. None if rows have one label.
    row_quality : ndarray of shape (n_rows,)
        Quality of the answer to each row, if all rows take this option.
    """

    service: int
    weight: float
    threshold: float | None
    row_quality: NDArray[np.float64]


def addon_options(answers, base, weights, thresholds):
    """Return what may be bought after the answer of a base, a list of `AddonOption`.

    The first option is the base alone. Each add-on is combined with the w that is best
    for all rows, as in the paper. On most rows the base is sure, so that this w fits
    them. But the rows that buy an add-on are those on which the base is not sure. If 0
    is a candidate for w, the add-on alone is therefore an option as well.

    Parameters
    ----------
    answers : JudgedAnswers
    base : int
        Position of the base.
    weights, thresholds : sequence of float
        Candidates for w and theta.
    """
    threshold, row_quality = answers.search_threshold(base, thresholds)
    options = [AddonOption(base, 1.0, threshold, row_quality)]
    for service, scores in enumerate(answers.scores):
        if service == base:
            continue
        pair = search_combination(
            answers.scores[base],
            scores,
            answers.target,
            answers.quality,
            weights=weights,
            thresholds=thresholds,
            first_labels=answers.labels_of(base),
            second_labels=answers.labels_of(service),
            row_weight=answers.row_weight,
        )
        options.append(
            AddonOption(service, pair.weight, pair.threshold, pair.row_quality)
        )
        # The add-on alone is a further option, unless the pair is that already: the
        # best weight of the base is then 0.
        if min(weights) == 0 and pair.weight > 0:
            threshold, row_quality = answers.search_threshold(service, thresholds)
            options.append(AddonOption(service, 0.0, threshold, row_quality))
    return options


class BaseOptions(NamedTuple):
    """Choices after one base (the member that is asked first), with their policy.

    Attributes
    ----------
    base : int
        Position of the base.
    first : int
        Position of the first choice of this base among the choices of all bases. The
        policy counts its choices from 0.
    policy : Policy
        The costs of this policy are the costs of the add-ons alone. Its cost of
        deciding is the cost of the base.
    """

    base: int
    first: int
    policy: Policy

    @property
    def n_choices(self):
        """Number of choices of the base, before any are excluded."""
        return len(self.policy.sigma)


def affordable_bases(options, budget):
    """Return those of the `BaseOptions` whose cheapest plan a budget pays for."""
    affordable = []
    for base_options in options:
        if affords(budget, base_options.policy.least):
            affordable.append(base_options)
    return affordable


def spending(options, budget):
    """Return the mean cost per row of routing with each base at a budget, (n_bases,).

    It is the budget, but at most the cost of the base's most expensive plan, which is
    the last one of its path.
    """
    largest_costs = []
    for base_options in options:
        policy = base_options.policy
        # Budgets of the path are mean costs of add-ons. Deciding costs the base's call.
        largest_costs.append(policy.deciding_cost + policy.path.budgets[-1])
    return np.minimum(budget, largest_costs)


class FrugalMCTClassifier(CombiningRouter, PricedRouter):
    r"""Ask a base service, then at most one add-on, and combine both (FrugalMCT).

    FrugalMCT [1]_. Every row goes to the base. From its scores a quality estimator
    predicts :math:`\hat a_k(x)`, how accurate the answer combined from the base and
    service k would be (k = base: the base alone). The row then buys

    .. math:: \arg\max_k \; \hat a_k(x) - p\, c_k,

    with the price :math:`p` learned so that the mean cost meets the budget. The
    combined scores are :math:`w \cdot base + (1 - w) \cdot addon`; the answer is the
    best label or, if y is an indicator matrix, the labels above :math:`\theta`.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The services, as in :class:`FrugalMLClassifier`. A label that a service does not
        name has the score 0.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each service. ``"time"`` measures seconds per sample in `fit`.
        New costs act at once, see Notes.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`, the base included. None is
        unlimited. Raising it buys an add-on for more rows, as long as this gains
        quality. A base may need less than the budget, and then the rest is not spent.
        The budget is spent as far as held-out rows show a gain beyond noise.

    base : str, default="auto"
        Name of the service that every row goes to first. ``"auto"`` takes the base with
        the best out-of-sample quality at the budget of the call. A base that needs less
        than the budget is taken instead if it is worse by at most one standard error.
        With ``"auto"`` one quality estimator is fitted for each service.

    quality_estimator : multi-output regressor, default=None
        Predicts the accuracy of each combination from the base's answer. None takes a
        random forest of 30 to 100 trees (more if rows are few), each grown on up to
        8,000 rows. Its training rows are estimated out of sample: from
        ``oob_prediction_`` if the fitted estimator has it, else by cross-validation.
        :class:`~sklearn.dummy.DummyRegressor` is the ablation that the paper calls DAP.

    weight : float or "auto", default="auto"
        Weight w of the base in the combined scores. ``"auto"`` takes the best of
        0, 0.1, ..., 1 for each base and add-on by accuracy on training rows. 0 answers
        with the add-on alone.

    threshold : float or "auto", default="auto"
        theta, above which a combined score names a label; unused for single labels.
        ``"auto"`` searches 0, 0.1, ..., 1 together with `weight`. Raising it names
        fewer labels.

    delta : float or "auto", default=0.0
        The price is learned for ``1 - delta`` of what the budget leaves after the base,
        as a margin against overspending. ``"auto"`` searches
        ``alpha * log(n) / n`` for alpha in -10, ..., 10 on held-out halves.

    policy : {"online", "batch"}, default="online"
        ``"online"`` decides each row alone by the price; the budget holds on average.
        ``"batch"`` (the paper's offline) solves the assignment for the rows given; the
        budget is a hard cap on them.

    quality : str, mapping, array-like or callable, default="accuracy"
        Quality of an answer, as in :class:`FrugalMLClassifier`.

    abstain_cost : float, default=None
        Cost of abstaining after the base, in units of `quality`, as in
        :class:`FrugalMLClassifier`. None never abstains. If it is higher, fewer rows
        abstain.

    abstain_label : object, default=None
        Label of a row that abstains, as in :class:`FrugalMLClassifier`.

    cv : int, splitter or iterable, default=5
        Folds that make the services' answers out-of-sample, and the estimates of a
        `quality_estimator` without ``oob_prediction_``.

    memory : None, str or joblib.Memory, default=None
        Cache of fitted members and their out-of-fold answers, as in
        :class:`~sklearn.pipeline.Pipeline`. A str is the path of a directory. A search
        over `budget` or `costs` then fits each member once for the same rows. See
        :ref:`cached_members`.

    n_jobs : int, default=None
        Number of services, or of trees of the default `quality_estimator`, that are
        fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels; the positions of the labels if y is an indicator matrix.

    choices_ : list of str
        Names of the choices that `route` indexes: for each possible base, the base
        alone ("cnn"), combined with an add-on ("cnn + ocr"), and the add-on's answer
        after the base's was not enough ("cnn > ocr"); with an `abstain_cost` also
        abstaining after it ("cnn > abstain").

    choice_costs_ : ndarray of shape (n_choices,)
        Cost of each choice, the base included.

    choice_weights_ : ndarray of shape (n_choices, n_members)
        Combiner weights.

    choice_thresholds_ : ndarray of shape (n_choices,)
        theta, if y is an indicator matrix.

    member_names_ : list of str
        Names of the services.

    estimators_ : list of classifiers
        The fitted services.

    costs_ : ndarray of shape (n_members,)
        Cost of each service's call.

    base_ : str
        Base at the constructor's budget.

    price_ : float
        Price at the constructor's budget.

    delta_ : float
        Delta at the constructor's budget.

    validation_quality_, validation_cost_ : float
        Mean quality and cost of the cross-fitted decisions at `budget`. The price and
        the base of each fold were learned without it.

    validation_quality_se_, validation_cost_se_ : float
        Standard errors of these as estimates for new rows.

    abstain_quality_ : float or None
        Quality of a row that abstains. None if no row can abstain.

    n_features_in_, feature_names_in_ : int, ndarray of shape (`n_features_in_`,)
        Number and names of the features seen during `fit`, if X has them.

    See Also
    --------
    SequentialRouterClassifier : May buy more than one add-on.
    FrugalMLClassifier : One threshold per label instead of a quality estimator.
    OccamRouterClassifier : Decides from the row itself, before any service is asked.

    Notes
    -----
    There is no `random_state`: set that of the members and of a `quality_estimator` of
    your own.

    With more than 100 labels, the `quality_estimator` reads the 20 largest scores of a
    row in place of the scores of all labels.

    ``fit(X, y, sample_weight=...)`` takes weights as in :class:`FrugalMLClassifier`.
    They also count in the combinations, in prices, and in the estimates of a
    `quality_estimator` whose `fit` takes weights.

    The paper has one combiner for a base and an add-on. With ``weight="auto"`` each
    add-on is offered twice, at the same cost: combined with the base, and alone. It is
    offered once if the best weight of the base is 0.

    A row that one member answers alone gets the label that this member predicts, also
    if the member has a decision threshold. If rows have several labels, the answer is
    always the labels above `choice_thresholds_`. `predict_proba` is the mean of the
    probabilities of the members, weighted by `choice_weights_`. The label of combined
    answers is the most probable one by `predict_proba`.

    `route` and `predict_cost` ask the base, since its answer is what decides.

    `costs` can be changed after `fit`, without a new fit: the dual price of each base's
    options is computed again from stored estimates. ``exclude`` of a call takes names
    of members: they are asked neither as base nor as add-on (``"abstain"``: every row
    is answered).

    References
    ----------
    .. [1] L. Chen, M. Zaharia, J. Zou, "Efficient Online ML API Selection for
       Multi-Label Classification Tasks", ICML 2022, sections 4.1 to 4.4.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from skroute.routing import FrugalMCTClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> router = FrugalMCTClassifier(
    ...     [("bayes", GaussianNB()), ("knn", KNeighborsClassifier())],
    ...     costs={"bayes": 1, "knn": 10},
    ...     budget=5,
    ...     base="bayes",
    ... )
    >>> router = router.fit(X_train, y_train)
    >>> router.choices_
    ['bayes', 'bayes > knn']
    >>> bool(4 < router.predict_cost(X_test).mean() < 6)
    True
    >>> bayes = router.named_estimators_.bayes
    >>> router.score(X_test, y_test) > bayes.score(X_test, y_test) + 0.03
    True
    """

    _parameter_constraints: dict = {
        **CombiningRouter._parameter_constraints,
        "quality_estimator": [HasMethods(["fit", "predict"]), None],
        "weight": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "threshold": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "delta": [Interval(Real, None, 1, closed="left"), StrOptions({"auto"})],
        "policy": [StrOptions({"online", "batch"})],
    }
    call_parameters = (EXCLUDE, REQUEST_ID)

    def __init__(
        self,
        estimators,
        *,
        costs,
        budget=None,
        base="auto",
        quality_estimator=None,
        weight="auto",
        threshold="auto",
        delta=0.0,
        policy="online",
        quality="accuracy",
        abstain_cost=None,
        abstain_label=None,
        cv=5,
        memory=None,
        n_jobs=None,
    ):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.base = base
        self.quality_estimator = quality_estimator
        self.weight = weight
        self.threshold = threshold
        self.delta = delta
        self.policy = policy
        self.quality = quality
        self.abstain_cost = abstain_cost
        self.abstain_label = abstain_label
        self.cv = cv
        self.memory = memory
        self.n_jobs = n_jobs

    # Fit ------------------------------------------------------------------------------

    def _fit(self, X, y, *, task, **params):
        """Fit and ask the members, and learn a policy for each base.

        Parameters are those of `CostAwareMixin._fit`. `params` are `sample_weight` and
        metadata for the `fit` of members.
        """
        members = members_by_name(self.estimators, self._validate_names)
        answers, judged = self._fit_and_judge(members, X, y, task=task, params=params)
        with task.step("learn routing"):
            self._learn(answers, judged)

    def _learn(self, answers, judged):
        """Learn a policy for each base from the members' answers.

        Sets ``_options``, the attributes of ``_set_choices``, ``choices_`` and
        ``abstain_quality_``. `answers` are the `OutOfFold`, `judged` the
        `JudgedAnswers`.
        """
        names = answers.names
        budget = check_budget(self.budget)
        weights = GRID if self.weight == "auto" else [self.weight]
        thresholds = GRID if self.threshold == "auto" else [self.threshold]
        options_by_base = {}
        for base in possible_bases(self.base, names):
            options_by_base[base] = addon_options(
                judged, base, weights=weights, thresholds=thresholds
            )
        row_qualities = []
        for options in options_by_base.values():
            row_qualities.extend(option.row_quality for option in options)
        self.abstain_quality_ = quality_of_abstaining(self.abstain_cost, row_qualities)

        estimator, fit_params = estimator_on_answers(
            self.quality_estimator,
            answers,
            max_rows=_MAX_ROWS_PER_TREE,
            n_jobs=self.n_jobs,
        )
        self._options = []  # a `BaseOptions` for each base
        choices = []  # of all bases, one base after the other
        for base, options in options_by_base.items():
            policy_after_base = learn_policy(
                estimator,
                self._features(judged.scores[base]),
                self._log_of(base, options),
                answers.folds,
                weight=answers.weight,
                memory=self.memory,
                n_jobs=self.n_jobs,
                fit_params=fit_params,
            )
            policy = self._paying_for_base(policy_after_base, base, budget)
            base_options = BaseOptions(base, first=len(choices), policy=policy)
            self._options.append(base_options)
            choices.extend(self._choices_of(base, options))
        self._set_choices(choices)
        self.choices_ = [choice.name for choice in choices]
        self._warn_if_behind(judged, qualities_alone(options_by_base), budget)

    def _features(self, scores):
        """Return features, for the quality estimator, of a base's scores.

        `scores` has the shape (n_rows, n_labels).
        """
        return answer_features([scores], multilabel=self._members.is_multilabel)

    def _log_of(self, base, options):
        """Return the quality and the further cost of each option after a base (`Log`).

        `options` is a list of `AddonOption`. The cost of the base is left out.
        """
        names = self._members.names
        services = np.array([option.service for option in options])
        quality = np.column_stack([option.row_quality for option in options])
        addon_costs = self._members.costs_of_fit[services]
        # The base is the first option, which buys no add-on.
        addon_costs[0] = 0.0
        log = Log([names[service] for service in services], quality, addon_costs)
        if self.abstain_quality_ is None:
            return log
        # A log takes the cost of abstaining, which is subtracted from its best quality.
        abstain_cost = float(quality.max()) - self.abstain_quality_
        return log.with_abstaining(abstain_cost)

    def _paying_for_base(self, policy, base, budget):
        """Return the policy with the base's cost as cost of deciding, and with `delta`.

        `delta` is its margin. The margin is the share of a budget that is left unspent.

        Parameters
        ----------
        policy : Policy
            The policy of the options after the base, at the costs of the add-ons.
        base : int
            Position of the base among the members.
        budget : float
            Mean cost per row, the base included, at which ``delta="auto"`` is searched.

        Returns
        -------
        Policy
            The cost of the base is its cost of deciding.
        """
        base_cost = float(self._members.costs_of_fit[base])
        # The rows of the log have also chosen the combinations, so that their estimates
        # are too high. With `trusts_estimates=False`, a gain must be beyond noise.
        policy = policy.with_changes(deciding_cost=base_cost, trusts_estimates=False)
        delta = self.delta
        if delta == "auto":
            # A budget below the cost of the base leaves nothing for add-ons.
            delta = search_delta(policy, budget) if budget >= base_cost else 0.0
        return policy.with_changes(margin=float(delta))

    def _choices_of(self, base, options):
        """Return the choices of a base (list of `Choice`).

        Each of `options`, a list of `AddonOption`, is a choice. If rows may abstain,
        abstaining is the last choice.
        """
        names = self._members.names
        # Row k has 1 for member k, and 0 for the others.
        weights_alone = np.eye(len(names))
        choices = []
        for option in options:
            name = names[base]
            if option.service != base:
                # If the base has the weight 0, the add-on answers alone.
                sign = "+" if option.weight else ">"
                name = f"{names[base]} {sign} {names[option.service]}"
            # Weights of all members in the answer, arrays of shape (n_members,).
            base_weights = option.weight * weights_alone[base]
            addon_weights = (1 - option.weight) * weights_alone[option.service]
            is_asked = (weights_alone[base] + weights_alone[option.service]) > 0
            choice = Choice(
                name,
                members=is_asked,
                weights=base_weights + addon_weights,
                threshold=option.threshold,
            )
            choices.append(choice)
        if self.abstain_quality_ is not None:
            name = f"{names[base]} > {ABSTAIN_NAME}"
            abstaining = Choice(
                name,
                members=weights_alone[base] > 0,
                weights=weights_alone[base],
                threshold=np.nan,  # no label is named
            )
            choices.append(abstaining)
        return choices

    def _warn_if_behind(self, judged, alone, budget):
        """Warn if one service alone is better than routing on the rows of `fit`.

        Parameters
        ----------
        judged : JudgedAnswers
        alone : dict from int to ndarray of shape (n_rows,)
            Quality of each row if one service answers all rows, by its position.
        budget : float
            Mean cost per row.
        """
        costs = self._members.costs_of_fit
        affordable = [service for service in alone if affords(budget, costs[service])]
        if not affordable:
            return
        best_single = max(affordable, key=lambda service: judged.mean(alone[service]))
        # Routing needs at least the cost of the cheapest choice.
        routing_budget = max(budget, self.choice_costs_.min())
        routed_quality, _ = self._validation(routing_budget)
        name = self._members.names[best_single]
        # A text for the warning, or None if routing is not worse.
        message = message_if_behind(
            alone[best_single], routed_quality, name, judged.row_weight
        )
        if message:
            warn(message)

    # Decisions ------------------------------------------------------------------------

    def _options_now(self, exclude=None):
        """Return the options of each base at the present costs (list of `BaseOptions`).

        Choices with a member in `exclude` are left out, and so are bases in it.
        """
        costs = self._members.costs_now(self.costs, self.estimators)
        members = np.arange(len(costs))
        # Positions of names that are not excluded: the members, then abstaining. Only
        # the names are needed: `n_samples` and `allowed` restrict nothing here.
        kept_positions, _ = kept_choices(
            self._excludable_names(), n_samples=1, exclude=exclude, allowed=None
        )
        # Abstaining comes after the members.
        may_abstain = len(members) in kept_positions
        excluded = np.setdiff1d(members, kept_positions)
        options_now = []
        for options in self._options:
            if options.base in excluded:
                continue
            choices = slice(options.first, options.first + options.n_choices)
            # Members that each choice of this base asks: (n_choices, n_members).
            asked = self.choice_members_[choices]
            is_addon = asked & (members != options.base)
            # Cost of the add-on of each choice, which has at most one: (n_choices,).
            addon_costs = is_addon @ costs
            policy = options.policy.with_changes(
                costs=addon_costs, deciding_cost=float(costs[options.base])
            )
            is_allowed = ~asked[:, excluded].any(axis=1)
            if self.abstain_quality_ is not None and not may_abstain:
                # The last choice of a base is to abstain.
                is_allowed[-1] = False
            policy = policy.restricted(np.flatnonzero(is_allowed))
            options_now.append(options._replace(policy=policy))
        if not options_now:
            # All bases are excluded.
            raise ValueError(
                f"exclude={exclude!r} leaves no base: base={self.base!r} of "
                f"{self._members.names!r}."
            )
        return options_now

    def _options_at(self, budget, exclude=None):
        """Return the `BaseOptions` with the best validated quality at a budget.

        Within noise of it, a base that needs less than the budget is taken
        (`best_or_cheaper`).
        """
        options_now = self._options_now(exclude)
        # A budget that pays for no base is raised to that of the cheapest base. Such
        # a budget is no error here: `_plan` checks its budget, a stream its total.
        smallest_budget = min(base_options.policy.least for base_options in options_now)
        budget = max(budget, smallest_budget)
        affordable = affordable_bases(options_now, budget)
        if len(affordable) == 1:
            return affordable[0]
        # For each base: validated mean quality at the budget, and quality of each row.
        quality = []
        row_quality = []
        for base_options in affordable:
            budgets, validations = base_options.policy.curve
            weight = base_options.policy.weight
            means = [mean_of_rows(result.quality, weight) for result in validations]
            quality.append(np.interp(budget, budgets, means))
            # The last plan is the most expensive one. Its rows show how noisy the
            # difference between two bases is.
            row_quality.append(validations[-1].quality)
        # All policies have the same weights of the rows.
        weight = affordable[0].policy.weight
        spent = spending(affordable, budget)
        best = best_or_cheaper(np.array(quality), spent, row_quality, weight)
        return affordable[best]

    def _smallest_budget(self):
        """Return the cost of the cheapest choice of all bases."""
        return self.choice_costs_.min()

    def _policy(self):
        """Return the policy of the base that is chosen at the parameter `budget`."""
        check_is_fitted(self)
        return self._options_at(check_budget(self.budget)).policy

    def _validation(self, budget):
        """Return quality and cost of each row of `fit`, each decided by other folds.

        They are two arrays of shape (n_rows,). The base of a row is the best one by the
        rows of the other folds.
        """
        affordable = affordable_bases(self._options_now(), budget)
        spent = spending(affordable, budget)
        validations = []
        for base_options in affordable:
            validations.append(base_options.policy.validate(budget))
        # (n_bases, n_rows)
        quality = np.array([result.quality for result in validations])
        cost = np.array([result.cost for result in validations])
        # All policies have the same folds and weights of the rows.
        policy = affordable[0].policy
        # Position of the best base of each row, among those that the budget pays for.
        best = np.empty(quality.shape[1], dtype=np.int64)
        for rows, others in rows_and_others(policy.fold):
            weight = weight_of_rows(policy.weight, others)
            quality_of_others = quality[:, others]
            means = mean_of_rows(quality_of_others, weight)
            best[rows] = best_or_cheaper(means, spent, quality_of_others, weight)
        rows = np.arange(len(best))
        return quality[best, rows], cost[best, rows]

    def _validated(self, budget):
        """Return mean quality and cost of the held-out rows (`ValidationMeans`)."""
        # All policies have the same folds and weights of the rows.
        policy = self._options[0].policy
        quality, cost = self._validation(budget)  # of each row
        return ValidationMeans(
            quality=float(mean_of_rows(quality, policy.weight)),
            quality_se=standard_error(quality, policy.weight, policy.fold),
            cost=float(mean_of_rows(cost, policy.weight)),
            cost_se=standard_error(cost, policy.weight, policy.fold),
        )

    def _plan(self, X, call):
        """Choose the base that is best at the budget, ask it, and decide what to buy.

        The state of the plan are the answers so far (`MemberAnswers`).
        """
        options = self._options_at(call.budget, call.exclude)
        policy = options.policy
        answers = MemberAnswers(self, X)
        # If the budget is too small, the error comes before any member is called.
        check_affordable(call.budget, policy.least)
        estimates = policy.estimates(self._features_of_base(answers, X, options.base))
        plan = policy.decide(
            estimates,
            policy.planned,
            call.budget,
            draw=tie_draws(X, call.request_id),
            policy=self.policy,
        )
        return plan._replace(route=options.first + plan.route, state=answers)

    def _features_of_base(self, answers, X, base):
        """Ask the base about all rows, and return the features of its answers."""
        return self._features(answers.scores(base, np.arange(num_samples(X))))

    def predict_quality(self, X):
        """Estimate the quality of each choice from the answers of the base.

        The base is that of the parameter `budget`. It is called about all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_samples, n_choices)
            NaN for choices of other bases.
        """
        check_is_fitted(self)
        X = self._check_rows(X)
        options = self._options_at(check_budget(self.budget))
        answers = MemberAnswers(self, X)
        features = self._features_of_base(answers, X, options.base)
        estimates = options.policy.estimates(features)
        quality = np.full((len(estimates), len(self.choices_)), np.nan)
        quality[:, options.first + options.policy.choice_positions] = estimates
        return quality

    # Streams --------------------------------------------------------------------------

    def _excludable_names(self):
        """Return the names that `exclude` may have: the members, then abstaining."""
        names = list(self._members.names)
        return names if self.abstain_quality_ is None else [*names, ABSTAIN_NAME]

    def request_policy(self, budget, exclude=()):
        """Return the `RequestPolicy` for requests that come one by one.

        Parameters
        ----------
        budget : float
            Mean budget per request, in the unit of `costs`.

        exclude : sequence of str, default=()
            Names of members that are not offered.

        Returns
        -------
        RequestPolicy
            All requests have the same base. It is asked in order to decide, and the
            choices after it are offered.
        """
        check_is_fitted(self)
        options = self._options_at(budget, exclude)
        return PricedRequests(
            options.policy,
            # Positions in `choices_`. The policy counts the choices of the base from 0.
            options.first + options.policy.choice_positions,
            compute_inputs=partial(self._ask_base, options),
            excludable=self._excludable_names(),
            asked_first=[self._members.names[options.base]],
        )

    def _ask_base(self, options, X, positions):
        """Ask a base about the rows, and return features of answers (`DecisionInputs`).

        Parameters
        ----------
        options : BaseOptions
            The choices of the base.

        X : indexable
            The rows.

        positions : ndarray of int
            Choices that are offered. The features do not depend on them.
        """
        answers = MemberAnswers(self, X)
        features = self._features_of_base(answers, X, options.base)
        # The answer of the base alone is paid for already, so that its plan costs 0.
        base_alone = Plan(
            route=np.array([options.first]), cost=np.zeros(1), state=answers, X=X
        )
        answer = self._answer(base_alone, "predict")[0]
        return DecisionInputs(features, answers, {options.first: answer})

    # Attributes -----------------------------------------------------------------------

    @property
    def mean_quality_(self):
        """Mean quality of each choice on the rows of `fit`, shape (n_choices,)."""
        check_is_fitted(self)
        means = []
        for options in self._options:
            policy = options.policy
            means.append(np.average(policy.quality, axis=0, weights=policy.weight))
        return np.concatenate(means)

    @property
    def choice_costs_(self):
        """Cost of each choice by the present `costs`: the sum over its members."""
        member_costs = self._members.costs_now(self.costs, self.estimators)
        return costs_of_choices(self.choice_members_, member_costs)

    @property
    def base_(self):
        """Name of the base that is chosen at the constructor's budget."""
        check_is_fitted(self)
        return self._members.names[self._options_at(check_budget(self.budget)).base]

    @property
    def delta_(self):
        """Margin at the constructor's budget: the share of it that is left unspent."""
        return self._policy().margin


def qualities_alone(options_by_base):
    """Return the quality of each row if one service answers, a dict by its position.

    `options_by_base` is a dict from a base to its options. A service alone may be an
    option of several bases: then its answers are equal.
    """
    alone = {}
    for base, options in options_by_base.items():
        for option in options:
            # The base alone, or an add-on that is not combined with the base.
            if option.service == base or option.weight == 0:
                alone[option.service] = option.row_quality
    return alone


def search_delta(policy, budget):
    """Return the best delta, the share of the budget to leave unspent.

    It is searched on validation rows, as in section 4.2 of the paper. Candidates are
    ``alpha * log(N) / N`` for alpha in -10, ..., 10. The candidate with the best
    quality on held-out halves of the log is taken, among those that keep the budget
    there. If no candidate keeps the budget, the largest is taken. Without a budget, or
    with too few rows, delta is 0.

    Parameters
    ----------
    policy : Policy
        Its margin, the share of the budget that it leaves unspent, is 0.
    budget : float
        Mean cost per row, the base included. Infinity is no budget.
    """
    n_rows = len(policy.estimate)
    if not np.isfinite(budget) or n_rows < _MIN_ROWS_FOR_DELTA:
        return 0.0
    # Weights of the rows with mean 1: `weight`, in which None weights all alike, for
    # `assignment_path`, and the array `row_weight` for the sums below.
    weight = None
    row_weight = np.ones(n_rows)
    if policy.weight is not None:
        weight = policy.weight / policy.weight.mean()
        row_weight = weight
    alphas = np.arange(_MAX_ALPHA, -_MAX_ALPHA - 1, -1)
    deltas = alphas * np.log(n_rows) / n_rows
    # Delta is the share of the budget that is left unspent, at most all of it.
    deltas = deltas[deltas <= 1]
    halves = np.array_split(np.random.default_rng(0).permutation(n_rows), 2)
    # Means over all rows for each delta. Each half adds the sum over its rows, divided
    # by the number of all rows.
    cost = np.zeros(len(deltas))
    quality = np.zeros(len(deltas))
    for train, test in (halves, halves[::-1]):
        path = assignment_path(
            policy.estimate[train],
            policy.planned,
            weight=weight_of_rows(weight, train),
        )
        for position, delta in enumerate(deltas):
            addon_budget = (1 - delta) * (budget - policy.deciding_cost)
            # The first budget of the path is that of its cheapest plan.
            price = path.price(max(addon_budget, path.budgets[0]))
            choice = choose_at_price(policy.estimate[test], policy.planned, price)
            row_cost = policy.deciding_cost + policy.planned[choice]
            row_quality = policy.quality[test, choice]
            cost[position] += (row_weight[test] * row_cost).sum() / n_rows
            quality[position] += (row_weight[test] * row_quality).sum() / n_rows
    # -inf: at this delta the held-out rows cost more than the budget.
    allowed_quality = np.where(affords(budget, cost), quality, -np.inf)
    # If no delta keeps the budget, the first is taken, which is the largest.
    return float(deltas[int(allowed_quality.argmax())])
