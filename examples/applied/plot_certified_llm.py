"""
===================================================
Nine language models, and a promise about the bill
===================================================

Llama-405b answers 85 % of MMLU's questions correctly and is the best of nine models. A small model
answers most of them as well, for a twentieth of the price. How much can be saved if the answers may
be one, two or three points worse, *and one wants to be sure of that*?

The data are those of Zellinger and Thomson (2025): answers, confidences and costs of nine language
models. They are read from the folder that ``SKROUTE_DATA`` names.
"""

# %%
# The log
# -------

import os
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator

path = Path(os.environ.get("SKROUTE_DATA", "")) / "cascades" / "mmlu.npz"
if not path.is_file():
    print("The log of the cascades is absent: set SKROUTE_DATA to the folder that holds it.")
    sys.exit(0)
log = np.load(path)
right, cost = log["correctness"].astype(int), log["cost"] * 1e6
confidence, test = log["confidence"], log["is_test"]
small = {"gpt-4o-mini": 5, "llama-8b": 2, "llama-70b": 3, "qwen-72b": 7}
best = 4

# %%
# A decision estimator of one's own
# ---------------------------------
#
# A cascade asks a small model and, where that is not confident, the large one. It is a path of
# policies: a threshold for each budget. Here `X` holds row numbers of the log, and what it answers
# is whether the answer served was right, so that the target is 1.

from skroute.base import CostAwareMixin, Plan, check_affordable


class Cascade(CostAwareMixin, BaseEstimator):
    """Small model first, the best one where the small one is not confident enough."""

    def __init__(self, model, budget=None):
        self.model = model
        self.budget = budget

    def _fit(self, X, y, *, task):
        rows = X[:, 0]
        sure = confidence[rows, self.model]
        self.thresholds_ = np.unique(sure)
        passed_on = (sure < self.thresholds_[:, None]).astype(float)
        self.spent_ = (cost[rows, self.model] + passed_on * cost[rows, best]).mean(axis=1)
        self.choices_ = ["small", "large"]

    def _least(self):
        return self.spent_[0]

    def _plan(self, X, budget):
        check_affordable(budget, self._least())
        rows = X[:, 0]
        if budget == np.inf:
            return Plan(np.ones(len(rows), dtype=np.int64), cost[rows, best])
        threshold = self.thresholds_[np.searchsorted(self.spent_, budget, side="right") - 1]
        route = (confidence[rows, self.model] < threshold).astype(np.int64)
        return Plan(route, cost[rows, self.model] + route * cost[rows, best])

    def _answer(self, X, plan, response):
        return right[X[:, 0], np.where(plan.route == 0, self.model, best)]


train = np.flatnonzero(~test)[:, None]
cascades = {name: Cascade(model).fit(train) for name, model in small.items()}


def spent_within_a_point(cascade):
    """The smallest mean cost on the training rows at which a point of accuracy is lost at most."""
    accuracy = right[train[:, 0], best].mean()
    enough = [
        budget
        for budget in np.quantile(cascade.spent_, np.linspace(0, 1, 50))
        if cascade.predict(train, budget=budget).mean() >= accuracy - 0.01
    ]
    return min(enough, default=np.inf)


name = min(cascades, key=lambda name: spent_within_a_point(cascades[name]))
print(f"The training rows choose {name}.")

# %%
# A loss budget
# -------------
#
# The evidence is 1,000 questions that nothing was learned from. The reference is the large model
# alone. The promise holds with a confidence of 95 %.

from skroute.certified import CertificateDisplay, CertifiedRouter

order = np.random.default_rng(0).permutation(np.flatnonzero(test))
evidence, rest = order[:1000, None], order[1000:, None]
routers = {}
for points in (1, 2, 3):
    router = CertifiedRouter(
        FrozenEstimator(cascades[name]),
        max_loss=points / 100,
        reference="full",
        n_points=50,
        random_state=0,
    )
    routers[points] = router.fit(evidence, np.ones(len(evidence), dtype=int))
    print(router.certificate_, "\n")

# %%
# Over the operating points
# -------------------------
#
# Solid lines are upper bounds of the loss, dotted ones what was seen. Dots are certified: they are
# tested from the safe end, and the first failure ends the test.

fig, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
CertificateDisplay.from_estimator(routers[2], ax=ax)
ax.set(
    title="Solid: bound. Dotted: seen. Dots: certified. Dashed: asked",
    xlabel="Dollars per million questions",
    ylabel="Loss against the large model (share of answers)",
    ylim=(-0.03, 0.2),
)
plt.show()

# %%
# On the other questions
# ----------------------
#
# 531 questions are left. What they lose scatters by about a point, the bill is as seen.

for points, router in routers.items():
    answers, _, spent = router.predict_routed(rest)
    loss = right[rest[:, 0], best].mean() - answers.mean()
    print(
        f"at most {points} points: loss {100 * loss:.1f} points, "
        f"{1 - spent.mean() / cost[rest[:, 0], best].mean():.0%} saved"
    )

# %%
# Does it still hold?
# -------------------
#
# Later the questions change: only the ones come that the small model finds hard. A monitor that is
# fed the costs of all rows, and the losses of a few, notices it.

from skroute.certified import PromiseMonitor

router = routers[2]
monitor = PromiseMonitor(
    max_loss=0.02, budget=1.1 * router.certificate_.cost, audit_rate=0.1, random_state=0
)
rng = np.random.default_rng(1)
hard = order[right[order, 5] == 0]
for stream in (rng.choice(order, 5000), rng.choice(hard, 5000)):
    for part in np.array_split(stream, 50):
        answers, _, spent = router.predict_routed(part[:, None])
        audited = monitor.audit(len(part))
        monitor.update(cost=spent, loss=(right[part, best] - answers)[audited])
print(monitor.alarm_)
monitor.plot().set_title("Evidence against the promise, and the line of the alarm")
plt.show()
