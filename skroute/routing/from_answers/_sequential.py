"""SequentialRouterClassifier: ask members while the next answer is worth its price."""

from typing import NamedTuple

import numpy as np

from skroute.assignment import assignment_path, choose_at_price
from skroute.assignment._induction import STOP
from skroute.base import Plan, check_affordable
from skroute.base._calls import REQUEST_ID
from skroute.base._inspection import ABSTAIN_NAME
from skroute.routing.from_answers._combining import (
    Choice,
    MemberAnswers,
    MixtureRouter,
    answer_features,
    estimator_on_answers,
    possible_bases,
    quality_of_abstaining,
    search_combinations,
)
from skroute.routing.from_answers._states import (
    StateEstimates,
    StateFit,
    StateLearner,
    StateValues,
    any_order,
    check_sets,
    learn_values,
    move_of,
)
from skroute.routing.parts._estimates import (
    cross_fit,
    predict_matrix,
    rows_and_others,
)
from skroute.routing.parts._members import members_by_name
from skroute.routing.parts._mixtures import (
    HeldOutRules,
    Mixture,
    best_mixture,
    limit_path,
    mean_of_rows,
    quality_less_luck,
    spread_prices,
    weight_of_rows,
)
from skroute.utils._compat import HasMethods, Integral, Interval
from skroute.utils._typing import NDArray

# Number of budgets, for each first member, whose best rule with at most one add-on is a
# candidate.
_N_ADDON_PRICES = 33
# Power that spreads the budgets of rules with at most one add-on (`spread_prices`).
# Most of them are small, since a little more money gains most where little is spent.
_ADDON_PRICES_POWER = 2.0
# Maximal number of training rows per tree. It bounds the time of `fit`: one forest is
# fitted per set of members.
_MAX_ROWS_PER_TREE = 2_000
# Maximal number of sets of members: 2**8 - 1, the sets of 8 members. It bounds the time
# of `fit`, since one forest is fitted per set.
_MAX_SETS = 255
# Penalty, in standard errors of its quality, of a rule that may buy more than one
# add-on. On splits of nine data sets, a half and a whole standard error are equally
# good. Without a penalty the luckiest of many candidates is taken for the best.
_PENALTY = 0.5
# Value of `Rule.price_index` for a rule that buys at most one add-on. It is not a
# position in `prices_`.
ONE_ADDON = -1
# Value of `_Step.next_state` for a row that ends and asks no further member.
_ENDED = -1


class Rule(NamedTuple):
    """The member that a row asks first, and the price at which it asks further.

    Attributes
    ----------
    start : int
        State after the member that is asked first.
    price : float
        Quality that an answer must bring for each unit of its cost.
    price_index : int
        Position of the price in ``prices_``, or `ONE_ADDON`.
    """

    start: int
    price: float
    price_index: int


class JudgedRule(NamedTuple):
    """A rule, and its cost and quality on the rows of `fit`, out of sample.

    Attributes
    ----------
    rule : Rule
    cost, quality : ndarray of shape (n_rows,)
        Cost and quality of each row under the rule. The cost includes all calls.
    """

    rule: Rule
    cost: NDArray[np.float64]
    quality: NDArray[np.float64]


class AddonValues(NamedTuple):
    """Choices after one first member if at most one add-on is bought.

    Attributes
    ----------
    choices : ndarray of int
        Positions of the choices that a row may end with.
    values : StateValues
        Regressor of the quality of these choices.
    """

    choices: NDArray[np.int64]
    values: StateValues


class _Step(NamedTuple):
    """Next state or final choice of each row in one state, arrays of shape (n_rows,).

    Attributes
    ----------
    next_state : ndarray of int
        State after the member that is asked, or `_ENDED`.
    choice : ndarray of int
        Choice of a row that ends. The choice of a row that asks has no meaning.
    """

    next_state: NDArray[np.int64]
    choice: NDArray[np.int64]


class _AnswersLearner(StateLearner):
    """Regressions of a router's quality estimator on the answers to the rows of `fit`.

    Parameters
    ----------
    router : SequentialRouterClassifier
        With its states and choices.
    scores : list of ndarray of shape (n_rows, n_labels)
        Scores of each member, out of fold.
    estimator : estimator
        Quality estimator, not fitted.
    fit_params : dict
        Parameters of the `fit` of `estimator`.
    folds : list of (ndarray, ndarray)
        Training and test rows.
    """

    def __init__(self, router, scores, estimator, fit_params, folds):
        self._router = router
        self._scores = scores
        self._estimator = estimator
        self._fit_params = fit_params
        self._folds = folds

    def fit(self, state, targets):
        """Fit the estimator in one state, and estimate the rows out of fold.

        Return a `StateFit`. `state` and `targets` are those of `StateLearner.fit`.
        """
        members = self._router._states.answering[state]
        scores = [self._scores[member] for member in members]
        fitted = cross_fit(
            self._estimator,
            self._router._features(scores, state),
            targets,
            self._folds,
            name="quality_estimator",
            memory=self._router.memory,
            n_jobs=self._router.n_jobs,
            fit_params=self._fit_params,
        )
        return StateFit(fitted.estimator, fitted.estimate)


class SequentialRouterClassifier(MixtureRouter):
    r"""Ask one member after another, while the next answer is worth its price.

    After each answer the row either stops, and is answered with the combination of all
    answers paid for (or with one of them, if that is estimated to be better), or asks
    the member whose next answer is worth most: the member k that maximises
    :math:`\hat V_{S \cup k}(x) - p\, c_k`, where :math:`S` are the members asked so far
    and :math:`\hat V` estimates, from their answers, the value of going on at the price
    :math:`p`, later purchases included.

    :math:`\hat V` is fitted by backward induction, from large sets of members to small
    ones, on their answers to training rows. There is a rule for each of several prices
    and each possible first member. These rules are compared out of sample with one
    another and with the rules of :class:`FrugalMCTClassifier`, which buy one add-on at
    most. For a budget the best rule, or a mixture of two, is used. If no rule lets rows
    abstain, a rule that may buy a second add-on has to be better by half a standard
    error.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The members, as in :class:`FrugalMLClassifier`. A label that a member does not
        name has the score 0.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member. ``"time"`` measures seconds per sample in `fit`.
        New costs act at the next `fit`.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`, all calls included. None is
        unlimited. Raising it buys more answers. It is spent as far as held-out rows
        show a gain beyond noise.

    base : str, default="auto"
        Name of the member that is asked first. ``"auto"`` chooses one, or mixes two, at
        the budget asked for.

    max_calls : int, default=3
        Members asked about one row at most. One regressor is fitted for each set of up
        to that many of m members, up to :math:`2^m - 1`. 2 allows one add-on.

    n_prices : int, default=12
        Number of prices that the sequential rules are fitted for. Raising it follows
        the budget more closely and fits regressors with more outputs.

    quality_estimator : multi-output regressor, default=None
        Estimates the value of stopping and of going on from the answers so far. None
        takes a forest as in :class:`FrugalMCTClassifier`, each tree grown on up to
        2,000 rows.

    quality : str, mapping, array-like or callable, default="accuracy"
        Quality of an answer, as in :class:`FrugalMLClassifier`. It must be a mean over
        the labels of rows.

    abstain_cost : float, default=None
        Cost of abstaining after any answer, in units of `quality`, as in
        :class:`FrugalMLClassifier`. None never abstains. If it is higher, fewer rows
        abstain.

    abstain_label : object, default=None
        Label of a row that abstains, as in :class:`FrugalMLClassifier`.

    cv : int, splitter or iterable, default=5
        Folds that make the members' answers out-of-sample, validate the rules, and make
        estimates out-of-sample as in :class:`FrugalMCTClassifier`. A splitter by groups
        gets them from `fit` as ``groups``, through metadata routing.

    memory : None, str or joblib.Memory, default=None
        Cache of fitted members and their out-of-fold answers, as in
        :class:`~sklearn.pipeline.Pipeline`. A str is the path of a directory. A search
        over `budget` or `costs` then fits each member once for the same rows. See
        :ref:`cached_members`.

    n_jobs : int, default=None
        Number of members, or of trees of the default `quality_estimator`, that are
        fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels; the positions of the labels if y is an indicator matrix.

    choices_ : list of str
        Names of the choices that `route` indexes: the sets of members that a row may
        end with, their answers combined ("cnn + ocr") or one of them preferred ("cnn +
        ocr > ocr"); with an `abstain_cost` also abstaining after them ("cnn + ocr >
        abstain").

    choice_costs_ : ndarray of shape (n_choices,)
        Cost of all members of each set.

    choice_weights_ : ndarray of shape (n_choices, n_members)
        Combiner weights of each choice.

    choice_thresholds_ : ndarray of shape (n_choices,)
        Score above which a label is named, if y is an indicator matrix.

    member_names_ : list of str
        Names of the members.

    estimators_ : list of classifiers
        The fitted members.

    costs_ : ndarray of shape (n_members,)
        Cost of each member's call.

    prices_ : ndarray of shape (n_prices,)
        Prices that the sequential rules were fitted for, falling.

    mixture_ : Mixture
        Validated mean cost and quality of the rules that are used, by rising cost.

    validation_quality_, validation_cost_ : float
        Mean quality and cost at `budget` of the rows of `fit`. Each fold is decided by
        rules that the other folds have chosen, and by estimates that are out of sample.

    validation_quality_se_, validation_cost_se_ : float
        Standard errors of these as estimates for new rows.

    abstain_quality_ : float or None
        Quality of a row that abstains. None if no row can abstain.

    n_features_in_, feature_names_in_ : int, ndarray of shape (`n_features_in_`,)
        Number and names of the features seen during `fit`, if X has them.

    See Also
    --------
    FrugalMCTClassifier : The special case of one add-on at most.
    FrugalMLClassifier : One threshold per label instead of an estimator.
    CascadeRouter : Learns from a log with signals, and calls no model itself.

    Notes
    -----
    There is no `random_state`: set that of the members and of a `quality_estimator` of
    your own.

    With more than 100 labels, the `quality_estimator` reads the 20 largest scores of a
    row in place of the scores of all labels.

    Weights of rows, the answers and probabilities of combined members, and the answer
    of a member alone are as in :class:`FrugalMCTClassifier`.

    If two rules are mixed, the rule of a row is drawn from its ``request_id``, else as
    in :class:`FrugalMLClassifier`. `route` and `predict_cost` ask the members that
    `predict` asks, since their answers are what decides.

    References
    ----------
    .. [1] L. Chen, M. Zaharia, J. Zou, "Efficient Online ML API Selection for
       Multi-Label Classification Tasks", ICML 2022: the one-add-on case and the
       combiner.
    .. [2] J. N. Tsitsiklis, B. Van Roy, "Regression Methods for Pricing Complex
       American-Style Options", IEEE Transactions on Neural Networks 12, 2001: backward
       regression on realised values.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skroute.routing import SequentialRouterClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> router = SequentialRouterClassifier(
    ...     [
    ...         ("bayes", GaussianNB()),
    ...         ("tree", DecisionTreeClassifier(random_state=0)),
    ...         ("knn", KNeighborsClassifier()),
    ...     ],
    ...     costs={"bayes": 1, "tree": 1, "knn": 10},
    ...     budget=5,
    ... )
    >>> router = router.fit(X_train, y_train)
    >>> router.choices_[-1]
    'bayes + tree + knn > knn'
    >>> bool(4 < router.predict_cost(X_test).mean() < 6)
    True
    >>> bayes = router.named_estimators_.bayes
    >>> router.score(X_test, y_test) > bayes.score(X_test, y_test) + 0.08
    True
    """

    _parameter_constraints: dict = {
        **MixtureRouter._parameter_constraints,
        "max_calls": [Interval(Integral, 1, None, closed="left")],
        "n_prices": [Interval(Integral, 1, None, closed="left")],
        "quality_estimator": [HasMethods(["fit", "predict"]), None],
    }
    call_parameters = (REQUEST_ID,)

    def __init__(
        self,
        estimators,
        *,
        costs,
        budget=None,
        base="auto",
        max_calls=3,
        n_prices=12,
        quality_estimator=None,
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
        self.max_calls = max_calls
        self.n_prices = n_prices
        self.quality_estimator = quality_estimator
        self.quality = quality
        self.abstain_cost = abstain_cost
        self.abstain_label = abstain_label
        self.cv = cv
        self.memory = memory
        self.n_jobs = n_jobs

    # Fit ------------------------------------------------------------------------------

    def _fit(self, X, y, *, task, **params):
        """Fit and ask the members, and learn when to ask another one.

        Parameters are those of `CostAwareMixin._fit`. `params` are `sample_weight` and
        metadata for the `fit` of members.
        """
        members = members_by_name(self.estimators, self._validate_names)
        check_sets(len(members), self.max_calls, _MAX_SETS)
        answers, judged = self._fit_and_judge(members, X, y, task=task, params=params)
        with task.step("learn routing"):
            self._learn(answers, judged)

    def _learn(self, answers, judged):
        """Learn the rules from the members' answers.

        Sets ``_states``, ``abstain_quality_``, ``choices_`` and the attributes of
        ``_set_choices``. The methods that it calls set what `_plan` reads. `answers`
        are the `OutOfFold`, `judged` the `JudgedAnswers`.
        """
        names = answers.names
        n_rows = len(answers.target)
        combination_of = search_combinations(judged, self.max_calls)
        self.abstain_quality_ = quality_of_abstaining(
            self.abstain_cost,
            [combination.row_quality for combination in combination_of.values()],
        )
        self._states = any_order(len(names), self.max_calls)
        choices, row_qualities = self._choices_after_sets(combination_of, n_rows)
        self._set_choices(choices)
        # Quality of each row under each choice, (n_rows, n_choices).
        quality = np.column_stack(row_qualities)

        estimator, fit_params = estimator_on_answers(
            self.quality_estimator,
            answers,
            max_rows=_MAX_ROWS_PER_TREE,
            n_jobs=self.n_jobs,
        )
        learner = _AnswersLearner(
            self, judged.scores, estimator, fit_params, folds=answers.folds
        )
        bases = possible_bases(self.base, names)
        # `_learn_addons` comes first, since it sets `prices_`, which
        # `_learn_sequential` reads.
        rules = self._learn_addons(bases, quality, learner, answers.weight)
        self._values = None  # no rule may buy a second add-on
        if self._states.n_calls > 2:
            rules += self._learn_sequential(bases, quality, learner)
        fold_of_row = answers.fold_of_row
        self._choose_rules(rules, fold_of_row, row_weight=answers.weight)
        self.choices_ = [choice.name for choice in choices]

    def _choices_after_sets(self, combination_of, n_rows):
        """Return the choices after each set of members, with the quality of each row.

        The choices of each set of members are in this order: all members combined; each
        member alone, if the set has several; abstaining, if rows may abstain.

        Sets ``_first_choice``, the position of the first choice of each state.

        Parameters
        ----------
        combination_of : dict from frozenset of int to Combination
        n_rows : int

        Returns
        -------
        choices : list of Choice
        row_qualities : list of ndarray of shape (n_rows,)
            Quality of each row under each choice.
        """
        names = self._members.names
        choices = []
        row_qualities = []
        # -1: the first state, in which nothing has been asked, has no choice.
        self._first_choice = [-1]
        for state, members in enumerate(self._states.answering):
            if not members:
                continue
            self._first_choice.append(len(choices))
            set_name = " + ".join(names[member] for member in members)
            asked = self._states.asked[state]
            combination_of_name = {set_name: combination_of[frozenset(members)]}
            if len(members) > 1:
                for member in members:
                    single = combination_of[frozenset([member])]
                    combination_of_name[f"{set_name} > {names[member]}"] = single
            for name, combination in combination_of_name.items():
                choice = Choice(name, asked, combination.weights, combination.threshold)
                choices.append(choice)
                row_qualities.append(combination.row_quality)
            if self.abstain_quality_ is not None:
                name = f"{set_name} > {ABSTAIN_NAME}"
                # No member answers, and no label is named.
                no_weights = np.zeros(len(names))
                choices.append(Choice(name, asked, no_weights, threshold=np.nan))
                row_qualities.append(np.full(n_rows, self.abstain_quality_))
        return choices, row_qualities

    def _features(self, scores, state):
        """Return features, for the quality estimator, of the answers in a state.

        `scores` is a list of the scores of the asked members, each (n_rows, n_labels).
        The result has the shape (n_rows, n_features).
        """
        members = list(self._states.answering[state])
        # The first choice of a state combines all of its members.
        weights = self.choice_weights_[self._first_choice[state], members]
        return answer_features(scores, weights, self._members.is_multilabel)

    def _choices_with_one_addon(self, start):
        """Return the positions of the choices with at most one add-on after a member.

        These are the choices of FrugalMCT. The first position is that of the first
        member alone. Then come two for each add-on: both members combined, and the
        add-on alone. The last position is that of abstaining, if rows may abstain.
        `start` is the state after the first member.
        """
        first_member_alone = self._first_choice[start]
        choices = [first_member_alone]
        for addon in self._states.next_members(start):
            state = self._states.following[start, addon]
            combined = self._first_choice[state]
            # After the combination come the members alone, in the order of the state.
            first_alone = combined + 1
            addon_alone = first_alone + self._states.answering[state].index(addon)
            choices += [combined, addon_alone]
        if self.abstain_quality_ is not None:
            # The state of a single member has two choices: its answer, then abstaining.
            abstaining = first_member_alone + 1
            choices.append(abstaining)
        return np.array(choices)

    def _learn_addons(self, bases, quality, learner, row_weight):
        """Learn the rules that buy at most one add-on, a list of `JudgedRule`.

        Sets ``prices_``, those of the rules that may buy more; ``_addons``, a dict from
        the state after the first member to `AddonValues`; and ``_some_abstain``, True
        if some row abstains under one of the rules.

        Parameters
        ----------
        bases : list of int
            Members that may be asked first.
        quality : ndarray of shape (n_rows, n_choices)
            Quality of each choice on each row.
        learner : _AnswersLearner
        row_weight : ndarray of shape (n_rows,) or None
        """
        rules = []
        self._addons = {}
        self._some_abstain = False
        # Candidates for `prices_`. The price 0, at which cost does not matter, is
        # always among them.
        prices = [np.zeros(1)]
        for base in bases:
            start = int(self._states.following[0, base])
            choices = self._choices_with_one_addon(start)
            costs = self.choice_costs_[choices]
            # Quality of each row under these choices, (n_rows, len(choices)).
            choice_quality = np.take(quality, choices, axis=1)
            n_answers = len(choices)
            if self.abstain_quality_ is not None:
                n_answers -= 1
            fitted = learner.fit(start, choice_quality[:, :n_answers])
            values = StateValues(
                fitted.model,
                n_answers,
                n_next=0,
                n_prices=0,
                abstain_quality=self.abstain_quality_,
            )
            self._addons[start] = AddonValues(choices, values)
            estimates = values.split(fitted.estimates).endings
            path = assignment_path(estimates, costs, weight=row_weight)
            for price in spread_prices(path, _N_ADDON_PRICES, _ADDON_PRICES_POWER):
                # Position among `choices`, for each row: (n_rows,)
                chosen = choose_at_price(estimates, costs, price)
                # Abstaining comes after the answers.
                if (chosen == n_answers).any():
                    self._some_abstain = True
                rule = JudgedRule(
                    Rule(start, price, ONE_ADDON),
                    cost=costs[chosen],
                    quality=choice_quality[np.arange(len(chosen)), chosen],
                )
                rules.append(rule)
            # One price more than needed: the price of the smallest budget is infinite,
            # and `thinned_prices` leaves it out.
            prices.append(spread_prices(path, self.n_prices + 1))
        self.prices_ = thinned_prices(np.concatenate(prices), self.n_prices)
        return rules

    def _learn_sequential(self, bases, quality, learner):
        """Learn the rules that may buy more than one add-on, a list of `JudgedRule`.

        Sets ``_values``, a dict with the `StateValues` of each state that a base leads
        to. Parameters are those of `_learn_addons`.
        """
        states = self._states
        costs = self._members.costs_of_fit
        # Logged quality of the answers in each state, arrays (n_rows, n_answers).
        answer_quality = []
        for state, members in enumerate(states.answering):
            first_choice = self._first_choice[state]
            # Abstaining, the last choice of a state, is no answer.
            if not members:
                # The first state has no choice, and its slice below is empty.
                n_answers = 0
            elif len(members) == 1:
                n_answers = 1
            else:
                # All members combined, then each member alone.
                n_answers = 1 + len(members)
            answer_quality.append(quality[:, first_choice : first_choice + n_answers])
        outcomes = learn_values(
            states,
            answer_quality,
            costs,
            self.prices_,
            learner,
            # Only states in which a member of `bases` has been asked can be reached.
            reached=np.flatnonzero(states.asked[:, bases].any(axis=1)),
            abstain_quality=self.abstain_quality_,
        )
        self._values = {}
        for state, outcomes_of_state in outcomes.items():
            self._values[state] = outcomes_of_state.values
        rules = []
        for base in bases:
            start = int(states.following[0, base])
            after_base = outcomes[start]
            for index, price in enumerate(self.prices_):
                rule = JudgedRule(
                    Rule(start, price, index),
                    # The cost of the outcomes is that of the calls after the base.
                    cost=costs[base] + after_base.cost[:, index],
                    quality=after_base.quality[:, index],
                )
                rules.append(rule)
        return rules

    def _choose_rules(self, judged_rules, fold_of_row, row_weight):
        """Choose the rules that are worth mixing, and validate them by folds.

        Sets ``mixture_``; ``_rules``, a list of `Rule` in its order; and
        ``_validated_parts``, one for each fold.

        Parameters
        ----------
        judged_rules : list of JudgedRule
        fold_of_row : ndarray of shape (n_rows,)
        row_weight : ndarray of shape (n_rows,) or None
        """
        # Cost and quality of each row under each rule, (n_rules, n_rows).
        cost = np.array([judged.cost for judged in judged_rules])
        quality = np.array([judged.quality for judged in judged_rules])
        price_indices = [judged.rule.price_index for judged in judged_rules]
        is_simple = np.array(price_indices) == ONE_ADDON
        # If some row abstains, rules have no penalty. A penalty is in standard errors,
        # and a rule by which all rows abstain has the standard error 0: it would win
        # against all rules with a penalty.
        penalty = 0.0 if self._some_abstain else _PENALTY
        held_out = []
        for rows, others in rows_and_others(fold_of_row):
            mixture, positions = mix_rules(
                cost[:, others],
                quality[:, others],
                is_simple=is_simple,
                penalty=penalty,
                weight=weight_of_rows(row_weight, others),
            )
            held_out_rules = HeldOutRules(
                rows,
                mixture,
                cost=cost[positions][:, rows],
                quality=quality[positions][:, rows],
                weight=weight_of_rows(row_weight, rows),
            )
            held_out.append(held_out_rules)
        # Positions of all rows. Indexing by them copies the arrays as for a fold, so
        # that sums are rounded in the same way.
        all_rows = np.arange(len(fold_of_row))
        mixture, positions = mix_rules(
            cost[:, all_rows],
            quality[:, all_rows],
            is_simple=is_simple,
            penalty=penalty,
            weight=row_weight,
        )
        largest_budget, self._validated_parts = limit_path(mixture.cost, held_out)
        self.mixture_ = mixture.up_to(largest_budget)
        n_rules = len(self.mixture_.cost)
        self._rules = [judged_rules[position].rule for position in positions[:n_rules]]

    # Decisions ------------------------------------------------------------------------

    def _smallest_budget(self):
        """Return the cost of the cheapest member that may be asked first."""
        # `choices[0]` of a first member is the choice to ask this member alone.
        cheapest = [addons.choices[0] for addons in self._addons.values()]
        return min(self.choice_costs_[cheapest])

    def _plan(self, X, call):
        """Draw the rule of each row, and follow this rule to a choice (`Plan`)."""
        check_affordable(call.budget, self._smallest_budget())
        rule_of_row = self.mixture_.draw(X, call.budget, call.request_id)
        answers = MemberAnswers(self, X)
        start_of_rule = np.array([rule.start for rule in self._rules])
        state_of_row = start_of_rule[rule_of_row]
        # -1: not yet decided. Each row ends in some state and gets a choice there.
        route = np.full(len(rule_of_row), -1)
        # A state comes before all that follow it. No row is in state 0, since each row
        # has asked its first member.
        for state in range(1, len(self._states.asked)):
            for position in np.unique(rule_of_row[state_of_row == state]):
                is_here = (state_of_row == state) & (rule_of_row == position)
                rows = np.flatnonzero(is_here)
                step = self._step(answers, rows, state, self._rules[position])
                state_of_row[rows] = step.next_state
                route[rows] = step.choice
        return Plan(route, self.choice_costs_[route], answers)

    def _step(self, answers, rows, state, rule):
        """Return the next state of each row under a rule, or its choice if it ends.

        Parameters
        ----------
        answers : MemberAnswers
            Those of the call.
        rows : ndarray of int of shape (n_rows,)
            Positions of rows that are in the state.
        state : int
        rule : Rule

        Returns
        -------
        _Step
        """
        if rule.price_index == ONE_ADDON:
            # The rule buys at most one add-on, so that all rows end here.
            addons = self._addons[state]
            estimates = self._estimates(addons.values, answers, rows, state)
            costs = self.choice_costs_[addons.choices]
            chosen = choose_at_price(estimates.endings, costs, rule.price)
            return _Step(np.full(len(rows), _ENDED), addons.choices[chosen])
        estimates = self._estimates(self._values[state], answers, rows, state)
        next_members = self._states.next_members(state)
        # (n_rows, n_next, 1): only the price of the rule.
        continuations = estimates.continuations[:, :, [rule.price_index]]
        move = move_of(
            StateEstimates(estimates.endings, continuations),
            costs=self._members.costs_of_fit[next_members],
            prices=np.array([rule.price]),
        )
        next_position = move.next_position[:, 0]  # among `next_members`
        next_states = self._states.following[state, next_members]
        next_state = np.full(len(rows), _ENDED)
        asks = next_position != STOP
        next_state[asks] = next_states[next_position[asks]]
        # The endings of a state are its choices, in this order.
        return _Step(next_state, self._first_choice[state] + move.ending)

    def _estimates(self, values, answers, rows, state):
        """Return estimates for some rows after asking the members of a state.

        The result is a `StateEstimates`. `values` are the `StateValues` of the state.
        Its members are asked about the rows.
        """
        members = self._states.answering[state]
        scores = [answers.scores(member, rows) for member in members]
        features = self._features(scores, state)
        outputs = predict_matrix(values.model, features, "quality_estimator")
        return values.split(outputs)


def thinned_prices(prices, n_prices):
    """Return at most `n_prices` of the prices, falling.

    They are finite, distinct and evenly spaced by rank.
    """
    falling = np.unique(prices)[::-1]
    # At an infinite price, that of the smallest budget, no second add-on is bought.
    falling = falling[np.isfinite(falling)]
    n_prices = min(n_prices, len(falling))
    # Rounding may repeat a position.
    positions = np.linspace(0, len(falling) - 1, n_prices).round().astype(int)
    return falling[np.unique(positions)]


def mix_rules(cost, quality, *, is_simple, penalty, weight):
    """Return the rules that are best at some budget (`best_mixture`), by rising cost.

    Parameters
    ----------
    cost, quality : ndarray of shape (n_rules, n_rows)
    is_simple : ndarray of shape (n_rules,), dtype=bool
        Rules without a penalty.
    penalty : float
        As in `quality_less_luck`.
    weight : ndarray of shape (n_rows,) or None

    Returns
    -------
    mixture : Mixture
        Mean cost and quality of these rules.
    positions : ndarray of int
        Positions of these rules among all.
    """
    mean_cost = mean_of_rows(cost, weight)
    mean_quality = mean_of_rows(quality, weight)
    penalised = quality_less_luck(cost, quality, is_simple, penalty, weight)
    _, positions = best_mixture(mean_cost, penalised)
    # Quality with penalties rises from each rule to the next one. Quality without them
    # may fall, and a running maximum replaces it.
    rising_quality = np.maximum.accumulate(mean_quality[positions])
    return Mixture(mean_cost[positions], rising_quality), positions
