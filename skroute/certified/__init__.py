"""Promises about any decision estimator: certified operating points."""

from skroute.certified._certificate import Certificate, OperatingPoints
from skroute.certified._display import CertificateDisplay
from skroute.certified._router import CertifiedRouter

__all__ = ["Certificate", "CertificateDisplay", "CertifiedRouter", "OperatingPoints"]
