"""What a CUDA device brings: three nets on USPS, with its times.

Needs torch, scikit-learn and numpy, and USPS in SKROUTE_DATA, so that it runs on a
machine that has no more. The router here is OCCAM's rule in NumPy, since skroute's own
needs numba.

    python benchmarks/cuda_neural.py            # on a CUDA device python
    benchmarks/cuda_neural.py --short    # small, on the CPU where there is no other
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import cross_val_predict
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import _data
from _common import alternate, table

from skroute.utils._timing import seconds_per_sample, synchronize_device

SHARES = [0.2, 0.4, 0.6, 0.8, 1.0]


class Net(ClassifierMixin, BaseEstimator):
    """A convolutional net as an estimator, for machines without skorch; rows may be tensors."""

    def __init__(self, width=8, epochs=8, batch_size=64, device="cpu"):
        self.width = width
        self.epochs = epochs
        self.batch_size = batch_size
        self.device = device

    def fit(self, X, y):
        torch.manual_seed(0)
        self.classes_, w = np.unique(y), self.width
        self.module_ = nn.Sequential(
            nn.Conv2d(1, w, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(w, 2 * w, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * w, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        ).to(self.device)
        X, y = self._tensor(X), torch.as_tensor(y, device=self.device)
        optimizer = torch.optim.Adam(self.module_.parameters(), lr=3e-3)
        for _ in range(self.epochs):
            for rows in torch.randperm(len(X), device=self.device).split(
                self.batch_size
            ):
                optimizer.zero_grad()
                nn.functional.cross_entropy(self.module_(X[rows]), y[rows]).backward()
                optimizer.step()
        return self

    def _tensor(self, X):
        return torch.as_tensor(X, device=self.device)

    @torch.no_grad()
    def predict_proba(self, X):
        # In batches also to the device: not all rows need fit there.
        scores = [
            self.module_(self._tensor(rows)) for rows in torch.as_tensor(X).split(1024)
        ]
        return torch.cat(scores).softmax(1).cpu().numpy()

    def predict(self, X):
        return self.predict_proba(X).argmax(1)


def price_for(values, costs, budget):
    """OCCAM's online rule: the smallest price at which the mean cost is within the budget."""
    low, high = 0.0, np.ptp(values) / np.diff(np.sort(costs)).min() + 1.0
    if costs[values.argmax(axis=1)].mean() <= budget:
        return 0.0
    for _ in range(60):
        price = (low + high) / 2
        spent = costs[(values - price * costs).argmax(axis=1)].mean()
        low, high = (low, price) if spent <= budget else (price, high)
    return high


def routed(device, short):
    usps = _data.usps()
    X = (usps.data / 255).astype(np.float32).reshape(-1, 1, 16, 16)
    y, is_test = usps.target.astype(np.int64), usps.is_test
    rng = np.random.default_rng(0)
    train = rng.permutation(np.flatnonzero(~is_test))
    train, learn = np.split(train, [int(len(train) * 0.7)])
    test = rng.permutation(np.flatnonzero(is_test))
    if short:
        train, learn, test = train[:400], learn[:300], test[:300]
    # Rows go to the device once; every net gathers its own there.
    rows = torch.as_tensor(X, device=device)
    widths = {"small": 2, "medium": 4 if short else 16, "large": 8 if short else 128}
    nets = [
        Net(width, epochs=1 if short else 10, device=str(device)).fit(
            rows[train], y[train]
        )
        for width in widths.values()
    ]
    costs = np.array([seconds_per_sample(net.predict, rows[learn]) for net in nets])
    quality = np.column_stack(
        [net.predict(rows[learn]) == y[learn] for net in nets]
    ).astype(float)
    forest = RandomForestRegressor(50, min_samples_leaf=30, random_state=0)
    features = nets[0].predict_proba(rows[learn])
    out_of_sample = cross_val_predict(forest, features, quality, cv=5)
    docked = (out_of_sample - quality).std(axis=0)
    forest.fit(features, quality)
    deciding = seconds_per_sample(forest.predict, features)
    # The small net embeds: it is paid on every row, and choosing it costs nothing more.
    added = np.where(np.arange(len(nets)) == 0, 0.0, costs)

    def predict(where, price):
        proba = nets[0].predict_proba(where)
        route = (forest.predict(proba) - docked - price * added).argmax(axis=1)
        y_pred = proba.argmax(axis=1)
        for k in range(1, len(nets)):
            own = np.flatnonzero(route == k)
            if len(own):
                y_pred[own] = nets[k].predict(
                    where[torch.as_tensor(own, device=device)]
                )
        return y_pred, route

    routes, X_test = [], rows[test]
    for share in SHARES:
        fixed = costs[0] + deciding
        budget = max(share * costs.max(), fixed)
        price = price_for(out_of_sample - docked, added, budget - fixed)
        y_pred, route = predict(X_test, price)
        spent = len(test) * fixed + added[route].sum()

        def call(price=price):
            predict(X_test, price)
            synchronize_device()

        wall = alternate({"call": call}, 3)["call"]
        shares = np.bincount(route, minlength=len(nets)) / len(route)
        found = (
            (y_pred == y[test]).mean(),
            spent / len(test) / costs.max(),
            wall / spent,
        )
        routes.append([share, *found, " ".join(f"{part:.2f}" for part in shares)])
    alone = [
        [n, float(net.score(X_test, y[test])), 1e6 * c]
        for n, net, c in zip(widths, nets, costs)
    ]
    table(f"USPS on {device}: the nets", ["net", "accuracy", "us per image"], alone)
    print(f"deciding: {1e6 * deciding:.4g} us per image, on the CPU")
    header = ["budget", "accuracy", "cost", "wall by cost", "share of each net"]
    table(
        "Routed; budgets and costs as shares of the largest net's time", header, routes
    )
    # Budgets are aimed at on other rows: some percent over is what a mean does, half is
    # wrong.
    least = (costs[0] + deciding) / costs.max()
    assert all(row[2] <= 1.5 * max(row[0], least) for row in routes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="small, also without CUDA")
    short = parser.parse_args().short
    if not torch.cuda.is_available() and not short:
        print(
            "No CUDA device here: nothing to measure. --short runs small, on the CPU."
        )
        return
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        print(torch.cuda.get_device_name(), "torch", torch.__version__)
    else:
        torch.set_num_threads(1)
    routed(device, short)


if __name__ == "__main__":
    main()
