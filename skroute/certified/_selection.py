"""Which operating points the evidence vouches for, and the one that is taken."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from skroute.base import affords, check_affordable
from skroute.certified._certificate import UNPRICED, Certificate, OperatingPoints
from skroute.certified._evidence import Evidence
from skroute.guarantees import (
    fixed_sequence_test,
    mean_p_value,
    mean_upper_bound,
    rows_needed,
)

# Share of the level that is for the single choice at the safe end.
_END_SHARE = 0.1


@dataclass(eq=False)
class Selection:
    """Certified operating points for any budget.

    Attributes
    ----------
    evidence : Evidence
    loss_range : float
        What two losses of a row can differ by at most.
    asserted : bool
        Whether the user says so.
    unit : str
        Of the loss.
    max_loss, max_cost, confidence, fallback
        Parameters of :class:`CertifiedRouter`.
    """

    evidence: Evidence
    loss_range: float
    asserted: bool
    unit: str
    max_loss: float | None
    max_cost: float | None
    confidence: float
    fallback: str
    # By level the upper bound of the cost of each operating point, and certificates by budget.
    _cost_bounds: dict = field(default_factory=dict)
    _certificates: dict = field(default_factory=dict)

    def level(self, budget=np.inf):
        """Level of one promise: half of it each where both are made."""
        both = self.max_loss is not None and np.isfinite(budget)
        return (1 - self.confidence) / (1 + both)

    # Losses, from the safe end --------------------------------------------------------

    def _options(self, level):
        """How losses are bounded: exactly where they are 0 and 1, else by betting.

        The exact test gives no p-value below a hundred-thousandth, and is left where that matters.
        """
        span = self.loss_range
        exact = self.evidence.exact and span == 1 and level >= 1e-3
        return {"bounds": (-span, span), "method": "trinomial" if exact else "betting"}

    @cached_property
    def p_values(self):
        """p-values of "some loss is above max_loss" at each point; 1 behind the first that fails.

        Nobody asks for those behind; that of a single choice at the end stops nothing.
        """
        evidence, max_loss, level = self.evidence, self.max_loss, self.level()
        # A promise at the end of the range is true without a test.
        if max_loss is None or max_loss >= self.loss_range:
            return np.zeros(len(evidence.budgets))
        found, options = np.ones(len(evidence.budgets)), self._options(level)
        for k in range(len(found)):
            parts = evidence.differences(k)
            found[k] = max(
                (mean_p_value(part, max_loss, **options) for part in parts), default=0.0
            )
            if found[k] > level and (k > 0 or evidence.single is None):
                break
        return found

    def _loss_bounds(self, k, level):
        """Upper bounds of the loss of one operating point, in each group and by each reference."""
        options = {"confidence": 1 - level, **self._options(level)}
        return [
            mean_upper_bound(part, **options) for part in self.evidence.differences(k)
        ]

    def loss_upper(self, k):
        """Upper bound of the loss of one operating point, taken for itself."""
        return max([self.evidence.least_loss(k), *self._loss_bounds(k, self.level())])

    @cached_property
    def loss_uppers(self):
        """Those of all operating points, which nobody but a reader of them needs."""
        return np.array([self.loss_upper(k) for k in range(len(self.evidence.budgets))])

    def sequence(self, level):
        """Which points are certified at a level, from the safe end.

        A single choice at the end has a tenth of the level, which the others get back once it
        is certified, as in a fallback procedure; the reference itself needs none of it.
        """
        if self.evidence.single is None:
            return fixed_sequence_test(self.p_values, confidence=1 - level)
        end = self.p_values[0] <= _END_SHARE * level
        level = level if end else (1 - _END_SHARE) * level
        return np.r_[end, fixed_sequence_test(self.p_values[1:], confidence=1 - level)]

    # Costs, from the cheap end --------------------------------------------------------

    def cost_range(self):
        """The smallest and the largest cost of a row."""
        return 0.0, float(self.max_cost or self.evidence.costs.max() or 1.0)

    def cost_upper(self, level):
        """Upper bound of the cost of each operating point, computed when a budget asks."""
        if level not in self._cost_bounds:
            options = {"bounds": self.cost_range(), "confidence": 1 - level}
            costs = self.evidence.costs.T
            self._cost_bounds[level] = np.array(
                [mean_upper_bound(c, **options) for c in costs]
            )
        return self._cost_bounds[level]

    def certified(self, budget):
        """Loss certified at each point, and the cost that is promised there."""
        level = self.level(budget)
        loss = self.sequence(level)
        if not np.isfinite(budget):
            return loss, np.zeros(len(loss))
        # From the cheap end a cost is certified if all before it are.
        return loss, np.maximum.accumulate(self.cost_upper(level)[::-1])[::-1]

    # The point that is taken ----------------------------------------------------------

    def point(self, budget):
        """Index of the operating point for a budget; raises where nothing can be promised."""
        if np.isfinite(budget) and not self.evidence.costs_known:
            raise ValueError(
                f"budget={budget!r} cannot be promised: what calls of the wrapped estimator cost "
                "is known only after them, and differs from the prices that it decides by. Leave "
                "budget out; max_loss is promised without it."
            )
        loss, cost = self.certified(budget)
        if not loss.any():
            if self.fallback == "safe" and not np.isfinite(budget):
                return int(self.evidence.single is not None)
            self._refuse_loss(budget)
        if np.isfinite(budget):
            least = np.flatnonzero(loss)[np.argmin(cost[loss])]
            if not affords(budget, cost[least]):
                advice = self._advice_on_budget(budget, int(least))
                check_affordable(budget, float(cost[least]), advice=advice)
            loss = loss & affords(budget, cost)
        points = np.flatnonzero(loss)
        mean_cost = self.evidence.costs[:, points].mean(axis=0)
        mean_loss = self.evidence.losses[:, points].mean(axis=0)
        keys = (
            (mean_cost, mean_loss) if self.max_loss is None else (mean_loss, mean_cost)
        )
        return int(points[np.lexsort(keys)[0]])

    def _advice_on_budget(self, budget, k):
        """What the budget asked for would take, at the cheapest point that may be taken."""
        costs, level = self.evidence.costs[:, k], self.level(budget)
        beside = "" if self.max_loss is None else f" beside max_loss={self.max_loss!r}"
        upper = float(self.cost_upper(level)[k])
        needed = _more_rows_needed(budget, costs, upper, self.cost_range(), level)
        more = (
            f"budget={budget!r} would need about {needed:.0f}"
            if np.isfinite(needed)
            else f"no number of rows would be enough: they cost {costs.mean():.4g} on average "
            f"there, which budget={budget!r} is not above"
        )
        return f"That is the smallest that {len(costs)} evidence rows can promise{beside}; {more}."

    def _refuse_loss(self, budget):
        """Say what these rows can promise, and what the loss asked for would take."""
        evidence, max_loss, level = self.evidence, self.max_loss, self.level(budget)
        # Where the path may begin, and the level that `sequence` has for it there.
        starts = {0: level}
        if evidence.single is not None:
            starts = {0: _END_SHARE * level, 1: (1 - _END_SHARE) * level}
        bounds = {k: self._loss_bounds(k, level) for k, level in starts.items()}
        best = min(bounds, key=lambda k: max(bounds[k]))
        level, upper = starts[best], max(bounds[best])
        worst = evidence.differences(best)[int(np.argmax(bounds[best]))]
        span = self._options(level)["bounds"]
        needed = _more_rows_needed(max_loss, worst, upper, span, level)
        # A plan without a budget, which the fallback is, keeps none.
        without = f"leave out budget={budget!r} and " if np.isfinite(budget) else ""
        where = " of its smallest or worst group" if evidence.groups else ""
        or_else = f', or {without}take fallback="safe"'
        found = smallest_loss(max_loss, upper, needed, worst.mean(), "rows", or_else)
        raise ValueError(
            f"max_loss={max_loss!r} cannot be promised with confidence={self.confidence!r} "
            f"on {len(worst)} evidence rows{where}. {found}"
        )

    # Records --------------------------------------------------------------------------

    def operating_points(self, budget):
        """All points with their bounds (OperatingPoints)."""
        loss, cost = self.certified(budget)
        evidence = self.evidence
        return OperatingPoints(
            evidence.budgets,
            np.array([evidence.mean_loss(k) for k in range(len(loss))]),
            self.loss_uppers,
            evidence.costs.mean(axis=0),
            self.cost_upper(self.level()),
            loss & affords(budget, cost),
            evidence.single,
        )

    def certificate(self, budget):
        """What is promised for a budget (:class:`Certificate`)."""
        if budget not in self._certificates:
            self._certificates[budget] = self._certificate(budget)
        return self._certificates[budget]

    def _certificate(self, budget):
        evidence, max_loss = self.evidence, self.max_loss
        k, limited = self.point(budget), bool(np.isfinite(budget))
        promised = bool(self.certified(budget)[0].any()) and (
            max_loss is not None or limited
        )
        best = int(np.argmin(evidence.references.mean(axis=0)))
        reference, reference_cost = list(evidence.reference_costs.items())[best]
        if len(evidence.reference_costs) > 1:
            reference = "the best single choice"
        if np.isnan(reference_cost):
            reference += UNPRICED
            reference_cost = float(evidence.costs[:, 0].mean())
        n, costs = len(evidence.losses), evidence.costs[:, k]
        assumption = f"later rows are drawn as the {n} evidence rows were"
        if limited and self.max_cost is None:
            most = evidence.costs.max()
            assumption += (
                f" and none costs more than {most:.4g}, the most that was seen"
            )
        if self.asserted and max_loss is not None:
            assumption += (
                f", and the losses of no row differ by more than {self.loss_range:g}"
            )
        options = {"bounds": self.cost_range(), "confidence": 1 - self.level()}
        return Certificate(
            promised=promised,
            max_loss=None if max_loss is None else float(max_loss),
            budget=float(budget) if limited else None,
            confidence=float(self.confidence),
            reference=reference,
            n_rows=n,
            operating_budget=float(evidence.budgets[k]),
            loss=evidence.mean_loss(k),
            cost=float(costs.mean()),
            loss_upper=self.loss_upper(k),
            cost_upper=mean_upper_bound(costs, **options),
            reference_cost=reference_cost,
            groups=list(evidence.groups),
            assumption=assumption,
            unit=self.unit,
            single=evidence.single if k == 0 else None,
            calls=dict(evidence.calls),
            abstained_share=float(evidence.abstained_share[k])
            if evidence.abstained_share.any()
            else None,
        )


def _more_rows_needed(limit, values, upper, bounds, level):
    """About how many rows promise a mean within `limit`, where these values do not.

    `upper` is what they promise, above `limit`. A bound comes down to the mean at best as one over
    the number of rows: a forecast below that, from mean and spread alone, is not believed.
    """
    n, mean, std = len(values), float(values.mean()), float(values.std())
    needed = rows_needed(
        float(limit), mean=mean, std=std, bounds=bounds, confidence=1 - level
    )
    if not np.isfinite(needed):
        return needed
    return max(needed, np.ceil(n * (upper - mean) / (limit - mean)), n + 1.0)


def smallest_loss(max_loss, upper, needed, seen, rows, or_else=""):
    """What these rows, or labels, can promise, and how many of them `max_loss` would take."""
    more = f"max_loss={max_loss!r} would need about {needed:.0f} {rows}. "
    more += f"Give more {rows} or a larger max_loss"
    if np.isinf(needed):
        more = f"no number of {rows} would be enough if the loss at the safe end is {seen:.3g}, as "
        more += "seen. Raise max_loss above it"
    return f"The smallest loss that they can promise is {upper:.3g}; {more}{or_else}."
