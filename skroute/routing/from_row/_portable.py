"""The decisions of a router where skroute is not installed: this file needs numpy alone.

Choices, costs and the price of every budget travel as JSON. The quality estimator travels by
another way, for example skops or ONNX.
"""

import json
from pathlib import Path

import numpy as np

_FORMAT = 1
# Efficiencies that differ by less, relatively, are tied; sums are exact to this.
_TIE, _ROUNDING = 1e-9, 1e-12


def export_policy(router, path=None):
    """Export the decision rule of a fitted router, without its estimator of quality.

    Parameters
    ----------
    router : BudgetRouter or OccamRouterClassifier or OccamRouterRegressor
        Fitted, with costs that are fixed.

    path : str or path-like, default=None
        A JSON file to write.

    Returns
    -------
    dict
        For :class:`PortablePolicy`; numbers, lists and text only.

    Raises
    ------
    ValueError
        For a router with costs per row, or one that asks a model before it decides.
    TypeError
        For what is no fitted router, or a path that is none.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.routing import BudgetRouter, PortablePolicy, export_policy
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> Q = np.column_stack([1 - X[:, 0], np.full(100, 0.9)])
    >>> router = BudgetRouter(Ridge(), costs={"small": 1, "large": 5}, budget=3).fit(X, Q)
    >>> policy = PortablePolicy(export_policy(router))
    >>> quality = router.predict_quality([[0.05], [0.95]])
    >>> [policy.choices[k] for k in policy.decide(quality, budget=3)]
    ['small', 'large']
    """
    if not hasattr(router, "choices_") or not hasattr(router, "_policy"):
        raise TypeError(
            "router must be a fitted BudgetRouter or OCCAM router, which decides by estimates of "
            f"each choice, got {type(router).__name__}."
        )
    policy = router._policy()
    if policy.per_row or policy.planned.shape != (len(router.choices_),):
        raise ValueError(
            f"This router ({type(router).__name__}) has no price list of its choices to export."
        )
    record = {
        "format": _FORMAT,
        "choices": list(router.choices_),
        "costs": policy.planned.tolist(),
        "penalty": policy.penalty.tolist(),
        "deciding": policy.deciding,
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
        What `decide` indexes.

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
        """Price of a mean budget, and the share of tied rows that take the more expensive choice.

        Parameters
        ----------
        budget : float
            Mean cost per row, deciding included; ``numpy.inf`` is unlimited.

        Returns
        -------
        price : float

        share : float
        """
        record, budget = self.record, float(budget)
        budgets, prices = np.array(record["budgets"]), record["prices"]
        least_price = record["least_prices"][budget == np.inf]
        if budget == np.inf:
            return least_price, 0.0
        smallest = budgets[0] + record["deciding"]
        if budget < smallest * (1 - _ROUNDING):
            raise ValueError(
                f"budget={budget!r} is below the smallest feasible one, {smallest!r}."
            )
        room = (1 - record["margin"]) * (budget - record["deciding"])
        if budget <= smallest * (1 + _ROUNDING) or room <= budgets[0] * (1 + _ROUNDING):
            return np.inf, 0.0
        k = int((budgets <= room * (1 + _ROUNDING)).sum()) - 1
        price, share = 0.0, 0.0
        if k < len(prices) - 1:
            share = min(
                max((room - budgets[k]) / (budgets[k + 1] - budgets[k]), 0.0), 1.0
            )
            alone = record["counts"][k] == 1
            price, share = (
                (prices[k + round(share)], 0.0) if alone else (prices[k], share)
            )
        return (price, share) if price >= least_price else (least_price, 0.0)

    def decide(self, quality, budget, draw=None):
        """Index of the choice made for each row.

        Parameters
        ----------
        quality : array-like of shape (n_rows, n_choices)
            Estimated quality of each choice.

        budget : float
            Mean cost per row.

        draw : array-like of shape (n_rows,), default=None
            Uniform numbers in [0, 1), which divide rows that are tied at the price. None sends
            them to the cheaper choice.

        Returns
        -------
        ndarray of shape (n_rows,), dtype=int64
        """
        price, share = self.price(budget)
        values = np.asarray(quality, dtype=np.float64) - self.record["penalty"]
        route = self._best(values, price, _TIE)
        if share and draw is not None:
            more = self._best(values, price, -_TIE)
            route = np.where(np.asarray(draw) < share, more, route)
        return route

    def _best(self, values, price, tolerance):
        """Each row's best value less price times cost; ties to the cheaper, or with a negative
        tolerance to the more expensive choice."""
        order = np.argsort(self.costs, kind="stable")
        costs = self.costs[order]
        found = np.zeros(len(values), dtype=np.int64)
        for k in range(1, len(order)):
            gain = values[:, order[k]] - values[np.arange(len(values)), order[found]]
            worth = price * (1 + tolerance) * (costs[k] - costs[found])
            found[(gain > 0) & (gain > np.nan_to_num(worth, nan=0.0))] = k
        return order[found]
