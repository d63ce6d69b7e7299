"""Features that are fetched when needed, and a pipeline that transforms them."""

from skroute.features._lazy import LazyFeatures, Purchase
from skroute.features._pipeline import CostAwarePipeline

__all__ = ["CostAwarePipeline", "LazyFeatures", "Purchase"]
