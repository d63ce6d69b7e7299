"""Checks of budgets and costs, and the one tolerance with which they are compared."""

from collections.abc import Iterable, Mapping
from numbers import Real

import numpy as np

from skroute.base._rows import note_failure
from skroute.utils._compat import num_samples
from skroute.utils._named import by_label
from skroute.utils._timing import seconds_per_sample
from skroute.utils._tolerances import ROUNDING
from skroute.utils._validation import is_amount


def check_budget(budget, *, name="budget"):
    """Validate a mean budget per sample.

    Parameters
    ----------
    budget : float or None
        Mean cost per sample, in the unit of ``costs``; None and infinity mean
        unlimited.

    name : str, default="budget"
        Parameter name for the message.

    Returns
    -------
    float
        The budget, infinity when unlimited.

    Raises
    ------
    ValueError
        If `budget` is not a non-negative number.

    Examples
    --------
    >>> from skroute.base import check_budget
    >>> check_budget(0.3), check_budget(None)
    (0.3, inf)
    """
    if budget is None:
        return np.inf
    # True and False are instances of Real, but not valid budgets.
    is_number = isinstance(budget, Real) and not isinstance(budget, (bool, np.bool_))
    # The comparison is False for NaN.
    if not (is_number and budget >= 0):
        raise ValueError(
            f"{name} must be a non-negative number (mean cost per sample) or None for "
            f"unlimited, got {budget!r}."
        )
    return float(min(budget, np.inf))


def affords(budget, cost):
    """Return True where a cost is within a budget, up to rounding errors of sums.

    Parameters
    ----------
    budget : float
        Mean cost per sample that may be spent.

    cost : float or ndarray of float
        Mean cost per sample to pay.

    Returns
    -------
    bool or ndarray of bool
        In the shape of `cost`.

    Examples
    --------
    >>> from skroute.base import affords
    >>> affords(0.3, 0.1 + 0.2), affords(0.3, 0.31)
    (True, False)
    """
    return cost <= budget * (1 + ROUNDING)


def check_affordable(budget, least, *, name="budget", advice=""):
    """Raise an error if the budget is below the mean cost of the cheapest plan.

    Parameters
    ----------
    budget : float
        Mean cost per sample, or a total.

    least : float
        What the cheapest feasible plan costs, in the same unit.

    name : str, default="budget"
        Parameter name for the message.

    advice : str, default=""
        Last sentence of the message: what the user can do.

    Raises
    ------
    ValueError
        If `budget` does not pay for `least`. The message has the smallest feasible
        budget.

    Examples
    --------
    >>> from skroute.base import check_affordable
    >>> check_affordable(0.5, 1.0)
    Traceback (most recent call last):
        ...
    ValueError: budget=0.5 is below the cheapest feasible plan: the smallest ...
    """
    if not affords(budget, least):
        unit = " per sample" if name == "budget" else ""
        end = f" {advice}" if advice else ""
        raise ValueError(
            f"{name}={budget!r} is below the cheapest feasible plan: the smallest "
            f"feasible {name} is {least:.17g}{unit}.{end}"
        )


def check_costs(costs, names, *, name="costs"):
    """Validate the cost of each named choice.

    Parameters
    ----------
    costs : mapping from str to float, or array-like of shape (n_names,)
        Cost per call of each choice. A mapping, or a series whose labels are names,
        must name every choice and no other.

    names : sequence of str
        The choices, in the order of the result.

    name : str, default="costs"
        Parameter name for the messages.

    Returns
    -------
    ndarray of shape (n_names,), dtype=float64
        The costs, in the order of the names.

    Raises
    ------
    ValueError
        If a cost is missing, unknown, not a number, negative or not finite.

    Examples
    --------
    >>> from skroute.base import check_costs
    >>> check_costs({"large": 10, "small": 1}, ["small", "large"])
    array([ 1., 10.])
    """
    names = list(names)
    costs = by_label(costs)
    if isinstance(costs, Mapping):
        costs = {str(key): cost for key, cost in costs.items()}
        expected = {str(key) for key in names}
        unknown = [key for key in costs if key not in expected]
        missing = [key for key in names if str(key) not in costs]
        if unknown:
            raise ValueError(
                f"{name} has entries for {unknown!r}, which are not among {names!r}."
            )
        if missing:
            raise ValueError(
                f"{name} has no entry for {missing!r}. Every one of {names!r} needs a "
                "cost; there is no default."
            )
        values = [costs[str(key)] for key in names]
    elif isinstance(costs, str) or not isinstance(costs, Iterable):
        raise ValueError(
            f"{name} must be a mapping from name to number or an array-like with one "
            f"number for each of {names!r}, got {costs!r}."
        )
    else:
        values = list(costs)
        if len(values) != len(names):
            raise ValueError(
                f"{name} must have one number for each of {names!r} ({len(names)}), "
                f"got {len(values)}: {costs!r}."
            )
    for key, value in zip(names, values):
        if not is_amount(value):
            raise ValueError(
                f"{name} of {key!r} must be a finite number that is not negative, got "
                f"{value!r}."
            )
    return np.asarray(values, dtype=np.float64)


def measure_costs(calls, X):
    """Measure the seconds per sample of each function in `calls` (``costs="time"``).

    Parameters
    ----------
    calls : mapping from str to callable
        For each choice a function of rows of `X`.

    X : indexable
        Rows to measure on.

    Returns
    -------
    ndarray of shape (n_calls,), dtype=float64
        Median seconds per sample, device-synchronised.

    Examples
    --------
    >>> import time
    >>> from skroute.base import measure_costs
    >>> calls = {"fast": len, "slow": lambda rows: time.sleep(1e-3 * len(rows))}
    >>> fast, slow = measure_costs(calls, [[0.0]] * 10)
    >>> bool(fast < 1e-3 <= slow)
    True
    """
    costs = np.empty(len(calls))
    # `seconds_per_sample` gives a call at most 1,000 rows. This number of rows is only
    # shown in messages.
    n_timed = min(num_samples(X), 1000)
    for position, (name, call) in enumerate(calls.items()):
        with note_failure(name, n_timed, "timing"):
            costs[position] = seconds_per_sample(call, X)
    return costs
