"""Buying features one group at a time, beside what was published and the strongest simple peers.

    python benchmarks/bench_acquisition.py [--short] [--only spam] [--seeds 5] [--splits 10]

``published``: the authors' split of Spambase, exactly k of 57 features, beside the published row
of greedy dynamic feature selection (Covert et al., ICML 2023), a neural policy. ``spam``: fresh
splits, beside LightGBM on a forward selection of as many features, which may use the validation
rows to choose and all rows to fit, as we do. ``mean``: mean budgets on Letter and Adult.
``groups``: Adult in groups with prices and Covertype, beside Adapt and GreedyMiser at five
budgets.
``speed``: fits of the whole against fits of the base model, and one row.

Nothing was chosen on a test row of this file: settings come from splits of the training rows.
"""

import argparse
import copy
import json
import os
import time
from pathlib import Path

import lightgbm
import numpy as np
from _harness import claim, save, table
from sklearn.metrics import accuracy_score

from skroute.datasets import fetch_adult, fetch_covertype_sample, fetch_letter
from skroute.gating import (
    AdaptGatingClassifier,
    GreedyMiserClassifier,
    SequentialFeatureClassifier,
)
from skroute.gating._points import HeldOut

KS = (1, 2, 3, 5, 10, 15, 25)
PUBLISHED = (78.48, 82.28, 85.76, 90.87, 92.17, 93.37, 93.80)
SHORT = {"seeds": 1, "splits": 1}
MEAN = {"letter": ((4, 89.2), (6, 94.3)), "adult": ((2, 84.0), (3, 85.4), (5, 86.3))}
ADULT_GROUPS = {
    "form": (["age", "sex", "race", "native-country"], 1.0),
    "family": (["marital-status", "relationship"], 2.0),
    "school": (["education", "education-num"], 2.0),
    "job": (["workclass", "occupation", "hours-per-week"], 4.0),
    "tax": (["capital-gain", "capital-loss"], 10.0),
    "census": (["fnlwgt"], 1.0),
}
GROUP_BUDGETS = {"adult": (3, 5, 8, 12, 16), "covertype": (3, 5, 8, 12, 20)}


def spambase():
    """Rows of Spambase and its split, or None where the file is not."""
    path = Path(os.environ.get("SKROUTE_DATA", "../shared/data")) / "spam" / "spam.npz"
    if not path.exists():
        return None
    data = np.load(path, allow_pickle=False)
    X = data["X"].astype(np.float64)
    return X, data["y"].astype(int), data["is_val"], data["is_test"]


def percent(right):
    return 100 * float(np.mean(right))


def boosted(seed=0, trees=100):
    return lightgbm.LGBMClassifier(
        n_estimators=trees, n_jobs=1, verbose=-1, random_state=seed, subsample=0.9, subsample_freq=1
    )


def forward(X, y, X_out, y_out, n, tried_late=12):
    """Forward selection by the log loss on other rows: all features are tried in the first ten
    steps, and in later ones those that were best in the step before."""
    chosen, lead = [], {}
    for step in range(n):
        left = [g for g in range(X.shape[1]) if g not in chosen]
        if step >= 10:
            left = sorted(left, key=lambda g: lead[g])[:tried_late]
        for g in left:
            columns = [*chosen, g]
            model = lightgbm.LGBMClassifier(n_estimators=40, num_leaves=15, n_jobs=1, verbose=-1)
            proba = model.fit(X[:, columns], y).predict_proba(X_out[:, columns])
            own = np.clip(proba[np.arange(len(y_out)), y_out], 1e-3, 1)
            lead[g] = -np.log(own).mean()
        chosen.append(min(left, key=lead.get))
    return chosen


def exactly(model, X, y):
    """Accuracy with k features of each row, and how many were bought."""
    found = [model.predict_routed(X, max_cost=k) for k in KS]
    return [percent(r.y_pred == y) for r in found], [r.cost.max() for r in found]


def published(args):
    """The authors' split."""
    if (data := spambase()) is None:
        return None
    X, y, _, is_test = data
    ours, most = [], []
    for seed in range(args.first, args.first + args.seeds):
        model = SequentialFeatureClassifier(random_state=seed, n_jobs=1)
        part = slice(None, None, 6) if args.short else slice(None)
        model.fit(X[~is_test][part], y[~is_test][part])
        row, cost = exactly(model, X[is_test], y[is_test])
        ours.append(row)
        most.append(cost)
        print("published split, seed", seed, np.round(row, 2), flush=True)
    assert (np.array(most) <= KS).all()
    full = boosted().fit(X[~is_test], y[~is_test]).score(X[is_test], y[is_test])
    mean = np.mean(ours, axis=0)
    rows = [[k, p, m, m - p] for k, p, m in zip(KS, PUBLISHED, mean)]
    table(
        f"Spambase, the authors' split, {args.seeds} seeds; all features {100 * full:.2f}",
        ["features", "published", "skroute", "lead"],
        rows,
    )
    return {"ours": ours, "published": PUBLISHED, "all": 100 * full}


def spam(args):
    """Fresh splits, beside forward selection."""
    if (data := spambase()) is None:
        return None
    X, y, *_ = data
    ours, peer, single, full = [], [], [], []
    for split in range(args.first, args.first + args.splits):
        order = np.random.default_rng(1000 + split).permutation(len(y))
        if args.short:
            order = order[::6]
        test, val, train = np.split(order, [len(order) // 5, 2 * len(order) // 5])
        fit = np.concatenate([train, val])
        model = SequentialFeatureClassifier(random_state=split, n_jobs=1).fit(X[fit], y[fit])
        ours.append(exactly(model, X[test], y[test])[0])
        n = 3 if args.short else max(KS)
        chosen = forward(X[train], y[train], X[val], y[val], n)
        row = []
        for k in KS:
            columns = chosen[: min(k, n)]
            refit = boosted(split).fit(X[np.ix_(fit, columns)], y[fit])
            row.append(percent(refit.predict(X[np.ix_(test, columns)]) == y[test]))
        peer.append(row)
        full.append(percent(boosted(split).fit(X[fit], y[fit]).predict(X[test]) == y[test]))
        single.append([model.operating_point(max_cost=k).candidate for k in KS])
        lead = np.mean(ours, axis=0) - np.mean(peer, axis=0)
        print("fresh split", split, "leads so far", np.round(lead, 2), single[-1], flush=True)
    lead = np.array(ours) - peer
    error = lead.std(axis=0, ddof=1) / np.sqrt(len(lead)) if len(lead) > 1 else lead[0] * 0
    rows = zip(KS, np.mean(peer, axis=0), np.mean(ours, axis=0), lead.mean(axis=0), error)
    table(
        f"Spambase, {args.splits} fresh splits; all features {np.mean(full):.2f}",
        ["features", "forward selection", "skroute", "lead", "standard error"],
        [list(row) for row in rows],
    )
    return {"ours": ours, "forward": peer, "full": full, "chosen": single}


def tables(name):
    if name == "letter":
        data = fetch_letter()
        y = (np.asarray(data.target) >= "N").astype(int)
    else:
        data = fetch_adult() if name == "adult" else fetch_covertype_sample()
        y = np.unique(np.asarray(data.target), return_inverse=True)[1]
    return np.asarray(data.data, dtype=float), y, list(data.feature_names)


SIZES = {"letter": (16000, 4000), "adult": (15000, 16000), "covertype": (9000, 3000)}


def split_rows(name, y, seed, short):
    sizes = np.array(SIZES[name]) // (16 if short else 1)
    order = np.random.default_rng(seed).permutation(len(y))
    return np.split(order[: sizes.sum()], sizes[:1])


def mean_budgets(args):
    """Mean budgets where each feature costs 1."""
    found = {}
    for name, bars in MEAN.items():
        if args.data not in (None, name):
            continue
        X, y, _ = tables(name)
        rows = []
        for seed in range(args.first, args.first + args.seeds):
            train, test = split_rows(name, y, seed, args.short)
            model = SequentialFeatureClassifier(random_state=seed, n_jobs=1)
            model.fit(X[train], y[train])
            for budget, bar in bars:
                routed = model.predict_routed(X[test], budget=budget)
                point = model.operating_point(budget)
                own = [seed, budget, percent(routed.y_pred == y[test]), routed.cost.mean(), bar]
                rows.append([*own, point.candidate])
                print(name, rows[-1], flush=True)
        table(
            f"{name}: mean budgets",
            ["seed", "budget", "accuracy", "spent", "bar", "candidate"],
            rows,
        )
        found[name] = rows
    return found


def only_static_order(model):
    """The same model without its other candidates: one order for all rows, each stops by itself."""
    alone, held_out = copy.copy(model), model._held_out
    paths = {"static order": held_out.paths["static order"]}
    alone._held_out, alone._points = HeldOut(paths, {}, held_out.set_costs), {}
    return alone


def groups(args):
    """Groups with prices (Adult) and single columns (Covertype) beside Adapt, GreedyMiser and the
    static order with stopping."""
    found = {}
    for name, budgets in GROUP_BUDGETS.items():
        if args.data not in (None, name):
            continue
        X, y, names = tables(name)
        costs = {}
        if name == "adult":
            costs = {
                "feature_groups": {
                    g: [names.index(c) for c in columns] for g, (columns, _) in ADULT_GROUPS.items()
                },
                "feature_costs": {g: cost for g, (_, cost) in ADULT_GROUPS.items()},
            }
        rows = []
        for seed in range(args.first, args.first + args.seeds):
            train, test = split_rows(name, y, seed, args.short)
            cut = len(train) * 3 // 4
            fit, val = train[:cut], train[cut:]
            model = SequentialFeatureClassifier(random_state=seed, n_jobs=1, **costs)
            model.fit(X[train], y[train])
            static = only_static_order(model)
            full = boosted(seed)
            peers = {
                "adapt": [
                    AdaptGatingClassifier(full, p_full=p, gamma=gamma, cv=3, **costs)
                    for p in (0.1, 0.3, 0.6)
                    for gamma in (1e-4, 1e-3, 4e-3)
                ],
                "greedy miser": [
                    GreedyMiserClassifier(gamma=gamma, **costs)
                    for gamma in np.geomspace(1e-4, 3e-2, 8)
                ],
            }
            judged = {}
            for kind, candidates in peers.items():
                for candidate in candidates[: 1 if args.short else None]:
                    candidate.fit(X[fit], y[fit])
                    on_val = [candidate.predict_routed(X[val])]
                    for budget in budgets:
                        if budget >= candidate.min_budget_:
                            on_val.append(candidate.predict_routed(X[val], budget=budget))
                    for at, routed in enumerate(on_val):
                        right = accuracy_score(y[val], routed.y_pred)
                        own = (right, routed.cost.mean(), candidate, at)
                        judged.setdefault(kind, []).append(own)
            for budget in budgets:
                row = [seed, budget]
                routed = model.predict_routed(X[test], budget=budget)
                row += [percent(routed.y_pred == y[test]), routed.cost.mean()]
                for kind in peers:
                    within = [item for item in judged[kind] if item[1] <= budget]
                    if within:
                        best = max(within, key=lambda item: (item[0], -item[1]))[2]
                        asked = budget if budget >= best.min_budget_ else None
                        theirs = best.predict_routed(X[test], budget=asked)
                        row += [percent(theirs.y_pred == y[test]), theirs.cost.mean()]
                    else:
                        row += [np.nan, np.nan]
                theirs = static.predict_routed(X[test], budget=budget)
                row += [percent(theirs.y_pred == y[test]), theirs.cost.mean()]
                rows.append(row)
                print(name, np.round(row, 2), flush=True)
        header = ["seed", "budget", "skroute", "spent", "adapt", "spent", "greedy miser", "spent"]
        header += ["static order", "spent"]
        table(f"{name}: five budgets", header, rows)
        found[name] = rows
    return found


def least(call, repeats):
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)


def speed(args):
    """Processor time of a whole fit over that of the base model, and of a row and round."""
    rows = []
    found = {"spam (nearest rows)": spambase()}
    if not args.short:
        X, y, _ = tables("letter")
        found["letter (learned gains)"] = X[:12800], y[:12800], None, np.zeros(12800, bool)
    for name, data in found.items():
        if data is None:
            continue
        X, y, _, is_test = data
        X, y = X[~is_test], y[~is_test]
        if args.short:
            X, y = X[::6], y[::6]
        warm = SequentialFeatureClassifier(random_state=0).fit(X[::8], y[::8])
        base = least(lambda X=X, y=y: boosted().fit(X, y), 3)
        model = SequentialFeatureClassifier(random_state=0, n_jobs=1)
        whole = least(lambda X=X, y=y, model=model: model.fit(X, y), 1)
        for budget in (3, 5):
            warm.predict(X[:1], budget=budget)
        n = 50
        rounds = model.predict_routed(X[:n], budget=5).route.sum() + n
        one = least(
            lambda X=X, model=model, n=n: [model.predict(X[i : i + 1], budget=5) for i in range(n)],
            2,
        )
        rows.append([name, base, whole / base, 1e3 * one / rounds])
    table("processor time", ["data", "base fit [s]", "fit / base fit", "ms a row and round"], rows)
    return rows


def claims(result):
    found = []
    if own := result.get("published"):
        mean = np.mean(own["ours"], axis=0)
        for k, theirs, value in zip(KS, PUBLISHED, mean):
            what = f"spam, authors' split: accuracy with {k} features"
            peer = {"peer": theirs, "against": "GDFS as published (neural)", "bar": theirs}
            found.append(claim(f"published-{k}", what, value, unit="%", digits=4, **peer))
    if own := result.get("spam"):
        lead = np.mean(own["ours"], axis=0) - np.mean(own["forward"], axis=0)
        few = [KS.index(k) for k in (2, 3, 5)]
        against = {"peer": 0, "against": "LightGBM on a forward selection of as many features"}
        what = "spam, fresh splits: mean lead at 2, 3 and 5 features"
        value = lead[few].mean()
        found.append(claim("spam-few", what, value, unit="points", bar=0.5, **against))
        what = "spam, fresh splits: smallest lead at any number of features"
        found.append(
            claim("spam-least", what, lead.min(), unit="points", bar=-0.5, within=0.5, **against)
        )
    for name, rows in (result.get("mean") or {}).items():
        for budget, bar in MEAN[name]:
            own = [row for row in rows if row[1] == budget]
            spent = np.mean([row[3] for row in own])
            what = f"{name}: accuracy at a mean of {budget} features ({spent:.2f} spent)"
            why = {"why": "the bar is a prototype's: static order with a confidence stop"}
            value = np.mean([row[2] for row in own])
            found.append(claim(f"{name}-{budget}", what, value, unit="%", bar=bar, digits=4, **why))
    for name, rows in (result.get("groups") or {}).items():
        own = np.array(rows, dtype=float)
        leads = []
        for budget in GROUP_BUDGETS[name]:
            at = own[own[:, 1] == budget]
            best = np.nanmax(np.nanmean(at[:, [4, 6, 8]], axis=0))
            leads.append(at[:, 2].mean() - best)
        what = f"{name}: smallest lead at five budgets"
        peer = {
            "peer": 0,
            "against": "the best of Adapt, GreedyMiser and static order",
            "within": 0.5,
        }
        found.append(claim(f"{name}-groups", what, min(leads), unit="points", bar=-0.5, **peer))
    for (name, _, ratio, one), bar in zip(result.get("speed") or [], (40, 150)):
        lower = {"better": "lower", "why": "the base model is a part of the whole"}
        key = name.split()[0]
        what = f"{name}: fit / fit of the base model, selection included"
        found.append(claim(f"fit-{key}", what, ratio, bar=bar, **lower))
        lower["why"] = "the paper reports no times"
        what = f"{name}: one row, a round"
        found.append(claim(f"row-{key}", what, one, unit="ms", bar=2, **lower))
    return found


def joined(known, new):
    """Seeds and splits that were run one by one, together; what is not by seed stays."""
    new = json.loads(json.dumps(new, default=lambda v: v.tolist() if hasattr(v, "tolist") else v))
    if known is None or isinstance(new, list):
        return new
    both = {key: known[key] + new[key] for key in set(known) & set(new) if key in BY_SEED}
    return known | new | both


# Lists with one entry, or some rows, for each seed or split.
BY_SEED = {"ours", "forward", "full", "chosen", *MEAN, *GROUP_BUDGETS}
PARTS = {
    "published": published,
    "spam": spam,
    "mean": mean_budgets,
    "groups": groups,
    "speed": speed,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--keep", help="JSON file that parts run one by one are gathered in")
    parser.add_argument("--first", type=int, default=0, help="first seed or split")
    parser.add_argument("--data", help="one table of mean and groups")
    args = parser.parse_args()
    if args.short:
        vars(args).update(SHORT)
    parts = [args.only] if args.only else ["published", "speed"] if args.short else list(PARTS)
    keep = Path(args.keep) if args.keep else None
    result = json.loads(keep.read_text()) if keep and keep.exists() else {}
    for part in parts:
        if (own := PARTS[part](args)) is None:
            print(f"{part}: Spambase is not there (SKROUTE_DATA); left out.")
        else:
            result[part] = joined(result.get(part), own) if keep else own
    if keep:
        plain = json.dumps(result, default=lambda v: v.tolist() if hasattr(v, "tolist") else v)
        keep.write_text(plain)
    whole = not args.short and set(PARTS) <= set(result)
    title = "Buying features one group at a time"
    save("acquisition", result, title=title, claims=claims(result), write=whole)


if __name__ == "__main__":
    main()
