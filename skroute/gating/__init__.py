"""Is the cheap model enough? Gates that buy features row by row."""

from skroute.gating._adapt import AdaptGatingClassifier
from skroute.gating._gates import BoostedGate, LinearGate
from skroute.gating._grid import AdaptGrid, adapt_grid

__all__ = ["AdaptGatingClassifier", "AdaptGrid", "BoostedGate", "LinearGate", "adapt_grid"]
