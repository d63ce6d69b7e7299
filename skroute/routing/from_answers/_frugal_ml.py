"""FrugalML: a threshold for each label of a base's answer, and an add-on where it is not met."""

from typing import NamedTuple

import numpy as np

from skroute.assignment import assignment_path, choose_at_price
from skroute.base import Plan, check_affordable
from skroute.base._calls import REQUEST_ID
from skroute.base._inspection import ABSTAIN_NAME
from skroute.routing.from_answers._combining import CombiningRouter, possible_bases
from skroute.routing.parts._estimates import rows_and_others
from skroute.routing.parts._log import with_last
from skroute.routing.parts._mixtures import (
    HeldOutRules,
    Mixture,
    best_mixture,
    limit_path,
)
from skroute.routing.parts._targets import SingleLabel
from skroute.utils._compat import Integral, Interval
from skroute.utils._typing import NDArray

# A label that a base gave to fewer rows shares its thresholds with the other rare ones.
_MIN_ROWS = 30


class LabelOptions(NamedTuple):
    """What one base offers for each group of its labels.

    An option is a threshold and an add-on: the base's answer is kept where its score is at
    least the threshold, else the add-on's is bought. The first option never buys.
    """

    # (n_groups, n_options) and (n_options,)
    thresholds: NDArray[np.float64]
    addons: NDArray[np.int64]
    # Means over the rows of each group, (n_groups, n_options); the base's cost is included.
    quality: NDArray[np.float64]
    cost: NDArray[np.float64]
    # Of each group among all rows.
    share: NDArray[np.float64]


class LabelRules(NamedTuple):
    """Rules that are worth mixing, over all bases and budgets, by rising cost.

    Attributes
    ----------
    base : ndarray of shape (n_rules,), dtype=int64

    thresholds : ndarray of shape (n_rules, n_groups)

    addons : ndarray of shape (n_rules, n_groups), dtype=int64

    cost, quality : ndarray of shape (n_rules,)
        Means on training rows.
    """

    base: NDArray[np.int64]
    thresholds: NDArray[np.float64]
    addons: NDArray[np.int64]
    cost: NDArray[np.float64]
    quality: NDArray[np.float64]

    def up_to(self, budget):
        """Return the rules that cost at most a budget."""
        n_rules = Mixture(self.cost, self.quality).n_within(budget)
        return LabelRules(*(table[:n_rules] for table in self))


def label_groups(labels, n_labels, min_rows, weight=None):
    """Group of each label: itself, or group 0 for all labels with fewer than `min_rows` rows."""
    often = np.bincount(labels, weight, minlength=n_labels) >= min_rows
    return np.where(often, np.arange(n_labels) + 1, 0)


def label_options(
    groups, scores, correct, costs, base, n_groups, n_thresholds, weight=None
):
    """Mean quality and cost of each (threshold, add-on) for each group of labels.

    Thresholds split the group at quantiles of the base's score, and at infinity. Each lies between
    two scores, where the share of later rows below it is that of the group in the mean: at a score
    with i of n below it, :math:`(i + 1) / (n + 1)` of later rows would be, and budgets too small.
    `groups` and `scores` are of the base's answers, `correct` is the quality of each member's
    answer, (n_rows, n_members). `weight` are the weights of the rows, in units of one row.
    """
    if weight is None:
        weight = np.ones(len(groups))
    addons = np.delete(np.arange(len(costs)), base)
    option_addons = np.r_[base, np.repeat(addons, n_thresholds)]
    thresholds = np.full((n_groups, len(option_addons)), -np.inf)
    quality = np.zeros((n_groups, len(option_addons)))
    cost = np.full((n_groups, len(option_addons)), costs[base])
    share = np.bincount(groups, weight, minlength=n_groups) / weight.sum()
    for group in np.flatnonzero(share):
        rows = np.flatnonzero(groups == group)
        score, right, own_weight = scores[rows], correct[rows], weight[rows]
        order, total = np.argsort(score, kind="stable"), own_weight.sum()
        rising, counted = score[order], np.cumsum(own_weight[order])
        # The higher of two neighbours, as `np.quantile` takes it of rows that weigh one each.
        places = np.ceil(np.linspace(0, 1, n_thresholds)[1:] * (total - 1))
        positions = np.searchsorted(counted, places, side="right")
        levels = np.r_[rising[np.minimum(positions, len(rising) - 1)], np.inf]
        kept = score >= levels[:, np.newaxis]
        sent = 1 - kept @ own_weight / total
        levels = between(rising, levels, counted)
        quality[group, 0] = np.average(right[:, base], weights=own_weight)
        for j, addon in enumerate(addons):
            at = slice(1 + j * n_thresholds, 1 + (j + 1) * n_thresholds)
            gain = (~kept) @ (own_weight * (right[:, addon] - right[:, base])) / total
            thresholds[group, at] = levels
            quality[group, at] = quality[group, 0] + gain
            cost[group, at] += sent * costs[addon]
    return LabelOptions(thresholds, option_addons, quality, cost, share)


def between(scores, levels, counted=None):
    """Thresholds that keep the same of some rows, and the same share of later ones in the mean.

    `scores` rise, and `counted` is the weight of the rows up to each of them; None counts each
    row once.
    """
    if counted is None:
        counted = np.arange(1.0, len(scores) + 1)
    n_below = np.searchsorted(scores, levels)
    below = scores[np.maximum(n_below - 1, 0)]
    inner = np.isfinite(levels) & np.isfinite(below) & (n_below > 0)
    way = np.where(inner, levels, below) - below
    share_below = counted[np.maximum(n_below - 1, 0)] / counted[-1]
    found = below + share_below * way
    # Rounding may end at the score below, which is to be sent.
    found = np.where(inner & (found <= below), levels, found)
    return np.where(inner, found, np.where(n_below > 0, levels, -np.inf))


def label_rules(options, bases):
    """Best option of every label for every budget, over all bases.

    One option per label under a budget is the assignment problem with labels weighted by
    their frequency; its path has a plan for each of its breaks. The hull
    over the plans of all bases leaves those of which two neighbours are mixed.
    """
    base, thresholds, addons, cost, quality = [], [], [], [], []
    for member, option in zip(bases, options):
        seen = option.share > 0
        weight = (option.share[seen] * seen.sum())[:, np.newaxis]
        values, costs = option.quality[seen] * weight, option.cost[seen] * weight
        path = assignment_path(values, costs)
        for price in path.prices:
            choice = np.zeros(len(seen), dtype=np.int64)
            choice[seen] = choose_at_price(values, costs, price)
            group = np.arange(len(seen))
            base.append(member)
            thresholds.append(option.thresholds[group, choice])
            addons.append(option.addons[choice])
            cost.append(option.share @ option.cost[group, choice])
            quality.append(option.share @ option.quality[group, choice])
    mixture, kept = best_mixture(cost, quality)
    return LabelRules(
        np.array(base)[kept],
        np.array(thresholds)[kept],
        np.array(addons)[kept],
        *mixture,
    )


def decide_by_label(rules, groups, labels, tops):
    """Who answers each row under each rule."""
    found = np.empty((len(rules.base), len(labels[0])), dtype=np.int64)
    for k, base in enumerate(rules.base):
        group = groups[base][labels[base]]
        found[k] = np.where(
            tops[base] >= rules.thresholds[k][group], base, rules.addons[k][group]
        )
    return found


def answer_scores(scores, labels):
    """Return the score of the label that each row was answered with."""
    return scores[np.arange(len(labels)), labels]


class FrugalMLClassifier(CombiningRouter):
    """Ask a base service; if its score is too low for its label, ask an add-on (FrugalML).

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
        `fit` should be new to it. The score of an answer is the probability of its label. The
        answer of a member is what it predicts, by a decision threshold of its own too. `fit`
        asks each row for both. Later calls ask for ``predict`` only if it was not the most
        probable label of every row of `fit`.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member. ``"time"`` measures seconds per sample in `fit`.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`, base and add-on included. None is
        unlimited. Raising it raises thresholds, buys more expensive add-ons and takes more
        expensive bases. It is spent as far as held-out rows show a gain beyond noise.

    quality : str, mapping, array-like or callable, default="accuracy"
        What an answer is worth: ``"accuracy"`` (of several labels those in common by those in
        either), ``"balanced_accuracy"``, a cost matrix, or a function of true and given labels
        to one number per row, higher is better, as in :class:`OccamRouterClassifier`.

    base : str, default="auto"
        Name of the base. ``"auto"`` chooses one, or mixes two, at the budget asked for.

    n_thresholds : int, default=20
        Thresholds tried for each label: quantiles of the score. Raising it fits the
        training rows more closely.

    abstain_cost : float, default=None
        What it costs, in units of `quality`, to abstain from a row, so that a person answers it.
        The row counts as the best quality of any answer in `fit` minus this. The members that
        were asked before are paid, and a base is always asked. `predict` marks the row by
        `abstain_label` (NaN in an indicator matrix), `predict_proba` by NaN. None never abstains.
        If it is higher, fewer rows abstain.

    abstain_label : object, default=None
        What `predict` gives for a row that abstains; no class may have this label. None takes
        ``"abstain"`` where labels are texts and -1 where they are numbers.

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
        ("cnn > microsoft"); with an `abstain_cost` also abstaining after it
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

    validation_quality_, validation_cost_, validation_quality_se_, validation_cost_se_ : float
        Mean quality and cost at `budget` of the rows of `fit`, each part of which is decided by
        rules that the other parts have chosen; and their standard errors for new rows.

    abstain_quality_ : float or None
        Quality of a row that abstains. None if no row can abstain.

    n_features_in_, feature_names_in_ : int, ndarray of shape (`n_features_in_`,)
        Number and names of the features seen during `fit`, where X has them.

    See Also
    --------
    FrugalMCTClassifier : Combines base and add-on; several labels per row.
    SequentialRouterClassifier : May buy more than one add-on.

    Notes
    -----
    There is no `random_state`: set that of the members.

    ``fit(X, y, sample_weight=...)`` fits every member with the weights as they are given, and
    counts rows by them in all rules and validation figures, whose unit does not matter. With
    metadata routing each member says whether it requests them. A row of weight 0 is as good as
    absent.

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
        "n_thresholds": [Interval(Integral, 2, None, closed="left")],
    }
    _target_kinds = (SingleLabel,)
    call_parameters = (REQUEST_ID,)

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
        abstain_label=None,
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
        self.abstain_label = abstain_label
        self.cv = cv
        self.n_jobs = n_jobs

    def _learn(self, X, answers):
        names, target = answers.names, answers.target
        scores, labels = self._read(answers)
        bases = possible_bases(self.base, names)
        tops = np.array([answer_scores(*said) for said in zip(scores, labels)])
        labels = np.array(labels)
        weight = answers.weight
        quality = (
            self._objective_of(self._target).bound(target, weight).table(target, labels)
        )
        base_costs = costs = self._members.costs_of_fit
        addons, self.abstain_quality_ = (
            list(names),
            self._quality_of_abstaining([quality]),
        )
        if self.abstain_quality_ is not None:
            # A person is an add-on whose answers are all alike, and cost nothing.
            quality, costs = (
                with_last(quality, self.abstain_quality_),
                with_last(costs, 0.0),
            )
            addons = [*names, ABSTAIN_NAME]

        def learn(rows):
            """Rules that some rows choose, and for each base the group of each label."""
            groups, options, n_labels = {}, [], len(self.classes_)
            own_weight = None if weight is None else weight[rows]
            for base in bases:
                groups[base] = label_groups(
                    labels[base, rows], n_labels, _MIN_ROWS, own_weight
                )
                group, top = groups[base][labels[base, rows]], tops[base, rows]
                sizes = n_labels + 1, self.n_thresholds
                options.append(
                    label_options(
                        group,
                        top,
                        quality[rows],
                        costs,
                        base,
                        *sizes,
                        weight=own_weight,
                    )
                )
            return label_rules(options, bases), groups

        rules, self._groups = learn(slice(None))
        held_out = []
        for rows, others in rows_and_others(answers.part):
            rules_of_others, groups = learn(others)
            addon = decide_by_label(
                rules_of_others, groups, labels[:, rows], tops[:, rows]
            )
            row_costs = base_costs[rules_of_others.base][:, np.newaxis] + np.where(
                addon == rules_of_others.base[:, np.newaxis], 0.0, costs[addon]
            )
            mixture = Mixture(rules_of_others.cost, rules_of_others.quality)
            own_weight = None if weight is None else weight[rows]
            held_out.append(
                HeldOutRules(rows, mixture, row_costs, quality[rows, addon], own_weight)
            )
        largest_budget, self._validated_parts = limit_path(rules.cost, held_out)
        self.rules_ = rules.up_to(largest_budget)
        unit = np.eye(len(addons), len(names))
        pairs = [(base, addon) for base in bases for addon in range(len(addons))]
        self._bases = bases
        self._set_choices(
            [names[b] if a == b else f"{names[b]} > {addons[a]}" for b, a in pairs],
            [(unit[base] + unit[addon]) > 0 for base, addon in pairs],
            [unit[addon] for _, addon in pairs],
        )

    def _plan(self, X, call):
        check_affordable(call.budget, self._smallest_budget())
        rules = self.rules_
        rule = Mixture(rules.cost, rules.quality).draw(X, call.budget, call.request_id)
        asked = self._asked_answers(X)
        n_addons = len(self.choices_) // len(self._bases)
        route = np.empty(len(rule), dtype=np.int64)
        for base in np.unique(rules.base[rule]):
            rows = np.flatnonzero(rules.base[rule] == base)
            labels = asked.labels(base, rows)
            group = self._groups[base][labels]
            top = answer_scores(asked.scores(base, rows), labels)
            keep = top >= rules.thresholds[rule[rows], group]
            addon = np.where(keep, base, rules.addons[rule[rows], group])
            route[rows] = self._bases.index(base) * n_addons + addon
        return Plan(route, self.choice_costs_[route], asked)
