"""Evidence: losses and costs of all operating points on the evidence rows."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

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

# Name of the reference "full" in certificates. It is not called "the full model": a
# gate and an early exit have a full model, which is not the estimator without a budget.
FULL = "the estimator itself without a budget"


class EvidenceRows(NamedTuple):
    """Rows on which an estimator is certified (evidence rows), in random order.

    Attributes
    ----------
    X : {array, sparse matrix, dataframe} of shape (n_rows, n_features)
    y : ndarray of shape (n_rows,) or (n_rows, n_outputs)
    groups : ndarray of shape (n_rows,) or None
        The group of each row. None without groups.
    call : dict
        Keywords of the calls about these rows.
    bills : array-like of shape (n_rows, n_choices), default=None
        Bill of each choice on each row. None if the costs of the estimator are the
        bills.
    """

    X: Any
    y: NDArray[Any]
    groups: NDArray[Any] | None
    call: dict[str, Any]
    bills: Any = None


class Evidence(NamedTuple):
    """Losses and costs of every operating point on every evidence row.

    The points go from the safe end of the path, without a budget, to the cheapest
    point.

    Attributes
    ----------
    budgets : ndarray of shape (n_points,)
        Budgets in decreasing order. The first one is infinite. If the first point is a
        single choice, the second one is infinite as well.
    losses : ndarray of shape (n_rows, n_points)
        Minus the quality of the answers, without a reference.
    costs : ndarray of shape (n_rows, n_points)
    abstained_share : ndarray of shape (n_points,)
        Share of the rows that abstain.
    reference_losses : ndarray of shape (n_rows, n_references)
        Minus the quality of the answers of each reference.
    reference_costs : dict from str to float
        Mean cost of each reference, by its name. NaN if the cost is not known.
    first_reference : int or None
        Index of the reference that is itself the first point, so that its loss there is
        0. None if no reference is.
    single : str or None
        Name of the choice that answers every row at the first point. None if the
        estimator decides there.
    groups : dict from str to ndarray of shape (n_rows,), dtype=bool
        The rows of each group, by its name. Empty if all rows are one group.
    exact : bool
        True if two losses of a row can only differ by -1, 0 or 1, also on future rows.
    costs_known : bool
        True if the costs are bills. False if they are expected bills, because bills
        come after the call and were not given.
    row_counts : dict from str to int
        Number of rows that each model was called on.
    call_keywords : set of str
        Names of the keywords that the calls about the evidence rows had.
    """

    budgets: NDArray[np.float64]
    losses: NDArray[np.float64]
    costs: NDArray[np.float64]
    abstained_share: NDArray[np.float64]
    reference_losses: NDArray[np.float64]
    reference_costs: dict[str, float]
    first_reference: int | None
    single: str | None
    groups: dict[str, NDArray[np.bool_]]
    exact: bool
    costs_known: bool
    row_counts: dict[str, int]
    call_keywords: set[str]

    def differences(self, k):
        """Return the losses of operating point `k` less the losses of each reference.

        Returns
        -------
        list of ndarray
            An array for each group and each reference. A reference that is itself the
            point is left out.
        """
        # (n_rows, n_references)
        all_differences = self.losses[:, [k]] - self.reference_losses
        rows_of_groups = list(self.groups.values())
        if not rows_of_groups:
            # Without groups, all rows are one group.
            rows_of_groups = [slice(None)]
        differences = []
        for rows in rows_of_groups:
            for reference in range(all_differences.shape[1]):
                is_the_point = k == 0 and reference == self.first_reference
                if not is_the_point:
                    differences.append(all_differences[rows, reference])
        return differences

    def lower_bound_of_loss(self, k):
        """Return 0 if operating point `k` is itself a reference, else minus infinity.

        The loss of point `k` is the largest one over all references. Its loss against
        itself is 0, which `differences` leaves out. Minus infinity changes no maximum.
        """
        if k == 0 and self.first_reference is not None:
            return 0.0
        return -np.inf

    def mean_loss(self, k):
        """Return the largest mean of `differences(k)`, over all groups and references.

        It is 0 if the point is itself the only reference.
        """
        means = [differences.mean() for differences in self.differences(k)]
        return float(max([self.lower_bound_of_loss(k), *means]))


class Reference(NamedTuple):
    """A model that losses are measured against, with its losses on the evidence rows.

    Attributes
    ----------
    name : str
        For certificates and messages.
    losses : ndarray of shape (n_rows,)
        Minus the quality of its answers.
    mean_cost : float
        Mean cost of an answer. NaN if it is not known.
    """

    name: str
    losses: NDArray[np.float64]
    mean_cost: float


class _PathPoint(NamedTuple):
    """Losses, costs and choices of the evidence rows at one budget.

    Attributes
    ----------
    budget : float
    losses : ndarray of shape (n_rows,)
        Minus the quality of the answers.
    route : ndarray of shape (n_rows,), dtype=int64
        Choices of the rows.
    cost : ndarray of shape (n_rows,)
        Bills of the rows, or expected bills.
    is_billed : bool
        True if `cost` are bills.
    """

    budget: float
    losses: NDArray[np.float64]
    route: NDArray[np.int64]
    cost: NDArray[np.float64]
    is_billed: bool


def groups_of_rows(groups, y):
    """Check `groups`, and return the group of each row, or None without groups.

    Parameters
    ----------
    groups : "class", array-like of shape (n_rows,) or None
    y : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        Targets. They are the groups if `groups` is "class".

    Returns
    -------
    ndarray of shape (n_rows,), or None without groups
    """
    if groups is None:
        return None
    if isinstance(groups, str):
        if y.ndim != 1:
            raise ValueError('groups="class" needs one label per row in y.')
        if missing_entries(y).any():
            raise ValueError(
                'groups="class" needs a label in every row: a row without one is of no '
                "class."
            )
        return y
    has_missing = missing_entries(groups).any()
    groups = np.asarray(groups)
    if groups.shape != (len(y),):
        raise ValueError(
            f"groups must have one entry per row, shape ({len(y)},), got shape "
            f"{groups.shape}."
        )
    # The set has two elements if some groups are texts and others are not.
    is_text = {isinstance(group, str) for group in groups}
    if has_missing or len(is_text) > 1:
        raise ValueError(
            "groups must be all text or all numbers, none missing: give the rows "
            "without one a group of their own."
        )
    return groups


def operating_budgets(router, X, n_points, call):
    """Return the budgets to be tested, from unlimited to the smallest feasible one.

    Parameters
    ----------
    router : decision estimator
        With a cache for the rows.
    X, call
        Rows that only set the scale of the budgets, and the keywords of calls about
        them.
    n_points : int
        Number of finite budgets, at most. Equal ones count once.

    Returns
    -------
    ndarray
        In decreasing order, from infinity.
    """
    smallest = router.min_budget_
    if not np.isfinite(smallest):
        # The router can promise no finite budget: the only point has no budget.
        return np.array([np.inf])
    # The last argument, None, asks for no answers, only for choices and costs.
    unlimited = router.respond(X, router.make_call(np.inf, **call), None)
    largest = max(float(unlimited.cost.mean()), smallest)
    rising = np.unique(np.linspace(smallest, largest, n_points))
    budgets = np.r_[np.inf, rising[::-1]]
    # Keywords of a call may leave no plan for the small budgets.
    if call:
        return feasible_budgets(router, X, call, budgets)
    return budgets


def feasible_budgets(router, X, call, budgets):
    """Return the falling budgets up to the last one with a plan for these rows.

    The keywords of a call may exclude choices or change costs, so that no plan is as
    cheap as the cheapest one in `fit`.

    Parameters
    ----------
    router : decision estimator
    X : {array, sparse matrix, dataframe}
    call : dict
        Keywords of calls about these rows.
    budgets : ndarray
        In decreasing order. The first one is infinite, and has a plan.

    Returns
    -------
    ndarray
    """
    for k, budget in enumerate(budgets[1:], start=1):
        try:
            router.plan(X, router.make_call(budget, **call))
        except ValueError:
            return budgets[:k]
    return budgets


def collect(router, budgets, rows, *, reference, loss, from_single):
    """Call a router at all budgets, and the references, on the evidence rows.

    Parameters
    ----------
    router : decision estimator
        With a cache for the evidence rows, so that no member is called twice about a
        row.
    budgets : ndarray
        In decreasing order, from infinity.
    rows : EvidenceRows
    reference : str or fitted estimator
        Parameter of :class:`CertifiedRouter`.
    loss : Loss
    from_single : bool
        True if the path begins with the single choice that the loss is measured
        against, where there is one.

    Returns
    -------
    Evidence
    """
    if "costs" in rows.call:
        budgets = feasible_budgets(router, rows.X, rows.call, budgets)
    objective = loss.objective
    path = [_path_point(router, rows, budget, objective) for budget in budgets]
    costs_known = all(point.is_billed for point in path)
    references = _references(router, rows, reference, objective)
    reference_names = [record.name for record in references]
    first_reference = None
    if FULL in reference_names:
        first_reference = reference_names.index(FULL)
    single = None
    if from_single:
        single = _safe_choice(router, rows.call, reference)
    if single not in reference_names:
        # `single` is None, or a choice with the name "full". As a reference, "full" is
        # the estimator itself.
        single = None
    if single is not None:
        first_reference = reference_names.index(single)
        plan = router.plan_single(rows.X, single, router.make_call(**rows.call))
        single_losses = references[first_reference].losses
        # The losses of the single choice are those of the reference, so that no answers
        # are needed.
        path.insert(0, _point_of_plan(router, rows, plan, np.inf, single_losses))
    # The loss of a row that abstains lies between those of a right and of a wrong
    # answer, so that losses can differ by less than 1.
    some_abstain = can_abstain(router) or can_abstain(reference)
    return Evidence(
        budgets=np.array([point.budget for point in path]),
        losses=np.column_stack([point.losses for point in path]),
        costs=np.column_stack([point.cost for point in path]),
        abstained_share=np.array(
            [abstained(router, point.route).mean() for point in path]
        ),
        reference_losses=np.column_stack([record.losses for record in references]),
        reference_costs={record.name: record.mean_cost for record in references},
        first_reference=first_reference,
        single=single,
        groups=_rows_of_groups(rows.groups),
        exact=loss.exact and not some_abstain,
        costs_known=costs_known,
        row_counts=cache_of(router).row_counts,
        call_keywords=set(rows.call),
    )


def _path_point(router, rows, budget, objective):
    """Return the operating point of a budget on the evidence rows (`_PathPoint`)."""
    plan = router.plan(rows.X, router.make_call(budget, **rows.call))
    routed = routed_of(plan, router.answer(plan, objective.asks))
    losses = -objective.of_routed(rows.y, routed, router)
    return _point_of_plan(router, rows, plan, budget, losses)


def _point_of_plan(router, rows, plan, budget, losses):
    """Return the operating point of a plan, with the bills of the rows if given.

    Parameters
    ----------
    router : decision estimator
    rows : EvidenceRows
    plan : Plan
    budget : float
        Budget of the point.
    losses : ndarray of shape (n_rows,)
        Minus the quality of the answers.

    Returns
    -------
    _PathPoint
    """
    if rows.bills is not None:
        cost = router.bill(plan, rows.bills)
        return _PathPoint(budget, losses, plan.route, cost, is_billed=True)
    return _PathPoint(budget, losses, plan.route, plan.cost, is_billed=plan.is_billed)


def _rows_of_groups(groups):
    """Return a dict from the name of each group to the mask of its rows.

    It is empty without groups.
    """
    if groups is None:
        return {}
    return {str(group): groups == group for group in np.unique(groups)}


def _safe_choice(router, call, reference):
    """Return the name of the choice to test first, alone for all rows, or None.

    The path of operating points begins at its safe end, where one choice answers every
    row. None means that the path begins with the plan without a budget.

    For the reference "best" it is the choice that was best on the rows of `fit`, which
    are not evidence.

    Parameters
    ----------
    router : decision estimator
    call : dict
        Keywords of calls about the evidence rows.
    reference : str or fitted estimator
    """
    if call.get("exclude") is not None or call.get("allowed") is not None:
        # The choices of the rows are restricted: perhaps no choice can answer all rows.
        return None
    # All choices except the one that abstains.
    models = models_of(router)
    names = router.single_choices_
    # The best of the models is only of use if each model can answer all rows alone.
    if reference == "best" and names == models and hasattr(router, "mean_quality_"):
        # If a choice abstains, `mean_quality_` has one more entry, the last.
        means = np.asarray(router.mean_quality_)[: len(names)]
        # A mean is NaN if the log has no outcome of the choice. It is never the best.
        known_means = np.where(np.isnan(means), -np.inf, means)
        return names[int(np.argmax(known_means))]
    if isinstance(reference, str) and reference in models:
        return reference
    return None


def _references(router, rows, reference, objective):
    """Return a list of the references that the loss is measured against.

    Parameters
    ----------
    router : decision estimator
    rows : EvidenceRows
    reference : str or fitted estimator
        "best" stands for each single choice.
    objective : Objective
        Computes the quality of answers.

    Returns
    -------
    list of Reference
    """
    names = router.single_choices_
    if reference != "best":
        candidates = [reference]
    elif names:
        # The best choice is not known: each single choice is a reference.
        candidates = names
    else:
        candidates = ["full"]
    references = []
    for candidate in candidates:
        name, routed = ask_reference(
            router,
            candidate,
            X=rows.X,
            call=rows.call,
            objective=objective,
            bills=rows.bills,
        )
        if isinstance(candidate, str) and candidate in names:
            quality = objective.of_single(rows.y, routed, router)
        elif routed.route is None:
            # The candidate is an estimator that does not route.
            quality = objective.of(rows.y, routed.y_pred)
        else:
            # A candidate that is a text is "full" here: the router without a budget.
            routing_model = router if isinstance(candidate, str) else candidate
            quality = objective.of_routed(rows.y, routed, routing_model)
        references.append(Reference(name, -quality, float(routed.cost.mean())))
    return references


def check_reference(reference, names, objective):
    """Raise an error if a reference cannot answer, before a model is called.

    Parameters
    ----------
    reference : str or fitted estimator
    names : list of str
        Names of the single choices.
    objective : Objective
        Its `asks` is the method of the reference that is called.
    """
    if isinstance(reference, str):
        if reference not in ("best", "full", *names):
            raise ValueError(
                f"reference={reference!r} is neither 'best', 'full' nor one of the "
                f"single choices {names!r}. A fitted estimator is allowed as well."
            )
        return
    if isinstance(reference, type) or not hasattr(reference, objective.asks):
        raise ValueError(
            f"reference={reference!r} must be a fitted estimator with the method "
            f"{objective.asks}, or a name. Give such an estimator, or 'best'."
        )
    if isinstance(reference, BaseEstimator):
        check_is_fitted(reference)


def ask_reference(router, reference, *, X, call, objective, bills=None):
    """Return the name of a reference, and its answers to all rows.

    Parameters
    ----------
    router : decision estimator
        With a cache for the rows.
    reference : str or fitted estimator
        "full", the name of a single choice, or an estimator.
    X, call
        The rows, and the keywords of calls about them.
    objective : Objective
    bills : array-like of shape (n_rows, n_choices), default=None
        As in `EvidenceRows`.

    Returns
    -------
    name : str
    routed : Routed
        An estimator that does not route has a `route` of None, and NaN costs: they are
        not known.
    """
    if not isinstance(reference, str):
        return _ask_estimator(router, reference, X, objective)
    if reference == "full":
        name = FULL
        plan = router.plan(X, router.make_call(np.inf, **call))
    else:
        name = reference
        plan = router.plan_single(X, reference, router.make_call(**call))
    routed = routed_of(plan, router.answer(plan, objective.asks))
    if bills is not None:
        # Bills replace the expected costs.
        routed.cost = router.bill(plan, bills)
    return name, routed


def _ask_estimator(router, reference, X, objective):
    """Return the name of an estimator as a reference, and its answers to all rows.

    Parameters
    ----------
    router : decision estimator
        Its cache counts the rows that the reference is called on.
    reference : fitted estimator
    X : {array, sparse matrix, dataframe} of shape (n_rows, n_features)
    objective : Objective
        Its `asks` is the method of the reference that is called.

    Returns
    -------
    name : str
    routed : Routed
        As in :func:`ask_reference`.
    """
    name = type(reference).__name__
    n_rows = num_samples(X)
    cache_of(router).count_rows(name, n_rows)
    # `predict_routed` returns answers, and no probabilities.
    if hasattr(reference, "predict_routed") and objective.asks == "predict":
        with note_failure(name, n_rows, "predict_routed"):
            return name, reference.predict_routed(X)
    with note_failure(name, n_rows, objective.asks):
        answers = np.asarray(on_host(getattr(reference, objective.asks)(X)))
        if objective.asks == "predict_proba":
            # The columns are put in the order of the router's classes.
            proba = check_probabilities(answers, name)
            check_known_labels(reference.classes_, objective.classes, "classes_")
            answers = align_by_class(proba, reference.classes_, objective.classes)
    # There is no route, and the costs are not known.
    return name, Routed(answers, None, np.full(n_rows, np.nan))
