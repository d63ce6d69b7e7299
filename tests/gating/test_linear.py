"""Adapt-Lin: prox and solver against cvxpy, the objective never rises."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skroute.datasets import make_four_clusters
from skroute.features import LazyFeatures
from skroute.gating import AdaptGatingClassifier, LinearGate
from skroute.gating import _linear as lin
from skroute.gating._pairs import Problem, Rows
from tests.gating.test_situations import frame_of


def data(seed=0, n_classes=2, n=60):
    X, y = make_classification(
        n,
        n_features=5,
        n_informative=4,
        n_redundant=0,
        n_classes=n_classes,
        random_state=seed,
    )
    rng = np.random.default_rng(seed)
    weight = rng.random(n) + 0.2
    return X, y, rng.exponential(0.3, n), weight / weight.sum(), rng.random(n)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_opt2_equals_cvxpy(n_classes):
    cp = pytest.importorskip("cvxpy")
    X, y, _, weight, q = data(n_classes=n_classes)
    q = 0.05 + 0.9 * q
    columns = (1 if n_classes == 2 else 3) + 1
    X = lin.with_ones(X)
    group_of, thresholds = (
        np.array([0, 1, 1, 2, 3, 4]),
        0.02 * np.sqrt([1.0, 2.0, 0.5, 3.0, 0.0]),
    )
    W, gap = lin.accelerated_proximal_gradient(
        X,
        lambda scores: lin.loss_kl(scores, y, q, weight),
        np.zeros((6, columns)),
        group_of,
        thresholds,
        curvature=0.5 * lin.squared_norm(X, weight),
        tol=1e-10,
        max_iter=20000,
    )
    assert gap <= 1e-10
    A, b = cp.Variable((5, columns)), cp.Variable((1, columns))
    scores = X[:, :-1] @ A + np.ones((len(X), 1)) @ b
    kept = weight * (1 - q)
    if n_classes == 2:
        cheap = kept @ cp.logistic(cp.multiply(-(2 * y - 1.0), scores[:, 0]))
    else:
        own = cp.sum(cp.multiply(np.eye(3)[y], scores[:, :3]), axis=1)
        cheap = kept @ (cp.log_sum_exp(scores[:, :3], axis=1) - own)
    gate = scores[:, columns - 1]
    gating = weight @ cp.logistic(gate) - (weight * q) @ gate
    ridge = 0.5 * lin.RIDGE * (cp.sum_squares(A) + cp.sum_squares(b))
    norms = [cp.norm(A[np.flatnonzero(group_of[:-1] == g)], "fro") for g in range(4)]
    penalty = sum(t * n for t, n in zip(thresholds, norms))
    reference = cp.Problem(cp.Minimize(cheap + gating + ridge + penalty)).solve(
        solver="CLARABEL"
    )
    ours = lin.loss_kl(X @ W, y, q, weight)[0] + lin.penalty(W, group_of, thresholds)
    assert_allclose(ours, reference, atol=1e-7)
    assert_allclose(W, np.vstack([A.value, b.value]), atol=1e-3)


def test_duality_gap_bounds_the_distance_to_the_optimum():
    X, y, _, weight, q = data()
    X, group_of, thresholds = (
        lin.with_ones(X),
        np.arange(6),
        np.array([0.03] * 5 + [0.0]),
    )

    def loss(scores):
        return lin.loss_kl(scores, y, q, weight)

    def solve(steps):
        return lin.accelerated_proximal_gradient(
            X, loss, np.zeros((6, 2)), group_of, thresholds,
            curvature=0.25 * lin.squared_norm(X, weight), tol=0.0, max_iter=steps,
        )  # fmt: skip

    def value(W):
        return loss(X @ W)[0] + lin.penalty(W, group_of, thresholds)

    optimum = value(solve(20000)[0])
    for steps in (10, 50, 200):
        W, gap = solve(steps)
        assert -1e-12 <= value(W) - optimum <= gap + 1e-12


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("p_full", [0.2, 0.7])
def test_objective_never_rises(n_classes, p_full):
    X, y, *_ = data(n_classes=n_classes, n=120)
    X = lin.with_ones((X - X.mean(axis=0)) / X.std(axis=0))
    rng = np.random.default_rng(0)
    rows = Rows(X, y, rng.exponential(0.2, len(X)), np.ones(len(X)), None)
    costs = np.append(np.ones(X.shape[1] - 1), 0.0)
    own = Problem(n_classes, p_full, 0.01, np.arange(X.shape[1]), costs)
    W, objectives = lin.adapt_linear(X, rows, own, max_iter=10, tol=0.0)
    assert len(objectives) == 10
    assert np.diff(objectives).max() <= 1e-8
    assert np.isfinite(W).all()


def test_two_starts_are_never_worse_than_one():
    X, y, _ = make_four_clusters(200, random_state=1)
    X = lin.with_ones((X - X.mean(axis=0)) / X.std(axis=0))
    rows = Rows(X, y, np.full(len(X), 0.01), np.ones(len(X)), None)
    own = Problem(2, 0.55, 0.02, np.arange(3), np.array([1.0, 1.0, 0.0]))
    solvers = lin.adapt_linear, lin.adapt_linear_multistart
    one, two = (solve(X, rows, own, max_iter=30, tol=1e-6) for solve in solvers)
    assert two[1][-1] < one[1][-1] - 0.01
    np.testing.assert_array_equal(two[0][:2].any(axis=1), [False, True])


def test_groups_enter_together():
    X, y, full_loss, weight, _ = data(n=100)
    own = Problem(
        2, 0.3, 0.05, np.array([0, 0, 1, 1, 1, 2]), np.array([1.0, 100.0, 0.0])
    )
    rows = Rows(X, y, full_loss, weight, None)
    W, _ = lin.adapt_linear(lin.with_ones(X), rows, own, max_iter=5, tol=1e-6)
    assert W[:2].all() and not W[2:5].any()


@pytest.mark.parametrize("seed", [2, 4])
def test_raw_frames_are_as_frames_encoded_by_hand(seed):
    """Pair, costs and answers: those of one column for each category and sign, in groups."""
    past, y = frame_of("pandas", 400, seed)
    new, _ = frame_of("pandas", 200, seed + 6)
    past.iloc[0, 4], new.iloc[:4, 4] = "only once", "never seen"
    groups, kinds = {"form": ["a", "rare"], "lab": ["b", "d"], "ward": ["cat"]}, {}
    splits = list(StratifiedKFold(3).split(past, y))
    learned = past.iloc[splits[0][0]]
    for name in ("rare", "cat"):
        counts = learned[name].value_counts()
        kinds[name] = sorted(counts.index[counts >= 2])

    def by_hand(frame):
        parts = {}
        for name in frame:
            own = frame[name]
            if name in kinds:
                own = own.where(own.isin(past[name].dropna().unique()))
                parts |= {
                    f"{name}_{kind}": (own == kind).astype(float)
                    for kind in kinds[name]
                }
            else:
                parts[name] = own.astype(float).fillna(learned[name].mean())
            parts[f"{name}_missing"] = own.isna().astype(float)
        return pd.DataFrame(parts)

    columns = by_hand(past).columns
    encoded = {
        group: [c for c in columns if c.split("_")[0] in names]
        for group, names in groups.items()
    }
    costs = {"form": 1.0, "lab": 5.0, "ward": 2.0}
    how = {"p_full": 0.4, "gamma": 0.01, "feature_costs": costs, "cv": splits}
    how["gate"] = LinearGate(tol=1e-3)
    full = make_pipeline(FunctionTransformer(by_hand), GaussianNB())
    raw = AdaptGatingClassifier(full, feature_groups=groups, **how).fit(past, y)
    hand = AdaptGatingClassifier(GaussianNB(), feature_groups=encoded, **how).fit(
        by_hand(past), y
    )
    assert 0 < raw.route(new).mean() < 1
    assert_allclose(raw.gate_function(new), hand.gate_function(by_hand(new)), atol=1e-8)
    assert_allclose(raw.predict_proba(new), hand.predict_proba(by_hand(new)), atol=1e-8)
    assert_allclose(raw.predict_cost(new), hand.predict_cost(by_hand(new)))
    late = LazyFeatures({name: new[name] for name in new})
    assert_array_equal(raw.predict_routed(late).cost, raw.predict_cost(new))
