"""Order, thresholds and how far to go with them: what QWYC learns from rows."""

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skroute.base import note_failure
from skroute.early_exit._calibration import (
    Tradeoff,
    allowed_wrong,
    cross_fit,
    fixed_sequence,
    judge,
    upper_bound,
)
from skroute.early_exit._thresholds import running_values
from skroute.utils._compat import num_samples


class LearnedExits(NamedTuple):
    """What was learned.

    Attributes
    ----------
    order : ndarray of shape (n_members,), dtype=int64
        Members in the order of their evaluation.

    tradeoff : Tradeoff
        Every set of thresholds, and which one is in use.

    bound : float
        Upper bound of the disagreement; NaN where no rows were kept for it.

    staged_disagreement : ndarray of shape (n_members,)
        Share of rows that left with another answer, up to each position.
    """

    order: NDArray[np.int64]
    tradeoff: Tradeoff
    bound: float
    staged_disagreement: NDArray[np.float64]


def check_supported(engine, mode, stopping):
    """Refuse, for several classes, what needs two."""
    if engine.n_outputs > 1 and mode == "negative":
        raise ValueError(
            "mode='negative' needs two classes: there is no negative class among "
            f"{engine.n_outputs}. Use mode='both'."
        )
    if engine.n_outputs > 1 and stopping == "fan":
        raise ValueError(
            "stopping='fan' needs two classes, the ensemble has "
            f"{engine.n_outputs}. Use stopping='thresholds'."
        )


def learn_exits(engine, recipe, calibration, limits, X, X_calibration, costs, rng, task):
    """Optimise order and thresholds on rows, and choose among the thresholds.

    Parameters
    ----------
    engine : Engine
    recipe : Recipe
        Settled.

    calibration : Calibration
    limits : (float, bool)
        Confidence, and whether the bound must hold with it.

    X, X_calibration : indexable
        Rows to learn from; rows that nothing else has used, or None.

    costs : ndarray of shape (n_members,)
    rng : RandomState
    task : FitTask

    Returns
    -------
    LearnedExits
    """
    n_rows = num_samples(X)
    with note_failure("the ensemble", n_rows, "scoring members"):
        scores = engine.scores(X)
    n_positions = engine.n_members - 1 if isinstance(recipe.order, str) else 0
    known = engine.offset, engine.beta, costs
    n_folds = calibration.n_folds
    if n_folds:
        names = [f"calibrate on fold {k + 1} of {n_folds}" for k in range(n_folds)]
        steps = [task.step(name, n_positions) for name in names]
        fold = rng.permutation(n_rows) % n_folds
        cost, wrong = cross_fit(recipe, scores, *known, fold, steps)
    with task.step("order and thresholds", n_positions) as step:
        order, thresholds, values, bad = recipe.learn(scores, *known, step)
    del scores
    if X_calibration is not None:
        n_rows = num_samples(X_calibration)
        held_out = engine.scores(X_calibration)
        values, bad = running_values(held_out, order, engine.offset, engine.beta)
    if not n_folds:
        cost, wrong = judge(thresholds, values, bad, np.cumsum(costs[order]))
    n_wrong = wrong.sum(axis=1)
    if X_calibration is None and not n_folds:
        # In sample: as far as alpha goes on these rows, and nothing is promised.
        chosen, bound = fixed_sequence(n_wrong, int(recipe.alpha * n_rows)), np.nan
    else:
        allowed = allowed_wrong(n_rows, recipe.alpha, *limits)
        # The first thresholds never leave early and are never wrong.
        chosen, bound = max(0, fixed_sequence(n_wrong, allowed)), np.nan
        if not chosen and len(n_wrong) > 1:
            _warn_of_no_exit(recipe.alpha, n_rows)
        if X_calibration is not None:
            bound = upper_bound(allowed, n_rows, limits[0]) if chosen else 0.0
    return LearnedExits(
        order,
        Tradeoff(thresholds, cost / n_rows, n_wrong / n_rows, chosen),
        bound,
        np.cumsum(wrong[chosen]) / n_rows,
    )


def _warn_of_no_exit(alpha, n_rows):
    warnings.warn(
        f"No early exit keeps alpha={alpha!r} on {n_rows} calibration rows: every member is "
        "evaluated on every row. Give more rows, or rows that the ensemble was not fitted on, or "
        "raise alpha.",
        UserWarning,
        stacklevel=9,
    )
