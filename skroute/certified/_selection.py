"""Which operating points the evidence vouches for, and the one that is taken."""

from typing import NamedTuple

import numpy as np

from skroute.base import affords, check_affordable
from skroute.certified._certificate import UNPRICED, Certificate, OperatingPoints
from skroute.certified._evidence import (
    differences,
    loss_bound,
    loss_method,
    loss_p_values,
    losses_of_points,
    seen_loss,
)
from skroute.certified._monitor import ChoicePromise
from skroute.guarantees import fixed_sequence_test, mean_upper_bound, rows_needed
from skroute.utils._handing import is_handing

# Share of the level of a path that is for the single choice at its safe end.
_END_SHARE = 0.1

UNBILLED = (
    "budget={budget!r} cannot be promised: the budget of the wrapped router is one of what calls "
    "have cost, by the log that it was fitted on, and of the evidence rows that is not known. Give "
    "costs, what each choice has cost on each of these rows, to fit or recertify."
)


class Asked(NamedTuple):
    """What is to be promised; most fields are parameters of :class:`CertifiedRouter`.

    `unit` is that of the loss, whose range is `asserted` where the user gave it; evidence is
    `billed` where its costs are logged ones, and `unbilled` where they would have to be. `calls`
    are the answers that were asked for, by model.
    """

    max_loss: float | None
    loss_range: float
    max_cost: float | None
    confidence: float
    fallback: str
    unit: str = ""
    asserted: bool = False
    billed: bool = False
    unbilled: bool = False
    calls: dict[str, int] | None = None


class Selection:
    """Certified operating points for any budget.

    Parameters
    ----------
    evidence : Evidence
    names : list of str
        Of the paths.
    asked : Asked
    choices : list of list of str
        Of each path.
    """

    def __init__(self, evidence, names, asked, choices):
        self.evidence = evidence
        ends = zip(evidence.path.tolist(), evidence.single.tolist())
        self.singles = {path: choices[path][j] for path, j in ends if j >= 0}
        self.names = names
        self.asked = asked
        self.hands = np.array([is_handing(name) for path in choices for name in path])
        self.p_loss = loss_p_values(evidence, asked.max_loss, asked.loss_range, self.level())
        # By level: upper bound of the cost of each operating point.
        self.cost_bounds = {}

    def level(self, budget=np.inf):
        """Level of one promise along one path."""
        split = 1 + (self.asked.max_loss is not None and np.isfinite(budget))
        return (1 - self.asked.confidence) / len(self.names) / split

    def cost_upper(self, level):
        """Upper bound of the cost of each operating point, computed when a budget asks."""
        if level not in self.cost_bounds:
            costs = self.evidence.costs
            bounds = self.cost_range()
            upper = np.empty(costs.shape[1])
            for k in range(len(upper)):
                same = k and np.array_equal(costs[:, k], costs[:, k - 1])
                upper[k] = (
                    upper[k - 1]
                    if same
                    else mean_upper_bound(costs[:, k], bounds=bounds, confidence=1 - level)
                )
            self.cost_bounds[level] = upper
        return self.cost_bounds[level]

    def certified(self, budget):
        """Loss certified at each point, and the cost that is promised there."""
        level, path = self.level(budget), self.evidence.path
        loss, cost = np.zeros(len(path), dtype=bool), np.zeros(len(path))
        for k in range(len(self.names)):
            rows = np.flatnonzero(path == k)
            loss[rows] = self.sequence(rows, level)
            if np.isfinite(budget):
                # From the cheap end a cost is certified if all before it are.
                upper = self.cost_upper(level)[rows][::-1]
                cost[rows] = np.maximum.accumulate(upper)[::-1]
        return loss, cost

    def sequence(self, rows, level):
        """Which points of one path are certified at a level, from its safe end.

        The single choice at the end has a tenth of the level, which the others get back once it
        is certified, as in a fallback procedure; the reference itself needs none of it.
        """
        if self.evidence.single[rows[0]] < 0:
            return fixed_sequence_test(self.p_loss[rows], confidence=1 - level)
        end = self.p_loss[rows[0]] <= _END_SHARE * level
        level = level if end else (1 - _END_SHARE) * level
        return np.r_[end, fixed_sequence_test(self.p_loss[rows[1:]], confidence=1 - level)]

    def _levels_of_starts(self, level):
        """Where each path may begin, with the level that `sequence` has for it there."""
        found = {}
        for first in np.flatnonzero(np.r_[True, np.diff(self.evidence.path) != 0]).tolist():
            if self.evidence.single[first] < 0:
                found[first] = level
            else:
                found[first], found[first + 1] = _END_SHARE * level, (1 - _END_SHARE) * level
        return found

    def point(self, budget):
        """Index of the operating point for a budget; raises where nothing can be promised."""
        if np.isfinite(budget) and self.asked.unbilled:
            raise ValueError(UNBILLED.format(budget=budget))
        loss, cost = self.certified(budget)
        if not loss.any():
            if self.asked.fallback == "safe" and not np.isfinite(budget):
                return int(np.argmax(self.evidence.single < 0))
            self.refuse_loss(budget)
        if np.isfinite(budget):
            least = np.flatnonzero(loss)[np.argmin(cost[loss])]
            if not affords(budget, cost[least]):
                advice = self.advice_on_budget(budget, int(least))
                check_affordable(budget, float(cost[least]), advice=advice)
            loss = loss & affords(budget, cost)
        points = np.flatnonzero(loss)
        mean_cost = self.evidence.costs[:, points].mean(axis=0)
        mean_loss = self.evidence.losses[:, points].mean(axis=0)
        first, then = (
            (mean_loss, mean_cost) if self.asked.max_loss is None else (mean_cost, mean_loss)
        )
        return int(points[np.lexsort((then, first))[0]])

    def vouches(self, budget):
        """Whether some point keeps `max_loss`, if it was asked for."""
        return bool(self.certified(budget)[0].any())

    def advice_on_budget(self, budget, k):
        """What the budget asked for would take, at the cheapest point that may be taken."""
        costs, level = self.evidence.costs[:, k], self.level(budget)
        beside = "" if self.asked.max_loss is None else f" beside max_loss={self.asked.max_loss!r}"
        upper = float(self.cost_upper(level)[k])
        needed = more_rows_needed(budget, costs, upper, self.cost_range(), level)
        more = (
            f"budget={budget!r} would need about {needed:.0f}"
            if np.isfinite(needed)
            else f"no number of rows would be enough: they cost {costs.mean():.4g} on average "
            f"there, which budget={budget!r} is not above"
        )
        return f"That is the smallest that {len(costs)} evidence rows can promise{beside}; {more}."

    def cost_range(self):
        """The smallest and the largest cost of a row."""
        return 0.0, float(self.asked.max_cost or self.evidence.costs.max() or 1.0)

    def refuse_loss(self, budget):
        """Say what these rows can promise, and what the loss asked for would take."""
        evidence = self.evidence
        levels = self._levels_of_starts(self.level(budget))
        possible = {
            k: loss_bound(evidence, k, self.asked.loss_range, level) for k, level in levels.items()
        }
        best = min(possible, key=possible.__getitem__)
        level = levels[best]
        parts = differences(evidence, best)
        bounds = (-self.asked.loss_range, self.asked.loss_range)
        method = loss_method(evidence, self.asked.loss_range, self.level())
        options = {"bounds": bounds, "confidence": 1 - level, "method": method}
        upper = [mean_upper_bound(part, **options) for part in parts]
        worst = parts[int(np.argmax(upper))]
        needed = more_rows_needed(float(self.asked.max_loss), worst, max(upper), bounds, level)
        where = " of its smallest or worst group" if evidence.group_names else ""
        more = (
            f"max_loss={self.asked.max_loss!r} would need about {needed:.0f}"
            if np.isfinite(needed)
            else f"no number of rows would be enough: the loss seen at the safe end is "
            f"{worst.mean():.3g}, which max_loss={self.asked.max_loss!r} is not above"
        )
        # A plan without a budget, which the fallback is, keeps none.
        without = f"leave out budget={budget!r} and " if np.isfinite(budget) else ""
        raise ValueError(
            f"max_loss={self.asked.max_loss!r} cannot be promised with "
            f"confidence={self.asked.confidence!r} on {len(worst)} evidence rows{where}. "
            f"The smallest loss that they can promise is {possible[best]:.3g}; {more}. "
            f'Give more rows, raise max_loss, or {without}take fallback="safe".'
        )

    def least(self):
        """The smallest budget that can be promised; infinity where none can."""
        finite = np.finfo(float).max
        if self.asked.unbilled:
            return np.inf
        loss, cost = self.certified(finite)
        return float(cost[loss].min(initial=np.inf))

    def operating_points(self, budget):
        """All candidates with their bounds (:class:`OperatingPoints`)."""
        loss, cost = self.certified(budget)
        one = self.asked.loss_range, self.level()
        return OperatingPoints(
            self.evidence.path,
            self.evidence.budget,
            losses_of_points(self.evidence),
            np.array([loss_bound(self.evidence, k, *one) for k in range(len(loss))]),
            self.evidence.costs.mean(axis=0),
            self.cost_upper(self.level()),
            loss & (affords(budget, cost) if np.isfinite(budget) else True),
            self.evidence.single,
        )

    def choice_of(self, k):
        """Name of the choice that answers all rows at a point; None where the path decides."""
        return None if self.evidence.single[k] < 0 else self.singles[int(self.evidence.path[k])]

    def of_choices(self, budget, choices):
        """Upper bounds of cost and loss of each choice on the rows that it answers.

        They hold together with the confidence of the certificate, whatever operating point of
        the paths the evidence has chosen. Only choices of the path in use, and of these only
        what these rows can say, are named.

        Returns
        -------
        dict from str to ChoicePromise
        """
        evidence, k = self.evidence, self.point(budget)
        on_path = int((evidence.path == evidence.path[k]).sum())
        level = (1 - self.asked.confidence) / len(choices) / on_path / len(self.names) / 2
        range_, found = self.asked.loss_range, {}
        for j, name in enumerate(choices):
            rows = np.flatnonzero(evidence.routes[:, k] == j)
            if not len(rows):
                continue
            against = evidence.losses[rows, [k] * len(rows)][:, None] - evidence.references[rows]
            loss = cost = None
            if self.asked.max_loss is not None:
                method, bounds = loss_method(evidence, range_, level), (-range_, range_)
                loss = max(
                    mean_upper_bound(part, bounds=bounds, confidence=1 - level, method=method)
                    for part in np.ascontiguousarray(against.T)
                )
                loss = None if loss >= range_ else loss
            most = self.cost_range()
            cost = mean_upper_bound(evidence.costs[rows, k], bounds=most, confidence=1 - level)
            found[name] = ChoicePromise(loss, None if cost >= most[1] else cost)
        return {name: of for name, of in found.items() if of != (None, None)}

    def certificate(self, budget):
        """What is promised for a budget (:class:`Certificate`)."""
        evidence = self.evidence
        k = self.point(budget)
        promised = bool(self.certified(budget)[0].any())
        promised = promised and (self.asked.max_loss is not None or np.isfinite(budget))
        best = int(np.argmin(evidence.references.mean(axis=0)))
        one = len(evidence.reference_names) == 1
        against = evidence.reference_names[0] if one else "the best single choice"
        reference_cost = float(evidence.reference_costs[best])
        if np.isnan(reference_cost):
            against += UNPRICED
            reference_cost = float(evidence.costs[:, 0].mean())
        cost = float(evidence.costs[:, k].mean())
        n = len(evidence.losses)
        assumption = f"later rows are drawn as the {n} evidence rows were"
        if np.isfinite(budget) and self.asked.max_cost is None:
            most = evidence.costs.max()
            assumption += f" and none costs more than {most:.4g}, the most that was seen"
        if self.asked.asserted and self.asked.max_loss is not None:
            assumption += (
                f", and the losses of no row differ by more than {self.asked.loss_range:g}"
            )
        return Certificate(
            bool(promised),
            None if self.asked.max_loss is None else float(self.asked.max_loss),
            float(budget) if np.isfinite(budget) else None,
            float(self.asked.confidence),
            against,
            n,
            self.names[evidence.path[k]],
            float(evidence.budget[k]),
            seen_loss(evidence, k),
            cost,
            loss_bound(evidence, k, self.asked.loss_range, self.level()),
            mean_upper_bound(
                evidence.costs[:, k],
                bounds=self.cost_range(),
                confidence=1 - self.level(),
            ),
            reference_cost,
            1 - cost / reference_cost if reference_cost > 0 else 0.0,
            list(evidence.group_names),
            assumption,
            unit=self.asked.unit,
            costs="as logged" if self.asked.billed else "by the router's own prices",
            single=self.choice_of(k),
            calls=dict(self.asked.calls or {}),
            handed=float(self.hands[evidence.routes[:, k]].mean()) if self.hands.any() else None,
        )


def more_rows_needed(limit, values, upper, bounds, level):
    """About how many rows promise a mean within `limit`, where these values do not.

    `upper` is what they promise, above `limit`. A bound comes down to the mean at best as one over
    the number of rows: a forecast below that, from mean and spread alone, is not believed.
    """
    n, mean = len(values), float(values.mean())
    needed = rows_needed(
        limit, mean=mean, std=float(values.std()), bounds=bounds, confidence=1 - level
    )
    if not np.isfinite(needed):
        return needed
    return max(needed, np.ceil(n * (upper - mean) / (limit - mean)), n + 1.0)
