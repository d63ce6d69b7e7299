"""Routers, gates and buyers give what their members say: probabilities, and their own answers."""

import warnings

import lightgbm as lgb
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier, StackingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.base import dispatch
from skroute.certified import CertifiedRouter
from skroute.feature_sets import PolyDomSelector
from skroute.gating import (
    AdaptGatingClassifier,
    BoostedGate,
    SequentialFeatureClassifier,
)
from skroute.members import CallableClassifier, RecordedClassifier
from skroute.routing import (
    DummyRouterClassifier,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    SequentialRouterClassifier,
)

seeds = st.integers(0, 9999)
N_ROWS = 300
COSTS = [1.0, 3.0]
TREE = DecisionTreeRegressor(max_depth=4, random_state=0)

ROUTERS = {
    "occam": lambda members: OccamRouterClassifier(
        members, costs=COSTS, cv=2, quality_estimator=TREE
    ),
    "dummy": lambda members: DummyRouterClassifier(
        members, costs=COSTS, cv=2, strategy="random"
    ),
    "frugal ml": lambda members: FrugalMLClassifier(members, costs=COSTS, cv=2),
    "frugal mct": lambda members: FrugalMCTClassifier(
        members, costs=COSTS, cv=2, quality_estimator=TREE
    ),
    "sequential": lambda members: SequentialRouterClassifier(
        members, costs=COSTS, cv=2, quality_estimator=TREE, n_prices=3
    ),
}


# Probabilities ----------------------------------------------------------------------------------


class Rounded(ClassifierMixin, BaseEstimator):
    """A classifier whose probabilities are of another precision."""

    def __init__(self, dtype="float16"):
        self.dtype = dtype

    def fit(self, X, y):
        self.model_ = LogisticRegression().fit(X[:, 1:], y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X):
        return self.model_.predict_proba(X[:, 1:]).astype(self.dtype)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def recorded(kind, labels, y, rng):
    """A member on record whose rows are found by the first column of X."""
    n_classes = len(labels)
    said = np.where(rng.random(len(y)) < 0.7, y, rng.integers(0, n_classes, len(y)))
    named = {"column": 0, "classes": labels}
    if kind == "one score":
        return RecordedClassifier(labels[said], scores=rng.random(len(y)), **named)
    if kind == "some scores are 0":
        scores = np.where(rng.random(len(y)) < 0.3, 0.0, rng.random(len(y)))
        return RecordedClassifier(labels[said], scores=scores, **named)
    scores = rng.random((len(y), n_classes)) * 5.0
    scores[np.arange(len(y)), said] += 2.0
    if kind == "partly missing":
        scores[rng.random(scores.shape) < 0.4] = 0.0
    if kind == "fewer classes":
        return RecordedClassifier(scores=scores[:, 1:], column=0, classes=labels[1:])
    return RecordedClassifier(scores=scores, **named)


RECORDED = [
    "one score",
    "some scores are 0",
    "score matrix",
    "partly missing",
    "fewer classes",
]
TRAINED = {
    "float16": lambda: Rounded("float16"),
    "float32": lambda: Rounded("float32"),
    "LightGBM": lambda: lgb.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1),
    "forest": lambda: RandomForestClassifier(5, random_state=0),
}


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(ROUTERS)),
    st.sampled_from(RECORDED),
    st.sampled_from([*RECORDED, *TRAINED]),
    st.sampled_from(["text", "numbers"]),
    st.integers(2, 4),
    seeds,
)
def test_probabilities_sum_to_one(
    router, first, second, type_of_labels, n_classes, seed
):
    """Scores of recorded members were returned as they are: rows summed to .4 to .9."""
    rng = np.random.default_rng(seed)
    labels = np.array(
        ["ant", "bee", "cow", "dog"] if type_of_labels == "text" else [2, 3, 5, 9]
    )
    labels = labels[:n_classes]
    y = np.arange(N_ROWS) % n_classes
    X = np.column_stack(
        [np.arange(N_ROWS), y + rng.normal(size=N_ROWS), rng.normal(size=N_ROWS)]
    )
    members = [
        (
            f"m{k}",
            TRAINED[kind]() if kind in TRAINED else recorded(kind, labels, y, rng),
        )
        for k, kind in enumerate([first, second])
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = ROUTERS[router](members).fit(X, labels[y])
        for budget in (1.0, 2.0, 4.0):
            proba = fitted.predict_proba(X, budget=max(budget, fitted.min_budget_))
            assert proba.shape == (N_ROWS, n_classes) and proba.min() >= 0
            assert_allclose(proba.sum(axis=1), 1, atol=1e-6)
        assert_array_equal(labels[proba.argmax(axis=1)], fitted.predict(X, budget=4.0))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_callable_whose_rows_do_not_sum_to_one_is_refused(dtype):
    def model(total):
        def service(rows):
            return np.full((len(rows), 3), total / 3, dtype=dtype)

        return CallableClassifier(service, classes=["a", "b", "c"], returns="proba")

    rows = np.zeros((4, 1))
    for total in (0.6, 0.0, 2.0):
        for method in (model(total).predict, model(total).predict_proba):
            with pytest.raises(
                ValueError, match="must give probabilities .* sum 1 in each row"
            ):
                method(rows)
    assert_allclose(model(0.999).predict_proba(rows).sum(axis=1), 1, rtol=1e-12)


# Own answers ------------------------------------------------------------------------------------


class OwnRule(ClassifierMixin, BaseEstimator):
    """A classifier that answers by a rule of its own beside its probabilities."""

    def __init__(self, rule="threshold"):
        self.rule = rule

    def fit(self, X, y):
        self.model_ = KNeighborsClassifier(4).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X):
        return self.model_.predict_proba(X)

    def predict(self, X):
        second = self.predict_proba(X)[:, 1]
        if self.rule == "ties":
            return self.classes_[(second >= 0.5).astype(int)]
        return np.where(
            X[:, 0] > 1, self.classes_[1], self.classes_[(second > 0.5).astype(int)]
        )


def low_threshold():
    return FixedThresholdClassifier(LogisticRegression(), threshold=0.2)


OWN_ANSWERS = {
    "fixed threshold": low_threshold,
    "tuned threshold": lambda: TunedThresholdClassifierCV(
        GaussianNB(), scoring="recall_macro", cv=2, thresholds=10
    ),
    "pipeline": lambda: make_pipeline(StandardScaler(), low_threshold()),
    "search": lambda: GridSearchCV(low_threshold(), {"threshold": [0.15, 0.3]}, cv=2),
    "svc": lambda: SVC(probability=True, random_state=0),
    "rule": lambda: OwnRule("columns"),
    "ties": lambda: OwnRule("ties"),
}


def rare(seed):
    X, y = make_classification(
        2 * N_ROWS, 4, n_informative=3, n_redundant=0, weights=[0.8], random_state=seed
    )
    labels = np.array(["no", "yes"])
    return X[:N_ROWS], labels[y[:N_ROWS]], X[N_ROWS:]


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(sorted(ROUTERS)),
    st.sampled_from(sorted(OWN_ANSWERS)),
    st.booleans(),
    seeds,
)
# No row of `fit` lies between 0.5 and the threshold: rows alone do not show that it is moved.
@example("frugal mct", "tuned threshold", True, 5589)
@pytest.mark.filterwarnings("ignore")
def test_a_member_that_answers_alone_gives_its_own_answer(router, kind, frozen, seed):
    """The largest probability was taken: a tuned threshold was lost without a word."""
    X, y, X_new = rare(seed)
    member = OWN_ANSWERS[kind]()
    if frozen:
        member = FrozenEstimator(member.fit(X[::2], y[::2]))
    fitted = ROUTERS[router](
        [("own", member), ("tree", DecisionTreeClassifier(max_depth=2))]
    )
    fitted.fit(X, y)
    own = fitted.named_estimators_.own
    answers = own.predict(X_new)
    for budget in (fitted.min_budget_, 2.0, 4.0):
        routed = fitted.predict_routed(X_new, budget=max(budget, fitted.min_budget_))
        if hasattr(fitted, "choice_weights_"):
            alone = fitted.choice_weights_[:, 0] == 1
        else:
            alone = np.array(fitted.choices_) == "own"
        rows = alone[routed.route]
        assert_array_equal(routed.y_pred[rows], answers[rows])
        # One by one it is the same.
        for row in np.flatnonzero(rows)[:3]:
            one = fitted.predict_routed(
                X_new[[row]], budget=max(budget, fitted.min_budget_)
            )
            if one.route[0] == routed.route[row]:
                assert one.y_pred[0] == answers[row]
    assert_array_equal(fitted.answer(fitted.plan_single(X_new, "own")), answers)
    assert_allclose(fitted.predict_proba(X_new).sum(axis=1), 1)


@pytest.mark.parametrize("kind", ["frugal ml", "frugal mct", "sequential"])
def test_what_is_learned_is_the_quality_of_own_answers(kind):
    """A member is worth what its own answers are worth."""
    X, y, _ = rare(0)
    matrix = np.array([[0.0, 1.0], [9.0, 0.0]])
    member = FrozenEstimator(low_threshold().fit(X[::2], y[::2]))
    plain = FrozenEstimator(LogisticRegression().fit(X[::2], y[::2]))
    router = ROUTERS[kind]([("own", member), ("plain", plain)])
    router.set_params(costs=[1.0, 1.0], budget=1.0, quality=matrix).fit(X, y)
    answer = router.predict(X, budget=1.0)
    # Two members of one cost: the one whose threshold suits the costs of errors is asked.
    assert_array_equal(answer, member.predict(X))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["fixed threshold", "pipeline", "search"])
def test_gates_buyers_and_promises_give_own_answers(kind):
    X, y, X_new = rare(1)
    member = OWN_ANSWERS[kind]()
    gate = AdaptGatingClassifier(
        FrozenEstimator(clone(member).fit(X, y)),
        gate=BoostedGate(max_iter=2, n_estimators=5),
    ).fit(X, y)
    routed = gate.predict_routed(X_new)
    full = routed.route == gate.choices_.index("full")
    assert_array_equal(routed.y_pred[full], gate.estimator_.predict(X_new)[full])
    groups = {"all": [0, 1, 2, 3]}
    buyer = SequentialFeatureClassifier(
        member, feature_groups=groups, random_state=0
    ).fit(X, y)
    routed = buyer.predict_routed(X_new)
    bought = routed.route == 1
    assert bought.any()
    assert_array_equal(routed.y_pred[bought], buyer._models[-1].predict(X_new)[bought])
    router = FrugalMLClassifier(
        [("own", FrozenEstimator(clone(member).fit(X, y)))], costs=[1.0], cv=2
    ).fit(X, y)
    promise = CertifiedRouter(
        FrozenEstimator(router), max_loss=0.9, random_state=0
    ).fit(X, y)
    member_answers = router.named_estimators_.own.predict(X_new)
    assert_array_equal(promise.predict(X_new), member_answers)


# Single precision -------------------------------------------------------------------------------


def dates(dtype, n_rows=200):
    """Rows with a column of seconds since 1970."""
    rng = np.random.default_rng(0)
    y = np.arange(n_rows) % 2
    seconds = 1.58e9 + 86400.0 * rng.permutation(n_rows)
    return np.column_stack([y + rng.normal(size=n_rows), seconds]).astype(dtype), y


class Sigmoids(GaussianNB):
    """A net with one sigmoid for each class, in single precision, or logits."""

    def __init__(self, kind="sigmoids"):
        super().__init__()
        self.kind = kind

    def predict_proba(self, X):
        proba = super().predict_proba(X)
        if self.kind == "sigmoids":
            return (0.3 * proba + 0.4).astype(np.float32)
        if self.kind == "logits":
            return (4 * proba - 2).astype(np.float32)
        # Some rows are rounded as GaussianNB rounds them.
        proba[:: self.kind] = 1.0
        return proba.astype(np.float32)


@pytest.mark.parametrize("router", sorted(set(ROUTERS) - {"dummy"}))
@pytest.mark.parametrize("share", [2, 3, 20])
def test_rows_that_single_precision_has_rounded_are_divided_by_their_sum(router, share):
    X, y = dates(np.float64)
    rounded = ("bayes", Sigmoids(share))
    fitted = ROUTERS[router]([rounded, ("tree", DecisionTreeClassifier(max_depth=2))])
    if router == "occam":
        fitted.set_params(quality="log_loss")
    with pytest.warns(
        UserWarning, match="'bayes' gave .* do not sum to 1, such as .1.0, 1.0., in"
    ):
        fitted.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # One row alone is rounded, or every row.
        for rows in (X[:1], X):
            proba = fitted.predict_proba(rows, budget=fitted.min_budget_)
            assert_allclose(proba.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("router", sorted(set(ROUTERS) - {"dummy"}))
@pytest.mark.parametrize("kind", ["sigmoids", "logits"])
def test_scores_of_another_kind_are_refused_in_single_precision(router, kind):
    X, y = dates(np.float64)
    fitted = ROUTERS[router]([("net", Sigmoids(kind)), ("bayes", GaussianNB())])
    if router == "occam":
        fitted.set_params(quality="log_loss")
    with pytest.raises(ValueError, match="'net' must give probabilities .* softmax"):
        fitted.fit(X, y)


# Members ----------------------------------------------------------------------------------------


def stack():
    return StackingClassifier(
        [("bayes", GaussianNB()), ("tree", DecisionTreeClassifier(max_depth=2))], cv=2
    )


HOLDING_A_STACK = {
    "alone": stack,
    "pipeline": lambda: make_pipeline(StandardScaler(), stack()),
    "search": lambda: GridSearchCV(stack(), {"cv": [2]}, cv=2),
    "search of a pipeline": lambda: GridSearchCV(
        make_pipeline(StandardScaler(), stack()), {"stackingclassifier__cv": [2]}, cv=2
    ),
    "router": lambda: ROUTERS["frugal ml"](
        [("stack", stack()), ("bayes", GaussianNB())]
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", HOLDING_A_STACK)
@pytest.mark.parametrize("make", ROUTERS.values(), ids=ROUTERS)
def test_a_member_may_have_no_predict_until_it_is_fitted(make, kind):
    X, y, X_new = rare(2)
    router = make([("stack", HOLDING_A_STACK[kind]()), ("bayes", GaussianNB())]).fit(
        X, y
    )
    assert router.predict(X_new).shape == (N_ROWS,)
    assert router.predict_proba(X_new).shape == (N_ROWS, 2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["alone", "search of a pipeline"])
@pytest.mark.parametrize(
    "make",
    [
        lambda member: AdaptGatingClassifier(
            member, gate=BoostedGate(max_iter=2, n_estimators=5)
        ),
        lambda member: SequentialFeatureClassifier(
            member, feature_groups={"all": [0, 1, 2, 3]}, random_state=0
        ),
        lambda member: PolyDomSelector(
            member, extractors={"all": [0, 1, 2, 3]}, costs=[1.0], cv=2
        ),
    ],
    ids=["gate", "buyer", "selector"],
)
def test_a_model_may_have_no_predict_until_it_is_fitted(make, kind):
    X, y, X_new = rare(2)
    fitted = make(HOLDING_A_STACK[kind]()).fit(X, y)
    assert fitted.predict(X_new).shape == (N_ROWS,)
    assert fitted.predict_proba(X_new).shape == (N_ROWS, 2)


@pytest.mark.parametrize(
    "member",
    [StandardScaler(), make_pipeline(StandardScaler()), SVC(), make_pipeline(SVC()), 3],
)
def test_what_never_answers_is_refused_before_anything_is_fitted(member):
    X, y, _ = rare(0)
    router = ROUTERS["frugal ml"]([("bayes", GaussianNB()), ("odd", member)])
    with pytest.raises(
        ValueError, match="'odd' must have fit and predict|needs predict_proba"
    ):
        router.fit(X, y)


@pytest.mark.parametrize("name", [213, None, 1.5, b"bytes", ("a", "b"), np.int64(3)])
@pytest.mark.parametrize("make", ROUTERS.values(), ids=ROUTERS)
def test_names_that_are_no_text_are_refused(make, name):
    X, y, _ = rare(0)
    router = make([(name, GaussianNB()), ("b", GaussianNB())])
    with pytest.raises(
        ValueError, match="estimators has the name .* but names must be text"
    ):
        router.fit(X, y)
    selector = PolyDomSelector(GaussianNB(), extractors=[(name, StandardScaler())])
    with pytest.raises(
        ValueError, match="extractors has the name .* but names must be text"
    ):
        selector.fit(X, y)


# Answers of several choices ---------------------------------------------------------------------

KINDS = {
    "numbers": np.arange(4),
    "floats": np.arange(4) / 2,
    "text": np.array(["1", "x", "y", "z"]),
    "truths": np.array([True, False, True, True]),
    "bytes": np.array([b"a", b"b", b"c", b"d"]),
    "dates": np.arange(4).astype("datetime64[D]"),
    "objects": np.array(["1", 2, None, 2.5], dtype=object),
}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=3), seeds)
def test_answers_of_two_types_are_kept_or_refused(kinds, seed):
    """Whole numbers beside texts became texts."""
    route = np.random.default_rng(seed).integers(0, len(kinds), 4)

    def answer(choice, rows):
        return KINDS[kinds[choice]][rows]

    expected = [KINDS[kinds[choice]].tolist()[row] for row, choice in enumerate(route)]
    given = {kinds[choice] for choice in route} - {"objects"}
    if len(given) > 1 and given != {"numbers", "floats"} and "objects" not in kinds:
        with pytest.raises(
            ValueError, match="One choice answers with .* and another with"
        ):
            dispatch(route, answer)
    else:
        try:
            assert dispatch(route, answer).tolist() == expected
        except ValueError as error:
            assert "must have one type" in str(error)


@pytest.mark.parametrize("large", [2**53 + 1, 2**63 + 1])
def test_large_whole_numbers_are_not_rounded(large):
    parts = [np.array([large]), np.array([0.5])]
    with pytest.raises(ValueError, match="must have one type"):
        dispatch(np.array([0, 1]), lambda choice, rows: parts[choice])


@pytest.mark.parametrize("largest", [1.0, 3.0])
def test_recorded_scores_of_several_labels_are_probabilities_or_refused(largest):
    rng = np.random.default_rng(0)
    answers = rng.integers(0, 2, (N_ROWS, 3))
    logs = [
        (
            name,
            RecordedClassifier(
                answers, scores=largest * rng.random((N_ROWS, 3)), column=0
            ),
        )
        for name in "ab"
    ]
    X = np.arange(N_ROWS)[:, np.newaxis]
    router = ROUTERS["frugal mct"](logs).fit(X, answers)
    for model in (logs[0][1], router):
        if largest <= 1:
            proba = model.predict_proba(X)
            assert 0 <= proba.min() and proba.max() <= 1
        else:
            with pytest.raises(
                ValueError, match="must give probabilities between 0 and 1"
            ):
                model.predict_proba(X)
