"""From a log to a policy: cross-fitted estimates of quality, and warnings after fit."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from skroute.base import affords
from skroute.routing.parts._estimates import (
    cross_fit,
    error_deviation,
    fold_of_rows,
    predict_matrix,
)
from skroute.routing.parts._log import with_last
from skroute.routing.parts._policy import Policy
from skroute.utils._compat import _safe_indexing
from skroute.utils._row_hash import row_keys
from skroute.utils._validation import warn

# Fewest copies of a frequent row, see `FrequentRows`. Rows with fewer copies hardly
# change a price.
_OFTEN = 20
# A logged mean cost contradicts the listed cost only if it differs by more than this
# share of the listed cost. Smaller differences matter little.
_CONTRADICTS_SHARE = 0.1
# A logged mean cost contradicts the listed cost only if it also differs by more than
# this many standard errors of the mean: by chance in 0.3 % of cases.
_CONTRADICTS_ERRORS = 3
# Smallest divisor of a relative difference of costs, because listed costs may be 0.
_TINY = 1e-300
# A warning needs a single choice that is better than routing by this many standard
# errors: the one-sided 95 % quantile of the normal distribution.
_BEHIND_ERRORS = 1.645


class FrequentRows(NamedTuple):
    """Rows that occur often in the log, in more than one fold.

    The folds' estimates of equal rows differ from one another. Later, the fitted
    estimator gives all copies of the row one estimate, by which the price must be
    learned.

    Attributes
    ----------
    kind : ndarray of shape (n_rows,), dtype=int64
        Number of the frequent row that each row is a copy of. -1 for other rows.
    first_rows : ndarray of shape (n_kinds,), dtype=int64
        Position of the first copy of each frequent row.
    """

    kind: np.ndarray
    first_rows: np.ndarray

    def replace_in(self, table, estimates):
        """Return `table` with one estimate for all copies of each frequent row.

        Parameters
        ----------
        table : ndarray of shape (n_rows, n_choices)
            Estimates of all rows. It is copied.
        estimates : ndarray of shape (n_kinds, n_estimated)
            New entries of the first columns. Further columns stay as they are.

        Returns
        -------
        ndarray of shape (n_rows, n_choices)
        """
        table = table.copy()
        is_frequent = self.kind >= 0
        n_estimated = estimates.shape[1]
        table[is_frequent, :n_estimated] = estimates[self.kind[is_frequent]]
        return table


class NewRowEstimates(NamedTuple):
    """Estimates for the rows of a log, distributed as the estimates of new rows are.

    Attributes
    ----------
    quality : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_rows, n_choices), or None
        None if costs are not estimated.
    kind : ndarray of shape (n_rows,), dtype=int64, or None
        As in `FrequentRows`. None if no row is frequent.
    """

    quality: np.ndarray
    costs: np.ndarray | None
    kind: np.ndarray | None


class Outcomes(NamedTuple):
    """Quality of all choices on the rows of a log, and errors of its estimates.

    Attributes
    ----------
    quality : ndarray of shape (n_rows, n_choices)
        Logged quality. In an incomplete log, doubly robust estimates of it.
    sigma : ndarray of shape (n_choices,)
        Standard deviation of the error of the estimates of each choice.
    noise : float
        Variance of means of `quality`, relative to that of a complete log: 1 for a
        complete log.
    """

    quality: np.ndarray
    sigma: np.ndarray
    noise: float


def learn_policy(
    estimator,
    X,
    log,
    folds,
    *,
    task=None,
    cost_estimator=None,
    weight=None,
    memory=None,
    n_jobs=None,
    fit_params=None,
):
    """Estimate quality out of fold on a log, and return the policy.

    Tables have the names that they have in `Log` and `Policy`. `paid` is what each
    choice cost in the log. `planned` are the costs by which rows are decided: the
    planned costs of the log or, without them, the paid ones. `realised` are the paid
    costs without NaN (`Log.realised_costs`), or None if rows are decided by the paid
    costs.

    Out-of-fold estimates vary more than estimates of new rows. Tables "as new" have
    estimates of the same rows that vary as those of new rows do. The price is learned
    from these.

    Parameters
    ----------
    estimator : regressor
        Not fitted. It estimates the quality of all choices but abstaining.
    X : indexable of n_rows rows
    log : Log
    folds : list of (ndarray, ndarray)
        Training and test rows of each fold.
    task : FitTask, default=None
        The fit of the router, whose callbacks get a report of this step. None: there is
        no report.
    cost_estimator : fitted regressor, default=None
        It has estimated `log.planned`, `log.planned_as_new` and `log.planned_by_fold`.
        None: costs are not estimated.
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.
    memory : str or joblib.Memory, default=None
        Cache of the fitted estimator and its estimates. None fits always.
    n_jobs : int, default=None
        Folds that are fitted in parallel. None is one.
    fit_params : dict, default=None
        Parameters of the `fit` of `estimator`.

    Returns
    -------
    Policy
    """
    planned = log.paid if log.planned is None else log.planned
    n_estimated = len(log.names)
    if log.abstain_quality is not None:
        # Abstaining is the last choice, and its quality is known.
        n_estimated -= 1
    fitted = cross_fit(
        estimator,
        X,
        log.quality[:, :n_estimated],
        folds,
        task=task,
        name="quality_estimator",
        costs=planned[..., :n_estimated],
        memory=memory,
        n_jobs=n_jobs,
        fit_params=fit_params,
    )
    fitted = _with_abstaining(fitted, log.abstain_quality)
    outcomes = _outcomes_of_log(log, fitted.estimate, weight)

    fold_of_row = fold_of_rows(folds, len(outcomes.quality))
    # `kind` is the frequent row that each row is a copy of. None: no row is frequent.
    new_rows = NewRowEstimates(fitted.as_new, log.planned_as_new, kind=None)
    # Copies of a row are decided alike if their costs are equal, too: fixed costs, or
    # estimates. Known costs of each row may differ between the copies.
    copies_have_equal_costs = planned.ndim == 1 or cost_estimator is not None
    if copies_have_equal_costs:
        new_rows = _estimate_frequent_rows(
            X,
            frequent_rows(X, fold_of_row, weight),
            new_rows,
            quality_estimator=fitted.estimator,
            cost_estimator=cost_estimator,
        )
    realised = None  # rows are decided by the paid costs
    if log.planned is not None:
        realised = log.realised_costs(X)
    return Policy(
        estimator=fitted.estimator,
        estimate=fitted.estimate,
        as_new=new_rows.quality,
        by_fold=fitted.by_fold,
        quality=outcomes.quality,
        planned=planned,
        realised=realised,
        fold=fold_of_row,
        sigma=outcomes.sigma,
        weight=weight,
        noise=outcomes.noise,
        planned_as_new=new_rows.costs,
        planned_by_fold=log.planned_by_fold,
        kind=new_rows.kind,
        abstain_quality=log.abstain_quality,
    )


def _outcomes_of_log(log, estimate, weight):
    """Return the quality of all cells of a log, doubly robust if some are unknown.

    Parameters
    ----------
    log : Log
    estimate : ndarray of shape (n_rows, n_choices)
        Out-of-fold estimates of quality.
    weight : ndarray of shape (n_rows,), or None
        Weights of the rows. None weights all alike.

    Returns
    -------
    Outcomes
    """
    if log.known_quality is None:
        # All cells of the log are known. `noise` is the ratio of a variance to that of
        # such a log.
        sigma = error_deviation(estimate, log.quality, weight)
        return Outcomes(log.quality, sigma, noise=1.0)
    known = log.known_quality
    return Outcomes(
        quality=known.doubly_robust(estimate),
        sigma=known.error_deviation(estimate, weight),
        noise=known.noise,
    )


def _estimate_frequent_rows(
    X, frequent, new_rows, *, quality_estimator, cost_estimator
):
    """Replace the estimates of frequent rows by those of the fitted estimators.

    Parameters
    ----------
    X : indexable of n_rows rows
    frequent : FrequentRows
    new_rows : NewRowEstimates
        Estimates "as new" of all rows, see `learn_policy`.
    quality_estimator : fitted regressor
    cost_estimator : fitted regressor or None
        None if costs are not estimated.

    Returns
    -------
    NewRowEstimates
        The `kind` of each row is the frequent row that it is a copy of, -1 for other
        rows.
    """
    if not len(frequent.first_rows):
        # No row is frequent.
        return new_rows
    # One copy of each frequent row.
    distinct_rows = _safe_indexing(X, frequent.first_rows)
    estimates = predict_matrix(quality_estimator, distinct_rows, "quality_estimator")
    costs = new_rows.costs
    if cost_estimator is not None:
        estimated_costs = predict_costs(cost_estimator, distinct_rows)
        costs = frequent.replace_in(costs, estimated_costs)
    return NewRowEstimates(
        quality=frequent.replace_in(new_rows.quality, estimates),
        costs=costs,
        kind=frequent.kind,
    )


def _with_abstaining(fitted, abstain_quality):
    """Return cross-fitted estimates with a column for abstaining.

    Parameters
    ----------
    fitted : CrossFitted
    abstain_quality : float or None
        Quality of abstaining. None adds no column.

    Returns
    -------
    CrossFitted
    """
    if abstain_quality is None:
        return fitted
    by_fold = fitted.by_fold
    if by_fold is not None:
        by_fold = with_last(by_fold, abstain_quality)
    return fitted._replace(
        estimate=with_last(fitted.estimate, abstain_quality),
        as_new=with_last(fitted.as_new, abstain_quality),
        by_fold=by_fold,
    )


def learn_costs(estimator, X, log, folds, *, task, n_jobs, fit_params):
    """Estimate costs per row out of fold, and add them to a log, to decide its rows.

    Parameters
    ----------
    estimator : regressor
        Not fitted. It estimates the costs of all choices.
    X : indexable of n_rows rows
    log : Log
        Without abstaining.
    folds : list of (ndarray, ndarray)
        Training and test rows of each fold.
    task : FitTask
        The fit of the router, whose callbacks get a report of this step.
    n_jobs : int or None
        Folds that are fitted in parallel. None is one.
    fit_params : dict
        Parameters of the `fit` of `estimator`.

    Returns
    -------
    estimator : fitted regressor
        Fitted on all rows.
    log : Log
    """
    fitted = cross_fit(
        estimator,
        X,
        log.paid,
        folds,
        task=task,
        name="cost_estimator",
        n_jobs=n_jobs,
        fit_params=fit_params,
    )
    # One table of estimates for each fold, see `CrossFitted`. None: `fitted.estimate`
    # is used for every fold. Estimates below 0 become 0, since no cost is negative.
    planned_by_fold = fitted.by_fold
    if planned_by_fold is not None:
        planned_by_fold = np.maximum(planned_by_fold, 0.0)
    log = replace(
        log,
        planned=np.maximum(fitted.estimate, 0.0),
        planned_as_new=np.maximum(fitted.as_new, 0.0),
        planned_by_fold=planned_by_fold,
    )
    return fitted.estimator, log


def predict_costs(fitted, X):
    """Return the estimated costs (n_rows, n_choices), which are at least 0."""
    return np.maximum(predict_matrix(fitted, X, "cost_estimator"), 0.0)


def frequent_rows(X, fold_of_row, weight=None):
    """Find rows of X with many equal copies, in more than one fold (`FrequentRows`).

    Parameters
    ----------
    X : indexable of n_rows rows
    fold_of_row : ndarray of shape (n_rows,), dtype=int64
        Number of the fold of each row.
    weight : ndarray of shape (n_rows,), default=None
        How often each row counts. None counts each once.

    Returns
    -------
    FrequentRows
    """
    _, first_rows, distinct_of_row = np.unique(
        row_keys(X), return_index=True, return_inverse=True
    )
    # How often each distinct row occurs: (n_distinct,)
    counts = np.bincount(distinct_of_row, weight)
    # Each pair of a distinct row and a fold that contains it has a number of its own,
    # from which the distinct row can be computed.
    n_folds = fold_of_row.max() + 1
    pairs = np.unique(distinct_of_row * n_folds + fold_of_row)
    distinct_of_pair = pairs // n_folds
    n_folds_of_distinct = np.bincount(distinct_of_pair)
    is_frequent = (counts >= _OFTEN) & (n_folds_of_distinct > 1)
    # Frequent rows are numbered from 0. Other rows have -1.
    kind_of_distinct = np.where(is_frequent, np.cumsum(is_frequent) - 1, -1)
    return FrequentRows(
        kind=kind_of_distinct[distinct_of_row], first_rows=first_rows[is_frequent]
    )


# Warnings after fit -------------------------------------------------------------------


def warn_of_fit(policy, names, budget, has_overlap=None):
    """Warn of wrong prices, a budget without effect, or a choice better than routing.

    There is at most one warning.

    Parameters
    ----------
    policy : Policy
    names : list of str
        The choices.
    budget : float
        Mean cost per row, deciding included. Infinity is no budget.
    has_overlap : ndarray of shape (n_choices,), dtype=bool, default=None
        Choices whose means over all rows the log can estimate. None: all.
    """
    if has_overlap is None:
        has_overlap = np.ones(len(names), dtype=bool)
    messages = (
        _contradicted_costs(policy, names, has_overlap),
        _budget_without_effect(policy, budget),
        _better_choice(policy, names, budget, has_overlap),
    )
    for message in messages:
        if message is not None:
            warn(message)
            return


def _budget_without_effect(policy, budget):
    """Return a message if the budget exceeds the cost of every choice, or None.

    The unit of such a budget is probably wrong.
    """
    # `noise` is 1 for a complete log. In an incomplete log, paid costs are doubly
    # robust estimates, and the largest cost of a row would be mostly noise.
    is_incomplete = policy.noise > 1
    costs = policy.planned if is_incomplete else policy.paid
    # Mean cost of the most expensive choice of each row.
    if costs.ndim == 1:
        largest_mean = float(np.max(costs))
    else:
        largest_costs = np.max(costs, axis=-1)  # (n_rows,)
        largest_mean = float(np.average(largest_costs, weights=policy.weight))
    largest_mean += policy.deciding_cost
    # A budget of at most this mean, up to rounding, has an effect.
    if budget == np.inf or affords(largest_mean, cost=budget):
        return None
    return (
        f"budget={float(budget)!r} has no effect: the most expensive choice for each "
        f"row costs {largest_mean:.6g} per sample. budget is a mean cost per sample, "
        "in the unit of costs (not per thousand where costs are per call); None is "
        "unlimited."
    )


def _contradicted_costs(policy, names, has_overlap):
    """Return a message if listed costs are far from the logged costs, or None.

    The parameters are those of `warn_of_fit`.
    """
    if policy.realised is None or policy.has_row_costs:
        # Listed costs are the bills, or there is no price list.
        return None
    listed = policy.planned
    logged = np.average(policy.paid, axis=0, weights=policy.weight)
    difference = np.abs(logged - listed)  # (n_choices,)
    noise = policy.paid.std(axis=0) / np.sqrt(len(policy.paid))
    is_far = difference > _CONTRADICTS_SHARE * listed
    is_beyond_noise = difference > _CONTRADICTS_ERRORS * noise
    # Without overlap, costs can differ on the rows where the log never made the choice.
    contradicted = np.flatnonzero(has_overlap & is_far & is_beyond_noise)
    if not len(contradicted):
        return None
    relative = difference[contradicted] / np.maximum(listed[contradicted], _TINY)
    worst = contradicted[np.argmax(relative)]
    return (
        f"The logged costs of {names[worst]!r} are {logged[worst]:.6g} on average, but "
        f"costs says {listed[worst]:.6g}. The budget is met in logged costs; rows are "
        "decided by those of costs. Check that both have one unit."
    )


def _better_choice(policy, names, budget, has_overlap):
    """Return a message if one choice for all rows is better than routing, or None.

    The parameters are those of `warn_of_fit`.
    """
    mean_costs = policy.paid
    if policy.paid.ndim == 2:
        mean_costs = np.average(policy.paid, axis=0, weights=policy.weight)
    is_affordable = affords(budget - policy.deciding_cost, mean_costs)
    candidates = np.flatnonzero(has_overlap & is_affordable)
    # A single row has no standard error.
    if len(candidates) == 0 or len(policy.quality) < 2:
        return None
    validation = policy.validate(budget)
    # Quality that a unit of cost is worth: above 0, for example, if quality is money.
    price_with_budget, price_without_budget = policy.least_prices
    least_price = price_without_budget if budget == np.inf else price_with_budget
    net = policy.quality - least_price * policy.paid
    mean_net = np.average(net, axis=0, weights=policy.weight)
    best = candidates[np.argmax(mean_net[candidates])]
    routed = validation.quality - least_price * (validation.cost - policy.deciding_cost)
    return message_if_behind(net[:, best], routed, names[best], policy.weight)


def message_if_behind(single, routed, name, weight=None):
    """Return a message if one choice for all rows is better than routing, or None.

    Parameters
    ----------
    single : ndarray of shape (n_rows,)
        Quality of the single choice on each validation row. It may be net of cost.
    routed : ndarray of shape (n_rows,)
        Quality of the router's choice on each of these rows, in the same unit.
    name : str
        The single choice.
    weight : ndarray of shape (n_rows,), default=None
        Weights of the rows. None weights all alike.

    Returns
    -------
    str or None
        None if the difference is within noise.
    """
    loss = single - routed
    if weight is not None:
        # The plain mean of these numbers is the weighted mean of the losses.
        loss = loss * weight / weight.mean()
    noise = _BEHIND_ERRORS * loss.std(ddof=1) / np.sqrt(len(loss))
    # The noise of a single row is NaN, the comparison is False, and there is no
    # message.
    if not loss.mean() > max(noise, 0):
        return None
    mean_routed = np.average(routed, weights=weight)
    mean_single = np.average(single, weights=weight)
    return (
        f"On validation rows the router's quality {mean_routed:.4g} is below the "
        f"{mean_single:.4g} of {name!r} alone, whose cost is within the budget of "
        "now, if there is one. Use that choice for all rows, or try a larger "
        "reg_lambda, another quality_estimator or better features."
    )
