"""What an answer is worth: `quality` of routers, baselines and the oracle."""

import itertools
from unittest.mock import patch

import numpy as np
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.metrics import accuracy_cost_curve, make_budget_scorer, mean_quality_scorer
from skroute.metrics._objectives import (
    OF_NUMBERS,
    cost_objective,
    objective_of_labels,
    objective_of_numbers,
)
from skroute.routing import (
    DummyRouterClassifier,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    PortablePolicy,
    SequentialRouterClassifier,
    export_policy,
)

TREE = DecisionTreeRegressor(max_depth=4, min_samples_leaf=10, random_state=0)
COSTS = [1.0, 2.0, 5.0]
MATRIX = {("no", "yes"): 1.0, ("yes", "no"): 20.0}


def problem(n=600, seed=0, share=0.15):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = X[:, 0] + X[:, 1] * (X[:, 2] > 0) + 0.5 * rng.normal(size=n)
    return X, np.where(y > np.quantile(y, 1 - share), "yes", "no")


def members():
    return [
        ("stump", DecisionTreeClassifier(max_depth=1)),
        ("bayes", GaussianNB()),
        ("neighbors", KNeighborsClassifier(15)),
    ]


def occam(**params):
    params = {
        "costs": COSTS,
        "budget": 2.5,
        "quality_estimator": TREE,
        "cv": 3,
        **params,
    }
    return OccamRouterClassifier(members(), **params)


CLASSES = np.array(["a", "b", "c"])


@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=10, deadline=None)
def test_means_are_those_of_scikit_learn(seed, weighted):
    rng = np.random.default_rng(seed)
    n, k = 40, int(rng.integers(2, 4))
    target, given_ = (
        np.r_[np.arange(k), rng.integers(0, k, n - k)],
        rng.integers(0, k, n),
    )
    proba = rng.dirichlet(np.ones(k), n)
    weight = rng.integers(1, 5, n).astype(float) if weighted else None

    def mean(quality, answers, classes=CLASSES[:k]):
        rows = objective_of_labels(quality, classes).of(target, answers, weight)
        return np.average(rows, weights=weight)

    kw = {"sample_weight": weight}
    assert mean("accuracy", given_) == pytest.approx(
        metrics.accuracy_score(target, given_, **kw)
    )
    assert mean("balanced_accuracy", given_) == pytest.approx(
        metrics.balanced_accuracy_score(target, given_, **kw)
    )
    assert mean("log_loss", proba) == pytest.approx(
        -metrics.log_loss(target, proba, **kw)
    )
    if k == 2:
        assert mean("brier", proba) == pytest.approx(
            -metrics.brier_score_loss(target, proba[:, 1], **kw)
        )
    table = rng.normal(size=(k, k))
    # No error costs less than the right answer.
    table[np.arange(k), np.arange(k)] = table.min(axis=1) - rng.uniform(size=k)
    confusion = metrics.confusion_matrix(target, given_, labels=range(k), **kw)
    total = confusion.sum()
    assert mean(table, given_) == pytest.approx(-(confusion * table).sum() / total)
    pairs = itertools.product(range(k), repeat=2)
    mapping = {(str(CLASSES[i]), str(CLASSES[j])): table[i, j] for i, j in pairs}
    assert mean(mapping, given_) == pytest.approx(mean(table, given_))


ELEMENTWISE = {
    "squared_error": metrics.mean_squared_error,
    "absolute_error": metrics.mean_absolute_error,
    "squared_log_error": metrics.mean_squared_log_error,
    "absolute_percentage_error": metrics.mean_absolute_percentage_error,
    "poisson_deviance": metrics.mean_poisson_deviance,
    "gamma_deviance": metrics.mean_gamma_deviance,
}


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_losses_of_numbers_are_those_of_scikit_learn(name):
    rng = np.random.default_rng(0)
    true, answer = rng.gamma(2.0, size=(2, 50)) + 0.01
    rows = objective_of_numbers(name).of(true, answer)
    single = [ELEMENTWISE[name]([t], [a]) for t, a in zip(true, answer)]
    np.testing.assert_allclose(-rows, single, atol=1e-12)


@pytest.mark.parametrize(
    ("quality", "message"),
    [
        ("auc", "'quality' parameter"),
        ({("no", "yes"): 1.0}, r"no entry for \('yes', 'no'\)"),
        ({("no", "maybe"): 1.0}, "whose key is not a pair"),
        ({("no", "yes"): np.nan, ("yes", "no"): 1.0}, "no missing values|no entry"),
        (np.eye(3), r"shape \(2, 2\)"),
        (("predict_proba", 3), "as a pair must be"),
        (("scores", len), "as a pair must be"),
        (lambda true, given: 1.0, "one finite number for each row"),
        (
            lambda true, given: np.ma.masked_array(np.ones(len(true)), true == given),
            "are masked",
        ),
    ],
)
def test_what_is_no_quality_is_refused_before_a_member_is_fitted(quality, message):
    X, y = problem(120)
    # A function is judged by what it says of answers.
    fit = GaussianNB.fit if callable(quality) else AssertionError("a member was fitted")
    pair = [("a", GaussianNB()), ("b", GaussianNB())]
    for kind in (OccamRouterClassifier, DummyRouterClassifier):
        router = kind(pair, costs=[1, 2], quality=quality, cv=2)
        with patch.object(GaussianNB, "fit", autospec=True, side_effect=fit):
            with pytest.raises(ValueError, match=message):
                router.fit(X, y)
        assert not hasattr(router, "choices_")


def test_an_error_that_costs_less_than_the_right_answer_is_refused():
    """Qualities that were given as costs, most likely; gains of right answers are meant."""
    classes = np.array(["no", "yes"])
    wrong = ({("no", "yes"): -1.0, ("yes", "no"): -50.0}, [[0, 1], [5, 6]])
    for matrix in wrong:
        with pytest.raises(
            ValueError, match="no error may cost less than the right answer"
        ):
            cost_objective(matrix, classes)
    gains = cost_objective(
        {("no", "yes"): 0, ("yes", "no"): 5, ("yes", "yes"): -2.0}, classes
    )
    assert gains.of(np.array([1, 1]), np.array([1, 0])).tolist() == [2.0, -5.0]


def test_without_a_budget_errors_and_prices_are_minimised_together():
    X, y = problem(1500)
    train, test = slice(0, 750), slice(750, None)
    router = occam(quality=MATRIX, budget=None).fit(X[train], y[train])
    # More where held-out rows lose by what is bought at 1.
    assert router.price_ >= 1.0

    def total(**params):
        found = router.set_params(**params).row_quality(X[test], y[test])
        return (found.cost - found.quality).mean()

    free, bound = total(), total(exchange_rate=0.0)
    assert router.price_ < 1.0 and free <= bound
    spent = [
        router.set_params(exchange_rate=rate).predict_cost(X[test]).mean()
        for rate in (0.0, 0.1, 1.0, 100.0)
    ]
    assert (np.diff(spent) <= 0).all() and spent[-1] == 1.0
    # A budget is a cap beside the rate, which acts below it where it is given.
    router.set_params(exchange_rate=1.0, budget=4.9)
    assert router.price_ >= 1.0
    router.set_params(exchange_rate=None)
    assert router.price_ < 1.0
    router.set_params(exchange_rate=1.0)
    policy = PortablePolicy(export_policy(router))
    np.testing.assert_array_equal(
        policy.decide(router.predict_quality(X[test]), 4.9), router.route(X[test])
    )
    batch = router.set_params(policy="batch").predict_cost(X[test]).mean()
    online = router.set_params(policy="online").predict_cost(X[test]).mean()
    assert batch == pytest.approx(online)


def test_baselines_know_money():
    X, y = problem(600)
    single = DummyRouterClassifier(members(), costs=COSTS, quality=MATRIX, cv=3).fit(
        X, y
    )
    best = int(np.argmax(single.mean_quality_ - single.costs_))
    assert (single.route(X) == best).all()
    single.set_params(exchange_rate=0.0).fit(X, y)
    assert (single.route(X) == single.mean_quality_.argmax()).all()
    oracle = DummyRouterClassifier(
        members(), strategy="oracle", costs=COSTS, quality=MATRIX, cv=3
    ).fit(X, y)
    net = oracle.member_quality(X, y) - np.array(COSTS)
    found = oracle.row_quality(X, y)
    assert (found.quality - found.cost).mean() == pytest.approx(net.max(axis=1).mean())


@pytest.mark.parametrize("quality", ["accuracy", MATRIX])
def test_weights_stand_for_copies_of_rows(quality):
    """Of constant members and estimates nothing depends on the folds: weights are counts."""
    rng = np.random.default_rng(0)
    X, y = problem(300)
    counts = rng.integers(1, 4, len(y))
    pair = [
        ("no", DummyClassifier(strategy="constant", constant="no")),
        ("yes", DummyClassifier(strategy="constant", constant="yes")),
    ]
    kw = {
        "costs": [1, 2],
        "quality": quality,
        "cv": 2,
        "quality_estimator": TREE,
        "budget": 1.4,
    }
    weighted = OccamRouterClassifier(pair, **kw).fit(X, y, sample_weight=counts)
    copied = OccamRouterClassifier(pair, **kw).fit(
        np.repeat(X, counts, 0), np.repeat(y, counts)
    )
    plain = OccamRouterClassifier(pair, **kw).fit(X, y)
    np.testing.assert_allclose(weighted.mean_quality_, copied.mean_quality_)
    assert not np.allclose(weighted.mean_quality_, plain.mean_quality_)
    single = DummyRouterClassifier(pair, costs=[1, 2], quality=quality, cv=2)
    single.fit(X, y, sample_weight=counts)
    np.testing.assert_allclose(single.mean_quality_, copied.mean_quality_)
    # The budget is one of weighted rows.
    assert weighted.validation_cost_ < 1.55


def test_weights_reach_the_members_or_are_refused():
    X, y = problem(300)
    weight = np.where(y == "yes", 10.0, 1.0)
    pair = [("logreg", LogisticRegression()), ("neighbors", KNeighborsClassifier())]
    router = OccamRouterClassifier(pair, costs=[1, 2], quality_estimator=TREE, cv=2)
    with pytest.raises(ValueError, match="fit of 'neighbors'"):
        router.fit(X, y, sample_weight=weight)
    router.set_params(neighbors="drop", costs=[1]).fit(X, y, sample_weight=weight)
    expected = LogisticRegression().fit(X, y, sample_weight=weight).coef_
    np.testing.assert_allclose(router.estimators_[0].coef_, expected)
    for wrong in (-weight, 0 * weight, weight[:-1]):
        with pytest.raises(ValueError):
            router.fit(X, y, sample_weight=wrong)
    with sklearn.config_context(enable_metadata_routing=True):
        asks = LogisticRegression().set_fit_request(sample_weight=True)
        silent = KNeighborsClassifier()
        both = OccamRouterClassifier(
            [("logreg", asks), ("neighbors", silent)],
            costs=[1, 2],
            quality_estimator=TREE,
            cv=2,
        ).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(both.estimators_[0].coef_, expected)


KINDS = {
    "FrugalML": (FrugalMLClassifier, {}),
    "FrugalMCT": (FrugalMCTClassifier, {"quality_estimator": TREE, "base": "bayes"}),
    "Sequential": (
        SequentialRouterClassifier,
        {"quality_estimator": TREE, "n_prices": 3},
    ),
    "Occam": (
        OccamRouterClassifier,
        {"quality_estimator": TREE, "budget": 2.5, "cv": 3},
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_cost_matrix_buys_fewer_expensive_errors_than_accuracy(name):
    kind, params = KINDS[name]
    X, y = problem(1200)
    X, y, X_test, y_test = X[:600], y[:600], X[600:], y[600:]
    kw = {"costs": COSTS, "budget": 4.0, "cv": 2, **params}
    accuracy = kind(members(), **kw).fit(X, y)
    money = kind(members(), quality=MATRIX, **kw).fit(X, y)

    def lost(router):
        wrong = router.predict(X_test) != y_test
        return (wrong * np.where(y_test == "yes", 20.0, 1.0)).mean()

    assert lost(money) < lost(accuracy)
    found = -money.row_quality(X_test, y_test).quality.mean()
    assert found == pytest.approx(lost(money))
    assert abs(money.validation_quality_ + found) < 5 * money.validation_quality_se_
    same = kind(members(), quality=lambda true, given: (true == given) * 1.0, **kw)
    np.testing.assert_array_equal(same.fit(X, y).route(X_test), accuracy.route(X_test))


@pytest.mark.parametrize("quality", ["log_loss", MATRIX, "accuracy"])
def test_scorers_and_curves_know_the_quality(quality):
    X, y = problem(700)
    router = occam(quality=quality).fit(X[:400], y[:400])
    X, y = X[400:], y[400:]
    rows = router.row_quality(X, y)
    if quality == "log_loss":
        expected = -metrics.log_loss(y, router.predict_proba(X))
    elif quality == "accuracy":
        expected = router.score(X, y)
    else:
        expected = rows.quality.mean()
    assert mean_quality_scorer(router, X, y) == pytest.approx(expected)
    at_budget = make_budget_scorer(2.5, mean_quality_scorer)
    assert at_budget(router, X, y) == pytest.approx(expected)
    curve = accuracy_cost_curve(router, X, y, [1.0, 2.5])
    assert curve.quality[1] == pytest.approx(expected)
    np.testing.assert_allclose(curve.cost[1], rows.cost.mean())
    # What scikit-learn scores is accuracy, whatever the quality.
    assert router.score(X, y) == pytest.approx((router.predict(X) == y).mean())
    weight = np.where(y == "yes", 3.0, 1.0)
    weighted = accuracy_cost_curve(router, X, y, [2.5], sample_weight=weight).quality[0]
    assert weighted == pytest.approx(
        mean_quality_scorer(router, X, y, sample_weight=weight)
    )
    with pytest.raises(ValueError, match="labels that fit has not seen"):
        router.row_quality(X, np.full(len(y), "maybe"))
