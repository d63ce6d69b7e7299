"""Rows that are drawn at random: alike in every container, and with few distinct rows."""

import copy
import tracemalloc
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.tree import DecisionTreeRegressor

from skroute.routing import (
    DummyRouterClassifier,
    FrugalMLClassifier,
    SequentialRouterClassifier,
)

COSTS = {"cheap": 1.0, "expensive": 5.0}


# They answer all rows alike, in whatever container they come.
MEMBERS = [
    (name, DummyClassifier(strategy="constant", constant=label))
    for label, name in enumerate(COSTS)
]
TREE = DecisionTreeRegressor(max_depth=3, random_state=0)
DRAWING = {
    "random": DummyRouterClassifier(MEMBERS, strategy="random", costs=COSTS),
    "FrugalML": FrugalMLClassifier(MEMBERS, costs=COSTS, base="cheap"),
    "Sequential": SequentialRouterClassifier(
        MEMBERS, costs=COSTS, base="cheap", n_prices=3, quality_estimator=TREE, cv=2
    ),
    "FrugalML, any base": FrugalMLClassifier(MEMBERS, costs=COSTS),
    "Sequential, any base": SequentialRouterClassifier(
        MEMBERS, costs=COSTS, n_prices=3, quality_estimator=TREE, cv=2
    ),
}


def few_rows(n_distinct, n=4000):
    rng = np.random.default_rng(n_distinct)
    X = rng.normal(size=(n_distinct, 3))[rng.integers(0, n_distinct, n)]
    return X, (rng.random(n) < 0.7).astype(int)


@cache
def fitted(name):
    return clone(DRAWING[name]).fit(*few_rows(3, 200))


@pytest.mark.parametrize("n_distinct", [1, 2, 3])
@pytest.mark.parametrize("name", DRAWING)
def test_the_mix_holds_the_budget_however_few_rows_differ(name, n_distinct):
    X, y = few_rows(n_distinct)
    router = DRAWING[name].fit(X, y)
    least, most = (
        router.min_budget_,
        6.0 if "," not in name and name != "random" else 5.0,
    )
    for share in (0.2, 0.5, 0.7):
        # Half the way where chance likes the expensive member as well.
        budget = least + share * (most - least) * (0.5 if name == "random" else 1.0)
        cost = router.predict_cost(X, budget=budget).mean()
        assert cost == pytest.approx(budget, rel=0.06)
    np.testing.assert_array_equal(
        router.route(X, budget=3.0), router.route(X, budget=3.0)
    )


def explicit_zeros(X):
    n, m = X.shape
    order = np.tile(np.arange(m)[::-1], n)
    return sparse.csr_array(
        (X[:, ::-1].ravel(), order, np.arange(0, n * m + 1, m)), X.shape
    )


CONTAINERS = {
    "integers": lambda X: X.astype(int),
    "float32": lambda X: X.astype(np.float32),
    "fortran": np.asfortranarray,
    "object frame": lambda X: pd.DataFrame(X).astype(object),
    "Int64": lambda X: pd.DataFrame(X).astype("Int64"),
    "Float64": lambda X: pd.DataFrame(X).astype("Float64"),
    "mixed frame": lambda X: pd.DataFrame(X).astype({0: "Int64", 1: float, 2: object}),
    "pyarrow": lambda X: pd.DataFrame(X).astype(
        pytest.importorskip("pyarrow") and "int64[pyarrow]"
    ),
    "polars": lambda X: pytest.importorskip("polars").DataFrame(X),
    "csr": sparse.csr_array,
    "csr_matrix": sparse.csr_matrix,
    "csc": sparse.csc_array,
    "csr with zeros out of order": explicit_zeros,
    "tensor": lambda X: pytest.importorskip("torch").tensor(X),
    "bfloat16": lambda X: pytest.importorskip("torch").tensor(X).bfloat16(),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", ["random", "FrugalML", "Sequential"])
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_same_numbers_are_routed_alike_in_every_container(name, container, seed):
    router = fitted(name)
    # Few values: rows that repeat, and rows of zeros.
    new = np.random.default_rng(seed).integers(-1, 2, size=(50, 3)).astype(float)
    route = router.route(new, budget=2.6)
    assert len(set(route)) > 1
    np.testing.assert_array_equal(
        router.route(CONTAINERS[container](new), budget=2.6), route
    )


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), text=st.booleans())
def test_rows_that_are_alike_are_interchangeable(seed, text):
    """A row's draw depends on how often it came before, not on where the others are."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 4, size=(60, 2)).astype(float)
    if text:
        rows = np.char.add("prompt ", rows[:, 0].astype(str)).astype(object)
    router = copy.copy(fitted("random"))
    del router.n_features_in_
    whole = router.route(rows, budget=2.6)
    # Rows of one kind in a batch of their own are routed as in the whole.
    kinds = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    for kind in np.unique(kinds):
        mine = kinds == kind
        np.testing.assert_array_equal(router.route(rows[mine], budget=2.6), whole[mine])
    order = rng.permutation(len(rows))
    moved = router.route(rows[order], budget=2.6)
    for kind in np.unique(kinds):
        np.testing.assert_array_equal(moved[kinds[order] == kind], whole[kinds == kind])


def test_random_state_gives_other_draws():
    X, y = np.random.default_rng(0).normal(size=(300, 2)), np.arange(300) % 2
    router = clone(DRAWING["random"]).set_params(budget=3.0)
    routes = [
        router.set_params(random_state=state).fit(X, y).route(X) for state in (0, 0, 1)
    ]
    np.testing.assert_array_equal(routes[0], routes[1])
    assert 60 < (routes[0] != routes[2]).sum() < 240


def test_large_rows_are_not_copied():
    X, y = np.ones((2000, 1000), dtype=np.float32), np.arange(2000) % 2
    router = DRAWING["random"].fit(X, y)
    tracemalloc.start()
    router.route(X, budget=3.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes / 2


def test_a_data_set_is_not_loaded_to_be_drawn():
    torch = pytest.importorskip("torch")
    pytest.importorskip("skorch")
    loaded = []

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, i):
            loaded.append(i)
            return torch.ones(3), 0

    router = copy.copy(fitted("random"))
    del router.n_features_in_
    route = router.route(Rows(), budget=3.0)
    assert not loaded and len(set(route)) == 2
