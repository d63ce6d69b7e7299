"""Columns as a log or a database holds them: turned into numbers, and fetched when needed."""

from skroute.features._frame_encoder import FrameEncoder, needs_encoding
from skroute.features._lazy import LazyFeatures, Purchase
from skroute.features._pipeline import CostAwarePipeline

__all__ = ["CostAwarePipeline", "FrameEncoder", "LazyFeatures", "Purchase", "needs_encoding"]
