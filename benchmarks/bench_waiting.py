"""Where people wait: logs of texts, single rows, searches, many classes, the first call.

Each part runs alone:

    OMP_NUM_THREADS=1 python benchmarks/bench_waiting.py --part texts

Parts print seconds, or milliseconds for single rows, next to a reference that was
measured in the same process: the time of the members alone, or scikit-learn's own
pipeline. So the ratios can be compared where the machine is busy.
"""

import argparse
import time
import warnings

import _data
import numpy as np
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from skroute.quality import FrameEncoder
from skroute.routing import BudgetRouter


def seconds(function):
    """Return the time that a function takes, without arguments."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


# Logs of texts ------------------------------------------------------------------------


def cascades_of_texts():
    """Return prompts, qualities (n_rows, 9) and costs (n_rows, 9) of MMLU."""
    table = _data.load("cascades/mmlu.npz")
    prompts = _data.read_csv("cascades/mmlu_prompts.csv.gz")
    prompt_of = dict(zip(prompts["query_id"], prompts["prompt"]))
    texts = [prompt_of[name] for name in table["query_id"]]
    qualities = table["correctness"].astype(np.float64)
    return np.array(texts, dtype=object), qualities, table["cost"]


def part_texts():
    """Print the time of fits on prompts, in units of one fit of the encoder."""
    X, quality, costs = cascades_of_texts()
    prices = costs.mean(axis=0)
    budget = prices.mean()
    choice = np.random.default_rng(0).integers(0, quality.shape[1], len(X))
    rows = np.arange(len(X))
    ridge = make_pipeline(FrameEncoder(), Ridge())
    encode = seconds(lambda: FrameEncoder().fit(X))
    print(f"one fit of FrameEncoder on {len(X)} prompts: {encode:.2f} s")

    def log_of_answers(router, **given):
        return router.fit(X, quality[rows, choice], choice=choice, **given)

    fits = {
        "one answer per request, default estimator": lambda: log_of_answers(
            BudgetRouter(costs=prices, budget=budget)
        ),
        "one answer per request, FrameEncoder and Ridge": lambda: log_of_answers(
            BudgetRouter(ridge, costs=prices, budget=budget)
        ),
        "one answer per request, cost_estimator": lambda: log_of_answers(
            BudgetRouter(cost_estimator=ridge, budget=budget),
            costs=costs[rows, choice],
        ),
        "full table, default estimator": lambda: BudgetRouter(
            costs=prices, budget=budget
        ).fit(X, quality),
        "full table, cost_estimator": lambda: BudgetRouter(
            cost_estimator=ridge, budget=budget
        ).fit(X, quality, costs=costs),
    }
    for name, fit in fits.items():
        time_of_fit = seconds(fit)
        print(f"{name:50} {time_of_fit:6.1f} s, {time_of_fit / encode:5.1f} encodings")


PARTS = {"texts": part_texts}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=list(PARTS), action="append")
    warnings.simplefilter("ignore")
    for part in parser.parse_args().part or PARTS:
        print(f"--- {part}")
        PARTS[part]()
