"""The tables of bench_estimates.py: features, outcomes, prices and splits, cached as arrays.

Everything that is fitted to make features is fitted on training rows. The cache stands in
``benchmarks/.cache`` (not in the repository). Names of its files end in a checksum of the code that
made them, so that nothing is taken for the result of other code.
"""

import csv
import gzip
import io
import os
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import _data
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, KFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from skroute.datasets import fetch_frugalml, fetch_llmrouter, fetch_routellm_mmlu

CACHE = Path(__file__).parent / ".cache"
# Of larger sets of numbers so many rows are drawn.
MOST_ROWS = 12_500
FRUGALML = ("FERPLUS", "EXPW", "AFFECTNET", "YELP", "IMDB")
FRUGALML += ("WAIMAI", "DIGIT", "AUDIOMNIST", "COMMAND")


# Tables of one split; the others have five.
ONE_SPLIT = ("ParetoBandit", "ParetoBandit, four", "CARROT")


def cached_file(*words, files, suffix):
    """A file of the cache, whose name says by which code it was made.

    Parameters
    ----------
    *words : str or int
        What it holds.
    files : sequence of Path
        The code that its content depends on.
    suffix : str
    """
    code = zlib.crc32(b"".join(file.read_bytes() for file in sorted(files)))
    name = "_".join(str(word) for word in words)
    CACHE.mkdir(exist_ok=True)
    return CACHE / f"{''.join(c if c.isalnum() else '_' for c in name)}.{code:08x}{suffix}"


def write_whole(path, content):
    """Bytes to a file that is there whole or not at all, whoever else writes it."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(path)


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
        return list(GroupKFold(5, shuffle=True, random_state=0).split(rows, groups=groups))
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


def paretobandit(suffix=""):
    parts = []
    for split in ("val", "test"):
        with gzip.open(_shared("paretobandit", f"{split}{suffix}.csv.gz"), "rt", newline="") as f:
            parts.append(list(csv.DictReader(f)))
    rewards = [name for name in parts[0][0] if name.startswith("reward_")]
    both = parts[0] + parts[1]
    Q = np.array([[float(row[name]) for name in rewards] for row in both])
    paid = [[float(row[name.replace("reward", "cost")]) for name in rewards] for row in parts[0]]
    split = np.split(np.arange(len(both)), [len(parts[0])])
    X = np.array([row["prompt"] for row in both])
    return Log(X, Q, np.mean(paid, axis=0), [tuple(split)])


def cascade(name):
    data = np.load(_shared("cascades", f"{name}.npz"), allow_pickle=False)
    with gzip.open(_shared("cascades", f"{name}_prompts.csv.gz"), "rt", newline="") as file:
        prompts = {row["query_id"]: row["prompt"] for row in csv.DictReader(file)}
    X = np.array([prompts[str(key)] for key in data["query_id"]])
    # Train rows are few and of another kind: all rows, five folds, equal prompts together.
    splits = folds(len(X), same_text(X))
    return Log(X, data["correctness"].astype(float), data["cost"].mean(axis=0), splits)


def carrot():
    data = np.load(_shared("carrot", "leaderboard.npz"), allow_pickle=False)
    X = np.eye(len(data["task_names"]))[data["task_id"]]
    split = np.flatnonzero(~data["is_test"]), np.flatnonzero(data["is_test"])
    return Log(X, data["correctness"].astype(float), data["price_per_mtoken"], [split])


def frugalml(name):
    """What the free model said of a row, its label and its confidence; the others are bought."""
    log = fetch_frugalml(name)
    label = log.predictions[:, -1]
    X = np.eye(int(label.max()) + 1)[label]
    confidence = log.scores
    if confidence is not None:
        X = np.column_stack([confidence[:, -1], X])
    return Log(X, np.asarray(log.quality, dtype=float), np.asarray(log.costs), folds(len(X)))


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
    Q = np.column_stack([model.predict(X[rest]) == y[rest] for model in models]).astype(float)
    return Log(models[0].predict_proba(X[rest]), Q, np.array([1.0, 4, 10, 50, 20]), folds(len(Q)))


LOGS: dict[str, Callable[[], Log]] = {
    "LLMRouter": llmrouter,
    "MMLU": mmlu,
    "ParetoBandit": paretobandit,
    "ParetoBandit, four": partial(paretobandit, "_k4"),
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


def load(name, i):
    """A split of a table.

    Parameters
    ----------
    name : str
        From `LOGS`.
    i : int

    Returns
    -------
    Fold
    """
    path = cached_file("split", name, i, files=[Path(__file__)], suffix=".npz")
    if not path.exists():
        log = LOGS[name]()
        assert len(log.splits) == n_splits(name)
        train, test = log.splits[i]
        A, B = log.rows[train], log.rows[test]
        if log.rows.ndim == 1:
            embed = words().fit(A)
            A, B = embed.transform(A), embed.transform(B)
        X, X_test = A.astype(np.float64), B.astype(np.float64)
        content = io.BytesIO()
        np.savez_compressed(
            content, *Fold(X, log.quality[train], X_test, log.quality[test], log.costs)
        )
        write_whole(path, content.getvalue())
    with np.load(path, allow_pickle=False) as data:
        return Fold(*(data[f"arr_{k}"] for k in range(len(Fold._fields))))


def _shared(folder, name):
    """A file that no fetcher of the package has; the folder stands in SKROUTE_DATA."""
    return Path(os.environ.get("SKROUTE_DATA", ".")) / folder / name
