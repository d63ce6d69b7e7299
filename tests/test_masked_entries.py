"""What is under a mask is read nowhere, and what only looks like a mask is no reason to refuse."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from skroute.quality import BaggedNeighborsRegressor, QualityRegressor
from skroute.routing import BudgetRouter, OnlineBudgetRouter

N = 60
RNG = np.random.default_rng(0)
X, Q = RNG.random((N, 3)), RNG.random((N, 2))
COSTS = {"a": 1, "b": 2}


def masked(values):
    """With one entry that is not known, and something under its mask."""
    found = np.ma.masked_array(values.copy(), np.arange(values.size).reshape(values.shape) == 1)
    found.data.flat[1] = 77.0
    return found


def router(costs=COSTS):
    return BudgetRouter(Ridge(), costs=costs, cv=2)


def online():
    return OnlineBudgetRouter(COSTS, budget=1.5).fit(X, Q)


CALLS = {
    "online, X": lambda: online().partial_fit(masked(X), Q),
    "online, first X": lambda: OnlineBudgetRouter(COSTS, budget=1.5).partial_fit(masked(X), Q),
    "online, new choice": lambda: online().add_choice("c", X, masked(Q[:, 0]), cost=3),
    "online, y": lambda: online().partial_fit(X, masked(Q)),
    "online, answers": lambda: online().partial_fit(X, masked(Q[:, 0]), choice=["a"] * N),
    "fit, costs": lambda: router(None).fit(X, Q, costs=masked(np.tile([1.0, 2.0], (N, 1)))),
    "predict": lambda: router().fit(X, Q).predict(masked(X)),
    "score": lambda: router().fit(X, Q).score(X, masked(Q)),
    "new choice": lambda: router().fit(X, Q).add_choice("c", X, masked(Q[:, 0]), cost=3),
    "fit, weights": lambda: router().fit(X, Q, sample_weight=masked(np.ones(N))),
    "quality, X": lambda: QualityRegressor(family=["linear"]).fit(masked(X), Q),
    "quality, y": lambda: QualityRegressor(family=["linear"]).fit(X, masked(Q)),
    "quality, predict": lambda: QualityRegressor(family=["linear"]).fit(X, Q).predict(masked(X)),
    "neighbors": lambda: BaggedNeighborsRegressor().fit(X, masked(Q)),
    "neighbors, predict": lambda: BaggedNeighborsRegressor().fit(X, Q).predict(masked(X)),
}


@pytest.mark.parametrize("name", CALLS)
def test_masked_entries_are_refused(name):
    with pytest.raises(ValueError, match="must have no missing values: 1 are masked"):
        CALLS[name]()


def test_what_only_looks_like_a_mask_is_taken():
    """A column of that name, and pandas' arrays, which have masks of their own."""
    frame = pd.DataFrame(X, columns=["one", "two", "_mask"])
    assert len(router().fit(frame, Q).predict(frame)) == N
    plain = np.ma.masked_array(X)
    np.testing.assert_array_equal(
        router().fit(plain, np.ma.masked_array(Q)).predict(plain), router().fit(X, Q).predict(X)
    )
