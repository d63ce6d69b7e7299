"""When to stop buying and what to buy next, learned backwards over sets from held-out rows.

At a price of cost, the value of a larger set is what answering with it is expected to be worth,
less its price, or what going on from there is worth: backward induction as for American options,
with a mean for each bin of the answer so far in place of a regression.
"""

from typing import Any, NamedTuple

import numpy as np

from skroute.utils._tolerances import ROUNDING, SCORE_TIE

_PRICES = 40
_MOST_BINS = 24
# Rows of a bin at least.
_ROWS_OF_A_BIN = 25
STOP = -1


class Policies(NamedTuple):
    """Where rows go on to, at each of some prices.

    `prices`, the quality that a unit of cost must bring, rise; the last ends every row where it is.
    `borders` are those between the bins of the answers of each set. `tables`, each of shape
    (n_prices, n_sets, n_bins), have the set that a row buys next, or -1: the last for any number of
    rounds, or for the most, and, where purchases are limited, the ones before it for fewer.
    """

    prices: Any
    borders: list
    tables: list

    @classmethod
    def learn(cls, value, key, sets, costs, allowed, n_rounds, weight):
        """From held-out rows with weights above 0.

        `value` is what answering each row with each set is worth, and `key` what is known of the
        row there, as one number, both of shape (n_sets, n_rows). The boolean `sets` of groups are
        sorted by their costs; those `allowed` may be bought, in `n_rounds` purchases at most, None
        in any number.
        """
        prices = price_grid(np.average(value, axis=1, weights=weight), costs)
        borders = [borders_of(own) for own in key]
        n_bins = 1 + max(len(own) for own in borders)
        bins = bins_of(borders, key)
        worth, rows = (
            np.repeat(value[None], len(prices), axis=0),
            np.arange(value.shape[1]),
        )
        tables = []
        for _ in range(1 if n_rounds is None else n_rounds):
            # Without a limit, what is behind a larger set is known when a smaller one is decided.
            behind = worth if n_rounds is None else worth.copy()
            table = np.full((len(prices), len(sets), n_bins), STOP, dtype=np.int16)
            for at in range(len(sets) - 1, -1, -1):
                extra, inside = costs - costs[at], (sets[at] <= sets).all(axis=1)
                larger = np.flatnonzero(allowed & (extra > 0) & inside)
                known = value[at], bins[at], n_bins
                table[:, at] = _best(behind, *known, larger, extra, prices, weight)
                go = table[:, at][:, bins[at]]
                on = (
                    behind[np.arange(len(prices))[:, None], go, rows]
                    - prices[:, None] * extra[go]
                )
                worth[:, at] = np.where(go == STOP, value[at], on)
            tables.append(table)
        return cls(prices, borders, tables)

    def moves(self, at, key, left=None):
        """The set to buy next from one set, -1 to stop, by price and bin; and the bins of rows.

        `left` as in `ends`.
        """
        table = self.tables[-1 if left is None else left - 1]
        return table[:, at], np.searchsorted(self.borders[at], key, side="right")

    def ends(self, key, left=None):
        """The set that rows end at, at every price and from every set.

        All is known of these rows; `left` are the purchases that are left, None is any number.
        """
        n_sets, n_rows = key.shape
        bins, rows = bins_of(self.borders, key), np.arange(n_rows)
        start = np.broadcast_to(np.arange(n_sets)[:, None], key.shape)
        ends = np.repeat(start[None], len(self.prices), axis=0).astype(np.int16)
        for table in self.tables[:left]:
            behind = ends if left is None else ends.copy()
            for at in range(n_sets - 1, -1, -1):
                go = table[:, at][:, bins[at]]
                on = behind[np.arange(len(self.prices))[:, None], go, rows]
                ends[:, at] = np.where(go == STOP, at, on)
        return ends


def price_grid(value, costs):
    """Prices from none to one at which nothing is bought, from the mean value of each set."""
    spread = max(float(np.ptp(value)), 1e-9)
    unit = spread / max(
        float(costs[costs > 0].mean()) if (costs > 0).any() else 1.0, 1e-300
    )
    grid = unit * np.geomspace(1e-3, 1e2, _PRICES - 2)
    return np.concatenate([[0.0], grid, [1e12 * unit]])


def borders_of(key):
    """Borders of bins of equally many rows; rows that are alike share a bin."""
    n_bins = int(np.clip(len(key) // _ROWS_OF_A_BIN, 1, _MOST_BINS))
    rising = np.sort(key)
    cuts = np.linspace(0, len(key), n_bins, endpoint=False).astype(int)[1:]
    # Between two rows that differ by more than rounding.
    gaps = np.flatnonzero(np.diff(rising) > SCORE_TIE * max(1.0, np.abs(rising).max()))
    if not len(gaps) or not len(cuts):
        return np.empty(0)
    at = np.unique(gaps[np.minimum(np.searchsorted(gaps, cuts - 1), len(gaps) - 1)])
    return 0.5 * (rising[at] + rising[at + 1])


def bins_of(borders, key):
    """The bin of each row at each set."""
    found = [
        np.searchsorted(own, part, side="right") for own, part in zip(borders, key)
    ]
    return np.array(found, dtype=np.int64).reshape(key.shape)


def _best(behind, now, bins, n_bins, larger, extra, prices, weight):
    """The larger set with the highest mean lead over stopping, by price and bin."""
    order = np.argsort(bins, kind="stable")
    there, starts = np.unique(bins[order], return_index=True)
    total = np.add.reduceat(weight[order], starts)
    best = np.zeros((len(prices), len(there)))
    table = np.full((len(prices), n_bins), STOP, dtype=np.int16)
    for to in larger:
        lead = weight * (behind[:, to] - now)
        lead = np.add.reduceat(lead[:, order], starts, axis=1) / total
        lead = _smooth(lead - prices[:, None] * extra[to])
        better = lead > best + 1e-12
        best = np.where(better, lead, best)
        table[:, there] = np.where(better, to, table[:, there])
    return table


def _smooth(lead):
    """Averages with the neighbouring bins, which are as noisy."""
    if lead.shape[1] < 3:
        return lead
    wide = np.pad(lead, ((0, 0), (1, 1)), mode="edge")
    return 0.25 * wide[:, :-2] + 0.5 * wide[:, 1:-1] + 0.25 * wide[:, 2:]


def spend(cost, budget):
    """How a budget is spent in the mean: at one price, and by a share of the rows at a lower one.

    `cost` is the mean cost at each price; the budget is at least that at the last. The prices are
    positions.
    """
    within = cost <= budget * (1 + ROUNDING)
    price = int(np.argmax(np.where(within, cost, -np.inf)))
    if within.all():
        return price, price, 0.0
    lower = int(np.argmin(np.where(within, np.inf, cost)))
    return price, lower, float((budget - cost[price]) / (cost[lower] - cost[price]))
