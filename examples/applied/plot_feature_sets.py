"""
==================================================
Features within a time limit, by size of the image
==================================================

The histogram of a large image takes longer than the histogram of a small one. If each image has a
time limit, there is time for good features of a small image, but not of a large one.

:class:`~skroute.feature_sets.PolyDomSelector` measures the cost of each extractor as a function of
the size, trains models for the useful sets of extractors, and takes the best set within the limit
of each image. The images are scikit-learn's digits, enlarged to 16 to 128 pixels per side.
The extractors come from scikit-image.
"""

# %%
# Digits at eight resolutions
# ---------------------------

import matplotlib.pyplot as plt
import numpy as np
from skimage.transform import resize
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

small, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)


def enlarged(rows):
    sides = 16 * rng.integers(1, 9, size=len(rows))
    images = [
        resize(row.reshape(8, 8) / 16, (s, s), order=1) for row, s in zip(rows, sides)
    ]
    return [image.astype(np.float32) for image in images]


split = train_test_split(small, y, train_size=300, test_size=250, random_state=0)
train, test, y_train, y_test = enlarged(split[0]), enlarged(split[1]), *split[2:]

fig, axes = plt.subplots(1, 5, figsize=(9, 2.2), layout="constrained")
for ax, image in zip(axes, test):
    ax.imshow(image, cmap="gray_r")
    ax.set(title=f"{len(image)} x {len(image)}", xticks=[], yticks=[])
_ = fig.suptitle("Five test images")

# %%
# Six extractors
# --------------
# The fastest are sums of rows and columns, and the slowest are ridge filters.

from skimage import feature, filters
from skimage.transform import resize_local_mean


def profile(image):
    step = len(image) // 8
    return np.concatenate(
        [image.sum(a).reshape(8, step).mean(1) for a in (0, 1)]
    ) / len(image)


def thumbnail(image):
    return resize_local_mean(image, (8, 8)).ravel()


def edges(image):
    return resize_local_mean(filters.sobel(image), (6, 6)).ravel()


def patterns(image):
    codes = feature.local_binary_pattern(
        (255 * image).astype(np.uint8), 8, 1, "uniform"
    )
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
# `fit` measures the time of each extractor on single images, takes the 95th percentile at each
# size, and trains models for the useful sets among the 63 sets. `monotonicity_tol` accounts for the
# noise of cross-validated accuracies.

from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import FunctionTransformer

from skroute.feature_sets import PolyDomSelector

functions = [profile, thumbnail, edges, patterns, gradients, ridges]
selector = PolyDomSelector(
    LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
    [
        (f.__name__, FunctionTransformer(of_each, kw_args={"function": f}))
        for f in functions
    ],
    costs="time",
    size=np.size,
    alpha=0.01,
    monotonicity_tol=0.02,
    cv=3,
).fit(train, y_train)
print(f"{selector.n_trained_} sets trained, {len(selector.choices_)} can be chosen")

pixels = np.linspace(16**2, 128**2, 200)
fig, ax = plt.subplots(figsize=(7.5, 4), layout="constrained")
for f, seconds, cost in zip(
    functions, selector.measured_costs_.T, selector.costs_(pixels)
):
    (line,) = ax.plot(pixels, 1e3 * cost, label=f.__name__)
    ax.plot(
        selector.measured_sizes_,
        1e3 * seconds,
        ".",
        ms=3,
        alpha=0.4,
        color=line.get_color(),
    )
ax.set(
    xlabel="pixels",
    ylabel="ms per image",
    yscale="log",
    title="Measured and fitted costs",
)
_ = ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)

# %%
# The best sets depend on the size
# --------------------------------
# For each size, the skyline has the sets for which no other set is both cheaper and more accurate.

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for side in (16, 64, 128):
    sets = selector.skyline(side**2)
    paid = sets.cost > 0  # without the empty set
    cost, quality = 1e3 * sets.cost[paid], sets.quality[paid]
    ax.step(cost, quality, where="post", marker="o", label=f"{side} x {side}")
ax.set(
    xlabel="cost of the set in ms (95th percentile)",
    ylabel="cross-validated accuracy",
    title="Skyline of the sets",
    xscale="log",
)
_ = ax.legend(title="image", loc="lower right")

# Times differ between machines, so the budgets are shares of what all extractors cost together.
every = float(selector.costs_([128**2]).sum())
for side, budget in [(16, 0.2 * every), (128, 0.2 * every), (128, 0.8 * every)]:
    choice = selector.choices_[int(selector.select(side**2, budget))]
    print(f"{side:3d} x {side:3d}, {1e3 * budget:.1f} ms: {choice}")

# %%
# Accuracy at each budget
# -----------------------
# The selector is compared with two fixed sets. The first is the best within the limit for an image
# of median size. It is too slow for larger images, which then get the most frequent class. The
# second is the best within the limit for the largest image. It is never late, but worse on small
# images.

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


budgets = every * np.geomspace(0.01, 1, 12)
median = np.median([np.size(image) for image in train])
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for label, style, accuracy in [
    (
        "Poly-Dom, per image",
        "o-",
        [selector.score(test, y_test, budget=b) for b in budgets],
    ),
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
# Decide by the measured time
# ---------------------------
# Costs are 95th percentiles, so for most images some time is left. With ``anytime=True`` the
# selector measures the time, and takes a better set if earlier features were fast.

budget = budgets[6]
for name, routed in [
    ("planned", selector.predict_routed(test, budget=budget)),
    ("any-time", selector.predict_routed(test, budget=budget, anytime=True)),
]:
    accuracy, kept = np.mean(routed.y_pred == y_test), np.mean(routed.cost <= budget)
    print(
        f"{name}: accuracy {accuracy:.3f}, {kept:.1%} of the images within {1e3 * budget:.2f} ms"
    )
