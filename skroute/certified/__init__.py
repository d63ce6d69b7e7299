"""Promises about any decision estimator: certified operating points, and monitors."""

from skroute.certified._batch import CertifiedBatch
from skroute.certified._certificate import Certificate, OperatingPoints
from skroute.certified._display import CertificateDisplay
from skroute.certified._monitor import Alarm, ChoicePromise, PromiseMonitor
from skroute.certified._router import CertifiedRouter

__all__ = [
    "Alarm",
    "Certificate",
    "CertificateDisplay",
    "CertifiedBatch",
    "CertifiedRouter",
    "ChoicePromise",
    "OperatingPoints",
    "PromiseMonitor",
]
