"""The public API, frozen in `tests/public_api.txt`: what a user may rely on, and nothing else.

Every public name with the names of its parameters (behind ``*`` by keyword only), and the
public methods of every class. A change of the API is a change of that file, to be seen in a
review; `python -m tests.test_public_api` writes it anew.
"""

import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import skroute
from tests import guards

FROZEN = Path(__file__).with_name("public_api.txt")


def public_modules():
    """The package and its rooms; `utils` is for nobody outside."""
    found = ["skroute"]
    for module in pkgutil.walk_packages(skroute.__path__, "skroute."):
        parts = module.name.split(".")
        if not any(part.startswith("_") or part == "utils" for part in parts):
            found.append(module.name)
    return found


def parameters(function, *, skip_first=False):
    """Names of the parameters, as in a signature without defaults and types."""
    parts, keyword_only = [], False
    for name, parameter in list(inspect.signature(function).parameters.items())[skip_first:]:
        if parameter.kind is parameter.VAR_POSITIONAL:
            name, keyword_only = f"*{name}", True
        elif parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            parts, keyword_only = [*parts, "*"], True
        elif parameter.kind is parameter.VAR_KEYWORD:
            name = f"**{name}"
        parts.append(name)
    return f"({', '.join(parts)})"


def public_members(cls):
    """Methods and properties that skroute's own code gives a class."""
    own = [base for base in cls.__mro__ if base.__module__.startswith("skroute.")]
    # A named tuple keeps its methods in a base of another module, its fields in itself.
    names = {name for base in own for name in vars(base) if not name.startswith("_")}
    for name in sorted(names):
        item = inspect.getattr_static(cls, name)
        if isinstance(item, property):
            yield f".{name}"
        elif isinstance(item, (classmethod, staticmethod)):
            yield f".{name}{parameters(getattr(cls, name))}"
        elif inspect.isfunction(item):
            yield f".{name}{parameters(item, skip_first=True)}"
        elif hasattr(item, "fn"):  # available_if
            yield f".{name}{parameters(item.fn, skip_first=True)}"
        # What is left are fields of named tuples, which the signature has, and the
        # set_*_request methods that scikit-learn makes from the signatures.


def described(name, item):
    """One entry of the list."""
    if inspect.ismodule(item) or isinstance(item, str):
        return [name]
    try:
        call = parameters(item)
    except ValueError:
        # An exception has the signature of a builtin.
        assert issubclass(item, Exception)
        call = ""
    if not inspect.isclass(item):
        return [f"{name}{call}"]
    return [f"class {name}{call}", *(f"    {member}" for member in public_members(item))]


def public_api():
    """The whole list as text."""
    lines = []
    for module_name in public_modules():
        module = importlib.import_module(module_name)
        lines.append(module_name)
        for name in sorted(module.__all__):
            lines += [f"    {line}" for line in described(name, getattr(module, name))]
        lines.append("")
    return "\n".join(lines)


def public_functions():
    """``module.name`` of every public function (no class, no room)."""
    found = {}
    for module_name in public_modules():
        module = importlib.import_module(module_name)
        for name in module.__all__:
            item = getattr(module, name)
            if callable(item) and not inspect.isclass(item):
                found[f"{module_name.removeprefix('skroute.')}.{name}"] = item
    return found


def test_the_public_api_is_the_frozen_one():
    frozen, present = FROZEN.read_text(), public_api()
    changes = "\n".join(guards.api_changes(frozen, present))
    assert not changes, (
        "The public API is not the one in tests/public_api.txt. If the change is meant, write "
        "the list anew with\n\n    python -m tests.test_public_api\n\nand say in doc/whats_new "
        f"what users must change.\n\n{changes}"
    )


@pytest.mark.parametrize("module_name", public_modules())
def test_names_are_offered_as_listed(module_name):
    """``__all__`` is sorted and complete: no public name is there by accident."""
    module = importlib.import_module(module_name)
    if module_name == "skroute":
        # Rooms load on first use, so all it offers is what it lists.
        assert not guards.wrongly_offered(module)
        assert sorted(dir(module)) == sorted(module.__all__)
    elif hasattr(module, "__path__"):
        rooms = {name.rpartition(".")[2] for name in public_modules()}
        assert not guards.wrongly_offered(module, rooms)
    else:
        # A module names what it offers; its own imports are in dir() too.
        assert list(module.__all__) == sorted(set(module.__all__))


def test_the_list_says_what_it_should():
    """The description itself, on things that are known."""
    lines = public_api().splitlines()
    for line in (
        "    solve_assignment(values, costs, budget, *, objective, solver, tol, solver_options)",
        "    bootstrap_interval(statistic, *rows, confidence_level, n_resamples, random_state)",
        "    class VoteClassifier(estimators, *, costs, budget, voting, cv, n_jobs)",
        "        .predict_proba(X, budget, **context)",
        "        .named_estimators",
        "        .from_estimators(estimators, X, *, ax, line_kwargs)",
        "    class BudgetExhaustedError",
    ):
        assert line in lines
    assert "assignment.solve_assignment" in public_functions()
    assert "skroute.__version__" not in public_functions()


if __name__ == "__main__":
    FROZEN.write_text(public_api())
    print(f"wrote {FROZEN}")
