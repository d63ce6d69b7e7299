"""When to stop buying: the value of going on, learned backwards from paths of held-out rows."""

from typing import Any, NamedTuple

import numpy as np

from skroute.gating._levels import GOLDEN

_N_PRICES = 60


def calibration(confidence, right):
    """Slope and offset of the log-odds of being right, over the log-odds of the confidence."""
    from sklearn.linear_model import LogisticRegression

    if right.all() or not right.any():
        return np.array([1.0, 0.0])
    model = LogisticRegression(C=1e4).fit(log_odds(confidence)[:, None], right)
    return np.array([max(model.coef_[0, 0], 0.05), model.intercept_[0]])


def log_odds(confidence):
    """Log-odds of probabilities, finite."""
    kept = np.clip(confidence, 1e-4, 1 - 1e-4)
    return np.log(kept / (1 - kept))


def calibrated(confidence, line):
    """Probability of being right of a confidence."""
    return 1 / (1 + np.exp(-(line[0] * log_odds(confidence) + line[1])))


class StopTable(NamedTuple):
    """Price up to which it pays to go on, by the step and the confidence.

    Attributes
    ----------
    borders : ndarray of shape (n_steps, n_bins)
        Confidence at the middle of each bin, rising.
    log_price : ndarray of shape (n_steps, n_bins)
        Logarithm of the price, per unit of cost.
    """

    borders: Any
    log_price: Any

    def prices(self, step, confidence):
        """Highest price at which rows go on from their steps.

        Parameters
        ----------
        step : ndarray of shape (n_rows,), dtype=int
        confidence : ndarray of shape (n_rows,)

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        found = np.empty(len(step))
        for at in np.unique(step):
            own = step == at
            row = min(at, len(self.borders) - 1)
            found[own] = np.interp(confidence[own], self.borders[row], self.log_price[row])
        return np.exp(found)


def learn_stopping(value, costs, *, n_bins=24):
    """Price up to which it pays to go on, by backward induction over paths.

    At a price, the value of a path at a step is the larger of its value there and of what the
    rest of the path is worth, less the price of the cost; the latter is regressed on the
    confidence at the step, in bins of paths (Longstaff and Schwartz, 2001). The highest price
    at which going on is worth it is kept for each bin, so that the policies of all prices
    are nested.

    Parameters
    ----------
    value : ndarray of shape (n_paths, n_steps + 1)
        Probability of being right after each purchase.
    costs : ndarray of shape (n_paths, n_steps)
        Cost of each purchase.
    n_bins : int, default=24

    Returns
    -------
    StopTable
    """
    n_paths, n_steps = costs.shape
    n_bins = int(np.clip(n_paths // 25, 1, n_bins))
    mean_cost = max(costs.mean(), 1e-300)
    prices = np.geomspace(1e-5, 1.0, _N_PRICES) / mean_cost
    borders = np.empty((max(n_steps, 1), n_bins))
    highest = np.full((max(n_steps, 1), n_bins), prices[0] * 0.5)
    if n_steps == 0:
        borders[:] = np.linspace(0, 1, n_bins)
        return StopTable(borders, np.log(highest))
    future = np.tile(value[:, -1], (_N_PRICES, 1))
    for step in range(n_steps - 1, -1, -1):
        now = value[:, step]
        future -= prices[:, None] * costs[:, step]
        order = np.argsort(now, kind="stable")
        starts = np.linspace(0, n_paths, n_bins, endpoint=False).astype(int)
        sizes = np.diff(np.append(starts, n_paths))
        middle = np.add.reduceat(now[order], starts) / sizes
        lead = np.add.reduceat(future[:, order] - now[order], starts, axis=1) / sizes
        lead = _smooth(lead)
        goes = lead > 0
        # Bins with one confidence are one bin.
        borders[step] = np.maximum.accumulate(middle + 1e-12 * np.arange(n_bins))
        paid = np.flatnonzero(goes.any(axis=0))
        last = len(prices) - 1 - goes[::-1, paid].argmax(axis=0)
        highest[step, paid] = _crossing(prices, lead[:, paid], last)
        bin_of = np.empty(n_paths, dtype=np.int64)
        bin_of[order] = np.repeat(np.arange(n_bins), sizes)
        go_on = highest[step][bin_of][None, :] > prices[:, None]
        future = np.where(go_on, future, now)
    return StopTable(borders, np.log(highest))


def _crossing(prices, lead, last):
    """Where the lead of each bin falls to 0 behind the last price at which it is positive."""
    bins, behind = np.arange(len(last)), np.minimum(last + 1, len(prices) - 1)
    a, b = lead[last, bins], lead[behind, bins]
    with np.errstate(divide="ignore", invalid="ignore"):
        between = prices[last] + (prices[behind] - prices[last]) * a / (a - b)
    return np.where(last < behind, between, prices[-1] * 2)


def _smooth(lead):
    """Averages with the neighbouring bins."""
    if lead.shape[1] < 3:
        return lead
    wide = np.pad(lead, ((0, 0), (1, 1)), mode="edge")
    return 0.25 * wide[:, :-2] + 0.5 * wide[:, 1:-1] + 0.25 * wide[:, 2:]


class Paths(NamedTuple):
    """What held-out rows met on the way to everything bought.

    Attributes
    ----------
    confidence : ndarray of shape (n_rows, n_steps + 1)
    right : ndarray of shape (n_rows, n_steps + 1), dtype=bool
    loss : ndarray of shape (n_rows, n_steps + 1)
    costs : ndarray of shape (n_rows, n_steps)
    """

    confidence: Any
    right: Any
    loss: Any
    costs: Any

    def until(self, n_rounds):
        """The first rounds of the paths."""
        n = min(n_rounds, self.costs.shape[1])
        return Paths(
            self.confidence[:, : n + 1],
            self.right[:, : n + 1],
            self.loss[:, : n + 1],
            self.costs[:, :n],
        )


def stops(reach, price):
    """Step at which each path stops: the first that does not go on at the price."""
    stop = np.column_stack([reach <= price, np.ones(len(reach), dtype=bool)])
    return stop.argmax(axis=1)


def price_of_budget(reach, costs, budget):
    """The lowest price whose realised mean cost is within the budget.

    Parameters
    ----------
    reach : ndarray of shape (n_rows, n_steps)
        Price up to which each path goes on at each step.
    costs : ndarray of shape (n_rows, n_steps)
    budget : float

    Returns
    -------
    float
        -1 where everything can be bought.
    """
    total = np.column_stack([np.zeros(len(costs)), np.cumsum(costs, axis=1)])
    rows = np.arange(len(reach))
    if total[:, -1].mean() <= budget * (1 + 1e-12):
        return -1.0
    # The path's own price: what it must be paid at all steps before.
    lowest = np.minimum.accumulate(reach, axis=1)
    found = np.unique(lowest)
    low, high = -1, len(found) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if total[rows, stops(reach, found[middle])].mean() <= budget * (1 + 1e-12):
            high = middle
        else:
            low = middle
    return float(found[high])


# Share of a budget that may be left over, and groups of rows that are barred at most.
_LEFT = 0.005
_MOST_BARRED = 4


def at_bar(reach, barred):
    """Which reaches are among those barred, up to rounding."""
    found = np.zeros(np.shape(reach), dtype=bool)
    for value in barred:
        found |= np.abs(reach - value) <= 1e-9 * value
    return found


class Spending(NamedTuple):
    """How rows spend a budget.

    Attributes
    ----------
    price : float
    barred : tuple of float
        Reaches of rows that stop, whatever the price.
    share : float
        Share that goes on of the rows that reach up to the price itself.
    reach : ndarray of shape (n_rows, n_steps)
        That of rows that stop is negative, and that of rows that go on above the price.
    """

    price: float
    barred: tuple
    share: float
    reach: Any


def spend_budget(reach, costs, budget):
    """The price of a budget, where many rows reach up to the same one.

    After a category has been bought there are as few reaches as levels, and at the price of one of
    them a large part of the rows goes on at once. Where the budget does not pay for it, these
    rows stop, and the rest is spent on others at a lower price. Where there are none, such as
    behind three levels of a third of the rows each, it pays for a share of them.

    Parameters
    ----------
    reach, costs, budget
        As in :func:`price_of_budget`.

    Returns
    -------
    Spending
    """
    first = price, barred = price_of_budget(reach, costs, budget), ()
    rows, kept = np.arange(len(reach)), reach
    total = np.column_stack([np.zeros(len(costs)), np.cumsum(costs, axis=1)])

    def spent(reach, price):
        return total[rows, stops(reach, price)].mean()

    while 0 < price < np.inf and len(barred) < _MOST_BARRED:
        if spent(kept, price) >= budget * (1 - _LEFT):
            break
        without = np.where(at_bar(kept, (price,)), -2.0, kept)
        lower = price_of_budget(without, costs, budget)
        if not 0 < lower < price:
            break
        price, barred, kept = lower, (*barred, price), without
    if 0 < price < np.inf and spent(kept, price) < budget * (1 - _LEFT):
        price, barred = first
        tied = at_bar(reach, (price,))
        least, most = (spent(np.where(tied, own, reach), price) for own in (-2.0, np.inf))
        if most > least:
            share = float(np.clip((budget - least) / (most - least), 0, 1))
            goes = (GOLDEN * rows) % 1.0 < share
            kept = np.where(tied, np.where(goes, np.inf, -2.0)[:, None], reach)
            return Spending(price, (), share, kept)
        kept = reach
    return Spending(price, barred, 0.0, kept)
