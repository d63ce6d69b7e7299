"""What one budget over rows that are decided apart needs of a router."""

from sklearn.utils.validation import check_is_fitted

from skroute.base import CostAwareMixin
from skroute.routing._priced_views import LoggedMixin


def policy_of_plain(router, doing):
    """The policy of a fitted router that is estimates and one price list, nothing more.

    Parameters
    ----------
    router : estimator
        Fitted.
    doing : str
        What it cannot do otherwise, for example ``"route files"``.

    Returns
    -------
    PricedPolicy

    Raises
    ------
    TypeError
        If it is no router of this kind.
    ValueError
        If its decisions need more than that.
    """
    if not (isinstance(router, LoggedMixin) and isinstance(router, CostAwareMixin)):
        raise TypeError(
            "router must be a BudgetRouter or an OccamRouterClassifier, got "
            f"{type(router).__name__}: others ask a model before they decide."
        )
    check_is_fitted(router)
    if getattr(router, "objective", "mean") == "min":
        raise ValueError(
            f'A router with objective="min" cannot {doing}: the smallest quality of all rows is '
            'not found in passes. Use set_params(objective="mean"), or router.route on rows in '
            "memory."
        )
    if (reason := router._not_plain()) is not None:
        raise ValueError(
            f"A router with {reason} cannot {doing}: use router.route on rows in memory."
        )
    policy = router._policy()
    if policy.per_row:
        raise ValueError(f"A router with costs per row cannot {doing}: give it fixed costs.")
    return policy


def room_of(policy, budget):
    """What a cap leaves for choices, in the costs that rows are decided by."""
    room = budget - policy.deciding
    if policy.costs is not policy.planned:
        room = policy.path.planned_at(room)
    return max(room, float(policy.planned.min()))
