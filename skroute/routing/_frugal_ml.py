"""FrugalML: thresholds per label of the base's answer, an add-on where it is not trusted."""

import numpy as np

from skroute.base import Plan, check_affordable
from skroute.routing._abstaining import (
    ABSTAIN_COST,
    ABSTAIN_NAME,
    AbstainingMixin,
    Beside,
    quality_of_handing,
    with_handed,
)
from skroute.routing._answers import CombiningRouter, check_base, possible_bases
from skroute.routing._label_options import learn_label_rules
from skroute.routing._mixtures import Mixture
from skroute.routing._qualities import QUALITY_OF_LABELS, LabelQualityMixin
from skroute.routing._targets import SingleLabel
from skroute.routing._validated_rules import ValidatedPart, ValidatedRulesMixin, row_sums
from skroute.routing._validation import parts_of
from skroute.utils._compat import Integral, Interval


def decide_by_label(rules, groups, labels, tops):
    """Who answers each row under each rule.

    Parameters
    ----------
    rules : LabelRules
    groups : dict from int to ndarray of shape (n_labels,)
        For each base the group of each label.
    labels, tops : sequence of ndarray of shape (n_rows,)
        For each member its labels, and their scores.

    Returns
    -------
    ndarray of shape (n_rules, n_rows), dtype=int64
        The base or an add-on.
    """
    found = np.empty((len(rules.base), len(labels[0])), dtype=np.int64)
    for k, base in enumerate(rules.base):
        group = groups[base][labels[base]]
        found[k] = np.where(tops[base] >= rules.thresholds[k][group], base, rules.addons[k][group])
    return found


class FrugalMLClassifier(ValidatedRulesMixin, AbstainingMixin, LabelQualityMixin, CombiningRouter):
    """Ask a base; keep its answer where its score is high enough for its label.

    FrugalML [1]_. A row goes to a base, which answers with a label and a score.
    Each label has a threshold and an add-on: a score of at least the threshold is
    accepted, otherwise the add-on is bought and its answer given. Thresholds and add-ons
    of all labels are chosen together, under the budget. Up to two bases are mixed to
    meet the budget on average.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The members, with ``predict_proba``. Each is cloned and fitted; a fitted one is
        passed as :class:`~sklearn.frozen.FrozenEstimator`, and then the rows given to
        `fit` should be new to it. The score of an answer is its largest probability.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member. ``"time"`` measures seconds per sample in `fit`.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`, base and add-on included. None is
        unlimited. Raising it raises thresholds, buys more expensive add-ons and takes
        more expensive bases.

    quality : str, mapping, array-like or callable, default="accuracy"
        What an answer is worth: ``"accuracy"`` (of several labels those in common by those in
        either), ``"balanced_accuracy"``, a cost matrix, or a function of true and given labels
        to one number per row, higher is better, as in :class:`OccamRouterClassifier`. What is
        no mean over the labels of rows is refused.

    base : str, default="auto"
        Name of the base. ``"auto"`` chooses one, or mixes two, at the budget asked for.

    n_thresholds : int, default=20
        Thresholds tried for each label: quantiles of the score. Raising it fits the
        training rows more closely.

    abstain_cost : float, default=None
        What it costs, in units of `quality`, to hand a row over to a person instead of answering
        it: the row counts as the best quality of any answer in `fit` minus this. The
        members that were asked before are paid, and a base is always asked.
        `predict` marks it by None (NaN in an indicator matrix), `predict_proba` by NaN. None
        never hands over. Raising it hands fewer rows over.

    cv : int, splitter or iterable, default=5
        Folds that make the members' answers out-of-sample.
        A splitter by groups gets them from `fit` as ``groups``, through metadata routing.

    n_jobs : int, default=None
        Members fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        What `route` indexes: for each base its own answer ("cnn") and each add-on's
        ("cnn > microsoft"); with an `abstain_cost` also handing over after it
        ("cnn > abstain").

    choice_costs_ : ndarray of shape (n_choices,)
        Cost of each choice, the base included.

    member_names_ : list of str
        Names of the members.

    estimators_ : list of classifiers
        The fitted members.

    costs_ : ndarray of shape (n_members,)
        Cost of each member's call.

    rules_ : LabelRules
        Base, thresholds and add-ons for every budget, by rising cost, with their mean
        cost and quality on training rows.

    validation_quality_, validation_cost_ : float
        Mean quality and cost at `budget` of the rows of `fit`, each part of which is decided by
        rules that the other parts have chosen.

    validation_quality_se_, validation_cost_se_ : float
        Standard errors of the two, as estimates for new rows.

    abstain_quality_ : float or None
        What a row counts as that is handed over; None where none is.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    FrugalMCTClassifier : Combines base and add-on; several labels per row.
    SequentialRouterClassifier : May buy more than one add-on.

    Notes
    -----
    Which of two mixed bases a row goes to is drawn from a hash of the row and of how often
    it came before in the call: a row goes the same way in every batch and container, and
    of many equal rows in one call the right share goes each way. In calls of one row each,
    equal rows all go one way. Rows of a torch data set are drawn by their position in it.

    `route` and `predict_cost` ask the base, since its answer is what decides. Thresholds
    are only as good as the scores: where a member's score says little about whether it is
    right, use :class:`FrugalMCTClassifier`.

    References
    ----------
    .. [1] L. Chen, M. Zaharia, J. Zou, "FrugalML: How to Use ML Prediction APIs More
       Accurately and Cheaply", NeurIPS 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from skroute.routing import FrugalMLClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> router = FrugalMLClassifier(
    ...     [("bayes", GaussianNB()), ("knn", KNeighborsClassifier())],
    ...     costs={"bayes": 1, "knn": 10},
    ...     budget=5,
    ... )
    >>> router = router.fit(X_train, y_train)
    >>> router.choices_
    ['bayes', 'bayes > knn', 'knn > bayes', 'knn']
    >>> bool(4 < router.predict_cost(X_test).mean() < 6)
    True
    """

    _parameter_constraints: dict = {
        **CombiningRouter._parameter_constraints,
        "base": [str],
        "quality": QUALITY_OF_LABELS,
        "cv": ["cv_object"],
        "abstain_cost": ABSTAIN_COST,
        "n_thresholds": [Interval(Integral, 2, None, closed="left")],
    }
    _target_kinds = (SingleLabel,)

    def __init__(
        self,
        estimators,
        *,
        costs,
        budget=None,
        base="auto",
        quality="accuracy",
        n_thresholds=20,
        abstain_cost=None,
        cv=5,
        n_jobs=None,
    ):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.base = base
        self.quality = quality
        self.n_thresholds = n_thresholds
        self.abstain_cost = abstain_cost
        self.cv = cv
        self.n_jobs = n_jobs

    def _check(self, X, members):
        super()._check(X, members)
        check_base(self.base, members)

    def _least_cost(self, costs, names):
        return float(costs[possible_bases(self.base, names)].min())

    def _learn(self, X, target, answers):
        names, scores = answers.names, answers.responses
        bases = possible_bases(self.base, names)
        labels = [part.argmax(axis=1) for part in scores]
        quality = self._objective().bound(target).table(target, labels)
        # A person is an add-on whose answers are all alike, and cost nothing.
        self.abstain_quality_ = handed = quality_of_handing(quality, self.abstain_cost)
        addons = list(names)
        if handed is not None:
            quality, addons = Beside(None, handed).table(quality), [*names, ABSTAIN_NAME]
        tops = [part.max(axis=1) for part in scores]
        costs = with_handed(self.costs_, handed)

        def answers_of(rows):
            return [label[rows] for label in labels], [top[rows] for top in tops]

        def learn(rows):
            told = *answers_of(rows), quality[rows], costs, bases
            return learn_label_rules(*told, len(self.classes_), self.n_thresholds)

        self.rules_, self._groups = learn(slice(None))
        self._validated = []
        part = parts_of(answers.folds, len(target))
        for number in np.unique(part):
            rows, others = np.flatnonzero(part == number), np.flatnonzero(part != number)
            rules, groups = learn(others if len(others) else rows)
            addon = decide_by_label(rules, groups, *answers_of(rows))
            cost = self.costs_[rules.base][:, np.newaxis] + np.where(
                addon == rules.base[:, np.newaxis], 0.0, costs[addon]
            )
            mixture = Mixture(rules.cost, rules.quality)
            sums = row_sums(cost, quality[rows, addon])
            self._validated.append(ValidatedPart(mixture, sums, len(rows)))
        unit = np.eye(len(addons), len(names))
        pairs = [(base, addon) for base in bases for addon in range(len(addons))]
        self._bases = bases
        self._set_choices(
            [names[b] if a == b else f"{names[b]} > {addons[a]}" for b, a in pairs],
            [(unit[base] + unit[addon]) > 0 for base, addon in pairs],
            [unit[addon] for _, addon in pairs],
        )

    def _plan(self, X, budget):
        check_affordable(budget, self._least())
        rules = self.rules_
        rule = Mixture(rules.cost, rules.quality).draw(X, budget)
        answers = self._asked_answers(X)
        n_addons = len(self.choices_) // len(self._bases)
        route = np.empty(len(rule), dtype=np.int64)
        for base in np.unique(rules.base[rule]):
            rows = np.flatnonzero(rules.base[rule] == base)
            scores = answers.ask(base, rows)
            group = self._groups[base][scores.argmax(axis=1)]
            keep = scores.max(axis=1) >= rules.thresholds[rule[rows], group]
            addon = np.where(keep, base, rules.addons[rule[rows], group])
            route[rows] = self._bases.index(base) * n_addons + addon
        return Plan(route, self.choice_costs_[route], answers)
