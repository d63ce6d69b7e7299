"""Early exit from a deep net on USPS, three seeds. ``python benchmarks/bench_multi_exit.py``

A convolutional net of four stages with a head after each. Split: the one that
`_data.usps` marks (7,699 / 3,301); of the train rows 2,000, drawn by the seed, are kept
from training the net, and thresholds and policies are fitted on them. The test rows are
only scored.

Compared with the full net: what a plain torch loop over the whole module takes on the
same rows in the same batches. Baselines: each exit alone; the same number of rows
leaving at each exit, but drawn at random; one threshold on the largest probability for
all exits (as BranchyNet does), chosen on the same 2,000 rows; and an oracle that is
told the labels and stops at the first exit that is right.

Time is counted twice: as the stages that rows went through, at the cost of a stage that
`fit` measured, and as seconds of `predict` with everything in it. Hooks on the stages
count the rows that they see: a stage that saw a row twice would show.
"""

import argparse
import sys
from importlib.util import find_spec

import _data
import numpy as np
from _common import alternate, record, table
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from skroute.early_exit import QWYCEnsemble
from skroute.members import MultiExitClassifier

N_HELD_OUT = 2000
ALPHA = 0.005
BATCH = 1024


def build(n_features, n_classes):
    """Four stages on 16 x 16 images; most of the work is in the last one."""
    from torch import nn

    def conv(n_in, n_out, stride=1):
        return [
            nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(),
        ]

    def head(n_channels):
        size = 16 * n_channels
        return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(size, n_classes))

    net = nn.Module()
    net.stages = nn.ModuleList(
        [
            nn.Sequential(nn.Unflatten(1, (1, 16, 16)), *conv(1, 8, stride=2)),
            nn.Sequential(*conv(8, 16)),
            nn.Sequential(*conv(16, 32)),
            nn.Sequential(*conv(32, 32), *conv(32, 32)),
        ]
    )
    net.heads = nn.ModuleList([head(8), head(16), head(32), head(32)])
    return net


def plain_torch(net, X):
    """The whole module, last head only, as one would write it without skroute."""
    import torch

    module = net.module_
    device = next(module.parameters()).device

    def predict():
        answers = []
        with torch.inference_mode():
            for start in range(0, len(X), BATCH):
                rows = torch.as_tensor(
                    X[start : start + BATCH], dtype=torch.float32
                ).to(device)
                for stage in module.stages:
                    rows = stage(rows)
                answers.append(module.heads[-1](rows).argmax(dim=1).cpu().numpy())
        return net.classes_[np.concatenate(answers)]

    return predict


def rows_per_stage(net, call):
    """Rows that each stage sees during a call, and what the call returns."""
    seen = np.zeros(net.n_exits_, dtype=int)

    def counter(k):
        def hook(module, arguments, output):
            seen[k] += len(output)

        return hook

    hooks = [
        stage.register_forward_hook(counter(k))
        for k, stage in enumerate(net.module_.stages)
    ]
    result = call()
    for hook in hooks:
        hook.remove()
    return seen, result


def branchy(held_out, staged, spent, alpha):
    """One threshold on the largest probability for all exits, BranchyNet's rule.

    The one that leaves earliest whose answers differ from the last exit's on at most a
    share `alpha` of the held-out rows.
    """

    def leave(proba, threshold):
        sure = np.array([part.max(axis=1) > threshold for part in proba])
        sure[-1] = True
        return sure.argmax(axis=0)

    def answers(proba, exit):
        return np.array([part.argmax(axis=1) for part in proba])[
            exit, np.arange(len(exit))
        ]

    full = held_out[-1].argmax(axis=1)
    for threshold in 1 - np.geomspace(0.5, 1e-6, 60):
        exit = leave(held_out, threshold)
        if np.mean(answers(held_out, exit) != full) <= alpha:
            break
    exit = leave(staged, threshold)
    return answers(staged, exit), spent[exit]


def one_seed(seed, X_train, y_train, X_test, y_test, epochs, device):
    order = np.random.RandomState(seed).permutation(len(y_train))
    rest, fit = order[:N_HELD_OUT], order[N_HELD_OUT:]
    net = MultiExitClassifier(
        build,
        max_epochs=epochs,
        lr=0.002,
        eval_batch_size=BATCH,
        device=device,
        random_state=seed,
    ).fit(X_train[fit], y_train[fit])
    options = {"alpha": ALPHA, "guarantee": True, "calibration": 0.5, "costs": "time"}
    quick = QWYCEnsemble(FrozenEstimator(net), random_state=seed, **options)
    quick.optimize(X_train[rest])
    expected = clone(quick).set_params(guarantee=False, costs=quick.costs_)
    expected.optimize(X_train[rest])
    spent = np.cumsum(quick.costs_)
    staged = list(net.staged_predict_proba(X_test))
    right = np.array([net.classes_[part.argmax(axis=1)] == y_test for part in staged])
    seen, routed = rows_per_stage(net, lambda: quick.predict_routed(X_test))
    needed = np.array([(routed.route > k).sum() for k in range(4)])
    found = {f"exit {k + 1} alone": (right[k].mean(), spent[k]) for k in range(4)}
    found["QWYC"] = ((routed.y_pred == y_test).mean(), routed.cost.mean())
    again = seen.sum() - needed.sum()
    y_pred, _, cost = expected.predict_routed(X_test)
    found["QWYC, guarantee=False"] = (y_pred == y_test).mean(), cost.mean()
    exits = np.random.RandomState(seed).permutation(routed.route - 1)
    of_drawn = right[exits, np.arange(len(exits))].mean(), spent[exits].mean()
    found["random exits, QWYC's shares"] = of_drawn
    held_out = list(net.staged_predict_proba(X_train[rest]))
    answers, cost = branchy(held_out, staged, spent, ALPHA)
    found["one threshold (BranchyNet)"] = (
        (net.classes_[answers] == y_test).mean(),
        cost.mean(),
    )
    first = np.where(right.any(axis=0), right.argmax(axis=0), 0)
    found["oracle (told the labels)"] = right.any(axis=0).mean(), spent[first].mean()

    full = plain_torch(net, X_test)
    assert np.mean(full() != net.predict(X_test)) < 0.001
    seconds = alternate(
        {
            "full net, plain torch": full,
            "full net, MultiExitClassifier.predict": lambda: net.predict(X_test),
            "QWYC": lambda: quick.predict(X_test),
        },
        repeats=9,
    )
    return {
        "accuracy": {name: accuracy for name, (accuracy, _) in found.items()},
        "stages": {name: cost / spent[-1] for name, (_, cost) in found.items()},
        "seconds": seconds,
        "again": int(again),
        "disagreement": np.mean(routed.y_pred != net.predict(X_test)),
        "overhead": seconds["QWYC"] / (routed.cost.mean() * len(X_test)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--short", action="store_true", help="one seed, 1 epoch, half of the rows"
    )
    parser.add_argument(
        "--device", help="for example cuda; the CPU, one thread, where not given"
    )
    arguments = parser.parse_args()
    if find_spec("torch") is None or find_spec("skorch") is None:
        print(
            "torch or skorch is not installed: skipped. pip install 'skroute-ml[torch]'"
        )
        sys.exit(0)
    import torch

    torch.set_num_threads(1)
    usps = _data.usps()
    X, y, is_test = (usps.data / 255.0).astype(np.float32), usps.target, usps.is_test
    seeds, epochs = (range(1), 1) if arguments.short else (range(3), 10)
    train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    if arguments.short:
        train, test = train[::2], test[::2]
    data = X[train], y[train], X[test], y[test]
    runs = [one_seed(seed, *data, epochs, arguments.device) for seed in seeds]

    def mean(key, name):
        return float(np.mean([run[key][name] for run in runs]))

    full = mean("accuracy", "exit 4 alone")
    plain = np.array([run["seconds"]["full net, plain torch"] for run in runs])
    rows = []
    for name in runs[0]["accuracy"]:
        accuracy, stages = mean("accuracy", name), mean("stages", name)
        timed = {"QWYC": "QWYC", "exit 4 alone": "full net, plain torch"}.get(name)
        seconds = (
            np.mean([run["seconds"][timed] for run in runs] / plain) if timed else ""
        )
        rows.append([name, accuracy, 100 * (full - accuracy), stages, seconds])
    table(
        f"USPS, {len(test)} test rows, {len(runs)} seeds; costs: shares of the full "
        "net's",
        ["", "accuracy", "points lost", "stage costs", "measured seconds"],
        rows,
    )
    overhead = float(np.mean([run["overhead"] for run in runs]))
    disagreement = max(float(run["disagreement"]) for run in runs)
    print(f"own overhead {overhead:.4g}, largest disagreement {disagreement:.4g}")
    if not arguments.short:
        record("multi_exit")
    if any(run["again"] for run in runs):
        sys.exit("A stage saw a row again.")


if __name__ == "__main__":
    main()
