"""What parameters hold that can be changed in place, so that such a change is noticed."""

import copy
from collections.abc import Mapping
from numbers import Real

import numpy as np

# Larger containers are neither prices nor cost matrices: what they held is not kept.
_LARGEST = 10_000


def contents_of(value):
    """A copy of a mapping, a list, an array, a series or a frame of numbers or names.

    Parameters
    ----------
    value : object
        A parameter.

    Returns
    -------
    object or None
        None of anything else, and of what is too large for prices.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.utils._contents import contents_of, holds_still
    >>> table = np.array([[0.0, 5.0], [1.0, 0.0]])
    >>> before = contents_of(table)
    >>> table[0, 1] = 50.0
    >>> holds_still(table, before), contents_of("accuracy") is None
    (False, True)
    """
    if isinstance(value, (Mapping, list, tuple)):
        if isinstance(value, (tuple, str)) and not any(isinstance(x, list) for x in value):
            return None
        return copy.deepcopy(value) if _is_plain(value) else None
    if isinstance(value, np.ndarray):
        return value.copy() if value.dtype.kind != "O" and value.size <= _LARGEST else None
    if hasattr(value, "to_numpy") and hasattr(value, "equals"):
        small = np.prod(value.shape) <= _LARGEST
        return copy.deepcopy(value) if small else None
    return None


def holds_still(value, before):
    """Whether a parameter holds what it held when `contents_of` copied it."""
    if isinstance(before, np.ndarray):
        if not isinstance(value, np.ndarray) or value.shape != before.shape:
            return False
        return value.tobytes() == before.tobytes()
    if hasattr(before, "equals"):
        return hasattr(value, "equals") and bool(value.equals(before))
    # Numbers that are not equal to themselves are the same ones in the copy.
    return _is_plain(value) and value == before


def _is_plain(value):
    """Numbers and names, in lists of lists or in a mapping."""
    if isinstance(value, Mapping):
        value = list(value.values())
    elif not isinstance(value, (list, tuple)):
        return isinstance(value, (str, Real))
    return len(value) <= _LARGEST and all(map(_is_plain, value))
