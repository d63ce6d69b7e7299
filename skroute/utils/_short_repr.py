"""What a value looks like in an error text, cut where it is long."""

import reprlib

_REPR = reprlib.Repr()
_REPR.maxother = _REPR.maxstring = 200


def short_repr(value):
    """Like ``repr``, of bounded length."""
    return _REPR.repr(value)
