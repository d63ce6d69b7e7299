"""What a policy would have done on the rows that it was learned from, judged by the log."""

from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags

from skroute.assignment import Rule, assignment_path, choose_at_price
from skroute.routing._draws import row_keys
from skroute.routing._values import predict_matrix
from skroute.utils._compat import num_samples

# Rows that occur this often are decided in `fit` as they will be later: all alike.
_MANY = 20
# The price is learned without each of this many parts of the rows at most.
_MAX_PARTS = 10
_TIE = 1e-9
# Leverages are for tables of as many columns at most.
_MANY_COLUMNS = 1000
# Rows of evidence that the figures of a single choice are shrunk by towards those of all.
PRIOR = 20.0


class Repeats(NamedTuple):
    """Rows whose features occur many times, and what the fitted estimators make of them.

    A new row with such features gets exactly these numbers: the cross-fitted ones of its
    copies lie to both sides of a price where the fitted estimator's lies to one.

    Attributes
    ----------
    code : ndarray of shape (n_rows,), dtype=int64
        Which of the frequent rows each row is, -1 for the others.
    values : ndarray of shape (n_frequent, n_choices)
    planned : ndarray of shape (n_frequent, n_choices) or None
        Estimated costs, where these are learned.
    """

    code: np.ndarray
    values: np.ndarray
    planned: np.ndarray | None

    def put(self, table, own):
        """A table with one row for each row, those of the frequent rows replaced."""
        table = table.copy()
        frequent = self.code >= 0
        table[frequent] = own[self.code[frequent]]
        return table


def find_repeats(X, part, estimate_of):
    """Frequent rows among those of a fit.

    Copies that the folds keep together stand for rows that will be new: they stay as the
    folds have them.

    Parameters
    ----------
    X : indexable of n_rows rows
    part : ndarray of shape (n_rows,), dtype=int64
        Fold of each row.
    estimate_of : callable
        From some rows of X to what `Repeats` holds of them, ``(values, planned)``.

    Returns
    -------
    Repeats or None
        None where no row is frequent.
    """
    _, first, code, counts = np.unique(
        row_keys(X), return_index=True, return_inverse=True, return_counts=True
    )
    low, high = np.full(len(counts), part.max()), np.zeros(len(counts), dtype=part.dtype)
    np.minimum.at(low, code, part)
    np.maximum.at(high, code, part)
    frequent = np.flatnonzero((counts >= _MANY) & (low < high))
    if not len(frequent):
        return None
    number = np.full(len(counts), -1)
    number[frequent] = np.arange(len(frequent))
    return Repeats(number[code], *estimate_of(_safe_indexing(X, first[frequent])))


class Alone(NamedTuple):
    """Estimates of the rows of a fit by the fitted estimator.

    Attributes
    ----------
    without : ndarray of shape (n_rows, n_outputs)
        Each by the fit without that row.
    fitted : ndarray of shape (n_rows, n_outputs)
        Each by the fit as it is.
    """

    without: np.ndarray
    fitted: np.ndarray


def leave_one_out(fitted, X, target):
    """What neighbours, or least squares, make of each of their own rows without it.

    The estimates of folds rest on fewer rows than those of later ones, and lie further from
    the price or nearer to it; these do not. Without the nearest of n rows, which is the row
    itself, the weights of the others are those of the exact limit over n - 1 rows:
    ``(f(x) - w_1 y) / (1 - w_1)``. For least squares, with a penalty or without, this is exact, the
    weight of a row in its own estimate being its leverage.

    Parameters
    ----------
    fitted : estimator
    X : indexable of n_rows rows that it was fitted on
    target : ndarray of shape (n_rows, n_outputs)

    Returns
    -------
    Alone or None
        None of other estimators, or where what comes before them reads the target.
    """
    from skroute.quality import BaggedNeighborsRegressor

    before, last = [], fitted
    if isinstance(fitted, Pipeline):
        before, last = [step for _, step in fitted.steps[:-1]], fitted[-1]
    reads_target = any(
        hasattr(step, "__sklearn_tags__") and get_tags(step).target_tags.required for step in before
    )
    if reads_target:
        return None
    # Not one derived from them, which may read rows in its own way.
    if type(last) in (LinearRegression, Ridge):
        estimate = predict_matrix(fitted, X, target.shape[1], "quality_estimator")
        for step in before:
            X = X if step == "passthrough" else step.transform(X)
        own = leverages(last, X, target, estimate)
        return None if own is None else Alone((estimate - own * target) / (1 - own), estimate)
    if not isinstance(last, BaggedNeighborsRegressor) or last.weights_ is None:
        return None
    own = last.weights_[0]
    # Of equal rows none is the nearest alone: they share their weights.
    if own > 0.5 or len(np.unique(row_keys(X))) < num_samples(X):
        return None
    estimate = predict_matrix(fitted, X, target.shape[1], "quality_estimator")
    return Alone((estimate - own * target) / (1 - own), estimate)


def leverages(model, X, target, estimate):
    """The weight of each row in its own estimate by least squares.

    Parameters
    ----------
    model : LinearRegression or Ridge
        Fitted.
    X : indexable of n_rows rows that it was fitted on
    target, estimate : ndarray of shape (n_rows, n_outputs)

    Returns
    -------
    ndarray of shape (n_rows, 1) or None
        None where rows are no dense table of more rows than columns, where the fit was another
        one (weights, signs, a penalty for each output), where a row decides its own estimate, or
        where columns are all but collinear.
    """
    penalty = getattr(model, "alpha", 0.0)
    if hasattr(X, "tocsr") or np.ndim(X) != 2 or np.ndim(penalty) or not np.isfinite(target).all():
        return None
    X = np.asarray(X, dtype=np.float64)
    n_rows, n_columns = X.shape
    if n_columns > min(n_rows - 1, _MANY_COLUMNS):
        return None
    mean = target.mean(axis=0) if model.fit_intercept else 0.0
    X = X - X.mean(axis=0) if model.fit_intercept else X
    directions, lengths, _ = np.linalg.svd(X, full_matrices=False)
    largest = lengths.max(initial=0.0)
    there = lengths > 1e-13 * largest
    doubtful = (lengths < 1e-7 * largest) & (there | hasattr(model, "alpha"))
    if doubtful.any() and penalty < 1e-10 * largest**2:
        # Rounding says whether the fit reads this direction; ridge cuts off none.
        return None
    share = np.where(there, lengths**2 / np.where(there, lengths**2 + penalty, 1.0), 0.0)
    again = (directions * share) @ (directions.T @ (target - mean)) + mean
    own = (directions**2 @ share)[:, np.newaxis] + model.fit_intercept / n_rows
    scale = max(float(np.abs(estimate).max()), 1e-300)
    if own.max() > 0.5 or not np.allclose(again, estimate, rtol=0, atol=1e-4 * scale):
        return None
    return own


def weighted_path(values, costs, realised, weight):
    """The path of rows that need not all count the same, or whose realised costs may be negative.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_choices)
    costs, realised : ndarray of shape (n_choices,) or (n_rows, n_choices)
        As `assignment_path` takes them; `realised` may be None.
    weight : ndarray of shape (n_rows,) or None
        A row of weight two stands for two: its values and its costs are twice as large, so
        that what it chooses at a price stays.

    Returns
    -------
    AssignmentPath
    """
    # A log of one answer may estimate costs below 0. One choice is made in each row: what is
    # added to all costs is added to every budget.
    lift = 0.0 if realised is None else -min(float(realised.min()), 0.0)
    if lift:
        realised = realised + lift
    if weight is not None:
        each = (weight / weight.mean())[:, np.newaxis]
        values, costs = values * each, costs * each
        realised = None if realised is None else realised * each
    path = assignment_path(values, costs, realised)
    return path._replace(budgets=np.maximum(path.budgets - lift, 0.0)) if lift else path


def bounded_rule(path, room, rate):
    """The rule of what is left for choices, at a price of at least the exchange rate."""
    rule = Rule(0.0, 0.0) if room == np.inf else path.rule(room)
    return rule if rule.price >= rate else Rule(float(rate), 0.0)


def parts_of(folds, n_rows):
    """Number of the fold that tests each row; parts at random where only their number is known."""
    if folds is None or isinstance(folds, int):
        return np.random.default_rng(0).permutation(n_rows) % min(5, n_rows)
    part = np.zeros(n_rows, dtype=np.int64)
    for number, (_, test) in enumerate(folds):
        part[test] = number
    return part


class Choices(NamedTuple):
    """Choices at a rule: rows tied at the price may go either way.

    Attributes
    ----------
    low, high : ndarray of shape (n_rows,), dtype=int64
        The same where a row is not tied.
    share : ndarray of shape (n_rows,)
        How often it goes `high`.
    """

    low: np.ndarray
    high: np.ndarray
    share: np.ndarray

    def mean(self, table):
        """For each row the mean of its entries in a table (n_rows, n_choices)."""
        rows = np.arange(len(self.low))
        low, high = table[rows, self.low], table[rows, self.high]
        return low + self.share * (high - low)

    def totals(self, table):
        """For each choice the sum of the table's entries over the rows that make it."""
        rows, m = np.arange(len(self.low)), table.shape[1]
        low = (1 - self.share) * table[rows, self.low]
        high = self.share * table[rows, self.high]
        return np.bincount(self.low, low, m) + np.bincount(self.high, high, m)


def choose_by_rule(values, costs, rule):
    """Choices of rows that are decided alone, ties left open.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_choices)
    costs : ndarray of shape (n_choices,) or (n_rows, n_choices)
    rule : Rule

    Returns
    -------
    Choices
    """
    low = choose_at_price(values, costs, rule.price)
    if not rule.share:
        return Choices(low, low, np.zeros(len(low)))
    high = choose_at_price(values, costs, rule.price, tolerance=-_TIE)
    return Choices(low, high, np.where(low == high, 0.0, rule.share))


class Validation(NamedTuple):
    """What the cross-fitted policy does on the rows that it was learned from.

    Each row is decided at a price that was learned without its fold, by estimates that
    were: nothing that picked a decision judges it.

    Attributes
    ----------
    choices : Choices
    quality : ndarray of shape (n_rows,)
        Logged quality of the choices, the mean over ties.
    cost : ndarray of shape (n_rows,)
        Logged cost, `deciding` included.
    """

    choices: Choices
    quality: np.ndarray
    cost: np.ndarray


class Correction(NamedTuple):
    """What a choice that was made is worth beyond its estimate, which is why it was made.

    Attributes
    ----------
    quality : ndarray of shape (n_choices,)
        Added to the estimated quality of a choice that is made.
    cost : ndarray of shape (n_choices,)
        Factor of its planned cost.
    """

    quality: np.ndarray
    cost: np.ndarray


def part_paths(part, values, planned, realised, repeats, own, weight=None):
    """For each part of the rows the path of the others.

    Parameters
    ----------
    part : ndarray of shape (n_rows,), dtype=int64
    values : ndarray of shape (n_rows, n_choices)
        Cross-fitted.
    planned, realised : ndarray of shape (n_choices,) or (n_rows, n_choices)
        As `assignment_path` takes them; `realised` may be None.
    repeats : Repeats or None
    own : bool
        Whether the estimates of each part are those of one model, fitted on the others.
    weight : ndarray of shape (n_rows,), default=None

    Returns
    -------
    list of (ndarray of int, AssignmentPath)
        Rows of the part, and the path of the others.
    """
    numbers = np.unique(part)
    if len(numbers) > _MAX_PARTS:
        own = False
        part = part % _MAX_PARTS
        numbers = np.unique(part)
    found = []
    for number in numbers:
        rows, others = np.flatnonzero(part == number), np.flatnonzero(part != number)
        if not len(others):
            others = rows
        known, costs = values, planned
        if repeats is not None:
            # What the models without this part make of frequent rows: its copies tell.
            tested = rows[repeats.code[rows] >= 0]
            at = repeats.code[tested]
            frequent = repeats.values.copy()
            if own:
                frequent[at] = values[tested]
            known = repeats.put(values, frequent)
            if repeats.planned is not None:
                frequent = repeats.planned.copy()
                if own:
                    frequent[at] = planned[tested]
                costs = repeats.put(planned, frequent)
        own_weight = None if weight is None else weight[others]
        path = weighted_path(known[others], _of(costs, others), _of(realised, others), own_weight)
        found.append((rows, path))
    return found


def _of(costs, rows):
    return costs if costs is None or costs.ndim == 1 else costs[rows]


def validate(paths, room, values, planned, realised, quality, rate=0.0):
    """The cross-fitted decisions at what a budget leaves after deciding.

    Parameters
    ----------
    paths : list
        From `part_paths`.
    room : float
    values, planned : ndarray
        As in `part_paths`.
    realised : ndarray of shape (n_rows, n_choices)
    quality : ndarray of shape (n_rows, n_choices)
    rate : float, default=0.0
        The least price.

    Returns
    -------
    Validation
    """
    n = len(values)
    low, high, share = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
    for rows, path in paths:
        rule = bounded_rule(path, room, rate)
        part = choose_by_rule(values[rows], _of(planned, rows), rule)
        low[rows], high[rows], share[rows] = part
    choices = Choices(low, high, share)
    return Validation(choices, choices.mean(quality), choices.mean(realised))


def correct(choices, estimate, quality, planned, realised, weight=None, prior=PRIOR):
    """What is left of the winner's curse, by choice.

    Parameters
    ----------
    choices : Choices
    estimate, quality, planned, realised : ndarray of shape (n_rows, n_choices)
    weight : ndarray of shape (n_rows,), default=None
    prior : float
        Rows that a choice is shrunk by.

    Returns
    -------
    Correction
        A choice that few rows made is shrunk towards all of them.
    """
    each_row = np.ones((len(quality), 1)) if weight is None else weight[:, np.newaxis]
    made = choices.totals(np.broadcast_to(each_row, quality.shape))
    error = choices.totals((quality - estimate) * each_row)
    overall = error.sum() / made.sum()
    cost, plan = choices.totals(realised * each_row), choices.totals(planned * each_row)
    ratio = cost.sum() / plan.sum() if plan.sum() > 0 else 1.0
    each = prior * plan / np.maximum(made, 1.0)
    factor = np.full(len(made), ratio)
    np.divide(cost + ratio * each, plan + each, out=factor, where=plan > 0)
    return Correction((error + prior * overall) / (made + prior), np.maximum(factor, 0.0))


def error_by_level(estimate, quality, n_levels=10, least=30):
    """Cross-fitted error of each choice's estimate, by the size of the estimate.

    Parameters
    ----------
    estimate, quality : ndarray of shape (n_rows, n_choices)
    n_levels : int, default=10
        Levels with equally many rows.
    least : int, default=30
        Rows that a level has at least, where there are as many.

    Returns
    -------
    list of (ndarray of shape (n_levels,), ndarray of shape (n_levels,))
        For each choice the mean estimate of each level, and the root mean squared error.
    """
    found = []
    for value, truth in zip(estimate.T, quality.T):
        known = ~np.isnan(truth)
        value, truth = value[known], truth[known]
        some = int(np.clip(len(value) // least, 1, n_levels))
        levels = np.array_split(np.argsort(value, kind="stable"), some)
        middle = np.array([value[rows].mean() for rows in levels])
        error = np.array([np.sqrt(np.mean((truth[rows] - value[rows]) ** 2)) for rows in levels])
        found.append((middle, error))
    return found


def standard_error(rows, part=None, weight=None):
    """Standard error of a mean over rows whose decisions were learned part by part.

    Parameters
    ----------
    rows : ndarray of shape (n_rows,)
    part : ndarray of shape (n_rows,), dtype=int64, default=None
        None where all decisions are those of one fit: the rows are independent then.
    weight : ndarray of shape (n_rows,), default=None
        Of each row in the mean.

    Returns
    -------
    float
        That of independent rows or, where it is larger, that of the parts' means: what was
        learned differs from part to part, and the fitted estimator from all of them.
    """
    if len(rows) < 2:
        return np.nan
    if weight is not None:
        # What each row adds to the weighted mean, in the first order.
        mean = np.average(rows, weights=weight)
        rows = mean + (rows - mean) * weight / weight.mean()
    found = rows.std(ddof=1) / np.sqrt(len(rows))
    numbers = () if part is None else np.unique(part)
    if len(numbers) > 1:
        means = np.array([rows[part == number].mean() for number in numbers])
        found = max(found, means.std(ddof=1) / np.sqrt(len(numbers)))
    return float(found)
