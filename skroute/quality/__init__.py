"""Estimate each model's quality on a new row: multi-output regressors."""

from skroute.quality._bagged_neighbors import BaggedNeighborsRegressor

__all__ = ["BaggedNeighborsRegressor"]
