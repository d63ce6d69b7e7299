"""
==============================================
Which features fit in this image's millisecond
==============================================

A histogram of a large image takes longer than the same histogram of a small one. When each
image must be answered within a time budget, the features to compute depend on the image:
a small one leaves time for the good features, a large one does not.

:class:`~skroute.feature_sets.PolyDomSelector` measures what each feature extractor costs as
a function of the image's size, trains models for the sets of extractors that are the best
choice for some size and budget, and looks the set up for each image. Here the images are
handwritten digits (USPS) enlarged to between 16 and 128 pixels a side, and the extractors
come from scikit-image.
"""

# %%
# Digits at eight resolutions
# ---------------------------
# The digits are interpolated, so that all resolutions show the same content: only the price
# of looking differs.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import LogLocator
from skimage.transform import resize

from skroute.datasets import fetch_usps

digits = fetch_usps()
rng = np.random.default_rng(0)


def enlarged(rows, n):
    rows = rng.permutation(np.flatnonzero(rows))[:n]
    sides = 16 * rng.integers(1, 9, size=n)
    small = digits.data[rows].reshape(-1, 16, 16) / 255.0
    images = [resize(i, (s, s), order=1).astype(np.float32) for i, s in zip(small, sides)]
    return images, digits.target[rows]


train, y_train = enlarged(~digits.is_test, 300)
test, y_test = enlarged(digits.is_test, 250)

fig, axes = plt.subplots(1, 5, figsize=(9, 2.2))
for ax, image in zip(axes, test):
    ax.imshow(image, cmap="gray_r")
    ax.set(title=f"{len(image)} x {len(image)}", xticks=[], yticks=[])
fig.suptitle("Five test images")
fig.tight_layout()

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
# One call to `fit` times them on single images, fits a polynomial in the number of pixels to
# the 95th percentile of the times, searches the lattice of all 63 sets of extractors and
# trains a model for the sets worth having. `monotonicity_tol` allows for the noise of
# cross-validated accuracies: a larger set may be worse by two points.

from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import FunctionTransformer

from skroute.feature_sets import CostFitDisplay, PolyDomSelector

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

fig, ax = plt.subplots(figsize=(7.5, 4), layout="constrained")
display = CostFitDisplay.from_estimator(selector, ax=ax)
_ = display.ax_.set_xlabel("pixels")

# %%
# The skyline moves with the size
# -------------------------------
# For one size, only the sets on the skyline are worth choosing: any other costs more than one
# that is at least as accurate. At another size the costs are others, and so is the skyline.
# That is why a set chosen once for all images cannot be right.

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for side in (16, 64, 128):
    line = selector.skyline(side**2)
    paid = line.cost > 0  # without the empty set
    cost, quality = 1e3 * line.cost[paid], line.quality[paid]
    ax.step(cost, quality, where="post", marker="o", label=f"{side} x {side}")
ax.set(
    xlabel="cost of the set in ms (95th percentile)",
    ylabel="cross-validated accuracy",
    title="Sets worth choosing",
)
ax.set_xscale("log")
# What is measured differs between machines, so the ticks are found.
ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
ax.xaxis.set_major_formatter(lambda ms, _: f"{ms:g}")
ax.minorticks_off()
_ = ax.legend(title="image", loc="lower right")

# %%
# The index is a table of such skylines, one for each range of sizes. A lookup is two binary
# searches, so a large batch takes milliseconds.

sizes = np.array([np.size(image) for image in test])
print(f"{selector.index_.n_ranges} ranges of sizes in {selector.index_.nbytes} bytes")
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

pixels = np.median([np.size(image) for image in train])
budgets = np.geomspace(1e-4, 1e-2, 12)
prior = selector.predict(test[:1], budget=0)[0]


def fixed(budget, size):
    """Accuracy on all images of the best set for one size."""
    best = int(selector.select(size, budget))
    cost = selector.costs_(sizes.astype(float)).T @ selector.candidates_.T
    late = cost[:, best] > budget
    return np.mean(np.where(late, prior, answers_of(best)) == y_test)


def answers_of(choice):
    """Answers of one choice for all test images."""
    used = np.flatnonzero(selector.candidates_[choice])
    if len(used) == 0:
        return np.full(len(test), prior)
    table = np.hstack([tables[j] for j in used])
    return selector.estimators_[choice].predict(table)


tables = [of_each(test, function) for function in functions]
ours = [selector.score(test, y_test, budget=budget) for budget in budgets]
at_median = [fixed(budget, pixels) for budget in budgets]
for_largest = [fixed(budget, 128**2) for budget in budgets]

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(1e3 * budgets, ours, "o-", label="Poly-Dom, per image")
ax.plot(1e3 * budgets, at_median, "s--", label="one set, for the median image")
ax.plot(1e3 * budgets, for_largest, "^--", label="one set, for the largest image")
ax.set(
    xscale="log",
    xlabel="budget per image in ms",
    ylabel="test accuracy",
    title=f"Digits at 16 to 128 pixels a side, {len(test)} test images",
)
ax.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
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
# Estimates are percentiles, so most images leave time unused. With ``anytime=True`` the
# selector watches the clock while it computes one feature after the other, and aims for a
# better set when the earlier ones came in early. The next feature is still planned for at its
# 95th percentile, so the gain is small where the next one is expensive.

walked = selector.predict_routed(test, budget=budget, anytime=True)
print(f"planned: accuracy {selector.quality_[route].mean():.3f} expected, {ours[6]:.3f} on test")
print(
    f"any-time: accuracy {selector.quality_[walked.route].mean():.3f} expected, "
    f"{np.mean(walked.y_pred == y_test):.3f} on test, "
    f"budget kept by {np.mean(walked.cost <= budget):.1%}"
)
