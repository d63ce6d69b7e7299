"""
=================================
Buy medical tests from a database
=================================

Twelve columns belong to five panels with prices. Past patients are a data frame. Each panel of a
new patient is in a table of a database. The table is queried only if the panel is bought for the
patient. A pipeline encodes and imputes. A search tunes the pipeline within a budget.

The example needs duckdb and pandas.
"""

# %%
# The data
# --------
# The data are made up. The scan is the most useful panel, and the most expensive one.

import duckdb
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

PANELS = {
    "form": ["age", "sex", "ward"],
    "vitals": ["bp", "pulse"],
    "blood": ["hb", "crp", "abo"],
    "urine": ["ph", "color"],
    "scan": ["size", "finding"],
}
PRICES = {"form": 0.5, "vitals": 1.0, "blood": 4.0, "urine": 2.0, "scan": 10.0}
COLUMNS = [column for columns in PANELS.values() for column in columns]


def patients(n, seed):
    rng = np.random.default_rng(seed)
    ill = rng.random(n) < 0.5
    burns = rng.random(n) < 0.01
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 90, n).astype(float),
            "sex": rng.choice(["f", "m"], n),
            "ward": np.where(burns, "burns", rng.choice(["er", "onco", "general"], n)),
            "bp": rng.normal(120, 15, n) + 10 * ill,
            "pulse": rng.normal(70, 10, n) + 8 * ill,
            "hb": rng.normal(13, 2, n) - 2 * ill,
            "crp": rng.exponential(5, n) + 8 * ill,
            "abo": rng.choice(["0", "A", "B", "AB"], n, p=[0.45, 0.4, 0.13, 0.02]),
            "ph": rng.normal(6, 1, n) - 0.5 * ill,
            "color": rng.choice(["pale", "dark"], n),
            "size": rng.normal(0, 1, n) + 2 * ill,
            "finding": np.where(ill ^ (rng.random(n) < 0.15), "shadow", "clear"),
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.1), np.where(ill, "ill", "well")


past, y_past = patients(700, seed=0)
new, y_new = patients(500, seed=1)

# %%
# A pipeline, tuned within a budget
# ---------------------------------
# Groups and prices are those of the raw columns. The cheap model and the gate are boosted trees;
# the full model is a forest. The search takes the best candidate with a mean cost of at most 10.5
# (all panels cost 17.5).

from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skroute.features import CostAwarePipeline, LazyFeatures
from skroute.gating import AdaptGatingClassifier, BoostedGate
from skroute.metrics import BudgetSearchCV

texts = ["sex", "ward", "abo", "color", "finding"]
numbers = [column for column in COLUMNS if column not in texts]
encode = make_column_transformer(
    (OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=8), texts),
    (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), numbers),
)
gate = AdaptGatingClassifier(
    RandomForestClassifier(50, oob_score=True, random_state=0),
    gate=BoostedGate(n_estimators=30, max_leaf_nodes=8),
    feature_groups=PANELS,
    feature_costs=PRICES,
    p_full=0.4,
)
search = BudgetSearchCV(
    CostAwarePipeline([("encode", encode), ("buy", gate)]),
    {"buy__gamma": [0.01, 0.02, 0.04]},
    budget=10.5,
    cv=2,
).fit(past, y_past)
print(search.best_params_)
print(
    f"cross-validated: accuracy {search.best_score_:.3f}, cost {search.best_cost_:.2f}"
)

# %%
# New patients are keys in a database
# -----------------------------------
# There is one table per panel. The source also counts the cells that each query returns.


keys = [f"P{number}" for number in range(len(new))]
database, cells = duckdb.connect(), {}
for panel, columns in PANELS.items():
    panel_rows = new[columns].assign(patient=keys)
    database.execute(f"CREATE TABLE {panel} AS SELECT * FROM panel_rows")


def panels_of(columns, rows):
    """One query for each panel that some of the columns are of."""
    found = pd.DataFrame(index=[keys[row] for row in rows])
    for panel in [name for name, own in PANELS.items() if set(own) & set(columns)]:
        names = ", ".join(["patient", *PANELS[panel]])
        holders = ", ".join("?" * len(rows))
        query = f"SELECT {names} FROM {panel} WHERE patient IN ({holders})"
        part = database.execute(query, found.index.tolist()).df().set_index("patient")
        for key in part.index:
            cells[key] = cells.get(key, 0) + part.shape[1]
        found = found.join(part)
    return found[columns]


lazy = LazyFeatures(panels_of, n_samples=len(new))
routed = search.predict_routed(lazy)
print(
    f"accuracy {(routed.y_pred == y_new).mean():.3f}, mean cost {routed.cost.mean():.2f}"
)

# %%
# What was bought
# ---------------
# The log shows which panels were fetched, and for how many patients. The counted cells agree with
# the costs.

fetched = np.zeros((len(new), len(PANELS)), dtype=bool)
for columns, rows in lazy.acquisition_log_:
    print(f"{len(rows):4d} patients: {', '.join(columns)}")
    for at, panel in enumerate(PANELS.values()):
        fetched[rows, at] |= panel[0] in columns

sizes = np.array([len(columns) for columns in PANELS.values()])
counted = np.array([cells.get(key, 0) for key in keys])
print("cells as on the receipt:", np.array_equal(counted, fetched @ sizes))
print(
    "cost of these panels:", np.allclose(fetched @ list(PRICES.values()), routed.cost)
)

# %%
# Other budgets, one fit
# ----------------------
# The smallest budget allows only the cheap model. The largest one is what the gate would spend
# without a limit.

low, high = search.min_budget_, routed.cost.mean()
budgets = np.linspace(low, high, 6)
found = [search.predict_routed(new, budget=budget) for budget in budgets]
cost = [f.cost.mean() for f in found]
accuracy = [(f.y_pred == y_new).mean() for f in found]
forest = CostAwarePipeline([("encode", encode), ("forest", gate.estimator)]).fit(
    past, y_past
)

figure, axis = plt.subplots()
axis.plot(cost, accuracy, "o-", label="tuned gate")
axis.plot(17.5, forest.score(new, y_new), "s", label="forest, all panels")
axis.set(
    xlabel="mean price of the panels of a patient (all of them: 17.5)",
    ylabel="accuracy",
    title="Accuracy over the price of panels",
)
axis.legend()
plt.show()
