"""Measure what answers cost and what they are worth."""

from skroute.metrics._curve import (
    AccuracyCostCurve,
    accuracy_cost_curve,
    risk_coverage_curve,
    risk_coverage_scorer,
)
from skroute.metrics._displays import (
    AccuracyCostDisplay,
    ComplementarityDisplay,
    OffPolicyDisplay,
    RouterDiagnosticsDisplay,
    RouteShareDisplay,
    complementarity_matrix,
)
from skroute.metrics._objectives import sample_quality
from skroute.metrics._off_policy import off_policy_curve
from skroute.metrics._replay import replay
from skroute.metrics._report import decision_report
from skroute.metrics._savings import Saving, Savings, off_policy_savings, savings
from skroute.metrics._scorers import (
    BudgetSearchCV,
    best_within_budget,
    make_budget_scorer,
    make_curve_scorer,
    mean_cost_scorer,
    mean_quality_scorer,
)
from skroute.metrics._tradeoff import (
    average_performance_gap_recovered,
    bootstrap_interval,
    call_performance_threshold,
    compare_with_references,
    cost_quality_auc,
    cost_reduction_at,
    pareto_front,
    reference_curves,
)

__all__ = [
    "AccuracyCostCurve",
    "AccuracyCostDisplay",
    "BudgetSearchCV",
    "ComplementarityDisplay",
    "OffPolicyDisplay",
    "RouteShareDisplay",
    "RouterDiagnosticsDisplay",
    "Saving",
    "Savings",
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
    "make_budget_scorer",
    "make_curve_scorer",
    "mean_cost_scorer",
    "mean_quality_scorer",
    "off_policy_curve",
    "off_policy_savings",
    "pareto_front",
    "reference_curves",
    "replay",
    "risk_coverage_curve",
    "risk_coverage_scorer",
    "sample_quality",
    "savings",
]
