"""Hostile input for every public estimator: a right answer or a clear error, nothing between.

The estimators are those of `tests/estimators.py`, whose completeness `test_common.py` proves.
A clear error is a ValueError or TypeError that says which argument is wrong (a failure inside
a model keeps its own type and text, and a note says whose it is). After a failed fit nothing
is fitted, whatever was before.
"""

import pickle
import re
import warnings
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.validation import check_is_fitted

from skroute.base._inspection import abstained
from skroute.certified import CertifiedRouter
from skroute.early_exit import QWYCEnsemble
from skroute.forests import FastForest
from tests.estimators import ESTIMATORS, MODELS

LEARNERS = {
    f"{type(e).__name__}-{i}": e
    for i, e in enumerate(ESTIMATORS)
    if hasattr(e, "predict")
}
EVERYONE = {**LEARNERS, **{type(e).__name__: e for e in MODELS}}
# Models that `fit` teaches nothing.
NEVER_UNFITTED = tuple(type(model) for model in MODELS)

# Texts of failures that nobody meant to raise: numpy's, about our arrays and not the user's.
UNCLEAR = re.compile(
    r"zero-size array|could not broadcast|cannot be broadcast|cannot reshape|out of bounds|"
    r"truth value|has no attribute|object is not|not subscriptable|unhashable|unpack|'NoneType'|"
    r"positional argument|assignment destination is read-only|division"
)
# Texts of scikit-learn's and numpy's conversion of X, which say what they found in it.
OF_CONVERSION = re.compile(
    r"could not convert string to float|argument must be a string or a real number|"
    r"not supported between instances|Expected sequence or array-like|at least 1 dimension|"
    r"inhomogeneous shape|Complex data not supported|no common DType|could not be promoted"
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A hostile `memory="nonsense"` is a folder that joblib makes."""
    monkeypatch.chdir(tmp_path)


def assert_clear(error):
    """The error is a refusal in words, not an accident."""
    text = "\n".join([str(error), *getattr(error, "__notes__", [])])
    if not OF_CONVERSION.search(text):
        assert len(text.split()) > 3, f"terse: {text!r}"
        assert not UNCLEAR.search(text), f"an accident: {text!r}"


def fits(estimator, X, y):
    """Fit; False after a clear refusal that has left nothing fitted."""
    try:
        estimator.fit(X, y)
    # An ImportError says which extra a parameter needs, where that is not installed.
    except (ValueError, TypeError, KeyError, ImportError) as error:
        assert_clear(error)
        if not isinstance(estimator, NEVER_UNFITTED):
            with pytest.raises(NotFittedError):
                check_is_fitted(estimator)
            with pytest.raises(NotFittedError):
                estimator.predict(X)
        return False
    return True


def answers(estimator, X, **how):
    """Answers to X that keep every promise; None after a clear refusal."""
    try:
        y_pred = estimator.predict(X, **how)
    except (ValueError, TypeError, KeyError) as error:
        assert_clear(error)
        return None
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    assert len(y_pred) == n
    if (
        is_classifier(estimator)
        and getattr(estimator, "abstain_quality_", None) is not None
    ):
        # A row that abstains has a label of its own, and no probabilities.
        abstains = abstained(estimator, estimator.route(X, **how))
        assert np.isin(y_pred[~abstains], estimator.classes_).all()
        assert all(label in ("abstain", -1) for label in y_pred[abstains].tolist())
        assert not np.isin(y_pred[abstains], estimator.classes_).any()
    elif is_classifier(estimator):
        assert np.isin(y_pred, estimator.classes_).all()
        if hasattr(estimator, "predict_proba"):
            proba = estimator.predict_proba(X, **how)
            assert proba.shape == (n, len(estimator.classes_))
            np.testing.assert_allclose(proba.sum(axis=1), 1)
            assert (proba >= -1e-12).all()
    elif not hasattr(estimator, "choices_"):
        assert np.isfinite(y_pred).all()
    if hasattr(estimator, "predict_routed"):
        routed = estimator.predict_routed(X, **how)
        np.testing.assert_array_equal(routed.y_pred, y_pred)
        assert routed.route.shape == routed.cost.shape == (n,)
        assert routed.route.min() >= 0 and routed.route.max() < len(estimator.choices_)
        assert np.isfinite(routed.cost).all() and (routed.cost >= 0).all()
        budget = how.get("budget", estimator.budget)
        if getattr(estimator, "policy", None) == "batch" and budget is not None:
            assert routed.cost.mean() <= budget * (1 + 1e-9)
    return y_pred


def problem(estimator, n=30, seed=0):
    """Rows and targets that the estimator takes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int)
    y[:8] = [0, 1] * 4
    if type(estimator).__name__ == "RecordedClassifier":
        X = np.arange(n)[:, np.newaxis] % 4
    return X, y.astype(float) if not is_classifier(estimator) else y


@pytest.fixture
def quiet():
    """Warnings are allowed here: about members that do not converge, about small folds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(params=EVERYONE)
def estimator(request, quiet):
    return clone(EVERYONE[request.param])


@pytest.fixture(params=LEARNERS)
def learner(request, quiet):
    return clone(LEARNERS[request.param])


def having(*parameters):
    """Only the learners that have one of these parameters."""
    names = [
        name
        for name, learner in LEARNERS.items()
        if not learner.get_params(deep=False).keys().isdisjoint(parameters)
    ]
    return pytest.mark.parametrize("learner", names, indirect=True)


def each(cases, check):
    """Run a check on every case; one failure must not hide the others."""
    failures = {}
    for case in cases:
        try:
            check(case)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failures[case] = f"{type(error).__name__}: {error}"
    assert not failures, "\n\n".join(
        f"{case}: {text}" for case, text in failures.items()
    )


# Arrays: rows, targets, and arguments of functions ---------------------------------------


def _put(value):
    """The array with this value in the place of its first one."""

    def put(a):
        found = a.astype(np.float64 if isinstance(value, float) else object)
        found[(0,) * a.ndim] = value
        return found

    return put


def _read_only(a):
    found = a.copy()
    found.flags.writeable = False
    return found


LARGEST = np.finfo(float).max
HOSTILE_ARRAYS = {
    "nan": _put(np.nan),
    "inf": _put(np.inf),
    "-inf": _put(-np.inf),
    "negative": _put(-1.0),
    "the largest number": _put(LARGEST),
    "none inside": _put(None),
    "text inside": _put("text"),
    "the largest numbers": lambda a: np.full(a.shape, LARGEST),
    "huge": lambda a: a * 1e300,
    "tiny": lambda a: a * 1e-310,
    "zeros": lambda a: np.zeros(a.shape),
    "ones": lambda a: np.ones(a.shape),
    "objects": lambda a: a.astype(object),
    "numbers as text": lambda a: a.astype(str),
    "numbers as text objects": lambda a: a.astype(str).astype(object),
    "complex": lambda a: a + 1j,
    "datetimes": lambda a: a.astype("int64").astype("datetime64[s]"),
    "bool": lambda a: a > 0.5,
    "int8": lambda a: np.round(a).astype(np.int8),
    "float16": lambda a: a.astype(np.float16),
    "float32": lambda a: a.astype(np.float32),
    "other byte order": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "fortran order": np.asfortranarray,
    "negative strides": np.flip,
    "read only": _read_only,
    "masked": lambda a: np.ma.masked_array(a, mask=False),
    "empty": lambda a: a[:0],
    "one row": lambda a: a[:1],
    "fewer rows": lambda a: a[:-1],
    "more rows": lambda a: np.concatenate([a, a]),
    "one axis more": lambda a: a[..., np.newaxis],
    "raveled": np.ravel,
    "lists": lambda a: a.tolist(),
    "ragged": lambda a: [[1.0, 2.0], [3.0]] * (len(a) // 2),
}


def _with(X, row, column, value):
    X = X.astype(np.float64)
    X[row, column] = value
    return X


def _frame(X, **changed):
    return pd.DataFrame(X, columns=["a", "b", "c"][: X.shape[1]]).assign(**changed)


HOSTILE_ROWS = HOSTILE_ARRAYS | {
    "all nan column": lambda X: _with(X, slice(None), 0, np.nan),
    "-inf in one row": lambda X: _with(X, 3, slice(None), -np.inf),
    "no columns": lambda X: X[:, :0],
    "one column": lambda X: X[:, :1],
    "one axis": lambda X: X[:, 0],
    "a number": lambda X: 3.0,
    "none": lambda X: None,
    "text": lambda X: "rows",
    "dict": lambda X: {"a": 1},
    "constant column": lambda X: _with(X, slice(None), 0, 5.0),
    "equal rows": lambda X: np.repeat(X[:1], len(X), axis=0),
    "not a number in text": lambda X: np.full(X.shape, "text", dtype=object),
    "csr": lambda X: sp.csr_array(X.astype(float)),
    "coo": lambda X: sp.coo_array(X.astype(float)),
    "datetime column": lambda X: _frame(X, a=pd.Timestamp("2026-01-01")),
    "text column": lambda X: _frame(X, a="text"),
    "category column": lambda X: _frame(
        X, a=pd.Categorical(["u", "v"] * (len(X) // 2))
    ),
    "missing in a nullable column": lambda X: _frame(
        X, a=pd.array([None, 1] * (len(X) // 2))
    ),
    "names twice": lambda X: pd.DataFrame(X, columns=["a"] * X.shape[1]),
    "names of two types": lambda X: pd.DataFrame(
        X, columns=["a", 1, "c"][: X.shape[1]]
    ),
    "polars with null": lambda X: pl.DataFrame(
        X[:, 0].tolist()[:-1] + [None], schema=["a"], strict=False
    ),
}
# What fits nothing: the rows are fewer than the targets.
FEWER = {"empty", "one row"}
# What scikit-learn's trees fit and its linear models then refuse to answer.
UNANSWERED = {"datetimes", "numbers as text"}


@pytest.mark.slow
def test_hostile_rows_in_fit(estimator):
    X, y = problem(estimator)

    def check(case):
        hostile = HOSTILE_ROWS[case](X)
        target = y[: len(hostile)] if case in FEWER else y
        if fits(estimator, hostile, target):
            learns = not isinstance(estimator, NEVER_UNFITTED)
            again = answers(estimator, hostile)
            assert again is not None or case in UNANSWERED or not learns, (
                "fitted, not answered"
            )

    each(HOSTILE_ROWS, check)


@pytest.mark.slow
def test_hostile_rows_in_predict(estimator):
    X, y = problem(estimator)
    estimator.fit(X, y)
    before = estimator.predict(X)

    def check(case):
        answers(estimator, HOSTILE_ROWS[case](X))
        # And it is as good as before.
        np.testing.assert_array_equal(estimator.predict(X), before)

    each(HOSTILE_ROWS, check)


def _words(y, no="no", yes="yes"):
    return np.where(y > 0, yes, no)


HOSTILE_TARGETS = HOSTILE_ARRAYS | {
    "none": lambda y: None,
    "a number": lambda y: 1,
    "one class of text": lambda y: np.full(len(y), "only"),
    "a class of one row": lambda y: np.r_[y[:-1], 2],
    "a class for each row": lambda y: np.arange(len(y)),
    "continuous": lambda y: np.linspace(0, 1, len(y)),
    "all negative": lambda y: -y - 5,
    "words": _words,
    "words as objects": lambda y: _words(y).astype(object),
    "bytes": lambda y: _words(y, b"no", b"yes"),
    "none among words": lambda y: np.array([None, *_words(y[1:])], dtype=object),
    "words and numbers": lambda y: np.array(["no", *y[1:].tolist()], dtype=object),
    "columns": lambda y: np.column_stack([y, y + 1.5]),
    "indicator": lambda y: np.column_stack([y, 1 - y]).astype(int),
    "three axes": lambda y: np.zeros((len(y), 2, 2)),
    "series with an index": lambda y: pd.Series(y, index=np.arange(len(y))[::-1]),
    "categories": lambda y: pd.Series(_words(y), dtype="category"),
    "polars": lambda y: pl.Series(y),
    "one row in all": lambda y: y[:1],
}


@pytest.mark.slow
def test_hostile_targets(estimator):
    X, y = problem(estimator)

    def check(case):
        hostile = HOSTILE_TARGETS[case](y)
        rows = X[:1] if case == "one row in all" else X
        if fits(estimator, rows, hostile):
            # Sums of the largest numbers overflow, which only the answer may notice.
            assert answers(estimator, rows) is not None or "largest" in case

    each(HOSTILE_TARGETS, check)


# Parameters ---------------------------------------------------------------------------

NOT_PARAMETERS = [
    np.nan,
    np.inf,
    -1,
    -0.5,
    1e-320,
    1e308,
    "nonsense",
    [],
    {},
    [[1.0]],
    b"x",
]
NOT_COSTS = [np.nan, -1.0, np.inf, "1", True, None, 1 + 1j, 0.0, 5e-324, 1e300, 10**400]
# Of one of the tests' members, and of all choices.
HOSTILE_COSTS = [
    *({"tree": cost, "logreg": 1.0} for cost in NOT_COSTS),
    *([1.0, cost, 2.0] for cost in NOT_COSTS),
    *([cost] * 3 for cost in (0.0, 1e300)),
    {"tree": 1.0},
    {"tree": 1.0, "logreg": 1.0, "more": 1.0},
    {"tree": 1e-300, "logreg": 1e300},
    {0: 1.0, 1: 2.0, 2: 3.0},
    [1.0],
    [[1.0, 2.0]],
    np.array([1, 2], dtype=object),
    np.ones((2, 2)),
    pd.Series([1.0, 2.0], index=["tree", "logreg"]),
    "money",
    3.0,
]


@pytest.mark.slow
def test_hostile_parameters(estimator):
    X, y = problem(estimator)
    parameters = estimator.get_params(deep=False)
    cases = {}
    for name in parameters:
        for value in HOSTILE_COSTS if name.endswith("costs") else NOT_PARAMETERS:
            # Splits given as an iterable are scikit-learn's to check, which it does not.
            if name != "cv" or not hasattr(value, "__len__") or len(value) != 1:
                cases[f"{name}={value!r}"[:80]] = {name: value}

    def check(case):
        hostile = type(estimator)(**{**parameters, **cases[case]})
        if fits(hostile, X, y):
            answers(hostile, X)

    each(cases, check)


@pytest.mark.slow
@having("costs", "feature_costs")
def test_hostile_costs_with_a_budget(learner):
    """Whatever the costs are, a hard budget holds and a soft one is refused by name."""
    X, y = problem(learner)
    name = "costs" if "costs" in learner.get_params(deep=False) else "feature_costs"
    many = (
        {"tree", "logreg"}
        if "estimators" in learner.get_params(deep=False)
        else range(3)
    )
    cases = {}
    for unit in (1e-300, 1e300):
        for shares in ([0, 1, 2], [1, 2, 4]):
            costs = [unit * share for share in shares[: len(many)]]
            for budget in (0.0, unit, 1.5 * unit):
                cases[f"{costs} {budget}"] = {name: costs, "budget": budget}

    def check(case):
        hostile = clone(learner).set_params(**cases[case])
        if fits(hostile, X, y):
            assert answers(hostile, X) is not None

    each(cases, check)


@having("budget")
def test_hostile_budgets_of_a_call(learner):
    X, y = problem(learner)
    learner.fit(X, y)

    def check(budget):
        answers(learner, X, budget=budget)

    each(
        [0, 0.0, -0.0, 1e-320, 1, 2, 2.5, 1e308, np.inf, np.float32(2), np.int64(2)],
        check,
    )

    def refused(case):
        with pytest.raises(ValueError, match="budget"):
            learner.predict(
                X, budget=[np.nan, -1, -np.inf, "2", True, 2j, {}, b"2"][case]
            )

    each(range(8), refused)


# Failure, memory, jobs and threads ------------------------------------------------------


def test_a_failed_refit_leaves_nothing_fitted(learner):
    X, y = problem(learner)
    broken = X.copy()
    broken[0, 0] = np.inf
    fitted = pickle.dumps(clone(learner).fit(X, y))
    wrong = {"n_jobs": ["nonsense"], "budget": ["much", -1.0]}
    if hasattr(learner, "predict_routed"):
        wrong["n_jobs"].append(0)  # LightGBM takes it for its default.
    own = learner.get_params(deep=False)
    for rows, target, parameters in (
        (broken, y, {}),
        (X, y[:-1], {}),
        (X[:, :0], y, {}),
        (None, y, {}),
        (X, None, {}),
        *(
            (X, y, {name: value})
            for name in wrong
            if name in own
            for value in wrong[name]
        ),
    ):
        refitted = pickle.loads(fitted).set_params(**parameters)
        with pytest.raises((ValueError, TypeError)):
            refitted.fit(rows, target)
        with pytest.raises(NotFittedError):
            check_is_fitted(refitted)
        # Each way to an answer, the short one for a single row included.
        for name in (
            "predict",
            "predict_proba",
            "predict_routed",
            "route",
            "predict_cost",
        ):
            if hasattr(refitted, name):
                with pytest.raises(NotFittedError):
                    getattr(refitted, name)(X[:1])


@having("estimators", "estimator", "quality_estimator")
def test_a_failure_of_a_model_leaves_nothing_fitted(learner):
    """Not only what is checked at the door: a model that fails in the middle, too."""
    X, y = problem(learner)

    class Failing(LogisticRegression):
        def fit(self, X, y, sample_weight=None):
            raise ConnectionError("the model cannot be fitted")

    class FailingForest(RandomForestClassifier):
        """FastForest takes only ensembles of trees."""

        fit = Failing.fit

    parameters, failing = learner.get_params(deep=False), Failing()
    members = {"estimators": [("tree", DummyClassifier()), ("logreg", failing)]}
    if "estimators" in parameters and is_regressor(learner):
        tree = type("FailingTree", (DecisionTreeRegressor,), {"fit": Failing.fit})()
        change = {"estimators": [("tree", DummyRegressor()), ("deep", tree)]}
    elif "estimators" in parameters:
        change = members
    elif isinstance(learner, QWYCEnsemble):
        change = {"estimator": VotingClassifier([("logreg", failing)], voting="soft")}
    elif isinstance(learner, FastForest):
        change = {"estimator": FailingForest()}
    elif isinstance(learner, CertifiedRouter):
        change = {"estimator": clone(learner.estimator).set_params(**members)}
    else:
        name = "estimator" if "estimator" in parameters else "quality_estimator"
        change = {name: failing}
    refitted = clone(learner).fit(X, y).set_params(**change)
    with pytest.raises(ConnectionError, match="cannot be fitted") as caught:
        refitted.fit(X, y)
    notes = getattr(caught.value, "__notes__", [])
    if {"estimators", "costs"} <= parameters.keys() or isinstance(
        learner, CertifiedRouter
    ):
        assert any(
            "fit of 'logreg'" in note or "fit of 'deep'" in note for note in notes
        )
    if isinstance(learner, CertifiedRouter):
        assert any("fit of 'estimator'" in note for note in notes)
    if isinstance(learner, (FastForest, QWYCEnsemble)):
        n_rows = 30 if isinstance(learner, FastForest) else 22
        assert (
            f"fit of '{type(change['estimator']).__name__}' with {n_rows} rows"
            in notes[0]
        )
    with pytest.raises(NotFittedError):
        check_is_fitted(refitted)


@pytest.mark.slow
def test_read_only_memory_maps(estimator, tmp_path):
    X, y = problem(estimator)
    expected = clone(estimator).fit(X, y).predict(X)
    maps = []
    for name, array in (("X", X), ("y", y)):
        joblib.dump(array, tmp_path / name)
        maps.append(joblib.load(tmp_path / name, mmap_mode="r"))
    assert not maps[0].flags.writeable and isinstance(maps[0], np.memmap)
    estimator.fit(*maps)
    np.testing.assert_array_equal(answers(estimator, maps[0]), expected)
    # One row at a time, too: some estimators have a short path for it.
    one_by_one = np.concatenate(
        [estimator.predict(maps[0][i : i + 1]) for i in range(len(X))]
    )
    if getattr(estimator, "policy", None) != "batch":
        np.testing.assert_array_equal(one_by_one, expected)


@pytest.mark.slow
@having("n_jobs")
def test_jobs_change_nothing(learner):
    X, y = problem(learner)
    expected = clone(learner).set_params(n_jobs=None).fit(X, y).predict(X)
    for n_jobs in (1, -1, np.int64(2)):
        # Threads: processes take seconds to start, and have a test of their own.
        with joblib.parallel_config(backend="threading"):
            jobs = clone(learner).set_params(n_jobs=n_jobs).fit(X, y)
            np.testing.assert_array_equal(jobs.predict(X), expected)
    # The number of a surrounding context, too.
    with joblib.parallel_config(backend="threading", n_jobs=2):
        np.testing.assert_array_equal(clone(learner).fit(X, y).predict(X), expected)
    for n_jobs in ("all", 1.5):
        with pytest.raises((ValueError, TypeError), match="n_jobs"):
            clone(learner).set_params(n_jobs=n_jobs).fit(X, y)
    # joblib refuses none at all, LightGBM takes it for its default.
    none = clone(learner).set_params(n_jobs=0)
    if fits(none, X, y):
        np.testing.assert_array_equal(none.predict(X), expected)


@pytest.mark.slow
def test_processes_change_nothing(quiet):
    learner = LEARNERS["DummyRouterClassifier-2"]
    X, y = problem(learner)
    expected = clone(learner).fit(X, y).predict_proba(X)
    with joblib.parallel_config(backend="loky"):
        jobs = clone(learner).set_params(n_jobs=2).fit(X, y)
        np.testing.assert_array_equal(jobs.predict_proba(X), expected)


@pytest.mark.slow
def test_threads_share_a_fitted_estimator(estimator):
    X, y = problem(estimator)
    estimator.fit(X, y)
    rows = [X, X[::-1], X[:7], X[3:4], np.asfortranarray(X), X[5:]]
    methods = [
        name
        for name in ("predict", "predict_proba", "predict_cost", "route")
        if hasattr(estimator, name)
    ]
    work = [(name, part) for name in methods for part in rows] * 4
    expected = [getattr(estimator, name)(part) for name, part in work]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda item: getattr(estimator, item[0])(item[1]), work))
    for ours, alone in zip(found, expected):
        np.testing.assert_array_equal(ours, alone)


NUMBERS = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 0.5, 1e-320, 1e-200, 1e200, 1e308, -1e308, 3.0]
)


@st.composite
def tables(draw):
    """Rows and labels, small and strange, that are in order as far as types go."""
    n = draw(st.integers(1, 14))
    k = draw(st.integers(1, 4))
    if draw(st.booleans()):
        X = draw(hnp.arrays(np.float64, (n, k), elements=NUMBERS))
    else:
        X = np.random.default_rng(draw(st.integers(0, 9))).normal(size=(n, k))
    X = X.astype(
        draw(
            st.sampled_from(
                [np.float64, np.float64, np.float16, np.int64, bool, object]
            )
        )
    )
    labels = draw(
        st.sampled_from([(0, 1), (-1, 1), ("a", "b"), (0, 1, 2), (5,), (True, False)])
    )
    y = np.array(draw(st.lists(st.sampled_from(labels), min_size=n, max_size=n)))
    return X, y


@pytest.mark.slow
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(
    table=tables(),
    costs=st.tuples(NUMBERS.map(abs), NUMBERS.map(abs)),
    budget=st.one_of(st.none(), NUMBERS.map(abs)),
)
def test_anything_together(learner, table, costs, budget):
    X, y = table
    if not is_classifier(learner):
        y = np.unique(y, return_inverse=True)[1].astype(float)
    strange = clone(learner)
    parameters = strange.get_params(deep=False)
    if "estimators" in parameters:
        strange.set_params(costs=dict(zip(("tree", "logreg"), costs)))
    if "budget" in parameters:
        strange.set_params(budget=budget)
    if fits(strange, X, y):
        with np.errstate(all="ignore"):
            answers(strange, X)
