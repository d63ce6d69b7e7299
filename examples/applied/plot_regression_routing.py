"""
Regression with a fast model and a slow one
===========================================

The router learns on which rows the fast model has a larger error than the slow one, and spends the
budget there.
"""

# %%
# A ridge regression, and a forest that costs ten times as much.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split

from skroute.metrics import AccuracyCostDisplay
from skroute.routing import DummyRouterRegressor, OccamRouterRegressor

X, y = make_friedman1(2000, noise=1.0, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
members = [
    ("ridge", Ridge()),
    ("forest", ExtraTreesRegressor(50, min_samples_leaf=2, random_state=0)),
]
costs = {"ridge": 1, "forest": 10}

# %%
# The quality is minus the squared error. The oracle knows the error of each model.
budgets = np.linspace(1, 10, 7)
ax = None
for name, router in {
    "OCCAM": OccamRouterRegressor(members, costs=costs),
    "random": DummyRouterRegressor(members, costs=costs, strategy="random"),
    "oracle": DummyRouterRegressor(members, costs=costs, strategy="oracle"),
}.items():
    router.fit(X_train, y_train)
    display = AccuracyCostDisplay.from_estimator(
        router, X_test, y_test, budgets=budgets, ax=ax, name=name
    )
    ax = display.ax_
ax.set(title="Ridge regression and a forest, 500 test rows", ylim=(-8, 0))
plt.show()
