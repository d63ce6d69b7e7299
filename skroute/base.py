"""The cost protocol that every decision estimator of skroute follows.

A decision estimator is a scikit-learn estimator that also says what it chose for each
row and what that cost. It implements two steps, :meth:`CostAwareMixin._plan` (decide)
and :meth:`CostAwareMixin._answer` (ask whoever was chosen); everything that a user
calls is a view of these two.
"""

import inspect
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score
from sklearn.pipeline import Pipeline
from sklearn.utils import assert_all_finite, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from skroute.utils._compat import (
    CallbackSupportMixin,
    _fit_context,
    fit_task,
    num_samples,
    process_routing,
    raise_for_params,
    routing_enabled,
)
from skroute.utils._frames import indexable_rows, is_mapping
from skroute.utils._named import by_label, check_rows_match
from skroute.utils._tensors import holds_numbers, indexable_dataset, is_dataset, on_host, torch_of
from skroute.utils._timing import seconds_per_sample
from skroute.utils._tolerances import ROUNDING
from skroute.utils._validation import (
    check_row_weights,
    check_truth,
    check_weights,
    is_amount,
    refuse_masked,
    refuse_missing,
    refuse_source,
    warn,
)

__all__ = [
    "CostAwareMixin",
    "Plan",
    "Routed",
    "affords",
    "check_affordable",
    "check_budget",
    "check_costs",
    "check_rows",
    "dispatch",
    "inherit_member_tags",
    "measure_costs",
    "note_failure",
]

# Name of the choice that answers nothing.
ABSTAIN_NAME = "abstain"

# The argument of `fit` that has rows of its own, with labels of their own.
OTHER_ROWS = "X_calibration"


@dataclass
class Routed:
    """Answers, choices and costs from one pass over the rows.

    Unpacks into the first three; what may be known beside them has names only.

    Attributes
    ----------
    y_pred : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        The answers.

    route : ndarray of shape (n_samples,), dtype=int64
        Index of the choice made for each row, into ``choices_``.

    cost : ndarray of shape (n_samples,), dtype=float64
        What each row cost, everything included, in the unit of ``costs``: by the price list
        or the estimate that the row was decided by.

    expected_quality : ndarray of shape (n_samples,), dtype=float64, or None
        How good each choice made is expected to be. It is below the estimate that the
        choice was made by: what looks best does so partly by chance. None where an
        estimator does not estimate quality.

    expected_cost : ndarray of shape (n_samples,), dtype=float64
        What each choice made is expected to cost. It differs from `cost` where costs were
        logged or learned: a choice is made partly because its cost was underestimated.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.base import Routed
    >>> routed = Routed(np.array(["a"]), np.array([0]), np.array([2.0]))
    >>> y_pred, route, cost = routed
    >>> routed.expected_quality is None
    True
    """

    y_pred: NDArray[Any]
    route: NDArray[np.int64]
    cost: NDArray[np.float64]
    expected_quality: NDArray[np.float64] | None = None
    expected_cost: NDArray[np.float64] | None = None

    def __iter__(self):
        return iter((self.y_pred, self.route, self.cost))


class Plan(NamedTuple):
    """The choices for the rows, before the answers are computed.

    Attributes
    ----------
    route : ndarray of shape (n_samples,), dtype=int64
        Index of the choice for each row.

    cost : ndarray of shape (n_samples,), dtype=float64
        What answering according to `route` will have cost in all, what the decision
        itself spent included.

    state : object, default=None
        What deciding has computed already and answering must not pay for twice.

    quality : ndarray of shape (n_samples,), default=None
        Expected quality of the choices, where it is estimated.

    expected_cost : ndarray of shape (n_samples,), default=None
        What they are expected to cost, where that is not `cost`.
    """

    route: NDArray[np.int64]
    cost: NDArray[np.float64]
    state: Any = None
    quality: Any = None
    expected_cost: Any = None


def check_budget(budget, *, name="budget"):
    """Validate a mean budget per sample.

    Parameters
    ----------
    budget : float or None
        Mean cost per sample, in the unit of ``costs``; None and infinity mean unlimited.

    name : str, default="budget"
        Parameter name for the message.

    Returns
    -------
    float
        The budget, infinity when unlimited.

    Raises
    ------
    ValueError
        If `budget` is not a non-negative number.

    Examples
    --------
    >>> from skroute.base import check_budget
    >>> check_budget(0.3), check_budget(None)
    (0.3, inf)
    """
    if budget is None:
        return np.inf
    number = isinstance(budget, Real) and not isinstance(budget, (bool, np.bool_))
    if not (number and budget >= 0):
        raise ValueError(
            f"{name} must be a non-negative number (mean cost per sample) or None for "
            f"unlimited, got {budget!r}."
        )
    return float(min(budget, np.inf))


def affords(budget, cost):
    """Whether a cost is within a budget, up to rounding errors of sums.

    Parameters
    ----------
    budget : float
        Mean cost per sample that may be spent.

    cost : float or ndarray of float
        Mean cost per sample to pay.

    Returns
    -------
    bool or ndarray of bool
        In the shape of `cost`.

    Examples
    --------
    >>> from skroute.base import affords
    >>> affords(0.3, 0.1 + 0.2), affords(0.3, 0.31)
    (True, False)
    """
    return cost <= budget * (1 + ROUNDING)


def check_affordable(budget, least, *, name="budget", advice=""):
    """Raise an error if the budget is below the mean cost of the cheapest plan.

    Parameters
    ----------
    budget : float
        Mean cost per sample, or a total.

    least : float
        What the cheapest feasible plan costs, in the same unit.

    name : str, default="budget"
        Parameter name for the message.

    advice : str, default=""
        What to do about it, as a sentence that ends the message.

    Raises
    ------
    ValueError
        If `budget` does not pay for `least`; the message names the smallest feasible one.

    Examples
    --------
    >>> from skroute.base import check_affordable
    >>> check_affordable(0.5, 1.0)
    Traceback (most recent call last):
        ...
    ValueError: budget=0.5 is below the cheapest feasible plan: the smallest feasible ...
    """
    if not affords(budget, least):
        unit = " per sample" if name == "budget" else ""
        end = f" {advice}" if advice else ""
        raise ValueError(
            f"{name}={budget!r} is below the cheapest feasible plan: the smallest feasible "
            f"{name} is {least:.17g}{unit}.{end}"
        )


def check_costs(costs, names, *, name="costs"):
    """Validate the cost of each named choice.

    Parameters
    ----------
    costs : mapping from str to float, or array-like of shape (n_names,)
        Cost per call of each choice. A mapping, or a series whose labels are names, must name
        every choice and no other.

    names : sequence of str
        The choices, in the order of the result.

    name : str, default="costs"
        Parameter name for the messages.

    Returns
    -------
    ndarray of shape (n_names,), dtype=float64

    Raises
    ------
    ValueError
        If a cost is missing, unknown, not a number, negative or not finite.

    Examples
    --------
    >>> from skroute.base import check_costs
    >>> check_costs({"large": 10, "small": 1}, ["small", "large"])
    array([ 1., 10.])
    """
    names, costs = list(names), by_label(costs)
    if isinstance(costs, Mapping):
        costs = {str(key): cost for key, cost in costs.items()}
        if unknown := [key for key in costs if key not in {*map(str, names)}]:
            raise ValueError(f"{name} has entries for {unknown!r}, which are not among {names!r}.")
        if missing := [key for key in names if str(key) not in costs]:
            raise ValueError(
                f"{name} has no entry for {missing!r}. Every one of {names!r} needs a cost; "
                "there is no default."
            )
        values = [costs[str(key)] for key in names]
    elif isinstance(costs, str) or not isinstance(costs, Iterable):
        raise ValueError(
            f"{name} must be a mapping from name to number or an array-like with one number "
            f"for each of {names!r}, got {costs!r}."
        )
    else:
        values = list(costs)
        if len(values) != len(names):
            raise ValueError(
                f"{name} must have one number for each of {names!r} ({len(names)}), "
                f"got {len(values)}: {costs!r}."
            )
    for key, value in zip(names, values):
        if not is_amount(value):
            raise ValueError(
                f"{name} of {key!r} must be a finite number that is not negative, got {value!r}."
            )
    return np.asarray(values, dtype=np.float64)


def measure_costs(calls, X):
    """Measure the time of each call, as its cost (``costs="time"``).

    Parameters
    ----------
    calls : mapping from str to callable
        For each choice a function of rows of `X`.

    X : indexable
        Rows to measure on.

    Returns
    -------
    ndarray of shape (n_calls,), dtype=float64
        Median seconds per sample, device-synchronised.

    Examples
    --------
    >>> import time
    >>> from skroute.base import measure_costs
    >>> calls = {"fast": len, "slow": lambda rows: time.sleep(1e-3 * len(rows))}
    >>> fast, slow = measure_costs(calls, [[0.0]] * 10)
    >>> bool(fast < 1e-3 <= slow)
    True
    """
    costs = np.empty(len(calls))
    for i, (name, call) in enumerate(calls.items()):
        with note_failure(name, min(num_samples(X), 1000), "timing"):
            costs[i] = seconds_per_sample(call, X)
    return costs


@contextmanager
def note_failure(name, n_rows, doing):
    """Add a note to the exception of a model: which model failed, in what, and on how many rows.

    Parameters
    ----------
    name : str
        The model that is called.

    n_rows : int
        Rows in the call.

    doing : str
        The method or the step, for example ``"fit"``.

    Examples
    --------
    >>> from skroute.base import note_failure
    >>> try:
    ...     with note_failure("large", 20, "predict"):
    ...         raise OSError("no route to host")
    ... except OSError as error:
    ...     print(error, error.__notes__)
    no route to host ["This happened in predict of 'large' with 20 rows."]
    """
    try:
        yield
    except Exception as error:
        error.add_note(f"This happened in {doing} of {name!r} with {n_rows} rows.")
        raise


def dispatch(route, answer):
    """Call each choice once, with the rows that it gets, and return the answers in row order.

    Parameters
    ----------
    route : ndarray of shape (n_samples,), dtype=int64
        Index of the choice for each row.

    answer : callable
        Called as ``answer(choice, rows)`` with the positions of the rows routed to
        `choice`, and only for a choice that has rows. Returns an array with one entry
        (a number or a row of numbers) per position.

    Returns
    -------
    ndarray of shape (n_samples,) or (n_samples, n_outputs)
        In the order of `route`.

    Raises
    ------
    ValueError
        If no type holds the answers of all choices as they are: numbers next to texts.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.base import dispatch
    >>> dispatch(np.array([1, 0, 1]), lambda choice, rows: 10 * choice + rows)
    array([10,  1, 12])
    """
    out = None
    for choice in np.unique(route):
        rows = np.flatnonzero(route == choice)
        part = np.asarray(answer(int(choice), rows))
        if out is None:
            out = np.empty((len(route), *part.shape[1:]), dtype=part.dtype)
        elif out.dtype != part.dtype:
            earlier = np.flatnonzero(np.isin(route, np.unique(route[route < choice])))
            common = _common_dtype(out[earlier], part)
            out = out.astype(common)
        out[rows] = part
    return out


def may_take_missing(model):
    """Return False if a model says that it takes no missing values.

    A pipeline says nothing: scikit-learn's tags look at its last step, which may never see a
    missing value. Its first step decides, also inside of a search or a calibration.
    """
    if get_tags(model).input_tags.allow_nan or isinstance(model, ColumnTransformer):
        return True
    if isinstance(model, Pipeline):
        steps = [step for _, step in model.steps if step not in (None, "passthrough")]
        return bool(steps) and may_take_missing(steps[0])
    inner = getattr(model, "estimator", None)
    return hasattr(inner, "__sklearn_tags__") and may_take_missing(inner)


# Kinds of numpy types whose values are compared as numbers.
_NUMERIC_KINDS = "iufc"


def _common_dtype(first, second):
    """Return the type that holds the answers of two choices as they are, else raise."""
    kinds = {first.dtype.kind, second.dtype.kind}
    alike = len(kinds) == 1 or "O" in kinds or kinds <= set(_NUMERIC_KINDS)
    if alike:
        common = np.result_type(first, second)
        if _is_kept(first, common) and _is_kept(second, common):
            return common
    raise ValueError(
        f"One choice answers with {first.dtype} and another with {second.dtype}, which no type "
        "holds as they are. The answers of all choices must have one type: fit the models on "
        "labels of one type, or convert what they answer."
    )


def _is_kept(answers, dtype):
    """Return True if a conversion leaves answers as they are."""
    kept = answers.astype(dtype).astype(answers.dtype) == answers
    if answers.dtype.kind in "fc":
        kept |= np.isnan(answers)
    return bool(np.all(kept))


def inherit_member_tags(tags, members):
    """Set input tags from the members: the estimator accepts what all members accept.

    Parameters
    ----------
    tags : sklearn.utils.Tags
        Tags of the meta-estimator, changed in place.

    members : iterable of estimators
        The models; one without tags is left to `fit` to refuse.

    Returns
    -------
    sklearn.utils.Tags
        The tags given.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.utils import get_tags
    >>> from skroute.base import inherit_member_tags
    >>> tags = get_tags(LogisticRegression())
    >>> tags.input_tags.sparse
    True
    >>> inherit_member_tags(tags, [LogisticRegression(), GaussianNB()]).input_tags.sparse
    False
    """
    # Tags are asked for before parameters are validated: what has none is refused by fit.
    members = [member for member in members if hasattr(member, "__sklearn_tags__")]
    member_tags = [get_tags(member) for member in members]
    tags.input_tags.sparse = all(tag.input_tags.sparse for tag in member_tags)
    tags.input_tags.allow_nan = all(map(may_take_missing, members))
    tags.input_tags.string = all(tag.input_tags.string for tag in member_tags)
    return tags


def check_rows(estimator, X, *, reset):
    """Validate rows only as far as all inner models need it; the models validate the rest.

    X may be anything that the models take: arrays, frames, sparse matrices, lists of
    texts, torch tensors (which stay on their device) and data sets. What can be checked
    for all of them is: feature names and count, that there are rows, and that numeric
    arrays have columns and no missing values unless every model takes them, since a row
    may be routed to any of them.

    Parameters
    ----------
    estimator : estimator
        Whose rows they are; its ``n_features_in_`` and ``feature_names_in_`` are set or compared.

    X : indexable
        The rows.

    reset : bool
        Whether to set (in `fit`) or to compare feature names and count.

    Returns
    -------
    indexable
        X, converted where rows could not be indexed otherwise.

    Raises
    ------
    TypeError
        If X is not made of rows.

    ValueError
        If it has none, or they are not as they must be.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skroute.base import check_rows
    >>> check_rows(LogisticRegression(), ["one text", "another"], reset=True)
    ['one text', 'another']
    """
    if X is None or is_mapping(X) or isinstance(X, (str, bytes)) or np.isscalar(X):
        raise TypeError(
            "X must be an array, a data frame, a sparse matrix or a list of rows, got "
            f"{type(X).__name__}. One row is a list or an array of one."
        )
    refuse_source(X, estimator)
    refuse_masked(X=X)
    (X,) = indexable(indexable_dataset(indexable_rows(X)))
    torch = torch_of(X)
    numeric = holds_numbers(X)
    if torch and X.is_complex():
        raise ValueError(f"Complex data not supported, got a tensor of {X.dtype}.")
    if numeric and X.ndim == 1:
        raise ValueError(
            f"Expected 2D array, got 1D array of {len(X)} instead. Reshape your data using "
            "array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if "
            "it contains a single sample."
        )
    if num_samples(X) == 0:
        raise ValueError(
            f"Found array with 0 sample(s) while a minimum of 1 is required by "
            f"{type(estimator).__name__}."
        )
    if numeric and X.shape[1] == 0:
        raise ValueError(
            f"Found array with 0 feature(s) (shape={X.shape}) while a minimum of 1 is required "
            f"by {type(estimator).__name__}."
        )
    if not reset and is_dataset(X) and hasattr(estimator, "n_features_in_"):
        raise TypeError(
            f"X is a data set, but fit saw rows of {estimator.n_features_in_} columns. Stack its "
            "rows, for example torch.stack([row for row, _ in dataset])."
        )
    if not reset and hasattr(estimator, "n_features_in_") and _is_flat(X):
        raise ValueError(
            f"X must be rows of {estimator.n_features_in_} columns, as fit saw them, got a "
            f"{type(X).__name__} of {num_samples(X)} single values. One row of a data frame is "
            "frame.iloc[[i]]."
        )
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    if reset and len(getattr(X, "shape", ())) > 2:
        # Of images scikit-learn counts the channels, which their other containers do not show.
        del estimator.n_features_in_
    if numeric and (X.is_floating_point() if torch else X.dtype.kind == "f"):
        cells = X.data if hasattr(X, "tocsr") else X
        finite = torch.isfinite if torch else np.isfinite
        if not finite(cells).all() and not get_tags(estimator).input_tags.allow_nan:
            assert_all_finite(
                on_host(cells), input_name="X", estimator_name=type(estimator).__name__
            )
    return X


def _is_flat(X):
    """Whether X is a sequence of single values, such as texts or one row of a data frame."""
    if hasattr(X, "shape"):
        return len(X.shape) == 1
    return isinstance(X, (list, tuple)) and any(map(np.isscalar, X))


# What is seen of any estimator: what it is, takes, answers and hands over -------------------


def is_frozen(model):
    """Whether `fit` has nothing to teach a model: frozen, or without a ``fit``."""
    return isinstance(model, FrozenEstimator) or not hasattr(model, "fit")


def comes_fitted(model):
    """Whether `fit` teaches an estimator nothing: frozen, or a recorded or remote model.

    Such a model has not seen the rows and knows its own labels.
    """
    return isinstance(model, FrozenEstimator) or not get_tags(model).requires_fit


def may_take_weights(model):
    """Return True unless `fit` of a model is known not to take ``sample_weight``.

    A `fit` that passes keywords on to other models, such as that of an ensemble or a search, is
    left to say it itself. A pipeline takes keywords of its steps only.
    """
    if has_fit_parameter(model, "sample_weight"):
        return True
    if isinstance(model, Pipeline):
        return False
    parameters = inspect.signature(model.fit).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def unfrozen(model):
    """What a frozen estimator holds, or the model itself."""
    return model.estimator if isinstance(model, FrozenEstimator) else model


def predicts_best_score(model):
    """Return True if `predict` of a model is its largest `predict_proba` by its very code.

    Then a router need not ask a service for both.
    """
    return getattr(unfrozen(model), "_predicts_best_score", False)


def takes(estimator, keyword):
    """Whether `predict`, `route` and the other calls of an estimator take a keyword."""
    return keyword in inspect.signature(estimator.route).parameters


def is_handing(name):
    """Whether a choice of that name hands over, also after members ("cnn > abstain")."""
    return str(name).rpartition(" > ")[2] == ABSTAIN_NAME


def handed_over(estimator, route):
    """Which rows, by their choices, a fitted estimator hands over instead of answering them."""
    if getattr(estimator, "abstain_quality_", None) is None:
        return np.zeros(len(route), dtype=bool)
    return np.array([is_handing(name) for name in estimator.choices_])[route]


def answered(estimator, route):
    """Positions of the rows that are answered, with a warning where there is none to score."""
    rows = np.flatnonzero(~handed_over(estimator, route))
    if not len(rows):
        warn("Every row is handed over: there is no answer to score.", UndefinedMetricWarning)
    return rows


def models_of(estimator):
    """Names of the choices of a fitted estimator that answer."""
    if getattr(estimator, "abstain_quality_", None) is None:
        return list(estimator.choices_)
    return [name for name in estimator.choices_ if not is_handing(name)]


# The protocol ------------------------------------------------------------------------------


class CostAwareMixin(CallbackSupportMixin):
    """Mixin for estimators that choose, per row, what is worth paying for.

    A subclass has a constructor parameter `budget` and implements

    - ``_fit(X, y, *, task, **metadata)``: learn. `task` reports steps to callbacks
      (``with task.step("fit small"): ...``). It sets ``choices_`` last;
    - ``_plan(X, budget) -> Plan``: decide for each row, calling nothing that the decision
      does not need;
    - ``_answer(X, plan, response) -> ndarray``: call the chosen models on their rows
      only, `response` being ``"predict"`` or ``"predict_proba"``;
    - ``_least() -> float``: the mean cost of the cheapest feasible plan, which is
      ``min_budget_``.

    It may replace ``_check_X(X)``, the check of rows before a decision, and
    ``_offers_proba()``, which is False where there are no probabilities. Whatever else `fit` or
    a call takes stands in the signature of the subclass's own method, which passes it on:
    ``def fit(self, X, y, costs=None): return super().fit(X, y, costs=costs)``.

    Examples
    --------
    A price on looking: the first column is free, the second costs 1.

    >>> import numpy as np
    >>> from sklearn.base import BaseEstimator
    >>> from skroute.base import CostAwareMixin, Plan
    >>> class Look(CostAwareMixin, BaseEstimator):
    ...     def __init__(self, budget=None):
    ...         self.budget = budget
    ...     def _fit(self, X, y, *, task):
    ...         self.choices_ = ["free", "second"]
    ...     def _least(self):
    ...         return 0.0
    ...     def _plan(self, X, budget):
    ...         route = np.full(len(X), int(budget >= 1))
    ...         return Plan(route, route.astype(float))
    ...     def _answer(self, X, plan, response):
    ...         return np.asarray(X)[np.arange(len(X)), plan.route]
    >>> look = Look().fit([[0, 1]])
    >>> look.predict([[3, 4]]), look.predict_cost([[3, 4]], budget=0.5)
    (array([4]), array([0.]))
    """

    _parameter_constraints: dict = {}

    def __sklearn_is_fitted__(self):
        return hasattr(self, "choices_")

    @property
    def min_budget_(self):
        """The smallest feasible budget: the mean cost per sample of the cheapest plan."""
        check_is_fitted(self)
        return float(self._least())

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Learn the quality of each choice.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Training rows.

        y : array-like of shape (n_samples,), default=None
            Targets.

        **params : dict
            Metadata for the inner models, such as ``sample_weight``, through metadata
            routing.

        Returns
        -------
        self
            Fitted estimator; after a failure it is not fitted.
        """
        return self._run(self._fit, X, y, params)

    def _run(self, learn, X, y, params, name="fit"):
        """The life cycle of a fit: unfitted while it runs and after a failure."""
        vars(self).pop("choices_", None)
        try:
            return self._validate_and_run(learn, X, y, params, name)
        except BaseException:
            vars(self).pop("choices_", None)
            raise

    @_fit_context(prefer_skip_nested_validation=False)
    def _validate_and_run(self, learn, X, y, params, name):
        if getattr(self, "n_jobs", None) == 0:
            raise ValueError("n_jobs=0 has no meaning: give a number of workers, -1 or None.")
        refuse_source(X)
        refuse_masked(X=X, y=y, **params)
        if isinstance(self, (ClassifierMixin, RegressorMixin)):
            # In a table of qualities some may be unknown.
            refuse_missing(y=y)
        of_rows = {key: values for key, values in params.items() if key != OTHER_ROWS}
        check_rows_match(X=X, y=y, **of_rows)
        if "sample_weight" in params:
            check_weights(params, num_samples(y if X is None else X))
        with fit_task(self, name, X, y) as task:
            learn(X, y, task=task, **params)
        return self

    def _route_metadata(self, params):
        """Metadata for the `fit` of each inner model, by the name of the model.

        Without metadata routing there is none: what was given is refused.
        """
        params = {name: value for name, value in params.items() if value is not None}
        if routing_enabled():
            if params and not hasattr(self.get_metadata_routing(), "validate_metadata"):
                raise TypeError(f"{type(self).__name__}.fit does not take {min(params)!r}.")
            return process_routing(self, "fit", **params)
        raise_for_params(params, self, "fit")
        return defaultdict(lambda: {"fit": {}, "score": {}, "split": {}})

    def _respond(self, X, response, budget=None, **call):
        """One pass: validate, plan, answer. `response=None` plans only."""
        if not self.__sklearn_is_fitted__():
            # This raises the error. It collects the tags of all models first, which is slow.
            check_is_fitted(self)
        check_rows_match(X=X, **call)
        rows = self._check_X(X)
        plan = self._plan(rows, self._effective_budget(budget), **call)
        y_pred = None if response is None else self._answer(rows, plan, response)
        expected_cost = plan.cost if plan.expected_cost is None else plan.expected_cost
        return Routed(y_pred, plan.route, plan.cost, plan.quality, expected_cost)

    def _check_X(self, X):
        return check_rows(self, X, reset=False)

    def _effective_budget(self, budget):
        return check_budget(self.budget if budget is None else budget)

    def predict_routed(self, X: Any, budget: float | None = None) -> Routed:
        """Answers, choices and costs from one pass.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            Mean cost per sample for this call, in the unit of `costs`. None takes the
            constructor's; ``numpy.inf`` is unlimited.

        Returns
        -------
        Routed
            Unpacks into ``(y_pred, route, cost)``, with ``expected_quality`` and
            ``expected_cost`` of the choices as further attributes.
        """
        return self._respond(X, "predict", budget)

    def route(self, X: Any, budget: float | None = None) -> np.ndarray:
        """Index of the choice made for each row, without answering.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            As in `predict_routed`.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=int64
            Index into ``choices_``.
        """
        return self._respond(X, None, budget).route

    def predict_cost(self, X: Any, budget: float | None = None) -> np.ndarray:
        """What `predict` spends on each row, everything included, without answering.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            As in `predict_routed`.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=float64
            Cost per row, in the unit of `costs`.
        """
        return self._respond(X, None, budget).cost

    def predict(self, X: Any, budget: float | None = None) -> np.ndarray:
        """Answer each row with the choice made for it.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            As in `predict_routed`.

        Returns
        -------
        ndarray of shape (n_samples,)
            The answers.
        """
        return self._respond(X, "predict", budget).y_pred

    def _offers_proba(self):
        return False

    @available_if(lambda estimator: estimator._offers_proba())
    def predict_proba(self, X, budget=None):
        """Class probabilities from the choice made for each row.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            As in `predict_routed`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        return self._respond(X, "predict_proba", budget).y_pred

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, budget: float | None = None
    ) -> float:
        """Accuracy of `predict` at the budget.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,)
            True labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            As in `predict_routed`.

        Returns
        -------
        float
            Share of rows answered correctly.
        """
        check_truth(X=X, sample_weight=sample_weight, y=y)
        if sample_weight is not None:
            # Refused before a model is asked.
            sample_weight = check_row_weights(sample_weight, num_samples(X))
        y_pred = self.predict(X, budget=budget)
        return accuracy_score(on_host(y), y_pred, sample_weight=sample_weight)


def inner_has(name):
    def check(self):
        getattr(self._decider(), name)
        return True

    return check


class DelegatedViewsMixin:
    """Views of a decision that an inner estimator makes.

    A subclass implements ``_decider()``, the inner estimator, fitted or not, and
    ``_seen_by_decider(X)``, the rows that it sees.
    """

    def _view(self, name, X, **params):
        # What transformers make of the rows may have no labels.
        check_rows_match(X=X, **params)
        rows = self._seen_by_decider(X)
        return getattr(self._decider(), name)(rows, **params)

    @available_if(inner_has("predict_routed"))
    def predict_routed(self, X, budget=None, **context):
        """Answers, choices and costs from one pass.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            Mean cost per sample for this call. None takes the constructor's; ``numpy.inf`` is
            unlimited.

        **context : keyword arguments
            What else the inner estimator takes about the rows of a call.

        Returns
        -------
        Routed
            Named tuple ``(y_pred, route, cost)``.
        """
        return self._view("predict_routed", X, budget=budget, **context)

    @available_if(inner_has("route"))
    def route(self, X, budget=None, **context):
        """Index of the choice made for each row, without answering.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            As in `predict_routed`.

        **context : keyword arguments
            As in `predict_routed`.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=int64
        """
        return self._view("route", X, budget=budget, **context)

    @available_if(inner_has("predict_cost"))
    def predict_cost(self, X, budget=None, **context):
        """What `predict` spends on each row, without answering.

        Parameters
        ----------
        X : {array-like, dataframe, mapping, LazyFeatures} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            As in `predict_routed`.

        **context : keyword arguments
            As in `predict_routed`.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=float64
        """
        return self._view("predict_cost", X, budget=budget, **context)

    @property
    def choices_(self):
        """Names of the choices that `route` indexes."""
        return self._decider().choices_

    @property
    def min_budget_(self):
        """The smallest feasible budget: the mean cost per sample of the cheapest plan."""
        return self._decider().min_budget_
