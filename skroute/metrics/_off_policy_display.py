"""A picture of what a log says of a policy that did not write it."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skroute.metrics._off_policy import off_policy_curve
from skroute.metrics._off_policy_sums import OffPolicyCurve
from skroute.utils._compat import validate_style_kwargs
from skroute.utils._optional import axes_of

_NAMES = {"direct": "direct method", "snips": "SNIPS", "doubly_robust": "doubly robust"}


class OffPolicyDisplay:
    """Quality over mean cost, estimated from a log of one answer per request.

    It is recommended to use :meth:`from_estimator` to create one.

    Parameters
    ----------
    curve : OffPolicyCurve
        From :func:`off_policy_curve`.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the curve.

    figure_ : matplotlib Figure
        Figure that holds the axes.

    lines_ : list of matplotlib Line2D
        One for each estimator drawn.

    band_ : matplotlib PolyCollection
        The interval of the doubly robust estimate.

    See Also
    --------
    off_policy_curve : The numbers behind the picture.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> from skroute.datasets import make_routing_problem
    >>> from skroute.metrics import OffPolicyDisplay
    >>> from skroute.routing import BudgetRouter
    >>> problem = make_routing_problem(1000, n_models=2, n_features=2, random_state=0)
    >>> X, Q = problem.data, problem.quality
    >>> router = BudgetRouter(costs=problem.costs).fit(X[:500], Q[:500])
    >>> choice = np.random.default_rng(0).integers(0, 2, 500)
    >>> q = Q[500:][np.arange(500), choice]
    >>> OffPolicyDisplay.from_estimator(router, X[500:], q, choice=choice, budgets=[0.3, 0.6])
    <...OffPolicyDisplay ...>
    >>> plt.close()
    """

    def __init__(self, *, curve: OffPolicyCurve) -> None:
        self.curve = curve

    def plot(
        self,
        *,
        ax: Any = None,
        estimators: tuple[str, ...] = ("doubly_robust", "snips", "direct"),
        curve_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        estimators : tuple of str, default=("doubly_robust", "snips", "direct")
            Which estimates are drawn; the doubly robust one with its interval.

        curve_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``plot`` for the lines.

        Returns
        -------
        display : :class:`OffPolicyDisplay`
            The object itself, with `ax_`, `figure_`, `lines_` and `band_`.
        """
        if unknown := [name for name in estimators if name not in _NAMES]:
            raise ValueError(
                f"estimators must be some of {list(_NAMES)!r}, got {unknown[0]!r} among them."
            )
        ax = axes_of(self, ax)
        self.lines_, self.band_ = [], None
        for name in estimators:
            quality, cost = getattr(self.curve.quality, name), getattr(self.curve.cost, name)
            own = name == "doubly_robust"
            style = {"marker": "o" if own else None, "linestyle": "-" if own else "--"}
            style = validate_style_kwargs({**style, "label": _NAMES[name]}, curve_kwargs or {})
            order = np.argsort(cost.estimate, kind="stable")
            (line,) = ax.plot(cost.estimate[order], quality.estimate[order], **style)
            self.lines_.append(line)
            if own:
                self.band_ = ax.fill_between(
                    cost.estimate[order],
                    quality.low[order],
                    quality.high[order],
                    alpha=0.2,
                    color=line.get_color(),
                )
        ax.set(xlabel="Mean cost per sample", ylabel="Mean quality")
        ax.legend(loc="best")
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        q: ArrayLike,
        *,
        choice: ArrayLike,
        propensity: ArrayLike | None = None,
        costs: ArrayLike | None = None,
        budgets: ArrayLike | None = None,
        ax: Any = None,
        curve_kwargs: dict[str, Any] | None = None,
        **params: Any,
    ) -> Self:
        """Estimate the curve of a fitted router from a log, and draw it.

        Parameters
        ----------
        estimator : estimator
            A fitted router, see :func:`off_policy_curve`.

        X : array-like of shape (n_samples, n_features)
            The requests.

        q : array-like of shape (n_samples,)
            Quality of the answer that was given.

        choice : array-like of shape (n_samples,)
            Which choice gave it.

        propensity : array-like of shape (n_samples,), default=None
            The probability with which it was made. None estimates it.

        costs : array-like of shape (n_samples,), default=None
            What the answer has cost.

        budgets : array-like of shape (n_budgets,), default=None
            Mean costs per sample. None takes nine.

        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        curve_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``plot``.

        **params : keyword arguments
            Further arguments of :func:`off_policy_curve`.

        Returns
        -------
        display : :class:`OffPolicyDisplay`
            The drawn curve.
        """
        curve = off_policy_curve(
            estimator,
            X,
            q,
            choice=choice,
            propensity=propensity,
            costs=costs,
            budgets=budgets,
            **params,
        )
        return cls(curve=curve).plot(ax=ax, curve_kwargs=curve_kwargs)
