"""Numbers from what a log holds: texts, categories, numbers, from a data frame as it is."""

from skroute.features._frame_encoder import FrameEncoder, needs_encoding

__all__ = ["FrameEncoder", "needs_encoding"]
