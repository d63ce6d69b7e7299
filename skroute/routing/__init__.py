"""Which model answers: routers that buy the best answers within a budget."""

from skroute.routing._baselines import (
    OracleRouterClassifier,
    RandomRouterClassifier,
    SingleBestClassifier,
)
from skroute.routing._baselines_regressor import (
    OracleRouterRegressor,
    RandomRouterRegressor,
    SingleBestRegressor,
)
from skroute.routing._budget_router import BudgetRouter
from skroute.routing._cascade import CascadeRouter
from skroute.routing._cascade_run import CascadeRun
from skroute.routing._dask_router import DaskRouter
from skroute.routing._frugal_mct import FrugalMCTClassifier
from skroute.routing._frugal_ml import FrugalMLClassifier
from skroute.routing._newcomers import Newcomer
from skroute.routing._occam import OccamRouterClassifier
from skroute.routing._occam_regressor import OccamRouterRegressor
from skroute.routing._online import OnlineBudgetRouter
from skroute.routing._online_serving import Decision, OnlineStatus
from skroute.routing._policy_reader import PortablePolicy
from skroute.routing._portable import export_policy
from skroute.routing._route_batch import RoutedFiles, route_batch
from skroute.routing._sequential import SequentialRouterClassifier
from skroute.routing._stream import BudgetStream, StreamStatus, Ticket
from skroute.routing._voting import VoteClassifier

__all__ = [
    "BudgetRouter",
    "BudgetStream",
    "CascadeRouter",
    "CascadeRun",
    "DaskRouter",
    "Decision",
    "FrugalMCTClassifier",
    "FrugalMLClassifier",
    "Newcomer",
    "OccamRouterClassifier",
    "OccamRouterRegressor",
    "OnlineBudgetRouter",
    "OnlineStatus",
    "OracleRouterClassifier",
    "OracleRouterRegressor",
    "PortablePolicy",
    "RandomRouterClassifier",
    "RandomRouterRegressor",
    "RoutedFiles",
    "SequentialRouterClassifier",
    "SingleBestClassifier",
    "SingleBestRegressor",
    "StreamStatus",
    "Ticket",
    "VoteClassifier",
    "export_policy",
    "route_batch",
]
