"""What is collected: no module without an example, and nothing of torch where it is absent."""

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
    """Importing a module to find no doctest in it takes seconds where it declares kernels."""
    if collection_path.suffix == ".py" and collection_path.is_relative_to(_PACKAGE):
        return ">>>" not in collection_path.read_text(encoding="utf-8") or None
