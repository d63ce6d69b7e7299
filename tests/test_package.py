"""The package as a whole: what importing it costs, which room may import which, its public names.

`python -m tests.test_package` writes the list of public names, `tests/public_api.txt`, anew.
"""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import types
from dataclasses import is_dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest

import skroute
from skroute.utils._compat import INHERITED
from skroute.utils._optional import import_optional

ROOT = Path(skroute.__file__).parent
FROZEN = Path(__file__).with_name("public_api.txt")
ROOMS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
HEAVY = (
    "numba",
    "lightgbm",
    "xgboost",
    "highspy",
    "torch",
    "skorch",
    "matplotlib",
    "cvxpy",
)


def public_modules():
    return ["skroute", *(f"skroute.{room}" for room in ROOMS if room != "utils")]


MODULES = [importlib.import_module(name) for name in public_modules()[1:]]
# Public classes and functions by dotted name.
OBJECTS = {
    f"{m.__name__}.{name}": getattr(m, name) for m in MODULES for name in m.__all__
}
# Without constants.
DOCUMENTED = [name for name, item in OBJECTS.items() if callable(item)]


def imported_modules(path):
    """Modules and names of skroute that a file imports, as dotted names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


# The rooms that each room imports, beside base and utils. Decision rooms never import one another.
MAY_IMPORT = {
    "assignment": set(),
    "certified": {"guarantees", "metrics"},
    "datasets": set(),
    "distributed": {"assignment"},
    "early_exit": {"forests", "guarantees", "members"},
    "feature_sets": {"metrics"},
    "features": set(),
    "forests": set(),
    "gating": {"assignment", "features", "forests", "metrics"},
    "guarantees": set(),
    "ledgers": set(),
    "members": set(),
    "metrics": {"assignment", "ledgers", "quality"},
    "quality": {"assignment", "forests"},
    "routing": {
        "assignment",
        "distributed",
        "forests",
        "ledgers",
        "metrics",
        "quality",
    },
    "testing": set(),
}


def may_import(room):
    """Rooms and modules that a room may import beside itself."""
    if room in ("base", "utils", "guarantees"):
        return {"utils"}
    return MAY_IMPORT[room] | {"base", "utils"} if room in MAY_IMPORT else set()


def test_imports_point_one_way():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).parts[0]
        names = [name.split(".") for name in imported_modules(path)]
        found = {
            name[1] for name in names if name[0] == "skroute" and len(name) > 1
        } - {room}
        wrong += [
            f"{room} imports {other} in {path.name}"
            for other in found - may_import(room)
        ]
    assert not wrong


def test_no_modules_import_one_another():
    """Rooms' `__init__` are left out: they gather their own modules."""
    files = [path for path in ROOT.rglob("*.py") if path.name != "__init__.py"]
    modules = {
        ".".join(["skroute", *path.relative_to(ROOT).with_suffix("").parts]): path
        for path in files
    }
    graph = {
        name: {
            other
            for found in imported_modules(path)
            for other in (found, found.rpartition(".")[0])
            if other in modules and other != name
        }
        for name, path in modules.items()
    }
    assert len(list(TopologicalSorter(graph).static_order())) == len(modules)


COMPAT = ROOT / "utils" / "_compat.py"
# Private names of Python: methods of named tuples, and the frame of the caller.
OF_PYTHON = {"_asdict", "_fields", "_getframe", "_make", "_replace"}
# Private names of LightGBM's estimators.
OF_LIGHTGBM = {"_classes"}
# Class attributes that Python and scikit-learn write into each subclass.
MADE_BY_BASES = {"_abc_impl", "_sklearn_auto_wrap_output_keys"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def private_imports(tree):
    """Private modules and names of scikit-learn that a file imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for module in modules:
            parts = module.split(".")
            if parts[0] == "sklearn":
                found.update(part for part in parts if is_private(part))
    return found


def private_attributes(tree):
    """Private attributes that a file reads, also by name with getattr and hasattr."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if is_call and node.func.id in ("getattr", "hasattr") and len(node.args) > 1:
            name = node.args[1]
            if isinstance(name, ast.Constant):
                found.add(name.value)
    return set(filter(is_private, found))


def names_of_own(trees):
    """Names that skroute itself defines or sets, so that they are none of scikit-learn."""
    names = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute | ast.Name) and isinstance(
                node.ctx, ast.Store
            ):
                names.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return names


def test_private_names_of_scikit_learn_are_in_one_file():
    """No other file imports one, or reads a private attribute that skroute does not define."""
    trees = {path: ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}
    tree_of_compat = trees.pop(COMPAT)
    own = names_of_own(trees.values()) - private_attributes(tree_of_compat)
    for path, tree in trees.items():
        assert not private_imports(tree), path
        others = private_attributes(tree) - own - OF_PYTHON - OF_LIGHTGBM
        assert others <= INHERITED, path


def test_overridden_private_names_of_scikit_learn_are_listed():
    for item in OBJECTS.values():
        bases = item.__mro__ if inspect.isclass(item) else ()
        inherited = set()
        for base in bases:
            if base.__module__.startswith("sklearn."):
                inherited.update(filter(is_private, vars(base)))
        for base in bases:
            if base.__module__.startswith("skroute."):
                assert inherited & set(vars(base)) - MADE_BY_BASES <= INHERITED, base


def test_private_names_of_scikit_learn_are_documented():
    page = Path(__file__).parents[1] / "doc" / "contributing" / "maintaining.rst"
    section = page.read_text().split("Private names of scikit-learn\n")[1]
    table = section.split("list-table::")[1].split("\n\nRequirements of")[0]
    documented = {
        part for name in re.findall("``([^`]+)``", table) for part in name.split(".")
    }
    tree = ast.parse(COMPAT.read_text())
    used = private_imports(tree) | private_attributes(tree) | INHERITED
    assert set(filter(is_private, documented)) == used


def test_rooms_load_on_first_use_and_nothing_heavy():
    """All rooms in one process: what none of them has loaded, no single one loads."""
    assert set(skroute.__all__) - {"__version__"} == set(ROOMS) - {"utils"}
    script = "import sys, skroute; assert 'skroute.routing' not in sys.modules; skroute.routing\n"
    script += f"import {', '.join(public_modules())}; "
    script += f"print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'rooting'"):
        skroute.rooting  # noqa: B018


def test_public_names_are_the_listed_ones():
    present = sorted(OBJECTS)
    assert present == FROZEN.read_text().split(), (
        "The public names are not those of tests/public_api.txt. If the change is meant, run "
        "python -m tests.test_package and say in doc/whats_new what users must change."
    )


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_names_are_sorted_and_no_other_is_offered(module):
    assert list(module.__all__) == sorted(set(module.__all__))
    if hasattr(module, "__path__"):
        offered = {item for item in dir(module) if not item.startswith("_")}
        # A large room has folders, whose files are private.
        folders = {path.parent.name for path in ROOT.glob("*/*/__init__.py")}
        assert offered <= {*module.__all__, *ROOMS, *folders}


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_documented_defaults_are_the_defaults(name):
    """Each parameter is documented, with the default that it has."""
    docscrape = pytest.importorskip("numpydoc.docscrape")
    item = OBJECTS[name]
    documented = {
        part.strip().lstrip("*"): parameter.type
        for parameter in docscrape.NumpyDocString(inspect.getdoc(item))["Parameters"]
        for part in parameter.name.split(",")
    }
    signature = inspect.signature(
        item.__init__ if inspect.isclass(item) else item
    ).parameters
    for parameter, kind in documented.items():
        if "default=" in kind and parameter in signature:
            text = kind.split("default=", 1)[1].strip().strip("`")
            stated = np.inf if text == "numpy.inf" else ast.literal_eval(text)
            default = signature[parameter].default
            assert stated == default and type(stated) is type(default), parameter
    if not (inspect.isclass(item) and (issubclass(item, tuple) or is_dataclass(item))):
        assert not set(signature) - {"self", "args", "kwargs"} - set(documented)


# A signature on half a page. The expansion of one `ArrayLike` alone has 300 characters.
LONGEST_SIGNATURE = 400
# Records: what a certificate says, the trees and rules of a library, counts of a log.
LONG_RECORDS = {
    "skroute.certified.Certificate",
    "skroute.datasets.LogRecord",
    "skroute.forests.Forest",
}


def public_callables():
    """Yield each public function, class and method, with its dotted name."""
    for name in DOCUMENTED:
        yield name, OBJECTS[name]
        if not inspect.isclass(OBJECTS[name]):
            continue
        for attribute in dir(OBJECTS[name]):
            # scikit-learn writes the signatures of the requests for metadata.
            hidden = attribute.startswith("_") or attribute.endswith("_request")
            method = inspect.getattr_static(OBJECTS[name], attribute)
            if not hidden and isinstance(
                method, types.FunctionType | classmethod | staticmethod
            ):
                yield f"{name}.{attribute}", getattr(OBJECTS[name], attribute)


def test_signatures_can_be_read():
    """`help` prints the names of array types, not their expansion."""
    signatures = {}
    for name, item in public_callables():
        # An exception of Python has no signature.
        if not (inspect.isclass(item) and issubclass(item, Exception)):
            signatures[name] = str(inspect.signature(item))
    expanded = [name for name, text in signatures.items() if "numpy._typing" in text]
    assert not expanded, "Import the array types from skroute.utils._typing."
    too_long = {
        name for name, text in signatures.items() if len(text) > LONGEST_SIGNATURE
    }
    assert too_long <= LONG_RECORDS


def test_every_public_name_has_an_example():
    """Doctests run those that are there."""
    without = [
        name
        for name, item in OBJECTS.items()
        if not (inspect.isclass(item) and issubclass(item, (tuple, Exception)))
        and ">>> " not in (inspect.getdoc(item) or "")
    ]
    assert not without


def test_an_optional_package_that_is_broken_is_not_called_absent(tmp_path, monkeypatch):
    """A failure inside the package keeps its own name: installing it again would not help."""
    (tmp_path / "cvxpy.py").write_text("import a_part_that_is_missing")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cvxpy", raising=False)
    with pytest.raises(ModuleNotFoundError, match="a_part_that_is_missing"):
        import_optional("cvxpy", "the test")
    (tmp_path / "cvxpy.py").unlink()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    importlib.invalidate_caches()
    with pytest.raises(ImportError, match=r"the test needs cvxpy.*skroute-ml\[cvxpy\]"):
        import_optional("cvxpy", "the test")


if __name__ == "__main__":
    FROZEN.write_text("\n".join(sorted(OBJECTS)) + "\n")
    print(f"wrote {len(OBJECTS)} names to {FROZEN}")
