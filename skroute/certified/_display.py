"""Picture of what can be promised."""

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skroute.certified._certificate import OperatingPoints
from skroute.utils._optional import import_optional


class CertificateDisplay:
    """Bound of the loss over the cost of the operating points, the certified ones marked.

    It is recommended to use :meth:`from_estimator`.

    Parameters
    ----------
    points : OperatingPoints
        From ``operating_points_`` of a fitted :class:`CertifiedRouter`.

    max_loss : float, default=None
        The loss that is promised, drawn as a line.

    names : list of str, default=None
        Name of each path for the legend; None draws no legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.

    figure_ : matplotlib Figure
        Figure that holds the axes.

    lines_ : list of matplotlib Line2D
        Upper bound of the loss, one line per path.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skroute.certified import CertificateDisplay, CertifiedRouter
    >>> from skroute.routing import OccamRouterClassifier
    >>> X, y = load_digits(n_class=4, return_X_y=True)
    >>> members = [("tree", DecisionTreeClassifier()), ("bayes", GaussianNB())]
    >>> router = OccamRouterClassifier(members, costs=[1, 10])
    >>> certified = CertifiedRouter(router, max_loss=0.1, n_points=10, random_state=0).fit(X, y)
    >>> CertificateDisplay.from_estimator(certified)
    <...CertificateDisplay ...>
    >>> plt.close()
    """

    def __init__(
        self,
        *,
        points: OperatingPoints,
        max_loss: float | None = None,
        names: list[str] | None = None,
    ) -> None:
        self.points = points
        self.max_loss = max_loss
        self.names = names

    def plot(self, *, ax: Any = None) -> Self:
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        Returns
        -------
        display : :class:`CertificateDisplay`
            The object itself, with `ax_`, `figure_` and `lines_`.
        """
        pyplot = import_optional("matplotlib.pyplot", f"{type(self).__name__}.plot")
        if ax is None:
            _, ax = pyplot.subplots(layout="constrained")
        self.lines_ = []
        points = self.points
        for k in np.unique(points.path):
            rows = np.flatnonzero(points.path == k)
            name = self.names[k] if self.names is not None else None
            (line,) = ax.plot(points.cost[rows], points.loss_upper[rows], label=name)
            ax.plot(points.cost[rows], points.loss[rows], ":", color=line.get_color())
            sure = rows[points.certified[rows]]
            ax.plot(points.cost[sure], points.loss_upper[sure], "o", color=line.get_color(), ms=4)
            self.lines_.append(line)
        if self.max_loss is not None:
            ax.axhline(self.max_loss, color="0.6", linestyle="--", linewidth=1)
        ax.set(xlabel="Mean cost per sample", ylabel="Loss against the reference (bound; seen)")
        if self.names is not None:
            ax.legend(loc="best")
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw a fitted :class:`CertifiedRouter`.

        Parameters
        ----------
        estimator : CertifiedRouter
            Fitted.

        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        Returns
        -------
        display : :class:`CertificateDisplay`
        """
        check_is_fitted(estimator)
        given = estimator.estimator
        names = [name for name, _ in given] if isinstance(given, list) else None
        display = cls(points=estimator.operating_points_, max_loss=estimator.max_loss, names=names)
        return display.plot(ax=ax)
