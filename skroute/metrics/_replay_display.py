"""The picture of a replay: spend, quality and shares over time."""

from typing import Any, Self

import numpy as np

from skroute.metrics._replay import Replay, replay
from skroute.utils._compat import validate_style_kwargs
from skroute.utils._optional import import_optional


class ReplayDisplay:
    """Spend, quality and shares of a replay over its requests.

    It is recommended to use :meth:`from_estimator` or :meth:`from_predictions` to create one.

    Parameters
    ----------
    replayed : Replay
        What happened.

    budget : float, default=None
        Drawn as a line beside the spend.

    window : int, default=100
        Requests over which means are taken. Raising it makes smoother lines.

    name : str, default=None
        Name of the lines in the legend.

    Attributes
    ----------
    axes_ : ndarray of shape (3,) of matplotlib Axes
        Spend, quality and shares.

    figure_ : matplotlib Figure
        Figure that holds them.

    See Also
    --------
    replay : The numbers behind the picture.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> from skroute.metrics import ReplayDisplay, Shift
    >>> from skroute.routing import OnlineBudgetRouter
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> Q = np.column_stack([0.7 + 0.1 * X[:, 0], 0.8 - 0.1 * X[:, 0]])
    >>> router = OnlineBudgetRouter({"small": 1, "large": 5}, budget=3).fit(X[:100], Q[:100])
    >>> ReplayDisplay.from_estimator(
    ...     router, X[100:], Q[100:], router.costs, shifts=[Shift("large", 90, down=True)]
    ... )
    <...ReplayDisplay ...>
    >>> plt.close()
    """

    def __init__(
        self,
        *,
        replayed: Replay,
        budget: float | None = None,
        window: int = 100,
        name: str | None = None,
    ) -> None:
        self.replayed = replayed
        self.budget = budget
        self.window = window
        self.name = name

    def plot(
        self,
        *,
        ax: Any = None,
        name: str | None = None,
        curve_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the three panels.

        Parameters
        ----------
        ax : sequence of three matplotlib Axes, default=None
            Axes to draw on. None makes a new figure. On axes of another display
            (``ax=display.axes_``) spend and quality are added, and shares are left as they are.

        name : str, default=None
            Name in the legend. None takes the one given at construction.

        curve_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``plot`` for spend and quality.

        Returns
        -------
        display : :class:`ReplayDisplay`
            The object itself, with `axes_` and `figure_`.
        """
        fresh = ax is None
        if fresh:
            pyplot = import_optional("matplotlib.pyplot", "ReplayDisplay.plot")
            _, ax = pyplot.subplots(3, 1, sharex=True, figsize=(7, 7), layout="constrained")
        spend, quality, shares = self.axes_ = np.asarray(ax)
        name = self.name if name is None else name
        style = validate_style_kwargs({"label": name} if name else {}, curve_kwargs or {})
        happened = self.replayed
        spend.plot(running_mean(happened.cost, self.window), **style)
        quality.plot(running_mean(happened.quality, self.window), **style)
        if fresh:
            self._draw_frame()
        if name:
            quality.legend(loc="best")
        self.figure_ = spend.figure
        return self

    def _draw_frame(self):
        spend, quality, shares = self.axes_
        happened = self.replayed
        made = happened.route[:, None] == np.arange(len(happened.choices))
        means = [running_mean(column, self.window) for column in made.T.astype(float)]
        shares.stackplot(np.arange(len(happened.route)), means, labels=happened.choices)
        shares.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        if self.budget is not None:
            spend.axhline(self.budget, color="0.5", linestyle="--")
        for axis in self.axes_:
            for shift in happened.shifts:
                for at in (shift.start, shift.stop):
                    if at is not None:
                        axis.axvline(at, color="0.5", linewidth=0.8, linestyle=":")
        spend.set(ylabel="Mean cost")
        quality.set(ylabel="Mean quality")
        shares.set(xlabel="Request", ylabel="Share", ylim=(0, 1))

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        quality: Any,
        costs: Any,
        *,
        choices: Any = None,
        shifts: Any = (),
        delay: int = 0,
        window: int = 100,
        name: str | None = None,
        ax: Any = None,
        curve_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Replay a router on a log and draw what happens.

        Parameters
        ----------
        estimator : fitted router, BudgetStream or OnlineBudgetRouter
        X, quality, costs, choices, shifts, delay
            As in :func:`replay`.
        window : int, default=100
            Requests over which means are taken.
        name : str, default=None
            Name in the legend.
        ax : sequence of three matplotlib Axes, default=None
            Axes to draw on.
        curve_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``plot``.

        Returns
        -------
        display : :class:`ReplayDisplay`
        """
        happened = replay(estimator, X, quality, costs, choices=choices, shifts=shifts, delay=delay)
        return cls.from_predictions(
            happened,
            budget=getattr(getattr(estimator, "router", estimator), "budget", None),
            window=window,
            name=name,
            ax=ax,
            curve_kwargs=curve_kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        replayed: Replay,
        *,
        budget: float | None = None,
        window: int = 100,
        name: str | None = None,
        ax: Any = None,
        curve_kwargs: dict[str, Any] | None = None,
    ) -> Self:
        """Draw what :func:`replay` gave.

        Parameters
        ----------
        replayed : Replay
        budget : float, default=None
            Drawn beside the spend.
        window : int, default=100
            Requests over which means are taken.
        name : str, default=None
            Name in the legend.
        ax : sequence of three matplotlib Axes, default=None
            Axes to draw on.
        curve_kwargs : dict, default=None
            Keyword arguments of matplotlib's ``plot``.

        Returns
        -------
        display : :class:`ReplayDisplay`
        """
        display = cls(replayed=replayed, budget=budget, window=window, name=name)
        return display.plot(ax=ax, curve_kwargs=curve_kwargs)


def running_mean(values, window):
    """Mean of the last `window` values that are known, at each."""
    known = ~np.isnan(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - window, 0)
    n = counts[end] - counts[start]
    return np.where(n > 0, (sums[end] - sums[start]) / np.maximum(n, 1), np.nan)
