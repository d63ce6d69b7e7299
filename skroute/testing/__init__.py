"""Checks for decision estimators, those of third parties included."""

from skroute.testing._checks import check_decision_estimator

__all__ = ["check_decision_estimator"]
