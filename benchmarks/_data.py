"""Tables that only the benchmarks read, from the folder `SKROUTE_DATA` (or ../shared/data).

They cannot be downloaded in this form; a benchmark that needs one says so where it is
absent.
"""

import csv
import gzip
import os
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

_BESIDE = Path(__file__).parents[2] / "shared" / "data"
FOLDER = Path(os.environ.get("SKROUTE_DATA") or _BESIDE)


def load(path):
    """Arrays of an npz file as a Bunch."""
    if not (FOLDER / path).is_file():
        raise SystemExit(
            f"{path} is not in {FOLDER.name}: set SKROUTE_DATA to the folder with it."
        )
    with np.load(FOLDER / path, allow_pickle=False) as arrays:
        found = dict(arrays)
    if "X" in found:
        found |= {"data": found["X"], "target": found["y"]}
    return Bunch(**found)


def read_csv(path):
    """Columns of a compressed CSV file as lists of text."""
    with gzip.open(FOLDER / path, "rt", encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines))
    return dict(zip(rows[0], zip(*rows[1:])))


def adult():
    """Adult (UCI): 14 columns, of which the categorical ones hold codes, -1 where missing."""
    return load("adult/adult.npz")


def letter():
    """Letter (UCI): 16 numbers, 26 classes."""
    return load("letter/letter.npz")


def covertype():
    """15,000 rows of Covertype (UCI): 54 numbers, 7 classes."""
    return load("covtype/covtype15k.npz")


def usps():
    """USPS digits, 11,000 images of 16 x 16."""
    return load("usps/usps.npz")


def spam():
    """Spambase (UCI), with the split of Covert et al. (ICML 2023): is_val, is_test."""
    return load("spam/spam.npz")


def cascades(name):
    """Nine language models on "mmlu" or "triviaqa" (Zellinger and Thomson, arXiv 2501.09345)."""
    return load(f"cascades/{name}.npz")


def anytime():
    """Four steps of one model on GSM8K, three splits (adaptive-anytime-llm-routing)."""
    return load("anytime/gsm8k.npz")


def carrot():
    """18 language models on 21,065 items of 38 tasks (Somerstep et al., arXiv 2502.03261)."""
    return load("carrot/leaderboard.npz")


def calm():
    """Losses and layers of a summariser at 100 thresholds (Jazbec et al., arXiv 2405.20915)."""
    return load("calm/cnndm.npz")


def paretobandit(split, n_models=3):
    """Quality and cost of three or four language models, "val" or "test" (ParetoBandit)."""
    columns = read_csv(f"paretobandit/{split}{'' if n_models == 3 else '_k4'}.csv.gz")
    names = [
        name.removeprefix("reward_") for name in columns if name.startswith("reward_")
    ]
    return Bunch(
        prompt=list(columns["prompt"]),
        source=np.array(columns["source"]),
        names=names,
        quality=np.array([columns[f"reward_{name}"] for name in names], dtype=float).T,
        cost=np.array([columns[f"cost_{name}"] for name in names], dtype=float).T,
    )
