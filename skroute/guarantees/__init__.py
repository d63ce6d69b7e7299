"""Guarantees for means: bounds, tests in a fixed order, planned numbers of rows."""

from skroute.guarantees._means import (
    fixed_sequence_test,
    mean_lower_bound,
    mean_p_value,
    mean_upper_bound,
)
from skroute.guarantees._plan import rows_needed

__all__ = [
    "fixed_sequence_test",
    "mean_lower_bound",
    "mean_p_value",
    "mean_upper_bound",
    "rows_needed",
]
