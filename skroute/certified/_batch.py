"""A batch of known rows: a promise about these rows, from answers bought on a few of them."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from skroute.base import Routed, affords, check_budget, check_costs
from skroute.certified._certificate import Certificate, warn_of_no_saving
from skroute.certified._evidence import (
    FULL,
    ask_reference,
    operating_budgets,
    within_reach,
)
from skroute.certified._loss import Loss, loss_of
from skroute.certified._selection import smallest_loss
from skroute.guarantees import mean_p_value, mean_upper_bound
from skroute.guarantees._finite import (
    labels_needed,
    smallest_allowed,
    tolerated_disagreements,
)
from skroute.utils._cache import with_cache
from skroute.utils._compat import (
    Integral,
    _safe_indexing,
    check_method_params,
    num_samples,
)
from skroute.utils._tolerances import COUNT_ROUNDING, LIMIT_ROOM
from skroute.utils._typing import NDArray

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
        return min(
            int(np.floor(self.max_loss * self.n_rows + COUNT_ROUNDING)), self.n_rows
        )

    @cached_property
    def tolerated(self):
        """Labelled disagreements that a certified point may have; -1 where none can be."""
        return tolerated_disagreements(
            self.n_rows, self.n_labels, self.allowed, self.level
        )

    def losses(self, bought, y_pred):
        """Loss of each labelled row against the bought answer."""
        values = self.loss.against(bought, y_pred)
        if values.min() < 0 or values.max() > self.loss.range * (1 + LIMIT_ROOM):
            raise ValueError(
                "The loss of an answer against the bought one must lie between 0 and "
                f"loss_range={self.loss.range!r}, got {values.min():.6g} to {values.max():.6g}."
            )
        return values

    @property
    def _bet(self):
        """How the mean of all rows is bet on."""
        return {"bounds": (0.0, self.loss.range), "n_population": self.n_rows}

    def passes(self, found, losses):
        """Whether a point is certified, by what was found up to it and its own losses."""
        if self.loss.exact:
            return found.sum() <= self.tolerated
        # A promise at the end of the range is true without a test.
        if self.max_loss >= self.loss.range:
            return True
        return mean_p_value(losses, self.max_loss, **self._bet) <= self.level

    def upper(self, found, losses):
        """Upper bound of the loss of the finished batch at a point taken for itself."""
        if self.loss.exact:
            return self.promised(int(found.sum()))
        return mean_upper_bound(losses, confidence=1 - self.level, **self._bet)

    def promised(self, hits):
        """The smallest loss that so many labelled disagreements promise."""
        return (
            smallest_allowed(self.n_rows, self.n_labels, hits, self.level) / self.n_rows
        )


def walk(router, budgets, X, call, bought, test, *, from_full):
    """Go along a path from its safe end as far as the labelled rows allow.

    In the exact test a row counts from the first budget on at which it disagrees, so that the
    count never falls along the path and the proof in the user guide holds: order the rows by that
    first budget. Neither the grid nor the order depends on the labels.

    `budgets` fall from the unlimited one, `router` has a cache for the rows, and `bought` are the
    reference's answers to them (Routed; a route of -1 is none of the choices): `from_full` says
    that they are the plan without a budget, which needs no test. Returns the index of the last
    certified budget (-1: none), the mean loss there and its bound (at the first budget, if none is
    certified), and what was spent on each row beside the bought answers, at most.
    """
    rows = np.arange(len(bought.route))
    found, tried = np.zeros(len(rows), dtype=bool), np.zeros(len(rows))
    # One column more, for a reference that is no choice.
    paid = np.zeros((len(rows), len(router.choices_) + 1), dtype=bool)
    paid[rows, bought.route] = True
    last = -1
    for k, budget in enumerate(budgets):
        seen = router.respond(X, router.make_call(budget, **call))
        tried = tried + np.where(paid[rows, seen.route], 0.0, seen.cost)
        paid[rows, seen.route] = True
        losses = test.losses(bought.y_pred, seen.y_pred)
        found = found | (losses > 0)
        passed = (from_full and k == 0) or test.passes(found, losses)
        if passed or k == 0:
            kept = found, losses
        if not passed:
            break
        last = k
    upper = 0.0 if from_full and last == 0 else test.upper(*kept)
    return last, float(kept[1].mean()), upper, tried


def certify_batch(certified, router, X, n_labels, label_cost, call):
    """Buy answers on a few rows, find how far the path of a fitted router goes, answer the rest.

    The parameters of `certified`, a CertifiedRouter, say what to promise.
    """

    def part(rows):
        """Rows of the batch, and what is said about them."""
        return _safe_indexing(X, rows), check_method_params(X, call, indices=rows)

    n, loss = (
        num_samples(X),
        loss_of(router, None, certified.loss, certified.loss_range),
    )
    test = BatchTest(n, n_labels, certified.max_loss, 1 - certified.confidence, loss)
    _check_batch(certified, router, test, label_cost)
    limit, rng = (
        check_budget(certified.budget),
        check_random_state(certified.random_state),
    )
    scale, labelled = (
        np.sort(rng.permutation(n)[:_SCALE_ROWS]),
        rng.permutation(n)[:n_labels],
    )
    X_scale, call_scale = part(scale)
    scaled = with_cache(router)
    plan = scaled.respond(X_scale, scaled.make_call(np.inf, **call_scale), None)
    if np.isfinite(limit) and not np.array_equal(plan.cost, plan.expected_cost):
        raise ValueError(
            f"budget={limit!r} cannot be held: what calls of the wrapped estimator cost is known "
            "only after them. Leave it out; max_loss is promised without it."
        )
    budgets = operating_budgets(scaled, X_scale, certified.n_points, call_scale)
    rest = np.delete(np.arange(n), labelled)
    # Nothing is asked twice, neither about the labelled rows nor about the rest.
    walked, (X_labelled, call_labelled) = with_cache(router), part(labelled)
    others, (X_rest, call_rest) = with_cache(router), part(rest)
    if "costs" in call:
        budgets = within_reach(walked, X_labelled, call_labelled, budgets)
        if len(rest):
            budgets = within_reach(others, X_rest, call_rest, budgets)
    name, seen = ask_reference(
        walked, certified.reference, X_labelled, call_labelled, loss.worth
    )
    route = (
        seen.route if isinstance(certified.reference, str) else np.full(n_labels, -1)
    )
    price = seen.cost if label_cost is None else np.full(n_labels, float(label_cost))
    bought = Routed(np.asarray(seen.y_pred), route, price)
    unknown = loss.worth.name == "accuracy" and not hasattr(router, "classes_")
    # Names of choices say nothing about agreement.
    if unknown and {str(y) for y in np.ravel(bought.y_pred)} <= set(router.choices_):
        raise ValueError(
            "The answers are names of choices, so that two that differ may say the same: certify "
            "a router that has the models, or give a loss."
        )
    if np.ndim(bought.y_pred) == 2:
        several = loss_of(router, bought.y_pred, certified.loss, certified.loss_range)
        test = replace(test, loss=several)
    last, lost, upper, tried = walk(
        walked, budgets, X_labelled, call_labelled, bought, test, from_full=name == FULL
    )
    if last < 0:
        needed = np.inf if lost >= test.max_loss else min(4 * n_labels, n)
        if test.loss.exact:
            needed = labels_needed(n, test.allowed, test.level, lost)
        raise ValueError(
            f"max_loss={test.max_loss!r} cannot be promised by {n_labels} labels on a batch of {n} "
            f"rows. {smallest_loss(test.max_loss, upper, needed, lost, 'labels')}"
        )
    operating, costs = float(budgets[last]), bought.cost + tried
    parts = [replace(bought, cost=costs)]
    if np.isfinite(limit) and len(rest):
        # Of this batch costs are known before they are spent.
        rest_plan = others.plan(X_rest, others.make_call(operating, **call_rest))
        costs = np.r_[costs, rest_plan.cost]
    if not affords(limit, costs.mean()):
        raise ValueError(
            f"budget={limit!r} is below the {costs.mean():.17g} per row that this batch costs "
            f"at the cheapest point that keeps max_loss={test.max_loss!r}, labels "
            "included: raise max_loss or budget, or lower n_labels."
        )
    if len(rest):
        parts.append(others.respond(X_rest, others.make_call(operating, **call_rest)))
    order = np.argsort(np.r_[labelled, rest])
    y_pred, route, cost = (np.concatenate(one)[order] for one in zip(*parts))
    certificate = Certificate(
        promised=True,
        max_loss=float(test.max_loss),
        budget=limit if np.isfinite(limit) else None,
        confidence=float(certified.confidence),
        reference=name,
        n_rows=n_labels,
        operating_budget=operating,
        loss=lost,
        cost=float(cost.mean()),
        loss_upper=upper,
        cost_upper=float(cost.mean()),
        reference_cost=float(bought.cost.mean()),
        groups=[],
        assumption=f"the {n_labels} labelled rows were drawn at random",
        unit=test.loss.unit,
        n_population=n,
    )
    warn_of_no_saving(certificate)
    return CertifiedBatch(y_pred, route, cost, labelled, certificate)


# What is refused before anything is called ------------------------------------------------


def _check_batch(certified, router, test, label_cost):
    """Refuse parameters that no batch can be answered by, and labels that can promise nothing."""
    n, n_labels, loss = test.n_rows, test.n_labels, test.loss
    if getattr(router, "abstain_quality_", None) is not None:
        raise ValueError(
            "certify_batch compares answers with bought ones, and a row that abstains "
            "has none: fit the estimator without an abstain_cost."
        )
    if certified.max_loss is None:
        raise ValueError("max_loss must be given: it is what a batch is certified for.")
    if certified.groups is not None:
        raise ValueError(
            "groups are for evidence rows: a batch is promised as a whole."
        )
    if isinstance(n_labels, bool) or not isinstance(n_labels, Integral) or n_labels < 1:
        raise ValueError(
            f"n_labels must be a whole number from 1 up, got {n_labels!r}."
        )
    if n_labels > n:
        raise ValueError(
            f"n_labels={n_labels!r} is more than the {n} rows of the batch."
        )
    if loss.worth.asks != "predict":
        raise ValueError(
            f"The loss of the wrapped router is one of probabilities ({loss.unit}), and a batch "
            "compares answers: give loss and loss_range."
        )
    reference, names = certified.reference, router.single_choices_
    if isinstance(reference, str) and reference not in ("full", *names):
        single = f"one of the single choices {names!r}, " if names else ""
        raise ValueError(
            f"reference={reference!r} cannot answer a batch: it must be 'full', {single}or a "
            "fitted estimator. Which choice is best is not known without labels."
        )
    if label_cost is not None:
        check_costs([label_cost], ["an answer"], name="label_cost")
    elif not isinstance(reference, str) and not hasattr(reference, "predict_routed"):
        raise ValueError(
            "label_cost must be given, 0 if answers are free: what an answer of the reference "
            "costs is not known."
        )
    if loss.exact and test.tolerated < 0:
        needed = labels_needed(n, test.allowed, test.level)
        raise ValueError(
            f"n_labels={n_labels} can promise no max_loss={test.max_loss!r} on a batch of "
            f"{n} rows, even if all answers agree: it takes at least {needed:.0f} labels. "
            f"The smallest loss that {n_labels} can promise is {test.promised(0):.3g}."
        )
