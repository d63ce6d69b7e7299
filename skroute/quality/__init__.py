"""Estimate each model's quality on a new row: multi-output regressors."""

from skroute.quality._bagged_neighbors import BaggedNeighborsRegressor
from skroute.quality._frame_encoder import FrameEncoder
from skroute.quality._quality_regressor import QualityRegressor

__all__ = ["BaggedNeighborsRegressor", "FrameEncoder", "QualityRegressor"]
