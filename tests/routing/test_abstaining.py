"""Handing rows over: the choice, its price, and everybody who must know of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.metrics import accuracy_cost_curve
from skroute.routing import (
    BudgetRouter,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    OccamRouterRegressor,
    SequentialRouterClassifier,
)

TREE = DecisionTreeRegressor(max_depth=4, min_samples_leaf=20, random_state=0)


def members():
    return [("bayes", GaussianNB()), ("logreg", LogisticRegression())]


def labels(n=600):
    X, y = make_classification(
        n, n_features=6, n_informative=4, n_classes=3, class_sep=0.7, random_state=0
    )
    return X, np.array(["ant", "bee", "hornet"])[y]


def log(n=600, seed=0):
    """Two choices; of rows with a first feature below 0 neither knows the answer."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    known = X[:, :1] > 0
    return X, (
        rng.uniform(size=(n, 2)) < np.where(known, [0.8, 0.95], [0.2, 0.3])
    ).astype(float)


@settings(max_examples=12, deadline=None)
@given(
    abstain_cost=st.floats(0, 1.2),
    budget=st.floats(0, 6),
    n=st.integers(20, 60),
    n_choices=st.integers(1, 3),
    seed=st.integers(0, 50),
    policy=st.sampled_from(["online", "batch"]),
)
def test_it_is_the_router_that_is_told_of_the_choice(
    abstain_cost, budget, n, n_choices, seed, policy
):
    """A column of Q that is constant, costs nothing and is estimated exactly is the same."""
    rng = np.random.default_rng(seed)
    X, Q = rng.normal(size=(n, 2)), rng.uniform(size=(n, n_choices))
    # What is linear in nothing: the estimate of a constant column is the constant.
    reader = Ridge(alpha=1.0)
    worth = float(Q.max()) - abstain_cost
    costs = rng.uniform(0.5, 5, n_choices)
    told = {"budget": budget, "policy": policy, "cv": 2}
    own = BudgetRouter(reader, costs=costs, abstain_cost=abstain_cost, **told).fit(X, Q)
    same = BudgetRouter(reader, costs=np.r_[costs, 0.0], **told)
    same.fit(X, np.column_stack([Q, np.full(n, worth)]))
    assert own.choices_[-1] == "abstain" and own.min_budget_ == same.min_budget_ == 0
    assert own.abstain_quality_ == worth
    np.testing.assert_allclose(
        own.predict_quality(X), same.predict_quality(X), atol=1e-9
    )
    assert own.validation_quality_ == pytest.approx(same.validation_quality_, abs=1e-6)
    assert own.validation_cost_ == pytest.approx(same.validation_cost_, abs=1e-6)
    at = own.predict_quality(X)
    # The same choices but where two are worth the same to rounding.
    near = np.sort(
        at - own.price_ * own.costs_ if np.isfinite(own.price_) else at, axis=1
    )
    clear = near[:, -1] - near[:, -2] > 1e-6
    if policy == "online":
        np.testing.assert_array_equal(own.route(X)[clear], same.route(X)[clear])
    assert own.predict_cost(X).mean() == pytest.approx(
        same.predict_cost(X).mean(), abs=0.3
    )


def test_rows_that_nobody_answers_well_are_handed_over():
    X, Q = log()
    router = BudgetRouter(TREE, costs={"small": 1, "large": 5}, abstain_cost=0.4).fit(
        X, Q
    )
    X_new, Q_new = log(seed=1)
    named = router.predict(X_new)
    handed = named == "abstain"
    assert (
        handed[X_new[:, 0] < 0].mean() > 0.95 and handed[X_new[:, 0] > 0].mean() < 0.1
    )
    assert (router.predict_cost(X_new)[handed] == 0).all()
    expected = np.where(
        handed, 0.6, Q_new[np.arange(600), np.where(handed, 0, router.route(X_new))]
    )
    assert router.score(X_new, Q_new) == pytest.approx(expected.mean())
    # It is better than answering everything, by more than noise.
    plain = BudgetRouter(TREE, costs={"small": 1, "large": 5}).fit(X, Q)
    assert router.score(X_new, Q_new) > plain.score(X_new, Q_new) + 0.1
    assert router.n_known_.tolist() == [600, 600, 600]
    assert not (router.predict(X_new, exclude=["abstain"]) == "abstain").any()
    unnamed = BudgetRouter(TREE, costs=[1, 5], abstain_cost=0.4).fit(X, Q)
    assert -1 in (said := unnamed.predict(X_new)) and set(said) <= {-1, 0, 1}
    # Prices change without a fit; and the penalty is not for what is known.
    router.set_params(costs={"small": 2, "large": 9}, reg_lambda=1.0)
    assert router.costs_.tolist() == [2, 9, 0] and router.quality_std_[-1] == 0


@pytest.mark.parametrize("estimated", [True, False])
def test_costs_per_row_and_streams(estimated):
    X, Q = log()
    costs = np.abs(np.random.default_rng(0).normal([1, 4], 0.1, size=(600, 2)))
    reader = Ridge() if estimated else None
    router = BudgetRouter(TREE, cost_estimator=reader, abstain_cost=0.4, budget=2)
    router.fit(X, Q, costs=costs)
    told = {} if estimated else {"costs": costs}
    routed = router.predict_routed(X, **told)
    assert (routed.cost[routed.route == 2] == 0).all() and routed.cost.mean() < 2.1
    stream = router.stream(40, n_expected=20, max_costs=[2, 6])
    for i in range(20):
        extra = {} if estimated else {"costs": costs[i]}
        ticket = stream.route(X[[i]], **extra)
        assert (ticket.name == "abstain") == (ticket.cost == ticket.reserved == 0)
        stream.commit(ticket)
    assert stream.books().n_committed == 20
    # A total that pays for no call at all still hands every row over.
    empty = router.stream(0.0, n_expected=3, max_costs=[2, 6])
    extra = {} if estimated else {"costs": costs[0]}
    assert [empty.route(X[[0]], **extra).name for _ in range(3)] == ["abstain"] * 3


def test_logs_of_one_answer():
    X, Q = log(1500)
    made = np.random.default_rng(0).integers(0, 2, 1500)
    router = BudgetRouter(TREE, costs={"small": 1, "large": 5}, abstain_cost=0.4)
    names = np.array(["small", "large"])[made]
    router.fit(X, Q[np.arange(1500), made], choice=names, propensity=np.full(1500, 0.5))
    X_new, Q_new = log(seed=1)
    handed = router.predict(X_new) == "abstain"
    assert handed[X_new[:, 0] < 0].mean() > 0.9 and handed[X_new[:, 0] > 0].mean() < 0.1
    assert router.validation_quality_ == pytest.approx(
        router.score(X_new, Q_new), abs=0.06
    )
    assert router.overlap_.never == []


def test_a_member_that_embeds_is_paid_for_rows_that_are_handed_over():
    X, y = labels()
    router = OccamRouterClassifier(
        members(),
        costs=[1, 3],
        quality_estimator=TREE,
        embedding="bayes",
        abstain_cost=0.2,
    ).fit(X, y)
    routed = router.predict_routed(X)
    assert router.min_budget_ == 1 and (routed.cost[routed.route == 2] == 1).all()
    assert router.costs_.tolist() == [1, 3, 0]
    rows = routed.route == 0
    own = router.named_estimators_.bayes.predict(X[rows])
    assert routed.y_pred[rows].tolist() == own.tolist()
    with pytest.raises(ValueError, match="smallest feasible budget is 1"):
        router.predict(X, budget=0.5)


def test_numbers_are_marked_by_nan_and_streams_answer():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(500, 2))
    y = np.where(X[:, 0] > 0, X[:, 1], rng.normal(size=500))
    router = OccamRouterRegressor(
        [("line", Ridge()), ("tree", DecisionTreeRegressor(max_depth=5))],
        costs=[1, 2],
        quality="absolute_error",
        quality_estimator=TREE,
        abstain_cost=0.4,
    ).fit(X[:300], y[:300])
    routed = router.predict_routed(X[300:])
    handed = routed.route == 2
    assert handed[X[300:, 0] < 0].mean() > 0.9 and handed[X[300:, 0] > 0.1].mean() < 0.1
    np.testing.assert_array_equal(np.isnan(routed.y_pred), handed)
    assert router.score(X[300:], y[300:]) > 0.3
    rows = router.row_quality(X[300:], y[300:]).quality
    np.testing.assert_allclose(rows[~handed], -np.abs(routed.y_pred - y[300:])[~handed])
    stream = router.stream(100)
    answers = [stream.predict(X[[i]]) for i in range(300, 320)]
    np.testing.assert_allclose(answers, routed.y_pred[:20], rtol=1e-12)
    assert stream.status().spent == pytest.approx(routed.cost[:20].sum())


def test_what_is_refused_in_words():
    X, y = labels(120)
    told = {"costs": [1, 3], "abstain_cost": 0.1}
    with pytest.raises(ValueError, match="no plain mean over rows"):
        OccamRouterClassifier(members(), quality="balanced_accuracy", **told).fit(X, y)
    named = [("abstain", GaussianNB()), ("logreg", LogisticRegression())]
    with pytest.raises(ValueError, match="no model may be named 'abstain'"):
        OccamRouterClassifier(named, costs=[1, 3], abstain_cost=0.1).fit(X, y)
    X, Q = log(80)
    with pytest.raises(ValueError, match="no model may be named 'abstain'"):
        BudgetRouter(TREE, costs={"abstain": 1, "b": 2}, abstain_cost=0.1).fit(X, Q)


def combining(kind, models=None, costs=(1, 2, 5), **told):
    models = models or [
        ("bayes", GaussianNB()),
        ("small", DecisionTreeClassifier(max_depth=2, random_state=0)),
        ("large", DecisionTreeClassifier(max_depth=6, random_state=0)),
    ]
    if kind is not FrugalMLClassifier:
        told["quality_estimator"] = TREE
    if kind is SequentialRouterClassifier:
        told["n_prices"] = 3
    return kind(models, costs=list(costs), cv=2, **told)


COMBINING = [FrugalMLClassifier, FrugalMCTClassifier, SequentialRouterClassifier]


@pytest.mark.slow
@pytest.mark.parametrize("kind", COMBINING)
def test_budgets_hold_where_rows_are_handed_over(kind):
    """In the mean of fresh draws: one fit of 500 rows moves whole leaves at a price."""
    X, y = labels(12_000)
    spent = []
    for seed in range(8):
        rows = np.random.default_rng(seed).permutation(len(X))
        router = combining(kind, abstain_cost=0.6).fit(X[rows[:500]], y[rows[:500]])
        spent.append(router.predict_cost(X[rows[500:3500]], budget=2.5).mean() / 2.5)
    assert np.mean(spent) < 1.03 + 2 * np.std(spent, ddof=1) / np.sqrt(len(spent))
    assert np.mean(spent) > 0.7


@pytest.mark.parametrize("kind", COMBINING)
def test_a_row_is_handed_over_after_an_answer(kind):
    X, y = labels(900)
    X, X_new, y, y_new = X[:500], X[500:], y[:500], y[500:]
    router = combining(kind, abstain_cost=0.25).fit(X, y)
    assert router.abstain_quality_ == 0.75 and router.min_budget_ == 1
    for budget in (1, 2.5, None):
        routed = router.predict_routed(X_new, budget=budget)
        assert 0.05 < np.mean([label in (-1, "abstain") for label in routed.y_pred]) < 1
        rows = router.row_quality(X_new, y_new, budget=budget)
        curve = accuracy_cost_curve(
            router, X_new, y_new, [np.inf if budget is None else budget]
        )
        assert curve.quality[0] == pytest.approx(rows.quality.mean())
    plain = combining(kind).fit(X, y)
    assert rows.quality.mean() > plain.row_quality(X_new, y_new).quality.mean() + 0.02
    # What is never worth it changes no answer.
    never = combining(kind, abstain_cost=2).fit(X, y)
    for budget in (1, 3, None):
        one, other = (r.predict_routed(X_new, budget=budget) for r in (never, plain))
        np.testing.assert_array_equal(one.y_pred, other.y_pred)
        np.testing.assert_array_equal(one.cost, other.cost)
    with pytest.raises(ValueError, match="no plain mean over rows"):
        combining(kind, quality="balanced_accuracy", abstain_cost=0.1).fit(X, y)


def asked(name):
    """The members that a choice asks."""
    return set(name.removesuffix(" > abstain").replace(" > ", " + ").split(" + "))


@pytest.mark.parametrize("kind", [FrugalMCTClassifier, SequentialRouterClassifier])
def test_several_labels_are_marked_by_nan(kind):
    X, Y = make_multilabel_classification(
        300, n_features=8, n_classes=3, random_state=0
    )
    models = [
        ("small", DecisionTreeClassifier(max_depth=2, random_state=0)),
        ("large", DecisionTreeClassifier(max_depth=8, random_state=0)),
    ]
    router = combining(kind, models, [1, 3], abstain_cost=0.39)
    routed = router.fit(X[:200], Y[:200]).predict_routed(X[200:])
    handed = np.array(
        [str(router.choices_[k]).endswith("abstain") for k in routed.route]
    )
    assert 0.05 < handed.mean() < 0.95
    np.testing.assert_array_equal(np.isnan(routed.y_pred).all(axis=1), handed)
    assert set(np.unique(routed.y_pred[~handed])) == {0, 1}
    quality = router.row_quality(X[200:], Y[200:]).quality
    assert router.score(X[200:], Y[200:]) == pytest.approx(quality[~handed].mean())
    assert (quality[handed] == router.abstain_quality_).all()
    assert np.isnan(router.predict(X[200:][handed])).all()


def test_the_stream_of_a_base_hands_over():
    X, y = labels(600)
    router = combining(FrugalMCTClassifier, abstain_cost=0.25, budget=2.5, base="bayes")
    router.fit(X[:500], y[:500])
    routed, stream = router.predict_routed(X[500:]), router.stream(400)
    for row, label in enumerate(routed.y_pred[:40]):
        assert stream.predict(X[[500 + row]]) == label
    assert stream.status().spent == pytest.approx(routed.cost[:40].sum())
    assert any(label in (-1, "abstain") for label in routed.y_pred[:40])
    held = router.route(X[500:], exclude=["abstain"])
    assert not any(str(router.choices_[k]).endswith("abstain") for k in held)


@settings(max_examples=4, deadline=None)
@given(
    seed=st.integers(0, 200),
    reg_lambda=st.sampled_from([0.0, 1.0]),
    abstain_cost=st.floats(0.05, 0.6),
    budget=st.floats(0.3, 3.0),
)
def test_unknown_outcomes_are_estimated_as_without_the_choice(
    seed, reg_lambda, abstain_cost, budget
):
    """A column of Q that is constant is read by the forest of all cells; abstaining is not."""
    rng = np.random.default_rng(seed)
    X, Q = rng.normal(size=(60, 2)), rng.uniform(size=(60, 2))
    Q[rng.uniform(size=60) < 0.4, 0] = np.nan
    told = {"costs": [1, 3], "reg_lambda": reg_lambda, "cv": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skroute.quality._logged._N_TREES", 5)
        own = BudgetRouter(
            Ridge(), abstain_cost=abstain_cost, budget=budget, **told
        ).fit(X, Q)
        plain = BudgetRouter(Ridge(), **told).fit(X, Q)
    estimate = own.predict_quality(X)
    np.testing.assert_array_equal(estimate[:, :2], plain.predict_quality(X))
    np.testing.assert_array_equal(own.quality_std_, [*plain.quality_std_, 0.0])
    assert (estimate[:, 2] == np.nanmax(Q) - abstain_cost).all()
    # By hand: what is left after the penalty and the price.
    price = own.price_
    net = estimate - reg_lambda * own.quality_std_ - price * np.array([1, 3, 0])
    clear = np.sort(net, axis=1)
    clear = clear[:, -1] - clear[:, -2] > 1e-9
    np.testing.assert_array_equal(own.route(X)[clear], net.argmax(axis=1)[clear])


COSTS_OF_ERRORS = np.array([[-1.0, 30.0, 4.0], [9.0, 0.0, 25.0], [2.0, 40.0, 0.0]])
# What is asked for, what it says of labels, answers and probabilities, and a cost of abstaining.
WORTH = {
    "cost matrix": (
        COSTS_OF_ERRORS,
        lambda y, given, proba: -COSTS_OF_ERRORS[y, given],
        8.0,
    ),
    "log_loss": (
        "log_loss",
        lambda y, given, proba: np.log(proba[np.arange(len(y)), y]),
        0.4,
    ),
    "brier": (
        "brier",
        lambda y, given, proba: -((np.eye(3)[y] - proba) ** 2).sum(axis=1),
        0.3,
    ),
    "callable": (
        lambda true, given: 1.0 - 3.0 * (true != given) * (true == "bee"),
        lambda y, given, proba: 1.0 - 3.0 * (y != given) * (y == 1),
        0.5,
    ),
}
ALL = [OccamRouterClassifier, *COMBINING]


@pytest.mark.parametrize("name", WORTH)
@pytest.mark.parametrize("kind", ALL)
def test_whatever_is_measured_rows_handed_over_count_as_said(kind, name):
    """Quality, cost, marks and score, made anew by numpy, with a rare class at three budgets."""
    X, y = make_classification(
        700,
        n_features=6,
        n_informative=4,
        n_classes=3,
        weights=[0.1, 0.3],
        random_state=1,
    )
    classes = np.array(["ant", "bee", "hornet"])
    (quality, of, abstain_cost), prices = WORTH[name], np.array([1.0, 3.0, 6.0])
    models = [*members(), ("tree", DecisionTreeClassifier(max_depth=5, random_state=0))]
    router = combining(kind, models, prices, quality=quality, abstain_cost=abstain_cost)
    if kind in COMBINING and name in ("log_loss", "brier"):
        with pytest.raises(
            ValueError, match="has no rule for quality.*keeps or replaces"
        ):
            router.fit(X[:400], classes[y[:400]])
        return
    router.fit(X[:400], classes[y[:400]])
    X, y = X[400:], y[400:]
    for budget in (router.min_budget_, 2.5, np.inf):
        routed = router.predict_routed(X, budget=budget)
        proba = router.predict_proba(X, budget=budget)
        found = router.row_quality(X, classes[y], budget=budget)
        named = np.array(router.choices_)[routed.route]
        handed = np.array([str(choice).endswith("abstain") for choice in named])
        rows = np.flatnonzero(~handed)
        assert [label in (-1, "abstain") for label in routed.y_pred] == handed.tolist()
        np.testing.assert_array_equal(np.isnan(proba).all(axis=1), handed)
        given_at = np.searchsorted(classes, routed.y_pred[rows].astype(str))
        expected = np.full(len(y), router.abstain_quality_)
        expected[rows] = of(y[rows], given_at, proba[rows])
        np.testing.assert_allclose(found.quality, expected, atol=1e-9)
        price = dict(zip(("bayes", "logreg", "tree"), prices)) | {"abstain": 0.0}
        paid = [sum(price[k] for k in asked(str(choice))) for choice in named]
        np.testing.assert_allclose(routed.cost, paid)
        np.testing.assert_allclose(found.cost, paid)
        if len(rows):
            right = given_at == y[rows]
            assert router.score(X, classes[y], budget=budget) == pytest.approx(
                right.mean()
            )


@pytest.mark.parametrize(
    ("classes", "label", "expected"),
    [
        (["no", "yes"], None, "abstain"),
        (["no", "yes"], "ask a doctor", "ask a doctor"),
        ([0, 1], None, -1),
        ([0, 1], 99, 99),
        ([0, 1], "person", "person"),
    ],
)
def test_answers_of_rows_that_abstain_are_labels_that_metrics_take(
    classes, label, expected
):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    is_clear = X[:, 0] > 0
    y = np.asarray(classes)[
        np.where(is_clear, X[:, 1] > 0, rng.random(300) < 0.5).astype(int)
    ]
    members = [("tree", DecisionTreeClassifier(max_depth=3, random_state=0))]
    router = OccamRouterClassifier(
        members,
        costs=[1.0],
        abstain_cost=0.3,
        abstain_label=label,
        quality_estimator=DecisionTreeRegressor(max_depth=2, random_state=0),
    ).fit(X, y)
    answers = router.predict(X)
    abstains = np.array(router.choices_)[router.route(X)] == "abstain"
    assert 0 < abstains.sum() < 300
    np.testing.assert_array_equal(answers == expected, abstains)
    if not isinstance(expected, str) or isinstance(classes[0], str):
        assert accuracy_score(y, answers) == np.mean(y == answers)
    with pytest.raises(ValueError, match="abstain_label=.* is one of the classes"):
        clone(router).set_params(abstain_label=classes[0]).fit(X, y)
