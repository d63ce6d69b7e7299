"""The ensembles that FrugalMCT compares with: every service is asked about every row."""

import numpy as np

from skroute.base import Plan
from skroute.routing._combiner import combine, search_threshold
from skroute.routing._services import Answers, BaseServicesClassifier
from skroute.utils._compat import num_samples


class _BaseVoteClassifier(BaseServicesClassifier):
    """One choice: all members, whose votes are added with weights."""

    def _call_costs(self, costs, names):
        return np.array([np.sum(costs)])

    def _fit_policy(self, X, target, scores):
        weights = self._vote_weights(target, scores)
        self.weights_ = weights / weights.sum()
        threshold = self._vote_threshold(target, scores) if self._multilabel else None
        self._set_choices(
            [" + ".join(self.members_)], [np.ones(len(weights))], [self.weights_], [threshold]
        )

    def _plan(self, X, budget):
        self._check_call_budget(budget)
        n = num_samples(X)
        return Plan(
            np.zeros(n, dtype=np.int64), np.full(n, self.choice_costs_[0]), Answers(self, X)
        )


class MajorityVoteClassifier(_BaseVoteClassifier):
    """Ask all services; answer with what most of them say.

    For several labels per row, a label is in the answer if at least half of the services
    name it. Of labels with equally many votes the first in ``classes_`` is taken.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The services; fitted ones as :class:`~sklearn.frozen.FrozenEstimator`.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each service; every row pays the sum. ``"time"`` measures seconds
        per sample in `fit`.

    budget : float, default=None
        Mean cost per sample; an error if the sum of the costs is above it.

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

    members_ : list of str
        Names of the services.

    estimators_ : list of classifiers
        The fitted services.

    costs_ : ndarray of shape (n_members,)
        Cost of each service's call.

    weights_ : ndarray of shape (n_members,)
        Weight of each service's vote; all the same here.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    WeightedMajorityVoteClassifier : Adds scores, weighted by accuracy.
    FrugalMCTClassifier : Asks one or two services.

    References
    ----------
    .. [1] L. Chen, M. Zaharia, J. Zou, "Efficient Online ML API Selection for Multi-Label
       Classification Tasks", ICML 2022, appendix C and table 6.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from skroute.routing import MajorityVoteClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> members = [("bayes", GaussianNB()), ("tree", DecisionTreeClassifier()),
    ...            ("knn", KNeighborsClassifier())]
    >>> vote = MajorityVoteClassifier(members, costs=[1, 1, 3]).fit(X, y)
    >>> float(vote.predict_cost(X).mean())
    5.0
    >>> vote.score(X, y) > 0.95
    True
    """

    _parameter_constraints: dict = {**_BaseVoteClassifier._parameter_constraints}
    _parameter_constraints.pop("cv")
    _learns_from_answers = False
    _method = response = "predict"
    cv = None

    def __init__(self, estimators, *, costs, budget=None, n_jobs=None):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.n_jobs = n_jobs

    def _call_member(self, method, name, member, classes, X):
        votes = super()._call_member(method, name, member, classes, X)
        if self._multilabel:
            return votes
        return np.eye(len(classes))[votes]

    def _vote_weights(self, target, scores):
        return np.ones(len(self.members_))

    def _vote_threshold(self, target, scores):
        # "At least half" as "more than a little less than half", whatever sums round to.
        return 0.5 - 0.25 / len(self.members_)

    def predict_proba(self, X, budget=None):
        """Share of the services that name each label.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            Mean cost per sample for this call; None takes the constructor's.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        return self._respond(X, "predict_proba", budget=budget).y_pred


class WeightedMajorityVoteClassifier(_BaseVoteClassifier):
    """Ask all services; add their scores, each weighted by the service's accuracy.

    The answer is the label with the largest sum or, for several labels per row, the labels
    with a sum above one threshold, chosen by accuracy on training rows.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The services, with ``predict_proba``; fitted ones as
        :class:`~sklearn.frozen.FrozenEstimator`.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each service; every row pays the sum. ``"time"`` measures seconds
        per sample in `fit`.

    budget : float, default=None
        Mean cost per sample; an error if the sum of the costs is above it.

    cv : int, splitter or iterable, default=5
        Folds that make the members' accuracies out-of-sample.

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

    members_ : list of str
        Names of the services.

    estimators_ : list of classifiers
        The fitted services.

    costs_ : ndarray of shape (n_members,)
        Cost of each service's call.

    weights_ : ndarray of shape (n_members,)
        Weight of each service's scores: its accuracy, divided by the sum of all.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    MajorityVoteClassifier : One service, one vote.
    FrugalMCTClassifier : Asks one or two services.

    References
    ----------
    .. [1] L. Chen, M. Zaharia, J. Zou, "Efficient Online ML API Selection for Multi-Label
       Classification Tasks", ICML 2022, appendix C and table 6.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.dummy import DummyClassifier
    >>> from skroute.routing import WeightedMajorityVoteClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> members = [("bayes", GaussianNB()), ("prior", DummyClassifier())]
    >>> vote = WeightedMajorityVoteClassifier(members, costs=[1, 0]).fit(X, y)
    >>> vote.weights_.round(2)
    array([0.74, 0.26])
    """

    _parameter_constraints: dict = {**_BaseVoteClassifier._parameter_constraints}

    def __init__(self, estimators, *, costs, budget=None, cv=5, n_jobs=None):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.cv = cv
        self.n_jobs = n_jobs

    def _vote_weights(self, target, scores):
        accuracy = [search_threshold(part, target, self._row_accuracy)[1].mean() for part in scores]
        return np.maximum(accuracy, 1e-12)

    def _vote_threshold(self, target, scores):
        return search_threshold(combine(scores, self.weights_), target, self._row_accuracy)[0]
