"""Displays of cost, quality and routes."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.stats import sem
from sklearn.base import is_classifier, is_regressor
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from skroute.base import check_rows
from skroute.base._inspection import models_of
from skroute.metrics._curve import (
    BudgetSweep,
    check_budgets,
    checked_targets,
    find_router,
    name_of_cost,
)
from skroute.metrics._objectives import qualities_of, sample_quality
from skroute.metrics._off_policy import OffPolicyCurve, off_policy_curve
from skroute.metrics._tradeoff import (
    check_all_known,
    costs_by_name,
    random_mix,
    reference_curves,
)
from skroute.utils._cache import with_cache
from skroute.utils._compat import (
    HasMethods,
    Integral,
    Interval,
    validate_params,
    validate_style_kwargs,
)
from skroute.utils._named import check_rows_match
from skroute.utils._optional import axes_of, check_style
from skroute.utils._plotting import (
    LATER_COLOURS,
    REFERENCE_COLOUR,
    colours_of,
    cost_label,
    finish_axes,
    foreground_colour,
    list_width,
    set_title,
    takes_half,
)
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import check_row_weights

# If a matrix has more models than this, its numbers have a small font and no decimals.
_MANY_MODELS = 6
# A choice whose share of the rows is at most this at all budgets is not in the legend.
# Its area is as thin as a line.
_LEAST_SHARE = 0.005
# Height in inches of a cell of a matrix. A number in it can be read.
_CELL_HEIGHT = 0.25
# Height in inches of the axis labels and of the title of a matrix.
_LABELS_HEIGHT = 1.0
# Constraint of the axes to draw on.
_AXES = [HasMethods(["plot", "get_figure"]), None]
# Standard errors on each side of an interval of 95 %, by the normal distribution.
_NORMAL_QUANTILE = 1.96


class Display:
    """Base class of displays, which keep the axes that they draw on."""

    def _on(self, ax):
        """Store the axes to draw on, and their figure, in the display. Return the axes.

        Parameters
        ----------
        ax : matplotlib Axes or None
            None makes a new figure.
        """
        self.ax_ = axes_of(self, ax)
        self.figure_ = self.ax_.figure
        return self.ax_


@dataclass(kw_only=True, eq=False, repr=False)
class AccuracyCostDisplay(Display):
    """Plot of quality against mean cost.

    Use :meth:`from_estimator` or :meth:`from_predictions` to make it. To draw curves of
    other estimators on the same axes, give ``ax=display.ax_``.

    Parameters
    ----------
    cost : ndarray of shape (n_points,)
        Mean cost per sample at each point.

    quality : ndarray of shape (n_points,)
        Mean quality at each point.

    name : str, default=None
        Name of the curve for the legend. None draws no legend.

    xlabel : str, default="Mean cost per row"
        Label of the horizontal axis.

    ylabel : str, default="Mean quality"
        Label of the vertical axis.

    singles : dict from str to (float, float), default=None
        Mean cost and mean quality of choices that may answer every row. They are
        points in the colours that all displays give to these choices. Their best
        :term:`random mix` is a line.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        The axes with the curve, and their figure.

    line_ : matplotlib Line2D
        The curve.

    mix_ : matplotlib Line2D or None
        The random mix.

    See Also
    --------
    accuracy_cost_curve : The numbers behind the picture.
    reference_curves : The oracle, to draw on the same axes.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.datasets import make_routing_problem
    >>> from skroute.metrics import AccuracyCostDisplay
    >>> from skroute.routing import BudgetRouter
    >>> problem = make_routing_problem(600, n_models=3, random_state=0)
    >>> X, Q = problem.data, problem.quality
    >>> router = BudgetRouter(Ridge(), costs=problem.costs).fit(X[:300], Q[:300])
    >>> display = AccuracyCostDisplay.from_estimator(
    ...     router, X[300:], Q[300:], budgets=[0.2, 0.4, 0.6, 0.8, 1.0]
    ... )
    >>> list(display.singles)
    ['choice0', 'choice1', 'choice2']
    >>> plt.close()
    """

    cost: ArrayLike
    quality: ArrayLike
    name: str | None = None
    xlabel: str = "Mean cost per row"
    ylabel: str = "Mean quality"
    singles: dict[str, tuple[float, float]] | None = None

    def plot(
        self,
        *,
        ax: Any = None,
        name: str | None = None,
        curve_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the curve, and the single choices with their random mix if any.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        name : str, default=None
            Name of the curve for the legend. None takes the one given at construction.

        curve_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``plot``. ``{"drawstyle": "steps-post"}``
            suits a curve whose points cannot be mixed.

        Returns
        -------
        :class:`AccuracyCostDisplay`
            The display, with its axes.
        """
        ax = self._on(ax)
        default_style = {
            "marker": "o",
            "markersize": 4,
            "label": self.name if name is None else name,
        }
        if not ax.has_data():
            # The first curve has the colour of text. Other colours are for the choices.
            default_style["color"] = foreground_colour()
            ax.set_prop_cycle(color=LATER_COLOURS)
        style = validate_style_kwargs(default_style, curve_kwargs or {})
        order = np.argsort(self.cost, kind="stable")
        (self.line_,) = ax.plot(
            np.asarray(self.cost)[order], np.asarray(self.quality)[order], **style
        )
        self.mix_ = self._draw_singles(ax) if self.singles else None
        finish_axes(
            ax, xlabel=self.xlabel, ylabel=self.ylabel, title="Quality against cost"
        )
        return self

    def _draw_singles(self, ax):
        """Draw the single choices, and return the line of their random mix."""
        # (n_singles, 2): mean cost and mean quality
        points = np.array(list(self.singles.values()), dtype=np.float64)
        cost, quality = points.T
        mix = random_mix(cost, quality)
        (mix_line,) = ax.plot(
            mix.cost, mix.quality, "--", color=REFERENCE_COLOUR, label="random mix"
        )
        names = list(self.singles)
        for name, point, colour in zip(names, points, colours_of(names)):
            # The points of curves are circles. So those of choices are diamonds.
            ax.plot(*point, "D", color=colour, markersize=6, label=f"{name} alone")
        return mix_line

    @classmethod
    @validate_params(
        {
            "references": ["boolean", None],
            "cost_unit": [str],
            "name": [str, None],
            "ax": _AXES,
            "curve_kwargs": [dict, None],
        },
        prefer_skip_nested_validation=False,
    )
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        budgets: ArrayLike,
        sample_weight: ArrayLike | None = None,
        row_quality: Any = None,
        costs: Any = None,
        references: bool | None = None,
        cost_unit: str = "",
        name: str | None = None,
        ax: Any = None,
        curve_kwargs: dict[str, Any] | None = None,
        **params: Any,
    ) -> Self:
        """Evaluate a fitted estimator at several budgets and draw the curve.

        Parameters
        ----------
        estimator, X, y, budgets, sample_weight, row_quality, costs
            As in :func:`accuracy_cost_curve`.

        references : bool, default=None
            If True, draw the single choices, if there are any, and their best random
            mix. Every member is then called about every row. None draws them in a new
            figure only.

        cost_unit : str, default=""
            Unit of the costs for the axis, for example ``"dollars"``.

        name : str, default=None
            Name of the curve for the legend. None takes the class name of the
            estimator.

        ax, curve_kwargs
            As in :meth:`plot`.

        **params : keyword arguments
            Further arguments of ``predict_routed``.

        Returns
        -------
        :class:`AccuracyCostDisplay`
        """
        check_style("AccuracyCostDisplay", "plot", ([], []), curve_kwargs)
        checked_budgets = check_budgets(budgets)
        sweep = BudgetSweep(
            estimator,
            X,
            y,
            row_quality=row_quality,
            sample_weight=sample_weight,
            costs=costs,
            **params,
        )
        curve = sweep.curve(checked_budgets)
        if references is None:
            references = ax is None
        # None draws no single choices and no random mix.
        singles = _mean_singles(sweep) if references else None
        display = cls(
            cost=curve.cost,
            quality=curve.quality,
            name=type(estimator).__name__ if name is None else name,
            xlabel=cost_label(name_of_cost(curve).capitalize(), cost_unit),
            ylabel=sweep.quality_label or "Mean quality",
            singles=singles,
        )
        return display.plot(ax=ax, curve_kwargs=curve_kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_preds: Any,
        costs: ArrayLike,
        *,
        sample_weight: Any = None,
        name: str | None = None,
        ax: Any = None,
        curve_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the curve of answers that were obtained elsewhere.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,) or (n_samples, n_labels)
            As in :func:`sample_quality`.

        y_preds : sequence of array-like of the shape of `y_true`
            The answers, one array per point of the curve.

        costs : array-like of shape (n_points,) or (n_points, n_samples)
            Cost of the answers: a mean per point or a number per row.

        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row.

        name : str, default=None
            As in :meth:`plot`.

        ax : matplotlib Axes, default=None
            As in :meth:`plot`.

        curve_kwargs : dict, default=None
            As in :meth:`plot`.

        Returns
        -------
        :class:`AccuracyCostDisplay`
        """
        check_consistent_length(y_preds, costs)
        # The row labels (index) of frames are compared for each point of the curve.
        check_rows_match(
            y_true=y_true,
            y_preds=_by_position(y_preds),
            sample_weight=sample_weight,
            costs=_by_position(costs),
        )
        # Quality of each row, (n_points, n_samples).
        row_quality = [sample_quality(y_true, y_pred) for y_pred in y_preds]
        n_rows = np.shape(row_quality)[1]
        weight = check_row_weights(sample_weight, n_rows)
        cost = np.asarray(costs, dtype=np.float64)
        if cost.ndim == 2:
            # Costs of rows become a mean for each point.
            cost = np.average(cost, axis=1, weights=weight)
        display = cls(
            cost=cost,
            quality=np.average(row_quality, axis=1, weights=weight),
            name=name,
        )
        return display.plot(ax=ax, curve_kwargs=curve_kwargs)


def _by_position(values):
    """Return a dict from the position of each item of a list or tuple to the item.

    Other types, such as an array, have no items with labels of rows. For them the dict
    is empty.
    """
    if isinstance(values, (list, tuple)):
        return dict(enumerate(values))
    return {}


def _mean_singles(sweep):
    """Return mean cost and mean quality of each single choice, by its name."""
    singles = sweep.single_choices()
    mean_costs = sweep.means(singles.cost)
    mean_qualities = sweep.means(singles.quality)
    points = {}
    for name, cost, quality in zip(singles.names, mean_costs, mean_qualities):
        points[name] = (cost, quality)
    return points


@dataclass(kw_only=True, eq=False, repr=False)
class RouteShareDisplay(Display):
    """Plot of the share of rows that each choice gets, at each budget.

    Use :meth:`from_estimator` to make it.

    Parameters
    ----------
    budget : ndarray of shape (n_budgets,)
        The budgets, finite.

    route_share : ndarray of shape (n_budgets, n_choices)
        Share of the rows for which each choice was made.

    choices : sequence of str
        Names of the choices.

    cost_unit : str, default=""
        Unit of the budgets for the axis, for example ``"dollars"``.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        The axes with the areas, and their figure.

    areas_ : list of matplotlib PolyCollection
        One area per choice, from the bottom up.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from skroute.metrics import RouteShareDisplay
    >>> share = [[1, 0], [0.5, 0.5], [0, 1]]
    >>> display = RouteShareDisplay(
    ...     budget=[1, 2, 3], route_share=share, choices=["small", "large"]
    ... ).plot()
    >>> len(display.areas_)
    2
    >>> plt.close()
    """

    budget: ArrayLike
    route_share: ArrayLike
    choices: Any
    cost_unit: str = ""

    def plot(
        self, *, ax: Any = None, area_kwargs: dict[str, Any] | None = None
    ) -> Self:
        """Draw an area for each choice: the share of the rows that it gets.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        area_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``stackplot``, for example ``colors``.

        Returns
        -------
        :class:`RouteShareDisplay`
            The display, with its axes.
        """
        ax = self._on(ax)
        order = np.argsort(self.budget, kind="stable")
        budgets = np.asarray(self.budget)[order]
        shares = np.asarray(self.route_share)[order]  # (n_budgets, n_choices)
        style = {
            "labels": [str(choice) for choice in self.choices],
            "colors": colours_of(self.choices),
            # Areas are separated by thin lines in the colour of the background.
            "edgecolor": ax.get_facecolor(),
            "linewidth": 0.5,
        }
        style.update(area_kwargs or {})
        self.areas_ = ax.stackplot(budgets, shares.T, **style)
        ax.set(xmargin=0, ylim=(0, 1))
        used_areas = []  # The areas that the legend has.
        for area, shares_of_choice in zip(self.areas_, shares.T):
            if np.any(shares_of_choice > _LEAST_SHARE):
                used_areas.append(area)
        finish_axes(
            ax,
            xlabel=cost_label("Budget, mean cost per row", self.cost_unit),
            ylabel="Share of rows",
            title="Which choice answers",
            # The upper area is the first in the legend.
            handles=used_areas[::-1],
            fills_axes=True,
        )
        return self

    @classmethod
    @validate_params(
        {
            "cost_unit": [str],
            "ax": _AXES,
            "area_kwargs": [dict, None],
        },
        prefer_skip_nested_validation=False,
    )
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        budgets: ArrayLike,
        cost_unit: str = "",
        ax: Any = None,
        area_kwargs: dict[str, Any] | None = None,
        **params: Any,
    ) -> Self:
        """Route rows at several budgets, without answering them, and draw the areas.

        Parameters
        ----------
        estimator : estimator
            As in :func:`accuracy_cost_curve`.

        X : array-like of shape (n_samples, n_features)
            As in :func:`accuracy_cost_curve`.

        y : None
            Ignored: choices need no labels. It is here because other displays take it.

        budgets : array-like of shape (n_budgets,)
            Mean costs per sample, finite.

        cost_unit : str, default=""
            Unit of the budgets for the axis, for example ``"dollars"``.

        ax : matplotlib Axes, default=None
            As in :meth:`plot`.

        area_kwargs : dict, default=None
            As in :meth:`plot`.

        **params : keyword arguments
            Further arguments of ``route``.

        Returns
        -------
        :class:`RouteShareDisplay`
        """
        checked_budgets = check_budgets(budgets)
        if not np.isfinite(checked_budgets).all():
            raise ValueError(
                "budgets must be finite to have a place on the axis, got "
                f"{checked_budgets.tolist()!r}."
            )
        check_rows_match(X=X, **params)
        router, X = find_router(estimator, X)
        choices = list(router.choices_)
        no_areas = (checked_budgets, np.zeros((len(choices), len(checked_budgets))))
        check_style("RouteShareDisplay", "stackplot", no_areas, area_kwargs)
        cached_router = with_cache(router)
        shares = []  # (n_choices,) for each budget
        for budget in checked_budgets:
            route = cached_router.route(X, budget=budget, **params)
            n_rows_of_choice = np.bincount(route, minlength=len(choices))
            shares.append(n_rows_of_choice / len(route))
        display = cls(
            budget=checked_budgets,
            route_share=np.array(shares),
            choices=choices,
            cost_unit=cost_unit,
        )
        return display.plot(ax=ax, area_kwargs=area_kwargs)


def complementarity_matrix(Q: ArrayLike) -> NDArray[np.float64]:
    """Compute the share of the rows on which one model is right and another is wrong.

    Entry ``(i, j)`` is the mean over the rows of ``max(Q[:, i] - Q[:, j], 0)``. For
    right and wrong answers, it is the share of rows on which model `i` (the row) is
    right and model `j` (the column) is wrong, as in figure 15 of OCCAM [1]_. For other
    qualities, it is the mean quality that `i` gains on the rows where it is better. If
    the entries on both sides of the diagonal are large, routing between the two models
    gains quality.

    Parameters
    ----------
    Q : array-like of shape (n_samples, n_models)
        Quality of each model on each row: 1 or 0, or a number, higher is better. An
        unknown quality is NaN.

    Returns
    -------
    ndarray of shape (n_models, n_models), dtype=float64
        The diagonal is 0. For the matrix `M`, ``M[i, j] - M[j, i]`` is the difference
        of the mean qualities. Each pair is compared on the rows on which both
        qualities are known. Both entries of a pair without such rows are NaN.

    Raises
    ------
    ValueError
        If `Q` does not have two axes or a value is infinite.

    References
    ----------
    .. [1] D. Ding et al. (2024). OCCAM: Towards cost-efficient and accuracy-aware
       classification inference. Appendix A.10. arXiv:2406.04508

    Examples
    --------
    >>> from skroute.metrics import complementarity_matrix
    >>> complementarity_matrix([[1, 1], [0, 1], [0, 1], [1, 0]])
    array([[0.  , 0.25],
           [0.5 , 0.  ]])
    """
    quality = check_array(
        Q, dtype=np.float64, input_name="Q", ensure_all_finite="allow-nan"
    )
    n_models = quality.shape[1]
    matrix = np.empty((n_models, n_models))
    # One model is compared at a time, so that no array is larger than Q.
    for model in range(n_models):
        gain = np.maximum(quality[:, [model]] - quality, 0)  # (n_rows, n_models)
        # A mean leaves out the rows where one of both qualities is NaN.
        known_gain = np.ma.masked_invalid(gain)
        matrix[model] = known_gain.mean(axis=0).filled(np.nan)
    return matrix


@dataclass(kw_only=True, eq=False, repr=False)
class ComplementarityDisplay(Display):
    """Matrix plot of the rows on which one model is right and another is wrong.

    Use :meth:`from_estimator` to make it.

    Parameters
    ----------
    matrix : ndarray of shape (n_models, n_models)
        Entry ``(i, j)`` is the share of rows on which model `i` is right and `j` is
        wrong, see :func:`complementarity_matrix`.

    names : sequence of str
        Names of the models.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        The axes with the matrix, and their figure.

    image_ : matplotlib AxesImage
        The coloured matrix.

    text_ : ndarray of shape (n_models, n_models), dtype=matplotlib Text
        The entries in per cent, empty on the diagonal.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from skroute.metrics import ComplementarityDisplay, complementarity_matrix
    >>> matrix = complementarity_matrix([[1, 0], [1, 1], [0, 1], [0, 1]])
    >>> display = ComplementarityDisplay(matrix=matrix, names=["small", "large"]).plot()
    >>> display.text_[1, 0].get_text()
    '50.0'
    >>> plt.close()
    """

    matrix: ArrayLike
    names: Any

    def plot(self, *, ax: Any = None, im_kwargs: dict[str, Any] | None = None) -> Self:
        """Draw the matrix, with its entries in per cent.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        im_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``imshow``, for example ``cmap``.

        Returns
        -------
        :class:`ComplementarityDisplay`
            The display, with its axes.
        """
        is_new_figure = ax is None
        ax = self._on(ax)
        percent = 100 * np.asarray(self.matrix, dtype=np.float64)
        n_models = len(percent)
        has_many = n_models > _MANY_MODELS
        # Long names in a narrow figure would leave no room for the matrix. Then the
        # labels are numbers from 1, and the legend has the name of each number.
        is_numbered = takes_half(ax.figure, self.names)
        labels = range(1, n_models + 1) if is_numbered else self.names
        matrix_display = ConfusionMatrixDisplay(percent, display_labels=labels).plot(
            ax=ax,
            values_format=".0f" if has_many else ".1f",
            im_kw={"vmin": 0, **(im_kwargs or {})},
            text_kw={"fontsize": "x-small" if has_many else "medium"},
        )
        # Each name is turned, and its end is at its tick. So long names do not overlap.
        if not is_numbered:
            for label in ax.get_xticklabels():
                label.set(
                    rotation=90 if has_many else 45,
                    ha="right",
                    va="center" if has_many else "top",
                    rotation_mode="anchor",
                )
        self.image_ = matrix_display.im_
        self.text_ = matrix_display.text_
        for text in np.diag(self.text_):
            # The diagonal is 0 by definition.
            text.set_text("")
        self.image_.colorbar.set_label("% of rows")
        if has_many:
            ax.tick_params(labelsize="small")
        if is_new_figure:
            # The matrix is square. This layout leaves no empty space next to it.
            self.figure_.set_layout_engine("compressed")
        height = _LABELS_HEIGHT + _CELL_HEIGHT * n_models
        if is_numbered:
            legend_entries = _number_handles(ax, self.names)
        else:
            # There is no legend. The turned names below the matrix add to the height.
            legend_entries = []
            height += list_width(self.names)
        finish_axes(
            ax,
            xlabel="Model that is wrong",
            ylabel="Model that is right",
            title="Who is right where\nanother is wrong",
            handles=legend_entries,
            fills_axes=True,
            height=height,
        )
        return self

    @classmethod
    @validate_params(
        {
            "ax": _AXES,
            "im_kwargs": [dict, None],
        },
        prefer_skip_nested_validation=False,
    )
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        ax: Any = None,
        im_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Compare all members, or all choices, and draw the matrix.

        Parameters
        ----------
        estimator : estimator
            A fitted router, a pipeline that ends with one, or a search over one of
            these. If it has members, ``named_estimators_``, each of them is called
            about every row.

        X : array-like of shape (n_samples, n_features)
            Rows that the estimator has not been fitted on.

        y : array-like of shape (n_samples,) or (n_samples, n_columns)
            True labels for a router with members. For a router that only routes, such
            as :class:`~skroute.routing.BudgetRouter`, the quality of each choice on
            each row, NaN if it is unknown; a frame's columns are read by name.

        ax : matplotlib Axes, default=None
            As in :meth:`plot`.

        im_kwargs : dict, default=None
            As in :meth:`plot`.

        Returns
        -------
        :class:`ComplementarityDisplay`
        """
        check_rows_match(X=X, y=y)
        router, X = find_router(estimator, X)
        while hasattr(getattr(router, "estimator_", None), "predict_routed"):
            # A certified router has the choices of the router inside.
            router = router.estimator_
        n_models = len(models_of(router))
        no_image = (np.zeros((n_models, n_models)),)
        check_style("ComplementarityDisplay", "imshow", no_image, im_kwargs)
        if is_classifier(router) or is_regressor(router):
            names, quality = _quality_of_members(router, X, y)
        else:
            names, quality = _quality_of_choices(router, X, y)
        display = cls(matrix=complementarity_matrix(quality), names=names)
        return display.plot(ax=ax, im_kwargs=im_kwargs)


def _number_handles(ax, names):
    """Return entries of a legend that give the name of each number, from 1.

    They are lines without points, which are added to the axes.
    """
    handles = []
    for number, name in enumerate(names, start=1):
        handles += ax.plot([], [], linestyle="", label=f"{number}: {name}")
    return handles


def _quality_of_members(router, X, y):
    """Return the names of a router's members, and the quality of their answers.

    Parameters
    ----------
    router : fitted router
    X : array-like of shape (n_rows, n_features)
    y : array-like of shape (n_rows,) or (n_rows, n_labels)
        True labels.

    Returns
    -------
    names : list of str
    quality : ndarray of shape (n_rows, n_members)
    """
    if not hasattr(router, "named_estimators_"):
        raise TypeError(
            f"estimator must have several models that may answer a row, which "
            f"{type(router).__name__} does not have. Give a router, or use "
            "complementarity_matrix with a table of qualities."
        )
    # Wrong rows and labels are refused before a member is called.
    check_consistent_length(X, checked_targets(y, router))
    X = check_rows(router, X, reset=False)
    members = router.named_estimators_
    # All members answer first. Then the answers are compared.
    answers = [member.predict(X) for member in members.values()]
    qualities = [sample_quality(y, answer) for answer in answers]
    return list(members), np.column_stack(qualities)


def _quality_of_choices(router, X, y):
    """Return names and qualities of the choices of a router that only routes.

    Parameters
    ----------
    router : fitted router
    X : array-like of shape (n_rows, n_features) or None
    y : array-like of shape (n_rows, n_choices)
        Quality of each choice on each row.

    Returns
    -------
    names : list of str
    quality : ndarray of shape (n_rows, n_choices)
        NaN if it is unknown.
    """
    names = models_of(router)
    quality = qualities_of(y, router)
    check_consistent_length(quality if X is None else X, quality)
    return names, quality


@dataclass(kw_only=True, eq=False, repr=False)
class RouterDiagnosticsDisplay(Display):
    """Plot of the observed quality against the quality that a router estimates.

    The title has two gains in quality above the best :term:`random mix` of the same
    cost: the gain of the router's decisions, and the gain of an oracle.

    Use :meth:`from_estimator` to make it.

    Parameters
    ----------
    reliability : list of ndarray of shape (3, n_bins)
        For each choice the mean estimate in each bin, the mean observed quality, and
        its standard error.

    names : list of str
        Names of the choices.

    found : float
        Mean quality of the decisions minus the mean quality of the best random mix of
        the same cost.

    possible : float
        Mean quality of an oracle of the same cost minus the mean quality of the same
        random mix.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        The axes with the reliability, and their figure.

    See Also
    --------
    skroute.quality.QualityRegressor : The estimator that routers take by default.
    reference_curves : The random mix and the oracle.
    sklearn.model_selection.LearningCurveDisplay : The gain of more rows.

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
    ...     router, X[300:], Q[300:], budget=0.5
    ... )
    >>> bool(0 < display.found < display.possible)
    True
    >>> plt.close()
    """

    reliability: list
    names: list[str]
    found: float
    possible: float

    def plot(self, *, ax: Any = None) -> Self:
        """Draw observed quality against estimated quality, a line for each choice.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        Returns
        -------
        :class:`RouterDiagnosticsDisplay`
            The display, with its axes.
        """
        ax = self._on(ax)
        colours = colours_of(self.names)
        # The last name may be abstaining, which has no estimates: `zip` leaves it out.
        for name, colour, bins in zip(self.names, colours, self.reliability):
            estimate, quality, error = bins  # (n_bins,) each
            ax.errorbar(
                estimate,
                quality,
                yerr=_NORMAL_QUANTILE * error,
                color=colour,
                marker="o",
                markersize=3,
                elinewidth=0.8,
                label=name,
            )
        estimates = np.concatenate([estimate for estimate, _, _ in self.reliability])
        # On this line the observed quality equals the estimate.
        ends = [estimates.min(), estimates.max()]
        ax.plot(
            ends,
            ends,
            linestyle=":",
            color=foreground_colour(),
            label="estimate is right",
        )
        finish_axes(
            ax,
            xlabel="Quality estimated by the router",
            ylabel="Observed quality (95 % interval)",
            title="Quality above a random mix of equal cost:\n"
            f"{self.found:+.3g} (an oracle: {self.possible:+.3g})",
        )
        return self

    @classmethod
    @validate_params(
        {
            "n_bins": [Interval(Integral, 1, None, closed="left")],
            "ax": _AXES,
        },
        prefer_skip_nested_validation=False,
    )
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        costs: ArrayLike | None = None,
        n_bins: int = 10,
        ax: Any = None,
        **params: Any,
    ) -> Self:
        """Evaluate a fitted router on rows that it was not fitted on, and draw.

        Parameters
        ----------
        estimator : estimator
            A fitted router with ``predict_quality``, such as
            :class:`~skroute.routing.BudgetRouter`.

        X : array-like of shape (n_samples, n_features)
            As in :func:`accuracy_cost_curve`.

        y : array-like of shape (n_samples,) or (n_samples, n_columns)
            As in :func:`accuracy_cost_curve`, without missing values.

        costs : array-like of shape (n_choices,) or (n_samples, n_choices), default=None
            Cost of each choice. None takes the router's ``costs_``.

        n_bins : int, default=10
            Bins of the estimates, with equally many rows.

        ax : matplotlib Axes, default=None
            As in :meth:`plot`.

        **params : keyword arguments
            Further arguments of ``route`` and ``predict_cost``, such as ``budget``.

        Returns
        -------
        :class:`RouterDiagnosticsDisplay`
        """
        check_rows_match(X=X, y=y, costs=costs, **params)
        if not hasattr(estimator, "predict_quality"):
            raise TypeError(
                "estimator must be a fitted router with predict_quality, such as "
                f"BudgetRouter, got {type(estimator).__name__}."
            )
        check_is_fitted(estimator)
        names = list(estimator.choices_)
        if costs is None:
            costs = estimator.costs_
        costs = costs_by_name(costs, names)
        quality = check_all_known(qualities_of(y, estimator), "y")
        check_consistent_length(X, quality)
        # Wrong costs are an error before a model is called.
        reference_curves(quality, costs, [np.inf])
        route = estimator.route(X, **params)
        estimates = estimator.predict_quality(X)
        mean_cost = estimator.predict_cost(X, **params).mean()
        # The references have one budget: the mean cost of the router.
        references = reference_curves(quality, costs, [mean_cost])
        mean_quality = quality[np.arange(len(route)), route].mean()
        reliability = []  # for each choice but abstaining, which has no estimates
        for choice_estimates, choice_quality in zip(estimates.T, quality.T):
            reliability.append(_reliability(choice_estimates, choice_quality, n_bins))
        display = cls(
            reliability=reliability,
            names=names,
            found=float(mean_quality - references.random[0]),
            possible=float(references.oracle[0] - references.random[0]),
        )
        return display.plot(ax=ax)


def _reliability(estimates, quality, n_bins):
    """Return means of estimates and of quality in bins of equally many rows.

    Parameters
    ----------
    estimates, quality : ndarray of shape (n_rows,)
        Values of one choice.
    n_bins : int
        There are fewer bins if a bin would have fewer than two rows.

    Returns
    -------
    ndarray of shape (3, n_bins)
        Mean estimate, mean quality, and standard error of the mean quality.
    """
    order = np.argsort(estimates, kind="stable")
    n_bins = max(1, min(n_bins, len(order) // 2))
    rows_of_bins = np.array_split(order, n_bins)
    mean_estimates = [estimates[rows].mean() for rows in rows_of_bins]
    mean_qualities = [quality[rows].mean() for rows in rows_of_bins]
    errors = [sem(quality[rows]) for rows in rows_of_bins]
    return np.array([mean_estimates, mean_qualities, errors])


# Names of the estimators of `off_policy_curve` in a legend.
_LEGEND_NAMES = {
    "direct": "direct method",
    "snips": "SNIPS",
    "doubly_robust": "doubly robust",
}


@dataclass(kw_only=True, eq=False, repr=False)
class OffPolicyDisplay(Display):
    """Plot of quality against mean cost, estimated from a log.

    The log has one answer per request.

    Use :meth:`from_estimator` to make it.

    Parameters
    ----------
    curve : OffPolicyCurve
        From :func:`off_policy_curve`.

    cost_unit : str, default=""
        Unit of the costs for the axis, for example ``"dollars"``.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        The axes with the curve, and their figure.

    lines_ : list of matplotlib Line2D
        One for each estimator drawn.

    band_ : matplotlib PolyCollection or None
        The interval of the doubly robust estimate. None if the estimate is not drawn.

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
    >>> OffPolicyDisplay.from_estimator(
    ...     router, X[500:], q, choice=choice, budgets=[0.3, 0.6]
    ... )
    <...OffPolicyDisplay ...>
    >>> plt.close()
    """

    curve: OffPolicyCurve
    cost_unit: str = ""

    def plot(
        self,
        *,
        ax: Any = None,
        estimators: tuple[str, ...] = ("doubly_robust", "snips", "direct"),
        curve_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw a curve of quality over cost for each of `estimators`.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        estimators : tuple of str, default=("doubly_robust", "snips", "direct")
            The estimates to draw. The doubly robust one has its interval.

        curve_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``plot`` for the lines.

        Returns
        -------
        :class:`OffPolicyDisplay`
            The display, with its axes.
        """
        unknown = [name for name in estimators if name not in _LEGEND_NAMES]
        if unknown:
            raise ValueError(
                f"estimators must be some of {list(_LEGEND_NAMES)!r}, got "
                f"{unknown[0]!r} among them."
            )
        ax = self._on(ax)
        xlabel = cost_label("Mean cost per row, estimated", self.cost_unit)
        ylabel = "Mean quality, estimated"
        title = "Quality against cost, estimated from a log"
        # This title is set first: `plot` of a curve sets its own only if there is none.
        set_title(ax, title)
        self.lines_ = []
        self.band_ = None
        for name in estimators:
            quality = getattr(self.curve.quality, name)
            cost = getattr(self.curve.cost, name)
            # The doubly robust estimate has a solid line with points, and an interval.
            is_main = name == "doubly_robust"
            default_style = {} if is_main else {"linestyle": "--", "marker": ""}
            style = validate_style_kwargs(default_style, curve_kwargs or {})
            curve = AccuracyCostDisplay(
                cost=cost.estimate,
                quality=quality.estimate,
                name=_LEGEND_NAMES[name],
                xlabel=xlabel,
                ylabel=ylabel,
            )
            line = curve.plot(ax=ax, curve_kwargs=style).line_
            self.lines_.append(line)
            if is_main:
                order = np.argsort(cost.estimate, kind="stable")
                self.band_ = ax.fill_between(
                    cost.estimate[order],
                    quality.low[order],
                    quality.high[order],
                    alpha=0.2,
                    color=line.get_color(),
                    label="interval of doubly robust",
                )
        # The legend that `plot` of a curve has drawn may lack the interval. This call
        # draws the legend again, with the interval.
        finish_axes(ax, xlabel=xlabel, ylabel=ylabel, title=title)
        return self

    @classmethod
    @validate_params(
        {
            "cost_unit": [str],
            "ax": _AXES,
            "curve_kwargs": [dict, None],
        },
        prefer_skip_nested_validation=False,
    )
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        q: ArrayLike,
        *,
        cost_unit: str = "",
        ax: Any = None,
        curve_kwargs: dict[str, Any] | None = None,
        **params: Any,
    ) -> Self:
        """Estimate the curve of a fitted router from a log, and draw it.

        Parameters
        ----------
        estimator : estimator
            As in :func:`off_policy_curve`.

        X : array-like of shape (n_samples, n_features)
            As in :func:`off_policy_curve`.

        q : array-like of shape (n_samples,)
            As in :func:`off_policy_curve`.

        cost_unit : str, default=""
            Unit of the costs for the axis, for example ``"dollars"``.

        ax : matplotlib Axes, default=None
            As in :meth:`plot`.

        curve_kwargs : dict, default=None
            As in :meth:`plot`.

        **params : keyword arguments
            Further arguments of :func:`off_policy_curve`, such as `choice`, which it
            needs.

        Returns
        -------
        :class:`OffPolicyDisplay`
        """
        check_style("OffPolicyDisplay", "plot", ([], []), curve_kwargs)
        curve = off_policy_curve(estimator, X, q, **params)
        display = cls(curve=curve, cost_unit=cost_unit)
        return display.plot(ax=ax, curve_kwargs=curve_kwargs)
