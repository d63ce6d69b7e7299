"""When to stop evaluating an ensemble: early exit with a learnt order."""

from skroute.early_exit._displays import ExitDisplay, TradeoffDisplay
from skroute.early_exit._export import evaluate_exported, export_ensemble, load_exported
from skroute.early_exit._portable_ensemble import PortableEnsemble
from skroute.early_exit._qwyc import QWYCEnsemble
from skroute.early_exit._qwyc_ranker import QWYCRanker
from skroute.early_exit._qwyc_regressor import QWYCRegressor

__all__ = [
    "ExitDisplay",
    "PortableEnsemble",
    "QWYCEnsemble",
    "QWYCRanker",
    "QWYCRegressor",
    "TradeoffDisplay",
    "evaluate_exported",
    "export_ensemble",
    "load_exported",
]
