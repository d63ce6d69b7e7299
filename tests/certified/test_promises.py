"""What is promised holds as often as it says, over fresh draws; rules without a test do not."""

import numpy as np
import pytest
from scipy import stats
from sklearn.dummy import DummyRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge

from skroute.certified import CertifiedRouter
from skroute.certified._evidence import Evidence
from skroute.certified._selection import Selection
from skroute.datasets import make_routing_problem
from skroute.routing import BudgetRouter
from tests.certified.toy import FROZEN, QUIET, certified, table

pytestmark = QUIET
BUDGETS = np.linspace(1, 10, 50)


def allowed(n_draws, level):
    """The most broken promises that the level allows: upper 99 % limit."""
    return stats.binom.ppf(0.99, n_draws, level)


@pytest.mark.parametrize("budget", [None, 7.0])
@pytest.mark.slow
def test_promises_hold_over_fresh_draws_and_naive_ones_do_not(budget):
    """Evidence is drawn from the table with replacement, and the table is the truth."""
    X = table()
    rng = np.random.default_rng(1)
    n_draws, max_loss, level = 80, 0.06, 0.2
    broken = naive = 0
    for _ in range(n_draws):
        drawn = X[rng.integers(len(X), size=400)]
        options = {
            "confidence": 1 - level,
            "max_cost": 14.5,
            "n_points": 12 if budget else 50,
        }
        try:
            router = certified(drawn, max_loss=max_loss, budget=budget, **options)
        except ValueError:
            continue
        y_pred, _, cost = router.predict_routed(X)
        loss = X[:, 2].mean() - y_pred.mean()
        broken += loss > max_loss or (budget is not None and cost.mean() > budget)
        # The mutation: the cheapest point whose mean on the evidence is within the limit.
        lost = [
            drawn[:, 2].mean() - FROZEN.estimator.predict(drawn, b).mean()
            for b in BUDGETS
        ]
        plain = FROZEN.estimator.predict(
            X, BUDGETS[np.argmax(np.array(lost) <= max_loss)]
        )
        naive += X[:, 2].mean() - plain.mean() > max_loss
    assert broken <= allowed(n_draws, level)
    assert budget is not None or naive > allowed(n_draws, level)


@pytest.mark.slow
def test_evidence_drawn_by_weights_promises_the_weighted_mean():
    """A population whose hard rows weigh ten times as much. Rows that count once break it."""
    X = table()
    weight = np.where((X[:, 0] > 0.3) & (X[:, 1] < X[:, 2]), 10.0, 1.0)
    population = np.random.default_rng(2).choice(
        len(X), 20_000, p=weight / weight.sum()
    )
    rng = np.random.default_rng(3)
    n_draws, max_loss, level = 40, 0.06, 0.2
    broken, promised = {"by weight": 0, "once": 0}, 0
    for _ in range(n_draws):
        rows = rng.integers(len(X), size=1500)
        kept = rows[rng.random(1500) < weight[rows] / weight.max()]
        for name, drawn in (("by weight", kept), ("once", rows[: len(kept)])):
            options = {
                "max_loss": max_loss,
                "confidence": 1 - level,
                "fallback": "safe",
            }
            router = certified(X[drawn], n_points=30, **options)
            if not router.certificate_.promised:
                continue
            promised += name == "by weight"
            answers = router.predict(X)[population]
            broken[name] += X[population, 2].mean() - answers.mean() > max_loss
    assert promised > n_draws / 2
    assert broken["by weight"] <= allowed(n_draws, level)
    assert broken["once"] > allowed(n_draws, level)


@pytest.mark.slow
def test_logged_qualities_of_a_router_over_fresh_draws():
    """Loss and cost together, of a router that learned from other rows."""
    problem = make_routing_problem(6000, n_features=3, random_state=0)
    X, Q = problem.data, problem.quality
    router = BudgetRouter(Ridge(), costs=problem.costs, cv=2).fit(X[:500], Q[:500])
    X, Q, frozen = X[500:], Q[500:], FrozenEstimator(router)
    best, n_draws, level = Q.mean(axis=0).max(), 40, 0.2
    budget, broken, promised = 0.8 * max(problem.costs), 0, 0
    for seed in range(n_draws):
        rows = np.random.default_rng(seed).integers(len(X), size=300)
        options = {
            "max_loss": 0.05,
            "budget": budget,
            "confidence": 1 - level,
            "n_points": 12,
        }
        made = CertifiedRouter(frozen, random_state=seed, **options)
        try:
            made.fit(X[rows], Q[rows].astype(int))
        except ValueError as error:
            assert "promise" in str(error)
            continue
        promised += 1
        _, route, cost = made.predict_routed(X)
        loss = best - Q[np.arange(len(Q)), route].mean()
        broken += loss > 0.05 or cost.mean() > budget
    assert promised > n_draws / 3 and broken <= allowed(n_draws, level)


@pytest.mark.slow
def test_the_best_of_several_at_the_end_is_tested():
    """Two choices that are nearly as good: which one is better, the evidence has to say."""
    rng = np.random.default_rng(0)
    X, broken, n_draws, level = rng.random((4000, 1)), 0, 30, 0.2
    Q = (rng.random((4000, 2)) < [0.9, 0.93]).astype(int)
    # Fitted where the worse one looks better.
    wrong = BudgetRouter(DummyRegressor(), costs=[1, 2], cv=2).fit(X - 1, 1 - Q)
    options = {
        "max_loss": 0.02,
        "confidence": 1 - level,
        "n_points": 3,
        "fallback": "safe",
    }
    for _ in range(n_draws):
        rows = rng.integers(4000, size=400)
        made = CertifiedRouter(FrozenEstimator(wrong), **options).fit(X[rows], Q[rows])
        if not made.certificate_.promised:
            continue
        loss = Q.mean(axis=0).max() - Q[np.arange(4000), made.route(X)].mean()
        broken += loss > 0.02
    assert broken <= allowed(n_draws, level)


@pytest.mark.slow
def test_groups_are_promised_each():
    """One group is lost by the cheap model; on average nobody sees it."""
    rng, n_draws, level = np.random.default_rng(0), 40, 0.2
    X = table()
    group = np.where(rng.random(4000) < 0.1, "rare", "common")
    X[:, 1] = np.where(group == "rare", 0, X[:, 2])
    broken = {"average": 0, "within": 0}
    for _ in range(n_draws):
        rows = rng.integers(4000, size=1500)
        for name, groups in (("average", None), ("within", group[rows])):
            made = certified(
                X[rows], max_loss=0.15, groups=groups, confidence=1 - level
            )
            rare = X[group == "rare"]
            broken[name] += rare[:, 2].mean() - made.predict(rare).mean() > 0.15
    assert broken["within"] <= allowed(n_draws, level) < broken["average"]


# The level ------------------------------------------------------------------------------------


def selection(losses, costs, single=None, **terms):
    """Points of these losses and costs on the evidence rows, against a reference that loses 0."""
    n, k = losses.shape
    evidence = Evidence(
        budgets=np.r_[[np.inf] * (k - 1), 1.0],
        losses=losses,
        costs=costs,
        abstained_share=np.zeros(k),
        reference_losses=np.zeros((n, 2)),
        reference_costs={"a": 1.0, "b": 1.0},
        first_reference=0 if single else None,
        single=single,
        groups={},
        exact=False,
        costs_known=True,
        row_counts={},
        call_keywords=set(),
    )
    asked = {
        "max_loss": 0.1,
        "max_cost": 1.0,
        "confidence": 0.9,
        "fallback": "raise",
        **terms,
    }
    return Selection(
        evidence, loss_range=1.0, range_is_given=False, unit="losses", **asked
    )


def test_a_safe_end_that_fails_keeps_its_share_of_the_level():
    """p-values between what is left of the level and all of it: only behind a certified end."""
    made = selection(np.zeros((80, 2)), np.full((80, 2), 0.2), single="a")
    for end, other, expected in [
        (0.5, 0.095, [False, False]),
        (0.5, 0.085, [False, True]),
        (0.0099, 0.095, [True, True]),
        (0.0101, 0.095, [False, False]),
    ]:
        made.p_values = np.array([end, other])
        assert made.loss_certified(made.level()).tolist() == expected


def test_both_promises_share_the_level_and_costs_are_tested_from_the_cheap_end():
    both = selection(np.zeros((80, 1)), np.full((80, 1), 0.2))
    assert both.level() == pytest.approx(0.1) and both.level(5.0) == pytest.approx(0.05)
    rng = np.random.default_rng(1)
    costs = (rng.random((80, 4)) < [0.5, 0.1, 0.3, 0.1]) * 1.0
    alone = selection(np.zeros((80, 4)), costs, max_loss=None)
    assert alone.level(5.0) == pytest.approx(0.1)
    # No bound counts that is below one of a cheaper point: a test in a fixed sequence.
    bounds = alone.cost_uppers(alone.level())
    assert bounds[1] < bounds[2]
    expected = np.maximum.accumulate(bounds[::-1])[::-1]
    np.testing.assert_array_equal(alone.promised_costs(0.9), expected)


@pytest.mark.slow
def test_points_behind_the_first_that_fails_are_not_certified():
    """Fifty points at the limit: where each is tested alone, one of them gets through."""
    rng, n_draws, level = np.random.default_rng(0), 100, 0.2
    broken = alone = 0
    for _ in range(n_draws):
        losses = np.column_stack(
            [np.zeros(200), (rng.random((200, 50)) < 0.1001) * 1.0]
        )
        made = selection(losses, np.ones((200, 51)), confidence=1 - level)
        broken += made.loss_certified(level)[1:].any()
        alone += (stats.binom.cdf(losses[:, 1:].sum(axis=0), 200, 0.1) <= level).any()
    assert broken <= allowed(n_draws, level) < alone
