"""
=========================================
A net that answers as soon as it is sure
=========================================

Most digits on an envelope are easy, and a deep net computes all of its layers for them all the
same. A net with **exits** has a small classifier after each of its stages. A digit that is
settled after the first stage leaves there; only what is still undecided goes deeper, from the
hidden state that it has got to. No stage is computed twice.

Here: a convolutional net with four exits on scikit-learn's digits, when to leave decided by
:class:`~skroute.early_exit.QWYCEnsemble`, and what that saves in seconds.
"""

# %%
# The net
# -------
#
# A net with exits is a torch module with stages, each of which takes what the one before it
# returned, and a head after each. :class:`~skroute.members.MultiExitClassifier` trains all heads
# together. Its training rows are no use for deciding when to leave, since the net knows them too
# well: others are kept for that.
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
X = (digits.images / 16).astype(np.float32).repeat(2, axis=1).repeat(2, axis=2).reshape(-1, 256)
X_train, X, y_train, y = train_test_split(X, digits.target, train_size=800, random_state=0)
X_rest, X_test, y_rest, y_test = train_test_split(X, y, train_size=500, random_state=0)


def conv(n_in, n_out, stride=1):
    return [
        nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(n_out),
        nn.ReLU(),
    ]


def head(n_channels, n_classes):
    return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16 * n_channels, n_classes))


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


net = MultiExitClassifier(build, max_epochs=20, lr=0.002, random_state=0).fit(X_train, y_train)

# %%
# When to leave
# -------------
#
# QWYC sets a threshold on the margin between the two leading classes of each exit. At most a
# share `alpha` of the answers is expected to differ from the full net's; with
# ``guarantee=True``, which needs more rows, that holds with 95 % confidence. ``costs="time"``
# measures what each stage adds.
quick = QWYCEnsemble(
    FrozenEstimator(net),
    alpha=0.02,
    calibration=0.5,
    costs="time",
    random_state=0,
).optimize(X_rest)

# %%
# Accuracy against cost
# ---------------------
#
# One curve for each, over budgets. Beside them the exits alone, exits drawn at random (a straight
# line between two exits is what mixing these two at random gives), and an oracle that is told the
# labels and stops at the first exit that is right. Costs are what `fit` measured for the stages.
import matplotlib.pyplot as plt

from skroute.metrics import accuracy_cost_curve

staged = np.array([net.classes_[p.argmax(axis=1)] for p in net.staged_predict_proba(X_test)])
right = staged == y_test
spent = np.cumsum(quick.costs_)
full = spent[-1]
first_right = np.where(right.any(axis=0), right.argmax(axis=0), 0)

shares = np.array([0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0])
# Measured: on some machine the smallest shares may not pay for the first exit.
budgets = full * shares[full * shares > 1.01 * max(spent[0], quick.tradeoff_.cost.min())]
curves = {
    "QWYC": accuracy_cost_curve(quick, X_test, y_test, budgets),
}

fig, ax = plt.subplots(figsize=(6.8, 4.4), layout="constrained")
for (name, curve), marker in zip(curves.items(), "os"):
    ax.plot(curve.cost / full, curve.quality, marker=marker, label=name)
ax.plot(spent / full, right.mean(axis=1), "--", color="grey", label="exits at random")
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
    color="black",
    label="oracle (told the labels)",
)
ax.set(
    xlabel="mean cost per image, as a share of the full net's",
    ylabel="accuracy on the test images",
    xlim=(0, 1.03),
    ylim=(right[0].mean() - 0.012, 1.0),
    title="Digits: leaving a net of four exits",
)
ax.legend(loc="lower right", bbox_to_anchor=(1.0, 0.12))
plt.show()

# %%
# Seconds
# -------
#
# Costs are a promise; this is the clock, for `predict` on all test images with everything that it
# does, beside the full net and beside the sum of the measured costs. The fastest of five calls
# each, in turn.
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
print("images that leave at each exit:", np.bincount(answers.route, minlength=5)[1:].tolist())

# %%
# Who leaves early
# ----------------
#
# For each digit, an image that leaves at the first exit and one that goes through the whole net.
# The ones that need all of it are the ones that one has to look at twice. An answer that is wrong
# stands above its image.
fig, axes = plt.subplots(2, 10, figsize=(8.6, 2.8), layout="constrained")
fig.suptitle("Images that leave at the first exit, and images that need the whole net")
for digit in range(10):
    for row, exit in zip(axes, (1, 4)):
        ax = row[digit]
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        here = np.flatnonzero((y_test == digit) & (answers.route == exit))
        if len(here):
            ax.imshow(X_test[here[0]].reshape(16, 16), cmap="gray_r")
            if answers.y_pred[here[0]] != digit:
                ax.set_title(f"taken for {answers.y_pred[here[0]]}", fontsize=8, color="firebrick")
for row, text in zip(axes, ("leave at exit 1", "go to exit 4")):
    row[0].set_ylabel(text)
plt.show()
