"""Raw items of differing size, with extractors that count and that take known time."""

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

CALLS: dict[str, list[int]] = {}
"""Rows in each call of ``transform``, by extractor."""


class FakeClock:
    """A clock that only extractors move."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


CLOCK = FakeClock()


class Moment(TransformerMixin, BaseEstimator):
    """One moment of an item; takes ``fixed + per_pixel * size`` of the fake clock."""

    def __init__(self, name, power=1, noise=1.0, fixed=0.0, per_pixel=0.0, slow_down=1.0):
        self.name = name
        self.power = power
        self.noise = noise
        self.fixed = fixed
        self.per_pixel = per_pixel
        self.slow_down = slow_down

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        CALLS.setdefault(self.name, []).append(len(X))
        for item in X:
            CLOCK.now += self.slow_down * (self.fixed + self.per_pixel * np.size(item))
        return np.array([[np.mean(item**self.power), np.std(item) * self.noise] for item in X])


def make_items(n_items=90, random_state=0):
    """Arrays of 4 to 60 numbers whose mean and spread tell three classes apart."""
    rng = np.random.default_rng(random_state)
    y = rng.integers(3, size=n_items)
    sizes = rng.integers(4, 60, size=n_items)
    items = [rng.normal(0.7 * (c == 1), 1.0 + 0.8 * (c == 2), size=n) for c, n in zip(y, sizes)]
    return items, y


def make_extractors():
    return [
        ("mean", Moment("mean", 1, 0.0, fixed=1.0)),
        ("spread", Moment("spread", 2, 0.0, fixed=1.0, per_pixel=0.1)),
        ("both", Moment("both", 1, 1.0, fixed=2.0, per_pixel=0.3)),
    ]
