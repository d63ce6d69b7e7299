"""
Regression with a fast model and a slow one
===========================================

Numbers are routed as labels are: the router learns on which rows the fast model is off by more
than the slow one, and spends the budget there.
"""

# %%
# A ridge regression is right where the surface is flat; the forest is ten times the price.
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
# The quality is minus the squared error; the baselines know it as well.
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
ax.set(title="A ridge and a forest", ylim=(-8, 0))
plt.show()
