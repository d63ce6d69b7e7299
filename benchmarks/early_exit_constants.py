"""How the constants of QWYC's order search were chosen: on training rows alone.

A part of the *training* rows of each data set is set aside as development rows; the ensemble
is fitted and optimised on the rest, over several random splits. Test rows are not loaded into
any of this. Printed are mean members evaluated at equal disagreement on development rows, for
each number of errors that the search may make, over how many errors it averages, and how
doubtful the ensemble's answers are to the thresholds.

    python benchmarks/early_exit_constants.py [--short] [--softness]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse

import lightgbm as lgb
import numpy as np
from _harness import table

from skroute.datasets import fetch_adult, fetch_covertype_sample, fetch_letter
from skroute.early_exit import TradeoffDisplay, _policies
from skroute.early_exit._calibration import judge
from skroute.early_exit._engines import ensemble_engine
from skroute.early_exit._thresholds import full_answers, running_values

# Name: loader, positive class, development rows, trees, learning rate, splits.
DATA = {
    "Adult": (fetch_adult, None, 8000, 500, 0.05, 5),
    "Covertype": (fetch_covertype_sample, 2, 2500, 500, 0.05, 8),
    "Letter": (fetch_letter, None, 4000, 100, 0.1, 4),
}
# Errors in all and spread; the first is what is in use.
SEARCHES = [(80, 10), (20, 10), (40, 10), (160, 10), (80, 0), (40, 0), (80, 5), (80, 20)]
# Share of what alpha allows, where that is more than the 80 errors.
LEVELS, SHARES = (0.02, 0.05), (0.1, 1 / 3, 1.0)
SOFTNESS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.1)

NEAR = (0.004, 0.005, 0.0075, 0.01)
HEAD = ["0.4 %", "0.5 %", "0.75 %", "1 %", "mean", "sd over splits"]


def problem(name, seed, n_trees):
    fetch, positive, n_dev, _, rate, _ = DATA[name]
    bunch = fetch()
    X = np.ascontiguousarray(bunch.data, dtype=np.float64)[~bunch.is_test]
    y = bunch.target[~bunch.is_test]
    y = y if positive is None else y == positive
    rows = np.random.RandomState(seed).permutation(len(X))
    dev, rest = rows[:n_dev], rows[n_dev:]
    # As in bench_early_exit.py: several classes are optimised on rows not fitted on.
    fit, optimise = (rest[::2], rest[1::2]) if name == "Letter" else (rest, rest)
    model = lgb.LGBMClassifier(
        n_estimators=n_trees, max_depth=5, learning_rate=rate, n_jobs=1, verbose=-1, random_state=0
    ).fit(X[fit], y[fit])
    engine, _ = ensemble_engine(model)
    return engine, engine.scores(X[optimise]), engine.scores(X[dev])


def members(engine, scores, dev, alpha, levels, order="qwyc"):
    """Mean members on development rows at each level of disagreement there, and the order."""
    costs = np.ones(engine.n_members)
    recipe = _policies.Recipe(
        alpha=alpha,
        order=order,
        stopping="thresholds",
        budget_split="lagrangian",
        n_jobs=2,
        use_lo=engine.n_outputs == 1,
        use_hi=True,
        never=False,
    )
    order, policies, _, _ = recipe.learn(scores, engine.offset, engine.beta, costs)
    values, bad = running_values(dev, order, engine.offset, engine.beta)
    answers = full_answers(dev, engine.offset, engine.beta)
    spent = np.arange(1.0, len(costs) + 1)
    judged = judge(policies, values, bad, spent, answers, max(2, engine.n_outputs))
    n_wrong = judged.by_answer.sum(axis=1)
    curve = TradeoffDisplay({"": (n_wrong / dev.shape[1], judged.cost / dev.shape[1])})
    return [curve.at("", level) for level in levels], order


def searches(name, n_trees, n_splits):
    """What the order search may do."""
    found, far = {}, {}
    for seed in range(n_splits):
        loaded = problem(name, seed, n_trees)
        for errors, spread in SEARCHES:
            _policies.SEARCH_ERRORS, _policies.SEARCH_SPREAD = errors, spread
            found.setdefault((errors, spread), []).append(members(*loaded, 0.0005, NEAR)[0])
        _policies.SEARCH_ERRORS, _policies.SEARCH_SPREAD = SEARCHES[0]
        for share in SHARES:
            _policies.SEARCH_SHARE = share
            far.setdefault(share, []).append(
                [members(*loaded, level, (level,))[0][0] for level in LEVELS]
            )
    rows = [[*key, *summary(values)] for key, values in found.items()]
    table(
        f"{name}: members at equal disagreement on development rows, {n_splits} splits",
        ["errors", "spread", *HEAD],
        rows,
    )
    far = [[share, *np.mean(values, axis=0)] for share, values in far.items()]
    table(
        f"{name}: errors of the search as a share of those that alpha allows",
        ["share", "2 %", "5 %"],
        far,
    )


def doubts(name, n_trees, n_splits):
    """How doubtful the answers of the full ensemble are to the thresholds."""
    found = {}
    for seed in range(n_splits):
        loaded, order, chosen = problem(name, seed, n_trees), "qwyc", _policies.SOFTNESS
        for softness in SOFTNESS:
            _policies.SOFTNESS = softness
            at, order = members(*loaded, 0.0005, NEAR, order)
            found.setdefault(softness, []).append(at)
        _policies.SOFTNESS = chosen
    rows = [[softness, *summary(values)] for softness, values in found.items()]
    table(
        f"{name}: members at equal disagreement on development rows, {n_splits} splits",
        ["softness", *HEAD],
        rows,
    )


def summary(values):
    """Mean of each level over the splits, of all, and the deviation over splits."""
    return *np.mean(values, axis=0), np.mean(values), np.std(np.mean(values, axis=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="one split, 60 trees")
    parser.add_argument("--softness", action="store_true", help="this constant alone, 5 minutes")
    options = parser.parse_args()
    for name, (_, _, _, n_trees, _, n_splits) in DATA.items():
        size = (name, 60, 1) if options.short else (name, n_trees, n_splits)
        if name != "Letter":
            # Margins of several classes are taken without doubt.
            doubts(*size)
        if not options.softness:
            searches(*size)


if __name__ == "__main__":
    main()
