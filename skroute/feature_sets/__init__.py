"""Selectors of the features that are computed for an item within a budget."""

from skroute.feature_sets._costs import MeasuredCosts
from skroute.feature_sets._greedy import GreedyFeatureSelector
from skroute.feature_sets._poly_dom import PolyDomSelector

__all__ = ["GreedyFeatureSelector", "MeasuredCosts", "PolyDomSelector"]
