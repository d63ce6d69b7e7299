"""Certificate for a batch of known rows, from answers bought for a few of them.

1. The reference's answers are bought for rows that are drawn at random, the *labelled*
   rows.
2. The path of the router is followed from its safe end, as long as a test certifies its
   points on the labelled rows (:func:`certify_path`).
3. The other rows are answered at the last certified point.
"""

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
    check_reference,
    feasible_budgets,
    operating_budgets,
)
from skroute.certified._loss import Loss, loss_of
from skroute.certified._selection import advice_on_loss
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
from skroute.utils._tables import Column, Table
from skroute.utils._tolerances import COUNT_ROUNDING, LIMIT_ROOM
from skroute.utils._typing import NDArray

# Number of rows that set the scale of the tested budgets: the largest finite budget is
# the mean cost of these rows without a budget. It is small, because models may be
# called on these rows in addition.
_N_SCALE_ROWS = 10

# Route of a row whose answer is that of a reference which is not a choice of the
# router.
_NO_CHOICE = -1


class CertifiedBatch(NamedTuple):
    """Answered rows of a batch: the result of :meth:`CertifiedRouter.certify_batch`.

    Attributes
    ----------
    y_pred : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        Answers.
    route : ndarray of shape (n_rows,), dtype=int64
        Choice of each row, by position. -1 if the answer is that of a reference which
        is not a choice of the router.
    cost : ndarray of shape (n_rows,)
        Cost of each row.
    labelled : ndarray of shape (n_labels,), dtype=int64
        Positions of the rows whose answers were bought, in the order drawn.
    certificate : Certificate
        The guarantee.
    """

    y_pred: NDArray[Any]
    route: NDArray[np.int64]
    cost: NDArray[np.float64]
    labelled: NDArray[np.int64]
    certificate: Certificate

    def __repr__(self) -> str:
        return (
            f"CertifiedBatch: {len(self.route):,} rows, of which "
            f"{len(self.labelled):,} have the answer of the reference\n"
            f"{self.certificate!r}"
        )

    def to_frame(self) -> Any:
        """Return the rows as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row for each row of the batch, with the columns ``y_pred`` (the answer;
            a list if it has several columns), ``route``, ``cost`` and ``labelled``,
            which is True if the answer is that of the reference.
        """
        is_labelled = np.zeros(len(self.route), dtype=bool)
        is_labelled[self.labelled] = True
        columns = [
            Column("y_pred", np.asarray(self.y_pred).tolist()),
            Column("route", self.route),
            Column("cost", self.cost),
            Column("labelled", is_labelled),
        ]
        return Table("CertifiedBatch", columns).to_frame()


class RowSet(NamedTuple):
    """Some rows of the batch, and a router that has a cache for them.

    Attributes
    ----------
    router : decision estimator
        Its cache is for these rows only.
    X : {array, sparse matrix, dataframe} of shape (n_rows, n_features)
    call : dict
        Keywords of calls of the router about these rows.
    """

    router: Any
    X: Any
    call: dict[str, Any]

    def plan(self, budget):
        """Return the plan of the rows at a budget."""
        return self.router.plan(self.X, self.router.make_call(budget, **self.call))

    def respond(self, budget):
        """Return the answers to the rows at a budget (`Routed`)."""
        return self.router.respond(self.X, self.router.make_call(budget, **self.call))


class PathResult(NamedTuple):
    """Result of the test of operating points along a path of budgets.

    Attributes
    ----------
    last : int or None
        Index of the last certified budget. None if no budget is certified.
    mean_loss : float
        Mean loss of the labelled rows at that budget, or at the first one if none is
        certified.
    loss_upper : float
        Upper bound of the loss of the finished batch at the same budget.
    extra_costs : ndarray of shape (n_labelled,)
        Cost, for each labelled row, of the answers that the test asked the router for
        in addition to the bought one. It is an upper bound, because models may share
        costs.
    """

    last: int | None
    mean_loss: float
    loss_upper: float
    extra_costs: NDArray[np.float64]


@dataclass(frozen=True)
class BatchTest:
    """Test of the promise that the mean loss of a finished batch is at most `max_loss`.

    It is hypergeometric, and exact, if losses are 0 and 1. Otherwise it is by betting.

    Attributes
    ----------
    n_rows, n_labels : int
        Number of rows of the batch, and of labelled rows.
    max_loss : float
        Mean loss of the finished batch that is promised.
    level : float
        Largest probability with which the promise may not hold.
    loss : Loss
        Loss of an answer against the bought one.
    """

    n_rows: int
    n_labels: int
    max_loss: float
    level: float
    loss: Loss

    @cached_property
    def n_allowed(self):
        """Largest number of rows that may differ from the reference, as promised."""
        n_allowed = int(np.floor(self.max_loss * self.n_rows + COUNT_ROUNDING))
        return min(n_allowed, self.n_rows)

    @cached_property
    def n_tolerated(self):
        """Largest number of labelled rows that may differ from the reference in a test.

        It is -1 if the test cannot pass, even if all answers agree with the labels.
        """
        return tolerated_disagreements(
            self.n_rows, self.n_labels, self.n_allowed, self.level
        )

    def losses(self, bought, y_pred):
        """Return the loss of each labelled row against the bought answer.

        A ValueError is raised if a loss is outside of its range.

        Parameters
        ----------
        bought, y_pred : ndarray of shape (n_labels,) or (n_labels, n_outputs)
            Answers of the reference, and of the router.

        Returns
        -------
        ndarray of shape (n_labels,)
        """
        losses = self.loss.against(bought, y_pred)
        if losses.min() < 0 or losses.max() > self.loss.range * (1 + LIMIT_ROOM):
            raise ValueError(
                "The loss of an answer against the bought one must lie between 0 and "
                f"loss_range={self.loss.range!r}, got {losses.min():.6g} to "
                f"{losses.max():.6g}."
            )
        return losses

    def passes(self, disagrees, losses):
        """Return True if the test certifies an operating point.

        Parameters
        ----------
        disagrees : ndarray of shape (n_labels,), dtype=bool
            Labelled rows that disagree at this point, or at one before it.
        losses : ndarray of shape (n_labels,)
            Losses of the labelled rows at this point.
        """
        if self.loss.exact:
            # With `n_tolerated` of -1, no point passes.
            return disagrees.sum() <= self.n_tolerated
        # No mean loss exceeds the range. A promise of the range needs no test.
        if self.max_loss >= self.loss.range:
            return True
        p_value = mean_p_value(
            losses,
            self.max_loss,
            bounds=(0.0, self.loss.range),
            n_population=self.n_rows,
        )
        return p_value <= self.level

    def loss_upper(self, disagrees, losses):
        """Return an upper bound of the mean loss of the batch at an operating point.

        Parameters
        ----------
        disagrees : ndarray of shape (n_labels,), dtype=bool
            Labelled rows that disagree at this point, or at one before it. Used if
            losses are 0 and 1.
        losses : ndarray of shape (n_labels,)
            Losses of the labelled rows at this point. Used otherwise.
        """
        if self.loss.exact:
            return self.smallest_max_loss(int(disagrees.sum()))
        return mean_upper_bound(
            losses,
            confidence=1 - self.level,
            bounds=(0.0, self.loss.range),
            n_population=self.n_rows,
        )

    def smallest_max_loss(self, n_disagreements):
        """Return the smallest `max_loss` that can be promised after some wrong answers.

        It is a share of the rows of the batch. `n_disagreements` is the number of
        labelled rows whose answers differ from the label.
        """
        n_allowed = smallest_allowed(
            self.n_rows, self.n_labels, n_disagreements, self.level
        )
        return n_allowed / self.n_rows


def certify_path(labelled_rows, budgets, bought, test, *, from_full):
    """Test falling budgets on the labelled rows, until one is not certified.

    In the exact test a row counts from the first budget on at which it disagrees, so
    that the count never falls along the path. One test then serves all budgets. Proof:
    let the test tolerate t labelled rows that disagree, and let the promise allow u
    unlabelled rows that disagree. Order all rows of the batch by the first budget at
    which they disagree, and mark the first u + 1 + t. Neither the budgets nor this
    order depend on which rows are labelled. If a certified budget breaks the promise,
    at most t of the marked rows are labelled. The test makes sure that this has a
    probability of at most its level.

    Parameters
    ----------
    labelled_rows : RowSet
        The rows whose answers were bought from the reference.
    budgets : ndarray
        In decreasing order, from infinity.
    bought : Routed
        Answers of the reference to the labelled rows. All routes are `_NO_CHOICE` if
        the reference is not a choice of the router.
    test : BatchTest
    from_full : bool
        True if the reference is the plan without a budget. The first point then needs
        no test.

    Returns
    -------
    PathResult
    """
    n_labelled = len(bought.route)
    n_choices = len(labelled_rows.router.choices_)
    row_index = np.arange(n_labelled)
    # Labelled rows with an answer that differs from the label, at this budget or at one
    # before it.
    disagrees = np.zeros(n_labelled, dtype=bool)
    # Cost of the answers that each row pays in addition to the bought one.
    extra_costs = np.zeros(n_labelled)
    # Choices that are paid for each row: an answer is paid once.
    is_paid = np.zeros((n_labelled, n_choices), dtype=bool)
    has_choice = bought.route != _NO_CHOICE
    is_paid[row_index[has_choice], bought.route[has_choice]] = True
    # Index of the last budget that is certified. None: no budget is.
    last = None
    for point, budget in enumerate(budgets):
        routed = labelled_rows.respond(budget)
        is_new = ~is_paid[row_index, routed.route]
        extra_costs = extra_costs + np.where(is_new, routed.cost, 0.0)
        is_paid[row_index, routed.route] = True
        losses = test.losses(bought.y_pred, routed.y_pred)
        disagrees = disagrees | (losses > 0)
        is_first = point == 0
        needs_no_test = from_full and is_first
        is_certified = needs_no_test or test.passes(disagrees, losses)
        # Losses are reported for the last certified point. If no point is certified,
        # they are reported for the first one.
        if is_certified or is_first:
            reported_disagrees = disagrees
            reported_losses = losses
        if not is_certified:
            break
        last = point
    if from_full and last == 0:
        # The reference answers all rows.
        loss_upper = 0.0
    else:
        loss_upper = test.loss_upper(reported_disagrees, reported_losses)
    return PathResult(last, float(reported_losses.mean()), loss_upper, extra_costs)


def certify_batch(certified, router, X, *, n_labels, label_cost, call):
    """Answer a batch with a certificate, see :meth:`CertifiedRouter.certify_batch`.

    Parameters
    ----------
    certified : CertifiedRouter
        Its parameters are those of the promise.
    router : decision estimator
        Fitted.
    X, n_labels, label_cost
        Parameters of the method `certify_batch`. A `label_cost` of None takes the
        reference's costs.
    call : dict
        Keywords of calls of the router about all rows.

    Returns
    -------
    CertifiedBatch
    """
    n_rows = num_samples(X)
    # There are no targets (None): the answers of the reference are the truth.
    test = BatchTest(
        n_rows=n_rows,
        n_labels=n_labels,
        max_loss=certified.max_loss,
        level=1 - certified.confidence,
        loss=loss_of(router, None, certified.loss, certified.loss_range),
    )
    _check_parameters(certified, router, test, label_cost)
    _check_enough_labels(test)
    budget_limit = check_budget(certified.budget)
    drawn = _draw_rows(n_rows, n_labels, certified.random_state)
    scale_set = _select_rows(router, X, call, drawn.scale)
    labelled_set = _select_rows(router, X, call, drawn.labelled)
    # None if all rows are labelled.
    other_set = None
    if len(drawn.others):
        other_set = _select_rows(router, X, call, drawn.others)

    _check_costs_known(scale_set, budget_limit)
    budgets = operating_budgets(
        scale_set.router, scale_set.X, certified.n_points, scale_set.call
    )
    if "costs" in call:
        # Rows that have costs of their own may cost more than the smallest budgets.
        budgets = _drop_budgets_without_plan(labelled_set, budgets)
        if other_set is not None:
            budgets = _drop_budgets_without_plan(other_set, budgets)

    reference_name, bought = _buy_answers(
        labelled_set, certified.reference, label_cost, test.loss.objective
    )
    _check_answers(bought, router, test.loss)
    if np.ndim(bought.y_pred) == 2:
        # For answers with several columns, the unit of the loss depends on the answers.
        # So does `loss.exact`: losses of 0 and 1 have an exact test.
        loss = loss_of(router, bought.y_pred, certified.loss, certified.loss_range)
        test = replace(test, loss=loss)
    # The reference may be the router without a budget. The path starts at its answers.
    from_full = reference_name == FULL
    path = certify_path(labelled_set, budgets, bought, test, from_full=from_full)
    if path.last is None:
        # No budget is certified.
        raise _loss_error(path, test)

    # All other rows are answered at this budget.
    operating_budget = float(budgets[path.last])
    # A labelled row has the reference's answer. It also pays for the other answers that
    # the path asked for.
    labelled_answers = replace(bought, cost=bought.cost + path.extra_costs)
    _check_batch_cost(
        labelled_answers, other_set, operating_budget, budget_limit, test.max_loss
    )
    if other_set is None:
        # All rows are labelled.
        answers = _in_order(drawn.labelled, labelled_answers)
    else:
        other_answers = other_set.respond(operating_budget)
        answers = _join_in_order(drawn, labelled_answers, other_answers)
    certificate = _make_certificate(
        test,
        path,
        reference=reference_name,
        reference_cost=float(bought.cost.mean()),
        budget_limit=budget_limit,
        operating_budget=operating_budget,
        cost=float(answers.cost.mean()),
        confidence=float(certified.confidence),
    )
    warn_of_no_saving(certificate)
    return CertifiedBatch(
        y_pred=answers.y_pred,
        route=answers.route,
        cost=answers.cost,
        labelled=drawn.labelled,
        certificate=certificate,
    )


class _DrawnRows(NamedTuple):
    """Positions in the batch of the rows that were drawn, and of all others.

    Attributes
    ----------
    scale : ndarray of int
        Rows that set the scale of the budgets. They may be labelled rows as well.
    labelled : ndarray of shape (n_labels,), dtype=int64
        Rows whose answers are bought, in the order drawn.
    others : ndarray of shape (n_rows - n_labels,), dtype=int64
        All rows that are not labelled, in the order of the batch.
    """

    scale: NDArray[np.int64]
    labelled: NDArray[np.int64]
    others: NDArray[np.int64]


def _draw_rows(n_rows, n_labels, random_state):
    """Draw the rows that set the scale of the budgets, and the labelled rows.

    Both are drawn from all rows, independently: the budgets must not depend on which
    rows are labelled.

    Parameters
    ----------
    n_rows, n_labels : int
    random_state : int, RandomState instance or None

    Returns
    -------
    _DrawnRows
    """
    rng = check_random_state(random_state)
    scale = np.sort(rng.permutation(n_rows)[:_N_SCALE_ROWS])
    labelled = rng.permutation(n_rows)[:n_labels]
    others = np.delete(np.arange(n_rows), labelled)
    return _DrawnRows(scale, labelled, others)


def _select_rows(router, X, call, rows):
    """Return some rows of the batch as a `RowSet`, whose router has a new cache.

    Parameters
    ----------
    router : decision estimator
    X : {array, sparse matrix, dataframe}
        All rows of the batch.
    call : dict
        Keywords of calls about all rows.
    rows : ndarray of int
        Positions of the rows to select.
    """
    return RowSet(
        with_cache(router),
        _safe_indexing(X, rows),
        check_method_params(X, call, indices=rows),
    )


def _drop_budgets_without_plan(row_set, budgets):
    """Return budgets without those that are too small for a plan of the rows.

    Parameters
    ----------
    row_set : RowSet
    budgets : ndarray
        Falling.
    """
    return feasible_budgets(row_set.router, row_set.X, row_set.call, budgets)


def _buy_answers(labelled_set, reference, label_cost, objective):
    """Return the name of the reference, and its answers to the labelled rows.

    Parameters
    ----------
    labelled_set : RowSet
    reference : str or fitted estimator
        "full", the name of a single choice, or an estimator.
    label_cost : float or None
        Cost of a label. None takes the cost of the reference.
    objective : Objective
        Its `asks` is the kind of answers.

    Returns
    -------
    name : str
    bought : Routed
        All routes are `_NO_CHOICE` if the reference is an estimator.
    """
    name, routed = ask_reference(
        labelled_set.router,
        reference,
        X=labelled_set.X,
        call=labelled_set.call,
        objective=objective,
    )
    n_labels = len(routed.cost)
    route = routed.route
    if not isinstance(reference, str):
        # The reference is an estimator. Its choices are not those of this router.
        route = np.full(n_labels, _NO_CHOICE)
    cost = routed.cost
    if label_cost is not None:
        cost = np.full(n_labels, float(label_cost))
    return name, Routed(np.asarray(routed.y_pred), route, cost)


def _in_order(rows, answers):
    """Return answers in the order of the batch.

    Parameters
    ----------
    rows : ndarray of int
        Position in the batch of each answer.
    answers : Routed

    Returns
    -------
    Routed
    """
    order = np.argsort(rows)
    return Routed(answers.y_pred[order], answers.route[order], answers.cost[order])


def _join_in_order(drawn, labelled_answers, other_answers):
    """Join the answers to labelled and other rows, in the order of the batch.

    `drawn` is a `_DrawnRows`, which has the positions of the labelled and of the other
    rows. The answers, and the result, are `Routed`.
    """
    y_pred = np.concatenate([labelled_answers.y_pred, other_answers.y_pred])
    route = np.concatenate([labelled_answers.route, other_answers.route])
    cost = np.concatenate([labelled_answers.cost, other_answers.cost])
    rows = np.r_[drawn.labelled, drawn.others]
    return _in_order(rows, Routed(y_pred, route, cost))


def _make_certificate(
    test,
    path,
    *,
    reference,
    reference_cost,
    budget_limit,
    operating_budget,
    cost,
    confidence,
):
    """Return the certificate of a finished batch.

    Parameters
    ----------
    test : BatchTest
    path : PathResult
    reference : str
        Name of the reference.
    reference_cost : float
        Mean cost of the answers of the reference.
    budget_limit : float
        Budget of the router. Infinity promises no cost.
    operating_budget : float
        Budget that the other rows were answered at.
    cost : float
        Mean cost of the batch.
    confidence : float

    Returns
    -------
    Certificate
    """
    return Certificate(
        promised=True,
        max_loss=float(test.max_loss),
        budget=budget_limit if np.isfinite(budget_limit) else None,
        confidence=confidence,
        reference=reference,
        n_rows=test.n_labels,
        operating_budget=operating_budget,
        loss=path.mean_loss,
        cost=cost,
        loss_upper=path.loss_upper,
        # The cost of a finished batch is known, and is its own upper bound.
        cost_upper=cost,
        reference_cost=reference_cost,
        groups=[],
        assumption=f"the {test.n_labels} labelled rows were drawn at random",
        unit=test.loss.unit,
        n_population=test.n_rows,
    )


# Checks before a member is called -----------------------------------------------------


def _check_parameters(certified, router, test, label_cost):
    """Raise a ValueError if no batch can be certified with these parameters.

    Parameters
    ----------
    certified : CertifiedRouter
    router : decision estimator
    test : BatchTest
    label_cost : float or None
        None stands for the cost of the reference.
    """
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
    n_labels = test.n_labels
    is_whole = isinstance(n_labels, Integral) and not isinstance(n_labels, bool)
    if not is_whole or n_labels < 1:
        raise ValueError(
            f"n_labels must be a whole number from 1 up, got {n_labels!r}."
        )
    if n_labels > test.n_rows:
        raise ValueError(
            f"n_labels={n_labels!r} is more than the {test.n_rows} rows of the batch."
        )
    if test.loss.objective.asks != "predict":
        raise ValueError(
            "The loss of the wrapped router is one of probabilities "
            f"({test.loss.unit}), and a batch compares answers: give loss and "
            "loss_range."
        )
    _check_reference(certified.reference, router.single_choices_, label_cost)
    if not isinstance(certified.reference, str):
        check_reference(certified.reference, [], test.loss.objective)


def _check_reference(reference, single_choices, label_cost):
    """Raise a ValueError if a reference cannot answer rows, or its cost is unknown.

    Parameters
    ----------
    reference : str or fitted estimator
        "full" is the router without a budget. Other texts are names of choices.
    single_choices : list of str
        Choices of the router that can answer all rows.
    label_cost : float or None
        None stands for the cost of the reference.
    """
    is_name = isinstance(reference, str)
    if is_name and reference not in ("full", *single_choices):
        single = ""
        if single_choices:
            single = f"one of the single choices {single_choices!r}, "
        raise ValueError(
            f"reference={reference!r} cannot answer a batch: it must be 'full', "
            f"{single}or a fitted estimator. Which choice is best is not known without "
            "labels."
        )
    if label_cost is not None:
        check_costs([label_cost], ["an answer"], name="label_cost")
    elif not is_name and not hasattr(reference, "predict_routed"):
        raise ValueError(
            "label_cost must be given, 0 if answers are free: what an answer of the "
            "reference costs is not known."
        )


def _check_enough_labels(test):
    """Raise a ValueError if no outcome of the labels can certify the batch."""
    # `n_tolerated` is -1 if the labels are too few even when all answers agree.
    # Only the exact test has such a number.
    if not test.loss.exact or test.n_tolerated >= 0:
        return
    needed = labels_needed(test.n_rows, test.n_allowed, test.level)
    raise ValueError(
        f"n_labels={test.n_labels} can promise no max_loss={test.max_loss!r} on a "
        f"batch of {test.n_rows} rows, even if all answers agree: it takes at least "
        f"{needed:.0f} labels. The smallest loss that {test.n_labels} can promise is "
        f"{test.smallest_max_loss(0):.3g}."
    )


# Checks of costs and answers ----------------------------------------------------------


def _check_costs_known(scale_set, budget_limit):
    """Raise a ValueError if a budget is set and costs are known only after a call.

    Parameters
    ----------
    scale_set : RowSet
        Rows on which bills are compared with the costs that decide.
    budget_limit : float
        Infinity promises no cost.
    """
    router = scale_set.router
    unlimited = router.make_call(np.inf, **scale_set.call)
    # The last argument, None, asks for no answers, only for choices and costs.
    routed = router.respond(scale_set.X, unlimited, None)
    # The costs are known before a call if the rows are decided by the costs that they
    # are billed.
    costs_are_known = np.array_equal(routed.cost, routed.quoted_cost)
    if np.isfinite(budget_limit) and not costs_are_known:
        raise ValueError(
            f"budget={budget_limit!r} cannot be held: what calls of the wrapped "
            "estimator cost is known only after them. Leave it out; max_loss is "
            "promised without it."
        )


def _check_answers(bought, router, loss):
    """Raise a ValueError if the bought answers are names of choices, not labels.

    Parameters
    ----------
    bought : Routed
    router : decision estimator
    loss : Loss
    """
    has_labels = hasattr(router, "classes_")
    if loss.objective.name != "accuracy" or has_labels:
        return
    answers = {str(answer) for answer in np.ravel(bought.y_pred)}
    if answers <= set(router.choices_):
        raise ValueError(
            "The answers are names of choices, so that two different answers may mean "
            "the same: certify a router that has the models, or give a loss."
        )


def _loss_error(path, test):
    """Return a ValueError with the message that `max_loss` cannot be promised.

    The message has the smallest loss that can be promised.

    Parameters
    ----------
    path : PathResult
        No budget of it is certified.
    test : BatchTest
    """
    if test.loss.exact:
        needed = labels_needed(test.n_rows, test.n_allowed, test.level, path.mean_loss)
    elif path.mean_loss >= test.max_loss:
        # No number of labels is enough.
        needed = np.inf
    else:
        # There is no forecast for labels drawn without replacement. The distance of
        # the bound from the mean falls with the root of the number of labels, so that
        # four times as many labels halve it.
        needed = min(4 * test.n_labels, test.n_rows)
    advice = advice_on_loss(
        test.max_loss,
        smallest=path.loss_upper,
        needed=needed,
        mean_loss=path.mean_loss,
        unit="labels",
    )
    return ValueError(
        f"max_loss={test.max_loss!r} cannot be promised by {test.n_labels} labels on a "
        f"batch of {test.n_rows} rows. {advice}"
    )


def _check_batch_cost(
    labelled_answers, other_set, operating_budget, budget_limit, max_loss
):
    """Raise a ValueError if the batch costs more than the budget.

    The costs of the other rows are those of their plan, before they are answered.

    Parameters
    ----------
    labelled_answers : Routed
    other_set : RowSet or None
        None if all rows are labelled.
    operating_budget : float
        Budget that the other rows will be answered at.
    budget_limit : float
        Largest mean cost. Infinity promises no cost.
    max_loss : float
        For the message.
    """
    if not np.isfinite(budget_limit):
        return
    costs = labelled_answers.cost
    if other_set is not None:
        costs = np.r_[costs, other_set.plan(operating_budget).cost]
    if not affords(budget_limit, costs.mean()):
        raise ValueError(
            f"budget={budget_limit!r} is below the {costs.mean():.17g} per row that "
            f"this batch costs at the cheapest point that keeps max_loss={max_loss!r}, "
            "labels included: raise max_loss or budget, or lower n_labels."
        )
