"""Features bought a set at a time: limits, paths, and values that a policy may see."""

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

from skroute.assignment._induction import STOP
from skroute.gating import SequentialFeatureClassifier
from skroute.gating._induction import (
    ANSWER_PRICES,
    AnswerState,
    LeafState,
    Shown,
    learn_policies,
    price_grid,
)

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
    """Other values in columns that a row does not buy leave its answer as it is."""
    X = rows[2]
    rng = np.random.default_rng(0)
    for limits in ({"budget": 1.5}, {"budget": 3.0}, {"max_cost": 3.0}):
        bought = model.bought(X, **limits) > 0
        noise = rng.normal(scale=9, size=X.shape)
        other_X = np.where(bought[:, model.group_of_], X, noise)
        assert_array_equal(model.bought(other_X, **limits) > 0, bought)
        expected = model.predict_proba(X, **limits)
        assert_allclose(model.predict_proba(other_X, **limits), expected)


def test_what_is_known_is_not_paid_for(model, rows):
    X = rows[2]
    known = np.zeros((len(X), 4), dtype=bool)
    known[::2, [0, 3]] = True
    rounds = model.bought(X, known=known)
    assert not rounds[known].any()
    all_known = np.ones_like(known)
    assert model.predict_cost(X, known=all_known).max() == 0
    # Known groups help without a budget.
    score_of_known = model.score(X, rows[3], budget=0, known=all_known)
    assert score_of_known > model.score(X, rows[3], budget=0) + 0.1
    with pytest.raises(ValueError, match="known must be a table of booleans"):
        model.predict(X, known=known[:, :2])
    # A frame has columns for some groups. Cells must be booleans, and not missing.
    frame = pd.DataFrame(known[:, [0, 3]], columns=["a", "d"])
    assert_array_equal(
        model.predict_cost(X, known=frame), model.predict_cost(X, known=known)
    )
    for cell in (np.nan, "False", 1):
        column = pd.Series([cell, *known[1:, 3]], dtype=object)
        with pytest.raises(ValueError, match="known must be a table of booleans"):
            model.predict(X, known=frame.assign(d=column))
    with pytest.raises(ValueError, match="max_rounds must be a whole number"):
        model.predict(X, max_rounds=1.5)


def test_a_model_of_the_user(rows):
    X, y, X_test, y_test = rows
    tree = DecisionTreeClassifier(max_depth=6, min_samples_leaf=5, random_state=0)
    model = SequentialFeatureClassifier(tree, quality="accuracy", random_state=0)
    model.fit(X, y)
    score_of_tree = tree.fit(X, y).score(X_test, y_test)
    assert score_of_tree > 0.73
    assert model.score(X_test, y_test) > score_of_tree - 0.03
    with pytest.raises(ValueError, match="NaN") as caught:
        SequentialFeatureClassifier(LogisticRegression(), random_state=0).fit(X, y)
    assert "in fit of 'estimator'" in str(caught.value.__notes__)


@pytest.mark.slow
def test_fresh_rows_spend_a_budget_behind_a_category():
    """A budget is spent if few levels of a category decide what is bought next.

    Of a budget of 1.2 only 1.0 was spent, and 1.33 of 1.5.
    """
    rng = np.random.default_rng(0)
    level = rng.integers(0, 3, 3000)
    second = rng.integers(0, 2, 3000)
    X = np.column_stack([level, second]).astype(float)
    y = (rng.random(3000) < np.array([0.1, 0.5, 0.8])[level]).astype(int)
    # The second column has the label of some rows, by level.
    is_revealed = rng.random(3000) < np.array([0.0, 0.7, 0.6])[level]
    y[is_revealed] = second[is_revealed]
    model = SequentialFeatureClassifier(random_state=0).fit(X[:1200], y[:1200])
    for budget in (1.2, 1.4, 1.5, 1.8):
        cost = model.predict_cost(X[1200:], budget=budget)
        # The shares of the levels differ by chance: those of 300 held-out rows by .027.
        assert cost.mean() == pytest.approx(budget, abs=0.06)
        assert 0 < model.operating_point(budget).share < 1


def best_value_of_tables(value, bins, price, costs):
    """Return the best mean value less cost over all tables of where rows go on to.

    There are three nested sets and two bins. A row of the first set stops or goes on to
    the second or third, by its bin. A row of the second stops or goes on to the third.
    """
    rows = np.arange(value.shape[1])
    tables = itertools.product((STOP, 1, 2), (STOP, 1, 2), (STOP, 2), (STOP, 2))
    best = -np.inf
    for low, high, low_next, high_next in tables:
        first_move = np.where(bins == 1, high, low)
        second_move = np.where(bins == 1, high_next, low_next)
        ends_at_third = (first_move == 1) & (second_move == 2)
        end = np.where(ends_at_third, 2, first_move)
        end[first_move == STOP] = 0
        best = max(best, (value[end, rows] - price * costs[end]).mean())
    return best


def shown_by(key):
    """Return what rows of one number each have shown."""
    proba = np.column_stack([1 - key, key])
    return Shown(np.empty((len(key), 0)), proba, key)


def ends_of_new_rows(policies, key, n_left=None):
    """Return where rows end from the first set, (n_prices, n_rows), by the tables."""
    n_prices = len(policies.prices)
    ends = np.zeros((n_prices, len(key)), dtype=int)
    left = n_left
    while left != 0:
        moved = ends.copy()
        for start in np.unique(ends):
            go = policies.expect(start, shown_by(key), left).go.T
            is_here = (ends == start) & (go != STOP)
            moved[is_here] = go[is_here]
        if (moved == ends).all():
            break
        ends = moved
        left = None if left is None else left - 1
    return ends


@pytest.mark.parametrize(("noise", "tolerance"), [(0.0, 1e-5), (0.1, 0.01)])
def test_policies_are_those_of_brute_force(noise, tolerance):
    """At each price a policy has the value of the best table of where rows go on to.

    With noise, no row counts itself, so that rows at the margin may differ.
    """
    rng = np.random.default_rng(0)
    n = 50
    rows = np.arange(n)
    sets = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=bool)
    costs = np.array([0.0, 1.0, 3.0])
    key = np.linspace(0, 1, n)
    bins = (rows >= 25).astype(int)
    weight = np.ones(n)

    def learn(value, n_rounds):
        return learn_policies(
            value,
            [AnswerState(key) for _ in sets],
            sets,
            costs,
            prices=price_grid(value.mean(axis=1), costs, ANSWER_PRICES),
            allowed=np.ones(3, dtype=bool),
            n_rounds=n_rounds,
            weight=weight,
        )

    for _ in range(20):
        value_of_bin = np.cumsum(rng.normal(0.3, 1, (3, 2)), axis=0)
        value = value_of_bin[:, bins] + noise * rng.random((3, n))
        policies = learn(value, None)
        ends = ends_of_new_rows(policies, key)
        for price, end in zip(policies.prices[:-1], ends):
            realised = (value[end, rows] - price * costs[end]).mean()
            best = best_value_of_tables(value, bins, price, costs)
            assert realised == pytest.approx(best, abs=tolerance * (1 + price))
        # At the last price nothing is bought.
        assert (ends[-1] == 0).all()
        # With one purchase left of two, the best single move of each bin.
        limited = learn(value, 2)
        ends = ends_of_new_rows(limited, key, n_left=1)
        for price, end in zip(limited.prices[:-1], ends):
            net_value = value - price * costs[:, None]
            best_of_bins = [
                net_value[:, bins == half].mean(axis=1).max() for half in (0, 1)
            ]
            realised = net_value[end, rows].mean()
            best = np.mean(best_of_bins)
            assert realised == pytest.approx(best, abs=tolerance * (1 + price))


@pytest.mark.parametrize("kind", ["answers", "leaves"])
def test_no_row_counts_in_its_own_expectation(kind):
    """The expectation of a row is the mean of the other rows of its cells."""
    rng = np.random.default_rng(0)
    n = 400
    key = rng.random(n)
    weight = rng.uniform(0.5, 2, n)
    lead = rng.normal(size=(n, 3))
    shown = Shown(rng.normal(size=(n, 2)), np.column_stack([1 - key, key]), key)
    if kind == "answers":
        state = AnswerState(key)
    else:
        state = LeafState(shown, lead, weight)
    cell_means, expected = state.means(lead.astype(np.float32), weight)
    cells = state.cells(shown).toarray()
    np.testing.assert_allclose(cells.sum(axis=1), 1, rtol=1e-5)
    for row in range(0, n, 37):
        changed = lead.copy()
        changed[row] += 1e3
        _, of_changed = state.means(changed.astype(np.float32), weight)
        np.testing.assert_allclose(of_changed[row], expected[row], atol=2e-3)
    # New rows have the means of all rows of their cells. A row expects something of
    # trees only that were not grown on it.
    if kind == "leaves":
        members = cells > 0
        brute = (members.T @ (weight[:, None] * lead)) / np.maximum(
            members.T @ weight, 1e-9
        )[:, None]
        np.testing.assert_allclose(cell_means, brute, atol=1e-4)
        honest = state.honest_cells().toarray() > 0
        assert 0 < honest.sum() < 0.8 * members.sum()
        assert not (honest & ~members).any()
        for row in range(0, n, 37):
            others = np.arange(n) != row
            means = []
            for cell in np.flatnonzero(honest[row]):
                rows = others & members[:, cell]
                means.append(np.average(lead[rows], axis=0, weights=weight[rows]))
            np.testing.assert_allclose(expected[row], np.mean(means, axis=0), atol=1e-4)


def rare(n=3000, seed=3):
    """Return rows of which a tenth is positive, and as many test rows.

    The cheap panels are informative. The most informative panel is the most expensive.
    """
    X, y = make_classification(
        2 * n,
        n_features=8,
        n_informative=7,
        n_redundant=1,
        weights=[0.9],
        flip_y=0.02,
        class_sep=0.9,
        n_clusters_per_class=3,
        random_state=seed,
    )
    return X[:n], y[:n], X[n:], y[n:]


PANELS = {"form": [0, 1], "blood": [2, 3], "scan": [4, 5], "gene": [6, 7]}
PRICES = {"form": 1, "blood": 3, "scan": 6, "gene": 10}


@pytest.mark.parametrize(
    "seed",
    [
        0,
        pytest.param(1, marks=pytest.mark.slow),
        pytest.param(2, marks=pytest.mark.slow),
    ],
)
def test_rare_positives_are_bought_for(seed):
    """A budget is spent, and ranks rows as well as the best fixed set within it."""
    from lightgbm import LGBMClassifier

    X, y, X_test, y_test = rare(1500)
    model = SequentialFeatureClassifier(
        feature_groups=PANELS, feature_costs=PRICES, random_state=seed
    ).fit(X, y)
    auc_of_set = {}
    for n_panels in (1, 2, 3):
        for names in itertools.combinations(PANELS, n_panels):
            columns = [column for name in names for column in PANELS[name]]
            fixed = LGBMClassifier(verbose=-1, n_jobs=1).fit(X[:, columns], y)
            proba = fixed.predict_proba(X_test[:, columns])[:, 1]
            auc_of_set[names] = roc_auc_score(y_test, proba)
    for budget in (4, 7, 10):
        cost = model.predict_cost(X_test, budget=budget).mean()
        assert 0.9 * budget < cost < 1.1 * budget
        best_fixed = 0.0
        for names, auc in auc_of_set.items():
            if sum(PRICES[name] for name in names) <= budget:
                best_fixed = max(best_fixed, auc)
        proba = model.predict_proba(X_test, budget=budget)[:, 1]
        assert roc_auc_score(y_test, proba) > best_fixed - 0.01


def test_where_nothing_is_bought_it_is_said():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = rng.integers(0, 2, 200)
    too_small = "Nothing is bought within budget=0.5: the cheapest set"
    with pytest.warns(UserWarning, match=too_small):
        model = SequentialFeatureClassifier(budget=0.5, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="costs 1 for each row. Raise budget"):
        assert model.predict_cost(X).max() == 0
    with pytest.warns(UserWarning, match="Nothing is bought"):
        model.predict(X, budget=0.9)
    _, y_rare = rare()[:2]
    noise = rng.normal(size=(len(y_rare), 2))
    model = SequentialFeatureClassifier(budget=1, quality="accuracy", random_state=0)
    no_gain = "no set of groups within it raised quality='accuracy'"
    with pytest.warns(UserWarning, match=no_gain):
        model.fit(noise, y_rare)


@pytest.mark.parametrize(
    "quality",
    [
        "log_loss",
        [[0.0, 1.0], [9.0, 0.0]],
        pytest.param("accuracy", marks=pytest.mark.slow),
        pytest.param("brier", marks=pytest.mark.slow),
        pytest.param("balanced_accuracy", marks=pytest.mark.slow),
    ],
)
def test_what_is_bought_is_chosen_by_the_quality_asked_for(quality):
    """The quality at an operating point is that of fresh rows at the same budget."""
    X, y, X_test, y_test = rare(2000)
    model = SequentialFeatureClassifier(
        GaussianNB(), budget=2, quality=quality, random_state=0
    ).fit(X, y)
    point = model.operating_point()
    answers = model.predict_proba(X_test)
    if quality not in ("brier", "log_loss"):
        answers = answers.argmax(axis=1)
    realised = model._objective.of(y_test, answers).mean()
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
    unpickled = pickle.loads(pickle.dumps(model))
    for budget in (1.5, 3, None):
        expected = model.bought(X_test, budget=budget)
        assert_array_equal(unpickled.bought(X_test, budget=budget), expected)


def test_a_scorer_chooses_the_first_set():
    """The first set is the candidate with the best score on the held-out rows."""
    X, y, X_test, y_test = rare(1200)
    labels = np.where(y == 1, "ill", "well")
    params = {
        "estimator": GaussianNB(),
        "feature_groups": PANELS,
        "feature_costs": PRICES,
        "random_state": 0,
    }
    without_label = SequentialFeatureClassifier(quality="average_precision", **params)
    with pytest.raises(ValueError, match="pos_label"):
        without_label.fit(X, labels)
    model = SequentialFeatureClassifier(quality="roc_auc", **params).fit(X, labels)
    point = model.operating_point(4)
    auc = roc_auc_score(y_test, model.predict_proba(X_test, budget=4)[:, 0])
    assert auc == pytest.approx(point.quality, abs=0.06)
    assert 0 < point.quality_se < 0.1
    assert 3.6 < model.predict_cost(X_test, budget=4).mean() < 4.4
    by_scorer = SequentialFeatureClassifier(quality=get_scorer("roc_auc"), **params)
    by_scorer.fit(X, labels)
    assert by_scorer.operating_point(4) == point
    few_positives = SequentialFeatureClassifier(quality="roc_auc", **params)
    with pytest.raises(ValueError, match="rows of every class in each half"):
        few_positives.fit(X[:30], np.arange(30) < 2)
    with pytest.raises(ValueError, match="is none of"):
        SequentialFeatureClassifier(quality="roc").fit(X, y)


def test_rows_of_no_weight_leave_no_trace(rows):
    """Rows of weight 0 have wrong labels, and features that would shift every bin."""
    X = rows[0][:200, :3]
    y = rows[1][:200]
    X_test = rows[2][:, :3]
    without = SequentialFeatureClassifier(random_state=0).fit(X, y, np.full(200, 3.0))
    with_rows = SequentialFeatureClassifier(random_state=0).fit(
        np.vstack([X, X + 50]), np.concatenate([y, 1 - y]), np.repeat([3.0, 0.0], 200)
    )
    for budget in (1, 2.5):
        expected = without.predict_proba(X_test, budget=budget)
        assert_array_equal(with_rows.predict_proba(X_test, budget=budget), expected)


def test_weights_say_what_is_frequent():
    """The first feature has the label of half of the rows, the second of the others."""
    X = np.random.default_rng(0).normal(size=(900, 2))
    is_of_first = np.arange(900) % 2 == 0
    y = np.where(is_of_first, X[:, 0] > 0, X[:, 1] > 0).astype(int)
    heavy_first = np.where(is_of_first, 1, 0.1)
    heavy_second = np.where(is_of_first, 0.1, 1)
    for weight, expected in ((heavy_first, [0]), (heavy_second, [1])):
        for estimator in (None, LogisticRegression()):
            model = SequentialFeatureClassifier(estimator, max_rounds=1, random_state=0)
            model.fit(X, y, weight)
            assert model.operating_point(1).first == expected
    with pytest.raises(ValueError, match="does not take it"):
        SequentialFeatureClassifier(KNeighborsClassifier()).fit(X, y, weight)


@pytest.mark.slow
def test_the_quality_of_an_operating_point_is_that_of_new_rows():
    """Trees of states were grown on the rows that judged them: 0.021 too good."""
    differences = []
    for seed in range(8):
        rng = np.random.default_rng(seed)

        def draw(n_rows, rng=rng):
            X = rng.normal(size=(n_rows, 8))
            log_odds = 1.2 * X[:, 0] + 0.6 * X[:, 1] * (X[:, 0] > 0) + 0.4 * X[:, 2]
            log_odds += 0.3 * X[:, 3] + 0.3 * X[:, 4]
            return X, (rng.random(n_rows) < 1 / (1 + np.exp(-log_odds))).astype(int)

        X, y = draw(3000)
        X_new, y_new = draw(20_000)
        buyer = SequentialFeatureClassifier(budget=4, random_state=seed).fit(X, y)
        proba = buyer.predict_proba(X_new)
        quality = np.log(proba[np.arange(20_000), y_new]).mean()
        differences.append(buyer.operating_point().quality - quality)
    assert abs(np.mean(differences)) < 0.012
    assert np.std(differences, ddof=1) / np.sqrt(8) < 0.008


@pytest.mark.slow
def test_rows_that_choose_do_not_say_how_good_the_choice_is():
    """With random labels, the quality of the operating point is a half.

    Half of the labels are of each class, so that no constant answer is better. If
    held-out rows are answered by models that were tuned on them, the mean is 0.53.
    """
    qualities = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(150, 5))
        y = rng.permutation(np.arange(150) % 2)
        model = SequentialFeatureClassifier(quality="accuracy", random_state=seed)
        model.fit(X, y)
        qualities.append(model.operating_point(3).quality)
    error = np.std(qualities) / np.sqrt(len(qualities))
    assert error < 0.01
    assert abs(np.mean(qualities) - 0.5) < 2 * error


def switch_rows(n, seed):
    """Return rows of Syn1 (SEFA, ICML 2025): the last column decides which matter."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 11))
    low = 4 * X[:, 0] * X[:, 1]
    high = 1.2 * (X[:, 2:6] ** 2).sum(axis=1) - 4.2
    score = np.where(X[:, 10] < 0, low, high)
    y = (rng.random(n) < 1 / (1 + np.exp(np.clip(score, -500, 500)))).astype(int)
    return X, y


@pytest.fixture(scope="module")
def switched():
    X, y = switch_rows(6000, seed=7)
    return SequentialFeatureClassifier(random_state=0).fit(X, y)


def test_what_comes_next_depends_on_what_was_seen(switched):
    """Both sides buy the switch, and then the columns of their own side."""
    X, y = switch_rows(6000, seed=1007)
    proba = switched.predict_proba(X, budget=4)[:, 1]
    assert roc_auc_score(y, proba) > 0.86
    bought = switched.bought(X, budget=4) > 0
    is_low = X[:, 10] < 0
    assert bought[:, 10].mean() > 0.95
    assert bought[is_low][:, :2].mean() > 0.8
    assert bought[~is_low][:, 2:6].mean() > 0.7
    assert bought[~is_low][:, :2].mean() < 0.2
    for budget in (2, 3, 4, 5):
        cost = switched.predict_cost(X, budget=budget).mean()
        assert cost < 1.03 * budget


def test_a_row_is_explained(switched):
    X, _ = switch_rows(40, seed=1007)
    total = 0.0
    for row in X:
        explanation = switched.explain(row[None], budget=4)
        rounds = switched.bought(row[None], budget=4)[0]
        names = np.array([str(name) for name in switched.group_names_], dtype=object)
        for number, purchase in enumerate(explanation.rounds[1:], start=1):
            assert purchase.groups == names[rounds == number].tolist()
            assert purchase.cost == (rounds == number).sum()
        assert len(explanation.rounds) == rounds.max() + 1
        cost = switched.predict_cost(row[None], budget=4)[0]
        assert explanation.cost == pytest.approx(cost)
        expected = switched.predict_proba(row[None], budget=4)[0]
        assert_allclose(explanation.rounds[-1].proba, expected)
        for purchase in explanation.rounds[1:-1]:
            assert purchase.following.gain > purchase.following.needed
        last = explanation.rounds[-1].following
        assert last is None or last.gain <= last.needed + 1e-9
        words = " ".join(repr(explanation).split())
        assert words.endswith(explanation.reason)
        assert f"total cost {cost:g}" in words
        for purchase in explanation.rounds:
            assert ", ".join(purchase.groups) in words
            assert f"{purchase.proba[1]:.3f}" in words
        total += cost
    frame = explanation.to_frame()
    assert frame["round"].tolist() == list(range(len(explanation.rounds)))
    assert frame["cost"].sum() == explanation.cost
    assert_allclose(frame["P(1)"], [known.proba[1] for known in explanation.rounds])
    assert total / 40 < 4.8
    with pytest.raises(ValueError, match="x must be one row"):
        switched.explain(X[:2])


def test_an_explanation_within_limits_and_of_a_single_set(model, rows):
    X = rows[2][:1]
    for limits in ({"budget": 0.0}, {"max_rounds": 1}, {"max_cost": 1.0}):
        explanation = model.explain(X, **limits)
        assert explanation.cost == model.predict_cost(X, **limits)[0]
        assert explanation.reason
    known = np.ones((1, 4), dtype=bool)
    assert model.explain(X, known=known).cost == 0


def test_the_best_set_within_the_limits_of_the_constructor_is_a_candidate():
    """Panels whose best combination is not on the path of forward selection."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    y = (X[:, 1] + X[:, 2] + 0.8 * X[:, 0] + 0.3 * rng.normal(size=3000) > 0).astype(
        int
    )
    costs = [2.6, 2.5, 2.5, 4.0]
    model = SequentialFeatureClassifier(
        feature_costs=costs, max_cost=5.0, random_state=0
    )
    model.fit(X, y)
    assert [1, 2] in model.sets_
    cost = model.predict_cost(X)
    assert cost.max() <= 5.0
    assert cost.mean() > 4.5
