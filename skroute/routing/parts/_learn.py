"""Learning a policy from a log: estimates of quality, out of sample and as those of new rows."""

import numpy as np

from skroute.base import affords
from skroute.routing.parts._estimates import (
    cross_fit,
    error_deviation,
    part_of,
    predict_matrix,
)
from skroute.routing.parts._log import with_last
from skroute.routing.parts._policy import Policy
from skroute.utils._compat import _safe_indexing
from skroute.utils._row_hash import row_keys
from skroute.utils._validation import warn

# Rows that occur this often are decided in `fit` as they will be later: all alike.
_OFTEN = 20
# A logged mean that is further from a listed cost than this share of it contradicts it.
_CONTRADICTS = 0.1


def learn_policy(
    estimator,
    X,
    log,
    folds,
    *,
    task=None,
    cost_estimator=None,
    weight=None,
    n_jobs=None,
    fit_params=None,
):
    """Cross-fitted estimates of quality on a log, and the policy that they make (`Policy`).

    `cost_estimator` is fitted: it has estimated `log.planned`, `log.planned_as_new` and
    `log.planned_by_fold`.
    """
    planned = log.paid if log.planned is None else log.planned
    # The quality of abstaining is known.
    abstain_quality = log.abstain_quality
    estimated = slice(None if abstain_quality is None else -1)
    fitted = cross_fit(
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
    estimate = fitted.estimate
    as_new = fitted.as_new
    by_fold = fitted.by_fold
    if abstain_quality is not None:
        estimate = with_last(estimate, abstain_quality)
        as_new = with_last(as_new, abstain_quality)
        if by_fold is not None:
            by_fold = with_last(by_fold, abstain_quality)
    known, quality, noise = log.known, log.quality, 1.0
    if known is None:
        sigma = error_deviation(estimate, quality, weight)
    else:
        sigma = known.deviation(estimate, weight)
        quality, noise = known.judged(estimate), known.noise
    part = part_of(folds, len(quality))
    planned_as_new = log.planned_as_new
    kind = None
    # Costs that are known row by row do not repeat.
    if planned.ndim == 1 or cost_estimator is not None:
        numbers, first = frequent_rows(X, part, weight)
        if len(first):
            kind, rows, again = numbers, numbers >= 0, _safe_indexing(X, first)
            as_new = as_new.copy()
            estimates = predict_matrix(fitted.estimator, again, "quality_estimator")
            as_new[rows, estimated] = estimates[kind[rows]]
            if cost_estimator is not None:
                planned_as_new = planned_as_new.copy()
                planned_as_new[rows, estimated] = predict_costs(cost_estimator, again)[
                    kind[rows]
                ]
    return Policy(
        estimator=fitted.estimator,
        estimate=estimate,
        as_new=as_new,
        by_fold=by_fold,
        quality=quality,
        planned=planned,
        realised=None if log.planned is None else log.judged_costs(X),
        fold=part,
        sigma=sigma,
        weight=weight,
        noise=noise,
        planned_as_new=planned_as_new,
        planned_by_fold=log.planned_by_fold,
        kind=kind,
        abstain_quality=abstain_quality,
    )


def predict_costs(fitted, X):
    """Estimated costs, which are never negative."""
    return np.maximum(predict_matrix(fitted, X, "cost_estimator"), 0.0)


def frequent_rows(X, part, weight=None):
    """Numbers of the kinds of rows that occur often and in several folds, -1 for other rows.

    And where each kind first occurs. The folds' estimates of such rows differ from one another,
    and from the one number that the fitted estimator gives all of them later. `weight` says how
    often each row occurs; None: once.
    """
    _, first, code = np.unique(row_keys(X), return_index=True, return_inverse=True)
    counts = np.bincount(code, weight)
    n_parts = part.max() + 1
    of_kind, _ = np.divmod(np.unique(code * n_parts + part), n_parts)
    often = (counts >= _OFTEN) & (np.bincount(of_kind) > 1)
    return np.where(often, np.cumsum(often) - 1, -1)[code], first[often]


# What a user may not think of a fit ------------------------------------------------------------


def warn_of_fit(policy, names, budget, known=None):
    """Warn once about a fit, if costs contradict, a budget is too large, or nothing is gained.

    Parameters
    ----------
    policy : Policy
    names : list of str
        The choices.
    budget : float
    known : ndarray of shape (n_choices,), dtype=bool, default=None
        Choices whose means over all rows the log says. None knows all.
    """
    if known is None:
        known = np.ones(len(names), dtype=bool)
    messages = (
        _contradiction(policy, names, known),
        _slack(policy, budget),
        _better_choice(policy, names, budget, known),
    )
    for message in messages:
        if message is not None:
            warn(message)
            return


def _slack(policy, budget):
    """Of a budget above what any choice costs: its unit may be another."""
    costs = policy.planned if policy.noise > 1 else policy.paid
    largest = np.max(costs, axis=-1)
    most = float(
        largest if costs.ndim == 1 else np.average(largest, weights=policy.weight)
    )
    most += policy.deciding
    if budget < np.inf and not affords(most, budget):
        return (
            f"budget={float(budget)!r} has no effect: the most expensive choice for each row costs "
            f"{most:.6g} per sample. budget is a mean cost per sample, in the unit of costs "
            "(not per thousand where costs are per call); None is unlimited."
        )
    return None


def _contradiction(policy, names, known):
    """Return a message about a price list that is far from the logged costs, or None."""
    if policy.realised is None or policy.per_row:
        return None
    found = np.average(policy.paid, axis=0, weights=policy.weight)
    off = np.abs(found - policy.planned)
    noise = policy.paid.std(axis=0) / np.sqrt(len(policy.paid))
    # Rows on which the log never made a choice can have other costs.
    wrong = np.flatnonzero(
        known & (off > _CONTRADICTS * policy.planned) & (off > 3 * noise)
    )
    if not len(wrong):
        return None
    worst = wrong[np.argmax(off[wrong] / np.maximum(policy.planned[wrong], 1e-300))]
    return (
        f"The logged costs of {names[worst]!r} are {found[worst]:.6g} on average, but costs says "
        f"{policy.planned[worst]:.6g}. The budget is met in logged costs; rows are decided by "
        "those of costs. Check that both have one unit."
    )


def _better_choice(policy, names, budget, known):
    """Return a message about a single choice that is better than routing, or None."""
    mean_costs = policy.paid
    if policy.paid.ndim == 2:
        mean_costs = np.average(policy.paid, axis=0, weights=policy.weight)
    affordable = np.flatnonzero(known & affords(budget - policy.deciding, mean_costs))
    if len(affordable) == 0 or len(policy.quality) < 2:
        return None
    validated, rate = policy.validate(budget), policy.least_prices[budget == np.inf]
    # Where cost is money too, what is compared is what is left.
    net = policy.quality - rate * policy.paid
    alone = np.average(net, axis=0, weights=policy.weight)
    single = affordable[np.argmax(alone[affordable])]
    routed = validated.quality - rate * (validated.cost - policy.deciding)
    return what_is_behind(net[:, single], routed, names[single], policy.weight)


def what_is_behind(single, routed, name, weight=None):
    """A message where one choice for all rows is better on validation rows, beyond noise."""
    loss = single - routed
    loss = loss if weight is None else loss * weight / weight.mean()
    if loss.mean() > max(1.645 * loss.std(ddof=1) / np.sqrt(len(loss)), 0):
        return (
            f"On validation rows the router's quality {np.average(routed, weights=weight):.4g} is "
            f"below the {np.average(single, weights=weight):.4g} of {name!r} alone, which fits the "
            "budget. Use that choice for all rows, or try a larger reg_lambda, another "
            "quality_estimator or better features."
        )
