"""Which model answers: routers that buy the best answers within a budget."""

from skroute.routing._budget_router import BudgetRouter
from skroute.routing._cascade import CascadeRouter, CascadeRun
from skroute.routing._dask_router import DaskRouter
from skroute.routing._dummy import DummyRouterClassifier, DummyRouterRegressor
from skroute.routing._frugal_mct import FrugalMCTClassifier
from skroute.routing._frugal_ml import FrugalMLClassifier
from skroute.routing._occam import OccamRouterClassifier, OccamRouterRegressor
from skroute.routing._online import OnlineBudgetRouter
from skroute.routing._portable import PortablePolicy, export_policy
from skroute.routing._sequential import SequentialRouterClassifier
from skroute.routing._stream import BudgetStream

__all__ = [
    "BudgetRouter",
    "BudgetStream",
    "CascadeRouter",
    "CascadeRun",
    "DaskRouter",
    "DummyRouterClassifier",
    "DummyRouterRegressor",
    "FrugalMCTClassifier",
    "FrugalMLClassifier",
    "OccamRouterClassifier",
    "OccamRouterRegressor",
    "OnlineBudgetRouter",
    "PortablePolicy",
    "SequentialRouterClassifier",
    "export_policy",
]
