"""
When is the cheap model enough? Two pictures
============================================

A full model answers well and costs a lot. :class:`~skroute.gating.AdaptGatingClassifier`
learns a cheap model and a gate: rows that the cheap model would get wrong go to the full
model, the others never pay for it. Two problems in the plane show what is learned, after
figures 2 and 3 of Nan and Saligrama (NeurIPS 2017).
"""

# %%
# The part of the plane that needs help
# -------------------------------------
# Far from the centre the classes are left and right; inside the disk they follow a spiral.
# The full model is a support vector machine with a radial kernel. The cheap model is small:
# ten rounds of trees with four leaves. No feature costs anything here (``gamma=0``), so the gate
# is about accuracy alone.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.svm import SVC

from skroute.datasets import make_four_clusters, make_hard_centre
from skroute.gating import (
    AdaptGatingClassifier,
    BoostedGate,
    LinearGate,
)

X, y = make_hard_centre(1200, random_state=0)
X_test, y_test = make_hard_centre(1200, random_state=1)
full = CalibratedClassifierCV(SVC(gamma=8, C=10), ensemble=False)

trees = BoostedGate(n_estimators=10, max_leaf_nodes=4)
gate = AdaptGatingClassifier(full, gate=trees, p_full=0.5, gamma=0.0).fit(X, y)
routed = gate.predict_routed(X_test)

fig, axes = plt.subplots(1, 3, figsize=(11, 4.2), sharex=True, sharey=True, layout="constrained")
axes[0].scatter(*X_test.T, c=y_test, s=5, cmap="coolwarm")
axes[0].set_title("The classes", fontsize=10)
grid = np.stack(np.meshgrid(np.linspace(-3, 3, 250), np.linspace(-3, 3, 250)), axis=-1)
points = grid.reshape(-1, 2)
whole = gate.predict_routed(points)
for ax, title, value in [
    (axes[1], "Full model alone", gate.estimator_.predict(points)),
    (axes[2], "Cheap model, and full inside the hatching", whole.y_pred),
]:
    ax.pcolormesh(grid[..., 0], grid[..., 1], value.reshape(250, 250), cmap="coolwarm", alpha=0.35)
    ax.set_title(title, fontsize=10)
axes[2].contourf(
    grid[..., 0],
    grid[..., 1],
    whole.route.reshape(250, 250),
    levels=[0.5, 1.5],
    colors="none",
    hatches=["////"],
)
accuracy = [np.mean(gate.estimator_.predict(X_test) == y_test), np.mean(routed.y_pred == y_test)]
axes[1].set_xlabel(f"test accuracy {accuracy[0]:.3f}")
axes[2].set_xlabel(f"test accuracy {accuracy[1]:.3f}, {routed.route.mean():.0%} of rows sent")
for ax in axes:
    ax.set_aspect("equal")
plt.show()

# %%
# The gate finds the disk, and with it a strip above and below: its few small trees cut along the
# axes. Everything else is answered by the cheap model.
#
# Which feature to buy depends on the model that follows
# ------------------------------------------------------
# Four clusters, two features, each of cost 1. Seen by one linear model, feature 0 is the best
# buy: it isolates cluster 1. A gate built on it must send the other three clusters to the full
# model, which then pays for feature 1 as well: 1.75 on average. It is better to buy feature
# 1, let the cheap model tell cluster 3 from cluster 4, and send clusters 1 and 2: 1.5. A feature
# that is chosen before there is a gate cannot be this one.

X, y, cluster = make_four_clusters(400, random_state=0)
# Both features, on one scale: any such model separates the clusters.
full = CalibratedClassifierCV(SVC(gamma=1.0, C=10), ensemble=False)
linear = LinearGate(max_iter=30)
shares = (0.1, 0.25, 0.4, 0.5, 0.55, 0.6, 0.7, 0.76, 0.8, 0.9)
curves = {"Adapt-Lin": []}
for p_full in shares:
    for gamma in (0.01, 0.02):
        curves["Adapt-Lin"].append(
            AdaptGatingClassifier(full, gate=linear, p_full=p_full, gamma=gamma)
        )

fig, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
best = AdaptGatingClassifier(full, gate=linear, p_full=0.55, gamma=0.02).fit(X, y)
sent = best.route(X) == 1
for answer, marker in ((0, "o"), (1, "^")):
    for to_full, colour in ((False, "tab:green"), (True, "tab:orange")):
        rows = (y == answer) & (sent == to_full)
        axes[0].scatter(*X[rows].T, marker=marker, c=colour, s=14)
for number, (a, b) in enumerate([(-2, 2), (2, 2), (2, -2), (2, -6)], start=1):
    axes[0].annotate(f"{number}", (a - 1.3, b), ha="center", va="center", fontsize=13)
axes[0].set(
    xlabel="Feature 0",
    ylabel="Feature 1",
    xlim=(-4, 4),
    title="Green: cheap model. Orange: full model.",
)
for name, models in curves.items():
    points = []
    for model in models:
        routed = model.fit(X, y).predict_routed(X)
        points.append((routed.cost.mean(), np.mean(routed.y_pred == y)))
    points = np.array(sorted(points))
    best_so_far = np.maximum.accumulate(points[:, 1])
    axes[1].step(points[:, 0], best_so_far, where="post", marker="o", markersize=3, label=name)
axes[1].axvline(1.5, color="0.6", linewidth=0.8, linestyle=":")
axes[1].axvline(1.75, color="0.6", linewidth=0.8, linestyle=":")
axes[1].set(xlabel="Mean feature cost per row", ylabel="Accuracy", title="Both features cost 1")
axes[1].legend(loc="lower right")
plt.show()
