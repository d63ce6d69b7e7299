"""Models for logs of answers, functions that call a service, and nets with exits."""

from skroute.members._callable import CallableClassifier
from skroute.members._exit_net import ExitNet
from skroute.members._multi_exit import MultiExitClassifier
from skroute.members._recorded import RecordedClassifier
from skroute.members._token_prices import TokenPrices

__all__ = [
    "CallableClassifier",
    "ExitNet",
    "MultiExitClassifier",
    "RecordedClassifier",
    "TokenPrices",
]
