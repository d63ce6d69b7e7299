"""`make doc` without data and network: examples that need data are shown, and not run."""

import importlib.util
import re
from pathlib import Path
from urllib.error import URLError

import pytest

from skroute.datasets import _base

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").rglob("plot_*.py"))


@pytest.fixture
def example_data():
    spec = importlib.util.spec_from_file_location("example_data", ROOT / "doc" / "example_data.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def executed(example_data, without):
    pattern = re.compile(example_data.pattern_of_the_rest(without))
    return [name for name in EXAMPLES if pattern.search(f"/examples/{name}")]


def test_without_data_and_network(example_data, tmp_path, monkeypatch):
    def unreachable(*args, **kwargs):
        raise URLError("no network")

    monkeypatch.setenv("SKROUTE_DATA", str(tmp_path))
    monkeypatch.setattr(_base, "urlopen", unreachable)
    monkeypatch.setattr(_base, "_DELAY", 0.0)
    without = example_data.examples_without_data(ROOT / "examples")
    for name in EXAMPLES:
        (path,) = (ROOT / "examples").rglob(name)
        needs_data = re.search(r"= fetch_|fetch_.*\(\), fetch_", path.read_text()) is not None
        assert (name in without) == needs_data
    assert "plot_buying_faces.py" in without
    assert "no network" in without["plot_buying_faces.py"]
    assert executed(example_data, without) == [n for n in EXAMPLES if n not in without]
    assert list(tmp_path.iterdir()) == []


def test_with_data_all_run(example_data, data_home):
    without = example_data.examples_without_data(ROOT / "examples")
    assert without == {}
    assert executed(example_data, without) == EXAMPLES
