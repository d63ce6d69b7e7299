"""
=============================================
Early exit: the same answers from fewer trees
=============================================

Most rows are easy for a gradient-boosted model of 500 trees. QWYC learns an order of the trees,
and when to stop. About 0.5 % of the rows then get another answer than from the full model.
"""

# %%
# The ensemble
# ------------
#
# LightGBM on made-up rows. The trees are fitted on half of the training rows, and the thresholds on
# the other half.
import lightgbm as lgb
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from skroute.early_exit import ExitDisplay, QWYCEnsemble, TradeoffDisplay

X, y = make_classification(
    40_000, 14, n_informative=10, n_clusters_per_class=4, weights=[0.75], random_state=0
)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=1 / 3, random_state=0
)

model = lgb.LGBMClassifier(
    n_estimators=500,
    max_depth=5,
    learning_rate=0.05,
    n_jobs=1,
    verbose=-1,
    random_state=0,
).fit(X_train, y_train)

# %%
# Quit when you can
# -----------------
#
# The fitted model is frozen. `optimize` needs rows, but no labels, because it compares with the
# answers of the model. The thresholds are calibrated on a quarter of the rows. `alpha` is the
# expected share of changed answers; ``disagreement_bound_`` is a bound with 95 % confidence. With
# ``guarantee=True`` the bound is at most `alpha`.
quick = QWYCEnsemble(
    FrozenEstimator(model), alpha=0.005, n_jobs=2, random_state=0
).optimize(X_train[::2])

y_pred, members, _ = quick.predict_routed(X_test)
full = model.predict(X_test)
print(f"mean trees evaluated      {members.mean():.1f} of 500")
print(f"differ from the full model {100 * np.mean(y_pred != full):.2f} %")
print(f"as judged on held-out rows {100 * quick.disagreement_:.2f} %")
print(
    f"accuracy {np.mean(y_pred == y_test):.4f}, of the full model {np.mean(full == y_test):.4f}"
)

# %%
# When rows stop
# --------------
#
# Most rows stop early; a few need all 500 trees.
ExitDisplay.from_estimator(quick, X_test)
_ = plt.title("When test rows leave the ensemble")

# %%
# Order and thresholds
# --------------------
#
# For comparison: the same method with the order of boosting, and with a random order.
contenders = {
    "boosting order": {"order": "natural"},
    "random order": {"order": "random"},
}
fitted = {"QWYC": quick}
for name, parameters in contenders.items():
    fitted[name] = QWYCEnsemble(
        FrozenEstimator(model), alpha=0.005, calibration=None, n_jobs=2, **parameters
    ).optimize(X_train[::2])
display = TradeoffDisplay.from_estimators(fitted, X_test[::2])
display.ax_.set(
    xlim=(0, 2),
    ylim=(0, 500),
    ylabel="Mean trees evaluated, of 500",
    title="Trees that test rows need, by order",
)
for name in fitted:
    print(f"{name:22} {display.at(name, 0.005):6.1f} trees at 0.5 %")

# %%
# Another way to save is a smaller model: as many trees as QWYC evaluates on average, with a larger
# learning rate.
n_trees = round(members.mean())
small = lgb.LGBMClassifier(
    n_estimators=n_trees,
    max_depth=5,
    learning_rate=0.3,
    n_jobs=1,
    verbose=-1,
    random_state=0,
).fit(X_train, y_train)
differ = 100 * np.mean(small.predict(X_test) != full)
print(f"{n_trees} trees for every row: accuracy {small.score(X_test, y_test):.4f}")
print(f"but other answers than the full model on {differ:.1f} %")

# %%
# Use early exit if the answers must stay those of a given model, or if the large model is better
# than a small one.
