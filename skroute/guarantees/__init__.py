"""What can be promised: bounds for means, sequential tests, finite batches, rows to plan for."""

from skroute.guarantees._finite import BatchCertificate, finite_population_test
from skroute.guarantees._means import mean_lower_bound, mean_p_value, mean_upper_bound
from skroute.guarantees._plan import rows_needed
from skroute.guarantees._sequence import ConfidenceSequence, confidence_sequence
from skroute.guarantees._tests import fixed_sequence_test

__all__ = [
    "BatchCertificate",
    "ConfidenceSequence",
    "confidence_sequence",
    "finite_population_test",
    "fixed_sequence_test",
    "mean_lower_bound",
    "mean_p_value",
    "mean_upper_bound",
    "rows_needed",
]
