"""
==============================================
USPS digits: five models, paid in microseconds
==============================================

A postal sorter reads digits. Five classifiers can do it, from a logistic regression that
takes half a microsecond per image to a support vector machine that takes some five hundred
times as long and is right most often. Which image is worth which model?

The costs here are **measured**: ``costs="time"`` times every member in `fit` and adds what
the router itself takes. The numbers of your machine will differ; the shares much less.
"""

# %%
# The models
# ----------
#
# USPS has 7,699 images to fit, of which this page takes every third, and 3,301 to test (the
# split that :func:`~skroute.datasets.fetch_usps` marks). ``make bench-occam`` takes them all, on
# three seeds. The router sees each image as the logistic
# regression does (``embedding="logreg"``): its ten probabilities are nearly free, and a row
# that it finds ambiguous is a row where the expensive models differ. A forest estimates from them
# which models will be right; OCCAM's nearest neighbours would take longer than the models do.
#
# ``reg_lambda=1`` docks each model by one standard deviation of its estimation error. With 0,
# small errors of the estimate send rows away from the svm even at a budget that pays for it
# everywhere: `fit` then warns that the svm alone would be better. With 1 it still may, since no
# budget is given to it here; the warning is switched off.
import warnings

import numpy as np
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from skroute.datasets import fetch_usps
from skroute.metrics import accuracy_cost_curve, reference_curves
from skroute.routing import OccamRouterClassifier

warnings.filterwarnings("ignore", message="On validation rows")
usps = fetch_usps()
X, y, is_test = usps.data / 255.0, usps.target, usps.is_test
X_train, y_train, X_test, y_test = X[~is_test][::3], y[~is_test][::3], X[is_test], y[is_test]

members = [
    ("logreg", LogisticRegression(C=0.05, max_iter=300)),
    ("mlp", MLPClassifier((64,), early_stopping=True, random_state=0)),
    ("forest", RandomForestClassifier(100, random_state=0)),
    ("svm on 30 components", make_pipeline(PCA(30, random_state=0), SVC(C=10, gamma=0.02))),
    ("svm", SVC(C=10, gamma=0.02)),
]
router = OccamRouterClassifier(
    members,
    costs="time",
    embedding="logreg",
    quality_estimator=RandomForestRegressor(50, min_samples_leaf=30, random_state=0),
    reg_lambda=1,
    cv=3,
).fit(X_train, y_train)


# %%
# Every budget
# ------------
#
# A budget is a share of the most expensive model's measured cost. Beside OCCAM stand the best
# single model for what OCCAM spent, the best mix of two models drawn at random for the same
# money, and an oracle that is told which models are right. The three look at the test images,
# OCCAM does not.
shares = np.array([0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0])
# Measured: on a slow machine the smallest share may not pay for the cheapest answer.
budgets = np.maximum(shares * router.costs_.max(), router.min_budget_)
curve = accuracy_cost_curve(router, X_test, y_test, budgets)
right = np.column_stack([model.predict(X_test) == y_test for model in router.estimators_])
references = reference_curves(right, router.costs_, curve.cost)
alone = right.mean(axis=0)
spent = curve.cost / router.costs_.max()
qualities = {
    "OCCAM": curve.quality,
    "single best": references.single,
    "random mix": references.random,
    "oracle": references.oracle,
}
print("accuracy on the test images; costs as shares of the svm's")
print("".join(f"{name:>15}" for name in ["budget", "cost", *qualities]))
for row, share in enumerate(shares):
    values = [share, spent[row], *(quality[row] for quality in qualities.values())]
    print("".join(f"{value:>15.4f}" for value in values))
routed = curve.quality[list(shares).index(0.6)]
print(f"\nbest single model: {alone.max():.4f}")
print(f"OCCAM at 40 % less cost: {routed:.4f}, {100 * (alone.max() - routed):.2f} points below")

# %%
# The picture
# -----------
#
# Grey points are the models alone. The router's curve lies above what any one of them, or a mix
# of two, gives for the money, and is flat long before the budget reaches the most expensive.
import matplotlib.pyplot as plt

fig, ax = plt.subplots(figsize=(6.6, 4.4), layout="constrained")
for name, style in [("OCCAM", "o-"), ("random mix", "d--"), ("single best", "s-.")]:
    ax.plot(spent, qualities[name], style, label=name)
ax.plot(spent, references.oracle, ":", color="grey", label="oracle (told who is right)")
ax.scatter(router.costs_ / router.costs_.max(), alone, color="grey", zorder=3)
for name, cost, accuracy in zip(router.choices_, router.costs_, alone):
    ax.annotate(
        name,
        (cost / router.costs_.max(), accuracy),
        xytext=(-4, 7) if name == "svm" else (6, -11),
        textcoords="offset points",
        color="dimgrey",
        ha="right" if name == "svm" else "left",
        fontsize=8,
    )
ax.set(
    xlabel="mean cost per image, as a share of the svm's",
    ylabel="accuracy on the test images",
    ylim=(0.92, 1.0),
    title="USPS: what a budget buys",
)
ax.legend(loc="upper right", ncols=2)
plt.show()

# %%
# Who answers
# -----------
#
# :class:`~skroute.metrics.RouteShareDisplay` shows the share of each model as the budget
# grows. The logistic regression embeds every image, so choosing it costs nothing more.
from skroute.metrics import RouteShareDisplay

display = RouteShareDisplay.from_estimator(router, X_test, budgets=budgets)
_ = display.ax_.set(title="USPS: who answers", xlabel="budget (seconds per image)")
display.ax_.ticklabel_format(axis="x", scilimits=(0, 0))
plt.show()
