"""Texts of one fit are hashed once, and nothing else changes by it."""

import threading

import numpy as np
import pytest
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from skroute.quality import FrameEncoder
from skroute.routing import BudgetRouter
from skroute.utils import _texts_of_fit
from skroute.utils._texts_of_fit import counts_of, learned_once, texts_counted_once

N_ROWS = 90


@pytest.fixture
def log():
    """Return texts, one answer per row, its choice and its cost."""
    rng = np.random.default_rng(0)
    words = np.array(["red", "blue", "long", "short", "old", "new", "hard", "soft"])
    texts = []
    for number, picks in enumerate(rng.integers(0, 8, (N_ROWS, 6))):
        texts.append(" ".join(words[picks]) + f" number {number}")
    choice = rng.integers(0, 2, N_ROWS)
    quality = rng.uniform(size=N_ROWS)
    costs = rng.uniform(1, 2, N_ROWS)
    return np.array(texts, dtype=object), quality, choice, costs


def router():
    """Return a router that encodes texts for qualities and for costs."""
    estimator = make_pipeline(FrameEncoder(n_components=5), Ridge())
    return BudgetRouter(estimator, cost_estimator=estimator, budget=1.7)


@pytest.fixture
def hashed_texts(monkeypatch):
    """Return a list of the texts that are hashed for words."""
    texts = []
    transform = HashingVectorizer.transform

    def noted(vectorizer, X):
        if vectorizer.analyzer == "word":
            texts.extend(X)
        return transform(vectorizer, X)

    monkeypatch.setattr(HashingVectorizer, "transform", noted)
    return texts


def test_a_fit_hashes_each_text_once(log, hashed_texts):
    X, quality, choice, costs = log
    router().fit(X, quality, choice=choice, costs=costs)
    assert sorted(hashed_texts) == sorted(X)


def test_routes_are_those_of_texts_that_are_hashed_each_time(log, monkeypatch):
    X, quality, choice, costs = log
    shared = router().fit(X, quality, choice=choice, costs=costs)
    monkeypatch.setattr(_texts_of_fit, "_MOST_STORED", 0)
    alone = router().fit(X, quality, choice=choice, costs=costs)
    np.testing.assert_array_equal(shared.predict_quality(X), alone.predict_quality(X))
    np.testing.assert_array_equal(shared.route(X), alone.route(X))


def test_nothing_is_kept_after_a_fit_also_after_a_failure(log):
    X, quality, choice, costs = log
    router().fit(X, quality, choice=choice, costs=costs)
    assert not _texts_of_fit._TEXTS.position_of_text
    with pytest.raises(ZeroDivisionError), texts_counted_once():
        FrameEncoder().fit(X)
        assert len(_texts_of_fit._TEXTS.position_of_text) == N_ROWS
        raise ZeroDivisionError
    assert not _texts_of_fit._TEXTS.position_of_text
    assert not _texts_of_fit._TEXTS.results


def test_an_encoder_of_equal_texts_is_learned_once_and_of_others_again(log):
    X = log[0]
    sets = {
        "all": X,
        "all again": X.copy(),
        "without the first": X[1:],
        "another order": X[::-1],
    }
    alone = {name: FrameEncoder().fit_transform(texts) for name, texts in sets.items()}
    with texts_counted_once():
        for name, texts in sets.items():
            np.testing.assert_array_equal(
                FrameEncoder().fit_transform(texts), alone[name]
            )
        assert len(_texts_of_fit._TEXTS.results) == 3
        FrameEncoder(random_state=1).fit(X)
        FrameEncoder(n_components=3).fit(X)
        assert len(_texts_of_fit._TEXTS.results) == 5


def test_a_change_of_the_rows_of_one_encoder_does_not_reach_another(log):
    X = log[0]
    with texts_counted_once():
        rows = FrameEncoder().fit_transform(X)
        expected = rows.copy()
        rows[:] = 0
        np.testing.assert_array_equal(FrameEncoder().fit_transform(X), expected)


def test_threads_share_texts(log):
    X = log[0]
    expected = FrameEncoder().fit_transform(X)
    results = {}

    def encode(number):
        results[number] = FrameEncoder().fit_transform(X)

    with texts_counted_once():
        threads = [threading.Thread(target=encode, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number in range(4):
        np.testing.assert_array_equal(results[number], expected)


def test_outside_of_a_fit_everything_is_computed():
    calls = []

    def count(texts):
        calls.append(len(texts))
        return np.ones((len(texts), 1))

    texts = np.array(["a", "b"], dtype=object)
    for _ in range(2):
        counts_of(texts, count)
        learned_once("sum", texts, (), count=count, learn=np.sum)
    assert calls == [2, 2, 2, 2]
