"""
==================================================
Three convolutional nets, paid in measured seconds
==================================================

A net that is twenty times as wide as another takes several times as long per image, and on
most digits both say the same. Three nets of growing width read USPS digits here; the router
sends each image to the one that is worth its time. The nets are skorch's, so that they are
scikit-learn estimators, and the time is measured where they run: on this page one core of a
CPU, elsewhere a GPU with ``device="cuda"``.
"""

# %%
# The nets
# --------
#
# They are trained once, on 5,500 of the 7,699 training images. The other 2,199 are for the
# router: nets come to know the images that they were trained on, and what a router learns
# about their mistakes must come from images that they have not seen. Fitted models are given
# to scikit-learn's meta-estimators as :class:`~sklearn.frozen.FrozenEstimator`.
#
# The images keep their shape ``(n, 1, 16, 16)`` and stay in float32 all the way.
import numpy as np
import torch
from sklearn.frozen import FrozenEstimator
from skorch import NeuralNetClassifier
from torch import nn

from skroute.datasets import fetch_usps

torch.set_num_threads(1)
usps = fetch_usps()
X = (usps.data / 255).astype(np.float32).reshape(-1, 1, 16, 16)
y = usps.target.astype(np.int64)
X_test, y_test = X[usps.is_test], y[usps.is_test]
train, learn = np.split(np.random.default_rng(0).permutation(np.flatnonzero(~usps.is_test)), [5500])


class Convolutions(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.penultimate = nn.Sequential(nn.Linear(32 * width, 32), nn.ReLU())
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.penultimate(self.features(x)))


def net(width, max_epochs):
    torch.manual_seed(0)
    return NeuralNetClassifier(
        Convolutions,
        module__width=width,
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=3e-3,
        batch_size=64,
        iterator_valid__batch_size=256,
        max_epochs=max_epochs,
        train_split=None,
        verbose=0,
    )


nets = [
    (name, FrozenEstimator(net(width, epochs).fit(X[train], y[train])))
    for name, width, epochs in [("small", 2, 12), ("medium", 8, 8), ("large", 40, 4)]
]

# %%
# The router
# ----------
#
# The small net sees every image first (``embedding="small"``): its ten probabilities tell a
# forest which nets will be right, and where it is trusted its answer is there already, at no
# further cost. ``costs="time"`` measures each net in `fit`, in batches of the size that the
# net itself uses, and what the forest takes is added.
from sklearn.ensemble import RandomForestRegressor

from skroute.routing import OccamRouterClassifier


def occam(embedding="small"):
    return OccamRouterClassifier(
        nets,
        costs="time",
        embedding=embedding,
        quality_estimator=RandomForestRegressor(50, min_samples_leaf=30, random_state=0),
        reg_lambda=1,
    ).fit(X[learn], y[learn])


router = occam()
accuracy = np.array([model.score(X_test, y_test) for _, model in nets])
for name, cost, right in zip(router.choices_, router.costs_, accuracy):
    print(f"{name:>7}: {1e6 * cost:5.0f} microseconds per image, accuracy {right:.4f}")
deciding = router.routing_cost_ - router.costs_[0]
print(f"deciding: {1e6 * deciding:4.0f} microseconds per image")

# %%
# What a budget buys
# ------------------
#
# Beside the router stand the best single net that the budget pays for, the random mix of
# two nets that costs what the router spent, and an oracle that is told the labels. The budget
# is a share of the largest net's time.
from skroute.assignment import solve_assignment
from skroute.metrics import accuracy_cost_curve
from skroute.routing import DummyRouterClassifier

shares = np.array([0.2, 0.3, 0.4, 0.6, 0.8, 1.0])


def curve_of(router):
    # Measured: on a slow machine the smallest share may not pay for the cheapest answer.
    budgets = np.maximum(shares * router.costs_.max(), router.min_budget_)
    return budgets, accuracy_cost_curve(router, X_test, y_test, budgets)


budgets, curve = curve_of(router)
largest = router.costs_.max()
oracle = DummyRouterClassifier(
    nets, costs=dict(zip(router.choices_, router.costs_)), strategy="oracle"
)
truth = oracle.fit(X[learn], y[learn]).member_quality(X_test, y_test)
results = {
    "OCCAM": curve.quality,
    "its cost": curve.cost / largest,
    "single best": [
        accuracy[np.where(router.costs_ <= b, router.mean_quality_, 0).argmax()] for b in budgets
    ],
    "random": np.interp(curve.cost, router.costs_, accuracy),
    "oracle": [solve_assignment(truth, router.costs_, b).objective for b in budgets],
}
print("".join(f"{name:>15}" for name in ["budget", *results]))
for row, share in enumerate(shares):
    print("".join(f"{v:>15.4f}" for v in [share, *(values[row] for values in results.values())]))
lost = 100 * (accuracy[-1] - curve.quality[list(shares).index(0.6)])
print(f"\nOCCAM at 40 % less time than the large net: {lost:.2f} points below it")

# %%
# The picture
# -----------
import matplotlib.pyplot as plt

fig, ax = plt.subplots(figsize=(6.6, 4.4), layout="constrained")
ax.plot(results["its cost"], results["OCCAM"], marker="o", label="OCCAM")
ax.plot(shares, results["single best"], marker="s", label="single best")
ax.plot(results["its cost"], results["random"], marker="d", label="random mix")
ax.plot(shares, results["oracle"], ":", color="grey", label="oracle (told the labels)")
ax.scatter(router.costs_ / largest, accuracy, color="grey", zorder=3)
for name, cost, right in zip(router.choices_, router.costs_ / largest, accuracy):
    ax.annotate(
        name,
        (cost, right),
        xytext=(0, 8),
        textcoords="offset points",
        ha="center",
        color="dimgrey",
        fontsize=8,
    )
ax.set(
    xlabel="mean time per image, as a share of the large net's",
    ylabel="accuracy on the test images",
    xlim=(0, 1.08),
    title="USPS: three nets and what they cost",
)
ax.legend(loc="lower right")
plt.show()

# %%
# Does the bill add up?
# ---------------------
#
# A cost that is measured can be checked. Beside what `predict_routed` says that the routes cost,
# as measured in `fit`, stand two times from now, medians of runs in turn: the nets called by
# hand on the same rows, and the routed `predict`, which gathers the rows, decides, and puts
# the answers in order. The hooks count what each net is really given.
import time

budget = budgets[list(shares).index(0.6)]
routed = router.predict_routed(X_test, budget=budget)
own = [np.flatnonzero(routed.route == choice) for choice in range(len(nets))]
own[0] = np.arange(len(X_test))  # the small net sees every image


def by_hand():
    for model, rows in zip(router.estimators_, own):
        if len(rows):
            model.predict(X_test[rows])


def by_router():
    router.predict(X_test, budget=budget)


seconds = {by_hand: [], by_router: []}
for _ in range(5):
    for call, runs in seconds.items():
        start = time.perf_counter()
        call()
        runs.append(time.perf_counter() - start)
print(f"costs of the routes, from fit: {routed.cost.sum():.3f} s")
print(f"the nets called by hand:       {np.median(seconds[by_hand]):.3f} s")
print(f"routed predict:                {np.median(seconds[by_router]):.3f} s")

forwarded = dict.fromkeys(router.choices_, 0)


def count(name):
    def hook(module, inputs, output):
        forwarded[name] += len(output)

    return hook


hooks = [
    model.estimator.module_.register_forward_hook(count(name))
    for name, model in zip(router.choices_, router.estimators_)
]
by_router()
for hook in hooks:
    hook.remove()
print("images that each net was given:", forwarded)
