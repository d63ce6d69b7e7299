"""Policies that leave Python: what is exported decides as the router, with numpy alone."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge

from skroute.routing import BudgetRouter, PortablePolicy, export_policy
from skroute.routing.from_row import _portable


def log(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    Q = np.column_stack(
        [1 - X[:, 0], 0.5 + 0.3 * X[:, 1], X[:, 2] ** 2, np.full(n, 0.8)]
    )
    return X, Q + 0.1 * rng.normal(size=Q.shape)


def reread(router):
    """Return the policy of a router as a reader of its JSON has it."""
    return PortablePolicy(
        json.loads(json.dumps(export_policy(router), allow_nan=False))
    )


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 10**6),
    st.booleans(),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.0, 0.25]),
    st.floats(0.0, 1.0),
    st.booleans(),
)
def test_it_decides_as_the_router(
    seed, ties, reg_lambda, routing_cost, share, hands_over
):
    X, Q = log(120, seed)
    estimator = (
        RandomForestRegressor(3, max_depth=2, random_state=0) if ties else Ridge()
    )
    router = BudgetRouter(
        estimator,
        costs={"a": 1.0, "b": 2.0, "c": 2.0, "d": 5.0},
        reg_lambda=reg_lambda,
        routing_cost=routing_cost,
        abstain_cost=Q.max() - 1.0 if hands_over else None,
        cv=2,
    ).fit(X, Q)
    policy = reread(router)
    assert policy.choices == router.choices_
    rows, _ = log(500, seed + 1)
    quality = router.predict_quality(rows)
    budgets = router.price_path_.budgets
    middle = router.min_budget_ + share * (budgets[-1] - budgets[0])
    for one in (middle, router.min_budget_, np.inf):
        found, expected = policy.decide(quality, one), router.route(rows, one)
        # The router divides rows that are tied at the price by a draw of each row, the reader
        # by one of its own: what is tied has one value less price times cost.
        net = quality - np.array(policy.record["penalty"])
        price = min(policy.price(one)[0], 1e9)
        each = np.arange(500)
        net = net - price * policy.costs
        gap = np.abs(net[each, found] - net[each, expected])
        assert (gap <= 1e-7 * max(price, 1.0)).all()
        assert ties or (found == expected).all()
    if router.min_budget_ > 0:
        with pytest.raises(ValueError, match="below the smallest feasible"):
            policy.decide(quality, router.min_budget_ * 0.9)


def test_a_budget_just_above_the_smallest_has_the_routers_price():
    """Deciding costs more than abstaining: the room for choices is tiny, not none."""
    for seed in range(5):
        X, Q = log(120, seed)
        router = BudgetRouter(
            Ridge(),
            costs={"a": 1.0, "b": 2.0, "c": 2.0, "d": 5.0},
            routing_cost=0.25,
            abstain_cost=Q.max() - 1.0,
            cv=2,
        ).fit(X, Q)
        policy = reread(router)
        rows, _ = log(500, seed + 1)
        quality = router.predict_quality(rows)
        for excess in (0.0, 1e-16, 1e-15, 1e-13, 1e-9):
            budget = router.min_budget_ + excess
            expected = router.route(rows, budget=budget)
            np.testing.assert_array_equal(policy.decide(quality, budget), expected)


def test_the_budget_holds_where_rows_are_tied():
    rng = np.random.default_rng(0)
    X = np.eye(2)[rng.integers(0, 2, 4000)]
    Q = (rng.random((4000, 2)) < [0.5, 0.8]).astype(float)
    router = BudgetRouter(Ridge(1e-3), costs=[1, 5]).fit(X[:2000], Q[:2000])
    policy = reread(router)
    quality = router.predict_quality(X[2000:])
    route = policy.decide(quality, 3.0, draw=rng.random(2000))
    assert policy.costs[route].mean() == pytest.approx(3.0, abs=0.3)
    # Without draws ties go to the cheaper choice.
    assert policy.costs[policy.decide(quality, 3.0)].mean() <= 3.0


def test_the_reader_is_one_file_of_numpy(tmp_path):
    X, Q = log()
    router = BudgetRouter(Ridge(), costs=[1, 2, 3, 5], budget=2.5, cv=2).fit(X, Q)
    export_policy(router, tmp_path / "policy.json")
    np.save(tmp_path / "quality.npy", router.predict_quality(X))
    (tmp_path / "reader.py").write_text(Path(_portable.__file__).read_text())
    script = (
        "import json, sys, numpy as np; from reader import PortablePolicy as P; "
        "policy = P(json.load(open('policy.json'))); "
        "print(policy.decide(np.load('quality.npy'), 2.5).tolist()); "
        "assert not {'skroute', 'sklearn', 'scipy'} & set(sys.modules)"
    )
    process = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(process.stdout) == router.route(X).tolist()


def test_a_router_without_a_price_list_is_refused():
    X, Q = log(100)
    with pytest.raises(ValueError, match="has no price list"):
        export_policy(BudgetRouter(Ridge(), cv=2).fit(X, Q, costs=np.ones(Q.shape)))
    for bad in ({}, {"format": 2}):
        with pytest.raises(ValueError, match="format must be 1"):
            PortablePolicy(bad)


def test_estimates_are_read_by_name_and_wrong_ones_refused():
    X, Q = log()
    costs = {"a": 1.0, "b": 2.0, "c": 2.0, "d": 5.0}
    router = BudgetRouter(Ridge(), costs=costs, budget=2).fit(X, Q)
    policy = reread(router)
    quality = router.predict_quality(X)
    frame = pd.DataFrame(quality, columns=router.choices_)[["d", "b", "a", "c"]]
    assert policy.decide(frame, 2).tolist() == policy.decide(quality, 2).tolist()
    with pytest.raises(ValueError, match="one column for each of"):
        policy.decide(quality[0], 2)
    with pytest.raises(ValueError, match="quality must be finite"):
        policy.decide(np.full((1, 4), np.nan), 2)
    with pytest.raises(ValueError, match="budget must be a number"):
        policy.decide(quality, np.nan)
