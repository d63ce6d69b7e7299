"""
===================================================
Quickstart: route digits, tune with a grid search
===================================================

Four classifiers with prices, one budget, and a grid search over the router's own parameter
that keeps to the budget.
"""

# %%
# Prices
# ------
#
# Say a service charges cents per 1,000 answers. Any unit will do, as long as the budget is
# in the same.
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from skroute.metrics import AccuracyCostDisplay, best_within_budget, mean_cost_scorer
from skroute.routing import (
    OccamRouterClassifier,
    RandomRouterClassifier,
    SingleBestClassifier,
)

members = [
    ("tree", DecisionTreeClassifier(random_state=0)),
    ("logreg", LogisticRegression(C=0.01)),
    ("forest", RandomForestClassifier(100, random_state=0)),
    ("svm", SVC(gamma=0.02, C=10)),
]
costs = {"tree": 1, "logreg": 2, "forest": 20, "svm": 50}

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)

# %%
# Fit and look at the bill
# ------------------------
router = OccamRouterClassifier(members, costs=costs, budget=20)
router.fit(X_train, y_train)
y_pred, route, cost = router.predict_routed(X_test)
print(f"accuracy {router.score(X_test, y_test):.3f} at {cost.mean():.1f} cents per 1,000")
for choice, name in enumerate(router.choices_):
    print(f"  {name:>6} answers {(route == choice).mean():.0%}")

# %%
# In a notebook the router shows itself:
router

# %%
# Tune ``reg_lambda`` within the budget
# -------------------------------------
#
# The router is one step of a pipeline and is searched like any estimator. Two scores, and
# :func:`~skroute.metrics.best_within_budget` picks the most accurate candidate among those
# whose validation cost is at most 21 cents.
search = GridSearchCV(
    make_pipeline(StandardScaler(), OccamRouterClassifier(members, costs=costs, budget=20, cv=3)),
    {"occamrouterclassifier__reg_lambda": [0, 0.2, 1]},
    scoring={"accuracy": "accuracy", "cost": mean_cost_scorer},
    refit=best_within_budget(21),
    cv=3,
)
search.fit(X_train, y_train)
for params, accuracy, spent in zip(
    search.cv_results_["params"],
    search.cv_results_["mean_test_accuracy"],
    search.cv_results_["mean_test_cost"],
):
    chosen = "  <- chosen" if params == search.best_params_ else ""
    print(f"{params}  accuracy {accuracy:.3f}  cost {spent:.1f}{chosen}")

# %%
# Every budget, beside the baselines
# ----------------------------------
budgets = [2.5, 5, 10, 20, 30, 40, 50]
display = AccuracyCostDisplay.from_estimator(
    search.best_estimator_, X_test, y_test, budgets=budgets, name="OCCAM"
)
for name, baseline in [
    ("single best", SingleBestClassifier(members, costs=costs)),
    ("random", RandomRouterClassifier(members, costs=costs)),
]:
    pipeline = make_pipeline(StandardScaler(), baseline).fit(X_train, y_train)
    AccuracyCostDisplay.from_estimator(
        pipeline, X_test, y_test, budgets=budgets, name=name, ax=display.ax_
    )
_ = display.ax_.set(
    xlabel="mean cost (cents per 1,000 answers)",
    ylabel="accuracy, test half",
    title="Digits: accuracy that a budget buys",
)
