"""Corrections of estimates, and their standard errors."""

import pickle

import numpy as np
import pytest

from skroute.quality import QualityRegressor, _uncertainty
from skroute.quality._corrections import fit_corrections, outcome_divisors, range_of
from skroute.quality._stacking import choose_weights
from skroute.quality._uncertainty import error_curves, simulate_outcomes


def drawn(n_rows, seed, bend=0.0):
    """Return estimates, true quality that is bent away from them, and outcomes."""
    rng = np.random.default_rng(seed)
    estimate = rng.random((n_rows, 3))
    truth = estimate + bend * estimate * (1 - estimate)
    return estimate, truth, (rng.random((n_rows, 3)) < truth).astype(float)


def test_biased_estimates_are_corrected():
    estimate, _, Q = drawn(4000, seed=0, bend=-0.8)
    new, new_truth, _ = drawn(4000, seed=1, bend=-0.8)
    corrected = fit_corrections(estimate, Q).apply(new)
    error_before = np.sqrt(((new - new_truth) ** 2).mean())
    error_after = np.sqrt(((corrected - new_truth) ** 2).mean())
    assert error_after < 0.25 * error_before


def test_unbiased_estimates_hardly_change():
    moved = []
    for seed in range(20):
        estimate, _, Q = drawn(1000, seed)
        corrected = fit_corrections(estimate, Q).apply(estimate)
        moved.append(np.abs(corrected - estimate).mean())
    # A curve of five powers that is not shrunk moves them by about .03.
    assert np.mean(moved) < 0.012


def test_the_order_of_estimates_stays():
    rng = np.random.default_rng(0)
    for _ in range(20):
        estimate = np.sort(rng.standard_normal((60, 2)), axis=0)
        curves = fit_corrections(estimate, rng.standard_normal((60, 2)))
        assert (np.diff(curves.apply(estimate), axis=0) > -1e-9).all()


@pytest.mark.parametrize("few", [1, 2, 3])
def test_tied_estimates_stay_tied(few):
    """Few different estimates with noise in the last digit, as by rounding."""
    rng = np.random.default_rng(0)
    values = np.linspace(0.2, 0.8, few)[rng.integers(few, size=(2000, 4))]
    Q = (rng.random(values.shape) < values).astype(float)
    shaken = values * (1 + 1e-15 * rng.standard_normal(values.shape))
    corrected = fit_corrections(shaken, Q).apply(shaken)
    assert np.abs(corrected - values).max() < 0.05
    without_noise = fit_corrections(values, Q).apply(values)
    np.testing.assert_allclose(corrected, without_noise, atol=1e-6)


def test_estimates_that_differ_by_rounding_are_equal():
    limits = range_of(np.array([[0.0, 1.0], [1.0, 0.0]]))
    estimate = np.array([[1 - 1e-9, 1.0], [0.5, 0.5 + 1e-9], [1.3, -2.0]])
    limited = limits.limit(estimate)
    assert limited[0, 0] == limited[0, 1]
    assert limited[1, 0] == limited[1, 1]
    assert limited[2].tolist() == [1.0, 0.0]
    assert np.abs(limits.limit(np.full((1, 2), 1 / 3)) - 1 / 3).max() < 1e-6


def made_up_table(seed, n_train):
    """Return rows, true quality and outcomes, with 1,000 new rows at the end."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_train + 1000, 6))
    W = rng.standard_normal((6, 3)) / 2
    truth = 1 / (1 + np.exp(-X @ W - np.sin(2 * X[:, :3])))
    return X, truth, (rng.random(truth.shape) < truth).astype(float)


@pytest.mark.slow
def test_intervals_hold_the_true_quality():
    """Intervals of 90 % hold, and those with half the standard error do not."""
    held = []
    halved = []
    for seed in range(4):
        X, truth, Q = made_up_table(seed, 600)
        model = QualityRegressor(standard_errors=True).fit(X[:600], Q[:600])
        mean, std = model.predict(X[600:], return_std=True)
        held.append((np.abs(mean - truth[600:]) <= 1.645 * std).mean())
        halved.append((np.abs(mean - truth[600:]) <= 1.645 * std / 2).mean())
    assert 0.8 < np.mean(held) < 0.97
    assert np.mean(halved) < 0.7


def test_standard_errors_of_one_output_and_of_few_rows():
    X, _, Q = made_up_table(0, 100)
    model = QualityRegressor(cv=2, standard_errors=True)
    mean, std = model.fit(X[:60], Q[:60, 0]).predict(X[:9], return_std=True)
    assert mean.shape == std.shape == (9,) and (std > 0).all()
    mean, std = model.fit(X[:10], Q[:10]).predict(X[:2], return_std=True)
    np.testing.assert_allclose(std[0], Q[:10].std(axis=0, ddof=1) / 10**0.5)
    assert np.isnan(model.fit(X[:1], Q[:1]).predict(X[:1], return_std=True)[1]).all()
    with pytest.raises(ValueError, match=r"QualityRegressor\(standard_errors=True\)"):
        QualityRegressor(cv=2).fit(X, Q).predict(X, return_std=True)


def test_made_up_outcomes_have_the_noise_of_the_rows():
    estimate, truth, Q = drawn(2000, 0)
    fake = simulate_outcomes(truth, Q, np.random.default_rng(0))
    np.testing.assert_allclose(np.abs(fake - truth), np.abs(Q - truth))
    # One sign for a row: what choices have in common stays.
    signs = np.sign((fake - truth) * (Q - truth))
    assert (signs == signs[:, :1]).all() and abs(signs.mean()) < 0.1


def test_error_curves_are_root_mean_squares():
    """They are multiplied by the factor of simulated errors."""
    rng = np.random.default_rng(0)
    factor = _uncertainty._ERROR_FACTOR
    estimate = rng.random((5000, 2))
    error = rng.standard_normal(estimate.shape) * [0.1, 0.3] * (1 + estimate)
    curves = error_curves(estimate, error, np.array([100.0, 100.0]))
    errors = curves.standard_errors(np.array([[0.1, 0.1], [0.9, 0.9]]))
    np.testing.assert_allclose(errors / factor, [[0.11, 0.33], [0.19, 0.57]], rtol=0.1)
    constant = error_curves(np.zeros((50, 1)), np.full((50, 1), 2.0), np.zeros(1))
    assert constant.standard_errors(np.zeros((1, 1))) == pytest.approx(2.0 * factor)


def losses(seed, n_rows=1000):
    """Return rows, quality of four choices, and the true quality of the first three.

    Quality is the negative loss. The loss of the last choice has a heavy tail.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, 5))
    expected = (1 + np.abs(X[:, :1]) / 2) * np.linspace(1.3, 0.8, 4)
    loss = expected * rng.gamma(4, 0.25, (n_rows, 4))
    tail = 3 * rng.pareto(1, n_rows) + 0.1
    loss[:, 3] = expected[:, 3] * tail * np.where(X[:, 1] > 0, 1, 3)
    return X, -loss, -expected[:, :3]


@pytest.mark.slow
def test_one_choice_with_a_heavy_tail_leaves_the_estimates_of_the_others_alone():
    off = []
    for seed in range(6):
        X, Q, _ = losses(seed)
        new, _, truth = losses(100 + seed)
        model = QualityRegressor().fit(X, Q)
        estimate = model.predict(new)
        off.append(np.abs((estimate[:, :3] - truth).mean(axis=0)))
        copied = pickle.loads(pickle.dumps(model))
        np.testing.assert_allclose(copied.predict(new), estimate)
    # The losses are about 1.5 and above zero.
    assert np.max(off) < 0.3 and np.mean(off) < 0.08


def test_only_choices_with_a_tail_have_a_size():
    rng = np.random.default_rng(0)
    rare = (rng.random((500, 4)) < [0.5, 0.01, 0.99, 1.0]).astype(float)
    # A range that is rounding is no size.
    rounding = np.column_stack([rng.random(500), 0.1 + 1e-17 * rng.random(500)])
    # Nearly equal scores of one choice, next to right and wrong of another.
    narrow = np.column_stack([0.75 + 0.03 * rng.random(500), rare[:, 0]])
    normal = rng.standard_normal((500, 3)) * [1, 2, 1000]
    for Q in (rare, narrow, normal, np.ones((10, 2)), rounding):
        assert np.all(outcome_divisors(Q) == 1)
    Q = rng.standard_normal((500, 3))
    Q[:, 2] *= np.where(np.arange(500) == 7, 1e5, 1)
    spread = Q.std(axis=0)
    ratio = 2.0 ** np.round(np.log2(spread[2] / spread[:2].min()))
    assert outcome_divisors(Q).tolist() == [1, 1, ratio]
    # The range of this choice does not set the rounding unit of the others.
    assert range_of(Q).unit < 2e-4


def test_rare_and_expensive_outcomes_bend_no_estimates():
    """Curves that few large errors determine are not applied to good estimates."""
    n_uncorrected = 0
    costs = np.array([1.0, 2.0, 4.0])
    for seed in range(8):
        rng = np.random.default_rng(seed)
        truth = -50 * 0.03 * rng.random((2000, 3)) ** 2
        quality = np.where(rng.random(truth.shape) < -truth / 50, -50.0, 0.0)
        noise = 0.05 * rng.normal(size=truth.shape)
        deviations = (truth - truth.mean(axis=0) + noise)[None]  # of one member
        folds = np.array_split(np.arange(2000), 5)
        means = np.empty(truth.shape)
        for rows in folds:
            means[rows] = np.delete(quality, rows, axis=0).mean(axis=0)
        selection = choose_weights(
            ["x"], deviations, quality - means, quality, folds, costs
        )
        estimate = selection.combination.estimate(deviations)
        error = ((estimate - truth) ** 2).mean()
        error_of_means = ((means - truth) ** 2).mean()
        assert error < 1.1 * error_of_means
        n_uncorrected += selection.combination.curves is None
    assert n_uncorrected >= 3
