"""Batches of known rows: the promise, the label budget, calls and costs."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from skroute.base import Call, Routed
from skroute.certified import CertifiedRouter
from skroute.certified._batch import BatchTest, RowSet, certify_path
from skroute.certified._loss import Loss
from skroute.guarantees import mean_p_value
from skroute.metrics._objectives import OF_LABELS
from skroute.routing import BudgetRouter, FrugalMCTClassifier, OccamRouterClassifier
from tests.certified.toy import ASKED, FROZEN, QUIET, Counted, Expensive, Table, table

pytestmark = QUIET

RIGHT = Loss(OF_LABELS["accuracy"], 1.0, "wrong answers per row", exact=True)


def around(**options):
    """Return a certified router of the fitted table, not fitted itself."""
    defaults = {
        "max_loss": 0.1,
        "reference": "full",
        "confidence": 0.9,
        "random_state": 0,
    }
    return CertifiedRouter(FROZEN, **{**defaults, **options})


@pytest.mark.slow
def test_the_promise_holds_over_draws_of_labels_and_a_naive_rule_does_not():
    """The batch is fixed; only the labels are drawn."""
    X = table(600)
    n_draws, max_loss, level = 200, 0.1, 0.2
    broken = naive = 0
    for seed in range(n_draws):
        router = around(
            max_loss=max_loss, confidence=1 - level, random_state=seed, n_points=30
        )
        batch = router.certify_batch(X, n_labels=60)
        broken += (batch.y_pred != X[:, 2]).mean() > max_loss + 1e-9
        # The mutation: the cheapest budget at which a tenth of the labelled rows
        # differs.
        rows = batch.labelled
        for budget in np.linspace(10, 1, 30):
            answers = FROZEN.estimator.predict(X[rows], budget=budget)
            if (answers != X[rows, 2]).mean() > max_loss:
                break
            naive_budget = budget
        rest = np.delete(np.arange(600), rows)
        wrong = FROZEN.estimator.predict(X[rest], budget=naive_budget) != X[rest, 2]
        naive += wrong.sum() / 600 > max_loss
    assert broken <= stats.binom.ppf(0.99, n_draws, level)
    assert naive > stats.binom.ppf(0.99, n_draws, level)


def test_labels_are_used_and_the_certificate_says_what_is_promised():
    X = table(1000)
    batch = around(n_points=100).certify_batch(X, n_labels=120)
    assert len(np.unique(batch.labelled)) == 120
    np.testing.assert_array_equal(batch.y_pred[batch.labelled], X[batch.labelled, 2])
    assert (batch.y_pred != X[:, 2]).mean() <= 0.1
    certificate = batch.certificate
    assert certificate.n_rows == 120 and certificate.n_population == 1000
    assert certificate.cost == pytest.approx(batch.cost.mean())
    assert certificate.saving > 0.2 and certificate.loss_upper <= 0.1
    assert "is at most 0.1 (wrong answers per row), if the 120 labelled rows" in str(
        certificate
    )
    assert json.loads(certificate.to_json())["n_population"] == 1000
    rest = np.delete(np.arange(1000), batch.labelled)
    expected = FROZEN.estimator.predict_routed(
        X[rest], budget=certificate.operating_budget
    )
    np.testing.assert_array_equal(batch.y_pred[rest], expected.y_pred)
    np.testing.assert_array_equal(batch.route[rest], expected.route)
    np.testing.assert_allclose(batch.cost[rest], expected.cost)
    again = around(n_points=100).certify_batch(X, n_labels=120)
    np.testing.assert_array_equal(again.labelled, batch.labelled)
    stricter = around(max_loss=0.05, n_points=100).certify_batch(X, n_labels=120)
    assert stricter.certificate.cost > certificate.cost


@pytest.fixture(scope="module")
def occam():
    X, y = make_classification(1400, n_informative=5, random_state=0, class_sep=0.7)
    tree = Counted(DecisionTreeClassifier(max_depth=2, random_state=0), "tree")
    members = [
        ("tree", tree),
        ("logreg", Counted(LogisticRegression(max_iter=500), "logreg")),
    ]
    router = OccamRouterClassifier(members, costs=[1, 10], cv=2)
    return router.fit(X[:600], y[:600]), X[600:]


@pytest.mark.parametrize("reference", ["logreg", "full"])
def test_a_member_is_asked_once_about_a_row_and_only_where_it_answers(occam, reference):
    router, X = occam
    certified_router = CertifiedRouter(
        FrozenEstimator(router),
        max_loss=0.25,
        reference=reference,
        random_state=0,
        n_points=20,
    )
    ASKED.clear()
    batch = certified_router.certify_batch(X, n_labels=80)
    # A row is known by its first feature.
    others = np.delete(np.arange(len(X)), batch.labelled)
    for choice, name in enumerate(router.choices_):
        asked = np.array(ASKED.get(name, []))
        labelled = np.isin(asked, X[batch.labelled, 0])
        assert len(np.unique(asked[labelled])) == labelled.sum()
        expected = X[others, 0][batch.route[others] == choice]
        np.testing.assert_array_equal(np.sort(asked[~labelled]), np.sort(expected))
    if reference == "logreg":
        answers = router.named_estimators_["logreg"].predict(X[batch.labelled])
        np.testing.assert_array_equal(batch.y_pred[batch.labelled], answers)
        assert (batch.route[batch.labelled] == 1).all()
        # The bought answer, and that of the tree if the path came to it.
        paid = batch.cost[batch.labelled]
        assert set(np.round(paid, 9)) <= {10.0, 11.0} and (paid == 11).any()


def test_a_person_behind_predict_and_their_price():
    X = table(800)
    router = around(reference=Expensive(), confidence=0.95, n_points=20)
    with pytest.raises(ValueError, match="label_cost must be given"):
        router.certify_batch(X)
    batch = router.certify_batch(X, label_cost=50.0)
    assert (batch.route[batch.labelled] == -1).all()
    assert (batch.cost[batch.labelled] >= 50).all()
    assert batch.certificate.reference_cost == 50
    assert batch.certificate.reference == "Expensive"


def test_losses_of_ones_own_are_bet_on_without_replacement():
    X = table(1500)
    plain = around().certify_batch(X, n_labels=300)
    half = around(
        loss=lambda y, y_pred: 0.5 * (y != y_pred), loss_range=1.0, max_loss=0.05
    )
    batch = half.certify_batch(X, n_labels=300)
    assert 0.5 * (batch.y_pred != X[:, 2]).mean() <= 0.05
    assert batch.certificate.cost >= 0.9 * plain.certificate.cost
    negative = around(loss=lambda y, y_pred: -1.0 * (y != y_pred), loss_range=1.0)
    with pytest.raises(ValueError, match="must lie between 0 and loss_range=1.0"):
        negative.certify_batch(X)


def test_a_budget_of_a_batch_is_known_before_it_is_spent():
    X = table(600)
    cost = around().certify_batch(X).certificate.cost
    batch = around(budget=cost * 1.01).certify_batch(X)
    assert batch.cost.mean() <= cost * 1.01 and batch.certificate.budget == cost * 1.01
    for budget, n_labels in ((cost * 0.9, 100), (2.0, 600)):
        with pytest.raises(
            ValueError, match="is below the .* per row that this batch costs"
        ):
            around(budget=budget).certify_batch(X, n_labels=n_labels)


def test_too_few_labels_are_refused_before_any_is_bought(monkeypatch):
    X = table(600)
    with monkeypatch.context() as patch:
        patch.setattr(Table, "_answer", lambda *_: pytest.fail("a model was called"))
        refused = pytest.raises(ValueError, around().certify_batch, X, n_labels=5)
    words = r"n_labels=5 can promise no max_loss=0.1 on a batch of 600 rows.* at "
    words += r"least (\d+) labels. The smallest loss that 5 can promise is 0.\d+"
    around().certify_batch(X, n_labels=int(re.search(words, str(refused.value))[1]))


def test_labels_that_do_not_certify_the_safe_end_say_what_they_can_promise():
    X = table(600)

    class Truth:
        def predict(self, rows):
            return np.where(rows[:, 0] < 0.25, 1 - rows[:, 2], rows[:, 2]).astype(int)

    router = CertifiedRouter(FROZEN, max_loss=0.1, reference=Truth(), random_state=0)
    with pytest.raises(
        ValueError, match=r"promised by 100 labels.*would need about \d+ labels"
    ):
        router.certify_batch(X, label_cost=0)
    refused = pytest.raises(ValueError, router.certify_batch, X, label_cost=0)
    smallest = float(re.search(r"promise is ([\d.]+);", str(refused.value))[1])
    router.set_params(max_loss=smallest + 0.002).certify_batch(X, label_cost=0)


@pytest.mark.parametrize(
    "options, arguments, message",
    [
        ({"reference": "best"}, {}, "Which choice is best is not known"),
        ({"max_loss": None, "budget": 3.0}, {}, "max_loss must be given"),
        ({"groups": "class"}, {}, "a batch is promised as a whole"),
        ({}, {"n_labels": 0}, "n_labels must be a whole number from 1 up"),
        ({}, {"n_labels": True}, "n_labels must be a whole number from 1 up"),
        ({}, {"n_labels": 101}, "more than the 100 rows of the batch"),
        ({}, {"label_cost": -1}, "label_cost of 'an answer' must be a finite number"),
        ({"confidence": 2}, {}, "confidence"),
    ],
)
def test_bad_batches_are_refused_in_words(options, arguments, message):
    with pytest.raises(ValueError, match=message):
        around(**options).certify_batch(table(100), **{"n_labels": 60, **arguments})


def test_what_must_be_fitted_is_and_names_are_no_answers():
    X = np.random.default_rng(0).random((300, 2))
    router = BudgetRouter(LogisticRegression(), costs={"s": 1, "l": 5}, cv=2)
    with pytest.raises(NotFittedError):
        CertifiedRouter(router, max_loss=0.1, reference="full").certify_batch(X)
    log = BudgetRouter(costs={"s": 1, "l": 5}, cv=2).fit(X, X)
    with pytest.raises(ValueError, match="The answers are names of choices"):
        CertifiedRouter(
            FrozenEstimator(log), max_loss=0.1, reference="full"
        ).certify_batch(X)
    with pytest.raises(TypeError, match="does not take 'size' in a call"):
        around().certify_batch(table(100), size=[1] * 100)


class Script:
    """Router with given answers to all rows for each budget."""

    choices_ = ["a", "b"]

    def __init__(self, answers):
        self.answers = answers

    def make_call(self, budget):
        return Call(budget)

    def respond(self, X, call):
        y_pred = np.asarray(self.answers[call.budget])
        cost = np.full(len(X), float(call.budget))
        return Routed(y_pred, np.zeros(len(X), dtype=int), cost)


def test_disagreements_at_different_budgets_add_up():
    """Each budget has other rows that differ. All rows up to a budget count."""
    test = BatchTest(n_rows=60, n_labels=30, max_loss=0.3, level=0.1, loss=RIGHT)
    few = test.n_tolerated
    assert few >= 2
    rows = np.arange(30)
    script = Script({3.0: rows * 0, 2.0: 1 * (rows < few), 1.0: 1 * (rows >= 30 - few)})
    bought = Routed(np.zeros(30), np.full(30, -1), np.ones(30))
    grid = np.array([3.0, 2.0, 1.0])
    X = np.zeros((30, 1))

    def last_certified(script, budgets, test=test):
        rows = RowSet(script, X, {})
        return certify_path(rows, budgets, bought, test, from_full=False).last

    assert last_certified(script, grid) == 1
    assert last_certified(script, grid[[0, 2]]) == 1
    # A row that differs at one budget and agrees at a cheaper one still counts.
    script = Script({3.0: rows * 0, 2.0: rows * 0 + 1, 1.0: rows * 0})
    assert last_certified(script, grid) == 0
    assert last_certified(script, grid[[0, 2]]) == 1
    # Losses in between are not added up, but nothing behind a budget that fails is
    # tried.
    script = Script({3.0: rows * 0, 2.0: 1 - 0 * rows, 1.0: rows * 0})
    between = replace(test, loss=Loss(OF_LABELS["accuracy"], 1.0, ""))
    assert last_certified(script, grid, between) == 0


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.slow
def test_the_test_of_a_batch_holds_over_draws_of_its_labels(exact):
    """At the first population that breaks the promise, with more power."""
    rng = np.random.default_rng(0)
    n, k, max_loss, level, n_draws = 205, 120, 0.1, 0.1, 500
    loss = Loss(OF_LABELS["accuracy"], 1.0, "", exact=exact)
    test = BatchTest(n_rows=n, n_labels=k, max_loss=max_loss, level=level, loss=loss)
    assert test.n_allowed == 20
    passed = independent = power = 0
    for _ in range(n_draws):
        order = rng.permutation(n)
        # The labelled rows' answers are used: in the exact test the others alone are at
        # risk.
        if exact:
            marked = order < test.n_allowed + 1 + test.n_tolerated
            passed += test.passes(marked[:k], marked[:k] * 1.0)
            continue
        values = np.r_[np.full(42, 0.5), np.zeros(n - 42)][order]
        passed += test.passes(values[:k] > 0, values[:k])
        values = np.r_[np.full(26, 0.5), np.zeros(n - 26)][order][:k]
        power += test.passes(values > 0, values)
        independent += mean_p_value(values, max_loss) <= level
    assert passed <= stats.binom.ppf(0.99, n_draws, level)
    assert exact or power > 1.2 * independent
    if not exact:
        values = rng.random(n) * 0.2
        upper = replace(test, n_labels=n).loss_upper(values > 0, values)
        assert upper == pytest.approx(values.mean(), abs=1e-6)


@pytest.mark.parametrize("max_loss", [0.02, 0.1, 0.13, 0.3])
def test_what_is_allowed_is_no_more_than_was_asked(max_loss):
    for n in range(1, 200):
        allowed = BatchTest(n, 1, max_loss, 0.1, RIGHT).n_allowed
        assert allowed / n <= max_loss + 1e-9 and max_loss < (allowed + 1) / n


def test_answers_that_are_tried_in_addition_to_bought_ones_are_paid():
    """The answers of the plan without a budget are paid once."""
    X = table(800)
    full = around(n_points=20).certify_batch(X, n_labels=100)
    rows = full.labelled
    extra_cost = full.cost[rows] - (1 + 9 * X[rows, 3])
    # The cheap model, on the rows that a smaller budget would leave to it.
    tried = X[rows, 0] > (full.certificate.operating_budget - 1) / 9
    assert set(extra_cost[tried]) == {1.0} and tried.any()
    assert set(extra_cost) == {0.0, 1.0} and (X[rows, 0][extra_cost == 1]).min() > 0.1
    person = around(n_points=20, reference=Expensive()).certify_batch(
        X, n_labels=100, label_cost=5
    )
    rows = person.labelled
    extra_cost = person.cost[rows] - (5 + 1 + 9 * X[rows, 3])
    assert set(extra_cost.round(9)) <= {0.0, 1.0}


def test_label_sets_are_promised_by_what_they_have_in_common():
    X, Y = make_multilabel_classification(1300, n_classes=3, random_state=0)
    members = [
        ("stump", DecisionTreeClassifier(max_depth=1, random_state=0)),
        ("deep", DecisionTreeClassifier(random_state=0)),
    ]
    router = FrugalMCTClassifier(members, costs=[1, 10], base="stump").fit(
        X[:1000], Y[:1000]
    )
    made = CertifiedRouter(
        FrozenEstimator(router), max_loss=0.45, reference="full", n_points=4
    )
    batch = made.set_params(random_state=0).certify_batch(X[1000:], n_labels=120)
    assert "at most 0.45 (label sets not in common)" in str(batch.certificate)
    bought = router.predict(X[1000:], budget=np.inf)
    either = (bought | batch.y_pred).sum(axis=1)
    common = np.where(
        either > 0, (bought & batch.y_pred).sum(axis=1) / np.maximum(either, 1), 1.0
    )
    assert (1 - common).mean() <= 0.45
    # Sets that differ at all are more than that.
    assert (bought != batch.y_pred).any(axis=1).mean() > (1 - common).mean()
