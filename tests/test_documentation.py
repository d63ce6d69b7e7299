"""What the pages point to is there."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOC = ROOT / "doc"
sys.path.insert(0, str(DOC))

MADE = {"_build", "auto_examples", "generated", "api"}
PAGES = [page for page in sorted(DOC.rglob("*.rst")) if not MADE & set(page.relative_to(DOC).parts)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOC)))
def test_images_have_alternative_text(page):
    for block in re.findall(r"\.\. (?:image|figure):: .*?(?=\n\S|\Z)", page.read_text(), re.DOTALL):
        assert ":alt:" in block, block


def test_formulas_become_mathml_and_unknown_commands_are_noticed():
    pytest.importorskip("latex2mathml")
    from mathml import translate

    markup, left = translate(r"\arg\max_i \hat q_i(x) - p\, c_i", "block")
    assert markup.startswith("<math") and 'display="block"' in markup and not left
    assert translate(r"\nonsense x", "inline")[1]
