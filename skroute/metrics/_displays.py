"""Pictures of cost, quality and routes."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.stats import sem
from sklearn.base import is_classifier, is_regressor
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.utils import check_array, check_consistent_length

from skroute.base._inspection import models_of
from skroute.metrics._curve import BudgetSweep, check_budgets, find_router
from skroute.metrics._objectives import qualities_of, sample_quality
from skroute.metrics._off_policy import OffPolicyCurve, off_policy_curve
from skroute.metrics._tradeoff import (
    check_all_known,
    costs_by_name,
    random_mix,
    reference_curves,
)
from skroute.utils._cache import with_cache
from skroute.utils._compat import validate_style_kwargs
from skroute.utils._named import check_rows_match
from skroute.utils._optional import axes_of, import_optional
from skroute.utils._typing import ArrayLike, NDArray
from skroute.utils._validation import check_row_weights, refuse_missing


class Display:
    """What is drawn on axes that are given or made, and kept."""

    def _on(self, ax):
        self.ax_ = axes_of(self, ax)
        self.figure_ = self.ax_.figure
        return self.ax_


@dataclass(kw_only=True, eq=False, repr=False)
class AccuracyCostDisplay(Display):
    """Plot of quality against mean cost.

    Made by :meth:`from_estimator` or :meth:`from_predictions`. Curves of other estimators go on
    the same axes: ``ax=display.ax_``.

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

    singles : dict from str to (float, float), default=None
        Mean cost and mean quality of choices that may answer every row, drawn as points, with their
        best :term:`random mix` as a line.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        With the curve.

    line_ : matplotlib Line2D
        The curve.

    mix_ : matplotlib Line2D or None
        The random mix.

    See Also
    --------
    accuracy_cost_curve : The numbers behind the picture.
    reference_curves : The oracle, to draw beside it.

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
    xlabel: str = "Mean cost per sample"
    ylabel: str = "Mean quality"
    singles: dict[str, tuple[float, float]] | None = None

    def plot(
        self,
        *,
        ax: Any = None,
        name: str | None = None,
        curve_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the curve, and the single choices with their random mix where they are known.

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
        """
        ax, self.mix_ = self._on(ax), None
        default = {
            "marker": "o",
            "markersize": 4,
            "label": self.name if name is None else name,
        }
        style = validate_style_kwargs(default, curve_kwargs or {})
        order = np.argsort(self.cost, kind="stable")
        points = (np.asarray(means)[order] for means in (self.cost, self.quality))
        (self.line_,) = ax.plot(*points, **style)
        ax.set(xlabel=self.xlabel, ylabel=self.ylabel)
        if self.singles:
            cost, quality = np.array(list(self.singles.values()), dtype=np.float64).T
            mix = random_mix(cost, quality)
            (self.mix_,) = ax.plot(*mix, "--", color="0.5", label="random mix")
            ax.plot(cost, quality, "o", color="0.5", markersize=4)
            beside = {"xytext": (4, -4), "textcoords": "offset points", "va": "top"}
            for single, at in self.singles.items():
                ax.annotate(single, at, fontsize="small", color="0.4", **beside)
        if ax.get_legend_handles_labels()[1]:
            ax.legend(loc="best")
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
        references: bool | None = None,
        name: str | None = None,
        ax: Any = None,
        curve_kwargs: dict[str, Any] | None = None,
        **params: Any,
    ) -> Self:
        """Evaluate a fitted estimator at several budgets and draw the curve.

        Parameters
        ----------
        estimator, X, y, budgets, sample_weight, row_quality
            As in :func:`accuracy_cost_curve`.

        references : bool, default=None
            Whether to draw the single choices, if there are any, and their best random mix beside
            the curve; every member is then asked about every row. None draws them in a new figure.

        name : str, default=None
            Name of the curve for the legend. None takes the class name of the estimator.

        ax, curve_kwargs
            As in :meth:`plot`.

        **params : keyword arguments
            Further arguments of ``predict_routed``.

        Returns
        -------
        display : :class:`AccuracyCostDisplay`
        """
        sweep = BudgetSweep(
            estimator,
            X,
            y,
            row_quality=row_quality,
            sample_weight=sample_weight,
            **params,
        )
        curve = sweep.curve(check_budgets(budgets))
        if references is None:
            references = ax is None
        singles = _mean_singles(sweep) if references else None
        display = cls(
            cost=curve.cost,
            quality=curve.quality,
            name=type(estimator).__name__ if name is None else name,
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

        name, ax, curve_kwargs
            As in :meth:`plot`.

        Returns
        -------
        display : :class:`AccuracyCostDisplay`
        """
        check_consistent_length(y_preds, costs)
        per_point = dict(enumerate(costs)) if isinstance(costs, (list, tuple)) else {}
        answers = dict(enumerate(y_preds)) if isinstance(y_preds, (list, tuple)) else {}
        check_rows_match(
            y_true=y_true, y_preds=answers, sample_weight=sample_weight, costs=per_point
        )
        right = [sample_quality(y_true, y_pred) for y_pred in y_preds]
        weight = check_row_weights(sample_weight, np.shape(right)[1])
        quality = np.average(right, axis=1, weights=weight)
        cost = np.asarray(costs, float)
        if cost.ndim == 2:
            cost = np.average(cost, axis=1, weights=weight)
        return cls(cost=cost, quality=quality, name=name).plot(
            ax=ax, curve_kwargs=curve_kwargs
        )


def _mean_singles(sweep):
    """Return mean cost and mean quality of each single choice, by its name."""
    singles = sweep.single_choices()
    mean_costs = sweep.means(singles.cost)
    mean_qualities = sweep.means(singles.quality)
    return dict(zip(singles.names, zip(mean_costs, mean_qualities)))


@dataclass(kw_only=True, eq=False, repr=False)
class RouteShareDisplay(Display):
    """Plot of the share of rows that each choice gets, at each budget.

    Made by :meth:`from_estimator`.

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
    ax_, figure_ : matplotlib Axes and Figure
        With the areas.

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

    def plot(
        self, *, ax: Any = None, area_kwargs: dict[str, Any] | None = None
    ) -> Self:
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
        """
        ax = self._on(ax)
        order = np.argsort(self.budget, kind="stable")
        budget, share = (
            np.asarray(self.budget)[order],
            np.asarray(self.route_share)[order],
        )
        default = {"labels": [str(choice) for choice in self.choices], "alpha": 0.85}
        if share.shape[1] > 10:
            # The default cycle has ten colours; more choices would share one.
            pyplot = import_optional("matplotlib.pyplot", f"{type(self).__name__}.plot")
            default["colors"] = pyplot.get_cmap("turbo")(
                np.linspace(0.05, 0.95, share.shape[1])
            )
        self.areas_ = ax.stackplot(
            budget, share.T, **{**default, **(area_kwargs or {})}
        )
        ax.set(
            xlabel="Budget (mean cost per sample)",
            ylabel="Share of rows",
            xmargin=0,
            ylim=(0, 1),
        )
        # Outside, since the areas fill the axes; in the order of the areas.
        ax.legend(reverse=True, loc="center left", bbox_to_anchor=(1.01, 0.5))
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
        estimator, X
            As in :func:`accuracy_cost_curve`.

        budgets : array-like of shape (n_budgets,)
            Mean costs per sample, finite.

        ax, area_kwargs
            As in :meth:`plot`.

        **params : keyword arguments
            Further arguments of ``route``.

        Returns
        -------
        display : :class:`RouteShareDisplay`
        """
        limits = check_budgets(budgets)
        if not np.isfinite(limits).all():
            raise ValueError(
                f"budgets must be finite to have a place on the axis, got {limits.tolist()!r}."
            )
        check_rows_match(X=X, **params)
        router, X = find_router(estimator, X)
        router, choices = with_cache(router), list(router.choices_)
        routes = [router.route(X, budget=limit, **params) for limit in limits]
        share = [
            np.bincount(route, minlength=len(choices)) / len(route) for route in routes
        ]
        display = cls(budget=limits, route_share=np.array(share), choices=choices)
        return display.plot(ax=ax, area_kwargs=area_kwargs)


def complementarity_matrix(Q: ArrayLike) -> NDArray[np.float64]:
    """Share of the rows on which one model is right and another one is wrong.

    Entry ``(i, j)`` is the mean over the rows of ``max(Q[:, i] - Q[:, j], 0)``: for right
    and wrong answers the share of rows on which model `i` (the row) is right and model `j`
    (the column) is wrong, as in OCCAM, figure 15 [1]_; for other qualities how much better
    `i` is on the rows where it is better. A large entry on both sides of the diagonal says
    that routing between the two has something to gain.

    Parameters
    ----------
    Q : array-like of shape (n_samples, n_models)
        Quality of each model on each row: 1 or 0, or a number, higher is better; NaN where
        it is not known.

    Returns
    -------
    ndarray of shape (n_models, n_models), dtype=float64
        The diagonal is 0. ``M[i, j] - M[j, i]`` is the difference of the mean qualities. Each
        pair is compared on the rows on which both are known; NaN where there is none.

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
    # One model at a time, so that no array larger than Q is made.
    better = (
        np.ma.masked_invalid(np.maximum(q[:, np.newaxis] - quality, 0))
        for q in quality.T
    )
    return np.array([part.mean(axis=0).filled(np.nan) for part in better])


@dataclass(kw_only=True, eq=False, repr=False)
class ComplementarityDisplay(Display):
    """Plot, as a matrix, of how often one model is right and another one is wrong.

    Made by :meth:`from_estimator`.

    Parameters
    ----------
    matrix : ndarray of shape (n_models, n_models)
        Entry ``(i, j)`` is the share of rows on which model `i` is right and `j` is wrong,
        see :func:`complementarity_matrix`.

    names : sequence of str
        Names of the models.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        With the matrix.

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
        """
        ax, percent = self._on(ax), 100 * np.asarray(self.matrix, dtype=np.float64)
        drawn = ConfusionMatrixDisplay(percent, display_labels=self.names).plot(
            ax=ax,
            values_format=".1f",
            xticks_rotation=45,
            im_kw={"vmin": 0, **(im_kwargs or {})},
        )
        self.image_, self.text_ = drawn.im_, drawn.text_
        for text in np.diag(self.text_):
            # 0 by definition.
            text.set_text("")
        drawn.im_.colorbar.set_label("% of rows")
        ax.set(xlabel="Model that is wrong", ylabel="Model that is right")
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
        """Compare the answers of all members, or the qualities of all choices, and draw the matrix.

        Parameters
        ----------
        estimator : estimator
            A fitted router, a pipeline that ends with one, or a search over one of these. If it
            has members, ``named_estimators_``, each of them is asked about every row.

        X : array-like of shape (n_samples, n_features)
            Rows that the estimator has not been fitted on.

        y : array-like of shape (n_samples,) or (n_samples, n_columns)
            True labels for a router with members. For a router that only routes, such as
            :class:`~skroute.routing.BudgetRouter`, the quality of each choice on each row, NaN
            where it is not known; a frame's columns are read by name.

        ax, im_kwargs
            As in :meth:`plot`.

        Returns
        -------
        display : :class:`ComplementarityDisplay`
        """
        check_rows_match(X=X, y=y)
        router, X = find_router(estimator, X)
        while hasattr(getattr(router, "estimator_", None), "predict_routed"):
            # What is promised about a router changes none of its choices.
            router = router.estimator_
        if is_classifier(router) or is_regressor(router):
            names, quality = _quality_of_members(router, X, y)
        else:
            names, quality = _quality_of_choices(router, X, y)
        display = cls(matrix=complementarity_matrix(quality), names=names)
        return display.plot(ax=ax, im_kwargs=im_kwargs)


def _quality_of_members(router, X, y):
    """Return the names of a router's members, and the quality of the answers of each."""
    if not hasattr(router, "named_estimators_"):
        raise TypeError(
            f"estimator must have several models that may answer a row, which "
            f"{type(router).__name__} does not have. Give a router, or use "
            "complementarity_matrix with a table of qualities."
        )
    refuse_missing(y=y)
    members = router.named_estimators_
    answers = [member.predict(X) for member in members.values()]
    return list(members), np.column_stack(
        [sample_quality(y, answer) for answer in answers]
    )


def _quality_of_choices(router, X, y):
    """Return the names of the choices of a router that only routes, and the quality of each."""
    names = models_of(router)
    quality = qualities_of(y, router)
    check_consistent_length(quality if X is None else X, quality)
    if quality.shape[1:] != (len(names),):
        raise ValueError(
            f"y of shape {quality.shape} must have one column with the quality of each of "
            f"{names!r}. Give the table of qualities of these rows."
        )
    return names, quality


@dataclass(kw_only=True, eq=False, repr=False)
class RouterDiagnosticsDisplay(Display):
    """Plot of the observed quality against a router's estimates, with the gain of its decisions.

    The title says how much the decisions gain above the best :term:`random mix` that spends the
    same, and how much an oracle would.

    Made by :meth:`from_estimator`.

    Parameters
    ----------
    reliability : list of ndarray of shape (3, n_bins)
        For each choice the mean estimate of each bin, the mean quality that came out, and its
        standard error.

    names : list of str
        The choices.

    found : float
        Mean quality above the best random mix that spends the same.

    possible : float
        The same of an oracle that spends as much.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        With the reliability.

    See Also
    --------
    skroute.quality.QualityRegressor : The estimator that routers take by default.
    reference_curves : The random mix and the oracle.
    sklearn.model_selection.LearningCurveDisplay : What more rows would bring.

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
    >>> display = RouterDiagnosticsDisplay.from_estimator(router, X[300:], Q[300:], budget=0.5)
    >>> bool(0 < display.found < display.possible)
    True
    >>> plt.close()
    """

    reliability: list
    names: list[str]
    found: float
    possible: float

    def plot(self, *, ax: Any = None) -> Self:
        """Draw the reliability.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        Returns
        -------
        display : :class:`RouterDiagnosticsDisplay`
        """
        ax = self._on(ax)
        for name, (estimate, quality, error) in zip(self.names, self.reliability):
            ax.errorbar(
                estimate, quality, 1.96 * error, marker="o", markersize=3, label=name
            )
        estimates = np.concatenate([estimate for estimate, _, _ in self.reliability])
        ends = [estimates.min(), estimates.max()]
        ax.plot(ends, ends, linestyle=":", color="black")
        title = f"{self.found:+.3g} of {self.possible:+.3g} above the random mix"
        ax.set(xlabel="Estimated quality", ylabel="Quality that came out", title=title)
        ax.legend(loc="best")
        return self

    @classmethod
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

        X, y
            As in :func:`accuracy_cost_curve`; of `y` all must be known.

        costs : array-like of shape (n_choices,) or (n_samples, n_choices), default=None
            Cost of each choice. None takes the router's ``costs_``.

        n_bins : int, default=10
            Bins of the estimates, with equally many rows.

        ax : matplotlib Axes, default=None
            As in :meth:`plot`.

        **params : keyword arguments
            Of ``route`` and ``predict_cost``, such as ``budget``.

        Returns
        -------
        display : :class:`RouterDiagnosticsDisplay`
        """
        check_rows_match(X=X, y=y, costs=costs, **params)
        names, route = list(estimator.choices_), estimator.route(X, **params)
        costs = costs_by_name(estimator.costs_ if costs is None else costs, names)
        quality = check_all_known(qualities_of(y, estimator), "y")
        estimate = estimator.predict_quality(X)
        check_consistent_length(quality, estimate)
        curves = reference_curves(
            quality, costs, [estimator.predict_cost(X, **params).mean()]
        )
        display = cls(
            reliability=[
                _in_bins(*pair, n_bins) for pair in zip(estimate.T, quality.T)
            ],
            names=names,
            found=float(
                quality[np.arange(len(route)), route].mean() - curves.random[0]
            ),
            possible=float(curves.oracle[0] - curves.random[0]),
        )
        return display.plot(ax=ax)


def _in_bins(estimate, quality, n_bins):
    """Mean estimates, mean qualities and their standard errors, in bins of equally many rows."""
    order = np.argsort(estimate, kind="stable")
    bins = np.array_split(order, max(1, min(n_bins, len(order) // 2)))
    means = [[values[rows].mean() for rows in bins] for values in (estimate, quality)]
    return np.array([*means, [sem(quality[rows]) for rows in bins]])


_NAMES = {"direct": "direct method", "snips": "SNIPS", "doubly_robust": "doubly robust"}


@dataclass(kw_only=True, eq=False, repr=False)
class OffPolicyDisplay(Display):
    """Plot of quality against mean cost, estimated from a log of one answer per request.

    Made by :meth:`from_estimator`.

    Parameters
    ----------
    curve : OffPolicyCurve
        From :func:`off_policy_curve`.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        With the curve.

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

    curve: OffPolicyCurve

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
        """
        if unknown := [name for name in estimators if name not in _NAMES]:
            raise ValueError(
                f"estimators must be some of {list(_NAMES)!r}, got {unknown[0]!r} among them."
            )
        ax, self.lines_, self.band_ = self._on(ax), [], None
        for name in estimators:
            quality, cost = (
                getattr(self.curve.quality, name),
                getattr(self.curve.cost, name),
            )
            x, sure = cost.estimate, name == "doubly_robust"
            curve = AccuracyCostDisplay(
                cost=x, quality=quality.estimate, name=_NAMES[name]
            )
            default = {} if sure else {"linestyle": "--", "marker": ""}
            style = validate_style_kwargs(default, curve_kwargs or {})
            self.lines_.append(curve.plot(ax=ax, curve_kwargs=style).line_)
            if sure:
                order, color = np.argsort(x, kind="stable"), self.lines_[-1].get_color()
                ends = quality.low[order], quality.high[order]
                self.band_ = ax.fill_between(x[order], *ends, alpha=0.2, color=color)
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        q: ArrayLike,
        *,
        ax: Any = None,
        curve_kwargs: dict[str, Any] | None = None,
        **params: Any,
    ) -> Self:
        """Estimate the curve of a fitted router from a log, and draw it.

        Parameters
        ----------
        estimator, X, q
            As in :func:`off_policy_curve`.

        ax, curve_kwargs
            As in :meth:`plot`.

        **params : keyword arguments
            Of :func:`off_policy_curve`: `choice`, and what else is known of the log.

        Returns
        -------
        display : :class:`OffPolicyDisplay`
        """
        curve = off_policy_curve(estimator, X, q, **params)
        return cls(curve=curve).plot(ax=ax, curve_kwargs=curve_kwargs)
