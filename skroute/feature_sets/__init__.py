"""Which features to compute for an item, given its size and a budget."""

from skroute.feature_sets._cost_fit import CostFitDisplay
from skroute.feature_sets._costs import MeasuredCosts
from skroute.feature_sets._greedy_selector import GreedyFeatureSelector
from skroute.feature_sets._selector import PolyDomSelector

__all__ = ["CostFitDisplay", "GreedyFeatureSelector", "MeasuredCosts", "PolyDomSelector"]
