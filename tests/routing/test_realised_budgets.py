"""Budgets in realised costs: ties, frequent rows, honest figures, and what a choice is worth."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from skroute.assignment import assignment_path
from skroute.certified import CertifiedRouter
from skroute.metrics import accuracy_cost_curve
from skroute.quality import BaggedNeighborsRegressor, QualityRegressor
from skroute.routing import BudgetRouter
from skroute.routing.parts._estimates import folds_of
from skroute.routing.parts._policy import choose_by_rule, error_by_level
from skroute.utils._statistics import standard_error

PRICES = np.array([1.0, 4.0, 12.0])


def draw(n, rng, tail=1.2):
    """Return rows, quality and real costs. Hard rows are long, and cost more."""
    X = rng.normal(size=(n, 3))
    odds = np.column_stack([1 - 1.5 * X[:, 0], 2 - 0.5 * X[:, 0], np.full(n, 2.5)])
    Q = (rng.random((n, 3)) < 1 / (1 + np.exp(-odds))).astype(float)
    length = np.exp(tail * (0.6 * X[:, 0] + 0.6 * rng.normal(size=n)) - tail**2 * 0.36)
    return X, Q, np.outer(length, PRICES)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_a_rule_spends_the_budget_in_realised_costs(seed, ties, per_row):
    """At a break exactly, between two with ties mixed: by choosing at the price again."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 5, (30, 3)) / 4 if ties else rng.random((30, 3))
    costs = rng.integers(1, 5, (30, 3) if per_row else 3).astype(float)
    # Each row's own factor keeps the realised mean rising, so that nothing is pooled.
    realised = np.broadcast_to(costs, (30, 3)) * rng.uniform(0.5, 2, (30, 1))
    path = assignment_path(values, costs, realised)
    plan = assignment_path(values, costs)
    np.testing.assert_array_equal(path.prices, plan.prices)
    np.testing.assert_allclose(path.planned, plan.budgets)
    np.testing.assert_allclose(plan.planned, plan.budgets)
    for share in (0.0, 0.3, 1.0):
        budget = path.budgets[0] + share * (path.budgets[-1] - path.budgets[0])
        rule = path.rule(budget)
        spent = choose_by_rule(values, costs, rule).mean(realised).mean()
        if rule.share > 0 or share in (0.0, 1.0):
            assert spent == pytest.approx(budget)
        elif len(path.budgets) > 1:
            # One row alone changes: the nearer side.
            assert abs(spent - budget) <= np.diff(path.budgets).max() / 2 + 1e-12
        if rule.share > 0:
            table = np.broadcast_to(costs, (30, 3))
            planned = choose_by_rule(values, costs, rule).mean(table).mean()
            assert planned == pytest.approx(path.planned_at(budget))


def test_realised_means_that_fall_are_pooled():
    path = assignment_path(
        [[0.0, 0.9], [0.0, 0.5], [0.0, 0.1]], [1, 2], [[1, 4], [3, 1], [1, 2]]
    )
    # 5/3, 8/3, 6/3, 7/3: the second and what follows are pooled.
    np.testing.assert_allclose(path.budgets, [5 / 3, 7 / 3, 7 / 3, 7 / 3])
    assert path.price(2.0) == pytest.approx(0.9)
    assert path.rule(np.inf) == (0.0, 0.0) == path.rule(100)
    assert path.rule(0.0).price == np.inf
    with pytest.raises(ValueError, match="realised must have shape"):
        assignment_path([[0.0, 0.9]], [1, 2], [[1, 2, 3]])


@pytest.mark.slow
@pytest.mark.parametrize("n_tenants", [1, 2, 5])
@pytest.mark.parametrize(
    "estimator", [Ridge(1e-3), DecisionTreeRegressor(random_state=0)]
)
def test_budgets_hold_where_few_rows_differ(n_tenants, estimator):
    """Per tenant the mean of what it costs is known; its draws are not."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        odds = np.sort(rng.uniform(0.3, 0.9, (n_tenants, 2)), axis=1) + [0.0, 0.05]
        tenant = rng.integers(0, n_tenants, 2000)
        new_tenant = rng.integers(0, n_tenants, 20_000)
        Q = (rng.random((2000, 2)) < odds[tenant]).astype(float)
        X = np.eye(n_tenants)[tenant]
        X_new = np.eye(n_tenants)[new_tenant]
        router = BudgetRouter(clone(estimator), costs=[1, 5]).fit(X, Q)
        for budget in (2.0, 3.0, 4.0):
            if router.price_path_.budgets[-1] < budget:
                continue
            cost = router.predict_cost(X_new, budget=budget)
            # The tenants of the rows of fit are drawn, and so are ties.
            share = np.bincount(tenant, minlength=n_tenants) / 2000
            noise_of_tenants = 4 * np.sqrt(share @ (1 - share) / 2000)
            noise_of_ties = 4 * 4 * 0.5 / np.sqrt(20_000)
            noise = noise_of_tenants + noise_of_ties
            assert abs(cost.mean() - budget) < noise + 0.02
            first_costs = router.predict_cost(X_new[:400], budget=budget)
            np.testing.assert_array_equal(first_costs, cost[:400])
            order = rng.permutation(400)
            permuted_costs = router.predict_cost(X_new[:400][order], budget=budget)
            np.testing.assert_array_equal(
                np.bincount(permuted_costs.astype(int)),
                np.bincount(first_costs.astype(int)),
            )


def test_copies_that_the_folds_keep_together_stay_out_of_sample():
    """Then rows to come are new tenants, of which no fold has seen a copy."""
    rng = np.random.default_rng(0)
    tenant = np.repeat(np.arange(10), 50)
    X = np.eye(10)[tenant]
    Q = (rng.random((500, 2)) < [0.5, 0.8]).astype(float)
    splits = []
    for number in range(5):
        is_test = tenant % 5 == number
        splits.append((np.flatnonzero(~is_test), np.flatnonzero(is_test)))
    kept_together = BudgetRouter(Ridge(), costs=[1, 5], cv=splits).fit(X, Q)
    assert kept_together._policy().kind is None
    shuffled = BudgetRouter(Ridge(), costs=[1, 5]).fit(X, Q)
    assert shuffled._policy().kind is not None


@pytest.mark.slow
@pytest.mark.parametrize("learned", [True, False])
def test_the_budget_is_met_in_what_is_paid(learned):
    """Over draws: planned costs are below what is paid, since rows are chosen for them."""
    # Relative differences from the budget, or from the real cost of the same choices.
    online_errors = []
    planned_errors = []
    batch_errors = []
    # Differences from the real quality.
    quality_errors = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        X, Q, C = draw(600, rng)
        X_new, Q_new, C_new = draw(8000, rng)
        router = BudgetRouter(Ridge(), budget=4.0)
        if learned:
            router.set_params(cost_estimator=KNeighborsRegressor(5))
        else:
            router.set_params(costs=PRICES)
        router.fit(X, Q, costs=C)
        rows = np.arange(8000)
        routed = router.predict_routed(X_new)
        paid = C_new[rows, routed.route].mean()
        quality = Q_new[rows, routed.route].mean()
        online_errors.append(paid / 4 - 1)
        planned_errors.append(routed.quoted_cost.mean() / paid - 1)
        quality_errors.append(routed.expected_quality.mean() - quality)
        route = router.set_params(policy="batch").predict_routed(X_new).route
        batch_errors.append(C_new[rows, route].mean() / 4 - 1)
    # 16 draws: the standard error of a mean is a fourth of the standard deviation.
    noise = np.std(online_errors, ddof=1) / 4
    assert abs(np.mean(online_errors)) < 3 * noise + 0.01
    batch_noise = np.std(batch_errors, ddof=1) / 4
    assert abs(np.mean(batch_errors)) < 3 * batch_noise + 0.01
    # A price by planned costs would spend too much by this share.
    assert np.mean(planned_errors) < -0.05
    quality_noise = np.std(quality_errors, ddof=1) / 4
    assert abs(np.mean(quality_errors)) < 3 * quality_noise


@pytest.mark.slow
@pytest.mark.parametrize("learned", [True, False])
def test_the_budget_is_met_where_bills_are_missing(learned):
    """Two fifths of the calls were not made: neither their quality nor bill is known."""
    errors = []
    errors_of_zeros = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, Q, C = draw(1200, rng, tail=0.5)
        X_new, _, C_new = draw(8000, rng, tail=0.5)
        is_unknown = rng.random(Q.shape) < 0.4
        Q[is_unknown] = np.nan
        router = BudgetRouter(Ridge(), budget=4.0)
        if learned:
            router.set_params(cost_estimator=KNeighborsRegressor(15))
        else:
            router.set_params(costs=PRICES)
        rows = np.arange(8000)
        router.fit(X, Q, costs=np.where(is_unknown, np.nan, C))
        errors.append(C_new[rows, router.route(X_new)].mean() / 4 - 1)
        # The naive rule: what was not billed has no cost.
        router.fit(X, Q, costs=np.where(is_unknown, 0.0, C))
        errors_of_zeros.append(C_new[rows, router.route(X_new)].mean() / 4 - 1)
    noise = np.std(errors, ddof=1) / np.sqrt(8)
    assert abs(np.mean(errors)) < 3 * noise + 0.01
    assert np.mean(errors_of_zeros) > 0.15


def test_rows_of_weight_zero_do_not_count_where_cells_are_missing():
    """A new model is known on the recent half of the rows. Old rows have weight 0."""
    X, Q, C = draw(400, np.random.default_rng(0))
    is_old = np.arange(400) < 200
    Q[is_old, 2] = np.nan
    C[is_old, 2] = np.nan
    rows = np.arange(400)
    folds = [(rows[rows % 4 != fold], rows[rows % 4 == fold]) for fold in range(4)]
    recent = np.arange(200)
    folds_of_recent = [
        (recent[recent % 4 != fold], recent[recent % 4 == fold]) for fold in range(4)
    ]
    weighted = BudgetRouter(Ridge(), costs=PRICES, budget=6, cv=folds)
    weighted.fit(X, Q, costs=C, sample_weight=1.0 * ~is_old)
    fitted_on_recent = BudgetRouter(Ridge(), costs=PRICES, budget=6, cv=folds_of_recent)
    fitted_on_recent.fit(X[200:], Q[200:], costs=C[200:])
    for name in ("validation_quality_", "validation_cost_", "price_"):
        of_recent = getattr(fitted_on_recent, name)
        assert getattr(weighted, name) == pytest.approx(of_recent, rel=1e-6)
    with pytest.raises(ValueError, match="costs has fewer than two rows on which"):
        weighted.fit(X, Q, costs=C, sample_weight=1.0 * is_old)


@pytest.mark.slow
def test_intervals_of_the_validation_figures_cover_new_rows():
    inside = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X, Q, C = draw(400, rng, tail=0.5)
        X_new, Q_new, C_new = draw(4000, rng, tail=0.5)
        router = BudgetRouter(Ridge(), costs=PRICES, budget=4.0).fit(X, Q, costs=C)
        route = router.route(X_new)
        rows = np.arange(4000)
        cost = C_new[rows, route]
        quality = Q_new[rows, route]
        for new_rows, mean, error in [
            (cost, router.validation_cost_, router.validation_cost_se_),
            (quality, router.validation_quality_, router.validation_quality_se_),
        ]:
            # 63.2 is the square root of the number of new rows.
            noise = np.hypot(error, new_rows.std() / 63.2)
            inside.append(abs(new_rows.mean() - mean) < 1.96 * noise)
    # 120 of them, binomial at .95: below .87 once in a thousand.
    assert np.mean(inside) > 0.87


@pytest.mark.slow
def test_intervals_of_costs_cover_where_no_budget_binds():
    """Choices have about the same quality: all rows prefer another one than the folds."""
    z_scores = []
    # With the standard error of rows alone.
    naive_z_scores = []
    for seed in range(40):
        rng = np.random.default_rng([seed, 9])
        X = rng.normal(size=(2600, 5))
        odds = np.tile([0.8, 0.85, 0.9], (2600, 1))
        Q = (rng.random((2600, 3)) < 1 / (1 + np.exp(-odds))).astype(float)
        with warnings.catch_warnings():
            # Nothing is gained by routing here.
            warnings.simplefilter("ignore")
            router = BudgetRouter(Ridge(), costs=PRICES).fit(X[:600], Q[:600])
        cost = router.predict_cost(X[600:])
        difference = cost.mean() - router.validation_cost_
        noise = cost.std() / 2000**0.5
        error_of_rows = standard_error(router._policy().validate(np.inf).cost)
        # If every row goes to the cheapest choice, there is no difference and no error.
        tiny = np.finfo(float).tiny
        error = np.hypot(router.validation_cost_se_, noise)
        z_scores.append(difference / max(error, tiny))
        naive_error = np.hypot(error_of_rows, noise)
        naive_z_scores.append(difference / max(naive_error, tiny))
    # 40 of them, binomial at .95: below .82 once in a thousand.
    assert np.mean(np.abs(z_scores) < 1.96) > 0.82
    # The naive error: rows alone, as if all were decided by one fit.
    assert np.mean(np.abs(naive_z_scores) < 1.96) < 0.78


def test_folds_that_differ_widen_the_standard_error():
    """Independent rows have the error of their spread, different folds that of folds."""
    fold_of_row = np.arange(1000) % 2
    independent = np.random.default_rng(0).standard_normal(1000)
    assert standard_error(independent, fold=fold_of_row) < 0.06
    fold_means = fold_of_row.astype(float)
    np.testing.assert_allclose(standard_error(fold_means, fold=fold_of_row), 0.5)


def test_new_prices_scale_the_log():
    rng = np.random.default_rng(0)
    X, Q, C = draw(500, rng)
    router = BudgetRouter(Ridge(), costs=PRICES, budget=6.0).fit(X, Q, costs=C)
    factor = np.array([1.0, 3.0, 0.5])
    again = BudgetRouter(Ridge(), costs=PRICES * factor, budget=6.0).fit(
        X, Q, costs=C * factor
    )
    router.set_params(costs=PRICES * factor)
    np.testing.assert_array_equal(router.route(X), again.route(X))
    assert router.validation_cost_ == pytest.approx(again.validation_cost_)
    assert router.min_budget_ == pytest.approx(again.min_budget_)


def test_return_std_is_the_estimators_own_or_of_its_errors():
    rng = np.random.default_rng(0)
    X, Q, _ = draw(500, rng)
    with_std = make_pipeline(StandardScaler(), BaggedNeighborsRegressor())
    router = BudgetRouter(with_std, costs=PRICES).fit(X, Q)
    mean, std = router.predict_quality(X[:9], return_std=True)
    fitted = router.quality_estimator_
    expected_mean, expected_std = fitted.predict(X[:9], return_std=True)
    np.testing.assert_array_equal(mean, expected_mean)
    np.testing.assert_array_equal(std, expected_std)
    router = BudgetRouter(Ridge(), costs=PRICES).fit(X, Q)
    mean, std = router.predict_quality(X, return_std=True)
    np.testing.assert_array_equal(mean, router.predict_quality(X))
    # Outcomes are 0 or 1: the error is the standard deviation of a Bernoulli variable.
    probability = np.clip(mean, 0.02, 0.98)
    expected = np.sqrt(probability * (1 - probability))
    assert np.abs(std - expected).mean() < 0.06
    (middle, error), _ = error_by_level(np.zeros((5, 2)), np.ones((5, 2)))
    assert middle.tolist() == [0.0] and error.tolist() == [1.0]


def test_warnings_of_budgets_and_costs_that_do_not_go_together():
    X, Q, C = draw(300, np.random.default_rng(0))
    with pytest.warns(
        UserWarning, match="budget=4000.0 has no effect.*costs 12 per sample"
    ):
        BudgetRouter(Ridge(), costs=PRICES, budget=4000.0).fit(X, Q)
    with pytest.warns(
        UserWarning, match="logged costs of 'choice1' are .* but costs says 4"
    ):
        BudgetRouter(Ridge(), costs=PRICES).fit(X, Q, costs=C * [1.0, 1000.0, 1.0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "situation", ["price list", "estimated costs", "abstaining", "weighted"]
)
def test_validation_costs_are_those_of_new_rows_where_nothing_is_gained(situation):
    """Features are noise: some folds choose means, which are one estimate for all rows."""
    estimator = QualityRegressor(family=["linear"])
    options = {"costs": PRICES}
    if situation == "estimated costs":
        options = {"cost_estimator": estimator}
    if situation == "abstaining":
        options["abstain_cost"] = 0.65

    def draw(n_rows, rng):
        X = rng.normal(size=(n_rows, 4))
        Q = (rng.random((n_rows, 3)) < [0.3, 0.5, 0.7]).astype(float)
        return X, Q, np.outer(np.exp(0.5 * rng.normal(size=n_rows) - 0.125), PRICES)

    errors = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, Q, C = draw(300, rng)
        X_new, _, C_new = draw(5000, rng)
        # Abstaining, the last choice, costs nothing.
        C_new = np.column_stack([C_new, np.zeros(5000)])
        weights = {}
        if situation == "weighted":
            weights["sample_weight"] = rng.integers(0, 3, 300).astype(float)
        router = BudgetRouter(estimator, budget=6.0, **options).fit(
            X, Q, costs=C, **weights
        )
        for budget in (2.0, 3.5, 6.0, 9.0):
            route = router.set_params(budget=budget).route(X_new)
            spent = C_new[np.arange(5000), route].mean()
            errors.append((router.validation_cost_ - spent) / budget)
    # A price from estimates that other folds chose is wrong by 9 to 16 percent.
    assert np.sqrt(np.mean(np.square(errors))) < 0.05


@pytest.mark.slow
def test_budgets_hold_where_errors_are_rare_and_expensive():
    """Corrections of the folds differ from those that new rows are estimated by."""

    def draw(n, seed):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 4))
        positive = rng.uniform(size=n) < 1 / (1 + np.exp(3 - 1.2 * X[:, 0] - X[:, 1]))
        wrong = rng.uniform(size=(n, 3)) < [0.35, 0.15, 0.05] * (
            1 + 0.3 * np.tanh(X[:, [2]])
        )
        return X, -np.where(positive[:, None], 50.0, 1.0) * wrong

    errors = []
    # With a price from the estimates of the folds.
    errors_of_folds = []
    for seed in range(1, 4):
        router = BudgetRouter(QualityRegressor(), costs=[1, 3, 10])
        policy = router.fit(*draw(700, seed))._policy()
        X, _ = draw(6000, seed + 100)
        values = policy.estimates(X)
        by_folds = replace(policy, as_new=policy.estimate)
        for budget in (2.5, 4.0, 7.0):
            errors.append(router.predict_cost(X, budget=budget).mean() / budget - 1)
            choices = choose_by_rule(values, policy.planned, by_folds.rule(budget))
            spent = choices.mean(np.broadcast_to(policy.planned, values.shape))
            errors_of_folds.append(spent.mean() / budget - 1)
    assert np.sqrt(np.mean(np.square(errors))) < 0.03
    assert abs(np.mean(errors)) < 0.02
    assert np.sqrt(np.mean(np.square(errors_of_folds))) > 0.1


# Real costs in fit, estimates in a call ---------------------------------------------------------


def draw_requests(seed, n_rows, noise, unit=1.0):
    """Return rows, quality, estimated costs and real costs of requests.

    Costs are estimated from the size of a request. Real costs vary by chance, with a
    factor for each call or for each request (`noise`).
    """
    rng = np.random.default_rng(seed)
    size = rng.lognormal(6.0, 0.6, n_rows)
    X = np.column_stack([size, rng.normal(size=(n_rows, 2))])
    odds = X[:, 1:2] + [-0.5, 0.3, 1.0]
    Q = (rng.random((n_rows, 3)) < 1 / (1 + np.exp(-odds))).astype(float)
    estimates = unit * size[:, np.newaxis] * [0.3, 1.0, 3.0]
    shapes = {"each call": (n_rows, 3), "each request": (n_rows, 1)}
    chance = rng.lognormal(-0.125, 0.5, shapes[noise])
    if noise == "each request":
        # One model runs locally at a fixed cost.
        estimates[:, 0] = unit
        chance = np.column_stack([np.ones(n_rows), chance[:, 0], chance[:, 0]])
    return X, Q, estimates, estimates * chance


CALLS = {
    "route": lambda router, X, Q, C: router.route(X, costs=C),
    "predict": lambda router, X, Q, C: router.predict(X, costs=C),
    "predict_cost": lambda router, X, Q, C: router.predict_cost(X, costs=C),
    "predict_routed": lambda router, X, Q, C: router.predict_routed(X, costs=C),
    "score": lambda router, X, Q, C: router.score(X, Q, costs=C),
    "curve": lambda router, X, Q, C: accuracy_cost_curve(
        router, X, Q, [np.inf], costs=C
    ),
    "certificate": lambda router, X, Q, C: CertifiedRouter(
        FrozenEstimator(router), max_loss=0.9, n_points=4, random_state=0
    ).fit(X, Q, costs=C),
}


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["each call", "each request"]),
    st.sampled_from(sorted(CALLS)),
    st.sampled_from(["array", "frame"]),
    st.sampled_from(["online", "batch"]),
    st.sampled_from([1e-9, 1.0, 1e9]),
    st.integers(60, 600),
    st.integers(0, 9999),
)
@pytest.mark.filterwarnings("ignore")
def test_estimates_at_a_price_of_real_costs_are_refused(
    noise, call, holder, policy, unit, n_rows, seed
):
    """If they were taken, 17 % more than the budget would be spent."""
    # Certificates are for decisions made online.
    assume(call != "certificate" or policy == "online")
    X, Q, estimates, real = draw_requests(seed, 400, noise, unit)
    X_new, Q_new, new_estimates, new_real = draw_requests(seed + 1, n_rows, noise, unit)
    if holder == "frame":
        names = ["size", "a", "b"]
        X = pd.DataFrame(X, columns=names)
        X_new = pd.DataFrame(X_new, columns=names)
    router = BudgetRouter(Ridge(), policy=policy, budget=600 * unit)
    mixed = clone(router).fit(X, Q, costs=real)
    with pytest.raises(
        ValueError, match="cost_estimator .* estimates of its rows.* price list"
    ):
        CALLS[call](mixed, X_new, Q_new, new_estimates)
    # Costs of one kind are not refused.
    CALLS[call](mixed, X_new, Q_new, new_real)
    CALLS[call](clone(router).fit(X, Q, costs=estimates), X_new, Q_new, new_estimates)
    learned = clone(router).set_params(cost_estimator=Ridge()).fit(X, Q, costs=real)
    CALLS[call](learned, X_new, Q_new, new_estimates)
    # New prices, single requests and equal requests are not refused either.
    same = clone(router).fit(X, Q, costs=estimates)
    same.route(X_new, costs=3 * new_estimates, budget=np.inf)
    mixed.route(X_new[:1], costs=new_estimates[:1], budget=np.inf)
    first_60_times = np.zeros(60, dtype=int)
    if holder == "frame":
        equal_rows = X_new.iloc[first_60_times]
    else:
        equal_rows = X_new[first_60_times]
    mixed.route(
        equal_rows, costs=np.repeat(new_estimates[:1], 60, axis=0), budget=np.inf
    )


@pytest.mark.slow
def test_quotes_of_one_kind_are_never_refused():
    """Rounded quotes, with and without chance, of all requests and of small ones."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        X, Q, estimates, real = draw_requests(seed, 400, "each call")
        n_new = int(rng.integers(50, 400))
        X_new, _, new_estimates, new_real = draw_requests(seed + 1, n_new, "each call")
        n_small = max(n_new // int(rng.integers(1, 5)), 10)
        small = np.argsort(new_estimates[:, 1])[:n_small]
        for costs, new_costs in ((estimates, new_estimates), (real, new_real)):
            quotes = costs.round(-1) + 10
            new_quotes = new_costs.round(-1) + 10
            router = BudgetRouter(Ridge()).fit(X, Q, costs=quotes)
            assert len(router.route(X_new, costs=new_quotes)) == n_new
            route_of_small = router.route(X_new[small], costs=new_quotes[small])
            assert len(route_of_small) == n_small


@pytest.mark.parametrize("seed", range(3))
def test_the_price_of_estimated_costs_is_learned_on_estimates_as_those_of_new_rows(
    seed,
):
    X, Q, C = draw(150, np.random.default_rng(seed))
    estimator = QualityRegressor(family=["linear", "trees"])
    router = BudgetRouter(
        Ridge(), cost_estimator=estimator, budget=4.0, cv=3, abstain_cost=0.3
    )
    policy = router.fit(X, Q, costs=C)._learned
    folds = folds_of(3, X)
    estimate, as_new = clone(estimator).cross_fit(X, C, folds=folds, return_kept=True)
    assert not np.array_equal(estimate, as_new)
    np.testing.assert_array_equal(policy.planned[:, :3], np.maximum(estimate, 0))
    np.testing.assert_array_equal(policy.planned_as_new[:, :3], np.maximum(as_new, 0))
    # Abstaining costs nothing.
    np.testing.assert_array_equal(policy.planned_as_new[:, 3], 0)
