"""Models that are not estimators: logs of answers, and services behind a function."""

from skroute.members._callable import CallableClassifier
from skroute.members._recorded import RecordedClassifier

__all__ = ["CallableClassifier", "RecordedClassifier"]
