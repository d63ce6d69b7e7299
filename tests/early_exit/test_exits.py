"""Nets with exits under QWYC: what leaves where, against running sums; no stage twice."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator

from skroute.early_exit import ExitDisplay, QWYCEnsemble, export_ensemble
from skroute.early_exit._algorithms import leaving, running_values
from skroute.early_exit._engines import MemberEngine, ensemble_engine
from skroute.early_exit._model_engines import ExitEngine
from skroute.members import ExitNet


class ColumnRun:
    """A pass through a `ColumnNet` that insists on the order of the exits."""

    def __init__(self, net, X):
        self.net = net
        self.X = np.asarray(X)
        self.depth = np.zeros(len(self.X), dtype=int)

    def logits(self, exit, rows=None):
        rows = np.arange(len(self.X)) if rows is None else rows
        assert (self.depth[rows] <= exit).all(), "a stage would be computed again"
        for stage in range(exit + 1):
            self.net.rows_[stage] += int((self.depth[rows] <= stage).sum())
        self.depth[rows] = exit + 1
        width = len(self.net.classes_)
        return self.X[rows, exit * width : (exit + 1) * width]

    def release(self, rows):
        self.depth[rows] = 0

    def proba(self, exit, rows=None):
        return softmax(self.logits(exit, rows), axis=1)


class ColumnNet(ExitNet, ClassifierMixin, BaseEstimator):
    """The scores of exit `k` are the `k`-th block of columns; `rows_` counts rows per stage."""

    def __init__(self, n_exits=3):
        self.n_exits = n_exits

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.n_exits_ = self.n_exits
        self.rows_ = [0] * self.n_exits
        return self

    def start(self, X):
        return ColumnRun(self, X)

    def stage_call(self, exit, previous=-1):
        return ColumnCall(self, exit)

    def _exit_proba(self, X, exit):
        return self.start(X).proba(exit)

    def predict_proba(self, X):
        return self._exit_proba(X, self.n_exits_ - 1)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class ColumnCall:
    """Takes longer the deeper the exit."""

    def __init__(self, net, exit):
        self.net = net
        self.exit = exit

    def __call__(self, X):
        for _ in range(1 + self.exit):
            self.net.start(X).logits(self.exit)


def column_rows(n, n_classes, n_exits, rng):
    """Rows whose later exits are better: scores are the truth plus less and less noise."""
    y = rng.integers(n_classes, size=n)
    noise = rng.normal(size=(n, n_exits, n_classes))
    scores = (
        3.0 * (y[:, None] == np.arange(n_classes))[:, None, :]
        + noise * (np.geomspace(2.5, 0.5, n_exits)[None, :, None])
    )
    return scores.reshape(n, -1), y


def fitted_net(n_classes, n_exits, n=300, seed=0):
    X, y = column_rows(n, n_classes, n_exits, np.random.default_rng(seed))
    return ColumnNet(n_exits).fit(X, y), X, y


@given(st.integers(0, 2**20), st.sampled_from([2, 3, 5]), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_the_walk_is_what_thresholds_on_running_sums_say(seed, n_classes, n_exits):
    net, X, _ = fitted_net(n_classes, n_exits, n=50, seed=seed)
    engine, classes = ensemble_engine(net)
    assert isinstance(engine, ExitEngine)
    np.testing.assert_array_equal(classes, net.classes_)
    added = engine.member_scores(X)
    # The sum up to an exit is that exit's own score.
    logits = X.reshape(50, n_exits, n_classes).transpose(1, 0, 2)
    if n_classes == 2:
        logits = logits[:, :, 1:] - logits[:, :, :1]
    np.testing.assert_allclose(np.cumsum(added, axis=0), logits, atol=1e-12)
    rng = np.random.default_rng(seed)
    hi = rng.uniform(0.5, 4, n_exits)
    policy = (-hi if n_classes == 2 else np.full(n_exits, -np.inf), hi)
    values, _ = running_values(added, np.arange(n_exits), engine.offset, engine.beta)
    position, side = leaving(values, *policy)
    net.rows_ = [0] * n_exits
    score, members, answer = engine.walk(X, policy)
    np.testing.assert_array_equal(members, position + 1)
    np.testing.assert_array_equal(score, logits[position, np.arange(50)])
    full = score[:, 0] > 0 if n_classes == 2 else np.argmax(score, axis=1)
    by_side = np.where(side == 0, full, side > 0) if n_classes == 2 else full
    np.testing.assert_array_equal(answer, by_side)
    # A stage sees the rows that reach it, once.
    assert net.rows_ == [int((members > k).sum()) for k in range(n_exits)]
    # The same as members that are models of their own, asked for the differences.
    plain = MemberEngine(
        [_Difference(k, n_classes) for k in range(n_exits)], classes, np.ones(n_exits)
    )
    np.testing.assert_array_equal(plain.walk(X, policy).n_evaluated, members)


class _Difference:
    """The function of rows that returns what exit `k` adds."""

    def __init__(self, k, n_classes):
        self.k, self.n_classes = k, n_classes

    def __call__(self, X):
        blocks = X.reshape(len(X), -1, self.n_classes)
        added = blocks[:, self.k] - (blocks[:, self.k - 1] if self.k else 0)
        return added[:, 1] - added[:, 0] if self.n_classes == 2 else added


def test_blocks_of_rows_do_not_change_the_answers(monkeypatch):
    net, X, _ = fitted_net(3, 3)
    engine = ExitEngine(net)
    policy = (np.full(3, -np.inf), np.array([1.0, 2.0, np.inf]))
    whole, scores = engine.walk(X, policy), engine.member_scores(X)
    monkeypatch.setattr(ExitNet, "eval_batch_size", 7)
    for one, other in zip(whole, engine.walk(X, policy)):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(engine.member_scores(X), scores)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_disagreement_cost_and_counts(n_classes):
    net, X, y = fitted_net(n_classes, 4, n=6000)
    labels = np.array(["a", "b", "c", "d"])
    net.classes_ = labels[:n_classes]
    quick = QWYCEnsemble(
        FrozenEstimator(net), alpha=0.02, costs=[4, 1, 2, 5], random_state=0
    )
    quick.optimize(X[:3000])
    np.testing.assert_array_equal(quick.order_, np.arange(4))
    net.rows_ = [0] * 4
    y_pred, route, cost = quick.predict_routed(X[3000:])
    assert net.rows_ == [int((route > k).sum()) for k in range(4)]
    assert net.rows_[-1] < 0.5 * net.rows_[0]
    np.testing.assert_array_equal(cost, np.array([0, 4, 5, 7, 12.0])[route])
    # Over data sets the mean is 0.016 with a standard deviation of 0.007.
    assert np.mean(y_pred != net.predict(X[3000:])) < 0.04
    # A row's answer is that of the exit it left at.
    for k in range(4):
        here = route == k + 1
        if not here.any():
            continue
        expected = net._exit_proba(X[3000:][here], k)
        proba = quick.predict_proba(X[3000:][here])
        # But for rows between even chances and a threshold on the other side of them: they have
        # the answer of the threshold and even chances.
        moved = (np.ptp(proba, axis=1) < 1e-11) & (n_classes == 2)
        assert moved.mean() < 0.01
        labels_of_exit = net.classes_[expected.argmax(axis=1)]
        np.testing.assert_array_equal(y_pred[here][~moved], labels_of_exit[~moved])
        np.testing.assert_allclose(proba[~moved], expected[~moved], atol=1e-9)
    fewer = quick.predict_cost(X[3000:], budget=quick.tradeoff_.cost.min())
    assert fewer.mean() < cost.mean()
    full = quick.predict_cost(X[3000:], budget=np.inf)
    np.testing.assert_array_equal(full, cost)
    ExitDisplay.from_estimator(quick, X[3000:])


def test_stages_have_their_order_and_measured_costs_and_are_not_exported(tmp_path):
    net, X, _ = fitted_net(3, 3, n=600)
    for order in ("random", [1, 0, 2]):
        message = re.escape(
            f"order={order!r} is not possible: each exit goes on from the one bef"
        )
        with pytest.raises(ValueError, match=message):
            QWYCEnsemble(FrozenEstimator(net), order=order).optimize(X)
    in_order = QWYCEnsemble(FrozenEstimator(net), order=[0, 1, 2], alpha=0.05)
    in_order.optimize(X)
    np.testing.assert_array_equal(in_order.order_, [0, 1, 2])
    with pytest.raises(ValueError, match="Only trees .* can be exported.*ExitEngine"):
        export_ensemble(in_order, tmp_path / "quick.npz")
    quick = QWYCEnsemble(FrozenEstimator(net), alpha=0.05, costs="time", random_state=0)
    calls = ExitEngine(net).timed_calls()
    assert list(calls) == [0, 1, 2]
    assert [call.exit for call in calls.values()] == [0, 1, 2]
    assert (quick.optimize(X).costs_ > 0).all()
