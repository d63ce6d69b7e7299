"""Which features to compute for an item, given its size and a budget."""

from skroute.feature_sets._display import CostFitDisplay
from skroute.feature_sets._selector import PolyDomSelector

__all__ = ["CostFitDisplay", "PolyDomSelector"]
