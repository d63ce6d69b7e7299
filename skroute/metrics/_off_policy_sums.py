"""Estimates of a policy by a log of another one, from sums over rows."""

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from skroute.quality._logged import never_matched

# Rows of equal weight that an estimate needs at least.
_LEAST_ROWS = 10
# Rows of new logs that may be equal to rows of the fit.
_REPEATED = 0.01
# Weights of the rows that agree have the mean 1; what lacks more has no overlap.
_LACKS = 0.1


class OffPolicyEstimate(NamedTuple):
    """One estimate with its interval, at each budget.

    Attributes
    ----------
    estimate : ndarray of shape (n_budgets,), dtype=float64
        The mean per row.

    low, high : ndarray of shape (n_budgets,), dtype=float64
        Ends of the interval.

    standard_error : ndarray of shape (n_budgets,), dtype=float64
        That of `estimate`.
    """

    estimate: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    standard_error: NDArray[np.float64]


class OffPolicyEstimates(NamedTuple):
    """Three estimates of the same, side by side.

    Attributes
    ----------
    direct : OffPolicyEstimate
        Direct method: the mean of what a model expects of the choices. Its interval knows
        nothing of the model's bias.

    snips : OffPolicyEstimate
        Self-normalised inverse propensity score: the weighted mean of rows on which the log
        made the same choice.

    doubly_robust : OffPolicyEstimate
        The direct method, corrected by the weighted errors on these rows: right where
        either propensities or model are, and the one to report.
    """

    direct: OffPolicyEstimate
    snips: OffPolicyEstimate
    doubly_robust: OffPolicyEstimate


class OffPolicyCurve(NamedTuple):
    """Quality and cost of a whole path of policies, by a log of one answer per request.

    Attributes
    ----------
    budget : ndarray of shape (n_budgets,), dtype=float64
        The budgets; infinity where unlimited.

    quality : OffPolicyEstimates
        Mean quality per row, by three estimators.

    cost : OffPolicyEstimates
        Mean cost per row. Where no costs were logged, what the router reports: three times
        the same.

    route_share : ndarray of shape (n_budgets, n_choices), dtype=float64
        Share of the rows for which each choice is made.

    choices : list of str
        Names of the choices, the columns of `route_share`.

    matched : ndarray of shape (n_budgets,), dtype=int64
        Rows on which the log made the choice that the policy makes.

    effective_sample_size : ndarray of shape (n_budgets,), dtype=float64
        ``(sum w)^2 / sum w^2`` of these rows' weights, ``1 / propensity``.

    max_weight : ndarray of shape (n_budgets,), dtype=float64
        The largest of these weights: one row stands for so many.

    mean_weight : ndarray of shape (n_budgets,), dtype=float64
        Sum of these weights over all rows; 1 but for noise where propensities are right and
        the log has made every choice that the policy makes.

    n_fitted : int
        Rows that the router was fitted on: for these the estimates are too good.

    estimated : bool
        Whether propensities are estimates.
    """

    budget: NDArray[np.float64]
    quality: OffPolicyEstimates
    cost: OffPolicyEstimates
    route_share: NDArray[np.float64]
    choices: list[str]
    matched: NDArray[np.int64]
    effective_sample_size: NDArray[np.float64]
    max_weight: NDArray[np.float64]
    mean_weight: NDArray[np.float64]
    n_fitted: int
    estimated: bool


class Terms(NamedTuple):
    """Estimate, standard error and its skewness of the three estimators at one budget."""

    direct: tuple[float, float, float]
    snips: tuple[float, float, float]
    doubly_robust: tuple[float, float, float]


def direct_method(model):
    """Mean of what a model expects of the choices made, its standard error and skewness."""
    return float(model.mean()), standard_error(model), skewness(model - model.mean())


def snips(value, weight):
    """Self-normalised inverse propensity score, its standard error (delta method) and skewness."""
    found = float(weight @ value / weight.sum())
    terms = weight * (value - found)
    return found, float(np.sqrt(terms @ terms) / weight.sum()), skewness(terms)


def doubly_robust(model, own, value, weight):
    """Dudik, Langford and Li (2011): ``mean[model + weight (value - own)]``.

    Parameters
    ----------
    model : ndarray of shape (n_rows,)
        What is expected of the policy's choice.
    own : ndarray of shape (n_rows,)
        What is expected of the logged choice.
    value : ndarray of shape (n_rows,)
        What came of it.
    weight : ndarray of shape (n_rows,)
        ``1 / propensity`` where the two are the same, else 0.

    Returns
    -------
    estimate, standard_error, skewness : float
    """
    terms = model + weight * (value - own)
    return float(terms.mean()), standard_error(terms), skewness(terms - terms.mean())


def standard_error(terms):
    """Standard error of the mean of terms."""
    return float(terms.std(ddof=1) / np.sqrt(len(terms)))


def skewness(deviations):
    """Skewness of the terms over the root of their number: that of their mean."""
    largest = float(np.abs(deviations).max())
    unit = deviations / largest if largest > 0 else deviations
    squares = float(unit @ unit)
    return float((unit**3).sum() / squares**1.5) if squares > 0 else 0.0


def three_estimates(table, choice, value, route, weight):
    """The three estimators for one policy and one kind of value."""
    rows = np.arange(len(route))
    model = table[rows, route]
    return Terms(
        direct_method(model),
        snips(value, weight),
        doubly_robust(model, table[rows, choice], value, weight),
    )


def with_intervals(terms, degrees, confidence_level):
    """Estimates of all budgets, with Student's intervals of so many degrees of freedom.

    The mean of skewed terms, few of which have much weight, is skewed as well. Hall's monotone
    transformation takes that out: an interval is longer towards the rare side. It is not made
    shorter on the other, since the skewness of few rows is badly known.
    """
    width = student.ppf((1 + confidence_level) / 2, np.maximum(degrees, 1.0))
    found = []
    for each in zip(*terms):
        estimate, error, skewed = np.array(each, dtype=np.float64).T
        low = np.maximum(unskewed(width, skewed), width)
        high = np.minimum(unskewed(-width, skewed), -width)
        found.append(
            OffPolicyEstimate(estimate, estimate - error * low, estimate - error * high, error)
        )
    return OffPolicyEstimates(*found)


def unskewed(quantile, skewed):
    """Hall (1992): the quantile of a studentised mean whose terms are skewed.

    The inverse of ``t + k t^2 / 3 + k^2 t^3 / 27 + k / 6`` with k the skewness of the mean.
    """
    skewed = np.where(np.abs(skewed) < 1e-6, 1e-6, skewed)
    root = np.cbrt(1 + skewed * (quantile - skewed / 6))
    return 3 / skewed * (root - 1)


class Agreement(NamedTuple):
    """On which rows log and policy agree; sums over rows, but for the largest weight."""

    n: int
    made: NDArray[np.float64]
    agreed: NDArray[np.float64]
    logged: NDArray[np.float64]
    weight: float
    squares: float
    most: float

    @classmethod
    def of(cls, route, logged, weight, n_choices):
        """Of choices of a policy and of the log, and weights, 0 where these differ."""
        count = [
            np.bincount(rows, minlength=n_choices)[:n_choices].astype(float)
            for rows in (route, route[route == logged], logged)
        ]
        most = weight.max() if len(weight) else 0.0
        return cls(len(route), *count, weight.sum(), weight @ weight, most)

    @property
    def size(self):
        """Effective sample size, ``(sum w)^2 / sum w^2``."""
        return self.weight**2 / self.squares if self.squares > 0 else 0.0


def check_overlap(found, names, budget):
    """Refuse a policy that the log says nothing of.

    Parameters
    ----------
    found : Agreement
    names : list of str
    budget : float
    """
    where = f"At budget={budget:.6g}" if np.isfinite(budget) else "Without a budget"
    advice = (
        "Leave the budget out of budgets, or log some requests at random (with their propensities)."
    )
    for name, made, agreed, logged in zip(names, found.made, found.agreed, found.logged):
        if never_matched(made, agreed, logged, found.n):
            raise ValueError(
                f"{where} the policy sends {made / found.n:.1%} of the rows to {name!r}, and on "
                f"none of them has the log made this choice: it cannot say what that is worth. "
                f"{advice}"
            )
    if found.size < _LEAST_ROWS:
        raise ValueError(
            f"{where} the log agrees with the policy on {int(found.agreed.sum())} of {found.n} "
            f"rows, an effective sample size of {found.size:.1f}, below {_LEAST_ROWS}: too few to "
            f"say what the policy is worth. {advice}"
        )
    mean = found.weight / found.n
    if 1 - mean > max(_LACKS, 5 * standard_error_of(found.n, found.weight, found.squares)):
        raise ValueError(
            f"{where} the rows on which log and policy agree stand for {mean:.1%} of all rows "
            "by their propensities: the log never made the policy's choice on the others (or "
            f"propensities are too large), and cannot say what it is worth there. {advice}"
        )


def standard_error_of(n, total, squares):
    """Standard error of the mean of `n` terms with this sum and sum of squares."""
    return float(np.sqrt(max(squares - total**2 / n, 0.0) / (n - 1) / n)) if n > 1 else np.nan


def curve_of(router, limits, agreements, quality, cost, share, confidence_level):
    """The curve from what is known at each budget."""
    size = np.array([one.size for one in agreements])
    return OffPolicyCurve(
        budget=limits,
        quality=with_intervals(quality, size - 1, confidence_level),
        cost=with_intervals(cost, size - 1, confidence_level),
        route_share=share,
        choices=[str(name) for name in router.choices_],
        matched=np.array([one.agreed.sum() for one in agreements]).astype(np.int64),
        effective_sample_size=size,
        max_weight=np.array([one.most for one in agreements]),
        mean_weight=np.array([one.weight / one.n for one in agreements]),
        n_fitted=0,
        estimated=False,
    )


def budgets_of(router):
    """Nine budgets from the smallest to the largest that is of use."""
    if not hasattr(router, "price_path_"):
        raise ValueError(
            f"budgets must be given: {type(router).__name__} does not know its largest one."
        )
    own = router.price_path_.budgets
    least = router.min_budget_
    return np.linspace(least, least + max(own[-1] - own[0], 0.0), 9)


def count_fitted(router, X):
    """Rows that the router has learned from, as far as it knows."""
    seen = getattr(router, "_seen", None)
    return 0 if seen is None else int(np.count_nonzero(seen(X)))


def warn_of_fitted(count, n):
    """Warn where a log is that of the fit; some requests come again, and are not."""
    if count > _REPEATED * n:
        warnings.warn(
            f"{count} of {n} rows equal rows that the router was fitted on. If they are the same "
            "requests, it is judged too well for these: give requests that it has not seen. New "
            "requests that only have equal features do no harm.",
            UserWarning,
            stacklevel=4,
        )
