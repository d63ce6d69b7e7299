"""FrugalMCT: a base service, then at most one add-on, and both combined."""

from typing import NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skroute.assignment import assignment_path, choose_at_price
from skroute.base import Plan, affords, check_affordable, check_budget
from skroute.base._calls import EXCLUDE, REQUEST_ID
from skroute.base._inspection import ABSTAIN_NAME
from skroute.routing.from_answers._combining import (
    GRID,
    CombiningRouter,
    answer_features,
    possible_bases,
    search_combination,
    search_threshold,
)
from skroute.routing.parts._estimates import (
    answers_forest,
    rows_and_others,
    with_weights,
)
from skroute.routing.parts._learn import learn_policy, what_is_behind
from skroute.routing.parts._log import Log, kept_choices
from skroute.routing.parts._mixtures import best_of, mean_of_rows
from skroute.routing.parts._policy import Policy, Validated
from skroute.utils._compat import HasMethods, Interval, Real, StrOptions, num_samples
from skroute.utils._row_hash import tie_draws
from skroute.utils._statistics import standard_error
from skroute.utils._validation import warn

# Rows that a tree of the forest on answers sees: more take seconds and decide alike.
_MOST_ROWS = 8_000


class BaseOptions(NamedTuple):
    """What can be bought after one base.

    `first` is the position of its first choice, from which the policy counts.
    """

    base: int
    first: int
    policy: Policy


def addon_options(
    scores, base, target, accuracy, weights, thresholds, labels=None, row_weight=None
):
    """What a row can buy once its base has answered; option 0 is the base alone.

    Returns the service that is bought (for option 0 the base), w of the base in the combined
    scores, theta, and how accurate each option is on each row. `labels` are the answers of each
    service where it answers alone; None takes its best scores. Each add-on is combined with the
    best w of all rows, as in the paper. That w is best on average, which is where the base is
    sure; rows that buy are those where it is not, so that, if 0 is a candidate for w, the add-on
    alone is an option as well.
    """
    if labels is None:
        labels = [None] * len(scores)
    theta, per_row = search_threshold(
        scores[base],
        target,
        accuracy,
        thresholds=thresholds,
        labels=labels[base],
        row_weight=row_weight,
    )
    found = [(base, 1.0, theta, per_row)]
    for k, addon in enumerate(scores):
        if k == base:
            continue
        combined = search_combination(
            scores[base],
            addon,
            target,
            accuracy,
            weights=weights,
            thresholds=thresholds,
            labels=(labels[base], labels[k]),
            row_weight=row_weight,
        )
        found.append((k, *combined))
        if min(weights) == 0 and combined[0] > 0:
            alone = search_threshold(
                addon,
                target,
                accuracy,
                thresholds=thresholds,
                labels=labels[k],
                row_weight=row_weight,
            )
            found.append((k, 0.0, *alone))
    addons, chosen, thetas, columns = zip(*found)
    return np.array(addons), chosen, thetas, np.column_stack(columns)


class FrugalMCTClassifier(CombiningRouter):
    r"""Ask a base service, then at most one add-on, and combine both answers (FrugalMCT).

    FrugalMCT [1]_. Every row goes to the base. From its scores a quality estimator
    predicts :math:`\hat a_k(x)`, how accurate the answer combined from the base and
    service k would be (k = base: the base alone). The row then buys

    .. math:: \arg\max_k \; \hat a_k(x) - p\, c_k,

    with the price :math:`p` learned so that the mean cost meets the budget. The combined
    scores are :math:`w \cdot base + (1 - w) \cdot addon`; the answer is the best label or,
    where y is an indicator matrix, the labels above :math:`\theta`.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The services, as in :class:`FrugalMLClassifier`. A label that one does not name has the
        score 0.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each service. ``"time"`` measures seconds per sample in `fit`.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`, the base included. None is unlimited.
        Raising it buys an add-on for more rows, as long as one gains: a base may need less
        than the budget, and what it leaves is not spent. It is spent as far as held-out
        rows show a gain beyond noise.

    base : str, default="auto"
        Name of the service that every row goes to first. ``"auto"`` takes, at the budget
        asked for, the base with the best out-of-sample accuracy or, within one standard
        error of it, one that needs less than the budget; one estimator is then fitted for each
        service.

    quality_estimator : multi-output regressor, default=None
        Predicts the accuracy of each combination from the base's answer. None takes a
        random forest of 30 to 100 trees (more where rows are few), each grown on up to 8,000
        rows. Its training rows are estimated out of sample: from ``oob_prediction_`` where the
        fitted estimator has it, else by cross-validation.
        :class:`~sklearn.dummy.DummyRegressor` is the ablation that the paper calls DAP.

    weight : float or "auto", default="auto"
        w, the weight of the base in the combined scores. ``"auto"`` takes the best of
        0, 0.1, ..., 1 for each base and add-on by accuracy on training rows. 0 answers
        with the add-on alone.

    threshold : float or "auto", default="auto"
        theta, above which a combined score names a label; unused for single labels.
        ``"auto"`` searches 0, 0.1, ..., 1 together with `weight`. Raising it names fewer
        labels.

    delta : float or "auto", default=0.0
        The price is learned for ``1 - delta`` of what the budget leaves after the base,
        as a margin against overspending. ``"auto"`` searches
        ``alpha * log(n) / n`` for alpha in -10, ..., 10 on held-out halves.

    policy : {"online", "batch"}, default="online"
        ``"online"`` decides each row alone by the price; the budget holds on average.
        ``"batch"`` (the paper's offline) solves the assignment for the rows given; the
        budget is a hard cap on them.

    quality : str, mapping, array-like or callable, default="accuracy"
        What an answer is worth, as in :class:`FrugalMLClassifier`.

    abstain_cost : float, default=None
        What it costs, in units of `quality`, to abstain from a row, so that a person answers it,
        as in :class:`FrugalMLClassifier`. None never does. If it is higher, fewer rows abstain.

    abstain_label : object, default=None
        What `predict` gives for a row that abstains; no class may have this label. None takes
        ``"abstain"`` where labels are texts and -1 where they are numbers.

    cv : int, splitter or iterable, default=5
        Folds that make the members' answers, and the estimates where needed,
        out-of-sample.

    n_jobs : int, default=None
        Members, and trees of the default `quality_estimator`, fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels; the positions of the labels where y is an indicator matrix.

    choices_ : list of str
        What `route` indexes: for each possible base, the base alone ("cnn"), combined
        with an add-on ("cnn + ocr"), and the add-on's answer after the base's was not
        enough ("cnn > ocr"); with an `abstain_cost` also abstaining after it
        ("cnn > abstain").

    choice_costs_ : ndarray of shape (n_choices,)
        Cost of each choice, the base included.

    choice_weights_ : ndarray of shape (n_choices, n_members)
        Combiner weights.

    choice_thresholds_ : ndarray of shape (n_choices,)
        theta; where y is an indicator matrix.

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

    validation_quality_, validation_cost_, validation_quality_se_, validation_cost_se_ : float
        Mean quality and cost of the cross-fitted decisions at `budget`, each at a price and after
        a base that was learned without the part of the rows that it is in; and their standard
        errors, as estimates for new rows.

    abstain_quality_ : float or None
        Quality of a row that abstains. None if no row can abstain.

    n_features_in_, feature_names_in_ : int, ndarray of shape (`n_features_in_`,)
        Number and names of the features seen during `fit`, where X has them.

    See Also
    --------
    SequentialRouterClassifier : May buy more than one add-on.
    FrugalMLClassifier : One threshold per label instead of a quality estimator.
    OccamRouterClassifier : Decides from the row itself, before any service is asked.

    Notes
    -----
    There is no `random_state`: set that of the members and of a `quality_estimator` of your own.

    ``fit(X, y, sample_weight=...)`` weights rows as in :class:`OccamRouterClassifier`: in the fit
    of members, in combinations and prices, and in the estimates of a `quality_estimator` whose
    `fit` takes weights.

    A row that one member answers alone gets what that member predicts, by a decision threshold of
    its own too. Several labels per row are those above `choice_thresholds_` in any case.
    `predict_proba` is the mean of the probabilities of the members, weighted by
    `choice_weights_`; the label of combined answers is its most probable one.

    The paper has one combiner for a base and an add-on. With ``weight="auto"`` each add-on
    is offered twice, at the same cost: combined with the base, and alone; once, where the
    best weight of the base is 0.

    `route` and `predict_cost` ask the base, since its answer is what decides.

    `costs` can be changed after `fit`, without a new fit: the dual price of each base's options
    is computed again from stored estimates. ``exclude`` of a call takes names of members: they are
    asked neither as base nor as add-on (``"abstain"``: every row is answered).

    References
    ----------
    .. [1] L. Chen, M. Zaharia, J. Zou, "Efficient Online ML API Selection for Multi-Label
       Classification Tasks", ICML 2022, sections 4.1 to 4.4.

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
    >>> router.score(X_test, y_test) > router.named_estimators_.bayes.score(X_test, y_test) + 0.03
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
    _new_costs_act_at_once = True

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
        self.n_jobs = n_jobs

    # Fit ------------------------------------------------------------------------------------

    def _learn(self, X, answers):
        names, target = answers.names, answers.target
        scores, labels = self._read(answers)
        grids = [
            GRID if one == "auto" else [one] for one in (self.weight, self.threshold)
        ]
        row_weight = answers.weight
        quality = self._objective_of(self._target).bound(target, row_weight).of
        budget, costs = check_budget(self.budget), self._members.costs_of_fit
        bases = possible_bases(self.base, names)
        offered = [
            addon_options(
                scores,
                base,
                target,
                quality,
                *grids,
                labels=labels,
                row_weight=row_weight,
            )
            for base in bases
        ]
        self.abstain_quality_ = self._quality_of_abstaining(
            accuracies for *_, accuracies in offered
        )
        estimator = self.quality_estimator
        if estimator is None:
            estimator = answers_forest(len(target), _MOST_ROWS, self.n_jobs)
            estimator, fit_params = with_weights(estimator, row_weight)
        else:
            estimator, fit_params = with_weights(estimator, answers.given_weight)
        self._options, choices, alone = [], [], {}
        for base, (addons, weights, thresholds, accuracies) in zip(bases, offered):
            log = Log(
                [names[k] for k in addons], accuracies, np.r_[0.0, costs[addons[1:]]]
            )
            if self.abstain_quality_ is not None:
                log = log.with_abstaining(
                    float(accuracies.max()) - self.abstain_quality_
                )
            features = answer_features([scores[base]], multilabel=self._multilabel)
            policy = learn_policy(
                estimator,
                features,
                log,
                answers.folds,
                weight=row_weight,
                n_jobs=self.n_jobs,
                fit_params=fit_params,
            )
            # Combined answers were chosen on the rows that judge: their gains need a proof.
            policy = policy.at(deciding=float(costs[base]), trusts_estimates=False)
            delta = self.delta
            if delta == "auto":
                delta = search_delta(policy, budget) if budget >= costs[base] else 0.0
            policy = policy.at(margin=float(delta))
            self._options.append(BaseOptions(base, len(choices), policy))
            for k, weight, theta, accuracy in zip(
                addons, weights, thresholds, accuracies.T
            ):
                if k == base or weight == 0:
                    alone[k] = accuracy
                pair = f"{names[base]} {'+' if weight else '>'} {names[k]}"
                name = names[k] if k == base else pair
                choices.append((name, base, k, weight, theta))
            if self.abstain_quality_ is not None:
                choices.append(
                    (f"{names[base]} > {ABSTAIN_NAME}", base, base, 1.0, np.nan)
                )
        unit = np.eye(len(names))
        self._set_choices(
            [name for name, *_ in choices],
            [(unit[base] + unit[k]) > 0 for _, base, k, _, _ in choices],
            [
                weight * unit[base] + (1 - weight) * unit[k]
                for _, base, k, weight, _ in choices
            ],
            [theta for *_, theta in choices],
        )
        if affordable := [k for k in alone if affords(budget, costs[k])]:
            single = max(affordable, key=lambda k: mean_of_rows(alone[k], row_weight))
            routed, _ = self._validation(max(budget, self._smallest_budget()))
            if message := what_is_behind(
                alone[single], routed, names[single], row_weight
            ):
                warn(message)

    # Decisions ------------------------------------------------------------------------------

    def _options_now(self, exclude=None):
        """What can be bought after each base, at the costs of now, without some members."""
        costs, found = self._member_costs, []
        left, _ = kept_choices(self._excludable(), 1, exclude, None)
        members = np.arange(len(costs))
        down = np.setdiff1d(members, left)
        for options in self._options:
            if options.base in down:
                continue
            used = self.choice_members_[options.first :][: len(options.policy.sigma)]
            others = used & (members != options.base)
            # What an option adds to the base is the cost of its add-on.
            policy = options.policy.at(
                costs=others @ costs, deciding=float(costs[options.base])
            )
            free = ~used[:, down].any(axis=1)
            if self.abstain_quality_ is not None and len(members) not in left:
                free[-1] = False
            found.append(
                options._replace(policy=policy.restricted(np.flatnonzero(free)))
            )
        if not found:
            raise ValueError(
                f"exclude={exclude!r} leaves no base: base={self.base!r} of {self.member_names_!r}."
            )
        return found

    def _options_at(self, budget, exclude=None):
        """Those of the base with the best validated quality among bases that a budget allows."""
        options = self._options_now(exclude)
        # A total that does not pay for the cheapest base is refused by the stream.
        budget = max(budget, min(each.policy.least for each in options))
        allowed = [each for each in options if affords(budget, each.policy.least)]
        if len(allowed) == 1:
            return allowed[0]
        quality, rows = [], []
        for each in allowed:
            budgets, found = each.policy.curve
            means = [mean_of_rows(v.quality, each.policy.weight) for v in found]
            quality.append(np.interp(budget, budgets, means))
            rows.append(found[-1].quality)
        weight = allowed[0].policy.weight
        return allowed[
            best_of(np.array(quality), _spent(allowed, budget), rows, weight)
        ]

    def _policy(self):
        check_is_fitted(self)
        return self._options_at(self._effective_budget(None)).policy

    def _validation(self, budget):
        """Quality and cost of each row; the base of each part is the best one on the others."""
        options = [
            each for each in self._options_now() if affords(budget, each.policy.least)
        ]
        found = [each.policy.validate(budget) for each in options]
        quality = np.array([each.quality for each in found])
        cost = np.array([each.cost for each in found])
        part, best = options[0].policy.fold, np.empty(quality.shape[1], dtype=np.int64)
        weight = options[0].policy.weight
        for rows, others in rows_and_others(part):
            known = quality[:, others]
            own_weight = None if weight is None else weight[others]
            means = mean_of_rows(known, own_weight)
            best[rows] = best_of(means, _spent(options, budget), known, own_weight)
        rows = np.arange(len(best))
        return quality[best, rows], cost[best, rows]

    def _validated(self, budget):
        policy, result = self._options[0].policy, []
        for rows in self._validation(budget):
            error = standard_error(rows, policy.weight, policy.fold)
            result += [float(mean_of_rows(rows, policy.weight)), error]
        return Validated(*result)

    def _plan(self, X, call):
        options = self._options_at(call.budget, call.exclude)
        policy = options.policy
        asked = self._asked_answers(X)
        # Before any member is called.
        check_affordable(call.budget, policy.least)
        estimates = policy.estimates(self._base_features(asked, X, options.base))
        plan = policy.decide(
            estimates,
            policy.planned,
            call.budget,
            draw=tie_draws(X, call.request_id),
            policy=self.policy,
        )
        return plan._replace(route=options.first + plan.route, state=asked)

    def _base_features(self, asked, X, base):
        scores = asked.scores(base, np.arange(num_samples(X)))
        return answer_features([scores], multilabel=self._multilabel)

    def predict_quality(self, X):
        """Estimated quality of each choice after the base of `budget`, which is called.

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
        options = self._options_at(self._effective_budget(None))
        values = options.policy.estimates(
            self._base_features(self._asked_answers(X), X, options.base)
        )
        estimate = np.full((len(values), len(self.choices_)), np.nan)
        estimate[:, options.first + options.policy.kept] = values
        return estimate

    # Streams --------------------------------------------------------------------------------

    def _excludable(self):
        names = list(self.member_names_)
        return names if self.abstain_quality_ is None else [*names, ABSTAIN_NAME]

    def _stream_policy(self, budget, excluded):
        options = self._options_at(budget, excluded)
        return options.policy, options.first + options.policy.kept

    def _asked_first(self, kept):
        return [self.member_names_[self._options_of(kept).base]]

    def _options_of(self, kept):
        """Those that some choices are of."""
        return next(each for each in reversed(self._options) if each.first <= kept[0])

    def _look(self, X, kept):
        base, first, _ = self._options_of(kept)
        asked = self._asked_answers(X)
        features = self._base_features(asked, X, base)
        alone = Plan(np.array([first]), np.zeros(1), asked, X=X)
        return features, asked, {first: self._answer(alone, "predict")[0]}

    # Attributes -----------------------------------------------------------------------------

    @property
    def base_(self):
        """Name of the base at the constructor's budget."""
        check_is_fitted(self)
        return self.member_names_[self._options_at(self._effective_budget(None)).base]

    @property
    def delta_(self):
        """Delta at the constructor's budget."""
        return self._policy().margin


def _spent(options, budget):
    """What each base makes of a budget: some need less."""
    most = [each.policy.deciding + each.policy.path.budgets[-1] for each in options]
    return np.minimum(budget, most)


def search_delta(policy, budget):
    """Delta among ``alpha * log(N) / N``, alpha in -10, ..., 10, on validation rows (section 4.2).

    The best quality on held-out halves among those that keep the budget there.
    """
    estimate, costs, fixed = policy.estimate, policy.planned, policy.deciding
    n = len(estimate)
    weight = (
        np.ones(n) if policy.weight is None else policy.weight / policy.weight.mean()
    )
    if not np.isfinite(budget) or n < 4:
        return 0.0
    deltas = np.arange(10, -11, -1) * np.log(n) / n
    deltas = deltas[deltas <= 1]
    halves = np.array_split(np.random.default_rng(0).permutation(n), 2)
    cost, value = np.zeros(len(deltas)), np.zeros(len(deltas))
    for learn, check in (halves, halves[::-1]):
        own_weight = None if policy.weight is None else weight[learn]
        path = assignment_path(estimate[learn], costs, weight=own_weight)
        for j, delta in enumerate(deltas):
            room = max((1 - delta) * (budget - fixed), path.budgets[0])
            choice = choose_at_price(estimate[check], costs, path.price(room))
            cost[j] += (weight[check] * (fixed + costs[choice])).sum() / n
            value[j] += (weight[check] * policy.quality[check, choice]).sum() / n
    allowed = affords(budget, cost)
    # Where none does, the largest.
    return float(deltas[int(np.where(allowed, value, -np.inf).argmax())])
