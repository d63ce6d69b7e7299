"""What extractors cost as a function of the item's size, given or measured.

Every cost is a combination, with coefficients that are not negative, of functions of
the size that are not negative: powers, for polynomials; hat functions, for measured
costs; or the user's own functions.
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

_N_TIMED = 100
_N_REPEATS = 3
# A straight piece rests on some 40 measurements: two of them are above its 95th
# percentile.
_N_KNOTS = 8
# Within a factor of two of the measurements nearby, a fitted cost passes without a
# warning.
_FACTOR = 2.0


class MeasuredCosts(NamedTuple):
    """Costs of transformers as measured time; ``costs="time"`` uses the default values.

    Each extractor is timed on up to 100 single items of the training data, evenly
    spread over their sizes, three times each. Its cost is the `percentile` of the
    seconds at each size: a curve of up to seven straight pieces, beyond the largest
    item in proportion to the size.

    Parameters
    ----------
    percentile : float, default=0.95
        Share of the measurements that the cost covers. Raising it keeps more items
        within the budget in time, and leaves more of the budget unused.

    include_model : bool, default=False
        Whether a budget is for the whole answer. True adds, to each set but the empty
        one, what an answer to one item takes beside its features: this percentile of
        the seconds of the slowest model, and of those that skroute itself takes.

    See Also
    --------
    PolyDomSelector : Takes this as `costs`.

    Notes
    -----
    Times are seconds, waited for where a device computes. Measure on the machine that
    will predict, while it is idle. `fit` warns where a cost and the measurements near
    some size differ by more than a factor of two.

    Examples
    --------
    >>> from skroute.feature_sets import MeasuredCosts
    >>> MeasuredCosts(percentile=0.99)
    MeasuredCosts(percentile=0.99, include_model=False)
    """

    percentile: float = 0.95
    include_model: bool = False


def powers(degree, sizes):
    """Powers of sizes up to a degree, of shape (n_sizes, degree + 1)."""
    return sizes[:, None] ** np.arange(degree + 1)


def hats(knots, sizes):
    """Values of the hat functions on rising knots, two or more, of shape (n_sizes, n_knots).

    A combination of them is the piecewise linear function with the coefficients as
    values at the knots; constant below the first one, and proportional to the size
    beyond the last.
    """
    rows = np.arange(len(sizes))
    at = np.clip(np.searchsorted(knots, sizes, side="right") - 1, 0, len(knots) - 2)
    share = np.clip((sizes - knots[at]) / (knots[at + 1] - knots[at]), 0, 1)
    values = np.zeros((len(sizes), len(knots)))
    values[rows, at], values[rows, at + 1] = 1 - share, share
    return values * np.maximum(1.0, sizes / knots[-1])[:, None]


def given_functions(functions, sizes):
    """Values of the user's functions by name; polynomials among them are coefficients."""
    values = []
    for name, given in functions.items():
        polynomial = isinstance(given, np.ndarray)
        value = powers(len(given) - 1, sizes) @ given if polynomial else given(sizes)
        value = check_numbers(value, f"costs of {name!r}", low=0)
        values.append(np.broadcast_to(value, sizes.shape))
    return np.column_stack(values)


class FeatureCosts:
    """Cost of each extractor as a function of the size; callable.

    Costs are made of functions, whose values ``functions(given, sizes)`` has, of shape
    (n_sizes, n_functions); `coef`, of shape (n_extractors, n_functions), is how much of
    each. Beyond `largest_size` costs may be beyond all floats; it is 0 where the size
    does not count.
    """

    def __init__(self, names, coef, functions, given, largest_size=np.inf):
        self.names = names
        self.coef = coef
        self.functions, self.given = functions, given
        self.largest_size = largest_size

    def basis(self, sizes):
        """Values of the functions, of shape (n_sizes, n_functions)."""
        return self.functions(self.given, sizes)

    def __call__(self, sizes):
        """Costs at sizes, of shape (n_extractors, n_sizes)."""
        return self.coef @ self.basis(np.asarray(sizes, dtype=np.float64)).T


def given_costs(costs, names):
    """Costs of extractors from what the user gave: one for each, by name or in order."""
    costs = by_label(costs)
    if isinstance(costs, Mapping):
        # The names alone are checked as those of other costs are.
        check_costs(dict.fromkeys(costs, 0.0), names)
        costs = [costs[name] for name in names]
    given = list(costs)
    if len(given) != len(names):
        raise ValueError(
            f"costs must have one cost for each of {names!r} ({len(names)}), got "
            f"{len(given)}: {costs!r}."
        )
    given = [
        own if callable(own) else _coefficients(own, name)
        for name, own in zip(names, given)
    ]
    if any(map(callable, given)):
        return FeatureCosts(
            names, np.eye(len(names)), given_functions, dict(zip(names, given))
        )
    degree = max(map(len, given)) - 1
    coef = np.array([np.pad(row, (0, degree + 1 - len(row))) for row in given])
    largest = 1e200 ** (1 / degree) if coef[:, 1:].any() else 0.0
    return FeatureCosts(names, coef, powers, degree, largest)


def _coefficients(cost, name):
    """Coefficients of a number or of a polynomial in the size."""
    coef = [cost] if is_amount(cost) else cost
    try:
        usable = (
            not isinstance(coef, (str, Mapping))
            and all(map(is_amount, coef))
            and len(coef)
        )
    except TypeError:
        usable = False
    if not usable:
        raise ValueError(
            f"costs of {name!r} must be a number, a sequence of polynomial "
            "coefficients in the size (lowest degree first), all finite and not "
            f"negative, or a callable of the size, got {cost!r}."
        )
    return np.array(coef, dtype=np.float64)


def timed_rows(sizes, n_timed=_N_TIMED):
    """Positions of the items to time: the smallest, the largest, and evenly between them."""
    ranks = np.linspace(0, len(sizes) - 1, min(n_timed, len(sizes))).round().astype(int)
    return np.argsort(sizes, kind="stable")[ranks]


def measured_costs(extractors, X, sizes, percentile):
    """Costs of transformers as a percentile of their seconds on single items.

    Beside them, of each measurement, the size and the seconds, (n_measurements,
    n_extractors).
    """
    known = np.zeros(num_samples(X)) if sizes is None else sizes
    rows = timed_rows(known)
    items = [_safe_indexing(X, [row]) for row in rows]
    every = range(len(extractors.names))
    for j in every:
        # The first call is another one: caches are cold.
        extractors.extract(items[0], j)
    # Repeats are rounds over all items: a machine that is busy for a while hits all
    # alike.
    seconds = np.array(
        [
            [timed(extractors.extract, item, j) for j in every]
            for _ in range(_N_REPEATS)
            for item in items
        ]
    )
    of_item = np.tile(known[rows], _N_REPEATS)
    # At sizes that were measured: nothing says what a knot between two of them costs.
    knots = np.unique(
        np.quantile(known[rows], np.linspace(0, 1, _N_KNOTS), method="nearest")
    )
    one = len(knots) == 1
    functions, given = (powers, 0) if one else (hats, knots)
    values = functions(given, of_item)
    coef = np.array(
        [_fit_percentile(values, of_item, part, percentile) for part in seconds.T]
    )
    costs = FeatureCosts(
        extractors.names, coef, functions, given, 0.0 if one else np.inf
    )
    if not one:
        _warn_where_apart(costs, of_item, seconds, percentile)
    return costs, of_item, seconds


def _fit_percentile(values, sizes, seconds, percentile):
    """Coefficients, none negative, with which a basis runs through a percentile of seconds.

    Quantile regression: what is above the curve counts `percentile`, what is below it
    the rest, in shares of the seconds that are typical of the size. In seconds, the
    noise of large items would outweigh all that is known of small ones. `values` are
    those of the basis at `sizes`, of shape (n_measurements, n_functions).
    """
    n, m = values.shape
    order = np.argsort(sizes, kind="stable")
    typical = np.empty(n)
    typical[order] = median_filter(seconds[order], size=max(n // 10, 1), mode="nearest")
    typical = np.maximum(typical, np.finfo(float).tiny)
    # A curve of m coefficients runs through m points: so many more are to be below it,
    # for as large a share of new measurements to be.
    share = min(percentile + m / (n + 1), 1 - 0.5 / n)
    identity = eye_array(n)
    solution = linprog(
        np.concatenate([np.zeros(m), np.full(n, share), np.full(n, 1 - share)]),
        A_eq=hstack([values / typical[:, None], identity, -identity]).tocsr(),
        b_eq=seconds / typical,
        bounds=(0, None),
        method="highs",
    )
    return np.maximum(solution.x[:m], 0.0)


def _warn_where_apart(costs, sizes, seconds, percentile):
    """Say where a cost is not near the percentile of the measurements of like size."""
    order = np.argsort(sizes, kind="stable")
    for name, own, fitted in zip(costs.names, seconds.T, costs(sizes)):
        # Fewer measurements have no percentile to speak of.
        for part in np.array_split(order, max(1, min(8, len(order) // 30))):
            ratio = np.quantile(own[part] / np.maximum(fitted[part], 1e-12), percentile)
            if not 1 / _FACTOR <= ratio <= _FACTOR:
                warn(
                    f"The cost of {name!r} is {1 / max(ratio, 1e-12):.2g} times what "
                    f"was measured for sizes from {sizes[part].min():g} to "
                    f"{sizes[part].max():g}. Measure on an idle machine, or give its "
                    "cost as a function of the size."
                )
                break
