"""The cache of a sweep over budgets: what it computes, counts and leaves alone."""

import numpy as np
from sklearn.datasets import make_classification
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from skroute.certified import CertifiedRouter
from skroute.gating import AdaptGatingClassifier
from skroute.routing import OccamRouterClassifier
from skroute.utils._cache import NO_CACHE, CallCache, cache_of, with_cache
from tests.metrics._stub import RankRouter, problem


def test_a_value_is_computed_once_for_each_key():
    cache, computed = CallCache(), []

    def compute():
        computed.append(len(computed))
        return computed[-1]

    assert [cache.get_or_compute(key, compute) for key in "aba"] == [0, 1, 0]
    assert computed == [0, 1]


def test_only_new_rows_are_computed():
    cache, asked = CallCache(), []

    def compute(rows):
        asked.append(rows.tolist())
        return 10.0 * rows

    for rows in ([1, 3], [3, 0, 1], [1]):
        rows = np.array(rows)
        found = cache.get_or_compute_rows("model", rows, 4, compute)
        np.testing.assert_array_equal(found, 10.0 * rows)
    assert asked == [[1, 3], [0]]


def test_later_texts_may_be_longer():
    cache = CallCache()
    cache.get_or_compute_rows("model", np.array([0]), 2, lambda rows: np.array(["a"]))
    found = cache.get_or_compute_rows(
        "model", np.arange(2), 2, lambda rows: np.array(["long"])
    )
    assert found.tolist() == ["a", "long"]


def test_no_cache_stores_and_counts_nothing():
    NO_CACHE.count_rows("model", 3)
    assert [
        NO_CACHE.get_or_compute("key", lambda value=value: value) for value in "ab"
    ] == [*"ab"]
    rows = np.arange(2)
    for factor in (1, 2):
        found = NO_CACHE.get_or_compute_rows(
            "key", rows, 2, lambda new, factor=factor: factor * new
        )
        assert found.tolist() == [0, factor]
    assert NO_CACHE.row_counts == {}


def test_the_cache_belongs_to_the_copy():
    X, y = problem()
    router = RankRouter().fit(X, y)
    cached = with_cache(router)
    assert cache_of(router) is NO_CACHE
    assert cache_of(cached) is not NO_CACHE
    assert cache_of(cached) is not cache_of(with_cache(router))


def test_a_wrapper_shares_its_counts_and_not_its_values():
    X, y = problem()
    wrapper = CertifiedRouter(RankRouter())
    wrapper.estimator_ = RankRouter().fit(X, y)
    cached = with_cache(wrapper)
    outer_cache, inner_cache = cache_of(cached), cache_of(cached.estimator_)
    assert cache_of(wrapper.estimator_) is NO_CACHE
    assert inner_cache is not outer_cache
    inner_cache.count_rows("model", 3)
    assert outer_cache.row_counts == {"model": 3}


def test_a_gate_gives_its_full_model_no_cache():
    """The full model gets other rows at each budget, and a cache is about all rows."""
    X, y = make_classification(300, 5, random_state=0)
    members = [("bayes", GaussianNB()), ("tree", DecisionTreeClassifier())]
    router = OccamRouterClassifier(members, costs={"bayes": 1, "tree": 2})
    gate = with_cache(AdaptGatingClassifier(router).fit(X, y))
    assert cache_of(gate) is not NO_CACHE
    assert cache_of(gate.estimator_) is NO_CACHE
