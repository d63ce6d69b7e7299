"""What was promised: as a record, as one sentence, and as a picture."""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skroute.metrics._displays import Display
from skroute.utils._typing import NDArray
from skroute.utils._validation import warn

# Behind the name of a reference that does not say what it costs.
UNPRICED = " (its cost is not known)"


class Certificate(NamedTuple):
    """A guarantee for a fitted estimator; ``str()`` returns it as a sentence.

    Made by :class:`CertifiedRouter`.

    Attributes
    ----------
    promised : bool
        False for a fallback, about which nothing is promised.

    max_loss : float or None
        With probability `confidence` the expected loss against the reference is at most this.

    budget : float or None
        And the expected cost at most this.

    confidence : float
        Probability over the evidence rows that all of it is true.

    reference : str
        What the loss is measured against; it says so if the reference's own cost is not known.

    n_rows : int
        Evidence rows.

    operating_budget : float
        Budget that the estimator is called with.

    loss, cost : float
        Means on the evidence rows at this operating point. They chose it, and are therefore
        a little too good.

    loss_upper, cost_upper : float
        Upper bounds of this operating point taken for itself.

    reference_cost : float
        Mean cost of the reference on the evidence rows; of the unlimited plan where the
        reference's own is not known.

    groups : list of str
        Groups within each of which the loss is promised; empty for all rows together.

    assumption : str
        What the promise rests on.

    unit : str
        What the loss is counted in.

    single : str or None, default=None
        The choice that answers every row, where nothing cheaper is certified.

    calls : dict from str to int, or None, default=None
        What certifying has cost: answers to evidence rows that each model was asked for, those
        of the reference included. Empty where outcomes were in the log; None for a batch.

    abstained_share : float or None, default=None
        Share of the evidence rows that abstain instead of answered; None where none is
        at any operating point.

    n_population : int or None, default=None
        Rows of the batch that the promise is about; None for the rows to come.

    Examples
    --------
    >>> from skroute.certified import Certificate
    >>> Certificate._fields[:4]
    ('promised', 'max_loss', 'budget', 'confidence')
    """

    promised: bool
    max_loss: float | None
    budget: float | None
    confidence: float
    reference: str
    n_rows: int
    operating_budget: float
    loss: float
    cost: float
    loss_upper: float
    cost_upper: float
    reference_cost: float
    groups: list[str]
    assumption: str
    unit: str
    single: str | None = None
    calls: dict[str, int] | None = None
    abstained_share: float | None = None
    n_population: int | None = None

    @property
    def saving(self) -> float:
        """Share of `reference_cost` that is saved; negative if the operating point costs more."""
        return 1 - self.cost / self.reference_cost if self.reference_cost > 0 else 0.0

    def __str__(self) -> str:
        kind, cost = "evidence", "the cost"
        if self.n_population is not None:
            kind, cost = "labelled", "the cost of the batch was"
        side = "below" if self.saving >= 0 else "above"
        spent = f"{cost} {self.cost:.4g}, {abs(self.saving):.0%} {side} "
        seen = f"on {self.n_rows} {kind} rows the loss was {self.loss:.3g}, {spent}"
        unpriced = self.reference.endswith(UNPRICED)
        seen += "the cost without a budget" if unpriced else "that of the reference"
        if self.single is not None:
            seen += f"; {self.single!r} answers every row"
        if self.abstained_share is not None:
            seen += f", and {self.abstained_share:.0%} of the rows abstained"
        if not self.promised:
            return f"Nothing is promised: {seen}."
        parts = []
        if self.max_loss is not None:
            where = f" in each of {len(self.groups)} groups" if self.groups else ""
            if self.n_population is not None:
                where = f" on this batch of {self.n_population} rows"
            parts.append(
                f"the mean loss against {self.reference}{where} is at most {self.max_loss:g} "
                f"({self.unit})"
            )
        if self.budget is not None:
            parts.append(f"the mean cost is at most {self.budget:g}")
        return (
            f"With a confidence of {self.confidence:g}, {' and '.join(parts)}, if "
            f"{self.assumption}; {seen}."
        )

    def to_json(self) -> str:
        """The certificate as JSON, with `saving` and the sentence; infinite values are null.

        Returns
        -------
        str
        """
        record = {**self._asdict(), "saving": self.saving, "sentence": str(self)}
        for name, value in record.items():
            if isinstance(value, float) and not np.isfinite(value):
                record[name] = None
        return json.dumps(record, indent=1)


def warn_of_no_saving(certificate):
    """Warn of a promised loss whose operating point costs no less than the reference."""
    if (
        not certificate.promised
        or certificate.max_loss is None
        or certificate.saving > 1e-12
    ):
        return
    unpriced = certificate.reference.endswith(UNPRICED)
    other = "the estimator without a budget" if unpriced else certificate.reference
    single = (
        ""
        if certificate.single is None
        else f" ({certificate.single!r} answers every row)"
    )
    # Where no loss is allowed, rows help only if a cheaper point is better than the reference.
    more = "" if certificate.max_loss == 0 else ", or give more evidence"
    warn(
        f"What is certified saves nothing: it costs {certificate.cost:.4g} per row{single}, "
        f"{other} {certificate.reference_cost:.4g}. Raise max_loss={certificate.max_loss!r}{more}."
    )


class OperatingPoints(NamedTuple):
    """See `operating_points_` of :class:`CertifiedRouter`."""

    budget: NDArray[np.float64]
    loss: NDArray[np.float64]
    loss_upper: NDArray[np.float64]
    cost: NDArray[np.float64]
    cost_upper: NDArray[np.float64]
    certified: NDArray[np.bool_]
    single: str | None


@dataclass(kw_only=True, eq=False, repr=False)
class CertificateDisplay(Display):
    """Plot of the loss bound of each operating point against its cost; certified points are marked.

    Made by :meth:`from_estimator`.

    Parameters
    ----------
    points : OperatingPoints
        From ``operating_points_`` of a fitted :class:`CertifiedRouter`.

    max_loss : float, default=None
        The loss that is promised, drawn as a line.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        With the picture.

    line_ : matplotlib Line2D
        Upper bound of the loss.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skroute.certified import CertificateDisplay, CertifiedRouter
    >>> from skroute.routing import OccamRouterClassifier
    >>> X, y = load_digits(n_class=4, return_X_y=True)
    >>> members = [("bayes", GaussianNB()), ("tree", DecisionTreeClassifier())]
    >>> router = OccamRouterClassifier(members, costs=[1, 10])
    >>> certified = CertifiedRouter(router, max_loss=0.1, n_points=10, random_state=0).fit(X, y)
    >>> CertificateDisplay.from_estimator(certified)
    <...CertificateDisplay ...>
    >>> plt.close()
    """

    points: OperatingPoints
    max_loss: float | None = None

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the bound as a line, the observed loss dotted, and certified points as dots.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        **kwargs : dict
            Of matplotlib's ``plot``, for the bound.

        Returns
        -------
        display : :class:`CertificateDisplay`
        """
        ax, points = self._on(ax), self.points
        (self.line_,) = ax.plot(points.cost, points.loss_upper, **kwargs)
        color, sure = self.line_.get_color(), points.certified
        ax.plot(points.cost, points.loss, ":", color=color)
        ax.plot(points.cost[sure], points.loss_upper[sure], "o", color=color, ms=4)
        if self.max_loss is not None:
            ax.axhline(self.max_loss, color="0.6", linestyle="--", linewidth=1)
        ax.set(
            xlabel="Mean cost per sample",
            ylabel="Loss against the reference (bound; seen)",
        )
        return self

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw a fitted :class:`CertifiedRouter`.

        Parameters
        ----------
        estimator : CertifiedRouter
            Fitted.

        ax, **kwargs
            As in :meth:`plot`.

        Returns
        -------
        display : :class:`CertificateDisplay`
        """
        check_is_fitted(estimator)
        display = cls(points=estimator.operating_points_, max_loss=estimator.max_loss)
        return display.plot(ax=ax, **kwargs)
