"""Many settings of `p_full` and `gamma`, the frontier among them, one picture."""

import copy
import itertools

import numpy as np
from sklearn.base import clone
from sklearn.metrics import accuracy_score
from sklearn.utils.parallel import Parallel, delayed

from skroute.base import affords, check_affordable, check_budget
from skroute.gating._adapt import AdaptGatingClassifier
from skroute.metrics import AccuracyCostDisplay, pareto_front
from skroute.utils._compat import Integral, validate_params
from skroute.utils._validation import check_truth

__all__ = ["AdaptGrid", "adapt_grid"]


class AdaptGrid:
    """Settings of an :class:`AdaptGatingClassifier` with their cost and accuracy.

    Made by :func:`adapt_grid`.

    Parameters
    ----------
    estimators : list of AdaptGatingClassifier
        Fitted; they share one full model.

    cost, accuracy : array-like of shape (n_settings,)
        On validation rows: mean cost per sample and share answered correctly.

    full_accuracy : float
        Accuracy of the full model alone on the same rows.

    Attributes
    ----------
    p_full, gamma : ndarray of shape (n_settings,)
        The settings.

    frontier : ndarray of int
        Positions of the settings on the lower-left frontier, by rising cost.

    Examples
    --------
    >>> from skroute.gating import AdaptGatingClassifier, AdaptGrid
    >>> settings = [AdaptGatingClassifier(None, gamma=gamma) for gamma in (1e-4, 1e-3, 1e-2)]
    >>> grid = AdaptGrid(settings, cost=[9, 4, 6], accuracy=[0.95, 0.9, 0.89], full_accuracy=0.95)
    >>> grid.frontier
    array([1, 0])
    >>> grid.best_within(5).gamma
    0.001
    """

    def __init__(self, estimators, cost, accuracy, full_accuracy):
        self.estimators = estimators
        self.cost = np.asarray(cost, dtype=float)
        self.accuracy = np.asarray(accuracy, dtype=float)
        self.full_accuracy = full_accuracy
        self.p_full = np.array([estimator.p_full for estimator in estimators])
        self.gamma = np.array([estimator.gamma for estimator in estimators])
        self.frontier = pareto_front(self.cost, self.accuracy)

    def best_within(self, budget):
        """The most accurate setting whose validation cost is within a budget.

        Parameters
        ----------
        budget : float
            Mean cost per sample.

        Returns
        -------
        AdaptGatingClassifier

        Raises
        ------
        ValueError
            If no setting is that cheap.
        """
        budget = check_budget(budget)
        check_affordable(budget, self.cost.min(), advice="Extend the grid to a larger gamma.")
        within = self.frontier[affords(budget, self.cost[self.frontier])]
        return self.estimators[within[-1]]

    def plot(self, *, ax=None, name=None, curve_kwargs=None):
        """Draw all settings, and the frontier as a curve.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        name : str, default=None
            Name of the frontier for the legend. None draws no legend.

        curve_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``plot`` for the frontier.

        Returns
        -------
        display : :class:`~skroute.metrics.AccuracyCostDisplay`
            Of the frontier, with `ax_`, `figure_` and `line_`.
        """
        front = self.frontier
        display = AccuracyCostDisplay(
            cost=self.cost[front], quality=self.accuracy[front], name=name
        )
        # Settings cannot be mixed.
        display.plot(ax=ax, curve_kwargs={"drawstyle": "steps-post"} | (curve_kwargs or {}))
        colour = display.line_.get_color()
        display.ax_.scatter(self.cost, self.accuracy, s=12, alpha=0.35, color=colour)
        display.ax_.set(ylabel="Accuracy")
        return display


@validate_params(
    {
        "estimator": [AdaptGatingClassifier],
        "p_full": ["array-like"],
        "gamma": ["array-like"],
        "n_jobs": [Integral, None],
    },
    prefer_skip_nested_validation=False,
)
def adapt_grid(
    estimator,
    X,
    y,
    X_val,
    y_val,
    *,
    p_full=(0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8),
    gamma=(1e-3, 3e-3, 5e-3, 7e-3, 1e-2, 1.5e-2, 2e-2),
    sample_weight=None,
    n_jobs=None,
):
    """Fit an :class:`AdaptGatingClassifier` for each pair of `p_full` and `gamma`.

    The full model and its out-of-sample probabilities are computed once. Linear methods
    start each `p_full` from the solution for the one before.

    Parameters
    ----------
    estimator : AdaptGatingClassifier
        Its own `p_full` and `gamma` are not used.

    X, y : {array-like, dataframe} of shape (n_samples, n_features) and (n_samples,)
        Training rows.

    X_val, y_val : {array-like, dataframe} and array-like
        Rows to measure cost and accuracy on, not those of `X`: choices made from the grid
        are choices made on these rows.

    p_full, gamma : array-like of float
        Values, see :class:`AdaptGatingClassifier`.

    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the training rows.

    n_jobs : int, default=None
        Threads; each takes values of `gamma`.

    Returns
    -------
    AdaptGrid
        Its estimators share one full model.

    Raises
    ------
    ValueError
        If `p_full` or `gamma` is empty or out of range.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skroute.gating import AdaptGatingClassifier, adapt_grid
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> gate = AdaptGatingClassifier(RandomForestClassifier(oob_score=True, random_state=0))
    >>> grid = adapt_grid(
    ...     gate, X[::2], y[::2], X[1::2], y[1::2], p_full=[0.1, 0.3], gamma=[0.01, 0.1]
    ... )
    >>> grid.cost.shape
    (4,)
    >>> bool(grid.best_within(15.0).predict_cost(X).mean() < 15.5)
    True
    """
    template = clone(estimator)
    for name, values in (("p_full", p_full), ("gamma", gamma)):
        if not len(values):
            raise ValueError(f"{name} must have at least one value, got {values!r}.")
        for value in values:
            template.set_params(**{name: value})._validate_params()
    check_truth(X=X, sample_weight=sample_weight, y=y)
    check_truth(X_val=X_val, y=y_val, name="y_val")
    rows, held_out = template._prepare(X, y, sample_weight, {})
    # Made ready once, for all threads.
    ready = {
        share > 0: template.set_params(p_full=share)._ready(rows, held_out)
        for share in {max(p_full), min(p_full)}
    }
    found = Parallel(n_jobs=n_jobs, prefer="threads")(
        delayed(_one_gamma)(template, rows, held_out, ready, value, p_full, X_val, y_val)
        for value in gamma
    )
    estimators, cost, accuracy = zip(*itertools.chain(*found))
    full = accuracy_score(y_val, template.estimator_.predict(X_val))
    return AdaptGrid(list(estimators), cost, accuracy, float(full))


def _one_gamma(template, rows, held_out, ready, gamma, p_full, X_val, y_val):
    found, start = [], None
    for value in p_full:
        model = copy.copy(template).set_params(p_full=value, gamma=gamma)
        start = model._fit_pair(rows, held_out, ready[value > 0], start)
        routed = model.predict_routed(X_val)
        found.append((model, routed.cost.mean(), accuracy_score(y_val, routed.y_pred)))
    return found
