"""Member after member, for as long as the next answer is worth its price."""

import numpy as np

from skroute.assignment import assignment_path, choose_at_price
from skroute.base import Plan, check_affordable
from skroute.base._calls import REQUEST_ID
from skroute.base._inspection import ABSTAIN_NAME
from skroute.routing.from_answers._combining import (
    CombiningRouter,
    answer_features,
    possible_bases,
    search_combinations,
)
from skroute.routing.from_answers._states import (
    StateValues,
    any_order,
    best_move,
    check_sets,
    roll_back,
)
from skroute.routing.parts._estimates import (
    answers_forest,
    cross_fit,
    predict_matrix,
    rows_and_others,
    with_weights,
)
from skroute.routing.parts._mixtures import (
    HeldOutRules,
    Mixture,
    best_mixture,
    docked_quality,
    limit_path,
    mean_of_rows,
    spread_prices,
)
from skroute.utils._compat import HasMethods, Integral, Interval

# Budgets at which the one-add-on policies of each base are candidates.
_N_ADDON_PRICES = 33
# Rows that a tree of a forest sees: there is a forest for each set of members.
_MOST_ROWS = 2_000
# One regressor is fitted for each set of members.
_MAX_SETS = 255
# Standard errors that a rule is docked which may ask more than one add-on. Over splits of nine
# sets half an error and a whole one do as well; with none, the noise of many candidates is taken
# for quality.
_SLACK = 0.5


class SequentialRouterClassifier(CombiningRouter):
    r"""Ask one member after another, while the next answer is worth its price.

    After each answer the row either stops, and is answered with the combination of all
    answers paid for (or with one of them, where that is estimated to be better), or asks
    the member whose next answer is worth most: the member k that maximises
    :math:`\hat V_{S \cup k}(x) - p\, c_k`, where :math:`S` are the members asked so far
    and :math:`\hat V` estimates, from their answers, what going on is worth at the price
    :math:`p`, later purchases included.

    :math:`\hat V` is fitted backward, from large sets of members to small ones, on what
    they have made of training rows. The rules at several prices and from each
    possible first member are then compared out of sample with one another and with their
    special case that buys one add-on at most, :class:`FrugalMCTClassifier`'s. For a budget the
    best one, or a mixture of two, is used; without `abstain_cost` a rule that may buy more has to
    be better by half a standard error.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The members, as in :class:`FrugalMLClassifier`. A label that one does not name has the
        score 0.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member. ``"time"`` measures seconds per sample in `fit`. Read
        by `fit`.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`, all calls included. None is unlimited.
        Raising it buys more answers. It is spent as far as held-out rows show a gain beyond
        noise.

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
        Estimates the value of stopping and of going on from the answers so far. None takes a
        forest as in :class:`FrugalMCTClassifier`, each tree grown on up to 2,000 rows.

    quality : str, mapping, array-like or callable, default="accuracy"
        What an answer is worth, as in :class:`FrugalMLClassifier`. What is no mean over the
        labels of rows is refused.

    abstain_cost : float, default=None
        What it costs, in units of `quality`, to abstain from a row, so that a person answers it,
        as in :class:`FrugalMLClassifier`. None never does. If it is higher, fewer rows abstain.

    abstain_label : object, default=None
        What `predict` gives for a row that abstains; no class may have this label. None takes
        ``"abstain"`` where labels are texts and -1 where they are numbers.

    cv : int, splitter or iterable, default=5
        Folds that make the members' answers, and the estimates where needed,
        out-of-sample.
        A splitter by groups gets them from `fit` as ``groups``, through metadata routing.

    n_jobs : int, default=None
        Members, and trees of the default `quality_estimator`, fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels; the positions of the labels where y is an indicator matrix.

    choices_ : list of str
        What `route` indexes: the sets of members that a row may end with, their answers
        combined ("cnn + ocr") or one of them preferred ("cnn + ocr > ocr"); with an
        `abstain_cost` also abstaining after them ("cnn + ocr > abstain").

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

    validation_quality_, validation_cost_, validation_quality_se_, validation_cost_se_ : float
        Mean quality and cost at `budget` of the rows of `fit`, each part of which is decided by
        rules that the other parts have chosen, and by estimates that are out of sample; and their
        standard errors for new rows.

    abstain_quality_ : float or None
        Quality of a row that abstains. None if no row can abstain.

    n_features_in_, feature_names_in_ : int, ndarray of shape (`n_features_in_`,)
        Number and names of the features seen during `fit`, where X has them.

    See Also
    --------
    FrugalMCTClassifier : The special case of one add-on at most.
    FrugalMLClassifier : One threshold per label instead of an estimator.

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

    Which of two mixed rules a row follows is drawn from its ``request_id``, else as in
    :class:`FrugalMLClassifier`. `route` and `predict_cost` ask the members that `predict` asks,
    since their answers are what decides.

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
        self.n_jobs = n_jobs

    def _check_members(self, members):
        super()._check_members(members)
        check_sets(len(members), self.max_calls, _MAX_SETS)

    # Fit ------------------------------------------------------------------------------------

    def _learn(self, X, answers):
        names, target = answers.names, answers.target
        scores, labels = self._read(answers)
        row_weight = answers.weight
        quality = self._objective_of(self._target).bound(target, row_weight).of
        found = search_combinations(
            scores,
            target,
            quality,
            self.max_calls,
            labels=labels,
            row_weight=row_weight,
        )
        abstain_quality = self._quality_of_abstaining(
            per_row for _, _, per_row in found.values()
        )
        self.abstain_quality_ = abstain_quality
        self._states = any_order(len(names), self.max_calls)
        # Ways to answer after each set: all combined, or any one of several members alone.
        realised, choices, self._first_choice = [np.empty((len(target), 0))], [], [-1]
        for asked, used in zip(self._states.asked[1:], self._states.answers[1:]):
            ways = [found[frozenset(used)]]
            name = " + ".join(names[k] for k in used)
            way_names = [name]
            if len(used) > 1:
                ways += [found[frozenset([k])] for k in used]
                way_names += [f"{name} > {names[k]}" for k in used]
            realised.append(np.column_stack([per_row for _, _, per_row in ways]))
            if abstain_quality is not None:
                ways.append(
                    (
                        np.zeros(len(names)),
                        np.nan,
                        np.full(len(target), abstain_quality),
                    )
                )
                way_names.append(f"{name} > {ABSTAIN_NAME}")
            self._first_choice.append(len(choices))
            choices += [
                (way_name, asked, *way) for way_name, way in zip(way_names, ways)
            ]
        choice_names, used, weights, thresholds, made = zip(*choices)
        self.choice_members_, self.choice_weights_ = np.array(used), np.array(weights)
        costs, bases = self._members.costs_of_fit, possible_bases(self.base, names)
        starts = [int(self._states.following[0, k]) for k in bases]
        self._options = {start: self._options_after(start) for start in starts}

        estimator = self.quality_estimator
        if estimator is None:
            estimator = answers_forest(len(target), _MOST_ROWS, self.n_jobs)
            estimator, fit_params = with_weights(estimator, row_weight)
        else:
            estimator, fit_params = with_weights(estimator, answers.given_weight)

        def fit(state, target):
            features = self._features(
                [scores[k] for k in self._states.answers[state]], state
            )
            options = {
                "name": "quality_estimator",
                "n_jobs": self.n_jobs,
                "fit_params": fit_params,
            }
            return cross_fit(estimator, features, target, answers.folds, **options)[:2]

        # The special case first: its estimates also say which prices matter.
        rules, cost, quality = self._learn_addons(
            np.column_stack(made), fit, row_weight
        )
        self._values = None
        if self._states.n_calls > 2:
            reached = np.flatnonzero(self._states.asked[:, bases].any(axis=1))
            self._values, brought, spent = roll_back(
                self._states,
                realised,
                costs,
                self.prices_,
                fit,
                only=reached,
                abstain_quality=abstain_quality,
            )
            for start, base in zip(starts, bases):
                rules += [(start, price, at) for at, price in enumerate(self.prices_)]
                cost += list(costs[base] + spent[start].T)
                quality += list(brought[start].T)
        self._choose(rules, np.array(cost), np.array(quality), answers.part, row_weight)
        self._set_choices(choice_names, used, weights, thresholds)

    def _features(self, scores, state):
        weights = self.choice_weights_[self._first_choice[state]]
        used = list(self._states.answers[state])
        return answer_features(scores, weights[used], self._multilabel)

    def _options_after(self, start):
        """FrugalMCT's options: the base alone, both combined, the add-on alone, abstaining."""
        options = [self._first_choice[start]]
        for k in np.flatnonzero(self._states.following[start] >= 0):
            state = self._states.following[start, k]
            both = self._first_choice[state]
            options += [both, both + 1 + self._states.answers[state].index(k)]
        if self.abstain_quality_ is not None:
            options.append(self._first_choice[start] + 1)
        return np.array(options)

    def _learn_addons(self, made, fit, row_weight):
        """Rules that buy one add-on at most; sets the prices of those that may buy more."""
        rules, spent, brought, prices = [], [], [], [0.0]
        abstain_quality = self.abstain_quality_
        self._addons, self._some_abstain = {}, False
        for start, options in self._options.items():
            ways, costs = np.take(made, options, axis=1), self.choice_costs_[options]
            n_answers = len(options) - (abstain_quality is not None)
            model, estimate = fit(start, ways[:, :n_answers])
            self._addons[start] = StateValues(model, n_answers, 0, 0, abstain_quality)
            estimate, _ = self._addons[start].split(estimate)
            path = assignment_path(estimate, costs, weight=row_weight)
            # Where little is spent, each bit of it buys most.
            for price in spread_prices(path, _N_ADDON_PRICES, 2.0):
                choice = choose_at_price(estimate, costs, price)
                self._some_abstain |= bool((choice == n_answers).any())
                rules.append((start, price, -1))
                spent.append(costs[choice])
                brought.append(ways[np.arange(len(ways)), choice])
            prices += list(spread_prices(path, self.n_prices + 1))
        # At an infinite price, that of the smallest budget, nothing is sequential.
        prices = np.unique(prices)[::-1]
        prices = prices[np.isfinite(prices)]
        at = np.linspace(0, len(prices) - 1, min(self.n_prices, len(prices)))
        self.prices_ = prices[np.unique(at.round().astype(int))]
        return rules, spent, brought

    def _choose(self, rules, cost, quality, part, row_weight):
        """The rules that are worth mixing, by all rows and, to validate them, without each part.

        A rule is the state after the member that is asked first, what an answer must bring for
        each unit of its cost, and the position of that in `prices_`, -1 for one add-on at most.
        """
        start, price, price_at = map(np.array, zip(*rules))
        # To abstain from every row has no error at all, and would win against whatever is docked.
        slack = 0.0 if self._some_abstain else _SLACK

        def mixed(rows):
            tables = cost[:, rows], quality[:, rows]
            own_weight = None if row_weight is None else row_weight[rows]
            means = [mean_of_rows(table, own_weight) for table in tables]
            docked = docked_quality(*tables, price_at < 0, slack, own_weight)
            _, kept = best_mixture(means[0], docked)
            # Mixtures are of what rules are found to be, which may fall where they are docked.
            return Mixture(means[0][kept], np.maximum.accumulate(means[1][kept])), kept

        held_out = []
        for rows, others in rows_and_others(part):
            mixture, kept = mixed(others)
            own_weight = None if row_weight is None else row_weight[rows]
            held_out.append(
                HeldOutRules(
                    rows,
                    mixture,
                    cost[kept][:, rows],
                    quality[kept][:, rows],
                    own_weight,
                )
            )
        mixture, kept = mixed(np.arange(len(part)))
        largest_budget, self._validated_parts = limit_path(mixture.cost, held_out)
        self.mixture_ = mixture.up_to(largest_budget)
        kept = kept[: len(self.mixture_.cost)]
        self._rules = start[kept], price[kept], price_at[kept]

    # Decisions ------------------------------------------------------------------------------

    def _smallest_budget(self):
        return min(self.choice_costs_[options[0]] for options in self._options.values())

    def _plan(self, X, call):
        check_affordable(call.budget, self._smallest_budget())
        rule = self.mixture_.draw(X, call.budget, call.request_id)
        asked = self._asked_answers(X)
        start, price, price_at = self._rules
        state, route = start[rule], np.full(len(rule), -1)
        for at in range(1, len(self._first_choice)):
            for one in np.unique(rule[state == at]):
                rows = np.flatnonzero((state == at) & (rule == one))
                state[rows], route[rows] = self._step(
                    asked, rows, at, price[one], price_at[one]
                )
        return Plan(route, self.choice_costs_[route], asked)

    def _step(self, asked, rows, at, price, price_at):
        """For some rows in one state under one rule the next state (-1: none) and the choice."""
        scores = [asked.scores(k, rows) for k in self._states.answers[at]]
        features = self._features(scores, at)
        if price_at < 0:
            values, options = self._addons[at], self._options[at]
            ways, _ = values.split(
                predict_matrix(values.model, features, "quality_estimator")
            )
            return -1, options[
                choose_at_price(ways, self.choice_costs_[options], price)
            ]
        values, nexts = (
            self._values[at],
            np.flatnonzero(self._states.following[at] >= 0),
        )
        ways, going = values.split(
            predict_matrix(values.model, features, "quality_estimator")
        )
        going, costs = going[:, :, [price_at]], self._members.costs_of_fit[nexts]
        move = best_move(ways, going, costs, np.array([price]))
        after = np.append(self._states.following[at, nexts], -1)[move.onward[:, 0]]
        return after, self._first_choice[at] + move.way
