"""Adapt-Lin: linear gate and cheap model with group-sparse features.

The coefficients ``W`` have a column for each output of f1, and a last column for the
gate g. Rows of W are features. Features that are bought together form a group. The last
feature is 1, so that its coefficients are the intercepts. It is alone in the last
group, which costs nothing.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from skroute.gating._levels import lowest_level
from skroute.gating._objective import (
    class_losses,
    kl_objective,
    modelled_probabilities,
    output_targets,
    q_step,
)
from skroute.gating._pairs import FittedPair, Gate, Pair
from skroute.utils._compat import Integral, Interval, Real
from skroute.utils._tolerances import ROUNDING
from skroute.utils._typing import NDArray

__all__ = ["LinearGate"]

# Weight of the squared coefficients. It keeps the optimum finite on separable data, and
# the duality gap finite at every point.
RIDGE = 1e-4

# Largest number of proximal steps. Nearly all problems reach the duality gap in fewer.
_MAX_STEPS = 2000

# Proximal steps from one evaluation of the duality gap to the next. The gap costs about
# as much as a step.
_STEPS_PER_GAP = 10

# Largest duality gap of a fit of cheap model and gate for fixed q (OPT2), as a share of
# the tolerance of the alternation. It is small, so that the error of a fit does not end
# the alternation.
_GAP_SHARE = 0.1

# Number of groups that are tried alone for the second start. It bounds the time of a
# fit.
_N_SINGLE_GROUPS = 8

# In place of the code of a category: the column has numbers.
_NUMBERS = np.inf

# In place of the code of a category: the column indicates missing cells.
_MISSING = np.nan

# Weight, in rows, that a category needs for a column of its own: a linear model learns
# nothing from a single row.
_MIN_CATEGORY_WEIGHT = 2


class LinearColumns(NamedTuple):
    """Columns of the linear model: numbers, and indicators (0 or 1) of raw cells.

    A raw column of numbers stays a column. A raw column of categories becomes an
    indicator for each category. If cells of a raw column are missing, it gets an
    indicator of them, too.

    Attributes
    ----------
    origin : ndarray of shape (n_columns,), dtype=int64
        Raw column of each column.

    level : ndarray of shape (n_columns,)
        Code of the category that a column indicates, NaN for an indicator of missing
        cells, and infinite for a column of numbers.

    mean : ndarray of shape (n_raw_columns,)
        Mean of each raw column of numbers. It replaces missing numbers. 0 for a column
        of categories.
    """

    origin: NDArray[np.int64]
    level: NDArray[np.float64]
    mean: NDArray[np.float64]

    @classmethod
    def of(cls, values, weight, categorical):
        """Return the columns of the linear model for training rows.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_raw_columns)
            Numbers and codes of categories. NaN where a cell is missing.

        weight : ndarray of shape (n_rows,)
            Weights in units of one row.

        categorical : ndarray of bool of shape (n_raw_columns,)
            True for columns of codes.

        Returns
        -------
        LinearColumns
        """
        # For each column of the linear model its raw column, and its level: the code of
        # its category, `_MISSING` or `_NUMBERS`.
        origins = []
        levels = []
        n_raw_columns = values.shape[1]
        mean = np.zeros(n_raw_columns)
        share = weight / weight.sum()
        for position, column in enumerate(values.T):
            is_present = ~np.isnan(column)
            if categorical[position]:
                codes, code_of_row = np.unique(column[is_present], return_inverse=True)
                code_weights = np.bincount(code_of_row, weight[is_present])
                # Rare categories have no column.
                is_frequent = code_weights >= _MIN_CATEGORY_WEIGHT
                new_levels = list(codes[is_frequent])
            else:
                new_levels = [_NUMBERS]
                # If all cells are missing, the mean stays 0.
                if is_present.any():
                    mean[position] = np.average(
                        column[is_present], weights=share[is_present]
                    )
            if not is_present.all():
                new_levels.append(_MISSING)
            origins += [position] * len(new_levels)
            levels += new_levels
        return cls(
            origin=np.array(origins, dtype=np.int64),
            level=np.array(levels, dtype=np.float64),
            mean=mean,
        )

    def expand(self, values, columns=slice(None)):
        """Turn raw rows into the columns of the linear model, all of them or some.

        Parameters
        ----------
        values : ndarray of shape (n_rows, n_raw_columns)

        columns : ndarray of int or slice, default=slice(None)
            Columns of the linear model that are returned. The default takes all.

        Returns
        -------
        ndarray of shape (n_rows, n_selected_columns)
        """
        origin = self.origin[columns]
        level = self.level[columns]
        raw = values[:, origin]
        is_missing = np.isnan(raw)
        # The level of an indicator of missing cells is NaN.
        indicates_missing = np.isnan(level)
        is_indicated = (raw == level) | (is_missing & indicates_missing)
        # The level of a column of numbers is infinite.
        has_numbers = np.isinf(level)
        numbers = np.where(is_missing, self.mean[origin], raw)
        return np.where(has_numbers, numbers, is_indicated)


class LinearRows(NamedTuple):
    """Training rows with standardised columns, for the linear model.

    Attributes
    ----------
    columns : LinearColumns

    standardised : ndarray of shape (n_rows, n_columns + 1)
        Columns with mean 0 and variance 1, and a last one of ones.

    mean, scale : ndarray of shape (n_columns,)
        Mean and standard deviation of the columns. `scale` is infinite for a constant
        column, so that its standardised column is 0.
    """

    columns: LinearColumns
    standardised: NDArray[np.float64]
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]


@dataclass
class LinearPair(Pair):
    """Linear cheap model f1 and gate g.

    Attributes
    ----------
    columns : LinearColumns

    coef : ndarray of shape (n_columns, n_outputs + 1)
        Coefficients of each output of the cheap model and, in the last column, of the
        gate.

    intercept : ndarray of shape (n_outputs + 1,)
    """

    columns: LinearColumns
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    reads_cheap = False

    def __post_init__(self):
        """Set the columns that the cheap model and the gate read."""
        # Columns of the linear model with a coefficient other than 0. The last
        # coefficient of each is that of the gate.
        self._cheap_columns = np.flatnonzero(self.coef[:, :-1].any(axis=1))
        self._gate_columns = np.flatnonzero(self.coef[:, -1])
        self.cheap_features = np.unique(self.columns.origin[self._cheap_columns])
        self.gate_features = np.unique(self.columns.origin[self._gate_columns])

    def cheap_scores(self, values):
        """Return the scores of the cheap model f1, shape (n_rows, n_outputs)."""
        used = self._cheap_columns
        expanded = self.columns.expand(values, used)
        return expanded @ self.coef[used, :-1] + self.intercept[:-1]

    def gate_scores(self, values, cheap_scores):
        """Return the scores of the gate, shape (n_rows,).

        They do not depend on `cheap_scores`, which is None.
        """
        used = self._gate_columns
        expanded = self.columns.expand(values, used)
        return expanded @ self.coef[used, -1] + self.intercept[-1]


class LinearGate(Gate):
    """Linear cheap model and gate with a group-sparse penalty: Adapt-Lin.

    It is a value of the parameter `gate` of :class:`AdaptGatingClassifier` (Algorithm
    1). The penalty ``gamma * sum_a sqrt(c_a) ||(g_a, f1_a)||`` is a convex relaxation
    of the cost of the features in use.

    Parameters
    ----------
    max_iter : int, default=10
        Largest number of alternations. Raising it may lower the objective.

    tol : float, default=1e-5
        Stop when the objective falls by less.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skroute.gating import AdaptGatingClassifier, LinearGate
    >>> AdaptGatingClassifier(LogisticRegression(), gate=LinearGate(tol=1e-3)).gate.tol
    0.001
    """

    _parameter_constraints: dict = {
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, *, max_iter=10, tol=1e-5):
        self.max_iter = max_iter
        self.tol = tol

    def prepare(self, rows, categorical):
        """Return the columns of the linear model and the standardised rows.

        Parameters
        ----------
        rows : Rows

        categorical : ndarray of bool of shape (n_raw_columns,)
            True for columns of codes of categories.

        Returns
        -------
        LinearRows
        """
        weight = rows.weight / rows.weight.sum()
        columns = LinearColumns.of(rows.values, rows.weight, categorical)
        values = columns.expand(rows.values)
        mean = weight @ values
        scale = np.sqrt(weight @ (values - mean) ** 2)
        # The scale of a constant column is rounding error, which must not be a divisor.
        # An infinite scale makes the standardised column 0.
        scale[scale <= ROUNDING * np.abs(mean)] = np.inf
        standardised = with_ones((values - mean) / scale)
        return LinearRows(columns, standardised=standardised, mean=mean, scale=scale)

    def fit_pair(self, rows, held_out, prepared, problem, n_jobs, progress):
        """Fit cheap model and gate from two starts, and return the better pair.

        The parameters are those of :meth:`Gate.fit_pair`. `held_out` and `n_jobs` are
        not used. `prepared` has the standardised columns of the rows to fit on.
        """
        # A column of the linear model is in the group of the raw column that it was
        # made from, its `origin`. The intercepts are the last column, in a group of
        # their own that costs 0.
        group_of_columns = problem.group_of[prepared.columns.origin]
        group_of_intercept = len(problem.group_costs)
        column_problem = problem._replace(
            group_of=np.append(group_of_columns, group_of_intercept),
            group_costs=np.append(problem.group_costs, 0.0),
        )
        fit = adapt_linear_multistart(
            prepared.standardised,
            rows,
            column_problem,
            max_iter=self.max_iter,
            tol=self.tol,
            progress=progress,
        )
        # W has the coefficients of standardised columns, and the intercepts in its last
        # row. They are converted to coefficients and intercepts of the raw scale.
        coef = fit.W[:-1] / prepared.scale[:, None]
        intercept = fit.W[-1] - prepared.mean @ coef
        return FittedPair(
            pair=LinearPair(prepared.columns, coef, intercept),
            objectives=fit.objectives,
            held_out_objectives=[],
            n_iter=len(fit.objectives),
        )

    def level(self, gate, gain, weight, p_full, n_standard_errors):
        """Return the lowest level (0 or more) with at most a share `p_full` above it.

        The parameters are those of :meth:`Gate.level`. `gain` is not used.
        """
        return max(0.0, lowest_level(gate, weight, p_full))


def with_ones(values):
    """Return features (n_rows, n_columns) with a last column of ones for intercepts."""
    return np.column_stack([values, np.ones(len(values))])


# Cheap model and gate for fixed q: the problem (OPT2) of the paper --------------------


class Smooth(NamedTuple):
    """Value and gradient of the smooth part of an objective at a point.

    Attributes
    ----------
    value : float

    gradient : ndarray of shape (n_rows, n_outputs)
        Gradient of the value with respect to the scores.
    """

    value: float
    gradient: NDArray[np.float64]


def loss_kl(scores, y, q, weight):
    """Return mean loss and gradient, for given probabilities q of the full model.

    This is the smooth part of the problem (OPT2) of Algorithm 1: the logistic loss of
    the cheap model with the weights 1 - q, plus the logistic loss of the gate against
    q.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_outputs + 1)
        Scores of the cheap model and, in the last column, of the gate.

    y : ndarray of int of shape (n_rows,)
        Position of the class of each row.

    q : ndarray of shape (n_rows,)
        Probability with which each row is sent to the full model.

    weight : ndarray of shape (n_rows,)
        Weights with sum 1.

    Returns
    -------
    Smooth
    """
    gate = scores[:, -1]
    cheap = cheap_part(scores[:, :-1], y, weight * (1 - q))
    # q log(1 + e^-g) + (1 - q) log(1 + e^g) is log(1 + e^g) - q g.
    gate_value = (weight * (np.logaddexp(0, gate) - q * gate)).sum()
    gate_gradient = weight * (expit(gate) - q)
    return Smooth(
        value=float(cheap.value + gate_value),
        gradient=np.column_stack([cheap.gradient, gate_gradient]),
    )


def cheap_part(scores, y, cheap_weight):
    """Return the loss of the cheap model, with its gradient in the scores.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_outputs)
        Scores of the cheap model.

    y : ndarray of int of shape (n_rows,)
        Position of the class of each row.

    cheap_weight : ndarray of shape (n_rows,)
        Weight with which the cheap model answers each row.

    Returns
    -------
    Smooth
    """
    # Derivative of the logistic loss in the scores. (n_rows, n_outputs)
    error = modelled_probabilities(scores) - output_targets(y, scores.shape[1])
    return Smooth(
        value=(cheap_weight * class_losses(scores, y)).sum(),
        gradient=cheap_weight[:, None] * error,
    )


def group_norms(W, group_of, n_groups):
    """Return the Frobenius norm of the rows of each group, shape (n_groups,).

    Parameters
    ----------
    W : ndarray of shape (n_features, n_outputs)
        Coefficients.

    group_of : ndarray of int of shape (n_features,)
        Group of each row of `W`.

    n_groups : int
    """
    squares = (W**2).sum(axis=1)
    return np.sqrt(np.bincount(group_of, weights=squares, minlength=n_groups))


def prox_group_norm(W, group_of, thresholds):
    """Shrink the coefficients of each group by its threshold (block soft-thresholding).

    It is the proximal operator of ``sum_a threshold_a ||W_a||_F``.

    Parameters
    ----------
    W : ndarray of shape (n_features, n_outputs)
        Coefficients.

    group_of : ndarray of int of shape (n_features,)
        Group of each row of `W`.

    thresholds : ndarray of shape (n_groups,)
        Amount by which the norm of each group is shrunk.

    Returns
    -------
    ndarray of the shape of `W`
    """
    norms = group_norms(W, group_of, len(thresholds))
    # A group of norm 0 stays 0. The divisor 1 avoids a division by 0.
    divisors = np.where(norms > 0, norms, 1.0)
    # The factor of each group. It is 0 if the norm is at most the threshold.
    factors = np.maximum(1 - thresholds / divisors, 0.0)
    return W * factors[group_of][:, None]


def penalty(W, group_of, thresholds):
    """Return the penalty of coefficients: weighted norms of the groups, plus the ridge.

    Parameters
    ----------
    W : ndarray of shape (n_features, n_outputs)
        Coefficients.

    group_of : ndarray of int of shape (n_features,)
        Group of each row of `W`.

    thresholds : ndarray of shape (n_groups,)
        Weight of the norm of each group in the penalty.

    Returns
    -------
    float
    """
    group_penalty = thresholds @ group_norms(W, group_of, len(thresholds))
    return float(group_penalty + 0.5 * RIDGE * (W**2).sum())


def duality_gap(W, gradient, group_of, thresholds):
    """Return the duality gap at W, with the gradient of the loss as dual point.

    With this dual point, the loss terms cancel (Fenchel-Young). V is the gradient with
    respect to W, and Omega_a the penalty of group a. The gap is ``sum_a Omega_a(W_a) +
    <W_a, V_a> + Omega_a^*(-V_a)``, with ``Omega_a^*(-V) = (||V|| - threshold_a)_+^2 /
    (2 ridge)``.

    Parameters
    ----------
    W : ndarray of shape (n_features, n_outputs)
        Coefficients.

    gradient : ndarray of shape (n_features, n_outputs)
        Gradient of the loss with respect to `W`, at `W`.

    group_of : ndarray of int of shape (n_features,)
        Group of each row of `W`.

    thresholds : ndarray of shape (n_groups,)
        Weight of the norm of each group in the penalty.

    Returns
    -------
    float
        A bound of the distance to the optimal objective.
    """
    gradient_norms = group_norms(gradient, group_of, len(thresholds))
    excess = np.maximum(gradient_norms - thresholds, 0.0)
    # The second and the third term of the gap.
    other_terms = (W * gradient).sum() + (excess**2).sum() / (2 * RIDGE)
    return float(penalty(W, group_of, thresholds) + other_terms)


def accelerated_proximal_gradient(
    X, loss, W, group_of, thresholds, *, curvature, tol, max_iter=_MAX_STEPS
):
    """Minimise ``loss(X W) + penalty``: the linear case of (OPT2).

    The method is FISTA with a fixed step. Momentum is restarted when it points uphill
    (O'Donoghue and Candes' gradient scheme). The duality gap is computed every tenth
    step. The steps end when the gap is at most `tol`. The objective at the result is
    never above the objective at the start.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Standardised features and ones.

    loss : callable
        ``loss(scores)`` returns a :class:`Smooth`.

    W : ndarray of shape (n_features, n_outputs)
        The start.

    group_of : ndarray of shape (n_features,), dtype=int
        Group of each row of `W`.

    thresholds : ndarray of shape (n_groups,)
        Weight of the norm of each group.

    curvature : float
        Upper bound of the eigenvalues of the Hessian of the loss in W.

    tol : float
        Stop at a duality gap of at most this.

    max_iter : int
        Largest number of steps.

    Returns
    -------
    W : ndarray of shape (n_features, n_outputs)

    gap : float
        The last duality gap, a bound of the distance to the optimal objective.
    """
    step = 1.0 / (curvature + RIDGE)
    best_W = W
    best_value = loss(X @ W).value + penalty(W, group_of, thresholds)
    # The point to which momentum extrapolates. The gradient is taken there.
    ahead = W
    # The number t_k of FISTA, which rises from 1 with each step. Momentum adds the
    # share (t - 1) / next_t of the last change: nothing if t is 1.
    t = 1.0
    gap = np.inf  # not computed yet
    for iteration in range(1, max_iter + 1):
        # The gradient of the smooth part of the objective, which is the loss plus the
        # ridge.
        gradient = X.T @ loss(X @ ahead).gradient + RIDGE * ahead
        new_W = prox_group_norm(ahead - step * gradient, group_of, step * thresholds)
        change = new_W - W
        points_uphill = ((ahead - new_W) * change).sum() > 0
        if points_uphill:
            t = 1.0  # restart: no momentum in this step
        next_t = 0.5 * (1 + np.sqrt(1 + 4 * t**2))
        ahead = new_W + (t - 1) / next_t * change
        W = new_W
        t = next_t
        if iteration % _STEPS_PER_GAP == 0 or iteration == max_iter:
            smooth = loss(X @ W)
            value = smooth.value + penalty(W, group_of, thresholds)
            if value <= best_value:
                best_W = W
                best_value = value
            gap = duality_gap(W, X.T @ smooth.gradient, group_of, thresholds)
            if gap <= tol:
                break
    return best_W, gap


# Alternation: Algorithm 1 of the paper (Adapt-Lin) ------------------------------------


class LinearFit(NamedTuple):
    """Result of :func:`adapt_linear`: coefficients and objectives.

    Attributes
    ----------
    W : ndarray of shape (n_features, n_outputs + 1)
        Coefficients of f1 and, in the last column, of the gate.

    objectives : list of float
        Objective (OPT) of the paper after each alternation. It never rises.
    """

    W: NDArray[np.float64]
    objectives: list


class _LinearProblem:
    """The objective (OPT) of a linear cheap model and gate, and its minimiser.

    The parameters are those of :func:`adapt_linear`.
    """

    def __init__(self, X, rows, problem, tol):
        """Store the rows, and compute the bounds that the minimiser needs."""
        self.X = X
        self.y = rows.y
        self.full_loss = rows.full_loss
        self.weight = rows.weight / rows.weight.sum()
        self.group_of = problem.group_of
        # Weight of the norm of each group in the penalty.
        self.thresholds = problem.gamma * np.sqrt(problem.group_costs)
        # Upper bound of the eigenvalues of the Hessian of the logistic loss in the
        # scores: a quarter for one score, a half for a softmax. The gate has one score.
        score_curvature = 0.25 if problem.n_outputs == 1 else 0.5
        self.curvature = score_curvature * squared_norm(X, self.weight)
        self.gap_tol = _GAP_SHARE * tol

    def objective(self, q, W):
        """Return the objective for full-model probabilities q and coefficients W.

        Parameters
        ----------
        q : ndarray of shape (n_rows,)
            Probability with which each row is sent to the full model.

        W : ndarray of shape (n_features, n_outputs + 1)
            Coefficients of f1 and, in the last column, of the gate.

        Returns
        -------
        float
        """
        scores = self.X @ W
        cheap_loss = class_losses(scores[:, :-1], self.y)
        value = kl_objective(
            q, cheap_loss, self.full_loss, gate=scores[:, -1], weight=self.weight
        )
        return value + self.penalty(W)

    def penalty(self, W):
        """Return the group penalty and the ridge penalty of coefficients `W`."""
        return penalty(W, self.group_of, self.thresholds)

    def minimise_pair(self, q, start):
        """Return the best coefficients for given probabilities q of the full model.

        Parameters
        ----------
        q : ndarray of shape (n_rows,)
            Probability with which each row is sent to the full model.

        start : ndarray of shape (n_features, n_outputs + 1)
            First coefficients.

        Returns
        -------
        ndarray of shape (n_features, n_outputs + 1)
        """
        return self._minimise(
            lambda scores: loss_kl(scores, self.y, q, self.weight), start
        )

    def minimise_cheap(self, start):
        """Return the coefficients of the cheap model f1 if it answers every row.

        `start` are the first coefficients, of shape (n_features, n_outputs).
        """
        return self._minimise(self.cheap_loss, start)

    def cheap_loss(self, scores):
        """Return the loss of f1 if it answers every row, with gradient (`Smooth`)."""
        return cheap_part(scores, self.y, self.weight)

    def _minimise(self, loss, start):
        """Return the coefficients that minimise a loss of scores plus the penalty.

        Parameters
        ----------
        loss : callable
            ``loss(scores)`` returns a :class:`Smooth`.

        start : ndarray
            First coefficients.

        Returns
        -------
        ndarray of the shape of `start`
        """
        # The duality gap is not used.
        W, _ = accelerated_proximal_gradient(
            self.X,
            loss,
            start,
            self.group_of,
            self.thresholds,
            curvature=self.curvature,
            tol=self.gap_tol,
        )
        return W


def adapt_linear(X, rows, problem, *, max_iter, tol, start=None, progress=nullcontext):
    """Fit the rows' probability of the full model, then gate and cheap model, in turn.

    This is Algorithm 1 (Adapt-Lin). q is the probability with which each row is sent to
    the full model. (OPT1) finds the best q for a gate g and a cheap model f1, and
    (OPT2) the best g and f1 for a q.

    With ``p_full=0`` there is no gate: f1 is fitted alone, and the gate's intercept is
    minus infinity.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Standardised features and ones.

    rows : Rows

    problem : Problem
        `group_of` has the group of each column of `X`.

    max_iter : int
        Largest number of alternations.

    tol : float
        Stop when an alternation lowers the objective by less. A tenth of it bounds the
        duality gap of each (OPT2).

    start : ndarray of shape (n_features, n_outputs + 1), default=None
        First coefficients. None: the solution of (OPT2) with q = min(p_full, 0.5) for
        all rows.

    progress : callable, default=nullcontext
        ``progress()`` returns a context manager. Each alternation runs in one.

    Returns
    -------
    LinearFit
    """
    linear = _LinearProblem(X, rows, problem, tol)
    if problem.p_full == 0:
        return _fit_without_gate(linear, problem.n_outputs)
    W = start
    if W is None:
        # The probability q of sending a row is at most a half, so that f1 learns from
        # all rows.
        even_q = np.full(len(X), min(problem.p_full, 0.5))
        no_coef = np.zeros((X.shape[1], problem.n_outputs + 1))
        W = linear.minimise_pair(even_q, no_coef)
    q = None  # until the first step
    objectives = []
    for _ in range(max_iter):
        with progress():
            scores = X @ W
            cheap_loss = class_losses(scores[:, :-1], rows.y)
            # The dual price of the constraint on q is not used.
            new_q, _ = q_step(
                cheap_loss,
                rows.full_loss,
                gate=scores[:, -1],
                p_full=problem.p_full,
                weight=linear.weight,
            )
            # By rounding in the constraint on q, the new q may have a higher objective.
            # The old q is then used again.
            if q is None or linear.objective(new_q, W) <= objectives[-1]:
                q = new_q
            W = linear.minimise_pair(q, W)
            objectives.append(linear.objective(q, W))
        if len(objectives) > 1 and objectives[-2] - objectives[-1] < tol:
            break
    return LinearFit(W, objectives)


def _fit_without_gate(linear, n_outputs):
    """Fit the cheap model f1 alone, with a gate score of minus infinity on every row.

    Parameters
    ----------
    linear : _LinearProblem
        The rows, the groups and the minimiser.

    n_outputs : int
        Outputs of the cheap model f1.

    Returns
    -------
    LinearFit
    """
    n_features = linear.X.shape[1]
    W = linear.minimise_cheap(np.zeros((n_features, n_outputs)))
    objective = linear.cheap_loss(linear.X @ W).value + linear.penalty(W)
    gate_coef = np.zeros(n_features)
    # The gate's intercept. A gate score of minus infinity sends no row to the full
    # model.
    gate_coef[-1] = -np.inf
    return LinearFit(np.column_stack([W, gate_coef]), [objective])


def squared_norm(X, weight):
    """Return the largest eigenvalue of ``X.T @ diag(weight) @ X``.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)

    weight : ndarray of shape (n_rows,)

    Returns
    -------
    float
    """
    # This eigenvalue is the square of the largest singular value of sqrt(weight) X.
    return np.linalg.norm(np.sqrt(weight)[:, None] * X, 2) ** 2


def adapt_linear_multistart(X, rows, problem, *, max_iter, tol, progress=nullcontext):
    """Run :func:`adapt_linear` from two starts, and return the fit of lower objective.

    (OPT) is convex in q and in (g, f1) but not jointly, so that the result depends on
    the start. The first start is the default of :func:`adapt_linear`. The second start
    is the best fit with the features of a single group. Only the most promising groups
    are tried, see `_most_promising_groups`.

    The parameters and the result are those of :func:`adapt_linear`.
    """
    options = {"max_iter": max_iter, "tol": tol, "progress": progress}
    default_fit = adapt_linear(X, rows, problem, **options)
    # Two groups: one of features, and the group of the intercepts.
    has_one_group = len(problem.group_costs) == 2
    if has_one_group or problem.p_full == 0:
        # The fit of a single group would be the default fit. With p_full=0 there is no
        # q, so that the problem is convex.
        return default_fit
    # The last column of X is the column of ones, for the intercepts.
    intercept_column = len(problem.group_of) - 1
    single_fits = []
    for group in _most_promising_groups(X, rows, problem):
        group_columns = np.flatnonzero(problem.group_of == group)
        # The group becomes group 0, and the intercepts group 1.
        zeros = np.zeros(len(group_columns), dtype=np.intp)
        intercept_group = -1  # the last one
        single_problem = problem._replace(
            group_of=np.append(zeros, 1),
            group_costs=problem.group_costs[[group, intercept_group]],
        )
        columns = np.append(group_columns, intercept_column)
        fit = adapt_linear(X[:, columns], rows, single_problem, **options)
        single_fits.append(SingleGroupFit(columns, fit))
    # The last objective of a fit is its lowest.
    best_single = min(single_fits, key=lambda single: single.fit.objectives[-1])
    # The coefficients of all other groups are 0.
    start = np.zeros_like(default_fit.W)
    start[best_single.columns] = best_single.fit.W
    other_fit = adapt_linear(X, rows, problem, start=start, **options)
    return min(default_fit, other_fit, key=lambda fit: fit.objectives[-1])


class SingleGroupFit(NamedTuple):
    """Fit of the linear model with the features of one group alone.

    Attributes
    ----------
    columns : ndarray of int
        Columns of X that the fit reads. The last is the column of ones, for the
        intercepts.

    fit : LinearFit
    """

    columns: NDArray[np.intp]
    fit: LinearFit


def _most_promising_groups(X, rows, problem):
    """Return the groups whose coefficients lower the objective fastest from W = 0.

    These are the groups at which the norm of the loss gradient exceeds the threshold of
    the penalty by most.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Standardised features and ones.

    rows : Rows

    problem : Problem
        `group_of` has the group of each column of `X`.

    Returns
    -------
    ndarray of int
        At most `_N_SINGLE_GROUPS` groups, the most promising first.
    """
    n_rows = len(X)
    n_groups = len(problem.group_costs)
    weight = rows.weight / rows.weight.sum()
    # The first q of `adapt_linear`.
    q = np.full(n_rows, min(problem.p_full, 0.5))
    # The scores at W = 0.
    no_scores = np.zeros((n_rows, problem.n_outputs + 1))
    gradient = loss_kl(no_scores, rows.y, q, weight).gradient
    # The mean is subtracted, since the intercepts can explain it. (n_features,
    # n_outputs + 1)
    gradient_of_W = X.T @ (gradient - gradient.mean(axis=0))
    norms = group_norms(gradient_of_W, problem.group_of, n_groups)
    thresholds = problem.gamma * np.sqrt(problem.group_costs)
    excess = norms - thresholds
    # The last group has only the intercepts.
    excess_of_features = excess[:-1]
    by_excess = np.argsort(-excess_of_features, kind="stable")
    return by_excess[:_N_SINGLE_GROUPS]
