"""
Handing rows over: a person as one more choice, with a price
============================================================

Two models read digits, and whoever is not sure may ask a person, who is right but costs time.
``abstain_cost`` says how much: a row is handed over where the answer that the budget buys is
expected to be worth less than that. Noise is added to a third of the images, which nobody reads
well.
"""

# %%
# The models, and images of which some are spoiled.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from skroute.metrics import risk_coverage_curve
from skroute.routing import OccamRouterClassifier

X, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
spoiled = rng.uniform(size=len(X)) < 1 / 3
X[spoiled] += rng.normal(scale=12, size=(spoiled.sum(), X.shape[1]))
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0)

members = [("bayes", GaussianNB()), ("forest", RandomForestClassifier(30, random_state=0))]
told = {
    "costs": {"bayes": 1, "forest": 10},
    "quality_estimator": RandomForestRegressor(
        20, min_samples_leaf=10, max_features=0.3, random_state=0
    ),
    "cv": 3,
}

# %%
# What is lost per row, errors and questions to the person together, beside a router that answers
# every row and beside handing all of them over.
budgets = [1, 2.5, 5, 7.5, 10]
plain = OccamRouterClassifier(members, **told).fit(X_train, y_train)
_, ax = plt.subplots(layout="constrained")
losses = [1 - plain.score(X_test, y_test, budget=budget) for budget in budgets]
ax.plot(budgets, losses, "k--", label="answers every row")
for abstain_cost in (0.1, 0.3):
    router = OccamRouterClassifier(members, abstain_cost=abstain_cost, **told)
    router.fit(X_train, y_train)
    losses, shares = [], []
    for budget in budgets:
        found = router.row_quality(X_test, y_test, budget=budget)
        losses.append(1 - found.quality.mean())
        shares.append(np.mean(found.route == router.choices_.index("abstain")))
    (line,) = ax.plot(budgets, losses, "o-", label=f"abstain_cost={abstain_cost}")
    ax.axhline(abstain_cost, color=line.get_color(), lw=0.8, ls=":")
    print(f"abstain_cost={abstain_cost}: handed over", np.round(shares, 2))
ax.set(xlabel="Budget per row", ylabel="Loss per row", title="Dotted: all handed over")
ax.legend()

# %%
# The order in which rows are handed over: the error among those that are left.
estimates = plain.predict_quality(X_test)
route = plain.route(X_test)
sure = estimates[np.arange(len(route)), route]
curve = risk_coverage_curve(plain.predict(X_test) != y_test, sure)
_, ax = plt.subplots(layout="constrained")
ax.plot(curve.coverage, curve.risk)
ax.set(xlabel="Share answered", ylabel="Share of these that is wrong", title="Most certain first")
plt.show()
