"""What is collected, and in which order.

What imports torch, or shows it in an example, is not collected where torch is not installed.
"""

import gc
from importlib.util import find_spec
from pathlib import Path

_NEEDS_TORCH = [
    "doc/user_guide/multi_exit.rst",
    "skroute/members/_exit_run.py",
    "skroute/members/_multi_exit.py",
    "skroute/members/_torch_exits.py",
]
collect_ignore = _NEEDS_TORCH if find_spec("torch") is None else []
_PACKAGE = Path(__file__).parent / "skroute"


def pytest_ignore_collect(collection_path):
    """Modules without an example are not imported to look for one: some compile kernels then."""
    if collection_path.suffix == ".py" and collection_path.is_relative_to(_PACKAGE):
        return ">>>" not in collection_path.read_text(encoding="utf-8") or None


def pytest_collection_modifyitems(items):
    """Pages first: a long test that starts last leaves the other worker idle."""
    items.sort(key=lambda item: item.path.suffix != ".rst")


def pytest_collection():
    """What is loaded stays: garbage is not looked for among it, neither now nor by the tests."""
    gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_unconfigure():
    gc.unfreeze()
