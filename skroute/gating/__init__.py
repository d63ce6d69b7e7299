"""Is the cheap model enough? Gates that buy features row by row."""

from skroute.gating._adapt_gating import AdaptGatingClassifier
from skroute.gating._budget_prune import BudgetPruneClassifier
from skroute.gating._gates import BoostedGate, LinearGate
from skroute.gating._greedy_miser import GreedyMiserClassifier
from skroute.gating._grid import AdaptGrid, adapt_grid
from skroute.gating._l1 import L1GatingClassifier
from skroute.gating._points import OperatingPoint
from skroute.gating._sequential_features import SequentialFeatureClassifier

__all__ = [
    "AdaptGatingClassifier",
    "AdaptGrid",
    "BoostedGate",
    "BudgetPruneClassifier",
    "GreedyMiserClassifier",
    "L1GatingClassifier",
    "LinearGate",
    "OperatingPoint",
    "SequentialFeatureClassifier",
    "adapt_grid",
]
