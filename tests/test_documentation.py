"""README and guide say what is so: the example prints what it says, and links, commands and
pictures are there. Doctests run the rest.
"""

import contextlib
import importlib
import io
import re
from pathlib import Path
from urllib.error import URLError

import pytest

from skroute.datasets import _base

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOC = ROOT / "doc"
MADE = {"_build", "auto_examples", "generated", "api"}


def test_the_readmes_example_prints_what_it_says():
    """But for the last digits, which depend on the processor."""
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    told = re.findall(r"^# .*?(\d+\.\d+).*?(\d+\.\d+)", code, re.MULTILINE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    found = [
        tuple(re.findall(r"\d+\.\d+", line)) for line in printed.getvalue().splitlines()
    ]
    assert len(told) == len(found) > 0
    for expected, got in zip(told, found):
        assert all(abs(float(a) - float(b)) < 0.051 for a, b in zip(expected, got))


def test_the_readmes_commands_and_links_exist():
    make = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"(?:`|\$ )make ([\w-]+)", README)):
        if target.startswith("bench-"):
            assert (
                ROOT / "benchmarks" / f"bench_{target.removeprefix('bench-')}.py"
            ).is_file()
        else:
            assert f"\n{target}:" in make, target
    for path in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / path).exists(), path


def test_images_have_alternative_text():
    pages = [
        page
        for page in DOC.rglob("*.rst")
        if not MADE & set(page.relative_to(DOC).parts)
    ]
    image = re.compile(r"\.\. (?:image|figure):: .*?(?=\n\S|\Z)", re.DOTALL)
    for page in pages:
        for block in image.findall(page.read_text(encoding="utf-8")):
            assert ":alt:" in block, f"{page}: {block}"


def test_formulas_become_mathml_and_unknown_commands_are_noticed(monkeypatch):
    pytest.importorskip("latex2mathml")
    monkeypatch.syspath_prepend(DOC)
    from mathml import translate

    markup, left = translate(r"\arg\max_i \hat q_i(x) - p\, c_i", "block")
    assert markup.startswith("<math") and 'display="block"' in markup and not left
    assert translate(r"\nonsense x", "inline")[1]


EXAMPLES = sorted(path.name for path in (ROOT / "examples").rglob("plot_*.py"))


@pytest.fixture
def example_data(monkeypatch):
    """`make doc` without data and network: examples that need data are shown, and not run."""
    monkeypatch.syspath_prepend(DOC)
    return importlib.import_module("example_data")


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
        needs_data = (
            re.search(r"= fetch_|fetch_.*\(\), fetch_", path.read_text()) is not None
        )
        assert (name in without) == needs_data
    assert "plot_buying_faces.py" in without
    assert "no network" in without["plot_buying_faces.py"]
    assert executed(example_data, without) == [n for n in EXAMPLES if n not in without]
    assert list(tmp_path.iterdir()) == []


def test_with_data_all_run(example_data, data_home):
    without = example_data.examples_without_data(ROOT / "examples")
    assert without == {}
    assert executed(example_data, without) == EXAMPLES
