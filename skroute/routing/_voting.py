"""The ensembles that FrugalMCT compares with: every member is asked about every row."""

import numpy as np

from skroute.base import Plan, check_affordable
from skroute.routing._answers import CombiningRouter
from skroute.routing._combiner import combine, search_threshold
from skroute.utils._compat import StrOptions, num_samples


class VoteClassifier(CombiningRouter):
    """Ask all members; answer with what most of them say, or with the sum of their scores.

    For several labels per row, a label is in the answer if at least half of the members
    name it (``"hard"``), or if the sum of its scores is above one threshold, chosen by
    quality on training rows (``"soft"``). Of equally good single labels the first in
    ``classes_`` is taken.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The members, with ``predict_proba`` for ``"soft"``; fitted ones as
        :class:`~sklearn.frozen.FrozenEstimator`.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member; every row pays the sum. ``"time"`` measures seconds
        per sample in `fit`.

    budget : float, default=None
        Mean cost per sample; an error if the sum of the costs is above it.

    voting : {"hard", "soft"}, default="hard"
        ``"hard"`` counts answers, one vote each. ``"soft"`` adds scores, each weighted by
        its member's out-of-sample quality.

    cv : int, splitter or iterable, default=5
        Folds that make the members' quality out-of-sample, for ``"soft"``.
        A splitter by groups gets them from `fit` as ``groups``, through metadata routing.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels; the positions of the labels where y is an indicator matrix.

    choices_ : list of str
        The one choice that there is.

    choice_costs_ : ndarray of shape (1,)
        The sum of the costs.

    choice_thresholds_ : ndarray of shape (1,)
        Sum above which a label is named; where y is an indicator matrix.

    member_names_ : list of str
        Names of the members.

    estimators_ : list of classifiers
        The fitted members.

    costs_ : ndarray of shape (n_members,)
        Cost of each member's call.

    weights_ : ndarray of shape (n_members,)
        Weight of each member: all the same, or its quality divided by the sum of all.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    FrugalMCTClassifier : Asks one or two members.
    sklearn.ensemble.VotingClassifier : The same without prices, without weights of its own
        and for one label per row.

    References
    ----------
    .. [1] L. Chen, M. Zaharia, J. Zou, "Efficient Online ML API Selection for Multi-Label
       Classification Tasks", ICML 2022, appendix C and table 6.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.dummy import DummyClassifier
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skroute.routing import VoteClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> members = [("bayes", GaussianNB()), ("prior", DummyClassifier())]
    >>> vote = VoteClassifier(members, costs=[1, 0], voting="soft").fit(X, y)
    >>> vote.weights_.round(2)
    array([0.74, 0.26])
    >>> float(vote.predict_cost(X).mean())
    1.0
    """

    _parameter_constraints: dict = {
        **CombiningRouter._parameter_constraints,
        "voting": [StrOptions({"hard", "soft"})],
        "cv": ["cv_object"],
    }

    def __init__(self, estimators, *, costs, budget=None, voting="hard", cv=5, n_jobs=None):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.voting = voting
        self.cv = cv
        self.n_jobs = n_jobs

    def _is_soft(self):
        """Whether scores are added up: as at the last fit, where there is one."""
        return self._soft if "choices_" in vars(self) else self.voting == "soft"

    def _asks(self):
        return "scores" if self._is_soft() else None

    def _least_cost(self, costs, names):
        return float(np.sum(costs))

    def _learn(self, X, target, answers):
        n_members = len(answers.names)
        weights = np.ones(n_members)
        # "At least half" as "more than a little less than half", whatever sums round to.
        threshold = 0.5 - 0.25 / n_members
        self._soft = self.voting == "soft"
        if self._soft:
            quality = self._target.quality
            scores = answers.responses
            found = [search_threshold(part, target, quality)[1].mean() for part in scores]
            weights = np.maximum(found, 1e-12)
            threshold, _ = search_threshold(
                combine(scores, weights / weights.sum()), target, quality
            )
        self.weights_ = weights / weights.sum()
        self._set_choices(
            [" + ".join(answers.names)], [np.ones(n_members)], [self.weights_], [threshold]
        )

    def _plan(self, X, budget):
        check_affordable(budget, self._least())
        n = num_samples(X)
        cost = np.full(n, self.choice_costs_[0])
        return Plan(np.zeros(n, dtype=np.int64), cost, self._asked_answers(X))

    def _offers_proba(self):
        # Votes are shares of members.
        return not self._is_soft() or super()._offers_proba()
