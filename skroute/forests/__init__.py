"""Forests of all libraries in one layout: readers, and fast walks through trees."""

from skroute.forests._code_walk import leaf_sums
from skroute.forests._fast_forest import FastForest
from skroute.forests._forest import Forest, ForestBuilder
from skroute.forests._lightgbm import read_lightgbm
from skroute.forests._reader import ForestReader
from skroute.forests._readers import find_reader, read_forest, register_reader
from skroute.forests._rules import AnswerRule, ReadRule, SumRule

__all__ = [
    "AnswerRule",
    "FastForest",
    "Forest",
    "ForestBuilder",
    "ForestReader",
    "ReadRule",
    "SumRule",
    "find_reader",
    "leaf_sums",
    "read_forest",
    "read_lightgbm",
    "register_reader",
]
