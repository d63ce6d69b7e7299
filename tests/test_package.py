"""The package as a whole: what importing it costs, which room may import which, docstrings."""

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import skroute
from skroute.utils._optional import import_optional
from tests import guards, house

ROOT = Path(skroute.__file__).parent


def run_python(script):
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=300
    )
    return done.stdout


def public_packages():
    for module in pkgutil.walk_packages(skroute.__path__, "skroute."):
        if not any(part.startswith("_") or part == "utils" for part in module.name.split(".")):
            yield module.name


def test_import_loads_nothing_heavy():
    """All packages in one process: what none of them has loaded, no single one loads."""
    modules = ["skroute", *public_packages()]
    assert len(modules) > 12
    assert not guards.heavy_imports("import " + ", ".join(modules))


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


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    assert not guards.wrong_imports(path.relative_to(ROOT).parts[0], path.read_text())


def test_the_house_is_as_light_as_it_should_be():
    """Modules, classes, constructors and kernels; `python -m tests.house` prints them."""
    assert not house.too_much(house.package_sources())


def test_no_modules_import_one_another():
    assert not house.import_circles(house.package_sources())


def public_objects():
    for module in public_packages():
        package = importlib.import_module(module)
        for name in getattr(package, "__all__", []):
            yield f"{module}.{name}", getattr(package, name)


OBJECTS = dict(public_objects())


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_documented_defaults_are_the_defaults(name):
    pytest.importorskip("numpydoc")
    assert callable(OBJECTS[name]), f"{name} is neither a class nor a function"
    assert not guards.wrong_parameters(name, OBJECTS[name])


def test_every_module_with_names_has_an_example():
    """Public functions and estimators show themselves; doctests run them."""
    assert not guards.without_example(OBJECTS)


def test_rooms_load_on_first_use():
    script = (
        "import sys, skroute; assert 'skroute.routing' not in sys.modules; "
        "skroute.routing.BudgetRouter; print(sorted(dir(skroute))[:2])"
    )
    assert run_python(script).strip() == "['__version__', 'assignment']"
    with pytest.raises(AttributeError, match="no attribute 'rooting'"):
        importlib.import_module("skroute").__getattr__("rooting")


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
