"""Checks of our own decision estimators, beyond those of `skroute.testing`.

Each takes an unfitted instance from `tests/estimators.py`: a new estimator is checked by standing
in the list.
"""

import functools
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import has_fit_parameter

from skroute.features import LazyFeatures
from skroute.testing._checks import ACT_AT_ONCE, CHECKS
from skroute.testing._checks import fit_on_rows as fitted
from skroute.testing._checks import middle_budget as middle
from skroute.testing._data import make_rows as rows
from skroute.testing._data import make_target as target


def same(ours, theirs):
    for a, b in zip(ours, theirs):
        np.testing.assert_array_equal(a, b)


PAGE = Path(__file__).parents[1] / "doc" / "user_guide" / "after_fit.rst"
# Other values than the default, which all estimators with the parameter take.
OTHER_VALUES = {
    "drift": 0.1,
    "exchange_rate": 0.05,
    "exploration": 0.3,
    "max_cost": 2.0,
    "max_rounds": 1,
    "n_expected": 50,
    "policy": "batch",
    "reg_lambda": 0.7,
}


@functools.cache
def documented_at_once():
    """Return the parameters that the table of the user guide calls "at once", by class name."""
    after_title = PAGE.read_text().split(".. list-table:: What acts at once")[1]
    table = after_title.split("\n\nThe prices")[0]
    found = {}
    for row in table.split("\n   * - ")[2:]:
        estimators, at_once, _ = row.split("\n     - ")
        for name in re.findall(r"\.(\w+)`", estimators):
            found[name] = set(re.findall("``(\\w+)``", at_once))
    return found


def changed(model, name):
    """Return parameters with another value of one, which is right for the fitted model."""
    if name == "budget":
        return {"budget": middle(model)}
    if name == "capacities":
        # The other choices take the rest of the rows, if there are any.
        return {"capacities": {model.choices_[-1]: 1 / len(model.choices_)}}
    if name != "costs":
        return {name: OTHER_VALUES[name]}
    if isinstance(model.costs, dict):
        costs = {choice: 2 * cost for choice, cost in model.costs.items()}
    else:
        costs = 2 * np.array(model.costs)
    return {"costs": costs, "budget": 2 * middle(model)}


def check_decision_parameters_that_act_at_once(estimator):
    """The user guide is right: what acts at once decides as if it had been there in `fit`."""
    X, y, X_test, _ = rows()
    at_once = documented_at_once()[type(estimator).__name__]
    parameters = estimator.get_params(deep=False)
    assert at_once <= set(parameters)
    for name in sorted(at_once):
        if name == "costs" and (
            estimator.costs is None or isinstance(estimator.costs, str)
        ):
            continue
        if name == "limits":
            # Limits need amounts in `fit`: see tests/routing/test_limits.py.
            continue
        model = fitted(estimator)
        change = changed(model, name)
        refitted = clone(estimator).set_params(**change).fit(X, target(estimator, y))
        same(
            model.set_params(**change).predict_routed(X_test),
            refitted.predict_routed(X_test),
        )


def check_decision_parameters_that_act_at_the_next_fit(estimator):
    """The user guide is right: parameters that act at once elsewhere change nothing here."""
    X_test = rows()[2]
    late = ACT_AT_ONCE & set(estimator.get_params(deep=False))
    for name in sorted(late - documented_at_once()[type(estimator).__name__]):
        model = fitted(estimator)
        before = model.predict_routed(X_test)
        if name == "costs":
            other = dict.fromkeys(model.choices_, 5.0)
        else:
            other = OTHER_VALUES[name]
        same(model.set_params(**{name: other}).predict_routed(X_test), before)


def check_decision_flat_rows(estimator):
    """A row of a frame, or a list of texts, is no table of rows: the error says so."""
    pd = pytest.importorskip("pandas")
    X, y, X_test, _ = rows()
    names = list("abcdef")
    model = clone(estimator).fit(pd.DataFrame(X, columns=names), target(estimator, y))
    row = pd.DataFrame(X_test, columns=names).astype(object).iloc[0]
    for flat in (row, ["some text"]):
        with pytest.raises(
            ValueError, match="rows of 6 columns|2D array|2-dim|convert"
        ):
            model.predict(flat)


def check_decision_equal_weights(estimator):
    """Rows that weigh one each are rows without weights."""
    X, y, X_test, _ = rows()
    if "sample_weight" not in inspect.signature(estimator.fit).parameters:
        return
    expected = fitted(estimator).predict_routed(X_test)
    for weight in (1, 1.0):
        model = clone(estimator)
        model.fit(X, target(estimator, y), sample_weight=np.full(len(X), weight))
        same(expected, model.predict_routed(X_test))


def check_decision_weights_of_another_length(estimator):
    """Weights that are not one per row are refused, also as many as rows are learned from inside.

    A quarter is held out by early exits and half by two folds: these weights fitted what was left.
    """
    X, y, _, _ = rows()
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = clone(estimator)
        for inner in [estimator, *estimator.get_params().values()]:
            if has_fit_parameter(inner, "sample_weight") and hasattr(
                inner, "set_fit_request"
            ):
                inner.set_fit_request(sample_weight=True)
        refused = (TypeError, ValueError)
        try:
            clone(estimator).fit(X, target(estimator, y), sample_weight=np.ones(len(X)))
        except refused:
            return
        for n in (len(X) // 2, *range(80, 100), len(X) + 1):
            with pytest.raises(refused, match="sample_weight"):
                clone(estimator).fit(X, target(estimator, y), sample_weight=np.ones(n))


def check_decision_masked_entries(estimator):
    """What is under a mask is not read as if it were known; a mask of nothing hides nothing."""
    X, y, X_test, _ = rows()
    given = target(estimator, y)
    some = np.arange(len(X)) % 7 == 0
    for masked in (
        (np.ma.masked_array(X, np.repeat(some[:, None], X.shape[1], axis=1)), given),
        (X, np.ma.masked_where(np.broadcast_to(some, given.T.shape).T, given)),
    ):
        model = clone(estimator)
        with pytest.raises(ValueError, match="must have no missing values"):
            model.fit(*masked)
        with pytest.raises(NotFittedError):
            model.predict(X_test)
    model = fitted(estimator)
    with pytest.raises(ValueError, match="must have no missing values"):
        model.predict(
            np.ma.masked_array(
                X_test, np.arange(X_test.size).reshape(X_test.shape) == 5
            )
        )
    plain = model.predict(X_test)
    found = (
        clone(estimator)
        .fit(np.ma.masked_array(X), np.ma.masked_array(given))
        .predict(X_test)
    )
    np.testing.assert_array_equal(found, plain)


def check_decision_sources_of_features(estimator):
    """A source of features is bought from or refused in words; `fit` reads whole rows."""
    X, y, X_test, _ = rows()
    with pytest.raises(TypeError, match="fit reads whole rows and buys no columns"):
        clone(estimator).fit(LazyFeatures(dict(enumerate(X.T))), target(estimator, y))
    model = fitted(estimator)
    try:
        found = model.predict(LazyFeatures(dict(enumerate(X_test.T))))
    except TypeError as error:
        assert "reads whole rows and buys no columns, got LazyFeatures" in str(error)
    else:
        np.testing.assert_array_equal(found, model.predict(X_test))


class Recorder:
    """A callback that remembers the tasks that began and ended."""

    def __init__(self):
        self.begun, self.ended = [], []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context, **_):
        self.begun.append(context.task_name)

    def on_fit_task_end(self, estimator, context, **_):
        self.ended.append(context.task_name)


def check_decision_callbacks(estimator):
    """Progress is shown: the fit begins, takes steps and ends (scikit-learn 1.9 and newer)."""
    pytest.importorskip("sklearn.callback")
    X, y, _, _ = rows()
    recorder = Recorder()
    clone(estimator).set_callbacks(recorder).fit(X, target(estimator, y))
    assert recorder.begun[0] == recorder.ended[-1] == "fit"
    assert sorted(recorder.begun) == sorted(recorder.ended)
    assert len(recorder.begun) > 1, "a fit of one step shows no progress"


def check_decision_skops_round_trip(estimator):
    sio = pytest.importorskip("skops.io")
    model, X = fitted(estimator), rows()[2]
    dumped = sio.dumps(model)
    trusted = sio.get_untrusted_types(data=dumped)
    allowed = ("skroute.", "sklearn.", "numpy.", "lightgbm.", "collections.")
    assert all(name.startswith(allowed) for name in trusted), trusted
    same(model.predict_routed(X), sio.loads(dumped, trusted=trusted).predict_routed(X))


DECISION_CHECKS = list(CHECKS)
DECISION_CHECKS += [
    item for name, item in list(globals().items()) if name.startswith("check_decision_")
]
