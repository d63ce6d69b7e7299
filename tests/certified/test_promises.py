"""Promises hold as often as they say, over fresh draws. Rules without a test fail."""

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
    """Return the largest number of broken promises that the level allows (99 %)."""
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
        # The mutation: the cheapest point whose mean on the evidence is within the
        # limit.
        for naive_budget in BUDGETS:
            answers = FROZEN.estimator.predict(drawn, naive_budget)
            if drawn[:, 2].mean() - answers.mean() <= max_loss:
                break
        naive_answers = FROZEN.estimator.predict(X, naive_budget)
        naive += X[:, 2].mean() - naive_answers.mean() > max_loss
    assert broken <= allowed(n_draws, level)
    assert budget is not None or naive > allowed(n_draws, level)


@pytest.mark.slow
def test_evidence_drawn_by_weights_promises_the_weighted_mean():
    """Hard rows weigh ten times as much. Evidence of the plain population fails."""
    X = table()
    weight = np.where((X[:, 0] > 0.3) & (X[:, 1] < X[:, 2]), 10.0, 1.0)
    population = np.random.default_rng(2).choice(
        len(X), 20_000, p=weight / weight.sum()
    )
    rng = np.random.default_rng(3)
    n_draws, max_loss, level = 40, 0.06, 0.2
    broken = {"by weight": 0, "once": 0}
    promised = 0
    for _ in range(n_draws):
        rows = rng.integers(len(X), size=1500)
        drawn_by_weight = rows[rng.random(1500) < weight[rows] / weight.max()]
        samples = {"by weight": drawn_by_weight, "once": rows[: len(drawn_by_weight)]}
        for name, drawn in samples.items():
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
    frozen = FrozenEstimator(router)
    X, Q = X[500:], Q[500:]
    best = Q.mean(axis=0).max()
    n_draws, level = 40, 0.2
    budget = 0.8 * max(problem.costs)
    broken = promised = 0
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
    """Two choices that are nearly as good: only the evidence shows the better one."""
    rng = np.random.default_rng(0)
    n_draws, level = 30, 0.2
    broken = 0
    X = rng.random((4000, 1))
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
    """The cheap model fails in one group, which the average does not show."""
    rng = np.random.default_rng(0)
    n_draws, level = 40, 0.2
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


# The level ----------------------------------------------------------------------------


def selection(losses, costs, single=None, **terms):
    """Return a selection from losses and costs, against two references that lose 0."""
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
    parameters = {
        "max_loss": 0.1,
        "max_cost": 1.0,
        "confidence": 0.9,
        "fallback": "raise",
        **terms,
    }
    return Selection(
        evidence, loss_range=1.0, range_is_given=False, unit="losses", **parameters
    )


def test_a_safe_end_that_fails_keeps_its_share_of_the_level():
    """P-values just below the level pass only behind a certified end."""
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
    """Fifty points at the limit: if each is tested alone, one of them passes."""
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
