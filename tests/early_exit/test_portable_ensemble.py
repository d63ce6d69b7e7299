"""A file that is no pickle answers as the estimator that it was written from."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier

from skroute.early_exit import PortableEnsemble, QWYCEnsemble, export_ensemble
from skroute.early_exit._portable import load_exported
from tests.forests.test_fast_forest import CATBOOST, CLASSIFIERS

KINDS = ("lightgbm", "xgboost", "hist", "forest", "gradient")
MODELS = {kind: CLASSIFIERS[kind](12, 0) for kind in KINDS} | {
    "catboost": CATBOOST["classifier"](12, {}),
    "moved": FixedThresholdClassifier(CLASSIFIERS["forest"](12, 0), threshold=0.3),
}


def rows(n_classes, n=900):
    return make_classification(
        n,
        6,
        n_informative=5,
        n_redundant=0,
        n_classes=n_classes,
        class_sep=2.0,
        random_state=0,
    )


@settings(max_examples=14, deadline=None)
@example(kind="forest", n_classes=2, text=False, shares=False, missing=False)
@example(kind="forest", n_classes=3, text=True, shares=True, missing=True)
@given(
    kind=st.sampled_from(sorted(MODELS)),
    n_classes=st.integers(2, 3),
    text=st.booleans(),
    shares=st.booleans(),
    missing=st.booleans(),
)
def test_answers_are_those_of_the_estimator(
    kind, n_classes, text, shares, missing, tmp_path_factory
):
    n_classes = 2 if kind == "moved" else n_classes
    X, y = rows(n_classes)
    X = X.astype(np.float32)
    if missing and kind not in ("gradient", "moved"):
        X[::7, 2] = np.nan
    labels = np.array(["a", "bb", "c"])[y] if text and kind != "xgboost" else y
    model = clone(MODELS[kind]).fit(X[:500], labels[:500])
    alpha = dict.fromkeys(np.unique(labels), 0.1) if shares else 0.05
    stopping = "votes" if kind == "forest" else "thresholds"
    quick = QWYCEnsemble(
        FrozenEstimator(model), alpha=alpha, stopping=stopping, random_state=0
    )
    quick.optimize(X[500:])
    path = tmp_path_factory.mktemp("portable") / "quick.npz"
    export_ensemble(quick, path)
    portable = PortableEnsemble.load(path)
    np.testing.assert_array_equal(portable.classes_, quick.classes_)
    whole = quick.predict_routed(X)
    assert kind != "forest" or whole.cost.mean() < 11
    for some in (X, X[:1], X[:30].astype(np.float64)):
        found, expected = portable.predict_routed(some), quick.predict_routed(some)
        np.testing.assert_array_equal(found.y_pred, expected.y_pred)
        np.testing.assert_array_equal(found.route, expected.route)
        np.testing.assert_array_equal(expected.route, whole.route[: len(some)])
        np.testing.assert_array_equal(found.cost, expected.cost)
        np.testing.assert_array_equal(portable.predict(some), expected.y_pred)
        np.testing.assert_allclose(
            portable.predict_proba(some), quick.predict_proba(some), rtol=1e-12
        )
    stored = load_exported(path)["alpha"]
    np.testing.assert_array_equal(stored, [0.1] * n_classes if shares else 0.05)


@pytest.mark.slow
def test_reading_takes_no_library_and_no_pickle(tmp_path):
    X, y = rows(2)
    quick = QWYCEnsemble(MODELS["lightgbm"], alpha=0.05, random_state=0).fit(X, y)
    export_ensemble(quick, tmp_path / "quick.npz")
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", quick.predict(X))
    script = """
        import sys, numpy as np
        sys.modules["lightgbm"] = None
        from skroute.early_exit import PortableEnsemble
        portable = PortableEnsemble.load(sys.argv[1] + "/quick.npz")
        X, y = (np.load(f"{sys.argv[1]}/{name}.npy") for name in "Xy")
        assert (portable.predict(X) == y).all()
    """
    script = textwrap.dedent(script)
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], check=True, timeout=300
    )


def test_what_is_refused(tmp_path):
    X, y = rows(2)
    quick = QWYCEnsemble(MODELS["gradient"], alpha=0.05, random_state=0).fit(X, y)
    export_ensemble(quick, tmp_path / "quick.npz")
    exported = load_exported(tmp_path / "quick.npz")
    portable = PortableEnsemble(exported)
    with pytest.raises(TypeError, match="X is sparse"):
        portable.predict(sp.csr_array(X))
    with pytest.raises(ValueError, match="6 features|on 6"):
        portable.predict(X[:, :5])
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        portable.predict(X)
    for entry, value in (("finite", "never"), ("shift", np.nan)):
        with pytest.raises(ValueError, match=f"The entry {entry!r} of an exported"):
            PortableEnsemble(exported | {entry: value})
    exported["link"] = None
    with pytest.raises(AttributeError, match="no known link"):
        PortableEnsemble(exported).predict_proba(X[1:])
