"""
=============================================
Early exit: the same answers from fewer trees
=============================================

A gradient-boosted model of 500 trees classifies rows, most of which are easy. QWYC learns in
which order to ask the trees and when to stop, so that the answer is expected to be that of the
full model on all but 0.5 % of the rows.
"""

# %%
# The ensemble
# ------------
#
# LightGBM on made-up rows; the test rows are looked at below and nowhere else. When to stop is
# learned from every second training row.
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
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=1 / 3, random_state=0)

model = lgb.LGBMClassifier(
    n_estimators=500, max_depth=5, learning_rate=0.05, n_jobs=1, verbose=-1, random_state=0
).fit(X_train, y_train)

# %%
# Quit when you can
# -----------------
#
# The fitted model is frozen. `optimize` wants rows and no labels: all that counts is to agree
# with the model. How hurried the thresholds may be is decided on a quarter of the rows, which
# nothing is learned from. `alpha` is met in expectation, and new rows can differ a little more or
# less often: ``disagreement_bound_`` says how much more at 95 % confidence, and
# ``guarantee=True`` holds that bound to `alpha`.
quick = QWYCEnsemble(FrozenEstimator(model), alpha=0.005, n_jobs=2, random_state=0).optimize(
    X_train[::2]
)

y_pred, members, _ = quick.predict_routed(X_test)
full = model.predict(X_test)
print(f"mean trees evaluated      {members.mean():.1f} of 500")
print(f"differ from the full model {100 * np.mean(y_pred != full):.2f} %")
print(f"as judged on held-out rows {100 * quick.disagreement_:.2f} %")
print(f"accuracy {np.mean(y_pred == y_test):.4f}, of the full model {np.mean(full == y_test):.4f}")

# %%
# When rows leave
# ---------------
#
# Many rows are settled early; a rest takes all 500 trees.
ExitDisplay.from_estimator(quick, X_test)
_ = plt.title("Test rows")

# %%
# Is it the order or the thresholds?
# ----------------------------------
#
# The same thresholds with the order of boosting, and with a random one. Each curve shows all
# thresholds that were considered, learned on the same training rows and drawn on every second
# test row.
contenders = {"boosting order": {"order": "natural"}, "random order": {"order": "random"}}
fitted = {"QWYC": quick}
for name, parameters in contenders.items():
    fitted[name] = QWYCEnsemble(
        FrozenEstimator(model), alpha=0.005, calibration=None, n_jobs=2, **parameters
    ).optimize(X_train[::2])
display = TradeoffDisplay.from_estimators(fitted, X_test[::2])
display.ax_.set(
    xlim=(0, 2), ylim=(0, 500), ylabel="Mean trees evaluated, of 500", title="Test rows"
)
for name in fitted:
    print(f"{name:22} {display.at(name, 0.005):6.1f} trees at 0.5 %")

# %%
# The other way to save is a smaller model: as many trees as QWYC evaluates on average, grown
# with a larger learning rate.
n_trees = round(members.mean())
small = lgb.LGBMClassifier(
    n_estimators=n_trees, max_depth=5, learning_rate=0.3, n_jobs=1, verbose=-1, random_state=0
).fit(X_train, y_train)
differ = 100 * np.mean(small.predict(X_test) != full)
print(f"{n_trees} trees for every row: accuracy {small.score(X_test, y_test):.4f}")
print(f"but other answers than the full model on {differ:.1f} %")

# %%
# Early exit is for those who must keep the answers of a model that is in use, or whose large
# model is the better one.
