"""Which model answers: routers that buy the best answers within a budget."""

from skroute.routing._baselines import (
    OracleRouterClassifier,
    RandomRouterClassifier,
    SingleBestClassifier,
)
from skroute.routing._budget_router import BudgetRouter
from skroute.routing._frugal_mct import FrugalMCTClassifier
from skroute.routing._occam import OccamRouterClassifier

__all__ = [
    "BudgetRouter",
    "FrugalMCTClassifier",
    "OccamRouterClassifier",
    "OracleRouterClassifier",
    "RandomRouterClassifier",
    "SingleBestClassifier",
]
