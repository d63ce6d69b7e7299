"""What is under a mask is read nowhere, and what only looks like a mask is no reason to refuse."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge

from skroute.quality import BaggedNeighborsRegressor, QualityRegressor
from skroute.routing import BudgetRouter, OnlineBudgetRouter

N = 60
RNG = np.random.default_rng(0)
X, Q = RNG.random((N, 3)), RNG.random((N, 2))


def masked(values):
    """With one entry that is not known, and something under its mask."""
    found = np.ma.masked_array(
        values.copy(), np.arange(values.size).reshape(values.shape) == 1
    )
    found.data.flat[1] = 77.0
    return found


ROUTER = BudgetRouter(Ridge(), costs={"a": 1, "b": 2}, cv=2).fit(X, Q)
ONLINE = OnlineBudgetRouter({"a": 1, "b": 2}, budget=1.5).fit(X, Q)
QUALITY = QualityRegressor(family=["linear"]).fit(X, Q)
NEIGHBORS = BaggedNeighborsRegressor().fit(X, Q)
# The first two arguments, and others, of methods; `fit` of each is checked with all estimators.
CALLS = {
    "online, X": lambda: clone(ONLINE).partial_fit(masked(X), Q),
    "online, y": lambda: clone(ONLINE).partial_fit(X, masked(Q)),
    "online, answers": lambda: ONLINE.partial_fit(X, masked(Q[:, 0]), choice=["a"] * N),
    "online, new choice": lambda: ONLINE.add_choice("c", X, masked(Q[:, 0]), cost=3),
    "costs": lambda: BudgetRouter(Ridge()).fit(
        X, Q, costs=masked(np.tile([1.0, 2.0], (N, 1)))
    ),
    "score": lambda: ROUTER.score(X, masked(Q)),
    "new choice": lambda: ROUTER.add_choice("c", X, masked(Q[:, 0]), cost=3),
    "weights": lambda: clone(ROUTER).fit(X, Q, sample_weight=masked(np.ones(N))),
    "quality, X": lambda: clone(QUALITY).fit(masked(X), Q),
    "quality, y": lambda: clone(QUALITY).fit(X, masked(Q)),
    "quality, predict": lambda: QUALITY.predict(masked(X)),
    "neighbors": lambda: clone(NEIGHBORS).fit(X, masked(Q)),
    "neighbors, predict": lambda: NEIGHBORS.predict(masked(X)),
}


@pytest.mark.parametrize("name", CALLS)
def test_masked_entries_are_refused(name):
    with pytest.raises(ValueError, match="must have no missing values: 1 are masked"):
        CALLS[name]()


def test_what_only_looks_like_a_mask_is_taken():
    """A column of that name, as pandas' arrays have."""
    frame = pd.DataFrame(X, columns=["one", "two", "_mask"])
    np.testing.assert_array_equal(
        clone(ROUTER).fit(frame, Q).predict(frame), ROUTER.predict(X)
    )
