"""A batch of known rows: a promise about these rows, from answers bought on a few of them."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from skroute.base import affords, check_costs, note_failure
from skroute.certified._candidates import context_of_rows
from skroute.certified._certificate import Certificate
from skroute.certified._evidence import FULL, operating_budgets
from skroute.guarantees import mean_p_value, mean_upper_bound
from skroute.guarantees._finite import (
    labels_needed,
    smallest_allowed,
    tolerated_disagreements,
)
from skroute.guarantees._measures import of_label_sets
from skroute.utils._compat import Integral, num_samples
from skroute.utils._once import walking
from skroute.utils._slack import quiet_about_slack

# Rows that only set the scale of the budgets.
_SCALE_ROWS = 10


class CertifiedBatch(NamedTuple):
    """The answers to a batch of known rows, and what is promised about them.

    Attributes
    ----------
    y_pred : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        The answers; on the labelled rows those that were bought.

    route : ndarray of shape (n_rows,), dtype=int64
        Choice that answered, into ``choices_``; -1 where a reference did that is none of them.

    cost : ndarray of shape (n_rows,), dtype=float64
        What each row cost, the bought answers and what was tried beside them included.

    labelled : ndarray of shape (n_labels,), dtype=int64
        Rows that the reference's answers were bought for, in the order drawn.

    certificate : Certificate
        What is promised about this batch.
    """

    y_pred: NDArray[Any]
    route: NDArray[np.int64]
    cost: NDArray[np.float64]
    labelled: NDArray[np.int64]
    certificate: Certificate


class BatchTest(NamedTuple):
    """The test of one path: exact for 0 and 1, by betting for losses in between.

    Attributes
    ----------
    n_rows, n_labels : int
    max_loss, level : float
    measure : Measure
    exact : bool
        Whether losses are 0 where two answers are equal and 1 elsewhere.
    """

    n_rows: int
    n_labels: int
    max_loss: float
    level: float
    measure: Any
    exact: bool

    @property
    def loss_range(self):
        """What a loss is at most."""
        return self.measure.range

    @property
    def allowed(self):
        """Disagreements that the finished batch may have."""
        return min(int(np.floor(self.max_loss * self.n_rows + 1e-9)), self.n_rows)

    @property
    def tolerated(self):
        """Labelled disagreements that a certified point may have; -1 where none can be."""
        if not self.exact:
            return self.n_labels
        return tolerated_disagreements(self.n_rows, self.n_labels, self.allowed, self.level)

    def losses(self, bought, y_pred, route, n_choices):
        """Loss of each labelled row against the bought answer."""
        values = self.measure.excess(bought, y_pred, route, n_choices)
        if values.min() < 0 or values.max() > self.loss_range * (1 + 1e-9):
            raise ValueError(
                "The loss of an answer against the bought one must lie between 0 and "
                f"loss_range={self.loss_range!r}, got {values.min():.6g} to {values.max():.6g}."
            )
        return values

    def passes(self, found, losses):
        """Whether a point is certified, by what was found up to it and its own losses."""
        if self.exact:
            return found.sum() <= self.tolerated
        if self.max_loss >= self.loss_range:
            return True
        bounds = (0.0, self.loss_range)
        p_value = mean_p_value(losses, self.max_loss, bounds=bounds, n_population=self.n_rows)
        return p_value <= self.level

    def upper(self, found, losses):
        """Upper bound of the loss of the finished batch at a point taken for itself."""
        if self.exact:
            hits = int(found.sum())
            return smallest_allowed(self.n_rows, self.n_labels, hits, self.level) / self.n_rows
        bounds = (0.0, self.loss_range)
        return mean_upper_bound(
            losses, bounds=bounds, confidence=1 - self.level, n_population=self.n_rows
        )


class Stop(NamedTuple):
    """How far one path goes.

    Attributes
    ----------
    last : int
        Index of the last certified budget, -1 where not even the first is.
    loss, upper : float
        Mean on the labelled rows there (at the first budget, if none is certified), and bound.
    route : ndarray of shape (n_labels,)
    cost : ndarray of shape (n_labels,)
        Of the choices there.
    tried : ndarray of shape (n_labels,)
        What was spent on these rows along the path, beside the bought answers: the most at any
        of its budgets, where its choices are not members.
    """

    last: int
    loss: float
    upper: float
    cost: NDArray[np.float64]
    tried: NDArray[np.float64]


class Bought(NamedTuple):
    """The reference's answers to the labelled rows.

    Attributes
    ----------
    name : str
    y_pred : ndarray of shape (n_labels,) or (n_labels, n_outputs)
    route : ndarray of shape (n_labels,), dtype=int64
        Counted over all paths; -1 where the reference is none of the choices.
    cost : ndarray of shape (n_labels,)
    path : int
        The path whose choice, or whose plan without a budget, it is; -1 where it is none.
    choice : int
        Which choice of that path; -1 for the plan without a budget.
    """

    name: str
    y_pred: NDArray[Any]
    route: NDArray[np.int64]
    cost: NDArray[np.float64]
    path: int = -1
    choice: int = -1


class Asker:
    """Answers of a path to the labelled rows; a member is asked once about a row.

    Where the choices are members that answer for themselves, the answer at another budget is
    known if the choice is. Elsewhere the path is called again: one for a walk over these rows.
    """

    def __init__(self, path, X, context, bought, full):
        self.path, self.X, self.context = path, X, context
        self.members, self.full = has_members(path), full
        self.bought = bought
        self.known = {}
        self.tried = np.zeros(len(bought.y_pred))

    def __call__(self, budget):
        """Routes, costs and answers at a budget."""
        if self.full and budget == np.inf:
            self.keep(self.bought.route)
            return self.bought.route, self.bought.cost, self.bought.y_pred
        if not self.members:
            with quiet_about_slack():
                seen = self.path.predict_routed(self.X, budget=budget, **self.context)
            spent = seen.cost
            if self.full:
                # What the plan without a budget has asked for already is not paid for twice.
                more = np.maximum(spent - self.bought.cost, 0.0)
                spent = np.where(seen.route == self.bought.route, more, spent)
            self.tried = np.maximum(self.tried, spent)
            return seen.route, seen.cost, seen.y_pred
        route = self.path.route(self.X, budget=budget, **self.context)
        cost = self.path.predict_cost(self.X, budget=budget, **self.context)
        new = np.array([key not in self.known for key in enumerate(route.tolist())])
        for choice in np.unique(route[new]):
            rows = np.flatnonzero(new & (route == choice))
            name = self.path.choices_[choice]
            with note_failure(name, len(rows), "predict"):
                y_pred = self.path.named_estimators_[name].predict(_safe_indexing(self.X, rows))
            self.known |= {(i, int(choice)): y for i, y in zip(rows.tolist(), np.asarray(y_pred))}
        self.tried += np.where(new, cost, 0.0)
        return route, cost, np.array([self.known[key] for key in enumerate(route.tolist())])

    def keep(self, route):
        """Remember the bought answers as those of a choice."""
        self.known |= dict(zip(enumerate(route.tolist()), self.bought.y_pred))


def has_members(path):
    """Whether the choices of a path are members that answer for themselves."""
    members = getattr(path, "named_estimators_", None)
    return members is not None and list(members) == list(path.choices_)


def walk(path, budgets, X, context, bought, test, own):
    """Go along a path from its safe end as far as the labelled rows allow.

    In the exact test a row counts from the first budget on at which it disagrees, so that the
    count never falls along the path and the proof of :func:`finite_population_test` holds:
    order the rows by that first budget. Neither the grid nor the order depends on the labels.

    Parameters
    ----------
    path : fitted decision estimator
    budgets : ndarray of shape (n_points,)
        Falling, the unlimited one first.
    X, context : the labelled rows in the order drawn, and what is said about them
    bought : Bought
    test : BatchTest
    own : bool
        Whether what was bought is this path's.

    Returns
    -------
    Stop
    """
    full = own and bought.choice < 0
    ask = Asker(path, X, context, bought, full)
    if own and not full:
        ask.keep(np.full(len(bought.y_pred), bought.choice))
    found = np.zeros(len(bought.y_pred), dtype=bool)
    stop = None
    for k, budget in enumerate(budgets):
        route, cost, y_pred = ask(budget)
        losses = test.losses(bought.y_pred, y_pred, route, len(path.choices_))
        found = found | (losses > 0)
        # The reference itself needs no test.
        itself = full and k == 0
        passed = itself or test.passes(found, losses)
        if passed or k == 0:
            upper = 0.0 if itself else test.upper(found, losses)
            stop = Stop(k if passed else -1, float(losses.mean()), upper, cost, ask.tried)
        if not passed:
            break
    return stop._replace(tried=ask.tried)


def answer_batch(
    paths, names, contexts, X, *, test, reference, label_cost, n_points, budget, confidence, rng
):
    """Buy answers on a few rows, find how far each path goes, and answer the rest.

    Parameters
    ----------
    paths : list of fitted decision estimators
    names : list of str
    contexts : list of dict
        What each path is told about the rows.
    X : the batch
    test : BatchTest
        Its level is that of one path.
    reference : "full", str or fitted estimator
    label_cost : float or None
    n_points : int
    budget : float
        Largest mean cost of the batch.
    confidence : float
        Of all paths together.
    rng : RandomState

    Returns
    -------
    CertifiedBatch
    """
    n, k = test.n_rows, test.n_labels
    scale = np.sort(rng.permutation(n)[:_SCALE_ROWS])
    X_scale = _safe_indexing(X, scale)
    budgets = [
        operating_budgets(path, X_scale, n_points, context_of_rows(X, context, scale))
        for path, context in zip(paths, contexts)
    ]
    labelled = rng.permutation(n)[:k]
    X_labelled = _safe_indexing(X, labelled)
    said = [context_of_rows(X, context, labelled) for context in contexts]
    # About the labelled rows nothing is asked twice, whatever the choices are.
    asked = list(map(walking, paths))
    bought = buy(asked, reference, X_labelled, said, label_cost)
    check_answers(bought, paths, test)
    if np.ndim(bought.y_pred) == 2:
        test = test._replace(exact=False, measure=of_label_sets(test.measure))
    stops = [
        walk(path, grid, X_labelled, context, bought, test, i == bought.path)
        for i, (path, grid, context) in enumerate(zip(asked, budgets, said))
    ]
    sure = [i for i, stop in enumerate(stops) if stop.last >= 0]
    if not sure:
        raise ValueError(refusal(test, stops))
    chosen = min(sure, key=lambda i: stops[i].cost.mean())
    stop, path = stops[chosen], paths[chosen]
    rest = np.delete(np.arange(n), labelled)
    operating = float(budgets[chosen][stop.last])
    cost, route = np.empty(n), np.empty(n, dtype=np.int64)
    cost[labelled] = bought.cost + sum(other.tried for other in stops)
    route[labelled] = bought.route
    y_pred = np.asarray(bought.y_pred)
    if len(rest):
        context = context_of_rows(X, contexts[chosen], rest)
        X_rest = _safe_indexing(X, rest)
        if np.isfinite(budget):
            # Of this batch costs are known before they are spent.
            cost[rest] = path.predict_cost(X_rest, budget=operating, **context)
            if not affords(budget, cost.mean()):
                raise ValueError(
                    f"budget={budget!r} is below the {cost.mean():.17g} per row that this batch "
                    f"costs at the cheapest point that keeps max_loss={test.max_loss!r}, labels "
                    "included: raise max_loss or budget, or lower n_labels."
                )
        with quiet_about_slack():
            seen = path.predict_routed(X_rest, budget=operating, **context)
        offset = sum(len(other.choices_) for other in paths[:chosen])
        route[rest], cost[rest] = seen.route + offset, seen.cost
        dtype = np.result_type(bought.y_pred, seen.y_pred)
        y_pred = np.empty((n, *np.shape(bought.y_pred)[1:]), dtype=dtype)
        y_pred[labelled], y_pred[rest] = bought.y_pred, seen.y_pred
    else:
        y_pred = y_pred[np.argsort(labelled)]
    mean_cost, reference_cost = float(cost.mean()), float(bought.cost.mean())
    certificate = Certificate(
        True,
        test.max_loss,
        budget if np.isfinite(budget) else None,
        confidence,
        bought.name,
        k,
        names[chosen],
        operating,
        stop.loss,
        mean_cost,
        stop.upper,
        mean_cost,
        reference_cost,
        1 - mean_cost / reference_cost if reference_cost > 0 else 0.0,
        [],
        f"the {k} labelled rows were drawn at random",
        n,
        test.measure.unit,
    )
    return CertifiedBatch(y_pred, route, cost, labelled, certificate)


def buy(paths, reference, X, said, label_cost):
    """The reference's answers to the labelled rows (:class:`Bought`)."""
    k = num_samples(X)
    price = None if label_cost is None else np.full(k, float(label_cost))
    if isinstance(reference, str) and reference == "full":
        seen = paths[0].predict_routed(X, budget=np.inf, **said[0])
        return Bought(FULL, seen.y_pred, seen.route, seen.cost if price is None else price, 0)
    if isinstance(reference, str):
        offset, j, k_path = find_choice(paths, reference)
        with note_failure(reference, k, "predict"):
            y_pred = np.asarray(paths[k_path].named_estimators_[reference].predict(X))
        price = np.full(k, float(paths[k_path].costs_[j])) if price is None else price
        return Bought(reference, y_pred, np.full(k, offset + j), price, k_path, j)
    name = type(reference).__name__
    with note_failure(name, k, "predict"):
        if price is None:
            seen = reference.predict_routed(X)
            return Bought(name, seen.y_pred, np.full(k, -1), seen.cost)
        return Bought(name, np.asarray(reference.predict(X)), np.full(k, -1), price)


def check_answers(bought, paths, test):
    """Refuse names of choices where answers are compared: they say nothing about agreement."""
    names = {name for path in paths for name in path.choices_}
    known = any(hasattr(path, "classes_") for path in paths)
    if (
        test.measure.loss is None
        and not known
        and {str(y) for y in np.ravel(bought.y_pred)} <= names
    ):
        raise ValueError(
            "The answers are names of choices, so that two that differ may say the same: certify "
            "a router that has the models, or give a loss."
        )


def find_choice(paths, name):
    """Where a member of a name is: choices before its path, its place there, and the path's."""
    offset = 0
    for k, path in enumerate(paths):
        if has_members(path) and name in path.choices_:
            return offset, list(path.choices_).index(name), k
        offset += len(path.choices_)
    known = [choice for path in paths if has_members(path) for choice in path.choices_]
    members = f"one of the members {known!r}, " if known else ""
    advice = "Which choice is best is not known without labels."
    if any(name in getattr(path, "named_estimators_", {}) for path in paths):
        advice = f"The choices of its router are not its members: give {name!r} itself, fitted."
    raise ValueError(
        f"reference={name!r} cannot answer a batch: it must be 'full', {members}or a fitted "
        f"estimator. {advice}"
    )


def check_price(paths, reference, label_cost):
    """Refuse, before anything is called, a reference whose price is not known."""
    if isinstance(reference, str) and reference != "full":
        path = paths[find_choice(paths, reference)[2]]
        known = np.shape(getattr(path, "costs_", None)) == (len(path.choices_),)
    else:
        known = isinstance(reference, str) or hasattr(reference, "predict_routed")
    if label_cost is None and not known:
        raise ValueError(
            "label_cost must be given, 0 if answers are free: what an answer of the reference "
            "costs is not known."
        )


def refusal(test, stops):
    """What these labels can promise, and how many the loss asked for takes."""
    best = min(stops, key=lambda stop: stop.upper)
    if test.exact:
        needed = labels_needed(test.n_rows, test.allowed, test.level, best.loss)
    else:
        needed = np.inf if best.loss >= test.max_loss else min(4 * test.n_labels, test.n_rows)
    more = (
        f"max_loss={test.max_loss!r} would need about {needed:.0f} labels"
        if np.isfinite(needed)
        else f"no number of labels would be enough: the loss seen at the safe end is "
        f"{best.loss:.3g}, which max_loss={test.max_loss!r} is not above"
    )
    return (
        f"max_loss={test.max_loss!r} cannot be promised by {test.n_labels} labels on a batch of "
        f"{test.n_rows} rows. The smallest loss that they can promise is {best.upper:.3g}; {more}."
    )


def check_enough(test):
    """Refuse, before anything is bought, labels that can promise nothing whatever they say."""
    if not test.exact or test.tolerated >= 0:
        return
    needed = labels_needed(test.n_rows, test.allowed, test.level)
    least = smallest_allowed(test.n_rows, test.n_labels, 0, test.level) / test.n_rows
    raise ValueError(
        f"n_labels={test.n_labels} can promise no max_loss={test.max_loss!r} on a batch of "
        f"{test.n_rows} rows, even if all answers agree: it takes at least {needed:.0f} labels. "
        f"The smallest loss that {test.n_labels} can promise is {least:.3g}."
    )


def check_batch(router, n_rows, n_labels, label_cost, n_paths, measure):
    """The test of a batch from the parameters of a :class:`CertifiedRouter`, checked.

    Returns
    -------
    BatchTest
    """
    if router.max_loss is None:
        raise ValueError("max_loss must be given: it is what a batch is certified for.")
    if router.groups is not None:
        raise ValueError("groups are for evidence rows: a batch is promised as a whole.")
    if isinstance(n_labels, bool) or not isinstance(n_labels, Integral) or n_labels < 1:
        raise ValueError(f"n_labels must be a whole number from 1 up, got {n_labels!r}.")
    if n_labels > n_rows:
        raise ValueError(f"n_labels={n_labels!r} is more than the {n_rows} rows of the batch.")
    if measure.asks != "predict":
        raise ValueError(
            f"The loss of the wrapped router is one of probabilities ({measure.unit}), and a batch "
            "compares answers: give loss and loss_range."
        )
    if label_cost is not None:
        check_costs([label_cost], ["an answer"], name="label_cost")
    level = (1 - float(router.confidence)) / n_paths
    return BatchTest(
        n_rows,
        int(n_labels),
        float(router.max_loss),
        level,
        measure,
        measure.exact,
    )
