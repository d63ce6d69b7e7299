"""What the operating points of a decision estimator did on the evidence rows, as arrays."""

from typing import NamedTuple

import numpy as np

from skroute.base import Routed, note_failure
from skroute.base._inspection import abstained, can_abstain, models_of
from skroute.base._protocol import routed_of
from skroute.utils._cache import cache_of
from skroute.utils._compat import num_samples
from skroute.utils._named import align_by_class
from skroute.utils._tensors import on_host
from skroute.utils._typing import NDArray
from skroute.utils._validation import (
    check_known_labels,
    check_probabilities,
    missing_entries,
)

# Not "the full model": a gate and an early exit have one, and it is another.
FULL = "the estimator itself without a budget"


class Evidence(NamedTuple):
    """Losses and costs of every operating point on every evidence row, from the safe end on.

    Attributes
    ----------
    budgets : ndarray of shape (n_points,)
        Falling, from infinity; twice infinity where the first point is a single choice.
    losses : ndarray of shape (n_rows, n_points)
        Minus what the answer is worth, not yet against a reference.
    costs : ndarray of shape (n_rows, n_points)
    abstained_share : ndarray of shape (n_points,)
        Share of the rows that abstain.
    references : ndarray of shape (n_rows, n_references)
        The same of each reference.
    reference_costs : dict from str to float
        Mean cost of each reference, by its name; NaN where it is not known.
    reference_index : int
        The reference that the first point itself is, against which its loss is 0; -1 for none.
    single : str or None
        The choice that answers every row at the first point; None where the estimator decides.
    groups : dict from str to ndarray of shape (n_rows,), dtype=bool
        The rows of each; empty where all rows are one group.
    exact : bool
        Whether losses are 0 and 1 by what they are, not only on these rows.
    costs_known : bool
        Whether the costs are what calls cost, and not prices that differ from it.
    calls : dict from str to int
        Answers that each model was asked for.
    told : set of str
        Names of what was said about the rows.
    """

    budgets: NDArray[np.float64]
    losses: NDArray[np.float64]
    costs: NDArray[np.float64]
    abstained_share: NDArray[np.float64]
    references: NDArray[np.float64]
    reference_costs: dict[str, float]
    reference_index: int
    single: str | None
    groups: dict[str, NDArray[np.bool_]]
    exact: bool
    costs_known: bool
    calls: dict[str, int]
    told: set[str]

    def differences(self, k):
        """Signed losses of a point in each group, against each reference but itself."""
        every = self.losses[:, [k]] - self.references
        others = [
            r for r in range(every.shape[1]) if k > 0 or r != self.reference_index
        ]
        return [
            every[rows, r]
            for rows in self.groups.values() or [slice(None)]
            for r in others
        ]

    def least_loss(self, k):
        """0 where the point is one of the references, whose own loss is 0."""
        return 0.0 if k == 0 and self.reference_index >= 0 else -np.inf

    def mean_loss(self, k):
        """The largest mean signed loss of a point."""
        return float(
            max([self.least_loss(k), *(part.mean() for part in self.differences(k))])
        )


def groups_of_rows(groups, y):
    """The group of each row, checked; None where there are none."""
    if groups is None:
        return None
    if isinstance(groups, str):
        if y.ndim != 1:
            raise ValueError('groups="class" needs one label per row in y.')
        if missing_entries(y).any():
            raise ValueError(
                'groups="class" needs a label in every row: a row without one is of no class.'
            )
        return y
    missing = missing_entries(groups).any()
    groups = np.asarray(groups)
    if groups.shape != (len(y),):
        raise ValueError(
            f"groups must have one entry per row, shape ({len(y)},), got shape {groups.shape}."
        )
    if missing or len({isinstance(group, str) for group in groups}) > 1:
        raise ValueError(
            "groups must be all text or all numbers, none missing: give the rows without one a "
            "group of their own."
        )
    return groups


def operating_budgets(router, X, n_points, call):
    """Falling budgets from unlimited to the smallest feasible, by rows that only set the scale."""
    least = router.min_budget_
    if not np.isfinite(least):
        return np.array([np.inf])
    expected = router.respond(X, router.make_call(np.inf, **call), None).expected_cost
    most = max(float(expected.mean()), least)
    budgets = np.r_[np.inf, np.unique(np.linspace(least, most, n_points))[::-1]]
    return within_reach(router, X, call, budgets) if call else budgets


def within_reach(router, X, call, budgets):
    """The first of falling budgets, as long as there is a plan for these rows.

    What a call leaves out, or says that rows cost, may leave none as cheap as in `fit`.
    """
    for k, budget in enumerate(budgets[1:], start=1):
        try:
            router.plan(X, router.make_call(budget, **call))
        except ValueError:
            return budgets[:k]
    return budgets


def collect(router, budgets, X, y, call, *, reference, loss, group, from_single):
    """Call a router, and the references, at every one of its budgets on the evidence rows.

    The router has a cache for these rows, which are in random order: no member is asked
    twice about a row. `from_single` says whether the path begins with the single choice that the
    loss is measured against.
    """
    if "costs" in call:
        budgets = within_reach(router, X, call, budgets)
    worth = loss.worth
    passes = []
    for budget in budgets:
        passes.append(router.respond(X, router.make_call(budget, **call), worth.asks))
    costs_known = all(np.array_equal(seen.cost, seen.expected_cost) for seen in passes)
    losses = [-worth.of_routed(y, seen, router) for seen in passes]
    found = _references(router, X, y, call, reference, worth)
    single, index = None, 0 if FULL in found else -1
    if from_single and (name := _safe_end(router, call, reference)) in found:
        single, index = name, list(found).index(name)
        budgets = np.r_[np.inf, budgets]
        losses = [found[name][0], *losses]
        single_plan = router.plan_single(X, name, router.make_call(**call))
        passes = [routed_of(single_plan, None), *passes]
    # The loss of abstaining lies between right and wrong.
    some_abstain = can_abstain(router) or can_abstain(reference)
    groups = (
        {} if group is None else {str(one): group == one for one in np.unique(group)}
    )
    return Evidence(
        budgets,
        np.column_stack(losses),
        np.column_stack([seen.cost for seen in passes]),
        np.array([abstained(router, seen.route).mean() for seen in passes]),
        np.column_stack([lost for lost, _ in found.values()]),
        {name: cost for name, (_, cost) in found.items()},
        index,
        single,
        groups,
        loss.exact and not some_abstain,
        costs_known,
        cache_of(router).row_counts,
        set(call),
    )


def _safe_end(router, call, reference):
    """The single choice that answers every row at the safe end of the path, or None.

    Of several references it is the one that was best on the rows of `fit`, which are no evidence.
    """
    names = router.single_choices_
    if any(call.get(name) is not None for name in ("exclude", "allowed")):
        return None
    if (
        reference == "best"
        and names == models_of(router)
        and hasattr(router, "mean_quality_")
    ):
        means = np.asarray(router.mean_quality_)[: len(names)]
        # A mean that a log cannot say is NaN.
        return names[int(np.argmax(np.where(np.isnan(means), -np.inf, means)))]
    # A person who answers rows that abstain stands behind the models.
    return (
        reference
        if isinstance(reference, str) and reference in models_of(router)
        else None
    )


def _references(router, X, y, call, reference, worth):
    """By name what the loss is measured against: losses of the rows, and the mean cost."""
    names, found = router.single_choices_, {}
    if isinstance(reference, str) and reference not in ("best", "full", *names):
        raise ValueError(
            f"reference={reference!r} is neither 'best', 'full' nor one of the single choices "
            f"{names!r}. A fitted estimator is allowed as well."
        )
    for one in (names or ["full"]) if reference == "best" else [reference]:
        name, seen = ask_reference(router, one, X, call, worth)
        if isinstance(one, str) and one in names:
            quality = worth.of_single(y, seen, router)
        elif seen.route is None:
            quality = worth.of(y, seen.y_pred)
        else:
            quality = worth.of_routed(y, seen, router if isinstance(one, str) else one)
        found[name] = -quality, float(seen.cost.mean())
    return found


def ask_reference(router, reference, X, call, worth):
    """Name of a reference, and its answers to all rows (Routed).

    What does not route has no route, and a cost of NaN: not known.
    """
    asks = worth.asks
    if isinstance(reference, str):
        if reference == "full":
            return FULL, router.respond(X, router.make_call(np.inf, **call), asks)
        plan = router.plan_single(X, reference, router.make_call(**call))
        return reference, routed_of(plan, router.answer(plan, asks))
    name, n = type(reference).__name__, num_samples(X)
    if hasattr(reference, "predict_routed") and asks == "predict":
        with note_failure(name, n, "predict_routed"):
            return name, reference.predict_routed(X)
    cache_of(router).count_rows(name, n)
    with note_failure(name, n, asks):
        answers = np.asarray(on_host(getattr(reference, asks)(X)))
        if asks == "predict_proba":
            # In the order of the router's classes.
            proba = check_probabilities(answers, name)
            check_known_labels(reference.classes_, worth.classes, "classes_")
            answers = align_by_class(proba, reference.classes_, worth.classes)
    return name, Routed(answers, None, np.full(n, np.nan))
