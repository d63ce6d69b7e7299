"""Savings: brute force for the table, coverage over fresh draws for the intervals."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skroute.certified import CertifiedRouter
from skroute.early_exit import QWYCEnsemble
from skroute.metrics import (
    accuracy_cost_curve,
    compare_with_references,
    off_policy_savings,
    savings,
)
from skroute.routing import BudgetRouter, CascadeRouter, OccamRouterClassifier

NAMES = ["small", "medium", "large"]
LIST = {"small": 1.0, "medium": 3.0, "large": 10.0}
MIX = "random mix at no more cost"


def draw_log(n_rows, seed):
    """Return rows, qualities and bills of three models; bills vary around the list."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n_rows, 2))
    chance = np.column_stack([1 - X[:, 0], 0.3 + 0.5 * X[:, 1], np.full(n_rows, 0.9)])
    Q = (rng.uniform(size=chance.shape) < chance).astype(float)
    bills = np.array(list(LIST.values())) * rng.gamma(4, 0.35, size=chance.shape)
    return X, pd.DataFrame(Q, columns=NAMES), pd.DataFrame(bills, columns=NAMES)


@pytest.fixture(scope="module")
def router():
    X, Q, bills = draw_log(1500, seed=0)
    router = BudgetRouter(Ridge(), costs=LIST, budget=5.0, routing_cost=0.1)
    with pytest.warns(UserWarning, match="logged costs"):
        return router.fit(X, Q, costs=bills)


def test_each_number_is_the_plain_mean_of_bills_qualities_and_seconds(router):
    X, Q, bills = draw_log(800, seed=1)
    seconds = bills.to_numpy() / 7
    today = np.array(NAMES)[np.arange(800) % 3]
    saved = savings(
        router, X, Q, costs=bills[NAMES[::-1]], seconds=seconds, today=today
    )
    rows = np.arange(800)
    route = router.route(X)
    cost = bills.to_numpy()[rows, route] + 0.1
    quality = Q.to_numpy()[rows, route]
    assert saved.billed
    assert saved.cost == pytest.approx(cost.mean())
    assert saved.quality == pytest.approx(quality.mean())
    assert saved.seconds == pytest.approx(seconds[rows, route].mean())
    reference = saved["today"]
    cost_today = bills.to_numpy()[rows, rows % 3]
    quality_today = Q.to_numpy()[rows, rows % 3]
    assert reference.cost == pytest.approx(cost_today.mean())
    assert reference.cost_saved.estimate == pytest.approx((cost_today - cost).mean())
    share = 1 - cost.mean() / cost_today.mean()
    assert reference.share_saved.estimate == pytest.approx(share)
    gained = quality.mean() - quality_today.mean()
    assert reference.quality_gained.estimate == pytest.approx(gained)
    # Paired: the standard error is that of the differences of the rows.
    deviation = (quality - quality_today).std() / np.sqrt(800)
    assert reference.quality_gained.standard_error == pytest.approx(deviation, rel=0.1)
    best = saved["best single choice: large"]
    assert best.quality == pytest.approx(Q["large"].mean())
    assert best.seconds == pytest.approx(seconds[:, 2].mean())


def test_the_random_mix_costs_as_much_as_the_router(router):
    X, Q, bills = draw_log(800, seed=1)
    saved = savings(router, X, Q, costs=bills, n_resamples=50)
    mix = saved[MIX]
    assert mix.cost == pytest.approx(saved.cost)
    cost = bills.mean().to_numpy()
    quality = Q.mean().to_numpy()
    best = -np.inf
    for low in range(3):
        for high in range(3):
            if cost[low] <= saved.cost < cost[high]:
                share = (saved.cost - cost[low]) / (cost[high] - cost[low])
                mixed = (1 - share) * quality[low] + share * quality[high]
                best = max(best, mixed)
    assert mix.quality == pytest.approx(best)
    # A share saved of a mix of equal cost would be read as a result.
    text = "".join([line for line in repr(saved).splitlines() if MIX in line])
    assert "%" not in text
    assert f"{mix.quality_gained.estimate:+.4f}" in text


def test_intervals_contain_the_difference_on_new_rows(router):
    """The true difference is that of 200,000 rows."""
    X, Q, bills = draw_log(200_000, seed=10**6)
    rows = np.arange(len(X))
    route = router.route(X)
    truth_quality = (Q.to_numpy()[rows, route] - Q["large"]).mean()
    spent = bills.to_numpy()[rows, route].mean() + 0.1
    truth_share = 1 - spent / bills["large"].mean()
    n_covered = np.zeros(2)
    for seed in range(1, 101):
        X, Q, bills = draw_log(400, seed)
        saved = savings(router, X, Q, costs=bills, today="large", n_resamples=200)
        reference = saved["today: large"]
        for position, (interval, truth) in enumerate(
            [
                (reference.quality_gained, truth_quality),
                (reference.share_saved, truth_share),
            ]
        ):
            n_covered[position] += interval.low <= truth <= interval.high
    # 95 of 100 are expected. 88 is more than three standard errors below.
    assert (n_covered >= 88).all(), n_covered


def test_without_bills_the_table_says_that_costs_are_expected(router):
    X, Q, bills = draw_log(800, seed=1)
    saved = savings(router, X, Q, n_resamples=10)
    assert not saved.billed
    assert "expected cost" in repr(saved)
    assert saved.cost == pytest.approx(router.predict_cost(X).mean())
    # The expectation is near what is billed, unlike the list prices.
    billed = savings(router, X, Q, costs=bills, n_resamples=10)
    assert saved.cost == pytest.approx(billed.cost, rel=0.05)


def test_members_pipelines_and_gates_have_savings():
    X, y = make_classification(600, random_state=0)
    members = [("dummy", DummyClassifier()), ("logreg", LogisticRegression())]
    router = OccamRouterClassifier(members, costs=[1, 5], budget=3)
    pipeline = make_pipeline(StandardScaler(), router).fit(X[:300], y[:300])
    saved = savings(pipeline, X[300:], y[300:], n_resamples=20)
    assert saved["best single choice: logreg"].cost == 5
    cost = pipeline[-1].predict_cost(pipeline[:-1].transform(X[300:]))
    assert saved.cost == pytest.approx(cost.mean())
    forest = RandomForestClassifier(20, random_state=0)
    quick = QWYCEnsemble(forest, alpha=0.1, random_state=0).fit(X[:300], y[:300])
    saved = savings(quick, X[300:], y[300:], n_resamples=20)
    assert [reference.reference for reference in saved.compared] == ["without a budget"]
    with pytest.raises(ValueError, match="QWYCEnsemble has none"):
        savings(quick, X[300:], y[300:], today="forest")
    with pytest.raises(TypeError, match="costs is a table of bills"):
        savings(quick, X[300:], y[300:], costs=np.ones((300, 2)))


def test_a_cascade_is_billed_for_every_model_that_it_asked():
    rng = np.random.default_rng(0)
    sure = rng.uniform(size=600)
    Q = np.column_stack([sure > rng.uniform(size=600), rng.uniform(size=600) < 0.9])
    router = CascadeRouter(costs={"small": 1, "large": 10}, budget=6)
    router.fit(None, Q[:300], signals={"small": sure[:300]})
    bills = np.array([1, 10]) * rng.uniform(0.5, 1.5, (300, 2))
    signals = {"small": sure[300:]}
    saved = savings(router, None, Q[300:], costs=bills, signals=signals, n_resamples=9)
    plan = router.plan(None, router.make_call(signals=signals))
    expected = (bills * plan.state).sum(axis=1).mean()
    assert saved.cost == pytest.approx(expected)
    single = saved["best single choice: large"]
    assert single.cost == pytest.approx(bills[:, 1].mean())


def test_what_is_refused(router):
    X, Q, bills = draw_log(50, seed=1)
    with pytest.raises(ValueError, match="today has 'huge', which is not one"):
        savings(router, X, Q, today="huge")
    with pytest.raises(ValueError, match="today must be a name or have one name"):
        savings(router, X, Q, today=["small"])
    with pytest.raises(ValueError, match="costs must have the columns"):
        savings(router, X, Q, costs=bills[["small", "large"]])
    with pytest.raises(ValueError, match="NaN|not known"):
        savings(router, X, Q.where(Q["large"] > 0))
    with pytest.raises(KeyError, match="no reference 'x'"):
        savings(router, X, Q, n_resamples=2)["x"]


def test_the_frame_has_the_numbers_of_the_table(router):
    X, Q, bills = draw_log(300, seed=1)
    saved = savings(router, X, Q, costs=bills, n_resamples=20, cost_unit="USD")
    frame = saved.to_frame().set_index("name")
    assert frame.loc["router", "cost"] == saved.cost
    assert frame.loc[MIX, "quality_gained_low"] == saved[MIX].quality_gained.low
    text = repr(saved)
    assert "USD" in text
    for name in frame.index:
        assert name in text
    assert "seconds" not in text


def test_curves_with_bills_are_compared_with_bills(router):
    X, Q, bills = draw_log(400, seed=1)
    billed = accuracy_cost_curve(router, X, Q, [3, 6], costs=bills)
    rows = np.arange(400)
    for k, budget in enumerate([3, 6]):
        route = router.route(X, budget=budget)
        expected = bills.to_numpy()[rows, route].mean() + 0.1
        assert billed.cost[k] == pytest.approx(expected)
    assert billed.billed
    compare_with_references(billed, Q, bills, n_resamples=2)
    expected = accuracy_cost_curve(router, X, Q, [3, 6])
    assert not expected.billed
    with pytest.raises(ValueError, match="expected bills, and the two cannot"):
        compare_with_references(expected, Q, bills, n_resamples=2)


def draw_answers(n_rows, seed):
    """Return a log of one answer per request, with its propensities."""
    X, Q, bills = draw_log(n_rows, seed)
    rng = np.random.default_rng(10_000 + seed)
    shares = np.array([0.3, 0.2, 0.5])
    choice = rng.choice(3, n_rows, p=shares)
    rows = np.arange(n_rows)
    return {
        "X": X,
        "q": Q.to_numpy()[rows, choice],
        "costs": bills.to_numpy()[rows, choice],
        "choice": np.array(NAMES)[choice],
        "propensity": shares[choice],
    }


def test_off_policy_savings_contain_the_truth(router):
    X, Q, bills = draw_log(200_000, seed=10**6)
    rows = np.arange(len(X))
    route = router.route(X)
    shares = np.array([0.3, 0.2, 0.5])
    quality_of_log = Q.mean().to_numpy() @ shares
    cost_of_log = bills.mean().to_numpy() @ shares
    truth_quality = Q.to_numpy()[rows, route].mean() - quality_of_log
    truth_share = 1 - bills.to_numpy()[rows, route].mean() / cost_of_log
    n_covered = np.zeros(2)
    n_draws = 40
    for seed in range(1, n_draws + 1):
        saved = off_policy_savings(router, **draw_answers(600, seed))
        reference = saved["rule of the log"]
        for position, (interval, truth) in enumerate(
            [
                (reference.quality_gained, truth_quality),
                (reference.share_saved, truth_share),
            ]
        ):
            n_covered[position] += interval.low <= truth <= interval.high
    # 38 of 40 are expected. 33 is more than three standard errors below.
    assert (n_covered >= 33).all(), n_covered


def test_the_rule_of_the_log_saves_nothing_compared_with_itself():
    """A router that makes the choice of the log on every row differs nowhere."""
    X, Q, bills = draw_log(600, seed=3)
    router = BudgetRouter(Ridge(), costs=LIST, budget=5.0).fit(X, Q)
    X, Q, bills = draw_log(600, seed=4)
    route = router.route(X)
    rows = np.arange(600)
    saved = off_policy_savings(
        router,
        X,
        Q.to_numpy()[rows, route],
        choice=np.array(NAMES)[route],
        costs=bills.to_numpy()[rows, route],
        propensity=np.ones(600),
        seconds=bills.to_numpy()[rows, route],
    )
    reference = saved["rule of the log"]
    for interval in reference[4:]:
        assert interval.estimate == pytest.approx(0, abs=1e-12)
        assert interval.high - interval.low < 1e-9


def test_rows_of_fit_warn_and_todays_answers_keep_their_order(router):
    X, Q, bills = draw_log(1500, seed=0)
    with pytest.warns(UserWarning, match="1500 of 1500 rows equal rows"):
        savings(router, X, Q, costs=bills, n_resamples=2)
    choice = np.arange(1500) % 3
    answers = Q.to_numpy()[np.arange(1500), choice]
    log = {"choice": np.array(NAMES)[choice], "propensity": np.full(1500, 1 / 3)}
    with pytest.warns(UserWarning, match="1500 of 1500 rows equal rows"):
        costs = bills.to_numpy()[np.arange(1500), choice]
        off_policy_savings(router, X, answers, costs=costs, **log)
    X, Q, bills = draw_log(300, seed=2)
    today = pd.Series("large", index=np.arange(300)[::-1])
    with pytest.raises(ValueError, match="same index, in another order"):
        savings(router, X, Q, costs=bills, today=today)


def test_the_random_mix_depends_on_no_unit():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 1))
    Q = (rng.random((400, 2)) < [0.6, 0.62]).astype(float)
    costs = rng.gamma(1, 1, (400, 2)) * [1.0, 1.1]
    for unit in (1.0, 1e-9):
        router = BudgetRouter(Ridge(), budget=0.6 * unit)
        router.fit(X[:200], Q[:200], costs=costs[:200] * unit)
        saved = savings(
            router, X[200:], Q[200:], costs=costs[200:] * unit, n_resamples=2
        )
        # No mix is as cheap as the cheaper choice of each row.
        assert np.isnan(saved[MIX].cost)


def test_the_best_choice_alone_that_costs_no_more_has_a_line():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 1))
    # The dear model is a little better than the cheap one, on rows that X shows.
    Q = np.column_stack([np.full(400, 0.8), 0.79 + 0.03 * X[:, 0], np.full(400, 0.2)])
    costs = {"cheap": 1, "dear": 10, "bad": 2}
    router = BudgetRouter(Ridge(), costs=costs, budget=3).fit(X[:200], Q[:200])
    saved = savings(router, X[200:], Q[200:], n_resamples=20)
    names = [reference.reference for reference in saved.compared]
    assert names[:2] == [
        "best single choice: dear",
        "best single choice at no more cost: cheap",
    ]
    within = saved["best single choice at no more cost: cheap"]
    assert within.cost == 1
    assert within.share_saved.estimate < 0
    # Where the router costs less than each choice but the best, there is no such line.
    best_is_cheapest = router.set_params(costs={"cheap": 20, "dear": 10, "bad": 30})
    best_is_cheapest.set_params(budget=None)
    saved = savings(best_is_cheapest, X[200:], Q[200:], n_resamples=20)
    assert len(saved.compared) == 2


def test_savings_of_a_certificate_have_the_budget_of_its_operating_point():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(2000, 1))
    small = rng.uniform(size=2000) < X[:, 0]
    Q = np.column_stack([small, np.full(2000, 0.95)]).astype(float)
    router = BudgetRouter(Ridge(), costs=[1, 10])
    certified = CertifiedRouter(router, max_loss=0.1, random_state=0)
    certified.fit(X[:1000], Q[:1000])
    saved = savings(certified, X[1000:], Q[1000:], n_resamples=20)
    assert saved.budget == certified.certificate_.operating_budget < np.inf
    assert "no limit" not in repr(saved)


def test_a_choice_alone_that_is_as_good_and_cheaper_is_named():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 1))
    Q = np.column_stack([np.full(300, 0.9), rng.random(300)])
    router = BudgetRouter(Ridge(), costs={"good": 1, "bad": 5}, budget=3).fit(X, Q)
    with pytest.warns(UserWarning, match="'good' alone has a quality of 0.9"):
        router._warn_of_single_choice(2.0, 0.8)
