"""The package as a whole: what importing it costs, which room may import which, docstrings."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import skroute

ROOT = Path(skroute.__file__).parent
DECISIONS = {"routing", "gating", "early_exit", "feature_sets"}
MECHANISMS = {"assignment", "quality", "metrics", "datasets", "members"}


def run_python(script):
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=300
    )
    return done.stdout


def public_packages():
    for module in pkgutil.walk_packages(skroute.__path__, "skroute."):
        if not any(part.startswith("_") or part == "utils" for part in module.name.split(".")):
            yield module.name


@pytest.mark.parametrize("module", ["skroute", *public_packages()])
def test_import_loads_nothing_heavy(module):
    heavy = ("numba", "lightgbm", "highspy", "torch", "skorch", "matplotlib", "cvxpy")
    script = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"
    assert run_python(script).strip() == "[]"


def test_import_executes_little_beside_scikit_learn():
    """The bar of twice `import sklearn.ensemble` is met when skroute adds few modules to it.

    Counted, since a timed test fails on a busy machine; benchmarks/bench_import.py times it.
    """
    script = (
        "import sys, sklearn.ensemble; before = len(sys.modules); import skroute; "
        "print(before, len(sys.modules))"
    )
    before, after = map(int, run_python(script).split())
    assert after - before < 0.1 * before


def imported_rooms(path):
    """Rooms of skroute that a file imports anywhere, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "skroute" and len(parts) > 1:
                yield parts[1]


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    room = path.relative_to(ROOT).parts[0]
    imported = set(imported_rooms(path)) - {room}
    if room in DECISIONS:
        assert not imported & DECISIONS, "a decision room imports another"
    elif room in MECHANISMS:
        assert not imported & DECISIONS, "a mechanism room imports a decision room"
    elif room == "base.py":
        assert imported <= {"utils"}, "the base imports a room"
    elif room == "utils":
        assert not imported, "the helpers import a room"


def public_objects():
    for module in public_packages():
        package = importlib.import_module(module)
        for name in getattr(package, "__all__", []):
            yield f"{module}.{name}", getattr(package, name)


OBJECTS = dict(public_objects())


def documented_defaults(doc):
    """Pairs (name, text) of the Parameters section that state a default."""
    from numpydoc.docscrape import NumpyDocString

    for parameter in NumpyDocString(doc)["Parameters"]:
        if "default=" in parameter.type:
            text = parameter.type.split("default=", 1)[1]
            for name in parameter.name.split(","):
                yield name.strip(), text.strip().strip("`")


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_documented_defaults_are_the_defaults(name):
    pytest.importorskip("numpydoc")
    item = OBJECTS[name]
    assert callable(item), f"{name} is neither a class nor a function"
    doc = inspect.getdoc(item)
    assert doc, f"{name} has no docstring"
    callable_ = item.__init__ if inspect.isclass(item) else item
    signature = inspect.signature(callable_).parameters
    stated = dict(documented_defaults(doc))
    for parameter, text in stated.items():
        if parameter.lstrip("*") not in signature:
            continue
        default = signature[parameter].default
        stated_value = np.inf if text == "numpy.inf" else ast.literal_eval(text)
        message = f"{name}: {parameter} documents {text}, the default is {default!r}"
        assert stated_value == default and type(stated_value) is type(default), message
    # And every parameter of the signature is documented.
    from numpydoc.docscrape import NumpyDocString

    named = {
        part.strip().lstrip("*")
        for parameter in NumpyDocString(doc)["Parameters"]
        for part in parameter.name.split(",")
    }
    expected = {p for p in signature if p not in ("self", "args", "kwargs")}
    if not (inspect.isclass(item) and issubclass(item, tuple)):
        assert expected <= named, f"{name} does not document {sorted(expected - named)}"


def test_every_module_with_names_has_an_example():
    """Public functions and estimators show themselves; doctests run them."""
    missing = [
        name
        for name, item in OBJECTS.items()
        if not (inspect.isclass(item) and issubclass(item, (tuple, Exception)))
        and name.split(".")[1] != "base"
        and ">>> " not in (inspect.getdoc(item) or "")
    ]
    assert not missing


def test_rooms_load_on_first_use():
    script = (
        "import sys, skroute; assert 'skroute.routing' not in sys.modules; "
        "skroute.routing.BudgetRouter; print(sorted(dir(skroute))[:2])"
    )
    assert run_python(script).strip() == "['__version__', 'assignment']"
    with pytest.raises(AttributeError, match="no attribute 'rooting'"):
        importlib.import_module("skroute").__getattr__("rooting")
