"""No estimate judges a row that fitted it, whatever the option.

Spies stand in for every model that a decision estimator takes. A spy remembers the rows that
it was fitted on and notes when it is asked about one of them while the estimator is being
fitted. Every row occurs several times, and the folds keep its copies together: folds that are
dropped, shuffled or taken for one purpose only are noticed like a model that answers its own
training rows.
"""

import itertools

import numpy as np
import pytest
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    clone,
    is_regressor,
)
from sklearn.model_selection import GroupKFold
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute.early_exit import QWYCEnsemble
from skroute.routing import BudgetRouter, CascadeRouter
from skroute.routing.from_answers._combining import CombiningRouter
from tests.estimators import ESTIMATORS

N_GROUPS, N_COPIES = 40, 3
# Which spy was asked about how many of its own rows.
OFFENCES = []


def keys(X):
    """What identifies a row: its bytes. Answers of spies differ from row to row."""
    return [
        row.tobytes() for row in np.ascontiguousarray(np.asarray(X, dtype=np.float64))
    ]


class Spy(BaseEstimator):
    """Remembers the rows of its fit."""

    def __init__(self, name="spy"):
        self.name = name

    def _remember(self, X):
        self.rows_ = set(keys(X))
        self.n_features_in_ = np.asarray(X).shape[1]

    def _note(self, X):
        own = sum(key in self.rows_ for key in keys(X))
        if own:
            OFFENCES.append((self.name, own))

    def _numbers(self, X, n):
        """Numbers in (0, 1) that only this row has."""
        found = np.asarray(X, dtype=np.float64)
        weights = np.random.default_rng(1).normal(size=(found.shape[1], n))
        return 0.5 + 0.4 * np.sin(found @ weights)


class SpyClassifier(ClassifierMixin, Spy):
    def fit(self, X, y, sample_weight=None):
        self._remember(X)
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        self._note(X)
        odds = self._numbers(X, len(self.classes_))
        return odds / odds.sum(axis=1, keepdims=True)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class SpyRegressor(RegressorMixin, Spy):
    def fit(self, X, y, sample_weight=None):
        self._remember(X)
        self.n_outputs_ = np.asarray(y).reshape(len(X), -1).shape[1]
        return self

    def predict(self, X):
        self._note(X)
        found = self._numbers(X, self.n_outputs_)
        return found[:, 0] if self.n_outputs_ == 1 else found


def grouped(n_classes=3, seed=0):
    """Noise: rows that occur several times, in mixed order, with labels that say nothing."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(N_GROUPS), N_COPIES))
    X = rng.normal(size=(N_GROUPS, 5))[groups]
    y = rng.permutation(np.arange(N_GROUPS) % n_classes)[groups]
    return X, y, groups


def folds(kind, X, y, groups):
    """Folds that keep the copies of a row together, in a form that users have."""
    splits = list(GroupKFold(3).split(X, y, groups))
    return splits if kind == "list" else iter(splits)


def spied(estimator):
    """The estimator with a spy in the place of every model that it takes."""
    spies = {}
    for name, value in estimator.get_params(deep=False).items():
        if name == "estimators":
            spy = SpyRegressor if is_regressor(estimator) else SpyClassifier
            spies[name] = [(member, spy(member)) for member, _ in value]
        elif name == "estimator":
            spies[name] = SpyClassifier(name)
        elif name in ("quality_estimator", "cost_estimator"):
            spies[name] = SpyRegressor(name)
    if "cost_estimator" in spies and estimator.costs is not None:
        del spies["cost_estimator"]
    return clone(estimator).set_params(**spies)


# Options under which the ways through a fit differ.
OPTIONS = {
    "quality": ["accuracy", "log_loss", "absolute_error"],
    "embedding": [None, "tree"],
    "reg_lambda": [0.0, 0.5],
    "base": ["auto", "tree"],
    "weight": ["auto", 0.5],
    "delta": [0.0, "auto"],
    "voting": ["hard", "soft"],
    "anytime": [False],
}

# Of an early exit the ensemble's order is optimised on the rows that fitted it, as in its
# paper; labels play no part. What it promises is tested on calibration rows elsewhere.
CASES = [
    estimator
    for estimator in ESTIMATORS
    if hasattr(estimator, "predict_routed")
    and not isinstance(estimator, QWYCEnsemble)
    and "cv" in estimator.get_params(deep=False)
]


def variants(estimator):
    own = estimator.get_params(deep=False)
    names = [name for name in OPTIONS if name in own]
    for values in itertools.product(*(OPTIONS[name] for name in names)):
        options = dict(zip(names, values))
        if "quality" in options and is_regressor(estimator) != (
            options["quality"] == "absolute_error"
        ):
            continue
        if is_regressor(estimator) and options.get("embedding") == "tree":
            continue  # numbers have no probabilities
        # A rule of labels and thresholds refuses what is no mean over labels.
        if isinstance(estimator, CombiningRouter) and options["quality"] == "log_loss":
            continue
        yield options


@pytest.mark.parametrize("kind", ["list", "iterator"])
@pytest.mark.parametrize("estimator", CASES, ids=lambda e: type(e).__name__)
def test_no_model_is_asked_about_rows_that_fitted_it(estimator, kind):
    X, y, groups = grouped()
    for options in variants(estimator):
        model = spied(estimator).set_params(**options)
        model.set_params(cv=folds(kind, X, y, groups))
        target = y + 0.5 if is_regressor(model) else y
        if isinstance(model, (BudgetRouter, CascadeRouter)):
            target = np.random.default_rng(0).random((len(y), 1))
        OFFENCES.clear()
        model.fit(X, target)
        assert not OFFENCES, f"{options}: {OFFENCES[:5]}"


@pytest.mark.parametrize(
    "estimator",
    [case for case in CASES if not is_regressor(case)],
    ids=lambda e: type(e).__name__,
)
def test_of_noise_no_validation_figure_is_above_chance(estimator):
    """Members that know their own rows by heart, and copies of each row in the data."""
    figures = []
    for seed in range(4):
        X, y, groups = grouped(2, seed)
        heart = DecisionTreeClassifier(random_state=seed)
        model, own = clone(estimator), estimator.get_params(deep=False)
        if "estimators" in own:
            model.set_params(
                estimators=[(name, clone(heart)) for name, _ in model.estimators]
            )
        if "estimator" in own:
            model.set_params(estimator=heart)
        if "quality_estimator" in own:
            model.set_params(quality_estimator=DecisionTreeRegressor(random_state=seed))
        model.set_params(cv=folds("list", X, y, groups))
        target = y
        if isinstance(model, (BudgetRouter, CascadeRouter)):
            target = (y == 0).astype(float)[:, None]
        model.fit(X, target)
        figures.append(getattr(model, "validation_quality_", np.nan))
        figures.append(np.max(getattr(model, "mean_quality_", np.nan)))
    # Copies count once: the standard error of a share of 40 rows, and the best of a few.
    figures = [figure for figure in figures if not np.isnan(figure)]
    if figures:
        assert (
            np.mean(figures)
            <= 0.5 + 2.5 * 0.5 / np.sqrt(N_GROUPS * len(figures) / 2) + 0.05
        )
