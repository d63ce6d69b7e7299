"""The cost protocol, and the checks that decision estimators share."""

from skroute.base._calls import Call, CallParameter
from skroute.base._costs import (
    affords,
    check_affordable,
    check_budget,
    check_costs,
    measure_costs,
)
from skroute.base._inspection import inherit_member_tags
from skroute.base._protocol import CostAwareMixin, Plan, Routed
from skroute.base._requests import RequestEstimates, RequestPolicy
from skroute.base._rows import check_rows, count_rows, dispatch, note_failure, take_rows

__all__ = [
    "Call",
    "CallParameter",
    "CostAwareMixin",
    "Plan",
    "RequestEstimates",
    "RequestPolicy",
    "Routed",
    "affords",
    "check_affordable",
    "check_budget",
    "check_costs",
    "check_rows",
    "count_rows",
    "dispatch",
    "inherit_member_tags",
    "measure_costs",
    "note_failure",
    "take_rows",
]
