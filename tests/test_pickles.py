"""Pickles carry the version that wrote them."""

import pickle

import numpy as np
import pytest

import skroute
from tests.decision_checks import rows, target
from tests.estimators import ESTIMATORS

DECISION_ESTIMATORS = [one for one in ESTIMATORS if hasattr(one, "predict_routed")]


def name_of(estimator):
    return type(estimator).__name__


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name_of)
def test_a_pickle_of_this_version_loads_in_silence(estimator, recwarn):
    loaded = pickle.loads(pickle.dumps(estimator))
    assert repr(loaded) == repr(estimator)
    assert not recwarn.list


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name_of)
def test_a_pickle_of_another_version_warns_with_both(estimator, monkeypatch):
    monkeypatch.setattr(skroute, "__version__", "9.8.7")
    written = pickle.dumps(estimator)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match=rf"skroute 9\.8\.7.*{skroute.__version__}"):
        pickle.loads(written)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name_of)
def test_a_pickle_without_a_version_raises(estimator):
    state = dict(vars(estimator))
    with pytest.raises(ValueError, match="Fit the estimator again"):
        type(estimator).__new__(type(estimator)).__setstate__(state)


def test_a_fitted_estimator_decides_the_same_after_a_pickle():
    X, y, X_new, _ = rows()
    estimator = DECISION_ESTIMATORS[0].fit(X, target(DECISION_ESTIMATORS[0], y))
    loaded = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(loaded.route(X_new), estimator.route(X_new))
