"""The guards notice: each is shown things that are wrong on purpose, and says what is wrong."""

import types

import pytest
from sklearn.base import BaseEstimator

from skroute.members import RecordedClassifier
from tests import guards, house


@pytest.mark.parametrize(
    "room, source, said",
    [
        ("routing", "from skroute.gating import AdaptGatingClassifier", "room imports another: ga"),
        ("gating", "from skroute import early_exit", "decision room imports another: early_exit"),
        ("gating", "import skroute.routing as r", "decision room imports another: routing"),
        ("early_exit", "def f():\n    import skroute.feature_sets", "another: feature_sets"),
        ("quality", "from skroute.routing._occam import f", "mechanism room imports a decision"),
        ("assignment", "if False:\n    from skroute import gating", "imports a decision room: gat"),
        ("routing", "from skroute.certified import CertifiedRouter", "another: certified"),
        ("guarantees", "import skroute.certified", "imports a decision room: certified"),
        ("certified", "from skroute.routing import f", "imports more than it may: routing"),
        ("base.py", "from skroute.metrics import regret", "the base imports a room: metrics"),
        ("utils", "from skroute.base import Routed", "the helpers import a room: base"),
        ("__init__.py", "from skroute import routing", "imports a room on import: routing"),
        ("routing", "from ._values import f", "a relative import"),
        ("routing", "from . import _values", "a relative import"),
    ],
)
def test_an_import_in_the_wrong_direction(room, source, said):
    (wrong,) = guards.wrong_imports(room, source)
    assert said in wrong


@pytest.mark.parametrize(
    "room, source",
    [
        ("routing", "from skroute.routing._occam import f\nfrom skroute.base import Routed"),
        ("routing", "from skroute import assignment, metrics\nimport skroute.utils._compat"),
        ("metrics", "from skroute.assignment import regret\nimport numpy"),
        ("base.py", "from skroute.utils._timing import median_seconds"),
        ("utils", "from sklearn import gating"),
        ("certified", "from skroute.base import Plan\nfrom skroute.guarantees import rows_needed"),
    ],
)
def test_an_import_in_the_right_direction(room, source):
    assert guards.wrong_imports(room, source) == []


def test_an_import_that_loads_something_heavy():
    assert guards.heavy_imports("import skroute.assignment._kernels") == ["numba"]


FROZEN = "skroute.room\n    solve(values, *, tol)\n    class Thing(a)\n        .predict(X)\n"


@pytest.mark.parametrize(
    "present, change",
    [
        (FROZEN.replace("tol", "tolerance"), "+    solve(values, *, tolerance)"),
        (FROZEN.replace("*, ", ""), "+    solve(values, tol)"),
        (FROZEN.replace("        .predict(X)\n", ""), "-        .predict(X)"),
        (FROZEN + "    accident()\n", "+    accident()"),
        ("", "-skroute.room"),
    ],
)
def test_a_change_of_the_public_api(present, change):
    assert change in guards.api_changes(FROZEN, present)
    assert guards.api_changes(FROZEN, FROZEN) == []


def described(item):
    """An entry of the list, of which the guard above sees each change."""
    from tests.test_public_api import described

    return described("it", item)


def test_the_description_sees_what_a_user_would():
    def before(X, *, budget=None): ...

    def after(X, *, price=None): ...

    assert described(before) == ["it(X, *, budget)"]
    assert guards.api_changes(*("\n".join(described(f)) for f in (before, after)))

    class Thing:
        def predict(self, X): ...

    class Changed(Thing):
        def predict(self, X, budget): ...

        @property
        def cost(self): ...

        def _own(self): ...

    for cls in (Thing, Changed):
        cls.__module__ = "skroute.room"
    assert described(Thing) == ["class it()", "    .predict(X)"]
    assert described(Changed) == ["class it()", "    .cost", "    .predict(X, budget)"]


@pytest.mark.parametrize(
    "listed, offered, said",
    [
        (["a", "b"], ["a", "b", "leaked"], "leaked is public and not in __all__"),
        (["a", "gone"], ["a"], "gone is in __all__ only"),
        (["b", "a"], ["a", "b"], "not sorted"),
        (["a", "a"], ["a"], "has a name twice"),
    ],
)
def test_names_that_are_not_offered_as_listed(listed, offered, said):
    module = types.ModuleType("room")
    module.__all__ = listed
    vars(module).update(dict.fromkeys([*offered, "_private", "another_room"]))
    (wrong,) = guards.wrongly_offered(module, rooms=["another_room"])
    assert said in wrong


DOC = """Do a thing.

    Parameters
    ----------
    n : int, default={n}
        How many.
    {name} : float, default={tol}
        How exact.
    """


def documented(n="3", name="tol", tol="0.5"):
    """An estimator whose docstring says this, and whose defaults are 3 and 0.5."""

    class Estimator(BaseEstimator):
        def __init__(self, n=3, tol=0.5):
            self.n, self.tol = n, tol

    Estimator.__doc__ = DOC.format(n=n, name=name, tol=tol)
    return Estimator


@pytest.mark.parametrize(
    "said, complaint",
    [
        ({"n": "4"}, "n documents 4, the default is 3"),
        ({"n": "3.0"}, "n documents 3.0, the default is 3"),
        ({"n": "None"}, "n documents None, the default is 3"),
        ({"n": "True"}, "n documents True, the default is 3"),
        ({"tol": "a half"}, "the documented default of tol is no value: a half"),
        ({"tol": "numpy.inf"}, "tol documents numpy.inf, the default is 0.5"),
        ({"name": "tolerance"}, "does not document tol"),
    ],
)
def test_a_docstring_that_is_not_so(said, complaint):
    pytest.importorskip("numpydoc")
    (wrong,) = guards.wrong_parameters("it", documented(**said))
    assert complaint in wrong
    function = types.FunctionType((lambda n=3, tol=0.5: None).__code__, {}, "f", (3, 0.5))
    function.__doc__ = documented(**said).__doc__
    assert guards.wrong_parameters("it", function) == [wrong]


def test_a_docstring_that_is_so():
    pytest.importorskip("numpydoc")
    assert guards.wrong_parameters("it", documented()) == []
    assert guards.wrong_parameters("it", lambda n: n) == ["it has no docstring"]


def test_a_docstring_without_an_example():
    shown, bare = documented(), documented()
    shown.__doc__ += "\n\n    Examples\n    --------\n    >>> 1 + 1\n    2\n"
    names = {"skroute.room.Shown": shown, "skroute.room.Bare": bare}
    assert guards.without_example(names) == ["skroute.room.Bare"]


def test_an_estimator_that_no_check_reaches():
    class Listed(BaseEstimator):
        pass

    class Forgotten(BaseEstimator):
        pass

    class Net(BaseEstimator):
        pass

    public = {Listed, Net, RecordedClassifier}
    model = RecordedClassifier([0, 1])
    assert guards.wrong_check_list(public, [Listed()], [Net()], [model]) == []
    assert guards.wrong_check_list(public | {Forgotten}, [Listed()], [Net()], [model]) == [
        "Forgotten is public and in no list"
    ]
    assert guards.wrong_check_list({Listed}, [Listed(), Forgotten()], [], []) == [
        "Forgotten is in a list and not public"
    ]
    # The models' shorter list of checks is no way out for what learns.
    assert guards.wrong_check_list({Listed, Forgotten}, [Listed()], [], [Forgotten()]) == [
        "Forgotten is no model, and hides among MODELS"
    ]
    assert guards.wrong_check_list(set(), [], [], []) == [
        "no public estimator was found: the walk is broken"
    ]


def _weigh(source):
    return house.too_much({"skroute.room._module": source})


@pytest.mark.parametrize(
    "source, said",
    [
        ("x = 1\n" * 401, "has 401, 400 code lines of a module"),
        ("class Big:\n" + "    x = 1\n" * 250, "Big has 251, 250 code lines of a class"),
        (
            "class Many:\n    def __init__(self, " + ", ".join(f"p{i}" for i in range(14)) + "): 0",
            "Many has 14, 13 parameters of a constructor",
        ),
        (
            "@njit(cache=True)\ndef kernel(" + ", ".join(f"a{i}" for i in range(11)) + "): 0",
            "kernel has 11, 10 arguments of a kernel",
        ),
        (
            "class A: 0\nclass B(A): 0\nclass C(SomeMixin, B): 0\nclass D(C): 0",
            "D has 4, 3 depth of own classes",
        ),
    ],
)
def test_what_weighs_too_much(source, said):
    (wrong,) = _weigh(source)
    assert said in wrong


def test_what_does_not_weigh():
    """Documentation, comments and blank lines are free, and so are mixins."""
    free = '"""Text.\n' + "line\n" * 500 + '"""\n' + "# comment\n\n" * 300
    assert _weigh(free + 'class A:\n    """' + "words\n" * 300 + '    """\n') == []
    assert _weigh("class AMixin: 0\nclass BMixin(AMixin): 0\nclass C(BMixin): 0\n") == []


def test_modules_that_import_one_another():
    circle = {
        "skroute.room._a": "from skroute.room._b import f",
        "skroute.room._b": "def g():\n    from skroute.room import _a",
        "skroute.room._c": "from skroute.room._a import g",
        "skroute.room.__init__": "from skroute.room._a import g",
    }
    assert house.import_circles(circle) == [["skroute.room._a", "skroute.room._b"]]
    del circle["skroute.room._b"]
    assert house.import_circles(circle) == []


def test_words_that_are_not_used():
    words = guards.words_not_used(
        ".. list-table:: Words that are not used\n\n"
        "   * - not\n     - but\n"
        "   * - ``dearer``\n     - more expensive\n"
        "   * - ``members_``\n     - ``member_names_``\n"
    )
    assert words == {"dearer": "more expensive", "members_": "member_names_"}
    assert guards.wrong_words("the dearer one, self.members_[0]", words) == [
        "line 1: dearer, say more expensive",
        "line 1: members_, say member_names_",
    ]
    assert guards.wrong_words("the more expensive one, member_names_, endearers", words) == []
