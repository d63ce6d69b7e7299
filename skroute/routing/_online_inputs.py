"""What an online router is told: choices, outcomes, numbers, and what a fitted router says."""

from collections.abc import Mapping
from numbers import Real

import numpy as np
from sklearn.utils import check_array, check_consistent_length

from skroute.base import check_costs
from skroute.routing._online_beliefs import COST
from skroute.routing._online_serving import Decision
from skroute.utils._named import by_label, in_order
from skroute.utils._tensors import on_host
from skroute.utils._validation import refuse_masked


def choices_of(costs, prior, named=()):
    """Price list, names of the choices, and whether anything named them."""
    prior_names = None if prior is None else list(prior.choices_)
    if costs is None:
        if prior is None:
            raise ValueError("costs must be given, got None: what a call of each choice costs.")
        costs = dict(zip(prior_names, np.asarray(prior.costs_).tolist()))
    listed = by_label(costs)
    keys = [str(name) for name in listed] if isinstance(listed, Mapping) else None
    names = list(named) or keys or prior_names or [f"choice{k}" for k in range(len(costs))]
    if len(set(names)) < len(names):
        raise ValueError(f"choices must have names of their own, got {names!r}.")
    if prior_names is not None:
        if sorted(prior_names) != sorted(names):
            raise ValueError(f"prior has the choices {prior_names!r}, costs or y {names!r}.")
        # In the prior's order, which its estimates have.
        names = prior_names
    return costs, names, bool(named or keys or prior_names)


def check_outcomes(n_rows, names, y, costs):
    shape = n_rows, len(names)
    refuse_masked(y=y, costs=costs)
    checked = []
    for values, name in ((y, "y"), (costs, "costs")):
        if values is None:
            checked.append(np.full(shape, np.nan))
            continue
        values = in_order(on_host(values), names, name)
        values = check_array(
            values,
            dtype=np.float64,
            ensure_2d=False,
            ensure_all_finite="allow-nan",
            input_name=name,
            copy=True,
        )
        values = values.reshape(len(values), -1)
        check_consistent_length(np.empty(n_rows), values)
        if values.shape[1] != len(names):
            raise ValueError(
                f"{name} must have one column for each of {names!r} ({len(names)}), "
                f"got {values.shape[1]}."
            )
        checked.append(values)
    y, costs = checked
    if np.nanmin(costs, initial=0.0) < 0:
        raise ValueError(f"costs must not be negative, got {float(np.nanmin(costs))!r}.")
    return y, costs


def ask_prior(prior, names, X, base):
    """Write what a fitted router says of its choices into base (n_rows, n_choices, 2)."""
    own = [names.index(n) for n in prior.choices_ if n in names]
    theirs = [k for k, name in enumerate(prior.choices_) if name in names]
    base[:, own, 0] = prior.predict_quality(X)[:, theirs]
    if getattr(prior, "cost_estimator_", None) is not None:
        prices = np.asarray(prior.costs_)
        ratio = np.asarray(prior.cost_estimator_.predict(X)).reshape(len(base), -1) / prices
        base[:, own, COST] = ratio[:, theirs] - 1.0


def checked_prices(prices, names):
    prices = by_label(prices)
    if isinstance(prices, Mapping):
        prices = {str(name): cost for name, cost in prices.items()}
    return check_costs(prices, names)


def tables(y, choice, costs, names):
    """One outcome per row as tables with a known cell in each row."""
    refuse_masked(y=y, choice=choice, costs=costs)
    y = check_array(
        y, ensure_2d=False, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y"
    )
    choice = np.asarray(choice)
    if y.ndim != 1 or choice.shape != y.shape:
        raise ValueError(
            f"y and choice must have one entry for each row, got shapes {y.shape} and "
            f"{choice.shape}."
        )
    if choice.dtype.kind in "iu":
        index = choice
    else:
        known = {name: k for k, name in enumerate(names)}
        index = np.array([known.get(str(name), -1) for name in choice], dtype=np.int64)
    if len(index) and not (0 <= index.min() and index.max() < len(names)):
        raise ValueError(f"choice must have names of {names!r}, or their positions.")
    tables = []
    for values in (y, costs):
        table = None
        if values is not None:
            values = np.asarray(values, dtype=np.float64)
            if values.shape != y.shape:
                raise ValueError(f"costs must have shape {y.shape}, got {values.shape}.")
            table = np.full((len(y), len(names)), np.nan)
            table[np.arange(len(y)), index] = values
        tables.append(table)
    return tables


def labels_of(x):
    """Names of the features of a series, or of a frame of one row; None of anything else."""
    labels = getattr(x, "columns", None)
    labels = getattr(x, "index", None) if labels is None else labels
    return None if labels is None or callable(labels) else [*labels]


def check_labels(labels, names):
    """Refuse features in another order than in `fit`, as frames of rows are."""
    named = names is not None and all(isinstance(label, str) for label in labels)
    if named and labels != list(names):
        raise ValueError(f"x must have the features {list(names)!r} in this order, got {labels!r}.")


def numbers(x):
    try:
        row = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError):
        row = None
    if row is None:
        # Outside, so that what numpy said, which quotes the entry, is not told along.
        raise ValueError("x must be numbers, the features of one request.")
    return row[0] if row.ndim == 2 and len(row) == 1 else row


def number(value, name):
    if value is None:
        return None
    if not isinstance(value, Real) or abs(value) == np.inf:
        raise ValueError(f"{name} must be a finite number or None, got {value!r}.")
    return None if value != value else float(value)


def checked(decision):
    if not isinstance(decision, Decision):
        raise TypeError(f"decision must be what decide gave, got {type(decision).__name__}.")
    return decision
