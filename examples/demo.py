"""OCCAM on scikit-learn's digits: a table, and a picture in demo_output/.

Run by ``make demo``. Four classifiers with a price per answer; what does a budget
of a share of the most expensive one buy?
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from skroute.metrics import accuracy_cost_curve
from skroute.routing import DummyRouterClassifier, OccamRouterClassifier

SEED = 0
N_SPLITS = 3
# Prices per 1,000 answers in cents, as a service might charge; any unit does.
COSTS = {"tree": 1.0, "logreg": 2.0, "forest": 20.0, "svm": 50.0}


def members():
    return [
        ("tree", DecisionTreeClassifier(random_state=SEED)),
        ("logreg", make_pipeline(StandardScaler(), LogisticRegression(C=0.01))),
        ("forest", RandomForestClassifier(100, random_state=SEED)),
        ("svm", SVC(gamma=0.001, C=10)),
    ]


def one_split(X, y, budgets, seed):
    """At each budget: quality and cost of everybody, and what `fit` said of OCCAM's cost."""
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.5, stratify=y, random_state=seed
    )
    routers = {
        "OCCAM": OccamRouterClassifier(members(), costs=COSTS),
        "single best": DummyRouterClassifier(members(), costs=COSTS),
        "random": DummyRouterClassifier(members(), costs=COSTS, strategy="random"),
    }
    found = {}
    for name, router in routers.items():
        router.fit(X_train, y_train)
        curve = accuracy_cost_curve(router, X_test, y_test, budgets)
        found[name], found[f"cost of {name}"] = curve.quality, curve.cost
    found["told"], found["told error"] = [], []
    for budget in budgets:
        occam = routers["OCCAM"].set_params(budget=budget)
        found["told"].append(occam.validation_cost_)
        found["told error"].append(occam.validation_cost_se_)
    oracle = DummyRouterClassifier(members(), costs=COSTS, strategy="oracle").fit(X_train, y_train)
    found["oracle"] = [oracle.score(X_test, y_test, budget=budget) for budget in budgets]
    return found


def main():
    X, y = load_digits(return_X_y=True)
    budgets = np.array([0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0]) * COSTS["svm"]
    splits = [one_split(X, y, budgets, seed) for seed in range(SEED, SEED + N_SPLITS)]
    mean = {name: np.mean([split[name] for split in splits], axis=0) for name in splits[0]}
    error = np.std([split["cost of OCCAM"] for split in splits], axis=0, ddof=1) / N_SPLITS**0.5

    print(f"digits, {len(X) // 2} rows to fit, the others to test, mean of {N_SPLITS} splits")
    print(f"cents per 1,000 answers: {COSTS}")
    print("+-: standard errors, of the mean over splits, and as fit tells it for a single one\n")
    header = ["budget", "its cost", "+-", "told by fit", "+-", "OCCAM"]
    header += ["single best", "random", "oracle"]
    print("  ".join(f"{text:>11}" for text in header))
    for row, budget in enumerate(budgets):
        cells = [budget, mean["cost of OCCAM"][row], error[row]]
        cells += [mean["told"][row], mean["told error"][row]]
        cells += [mean[name][row] for name in ("OCCAM", "single best", "random", "oracle")]
        print("  ".join(f"{cell:>11.3f}" for cell in cells))

    figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for name, marker in zip(("OCCAM", "single best", "random"), "osd"):
        ax.plot(mean[f"cost of {name}"], mean[name], marker=marker, label=name)
    ax.plot(budgets, mean["oracle"], color="grey", linestyle=":", label="oracle (told the labels)")
    ax.set(
        xlabel="mean cost (cents per 1,000 answers)",
        ylabel="accuracy on the test half",
        title="Digits: what a budget buys",
    )
    ax.legend(loc="lower right")
    folder = Path("demo_output")
    folder.mkdir(exist_ok=True)
    path = folder / "accuracy_cost.png"
    figure.savefig(path, dpi=120)
    print(f"\npicture: {path}")


if __name__ == "__main__":
    main()
