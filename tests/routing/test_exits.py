"""Exits of one net as services: asked in order, each stage once per row."""

import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeRegressor

from skroute.members._multi_exit import ExitClassifier
from skroute.routing import SequentialRouterClassifier
from skroute.routing._exits import chains, continued
from skroute.routing._rollout import member_sets
from tests.exit_net import ColumnNet, column_rows

TREE = DecisionTreeRegressor(min_samples_leaf=20, random_state=0)


def net_and_rows(n_exits=3, n=1200, n_classes=3):
    X, y = column_rows(n, n_classes, n_exits, np.random.default_rng(0))
    return ColumnNet(n_exits).fit(X, y), X, y


def exits(net):
    return [(f"exit_{k + 1}", ExitClassifier(net, k)) for k in range(net.n_exits_)]


def test_what_each_exit_goes_on_from():
    one, other = ColumnNet(), ColumnNet()
    members = {
        "late": ExitClassifier(one, 2),
        "plain": LogisticRegression(),
        "first": FrozenEstimator(ExitClassifier(one, 0)),
        "foreign": ExitClassifier(other, 1),
    }
    before = continued(members)
    assert before == [2, -1, -1, -1]
    assert chains(before) == [[2, 0], [1], [2], [3]]
    with pytest.raises(ValueError, match="'a' and 'b' are both exit 1 of one net"):
        continued({"a": ExitClassifier(one, 1), "b": ExitClassifier(one, 1)})


def test_sets_hold_what_must_have_been_asked():
    members, following = member_sets(4, 4, [-1, 0, 1, -1])
    for row in members:
        assert not (row[1] and not row[0]) and not (row[2] and not row[1])
    assert len(members) == 7
    # From the first exit alone: the second, or the other service.
    np.testing.assert_array_equal(following[0] >= 0, [False, True, False, True])


@pytest.mark.parametrize("shuffled", [False, True])
def test_no_stage_sees_a_row_twice(shuffled):
    net, X, y = net_and_rows()
    members = exits(net)[::-1] if shuffled else exits(net)
    costs = {"exit_1": 3.0, "exit_2": 1.0, "exit_3": 2.0}
    router = SequentialRouterClassifier(members, costs=costs, quality_estimator=TREE, n_prices=4)
    router.fit(X[:600], y[:600])
    for budget in (3.0, 4.0, np.inf):
        net.rows_ = [0] * 3
        y_pred, route, cost = router.predict_routed(X[600:], budget=budget)
        asked = router.choice_members_[route]
        depth = asked.sum(axis=1)
        assert net.rows_ == [int((depth > k).sum()) for k in range(3)]
        np.testing.assert_allclose(cost, np.array([0, 3.0, 4.0, 6.0])[depth])
        assert cost.mean() <= budget * 1.05
        net.rows_ = [0] * 3
        assert router.predict_proba(X[600:], budget=budget).shape == (600, 3)
        assert net.rows_[0] == 600
    # A single exit of its own has its own answer.
    first = [k for k, name in enumerate(router.choices_) if name == "exit_1"][0]
    here = route == first
    own = net.classes_[net._exit_proba(X[600:][here], 0).argmax(axis=1)]
    np.testing.assert_array_equal(y_pred[here], own)


def test_better_than_the_first_exit_for_less_than_the_last():
    net, X, y = net_and_rows(n=4000)
    router = SequentialRouterClassifier(exits(net), costs=[3, 1, 2], quality_estimator=TREE)
    router.fit(X[:2000], y[:2000])
    y_pred, _, cost = router.predict_routed(X[2000:], budget=4.5)
    accuracy = [np.mean(net._exit_proba(X[2000:], k).argmax(axis=1) == y[2000:]) for k in range(3)]
    assert np.mean(y_pred == y[2000:]) > accuracy[0] + 0.1
    assert cost.mean() < 5


def test_with_a_service_beside_the_exits():
    net, X, y = net_and_rows()
    members = [("logreg", LogisticRegression()), *exits(net)]
    router = SequentialRouterClassifier(
        members, costs=[1, 3, 1, 2], max_calls=4, quality_estimator=TREE, n_prices=3, cv=2
    )
    router.fit(X[:600], y[:600])
    net.rows_ = [0] * 3
    route = router.route(X[600:], budget=5)
    asked = router.choice_members_[route]
    assert (asked[:, 1] >= asked[:, 2]).all() and (asked[:, 2] >= asked[:, 3]).all()
    assert net.rows_ == asked[:, 1:].sum(axis=0).tolist()


def test_measured_costs_are_incremental():
    net, X, y = net_and_rows()
    members = [("logreg", LogisticRegression()), *exits(net)[::2]]
    router = SequentialRouterClassifier(members, costs="time", quality_estimator=TREE, cv=2)
    router._before = continued(dict(members))
    calls = router._timed_calls(["logreg", "exit_1", "exit_3"], [m for _, m in members])
    assert [call.exit for call in list(calls.values())[1:]] == [0, 2]
    assert (router.fit(X[:600], y[:600]).costs_ > 0).all()


def test_what_cannot_be_is_refused_before_anything_is_asked():
    net, X, y = net_and_rows()
    net.rows_ = [0] * 3
    costs = [3, 1, 2]
    with pytest.raises(ValueError, match=re.escape("max_calls=2 never reaches 'exit_3'")):
        SequentialRouterClassifier(exits(net), costs=costs, max_calls=2).fit(X, y)
    with pytest.raises(ValueError, match="base='exit_2' goes on from 'exit_1'"):
        SequentialRouterClassifier(exits(net), costs=costs, base="exit_2").fit(X, y)
    # A later exit costs little more, but not without what comes before it.
    with pytest.raises(ValueError, match="smallest feasible budget is 3"):
        SequentialRouterClassifier(exits(net), costs=costs, budget=2).fit(X, y)
    assert net.rows_ == [0] * 3


def test_base_by_name_and_failures_say_whose():
    net, X, y = net_and_rows()
    router = SequentialRouterClassifier(
        exits(net), costs=[3, 1, 2], base="exit_1", quality_estimator=TREE, n_prices=3
    ).fit(X[:600], y[:600])
    assert router.predict_cost(X[600:], budget=3).max() == 3
    assert clone(router).estimators[0][1].net is net
    net.classes_ = None
    with pytest.raises(TypeError) as error:
        router.predict(X[600:])
    assert "'exit_1'" in "".join(error.value.__notes__)


def test_rows_that_stopped_are_not_held(monkeypatch):
    net, X, y = net_and_rows()
    router = SequentialRouterClassifier(
        exits(net), costs=[3, 1, 2], quality_estimator=TREE, n_prices=4
    ).fit(X[:600], y[:600])
    runs = []
    start = ColumnNet.start
    monkeypatch.setattr(ColumnNet, "start", lambda self, X: runs.append(start(self, X)) or runs[-1])
    stopped = 0
    for budget in (3.5, 4.5, np.inf):
        plan = router._plan(X[600:], budget)
        (run,) = runs
        # What is still to be asked when the row is answered is held, nothing else.
        pending = plan.state.asked.sum(axis=1) < router.choice_members_[plan.route].sum(axis=1)
        np.testing.assert_array_equal(run.depth > 0, pending)
        stopped += int((~pending).sum())
        runs.clear()
    assert stopped > 600
