"""Is the cheap model enough? Gates that buy features row by row."""

from skroute.gating._adapt import AdaptGatingClassifier
from skroute.gating._boosting import BoostedGate
from skroute.gating._explanation import Explanation, NextPurchase, Round
from skroute.gating._linear import LinearGate
from skroute.gating._sequential import OperatingPoint, SequentialFeatureClassifier

__all__ = [
    "AdaptGatingClassifier",
    "BoostedGate",
    "Explanation",
    "LinearGate",
    "NextPurchase",
    "OperatingPoint",
    "Round",
    "SequentialFeatureClassifier",
]
