"""
==============================================
Which features fit in this image's millisecond
==============================================

A histogram of a large image takes longer than the same histogram of a small one. When each
image must be answered within a time budget, the features to compute depend on the image:
a small one leaves time for the good features, a large one does not.

:class:`~skroute.feature_sets.PolyDomSelector` measures what each feature extractor costs as
a function of the image's size, trains models for the sets of extractors that are the best
choice for some size and budget, and takes the best set that each image's budget pays for. Here
the images are the digits of scikit-learn, enlarged to between 16 and 128 pixels a side, and the
extractors come from scikit-image.
"""

# %%
# Digits at eight resolutions
# ---------------------------
# The digits are interpolated, so that all resolutions show the same content: only the price
# of looking differs.

import matplotlib.pyplot as plt
import numpy as np
from skimage.transform import resize
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

small, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)


def enlarged(rows):
    sides = 16 * rng.integers(1, 9, size=len(rows))
    images = [resize(row.reshape(8, 8) / 16, (s, s), order=1) for row, s in zip(rows, sides)]
    return [image.astype(np.float32) for image in images]


split = train_test_split(small, y, train_size=300, test_size=250, random_state=0)
train, test, y_train, y_test = enlarged(split[0]), enlarged(split[1]), *split[2:]

fig, axes = plt.subplots(1, 5, figsize=(9, 2.2), layout="constrained")
for ax, image in zip(axes, test):
    ax.imshow(image, cmap="gray_r")
    ax.set(title=f"{len(image)} x {len(image)}", xticks=[], yticks=[])
_ = fig.suptitle("Five test images")

# %%
# Extractors of different price
# -----------------------------
# From sums of rows and columns, which are nearly free, to ridge filters whose width grows
# with the image.

from skimage import feature, filters
from skimage.transform import resize_local_mean


def profile(image):
    step = len(image) // 8
    return np.concatenate([image.sum(a).reshape(8, step).mean(1) for a in (0, 1)]) / len(image)


def thumbnail(image):
    return resize_local_mean(image, (8, 8)).ravel()


def edges(image):
    return resize_local_mean(filters.sobel(image), (6, 6)).ravel()


def patterns(image):
    codes = feature.local_binary_pattern((255 * image).astype(np.uint8), 8, 1, "uniform")
    return np.histogram(codes, 10, (0, 10), density=True)[0]


def gradients(image):
    cell = len(image) // 4
    return feature.hog(image, 8, (cell, cell), (2, 2))


def ridges(image):
    found = filters.sato(image, sigmas=[len(image) / 16], black_ridges=False)
    return resize_local_mean(found, (6, 6)).ravel()


def of_each(images, function):
    return np.array([function(image) for image in images])


# %%
# One call to `fit` times them on single images, draws the 95th percentile of the times at each
# size, searches the lattice of all 63 sets of extractors and trains a model for the sets worth
# having. `monotonicity_tol` allows for the noise of cross-validated accuracies: a larger set may
# be worse by two points.

from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import FunctionTransformer

from skroute.feature_sets import PolyDomSelector

functions = [profile, thumbnail, edges, patterns, gradients, ridges]
selector = PolyDomSelector(
    LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
    [(f.__name__, FunctionTransformer(of_each, kw_args={"function": f})) for f in functions],
    costs="time",
    size=np.size,
    alpha=0.01,
    monotonicity_tol=0.02,
    cv=3,
).fit(train, y_train)
print(f"{selector.n_trained_} sets trained, {len(selector.choices_)} can be chosen")

pixels = np.linspace(16**2, 128**2, 200)
fig, ax = plt.subplots(figsize=(7.5, 4), layout="constrained")
for f, seconds, cost in zip(functions, selector.measured_costs_.T, selector.costs_(pixels)):
    (line,) = ax.plot(pixels, 1e3 * cost, label=f.__name__)
    ax.plot(selector.measured_sizes_, 1e3 * seconds, ".", ms=3, alpha=0.4, color=line.get_color())
ax.set(xlabel="pixels", ylabel="ms per image", yscale="log", title="Measured and fitted costs")
_ = ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)

# %%
# The skyline moves with the size
# -------------------------------
# For one size, only the sets on the skyline are worth choosing: any other costs more than one
# that is at least as accurate. At another size the costs are others, and so is the skyline.
# That is why a set chosen once for all images cannot be right.

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for side in (16, 64, 128):
    sets = selector.skyline(side**2)
    paid = sets.cost > 0  # without the empty set
    cost, quality = 1e3 * sets.cost[paid], sets.quality[paid]
    ax.step(cost, quality, where="post", marker="o", label=f"{side} x {side}")
ax.set(
    xlabel="cost of the set in ms (95th percentile)",
    ylabel="cross-validated accuracy",
    title="Sets worth choosing",
    xscale="log",
)
_ = ax.legend(title="image", loc="lower right")

for side, budget in [(16, 0.5e-3), (128, 0.5e-3), (128, 5e-3)]:
    choice = selector.choices_[int(selector.select(side**2, budget))]
    print(f"{side:3d} x {side:3d}, {1e3 * budget:.1f} ms: {choice}")

# %%
# Accuracy over the budget
# ------------------------
# Two fixed sets for comparison, both chosen by the same scores. One is the best that a
# median-sized image can afford: on larger images it is late, and an image that is not
# answered in time gets the most frequent class. The other is the best that the largest image
# can afford: never late, and wasteful on small images.

sizes = np.array([np.size(image) for image in test], dtype=float)
prior = selector.predict(test[:1], budget=0)[0]
costs = selector.costs_(sizes).T @ selector.candidates_.T
tables = [of_each(test, function) for function in functions]


def fixed(budget, size):
    """Accuracy on all images of the best set for one size."""
    best = int(selector.select(size, budget))
    used = np.flatnonzero(selector.candidates_[best])
    if len(used) == 0:
        return np.mean(prior == y_test)
    answers = selector.estimators_[best].predict(np.hstack([tables[j] for j in used]))
    return np.mean(np.where(costs[:, best] > budget, prior, answers) == y_test)


budgets = np.geomspace(1e-4, 1e-2, 12)
median = np.median([np.size(image) for image in train])
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for label, style, accuracy in [
    ("Poly-Dom, per image", "o-", [selector.score(test, y_test, budget=b) for b in budgets]),
    ("one set, for the median image", "s--", [fixed(b, median) for b in budgets]),
    ("one set, for the largest image", "^--", [fixed(b, 128**2) for b in budgets]),
]:
    ax.plot(1e3 * budgets, accuracy, style, label=label)
ax.set(
    xscale="log",
    xlabel="budget per image in ms",
    ylabel="test accuracy",
    title=f"Digits at 16 to 128 pixels a side, {len(test)} test images",
)
_ = ax.legend()

# %%
# Is the budget kept?
# -------------------
# Estimates are one thing, the clock another. Here each test image is extracted on its own,
# exactly the features of its set, and timed.

import time

budget = budgets[6]
route = selector.route(test, budget=budget)
seconds = np.empty(len(test))
for i, image in enumerate(test):
    used = np.flatnonzero(selector.candidates_[route[i]])
    start = time.perf_counter()
    for j in used:
        functions[j](image)
    seconds[i] = time.perf_counter() - start
print(f"budget {1e3 * budget:.2f} ms kept by {np.mean(seconds <= budget):.1%} of the images")

# %%
# Costs are percentiles, so most images leave time unused. With ``anytime=True`` the
# selector watches the clock while it computes one feature after the other, and aims for a
# better set when the earlier ones came in early. The next feature is still planned for at its
# 95th percentile, so the gain is small where the next one is expensive.

for name, routed in [
    ("planned", selector.predict_routed(test, budget=budget)),
    ("any-time", selector.predict_routed(test, budget=budget, anytime=True)),
]:
    accuracy, kept = np.mean(routed.y_pred == y_test), np.mean(routed.cost <= budget)
    print(f"{name}: accuracy {accuracy:.3f}, budget kept by {kept:.1%} by the selector's own count")
