"""The complementarity matrix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from skroute.metrics import complementarity_matrix

shapes = st.tuples(st.integers(1, 6), st.integers(1, 4))


@settings(max_examples=60, deadline=None)
@given(shapes.flatmap(lambda shape: arrays(bool, shape)))
def test_counts_rows(right):
    expected = [
        [(right[:, i] & ~right[:, j]).mean() for j in range(right.shape[1])]
        for i in range(right.shape[1])
    ]
    assert_allclose(complementarity_matrix(right), expected)


def test_pairs_are_compared_where_both_are_known():
    rng = np.random.default_rng(0)
    Q = rng.random((50, 4))
    Q[rng.random(Q.shape) < 0.4] = np.nan
    Q[25:, 2] = Q[:25, 3] = np.nan
    M = complementarity_matrix(Q)
    for i, j in np.ndindex(4, 4):
        both = Q[~np.isnan(Q[:, [i, j]]).any(axis=1)]
        if {i, j} == {2, 3}:
            assert not len(both) and np.isnan(M[i, j])
        else:
            assert M[i, j] == pytest.approx(np.maximum(both[:, i] - both[:, j], 0).mean())
