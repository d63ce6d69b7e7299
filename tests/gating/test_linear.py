"""Adapt-Lin: prox and solver against cvxpy, the objective never rises."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
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


def make_rows(n_classes=2, n_rows=60):
    """Return rows of five features, with weights of sum 1 and losses of a full model."""
    X, y = make_classification(
        n_rows,
        n_features=5,
        n_informative=4,
        n_redundant=0,
        n_classes=n_classes,
        random_state=0,
    )
    rng = np.random.default_rng(0)
    weight = rng.random(n_rows) + 0.2
    return Rows(
        values=X,
        y=y,
        full_loss=rng.exponential(0.3, n_rows),
        weight=weight / weight.sum(),
        full_quality=np.zeros(n_rows),
    )


def standardised(X):
    """Return columns with mean 0 and variance 1, and a column of ones."""
    return lin.with_ones((X - X.mean(axis=0)) / X.std(axis=0))


def opt2_by_cvxpy(cp, rows, q, group_of, thresholds):
    """Return the optimal value of (OPT2) and its coefficients, by a solver of cvxpy.

    The last group is that of the intercepts, which have no penalty but the ridge.
    """
    X = rows.values
    n_classes = len(np.unique(rows.y))
    n_outputs = 1 if n_classes == 2 else n_classes
    A = cp.Variable((X.shape[1], n_outputs + 1))
    b = cp.Variable((1, n_outputs + 1))
    scores = X @ A + np.ones((len(X), 1)) @ b
    cheap_weight = rows.weight * (1 - q)
    if n_classes == 2:
        signs = -(2 * rows.y - 1.0)
        cheap_loss = cheap_weight @ cp.logistic(cp.multiply(signs, scores[:, 0]))
    else:
        cheap_scores = scores[:, :n_classes]
        is_class = np.eye(n_classes)[rows.y]
        true_scores = cp.sum(cp.multiply(is_class, cheap_scores), axis=1)
        log_sums = cp.log_sum_exp(cheap_scores, axis=1)
        cheap_loss = cheap_weight @ (log_sums - true_scores)
    gate = scores[:, n_outputs]
    gate_loss = rows.weight @ cp.logistic(gate) - (rows.weight * q) @ gate
    ridge = 0.5 * lin.RIDGE * (cp.sum_squares(A) + cp.sum_squares(b))
    penalty = 0.0
    for group, threshold in enumerate(thresholds[:-1]):
        columns = np.flatnonzero(group_of[:-1] == group)
        penalty += threshold * cp.norm(A[columns], "fro")
    problem = cp.Problem(cp.Minimize(cheap_loss + gate_loss + ridge + penalty))
    value = problem.solve(solver="CLARABEL")
    return value, np.vstack([A.value, b.value])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_opt2_equals_cvxpy(n_classes):
    cp = pytest.importorskip("cvxpy")
    rows = make_rows(n_classes=n_classes)
    q = 0.05 + 0.9 * np.random.default_rng(1).random(len(rows.y))
    X = lin.with_ones(rows.values)
    group_of = np.array([0, 1, 1, 2, 3, 4])
    thresholds = 0.02 * np.sqrt([1.0, 2.0, 0.5, 3.0, 0.0])
    n_outputs = 1 if n_classes == 2 else 3

    def loss(scores):
        return lin.loss_kl(scores, rows.y, q, rows.weight)

    W, gap = lin.accelerated_proximal_gradient(
        X,
        loss,
        np.zeros((6, n_outputs + 1)),
        group_of,
        thresholds,
        curvature=0.5 * lin.squared_norm(X, rows.weight),
        tol=1e-10,
        max_iter=20000,
    )
    assert gap <= 1e-10
    expected_value, expected_W = opt2_by_cvxpy(cp, rows, q, group_of, thresholds)
    value = loss(X @ W).value + lin.penalty(W, group_of, thresholds)
    assert_allclose(value, expected_value, atol=1e-7)
    assert_allclose(W, expected_W, atol=1e-3)


def test_duality_gap_bounds_the_distance_to_the_optimum():
    rows = make_rows()
    q = np.random.default_rng(1).random(len(rows.y))
    X = lin.with_ones(rows.values)
    group_of = np.arange(6)
    thresholds = np.array([0.03] * 5 + [0.0])

    def loss(scores):
        return lin.loss_kl(scores, rows.y, q, rows.weight)

    def solve(n_steps):
        return lin.accelerated_proximal_gradient(
            X,
            loss,
            np.zeros((6, 2)),
            group_of,
            thresholds,
            curvature=0.25 * lin.squared_norm(X, rows.weight),
            tol=0.0,
            max_iter=n_steps,
        )

    def value(W):
        return loss(X @ W).value + lin.penalty(W, group_of, thresholds)

    optimum = value(solve(20000)[0])
    for n_steps in (10, 50, 200):
        W, gap = solve(n_steps)
        assert -1e-12 <= value(W) - optimum <= gap + 1e-12


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("p_full", [0.2, 0.7])
def test_objective_never_rises(n_classes, p_full):
    rows = make_rows(n_classes=n_classes, n_rows=120)
    X = standardised(rows.values)
    problem = Problem(
        n_classes=n_classes,
        p_full=p_full,
        gamma=0.01,
        group_of=np.arange(X.shape[1]),
        group_costs=np.append(np.ones(X.shape[1] - 1), 0.0),
    )
    fit = lin.adapt_linear(X, rows, problem, max_iter=10, tol=0.0)
    assert len(fit.objectives) == 10
    assert np.diff(fit.objectives).max() <= 1e-8
    assert np.isfinite(fit.W).all()


def test_two_starts_are_never_worse_than_one():
    X, y, _ = make_four_clusters(200, random_state=1)
    X = standardised(X)
    rows = Rows(X, y, np.full(len(X), 0.01), np.ones(len(X)), np.zeros(len(X)))
    problem = Problem(
        n_classes=2,
        p_full=0.55,
        gamma=0.02,
        group_of=np.arange(3),
        group_costs=np.array([1.0, 1.0, 0.0]),
    )
    options = {"max_iter": 30, "tol": 1e-6}
    single = lin.adapt_linear(X, rows, problem, **options)
    multi = lin.adapt_linear_multistart(X, rows, problem, **options)
    assert multi.objectives[-1] < single.objectives[-1] - 0.01
    assert_array_equal(multi.W[:2].any(axis=1), [False, True])


def test_groups_enter_together():
    rows = make_rows(n_rows=100)
    problem = Problem(
        n_classes=2,
        p_full=0.3,
        gamma=0.05,
        group_of=np.array([0, 0, 1, 1, 1, 2]),
        group_costs=np.array([1.0, 100.0, 0.0]),
    )
    X = lin.with_ones(rows.values)
    W = lin.adapt_linear(X, rows, problem, max_iter=5, tol=1e-6).W
    assert W[:2].all()
    assert not W[2:5].any()


class EncoderByHand:
    """Columns of the linear model, made from a frame by hand.

    A category has a column for each of its levels that two rows of `learned` have. Each
    raw column has one for missing cells.

    Parameters
    ----------
    past : DataFrame
        All training rows: a level that they do not have is missing.

    learned : DataFrame
        The training rows that the linear model is fitted on.

    categories : list of str
        Names of the columns of categories.
    """

    def __init__(self, past, learned, categories):
        self.past = past
        self.learned = learned
        self.categories = categories

    def __call__(self, frame):
        columns = {}
        for name in frame:
            column = frame[name]
            if name in self.categories:
                is_level = column.isin(self.past[name].dropna().unique())
                column = column.where(is_level)
                for level in self.levels(name):
                    columns[f"{name}_{level}"] = (column == level).astype(float)
            else:
                mean = self.learned[name].mean()
                columns[name] = column.astype(float).fillna(mean)
            columns[f"{name}_missing"] = column.isna().astype(float)
        return pd.DataFrame(columns)

    def levels(self, name):
        """Return the levels of a category that have a column."""
        counts = self.learned[name].value_counts()
        return sorted(counts.index[counts >= 2])


@pytest.mark.parametrize("seed", [2, 4])
def test_raw_frames_are_as_frames_encoded_by_hand(seed):
    """A raw frame and one encoded by hand have the same pair, costs and answers."""
    past, y = frame_of("pandas", 400, seed)
    new, _ = frame_of("pandas", 200, seed + 6)
    past.iloc[0, 4] = "only once"
    new.iloc[:4, 4] = "never seen"
    splits = list(StratifiedKFold(3).split(past, y))
    first_train, _ = splits[0]
    encode = EncoderByHand(past, past.iloc[first_train], ["rare", "cat"])
    raw_groups = {"form": ["a", "rare"], "lab": ["b", "d"], "ward": ["cat"]}
    encoded_groups = {}
    for group, names in raw_groups.items():
        encoded_groups[group] = [
            column for column in encode(past).columns if column.split("_")[0] in names
        ]
    params = {
        "gate": LinearGate(tol=1e-3),
        "p_full": 0.4,
        "gamma": 0.01,
        "feature_costs": {"form": 1.0, "lab": 5.0, "ward": 2.0},
        "cv": splits,
    }
    full = make_pipeline(FunctionTransformer(encode), GaussianNB())
    of_raw = AdaptGatingClassifier(full, feature_groups=raw_groups, **params)
    of_raw.fit(past, y)
    of_encoded = AdaptGatingClassifier(
        GaussianNB(), feature_groups=encoded_groups, **params
    )
    of_encoded.fit(encode(past), y)
    encoded_new = encode(new)
    assert 0 < of_raw.route(new).mean() < 1
    assert_allclose(
        of_raw.gate_function(new), of_encoded.gate_function(encoded_new), atol=1e-8
    )
    assert_allclose(
        of_raw.predict_proba(new), of_encoded.predict_proba(encoded_new), atol=1e-8
    )
    assert_allclose(of_raw.predict_cost(new), of_encoded.predict_cost(encoded_new))
    lazy = LazyFeatures({name: new[name] for name in new})
    assert_array_equal(of_raw.predict_routed(lazy).cost, of_raw.predict_cost(new))


def test_a_frame_whose_categories_are_all_unique_has_intercepts_only():
    """No category is seen twice, so no column of the linear model is left."""
    ids = pd.DataFrame({"id": [f"r{row}" for row in range(100)]})
    labels = np.arange(100) % 2
    full_model = FrozenEstimator(DummyClassifier().fit(ids, labels))
    gate = AdaptGatingClassifier(full_model, gate=LinearGate()).fit(ids, labels)
    assert_allclose(gate.predict_proba(ids), 0.5)
