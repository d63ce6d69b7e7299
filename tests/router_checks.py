"""Checks that every estimator choosing among named classifiers must pass, beside those of
`tests/decision_checks.py`.

Each takes an unfitted instance whose members are called "tree" and "logreg" and whose
budget is 2.0 (see `tests/estimators.py`).
"""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator

from tests.decision_checks import rows as problem


class Counting(ClassifierMixin, BaseEstimator):
    """A classifier that notes which rows it is asked about."""

    def __init__(self, classifier):
        self.classifier = classifier

    def fit(self, X, y):
        self.classifier_ = clone(self.classifier).fit(X, y)
        self.classes_ = self.classifier_.classes_
        self.rows_ = []
        return self

    def predict(self, X):
        self.rows_.extend(map(tuple, np.asarray(X)))
        return self.classifier_.predict(X)

    def predict_proba(self, X):
        self.rows_.extend(map(tuple, np.asarray(X)))
        return self.classifier_.predict_proba(X)


def check_router_answers_are_the_members_own(estimator):
    X, y, X_test, _ = problem()
    router = clone(estimator).fit(X, y)
    routed = router.predict_routed(X_test)
    for choice, member in enumerate(router.estimators_):
        rows = routed.route == choice
        if rows.any():
            np.testing.assert_array_equal(
                routed.y_pred[rows], member.predict(X_test[rows])
            )


def check_router_calls_are_counted(estimator):
    """A member is asked about its own rows only; one that embeds about every row, once."""
    X, y, X_test, _ = problem()
    counted = clone(estimator)
    counted.set_params(estimators=[(n, Counting(m)) for n, m in estimator.estimators])
    counted.fit(X, y)
    for member in counted.estimators_:
        member.rows_.clear()
    route = counted.predict_routed(X_test).route
    embeds = getattr(counted, "embedding", None)
    for choice, (name, member) in enumerate(zip(counted.choices_, counted.estimators_)):
        expected = X_test if name == embeds else X_test[route == choice]
        assert sorted(member.rows_) == sorted(map(tuple, expected))
    # Deciding alone asks nobody, but for the member that embeds.
    for member in counted.estimators_:
        member.rows_.clear()
    counted.route(X_test)
    counted.predict_cost(X_test)
    for name, member in zip(counted.choices_, counted.estimators_):
        assert len(member.rows_) == (2 * len(X_test) if name == embeds else 0)


def check_router_costs_add_up(estimator):
    X, y, X_test, _ = problem()
    router = clone(estimator).fit(X, y)
    _, route, cost = router.predict_routed(X_test)
    expected = np.asarray(router.costs_)[route]
    embeds = getattr(router, "embedding", None)
    if embeds is not None:
        at = router.choices_.index(embeds)
        expected = router.costs_[at] + np.where(route == at, 0.0, expected)
    np.testing.assert_allclose(cost, expected)
    # Who may spend as little as the cheaper model costs asks that one.
    assert router.min_budget_ == 1.0
    np.testing.assert_allclose(router.predict_cost(X_test, budget=1.0), 1.0)


def check_router_budget_holds(estimator):
    """On average over seeds: the mean cost exceeds the budget by sampling error at most."""
    excess = []
    for seed in range(8):
        X, y, X_test, _ = problem(seed=seed)
        router = clone(estimator).fit(X, y)
        excess.append(router.predict_cost(X_test).mean() - 2.0)
    error = np.std(excess, ddof=1) / np.sqrt(len(excess))
    assert np.mean(excess) <= 3 * error + 0.02


def check_router_takes_frozen_members(estimator):
    X, y, X_test, _ = problem()
    fitted = [(n, FrozenEstimator(clone(m).fit(X, y))) for n, m in estimator.estimators]
    X_new, y_new, _, _ = problem(seed=1)
    router = clone(estimator).set_params(estimators=fitted).fit(X_new, y_new)
    for name, member in fitted:
        assert router.named_estimators_[name] is member
    assert set(router.predict(X_test)) <= set(y)


def check_router_validates_before_any_model_is_called(estimator):
    X, y, _, _ = problem()

    class Untouchable(Counting):
        def fit(self, X, y):
            raise AssertionError(
                "a model was called before the parameters were checked"
            )

    for bad, message in [
        ({"costs": {"tree": 1.0}}, r"no entry for \['logreg'\]"),
        ({"costs": {"tree": 1.0, "logreg": 3.0, "cnn": 9.0}}, r"entries for \['cnn'\]"),
        (
            {"costs": {"tree": 1.0, "logreg": -3.0}},
            "costs of 'logreg' must be a finite",
        ),
        ({"costs": [1.0]}, "costs must have one number for each of"),
        ({"costs": "money"}, "costs"),
        ({"budget": 0.5}, "the smallest feasible budget is"),
        ({"budget": -1.0}, "'budget' parameter"),
        ({"estimators": []}, "non-empty list"),
    ]:
        broken = clone(estimator)
        broken.set_params(
            estimators=[(n, Untouchable(m)) for n, m in estimator.estimators]
        )
        broken.set_params(**bad)
        with pytest.raises(ValueError, match=message):
            broken.fit(X, y)
        assert not hasattr(broken, "choices_")


def check_router_inner_failure_names_the_model(estimator):
    X, y, X_test, _ = problem()

    class Broken(Counting):
        def predict(self, X):
            raise ConnectionError("no answer")

        predict_proba = predict

    names = [name for name, _ in estimator.estimators]
    broken = clone(estimator)
    fitted = [(name, Counting(m).fit(X, y)) for name, m in estimator.estimators]
    broken.set_params(
        estimators=[(name, FrozenEstimator(m)) for name, m in fitted]
    ).fit(X, y)
    for _, member in fitted:
        member.__class__ = Broken
    with pytest.raises(ConnectionError, match="no answer") as caught:
        broken.predict(X_test)
    note = caught.value.__notes__[0]
    assert any(repr(name) in note for name in names) and "rows" in note


def check_router_set_params_and_drop(estimator):
    X, y, X_test, _ = problem()
    router = clone(estimator).set_params(tree__max_depth=1)
    assert router.named_estimators.tree.max_depth == 1
    if getattr(router, "embedding", None) is None:
        # As in a search over who is dropped: its price may stay where it stood.
        expected = (
            clone(router).set_params(logreg="drop").fit(X, y).predict_routed(X_test)
        )
        router.set_params(logreg="drop", costs={"tree": 1.0})
        router.fit(X, y)
        for ours, theirs in zip(expected, router.predict_routed(X_test)):
            np.testing.assert_array_equal(ours, theirs)
        assert router.choices_ == ["tree"]
        assert (router.route(X_test) == 0).all()


ROUTER_CHECKS = [
    item for name, item in list(globals().items()) if name.startswith("check_router_")
]
