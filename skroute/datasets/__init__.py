"""Real data for routing, and generators with a documented mechanism."""

from skroute.datasets._base import get_data_home
from skroute.datasets._tables import (
    fetch_adult,
    fetch_covertype_sample,
    fetch_letter,
    fetch_usps,
)

__all__ = [
    "fetch_adult",
    "fetch_covertype_sample",
    "fetch_letter",
    "fetch_usps",
    "get_data_home",
]
