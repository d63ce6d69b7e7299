"""CertifiedRouter: what it promises holds, and what it cannot promise it refuses in words."""

import json
import pickle
import re
import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skroute.base import CostAwareMixin, Plan, check_affordable
from skroute.certified import CertifiedRouter
from skroute.certified._evidence import losses_of_points
from skroute.datasets import make_routing_problem
from skroute.early_exit import QWYCEnsemble
from skroute.feature_sets import PolyDomSelector
from skroute.gating import AdaptGatingClassifier, BoostedGate
from skroute.guarantees import mean_upper_bound
from skroute.routing import BudgetRouter, OccamRouterClassifier, OnlineBudgetRouter

DECIDING = [
    AdaptGatingClassifier(DecisionTreeClassifier(max_depth=6), gate=BoostedGate(n_estimators=10)),
    QWYCEnsemble(RandomForestClassifier(20, max_depth=4, random_state=0), random_state=0),
    PolyDomSelector(GaussianNB(), max_models=12, cv=2),
]


class Table(CostAwareMixin, BaseEstimator):
    """A cascade over a table: each row is (score, cheap right, expensive right, extra cost).

    The cheap model answers the rows of the largest scores, the expensive one the rest; the
    budget says which share. It answers 1 where the model is right, so that y is 1.
    """

    def __init__(self, budget=None, *, calls=None):
        self.budget = budget
        self.calls = calls

    def _fit(self, X, y, *, task):
        self.choices_ = ["cheap", "expensive"]

    def _least(self):
        return 1.0

    def _plan(self, X, budget):
        check_affordable(budget, 1.0)
        route = (np.asarray(X)[:, 0] < min((budget - 1) / 9, 1.0)).astype(np.int64)
        return Plan(route, 1 + 9.0 * route * np.asarray(X)[:, 3])

    def _answer(self, X, plan, response):
        return np.asarray(X)[np.arange(len(X)), 1 + plan.route].astype(int)


class Expensive:
    """The expensive model of the table."""

    def predict(self, X):
        return np.asarray(X)[:, 2].astype(int)


def table(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    score = rng.random(n)
    expensive = rng.random(n) < 0.9
    cheap = np.where(rng.random(n) < 0.9 * score, expensive, rng.random(n) < 0.5)
    return np.column_stack([score, cheap, expensive, rng.choice([0.5, 1.5], n)])


FROZEN = FrozenEstimator(Table().fit([[0, 0, 0, 0]]))


def certified(X, **options):
    options = {"reference": Expensive(), "random_state": 0, "n_points": 12, **options}
    return CertifiedRouter(FROZEN, **options).fit(X, np.ones(len(X), dtype=int))


@pytest.mark.parametrize("budget", [None, 7.0])
def test_promises_hold_over_fresh_draws_and_naive_ones_do_not(budget):
    """Evidence is drawn from the table with replacement, and the table is the truth."""
    X = table()
    rng = np.random.default_rng(1)
    n_draws, max_loss, level = 80, 0.06, 0.2
    broken = naive = 0
    for _ in range(n_draws):
        drawn = X[rng.integers(len(X), size=400)]
        try:
            router = certified(
                drawn,
                max_loss=max_loss,
                budget=budget,
                confidence=1 - level,
                max_cost=14.5,
                n_points=50 if budget is None else 12,
            )
        except ValueError:
            continue
        y_pred, _, cost = router.predict_routed(X)
        loss = X[:, 2].mean() - y_pred.mean()
        broken += loss > max_loss or (budget is not None and cost.mean() > budget)
        # The mutation: the cheapest point whose mean on the evidence is within the limit.
        within = losses_of_points(router._selection.evidence) <= max_loss
        plain = FROZEN.estimator.predict(X, budget=router._selection.evidence.budget[within][-1])
        naive += X[:, 2].mean() - plain.mean() > max_loss
    assert broken <= stats.binom.ppf(0.99, n_draws, level)
    if budget is None:
        assert naive > stats.binom.ppf(0.99, n_draws, level)


def test_weights_are_refused_and_evidence_drawn_by_them_promises_the_weighted_mean():
    """A population whose hard rows weigh ten times as much. Rows that count once break it."""
    X = table()
    weight = np.where((X[:, 0] > 0.3) & (X[:, 1] < X[:, 2]), 10.0, 1.0)
    population = np.random.default_rng(2).choice(len(X), 20_000, p=weight / weight.sum())
    rng = np.random.default_rng(3)
    n_draws, max_loss, level = 40, 0.06, 0.2
    broken, promised = {"by weight": 0, "once": 0}, 0
    for _ in range(n_draws):
        rows = rng.integers(len(X), size=1500)
        kept = rows[rng.random(1500) < weight[rows] / weight.max()]
        for name, drawn in (("by weight", kept), ("once", rows[: len(kept)])):
            options = {"max_loss": max_loss, "confidence": 1 - level, "fallback": "safe"}
            router = certified(X[drawn], n_points=30, **options)
            if not router.certificate_.promised:
                continue
            promised += name == "by weight"
            answers = router.predict(X)[population]
            broken[name] += X[population, 2].mean() - answers.mean() > max_loss
    assert promised > n_draws / 2
    assert broken["by weight"] <= stats.binom.ppf(0.99, n_draws, level)
    assert broken["once"] > stats.binom.ppf(0.99, n_draws, level)
    router, y = certified(X, max_loss=0.1), np.ones(len(X), dtype=int)
    for call in (
        lambda: CertifiedRouter(FROZEN, max_loss=0.1).fit(X, y, sample_weight=weight),
        lambda: CertifiedRouter(Table(), max_loss=0.1).fit(X, y, sample_weight=weight),
        lambda: router.recertify(X, y, sample_weight=weight),
        lambda: router.certify_batch(X, sample_weight=weight),
    ):
        with pytest.raises(TypeError, match="counts every evidence row once"):
            call()


def test_what_is_masked_or_has_no_class_is_no_evidence():
    X, y = table(300), np.ones(300)
    hidden = np.ma.masked_array(y, mask=np.arange(300) < 60)
    loss = {"loss": lambda a, b: 1.0 * (a != b), "loss_range": 1.0}
    for options in ({}, loss):
        router = CertifiedRouter(FROZEN, max_loss=0.5, reference="full", **options)
        with pytest.raises(ValueError, match="no missing values"):
            router.fit(X, hidden)
    router = CertifiedRouter(FROZEN, max_loss=0.5, reference="full", groups=hidden)
    with pytest.raises(ValueError, match="none missing"):
        router.fit(X, y)
    for label in (None, np.nan):
        labels = y.astype(object)
        labels[3] = label
        router = CertifiedRouter(FROZEN, max_loss=0.5, reference="full", groups="class", **loss)
        with pytest.raises(ValueError, match='groups="class" needs a label in every row'):
            router.fit(X, labels)


def test_budget_alone_buys_the_best_quality_within_it():
    X = table(3100)
    router = certified(X, budget=6.0, n_points=25, max_cost=14.5)
    used = router.predict_cost(table(20_000, seed=9)).mean()
    assert 0.9 * 6 < used <= 6
    points = router.operating_points_
    assert points.certified.any() and points.cost_upper[points.certified].max() <= 6
    assert "mean cost is at most 6" in str(router.certificate_)
    smaller = router.predict_cost(X, budget=3.0).mean()
    assert smaller <= 3
    with pytest.raises(ValueError, match="smallest feasible budget is.*evidence rows can promise"):
        router.predict(X, budget=1.0)


def test_loss_alone_is_the_cheapest():
    X = table(2000)
    router = certified(X, max_loss=0.08)
    points, certificate = router.operating_points_, router.certificate_
    assert certificate.cost == points.cost[points.certified].min()
    assert certificate.promised and certificate.budget is None
    assert certificate.saving > 0.1 and certificate.n_rows == 1980
    looser = certified(X, max_loss=0.2).certificate_
    surer = certified(X, max_loss=0.08, confidence=0.9999).certificate_
    assert looser.cost < certificate.cost <= surer.cost


def test_certificate_in_words_and_json():
    certificate = certified(table(1000), max_loss=0.1, budget=9.0).certificate_
    assert re.fullmatch(
        r"With a confidence of 0.95, the mean loss against Expensive \(its cost is not known\) is "
        r"at most 0.1 \(wrong answers per row\) and the mean cost is at most 9 \(by the router's "
        r"own prices\), if later rows are drawn as the 990 evidence rows were and none costs more "
        r"than 14.5, the most that was seen; on 990 evidence rows the loss was \S+, the "
        r"cost \S+, \d+% below the cost without a budget\.",
        str(certificate),
    ), str(certificate)
    record = json.loads(certificate.to_json())
    assert record["max_loss"] == 0.1 and record["sentence"] == str(certificate)
    unlimited = certified(table(1000), max_loss=1.0, reference="full", n_points=2)
    assert (
        json.loads(unlimited.certificate_._replace(operating_budget=np.inf).to_json())[
            "operating_budget"
        ]
        is None
    )


def test_what_cannot_be_promised_is_refused_with_what_can():
    X = table(200)
    with pytest.raises(
        ValueError,
        match=r"max_loss=0.001 cannot be promised .* on 195 evidence rows. The smallest loss that "
        r"they can promise is 0.0\d+; max_loss=0.001 would need about \d+",
    ):
        certified(X, max_loss=0.001)
    refused = pytest.raises(ValueError, certified, X, max_loss=0.001)
    smallest = float(re.search(r"promise is ([\d.]+);", str(refused.value))[1])
    assert certified(X, max_loss=smallest * 1.05).certificate_.promised
    safe = certified(X, max_loss=0.001, fallback="safe")
    assert not safe.certificate_.promised and safe.certificate_.operating_budget == np.inf
    assert str(safe.certificate_).startswith("Nothing is promised")
    np.testing.assert_array_equal(safe.predict(X), X[:, 2])
    with pytest.raises(ValueError, match='or leave out budget=9.0 and take fallback="safe"'):
        certified(X, max_loss=0.001, budget=9.0, fallback="safe")
    worse = X.copy()
    worse[:, 2] = 0
    with pytest.raises(ValueError, match="no number of rows would be enough: the loss seen"):
        CertifiedRouter(FROZEN, max_loss=0.1, reference=Cheap(), n_points=3, random_state=0).fit(
            worse, np.ones(200, dtype=int)
        )
    with pytest.raises(ValueError, match="nothing to promise"):
        certified(X)


class Cheap:
    def predict(self, X):
        return np.asarray(X)[:, 1].astype(int)


class Other:
    """As good as the expensive model, on other rows."""

    def predict(self, X):
        return (np.asarray(X)[:, 0] < 0.9).astype(int)


@pytest.mark.parametrize("seed", range(9))
def test_more_rows_are_asked_for_than_were_given(seed):
    """A forecast from mean and spread alone said of 395 rows that 318 would be enough."""
    max_loss = np.random.default_rng(seed).uniform(0.3, 0.5)
    options = {"reference": Other(), "n_points": 2, "confidence": 1 - 1e-10}
    refused = pytest.raises(ValueError, certified, table(80, seed), max_loss=max_loss, **options)
    given, needed = re.search(r" (\d+) evidence .* need about (\d+)", str(refused.value)).groups()
    assert int(needed) > int(given)


def test_groups_are_promised_each():
    """One group is lost by the cheap model; on average nobody sees it."""
    X = table(4000)
    rng = np.random.default_rng(0)
    group = np.where(rng.random(4000) < 0.1, "rare", "common")
    X[:, 1] = np.where(group == "rare", 0, X[:, 2])
    average = certified(X, max_loss=0.15)
    within = certified(X, max_loss=0.15, groups=group)
    assert average.certificate_.cost < within.certificate_.cost
    for router, kept in [(average, False), (within, True)]:
        rare = X[group == "rare"]
        assert (rare[:, 2].mean() - router.predict(rare).mean() <= 0.15) == kept
    assert within.certificate_.groups == ["common", "rare"]
    assert "in each of 2 groups" in str(within.certificate_)
    with pytest.raises(ValueError, match="groups must have one entry per row"):
        certified(X, max_loss=0.15, groups=group[:-1])


def test_several_candidates_and_the_data_choose():
    X = table(3000)
    useless = table(3000, seed=5)
    X = np.column_stack([X, useless[:, 0]])

    class_of = Reordered().fit(X)
    paths = [("useless", FrozenEstimator(class_of)), ("good", FROZEN)]
    options = {"max_loss": 0.1, "reference": Expensive(), "n_points": 12, "random_state": 0}
    router = CertifiedRouter(paths, **options).fit(X, np.ones(3000, dtype=int))
    assert router.certificate_.path == "good"
    assert router.choices_[:2] == ["useless: cheap", "useless: expensive"]
    assert set(np.unique(router.route(X))) == {2, 3}
    alone = certified(X, max_loss=0.1)
    assert alone.certificate_.cost <= router.certificate_.cost < 1.1 * alone.certificate_.cost
    with pytest.raises(ValueError, match="must be strings and differ"):
        CertifiedRouter([("a", FROZEN), ("a", FROZEN)], max_loss=0.1).fit(X, np.ones(3000))
    with pytest.raises(ValueError, match="must be a decision estimator of skroute"):
        CertifiedRouter([("a", LogisticRegression())], max_loss=0.1).fit(X, np.ones(3000))


class Reordered(Table):
    """The same with a score that says nothing."""

    def _plan(self, X, budget):
        X = np.asarray(X)
        return super()._plan(np.column_stack([X[:, 4], X[:, 1:]]), budget)


def test_recertify_moves_the_operating_point_without_a_fit():
    X = table(3000)
    router = certified(X, max_loss=0.1)
    before = router.certificate_
    worse = table(3000, seed=1)
    worse[:, 1] = np.where(np.random.default_rng(0).random(3000) < 0.1, 0, worse[:, 1])
    after = router.recertify(worse, np.ones(3000, dtype=int)).certificate_
    assert after.cost > before.cost and after.n_rows == 3000
    with pytest.raises(ValueError, match="cannot be promised"):
        router.recertify(worse[:5], np.ones(5, dtype=int))
    assert router.certificate_ == after
    with pytest.raises(NotFittedError):
        CertifiedRouter(FROZEN, max_loss=0.1).recertify(X, np.ones(3000))


@pytest.fixture(scope="module")
def labelled():
    return make_classification(900, n_informative=5, random_state=0, class_sep=0.7)


MEMBERS = [
    ("tree", DecisionTreeClassifier(max_depth=1, random_state=0)),
    ("logreg", LogisticRegression()),
]


def test_the_best_single_choice_is_every_single_choice(labelled):
    X, y = labelled
    occam = OccamRouterClassifier(MEMBERS, costs=[1, 3], cv=2)
    losses = {}
    for reference in ("best", "tree", "logreg", "full"):
        router = CertifiedRouter(
            occam, max_loss=0.15, reference=reference, n_points=4, random_state=0
        ).fit(X, y)
        losses[reference] = router.operating_points_.loss
    np.testing.assert_allclose(losses["best"], np.maximum(losses["tree"], losses["logreg"]))
    assert losses["full"][0] == 0
    with pytest.raises(ValueError, match=r"single choices \['tree', 'logreg'\]"):
        CertifiedRouter(occam, max_loss=0.1, reference="moon", n_points=2).fit(X, y)


def test_logged_qualities_and_searches(labelled):
    X, y = labelled
    rng = np.random.default_rng(0)
    Q = np.column_stack([rng.random(900) < 0.6, rng.random(900) < 0.9]).astype(float)
    log = BudgetRouter(costs={"s": 1, "l": 5}, cv=2)
    router = CertifiedRouter(log, max_loss=0.2, reference="l", n_points=5, random_state=0)
    router.fit(X, Q)
    assert router.certificate_.promised and router.certificate_.reference == "l"
    occam = OccamRouterClassifier(MEMBERS, costs=[1, 3], cv=2)
    by_class = CertifiedRouter(
        occam, max_loss=0.3, reference="full", groups="class", n_points=4, random_state=0
    ).fit(X, y)
    assert by_class.certificate_.reference == "the estimator itself without a budget"
    assert by_class.certificate_.groups == ["0", "1"]
    search = GridSearchCV(by_class, {"max_loss": [0.2, 0.3]}, cv=2).fit(X, y)
    best = search.best_estimator_
    copied = pickle.loads(pickle.dumps(best))
    np.testing.assert_array_equal(copied.predict(X), best.predict(X))
    assert copied.certificate_ == best.certificate_


def test_losses_and_costs_outside_of_their_ranges_are_refused():
    X = table(300)
    with pytest.raises(ValueError, match="more than loss_range=0.5"):
        certified(X, max_loss=0.1, loss_range=0.5)
    with pytest.raises(ValueError, match="max_cost=2 is below what an evidence row has cost"):
        certified(X, max_loss=0.1, max_cost=2)
    with pytest.raises(ValueError, match="loss must return one number per row"):
        certified(X, max_loss=0.1, loss=lambda y, y_pred: 0.0, loss_range=1.0)
    with pytest.raises(ValueError, match="target y is None"):
        CertifiedRouter(FROZEN, max_loss=0.1).fit(X)


def test_a_loss_of_ones_own_has_its_own_range():
    X = table(3000)
    money = certified(X, max_loss=5.0, loss=lambda y, y_pred: 50.0 * (y != y_pred), loss_range=50.0)
    plain = certified(X, max_loss=0.1)
    assert money.certificate_.cost == plain.certificate_.cost


def test_display():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    from skroute.certified import CertificateDisplay

    router = certified(table(1000), max_loss=0.1)
    display = CertificateDisplay.from_estimator(router)
    np.testing.assert_array_equal(
        display.lines_[0].get_ydata(), router.operating_points_.loss_upper
    )
    assert len(display.lines_) == 1 and display.ax_.get_legend() is None
    pyplot.close(display.figure_)


@pytest.mark.parametrize("of_decisions", DECIDING, ids=lambda e: type(e).__name__)
def test_any_decision_estimator_can_be_certified(of_decisions):
    """Gates, exits and feature sets have no single choices: each is its own reference."""
    X, y = make_classification(1500, n_features=6, n_informative=4, class_sep=0.8, random_state=0)
    router = CertifiedRouter(of_decisions, max_loss=0.25, random_state=0).fit(X[:1000], y[:1000])
    certificate = router.certificate_
    assert certificate.loss_upper <= 0.25 and "at most 0.25" in str(certificate)
    _, _, cost = router.predict_routed(X[1000:])
    assert cost.mean() <= router.estimators_[0].predict_cost(X[1000:]).mean() * (1 + 1e-9)


def test_a_certificate_says_whose_cost_it_compares_with(labelled):
    """A gate has a full model, which is not the gate without a budget; nor has it a price here."""
    X, y = labelled
    forest = RandomForestClassifier(10, random_state=0)
    gate = AdaptGatingClassifier(forest, p_full=0.3, gamma=0.01).fit(X[:400], y[:400])
    options = {"max_loss": 0.4, "n_points": 4, "random_state": 0}
    own = CertifiedRouter(FrozenEstimator(gate), **options).fit(X[400:], y[400:]).certificate_
    assert own.reference == "the estimator itself without a budget"
    assert "full model" not in str(own) and str(own).endswith("that of the reference.")
    full = CertifiedRouter(FrozenEstimator(gate), reference=gate.estimator_, **options)
    against = full.fit(X[400:], y[400:]).certificate_
    assert against.reference == "RandomForestClassifier (its cost is not known)"
    assert against.reference_cost == own.reference_cost
    assert str(against).endswith("below the cost without a budget.")
    assert json.loads(against.to_json())["reference"] == against.reference


@pytest.mark.filterwarnings("error:budget=.* binds nowhere")
def test_budgets_that_nobody_set_warn_of_nothing():
    """The few rows that set their scale may be more expensive than those of fit."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(900, 1))
    costly = X[:, 0] > 0.5
    Q = np.column_stack([rng.random(900) < np.where(costly, 0.2, 0.9), rng.random(900) < 0.7])
    bills = np.column_stack([np.ones(900), np.where(costly, 8.0, 1.0)])
    log = BudgetRouter(Ridge(), costs={"s": 1, "l": 4.5}, budget=2, cv=2)
    frozen = FrozenEstimator(log.fit(X[:300], Q[:300], costs=bills[:300]))
    for seed in range(4):
        options = {"max_loss": 0.1, "reference": "l", "n_points": 4, "random_state": seed}
        certified = CertifiedRouter(frozen, **options)
        assert certified.fit(X[300:], Q[300:], costs=bills[300:]).certificate_.promised


def test_qualities_that_are_texts_are_named():
    rng = np.random.default_rng(0)
    X, Q = rng.uniform(size=(90, 1)), rng.integers(0, 2, size=(90, 2))
    log = BudgetRouter(Ridge(), costs={"s": 1, "l": 4}, budget=2, cv=2).fit(X, Q)
    certified = CertifiedRouter(FrozenEstimator(log), max_loss=0.1, reference="l")
    with pytest.raises(ValueError, match="y must be numbers, the quality of each choice"):
        certified.fit(X, np.where(Q == 1, "ok", "bad").astype(object))


# What evidence cannot say ---------------------------------------------------------------


def occam(**options):
    return OccamRouterClassifier(MEMBERS, costs=[1, 10], cv=2, **options)


@pytest.fixture(scope="module")
def fitted(labelled):
    X, y = labelled
    return CertifiedRouter(occam(), max_loss=0.3, n_points=4, random_state=0).fit(X, y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: y.astype(str), "No label in y"),
        (lambda y: y + 7, "No label in y"),
        (lambda y: np.where(y == 1, np.nan, y), "y must have no missing"),
        (lambda y: np.where(y == 1, None, y), "y must have no missing"),
        (lambda y: np.column_stack([y, y]), "as many axes as in fit"),
    ],
)
def test_evidence_on_which_no_answer_can_be_right_is_refused(fitted, labelled, change, message):
    """All answers and references are wrong there: the losses seen are 0, and mean nothing."""
    X, y = labelled
    before = str(fitted.certificate_)
    with pytest.raises(ValueError, match=message):
        fitted.recertify(X, change(y))
    assert str(fitted.certificate_) == before
    frozen = CertifiedRouter(FrozenEstimator(fitted.estimators_[0]), max_loss=0.3, n_points=4)
    if "axes" not in message:
        with pytest.raises(ValueError, match=message):
            frozen.fit(X, change(y))


def test_no_promise_for_a_group_without_evidence(labelled):
    X, y = labelled
    options = {"max_loss": 0.9, "n_points": 4, "random_state": 0}
    kept = FrozenEstimator(occam().fit(X[:300], y[:300]))
    # Fifty rows or less set the scale of the budgets, this one among them.
    order = np.random.RandomState(0).permutation(600)
    group = (np.arange(600) == order[0]).astype(int)
    with pytest.raises(ValueError, match="groups: 1 of 2 have no evidence rows"):
        CertifiedRouter(kept, groups=group, **options).fit(X[300:], y[300:])
    one = y[300:] == 0
    with pytest.raises(ValueError, match="groups: 1 of 2 have no evidence rows"):
        CertifiedRouter(kept, groups="class", **options).fit(X[300:][one], y[300:][one])
    router = CertifiedRouter(kept, groups="class", **options).fit(X[300:], y[300:])
    with pytest.raises(ValueError, match="groups: 1 of 2 have no evidence rows"):
        router.recertify(X[300:][one], y[300:][one])
    for wrong in (np.where(group == 1, np.nan, 0.0), np.where(group == 1, None, "a")):
        with pytest.raises(ValueError, match="groups must be"):
            CertifiedRouter(kept, groups=wrong, **options).fit(X[300:], y[300:])


def test_a_policy_for_whole_batches_is_refused(labelled):
    """Of a single row it affords the cheap member alone, whatever the evidence was."""
    X, y = labelled
    batch = occam(policy="batch")
    for model in (batch, FrozenEstimator(clone(batch).fit(X, y)), [("one", batch)]):
        with pytest.raises(ValueError, match='policy="batch"'):
            CertifiedRouter(model, max_loss=0.3).fit(X, y)


def test_what_was_certified_stays(labelled):
    """The owner of a fitted estimator may go on with it."""
    X, y = labelled
    own = occam(reg_lambda=0.0).fit(X[:400], y[:400])
    options = {"max_loss": 0.3, "n_points": 4, "random_state": 0}
    router = CertifiedRouter(FrozenEstimator(own), **options).fit(X[400:], y[400:])
    route = router.route(X)
    own.set_params(policy="batch", reg_lambda=1e9)
    np.testing.assert_array_equal(router.route(X), route)
    own.fit(X[:100], 1 - y[:100])
    np.testing.assert_array_equal(router.route(X), route)


def test_members_of_one_name_in_two_candidates_are_two_references(labelled):
    X, y = labelled
    good = FrozenEstimator(occam().fit(X[:400], y[:400]))
    bad = FrozenEstimator(occam().fit(X[:400], 1 - y[:400]))
    losses = []
    for paths in ([("bad", bad), ("good", good)], [("good", good)]):
        router = CertifiedRouter(paths, max_loss=0.5, n_points=4, random_state=0)
        references = router.fit(X[400:], y[400:])._selection.evidence.references
        losses.append(references.mean(axis=0).min())
    assert losses[0] == losses[1]


def test_a_certified_router_can_be_certified(labelled):
    X, y = labelled
    # No finite budget of the inner one can be promised: it has one operating point.
    inner = CertifiedRouter(occam(), max_loss=0.0, fallback="safe", n_points=4, random_state=0)
    outer = CertifiedRouter(inner, max_loss=0.3, n_points=4, random_state=0).fit(X, y)
    assert outer.estimators_[0].min_budget_ == np.inf
    assert outer.certificate_.promised and len(outer.operating_points_.budget) == 1
    with pytest.raises(ValueError, match="cannot be promised"):
        outer.estimators_[0].predict(X, budget=5.0)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda y, y_pred: (y != y_pred) + 1j, "loss must be real numbers"),
        (lambda y, y_pred: np.full(len(y), np.nan), "loss must be finite"),
        (lambda y, y_pred: np.full(len(y), "much"), "loss must be real numbers"),
        (lambda y, y_pred: "much", "loss must return one number per row"),
    ],
)
def test_bad_losses_are_refused_by_name(labelled, loss, message):
    with pytest.raises(ValueError, match=message):
        CertifiedRouter(occam(), max_loss=0.3, loss=loss, loss_range=1.0, n_points=4).fit(*labelled)


def test_the_group_that_is_too_small_is_the_one_named(labelled):
    X, y = labelled
    group = np.zeros(900, dtype=int)
    group[:30] = 1
    with pytest.raises(ValueError, match=r"on \d\d? evidence rows of its smallest or worst group"):
        CertifiedRouter(occam(), max_loss=0.1, groups=group, n_points=4, random_state=0).fit(X, y)


def test_what_an_owner_changes_in_place_was_not_certified():
    """A price list that is written into, and a router that goes on learning."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    Q = (rng.random((400, 2)) < np.column_stack([X[:, 0] > 0, np.full(400, 0.9)])).astype(float)
    prices = {"small": 1.0, "large": 5.0}
    routers = [BudgetRouter(Ridge(), costs=prices), OnlineBudgetRouter(prices)]
    for router in routers:
        router.fit(X[:100], Q[:100])
        certified = CertifiedRouter(FrozenEstimator(router), max_loss=0.3, n_points=4)
        certified.fit(X[100:], Q[100:])
        before = certified.predict_routed(X)
        prices["large"] = 50.0
        if isinstance(router, OnlineBudgetRouter):
            router.partial_fit(X, 1 - Q)
        assert router.predict_cost(X, budget=np.inf).max() > 20
        after = certified.predict_routed(X)
        np.testing.assert_array_equal(after.cost, before.cost)
        np.testing.assert_array_equal(after.route, before.route)
        prices["large"] = 5.0


def logged(n=900):
    problem = make_routing_problem(n, n_features=3, random_state=0)
    router = BudgetRouter(Ridge(), costs=problem.costs)
    return problem.data, problem.quality, router.fit(problem.data[:300], problem.quality[:300])


def test_rows_that_fitted_a_frozen_router_are_noticed():
    X, Q, router = logged()
    certified = CertifiedRouter(FrozenEstimator(router), max_loss=0.2, n_points=5, random_state=0)
    with pytest.warns(UserWarning, match="rows equal rows that the router was fitted on"):
        certified.fit(X[:300], Q[:300])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        certified.fit(X[300:], Q[300:])
    with pytest.warns(UserWarning, match="rows equal rows that the router was fitted on"):
        certified.recertify(X[:300], Q[:300])


@pytest.mark.parametrize("reference", ["best", "choice0", "choice1"])
def test_the_smallest_loss_that_is_said_can_be_promised(reference):
    X, Q, router = logged()
    reference = reference if reference == "best" else router.choices_[int(reference[-1])]
    certified = CertifiedRouter(
        FrozenEstimator(router), max_loss=1e-4, reference=reference, n_points=5, random_state=0
    )
    try:
        certified.fit(X[300:], Q[300:])
    except ValueError as error:
        least = float(re.search(r"they can promise is ([\d.e-]+)", str(error)).group(1))
        assert least > 1e-4
        certified.set_params(max_loss=1.01 * least).fit(X[300:], Q[300:])
        assert certified.certificate_.promised


@pytest.mark.parametrize("several", [False, True])
def test_a_search_stands_for_what_it_finds(several):
    """As `FrozenEstimator` around its `best_estimator_` does, fitted or not."""
    X, y = make_classification(500, 6, n_informative=4, flip_y=0.1, random_state=0)
    router = OccamRouterClassifier(
        [("a", GaussianNB()), ("b", LogisticRegression())],
        costs={"a": 1, "b": 5},
        quality_estimator=Ridge(),
    )
    search = GridSearchCV(router, {"reg_lambda": [0.0, 0.1]}, cv=2)
    options = {"max_loss": 0.3, "n_points": 5, "random_state": 0}

    def certified(estimator, rows):
        estimator = [("one", estimator)] if several else estimator
        return CertifiedRouter(estimator, **options).fit(X[rows], y[rows])

    certified(search, slice(None)).predict(X[:3])
    fitted = clone(search).fit(X[:200], y[:200])
    found = certified(FrozenEstimator(fitted), slice(200, None))
    wanted = certified(FrozenEstimator(fitted.best_estimator_), slice(200, None))
    assert str(found.certificate_) == str(wanted.certificate_)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(found)).route(X), wanted.route(X))
    assert found.recertify(X[200:], y[200:]).certificate_.promised
    # The search may choose what cannot be certified.
    batch = GridSearchCV(router, {"policy": ["batch"]}, cv=2)
    with pytest.raises(ValueError, match='policy="batch"'):
        certified(batch, slice(None))
    with pytest.raises(ValueError, match="with refit"):
        certified(clone(search).set_params(refit=False), slice(None))


def test_pipelines_and_prices_are_told_what_to_do():
    X, y = make_classification(300, 6, flip_y=0.1, random_state=0)
    router = OccamRouterClassifier(
        [("a", GaussianNB()), ("b", LogisticRegression())],
        costs={"a": 1, "b": 5},
        quality_estimator=Ridge(),
    )
    pipeline = make_pipeline(StandardScaler(), router)
    for estimator in (pipeline, FrozenEstimator(pipeline), [("one", pipeline)]):
        with pytest.raises(ValueError, match="of its own. To certify a fitted pipeline"):
            CertifiedRouter(estimator, max_loss=0.3).fit(X, y)
    certified = CertifiedRouter(router, max_loss=0.3, fallback="safe", n_points=3, random_state=0)
    with pytest.raises(ValueError, match=r"set_costs\(costs\).*estimator__costs"):
        certified.set_params(costs={"a": 1, "b": 9})
    # What was certified stays what it is until the next fit.
    expected = certified.fit(X, y).predict_cost(X)
    certified.set_params(estimator__costs={"a": 1, "b": 9})
    np.testing.assert_array_equal(certified.predict_cost(X), expected)


def test_promises_of_nothing_are_refused():
    X, Q, router = logged()
    with pytest.raises(ValueError, match="promises nothing: losses of a row differ by at most 1 "):
        CertifiedRouter(FrozenEstimator(router), max_loss=5).fit(X[300:], Q[300:])
    with pytest.raises(TypeError, match="one answer for each request cannot be certified"):
        CertifiedRouter(router, max_loss=0.1).fit(X, Q[:, 0], choice=np.zeros(len(X), dtype=int))


def test_the_bounds_that_a_certificate_names_are_those_of_its_confidence():
    X = table(800)
    router = certified(X, max_loss=0.2, budget=8.0, confidence=0.9, max_cost=14.5)
    certificate, evidence = router.certificate_, router._selection.evidence
    k = router._selection.point(8.0)
    lost = evidence.losses[:, k] - evidence.references[:, 0]
    options = {"confidence": 0.9}
    assert certificate.loss_upper == pytest.approx(
        mean_upper_bound(lost, bounds=(-1, 1), method="trinomial", **options)
    )
    assert certificate.cost_upper == pytest.approx(
        mean_upper_bound(evidence.costs[:, k], bounds=(0, 14.5), **options)
    )
    points = router.operating_points_
    assert points.cost_upper[k] == certificate.cost_upper
    assert points.loss_upper[k] == certificate.loss_upper
    # Right and wrong in a wider range, which somebody asserts: bet on, not counted.
    wider = certified(X, max_loss=0.3, loss_range=2.0).certificate_
    assert wider.promised and wider.loss_upper >= certified(X, max_loss=0.3).certificate_.loss


def test_only_the_plan_that_is_the_reference_is_known_to_lose_nothing():
    X = np.column_stack([table(300), np.random.default_rng(1).random(300)])
    paths = [("one", FROZEN), ("two", FrozenEstimator(Reordered().fit(X)))]
    for reference, expected in (("full", 1), (Expensive(), 0)):
        made = CertifiedRouter(paths, max_loss=0.5, reference=reference, n_points=4, random_state=0)
        own = made.fit(X, np.ones(300, dtype=int))._selection.evidence.own
        assert (own >= 0).sum() == expected and (own[0] == 0) == bool(expected)
