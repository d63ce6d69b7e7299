"""
======================================
Learning while serving: a replayed log
======================================

A model gets worse, and nobody notices. What happens to the answers and to the bill? We replay a
log of three language models (data of ParetoBandit) through a router that was fitted once, and
through one that learns from the outcome of each request.

If the folder ``SKROUTE_DATA`` does not have the data, the example makes up a log of the same shape.
"""

# %%
# The log
# -------

import csv
import gzip
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from skroute.metrics import replay
from skroute.routing import BudgetRouter, OnlineBudgetRouter

names = ["llama-3.1-8b-instruct", "mistral-large-2512", "gemini-2.5-pro"]


def read(path):
    with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    tables = [
        [[float(r[f"{kind}_{n}"]) for n in names] for r in rows] for kind in KINDS
    ]
    return [row["prompt"] for row in rows], *map(np.array, tables)


KINDS = ("reward", "cost")
folder = Path(os.environ.get("SKROUTE_DATA", "")) / "paretobandit"
if (folder / "val.csv.gz").is_file():
    texts, Q, C = read(folder / "val.csv.gz")
    new_texts, Q_new, C_new = read(folder / "test.csv.gz")
    reader = make_pipeline(
        TfidfVectorizer(sublinear_tf=True, min_df=3), TruncatedSVD(20, random_state=0)
    )
    X, X_new = reader.fit_transform(texts), reader.transform(new_texts)
else:
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(1700, 5)), rng.normal(size=(1800, 5))
    Q, Q_new = (
        np.clip([0.79, 0.92, 0.93] + 0.1 * rows[:, :3], 0, 1) for rows in (X, X_new)
    )
    C, C_new = (np.exp(0.3 * rows[:, :3]) * [3e-5, 5e-4, 1.5e-2] for rows in (X, X_new))

# %%
# Two routers
# -----------
#
# Both start from the same table, with the same budget per request.

ceiling = 0.00187
prices = dict(zip(names, C.mean(axis=0)))
fitted = BudgetRouter(Ridge(10.0), cost_estimator=Ridge(10.0), budget=ceiling)
fitted.fit(X, pd.DataFrame(Q, columns=names), costs=C)
online = OnlineBudgetRouter(prices, budget=ceiling).fit(X, Q, C)

# %%
# Replay
# ------
#
# For 600 requests, the quality of the answers of mistral-large falls by a fifth. The price stays
# the same.

changed = Q_new.copy()
changed[600:1200, 1] *= 0.8
learns = replay(online, X_new, changed, C_new, choices=names)
happened = replay(fitted, X_new, changed, C_new, choices=names)

fig, axes = plt.subplots(3, sharex=True, figsize=(7, 7), layout="constrained")
window = np.ones(100) / 100
for name, run in (("learns while serving", learns), ("fitted once", happened)):
    for ax, values in zip(axes, (run.cost, run.quality, run.route == 1)):
        ax.plot(np.convolve(values, window, mode="valid"), label=name)
axes[0].axhline(ceiling, color="0.3", linestyle="--")
axes[0].set(ylabel="spend (dollars)", title="A model gets worse for 600 requests")
axes[1].set(ylabel="quality")
axes[2].set(ylabel=f"share of {names[1]}", xlabel="request (means of 100)")
axes[0].legend()
plt.show()

# %%
# The lowest panel shows how often this model is called. The router that learns avoids the model
# after some tens of outcomes, and uses it again after its quality has recovered.

for name, run in (("learns", learns), ("fitted once", happened)):
    parts = [run.quality[:600], run.quality[600:1200], run.quality[1200:]]
    print(f"{name:>12}:", *(f"{part.mean():.3f}" for part in parts))
    print(f"{'':>12}  spend over ceiling {run.cost.mean() / ceiling:.3f}")
