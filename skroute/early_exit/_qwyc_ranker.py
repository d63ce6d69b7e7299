"""QWYC for ranks: quit when a row cannot enter the top of its group."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import _safe_indexing, check_array, check_random_state, indexable

from skroute.base import note_failure
from skroute.early_exit._calibration import affordable, hold_out
from skroute.early_exit._early_sums import COMMON, EarlySums
from skroute.early_exit._ensembles import per_row
from skroute.early_exit._group_exits import (
    GroupWalk,
    checkpoints,
    judge_groups,
    learn_group_exits,
    runs_of,
    staged_sums,
    top_scores,
)
from skroute.early_exit._sum_ensembles import SumEnsemble, forest_of, numbers
from skroute.forests._own_predict import comes_from
from skroute.forests._rows import rows_of
from skroute.forests._wrapped import take_apart
from skroute.utils._compat import Integral, Interval, num_samples
from skroute.utils._tensors import on_host

__all__ = ["QWYCRanker"]


class QWYCRanker(EarlySums):
    """Early exit of a ranker: a row leaves when it cannot enter the top of its group.

    The rows of a group, such as the documents found for a query, are evaluated together. At
    a few positions, the checkpoints, a row leaves whose partial sum is further below the
    `k`-th best one of its group than the gap learned for that position. The rows that stay get
    the full score, so that the `k` first of a group and their order are those of the full
    ensemble, but in at most a share `alpha` of the groups. Labels are needed for fitting the
    ensemble only; :meth:`optimize` works on rows without them.

    Parameters
    ----------
    estimator : estimator or booster
        The ensemble: a ranker or regressor of LightGBM, XGBoost or CatBoost, RandomForest,
        ExtraTrees, GradientBoosting or HistGradientBoosting regressor of scikit-learn, also at
        the end of a Pipeline, or a raw LightGBM or XGBoost booster, which is never refitted.
        A ranker of one of the three libraries gets the groups in its own way. Wrap what is
        fitted in :class:`~sklearn.frozen.FrozenEstimator`.

    k : int, default=10
        How many rows of each group keep their places. Groups of at most `k` rows are
        evaluated in full.

    alpha : float, default=0.01
        Share of groups the top of which may be another one. A larger value evaluates fewer
        members.

    calibration : float, default=0.25
        Share of the groups that is held out, from fitting the ensemble too, to decide how
        small the gaps may be.

    confidence : float, default=0.95
        Confidence of ``disagreement_bound_``.

    guarantee : bool, default=False
        Whether the upper bound meets `alpha` (True), or the expected share does (False).
        True evaluates more members.

    budget : float, default=None
        Mean number of members per row. Where the gaps that meet `alpha` take more on the
        calibration groups, smaller ones are used and `alpha` is no longer met. None is
        unlimited.

    n_jobs : int, default=None
        Threads for batches of groups.

    random_state : int, RandomState instance or None, default=None
        Draws the calibration groups.

    Attributes
    ----------
    estimator_ : object
        The fitted ensemble.

    order_ : ndarray of shape (n_members,), dtype=int64
        Members in order of evaluation.

    checkpoints_ : ndarray of shape (n_checkpoints,), dtype=int64
        Numbers of members after which rows may leave; the last is the number of members.

    gaps_ : ndarray of shape (n_checkpoints,), dtype=float64
        A row leaves that is further than this below the k-th best of its group; infinite
        where no row leaves.

    disagreement_ : float
        Share of the calibration groups the top of which is another one.

    disagreement_bound_ : float
        Upper bound on the expected share: holds with probability `confidence` over the draw
        of the calibration groups, the choice among gaps included.

    tradeoff_ : Tradeoff
        Named tuple of what was considered, from cautious to hurried: ``thresholds``, which
        are minus the gaps, and ``cost`` and ``disagreement`` of each on the calibration groups;
        ``chosen`` is the one in use.

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
    QWYCRegressor : Keeps each number, within a tolerance.
    skroute.forests.FastForest : The same engine without exits, to the last bit.

    Notes
    -----
    A call takes the group of each row by ``predict(X, groups=groups)``. Without them its rows
    are one group: the candidates of one request. What is predicted for a row depends on the
    rows of its group in the call, so give all of them.

    A row that left is predicted by its partial sum, or just below the `k`-th best of its group if
    that is less: it never enters the top, and its place below is an estimate.

    References
    ----------
    .. [1] B. B. Cambazoglu et al., "Early Exit Optimizations for Additive Machine Learned
       Ranking Systems", WSDM 2010, whose proximity thresholds are the gaps.

    .. [2] S. Wang, M. Gupta and S. You, "Quit When You Can: Efficient Evaluation of
       Ensembles with Ordering Optimization", arXiv:1806.11202.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> from skroute.early_exit import QWYCRanker
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(16000, 5)), np.repeat(np.arange(400), 40)
    >>> relevance = X[:, 0] + np.sin(3 * X[:, 1]) + 0.3 * rng.normal(size=16000)
    >>> model = HistGradientBoostingRegressor(max_iter=60, random_state=0)
    >>> quick = QWYCRanker(model, k=3, alpha=0.05, random_state=0)
    >>> quick = quick.fit(X[:12000], relevance[:12000], groups=groups[:12000])
    >>> bool(quick.predict_cost(X[12000:], groups=groups[12000:]).mean() < 40)  # of 60 trees
    True
    """

    _parameter_constraints: dict = {
        **COMMON,
        "k": [Interval(Integral, 1, None, closed="left")],
    }
    _call_context = ("groups",)

    def __init__(
        self,
        estimator,
        *,
        k=10,
        alpha=0.01,
        calibration=0.25,
        confidence=0.95,
        guarantee=False,
        budget=None,
        n_jobs=None,
        random_state=None,
    ):
        self.estimator = estimator
        self.k = k
        self.alpha = alpha
        self.calibration = calibration
        self.confidence = confidence
        self.guarantee = guarantee
        self.budget = budget
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X, y, groups=None, **fit_params):
        """Fit the ensemble, unless it is frozen, and optimise its evaluation.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Training rows.

        y : array-like of shape (n_samples,)
            Relevance.

        groups : array-like of shape (n_samples,), default=None
            Group of each row, such as the number of its query, in any order. None makes all
            rows one group, of which nothing is learned.

        **fit_params : dict
            Passed to the ``fit`` of the ensemble through metadata routing.

        Returns
        -------
        self
            Fitted estimator.
        """
        self.__dict__.pop("estimator_", None)
        return self._run(self._fit, X, y, {"groups": groups, **fit_params})

    def _fit(self, X, y, *, task, groups=None, **fit_params):
        ensemble = SumEnsemble(self.estimator)
        ensemble.check()
        routed = self._route_metadata(fit_params)
        target = self._checked_target(y)
        rows, target = indexable(self._checked(X), target)
        n = len(target)
        train, held_out, group = self._split(groups, n)
        seen = _safe_indexing(rows, train)
        with task.step("fit ensemble"):
            params = per_row(routed["estimator"]["fit"], train, n)
            params |= _own_groups(ensemble.estimator, group[train])
            fitted = ensemble.fitted(seen, target[train], params)
        held_out = _safe_indexing(rows, held_out), group[held_out]
        self._learn(SumEnsemble(fitted), (seen, group[train]), held_out, task)

    def optimize(self, X: ArrayLike, groups: ArrayLike | None = None) -> "QWYCRanker":
        """Optimise the evaluation of a fitted ensemble on rows without labels.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows as they will be ranked. The ensemble is the one of an earlier :meth:`fit`, or
            a frozen one.

        groups : array-like of shape (n_samples,), default=None
            Group of each row.

        Returns
        -------
        self
            Fitted estimator.
        """
        return self._run(self._optimize, X, None, {"groups": groups}, name="optimize")

    def _optimize(self, X, y, *, task, groups):
        ensemble = self._fitted_ensemble()
        rows = self._checked(X)
        train, held_out, group = self._split(groups, num_samples(rows))
        parts = ((_safe_indexing(rows, at), group[at]) for at in (train, held_out))
        self._learn(ensemble, *parts, task)

    def _split(self, groups, n):
        """Rows to learn from and rows of held-out groups, both sorted by group; groups of rows."""
        group = group_numbers(groups, n)
        n_groups = int(group.max()) + 1
        rng = check_random_state(self.random_state)
        held_out = np.zeros(n_groups, dtype=bool)
        if n_groups > 1:
            held_out[hold_out(n_groups, self.calibration, rng, np.zeros(n_groups))[1]] = True
        order, sorted_group = runs_of(group)
        apart = held_out[sorted_group]
        return order[~apart], order[apart], group

    def _learn(self, ensemble, seen, held_out, task):
        X, group = seen
        engine, reading = ensemble.engine(X)
        offset = engine.offset[0]
        with note_failure("the ensemble", num_samples(X), "scoring members"):
            scores = engine.scores(X)[:, :, 0]
        with task.step("order and gaps"):
            order, policies = learn_group_exits(scores, offset, _counted(group), self.k)
        cost = np.full(len(policies), float(engine.n_members))
        changed = np.zeros((len(policies), 0), dtype=bool)
        if len(held_out[1]):
            ends = checkpoints(engine.n_members)
            sums = staged_sums(engine.scores(held_out[0])[:, :, 0], order, ends, offset)
            cost, changed = judge_groups(policies, sums, ends, _counted(held_out[1]), self.k)
        gaps = self._choose(policies, cost, changed, "group")
        self.estimator_ = ensemble.estimator
        forest, self._before = forest_of(engine)
        self._walk = GroupWalk(forest.taken(order))
        # One copy of the trees.
        self._reading = reading._replace(forest=self._walk.forest)
        self.checkpoints_, self.gaps_ = self._walk.ends, -gaps
        self._finish(order, engine.n_members)

    def _plan(self, X, budget, groups=None):
        gaps = self.tradeoff_.thresholds[affordable(self.tradeoff_, budget)]
        order, group = runs_of(group_numbers(groups, num_samples(X)))
        for transformer in self._before:
            X = transformer.transform(X)
        rows = rows_of(self._walk.forest, X)
        rows = rows if np.array_equal(order, np.arange(len(order))) else rows[order]
        score, members = self._walk.walk(rows, group, gaps, self.k, self.n_jobs)
        left = members < self._walk.ends[-1]
        # What stays is at most that of the k-th best which went to the end.
        kth = top_scores(np.where(left, -np.inf, score), group, self.k)
        score = np.where(left, np.minimum(score, np.nextafter(kth, -np.inf)), score)
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return self._planned(members[back], score[back])

    def _answer(self, X, plan, response):
        return numbers(self._reading, plan.state)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Its score is no R2.
        tags.regressor_tags.poor_score = True
        return tags

    def score(self, X, y, groups=None, budget=None):
        """Relevance of the first `k` of each group, of `predict` at the budget.

        The gain is the sum of relevance over ``log2(place + 1)``, as in NDCG, and it is measured
        from what a random order gains, so that relevance may have any zero.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,)
            Relevance.

        groups : array-like of shape (n_samples,), default=None
            Group of each row; None makes all rows one.

        budget : float, default=None
            As in `predict_routed`.

        Returns
        -------
        float
            Mean over the groups whose rows are not all alike: 1 for the best order, 0 for a
            random one. NaN where there is no such group.
        """
        y_pred = self.predict(X, budget=budget, groups=groups)
        y = self._checked_target(y)
        order, group = runs_of(group_numbers(groups, len(y)))
        found = []
        for at in np.split(order, np.flatnonzero(np.diff(group)) + 1):
            relevance = y[at] - y[at].mean()
            weight = 1.0 / np.log2(np.arange(2, min(self.k, len(at)) + 2))
            best = weight @ np.sort(relevance)[::-1][: len(weight)]
            if best > 0:
                first = np.argsort(-y_pred[at], kind="stable")[: len(weight)]
                found.append(weight @ relevance[first] / best)
        return float(np.mean(found)) if found else np.nan


def group_numbers(groups, n):
    """Groups as numbers 0, 1, ...; one group where none are given."""
    if groups is None:
        return np.zeros(n, dtype=np.int64)
    groups = check_array(on_host(groups), ensure_2d=False, dtype=None, input_name="groups")
    if groups.shape != (n,):
        raise ValueError(
            f"groups must have one entry for each of the {n} rows, got shape {groups.shape}."
        )
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)


def _counted(group):
    """Runs of equal numbers as 0, 1, ..."""
    return np.cumsum(np.diff(group, prepend=group[:1]) != 0)


def _own_groups(estimator, group):
    """Groups as the ranker of a library takes them in its ``fit``; rows are sorted by group."""
    model = take_apart(estimator).ensemble
    if not any(cls.__name__.endswith("Ranker") for cls in type(model).__mro__):
        return {}
    if comes_from(model, "lightgbm"):
        return {"group": np.unique(group, return_counts=True)[1]}
    return {"qid" if comes_from(model, "xgboost") else "group_id": group}
