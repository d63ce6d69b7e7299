"""One cheap instance of every public estimator, for the common checks.

A new estimator adds itself here and is then run through scikit-learn's checks and through
skroute's own (`tests/router_checks.py`). `test_common.py` proves that none is missing.
"""

from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.quality import BaggedNeighborsRegressor
from skroute.routing import (
    BudgetRouter,
    OccamRouterClassifier,
    OracleRouterClassifier,
    RandomRouterClassifier,
    SingleBestClassifier,
)


def members():
    """Two classifiers of different price."""
    return [
        ("tree", DecisionTreeClassifier(max_depth=2, random_state=0)),
        ("logreg", LogisticRegression(max_iter=200)),
    ]


COSTS = {"tree": 1.0, "logreg": 3.0}

# Estimators that choose among named classifiers and answer with one of them.
ROUTERS = [
    OccamRouterClassifier(members(), costs=COSTS, budget=2.0, cv=2),
    OccamRouterClassifier(
        members(),
        costs=COSTS,
        budget=2.0,
        cv=2,
        embedding="tree",
        response="predict",
        reg_lambda=0.5,
        accuracy_estimator=DecisionTreeRegressor(max_depth=3, random_state=0),
    ),
    SingleBestClassifier(members(), costs=COSTS, budget=2.0, cv=2),
    RandomRouterClassifier(members(), costs=COSTS, budget=2.0),
    OracleRouterClassifier(members(), costs=COSTS, budget=2.0, cv=2),
]

ESTIMATORS = [
    *ROUTERS,
    # The batch policy depends on the batch, but not on these checks' small ones.
    OccamRouterClassifier(members(), costs=COSTS, budget=2.0, cv=2, policy="batch"),
    BudgetRouter(costs=[1.0], cv=2),
    BaggedNeighborsRegressor(),
]
