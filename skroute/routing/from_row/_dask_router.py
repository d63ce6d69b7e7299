"""Decisions over Dask collections, block by block, under one budget."""

import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_regressor
from sklearn.utils.validation import check_is_fitted

from skroute.base import Plan, Routed, check_affordable
from skroute.distributed import solve_assignment
from skroute.distributed._blocks import is_collection, row_blocks
from skroute.ledgers._books import check_amount
from skroute.routing.parts._member_router import MemberRouter
from skroute.routing.parts._requests import PricedRequests
from skroute.utils._compat import num_samples
from skroute.utils._optional import import_optional


class EntryType(NamedTuple):
    """Shape and dtype of the entry of one row: an answer, a choice or a cost.

    Dask must know them before anything is computed.

    Attributes
    ----------
    shape : tuple of int
        ``()`` for a single number or label.
    dtype : numpy.dtype
    """

    shape: tuple
    dtype: np.dtype


CHOICE = EntryType((), np.dtype(np.int64))
COST = EntryType((), np.dtype(np.float64))
# A label of any type, or None for a row that abstains.
ANSWER_OR_NONE = EntryType((), np.dtype(object))


class RoutedBlocks(NamedTuple):
    """Lazy decisions for the blocks of rows of a Dask collection.

    Attributes
    ----------
    tasks : list of Delayed
        One for each block. It computes the `Routed` of the rows of the block.
    sizes : tuple of int or float
        Number of rows of each block. NaN if it is not known.
    """

    tasks: list
    sizes: tuple

    def field(self, name, entry):
        """Return a field of the `Routed` of all blocks as one Dask array.

        Parameters
        ----------
        name : str
            The field.
        entry : EntryType
            Shape and dtype of its entries.
        """
        from dask import array, delayed

        blocks = []
        for task, size in zip(self.tasks, self.sizes):
            values = delayed(getattr)(task, name)
            block = array.from_delayed(
                values, shape=(size, *entry.shape), dtype=entry.dtype
            )
            blocks.append(block)
        return array.concatenate(blocks)


class DaskRouter:
    """A fitted decision estimator over Dask arrays and data frames.

    It has the methods of the estimator, and their results are lazy Dask arrays. When a
    result is computed, each model is called on the rows routed to it, block by block,
    by any scheduler of Dask. All rows together may be more than one memory can hold.

    Parameters
    ----------
    estimator : estimator
        Any fitted decision estimator. It goes to every worker with the tasks.

    policy : {"online", "batch"}, default=None
        ``"online"`` decides each row as the estimator does, at the price that `fit` has
        set: the budget holds on average. ``"batch"`` makes the budget a hard cap over
        all rows of all blocks. A few passes over the estimates find one price for them
        (:func:`~skroute.distributed.solve_assignment`). The passes run when a method is
        called, and not when its result is computed. Only :class:`BudgetRouter` and
        :class:`OccamRouterClassifier` with fixed costs can have a cap. None takes the
        policy of the estimator.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If it is no decision estimator, or if `policy` is ``"batch"`` and the estimator
        asks a model before it decides.

    See Also
    --------
    skroute.metrics.accuracy_cost_curve : It takes Dask collections too.

    Notes
    -----
    Ties are mixed within each block: equal rows that are tied at the price are divided
    in each block that contains them. If a tie must not depend on the division into
    blocks, give ``request_id``, a Dask array in the blocks of X.

    There is no `score`. For decisions made online,
    ``accuracy_cost_curve(estimator, X, y, [budget])`` returns score and cost over the
    blocks. For a cap over all rows, compare the answers with the truth, block by block.

    A fit on Dask's workers uses joblib: ``with joblib.parallel_backend("dask")`` around
    `fit`, with ``n_jobs=-1``.

    Examples
    --------
    >>> import dask.array as da  # doctest: +SKIP
    >>> rows = da.from_array(X, chunks=(100_000, -1))  # doctest: +SKIP
    >>> routed = DaskRouter(router).predict_routed(rows, budget=2.2)  # doctest: +SKIP
    >>> routed.cost.mean().compute()  # doctest: +SKIP
    2.19
    """

    def __init__(self, estimator: Any, *, policy: str | None = None):
        if not hasattr(estimator, "predict_routed"):
            raise TypeError(
                "estimator must be a fitted decision estimator (one with "
                f"predict_routed), got {type(estimator).__name__}."
            )
        check_is_fitted(estimator)
        if policy not in (None, "online", "batch"):
            raise ValueError(
                f'policy must be "online", "batch" or None, got {policy!r}.'
            )
        if policy is None:
            policy = getattr(estimator, "policy", "online")
        self.estimator = estimator
        self.policy = policy
        if policy == "batch":
            # This raises an error if the estimator cannot decide under a cap.
            _policy_for_cap(estimator)

    def __repr__(self):
        return f"DaskRouter({self.estimator!r}, policy={self.policy!r})"

    def predict_routed(
        self,
        X: Any,
        budget: float | None = None,
        *,
        budget_total: float | None = None,
        **call: Any,
    ) -> Routed:
        """Return answers, choices and costs, lazily.

        Parameters
        ----------
        X : dask array or data frame of shape (n_samples, n_features)
            The rows. The blocks of an array are its chunks along the first axis.

        budget : float, default=None
            As in ``estimator.predict_routed``.

        budget_total : float, default=None
            Hard cap on the sum of the costs of all rows, in place of `budget`. The rows
            are counted in the first pass. It needs ``policy="batch"``. None takes the
            mean `budget`.

        **call : keyword arguments
            Further keywords of ``estimator.predict_routed``. A parameter with one entry
            per row is a Dask collection in the blocks of X.

        Returns
        -------
        Routed
            Its fields are Dask arrays. If all are computed together, each model is
            called once for each block. Expected quality and cost are None.

        Raises
        ------
        ValueError
            If `budget` and `budget_total` are both given, if `budget_total` is given
            with ``policy="online"``, or if not even the cheapest choices fit.
        """
        blocks = self._route_blocks(
            X, "predict", budget=budget, budget_total=budget_total, call=call
        )
        return Routed(
            y_pred=blocks.field("y_pred", self._answer_type("predict")),
            route=blocks.field("route", CHOICE),
            cost=blocks.field("cost", COST),
        )

    def predict(
        self,
        X: Any,
        budget: float | None = None,
        *,
        budget_total: float | None = None,
        **call: Any,
    ) -> Any:
        """Return answers, lazily: ``predict_routed(X).y_pred``.

        Parameters
        ----------
        X, budget, budget_total, **call
            As in `predict_routed`.

        Returns
        -------
        dask.array.Array of shape (n_samples,) or (n_samples, n_labels)
            The answers, one for each row.
        """
        blocks = self._route_blocks(
            X, "predict", budget=budget, budget_total=budget_total, call=call
        )
        return blocks.field("y_pred", self._answer_type("predict"))

    def predict_proba(
        self,
        X: Any,
        budget: float | None = None,
        *,
        budget_total: float | None = None,
        **call: Any,
    ) -> Any:
        """Return class probabilities, lazily.

        Parameters
        ----------
        X, budget, budget_total, **call
            As in `predict_routed`.

        Returns
        -------
        dask.array.Array of shape (n_samples, n_classes)
            Probabilities of the classes.
        """
        # The access raises an AttributeError if the estimator has no probabilities.
        _ = self.estimator.predict_proba
        blocks = self._route_blocks(
            X, "predict_proba", budget=budget, budget_total=budget_total, call=call
        )
        return blocks.field("y_pred", self._answer_type("predict_proba"))

    def route(
        self,
        X: Any,
        budget: float | None = None,
        *,
        budget_total: float | None = None,
        **call: Any,
    ) -> Any:
        """Return choices, lazily and without answering.

        Parameters
        ----------
        X, budget, budget_total, **call
            As in `predict_routed`.

        Returns
        -------
        dask.array.Array of shape (n_samples,), dtype=int64
            Index into ``estimator.choices_``.
        """
        blocks = self._route_blocks(
            X, response=None, budget=budget, budget_total=budget_total, call=call
        )
        return blocks.field("route", CHOICE)

    def predict_cost(
        self,
        X: Any,
        budget: float | None = None,
        *,
        budget_total: float | None = None,
        **call: Any,
    ) -> Any:
        """Return the cost of `predict` for each row, lazily and without answering.

        Parameters
        ----------
        X, budget, budget_total, **call
            As in `predict_routed`.

        Returns
        -------
        dask.array.Array of shape (n_samples,), dtype=float64
            The cost of each row.
        """
        blocks = self._route_blocks(
            X, response=None, budget=budget, budget_total=budget_total, call=call
        )
        return blocks.field("cost", COST)

    # One task for each block ----------------------------------------------------------

    def _answer_type(self, response):
        """Return shape and dtype of the answer to one row (`EntryType`).

        `response` is ``"predict"``, ``"predict_proba"`` or None. With None nothing is
        answered, and the result is that of ``"predict"``.
        """
        estimator = self.estimator
        classes = getattr(estimator, "classes_", None)
        if response == "predict_proba":
            return EntryType((len(classes),), np.dtype(float))
        if classes is None:
            if is_regressor(estimator):
                return EntryType((), np.dtype(float))
            # A router without members answers with the choices themselves.
            # A plan without rows shows their dtype.
            no_routes = np.empty(0, np.int64)
            no_costs = no_routes.astype(float)
            no_answers = estimator.answer(Plan(no_routes, no_costs))
            return EntryType((), no_answers.dtype)
        if getattr(estimator, "abstain_quality_", None) is not None:
            return ANSWER_OR_NONE
        if isinstance(estimator, MemberRouter) and estimator._members.is_multilabel:
            # An indicator of each label.
            return EntryType((len(classes),), np.dtype(np.int64))
        return EntryType((), np.asarray(classes).dtype)

    def _route_blocks(self, X, response, *, budget, budget_total, call):
        """Return one task for each block of rows, which routes and answers it.

        Parameters
        ----------
        X : dask array or data frame
        response : {"predict", "predict_proba"} or None
            Method of the models that answer. None does not answer.
        budget : float or None
            Mean cost of a row. None takes that of the estimator.
        budget_total : float or None
            Cost of all rows, in place of the mean. None is the mean.
        call : dict
            Further keyword arguments of `predict_routed`.

        Returns
        -------
        RoutedBlocks
        """
        import_optional("dask.array", "DaskRouter")
        if not is_collection(X):
            raise TypeError(
                f"X must be a Dask array or data frame, got {type(X).__name__}: give "
                "rows in memory to the estimator itself."
            )
        if budget_total is not None:
            budget_total = check_amount(budget_total, "budget_total")
            if budget is not None:
                raise ValueError(
                    f"budget={budget!r} and budget_total={budget_total!r} exclude each "
                    "other: one is a mean, the other a sum. Give one of the two."
                )
            if self.policy != "batch":
                raise ValueError(
                    f'budget_total={budget_total!r} needs policy="batch", got policy='
                    f"{self.policy!r}: rows that are decided alone have no total."
                )
        if self.policy == "batch":
            return self._route_under_cap(
                X, response, budget=budget, budget_total=budget_total, call=call
            )
        return self._route_online(X, response, budget=budget, call=call)

    def _route_online(self, X, response, *, budget, call):
        """Return tasks of rows that are decided alone (`RoutedBlocks`).

        Parameters are those of `_route_blocks`.
        """
        from dask import delayed

        estimator = self.estimator
        if getattr(estimator, "policy", "online") != "online":
            estimator = copy.copy(estimator).set_params(policy="online")
        answer_type = self._answer_type(response)
        blocks, sizes, calls = row_blocks(X, **call)
        # As one node of the task graph, the estimator is sent to each worker once.
        sent_estimator = delayed(estimator, pure=False)
        tasks = []
        for block, block_call in zip(blocks, calls):
            task = delayed(_route_block)(
                sent_estimator, block, response, budget, block_call, answer_type
            )
            tasks.append(task)
        return RoutedBlocks(tasks, sizes)

    def _route_under_cap(self, X, response, *, budget, budget_total, call):
        """Return tasks of rows that are decided under one cap (`RoutedBlocks`).

        The choices are computed here, in passes over the estimates of all blocks. The
        tasks look them up and answer.

        Parameters
        ----------
        X, response
            As in `_route_blocks`.
        budget : float or None
            Cap on the mean cost per row. None takes that of the estimator.
        budget_total : float or None
            Cap on the summed cost, in place of `budget`.
        call : dict
            Further arguments of the call. It must be empty.
        """
        from dask import delayed

        if call:
            # The message names the alphabetically first argument.
            raise ValueError(
                f'{min(call)!r} is not taken with policy="batch" over blocks: the cap '
                "is one over all rows by the same costs."
            )
        policy = _policy_for_cap(self.estimator)
        # `mean_room` is the mean planned cost that the choices may have: a number, or a
        # function of the number of rows.
        if budget_total is None:
            budget = self.estimator.make_call(budget).budget
            check_affordable(budget, policy.least)
            mean_room = _room_of_mean(policy, budget)
        else:
            # The number of rows is known only after the first pass over the blocks.
            mean_room = partial(_room_of_total, policy, budget_total)
        # An infinite mean `budget` is no budget. A total always is one.
        has_budget = budget_total is not None or budget != np.inf
        # Smallest dual prices of cost, with a budget and without one.
        floor_with_budget, floor_without_budget = policy.price_floors
        least_price = floor_with_budget if has_budget else floor_without_budget
        blocks, sizes, _ = row_blocks(X)
        # A size is NaN if it is not known. `bool(NaN)` is True.
        has_rows = any(sizes)
        # As Dask's concatenate does, leave out blocks that are known to be empty. If
        # all are empty, they stay.
        if has_rows:
            nonempty = [position for position, size in enumerate(sizes) if size != 0]
            blocks = [blocks[position] for position in nonempty]
            sizes = [sizes[position] for position in nonempty]
        # As one node of the task graph, the router is sent to each worker once.
        sent_router = delayed(self.estimator, pure=False)
        assignment = _assign(
            sent_router,
            blocks,
            sizes,
            policy=policy,
            mean_room=mean_room,
            least_price=least_price,
        )
        plan = assignment.plan
        # Without any rows, empty blocks stay.
        if plan.n_rows:
            # The assignment also leaves out blocks that turned out to be empty.
            # `plan.starts` is the first row of each block, then the number of rows.
            nonempty = np.flatnonzero(np.diff(plan.starts))
            blocks = [blocks[position] for position in nonempty]

        answer_type = self._answer_type(response)
        if budget_total is not None:
            # The mean budget. Without rows it has no effect, and 1 avoids a division by
            # 0.
            budget = budget_total / max(plan.n_rows, 1)
        # Expected bill of each choice, (n_choices,). Rows of `fit` that get a choice
        # at this budget have paid its planned cost times this factor.
        cost_factor = policy.correction(budget).cost_factor
        expected_bills = policy.planned * cost_factor + policy.deciding_cost
        # One array of choices for each block.
        routes = assignment.choices.to_delayed().ravel()
        tasks = []
        for block, route in zip(blocks, routes):
            task = delayed(_answer_block)(
                sent_router, block, route, expected_bills, response, answer_type
            )
            tasks.append(task)
        return RoutedBlocks(tasks, assignment.choices.chunks[0])


def _policy_for_cap(router):
    """Return the policy of a router, which must be able to decide under a cap.

    It must decide by estimates alone, and have one list of costs for all rows.
    """
    requests = None
    if hasattr(router, "request_policy"):
        # Infinity: the policy does not depend on this budget.
        requests = router.request_policy(np.inf)
    # `asked_first` has the names of models that are called to decide.
    if not isinstance(requests, PricedRequests) or requests.asked_first:
        raise TypeError(
            'policy="batch" is for a BudgetRouter or an OccamRouterClassifier without '
            f"embedding, got {router!r}: others ask a model before they decide. Use "
            'policy="online".'
        )
    policy = requests.policy
    if policy.has_row_costs:
        raise ValueError(
            'policy="batch" over blocks needs fixed costs: the router has some per row.'
        )
    if policy.limits is not None:
        raise ValueError(
            'policy="batch" over blocks keeps one limit, the budget, and the router '
            'has limits or capacities: use policy="online".'
        )
    return policy


def _room_of_mean(policy, budget):
    """Return the mean planned cost that a budget leaves for the choices, a float.

    The cost of deciding is subtracted. The result is at least the cost of the cheapest
    choice: the callers have checked that the budget pays for this choice.
    """
    return max(policy.planned_cap(budget), float(policy.planned.min()))


def _room_of_total(policy, budget_total, n_rows):
    """Return the mean planned cost that a total leaves for the choices, a float.

    Raise an error if the total does not pay for the cheapest choices of `n_rows` rows.
    """
    check_affordable(budget_total, policy.least * n_rows, name="budget_total")
    return _room_of_mean(policy, budget_total / n_rows)


def _assign(sent_router, blocks, sizes, *, policy, mean_room, least_price):
    """Return the best choices of all rows within a cap.

    Parameters
    ----------
    sent_router : Delayed
        The router as one node of the graph.
    blocks : list of Delayed
        The rows of each block.
    sizes : sequence of int or float
        Number of rows of each block. NaN if it is not known.
    policy : Policy
        Policy of the router, with fixed costs.
    mean_room : float or callable
        The cap on the mean planned cost of all rows, without the cost of deciding. It
        may be a function of the number of rows that returns this cap.
    least_price : float
        The smallest dual price of cost.

    Returns
    -------
    BlockedAssignment
    """
    from dask import array, delayed

    values = []
    for block, size in zip(blocks, sizes):
        block_values = array.from_delayed(
            delayed(_net_values)(sent_router, block, policy, least_price),
            shape=(size, len(policy.planned)),
            dtype=float,
        )
        values.append(block_values)
    return solve_assignment(array.concatenate(values), policy.planned, mean_room)


# Functions that run on the workers ----------------------------------------------------


def _route_block(estimator, X, response, budget, call, answer_type):
    """Return the decisions of a block as the estimator makes them (`Routed`).

    Parameters
    ----------
    estimator : decision estimator
    X : indexable of n_rows rows
        The block.
    response : {"predict", "predict_proba"} or None
        Method of the models that answer. None does not answer.
    budget : float or None
        Mean cost of a row. None takes that of the estimator.
    call : dict
        Further keyword arguments of `predict_routed`, of this block.
    answer_type : EntryType
    """
    if num_samples(X) == 0:
        return _no_rows(answer_type)
    routed = estimator.respond(X, estimator.make_call(budget, **call), response)
    if response == "predict" and answer_type == ANSWER_OR_NONE:
        # One dtype for all blocks, also for those in which no row abstains.
        return Routed(routed.y_pred.astype(object), routed.route, routed.cost)
    return routed


def _net_values(router, X, policy, least_price):
    """Return the values (n_rows, n_choices) of a block that a capped plan maximises.

    They are estimated qualities less the penalty of each choice, and less `least_price`
    times its planned cost.
    """
    if num_samples(X) == 0:
        return np.empty((0, len(policy.planned)))
    return router.predict_quality(X) - policy.penalty - least_price * policy.planned


def _answer_block(router, X, route, costs, response, answer_type):
    """Return the decisions of a block whose choices are known (`Routed`).

    Parameters
    ----------
    router : decision estimator
    X : indexable of n_rows rows
        The block.
    route : ndarray of shape (n_rows,)
        Choice of each row.
    costs : ndarray of shape (n_choices,)
        Cost of each choice, deciding included.
    response : {"predict", "predict_proba"} or None
        Method of the models that answer. None does not answer.
    answer_type : EntryType
    """
    if num_samples(X) == 0:
        return _no_rows(answer_type)
    cost = costs[route]
    if response is None:
        return Routed(None, route, cost)
    plan = Plan(route, cost, X=X)
    return Routed(router.answer(plan, response), route, cost)


def _no_rows(answer_type):
    """Return the decisions of a block without rows (`Routed`).

    All blocks are concatenated, so that an empty one must have the same shape and
    dtype.
    """
    answers = np.empty((0, *answer_type.shape), answer_type.dtype)
    return Routed(answers, route=np.empty(0, np.int64), cost=np.empty(0))
