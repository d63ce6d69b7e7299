"""The baselines of OCCAM's paper: single best, cost-matched random, oracle."""

import numpy as np
from sklearn.utils import check_random_state

from skroute.assignment import assignment_path, choose_at_price, decide, solve_assignment
from skroute.base import Plan, affords, check_affordable
from skroute.routing._base import BaseRouter
from skroute.routing._draws import row_uniforms
from skroute.routing._fit_members import METHOD_OF_RESPONSE, response_quality
from skroute.utils._compat import StrOptions, num_samples
from skroute.utils._tensors import on_host


class SingleBestClassifier(BaseRouter):
    """Answer every row with the one member that is best among those within the budget.

    The baseline that any router has to beat: no decision per row, chosen by out-of-sample
    quality.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The members; fitted ones as :class:`~sklearn.frozen.FrozenEstimator`.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member; ``"time"`` measures seconds per sample in `fit`.

    budget : float, default=None
        Cost that the member may have, in the unit of `costs`. None is unlimited.

    response : {"predict", "proba"}, default="predict"
        Quality as accuracy, or as the mean probability of the true label.

    cv : int, splitter or iterable, default=5
        Folds for the out-of-sample quality.
        A splitter by groups gets them from `fit` as ``groups``, through metadata routing.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        Names of the members that `route` indexes.

    member_names_ : list of str
        The same.

    estimators_ : list of classifiers
        The fitted members.

    costs_ : ndarray of shape (n_members,)
        Cost of each member's call.

    mean_quality_ : ndarray of shape (n_members,)
        Mean out-of-sample quality of each member.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    OccamRouterClassifier : Decides per row.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.dummy import DummyClassifier
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skroute.routing import SingleBestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> members = [("prior", DummyClassifier()), ("tree", DecisionTreeClassifier())]
    >>> best = SingleBestClassifier(members, costs=[0, 1], budget=1).fit(X, y)
    >>> best.choices_[best.route(X)[0]]
    'tree'
    """

    _parameter_constraints: dict = {
        **BaseRouter._parameter_constraints,
        "response": [StrOptions({"proba", "predict"})],
        "cv": ["cv_object"],
    }

    def __init__(self, estimators, *, costs, budget=None, response="predict", cv=5, n_jobs=None):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.response = response
        self.cv = cv
        self.n_jobs = n_jobs

    def _asks(self):
        return METHOD_OF_RESPONSE[self.response]

    def _learn(self, X, target, answers):
        self.mean_quality_ = response_quality(target, answers.responses).mean(axis=0)
        self.choices_ = answers.names

    def _plan(self, X, budget):
        check_affordable(budget, self._least())
        allowed = affords(budget, self.costs_)
        choice = int(np.where(allowed, self.mean_quality_, -np.inf).argmax())
        n = num_samples(X)
        return Plan(np.full(n, choice, dtype=np.int64), np.full(n, self.costs_[choice]))


class RandomRouterClassifier(BaseRouter):
    """Spend the same budget at random: uniform values into the same knapsack.

    What a router gains beyond this it owes to knowing something about the row.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The members; fitted ones as :class:`~sklearn.frozen.FrozenEstimator`.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member; ``"time"`` measures seconds per sample in `fit`.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`. None is unlimited.

    policy : {"online", "batch"}, default="online"
        ``"online"`` holds the budget on average; ``"batch"`` is a hard cap.

    random_state : int, RandomState instance or None, default=0
        Changes the random values; None draws others in each `fit`. They are hashed from
        the row and from how often it came before in the call, so that a row is routed
        alike in every batch, and equal rows in one batch are not.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        Names of the members that `route` indexes.

    member_names_ : list of str
        The same.

    estimators_ : list of classifiers
        The fitted members.

    costs_ : ndarray of shape (n_members,)
        Cost of each member's call.

    price_path_ : AssignmentPath
        Price of random values for every budget.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    OccamRouterClassifier : Estimates the values instead.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.dummy import DummyClassifier
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skroute.routing import RandomRouterClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> members = [("prior", DummyClassifier()), ("tree", DecisionTreeClassifier())]
    >>> router = RandomRouterClassifier(members, costs=[0, 1], budget=0.3).fit(X, y)
    >>> bool(0.2 < router.predict_cost(X).mean() < 0.4)
    True
    """

    _acts_at_once = ("budget", "policy")
    _parameter_constraints: dict = {
        **BaseRouter._parameter_constraints,
        "policy": [StrOptions({"online", "batch"})],
        "random_state": ["random_state"],
    }

    # Rows on which the price of random values is learned; the values are synthetic.
    _N_PRICE_ROWS = 20_000

    def __init__(
        self, estimators, *, costs, budget=None, policy="online", random_state=0, n_jobs=None
    ):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.policy = policy
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _asks(self):
        return None

    def _learn(self, X, target, answers):
        rng = check_random_state(self.random_state)
        self._draw = int(rng.randint(2**31))
        values = rng.uniform(size=(self._N_PRICE_ROWS, len(answers.names)))
        self.price_path_ = assignment_path(values, self.costs_)
        self.choices_ = answers.names

    def _plan(self, X, budget):
        check_affordable(budget, self._least())
        values = row_uniforms(X, len(self.choices_), self._draw)
        route = decide(values, self.costs_, budget, self.price_path_, policy=self.policy)
        return Plan(route, self.costs_[route])


class OracleRouterClassifier(BaseRouter):
    """The best that any routing of these members can do: it is told the true labels.

    For evaluation only. Given ``y_true`` (``score`` passes it on), every member is asked
    about every row and the budget is spent by true quality; the cost reported is that of
    the chosen members. Without ``y_true`` it knows no more than each member's mean
    quality, which is the dummy accuracy predictor of the papers' ablations.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The members; fitted ones as :class:`~sklearn.frozen.FrozenEstimator`.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member; ``"time"`` measures seconds per sample in `fit`.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`. None is unlimited. With ``y_true``
        it is a hard cap on the rows given.

    response : {"predict", "proba"}, default="predict"
        Quality as whether the answer is right, or as the probability of the true label.

    cv : int, splitter or iterable, default=5
        Folds for the mean quality.
        A splitter by groups gets them from `fit` as ``groups``, through metadata routing.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        Names of the members that `route` indexes.

    member_names_ : list of str
        The same.

    estimators_ : list of classifiers
        The fitted members.

    costs_ : ndarray of shape (n_members,)
        Cost of each member's call.

    mean_quality_ : ndarray of shape (n_members,)
        Mean out-of-sample quality of each member.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    OccamRouterClassifier : Has to estimate what this one is told.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.dummy import DummyClassifier
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skroute.routing import OracleRouterClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> members = [("prior", DummyClassifier()), ("tree", DecisionTreeClassifier())]
    >>> oracle = OracleRouterClassifier(members, costs=[0, 1], budget=0.7).fit(X, y)
    >>> oracle.score(X, y)
    1.0
    """

    _call_context = ("y_true",)

    _parameter_constraints: dict = {
        **BaseRouter._parameter_constraints,
        "response": [StrOptions({"proba", "predict"})],
        "cv": ["cv_object"],
    }

    def __init__(self, estimators, *, costs, budget=None, response="predict", cv=5, n_jobs=None):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.response = response
        self.cv = cv
        self.n_jobs = n_jobs

    def _asks(self):
        return METHOD_OF_RESPONSE[self.response]

    def _learn(self, X, target, answers):
        self.mean_quality_ = response_quality(target, answers.responses).mean(axis=0)
        self.choices_ = answers.names

    def _plan(self, X, budget, y_true=None):
        n = num_samples(X)
        if y_true is None:
            check_affordable(budget, self._least())
            values = self.mean_quality_[np.newaxis]
            price = assignment_path(values, self.costs_).price(budget)
            choice = choose_at_price(values, self.costs_, price)[0]
            return Plan(np.full(n, choice, dtype=np.int64), np.full(n, self.costs_[choice]))
        values = self.member_quality(X, y_true)
        route = solve_assignment(values, self.costs_, budget).choices
        return Plan(route, self.costs_[route])

    def member_quality(self, X, y_true):
        """True quality of every member on every row; calls all of them.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y_true : array-like of shape (n_samples,)
            True labels; one that `fit` has not seen is an error.

        Returns
        -------
        ndarray of shape (n_samples, n_choices)
        """
        y_true = np.asarray(on_host(y_true))
        target = np.minimum(np.searchsorted(self.classes_, y_true), len(self.classes_) - 1)
        if (wrong := self.classes_[target] != y_true).any():
            raise ValueError(
                f"y_true has a label that fit has not seen, in row {int(wrong.argmax())}; known "
                f"are {self.classes_.tolist()!r}."
            )
        members = zip(self.choices_, self.estimators_)
        return response_quality(
            target, [self._target.call(self._asks(), name, m, X) for name, m in members]
        )

    def score(self, X, y, sample_weight=None, budget=None):
        """Accuracy when routed with the true labels.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,)
            True labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            Mean cost per sample for this call, in the unit of `costs`. None takes the
            constructor's; ``numpy.inf`` is unlimited.

        Returns
        -------
        float
        """
        return super().score(X, y, sample_weight, budget=budget, y_true=y)
