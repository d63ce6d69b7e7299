"""Decisions of a router without skroute: a copy of this file needs numpy alone.

Choices, costs and the price of every budget are exported as JSON. The quality estimator
is exported in another way, for example by skops or ONNX.
"""

import json
from pathlib import Path

import numpy as np

# Version of the exported record.
_FORMAT = 1
# Relative difference up to which two efficiencies (gain by extra cost) are tied, as
# `TIE` of skroute.
_TIE = 1e-9
# Relative error of sums of costs, as `ROUNDING` of skroute.
_ROUNDING = 1e-12


def export_policy(router, path=None):
    """Export the decision rule of a fitted router, without its estimator of quality.

    Parameters
    ----------
    router : BudgetRouter or OccamRouterClassifier or OccamRouterRegressor
        Fitted, with fixed costs.

    path : str or path-like, default=None
        A JSON file to write.

    Returns
    -------
    dict
        For :class:`PortablePolicy`. It has numbers, lists and text only.

    Raises
    ------
    ValueError
        If the router has costs per row, or asks a model before it decides.
    TypeError
        If `router` is no fitted router, or `path` no path.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.routing import BudgetRouter, PortablePolicy, export_policy
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> Q = np.column_stack([1 - X[:, 0], np.full(100, 0.9)])
    >>> costs = {"small": 1, "large": 5}
    >>> router = BudgetRouter(Ridge(), costs=costs, budget=3).fit(X, Q)
    >>> policy = PortablePolicy(export_policy(router))
    >>> quality = router.predict_quality([[0.05], [0.95]])
    >>> [policy.choices[k] for k in policy.decide(quality, budget=3)]
    ['small', 'large']
    """
    requests = None
    if hasattr(router, "choices_") and hasattr(router, "request_policy"):
        # Infinity: the policy is the same for each budget.
        requests = router.request_policy(np.inf)
    if not hasattr(requests, "policy"):
        raise TypeError(
            "router must be a fitted BudgetRouter or OCCAM router, which decides by "
            f"estimates of each choice, got {type(router).__name__}."
        )
    policy = requests.policy
    # The policy of a router that always calls one model first (FrugalMCT) has only the
    # choices after this model.
    if policy.has_row_costs or policy.planned.shape != (len(router.choices_),):
        raise ValueError(
            f"This router ({type(router).__name__}) has no price list of its choices "
            "to export."
        )
    if policy.limits is not None:
        raise ValueError(
            "limits and capacities cannot be exported: the file has the price of the "
            "budget alone. Set them to None, or deploy the pickle of the router."
        )
    record = {
        "format": _FORMAT,
        "choices": list(router.choices_),
        "costs": policy.planned.tolist(),
        "penalty": policy.penalty.tolist(),
        "deciding": policy.deciding_cost,
        "margin": policy.margin,
        "least_prices": list(policy.price_floors),
        "budgets": policy.path.budgets.tolist(),
        "prices": policy.path.prices.tolist(),
        "counts": policy.path.counts.tolist(),
    }
    if path is not None:
        Path(path).write_text(json.dumps(record), encoding="utf-8")
    return record


class PortablePolicy:
    """Decide with an exported policy, as the router does with ``policy="online"``.

    Parameters
    ----------
    record : dict
        From :func:`export_policy`, or read from its JSON file.

    Attributes
    ----------
    choices : list of str
        Names of the choices that `decide` indexes.

    costs : ndarray of shape (n_choices,)
        Cost of each choice.

    Examples
    --------
    >>> from skroute.routing import PortablePolicy
    >>> record = {"format": 1, "choices": ["small", "large"], "costs": [1.0, 5.0],
    ...           "penalty": [0.0, 0.0], "deciding": 0.0, "margin": 0.0,
    ...           "least_prices": [0.0, 0.0], "budgets": [1.0, 3.0, 5.0],
    ...           "prices": [0.2, 0.1, 0.0], "counts": [9, 9, 0]}
    >>> PortablePolicy(record).decide([[0.5, 0.9], [0.2, 0.9]], budget=3)
    array([0, 1])
    """

    def __init__(self, record):
        if record.get("format") != _FORMAT:
            raise ValueError(f"format must be {_FORMAT}, got {record.get('format')!r}.")
        self.record = record
        self.choices = list(record["choices"])
        self.costs = np.array(record["costs"])

    def price(self, budget):
        """Return the dual price of a mean budget, and the share that divides ties.

        Parameters
        ----------
        budget : float
            Mean cost per row, deciding included; ``numpy.inf`` is unlimited.

        Returns
        -------
        price : float
            The dual price.

        share : float
            Share of the tied rows that make the more expensive choice.
        """
        record = self.record
        budget = float(budget)
        if np.isnan(budget):
            raise ValueError("budget must be a number, got NaN.")
        # Smallest dual prices of cost, with a budget and without one.
        floor_with_budget, floor_without_budget = record["least_prices"]
        if budget == np.inf:
            return floor_without_budget, 0.0
        # Mean cost of the choices in the cheapest plan, the first one.
        cheapest_mean = record["budgets"][0]
        deciding = record["deciding"]
        smallest_budget = cheapest_mean + deciding
        if budget < smallest_budget * (1 - _ROUNDING):
            raise ValueError(
                f"budget={budget!r} is below the smallest feasible one, "
                f"{smallest_budget!r}."
            )
        # Mean cost that is left for the choices. The margin stays unspent.
        room = (1 - record["margin"]) * (budget - deciding)
        if room <= cheapest_mean * (1 + _ROUNDING):
            # At an infinite price each row makes its cheapest choice.
            return np.inf, 0.0
        price, share = self._price_of_room(room)
        if price < floor_with_budget:
            return floor_with_budget, 0.0
        return price, share

    def _price_of_room(self, room):
        """Return the price, and the share that divides ties, for a mean cost `room`.

        `room` is the mean cost per row without the cost of deciding.
        """
        # Budgets rise and prices fall. `prices[k]` is the price of each budget
        # from `budgets[k]` to `budgets[k + 1]`, a segment.
        budgets = np.array(self.record["budgets"])
        prices = self.record["prices"]
        # The segment that starts at the largest budget within the room.
        segment = int((budgets <= room * (1 + _ROUNDING)).sum()) - 1
        if segment >= len(prices) - 1:
            # The room pays for the last plan, which buys all that is worth anything.
            return 0.0, 0.0
        next_budget = budgets[segment + 1]
        share = (room - budgets[segment]) / (next_budget - budgets[segment])
        share = min(max(share, 0.0), 1.0)
        # `counts` has the number of rows that are tied at each price.
        if self.record["counts"][segment] == 1:
            # A single row is not divided. The price is that of the nearer budget.
            return prices[segment + round(share)], 0.0
        return prices[segment], share

    def decide(self, quality, budget, draw=None):
        """Return the index of the choice made for each row.

        Parameters
        ----------
        quality : {array-like, dataframe} of shape (n_rows, n_choices)
            Estimated quality of each choice. A frame is read by name.

        budget : float
            Mean cost per row; ``numpy.inf`` is unlimited.

        draw : array-like of shape (n_rows,), default=None
            Uniform numbers in [0, 1), which divide rows that are tied at the price.
            With None, all of them make the cheaper choice.

        Returns
        -------
        ndarray of shape (n_rows,), dtype=int64
            Index of the choice for each row.

        Raises
        ------
        ValueError
            If `quality` has NaN or another shape, or `budget` is below the cheapest
            plan.
        """
        if hasattr(quality, "columns"):
            # A data frame, with one column for each choice, found by name.
            quality = quality[self.choices]
        quality = np.asarray(quality, dtype=np.float64)
        if quality.ndim != 2 or quality.shape[1] != len(self.choices):
            raise ValueError(
                f"quality must have one column for each of {self.choices!r}, got shape "
                f"{quality.shape}."
            )
        if not np.isfinite(quality).all():
            raise ValueError("quality must be finite, and has NaN or infinity.")
        price, share = self.price(budget)
        values = quality - self.record["penalty"]
        # Rows that are tied at the price make the cheaper choice.
        route = self._best(values, price, tolerance=_TIE)
        if share and draw is not None:
            more_expensive = self._best(values, price, tolerance=-_TIE)
            route = np.where(np.asarray(draw) < share, more_expensive, route)
        return route

    def _best(self, values, price, *, tolerance):
        """Return, for each row, the choice with the best value less price times cost.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_choices)
        price : float
        tolerance : float
            Relative difference from the price at which a row is tied. If it is
            positive, ties go to the cheaper choice, and if negative, to the more
            expensive one.

        Returns
        -------
        ndarray of shape (n_rows,), dtype=int64
        """
        # Choices from the cheapest to the most expensive one.
        order = np.argsort(self.costs, kind="stable")
        costs = self.costs[order]
        rows = np.arange(len(values))
        # Best choice so far of each row, as a position in `order`.
        best = np.zeros(len(values), dtype=np.int64)
        for position in range(1, len(order)):
            gain = values[:, order[position]] - values[rows, order[best]]
            extra_cost = costs[position] - costs[best]
            least_gain = price * (1 + tolerance) * extra_cost
            # An infinite price times an extra cost of 0 is NaN: any gain is enough.
            least_gain = np.nan_to_num(least_gain, nan=0.0)
            best[(gain > 0) & (gain > least_gain)] = position
        return order[best]
