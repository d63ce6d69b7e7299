"""Decide by an exported policy, with numpy alone. Copy this file to wherever it is needed.

The format, JSON, version 1. A policy has the names of its ``choices``, what a call of each
``costs`` and what ``deciding`` on a row costs, by how much each choice's quality is
``docked``, and the price of every mean budget: ``prices[k]`` from ``budgets[k]`` up (budgets
without `deciding`); where ``counts[k]`` is 1, a single row changes there, the next price serves
from the middle on. Rows have ``n_features`` numbers, of the columns ``feature_names`` where there
are some, all finite but for NaN where it may be ``missing``. The quality of each choice comes from
``steps``, applied to the rows in turn (``x * scale + shift``, cut to ``clip`` if there is one), and
a ``predictor``:

- ``linear``: ``x @ coef.T + intercept``
- ``trees``: the mean of trees; at a node go left if ``float32(x[feature]) <= threshold``, or if
  it is NaN and ``missing_left``; a leaf has feature -1 and a row of ``value``
- ``subsets``: the mean over subsets (``starts``) of the outcome of the nearest of their ``rows``
- ``nearest``: the outcomes of all rows by distance, with ``weights``; equal distances share theirs
- ``closest``: the mean outcome of the ``k`` nearest rows, of equally near ones the first
- ``similar``: ``exp(-gamma * squared distance)`` to each of ``rows``, ``@ coef.T + intercept``
- ``stacked``: the sum of ``parts``, each a predictor ``times`` a number, that see the ``columns``
  (null: all) of rows in single precision on their own ``scale``: ``standard`` is
  ``(x - centre) / spread``, ``plain`` is ``x / unit``, both cut to 1e18 in size, and ``cosine`` is
  plain rows of length one. The sum, in single precision, is added to ``mean``, corrected by
  interpolation between the ``knots`` of each choice, rounded to multiples of ``step`` (null: not),
  and cut to the range ``low`` to ``high``. Of each triple in ``above``, a choice, others and a
  number, the choice is then at least a ``step`` above the best of the others, on rows where that
  one is ahead by at most the number, one triple after the other
- ``changed``: the choices of predictor ``of`` and, behind them, ``added`` ones: of the ``columns``
  of `of`, ``x @ coef + intercept``, cut to the range ``low`` to ``high``, less ``caution`` times
  the length of ``(x - mean(x), 1) @ root``, cut again; of all these the columns ``kept``

Each row goes to the best of quality less docked less price times cost. Rows that are tied at the
price go to the cheaper choice here; skroute itself divides them so that all of the budget is used.
"""

import json

import numpy as np

ROUNDING, TIE = 1e-12, 1e-9
BLOCK = 256


class PortablePolicy:
    """A policy that :func:`export_policy` has written, read with numpy alone.

    Parameters
    ----------
    policy : dict
        The content of the file.

    Raises
    ------
    ValueError
        For another format, a version that this reader does not know, or a policy that is
        damaged: something is missing, or no finite number.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.routing import BudgetRouter, PortablePolicy, export_policy
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> Q = np.column_stack([1 - X[:, 0], np.full(100, 0.9)])
    >>> router = BudgetRouter(Ridge(alpha=1e-3), costs={"small": 1, "large": 5}, budget=3).fit(X, Q)
    >>> policy = PortablePolicy(export_policy(router))
    >>> policy.choices, policy.route([[0.05], [0.95]])
    (['small', 'large'], array([0, 1]))
    """

    def __init__(self, policy):
        found = [policy.get(k) for k in ("format", "version")] if type(policy) is dict else policy
        # As text, since True is 1, too.
        if repr(found) != "['skroute-policy', 1]":
            raise ValueError(f"This reader knows version 1 of skroute-policy, got {found!r:.60}.")
        try:
            json.dumps(policy, allow_nan=False)
            self.policy, self.choices, self.budget = policy, policy["choices"], policy["budget"]
            self.costs, self.docked = np.array(policy["costs"]), np.array(policy["docked"])
            # Numbers, and of one length each.
            one = self.quality(np.zeros((1, policy["n_features"])))[0] + policy["deciding"]
            np.stack([self.costs, self.docked, one, np.ones(len(self.choices))]) + 0.0
            np.stack([policy[name] for name in ("budgets", "prices", "counts")]) + 0.0
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"The policy is damaged: {error!r:.200}.") from error

    @classmethod
    def load(cls, path):
        """The policy in a file.

        Parameters
        ----------
        path : str or path-like
            A file that :func:`export_policy` has written.

        Returns
        -------
        PortablePolicy

        Raises
        ------
        ValueError
            For a file that is cut off or holds no policy.
        """
        try:
            with open(path, encoding="utf-8") as file:
                return cls(json.load(file))
        except ValueError as error:
            raise ValueError(f"{path} is cut off, or holds no policy: {error}") from error

    def quality(self, X):
        """Estimated quality of each choice, before it is docked.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows. A data frame has the columns that the router was fitted with.

        Returns
        -------
        ndarray of shape (n_samples, n_choices)

        Raises
        ------
        ValueError
            For other columns, and for what is no number; missing ones where the router, too,
            refuses them.
        """
        names, known = getattr(X, "columns", None), self.policy["feature_names"]
        if names is not None and known and [str(name) for name in names] != known:
            raise ValueError(f"X must have the columns {known}, in this order.")
        X = np.asarray(X)
        texts = X.dtype.kind == "O" and any(isinstance(x, (str, bytes)) for x in X.flat)
        if texts or X.dtype.kind not in "biufO":
            raise ValueError("X must be numbers.")
        X = X.astype(np.float64)
        if X.ndim != 2 or X.shape[1] != self.policy["n_features"] or not len(X):
            raise ValueError(f"X must have {self.policy['n_features']} columns and rows: {X.shape}")
        refuse(np.isinf(X) if self.policy["missing"] else ~np.isfinite(X))
        for step in self.policy["steps"]:
            X = X * np.array(step["scale"]) + np.array(step["shift"])
            if step["clip"] is not None:
                X = np.clip(X, *step["clip"])
        predictor = self.policy["predictor"]
        return HOW[predictor["kind"]](predictor, X).reshape(len(X), -1)

    def price(self, budget=None):
        """Price of a mean budget per row.

        Parameters
        ----------
        budget : float, default=None
            Mean cost per row; None takes the router's own, infinity is unlimited.

        Returns
        -------
        float
        """
        budget = self.budget if budget is None else budget
        if budget is None or budget == np.inf:
            return 0.0
        budgets, deciding = np.array(self.policy["budgets"]), self.policy["deciding"]
        if budget * (1 + ROUNDING) < budgets[0] + deciding:
            raise ValueError(f"The smallest feasible budget is {budgets[0] + deciding:.17g}.")
        if budget - deciding <= budgets[0] * (1 + ROUNDING):
            return np.inf
        at = np.searchsorted(budgets, (budget - deciding) * (1 + ROUNDING), side="right") - 1
        if at + 1 < len(budgets) and self.policy["counts"][at] == 1:
            at += round((budget - deciding - budgets[at]) / (budgets[at + 1] - budgets[at]))
        return self.policy["prices"][at]

    def route(self, X, budget=None):
        """Index of the choice for each row: the best of quality less price times cost.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            As in `price`.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=int64
        """
        return self.decide(self.quality(X), budget)

    def decide(self, quality, budget=None):
        """Index of the choice for rows whose quality is known.

        Parameters
        ----------
        quality : ndarray of shape (n_samples, n_choices)
            From `quality`.

        budget : float, default=None
            As in `price`.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=int64
        """
        values, price = quality - self.docked, self.price(budget) * (1 + TIE)
        # At an infinite price costs alone count, however large the quality is.
        net = (values - price * self.costs) if price < np.inf else 0 * values - self.costs
        order, rows = np.argsort(self.costs, kind="stable"), np.arange(len(values))
        route = np.full(len(values), order[0])
        for i in order[1:]:
            # Ties go to the cheaper choice, and of equal costs to the better.
            by = np.where((self.costs[i] == self.costs[route])[:, None], values, net)
            route = np.where(by[:, i] > by[rows, route], i, route)
        return route


def refuse(wrong):
    if wrong.any():
        raise ValueError(f"X must be finite, row {np.flatnonzero(wrong.any(axis=1))[0]} is not.")


def linear(predictor, X):
    return X @ np.array(predictor["coef"]).T + np.array(predictor["intercept"])


def trees(predictor, X):
    refuse(np.abs(X) > np.finfo(np.float32).max)
    X, total = X.astype(np.float32), 0.0
    for tree in predictor["trees"]:
        feature, threshold = np.array(tree["feature"]), np.array(tree["threshold"])
        # Further down in any case: damaged trees end, too.
        children = np.maximum([tree["right"], tree["left"]], np.arange(1, len(feature) + 1))
        missing = np.array(tree["missing_left"], dtype=bool)
        at = np.zeros(len(X), dtype=np.int64)
        while len(rows := np.flatnonzero(feature[at] >= 0)):
            node = at[rows]
            x = X[rows, feature[node]]
            left = np.where(np.isnan(x), missing[node], x <= threshold[node])
            at[rows] = children[left.astype(int), node]
        total = total + np.array(tree["value"])[at]
    return total / len(predictor["trees"])


def distances(predictor, X):
    """For blocks of rows their distances (comparable, not scaled) to the reference rows."""
    reference, metric = np.array(predictor["rows"]), predictor["metric"]
    for start in range(0, len(X), BLOCK):
        out = np.zeros((len(X[start : start + BLOCK]), len(reference)))
        for f in range(reference.shape[1]):
            apart = np.abs(X[start : start + BLOCK, f, None] - reference[:, f])
            apart = apart if metric in ("chebyshev", "manhattan") else apart**2
            out = np.maximum(out, apart) if metric == "chebyshev" else out + apart
        yield out


def subsets(predictor, X):
    outcomes, starts, parts = np.array(predictor["outcomes"]), predictor["starts"], []
    for found in distances(predictor, X):
        rows = [a + found[:, a:b].argmin(axis=1) for a, b in zip(starts, starts[1:])]
        parts.append(outcomes[np.column_stack(rows)].mean(axis=1))
    return np.concatenate(parts)


def nearest(predictor, X):
    outcomes, parts = np.array(predictor["outcomes"]), []
    weights = np.pad(predictor["weights"], (0, len(outcomes) - len(predictor["weights"])))
    for found in distances(predictor, X):
        for row, by in zip(found, np.argsort(found, axis=1, kind="stable")):
            new = np.r_[True, np.diff(row[by]) > 0]
            starts = np.flatnonzero(new)
            shared = np.add.reduceat(weights, starts) / np.diff(np.r_[starts, len(by)])
            parts.append(shared[np.cumsum(new) - 1] @ outcomes[by])
    return np.array(parts)


def closest(predictor, X):
    outcomes, k = np.array(predictor["outcomes"]), predictor["k"]
    orders = [np.argsort(found, axis=1, kind="stable")[:, :k] for found in distances(predictor, X)]
    return outcomes[np.concatenate(orders)].mean(axis=1)


def similar(predictor, X):
    squares = np.concatenate([*distances({**predictor, "metric": "euclidean"}, X)])
    return linear(predictor, np.exp(-predictor["gamma"] * squares))


def stacked(predictor, X):
    centre, spread, mean = (np.array(predictor[name]) for name in ("centre", "spread", "mean"))
    scales = {"standard": (X - centre) / spread, "plain": X / predictor["unit"]}
    scales = {name: np.clip(x, -1e18, 1e18).astype(np.float32) for name, x in scales.items()}
    length = np.linalg.norm(scales["plain"], axis=1, keepdims=True)
    scales["cosine"] = scales["plain"] / np.where(length > 0, length, 1)
    found = np.tile(mean, (len(X), 1))
    for part in predictor["parts"]:
        x = scales[part["scale"]].astype(np.float64)[:, part["columns"] or slice(None)]
        found += part["times"] * HOW[part["kind"]](part, x)
    found = mean + (found - mean).astype(np.float32)
    for k, knots in enumerate(predictor["knots"] or ()):
        found[:, k] += np.interp(found[:, k], *knots)
    found = found if (step := predictor["step"]) is None else np.round(found / step) * step
    found = np.clip(found, predictor["low"], predictor["high"])
    for k, under, most in predictor["above"]:
        ahead = found[:, under].max(axis=1) - found[:, k]
        found[:, k] += np.where((ahead > -step) & (ahead <= most), ahead + step, 0)
    above = np.maximum(found.max(axis=1, keepdims=True) - max(predictor["high"]), 0)
    return np.maximum(found - above, predictor["low"])


def changed(predictor, X):
    columns = [HOW[predictor["of"]["kind"]](predictor["of"], X).reshape(len(X), -1)]
    for new in predictor["added"]:
        x, ends = columns[0][:, new["columns"]], (new["low"], new["high"])
        parts = np.column_stack([x - x.mean(axis=1, keepdims=True), np.ones(len(x))])
        less = new["caution"] * np.linalg.norm(parts @ new["root"], axis=1)
        columns.append(np.clip(np.clip(linear(new, x), *ends) - less, *ends))
    return np.column_stack(columns)[:, predictor["kept"]]


HOW = {f.__name__: f for f in (linear, trees, subsets, nearest, closest, similar, stacked, changed)}
