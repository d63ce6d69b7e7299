"""Bad input is refused before a model is called, by metrics and by certificates.

Each case replaces one good argument. An error must come, and no model may have been
called: the members and the quality estimator of the routers count their calls.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.tree import DecisionTreeRegressor

from skroute import metrics
from skroute.certified import CertifiedRouter
from skroute.routing import (
    BudgetRouter,
    FrugalMCTClassifier,
    OccamRouterClassifier,
    OccamRouterRegressor,
)
from tests.test_hostile import assert_clear, each

# Name of the model of each call.
CALLS = []
N_ROWS = 120
COSTS = {"a": 1.0, "b": 3.0}


class CountingClassifier(ClassifierMixin, BaseEstimator):
    def __init__(self, column):
        self.column = column

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        CALLS.append(f"classifier {self.column}")
        share = 1 / (1 + np.exp(-5 * np.asarray(X)[:, self.column]))
        return np.column_stack([1 - share, share])

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class CountingRegressor(RegressorMixin, BaseEstimator):
    def __init__(self, column=0):
        self.column = column

    def fit(self, X, y, sample_weight=None):
        self.n_outputs_ = np.shape(y)[1:]
        return self

    def predict(self, X):
        CALLS.append(f"regressor {self.column}")
        values = np.asarray(X)[:, self.column]
        if not self.n_outputs_:
            return values
        return np.column_stack([values, -values])


RNG = np.random.default_rng(0)
X = RNG.normal(size=(N_ROWS, 3))
LABELS = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)
QUALITY = RNG.integers(0, 2, (N_ROWS, 2)).astype(float)
BILLS = np.tile([1.0, 3.0], (N_ROWS, 1))
ONES = np.ones(N_ROWS)


@pytest.fixture(scope="module")
def routers():
    """Return fitted routers of each kind, and their targets."""
    tree = DecisionTreeRegressor(max_depth=2, random_state=0)
    options = {"costs": COSTS, "budget": 2.5, "cv": 2}
    learned = {**options, "quality_estimator": tree}
    classifiers = []
    regressors = []
    for column, name in enumerate(COSTS):
        classifier = CountingClassifier(column).fit(X, LABELS)
        classifiers.append((name, FrozenEstimator(classifier)))
        regressor = CountingRegressor(column).fit(X, X[:, 0])
        regressors.append((name, FrozenEstimator(regressor)))
    table = pd.DataFrame(QUALITY, columns=list(COSTS))
    occam = OccamRouterClassifier(classifiers, **learned)
    brier = OccamRouterClassifier(classifiers, quality="brier", **learned)
    mct = FrugalMCTClassifier(classifiers, base="a", **learned)
    numbers = OccamRouterRegressor(regressors, quality="squared_error", **learned)
    return {
        "labels": (occam.fit(X, LABELS), LABELS),
        "brier": (brier.fit(X, LABELS), LABELS),
        "asking": (mct.set_params(budget=3.0).fit(X, LABELS), LABELS),
        "numbers": (numbers.fit(X, X[:, 0]), X[:, 0]),
        "routing": (
            BudgetRouter(CountingRegressor(), **options).fit(X, table),
            QUALITY,
        ),
    }


def with_nan(values):
    values = np.array(values, dtype=float)
    values.flat[0] = np.nan
    return values


BAD_BILLS = [
    BILLS[:-1],
    BILLS[:, :1],
    with_nan(BILLS),
    -BILLS,
    "text",
    3.0,
    BILLS.astype(str),
    pd.DataFrame(BILLS, columns=["a", "z"]),
]
BAD_WEIGHTS = [ONES[:-1], -ONES, 0 * ONES, with_nan(ONES), "text", BILLS]
BAD_AXES = ["text", 1, plt]
BAD_STYLES = ["text", {"nonsense": 1}]
# Targets that no router can be measured by.
BAD_TARGETS = [None, np.zeros((N_ROWS, 2, 2)), np.ones((N_ROWS, 3))]
BAD_SECONDS = [ONES[:-1], -ONES, with_nan(ONES), "text", 1.0]

# Bad values of arguments that all evaluations on test rows take.
EVALUATION = {"X": [X[:-1]], "y": BAD_TARGETS}
BILLED = {**EVALUATION, "costs": BAD_BILLS}
# For each callable bad values by argument, for a router that answers with labels.
BAD_OF_LABELS = {
    "accuracy_cost_curve": {
        **BILLED,
        "sample_weight": BAD_WEIGHTS,
        "budgets": [[3.0, 0.01], []],
    },
    "savings": {**BILLED, "seconds": BAD_BILLS, "today": ["z"]},
    "decision_report": {**BILLED, "path": ["", "x" * 400, "no/folder"]},
    "mean_quality_scorer": {**BILLED, "sample_weight": BAD_WEIGHTS},
    "risk_coverage_scorer": EVALUATION,
    "budget scorer": {
        **EVALUATION,
        "y": [*BAD_TARGETS, LABELS[:-1], np.full(N_ROWS, "z")],
        "sample_weight": BAD_WEIGHTS,
    },
    "curve scorer": {**EVALUATION, "options": [{"lowest": 1.0}]},
    "AccuracyCostDisplay": {
        **BILLED,
        "ax": BAD_AXES,
        "curve_kwargs": BAD_STYLES,
        "references": ["text"],
        "cost_unit": [3],
    },
    "RouteShareDisplay": {"ax": BAD_AXES, "area_kwargs": BAD_STYLES},
    "ComplementarityDisplay": {
        "X": [X[:-1], None, X[:, :2], with_nan(X)],
        "y": [*BAD_TARGETS, np.full(N_ROWS, "z")],
        "ax": BAD_AXES,
        "im_kwargs": BAD_STYLES,
    },
    "certificate": {
        **BILLED,
        "y": [*BAD_TARGETS, np.full(N_ROWS, "z")],
        "reference": ["z", CountingClassifier, CountingClassifier(0)],
    },
    "recertify": {**BILLED, "y": [*BAD_TARGETS, np.full(N_ROWS, "z")]},
    "score of a certificate": {**EVALUATION, "y": [*BAD_TARGETS, LABELS[:-1]]},
}
# For a router that calls its first member while it decides.
BAD_OF_ASKING = {
    "accuracy_cost_curve": {"costs": [BILLS], "budgets": [[5.0, 0.01]]},
    "savings": {"costs": [BILLS], "seconds": [BILLS]},
    "certificate": {"costs": [BILLS], "y": [LABELS + 7], "reference": ["z"]},
    "recertify": {"costs": [BILLS]},
}
# A label that is not a class has no Brier score.
BAD_OF_BRIER = {
    "accuracy_cost_curve": {"y": [np.r_[7, LABELS[1:]]]},
    "certificate": {"y": [np.r_[7, LABELS[1:]]]},
}
BAD_OF_NUMBERS = {"accuracy_cost_curve": {"y": [np.full(N_ROWS, "z"), ONES * np.inf]}}
BAD_QUALITIES = [
    *BAD_TARGETS,
    QUALITY[:, :1],
    np.nan * QUALITY,
    pd.DataFrame(QUALITY, columns=["a", "z"]),
]
# For a router that only routes: its quality estimator is called while it decides.
BAD_OF_ROUTING = {
    "accuracy_cost_curve": {**BILLED, "y": BAD_QUALITIES},
    "savings": {
        **BILLED,
        "y": [*BAD_QUALITIES, with_nan(QUALITY)],
        "seconds": BAD_BILLS,
    },
    "decision_report": {"y": [with_nan(QUALITY)]},
    "mean_cost_scorer": {"costs": BAD_BILLS},
    "own scorer": {"sample_weight": BAD_WEIGHTS},
    "RouterDiagnosticsDisplay": {
        "estimator": [None, "text"],
        "X": [X[:-1]],
        "y": [*BAD_QUALITIES, with_nan(QUALITY), LABELS],
        "costs": [
            BILLS[:-1],
            -BILLS,
            with_nan(BILLS),
            "text",
            3.0,
            pd.DataFrame(BILLS, columns=["a", "z"]),
        ],
        "n_bins": [0, 2.5, "text"],
        "ax": BAD_AXES,
    },
    "off_policy_savings": {"seconds": BAD_SECONDS},
    "OffPolicyDisplay": {"ax": BAD_AXES, "curve_kwargs": BAD_STYLES},
    "certificate": {**BILLED, "y": BAD_TARGETS, "reference": ["z"]},
}
BAD = {
    "labels": BAD_OF_LABELS,
    "asking": BAD_OF_ASKING,
    "brier": BAD_OF_BRIER,
    "numbers": BAD_OF_NUMBERS,
    "routing": BAD_OF_ROUTING,
}


def certify(estimator, X, y, reference="best", **params):
    certified = CertifiedRouter(
        FrozenEstimator(estimator),
        max_loss=0.9,
        n_points=3,
        reference=reference,
        fallback="safe",
        random_state=0,
    )
    return certified.fit(X, y, **params)


def prepare(name, router, target, folder):
    """Return a function, and its good arguments."""
    row = {"estimator": router, "X": X, "y": target}
    if name == "certificate":
        return certify, row
    if name == "recertify":
        return certify(router, X, target).recertify, {"X": X, "y": target}
    if name == "score of a certificate":
        return certify(router, X, target).score, {"X": X, "y": target}
    if name == "budget scorer":
        return metrics.make_budget_scorer(3.0), row
    if name == "own scorer":
        return metrics.make_budget_scorer(3.0, None), row
    if name == "curve scorer":

        def score(options, **arguments):
            metric = metrics.cost_quality_auc
            return metrics.make_curve_scorer(metric, [3.0], **options)(**arguments)

        return score, {**row, "options": {"high": 9.0}}
    if name in ("off_policy_savings", "OffPolicyDisplay"):
        log = {"estimator": router, "X": X, "q": ONES, "choice": np.arange(N_ROWS) % 2}
        log |= {"propensity": 0.5 * ONES, "costs": ONES}
        if name == "OffPolicyDisplay":
            return metrics.OffPolicyDisplay.from_estimator, log | {"budgets": [2.5]}
        return metrics.off_policy_savings, log
    function = getattr(metrics, name)
    if name in ("savings", "decision_report"):
        row["n_resamples"] = 2
    if name == "decision_report":
        pytest.importorskip("vl_convert")
        row["path"] = folder / "page.html"
    if name in ("accuracy_cost_curve", "AccuracyCostDisplay", "decision_report"):
        row["budgets"] = [1.5, 3.0]
    if name == "RouteShareDisplay":
        row = {"estimator": router, "X": X, "budgets": [3.0]}
    if name.endswith("Display"):
        function = function.from_estimator
    return function, row


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in BAD for name in BAD[kind]]
)
def test_bad_input_is_refused_before_a_model_is_called(
    kind, name, routers, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    function, good = prepare(name, *routers[kind], tmp_path)
    CALLS.clear()
    function(**good)
    # This router decides by a tree, whose calls are not counted.
    assert CALLS or (kind, name) == ("labels", "RouteShareDisplay")
    plt.close("all")
    cases = {}
    for parameter, values in BAD[kind][name].items():
        for position, value in enumerate(values):
            cases[f"{parameter} {position}: {value!r}"[:60]] = {parameter: value}

    def check(case):
        CALLS.clear()
        try:
            function(**{**good, **cases[case]})
        except (ValueError, TypeError, OSError) as error:
            assert_clear(error)
        except AttributeError as error:
            # matplotlib's own error about a keyword.
            assert "nonsense" in str(error), error
        else:
            raise AssertionError("accepted")
        assert not CALLS, f"{len(CALLS)} calls"
        assert not plt.get_fignums()

    each(cases, check)


def test_choices_without_names_are_the_columns_in_their_order():
    router = BudgetRouter(CountingRegressor(), costs=[1.0, 3.0], cv=2).fit(X, QUALITY)
    frame = pd.DataFrame(QUALITY, columns=["a", "z"])
    expected = metrics.accuracy_cost_curve(router, X, QUALITY, budgets=[2.0])
    curve = metrics.accuracy_cost_curve(router, X, frame, budgets=[2.0])
    np.testing.assert_array_equal(curve.quality, expected.quality)


class FitCounter(CountingClassifier):
    """A classifier that counts its fits as calls."""

    def fit(self, X, y):
        CALLS.append("fit")
        return super().fit(X, y)


def test_nothing_is_fitted_for_an_unknown_quality_or_reference():
    members = [("a", FitCounter(0)), ("b", FitCounter(1))]
    router = OccamRouterClassifier(members, costs=COSTS, cv=2)
    search = metrics.BudgetSearchCV(
        router, {"budget": [1.0, 3.0]}, budget=3.0, quality="nonsense", cv=2
    )
    unfitted = CertifiedRouter(
        router, max_loss=0.9, reference=CountingClassifier(0), random_state=0
    )
    CALLS.clear()
    with pytest.raises(ValueError, match="nonsense"):
        search.fit(X, LABELS)
    with pytest.raises(ValueError, match="not fitted"):
        unfitted.fit(X, LABELS)
    assert not CALLS
