"""Greedy: sequences of feature sets that grow by what a feature brings for what it costs."""

import numpy as np

from skroute.feature_sets._base import BaseFeatureSelector
from skroute.feature_sets._choices import greedy_choices
from skroute.feature_sets._sequences import default_trade_offs


class GreedyFeatureSelector(BaseFeatureSelector):
    """A good model whose features can be computed within an item's budget.

    Sequences of sets are grown from the empty one: each step adds the extractor with the
    largest ``increase in quality - trade_off * increase in cost``, costs being those at the
    median training size. For an item, the budget names the sequence, and `predict` follows
    it as far as the budget goes at the item's size. It computes the features of that set
    and no others, and asks its model.

    At most ``n_extractors ** 2`` sets are trained for each trade-off, and nothing is
    promised about the sets that are not.

    Read more in the :ref:`User Guide <feature_sets>`.

    Parameters
    ----------
    estimator : classifier
        Model that is cloned for every set of features. Must have `fit` and `predict`. Where it
        is a pipeline that begins with a `ColumnTransformer`, this one transforms those of its
        columns that are in the set.

    extractors : mapping from str to columns or list of (str, transformer), default=None
        Where features come from. At most 62.

        - A mapping from a name to the columns of X that it yields: a column name or
          number, a list of them, a slice or a boolean mask. Entries of columns that are
          not used for a row may be missing (NaN) in `predict`.
        - A list of ``(name, transformer)``: transformers of raw items (images, texts,
          arrays of differing size). `fit` calls each on all items, `predict` only those
          of the chosen set, on the items that need them.
        - None: each column of X is an extractor of its own, and X must be complete.

    costs : mapping from str to cost, sequence of costs, "time" or MeasuredCosts, default=None
        Cost of each extractor on one item, in any unit. A cost is a number, a sequence of
        polynomial coefficients in the size (lowest degree first, none negative, as
        :mod:`numpy.polynomial`), or a callable of an array of sizes. ``"time"`` measures
        transformers, see :class:`MeasuredCosts`. None is allowed with ``extractors=None``
        only: each column costs 1, and `budget` is a number of columns. The time that the
        model itself takes is not part of the cost.

    trade_offs : array-like of float, default=None
        The quality that a unit of cost must bring, one sequence for each. ``[0]`` looks at
        quality alone (Greedy-Acc), ``[numpy.inf]`` at cost alone (Greedy-Cost). None takes 0
        and eight values relative to the cost of all extractors. More of them train more
        sets.

    size : str, int or callable, default=None
        Size of an item: a column of X by name or number, or a function that is called
        with one item and returns a number. For a size of two dimensions return one
        number, for example ``lambda image: image.shape[0] * image.shape[1]``. Can be
        passed to each method instead. None: costs must not depend on the size.

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
        Their scores.

    n_trained_ : int
        Number of sets trained, the empty set not counted.

    index_ : object
        What :meth:`select` looks sets up in.

    costs_ : FeatureCosts
        Costs of the extractors as functions of the size; ``costs_(sizes)`` returns an
        array of shape (n_extractors, n_sizes).

    measured_sizes_ : ndarray of shape (n_measurements,)
        Only with measured costs: sizes of the timed items, zeros where they have none.

    measured_costs_ : ndarray of shape (n_measurements, n_extractors)
        Only with measured costs: their times in seconds.

    min_budget_ : float
        0: the empty set costs nothing.

    classes_ : ndarray of shape (n_classes,)
        Class labels.

    n_features_in_ : int
        Number of columns of X. Only for two-dimensional X.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names. Only when X has names that are all strings.

    See Also
    --------
    PolyDomSelector : At most 20 extractors, with a guarantee.

    Notes
    -----
    Every method that takes rows also takes, by keyword,

    - ``size``, array-like of shape (n_samples,): the sizes of the items, in place of those
      that the constructor's `size` finds;
    - ``budget``, which may have one number per item, as in the constructor;
    - ``anytime``, bool: watch the clock. Features are computed one after the other, and the
      set to aim for is revised by the time that was truly spent: the method goes on when
      features came in below their estimate and stops early when they came in above. Needs
      measured costs. Costs are then the seconds spent, which a single slow extractor may
      take above the budget, and answers depend on the machine's load.

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
    # Sets are masks in 64 bits with a sign.
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
        if reference is None and self.costs_.depends_on_size:
            raise ValueError(
                "Greedy sequences grow at the median training size, but the items have no size. "
                "Give size, here or to the constructor."
            )
        reference = 0.0 if reference is None else reference
        trade_offs = self._trade_offs(self.costs_(np.array([reference]))[:, 0])
        return greedy_choices(
            trainer.evaluate, trainer.quality[0], self.costs_, reference, trade_offs
        )

    def _trade_offs(self, cost):
        if self.trade_offs is None:
            return default_trade_offs(cost)
        given = np.asarray(self.trade_offs, dtype=np.float64)
        if given.ndim != 1 or len(given) == 0 or not (given >= 0).all():
            raise ValueError(
                "trade_offs must be a one-dimensional sequence of at least one number, none "
                f"negative, got {self.trade_offs!r}."
            )
        return given
