"""Assignment of more rows than fit in memory: passes over blocks, also by Dask."""

from skroute.distributed._dask import BlockedAssignment, solve_assignment
from skroute.distributed._passes import PassedAssignment, solve_in_passes

__all__ = [
    "BlockedAssignment",
    "PassedAssignment",
    "solve_assignment",
    "solve_in_passes",
]
