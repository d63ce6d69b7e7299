"""The guards of the code base as functions: each takes what it guards and returns what is wrong.

`test_package.py`, `test_public_api.py` and `test_common.py` run them over skroute, and
`test_guards.py` over things that are wrong on purpose, to show that they notice.
"""

import ast
import difflib
import inspect
import re
import subprocess
import sys

import numpy as np

DECISIONS = {"routing", "gating", "early_exit", "feature_sets"}
MECHANISMS = {
    "assignment",
    "datasets",
    "distributed",
    "features",
    "forests",
    "guarantees",
    "ledgers",
    "members",
    "metrics",
    "quality",
}
# Rooms on top: they wrap decision estimators, and know the cost protocol and no room's privates.
ON_TOP = {"certified": {"base", "guarantees", "metrics", "utils"}, "__main__.py": {"routing"}}
HEAVY = ("numba", "lightgbm", "xgboost", "highspy", "torch", "skorch", "matplotlib", "cvxpy")


def imported_rooms(source):
    """Rooms of skroute that a module's source imports anywhere, also inside functions."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "skroute" and len(parts) > 1:
                yield parts[1]


def wrong_imports(room, source):
    """Imports of a module, in a room or in ``base.py``, that point the wrong way."""
    relative = any(isinstance(n, ast.ImportFrom) and n.level for n in ast.walk(ast.parse(source)))
    wrong = ["a relative import"] if relative else []
    imported = set() if relative else set(imported_rooms(source)) - {room}
    if room in DECISIONS:
        rule, forbidden = (
            "a decision room imports another",
            imported & (DECISIONS | set(ON_TOP)),
        )
    elif room in MECHANISMS:
        rule, forbidden = (
            "a mechanism room imports a decision room",
            imported & (DECISIONS | set(ON_TOP)),
        )
    elif room in ON_TOP:
        rule, forbidden = "a room on top imports more than it may", imported - ON_TOP[room]
    elif room == "base.py":
        rule, forbidden = "the base imports a room", imported - {"utils"}
    elif room == "utils":
        rule, forbidden = "the helpers import a room", imported
    else:
        rule, forbidden = "the package imports a room on import", imported
    return wrong + [f"{rule}: {name}" for name in sorted(forbidden)]


def heavy_imports(statement):
    """Heavy libraries that a fresh process has loaded after the statement."""
    script = f"import sys; {statement}; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=300
    )
    return done.stdout.split()


def api_changes(frozen, present):
    """The difference of two lists of the public API, empty where they are equal."""
    return list(
        difflib.unified_diff(
            frozen.splitlines(), present.splitlines(), "frozen", "present", lineterm="", n=3
        )
    )


def wrongly_offered(module, rooms=()):
    """What a package's ``__all__`` has and the package not, or the other way, or out of order."""
    listed = list(module.__all__)
    wrong = [] if listed == sorted(set(listed)) else ["__all__ is not sorted, or has a name twice"]
    offered = {name for name in dir(module) if not name.startswith("_")} - set(rooms)
    listed_names = {name for name in listed if not name.startswith("_")}
    wrong += [f"{name} is public and not in __all__" for name in sorted(offered - listed_names)]
    return wrong + [f"{name} is in __all__ only" for name in sorted(listed_names - offered)]


def wrong_parameters(name, item):
    """Documented defaults that are not the defaults, and parameters without documentation."""
    from numpydoc.docscrape import NumpyDocString

    doc = inspect.getdoc(item)
    if not doc:
        return [f"{name} has no docstring"]
    documented = {}
    for parameter in NumpyDocString(doc)["Parameters"]:
        for part in parameter.name.split(","):
            documented[part.strip().lstrip("*")] = parameter.type
    signature = inspect.signature(item.__init__ if inspect.isclass(item) else item).parameters
    wrong = []
    for parameter, kind in documented.items():
        if "default=" not in kind or parameter not in signature:
            continue
        text = kind.split("default=", 1)[1].strip().strip("`")
        default = signature[parameter].default
        try:
            stated = np.inf if text == "numpy.inf" else ast.literal_eval(text)
        except (SyntaxError, ValueError):
            wrong.append(f"{name}: the documented default of {parameter} is no value: {text}")
            continue
        if stated != default or type(stated) is not type(default):
            wrong.append(f"{name}: {parameter} documents {text}, the default is {default!r}")
    if not (inspect.isclass(item) and issubclass(item, tuple)):
        expected = set(signature) - {"self", "args", "kwargs"} - set(documented)
        wrong += [f"{name} does not document {parameter}" for parameter in sorted(expected)]
    return wrong


def without_example(objects):
    """Public names whose docstring shows no example; doctests run those that are there."""
    return [
        name
        for name, item in objects.items()
        if not (inspect.isclass(item) and issubclass(item, (tuple, Exception)))
        and ">>> " not in (inspect.getdoc(item) or "")
    ]


def wrong_check_list(public, estimators, nets, models):
    """Public estimators that no list of `tests/estimators.py` has, and hiding places in them."""
    wrong = [] if public else ["no public estimator was found: the walk is broken"]
    model_types = {type(model) for model in models}
    # Models have checks of their own, and nothing else may hide among them.
    wrong += [
        f"{cls.__name__} is no model, and hides among MODELS"
        for cls in model_types
        if not cls.__module__.startswith("skroute.members.")
    ]
    listed = {type(estimator) for estimator in [*estimators, *nets]} | model_types
    wrong += [f"{cls.__name__} is public and in no list" for cls in public - listed]
    wrong += [f"{cls.__name__} is in a list and not public" for cls in listed - public]
    return sorted(wrong)


def words_not_used(glossary):
    """The table of the glossary: what is not said, and what is said instead."""
    table = glossary.split("Words that are not used", 1)[1]
    rows = re.findall(r"^ +\* - ``(.+?)``\n +- (.+)$", table, re.MULTILINE)
    return {word: instead.strip("`") for word, instead in rows}


def wrong_words(text, words):
    """Where a text says a word that the glossary has another one for."""
    pattern = re.compile(r"(?<!\w)(" + "|".join(map(re.escape, words)) + r")(?!\w)")
    return [
        f"line {number}: {match[0]}, say {words[match[0]]}"
        for number, line in enumerate(text.splitlines(), 1)
        for match in pattern.finditer(line)
    ]
