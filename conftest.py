"""What is collected, and in which order.

What imports torch, or shows it in an example, is not collected where torch is not installed.
"""

from importlib.util import find_spec

_NEEDS_TORCH = [
    "doc/user_guide/multi_exit.rst",
    "skroute/members/_exit_run.py",
    "skroute/members/_multi_exit.py",
    "skroute/members/_torch_exits.py",
]
collect_ignore = _NEEDS_TORCH if find_spec("torch") is None else []


def pytest_collection_modifyitems(items):
    """Pages first: a long test that starts last leaves the other worker idle."""
    items.sort(key=lambda item: item.path.suffix != ".rst")
