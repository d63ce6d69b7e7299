"""What the pages point to is there."""

import re
import sys
from pathlib import Path

import pytest

from tests import guards

ROOT = Path(__file__).resolve().parents[1]
DOC = ROOT / "doc"
sys.path.insert(0, str(DOC))

MADE = {"_build", "auto_examples", "generated", "api"}
PAGES = [page for page in sorted(DOC.rglob("*.rst")) if not MADE & set(page.relative_to(DOC).parts)]
CLAIMS = re.compile(r":test:`[^<`]*<([^>]+)>`")


def test_each_claim_beside_the_peers_has_a_test():
    """The matrix of doc/peers.rst: every yes of skroute links to a test that exists."""
    text = (DOC / "peers.rst").read_text()
    targets = CLAIMS.findall(text)
    assert len(targets) >= 20
    for target in targets:
        path, _, function = target.partition("::")
        source = (ROOT / path).read_text()
        assert re.search(rf"^def {function}\(", source, re.MULTILINE), target
    for table in text.split(":class: feature-matrix")[1:]:
        for row in re.findall(r"^   \* - .+?(?=^   \* - |\Z)", table, re.MULTILINE | re.DOTALL)[1:]:
            ours = re.findall(r"^     - (.*)", row, re.MULTILINE)[0]
            assert not ours.startswith("yes"), f"a claim without a test: {row}"


SAID = [
    path
    for folder in ("skroute", "tests", "doc", "examples", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".rst")
    and not MADE & set(path.relative_to(ROOT).parts)
    and path.name not in ("glossary.rst", "guards.py", "test_guards.py")
    # Made by the doc build; what's new names what is gone.
    and path.name != "benchmarks.rst"
    and path.parent.name != "whats_new"
]


def test_one_word_for_one_thing():
    """The table of words in the glossary holds in code, pages, examples and benchmarks."""
    words = guards.words_not_used((DOC / "glossary.rst").read_text())
    assert len(words) > 10
    wrong = [
        f"{path.relative_to(ROOT)}, {found}"
        for path in [*SAID, ROOT / "README.md"]
        for found in guards.wrong_words(path.read_text(), words)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOC)))
def test_images_have_alternative_text(page):
    for block in re.findall(r"\.\. (?:image|figure):: .*?(?=\n\S|\Z)", page.read_text(), re.DOTALL):
        assert ":alt:" in block, block


def test_every_guide_page_is_in_the_index():
    index = (DOC / "user_guide" / "index.rst").read_text().split()
    for page in (DOC / "user_guide").glob("*.rst"):
        assert page.stem == "index" or page.stem in index


def test_role_finds_what_is_missing():
    pytest.importorskip("sphinx")
    from test_role import find_test

    assert find_test("tests/test_common.py::test_sklearn_checks")[2] == ""
    assert "no such file" in find_test("tests/nowhere.py::test")[2]
    assert "no function 'test_x'" in find_test("tests/test_common.py::test_x")[2]


@pytest.mark.parametrize(
    "example", sorted((ROOT / "examples").rglob("plot_*.py")), ids=lambda path: path.stem
)
def test_pictures_of_examples_have_a_title(example):
    """Sphinx-gallery takes the title of axes or figure as the alternative text."""
    assert re.search(r"title\s*=|title\(", example.read_text())


def test_formulas_become_mathml_and_unknown_commands_are_noticed():
    pytest.importorskip("latex2mathml")
    from mathml import translate

    markup, left = translate(r"\arg\max_i \hat q_i(x) - p\, c_i", "block")
    assert markup.startswith("<math") and 'display="block"' in markup and not left
    assert translate(r"\nonsense x", "inline")[1]
