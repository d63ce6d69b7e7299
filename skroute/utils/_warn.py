"""Warnings at the line of the user's code that led to them."""

import sys
import warnings

_INNER = ("skroute", "sklearn", "joblib")


def warn(message, category=UserWarning):
    """Warn about the first line outside of skroute, scikit-learn and joblib."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] in _INNER:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
