"""A fitted router's policy as one JSON file: names, prices and the predictor, no pickles."""

import json
import os

import numpy as np
from sklearn.base import is_regressor
from sklearn.linear_model._base import LinearModel
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.tree import BaseDecisionTree
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from skroute.quality import BaggedNeighborsRegressor, QualityRegressor
from skroute.quality._corrections import rounding_unit
from skroute.quality._family import Forest, Landmarks, Linear, Neighbors
from skroute.routing._newcomers import CAUTION, Shrunk, base_of
from skroute.routing._priced_views import LoggedMixin

FORMAT, VERSION = "skroute-policy", 1
# JSON has no infinity.
_LARGEST = float(np.finfo(np.float64).max)
_KNOWN = (
    "a linear model of scikit-learn, a DecisionTreeRegressor, RandomForestRegressor or "
    "ExtraTreesRegressor, a QualityRegressor of numbers, or a BaggedNeighborsRegressor, possibly "
    "behind StandardScaler and MinMaxScaler in a Pipeline"
)


def export_policy(router, path=None):
    """The online policy of a router as plain numbers, to be read without skroute.

    Parameters
    ----------
    router : BudgetRouter or OccamRouterClassifier
        Fitted, with fixed costs and ``policy="online"``; its `quality_estimator` the default
        (:class:`~skroute.quality.QualityRegressor`, on numbers), a linear model, trees or
        :class:`~skroute.quality.BaggedNeighborsRegressor`, possibly behind scalers in a
        pipeline; an OCCAM router without `embedding`.

    path : str or path-like, default=None
        JSON file to write; None writes none.

    Returns
    -------
    dict
        What is written. Numbers round-trip exactly. Of neighbours it holds the training rows
        and their outcomes, also where a `QualityRegressor` has taken them
        (``keep_rows=False`` forbids it); of the others no row.

    Raises
    ------
    TypeError
        For a router or a predictor that the format has no words for.
    ValueError
        For costs per row, or ``policy="batch"``.

    See Also
    --------
    PortablePolicy : The reader, a file of its own that needs numpy alone.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.routing import BudgetRouter, export_policy
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> Q = np.column_stack([1 - X[:, 0], np.full(100, 0.9)])
    >>> router = BudgetRouter(Ridge(alpha=1e-3), costs={"small": 1, "large": 5}).fit(X, Q)
    >>> sorted(export_policy(router))[:4]
    ['budget', 'budgets', 'choices', 'costs']
    """
    if path is not None and (not isinstance(path, (str, os.PathLike)) or not str(path)):
        raise TypeError(f"path must be a path or None, got {path!r}.")
    if LoggedMixin not in type(router).__mro__:
        raise TypeError(
            "router must be a BudgetRouter or an OccamRouterClassifier, got "
            f"{type(router).__name__}: others ask a model before they decide."
        )
    check_is_fitted(router)
    if getattr(router, "embedding", None) is not None:
        raise TypeError(
            "An OccamRouterClassifier with an embedding cannot be exported: it asks the "
            "embedding for every row. Export a BudgetRouter on the embedded rows."
        )
    if (reason := router._not_plain()) is not None:
        raise ValueError(f"A router with {reason} cannot be exported.")
    policy = router._policy()
    if policy.per_row:
        raise ValueError("A router with costs per row cannot be exported: give it fixed costs.")
    if router.policy == "batch":
        raise ValueError(
            'A router with policy="batch" cannot be exported: its choices depend on all rows of a '
            'call. Export set_params(policy="online").'
        )
    steps, predictor = _with_changes(policy)
    budget = router._effective_budget(None)
    exported = {
        "format": FORMAT,
        "version": VERSION,
        "router": type(router).__name__,
        "choices": [str(name) for name in router.choices_],
        "costs": policy.planned.tolist(),
        "docked": policy.docked.tolist(),
        "deciding": policy.deciding,
        "budget": None if np.isinf(budget) else budget,
        "budgets": policy.path.budgets.tolist(),
        "prices": policy.path.prices.tolist(),
        "counts": policy.path.counts.tolist(),
        "missing": bool(get_tags(router).input_tags.allow_nan),
        "n_features": int(router.n_features_in_),
        "feature_names": [str(name) for name in getattr(router, "feature_names_in_", [])] or None,
        "steps": steps,
        "predictor": predictor,
    }
    if path is not None:
        text = json.dumps(exported, allow_nan=False, ensure_ascii=False)
        temporary = f"{os.fspath(path)}.tmp"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    return exported


def _with_changes(policy):
    """Steps and predictor of a policy, some of whose choices may have come or gone after fit."""
    base, models, _ = base_of(policy)
    steps, predictor = _read(base)
    if policy.kept is None:
        return steps, predictor
    if any(not isinstance(model, Shrunk) for model in models):
        raise TypeError(
            "A router that has got a choice by an estimator of its own (add_choice) cannot be "
            "exported: add it without one."
        )
    added = [
        {
            "columns": model.columns.tolist(),
            "coef": model.coef.tolist(),
            "intercept": model.intercept,
            "root": model.root.tolist(),
            "caution": CAUTION,
            "low": model.low,
            "high": model.high,
        }
        for model in models
    ]
    kept = policy.kept.tolist()
    return steps, {"kind": "changed", "of": predictor, "added": added, "kept": kept}


def _read(estimator):
    """Steps and predictor of an estimator."""
    if not isinstance(estimator, Pipeline):
        return [], _predictor(estimator)
    *steps, (_, last) = estimator.steps
    return [_step(step) for _, step in steps if step not in (None, "passthrough")], _predictor(last)


def _step(step):
    if isinstance(step, MinMaxScaler):
        clip = step.clip
        # A range since scikit-learn 1.9; True is the range of the training rows.
        clip = list(map(float, step.feature_range)) if clip is True else clip or None
        return {"scale": step.scale_.tolist(), "shift": step.min_.tolist(), "clip": clip}
    if isinstance(step, StandardScaler):
        n = step.n_features_in_
        scale = np.ones(n) if step.scale_ is None else 1 / step.scale_
        mean = np.zeros(n) if step.mean_ is None else step.mean_
        return {"scale": scale.tolist(), "shift": (-mean * scale).tolist(), "clip": None}
    raise TypeError(f"{type(step).__name__} cannot be exported: only {_KNOWN}.")


def _predictor(estimator):
    # Classifiers have other outputs, and a subclass of somebody may compute another thing.
    own = type(estimator).predict.__module__.startswith(("sklearn.", "skroute."))
    if not (own and is_regressor(estimator)):
        raise TypeError(f"{type(estimator).__name__} cannot be exported: only {_KNOWN}.")
    if isinstance(estimator, LinearModel):
        coef = np.atleast_2d(estimator.coef_)
        intercept = np.broadcast_to(estimator.intercept_, len(coef))
        return {"kind": "linear", "coef": coef.tolist(), "intercept": intercept.tolist()}
    members = getattr(estimator, "estimators_", [estimator])
    averages = type(estimator).__name__ in ("RandomForestRegressor", "ExtraTreesRegressor")
    if isinstance(estimator, BaseDecisionTree) or averages:
        return {"kind": "trees", "trees": [_tree(member.tree_) for member in members]}
    if isinstance(estimator, QualityRegressor):
        return _stacked(estimator)
    if isinstance(estimator, BaggedNeighborsRegressor):
        outcomes = estimator._y.reshape(len(estimator._y), -1)
        found = {
            "metric": estimator._metric,
            "rows": estimator._X.astype(np.float64).tolist(),
            "outcomes": outcomes.tolist(),
        }
        if estimator._starts is None:
            return {"kind": "nearest", "weights": estimator.weights_.tolist(), **found}
        return {"kind": "subsets", "starts": estimator._starts.tolist(), **found}
    raise TypeError(f"{type(estimator).__name__} cannot be exported: only {_KNOWN}.")


def _tree(tree):
    leaf = tree.children_left < 0
    return {
        "feature": np.where(leaf, -1, tree.feature).tolist(),
        "threshold": np.where(leaf, 0.0, tree.threshold).tolist(),
        "left": tree.children_left.tolist(),
        "right": tree.children_right.tolist(),
        "missing_left": tree.missing_go_to_left.astype(int).tolist(),
        "value": tree.value[:, :, 0].tolist(),
    }


def _stacked(estimator):
    """What `QualityRegressor.predict` computes."""
    if estimator.encoder_ is not None:
        raise TypeError(
            "A QualityRegressor of texts or categories cannot be exported: the format reads "
            "numbers. Fit the router on numbers, such as an embedding."
        )
    low, high = estimator._range
    knots = estimator._knots
    return {
        "kind": "stacked",
        "centre": estimator._centre.tolist(),
        "spread": estimator._spread.tolist(),
        "unit": estimator._unit,
        "mean": estimator.mean_.tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
        "step": rounding_unit(low, high) if estimator._parts else None,
        "knots": None if knots is None else [knot.tolist() for knot in knots],
        "above": [[k, below, min(most, _LARGEST)] for k, below, most in estimator._floors],
        "parts": [_part(part) for part in estimator._parts],
    }


def _part(part):
    """One predictor of the family, by the words of the others."""
    scale = "plain" if getattr(part, "plain", False) else "standard"
    found = {"scale": scale, "columns": None, "times": 1}
    if isinstance(part, Forest):
        trees = _own_trees(part.trees)
        return {**found, "kind": "trees", "times": len(trees), "trees": trees}
    if isinstance(part, Linear):
        columns = None if part.columns is None else part.columns.tolist()
        return {**found, "kind": "linear", "columns": columns, **_matrix(part)}
    if isinstance(part, Landmarks):
        found["scale"] = "cosine" if part.cosine else "standard"
        rows = part.centres.tolist()
        return {**found, "kind": "similar", "rows": rows, "gamma": part.gamma} | _matrix(
            part.linear
        )
    if isinstance(part, Neighbors):
        found["scale"] = "cosine" if part.metric == "cosine" else "standard"
        return {
            **found,
            "kind": "closest",
            "metric": "chebyshev" if part.metric == "chebyshev" else "euclidean",
            "k": min(part.k, len(part.searched)),
            "rows": part.searched.tolist(),
            "outcomes": part.outcomes.tolist(),
        }
    raise TypeError(f"The format has no words for {type(part).__name__}.")


def _matrix(linear):
    return {"coef": linear.coef.T.tolist(), "intercept": linear.offset.tolist()}


def _own_trees(trees):
    """The trees of a `skroute.quality._trees.Trees` one by one."""
    found, ends = [], [*trees.roots[1:], len(trees.feature)]
    for root, end in zip(trees.roots, ends):
        feature, child = trees.feature[root:end], trees.child[root:end]
        inner = feature >= 0
        value = np.where(inner[:, None], 0.0, trees.values[np.where(inner, 0, child)])
        left = np.where(inner, child - root, -1)
        tree = {
            "feature": feature,
            "threshold": np.where(inner, trees.threshold[root:end], 0.0),
            "left": left,
            "right": np.where(inner, left + 1, -1),
            "missing_left": np.zeros(len(feature), dtype=int),
            "value": value,
        }
        found.append({name: values.tolist() for name, values in tree.items()})
    return found
