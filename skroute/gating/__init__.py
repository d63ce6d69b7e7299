"""Is the cheap model enough? Gates that buy features row by row."""

from skroute.gating._acquisition import LazyFeatures
from skroute.gating._adapt import AdaptGatingClassifier, GreedyMiserClassifier
from skroute.gating._l1 import L1GatingClassifier

__all__ = [
    "AdaptGatingClassifier",
    "GreedyMiserClassifier",
    "L1GatingClassifier",
    "LazyFeatures",
]
