"""The API reference from one table: every public name, under the room that it is in."""

import importlib
import inspect

# Title of each room, and its pages in the user guide.
ROOMS = {
    "skroute.routing": (
        "Which model answers",
        [
            "occam",
            "budget_router",
            "learning_from_logs",
            "apis",
            "cascades",
            "objectives",
            "online",
            "streams",
            "after_fit",
        ],
    ),
    "skroute.gating": ("Which features to buy", ["feature_costs", "gating"]),
    "skroute.early_exit": (
        "When to stop evaluating an ensemble",
        ["early_exit", "neural_nets"],
    ),
    "skroute.forests": ("Forests of any library", ["early_exit"]),
    "skroute.feature_sets": ("Which features to compute in time", ["feature_sets"]),
    "skroute.assignment": ("Spend a budget well", ["large_data"]),
    "skroute.ledgers": ("The ledger of a total", ["streams"]),
    "skroute.distributed": ("Large data", ["large_data"]),
    "skroute.quality": ("Estimate quality", ["estimates"]),
    "skroute.features": (
        "Columns of a log or a database",
        ["estimates", "feature_costs"],
    ),
    "skroute.members": (
        "Logs, services, and nets with exits as models",
        ["apis", "neural_nets"],
    ),
    "skroute.metrics": ("Measure", ["metrics", "tuning", "online"]),
    "skroute.datasets": ("Data", ["learning_from_logs", "faq"]),
    "skroute.guarantees": ("Bounds and tests", ["guarantees"]),
    "skroute.certified": ("Guarantees for any estimator", ["guarantees"]),
    "skroute.base": ("The cost protocol", ["how_it_works"]),
    "skroute.testing": ("Check your own estimator", ["how_it_works"]),
}

_INDEX = """\
.. This page is written by doc/api_reference.py.

API reference
=============

.. toctree::
   :hidden:

   {rooms}

{tables}
"""

_TABLE = """\
.. rubric:: :doc:`{heading} <{room}>`

.. currentmodule:: {module}

.. autosummary::
   :nosignatures:

   {names}
"""

_PAGE = """\
.. This page is written by doc/api_reference.py.

{heading}
{rule}

.. currentmodule:: {module}

.. automodule:: {module}
   :no-members:

User guide: {guide}.

{sections}
"""

_SECTION = """\
.. rubric:: {heading}

.. autosummary::
   :toctree: ../generated/
   :nosignatures:
   :template: {template}

   {names}
"""


def public_names(module):
    """Names that a room offers, classes and functions apart."""
    package = importlib.import_module(module)
    classes, functions = [], []
    for name in getattr(package, "__all__", []):
        item = getattr(package, name)
        if inspect.isclass(item):
            classes.append(name)
        elif callable(item):
            functions.append(name)
    return classes, functions


def write_api_pages(folder):
    """Write ``api/<room>.rst`` for every room with public names, and ``api/index.rst``."""
    target = folder / "api"
    target.mkdir(exist_ok=True)
    rooms, tables = [], []
    for module, (title, pages) in ROOMS.items():
        classes, functions = public_names(module)
        sections = [
            _SECTION.format(
                heading=heading, names="\n   ".join(names), template=template
            )
            for heading, names, template in [
                ("Classes", classes, "class.rst"),
                ("Functions", functions, "function.rst"),
            ]
            if names
        ]
        room, heading = module.removeprefix("skroute."), f"{module}: {title}"
        guide = ", ".join(f":doc:`/user_guide/{page}`" for page in pages)
        text = _PAGE.format(
            heading=heading,
            rule="=" * len(heading),
            module=module,
            guide=guide,
            sections="\n".join(sections),
        )
        _write(target / f"{room}.rst", text)
        rooms.append(room)
        names = "\n   ".join(classes + functions)
        tables.append(
            _TABLE.format(heading=heading, room=room, module=module, names=names)
        )
    index = _INDEX.format(rooms="\n   ".join(rooms), tables="\n".join(tables))
    _write(target / "index.rst", index)


def _write(path, text):
    # Unchanged pages keep their time stamp, so that rebuilding is incremental.
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
