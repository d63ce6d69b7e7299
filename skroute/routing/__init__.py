"""Routers: they choose the model that answers each row, within a budget."""

from skroute.routing.from_answers._cascade import CascadeRouter, CascadeRun
from skroute.routing.from_answers._frugal_mct import FrugalMCTClassifier
from skroute.routing.from_answers._frugal_ml import FrugalMLClassifier
from skroute.routing.from_answers._sequential import SequentialRouterClassifier
from skroute.routing.from_row._budget_router import BudgetRouter
from skroute.routing.from_row._dask_router import DaskRouter
from skroute.routing.from_row._dummy import DummyRouterClassifier, DummyRouterRegressor
from skroute.routing.from_row._occam import OccamRouterClassifier, OccamRouterRegressor
from skroute.routing.from_row._portable import PortablePolicy, export_policy
from skroute.routing.over_time._online import OnlineBudgetRouter
from skroute.routing.over_time._stream import BudgetStream

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
