"""Picture of a router's estimates: are they true, and what do decisions make of them."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import check_array, check_consistent_length

from skroute.base import check_costs
from skroute.metrics._tradeoff import reference_curves
from skroute.utils._compat import _safe_indexing
from skroute.utils._named import by_label, in_order
from skroute.utils._optional import import_optional


class RouterDiagnosticsDisplay:
    """Reliability of a router's estimates, and the gain found against the gain possible.

    It is recommended to use :meth:`from_estimator` or :meth:`from_predictions` to create one.

    Parameters
    ----------
    reliability : list of ndarray of shape (3, n_bins)
        For each choice the mean estimate of each bin, the mean quality that came out, and its
        standard error.

    names : list of str
        The choices.

    n_rows : ndarray of shape (n_points,)
        Rows that were used to fit; NaN where they are not known.

    found : ndarray of shape (n_points,)
        Mean quality above the best :term:`random mix` that spends the same.

    possible : ndarray of shape (n_points,)
        The same of an oracle that spends as much.

    Attributes
    ----------
    axes_ : list of two matplotlib Axes
        With the reliability, and with the gains.

    figure_ : matplotlib Figure
        Figure that holds the axes.

    See Also
    --------
    skroute.quality.QualityRegressor : The estimator that routers take by default.
    reference_curves : The random mix and the oracle.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.datasets import make_routing_problem
    >>> from skroute.metrics import RouterDiagnosticsDisplay
    >>> from skroute.routing import BudgetRouter
    >>> problem = make_routing_problem(600, random_state=0)
    >>> X, Q = problem.data, problem.quality
    >>> router = BudgetRouter(Ridge(), costs=problem.costs).fit(X[:300], Q[:300])
    >>> display = RouterDiagnosticsDisplay.from_estimator(
    ...     router, X[300:], Q[300:], X_fit=X[:300], y_fit=Q[:300], n_rows=[50, 300]
    ... )
    >>> display.n_rows
    array([ 50., 300.])
    >>> plt.close()
    """

    def __init__(
        self,
        *,
        reliability: list,
        names: list[str],
        n_rows: ArrayLike,
        found: ArrayLike,
        possible: ArrayLike,
    ) -> None:
        self.reliability = reliability
        self.names = names
        self.n_rows = n_rows
        self.found = found
        self.possible = possible

    def plot(self, *, ax: Any = None) -> Self:
        """Draw reliability on the left and gains on the right.

        Parameters
        ----------
        ax : sequence of two matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        Returns
        -------
        display : :class:`RouterDiagnosticsDisplay`
            The object itself, with `axes_` and `figure_`.
        """
        pyplot = import_optional("matplotlib.pyplot", f"{type(self).__name__}.plot")
        if ax is None:
            _, ax = pyplot.subplots(1, 2, figsize=(9, 4), layout="constrained")
        left, right = ax
        for name, (estimate, quality, error) in zip(self.names, self.reliability):
            left.errorbar(estimate, quality, 1.96 * error, marker="o", markersize=3, label=name)
        ends = [np.min([part[0].min() for part in self.reliability])]
        ends.append(np.max([part[0].max() for part in self.reliability]))
        left.plot(ends, ends, linestyle=":", color="black")
        left.set(xlabel="Estimated quality", ylabel="Quality that came out")
        left.legend(loc="best")
        rows = np.asarray(self.n_rows, dtype=np.float64)
        known = np.isfinite(rows)
        for values, name in ((self.possible, "possible"), (self.found, "found")):
            values = np.asarray(values, dtype=np.float64)
            if known.all():
                right.plot(rows, values, marker="o", markersize=4, label=name)
            else:
                line = "--" if name == "possible" else "-"
                right.axhline(float(values[-1]), linestyle=line, label=name)
        right.axhline(0, linestyle=":", color="black")
        right.set(xlabel="Rows used", ylabel="Quality above the random mix")
        right.legend(loc="best")
        self.axes_ = [left, right]
        self.figure_ = left.figure
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        costs: ArrayLike | None = None,
        X_fit: Any = None,
        y_fit: ArrayLike | None = None,
        n_rows: ArrayLike | None = None,
        n_bins: int = 10,
        random_state: int = 0,
        ax: Any = None,
        **params: Any,
    ) -> Self:
        """Judge a fitted router on rows that it was not fitted on, and draw.

        Parameters
        ----------
        estimator : estimator
            A fitted router with ``predict_quality``, ``route`` and ``predict_cost``, such as
            :class:`~skroute.routing.BudgetRouter`.

        X : indexable of n_samples rows
            Rows that the router has not been fitted on.

        y : array-like of shape (n_samples, n_choices)
            What each choice was worth, in the order of ``choices_``; a frame is read by name.

        costs : array-like of shape (n_choices,) or (n_samples, n_choices), default=None
            Cost of each choice. None takes the router's ``costs_``.

        X_fit, y_fit : indexable and array-like, default=None
            Rows to fit clones of the router on, for the gains by rows used. None draws the
            gain of `estimator` alone.

        n_rows : array-like of int, default=None
            How many of these rows, drawn at random, each drawing part of the next. None takes
            an eighth, a quarter, half and all.

        n_bins : int, default=10
            Bins of the estimates, with equally many rows.

        random_state : int, default=0
            Seed of the order in which rows are used.

        ax : sequence of two matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        **params : keyword arguments
            Of ``route`` and ``predict_cost``, such as ``budget``.

        Returns
        -------
        display : :class:`RouterDiagnosticsDisplay`
            The drawn diagnostics.

        Raises
        ------
        ValueError
            If one of `X_fit` and `y_fit` is missing, or `n_rows` are more than there are.
        """
        if (X_fit is None) != (y_fit is None):
            raise ValueError("X_fit and y_fit must be given together, or neither of them.")
        if n_rows is not None and X_fit is None:
            raise ValueError(f"n_rows={n_rows!r} are of X_fit and y_fit. Give these as well.")
        names = list(estimator.choices_)
        quality = check_array(in_order(y, names), dtype=np.float64, input_name="y")
        costs = in_order(by_label(estimator.costs_ if costs is None else costs), names)
        costs = check_costs(costs, names) if isinstance(costs, dict) else costs
        costs = np.asarray(costs, dtype=np.float64)

        def gains(router):
            route = router.route(X, **params)
            spent = float(np.mean(router.predict_cost(X, **params)))
            return _gains(quality, costs, route, spent)

        if X_fit is None:
            used, points = np.array([np.nan]), [gains(estimator)]
        else:
            outcomes = in_order(y_fit, names)
            outcomes = outcomes if hasattr(outcomes, "columns") else np.asarray(outcomes)
            n_all = len(outcomes)
            shares = np.unique(n_all // np.array([8, 4, 2, 1]))
            used = shares if n_rows is None else np.asarray(n_rows, dtype=np.int64)
            if not len(used) or used.min() < 1 or used.max() > n_all:
                raise ValueError(
                    f"n_rows must be numbers of rows from 1 to {n_all}, those of X_fit, got "
                    f"{n_rows!r}."
                )
            order = np.random.default_rng(random_state).permutation(n_all)
            points = []
            for n in used:
                rows = np.sort(order[:n])
                part = clone(estimator).fit(
                    _safe_indexing(X_fit, rows), _safe_indexing(outcomes, rows)
                )
                if list(part.choices_) != names:
                    raise ValueError(
                        f"A router fitted on y_fit has the choices {part.choices_!r}, estimator "
                        f"{names!r}. Give y_fit as a frame with these columns."
                    )
                points.append(gains(part))
        found, possible = np.transpose(points)
        display = cls(
            reliability=_reliability(estimator.predict_quality(X), quality, n_bins),
            names=names,
            n_rows=np.asarray(used, dtype=np.float64),
            found=found,
            possible=possible,
        )
        return display.plot(ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        route: ArrayLike,
        costs: ArrayLike,
        *,
        names: list[str] | None = None,
        n_rows: int | None = None,
        n_bins: int = 10,
        ax: Any = None,
    ) -> Self:
        """Draw the diagnostics of estimates and routes that were obtained elsewhere.

        Parameters
        ----------
        y_true : array-like of shape (n_samples, n_choices)
            What each choice was worth.

        y_pred : array-like of shape (n_samples, n_choices)
            What it was estimated to be worth.

        route : array-like of int of shape (n_samples,)
            The choice that was made for each row.

        costs : array-like of shape (n_choices,) or (n_samples, n_choices)
            Cost of each choice.

        names : list of str, default=None
            The choices. None numbers them.

        n_rows : int, default=None
            Rows that were used to fit, if known.

        n_bins : int, default=10
            Bins of the estimates, with equally many rows.

        ax : sequence of two matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        Returns
        -------
        display : :class:`RouterDiagnosticsDisplay`
            The drawn diagnostics.
        """
        quality = check_array(y_true, dtype=np.float64, input_name="y_true")
        estimate = check_array(y_pred, dtype=np.float64, input_name="y_pred")
        route, costs = np.asarray(route), np.asarray(costs, dtype=np.float64)
        check_consistent_length(quality, estimate, route)
        spent = float(np.broadcast_to(costs, quality.shape)[np.arange(len(route)), route].mean())
        found, possible = _gains(quality, costs, route, spent)
        display = cls(
            reliability=_reliability(estimate, quality, n_bins),
            names=names or [f"choice{j}" for j in range(quality.shape[1])],
            n_rows=np.array([np.nan if n_rows is None else n_rows], dtype=np.float64),
            found=np.array([found]),
            possible=np.array([possible]),
        )
        return display.plot(ax=ax)


def _reliability(estimate, quality, n_bins):
    """For each choice mean estimates, mean qualities and their standard errors, in bins."""
    found = []
    for column, outcome in zip(np.asarray(estimate).T, quality.T):
        order = np.argsort(column, kind="stable")
        bins = np.array_split(order, max(1, min(n_bins, len(order) // 2)))
        found.append(
            np.array(
                [
                    [column[rows].mean() for rows in bins],
                    [outcome[rows].mean() for rows in bins],
                    [outcome[rows].std(ddof=1) / np.sqrt(len(rows)) for rows in bins],
                ]
            )
        )
    return found


def _gains(quality, costs, route, spent):
    """Above the random mix that spends the same: of the routes, and of an oracle."""
    curves = reference_curves(quality, costs, [spent])
    realised = quality[np.arange(len(route)), route].mean()
    return float(realised - curves.random[0]), float(curves.oracle[0] - curves.random[0])
