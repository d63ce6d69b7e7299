"""A search that keeps to a budget, and can be asked like what it found."""

from collections.abc import Mapping
from functools import partial

import numpy as np
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV, ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skroute.metrics._curve import find_router
from skroute.metrics._scorers import _BestWithinBudget, make_budget_scorer, mean_cost_scorer
from skroute.utils._compat import Interval, Real
from skroute.utils._protocol import DelegatedViewsMixin, inner_has
from skroute.utils._validation import warn

# Parameters of decision estimators that act without a fit.
_AT_ONCE = ("budget", "reg_lambda", "exchange_rate")
_SCORES = ("quality", "cost")


def _score_settings(estimator, X, y=None, *, settings, quality, error_score, **kwargs):
    """Quality and cost of a fitted estimator at each of some settings that act at once."""
    scorer, found = check_scoring(estimator, quality), {}
    for j, setting in enumerate(settings):
        estimator.set_params(**setting)
        try:
            worth = scorer(estimator, X, y, **kwargs)
            cost = mean_cost_scorer(estimator, X)
        except ValueError as error:
            if error_score == "raise":
                raise
            warn(f"{setting!r} cannot be scored and is left out: {error}")
            worth = cost = np.nan
        found |= {f"quality{j}": worth, f"cost{j}": cost}
    return found


class BudgetSearchCV(DelegatedViewsMixin, GridSearchCV):
    """Grid search for the best estimator whose mean cost is within a budget.

    What :class:`~sklearn.model_selection.GridSearchCV` does with :func:`best_within_budget` and
    :func:`mean_cost_scorer`, and more: it fits once for all values of ``budget``, ``reg_lambda``
    and ``exchange_rate``, which act without a fit; it has a ``best_score_``, ``predict_routed``,
    ``predict_cost`` and ``route``, and its calls take a `budget`, also of a pipeline.

    Parameters
    ----------
    estimator : estimator
        A cost-aware estimator, or a pipeline that ends in one.

    param_grid : dict or list of dict
        As in :class:`~sklearn.model_selection.GridSearchCV`. In a list of grids every candidate
        is fitted.

    budget : float
        Largest mean cost per sample over the validation folds, in the unit of the
        estimator's costs.

    quality : str or callable, default=None
        Scorer of the quality, higher being better. None is the estimator's own ``score``.

    cv, n_jobs, error_score, verbose
        As in :class:`~sklearn.model_selection.GridSearchCV`. A candidate that fails is left out.

    Attributes
    ----------
    best_score_ : float
        Mean quality of the best candidate over the validation folds.

    best_cost_ : float
        Its mean cost.

    best_estimator_, best_params_, best_index_, cv_results_, scorer_
        As in :class:`~sklearn.model_selection.GridSearchCV`; the scores are named ``"quality"``
        and ``"cost"``.

    Raises
    ------
    ValueError
        In `fit`, if no candidate keeps to the budget; the message names the cheapest.

    See Also
    --------
    best_within_budget : The same rule for any search of scikit-learn.

    Notes
    -----
    Rows that choose a candidate do not report its quality: ``best_score_`` is the best of many,
    partly by luck.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skroute.gating import AdaptGatingClassifier, BoostedGate
    >>> from skroute.metrics import BudgetSearchCV
    >>> X, y = load_iris(return_X_y=True)
    >>> search = BudgetSearchCV(
    ...     AdaptGatingClassifier(
    ...         LogisticRegression(max_iter=1000), p_full=0.0, gate=BoostedGate(n_estimators=5)
    ...     ),
    ...     {"gamma": [0.01, 0.3]},
    ...     budget=3,
    ...     cv=2,
    ... ).fit(X, y)
    >>> bool(search.best_cost_ <= 3), search.best_score_ > 0.8
    (True, True)
    >>> bool(search.predict_routed(X).cost.mean() <= 3)
    True
    """

    _parameter_constraints: dict = {
        **{
            name: allowed
            for name, allowed in GridSearchCV._parameter_constraints.items()
            if name in ("estimator", "param_grid", "cv", "n_jobs", "error_score", "verbose")
        },
        "budget": [Interval(Real, 0, None, closed="both")],
        "quality": [str, callable, None],
    }
    pre_dispatch = "2*n_jobs"
    return_train_score = False

    def __init__(
        self,
        estimator,
        param_grid,
        *,
        budget,
        quality=None,
        cv=None,
        n_jobs=None,
        error_score=np.nan,
        verbose=0,
    ):
        self.estimator = estimator
        self.param_grid = param_grid
        self.budget = budget
        self.quality = quality
        self.cv = cv
        self.n_jobs = n_jobs
        self.error_score = error_score
        self.verbose = verbose

    @property
    def scoring(self):
        """Scores of quality and cost at each setting."""
        how = {"quality": self.quality, "error_score": self.error_score}
        return partial(_score_settings, settings=self._settings()[1], **how)

    @property
    def refit(self):
        """The rule that chooses."""
        return _BestWithinBudget(self.budget, "quality", "cost")

    @property
    def best_score_(self):
        """Mean quality of the best candidate over the validation folds."""
        return float(self.cv_results_["mean_test_quality"][self.best_index_])

    @property
    def best_cost_(self):
        """Mean cost of the best candidate over the validation folds."""
        return float(self.cv_results_["mean_test_cost"][self.best_index_])

    def _settings(self):
        """The grid of what takes a fit, and the settings of what does not."""
        inner, prefix = self.estimator, ""
        while hasattr(inner, "steps"):
            prefix += f"{inner.steps[-1][0]}__"
            inner = inner.steps[-1][1]
        if not isinstance(self.param_grid, Mapping):
            return self.param_grid, [{}]
        at_once = [prefix + name for name in _AT_ONCE if prefix + name in self.param_grid]
        fits = {name: values for name, values in self.param_grid.items() if name not in at_once}
        return fits, list(ParameterGrid({name: self.param_grid[name] for name in at_once}))

    def _run_search(self, evaluate_candidates):
        evaluate_candidates(ParameterGrid(self._settings()[0]))

    def _format_results(self, candidate_params, n_splits, out, more_results=None):
        """The results of a search with one candidate for each setting of each fitted one."""
        settings = self._settings()[1]
        candidates = [{**fitted, **one} for fitted in candidate_params for one in settings]
        spread = [
            {**fit, "test_scores": {name: fit["test_scores"][f"{name}{j}"] for name in _SCORES}}
            for start in range(0, len(out), n_splits)
            for j in range(len(settings))
            for fit in out[start : start + n_splits]
        ]
        return super()._format_results(candidates, n_splits, spread, more_results)

    # The cost protocol ----------------------------------------------------------------

    def _decider(self):
        inner = getattr(self, "best_estimator_", self.estimator)
        while hasattr(inner, "steps"):
            inner = inner.steps[-1][1]
        return inner

    def _seen_by_decider(self, X):
        check_is_fitted(self)
        return find_router(self.best_estimator_, X)[1]

    @available_if(inner_has("predict"))
    def predict(self, X, **params):
        """Answers of the best estimator.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures} of shape (n_samples, n_features)
            The rows.

        **params : keyword arguments
            What the estimator takes in a call, such as `budget`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._view("predict", X, **params)

    @available_if(inner_has("predict_proba"))
    def predict_proba(self, X, **params):
        """Class probabilities of the best estimator.

        Parameters
        ----------
        X, **params
            As in `predict`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return self._view("predict_proba", X, **params)

    def score(self, X, y=None, budget=None, **params):
        """Quality of the best estimator.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,), default=None
            True targets.

        budget : float, default=None
            Mean cost per sample for this call. None takes the estimator's.

        **params : keyword arguments
            Of the scorer.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        if budget is None:
            scorer = check_scoring(self.best_estimator_, self.quality)
        else:
            scorer = make_budget_scorer(budget, self.quality)
        return float(scorer(self.best_estimator_, X, y, **params))
