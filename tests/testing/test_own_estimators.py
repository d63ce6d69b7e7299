"""The estimators of doc/contributing/own_estimator.rst, run as they are shown."""

import ast
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from skroute.certified import CertifiedRouter
from skroute.ledgers import BudgetExhaustedError
from skroute.metrics import BudgetSearchCV, accuracy_cost_curve
from skroute.routing import BudgetStream, DaskRouter
from skroute.testing import check_decision_estimator

PAGE = Path(__file__).resolve().parents[2] / "doc" / "contributing"
# In the order in which they import one another.
FILES = [
    PAGE / "own_router.py",
    PAGE / "own_cascade.py",
    PAGE / "own_gate.py",
    PAGE / "own_keyword.py",
]


def load(path):
    """Return the module in a file of the page. Pickles find it by its name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


own_router, own_cascade, own_gate, own_keyword = [load(path) for path in FILES]

LINEAR = LogisticRegression(tol=0.01)
FOREST = RandomForestClassifier(n_estimators=10, max_depth=6, random_state=0)
MEMBERS = [("linear", LINEAR), ("forest", FOREST)]
COSTS = {"linear": 1.0, "forest": 3.0}
ESTIMATORS = [
    own_router.RidgeRouterClassifier(MEMBERS, costs=COSTS, cv=2),
    own_cascade.ConfidenceCascadeClassifier(MEMBERS, costs=COSTS, cv=2),
    own_gate.ConfidenceGateClassifier(
        LINEAR,
        FOREST,
        columns=[0, 1],
        costs={"small": 1.0, "large": 3.0},
        cv=2,
    ),
]
NAMES = [type(estimator).__name__ for estimator in ESTIMATORS]
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=NAMES)


def make_data():
    """Return rows and labels, half to fit and half to judge."""
    X, y = make_classification(
        4000,
        n_features=6,
        n_informative=4,
        n_redundant=0,
        n_clusters_per_class=2,
        random_state=0,
    )
    labels = np.array(["no", "yes"])[y]
    return X[:2000], labels[:2000], X[2000:], labels[2000:]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_stranger_imports_public_names_only(path):
    allowed = {"numpy", "own_router", "skroute.base", "skroute.assignment"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
            names = []
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module]
            names = [alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            assert module in allowed or module.startswith("sklearn.")
            assert "._" not in module
        assert not any(name.startswith("_") for name in names)


@parametrize_with_checks(ESTIMATORS)
def test_sklearn_checks(estimator, check):
    check(estimator)


class AllChoicesRouter(own_router.RidgeRouterClassifier):
    """A router whose requests have estimates of choices that are not offered."""

    def request_policy(self, budget, exclude=()):
        requests = super().request_policy(budget, exclude)
        estimate_all = super().request_policy(budget).estimate
        requests.estimate = estimate_all
        return requests


class DeafRouter(own_router.RidgeRouterClassifier):
    """A router that ignores names which it does not know."""

    def request_policy(self, budget, exclude=()):
        known = [name for name in exclude if name in self.choices_]
        return super().request_policy(budget, known)


@pytest.mark.parametrize(
    ("router_class", "message"),
    [(AllChoicesRouter, "one column for each of"), (DeafRouter, "no choice has this")],
)
def test_wrong_requests_do_not_pass_the_checks(router_class, message):
    router = router_class(MEMBERS, costs=COSTS, cv=2)
    checks = {check.__name__: check for _, check in check_decision_estimator(router)}
    with pytest.raises(AssertionError, match=message):
        checks["check_requests_are_decided_as_rows"](router)


def test_a_stream_refuses_estimates_of_choices_that_are_not_offered():
    X, y, X_new, _ = make_data()
    router = AllChoicesRouter(MEMBERS, costs=COSTS, cv=2).fit(X, y)
    stream = BudgetStream(router, 100.0, n_expected=50)
    stream.route(X_new[:1])
    before = stream.status()
    stream.exclude([router.choices_[0]])
    with pytest.raises(ValueError, match=r"estimate must return .* not offered"):
        stream.route(X_new[:1])
    assert stream.status() == before


EXCLUDING = own_keyword.ExcludingRouterClassifier(MEMBERS, costs=COSTS, cv=2)


class WeightedGateClassifier(own_gate.ConfidenceGateClassifier):
    """Gate whose large model is fitted with weights."""

    def fit(self, X, y, sample_weight=None):
        return super().fit(X, y, sample_weight=sample_weight)

    def _fit(self, X, y, *, task, sample_weight=None):
        super()._fit(X, y, task=task)
        self.large_.fit(self._check_rows(X), y, sample_weight=sample_weight)


WEIGHTED = WeightedGateClassifier(**ESTIMATORS[2].get_params(deep=False))

DECISION_CHECKS = []
for estimator in [*ESTIMATORS, EXCLUDING, WEIGHTED]:
    for instance, check in check_decision_estimator(estimator):
        name = f"{type(instance).__name__}-{check.__name__}"
        DECISION_CHECKS.append(pytest.param(instance, check, id=name))


@pytest.mark.parametrize(("estimator", "check"), DECISION_CHECKS)
def test_decision_checks(estimator, check):
    check(estimator)


@each_estimator
def test_budget_holds_on_new_rows(estimator):
    X, y, X_new, y_new = make_data()
    fitted = clone(estimator).fit(X, y)
    budgets = [1.0, 1.5, 2.0, 2.5]
    curve = accuracy_cost_curve(fitted, X_new, y_new, budgets)
    # Of 2000 rows the mean cost, between 1 and 4, has a standard error of at most 0.034.
    assert (curve.cost <= np.array(budgets) + 0.1).all()
    assert curve.quality[-1] > curve.quality[0]


@each_estimator
@pytest.mark.parametrize(
    "limits", [{"max_loss": 0.06}, {"budget": 2.0}], ids=["loss", "cost"]
)
def test_certificate_holds(estimator, limits):
    X, y, X_new, y_new = make_data()
    fitted = CertifiedRouter(clone(estimator), **limits, random_state=0).fit(X, y)
    certificate = fitted.certificate_
    assert certificate.promised
    assert certificate.n_rows == 600
    y_pred, _, cost = fitted.predict_routed(X_new)
    if "budget" in limits:
        assert certificate.cost_upper <= 2.0
        assert cost.mean() <= 2.0
        return
    assert certificate.reference == "the best single choice"
    router = fitted.estimator_
    qualities = []
    for name in router.single_choices_:
        answers = router.answer(router.plan_single(X_new, name))
        qualities.append((answers == y_new).mean())
    assert max(qualities) - (y_pred == y_new).mean() <= 0.06


@each_estimator
def test_certificate_of_a_fitted_estimator_holds(estimator):
    X, y, X_new, y_new = make_data()
    fitted = clone(estimator).fit(X[:1000], y[:1000])
    certified = CertifiedRouter(FrozenEstimator(fitted), budget=2.0, random_state=0)
    certified.fit(X[1000:], y[1000:])
    assert certified.certificate_.promised
    assert certified.certificate_.cost_upper <= 2.0
    assert certified.predict_cost(X_new).mean() <= 2.0


@each_estimator
def test_in_a_pipeline_in_a_search(estimator):
    X, y, X_new, y_new = make_data()
    step = type(estimator).__name__.lower()
    pipeline = make_pipeline(StandardScaler(), clone(estimator))
    grid = {f"{step}__cv": [2, 3], f"{step}__budget": [1.0, 2.0]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X[:500], y[:500])
    assert search.best_params_[f"{step}__budget"] == 2.0
    curve = accuracy_cost_curve(search, X_new, y_new, budgets=[1.0, 2.0])
    assert curve.cost[0] == 1.0


@each_estimator
def test_in_a_search_within_a_budget(estimator):
    X, y, X_new, _ = make_data()
    search = BudgetSearchCV(
        clone(estimator), {"budget": [1.0, 1.5, 4.0]}, budget=2.0, cv=2
    )
    search.fit(X[:500], y[:500])
    assert search.best_params_["budget"] == 1.5
    assert search.predict_cost(X_new).mean() <= 2.0


@each_estimator
def test_dask_decides_as_the_estimator_does(estimator):
    da = pytest.importorskip("dask.array")
    X, y, X_new, _ = make_data()
    fitted = clone(estimator).fit(X, y)
    in_blocks = DaskRouter(fitted).predict(
        da.from_array(X_new, chunks=(500, 6)), budget=2.0
    )
    assert_array_equal(in_blocks.compute(), fitted.predict(X_new, budget=2.0))


@each_estimator
def test_frames_keep_their_names(estimator):
    X, y, X_new, _ = make_data()
    names = list("abcdef")
    fitted = clone(estimator).fit(pd.DataFrame(X, columns=names), y)
    assert_array_equal(fitted.feature_names_in_, names)
    assert_array_equal(
        fitted.predict(pd.DataFrame(X_new, columns=names)),
        clone(estimator).fit(X, y).predict(X_new),
    )
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(pd.DataFrame(X_new, columns=names[::-1]))


@pytest.mark.parametrize("estimator", ESTIMATORS[:2], ids=NAMES[:2])
def test_sparse_rows(estimator):
    X, y, X_new, _ = make_data()
    dense = clone(estimator).fit(X, y)
    sparse = clone(estimator).fit(csr_array(X), y)
    assert (
        dense.route(X_new, 2.0) == sparse.route(csr_array(X_new), 2.0)
    ).mean() > 0.99


class CountedForest(RandomForestClassifier):
    """A classifier that counts the rows that it is asked about after `fit`."""

    n_asked = 0

    def predict_proba(self, X):
        self.n_asked += X.shape[0]
        return super().predict_proba(X)


@each_estimator
def test_a_model_is_asked_only_about_the_rows_that_pay_for_it(estimator):
    X, y, X_new, _ = make_data()
    counted = CountedForest(**FOREST.get_params())
    estimator = clone(estimator)
    if "large" in estimator.get_params():
        estimator.set_params(large=counted)
    else:
        estimator.set_params(estimators=[MEMBERS[0], ("forest", counted)])
    fitted = estimator.fit(X, y)
    counted = fitted.large_ if hasattr(fitted, "large_") else fitted.estimators_[1]
    counted.n_asked = 0
    plan = fitted.plan(X_new, fitted.make_call(2.0))
    fitted.answer(plan, "predict_proba")
    assert counted.n_asked == (plan.route == 1).sum()


def test_thresholds_of_the_cascade_are_those_of_brute_force():
    X, y, _, _ = make_data()
    fitted = clone(ESTIMATORS[1]).fit(X, y)
    linear, forest = [
        cross_val_predict(member, X, y, cv=2, method="predict_proba")
        for _, member in MEMBERS
    ]
    costs, qualities = [], []
    for threshold in fitted.thresholds_:
        cost = 0.0
        n_right = 0
        for i, label in enumerate(y == "yes"):
            if linear[i].max() >= threshold:
                cost += 1.0
                n_right += int(linear[i].argmax() == label)
            else:
                cost += 4.0
                n_right += int(forest[i].argmax() == label)
        costs.append(cost / len(y))
        qualities.append(n_right / len(y))
    np.testing.assert_allclose(fitted.threshold_costs_, costs)
    np.testing.assert_allclose(fitted.threshold_quality_, qualities)


def test_columns_of_the_gate_are_checked():
    X, y, _, _ = make_data()
    gate = clone(ESTIMATORS[2]).set_params(columns=[0, 6])
    with pytest.raises(ValueError, match=r"columns=\[0, 6\] must be positions"):
        gate.fit(X, y)


def test_excluded_members_are_not_asked():
    X, y, X_new, y_new = make_data()
    fitted = clone(EXCLUDING).fit(X, y)
    plain = clone(ESTIMATORS[0]).fit(X, y)
    assert_array_equal(fitted.route(X_new, budget=2.0), plain.route(X_new, budget=2.0))
    assert (fitted.route(X_new, exclude=["linear"]) == 1).all()
    assert fitted.score(X_new, y_new, exclude=["linear"]) > 0.8
    with pytest.raises(ValueError, match="smallest feasible budget is 3"):
        fitted.route(X_new, budget=2.0, exclude=["linear"])
    with pytest.raises(ValueError, match="not among"):
        fitted.route(X_new, exclude=["moon"])
    with pytest.raises(ValueError, match="leaves no member"):
        fitted.route(X_new, exclude=["linear", "forest"])
    with pytest.raises(TypeError, match="'exclude'"):
        plain.route(X_new, exclude=["linear"])


def test_weights_reach_the_fit_of_the_gate():
    X, y, X_new, _ = make_data()
    weight = np.where(y == "no", 1.0, 100.0)
    fitted = clone(WEIGHTED).fit(X, y, sample_weight=weight)
    plain = clone(WEIGHTED).fit(X, y)
    assert (fitted.predict(X_new) == "yes").sum() > (
        plain.predict(X_new) == "yes"
    ).sum()
    with pytest.raises(ValueError, match="one entry per row"):
        clone(WEIGHTED).fit(X, y, sample_weight=weight[:10])
    with pytest.raises(TypeError, match="sample_weight"):
        clone(ESTIMATORS[2]).fit(X, y, sample_weight=weight)
    with config_context(enable_metadata_routing=True):
        requesting = clone(WEIGHTED).set_fit_request(sample_weight=True)
        pipeline = make_pipeline(requesting).fit(X, y, sample_weight=weight)
    assert_array_equal(pipeline.predict(X_new), fitted.predict(X_new))


def test_a_router_of_the_page_is_streamed_and_keeps_the_total():
    X, y, X_new, _ = make_data()
    router = clone(ESTIMATORS[0]).fit(X, y)
    stream = BudgetStream(router, budget_total=60.0, n_expected=40)
    answers = []
    for row in range(40):
        answers.append(stream.predict(X_new[row : row + 1]))
    assert set(answers) <= {"no", "yes"}
    # Two members with costs of 1 and 3: money is left for the dearer one.
    assert 40 < stream.status().spent <= 60


def test_a_router_of_the_page_leaves_out_what_a_stream_excludes():
    X, y, X_new, _ = make_data()
    router = clone(ESTIMATORS[0]).fit(X, y)
    stream = BudgetStream(router, budget_total=5.0, n_expected=5)
    stream.exclude(["forest"])
    for row in range(5):
        assert stream.route(X_new[row : row + 1]).name == "linear"
    with pytest.raises(BudgetExhaustedError):
        stream.route(X_new[:1])


@pytest.mark.parametrize("position", [1, 2], ids=["cascade", "gate"])
def test_estimators_of_the_page_that_pay_while_they_decide_are_streamed(position):
    X, y, X_new, _ = make_data()
    model = clone(ESTIMATORS[position]).fit(X, y)
    dear = float(model.predict_cost(X_new, budget=np.inf).max())
    stream = BudgetStream(model, 40 * dear, n_expected=40, max_costs=dear)
    answers = [stream.predict(X_new[row : row + 1]) for row in range(40)]
    # The money is enough for the dearest answer of each request.
    assert_array_equal(answers, model.predict(X_new[:40], budget=np.inf))
    costs = model.predict_cost(X_new[:40], budget=np.inf)
    assert stream.status().spent == pytest.approx(costs.sum())


@pytest.mark.parametrize("position", [1, 2], ids=["cascade", "gate"])
def test_certified_estimators_that_pay_while_they_decide_are_streamed(position):
    X, y, X_new, _ = make_data()
    certified = CertifiedRouter(ESTIMATORS[position], max_loss=0.3, random_state=0)
    certified.fit(X, y)
    with pytest.raises(ValueError, match="BudgetStream"):
        certified.stream(1000.0)
    stream = BudgetStream(certified, 1000.0, max_costs=10.0)
    answers = [stream.predict(X_new[row : row + 1]) for row in range(20)]
    assert_array_equal(answers, certified.predict(X_new[:20]))
