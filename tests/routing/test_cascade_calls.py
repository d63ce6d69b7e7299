"""Calls of a cascade: signals by name, the caller's arrays, draws of single rows, estimates."""

from contextlib import nullcontext

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Ridge

from skroute.routing import CascadeRouter
from skroute.routing._cascade_known import nested_known
from tests.routing.test_cascade import COSTS, NAMES, log_of

FRAMES = {
    "pandas": pd.DataFrame,
    "strings": lambda columns: pd.DataFrame(columns, index=list(map(str, range(300)))),
    "nullable": lambda columns: pd.DataFrame(columns).astype("Float64"),
    "polars": pl.DataFrame,
    "arrow": pa.table,
}


@pytest.fixture(scope="module")
def router():
    Q, S, _ = log_of()
    return CascadeRouter(costs=COSTS, budget=8).fit(None, Q, signals=dict(zip(NAMES, S.T)))


@settings(max_examples=15, deadline=None)
@given(st.permutations(NAMES), st.permutations(NAMES), st.sampled_from(sorted(FRAMES)))
def test_signals_of_a_frame_are_found_by_name(router, of_fit, of_call, library):
    Q, S, _ = log_of()
    S[::9, 1] = np.nan
    columns = dict(zip(NAMES, S.T))
    expected = CascadeRouter(costs=COSTS, budget=8, n_prices=3, max_calls=2, cv=2)
    expected = expected.fit(None, Q, signals=columns)
    found = CascadeRouter(costs=COSTS, budget=8, n_prices=3, max_calls=2, cv=2)
    found = found.fit(None, Q, signals=FRAMES[library]({name: columns[name] for name in of_fit}))
    answers = expected.predict(None, signals=columns)
    frame = FRAMES[library]({name: columns[name] for name in of_call})
    np.testing.assert_array_equal(found.predict(None, signals=frame), answers)


def test_a_frame_of_signals_lacks_and_has_too_much_as_a_mapping(router):
    Q, S, _ = log_of()
    frame = pd.DataFrame(S, columns=NAMES)
    with pytest.raises(ValueError, match=r"entries for \['nobody'\], which are not among"):
        router.predict(None, signals=frame.assign(nobody=1.0))
    with pytest.raises(ValueError, match=r"has nothing of \['middle'\]"):
        router.predict(None, signals=frame[["large", "small"]])
    with pytest.raises(ValueError, match="two columns of the same name"):
        router.predict(None, signals=frame.set_axis(["small", "small", "large"], axis=1))
    part = CascadeRouter(costs=COSTS).fit(None, Q, signals=frame[["large"]])
    assert part.predict(None, signals=frame[["large"]]).shape == (300,)
    with pytest.raises(ValueError, match="not among the models"):
        CascadeRouter(costs=list(COSTS.values())).fit(None, Q, signals=frame)


def test_columns_of_one_model_are_found_by_name():
    Q, S, _ = log_of()
    two = pd.DataFrame({"sure": S[:, 0], "noise": np.random.default_rng(0).normal(size=300)})
    router = CascadeRouter(costs=COSTS, order=["small", "large"], budget=8)
    router = router.fit(None, Q, signals={"small": two})
    turned = two[["noise", "sure"]]
    expected = router.predict(None, signals={"small": two})
    assert len(set(expected)) == 2
    np.testing.assert_array_equal(router.predict(None, signals={"small": turned}), expected)
    lazy = {"small": lambda rows: turned.iloc[rows]}
    X = np.arange(300)[:, None]
    np.testing.assert_array_equal(
        router.route(X, signals=lazy, budget=np.inf),
        router.route(X, signals={"small": two}, budget=np.inf),
    )
    one, other = router.start(budget=np.inf), router.start(budget=np.inf)
    one.observe("small", two.iloc[[3]])
    other.observe("small", turned.iloc[[3]])
    assert one.quality == other.quality
    with pytest.raises(ValueError, match="must have the columns"):
        router.predict(None, signals={"small": two.rename(columns={"sure": "shy"})})


def test_costs_of_the_caller_are_left_alone(router):
    _, S, _ = log_of()
    X, told = np.arange(300)[:, None], np.ones((300, 3))
    models = {
        name: lambda rows, k=k: (rows[:, 0], S[rows[:, 0], k], 7.0) for k, name in enumerate(NAMES)
    }
    asked = router.models_asked(X, models=models, costs=told)
    np.testing.assert_array_equal(told, 1.0)
    told.flags.writeable = False
    paid = router.predict_cost(X, models=models, costs=told)
    np.testing.assert_array_equal(paid, 7.0 * asked.sum(axis=1))


def between(router):
    """A budget between two rules that cost clearly different amounts."""
    cost = router.mixture_.cost
    at = int(np.diff(cost).argmax())
    return 0.5 * cost[at] + 0.5 * cost[at + 1]


def test_rows_asked_one_by_one_hold_the_budget_by_their_ids(router):
    _, S, _ = log_of(n=1000, seed=8)
    budget = between(router)
    ids = np.array([f"request {i}" for i in range(1000)])
    batch = router.predict_cost(None, signals=S, budget=budget, request_id=ids)
    single = [
        router.predict_cost(None, signals=S[[i]], budget=budget, request_id=ids[[i]])[0]
        for i in range(1000)
    ]
    np.testing.assert_array_equal(single, batch)
    error = 4 * np.std(single) / np.sqrt(1000)
    assert np.mean(single) == pytest.approx(router.predict_cost(None, signals=S).mean(), abs=99)
    low, high, share = router.mixture_.share(budget)
    ends = [
        router.predict_cost(None, signals=S, budget=router.mixture_.cost[at]).mean()
        for at in (low, high)
    ]
    assert np.mean(single) == pytest.approx((1 - share) * ends[0] + share * ends[1], abs=error)
    # Without ids the position stands for the row: a single one always has the first.
    first = {router.predict(None, signals=S[[0]], budget=budget)[0] for _ in range(3)}
    assert len(first) == 1
    with pytest.raises(ValueError, match="request_id must have one entry for each of 1000"):
        router.predict(None, signals=S, request_id=ids[:3])
    score = router.score(None, np.eye(3)[np.zeros(1000, dtype=int)], signals=S, request_id=ids)
    assert 0 <= score <= 1


def test_routed_says_the_quality_that_is_expected(router):
    _, S, _ = log_of(n=200, seed=3)
    routed = router.predict_routed(None, signals=S)
    np.testing.assert_array_equal(routed.expected_quality, router.predict_quality(None, signals=S))
    Q = log_of()[0]
    far = CascadeRouter(costs=COSTS, budget=8).fit(None, 100 * Q - 7, signals=log_of()[1])
    expected = far.predict_routed(None, signals=S).expected_quality
    np.testing.assert_allclose(expected, 100 * routed.expected_quality - 7)


def test_standard_errors_are_those_over_fresh_logs():
    """The spread of the validated numbers of a fixed rule from log to log."""
    found, prices = [], np.array(list(COSTS.values()))
    for seed in range(60):
        Q, S, _ = log_of(n=200, seed=seed)
        router = CascadeRouter(costs=COSTS, order=["small", "large"], n_prices=2)
        router = router.fit(None, Q, signals=S)
        costs = np.random.default_rng(seed).lognormal(size=(200, 3)) * prices
        one = CascadeRouter(order=["choice1"], n_prices=2).fit(None, Q, signals=S, costs=costs)
        found.append(
            [
                router.validation_quality_,
                one.validation_cost_,
                router.validation_quality_se_,
                one.validation_cost_se_,
            ]
        )
    quality, cost, quality_se, cost_se = np.array(found).T
    assert quality.std(ddof=1) == pytest.approx(quality_se.mean(), rel=0.35)
    assert cost.std(ddof=1) == pytest.approx(cost_se.mean(), rel=0.35)


def test_the_error_of_a_mixture_is_that_of_its_rows(router):
    at = int(np.diff(router.mixture_.cost).argmax())
    ends = []
    for budget in router.mixture_.cost[[at, at + 1]]:
        router.set_params(budget=float(budget))
        ends.append((router.validation_quality_se_, router.validation_cost_se_))
    router.set_params(budget=float(between(router)))
    mixed = router.validation_quality_se_, router.validation_cost_se_
    router.set_params(budget=8)
    assert 0 < mixed[0] <= max(ends[0][0], ends[1][0]) and mixed[1] > 0
    # Which rule a row follows is drawn: that adds to the spread of the cost.
    gap = np.diff(router.mixture_.cost)[at]
    assert mixed[1] > 0.45 * gap / np.sqrt(300)


def test_what_has_no_rows_says_the_way_out(router):
    _, S, _ = log_of()
    lazy = {name: lambda rows, k=k: S[rows, k] for k, name in enumerate(NAMES)}
    with pytest.raises(ValueError, match="how many rows .* X .* or one model's signals as an arr"):
        router.predict(None, signals=lazy)
    mixed = lazy | {"small": S[:, 0]}
    np.testing.assert_array_equal(
        router.predict(None, signals=mixed), router.predict(None, signals=S)
    )


def test_a_live_request_takes_a_row_only_where_fit_did(router):
    with pytest.raises(ValueError, match="x must be None: fit got no X"):
        router.start([1.0, 2.0])
    Q, S, hard = log_of()
    informed = CascadeRouter(Ridge(), costs=COSTS, n_prices=3).fit(hard, Q, signals=S)
    assert informed.start(hard[0]).next in NAMES
    assert informed.start(hard[:1]).next == informed.start(hard[0]).next
    with pytest.raises(ValueError, match="x must be one row, got a table of 2"):
        informed.start(hard[:2])


def test_rules_name_their_models():
    Q, S, hard = log_of(n=2000, noise=0.1)
    router = CascadeRouter(Ridge(), costs=COSTS).fit(hard, Q, signals=S)
    free = [name for name in router.rule_names_ if ">" not in name and name not in NAMES]
    assert free and all(name.endswith("of small, middle, large in any order") for name in free)


def test_estimates_of_training_rows_did_not_see_the_fold_that_judges():
    """On pure noise no model is better than 0.5, and the validated quality says so."""
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X, S = rng.normal(size=(150, 5)), rng.normal(size=(150, 3))
        Q = rng.normal(0.5, 0.3, size=(150, 3))
        router = CascadeRouter(Ridge(1e-3), costs=[1, 2, 3], n_prices=3, max_calls=1)
        router = router.fit(X, Q, signals=S)
        found.append(router.validation_quality_ - Q.mean())
    assert np.mean(found) < 0.005 + 2.5 * np.std(found) / np.sqrt(60)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 14), st.integers(0, 100), st.booleans())
def test_no_model_of_a_training_row_saw_that_row_or_the_judged_fold(n_folds, seed, gap):
    n = 30
    rng = np.random.default_rng(seed)
    parts = np.array_split(rng.permutation(n), n_folds)
    folds = [(np.setdiff1d(np.arange(n), part), np.sort(part)) for part in parts]
    if gap and n_folds > 3:
        folds = [(train[:-1], test) for train, test in folds]
    X, Q = np.arange(n)[:, None], np.zeros((n, 2))
    known = nested_known(Seen(), X, Q, folds, task=NoTask())
    for (train, test), own in zip(folds, known):
        assert own.shape == (len(train), 2) and np.isfinite(own).all()
        for row, (number, _) in zip(train, own):
            seen = SEEN[int(number)]
            assert len(seen) and row not in seen and not set(seen) & set(test)
            assert set(seen) <= set(train)
    # Two folds share each fit, and there are never many of them.
    assert len(set(np.concatenate([own[:, 0] for own in known]))) <= max(10, 4 * n_folds)


SEEN: list[list[int]] = []


class Seen(RegressorMixin, BaseEstimator):
    """Predicts which fit it is; what that fit saw stands in `SEEN`."""

    def fit(self, X, y):
        SEEN.append(X[:, 0].tolist())
        self.number_ = len(SEEN) - 1
        return self

    def predict(self, X):
        return np.full((len(X), 2), float(self.number_))


class NoTask:
    def step(self, name):
        return nullcontext()


@pytest.mark.parametrize(
    "of_small, of_large, kind",
    [
        ("word", "words", "U"),
        (1, 2.5, "f"),
        (True, False, "b"),
        # What numpy would change, or has no array for once all models are paid.
        (1, "words", "O"),
        ([1, 2], [3], "O"),
        ([1, 2], [3, 4], "O"),
    ],
)
def test_answers_are_what_the_models_said(router, of_small, of_large, kind):
    said = dict(zip(NAMES, [of_small, of_small, of_large]))
    _, S, _ = log_of()

    def model(k, name):
        return lambda rows: ([said[name]] * len(rows), S[np.asarray(rows)[:, 0], k])

    models = {name: model(k, name) for k, name in enumerate(NAMES)}
    X = np.arange(300)[:, None]
    y_pred, route, _ = router.predict_routed(X, models=models)
    assert y_pred.dtype.kind == kind and y_pred.shape == (300,)
    assert len(set(route.tolist())) > 1
    assert all(answer == said[NAMES[k]] for answer, k in zip(y_pred.tolist(), route))


def test_a_live_row_may_be_a_table_of_one():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    Q = np.column_stack([X[:, 0] > rng.normal(size=200), rng.random(200) < 0.9])
    router = CascadeRouter(costs={"small": 1, "large": 10}, budget=4).fit(X, Q)
    runs = [router.start(x, random_state=0) for x in ([0.3, 1], [[0.3, 1]], np.array([[0.3, 1]]))]
    assert len({repr(run) for run in runs}) == 1
    assert repr(runs[0]) == f"CascadeRun(next={runs[0].next!r}, answer=None, asked=[], cost=0)"
    with pytest.raises(ValueError, match="one row, got a table of 2"):
        router.start([[0.3, 1], [0.4, 2]])
