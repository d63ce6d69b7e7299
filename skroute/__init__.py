"""Cost-aware prediction for scikit-learn."""

import importlib

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "assignment",
    "base",
    "certified",
    "datasets",
    "distributed",
    "early_exit",
    "feature_sets",
    "features",
    "forests",
    "gating",
    "guarantees",
    "ledgers",
    "members",
    "metrics",
    "quality",
    "routing",
    "testing",
]


def __getattr__(name):
    # Rooms load on first use (PEP 562): `import skroute` alone costs milliseconds.
    if name in __all__:
        return importlib.import_module(f"skroute.{name}")
    raise AttributeError(f"module 'skroute' has no attribute {name!r}")


def __dir__():
    return __all__
