"""What the base of routers does with members: folds, groups, classes and probabilities."""

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.model_selection import GroupKFold, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.routing import (
    DummyRouterClassifier,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    SequentialRouterClassifier,
)

pytestmark = pytest.mark.filterwarnings("ignore:On validation rows")
COSTS = [1.0, 3.0]
N = 240
RNG = np.random.default_rng(0)
# The first column says which row it is.
X = np.column_stack([np.arange(N), RNG.normal(size=(N, 2))])
Y = np.array(["ant", "bee", "hornet"])[RNG.integers(0, 3, N)]
GROUPS = RNG.permutation(np.repeat(np.arange(12), np.arange(1, 13) * 4)[:N])


class Spy(RegressorMixin, BaseEstimator):
    """An accuracy estimator that notes how many rows each of its fits had."""

    sizes: list = []

    def fit(self, X, y):
        Spy.sizes.append(len(X))
        self.shape_ = y.shape[1:]
        return self

    def predict(self, X):
        return np.zeros((len(X), *self.shape_))


class FoldSpy(ClassifierMixin, BaseEstimator):
    """A member that says for each row whether it has seen its group."""

    leaks: list = []

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.rows_ = X[:, 0].astype(int)
        return self

    def predict_proba(self, X):
        rows = X[:, 0].astype(int)
        if len(self.rows_) < N:
            FoldSpy.leaks.append(np.isin(GROUPS[rows], GROUPS[self.rows_]).any())
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def spies(**params):
    members = [("spy", FoldSpy()), ("tree", DecisionTreeClassifier(max_depth=2, random_state=0))]
    return [
        OccamRouterClassifier(members, costs=COSTS, quality_estimator=Spy(), **params),
        FrugalMCTClassifier(members, costs=COSTS, base="tree", quality_estimator=Spy(), **params),
        SequentialRouterClassifier(
            members, costs=COSTS, base="tree", quality_estimator=Spy(), n_prices=2, **params
        ),
    ]


def sizes_of(folds):
    return {N, *(len(train) for train, _ in folds)}


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("cv", [np.int64(3), StratifiedKFold(4)], ids=["int64", "splitter"])
def test_cv_makes_the_estimates_out_of_sample_whatever_it_is(cv, at):
    """Lists and iterators of folds: `tests/test_out_of_sample.py`."""
    Spy.sizes.clear()
    spies(cv=cv)[at].fit(X, Y)
    whole = {N, N - 80} if isinstance(cv, np.int64) else sizes_of(cv.split(X, Y))
    assert set(Spy.sizes) == whole


@pytest.mark.parametrize("at", range(3))
def test_groups_reach_the_splitter_by_metadata_routing(at):
    FoldSpy.leaks.clear()
    Spy.sizes.clear()
    with sklearn.config_context(enable_metadata_routing=True):
        spies(cv=GroupKFold(4))[at].fit(X, Y, groups=GROUPS)
    assert FoldSpy.leaks and not any(FoldSpy.leaks)
    assert set(Spy.sizes) == sizes_of(GroupKFold(4).split(X, Y, GROUPS))
    # Without routing nothing is fitted, and the error says how groups are given.
    FoldSpy.leaks.clear()
    with pytest.raises(ValueError, match="groups") as caught:
        spies(cv=GroupKFold(4))[at].fit(X, Y)
    assert "enable_metadata_routing=True" in caught.value.__notes__[0]
    assert not FoldSpy.leaks


def test_folds_that_are_no_partition_are_refused_before_any_fit():
    train, test = np.arange(N), np.arange(N // 2)
    FoldSpy.leaks.clear()
    with pytest.raises(ValueError, match="must test each row once, but row 120 is tested 0 times"):
        spies(cv=[(train, test)])[0].fit(X, Y)
    assert not FoldSpy.leaks


class Reversed(ClassifierMixin, BaseEstimator):
    """A classifier whose classes_ are not sorted, and its probabilities with them."""

    def fit(self, X, y):
        self.inner_ = GaussianNB().fit(X, y)
        self.classes_ = self.inner_.classes_[::-1]
        return self

    def predict_proba(self, X):
        return self.inner_.predict_proba(X)[:, ::-1]

    def predict(self, X):
        return self.inner_.predict(X)


def routers(members, **params):
    tree = {"quality_estimator": DecisionTreeRegressor(max_depth=4, random_state=0), **params}
    return [
        OccamRouterClassifier(members, costs=COSTS, quality="probability", **tree),
        DummyRouterClassifier(members, costs=COSTS, quality="probability", **params),
        DummyRouterClassifier(
            members, strategy="oracle", costs=COSTS, quality="probability", **params
        ),
        FrugalMLClassifier(members, costs=COSTS, **params),
        FrugalMCTClassifier(members, costs=COSTS, **tree),
        SequentialRouterClassifier(members, costs=COSTS, n_prices=3, **tree),
    ]


@pytest.mark.parametrize("at", range(6))
def test_classes_may_be_unsorted(at):
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 200)
    rows = rng.normal(size=(200, 2)) + y[:, np.newaxis]
    y = np.array(["ant", "bee", "hornet"])[y]
    tree = ("tree", DecisionTreeClassifier(max_depth=2, random_state=0))
    ours = routers([tree, ("bayes", Reversed())])[at].fit(rows, y)
    twin = routers([tree, ("bayes", GaussianNB())])[at].fit(rows, y)
    if hasattr(ours, "mean_quality_"):
        np.testing.assert_allclose(ours.mean_quality_, twin.mean_quality_)
    budget = max(2.0, ours.min_budget_)
    for a, b in zip(ours.predict_routed(rows, budget), twin.predict_routed(rows, budget)):
        np.testing.assert_array_equal(a, b)
    assert ours.predict_proba(rows, budget).shape == (200, 3)


class Scores(GaussianNB):
    """A classifier whose predict_proba gives something else."""

    def __init__(self, kind="logits"):
        super().__init__()
        self.kind = kind

    def predict_proba(self, X):
        proba = super().predict_proba(X)
        return {
            "logits": lambda: np.log(proba + 1e-3),
            "sum": lambda: np.clip(2 * proba, 0, 1) ** 0.3,
            "missing": lambda: np.where(proba > 0.9, np.nan, proba),
            "float16": lambda: proba.astype(np.float16),
        }[self.kind]()


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("kind", ["logits", "sum", "missing"])
def test_what_is_no_probability_is_refused(kind, at):
    y = np.arange(N) % 3
    rows = np.random.default_rng(0).normal(size=(N, 2)) + 2 * y[:, np.newaxis]
    tree = ("tree", DecisionTreeClassifier(max_depth=2, random_state=0))
    router = routers([tree, ("net", Scores(kind))])[at]
    with pytest.raises(ValueError, match="'net' must give probabilities between 0 and 1"):
        router.fit(rows, y)
    assert not hasattr(router, "choices_")
    fine = clone(router).set_params(net__kind="float16").fit(rows, y)
    # Also of a member that is fitted when it begins to give something else.
    fine.named_estimators_.net.kind = kind
    with pytest.raises(ValueError, match="softmax"):
        fine.predict_proba(rows, budget=max(3.0, fine.min_budget_))
        fine.predict_proba(rows)
