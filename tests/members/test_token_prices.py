"""Bills of token counts, by hand."""

import numpy as np
import pandas as pd
import pytest

from skroute.members import TokenPrices

PRICES = {"small": (0.15, 0.6), "large": (2.5, 10.0, 1.25)}


def test_bills_are_counts_times_prices():
    prices = TokenPrices(PRICES)
    rng = np.random.default_rng(0)
    n_input = rng.integers(100, 1000, 20)
    n_output = rng.integers(1, 500, (20, 2))
    n_cached = rng.integers(0, 100, 20)
    bills = prices.costs(n_input, n_output, n_cached)
    for row in range(20):
        fresh = n_input[row] - n_cached[row]
        small = 0.15 * n_input[row] + 0.6 * n_output[row, 0]
        large = 2.5 * fresh + 1.25 * n_cached[row] + 10 * n_output[row, 1]
        np.testing.assert_allclose(bills[row], [small / 1e6, large / 1e6])


def test_a_frame_of_prices_and_frames_of_counts_are_read_by_name():
    table = pd.DataFrame(
        {"output": [10.0, 0.6], "input": [2.5, 0.15]}, index=["large", "small"]
    )
    prices = TokenPrices(table)
    assert prices.names == ["large", "small"]
    outputs = pd.DataFrame({"small": [100, 200], "large": [10, 20]}, index=[7, 8])
    bills = prices.costs([1000, 1000], outputs)
    assert list(bills.columns) == ["large", "small"]
    assert list(bills.index) == [7, 8]
    expected = (0.15 * 1000 + 0.6 * 200) / 1e6
    assert bills.loc[8, "small"] == pytest.approx(expected)


def test_cached_tokens_cost_as_much_as_others_without_a_price_of_their_own():
    prices = TokenPrices({"only": {"input": 2, "output": 4}})
    np.testing.assert_array_equal(
        prices.costs([100], [50], [100]), prices.costs([100], [50])
    )


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ({}, "at least one model"),
        ({"a": 3}, "must be \\(input, output\\)"),
        ({"a": (1, 2, 3, 4)}, "must be \\(input, output\\)"),
        ({"a": {"input": 1}}, "must have input and output"),
        ({"a": {"input": 1, "output": 2, "image": 3}}, "may have cached_input"),
        ({"a": (1, -2)}, "output must be a finite number"),
        ({"a": (np.nan, 2)}, "input must be a finite number"),
        ([1, 2], "must be a mapping"),
    ],
)
def test_wrong_prices_are_refused(prices, message):
    with pytest.raises(ValueError, match=message):
        TokenPrices(prices)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (([1, 2], [1, 2, 3]), "one entry for each row"),
        (([1, 2], [[1, 2, 3], [1, 2, 3]]), "one column for each"),
        (([1, -2], [1, 2]), "input"),
        (([1, 2], [1, np.nan]), "output"),
        (([1, 2], [1, 2], [2, 0]), "cached_input must be at most input"),
        ((pd.DataFrame({"x": [1]}), [1]), "must have the columns"),
    ],
)
def test_wrong_counts_are_refused(counts, message):
    with pytest.raises(ValueError, match=message):
        TokenPrices(PRICES).costs(*counts)


def test_the_text_has_prices_and_their_unit():
    text = repr(TokenPrices(PRICES))
    assert "large: 2.5 input, 10 output, 1.25 cached input" in text
    assert "per million tokens" in text


def test_a_model_with_two_prices_is_refused():
    listed = pd.DataFrame({"input": [1.0, 2.0], "output": [4.0, 5.0]}, index=["a", "a"])
    with pytest.raises(ValueError, match="one entry for 'a', got two"):
        TokenPrices(listed)
    with pytest.raises(ValueError, match="one entry for '1', got two"):
        TokenPrices({1: (1, 2), "1": (3, 4)})


def test_counts_of_other_requests_are_refused():
    prices = TokenPrices({"small": (1e6, 2e6)})
    n_input = pd.Series([10, 1000], index=["first", "second"])
    n_output = pd.DataFrame({"small": [2000, 20]}, index=["second", "first"])
    with pytest.raises(ValueError, match="same index, in another order"):
        prices.costs(n_input, n_output)
    bills = prices.costs(n_input, n_output.loc[n_input.index])
    assert bills["small"].tolist() == [50, 5000]
