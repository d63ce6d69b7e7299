"""Greedy search: sequences of feature sets that grow by gain and cost."""

import numpy as np

from skroute.base import affords
from skroute.feature_sets._base import BaseFeatureSelector
from skroute.feature_sets._lattice import EMPTY_SET, indicator
from skroute.metrics import pareto_front


class GreedyFeatureSelector(BaseFeatureSelector):
    """Choose a good set of features for each item within its budget, by greedy search.

    Sequences of sets are grown from the empty set: each step adds the extractor with
    the largest ``increase in quality - trade_off * increase in cost``. These costs are
    those at the median training size. For an item, `predict` takes the sequence of the
    item's budget, and the last set of this sequence that the budget pays for at the
    item's size. It computes the features of that set and no others, and asks its model.

    At most ``n_extractors ** 2`` sets are trained for each trade-off, and nothing is
    promised about the sets that are not trained.

    Parameters
    ----------
    estimator : classifier
        Model that is cloned for every set of features. Must have `fit` and `predict`.
        It sees the columns of one set at a time: a `ColumnTransformer` in it selects
        its columns by :class:`~sklearn.compose.make_column_selector`, not by names that
        may be absent.

    extractors : mapping from str to columns or list of (str, transformer), default=None
        Where features come from, as in :class:`PolyDomSelector`. At most 62.

    costs : mapping, sequence, "time" or MeasuredCosts, default=None
        Cost of each extractor on one item, in any unit, as in :class:`PolyDomSelector`.
        None is allowed with ``extractors=None`` only: each column costs 1.

    trade_offs : array-like of float, default=None
        The quality that a unit of cost must bring, one sequence for each. ``[0]`` looks
        at quality alone (Greedy-Acc), ``[numpy.inf]`` at cost alone (Greedy-Cost). None
        takes 0 and eight values relative to the cost of all extractors. More trade-offs
        train more sets.

    size : str, int or callable, default=None
        Size of an item, as in :class:`PolyDomSelector`: a column of X, or a function of
        one item. Can be passed to each method instead. None: costs must not depend on
        the size.

    budget : float or array-like of shape (n_samples,), default=None
        What may be spent on each item, in the unit of `costs`; an array has one budget
        per row of the X that is predicted. Every item keeps within its own budget. With
        a budget of 0 the answer is the most frequent class, which needs no features.
        None is unlimited.

    scoring : str or callable, default=None
        Score of a set, not negative, higher being better. None is accuracy.

    cv : int, cross-validation generator or iterable, default=5
        Splits on which the sets are scored, the same for all.

    memory : str or object with the joblib.Memory interface, default=None
        Cache of the scores, so that fitting again with another `trade_offs` or `budget`
        trains only what is new.

    n_jobs : int, default=None
        Sets of one step that are trained at the same time. -1 uses all processors.

    Attributes
    ----------
    choices_ : list of str
        Names of the sets that can be chosen, such as ``"header + content"``, and
        ``"(none)"`` for the empty one; `route` indexes it.

    candidates_ : ndarray of shape (n_choices, n_extractors), dtype=bool
        The extractors of each choice as an indicator matrix.

    quality_ : ndarray of shape (n_choices,)
        Cross-validated score of each choice.

    estimators_ : list of estimators
        Model of each choice, trained on all rows.

    expanded_ : ndarray of shape (n_expanded, n_extractors), dtype=bool
        All sets with a score, in the order of training; the empty set is the first.

    expanded_quality_ : ndarray of shape (n_expanded,)
        Scores of the sets of ``expanded_``.

    n_trained_ : int
        Number of sets trained, the empty set not counted.

    costs_ : FeatureCosts
        Costs of the extractors as functions of the size; ``costs_(sizes)`` returns an
        array of shape (n_extractors, n_sizes).

    measured_sizes_ : ndarray of shape (n_measurements,)
        Only with measured costs: sizes of the timed items, zeros if items have no size.

    measured_costs_ : ndarray of shape (n_measurements, n_extractors)
        Only with measured costs: seconds of each extractor on each timed item.

    min_budget_ : float
        0: the empty set costs nothing.

    classes_ : ndarray of shape (n_classes,)
        Class labels.

    n_features_in_ : int
        Number of columns of X. Only for two-dimensional X.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of these columns. Only when X has names that are all strings.

    See Also
    --------
    PolyDomSelector : At most 20 extractors, with a guarantee.

    References
    ----------
    .. [1] L. Battle, E. Benson, A. Parameswaran, E. Wu. "Indexing Cost Sensitive
       Prediction". arXiv 1408.4072, 2014. Algorithm 4.

    Examples
    --------
    Two groups of columns, of which the second costs more the larger the item is:

    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skroute.feature_sets import GreedyFeatureSelector
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=200)
    >>> X = y[:, None] + rng.normal(size=(200, 3)) * [2.0, 0.5, 0.5]
    >>> selector = GreedyFeatureSelector(
    ...     LogisticRegression(),
    ...     {"header": [0], "content": [1, 2]},
    ...     costs={"header": 1.0, "content": [1.0, 0.5]},
    ... ).fit(X, y, size=np.full(200, 10))
    >>> route = selector.select(size=[0, 1000, 10], budget=6.0)
    >>> [selector.choices_[i] for i in route]
    ['header + content', '(none)', 'content']
    """

    _parameter_constraints: dict = {
        **BaseFeatureSelector._parameter_constraints,
        "trade_offs": [None, "array-like"],
    }
    # A set is a bit mask in a signed integer of 64 bits.
    _max_extractors = 62

    def __init__(
        self,
        estimator,
        extractors=None,
        *,
        costs=None,
        trade_offs=None,
        size=None,
        budget=None,
        scoring=None,
        cv=5,
        memory=None,
        n_jobs=None,
    ):
        self.estimator = estimator
        self.extractors = extractors
        self.costs = costs
        self.trade_offs = trade_offs
        self.size = size
        self.budget = budget
        self.scoring = scoring
        self.cv = cv
        self.memory = memory
        self.n_jobs = n_jobs

    def _choose(self, trainer, reference):
        """Grow sequences of sets for trade-offs of gain and cost. Return their masks.

        It sets two attributes that :meth:`_goals` reads: `_sequences`, the sets of each
        sequence, and `_followed`, the result of :func:`followed_sequences`.

        Parameters
        ----------
        trainer : SetTrainer
            Trains and scores sets.

        reference : float or None
            Median training size. None: items have no size.

        Returns
        -------
        ndarray of int of shape (n_choices,)
            Masks, rising. The first is the empty set.
        """
        if reference is None and self.costs_.largest_size:
            raise ValueError(
                "Greedy sequences grow at the median training size, but the items have "
                "no size. Give size, here or to the constructor."
            )
        # If items have no size, costs do not depend on it: 0 gives the same costs.
        reference_size = np.array([0.0 if reference is None else reference])
        cost = self.costs_(reference_size)[:, 0]  # (n_extractors,)
        sequences = []
        for trade_off in self._trade_offs(cost):
            sequence = greedy_sequence(
                trainer.evaluate,
                trainer.quality[EMPTY_SET],
                cost=cost,
                trade_off=trade_off,
            )
            sequences.append(sequence)
        masks, positions = np.unique(sequences, return_inverse=True)
        # Positions in `masks` of the sets of each sequence, from the empty set to the
        # full one. (n_trade_offs, n_extractors + 1)
        self._sequences = positions.reshape(np.shape(sequences))
        quality = np.array(trainer.evaluate(masks.tolist()))
        # The cost of a set is a sum of functions of the size, times coefficients.
        coef = indicator(masks, len(cost)) @ self.costs_.coef  # (n_sets, n_functions)
        # There is one reference size, and so one row. (n_sets,)
        set_costs = (self.costs_.basis(reference_size) @ coef.T)[0]
        self._followed = followed_sequences(self._sequences, set_costs, quality)
        return masks

    def _trade_offs(self, cost):
        """Return the trade-offs: the qualities that one unit of cost must bring.

        By default they are relative to the cost of all extractors together.

        Parameters
        ----------
        cost : ndarray of shape (n_extractors,)
            Cost of each extractor at the reference size.

        Returns
        -------
        ndarray of shape (n_trade_offs,)
        """
        if self.trade_offs is not None:
            trade_offs = np.asarray(self.trade_offs, dtype=np.float64)
            if trade_offs.ndim == 1 and len(trade_offs) and (trade_offs >= 0).all():
                return trade_offs
            raise ValueError(
                "trade_offs must be a one-dimensional sequence of at least one number, "
                f"none negative, got {self.trade_offs!r}."
            )
        # The trade-offs go from quality alone (0) to nearly cost alone. The cost of all
        # extractors must bring 0.001 to 3 units of quality. An accuracy is at most 1.
        total_cost = cost.sum()
        # If all extractors are free, there is no cost to divide by.
        scale = total_cost if total_cost > 0 else 1.0
        return np.concatenate([[0.0], np.geomspace(1e-3, 3.0, 8) / scale])

    def _goals(self, budget):
        """Return the sets of the greedy sequence that is used at each budget.

        Parameters
        ----------
        budget : float or ndarray of shape (n_queries,)

        Returns
        -------
        ndarray of int of shape (n_extractors + 1,) or (n_queries, n_extractors + 1)
            Indices of choices, the empty set first.
        """
        first_budgets, sequence = self._followed
        # Each sequence is followed from its first budget on. `segment` is the position
        # of the last first budget that is not above the budget. The lowest first budget
        # is 0, the cost of the empty set, so that `segment` is never negative.
        segment = np.searchsorted(first_budgets, budget, side="right") - 1
        return self._sequences[sequence[segment]]

    def _lookup(self, cost, budget):
        """Return the largest set of the budget's sequence that fits the budget.

        Parameters
        ----------
        cost : ndarray of shape (n_queries, n_choices)
            Cost of each set for each query.

        budget : ndarray of shape (n_queries,)

        Returns
        -------
        ndarray of int of shape (n_queries,)
            Indices of choices.
        """
        # The sets of the budget's sequence, the empty set first.
        goals = self._goals(budget)  # (n_queries, n_extractors + 1)
        goal_costs = np.take_along_axis(cost, goals, axis=1)
        fits = affords(budget[:, None], goal_costs)
        # Costs rise along a sequence, so that the sets that fit are the first ones. The
        # empty set costs 0 and always fits: the position of the last is at least 0.
        last = fits.sum(axis=1)[:, None] - 1
        return np.take_along_axis(goals, last, axis=1)[:, 0]


def greedy_sequence(evaluate, empty_quality, cost, trade_off):
    """Return a sequence of sets that grows by gain less cost (Algorithm 4).

    Parameters
    ----------
    evaluate : callable
        ``evaluate(masks)`` returns the qualities of sets.

    empty_quality : float
        Quality of the empty set.

    cost : ndarray of shape (n_extractors,)
        Cost of each extractor at the reference size.

    trade_off : float
        Quality that one unit of cost must bring. With infinity, only the cost decides.

    Returns
    -------
    ndarray of shape (n_extractors + 1,), dtype=int64
        Masks from the empty set to the full one. Each is contained in the next.
    """
    # Numbers of the extractors that are not in the set yet, the cheapest first.
    remaining = list(np.argsort(cost, kind="stable"))
    only_cost = np.isinf(trade_off)
    # An infinite weight would make all gains equal.
    weight = 0.0 if only_cost else trade_off
    mask = EMPTY_SET
    quality = empty_quality
    sequence = [mask]
    while remaining:
        # If only the cost decides, the other sets are not trained.
        candidates = remaining[:1] if only_cost else remaining
        # Masks of the sets with one extractor more.
        larger_sets = [mask | 1 << int(j) for j in candidates]
        qualities = np.asarray(evaluate(larger_sets))
        gains = qualities - quality - weight * cost[candidates]
        # Position among the candidates. Among ties, the cheapest extractor is first.
        best = int(np.argmax(gains))
        remaining.pop(best)
        mask = larger_sets[best]
        quality = qualities[best]
        sequence.append(mask)
    return np.array(sequence, dtype=np.int64)


def followed_sequences(sequences, cost, quality):
    """Find the greedy sequence of sets to follow at each budget.

    This sequence contains the best set that the budget buys at the reference size.

    Parameters
    ----------
    sequences : ndarray of shape (n_sequences, n_extractors + 1)
        Positions of sets, the empty set first.

    cost, quality : ndarray of shape (n_sets,)
        Cost of each set at the reference size, and its quality.

    Returns
    -------
    budgets : ndarray of shape (n_budgets,)
        Ascending budgets, at which the sequence may change.

    sequence : ndarray of shape (n_budgets,), dtype=int64
        Row of `sequences` that is followed from each of these budgets up to the next.
    """
    # Positions of the sets that are the best for some budget, by rising cost.
    best_sets = pareto_front(cost, quality)
    sequence = np.empty(len(best_sets), dtype=np.int64)
    for position, best_set in enumerate(best_sets):
        has_set = (sequences == best_set).any(axis=1)
        # The first sequence that has the set.
        sequence[position] = np.argmax(has_set)
    # All sequences start with the empty set.
    empty_set = sequences[0, 0]
    if len(best_sets) > 1 and best_sets[0] == empty_set:
        # A budget that buys nothing at the reference size follows the sequence of the
        # second of the best sets. It may buy something at a smaller size.
        sequence[0] = sequence[1]
    return cost[best_sets], sequence
