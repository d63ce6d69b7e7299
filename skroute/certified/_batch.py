"""A batch of known rows: a promise about these rows, from answers bought on a few of them."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from skroute.base import Routed, affords, check_budget, check_costs
from skroute.certified._certificate import Certificate, warn_of_no_saving
from skroute.certified._evidence import FULL, ask_reference, knows_costs, operating_budgets
from skroute.certified._loss import Loss, loss_of
from skroute.guarantees import mean_p_value, mean_upper_bound
from skroute.guarantees._finite import (
    labels_needed,
    smallest_allowed,
    tolerated_disagreements,
)
from skroute.metrics._objectives import single_choices
from skroute.utils._compat import Integral, _safe_indexing, check_method_params, num_samples
from skroute.utils._once import walking

# Rows that only set the scale of the budgets.
_SCALE_ROWS = 10


class CertifiedBatch(NamedTuple):
    """See :meth:`CertifiedRouter.certify_batch`."""

    y_pred: NDArray[Any]
    route: NDArray[np.int64]
    cost: NDArray[np.float64]
    labelled: NDArray[np.int64]
    certificate: Certificate


@dataclass(frozen=True)
class BatchTest:
    """The test along a path: hypergeometric for losses of 0 and 1, by betting in between."""

    n_rows: int
    n_labels: int
    max_loss: float
    level: float
    loss: Loss

    @cached_property
    def allowed(self):
        """Disagreements that the finished batch may have."""
        return min(int(np.floor(self.max_loss * self.n_rows + 1e-9)), self.n_rows)

    @cached_property
    def tolerated(self):
        """Labelled disagreements that a certified point may have; -1 where none can be."""
        return tolerated_disagreements(self.n_rows, self.n_labels, self.allowed, self.level)

    def losses(self, bought, y_pred):
        """Loss of each labelled row against the bought answer."""
        values = self.loss.against(bought, y_pred)
        if values.min() < 0 or values.max() > self.loss.range * (1 + 1e-9):
            raise ValueError(
                "The loss of an answer against the bought one must lie between 0 and "
                f"loss_range={self.loss.range!r}, got {values.min():.6g} to {values.max():.6g}."
            )
        return values

    def passes(self, found, losses):
        """Whether a point is certified, by what was found up to it and its own losses."""
        if self.loss.exact:
            return found.sum() <= self.tolerated
        bet = {"bounds": (0.0, self.loss.range), "n_population": self.n_rows}
        if self.max_loss >= self.loss.range:
            return True
        return mean_p_value(losses, self.max_loss, **bet) <= self.level

    def upper(self, found, losses):
        """Upper bound of the loss of the finished batch at a point taken for itself."""
        if self.loss.exact:
            hits = int(found.sum())
            return smallest_allowed(self.n_rows, self.n_labels, hits, self.level) / self.n_rows
        bet = {"bounds": (0.0, self.loss.range), "n_population": self.n_rows}
        return mean_upper_bound(losses, confidence=1 - self.level, **bet)


class Stop(NamedTuple):
    """How far a path goes.

    Attributes
    ----------
    last : int
        Index of the last certified budget, -1 where not even the first is.
    loss, upper : float
        Mean on the labelled rows there (at the first budget, if none is certified), and bound.
    tried : ndarray of shape (n_labels,)
        What was spent on these rows along the path beside the bought answers, at most.
    """

    last: int
    loss: float
    upper: float
    tried: NDArray[np.float64]


def walk(router, budgets, X, call, bought, test, *, from_full):
    """Go along a path from its safe end as far as the labelled rows allow (Stop).

    In the exact test a row counts from the first budget on at which it disagrees, so that the
    count never falls along the path and the proof in the user guide holds: order the rows by that
    first budget. Neither the grid nor the order depends on the labels.

    Parameters
    ----------
    router : fitted decision estimator
        For a walk over these rows: no member is asked twice about one.
    budgets : ndarray of shape (n_points,)
        Falling, the unlimited one first.
    X, call : the labelled rows in the order drawn, and what is said about them
    bought : Routed
        The reference's answers to them; a route of -1 is none of the choices.
    test : BatchTest
    from_full : bool
        Whether what was bought is the plan without a budget, which needs no test.
    """
    rows = np.arange(len(bought.route))
    found, tried = np.zeros(len(rows), dtype=bool), np.zeros(len(rows))
    # One column more, for a reference that is no choice.
    paid = np.zeros((len(rows), len(router.choices_) + 1), dtype=bool)
    paid[rows, bought.route] = True
    last, kept = (0, None) if from_full else (-1, None)
    for k, budget in enumerate(budgets[from_full:], start=int(from_full)):
        seen = router._respond(X, "predict", budget=budget, **call)
        tried = tried + np.where(paid[rows, seen.route], 0.0, seen.cost)
        paid[rows, seen.route] = True
        losses = test.losses(bought.y_pred, seen.y_pred)
        found = found | (losses > 0)
        passed = test.passes(found, losses)
        if passed:
            last = k
        if passed or k == 0:
            kept = found, losses
        if not passed:
            break
    if kept is None:
        return Stop(last, 0.0, 0.0, tried)
    return Stop(last, float(kept[1].mean()), test.upper(*kept), tried)


def certify_batch(certified, router, X, n_labels, label_cost, call):
    """Buy answers on a few rows, find how far the path goes, and answer the rest.

    Parameters
    ----------
    certified : CertifiedRouter
        Its parameters say what to promise.
    router : fitted decision estimator
    X : the batch
    n_labels : int
    label_cost : float or None
    call : dict
        What the router is told about the rows.

    Returns
    -------
    CertifiedBatch
    """
    n, loss = num_samples(X), loss_of(router, None, certified.loss, certified.loss_range)
    _check_batch(certified, router, n, n_labels, label_cost, loss)
    test = BatchTest(n, n_labels, float(certified.max_loss), 1 - certified.confidence, loss)
    _check_enough(test)
    rng = check_random_state(certified.random_state)
    scale = np.sort(rng.permutation(n)[:_SCALE_ROWS])
    labelled = rng.permutation(n)[:n_labels]
    budgets = _budgets_of(router, X, scale, call, certified)
    X_labelled = _safe_indexing(X, labelled)
    call_labelled = check_method_params(X, call, indices=labelled)
    # About the labelled rows nothing is asked twice.
    walked = walking(router)
    reference = certified.reference
    name, seen = ask_reference(walked, reference, X_labelled, call_labelled, loss)
    route = seen.route if isinstance(reference, str) else np.full(n_labels, -1)
    price = seen.cost if label_cost is None else np.full(n_labels, float(label_cost))
    bought = Routed(np.asarray(seen.y_pred), route, price)
    _check_answers(bought, router, loss)
    if np.ndim(bought.y_pred) == 2:
        several = loss_of(router, bought.y_pred, certified.loss, certified.loss_range)
        test = replace(test, loss=several)
    full = name == FULL
    stop = walk(walked, budgets, X_labelled, call_labelled, bought, test, from_full=full)
    if stop.last < 0:
        raise ValueError(_refusal(test, stop))
    operating, spent = float(budgets[stop.last]), replace(bought, cost=bought.cost + stop.tried)
    made = _finish(router, X, labelled, spent, call, operating, certified)
    certificate = Certificate(
        promised=True,
        max_loss=test.max_loss,
        budget=_limit(certified),
        confidence=float(certified.confidence),
        reference=name,
        n_rows=n_labels,
        operating_budget=operating,
        loss=stop.loss,
        cost=float(made.cost.mean()),
        loss_upper=stop.upper,
        cost_upper=float(made.cost.mean()),
        reference_cost=float(bought.cost.mean()),
        groups=[],
        assumption=f"the {n_labels} labelled rows were drawn at random",
        unit=test.loss.unit,
        n_population=n,
    )
    warn_of_no_saving(certificate)
    return CertifiedBatch(made.y_pred, made.route, made.cost, labelled, certificate)


def _limit(certified):
    """The mean cost that the batch may have; None for any."""
    budget = check_budget(certified.budget)
    return budget if np.isfinite(budget) else None


def _budgets_of(router, X, scale, call, certified):
    """The budgets that are tried, set by a few rows of the batch."""
    X, call = _safe_indexing(X, scale), check_method_params(X, call, indices=scale)
    router, limit = walking(router), _limit(certified)
    if limit is not None and not knows_costs(router._respond(X, None, budget=np.inf, **call)):
        raise ValueError(
            f"budget={limit!r} cannot be held: what calls of the wrapped estimator cost is known "
            "only after them. Leave it out; max_loss is promised without it."
        )
    return operating_budgets(router, X, certified.n_points, call)


def _finish(router, X, labelled, bought, call, operating, certified):
    """The answers to all rows: those bought, and those of the operating point (Routed)."""
    rest, limit = np.delete(np.arange(num_samples(X)), labelled), _limit(certified)
    parts, costs = [bought], bought.cost
    X_rest, call = _safe_indexing(X, rest), check_method_params(X, call, indices=rest)
    if limit is not None:
        if len(rest):
            # Of this batch costs are known before they are spent.
            plan = router._respond(X_rest, None, budget=operating, **call)
            costs = np.r_[costs, plan.cost]
        if not affords(limit, costs.mean()):
            raise ValueError(
                f"budget={limit!r} is below the {costs.mean():.17g} per row that this batch costs "
                f"at the cheapest point that keeps max_loss={certified.max_loss!r}, labels "
                "included: raise max_loss or budget, or lower n_labels."
            )
    if len(rest):
        parts.append(router._respond(X_rest, "predict", budget=operating, **call))
    order = np.argsort(np.r_[labelled, rest])
    return Routed(*(np.concatenate(one)[order] for one in zip(*parts)))


# What is refused before anything is called ------------------------------------------------


def _check_batch(certified, router, n, n_labels, label_cost, loss):
    """Refuse parameters that no batch can be answered by."""
    if getattr(router, "abstain_quality_", None) is not None:
        raise ValueError(
            "certify_batch compares answers with bought ones, and a row that is handed over "
            "has none: fit the estimator without an abstain_cost."
        )
    if certified.max_loss is None:
        raise ValueError("max_loss must be given: it is what a batch is certified for.")
    if certified.groups is not None:
        raise ValueError("groups are for evidence rows: a batch is promised as a whole.")
    if isinstance(n_labels, bool) or not isinstance(n_labels, Integral) or n_labels < 1:
        raise ValueError(f"n_labels must be a whole number from 1 up, got {n_labels!r}.")
    if n_labels > n:
        raise ValueError(f"n_labels={n_labels!r} is more than the {n} rows of the batch.")
    if loss.asks != "predict":
        raise ValueError(
            f"The loss of the wrapped router is one of probabilities ({loss.unit}), and a batch "
            "compares answers: give loss and loss_range."
        )
    if label_cost is not None:
        check_costs([label_cost], ["an answer"], name="label_cost")
    reference, names = certified.reference, single_choices(router)
    if isinstance(reference, str) and reference not in ("full", *names):
        single = f"one of the single choices {names!r}, " if names else ""
        raise ValueError(
            f"reference={reference!r} cannot answer a batch: it must be 'full', {single}or a "
            "fitted estimator. Which choice is best is not known without labels."
        )
    if label_cost is None and not (
        isinstance(reference, str) or hasattr(reference, "predict_routed")
    ):
        raise ValueError(
            "label_cost must be given, 0 if answers are free: what an answer of the reference "
            "costs is not known."
        )


def _check_enough(test):
    """Refuse labels that can promise nothing whatever they say."""
    if not test.loss.exact or test.tolerated >= 0:
        return
    needed = labels_needed(test.n_rows, test.allowed, test.level)
    least = smallest_allowed(test.n_rows, test.n_labels, 0, test.level) / test.n_rows
    raise ValueError(
        f"n_labels={test.n_labels} can promise no max_loss={test.max_loss!r} on a batch of "
        f"{test.n_rows} rows, even if all answers agree: it takes at least {needed:.0f} labels. "
        f"The smallest loss that {test.n_labels} can promise is {least:.3g}."
    )


def _check_answers(bought, router, loss):
    """Refuse names of choices where answers are compared: they say nothing about agreement."""
    unknown = loss.worth.function is None and not hasattr(router, "classes_")
    if unknown and {str(y) for y in np.ravel(bought.y_pred)} <= set(router.choices_):
        raise ValueError(
            "The answers are names of choices, so that two that differ may say the same: certify "
            "a router that has the models, or give a loss."
        )


def _refusal(test, stop):
    """What these labels can promise, and how many the loss asked for takes."""
    if test.loss.exact:
        needed = labels_needed(test.n_rows, test.allowed, test.level, stop.loss)
    else:
        needed = np.inf if stop.loss >= test.max_loss else min(4 * test.n_labels, test.n_rows)
    more = (
        f"max_loss={test.max_loss!r} would need about {needed:.0f} labels"
        if np.isfinite(needed)
        else f"no number of labels would be enough if the loss at the safe end is {stop.loss:.3g}, "
        f"as seen: raise max_loss={test.max_loss!r} above it"
    )
    return (
        f"max_loss={test.max_loss!r} cannot be promised by {test.n_labels} labels on a batch of "
        f"{test.n_rows} rows. The smallest loss that they can promise is {stop.upper:.3g}; {more}."
    )
