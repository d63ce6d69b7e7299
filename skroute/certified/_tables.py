"""Evidence in numbers alone: the operating points without some choices, or at other prices."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skroute.certified._evidence import Points, Reference, logged_losses, paid


class Table(NamedTuple):
    """The evidence rows as numbers, for one path: nothing of what the rows hold is kept.

    Attributes
    ----------
    rows : RowTable
        What the path decides by.
    losses : ndarray of shape (n_rows, n_choices)
        Of each choice's answer.
    bills : ndarray of shape (n_rows, n_choices) or None
    """

    rows: Any
    losses: NDArray[np.float64]
    bills: Any


def table_of(path, X, of_rows, found, measure):
    """The table of a path; None where the loss of some choice is not known, or costs a call.

    Parameters
    ----------
    path : fitted decision estimator
    X : the evidence rows
    of_rows : Told
    found : list of Reference
    measure : Measure
    """
    context = of_rows.context
    if not hasattr(path, "_row_table") or set(context) - {"costs", "request_id"}:
        return None
    losses = _losses_of_choices(path, of_rows, found, measure)
    rows = None if losses is None else path._row_table(path._check_X(X), **context)
    return None if rows is None else Table(rows, losses, of_rows.bills)


def _losses_of_choices(path, of_rows, found, measure):
    logged = logged_losses(path, of_rows, measure)
    if logged is not None:
        # A row that is handed over has none of these.
        return logged if logged.shape[1] == len(path.choices_) else None
    members = dict(getattr(path, "named_estimators_", {}))
    known = {id(one.model): one.losses for one in found if one.model is not None}
    if list(members) != list(path.choices_) or any(id(m) not in known for m in members.values()):
        return None
    return np.column_stack([known[id(member)] for member in members.values()])


def replanned(evidence, paths, tables, excluded, anew=False):
    """The evidence for what is left of the choices, at the prices of now.

    No row is needed, no label and no call: operating points are planned anew from the tables.
    Paths without a table, and those that nothing is left of, have none.

    Parameters
    ----------
    evidence : Evidence
    paths : list of fitted decision estimators
    tables : list of Table or None
    excluded : frozenset of str
    anew : bool, default=False
        Whether budgets are set anew also where nothing is excluded. They come from the rows of
        `fit`, which are no evidence.

    Returns
    -------
    Evidence or None
        With the references of before.
    """
    points, offset, firsts = Points(), 0, []
    for k, (path, table) in enumerate(zip(paths, tables)):
        kept = [j for j, name in enumerate(path.choices_) if name not in excluded]
        if table is not None and kept:
            _add_points(points, evidence, k, path, table, np.array(kept), offset, anew)
            firsts.append(k)
        offset += len(path.choices_)
    if not firsts:
        return None
    costs = evidence.reference_costs.copy()
    for r, name in enumerate(evidence.reference_names):
        for k in firsts:
            if name in paths[k].choices_:
                j = list(paths[k].choices_).index(name)
                costs[r] = _costs_of(paths[k], tables[k])[:, j].mean()
    found = [
        Reference(name, losses, cost)
        for name, losses, cost in zip(evidence.reference_names, evidence.references.T, costs)
    ]
    made = points.evidence(found, None, evidence.exact)
    return made._replace(group=evidence.group, group_names=evidence.group_names)


def _costs_of(path, table):
    """What each choice costs on each row, without a decision."""
    if table.bills is not None:
        return table.bills
    if table.rows.planned is not None:
        return table.rows.planned
    return np.broadcast_to(path.costs_, table.losses.shape)


def _add_points(points, evidence, k, path, table, kept, offset, anew):
    rows = np.arange(len(table.losses))
    names = [path.choices_[j] for j in kept]
    before = np.flatnonzero(evidence.path == k)
    ends = before[evidence.single[before] >= 0]
    if len(ends):
        j = int(evidence.single[ends[0]])
        own = int(evidence.own[ends[0]])
        if j not in kept:
            # The best of the others on the rows of `fit`; what it loses is for the test to say.
            j = int(kept[np.argmax(np.asarray(path.mean_quality_)[kept])])
            name = path.choices_[j]
            known = evidence.reference_names
            own = known.index(name) if name in known else -1
            if own >= 0 and not np.array_equal(table.losses[:, j], evidence.references[:, own]):
                own = -1
        cost = _costs_of(path, table)[:, j]
        points.add(k, np.inf, j, np.full(len(rows), j + offset), table.losses[:, j], cost, own)
    grid = evidence.budget[before[evidence.single[before] < 0]].tolist()
    if anew or len(kept) < len(path.choices_):
        finite = np.linspace(*path._range_of_budgets(kept), max(len(grid) - 1, 2))
        grid = np.r_[np.inf, np.unique(finite)[::-1]].tolist()
    for budget in grid:
        route, cost = path._replan(table.rows, budget, kept)
        cost = paid(path, route, cost, table.bills)
        first = budget == np.inf and len(names) == len(path.choices_)
        itself = first and len(evidence.own) and evidence.own[before[0]] == 0 and not len(ends)
        same = itself and np.array_equal(route + offset, evidence.routes[:, before[0]])
        loss = table.losses[rows, route]
        points.add(k, budget, -1, route + offset, loss, cost, 0 if same else -1)


def repriced(table, before, after):
    """The table at another price list: what was logged is scaled as its list price."""
    if table.bills is None:
        return table
    factor = np.divide(after, before, out=np.ones_like(after), where=before > 0)
    return table._replace(bills=table.bills * factor)


def affordable(path, budget, exclude):
    """A budget that pays for the cheapest of what is left, where a path knows what that takes."""
    if not exclude or not hasattr(path, "_range_of_budgets"):
        return budget
    kept = [j for j, name in enumerate(path.choices_) if name not in exclude]
    return max(budget, path._range_of_budgets(kept)[0]) if kept else budget
