"""
=================================
Buy emotion labels from four APIs
=================================

Three commercial services and one free model label the emotion on photographs of faces. They have
different prices, and are right on different faces. The data of FrugalML
(:func:`~skroute.datasets.fetch_frugalml`) have their answers and scores for the 6,358 faces of
FER+.
"""

# %%
# The log
# -------
#
# A :class:`~skroute.members.RecordedClassifier` answers from the log: X has row numbers. Half of
# the rows are for training, half for the test (the authors' split, seed 1).
import matplotlib.pyplot as plt
import numpy as np

from skroute.datasets import fetch_frugalml, frugal_split
from skroute.members import RecordedClassifier
from skroute.metrics import reference_curves
from skroute.routing import (
    FrugalMCTClassifier,
    FrugalMLClassifier,
    SequentialRouterClassifier,
)

faces = fetch_frugalml("FERPLUS")
y = faces.target.astype(int)
services = [
    (
        name,
        RecordedClassifier(
            labels, scores=scores, classes=range(len(faces.target_names))
        ),
    )
    for name, labels, scores in zip(
        faces.model_names, faces.predictions.T, faces.scores.T
    )
]
costs = dict(zip(faces.model_names, faces.costs.tolist()))

train, test = frugal_split(len(y), random_state=1)
X_train, X_test = train[:, np.newaxis], test[:, np.newaxis]
for name, service in services:
    accuracy = np.mean(service.predict(X_test) == y[test])
    print(f"{name:12} ${costs[name]:6.3f} per 10,000: {accuracy:.1%} right")

# %%
# Half the price of the best service
# ----------------------------------
#
# FrugalMCT asks the free model about every face. From its answer, a forest estimates how accurate
# each combination with another service would be. The other service is asked if its gain is worth
# its price.
router = FrugalMCTClassifier(services, costs=costs, budget=5).fit(X_train, y[train])
y_pred, route, cost = router.predict_routed(X_test)
print(
    f"{np.mean(y_pred == y[test]):.1%} right for ${cost.mean():.2f}; base: {router.base_}"
)
for choice, share in enumerate(
    np.bincount(route, minlength=len(router.choices_)) / len(route)
):
    if share > 0.005:
        print(f"  {share:4.0%}  {router.choices_[choice]}")

# %%
# Every budget
# ------------
#
# FrugalML has one score threshold per label. Sequential routing may ask a third service if the
# answers of the first two differ. Each router is fitted once. The references are grey: each service
# alone, a majority vote of all four, the best random mix of two services, and an oracle that knows
# which service to ask.
routers = {
    "FrugalML": FrugalMLClassifier(services, costs=costs),
    "FrugalMCT": FrugalMCTClassifier(services, costs=costs),
    "Sequential": SequentialRouterClassifier(services, costs=costs),
}
budgets = [0.1, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 12]
curves = {}
for name, router in routers.items():
    router.fit(X_train, y[train])
    curve = []
    for budget in budgets:
        routed = router.predict_routed(X_test, budget=budget)
        curve.append((routed.cost.mean(), 100 * np.mean(routed.y_pred == y[test])))
    curves[name] = np.array(curve).T

said = np.column_stack([service.predict(X_test) for _, service in services])
voted = np.array([max(row, key=row.tolist().count) for row in said])

fig, ax = plt.subplots(figsize=(7, 4.4), layout="constrained")
for (name, (cost, accuracy)), marker in zip(curves.items(), "os^"):
    ax.plot(cost, accuracy, marker=marker, markersize=4, label=name)
alone = [
    (costs[name], 100 * service.score(X_test, y[test]), name)
    for name, service in services
]
alone.append((sum(costs.values()), 100 * np.mean(voted == y[test]), "vote of all four"))
right = said == y[test][:, np.newaxis]
references = reference_curves(right, list(costs.values()), budgets)
ax.plot(budgets, 100 * references.random, "--", color="0.5", label="random mix")
ax.plot(budgets, 100 * references.oracle, ":", color="0.5", label="oracle")
for price, accuracy, name in alone:
    ax.plot(price, accuracy, "D", color="0.5")
    right = price > 20
    ax.annotate(
        name,
        (price, accuracy),
        xytext=(-7 if right else 7, -13),
        textcoords="offset points",
        ha="right" if right else "left",
        color="0.35",
    )
best_price, best_accuracy, best_name = max(alone[:-1], key=lambda point: point[1])
ax.axhline(best_accuracy, color="0.7", linewidth=0.8, linestyle="--", zorder=0)
ax.set(
    xlabel="Mean cost (US dollars per 10,000 faces)",
    ylabel="Accuracy on new faces (%)",
    ylim=(62, None),
    title="FER+: what a budget buys",
)
ax.legend(loc="upper right")
plt.show()

# %%
# Savings
# -------
for name, (cost, accuracy) in curves.items():
    matched = cost[accuracy >= best_accuracy].min()
    at_price = accuracy[cost <= best_price * 1.01].max()
    print(
        f"{name:10}: as good as {best_name} for ${matched:.2f} instead of ${best_price:.0f}; "
        f"at most {at_price - best_accuracy:+.1f} points at its price"
    )

# %%
# Prices are per 10,000 faces. The majority vote costs $30, and is worse than the best service alone.
# Below $4 the three routers are equal; FrugalML fits in milliseconds. Above $6, only the sequential
# router gains more, because it can ask a third service. This is one split of one data set;
# ``benchmarks/bench_frugal.py`` has nine data sets and five splits.
