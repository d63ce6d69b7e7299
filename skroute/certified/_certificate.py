"""What was promised, as a record and as one sentence."""

import json
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class OperatingPoints(NamedTuple):
    """The candidates of a certified router, path by path, each from its safe end.

    Attributes
    ----------
    path : ndarray of shape (n_points,), dtype=int64
        Index of the candidate estimator.

    budget : ndarray of shape (n_points,)
        Budget that the estimator is called with; infinity is its unlimited plan.

    loss : ndarray of shape (n_points,)
        Mean signed loss on the evidence rows, against the reference (with several, and several
        groups, the largest).

    loss_upper : ndarray of shape (n_points,)
        Upper bound of the expected loss, each point for itself.

    cost : ndarray of shape (n_points,)
        Mean cost on the evidence rows.

    cost_upper : ndarray of shape (n_points,)
        Upper bound of the expected cost, each point for itself.

    certified : ndarray of shape (n_points,), dtype=bool
        Whether the point keeps what was asked for, all of these together.

    single : ndarray of shape (n_points,), dtype=int64
        The choice of that estimator which answers every row, -1 where the estimator decides.
        The safe end of a path is the single choice that its loss is measured against.
    """

    path: NDArray[np.int64]
    budget: NDArray[np.float64]
    loss: NDArray[np.float64]
    loss_upper: NDArray[np.float64]
    cost: NDArray[np.float64]
    cost_upper: NDArray[np.float64]
    certified: NDArray[np.bool_]
    single: NDArray[np.int64]


# Behind the name of a reference that does not say what it costs.
UNPRICED = " (its cost is not known)"


class Certificate(NamedTuple):
    """What is promised about a fitted router; ``str()`` says it in words.

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

    path : str
        Name of the candidate estimator that is used.

    operating_budget : float
        Budget that it is called with.

    loss, cost : float
        Means on the evidence rows at this operating point. They chose it, and are therefore
        a little too good.

    loss_upper, cost_upper : float
        Upper bounds of this operating point taken for itself.

    reference_cost : float
        Mean cost of the reference on the evidence rows; of the unlimited plan where the
        reference's own is not known.

    saving : float
        Share of `reference_cost` that is saved; negative where the operating point costs more.

    groups : list of str
        Groups within each of which the loss is promised; empty for all rows together.

    assumption : str
        What the promise rests on.

    n_population : int or None
        Rows of the batch that the promise is about; None for the rows to come.

    unit : str
        What the loss is counted in.

    costs : str
        Which costs are meant: those of the evidence rows' log, or the prices that the router
        itself counts with.

    single : str or None
        The choice that answers every row, where nothing cheaper is certified.

    calls : dict from str to int, or None
        What certifying has cost: answers to evidence rows that each model was asked for, those
        of the reference included. Nobody was asked twice for an answer. Empty where outcomes
        were in the log; None for a batch.

    handed : float or None
        Share of the evidence rows that are handed over instead of answered; None where none can
        be.
    """

    promised: bool
    max_loss: float | None
    budget: float | None
    confidence: float
    reference: str
    n_rows: int
    path: str
    operating_budget: float
    loss: float
    cost: float
    loss_upper: float
    cost_upper: float
    reference_cost: float
    saving: float
    groups: list[str]
    assumption: str
    n_population: int | None = None
    unit: str = ""
    costs: str = ""
    single: str | None = None
    calls: dict[str, int] | None = None
    handed: float | None = None

    def __str__(self):
        kind = "evidence" if self.n_population is None else "labelled"
        seen = f"on {self.n_rows} {kind} rows the loss was {self.loss:.3g}, the cost "
        seen += "" if self.n_population is None else "of the batch was "
        unpriced = self.reference.endswith(UNPRICED)
        seen += (
            f"{self.cost:.4g}, {abs(self.saving):.0%} {'below' if self.saving >= 0 else 'above'}"
        )
        seen += " the cost without a budget" if unpriced else " that of the reference"
        if self.single is not None:
            seen += f"; {self.single!r} answers every row"
        if self.handed is not None:
            seen += f", and {self.handed:.0%} of the rows were handed over"
        if not self.promised:
            return f"Nothing is promised: {seen}."
        parts = []
        if self.max_loss is not None:
            where = f" in each of {len(self.groups)} groups" if self.groups else ""
            if self.n_population is not None:
                where = f" on this batch of {self.n_population} rows"
            parts.append(
                f"the mean loss against {self.reference}{where} is at most {self.max_loss:g}"
                + (f" ({self.unit})" if self.unit else "")
            )
        if self.budget is not None:
            which = f" ({self.costs})" if self.costs else ""
            parts.append(f"the mean cost is at most {self.budget:g}{which}")
        return (
            f"With a confidence of {self.confidence:g}, {' and '.join(parts)}, if "
            f"{self.assumption}; {seen}."
        )

    def to_json(self):
        """The record as JSON; an unlimited operating budget is null.

        Returns
        -------
        str
        """
        record = self._asdict()
        for name, value in record.items():
            if isinstance(value, float) and not np.isfinite(value):
                record[name] = None
        return json.dumps({**record, "sentence": str(self)}, indent=1)
