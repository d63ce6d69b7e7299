"""Promises about any decision estimator: certified operating points, and monitors."""

from skroute.certified._certificate import Certificate, CertificateDisplay
from skroute.certified._monitor import PromiseMonitor
from skroute.certified._router import CertifiedRouter

__all__ = ["Certificate", "CertificateDisplay", "CertifiedRouter", "PromiseMonitor"]
