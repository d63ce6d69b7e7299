"""A cascade over a table with a known truth, and models that note their calls."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator

from skroute.base import CostAwareMixin, Plan, check_affordable
from skroute.certified import CertifiedRouter

# Warnings about few evidence rows, which most tests are not about.
QUIET = [
    pytest.mark.filterwarnings("ignore:What is certified saves nothing"),
    pytest.mark.filterwarnings("ignore:On validation rows"),
]


class Table(CostAwareMixin, BaseEstimator):
    """A cascade over a table.

    Each row is (score, cheap right, expensive right, extra cost). The cheap model
    answers the rows of the largest scores, the expensive one the others. The budget
    sets their share. The answer is 1 if the model is right, so that y is 1.
    """

    def __init__(self, budget=None):
        self.budget = budget

    def _fit(self, X, y, *, task):
        self.choices_ = ["cheap", "expensive"]

    def _smallest_budget(self):
        return 1.0

    def _plan(self, X, call):
        check_affordable(call.budget, 1.0)
        route = (np.asarray(X)[:, 0] < min((call.budget - 1) / 9, 1.0)).astype(np.int64)
        return Plan(route, 1 + 9.0 * route * np.asarray(X)[:, 3])

    def _answer(self, plan, response):
        rows = np.asarray(plan.X)
        # Column 1 or 2, by the choice.
        return rows[np.arange(len(rows)), 1 + plan.route].astype(int)


class Expensive:
    """The expensive model of the table, with a name of its own."""

    def predict(self, X):
        return np.asarray(X)[:, 2].astype(int)


def table(n=4000, seed=0):
    """Return rows of the table: the cheap model is better on rows of large scores."""
    rng = np.random.default_rng(seed)
    score = rng.random(n)
    expensive = rng.random(n) < 0.9
    cheap = np.where(rng.random(n) < 0.9 * score, expensive, rng.random(n) < 0.5)
    return np.column_stack([score, cheap, expensive, rng.choice([0.5, 1.5], n)])


FROZEN = FrozenEstimator(Table().fit([[0, 0, 0, 0]]))


def certified(X, **options):
    """Return a router of the table that is certified on `X`."""
    options = {"reference": Expensive(), "random_state": 0, "n_points": 12, **options}
    return CertifiedRouter(FROZEN, **options).fit(X, np.ones(len(X), dtype=int))


# First feature of each row that a model was called on, by the name of the model.
ASKED = {}


def note(name, X):
    """Note the rows of a call of a model."""
    for row in np.asarray(X)[:, 0].tolist():
        ASKED.setdefault(name, []).append(row)


class Counted(ClassifierMixin, BaseEstimator):
    """A model that notes all rows of its calls after `fit`."""

    def __init__(self, model, name):
        self.model = model
        self.name = name

    def fit(self, X, y):
        self.model_ = clone(self.model).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X):
        note(self.name, X)
        return self.model_.predict(X)

    def predict_proba(self, X):
        note(self.name, X)
        return self.model_.predict_proba(X)
