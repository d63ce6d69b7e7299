"""
A page with a slider for the budget
===================================

Which budget is right is seldom for those to decide who write Python. ``decision_report`` writes one
file that anybody can open: no server, no network, nothing installed.
"""

# %%
# Three models of the digits
# --------------------------
#
# Naive Bayes, a little boosting and a forest, priced as what they might cost to run.

import base64
import tempfile
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from skroute.metrics import decision_report
from skroute.routing import OccamRouterClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0)
router = OccamRouterClassifier(
    [
        ("bayes", GaussianNB()),
        ("boosting", HistGradientBoostingClassifier(max_iter=10, random_state=0)),
        ("forest", ExtraTreesClassifier(50, random_state=0)),
    ],
    costs={"bayes": 1, "boosting": 5, "forest": 40},
    embedding="bayes",
    quality_estimator=RandomForestRegressor(30, min_samples_leaf=10, random_state=0),
    budget=10,
).fit(X_train, y_train)

# %%
# The page
# --------
#
# Rows that nothing was learned from, a unit for the costs, a path. Every member is asked once about
# each row. The page is a file of its own; here it stands in a frame. Click into the slider and
# use the arrow keys.

folder = tempfile.TemporaryDirectory()
page = decision_report(
    router,
    X_test,
    y_test,
    path=Path(folder.name) / "report.html",
    title="Reading digits: what each budget buys",
    cost_unit="cents",
    quality_label="Share read correctly",
    n_budgets=21,
    n_resamples=100,
)


class Frame:
    """The file in a frame, for this gallery and for notebooks."""

    def __init__(self, path):
        self.text = base64.b64encode(path.read_bytes()).decode("ascii")

    def _repr_html_(self):
        # To the last byte: the page runs no script that is not its own.
        source = f"data:text/html;charset=utf-8;base64,{self.text}"
        style = "width: 100%; height: 50rem; border: 1px solid #999;"
        return f'<iframe title="The report" style="{style}" src="{source}"></iframe>'


Frame(page)

# %%
# What it says
# ------------
#
# How steeply quality rises where the slider leaves the cheapest plan, and where more money buys
# nothing any more; who answers; and what a coin would have had for the same money.

folder.cleanup()
