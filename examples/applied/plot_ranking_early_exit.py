"""
==========================================================
Ranking: documents that cannot enter the first ten go home
==========================================================

A search shows ten documents of a hundred. The ranker is a sum of 300 trees, and most documents are
out of the race long before the last one: they leave, and what stays gets its full score.
"""

# %%
# Queries and a ranker
# --------------------
#
# Made-up queries of 40 to 160 documents. Columns of a query are alike, as term statistics are.
import lightgbm as lgb
import matplotlib.pyplot as plt
import numpy as np
from sklearn.frozen import FrozenEstimator

from skroute.early_exit import QWYCRanker


def queries(n, seed):
    rng = np.random.default_rng(seed)
    query = np.repeat(np.arange(n), rng.integers(40, 160, n))
    X = rng.normal(size=(len(query), 12)) + rng.normal(size=(n, 12))[query]
    gain = X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * X[:, 2] * (X[:, 3] > 0)
    gain += 0.8 * rng.normal(size=len(gain))
    return X, np.searchsorted([1.0, 2.0, 3.0], gain), query


X, relevance, query = queries(150, 0)
ranker = lgb.LGBMRanker(n_estimators=300, num_leaves=15, n_jobs=1, verbose=-1, random_state=0)
ranker.fit(X, relevance, group=np.bincount(query))

# %%
# Gaps
# ----
#
# `optimize` needs queries and no relevance. At each checkpoint it learns how far behind the tenth
# document is too far. A quarter of the queries is held out and says how small the gaps may be: the
# first ten are expected to change in at most 1 % of the queries.
X, _, query = queries(600, 1)
quick = QWYCRanker(FrozenEstimator(ranker), k=10, alpha=0.01, random_state=0)
quick.optimize(X, groups=query)

X, relevance, query = queries(300, 2)
score, members, _ = quick.predict_routed(X, groups=query)
full = ranker.predict(X)


def first_ten(score):
    order = np.lexsort((-score, query))
    return [order[query[order] == q][:10].tolist() for q in range(300)]


differ = np.mean([a != b for a, b in zip(first_ten(score), first_ten(full))])
print(f"mean trees evaluated    {members.mean():.0f} of 300")
print(
    f"queries whose first ten differ {100 * differ:.1f} %, bound "
    f"{100 * quick.disagreement_bound_:.1f} %"
)
print(f"score {quick.score(X, relevance, groups=query):.4f}")

# %%
# Who is still there
# ------------------
#
# The dashed line is the least that there can be: ten documents of each query.
still = [np.mean(members >= end) for end in quick.checkpoints_]
fig, ax = plt.subplots()
ax.step(quick.checkpoints_, still, where="pre")
ax.axhline(10 * 300 / len(X), color="gray", linestyle="--")
ax.set(xscale="log", xlabel="trees", ylabel="share of documents still there", ylim=(0, 1.02))
ax.set_title("Documents that can still enter the first ten")
plt.show()
