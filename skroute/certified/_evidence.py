"""What the operating points did on the evidence rows, as arrays."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from skroute.guarantees import mean_p_value, mean_upper_bound
from skroute.utils._compat import num_samples
from skroute.utils._handing import handed_over, models_of
from skroute.utils._once import once_of
from skroute.utils._slack import quiet_about_slack

# Not "the full model": a gate and an early exit have one, and it is another.
FULL = "the estimator itself without a budget"


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
    single : ndarray of shape (n_points,), dtype=int64
        The choice that answers all rows, counted within its path; -1 where the path decides.
    own : ndarray of shape (n_points,), dtype=int64
        The reference that the point itself is, against which its loss is 0; -1 for none.
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
    single: NDArray[np.int64]
    own: NDArray[np.int64]


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


def losses_or_handed(y, seen, path, measure):
    """Loss of each answer; a row that is handed over counts as its router has it.

    Parameters
    ----------
    y : ndarray
    seen : Routed
    path : fitted decision estimator
    measure : Measure

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    handed, n_models = handed_over(path, seen.route), len(models_of(path))
    if not handed.any():
        return measure.losses(y, seen.y_pred, seen.route, n_models)
    owner = path
    while hasattr(owner, "_asked"):
        # A certified router hands over as what is inside of it.
        owner = owner._asked()[1][0]
    found = np.full(len(y), measure.of_handing(path.abstain_quality_, owner.abstain_cost))
    rows = np.flatnonzero(~handed)
    if len(rows):
        answers = np.array(seen.y_pred[rows].tolist())
        found[rows] = measure.losses(y[rows], answers, seen.route[rows], n_models)
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
    seen = path._respond(X, None, budget=np.inf, **(context or {}))
    cost = seen.cost if seen.expected_cost is None else seen.expected_cost
    most = max(float(np.mean(cost)), least)
    return np.r_[np.inf, np.unique(np.linspace(least, most, n_points))[::-1]]


class Points:
    """Operating points while they are collected, path by path."""

    def __init__(self):
        self.columns = []

    def add(self, path, budget, single, route, loss, cost, own=-1):
        """One more."""
        self.columns.append((path, budget, single, route.astype(np.int32), loss, cost, own))

    def evidence(self, found, group, exact):
        """All of them beside the references, as Evidence."""
        path, budget, single, routes, losses, costs, own = zip(*self.columns)
        n_rows, names = len(losses[0]), []
        codes = np.zeros(n_rows, dtype=np.int64)
        if group is not None:
            values, codes = np.unique(group, return_inverse=True)
            names = [str(value) for value in values]
        return Evidence(
            np.array(path),
            np.array(budget, dtype=np.float64),
            np.column_stack(routes),
            np.column_stack(losses),
            np.column_stack(costs),
            np.column_stack([one.losses for one in found]),
            [one.name for one in found],
            np.array([one.cost for one in found], dtype=np.float64),
            codes.astype(np.int64),
            names,
            exact,
            np.array(single, dtype=np.int64),
            np.array(own, dtype=np.int64),
        )


class Reference(NamedTuple):
    """What the loss is measured against.

    Attributes
    ----------
    name : str
    losses : ndarray of shape (n_rows,)
    cost : float
        Mean; NaN where it is not known.
    model : object
        Who answers; None for a column of qualities.
    """

    name: str
    losses: NDArray[np.float64]
    cost: float
    model: Any = None


class Told(NamedTuple):
    """The evidence rows as one path reads them.

    Attributes
    ----------
    y : ndarray
    context : dict
        What it is told about them.
    bills : ndarray of shape (n_rows, n_choices) or None
        What each choice has cost, where the path is not told.
    """

    y: NDArray[Any]
    context: dict
    bills: Any = None


def collect(paths, budgets, X, told, *, reference, measure, group, ends=True):
    """Call every path at every one of its budgets on the evidence rows, and the references.

    Parameters
    ----------
    paths : list of fitted decision estimators
        For a walk over these rows (:func:`~skroute.utils._once.walking`): no member is asked
        twice about a row, and no row is read twice.
    budgets : list of ndarray
        For each path, the unlimited one first.
    X : the evidence rows, in random order
    told : list of Told
    reference : "best", "full", str or fitted estimator
    measure : Measure
    group : ndarray of shape (n_rows,) or None
    ends : bool, default=True
        Whether to ask the single choice that the loss is measured against is a point as well.

    Returns
    -------
    evidence : Evidence
    found : list of Reference
    """
    points, offset = [], 0
    for path, of_rows, grid in zip(paths, told, budgets):
        own = []
        for budget in grid:
            with quiet_about_slack():
                seen = path._respond(X, measure.asks, budget=budget, **of_rows.context)
            loss = losses_or_handed(of_rows.y, seen, path, measure)
            cost = paid(path, seen.route, seen.cost, of_rows.bills)
            own.append((budget, -1, seen.route + offset, loss, cost))
        points.append(own)
        offset += len(path.choices_)
    full = Reference(FULL, points[0][0][3], float(points[0][0][4].mean()))
    found = _references(paths, X, told, reference, measure, full)
    every, offset = Points(), 0
    for k, (path, of_rows) in enumerate(zip(paths, told)):
        end = _safe_end(path, of_rows, reference, found) if ends else None
        if end is not None:
            j, r = end
            cost, loss = single_costs(path, X, j, of_rows), found[r].losses
            every.add(k, np.inf, j, np.full(len(loss), j + offset), loss, cost, r)
        for i, point in enumerate(points[k]):
            every.add(k, *point, own=0 if found == [full] and k == i == 0 else -1)
        offset += len(path.choices_)
    exact = measure.exact and all(getattr(path, "abstain_quality_", None) is None for path in paths)
    return every.evidence(found, group, exact), found


def paid(path, route, cost, bills):
    """What each row has cost: by the log where there is one."""
    if bills is None:
        return cost
    return bills[np.arange(len(route)), route] + float(getattr(path, "routing_cost", 0.0) or 0.0)


def single_costs(path, X, j, of_rows):
    """What each row costs if one choice answers all, without a decision."""
    if of_rows.bills is not None:
        return of_rows.bills[:, j]
    return path._single_costs(X, j, of_rows.context.get("costs"))


def _safe_end(path, of_rows, reference, found):
    """The single choice that a path is measured against, and which reference it is, or None.

    Of several it is the one that was best on the rows of `fit`, which are no evidence.
    """
    limited = any(of_rows.context.get(name) is not None for name in ("exclude", "allowed"))
    if limited or reference == "full" or not hasattr(path, "_single_costs"):
        return None
    # A person to whom rows are handed over stands behind the models.
    choices = models_of(path)
    j = int(np.argmax(np.asarray(path.mean_quality_)[: len(choices)]))
    if reference != "best":
        if not isinstance(reference, str) or reference not in choices:
            return None
        j = choices.index(reference)
    models = dict(getattr(path, "named_estimators_", {}))
    for r, one in enumerate(found):
        same = one.name == choices[j] if not models else one.model is models[choices[j]]
        if same and (models or one.model is None):
            return j, r
    return None


def _references(paths, X, told, reference, measure, full):
    """Everything that the loss is measured against, list of Reference."""
    if reference == "full":
        return [full]
    y = told[0].y
    if hasattr(reference, "predict"):
        name = type(reference).__name__
        if hasattr(reference, "predict_routed") and measure.asks == "predict":
            seen = reference.predict_routed(X)
            row = losses_or_handed(y, seen, reference, measure)
            return [Reference(name, row, float(seen.cost.mean()), reference)]
        once_of(paths[0]).count(name, num_samples(X))
        row = measure.losses(y, measure.ask(name, reference, X))
        return [Reference(name, row, np.nan, reference)]
    known = {}
    for k, (path, of_rows) in enumerate(zip(paths, told)):
        for name, (answer, cost) in _single_choices(path, of_rows, measure).items():
            if name not in known:
                known[name] = answer, cost, path
            elif not isinstance(answer, np.ndarray) and answer is not known[name][0]:
                # Another model of the same name, in another candidate.
                known[f"{name} ({k + 1})"] = answer, cost, path
    if reference != "best":
        if reference not in known:
            raise ValueError(
                f"reference={reference!r} is neither 'best', 'full' nor one of the single choices "
                f"{list(known)!r}. A fitted estimator is allowed as well."
            )
        known = {reference: known[reference]}
    found = []
    for name, (answer, cost, path) in known.items():
        if isinstance(answer, np.ndarray):
            found.append(Reference(name, answer, cost))
        else:
            row = measure.losses(y, _answers_alone(path, name, answer, X, measure))
            found.append(Reference(name, row, cost, answer))
    return found or [full]


def _answers_alone(path, name, model, X, measure):
    """What a member of a path answers to every row, asked only where the path has not."""
    if hasattr(path, "_single_answers"):
        own = next(own for own, known in path.named_estimators_.items() if known is model)
        answers = path._single_answers(path._check_X(X), own, measure.asks)
        if answers is not None:
            return answers
    once_of(path).count(name, num_samples(X))
    return measure.ask(name, model, X)


def logged_losses(path, of_rows, measure):
    """Loss of each logged choice on every row, alone; None where choices are not logged.

    Parameters
    ----------
    path : fitted decision estimator
    of_rows : Told
    measure : Measure

    Returns
    -------
    ndarray of shape (n_rows, n_choices) or None
    """
    y, names = of_rows.y, models_of(path)
    if y.ndim != 2 or y.shape[1] != len(names) or is_classifier(path):
        return None
    if measure.loss is None:
        return 1.0 - np.asarray(y, dtype=np.float64)
    if of_rows.context.get("models") is not None:
        raise ValueError(
            "loss is given the answers of models, and of rows that a model is not asked about "
            'nobody knows its answer: give reference="full" or a fitted estimator.'
        )
    # What the path answers with where a choice is made.
    told = names if getattr(path, "_named", True) else getattr(path, "columns_", range(len(names)))
    rows = np.arange(len(y))
    columns = [measure.losses(y, np.full(len(y), told[j]), 0 * rows + j) for j in range(len(names))]
    return np.column_stack(columns)


def _single_choices(path, of_rows, measure):
    """The single choices of an estimator: a logged one's losses or a member, and its cost."""
    losses = logged_losses(path, of_rows, measure)
    if losses is not None:
        names, answers = models_of(path), list(losses.T)
    else:
        members = dict(getattr(path, "named_estimators_", {}))
        names, answers = list(members), list(members.values())
    if not names:
        return {}
    costs = getattr(path, "costs_", []) if of_rows.bills is None else of_rows.bills.mean(axis=0)
    costs = np.asarray(costs, dtype=np.float64)
    if getattr(path, "abstain_quality_", None) is not None:
        costs = costs[: len(names)]
    costs = costs if costs.shape == (len(names),) else np.full(len(names), np.nan)
    return {name: (a, float(c)) for name, a, c in zip(names, answers, costs)}


def differences(evidence, k):
    """Signed losses of an operating point against each reference but itself, in each group.

    Returns
    -------
    list of ndarray
    """
    groups = [evidence.group == g for g in range(max(len(evidence.group_names), 1))]
    every = evidence.losses[:, [k]] - evidence.references
    others = [r for r in range(every.shape[1]) if r != evidence.own[k]]
    return [every[rows, r] for rows in groups for r in others]


def is_reference(evidence, k):
    """Whether an operating point is the reference itself, whose loss is 0 without a test."""
    return evidence.own[k] >= 0 and evidence.references.shape[1] == 1


def seen_loss(evidence, k):
    """The largest mean signed loss of an operating point."""
    least = 0.0 if evidence.own[k] >= 0 else -np.inf
    return float(max([least, *(part.mean() for part in differences(evidence, k))]))


def losses_of_points(evidence):
    """The largest mean signed loss of each operating point.

    Returns
    -------
    ndarray of shape (n_points,)
    """
    return np.array([seen_loss(evidence, k) for k in range(len(evidence.budget))])


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
        # The safe end has a share of the level of its own.
        follows = follows and evidence.single[k - 1] < 0
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
    least = 0.0 if evidence.own[k] >= 0 else -np.inf
    parts = differences(evidence, k)
    bounds = [mean_upper_bound(part, confidence=1 - level, **options) for part in parts]
    return max([least, *bounds])
