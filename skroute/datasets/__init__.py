"""Real data, tables from your own logs, and generators with a documented mechanism."""

from skroute.datasets._base import get_data_home
from skroute.datasets._from_log import (
    LogRecord,
    LogTables,
    OneAnswer,
    tables_from_log,
)
from skroute.datasets._frugal import fetch_frugalmct, fetch_frugalml, frugal_split
from skroute.datasets._llm import fetch_llmrouter, fetch_routellm_mmlu
from skroute.datasets._synthetic import make_four_clusters, make_routing_problem

__all__ = [
    "LogRecord",
    "LogTables",
    "OneAnswer",
    "fetch_frugalmct",
    "fetch_frugalml",
    "fetch_llmrouter",
    "fetch_routellm_mmlu",
    "frugal_split",
    "get_data_home",
    "make_four_clusters",
    "make_routing_problem",
    "tables_from_log",
]
