"""Real data, and generators with a documented mechanism."""

from skroute.datasets._base import get_data_home
from skroute.datasets._clusters import make_four_clusters, make_hard_centre
from skroute.datasets._frugal import fetch_frugalmct, fetch_frugalml, frugal_split
from skroute.datasets._llm import fetch_llmrouter, fetch_routellm_mmlu
from skroute.datasets._lm_logs import (
    fetch_carrot,
    fetch_cascades,
    fetch_greenserv,
    fetch_paretobandit,
)
from skroute.datasets._poly_dom import make_feature_sets
from skroute.datasets._shapes import load_shape_nets, make_shape_images
from skroute.datasets._studies import fetch_calm, fetch_spam, fetch_supg
from skroute.datasets._synthetic import make_routing_problem
from skroute.datasets._tables import (
    fetch_adult,
    fetch_covertype_sample,
    fetch_letter,
    fetch_usps,
)

__all__ = [
    "fetch_adult",
    "fetch_calm",
    "fetch_carrot",
    "fetch_cascades",
    "fetch_covertype_sample",
    "fetch_frugalmct",
    "fetch_frugalml",
    "fetch_greenserv",
    "fetch_letter",
    "fetch_llmrouter",
    "fetch_paretobandit",
    "fetch_routellm_mmlu",
    "fetch_spam",
    "fetch_supg",
    "fetch_usps",
    "frugal_split",
    "get_data_home",
    "load_shape_nets",
    "make_feature_sets",
    "make_four_clusters",
    "make_hard_centre",
    "make_routing_problem",
    "make_shape_images",
]
