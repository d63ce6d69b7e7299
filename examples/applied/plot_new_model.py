"""
==============================
A new model, with few scores
==============================

Nine language models were scored on some 5,600 prompts (LLMRouter). Suppose that one of them is
new: eight are in the router, and of the ninth there are 10 to 300 scored prompts. When is it worth
taking in, and what may it cost to be wrong?
"""

# %%
# The log, and a router of eight models
# -------------------------------------

import copy

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from skroute.datasets import fetch_llmrouter
from skroute.routing import BudgetRouter

log = fetch_llmrouter()
rows = np.random.default_rng(0).permutation(np.flatnonzero(~log.is_test))
train, test = rows[:2500], rows[2500:]
read = make_pipeline(TfidfVectorizer(min_df=3), TruncatedSVD(30, random_state=0))
prompts = np.asarray(log.data, dtype=object)
Z = dict(
    zip(("train", "test"), (read.fit_transform(prompts[train]), read.transform(prompts[test])))
)
prices = dict(zip(log.model_names, log.costs))


def fitted(names, budget=0.45):
    columns = [list(log.model_names).index(name) for name in names]
    router = BudgetRouter(Ridge(), costs={name: prices[name] for name in names}, budget=budget)
    return router.fit(Z["train"], log.quality[np.ix_(train, columns)])


# %%
# Each model in turn is the new one
# ---------------------------------
#
# ``add_choice`` fits nothing again: the new model's quality is estimated from what the router says
# of the others, and the price of the budget is solved for anew. It is chosen by a careful estimate,
# 1.25 standard errors below what is expected. Beside it, the mean of its scores for every prompt.

scored, draws = (10, 30, 100, 300), 3
gain = {name: [] for name in prices}
naive = {name: [] for name in prices}
for new in prices:
    others = [name for name in prices if name != new]
    router, at = fitted(others), list(prices).index(new)
    table = log.quality[test][:, [list(prices).index(name) for name in [*others, new]]]
    known, before = router.predict_quality(Z["test"]), router.score(Z["test"], table[:, :8])
    for n in scored:
        found, means = [], []
        for draw in range(draws):
            few = np.random.default_rng([n, draw]).permutation(len(train))[:n]
            q = log.quality[train[few], at]
            wider = copy.copy(router).add_choice(new, Z["train"][few], q, cost=prices[new])
            found.append(wider.score(Z["test"], table) - before)
            net = np.column_stack([known, np.full(len(test), q.mean())])
            route = (net - wider.price_ * wider.costs_).argmax(axis=1)
            means.append(table[np.arange(len(test)), route].mean() - before)
        gain[new].append(np.mean(found))
        naive[new].append(np.mean(means))

# %%
# What it was worth
# -----------------

fig, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
for ax, values, title in zip(axes, (gain, naive), ("add_choice", "The mean of its scores")):
    for found in values.values():
        ax.plot(scored, 100 * np.array(found), color="tab:blue", alpha=0.6)
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set(xscale="log", xticks=scored, xticklabels=scored, xlabel="scored prompts", title=title)
axes[0].set_ylabel("points gained over leaving it out")
plt.show()

# %%
# With ten scores little is risked and little is gained; with more, the models that are worth it are
# found. A mean for every prompt takes too many of them in: it has no doubt, and tells no prompts
# apart. (The right panel keeps the price of the left one, so that its spend is not exactly equal;
# ``benchmarks/bench_lifecycle.py`` compares at equal spend.)
