"""`random_state` of every estimator: an int, a RandomState or None, as in scikit-learn."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.base import clone

from skroute.base import CostAwareMixin
from skroute.quality import FrameEncoder
from skroute.routing import DummyRouterClassifier, DummyRouterRegressor
from skroute.testing._data import make_rows, make_target
from tests.estimators import ESTIMATORS
from tests.test_package import OBJECTS

DRAWING = [
    estimator for estimator in ESTIMATORS if "random_state" in estimator.get_params()
]
X, Y, X_NEW, _ = make_rows()
TEXTS = [
    f"the {number} of {number % 7} rows and {number % 5} words" for number in range(120)
]


def fitted_numbers(estimator):
    """Fit a copy, and return what it makes of new rows as a list of arrays."""
    estimator = clone(estimator)
    if isinstance(estimator, FrameEncoder):
        return [estimator.fit_transform(TEXTS)]
    if isinstance(estimator, CostAwareMixin):
        if isinstance(estimator, DummyRouterClassifier | DummyRouterRegressor):
            # Another strategy draws nothing.
            estimator.set_params(strategy="random")
        return list(estimator.fit(X, make_target(estimator, Y)).predict_routed(X_NEW))
    qualities = np.column_stack([X[:, 0] > 0, X[:, 1]]).astype(float)
    return [estimator.fit(X, qualities).predict(X_NEW)]


def assert_equal_fits(estimator, make_random_state):
    """Check that two fits are equal, each with a new `random_state` of its own."""
    fits = []
    for _ in range(2):
        estimator = clone(estimator).set_params(random_state=make_random_state())
        fits.append(fitted_numbers(estimator))
    for first, second in zip(*fits, strict=True):
        assert_array_equal(first, second)


@pytest.mark.parametrize(
    "estimator", DRAWING, ids=lambda estimator: type(estimator).__name__
)
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_equal_random_states_give_equal_fits(estimator, seed):
    assert_equal_fits(estimator, lambda: seed)
    assert_equal_fits(estimator, lambda: np.int64(seed))
    assert_equal_fits(estimator, lambda: np.random.RandomState(seed))


@pytest.mark.parametrize(
    "estimator", DRAWING, ids=lambda estimator: type(estimator).__name__
)
def test_none_draws_from_the_global_generator(estimator):
    def seed_global_generator():
        """Seed the generator, and return None as `random_state`."""
        np.random.seed(5)  # noqa: NPY002, it is what None draws from.

    assert_equal_fits(estimator, seed_global_generator)


@pytest.mark.parametrize(
    "random_state", [-1, 2**32, 0.5, "zero", np.random.default_rng(0)]
)
@pytest.mark.parametrize(
    "estimator", DRAWING, ids=lambda estimator: type(estimator).__name__
)
def test_other_random_states_are_refused(estimator, random_state):
    with pytest.raises(ValueError, match="The 'random_state' parameter"):
        fitted_numbers(clone(estimator).set_params(random_state=random_state))


def test_random_states_are_documented_alike():
    for name, item in OBJECTS.items():
        if not inspect.isclass(item) or issubclass(item, Exception):
            continue
        if "random_state" not in inspect.signature(item).parameters:
            continue
        text = inspect.getdoc(item)
        start = text.index("random_state : int, RandomState instance or None, default=")
        described = " ".join(text[start:].split("\n\n")[0].split())
        assert "Determines" in described, name
        assert "Pass an int for the same" in described, name
