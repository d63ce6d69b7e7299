"""Rows on their way through the rules of a fitted `CascadeRouter`."""

import numpy as np

from skroute.base import check_affordable
from skroute.routing._cascade_log import Asked, Path, check_models, split_signals
from skroute.routing._cascade_rules import ABSTAIN, Scores, state_features
from skroute.routing._fit_tables import check_row_costs
from skroute.routing._values import predict_matrix
from skroute.utils._compat import num_samples
from skroute.utils._once import once_of


def known_scores(router, X):
    """Normal scores of what is known of rows before any call."""
    n_rows = num_samples(X)
    columns = np.empty((n_rows, 0))
    if router._informed:
        estimator, n = router.quality_estimator_, len(router.model_names_)
        columns = predict_matrix(estimator, X, n, "quality_estimator")
    return router._reader.known.transform(columns)


def _ask(router, X, signals, models, costs):
    """What a call can ask, and its rows; everything is checked before a model is."""
    if models is not None:
        if signals is not None:
            raise ValueError("Give signals (recorded) or models (to call), not both.")
        if X is None:
            raise ValueError("models are called with rows of X, which is None.")
        check_models(models, router.model_names_)
    by_name = split_signals(signals, router.model_names_)
    recorded = {name: part for name, part in by_name.items() if not callable(part)}
    if X is not None:
        n_rows = num_samples(X)
    elif recorded:
        n_rows = num_samples(next(iter(recorded.values())))
    elif by_name:
        raise ValueError(
            "Without X, functions alone do not say how many rows there are. Give X (any "
            "rows: a router that was fit without X does not read them), or one model's "
            "signals as an array."
        )
    else:
        raise ValueError("Without X, signals must say what the models' answers show.")
    shown = [
        name
        for name, scale in zip(router.model_names_, router._reader.of_model)
        if len(scale.knots)
    ]
    if models is None and (missing := [name for name in shown if name not in by_name]):
        raise ValueError(
            f"signals has nothing of {missing!r}, whose answers showed something in fit. Give "
            "them, or the models to call."
        )
    for name, part in recorded.items():
        if num_samples(part) != n_rows:
            raise ValueError(
                f"signals of {name!r} must have {n_rows} rows, got {num_samples(part)}."
            )
    shape = (n_rows, len(router.model_names_))
    if costs is None:
        costs = np.tile(router.costs_, (n_rows, 1))
    else:
        # A copy: what models say of their costs is written into it.
        costs = check_row_costs(costs, router._frame_columns, shape).copy()
    asked = once_of(router).whole("asked", lambda: Asked(router, X, n_rows, by_name, models, costs))
    return asked.anew()


def _rules_of(router, X, n_rows, budget, request_id):
    """The rule that each row follows, drawn from its id, else the row, else its position."""
    source = np.arange(n_rows)[:, np.newaxis] if X is None else X
    if request_id is not None:
        source = np.asarray(request_id)
        if source.shape != (n_rows,):
            raise ValueError(
                f"request_id must have one entry for each of {n_rows} rows, got shape "
                f"{source.shape}."
            )
        source = source[:, np.newaxis]
    return router.mixture_.draw(source, budget)


def walk(router, X, budget, signals=None, models=None, costs=None, request_id=None):
    """Send rows through their rules, asking the models that they pay for."""
    check_affordable(budget, router._least())
    asked = _ask(router, X, signals, models, costs)
    n_rows = len(asked.asked)
    rule_of = _rules_of(router, X, n_rows, budget, request_id)
    known = once_of(router).whole(
        "known", lambda: known_scores(router, np.arange(n_rows) if X is None else X)
    )
    route, quality = np.empty(n_rows, dtype=np.int64), np.empty(n_rows)
    for one in np.unique(rule_of):
        rule, rows = router._rules[one], np.flatnonzero(rule_of == one)
        cascade, state = rule.fitted.cascade, np.zeros(len(rows), dtype=np.int64)
        for at in range(len(cascade.following)):
            here = np.flatnonzero(state == at)
            if not len(here):
                continue
            parts = {k: asked.scores(k, rows[here]) for k in cascade.reads[at]}
            features = state_features(cascade, at, Scores(known[rows[here]], parts))
            model, way, stop = rule.fitted.decide(at, features, [rule.price_at])
            goes = model[:, 0] >= 0
            state[here[goes]] = cascade.following[at, model[goes, 0]]
            route[rows[here]], quality[rows[here]] = way, stop
    route[route == ABSTAIN] = len(router.model_names_)
    return Path(route, asked, quality)
