"""Features bought one group at a time: limits, paths and what a policy may see."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from skroute.gating._acquirer import walk
from skroute.gating._points import HeldOut, Limits, Outcome

from skroute.features import LazyFeatures
from skroute.gating import SequentialFeatureClassifier, _acquirer
from skroute.gating._stopping import learn_stopping, price_of_budget, spend_budget, stops
from tests.gating.test_linear import raw_frame

COSTS = {"a": 1.0, "b": 2.0, "c": 0.0, "d": 3.0}
GROUPS = {"a": [0, 1], "b": [2], "c": [3], "d": [4, 5]}


@pytest.fixture(scope="module")
def rows():
    X, y = make_classification(
        900, n_features=6, n_informative=5, n_redundant=0, class_sep=0.9, random_state=3
    )
    X[np.random.default_rng(0).random(X.shape) < 0.05] = np.nan
    return X[:500], y[:500], X[500:], y[500:]


@pytest.fixture(scope="module")
def model(rows):
    X, y, _, _ = rows
    return SequentialFeatureClassifier(
        feature_groups=GROUPS, feature_costs=COSTS, random_state=0
    ).fit(X, y)


def test_a_policy_sees_only_what_was_bought(model, rows):
    """Other values in what a path has not bought leave the path as it is."""
    X = rows[2][:60]
    rng = np.random.default_rng(0)
    groups = model._groups
    for name, policy in model._learned.policies.items():
        free = ~groups.priced
        bought = walk(policy, X, free, 3).bought
        for step in range(1, 3):
            known = np.tile(free, (len(X), 1))
            for at in range(step):
                known[np.arange(len(X)), bought[:, at]] = True
            hidden = ~known[:, groups.group_of]
            garbled = np.where(hidden, rng.normal(scale=9, size=X.shape), X)
            again = walk(policy, garbled, free, step + 1).bought
            np.testing.assert_array_equal(again, bought[:, : step + 1], err_msg=name)


@pytest.mark.parametrize("policy", ["online", "batch"])
@pytest.mark.parametrize("limits", [{}, {"max_rounds": 1}, {"max_rounds": 2}, {"max_cost": 3.0}])
def test_limits_hold_on_every_row(model, rows, policy, limits):
    X = rows[2]
    model.set_params(policy=policy)
    try:
        for budget in (0, 0.7, 1.5, 3, 4.5, None):
            routed = model.predict_routed(X, budget=budget, **limits)
            rounds = model.bought(X, budget=budget, **limits)
            np.testing.assert_allclose(routed.cost, (rounds > 0) @ model.group_costs_)
            assert routed.cost.max() <= limits.get("max_cost", np.inf)
            assert rounds.max() <= max(limits.get("max_rounds", np.inf), 1)
            if policy == "batch" and budget is not None:
                assert routed.cost.mean() <= budget * (1 + 1e-9)
    finally:
        model.set_params(policy="online")


def test_no_purchase_and_all_purchases(model, rows):
    X = rows[2]
    assert model.predict_cost(X, max_rounds=0).max() == 0
    assert model.predict_cost(X, budget=0).max() == 0
    point = model.operating_point(max_cost=6.0)
    assert point.cost <= 6 and 0 < point.quality <= 1 and point.quality_std_error > 0


@pytest.mark.parametrize("budget", [1.0, 2.5, None])
def test_what_is_fetched_is_what_is_paid(model, rows, budget):
    """The source's own count of fetched cells is `predict_cost`, row by row; nothing is
    fetched twice, and the answers are those of the table."""
    X = rows[2][:120]
    fetched = np.zeros(X.shape, dtype=int)

    def source(columns, at):
        fetched[np.ix_(at, columns)] += 1
        return X[np.ix_(at, columns)]

    routed = model.predict_routed(LazyFeatures(source, n_samples=len(X)), budget=budget)
    expected = model.predict_routed(X, budget=budget)
    assert fetched.max() <= 1
    for own, theirs in zip(routed, expected):
        np.testing.assert_array_equal(own, theirs)
    paid = sum(cost * fetched[:, GROUPS[name]].any(axis=1) for name, cost in COSTS.items())
    np.testing.assert_allclose(paid, routed.cost)


def test_what_is_known_is_not_paid_for(model, rows):
    X = rows[2]
    known = np.zeros((len(X), 4), dtype=bool)
    known[::2, [0, 3]] = True
    rounds = model.bought(X, known=known)
    assert not rounds[known].any()
    everything = model.predict_cost(X, known=np.ones_like(known))
    assert everything.max() == 0
    # What is known helps: all is known of every row, at no cost.
    free = model.score(X, rows[3], budget=0, known=np.ones_like(known))
    assert free > model.score(X, rows[3], budget=0) + 0.1
    with pytest.raises(ValueError, match="known must be a table of booleans"):
        model.predict(X, known=known[:, :2])
    with pytest.raises(ValueError, match="max_rounds must be a whole number"):
        model.predict(X, max_rounds=1.5)


def test_a_model_of_the_user(rows):
    from sklearn.ensemble import HistGradientBoostingClassifier

    X, y, X_test, y_test = rows
    forest = HistGradientBoostingClassifier(max_iter=20, random_state=0)
    model = SequentialFeatureClassifier(forest, random_state=0).fit(X[:250], y[:250])
    assert model.score(X_test, y_test) > 0.75
    with pytest.raises(ValueError, match="NaN") as caught:
        SequentialFeatureClassifier(LogisticRegression(), random_state=0).fit(X, y)
    assert "in fit of 'estimator'" in str(caught.value.__notes__)


def test_the_table_stops_where_going_on_gains_nothing():
    """Half of the paths gain from one purchase, and their confidence tells them apart."""
    n = 400
    sure = np.arange(n) % 2 == 0
    value = np.column_stack([np.where(sure, 0.95, 0.5), np.where(sure, 0.95, 0.9)])
    costs = np.ones((n, 1))
    table = learn_stopping(value, costs)
    reach = table.prices(np.zeros(n, dtype=int), value[:, 0])
    assert (reach[~sure] > 0.3).all() and (reach[sure] < 0.5 * reach[~sure].min()).all()
    price = price_of_budget(reach[:, None], costs, 0.5)
    assert stops(reach[:, None], price).mean() == 0.5


def test_the_price_is_the_lowest_within_the_budget():
    """Against all prices tried one by one."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        reach, costs = rng.random((30, 4)), rng.random((30, 4))
        total = np.column_stack([np.zeros(30), np.cumsum(costs, axis=1)])
        budget = total[:, -1].mean() * rng.random()
        price = price_of_budget(reach, costs, budget)

        def spent(price, reach=reach, total=total):
            return total[np.arange(30), stops(reach, price)].mean()

        assert spent(price) <= budget
        lower = np.unique(reach)[np.unique(reach) < price]
        assert all(spent(p) > budget or spent(p) == spent(price) for p in lower[-1:])


def test_a_budget_is_spent_where_many_rows_reach_up_to_one_price():
    """Sixty rows of a hundred want to go on at once, and the budget does not pay for them."""
    reach = np.column_stack([np.full(100, 5.0), np.full(100, 2.0)])
    reach[60:, 1] = np.linspace(0.1, 1.0, 40)
    costs = np.ones((100, 2))
    assert price_of_budget(reach, costs, 1.2) == 2.0
    price, barred, share, kept = spend_budget(reach, costs, 1.2)
    assert barred == (2.0,) and share == 0 and stops(kept, price).mean() == 1.2
    # Where the budget pays for them nothing is barred.
    price, barred, *_ = spend_budget(reach, costs, 1.7)
    assert barred == () and stops(reach, price).mean() == pytest.approx(1.7, abs=0.011)


def test_a_budget_is_spent_behind_a_category_of_few_levels():
    """A third of the rows each reach up to three prices, and none of them can be paid for whole."""
    reach = np.column_stack([np.full(300, 9.0), np.tile([3.0, 2.0, 1.0], 100)])
    for budget, price, share in ((1.2, 3.0, 0.6), (1.5, 2.0, 0.5), (1.9, 1.0, 0.7)):
        found = spend_budget(reach, np.ones((300, 2)), budget)
        assert found.price == price and found.share == pytest.approx(share)
        assert stops(found.reach, price).mean() == pytest.approx(budget, abs=0.01)


def test_fresh_rows_spend_a_budget_behind_a_category():
    """Three levels, two of which say little; 1.0 was spent of 1.2, and 1.33 of 1.5."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 3, 3000), rng.integers(0, 2, 3000)]).astype(float)
    level = X[:, 0].astype(int)
    y = (rng.random(3000) < np.array([0.1, 0.5, 0.8])[level]).astype(int)
    told = rng.random(3000) < np.array([0.0, 0.7, 0.6])[level]
    y[told] = X[told, 1]
    model = SequentialFeatureClassifier(random_state=0).fit(X[:1200], y[:1200])
    for budget in (1.2, 1.4, 1.5, 1.8):
        cost = model.predict_cost(X[1200:], budget=budget)
        # The shares of the levels differ by chance: those of 300 held-out rows by .027.
        assert cost.mean() == pytest.approx(budget, abs=0.06)
        assert 0 < model.operating_point(budget).share < 1


def test_what_an_order_buys_for_all_rows_is_answered_by_the_model_of_its_set():
    """Unless that is surely worse, by two standard errors."""

    class Told(HeldOut):
        def outcomes(self, limits):
            return self.paths

    for n_more, chosen in ((6, "static sets"), (20, "static order")):
        right = np.ones((2, 400), dtype=bool)
        right[0, : 25 - n_more // 2], right[1, 25 - n_more // 2 : 50] = False, False
        order, own = right
        alike = [
            Outcome("static order", 1, 0.0, np.ones(400), order),
            Outcome("static sets", 1, -1.0, np.ones(400), own),
        ]
        parted = [alike[0]._replace(cost=np.arange(400) % 2), alike[1]]
        limits = Limits(np.inf, np.inf, np.inf)
        assert Told(alike, {}, None).choose(limits).candidate == chosen
        assert Told(parted, {}, None).choose(limits).candidate == "static order"


def test_held_out_rows_choose_the_depth_of_a_set(monkeypatch):
    """Of many rows a set has two models, and the one that is right more often is kept."""
    monkeypatch.setattr(_acquirer, "LARGE", 200)
    asked = []

    class Constant(NamedTuple):
        size: int
        deep: bool

        def proba(self, X):
            # Class 0 is the more frequent one: of four columns the deep model is wrong more often.
            wrong = self.deep == (self.size == 4)
            return np.tile([0.4, 0.6] if wrong else [0.6, 0.4], (len(X), 1))

    def fit_set(task, columns, deep=False):
        asked.append((len(columns), deep))
        return Constant(len(columns), deep)

    monkeypatch.setattr(_acquirer.Task, "fit_set", fit_set)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    y = (X[:, 0] + rng.normal(size=400) > -1).astype(int)
    model = SequentialFeatureClassifier(random_state=0).fit(X, y)
    assert {size for size, deep in asked if deep} == {3, 4, 5, 6}
    kept = {size: own.deep for size, own in model._learned.sets.items()}
    assert kept == {1: False, 2: False, 3: True, 4: False, 5: True, 6: True}


def test_rows_that_choose_between_two_models_do_not_judge_them():
    rng = np.random.default_rng(0)
    draws = rng.random((2000, 2, 40)) < 0.5
    judged = np.array([_acquirer.better_of(right).mean() for right in draws])
    # Two coins: what the better one has on the rows that chose it is above a half.
    assert draws.mean(axis=2).max(axis=1).mean() > 0.54
    assert abs(judged.mean() - 0.5) < 3 * judged.std() / np.sqrt(len(judged))
    sure = np.array([np.zeros(40, dtype=bool), np.ones(40, dtype=bool)])
    assert _acquirer.better_of(sure).all() and not _acquirer.better_of(sure[[0, 0]]).any()


def test_frames_with_categories_are_read_as_they_are():
    """Also late, from a source that returns frames; an unknown category is a missing value."""
    import pandas as pd
    import polars as pl

    rng = np.random.default_rng(0)
    n = 300
    frame = pd.DataFrame(
        {
            "ward": rng.choice(["er", "onco", "general"], n),
            "sex": pd.Categorical(rng.choice(["f", "m"], n)),
            "bp": rng.normal(size=n),
        }
    )
    y = np.where((frame["ward"] == "er") ^ (rng.random(n) < 0.1), "sick", "well")
    frame.loc[rng.random(n) < 0.1, "ward"] = None
    costs = {"ward": 1, "sex": 2, "bp": 3}
    model = SequentialFeatureClassifier(feature_costs=costs, random_state=0)
    model.fit(frame[:200], y[:200])
    rows = frame[200:].reset_index(drop=True)
    routed = model.predict_routed(rows, max_cost=1)
    assert (routed.y_pred == y[200:]).mean() > 0.75

    def source(columns, at):
        return rows.iloc[at][columns]

    late = model.predict_routed(LazyFeatures(source, n_samples=len(rows)), max_cost=1)
    same = model.predict_routed(pl.from_pandas(rows), max_cost=1)
    for found in (late, same):
        np.testing.assert_array_equal(found.y_pred, routed.y_pred)
        np.testing.assert_array_equal(found.cost, routed.cost)
    rows.loc[0, "ward"] = "unheard of"
    model.predict(rows)


def test_rows_that_pick_a_candidate_do_not_say_how_good_it_is():
    """Candidates that are coins: the quality told is a half, that of the winner is more."""

    class Coins(HeldOut):
        def outcomes(self, limits):
            return self.paths

    told, best = np.empty(200), np.empty(200)
    for seed in range(200):
        right = np.random.default_rng(seed).random((6, 100)) < 0.5
        coins = [Outcome(str(i), 1, 0.0, np.ones(100), right[i]) for i in range(6)]
        told[seed] = Coins(coins, {}, None).choose(Limits(np.inf, np.inf, np.inf)).quality
        best[seed] = right.mean(axis=1).max()
    error = told.std() / np.sqrt(200)
    assert abs(told.mean() - 0.5) < 3 * error < best.mean() - 0.5


@pytest.mark.parametrize("n_more, chosen", [(2, "static order"), (12, "nearest rows")])
def test_where_rows_are_many_a_policy_that_adapts_must_surely_lead(n_more, chosen):
    """They differ on 50 rows; without the rule the one that is right once more is taken."""

    class Told(HeldOut):
        def outcomes(self, limits):
            return self.paths

    order, nearest = np.ones((2, 400), dtype=bool)
    order[: 25 + n_more // 2], nearest[25 + n_more // 2 : 50] = False, False
    found = [
        Outcome("static order", 1, 0.0, np.ones(400), order),
        Outcome("nearest rows", 1, 0.0, np.ones(400), nearest),
    ]
    limits = Limits(np.inf, np.inf, np.inf)
    assert Told(found, {}, None, 0.5).choose(limits).candidate == chosen
    assert Told(found, {}, None).choose(limits).candidate == "nearest rows"


@pytest.mark.parametrize("cell", [np.nan, "False", 3.2, 1])
def test_known_of_a_frame_is_booleans(model, rows, cell):
    X = rows[2][:2]
    names = model.group_names_
    frame = pd.DataFrame({names[0]: [True, False], names[1]: pd.Series([cell, True], dtype=object)})
    with pytest.raises(ValueError, match="known must be a table of booleans"):
        model.predict(X, known=frame)
    whole = np.zeros((2, len(names)), dtype=bool)
    whole[0, 0] = whole[:, 1] = True
    np.testing.assert_array_equal(
        model.predict_cost(X, known=frame.assign(**{names[1]: [True, True]})),
        model.predict_cost(X, known=whole),
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_answers_do_not_depend_on_the_names_of_labels(n_classes):
    """Names, and with them the order of the classes, turn nothing but the answers' names."""
    frame, y = raw_frame(240, 3)
    y = np.where((y == "ill") & (frame["lab"] > 1), 2, y == "ill") if n_classes == 3 else y == "ill"
    y = y.astype(int)
    found = []
    for names in (np.array(["b", "a", "c"]), np.array([-1, 7, 3])):
        own = SequentialFeatureClassifier(random_state=0).fit(frame[:200], names[y[:200]])
        columns = np.searchsorted(own.classes_, names[: y.max() + 1])
        for limits in ({"budget": 1.5}, {"max_cost": 2}, {}):
            routed = own.predict_routed(frame[200:], **limits)
            proba = own.predict_proba(frame[200:], **limits)
            assert_array_equal(own.classes_[proba.argmax(axis=1)], routed.y_pred)
            codes = (routed.y_pred[:, None] == names).argmax(axis=1)
            found.append((codes, routed.cost, proba[:, columns]))
    for one, other in zip(found[:3], found[3:]):
        for a, b in zip(one, other):
            assert_array_equal(a, b)
