"""FrugalML: a threshold for each label of a base, and an add-on below it."""

from typing import NamedTuple

import numpy as np

from skroute.assignment import assignment_path, choose_at_price
from skroute.base import Plan, check_affordable
from skroute.base._calls import REQUEST_ID
from skroute.base._inspection import ABSTAIN_NAME
from skroute.routing.from_answers._combining import (
    Choice,
    MemberAnswers,
    MixtureRouter,
    possible_bases,
    quality_of_abstaining,
)
from skroute.routing.parts._estimates import rows_and_others
from skroute.routing.parts._log import with_last
from skroute.routing.parts._members import members_by_name
from skroute.routing.parts._mixtures import (
    HeldOutRules,
    Mixture,
    best_mixture,
    limit_path,
    weight_of_rows,
)
from skroute.routing.parts._targets import SingleLabel
from skroute.utils._compat import Integral, Interval
from skroute.utils._typing import NDArray

# Smallest number of rows to which a base gave a label, for the label to have thresholds
# of its own. Rarer labels share their thresholds: quantiles of fewer scores are noise.
_MIN_ROWS = 30
# Group of all rare labels, which share their thresholds. A frequent label has its own
# thresholds and the group ``1 + label``.
_RARE = 0


# What FrugalML learns from ------------------------------------------------------------


class BaseAnswers(NamedTuple):
    """Answers of members that may be bases, and the quality of each add-on's answer.

    Attributes
    ----------
    labels : ndarray of shape (n_members, n_rows), dtype=int64
        Encoded answer of each member.
    scores : ndarray of shape (n_members, n_rows)
        Score of that answer.
    quality : ndarray of shape (n_rows, n_addons)
        Quality of each add-on's answer. Add-ons are the members and, if rows may
        abstain, abstaining as the last one.
    addon_costs : ndarray of shape (n_addons,)
    weight : ndarray of shape (n_rows,) or None
        Weights of the rows. None weights all alike.
    """

    labels: NDArray[np.int64]
    scores: NDArray[np.float64]
    quality: NDArray[np.float64]
    addon_costs: NDArray[np.float64]
    weight: NDArray[np.float64] | None

    def take(self, rows):
        """Return the answers to some rows."""
        return self._replace(
            labels=self.labels[:, rows],
            scores=self.scores[:, rows],
            quality=self.quality[rows],
            weight=weight_of_rows(self.weight, rows),
        )


def answer_scores(scores, labels):
    """Return the score of each row's answered label, (n_rows,).

    `scores` has the shape (n_rows, n_labels), and `labels`, the answers, (n_rows,).
    """
    return scores[np.arange(len(labels)), labels]


def label_groups(labels, n_labels, min_rows, weight=None):
    """Return the group of each label, (n_labels,): labels of a group share thresholds.

    A label with `min_rows` rows has a group of its own. All others share one.

    Parameters
    ----------
    labels : ndarray of shape (n_rows,)
        Answers of a base.
    n_labels : int
    min_rows : int
        Rows, counted by their weights, from which a label has a group of its own.
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.
    """
    is_frequent = np.bincount(labels, weight, minlength=n_labels) >= min_rows
    return np.where(is_frequent, np.arange(n_labels) + 1, _RARE)


# Options of one base ------------------------------------------------------------------


class LabelOptions(NamedTuple):
    """Options (a threshold and an add-on each) of one base for each group of labels.

    An option is a threshold and an add-on. The base's answer is kept if its score is at
    least the threshold. Otherwise the answer of the add-on is bought. The first option
    never buys: its threshold is minus infinity, and its add-on is the base.

    Attributes
    ----------
    thresholds : ndarray of shape (n_groups, n_options)
    addons : ndarray of shape (n_options,), dtype=int64
    quality, cost : ndarray of shape (n_groups, n_options)
        Means over the rows of each group. The cost of the base is included. A group
        without rows has the quality 0 and the cost of the base.
    share : ndarray of shape (n_groups,)
        Share of each group among all rows.
    """

    thresholds: NDArray[np.float64]
    addons: NDArray[np.int64]
    quality: NDArray[np.float64]
    cost: NDArray[np.float64]
    share: NDArray[np.float64]


class _Thresholds(NamedTuple):
    """The thresholds that are tried for one group of labels.

    Attributes
    ----------
    values : ndarray of shape (n_thresholds,)
        Rising. The last is infinite: all rows buy.
    is_below : ndarray of shape (n_thresholds, n_rows), dtype=bool
        Rows of the group whose score is below each threshold.
    share_below : ndarray of shape (n_thresholds,)
        Share of these rows in the group, by weight.
    """

    values: NDArray[np.float64]
    is_below: NDArray[np.bool_]
    share_below: NDArray[np.float64]


def label_options(
    groups,
    scores,
    addon_quality,
    costs,
    base,
    n_groups,
    n_thresholds,
    weight=None,
):
    """Return the options of a base, with their mean quality and cost (`LabelOptions`).

    Parameters
    ----------
    groups : ndarray of shape (n_rows,)
        Group of the label that the base gave to each row.
    scores : ndarray of shape (n_rows,)
        Score of that label.
    addon_quality : ndarray of shape (n_rows, n_addons)
        Quality of each add-on's answer; the base is one of them.
    costs : ndarray of shape (n_addons,)
        Cost of each add-on, the base included.
    base : int
        Position of the base among the add-ons.
    n_groups : int
    n_thresholds : int
        Number of thresholds that are tried for each group and add-on.
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. A row of weight 1 counts once. None weights all alike.
    """
    if weight is None:
        weight = np.ones(len(groups))
    addons = np.delete(np.arange(len(costs)), base)
    # Add-on of each option. Option 0 never buys. Then come `n_thresholds` options of
    # the first add-on, those of the second, and so on.
    option_addons = np.r_[base, np.repeat(addons, n_thresholds)]
    thresholds = np.full((n_groups, len(option_addons)), -np.inf)
    quality = np.zeros((n_groups, len(option_addons)))
    cost = np.full((n_groups, len(option_addons)), costs[base])
    share = np.bincount(groups, weight, minlength=n_groups) / weight.sum()
    for group in np.flatnonzero(share):
        rows = np.flatnonzero(groups == group)
        group_quality = addon_quality[rows]
        group_weight = weight[rows]
        tried = _thresholds_to_try(scores[rows], group_weight, n_thresholds)
        base_quality = group_quality[:, base]
        quality[group, 0] = np.average(base_quality, weights=group_weight)
        for position, addon in enumerate(addons):
            first_option = 1 + position * n_thresholds
            options = slice(first_option, first_option + n_thresholds)
            weighted_gain = group_weight * (group_quality[:, addon] - base_quality)
            # Mean gain over the group, if the rows below each threshold buy.
            gain = tried.is_below @ weighted_gain / group_weight.sum()
            thresholds[group, options] = tried.values
            quality[group, options] = quality[group, 0] + gain
            # `cost` has the cost of the base already.
            cost[group, options] += tried.share_below * costs[addon]
    return LabelOptions(thresholds, option_addons, quality, cost, share)


def _thresholds_to_try(scores, weight, n_thresholds):
    """Return thresholds at quantiles of the scores of a group (`_Thresholds`).

    There are `n_thresholds` of them, and the last one is infinite. `scores` and
    `weight` have the shape (n_rows,).
    """
    total = weight.sum()
    order = np.argsort(scores, kind="stable")
    rising = scores[order]
    weight_up_to = np.cumsum(weight[order])
    # The lowest quantile is left out, since no score is below it.
    shares = np.linspace(0, 1, n_thresholds)[1:]
    # A quantile between two scores is the higher one, as with the method "higher" of
    # `np.quantile`. `ranks` count from 0, in rows of weight one.
    ranks = np.ceil(shares * (total - 1))
    positions = np.searchsorted(weight_up_to, ranks, side="right")
    quantiles = rising[np.minimum(positions, len(rising) - 1)]
    levels = np.r_[quantiles, np.inf]
    # The returned thresholds divide the rows as the levels do: (n_thresholds, n_rows)
    is_kept = scores >= levels[:, np.newaxis]
    return _Thresholds(
        thresholds_between(rising, levels, weight_up_to),
        is_below=~is_kept,
        share_below=1 - is_kept @ weight / total,
    )


def thresholds_between(scores, levels, weight_up_to=None):
    """Return thresholds between neighbouring scores that divide rows as `levels` do.

    Below each threshold is, on average, the same share of later rows as of training
    rows. Let i of the n training rows be below a level. On average, :math:`i / (n + 1)`
    of later rows are below the i-th score, and :math:`(i + 1) / (n + 1)` are below the
    next one, the level. A threshold at the level would buy too often for its budget. At
    the fraction i / n of the gap between both scores, the share is i / n.

    Parameters
    ----------
    scores : ndarray of shape (n_rows,)
        Rising.
    levels : ndarray of shape (n_levels,)
        Some of the scores, and infinity.
    weight_up_to : ndarray of shape (n_rows,), default=None
        Weight of the rows up to each score. None counts each row once.

    Returns
    -------
    ndarray of shape (n_levels,)
    """
    if weight_up_to is None:
        weight_up_to = np.arange(1.0, len(scores) + 1)
    n_below = np.searchsorted(scores, levels)
    has_below = n_below > 0
    # Position of the largest score below each level. It is 0 if no score is below, and
    # `has_below` then leaves it out.
    last_below = np.maximum(n_below - 1, 0)
    score_below = scores[last_below]
    has_finite_gap = np.isfinite(levels) & np.isfinite(score_below)
    is_between = has_below & has_finite_gap
    # Difference of each level and the score below this level. It is 0 if there is no
    # such score, or if one of the two is infinite.
    gap = np.where(is_between, levels, score_below) - score_below
    share_below = weight_up_to[last_below] / weight_up_to[-1]
    between = score_below + share_below * gap
    # By rounding, `between` may be equal to `score_below`. The row of this score would
    # then no longer be below the threshold, so that the level is taken.
    between = np.where(is_between & (between <= score_below), levels, between)
    # If no row is below a level, its threshold keeps each answer.
    not_between = np.where(has_below, levels, -np.inf)
    return np.where(is_between, between, not_between)


# Rules --------------------------------------------------------------------------------


class LabelRules(NamedTuple):
    """Rules of FrugalML (a base, and thresholds and add-ons for its labels), by cost.

    They are the rules of all bases that are worth mixing at some budget, by rising
    cost.

    Attributes
    ----------
    base : ndarray of shape (n_rules,), dtype=int64
        Position of the base.

    thresholds : ndarray of shape (n_rules, n_groups)
        Smallest score with which the base's answer is kept, for each group of labels.

    addons : ndarray of shape (n_rules, n_groups), dtype=int64
        Add-on that is bought otherwise. It is the base if nothing is ever bought.

    cost, quality : ndarray of shape (n_rules,)
        Means on training rows.
    """

    base: NDArray[np.int64]
    thresholds: NDArray[np.float64]
    addons: NDArray[np.int64]
    cost: NDArray[np.float64]
    quality: NDArray[np.float64]

    @property
    def mixture(self):
        """Mean cost and quality of the rules, as a `Mixture`."""
        return Mixture(self.cost, self.quality)

    def take(self, positions):
        """Return the rules at some positions."""
        return LabelRules(
            base=self.base[positions],
            thresholds=self.thresholds[positions],
            addons=self.addons[positions],
            cost=self.cost[positions],
            quality=self.quality[positions],
        )

    def up_to(self, budget):
        """Return the rules whose mean cost is at most a budget (`LabelRules`)."""
        return self.take(slice(self.mixture.n_within(budget)))


def label_rules(options, bases):
    """Return the best options of all groups of labels, for every budget (`LabelRules`).

    The choice of one option per group under a budget is the assignment problem, with
    groups weighted by their frequency. Its solutions for all budgets are a path of
    plans. The rules are the best plans of all bases: the plans on the upper hull of
    quality over cost.

    Parameters
    ----------
    options : list of LabelOptions
        Options of each base, in the order of `bases`.
    bases : list of int
        Positions of the bases.
    """
    rule_base = []
    rule_thresholds = []
    rule_addons = []
    rule_cost = []
    rule_quality = []
    for base, base_options in zip(bases, options):
        share = base_options.share
        groups = np.arange(len(share))
        is_present = share > 0
        # The assignment takes means over groups. Weights of mean 1 turn them into means
        # over rows.
        group_weight = share[is_present] * is_present.sum()
        values = base_options.quality[is_present] * group_weight[:, np.newaxis]
        costs = base_options.cost[is_present] * group_weight[:, np.newaxis]
        path = assignment_path(values, costs)
        for price in path.prices:
            # Groups without rows take option 0, which never buys.
            chosen = np.zeros(len(groups), dtype=np.int64)
            chosen[is_present] = choose_at_price(values, costs, price)
            rule_base.append(base)
            rule_thresholds.append(base_options.thresholds[groups, chosen])
            rule_addons.append(base_options.addons[chosen])
            rule_cost.append(share @ base_options.cost[groups, chosen])
            rule_quality.append(share @ base_options.quality[groups, chosen])
    rules = LabelRules(
        base=np.array(rule_base),
        thresholds=np.array(rule_thresholds),
        addons=np.array(rule_addons),
        cost=np.array(rule_cost),
        quality=np.array(rule_quality),
    )
    _, positions = best_mixture(rules.cost, rules.quality)
    return rules.take(positions)


class LearnedLabelRules(NamedTuple):
    """Rules of FrugalML, and the groups of labels for which they have thresholds.

    Attributes
    ----------
    rules : LabelRules
    groups : dict from int to ndarray of shape (n_labels,)
        For each base the group of each label.
    """

    rules: LabelRules
    groups: dict[int, NDArray[np.int64]]

    def addons_bought(self, answers):
        """Return the add-on that each row gets under each rule, (n_rules, n_rows).

        The entry is the base if the base's answer is kept. `answers` are `BaseAnswers`.
        """
        addons = np.empty((len(self.rules.base), answers.labels.shape[1]), np.int64)
        for rule, base in enumerate(self.rules.base):
            group_of_row = self.groups[base][answers.labels[base]]
            threshold_of_row = self.rules.thresholds[rule][group_of_row]
            is_kept = answers.scores[base] >= threshold_of_row
            addon_of_row = self.rules.addons[rule][group_of_row]
            addons[rule] = np.where(is_kept, base, addon_of_row)
        return addons


def learn_label_rules(answers, bases, n_labels, n_thresholds):
    """Learn thresholds and add-ons of each base for all budgets (`LearnedLabelRules`).

    Parameters
    ----------
    answers : BaseAnswers
    bases : list of int
        Members that may be the base.
    n_labels : int
        Number of labels.
    n_thresholds : int
        Thresholds that are tried for each group of labels.
    """
    groups = {}
    options = []
    for base in bases:
        labels = answers.labels[base]
        groups[base] = label_groups(labels, n_labels, _MIN_ROWS, answers.weight)
        base_options = label_options(
            groups[base][labels],
            answers.scores[base],
            addon_quality=answers.quality,
            costs=answers.addon_costs,
            base=base,
            n_groups=1 + n_labels,  # `_RARE`, then one for each label
            n_thresholds=n_thresholds,
            weight=answers.weight,
        )
        options.append(base_options)
    return LearnedLabelRules(label_rules(options, bases), groups)


def held_out_label_rules(learned, answers, rows):
    """Return rules with their cost and quality on rows that did not choose them.

    Parameters
    ----------
    learned : LearnedLabelRules
        Rules that other rows have chosen.
    answers : BaseAnswers
        Answers to the rows of a fold.
    rows : ndarray of int
        Positions of these rows.

    Returns
    -------
    HeldOutRules
    """
    rules = learned.rules
    addons = learned.addons_bought(answers)  # (n_rules, n_rows)
    bases = rules.base[:, np.newaxis]  # (n_rules, 1)
    # If the add-on is the base, nothing is bought.
    addon_cost = np.where(addons == bases, 0.0, answers.addon_costs[addons])
    return HeldOutRules(
        rows,
        rules.mixture,
        cost=answers.addon_costs[bases] + addon_cost,
        quality=answers.quality[np.arange(len(rows)), addons],
        weight=answers.weight,
    )


class FrugalMLClassifier(MixtureRouter):
    """Ask a base service; if its score is too low for its label, ask an add-on.

    FrugalML [1]_. A row goes to a base, which answers with a label and a score. Each
    label has a threshold and an add-on: a score of at least the threshold is accepted,
    otherwise the add-on is bought and its answer given. Thresholds and add-ons of all
    labels are chosen together, under the budget. Up to two bases are mixed to meet the
    budget on average.

    Parameters
    ----------
    estimators : list of (str, classifier)
        The members, with ``predict_proba``. Each is cloned and fitted; a fitted one is
        passed as :class:`~sklearn.frozen.FrozenEstimator`, and then the rows given to
        `fit` should be new to it. The answer of a member is the label that it predicts,
        also if the member has a decision threshold. The score of an answer is the
        probability of its label. Calls ask a member for ``predict`` only if, for some
        row of `fit`, it did not return the most probable label.

    costs : mapping from str to float, array-like of shape (n_members,) or "time"
        Cost per call of each member. ``"time"`` measures seconds per sample in `fit`.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`, base and add-on included. None is
        unlimited. Raising it raises thresholds, buys more expensive add-ons and takes
        more expensive bases. It is spent as far as held-out rows show a gain beyond
        noise.

    base : str, default="auto"
        Name of the base. ``"auto"`` chooses one, or mixes two, at the budget asked for.

    quality : str, mapping, array-like or callable, default="accuracy"
        Quality of an answer: ``"accuracy"``, ``"balanced_accuracy"``, a cost matrix, or
        a function of true and given labels to one number per row, higher is better, as
        in :class:`OccamRouterClassifier`. If rows have several labels, accuracy is the
        number of labels that are both true and given, divided by the number of those
        that are either.

    n_thresholds : int, default=20
        Thresholds tried for each label: quantiles of the score. Raising it fits the
        training rows more closely.

    abstain_cost : float, default=None
        Cost, in units of `quality`, of abstaining from a row, so that a person answers
        it. The row counts as the best quality of any answer in `fit` minus this. The
        members that were asked before are paid, and a base is always asked. `predict`
        marks the row by `abstain_label` (NaN in an indicator matrix), `predict_proba`
        by NaN. None never abstains. If it is higher, fewer rows abstain.

    abstain_label : object, default=None
        Label that `predict` gives to a row that abstains; no class may have it. None
        takes ``"abstain"`` if labels are texts, and -1 if they are numbers.

    cv : int, splitter or iterable, default=5
        Folds that make the members' answers out-of-sample, and validate the rules. A
        splitter by groups gets them from `fit` as ``groups``, through metadata routing.

    memory : None, str or joblib.Memory, default=None
        Cache of fitted members and their out-of-fold answers, as in
        :class:`~sklearn.pipeline.Pipeline`. A str is the path of a directory. A search
        over `budget` or `costs` then fits each member once for the same rows. See
        :ref:`cached_members`.

    n_jobs : int, default=None
        Number of members that are fitted in parallel.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    choices_ : list of str
        Names of the choices that `route` indexes. For each base they are its answer
        ("cnn"), the answer of each add-on after it ("cnn > microsoft") and, with an
        `abstain_cost`, abstaining after it ("cnn > abstain").

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
        Mean quality and cost at `budget` of the rows of `fit`. Each fold is decided by
        rules that the other folds have chosen.

    validation_quality_se_, validation_cost_se_ : float
        Standard errors of these as estimates for new rows.

    abstain_quality_ : float or None
        Quality of a row that abstains. None if no row can abstain.

    n_features_in_, feature_names_in_ : int, ndarray of shape (`n_features_in_`,)
        Number and names of the features seen during `fit`, if X has them.

    See Also
    --------
    FrugalMCTClassifier : Combines base and add-on; several labels per row.
    SequentialRouterClassifier : May buy more than one add-on.

    Notes
    -----
    There is no `random_state`: set that of the members.

    ``fit(X, y, sample_weight=...)`` fits every member with the weights as they are
    given, and counts rows by them in all rules and validation figures. Their unit does
    not matter. With metadata routing each member says whether it requests them. A row
    of weight 0 counts as absent.

    If two bases are mixed, the base of a row is drawn from a hash of the row and of how
    often it came before in the call. A row gets the same base in every batch and
    container. If one call has many equal rows, each base gets its share of them. In
    calls of one row each, equal rows all get the same base. Rows of a torch data set
    are drawn by their position in it.

    `route` and `predict_cost` ask the base, since its answer is what decides.
    Thresholds are only as good as the scores. If a member's score depends little on
    whether the member is right, use :class:`FrugalMCTClassifier`.

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
        **MixtureRouter._parameter_constraints,
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
        memory=None,
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
        self.memory = memory
        self.n_jobs = n_jobs

    def _fit(self, X, y, *, task, **params):
        """Fit and ask the members, and learn the rules of labels.

        Parameters are those of `CostAwareMixin._fit`. `params` are `sample_weight` and
        metadata for the `fit` of members.
        """
        members = members_by_name(self.estimators, self._validate_names)
        answers, judged = self._fit_and_judge(members, X, y, task=task, params=params)
        with task.step("learn routing"):
            self._learn(answers, judged)

    def _learn(self, answers, judged):
        """Learn thresholds and add-ons of labels from the members' answers.

        Sets ``rules_``, the attributes of ``_set_choices``, ``choices_``,
        ``_validated_parts``, and what `_plan` reads: ``_bases``, a list of positions of
        members, and ``_groups``, the group of each label for each base. `answers` are
        the `OutOfFold`, `judged` the `JudgedAnswers`.
        """
        names = answers.names
        bases = possible_bases(self.base, names)
        base_answers = self._base_answers(judged)
        addon_names = list(names)
        if self.abstain_quality_ is not None:
            addon_names.append(ABSTAIN_NAME)

        sizes = {"n_labels": len(self.classes_), "n_thresholds": self.n_thresholds}
        learned = learn_label_rules(base_answers, bases, **sizes)
        fold_of_row = answers.fold_of_row
        held_out = []
        for rows, others in rows_and_others(fold_of_row):
            learned_of_others = learn_label_rules(
                base_answers.take(others), bases, **sizes
            )
            held_out.append(
                held_out_label_rules(learned_of_others, base_answers.take(rows), rows)
            )
        largest_budget, self._validated_parts = limit_path(learned.rules.cost, held_out)
        self.rules_ = learned.rules.up_to(largest_budget)
        self._groups = learned.groups
        self._bases = bases

        choices = []
        for base in bases:
            for addon in range(len(addon_names)):
                choice = _choice_of(base, addon, names, addon_names=addon_names)
                choices.append(choice)
        self._set_choices(choices)
        self.choices_ = [choice.name for choice in choices]

    def _base_answers(self, judged):
        """Return the out-of-fold answers, abstaining included, as `BaseAnswers`.

        `judged` are the `JudgedAnswers` of the members. Sets ``abstain_quality_``.
        """
        scores_of_answers = []
        qualities = []
        for member_scores, member_labels in zip(judged.scores, judged.labels):
            scores_of_answers.append(answer_scores(member_scores, member_labels))
            qualities.append(judged.quality(judged.target, member_labels))
        quality = np.column_stack(qualities)
        addon_costs = self._members.costs_of_fit
        self.abstain_quality_ = quality_of_abstaining(self.abstain_cost, qualities)
        if self.abstain_quality_ is not None:
            # Abstaining is an add-on of the same quality on each row, which is free.
            quality = with_last(quality, self.abstain_quality_)
            addon_costs = with_last(addon_costs, 0.0)
        return BaseAnswers(
            np.array(judged.labels),
            scores=np.array(scores_of_answers),
            quality=quality,
            addon_costs=addon_costs,
            weight=judged.row_weight,
        )

    def _plan(self, X, call):
        """Draw the rule of each row, ask its base, and decide on an add-on (`Plan`).

        If two rules are mixed at the budget, each row draws one of them.
        """
        check_affordable(call.budget, self._smallest_budget())
        rules = self.rules_
        rule_of_row = rules.mixture.draw(X, call.budget, call.request_id)
        base_of_row = rules.base[rule_of_row]
        answers = MemberAnswers(self, X)
        # Choices are ordered by base, then by add-on.
        n_addons = len(self.choices_) // len(self._bases)
        route = np.empty(len(rule_of_row), dtype=np.int64)
        for base in np.unique(base_of_row):
            rows = np.flatnonzero(base_of_row == base)
            labels = answers.labels(base, rows)
            scores = answer_scores(answers.scores(base, rows), labels)
            group = self._groups[base][labels]
            rule = rule_of_row[rows]
            is_kept = scores >= rules.thresholds[rule, group]
            addon = np.where(is_kept, base, rules.addons[rule, group])
            route[rows] = self._bases.index(base) * n_addons + addon
        return Plan(route, self.choice_costs_[route], answers)


def _choice_of(base, addon, names, *, addon_names):
    """Return the `Choice` to ask a base and then to give the answer of an add-on.

    `base` and `addon` are positions in `addon_names`. These are the names of the
    members (`names`) and, if rows may abstain, the name of abstaining as the last one.
    If `base` and `addon` are equal, the answer of the base is given.
    """
    is_asked = np.zeros(len(names), dtype=bool)
    weights = np.zeros(len(names))
    is_asked[base] = True
    # The position after all members is abstaining. No member then answers.
    if addon < len(names):
        is_asked[addon] = True
        weights[addon] = 1.0
    name = names[base]
    if addon != base:
        name = f"{names[base]} > {addon_names[addon]}"
    return Choice(name, is_asked, weights)
