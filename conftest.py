"""Collection of doctests: modules with an example, and torch's only with torch."""

from importlib.util import find_spec
from pathlib import Path

_NEEDS_TORCH = [
    "doc/user_guide/neural_nets.rst",
    "skroute/members/_multi_exit.py",
    "skroute/members/_torch_exits.py",
]
collect_ignore = _NEEDS_TORCH if find_spec("torch") is None else []
_PACKAGE = Path(__file__).parent / "skroute"


def pytest_ignore_collect(collection_path):
    """Return True for a module of skroute without a doctest, else None.

    The import of a module with kernels takes seconds.
    """
    if collection_path.suffix == ".py" and collection_path.is_relative_to(_PACKAGE):
        return ">>>" not in collection_path.read_text(encoding="utf-8") or None
