"""True answers that are missing are refused by all public calls that answers are compared in."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from skroute import metrics
from skroute.certified import CertifiedRouter
from skroute.metrics import (
    AccuracyCostDisplay,
    ComplementarityDisplay,
    RouterDiagnosticsDisplay,
)
from tests.test_row_labels import Q, X, Y, fitted

TEXTS = np.array(["no", "yes"], dtype=object)[Y]


def polars_series(values, missing):
    """Return a polars series whose missing entries are null."""
    polars = pytest.importorskip("polars")
    cells = [None if gone else cell for cell, gone in zip(values.tolist(), missing)]
    return polars.Series(cells)


def arrow_array(values, missing):
    """Return an Arrow array whose missing entries are null."""
    pyarrow = pytest.importorskip("pyarrow")
    cells = [None if gone else cell for cell, gone in zip(values.tolist(), missing)]
    return pyarrow.array(cells)


def filled(values, missing, filler):
    """Return an array of objects with something in the place of the missing entries."""
    cells = np.array(values, dtype=object)
    cells[missing] = filler
    return cells


# How the labels of some rows may be missing: from labels and a mask to labels as users have them.
HOLDERS = {
    "float": lambda y, gone: np.where(gone, np.nan, y),
    "objects, None": lambda y, gone: filled(y, gone, None),
    "objects, NaN": lambda y, gone: filled(y, gone, np.nan),
    "objects, NA": lambda y, gone: filled(y, gone, pd.NA),
    "objects, NaT": lambda y, gone: filled(y, gone, pd.NaT),
    "list": lambda y, gone: filled(y, gone, None).tolist(),
    "list, NaN": lambda y, gone: filled(y, gone, np.nan).tolist(),
    "masked": lambda y, gone: np.ma.masked_array(y, mask=gone),
    "series": lambda y, gone: pd.Series(y).where(~gone),
    "nullable": lambda y, gone: pd.Series(y).convert_dtypes().where(~gone),
    "category": lambda y, gone: pd.Series(y).where(~gone).astype("category"),
    "frame": lambda y, gone: pd.Series(y).where(~gone).to_frame(),
    "polars": polars_series,
    "arrow": arrow_array,
}
OF_NUMBERS_ALONE = {"float"}

CLASSIFIERS = [
    "occam",
    "dummy",
    "frugal ml",
    "frugal mct",
    "sequential",
    "exits",
    "gate",
    "buyer",
    "greedy",
    "dom",
]


def at(function, **options):
    """Return a call of a model and labels from a function of a model, rows and labels."""
    return lambda model, y: function(model, X, y, **options)


# Calls of a fitted decision estimator that answers with labels.
OF_DECISIONS = {
    "accuracy_cost_curve": at(metrics.accuracy_cost_curve, budgets=[50.0]),
    "AccuracyCostDisplay": at(AccuracyCostDisplay.from_estimator, budgets=[50.0]),
    "mean_quality_scorer": at(metrics.mean_quality_scorer),
    "risk_coverage_scorer": at(metrics.risk_coverage_scorer),
    "make_budget_scorer": at(metrics.make_budget_scorer(50.0, scoring=None)),
    "make_budget_scorer, accuracy": at(metrics.make_budget_scorer(50.0)),
    "make_curve_scorer": at(
        metrics.make_curve_scorer(metrics.cost_quality_auc, [1.0, 50.0])
    ),
    "decision_report": at(metrics.decision_report, path="report.html"),
    "score": lambda model, y: model.score(X, y),
}
OF_MEMBERS = {
    "row_quality": lambda model, y: model.row_quality(X, y),
    "ComplementarityDisplay": at(ComplementarityDisplay.from_estimator),
    "certificate": lambda model, y: CertifiedRouter(
        FrozenEstimator(model), max_loss=0.9, fallback="safe"
    ).fit(X, y),
    "certificate of classes": lambda model, y: CertifiedRouter(
        FrozenEstimator(model), max_loss=0.9, fallback="safe", groups="class"
    ).fit(X, y),
}
# Calls that one kind of estimator has.
ALONE = {
    "sample_quality": lambda y, texts: metrics.sample_quality(y, TEXTS if texts else Y),
    "from_predictions": lambda y, texts: AccuracyCostDisplay.from_predictions(
        y, [TEXTS if texts else Y], [1.0]
    ),
    "member_quality": lambda y, texts: model_of("dummy", texts).member_quality(X, y),
    "oracle": lambda y, texts: model_of("dummy", texts).predict(X, y_true=y),
    "oracle's route": lambda y, texts: model_of("dummy", texts).route(X, y_true=y),
    "forest": lambda y, texts: model_of("forest", texts).score(X, y),
}
CACHE = {}


def model_of(name, texts):
    """Return a fitted estimator that answers with texts or with numbers."""
    if (name, texts) not in CACHE:
        model = fitted()[name]
        if texts:
            # Its own answers are texts then.
            model = refitted(model)
        CACHE[name, texts] = model
    return CACHE[name, texts]


def refitted(model):
    """Return an estimator fitted to labels that are texts."""
    again = clone(model)
    if type(model).__name__ == "FastForest":
        again.set_params(estimator=clone(model.estimator.estimator))
    if type(model).__name__ == "QWYCEnsemble":
        again.set_params(estimator=clone(model.estimator))
    return again.fit(X, TEXTS)


@settings(max_examples=60, deadline=None, phases=[Phase.generate])
@given(st.data())
def test_missing_labels_are_refused(data):
    texts = data.draw(st.booleans(), label="texts")
    holders = sorted(set(HOLDERS) - (OF_NUMBERS_ALONE if texts else set()))
    holder = data.draw(st.sampled_from(holders), label="holder")
    n_missing = data.draw(st.integers(1, 60), label="missing rows")
    missing = np.zeros(len(Y), dtype=bool)
    first = data.draw(st.integers(0, len(Y) - n_missing), label="first")
    missing[first : first + n_missing] = True
    labels = HOLDERS[holder](TEXTS if texts else Y, missing)
    calls = {f"{call}": ALONE[call] for call in ALONE}
    for name in CLASSIFIERS:
        of_model = OF_DECISIONS
        if hasattr(fitted()[name], "named_estimators_"):
            of_model = OF_DECISIONS | OF_MEMBERS
        for call, function in of_model.items():
            calls[f"{call} of {name}"] = lambda y, texts, name=name, function=function: (
                function(model_of(name, texts), y)
            )
    for call in data.draw(
        st.lists(st.sampled_from(sorted(calls)), min_size=8, max_size=8)
    ):
        with pytest.raises(ValueError, match="missing"):
            calls[call](labels, texts)


@pytest.mark.parametrize("holder", sorted(HOLDERS))
@pytest.mark.parametrize("name", [*CLASSIFIERS, "callable", "recorded"])
def test_fit_takes_no_missing_labels(name, holder):
    """A NaN among texts is no label with the name "nan"."""
    missing = np.arange(len(Y)) % 5 == 1
    rows = np.arange(len(Y))[:, np.newaxis] if name == "recorded" else X
    for labels in (Y, TEXTS):
        if labels is TEXTS and holder in OF_NUMBERS_ALONE:
            continue
        with pytest.raises(ValueError, match="missing"):
            clone(fitted()[name]).fit(rows, HOLDERS[holder](labels, missing))


@pytest.mark.parametrize("name", ["numbers", "dummy numbers"])
@pytest.mark.parametrize("holder", ["float", "list, NaN", "series", "polars", "masked"])
def test_missing_numbers_are_refused(name, holder):
    missing = np.arange(len(X)) % 7 == 3
    truth = HOLDERS[holder](X[:, 0], missing)
    model = fitted()[name]
    calls = [
        lambda: model.score(X, truth),
        lambda: model.row_quality(X, truth),
        lambda: metrics.accuracy_cost_curve(model, X, truth, [50.0]),
        lambda: metrics.mean_quality_scorer(model, X, truth),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="missing"):
            call()


@pytest.mark.parametrize("holder", ["array", "frame", "nullable", "polars"])
def test_qualities_that_are_not_known_are_left_out_in_all_tables(holder):
    """A table of qualities has unknown cells, which are no wrong answers."""
    router = fitted()["budget"]
    unknown = np.random.default_rng(0).random(Q.shape) < 0.3
    table = np.where(unknown, np.nan, Q)
    frame = pd.DataFrame(table, columns=["a", "b"])
    held = {"array": table, "frame": frame, "nullable": frame.convert_dtypes()}
    if holder == "polars":
        polars = pytest.importorskip("polars")
        held["polars"] = polars.from_pandas(frame)
    curve = metrics.accuracy_cost_curve(router, X, held[holder], [1.5])
    made = table[np.arange(len(X)), router.route(X, 1.5)]
    assert curve.quality[0] == pytest.approx(np.nanmean(made))
    display = ComplementarityDisplay.from_estimator(router, X, held[holder])
    np.testing.assert_allclose(display.matrix, metrics.complementarity_matrix(table))
    with pytest.raises(ValueError, match="NaN, not known"):
        RouterDiagnosticsDisplay.from_estimator(router, X, held[holder])
