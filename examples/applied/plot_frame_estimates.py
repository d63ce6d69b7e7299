"""
Route a log as it is: texts, tenants, and which estimate of quality decides best
================================================================================

A log has a text, a category and a number per request, and says how good each of three models
was for it. The router reads it without an encoder, and its default estimator says what each
member of its family would have gained.
"""

# %%
# A made-up log: the task that a text names decides which models can do it.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skroute.metrics import accuracy_cost_curve, reference_curves
from skroute.routing import BudgetRouter

rng = np.random.default_rng(0)
n = 1200
tasks = {"add up": 0.2, "prove that": -2.0, "translate": 1.2, "summarise": 0.6}
names = rng.choice(list(tasks), n)
things = rng.choice(["the primes", "this letter", "two fractions", "a recipe", "the report"], n)
log = pd.DataFrame(
    {
        "prompt": [
            f"Please {name} {thing}, case {i}" for i, (name, thing) in enumerate(zip(names, things))
        ],
        "tenant": rng.choice(["red", "blue"], n),
        "length": rng.lognormal(4, 1, n),
    }
)
ease = np.array([tasks[name] for name in names]) - 0.4 * (np.log(log["length"]) - 4)
skill = np.array([0.0, 1.0, 2.5])
Q = pd.DataFrame(
    rng.random((n, 3)) < 1 / (1 + np.exp(-ease.to_numpy()[:, None] - skill)),
    columns=["small", "middle", "large"],
).astype(float)
costs = {"small": 1.0, "middle": 4.0, "large": 15.0}
train, test = slice(0, 800), slice(800, None)

# %%
# The frame goes in as it is.
router = BudgetRouter(costs=costs, budget=5.0, cv=3).fit(log[train], Q[train])
estimator = router.quality_estimator_
print(estimator.encoder_.kinds_)
for found in estimator.compared_:
    print(f"{found.name:>20}: gain {found.gain:.3f} +- {found.gain_se:.3f}")

# %%
# On rows that fitted nothing: the router, and the random mix that spends the same.
budgets = np.linspace(1.5, 15, 10)
curve = accuracy_cost_curve(router, log[test], Q[test], budgets)
mix = reference_curves(Q[test].to_numpy(), list(costs.values()), curve.cost)
fig, ax = plt.subplots()
ax.plot(curve.cost, curve.quality, "o-", label="router")
ax.plot(curve.cost, mix.random, "--", label="best random mix at equal spend")
ax.set(
    xlabel="mean price per request (small: 1, middle: 4, large: 15)",
    ylabel="mean quality",
    title="Estimates from the log as it is",
)
ax.legend()
plt.show()
