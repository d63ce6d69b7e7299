"""Buying features a set at a time, beside LightGBM on one fixed set for all rows.

    python benchmarks/bench_acquisition.py [--quick] [--part spam rare ...]

``spam``: Spambase with at most k columns of each row, on the split of Covert et al.
(ICML 2023, beside what they published) and on fresh ones. ``small``: the same on small
tables of scikit-learn. ``mean``: Letter (two halves of the alphabet), Adult and
Covertype at mean budgets. ``rare``: Adult and Covertype with 2, 5 and 10 % positives at
mean budgets, by AUC, log loss and money; the default quality. ``spent``: what a budget
spends on fresh rows. ``instances``: rows of which a feature decides which others matter
(Syn1 to Syn3 of Liu et al., ICML 2025; Cube), and California in three classes by its
price; rows drawn with seed 7, test rows with seed 1007. The fixed sets are chosen on training rows: by forward selection,
of rare positives also by gain in one model of all. A run of some parts replaces their
tables in the record.
"""

import argparse
import json

import lightgbm
import numpy as np
from _common import RESULTS, record, table
from _data import adult, covertype, letter, spam
from _data import load as load_arrays
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split

from skroute.gating import SequentialFeatureClassifier

KS = (1, 2, 3, 5, 10, 15, 25)
PUBLISHED = (78.48, 82.28, 85.76, 90.87, 92.17, 93.37, 93.80)
SIZES = {"letter": (16000, 4000), "adult": (15000, 16000), "covertype": (9000, 3000)}
BUDGETS = {"letter": (4, 6), "adult": (2, 3, 5), "covertype": (3, 5, 8, 12, 20)}
# Groups of Adult that one question or one register answers, with made-up prices.
GROUPS = {
    "form": (["age", "sex", "race", "native-country"], 1.0),
    "family": (["marital-status", "relationship"], 2.0),
    "school": (["education", "education-num"], 2.0),
    "job": (["workclass", "occupation", "hours-per-week"], 4.0),
    "tax": (["capital-gain", "capital-loss"], 10.0),
    "census": (["fnlwgt"], 1.0),
}
GROUP_BUDGETS = (3, 5, 8, 12, 16)
# Draws of the rare positives, and of the model.
RARE_SEEDS = (0, 1)


def boosted(X, y, columns, trees=100):
    """LightGBM on some columns."""
    model = lightgbm.LGBMClassifier(
        n_estimators=trees, n_jobs=1, verbose=-1, random_state=0
    )
    return model.fit(X[:, columns], y)


def forward(X, y, most, tried=12):
    """Columns by forward selection on a quarter of the rows; after ten only the best are tried."""
    X, X_out, y, y_out = train_test_split(
        X, y, test_size=0.25, stratify=y, random_state=0
    )
    chosen, loss = [], {}
    for step in range(min(most, X.shape[1])):
        left = [column for column in range(X.shape[1]) if column not in chosen]
        if step >= 10 or (step and X.shape[1] > 40):
            left = sorted(left, key=loss.get)[:tried]
        for column in left:
            own = [*chosen, column]
            proba = boosted(X, y, own, 40).predict_proba(X_out[:, own])
            loss[column] = log_loss(y_out, proba, labels=np.unique(y))
        chosen.append(min(left, key=loss.get))
    return chosen


def by_gain(X, y):
    """Columns by their gain in one model of all."""
    gain = boosted(X, y, np.arange(X.shape[1])).booster_.feature_importance("gain")
    return list(np.argsort(-gain, kind="stable"))


def mean_and_error(values, digits=2):
    """Means over splits with their standard errors, as texts."""
    values = np.asarray(values, dtype=float)
    error = (
        values.std(axis=0, ddof=1) / np.sqrt(len(values))
        if len(values) > 1
        else 0 * values[0]
    )
    return [
        f"{m:.{digits}f}±{e:.{digits}f}" for m, e in zip(values.mean(axis=0), error)
    ]


def limited(title, splits, ks, more=()):
    """Accuracy with at most k columns of each row."""
    ours, fixed, lead = [], [], []
    for seed, (X, y, X_test, y_test) in enumerate(splits):
        model = SequentialFeatureClassifier(quality="accuracy", random_state=seed).fit(
            X, y
        )
        order = forward(X, y, max(ks))
        ours.append([100 * model.score(X_test, y_test, max_cost=k) for k in ks])
        alone = [
            boosted(X, y, order[:k]).score(X_test[:, order[:k]], y_test) for k in ks
        ]
        fixed.append(100 * np.array(alone))
        lead.append(np.array(ours[-1]) - fixed[-1])
    rows = [
        ["skroute", *mean_and_error(ours)],
        ["forward selection", *mean_and_error(fixed)],
    ]
    rows.append(["lead", *mean_and_error(lead)])
    table(title, ["accuracy with", *ks], [*rows, *more])


def part_spam(quick):
    data, ks = spam(), KS[: 3 if quick else None]
    X, y, test = data.X.astype(float), data.y.astype(int), data.is_test.astype(bool)
    step = 6 if quick else 1
    own = (X[~test][::step], y[~test][::step], X[test], y[test])
    published = ["published (neural)", *PUBLISHED[: len(ks)]]
    limited(
        "Spambase, the authors' split", [own] * (1 if quick else 2), ks, [published]
    )
    splits = [
        train_test_split(
            X, y, train_size=0.8 / step, test_size=0.2, stratify=y, random_state=seed
        )
        for seed in range(1 if quick else 3)
    ]
    limited("Spambase, fresh splits", [(a, c, b, d) for a, b, c, d in splits], ks)


def part_small(quick):
    def median_of_diabetes(return_X_y):
        X, y = load_diabetes(return_X_y=return_X_y)
        return X, (y > np.median(y)).astype(int)

    loaders = (load_breast_cancer, load_wine, load_iris, median_of_diabetes)
    for load in loaders[: 1 if quick else None]:
        X, y = load(return_X_y=True)
        splits = [
            train_test_split(X, y, test_size=0.2, stratify=y, random_state=seed)
            for seed in range(2 if quick else 5)
        ]
        ks = [k for k in (1, 2, 3, 5) if k <= X.shape[1]]
        limited(load.__name__, [(a, c, b, d) for a, b, c, d in splits], ks)


def halves():
    """Letter by the half of the alphabet."""
    data = letter()
    return data.X.astype(float), (np.asarray(data.y).astype(str) >= "N").astype(int)


TABLES = {
    "letter": halves,
    "adult": lambda: (adult().X.astype(float), adult().y.astype(int)),
    "covertype": lambda: (covertype().X.astype(float), covertype().y.astype(int)),
}


def split(X, y, sizes, seed, quick):
    """Random rows to learn from and to test on."""
    n, m = (size // (12 if quick else 1) for size in sizes)
    order = np.random.default_rng(seed).permutation(len(y))
    return X[order[:n]], y[order[:n]], X[order[n : n + m]], y[order[n : n + m]]


def adult_groups():
    names = [str(name) for name in adult().feature_names]
    return {
        "feature_groups": {
            g: [names.index(c) for c in own] for g, (own, _) in GROUPS.items()
        },
        "feature_costs": {g: cost for g, (_, cost) in GROUPS.items()},
    }


def part_mean(quick):
    for name in ("letter",) if quick else (*TABLES, "adult in groups"):
        own = name.split()[0]
        budgets = GROUP_BUDGETS if name.endswith("groups") else BUDGETS[own]
        groups = adult_groups() if name.endswith("groups") else {}
        right, spent, fixed = [], [], []
        for seed in range(1 if quick else 2):
            X, y, X_test, y_test = split(*TABLES[own](), SIZES[own], seed, quick)
            model = SequentialFeatureClassifier(
                quality="accuracy", random_state=seed, **groups
            )
            found = [model.fit(X, y).predict_routed(X_test, budget=b) for b in budgets]
            right.append([100 * (one.y_pred == y_test).mean() for one in found])
            spent.append([one.cost.mean() for one in found])
            if not groups:
                order = forward(X, y, max(budgets))
                alone = [
                    boosted(X, y, order[:k]).score(X_test[:, order[:k]], y_test)
                    for k in budgets
                ]
                fixed.append(100 * np.array(alone))
        rows = [["accuracy", *mean_and_error(right)], ["spent", *mean_and_error(spent)]]
        if fixed:
            rows.append(["forward selection", *mean_and_error(fixed)])
            rows.append(["lead", *mean_and_error(np.array(right) - fixed)])
        table(f"{name}: mean budgets", ["", *budgets], rows)


def imbalanced(X, y, share, seed, sizes):
    """Rows of which a share is positive."""
    rng = np.random.default_rng(seed)
    pools = (
        rng.permutation(np.flatnonzero(y == 1)),
        rng.permutation(np.flatnonzero(y != 1)),
    )
    parts, used = [], [0, 0]
    for n in sizes:
        counts = round(share * n), n - round(share * n)
        rows = [pool[a : a + k] for pool, a, k in zip(pools, used, counts)]
        used = [a + k for a, k in zip(used, counts)]
        rows = rng.permutation(np.concatenate(rows))
        parts += [X[rows], (y[rows] == 1).astype(int)]
    return parts


def picked(X, y, ks):
    """The fixed set of each size: of the two ways to choose one, what is better on a quarter."""
    orders = forward(X, y, max(ks)), by_gain(X, y)
    X, X_out, y, y_out = train_test_split(
        X, y, test_size=0.25, stratify=y, random_state=1
    )

    def loss(columns):
        return log_loss(y_out, boosted(X, y, columns).predict_proba(X_out[:, columns]))

    return [min((order[:k] for order in orders), key=loss) for k in ks]


def judged(y, proba):
    """AUC, minus log loss, and minus what errors cost: a missed positive as much as 10 alarms."""
    wrong = (proba > 1 / 11) != y
    money = np.where(y == 1, 10.0, 1.0) * wrong
    return roc_auc_score(y, proba), -log_loss(y, proba), -money.mean()


def part_rare(quick):
    ks, rows = (3, 5, 10), []
    for name, sizes in (("adult", (10000, 20000)), ("covertype", (5500, 4000))):
        X, y = TABLES[name]()
        for share in (0.1,) if quick else (0.02, 0.05, 0.1):
            found, spent = [], []
            for seed in RARE_SEEDS[: 1 if quick else None]:
                part = [n // (4 if quick else 1) for n in sizes]
                X_fit, y_fit, X_test, y_test = imbalanced(X, y, share, seed, part)
                model = SequentialFeatureClassifier(random_state=seed).fit(X_fit, y_fit)
                for k, columns in zip(ks, picked(X_fit, y_fit, ks)):
                    alone = boosted(X_fit, y_fit, columns).predict_proba(
                        X_test[:, columns]
                    )[:, 1]
                    ours = model.predict_proba(X_test, budget=k)[:, 1]
                    found.append([judged(y_test, ours), judged(y_test, alone)])
                    spent.append(model.predict_cost(X_test, budget=k).mean())
            # By seed, budget, method and measure.
            found = np.array(found).reshape(-1, len(ks), 2, 3)
            spent = np.reshape(spent, (-1, len(ks))).mean(axis=0)
            for at, k in enumerate(ks):
                lead = mean_and_error(found[:, at, 0] - found[:, at, 1], 4)
                means = found[:, at].mean(axis=0)
                cells = [cell for three in zip(*means, lead) for cell in three]
                rows.append([f"{name}, {share:.0%}", k, spent[at], *cells])
        if quick:
            break
    of_each = [
        cell
        for name in ("AUC", "-log loss", "-money")
        for cell in (name, "fixed", "lead")
    ]
    table("Rare positives", ["positives", "budget", "spent", *of_each], rows)


def part_spent(quick):
    X, y = TABLES["adult"]()
    ratios = []
    for seed in range(1 if quick else 3):
        X_fit, y_fit, X_test, _ = split(X, y, (2400, 16000), seed, False)
        model = SequentialFeatureClassifier(random_state=seed, **adult_groups()).fit(
            X_fit, y_fit
        )
        ratios.append([model.predict_cost(X_test, budget=b).mean() / b for b in (3, 8)])
    rows = [["realised / asked", *mean_and_error(ratios)]]
    table(
        "Adult in groups, 2,400 rows: what a budget spends",
        ["", "budget 3", "budget 8"],
        rows,
    )


def syn(n, kind, seed):
    """Syn1 to Syn3 (ICML 2025): the last feature decides which others matter.

    Returns rows, labels, and True for each feature that matters for a row.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 11))
    squares = (x[:, 2:6] ** 2).sum(axis=1)
    smooth = -10 * np.sin(0.2 * x[:, 6]) + np.abs(x[:, 7]) + x[:, 8] + np.exp(-x[:, 9])
    logits = (4 * x[:, 0] * x[:, 1], 1.2 * squares - 4.2, smooth - 2.4)
    columns = ([0, 1], [2, 3, 4, 5], [6, 7, 8, 9])
    low, high = ((0, 1), (0, 2), (1, 2))[kind - 1]
    is_low = x[:, 10] < 0
    logit = np.clip(np.where(is_low, logits[low], logits[high]), -500, 500)
    y = (rng.random(n) < 1 / (1 + np.exp(logit))).astype(int)
    of_low, of_high = (np.isin(np.arange(11), [*columns[k], 10]) for k in (low, high))
    return x, y, np.where(is_low[:, None], of_low, of_high)


def cube(n, seed):
    """Eight classes, each with three of twenty features that say its bits."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 8, n)
    x = rng.normal(0.5, 0.3, (n, 20))
    for k in range(8):
        rows = np.flatnonzero(y == k)
        bits = [k & 1, (k >> 1) & 1, k >> 2]
        x[np.ix_(rows, range(k, k + 3))] = rng.normal(bits, 0.1, (len(rows), 3))
    return x, y


def california():
    """California's districts by their class of price, split with seed 7."""
    data = load_arrays("california/california.npz")
    X, y = data.X.astype(float), data.y.astype(int)
    X, X_test, y, y_test = train_test_split(
        X, y, test_size=0.2, random_state=7, stratify=y
    )
    return X, y, X_test, y_test


def steps(model, X, matters, budget):
    """Mean cost at which rows have bought all that matters, as the price falls.

    Rows that never do count as if they had bought everything.
    """
    # The policies by leaves at all prices are private.
    policies = model._policies((None, np.inf))[1]
    first = model.operating_point(budget).first
    position = np.full(len(X), model.sets_.index(first))
    has = model._sets
    ledger = model._ledger(X)
    when = np.full(len(X), np.nan)
    for price in range(len(policies.prices) - 1, -1, -1):
        moved = True
        while moved:
            is_new = np.isnan(when) & (has[position] | ~matters).all(axis=1)
            when[is_new] = model.set_costs_[position[is_new]]
            moved = False
            for start in np.unique(position):
                rows = np.flatnonzero(position == start)
                shown = model._shown(X, ledger, int(start), rows, len(X))
                go = policies.expect(int(start), shown, None).go[:, price]
                position[rows] = np.where(go >= 0, go, start)
                moved |= bool((go >= 0).any())
    return np.where(np.isnan(when), X.shape[1], when).mean()


# Name, number of rows, budgets.
INSTANCES = (
    ("syn1", 8000, (3, 4, 5)),
    ("syn1", 30000, (2, 3, 4, 5)),
    ("syn2", 30000, (3, 4, 5)),
    ("syn3", 30000, (4, 5, 6)),
    ("cube", 20000, (3, 4, 5)),
    ("california", None, (1, 2, 3, 4, 5)),
)


def part_instances(quick):
    rows = []
    for name, n, budgets in INSTANCES[: 1 if quick else None]:
        matters = None
        if name.startswith("syn"):
            kind = int(name[3])
            X, y, _ = syn(n // (4 if quick else 1), kind, 7)
            X_test, y_test, matters = syn(10000, kind, 1007)
        elif name == "cube":
            X, y = cube(n, 7)
            X_test, y_test = cube(10000, 1007)
        else:
            X, y, X_test, y_test = california()
        model = SequentialFeatureClassifier(random_state=0, n_jobs=2).fit(X, y)
        for budget in budgets:
            proba = model.predict_proba(X_test, budget=budget)
            score = (proba.argmax(axis=1) == y_test).mean()
            if proba.shape[1] == 2:
                score = roc_auc_score(y_test, proba[:, 1])
            spent = model.predict_cost(X_test, budget=budget).mean()
            of_steps = ""
            if matters is not None and budget == (5 if name == "syn3" else 4):
                of_steps = f"{steps(model, X_test, matters, budget):.3f}"
            loss = log_loss(y_test, proba)
            rows.append(
                [f"{name}, {len(y)}", budget, spent, f"{score:.4f}", loss, of_steps]
            )
    header = ["rows", "budget", "spent", "AUROC or accuracy", "log loss", "steps"]
    table("A feature decides which others matter", header, rows)


def record_parts(name):
    """Write the tables of a part, each with its commit; those of other parts stay."""
    path = RESULTS / f"{name}.json"
    old = (
        json.loads(path.read_text()) if path.exists() else {"tables": [], "commit": ""}
    )
    before = [{"commit": old["commit"]} | one for one in old["tables"]]
    record(name)
    found = json.loads(path.read_text())
    new = {one["title"]: one | {"commit": found["commit"]} for one in found["tables"]}
    found["tables"] = [new.pop(one["title"], one) for one in before] + list(
        new.values()
    )
    path.write_text(json.dumps(found, indent=1) + "\n")


PARTS = {
    "spam": part_spam,
    "small": part_small,
    "mean": part_mean,
    "rare": part_rare,
    "spent": part_spent,
    "instances": part_instances,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", "--short", action="store_true")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    args = parser.parse_args()
    for part in args.part:
        PARTS[part](args.quick)
        if not args.quick:
            record_parts("acquisition")


if __name__ == "__main__":
    main()
