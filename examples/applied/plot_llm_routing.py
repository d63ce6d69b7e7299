"""
========================================
Route prompts among nine language models
========================================

You pay for each call of a language model. You have a log: the scores of nine models on 5,608
prompts from 14 public benchmarks (data of LLMRouter), and their prices. From this log,
:class:`~skroute.routing.BudgetRouter` learns which model to call for which prompt.
"""

# %%
# The log
# -------
#
# One row per prompt, one column per model: a score between 0 and 1. Prices are US dollars per
# million tokens. The best model costs 0.9. Another model, at 0.1, is not much worse.

import matplotlib.pyplot as plt
import numpy as np

from skroute.datasets import fetch_llmrouter

log = fetch_llmrouter()
rows = ~log.is_test
X, Q = log.data[rows], log.quality[rows]
for name, price, quality in zip(log.model_names, log.costs, Q.mean(axis=0)):
    print(f"{name:34s} {price:4.1f}  {quality:.3f}")

# %%
# With the best model for each prompt, the score would be 0.80; the best single model has 0.62. How
# much of this can a router gain from the text of the prompt?
#
# A router from outcomes
# ----------------------
#
# The router takes features and the matrix of scores. TF-IDF with 50 components turns the text into
# features, and a forest estimates the score of each model.

from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skroute.routing import BudgetRouter

X_train, X_test, Q_train, Q_test = train_test_split(X, Q, test_size=0.4, random_state=0)
forest = ExtraTreesRegressor(40, min_samples_leaf=5, max_features=0.3, random_state=0)
router = make_pipeline(
    TfidfVectorizer(sublinear_tf=True, min_df=3),
    TruncatedSVD(50, random_state=0),
    BudgetRouter(
        forest, costs=dict(zip(log.model_names, log.costs)), budget=0.45, cv=3
    ),
).fit(X_train, Q_train)

spent = router[-1].predict_cost(router[:-1].transform(X_test)).mean()
print(
    f"at half of the best model's price: {router.score(X_test, Q_test):.3f}, {spent:.3f} spent"
)
print(
    f"the best model for every prompt:   {Q_test.mean(axis=0).max():.3f}, 0.900 spent"
)

# %%
# Every budget
# ------------
#
# How many dollars is that, and how certain is it? With a log of bills, :func:`skroute.metrics.savings`
# answers: see :ref:`savings`.
#
# You need only one fitted router for all budgets. The references are the best *single* model within
# the budget, and the best *random mix* of two models with the same mean cost. Both are chosen on
# the test prompts; the router is not.

from skroute.metrics import AccuracyCostDisplay, RouteShareDisplay, reference_curves

budgets = np.round(np.linspace(0.1, 0.9, 17), 3)
references = reference_curves(Q_test, log.costs, budgets)
fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
AccuracyCostDisplay.from_estimator(
    router, X_test, Q_test, budgets=budgets, name="router", ax=ax
)
AccuracyCostDisplay(cost=budgets, quality=references.random, name="random mix").plot(
    ax=ax, curve_kwargs={"linestyle": "--", "marker": "", "color": "0.5"}
)
AccuracyCostDisplay(
    cost=budgets, quality=references.single, name="best single model"
).plot(ax=ax, curve_kwargs={"drawstyle": "steps-post", "marker": ""})
ax.set(
    xlabel="Mean price (USD per million tokens)",
    ylabel="Mean score on test prompts",
    title="Score over price, test prompts",
)
plt.show()

# %%
# Above a budget of 0.8, the estimates of the router show no further gain. Which models does it
# call?

fig, ax = plt.subplots(figsize=(8.5, 4.2), layout="constrained")
display = RouteShareDisplay.from_estimator(router, X_test, budgets=budgets, ax=ax)
ax.set(
    title="Share of prompts for each model",
    xlabel="Budget (USD per million tokens)",
    ylabel="Share of prompts",
)
plt.show()

# %%
# Some models are never called, because another one is as cheap and better.
#
# A live service
# --------------
#
# The budget limits the mean cost; it is not a hard cap. For a total, use
# :meth:`~skroute.routing.BudgetRouter.stream`: `route` reserves money, `commit` records the real
# cost of the call, and `refund` returns the money of a failed call. Here every tenth call fails,
# and calls cost up to twice the expected amount.

vectorise, policy = router[:-1], router[-1]
# To save time, estimate the quality of all prompts in one batch.
quality = policy.predict_quality(vectorise.transform(X_test))
prices = log.costs
stream = policy.stream(
    budget_total=0.45 * len(X_test), n_expected=len(X_test), max_costs=2 * prices
)
rng = np.random.default_rng(0)
scores, spent = [], []
for estimate, truth in zip(quality, Q_test):
    ticket = stream.reserve(estimate)
    if rng.random() < 0.1:
        stream.refund(ticket)
    else:
        stream.commit(ticket, cost=rng.uniform(0, 2) * ticket.cost)
        scores.append(truth[ticket.choice])
    spent.append(stream.status().spent)

status = stream.status()
print(
    f"{status.n_committed} answered, {status.n_refunded} failed, {status.n_rejected} rejected"
)
print(
    f"{status.spent:.1f} spent of {status.budget_total:.1f}; mean score {np.mean(scores):.3f}"
)

# %%
# The stream adapts to the money that is left. So the money lasts until the last request, and nearly
# all of it is used.

fig, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
ax.plot(spent, label="spent")
ax.plot(
    [0, len(spent)], [0, status.budget_total], "--", color="tab:gray", label="even pace"
)
ax.axhline(status.budget_total, color="tab:red", linewidth=1, label="cap")
ax.set(
    xlabel="Requests",
    ylabel="Spent (USD per million tokens)",
    title="A stream and its total",
)
ax.legend()
plt.show()

# %%
# What not to conclude
# --------------------
#
# Some models score 0 on whole benchmarks because of the form of their answers, so the router partly
# learns which model is *parsed* well. Also, these are prompts of known benchmarks. For your
# own requests, fit a router on a log of these requests.
