"""The tables of bench_estimates.py: features, outcomes, prices and splits, cached on disk.

Everything that is fitted to make features is fitted on training rows. The cache is
``benchmarks/.cache`` (not in the repository): remove it where this file has changed.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import _data
import numpy as np
from joblib import Memory
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, KFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from skroute.datasets import fetch_frugalml, fetch_llmrouter, fetch_routellm_mmlu

CACHE = Memory(Path(__file__).parent / ".cache", verbose=0)
# Of larger sets of numbers so many rows are drawn.
MOST_ROWS = 12_500
FRUGALML = ("FERPLUS", "EXPW", "AFFECTNET", "YELP", "IMDB")
FRUGALML += ("WAIMAI", "DIGIT", "AUDIOMNIST", "COMMAND")

# Tables of one split; the others have five.
ONE_SPLIT = ("ParetoBandit", "ParetoBandit, four", "CARROT")


class Log(NamedTuple):
    """Rows whose outcomes are known, and how they are split.

    Attributes
    ----------
    rows : ndarray of shape (n_rows,) of str or (n_rows, n_features) of numbers
    quality : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_choices,)
    splits : list of (ndarray of int, ndarray of int)
    """

    rows: np.ndarray
    quality: np.ndarray
    costs: np.ndarray
    splits: list


class Fold(NamedTuple):
    """One split of a table, ready for an estimator."""

    X: np.ndarray
    quality: np.ndarray
    X_test: np.ndarray
    quality_test: np.ndarray
    costs: np.ndarray


def folds(n_rows, groups=None):
    """Five shuffled folds, of a part where rows are many; rows of a group are together."""
    rows = np.arange(n_rows)
    if groups is not None:
        return list(
            GroupKFold(5, shuffle=True, random_state=0).split(rows, groups=groups)
        )
    if n_rows > MOST_ROWS:
        rows = np.random.RandomState(0).permutation(n_rows)[:MOST_ROWS]
    pairs = KFold(5, shuffle=True, random_state=0).split(rows)
    return [(rows[train], rows[test]) for train, test in pairs]


def same_text(texts):
    return np.unique(np.asarray(texts, dtype=str), return_inverse=True)[1]


def llmrouter():
    log = fetch_llmrouter()
    train = ~log.is_test
    X, Q = np.asarray(log.data)[train], log.quality[train]
    return Log(X, Q, log.costs, folds(len(X)))


def mmlu():
    log = fetch_routellm_mmlu()
    X, Q = np.asarray(log.data)[~log.contaminated], log.quality[~log.contaminated]
    return Log(X, Q.astype(float), log.costs, folds(len(X), same_text(X)))


def paretobandit(n_models=3):
    known, new = (_data.paretobandit(split, n_models) for split in ("val", "test"))
    X, Q = (
        np.array(known.prompt + new.prompt),
        np.concatenate([known.quality, new.quality]),
    )
    split = np.split(np.arange(len(X)), [len(known.prompt)])
    return Log(X, Q, known.cost.mean(axis=0), [tuple(split)])


def cascade(name):
    log, texts = _data.cascades(name), _data.read_csv(f"cascades/{name}_prompts.csv.gz")
    prompts = dict(zip(texts["query_id"], texts["prompt"]))
    X = np.array([prompts[str(key)] for key in log["query_id"]])
    # Train rows are few and of another kind: all rows, five folds, equal prompts
    # together.
    splits = folds(len(X), same_text(X))
    return Log(X, log["correctness"].astype(float), log["cost"].mean(axis=0), splits)


def carrot():
    log = _data.carrot()
    X = np.eye(len(log["task_names"]))[log["task_id"]]
    split = np.flatnonzero(~log["is_test"]), np.flatnonzero(log["is_test"])
    return Log(X, log["correctness"].astype(float), log["price_per_mtoken"], [split])


def frugalml(name):
    """What the free model said of a row, its label and its confidence; the others are bought."""
    log = fetch_frugalml(name)
    label = log.predictions[:, -1]
    X = np.eye(int(label.max()) + 1)[label]
    confidence = log.scores
    if confidence is not None:
        X = np.column_stack([confidence[:, -1], X])
    return Log(
        X, np.asarray(log.quality, dtype=float), np.asarray(log.costs), folds(len(X))
    )


def images(which):
    """Five classifiers; the features are the probabilities of the cheapest."""
    if which == "digits":
        X, y = load_digits(return_X_y=True)
        first, rest = train_test_split(np.arange(len(X)), test_size=0.7, random_state=0)
    else:
        usps = _data.usps()
        X, y = usps.data / 255.0, usps.target
        first, rest = train_test_split(np.arange(len(X)), test_size=0.8, random_state=0)
    models = [
        LogisticRegression(C=0.01, max_iter=300),
        make_pipeline(PCA(10, random_state=0), SVC()),
        RandomForestClassifier(20, random_state=0),
        RandomForestClassifier(100, random_state=0),
        make_pipeline(PCA(40, random_state=0), SVC(C=10)),
    ]
    for model in models:
        model.fit(X[first], y[first])
    Q = np.column_stack([model.predict(X[rest]) == y[rest] for model in models]).astype(
        float
    )
    return Log(
        models[0].predict_proba(X[rest]),
        Q,
        np.array([1.0, 4, 10, 50, 20]),
        folds(len(Q)),
    )


LOGS: dict[str, Callable[[], Log]] = {
    "LLMRouter": llmrouter,
    "MMLU": mmlu,
    "ParetoBandit": paretobandit,
    "ParetoBandit, four": partial(paretobandit, 4),
    "cascades: MMLU": partial(cascade, "mmlu"),
    "cascades: TriviaQA": partial(cascade, "triviaqa"),
    "CARROT": carrot,
    **{f"FrugalML: {name}": partial(frugalml, name) for name in FRUGALML},
    "USPS": partial(images, "usps"),
    "digits": partial(images, "digits"),
}


def words():
    """Words of a prompt as 100 directions."""
    return make_pipeline(
        TfidfVectorizer(sublinear_tf=True, min_df=3), TruncatedSVD(100, random_state=0)
    )


def n_splits(name):
    """How many splits a table has."""
    return 1 if name in ONE_SPLIT else 5


@CACHE.cache
def load(name, i):
    """Split `i` of a table of `LOGS` (Fold)."""
    log = LOGS[name]()
    assert len(log.splits) == n_splits(name)
    train, test = log.splits[i]
    A, B = log.rows[train], log.rows[test]
    if log.rows.ndim == 1:
        embed = words().fit(A)
        A, B = embed.transform(A), embed.transform(B)
    X, X_test = A.astype(np.float64), B.astype(np.float64)
    return Fold(X, log.quality[train], X_test, log.quality[test], log.costs)
