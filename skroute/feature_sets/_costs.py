"""Costs of extractors as functions of the item's size, given or measured.

Each cost is a combination of functions of the size. Neither the functions nor the
coefficients are negative. The functions are powers for polynomials, hat functions for
measured costs, or the user's own functions.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.ndimage import median_filter
from scipy.optimize import linprog
from scipy.sparse import eye_array, hstack

from skroute.base import check_costs
from skroute.utils._compat import _safe_indexing, num_samples
from skroute.utils._named import by_label
from skroute.utils._timing import timed
from skroute.utils._validation import check_numbers, is_amount, warn

# Largest number of items that are timed. Bounds the time of a fit.
_N_TIMED = 100
# Number of rounds, in each of which all items are timed once. A busy moment of the
# machine affects one round only.
_N_REPEATS = 3
# Number of knots of a measured cost, which is a piecewise linear function of the size.
# Each piece has about 40 measurements, two of which are above its 95th percentile.
_N_KNOTS = 8
# A fitted cost and the measurements of similar sizes may differ by this factor without
# a warning. The noise of measured times is usually smaller.
_FACTOR = 2.0
# Smallest number of measurements of similar sizes that are compared with a cost. Fewer
# have no useful percentile.
_ROWS_OF_GROUP = 30
# Largest number of groups of measurements of similar sizes that are compared with a
# cost: as many as the cost has knots.
_MOST_GROUPS = _N_KNOTS
# Smallest divisor in seconds, in place of 0. No clock measures such a time: a measured
# time below it is 0, from a clock that has not moved.
_LEAST_SECONDS = 1e-12
# Largest value of a power of a size in a polynomial. Sums of such costs are finite.
_LARGEST_POWER = 1e200


class MeasuredCosts(NamedTuple):
    """Costs of transformers as measured time. ``costs="time"`` uses the default values.

    Each extractor is timed on up to 100 single items of the training data, evenly
    spread over their sizes, three times each. Its cost is the `percentile` of the
    seconds at each size. It is a curve of up to seven straight pieces. Above the
    largest timed item it is proportional to the size.

    Parameters
    ----------
    percentile : float, default=0.95
        Share of the measurements that the cost covers. Raising it keeps more items
        within the budget in time, and leaves more of the budget unused.

    include_model : bool, default=False
        If True, a budget is for the whole answer. The cost of each set, except the
        empty one, then includes the seconds of the slowest model and skroute's own
        seconds. `percentile` is taken of both.

    See Also
    --------
    PolyDomSelector : Takes this as `costs`.

    Notes
    -----
    Times are seconds. If a device computes, they end when its result is ready. Measure
    on the machine that will predict, while it is idle. `fit` warns if a cost and the
    measurements of similar sizes differ by more than a factor of two.

    Examples
    --------
    >>> from skroute.feature_sets import MeasuredCosts
    >>> MeasuredCosts(percentile=0.99)
    MeasuredCosts(percentile=0.99, include_model=False)
    """

    percentile: float = 0.95
    include_model: bool = False


def powers(degree, sizes):
    """Return the powers of sizes up to a degree, shape (n_sizes, degree + 1)."""
    return sizes[:, None] ** np.arange(degree + 1)


def hats(knots, sizes):
    """Return the values of the hat functions at sizes, shape (n_sizes, n_knots).

    A combination of hat functions is piecewise linear. Its values at the knots are the
    coefficients. It is constant below the first knot, and proportional to the size
    above the last knot.

    Parameters
    ----------
    knots : ndarray of shape (n_knots,)
        Ascending sizes, at least two.

    sizes : ndarray of shape (n_sizes,)
    """
    rows = np.arange(len(sizes))
    # Knot to the left of each size. A size beyond the ends has the first or last piece.
    left = np.searchsorted(knots, sizes, side="right") - 1
    left = np.clip(left, 0, len(knots) - 2)
    # Way from the left knot (0) to the right knot (1). Sizes beyond the ends are as at
    # the ends.
    share = np.clip((sizes - knots[left]) / (knots[left + 1] - knots[left]), 0, 1)
    values = np.zeros((len(sizes), len(knots)))
    values[rows, left] = 1 - share
    values[rows, left + 1] = share
    # Above the last knot, costs are proportional to the size.
    factor = np.maximum(1.0, sizes / knots[-1])
    return values * factor[:, None]


def given_functions(functions, sizes):
    """Return the values of the user's functions at sizes, one column for each.

    Parameters
    ----------
    functions : dict from str to callable or ndarray
        For each extractor its cost as a function of an array of sizes, or the
        coefficients of a polynomial, lowest degree first.

    sizes : ndarray of shape (n_sizes,)

    Returns
    -------
    ndarray of shape (n_sizes, n_extractors)
    """
    values = []
    for name, function in functions.items():
        if isinstance(function, np.ndarray):
            value = powers(len(function) - 1, sizes) @ function
        else:
            value = function(sizes)
        value = check_numbers(value, f"costs of {name!r}", low=0)
        values.append(np.broadcast_to(value, sizes.shape))
    return np.column_stack(values)


class FeatureCosts:
    """Callable cost of each extractor, as a function of the item's size.

    Parameters
    ----------
    names : list of str
        Names of the extractors.

    coef : ndarray of shape (n_extractors, n_functions)
        Coefficient of each function in the cost of each extractor.

    functions : callable
        ``functions(function_params, sizes)`` returns the values of the functions, shape
        (n_sizes, n_functions).

    function_params : object
        First argument of `functions`: a degree, knots, or the user's functions.

    largest_size : float, default=inf
        Costs of larger sizes may overflow. Infinity if no cost overflows, 0 if costs do
        not depend on the size.
    """

    def __init__(self, names, coef, functions, function_params, largest_size=np.inf):
        self.names = names
        self.coef = coef
        self.functions = functions
        self.function_params = function_params
        self.largest_size = largest_size

    def basis(self, sizes):
        """Return the values of the cost functions at sizes: (n_sizes, n_functions)."""
        return self.functions(self.function_params, sizes)

    def __call__(self, sizes):
        """Return the costs of extractors at sizes, shape (n_extractors, n_sizes)."""
        return self.coef @ self.basis(np.asarray(sizes, dtype=np.float64)).T


def given_costs(costs, names):
    """Return the user's costs of extractors as `FeatureCosts`.

    Parameters
    ----------
    costs : mapping or sequence
        By name or in order. Each is a number, the coefficients of a polynomial in the
        size, or a callable of an array of sizes.

    names : list of str
        Names of the extractors.

    Returns
    -------
    FeatureCosts
    """
    costs = by_label(costs)
    if isinstance(costs, Mapping):
        # Only the names are checked here, and not the costs.
        check_costs(dict.fromkeys(costs, 0.0), names)
        costs = [costs[name] for name in names]
    cost_list = list(costs)
    if len(cost_list) != len(names):
        raise ValueError(
            f"costs must have one cost for each of {names!r} ({len(names)}), got "
            f"{len(cost_list)}: {costs!r}."
        )
    # For each extractor a callable, or the coefficients of a polynomial.
    cost_of_extractor = {}
    for name, cost in zip(names, cost_list):
        cost_of_extractor[name] = cost if callable(cost) else _coefficients(cost, name)
    if any(map(callable, cost_of_extractor.values())):
        # Each extractor has a function of its own.
        coef = np.eye(len(names))
        return FeatureCosts(
            names, coef, functions=given_functions, function_params=cost_of_extractor
        )
    # There is no callable: all costs are polynomials.
    polynomials = list(cost_of_extractor.values())
    degree = max(map(len, polynomials)) - 1
    # Coefficients that a polynomial of a lower degree lacks are 0.
    coef = np.zeros((len(names), degree + 1))
    for row, polynomial in enumerate(polynomials):
        coef[row, : len(polynomial)] = polynomial
    # The first column of `coef` has the constants. If there is nothing else, all costs
    # are constant, and sizes are not used.
    largest_size = 0.0
    if coef[:, 1:].any():
        # The highest power of this size is `_LARGEST_POWER`.
        largest_size = _LARGEST_POWER ** (1 / degree)
    return FeatureCosts(
        names,
        coef,
        functions=powers,
        function_params=degree,
        largest_size=largest_size,
    )


def _coefficients(cost, name):
    """Return the coefficients of a number or of a polynomial in the size.

    Parameters
    ----------
    cost : float or sequence of float
        A number is a polynomial of degree 0.

    name : str
        Name of the extractor, for the message.

    Returns
    -------
    ndarray of shape (degree + 1,)
        Lowest degree first.
    """
    coef = [cost] if is_amount(cost) else cost
    try:
        is_valid = all(map(is_amount, coef)) and len(coef) > 0
    except TypeError:
        is_valid = False  # not a sequence
    if isinstance(coef, (str, Mapping)) or not is_valid:
        raise ValueError(
            f"costs of {name!r} must be a number, a sequence of polynomial "
            "coefficients in the size (lowest degree first), all finite and not "
            f"negative, or a callable of the size, got {cost!r}."
        )
    return np.array(coef, dtype=np.float64)


def timed_rows(sizes, n_timed=_N_TIMED):
    """Return the positions of the items to time, evenly from small to large sizes.

    Parameters
    ----------
    sizes : ndarray of shape (n_items,)
        Size of each item.

    n_timed : int
        Largest number of items to time.

    Returns
    -------
    ndarray of int of shape (min(n_timed, n_items),)
    """
    n_items = len(sizes)
    n_timed = min(n_timed, n_items)
    # Ranks of the items by size, evenly from the first to the last rank.
    ranks = np.linspace(0, n_items - 1, n_timed).round().astype(int)
    rows_by_size = np.argsort(sizes, kind="stable")
    return rows_by_size[ranks]


class Measurement(NamedTuple):
    """Measured costs of transformers, and the measurements.

    Attributes
    ----------
    costs : FeatureCosts
        Fitted costs.

    sizes : ndarray of shape (n_measurements,)
        Sizes of the timed items, 0 if items have no size.

    seconds : ndarray of shape (n_measurements, n_extractors)
        Measured times.
    """

    costs: FeatureCosts
    sizes: np.ndarray
    seconds: np.ndarray


def measured_costs(extractors, X, sizes, percentile):
    """Measure the costs of transformers: a percentile of their seconds on single items.

    Parameters
    ----------
    extractors : ItemExtractors
        Fitted.

    X : indexable of n_items items

    sizes : ndarray of shape (n_items,) or None
        None: items have no size, and costs are constant.

    percentile : float
        Between 0 and 1.

    Returns
    -------
    Measurement
    """
    all_sizes = np.zeros(num_samples(X)) if sizes is None else sizes
    rows = timed_rows(all_sizes)
    items = [_safe_indexing(X, [row]) for row in rows]
    n_extractors = len(extractors.names)
    for j in range(n_extractors):
        # A first call is slower, and is not measured.
        extractors.extract(items[0], j)
    seconds = []
    # Each round has all items, so that a busy time of the machine affects all sizes.
    for _ in range(_N_REPEATS):
        for item in items:
            times = [timed(extractors.extract, item, j) for j in range(n_extractors)]
            seconds.append(times)
    seconds = np.array(seconds)
    measured_sizes = np.tile(all_sizes[rows], _N_REPEATS)

    # Knots are measured sizes, since the cost between two of them is unknown.
    shares = np.linspace(0, 1, _N_KNOTS)
    knots = np.unique(np.quantile(all_sizes[rows], shares, method="nearest"))
    depends_on_size = len(knots) > 1
    if depends_on_size:
        functions = hats
        function_params = knots
        largest_size = np.inf  # no bound
    else:
        # A constant cost: the power of degree 0.
        functions = powers
        function_params = 0
        largest_size = 0.0  # sizes are not used
    values = functions(function_params, measured_sizes)
    coef = []
    for times in seconds.T:
        coef_of_extractor = _fit_percentile(
            values, measured_sizes, seconds=times, percentile=percentile
        )
        coef.append(coef_of_extractor)
    costs = FeatureCosts(
        extractors.names,
        np.array(coef),
        functions=functions,
        function_params=function_params,
        largest_size=largest_size,
    )
    if depends_on_size:
        _warn_where_apart(costs, measured_sizes, seconds=seconds, percentile=percentile)
    return Measurement(costs, sizes=measured_sizes, seconds=seconds)


def _fit_percentile(values, sizes, seconds, percentile):
    """Fit a percentile of seconds by a combination of functions (quantile regression).

    A measurement above the curve adds its distance times `percentile` to the loss. A
    measurement below the curve adds its distance times ``1 - percentile``. Distances
    are divided by the median seconds of similar sizes. Otherwise the noise of large
    items would outweigh the small items.

    Parameters
    ----------
    values : ndarray of shape (n_measurements, n_functions)
        Values of the functions.

    sizes, seconds : ndarray of shape (n_measurements,)
        Measurements.

    percentile : float
        Share of measurements below the curve.

    Returns
    -------
    ndarray of shape (n_functions,)
        Coefficients, not negative.
    """
    n_measurements, n_functions = values.shape
    order = np.argsort(sizes, kind="stable")
    # Median seconds of a tenth of the measurements, those of similar sizes.
    window = max(n_measurements // 10, 1)
    typical = np.empty(n_measurements)
    typical[order] = median_filter(seconds[order], size=window, mode="nearest")
    typical = np.maximum(typical, np.finfo(float).tiny)  # a divisor above 0
    # A fitted curve goes through `n_functions` of its measurements, so that too few new
    # measurements are below it. The share is raised by that many measurements.
    raised_share = percentile + n_functions / (n_measurements + 1)
    # The share stays below 1, by half a measurement.
    share = min(raised_share, 1 - 0.5 / n_measurements)
    # Variables of the linear program: the coefficients, then the distance of each
    # measurement above the curve, then its distance below the curve.
    # There is an equation for each measurement: the curve, plus the distance above,
    # less the distance below, equals the seconds. All are relative to typical seconds.
    identity = eye_array(n_measurements)
    weight_of_variable = np.concatenate(
        [
            np.zeros(n_functions),
            np.full(n_measurements, share),
            np.full(n_measurements, 1 - share),
        ]
    )
    solution = linprog(
        weight_of_variable,
        A_eq=hstack([values / typical[:, None], identity, -identity]).tocsr(),
        b_eq=seconds / typical,
        bounds=(0, None),
        method="highs",
    )
    # The solver's tolerance may leave coefficients just below 0.
    return np.maximum(solution.x[:n_functions], 0.0)


def _warn_where_apart(costs, sizes, seconds, percentile):
    """Warn if a cost differs from the percentile of measurements of similar sizes.

    Parameters
    ----------
    costs : FeatureCosts
        Fitted.

    sizes : ndarray of shape (n_measurements,)
        Size of the timed item.

    seconds : ndarray of shape (n_measurements, n_extractors)
        Measured times.

    percentile : float
        As a share, between 0 and 1.
    """
    # Measurements of similar sizes are next to each other in this order.
    order = np.argsort(sizes, kind="stable")
    n_groups = max(1, min(_MOST_GROUPS, len(order) // _ROWS_OF_GROUP))
    for name, times, fitted in zip(costs.names, seconds.T, costs(sizes)):
        for group in np.array_split(order, n_groups):
            ratios = times[group] / np.maximum(fitted[group], _LEAST_SECONDS)
            ratio = np.quantile(ratios, percentile)
            if not 1 / _FACTOR <= ratio <= _FACTOR:
                # The ratio is 0 if the clock has not moved.
                inverse = 1 / max(ratio, _LEAST_SECONDS)
                warn(
                    f"The cost of {name!r} is {inverse:.2g} times what "
                    f"was measured for sizes from {sizes[group].min():g} to "
                    f"{sizes[group].max():g}. Measure on an idle machine, or give its "
                    "cost as a function of the size."
                )
                # One warning for each extractor.
                break
