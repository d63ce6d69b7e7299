"""
=======================
From your gateway's log
=======================

A gateway for language models writes one line per call: the model, the prompt, tokens, dollars,
seconds and, for some answers, a score. Some calls are made again after a failure, some answers come
from a cache and cost nothing, and some have no score. This example goes from such a log to a router,
its savings in dollars, a guarantee and a live service.

The log is made up. Its columns are those of LiteLLM's spend logs. At the end are the lines that read
an export of Langfuse.
"""

# %%
# The log
# -------
#
# For some weeks, a sample of the prompts went to three models, and a judge scored the answers. The
# trace id is the same for all calls of a prompt.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from skroute.certified import CertifiedRouter
from skroute.datasets import tables_from_log
from skroute.ledgers import Window
from skroute.metrics import AccuracyCostDisplay, savings
from skroute.routing import BudgetRouter

# Chance of a right answer of each model, by the kind of the question.
CHANCE = {
    "greeting": [0.97, 0.97, 0.98],
    "translation": [0.88, 0.95, 0.95],
    "code": [0.35, 0.75, 0.9],
    "proof": [0.1, 0.4, 0.8],
}
MODELS = ["nano", "mini", "pro"]
# Dollars per million tokens: of the prompt, of the answer.
PRICES = {"nano": (0.1, 0.4), "mini": (0.4, 1.6), "pro": (2.0, 8.0)}
SECONDS = {"nano": 0.4, "mini": 0.9, "pro": 2.5}


def make_log(n_prompts, seed):
    """Return one line per call, as LiteLLM writes them, with scores of a judge."""
    rng = np.random.default_rng(seed)
    lines = []
    for i in range(n_prompts):
        kind = rng.choice(list(CHANCE), p=[0.35, 0.3, 0.2, 0.15])
        prompt = f"{kind} number {i} for team {rng.integers(9)}"
        for model, chance in zip(MODELS, CHANCE[kind]):
            n_calls = 1 + (rng.random() < 0.05)
            for call in range(n_calls):
                failed = call < n_calls - 1
                cached = not failed and rng.random() < 0.06
                tokens_in = int(rng.integers(50, 400))
                tokens_out = 0 if failed else int(rng.integers(100, 900))
                price_in, price_out = PRICES[model]
                dollars = (tokens_in * price_in + tokens_out * price_out) / 1e6
                start = pd.Timestamp("2026-10-01") + pd.Timedelta(minutes=7 * i)
                seconds = 0.01 if cached else SECONDS[model] * rng.exponential()
                has_score = not failed and rng.random() < 0.92
                score = float(rng.random() < chance) if has_score else np.nan
                lines.append(
                    {
                        "request_id": f"chatcmpl-{len(lines)}",
                        "trace_id": f"trace-{i}",
                        "model": model,
                        "messages": prompt,
                        "prompt_tokens": tokens_in,
                        "completion_tokens": tokens_out,
                        "spend": 0.0 if cached else dollars,
                        "startTime": start,
                        "endTime": start + pd.Timedelta(seconds=seconds),
                        "cache_hit": str(cached),
                        "score": score,
                    }
                )
    return pd.DataFrame(lines)


log = make_log(4000, seed=0)
print(log.head(4).T)

# %%
# X, Q and C
# ----------
#
# Three lines make the tables. Repeated calls are merged: their costs are summed, and the last score
# is kept. The record shows what was merged and dropped, and which models can be compared.

log["seconds"] = (log["endTime"] - log["startTime"]).dt.total_seconds()
tables = tables_from_log(
    log,
    request="trace_id",
    choice="model",
    features="messages",
    quality="score",
    cost="spend",
    cached="cache_hit",
    amounts=["seconds", "prompt_tokens", "completion_tokens"],
)
print(tables.record)

# %%
# Nearly all prompts have scores of several models, so that the log can compare them. If most have one
# answer, as in the log of a service, use ``tables.one_answer()`` and ``fit(..., choice=...)``: see
# :ref:`learning_from_logs`.
#
# The router learns from prompts with a known cost of each model. Unknown scores may stay NaN. Half of
# the prompts are kept for the questions below.

has_costs = tables.C.notna().all(axis=1).to_numpy()
X = tables.X[has_costs]
Q = tables.Q[has_costs].reset_index(drop=True)
C = tables.C[has_costs].reset_index(drop=True)
n_fit = len(X) // 2
prices = C[:n_fit].mean().to_dict()

# %%
# The router
# ----------
#
# The cost of a call is known only after it. So the router decides by the mean cost of each model,
# and keeps the mean of the bills close to the budget.

estimator = make_pipeline(TfidfVectorizer(), Ridge())
router = BudgetRouter(estimator, costs=prices, budget=0.6 * prices["pro"])
router.fit(X[:n_fit], Q[:n_fit], costs=C[:n_fit])

# %%
# The curve, in bills of new prompts. Prompts with all three scores are compared.

complete = Q[n_fit:].notna().all(axis=1).to_numpy()
X_new = X[n_fit:][complete]
Q_new = Q[n_fit:][complete]
C_new = C[n_fit:][complete]
budgets = np.linspace(router.min_budget_, prices["pro"], 12)
AccuracyCostDisplay.from_estimator(
    router, X_new, Q_new, budgets=budgets, costs=C_new, cost_unit="USD"
)
plt.show()

# %%
# Savings
# -------
#
# How many dollars does the router save on new prompts? The largest model, "pro", is the best single
# choice.

saved = savings(router, X_new, Q_new, costs=C_new, cost_unit="USD", random_state=0)
print(saved)

# %%
# The intervals are for the mean difference per prompt. In dollars per million prompts:

per_prompt = saved["best single choice: pro"].cost_saved
print(f"{1e6 * per_prompt.estimate:,.0f} USD saved ", end="")
print(f"[{1e6 * per_prompt.low:,.0f}, {1e6 * per_prompt.high:,.0f}]")
saved.plot()
plt.show()

# %%
# A guarantee
# -----------
#
# The same new prompts are the evidence of a certificate: with a confidence of 95 %, the router loses
# at most 5 points against the largest model.

certified = CertifiedRouter(
    FrozenEstimator(router), max_loss=0.05, reference="pro", random_state=0
)
certified.fit(X_new, Q_new)
print(certified.certificate_)

# %%
# A live service
# --------------
#
# The service has 2 dollars, and the provider allows 100 requests to the largest model per minute.
# The stream stays at the certified budget. A call that fails goes to the next model. A call that times
# out may be billed: its bill comes later.

stream = certified.stream(
    2.0,
    max_costs={name: 3 * price for name, price in prices.items()},
    windows={"pro": [Window("requests", 100)]},
)
rng = np.random.default_rng(1)
late_tickets = []
for i in range(300):
    x = X_new[i : i + 1]
    ticket = stream.route(x, key=f"request {i}")
    outcome = rng.choice(["answer", "failure", "timeout"], p=[0.93, 0.05, 0.02])
    if outcome != "answer":
        if outcome == "failure":
            stream.refund(ticket)
        else:
            stream.await_bill(ticket)
            late_tickets.append(ticket)
        ticket = stream.route(x, key=f"request {i}", exclude=[ticket.name])
    stream.commit(ticket, C_new[ticket.name].iloc[i])
print(stream.status())

# %%
# The bills arrive. Half of the calls that timed out are on them.

for i, ticket in enumerate(late_tickets):
    if i % 2:
        stream.commit(ticket, ticket.cost)
    else:
        stream.refund(ticket)
print(stream.status())

# %%
# An export of Langfuse
# ---------------------
#
# Langfuse exports observations and scores as two tables. Join them on the observation; the rest is
# the same. With polars, the join is ``observations.join(scores, on="observation_id", how="left")``.

observations = pd.DataFrame(
    {
        "id": log["request_id"],
        "trace_id": log["trace_id"],
        "provided_model_name": log["model"],
        "input": log["messages"],
        "latency": log["seconds"],
        "total_cost": log["spend"],
    }
)
scores = pd.DataFrame(
    {"observation_id": log["request_id"], "name": "correct", "value": log["score"]}
).dropna()

calls = observations.merge(
    scores[scores["name"] == "correct"],
    left_on="id",
    right_on="observation_id",
    how="left",
)
from_langfuse = tables_from_log(
    calls,
    request="trace_id",
    choice="provided_model_name",
    features="input",
    quality="value",
    cost="total_cost",
    amounts=["latency"],
)
print(from_langfuse.Q.equals(tables.Q), from_langfuse.C.equals(tables.C))
