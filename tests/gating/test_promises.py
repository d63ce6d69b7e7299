"""Promises of the gate: a share of rows, a budget, features that were really bought."""

import os
import subprocess
import sys
import warnings
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, LeaveOneOut, PredefinedSplit
from sklearn.naive_bayes import GaussianNB

from skroute.features import LazyFeatures
from tests.gating.kinds import adapt_of
from tests.routing.test_base import Reversed, Scores

METHODS = ("gbrt", "lin")


def make_gate(method, estimator=None, **params):
    if estimator is None:
        estimator = RandomForestClassifier(15, oob_score=True, random_state=0)
    params = {"gamma": 0.02, "n_estimators": 25, "tol": 1e-3} | params
    return adapt_of(estimator, method, **params)


def problem(kind, n, n_fresh, seed):
    """Return training rows and labels, and fresh rows and labels."""
    X, y = make_classification(
        n + n_fresh,
        n_features=10,
        n_informative=6,
        class_sep=0.7,
        flip_y=0.05,
        random_state=seed,
    )
    if kind == "few values":
        X = np.round(np.clip(X, -1, 1))
    if kind == "skewed":
        X = np.sinh(2 * X)
    return X[:n], y[:n], X[n:], y[n:]


def within(share, bound, n_held_out, n_fresh):
    """Return True if a share of fresh rows keeps a bound up to four standard errors."""
    error = np.sqrt(bound * (1 - bound) * (1 / n_held_out + 1 / n_fresh))
    return share <= bound + 4 * error


@settings(max_examples=3, deadline=None)
@example("gbrt", "few values", 2000, 0.3, 0.02, 0)
@example("gbrt", "continuous", 2000, 0.3, 0.02, 4)
@given(
    method=st.sampled_from(METHODS),
    kind=st.sampled_from(["continuous", "few values", "skewed"]),
    n=st.sampled_from([100, 400, 2000]),
    p_full=st.sampled_from([0.1, 0.3, 0.6]),
    gamma=st.sampled_from([0.002, 0.02]),
    seed=st.integers(0, 20),
)
def test_share_of_rows_sent_is_bounded(method, kind, n, p_full, gamma, seed):
    """p_full bounds the share sent: exactly on training rows, on average on fresh ones."""
    X, y, fresh, _ = problem(kind, n, 4000, seed)
    with warnings.catch_warnings():
        # With few rows some are in every bag.
        warnings.simplefilter("ignore", UserWarning)
        gate = make_gate(method, p_full=p_full, gamma=gamma).fit(X, y)
    assert gate.route(X).mean() <= p_full
    assert within(gate.route(fresh).mean(), p_full, n / 5, 4000)
    # An online budget is met by the same scores.
    cheap = gate.cost_table_["cheap"]
    full = gate.cost_table_["full"]
    for share in (1e-9, 0.5 * p_full):
        spent = gate.predict_cost(fresh, budget=cheap + share * (full - cheap)).mean()
        # If the full model is no more expensive, a budget does not limit its rows.
        sent = 0.0 if full <= cheap else (spent - cheap) / (full - cheap)
        assert within(sent, max(share, 5 / n), n / 5, 4000)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 3)), min_size=1, max_size=20),
    st.floats(0, 1),
    st.integers(0, 1000),
)
def test_cuts_by_brute_force(rows, share, seed):
    from skroute.gating._levels import find_cuts, lowest_level

    values, weight = np.array(rows, dtype=float).T
    weight[0] += 1
    # Rounding makes no difference of a tie.
    gate = values + np.random.default_rng(seed).normal(0, 1e-13, len(values))

    def share_above(level):
        return weight[gate > level].sum() / weight.sum()

    cuts = find_cuts(gate, weight)
    assert (np.diff(cuts.levels) < 0).all()
    assert (np.diff(cuts.shares) >= 0).all()
    for level, expected in zip(cuts.levels, cuts.shares):
        assert_allclose(share_above(level), expected, atol=1e-12)
    assert cuts.shares[0] == 0
    assert len(cuts.levels) == len(np.unique(values)) + 1
    sent = share_above(lowest_level(gate, weight, share))
    assert sent <= share + 1e-9
    # The largest share within the bound, by sending all values above one of them.
    best = 0.0
    for value in np.append(np.unique(values), -9):
        possible = weight[values > value].sum() / weight.sum()
        if possible <= share + 1e-9:
            best = max(best, possible)
    assert_allclose(sent, best, atol=1e-9)


@pytest.mark.parametrize(
    "fault", ["nan", "none", "inf", "masked", "complex", "text", "shape"]
)
def test_bought_features_are_checked_like_arrays(fault):
    X, y, fresh, _ = problem("continuous", 200, 50, 0)
    gate = make_gate("lin", FrozenEstimator(LogisticRegression().fit(X, y))).fit(X, y)

    def source(columns, rows):
        values = fresh[np.ix_(rows, columns)]
        is_first_row = rows[:, None] == rows[0]
        if fault == "nan":
            return np.where(is_first_row, np.nan, values)
        if fault == "none":
            return np.full(values.shape, None)
        if fault == "inf":
            return values + np.inf
        if fault == "masked":
            return np.ma.masked_array(values, mask=values < np.inf)
        if fault == "complex":
            return values + 1j
        if fault == "text":
            return np.full(values.shape, "Maria")
        assert fault == "shape"
        return values[:, :1][1:]

    lazy = LazyFeatures(source, n_samples=50)
    with pytest.raises(ValueError, match="feature source returned") as caught:
        gate.predict(lazy)
    assert "Maria" not in str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_missing_values_may_be_bought_where_they_may_be_given(method):
    X, y, fresh, _ = problem("continuous", 300, 60, 0)
    X = np.where(X > 2, np.nan, X)
    fresh = np.where(fresh > 1, np.nan, fresh)
    with pytest.raises(ValueError, match="NaN"):
        make_gate(method, LogisticRegression()).fit(X, y)
    gate = make_gate(method).fit(X, y)
    expected = gate.predict(fresh)
    with_none = np.where(np.isnan(fresh), None, fresh)
    masked = np.ma.masked_invalid(fresh)
    for cells in (fresh, with_none, masked):
        lazy = LazyFeatures(
            lambda columns, rows, cells=cells: cells[np.ix_(rows, columns)],
            n_samples=60,
        )
        assert_array_equal(gate.predict(lazy), expected)
    infinite = LazyFeatures(
        lambda columns, rows: np.full((len(rows), len(columns)), np.inf), n_samples=60
    )
    with pytest.raises(ValueError, match="infinit"):
        gate.predict(infinite)


def test_full_model_with_unsorted_classes():
    X, y, fresh, _ = problem("continuous", 400, 100, 0)
    params = {"cv": 3, "p_full": 0.6, "gamma": 0.01}
    unsorted = make_gate("gbrt", Reversed(), **params).fit(X, y)
    expected = make_gate("gbrt", GaussianNB(), **params).fit(X, y)
    routed = unsorted.predict_routed(fresh)
    expected_routed = expected.predict_routed(fresh)
    assert_array_equal(routed.y_pred, expected_routed.y_pred)
    assert_array_equal(routed.route, expected_routed.route)
    assert_array_equal(routed.cost, expected_routed.cost)
    assert_allclose(unsorted.predict_proba(fresh), expected.predict_proba(fresh))
    assert unsorted.route(fresh).any()


def test_groups_of_columns_that_an_encoder_renamed():
    X, y, _, _ = problem("continuous", 120, 20, 0)
    frame = pd.DataFrame(X[:, :3], columns=["cat__sex_F", "cat__sex_M", "num__age"])
    model = make_gate("gbrt", feature_groups={"triage": ["sex"], "age": ["num__age"]})
    message = r"names column 'sex'.*\['cat__sex_F', 'cat__sex_M'\]"
    with pytest.raises(ValueError, match=message):
        model.fit(frame, y)


@pytest.mark.parametrize("method", METHODS)
def test_groups_stay_together_in_all_that_is_out_of_sample(method):
    X, y, _, _ = problem("continuous", 150, 1, 0)
    groups = np.arange(150) // 5
    X[:, 0] = groups
    splits = list(GroupKFold(3).split(X, y, groups))
    fold = np.empty(150, dtype=int)
    for number, (_, test) in enumerate(splits):
        fold[test] = number
    fit = LogisticRegression.fit
    for cv in (splits, iter(splits), PredefinedSplit(fold)):
        with patch.object(
            LogisticRegression, "fit", autospec=True, side_effect=fit
        ) as counted_fit:
            make_gate(method, LogisticRegression(), cv=cv).fit(X, y)
        # The first column is the group. The first fit is on all rows.
        groups_of_fits = [
            set(call.args[1][:, 0]) for call in counted_fit.call_args_list
        ]
        assert len(groups_of_fits) == 4
        for train_groups, (_, test) in zip(groups_of_fits[1:], splits):
            assert not train_groups & set(groups[test])
    with pytest.raises(ValueError, match="groups.*metadata routing"):
        make_gate(method, LogisticRegression(), cv=GroupKFold(3)).fit(X, y)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = make_gate(method, LogisticRegression(), cv=GroupKFold(3)).fit(
            X, y, groups=groups
        )
    direct = make_gate(method, LogisticRegression(), cv=splits).fit(X, y)
    assert_array_equal(routed.predict_proba(X), direct.predict_proba(X))


def test_splits_that_cannot_hold_out_are_refused():
    X, y, _, _ = problem("continuous", 60, 1, 0)
    full = FrozenEstimator(LogisticRegression().fit(X, y))
    rows = np.arange(60)
    with pytest.raises(ValueError, match="cv must"):
        make_gate("lin", full, cv=[(rows, rows)]).fit(X, y)
    weight = np.ones(60)
    weight[:30] = 0
    with pytest.raises(ValueError, match="cv must"):
        make_gate("lin", full, cv=[(rows[30:], rows[:30])]).fit(
            X, y, sample_weight=weight
        )
    # A tenth of the rows is held out, in test sets of one row.
    gate = make_gate("gbrt", full, cv=LeaveOneOut(), p_full=0.5).fit(X, y)
    assert gate.route(X).mean() <= 0.5


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fit_in_a_forked_child_does_not_hang():
    code = """
import os, signal, sys
import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from skroute.gating import AdaptGatingClassifier, BoostedGate
rng = np.random.default_rng(0)
X = rng.normal(size=(30000, 6)); y = (X[:, 0] + X[:, 1] > 0).astype(int)
full = FrozenEstimator(DummyClassifier().fit(X, y))
model = AdaptGatingClassifier(full, gate=BoostedGate(n_estimators=5), cv=2)
model.set_params(n_jobs=2).fit(X, y)
expected = model.predict_proba(X)
child = os.fork()
if child == 0:
    signal.alarm(60)
    again = model.fit(X, y).predict_proba(X)
    os._exit(0 if (again == expected).all() else 3)
sys.exit(os.waitpid(child, 0)[1] != 0)
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=120)
    assert done.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["continuous", "few values", "one value", "both"])
def test_shares_are_met_on_average_over_fresh_rows(kind):
    """Budgets are met if scores tie, and for shares of less than one held-out row.

    The test fails if shares are cut between held-out scores without drawing (few values:
    -.1), if n rows make n places in place of n + 1 (continuous: -.004 at .01), or if tied
    ones share n of n places (few values).
    """
    from skroute.gating._levels import Ranks
    from skroute.utils._row_hash import feature_keys

    rng = np.random.default_rng(0)
    shares = (0.01, 0.1, 0.5, 0.9)
    # Realised shares, with ranks drawn by the values of rows and by random keys.
    sent_by_values = []
    sent_by_random_keys = []
    for _ in range(600):
        values = rng.normal(size=(240, 1))
        if kind == "few values":
            values = np.round(values)
        if kind == "one value":
            values[:] = 0
        if kind == "both":
            values[rng.random(240) < 0.5] = 0.3
        gate = values[:, 0]
        ranks = Ranks.of(gate[:40], np.ones(40))
        fresh_gate = gate[40:]
        drawn = ranks.draw(fresh_gate, feature_keys(values[40:]))
        sent_by_values.append([(drawn < share).mean() for share in shares])
        keys = rng.integers(0, 2**64, 200, dtype=np.uint64)
        drawn_randomly = ranks.draw(fresh_gate, keys)
        sent_by_random_keys.append(
            [(drawn_randomly < share).mean() for share in shares]
        )
        lowest, highest = ranks.bounds(fresh_gate)
        falling = np.argsort(-fresh_gate)
        assert (np.diff(lowest[falling]) >= 0).all()
        assert (np.diff(highest[falling]) >= 0).all()
        assert (lowest <= drawn).all()
        assert (drawn <= highest).all()
    assert_no_bias(sent_by_random_keys, shares, slack=0.0)
    # Rows of a rare value all have the same key here.
    slack = 0.0 if kind == "continuous" else 0.006
    assert_no_bias(sent_by_values, shares, slack=slack)


def assert_no_bias(sent, shares, slack):
    """Check that mean realised shares differ from `shares` by chance and `slack` only."""
    error = np.std(sent, axis=0) / np.sqrt(len(sent))
    bias = np.mean(sent, axis=0) - shares
    assert (np.abs(bias) < 4 * error + slack + 1e-12).all()


def test_draws_of_equal_rows_are_spread_evenly():
    from skroute.utils._row_hash import even_draws, feature_keys

    values = np.array([[0.0, np.nan]] * 50 + [[1.0, 2.0]])
    draws = even_draws(feature_keys(values))
    for share in (0.1, 0.4, 0.9):
        assert abs((draws[:50] < share).mean() - share) <= 0.04
    # A row gets what it gets alone, and there is one zero.
    alone = (
        even_draws(feature_keys(values[[50]])),
        even_draws(feature_keys(-values[[0]])),
    )
    assert_array_equal(np.concatenate(alone), draws[[50, 0]])


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_validation_figures_are_those_of_fresh_rows(method):
    """Realised cost and quality at a budget, in standard errors of the validation figures."""
    # Differences of cost and quality, in standard errors.
    z = []
    for seed in range(12):
        kind = "few values" if seed % 2 else "continuous"
        X, y, fresh, y_fresh = problem(kind, 600, 4000, seed)
        gate = make_gate(method, p_full=1.0, gamma=0.03).fit(X, y)
        cheap = gate.cost_table_["cheap"]
        full = gate.cost_table_["full"]
        gate.set_params(budget=cheap + 0.15 * (full - cheap))
        routed = gate.predict_routed(fresh)
        if gate.predict_cost(fresh, budget=np.inf).mean() <= gate.budget:
            # The budget does not bind.
            continue
        assert abs(gate.validation_cost_ / gate.budget - 1) < 0.1
        cost_difference = routed.cost.mean() - gate.validation_cost_
        accuracy = (routed.y_pred == y_fresh).mean()
        quality_difference = accuracy - gate.validation_quality_
        z.append(
            [
                cost_difference / gate.validation_cost_se_,
                quality_difference / gate.validation_quality_se_,
            ]
        )
    assert len(z) >= 6
    assert (np.abs(np.mean(z, axis=0)) < 4 / np.sqrt(len(z))).all()
    assert (np.std(z, axis=0) < 2).all()


def test_a_gate_that_gains_nothing_is_not_paid():
    """If the full model answers at random, no row is sent and no gate is bought."""
    X, y, fresh, _ = problem("continuous", 400, 50, 0)
    at_random = DummyClassifier(strategy="uniform", random_state=0).fit(X, y)
    gate = adapt_of(FrozenEstimator(at_random), "gbrt", gamma=0.02, n_estimators=25)
    gate.fit(X, y)
    assert (gate.gate_function(fresh) == -np.inf).all()
    assert not gate.route(fresh).any()
    assert len(gate.features_used_["gate"]) == 0
    assert gate.cost_table_["cheap"] == len(gate.features_used_["cheap"])
    assert gate.validation_cost_ == gate.cost_table_["cheap"]
    assert gate.validation_cost_se_ == 0
    without_gate = gate.set_params(p_full=0.0).fit(X, y)
    with pytest.raises(AttributeError, match="p_full=0"):
        _ = without_gate.validation_cost_


def test_a_full_model_that_gives_logits_is_refused():
    X, y, *_ = problem("continuous", 100, 0, 0)
    for full in (Scores("logits"), FrozenEstimator(Scores("logits").fit(X, y))):
        message = "predict_proba of 'estimator' must give prob"
        with pytest.raises(ValueError, match=message):
            adapt_of(full, "lin").fit(X, y)


def test_a_given_lightgbm_takes_one_thread_for_few_rows():
    """LightGBM's default, all cores, took a minute in place of a second on a busy machine."""
    from lightgbm import LGBMClassifier

    X, y, _, _ = problem("continuous", 200, 0, 0)
    for n_jobs, expected in ((None, 1), (2, 2)):
        full = LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=n_jobs)
        assert make_gate("gbrt", full, cv=2).fit(X, y).estimator_.n_jobs == expected
        assert full.n_jobs == n_jobs
