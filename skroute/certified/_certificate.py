"""A certificate: as a record, as one sentence, and as a plot."""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skroute.metrics._displays import Display
from skroute.utils._compat import validate_style_kwargs
from skroute.utils._plotting import (
    REFERENCE_COLOUR,
    cost_label,
    finish_axes,
    foreground_colour,
)
from skroute.utils._tables import (
    Column,
    Table,
    frame_of_record,
    list_names,
    share_column,
)
from skroute.utils._tolerances import ROUNDING
from skroute.utils._typing import NDArray
from skroute.utils._validation import warn

# Suffix of the name of a reference in a certificate, if its cost is not known.
UNPRICED = " (its cost is not known)"


class Certificate(NamedTuple):
    """A guarantee for a fitted estimator.

    ``str()`` returns it as a sentence, ``repr()`` as a table.

    Made by :class:`CertifiedRouter`.

    Attributes
    ----------
    promised : bool
        False for a fallback, which has no guarantee.

    max_loss : float or None
        The guarantee: with probability `confidence` the expected loss against the
        reference is at most `max_loss`. None if no loss is guaranteed.

    budget : float or None
        The guarantee: the expected cost is at most `budget`. None if no cost is
        guaranteed.

    confidence : float
        Probability, over the evidence rows, that the whole guarantee is true.

    reference : str
        Name of the reference that the loss is measured against. It has a suffix if the
        cost of the reference is not known.

    n_rows : int
        Number of evidence rows.

    operating_budget : float
        Budget that the estimator is called with.

    loss, cost : float
        Means on the evidence rows at this operating point. The point was chosen on
        these rows, so they are a little too good.

    loss_upper, cost_upper : float
        Upper bounds for this operating point alone.

    reference_cost : float
        Mean cost of the reference on the evidence rows. If it is not known, this is the
        mean cost of the plan without a budget.

    groups : list of str
        Groups that each have the guarantee of the loss. Empty if it is for all rows
        together.

    assumption : str
        Condition under which the guarantee holds, as text.

    unit : str
        Unit of the loss.

    single : str or None, default=None
        Name of the choice that answers every row, if nothing cheaper is certified.

    calls : dict from str to int, or None, default=None
        Number of evidence rows that each model was called on, the reference included.
        Empty if the outcomes were in the log. None for a batch.

    abstained_share : float or None, default=None
        Share of the evidence rows that abstain. None if no row abstains at any
        operating point.

    n_population : int or None, default=None
        Number of rows of the batch that the guarantee is about. None if it is about
        future rows.

    billed : bool, default=True
        True if costs are bills. False if they are expected bills, because the bills of
        the evidence rows were not given.

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
    billed: bool = True

    @property
    def saving(self) -> float:
        """Saved share of `reference_cost`, negative if `cost` is higher."""
        if self.reference_cost <= 0:
            # Nothing can be saved of a reference that is free.
            return 0.0
        return 1 - self.cost / self.reference_cost

    def __str__(self) -> str:
        observed = self._observed_text()
        if not self.promised:
            return f"Nothing is promised: {observed}."
        promises = " and ".join(self._promise_texts())
        return (
            f"With a confidence of {self.confidence:g}, {promises}, if "
            f"{self.assumption}. Measured, and not promised: {observed}."
        )

    def __repr__(self) -> str:
        return str(self._table())

    def to_frame(self) -> Any:
        """Return the certificate as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row, with the fields and ``saving`` as columns.
        """
        return frame_of_record({**self._asdict(), "saving": self.saving})

    def _table(self):
        """Return the certificate as a `Table` of one row, for its text."""
        rows = "evidence rows" if self.n_population is None else "labelled rows"
        loss_unit = f"mean on the {rows} ({self.unit})"
        columns = [
            Column("promised", [self.promised]),
            Column("max_loss", [self.max_loss], missing="none is guaranteed"),
            Column("budget", [self.budget], missing="none is guaranteed"),
            Column("confidence", [self.confidence]),
            Column("about", [self._subject_text()]),
            Column("assumption", [self.assumption]),
            Column("reference", [self.reference]),
            Column("n_rows", [self.n_rows], label=rows),
            Column("operating_budget", [self.operating_budget], unit="per row"),
            Column("loss", [self.loss], unit=loss_unit),
            Column("loss_upper", [self.loss_upper], label="upper bound of the loss"),
            Column("cost", [self.cost], unit=f"mean on the {rows}"),
            Column("cost_upper", [self.cost_upper], label="upper bound of the cost"),
            Column("reference_cost", [self.reference_cost], unit=f"mean on the {rows}"),
            share_column("saving", [self.saving], whole="the cost of the reference"),
            Column("single", [self._single_text()], label="answers every row"),
            Column("calls", [self._calls_text()], label="calls on these rows"),
            Column("abstained_share", [self._abstained_text()], label="abstained"),
        ]
        return Table("Certificate", columns)

    def _subject_text(self) -> str:
        """Return the rows that the guarantee is about, as text."""
        if self.n_population is not None:
            return f"this batch of {self.n_population:,} rows"
        if self.groups:
            return f"future rows of each group: {list_names(self.groups)}"
        return "future rows"

    def _single_text(self) -> str:
        """Return the choice that answers every row, or that there is none."""
        return "no single choice" if self.single is None else self.single

    def _calls_text(self) -> str:
        """Return the number of calls of each model on the evidence rows, as text."""
        if self.calls is None:
            return "not counted for a batch"
        if not self.calls:
            return "none, all outcomes were in the log"
        return list_names([f"{name} {count:,}" for name, count in self.calls.items()])

    def _abstained_text(self) -> str:
        """Return the share of the evidence rows that abstain, as text."""
        if self.abstained_share is None:
            return "no row can abstain"
        return f"{self.abstained_share:.1%} of the rows"

    def _observed_text(self) -> str:
        """Return the loss and the cost on the evidence rows, as text."""
        if self.n_population is None:
            kind_of_rows = "evidence"
            cost_name = "the cost" if self.billed else "the expected cost"
        else:
            kind_of_rows = "labelled"
            cost_name = "the cost of the batch was"
        # If the saving is negative, the cost is above that of the reference.
        side = "below" if self.saving >= 0 else "above"
        compared_cost = "that of the reference"
        if self.reference.endswith(UNPRICED):
            compared_cost = "the cost without a budget"
        text = (
            f"on {self.n_rows} {kind_of_rows} rows the loss was {self.loss:.3g}, "
            f"{cost_name} {self.cost:.4g}, {abs(self.saving):.0%} {side} "
            f"{compared_cost}"
        )
        if self.single is not None:
            text += f"; {self.single!r} answers every row"
        if self.abstained_share is not None:
            text += f", and {self.abstained_share:.0%} of the rows abstained"
        return text

    def _promise_texts(self) -> list[str]:
        """Return the guarantees of the loss and of the cost, each as text."""
        promises = []
        if self.max_loss is not None:
            rows = ""
            if self.n_population is not None:
                rows = f" on this batch of {self.n_population} rows"
            elif self.groups:
                rows = f" in each of {len(self.groups)} groups"
            promises.append(
                f"the mean loss against {self.reference}{rows} is at most "
                f"{self.max_loss:g} ({self.unit})"
            )
        if self.budget is not None:
            promises.append(f"the mean cost is at most {self.budget:g}")
        return promises

    def to_json(self) -> str:
        """Return the certificate as JSON, with `saving` and the sentence.

        Infinite values and NaN are null.

        Returns
        -------
        str
            The record.
        """
        record = {**self._asdict(), "saving": self.saving, "sentence": str(self)}
        for name, value in record.items():
            if isinstance(value, float) and not np.isfinite(value):
                record[name] = None
        return json.dumps(record, indent=1)


def warn_of_no_saving(certificate):
    """Warn if a guaranteed loss saves nothing: the reference does not cost more.

    Parameters
    ----------
    certificate : Certificate
    """
    if not certificate.promised or certificate.max_loss is None:
        return
    if certificate.saving > ROUNDING:
        return
    compared = certificate.reference
    if compared.endswith(UNPRICED):
        compared = "the estimator without a budget"
    single = ""
    if certificate.single is not None:
        single = f" ({certificate.single!r} answers every row)"
    # If `max_loss` is 0, more rows help only if a cheaper point is better than the
    # reference, so that they are not advised.
    advice = f"Raise max_loss={certificate.max_loss!r}"
    if certificate.max_loss != 0:
        advice += ", or give more evidence"
    warn(
        f"What is certified saves nothing: it costs {certificate.cost:.4g} per "
        f"row{single}, {compared} {certificate.reference_cost:.4g}. {advice}."
    )


class OperatingPoints(NamedTuple):
    """Operating points of a router: `operating_points_` of :class:`CertifiedRouter`.

    Attributes
    ----------
    budget : ndarray of shape (n_points,)
        Budget that the wrapped estimator is called with. Infinity is no budget.
    loss, cost : ndarray of shape (n_points,)
        Mean loss against the reference, and mean cost, on the evidence rows.
    loss_upper, cost_upper : ndarray of shape (n_points,)
        Upper bounds of the expected loss and cost, for each point alone.
    certified : ndarray of shape (n_points,), dtype=bool
        True if the point has the guarantee.
    single : str or None
        Name of the choice that answers every row at the first point. None if there is
        no such choice.
    """

    budget: NDArray[np.float64]
    loss: NDArray[np.float64]
    loss_upper: NDArray[np.float64]
    cost: NDArray[np.float64]
    cost_upper: NDArray[np.float64]
    certified: NDArray[np.bool_]
    single: str | None

    def __repr__(self) -> str:
        return str(self._table())

    def to_frame(self) -> Any:
        """Return the points as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row for each point, with the fields without `single` as columns.
        """
        return self._table().to_frame()

    def _table(self):
        """Return the points as a `Table`."""
        notes = []
        if self.single is not None:
            notes.append(f"At the first point {self.single!r} answers every row.")
        return Table(
            f"OperatingPoints: {int(self.certified.sum())} of {len(self.budget)} are "
            "certified",
            [
                Column("budget", self.budget, unit="per row"),
                Column("certified", self.certified),
                Column("loss", self.loss, unit="mean"),
                Column("loss_upper", self.loss_upper, unit="bound"),
                Column("cost", self.cost, unit="mean"),
                Column("cost_upper", self.cost_upper, unit="bound"),
            ],
            notes=notes,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class CertificateDisplay(Display):
    """Plot of the loss bound of each operating point against its cost.

    Certified points are marked.

    Made by :meth:`from_estimator`.

    Parameters
    ----------
    points : OperatingPoints
        From ``operating_points_`` of a fitted :class:`CertifiedRouter`.

    max_loss : float, default=None
        The guaranteed loss, drawn as a line.

    cost_unit : str, default=""
        Unit of the costs for the axis, for example ``"dollars"``.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Axes and figure of the plot.

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
    >>> certified = CertifiedRouter(router, max_loss=0.1, n_points=10, random_state=0)
    >>> certified = certified.fit(X, y)
    >>> CertificateDisplay.from_estimator(certified)
    <...CertificateDisplay ...>
    >>> plt.close()
    """

    points: OperatingPoints
    max_loss: float | None = None
    cost_unit: str = ""

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the bound as a line, the mean loss dotted, and certified points as dots.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        **kwargs : dict
            Keywords of matplotlib's ``plot`` for the line of the bound.

        Returns
        -------
        :class:`CertificateDisplay`
            The display, with its axes.
        """
        ax = self._on(ax)
        points = self.points
        style = validate_style_kwargs(
            {"color": foreground_colour(), "label": "upper bound"}, kwargs
        )
        (self.line_,) = ax.plot(points.cost, points.loss_upper, **style)
        colour = self.line_.get_color()
        ax.plot(
            points.cost, points.loss, ":", color=colour, label="mean on evidence rows"
        )
        certified_costs = points.cost[points.certified]
        certified_bounds = points.loss_upper[points.certified]
        ax.plot(
            certified_costs,
            certified_bounds,
            "o",
            color=colour,
            ms=4,
            label="certified",
        )
        if self.max_loss is not None:
            ax.axhline(
                self.max_loss,
                color=REFERENCE_COLOUR,
                linestyle="--",
                linewidth=1,
                label=f"promised: at most {self.max_loss:g}",
            )
        finish_axes(
            ax,
            xlabel=cost_label("Mean cost per row on evidence rows", self.cost_unit),
            ylabel="Mean loss against the reference",
            title="Operating points and what is certified",
        )
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        cost_unit: str = "",
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw a fitted :class:`CertifiedRouter`.

        Parameters
        ----------
        estimator : CertifiedRouter
            Fitted.

        X, y : None
            Ignored: the evidence rows are drawn. They are here because other displays
            take them.

        cost_unit : str, default=""
            Unit of the costs for the axis, for example ``"dollars"``.

        ax : matplotlib Axes, default=None
            Axes to draw on. None makes a new figure.

        **kwargs : dict
            Keywords of matplotlib's ``plot`` for the line of the bound.

        Returns
        -------
        CertificateDisplay
            The display, with its axes.
        """
        check_is_fitted(estimator)
        display = cls(
            points=estimator.operating_points_,
            max_loss=estimator.max_loss,
            cost_unit=cost_unit,
        )
        return display.plot(ax=ax, **kwargs)
