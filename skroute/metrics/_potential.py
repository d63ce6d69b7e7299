"""Whether routing is worth it: what it gains on few rows, and what it would on many."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.utils import _safe_indexing, check_array, check_random_state

from skroute.assignment import assignment_path
from skroute.base import check_costs
from skroute.quality import QualityRegressor
from skroute.quality._stacking import best_mix, decided, judged_budgets
from skroute.utils._compat import HasMethods, Integral, Interval, Real, num_samples, validate_params

# Parts that the rows are cut into, to see how the gain grows with the rows that were learned from.
PARTS = (4, 2, 1)
FOLDS = 5
# Fewer leave no folds to learn from in a quarter of them.
LEAST_ROWS = 60


class Learning(NamedTuple):
    """How gains grow: constants of the forecast, from tables of other people.

    Attributes
    ----------
    captured : float
        Share of what is left to the oracle that a doubling of the rows captures, on average.
    spread : float
        Standard deviation of that share between tables.
    width : float
        Factor on the standard error, for what a normal law leaves out.
    """

    captured: float
    spread: float
    width: float


# From all tables of benchmarks/bench_where.py, which prints them.
LEARNED = Learning(captured=0.0609, spread=0.0111, width=1.73)
# What a doubling of the rows captures, as a share of what the one before did.
FADING = 0.7


class RoutingPotential(NamedTuple):
    """What routing gains on these rows, and what it would when it has learned from more.

    Gains are mean qualities above the best random mix of choices that spends the same, in the
    unit of quality, as the mean of five budgets between the cheapest choice and the best one.

    Attributes
    ----------
    gain : float
        What was gained on these rows, by estimates that had not seen them.

    standard_error : float
        Of `gain`, from row to row.

    forecast : float
        Gain expected of a router that learns from `n_rows_later` rows.

    low, high : float
        Interval of that gain, on new rows without end.

    oracle : float
        Gain of an oracle that knows in advance how good each choice is for each row. No router
        comes near where answers are partly luck.

    n_rows : int
        Rows that this rests on.

    n_rows_later : int
        Rows that `forecast` is for.
    """

    gain: float
    standard_error: float
    forecast: float
    low: float
    high: float
    oracle: float
    n_rows: int
    n_rows_later: int

    def __str__(self) -> str:
        # What other tables taught is no proof where these rows themselves gained nothing.
        if self.low > 0 and self.gain > 0:
            verdict = "Routing pays"
        elif self.high <= 0:
            verdict = "Routing does not pay"
        else:
            verdict = "These rows cannot say whether routing pays"
        return (
            f"{verdict}: learned from {self.n_rows_later} rows, it is expected to gain "
            f"{self.forecast:.4f} above the best random mix at equal spend, between "
            f"{self.low:.4f} and {self.high:.4f}. Learned from these {self.n_rows} rows it gains "
            f"{self.gain:.4f} +- {self.standard_error:.4f}; an oracle gains {self.oracle:.4f}."
        )


def paid_and_got(estimates, quality, costs, rule):
    """What each row costs and brings at a price; of a row that is tied the mean.

    Parameters
    ----------
    estimates, quality : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_choices,)
    rule : Rule

    Returns
    -------
    ndarray of shape (2, n_rows)
    """
    rows, share = np.arange(len(quality)), rule.share
    low, high = decided(estimates, costs, rule)
    paid = (1 - share) * costs[low] + share * costs[high]
    return np.stack([paid, (1 - share) * quality[rows, low] + share * quality[rows, high]])


def gains_of(spent, quality, costs):
    """Each row's gain over the best random mix that spends the same.

    Parameters
    ----------
    spent : ndarray of shape (n_budgets, 2, n_rows)
        From :func:`paid_and_got`.
    quality : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_choices,)

    Returns
    -------
    ndarray of shape (n_rows,)
        Its mean is the gain. Its variance over the number of rows is that of the gain (delta
        method: a row that costs more lets the mix have more, too).
    """
    total = np.zeros(len(quality))
    for paid, got in spent:
        mix = best_mix(quality, costs, paid.mean())
        total += got - mix.of(quality) - mix.slope * (paid - paid.mean())
    return total / len(spent)


def cross_fitted(estimator, X, quality, costs):
    """Estimates of all rows by fits that did not see them."""
    folds = list(KFold(FOLDS).split(quality))
    # Not one derived from it or frozen, which is told nothing of what was overridden, or refitted.
    if type(estimator) is QualityRegressor:
        return clone(estimator).cross_fit(X, quality, folds=folds, costs=costs)
    estimates = np.empty(quality.shape)
    for train, test in folds:
        fitted = clone(estimator).fit(_safe_indexing(X, train), quality[train])
        estimates[test] = fitted.predict(_safe_indexing(X, test))
    return estimates


def learned_gains(estimator, X, quality, costs, random):
    """Each row's gain where routes were learned from a quarter, a half and all of the rows.

    The rows are cut into parts that learn from themselves alone, so that each row is decided
    at each size, and always by estimates that did not see it.

    Returns
    -------
    ndarray of shape (3, n_rows)
    """
    n = len(quality)
    budgets = judged_budgets(quality, costs)
    mixed = random.permutation(n)
    gains = np.empty((len(PARTS), n))
    for size, parts in enumerate(PARTS):
        spent = np.empty((len(budgets), 2, n))
        for part in np.array_split(mixed, parts):
            estimates = cross_fitted(estimator, _safe_indexing(X, part), quality[part], costs)
            path = assignment_path(estimates, costs)
            for i, budget in enumerate(budgets):
                spent[i][:, part] = paid_and_got(estimates, quality[part], costs, path.rule(budget))
        gains[size] = gains_of(spent, quality, costs)
    return gains


def oracle_gain(quality, costs):
    """Gain of the assignment that is best in hindsight, over the mix that spends as much."""
    path = assignment_path(quality, costs)
    # It need not spend all of a budget.
    spent = np.minimum(judged_budgets(quality, costs), path.budgets[-1])
    mixed = [best_mix(quality, costs, cost).of(quality).mean() for cost in spent]
    return float(np.mean([path.objective(cost) for cost in spent]) - np.mean(mixed))


def forecast(gains, oracle, doublings, z, learning=LEARNED):
    """Gain after some more doublings of the rows, from gains at a quarter, a half and all of them.

    What one doubling brings is taken from the rows and from other tables, each as sure as it is;
    the doublings after it bring less and less.

    Parameters
    ----------
    gains : ndarray of shape (3, n_rows)
        Rows of :func:`gains_of`.
    oracle : float
    doublings : float
    z : float
        Standard errors on both sides.
    learning : Learning

    Returns
    -------
    forecast, low, high : float
    """
    n = gains.shape[1]
    gain = gains[-1].mean()
    left = max(oracle - gain, 0.0)
    step = FADING * (gains[-1] - gains[0]) / 2
    variance = max(step.var(ddof=1) / n, 1e-12)
    prior_variance = max((learning.spread * left) ** 2, 1e-12)
    weight = prior_variance / (prior_variance + variance)
    expected = (1 - weight) * learning.captured * left + weight * step.mean()
    reach = (1 - FADING**doublings) / (1 - FADING)
    middle = gain + expected * reach
    unsure = prior_variance * (1 - weight) * reach**2
    error = learning.width * np.sqrt(gains[-1].var(ddof=1) / n + unsure)
    return float(middle), float(middle - z * error), float(middle + z * error)


@validate_params(
    {
        "quality_estimator": [HasMethods(["fit", "predict"]), None],
        "n_rows_later": [Interval(Integral, 1, None, closed="left"), None],
        "confidence_level": [Interval(Real, 0.0, 1.0, closed="neither")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def routing_potential(
    X: ArrayLike,
    Q: ArrayLike,
    costs: ArrayLike,
    *,
    quality_estimator: Any = None,
    n_rows_later: int | None = None,
    confidence_level: float = 0.95,
    random_state: Any = 0,
) -> RoutingPotential:
    """Forecast from a few rows what routing would gain, and how sure that is.

    For whoever has some hundred rows with the answers of all models, and asks whether it is
    worth to score ten thousand. Routing is tried out on these rows: each is decided by estimates
    that did not see it, at five budgets, and compared with the best random mix of choices that
    spends as much. The same is done where only a quarter and a half of the rows are learned
    from. How the gain grows between them, and how it grew on tables of other people, says what
    more rows would bring.

    Parameters
    ----------
    X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
        What is known of a row before any choice is paid for.

    Q : array-like of shape (n_samples, n_choices)
        Quality of each choice on each row, higher is better.

    costs : mapping from str to float or array-like of shape (n_choices,)
        Cost per call of each choice. Of costs that differ per row, give the means. A mapping
        names the columns of Q where that is a data frame, else ``"choice0"``, ...

    quality_estimator : multi-output regressor, default=None
        Maps X to the quality of each choice. None takes
        :class:`~skroute.quality.QualityRegressor`, the default of the routers.

    n_rows_later : int, default=None
        Rows that a router will have learned from. None takes ten times those given. Raising it
        widens the interval.

    confidence_level : float, default=0.95
        Nominal coverage of the interval. Raising it widens the interval.

    random_state : int, RandomState instance or None, default=0
        Determines the folds, and which rows are a quarter of all.

    Returns
    -------
    RoutingPotential
        Named tuple; its ``str()`` is the answer in words.

    Raises
    ------
    ValueError
        If there are less than 60 rows, less than two choices, or input is bad.

    See Also
    --------
    compare_with_references : What a fitted router gains, on other rows.

    Notes
    -----
    How gains grow with rows was learned from the tables of ``make bench-where``, which shows for
    each table what the others forecast of it. It holds for tables of that kind: answers of
    models to questions, images and texts.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.datasets import make_routing_problem
    >>> from skroute.metrics import routing_potential
    >>> log = make_routing_problem(300, n_models=3, n_features=2, random_state=0)
    >>> found = routing_potential(log.data, log.quality, log.costs, quality_estimator=Ridge())
    >>> found.n_rows, found.n_rows_later, found.low <= found.forecast <= found.high
    (300, 3000, True)
    """
    names = list(getattr(Q, "columns", []))
    quality = check_array(Q, dtype=np.float64, input_name="Q", ensure_min_features=2)
    names = names or [f"choice{i}" for i in range(quality.shape[1])]
    n = num_samples(X)
    if n != len(quality):
        raise ValueError(f"X has {n} rows and Q {len(quality)}. Give one row of Q for each of X.")
    if n < LEAST_ROWS:
        raise ValueError(
            f"{n} rows are too few, since a quarter of them must still be learned from. Score "
            f"at least {LEAST_ROWS}."
        )
    prices = check_costs(costs, names)
    # Gains do not depend on the unit of costs.
    prices = prices / (prices.max() or 1.0)
    if n_rows_later is not None and n_rows_later < n:
        raise ValueError(
            f"n_rows_later must be at least the number of rows given, {n}, got {n_rows_later!r}."
        )
    later = 10 * n if n_rows_later is None else int(n_rows_later)
    estimator = QualityRegressor() if quality_estimator is None else quality_estimator
    gains = learned_gains(estimator, X, quality, prices, check_random_state(random_state))
    z = float(norm.ppf(0.5 + confidence_level / 2))
    oracle = oracle_gain(quality, prices)
    middle, low, high = forecast(gains, oracle, float(np.log2(later / n)), z)
    return RoutingPotential(
        gain=float(gains[-1].mean()),
        standard_error=float(gains[-1].std(ddof=1) / np.sqrt(n)),
        forecast=middle,
        low=low,
        high=high,
        oracle=oracle,
        n_rows=n,
        n_rows_later=later,
    )
