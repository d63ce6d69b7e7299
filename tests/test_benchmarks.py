"""Standard errors of the benchmark of objectives, over splits and rows."""

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import _common  # noqa: E402
import bench_objectives as bench  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("splits_differ", [0.0, 0.2])
def test_errors_are_those_of_fresh_tables_and_fits(splits_differ):
    # Rows of a fresh table differ, splits of a table test half of them, fits differ by split.
    means, errors, by_rows_alone = [], [], []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=200)
        gaps, tested = [], []
        for _ in range(12):
            some = rng.permutation(200)[:100]
            noise = rng.normal(size=100) + splits_differ * rng.normal()
            gaps.append(rows[some] + noise)
            tested.append(some)
        means.append(np.mean(gaps))
        errors.append(_common.standard_error(gaps, tested))
        by_rows_alone.append(np.std(gaps) / np.sqrt(1200))
    truth = np.std(means)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(truth, rel=0.12)
    # Rows that were independent in each split would say much less.
    assert np.mean(by_rows_alone) < 0.75 * truth


def test_of_one_split_it_is_that_of_rows():
    gap = np.random.default_rng(0).normal(size=500)
    alone = _common.standard_error([gap], [np.arange(500)])
    assert alone == pytest.approx(gap.std() / np.sqrt(500))


@pytest.mark.parametrize("figure", ["balanced_accuracy", "cost"])
def test_influences_have_the_figure_as_their_mean_and_move_with_it(figure):
    rng = np.random.default_rng(0)
    y = (rng.random(3000) < 0.2).astype(int)
    given = np.where(rng.random(3000) < 0.8, y, 1 - y)
    found = bench.influences(y, given, figure)
    value = {
        "balanced_accuracy": balanced_accuracy_score,
        "cost": lambda y, given: -bench.row_cost(y, given).mean(),
    }[figure]
    assert found.mean() == pytest.approx(value(y, given))
    drawn = []
    for _ in range(300):
        rows = rng.integers(0, 3000, 3000)
        drawn.append(value(y[rows], given[rows]))
    assert found.std() / np.sqrt(3000) == pytest.approx(np.std(drawn), rel=0.15)
