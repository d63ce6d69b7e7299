"""What a budget buys on scikit-learn's digits: a table, and a picture in demo_output/.

Run by ``make demo``: four classifiers with a price per answer, and a router between them.
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

N_SPLITS = 3
# Cents per 1,000 answers, as a service might charge.
COSTS = {"tree": 1.0, "logreg": 2.0, "forest": 20.0, "svm": 50.0}
BUDGETS = np.array([2.5, 5, 10, 20, 30, 40])


def members():
    return [
        ("tree", DecisionTreeClassifier(random_state=0)),
        ("logreg", make_pipeline(StandardScaler(), LogisticRegression(C=0.01))),
        ("forest", RandomForestClassifier(100, random_state=0)),
        ("svm", SVC(gamma=0.001, C=10)),
    ]


def one_split(X, y, seed):
    """Accuracy and cost on the test half: of each router at each budget, and of each model."""
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.5, stratify=y, random_state=seed
    )
    routers = {
        "router": OccamRouterClassifier(members(), costs=COSTS, budget=10),
        "best single model": DummyRouterClassifier(members(), costs=COSTS),
        "random choice": DummyRouterClassifier(
            members(), costs=COSTS, strategy="random"
        ),
    }
    found = {}
    for name, router in routers.items():
        curve = accuracy_cost_curve(
            router.fit(X_train, y_train), X_test, y_test, BUDGETS
        )
        found[name] = curve.quality, curve.cost
    for name, model in members():
        found[name] = model.fit(X_train, y_train).score(X_test, y_test), COSTS[name]
    return found


def main():
    X, y = load_digits(return_X_y=True)
    print(
        f"Digits: {len(X) // 2} images to fit, {len(X) // 2} to test, mean of {N_SPLITS} splits."
    )
    print(
        "Fitting. The first run on a machine also compiles, which takes some seconds.\n"
    )
    splits = [one_split(X, y, seed) for seed in range(N_SPLITS)]
    mean = {
        name: np.mean([split[name] for split in splits], axis=0) for name in splits[0]
    }

    print("Each model alone:")
    for name in COSTS:
        accuracy, price = mean[name]
        print(
            f"  {name:8}{price:5.1f} cents per 1,000 answers, accuracy {accuracy:.1%}"
        )
    print("\nRouters (cents per 1,000 answers; accuracy on test images):")
    print("  budget   spent   router   best single model   random choice")
    for row, budget in enumerate(BUDGETS):
        print(
            f"  {budget:6.1f}  {mean['router'][1][row]:6.1f}  {mean['router'][0][row]:7.1%}"
            f"  {mean['best single model'][0][row]:18.1%}  {mean['random choice'][0][row]:14.1%}"
        )

    figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for name, marker in zip(("router", "best single model", "random choice"), "osd"):
        quality, cost = mean[name]
        ax.plot(cost, quality, marker=marker, label=name)
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
    print(f"\nPicture: {path}")


if __name__ == "__main__":
    main()
