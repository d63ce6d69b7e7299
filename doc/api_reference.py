"""The API reference from one table: every public name, under the room that it is in."""

import importlib
import inspect

ROOMS = {
    "skroute.routing": "Which model answers",
    "skroute.gating": "Is the cheap model enough",
    "skroute.early_exit": "When to stop evaluating an ensemble",
    "skroute.feature_sets": "Which features to compute",
    "skroute.assignment": "Spend a budget well",
    "skroute.quality": "Estimate quality",
    "skroute.members": "Logs, services, and nets with exits as models",
    "skroute.metrics": "Measure",
    "skroute.datasets": "Data",
    "skroute.base": "The cost protocol",
}

_PAGE = """\
.. This page is written by doc/api_reference.py.

{title}
{rule}

.. currentmodule:: {module}

.. automodule:: {module}
   :no-members:

{sections}
"""

_SECTION = """\
.. rubric:: {heading}

.. autosummary::
   :toctree: ../generated/
   :nosignatures:{template}

   {names}
"""


def public_names(module):
    """Names that a room offers, classes and functions apart."""
    package = importlib.import_module(module)
    classes, functions = [], []
    for name in getattr(package, "__all__", []):
        item = getattr(package, name)
        (classes if inspect.isclass(item) else functions).append(name)
    return classes, functions


def write_api_pages(folder):
    """Write ``api/<room>.rst`` for every room with public names, and ``api/index.rst``."""
    target = folder / "api"
    target.mkdir(exist_ok=True)
    written = []
    for module, title in ROOMS.items():
        classes, functions = public_names(module)
        sections = []
        for heading, names, template in [
            ("Classes", classes, "\n   :template: class.rst"),
            ("Functions", functions, ""),
        ]:
            if names:
                sections.append(
                    _SECTION.format(heading=heading, names="\n   ".join(names), template=template)
                )
        if not sections:
            continue
        heading = f"{module}: {title}"
        text = _PAGE.format(
            title=heading, rule="=" * len(heading), module=module, sections="\n".join(sections)
        )
        _write(target / f"{module.removeprefix('skroute.')}.rst", text)
        written.append(module.removeprefix("skroute."))
    toctree = "\n   ".join(written)
    _write(
        target / "index.rst",
        f"API reference\n=============\n\n.. toctree::\n   :maxdepth: 1\n\n   {toctree}\n",
    )


def _write(path, text):
    # Unchanged pages keep their time stamp, so that rebuilding is incremental.
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
