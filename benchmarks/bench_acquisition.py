"""Buying features one group at a time, beside what was published and the strongest simple peers.

    python benchmarks/bench_acquisition.py [--short] [--part spam letter] [--seeds 0 1 2]
    python benchmarks/bench_acquisition.py --merge FOLDER

Seeds of a part may be measured by independent processes (``--pieces FOLDER``) and put together.

``published``: the authors' split of Spambase, exactly k of 57 features, beside the published row
of greedy dynamic feature selection (Covert et al., ICML 2023), a neural policy. ``spam``: fresh
splits, beside LightGBM on a forward selection of as many features, which may use the validation
rows to choose and all rows to fit, as we do. ``small``: the same on small tables. ``letter``,
``adult``: mean budgets. ``covertype-groups``, ``adult-groups``: Covertype, and Adult in groups with
prices, beside Adapt, GreedyMiser and one order for all rows, at five budgets. ``spent``: what is
spent of a mean budget, over fifty splits. ``speed``: fits of the whole against fits of the base
model, and one row.

Nothing was chosen on a test row of this file: settings come from splits of the training rows.
"""

import argparse
import copy
import os
import time
from functools import partial
from pathlib import Path

import lightgbm
import numpy as np
from _harness import claim, keep_piece, read_pieces, save, table
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.ensemble import RandomForestClassifier
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


def published(seed, short):
    """The authors' split."""
    if (data := spambase()) is None:
        return None
    X, y, _, is_test = data
    part = slice(None, None, 6) if short else slice(None)
    model = SequentialFeatureClassifier(random_state=seed, n_jobs=1)
    model.fit(X[~is_test][part], y[~is_test][part])
    row, cost = exactly(model, X[is_test], y[is_test])
    assert (np.array(cost) <= KS).all()
    chosen = [model.operating_point(max_cost=k).candidate for k in KS]
    print("published split, seed", seed, np.round(row, 2), chosen, flush=True)
    full = boosted().fit(X[~is_test], y[~is_test]).score(X[is_test], y[is_test])
    return {"ours": row, "all": 100 * full, "chosen": chosen}


def show_published(found):
    mean = np.mean([one["ours"] for one in found], axis=0)
    rows = [[k, p, m, m - p] for k, p, m in zip(KS, PUBLISHED, mean)]
    table(
        f"Spambase, the authors' split, {len(found)} seeds; all features {found[0]['all']:.2f}",
        ["features", "published", "skroute", "lead"],
        rows,
    )


def beside_forward(X, y, parts, seed, ks):
    """With k features of each row, beside a forward selection; and with all of them."""
    train, val, test = parts
    fit = np.concatenate([train, val])
    model = SequentialFeatureClassifier(random_state=seed, n_jobs=1).fit(X[fit], y[fit])
    found = {"ours": [], "forward": [], "chosen": []}
    chosen = forward(X[train], y[train], X[val], y[val], min(max(ks), X.shape[1]))
    for k in ks:
        found["ours"].append(percent(model.predict(X[test], max_cost=k) == y[test]))
        found["chosen"].append(model.operating_point(max_cost=k).candidate)
        columns = chosen[:k]
        refit = boosted(seed).fit(X[np.ix_(fit, columns)], y[fit])
        found["forward"].append(percent(refit.predict(X[np.ix_(test, columns)]) == y[test]))
    found["full"] = percent(boosted(seed).fit(X[fit], y[fit]).predict(X[test]) == y[test])
    return found


def thirds(n, seed, every=1):
    """Three fifths to learn from, a fifth to choose on and a fifth to judge on."""
    order = np.random.default_rng(1000 + seed).permutation(n)[::every]
    test, val, train = np.split(order, [len(order) // 5, 2 * len(order) // 5])
    return train, val, test


def spam(seed, short):
    """A fresh split, beside forward selection."""
    if (data := spambase()) is None:
        return None
    X, y, *_ = data
    parts = thirds(len(y), seed, 6 if short else 1)
    found = beside_forward(X, y, parts, seed, KS[:3] if short else KS)
    lead = np.subtract(found["ours"], found["forward"])
    print("fresh split", seed, "leads", np.round(lead, 2), found["chosen"], flush=True)
    return found


def leads(found):
    """Mean leads over forward selection and their standard errors, over splits."""
    lead = np.array([np.subtract(one["ours"], one["forward"]) for one in found])
    spread = lead.std(axis=0, ddof=1) if len(lead) > 1 else 0 * lead[0]
    return lead.mean(axis=0), spread / np.sqrt(len(lead))


def show_beside(title, ks, found):
    forward, ours = (np.mean([one[key] for one in found], axis=0) for key in ("forward", "ours"))
    full = np.mean([one["full"] for one in found])
    table(
        f"{title}, {len(found)} fresh splits; all features {full:.2f}",
        ["features", "forward selection", "skroute", "lead", "standard error"],
        [list(row) for row in zip(ks, forward, ours, *leads(found))],
    )


SMALL = ("breast cancer", "wine", "diabetes", "iris", "300 of spam")
SMALL_KS = (1, 2, 3, 5)


def small(seed, short):
    """Tables of 150 to 569 rows, four splits each, beside forward selection."""
    found = {}
    for name in SMALL[2:3] if short else SMALL:
        if name == "300 of spam":
            if (data := spambase()) is None:
                continue
            X, y, *_ = data
            kept = np.random.default_rng(seed).permutation(len(y))[:300]
            X, y = X[kept], y[kept]
        else:
            load = {"breast cancer": load_breast_cancer, "wine": load_wine, "iris": load_iris}
            X, y = load.get(name, load_diabetes)(return_X_y=True)
            y = (y > np.median(y)).astype(int) if name == "diabetes" else y
        ks = [k for k in SMALL_KS if k <= X.shape[1]]
        splits = [4 * seed + at for at in range(1 if short else 4)]
        found[name] = [beside_forward(X, y, thirds(len(y), at), at, ks) for at in splits]
        print(name, seed, np.round(leads(found[name])[0], 2), flush=True)
    return found


def show_small(found):
    for name in found[0]:
        own = [one for each in found for one in each[name]]
        show_beside(name, SMALL_KS, own)


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


def mean_budgets(name):
    """Mean budgets where each feature costs 1."""

    def measure(seed, short):
        X, y, _ = tables(name)
        train, test = split_rows(name, y, seed, short)
        model = SequentialFeatureClassifier(random_state=seed, n_jobs=1)
        model.fit(X[train], y[train])
        rows = []
        for budget, bar in MEAN[name]:
            routed = model.predict_routed(X[test], budget=budget)
            point = model.operating_point(budget)
            own = [seed, budget, percent(routed.y_pred == y[test]), routed.cost.mean(), bar]
            rows.append([*own, point.candidate])
            print(name, rows[-1], flush=True)
        return rows

    return measure


def show_mean(name, found):
    table(
        f"{name}: mean budgets",
        ["seed", "budget", "accuracy", "spent", "bar", "candidate"],
        [row for rows in found for row in rows],
    )


def only_static_order(model):
    """The same model without its other candidates: one order for all rows, each stops by itself."""
    alone, held_out = copy.copy(model), model._held_out
    paths = {"static order": held_out.paths["static order"]}
    alone._held_out, alone._points = HeldOut(paths, {}, held_out.set_costs), {}
    return alone


def prices_of(name, names):
    """Groups of Adult with their prices; columns of Covertype cost 1."""
    if name != "adult":
        return {}
    columns = {g: [names.index(c) for c in own] for g, (own, _) in ADULT_GROUPS.items()}
    costs = {g: cost for g, (_, cost) in ADULT_GROUPS.items()}
    return {"feature_groups": columns, "feature_costs": costs}


def groups(name):
    """Groups with prices (Adult) and single columns (Covertype) beside Adapt, GreedyMiser and the
    static order with stopping."""
    budgets = GROUP_BUDGETS[name]

    def measure(seed, short):
        X, y, names = tables(name)
        costs = prices_of(name, names)
        train, test = split_rows(name, y, seed, short)
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
                GreedyMiserClassifier(gamma=gamma, **costs) for gamma in np.geomspace(1e-4, 3e-2, 8)
            ],
        }
        judged = {}
        for kind, candidates in peers.items():
            for candidate in candidates[: 1 if short else None]:
                candidate.fit(X[fit], y[fit])
                on_val = [(candidate.predict_routed(X[val]), None)]
                for budget in budgets:
                    if budget >= candidate.min_budget_:
                        on_val.append((candidate.predict_routed(X[val], budget=budget), budget))
                for routed, asked in on_val:
                    right = accuracy_score(y[val], routed.y_pred)
                    judged.setdefault(kind, []).append(
                        (right, routed.cost.mean(), candidate, asked)
                    )
        rows = []
        for budget in budgets:
            row = [seed, budget]
            routed = model.predict_routed(X[test], budget=budget)
            row += [percent(routed.y_pred == y[test]), routed.cost.mean()]
            for kind in peers:
                within = [item for item in judged[kind] if item[1] <= budget]
                if within:
                    *_, best, asked = max(within, key=lambda item: (item[0], -item[1]))
                    theirs = best.predict_routed(X[test], budget=asked)
                    row += [percent(theirs.y_pred == y[test]), theirs.cost.mean()]
                else:
                    row += [np.nan, np.nan]
            theirs = static.predict_routed(X[test], budget=budget)
            row += [percent(theirs.y_pred == y[test]), theirs.cost.mean()]
            rows.append(row)
            print(name, np.round(row, 2), model.operating_point(budget).candidate, flush=True)
        return rows

    return measure


def show_groups(name, found):
    header = ["seed", "budget", "skroute", "spent", "adapt", "spent", "greedy miser", "spent"]
    header += ["static order", "spent"]
    table(f"{name}: five budgets", header, [row for rows in found for row in rows])


SPENT_ROWS = 2400


def spent(seed, short):
    """Realised over asked on fresh rows, ten splits: of the sequential buyer on Adult in groups,
    of Adapt on Letter, where its gate sends rows."""
    found = {}
    for at in range(10 * seed, 10 * seed + (1 if short else 10)):
        rows = SPENT_ROWS // (4 if short else 1)
        X, y, names = tables("adult")
        order = np.random.default_rng(at).permutation(len(y))[: rows + 16000]
        fit, test = order[:rows], order[rows:]
        model = SequentialFeatureClassifier(random_state=at, n_jobs=1, **prices_of("adult", names))
        model.fit(X[fit], y[fit])
        for budget in (3, 8):
            ratio = model.predict_cost(X[test], budget=budget).mean() / budget
            found.setdefault(f"sequential, {budget}", []).append(ratio)
        X, y, _ = tables("letter")
        order = np.random.default_rng(at).permutation(len(y))
        fit, test = order[:rows], order[rows:]
        full = RandomForestClassifier(50, oob_score=True, random_state=at)
        model = AdaptGatingClassifier(full, p_full=0.6, gamma=0.01).fit(X[fit], y[fit])
        cheap, whole = model.cost_table_["cheap"], model.cost_table_["full"]
        for share in (0.1, 0.3):
            budget = cheap + share * (whole - cheap)
            cost = model.predict_cost(X[test], budget=budget)
            # The share of rows sent is what a budget buys beside the cheap model.
            found.setdefault(f"adapt, share {share}", []).append(
                [cost.mean() / budget, (cost > cheap).mean() / share]
            )
    print("spent", seed, {key: np.mean(v, axis=0).round(3) for key, v in found.items()}, flush=True)
    return found


def ratios(found):
    """Realised / asked by what was asked, over all splits; the cost of a gate alone."""
    return {
        key: np.array([v[0] if isinstance(v, list) else v for one in found for v in one[key]])
        for key in found[0]
    }


def show_spent(found):
    rows = []
    for key, values in ratios(found).items():
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
        rows.append([key, len(values), values.mean(), error, values.min(), values.max()])
    header = ["what", "splits", "mean", "standard error", "least", "most"]
    table(f"realised / asked mean cost, {SPENT_ROWS} rows to learn from", header, rows)
    for key, values in ((k, np.array(found[0][k])) for k in found[0]):
        if values.ndim == 2:
            shares = np.concatenate([np.array(one[key])[:, 1] for one in found])
            print(f"{key}: rows sent / asked {shares.mean():.3f}, least {shares.min():.3f}")


def least(call, repeats):
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)


def speed(seed, short):
    """Processor time of a whole fit over that of the base model, and of a row and round."""
    rows = []
    found = {"spam (nearest rows)": spambase()}
    if not short:
        X, y, _ = tables("letter")
        found["letter (learned gains)"] = X[:12800], y[:12800], None, np.zeros(12800, bool)
    for name, data in found.items():
        if data is None:
            return None
        X, y, _, is_test = data
        X, y = X[~is_test], y[~is_test]
        if short:
            X, y = X[::6], y[::6]
        warm = SequentialFeatureClassifier(random_state=seed).fit(X[::8], y[::8])
        model = SequentialFeatureClassifier(random_state=seed, n_jobs=1)
        # In turn, so that a machine that drifts hits both alike.
        base, whole = [], []
        for _ in range(1 if short else 3):
            base.append(least(lambda X=X, y=y: boosted().fit(X, y), 3))
            whole.append(least(lambda X=X, y=y, model=model: model.fit(X, y), 1))
        for budget in (3, 5):
            warm.predict(X[:1], budget=budget)
        n = 50
        rounds = model.predict_routed(X[:n], budget=5).route.sum() + n
        one = least(
            lambda X=X, model=model, n=n: [model.predict(X[i : i + 1], budget=5) for i in range(n)],
            2,
        )
        rows.append([name, min(base), min(whole) / min(base), 1e3 * one / rounds])
    return rows


def show_speed(found):
    header = ["data", "base fit [s]", "fit / base fit", "ms a row and round"]
    table("processor time", header, found[0])


def claims(result):
    found = []
    if own := result.get("published"):
        mean = np.mean([one["ours"] for one in own], axis=0)
        for k, theirs, value in zip(KS, PUBLISHED, mean):
            what = f"spam, authors' split: accuracy with {k} features"
            peer = {"peer": theirs, "against": "GDFS as published (neural)", "bar": theirs}
            # To the digits that were published: .7848 is 722 of the 920 rows.
            value = round(value, 2)
            found.append(claim(f"published-{k}", what, value, unit="%", digits=4, **peer))
    against = {"peer": 0, "against": "LightGBM on a forward selection of as many features"}
    if own := result.get("spam"):
        lead, _ = leads(own)
        what = "spam, fresh splits: mean lead at 2, 3 and 5 features"
        few = [KS.index(k) for k in (2, 3, 5) if KS.index(k) < len(lead)]
        value = lead[few].mean()
        found.append(claim("spam-few", what, value, unit="points", bar=0.5, **against))
        what = "spam, fresh splits: smallest lead at any number of features"
        found.append(
            claim("spam-least", what, lead.min(), unit="points", bar=-0.5, within=0.5, **against)
        )
    if own := result.get("small"):
        for name in own[0]:
            lead, error = leads([one for each in own for one in each[name]])
            what = f"{name}: lead with 1 feature"
            noise = {"within": 2 * error[0], "bar": -2 * error[0]}
            key = f"small-{name.replace(' ', '-')}"
            found.append(claim(key, what, lead[0], unit="points", **noise, **against))
            what = f"{name}: smallest lead with 1, 2, 3 or 5 features"
            noise = {"within": max(0.5, 2 * error[lead.argmin()])}
            found.append(claim(f"{key}-least", what, lead.min(), unit="points", **noise, **against))
    for name in MEAN:
        rows = [row for rows in result.get(name) or [] for row in rows]
        for budget, bar in MEAN[name] if rows else ():
            own = [row for row in rows if row[1] == budget]
            spent = np.mean([row[3] for row in own])
            what = f"{name}: accuracy at a mean of {budget} features ({spent:.2f} spent)"
            why = {"why": "the bar is a prototype's: static order with a confidence stop"}
            value = np.mean([row[2] for row in own])
            found.append(claim(f"{name}-{budget}", what, value, unit="%", bar=bar, digits=4, **why))
    for name in GROUP_BUDGETS:
        rows = [row for rows in result.get(f"{name}-groups") or [] for row in rows]
        if not rows:
            continue
        own = np.array(rows, dtype=float)
        margins = []
        for budget in GROUP_BUDGETS[name]:
            at = own[own[:, 1] == budget]
            # A peer that a budget is too small for on some split is not compared there.
            best = np.nan_to_num(at[:, [4, 6, 8]].mean(axis=0), nan=-np.inf).max()
            margins.append(at[:, 2].mean() - best)
        what = f"{name}: smallest lead at five budgets"
        peer = {
            "peer": 0,
            "against": "the best of Adapt, GreedyMiser and static order",
            "within": 0.5,
        }
        found.append(claim(f"{name}-groups", what, min(margins), unit="points", bar=-0.5, **peer))
    if own := result.get("spent"):
        for key, values in ratios(own).items():
            what = f"{key}: |realised / asked - 1| of mean budgets, mean of {len(values)} splits"
            off = 100 * abs(values.mean() - 1)
            why = "a bias: there is nothing that it could be compared with"
            key = f"spent-{key.replace(', ', '-').replace(' ', '-')}"
            found.append(claim(key, what, off, unit="%", better="lower", bar=2, why=why))
    speeds = (result.get("speed") or [[]])[0]
    for (name, _, ratio, one), bar in zip(speeds, (40, 150)):
        lower = {"better": "lower", "why": "the base model is a part of the whole"}
        key = name.split()[0]
        what = f"{name}: fit / fit of the base model, selection included"
        found.append(claim(f"fit-{key}", what, ratio, bar=bar, **lower))
        lower["why"] = "the paper reports no times"
        what = f"{name}: one row, a round"
        found.append(claim(f"row-{key}", what, one, unit="ms", bar=2, **lower))
    return found


PARTS = {
    "published": published,
    "spam": spam,
    "small": small,
    **{name: mean_budgets(name) for name in MEAN},
    **{f"{name}-groups": groups(name) for name in GROUP_BUDGETS},
    "spent": spent,
    "speed": speed,
}
SHOW = {
    "published": show_published,
    "spam": partial(show_beside, "Spambase", KS),
    "small": show_small,
    **{name: partial(show_mean, name) for name in MEAN},
    **{f"{name}-groups": partial(show_groups, name) for name in GROUP_BUDGETS},
    "spent": show_spent,
    "speed": show_speed,
}
# Seeds of a part, where these are not five.
SEEDS = {"spam": 10, "speed": 1}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--part", choices=PARTS, nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", help="those alone")
    parser.add_argument("--pieces", help="folder that keeps what each seed of each part gave")
    parser.add_argument("--merge", help="folder of pieces, which are put together")
    args = parser.parse_args()
    if args.merge:
        result, measured = read_pieces(args.merge)
    else:
        result, measured = {}, None
        for part in args.part or (["published", "speed"] if args.short else PARTS):
            seeds = args.seeds or range(1 if args.short else SEEDS.get(part, 5))
            for seed in seeds:
                if (own := PARTS[part](seed, args.short)) is None:
                    print(f"{part}: Spambase is not there (SKROUTE_DATA); left out.")
                    break
                keep_piece(args.pieces, part, seed, own)
                result.setdefault(part, []).append(own)
    for part, found in result.items():
        SHOW[part](found)
    whole = not args.short and set(PARTS) <= set(result)
    title = "Buying features one group at a time"
    found = claims(result)
    save("acquisition", result, title=title, claims=found, write=whole, measured=measured)


if __name__ == "__main__":
    main()
