"""A search that keeps to a budget, and can be asked like what it found."""

import numpy as np
from sklearn.model_selection import GridSearchCV
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skroute.metrics._curve import find_router
from skroute.metrics._scorers import best_within_budget, make_budget_scorer, mean_cost_scorer
from skroute.utils._compat import Interval, Real
from skroute.utils._views import DelegatedViewsMixin


def _inner_has(name):
    def check(self):
        getattr(self._decider(), name)
        return True

    return check


class BudgetSearchCV(DelegatedViewsMixin, GridSearchCV):
    """Grid search for the best estimator whose mean cost keeps to a budget.

    What :class:`~sklearn.model_selection.GridSearchCV` does with
    :func:`best_within_budget` and :func:`mean_cost_scorer`, and what it cannot do: it has a
    ``best_score_``, its calls take a `budget`, and it has ``predict_routed``, ``predict_cost`` and
    ``route``, also where the estimator is a pipeline.

    Parameters
    ----------
    estimator : estimator
        A cost-aware estimator, or a pipeline that ends in one.

    param_grid : dict or list of dict
        As in :class:`~sklearn.model_selection.GridSearchCV`.

    budget : float
        Largest mean cost per sample over the validation folds, in the unit of the
        estimator's costs.

    quality : str or callable, default=None
        Scorer of the quality, higher being better. None is the estimator's own ``score``.

    cv : int, cross-validation generator or iterable, default=None
        Splits.

    n_jobs : int, default=None
        Fits at the same time.

    error_score : "raise" or float, optional
        Score of a candidate that fails, NaN if not given. One that fails is left out; where
        none is left, the error says why each failed.

    verbose : int, default=0
        As in :class:`~sklearn.model_selection.GridSearchCV`.

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
        """Scorers of quality and cost."""
        return {"quality": self.quality, "cost": mean_cost_scorer}

    @property
    def refit(self):
        """The rule that chooses."""
        return best_within_budget(self.budget, "quality", "cost")

    def fit(self, X, y=None, **params):
        """Fit and judge every candidate, and fit the best one on all rows.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Rows.

        y : array-like of shape (n_samples,), default=None
            Targets.

        **params : dict
            Passed on to the estimator's `fit`, as in
            :class:`~sklearn.model_selection.GridSearchCV`.

        Returns
        -------
        self
        """
        super().fit(X, y, **params)
        self.best_score_ = float(self.cv_results_["mean_test_quality"][self.best_index_])
        self.best_cost_ = float(self.cv_results_["mean_test_cost"][self.best_index_])
        return self

    # The cost protocol ----------------------------------------------------------------

    def _decider(self):
        inner = getattr(self, "best_estimator_", self.estimator)
        while not hasattr(inner, "predict_routed") and hasattr(inner, "steps"):
            inner = inner.steps[-1][1]
        return inner

    def _seen_by_decider(self, X):
        check_is_fitted(self)
        return find_router(self.best_estimator_, X)[1]

    @available_if(_inner_has("predict"))
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

    @available_if(_inner_has("predict_proba"))
    def predict_proba(self, X, **params):
        """Class probabilities of the best estimator.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures} of shape (n_samples, n_features)
            The rows.

        **params : keyword arguments
            What the estimator takes in a call, such as `budget`.

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
            Passed on to the scorer.

        Returns
        -------
        float
        """
        if budget is None:
            return super().score(X, y, **params)
        check_is_fitted(self)
        return make_budget_scorer(budget, self.quality)(self.best_estimator_, X, y, **params)
