"""Real data, and generators with a documented mechanism."""

from skroute.datasets._base import get_data_home
from skroute.datasets._frugal import fetch_frugalmct, fetch_frugalml, frugal_split
from skroute.datasets._llm import fetch_llmrouter, fetch_routellm_mmlu
from skroute.datasets._synthetic import make_four_clusters, make_routing_problem

__all__ = [
    "fetch_frugalmct",
    "fetch_frugalml",
    "fetch_llmrouter",
    "fetch_routellm_mmlu",
    "frugal_split",
    "get_data_home",
    "make_four_clusters",
    "make_routing_problem",
]
