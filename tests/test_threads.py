"""Threads of models times workers do not exceed the cores."""

import pytest
from joblib import parallel_config
from lightgbm import LGBMClassifier
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info

from skroute.routing import OccamRouterClassifier
from skroute.utils import _threads
from skroute.utils._threads import threads_of, workers_for

CORES = 8


@pytest.fixture
def eight_cores(monkeypatch):
    """Pretend that the machine has eight cores."""

    def effective_n_jobs(n_jobs):
        if n_jobs is None:
            return 1
        return n_jobs if n_jobs > 0 else CORES + 1 + n_jobs

    monkeypatch.setattr(_threads, "cpu_count", lambda: CORES)
    monkeypatch.setattr(_threads, "effective_n_jobs", effective_n_jobs)


@pytest.mark.parametrize(
    ("model", "n_threads"),
    [
        (LogisticRegression(), 1),
        (HistGradientBoostingClassifier(), 1),
        (RandomForestClassifier(), 1),
        (RandomForestClassifier(n_jobs=3), 3),
        (RandomForestClassifier(n_jobs=-1), CORES),
        (make_pipeline(StandardScaler(), RandomForestClassifier(n_jobs=3)), 3),
        (BaggingClassifier(RandomForestClassifier(n_jobs=3), n_jobs=2), 3),
        (LGBMClassifier(), CORES),
        (LGBMClassifier(n_jobs=2), 2),
    ],
)
def test_threads_of_a_model_are_those_that_it_is_told(model, n_threads, eight_cores):
    assert threads_of(model) == n_threads


@pytest.mark.parametrize("n_jobs", [None, 1, 2, 4, 8, -1, -2])
@pytest.mark.parametrize("threads_of_forest", [None, 1, 2, 3, 8, -1])
def test_threads_times_workers_do_not_exceed_the_cores(
    n_jobs, threads_of_forest, eight_cores
):
    models = [LogisticRegression(), RandomForestClassifier(n_jobs=threads_of_forest)]
    n_workers = _threads.effective_n_jobs(workers_for(models, n_jobs))
    n_threads = threads_of(models[1])
    assert n_workers == 1 or n_workers * n_threads <= CORES
    asked = _threads.effective_n_jobs(n_jobs)
    # As many workers as were asked for, or as many as there is room for.
    assert n_workers in (asked, max(1, CORES // n_threads))


def test_workers_of_other_backends_are_as_asked(eight_cores):
    models = [RandomForestClassifier(n_jobs=-1)]
    with parallel_config("threading"):
        assert workers_for(models, 4) == 1

    class Elsewhere:
        """A backend whose workers are on other machines."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_threads, "get_active_backend", lambda: (Elsewhere(), None))
        assert workers_for(models, 4) == 4


class ThreadsInFit(LogisticRegression):
    """A model that remembers the threads that its libraries may use in `fit`."""

    def fit(self, X, y, sample_weight=None):
        """Fit the model."""
        # OpenMP is loaded by this module.
        HistGradientBoostingClassifier(max_iter=1).fit(X, y)
        self.n_threads_ = max(pool["num_threads"] for pool in threadpool_info())
        return super().fit(X, y, sample_weight=sample_weight)


def test_libraries_in_workers_share_the_cores():
    X, y = make_classification(60, random_state=0)
    members = [("first", ThreadsInFit()), ("second", ThreadsInFit())]
    router = OccamRouterClassifier(members, costs=[1.0, 2.0], budget=1.5, n_jobs=2)
    router.fit(X, y)
    most_threads = max(1, _threads.cpu_count() // 2)
    for member in router.estimators_:
        assert member.n_threads_ <= most_threads
