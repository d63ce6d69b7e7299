"""OCCAM for numbers: which regressor answers, per query."""

from skroute.routing._abstaining import AbstainingMixin
from skroute.routing._base import NumbersMixin
from skroute.routing._occam_base import BaseOccam
from skroute.routing._qualities import QUALITY_OF_NUMBERS
from skroute.utils._compat import HasMethods


class OccamRouterRegressor(AbstainingMixin, NumbersMixin, BaseOccam):
    r"""Answer each row with the regressor that is worth its cost for that row.

    :class:`OccamRouterClassifier` for numbers. `fit` fits the members and records how far
    each is off on rows that it has not seen; the quality of an answer is minus its loss. An
    accuracy estimator learns to predict it for new rows. A row then goes to the member with
    the best :math:`\hat q_i(x) - \lambda \sigma_i - p\, c_i`, where the price :math:`p` is
    learned so that the mean cost meets the budget. Only that member is called.

    Parameters
    ----------
    estimators : list of (str, regressor)
        The members. Each is cloned and fitted; a fitted one is passed as
        :class:`~sklearn.frozen.FrozenEstimator`, and then the rows given to `fit` should
        be new to it. ``set_params(name="drop")`` leaves one out.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member, in any one unit (seconds, dollars, FLOPs).
        ``"time"`` measures it in `fit`: median seconds per sample, device-synchronised.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`, everything included. None is
        unlimited. Raising it sends more rows to more expensive members.

    quality_estimator : multi-output regressor, default=None
        Predicts the members' quality from the embedding. None takes
        :class:`~skroute.quality.QualityRegressor`.

    embedding : None or transformer, default=None
        What the accuracy estimator sees: X itself, or the output of a transformer, which is
        cloned and fitted.

    quality : str or callable, default="squared_error"
        What an answer is worth: minus a loss of scikit-learn that is a mean over rows,
        ``"squared_error"``, ``"absolute_error"``, ``"squared_log_error"``,
        ``"absolute_percentage_error"``, ``"poisson_deviance"`` or ``"gamma_deviance"``; or a
        function of true and answered numbers to one number per row, higher is better.
        ``score`` stays R².

    exchange_rate : float, default=None
        What one unit of `costs` is worth in the unit of `quality`. Quality minus that is then
        maximised within the budget. None is 0. Raising it leaves more of a budget unspent.

    reg_lambda : float, default=0.0
        How many standard deviations of its estimation error (measured out of sample) a member
        is docked. Raising it prefers members whose losses are predicted reliably.

    policy : {"online", "batch"}, default="online"
        ``"online"`` decides each row alone by the price learned in `fit`; the budget
        holds on average. ``"batch"`` solves the assignment for the rows given; the
        budget is a hard cap on them.

    abstain_cost : float, default=None
        What it costs, in units of `quality`, to hand a row over to a person instead of answering
        it: the row counts as the best quality of any answer in `fit` minus this, and costs no
        more than `routing_cost_`. `predict` marks it by NaN. None never hands
        over. Raising it hands fewer rows over.

    routing_cost : float, default=None
        Cost of deciding on one row (embedding transformer and estimate), in the unit of
        `costs`; part of the budget. None measures it with ``costs="time"`` and is 0
        otherwise.

    cv : int, splitter or iterable of splits, default=5
        Folds that make the members' answers and the quality estimates out-of-sample. An int is
        that many consecutive folds for the members, and shuffled ones with a fixed seed for
        the estimates; a splitter or a list of (train, test) serves both. Where rows are sorted,
        give a shuffled splitter. ``groups`` reach a splitter through metadata routing.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    choices_ : list of str
        Names of the members that `route` indexes; with an `abstain_cost` ``"abstain"`` as the
        last one.

    estimators_ : list of regressors
        The fitted members, in this order.

    costs_ : ndarray of shape (n_choices,)
        Cost of each member's call; 0 for handing over.

    min_budget_ : float
        The smallest feasible budget: the cheapest choice and what every row pays for routing.

    routing_cost_ : float
        What each row pays before its member is known: `routing_cost`, measured where
        ``costs="time"``.

    quality_estimator_ : estimator
        Fitted on all rows.

    quality_std_ : ndarray of shape (n_choices,)
        Out-of-sample standard deviation of the estimation error.

    price_path_ : AssignmentPath
        Price for every budget, `routing_cost_` not included.

    price_ : float
        Price at `budget`; infinite where it is the smallest feasible one.

    validation_quality_ : float
        Mean quality of the cross-fitted decisions at `budget`, each at a price that was
        learned without the row's fold.

    validation_cost_ : float
        What they cost on average.

    validation_quality_se_, validation_cost_se_ : float
        Standard errors of the two, as estimates for new rows.

    embedding_ : transformer or None
        Fitted on all rows.

    abstain_quality_ : float or None
        What a row counts as that is handed over; None where none is.

    mean_quality_ : ndarray of shape (n_choices,)
        Out-of-sample quality of each member for all rows.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    OccamRouterClassifier : The same for labels.
    SingleBestRegressor, RandomRouterRegressor, OracleRouterRegressor : Baselines.

    Notes
    -----
    ``exclude``, ``allowed`` and ``request_id`` of a call, what acts at once on a fitted router,
    and weights of rows are as in :class:`OccamRouterClassifier`.

    Losses have heavy tails: where few rows make most of the squared error, the estimate of it
    is noisy, and ``"absolute_error"`` routes more steadily.

    References
    ----------
    .. [1] D. Ding, B. Xu, L. V. S. Lakshmanan, "OCCAM: Towards Cost-Efficient and
       Accuracy-Aware Classification Inference", ICLR 2025.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from sklearn.ensemble import ExtraTreesRegressor
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.routing import OccamRouterRegressor
    >>> X, y = make_friedman1(1000, random_state=0)
    >>> router = OccamRouterRegressor(
    ...     [("ridge", Ridge()), ("trees", ExtraTreesRegressor(random_state=0))],
    ...     costs={"ridge": 1, "trees": 10},
    ...     budget=5.5,
    ... )
    >>> router = router.fit(X[:500], y[:500])
    >>> bool(4.5 < router.predict_cost(X[500:]).mean() < 6.5)
    True
    >>> router.score(X[500:], y[500:]) > router.named_estimators_.ridge.score(X[500:], y[500:])
    True
    """

    _parameter_constraints: dict = {
        **BaseOccam._parameter_constraints,
        "quality": QUALITY_OF_NUMBERS,
        "embedding": [HasMethods(["fit", "transform"]), None],
    }

    def __init__(
        self,
        estimators,
        *,
        costs,
        budget=None,
        quality_estimator=None,
        embedding=None,
        quality="squared_error",
        exchange_rate=None,
        reg_lambda=0.0,
        policy="online",
        abstain_cost=None,
        routing_cost=None,
        cv=5,
        n_jobs=None,
    ):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.quality_estimator = quality_estimator
        self.embedding = embedding
        self.quality = quality
        self.exchange_rate = exchange_rate
        self.reg_lambda = reg_lambda
        self.policy = policy
        self.abstain_cost = abstain_cost
        self.routing_cost = routing_cost
        self.cv = cv
        self.n_jobs = n_jobs
