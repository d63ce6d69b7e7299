"""The contract of a store: what a subclass must write, and that nothing else is called."""

import inspect

import pytest

from skroute.ledgers import Ledger, Store
from tests.ledgers.dict_ledger import DictLedger


def test_a_store_without_one_of_its_methods_cannot_be_made():
    assert len(Store.__abstractmethods__) == 11
    for name in Store.__abstractmethods__:
        methods = {key: value for key, value in vars(DictLedger).items() if key != name}
        methods.pop("__init__", None)
        incomplete = type("Incomplete", (Ledger,), {**methods})
        with pytest.raises(TypeError, match=f"abstract method '?{name}'?"):
            incomplete()


def test_every_abstract_method_has_a_docstring_that_says_what_it_does():
    for name in Store.__abstractmethods__:
        docstring = inspect.getdoc(getattr(Store, name))
        assert docstring
        assert docstring.splitlines()[0].endswith(".")


def test_a_reservation_number_is_never_used_again():
    ledger = DictLedger()
    ledger.open("tenant", 10.0)
    first = ledger.hold(("tenant",), 1.0)
    ledger.release(first)
    assert ledger.hold(("tenant",), 1.0).number != first.number
