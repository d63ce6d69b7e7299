"""Keys of rows and the draws by them: both are fixed, since decisions depend on them."""

import numpy as np
import pytest
from scipy import sparse

from skroute.utils._row_hash import (
    even_draws,
    feature_keys,
    row_keys,
    row_uniforms,
    tie_draws,
)

ROWS = np.array([[0.0, 1.5], [np.nan, -2.0], [0.0, 1.5]])


def test_keys_are_those_of_all_versions():
    keys = [0xB90DF6DEFD760798, 0xC33166D20D603384, 0xB90DF6DEFD760798]
    assert row_keys(ROWS).tolist() == keys
    keys = [0x358FF1C81F8164B2, 0x25CE068066C6987A, 0xFBC9FFAD650F2936]
    assert row_keys(np.array([["a"], ["1"], [None]], dtype=object)).tolist() == keys
    keys = [0xFE16F917AE407E98, 0x6DDEA17B10CFD6F3, 0xFE16F917AE407E98]
    assert feature_keys(ROWS).tolist() == keys


def test_draws_are_those_of_all_versions():
    expected = [
        [0.652797043593478, 0.24193640408214367],
        [0.04348516848761719, 0.8616724174141597],
        [0.6724609315598113, 0.6404159345762096],
    ]
    assert row_uniforms(ROWS, 2, random_state=1).tolist() == expected
    expected = [0.2017256291025913, 0.39235152191461653, 0.8197596178524862]
    assert tie_draws(ROWS)(np.arange(3)).tolist() == expected
    expected = [0.99253804042951, 0.4291783261731432, 0.610572029179405]
    assert even_draws(feature_keys(ROWS)).tolist() == expected


@pytest.mark.parametrize("keys_of", [row_keys, feature_keys])
def test_zeros_and_missing_values_are_alike(keys_of):
    negative_nan = np.copysign(np.nan, -1.0)
    same = keys_of(np.array([[0.0, np.nan], [-0.0, negative_nan]]))
    assert same[0] == same[1]
    others = keys_of(np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 0.0], [0.0, 1.0]]))
    assert len(set(others.tolist())) == 4


def test_a_container_does_not_change_the_key():
    values = np.array([[0.0, 2.0], [0.0, 0.0], [3.0, 0.0]])
    expected = row_keys(values)
    for container in (sparse.csr_array(values), values.astype(object), values.tolist()):
        np.testing.assert_array_equal(row_keys(container), expected)


def test_draws_of_equal_rows_are_spread_evenly():
    rows = np.ones((1000, 2))
    for draws in (tie_draws(rows)(np.arange(1000)), even_draws(feature_keys(rows))):
        assert np.histogram(draws, bins=10, range=(0, 1))[0].tolist() == pytest.approx(
            [100] * 10, abs=2
        )


def test_ids_are_hashed_in_place_of_rows():
    ids = np.array([2**60, 2**60 + 1])
    draws = row_uniforms(np.ones((2, 1)), 1, request_id=ids)
    np.testing.assert_array_equal(draws, row_uniforms(ROWS[:2], 1, request_id=ids))
    assert draws[0] != draws[1]
    with pytest.raises(ValueError, match="one entry for each of 2 rows"):
        row_uniforms(ROWS[:2], 1, request_id=[1, 2, 3])
