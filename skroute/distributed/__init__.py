"""The assignment beyond one memory: a few passes over blocks of rows, by Dask or one by one."""

from skroute.distributed._dask import BlockedAssignment, solve_assignment
from skroute.distributed._passes import PassedAssignment, solve_in_passes

__all__ = [
    "BlockedAssignment",
    "PassedAssignment",
    "solve_assignment",
    "solve_in_passes",
]
