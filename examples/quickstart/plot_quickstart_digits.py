"""
=================================================
Quickstart: route digits, tune with a grid search
=================================================

Four classifiers have prices. A router keeps the mean cost within a budget, and a grid search tunes
it.
"""

# %%
# Prices
# ------
#
# Prices are in cents per 1,000 answers. You can use any unit. The budget has the same unit.
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from skroute.metrics import (
    AccuracyCostDisplay,
    best_within_budget,
    mean_cost_scorer,
    reference_curves,
)
from skroute.routing import OccamRouterClassifier

members = [
    ("tree", DecisionTreeClassifier(random_state=0)),
    ("logreg", LogisticRegression(C=0.01)),
    ("forest", RandomForestClassifier(100, random_state=0)),
    ("svm", SVC(gamma=0.02, C=10)),
]
costs = {"tree": 1, "logreg": 2, "forest": 20, "svm": 50}

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.5, stratify=y, random_state=0
)

# %%
# Fit, and look at the cost
# -------------------------
#
# The router is one step of a pipeline, like any classifier.
pipeline = make_pipeline(
    StandardScaler(),
    OccamRouterClassifier(members, costs=costs, budget=20, cv=3),
).fit(X_train, y_train)
print(f"accuracy {pipeline.score(X_test, y_test):.3f}")

scaler, router = pipeline
routed = router.predict_routed(scaler.transform(X_test))
print(f"spent    {routed.cost.mean():.1f} cents per 1,000")
for choice, name in enumerate(router.choices_):
    print(f"  {name:>6} answers {(routed.route == choice).mean():.0%}")

# %%
# A notebook shows the pipeline as a diagram:
pipeline

# %%
# Tune ``reg_lambda`` within the budget
# -------------------------------------
#
# The search has two scores. :func:`~skroute.metrics.best_within_budget` takes the most accurate
# candidate whose validation cost is at most 21 cents.
search = GridSearchCV(
    pipeline,
    {"occamrouterclassifier__reg_lambda": [0, 0.2, 1]},
    scoring={"accuracy": "accuracy", "cost": mean_cost_scorer},
    refit=best_within_budget(21),
    cv=2,
).fit(X_train, y_train)
results = search.cv_results_
for row, reg_lambda in enumerate(results["param_occamrouterclassifier__reg_lambda"]):
    print(
        f"reg_lambda {reg_lambda:3}: accuracy {results['mean_test_accuracy'][row]:.3f}, "
        f"cost {results['mean_test_cost'][row]:.1f}{' *' * (row == search.best_index_)}"
    )

# %%
# All budgets, compared with the references
# -----------------------------------------
#
# You need only one fit for all budgets. The references are the best single model within the budget,
# the best random mix of two models, and an oracle that knows which model is right. All three are
# chosen on the test rows; the router is not.
budgets = [2.5, 5, 10, 20, 30, 40, 50]
scaler, router = search.best_estimator_
right = np.column_stack(
    [m.predict(scaler.transform(X_test)) == y_test for m in router.estimators_]
)
references = reference_curves(right, router.costs_, budgets)
display = AccuracyCostDisplay.from_estimator(
    search.best_estimator_, X_test, y_test, budgets=budgets, name="OCCAM"
)
for name, quality, style in [
    ("single best", references.single, "-."),
    ("oracle", references.oracle, ":"),
]:
    AccuracyCostDisplay(cost=budgets, quality=quality, name=name).plot(
        ax=display.ax_, curve_kwargs={"linestyle": style, "marker": ""}
    )
_ = display.ax_.set(
    xlabel="mean cost (cents per 1,000 answers)",
    ylabel="accuracy, test half",
    title="Digits: accuracy that a budget buys",
)
