"""scikit-learn's checks on the models of `skroute.members`, and what holds for all of them.

A model answers from elsewhere and learns nothing, so that a check that presupposes learning
cannot pass. Each such check is run, named here with the reason, and must fail: none is left out.
"""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import estimator_html_repr, get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from skroute.members import CallableClassifier, RecordedClassifier
from tests.estimators import MODELS

_LEARNS = (
    "fit learns nothing: answers and classes are those of the parameters, not of y"
)
_IDS = "X holds ids of recorded rows, and any other X must be refused, not answered"
_FIRST = (
    "the ids are refused before the flaw that this check puts into X or y is reached"
)

EXPECTED = {
    CallableClassifier: {_LEARNS: "classifiers_classes classifiers_train"},
    RecordedClassifier: {
        _IDS: """
        array_api_input classifiers_classes classifiers_train fit_score_takes_y
        estimators_overwrite_params dont_overwrite_parameters estimators_fit_returns_self
        readonly_memmap_input n_features_in_after_fitting positive_only_tag_during_fit
        estimators_dtypes dtype_object pipeline_consistency estimator_sparse_tag
        estimators_pickle f_contiguous_array_estimator classifier_data_not_an_array
        classifiers_one_label methods_sample_order_invariance methods_subset_invariance
        fit2d_1feature dict_unchanged fit_idempotent fit_check_is_fitted n_features_in fit1d
        fit2d_predict1d
        """,
        _FIRST: """
        complex_data estimators_empty_data_messages estimators_nan_inf
        estimator_sparse_array estimator_sparse_matrix classifiers_regression_target
        supervised_y_2d fit2d_1sample requires_y_none
        """,
    },
}


def expected(model):
    """The checks that must fail, each with its reason."""
    reasons = EXPECTED[type(model)]
    return {
        f"check_{name}": why for why, names in reasons.items() for name in names.split()
    }


@parametrize_with_checks(MODELS, expected_failed_checks=expected)
def test_sklearn_checks(estimator, check):
    check(estimator)


X = np.arange(4)[:, None]
Y = np.array([0, 1, 1, 1])

each_model = pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)


@each_model
def test_answers_before_fit_and_the_same_after(model):
    model = clone(model)
    np.testing.assert_array_equal(model.classes_, [0, 1])
    before = model.predict(X)
    assert model.fit(X, Y) is model
    np.testing.assert_array_equal(model.predict(X), before)
    assert not get_tags(model).requires_fit
    # The other rows of a batch have no effect.
    np.testing.assert_array_equal(model.predict(X[::-1]), before[::-1])
    np.testing.assert_array_equal(
        np.concatenate([model.predict(x[None]) for x in X]), before
    )


@each_model
def test_round_trips(model):
    expected, cloned = model.predict(X), clone(model)
    frozen = clone(FrozenEstimator(model.fit(X, Y)))
    for copy in (cloned, pickle.loads(pickle.dumps(model)), frozen):
        np.testing.assert_array_equal(copy.predict(X), expected)
    # A clone shares what it stands for.
    assert cloned is not model
    for name, value in model.get_params().items():
        assert cloned.get_params()[name] is value
    assert type(model).__name__ in repr(model)
    assert type(model).__name__ in estimator_html_repr(model)


@each_model
def test_y_that_cannot_be_labels_is_refused(model):
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clone(model).fit(X, Y[:2])
    with pytest.raises(ValueError, match="Unknown label type"):
        clone(model).fit(X, [0.5, 0.1, 0.2, 0.3])
    clone(model).fit(X)
