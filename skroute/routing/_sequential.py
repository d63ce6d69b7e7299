"""Service after service, for as long as the next answer is worth its price."""

import numpy as np

from skroute.assignment import assignment_path, choose_at_price
from skroute.base import Plan, check_affordable
from skroute.routing._answers import CombiningRouter, check_base, possible_bases
from skroute.routing._combiner import search_combinations
from skroute.routing._draws import row_uniforms
from skroute.routing._exits import ExitAnswers, chains, continued, stage_calls
from skroute.routing._policies import PolicyHull, policy_hull, price_curve, spread_prices
from skroute.routing._predictors import answer_features, fit_predictor, predict_values
from skroute.routing._rollout import decide, roll_back, service_sets, split_outputs
from skroute.utils._compat import HasMethods, Integral, Interval, num_samples

# Budgets at which the one-add-on policies of each base are candidates.
_N_ADDON_PRICES = 33
# One regressor is fitted for each set of services.
_MAX_SETS = 255


class SequentialRouterClassifier(CombiningRouter):
    r"""Ask one service after another, for as long as the next answer is worth its price.

    After each answer the row either stops, and is answered with the combination of all
    answers paid for (or with one of them, where that is estimated to be better), or asks
    the service whose next answer is worth most: the service k that maximises
    :math:`\hat V_{S \cup k}(x) - p\, c_k`, where :math:`S` are the services asked so far
    and :math:`\hat V` estimates, from their answers, what going on is worth at the price
    :math:`p`, later purchases included.

    :math:`\hat V` is fitted backward, from large sets of services to small ones, on what
    the policy has made of training rows. The policies at several prices and from each
    possible first service are then compared out of sample with one another and with their
    special case that buys one add-on at most, which is :class:`FrugalMCTClassifier`; for
    a budget the best one, or a mixture of two, is used.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The services, with ``predict_proba``. Each is cloned and fitted; a fitted one is
        passed as :class:`~sklearn.frozen.FrozenEstimator`, and then the rows given to
        `fit` should be new to it. A label that a service does not name has the score 0.
        The exits of a net (:meth:`skroute.members.MultiExitClassifier.exits`) are asked in
        their order, each going on from the one before.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each service. ``"time"`` measures seconds per sample in `fit`. The
        cost of an exit is what it adds to the exit before.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`, all calls included. None is
        unlimited. Raising it buys more answers.

    base : str, default="auto"
        Name of the service that is asked first. ``"auto"`` chooses one, or mixes two, at
        the budget asked for.

    max_calls : int, default=3
        Services asked about one row at most. One regressor is fitted for each set of up
        to that many of m services, up to :math:`2^m - 1`. 2 allows one add-on.

    n_prices : int, default=12
        Prices that the sequential policies are fitted for. Raising it follows the budget
        more closely and fits regressors with more outputs.

    accuracy_estimator : multi-output regressor, default=None
        Estimates the value of stopping and of going on from the answers so far. None
        takes a random forest of 30 trees with up to 150 rows per leaf. Its training rows
        are estimated out of sample: from ``oob_prediction_`` where the fitted estimator
        has it, else by cross-validation.

    sample_quality : callable, default=None
        ``sample_quality(y_true, y_pred)`` returns the accuracy of each row, an array of
        shape (n_samples,). None is 1 for the right label and 0 otherwise; for several
        labels the number of labels in common divided by that of labels in either.

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
        What `route` indexes: the sets of services that a row may end with, their answers
        combined ("cnn + ocr") or one of them preferred ("cnn + ocr > ocr").

    choice_costs_ : ndarray of shape (n_choices,)
        Cost of each.

    choice_weights_ : ndarray of shape (n_choices, n_members)
        Combiner weights of each.

    choice_thresholds_ : ndarray of shape (n_choices,)
        Score above which a label is named; where y is an indicator matrix.

    member_names_ : list of str
        Names of the services.

    estimators_ : list of classifiers
        The fitted services.

    costs_ : ndarray of shape (n_members,)
        Cost of each service's call.

    prices_ : ndarray of shape (n_prices,)
        Prices that the sequential policies were fitted for, falling.

    hull_ : PolicyHull
        Validated mean cost and accuracy of the policies that are used, by rising cost.

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
    Which of two mixed policies a row follows is drawn from a hash of the row, so that it
    is the same in every batch. `route` and `predict_cost` ask the services that `predict`
    asks, since their answers are what decides.

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
        "accuracy_estimator": [HasMethods(["fit", "predict"]), None],
        "sample_quality": [callable, None],
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
        accuracy_estimator=None,
        sample_quality=None,
        cv=5,
        n_jobs=None,
    ):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.base = base
        self.max_calls = max_calls
        self.n_prices = n_prices
        self.accuracy_estimator = accuracy_estimator
        self.sample_quality = sample_quality
        self.cv = cv
        self.n_jobs = n_jobs

    def _check(self, X, members):
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
        n_sets = len(service_sets(len(members), self.max_calls, self._before)[0])
        if n_sets > _MAX_SETS:
            raise ValueError(
                f"max_calls={self.max_calls!r} with {len(members)} members needs a regressor for "
                f"each of {n_sets} sets; at most {_MAX_SETS} are allowed. Lower max_calls or drop "
                "members."
            )

    def _row_quality(self, target, answers):
        return self._target.quality(target, answers, self.sample_quality)

    def _possible_bases(self, names):
        return [k for k in possible_bases(self.base, names) if self._before[k] < 0]

    def _least_cost(self, costs, names):
        return float(costs[self._possible_bases(names)].min())

    def _timed_calls(self, names, fitted):
        return super()._timed_calls(names, fitted) | stage_calls(self._before, names, fitted)

    def _learn(self, X, target, answers):
        scores = answers.responses
        members, following = service_sets(len(scores), self.max_calls, self._before)
        found = search_combinations(scores, target, self._row_quality, self.max_calls)
        # Ways to answer in each state: all combined, or any one of several services alone.
        realised, choices = [], []
        self._first_choice = []
        for row in members:
            used = np.flatnonzero(row)
            ways = [found[frozenset(used)]]
            if len(used) > 1:
                ways += [found[frozenset([k])] for k in used]
            self._first_choice.append(len(choices))
            name = " + ".join(np.array(self.member_names_)[used])
            names = [name, *(f"{name} > {self.member_names_[k]}" for k in used)]
            choices += [(name, row, w, theta) for name, (w, theta, _) in zip(names, ways)]
            realised.append(np.column_stack([per_row for _, _, per_row in ways]))
        self._state_members, self._following = members, following
        # States of one service, in the order of the services that may come first.
        bases = self._possible_bases(answers.names)
        starts = [int(np.flatnonzero(members[:, k])[0]) for k in bases]
        self._state_weights = np.array([choices[at][2] for at in self._first_choice])

        def fit(state, values):
            used = np.flatnonzero(members[state])
            features = self._features([scores[k] for k in used], state)
            return fit_predictor(self.accuracy_estimator, features, values, answers.folds)

        # The special case first: its estimates also say which prices matter.
        candidates, prices = [], [0.0]
        self._addon_models = [None] * len(members)
        for base in starts:
            options = self._addon_options(base)
            ways = np.column_stack([realised[state][:, way] for state, way, _ in options])
            costs = np.array([cost for _, _, cost in options])
            self._addon_models[base], estimate = fit(base, ways)
            path = assignment_path(estimate, costs)
            own = spread_prices(path, _N_ADDON_PRICES)
            curve = price_curve(estimate, ways, costs, own)
            candidates += [(base, -1, p, c, a) for p, c, a in zip(own, *curve)]
            prices += list(spread_prices(path, self.n_prices + 1))
        # At an infinite price, that of the smallest budget, nothing is sequential.
        prices = np.unique(prices)[::-1]
        prices = prices[np.isfinite(prices)]
        at = np.linspace(0, len(prices) - 1, min(self.n_prices, len(prices)))
        self.prices_ = prices[np.unique(at.round().astype(int))]
        self._models = [None] * len(members)
        if members.sum(axis=1).max() > 2:
            reached = np.flatnonzero(members[:, bases].any(axis=1))
            rollout = roll_back(following, realised, self.costs_, self.prices_, fit, reached)
            self._models = rollout.models
            for base in starts:
                cost = self.costs_[members[base]].sum() + rollout.cost[base]
                rows = zip(range(len(self.prices_)), self.prices_, cost, rollout.accuracy[base])
                candidates += [(base, j, p, c, a) for j, p, c, a in rows]
        base, price_at, price, cost, accuracy = map(np.array, zip(*candidates))
        hull = policy_hull(cost, accuracy)
        self._policy_start = base[hull.policy]
        self._policy_price_at = price_at[hull.policy]
        self._policy_price = price[hull.policy]
        self.hull_ = PolicyHull(hull.cost, hull.value, np.arange(len(hull.policy)))
        self._set_choices(*zip(*choices))

    def _features(self, scores, state):
        used = np.flatnonzero(self._state_members[state])
        return answer_features(scores, self._state_weights[state, used], self._multilabel)

    def _addon_options(self, base):
        """FrugalMCT's options from a state of one service.

        State, way to answer in it, and cost of getting there.
        """
        base_cost = self.costs_[self._state_members[base]].sum()
        options = [(base, 0, base_cost)]
        for k in np.flatnonzero(self._following[base] >= 0):
            state, cost = self._following[base, k], base_cost + self.costs_[k]
            alone = 1 + int(np.flatnonzero(self._state_members[state]).searchsorted(k))
            options += [(state, 0, cost), (state, alone, cost)]
        return options

    def _plan(self, X, budget):
        check_affordable(budget, self._least())
        low, high, share = self.hull_.mixture(budget)
        n = num_samples(X)
        policy = np.full(n, low, dtype=np.int64)
        if share > 0:
            policy[row_uniforms(X, 1)[:, 0] < share] = high
        answers = ExitAnswers(self, X)
        state = self._policy_start[policy].astype(np.int64)
        way = np.zeros(n, dtype=np.int64)
        active = np.arange(n)
        while len(active):
            going = []
            groups = state[active] * len(self.hull_.cost) + policy[active]
            for group in np.unique(groups):
                rows = active[groups == group]
                at, one = divmod(int(group), len(self.hull_.cost))
                state[rows], way[rows] = self._step(answers, rows, at, one)
                # One add-on is bought without coming back.
                if self._policy_price_at[one] >= 0:
                    going.append(rows[state[rows] != at])
            active = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *going]))
        route = np.asarray(self._first_choice)[state] + way
        return Plan(route, self.choice_costs_[route], answers)

    def _step(self, answers, rows, state, policy):
        """For some rows in one state under one policy: next state, way to answer there."""
        price_at, price = self._policy_price_at[policy], self._policy_price[policy]
        model = self._addon_models[state] if price_at < 0 else self._models[state]
        used = np.flatnonzero(self._state_members[state])
        features = self._features([answers.ask(k, rows) for k in used], state)
        if price_at < 0:
            states, ways, costs = map(np.array, zip(*self._addon_options(state)))
            values = predict_values(model, features, len(states))
            option = choose_at_price(values, costs, price)
            return states[option], ways[option]
        nexts = np.flatnonzero(self._following[state] >= 0)
        n_ways = 1 if len(used) == 1 else 1 + len(used)
        n_outputs = n_ways + len(nexts) * len(self.prices_)
        values, going = split_outputs(
            predict_values(model, features, n_outputs), n_ways, len(nexts), len(self.prices_)
        )
        way = values.argmax(axis=1)
        if len(nexts) == 0:
            return np.full(len(rows), state), way
        best = values[np.arange(len(rows)), way]
        choice = decide(best, going[:, :, price_at], self.costs_[nexts], price)
        return np.where(choice >= 0, self._following[state, nexts[choice]], state), way
