"""Votes: optimal stopping against the linear program, and ensembles that count votes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import hypergeom
from sklearn.datasets import make_classification
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from skroute.early_exit import QWYCEnsemble
from skroute.early_exit._learning import ExitOptions, ScoredRows, better_stopping
from skroute.early_exit._votes import optimal_stopping, vote_path


def state_law(law, negative):
    """Mass of each state (t, k), and of those in it that are negative, by the hypergeometric."""
    n = len(law) - 1
    votes = np.arange(n + 1)
    mass = [
        np.array([law @ hypergeom.pmf(k, n, votes, t) for k in range(t + 1)])
        for t in votes
    ]
    against = [
        np.array(
            [(law * negative) @ hypergeom.pmf(k, n, votes, t) for k in range(t + 1)]
        )
        for t in votes
    ]
    return mass, against


def linear_program(law, negative, costs, allowed):
    """Kalman and Moscovich: mass that stops at each state for either answer, or goes on."""
    n = len(law) - 1
    mass, against = state_law(law, negative)
    states = [(t, k) for t in range(1, n + 1) for k in range(t + 1)]
    number_of_state = {state: i for i, state in enumerate(states)}
    spent = np.cumsum(costs)
    # Shares of each state's mass that stop negative and positive; what is left goes on.
    cost, wrong = np.zeros(2 * len(states)), np.zeros(2 * len(states))
    balance, inflow = np.zeros((len(states), 3 * len(states))), np.zeros(len(states))
    for (t, k), i in number_of_state.items():
        share = against[t][k] / mass[t][k]
        cost[2 * i : 2 * i + 2] = spent[t - 1]
        # All members are never wrong: the library answers.
        wrong[2 * i], wrong[2 * i + 1] = (1 - share, share) if t < n else (0.0, 0.0)
        balance[i, [2 * i, 2 * i + 1, 2 * len(states) + i]] = 1.0
        if t == 1:
            inflow[i] = mass[1][k]
        else:
            for before, drawn in ((k, t - k), (k - 1, k)):
                if (t - 1, before) in number_of_state:
                    # Going on from `before`, the chance to be here.
                    chance = mass[t][k] * drawn / t / mass[t - 1][before]
                    j = number_of_state[t - 1, before]
                    balance[i, 2 * len(states) + j] = -chance
    cost = np.append(cost, np.zeros(len(states)))
    wrong = np.append(wrong, np.zeros(len(states)))
    last = [(0, 0 if t == n else None) for t, _ in states]
    bounds = [(0, None)] * (2 * len(states)) + last
    solution = linprog(
        cost, A_ub=wrong[None], b_ub=[allowed], A_eq=balance, b_eq=inflow, bounds=bounds
    )
    return solution.fun


def what_it_does(law, negative, costs, below, above):
    """Mean cost and share of wrong answers of a policy, by its states one after the other."""
    n, spent = len(law) - 1, np.cumsum(costs)
    mass, against = state_law(law, negative)
    going, cost, wrong = np.array([1.0]), 0.0, 0.0
    for t in range(1, n + 1):
        here = np.zeros(t + 1)
        for k in range(t):
            if going[k]:
                up = (
                    mass[t][k + 1] * (k + 1) / t / mass[t - 1][k]
                    if mass[t - 1][k]
                    else 0.0
                )
                here[k + 1] += going[k] * up
                here[k] += going[k] * (1 - up)
        k = np.arange(t + 1)
        low, high = (k <= below[t - 1]), (k >= above[t - 1])
        share = np.divide(against[t], mass[t], out=np.zeros(t + 1), where=mass[t] > 0)
        stops = low | high | (t == n)
        cost += spent[t - 1] * here[stops].sum()
        if t < n:
            wrong += (here * share)[high & ~low].sum() + (here * (1 - share))[low].sum()
        going = np.where(stops, 0.0, here)
    return cost, wrong


@settings(max_examples=25, deadline=None)
@given(
    weights=st.lists(st.floats(0.01, 1), min_size=3, max_size=9),
    costs=st.lists(st.floats(0.2, 2), min_size=8, max_size=8),
    price=st.floats(0.5, 300),
)
def test_the_backward_pass_solves_the_linear_program(weights, costs, price):
    law = np.array(weights) / np.sum(weights)
    n = len(law) - 1
    costs = np.array(costs[:n])
    negative = (2 * np.arange(n + 1) <= n).astype(float)
    below, above = optimal_stopping(law, negative, costs, [price])
    cost, wrong = what_it_does(law, negative, costs, below[0], above[0])
    assert cost == pytest.approx(
        linear_program(law, negative, costs, wrong + 1e-12), abs=1e-6
    )


def test_one_side_alone_may_stop():
    law = np.full(12, 1 / 12)
    negative = (np.arange(12) < 6).astype(float)
    below, above = optimal_stopping(law, negative, np.ones(11), [3.0], use_hi=False)
    assert (above == 12).all() and (below[0, :-1] >= 0).any()
    below, above = optimal_stopping(law, negative, np.ones(11), [3.0], use_lo=False)
    assert (below == -1).all() and (above[0, :-1] < 12).any()


def test_a_law_of_votes_finds_what_few_rows_do_not_show():
    """Hard votes in random order: the share that the law predicts is that of fresh rows."""
    rng, n = np.random.RandomState(0), 41

    def draw(m):
        share = rng.beta(0.5, 0.5, size=m)
        return ((rng.uniform(size=(n, m)) < share) - 0.5)[:, :, None].astype(np.float32)

    path = vote_path(
        draw(300), np.zeros(1), 0.0, np.ones(n), n * np.geomspace(1000, 1, 20)
    )
    fresh = draw(20_000)
    sums = np.cumsum(fresh[:, :, 0], axis=0)
    answers = sums[-1] > 0
    results = []
    for lo, hi in path:
        up, leave = sums > hi[:, None], (sums > hi[:, None]) | (sums < lo[:, None])
        leave[-1] = True
        position = np.argmax(leave, axis=0)
        rows = np.arange(sums.shape[1])
        wrong = (position < n - 1) & (up[position, rows] != answers)
        results.append((position.mean() + 1, wrong.mean()))
    cost, wrong = np.transpose(results)
    assert (np.diff(cost) <= 0).all() and (np.diff(wrong) >= 0).all()
    # A price of 1,000 evaluations buys few errors, one of a single evaluation many.
    assert wrong[0] < 0.002 < 0.03 < wrong[-1]
    assert cost[0] < 0.5 * n


def data(n_classes=2, n=1200):
    return make_classification(
        n, n_informative=6, n_classes=n_classes, class_sep=1.5, random_state=0
    )


MODELS = {
    "forest": lambda: RandomForestClassifier(40, min_samples_leaf=3, random_state=0),
    "bagged-labels": lambda: BaggingClassifier(
        LinearSVC(), 15, max_features=0.5, max_samples=0.2, random_state=0
    ),
    "bagged-means": lambda: BaggingClassifier(
        LogisticRegression(), 15, max_samples=0.2, random_state=0
    ),
    "hard": lambda: VotingClassifier(
        # An even number, for ties.
        list(
            zip(
                "abcd",
                [
                    GaussianNB(),
                    LogisticRegression(),
                    DecisionTreeClassifier(),
                    LinearSVC(),
                ],
            )
        )
    ),
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_all_votes_are_the_library(name, n_classes):
    X, y = data(n_classes)
    y = np.array(["no", "yes", "maybe"])[y]
    model = MODELS[name]().fit(X[:300], y[:300])
    whole = QWYCEnsemble(FrozenEstimator(model), alpha=0.0, stopping="votes").optimize(
        X[300:]
    )
    np.testing.assert_array_equal(whole.predict(X), model.predict(X))
    assert hasattr(whole, "predict_proba") == hasattr(model, "predict_proba")
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(
            whole.predict_proba(X), model.predict_proba(X), atol=1e-6
        )
    share = dict.fromkeys(model.classes_, 0.05)
    quick = QWYCEnsemble(
        FrozenEstimator(model), alpha=share, stopping="votes", random_state=0
    )
    quick.optimize(X[300:])
    assert quick.stopping_ == "votes"
    assert np.mean(quick.predict(X) != model.predict(X)) < 0.1
    if name != "hard":
        assert quick.predict_cost(X).mean() < 0.8 * len(quick.order_)


def test_weighted_votes_and_an_order_of_ones_own_take_thresholds():
    X, y = data()
    members = [("a", GaussianNB()), ("b", LogisticRegression()), ("c", GaussianNB())]
    model = VotingClassifier(members, weights=[1, 3, 1.5]).fit(X[:300], y[:300])
    quick = QWYCEnsemble(FrozenEstimator(model), alpha=0.02, random_state=0).optimize(
        X[300:]
    )
    assert quick.stopping_ == "thresholds"
    whole = QWYCEnsemble(FrozenEstimator(model), alpha=0.0).optimize(X[300:])
    np.testing.assert_array_equal(whole.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="needs members that count alike"):
        quick.set_params(stopping="votes").optimize(X[300:])
    forest = FrozenEstimator(MODELS["forest"]().fit(X[:300], y[:300]))
    ordered = QWYCEnsemble(forest, order="natural", random_state=0).optimize(X[300:])
    assert ordered.stopping_ == "thresholds"
    costs = np.random.RandomState(0).uniform(1, 5, size=40)
    voting = QWYCEnsemble(forest, stopping="votes", costs=costs, alpha=0.05).optimize(
        X[300:]
    )
    assert (np.diff(costs[voting.order_]) >= 0).all(), (
        "members that cost less vote first"
    )


@pytest.mark.parametrize("calibration", [0.25, 0.4])
def test_the_better_one_is_taken_and_keeps_alpha(calibration):
    X, y = data(n=4000)
    model = MODELS["forest"]().fit(X[:500], y[:500])
    options = {"alpha": 0.01, "calibration": calibration, "random_state": 0}
    by_stopping = {
        stopping: QWYCEnsemble(
            FrozenEstimator(model), stopping=stopping, **options
        ).optimize(X[500:2500])
        for stopping in ("auto", "thresholds", "votes")
    }
    # Which one it was is said, and it does what it does when it is asked for.
    rest = X[2500:]
    full = model.predict(rest)
    cost = {
        name: quick.predict_cost(rest).mean() for name, quick in by_stopping.items()
    }
    assert np.mean(by_stopping["auto"].predict(rest) != full) <= 0.02
    assert cost["auto"] == pytest.approx(cost[by_stopping["auto"].stopping_], rel=0.3)


@pytest.mark.parametrize("better", ["votes", "thresholds"])
def test_what_costs_less_is_taken(better):
    rng = np.random.RandomState(0)
    share = rng.beta(0.4, 0.4, size=600)
    scores = (rng.uniform(size=(101, 600)) < share) - 0.5
    if better == "thresholds":
        # One member knows what the others will say: an order finds it.
        scores[77] = np.where(scores.sum(axis=0) > 0, 2.0, -2.0)
    options = ExitOptions(alpha=0.01, stopping="auto")
    sample = ScoredRows(scores[:, :, None].astype(np.float32), np.zeros(1), 0.0)
    assert better_stopping(options, sample, np.ones(101), rng) == better


@pytest.mark.slow
def test_the_bound_of_votes_holds():
    X, y = data(n=4500)
    model = RandomForestClassifier(20, min_samples_leaf=3, random_state=0).fit(
        X[:500], y[:500]
    )
    X = X[500:]
    full, above, shares = model.predict(X), 0, []
    for seed in range(16):
        order = np.random.RandomState(seed).permutation(len(X))
        fit, apart, rest = np.split(order, [500, 2000])
        quick = QWYCEnsemble(
            FrozenEstimator(model), alpha=0.02, stopping="votes", guarantee=True
        )
        quick.optimize(X[fit], X_calibration=X[apart])
        shares.append(np.mean(quick.predict(X[rest]) != full[rest]))
        above += shares[-1] > quick.disagreement_bound_
    # 0.8 of 16 are expected at most; hurried enough that the bound means something.
    assert above <= 4 and np.mean(shares) > 0.005
    # The most hurried thresholds would break it.
    hurried = quick.tradeoff(X)[0][-1]
    assert hurried > 0.02


def test_one_member_or_members_of_one_mind():
    X, y = data()
    for forest in (
        RandomForestClassifier(1, random_state=0).fit(X, y),
        RandomForestClassifier(5, max_depth=1, bootstrap=False, max_features=None).fit(
            X, y
        ),
        RandomForestClassifier(3).fit(X, np.zeros(len(X))),
    ):
        quick = QWYCEnsemble(
            FrozenEstimator(forest), stopping="votes", alpha=0.05
        ).optimize(X)
        np.testing.assert_array_equal(quick.predict(X), forest.predict(X))
