"""
========================================
When is the small language model enough?
========================================

Two language models, one about a hundred times more expensive: Mixtral-8x7B answers 68 % of MMLU's
questions correctly, GPT-4 81 %. RouteLLM published which questions each gets right. Can the
text of a question tell where the small one will do?
"""

# %%
# How much there is to gain
# -------------------------

import matplotlib.pyplot as plt
import numpy as np

from skroute.datasets import fetch_routellm_mmlu
from skroute.metrics import ComplementarityDisplay, complementarity_matrix

log = fetch_routellm_mmlu()
rows = ~log.contaminated
X, Q, costs = log.data[rows], log.quality[rows].astype(float), log.costs
names = ["Mixtral-8x7B", "GPT-4"]

fig, ax = plt.subplots(figsize=(5.6, 4), layout="constrained")
ComplementarityDisplay(matrix=complementarity_matrix(Q), names=names).plot(ax=ax)
ax.set_title("Who is right where the other fails")
plt.show()

# %%
# On 18 % of the questions only GPT-4 is right, on 5 % only Mixtral. Perfect routing would beat
# GPT-4 itself for a fifth of its price.
#
# Learning from half of the questions
# -----------------------------------
#
# Some questions occur twice, so that the split keeps equal prompts together.

from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GroupShuffleSplit
from sklearn.pipeline import make_pipeline

from skroute.metrics import accuracy_cost_curve, compare_with_references, reference_curves
from skroute.routing import BudgetRouter

splitter = GroupShuffleSplit(1, test_size=0.5, random_state=0)
train, test = next(splitter.split(X, groups=X.astype(str)))
forest = ExtraTreesRegressor(40, min_samples_leaf=5, max_features=0.3, random_state=0)
router = make_pipeline(
    TfidfVectorizer(sublinear_tf=True, min_df=3),
    TruncatedSVD(50, random_state=0),
    BudgetRouter(forest, costs=dict(zip(names, costs)), cv=2),
).fit(X[train], Q[train])

budgets = np.linspace(*costs, 15)
curve = accuracy_cost_curve(router, X[test], Q[test], budgets)
references = reference_curves(Q[test], costs, budgets)

# %%
# RouteLLM's measure is the share of the gap between the two models that is recovered, averaged
# over the budget (APGR): 0.5 is what a random mix gets. The interval comes from resampling the
# test questions.

numbers = compare_with_references(curve, Q[test], costs, n_resamples=300, random_state=0)
apgr = numbers["apgr"]
gain = apgr["gain"]
print(f"APGR of the router {apgr['router'].estimate:.3f}")
print(f"above random by    {gain.estimate:.3f} [{gain.low:.3f}, {gain.high:.3f}]")
print(f"APGR of the oracle {apgr['oracle'].estimate:.3f}")

# %%

fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
ax.plot(budgets, references.oracle, ":", color="tab:green", label="oracle")
ax.plot(curve.cost, curve.quality, "o-", markersize=4, label="router")
ax.plot(budgets, references.random, "--", color="tab:orange", label="random mix")
for name, cost, quality, shift in zip(names, costs, Q[test].mean(axis=0), ((8, -4), (-30, 9))):
    ax.plot(cost, quality, "s", color="black")
    ax.annotate(name, (cost, quality), xytext=shift, textcoords="offset points")
ax.set(
    xlabel="Mean price (USD per million tokens)",
    ylabel="Share of test questions right",
    title="Text features recover part of the gap",
)
ax.legend(loc="lower right")
plt.show()

# %%
# What the picture says
# ---------------------
#
# The router is above the random mix wherever both models are in use, and far below the
# oracle: whether a model *knows* a fact is only partly visible in the question's words. Better
# features (an embedding of the prompt, the small model's own uncertainty) are the way up;
# nothing else in the router would change.
