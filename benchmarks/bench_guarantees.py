"""What can be promised, what it saves, and how often it is broken.

    SKROUTE_DATA=folder python benchmarks/bench_guarantees.py [--short]

A. A batch of 1,531 MMLU questions: share served by the cheap model while the answers to
all of it
   agree with the expensive one's on 90 % of the rows, delta .1, 150 labels.
B. CALM summaries: mean exit layer at a loss of at most .05, delta .1, 100 rows. C. A
loss budget: four cascades to llama-405b are certified at a quarter of the level each,
and the
   cheapest is taken. Savings are over all test rows.
D. A promise of loss and cost: evidence is drawn with replacement from a table that is
the truth.
   The naive rule takes the cheapest point whose mean on the evidence is within the
   limit.
E. `PromiseMonitor`: false alarms at the promise, and the rows until a doubled cost or
loss is
   noticed after so many good rows, beside one bettor that starts at the first row.
F. `PromiseMonitor`: rows until an alarm about a loss, by `audit_rate`.
G. The same for signed losses.
"""

import argparse
import time
import warnings

import numpy as np
from _common import record, table
from _data import calm, cascades
from scipy.stats import beta
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator

from skroute.base import CostAwareMixin, Plan, check_affordable
from skroute.certified import CertifiedRouter, PromiseMonitor
from skroute.guarantees import fixed_sequence_test, mean_p_value

# Columns of the logs, and the expensive model of parts C and D.
MODELS = {"8b": 2, "70b": 3, "405b": 4, "mini": 5, "q72": 7, "4o": 8}
REFERENCE = MODELS["405b"]
# Share that BARGAIN 0.1.3 served on the same batch with 200 seeds, in another run.
BARGAIN = {("8b", "405b"): 0.436, ("70b", "405b"): 0.702, ("mini", "4o"): 0.602}


def limit99(count, n):
    """Upper 99 % limit of a share."""
    return float(beta.ppf(0.99, count + 1, n - count)) if count < n else 1.0


class Cascade(CostAwareMixin, BaseEstimator):
    """Ask a cheap model, and the reference where it is not confident; X holds row numbers.

    The path: thresholds on the confidence, whose costs are those of the train rows;
    without a budget the reference alone is asked. It answers whether the answer served
    is right or, with `labels`, the answer itself.
    """

    def __init__(self, log, cheap, reference, budget=None, labels=False):
        self.log = log
        self.cheap = cheap
        self.reference = reference
        self.budget = budget
        self.labels = labels

    def _fit(self, X, y, *, task):
        train = ~self.log["is_test"]
        confidence, costs = (
            self.log["confidence"][train, self.cheap],
            self.log["cost"][train],
        )
        self.thresholds_ = np.unique(confidence[np.isfinite(confidence)])
        share = (confidence[:, None] < self.thresholds_).T
        self.path_ = (
            costs[:, self.cheap].mean() + share @ costs[:, self.reference] / train.sum()
        )
        self.choices_ = ["cheap", "reference"]

    def _smallest_budget(self):
        return self.path_[0]

    def _plan(self, X, call):
        budget = call.budget
        check_affordable(budget, self._smallest_budget())
        rows, cost = np.asarray(X)[:, 0].astype(int), self.log["cost"]
        if budget == np.inf:
            return Plan(np.ones(len(rows), dtype=np.int64), cost[rows, self.reference])
        k = np.searchsorted(self.path_, budget * (1 + 1e-12), side="right") - 1
        route = (self.log["confidence"][rows, self.cheap] < self.thresholds_[k]).astype(
            np.int64
        )
        return Plan(route, cost[rows, self.cheap] + route * cost[rows, self.reference])

    def _answer(self, plan, response):
        rows = np.asarray(plan.X)[:, 0].astype(int)
        answers = "answer" if self.labels else "correctness"
        return self.log[answers][
            rows, np.where(plan.route, self.reference, self.cheap)
        ].astype(int)


def frozen(log, cheap, reference=REFERENCE, **options):
    return FrozenEstimator(Cascade(log, cheap, reference, **options).fit([[0]]))


def batches(n_seeds):
    log, rows = cascades("mmlu"), []
    batch = np.flatnonzero(log["is_test"])[:, None]
    for (cheap, expensive), peer in BARGAIN.items():
        a, b = MODELS[cheap], MODELS[expensive]
        path, truth = frozen(log, a, b, labels=True), log["answer"][batch[:, 0], b]
        same = (log["answer"][batch[:, 0], a] == truth).mean()
        served, cost, broken = [], [], 0
        for seed in range(n_seeds):
            options = {"reference": "full", "n_points": 400, "random_state": seed}
            router = CertifiedRouter(path, max_loss=0.1, confidence=0.9, **options)
            found = router.certify_batch(batch, n_labels=150)
            served.append((found.route == 0).mean())
            cost.append(1e6 * found.cost.mean())
            broken += (found.y_pred != truth).mean() > 0.1 + 1e-9
        # Rows served at random may differ on a tenth of all; an oracle serves those
        # that agree.
        mix, oracle = min(0.1 / (1 - same), 1.0), min(same + 0.1, 1.0)
        row = [
            f"{cheap} to {expensive}",
            np.mean(served),
            np.std(served) / np.sqrt(n_seeds),
            peer,
        ]
        row += [mix, oracle, broken / n_seeds, limit99(broken, n_seeds), np.mean(cost)]
        rows.append([*row, 1e6 * log["cost"][batch[:, 0], b].mean()])
    header = ["pair", "share", "se", "BARGAIN", "random mix", "oracle"]
    header += ["broken", "99 % limit", "$/M", "expensive $/M"]
    table(
        f"A. Batch, agreement .9, 150 labels, delta .1, {n_seeds} seeds", header, rows
    )


def exits(n_splits):
    log, rows = calm(), []
    losses, layers = log["losses"].astype(float), log["layers"]

    def certified(known):
        p = []
        for row in losses[:, known]:
            p.append(mean_p_value(row, 0.05, bounds=(-1, 1)))
            if p[-1] > 0.1:
                break
        return max(int(fixed_sequence_test(p, confidence=0.9).sum()) - 1, 0)

    def naive(known):
        return int(np.flatnonzero(losses[:, known].mean(axis=1) <= 0.05)[-1])

    for name, rule in (("certified", certified), ("naive rule", naive)):
        depth, broken = [], 0
        for split in range(n_splits):
            order = np.random.default_rng(9000 + split).permutation(losses.shape[1])
            k = rule(order[:100])
            depth.append(layers[k])
            broken += losses[k, order[100:]].mean() > 0.05
        error = np.std(depth) / np.sqrt(n_splits)
        rows.append(
            [name, np.mean(depth), error, broken / n_splits, limit99(broken, n_splits)]
        )
    title = (
        "B. CALM, loss .05, 100 rows: exit layer "
        "(published betting bound 7.26, all layers 14.9)"
    )
    table(title, ["rule", "layers", "se", "broken", "99 % limit"], rows)


def savings(n_draws):
    rows = []
    cheap_ones = ("mini", "8b", "70b", "q72")
    for name in ("mmlu", "triviaqa"):
        log = cascades(name)
        test = np.flatnonzero(log["is_test"])
        right, cost = (
            log["correctness"][test].mean(axis=0),
            log["cost"][test].mean(axis=0),
        )
        paths = [frozen(log, MODELS[cheap]) for cheap in cheap_ones]
        for n in (500, 1000):
            for points in (1, 2, 3):
                saved, broken = [], 0
                for draw in range(n_draws):
                    drawn = np.random.default_rng(5000 + draw).permutation(test)[
                        :n, None
                    ]
                    options = {
                        "reference": "full",
                        "random_state": draw,
                        "fallback": "safe",
                    }
                    options |= {
                        "max_loss": points / 100,
                        "confidence": 1 - 0.05 / len(paths),
                    }
                    made = [
                        CertifiedRouter(path, **options).fit(
                            drawn, np.ones(n, dtype=int)
                        )
                        for path in paths
                    ]
                    best = min(made, key=lambda router: router.certificate_.cost)
                    y_pred, _, spent = best.predict_routed(test[:, None])
                    saved.append(1 - spent.mean() / cost[REFERENCE])
                    broken += right[REFERENCE] - y_pred.mean() > points / 100
                mix = 0.0
                for k in (MODELS[cheap] for cheap in cheap_ones):
                    lost = max(right[REFERENCE] - right[k], 1e-9)
                    mix = max(
                        mix,
                        min(points / 100 / lost, 1.0) * (1 - cost[k] / cost[REFERENCE]),
                    )
                row = [
                    name,
                    n,
                    points,
                    np.mean(saved),
                    np.std(saved) / np.sqrt(n_draws),
                    mix,
                ]
                rows.append(
                    [*row, best_known(log, test, paths, points), broken / n_draws]
                )
    header = ["data", "rows", "points", "saved", "se", "random mix, loss known"]
    header += ["oracle threshold", "broken"]
    table(
        f"C. Loss budget at 95 %, {n_draws} draws: share of the cost saved",
        header,
        rows,
    )


def best_known(log, test, paths, points):
    """Saving of the cheapest threshold of all cascades by the test rows themselves."""
    full, best = log["cost"][test, REFERENCE].mean(), 0.0
    right = log["correctness"][test, REFERENCE].mean()
    for path in paths:
        for budget in path.estimator.path_:
            y_pred, _, cost = path.estimator.predict_routed(
                test[:, None], budget=budget
            )
            if right - y_pred.mean() <= points / 100:
                best = max(best, 1 - cost.mean() / full)
    return best


def validity(n_draws):
    rows = []
    for name in ("mmlu", "triviaqa"):
        log = cascades(name)
        test = np.flatnonzero(log["is_test"])
        for cheap in ("mini", "8b", "70b"):
            path = frozen(log, MODELS[cheap])
            decide, reference = path.estimator, log["correctness"][test, REFERENCE]
            most = decide.predict_cost(test[:, None], budget=np.inf).mean()
            grid = np.r_[np.linspace(decide.min_budget_, most, 30), np.inf]
            losses = [reference - decide.predict(test[:, None], budget=b) for b in grid]
            losses, budget = np.array(losses), 0.8 * most
            largest = float(
                log["cost"][test][:, [MODELS[cheap], REFERENCE]].sum(axis=1).max()
            )
            options = {"max_loss": 0.03, "budget": budget, "max_cost": largest}
            options |= {"reference": "full", "n_points": 30}
            broken = naive = refused = 0
            for draw in range(n_draws):
                drawn = np.random.default_rng(20_000 + draw).choice(len(test), 500)
                router = CertifiedRouter(path, random_state=draw, **options)
                within = losses[:, drawn].mean(axis=1) <= 0.03
                naive += losses[int(np.argmax(within))].mean() > 0.03
                try:
                    router.fit(test[drawn, None], np.ones(500, dtype=int))
                except ValueError as error:
                    assert "promise" in str(error)
                    refused += 1
                    continue
                y_pred, _, cost = router.predict_routed(test[:, None])
                broken += (reference - y_pred).mean() > 0.03 or cost.mean() > budget
            shares = [broken / n_draws, limit99(broken, n_draws), naive / n_draws]
            rows.append([f"{name}, {cheap} to 405b", refused / n_draws, *shares])
    header = [
        "table",
        "refused",
        "broken (at most .05)",
        "99 % limit",
        "naive rule broken",
    ]
    table(
        f"D. Loss .03 and cost .8 promised together at 95 %, {n_draws} draws",
        header,
        rows,
    )


def monitors(n_streams, n_rows, n_changes):
    alarms = {"cost": 0, "loss": 0}
    for seed in range(n_streams):
        rng = np.random.default_rng(60_000 + seed)
        of_cost = PromiseMonitor(budget=1.0, max_cost=1e9)
        alarms["cost"] += of_cost.update(cost=rng.exponential(1.0, n_rows)) is not None
        losses = (rng.random(n_rows) < 0.1).astype(float)
        alarms["loss"] += PromiseMonitor(max_loss=0.1).update(loss=losses) is not None
    shares = [
        [kind, n / n_streams, limit99(n, n_streams)] for kind, n in alarms.items()
    ]
    header = ["promise", "share of streams", "99 % limit"]
    table(
        f"E. False alarms (at most .05), {n_streams} streams of {n_rows} rows",
        header,
        shares,
    )
    rows = []
    for good in (0, 1_000, 10_000, 100_000):
        found = []
        for seed in range(n_changes):
            rng = np.random.default_rng(80_000 + seed)
            costs = np.r_[rng.exponential(0.5, good), rng.exponential(2.0, 20_000)]
            losses = np.r_[rng.random(good) < 0.05, rng.random(20_000) < 0.2].astype(
                float
            )
            of_cost = PromiseMonitor(budget=1.0).update(cost=costs)
            of_loss = PromiseMonitor(max_loss=0.1).update(loss=losses)
            bets = np.geomspace(0.02, 0.5, 8)
            money = np.log1p(np.outer(np.minimum(costs, 10) - 1, bets)).cumsum(axis=0)
            late = np.flatnonzero(np.logaddexp.reduce(money, axis=1) >= np.log(8 * 20))
            one = late[0] + 1 if len(late) else np.inf
            found.append([of_cost.row - good, of_loss.row - good, one - good])
        monitor = PromiseMonitor(budget=1.0)
        monitor.update(cost=np.full(max(good, 1), 0.5))
        start = time.perf_counter()
        for _ in range(1000):
            monitor.update(cost=0.5)
        microseconds = 1e3 * (time.perf_counter() - start)
        rows.append([good, *np.mean(found, axis=0), microseconds])
    header = [
        "good rows",
        "cost doubled",
        "loss doubled",
        "one bettor, cost",
        "us a row",
    ]
    table(f"E. Mean rows until the alarm, {n_changes} streams", header, rows)


# Share of rows on which only the router is right, in the table of signed losses: the
# loss is -1 there, and takes back a row on which only the reference is right.
_SHARE_GAINED = 0.05


def audit_rates(n_streams, share_gained=0.0):
    """Print how many rows pass until an alarm, for rates of auditing and for losses.

    `share_gained` is the share of rows with a loss of -1. 0: losses are 0 or 1.
    """
    promised = 0.02
    n_good = 10_000
    rows = []
    for audit_rate in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0):
        row = [audit_rate]
        for loss in (0.05, 0.1, 0.2):
            delays = []
            for seed in range(n_streams):
                delay = rows_until_alarm(
                    audit_rate,
                    loss,
                    promised=promised,
                    n_good=n_good,
                    share_gained=share_gained,
                    seed=seed,
                )
                delays.append(delay)
            # Nearest ranks: a stream without an alarm has a delay of infinity.
            middle, late = np.quantile(delays, [0.5, 0.95], method="higher")
            row += [middle, late]
        rows.append(row)
    header = ["audit_rate"]
    for loss in (0.05, 0.1, 0.2):
        header += [f"loss {loss}, median", "95 %"]
    kind = "F. Losses of 0 or 1"
    if share_gained:
        kind = f"G. Losses of -1, 0 or 1, with -1 on {share_gained:.0%} of the rows"
    table(
        f"{kind}: rows until the alarm against a promised loss of {promised}, after "
        f"{n_good} rows with a loss of 0.01, {n_streams} streams",
        header,
        rows,
    )


def rows_until_alarm(audit_rate, loss, *, promised, n_good, share_gained, seed):
    """Return the rows from a change of the loss until the alarm; infinity for none."""
    # After the change, 4,000 audited rows, or 20,000 noisier ones: all alarms come by
    # then, or hardly ever.
    n_audited = 20_000 if share_gained else 4_000
    n_bad = int(n_audited / audit_rate)
    rng = np.random.default_rng(90_000 + seed)
    losses = np.concatenate(
        [
            _draw_losses(rng, n_good, mean=0.01, share_gained=share_gained),
            _draw_losses(rng, n_bad, mean=loss, share_gained=share_gained),
        ]
    )
    monitor = PromiseMonitor(
        max_loss=promised, audit_rate=audit_rate, random_state=seed
    )
    losses[~monitor.audit(len(losses))] = np.nan
    alarm = monitor.update(loss=losses)
    # A false alarm before the change tells nothing of the delay.
    if alarm is None or alarm.row <= n_good:
        return np.inf
    return alarm.row - n_good


def _draw_losses(rng, n_rows, *, mean, share_gained):
    """Return losses of -1, 0 and 1 with a mean, float64 of shape (n_rows,)."""
    uniform = rng.random(n_rows)
    share_lost = mean + share_gained
    losses = (uniform < share_lost).astype(np.float64)
    losses[uniform >= 1 - share_gained] = -1.0
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--short", action="store_true", help="few draws; writes no record"
    )
    parser.add_argument(
        "--part", choices=["audits"], help="only the rows until an alarm (F, G)"
    )
    arguments = parser.parse_args()
    quick = arguments.short
    if arguments.part == "audits":
        audit_rates(10 if quick else 200)
        audit_rates(5 if quick else 100, share_gained=_SHARE_GAINED)
        return
    # Of many draws some certify nothing that saves; the tables count them.
    warnings.filterwarnings("ignore", "What is certified saves nothing")
    batches(3 if quick else 200)
    exits(10 if quick else 400)
    savings(1 if quick else 40)
    validity(3 if quick else 500)
    monitors(20 if quick else 1000, 20_000 if quick else 100_000, 4 if quick else 40)
    audit_rates(3 if quick else 200)
    audit_rates(3 if quick else 100, share_gained=_SHARE_GAINED)
    if not quick:
        record("guarantees")


if __name__ == "__main__":
    main()
