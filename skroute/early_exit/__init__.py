"""When to stop evaluating an ensemble: early exit with a learnt order."""

from skroute.early_exit._displays import ExitDisplay, TradeoffDisplay
from skroute.early_exit._portable import PortableEnsemble, export_ensemble
from skroute.early_exit._qwyc import QWYCEnsemble

__all__ = [
    "ExitDisplay",
    "PortableEnsemble",
    "QWYCEnsemble",
    "TradeoffDisplay",
    "export_ensemble",
]
