"""Selection of the operating point: points that are certified, and the one in use."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

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
from skroute.utils._typing import NDArray

# The first operating point may be a single choice that answers all rows. This point is
# tested at this share of the level. If it is not certified, the other points
# are tested at the rest, nine tenths of the level.
_SINGLE_SHARE = 0.1
# Smallest level (one minus the confidence of a promise) for the exact test of losses.
# Its p-values are at least 1e-5. At smaller levels, losses are tested by betting.
_SMALLEST_EXACT_LEVEL = 1e-3


class _SafeEnd(NamedTuple):
    """An operating point that is tested first, and its loss on the evidence rows.

    Attributes
    ----------
    level : float
        Level that the point is tested at.
    upper : float
        Upper bound of its loss, for the group and the reference with the largest one.
    differences : ndarray of shape (n_rows,)
        Signed losses of the point in this group, against this reference.
    """

    level: float
    upper: float
    differences: NDArray[np.float64]


@dataclass(eq=False)
class Selection:
    """Certified operating points, and certificates, for any budget.

    In all methods an infinite `budget` stands for no promise of a cost, and `k` is the
    index of an operating point.

    Attributes
    ----------
    evidence : Evidence
    loss_range : float
        Largest possible difference of two losses of a row.
    range_is_given : bool
        True if the user gave `loss_range`.
    unit : str
        Unit of the loss.
    max_loss, max_cost, confidence, fallback
        Parameters of :class:`CertifiedRouter`.
    """

    evidence: Evidence
    loss_range: float
    range_is_given: bool
    unit: str
    max_loss: float | None
    max_cost: float | None
    confidence: float
    fallback: str
    # Cache: upper bounds of the costs of all points, by level.
    _cost_uppers: dict = field(default_factory=dict)
    # Cache: certificates by budget.
    _certificates: dict = field(default_factory=dict)

    def level(self, budget=np.inf):
        """Return the probability with which a promise may be wrong.

        It is ``1 - confidence``. If a loss and (with a finite budget) a cost are
        promised, each promise gets half of it.
        """
        level = 1 - self.confidence
        if self.max_loss is not None and np.isfinite(budget):
            return level / 2
        return level

    def path_budgets(self):
        """Return the budgets of the operating points at which rows are decided.

        If a single choice answers all rows at the first point, this point is left out.
        """
        if self.evidence.single is None:
            return self.evidence.budgets
        return self.evidence.budgets[1:]

    # Losses, tested from the first operating point on ---------------------------------

    @property
    def _difference_bounds(self):
        """Smallest and largest possible difference of two losses of a row."""
        return -self.loss_range, self.loss_range

    def _loss_method(self, level):
        """Return the name of the test for losses that may be negative.

        It is "trinomial", the exact test, or "betting". `level` is the level at which
        the test is made.
        """
        # Differences of losses are -1, 0 or 1.
        losses_are_whole = self.evidence.exact and self.loss_range == 1
        if losses_are_whole and level >= _SMALLEST_EXACT_LEVEL:
            return "trinomial"
        return "betting"

    @cached_property
    def p_values(self):
        """p-values of "some loss is above `max_loss`", of shape (n_points,).

        After the first point that is not certified, p-values are not computed: they are
        1. A single choice at index 0 does not stop the sequence.
        """
        evidence = self.evidence
        n_points = len(evidence.budgets)
        # No mean loss exceeds the range. A promise of the range needs no test.
        if self.max_loss is None or self.max_loss >= self.loss_range:
            return np.zeros(n_points)
        level = self.level()
        p_values = np.ones(n_points)
        for k in range(n_points):
            p_values[k] = self._loss_p_value(k, level)
            is_single = k == 0 and evidence.single is not None
            if p_values[k] > level and not is_single:
                break
        return p_values

    def _loss_p_value(self, k, level):
        """Return the p-value of "the loss of point `k` is above `max_loss`".

        It is the largest one over groups and references. `level` is the level at which
        it will be compared.
        """
        p_values = [
            mean_p_value(
                differences,
                self.max_loss,
                bounds=self._difference_bounds,
                method=self._loss_method(level),
            )
            for differences in self.evidence.differences(k)
        ]
        # The list is empty if the point is itself the only reference.
        return max(p_values, default=0.0)

    def _upper_bounds_of_loss(self, k, level):
        """Return an upper bound of the mean of each of ``evidence.differences(k)``.

        Each bound holds with probability ``1 - level``. The result is a list of floats.
        """
        return [
            mean_upper_bound(
                differences,
                confidence=1 - level,
                bounds=self._difference_bounds,
                method=self._loss_method(level),
            )
            for differences in self.evidence.differences(k)
        ]

    def loss_upper(self, k):
        """Return an upper bound of the loss of point `k`.

        It holds for this point with probability ``1 - self.level()``, and not for
        several points at the same time.
        """
        uppers = self._upper_bounds_of_loss(k, self.level())
        return max([self.evidence.lower_bound_of_loss(k), *uppers])

    @cached_property
    def loss_uppers(self):
        """Upper bounds of the losses of all points, computed on first access."""
        n_points = len(self.evidence.budgets)
        return np.array([self.loss_upper(k) for k in range(n_points)])

    def loss_certified(self, level):
        """Return a mask of the points whose loss is certified at a level.

        A single choice at the safe end is tested at a tenth of the level. If it is
        certified, the other points are tested at the whole level (a fallback
        procedure). Otherwise they are tested at the rest of it.

        Parameters
        ----------
        level : float
            Largest probability that a promise is wrong.

        Returns
        -------
        ndarray of shape (n_points,), dtype=bool
        """
        if self.evidence.single is None:
            return fixed_sequence_test(self.p_values, confidence=1 - level)
        # Point 0 is the single choice.
        single_certified = self.p_values[0] <= _SINGLE_SHARE * level
        level_of_others = level
        if not single_certified:
            level_of_others = (1 - _SINGLE_SHARE) * level
        others_certified = fixed_sequence_test(
            self.p_values[1:], confidence=1 - level_of_others
        )
        return np.r_[single_certified, others_certified]

    # Costs, tested from the last operating point, the cheapest, back to the first -----

    def cost_range(self):
        """Return the smallest and the largest possible cost of a row."""
        largest = self.max_cost
        if largest is None:
            largest = self.evidence.costs.max()
        if largest == 0:
            # All costs are 0. A range must have a positive width.
            largest = 1.0
        return 0.0, float(largest)

    def cost_uppers(self, level):
        """Return upper bounds of the mean costs of all points, of shape (n_points,).

        Each bound holds for its point with probability ``1 - level``. They do not hold
        for all points at the same time with this probability.
        """
        if level not in self._cost_uppers:
            bounds = self.cost_range()
            uppers = [
                mean_upper_bound(costs, bounds=bounds, confidence=1 - level)
                for costs in self.evidence.costs.T
            ]
            self._cost_uppers[level] = np.array(uppers)
        return self._cost_uppers[level]

    def promised_costs(self, budget):
        """Return the smallest cost that can be promised at each point.

        A cost is certified at a point if it is certified at all cheaper points: a fixed
        sequence from the cheap end. The result has the shape (n_points,). It is 0 at
        all points if the budget is infinite.
        """
        if not np.isfinite(budget):
            # No cost is promised, so that each point is within the budget.
            return np.zeros(len(self.evidence.budgets))
        uppers_from_cheap_end = self.cost_uppers(self.level(budget))[::-1]
        return np.maximum.accumulate(uppers_from_cheap_end)[::-1]

    def smallest_budget(self):
        """Return the smallest budget that can be promised. Infinity: there is none."""
        if not self.evidence.costs_known:
            return np.inf
        # Any finite budget serves here, because all of them have the same level.
        any_budget = np.finfo(float).max
        is_certified = self.loss_certified(self.level(any_budget))
        return self.promised_costs(any_budget)[is_certified].min(initial=np.inf)

    # The point that is used -----------------------------------------------------------

    def point(self, budget):
        """Return the index of the operating point for a budget.

        It is one of the certified points: the cheapest one if there is a `max_loss`,
        and the one of the smallest loss if there is none. If no point is certified, a
        call without a budget may fall back to the point without a budget.

        Raises
        ------
        ValueError
            If nothing can be promised and there is no fallback, or the budget is
            below the smallest one that can be promised.
        """
        is_limited = np.isfinite(budget)
        if is_limited and not self.evidence.costs_known:
            raise ValueError(
                f"budget={budget!r} cannot be promised: what calls of the wrapped "
                "estimator cost is known only after them, and differs from the prices "
                "that it decides by. Give the bills of the evidence rows as costs, or "
                "leave budget out; max_loss is promised without it."
            )
        is_certified = self.loss_certified(self.level(budget))
        if not is_certified.any():
            if self.fallback == "safe" and not is_limited:
                return self._unlimited_point()
            raise self._loss_error(budget)
        if is_limited:
            is_certified = self._within_budget(budget, is_certified)
        points = np.flatnonzero(is_certified)
        mean_cost = self.evidence.costs[:, points].mean(axis=0)
        mean_loss = self.evidence.losses[:, points].mean(axis=0)
        # np.lexsort sorts by its last key, and breaks ties by the keys before it.
        if self.max_loss is None:
            order = np.lexsort((mean_cost, mean_loss))
        else:
            order = np.lexsort((mean_loss, mean_cost))
        return int(points[order[0]])

    def _unlimited_point(self):
        """Return the index of the operating point without a budget."""
        if self.evidence.single is None:
            return 0
        # At point 0, a single choice answers all rows. Point 1 has no budget.
        return 1

    def _within_budget(self, budget, is_certified):
        """Return a mask of the certified points with a promised cost in the budget.

        `is_certified` is the mask of the points whose loss is certified. An error is
        raised if none of them is within the budget.
        """
        costs = self.promised_costs(budget)
        points = np.flatnonzero(is_certified)
        cheapest = points[np.argmin(costs[points])]
        if not affords(budget, costs[cheapest]):
            # `check_affordable` raises the error.
            advice = self._advice_on_budget(budget, int(cheapest))
            check_affordable(budget, float(costs[cheapest]), advice=advice)
        return is_certified & affords(budget, costs)

    def _advice_on_budget(self, budget, k):
        """Return a sentence: how many rows may be enough to promise a budget.

        The budget would be promised at the operating point at position `k`.
        """
        costs = self.evidence.costs[:, k]
        level = self.level(budget)
        needed = _more_rows_needed(
            budget,
            costs,
            upper=float(self.cost_uppers(level)[k]),
            bounds=self.cost_range(),
            level=level,
        )
        if np.isfinite(needed):
            more_rows = f"budget={budget!r} would need about {needed:.0f}"
        else:
            more_rows = (
                f"no number of rows would be enough: they cost {costs.mean():.4g} on "
                f"average there, which budget={budget!r} is not above"
            )
        with_loss = ""
        if self.max_loss is not None:
            with_loss = f" together with max_loss={self.max_loss!r}"
        return (
            f"That is the smallest that {len(costs)} evidence rows can "
            f"promise{with_loss}; {more_rows}."
        )

    def _safe_ends(self, level):
        """Return the one or two operating points that are tested first (`_SafeEnd`).

        `level` is the level of the promise of a loss.
        """
        # Level at which each point is tested, by its index. A single choice is point 0.
        levels = {0: level}
        if self.evidence.single is not None:
            levels = {0: _SINGLE_SHARE * level, 1: (1 - _SINGLE_SHARE) * level}
        safe_ends = []
        for k, point_level in levels.items():
            # There is at least one bound: a point that is itself the only reference is
            # always certified, and then no error is raised.
            uppers = self._upper_bounds_of_loss(k, point_level)
            worst = int(np.argmax(uppers))
            differences = self.evidence.differences(k)[worst]
            safe_ends.append(_SafeEnd(point_level, uppers[worst], differences))
        return safe_ends

    def _loss_error(self, budget):
        """Return a ValueError with the message that `max_loss` cannot be promised.

        The message has the smallest loss that can be promised. `budget` is the budget
        of the call, or infinity.
        """
        best = min(self._safe_ends(self.level(budget)), key=lambda end: end.upper)
        needed = _more_rows_needed(
            self.max_loss,
            best.differences,
            upper=best.upper,
            bounds=self._difference_bounds,
            level=best.level,
        )
        # The fallback is the plan without a budget. It needs a call without a budget.
        alternative = ', or take fallback="safe"'
        if np.isfinite(budget):
            alternative = f', or leave out budget={budget!r} and take fallback="safe"'
        advice = advice_on_loss(
            self.max_loss,
            smallest=best.upper,
            needed=needed,
            mean_loss=best.differences.mean(),
            unit="rows",
            alternative=alternative,
        )
        which_rows = ""
        if self.evidence.groups:
            which_rows = " of its smallest or worst group"
        return ValueError(
            f"max_loss={self.max_loss!r} cannot be promised with "
            f"confidence={self.confidence!r} on {len(best.differences)} evidence "
            f"rows{which_rows}. {advice}"
        )

    # Records --------------------------------------------------------------------------

    def operating_points(self, budget):
        """Return all points with their bounds (`OperatingPoints`)."""
        evidence = self.evidence
        loss_certified = self.loss_certified(self.level(budget))
        cost_certified = affords(budget, self.promised_costs(budget))
        n_points = len(evidence.budgets)
        return OperatingPoints(
            budget=evidence.budgets,
            loss=np.array([evidence.mean_loss(k) for k in range(n_points)]),
            loss_upper=self.loss_uppers,
            cost=evidence.costs.mean(axis=0),
            cost_upper=self.cost_uppers(self.level()),
            certified=loss_certified & cost_certified,
            single=evidence.single,
        )

    def certificate(self, budget):
        """Return the certificate for a budget (:class:`Certificate`)."""
        if budget not in self._certificates:
            self._certificates[budget] = self._make_certificate(budget)
        return self._certificates[budget]

    def _make_certificate(self, budget):
        """Return a new certificate for a budget."""
        evidence = self.evidence
        k = self.point(budget)
        costs = evidence.costs[:, k]
        reference, reference_cost = self._best_reference()
        is_limited = bool(np.isfinite(budget))
        has_promise = self.max_loss is not None or is_limited
        is_certified = bool(self.loss_certified(self.level(budget)).any())
        abstained_share = None
        if evidence.abstained_share.any():
            abstained_share = float(evidence.abstained_share[k])
        # Without a certified point, `k` is the point of the fallback.
        return Certificate(
            promised=is_certified and has_promise,
            max_loss=None if self.max_loss is None else float(self.max_loss),
            budget=float(budget) if is_limited else None,
            confidence=float(self.confidence),
            reference=reference,
            n_rows=len(evidence.losses),
            billed=evidence.costs_known,
            operating_budget=float(evidence.budgets[k]),
            loss=evidence.mean_loss(k),
            cost=float(costs.mean()),
            loss_upper=self.loss_upper(k),
            cost_upper=mean_upper_bound(
                costs, bounds=self.cost_range(), confidence=1 - self.level()
            ),
            reference_cost=reference_cost,
            groups=list(evidence.groups),
            assumption=self._assumption(is_limited),
            unit=self.unit,
            single=evidence.single if k == 0 else None,
            calls=dict(evidence.row_counts),
            abstained_share=abstained_share,
        )

    def _best_reference(self):
        """Return name and mean cost of the reference with the smallest mean loss."""
        evidence = self.evidence
        best = int(np.argmin(evidence.reference_losses.mean(axis=0)))
        # `reference_costs` has the references in the order of the loss columns.
        name, mean_cost = list(evidence.reference_costs.items())[best]
        if len(evidence.reference_costs) > 1:
            name = "the best single choice"
        if np.isnan(mean_cost):
            # The cost is not known. The cost without a budget, at point 0, is reported
            # in its place.
            name += UNPRICED
            mean_cost = float(evidence.costs[:, 0].mean())
        return name, mean_cost

    def _assumption(self, is_limited):
        """Return the text of the assumption of a certificate.

        `is_limited` is True if the certificate promises a cost.
        """
        evidence = self.evidence
        n_rows = len(evidence.losses)
        assumption = f"later rows are drawn as the {n_rows} evidence rows were"
        if is_limited and self.max_cost is None:
            largest = evidence.costs.max()
            assumption += (
                f" and none costs more than {largest:.4g}, the most that was seen"
            )
        if self.range_is_given and self.max_loss is not None:
            assumption += (
                f", and the losses of no row differ by more than {self.loss_range:g}"
            )
        return assumption


def _more_rows_needed(limit, values, *, upper, bounds, level):
    """Forecast how many rows are needed to promise a mean of at most `limit`.

    The distance of an upper bound from the mean falls at best as one over the number of
    rows. If the forecast by mean and standard deviation is smaller than this allows, it
    is replaced.

    Parameters
    ----------
    limit : float
        The limit that cannot be promised with these rows.
    values : ndarray of shape (n_rows,)
        Losses or costs of these rows.
    upper : float
        Upper bound of the mean by these rows, above `limit`.
    bounds : tuple of (float, float)
        Smallest and largest possible value.
    level : float
        Level of the promise.

    Returns
    -------
    float
        Infinity if no number of rows is enough.
    """
    n_rows = len(values)
    mean = float(values.mean())
    needed = rows_needed(
        float(limit),
        mean=mean,
        std=float(values.std()),
        bounds=bounds,
        confidence=1 - level,
    )
    if not np.isfinite(needed):
        return needed
    # The distance of the bound from the mean is `upper - mean` now. It must fall to
    # `limit - mean`.
    needed_by_bound = np.ceil(n_rows * (upper - mean) / (limit - mean))
    # The present rows are too few, so that at least one more is needed.
    return max(needed, needed_by_bound, n_rows + 1.0)


def advice_on_loss(max_loss, *, smallest, needed, mean_loss, unit, alternative=""):
    """Return the text of the loss that can be promised instead, with advice.

    Parameters
    ----------
    max_loss : float
        The limit that cannot be promised.
    smallest : float
        The smallest limit that can be promised.
    needed : float
        Number of rows that `max_loss` needs. Infinity if no number is enough.
    mean_loss : float
        Mean loss at the safe end of the path.
    unit : {"rows", "labels"}
        Unit of `needed`.
    alternative : str, default=""
        End of the advice.

    Returns
    -------
    str
    """
    if np.isinf(needed):
        advice = (
            f"no number of {unit} would be enough if the loss at the safe end is "
            f"{mean_loss:.3g}, as seen. Raise max_loss above it"
        )
    else:
        advice = (
            f"max_loss={max_loss!r} would need about {needed:.0f} {unit}. Give more "
            f"{unit} or a larger max_loss"
        )
    return (
        f"The smallest loss that they can promise is {smallest:.3g}; "
        f"{advice}{alternative}."
    )
