"""The role ``:test:`yes <tests/routing/test_stream.py::test_threads>```: a claim and its test.

The link is a download of the file, so it works without a public repository; a file or a function
that is not there is a warning, and warnings are errors.
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

ROOT = Path(__file__).resolve().parents[1]
EXPLICIT = re.compile(r"^(?P<title>.+?)\s*<(?P<target>[^<>]+)>$", re.DOTALL)


def find_test(target):
    """Split ``path::function`` and say what is wrong with it.

    Parameters
    ----------
    target : str

    Returns
    -------
    path : str
    function : str
    problem : str
        Empty if the function is there.
    """
    path, _, function = target.partition("::")
    file = ROOT / path
    if not file.is_file():
        return path, function, f"no such file: {path}"
    if not re.search(rf"^def {re.escape(function)}\(", file.read_text(), re.MULTILINE):
        return path, function, f"no function {function!r} in {path}"
    return path, function, ""


class TestRole(SphinxRole):
    def run(self):
        explicit = EXPLICIT.match(self.text)
        title, target = explicit.groups() if explicit else (None, self.text)
        path, function, problem = find_test(target)
        if problem:
            logging.getLogger(__name__).warning("%s", problem, location=self.get_location())
        link = addnodes.download_reference(
            "", "", refdoc=self.env.docname, reftarget=f"/../{path}", reftype="download"
        )
        link += nodes.inline("", title or function, classes=["xref", "download"])
        link["reftitle"] = f"{path}: {function}"
        self.set_source_info(link)
        return [link], []


def setup(app):
    app.add_role("test", TestRole())
    return {"parallel_read_safe": True}
