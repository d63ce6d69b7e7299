"""Features bought a set at a time: limits, paths and what a policy may see."""

import itertools
import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer, roc_auc_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from skroute.gating import SequentialFeatureClassifier
from skroute.gating._stopping import STOP, Policies

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
        feature_groups=GROUPS, feature_costs=COSTS, quality="accuracy", random_state=0
    ).fit(X, y)


@pytest.mark.parametrize("policy", ["online", "batch"])
@pytest.mark.parametrize(
    "limits", [{}, {"max_rounds": 1}, {"max_rounds": 2}, {"max_cost": 3.0}]
)
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


def test_a_policy_sees_only_what_was_bought(model, rows):
    """Other values in what a row does not buy leave its answer as it is."""
    X, rng = rows[2], np.random.default_rng(0)
    for limits in ({"budget": 1.5}, {"budget": 3.0}, {"max_cost": 3.0}):
        bought = model.bought(X, **limits) > 0
        other = np.where(
            bought[:, model.group_of_], X, rng.normal(scale=9, size=X.shape)
        )
        assert_array_equal(model.bought(other, **limits) > 0, bought)
        assert_allclose(
            model.predict_proba(other, **limits), model.predict_proba(X, **limits)
        )


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
    # A frame names the groups it has; what is not boolean is refused, a gap too.
    frame = pd.DataFrame(known[:, [0, 3]], columns=["a", "d"])
    assert_array_equal(
        model.predict_cost(X, known=frame), model.predict_cost(X, known=known)
    )
    for cell in (np.nan, "False", 1):
        gap = frame.assign(d=pd.Series([cell, *known[1:, 3]], dtype=object))
        with pytest.raises(ValueError, match="known must be a table of booleans"):
            model.predict(X, known=gap)
    with pytest.raises(ValueError, match="max_rounds must be a whole number"):
        model.predict(X, max_rounds=1.5)


def test_a_model_of_the_user(rows):
    X, y, X_test, y_test = rows
    tree = DecisionTreeClassifier(max_depth=6, min_samples_leaf=5, random_state=0)
    model = SequentialFeatureClassifier(tree, quality="accuracy", random_state=0).fit(
        X, y
    )
    alone = tree.fit(X, y).score(X_test, y_test)
    assert model.score(X_test, y_test) > alone - 0.03 > 0.7
    with pytest.raises(ValueError, match="NaN") as caught:
        SequentialFeatureClassifier(LogisticRegression(), random_state=0).fit(X, y)
    assert "in fit of 'estimator'" in str(caught.value.__notes__)


@pytest.mark.slow
def test_fresh_rows_spend_a_budget_behind_a_category():
    """Three levels, two of which say little; 1.0 was spent of 1.2, and 1.33 of 1.5."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 3, 3000), rng.integers(0, 2, 3000)]).astype(
        float
    )
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


def test_policies_are_those_of_brute_force():
    """Two bins, three nested sets: at each price the best of all tables of where to go."""
    rng = np.random.default_rng(0)
    n = 50
    sets = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=bool)
    costs = np.array([0.0, 1.0, 3.0])
    for _ in range(20):
        key = np.tile(np.linspace(0, 1, n), (3, 1))
        bins = (np.arange(n) >= 25).astype(int)
        value = np.cumsum(rng.normal(0.3, 1, (3, 2)), axis=0)[
            :, bins
        ] + 0.1 * rng.random((3, n))
        given = value, key, sets, costs, np.ones(3, dtype=bool)
        policies = Policies.learn(*given, None, np.ones(n))
        ends = policies.ends(key)[:, 0]
        tables = list(
            itertools.product((STOP, 1, 2), (STOP, 1, 2), (STOP, 2), (STOP, 2))
        )
        for at, price in enumerate(policies.prices[:-1]):
            best = -np.inf
            for low, high, low_next, high_next in tables:
                first = np.where(bins == 1, high, low)
                then = np.where(bins == 1, high_next, low_next)
                end = np.where(
                    first == STOP, 0, np.where((first == 1) & (then == 2), 2, first)
                )
                best = max(best, (value[end, np.arange(n)] - price * costs[end]).mean())
            own = (value[ends[at], np.arange(n)] - price * costs[ends[at]]).mean()
            assert own == pytest.approx(best, abs=1e-9)
        assert (ends[-1] == 0).all()
        # With one purchase left of two, the best single move of each bin.
        limited = Policies.learn(*given, 2, np.ones(n))
        for price, ends in zip(limited.prices[:-1], limited.ends(key, 1)[:, 0]):
            worth = value - price * costs[:, None]
            best = np.mean(
                [worth[:, bins == half].mean(axis=1).max() for half in (0, 1)]
            )
            assert worth[ends, np.arange(n)].mean() == pytest.approx(best, abs=1e-9)


def rare(n=3000, seed=3):
    """A tenth is positive; form and blood say much, and the panel that says most is dear."""
    X, y = make_classification(
        2 * n, n_features=8, n_informative=7, n_redundant=1, weights=[0.9], flip_y=0.02,
        class_sep=0.9, n_clusters_per_class=3, random_state=seed,
    )  # fmt: skip
    return X[:n], y[:n], X[n:], y[n:]


PANELS = {"form": [0, 1], "blood": [2, 3], "scan": [4, 5], "gene": [6, 7]}
PRICES = {"form": 1, "blood": 3, "scan": 6, "gene": 10}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in (1, 2))]
)
def test_rare_positives_are_bought_for(seed):
    """What a budget pays for is bought, and it ranks as the same spent on one set for all does."""
    from lightgbm import LGBMClassifier

    X, y, X_test, y_test = rare(1500)
    model = SequentialFeatureClassifier(
        feature_groups=PANELS, feature_costs=PRICES, random_state=seed
    ).fit(X, y)
    price_and_auc = []
    for names in (
        names for k in (1, 2, 3) for names in itertools.combinations(PANELS, k)
    ):
        columns = [column for name in names for column in PANELS[name]]
        alone = LGBMClassifier(verbose=-1, n_jobs=1).fit(X[:, columns], y)
        auc = roc_auc_score(y_test, alone.predict_proba(X_test[:, columns])[:, 1])
        price_and_auc.append((sum(PRICES[name] for name in names), auc))
    for budget in (4, 7, 10):
        cost = model.predict_cost(X_test, budget=budget).mean()
        auc = roc_auc_score(y_test, model.predict_proba(X_test, budget=budget)[:, 1])
        assert 0.9 * budget < cost < 1.1 * budget
        assert (
            auc > max(other for price, other in price_and_auc if price <= budget) - 0.01
        )


def test_where_nothing_is_bought_it_is_said():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    with pytest.warns(
        UserWarning, match="Nothing is bought within budget=0.5: the cheapest set"
    ):
        model = SequentialFeatureClassifier(budget=0.5, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="costs 1 for each row. Raise budget"):
        assert model.predict_cost(X).max() == 0
    with pytest.warns(UserWarning, match="Nothing is bought"):
        model.predict(X, budget=0.9)
    _, y_rare = rare()[:2]
    with pytest.warns(
        UserWarning, match="no set of groups within it raised quality='accuracy'"
    ):
        noise = rng.normal(size=(len(y_rare), 2))
        SequentialFeatureClassifier(budget=1, quality="accuracy", random_state=0).fit(
            noise, y_rare
        )


@pytest.mark.parametrize(
    "quality",
    ["log_loss", "matrix"]
    + [
        pytest.param(q, marks=pytest.mark.slow)
        for q in ("accuracy", "brier", "balanced_accuracy")
    ],
)
def test_what_is_bought_is_chosen_by_the_quality_asked_for(quality):
    """Its value on held-out rows is that of fresh ones, at what the budget buys."""
    X, y, X_test, y_test = rare(2000)
    given = {"matrix": [[0.0, 1.0], [9.0, 0.0]]}.get(quality, quality)
    model = SequentialFeatureClassifier(
        GaussianNB(), budget=2, quality=given, random_state=0
    ).fit(X, y)
    point = model.operating_point()
    proba = model.predict_proba(X_test)
    response = proba if quality in ("brier", "log_loss") else proba.argmax(axis=1)
    realised = model._bound.of(y_test, response).mean()
    assert realised == pytest.approx(point.quality, abs=5 * point.quality_se + 0.02)


def of_labels(y_true, y_pred):
    return (y_true == y_pred) * np.where(y_true == 1, 9.0, 1.0)


def of_probabilities(y_true, proba):
    return proba[np.arange(len(proba)), y_true]


@pytest.mark.parametrize(
    "quality",
    [[[0.0, 1.0], [9.0, 0.0]], of_labels, ("predict_proba", of_probabilities)],
    ids=["matrix", "labels", "probabilities"],
)
def test_a_fitted_model_is_pickled_whatever_the_quality(quality, rows):
    """A cost matrix and a function were kept as closures, which no pickle takes."""
    X, y, X_test, _ = rows
    model = SequentialFeatureClassifier(quality=quality, random_state=0).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    for budget in (1.5, 3, None):
        assert_array_equal(
            model.bought(X_test, budget=budget), again.bought(X_test, budget=budget)
        )


def test_a_scorer_chooses_the_first_set():
    """Of all candidates at a budget the one that is best by it on the held-out rows."""
    X, y, X_test, y_test = rare(1200)
    told = np.where(y == 1, "ill", "well")
    groups = {"feature_groups": PANELS, "feature_costs": PRICES, "random_state": 0}
    groups["estimator"] = GaussianNB()
    named = SequentialFeatureClassifier(quality="average_precision", **groups)
    with pytest.raises(ValueError, match="pos_label"):
        named.fit(X, told)
    model = SequentialFeatureClassifier(quality="roc_auc", **groups).fit(X, told)
    point = model.operating_point(4)
    auc = roc_auc_score(y_test, model.predict_proba(X_test, budget=4)[:, 0])
    assert auc == pytest.approx(point.quality, abs=0.06) and 0 < point.quality_se < 0.1
    assert 3.6 < model.predict_cost(X_test, budget=4).mean() < 4.4
    by_hand = SequentialFeatureClassifier(quality=get_scorer("roc_auc"), **groups).fit(
        X, told
    )
    assert by_hand.operating_point(4) == point
    few = SequentialFeatureClassifier(quality="roc_auc", **groups)
    with pytest.raises(ValueError, match="rows of every class in each half"):
        few.fit(X[:30], np.arange(30) < 2)
    with pytest.raises(ValueError, match="is none of"):
        SequentialFeatureClassifier(quality="roc").fit(X, y)


def test_rows_of_no_weight_leave_no_trace(rows):
    """Labels that are wrong and features that would shift every bin, at weight 0."""
    X, y, X_test, _ = rows
    X, y, X_test = X[:200, :3], y[:200], X_test[:, :3]
    apart = SequentialFeatureClassifier(random_state=0).fit(X, y, np.full(200, 3.0))
    together = SequentialFeatureClassifier(random_state=0).fit(
        np.vstack([X, X + 50]), np.concatenate([y, 1 - y]), np.repeat([3.0, 0.0], 200)
    )
    for budget in (1, 2.5):
        expected = apart.predict_proba(X_test, budget=budget)
        assert_array_equal(together.predict_proba(X_test, budget=budget), expected)


def test_weights_say_what_is_frequent():
    """Rows of a feature that says the label, and rows where another does and that are heavy."""
    X = np.random.default_rng(0).normal(size=(900, 2))
    of_first = np.arange(900) % 2 == 0
    y = np.where(of_first, X[:, 0] > 0, X[:, 1] > 0).astype(int)
    for weight, first in (
        (np.where(of_first, 1, 0.1), [0]),
        (np.where(of_first, 0.1, 1), [1]),
    ):
        for own in (None, LogisticRegression()):
            model = SequentialFeatureClassifier(own, max_rounds=1, random_state=0)
            assert model.fit(X, y, weight).operating_point(1).first == first
    with pytest.raises(ValueError, match="does not take it"):
        SequentialFeatureClassifier(KNeighborsClassifier()).fit(X, y, weight)


@pytest.mark.slow
def test_rows_that_choose_do_not_say_how_good_the_choice_is():
    """Labels that are coins: the quality of the point is a half."""
    told = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(150, 5)), rng.integers(0, 2, 150)
        model = SequentialFeatureClassifier(quality="accuracy", random_state=seed).fit(
            X, y
        )
        told.append(model.operating_point(3).quality)
    assert abs(np.mean(told) - 0.5) < 3 * np.std(told) / np.sqrt(len(told)) + 0.01
