"""
=====================================================
Images of which some are hard: nets of several sizes
=====================================================

OCCAM's figure, redrawn on images that were made for it: each shows one of ten shapes, some large
and plain, some small, pale, grainy, or half hidden. A net that is small is right on the plain
ones; the largest takes eleven times as many multiplications. Which image is worth which net?

The images are CIFAR-like in size only. They were **made**, so that nets differ and hard images
exist; what is seen here says how a router uses such differences, not how large they are elsewhere.
"""

# %%
# Images and nets
# ---------------
#
# :func:`~skroute.datasets.load_shape_nets` has what the nets say of 8,000 images that none of them
# has seen. ``benchmarks/train_shape_nets.py`` trained them on an H100 (four of its seven nets are
# kept); costs are counted multiplications.
import matplotlib.pyplot as plt
import numpy as np

from skroute.datasets import load_shape_nets, make_shape_images

nets = load_shape_nets()
y, right, costs = nets.target, nets.quality, nets.costs
for name, cost, accuracy in zip(nets.model_names, costs, right.mean(axis=0)):
    print(f"{name:>7}: {cost:6.2f} million multiplications, {accuracy:.3f} right")
print(f"some net right: {right.any(axis=1).mean():.3f}")

images, shown = make_shape_images(160, random_state=0)
fig, axes = plt.subplots(4, 10, figsize=(8, 3.4), layout="constrained")
for shape, column in enumerate(axes.T):
    column[0].set_title(nets.target_names[shape], fontsize=8)
    for ax, image in zip(column, images[shown == shape]):
        ax.imshow(image)
for ax in axes.flat:
    ax.axis("off")
plt.show()

# %%
# A router and a cascade
# ----------------------
#
# OCCAM asks one net about each image, estimates from its probabilities which net will be right, and
# asks that one. It learns on one half of the images and is judged on the other, which nothing else
# was chosen on: the net that is read is the cheapest that is right, alone, on at least 90 % of the
# images to learn from. The cascade is simpler: *deep* is asked where the largest of that net's
# probabilities is below a level; each level is a point of its line. What is paid is the sum of the
# nets that were asked. ``make bench-occam`` does both on ten other halves.
from sklearn.ensemble import RandomForestRegressor

from skroute.members import RecordedClassifier
from skroute.metrics import accuracy_cost_curve, reference_curves
from skroute.routing import OccamRouterClassifier

members = [
    (name, RecordedClassifier(scores=scores))
    for name, scores in zip(nets.model_names, np.moveaxis(nets.probabilities, 1, 0))
]
X = np.arange(len(y)).reshape(-1, 1)
learn, test = np.split(np.random.default_rng(1000).permutation(len(y)), 2)
good = np.flatnonzero(right[learn].mean(axis=0) >= 0.9)
first = good[np.argmin(costs[good])]
print("read:", nets.model_names[first])
occam = OccamRouterClassifier(
    members,
    costs=dict(zip(nets.model_names, costs)),
    embedding=nets.model_names[first],
    quality_estimator=RandomForestRegressor(20, min_samples_leaf=20, random_state=0),
).fit(X[learn], y[learn])
budgets = np.geomspace(occam.min_budget_, costs.max() * 1.1, 10)
curve = accuracy_cost_curve(occam, X[test], y[test], budgets)

deep = nets.model_names.index("deep")
sure = nets.probabilities[test, first].max(axis=1)
asks = sure < np.linspace(0.2, 1, 17)[:, None]
cascade_cost = costs[first] + asks.mean(axis=1) * costs[deep]
cascade_right = np.where(asks, right[test, deep], right[test, first]).mean(axis=1)
lines = {"OCCAM": (curve.cost, curve.quality), "cascade": (cascade_cost, cascade_right)}

# %%
# The figure
# ----------
largest = costs.max()
grid = np.linspace(costs.min(), largest, 60)
references = reference_curves(right[test], costs, grid)
alone = right[test].mean(axis=0)
best = alone.max()
fig, ax = plt.subplots(figsize=(7, 4.6), layout="constrained")
for (name, (cost, quality)), style in zip(lines.items(), ["o-", "s-"]):
    ax.plot(100 * cost / largest, 100 * quality, style, markersize=4, label=name)
ax.plot(100 * grid / largest, 100 * references.random, "--", color="grey", label="random mix")
ax.plot(100 * grid / largest, 100 * references.oracle, ":", color="grey", label="told the labels")
ax.scatter(100 * costs / largest, 100 * alone, color="black", zorder=3, s=18)
for name, cost, accuracy in zip(nets.model_names, costs, alone):
    ax.annotate(
        name,
        (100 * cost / largest, 100 * accuracy),
        xytext=(5, -11),
        textcoords="offset points",
        fontsize=8,
        ha="right" if cost == largest else "left",
    )
ax.axhline(100 * best - 1, color="grey", linewidth=0.6)
ax.set(
    xlabel="mean cost per image (% of the largest net's)",
    ylabel="accuracy on images not seen (%)",
    title="Shapes: what a budget buys",
)
ax.legend(loc="lower right")
plt.show()

for name, (cost, quality) in lines.items():
    saved = 100 * (1 - cost[quality >= best - 0.01].min() / costs[alone.argmax()])
    print(f"{name}: within a point of the best net at {saved:.0f} % less")

# %%
# Both get the best net's accuracy, less a point, for about a third of its cost. The cascade is a
# little ahead: where one cheap net is nearly as good as the best, its largest probability says
# most of what there is to say. The random mix spends more than twice as much for that accuracy.
