"""
Fraud: a missed case costs fifty times a false alarm
====================================================

Three models have different prices, and 6 % of the rows are fraud. With a cost matrix, the router
calls an expensive model if this saves money. Without a budget, it minimises the sum of the costs of
errors and of calls.
"""

# %%
# The models use a threshold that suits the costs: if a missed case costs fifty times a false alarm,
# check each case with a probability of fraud above 1/51. Missed cases are rare, so more than half
# of the rows are for the test.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, train_test_split
from sklearn.naive_bayes import GaussianNB

from skroute.routing import DummyRouterClassifier, OccamRouterClassifier

X, y = make_classification(
    16000, n_features=12, n_informative=8, weights=[0.94], class_sep=0.8, random_state=0
)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.6, stratify=y, random_state=0
)


def cautious(model):
    return FixedThresholdClassifier(
        model, threshold=1 / 51, response_method="predict_proba"
    )


members = [
    ("bayes", cautious(GaussianNB())),
    ("logreg", cautious(LogisticRegression())),
    ("boosting", cautious(HistGradientBoostingClassifier(max_iter=40, random_state=0))),
]
prices = {"bayes": 0.01, "logreg": 0.02, "boosting": 0.2}
matrix = {(0, 1): 1.0, (1, 0): 50.0}

# %%
# The cost of errors at each budget, for a router that minimises costs, and for a router that
# maximises accuracy.
budgets = [0.01, 0.05, 0.1, 0.15, 0.2]
weights = np.where(y_test == 1, 50.0, 1.0)


def error_cost(router, budget):
    return np.mean(weights * (router.predict(X_test, budget=budget) != y_test))


routers = {
    "routed by cost": OccamRouterClassifier(
        members, costs=prices, budget=0.1, quality=matrix
    ),
    "routed by accuracy": OccamRouterClassifier(members, costs=prices, budget=0.1),
    "best single": DummyRouterClassifier(members, costs=prices, quality=matrix),
}
fig, ax = plt.subplots()
for name, router in routers.items():
    router.fit(X_train, y_train)
    ax.plot(
        budgets, [error_cost(router, budget) for budget in budgets], "o-", label=name
    )
ax.set(
    xlabel="Budget (dollars per row)",
    ylabel="Cost of errors (dollars per row)",
    title="A miss costs 50 dollars, a false alarm 1",
)
_ = ax.legend()

# %%
# If the budget is enough for *boosting* on every row, boosting alone is as good as routing. But the
# costs of errors and of calls are both in dollars here, and a router without a budget minimises
# their sum. It makes a few more errors than boosting alone, because it does not call boosting on
# rows where the answer rarely changes. Compare the sums:
router = routers["routed by cost"].set_params(budget=None)
found = router.row_quality(X_test, y_test)
print(f"errors {-found.quality.mean():.3f} + prices {found.cost.mean():.3f} per row")
for name, member, price in zip(router.choices_, router.estimators_, router.costs_):
    alone = np.mean(weights * (member.predict(X_test) != y_test))
    print(
        f"{name:>9} alone: errors {alone:.3f} + price {price:.3f} = {alone + price:.3f}"
    )
