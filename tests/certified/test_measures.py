"""A promise is counted in what the wrapped router counts in, and read by name."""

import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import make_classification, make_friedman1
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeRegressor

from skroute.certified import CertifiedRouter
from skroute.certified._loss import loss_of
from skroute.guarantees import mean_p_value
from skroute.routing import BudgetRouter, OccamRouterClassifier, OccamRouterRegressor
from tests.certified.toy import QUIET

pytestmark = QUIET

pd = pytest.importorskip("pandas")
OPTIONS = {"n_points": 4, "random_state": 0}
MEMBERS = [("bayes", GaussianNB()), ("logreg", LogisticRegression())]


class Unasked(BaseEstimator):
    """A member that must not be asked."""

    def fit(self, X, y=None):
        raise AssertionError("asked")

    predict = fit


@pytest.mark.parametrize(
    "quality", ["squared_error", "absolute_error", lambda y, y_pred: -abs(y - y_pred)]
)
def test_numbers_need_a_bound_and_are_counted_by_the_routers_own_quality(quality):
    X, y = make_friedman1(700, random_state=0)
    members = [("tree", DecisionTreeRegressor(max_depth=1)), ("ridge", Ridge())]
    made = OccamRouterRegressor(
        members, costs=[1, 10], quality_estimator=Ridge(), quality=quality, cv=2
    )
    unasked = clone(made).set_params(tree=Unasked(), ridge=Unasked())
    for loss, message in (
        (None, "has no known bounds.*give loss_range.*or a loss"),
        (lambda y, y_pred: 0 * y, "loss_range must be given together with loss"),
    ):
        with pytest.raises(ValueError, match=message):
            CertifiedRouter(unasked, max_loss=0.05, loss=loss).fit(X, y)
    fitted = made.fit(X[:300], y[:300])
    router = CertifiedRouter(
        FrozenEstimator(fitted),
        max_loss=150.0,
        loss_range=400.0,
        reference="ridge",
        **OPTIONS,
    ).fit(X[300:], y[300:])
    order = np.random.RandomState(0).permutation(400)[5:]
    rows, truth = X[300:][order], y[300:][order]
    evidence = router._selection.evidence
    assert evidence.single == "ridge"
    quality_of_rows = fitted.row_quality(rows, truth, budget=np.inf).quality
    np.testing.assert_allclose(evidence.losses[:, 1], -quality_of_rows)
    power = 2 if quality == "squared_error" else 1
    np.testing.assert_allclose(
        evidence.reference_losses[:, 0],
        np.abs(truth - fitted.named_estimators_.ridge.predict(rows)) ** power,
    )
    unit = "by the router's own quality"
    if not callable(quality):
        unit = quality.replace("_", " ")
    assert f"({unit})" in str(router.certificate_)
    assert "the losses of no row differ by more than 400" in str(router.certificate_)
    # What nobody's model is: the answer of the cheap one is no loss of 0.
    assert evidence.losses.mean() > 1


MATRIX = {(0, 1): 1.0, (1, 0): 50.0}


@pytest.mark.parametrize(
    ("quality", "unit", "bound"),
    [
        (MATRIX, "in the unit of the cost matrix", 50.0),
        ("log_loss", "log loss", -np.log(np.finfo(float).eps)),
        ("brier", "Brier score", 1.0),
        ("probability", "probability of the true label given up", 1.0),
    ],
)
def test_labels_are_counted_by_the_routers_own_quality(quality, unit, bound):
    X, y = make_classification(900, n_informative=5, weights=[0.8], random_state=0)
    fitted = OccamRouterClassifier(
        MEMBERS, costs=[1, 10], quality=quality, quality_estimator=Ridge(), cv=2
    ).fit(X[:400], y[:400])
    router = CertifiedRouter(
        FrozenEstimator(fitted), max_loss=0.99 * bound, reference="logreg", **OPTIONS
    ).fit(X[400:], y[400:])
    certificate, selection = router.certificate_, router._selection
    assert unit in str(certificate) and selection.loss_range == pytest.approx(bound)
    order = np.random.RandomState(0).permutation(500)[5:]
    rows, truth = X[400:][order], y[400:][order]
    evidence = router._selection.evidence
    k = int(np.flatnonzero(evidence.budgets == certificate.operating_budget)[-1])
    seen = fitted.row_quality(rows, truth, budget=certificate.operating_budget)
    np.testing.assert_allclose(evidence.losses[:, k], -seen.quality)
    member = fitted.named_estimators_.logreg
    if quality is MATRIX:
        answers = member.predict(rows)
        expected = np.where(answers == truth, 0.0, np.where(truth == 1, 50.0, 1.0))
        batch = router.certify_batch(X[400:], n_labels=60)
        assert unit in str(batch.certificate)
    else:
        proba = member.predict_proba(rows)[np.arange(len(rows)), truth]
        expected = {
            "log_loss": -np.log(np.clip(proba, np.finfo(float).eps, 1)),
            "brier": (1 - proba) ** 2,
            "probability": -proba,
        }[quality]
        with pytest.raises(ValueError, match="is one of probabilities"):
            router.certify_batch(X[400:], n_labels=60)
    np.testing.assert_allclose(evidence.reference_losses[:, 0], expected)


def test_what_is_no_mean_over_rows_is_refused_before_anything_is_asked():
    X, y = make_classification(300, random_state=0)
    unasked = OccamRouterClassifier(MEMBERS, costs=[1, 10], quality="balanced_accuracy")
    with pytest.raises(ValueError, match="is no mean of losses over rows"):
        CertifiedRouter(unasked.set_params(bayes=Unasked()), max_loss=0.1).fit(X, y)
    Q = np.array([[0.0, 7.0]] * 300)
    with pytest.raises(ValueError, match="qualities in y go from 0 to 7"):
        CertifiedRouter(BudgetRouter(Unasked(), costs=[1, 2]), max_loss=0.1).fit(X, Q)


@pytest.mark.parametrize("frozen", [True, False])
def test_frames_of_qualities_are_read_by_name(frozen):
    rng = np.random.default_rng(0)
    X = rng.random((600, 1))
    right = rng.random((600, 3)) < np.column_stack([X, 0.5 + X / 2, np.full(600, 0.97)])
    Q = pd.DataFrame(right.astype(int), columns=["s", "m", "l"])
    costs = {"m": 2, "l": 9, "s": 1}
    model = BudgetRouter(Ridge(alpha=1e-3), costs=costs, cv=2)
    if frozen:
        model = FrozenEstimator(model.fit(X[:300], Q[:300]))
    one_order = ["s", "m", "l"]
    other_order = ["l", "s", "m"]
    results = []
    for columns in (one_order, other_order):
        router = CertifiedRouter(model, max_loss=0.25, **OPTIONS)
        router.fit(X[300:], Q.iloc[300:][columns])
        certificate = router.certificate_
        routed = np.array(router.choices_)[router.route(X)]
        results.append((certificate.loss, certificate.cost, routed.tolist()))
        path = router.estimator_
        assert dict(zip(path.choices_, path.costs_, strict=True)) == costs
        # The same evidence, the same promise.
        again = router.recertify(X, Q[one_order]).certificate_
        assert router.recertify(X, Q[other_order]).certificate_ == again
    assert results[0] == results[1]
    pyarrow = pytest.importorskip("pyarrow")
    arrow = pyarrow.table({name: Q[name] for name in other_order})
    assert router.recertify(X, arrow).certificate_ == again
    router.fit(X[300:], arrow.slice(300))
    assert (router.certificate_.loss, router.certificate_.cost) == results[0][:2]
    with pytest.raises(ValueError, match=r"y must have the columns"):
        router.recertify(X, Q.rename(columns={"s": "tiny"}))


# Abstaining, and losses of the user ---------------------------------------------------

MATRICES = {
    "a right answer costs": [[1.0, 2.0], [4.0, 1.0]],
    "a right answer gains": [[-5.0, 1.0], [3.0, -2.0]],
    "an error costs": [[0.0, 1.0], [3.0, 0.0]],
}


@pytest.mark.parametrize(
    "quality", [*MATRICES, "accuracy", "probability", "brier", "log_loss"]
)
def test_a_row_that_abstains_counts_as_the_router_has_it(quality):
    """For any best quality, and never beyond the range of losses."""
    rng = np.random.default_rng(0)
    X, y = make_classification(700, 6, flip_y=0.3, random_state=0)
    router = OccamRouterClassifier(
        MEMBERS,
        costs=[1, 10],
        quality_estimator=Ridge(),
        quality=np.array(MATRICES[quality]) if quality in MATRICES else quality,
        cv=2,
    )
    for abstain_cost in rng.uniform(0.05, 1.0, 3):
        router.set_params(abstain_cost=abstain_cost).fit(X[:300], y[:300])
        certified = CertifiedRouter(
            FrozenEstimator(router), max_loss=0.9, fallback="safe", **OPTIONS
        ).fit(X[300:], y[300:])
        order = np.random.RandomState(0).permutation(400)[5:]
        evidence = certified._selection.evidence
        n_abstained = 0
        for k in range(int(evidence.single is not None), len(evidence.budgets)):
            budget = evidence.budgets[k]
            seen = router.row_quality(X[300:][order], y[300:][order], budget=budget)
            np.testing.assert_allclose(evidence.losses[:, k], -seen.quality)
            n_abstained += (seen.route == 2).sum()
        assert n_abstained
        abstain_loss = -router.abstain_quality_
        if quality in MATRICES:
            losses = np.column_stack([MATRICES[quality], [abstain_loss, abstain_loss]])
            expected = np.ptp(losses, axis=1).max()
            assert certified._selection.loss_range == pytest.approx(expected)


@pytest.mark.parametrize(
    ("quality", "loss_options"),
    [(MATRIX, {}), ("accuracy", {"loss": np.not_equal, "loss_range": 1.0})],
    ids=["cost matrix", "loss of the user"],
)
def test_a_router_certified_by_any_loss_can_be_pickled(quality, loss_options):
    X, y = make_classification(300, n_informative=5, random_state=0)
    router = OccamRouterClassifier(
        MEMBERS, costs=[1, 10], quality=quality, quality_estimator=Ridge(), cv=2
    )
    made = CertifiedRouter(
        router, max_loss=0.9, fallback="safe", **loss_options, **OPTIONS
    ).fit(X, y)
    copied = pickle.loads(pickle.dumps(made))
    assert copied.certificate_ == made.certificate_
    np.testing.assert_array_equal(copied.predict(X), made.predict(X))


@pytest.mark.parametrize("named", [False, True])
def test_a_loss_of_the_user_is_that_of_the_references_too(named):
    """In another unit the same is promised, about the same single choices."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 2))
    P = np.column_stack(
        [0.5 + 0.4 * np.tanh(X[:, 0]), np.full(1500, 0.85), np.full(1500, 0.8)]
    )
    Q = (rng.random(P.shape) < P).astype(float)
    names = ["a", "b", "c"] if named else [0, 1, 2]
    costs = {"a": 1, "b": 10, "c": 5} if named else [1, 10, 5]
    router = FrozenEstimator(BudgetRouter(Ridge(), costs=costs).fit(X[:500], Q[:500]))
    mean_quality = Q[500:].mean(axis=0)
    plain = CertifiedRouter(router, max_loss=0.08, **OPTIONS).fit(X[500:], Q[500:])
    # Without a loss, it is minus the quality: its distance to 1 is not known.
    references = plain._selection.evidence.reference_losses
    np.testing.assert_allclose(references.mean(axis=0), -mean_quality, atol=0.02)
    assert plain.certificate_.cost < 8
    for unit in (10.0, 0.1, 1.0):

        def loss(Q, answers, unit=unit):
            choices = [names.index(answer) for answer in answers.tolist()]
            return unit * (1 - Q[np.arange(len(Q)), choices])

        certified = CertifiedRouter(
            router, max_loss=0.08 * unit, loss=loss, loss_range=unit, **OPTIONS
        ).fit(X[500:], Q[500:])
        references = certified._selection.evidence.reference_losses
        np.testing.assert_allclose(
            references.mean(axis=0) / unit, 1 - mean_quality, atol=0.02
        )
        certificate = certified.certificate_
        assert certificate.cost == plain.certificate_.cost
        assert certificate.single == plain.certificate_.single
        expected = pytest.approx(plain.certificate_.loss, abs=1e-12)
        assert certificate.loss / unit == expected


# The range of losses, by counting all answers -----------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize(
    "quality", ["accuracy", "probability", "brier", "log_loss", "matrix"]
)
def test_the_range_is_what_two_answers_to_a_row_can_differ_by(quality, n_classes):
    """By every answer that is sure of itself: none is beyond it, and two reach it."""
    rng = np.random.default_rng(n_classes)
    matrix = rng.integers(5, 20, (n_classes, n_classes)).astype(float)
    np.fill_diagonal(matrix, rng.integers(-4, 5, n_classes))
    router = OccamRouterClassifier(
        MEMBERS, costs=[1, 10], quality=matrix if quality == "matrix" else quality
    )
    y = np.arange(n_classes)
    loss = loss_of(router, y, None, None)
    # An answer for each class: its label, or a probability of 1.
    sure_answers = y
    if loss.objective.asks == "predict_proba":
        sure_answers = np.eye(n_classes)
    losses = np.empty((n_classes, n_classes))  # (true class, answer)
    for j in y:
        same_answer = np.array([sure_answers[j]] * n_classes)
        losses[:, j] = -loss.objective.of(y, same_answer)
    assert loss.range == pytest.approx(np.ptp(losses, axis=1).max())
    assert loss.exact == (quality == "accuracy")
    if quality == "matrix":
        np.testing.assert_allclose(losses, matrix)
        for j in y:
            excess = loss.against(y, np.full(n_classes, j))
            np.testing.assert_allclose(excess, matrix[:, j] - np.diag(matrix))


@pytest.mark.parametrize("kind", [float, int, bool, object])
def test_only_whole_qualities_are_right_or_wrong_by_what_they_are(kind):
    """An answer that loses a third of a point is neither right nor wrong."""
    Q = np.array([[1, 0], [0, 1], [1, 1]]).astype(kind)
    loss = loss_of(BudgetRouter(Ridge(), costs=[1, 10]), Q, None, None)
    assert loss.exact == (kind in (int, bool)) and loss.range == 1
    with pytest.raises(ValueError, match="trinomial"):
        mean_p_value([1 / 3, 0.0], 0.2, bounds=(-1.0, 1.0), method="trinomial")


@pytest.mark.parametrize("classes", [[0, 2], [1, 2], [0, 1, 2]])
def test_probabilities_of_a_reference_are_those_of_its_own_classes(classes):
    X, y = make_classification(600, n_informative=5, n_classes=3, random_state=0)
    fitted = OccamRouterClassifier(
        MEMBERS, costs=[1, 10], quality="brier", quality_estimator=Ridge(), cv=2
    ).fit(X[:300], y[:300])
    rows = np.isin(y, classes)
    other = LogisticRegression().fit(X[rows], y[rows])
    router = CertifiedRouter(
        FrozenEstimator(fitted), max_loss=1.9, reference=other, **OPTIONS
    )
    router.fit(X[300:], y[300:])
    order = np.random.RandomState(0).permutation(300)[5:]
    proba = np.zeros((295, 3))
    proba[:, classes] = other.predict_proba(X[300:][order])
    expected = ((proba - np.eye(3)[y[300:][order]]) ** 2).sum(axis=1)
    np.testing.assert_allclose(
        router._selection.evidence.reference_losses[:, 0], expected
    )
