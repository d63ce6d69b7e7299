"""Decisions over Dask collections, block by block, under one budget."""

import copy
from typing import Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.utils.validation import check_is_fitted

from skroute.base import Plan, Routed, check_affordable
from skroute.distributed import solve_assignment
from skroute.distributed._blocks import is_collection, row_blocks
from skroute.utils._compat import num_samples
from skroute.utils._optional import import_optional


class DaskRouter:
    """A fitted decision estimator over Dask arrays and data frames.

    The calls are those of the estimator, their results lazy Dask arrays: a model is called
    when they are computed, on rows routed to it, block by block, on whatever scheduler runs
    them. The rows of all blocks may be more than fit a memory.

    Parameters
    ----------
    estimator : estimator
        Any fitted decision estimator. It goes to every worker with the tasks.

    policy : {"online", "batch"}, default=None
        ``"online"`` decides each row as the estimator does, at the price that `fit` has set:
        the budget holds on average. ``"batch"`` makes it a hard cap over all rows of all
        blocks: one price from a few passes over the estimates
        (:func:`~skroute.distributed.solve_assignment`), when a method is called, and not
        when its result is computed; for :class:`BudgetRouter` and
        :class:`OccamRouterClassifier` with fixed costs. None takes the estimator's own.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If it decides nothing, or ``"batch"`` is asked of one that asks a model before it decides.

    See Also
    --------
    skroute.metrics.accuracy_cost_curve : It takes Dask collections too.

    Notes
    -----
    A budget that a batch of few rows meets and their mixture of ties are those of each
    block: rows that are equal, tied at the price and in several blocks are mixed in each.
    Give ``request_id``, a Dask array in the blocks of X, where a tie must not depend on the
    division.

    There is no `score`: ``accuracy_cost_curve(estimator, X, y, [budget])`` is one over the blocks
    for decisions made online, with what it costs beside it; of a cap over all rows compare
    the answers with the truth, block by block.

    A fit on Dask's workers is one of joblib: ``with joblib.parallel_backend("dask")`` around
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
                "estimator must be a fitted decision estimator (one with predict_routed), got "
                f"{type(estimator).__name__}."
            )
        check_is_fitted(estimator)
        if policy not in (None, "online", "batch"):
            raise ValueError(
                f'policy must be "online", "batch" or None, got {policy!r}.'
            )
        self.estimator, self.policy = (
            estimator,
            policy or getattr(estimator, "policy", "online"),
        )
        if self.policy == "batch":
            _check_one_cap(estimator)

    def __repr__(self):
        return f"DaskRouter({self.estimator!r}, policy={self.policy!r})"

    def predict_routed(
        self, X: Any, budget: float | None = None, **call: Any
    ) -> Routed:
        """Answers, choices and costs, lazily.

        Parameters
        ----------
        X : dask array or data frame of shape (n_samples, n_features)
            The rows; of array chunks those along the first axis count.

        budget : float, default=None
            As in ``estimator.predict_routed``.

        **call : keyword arguments
            As there. What is per row is a Dask collection in the blocks of X.

        Returns
        -------
        Routed
            Of Dask arrays. All of them computed together are one call of each model for each
            block; expected quality and cost are None.
        """
        return Routed(
            *self._views(X, ("y_pred", "route", "cost"), "predict", budget, call)
        )

    def predict(self, X: Any, budget: float | None = None, **call: Any) -> Any:
        """Answers, lazily: ``predict_routed(X).y_pred``.

        Parameters
        ----------
        X, budget, **call
            As in `predict_routed`.

        Returns
        -------
        dask.array.Array of shape (n_samples,) or (n_samples, n_labels)
        """
        return self._views(X, ("y_pred",), "predict", budget, call)[0]

    def predict_proba(self, X: Any, budget: float | None = None, **call: Any) -> Any:
        """Class probabilities, lazily.

        Parameters
        ----------
        X, budget, **call
            As in `predict_routed`.

        Returns
        -------
        dask.array.Array of shape (n_samples, n_classes)
        """
        # The estimator's own words where it has none.
        _ = self.estimator.predict_proba
        return self._views(X, ("y_pred",), "predict_proba", budget, call)[0]

    def route(self, X: Any, budget: float | None = None, **call: Any) -> Any:
        """Choices, lazily and without answering.

        Parameters
        ----------
        X, budget, **call
            As in `predict_routed`.

        Returns
        -------
        dask.array.Array of shape (n_samples,), dtype=int64
            Index into ``estimator.choices_``.
        """
        return self._views(X, ("route",), None, budget, call)[0]

    def predict_cost(self, X: Any, budget: float | None = None, **call: Any) -> Any:
        """What `predict` will have spent on each row, lazily and without answering.

        Parameters
        ----------
        X, budget, **call
            As in `predict_routed`.

        Returns
        -------
        dask.array.Array of shape (n_samples,), dtype=float64
        """
        return self._views(X, ("cost",), None, budget, call)[0]

    def _views(self, X, names, response, budget, call):
        """Dask arrays of some of answers, choices and costs, all of one task for each block."""
        array = import_optional("dask.array", "DaskRouter")
        from dask import delayed

        if not is_collection(X):
            raise TypeError(
                f"X must be a Dask array or data frame, got {type(X).__name__}: give rows in "
                "memory to the estimator itself."
            )
        answers = self._answers(response)
        if self.policy == "batch":
            blocks, sizes, tasks = self._capped(X, response, budget, call, answers)
        else:
            estimator = self.estimator
            if getattr(estimator, "policy", "online") != "online":
                estimator = copy.copy(estimator).set_params(policy="online")
            blocks, sizes, beside = row_blocks(X, **call)
            sent = delayed(estimator, pure=False)
            tasks = [
                delayed(_routed)(sent, block, response, budget, one, answers)
                for block, one in zip(blocks, beside)
            ]
        shapes = {"y_pred": answers, "route": ((), np.int64), "cost": ((), float)}
        found = []
        for name in names:
            columns, dtype = shapes[name]
            parts = [
                array.from_delayed(
                    delayed(getattr)(task, name), (size, *columns), dtype=dtype
                )
                for task, size in zip(tasks, sizes)
            ]
            found.append(array.concatenate(parts))
        return found

    def _answers(self, response):
        """Shape of an answer beyond its row, and the dtype."""
        classes = getattr(self.estimator, "classes_", None)
        if response == "predict_proba":
            return (len(classes),), np.dtype(float)
        if (
            classes is not None
            and getattr(self.estimator, "abstain_quality_", None) is not None
        ):
            # None among the labels.
            return (), np.dtype(object)
        if getattr(self.estimator, "_multilabel", False):
            # An indicator of each label.
            return (len(classes),), np.dtype(np.int64)
        if classes is not None:
            return (), np.asarray(classes).dtype
        if is_regressor(self.estimator):
            return (), np.dtype(float)
        # What only routes answers by the choices themselves.
        none = np.empty(0, np.int64)
        return (), self.estimator.answer(Plan(none, none.astype(float))).dtype

    def _capped(self, X, response, budget, call, answers):
        """Tasks of rows that are decided under one cap over all of them."""
        from dask import array, delayed

        if call:
            raise ValueError(
                f'{min(call)!r} is not taken with policy="batch" over blocks: the cap is '
                "one over all rows by the same costs."
            )
        router = self.estimator
        policy = _check_one_cap(router)
        budget = router.make_call(budget).budget
        check_affordable(budget, policy.least)
        blocks, sizes, _ = row_blocks(X)
        # Dask's concatenate leaves out what is known to be empty, if not all is: so do the
        # blocks beside it.
        if any(sizes):
            blocks, sizes = zip(
                *((block, n) for block, n in zip(blocks, sizes) if n != 0)
            )
        sent, width = delayed(router, pure=False), len(router.choices_)
        parts = [
            array.from_delayed(
                delayed(_values)(sent, block, policy, budget),
                (size, width),
                dtype=float,
            )
            for block, size in zip(blocks, sizes)
        ]
        least = float(policy.planned.min())
        room = max(policy.room(budget), least)
        plan = solve_assignment(array.concatenate(parts), policy.planned, room)
        chosen = list(plan.choices.to_delayed().ravel())
        # Of blocks that turn out to have no rows there is none in the plan.
        if plan.plan.n_rows:
            blocks = [blocks[i] for i in np.flatnonzero(np.diff(plan.plan.starts))]
        costs = policy.planned + policy.deciding
        tasks = [
            delayed(_answered)(sent, block, route, costs, response, answers)
            for block, route in zip(blocks, chosen)
        ]
        return blocks, plan.choices.chunks[0], tasks


def _routed(estimator, X, response, budget, call, answers):
    """Answers, choices and costs of a block; without rows, of none."""
    if num_samples(X) == 0:
        return _nothing(answers)
    found = estimator.respond(X, estimator.make_call(budget, **call), response)
    if answers == ((), np.dtype(object)) and response == "predict":
        # Alike in all blocks, whether they have rows that abstain or not.
        found = Routed(found.y_pred.astype(object), found.route, found.cost)
    return found


def _check_one_cap(router):
    """The policy of a router, which must decide all rows by estimates and one list of costs."""
    if not hasattr(router, "_policy") or router._asked_first(None):
        raise TypeError(
            'policy="batch" is for a BudgetRouter or an OccamRouterClassifier without embedding, '
            f'got {router!r}: others ask a model before they decide. Use policy="online".'
        )
    policy = router._policy()
    if policy.per_row:
        raise ValueError(
            'policy="batch" over blocks needs fixed costs: the router has some per row.'
        )
    return policy


def _values(router, X, policy, budget):
    if num_samples(X) == 0:
        return np.empty((0, len(router.choices_)))
    least_price = policy.price_floors[int(budget == np.inf)]
    return router.predict_quality(X) - policy.penalty - least_price * policy.planned


def _answered(router, X, route, costs, response, answers):
    if num_samples(X) == 0:
        return _nothing(answers)
    cost = costs[route]
    if response is None:
        return Routed(None, route, cost)
    plan = Plan(route, cost, X=X)
    return Routed(router.answer(plan, response), route, cost)


def _nothing(answers):
    """No answers, of the shape and the dtype of those of other blocks: it decides theirs too."""
    shape, dtype = answers
    return Routed(np.empty((0, *shape), dtype), np.empty(0, np.int64), np.empty(0))
