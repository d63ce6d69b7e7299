"""Warnings about a fit, or a budget, that is not what its user may think."""

import numpy as np

from skroute.base import affords
from skroute.utils._validation import warn

# A logged mean that is further from a listed cost than this share of it contradicts it.
_CONTRADICTS = 0.1


def warn_of_fit(policy, names, budget):
    """At most one warning about a fit: costs that contradict, a budget too large, no gain."""
    for check in (_warn_if_the_log_contradicts, _warn_of_slack, _warn_if_a_single_choice_is_better):
        if check(policy, names, budget):
            return


def _warn_of_slack(policy, names, budget):
    """Say so when a budget is above what any choice costs: its unit may be another."""
    costs = policy.planned if policy.noise > 1 else policy.paid
    most = float(np.max(costs, axis=-1).mean()) + policy.deciding
    if budget == np.inf or affords(most, budget):
        return False
    warn(
        f"budget={float(budget)!r} has no effect: the most expensive choice for each row costs "
        f"{most:.6g} per sample. budget is a mean cost per sample, in the unit of costs "
        "(not per thousand where costs are per call); None is unlimited.",
    )
    return True


def _warn_if_the_log_contradicts(policy, names, budget):
    if policy.paid is policy.planned or policy.per_row:
        return False
    found = policy.paid.mean(axis=0)
    off = np.abs(found - policy.planned)
    noise = policy.paid.std(axis=0) / np.sqrt(len(policy.paid))
    wrong = np.flatnonzero((off > _CONTRADICTS * policy.planned) & (off > 3 * noise))
    if not len(wrong):
        return False
    worst = wrong[np.argmax(off[wrong] / np.maximum(policy.planned[wrong], 1e-300))]
    warn(
        f"The logged costs of {names[worst]!r} are {found[worst]:.6g} on average, but costs says "
        f"{policy.planned[worst]:.6g}. The budget is met in logged costs; rows are decided by "
        "those of costs. Check that both have one unit.",
    )
    return True


def _warn_if_a_single_choice_is_better(policy, names, budget):
    mean_costs = policy.paid.mean(axis=0) if policy.paid.ndim == 2 else policy.paid
    affordable = np.flatnonzero(affords(budget - policy.deciding, mean_costs))
    if len(affordable) == 0 or len(policy.quality) < 2:
        return False
    validated, rate = policy.validate(budget), policy.least_prices[budget == np.inf]
    # Where cost is money too, what is compared is what is left.
    net = policy.quality - rate * policy.paid
    alone = np.average(net, axis=0, weights=policy.weight)
    single = affordable[np.argmax(alone[affordable])]
    routed = validated.quality - rate * (validated.cost - policy.deciding)
    return warn_if_behind(net[:, single], routed, names[single], policy.weight)


def warn_if_behind(single, routed, name, weight=None):
    """Say so when one choice for all rows is better on validation rows, beyond noise."""
    loss = single - routed
    loss = loss if weight is None else loss * weight / weight.mean()
    if not loss.mean() > max(1.645 * loss.std(ddof=1) / np.sqrt(len(loss)), 0):
        return False
    warn(
        f"On validation rows the router's quality {np.average(routed, weights=weight):.4g} is "
        f"below the {np.average(single, weights=weight):.4g} of {name!r} alone, which fits the "
        "budget. "
        "Use that choice for all rows, or try a larger reg_lambda, another quality_estimator or "
        "better features.",
    )
    return True
