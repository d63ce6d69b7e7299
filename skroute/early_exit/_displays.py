"""Displays of early exit."""

import numpy as np

from skroute.utils._compat import validate_style_kwargs
from skroute.utils._optional import axes_of
from skroute.utils._plotting import colours_of, finish_axes

__all__ = ["ExitDisplay", "TradeoffDisplay"]

# Largest number of bars of the histogram. More are too narrow to be seen.
_N_BARS = 50


class ExitDisplay:
    """Plot of the rows that stop after each member, and of those that go on.

    Parameters
    ----------
    members : ndarray of shape (n_samples,)
        Number of members evaluated for each row.

    n_members : int
        Size of the ensemble.

    name : str, default=None
        Name in the legend.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    bars_ : matplotlib container
        The histogram.

    line_ : matplotlib Line2D
        The survival curve.

    Examples
    --------
    >>> from skroute.early_exit import ExitDisplay
    >>> display = ExitDisplay([1, 1, 2, 5], n_members=10)
    >>> display.survival.tolist()[:5]
    [0.5, 0.25, 0.25, 0.25, 0.0]
    """

    def __init__(self, members, n_members, *, name=None):
        self.members = np.asarray(members)
        self.n_members = n_members
        self.name = name

    @property
    def survival(self):
        """Share of rows still undecided after 1, ..., n_members members."""
        # No row stops after 0 members.
        counts = np.bincount(self.members, minlength=self.n_members + 1)[1:]
        return 1.0 - np.cumsum(counts) / len(self.members)

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        y=None,
        *,
        name=None,
        ax=None,
        bar_kwargs=None,
        line_kwargs=None,
    ):
        """Evaluate rows with an ensemble, and plot when they leave.

        Parameters
        ----------
        estimator : QWYCEnsemble
            Fitted.

        X : array-like of shape (n_samples, n_features)
            The rows.

        y : None
            Ignored: no labels are needed. It is here because other displays take it.

        name : str, default=None
            Name in the legend.

        ax : matplotlib Axes, default=None
            A new one by default.

        bar_kwargs, line_kwargs : dict, default=None
            Passed to ``bar`` and ``plot``.

        Returns
        -------
        ExitDisplay
        """
        return cls.from_predictions(
            estimator.route(X),
            len(estimator.order_),
            name=name,
            ax=ax,
            bar_kwargs=bar_kwargs,
            line_kwargs=line_kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        members,
        n_members,
        *,
        name=None,
        ax=None,
        bar_kwargs=None,
        line_kwargs=None,
    ):
        """Plot the numbers of members that were evaluated for rows.

        Parameters
        ----------
        members : array-like of shape (n_samples,)
            Number of members evaluated for each row.

        n_members : int
            Size of the ensemble.

        name : str, default=None
            Name in the legend.

        ax : matplotlib Axes, default=None
            A new one by default.

        bar_kwargs, line_kwargs : dict, default=None
            Passed to ``bar`` and ``plot``.

        Returns
        -------
        ExitDisplay
        """
        display = cls(members, n_members, name=name)
        return display.plot(ax=ax, bar_kwargs=bar_kwargs, line_kwargs=line_kwargs)

    def plot(self, *, ax=None, name=None, bar_kwargs=None, line_kwargs=None):
        """Draw the rows that stop after each member, and the share that goes on.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            A new one by default.

        name : str, default=None
            Name in the legend. By default, that of the display.

        bar_kwargs, line_kwargs : dict, default=None
            Passed to ``bar`` and ``plot``.

        Returns
        -------
        ExitDisplay
            The display, with its axes.
        """
        ax = axes_of(self, ax)
        if name is None:
            name = self.name
        # Bars have whole numbers of members. Small ensembles have a bar for each.
        edges = np.round(np.linspace(0, self.n_members, _N_BARS + 1))
        edges = np.unique(edges.astype(int))
        bar_widths = np.diff(edges)
        # 0.5 puts the edges between two numbers of members.
        edges = edges + 0.5
        bar_starts = edges[:-1]
        counts, _ = np.histogram(self.members, bins=edges)
        shares = counts / len(self.members)
        bar_colour, line_colour = colours_of(["bars", "line"])
        bar_style = validate_style_kwargs(
            {"color": bar_colour, "alpha": 0.6, "align": "edge", "label": "leave here"},
            bar_kwargs or {},
        )
        self.bars_ = ax.bar(bar_starts, shares, bar_widths, **bar_style)
        label = f"still undecided (mean {self.members.mean():.1f} of {self.n_members})"
        if name is not None:
            label = f"{name}: {label}"
        line_style = validate_style_kwargs(
            {"color": line_colour, "label": label}, line_kwargs or {}
        )
        # Before the first member, all rows are undecided.
        undecided = np.append(1.0, self.survival)
        (self.line_,) = ax.step(
            range(self.n_members + 1), undecided, where="post", **line_style
        )
        # The bar of the last member ends half a member after it.
        ax.set(xlim=(0, self.n_members + 0.5), ylim=(0, 1.02))
        # There is no half member.
        ax.locator_params(axis="x", integer=True)
        finish_axes(
            ax,
            xlabel="Members evaluated",
            ylabel="Share of rows",
            title="When rows leave the ensemble",
        )
        self.ax_ = ax
        self.figure_ = ax.figure
        return self


class TradeoffDisplay:
    """Plot of evaluated members against disagreement with the full ensemble.

    Parameters
    ----------
    curves : dict from str to (ndarray, ndarray)
        For each name the disagreement and the mean cost of its policies, on rows that
        no policy was learned from.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    lines_ : list of matplotlib Line2D

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.early_exit import TradeoffDisplay
    >>> disagreement, members = np.array([0.0, 0.01]), np.array([40.0, 20.0])
    >>> display = TradeoffDisplay({"qwyc": (disagreement, members)})
    >>> float(display.at("qwyc", 0.005))
    30.0
    """

    def __init__(self, curves):
        self.curves = curves

    @classmethod
    def from_estimator(
        cls, estimator, X, y=None, *, name=None, ax=None, line_kwargs=None
    ):
        """Evaluate each set of thresholds of a fitted estimator on rows, and plot.

        Parameters
        ----------
        estimator : QWYCEnsemble
            Fitted.

        X : array-like of shape (n_samples, n_features)
            Rows that were not used in fit.

        y : None
            Ignored: no labels are needed. It is here because other displays take it.

        name : str, default=None
            Name of the curve. None is the name of the estimator's class.

        ax : matplotlib Axes, default=None
            A new one by default.

        line_kwargs : dict, default=None
            Passed to ``plot``.

        Returns
        -------
        TradeoffDisplay
        """
        if name is None:
            name = type(estimator).__name__
        if line_kwargs is not None:
            # `from_estimators` takes one dict for each estimator.
            line_kwargs = [line_kwargs]
        return cls.from_estimators({name: estimator}, X, ax=ax, line_kwargs=line_kwargs)

    @classmethod
    def from_estimators(cls, estimators, X, y=None, *, ax=None, line_kwargs=None):
        """Compare fitted estimators on the same rows; otherwise as `from_estimator`.

        Parameters
        ----------
        estimators : dict from str to QWYCEnsemble
            Fitted, for example with different orders.

        X : array-like of shape (n_samples, n_features)
            Rows that were not used in fit.

        y : None
            Ignored: no labels are needed. It is here because other displays take it.

        ax : matplotlib Axes, default=None
            A new one by default.

        line_kwargs : list of dict, default=None
            One for each estimator, passed to ``plot``.

        Returns
        -------
        TradeoffDisplay
        """
        curves = {name: estimator.tradeoff(X) for name, estimator in estimators.items()}
        return cls(curves).plot(ax=ax, line_kwargs=line_kwargs)

    def at(self, name, disagreement):
        """Return the mean cost of a curve at a disagreement, interpolated.

        Parameters
        ----------
        name : str
            Name of the curve.

        disagreement : float
            Share of answers that differ from the full ensemble.

        Returns
        -------
        float
            NaN outside of the curve.
        """
        # Shares of changed answers, and mean costs. (n_policies,)
        shares, costs = self.curves[name]
        # Sorted by share of changed answers, and by cost where shares are equal.
        order = np.lexsort([costs, shares])
        shares = shares[order]
        # The least cost of a policy with at most this disagreement.
        costs = np.minimum.accumulate(costs[order])
        return float(np.interp(disagreement, shares, costs, left=np.nan, right=np.nan))

    def plot(self, *, ax=None, line_kwargs=None):
        """Draw a curve of cost against disagreement for each name.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            A new one by default.

        line_kwargs : list of dict, default=None
            One for each curve, passed to ``plot``.

        Returns
        -------
        TradeoffDisplay
            The display, with its axes.
        """
        ax = axes_of(self, ax)
        self.lines_ = []
        if line_kwargs is None:
            line_kwargs = [{}] * len(self.curves)
        if len(line_kwargs) != len(self.curves):
            raise ValueError(
                f"line_kwargs must be a list with one dict for each of "
                f"{list(self.curves)!r}, got {len(line_kwargs)}."
            )
        colours = colours_of(self.curves)
        for name, colour, line_style in zip(self.curves, colours, line_kwargs):
            # Shares of changed answers, and mean costs. (n_policies,)
            shares, costs = self.curves[name]
            order = np.argsort(shares)
            style = validate_style_kwargs(
                {"marker": ".", "color": colour, "label": name}, line_style
            )
            self.lines_ += ax.plot(100 * shares[order], costs[order], **style)
        finish_axes(
            ax,
            xlabel="Answers that differ from the full ensemble (%)",
            ylabel="Mean cost per row",
            title="Cost of early exit against changed answers",
        )
        self.ax_ = ax
        self.figure_ = ax.figure
        return self
