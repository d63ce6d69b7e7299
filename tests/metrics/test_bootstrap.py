"""Bootstrap intervals, as statistics."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binomtest

from skroute.metrics import _compare, bootstrap_interval


def test_is_the_plain_bootstrap():
    state = np.random.RandomState(0)
    a, b = state.normal(size=30), state.normal(size=(30, 2))

    def statistic(x, y):
        return x - y.prod()

    found = bootstrap_interval(
        statistic, a, b, n_resamples=50, confidence_level=0.8, random_state=1
    )
    state = np.random.RandomState(1)
    values = []
    for _ in range(50):
        rows = state.randint(30, size=30)
        values.append(statistic(a[rows].mean(), b[rows].mean(axis=0)))
    assert_allclose(found.estimate, statistic(a.mean(), b.mean(axis=0)))
    assert_allclose([found.low, found.high], np.quantile(values, [0.1, 0.9]))
    assert_allclose(found.standard_error, np.std(values))
    assert found.n_samples == 30


def test_parts_do_not_change_the_result(monkeypatch):
    rows = np.random.RandomState(0).normal(size=40)
    whole = bootstrap_interval(float, rows, n_resamples=30, random_state=0)
    monkeypatch.setattr(_compare, "_CHUNK", 7 * 40)
    assert_allclose(bootstrap_interval(float, rows, n_resamples=30, random_state=0), whole)
    # Fewer numbers than rows: one resample at a time.
    monkeypatch.setattr(_compare, "_CHUNK", 1)
    assert_allclose(bootstrap_interval(float, rows, n_resamples=30, random_state=0), whole)


@pytest.mark.slow
def test_coverage():
    state = np.random.RandomState(0)
    n_trials = 300
    covered = 0
    for _ in range(n_trials):
        rows = state.uniform(size=200) < 0.7
        found = bootstrap_interval(
            float, rows, confidence_level=0.9, n_resamples=200, random_state=state
        )
        covered += found.low <= 0.7 <= found.high
    # Nominal 0.9; percentile intervals of a share of 200 rows fall a little short.
    assert binomtest(covered, n_trials, 0.88).pvalue > 1e-3


def test_undefined_resamples_are_left_out():
    rows = np.r_[np.zeros(3), np.ones(3)]
    found = bootstrap_interval(
        lambda mean: np.nan if mean > 0.5 else mean, rows, n_resamples=200, random_state=0
    )
    assert 0 <= found.low <= found.high <= 0.5
    found = bootstrap_interval(lambda mean: np.nan, rows, n_resamples=5, random_state=0)
    assert np.isnan(found[:4]).all()
    assert found.n_samples == 6


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: bootstrap_interval(float), "needs at least one array of rows, got none"),
        (lambda: bootstrap_interval(float, [1, 2], [1]), "inconsistent numbers of samples"),
        (lambda: bootstrap_interval(float, [1, np.inf]), "Input rows contains infinity"),
        (lambda: bootstrap_interval(3, [1]), "'statistic' parameter of bootstrap_interval must"),
        (
            lambda: bootstrap_interval(float, [1], confidence_level=95),
            "'confidence_level' parameter of bootstrap_interval must be",
        ),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()
