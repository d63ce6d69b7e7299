"""What the operating points did on the evidence rows, as arrays."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skroute.base import note_failure
from skroute.guarantees import mean_p_value, mean_upper_bound
from skroute.guarantees._means import check_numbers
from skroute.utils._handing import handed_over, models_of

FULL = "the full model"


class Evidence(NamedTuple):
    """Losses and costs of every operating point on every evidence row.

    Attributes
    ----------
    path : ndarray of shape (n_points,), dtype=int64
    budget : ndarray of shape (n_points,)
    routes : ndarray of shape (n_rows, n_points), dtype=int32
        Choice, counted over all paths.
    losses : ndarray of shape (n_rows, n_points)
        Loss of the answer, not yet against a reference.
    costs : ndarray of shape (n_rows, n_points)
    references : ndarray of shape (n_rows, n_references)
        Loss of each reference.
    reference_names : list of str
    reference_costs : ndarray of shape (n_references,)
        Mean cost; NaN where it is not known.
    group : ndarray of shape (n_rows,), dtype=int64
    group_names : list of str
        Empty where all rows are one group.
    exact : bool
        Whether losses are 0 and 1 by what they are, not only on these rows.
    """

    path: NDArray[np.int64]
    budget: NDArray[np.float64]
    routes: NDArray[np.int32]
    losses: NDArray[np.float64]
    costs: NDArray[np.float64]
    references: NDArray[np.float64]
    reference_names: list[str]
    reference_costs: NDArray[np.float64]
    group: NDArray[np.int64]
    group_names: list[str]
    exact: bool


def is_missing(values):
    """Whether an array of labels has a missing one."""
    if values.dtype.kind == "O":
        absent = "NoneType", "NAType", "NaTType"
        return any(type(v).__name__ in absent or v != v for v in values.ravel())
    return values.dtype.kind in "fcmM" and bool(np.isnan(values).any())


def check_known(y, classes, loss):
    """Refuse labels of another type: all answers were wrong, and no loss was seen between them."""
    if loss is None and y.ndim == 1 and isinstance(classes, np.ndarray):
        if not np.isin(y.astype(object), classes.astype(object)).any():
            raise ValueError(
                f"No label in y, of dtype {y.dtype}, is one of classes_, of dtype "
                f"{classes.dtype}: no answer could be right, and nothing is learned about losses."
            )


def check_groups(groups, expected):
    """Refuse evidence without rows of a group: nothing could be promised about it."""
    missing = int((~np.isin(expected, groups)).sum())
    if missing:
        raise ValueError(
            f"groups: {missing} of {len(expected)} have no evidence rows, so that nothing can be "
            "promised within them. Give more rows, or join small groups."
        )


def row_losses(y, y_pred, route, n_choices, loss):
    """Loss of each answer: the user's, or by the shapes of truth and answer.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    if loss is not None:
        values = np.asarray(loss(y, y_pred))
        if values.shape != (len(y),):
            raise ValueError(
                f"loss must return one number per row, shape ({len(y)},), got {values.shape}."
            )
        return check_numbers(values, "loss")
    if y.ndim == 2 and np.ndim(y_pred) == 1 and y.shape[1] == n_choices:
        return 1.0 - y[np.arange(len(y)), route].astype(np.float64)
    if np.shape(y_pred) != y.shape:
        raise ValueError(
            f"y has shape {y.shape} and the answers to it {np.shape(y_pred)}: give y as the "
            "estimator answers, one column of quality per choice, or a loss that compares them."
        )
    if y.ndim == 2:
        both, either = (
            (y.astype(bool) & y_pred.astype(bool)),
            (y.astype(bool) | y_pred.astype(bool)),
        )
        union = either.sum(axis=1)
        return 1.0 - np.where(union > 0, both.sum(axis=1) / np.maximum(union, 1), 1.0)
    return (y != y_pred).astype(np.float64)


def losses_or_handed(y, seen, path, loss):
    """Loss of each answer; a row that is handed over loses what abstaining costs.

    Parameters
    ----------
    y : ndarray
    seen : Routed
    path : fitted decision estimator
    loss : callable or None

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    handed, n_models = handed_over(path, seen.route), len(models_of(path))
    if not handed.any():
        return row_losses(y, seen.y_pred, seen.route, n_models, loss)
    logged = loss is None and y.ndim == 2
    found = np.full(len(y), 1.0 - path.abstain_quality_ if logged else float(path.abstain_cost))
    rows = np.flatnonzero(~handed)
    if len(rows):
        answers = np.array(seen.y_pred[rows].tolist())
        found[rows] = row_losses(y[rows], answers, seen.route[rows], n_models, loss)
    return found


def operating_budgets(path, X, n_points, context=None):
    """Budgets from unlimited to the smallest feasible one, by rows that are no evidence.

    Parameters
    ----------
    path : fitted decision estimator
    X : rows that only set the scale
    n_points : int
    context : dict, default=None
        What the path is told about these rows.

    Returns
    -------
    ndarray of shape (at most n_points + 1,)
        Falling.
    """
    least = path.min_budget_
    if not np.isfinite(least):
        return np.array([np.inf])
    most = max(float(np.mean(path.predict_cost(X, budget=np.inf, **(context or {})))), least)
    return np.r_[np.inf, np.unique(np.linspace(least, most, n_points))[::-1]]


def collect(paths, budgets, X, y, contexts, *, reference, loss, group):
    """Call every path at every one of its budgets on the evidence rows, and the references.

    Parameters
    ----------
    paths : list of fitted decision estimators
    budgets : list of ndarray
        For each path, the unlimited one first.
    X, y : the evidence rows, in random order
    contexts : list of dict
        What each path is told about them.
    reference : "best", "full", str or fitted estimator
    loss : callable or None
    group : ndarray of shape (n_rows,) or None

    Returns
    -------
    Evidence
    """
    losses, costs, routes, owner, n_choices = [], [], [], [], 0
    for k, path in enumerate(paths):
        for budget in budgets[k]:
            seen = path.predict_routed(X, budget=budget, **contexts[k])
            losses.append(losses_or_handed(y, seen, path, loss))
            costs.append(seen.cost)
            routes.append((seen.route + n_choices).astype(np.int32))
            owner.append(k)
        n_choices += len(path.choices_)
    found = _references(paths, X, y, reference, loss, losses[0], float(costs[0].mean()))
    names, codes = [], np.zeros(len(y), dtype=np.int64)
    if group is not None:
        values, codes = np.unique(group, return_inverse=True)
        names = [str(value) for value in values]
    return Evidence(
        np.array(owner),
        np.concatenate(budgets),
        np.column_stack(routes),
        np.column_stack(losses),
        np.column_stack(costs),
        np.column_stack([row for _, row, _ in found]),
        [name for name, _, _ in found],
        np.array([cost for _, _, cost in found], dtype=np.float64),
        codes.astype(np.int64),
        names,
        loss is None
        and all(getattr(path, "abstain_quality_", None) is None for path in paths)
        and (y.ndim == 1 or _logs_zero_or_one(y, paths)),
    )


def _logs_zero_or_one(y, paths):
    """Whether y has a column of whole numbers per choice."""
    return y.dtype.kind in "bui" and all(len(path.choices_) == y.shape[1] for path in paths)


def _references(paths, X, y, reference, loss, full_losses, full_cost):
    """Name, losses and mean cost of everything that the loss is measured against."""
    full = [(FULL, full_losses, full_cost)]
    if reference == "full":
        return full
    if hasattr(reference, "predict"):
        if hasattr(reference, "predict_routed"):
            seen = reference.predict_routed(X)
            row = losses_or_handed(y, seen, reference, loss)
            return [(type(reference).__name__, row, float(seen.cost.mean()))]
        y_pred = np.asarray(reference.predict(X))
        return [(type(reference).__name__, row_losses(y, y_pred, None, -1, loss), np.nan)]
    known = {}
    for k, path in enumerate(paths):
        for name, (answer, cost) in _single_choices(path, y).items():
            if name not in known:
                known[name] = answer, cost
            elif not isinstance(answer, np.ndarray) and answer is not known[name][0]:
                # Another model of the same name, in another candidate.
                known[f"{name} ({k + 1})"] = answer, cost
    if reference != "best":
        if reference not in known:
            raise ValueError(
                f"reference={reference!r} is neither 'best', 'full' nor one of the single choices "
                f"{list(known)!r}. A fitted estimator is allowed as well."
            )
        known = {reference: known[reference]}
    found = []
    for name, (answer, cost) in known.items():
        if isinstance(answer, np.ndarray):
            found.append((name, 1.0 - answer, cost))
        else:
            with note_failure(name, len(y), "predict"):
                y_pred = np.asarray(answer.predict(X))
            found.append((name, row_losses(y, y_pred, None, -1, loss), cost))
    return found or full


def _single_choices(path, y):
    """The single choices of an estimator: a logged column or a fitted member, and its cost."""
    if y.ndim == 2 and y.shape[1] == len(models_of(path)):
        names, answers = models_of(path), list(np.asarray(y, dtype=np.float64).T)
    else:
        members = dict(getattr(path, "named_estimators_", {}))
        names, answers = list(members), list(members.values())
    if not names:
        return {}
    costs = np.asarray(getattr(path, "costs_", []), dtype=np.float64)
    if getattr(path, "abstain_quality_", None) is not None:
        costs = costs[: len(names)]
    costs = costs if costs.shape == (len(names),) else np.full(len(names), np.nan)
    return {name: (a, float(c)) for name, a, c in zip(names, answers, costs)}


def differences(evidence, k):
    """Signed losses of an operating point against each reference within each group.

    Returns
    -------
    list of ndarray
    """
    groups = [evidence.group == g for g in range(max(len(evidence.group_names), 1))]
    every = evidence.losses[:, [k]] - evidence.references
    return [every[rows, r] for rows in groups for r in range(every.shape[1])]


def is_reference(evidence, k):
    """Whether an operating point is the reference itself, whose loss is 0 without a test."""
    return k == 0 and evidence.reference_names == [FULL]


def losses_of_points(evidence):
    """The largest mean signed loss of each operating point.

    Returns
    -------
    ndarray of shape (n_points,)
    """
    return np.array(
        [max(d.mean() for d in differences(evidence, k)) for k in range(len(evidence.budget))]
    )


def loss_method(evidence, loss_range, level):
    """How losses are bounded: exactly where they are 0 and 1, else by betting.

    The exact test gives no p-value below a hundred-thousandth, and is left where that matters.
    """
    exact = evidence.exact and loss_range == 1 and level >= 1e-3
    return "trinomial" if exact else "betting"


def loss_p_values(evidence, max_loss, loss_range, level):
    """p-values of "some loss is above `max_loss`" at each operating point.

    Parameters
    ----------
    evidence : Evidence
    max_loss, loss_range : float
    level : float
        The points of a path behind the first that fails it get 1: nobody asks for them.

    Returns
    -------
    ndarray of shape (n_points,)
    """
    found = np.zeros(len(evidence.budget))
    # A promise at the end of the range is true without a test.
    if max_loss is None or max_loss >= loss_range:
        return found
    options = {
        "bounds": (-loss_range, loss_range),
        "method": loss_method(evidence, loss_range, level),
    }
    for k in range(len(found)):
        follows = k > 0 and evidence.path[k] == evidence.path[k - 1]
        if is_reference(evidence, k):
            continue
        if follows and found[k - 1] > level:
            found[k] = 1.0
        elif (
            follows
            and not is_reference(evidence, k - 1)
            and np.array_equal(evidence.losses[:, k], evidence.losses[:, k - 1])
        ):
            found[k] = found[k - 1]
        else:
            parts = differences(evidence, k)
            found[k] = max(mean_p_value(part, max_loss, **options) for part in parts)
    return found


def loss_bound(evidence, k, loss_range, level):
    """Upper bound of the loss of one operating point, taken for itself."""
    if is_reference(evidence, k):
        return 0.0
    options = {
        "bounds": (-loss_range, loss_range),
        "method": loss_method(evidence, loss_range, level),
    }
    parts = differences(evidence, k)
    return max(mean_upper_bound(part, confidence=1 - level, **options) for part in parts)
