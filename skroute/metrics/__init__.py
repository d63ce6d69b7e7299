"""Measure what answers cost and what they are worth."""

from skroute.metrics._bootstrap import BootstrapInterval, bootstrap_interval
from skroute.metrics._compare import compare_with_references
from skroute.metrics._complementarity import complementarity_matrix
from skroute.metrics._curve import AccuracyCostCurve, accuracy_cost_curve, sample_quality
from skroute.metrics._curve_displays import (
    AccuracyCostDisplay,
    ComplementarityDisplay,
    RouteShareDisplay,
)
from skroute.metrics._diagnostics import RouterDiagnosticsDisplay
from skroute.metrics._objectives import RowQuality
from skroute.metrics._off_policy import off_policy_curve
from skroute.metrics._off_policy_display import OffPolicyDisplay
from skroute.metrics._off_policy_sums import (
    OffPolicyCurve,
    OffPolicyEstimate,
    OffPolicyEstimates,
)
from skroute.metrics._overlap import Overlap
from skroute.metrics._replay import Replay, replay
from skroute.metrics._report import decision_report
from skroute.metrics._risk_coverage import (
    RiskCoverageCurve,
    risk_coverage_curve,
    risk_coverage_scorer,
)
from skroute.metrics._scorers import (
    best_within_budget,
    make_budget_scorer,
    make_curve_scorer,
    mean_cost_scorer,
    mean_quality_scorer,
)
from skroute.metrics._search import BudgetSearchCV
from skroute.metrics._tradeoff import (
    ReferenceCurves,
    average_performance_gap_recovered,
    call_performance_threshold,
    cost_quality_auc,
    cost_reduction_at,
    distance_to_pareto_front,
    pareto_front,
    reference_curves,
)

__all__ = [
    "AccuracyCostCurve",
    "AccuracyCostDisplay",
    "BootstrapInterval",
    "BudgetSearchCV",
    "ComplementarityDisplay",
    "OffPolicyCurve",
    "OffPolicyDisplay",
    "OffPolicyEstimate",
    "OffPolicyEstimates",
    "Overlap",
    "ReferenceCurves",
    "Replay",
    "RiskCoverageCurve",
    "RouteShareDisplay",
    "RouterDiagnosticsDisplay",
    "RowQuality",
    "accuracy_cost_curve",
    "average_performance_gap_recovered",
    "best_within_budget",
    "bootstrap_interval",
    "call_performance_threshold",
    "compare_with_references",
    "complementarity_matrix",
    "cost_quality_auc",
    "cost_reduction_at",
    "decision_report",
    "distance_to_pareto_front",
    "make_budget_scorer",
    "make_curve_scorer",
    "mean_cost_scorer",
    "mean_quality_scorer",
    "off_policy_curve",
    "pareto_front",
    "reference_curves",
    "replay",
    "risk_coverage_curve",
    "risk_coverage_scorer",
    "sample_quality",
]
