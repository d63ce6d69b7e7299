"""Quality, cost and routes of an estimator over a range of budgets."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from skroute.base import check_budget
from skroute.utils._calls import takes
from skroute.utils._compat import _safe_indexing, check_sample_weight, num_samples
from skroute.utils._handing import handed_over, models_of
from skroute.utils._named import columns_of, in_order, part_of
from skroute.utils._once import walking


class AccuracyCostCurve(NamedTuple):
    """What an estimator achieves and spends at each budget.

    Attributes
    ----------
    budget : ndarray of shape (n_budgets,), dtype=float64
        The budgets asked for, in the order given; infinity where unlimited.

    quality : ndarray of shape (n_budgets,), dtype=float64
        Mean quality: accuracy for one label per row.

    cost : ndarray of shape (n_budgets,), dtype=float64
        Mean cost per row as the estimator reports it (``predict_cost``), in the unit of its
        costs: what was spent where costs are known, the estimate of it where the estimator
        has a ``cost_estimator``.

    route_share : ndarray of shape (n_budgets, n_choices), dtype=float64
        Share of the rows for which each choice was made; rows sum to 1.

    choices : list
        Names of the choices, the columns of `route_share`.

    row_quality : ndarray of shape (n_samples, n_budgets), dtype=float64, or None
        Quality of each row, for :func:`bootstrap_interval`; None for rows in Dask's blocks.

    row_cost : ndarray of shape (n_samples, n_budgets), dtype=float64, or None
        Cost of each row, likewise.
    """

    budget: NDArray[np.float64]
    quality: NDArray[np.float64]
    cost: NDArray[np.float64]
    route_share: NDArray[np.float64]
    choices: list[Any]
    row_quality: NDArray[np.float64] | None
    row_cost: NDArray[np.float64] | None


def check_budgets(budgets):
    """Validate a list of budgets; None becomes infinity.

    Raises
    ------
    ValueError
        If there is none, or one is not a non-negative number or None.
    """
    usable = np.iterable(budgets) and not isinstance(budgets, str)
    given = list(budgets) if usable else []
    if not given:
        raise ValueError(
            f"budgets must be a non-empty list of numbers (mean costs per sample), got {budgets!r}."
        )
    return np.array([check_budget(budget, name="each of budgets") for budget in given])


def find_router(estimator, X):
    """The cost-aware estimator inside a search or a pipeline, and the rows that it sees.

    Parameters
    ----------
    estimator : estimator
        A fitted cost-aware estimator, a pipeline that ends with one, or a search
        (anything with ``best_estimator_``) over one of these.

    X : array-like of shape (n_samples, n_features)
        The rows.

    Returns
    -------
    router : estimator
    X : array-like of shape (n_samples, n_transformed)

    Raises
    ------
    TypeError
        If there is no cost-aware estimator.

    NotFittedError
        If it is not fitted.
    """
    inner = estimator
    while not hasattr(inner, "predict_routed"):
        if hasattr(inner, "steps") and len(inner.steps) > 1:
            X = inner[:-1].transform(X)
        inner = _within(inner, estimator)
    check_is_fitted(inner)
    return inner, X


def router_in(estimator):
    """As `find_router`, without rows."""
    inner = estimator
    while not hasattr(inner, "predict_routed"):
        inner = _within(inner, estimator)
    check_is_fitted(inner)
    return inner


def _within(inner, estimator):
    if hasattr(inner, "best_estimator_"):
        return inner.best_estimator_
    if hasattr(inner, "steps"):
        return inner[-1]
    raise TypeError(
        "estimator must be a fitted cost-aware estimator (one with predict_routed), a "
        f"pipeline that ends with one, or a search over one of these; got {inner!r}."
    )


def sample_quality(y_true: ArrayLike, y_pred: ArrayLike) -> NDArray[np.float64]:
    """Quality of each answer: whether the label is right, or how much of the label set.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_labels)
        True labels, or an indicator matrix of labels.

    y_pred : array-like of the shape of `y_true`
        The answers.

    Returns
    -------
    ndarray of shape (n_samples,), dtype=float64
        1 or 0 for one label per row; the Jaccard index of the label sets, 1 where both
        are empty, for several.

    Raises
    ------
    ValueError
        If the shapes differ.

    Examples
    --------
    >>> from skroute.metrics import sample_quality
    >>> sample_quality(["cat", "dog"], ["cat", "cat"])
    array([1., 0.])
    >>> sample_quality([[1, 1, 0], [0, 0, 0]], [[1, 0, 0], [0, 0, 0]])
    array([0.5, 1. ])
    """
    y_true, y_pred = np.asarray(y_true), np.asarray(y_pred)
    check_consistent_length(y_true, y_pred)
    if y_true.shape != y_pred.shape or y_true.ndim > 2:
        raise ValueError(
            f"y_true of shape {y_true.shape} and y_pred of shape {y_pred.shape} do not go "
            "together: give one label per row, or two indicator matrices of the same shape."
        )
    if y_true.ndim == 1:
        if _holds_texts(y_true) != _holds_texts(y_pred):
            raise ValueError(
                f"y_true holds {_kind_of(y_true)} and y_pred {_kind_of(y_pred)}: no answer could "
                "be right. Give labels of the type that fit saw."
            )
        return (y_true == y_pred).astype(np.float64)
    true, named = y_true != 0, y_pred != 0
    both = np.count_nonzero(true & named, axis=1)
    either = np.count_nonzero(true | named, axis=1)
    return np.where(either == 0, 1.0, both / np.maximum(either, 1))


def _holds_texts(labels):
    """Whether labels are texts, by the first one that is there."""
    if labels.dtype.kind != "O":
        return labels.dtype.kind in "UST"
    return isinstance(next((label for label in labels if label is not None), ""), str)


def _kind_of(labels):
    return "texts" if _holds_texts(labels) else "numbers"


def quality_name(estimator):
    """What an estimator measures answers by, for labels of axes; None for accuracy."""
    quality = getattr(estimator, "quality", None)
    if not hasattr(estimator, "row_quality"):
        return None
    if isinstance(quality, str):
        return None if quality == "accuracy" else quality
    return "given function" if callable(quality) or is_pair(quality) else "minus cost"


def is_pair(quality):
    """Whether a quality is a kind and a function; a tuple of rows is a cost matrix."""
    return isinstance(quality, tuple) and bool(quality) and isinstance(quality[0], str)


def _quality_or_handed(router, y, y_pred, route, row_quality):
    """Quality of each answer; that of handing over where there is none."""
    handed = handed_over(router, route)
    if not handed.any():
        if row_quality is not None:
            return row_quality(y, y_pred)
        return _quality_of_answers(y, y_pred, route, models_of(router))
    found, rows = np.full(len(route), router.abstain_quality_), np.flatnonzero(~handed)
    if len(rows):
        answers, y = np.array(y_pred[rows].tolist()), _safe_indexing(y, rows)
        if row_quality is not None:
            found[rows] = row_quality(y, answers)
        else:
            found[rows] = _quality_of_answers(y, answers, route[rows], models_of(router))
    return found


def _quality_of_answers(y, y_pred, route, names):
    """As `sample_quality`; that of the choice made where `y` is a quality matrix."""
    if np.ndim(y_pred) == 1:
        # A frame may have choices that were dropped since.
        columns = columns_of(y)
        known = columns is not None and set(names) <= set(map(str, columns))
        y = part_of(y, [c for c in columns if str(c) in names]) if known else y
        y = in_order(y, names)
    y, y_pred, n_choices = np.asarray(y), np.asarray(y_pred), len(names)
    if y.shape == y_pred.shape:
        return sample_quality(y, y_pred)
    if y.ndim == 2 and y_pred.ndim == 1 and y.shape[1] == n_choices:
        return y[np.arange(len(y)), route].astype(np.float64)
    raise ValueError(
        f"y of shape {y.shape} and predictions of shape {y_pred.shape} do not go together: "
        "give one label per row, an indicator matrix for predictions of the same shape, or, for "
        "an estimator that only routes, a quality matrix with one column for each of its "
        f"choices_ (there are {n_choices})."
    )


def accuracy_cost_curve(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    budgets: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    row_quality: Any = None,
    **params: Any,
) -> AccuracyCostCurve:
    """Quality, cost and routes of a fitted estimator at several budgets.

    One pass over the rows per budget: answers, choices and costs come from the same call
    of ``predict_routed``.

    Parameters
    ----------
    estimator : estimator
        A fitted cost-aware estimator, a pipeline that ends with one, or a search over one
        of these.

    X : array-like of shape (n_samples, n_features)
        Rows that the estimator has not been fitted on.

    y : array-like of shape (n_samples,) or (n_samples, n_columns)
        True labels, an indicator matrix for multi-label predictions, or, for an estimator
        that only routes, the quality of each choice on each row, a frame's columns by name;
        rows on which that of the choice made is NaN, not known, do not count in the mean.

    budgets : array-like of shape (n_budgets,)
        Mean costs per sample, in the unit of the estimator's costs; None is unlimited.

    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each row in the means. None weights all alike.

    row_quality : callable, default=None
        Called as ``row_quality(y, y_pred)``, returns the quality of each row, shape
        (n_samples,), higher is better. None takes the estimator's own `quality` where it
        has one other than accuracy, whose mean is a ratio where that is; else, by the shapes:
        whether the label is right; the Jaccard index of the label sets (1 where both are
        empty); the quality of the choice made. A row that is handed over instead of answered
        counts as the estimator's ``abstain_quality_`` in each case.

    **params : keyword arguments
        Further arguments of ``predict_routed``, for example ``costs`` of each row for
        :class:`~skroute.routing.BudgetRouter` where they are known before the call.

    Returns
    -------
    AccuracyCostCurve
        Named tuple ``(budget, quality, cost, route_share, choices, row_quality,
        row_cost)``.

    Raises
    ------
    ValueError
        If a budget is not feasible: the estimator's own error, which names the smallest
        feasible one; or if `y` does not go with the predictions.
    TypeError
        If `estimator` is not cost-aware.

    See Also
    --------
    AccuracyCostDisplay : Draws this curve.
    reference_curves : Oracle, random mix and best single model over the same budgets.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.datasets import make_routing_problem
    >>> from skroute.metrics import accuracy_cost_curve
    >>> from skroute.routing import BudgetRouter
    >>> problem = make_routing_problem(600, n_models=2, n_features=2, random_state=0)
    >>> X, Q = problem.data, problem.quality
    >>> router = BudgetRouter(Ridge(), costs=problem.costs, budget=0.5).fit(X[:300], Q[:300])
    >>> curve = accuracy_cost_curve(router, X[300:], Q[300:], budgets=[0.1, 0.5])
    >>> curve.cost.round(2), curve.quality.round(2)
    (array([0.1, 0.5]), array([0.67, 0.77]))
    >>> curve.route_share.round(2)
    array([[1.  , 0.  ],
           [0.56, 0.44]])
    """
    if row_quality is not None and not callable(row_quality):
        raise ValueError(
            "row_quality must be a function of (y, y_pred) that returns one number per row, or "
            f"None, got {row_quality!r}."
        )
    limits = check_budgets(budgets)
    router, X = find_router(estimator, X)
    # Nobody is asked about a row at one budget again at the next.
    router = walking(router)
    # A cascade may be asked by signals alone.
    rows = y if X is None else X
    n = num_samples(rows)
    check_consistent_length(X, y)
    weight = check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
    if takes(router, "y_true"):
        # The oracle, to whom its own `score` says as much.
        params = {"y_true": y, **params}
    own = row_quality is None and quality_name(router) is not None
    qualities, costs = np.empty((n, len(limits))), np.empty((n, len(limits)))
    routed = np.empty((len(limits), len(router.choices_)))
    for k, limit in enumerate(limits):
        if own:
            given = {name: part for name, part in params.items() if name != "y_true"}
            found = router.row_quality(X, y, sample_weight, limit, **given)
            qualities[:, k], route, costs[:, k] = found
        else:
            y_pred, route, costs[:, k] = router.predict_routed(X, budget=limit, **params)
            qualities[:, k] = _quality_or_handed(router, y, y_pred, route, row_quality)
        routed[k] = np.bincount(route, weights=weight, minlength=len(router.choices_))
    known = ~np.isnan(qualities)
    counted = weight @ known
    if not (counted > 0).all():
        raise ValueError("y is NaN, not known, for every choice that was made.")
    # Divided last: rows that all cost 1 cost exactly 1 on average.
    return AccuracyCostCurve(
        budget=limits,
        quality=weight @ np.where(known, qualities, 0.0) / counted,
        cost=weight @ costs / weight.sum(),
        route_share=routed / weight.sum(),
        choices=list(router.choices_),
        row_quality=qualities,
        row_cost=costs,
    )
