"""Estimators that buy, in random situations: kinds of rows, prices, providers, faults."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from skroute.features import LazyFeatures
from skroute.gating import SequentialFeatureClassifier
from skroute.quality import FrameEncoder
from tests.gating.kinds import adapt_of

NAMES = ["a", "b", "cat", "d", "rare"]
GROUPS = {"panel": ["b", "cat"], "a": ["a"], "pair": ["d", "rare"]}


def frame_of(library, n, seed):
    """Return a frame of numbers and categories, and labels.

    It has integers that may be missing and rare categories. A tenth of the cells is
    missing.
    """
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 4))
    score = 1.5 * Z[:, 0] + Z[:, 1] * Z[:, 2] + 0.3 * rng.normal(size=n)
    y = np.where(score > 0, "yes", "no")
    frame = pd.DataFrame({"a": Z[:, 0], "b": np.round(3 * Z[:, 1]), "d": Z[:, 3]})
    frame["cat"] = np.where(Z[:, 2] > 0, "hi", "lo")
    frame["rare"] = rng.choice(list("uvwxyz"), n, p=[0.5, 0.3, 0.1, 0.06, 0.02, 0.02])
    frame = frame[NAMES].astype({"cat": object, "rare": object})
    frame = frame.mask(rng.random((n, 5)) < 0.1)
    if library == "polars":
        return pl.from_pandas(frame), y
    frame["b"] = frame["b"].astype("Int64" if seed % 2 else "float64")
    if seed % 3 == 0:
        frame["cat"] = frame["cat"].astype("category")
    frame.index = rng.permutation(n) + 1000
    return frame, y


def take_rows(X, rows):
    """Return rows of a frame of pandas or polars, by position."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def buyer(method, *, policy, prices, grouped, p_full):
    """Return an estimator that buys; `prices` are those of columns or groups."""
    names = list(GROUPS) if grouped else NAMES
    params = {"policy": policy, "feature_costs": dict(zip(names, prices))}
    if grouped:
        params["feature_groups"] = GROUPS
    if method == "sequential":
        model = None
        if p_full < 1:
            tree = DecisionTreeClassifier(max_depth=4, random_state=0)
            model = make_pipeline(FrameEncoder(), tree)
        return SequentialFeatureClassifier(model, random_state=0, **params)
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["cat", "rare"]),
        (SimpleImputer(), ["a", "b", "d"]),
    )
    full = make_pipeline(encoder, LogisticRegression())
    params |= {"p_full": p_full, "gamma": 0.02, "cv": 2}
    return adapt_of(full, method, n_estimators=8, tol=1e-3, **params)


class CountingProvider:
    """Source of features that counts the cells that are fetched.

    Parameters
    ----------
    X : data frame
        The rows.

    kind : {"array", "frame", "mapping"}
        What the source is or returns.

    fault : {"raises", "rows"}, default=None
        Failure of every call: an exception, or a row too few.

    Attributes
    ----------
    counts : ndarray of shape (n_rows, n_columns), dtype=int

    lazy : LazyFeatures
    """

    def __init__(self, X, kind, fault=None):
        self.X = X
        self.kind = kind
        self.fault = fault
        self.counts = np.zeros((len(X), len(NAMES)), dtype=int)
        source = self.fetch
        if kind == "mapping" and fault is None:
            source = {name: partial(self.fetch_column, name) for name in NAMES}
        self.lazy = LazyFeatures(source, n_samples=len(X))

    def fetch_column(self, name, rows):
        return self.fetch([name], rows)[:, 0]

    def fetch(self, columns, rows):
        for name in columns:
            self.counts[rows, NAMES.index(name)] += 1
        if self.fault == "raises":
            raise RuntimeError("the source is down")
        table = take_rows(self.X, rows)[columns]
        if self.kind == "frame" and self.fault is None:
            # Columns of a frame are found by name.
            return table[columns[::-1]]
        cells = np.column_stack(
            [np.asarray(table[name], dtype=object) for name in columns]
        )
        if self.fault == "rows":
            return cells[:-1]
        return cells


def counts_of_receipt(lazy):
    """Return the number of times that each cell is on the receipt of lazy features."""
    counts = np.zeros((len(lazy), len(NAMES)), dtype=int)
    for purchase in lazy.acquisition_log_:
        columns = [NAMES.index(name) for name in purchase.columns]
        counts[np.ix_(purchase.rows, columns)] += 1
    return counts


def assert_groups_are_bought_whole_and_once(model, provider, cost):
    """Check the counted cells against the receipt, the groups and the cost of rows."""
    counts = provider.counts
    assert counts.max() <= 1
    assert_array_equal(counts_of_receipt(provider.lazy), counts)
    paid = np.zeros(len(counts))
    for group, group_cost in enumerate(model.group_costs_):
        group_counts = counts[:, model.group_of_ == group]
        is_bought = group_counts.any(axis=1)
        assert_array_equal(group_counts.all(axis=1), is_bought)
        paid += is_bought * group_cost
    assert_allclose(paid, cost, atol=1e-12)


@settings(max_examples=5, deadline=None)
@example("lin", "online", "pandas", "array", [1.0] * 5, False, 1.0, 1)
@example(
    "sequential", "batch", "pandas", "mapping", [2.0, 0.0, 1.0, 1.0, 3.0], True, 0.0, 3
)
@given(
    st.sampled_from(["gbrt", "lin", "sequential"]),
    st.sampled_from(["online", "batch"]),
    st.sampled_from(["pandas", "polars"]),
    st.sampled_from(["array", "frame", "mapping"]),
    st.lists(st.sampled_from([0.0, 0.3, 1.0, 2.5]), min_size=5, max_size=5),
    st.booleans(),
    st.sampled_from([0.2, 1.0]),
    st.integers(0, 10**4),
)
def test_late_rows_cost_and_answer_as_rows_at_once(
    method, policy, library, provider, prices, grouped, p_full, seed
):
    X, y = frame_of(library, 140, seed)
    past = take_rows(X, np.arange(100))
    rows = take_rows(X, np.arange(100, 140))
    model = buyer(
        method, policy=policy, prices=prices, grouped=grouped, p_full=p_full
    ).fit(past, y[:100])
    least = model.min_budget_
    most = model.predict_cost(rows).max()
    budgets = [None, np.inf, least, least + 0.4 * (most - least) + 0.1]
    unpickled = pickle.loads(pickle.dumps(model))
    for position in np.random.default_rng(seed).permutation(len(budgets)):
        budget = budgets[position]
        source = CountingProvider(rows, provider)
        routed = model.predict_routed(rows, budget=budget)
        routed_late = model.predict_routed(source.lazy, budget=budget)
        routed_unpickled = unpickled.predict_routed(rows, budget=budget)
        for other in (routed_late, routed_unpickled):
            assert_array_equal(other.y_pred, routed.y_pred)
            assert_allclose(other.cost, routed.cost, atol=1e-12)
        assert_groups_are_bought_whole_and_once(model, source, routed.cost)
        if policy == "batch" and budget is not None:
            assert routed.cost.mean() <= budget * (1 + 1e-9)
    assert_array_equal(model.predict(rows), unpickled.predict(rows))
    assert_wrong_budgets_buy_nothing(model, rows, provider)
    for fault in ("raises", "rows"):
        assert_a_fault_is_an_error(model, rows, provider, fault)


def assert_wrong_budgets_buy_nothing(model, rows, provider):
    """Check that a wrong budget is an error before anything is bought."""
    wrong_budgets = [-1, np.nan, "3"]
    if model.min_budget_ > 0:
        wrong_budgets.append(0.5 * model.min_budget_)
    for budget in wrong_budgets:
        source = CountingProvider(rows, provider)
        with pytest.raises((ValueError, TypeError), match="budget"):
            model.predict(source.lazy, budget=budget)
        assert not source.counts.any()


def assert_a_fault_is_an_error(model, rows, provider, fault):
    """Check that a fault of the source is an error, unless nothing is bought at all."""
    source = CountingProvider(rows, provider, fault)
    try:
        model.predict(source.lazy)
    except RuntimeError:
        assert fault == "raises"
        assert not source.lazy.acquisition_log_
    except ValueError as error:
        assert "feature source" in str(error)
    else:
        assert not source.counts.any()
