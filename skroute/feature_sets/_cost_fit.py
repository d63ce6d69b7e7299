"""Measured costs with the functions fitted to them."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skroute.feature_sets._costs import MeasuredCosts
from skroute.utils._compat import validate_style_kwargs
from skroute.utils._optional import axes_of


class CostFitDisplay:
    """Measured seconds of each extractor over the size, and the fitted cost.

    Use :meth:`from_estimator` to create it.

    Parameters
    ----------
    sizes : ndarray of shape (n_measurements,)
        Sizes of the timed items.

    seconds : ndarray of shape (n_measurements, n_extractors)
        Measured seconds.

    curve_sizes : ndarray of shape (n_points,)
        Sizes at which the fitted costs are drawn.

    curve_seconds : ndarray of shape (n_extractors, n_points)
        Fitted costs in seconds.

    names : list of str
        The extractors.

    percentile : float
        Share of the measurements that the fit keeps on or below the curve.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the plot.

    figure_ : matplotlib Figure
        Its figure.

    points_ : list of matplotlib Artist
        The measurements of each extractor.

    lines_ : list of matplotlib Artist
        The fitted cost of each extractor.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.preprocessing import FunctionTransformer
    >>> from skroute.feature_sets import CostFitDisplay, PolyDomSelector
    >>> def spreads(items):
    ...     return np.array([[np.std(item)] for item in items])
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(40) % 2
    >>> items = [rng.normal(scale=1 + label, size=rng.integers(9, 999)) for label in y]
    >>> selector = PolyDomSelector(
    ...     LogisticRegression(),
    ...     [("spread", FunctionTransformer(spreads))],
    ...     costs="time",
    ...     size=np.size,
    ... ).fit(items, y)
    >>> CostFitDisplay.from_estimator(selector)
    <...CostFitDisplay object at ...>
    """

    def __init__(self, *, sizes, seconds, curve_sizes, curve_seconds, names, percentile):
        self.sizes = sizes
        self.seconds = seconds
        self.curve_sizes = curve_sizes
        self.curve_seconds = curve_seconds
        self.names = names
        self.percentile = percentile

    def plot(self, *, ax=None, points_kwargs=None, curve_kwargs=None):
        """Draw points and curves, both axes logarithmic.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        points_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``plot`` for the measurements.

        curve_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``plot`` for the fitted costs.

        Returns
        -------
        display : :class:`CostFitDisplay`
            The object itself, with `ax_`, `figure_`, `points_` and `lines_`.
        """
        ax = axes_of(self, ax)
        self.points_, self.lines_ = [], []
        for name, measured, fitted in zip(self.names, self.seconds.T, self.curve_seconds):
            curve = validate_style_kwargs({"label": name}, curve_kwargs or {})
            (line,) = ax.plot(self.curve_sizes, fitted, **curve)
            dots = {
                "linestyle": "",
                "marker": ".",
                "markersize": 3,
                "alpha": 0.4,
                "color": line.get_color(),
            }
            dots = validate_style_kwargs(dots, points_kwargs or {})
            (points,) = ax.plot(self.sizes, measured, **dots)
            self.lines_.append(line)
            self.points_.append(points)
        ax.set(
            xlabel="size of the item",
            ylabel="seconds per item",
            yscale="log",
            xscale="log" if self.sizes.min() > 0 else "linear",
            title=f"Measured cost and fitted percentile {100 * self.percentile:g}",
        )
        ax.legend(title="extractor", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        self.ax_ = ax
        self.figure_ = ax.figure
        return self

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, points_kwargs=None, curve_kwargs=None):
        """Show the measured costs of a fitted selector.

        Parameters
        ----------
        estimator : PolyDomSelector or GreedyFeatureSelector
            Fitted with measured costs.

        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        points_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``plot`` for the measurements.

        curve_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``plot`` for the fitted costs.

        Returns
        -------
        display : :class:`CostFitDisplay`
            The drawn costs.

        Raises
        ------
        ValueError
            If the selector measured nothing.
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "measured_costs_"):
            raise ValueError(
                f'{cls.__name__} shows measured costs, which need costs="time"; the selector has '
                f"costs={estimator.costs!r}."
            )
        sizes = estimator.measured_sizes_
        curve_sizes = np.linspace(sizes.min(), sizes.max(), 200)
        costs = MeasuredCosts() if isinstance(estimator.costs, str) else estimator.costs
        display = cls(
            sizes=sizes,
            seconds=estimator.measured_costs_,
            curve_sizes=curve_sizes,
            curve_seconds=estimator.costs_(curve_sizes),
            names=estimator.costs_.names,
            percentile=costs.percentile,
        )
        return display.plot(ax=ax, points_kwargs=points_kwargs, curve_kwargs=curve_kwargs)
