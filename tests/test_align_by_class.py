"""Columns of probabilities are put together by the classes of the model."""

import numpy as np
import pytest

from skroute.utils._named import align_by_class

SCORES = np.array([[0.2, 0.8], [0.6, 0.4]], dtype=np.float32)


@pytest.mark.parametrize("classes", [np.array(["a", "b", "c"]), np.array([1, 2, 5])])
def test_columns_follow_their_labels(classes):
    aligned = align_by_class(SCORES, classes[[2, 0]], classes)
    np.testing.assert_array_equal(aligned[:, [2, 0]], SCORES)
    np.testing.assert_array_equal(aligned[:, 1], 0.0)
    assert aligned.dtype == SCORES.dtype


def test_columns_in_order_are_not_copied():
    assert align_by_class(SCORES, [0, 1], np.array([0, 1])) is SCORES
