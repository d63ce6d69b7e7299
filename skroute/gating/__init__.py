"""Is the cheap model enough? Gates that buy features row by row."""

from skroute.gating._acquisition import LazyFeatures
from skroute.gating._adapt import AdaptGatingClassifier, GreedyMiserClassifier

__all__ = ["AdaptGatingClassifier", "GreedyMiserClassifier", "LazyFeatures"]
