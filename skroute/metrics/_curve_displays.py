"""Pictures of cost, quality and routes."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_consistent_length

from skroute.metrics._complementarity import complementarity_matrix
from skroute.metrics._curve import (
    accuracy_cost_curve,
    check_budgets,
    find_router,
    quality_name,
    sample_quality,
)
from skroute.utils._compat import validate_style_kwargs
from skroute.utils._optional import axes_of, import_optional


class AccuracyCostDisplay:
    """Quality over mean cost.

    It is recommended to use :meth:`from_estimator` or :meth:`from_predictions` to create
    one. Curves of baselines go on the same axes: ``ax=display.ax_``.

    Parameters
    ----------
    cost : ndarray of shape (n_points,)
        Mean cost per sample at each point.

    quality : ndarray of shape (n_points,)
        Mean quality at each point.

    name : str, default=None
        Name of the curve for the legend. None draws no legend.

    xlabel : str, default="Mean cost per sample"
        Label of the horizontal axis.

    ylabel : str, default="Mean quality"
        Label of the vertical axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the curve.

    figure_ : matplotlib Figure
        Figure that holds the axes.

    line_ : matplotlib Line2D
        The curve.

    See Also
    --------
    accuracy_cost_curve : The numbers behind the picture.
    reference_curves : Baselines to draw beside it.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from skroute.datasets import make_routing_problem
    >>> from skroute.metrics import AccuracyCostDisplay, reference_curves
    >>> problem = make_routing_problem(random_state=0)
    >>> budgets = [0.1, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> curves = reference_curves(problem.quality, problem.costs, budgets)
    >>> oracle = AccuracyCostDisplay(cost=budgets, quality=curves.oracle, name="oracle").plot()
    >>> random = AccuracyCostDisplay(cost=budgets, quality=curves.random, name="random mix")
    >>> random.plot(ax=oracle.ax_, curve_kwargs={"linestyle": "--"})
    <...AccuracyCostDisplay ...>
    >>> plt.close()
    """

    def __init__(
        self,
        *,
        cost: ArrayLike,
        quality: ArrayLike,
        name: str | None = None,
        xlabel: str = "Mean cost per sample",
        ylabel: str = "Mean quality",
    ) -> None:
        self.cost = cost
        self.quality = quality
        self.name = name
        self.xlabel = xlabel
        self.ylabel = ylabel

    def plot(
        self,
        *,
        ax: Any = None,
        name: str | None = None,
        curve_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        name : str, default=None
            Name of the curve for the legend. None takes the one given at construction.

        curve_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``plot``. ``{"drawstyle": "steps-post"}`` suits
            a curve whose points cannot be mixed.

        Returns
        -------
        display : :class:`AccuracyCostDisplay`
            The object itself, with `ax_`, `figure_` and `line_`.
        """
        ax = axes_of(self, ax)
        name = self.name if name is None else name
        default = {"marker": "o", "markersize": 4}
        if name is not None:
            default["label"] = name
        order = np.argsort(self.cost, kind="stable")
        (self.line_,) = ax.plot(
            np.asarray(self.cost)[order],
            np.asarray(self.quality)[order],
            **validate_style_kwargs(default, curve_kwargs or {}),
        )
        ax.set(xlabel=self.xlabel, ylabel=self.ylabel)
        if "label" in default or "label" in (curve_kwargs or {}):
            ax.legend(loc="best")
        self.ax_ = ax
        self.figure_ = ax.figure
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        budgets: ArrayLike,
        sample_weight: ArrayLike | None = None,
        row_quality: Any = None,
        name: str | None = None,
        ax: Any = None,
        curve_kwargs: dict[str, Any] | None = None,
        **params: Any,
    ) -> Self:
        """Evaluate a fitted estimator at several budgets and draw the curve.

        Parameters
        ----------
        estimator : estimator
            A fitted cost-aware estimator, a pipeline that ends with one, or a search over
            one of these.

        X : array-like of shape (n_samples, n_features)
            Rows that the estimator has not been fitted on.

        y : array-like of shape (n_samples,) or (n_samples, n_columns)
            The truth, see :func:`accuracy_cost_curve`.

        budgets : array-like of shape (n_budgets,)
            Mean costs per sample.

        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row.

        row_quality : callable, default=None
            Quality of each row, see :func:`accuracy_cost_curve`.

        name : str, default=None
            Name of the curve for the legend. None takes the class name of the estimator.

        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        curve_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``plot``.

        **params : keyword arguments
            Further arguments of ``predict_routed``, see :func:`accuracy_cost_curve`.

        Returns
        -------
        display : :class:`AccuracyCostDisplay`
            The drawn curve.
        """
        curve = accuracy_cost_curve(
            estimator,
            X,
            y,
            budgets,
            sample_weight=sample_weight,
            row_quality=row_quality,
            **params,
        )
        name = type(estimator).__name__ if name is None else name
        own = None if row_quality is not None else quality_name(find_router(estimator, X)[0])
        ylabel = "Mean quality" if own is None else f"Quality ({own})"
        display = cls(cost=curve.cost, quality=curve.quality, name=name, ylabel=ylabel)
        return display.plot(ax=ax, curve_kwargs=curve_kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_preds: Any,
        costs: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        ax: Any = None,
        curve_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the curve of answers that were obtained elsewhere.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,) or (n_samples, n_labels)
            True labels, or an indicator matrix of labels.

        y_preds : sequence of array-like of the shape of `y_true`
            The answers, one array per point of the curve.

        costs : array-like of shape (n_points,) or (n_points, n_samples)
            Cost of the answers: a mean per point or a number per row.

        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row.

        name : str, default=None
            Name of the curve for the legend. None draws no legend.

        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        curve_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``plot``.

        Returns
        -------
        display : :class:`AccuracyCostDisplay`
            The drawn curve.
        """
        check_consistent_length(y_preds, costs)
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        quality = [
            np.average(sample_quality(y_true, y_pred), weights=weights) for y_pred in y_preds
        ]
        cost = np.asarray(costs, dtype=np.float64)
        if cost.ndim == 2:
            cost = np.average(cost, axis=1, weights=weights)
        display = cls(cost=cost, quality=np.array(quality), name=name)
        return display.plot(ax=ax, curve_kwargs=curve_kwargs)


class RouteShareDisplay:
    """Share of the rows that each choice gets, over budgets.

    It is recommended to use :meth:`from_estimator` or :meth:`from_predictions` to create
    one.

    Parameters
    ----------
    budget : ndarray of shape (n_budgets,)
        The budgets, finite.

    route_share : ndarray of shape (n_budgets, n_choices)
        Share of the rows for which each choice was made.

    choices : sequence of str
        Names of the choices.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the areas.

    figure_ : matplotlib Figure
        Figure that holds the axes.

    areas_ : list of matplotlib PolyCollection
        One area per choice, from the bottom up.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from skroute.metrics import RouteShareDisplay
    >>> display = RouteShareDisplay.from_predictions(
    ...     [[0, 0, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]],
    ...     budgets=[1, 2, 3],
    ...     choices=["small", "large"],
    ... )
    >>> display.route_share
    array([[1. , 0. ],
           [0.5, 0.5],
           [0. , 1. ]])
    >>> plt.close()
    """

    def __init__(self, *, budget: ArrayLike, route_share: ArrayLike, choices: Any) -> None:
        self.budget = budget
        self.route_share = route_share
        self.choices = choices

    def plot(self, *, ax: Any = None, area_kwargs: dict[str, Any] | None = None) -> Self:
        """Draw the areas.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        area_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``stackplot``, for example ``colors``.

        Returns
        -------
        display : :class:`RouteShareDisplay`
            The object itself, with `ax_`, `figure_` and `areas_`.
        """
        ax = axes_of(self, ax)
        order = np.argsort(self.budget, kind="stable")
        budget, share = np.asarray(self.budget)[order], np.asarray(self.route_share)[order]
        default = {"labels": [str(choice) for choice in self.choices], "alpha": 0.85}
        if share.shape[1] > 10:
            # The default cycle has ten colours; more choices would share one.
            pyplot = import_optional("matplotlib.pyplot", f"{type(self).__name__}.plot")
            default["colors"] = pyplot.get_cmap("turbo")(np.linspace(0.05, 0.95, share.shape[1]))
        self.areas_ = ax.stackplot(budget, share.T, **{**default, **(area_kwargs or {})})
        ax.set(
            xlabel="Budget (mean cost per sample)",
            ylabel="Share of rows",
            xlim=(budget[0], budget[-1]) if budget[0] < budget[-1] else None,
            ylim=(0, 1),
        )
        handles, labels = ax.get_legend_handles_labels()
        # Outside, since the areas fill the axes; in the order of the areas.
        ax.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.01, 0.5))
        self.ax_ = ax
        self.figure_ = ax.figure
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        budgets: ArrayLike,
        ax: Any = None,
        area_kwargs: dict[str, Any] | None = None,
        **params: Any,
    ) -> Self:
        """Route rows at several budgets, without answering them, and draw the areas.

        Parameters
        ----------
        estimator : estimator
            A fitted cost-aware estimator, a pipeline that ends with one, or a search over
            one of these.

        X : array-like of shape (n_samples, n_features)
            The rows.

        budgets : array-like of shape (n_budgets,)
            Mean costs per sample, finite.

        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        area_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``stackplot``.

        **params : keyword arguments
            Further arguments of ``route``, see :func:`accuracy_cost_curve`.

        Returns
        -------
        display : :class:`RouteShareDisplay`
            The drawn areas.
        """
        limits = check_budgets(budgets)
        router, X = find_router(estimator, X)
        routes = [router.route(X, budget=limit, **params) for limit in limits]
        return cls.from_predictions(
            routes, budgets=limits, choices=router.choices_, ax=ax, area_kwargs=area_kwargs
        )

    @classmethod
    def from_predictions(
        cls,
        routes: Any,
        *,
        budgets: ArrayLike,
        choices: Any,
        ax: Any = None,
        area_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the areas of routes that were obtained elsewhere.

        Parameters
        ----------
        routes : array-like of shape (n_budgets, n_samples), dtype=int
            Index of the choice made for each row, at each budget.

        budgets : array-like of shape (n_budgets,)
            Mean costs per sample, finite.

        choices : sequence of str
            Names of the choices.

        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        area_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``stackplot``.

        Returns
        -------
        display : :class:`RouteShareDisplay`
            The drawn areas.
        """
        limits = check_budgets(budgets)
        if not np.isfinite(limits).all():
            raise ValueError(
                f"budgets must be finite to have a place on the axis, got {limits.tolist()!r}."
            )
        check_consistent_length(routes, limits)
        share = np.array(
            [np.bincount(route, minlength=len(choices)) / len(route) for route in routes]
        )
        display = cls(budget=limits, route_share=share, choices=list(choices))
        return display.plot(ax=ax, area_kwargs=area_kwargs)


class ComplementarityDisplay:
    """Where one model is right and another fails, as a matrix.

    It is recommended to use :meth:`from_estimator` or :meth:`from_predictions` to create
    one.

    Parameters
    ----------
    matrix : ndarray of shape (n_models, n_models)
        Entry ``(i, j)`` is the share of rows on which model `i` is right and `j` is wrong,
        see :func:`complementarity_matrix`.

    names : sequence of str
        Names of the models.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the matrix.

    figure_ : matplotlib Figure
        Figure that holds the axes.

    image_ : matplotlib AxesImage
        The coloured matrix.

    text_ : ndarray of shape (n_models, n_models), dtype=matplotlib Text
        The entries in per cent, None on the diagonal.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from skroute.metrics import ComplementarityDisplay
    >>> display = ComplementarityDisplay.from_predictions(
    ...     [0, 1, 1, 0], [[0, 0], [0, 1], [0, 1], [0, 1]], names=["small", "large"]
    ... )
    >>> display.matrix
    array([[0.  , 0.25],
           [0.5 , 0.  ]])
    >>> plt.close()
    """

    def __init__(self, *, matrix: ArrayLike, names: Any) -> None:
        self.matrix = matrix
        self.names = names

    def plot(self, *, ax: Any = None, im_kwargs: dict[str, Any] | None = None) -> Self:
        """Draw the matrix.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        im_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``imshow``, for example ``cmap``.

        Returns
        -------
        display : :class:`ComplementarityDisplay`
            The object itself, with `ax_`, `figure_`, `image_` and `text_`.
        """
        ax = axes_of(self, ax)
        percent = 100 * np.asarray(self.matrix, dtype=np.float64)
        m = len(percent)
        # The diagonal is 0 by definition: leave it blank.
        shown = np.ma.masked_array(percent, mask=np.eye(m, dtype=bool))
        kwargs = {"cmap": "viridis", "vmin": 0, **(im_kwargs or {})}
        self.image_ = ax.imshow(shown, **kwargs)
        self.text_ = np.full((m, m), None, dtype=object)
        for i in range(m):
            for j in range(m):
                if i != j:
                    red, green, blue, _ = self.image_.cmap(self.image_.norm(percent[i, j]))
                    # Relative luminance (ITU-R BT.709): black on light, white on dark.
                    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.5
                    self.text_[i, j] = ax.text(
                        j,
                        i,
                        f"{percent[i, j]:.1f}",
                        ha="center",
                        va="center",
                        color="black" if light else "white",
                    )
        bar = ax.figure.colorbar(self.image_, ax=ax)
        bar.set_label("% of rows")
        ticks = {"ticks": range(m), "labels": [str(name) for name in self.names]}
        ax.set_xticks(**ticks, rotation=45, ha="right", rotation_mode="anchor")
        ax.set_yticks(**ticks)
        ax.set(xlabel="Model that is wrong", ylabel="Model that is right")
        self.ax_ = ax
        self.figure_ = ax.figure
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        ax: Any = None,
        im_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Ask every member of a fitted router about every row and draw the matrix.

        Parameters
        ----------
        estimator : estimator
            A fitted router with ``named_estimators_``, a pipeline that ends with one, or a
            search over one of these. Every member is called on all rows.

        X : array-like of shape (n_samples, n_features)
            Rows that the members have not been fitted on.

        y : array-like of shape (n_samples,)
            True labels.

        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        im_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``imshow``.

        Returns
        -------
        display : :class:`ComplementarityDisplay`
            The drawn matrix.
        """
        router, X = find_router(estimator, X)
        members = router.named_estimators_
        y_preds = np.column_stack([member.predict(X) for member in members.values()])
        return cls.from_predictions(y, y_preds, names=list(members), ax=ax, im_kwargs=im_kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_preds: ArrayLike,
        *,
        names: Any,
        ax: Any = None,
        im_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the matrix of answers that were obtained elsewhere.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True labels.

        y_preds : array-like of shape (n_samples, n_models)
            What each model answers.

        names : sequence of str
            Names of the models.

        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        im_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``imshow``.

        Returns
        -------
        display : :class:`ComplementarityDisplay`
            The drawn matrix.
        """
        check_consistent_length(y_true, y_preds)
        right = np.asarray(y_preds) == np.asarray(y_true)[:, np.newaxis]
        display = cls(matrix=complementarity_matrix(right), names=list(names))
        return display.plot(ax=ax, im_kwargs=im_kwargs)
