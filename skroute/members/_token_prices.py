"""Prices per token of language models, and the bills that token counts come to."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from skroute.utils._frames import column_keys
from skroute.utils._named import check_rows_match, in_order
from skroute.utils._validation import check_numbers, is_amount

# Kinds of tokens that have a price, in the order of a user's tuple of prices.
_KINDS = ("input", "output", "cached_input")
# Providers list prices per million tokens.
_TOKENS_PER_PRICE = 1_000_000


class TokenPrices:
    """Price list per million tokens, which turns token counts into bills.

    Keep the token counts of a log, not only its bills: when prices change, the counts
    and the new list give the bills that the same requests would have had.

    Parameters
    ----------
    prices : mapping or dataframe
        For each model its prices per million tokens: a pair ``(input, output)``, a
        triple ``(input, output, cached_input)``, or a mapping with these keys. A frame
        has these columns, and one row for each model, whose label is the name of the
        model. Without ``cached_input``, cached tokens cost as much as other input.

    Attributes
    ----------
    names : list of str
        The models, in the order of the columns of :meth:`costs`.

    input, output, cached_input : ndarray of shape (n_models,), dtype=float64
        Prices per million tokens.

    Raises
    ------
    ValueError
        If a price is missing, unknown, negative or not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.members import TokenPrices
    >>> prices = TokenPrices({"small": (0.15, 0.6), "large": (2.5, 10.0, 1.25)})
    >>> prices.names
    ['small', 'large']
    >>> bills = prices.costs(input=[1000, 2000], output=[[100, 300], [50, 80]])
    >>> bills.round(6)
    array([[0.00021, 0.0055 ],
           [0.00033, 0.0058 ]])
    """

    def __init__(self, prices: Any) -> None:
        by_name = _prices_by_name(prices)
        if not by_name:
            raise ValueError("prices must have at least one model, got none.")
        self.names = list(by_name)
        # (n_models, 3), with the columns in the order of `_KINDS`
        table = np.array([_check_prices(name, by_name[name]) for name in by_name])
        self.input = table[:, 0]
        self.output = table[:, 1]
        self.cached_input = table[:, 2]

    def __repr__(self) -> str:
        entries = []
        for name, input_price, output_price, cached_price in zip(
            self.names, self.input, self.output, self.cached_input
        ):
            entries.append(
                f"{name}: {input_price:g} input, {output_price:g} output, "
                f"{cached_price:g} cached input"
            )
        return f"TokenPrices({'; '.join(entries)}; per million tokens)"

    def costs(self, input: Any, output: Any, cached_input: Any = 0) -> Any:
        """Return the bill of each model on each row.

        With counted output tokens they are bills, the argument `costs` of a router's
        `fit`. With expected output tokens they are quotes, its argument `quoted_costs`.

        Parameters
        ----------
        input : array-like of shape (n_rows,) or (n_rows, n_models)
            Number of input tokens, cached ones included. One number for each row serves
            all models. The columns of a frame are read by name.

        output : array-like of shape (n_rows,) or (n_rows, n_models)
            Number of output tokens.

        cached_input : float or array-like of one of these shapes, default=0
            Number of input tokens that come from the provider's cache.

        Returns
        -------
        ndarray or dataframe of shape (n_rows, n_models), dtype=float64
            In the unit of the prices. A frame, with the names of the models, if one of
            the arguments is a pandas frame.

        Raises
        ------
        ValueError
            If a count is missing or negative, shapes do not match, rows of series or
            frames are in different orders, or a row has more cached tokens than input
            tokens.
        """
        arguments = {"input": input, "output": output, "cached_input": cached_input}
        check_rows_match(**arguments)
        # Counts by name of the argument. Each has shape (n_rows, n_models), but may
        # have a single row or a single column, which serves all.
        counts = {name: self._counts(name, arguments[name]) for name in arguments}
        # Numbers of rows of the arguments. A single row serves all rows.
        lengths = {len(count) for count in counts.values() if len(count) > 1}
        if len(lengths) > 1:
            raise ValueError(
                f"input, output and cached_input must have one entry for each row, got "
                f"{sorted(lengths)} rows."
            )
        uncached_input = counts["input"] - counts["cached_input"]
        if (uncached_input < 0).any():
            raise ValueError(
                "cached_input must be at most input, which has the cached tokens, too: "
                f"a row has {-uncached_input.min():g} more."
            )
        costs = (
            uncached_input * self.input
            + counts["cached_input"] * self.cached_input
            + counts["output"] * self.output
        ) / _TOKENS_PER_PRICE
        # The first frame among the arguments gives the labels of the rows.
        for table in arguments.values():
            is_pandas_frame = hasattr(table, "iloc") and table.ndim == 2
            if is_pandas_frame:
                import pandas as pd

                return pd.DataFrame(costs, columns=self.names, index=table.index)
        return costs

    def _counts(self, name, counts):
        """Return token counts as an array of shape (n_rows, n_models) or (n_rows, 1).

        `name` is the argument that error messages name. A single number has one row.
        """
        if column_keys(counts) is not None:
            counts = in_order(counts, self.names, name)
        counts = check_numbers(counts, name, low=0.0)
        if counts.ndim < 2:
            return counts.reshape(-1, 1)
        if counts.ndim > 2 or counts.shape[1] != len(self.names):
            raise ValueError(
                f"{name} must have one column for each of {self.names!r}, or one count "
                f"for each row, got shape {counts.shape}."
            )
        return counts


def _prices_by_name(prices):
    """Return the prices of each model by its name, as the user gave them.

    A ValueError is raised if a model has two entries.
    """
    if column_keys(prices) is not None:
        # The prices are a frame. Only pandas has labels of rows.
        if not hasattr(prices, "iloc"):
            raise ValueError(
                "prices must be a mapping or a pandas frame whose labels are the names "
                f"of the models, got {type(prices).__name__}."
            )
        entries = [(name, dict(row)) for name, row in prices.iterrows()]
    elif isinstance(prices, Mapping):
        entries = list(prices.items())
    else:
        raise ValueError(
            "prices must be a mapping from the name of a model to its prices, or a "
            f"frame with one row for each model, got {prices!r}."
        )
    prices_of_model = {}
    for name, entry in entries:
        if str(name) in prices_of_model:
            raise ValueError(f"prices must have one entry for {str(name)!r}, got two.")
        prices_of_model[str(name)] = entry
    return prices_of_model


def _check_prices(name, entry):
    """Return the prices of one model as a list in the order of `_KINDS`.

    `entry` is what the user gave for the model `name`. Invalid prices are a ValueError.
    """
    if not isinstance(entry, Mapping):
        is_sequence = np.iterable(entry) and not isinstance(entry, str)
        if not is_sequence or len(entry) not in (2, 3):
            raise ValueError(
                f"prices of {name!r} must be (input, output), (input, output, "
                f"cached_input) or a mapping with these keys, got {entry!r}."
            )
        entry = dict(zip(_KINDS, entry))
    unknown = [kind for kind in entry if kind not in _KINDS]
    missing = [kind for kind in ("input", "output") if kind not in entry]
    if unknown or missing:
        raise ValueError(
            f"prices of {name!r} must have input and output, and may have "
            f"cached_input, got {list(entry)!r}."
        )
    cached_price = entry.get("cached_input")
    if cached_price is None:
        # Cached tokens have no price of their own, and cost as much as other input.
        cached_price = entry["input"]
    prices = [entry["input"], entry["output"], cached_price]
    for kind, price in zip(_KINDS, prices):
        if not is_amount(price):
            raise ValueError(
                f"prices of {name!r}: {kind} must be a finite number that is not "
                f"negative, got {price!r}."
            )
    return prices
