"""Rare answers: a share for each, a warning where none is given, rows of each on both sides."""

import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator

from skroute.early_exit import QWYCEnsemble
from skroute.early_exit._algorithms import full_answers, running_values
from skroute.early_exit._calibration import allowed_wrong, fewest_rows, hold_out
from skroute.early_exit._learning import calibrate


@pytest.fixture(scope="module")
def rare():
    """A frozen model whose second answer goes to about 6 % of the rows."""
    X, y = make_classification(
        12_000, 8, n_informative=5, weights=[0.92], class_sep=0.9, random_state=2
    )
    model = HistGradientBoostingClassifier(
        max_iter=25, max_leaf_nodes=8, early_stopping=False, random_state=0
    )
    model.fit(X[:2000], y[:2000])
    rows = X[2000:]
    assert 0.03 < np.mean(model.predict(rows) == 1) < 0.08
    return FrozenEstimator(model), rows


def lost(quick, rows, answers):
    """Share of the rows of each answer that get another one."""
    wrong = quick.predict(rows) != answers
    return np.array([wrong[answers == label].mean() for label in quick.classes_])


def test_a_share_of_all_rows_may_be_a_rare_class_and_fit_says_so(rare):
    frozen, rows = rare
    quick = QWYCEnsemble(frozen, alpha=0.02, order="natural", random_state=0)
    with pytest.warns(UserWarning, match="alpha=0.02 is a share of all rows") as caught:
        quick.optimize(rows[:4000])
    assert caught[0].filename == __file__
    numbers = re.search(
        r"with 1, (\d+) of 1000, it is (\d+)%, and (\d+) of these", str(caught[0])
    )
    n, percent, wrong = map(int, numbers.groups())
    assert percent == round(100 * 0.02 * 1000 / n)
    assert wrong / n == pytest.approx(quick.class_disagreement_[1])
    assert np.isnan(quick.class_disagreement_bound_).all()
    answers = frozen.estimator.predict(rows[4000:])
    # What the warning is for.
    assert lost(quick, rows[4000:], answers)[1] > 0.05


@pytest.mark.slow
def test_shares_for_each_class_hold_on_average_and_their_bounds_with_confidence(rare):
    frozen, rows = rare
    answers = frozen.estimator.predict(rows)
    shares, losses, above, n_splits = np.array([0.01, 0.03]), [], 0, 30
    for seed in range(n_splits):
        rng = np.random.RandomState(seed)
        order = rng.permutation(len(rows))
        quick = QWYCEnsemble(
            frozen, alpha=dict(zip((0, 1), shares)), order="natural", random_state=seed
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            quick.optimize(rows[order[:1500]], X_calibration=rows[order[1500:4500]])
        rest = order[4500:]
        losses.append(lost(quick, rows[rest], answers[rest]))
        above += (losses[-1] > quick.class_disagreement_bound_).any()
        assert quick.disagreement_bound_ == quick.class_disagreement_bound_.max()
        assert quick.predict_cost(rows[rest]).mean() < 24
    mean, error = np.mean(losses, axis=0), np.std(losses, axis=0) / np.sqrt(n_splits)
    assert (mean <= shares + 2.5 * error).all()
    # They are used, too.
    assert mean[1] > 0.002
    # 0.1 % chance of more where each split fails with probability 0.05.
    assert above <= 7


def test_the_guarantee_holds_for_each_class(rare):
    frozen, rows = rare
    quick = QWYCEnsemble(
        frozen,
        alpha={0: 0.02, 1: 0.05},
        order="natural",
        guarantee=True,
        random_state=0,
    ).optimize(rows[:2000], X_calibration=rows[2000:6000])
    assert (quick.class_disagreement_bound_ <= [0.02, 0.05]).all()
    assert (quick.class_disagreement_ <= quick.class_disagreement_bound_).all()
    assert quick.predict_cost(rows[6000:]).mean() < 25


@pytest.mark.parametrize(
    ("share", "said"), [(0.01, "that takes 99 rows"), (0.0, "none may")]
)
def test_too_few_rows_of_an_answer_are_named(share, said, rare):
    frozen, rows = rare
    quick = QWYCEnsemble(
        frozen, alpha={0: 0.01, 1: share}, order="natural", random_state=0
    )
    with pytest.warns(
        UserWarning, match=r"alpha=\{0: 0.01, .* answer 1, .*" + said
    ) as caught:
        quick.optimize(rows[:3000])
    assert caught[0].filename == __file__ and "inf" not in str(caught[0].message)
    assert quick.predict_cost(rows).min() == 25
    assert (quick.class_disagreement_bound_ == 0).all()


@pytest.mark.parametrize(
    ("alpha", "message"),
    [
        ({0: 0.1}, "[1] have none"),
        ({0: 0.1, 1: 0.1, 2: 0.1}, "[2] are no classes"),
        ({0: 0.1, 1: np.nan}, "alpha[1] must be a number from 0 to 1, got nan"),
        ({0: True, 1: 0.1}, "alpha[0] must be a number from 0 to 1, got True"),
    ],
)
def test_messages(alpha, message, rare):
    frozen, rows = rare
    with pytest.raises(ValueError, match=re.escape(message)):
        QWYCEnsemble(frozen, alpha=alpha, order="natural").optimize(rows[:200])


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=4),
    st.floats(0.01, 0.99),
    st.integers(0, 1000),
)
def test_rows_held_out_have_the_answers_of_all(sizes, share, seed):
    y = np.repeat(np.arange(len(sizes)), sizes)
    if len(y) < 2:
        return
    kept, held_out = hold_out(len(y), share, np.random.RandomState(seed), y)
    np.testing.assert_array_equal(np.sort(np.append(kept, held_out)), np.arange(len(y)))
    assert len(held_out) == min(max(1, round(share * len(y))), len(y) - 1)
    rest = len(y) - len(sizes)
    if len(held_out) <= rest:
        assert len(np.unique(y[kept])) == len(sizes)
        expected = (np.array(sizes) - 1) * len(held_out) / max(rest, 1)
        assert (
            np.abs(np.bincount(y[held_out], minlength=len(sizes)) - expected) < 1.01
        ).all()


def test_each_row_of_an_answer_is_as_likely_to_be_held_out():
    y, n = np.repeat([0, 1], [17, 5]), np.zeros(22)
    for seed in range(3000):
        n[hold_out(22, 0.25, np.random.RandomState(seed), y)[1]] += 1
    for label in (0, 1):
        counts = n[y == label]
        assert np.ptp(counts) < 6 * np.sqrt(counts.mean())


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 600), st.integers(500, 990), st.booleans())
def test_fewest_rows(alpha, confidence, guarantee):
    # Where a whole number of rows is exactly enough, rounding would decide.
    alpha, confidence = alpha / 1000, (confidence - 0.37) / 1000
    n = fewest_rows(alpha, confidence, guarantee)
    assert allowed_wrong(n, alpha, confidence, guarantee) >= 0
    assert n == 0 or allowed_wrong(n - 1, alpha, confidence, guarantee) < 0


def test_judged_by_hand():
    """Three members, two policies; the second one wrongs a row that the first one does not."""
    scores = np.array([[1.0, -1.0, 3.0], [1.0, 3.0, -4.0], [1.0, 1.0, -1.0]])[
        :, :, None
    ]
    values, bad = running_values(scores, np.arange(3), np.zeros(1), 0.0)
    answers = full_answers(scores, np.zeros(1), 0.0)
    assert answers.tolist() == [1, 1, 0]
    pairs = [([-9.0, -9.0, 0.0], [2.0, 9.0, 0.0]), ([0.0, 0.0, 0.0], [9.0, 9.0, 0.0])]
    policies = [tuple(map(np.array, pair)) for pair in pairs]
    costs = np.array([1.0, 1.0, 2.0])
    for shares, chosen, wrong in (([1.0, 0.0], 0, [1, 0]), ([1.0, 0.5], 1, [0, 1])):
        calibrated = calibrate(
            policies,
            values,
            bad,
            answers=answers,
            n_answers=2,
            costs=costs,
            alpha=np.array(shares),
        )
        np.testing.assert_allclose(calibrated.tradeoff.cost, [3.0, 7 / 3])
        np.testing.assert_allclose(calibrated.tradeoff.disagreement, [1 / 3, 1 / 3])
        np.testing.assert_allclose(
            calibrated.staged_disagreement, [1 / 3, 1 / 3, 1 / 3]
        )
        assert calibrated.tradeoff.chosen == chosen
        assert calibrated.wrong.tolist() == wrong
        assert calibrated.n_rows.tolist() == [1, 2]
