"""Rows that have the same labels in another order are refused by every public call.

The table has every public function and method that takes several arguments with a row each. Each
pair of them is given labels, one in another order. A call that is new must be added here.
"""

import importlib
import inspect
from copy import deepcopy
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skroute import metrics
from skroute.assignment import assignment_path, choose_at_price, solve_assignment
from skroute.certified import CertifiedRouter
from skroute.early_exit import QWYCEnsemble
from skroute.feature_sets import GreedyFeatureSelector, PolyDomSelector
from skroute.features import CostAwarePipeline
from skroute.forests import FastForest
from skroute.gating import (
    AdaptGatingClassifier,
    BoostedGate,
    SequentialFeatureClassifier,
)
from skroute.members import CallableClassifier, RecordedClassifier
from skroute.metrics import (
    AccuracyCostDisplay,
    BudgetSearchCV,
    ComplementarityDisplay,
    OffPolicyDisplay,
    RouterDiagnosticsDisplay,
    RouteShareDisplay,
)
from skroute.quality import BaggedNeighborsRegressor, QualityRegressor
from skroute.routing import (
    BudgetRouter,
    CascadeRouter,
    DummyRouterClassifier,
    DummyRouterRegressor,
    FrugalMCTClassifier,
    FrugalMLClassifier,
    OccamRouterClassifier,
    OccamRouterRegressor,
    OnlineBudgetRouter,
    SequentialRouterClassifier,
)

N = 80
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = (X[:, 0] + 0.5 * RNG.normal(size=N) > 0).astype(int)
Q = (RNG.random((N, 2)) < 0.7).astype(float)
COSTS = {"a": 1.0, "b": 2.0}
PAID = RNG.uniform(1, 3, (N, 2))
CHOICE = np.array(["a", "b"])[RNG.integers(0, 2, N)]
GIVEN = Q[np.arange(N), (CHOICE == "b").astype(int)]
HALF = np.full(N, 0.5)
WEIGHT = np.ones(N)
IDS = np.arange(N)
ALLOWED = np.ones((N, 2), dtype=bool)
MEMBERS = [("a", DecisionTreeClassifier(max_depth=1)), ("b", LogisticRegression())]
NUMBERS = [("a", DecisionTreeRegressor(max_depth=1)), ("b", Ridge())]
TREE = DecisionTreeRegressor(max_depth=2)
# Columns of tables with one column for each choice.
NAMES = {2: ["a", "b"], 3: ["x", "y", "z"]}


@cache
def fitted():
    """Return one fitted estimator of each kind."""
    priced = {"costs": COSTS, "budget": 1.5}
    router = BudgetRouter(Ridge(), **priced).fit(X, Q)
    forest = RandomForestClassifier(5, random_state=0).fit(X, Y)
    small = {**priced, "cv": 2}
    return {
        "budget": router,
        "by row": BudgetRouter(Ridge()).fit(X, Q, costs=PAID),
        "online": OnlineBudgetRouter(COSTS, budget=1.5).fit(X, Q),
        "cascade": CascadeRouter(Ridge(), costs=COSTS, cv=2, n_prices=2).fit(
            X, Q, signals=Q
        ),
        "occam": OccamRouterClassifier(MEMBERS, quality_estimator=TREE, **small).fit(
            X, Y
        ),
        "numbers": OccamRouterRegressor(NUMBERS, quality_estimator=TREE, **small).fit(
            X, X[:, 0]
        ),
        "dummy": DummyRouterClassifier(MEMBERS, strategy="oracle", **small).fit(X, Y),
        "dummy numbers": DummyRouterRegressor(NUMBERS, **small).fit(X, X[:, 0]),
        "frugal ml": FrugalMLClassifier(MEMBERS, **small).fit(X, Y),
        "frugal mct": FrugalMCTClassifier(MEMBERS, quality_estimator=TREE, **small).fit(
            X, Y
        ),
        "sequential": SequentialRouterClassifier(
            MEMBERS, quality_estimator=TREE, n_prices=2, **small
        ).fit(X, Y),
        "certified": CertifiedRouter(
            FrozenEstimator(router), max_loss=0.9, fallback="safe", random_state=0
        ).fit(X, Q),
        "pipeline": CostAwarePipeline(
            [("scale", StandardScaler()), ("route", BudgetRouter(Ridge(), **priced))]
        ).fit(X, Q),
        "plain pipeline": make_pipeline(
            StandardScaler(), BudgetRouter(Ridge(), **priced)
        ).fit(X, Q),
        "search": BudgetSearchCV(
            BudgetRouter(Ridge(), costs=COSTS), {"budget": [1.5]}, budget=3.0, cv=2
        ).fit(X, Q),
        "exits": QWYCEnsemble(forest, random_state=0).fit(X, Y),
        "forest": FastForest(FrozenEstimator(forest)).fit(X, Y),
        "gate": AdaptGatingClassifier(
            LogisticRegression(), gate=BoostedGate(max_iter=1, n_estimators=2), cv=2
        ).fit(X, Y),
        "buyer": SequentialFeatureClassifier(
            DecisionTreeClassifier(max_depth=2), random_state=0
        ).fit(X, Y),
        "greedy": GreedyFeatureSelector(
            DecisionTreeClassifier(max_depth=2), trade_offs=[np.inf], cv=2
        ).fit(X, Y),
        "dom": PolyDomSelector(
            DecisionTreeClassifier(max_depth=2), max_models=4, cv=2
        ).fit(X, Y),
        "quality": QualityRegressor(family=["linear"], cv=2).fit(X, Q),
        "neighbors": BaggedNeighborsRegressor().fit(X, Q),
        "callable": CallableClassifier(
            lambda rows: np.zeros(len(rows), int), classes=[0, 1]
        ),
        "recorded": RecordedClassifier(Y),
        "curve": metrics.accuracy_cost_curve(router, X, Q, [1.5, 2.0]),
    }


def of_estimators():
    """Return calls of methods: by name the method, and the arguments that have a row each."""
    models = fitted()
    found = {}
    for name, model in models.items():
        # What scikit-learn's own pipeline makes of rows has lost their labels.
        if name in ("curve", "plain pipeline"):
            continue
        truth = {"y": Y}
        if name in ("numbers", "dummy numbers"):
            truth = {"y": X[:, 0]}
        elif not hasattr(model, "classes_"):
            truth = {"y": Q}
        if name == "recorded":
            rows = {"X": IDS[:, np.newaxis]}
        else:
            rows = {"X": X}
        if hasattr(model, "fit"):
            found[f"{name}: fit"] = clone(model).fit, {**rows, **truth}
        if name == "search":
            found[f"{name}: score"] = model.score, {**rows, **truth}
        else:
            found[f"{name}: score"] = (
                model.score,
                {**rows, **truth, "sample_weight": WEIGHT},
            )
        for method in (
            "predict_routed",
            "route",
            "predict_cost",
            "predict",
            "predict_proba",
        ):
            beside = {}
            if name in ("budget", "occam", "numbers", "search", "pipeline"):
                beside = {"allowed": ALLOWED, "request_id": IDS}
            if name == "certified":
                beside = {"request_id": IDS}
            if name == "by row":
                beside = {"costs": PAID, "allowed": ALLOWED, "request_id": IDS}
            if name == "cascade":
                beside = {"signals": Q, "costs": PAID, "request_id": IDS}
            if name in ("frugal ml", "frugal mct", "sequential"):
                beside = {"request_id": IDS}
            if name in ("greedy", "dom"):
                beside = {"size": WEIGHT}
            if name == "buyer":
                beside = {"known": ALLOWED}
            if name.startswith("dummy"):
                beside = {"y_true": truth["y"]}
            if beside and hasattr(model, method):
                found[f"{name}: {method}"] = getattr(model, method), {"X": X, **beside}
        if hasattr(model, "member_quality"):
            found[f"{name}: member_quality"] = (
                model.member_quality,
                {**rows, "y_true": truth["y"]},
            )
        if hasattr(model, "row_quality"):
            found[f"{name}: row_quality"] = (
                model.row_quality,
                {**rows, **truth, "sample_weight": WEIGHT},
            )
    cascade = models["cascade"]
    shown = {"X": X, "signals": Q, "costs": PAID, "request_id": IDS}
    log = {"X": X, "y": GIVEN, "choice": CHOICE, "propensity": HALF}
    return found | {
        "cascade: fit": (
            CascadeRouter(Ridge(), costs=COSTS).fit,
            {"X": X, "y": Q, "signals": Q},
        ),
        "cascade: fit without rows": (
            lambda y, one: CascadeRouter(costs=COSTS).fit(None, y, signals={"a": one}),
            {"y": Q, "one": Q[:, 0]},
        ),
        "cascade: fit, costs": (
            CascadeRouter(Ridge()).fit,
            {"X": X, "y": Q, "costs": PAID},
        ),
        "cascade: score": (cascade.score, {**shown, "y": Q, "sample_weight": WEIGHT}),
        "cascade: predict_quality": (cascade.predict_quality, shown),
        "cascade: models_asked": (
            cascade.models_asked,
            {"X": X, "signals": Q, "request_id": IDS},
        ),
        "cascade: signals by name": (
            lambda X, one, two: cascade.route(X, signals={"a": one, "b": two}),
            {"X": X, "one": Q[:, 0], "two": Q[:, 1]},
        ),
        "budget: fit of a log": (BudgetRouter(Ridge(), costs=COSTS).fit, log),
        "by row: fit, costs": (
            BudgetRouter(Ridge()).fit,
            {"X": X, "y": Q, "costs": PAID},
        ),
        "by row: score, costs": (
            models["by row"].score,
            {"X": X, "y": Q, "costs": PAID},
        ),
        "budget: add_choice": (
            lambda X, q: deepcopy(models["budget"]).add_choice("c", X, q, cost=1.0),
            {"X": X, "q": Q[:, 0]},
        ),
        "online: add_choice": (
            lambda X, y: deepcopy(models["online"]).add_choice("c", X, y, cost=1.0),
            {"X": X, "y": Q[:, 0]},
        ),
        "online: fit, costs": (
            OnlineBudgetRouter(COSTS, budget=1.5).fit,
            {"X": X, "y": Q, "costs": PAID},
        ),
        "online: partial_fit": (
            clone(models["online"]).fit(X, Q).partial_fit,
            {"X": X, "y": GIVEN, "choice": CHOICE, "costs": PAID[:, 0]},
        ),
        "certified: groups": (
            lambda X, y, groups: CertifiedRouter(
                FrozenEstimator(models["budget"]), max_loss=0.9, groups=groups
            ).fit(X, y),
            {"X": X, "y": Q, "groups": Y},
        ),
        "certified: recertify": (
            models["certified"].recertify,
            {"X": X, "y": Q, "groups": Y, "request_id": IDS},
        ),
        "certified: certify_batch": (
            models["certified"].certify_batch,
            {"X": X, "request_id": IDS},
        ),
        "gate: fit, weights": (
            clone(models["gate"]).fit,
            {"X": X, "y": Y, "sample_weight": WEIGHT},
        ),
        "quality: cross_fit": (
            clone(models["quality"]).cross_fit,
            {"X": X, "y": Q, "costs": PAID},
        ),
        "greedy: fit, size": (
            clone(models["greedy"]).fit,
            {"X": X, "y": Y, "size": WEIGHT},
        ),
        "dom: fit, size": (clone(models["dom"]).fit, {"X": X, "y": Y, "size": WEIGHT}),
        "buyer: bought": (
            lambda X, known: models["buyer"].bought(X, known=known),
            {"X": X, "known": ALLOWED},
        ),
        "pipeline: fit, weights": (
            lambda X, weight: clone(models["pipeline"]).fit(
                X, Q, route__sample_weight=weight
            ),
            {"X": X, "weight": WEIGHT},
        ),
    }


def of_functions():
    """Return calls of functions and displays, as `of_estimators`."""
    models = fitted()
    router, by_row = models["budget"], models["by row"]
    judged = {"X": X, "y": Q, "sample_weight": WEIGHT, "request_id": IDS}
    log = {
        "X": X,
        "q": GIVEN,
        "choice": CHOICE,
        "propensity": HALF,
        "costs": PAID[:, 0],
    }
    points = np.arange(1.0, 5.0)
    curve = {"cost": points, "quality": points / 10}
    ends = {"weak": (1.0, 0.1), "strong": (4.0, 0.4)}

    def at(function, **options):
        return lambda **rows: function(**rows, **options)

    found = {
        "sample_quality": (metrics.sample_quality, {"y_true": Y, "y_pred": Y}),
        "off_policy_curve": (at(metrics.off_policy_curve, estimator=router), log),
        "off_policy_savings": (at(metrics.off_policy_savings, estimator=router), log),
        "savings": (
            at(metrics.savings, estimator=router, n_resamples=2),
            {"X": X, "y": Q, "costs": PAID, "seconds": PAID},
        ),
        "OffPolicyDisplay": (
            at(OffPolicyDisplay.from_estimator, estimator=router),
            log,
        ),
        "reference_curves": (
            at(metrics.reference_curves, budgets=[1.5]),
            {"Q": Q, "costs": PAID},
        ),
        "compare_with_references": (
            at(metrics.compare_with_references, curve=models["curve"]),
            {"Q": Q, "costs": PAID},
        ),
        "replay": (
            at(metrics.replay, router=router),
            {"X": X, "quality": Q, "costs": PAID},
        ),
        "replay online": (
            at(metrics.replay, router=models["online"]),
            {"X": X, "quality": Q, "costs": PAID},
        ),
        "risk_coverage_curve": (
            metrics.risk_coverage_curve,
            {"loss": GIVEN, "confidence": HALF, "sample_weight": WEIGHT},
        ),
        "bootstrap_interval": (
            lambda one, two: metrics.bootstrap_interval(
                np.subtract, one, two, n_resamples=2
            ),
            {"one": GIVEN, "two": HALF},
        ),
        "AccuracyCostDisplay.from_predictions": (
            lambda y_true, y_pred, weight: AccuracyCostDisplay.from_predictions(
                y_true, [Y, y_pred], [1.0, 2.0], sample_weight=weight
            ),
            {"y_true": Y, "y_pred": Y, "weight": WEIGHT},
        ),
        "costs of from_predictions": (
            lambda y_true, cost: AccuracyCostDisplay.from_predictions(
                y_true, [Y], [cost]
            ),
            {"y_true": Y, "cost": HALF},
        ),
        "ComplementarityDisplay of choices": (
            at(ComplementarityDisplay.from_estimator, estimator=router),
            {"X": X, "y": Q},
        ),
        "ComplementarityDisplay of members": (
            at(ComplementarityDisplay.from_estimator, estimator=models["occam"]),
            {"X": X, "y": Y},
        ),
        "RouterDiagnosticsDisplay": (
            at(RouterDiagnosticsDisplay.from_estimator, estimator=router),
            {"X": X, "y": Q, "costs": PAID, "request_id": IDS},
        ),
        "RouteShareDisplay": (
            at(
                RouteShareDisplay.from_estimator,
                estimator=models["pipeline"],
                budgets=[1.5],
            ),
            {"X": X, "request_id": IDS},
        ),
        "mean_cost_scorer": (
            at(metrics.mean_cost_scorer, estimator=models["pipeline"]),
            {"X": X, "request_id": IDS},
        ),
        "solve_assignment": (
            at(solve_assignment, budget=2.5),
            {"values": Q, "costs": PAID},
        ),
        "choose_at_price": (
            at(choose_at_price, price=0.1),
            {"values": Q, "costs": PAID},
        ),
        "assignment_path": (
            assignment_path,
            {"values": Q, "costs": PAID, "realised": PAID, "weight": WEIGHT},
        ),
        "pareto_front": (metrics.pareto_front, curve),
        "cost_quality_auc": (metrics.cost_quality_auc, curve),
        "cost_reduction_at": (
            at(metrics.cost_reduction_at, reference_cost=5.0, reference_quality=0.2),
            curve,
        ),
        "average_performance_gap_recovered": (
            at(metrics.average_performance_gap_recovered, **ends),
            curve,
        ),
        "call_performance_threshold": (
            at(metrics.call_performance_threshold, share=0.5, **ends),
            curve,
        ),
    }
    scored = {
        "accuracy_cost_curve": at(metrics.accuracy_cost_curve, budgets=[1.5]),
        "AccuracyCostDisplay": at(AccuracyCostDisplay.from_estimator, budgets=[1.5]),
        "mean_quality_scorer": metrics.mean_quality_scorer,
        "risk_coverage_scorer": metrics.risk_coverage_scorer,
        "make_budget_scorer": metrics.make_budget_scorer(1.5, scoring=None),
        "make_curve_scorer": metrics.make_curve_scorer(
            metrics.cost_quality_auc, [1.0, 2.0]
        ),
    }
    for name, function in scored.items():
        for kind in ("budget", "pipeline", "search", "plain pipeline"):
            found[f"{name} of {kind}"] = at(function, estimator=models[kind]), judged
        rows = {"X": X, "y": Q, "costs": PAID}
        found[f"{name} of by row"] = at(function, estimator=by_row), rows
    pytest.importorskip("vl_convert")
    report = at(metrics.decision_report, estimator=router, path="report.html")
    return found | {"decision_report": (report, {"X": X, "y": Q, "request_id": IDS})}


CALLS = [*of_estimators(), *of_functions()]


def labelled(values, index):
    """Return rows as a series or a frame with an index."""
    if values.ndim == 1:
        return pd.Series(values, index=index)
    return pd.DataFrame(values, columns=NAMES.get(values.shape[1]), index=index)


def drawn_index(rng, n_rows):
    """Return labels of some kind, each of them once."""
    kind = rng.integers(4)
    if kind == 0:
        return pd.RangeIndex(n_rows)
    if kind == 1:
        return pd.Index([f"row {k}" for k in rng.permutation(n_rows)])
    if kind == 2:
        return pd.date_range("2026-01-01", periods=n_rows)
    return pd.MultiIndex.from_arrays([np.arange(n_rows) // 2, np.arange(n_rows) % 2])


@pytest.mark.parametrize("name", CALLS)
def test_rows_in_another_order_are_refused(name):
    function, rows = (of_estimators() | of_functions())[name]
    rng = np.random.default_rng(len(name))
    for first, other in combinations(rows, 2):
        n_rows = len(rows[first])
        index = drawn_index(rng, n_rows)
        # No order but the first one is without a row that moves.
        order = np.roll(rng.permutation(n_rows), 1)
        if (order == np.arange(n_rows)).all():
            order = order[::-1]
        given = dict(rows)
        given[first] = labelled(rows[first], index)
        given[other] = labelled(rows[other], index).iloc[order]
        with pytest.raises(ValueError, match="the same index, in another order"):
            function(**given)


@pytest.mark.parametrize(
    "name", [name for name in CALLS if "fit" not in name and "report" not in name]
)
def test_rows_in_the_same_order_are_read_as_arrays(name):
    """The check refuses nothing that says the same: one index for all, or labels of other rows."""
    function, rows = (of_estimators() | of_functions())[name]
    index = drawn_index(
        np.random.default_rng(len(name)), len(next(iter(rows.values())))
    )
    given = {key: labelled(values, index) for key, values in rows.items()}
    try:
        function(**given)
    except (ValueError, TypeError) as error:
        assert "index" not in str(error)


# Arguments with a row each, in all signatures.
WITH_ROWS = {
    "X",
    "y",
    "y_true",
    "y_pred",
    "Q",
    "q",
    "quality",
    "costs",
    "choice",
    "propensity",
}
WITH_ROWS |= {
    "sample_weight",
    "signals",
    "allowed",
    "request_id",
    "groups",
    "loss",
    "confidence",
}
WITH_ROWS |= {
    "values",
    "X_val",
    "y_val",
    "y_preds",
    "cost",
    "rows",
    "known",
    "size",
    "weight",
}
# Calls that have two of these names for another reason.
ELSEWHERE = {
    # Positions of rows.
    "take_rows",
    # One request at a time: numbers by the names of choices.
    "BudgetStream.rank",
    "BudgetStream.reserve",
    "OnlineBudgetRouter.commit",
    "CascadeRun.observe",
    # Dask arrays, and blocks that Dask makes: they have no labels.
    "distributed",
    "DaskRouter",
    # The answers are those of the rows, and `y` is not looked at.
    "FrameEncoder",
    # Values in the order of time: costs of all rows, losses of some.
    "PromiseMonitor.update",
    # `y` is there because other displays take it, and is not looked at.
    "CertificateDisplay.from_estimator",
    "ExitDisplay.from_estimator",
    "TradeoffDisplay.from_estimator",
    "TradeoffDisplay.from_estimators",
    # Names of columns of a log.
    "tables_from_log",
    # Names of scores in the results of a search.
    "best_within_budget",
    # scikit-learn calls it with the rows of a fold; `fit` checks the labels of all rows.
    "BudgetSearchCV.scoring",
    # `confidence` is a number.
    "guarantees",
    # Torch tensors of hidden states; `fit` and `score` make the checks that all members make.
    "MultiExitClassifier",
    # The protocol, which the estimators implement.
    "CostAwareMixin",
    # Routers with members take no costs of rows; combining ones answer what all routers answer.
    "FrugalMLClassifier.predict_proba",
}


def test_every_call_with_several_rows_is_in_the_table():
    api = Path(__file__).with_name("public_api.txt").read_text().split()
    aliases = {}
    for alias, model in fitted().items():
        aliases.setdefault(type(model).__name__, []).append(alias)
    missing = []
    for path in api:
        module, _, owner = path.rpartition(".")
        item = getattr(importlib.import_module(module), owner)
        functions = {"": item}
        if inspect.isclass(item):
            functions = dict(inspect.getmembers(item, callable))
        for method, function in functions.items():
            if method.startswith(("_", "set_")) or any(
                name in path for name in ELSEWHERE
            ):
                continue
            try:
                parameters = inspect.signature(function).parameters
            except (TypeError, ValueError):
                continue
            if len(WITH_ROWS & set(parameters)) < 2 or f"{owner}.{method}" in ELSEWHERE:
                continue
            # Methods that a fitted estimator does not offer, such as probabilities.
            if owner in aliases and not hasattr(fitted()[aliases[owner][0]], method):
                continue
            starts = [f"{alias}: {method}" for alias in aliases.get(owner, ())] or [
                owner
            ]
            if not any(name.startswith(start) for name in CALLS for start in starts):
                missing.append(f"{owner}.{method}")
    assert missing == []
