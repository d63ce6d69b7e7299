"""Is the cheap model enough? Gates that buy features row by row."""

from skroute.gating._acquisition import LazyFeatures
from skroute.gating._adapt import AdaptGatingClassifier, GreedyMiserClassifier
from skroute.gating._budget_prune import BudgetPruneClassifier
from skroute.gating._l1 import L1GatingClassifier
from skroute.gating._path import AdaptPath, adapt_path

__all__ = [
    "AdaptGatingClassifier",
    "AdaptPath",
    "BudgetPruneClassifier",
    "GreedyMiserClassifier",
    "L1GatingClassifier",
    "LazyFeatures",
    "adapt_path",
]
