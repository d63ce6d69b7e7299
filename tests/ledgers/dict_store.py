"""A store as somebody else writes one, by the docstrings of `Store` alone: a dict with a lock."""

import copy
import threading
import uuid

from skroute.ledgers import Reservation, Store


class DictStore(Store):
    """Keeps the books in dicts, and copies all of them before each transaction."""

    def __init__(self):
        self.identity = uuid.uuid4().hex
        self.lock = threading.Lock()
        self.tables = {"purses": {}, "reservations": {}, "n_issued": 0}

    def transact(self, body, *arguments):
        with self.lock:
            before = copy.deepcopy(self.tables)
            try:
                return body(*arguments)
            except BaseException:
                self.tables = before
                raise

    def after_fork(self):
        self.identity = uuid.uuid4().hex
        self.lock = threading.Lock()

    def find_purse(self, name):
        return self.tables["purses"].get(name)

    def add_purse(self, purse):
        self.tables["purses"][purse.name] = purse

    def add_reservation(self, purses, state, amount, *, offer, deadline, key):
        number = self.tables["n_issued"]
        self.tables["n_issued"] += 1
        made = Reservation(
            self.identity, number, purses, state, amount, offer, deadline, key
        )
        self.tables["reservations"][number] = made
        return made

    def find_reservation(self, number):
        return self.tables["reservations"].get(number)

    def replace_reservation(self, reservation):
        self.tables["reservations"][reservation.number] = reservation

    def delete_reservation(self, reservation):
        del self.tables["reservations"][reservation.number]

    def find_by_key(self, purse, key):
        with_key = [made for made in self.find_of_purse(purse) if made.key == key]
        return with_key[0] if with_key else None

    def find_due(self, now):
        return [
            made
            for made in self.tables["reservations"].values()
            if made.deadline is not None and made.deadline <= now
        ]

    def find_of_purse(self, purse):
        return [
            made
            for made in self.tables["reservations"].values()
            if made.purses[0] == purse
        ]
