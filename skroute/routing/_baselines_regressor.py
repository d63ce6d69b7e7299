"""The baselines for numbers: single best, cost-matched random, oracle."""

from skroute.routing._abstaining import AbstainingMixin
from skroute.routing._base import NumbersMixin
from skroute.routing._baselines_base import BaseOracle, BaseRandom, BaseSingleBest
from skroute.routing._qualities import QUALITY_OF_NUMBERS


class SingleBestRegressor(AbstainingMixin, NumbersMixin, BaseSingleBest):
    """Answer every row with the one member that is best among those within the budget.

    The baseline that any router has to beat: no decision per row, chosen by out-of-sample
    quality.

    Parameters
    ----------
    estimators : list of (str, regressor)
        The members; fitted ones as :class:`~sklearn.frozen.FrozenEstimator`.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member; ``"time"`` measures seconds per sample in `fit`.

    budget : float, default=None
        Cost that the member may have, in the unit of `costs`. None is unlimited.

    quality : str or callable, default="squared_error"
        What an answer is worth, as in :class:`OccamRouterRegressor`.

    exchange_rate : float, default=None
        What one unit of `costs` is worth in the unit of `quality`; what is left of quality is
        then maximised within the budget. None is 0.

    abstain_cost : float, default=None
        What it costs, in units of `quality`, to hand a row over to a person instead of answering
        it: the row counts as the best quality of any answer in `fit` minus this, and costs
        nothing. All rows are, where that is better than each member within the budget; `predict`
        then marks them by NaN. None never hands over.

    cv : int, splitter or iterable, default=5
        Folds for the out-of-sample quality.
        A splitter by groups gets them from `fit` as ``groups``, through metadata routing.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    choices_ : list of str
        Names of the members that `route` indexes; with an `abstain_cost` ``"abstain"`` as the
        last one.

    member_names_ : list of str
        Names of the members.

    estimators_ : list of regressors
        The fitted members.

    costs_ : ndarray of shape (n_members,)
        Cost of each member's call.

    mean_quality_ : ndarray of shape (n_choices,)
        Mean out-of-sample quality of each member, and of handing over.

    abstain_quality_ : float or None
        What a row counts as that is handed over; None where none is.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    OccamRouterRegressor : Decides per row.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.dummy import DummyRegressor
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.routing import SingleBestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> members = [("mean", DummyRegressor()), ("ridge", Ridge(alpha=0.1))]
    >>> best = SingleBestRegressor(members, costs=[0, 1], budget=1).fit(X, y)
    >>> best.choices_[best.route(X)[0]]
    'ridge'
    """

    _parameter_constraints: dict = {
        **BaseSingleBest._parameter_constraints,
        "quality": QUALITY_OF_NUMBERS,
    }

    def __init__(
        self,
        estimators,
        *,
        costs,
        budget=None,
        quality="squared_error",
        exchange_rate=None,
        abstain_cost=None,
        cv=5,
        n_jobs=None,
    ):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.quality = quality
        self.exchange_rate = exchange_rate
        self.abstain_cost = abstain_cost
        self.cv = cv
        self.n_jobs = n_jobs


class RandomRouterRegressor(NumbersMixin, BaseRandom):
    """Spend the same budget at random: uniform values into the same knapsack.

    What a router gains beyond this it owes to knowing something about the row.

    Parameters
    ----------
    estimators : list of (str, regressor)
        The members; fitted ones as :class:`~sklearn.frozen.FrozenEstimator`.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member; ``"time"`` measures seconds per sample in `fit`.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`. None is unlimited.

    policy : {"online", "batch"}, default="online"
        ``"online"`` holds the budget on average; ``"batch"`` is a hard cap.

    quality : str or callable, default="squared_error"
        What ``row_quality``, scorers and curves measure answers by, as in
        :class:`OccamRouterRegressor`; it decides nothing here.

    random_state : int, RandomState instance or None, default=0
        Changes the random values; None draws others in each `fit`. They are hashed from
        the row and from how often it came before in the call, so that a row is routed
        alike in every batch, and equal rows in one batch are not.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    choices_ : list of str
        Names of the members that `route` indexes.

    member_names_ : list of str
        The same.

    estimators_ : list of regressors
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
    OccamRouterRegressor : Estimates the values instead.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.dummy import DummyRegressor
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.routing import RandomRouterRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> members = [("mean", DummyRegressor()), ("ridge", Ridge(alpha=0.1))]
    >>> router = RandomRouterRegressor(members, costs=[0, 1], budget=0.3).fit(X, y)
    >>> bool(0.2 < router.predict_cost(X).mean() < 0.4)
    True
    """

    _parameter_constraints: dict = {
        **BaseRandom._parameter_constraints,
        "quality": QUALITY_OF_NUMBERS,
    }

    def __init__(
        self,
        estimators,
        *,
        costs,
        budget=None,
        policy="online",
        quality="squared_error",
        random_state=0,
        n_jobs=None,
    ):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.policy = policy
        self.quality = quality
        self.random_state = random_state
        self.n_jobs = n_jobs


class OracleRouterRegressor(AbstainingMixin, NumbersMixin, BaseOracle):
    """The best that any routing of these members can do: it is told the true numbers.

    For evaluation only. Given ``y_true`` (``score``, ``row_quality`` and curves pass it on),
    every member is asked about every row and the budget is spent by true quality; the cost
    reported is that of the chosen members. Without ``y_true`` it knows no more than each
    member's mean quality.

    Parameters
    ----------
    estimators : list of (str, regressor)
        The members; fitted ones as :class:`~sklearn.frozen.FrozenEstimator`.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member; ``"time"`` measures seconds per sample in `fit`.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`. None is unlimited. With ``y_true``
        it is a hard cap on the rows given.

    quality : str or callable, default="squared_error"
        What an answer is worth, as in :class:`OccamRouterRegressor`.

    exchange_rate : float, default=None
        What one unit of `costs` is worth in the unit of `quality`; what is left of quality is
        then maximised within the budget. None is 0.

    abstain_cost : float, default=None
        What it costs, in units of `quality`, to hand a row over to a person instead of answering
        it: the row counts as the best quality of any answer in `fit` minus this, and costs
        nothing. `predict` marks it by NaN. None never hands over. Raising it hands fewer rows
        over.

    cv : int, splitter or iterable, default=5
        Folds for the mean quality.
        A splitter by groups gets them from `fit` as ``groups``, through metadata routing.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    choices_ : list of str
        Names of the members that `route` indexes; with an `abstain_cost` ``"abstain"`` as the
        last one.

    member_names_ : list of str
        Names of the members.

    estimators_ : list of regressors
        The fitted members.

    costs_ : ndarray of shape (n_members,)
        Cost of each member's call.

    mean_quality_ : ndarray of shape (n_choices,)
        Mean out-of-sample quality of each member, and of handing over.

    abstain_quality_ : float or None
        What a row counts as that is handed over; None where none is.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    OccamRouterRegressor : Has to estimate what this one is told.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.dummy import DummyRegressor
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.routing import OracleRouterRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> members = [("mean", DummyRegressor()), ("ridge", Ridge(alpha=0.1))]
    >>> oracle = OracleRouterRegressor(members, costs=[0, 1], budget=0.7).fit(X, y)
    >>> 0.5 < oracle.score(X, y) < 0.8
    True
    """

    _parameter_constraints: dict = {
        **BaseOracle._parameter_constraints,
        "quality": QUALITY_OF_NUMBERS,
    }

    def __init__(
        self,
        estimators,
        *,
        costs,
        budget=None,
        quality="squared_error",
        exchange_rate=None,
        abstain_cost=None,
        cv=5,
        n_jobs=None,
    ):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.quality = quality
        self.exchange_rate = exchange_rate
        self.abstain_cost = abstain_cost
        self.cv = cv
        self.n_jobs = n_jobs

    def score(self, X, y, sample_weight=None, budget=None):
        """R² when routed with the true numbers.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,)
            True numbers.

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
