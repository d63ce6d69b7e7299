"""Texts of users stay out of errors: a prompt is often more private than its answer."""

import re
from collections.abc import Mapping
from contextlib import contextmanager

import numpy as np

# What stands in for a text.
HIDDEN = "<text>"
# numpy and scikit-learn quote the value that they cannot read, whatever it was in.
_UNREADABLE = re.compile(r"(could not convert string to float: ).*", re.DOTALL)
# Shorter texts are hidden only where they are quoted: "a" stands in every message.
_ALONE = 8


def hide_texts(error, *data):
    """Take the texts of users out of the message of an error, and of those behind it.

    The error keeps its type, its traceback and its notes. Only an error pays for the search.

    Parameters
    ----------
    error : Exception
        Changed in place.

    *data : indexable
        What the call was given: arrays, frames, lists, rows as mappings.

    Examples
    --------
    >>> from skroute.utils._texts import hide_texts
    >>> error = ValueError("Found unknown categories ['my disease'] in column 0")
    >>> hide_texts(error, [["my disease", 3.0]])
    >>> error
    ValueError("Found unknown categories ['<text>'] in column 0")
    """
    texts = sorted({text for part in data for text in _texts_of(part)}, key=len, reverse=True)
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.args = tuple(_without(arg, texts) for arg in error.args)
        if notes := getattr(error, "__notes__", None):
            notes[:] = [_without(note, texts) for note in notes]
        error = error.__cause__ or error.__context__


@contextmanager
def hiding_texts(*data):
    """:func:`hide_texts` for what fails inside.

    Parameters
    ----------
    *data : indexable

    Examples
    --------
    >>> from skroute.utils._texts import hiding_texts
    >>> with hiding_texts(["my disease"]):
    ...     float("my disease")
    Traceback (most recent call last):
        ...
    ValueError: could not convert string to float: <text>
    """
    try:
        yield
    except Exception as error:
        hide_texts(error, *data)
        raise


@contextmanager
def refusing_text(explain):
    """Say what to do about text where numbers must be, in place of the library's quotation.

    Parameters
    ----------
    explain : callable
        Without arguments; the message.
    """
    try:
        yield
    except ValueError as error:
        if not _UNREADABLE.match(str(error)):
            raise
        raise ValueError(explain()) from None


def _without(message, texts):
    if isinstance(message, (list, tuple)):
        return type(message)(_without(part, texts) for part in message)
    if isinstance(message, dict):
        return {_without(k, texts): _without(v, texts) for k, v in message.items()}
    if isinstance(message, bytes):
        return _without(message.decode(errors="replace"), texts).encode()
    if isinstance(message, str):
        message = _UNREADABLE.sub(rf"\1{HIDDEN}", message)
        for text in texts:
            for quoted in {repr(text), f'"{text}"', f"'{text}'"}:
                message = message.replace(quoted, f"{quoted[0]}{HIDDEN}{quoted[0]}")
            # A text alone, and as it stands inside the quotation of a longer one.
            for plain in {text, repr(text)[1:-1]} if len(text) >= _ALONE else ():
                message = message.replace(plain, HIDDEN)
    return message


def _texts_of(data):
    """All texts in rows of any container; none of what cannot be looked into."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, bytes):
        yield data.decode(errors="replace")
    elif isinstance(data, Mapping):
        for value in data.values():
            yield from _texts_of(value)
    elif isinstance(data, (list, tuple)):
        for value in data:
            yield from _texts_of(value)
    elif hasattr(data, "to_pylist"):
        yield from _texts_of(data.to_pylist())
    elif hasattr(data, "columns"):
        for name in getattr(data, "column_names", data.columns):
            yield from _texts_of(_objects(data, name))
    elif hasattr(data, "dtype") and getattr(data.dtype, "kind", "O") in "OUST":
        yield from _texts_of(_objects(data))


def _objects(data, *column):
    """The values of an array, or of a column, as a list of no arrays."""
    try:
        found = np.asarray(data[column[0]] if column else data, dtype=object).ravel().tolist()
    except Exception:  # The error that is reported is another one.
        return []
    return [value for value in found if not hasattr(value, "dtype")]
