"""
====================================
Learning from one answer per request
====================================

A service asks one model per request, and logs how good the answer was. It does not know the answers
of the other models. Can you train a better router from this log, and evaluate it before you use it?

The requests are questions of MMLU, answered by Mixtral-8x7B and GPT-4 (data of RouteLLM). We make a
log as a service would have it: long questions go to GPT-4 with a probability of 0.8, and short
questions with a probability of 0.2. Because the data has both answers, we can compare the estimates
with the truth.
"""

# %%
# The log
# -------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from skroute.datasets import fetch_routellm_mmlu

table = fetch_routellm_mmlu()
kept = np.random.default_rng(0).permutation(np.flatnonzero(~table.contaminated))[:6000]
texts, Q = table.data[kept], table.quality[kept].astype(float)
names = np.array(["Mixtral-8x7B", "GPT-4"])
costs = dict(zip(names, table.costs))
vectors = TfidfVectorizer(sublinear_tf=True, min_df=3)
length = np.log([len(text) for text in texts])
X = np.column_stack(
    [
        make_pipeline(vectors, TruncatedSVD(20, random_state=0)).fit_transform(texts),
        length,
    ]
)

rng = np.random.default_rng(1)
is_long = length > np.median(length)
large = np.where(is_long, 0.8, 0.2)
choice = (rng.random(len(X)) < large).astype(int)
propensity = np.where(choice == 1, large, 1 - large)
q = Q[np.arange(len(X)), choice]

# %%
# In the log, GPT-4 seems worse than it is, and Mixtral seems better, because Mixtral got the short
# questions:

for k, name in enumerate(names):
    print(f"{name}: logged {q[choice == k].mean():.3f}, in truth {Q[:, k].mean():.3f}")

# %%
# A router from the log
# ---------------------
#
# `choice` is the model that gave the answer with quality `q`. The router corrects the bias.

from skroute.routing import BudgetRouter

train, test = slice(0, 3000), slice(3000, None)
router = BudgetRouter(costs=costs, budget=float(np.mean(table.costs)))
router.fit(
    X[train], q[train], choice=names[choice[train]], propensity=propensity[train]
)
for name, mean, n in zip(names, router.mean_quality_, router.overlap_.n_rows):
    print(f"{name}: learned {mean:.3f}, from {n} rows of 3000")

# %%
# Evaluate it with the log
# ------------------------
#
# The other half of the log is used to evaluate the router at every budget, with three estimates.
# The direct method uses a model of quality. SNIPS uses the rows on which log and router make the
# same choice. The doubly robust estimate uses both, and has an interval. The dotted line is the
# truth, which a service does not know.

from skroute.metrics import OffPolicyDisplay, accuracy_cost_curve

budgets = np.linspace(*table.costs, 7)
log = {"choice": names[choice[test]], "propensity": propensity[test]}
fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
display = OffPolicyDisplay.from_estimator(
    router,
    X[test],
    q[test],
    **log,
    budgets=budgets,
    cost_unit="USD per million tokens",
    ax=ax,
)
truth = accuracy_cost_curve(router, X[test], Q[test], budgets)
ax.plot(truth.cost, truth.quality, color="grey", linestyle=":", label="truth")
ax.legend()
ax.set_title("One answer per request, evaluated on 3,000 requests")
plt.show()

found = display.curve.quality.doubly_robust
inside = (found.low < truth.quality) & (truth.quality < found.high)
print(f"the interval holds the truth at {inside.sum()} of {len(inside)} budgets")

# %%
# No overlap, no estimate
# -----------------------
#
# If all long questions had gone to GPT-4, and all short ones to Mixtral, the log would say nothing
# about the answers of GPT-4 to short questions:

rule = is_long[test].astype(int)
try:
    OffPolicyDisplay.from_estimator(
        router,
        X[test],
        Q[test][np.arange(len(rule)), rule],
        choice=names[rule],
        propensity=np.ones(len(rule)),
        budgets=budgets,
    )
except ValueError as error:
    print(error)
