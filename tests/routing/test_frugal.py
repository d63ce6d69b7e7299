"""FrugalML, FrugalMCT, Sequential and the votes as estimators."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.metrics import sample_quality
from skroute.routing import (
    CascadeRouter,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    SequentialRouterClassifier,
)

LABELS = np.array(["ant", "bee", "hornet"])
COSTS = {"cheap": 1.0, "middle": 3.0, "costly": 10.0}
TREE = DecisionTreeRegressor(max_depth=4, random_state=0)


class Log(ClassifierMixin, BaseEstimator):
    """A service on record: row number in, scores out; it notes which rows it is asked about."""

    def __init__(self, scores=None, classes=None, fail=False):
        self.scores = scores
        self.classes = classes
        self.fail = fail

    def fit(self, X, y):
        self.classes_ = self.classes
        self.asked_ = []
        return self

    def predict_proba(self, X):
        scores = self.predict_scores(X)
        return (
            scores / scores.sum(axis=1, keepdims=True)
            if self.classes is not None
            else scores
        )

    def predict_scores(self, X):
        rows = np.asarray(X, dtype=int).ravel()
        self.asked_.extend(rows)
        if self.fail:
            error = ConnectionError("no answer")
            error.rows = np.array([0])
            raise error
        return self.scores[rows]

    def predict(self, X):
        scores = self.predict_scores(X)
        if self.scores is not None and self.classes is not None:
            return self.classes[scores.argmax(axis=1)]
        return (scores > 0).astype(int)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self.classes is None
        return tags


def services(n=600, seed=0, reliable=(0.6, 0.75, 0.9)):
    """Three logs whose scores say how likely they are right; X are row numbers."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    logs = []
    for share in reliable:
        chance = np.clip(rng.normal(share, 0.25, n), 0.05, 0.99)
        right = rng.random(n) < chance
        answer = np.where(right, y, (y + rng.integers(1, 3, n)) % 3)
        scores = np.zeros((n, 3))
        scores[np.arange(n), answer] = chance
        logs.append(FrozenEstimator(Log(scores, LABELS).fit(None, None)))
    return list(zip(COSTS, logs)), np.arange(n)[:, np.newaxis], LABELS[y]


def forget(router):
    for log in router.estimators_:
        log.estimator.asked_.clear()


frugal_ml = partial(FrugalMLClassifier, costs=COSTS)
frugal_mct = partial(FrugalMCTClassifier, costs=COSTS, quality_estimator=TREE)
sequential = partial(
    SequentialRouterClassifier, costs=COSTS, quality_estimator=TREE, n_prices=6
)
POLICIES = [frugal_ml, frugal_mct, sequential]


@pytest.fixture(scope="module")
def problem():
    return services()


FITTED = {}


def fitted(make, problem, **options):
    """A router that learned from the first half: of one fit for all tests, a copy for each."""
    key = (make, *options.items())
    if key not in FITTED:
        estimators, X, y = problem
        FITTED[key] = pickle.dumps(make(estimators, **options).fit(X[:300], y[:300]))
    return pickle.loads(FITTED[key])


@pytest.mark.parametrize("options", [{}, {"abstain_cost": 0.2}])
@pytest.mark.parametrize("make", POLICIES)
def test_every_call_is_paid_and_none_is_made_twice(make, options, problem):
    estimators, X, y = problem
    router = fitted(make, problem, budget=4.0, **options)
    forget(router)
    _, route, cost = router.predict_routed(X[300:])
    handed = [router.choices_[choice].endswith("abstain") for choice in route]
    assert any(handed) == bool(options)
    calls = np.zeros(300)
    for log, name in zip(router.estimators_, router.member_names_):
        asked = np.array(log.estimator.asked_, dtype=int)
        assert len(np.unique(asked)) == len(asked), "a row was asked about twice"
        calls[asked - 300] += COSTS[name]
        used = router.choice_members_[route, router.member_names_.index(name)]
        assert_array_equal(np.sort(asked), 300 + np.flatnonzero(used))
    assert_allclose(calls, cost)


@pytest.mark.slow
@pytest.mark.parametrize("make", POLICIES)
def test_budget_holds_on_average_and_more_buys_more(make):
    budgets = (1.0, 2.0, 4.0, 8.0, np.inf)
    cost = np.zeros((4, 5))
    accuracy = np.zeros((4, 5))
    for seed in range(4):
        estimators, X, y = services(1200, seed)
        options = {} if make is frugal_ml else {"quality_estimator": None}
        router = make(estimators, **options).fit(X[:600], y[:600])
        for j, budget in enumerate(budgets):
            y_pred, _, spent = router.predict_routed(X[600:], budget=budget)
            cost[seed, j] = spent.mean()
            accuracy[seed, j] = np.mean(y_pred == y[600:])
    assert_allclose(cost[:, 0], 1)
    error = cost.std(axis=0, ddof=1) / np.sqrt(len(cost))
    assert (cost.mean(axis=0) <= np.array(budgets) * 1.02 + 3 * error).all()
    assert (np.diff(cost.mean(axis=0)) >= 0).all()
    assert (np.diff(accuracy.mean(axis=0)) > 0)[:3].all()
    # Buying answers beats the best single service that the budget of 4 buys ("middle", and
    # costs 3), and without a budget it is no worse than the best of all.
    reference = np.array(
        [[np.mean(log.predict(X[600:]) == y[600:]) for _, log in estimators]]
    )
    assert accuracy[:, 2].mean() > reference[0, 1] + 0.02
    assert accuracy[:, 4].mean() > reference[0, 2] - 0.01


@pytest.mark.parametrize("make", POLICIES)
def test_fixed_base_and_messages(make, problem):
    estimators, X, y = problem
    router = fitted(make, problem, budget=4.0, base="middle")
    route = router.route(X[300:])
    assert router.choice_members_[route, 1].all()
    with pytest.raises(ValueError, match="smallest feasible budget is 3"):
        router.predict(X, budget=2.0)
    with pytest.raises(ValueError, match="smallest feasible budget is 3"):
        make(estimators, budget=2.0, base="middle").fit(X, y)
    with pytest.raises(
        ValueError, match="base='costliest' is not the name of a member"
    ):
        make(estimators, base="costliest").fit(X, y)
    with pytest.raises(
        ValueError, match=r"needs predict_proba.*CalibratedClassifierCV"
    ):
        make([("cheap", LinearSVC()), *estimators[1:]]).fit(X, y)
    assert not hasattr(make([("cheap", LinearSVC())]), "predict_proba")


def test_stream_decides_as_predict_and_pays_what_it_asks(problem):
    estimators, X, y = problem
    router = fitted(frugal_mct, problem, budget=4.0)
    y_pred, route, cost = router.predict_routed(X[300:400])
    stream = router.stream(1e6)
    tickets = [stream.route(x[np.newaxis]) for x in X[300:400]]
    assert_array_equal([ticket.choice for ticket in tickets], route)
    assert [t.name for t in tickets] == [router.choices_[k] for k in route]
    assert_allclose([t.deciding + t.cost for t in tickets], cost)
    for ticket, label in zip(tickets, y_pred):
        # Where the base is enough it has answered already.
        assert ticket.answer == (label if ticket.cost == 0 else None)
        stream.refund(ticket)
    # The base was paid, whether the add-on is refunded or not.
    assert stream.status().spent == pytest.approx(100 * COSTS[router.base_])

    forget(router)
    stream = pickle.loads(pickle.dumps(router.stream(1e6)))
    assert_array_equal([stream.predict(x[np.newaxis]) for x in X[300:400]], y_pred)
    assert stream.status().spent == pytest.approx(cost.sum())
    asked = zip(stream.router.estimators_, COSTS.values())
    assert sum(
        len(log.estimator.asked_) * price for log, price in asked
    ) == pytest.approx(cost.sum())


def test_stream_with_failing_services_spends_nothing_on_them(problem):
    estimators, X, y = problem
    router = fitted(frugal_mct, problem, base="cheap")
    router = pickle.loads(pickle.dumps(router))
    forget(router)
    stream = router.stream(1e4)
    router.named_estimators_["cheap"].estimator.fail = True
    with pytest.raises(ConnectionError):
        stream.predict(X[300:301])
    status = stream.status()
    assert status.spent == 0 and status.reserved == 0
    router.named_estimators_["cheap"].estimator.fail = False
    router.named_estimators_["costly"].estimator.fail = True
    failed = 0
    for x in X[300:400]:
        try:
            stream.predict(x[np.newaxis])
        except ConnectionError:
            failed += 1
    asked = [len(router.named_estimators_[name].estimator.asked_) for name in COSTS]
    status = stream.status()
    assert status.n_refunded == failed == asked[2] > 0 and status.n_open == 0
    # 101 answers of the base and one that failed.
    assert asked[0] == 101
    assert status.spent == pytest.approx(
        100 * COSTS["cheap"] + asked[1] * COSTS["middle"]
    )


@pytest.mark.parametrize("make", POLICIES)
def test_failure_names_the_service_and_the_rows(make, problem):
    estimators, X, y = services()
    router = fitted(make, problem, budget=4.0)
    forget(router)
    for log in router.estimators_:
        log.estimator.fail = True
    with pytest.raises(ConnectionError, match="no answer") as caught:
        router.predict(X[300:])
    assert "rows" in caught.value.__notes__[0]
    # Its first row is counted from the first row of X.
    log = next(log.estimator for log in router.estimators_ if log.estimator.asked_)
    assert caught.value.rows[0] == log.asked_[0] - 300


def test_mct_quality_estimator_and_ablation(problem):
    estimators, X, y = services(3000)
    dap = FrugalMCTClassifier(
        estimators, costs=COSTS, budget=2.5, quality_estimator=DummyRegressor()
    ).fit(X[:1500], y[:1500])
    # Knowing nothing of a row, all rows go the same way, unless a hard budget forbids it.
    assert len(np.unique(dap.route(X[1500:]))) == 1
    dap.set_params(policy="batch")
    router = FrugalMCTClassifier(estimators, costs=COSTS, budget=2.5).fit(
        X[:1500], y[:1500]
    )
    assert router.score(X[1500:], y[1500:]) > dap.score(X[1500:], y[1500:]) + 0.05
    estimate = router.predict_quality(X[1500:])
    assert estimate.shape == (1500, len(router.choices_))
    mine = ~np.isnan(estimate[0])
    assert router.choice_members_[mine, router.member_names_.index(router.base_)].all()
    assert abs(router.validation_cost_ - 2.5) < 3 * router.validation_cost_se_
    # Three standard errors of 1,500 rows.
    assert abs(router.validation_quality_ - router.score(X[1500:], y[1500:])) < 0.035


@pytest.mark.slow
def test_mct_spends_on_a_base_what_is_better_beyond_noise(monkeypatch):
    """An expensive base that answers no better, over fresh logs, is not taken for its luck."""
    took = {"rule": 0, "best": 0, "better": 0}
    costs = [1.0, 10.0]
    for seed in range(40):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, 300)
        for better in (0.0, 0.15):
            logs = []
            for name, skill in (("cheap", 0.7), ("costly", 0.7 + better)):
                answer = np.where(rng.random(300) < skill, y, 1 - y)
                log = Log(np.where(np.eye(2)[answer] > 0, 0.7, 0.3), LABELS[:2])
                logs.append((name, FrozenEstimator(log.fit(None, None))))
            router = FrugalMCTClassifier(
                logs, costs=costs, quality_estimator=DummyRegressor(), weight=1.0
            ).fit(np.arange(300)[:, np.newaxis], LABELS[y])
            if better:
                took["better"] += router.base_ == "costly"
                continue
            took["rule"] += router.base_ == "costly"
            with monkeypatch.context() as patch:
                patch.setattr(
                    "skroute.routing.from_answers._frugal_mct.best_or_cheaper",
                    lambda quality, *_: quality.argmax(),
                )
                took["best"] += router.base_ == "costly"
    # Half of the draws; one standard error leaves 16 %.
    assert took["rule"] <= 13 <= took["best"] and took["better"] >= 35, took


def test_mct_weight_threshold_delta_policy(problem):
    estimators, X, y = problem
    kw = {"costs": COSTS, "budget": 4.0, "base": "cheap", "quality_estimator": TREE}
    fixed = FrugalMCTClassifier(estimators, weight=0.5, **kw).fit(X[:300], y[:300])
    assert fixed.choices_ == ["cheap", "cheap + middle", "cheap + costly"]
    assert_allclose(fixed.choice_weights_[1], [0.5, 0.5, 0])
    saving = FrugalMCTClassifier(estimators, delta=0.5, **kw).fit(X[:300], y[:300])
    plain = FrugalMCTClassifier(estimators, **kw).fit(X[:300], y[:300])
    assert saving.predict_cost(X[300:]).mean() < plain.predict_cost(X[300:]).mean()
    assert saving.price_ > plain.price_
    searched = FrugalMCTClassifier(estimators, delta="auto", **kw).fit(X[:300], y[:300])
    assert np.isclose(searched.delta_ * 300 / np.log(300), np.arange(-10, 11)).any()
    auto = FrugalMCTClassifier(estimators, delta="auto", costs=COSTS, budget=1.0)
    assert auto.fit(X[:300], y[:300]).base_ == "cheap"
    batch = FrugalMCTClassifier(estimators, policy="batch", **kw).fit(X[:300], y[:300])
    for rows in (X[300:], X[300:310], X[[300]]):
        assert batch.predict_cost(rows).mean() <= 4.0 + 1e-9
    assert batch.predict_cost(X[300:]).mean() > 3.9


def test_sequential_contains_its_special_case(problem):
    """At every budget its validated accuracy is at least that of each one-add-on policy."""
    estimators, X, y = problem
    kw = {"costs": COSTS, "quality_estimator": TREE}
    router = SequentialRouterClassifier(estimators, **kw).fit(X, y)
    single = SequentialRouterClassifier(estimators, max_calls=2, **kw).fit(X, y)
    for budget in np.linspace(1, 14, 20):
        assert (
            router.mixture_.quality_at(budget)
            >= single.mixture_.quality_at(budget) - 1e-12
        )
    assert max(single.choice_members_.sum(axis=1)) == 2
    mct = FrugalMCTClassifier(estimators, budget=4.0, **kw).fit(X, y)
    assert single.mixture_.quality_at(4.0) >= mct.validation_quality_ - 0.01
    alone = SequentialRouterClassifier(estimators, max_calls=1, **kw).fit(X, y)
    assert alone.choices_ == list(COSTS)


def test_sequential_buys_a_third_answer_when_two_differ():
    """Three services of equal skill whose scores say nothing: the third breaks ties."""
    rng = np.random.default_rng(0)
    n = 3000
    y = rng.integers(0, 2, n)
    logs = []
    for name in COSTS:
        answer = np.where(rng.random(n) < 0.8, y, 1 - y)
        logs.append(
            (name, FrozenEstimator(Log(np.eye(2)[answer], LABELS[:2]).fit(None, None)))
        )
    X = np.arange(n)[:, np.newaxis]
    kw = {"costs": [1.0, 1.0, 1.0], "quality_estimator": TREE}
    router = SequentialRouterClassifier(logs, **kw).fit(X[:2000], LABELS[y[:2000]])
    y_pred, route, cost = router.predict_routed(X[2000:], budget=2.4)
    mct = FrugalMCTClassifier(logs, **kw).fit(X[:2000], LABELS[y[:2000]])
    # Majority of three: .896, at 2.32 calls; no pair of services is better than one alone.
    assert (
        np.mean(y_pred == LABELS[y[2000:]])
        > mct.score(X[2000:], LABELS[y[2000:]]) + 0.06
    )
    assert cost.mean() < 2.5
    # Which two were first depends on the policy, but if all three agree somebody asked in vain.
    answers = np.array([log.predict(X[2000:]) for _, log in logs])
    three = router.choice_members_[route].all(axis=1)
    unanimous = (answers == answers[0]).all(axis=0)
    assert three.sum() > 200
    assert unanimous[three].mean() < 0.5 * unanimous.mean()


def test_validation_of_mixed_rules_is_that_of_rows_left_out():
    """FrugalML by hand: thresholds of the other folds, and the mixture that they have chosen."""
    logs, X, y = services(400, 1)
    router = FrugalMLClassifier(logs, costs=[1.0, 2.0, 5.0], budget=2.2).fit(X, y)
    cost = np.empty(400)
    right = np.empty(400)
    for others, rows in KFold(5, shuffle=True, random_state=0).split(X):
        apart = clone(router).fit(X[others], y[others])
        low, high, share = apart.rules_.mixture.share(2.2)
        cost[rows] = 0.0
        right[rows] = 0.0
        for rule, weight in ((low, 1 - share), (high, share)):
            alone = copy.deepcopy(apart)
            alone.rules_ = apart.rules_.take([rule])
            routed = alone.predict_routed(X[rows])
            cost[rows] += weight * routed.cost
            right[rows] += weight * (routed.y_pred == y[rows])
    assert router.validation_cost_ == pytest.approx(cost.mean())
    assert router.validation_quality_ == pytest.approx(right.mean())
    least = cost.std(ddof=1) / np.sqrt(400)
    assert least - 1e-9 <= router.validation_cost_se_ < 2.5 * least
    router.set_params(budget=1.0)
    assert router.validation_cost_ == pytest.approx(1.0)
    router.set_params(budget=None)
    assert router.validation_cost_ > 2.2


def test_too_many_sets_are_refused(problem):
    estimators, X, y = problem
    many = [(f"s{i}", estimators[0][1]) for i in range(12)]
    router = SequentialRouterClassifier(many, costs=[1.0] * 12, max_calls=3)
    with pytest.raises(ValueError, match="max_calls=3 with 12 members"):
        router.fit(X, y)
    with pytest.raises(ValueError, match="1350 sets of models; at most 1023"):
        CascadeRouter(costs=[1.0] * 20).fit(None, np.ones((10, 20)), signals={})


def test_frugalml_mixes_bases_and_refuses_what_it_cannot_do(problem):
    estimators, X, y = problem
    router = FrugalMLClassifier(estimators, costs=COSTS).fit(X[:300], y[:300])
    policies = router.rules_
    assert (np.diff(policies.cost) > 0).all() and (np.diff(policies.quality) > 0).all()
    changes = np.flatnonzero(np.diff(policies.base) != 0)
    assert len(changes) > 0
    between = policies.cost[changes[0] : changes[0] + 2].mean()
    route = router.route(X, budget=between)
    bases = {router.choices_[choice].split(" > ")[0] for choice in np.unique(route)}
    assert len(bases) == 2
    with pytest.raises(
        TypeError, match="does not take 'exclude' in a call: it takes X, budget"
    ):
        router.predict(X[300:], exclude=["cheap"])
    with pytest.raises(ValueError, match="FrugalMLClassifier is for one label per row"):
        FrugalMLClassifier(estimators, costs=COSTS).fit(
            X, np.ones((len(X), 2), dtype=int)
        )


@pytest.mark.parametrize("make", [frugal_mct, sequential])
@pytest.mark.parametrize(
    "members",
    [
        [DecisionTreeClassifier(max_depth=2, random_state=0), KNeighborsClassifier()],
        [
            RandomForestClassifier(5, random_state=0),
            MLPClassifier((8,), max_iter=30, random_state=0),
        ],
    ],
    ids=["lists", "matrix"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_multilabel(make, members):
    X, Y = make_multilabel_classification(300, n_classes=4, random_state=0)
    # A label that every row has and one that none has.
    Y = np.column_stack([Y, np.ones(300, dtype=int), np.zeros(300, dtype=int)])
    router = make(list(zip("ab", members)), budget=3.0, cv=2).set_params(
        costs=[1.0, 5.0]
    )
    sparse = clone(router).fit(X[:200], csr_array(Y[:200]))
    router.fit(X[:200], Y[:200])
    assert_array_equal(sparse.predict(X[200:]), router.predict(X[200:]))
    assert sparse.score(X[200:], csr_array(Y[200:])) == router.score(X[200:], Y[200:])
    y_pred = router.predict(X[200:])
    assert y_pred.shape == (100, 6) and set(np.unique(y_pred)) <= {0, 1}
    assert_array_equal(router.classes_, np.arange(6))
    scores = router.predict_proba(X[200:])
    assert scores.shape == (100, 6)
    if isinstance(router, FrugalMCTClassifier):
        stream = router.stream(1e6)
        assert_array_equal(
            [stream.predict(x[np.newaxis]) for x in X[200:210]], y_pred[:10]
        )
        # A ticket whose answer is an array is settled after a queue, too.
        for copied in (
            lambda ticket: pickle.loads(pickle.dumps(ticket)),
            copy.deepcopy,
        ):
            for settle in (stream.commit, stream.refund):
                settle(copied(stream.route(X[:1])))
        assert stream.status().n_open == 0
    expected = sample_quality(Y[200:], y_pred).mean()
    assert router.score(X[200:], Y[200:]) == pytest.approx(expected)
    assert expected > 0.5
    # A net of 30 iterations may miss one.
    assert y_pred[:, 4].mean() >= 0.98


def test_multilabel_own_accuracy():
    """A user's accuracy sees the sets of labels, not the codes of something else."""
    X, Y = make_multilabel_classification(120, n_classes=3, random_state=0)
    seen = []

    def exact(y_true, y_pred):
        seen.append((y_true.shape[1], y_pred.shape[1], set(np.unique(y_true))))
        return (y_true == y_pred).all(axis=1).astype(float)

    members = [
        ("tree", DecisionTreeClassifier(max_depth=3)),
        ("costly", KNeighborsClassifier(3)),
    ]
    router = FrugalMCTClassifier(
        members, costs=[1.0, 2.0], quality_estimator=TREE, quality=exact, cv=2
    ).fit(X, Y)
    assert router.predict(X).shape == Y.shape
    assert {(a, b) for a, b, _ in seen} == {(3, 3)} and all(
        v <= {0, 1} for *_, v in seen
    )


def test_members_with_scores_of_their_own_are_asked_for_them():
    class Scored(Log):
        def predict_proba(self, X):
            raise AssertionError("made-up probabilities were asked for")

    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 100)
    logs = [
        (n, FrozenEstimator(Scored(rng.random((100, 3)), LABELS).fit(0, 0)))
        for n in "ab"
    ]
    router = (
        frugal_mct(logs)
        .set_params(costs=[1.0, 2.0])
        .fit(np.arange(100)[:, None], LABELS[y])
    )
    assert router.predict(np.arange(100)[:, None]).shape == (100,)


@pytest.mark.parametrize("make", POLICIES)
def test_sample_weight_reaches_the_members(make, problem):
    X, y = make_classification(200, n_informative=4, n_classes=3, random_state=0)
    weight = np.r_[np.zeros(100), np.ones(100)]
    with config_context(enable_metadata_routing=True):
        member = LogisticRegression().set_fit_request(sample_weight=True)
        router = make(
            [("cheap", member), ("middle", clone(member)), ("costly", clone(member))]
        )
        router.set_params(costs=COSTS).fit(X, y, sample_weight=weight)
        expected = LogisticRegression().fit(X, y, sample_weight=weight)
        assert_allclose(router.named_estimators_.costly.coef_, expected.coef_)


@pytest.mark.parametrize("make", POLICIES)
def test_a_member_is_dropped_and_calls_are_timed(make, problem):
    estimators, X, y = problem
    router = clone(make(estimators).set_params(middle="drop", costs="time")).fit(X, y)
    assert router.member_names_ == ["cheap", "costly"] and (router.costs_ > 0).all()
