"""The cost protocol that every decision estimator of skroute follows.

A decision estimator is a scikit-learn estimator that also says which choice it made for
each row and what that costs. A call has two steps: *plan* decides for each row,
*answer* calls the chosen models. Everything that a user calls is a view of these two.
"""

import inspect
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin, is_regressor
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_consistent_length
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skroute.base._calls import (
    Call,
    CallParameter,
    takes_any_keyword,
    with_parameters,
)
from skroute.base._costs import check_budget
from skroute.base._inspection import answered_rows
from skroute.base._rows import check_rows
from skroute.utils._compat import (
    CallbackSupportMixin,
    _fit_context,
    fit_task,
    num_samples,
    print_nested,
    process_routing,
    raise_for_params,
    routing_enabled,
)
from skroute.utils._named import check_rows_match
from skroute.utils._pickles import VersionedPickleMixin
from skroute.utils._tables import printed_estimator
from skroute.utils._tensors import on_host
from skroute.utils._texts_of_fit import texts_counted_once
from skroute.utils._typing import NDArray
from skroute.utils._validation import (
    check_row_weights,
    check_weights,
    refuse_masked,
    refuse_missing,
    refuse_source,
)

# An argument of `fit` with other rows than `X`. Row labels of its frame are therefore
# not compared with the row labels of `X`.
_OTHER_ROWS = "X_calibration"


@dataclass
class Routed:
    """Answers, choices and costs from one pass over the rows.

    Unpacks into the first three. The other values are attributes only.

    Attributes
    ----------
    y_pred : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        The answers.

    route : ndarray of shape (n_samples,), dtype=int64
        Index of the choice made for each row, into ``choices_``.

    cost : ndarray of shape (n_samples,), dtype=float64
        What each row is billed, everything included, in the unit of ``costs``. If the
        bill comes after the call, it is the expected bill: the mean of the bills that
        the choice had in the log, at this price or estimate.

    expected_quality : ndarray of shape (n_samples,), dtype=float64, or None
        Expected quality of the choice. It is lower than the estimate that was used to
        decide, because the highest estimate is partly high by chance. None if an
        estimator does not estimate quality.

    quoted_cost : ndarray of shape (n_samples,), dtype=float64
        Cost by which the row was decided: that of the price list, the quote or the
        estimate. It is `cost` if costs are known before the call. It differs from
        `cost` if bills were logged: a choice is made partly because its cost was
        underestimated.

    expected_amounts : dict from str to ndarray of shape (n_samples,), or None
        Mean of each further amount of the choice in the log, such as seconds. None if
        `fit` got no amounts.

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
    quoted_cost: NDArray[np.float64] | None = None
    expected_amounts: dict[str, NDArray[np.float64]] | None = None

    def __iter__(self):
        return iter((self.y_pred, self.route, self.cost))


class Plan(NamedTuple):
    """The choices for the rows, before the answers are computed.

    Attributes
    ----------
    route : ndarray of shape (n_samples,), dtype=int64
        Index of the choice for each row.

    cost : ndarray of shape (n_samples,), dtype=float64
        What answering according to `route` is billed, the cost of deciding included.
        If the bill comes after the call, it is the expected bill.

    state : object, default=None
        What deciding has computed already, so that answering does not pay for it twice.
        Only the estimator that made the plan reads it.

    quality : ndarray of shape (n_samples,), default=None
        Expected quality of the choices, if it is estimated.

    quoted_cost : ndarray of shape (n_samples,), default=None
        Cost by which the rows were decided. None if it is `cost`.

    amounts : dict from str to ndarray of shape (n_samples,), default=None
        Expected further amounts of the choices, such as seconds. None if there are
        none.

    X : indexable, default=None
        The rows that were decided, validated. :meth:`CostAwareMixin.plan` sets it.

    decided : bool, default=True
        False if a single choice answers every row, so that nothing is paid for
        deciding. :meth:`CostAwareMixin.plan_single` sets it.
    """

    route: NDArray[np.int64]
    cost: NDArray[np.float64]
    state: Any = None
    quality: Any = None
    quoted_cost: Any = None
    amounts: Any = None
    X: Any = None
    decided: bool = True

    @property
    def is_billed(self):
        """True if `cost` is the bill. False if it is an expectation of the bill."""
        return self.quoted_cost is None or np.array_equal(self.cost, self.quoted_cost)


def _with_rows(plan, rows, decided=True):
    """Return a copy of a `Plan` with new values of its fields `X` and `decided`.

    ``plan._replace`` takes twice as long, which one notices in calls with one row.
    """
    return Plan(
        plan.route,
        plan.cost,
        plan.state,
        plan.quality,
        plan.quoted_cost,
        plan.amounts,
        rows,
        decided,
    )


class CostAwareMixin(VersionedPickleMixin, CallbackSupportMixin):
    """Mixin for estimators that choose, per row, what is worth paying for.

    It stands first among the bases: ``class Mine(CostAwareMixin, ClassifierMixin,
    BaseEstimator)``. A subclass has a constructor parameter `budget` and writes four
    methods:

    ``_fit(X, y, *, task, **metadata)``
        Learn, and set ``choices_``, the names of the choices, last. `X` and `y` come as
        the user gave them, without masked entries. The method validates them with
        :func:`check_rows` or with scikit-learn's ``validate_data``, which set
        ``n_features_in_`` and ``feature_names_in_``. It refuses a budget that is too
        small with ``check_affordable(check_budget(self.budget),
        self._smallest_budget())``. A classifier sets ``classes_``. `task` reports steps
        to callbacks: ``with task.step("fit small"): ...``.

    ``_plan(X, call) -> Plan``
        Decide for each row. `X` is validated, `call` is a :class:`Call`. Refuse
        ``call.budget`` with :func:`check_affordable` if it is too small. A row is
        decided by its own values, so that the other rows of the call do not matter.
        Call no model that the decision does not need, and leave in ``state`` what the
        answer needs of the calls that were made.

    ``_answer(plan, response) -> ndarray``
        Answer the rows ``plan.X`` by the choices ``plan.route``. Call each chosen model
        on its rows only, see :func:`dispatch`. `response` is ``"predict"`` or
        ``"predict_proba"``.

    ``_smallest_budget() -> float``
        Return the mean cost of the cheapest feasible plan, which is ``min_budget_``.

    It lists the keywords of its calls in the class attribute ``call_parameters``, a
    tuple of :class:`CallParameter`. The public methods get their signatures from this
    list. A wrapper, whose keywords are those of the estimator inside, has a property of
    this name instead.

    It may write twelve more methods and properties:

    ``fit(X, y, sample_weight=None)``
        Show what `fit` takes beyond `X` and `y`, and pass it on to ``_fit``: ``return
        super().fit(X, y, sample_weight=sample_weight)``. scikit-learn's metadata
        routing reads this signature. The length of ``sample_weight`` is checked.

    ``_check_rows(X)``
        Validate the rows of a call. The default is :func:`check_rows`, which leaves the
        rows in their container: array, frame, sparse matrix, list or tensor. A subclass
        that computes with the numbers returns ``validate_data(self, X, reset=False)``.

    ``_offers_proba()``
        Return True if there are class probabilities. The default is False. It is also
        called before `fit`.

    ``_score_routed(y, routed, sample_weight)``
        Return the score of answers, by default of the rows that are answered: the
        coefficient of determination for a regressor, the accuracy for any other
        estimator.

    ``_single_choices()``
        Return the names of the models that can answer every row alone. The default is
        none. They are the references of certificates and curves. Without them a
        certificate measures the loss against the unlimited budget. "best" and "full"
        are not names: they have a meaning of their own in a certificate.

    ``_plan_single(X, name, call) -> Plan``
        Return the plan in which one of these models answers every row. ``_answer`` gets
        this plan, too. The cost is that of the model alone. A subclass with single
        choices writes it.

    ``_share_cache(cache)``
        Prepare a copy of the estimator for a sweep over budgets on the same rows, see
        ``skroute/utils/_cache.py``. A wrapper that calls its inner estimator about all
        of these rows gives it a cache here. A gate must not, since its full model gets
        other rows at each budget. The default does nothing.

    ``bill(plan, costs)``
        Return the bill of each row of a plan, from a table of bills. The default
        refuses such a table.

    ``request_policy(budget, exclude=())``
        Return the :class:`RequestPolicy` by which requests that come one by one are
        decided, for a mean budget per request and without the choices that `exclude`
        names. :class:`~skroute.routing.BudgetStream` then knows the cost of a request
        before it is made. There is no default: an estimator without this method is
        streamed as one that pays while it decides.

    ``_effective_budget(budget)``
        Return the budget of a call. The default is that of the call, or else that of
        the constructor. An estimator whose rows have budgets of their own replaces it.

    ``get_metadata_routing()``
        Return scikit-learn's routing of the metadata of inner models.

    ``needs_costs_``
        True if `predict` needs ``costs``, because they differ from row to row and are
        known before a model is called. The default is False.

    Four attributes are read where an estimator has them:

    ``mean_quality_``
        Mean quality of each of ``choices_`` on the rows of `fit`. If the choices are
        the single choices, the path of a certificate then begins with the best of them
        for every row.

    ``quality``
        A constructor parameter that says what an answer is worth, as in
        :class:`~skroute.routing.OccamRouterClassifier`. Curves and certificates measure
        by it. Without it they take the accuracy. A regressor without it is measured
        with `row_quality` and certified with `loss`.

    ``abstain_quality_``
        Quality of a row that is not answered. The choice that answers nothing is called
        "abstain".

    ``policy``
        A constructor parameter. ``"batch"`` says that the rows of a call are decided
        together. Such an estimator cannot be certified.

    Wrappers of decision estimators call public methods alone: :meth:`make_call`,
    :meth:`plan`, :meth:`plan_single`, :meth:`answer`, :meth:`respond` and the views.

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
    ...     def _smallest_budget(self):
    ...         return 0.0
    ...     def _plan(self, X, call):
    ...         route = np.full(len(X), int(call.budget >= 1))
    ...         return Plan(route, route.astype(float))
    ...     def _answer(self, plan, response):
    ...         return np.asarray(plan.X)[np.arange(len(plan.X)), plan.route]
    >>> look = Look().fit([[0, 1]])
    >>> look.predict([[3, 4]]), look.predict_cost([[3, 4]], budget=0.5)
    (array([4]), array([0.]))
    """

    _parameter_constraints: dict = {}
    # Keywords of the calls, next to X and budget.
    call_parameters: ClassVar[tuple[CallParameter, ...]] = ()

    def __init_subclass__(cls, **kwargs):
        """Give a subclass public methods whose signatures show `call_parameters`."""
        # This comes before the `__init_subclass__` of scikit-learn, which reads the
        # signatures for metadata routing.
        if "call_parameters" in vars(cls):
            _declare_views(cls)
        super().__init_subclass__(**kwargs)

    def __sklearn_is_fitted__(self):
        """Return True after a `fit` that succeeded."""
        return hasattr(self, "choices_")

    def __repr__(self, N_CHAR_MAX=700):
        # scikit-learn's `__repr__` has this parameter under this name.
        return printed_estimator(self).__repr__(N_CHAR_MAX)

    @property
    def min_budget_(self):
        """Smallest feasible budget: the mean cost per sample of the cheapest plan."""
        check_is_fitted(self)
        return float(self._smallest_budget())

    # Fit ------------------------------------------------------------------------------

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
            Fitted estimator. After a failure it is not fitted.
        """
        return self._run_fit(self._fit, X, y, params)

    def _run_fit(self, learn, X, y, params, name="fit"):
        """Run `learn`, such as `_fit`. The estimator stays unfitted if `learn` fails.

        Parameters
        ----------
        learn : callable
            ``learn(X, y, task=task, **params)``, such as the method ``_fit``.

        X, y : object
            Rows and targets, as the user gave them.

        params : dict
            Other arguments of `learn`.

        name : str, default="fit"
            Description of the step, for callbacks.

        Returns
        -------
        self
        """
        # An estimator without `choices_` is not fitted.
        vars(self).pop("choices_", None)
        try:
            return self._validate_and_fit(learn, X, y, params, name)
        except BaseException:
            vars(self).pop("choices_", None)
            raise

    @_fit_context(prefer_skip_nested_validation=False)
    def _validate_and_fit(self, learn, X, y, params, name):
        """Check what can be checked for all estimators, and call `learn`.

        The parameters are those of `_run_fit`.
        """
        if getattr(self, "n_jobs", None) == 0:
            raise ValueError(
                "n_jobs=0 has no meaning: give a number of workers, -1 or None."
            )
        self._refuse_unknown_keywords(learn, params)
        refuse_source(X)
        refuse_masked(X=X, y=y, **params)
        if isinstance(self, (ClassifierMixin, RegressorMixin)):
            # A table of qualities may have unknown entries. Labels may not.
            refuse_missing(y=y)
        row_params = dict(params)
        row_params.pop(_OTHER_ROWS, None)
        check_rows_match(X=X, y=y, **row_params)
        if "sample_weight" in params:
            rows = y if X is None else X
            check_weights(params, num_samples(rows))
        with fit_task(self, name, X, y) as task, texts_counted_once():
            learn(X, y, task=task, **params)
        return self

    def _refuse_unknown_keywords(self, learn, params):
        """Raise a TypeError for a keyword that a method does not take.

        Parameters
        ----------
        learn : callable
            The method that gets the keywords.

        params : dict
            The keywords.
        """
        accepted = inspect.signature(learn).parameters.values()
        if any(
            parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in accepted
        ):
            return
        names = [parameter.name for parameter in accepted]
        for name in params:
            if name not in names:
                raise TypeError(f"{type(self).__name__}.fit does not take {name!r}.")

    def _route_metadata(self, params):
        """Return the metadata for the `fit` of each inner model, by its name.

        Without metadata routing there is none, and given metadata are refused.

        Parameters
        ----------
        params : dict
            Metadata that `fit` got. None is as if it was not given.

        Returns
        -------
        mapping from str to dict of dict
            For each inner model, the metadata of its methods.
        """
        params = {name: value for name, value in params.items() if value is not None}
        if routing_enabled():
            if params and not hasattr(self.get_metadata_routing(), "validate_metadata"):
                # The message has the alphabetically first name.
                raise TypeError(
                    f"{type(self).__name__}.fit does not take {min(params)!r}."
                )
            return process_routing(self, "fit", **params)
        raise_for_params(params, self, "fit")
        # A mapping that returns empty metadata for the name of any model.
        return defaultdict(lambda: {"fit": {}, "score": {}, "split": {}})

    # The two steps of a call: plan and answer -----------------------------------------

    def make_call(self, budget: float | None = None, **parameters: Any) -> Call:
        """Return the budget and the keywords of a call as one :class:`Call`.

        Parameters
        ----------
        budget : float, default=None
            Mean cost per sample. None takes the constructor's; ``numpy.inf`` is
            unlimited.

        **parameters : keyword arguments
            The keywords that the class lists in ``call_parameters``.

        Returns
        -------
        Call
            The call, for :meth:`plan`.

        Raises
        ------
        TypeError
            For a keyword that the class does not take.

        ValueError
            For a budget that is not a number of at least 0.
        """
        self._check_is_fitted()
        if not parameters:
            # Without keywords there is nothing to check. This saves time in calls with
            # one row, which seldom have keywords.
            return Call(self._effective_budget(budget))
        names = [parameter.name for parameter in self.call_parameters]
        for name in parameters:
            if name not in names:
                raise TypeError(
                    f"{type(self).__name__} does not take {name!r} in a call: it takes "
                    f"{', '.join(['X', 'budget', *names])}."
                )
        # A keyword that is None counts as not given.
        keywords = {
            name: value for name, value in parameters.items() if value is not None
        }
        return Call(self._effective_budget(budget), keywords)

    def _share_cache(self, cache):
        """Do nothing. A wrapper gives its inner estimator the cache of a sweep here."""

    def _check_is_fitted(self):
        """Raise NotFittedError before `fit`."""
        if not self.__sklearn_is_fitted__():
            # scikit-learn's check raises the error. It collects the tags of all models,
            # which is slow, so that it is not called for a fitted estimator.
            check_is_fitted(self)

    def _effective_budget(self, budget):
        """Return the budget of a call, or else that of the constructor."""
        return check_budget(self.budget if budget is None else budget)

    def plan(self, X: Any, call: Call | None = None) -> Plan:
        """Decide for each row, without answering.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        call : Call, default=None
            From :meth:`make_call`. None is a call without keywords.

        Returns
        -------
        Plan
            For :meth:`answer`.
        """
        rows, call = self._check_call(X, call)
        return _with_rows(self._plan(rows, call), rows)

    def plan_single(self, X: Any, name: str, call: Call | None = None) -> Plan:
        """Return the plan in which one model answers every row, without a decision.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        name : str
            One of ``single_choices_``.

        call : Call, default=None
            From :meth:`make_call`.

        Returns
        -------
        Plan
            For :meth:`answer`. A route of -1 is a model that is not among ``choices_``.
        """
        if name not in self.single_choices_:
            raise ValueError(
                f"{name!r} is not one of the single choices {self.single_choices_!r}."
            )
        rows, call = self._check_call(X, call)
        return _with_rows(self._plan_single(rows, name, call), rows, decided=False)

    def bill(self, plan: Plan, costs: Any) -> np.ndarray:
        """Return the bill of each row of a plan, from the bill of each choice.

        Curves, certificates and savings call it to count real money. A subclass whose
        choices may have bills that differ from row to row replaces it.

        Parameters
        ----------
        plan : Plan
            From :meth:`plan` or :meth:`plan_single`. Its `state` may be None: bills are
            also checked before a model is called.

        costs : {array-like, dataframe} of shape (n_samples, n_choices)
            Bill of each choice on each row. A frame is read by name.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=float64
            The cost of deciding is included.

        Raises
        ------
        TypeError
            If the costs of the estimator do not differ from row to row.
        """
        raise TypeError(
            f"costs is a table of bills, but {type(self).__name__} has a fixed or "
            "measured cost for each choice, which is its bill. Leave costs out."
        )

    @property
    def needs_costs_(self):
        """True if `predict` needs ``costs``, the cost of each choice for each row."""
        return False

    def _check_call(self, X, call):
        """Return validated rows, and a call whose keywords have the row order of X.

        Parameters
        ----------
        X : object
            The rows, as the user gave them.

        call : Call or None
            None: a call without keywords.

        Returns
        -------
        rows : indexable

        call : Call
        """
        self._check_is_fitted()
        call = self.make_call() if call is None else call
        if type(X) is not np.ndarray:
            # A plain array has no mask. One notices this check in calls with one row.
            refuse_masked(X=X)
        if call.keywords:
            check_rows_match(X=X, **call.keywords)
        return self._check_rows(X), call

    def answer(self, plan: Plan, response: str = "predict") -> np.ndarray:
        """Answer the rows of a plan: call each chosen model on its rows.

        Parameters
        ----------
        plan : Plan
            From :meth:`plan` or :meth:`plan_single`.

        response : {"predict", "predict_proba"}, default="predict"
            Which answers.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            The answers, one for each row.
        """
        return self._answer(plan, response)

    def respond(
        self, X: Any, call: Call | None = None, response: str | None = "predict"
    ) -> Routed:
        """Plan and answer in one pass.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        call : Call, default=None
            From :meth:`make_call`. None is a call without keywords.

        response : {"predict", "predict_proba"} or None, default="predict"
            Which answers. None plans only, and ``y_pred`` is None.

        Returns
        -------
        Routed
            Answers, choices and costs.
        """
        plan = self.plan(X, call)
        y_pred = None if response is None else self.answer(plan, response)
        return routed_of(plan, y_pred)

    @property
    def single_choices_(self):
        """Names of the models that can answer every row alone, a list of str."""
        check_is_fitted(self)
        return self._single_choices()

    def _check_rows(self, X):
        """Return the validated rows of a call."""
        return check_rows(self, X, reset=False)

    def _offers_proba(self):
        """Return False. A subclass with class probabilities returns True."""
        return False

    def _single_choices(self):
        """Return no names. A subclass returns its models that answer all rows alone."""
        return []

    def _plan_single(self, X, name, call):
        """Raise an error. A subclass with single choices returns a `Plan`."""
        raise NotImplementedError(
            f"{type(self).__name__} has the single choices {self.single_choices_!r} "
            "and no method _plan_single. Write this method."
        )

    # Views: public methods that show a part of plan and answer ------------------------

    def predict_routed(
        self, X: Any, budget: float | None = None, **parameters: Any
    ) -> Routed:
        """Return answers, choices and costs from one pass.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            Mean cost per sample for this call, in the unit of `costs`. None takes the
            constructor's; ``numpy.inf`` is unlimited.

        **parameters : keyword arguments
            Other keywords of the calls of this class.

        Returns
        -------
        Routed
            Unpacks into ``(y_pred, route, cost)``, with ``expected_quality`` and
            ``quoted_cost`` of the choices as further attributes.
        """
        return self.respond(X, self.make_call(budget, **parameters))

    def route(
        self, X: Any, budget: float | None = None, **parameters: Any
    ) -> np.ndarray:
        """Return the index of the choice made for each row, without answering.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            As in `predict_routed`.

        **parameters : keyword arguments
            Other keywords of the calls of this class.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=int64
            Index into ``choices_``.
        """
        return self.plan(X, self.make_call(budget, **parameters)).route

    def predict_cost(
        self, X: Any, budget: float | None = None, **parameters: Any
    ) -> np.ndarray:
        """Return what `predict` is billed for each row, without answering.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            As in `predict_routed`.

        **parameters : keyword arguments
            Other keywords of the calls of this class.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=float64
            Bill of each row, in the unit of `costs`. If bills come after the call, it
            is the expected bill.
        """
        return self.plan(X, self.make_call(budget, **parameters)).cost

    def predict(
        self, X: Any, budget: float | None = None, **parameters: Any
    ) -> np.ndarray:
        """Answer each row with the choice made for it.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            As in `predict_routed`.

        **parameters : keyword arguments
            Other keywords of the calls of this class.

        Returns
        -------
        ndarray of shape (n_samples,)
            The answers.
        """
        return self.answer(self.plan(X, self.make_call(budget, **parameters)))

    def _predict_proba(
        self, X: Any, budget: float | None = None, **parameters: Any
    ) -> np.ndarray:
        """Return class probabilities from the choice made for each row.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        budget : float, default=None
            As in `predict_routed`.

        **parameters : keyword arguments
            Other keywords of the calls of this class.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        return self.answer(
            self.plan(X, self.make_call(budget, **parameters)), "predict_proba"
        )

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        budget: float | None = None,
        **parameters: Any,
    ) -> float:
        """Return the accuracy or R2 of `predict`, over the rows that are answered.

        The score is that of scikit-learn, even if `quality` of the estimator is another
        one. :func:`~skroute.metrics.mean_quality_scorer` measures the answers by
        `quality`.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,)
            True labels or numbers.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            As in `predict_routed`.

        **parameters : keyword arguments
            Other keywords of the calls of this class.

        Returns
        -------
        float
            Accuracy of labels, coefficient of determination of numbers.
        """
        call = self.make_call(budget, **parameters)
        # Bad input is refused before a model is called.
        if X is not None and not isinstance(X, Mapping):
            check_consistent_length(X, y)
        check_rows_match(X=X, y=y, sample_weight=sample_weight, **call.keywords)
        refuse_missing(y=y)
        if sample_weight is not None:
            sample_weight = check_row_weights(sample_weight, num_samples(X))
        return self._score_routed(y, self.respond(X, call), sample_weight)

    def _score_routed(self, y, routed, sample_weight):
        """Return the score of the answered rows, NaN if all rows abstain.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            True labels or numbers.

        routed : Routed
            Answers and choices.

        sample_weight : array-like of shape (n_rows,), or None

        Returns
        -------
        float
        """
        y = np.asarray(on_host(y))
        rows = answered_rows(self, routed.route)
        if not len(rows):
            return np.nan
        weight = None if sample_weight is None else np.asarray(sample_weight)[rows]
        metric = r2_score if is_regressor(self) else accuracy_score
        return metric(y[rows], routed.y_pred[rows], sample_weight=weight)


print_nested(CostAwareMixin.__repr__, printed_estimator)


def routed_of(plan, y_pred):
    """Return the answers, choices and costs of a plan as a :class:`Routed`.

    Parameters
    ----------
    plan : Plan

    y_pred : ndarray of shape (n_rows,) or (n_rows, n_outputs), or None
        The answers. None if the rows were not answered.

    Returns
    -------
    Routed
    """
    # If the plan has no quoted cost, rows were decided by their bills.
    quoted_cost = plan.cost if plan.quoted_cost is None else plan.quoted_cost
    return Routed(
        y_pred,
        route=plan.route,
        cost=plan.cost,
        expected_quality=plan.quality,
        quoted_cost=quoted_cost,
        expected_amounts=plan.amounts,
    )


# The public methods as `CostAwareMixin` writes them, with ``**parameters``. A class
# that lists its keywords gets copies that show them.
_VIEWS = {
    name: vars(CostAwareMixin)[name]
    for name in (
        "predict_routed",
        "route",
        "predict_cost",
        "predict",
        "_predict_proba",
        "score",
    )
}


def _declare_views(cls):
    """Give a class copies of the public calls whose signatures show its keywords.

    A view is a public method of :class:`CostAwareMixin` that takes the keywords of a
    call, such as `predict`. A view that the class writes itself is kept. If its
    signature ends in ``**parameters``, it gets the keywords, too. A class whose
    keywords are a property, not a tuple, gets the views as they are written.

    Parameters
    ----------
    cls : class
        Changed in place.
    """
    for name, view in _VIEWS.items():
        view = vars(cls).get(name, view)
        if isinstance(cls.call_parameters, tuple) and takes_any_keyword(view):
            view = with_parameters(view, cls.call_parameters)
            view.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, view)
    if "predict_proba" not in vars(cls):
        # Signature and docstring of `predict_proba` are those of `_predict_proba`. The
        # public method exists only if the estimator has probabilities.
        cls._predict_proba.__name__ = "predict_proba"
        cls.predict_proba = available_if(_offers_proba)(cls._predict_proba)


def _offers_proba(estimator):
    """Return True if a decision estimator has class probabilities."""
    return estimator._offers_proba()


_declare_views(CostAwareMixin)
