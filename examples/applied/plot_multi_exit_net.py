"""
=============================
A neural net with early exits
=============================

Most digits are easy, but a deep net computes all of its layers for each of them. A net with
**exits** has a small classifier after each stage. Easy digits stop at an early exit. Only the
other digits go through the next stage.

Here, a convolutional net with four exits reads scikit-learn's digits, and
:class:`~skroute.early_exit.QWYCEnsemble` decides at which exit each digit stops.
"""

# %%
# The net
# -------
#
# The module has stages, and a head after each stage. :class:`~skroute.members.MultiExitClassifier`
# trains all heads together. The rows that are not used for training are used to learn when to stop.
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from torch import nn

from skroute.early_exit import QWYCEnsemble
from skroute.members import MultiExitClassifier

torch.set_num_threads(1)

digits = load_digits()
# Each pixel twice in both directions: 16 x 16.
X = (
    (digits.images / 16)
    .astype(np.float32)
    .repeat(2, axis=1)
    .repeat(2, axis=2)
    .reshape(-1, 256)
)
X_train, X, y_train, y = train_test_split(
    X, digits.target, train_size=800, random_state=0
)
X_rest, X_test, y_rest, y_test = train_test_split(X, y, train_size=500, random_state=0)


def conv(n_in, n_out, stride=1):
    return [
        nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(n_out),
        nn.ReLU(),
    ]


def head(n_channels, n_classes):
    return nn.Sequential(
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16 * n_channels, n_classes)
    )


def build(n_features, n_classes):
    net = nn.Module()
    net.stages = nn.ModuleList(
        [
            nn.Sequential(nn.Unflatten(1, (1, 16, 16)), *conv(1, 8, stride=2)),
            nn.Sequential(*conv(8, 16)),
            nn.Sequential(*conv(16, 32)),
            nn.Sequential(*conv(32, 32), *conv(32, 32)),
        ]
    )
    net.heads = nn.ModuleList([head(width, n_classes) for width in (8, 16, 32, 32)])
    return net


net = MultiExitClassifier(build, max_epochs=20, lr=0.002, random_state=0).fit(
    X_train, y_train
)

# %%
# When to stop
# ------------
#
# QWYC sets a threshold on the margin between the two best classes of each exit. For each digit,
# `alpha` is the expected share of answers that differ from those of the full net. It is 0.08 here.
# It must be at least about 1/25, because there are 25 held-out rows of each digit.
# ``costs="time"`` measures each stage.
quick = QWYCEnsemble(
    FrozenEstimator(net),
    alpha=dict.fromkeys(range(10), 0.08),
    calibration=0.5,
    costs="time",
    random_state=0,
).optimize(X_rest)

# %%
# Accuracy against cost
# ---------------------
#
# The references are each exit alone, a random mix of two exits, and an oracle that stops at the
# first exit that is right.
import matplotlib.pyplot as plt

from skroute.metrics import accuracy_cost_curve

staged = np.array(
    [net.classes_[p.argmax(axis=1)] for p in net.staged_predict_proba(X_test)]
)
right = staged == y_test
spent = np.cumsum(quick.costs_)
full = spent[-1]
first_right = np.where(right.any(axis=0), right.argmax(axis=0), 0)

shares = np.array([0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0])
# Times differ between machines: the smallest shares may be less than the cost of the first exit.
budgets = (
    full * shares[full * shares > 1.01 * max(spent[0], quick.tradeoff_.cost.min())]
)
curves = {
    "QWYC": accuracy_cost_curve(quick, X_test, y_test, budgets),
}

fig, ax = plt.subplots(figsize=(6.8, 4.4), layout="constrained")
for (name, curve), marker in zip(curves.items(), "os"):
    ax.plot(curve.cost / full, curve.quality, marker=marker, label=name)
ax.plot(
    spent / full,
    right.mean(axis=1),
    "--",
    color="grey",
    label="random mix of two exits",
)
ax.scatter(spent / full, right.mean(axis=1), color="dimgrey", zorder=3)
for k in range(net.n_exits_):
    ax.annotate(
        f"exit {k + 1}",
        (spent[k] / full, right[k].mean()),
        xytext=(6, -12) if k < 3 else (-6, -14),
        textcoords="offset points",
        ha="left" if k < 3 else "right",
        color="dimgrey",
    )
ax.scatter(
    spent[first_right].mean() / full,
    right.any(axis=0).mean(),
    marker="*",
    s=110,
    color="0.5",
    label="oracle (knows the labels)",
)
ax.set(
    xlabel="mean cost per image, as a share of the full net's",
    ylabel="accuracy on the test images",
    xlim=(0, 1.03),
    ylim=(right[0].mean() - 0.012, 1.0),
    title="Digits: a net with four exits",
)
ax.legend(loc="lower right", bbox_to_anchor=(1.0, 0.12))
plt.show()

# %%
# Measured time
# -------------
#
# We measure the time of `predict` on all test images, for the full net and for early exits (best of
# five calls).
answers = quick.predict_routed(X_test)
seconds = {"full net": [], "early exit": []}
for _ in range(5):
    for name, model in [("full net", net), ("early exit", quick)]:
        start = time.perf_counter()
        model.predict(X_test)
        seconds[name].append(time.perf_counter() - start)
whole, early = min(seconds["full net"]), min(seconds["early exit"])
print(f"full net    {np.mean(right[-1]):.4f} right   {1e3 * whole:6.1f} ms")
print(
    f"early exit  {np.mean(answers.y_pred == y_test):.4f} right   {1e3 * early:6.1f} ms   "
    f"({1e3 * answers.cost.sum():.1f} ms by the measured costs)"
)
print(f"saved: {1 - early / whole:.0%} of the time")
print(
    "images that stop at each exit:",
    np.bincount(answers.route, minlength=5)[1:].tolist(),
)

# %%
# Easy and hard images
# --------------------
#
# For each digit: an image that stops at the first exit, and an image that stops latest. If an
# answer is wrong, it is written above the image.
fig, axes = plt.subplots(2, 10, figsize=(8.6, 2.6), layout="constrained")
fig.suptitle("Images that stop first, and images that go furthest")
for digit in range(10):
    of_digit = np.flatnonzero(y_test == digit)
    exits = answers.route[of_digit]
    for row, k in zip(axes, (exits.argmin(), exits.argmax())):
        ax, image = row[digit], of_digit[k]
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        ax.imshow(X_test[image].reshape(16, 16), cmap="gray_r")
        ax.set_xlabel(f"exit {answers.route[image]}")
        if answers.y_pred[image] != digit:
            ax.set_title(
                f"read as {answers.y_pred[image]}", fontsize=8, color="firebrick"
            )
plt.show()
