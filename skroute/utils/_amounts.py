"""Amounts of money, time or whatever a cost is counted in."""

import sys
from numbers import Real

import numpy as np


def is_amount(value):
    """Whether a value is a finite number that is at least 0."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        return False
    # Compared, not np.isfinite: of a whole number beyond all floats numpy knows nothing. In
    # double precision: to numpy the largest float is an overflow beside a smaller type.
    number = float(value) if isinstance(value, np.floating) else value
    return bool(0 <= number <= sys.float_info.max)
