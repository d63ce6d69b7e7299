"""Risk and coverage: how wrong the answers are that are left when the doubtful are handed over."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_consistent_length

from skroute.metrics._curve import Walk
from skroute.utils._compat import check_sample_weight
from skroute.utils._protocol import handed_over
from skroute.utils._validation import check_numbers


class RiskCoverageCurve(NamedTuple):
    """See :func:`risk_coverage_curve`."""

    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    area: float


def risk_coverage_curve(
    loss: ArrayLike, confidence: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> RiskCoverageCurve:
    """Risk against coverage, if the least confident rows abstain first.

    Parameters
    ----------
    loss : array-like of shape (n_samples,)
        What each answer loses, such as 1 for a wrong one.

    confidence : array-like of shape (n_samples,)
        By which rows are ranked, such as ``predict_quality`` of a
        :class:`~skroute.routing.CascadeRouter`. Equal ones are handed over together.

    sample_weight : array-like of shape (n_samples,), default=None
        Sample weights.

    Returns
    -------
    RiskCoverageCurve
        Named tuple: ``coverage``, the share of the rows that are answered, rising to 1; ``risk``,
        their mean loss; ``thresholds``, the smallest confidence that is answered; and ``area``,
        the mean risk over all coverages, lower is better.

    Raises
    ------
    ValueError
        For numbers that are not finite, negative weights, or lengths that differ.

    References
    ----------
    .. [1] Y. Geifman, R. El-Yaniv, "Selective Classification for Deep Neural Networks",
       NeurIPS 2017.

    Examples
    --------
    >>> from skroute.metrics import risk_coverage_curve
    >>> curve = risk_coverage_curve([0, 1, 0, 1], [0.9, 0.6, 0.8, 0.2])
    >>> curve.coverage.tolist(), curve.risk.round(2).tolist()
    ([0.25, 0.5, 0.75, 1.0], [0.0, 0.0, 0.33, 0.5])
    """
    lost = check_numbers(loss, "loss", shape=(None,))
    rank = check_numbers(confidence, "confidence", shape=(None,))
    check_consistent_length(lost, rank)
    weight = check_numbers(check_sample_weight(sample_weight, lost), "sample_weight", low=0.0)
    steps, step = np.unique(-rank, return_inverse=True)
    weights, losses = np.bincount(step, weight), np.bincount(step, weight * lost)
    # Rows without weight make no point of their own.
    keep = weights > 0
    if not keep.any():
        raise ValueError("sample_weight must not be zero for every row.")
    total = np.cumsum(weights[keep])
    coverage, risk = total / total[-1], np.cumsum(losses[keep]) / total
    area = np.diff(coverage, prepend=0.0) @ risk
    return RiskCoverageCurve(coverage, risk, -steps[keep], float(area))


def risk_coverage_scorer(estimator: Any, X: Any, y: Any, **params: Any) -> float:
    """Scorer: minus the area under the risk-coverage curve of a fitted estimator.

    Rows are ranked by the estimated quality of their answer, ``predict_quality``, of an
    estimator that routes; else by the largest of ``predict_proba``.

    Parameters
    ----------
    estimator, X, y
        As in :func:`accuracy_cost_curve`. Rows that are handed over are left out.

    **params : keyword arguments
        Further arguments of ``predict_routed``, for example ``budget`` or ``signals``.

    Returns
    -------
    float
        Higher is better, at most 0 where no quality is above 1. The loss of an answer is one
        less its quality, or minus its quality by a `quality` of the estimator other than accuracy.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.metrics import risk_coverage_scorer
    >>> from skroute.routing import CascadeRouter
    >>> rng = np.random.default_rng(0)
    >>> sure = rng.uniform(size=400)
    >>> Q = np.column_stack([sure > rng.uniform(size=400), rng.uniform(size=400) < 0.9])
    >>> router = CascadeRouter(costs={"small": 1, "large": 10})
    >>> router = router.fit(None, Q, signals={"small": sure})
    >>> cheap = risk_coverage_scorer(router, None, Q, signals={"small": sure}, budget=1)
    >>> bool(-0.35 < cheap < -0.1)
    True
    """
    budget = params.pop("budget", None)
    walk = Walk(estimator, X, y, **params)
    router, call = walk.router, {"budget": budget, **walk.call}
    quality, route, _ = walk.at(budget)
    rows = np.flatnonzero(~handed_over(router, route))
    if not len(rows):
        return 0.0
    if hasattr(router, "predict_proba"):
        confidence = router.predict_proba(walk.X, **call)[rows].max(axis=1)
    elif hasattr(router, "model_names_"):
        confidence = router.predict_quality(walk.X, **call)[rows]
    elif hasattr(router, "predict_quality"):
        # Of each choice, whatever is bought.
        confidence = router.predict_quality(walk.X)[rows, route[rows]]
    else:
        raise TypeError(
            "estimator must have predict_quality or predict_proba to rank its answers by, which "
            f"{type(router).__name__} has not."
        )
    best = 1.0 if walk.worth.name == "accuracy" else 0.0
    return -risk_coverage_curve(best - quality[rows], confidence).area
