"""Corrections of estimates, and their standard errors."""

import pickle

import numpy as np
import pytest

from skroute.quality import QualityRegressor, _uncertainty
from skroute.quality import _stacking as stacking
from skroute.quality._corrections import fit_corrections, range_of, sizes_of
from skroute.quality._uncertainty import error_curves, simulate_outcomes


def drawn(n, seed, bend=0.0, k=3):
    """Estimates, and outcomes whose mean is bent away from them."""
    rng = np.random.default_rng(seed)
    estimate = rng.random((n, k))
    truth = estimate + bend * estimate * (1 - estimate)
    return estimate, truth, (rng.random((n, k)) < truth).astype(float)


def test_what_is_off_is_mended():
    estimate, truth, Q = drawn(4000, 0, bend=-0.8)
    new, new_truth, _ = drawn(4000, 1, bend=-0.8)
    corrected = fit_corrections(estimate, Q).apply(new)
    error_before = np.sqrt(((new - new_truth) ** 2).mean())
    error_after = np.sqrt(((corrected - new_truth) ** 2).mean())
    assert error_after < 0.25 * error_before


def test_what_is_right_is_left_but_for_noise():
    moved = []
    for seed in range(20):
        estimate, _, Q = drawn(1000, seed)
        corrected = fit_corrections(estimate, Q).apply(estimate)
        moved.append(np.abs(corrected - estimate).mean())
    # A curve of five powers that is not shrunk is off by about .03.
    assert np.mean(moved) < 0.012


def test_the_order_of_estimates_stays():
    rng = np.random.default_rng(0)
    for _ in range(20):
        estimate = np.sort(rng.standard_normal((60, 2)), axis=0)
        curves = fit_corrections(estimate, rng.standard_normal((60, 2)))
        assert (np.diff(curves.apply(estimate), axis=0) > -1e-9).all()


@pytest.mark.parametrize("few", [1, 2, 3])
def test_ties_are_not_cut(few):
    """Few different estimates with noise in the last digit, as sums in other orders have."""
    rng = np.random.default_rng(0)
    values = np.linspace(0.2, 0.8, few)[rng.integers(few, size=(2000, 4))]
    Q = (rng.random(values.shape) < values).astype(float)
    shaken = values * (1 + 1e-15 * rng.standard_normal(values.shape))
    corrected = fit_corrections(shaken, Q).apply(shaken)
    assert np.abs(corrected - values).max() < 0.05
    without_noise = fit_corrections(values, Q).apply(values)
    np.testing.assert_allclose(corrected, without_noise, atol=1e-6)


def test_rounding_buys_nothing():
    limits = range_of(np.array([[0.0, 1.0], [1.0, 0.0]]))
    estimate = np.array([[1 - 1e-9, 1.0], [0.5, 0.5 + 1e-9], [1.3, -2.0]])
    limited = limits.limit(estimate)
    assert limited[0, 0] == limited[0, 1]
    assert limited[1, 0] == limited[1, 1]
    assert limited[2].tolist() == [1.0, 0.0]
    assert np.abs(limits.limit(np.full((1, 2), 1 / 3)) - 1 / 3).max() < 1e-6


def made_up_table(seed, n):
    rng = np.random.default_rng(seed)
    X, W = rng.standard_normal((n + 1000, 6)), rng.standard_normal((6, 3)) / 2
    truth = 1 / (1 + np.exp(-X @ W - np.sin(2 * X[:, :3])))
    return X, truth, (rng.random(truth.shape) < truth).astype(float)


@pytest.mark.slow
def test_intervals_hold_the_true_quality():
    """90 % intervals, over fresh tables; half the standard error, and they do not."""
    held, halved = [], []
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


def losses(seed, n=1000):
    """Losses of four choices, the last with a heavy tail, and what the others lose on average."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5))
    expected = (1 + np.abs(X[:, :1]) / 2) * np.linspace(1.3, 0.8, 4)
    found = expected * rng.gamma(4, 0.25, (n, 4))
    found[:, 3] = (
        expected[:, 3] * (3 * rng.pareto(1, n) + 0.1) * np.where(X[:, 1] > 0, 1, 3)
    )
    return X, -found, -expected[:, :3]


@pytest.mark.slow
def test_one_choice_with_a_heavy_tail_leaves_the_estimates_of_the_others_alone():
    off = []
    for seed in range(6):
        (X, Q, _), (new, _, truth) = losses(seed), losses(100 + seed)
        model = QualityRegressor().fit(X, Q)
        estimate = model.predict(new)
        off.append(np.abs((estimate[:, :3] - truth).mean(axis=0)))
        np.testing.assert_allclose(
            pickle.loads(pickle.dumps(model)).predict(new), estimate
        )
    # Of losses of about 1.5, all above zero.
    assert np.max(off) < 0.3 and np.mean(off) < 0.08


def test_sizes_are_of_choices_with_a_tail_only():
    rng = np.random.default_rng(0)
    rare = (rng.random((500, 4)) < [0.5, 0.01, 0.99, 1.0]).astype(float)
    # What is left of equal outcomes by rounding is no size.
    rounding = np.column_stack([rng.random(500), 0.1 + 1e-17 * rng.random(500)])
    # A judge that gives nearly the same to one choice, beside right and wrong of the others.
    narrow = np.column_stack([0.75 + 0.03 * rng.random(500), rare[:, 0]])
    normal = rng.standard_normal((500, 3)) * [1, 2, 1000]
    for Q in (rare, narrow, normal, np.ones((10, 2)), rounding):
        assert np.all(sizes_of(Q) == 1)
    Q = rng.standard_normal((500, 3))
    Q[:, 2] *= np.where(np.arange(500) == 7, 1e5, 1)
    spread = Q.std(axis=0)
    assert sizes_of(Q).tolist() == [
        1,
        1,
        2.0 ** np.round(np.log2(spread[2] / spread[:2].min())),
    ]
    # Estimates of the others are not rounded by its range.
    assert range_of(Q).unit < 2e-4


def test_rare_and_expensive_outcomes_bend_no_estimates():
    """Estimates that are right but for a little: curves that few errors bend are not taken."""
    plain, costs = 0, np.array([1.0, 2.0, 4.0])
    for seed in range(8):
        rng = np.random.default_rng(seed)
        truth = -50 * 0.03 * rng.random((2000, 3)) ** 2
        quality = np.where(rng.random(truth.shape) < -truth / 50, -50.0, 0.0)
        estimates = (truth - truth.mean(axis=0) + 0.05 * rng.normal(size=truth.shape))[
            None
        ]
        folds, means = np.array_split(np.arange(2000), 5), np.empty(truth.shape)
        for rows in folds:
            means[rows] = np.delete(quality, rows, axis=0).mean(axis=0)
        found = stacking.choose_weights(
            ["x"], estimates, quality - means, quality, folds, costs
        )
        # Of outcomes that few errors make, an estimate is not further off than the means are.
        off, of_means = (
            ((found.combination.estimate(estimates) - truth) ** 2).mean(),
            ((means - truth) ** 2).mean(),
        )
        assert off < 1.1 * of_means
        plain += found.combination.curves is None
    assert plain >= 3
