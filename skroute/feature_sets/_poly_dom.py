"""Poly-Dom: a search for feature sets that trains few of all possible sets."""

from typing import NamedTuple

import numpy as np

from skroute.base import affords
from skroute.feature_sets._base import BaseFeatureSelector
from skroute.feature_sets._lattice import (
    EMPTY_SET,
    MAX_LATTICE_EXTRACTORS,
    LatticeSearch,
    expand_all,
    indicator,
    monotonicity_violations,
    set_name,
)
from skroute.utils._compat import Integral, Interval, Real
from skroute.utils._validation import warn


class MonotonicityViolation(NamedTuple):
    """A set of extractors that is worse than one of its subsets.

    Attributes
    ----------
    subset : str
        Name of the better set.

    superset : str
        Name of the worse set, which contains the other.

    drop : float
        Quality of the subset less that of the superset, above 0.
    """

    subset: str
    superset: str
    drop: float


class PolyDomSelector(BaseFeatureSelector):
    """Choose the best set of features for each item within its budget (Poly-Dom).

    A feature costs as much as its extractor costs on the item, which depends on the
    item's size. `fit` trains a clone of `estimator` on the features of each set of
    extractors that the guarantee below needs. For the size and the budget of an item,
    `predict` takes the best set whose features the budget pays for, computes the
    features of that set and no others, and asks its model.

    The answer has a guarantee: among all sets of extractors that the budget allows,
    none is better than ``1 + alpha`` times the chosen one. Quality here is the
    cross-validated score. Most sets are never trained: when a set is nearly as good as
    one of its supersets, all sets between the two are skipped.

    Parameters
    ----------
    estimator : classifier
        Model that is cloned for every set of features. Must have `fit` and `predict`.
        It sees the columns of one set at a time: a `ColumnTransformer` in it selects
        its columns by :class:`~sklearn.compose.make_column_selector`, not by names that
        may be absent.

    extractors : mapping from str to columns or list of (str, transformer), default=None
        Where features come from. At most 20.

        - A mapping from a name to the columns of X that it yields: a column name or
          number, a list of them, a slice or a boolean mask. Entries of columns that are
          not used for a row may be missing (NaN) in `predict`.
        - A list of ``(name, transformer)``: transformers of raw items (images, texts,
          arrays of differing size). `fit` calls each on all items, `predict` only those
          of the chosen set, on the items that need them.
        - None: each column of X is an extractor of its own, and X must be complete.

    costs : mapping, sequence, "time" or MeasuredCosts, default=None
        Cost of each extractor on one item, in any unit. A cost is a number, a sequence
        of polynomial coefficients in the size (lowest degree first, none negative, as
        :mod:`numpy.polynomial`), or a callable of an array of sizes. ``"time"``
        measures transformers, see :class:`MeasuredCosts`, with which the model's own
        time can be part of the cost. None is allowed with ``extractors=None`` only:
        each column costs 1, and `budget` is a number of columns.

    alpha : float or None, default=0.1
        Accepted factor of quality: the best set within the budget is at most ``1 +
        alpha`` times as good as the chosen one. Larger values train fewer sets. 0
        trains every set that may be the best for some size and budget. None trains all
        ``2 ** n_extractors - 1`` sets and assumes nothing.

    monotonicity_tol : float, default=0.0
        How much better a set of extractors may be than one that contains it, in the
        unit of the score. The guarantee assumes this bound. Cross-validated scores are
        noisy: with 0, `fit` usually warns and names the value that would have held.
        Larger values train more sets.

    max_models : int, default=None
        Train at most this many sets. The search starts with a large alpha and lowers it
        towards `alpha` while sets may be trained; ``alpha_`` is what was reached. Not
        with ``alpha=None``.

    max_seconds : float, default=None
        Start no new layer of the lattice after this many seconds. As with `max_models`,
        the search starts with a large alpha, and ``alpha_`` is what was reached. Not
        with ``alpha=None``.

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
        Cache of the scores, so that fitting again with another `alpha` or `budget`
        trains only what is new.

    n_jobs : int, default=None
        Sets of one layer that are trained at the same time. -1 uses all processors.

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

    alpha_ : float
        Smallest alpha for which the trained sets give the guarantee. Infinite when
        `max_models` was too small to show anything.

    monotonicity_violations_ : list of MonotonicityViolation
        Named tuples ``(subset, superset, drop)`` for every trained set that is worse
        than one of its subsets by more than `monotonicity_tol`, the largest drop first.

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
    GreedyFeatureSelector : For more extractors; trains few sets and promises nothing.

    References
    ----------
    .. [1] L. Battle, E. Benson, A. Parameswaran, E. Wu. "Indexing Cost Sensitive
       Prediction". arXiv 1408.4072, 2014. Algorithms 1 to 4.

    Examples
    --------
    Two groups of columns, of which the second costs more the larger the item is:

    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skroute.feature_sets import PolyDomSelector
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=200)
    >>> X = y[:, None] + rng.normal(size=(200, 3)) * [2.0, 0.5, 0.5]
    >>> selector = PolyDomSelector(
    ...     LogisticRegression(),
    ...     {"header": [0], "content": [1, 2]},
    ...     costs={"header": 1.0, "content": [1.0, 0.5]},
    ...     monotonicity_tol=0.01,
    ... ).fit(X, y)
    >>> route = selector.select(size=[0, 1000, 10], budget=4.0)
    >>> [selector.choices_[i] for i in route]
    ['header + content', 'header', 'header']
    """

    _parameter_constraints: dict = {
        **BaseFeatureSelector._parameter_constraints,
        "alpha": [None, Interval(Real, 0, None, closed="left")],
        "monotonicity_tol": [Interval(Real, 0, None, closed="left")],
        "max_models": [None, Interval(Integral, 1, None, closed="left")],
        "max_seconds": [None, Interval(Real, 0, None, closed="left")],
    }
    _max_extractors = MAX_LATTICE_EXTRACTORS
    _advice = ", or use GreedyFeatureSelector"

    def __init__(
        self,
        estimator,
        extractors=None,
        *,
        costs=None,
        alpha=0.1,
        monotonicity_tol=0.0,
        max_models=None,
        max_seconds=None,
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
        self.alpha = alpha
        self.monotonicity_tol = monotonicity_tol
        self.max_models = max_models
        self.max_seconds = max_seconds
        self.size = size
        self.budget = budget
        self.scoring = scoring
        self.cv = cv
        self.memory = memory
        self.n_jobs = n_jobs

    def _choose(self, trainer, reference):
        """Search the lattice of feature sets, and return those that may be chosen.

        It sets ``alpha_`` and ``monotonicity_violations_``.

        Parameters
        ----------
        trainer : SetTrainer
            Trains and scores sets.

        reference : float or None
            Median training size. Not used.

        Returns
        -------
        ndarray of int of shape (n_choices,)
            Masks of the sets that may be chosen, the worst first.
        """
        n_extractors = len(self.extractors_.names)
        empty_quality = trainer.quality[EMPTY_SET]
        if self.alpha is None:
            expansion = expand_all(n_extractors, trainer.evaluate, empty_quality)
        else:
            expansion = LatticeSearch(
                n_extractors,
                trainer.evaluate,
                empty_quality,
                monotonicity_tol=self.monotonicity_tol,
                max_models=self.max_models,
                max_seconds=self.max_seconds,
            ).run(self.alpha)
        self.alpha_ = expansion.alpha
        self._report_violations(expansion)
        # Coefficients of the cost of each set. (n_trained, n_functions)
        coef = indicator(expansion.masks, n_extractors) @ self.costs_.coef
        positions = undominated(expansion.quality, coef)
        qualities = expansion.quality[positions]
        # Without equally good sets, :func:`best_affordable` can leave out a step.
        self._has_equal_qualities = len(np.unique(qualities)) < len(qualities)
        return expansion.masks[positions]

    def _lookup(self, cost, budget):
        """Return the best set within each budget.

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
        return best_affordable(
            cost, self.quality_, budget, may_tie=self._has_equal_qualities
        )

    def _goals(self, budget):
        """Return all choices, the worst first, for any budget."""
        return np.arange(len(self.quality_))

    def _report_violations(self, expansion):
        """Store the trained sets that are worse than a subset, and warn about them.

        The guarantee assumes that there are none.

        Parameters
        ----------
        expansion : Expansion
            The trained sets.
        """
        violations = monotonicity_violations(
            expansion.masks, expansion.quality, self.monotonicity_tol
        )
        names = self.extractors_.names
        self.monotonicity_violations_ = []
        for subset, superset, drop in violations:
            violation = MonotonicityViolation(
                set_name(names, subset), set_name(names, superset), drop
            )
            self.monotonicity_violations_.append(violation)
        # With alpha=None there is no guarantee, and nothing is assumed.
        if violations and self.alpha is not None:
            worst = self.monotonicity_violations_[0]
            # Rounded up to four digits after the point.
            sufficient_tol = np.ceil(worst.drop * 1e4) / 1e4
            warn(
                "The guarantee assumes that a set of extractors is at most "
                f"monotonicity_tol={self.monotonicity_tol!r} worse than any of its "
                f"subsets. {len(violations)} of the {len(expansion.masks)} scored sets "
                f"are not so, the worst being {worst.superset!r}, which is "
                f"{worst.drop:.4g} below {worst.subset!r}. "
                f"monotonicity_tol={sufficient_tol:.4g} would hold on these sets; see "
                "monotonicity_violations_."
            )


def undominated(quality, coef):
    """Return the sets that are the best for some size and budget (Properties 3.6, 3.7).

    A set costs ``coef @ basis(size)``, with a basis that is never negative. A set is
    dominated if another set is at least as good, and each of the other's coefficients
    is at most as large. The other set then never costs more.

    Parameters
    ----------
    quality : ndarray of shape (n_sets,)
        Quality of each set.

    coef : ndarray of shape (n_sets, n_functions)
        Coefficients of the cost of each set.

    Returns
    -------
    ndarray of int64
        Positions of the sets that are not dominated, the worst first.
    """
    # The best set comes first. Among sets of equal quality, the one with the smaller
    # coefficients comes first, compared in their order. np.lexsort sorts by its last
    # key first.
    order = np.lexsort((*coef.T[::-1], -quality))
    # Positions of the sets that are not dominated, the best first.
    front = []
    # The first ``len(front)`` rows are the coefficients of the sets in `front`.
    front_coef = np.empty_like(coef)
    for row in order:
        # Coefficients of the sets that are at least as good as the set `row`.
        better = front_coef[: len(front)]
        never_costs_more = (better <= coef[row]).all(axis=1)
        if not never_costs_more.any():
            front_coef[len(front)] = coef[row]
            front.append(row)
    return np.array(front[::-1])


def best_affordable(cost, quality, budget, may_tie=True):
    """Return the best set within each budget, the cheapest of equally good ones.

    Parameters
    ----------
    cost : ndarray of shape (n_queries, n_sets)
        Cost of each set for each query. At least one set fits the budget.

    quality : ndarray of shape (n_sets,)
        Ascending qualities.

    budget : ndarray of shape (n_queries,)
        Budget of each query.

    may_tie : bool, default=True
        False if all qualities are different, which saves time.

    Returns
    -------
    ndarray of shape (n_queries,), dtype=int64
        Positions of the sets.
    """
    fits = affords(budget[:, None], cost)  # (n_queries, n_sets)
    # Qualities rise, so that the best set is the last one that fits. In reversed order,
    # it is the first one.
    best = len(quality) - 1 - fits[:, ::-1].argmax(axis=1)
    if may_tie:
        is_as_good = fits & (quality == quality[best][:, None])
        # An infinite cost keeps all other sets out of the search for the cheapest.
        best = np.where(is_as_good, cost, np.inf).argmin(axis=1)
    return best
