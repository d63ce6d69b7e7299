"""
======================================
Learning from one answer per request
======================================

A service asks one model per request and logs how good the answer was. The other models' answers
are not known. Can such a log train a better router, and say how good it would be before it is used?

The requests are MMLU's questions, answered by Mixtral-8x7B and GPT-4 (RouteLLM's table). We make a
log of them as a service would have: long questions go to GPT-4, with a share at random. Since the
table has both answers, what the log says can be compared with the truth.
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
    [make_pipeline(vectors, TruncatedSVD(20, random_state=0)).fit_transform(texts), length]
)

rng = np.random.default_rng(1)
is_long = length > np.median(length)
large = np.where(is_long, 0.8, 0.2)
choice = (rng.random(len(X)) < large).astype(int)
propensity = np.where(choice == 1, large, 1 - large)
q = Q[np.arange(len(X)), choice]

# %%
# By the log GPT-4 is right on fewer questions than it would be on all of them, and Mixtral on more,
# since it got the short ones:

for k, name in enumerate(names):
    print(f"{name}: logged {q[choice == k].mean():.3f}, in truth {Q[:, k].mean():.3f}")

# %%
# A router from the log
# ---------------------
#
# `choice` says whose answer `q` is. The means that the router learns are not misled.

from skroute.routing import BudgetRouter

train, test = slice(0, 3000), slice(3000, None)
router = BudgetRouter(costs=costs, budget=float(np.mean(table.costs)))
router.fit(X[train], q[train], choice=names[choice[train]], propensity=propensity[train])
print("mean quality, learned:", dict(zip(names, router.mean_quality_.round(3))))
print("rows of each choice:", dict(zip(names, router.overlap_.n_rows)))

# %%
# What would it have been worth?
# ------------------------------
#
# The other half of the log judges it, for every budget: the model's belief (direct method), the
# rows on which log and router agree (SNIPS), and both (doubly robust) with its interval. The dotted
# grey line is the truth, which a service does not have.

from skroute.metrics import OffPolicyDisplay, accuracy_cost_curve

budgets = np.linspace(*table.costs, 7)
log = {"choice": names[choice[test]], "propensity": propensity[test]}
fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
display = OffPolicyDisplay.from_estimator(router, X[test], q[test], **log, budgets=budgets, ax=ax)
truth = accuracy_cost_curve(router, X[test], Q[test], budgets)
ax.plot(truth.cost, truth.quality, color="grey", linestyle=":", label="truth")
ax.legend()
ax.set_title("One answer per request, 3,000 requests to judge by")
plt.show()

found = display.curve.quality.doubly_robust
inside = (found.low < truth.quality) & (truth.quality < found.high)
print(f"the interval holds the truth at {inside.sum()} of {len(inside)} budgets")

# %%
# Where the log cannot say
# ------------------------
#
# Had the rule been without exceptions, nothing could be said of short questions at GPT-4:

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
