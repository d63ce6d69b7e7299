"""Member after member, for as long as the next answer is worth its price."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skroute.assignment import assignment_path, choose_at_price
from skroute.base import Plan, check_affordable
from skroute.routing._abstaining import (
    ABSTAIN_COST,
    ABSTAIN_NAME,
    AbstainingMixin,
    Beside,
    quality_of_handing,
)
from skroute.routing._answers import CombiningRouter, check_base, possible_bases
from skroute.routing._combiner import search_combinations
from skroute.routing._exits import ExitAnswers, chains, continued, stage_calls
from skroute.routing._label_candidates import LabelRule, label_candidates
from skroute.routing._mixtures import Mixture, best_mixture, docked_quality, spread_prices
from skroute.routing._predictors import answer_features, fit_predictor, predict_values
from skroute.routing._qualities import QUALITY_OF_LABELS, LabelQualityMixin
from skroute.routing._rollout import member_sets, next_member, roll_back, split_outputs
from skroute.routing._validated_rules import ValidatedPart, ValidatedRulesMixin, row_sums
from skroute.routing._validation import parts_of
from skroute.utils._compat import HasMethods, Integral, Interval

# Budgets at which the one-add-on policies of each base are candidates.
_N_ADDON_PRICES = 33
# One regressor is fitted for each set of members.
_MAX_SETS = 255
# Standard errors that a rule is docked which is not FrugalMCT's. Over splits of nine sets half an
# error and a whole one do as well; with none, noise of many candidates is taken for quality.
_SLACK = 0.5


class State(NamedTuple):
    """A set of members that have answered a row.

    Attributes
    ----------
    used : ndarray of shape (n_used,), dtype=int64
        The members.

    following : ndarray of shape (n_members,), dtype=int64
        State with each member added, or -1.

    weights : ndarray of shape (n_used,)
        Combiner weights of their answers.

    first_choice : int
        Choice of answering here with all combined; each one alone comes after it, and, where
        rows may be handed over, that.
    n_ways : int
        Ways to stop here, which these are.
    """

    used: NDArray[np.int64]
    following: NDArray[np.int64]
    weights: NDArray[np.float64]
    first_choice: int
    n_ways: int


class Rule(NamedTuple):
    """How rows are decided, and what that costs and brings on validation rows.

    Attributes
    ----------
    start : int
        State after the member that is asked first.

    price_at : int
        Position of the price in ``prices_``; -1 for one add-on at most.

    price : float
        What an answer must bring for each unit of its cost.

    cost, quality : ndarray of shape (n_rows,)
        Of each row of `fit`, decided out of sample; None once the rules are chosen.

    labels : LabelRule, default=None
        FrugalML's thresholds and add-ons, which then decide.
    """

    start: int
    price_at: int
    price: float
    cost: NDArray[np.float64] | None
    quality: NDArray[np.float64] | None
    labels: LabelRule | None = None


class Models(NamedTuple):
    """For each state a fitted regressor, or None where it decides nothing.

    Attributes
    ----------
    addon : list
        Of the quality of each add-on option, where at most one is bought.

    rollout : list
        See :class:`Rollout`.
    """

    addon: list[Any]
    rollout: list[Any]


class SequentialRouterClassifier(
    ValidatedRulesMixin, AbstainingMixin, LabelQualityMixin, CombiningRouter
):
    r"""Ask one member after another, for as long as the next answer is worth its price.

    After each answer the row either stops, and is answered with the combination of all
    answers paid for (or with one of them, where that is estimated to be better), or asks
    the member whose next answer is worth most: the member k that maximises
    :math:`\hat V_{S \cup k}(x) - p\, c_k`, where :math:`S` are the members asked so far
    and :math:`\hat V` estimates, from their answers, what going on is worth at the price
    :math:`p`, later purchases included.

    :math:`\hat V` is fitted backward, from large sets of members to small ones, on what
    they have made of training rows. The rules at several prices and from each
    possible first member are then compared out of sample with one another and with their
    special cases that buy one add-on at most: :class:`FrugalMCTClassifier`'s and, for one label
    per row, :class:`FrugalMLClassifier`'s. For a budget the best one, or a mixture of two, is
    used; without `abstain_cost` a rule that is not FrugalMCT's has to be better by half a standard
    error.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The members, with ``predict_proba``. Each is cloned and fitted; a fitted one is
        passed as :class:`~sklearn.frozen.FrozenEstimator`, and then the rows given to
        `fit` should be new to it. A label that a member does not name has the score 0.
        The exits of a net (:meth:`skroute.members.MultiExitClassifier.exits`) are asked in
        their order, each going on from the one before.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member. ``"time"`` measures seconds per sample in `fit`. The
        cost of an exit is what it adds to the exit before.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`, all calls included. None is
        unlimited. Raising it buys more answers.

    base : str, default="auto"
        Name of the member that is asked first. ``"auto"`` chooses one, or mixes two, at
        the budget asked for.

    max_calls : int, default=3
        Members asked about one row at most. One regressor is fitted for each set of up
        to that many of m members, up to :math:`2^m - 1`. 2 allows one add-on.

    n_prices : int, default=12
        Prices that the sequential rules are fitted for. Raising it follows the budget
        more closely and fits regressors with more outputs.

    quality_estimator : multi-output regressor, default=None
        Estimates the value of stopping and of going on from the answers so far. None
        takes a random forest of 30 to 100 trees (more where rows are few) with up to 150 rows per
        leaf. Its training rows
        are estimated out of sample: from ``oob_prediction_`` where the fitted estimator
        has it, else by cross-validation.

    quality : str, mapping, array-like or callable, default="accuracy"
        What an answer is worth: ``"accuracy"`` (of several labels those in common by those in
        either), ``"balanced_accuracy"``, a cost matrix, or a function of true and given labels
        to one number per row, higher is better, as in :class:`OccamRouterClassifier`. What is
        no mean over the labels of rows is refused.

    abstain_cost : float, default=None
        What it costs, in units of `quality`, to hand a row over to a person instead of answering
        it: the row counts as the best quality of any answer in `fit` minus this. The
        members that were asked before are paid, and the first one is always asked.
        `predict` marks it by None (NaN in an indicator matrix), `predict_proba` by NaN. None
        never hands over. Raising it hands fewer rows over.

    cv : int, splitter or iterable, default=5
        Folds that make the members' answers, and the estimates where needed,
        out-of-sample.
        A splitter by groups gets them from `fit` as ``groups``, through metadata routing.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels; the positions of the labels where y is an indicator matrix.

    choices_ : list of str
        What `route` indexes: the sets of members that a row may end with, their answers
        combined ("cnn + ocr") or one of them preferred ("cnn + ocr > ocr"); with an
        `abstain_cost` also handed over after them ("cnn + ocr > abstain").

    choice_costs_ : ndarray of shape (n_choices,)
        Cost of each.

    choice_weights_ : ndarray of shape (n_choices, n_members)
        Combiner weights of each.

    choice_thresholds_ : ndarray of shape (n_choices,)
        Score above which a label is named; where y is an indicator matrix.

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
        Mean quality and cost at `budget` of the rows of `fit`, each part of which is decided by
        rules that the other parts have chosen, and by estimates that are out of sample.

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
    FrugalMCTClassifier : The special case of one add-on at most.
    FrugalMLClassifier : One threshold per label instead of an estimator.

    Notes
    -----
    Which of two mixed rules a row follows is drawn from a hash of the row and of how often
    it came before in the call: a row goes the same way in every batch and container, and
    of many equal rows in one call the right share goes each way. In calls of one row each,
    equal rows all go one way. Rows of a torch data set are drawn by their position in it.
    `route` and `predict_cost` ask the members that `predict` asks, since their answers are
    what decides.

    References
    ----------
    .. [1] L. Chen, M. Zaharia, J. Zou, "Efficient Online ML API Selection for Multi-Label
       Classification Tasks", ICML 2022: the one-add-on case and the combiner.
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
    >>> router.score(X_test, y_test) > router.named_estimators_.bayes.score(X_test, y_test) + 0.08
    True
    """

    _parameter_constraints: dict = {
        **CombiningRouter._parameter_constraints,
        "base": [str],
        "cv": ["cv_object"],
        "max_calls": [Interval(Integral, 1, None, closed="left")],
        "n_prices": [Interval(Integral, 1, None, closed="left")],
        "quality_estimator": [HasMethods(["fit", "predict"]), None],
        "quality": QUALITY_OF_LABELS,
        "abstain_cost": ABSTAIN_COST,
    }

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
        cv=5,
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
        self.cv = cv
        self.n_jobs = n_jobs

    def _check(self, X, members):
        super()._check(X, members)
        check_base(self.base, members)
        names = list(members)
        self._before = continued(members)
        for name, chain in zip(names, chains(self._before)):
            if len(chain) > self.max_calls:
                raise ValueError(
                    f"max_calls={self.max_calls!r} never reaches {name!r}, which comes after "
                    f"{[names[k] for k in chain[:-1]]!r}. Raise it or drop members."
                )
            if name == self.base and len(chain) > 1:
                raise ValueError(
                    f"base={self.base!r} goes on from {names[chain[-2]]!r} and cannot be asked "
                    f"first; {names[chain[0]]!r} can."
                )
        n_sets = len(member_sets(len(members), self.max_calls, self._before)[0])
        if n_sets > _MAX_SETS:
            raise ValueError(
                f"max_calls={self.max_calls!r} with {len(members)} members needs a regressor for "
                f"each of {n_sets} sets; at most {_MAX_SETS} are allowed. Lower max_calls or drop "
                "members."
            )

    def _possible_bases(self, names):
        return [k for k in possible_bases(self.base, names) if self._before[k] < 0]

    def _least_cost(self, costs, names):
        return float(costs[self._possible_bases(names)].min())

    def _timed_calls(self, names, fitted):
        return super()._timed_calls(names, fitted) | stage_calls(self._before, names, fitted)

    def _learn(self, X, target, answers):
        scores, names = answers.responses, answers.names
        members, following = member_sets(len(names), self.max_calls, self._before)
        found = search_combinations(scores, target, self._rows_quality(target), self.max_calls)
        best = np.array([per_row.max() for _, _, per_row in found.values()])
        self.abstain_quality_ = handed = quality_of_handing(best, self.abstain_cost)
        # Ways to answer in each state: all combined, or any one of several members alone.
        self._states, realised, choices = [], [], []
        for row, after in zip(members, following):
            used = np.flatnonzero(row)
            ways = [found[frozenset(used)]]
            if len(used) > 1:
                ways += [found[frozenset([k])] for k in used]
            if handed is not None:
                ways.append((np.zeros(len(row)), np.nan, np.full(len(target), handed)))
            self._states.append(State(used, after, ways[0][0][used], len(choices), len(ways)))
            name = " + ".join(np.array(names)[used])
            labels = [name, *(f"{name} > {names[k]}" for k in used if len(used) > 1)]
            labels += [f"{name} > {ABSTAIN_NAME}"] * (handed is not None)
            choices += [(label, row, w, theta) for label, (w, theta, _) in zip(labels, ways)]
            realised.append(np.column_stack([per_row for _, _, per_row in ways]))

        def fit(state, values, at=None):
            used = self._states[state].used
            features = self._features([scores[k] for k in used], self._states[state])
            told = self.quality_estimator, features
            if handed is None:
                return fit_predictor(*told, values, answers.folds)
            # What handing over is worth is known.
            at = self._states[state].n_ways - 1 if at is None else at
            fitted, estimate = fit_predictor(*told, np.delete(values, at, axis=1), answers.folds)
            fitted = Beside(fitted, handed, at)
            return fitted, fitted.table(estimate)

        bases = self._possible_bases(names)
        # States of one member, in the order of the members that may come first.
        starts = [int(np.flatnonzero(members[:, k])[0]) for k in bases]
        self._models = Models([None] * len(members), [None] * len(members))
        # The special case first: its estimates also say which prices matter.
        rules = self._learn_addons(starts, realised, fit)
        part = parts_of(answers.folds, len(target))
        if not self._multilabel and self.max_calls > 1:
            for base in starts:
                rules += self._learn_label_rules(base, realised, scores, part)
        if members.sum(axis=1).max() > 2:
            reached = np.flatnonzero(members[:, bases].any(axis=1))
            rollout = roll_back(following, realised, self.costs_, self.prices_, fit, reached)
            self._models = self._models._replace(rollout=rollout.models)
            for base in starts:
                cost = self.costs_[members[base]].sum() + rollout.cost[base]
                table = zip(self.prices_, cost.T, rollout.quality[base].T)
                rules += [Rule(base, j, *row) for j, row in enumerate(table)]
        self._choose(rules, part)
        self._set_choices(*zip(*choices))

    def _choose(self, rules, part):
        """The rules that are worth mixing; what none of the others teaches stays out."""
        cost, quality = (np.array([rule[at] for rule in rules]) for at in (3, 4))
        simple = np.array([rule.price_at < 0 and rule.labels is None for rule in rules])

        # To hand every row over has no error at all, and would win against whatever is docked.
        slack = _SLACK if self.abstain_quality_ is None else 0.0

        def mixed(rows):
            docked = docked_quality(cost[:, rows], quality[:, rows], simple, slack)
            _, kept = best_mixture(cost[:, rows].mean(axis=1), docked)
            # Mixtures are of what rules are found to be, which may fall where they are docked.
            means = cost[kept][:, rows].mean(axis=1), quality[kept][:, rows].mean(axis=1)
            return Mixture(means[0], np.maximum.accumulate(means[1])), kept

        self._validated = []
        for number in np.unique(part):
            rows, others = np.flatnonzero(part == number), np.flatnonzero(part != number)
            mixture, kept = mixed(others if len(others) else rows)
            sums = row_sums(cost[kept][:, rows], quality[kept][:, rows])
            self._validated.append(ValidatedPart(mixture, sums, len(rows)))
        self.mixture_, kept = mixed(np.arange(len(part)))
        self._rules = [rules[k]._replace(cost=None, quality=None) for k in kept]

    def _learn_addons(self, starts, realised, fit):
        """Rules that buy one add-on at most; sets the prices of those that may buy more."""
        rules, prices = [], [0.0]
        for base in starts:
            options = self._addon_options(base)
            ways = np.column_stack([realised[state][:, way] for state, way, _ in options])
            costs = np.array([cost for _, _, cost in options])
            self._models.addon[base], estimate = fit(base, ways, len(options) - 1)
            path = assignment_path(estimate, costs)
            # Where little is spent, each bit of it buys most.
            own = spread_prices(path, _N_ADDON_PRICES, 2.0)
            rows = np.arange(len(estimate))
            for price in own:
                choice = choose_at_price(estimate, costs, price)
                made = costs[choice], ways[rows, choice]
                rules.append(Rule(base, -1, price, *made))
            prices += list(spread_prices(path, self.n_prices + 1))
        # At an infinite price, that of the smallest budget, nothing is sequential.
        prices = np.unique(prices)[::-1]
        prices = prices[np.isfinite(prices)]
        at = np.linspace(0, len(prices) - 1, min(self.n_prices, len(prices)))
        self.prices_ = prices[np.unique(at.round().astype(int))]
        return rules

    def _learn_label_rules(self, base, realised, scores, part):
        """FrugalML's rules: the add-on's own answer where the base's score is low."""
        (member,) = self._states[base].used
        after = self._states[base].following
        # Who answers instead: the base itself first.
        members = [int(member), *map(int, np.flatnonzero(after >= 0))]
        columns = [realised[base][:, 0]]
        columns += [realised[after[k]][:, self._way_alone(after[k], k)] for k in members[1:]]
        table, costs = np.column_stack(columns), self.costs_[members]
        rules, *rows = label_candidates(scores[member], table, costs, part)
        return [
            Rule(base, -1, np.nan, *each, one._replace(addons=np.array(members)[one.addons]))
            for one, *each in zip(rules, *rows)
        ]

    def _way_alone(self, state, member):
        """Way to answer in a state with one member alone."""
        return 1 + int(self._states[state].used.searchsorted(member))

    def _features(self, scores, state):
        return answer_features(scores, state.weights, self._multilabel)

    def _addon_options(self, base):
        """FrugalMCT's options from a state of one member.

        State, way to answer in it, and cost of getting there.
        """
        base_cost = self.costs_[self._states[base].used].sum()
        options = [(base, 0, base_cost)]
        following = self._states[base].following
        for k in np.flatnonzero(following >= 0):
            state, cost = following[k], base_cost + self.costs_[k]
            options += [(state, 0, cost), (state, self._way_alone(state, k), cost)]
        if self.abstain_quality_ is not None:
            options.append((base, self._states[base].n_ways - 1, base_cost))
        return options

    _answers_kind = ExitAnswers

    def _plan(self, X, budget):
        check_affordable(budget, self._least())
        rule = self.mixture_.draw(X, budget)
        answers = self._asked_answers(X)
        state = np.array([one.start for one in self._rules])[rule]
        way = np.zeros(len(rule), dtype=np.int64)
        active = np.arange(len(rule))
        while len(active):
            going = []
            groups = state[active] * len(self._rules) + rule[active]
            for group in np.unique(groups):
                rows = active[groups == group]
                at, one = divmod(int(group), len(self._rules))
                state[rows], way[rows] = self._step(answers, rows, at, self._rules[one])
                answers.release(rows[state[rows] == at])
                # One add-on is bought without coming back.
                if self._rules[one].price_at >= 0:
                    going.append(rows[state[rows] != at])
            active = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *going]))
        route = np.array([one.first_choice for one in self._states])[state] + way
        return Plan(route, self.choice_costs_[route], answers)

    def _step(self, answers, rows, at, rule):
        """For some rows in one state under one rule: next state, way to answer there."""
        state = self._states[at]
        if rule.labels is not None:
            (base,) = state.used
            member = rule.labels.choose(answers.ask(base, rows), base)
            # Alone in a set of two, as `_way_alone` has it.
            ways = np.where(member == base, 0, 1 + (member > base))
            return np.where(member == base, at, state.following[member]), ways
        features = self._features([answers.ask(k, rows) for k in state.used], state)
        if rule.price_at < 0:
            states, ways, costs = map(np.array, zip(*self._addon_options(at)))
            values = predict_values(self._models.addon[at], features, len(states))
            option = choose_at_price(values, costs, rule.price)
            return states[option], ways[option]
        nexts = np.flatnonzero(state.following >= 0)
        sizes = state.n_ways, len(nexts), len(self.prices_)
        n_outputs = sizes[0] + sizes[1] * sizes[2]
        outputs = predict_values(self._models.rollout[at], features, n_outputs)
        values, going = split_outputs(outputs, *sizes)
        way = values.argmax(axis=1)
        if len(nexts) == 0:
            return np.full(len(rows), at), way
        best = values[np.arange(len(rows)), way]
        choice = next_member(best, going[:, :, rule.price_at], self.costs_[nexts], rule.price)
        return np.where(choice >= 0, state.following[nexts[choice]], at), way
