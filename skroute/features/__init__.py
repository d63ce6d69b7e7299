"""Features that are fetched when a row needs them, and a pipeline that transforms what came."""

from skroute.features._lazy import LazyFeatures, Purchase
from skroute.features._pipeline import CostAwarePipeline

__all__ = ["CostAwarePipeline", "LazyFeatures", "Purchase"]
