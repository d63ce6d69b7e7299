"""Where routing pays: what it gains on each table, beside what a few rows forecast of it.

Gain: realised quality on test rows above the best random mix of choices that spends the same,
mean of five budgets, in points; the router learned from all training rows (at most 10,000), on one
split.
The forecast is :func:`skroute.metrics.routing_potential` on 100, 300 and 1,000 of the training
rows, several draws each. How gains grow with rows (three constants) is learned from the other
tables alone; the package has what all of them say.

    python benchmarks/bench_where.py [--short]

Tables, estimates and draws of the code as it is are cached in ``benchmarks/.cache``.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
from pathlib import Path

import numpy as np
from _estimate_tables import LOGS, cached_file, load
from _harness import claim, save, table
from scipy.optimize import minimize
from scipy.stats import norm
from skroute.metrics._potential import (
    Learning,
    forecast,
    gains_of,
    learned_gains,
    oracle_gain,
    paid_and_got,
)

import skroute.metrics
import skroute.quality
from skroute.assignment import assignment_path
from skroute.metrics import complementarity_matrix
from skroute.quality import QualityRegressor
from skroute.quality._stacking import judged_budgets

# Rows that are scored, and how often they are drawn.
SIZES = {100: 6, 300: 4, 1000: 3}
Z = float(norm.ppf(0.975))
SHORT = ("digits", "CARROT")


def draw(fold, n, seed):
    """Gains of some training rows that learned from a quarter, a half and all of themselves."""
    rows = rows_of(fold, n, seed)
    random = np.random.RandomState(seed)
    return learned_gains(QualityRegressor(), fold.X[rows], fold.quality[rows], fold.costs, random)


def rows_of(fold, n, seed):
    """The training rows that are scored."""
    return np.random.default_rng([n, seed]).permutation(len(fold.X))[:n]


def cache_of(*words):
    """A file of the cache; other code for estimates, tables or potential has files of its own."""
    folders = (Path(module.__file__).parent for module in (skroute.quality, skroute.metrics))
    code = [file for folder in folders for file in folder.glob("*.py")]
    here = Path(__file__)
    files = [*code, here, here.with_name("_estimate_tables.py")]
    return cached_file("where", *words, files=files, suffix=".npz")


def full_gain(name, fold):
    """Gain of each test row at full size: learned from all training rows, cached."""
    path = cache_of(name, "full")
    if not path.exists():
        default = QualityRegressor()
        estimate = default.cross_fit(fold.X, fold.quality, costs=fold.costs)
        new = default.predict(fold.X_test)
        prices = assignment_path(estimate, fold.costs)
        spent = [
            paid_and_got(new, fold.quality_test, fold.costs, prices.rule(budget))
            for budget in judged_budgets(fold.quality, fold.costs)
        ]
        np.savez_compressed(path, gain=gains_of(spent, fold.quality_test, fold.costs))
    with np.load(path) as data:
        return data["gain"]


def draws_of(name, fold, sizes):
    """Cached draws of a table: (rows, seed, gains of shape (3, n), oracle)."""
    found = []
    for n, repeats in sizes.items():
        if n > len(fold.X):
            continue
        for seed in range(repeats):
            path = cache_of(name, n, seed)
            if not path.exists():
                np.savez_compressed(path.with_suffix(".tmp.npz"), gains=draw(fold, n, seed))
                path.with_suffix(".tmp.npz").replace(path)
            with np.load(path) as data:
                oracle = oracle_gain(fold.quality[rows_of(fold, n, seed)], fold.costs)
                found.append((n, seed, data["gains"], oracle))
    return found


def standardized(cases, learning):
    """How far what came out lies from the forecast, in its standard errors, and these errors."""
    apart, errors = [], []
    for case in cases:
        middle, _, high = forecast(
            case["gains"], case["oracle"], np.log2(case["later"] / case["rows"]), 1.0, learning
        )
        # What came out has an error of its own, on the test rows.
        errors.append(np.hypot(high - middle, case["full_se"]))
        apart.append((case["full"] - middle) / errors[-1])
    return np.array(apart), np.array(errors)


def learn(cases):
    """Constants under which what came out is likeliest; each table has the same weight."""
    tables = [case["table"] for case in cases]
    weight = np.array([1 / tables.count(name) for name in tables])

    def surprise(theta):
        learning = Learning(theta[0], np.exp(theta[1]), 1.0)
        apart, errors = standardized(cases, learning)
        # A Student law: one odd table does not decide.
        return weight @ (np.log(errors) + 2.5 * np.log1p(apart**2 / 4))

    best = minimize(surprise, [0.05, np.log(0.05)], method="Nelder-Mead").x
    learning = Learning(float(best[0]), float(np.exp(best[1])), 1.0)
    apart = np.abs(standardized(cases, learning)[0])
    order = np.argsort(apart)
    reached = np.cumsum(weight[order]) / weight.sum()
    # Tables are few, and a new one is no draw of theirs: half of what may be missed is kept back.
    width = apart[order][np.searchsorted(reached, 0.975)] / Z
    return learning._replace(width=float(max(width, 1.0)))


def collect(names, sizes, most=None):
    cases, tables = [], {}
    for name in names:
        fold, cached = load(name, 0), name
        if most is not None:
            fold = fold._replace(X=fold.X[:most], quality=fold.quality[:most])
            cached = f"{name} {most}"
        full, test = full_gain(cached, fold), fold.quality_test
        tables[name] = {
            "rows": len(fold.X),
            "choices": len(fold.costs),
            "features": fold.X.shape[1],
            "gain": 100 * float(full.mean()),
            "se": 100 * float(full.std(ddof=1) / np.sqrt(len(full))),
            "oracle": 100 * oracle_gain(test, fold.costs),
            "complementarity": 100 * float(np.max(complementarity_matrix(test))),
        }
        for n, seed, gains, oracle in draws_of(cached, fold, sizes):
            cases.append(
                {
                    "table": name,
                    "rows": n,
                    "seed": seed,
                    "gains": gains,
                    "oracle": oracle,
                    "later": len(fold.X),
                    "full": float(full.mean()),
                    "full_se": float(full.std(ddof=1) / np.sqrt(len(full))),
                }
            )
        print(name, flush=True)
    return cases, tables


def judge(cases):
    """Each table's forecasts by what was learned from the others."""
    names = list(dict.fromkeys(case["table"] for case in cases))
    entries = []
    for name in names:
        others = [case for case in cases if case["table"] != name]
        learning = learn(others)
        for case in cases:
            if case["table"] != name:
                continue
            doublings = np.log2(case["later"] / case["rows"])
            middle, low, high = forecast(case["gains"], case["oracle"], doublings, Z, learning)
            entries.append(
                {
                    "table": name,
                    "rows": case["rows"],
                    "seed": case["seed"],
                    "seen": 100 * float(case["gains"][-1].mean()),
                    "forecast": 100 * middle,
                    "low": 100 * low,
                    "high": 100 * high,
                    "came": 100 * case["full"],
                    "covered": bool(low <= case["full"] <= high),
                }
            )
    return entries


def claims(result):
    """What the results say of the forecast.

    Parameters
    ----------
    result : dict
        The saved payload.

    Returns
    -------
    list of dict
    """
    found = []
    for n in sorted({entry["rows"] for entry in result["forecasts"]}):
        some = [entry for entry in result["forecasts"] if entry["rows"] == n]
        tables = len({entry["table"] for entry in some})
        found.append(
            claim(
                f"covered-{n}",
                f"share of {len(some)} draws of {n} rows of {tables} tables whose 95 % interval "
                "holds what came out at full size",
                float(np.mean([entry["covered"] for entry in some])),
                bar=0.9,
                why="asked of itself",
            )
        )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="two tables of few rows, small draws")
    args = parser.parse_args()
    names = SHORT if args.short else tuple(LOGS)
    cases, tables = collect(names, *(({100: 2}, 400) if args.short else (SIZES,)))
    entries = judge(cases)
    constants = learn(cases)._asdict()
    header = ["table", "rows", "choices", "gain", "se", "oracle", "complementarity"]
    rows = [
        [name, t["rows"], t["choices"], t["gain"], t["se"], t["oracle"], t["complementarity"]]
        for name, t in sorted(tables.items(), key=lambda item: -item[1]["gain"])
    ]
    table("What routing gains over the best random mix, points", header, rows)
    rows = []
    for name in tables:
        for n in SIZES:
            some = [e for e in entries if (e["table"], e["rows"]) == (name, n)]
            if some:
                ends = [np.mean([e[key] for e in some]) for key in ("forecast", "low", "high")]
                held = f"{sum(e['covered'] for e in some)} of {len(some)}"
                rows.append([name, n, *ends, some[0]["came"], held])
    header = ["table", "rows scored", "forecast", "low", "high", "came out", "held"]
    table("Forecast from few rows, by what other tables say; means of draws", header, rows)
    print("constants from all tables:", json.dumps(constants))
    payload = {"tables": tables, "forecasts": entries, "constants": constants}
    save(
        "where",
        payload,
        title="Where routing pays",
        claims=claims(payload),
        write=not args.short,
    )


if __name__ == "__main__":
    main()
