"""A policy with a price: what choices are worth on a log, and what every budget can buy."""

import copy
import inspect
from contextlib import nullcontext

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from skroute.assignment import decide
from skroute.assignment._decide import check_policy
from skroute.base import Plan, affords, check_affordable, note_failure
from skroute.routing._abstaining import Beside, with_handed
from skroute.routing._limits import stand_ins
from skroute.routing._mixtures import price_curve, spread_prices
from skroute.routing._validation import (
    PRIOR,
    bounded_rule,
    choose_by_rule,
    correct,
    error_by_level,
    find_repeats,
    leave_one_out,
    part_paths,
    parts_of,
    standard_error,
    validate,
    weighted_path,
)
from skroute.routing._values import (
    as_target,
    check_partition,
    note_encoder,
    out_of_sample_quality,
    penalty,
    predict_matrix,
)
from skroute.utils._compat import num_samples

# What a policy computes when it is asked for and keeps until it changes.
_ON_DEMAND = "_other _variant _part_paths _found _corrected _levels _curve _full".split()
# Prices at which a policy is compared with others on validation rows.
_N_CURVE = 33


class PricedPolicy:
    """Estimates of quality, out of sample, and the price of every budget.

    It keeps the estimates and the log, so that another lambda or other costs are solved
    for without labels or a fit.

    Parameters
    ----------
    estimator : estimator
        Fitted on all rows: from features to the quality of each choice.
    estimate, quality : ndarray of shape (n_rows, n_choices)
        Cross-fitted estimates and what each choice was in truth worth.
    costs : ndarray of shape (n_choices,) or (n_rows, n_choices)
        What making each choice cost.
    planned : ndarray of shape (n_choices,) or (n_rows, n_choices), default=None
        The costs as they are known when a row is decided; None takes `costs`.
    reg_lambda : float, default=0.0
        How many sigmas a choice is docked.
    deciding : float, default=0.0
        What each row pays before its choice is known.
    margin : float, default=0.0
        The share of what a budget leaves after deciding that the price does not count on.
    part : ndarray of shape (n_rows,), default=None
        Fold that each row was estimated without; None divides the rows at random.
    repeats : Repeats, default=None
        Rows that occur often, and the fitted estimators' numbers for them.
    alone : ndarray of shape (n_rows, n_choices), default=None
        Estimates of each row by what did not fit it, made up as those of new rows will be; the
        price is set by them where there are some.
    known : Known, default=None
        Where not all outcomes are known: which are; `quality` then holds doubly robust ones.
    weight : ndarray of shape (n_rows,), default=None
        How much each row counts in price and validation; its mean is 1.

    Attributes
    ----------
    rates : (float, float)
        What one unit of cost is worth at least in the unit of quality: under a budget, and
        without one. Set by `solved`.
    """

    def __init__(
        self,
        estimator,
        estimate,
        quality,
        costs,
        *,
        planned=None,
        reg_lambda=0.0,
        deciding=0.0,
        margin=0.0,
        part=None,
        repeats=None,
        alone=None,
        known=None,
        weight=None,
    ):
        self.estimator, self.weight, self.known = estimator, weight, known
        self.rates = 0.0, 0.0
        self.alone = estimate if alone is None else alone
        # Whether the price is set by other estimates than those of folds.
        self.as_new = alone is not None
        # What the fitted estimator makes of its own rows, where `alone` is it without each of them.
        self.fitted = None
        self.estimate = estimate
        self.quality = quality
        self.sigma = penalty(estimate, quality) if known is None else known.sigma(estimate)
        self.margin = margin
        # Whether parts are the folds of the estimates.
        self._own = part is not None
        self.part = part if self._own else parts_of(None, len(quality))
        self.repeats = repeats
        # Columns of the estimator's output; None where none is left out.
        self.kept, self._n_outputs = None, quality.shape[1]
        # Choices that came after `fit`, by few scores.
        self.added = np.zeros(quality.shape[1], dtype=bool)
        planned = costs if planned is None else planned
        # The log in the prices of now is the log of then, scaled.
        self._logged, self._listed = costs, planned
        self._solve(reg_lambda, costs, planned, deciding)

    def _solve(self, reg_lambda, costs, planned, deciding):
        self.reg_lambda = float(reg_lambda)
        self.costs, self.planned, self.deciding = costs, planned, float(deciding)
        self.docked = self.reg_lambda * self.sigma
        values = self.alone - self.docked
        if self.repeats is not None:
            own = self.repeats
            self._docked_repeats = own._replace(values=own.values - self.docked)
            values = self._docked_repeats.put(values, self._docked_repeats.values)
            if own.planned is not None:
                planned = own.put(planned, own.planned)
        else:
            self._docked_repeats = None
        self._decides = values, planned
        self.path = weighted_path(values, planned, self._realised, self.weight)
        if self._realised is None:
            least = np.min(costs, axis=-1)
            weight = self.weight if least.ndim else None
            self.least = float(np.average(least, weights=weight)) + self.deciding
        else:
            self.least = float(self.path.budgets[0]) + self.deciding
        self._forget()

    def _forget(self):
        vars(self).update(dict.fromkeys(_ON_DEMAND))

    def __getstate__(self):
        # What is computed when it is asked for is not kept.
        return self.__dict__ | dict.fromkeys(_ON_DEMAND)

    @property
    def _realised(self):
        """What choices have cost, where that is not what rows are decided by."""
        return None if self.costs is self.planned else self.costs

    def at_budget(self, budget):
        """The policy for a budget, which is this one for each."""
        return self

    def solved(self, reg_lambda, costs=None, deciding=None, rates=None):
        """The policy for another lambda, other fixed costs, cost of deciding or exchange rates.

        The last one is kept, so that asking again costs nothing. None leaves as it is. Of
        costs that were logged beside fixed ones each choice's are scaled as its fixed cost.
        """
        costs = self.planned if costs is None else costs
        deciding = self.deciding if deciding is None else deciding
        rates = self.rates if rates is None else rates
        for known in (self, self._other):
            if (
                known is not None
                and (known.reg_lambda, known.deciding, known.rates) == (reg_lambda, deciding, rates)
                and (known.planned is costs or np.array_equal(known.planned, costs))
            ):
                return known
        other = copy.copy(self)
        other.rates = rates
        if costs is self.planned:
            other._solve(reg_lambda, self.costs, self.planned, deciding)
        else:
            other._solve(reg_lambda, self._relogged(costs), costs, deciding)
        self._other = other
        return other

    def _relogged(self, costs):
        """The log of costs as it would be at other fixed costs."""
        if self._logged is self._listed:
            return costs
        factor = np.divide(costs, self._listed, out=np.ones_like(costs), where=self._listed > 0)
        return self._logged * factor

    def restricted(self, kept):
        """The policy that some choices are left to, for the time that the others are down.

        Solved for from the stored estimates and the log of `kept` alone: no label, no fit; the
        budget is used and held as after a fit without the others. `values`, `docked`,
        `planned` and `decide` then have one column for each of `kept`, in this order, and a
        route is a position in it. The last one is kept, so that asking again costs nothing.

        Parameters
        ----------
        kept : sequence of int
            Positions of the choices, of which there is at least one, rising.

        Returns
        -------
        PricedPolicy
        """
        kept = np.asarray(kept, dtype=np.int64)
        if len(kept) == self.quality.shape[1]:
            return self
        # Read once: another thread may ask for other choices meanwhile.
        known = self._variant
        if known is not None and np.array_equal(known[0], kept):
            return known[1]
        other = copy.copy(self)
        other.kept = kept if self.kept is None else self.kept[kept]
        for name in ("estimate", "alone", "quality"):
            setattr(other, name, np.ascontiguousarray(getattr(self, name)[:, kept]))
        other.sigma, other.added = self.sigma[kept], self.added[kept]
        other.fitted = None if self.fitted is None else self.fitted[:, kept]
        other.known = None if self.known is None else self.known.of(kept)
        if self.repeats is not None:
            values, planned = self.repeats.values[:, kept], self.repeats.planned
            planned = None if planned is None else planned[:, kept]
            other.repeats = self.repeats._replace(values=values, planned=planned)
        for name, like in (("planned", "costs"), ("_listed", "_logged")):
            own = np.ascontiguousarray(getattr(self, name)[..., kept])
            logged = getattr(self, like)
            # Where one stands for both, one does in the end.
            own_log = own if logged is getattr(self, name) else logged[..., kept].copy()
            setattr(other, name, own)
            setattr(other, like, own_log)
        other._solve(self.reg_lambda, other.costs, other.planned, self.deciding)
        self._variant = kept, other
        return other

    @property
    def per_row(self):
        """Whether costs are known, or estimated, row by row."""
        return self.planned.ndim == 2

    def estimates(self, features):
        """Quality of each choice for each row, before the penalty."""
        found = predict_matrix(self.estimator, features, self._n_outputs, "quality_estimator")
        return self.narrowed(found)

    def narrowed(self, outputs):
        """Columns of what all choices of `fit`, and later ones, have: those that there are."""
        return outputs if self.kept is None else outputs[:, self.kept]

    def values(self, features):
        """What each choice is worth for each row: its quality less the penalty."""
        return self.estimates(features) - self.docked

    def estimates_and_std(self, features):
        """Quality of each choice for each row, and the standard deviation of its error.

        The estimator's own where its `predict` takes ``return_std``, else that of the
        cross-fitted errors of estimates of about this size.
        """
        shape = -1, self._n_outputs
        if offers_std(self.estimator):
            with note_failure("quality_estimator", num_samples(features), "predict"):
                found = self.estimator.predict(features, return_std=True)
            found = [np.asarray(part, dtype=np.float64).reshape(shape) for part in found]
            return tuple(map(self.narrowed, found))
        estimates = self.estimates(features)
        if self._levels is None:
            table = self.quality if self.known is None else self.known.table
            self._levels = error_by_level(self.estimate, table)
            for k in np.flatnonzero(self.added):
                self._levels[k] = np.zeros(1), self.sigma[k : k + 1]
        pairs = zip(estimates.T, self._levels)
        return estimates, np.column_stack([np.interp(part, *level) for part, level in pairs])

    def room(self, budget):
        """What a mean budget leaves for choices, in realised cost."""
        room = (1 - self.margin) * (budget - self.deciding)
        # Of estimated costs the cheapest plan may seem more expensive than the budget.
        cheapest = float(self.path.budgets[0])
        return cheapest if affords(cheapest + self.deciding, budget) else room

    def rule(self, budget):
        """Price of a mean budget, and how ties at it are mixed (`Rule`)."""
        room = budget if budget == np.inf else self.room(budget)
        return bounded_rule(self.path, room, self.rate(budget))

    def rate(self, budget):
        """What one unit of cost is worth at least in the unit of quality."""
        return self.rates[budget == np.inf]

    def price(self, budget):
        """Price of a mean budget, which pays for deciding as well."""
        return self.rule(budget).price

    def decide(
        self,
        values,
        costs,
        budget,
        *,
        policy,
        objective="mean",
        told=False,
        draw=None,
        allowed=None,
    ):
        """Choose for each row and say what that costs, deciding included.

        Parameters
        ----------
        values : ndarray of shape (n_samples, n_choices)
        costs : ndarray of shape (n_choices,) or (n_samples, n_choices)
        budget : float
            Mean cost per row, deciding included.
        policy : {"online", "batch"}
        objective : {"mean", "min"}, default="mean"
        told : bool, default=False
            Whether `costs` are known of these rows, and not those of the log or estimates.
        draw : callable, default=None
            From positions of rows to uniform numbers, which say where rows go that are
            tied at the price. None sends them to the cheaper choice.
        allowed : ndarray of shape (n_samples, n_choices), dtype=bool, default=None
            Which choices each row may make, at least one.

        Returns
        -------
        Plan
            `quality` and `expected_cost` are corrected by what such choices have turned
            out to be on the rows of `fit`.

        Raises
        ------
        ValueError
            For a budget below the cheapest plan for these rows.
        """
        check_policy(policy, objective)
        rows, worth = np.arange(len(values)), values
        if allowed is not None:
            values, costs, stand_in = stand_ins(values, costs, allowed)
        least = self.least
        # One row alone has no mean that a budget could hold for.
        if policy == "batch" or (told and len(values) > 1):
            least = float(np.min(costs, axis=-1).mean()) + self.deciding
        estimated = self._realised is not None and not told
        check_affordable(budget, self.least if estimated else least)
        if policy == "online":
            low, high, share = choose_by_rule(values, costs, self.rule(budget))
            tied = np.flatnonzero(share)
            if draw is not None and len(tied):
                up = tied[draw(tied) < share[tied]]
                low[up] = high[up]
            route = low
        else:
            room = budget - self.deciding
            if estimated:
                room = self.path.planned_at(room)
                if allowed is not None and not affords(room, least - self.deciding):
                    raise ValueError(
                        f"budget={budget!r} does not pay for the cheapest choices that allowed "
                        f"leaves: by the costs that rows are decided by they come to {least:.6g} "
                        f"per sample, and the budget to {room + self.deciding:.6g}."
                    )
            room = max(room, least - self.deciding)
            net = values - self.rate(budget) * costs
            route = decide(net, costs, room, self.path, policy="batch", objective=objective)
        if allowed is not None:
            route = np.where(allowed[rows, route], route, stand_in)
        cost = np.broadcast_to(costs, values.shape)[rows, route]
        found = self.correction(budget)
        quality = worth[rows, route] + (self.docked + found.quality)[route]
        expected = cost * found.cost[route] if estimated else cost
        return Plan(route, cost + self.deciding, None, quality, expected + self.deciding)

    def _tables(self):
        """Costs and planned costs with one row for each row of the log."""
        shape = self.quality.shape
        return np.broadcast_to(self.costs, shape), np.broadcast_to(self.planned, shape)

    def validate(self, budget):
        """The cross-fitted decisions at a mean budget, judged by the log (`Validation`)."""
        check_affordable(budget, self.least)
        known = self._found
        if known is not None and known[0] == budget:
            return known[1]
        values = self.estimate - self.docked
        if self._part_paths is None:
            self._part_paths = part_paths(
                self.part,
                values,
                self.planned,
                self._realised,
                self._docked_repeats,
                self._own,
                self.weight,
            )
        room = budget if budget == np.inf else self.room(budget)
        costs, _ = self._tables()
        rate = self.rate(budget)
        found = validate(self._part_paths, room, values, self.planned, costs, self.quality, rate)
        found = found._replace(cost=found.cost + self.deciding)
        self._found = budget, found
        return found

    def correction(self, budget):
        """How estimates of the choices that are made at a budget are off (`Correction`)."""
        known = self._corrected
        if known is not None and known[0] == budget:
            return known[1]
        rule = self.rule(max(budget, self.least))
        choices = choose_by_rule(*self._decides, rule)
        costs, planned = self._tables()
        prior = PRIOR * (1.0 if self.known is None else self.known.prior)
        found = correct(choices, self.alone, self.quality, planned, costs, self.weight, prior)
        self._corrected = budget, found
        return found

    def curve(self):
        """Mean cost, deciding included, and mean quality over a range of prices."""
        if self._curve is None:
            prices = spread_prices(self.path, _N_CURVE)
            cost, quality = price_curve(self.estimate, self.quality, self.planned, prices)
            self._curve = cost + self.deciding, quality
        return self._curve

    def unlimited(self):
        """Quality of each row where cost is no object, ndarray of shape (n_rows,)."""
        if self._full is None:
            values = self.estimate - self.docked
            choices = choose_by_rule(values, self.planned, bounded_rule(self.path, np.inf, 0.0))
            self._full = choices.mean(self.quality)
        return self._full


def offers_std(estimator):
    """Whether `predict` says how uncertain it is when asked to."""
    if isinstance(estimator, Beside):
        estimator = estimator.estimator
    if isinstance(estimator, Pipeline):
        estimator = estimator[-1]
    try:
        return "return_std" in inspect.signature(estimator.predict).parameters
    except (TypeError, ValueError):
        return False


def cost_error(policy, budget):
    """Standard error of the cost of new rows at a mean budget; None where folds must say it.

    Be ``V`` the mean cost of the cross-fitted decisions, ``F`` what the fitted policy costs on
    new rows on average, and ``A`` the mean over the n rows of `fit` where each is decided as a new
    one is, by estimates of the fit without it and at the price of new rows:

        F - V = (F - A) + (A - V).

    ``A - V`` is known. Where a budget binds both are this budget but for luck. Where none does and
    choices are about as good, fits of fewer rows prefer another one than the fit of all, and folds
    that agree with each other do not tell.

    Where each row is left out alone, ``A`` is a mean of rows that are as new, given what was
    fitted: the variance of ``F - A`` is that of their costs over n. All of them are decided by one
    fit at one price, so that means of folds have nothing to add. Those of decisions at the prices
    of the other folds count rows twice: where a fold is expensive the others' price is lower,
    and K means spread by K / (K - 1) more than rows do; and the larger of two estimates, one of
    them from five means, is too large even where both are right on average.

    Rows that were left out alone are not quite as new: those that lie close together go one way
    together, and which one it is they say themselves. By how much their cost moves where the
    estimator has seen them is a third term.

    Parameters
    ----------
    policy : PricedPolicy
    budget : float

    Returns
    -------
    float
    """
    found, weight = policy.validate(budget), policy.weight
    rule, (values, planned), (costs, _) = policy.rule(budget), policy._decides, policy._tables()
    cost = choose_by_rule(values, planned, rule).mean(costs)
    apart = np.average(cost + policy.deciding - found.cost, weights=weight)
    if policy.fitted is None:
        return float(np.hypot(apart, standard_error(found.cost, policy.part, weight)))
    fitted = policy.fitted - policy.docked
    if policy.repeats is not None:
        fitted = policy.repeats.put(fitted, policy._docked_repeats.values)
    moved = choose_by_rule(fitted, planned, rule).mean(costs) - cost
    error = np.hypot(standard_error(cost, weight=weight), np.average(moved, weights=weight))
    return float(np.hypot(apart, error))


def fit_policy(
    estimator,
    X,
    quality,
    costs,
    *,
    folds,
    task,
    planned=None,
    cost_estimator=None,
    exchangeable=False,
    reg_lambda=0.0,
    deciding=0.0,
    n_jobs=None,
    fit_params=None,
    known=None,
    weight=None,
    handed=None,
):
    """Learn a policy from a log: cross-fitted estimates, and the estimator on all rows.

    Parameters
    ----------
    estimator : multi-output regressor
    X : indexable of n_rows rows
        What the estimator sees.
    quality : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_choices,) or (n_rows, n_choices)
    folds : list of (ndarray of int, ndarray of int)
    task : FitTask or None
    planned, reg_lambda, deciding
        As in `PricedPolicy`.
    cost_estimator : estimator, default=None
        Fitted on all rows, where `planned` are its cross-fitted estimates.
    exchangeable : bool, default=False
        Whether folds are drawn from the rows, so that none belong together.
    n_jobs : int, default=None
    fit_params : dict, default=None
        Metadata for the estimator's `fit`.
    known : Known, default=None
        Where `quality` has NaN: which cells are known.
    weight : ndarray of shape (n_rows,), default=None
        As in `PricedPolicy`.
    handed : float, default=None
        What a row counts as that is handed over, which is then the last choice of the policy,
        costs nothing and is not estimated. None where no row is.

    Returns
    -------
    PricedPolicy
    """
    with note_failure("quality_estimator", len(quality), "the quality estimate"):
        if knows_its_rows(estimator) and not fit_params:
            seen = None
            fitted, estimate, alone = cross_fit_once(
                estimator, X, quality, costs if planned is None else planned, folds, task, n_jobs
            )
        else:
            fitted, estimate = cross_fit(
                estimator, X, quality, folds, task, n_jobs, fit_params, "quality_estimator"
            )
            found = leave_one_out(fitted, X, quality) if exchangeable else None
            alone, seen = (None, None) if found is None else found

    def of_rows(rows):
        n_choices = quality.shape[1]
        values = predict_matrix(fitted, rows, n_choices, "quality_estimator")
        if cost_estimator is None:
            return values, None
        return values, predict_costs(cost_estimator, rows, n_choices)

    part = parts_of(folds, len(quality))
    judged = quality if known is None else known.judged(estimate)
    # Costs that are known row by row do not repeat.
    known_costs = np.ndim(costs) == 2 and planned is None
    repeats = None if known_costs else find_repeats(X, part, of_rows)
    if handed is not None:
        fitted = Beside(fitted, handed)
        estimate, judged = fitted.table(estimate), fitted.table(judged)
        alone = None if alone is None else fitted.table(alone)
        seen = None if seen is None else fitted.table(seen)
        costs, planned = with_handed(costs, handed), with_handed(planned, handed)
        known = None if known is None else known.with_handed(handed)
        if repeats is not None:
            own = with_handed(repeats.planned, handed)
            repeats = repeats._replace(values=fitted.table(repeats.values), planned=own)
    policy = PricedPolicy(
        fitted,
        estimate,
        judged,
        costs,
        planned=planned,
        reg_lambda=reg_lambda,
        deciding=deciding,
        part=part,
        repeats=repeats,
        alone=alone,
        known=known,
        weight=weight,
    )
    policy.fitted = seen
    return policy


def predict_costs(fitted, X, n_choices):
    """Estimated costs, which are never negative."""
    return np.maximum(predict_matrix(fitted, X, n_choices, "cost_estimator"), 0.0)


def cross_fit(estimator, X, target, folds, task, n_jobs, fit_params, name):
    """An estimator fitted on all rows, and out-of-sample estimates of the same rows."""
    fit_params = fit_params or {}
    step = nullcontext() if task is None else task.step(f"{name} on all rows")
    with note_encoder(X, name):
        estimate = out_of_sample_quality(
            estimator, X, target, folds, n_jobs, fit_params, task=task, name=name
        )
        with step:
            fitted = clone(estimator).fit(X, as_target(target), **fit_params)
    return fitted, estimate


def knows_its_rows(estimator):
    """Whether its fit gives estimates of its own rows out of sample.

    Not one derived from it, whose `predict` may be another, nor a frozen one, which would be
    fitted again.
    """
    from skroute.quality import QualityRegressor

    return type(estimator) is QualityRegressor


def cross_fit_once(estimator, X, quality, costs, folds, task, n_jobs):
    """The same of an estimator that gives the estimates of its own rows out of sample.

    And these made up as those of new rows are, for the price.
    """
    check_partition(folds, len(quality))
    fitted = clone(estimator)
    with nullcontext() if task is None else task.step("quality_estimator"):
        told = {"folds": folds, "costs": costs, "n_jobs": n_jobs, "return_kept": True}
        found = fitted.cross_fit(X, as_target(quality), **told)
    return fitted, *(part.reshape(quality.shape) for part in found)
