"""One cheap instance of every public estimator, for the common checks.

A new estimator adds itself here and is then run through scikit-learn's checks and through
skroute's own (`tests/router_checks.py`). `test_common.py` proves that none is missing.
"""

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.certified import CertifiedRouter
from skroute.early_exit import QWYCEnsemble
from skroute.feature_sets import GreedyFeatureSelector, PolyDomSelector
from skroute.forests import FastForest
from skroute.gating import (
    AdaptGatingClassifier,
    BoostedGate,
    SequentialFeatureClassifier,
)
from skroute.members import CallableClassifier, MultiExitClassifier, RecordedClassifier
from skroute.quality import BaggedNeighborsRegressor, FrameEncoder, QualityRegressor
from skroute.routing import (
    BudgetRouter,
    CascadeRouter,
    DummyRouterClassifier,
    DummyRouterRegressor,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    OccamRouterRegressor,
    OnlineBudgetRouter,
    SequentialRouterClassifier,
)


def members():
    """Two classifiers of different price."""
    return [
        ("tree", DecisionTreeClassifier(max_depth=2, random_state=0)),
        ("logreg", LogisticRegression(tol=0.01)),
    ]


COSTS = {"tree": 1.0, "logreg": 3.0}
_SMALL_TREE = DecisionTreeRegressor(max_depth=3, random_state=0)

# Estimators that choose among named classifiers and answer with one of them.
ROUTERS = [
    OccamRouterClassifier(
        members(), costs=COSTS, budget=2.0, cv=2, quality_estimator=_SMALL_TREE
    ),
    OccamRouterClassifier(
        members(),
        costs=COSTS,
        budget=2.0,
        cv=2,
        embedding="tree",
        quality="accuracy",
        reg_lambda=0.5,
        quality_estimator=_SMALL_TREE,
    ),
    DummyRouterClassifier(members(), costs=COSTS, budget=2.0, cv=2),
    DummyRouterClassifier(members(), strategy="random", costs=COSTS, budget=2.0),
]
# Not in the list: it decides by the true answers, which no common check gives to `predict`.
ORACLE = DummyRouterClassifier(
    members(), strategy="oracle", costs=COSTS, budget=2.0, cv=2
)

# Estimators that may ask several named classifiers about a row and combine their answers.
COMBINERS = [
    FrugalMCTClassifier(
        members(),
        costs=COSTS,
        budget=2.0,
        base="tree",
        quality_estimator=_SMALL_TREE,
        cv=2,
    ),
    FrugalMLClassifier(members(), costs=COSTS, budget=2.0, cv=2),
    SequentialRouterClassifier(
        members(),
        costs=COSTS,
        budget=2.0,
        n_prices=3,
        quality_estimator=_SMALL_TREE,
        cv=2,
    ),
]

# Trees: a linear model says of one row another last digit than of many.
REGRESSORS = [
    ("tree", DecisionTreeRegressor(max_depth=2, random_state=0)),
    ("deep", DecisionTreeRegressor(max_depth=6, random_state=0)),
]
REGRESSOR_COSTS = {"tree": 1.0, "deep": 3.0}

_SMALL_CLASSIFIER = DecisionTreeClassifier(max_depth=2, random_state=0)

ESTIMATORS = [
    *ROUTERS,
    *COMBINERS,
    OccamRouterRegressor(
        REGRESSORS,
        costs=REGRESSOR_COSTS,
        budget=2.5,
        cv=2,
        quality_estimator=_SMALL_TREE,
    ),
    DummyRouterRegressor(REGRESSORS, costs=REGRESSOR_COSTS, budget=3.0, cv=2),
    # The batch policy depends on the batch, but not on these checks' small ones.
    OccamRouterClassifier(
        members(),
        costs=COSTS,
        budget=2.0,
        cv=2,
        policy="batch",
        quality_estimator=_SMALL_TREE,
    ),
    BudgetRouter(_SMALL_TREE, costs=[1.0], cv=2),
    CascadeRouter(_SMALL_TREE, costs=[1.0], cv=2, n_prices=4),
    OnlineBudgetRouter([1.0]),
    BaggedNeighborsRegressor(),
    FrameEncoder(n_components=2),
    QualityRegressor(family=["linear", "landmarks"], cv=2),
    QWYCEnsemble(
        RandomForestClassifier(n_estimators=5, max_depth=3, random_state=0),
        random_state=0,
    ),
    FastForest(RandomForestClassifier(n_estimators=5, max_depth=3, random_state=0)),
    AdaptGatingClassifier(
        LogisticRegression(), gate=BoostedGate(max_iter=2, n_estimators=5), cv=2
    ),
    SequentialFeatureClassifier(
        DecisionTreeClassifier(max_depth=3, min_samples_leaf=4, random_state=0),
        random_state=0,
    ),
    PolyDomSelector(_SMALL_CLASSIFIER, max_models=4, cv=2),
    GreedyFeatureSelector(_SMALL_CLASSIFIER, trade_offs=[np.inf], cv=2),
    # scikit-learn's checks have too few rows for a promise.
    CertifiedRouter(
        OccamRouterClassifier(
            members(), costs=COSTS, cv=2, quality_estimator=_SMALL_TREE
        ),
        max_loss=0.6,
        calibration=0.2,
        n_points=4,
        fallback="safe",
        random_state=0,
    ),
]


# With the default models a fit takes up to two seconds: a check of each in `make test-slow`.
SLOW = [
    OccamRouterClassifier(members(), costs=COSTS, budget=2.0, cv=2),
    QualityRegressor(cv=2),
    SequentialFeatureClassifier(random_state=0),
]


class FirstSign:
    """A stand-in for a service. An object, not a function: its repr has no address in it."""

    def __call__(self, rows):
        first = (
            rows.tocsc()[:, [0]].toarray()
            if hasattr(rows, "tocsc")
            else np.asarray(rows)
        )
        return (first.reshape(len(first), -1)[:, 0].astype(float) > 0).astype(int)

    def __repr__(self):
        return "FirstSign()"


sign_of_the_first_column = FirstSign()

# Models that are not estimators: their answers come from elsewhere, and `fit` learns nothing.
# `tests/members/test_models.py` runs scikit-learn's checks on them, with a reason for each
# that presupposes learning, and their own family.
MODELS = [
    RecordedClassifier([0, 1, 1, 0], scores=[0.9, 0.8, 0.7, 0.6]),
    CallableClassifier(sign_of_the_first_column, classes=[0, 1]),
]


class ThreeStages:
    """Builds a net of three stages of growing width with a head each; an object for its repr."""

    def __init__(self, double=False):
        self.double = double

    def __call__(self, n_features, n_classes):
        from torch import nn

        net = nn.Module()
        widths = [n_features, 8, 16, 24]
        net.stages = nn.ModuleList(
            nn.Sequential(nn.Linear(a, b), nn.ReLU())
            for a, b in zip(widths, widths[1:])
        )
        net.heads = nn.ModuleList(nn.Linear(width, n_classes) for width in widths[1:])
        return net.double() if self.double else net

    def __repr__(self):
        return "ThreeStages()"


three_stages = ThreeStages()

# Estimators that need torch to be fitted. `tests/neural/` runs scikit-learn's checks on them,
# where torch is.
# In single precision a row's answer depends on the batch, on some processors by more than these
# checks allow.
NETS = [
    MultiExitClassifier(
        ThreeStages(double=True), max_epochs=6, lr=0.3, batch_size=32, random_state=0
    )
]
