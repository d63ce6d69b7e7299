"""
===============================================
A cascade of five language models, and a person
===============================================

The largest of five models costs thirty times as much as the smallest. Each answer comes with a
confidence. Which model should be asked first, when should another one be asked, and when should a
person answer?

The log is made up. Its prices and approximate accuracies are those of the Llama 3 models with 1 to
405 billion parameters on MMLU. ``benchmarks/bench_cascades.py`` uses the real log.
"""

# %%
# A log of 500 questions
# ----------------------

import matplotlib.pyplot as plt
import numpy as np

from skroute.metrics import reference_curves, risk_coverage_curve
from skroute.routing import CascadeRouter

costs = {"1b": 19, "3b": 20, "8b": 38, "70b": 172, "405b": 574}
names, prices = list(costs), np.array(list(costs.values()))


def make_log(n_rows, seed):
    """Quality of each answer, and a confidence that knows something of it."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(size=(n_rows, 1)) * 1.6
    chance = 1 / (1 + np.exp(hard - [-0.4, 0.4, 0.8, 2.4, 2.9]))
    quality = (rng.uniform(size=chance.shape) < chance).astype(float)
    return quality, np.log(chance) + 0.25 * rng.normal(size=chance.shape)


Q, confidence = make_log(500, 0)
Q_test, confidence_test = make_log(3000, 1)
print(dict(zip(names, Q_test.mean(axis=0).round(3).tolist())))

# %%
# All cascades in one fit
# -----------------------
#
# `fit` compares each model alone, fixed orders of two and three models, and free orders, in which
# the confidence of one answer decides which model is next. It keeps the best cascade at
# each budget.

router = CascadeRouter(costs=costs).fit(None, Q, signals=confidence)
for name, cost, quality in zip(router.rule_names_, *router.mixture_):
    print(f"{cost:6.0f} $ per million   {quality:.3f}   {name}")

# %%
# The rules on new questions, compared with a random mix of single models, and with a cascade
# through all five models. It rarely pays to ask the smallest models first.

chain = CascadeRouter(costs=costs, order=names).fit(None, Q, signals=confidence)


def curve(router):
    """Cost and quality of each rule on the test questions."""
    points = []
    for budget in router.mixture_.cost:
        asked = {"signals": confidence_test, "budget": budget}
        cost = router.predict_cost(None, **asked).mean()
        points.append((cost, router.score(None, Q_test, **asked)))
    return np.array(points).T


fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.plot(*curve(router), marker="o", label="CascadeRouter")
ax.plot(*curve(chain), marker=".", label="all five in order")
budgets = np.linspace(prices[0], prices[-1], 100)
mix = reference_curves(Q_test, prices, budgets).random
ax.plot(budgets, mix, "--", color="0.5", label="random mix of single models")
ax.set(xlabel="$ per million questions", ylabel="share answered right")
ax.set_title("Quality over cost, 3,000 new questions")
ax.legend()
plt.show()

# %%
# Passing questions to a person
# -----------------------------
#
# A wrong answer costs 1, and an answer of a person costs 0.3. Most of these questions are passed on
# early, before the largest model is called.

careful = CascadeRouter(costs=costs, abstain_cost=0.3, budget=150)
careful.fit(None, Q, signals=confidence)
y_pred, route, cost = careful.predict_routed(None, signals=confidence_test)
passed = y_pred == "abstain"
right = Q_test[np.flatnonzero(~passed), route[~passed]].mean()
asked = careful.models_asked(None, signals=confidence_test)
print(
    f"{passed.mean():.0%} passed, {right:.1%} of the others right, {cost.mean():.0f} $ per million"
)
print(f"calls per passed question: {asked[passed].sum(axis=1).mean():.2f}")

# %%
# ``predict_quality`` ranks the answers. If only the best-ranked questions are answered, a smaller
# share of the answers is wrong.

budget = 150.0
quality = router.predict_quality(None, signals=confidence_test, budget=budget)
route = router.route(None, signals=confidence_test, budget=budget)
loss = 1 - Q_test[np.arange(len(Q_test)), route]
curve_of_risk = risk_coverage_curve(loss, quality)

fig, ax = plt.subplots(figsize=(5, 3.5), layout="constrained")
ax.plot(curve_of_risk.coverage, curve_of_risk.risk)
ax.set(
    xlabel="share answered",
    ylabel="share of these answers that are wrong",
    ylim=(0, None),
)
ax.set_title("Error of the answered questions")
plt.show()
