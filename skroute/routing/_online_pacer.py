"""The dual price of a ceiling that is kept while beliefs, prices and choices change."""

import math
from dataclasses import dataclass

import numpy as np

# Rows that the price is solved on, and after how many requests it is solved anew.
WINDOW, EVERY = 256, 16
# Within how many requests a debt is paid back; of what was saved, no more than what so many
# requests may spend is ever spent later.
SETTLE, SAVINGS = 100, 10
# Estimated costs are at least this share of the price list's.
LEAST_RATIO = 0.1


@dataclass
class Pacer:
    """Recent requests, the books, and the price solved from both.

    Attributes
    ----------
    rows : ndarray of shape (WINDOW, n_features)
        Features of the last requests, a ring.

    base : ndarray of shape (WINDOW, n_choices, 2)
        What the prior says of their quality and cost.

    bonus : ndarray of shape (WINDOW, n_choices)
        What exploring was worth for them.

    n_rows : int
        Rows noted ever.

    n_decided : int
        Requests decided.

    debt : float
        What was spent, or is expected to have been, beyond the budget.

    spent : float
        What was spent in this horizon, or is expected to have been.

    price : float
        Quality that one unit of cost is worth.
    """

    rows: np.ndarray
    base: np.ndarray
    bonus: np.ndarray
    n_rows: int = 0
    n_decided: int = 0
    debt: float = 0.0
    spent: float = 0.0
    price: float = 0.0
    stale: bool = True


def new_pacer(n_choices, n_features):
    return Pacer(
        np.zeros((WINDOW, n_features)),
        np.zeros((WINDOW, n_choices, 2)),
        np.zeros((WINDOW, n_choices)),
    )


def note_row(pacer, x, base, bonus):
    """Keep a request in the window."""
    at = pacer.n_rows % WINDOW
    pacer.rows[at] = x
    pacer.base[at] = base
    pacer.bonus[at] = bonus
    pacer.n_rows += 1


def book(pacer, amount, budget):
    """Enter what a new request is expected to cost; savings beyond a few requests are let go."""
    pacer.spent += amount
    if math.isfinite(budget):
        pacer.debt = max(pacer.debt + amount - budget, -SAVINGS * budget)


def correct(pacer, amount):
    """Enter by how much a cost differs from what was entered."""
    pacer.spent += amount
    pacer.debt += amount


def rate_of(pacer, budget, n_expected):
    """What the next requests may cost on average.

    With a horizon, what is left of its total by the requests left (Jasin and Kumar 2012: the
    re-solving that loses a bounded amount); else the budget less the debt over `SETTLE` requests.
    """
    if n_expected is None or not np.isfinite(budget):
        return budget - pacer.debt / SETTLE
    left = n_expected - pacer.n_decided % n_expected
    return (budget * n_expected - pacer.spent) / left


def window_of(pacer, beliefs, prices, *, explore=True):
    """Values and costs (n_rows, n_choices) of the window by today's beliefs and prices."""
    n = min(pacer.n_rows, WINDOW)
    rows, base = pacer.rows[:n], pacer.base[:n]
    values = rows @ beliefs.mean[:, 0].T + base[..., 0]
    if explore:
        values += pacer.bonus[:n]
    costs = np.maximum(rows @ beliefs.mean[:, 1].T + base[..., 1], LEAST_RATIO) * prices
    return values, costs


def solve_price(rate, values, costs, usable):
    """The price at which a window of requests spends `rate` on average.

    Parameters
    ----------
    rate : float
    values, costs : ndarray of shape (n_rows, n_choices)
    usable : ndarray of shape (n_choices,), dtype=bool

    Returns
    -------
    float
    """
    from skroute.routing._kernels import price_of

    if not len(values) or rate == np.inf:
        return 0.0
    spread = np.ptp(values[:, usable])
    mean = costs[:, usable].mean()
    scale = spread / mean if spread > 0 and mean > 0 else 1.0
    return float(price_of(rate, np.ascontiguousarray(values), costs, usable, scale))


def least_of(pacer, beliefs, prices, usable):
    """Mean cost of the cheapest choices over the window."""
    _, costs = window_of(pacer, beliefs, prices)
    return float(costs[:, usable].min(axis=1).mean()) if len(costs) else 0.0
