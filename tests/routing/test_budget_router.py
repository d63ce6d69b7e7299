"""BudgetRouter on complete tables of outcomes: policy, costs, input and errors."""

import re
import warnings
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import get_tags

from skroute.assignment import assignment_path, choose_at_price
from skroute.routing import BudgetRouter
from skroute.routing.parts._estimates import folds_of
from tests import SKLEARN


def log(n=300, seed=0, noise=0.1):
    """A cheap model that is good for small x, a costly one that is good everywhere."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 1))
    quality = np.column_stack([1 - x[:, 0], np.full(n, 0.8)])
    return x, quality + noise * rng.standard_normal((n, 2))


COSTS = {"small": 1.0, "large": 5.0}


def test_fit_is_cross_fitted_estimates_at_the_price_of_the_budget():
    X, Q = log()
    router = BudgetRouter(
        KernelRidge(), costs=COSTS, budget=2.5, reg_lambda=0.7, cv=3
    ).fit(X, Q)
    estimate = np.empty_like(Q)
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))
    for train, test in folds:
        estimate[test] = KernelRidge().fit(X[train], Q[train]).predict(X[test])
    sigma = (estimate - Q).std(axis=0)
    np.testing.assert_allclose(router.quality_std_, sigma)
    values = estimate - 0.7 * sigma
    route = choose_at_price(values, [1, 5], router.price_)
    spent = np.array([1.0, 5.0])[route].mean()
    # The plan of a price that is nearest to the budget: no increment brings it nearer.
    assert abs(spent - 2.5) <= 4 / len(X) / 2 + 1e-9
    # The figures are of prices that were learned without the rows that they judge.
    quality = np.empty(len(X))
    cost = np.empty(len(X))
    for train, test in folds:
        price = assignment_path(values[train], [1, 5]).rule(2.5).price
        test_route = choose_at_price(values[test], [1, 5], price)
        quality[test] = Q[test, test_route]
        cost[test] = np.array([1.0, 5.0])[test_route]
    assert router.validation_cost_ == pytest.approx(cost.mean())
    assert router.validation_quality_ == pytest.approx(quality.mean())
    new_cost = np.array([1.0, 5.0])[route]
    new_quality = Q[np.arange(len(X)), route]
    for held_out, new_rows, error in [
        (cost, new_cost, router.validation_cost_se_),
        (quality, new_quality, router.validation_quality_se_),
    ]:
        fold_means = [held_out[test].mean() for _, test in folds]
        between_folds = np.std(fold_means, ddof=1) / 3**0.5
        spread = max(held_out.std(ddof=1) / len(X) ** 0.5, between_folds)
        difference = new_rows.mean() - held_out.mean()
        assert error == pytest.approx(np.hypot(difference, spread))
    # New rows: the estimator fitted on all rows, at the same price.
    X_new, _ = log(50, seed=1)
    new = KernelRidge().fit(X, Q).predict(X_new)
    np.testing.assert_allclose(router.predict_quality(X_new), new)
    np.testing.assert_array_equal(
        router.route(X_new), choose_at_price(new - 0.7 * sigma, [1, 5], router.price_)
    )


def test_protocol():
    X, Q = log()
    router = BudgetRouter(Ridge(), costs=COSTS, budget=2.5, routing_cost=0.25).fit(X, Q)
    y_pred, route, cost = router.predict_routed(X)
    assert router.choices_ == ["small", "large"]
    np.testing.assert_array_equal(y_pred, np.array(["small", "large"])[route])
    np.testing.assert_allclose(cost, np.where(route, 5.25, 1.25))
    assert cost.mean() == pytest.approx(2.5, abs=0.1)
    weight = np.linspace(0, 1, len(X))
    realised = Q[np.arange(len(X)), route]
    assert router.score(X, Q) == pytest.approx(realised.mean())
    expected = np.average(realised, weights=weight)
    assert router.score(X, Q, sample_weight=weight) == pytest.approx(expected)
    # At the smallest budget nothing is bought, also for a row with a large estimate.
    assert (router.predict_cost(X, budget=1.25) == 1.25).all()
    assert router.predict_quality([[9.0]]).argmax() == 1
    assert router.predict([[9.0]], budget=1.25).tolist() == ["small"]


def row_costs(X, seed=0):
    # Not the seed of the log, whose first numbers are X.
    rng = np.random.default_rng(seed + 1000)
    length = rng.uniform(0.5, 2, len(X))
    return np.column_stack([length, 5 * length * (1 + X[:, 0])])


def test_costs_per_row_known_before_the_call():
    X, Q = log()
    C = row_costs(X)
    router = BudgetRouter(Ridge(), budget=3.0).fit(X, Q, costs=C)
    np.testing.assert_allclose(router.costs_, C.mean(axis=0))
    X_new, Q_new = log(200, seed=1)
    C_new = row_costs(X_new, seed=1)
    y_pred, route, cost = router.predict_routed(X_new, costs=C_new)
    np.testing.assert_array_equal(y_pred, route)
    np.testing.assert_allclose(cost, C_new[np.arange(200), route])
    expected = choose_at_price(router.predict_quality(X_new), C_new, router.price_)
    np.testing.assert_array_equal(route, expected)
    assert router.score(X_new, Q_new, costs=C_new) == pytest.approx(
        Q_new[np.arange(200), route].mean()
    )
    with pytest.raises(ValueError, match=re.escape("array-like of shape (200, 2)")):
        router.predict(X_new)
    with pytest.raises(ValueError, match=re.escape("shape (200, 2), got (200, 1)")):
        router.predict(X_new, costs=C_new[:, :1])
    with pytest.raises(ValueError, match="costs must be finite and at least 0, got -"):
        router.predict(X_new, costs=-C_new)
    batch = clone(router).set_params(policy="batch").fit(X, Q, costs=C)
    assert batch.predict_cost(X_new, costs=C_new).mean() <= 3.0


def test_a_budget_that_only_the_row_wise_cheapest_meets():
    """Each choice costs 2 on average, but the cheaper of each row costs 1."""
    X, Q = log(100)
    C = np.where(np.arange(200).reshape(100, 2) // 2 % 2 == [0, 1], 1.0, 3.0)
    router = BudgetRouter(Ridge(), budget=1.0).fit(X, Q, costs=C)
    np.testing.assert_array_equal(router.predict_cost(X, costs=C), 1.0)
    with pytest.raises(ValueError, match="the smallest feasible budget is 1"):
        router.predict(X, costs=C, budget=0.9)
    with pytest.raises(ValueError, match="the smallest feasible budget is 1"):
        clone(router).set_params(budget=0.9).fit(X, Q, costs=C)


def test_expected_costs_are_those_that_each_choice_had_in_the_log():
    """One choice costs twice its list price, the other one half of it."""
    X, Q = log(2000)
    logged_costs = np.array([2.0, 2.5])
    router = BudgetRouter(Ridge(), costs=COSTS, budget=2.25)
    with pytest.warns(UserWarning, match="but costs says"):
        router.fit(X, Q, costs=np.tile(logged_costs, (2000, 1)))
    routed = router.predict_routed(X)
    for choice, cost in enumerate(logged_costs):
        expected_costs = routed.cost[routed.route == choice]
        assert expected_costs.mean() == pytest.approx(cost, rel=0.1)
    assert routed.cost.mean() == pytest.approx(2.25, rel=0.02)


def test_learned_costs():
    X, Q = log(2000)
    C = row_costs(X)
    router = BudgetRouter(Ridge(), cost_estimator=LinearRegression(), budget=4.0)
    router.fit(X, Q, costs=C)
    X_new, _ = log(2000, seed=1)
    C_new = row_costs(X_new, seed=1)
    routed = router.predict_routed(X_new)
    planned = np.maximum(LinearRegression().fit(X, C).predict(X_new), 0)
    quoted = planned[np.arange(2000), routed.route]
    np.testing.assert_allclose(routed.quoted_cost, quoted)
    true = C_new[np.arange(2000), routed.route].mean()
    assert true == pytest.approx(4.0, rel=0.1) == routed.cost.mean()
    # A batch that pays for deciding as well stays within the budget by these estimates.
    with_routing_cost = clone(router).set_params(policy="batch", routing_cost=0.5)
    with_routing_cost.fit(X, Q, costs=C)
    assert 3.9 < with_routing_cost.predict_cost(X_new).mean() <= 4.0 * (1 + 1e-12)
    # Costs that are known after all take precedence.
    known = router.predict_routed(X_new, costs=C_new)
    np.testing.assert_allclose(known.cost, C_new[np.arange(2000), known.route])
    # Estimates below zero become zero.
    low = clone(router).set_params(budget=None)
    low.set_params(
        cost_estimator=DummyRegressor(strategy="constant", constant=[-1, -1])
    )
    assert low.fit(X, Q, costs=C).predict_cost(X).max() == 0


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames_are_read_by_name(library):
    frames = pytest.importorskip(library)
    made = frames.table if library == "pyarrow" else frames.DataFrame
    X, Q = log(100)
    frame = made({"x": X[:, 0]})
    quality = made({"large": Q[:, 1], "small": Q[:, 0]})
    router = BudgetRouter(Ridge(), costs=COSTS, budget=2.5).fit(frame, quality)
    assert router.choices_ == ["large", "small"]
    assert router.costs_.tolist() == [5, 1]
    assert router.feature_names_in_.tolist() == ["x"]
    same = BudgetRouter(Ridge(), costs=COSTS, budget=2.5).fit(X, Q)
    np.testing.assert_array_equal(router.predict(frame), same.predict(X))
    other_order = made({"small": Q[:, 0], "large": Q[:, 1]})
    assert router.score(frame, other_order) == pytest.approx(same.score(X, Q))
    with pytest.raises(ValueError, match="y must have the columns"):
        router.score(frame, made({"small": Q[:, 0]}))


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_parameters_of_now_are_those_of_a_new_fit(data):
    """After any order of settings and calls, decisions are those of a new fit."""
    X, Q = log(60, seed=data.draw(st.integers(0, 50)))
    Q = np.column_stack([Q, Q.mean(axis=1)])
    estimator = data.draw(
        st.sampled_from([Ridge(), DecisionTreeRegressor(max_depth=2)])
    )
    router = BudgetRouter(estimator, costs=[1, 5, 2], cv=3, budget=3.0).fit(X, Q)
    cost = st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0, 9.0])
    for _ in range(data.draw(st.integers(1, 4))):
        name = data.draw(st.sampled_from(["reg_lambda", "costs", "budget", "policy"]))
        value = {
            "reg_lambda": st.sampled_from([0.0, 0.5, 2.0]),
            "costs": st.lists(cost, min_size=3, max_size=3),
            "budget": st.sampled_from([0.5, 1.0, 1.5, 3.0, 6.0, None, np.inf]),
            "policy": st.sampled_from(["online", "batch"]),
        }[name]
        router.set_params(**{name: data.draw(value)})
        try:
            new = clone(router).fit(X, Q)
        except ValueError as error:
            for call in (router.predict, router.predict_cost):
                with pytest.raises(ValueError, match=re.escape(str(error))):
                    call(X)
            continue
        np.testing.assert_array_equal(router.route(X), new.route(X))
        np.testing.assert_array_equal(router.predict_cost(X), new.predict_cost(X))
        for name in (
            "price_",
            "min_budget_",
            "validation_quality_",
            "validation_cost_",
        ):
            assert getattr(router, name) == getattr(new, name)
        np.testing.assert_array_equal(router.costs_, new.costs_)
        np.testing.assert_array_equal(
            router.price_path_.budgets, new.price_path_.budgets
        )
        if router.policy == "batch" and router.budget is not None:
            assert router.predict_cost(X).mean() <= router.budget * (1 + 1e-12)


def test_what_cannot_act_at_once_is_refused():
    X, Q = log(60)
    router = BudgetRouter(Ridge(), costs=COSTS, budget=3).fit(X, Q)
    with pytest.raises(ValueError, match="reg_lambda must be a finite number"):
        router.set_params(reg_lambda=-1).predict(X)
    router.set_params(reg_lambda=0)
    with pytest.raises(ValueError, match="costs has entries for"):
        router.set_params(costs={"tiny": 1}).predict(X)
    # A new price alone is merged with the others.
    assert router.set_params(costs={"small": 2}).costs_.tolist() == [2.0, 5.0]
    with pytest.raises(ValueError, match="between fixed and per row"):
        router.set_params(costs=None).predict(X)
    router.set_params(costs=COSTS)
    with pytest.raises(ValueError, match="use set_params"):
        router.predict(X, costs=np.ones((60, 2)))


def test_costs_of_a_call_decide_what_is_feasible():
    X, Q = log(200)
    C = np.ones((200, 2)) * [1.0, 5.0]
    router = BudgetRouter(Ridge(), budget=1.5).fit(X, Q, costs=C)
    for policy in ("online", "batch"):
        router.set_params(policy=policy)
        with pytest.raises(ValueError, match="smallest feasible budget is 2"):
            router.predict(X, costs=C * [2.0, 1.0])
        # A budget that was infeasible on the log may be feasible now.
        cheap = router.predict_cost(X, costs=C / 4, budget=0.3)
        assert cheap.mean() <= 0.3
    # One row has no mean: the online price decides it, also if it exceeds the budget.
    router.set_params(policy="online")
    assert router.predict_cost(X[:1], costs=[[7.0, 90.0]]).tolist() == [7.0]


@pytest.mark.slow
def test_the_smallest_budget_that_reaches_a_quality():
    rng = np.random.default_rng(0)

    def easy_and_hard(n):
        X = rng.uniform(size=(n, 1))
        # The small model is right below .6, the large one nine times of ten.
        return X, np.column_stack([X[:, 0] < 0.6, rng.random(n) < 0.9]).astype(float)

    tree = DecisionTreeRegressor(min_samples_leaf=30)
    smallest = []
    for _ in range(12):
        router = BudgetRouter(tree, costs=COSTS).fit(*easy_and_hard(800))
        smallest.append(router.smallest_budget())
    best = [figures.quality for figures in smallest]
    assert np.mean(best) == pytest.approx(0.9, abs=0.02)
    budgets = np.array([figures.budget for figures in smallest])
    errors = np.array([figures.budget_se for figures in smallest])
    # .9 is reached where the large model answers (.9 - .6) / .9 of the rows, all of them above .6.
    assert budgets.mean() == pytest.approx(1 + 4 * 0.3 / 0.9, abs=0.15)
    assert 0.4 < budgets.std(ddof=1) / errors.mean() < 2.5
    X, Q = easy_and_hard(5000)
    last = smallest[-1]
    score = router.score(X, Q, budget=last.budget)
    assert score == pytest.approx(best[-1], abs=0.03)
    # The smallest budget that is enough is enough in about half of the samples.
    reached = np.array([figures.reached for figures in smallest])
    assert ((0.3 < reached) & (reached < 0.8)).all(), reached
    # The same quality as a number, a lower one for less, one that no budget reaches.
    assert router.smallest_budget(best[-1]) == last
    assert router.smallest_budget(0.8).budget < last.budget
    nothing = router.smallest_budget(1.01)
    assert np.isnan(nothing.budget)
    assert np.isnan(nothing.budget_se)
    assert nothing.reached == 0


def test_a_quality_that_is_missed_by_rounding_is_reached():
    """The mean of equal numbers differs from them in the last bits."""
    X = np.linspace(0, 1, 300)[:, None]
    Q = np.column_stack([np.full(300, 0.1), np.full(300, 0.7)])
    weight = np.linspace(0.1, 1.7, 300)
    router = BudgetRouter(Ridge(), costs={"small": 1, "large": 5})
    smallest = router.fit(X, Q, sample_weight=weight).smallest_budget(0.7)
    assert smallest.budget == pytest.approx(5.0)
    assert smallest.reached == 1.0


def test_errors_do_not_quote_rows():
    rows = np.array([[{f"my secret number {i}": i}] for i in range(30)], dtype=object)
    Q = np.ones((30, 2))
    advice = "a pipeline that begins with a vectoriser"
    with pytest.raises((TypeError, ValueError), match=advice) as caught:
        BudgetRouter(costs=COSTS).fit(rows, Q)
    assert "secret" not in str(caught.value) and caught.value.__context__ is None
    X, Q = log(30)
    quality = np.full((30, 2), "secret", dtype=object)
    with pytest.raises(ValueError, match="y must be numbers") as caught:
        BudgetRouter(Ridge(), costs=COSTS).fit(X, quality)
    assert "secret" not in str(caught.value) and caught.value.__context__ is None

    texts = [f"my secret number {i}" for i in range(30)]
    for rows in (texts, pd.DataFrame({"words": np.arange(30.0), "text": texts})):
        with pytest.raises(ValueError) as caught:
            BudgetRouter(Ridge(), costs=[1, 2]).fit(rows, Q)
        notes = " ".join(caught.value.__notes__)
        assert "skroute.quality.FrameEncoder" in notes and "secret" not in notes

    class Blank(DummyRegressor):
        def predict(self, X):
            return np.full((len(X), 2), np.nan)

    with pytest.raises(
        ValueError, match="quality_estimator must estimate finite numbers"
    ):
        BudgetRouter(Blank(), costs=COSTS).fit(X, np.ones((30, 2)))


def test_names_of_choices_are_strings():
    X, Q = log(30)
    router = BudgetRouter(Ridge(), costs={7: 1, 9: 5}).fit(
        X, pd.DataFrame(Q, columns=[9, 7])
    )
    assert router.choices_ == ["9", "7"] and router.costs_.tolist() == [5, 1]
    assert BudgetRouter(Ridge(), costs=[1, 5]).fit(X, Q).choices_ == [
        "choice0",
        "choice1",
    ]
    with pytest.raises(ValueError, match="two columns of the same name"):
        BudgetRouter(Ridge(), costs=[1, 5]).fit(X, pd.DataFrame(Q, columns=["7", 7]))


def test_sparse_and_missing_values_where_the_estimator_takes_them():
    X, Q = log(100)
    router = BudgetRouter(Ridge(), costs=COSTS, budget=2.5)
    assert (
        get_tags(router).input_tags.sparse and not get_tags(router).input_tags.allow_nan
    )
    dense = router.fit(X, Q).route(X)
    np.testing.assert_array_equal(
        router.fit(csr_array(X), Q).route(csr_array(X)), dense
    )
    with pytest.raises(ValueError, match="NaN"):
        router.fit(np.where(X > 0.5, np.nan, X), Q)
    tolerant = BudgetRouter(DecisionTreeRegressor(max_depth=3), costs=COSTS, budget=2.5)
    assert get_tags(tolerant).input_tags.allow_nan
    tolerant.fit(np.where(X > 0.9, np.nan, X), Q).predict(X)
    default = get_tags(BudgetRouter(costs=COSTS)).input_tags
    assert default.sparse and default.allow_nan
    strict = BudgetRouter(DecisionTreeRegressor(), cost_estimator=Ridge())
    assert not get_tags(strict).input_tags.allow_nan


def test_metadata_routing():
    X, Q = log(60)
    C = row_costs(X)
    weight = np.arange(60.0)
    with pytest.raises(
        ValueError, match="only supported if enable_metadata_routing=True"
    ):
        BudgetRouter(Ridge(), costs=COSTS).fit(X, Q, groups=weight)
    with sklearn.config_context(enable_metadata_routing=True):
        asks = Ridge(1.0).set_fit_request(sample_weight=True)
        silent = Ridge(2.0).set_fit_request(sample_weight=False)
        router = BudgetRouter(asks, costs=COSTS, budget=2.5, cv=3)
        both = BudgetRouter(silent, cost_estimator=asks, cv=3)
        with patch.object(Ridge, "fit", autospec=True, side_effect=Ridge.fit) as fit:
            router.fit(X, Q, sample_weight=weight)
            both.fit(X, Q, costs=C, sample_weight=weight)
        seen = [call.kwargs.get("sample_weight") for call in fit.call_args_list]
        alphas = [call.args[0].alpha for call in fit.call_args_list]
        # The fit on all rows, and three cross-fits with their rows' weights.
        fitted_rows = [np.arange(60)]
        for train, _ in folds_of(3, X):
            fitted_rows.append(train)
        for fit_weight, rows in zip(seen[:4], fitted_rows, strict=True):
            np.testing.assert_array_equal(fit_weight, weight[rows])
        for fit_weight, alpha in zip(seen, alphas, strict=True):
            assert (fit_weight is None) == (alpha == 2)
        assert alphas.count(2) == 4 and alphas.count(1) == 8
        unrequested = BudgetRouter(Ridge(), costs=COSTS)
        with pytest.raises(TypeError, match="nonsense"):
            unrequested.fit(X, Q, nonsense=1)
        with pytest.raises(
            sklearn.exceptions.UnsetMetadataPassedError, match="sample_weight"
        ):
            unrequested.fit(X, Q, sample_weight=weight)

        # Costs per row and the budget travel through a search and a pipeline.
        per_row = (
            BudgetRouter(Ridge(), budget=4.0, cv=2)
            .set_fit_request(costs=True)
            .set_score_request(costs=True)
        )
        search = GridSearchCV(
            make_pipeline(per_row), {"budgetrouter__reg_lambda": [0, 1]}, cv=2
        )
        # 1.7 does not pass to a pipeline's score what its last step requests.
        if SKLEARN >= (1, 8):
            search.fit(X, Q, costs=C)
            assert np.isfinite(search.best_score_)
        step = per_row.set_predict_request(budget=True, costs=True)
        pipeline = make_pipeline(step).fit(X, Q, costs=C)
        cheap = pipeline.predict(X, budget=1.5, costs=C)
        np.testing.assert_array_equal(
            cheap, pipeline[-1].predict(X, budget=1.5, costs=C)
        )
        assert (cheap == 1).sum() < (
            pipeline.predict(X, costs=C, budget=4.0) == 1
        ).sum()


@pytest.mark.parametrize(
    ("params", "change", "message"),
    [
        ({"budget": 1.2, "routing_cost": 0.5}, {}, "smallest feasible budget is 1.5"),
        ({"cv": ShuffleSplit(3)}, {}, "test each row once"),
        ({"costs": {"small": 1}}, {}, "y has 2 columns but costs names 1"),
        (
            {"costs": {"small": 1, "large": np.nan}},
            {},
            "costs of 'large' must be a finite number",
        ),
        ({}, {"y": None}, "requires y to be passed"),
        (
            {},
            {"y": [[1.0, 1.0]] + [[1.0, np.nan]] * 39},
            "fewer than two rows on which",
        ),
        ({}, {"y": np.full((40, 2), np.inf)}, "y must be finite, got inf"),
        ({"costs": None}, {}, "got None. Give a mapping"),
        (
            {"costs": None},
            {"costs": np.full((40, 2), np.nan)},
            "costs has fewer than two rows on which",
        ),
        (
            {"costs": None},
            {"costs": [[1.0, 1.0]] * 39 + [[1.0, np.nan]]},
            "costs have 1 NaN. Rows are decided by what each choice costs",
        ),
        ({"costs": [1, 2, 3]}, {}, "costs must have one number for each"),
        ({"cost_estimator": Ridge()}, {}, "Leave one of them out"),
    ],
)
def test_bad_input_is_refused_before_any_model_is_called(params, change, message):
    X, Q = log(40)
    data = {"X": X, "y": Q} | change
    router = BudgetRouter(Ridge(), **({"costs": COSTS} | params))
    with patch.object(Ridge, "fit", side_effect=AssertionError("a model was called")):
        with pytest.raises(ValueError, match=message):
            router.fit(**data)
    assert not hasattr(router, "choices_")


def test_warns_when_a_single_choice_is_better():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 3))
    # The costly choice is better on average; an estimate that is wrong says otherwise.
    Q = np.column_stack([rng.uniform(size=400), 0.3 + rng.uniform(size=400)])

    class Wrong(DummyRegressor):
        def predict(self, X):
            return super().predict(X)[:, ::-1]

    with pytest.warns(
        UserWarning, match="below the 0.7.* of 'large' alone, whose cost is within"
    ):
        BudgetRouter(Wrong(), costs=COSTS, budget=5).fit(X, Q)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BudgetRouter(Ridge(), costs=COSTS, budget=5).fit(X, Q)
        # Only the cheap choice fits this budget.
        BudgetRouter(Wrong(), costs=COSTS, budget=1).fit(X, Q)


def test_a_regressor_of_one_output_fails_with_advice():
    X, Q = np.arange(40.0)[:, None], np.ones((40, 2))
    single = make_pipeline(StandardScaler(), HistGradientBoostingRegressor())
    router = BudgetRouter(single, costs=[1, 2])
    with pytest.raises(ValueError) as caught:
        router.fit(X, Q)
    assert any("MultiOutputRegressor" in note for note in caught.value.__notes__)
    router.set_params(quality_estimator=MultiOutputRegressor(single)).fit(X, Q)
    # One choice is one output, and a failure of another kind is left alone.
    BudgetRouter(single, costs=[1]).fit(X, Q[:, :1])
    with pytest.raises(ValueError) as caught:
        BudgetRouter(LinearRegression(), costs=[1, 2]).fit([["a"], ["b"]] * 20, Q)
    assert not any("MultiOutputRegressor" in note for note in caught.value.__notes__)


def quoted_log(n_rows, seed):
    """Return rows, qualities, quotes and bills, which are 1.3 times the quotes."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n_rows, 1))
    chance = np.column_stack([1 - X[:, 0], np.full(n_rows, 0.9)])
    Q = (rng.uniform(size=chance.shape) < chance).astype(float)
    size = rng.gamma(3, 1 / 3, (n_rows, 1))
    quotes = size * np.array([1.0, 5.0])
    bills = quotes * rng.gamma(4, 1.3 / 4, chance.shape)
    return X, Q, quotes, bills


def test_rows_are_decided_by_quotes_and_the_budget_is_kept_in_bills():
    X, Q, quotes, bills = quoted_log(4000, seed=0)
    router = BudgetRouter(Ridge(), budget=3.0)
    router.fit(X, Q, costs=bills, quoted_costs=quotes)
    X, Q, quotes, bills = quoted_log(4000, seed=1)
    routed = router.predict_routed(X, quoted_costs=quotes)
    rows = np.arange(4000)
    spent = bills[rows, routed.route].mean()
    assert spent == pytest.approx(3.0, rel=0.06)
    assert routed.cost.mean() == pytest.approx(spent, rel=0.06)
    np.testing.assert_array_equal(routed.quoted_cost, quotes[rows, routed.route])
    # Quotes as if they were the bills overspend by the factor between the two.
    naive = BudgetRouter(Ridge(), budget=3.0).fit(X, Q, costs=quotes)
    overspent = bills[rows, naive.route(X, costs=quotes)].mean()
    assert overspent > 3.5
    single = router.plan_single(X, "choice1", router.make_call(quoted_costs=quotes))
    assert single.cost.mean() == pytest.approx(bills[:, 1].mean(), rel=0.06)
    np.testing.assert_allclose(
        router.bill(single, bills), bills[:, 1], err_msg="nothing is paid for deciding"
    )


def test_a_wrong_mix_of_costs_is_refused():
    X, Q, quotes, bills = quoted_log(200, seed=0)
    with pytest.raises(ValueError, match="price list .* is another one"):
        BudgetRouter(Ridge(), costs=[1, 5]).fit(X, Q, costs=bills, quoted_costs=quotes)
    with pytest.raises(ValueError, match="cost_estimator learns another one"):
        BudgetRouter(Ridge(), cost_estimator=Ridge()).fit(
            X, Q, costs=bills, quoted_costs=quotes
        )
    with pytest.raises(ValueError, match="costs must have the bills"):
        BudgetRouter(Ridge()).fit(X, Q, quoted_costs=quotes)
    with pytest.raises(ValueError, match="quoted_costs must have one cost"):
        BudgetRouter(Ridge()).fit(X, Q, costs=bills, quoted_costs=quotes[:, :1])
    quoted = BudgetRouter(Ridge()).fit(X, Q, costs=bills, quoted_costs=quotes)
    with pytest.raises(ValueError, match="quoted_costs must be given"):
        quoted.predict(X)
    with pytest.raises(ValueError, match="decides by quoted_costs"):
        quoted.predict(X, costs=bills)
    exact = BudgetRouter(Ridge()).fit(X, Q, costs=quotes)
    with pytest.raises(ValueError, match="fitted without them"):
        exact.predict(X, quoted_costs=quotes)
    assert exact.needs_costs_
    assert not quoted.needs_costs_


def test_a_stream_of_quotes_reserves_bounds_and_settles_bills():
    X, Q, quotes, bills = quoted_log(2000, seed=0)
    router = BudgetRouter(Ridge(), budget=3.0)
    router.fit(X, Q, costs=bills, quoted_costs=quotes)
    with pytest.raises(ValueError, match="a cap cannot rest on quotes"):
        router.stream(100.0)
    X, Q, quotes, bills = quoted_log(300, seed=1)
    stream = router.stream(2500.0, n_expected=300, max_costs=[8.0, 90.0])
    spent = 0.0
    for row in range(300):
        ticket = stream.route(X[[row]], costs=quotes[row])
        bill = min(bills[row, ticket.choice], ticket.reserved)
        stream.commit(ticket, cost=bill)
        spent += bill
    assert spent == pytest.approx(stream.status().spent)
    assert spent <= 2500.0
