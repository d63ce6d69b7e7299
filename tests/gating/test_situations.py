"""Estimators that buy, in situations that are drawn: kinds of rows, prices, providers, faults."""

import pickle

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
    """Numbers, integers that may be missing, categories with rare levels; a tenth is missing."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 4))
    y = np.where(
        1.5 * Z[:, 0] + Z[:, 1] * Z[:, 2] + 0.3 * rng.normal(size=n) > 0, "yes", "no"
    )
    frame = pd.DataFrame({"a": Z[:, 0], "b": np.round(3 * Z[:, 1]), "d": Z[:, 3]})
    frame["cat"] = np.where(Z[:, 2] > 0, "hi", "lo")
    frame["rare"] = rng.choice(list("uvwxyz"), n, p=[0.5, 0.3, 0.1, 0.06, 0.02, 0.02])
    frame = (
        frame[NAMES]
        .astype({"cat": object, "rare": object})
        .mask(rng.random((n, 5)) < 0.1)
    )
    if library == "polars":
        return pl.from_pandas(frame), y
    frame["b"] = frame["b"].astype("Int64" if seed % 2 else "float64")
    if seed % 3 == 0:
        frame["cat"] = frame["cat"].astype("category")
    frame.index = rng.permutation(n) + 1000
    return frame, y


def part(X, rows):
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def buyer(method, policy, prices, grouped, p_full):
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["cat", "rare"]),
        (SimpleImputer(), ["a", "b", "d"]),
    )
    full = make_pipeline(encoder, LogisticRegression())
    names = list(GROUPS) if grouped else NAMES
    costs = {"feature_costs": dict(zip(names, prices))}
    costs |= {"feature_groups": GROUPS} if grouped else {}
    if method == "sequential":
        tree = make_pipeline(
            FrameEncoder(), DecisionTreeClassifier(max_depth=4, random_state=0)
        )
        full = tree if p_full < 1 else None
        return SequentialFeatureClassifier(full, policy=policy, random_state=0, **costs)
    gate = {"p_full": p_full, "gamma": 0.02, "policy": policy, "cv": 2} | costs
    return adapt_of(full, method, n_estimators=8, tol=1e-3, **gate)


def source_of(X, kind, counts, fault=None):
    """A provider that counts the cells it is asked for, and fails as told."""

    def cells(columns, rows):
        for name in columns:
            counts[rows, NAMES.index(name)] += 1
        if fault == "raises":
            raise RuntimeError("the source is down")
        found = part(X, rows)[columns]
        if kind == "frame" and fault is None:
            # Columns of a frame are found by name.
            return found[columns[::-1]]
        table = np.column_stack(
            [np.asarray(found[name], dtype=object) for name in columns]
        )
        return table[:-1] if fault == "rows" else table

    if kind == "mapping" and fault is None:
        one = {
            name: lambda rows, name=name: cells([name], rows)[:, 0] for name in NAMES
        }
        return LazyFeatures(one, n_samples=len(X))
    return LazyFeatures(cells, n_samples=len(X))


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
    past, rows = part(X, np.arange(100)), part(X, np.arange(100, 140))
    model = buyer(method, policy, prices, grouped, p_full).fit(past, y[:100])
    least, most = model.min_budget_, model.predict_cost(rows).max()
    budgets = [None, np.inf, least, least + 0.4 * (most - least) + 0.1]
    copy = pickle.loads(pickle.dumps(model))
    for budget in np.random.default_rng(seed).permutation(
        np.array(budgets, dtype=object)
    ):
        counts = np.zeros((40, 5), dtype=int)
        lazy = source_of(rows, provider, counts)
        routed = model.predict_routed(rows, budget=budget)
        for other in (
            model.predict_routed(lazy, budget=budget),
            copy.predict_routed(rows, budget=budget),
        ):
            assert_array_equal(other.y_pred, routed.y_pred)
            assert_allclose(other.cost, routed.cost, atol=1e-12)
        fetched = [
            counts[:, model.group_of_ == group].any(axis=1) * cost
            for group, cost in enumerate(model.group_costs_)
        ]
        assert_allclose(np.sum(fetched, axis=0), routed.cost, atol=1e-12)
        receipt = np.zeros_like(counts)
        for bought in lazy.acquisition_log_:
            receipt[
                np.ix_(bought.rows, [NAMES.index(name) for name in bought.columns])
            ] += 1
        assert counts.max() <= 1 and (receipt == counts).all()
        for group in range(len(model.group_costs_)):
            own = counts[:, model.group_of_ == group]
            assert (own.all(axis=1) == own.any(axis=1)).all(), "groups are bought whole"
        if policy == "batch" and budget is not None:
            assert routed.cost.mean() <= budget * (1 + 1e-9)
    counts = np.zeros((40, 5), dtype=int)
    for wrong in (-1, np.nan, "3", *([0.5 * least] if least > 0 else [])):
        with pytest.raises((ValueError, TypeError), match="budget"):
            model.predict(source_of(rows, provider, counts), budget=wrong)
    assert not counts.any(), "an error comes before anything is bought"
    for fault in ("raises", "rows"):
        counts[:] = 0
        lazy = source_of(rows, provider, counts, fault)
        try:
            model.predict(lazy)
        except RuntimeError:
            assert fault == "raises" and not lazy.acquisition_log_
        except ValueError as error:
            assert "feature source" in str(error)
        else:
            # Nothing may be bought at all.
            assert not counts.any()
    assert_array_equal(model.predict(rows), copy.predict(rows))
