"""Learning a policy from a log: estimates of quality, out of sample and as those of new rows."""

import numpy as np

from skroute.routing._draws import row_keys
from skroute.routing._estimates import cross_fit, error_deviation, part_of, predict_matrix
from skroute.routing._log import with_last
from skroute.routing._policy import Policy
from skroute.utils._compat import _safe_indexing

# Rows that occur this often are decided in `fit` as they will be later: all alike.
_OFTEN = 20


def learn_policy(
    estimator,
    X,
    log,
    folds,
    *,
    task=None,
    cost_estimator=None,
    reg_lambda=0.0,
    deciding=0.0,
    least_prices=(0.0, 0.0),
    weight=None,
    n_jobs=None,
    fit_params=None,
):
    """Cross-fitted estimates of quality on a log, and the policy that they make (`Policy`).

    `cost_estimator` is fitted: it has estimated `log.planned`.
    """
    planned = log.paid if log.planned is None else log.planned
    # What handing over is worth is known.
    handing = log.handing
    estimated = slice(None if handing is None else -1)
    fitted, *found = cross_fit(
        estimator,
        X,
        log.quality[:, estimated],
        folds,
        task=task,
        name="quality_estimator",
        costs=planned[..., estimated],
        n_jobs=n_jobs,
        fit_params=fit_params,
    )
    estimate, as_new = found if handing is None else (with_last(part, handing) for part in found)
    known, quality, noise = log.known, log.quality, 1.0
    sigma = error_deviation(estimate, quality) if known is None else known.deviation(estimate)
    if known is not None:
        quality, noise = known.judged(estimate), known.noise
    part, planned_as_new, kind = part_of(folds, len(quality)), None, None
    # Costs that are known row by row do not repeat.
    if planned.ndim == 1 or cost_estimator is not None:
        rows, first, code = frequent_rows(X, part)
        if len(first):
            kind = np.full(len(quality), -1)
            kind[rows] = code
            again = _safe_indexing(X, first)
            as_new = as_new.copy()
            as_new[rows, estimated] = predict_matrix(fitted, again, "quality_estimator")[code]
            if cost_estimator is not None:
                planned_as_new = planned.copy()
                planned_as_new[rows, estimated] = predict_costs(cost_estimator, again)[code]
    return Policy(
        estimator=fitted,
        estimate=estimate,
        as_new=as_new,
        quality=quality,
        planned=planned,
        paid=planned if log.planned is None else log.judged_costs(X),
        part=part,
        sigma=sigma,
        reg_lambda=float(reg_lambda),
        deciding=float(deciding),
        least_prices=least_prices,
        weight=weight,
        noise=noise,
        planned_as_new=planned_as_new,
        kind=kind,
        handing=handing,
    )


def predict_costs(fitted, X):
    """Estimated costs, which are never negative."""
    return np.maximum(predict_matrix(fitted, X, "cost_estimator"), 0.0)


def frequent_rows(X, part):
    """Rows that occur often and in several folds, where each first does, and which it is.

    The folds' estimates of such rows differ from one another, and from the one number that the
    fitted estimator gives all of them later.
    """
    _, first, code, counts = np.unique(
        row_keys(X), return_index=True, return_inverse=True, return_counts=True
    )
    low, high = np.full(len(counts), part.max()), np.zeros(len(counts), dtype=part.dtype)
    np.minimum.at(low, code, part)
    np.maximum.at(high, code, part)
    often = np.flatnonzero((counts >= _OFTEN) & (low < high))
    number = np.full(len(counts), -1)
    number[often] = np.arange(len(often))
    rows = np.flatnonzero(number[code] >= 0)
    return rows, first[often], number[code[rows]]
