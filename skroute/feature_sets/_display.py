"""Measured costs with the functions fitted to them."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skroute.utils._optional import import_optional


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

    def plot(self, *, ax=None):
        """Draw points and curves, both axes logarithmic.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw. None makes a new figure.

        Returns
        -------
        CostFitDisplay
        """
        plt = import_optional("matplotlib.pyplot", f"{type(self).__name__}.plot")
        if ax is None:
            _, ax = plt.subplots()
        self.points_, self.lines_ = [], []
        for name, measured, fitted in zip(self.names, self.seconds.T, self.curve_seconds):
            (line,) = ax.plot(self.curve_sizes, fitted, label=name)
            (points,) = ax.plot(
                self.sizes, measured, ".", markersize=3, alpha=0.4, color=line.get_color()
            )
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
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @classmethod
    def from_estimator(cls, selector, *, ax=None):
        """Show the measured costs of a fitted selector.

        Parameters
        ----------
        selector : PolyDomSelector
            Fitted with ``costs="time"``.

        ax : matplotlib Axes, default=None
            Where to draw. None makes a new figure.

        Returns
        -------
        CostFitDisplay

        Raises
        ------
        ValueError
            If the selector measured nothing.
        """
        check_is_fitted(selector)
        if not hasattr(selector, "measured_costs_"):
            raise ValueError(
                f'{cls.__name__} shows measured costs, which need costs="time"; the selector has '
                f"costs={selector.costs!r}."
            )
        sizes = selector.measured_sizes_
        curve_sizes = np.linspace(sizes.min(), sizes.max(), 200)
        display = cls(
            sizes=sizes,
            seconds=selector.measured_costs_,
            curve_sizes=curve_sizes,
            curve_seconds=selector.costs_(curve_sizes),
            names=selector.costs_.names,
            percentile=selector.cost_percentile,
        )
        return display.plot(ax=ax)
