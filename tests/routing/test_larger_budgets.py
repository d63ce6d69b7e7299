"""Larger budgets of every router where more calls gain nothing: drawn tables, paired over draws."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.neighbors import KNeighborsRegressor

from skroute.members import RecordedClassifier
from skroute.routing import (
    BudgetRouter,
    CascadeRouter,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    OccamRouterRegressor,
    SequentialRouterClassifier,
)

NAMES = ["small", "middle", "large"]
COSTS = dict(zip(NAMES, [1.0, 4.0, 16.0]))
# Mean costs per row, from the cheapest plan to more than all calls together.
BUDGETS = [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, np.inf]
N_TRAIN = 300
N_ROWS = 1300
# Recorded answers are found by these numbers, which are too small to be signals.
IDS = np.arange(N_ROWS) * 1e-9


class Column(RegressorMixin, BaseEstimator):
    """Regressor whose answer is a column of X."""

    def __init__(self, column):
        self.column = column

    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        return X[:, self.column]


class Table:
    """Requests that a dearer model answers a little worse, with signals that are pure noise.

    A dearer model repeats the answer of the cheaper one, but spoils 15 % of the right ones and
    mends 30 % of the wrong ones. Which ones is chance: no set of answers is better than that of
    the cheapest model.
    """

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, 2, N_ROWS)
        right = rng.random(N_ROWS) < 0.75
        columns = []
        for _ in NAMES:
            columns.append(right)
            spoiled = right & (rng.random(N_ROWS) < 0.15)
            mended = ~right & (rng.random(N_ROWS) < 0.3)
            right = (right & ~spoiled) | mended
        self.right = np.column_stack(columns)
        self.answers = np.where(
            self.right, self.labels[:, np.newaxis], 1 - self.labels[:, np.newaxis]
        )
        self.noise = rng.normal(size=(N_ROWS, 3))
        self.scores = rng.uniform(0.5, 1.0, size=(N_ROWS, 3))
        self.train = np.arange(N_TRAIN)
        self.test = np.arange(N_TRAIN, N_ROWS)

    def members(self):
        """Return the recorded models; a row is found by the first column of X."""
        members = []
        for k, name in enumerate(NAMES):
            record = RecordedClassifier(
                self.answers[:, k],
                scores=self.scores[:, k],
                classes=[0, 1],
                ids=IDS,
                column=0,
            )
            members.append((name, record))
        return members

    def rows(self, rows):
        """Return X of some rows: their numbers and noise."""
        return np.column_stack([IDS[rows], self.noise[rows]])


def classified(router, table):
    """Quality and cost of the test rows at each budget, by a router over classifiers."""
    router.fit(table.rows(table.train), table.labels[table.train])
    quality, cost = [], []
    for budget in BUDGETS:
        routed = router.predict_routed(table.rows(table.test), budget=budget)
        quality.append((routed.y_pred == table.labels[table.test]).mean())
        cost.append(routed.cost.mean())
    return quality, cost


def occam(table):
    router = OccamRouterClassifier(
        table.members(), costs=COSTS, quality_estimator=KNeighborsRegressor(3)
    )
    return classified(router, table)


def frugal_ml(table):
    return classified(FrugalMLClassifier(table.members(), costs=COSTS), table)


def frugal_mct(table):
    router = FrugalMCTClassifier(
        table.members(), costs=COSTS, quality_estimator=KNeighborsRegressor(3)
    )
    return classified(router, table)


def sequential(table):
    router = SequentialRouterClassifier(
        table.members(), costs=COSTS, quality_estimator=KNeighborsRegressor(3)
    )
    return classified(router, table)


def occam_of_numbers(table):
    """Quality is minus the squared error, 0 or 1."""
    members = [(name, Column(1 + k)) for k, name in enumerate(NAMES)]
    router = OccamRouterRegressor(
        members, costs=COSTS, quality_estimator=KNeighborsRegressor(3)
    )
    X = np.column_stack([IDS, table.answers, table.noise])
    router.fit(X[table.train], table.labels[table.train].astype(float))
    quality, cost = [], []
    for budget in BUDGETS:
        routed = router.predict_routed(X[table.test], budget=budget)
        quality.append(-((routed.y_pred - table.labels[table.test]) ** 2).mean())
        cost.append(routed.cost.mean())
    return quality, cost


def budget_router(table):
    router = BudgetRouter(KNeighborsRegressor(3), costs=COSTS)
    router.fit(table.noise[table.train], table.right[table.train].astype(float))
    quality, cost = [], []
    for budget in BUDGETS:
        routed = router.predict_routed(table.noise[table.test], budget=budget)
        quality.append(table.right[table.test, routed.route].mean())
        cost.append(routed.cost.mean())
    return quality, cost


def cascade_of(table, order):
    signals = {name: table.noise + 0.1 * k for k, name in enumerate(NAMES)}
    router = CascadeRouter(costs=COSTS, order=order)
    router.fit(
        None,
        table.right[table.train].astype(float),
        signals={name: values[table.train] for name, values in signals.items()},
    )
    quality, cost = [], []
    for budget in BUDGETS:
        routed = router.predict_routed(
            None,
            budget=budget,
            signals={name: values[table.test] for name, values in signals.items()},
            request_id=table.test,
        )
        quality.append(table.right[table.test, routed.route].mean())
        cost.append(routed.cost.mean())
    return quality, cost


def cascade(table):
    return cascade_of(table, NAMES)


def free_cascade(table):
    return cascade_of(table, None)


QUICK = [budget_router, cascade, frugal_ml, occam_of_numbers]
SLOW = [free_cascade, frugal_mct, occam, sequential]


@pytest.mark.parametrize(
    "measure",
    [*QUICK, *(pytest.param(measure, marks=pytest.mark.slow) for measure in SLOW)],
)
def test_where_more_calls_gain_nothing_a_larger_budget_is_not_spent(measure):
    """Paired over draws no budget is worse than a smaller one by more than two errors."""
    n_draws = 10
    quality, cost = map(
        np.array, zip(*[measure(Table(seed)) for seed in range(n_draws)])
    )
    for larger in range(1, len(BUDGETS)):
        for smaller in range(larger):
            gains = quality[:, larger] - quality[:, smaller]
            error = gains.std(ddof=1) / np.sqrt(n_draws)
            assert gains.mean() >= -2 * error, (BUDGETS[larger], BUDGETS[smaller])
    # The cheapest model costs 1, and the next one 4.
    assert np.median(cost, axis=0).max() < 1.05


@pytest.mark.parametrize("measure", [budget_router, cascade, frugal_ml])
def test_where_more_calls_gain_a_larger_budget_is_spent(measure):
    """The large model is always right: without a budget it answers most rows."""
    table = Table(0)
    table.right[:, 2] = True
    table.answers[:, 2] = table.labels
    quality, cost = measure(table)
    assert quality[-1] > quality[0] + 0.1
    assert cost[-1] > COSTS["large"] / 2
    assert all(np.diff(quality) >= 0)
