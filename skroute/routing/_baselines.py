"""The baselines of OCCAM's paper: single best, cost-matched random, oracle."""

import zlib

import numpy as np

from skroute.assignment import assignment_path, choose_at_price, solve_assignment
from skroute.base import Plan
from skroute.routing._members import BaseRouterClassifier, call_predict, call_proba
from skroute.utils._compat import Integral, Interval, StrOptions, num_samples
from skroute.utils._tensors import on_host


def row_uniforms(X, n_columns, seed=0):
    """Uniform numbers in [0, 1) that depend on the row alone.

    A random router must answer a row the same way in whatever batch it comes. Numeric
    rows are hashed by their bytes in a common dtype, others by their text.

    Returns
    -------
    ndarray of shape (n_samples, n_columns)
    """
    if hasattr(X, "tocsr"):
        X = X.tocsr()
        keys = [row.indices.tobytes() + row.data.astype(float).tobytes() for row in X]
    else:
        rows = X.to_numpy() if hasattr(X, "to_numpy") else np.asarray(on_host(X))
        if rows.dtype.kind in "biuf":
            keys = [row.tobytes() for row in np.ascontiguousarray(rows, dtype=np.float64)]
        else:
            keys = [repr(row.tolist() if rows.ndim > 1 else str(row)).encode() for row in rows]
    hashes = np.array([zlib.crc32(key) for key in keys], dtype=np.uint64)
    columns = np.arange(n_columns, dtype=np.uint64)[np.newaxis]
    mixed = hashes[:, np.newaxis] * np.uint64(0x9E3779B97F4A7C15)
    mixed = mixed + (columns + np.uint64(1 + seed * n_columns)) * np.uint64(0xD1B54A32D192ED03)
    # The finaliser of splitmix64: neighbouring inputs give unrelated outputs.
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53


class SingleBestClassifier(BaseRouterClassifier):
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

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        Names of the members that `route` indexes.

    estimators_ : list of classifiers
        The fitted members.

    costs_ : ndarray of shape (n_members,)
        Cost of each member's call.

    quality_ : ndarray of shape (n_members,)
        Mean out-of-sample success of each member.

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

    def __init__(self, estimators, *, costs, budget=None, response="predict", cv=5, n_jobs=None):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.response = response
        self.cv = cv
        self.n_jobs = n_jobs

    def _fit_routing(self, X, y, names, responses):
        self.quality_ = np.array([self._success(y, response).mean() for response in responses])
        self.choices_ = names

    def _plan(self, X, budget):
        allowed = self.costs_ <= budget * (1 + 1e-12)
        if not allowed.any():
            raise ValueError(
                f"budget={budget!r} is below the cheapest feasible plan: the smallest feasible "
                f"budget is {self.costs_.min():.17g} per sample."
            )
        choice = int(np.where(allowed, self.quality_, -np.inf).argmax())
        n = num_samples(X)
        return Plan(np.full(n, choice, dtype=np.int64), np.full(n, self.costs_[choice]))


class RandomRouterClassifier(BaseRouterClassifier):
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

    seed : int, default=0
        Changes the random values. They are hashed from the row, so that a row is routed
        alike in every batch.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        Names of the members that `route` indexes.

    estimators_ : list of classifiers
        The fitted members.

    costs_ : ndarray of shape (n_members,)
        Cost of each member's call.

    path_ : AssignmentPath
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

    _learns_from_answers = False

    _parameter_constraints: dict = {
        **BaseRouterClassifier._parameter_constraints,
        "policy": [StrOptions({"online", "batch"})],
        "seed": [Interval(Integral, 0, None, closed="left")],
    }
    _parameter_constraints.pop("response")
    _parameter_constraints.pop("cv")
    # Without answers to learn from there is nothing to cross-validate.
    cv = None
    response = "predict"

    # Rows on which the price of random values is learned; the values are synthetic.
    _N_PRICE_ROWS = 20_000

    def __init__(self, estimators, *, costs, budget=None, policy="online", seed=0, n_jobs=None):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.policy = policy
        self.seed = seed
        self.n_jobs = n_jobs

    def _fit_routing(self, X, y, names, responses):
        values = np.random.default_rng(self.seed).random((self._N_PRICE_ROWS, len(names)))
        self.path_ = assignment_path(values, self.costs_)
        self.choices_ = names

    def _plan(self, X, budget):
        values = row_uniforms(X, len(self.choices_), self.seed)
        if self.policy == "online":
            route = choose_at_price(values, self.costs_, self.path_.price(budget))
        else:
            route = solve_assignment(values, self.costs_, budget).choices
        return Plan(route, self.costs_[route])


class OracleRouterClassifier(BaseRouterClassifier):
    """The best that any routing of these members can do: it is told the true labels.

    For evaluation only. Given ``y_true`` (``score`` passes it on), every member is asked
    about every row and the budget is spent by true success; the cost reported is that of
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
        Success as whether the answer is right, or as the probability of the true label.

    cv : int, splitter or iterable, default=5
        Folds for the mean quality.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        Names of the members that `route` indexes.

    estimators_ : list of classifiers
        The fitted members.

    costs_ : ndarray of shape (n_members,)
        Cost of each member's call.

    quality_ : ndarray of shape (n_members,)
        Mean out-of-sample success of each member.

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

    def __init__(self, estimators, *, costs, budget=None, response="predict", cv=5, n_jobs=None):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.response = response
        self.cv = cv
        self.n_jobs = n_jobs

    def _fit_routing(self, X, y, names, responses):
        self.quality_ = np.array([self._success(y, response).mean() for response in responses])
        self.choices_ = names

    def _plan(self, X, budget, y_true=None):
        n = num_samples(X)
        if y_true is None:
            values = self.quality_[np.newaxis]
            price = assignment_path(values, self.costs_).price(budget)
            choice = choose_at_price(values, self.costs_, price)[0]
            return Plan(np.full(n, choice, dtype=np.int64), np.full(n, self.costs_[choice]))
        values = self.success(X, y_true)
        route = solve_assignment(values, self.costs_, budget).choices
        return Plan(route, self.costs_[route])

    def success(self, X, y_true):
        """True success of every member on every row; calls all of them.

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
        y = np.minimum(np.searchsorted(self.classes_, y_true), len(self.classes_) - 1)
        if (wrong := self.classes_[y] != y_true).any():
            unseen = y_true[wrong].tolist()[0]
            raise ValueError(
                f"y_true has the label {unseen!r}, which fit has not seen; known are "
                f"{self.classes_.tolist()!r}."
            )
        call = call_proba if self.response == "proba" else call_predict
        return np.column_stack(
            [
                self._success(y, call(name, member, self.classes_, X))
                for name, member in zip(self.choices_, self.estimators_)
            ]
        )

    def predict_routed(self, X, budget=None, y_true=None):
        """Answers, choices and costs from one pass.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            Mean cost per sample for this call, in the unit of `costs`. None takes the
            constructor's; ``numpy.inf`` is unlimited.

        y_true : array-like of shape (n_samples,), default=None
            True labels.

        Returns
        -------
        Routed
            Named tuple ``(y_pred, route, cost)``.
        """
        return self._respond(X, "predict", budget=budget, y_true=y_true)

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
        from sklearn.metrics import accuracy_score

        y_pred = self.predict_routed(X, budget=budget, y_true=y).y_pred
        return accuracy_score(on_host(y), y_pred, sample_weight=sample_weight)
