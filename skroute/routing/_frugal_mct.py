"""FrugalMCT: a base service, then at most one add-on, and both combined."""

import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from skroute.base import Plan, affords, check_affordable, check_budget
from skroute.routing._abstaining import (
    ABSTAIN_COST,
    ABSTAIN_NAME,
    AbstainingMixin,
    Beside,
    quality_of_handing,
    with_handed,
)
from skroute.routing._answers import Answers, CombiningRouter, check_base, possible_bases
from skroute.routing._combiner import GRID, search_combination, search_threshold
from skroute.routing._draws import tie_draws
from skroute.routing._mixtures import best_of, search_delta
from skroute.routing._predictors import answer_features, fit_predictor, predict_values
from skroute.routing._priced import PricedPolicy
from skroute.routing._priced_views import PricedMixin
from skroute.routing._qualities import QUALITY_OF_LABELS, LabelQualityMixin
from skroute.routing._stream import Look
from skroute.routing._validation import find_repeats, parts_of
from skroute.utils._compat import HasMethods, Interval, Real, StrOptions, num_samples


class BaseTrade(NamedTuple):
    """What can be bought after one base.

    Attributes
    ----------
    base : int
        Position of the member.

    first : int
        Index of its first option, the base alone, into ``choices_``.

    policy : PricedPolicy
        Over its options that are left; the base is the cost of deciding, delta the margin.

    kept : ndarray of int
        Which of its options these are.
    """

    base: int
    first: int
    policy: PricedPolicy
    kept: NDArray[np.int64]


def _own_values(fitted, n_options, features):
    """What the fitted estimator makes of some rows, as `Repeats` holds it."""
    return predict_values(fitted, features, n_options), None


class AddonOptions(NamedTuple):
    """What a row can buy once its base has answered; option 0 is the base alone.

    Attributes
    ----------
    addons : ndarray of shape (n_options,), dtype=int64
        Service that is bought; for option 0 the base.

    weights : ndarray of shape (n_options,)
        Weight w of the base in the combined scores.

    thresholds : list of float or None
        theta of each option.

    accuracies : ndarray of shape (n_samples, n_options)
        Accuracy of each option's answer on each row.
    """

    addons: NDArray[np.int64]
    weights: NDArray[np.float64]
    thresholds: list
    accuracies: NDArray[np.float64]


def addon_options(scores, base, target, accuracy, weights, thresholds):
    """Combiners of a base with each add-on, and how accurate they are on each row.

    Each add-on is combined with the best w of all rows, as in the paper. That w is best on
    average, which is where the base is sure; rows that buy are those where it is not, so
    that, if 0 is a candidate for w, the add-on alone is an option as well.

    Parameters
    ----------
    scores : sequence of ndarray of shape (n_samples, n_labels)
        One for each service.

    base : int

    target : ndarray
        Indicator matrix, or positions of the true labels.

    accuracy : callable
        ``accuracy(target, answers) -> ndarray of shape (n_samples,)``.

    weights, thresholds : sequence of float
        Candidates for w and theta.

    Returns
    -------
    AddonOptions
    """
    theta, per_row = search_threshold(scores[base], target, accuracy, thresholds)
    found = [(base, 1.0, theta, per_row)]
    for k, addon in enumerate(scores):
        if k == base:
            continue
        combined = search_combination(scores[base], addon, target, accuracy, weights, thresholds)
        found.append((k, *combined))
        if min(weights) == 0 and combined[0] > 0:
            found.append((k, 0.0, *search_threshold(addon, target, accuracy, thresholds)))
    addons, chosen, thetas, columns = zip(*found)
    return AddonOptions(np.array(addons), np.array(chosen), list(thetas), np.column_stack(columns))


class FrugalMCTClassifier(PricedMixin, AbstainingMixin, LabelQualityMixin, CombiningRouter):
    r"""Ask a base service, look at its answer, buy at most one more, combine both.

    FrugalMCT [1]_. Every row goes to the base. From its scores an accuracy estimator
    predicts :math:`\hat a_k(x)`, how accurate the answer combined from the base and
    service k would be (k = base: the base alone). The row then buys

    .. math:: \arg\max_k \; \hat a_k(x) - p\, c_k,

    with the price :math:`p` learned so that the mean cost meets the budget. The combined
    scores are :math:`w \cdot base + (1 - w) \cdot addon`; the answer is the best label or,
    where y is an indicator matrix, the labels above :math:`\theta`.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The members, with ``predict_proba``. Each is cloned and fitted; a fitted one is
        passed as :class:`~sklearn.frozen.FrozenEstimator`, and then the rows given to
        `fit` should be new to it. A label that a service does not name has the score 0.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each service. ``"time"`` measures seconds per sample in `fit`.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`, the base included. None is
        unlimited. Raising it buys an add-on for more rows, as long as one gains: a base may need
        less than the budget, and what it leaves is not spent.

    base : str, default="auto"
        Name of the service that every row goes to first. ``"auto"`` takes, at the budget
        asked for, the base with the best out-of-sample accuracy or, within one standard
        error of it, one that needs less than the budget; one estimator is then fitted for each
        service.

    quality_estimator : multi-output regressor, default=None
        Predicts the accuracy of each combination from the base's answer. None takes a
        random forest of 30 to 100 trees (more where rows are few) with up to 150 rows per
        leaf. Its training rows are estimated out of sample: from ``oob_prediction_`` where the
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
        What an answer is worth: ``"accuracy"`` (of several labels those in common by those in
        either), ``"balanced_accuracy"``, a cost matrix, or a function of true and given labels
        to one number per row, higher is better, as in :class:`OccamRouterClassifier`. What is
        no mean over the labels of rows is refused.

    abstain_cost : float, default=None
        What it costs, in units of `quality`, to hand a row over to a person instead of answering
        it: the row counts as the best quality of any answer in `fit` minus this. The
        members that were asked before are paid, and a base is always asked.
        `predict` marks it by None (NaN in an indicator matrix), `predict_proba` by NaN. None
        never hands over. Raising it hands fewer rows over.

    cv : int, splitter or iterable, default=5
        Folds that make the members' answers, and the estimates where needed,
        out-of-sample.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels; the positions of the labels where y is an indicator matrix.

    choices_ : list of str
        What `route` indexes: for each possible base, the base alone ("cnn"), combined
        with an add-on ("cnn + ocr"), and the add-on's answer after the base's was not
        enough ("cnn > ocr"); with an `abstain_cost` also handing over after it
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

    quality_estimators_ : list of estimators
        One fitted for each possible base.

    validation_quality_ : float
        Mean quality of the cross-fitted decisions at `budget`, each at a price,
        and after a base, that was learned without the part of the rows that it is in.

    validation_cost_ : float
        What they cost on average.

    validation_quality_se_, validation_cost_se_ : float
        Standard errors of the two, as estimates for new rows.

    abstain_quality_ : float or None
        What a row counts as that is handed over; None where none is.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    SequentialRouterClassifier : May buy more than one add-on.
    FrugalMLClassifier : One threshold per label instead of an accuracy estimator.
    OccamRouterClassifier : Decides from the row itself, before any service is asked.

    Notes
    -----
    The paper has one combiner for a base and an add-on. With ``weight="auto"`` each add-on
    is offered twice, at the same cost: combined with the base, and alone; once, where the
    best weight of the base is 0.

    `route` and `predict_cost` ask the base, since its answer is what decides.

    New `costs` act at once: the price of each base's options is solved for anew from stored
    estimates. `predict` and its like take ``exclude``, a list of names of members that are down:
    neither as base nor as add-on are they asked, and the price is that of what is left
    (``"abstain"`` says that every row is to be answered); and
    ``request_id``, of shape (n_samples,), what the draws of ties are made of in place of the row.

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

    _acts_at_once = ("budget", "policy", "costs")
    _call_context = ("exclude", "request_id")
    _parameter_constraints: dict = {
        **CombiningRouter._parameter_constraints,
        "base": [str],
        "cv": ["cv_object"],
        "quality_estimator": [HasMethods(["fit", "predict"]), None],
        "weight": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "threshold": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "delta": [Interval(Real, None, 1, closed="left"), StrOptions({"auto"})],
        "policy": [StrOptions({"online", "batch"})],
        "abstain_cost": ABSTAIN_COST,
        "quality": QUALITY_OF_LABELS,
    }

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
        self.cv = cv
        self.n_jobs = n_jobs

    def _check(self, X, members):
        super()._check(X, members)
        check_base(self.base, members)

    def _least_cost(self, costs, names):
        return float(costs[possible_bases(self.base, names)].min())

    def _learn(self, X, target, answers):
        names, scores = answers.names, answers.responses
        weights = GRID if self.weight == "auto" else [self.weight]
        thresholds = GRID if self.threshold == "auto" else [self.threshold]
        accuracy = self._rows_quality(target)
        budget = check_budget(self.budget)
        labels, combiners, all_thresholds, alone = [], [], [], {}
        self._trades, unit = [], np.eye(len(names))
        bases = possible_bases(self.base, names)
        offered = [
            addon_options(scores, base, target, accuracy, weights, thresholds) for base in bases
        ]
        known = np.array([options.accuracies.max() for options in offered])
        self.abstain_quality_ = handed = quality_of_handing(known, self.abstain_cost)
        parts = parts_of(answers.folds, len(target))
        for base, options in zip(bases, offered):
            realised = options.accuracies
            features = self._features(scores[base])
            fitted, estimate = fit_predictor(
                self.quality_estimator, features, realised, answers.folds
            )
            fixed, added = self.costs_[base], np.r_[0.0, self.costs_[options.addons[1:]]]
            if handed is not None:
                fitted, added = Beside(fitted, handed), with_handed(added, handed)
                estimate, realised = fitted.table(estimate), fitted.table(realised)
            costs, delta = fixed + added, self.delta
            if delta == "auto":
                affordable = budget >= fixed
                delta = search_delta(estimate, realised, costs, fixed, budget) if affordable else 0
            repeats = find_repeats(features, parts, partial(_own_values, fitted, len(added)))
            policy = PricedPolicy(
                fitted,
                estimate,
                realised,
                added,
                deciding=fixed,
                margin=float(delta),
                repeats=repeats,
            )
            self._trades.append(BaseTrade(base, len(labels), policy, np.arange(len(added))))
            for column, (k, weight) in enumerate(zip(options.addons, options.weights)):
                if k == base or weight == 0:
                    alone[k] = realised[:, column]
                pair = f"{names[base]} {'+' if weight else '>'} {names[k]}"
                labels.append(names[k] if k == base else pair)
                combiners.append((base, k, weight))
            all_thresholds += options.thresholds
            if handed is not None:
                labels.append(f"{names[base]} > {ABSTAIN_NAME}")
                combiners.append((base, base, 1.0))
                all_thresholds.append(np.nan)
        self._set_choices(
            labels,
            [(unit[base] + unit[k]) > 0 for base, k, _ in combiners],
            [weight * unit[base] + (1 - weight) * unit[k] for base, k, weight in combiners],
            all_thresholds,
        )
        self._warn_if_a_single_service_is_better(alone, budget)

    def _warn_if_a_single_service_is_better(self, alone, budget):
        """Say so when one affordable service is better on validation rows, beyond noise."""
        affordable = [k for k in alone if affords(budget, self.costs_[k])]
        if not affordable:
            return
        single = max(affordable, key=lambda k: alone[k].mean())
        found = self.validation_quality_
        error = alone[single].std() / np.sqrt(len(alone[single]))
        if alone[single].mean() - found > 1.645 * error > 0:
            warnings.warn(
                f"On validation rows the quality {found:.4g} is below the "
                f"{alone[single].mean():.4g} of {self.member_names_[single]!r} alone, which fits "
                'the budget. Try base="auto", another quality_estimator, or use that member for '
                "all rows.",
                UserWarning,
                stacklevel=2,
            )

    def _features(self, scores):
        return answer_features([scores], multilabel=self._multilabel)

    def _trade(self, budget, exclude=None):
        """The base with the best validated quality among those that the budget allows.

        Within noise of it one that leaves some of the budget.
        """
        trades = self._trades_now(exclude)
        # A total that does not pay for the cheapest base is refused by the stream.
        budget = max(budget, min(trade.policy.deciding for trade in trades))
        allowed = [trade for trade in trades if affords(budget, trade.policy.deciding)]
        quality = np.array([np.interp(budget, *trade.policy.curve()) for trade in allowed])
        rows = [trade.policy.unlimited() for trade in allowed]
        return allowed[best_of(quality, _spent(allowed, budget), rows)]

    def _trades_now(self, exclude=None):
        """What can be bought after each base, at the costs of now, without some members."""
        costs, down = self.costs_, self._positions(exclude)
        found = []
        for trade in self._trades:
            used = self.choice_members_[trade.first :][: len(trade.kept)]
            if trade.base in down:
                continue
            policy = trade.policy.solved(0.0, self._added(trade, used, costs), costs[trade.base])
            free = ~used[:, down].any(axis=1)
            if ABSTAIN_NAME in (exclude or ()):
                # The last option of each base.
                free[-1] = False
            kept = np.flatnonzero(free)
            found.append(trade._replace(policy=policy.restricted(kept), kept=kept))
        if not found:
            raise ValueError(
                f"exclude={exclude!r} leaves no base: base={self.base!r} of {self.member_names_!r}."
            )
        return found

    def _added(self, trade, used, costs):
        """What each option adds to the base, as `fit` has it: the cost of its add-on."""
        added = np.zeros(len(used))
        for option, members in enumerate(used):
            others = np.flatnonzero(members)
            others = others[others != trade.base]
            added[option] = costs[others[0]] if len(others) else 0.0
        return added

    def _positions(self, exclude):
        """Positions of members that are down."""
        names = self.member_names_
        if isinstance(exclude, str):
            raise ValueError(f"exclude must be a list of names, got {exclude!r}.")
        known = names if self.abstain_quality_ is None else [*names, ABSTAIN_NAME]
        if unknown := [name for name in exclude or () if name not in known]:
            raise ValueError(f"exclude names {unknown!r}, which are not among {known!r}.")
        down = [names.index(name) for name in exclude or () if name in names]
        return np.array(down, dtype=np.int64)

    def _validation(self):
        """As elsewhere; the base of each part of the rows is the best one on the others."""
        check_is_fitted(self)
        budget = max(self._effective_budget(None), self._least())
        trades = [t for t in self._trades_now() if affords(budget, t.policy.deciding)]
        found = [trade.policy.validate(budget) for trade in trades]
        quality = np.array([each.quality for each in found])
        cost = np.array([each.cost for each in found])
        part, best = trades[0].policy.part, np.empty(quality.shape[1], dtype=np.int64)
        for number in np.unique(part):
            known = quality[:, part != number]
            best[part == number] = best_of(known.mean(axis=1), _spent(trades, budget), known)
        rows = np.arange(len(best))
        return quality[best, rows], cost[best, rows]

    def _trade_now(self):
        check_is_fitted(self)
        return self._trade(self._effective_budget(None))

    def _policy(self):
        return self._trade_now().policy

    def _least(self):
        return float(self.choice_costs_.min())

    @property
    def costs_(self):
        """Cost of each service's call, by the constructor's `costs` of now."""
        if not hasattr(self, "member_names_"):
            return self._costs_of_fit
        if not isinstance(self.costs, str):
            return self._costs_of(self.member_names_)
        if self._measured:
            return self._costs_of_fit
        raise ValueError(
            f"costs={self.costs!r} was set after fit, which measures them: fit again, or give "
            "the costs."
        )

    @costs_.setter
    def costs_(self, costs):
        vars(self).pop("member_names_", None)
        self._costs_of_fit, self._measured = costs, isinstance(self.costs, str)

    @property
    def choice_costs_(self):
        """Cost of each choice, the base included."""
        costs = self.costs_
        return np.array([costs[row].sum() for row in self.choice_members_])

    @choice_costs_.setter
    def choice_costs_(self, costs):
        # Computed from the costs of now.
        pass

    @property
    def base_(self):
        """Name of the base at the constructor's budget."""
        return self.member_names_[self._trade_now().base]

    @property
    def delta_(self):
        """Delta at the constructor's budget."""
        return self._policy().margin

    @property
    def quality_estimators_(self):
        """The accuracy estimators, one fitted for each possible base."""
        check_is_fitted(self)
        found = [trade.policy.estimator for trade in self._trades]
        return [part.estimator if isinstance(part, Beside) else part for part in found]

    def _plan(self, X, budget, exclude=None, request_id=None):
        trades = self._trades_now(exclude)
        check_affordable(budget, min(trade.policy.deciding for trade in trades))
        draw = tie_draws(X, request_id)
        trade = self._trade(budget, exclude)
        policy, answers = trade.policy, self._asked_answers(X)
        values = policy.values(self._base_features(answers, trade))
        plan = policy.decide(values, policy.planned, budget, policy=self.policy, draw=draw)
        return plan._replace(route=trade.first + trade.kept[plan.route], state=answers)

    def _base_features(self, answers, trade):
        rows = np.arange(num_samples(answers.X))
        return self._features(answers.ask(trade.base, rows))

    def _look(self, x, trade):
        answers = Answers(self, x)
        features = self._base_features(answers, trade)
        alone = Plan(np.array([trade.first]), np.array([trade.policy.deciding]), answers)
        answer = self._answer(x, alone, "predict")[0]
        return Look(features, {trade.first: answer}, answers)

    def predict_quality(self, X):
        """Estimated quality of each choice that the base leaves open; asks the base.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_samples, n_choices)
            Columns in the order of ``choices_``; NaN for the choices of other bases than
            ``base_``.
        """
        check_is_fitted(self)
        X = self._check_X(X)
        trade = self._trade_now()
        values = trade.policy.estimates(self._base_features(Answers(self, X), trade))
        estimate = np.full((len(values), len(self.choices_)), np.nan)
        estimate[:, trade.first : trade.first + values.shape[1]] = values
        return estimate


def _spent(trades, budget):
    """What each base makes of a budget: some need less."""
    most = [trade.policy.deciding + trade.policy.path.budgets[-1] for trade in trades]
    return np.minimum(budget, most)
