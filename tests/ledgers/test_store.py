"""The contract of a store: what a subclass must write, and that nothing else is called."""

import copy
import inspect
import pickle
import shutil
import weakref

import pytest

from skroute.ledgers import (
    Ledger,
    MemoryLedger,
    Offer,
    SQLiteLedger,
    Store,
    WindowUse,
    _ledger,
)
from tests.ledgers.dict_store import DictStore

# Methods that a store may replace: those of its clock.
CLOCK = {"now", "clock_lag"}


def test_a_store_without_one_of_its_methods_cannot_be_made():
    assert len(Store.__abstractmethods__) == 11
    for name in Store.__abstractmethods__:
        methods = {key: value for key, value in vars(DictStore).items() if key != name}
        methods.pop("__init__", None)
        incomplete = type("Incomplete", (Store,), {**methods})
        with pytest.raises(TypeError, match=f"abstract method '?{name}'?"):
            incomplete()


def test_every_method_has_a_docstring_that_says_what_it_does():
    for name in Store.__abstractmethods__ | CLOCK:
        docstring = inspect.getdoc(getattr(Store, name))
        assert docstring
        assert docstring.splitlines()[0].endswith(".")


def test_a_reservation_number_is_never_used_again():
    ledger = Ledger(DictStore())
    ledger.open("tenant", 10.0)
    first = ledger.hold(("tenant",), 1.0)
    ledger.release(first)
    assert ledger.hold(("tenant",), 1.0).number != first.number


def test_a_ledger_has_a_store_and_is_not_one():
    public = {name for name in vars(Store) if not name.startswith("_")}
    assert public == Store.__abstractmethods__ | CLOCK
    assert not issubclass(Ledger, Store)
    assert not [name for name in public if hasattr(Ledger, name)]


def passed_on(name):
    """Return a method that calls the one of the same name of the inner store."""

    def method(self, *arguments, **keywords):
        return getattr(self.inner, name)(*arguments, **keywords)

    return method


METHODS = {name: passed_on(name) for name in Store.__abstractmethods__ | CLOCK}
# A store that has the methods of `Store` and no others.
Interface = type("Interface", (Store,), METHODS)


@pytest.fixture
def stores(monkeypatch):
    """No stores but those of the test are told of a fork."""
    monkeypatch.setattr(_ledger, "_STORES", weakref.WeakValueDictionary())


@pytest.mark.parametrize("make", [DictStore, lambda: MemoryLedger().store])
def test_a_ledger_asks_its_store_for_nothing_else(make, stores):
    store = make()
    now = [1e9]
    store.now = lambda: now[0]
    interface = Interface()
    interface.inner = store
    ledger = Ledger(interface, timeout=10.0, remember=100.0)
    offer = Offer(0, "a", 1.0, 0.25, 1.5)
    uses = {0: (WindowUse("window", 1.0),)}

    def choose(*_, full=frozenset()):
        return offer

    ledger.open("tenant", 20.0, 5, period="day")
    ledger.open("window", 9.0, window=60.0)
    held = ledger.hold(("tenant",), 1.0)
    ledger.release(ledger.hold(("tenant",), 1.0))
    made = ledger.reserve(("tenant",), choose, least=1.5, held=held, key="a", uses=uses)
    ledger.await_bill(made.ledger, made.number, "tenant", offer, 20.0)
    again = ledger.reserve(("tenant",), choose, least=1.5, key="a")
    ledger.settle(again.ledger, again.number, "tenant", offer, 0.5)
    ledger.reserve(("tenant",), choose, least=1.5, key="late")
    now[0] += 15.0
    ledger.reserve(("tenant",), choose, least=1.5, key="late")
    now[0] += 200.0
    ledger.top_up("tenant", 1.0)
    assert len(ledger.unsettled("tenant")) == 3
    assert ledger.books("tenant").spent == 1.5
    assert ledger.books("window").reserved == 0.0
    ledger.reset("tenant")
    _ledger._after_fork()


def test_ledgers_of_a_store_share_its_books_and_not_their_timeouts():
    slow = Ledger(DictStore(), timeout=60.0)
    quick = Ledger(slow.store, timeout=5.0)
    slow.open("tenant", 10.0)
    held = [ledger.hold(("tenant",), 1.0) for ledger in (slow, quick)]
    assert 50.0 < held[0].deadline - held[1].deadline < 60.0
    assert slow.books("tenant") == quick.books("tenant")
    assert quick.books("tenant").reserved == 2.0


def test_a_store_of_two_ledgers_is_told_of_a_fork_once(stores):
    store = DictStore()
    n_calls = [0]

    def count():
        n_calls[0] += 1

    store.after_fork = count
    ledgers = [Ledger(store), Ledger(store)]
    _ledger._after_fork()
    assert n_calls == [1]
    # The store may live longer than its ledgers.
    del ledgers
    _ledger._after_fork()
    assert n_calls == [2]


def test_copies_of_a_ledger_have_copies_of_its_store():
    ledger = MemoryLedger(timeout=7.0)
    ledger.open("tenant", 10.0)
    ledger.hold(("tenant",), 1.0)
    other = Ledger(ledger.store, timeout=8.0)
    for original in (ledger, other):
        for make in (copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
            copied = make(original)
            assert type(copied) is type(original)
            assert copied.timeout == original.timeout
            assert copied.store is not ledger.store
            # The request that holds an amount goes on in the original alone.
            assert copied.books("tenant").n_held == 0
            copied.hold(("tenant",), 3.0)
            assert ledger.books("tenant").reserved == 1.0


def test_a_ledger_without_a_store_is_refused():
    for bad in (None, "ledger.sqlite", DictStore, MemoryLedger()):
        with pytest.raises(TypeError, match="store must be a skroute.ledgers.Store"):
            Ledger(bad)
    assert repr(Ledger(DictStore())) == "Ledger(DictStore)"


def test_a_bad_timeout_leaves_no_file(tmp_path):
    path = tmp_path / "ledger.sqlite"
    with pytest.raises(ValueError, match="timeout must be a positive number"):
        SQLiteLedger(path, timeout=-1.0)
    assert not path.exists()


def test_a_copy_of_a_ledger_whose_file_is_gone_is_an_error_at_once(tmp_path):
    folder = tmp_path / "books"
    folder.mkdir()
    pickled = pickle.dumps(SQLiteLedger(folder / "ledger.sqlite"))
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError, match="no folder for the ledger"):
        pickle.loads(pickled)
