"""QWYC for numbers: quit when the prediction will hardly change."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import r2_score
from sklearn.utils import _safe_indexing, check_random_state, indexable

from skroute.base import note_failure
from skroute.early_exit._calibration import affordable, hold_out
from skroute.early_exit._early_sums import COMMON, EarlySums
from skroute.early_exit._ensembles import per_row
from skroute.early_exit._number_exits import (
    judge_numbers,
    learn_number_exits,
    moved_too_far,
    partial_sums,
)
from skroute.early_exit._sum_ensembles import SumEnsemble, forest_of, numbers
from skroute.utils._compat import Interval, Real, num_samples
from skroute.utils._tensors import on_host

__all__ = ["QWYCRegressor"]


class QWYCRegressor(EarlySums):
    """Early exit of a regressor: stop where the prediction will hardly change.

    The trees of an ensemble are evaluated in the order in which their sum nears the full one
    fastest. After member `r` the full sum is expected to be ``shift[r] + slope[r] * partial``;
    a row whose partial sum is above or below the thresholds of that position gets the
    prediction that belongs to it and costs no further member. At most a share `alpha` of the
    rows is predicted more than `tol` away from the full ensemble. Labels are needed for
    fitting the ensemble only; :meth:`optimize` works on rows without them.

    Parameters
    ----------
    estimator : estimator or booster
        The ensemble: a regressor of LightGBM, XGBoost or CatBoost, RandomForest, ExtraTrees,
        GradientBoosting or HistGradientBoosting of scikit-learn, also at the end of a
        Pipeline, or a raw LightGBM or XGBoost booster, which is never refitted. Wrap what is
        fitted in :class:`~sklearn.frozen.FrozenEstimator`.

    tol : float
        How far a prediction may be from that of the full ensemble, in the unit of the target.
        A larger value evaluates fewer members.

    alpha : float, default=0.01
        Share of rows that may be further away than `tol`.

    calibration : float, default=0.25
        Share of the rows that is held out, from fitting the ensemble too, to decide how
        hurried the thresholds may be.

    confidence : float, default=0.95
        Confidence of ``disagreement_bound_``.

    guarantee : bool, default=False
        Whether the upper bound meets `alpha` (True), or the expected share does (False).
        True evaluates more members.

    budget : float, default=None
        Mean number of members per row. Where the thresholds that meet `alpha` take more on
        the calibration rows, more hurried ones are used and `alpha` is no longer met. None is
        unlimited.

    n_jobs : int, default=None
        Threads for batches of rows.

    random_state : int, RandomState instance or None, default=None
        Draws the calibration rows.

    Attributes
    ----------
    estimator_ : object
        The fitted ensemble.

    order_ : ndarray of shape (n_members,), dtype=int64
        Members in order of evaluation.

    thresholds_ : ndarray of shape (n_members, 2), dtype=float64
        Lower and upper threshold of the partial sum at each position; infinite where no row
        leaves.

    disagreement_ : float
        Share of the calibration rows that are predicted more than `tol` away.

    disagreement_bound_ : float
        Upper bound on the expected share: holds with probability `confidence` over the draw
        of the calibration rows, the choice among thresholds included.

    tradeoff_ : Tradeoff
        Named tuple of what was considered, from cautious to hurried: ``thresholds``, and
        ``cost`` and ``disagreement`` of each on the calibration rows; ``chosen`` is the one
        in use.

    min_budget_ : float
        The smallest of these costs.

    choices_ : list of str
        Number of members evaluated: ``choices_[k]`` is ``str(k)``.

    n_features_in_ : int
        Number of features seen during fit.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during fit, where all are strings.

    See Also
    --------
    QWYCEnsemble : For classifiers.
    QWYCRanker : Keeps the top of each group.
    skroute.forests.FastForest : The same engine without exits, to the last bit.

    Notes
    -----
    A prediction takes every tree that still moves it. Where `tol` is small against what the
    last trees add, nearly all are evaluated. Members that are the same for every row
    are no members: they are part of what the sum starts from. A row that goes to the end is
    predicted as by the library, but for rounding.

    References
    ----------
    .. [1] S. Wang, M. Gupta and S. You, "Quit When You Can: Efficient Evaluation of
       Ensembles with Ordering Optimization", arXiv:1806.11202.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_friedman1
    >>> from sklearn.ensemble import GradientBoostingRegressor
    >>> from skroute.early_exit import QWYCRegressor
    >>> X, y = make_friedman1(3000, random_state=0)
    >>> model = GradientBoostingRegressor(random_state=0)
    >>> quick = QWYCRegressor(model, tol=0.2 * y.std(), random_state=0).fit(X[:2000], y[:2000])
    >>> change = np.abs(quick.predict(X[2000:]) - quick.estimator_.predict(X[2000:]))
    >>> bool((change > quick.tol).mean() < 0.03), bool(quick.predict_cost(X[2000:]).mean() < 80)
    (True, True)
    """

    _parameter_constraints: dict = {
        **COMMON,
        "tol": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        estimator,
        *,
        tol,
        alpha=0.01,
        calibration=0.25,
        confidence=0.95,
        guarantee=False,
        budget=None,
        n_jobs=None,
        random_state=None,
    ):
        self.estimator = estimator
        self.tol = tol
        self.alpha = alpha
        self.calibration = calibration
        self.confidence = confidence
        self.guarantee = guarantee
        self.budget = budget
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X, y, **fit_params):
        """Fit the ensemble, unless it is frozen, and optimise its evaluation.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Training rows.

        y : array-like of shape (n_samples,)
            Targets.

        **fit_params : dict
            Passed to the ``fit`` of the ensemble through metadata routing.

        Returns
        -------
        self
            Fitted estimator.
        """
        self.__dict__.pop("estimator_", None)
        return self._run(self._fit, X, y, fit_params)

    def _fit(self, X, y, *, task, **fit_params):
        ensemble = SumEnsemble(self.estimator)
        ensemble.check()
        routed = self._route_metadata(fit_params)
        target = self._checked_target(y)
        rows, target = indexable(self._checked(X), target)
        n = len(target)
        train, held_out = self._split(n)
        seen = _safe_indexing(rows, train)
        with task.step("fit ensemble"):
            params = per_row(routed["estimator"]["fit"], train, n)
            fitted = ensemble.fitted(seen, target[train], params)
        self._learn(SumEnsemble(fitted), seen, _safe_indexing(rows, held_out), task)

    def optimize(self, X: ArrayLike) -> "QWYCRegressor":
        """Optimise the evaluation of a fitted ensemble on rows without targets.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows as they will be predicted. The ensemble is the one of an earlier
            :meth:`fit`, or a frozen one.

        Returns
        -------
        self
            Fitted estimator.
        """
        return self._run(self._optimize, X, None, {}, name="optimize")

    def _optimize(self, X, y, *, task):
        ensemble = self._fitted_ensemble()
        rows = self._checked(X)
        train, held_out = self._split(num_samples(rows))
        self._learn(ensemble, _safe_indexing(rows, train), _safe_indexing(rows, held_out), task)

    def _split(self, n):
        rng = check_random_state(self.random_state)
        if n < 2:
            raise ValueError(f"Found {n} row(s) (n_samples={n}): two are the fewest, one held out.")
        return hold_out(n, self.calibration, rng, np.zeros(n))

    def _learn(self, ensemble, X, X_calibration, task):
        engine, reading = ensemble.engine(X)
        offset = engine.offset[0]

        def answer(sums):
            return numbers(reading, sums)

        with note_failure("the ensemble", num_samples(X), "scoring members"):
            scores, held_out = (engine.scores(rows)[:, :, 0] for rows in (X, X_calibration))
        with task.step("order and thresholds"):
            order, exits, policies = learn_number_exits(scores, offset, answer, self.tol)
        sums = partial_sums(held_out, order, offset)
        wrong = moved_too_far(sums, exits, answer, self.tol)
        chosen = self._choose(policies, *judge_numbers(policies, sums, wrong), "row")
        self.estimator_, self._exits = ensemble.estimator, exits
        self.thresholds_ = np.column_stack([chosen.lo, chosen.hi])
        self._engine = engine.taken(order)
        # One copy of the trees.
        self._reading = reading._replace(forest=forest_of(self._engine)[0])
        self._finish(order, engine.n_members)

    def __setstate__(self, state):
        super().__setstate__(state)
        if "tradeoff_" in state:
            for thresholds in self.tradeoff_.thresholds:
                thresholds.checked(len(self.order_))

    def _plan(self, X, budget):
        policy = self.tradeoff_.thresholds[affordable(self.tradeoff_, budget)]
        walked = self._engine.walk(X, policy, self.n_jobs)
        return self._planned(walked[1], walked)

    def _answer(self, X, plan, response):
        score, members, side = plan.state
        return numbers(self._reading, self._exits.expected(score[:, 0], members, side))

    def score(self, X, y, sample_weight=None, budget=None, **context):
        """Coefficient of determination of `predict` at the budget.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,)
            True numbers.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            As in `predict_routed`.

        **context : keyword arguments
            As in `predict_routed`.

        Returns
        -------
        float
            R², at most 1.
        """
        y_pred = self.predict(X, budget=budget, **context)
        return r2_score(on_host(y), y_pred, sample_weight=sample_weight)
