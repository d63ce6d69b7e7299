"""
An HTML report with a slider for the budget
===========================================

Often another person decides about the budget. :func:`~skroute.metrics.decision_report` writes one
file that anybody can open in a browser, without a server or a network.
"""

# %%
# Three models of the digits
# --------------------------

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
# The report
# ----------
#
# Use rows that the router was not fitted on. Each model is called once for each row. This page
# shows the file in a frame. Move the slider.

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
        # Base64 keeps every byte: the report runs only scripts that it contains unchanged.
        source = f"data:text/html;charset=utf-8;base64,{self.text}"
        style = "width: 100%; height: 50rem; border: 1px solid #999;"
        return f'<iframe title="The report" style="{style}" src="{source}"></iframe>'


Frame(page)

# %%
# How to read it
# --------------
#
# The curve shows the quality at each budget, and from which budget on more money no longer helps.
# The numbers at the end compare the router with a random mix.

folder.cleanup()
