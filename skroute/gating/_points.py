"""Operating points of a sequential buyer: what each candidate gained and cost on held-out rows."""

from typing import NamedTuple

import numpy as np

from skroute.gating._stopping import (
    calibrated,
    calibration,
    learn_stopping,
    spend_budget,
    stops,
)

ROOM = 1 + 1e-9
# Standard errors by which a policy that adapts must lead where rows are many. Of two fits on
# training rows of Covertype it was chosen at five budgets without a lead, and lost .8 points.
SURELY = 0.5
# Limits at which candidates are compared, as shares of those asked for.
NEARBY = (0.7, 0.85, 1.0, 1.2, 1.45)


class Limits(NamedTuple):
    """What a call may spend.

    Attributes
    ----------
    budget : float
        Mean cost per row.
    max_rounds : float
        Rounds of each row, infinity where unlimited.
    max_cost : float
        Cost of each row, infinity where unlimited.
    """

    budget: float
    max_rounds: float
    max_cost: float


class OperatingPoint(NamedTuple):
    """How rows are bought for within a budget, and what that was worth on held-out rows.

    Attributes
    ----------
    candidate : str
        ``"static sets"``, ``"static order"``, ``"nearest rows"`` or ``"learned gains"``.

    n_first : int
        Groups that are bought in the first round: the whole set of a static set.

    price : float
        Value that a unit of cost must have for a row to go on, in quality. -1 buys on without
        asking; infinity never does.

    cost, cost_std_error : float
        Mean realised cost of the held-out rows, and its standard error.

    quality, quality_std_error : float
        Share of the held-out rows answered correctly, and its standard error. Each half of
        these rows is answered by the candidate that the other half chooses: the rows that
        pick a candidate do not say how good it is.

    barred : tuple of float
        Prices up to which so many rows go on that the budget does not pay for them all; they
        stop, whatever the price.

    share : float
        Share that goes on of the rows that go on up to the price itself and no further: what the
        budget pays for where nearly all rows do, such as behind a category of few levels.
    """

    candidate: str
    n_first: int
    price: float
    cost: float
    cost_std_error: float
    quality: float
    quality_std_error: float
    barred: tuple = ()
    share: float = 0.0


class Outcome(NamedTuple):
    """What one candidate did on the held-out rows.

    Attributes
    ----------
    candidate, n_first, price, barred, share
        As in `OperatingPoint`.
    cost : ndarray of shape (n_rows,)
    right : ndarray of shape (n_rows,), dtype=bool
    """

    candidate: str
    n_first: int
    price: float
    cost: np.ndarray
    right: np.ndarray
    barred: tuple = ()
    share: float = 0.0


class HeldOutPath:
    """Paths of held-out rows along one policy, and the table of when to stop on it.

    Parameters
    ----------
    paths : Paths
    starts_alike : bool
        No group is free, so that nothing tells rows apart before the first purchase.
    """

    def __init__(self, paths, starts_alike):
        self.paths = paths
        self.first = int(starts_alike)
        self.line = calibration(paths.confidence.ravel(), paths.right.ravel())
        value = calibrated(paths.confidence, self.line)
        self.table = learn_stopping(value, paths.costs)
        self.reach = reach_of(self.table, value)
        # What a table is worth is seen on rows that it was not learned from.
        self.fair = np.empty_like(self.reach)
        for half in (0, 1):
            own = np.arange(len(value)) % 2 == half
            other = learn_stopping(value[~own], paths.costs[~own])
            self.fair[own] = reach_of(other, value[own])

    def reach_at(self, step, confidence):
        """Prices up to which rows go on from their steps."""
        return self.table.prices(step, calibrated(confidence, self.line))

    def _within(self, reach, limits, n_first):
        """Reach and costs of the held-out rows, ended where a limit of each row ends them."""
        costs, reach = self.paths.costs, reach.copy()
        reach[:, :n_first] = np.inf
        over = np.cumsum(costs, axis=1) > limits.max_cost * ROOM
        if np.isfinite(limits.max_rounds):
            over[:, int(max(n_first - 1, 0) + limits.max_rounds) :] = True
        ended = np.logical_or.accumulate(over, axis=1)
        return np.where(ended, -2.0, reach), np.where(ended, 0.0, costs)

    def point(self, name, limits, n_first):
        """The best point of this policy within the limits; None if its first round is too much."""
        reach, costs = self._within(self.reach, limits, n_first)
        found = spend_budget(reach, costs, limits.budget)
        reach, costs = self._within(self.fair, limits, n_first)
        fair = spend_budget(reach, costs, limits.budget)
        if np.isinf(found.price) or np.isinf(fair.price):
            return None
        stop = stops(fair.reach, fair.price)
        rows = np.arange(len(stop))
        total = np.column_stack([np.zeros(len(costs)), np.cumsum(costs, axis=1)])[rows, stop]
        right = self.paths.right[rows, stop]
        price = max(found.price, -1.0)
        return Outcome(name, n_first, price, total, right, found.barred, found.share)


def reach_of(table, value):
    """Prices up to which paths go on at each step but the last, of their values by step."""
    n, n_steps = len(value), value.shape[1] - 1
    found = [table.prices(np.full(n, step), value[:, step]) for step in range(n_steps)]
    return np.column_stack(found) if found else np.empty((n, 0))


class HeldOut:
    """What all candidates did on rows that nothing was learned from.

    Parameters
    ----------
    paths : dict of HeldOutPath
        By policy; ``"static order"`` among them.
    sets : dict of ndarray of shape (n_rows,), dtype=bool
        Whether rows were answered correctly, by the size of the set.
    set_costs : ndarray of shape (n_groups + 1,)
        Cost of the first groups of the static order.
    lead : float, default=0.0
        Standard errors by which a policy that adapts must lead what is static.
    """

    def __init__(self, paths, sets, set_costs, lead=0.0):
        self.paths, self.sets, self.set_costs, self.lead = paths, sets, set_costs, lead

    def outcomes(self, limits):
        """What every candidate does within the limits.

        Parameters
        ----------
        limits : Limits

        Returns
        -------
        list of Outcome
            The first has bought nothing.
        """
        static = self.paths["static order"]
        right = static.paths.right[:, 0]
        found = [Outcome("static order", 0, np.inf, np.zeros(len(right)), right)]
        if limits.max_rounds < 1:
            return found
        found += self._set_within(min(limits.budget, limits.max_cost) * ROOM)
        for name, path in self.paths.items():
            firsts = [path.first]
            if np.isfinite(limits.max_rounds) and name == "static order":
                n_steps = path.paths.costs.shape[1]
                firsts += [m for m in (2, 3, 4, 5, 6, 8, 10, 12, 15, 20) if m < n_steps]
            own = [path.point(name, limits, first) for first in firsts]
            own = [outcome for outcome in own if outcome is not None]
            if own:
                found.append(max(own, key=lambda outcome: outcome.right.mean()))
        return found

    def _set_within(self, most):
        """The largest set within a cost, or a smaller one that surely answers better."""
        sizes = [size for size in self.sets if self.set_costs[size] <= most]
        if not sizes:
            return []
        sizes.sort()
        chosen = sizes.pop()
        for size in reversed(sizes):
            lead = self.sets[size].astype(float) - self.sets[chosen]
            if lead.mean() > 2 * lead.std() / np.sqrt(len(lead)):
                chosen = size
        right = self.sets[chosen]
        cost = np.full(len(right), self.set_costs[chosen])
        return [Outcome("static sets", chosen, -1.0, cost, right)]

    def choose(self, limits):
        """The point of the candidate that is best on held-out rows at these and nearby limits.

        The lead of one candidate over another changes slowly with the limits, and its noise
        less so: nearby limits make the choice surer. Of equal ones the cheaper is taken.
        """
        outcomes = {outcome.candidate: outcome for outcome in self.outcomes(limits)}
        if np.isinf(limits.budget) and np.isinf(limits.max_cost):
            total = {name: outcome.right.astype(float) for name, outcome in outcomes.items()}
        else:
            total = self._near(outcomes, limits)

        def own_model(found, rows):
            """The model of its own of a set that the order buys for all, if not surely worse."""
            other = outcomes.get("static sets")
            if found.candidate != "static order" or other is None:
                return found
            lead = total[found.candidate][rows] - total[other.candidate][rows]
            sure = lead.mean() > 2 * lead.std() / np.sqrt(len(lead))
            return found if sure or (found.cost != other.cost).any() else other

        def best(rows):
            """The candidate that some rows choose; of equal ones the cheaper."""

            def worth(outcome):
                return total[outcome.candidate][rows].mean(), -outcome.cost.mean()

            if not self.lead:
                return own_model(max(outcomes.values(), key=worth), rows)
            still = [one for one in outcomes.values() if one.candidate.startswith("static")]
            found = max(still, key=worth)
            for one in sorted(outcomes.values(), key=worth, reverse=True):
                lead = total[one.candidate][rows] - total[found.candidate][rows]
                if lead.mean() > self.lead * lead.std() / np.sqrt(len(lead)):
                    return own_model(one, rows)
            return own_model(found, rows)

        chosen = best(slice(None))
        n_rows = len(chosen.right)
        right, first = np.empty(n_rows), np.arange(n_rows) % 2 == 0
        for rows in (first, ~first):
            right[rows] = (best(~rows) if (~rows).any() else chosen).right[rows]
        root = np.sqrt(max(n_rows - 1, 1))
        return OperatingPoint(
            chosen.candidate,
            int(chosen.n_first),
            float(chosen.price),
            float(chosen.cost.mean()),
            float(chosen.cost.std() / root),
            float(right.mean()),
            float(right.std() / root),
            chosen.barred,
            chosen.share,
        )

    def _near(self, outcomes, limits):
        """How often each row is answered correctly at nearby limits, by candidate."""
        total = {name: np.zeros(len(outcome.right)) for name, outcome in outcomes.items()}
        for factor in NEARBY:
            near = limits._replace(budget=limits.budget * factor, max_cost=limits.max_cost * factor)
            found = self.outcomes(near)
            right = {outcome.candidate: outcome.right for outcome in found}
            for name, counted in total.items():
                counted += right.get(name, found[0].right)
        return total
