"""OCCAM: which classifier answers, per query."""

from skroute.routing._abstaining import AbstainingMixin
from skroute.routing._base import LabelsMixin
from skroute.routing._occam_base import BaseOccam
from skroute.routing._qualities import QUALITY_OF_LABELS
from skroute.utils._compat import HasMethods


class OccamRouterClassifier(AbstainingMixin, LabelsMixin, BaseOccam):
    r"""Answer each row with the classifier that is worth its cost for that row.

    `fit` fits the members and records how each does on rows that it has not seen: the
    success probability :math:`SP_i(x) = f_i(x)[y]`. An accuracy estimator learns to
    predict it for new rows. A row then goes to the member with the best
    :math:`\widehat{SP}_i(x) - \lambda \sigma_i - p\, c_i`, where the price :math:`p` is
    learned so that the mean cost meets the budget. Only that member is called.

    Parameters
    ----------
    estimators : list of (str, classifier)
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
        Predicts the members' success from the embedding. None takes
        :class:`~skroute.quality.QualityRegressor`. The paper's own is
        :class:`~skroute.quality.BaggedNeighborsRegressor`, on features scaled to [0, 1].

    embedding : None, transformer, str or (str, str), default=None
        What the accuracy estimator sees: X itself; the output of a transformer, which is
        cloned and fitted; or ``predict_proba`` of the member of that name, out of fold in
        `fit`. That member is then called on every row: its cost is charged to every row and
        deducted from the budget, and choosing it costs nothing more. Unless it answers
        otherwise than by its largest probability, which `fit` checks on held-out rows, as
        nets and classifiers with a decision threshold do: then it is asked for its answer,
        and paid, a second time where it is chosen.

        The name of a net (skorch, or anything with a ``module_``) and a layer of it, for
        example ``("cnn", "features.3")``, a path of attributes from its module: the output
        of that layer instead of ``predict_proba``. It is computed in the pass that answers,
        so that it costs nothing more. The net must be a
        :class:`~sklearn.frozen.FrozenEstimator` fitted on other rows than those given to
        `fit`, of which it would know the labels. In `fit` the layer of all rows is held in
        memory, in float32; prefer a pooled layer to a wide convolution.

    quality : str, mapping, array-like, callable or (str, callable), default="accuracy"
        What an answer is worth; the best of it is bought, and price and validation are in its
        unit, higher is better. Members that answer with a decision threshold are measured with
        it. ``score`` stays accuracy.

        - ``"accuracy"``, or ``"balanced_accuracy"``: right answers, all true classes alike.
        - A cost matrix: a mapping from (true label, given label) to money, or an array with a
          row for each true label of ``classes_`` and a column for each given one. The quality
          is minus that money. See `exchange_rate`.
        - ``"f1"`` of the second of two classes: a ratio of sums. For each budget it is made
          linear at the ratio that the policy reaches (Dinkelbach's iteration).
        - ``"log_loss"``, ``"brier"``: minus these losses of ``predict_proba``. They compare
          members' probabilities, so each member is calibrated first, on its cross-fitted answers
          to the rows of `fit`, by whichever of scikit-learn's calibrations (or none) has the
          least cross-fitted log loss; see ``calibration_``. `predict` stays the members' own.
        - ``"probability"``: of the true label, as members say it, which is the paper's success
          probability; it compares only members that are calibrated alike.
        - A function of true and given labels to one number per row, higher is better;
          ``("predict_proba", function)`` of true labels and probabilities; ``("ratio",
          function)`` to a pair of arrays, of which the ratio of the sums is the quality.

    exchange_rate : float, default=None
        What one unit of `costs` is worth in the unit of `quality`. Quality minus that is then
        maximised within the budget. None is 1 where `quality` is a cost matrix and there is no
        budget, so that the sum of both, errors and prices, is least; 0 otherwise. Raising it
        leaves more of a budget unspent.

    reg_lambda : float, default=0.0
        Lambda: how many standard deviations of its estimation error (measured out of
        sample) a member is docked. Raising it prefers members that are predicted
        reliably.

    policy : {"online", "batch"}, default="online"
        ``"online"`` decides each row alone by the price learned in `fit`; the budget
        holds on average. ``"batch"`` solves the assignment for the rows given; the
        budget is a hard cap on them.

    abstain_cost : float, default=None
        What it costs, in units of `quality`, to hand a row over to a person instead of answering
        it: the row counts as the best quality of any answer in `fit` minus this, and costs no
        more than `routing_cost_`. `predict` marks it by None, `predict_proba` by NaN. None never
        hands over. Raising it hands fewer rows over.

    routing_cost : float, default=None
        Cost of deciding on one row (embedding transformer and estimate), in the unit of
        `costs`; part of the budget. None measures it with ``costs="time"`` and is 0
        otherwise.

    cv : int, splitter or iterable of splits, default=5
        Folds that make the members' answers and the accuracy estimates out-of-sample. An
        int is stratified by class for the members, and shuffled with a fixed seed for the
        estimates; a splitter or a list of (train, test) serves both. ``groups`` reach a
        splitter through metadata routing.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        Names of the members that `route` indexes; with an `abstain_cost` ``"abstain"`` as the
        last one.

    estimators_ : list of classifiers
        The fitted members, in this order.

    costs_ : ndarray of shape (n_choices,)
        Cost of each member's call; 0 for handing over.

    min_budget_ : float
        The smallest feasible budget: the cheapest choice and what every row pays for routing.

    routing_cost_ : float
        What each row pays before its member is known: `routing_cost`, measured where
        ``costs="time"``, and the member that embeds.

    quality_estimator_ : estimator
        Fitted on all rows.

    quality_std_ : ndarray of shape (n_choices,)
        Sigma: out-of-sample standard deviation of the estimation error.

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

    calibration_ : dict from str to str or None
        How the probabilities of each member are calibrated, where `quality` is ``"log_loss"`` or
        ``"brier"``; empty for others.

    mean_quality_ : ndarray of shape (n_choices,)
        Out-of-sample quality of each member for all rows.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    BudgetRouter : The same policy from logged outcomes, without classifiers.
    SingleBestClassifier, RandomRouterClassifier, OracleRouterClassifier : Baselines.

    Notes
    -----
    `predict` and its like also take, by keyword,

    - ``exclude``, a list of names of ``choices_`` that are not to be chosen, such as a model
      that is down. The price is solved for anew from the stored estimates of the others, in
      milliseconds, so that the budget is used and held as after a fit without them;
    - ``allowed``, booleans of shape (n_samples, n_choices): which choices each row may make, for
      example where a context is too long for a model. The rows are decided at the price of the
      router, those that have no other choice as they must be; under ``policy="batch"`` the
      budget is a cap with them. A row for which nothing is left is an error, before any call;
    - ``request_id``, of shape (n_samples,): what the draws of ties are made of, in place of the
      row. A service that calls with one row at a time gives it where equal rows are many.

    `reg_lambda`, `costs` and `exchange_rate` act at once on a fitted router, as `budget` and
    `policy` do: estimates and quality of the rows of `fit` are kept, and the
    price is solved for anew.

    ``fit(X, y, sample_weight=...)`` fits every member with the weights, and price, validation
    and mean quality count rows by them. With scikit-learn's metadata routing each member says
    whether it takes them.

    Rows that are worth exactly the price are mixed, so that all of the budget is used: which
    way such a row goes is drawn from a hash of the row and of how often it came before in the
    call.

    References
    ----------
    .. [1] D. Ding, B. Xu, L. V. S. Lakshmanan, "OCCAM: Towards Cost-Efficient and
       Accuracy-Aware Classification Inference", ICLR 2025.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn.model_selection import train_test_split
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skroute.routing import OccamRouterClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> router = OccamRouterClassifier(
    ...     [("bayes", GaussianNB()), ("forest", RandomForestClassifier(30, random_state=0))],
    ...     costs={"bayes": 1, "forest": 10},
    ...     budget=5,
    ... )
    >>> router = router.fit(X_train, y_train)
    >>> y_pred, route, cost = router.predict_routed(X_test)
    >>> bool(4 < cost.mean() < 6)
    True
    >>> router.score(X_test, y_test) > router.named_estimators_.bayes.score(X_test, y_test) + 0.04
    True
    """

    _parameter_constraints: dict = {
        **BaseOccam._parameter_constraints,
        "quality": QUALITY_OF_LABELS,
        "embedding": [HasMethods(["fit", "transform"]), str, tuple, None],
    }

    def __init__(
        self,
        estimators,
        *,
        costs,
        budget=None,
        quality_estimator=None,
        embedding=None,
        quality="accuracy",
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
