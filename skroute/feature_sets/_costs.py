"""What features cost as a function of the item's size: given, or measured and fitted."""

import reprlib
import time
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog, nnls
from scipy.sparse import eye_array, hstack
from sklearn.utils import _safe_indexing

from skroute.base import check_costs
from skroute.feature_sets._index import evaluate_costs
from skroute.feature_sets._lattice import indicator, set_coefficients
from skroute.utils._compat import num_samples
from skroute.utils._named import by_label
from skroute.utils._timing import synchronize_device

_clock = time.perf_counter
_MEASURED_ITEMS = 100
_MEASURED_DEGREE = 2
# Costs below this lose digits to underflow, and with them their order.
_LEAST_COST = 1e-300


class MeasuredCosts(NamedTuple):
    """Costs of transformers as measured time: what ``costs="time"`` stands for.

    Each transformer is timed in `fit` on at most 100 training items of all sizes, one item
    at a time. Its cost is a quadratic in the size without negative coefficients (a constant
    where items have no size), through a percentile of the times by quantile regression.

    Parameters
    ----------
    percentile : float, default=0.95
        Share of the measured times that must not lie above the fitted cost, between 0 and
        1. A higher value keeps more items within their budget and leaves more of it unused.

    Examples
    --------
    >>> from skroute.feature_sets import MeasuredCosts
    >>> MeasuredCosts(percentile=0.99)
    MeasuredCosts(percentile=0.99)
    """

    percentile: float = 0.95

    def check(self):
        """The same, if the percentile is one."""
        if not (_is_number(self.percentile) and 0 < self.percentile < 1):
            raise ValueError(
                "percentile of MeasuredCosts must be a number above 0 and below 1, got "
                f"{self.percentile!r}."
            )
        return self


def _is_number(value):
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


def check_feature_costs(costs, names, *, name="costs"):
    """Validate the cost function of each extractor.

    Parameters
    ----------
    costs : mapping from str to cost, or sequence of costs
        A cost is a number, a sequence of polynomial coefficients in the size (lowest
        degree first), or a callable of an array of sizes.

    names : sequence of str
        The extractors, in the order of the result.

    name : str, default="costs"
        Parameter name for the messages.

    Returns
    -------
    list of ndarray or callable
        Coefficients, or the callable.

    Raises
    ------
    ValueError
        If a cost is missing, unknown, negative or not finite.
    """
    names, costs = list(names), by_label(costs)
    if isinstance(costs, Mapping):
        # The names alone are checked as those of other costs are.
        check_costs(dict.fromkeys(costs, 0.0), names, name=name)
        values = [costs[key] for key in names]
    elif isinstance(costs, Iterable) and not isinstance(costs, str):
        values = list(costs)
        if len(values) != len(names):
            raise ValueError(
                f"{name} must have one cost for each of {names!r} ({len(names)}), "
                f"got {len(values)}: {costs!r}."
            )
    else:
        raise ValueError(
            f"{name} must be a mapping from extractor name to cost, a sequence with one cost "
            f'for each of {names!r}, or "time", got {costs!r}.'
        )
    return [_check_cost(value, key, name) for key, value in zip(names, values)]


def _check_cost(value, key, name):
    if callable(value):
        return value
    given = [value] if _is_number(value) else value
    usable = (
        isinstance(given, Iterable)
        and not isinstance(given, (str, Mapping))
        and len(given := list(given)) > 0
        and all(_is_number(c) and np.isfinite(c) and c >= 0 for c in given)
    )
    if not usable:
        raise ValueError(
            f"{name} of {key!r} must be a number, a sequence of polynomial coefficients in the "
            "size (lowest degree first), all finite and not negative, or a callable of the "
            f"size, got {value!r}."
        )
    return np.array(given, dtype=np.float64)


class FeatureCosts:
    """Cost of each feature, and of sets of them, as functions of the size (equation 1).

    Parameters
    ----------
    names : list of str
        The extractors.

    functions : list of ndarray or callable
        From :func:`check_feature_costs`.

    Attributes
    ----------
    coef : ndarray of shape (n_features, degree + 1) or None
        The polynomials; None if one cost is a callable.

    depends_on_size : bool
        Whether any cost varies with the size.

    smallest_size : float
        Below it, and above 0, costs underflow and cannot be compared.
    """

    def __init__(self, names, functions):
        self.names = names
        self.functions = functions
        self.coef = None
        if not any(callable(function) for function in functions):
            self.coef = np.zeros((len(functions), max(len(c) for c in functions)))
            for row, c in zip(self.coef, functions):
                row[: len(c)] = c
        self.depends_on_size = self.coef is None or bool(self.coef[:, 1:].any())
        self.smallest_size = 0.0
        if self.coef is not None and self.depends_on_size:
            # The least power of the size that is multiplied by the least coefficient.
            ratio = _LEAST_COST / self.coef[self.coef > 0].min()
            degree = np.flatnonzero(self.coef.any(axis=0))[-1]
            self.smallest_size = float(ratio ** (1 / degree) if ratio < 1 else ratio)

    def check_sizes(self, sizes):
        """Refuse sizes at which costs underflow.

        Parameters
        ----------
        sizes : ndarray of float
            Sizes, finite and not negative.

        Returns
        -------
        ndarray of float
            The same.
        """
        if np.any((np.asarray(sizes) > 0) & (sizes < self.smallest_size)):
            raise ValueError(
                f"size must be 0 or at least {self.smallest_size:.3g}, got {reprlib.repr(sizes)}: "
                "below it costs are too small to be told apart. Measure sizes in a smaller unit, "
                "or costs."
            )
        return sizes

    def __call__(self, sizes):
        """Cost of every feature at every size.

        Parameters
        ----------
        sizes : ndarray of shape (n_sizes,)
            Sizes.

        Returns
        -------
        ndarray of shape (n_features, n_sizes)
        """
        if self.coef is not None:
            return evaluate_costs(self.coef, sizes)
        cost = np.empty((len(self.functions), len(sizes)))
        for row, name, function in zip(cost, self.names, self.functions):
            value = function(sizes) if callable(function) else evaluate_costs(function[None], sizes)
            row[:] = value
            if not (np.isfinite(row).all() and (row >= 0).all()):
                raise ValueError(
                    f"The cost function of {name!r} must return finite costs that are not "
                    f"negative, got {reprlib.repr(value)} for sizes {reprlib.repr(sizes)}."
                )
        return cost

    def of_sets(self, masks):
        """Cost function of sets.

        Parameters
        ----------
        masks : ndarray of shape (n_sets,), dtype=int64
            Sets of features.

        Returns
        -------
        SetCosts
        """
        return SetCosts(self, masks)


class SetCosts:
    """Costs of sets of features at sizes; callable.

    Parameters
    ----------
    features : FeatureCosts
        Costs of the features.

    masks : ndarray of shape (n_sets,), dtype=int64
        The sets.
    """

    def __init__(self, features, masks):
        self.features = features
        self.masks = masks
        coef = features.coef
        self.coef = None if coef is None else set_coefficients(masks, coef)

    def __call__(self, sizes):
        """Cost of every set at every size, of shape (n_sets, n_sizes)."""
        sizes = np.asarray(sizes, dtype=np.float64)
        if self.coef is not None:
            return evaluate_costs(self.coef, sizes)
        cost = np.zeros((len(self.masks), len(sizes)))
        inside = indicator(self.masks, len(self.features.names))
        for j, of_feature in enumerate(self.features(sizes)):
            cost[inside[:, j]] += of_feature
        return cost

    def chosen(self, choice, sizes):
        """Cost of one set per size.

        Parameters
        ----------
        choice : ndarray of shape (n_sizes,), dtype=int64
            Set for each size.

        sizes : ndarray of shape (n_sizes,)
            Sizes.

        Returns
        -------
        ndarray of shape (n_sizes,)
        """
        cost = np.empty(len(choice))
        for s in np.unique(choice):
            rows = choice == s
            cost[rows] = SetCosts(self.features, self.masks[[s]])(sizes[rows])[0]
        return cost


def seconds_per_item(extract, n_items, n_features, *, n_repeats=3):
    """Time each extractor on single items.

    Items and extractors alternate, so that a drifting machine hits all alike.

    Parameters
    ----------
    extract : callable
        Called as ``extract(i, j)``: extractor `j` on item `i`.

    n_items, n_features : int
        Numbers of items and of extractors.

    n_repeats : int, default=3
        Timed calls per item and extractor. Each extractor is called once more before.

    Returns
    -------
    ndarray of shape (n_repeats * n_items, n_features)
        Seconds; rows run over the items `n_repeats` times.
    """
    for j in range(n_features):
        extract(0, j)
    seconds = np.empty((n_repeats, n_items, n_features))
    for repeat in range(n_repeats):
        for i in range(n_items):
            for j in range(n_features):
                synchronize_device()
                start = _clock()
                extract(i, j)
                synchronize_device()
                seconds[repeat, i, j] = _clock() - start
    return seconds.reshape(-1, n_features)


def fit_cost_polynomial(sizes, seconds, degree, percentile):
    """Polynomial with coefficients that are not negative, through a percentile of costs.

    Quantile regression as a linear program: of all such polynomials the one with the
    smallest check loss, so that the share `percentile` of the measurements lies on or
    below it. A high percentile provisions for slow calls, as the paper does with the
    worst case. Residuals are taken relative to the mean cost at their size: otherwise
    only the largest items would count.

    Parameters
    ----------
    sizes : ndarray of shape (n_measurements,)
        Sizes.

    seconds : ndarray of shape (n_measurements,)
        Measured costs.

    degree : int
        Degree of the polynomial.

    percentile : float
        Share of measurements that must not lie above, in (0, 1).

    Returns
    -------
    ndarray of shape (degree + 1,)
        Coefficients, lowest degree first.
    """
    scale = max(float(np.max(sizes, initial=0.0)), 1.0)
    unit = max(float(np.max(seconds)), np.finfo(float).tiny)
    powers = (sizes[:, None] / scale) ** np.arange(degree + 1)
    target = seconds / unit
    mean = powers @ nnls(powers, target)[0]
    weight = 1.0 / np.maximum(mean, max(1e-3 * mean.max(), np.finfo(float).tiny))
    n = len(target)
    identity = eye_array(n)
    solution = linprog(
        np.concatenate([np.zeros(degree + 1), percentile * weight, (1 - percentile) * weight]),
        A_eq=hstack([powers, identity, -identity]).tocsr(),
        b_eq=target,
        bounds=(0, None),
        method="highs",
    )
    return np.maximum(solution.x[: degree + 1], 0.0) * unit / scale ** np.arange(degree + 1)


def measure_feature_costs(extractors, X, sizes, percentile):
    """Polynomials through a percentile of measured seconds of the extractors.

    Parameters
    ----------
    extractors : ItemExtractors
        Fitted extractors.

    X : list or array of items
        Items to measure on; at most 100 are used, evenly over the ranks of their sizes.

    sizes : ndarray of shape (n_items,) or None
        Their sizes. None: costs are constants.

    percentile : float
        Share of new measurements that should not lie above the fit. The fit itself is
        made to a share that is higher by ``(degree + 1) / (n_measurements + 1)``: so many
        of the measurements lie on the curve because it was drawn through them, and a
        further, exchangeable one is above with at most the probability asked for.

    Returns
    -------
    functions : list of ndarray
        Coefficients for each extractor.

    measured_sizes : ndarray of shape (n_measurements,)
        Sizes of the timed items.

    seconds : ndarray of shape (n_measurements, n_extractors)
        Their times.
    """
    known = np.zeros(num_samples(X)) if sizes is None else sizes
    n_items = min(len(known), _MEASURED_ITEMS)
    # Smallest and largest item included.
    ranks = np.linspace(0, len(known) - 1, n_items).round().astype(int)
    rows = np.argsort(known, kind="stable")[ranks]
    items = [_safe_indexing(X, [row]) for row in rows]
    seconds = seconds_per_item(
        lambda i, j: extractors.extract(items[i], j), n_items, len(extractors.names)
    )
    measured_sizes = np.tile(known[rows], len(seconds) // n_items)
    degree = 0 if sizes is None else _MEASURED_DEGREE
    drawn_through = (degree + 1) / (len(seconds) + 1)
    share = min(percentile + drawn_through, 1.0 - 0.5 / len(seconds))
    functions = [fit_cost_polynomial(measured_sizes, column, degree, share) for column in seconds.T]
    return functions, measured_sizes, seconds
