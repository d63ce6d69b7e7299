"""What of a fit is not as its user may think it is."""

import warnings

import numpy as np

from skroute.base import affords

# A logged mean that is further from a fixed cost than this share of it contradicts it.
_CONTRADICTS = 0.1


def warn_of_fit(policy, names, budget):
    """Say what of a fit is not as its user may think it is."""
    _warn_if_a_single_choice_is_better(policy, names, budget)
    _warn_if_the_log_contradicts(policy, names)
    warn_of_slack(policy, budget, stacklevel=3)


def warn_of_slack(policy, budget, stacklevel):
    """Say so when a budget is above what any choice costs: its unit may be another."""
    costs = policy.costs if policy.known is None else policy.planned
    most = float(np.max(costs, axis=-1).mean()) + policy.deciding
    if budget < np.inf and not affords(most, budget):
        warnings.warn(
            f"budget={float(budget)!r} binds nowhere: the most expensive choice for each row costs "
            f"{most:.6g} per sample. budget is a mean cost per sample, in the unit of costs "
            "(not per thousand where costs are per call); None is unlimited.",
            UserWarning,
            stacklevel=stacklevel,
        )


def _warn_if_the_log_contradicts(policy, names):
    if policy.costs is policy.planned or policy.per_row:
        return
    found = policy.costs.mean(axis=0)
    off = np.abs(found - policy.planned)
    noise = policy.costs.std(axis=0) / np.sqrt(len(policy.costs))
    wrong = np.flatnonzero((off > _CONTRADICTS * policy.planned) & (off > 3 * noise))
    if len(wrong):
        worst = wrong[np.argmax(off[wrong] / np.maximum(policy.planned[wrong], 1e-300))]
        warnings.warn(
            f"The logged costs of {names[worst]!r} are {found[worst]:.6g} on average, but "
            f"costs says {policy.planned[worst]:.6g}. The budget is met in logged costs; "
            "rows are decided by those of costs. Check that both have one unit.",
            UserWarning,
            stacklevel=3,
        )


def _warn_if_a_single_choice_is_better(policy, names, budget):
    """Say so when one affordable choice is better on validation rows, beyond noise."""
    mean_costs = policy.costs.mean(axis=0) if policy.costs.ndim == 2 else policy.costs
    affordable = np.flatnonzero(affords(budget - policy.deciding, mean_costs))
    if len(affordable) == 0 or len(policy.quality) < 2:
        return
    validated, rate = policy.validate(budget), policy.rate(budget)
    # Where cost is money too, what is compared is what is left.
    net = policy.quality - rate * policy.costs
    alone = np.average(net, axis=0, weights=policy.weight)
    single = affordable[np.argmax(alone[affordable])]
    routed = validated.quality - rate * (validated.cost - policy.deciding)
    loss, found = net[:, single] - routed, np.average(routed, weights=policy.weight)
    if policy.weight is not None:
        loss = loss * policy.weight
    if loss.mean() > max(1.645 * loss.std(ddof=1) / np.sqrt(len(loss)), 0):
        warnings.warn(
            f"On validation rows the router's quality {found:.4g} is below the "
            f"{alone[single]:.4g} of {names[single]!r} alone, which fits the budget. Try a "
            "larger reg_lambda, another quality_estimator or better features, or use that "
            "choice for all rows.",
            UserWarning,
            stacklevel=3,
        )
