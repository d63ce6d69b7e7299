"""Certified router: a guarantee for any decision estimator."""

from copy import copy, deepcopy
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.metrics import r2_score
from sklearn.utils import (
    check_consistent_length,
    check_random_state,
    column_or_1d,
    get_tags,
)
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted

from skroute.base import (
    CostAwareMixin,
    Plan,
    check_budget,
    check_rows,
    note_failure,
)
from skroute.base._inspection import (
    answered_rows,
    is_frozen,
    models_of,
    takes_keyword,
    unfrozen,
)
from skroute.certified._batch import certify_batch
from skroute.certified._certificate import warn_of_no_saving
from skroute.certified._evidence import (
    EvidenceRows,
    check_reference,
    collect,
    groups_of_rows,
    operating_budgets,
)
from skroute.certified._loss import loss_of
from skroute.certified._monitor import PromiseMonitor
from skroute.certified._selection import Selection
from skroute.metrics._curve import check_bills, checked_targets
from skroute.metrics._objectives import OF_LABELS
from skroute.metrics._off_policy import count_seen
from skroute.utils._cache import with_cache
from skroute.utils._compat import (
    HasMethods,
    Integral,
    Interval,
    Real,
    StrOptions,
    _safe_indexing,
    check_method_params,
    num_samples,
    process_routing,
    raise_for_params,
    routing_enabled,
)
from skroute.utils._named import check_rows_match, in_order
from skroute.utils._tensors import on_host
from skroute.utils._tolerances import LIMIT_ROOM
from skroute.utils._typing import NDArray
from skroute.utils._validation import (
    check_known_labels,
    check_numbers,
    check_row_weights,
    check_some_known,
    refuse_masked,
    refuse_missing,
    warn,
)

# With a fitted estimator, some rows only set the scale of the budgets, and are lost as
# evidence. In samples of up to 100 rows, this share of the rows sets the scale.
_SCALE_SHARE = 0.05
# In samples of 100 to 600 rows, this number of rows sets the scale of the budgets.
_SCALE_ROWS = 5
# In larger samples, one in this number of rows sets the scale of the budgets.
_ROWS_PER_SCALE_ROW = 100

# Keywords of a call that change which choices a row may have. A certificate is about
# calls with such a keyword only if the calls about the evidence rows had it as well.
_RESTRICTIONS = ("costs", "exclude", "allowed")

# Message of the error for `sample_weight`.
UNWEIGHTED = (
    "sample_weight: a certificate counts every evidence row once. For a promise about "
    "a weighted population draw the evidence by its weights, with kept = "
    "rng.random(n_rows) < weight / weight.max(), and give the rows that are kept. "
    "Weights for learning alone reach `fit` of an estimator that is not fitted by "
    "scikit-learn's metadata routing."
)


class _CheckedRows(NamedTuple):
    """Rows given to `fit` or `recertify`, checked.

    Attributes
    ----------
    X : {array, sparse matrix, dataframe} of shape (n_samples, n_features)
    y : array-like
        Targets as given.
    targets : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        `y` as an array.
    groups : ndarray of shape (n_samples,) or None
        Group of each row. None if the promise is about all rows together.
    """

    X: Any
    y: Any
    targets: NDArray[Any]
    groups: NDArray[Any] | None


class CertifiedRouter(CostAwareMixin, BaseEstimator):
    r"""Guarantee of a limit on the loss, the cost or both, for a decision estimator.

    A decision estimator is a path of policies from cheap to expensive. Its budget picks
    one. On rows that were not used to fit, the point of the path is picked such that,
    with probability `confidence` over these rows,

    - the expected loss against a reference is at most `max_loss`, and
    - the expected cost is at most `budget`.

    With `max_loss` it is the **cheapest** such point, with `budget` alone the one of
    the best quality. Afterwards the router predicts as the wrapped estimator does at
    that point, and ``certificate_`` is the guarantee.

    Parameters
    ----------
    estimator : decision estimator
        An estimator of skroute with ``predict_routed``. It is cloned and fitted on the
        rows that are not held out. Pass a fitted one as
        :class:`~sklearn.frozen.FrozenEstimator`: the rows given to `fit` are then
        evidence, except for one in a hundred (at least five), which set the scale of
        the budgets on the path.

    max_loss : float, default=None
        Largest expected loss against the reference, as a mean over rows. Losses are
        signed: a row that the router gets right and the reference gets wrong has a
        negative loss. Raising it saves more. None promises no loss.

    budget : float, default=None
        Largest expected cost per row. None and infinity promise no cost. Raising it
        buys better answers, or changes nothing if `max_loss` is given.

    reference : "best", "full", str or fitted estimator, default="best"
        The reference that the loss is measured against. With ``"best"`` each single
        choice is a reference, and so is the best one. A single choice is a member of
        the wrapped estimator, or a column of logged qualities. If there are none,
        ``"best"`` is ``"full"``. ``"full"`` is the wrapped estimator without a budget
        (not the full model of a gate or an early exit, which is its ``estimator_``). A
        name stands for the single choice of this name. A reference that is called is
        called on **all** evidence rows.

    loss : callable, default=None
        ``loss(y_true, y_pred)`` returns the loss of each row. None takes minus the
        `quality` of the wrapped estimator, such as money for a cost matrix. If the
        estimator has no `quality`, the loss depends on y. For labels it is 1 for a
        wrong one and 0 for the right one. If y has a column per choice, it is one minus
        the logged quality of the choice. If y is an indicator matrix, it is one minus
        the overlap of label sets. The certificate has the unit.

    loss_range : float, default=None
        Largest possible difference of two losses of a row. None takes the known range
        for labels, cost matrices, probabilities and qualities from 0 to 1. It must be
        given together with `loss`, for errors of numbers and for functions. Raising it
        needs more rows.

    max_cost : float, default=None
        Largest possible cost of a row, for the promise of `budget`. None takes the
        largest cost of the evidence rows, which the certificate states as an
        assumption.

    groups : "class" or array-like of shape (n_samples,), default=None
        The loss is promised within each class of y, or within each group of the rows
        given to `fit`, and not only on average over them. It needs enough evidence rows
        in each.

    confidence : float, default=0.95
        Probability, over the evidence rows, that all of the promise is true. Raising it
        needs more rows.

    calibration : float, default=0.3
        Share of the rows that is held out as evidence. Raising it promises more and
        leaves fewer rows to fit. It is not used with a fitted estimator.

    n_points : int, default=50
        Number of budgets along the path, from the smallest feasible to unlimited. With
        more of them, still no model is called twice about a row.

    fallback : {"raise", "safe"}, default="raise"
        If `max_loss` cannot be promised: raise an error with the loss that can, or take
        the unlimited plan with a certificate that promises nothing. A `budget` that
        cannot be promised is always an error.

    random_state : int, RandomState instance or None, default=None
        Determines the evidence rows and their order. Pass an int for the same result at
        every fit.

    Attributes
    ----------
    choices_ : list of str
        Choices of the wrapped estimator.

    estimator_ : decision estimator
        The wrapped estimator, fitted. It is a copy: later changes of a frozen
        estimator, its prices included, have no effect here.

    certificate_ : Certificate
        The guarantee at the present `budget`.

    operating_points_ : namedtuple
        All operating points of the path, from the safe end on. Arrays with one entry
        per point: ``budget``, ``loss`` and ``cost`` (means on the evidence rows),
        ``loss_upper`` and ``cost_upper`` (bounds of each point alone), ``certified``.
        The field ``single`` is the name of the choice that answers every row at the
        first point, or None.

    abstain_quality_ : float or None
        Quality of a row that abstains. None if the wrapped estimator never abstains.

    min_budget_ : float
        The smallest budget that can be promised in addition to `max_loss`. Infinity if
        there is none.

    classes_ : ndarray of shape (n_classes,)
        Class labels, if the wrapped estimator has them.

    n_features_in_ : int
        Number of features seen during `fit`, if X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, if all are strings.

    See Also
    --------
    CertificateDisplay : Plot of the bounds over the operating points.
    PromiseMonitor : Alarm if a promise no longer holds.
    skroute.guarantees.rows_needed : Number of evidence rows that a promise needs.

    Notes
    -----
    Operating points are tested from the safe end, each at the full level until the
    first that fails (Learn then Test with fixed sequence testing [1]_). The safe end is
    the single choice that the loss is measured against, with all rows answered by it.
    The unlimited plan is the next point. Losses of 0 and 1, which labels and
    whole-numbered qualities give, are tested exactly (``method="trinomial"`` of
    :func:`~skroute.guarantees.mean_p_value`), others by betting [2]_. The cost is
    tested likewise, from the cheap end. Two promises take half of the level each.
    Several references and groups cost no level: the worst one counts. Several
    estimators must share the level by hand: certify each of K with a confidence of ``1
    - (1 - confidence) / K`` on the same rows, and take the cheapest.

    Certifying calls each member at most once about an evidence row, for all operating
    points and the reference together. Estimates are computed once per row.
    ``certificate_.calls`` has the number of calls. ``reference="best"`` calls every
    member about every evidence row. Logged qualities need no call.

    The means in the certificate are from the rows that chose the operating point, so
    they are a little too good. The guarantee accounts for this. `fit` and `recertify`
    warn if the certified point saves nothing.

    A budget given to a call replaces that of the constructor. The promise holds for
    each budget that was not chosen by looking at the evidence. Costs are bills. If the
    bills of the wrapped estimator come after the call, give those of the evidence rows
    as ``costs``: cost, saving and the promise of `budget` then rest on them. Without
    them costs are expected bills, and no budget can be promised.

    Every evidence row counts once. For a promise about a **weighted population** give
    evidence that is drawn by the weights, ``kept = rng.random(n_rows) < weight /
    weight.max()``.

    Keywords that calls of the wrapped estimator take about rows, such as ``costs`` or
    ``size``, are taken by every call here, and by `fit`, :meth:`recertify` and
    :meth:`certify_batch` for the evidence rows. With metadata routing these are the
    keywords that the estimator requests for its `predict`. Operating points that
    ``costs`` of rows make infeasible are left out.

    References
    ----------
    .. [1] A. N. Angelopoulos et al., "Learn then Test: Calibrating predictive
       algorithms to achieve risk control", 2021, arXiv 2110.01052.
    .. [2] I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random variables by
       betting", Journal of the Royal Statistical Society B 86, 2024.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skroute.certified import CertifiedRouter
    >>> from skroute.routing import OccamRouterClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> forest = RandomForestClassifier(30, random_state=0)
    >>> members = [("bayes", GaussianNB()), ("forest", forest)]
    >>> router = OccamRouterClassifier(members, costs={"bayes": 1, "forest": 10})
    >>> certified = CertifiedRouter(router, max_loss=0.05, n_points=20, random_state=0)
    >>> certified = certified.fit(X, y)
    >>> certified.certificate_.promised, certified.certificate_.saving > 0.1
    (True, True)
    >>> print(certified.certificate_)
    With a confidence of 0.95, the mean loss against the best single choice is at ...
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods("fit")],
        "max_loss": [Interval(Real, 0, None, closed="left"), None],
        "budget": [Interval(Real, 0, None, closed="both"), None],
        "reference": [str, HasMethods("predict")],
        "loss": [callable, None],
        "loss_range": [Interval(Real, 0, 1e300, closed="right"), None],
        "max_cost": [Interval(Real, 0, None, closed="neither"), None],
        "groups": [StrOptions({"class"}), "array-like", None],
        "confidence": [Interval(Real, 0, 1, closed="neither")],
        "calibration": [Interval(Real, 0, 1, closed="neither")],
        "n_points": [Interval(Integral, 2, None, closed="left")],
        "fallback": [StrOptions({"raise", "safe"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator,
        *,
        max_loss=None,
        budget=None,
        reference="best",
        loss=None,
        loss_range=None,
        max_cost=None,
        groups=None,
        confidence=0.95,
        calibration=0.3,
        n_points=50,
        fallback="raise",
        random_state=None,
    ):
        self.estimator = estimator
        self.max_loss = max_loss
        self.budget = budget
        self.reference = reference
        self.loss = loss
        self.loss_range = loss_range
        self.max_cost = max_cost
        self.groups = groups
        self.confidence = confidence
        self.calibration = calibration
        self.n_points = n_points
        self.fallback = fallback
        self.random_state = random_state

    # Fit ------------------------------------------------------------------------------

    def fit(self, X, y=None, **params):
        """Fit the estimator, unless it is frozen, and certify it on other rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Training rows. With a fitted estimator they are evidence rows.

        y : array-like of shape (n_samples,) or (n_samples, n_choices)
            Targets as the wrapped estimator takes them. A frame of qualities is read by
            name.

        **params : dict
            Keywords about these rows of `fit` of the wrapped estimator, or of its
            calls, by name or through metadata routing.

        Returns
        -------
        self
            Fitted estimator. After a failure it is not fitted.

        Raises
        ------
        TypeError
            If ``sample_weight`` is given without metadata routing. The bound of a
            certificate holds for a mean over rows that were drawn alike, so every
            evidence row counts once. Draw the evidence by the weights instead, see the
            notes of the class. With metadata routing, the weights reach `fit` of an
            estimator that is not fitted, and no evidence row.

        Warns
        -----
        UserWarning
            If the certified point saves nothing, or evidence rows equal rows that a
            fitted estimator was fitted on.
        """
        if params.get("choice") is not None:
            raise TypeError(
                "A log of one answer for each request cannot be certified: what other "
                "choices would have answered is not known. "
                "skroute.metrics.off_policy_curve has intervals for such logs; a "
                "certificate takes rows with the outcome of every choice."
            )
        if params.get("sample_weight") is not None and not routing_enabled():
            raise TypeError(UNWEIGHTED)
        return super().fit(X, y, **params)

    def _fit(self, X, y, *, task, **params):
        """Fit the wrapped estimator on some rows, and certify it on the others.

        `task` reports steps to callbacks. `params` are keywords about the rows.
        """
        self._check_estimator(unfrozen(self.estimator))
        if self.max_loss is None and self.budget is None:
            raise ValueError(
                "There is nothing to promise: give max_loss, the largest mean loss "
                "against the reference, budget, the largest mean cost, or both."
            )
        rows = self._check_input(X, y, self.groups, params, reset=True)
        self._check_loss_and_reference(rows.targets)
        fit_params, call = self._split_params(params)
        # Evidence rows are in random order: their tests bet on one row after the other.
        order = check_random_state(self.random_state).permutation(num_samples(rows.X))
        n_fit = self._n_rows_to_fit(len(order))
        # Rows that fit the estimator and set the scale of the budgets.
        fit_rows = np.sort(order[:n_fit])
        evidence_rows = order[n_fit:]
        with task.step("fit estimator"), note_failure("estimator", n_fit, "fit"):
            model = self._fit_estimator(rows, fit_rows, fit_params)
        self._set_estimator(model)
        self._y_ndim = rows.targets.ndim
        self._group_values = self._expected_groups(rows.groups)
        call, bills = self._without_bills(call)
        self._check_evidence(rows, bills)
        budgets = operating_budgets(
            with_cache(self.estimator_),
            _safe_indexing(rows.X, fit_rows),
            self.n_points,
            check_method_params(rows.X, call, indices=fit_rows),
        )
        with task.step("collect evidence"):
            self._certify(
                rows,
                order=evidence_rows,
                budgets=budgets,
                call=call,
                bills=bills,
                maybe_fitted_on=is_frozen(self.estimator),
            )
        self.choices_ = list(self.estimator_.choices_)

    def _check_loss_and_reference(self, targets):
        """Raise an error if `max_loss` is too large, or `reference` cannot answer.

        Only a frozen estimator is fitted here already. The range of its loss also
        counts classes that are not in `targets`.
        """
        loss = loss_of(unfrozen(self.estimator), targets, self.loss, self.loss_range)
        if not isinstance(self.reference, str):
            # Names of single choices are known after the fit.
            check_reference(self.reference, [], loss.objective)
        if self.max_loss is not None and self.max_loss > loss.range:
            raise ValueError(
                f"max_loss={self.max_loss!r} promises nothing: losses of a row differ "
                f"by at most {loss.range:.6g} ({loss.unit}). Give a share of that, for "
                f"example {0.01 * loss.range:.3g}."
            )

    def _n_rows_to_fit(self, n_rows):
        """Return how many of `n_rows` rows are not evidence."""
        if is_frozen(self.estimator):
            # These rows only set the scale of the budgets.
            n_by_share = max(1, round(n_rows * _SCALE_SHARE))
            n_allowed = max(_SCALE_ROWS, n_rows // _ROWS_PER_SCALE_ROW)
            n_fit = min(n_by_share, n_allowed)
        else:
            n_evidence = max(1, round(n_rows * self.calibration))
            n_fit = n_rows - n_evidence
        if not 0 < n_fit < n_rows:
            raise ValueError(
                f"n_samples={n_rows} leaves no evidence rows, or none to learn from, "
                f"at calibration={self.calibration!r}: give more rows."
            )
        return n_fit

    def _fit_estimator(self, rows, fit_rows, fit_params):
        """Return a clone of the estimator, fitted on some rows.

        `fit` of a frozen estimator trains nothing, and raises an error if it is not
        fitted.

        Parameters
        ----------
        rows : _CheckedRows
        fit_rows : ndarray of int
            Positions in `rows` of the rows to fit on.
        fit_params : dict
            Keywords about all `rows`.
        """
        model = clone(self.estimator)
        fit_params = check_method_params(rows.X, fit_params, indices=fit_rows)
        # Classifiers take labels as an array. A frame of qualities is passed as it is,
        # since its columns have names.
        y = rows.targets if is_classifier(model) else rows.y
        model.fit(
            _safe_indexing(rows.X, fit_rows), _safe_indexing(y, fit_rows), **fit_params
        )
        return model

    def _set_estimator(self, model):
        """Set `estimator_` to a copy of a model, and the attributes taken from it."""
        self.estimator_ = copy(unfrozen(model))
        if hasattr(self.estimator_, "costs"):
            # A change of prices acts at once. The copy has prices of its own, since
            # later changes by the owner of the estimator are not certified.
            self.estimator_.costs = deepcopy(self.estimator_.costs)
        if hasattr(self.estimator_, "classes_"):
            self.classes_ = self.estimator_.classes_
        self.abstain_quality_ = getattr(self.estimator_, "abstain_quality_", None)

    def _expected_groups(self, groups):
        """Return the groups that need evidence rows: those of `fit`, or all classes.

        `groups` has the group of each row of `fit`, or is None.
        """
        if groups is None:
            # No group is expected.
            return np.unique([])
        group_values = np.unique(groups)
        if isinstance(self.groups, str) and hasattr(self, "classes_"):
            group_values = np.union1d(group_values, self.classes_)
        return group_values

    def recertify(self, X, y, groups=None, **call):
        """Certify again on new evidence rows, without a new fit.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows that were not used to fit. All of them are evidence.

        y : array-like of shape (n_samples,) or (n_samples, n_choices)
            Targets of the rows, as in `fit`. A frame of qualities is read by name.

        groups : array-like of shape (n_samples,), default=None
            Groups of the rows, if the constructor's `groups` is an array.

        **call : keyword arguments
            Keywords of calls of the wrapped estimator about these rows.

        Returns
        -------
        self
            With another operating point and certificate, and unchanged after an error.
            It warns as `fit` does.
        """
        check_is_fitted(self)
        if "sample_weight" in call:
            raise TypeError(UNWEIGHTED)
        if isinstance(self.groups, str):
            groups = self.groups
        if self.groups is not None and groups is None:
            raise ValueError(
                "groups must be given for the new rows, as they were in fit."
            )
        rows = self._check_input(X, y, groups, call, reset=False)
        if rows.targets.ndim != self._y_ndim:
            raise ValueError(
                f"y must have as many axes as in fit, {self._y_ndim}, got shape "
                f"{rows.targets.shape}."
            )
        order = check_random_state(self.random_state).permutation(num_samples(rows.X))
        call, bills = self._without_bills(self._routed_call(call))
        self._check_evidence(rows, bills)
        self._certify(
            rows,
            order=order,
            budgets=self._selection.path_budgets(),
            call=call,
            bills=bills,
            maybe_fitted_on=True,
        )
        return self

    def _check_estimator(self, model):
        """Raise a ValueError unless a model is a router that decides row by row."""
        if not isinstance(model, CostAwareMixin) or isinstance(model, CertifiedRouter):
            raise ValueError(
                "estimator must be a decision estimator of skroute, which has a budget "
                f"and predict_routed, got {type(model).__name__}. The steps of a "
                "pipeline before it belong into its members or its quality_estimator; "
                "of a fitted pipeline or search give FrozenEstimator(pipeline[-1]) "
                "with the transformed rows, or "
                "FrozenEstimator(search.best_estimator_); of a CertifiedRouter its "
                "estimator."
            )
        if getattr(model, "policy", None) == "batch":
            raise ValueError(
                'estimator has policy="batch", which decides for all rows of a call '
                "together: what the evidence rows say then holds for no other number "
                'of rows. Take policy="online".'
            )

    def _split_params(self, params):
        """Split parameters into those of the estimator's `fit` and of its calls.

        Returns
        -------
        fit_params, call : dict
        """
        if routing_enabled():
            routed = self._route_metadata(params)["estimator"]
            return dict(routed.get("fit", {})), dict(routed.get("predict", {}))
        if is_frozen(self.estimator):
            # A frozen estimator is not fitted.
            return {}, params
        model = unfrozen(self.estimator)
        fit_parameters = signature(model.fit).parameters
        fit_params = {}
        call = {}
        unknown = {}
        for name, value in params.items():
            is_of_fit = name in fit_parameters
            is_of_call = takes_keyword(model, name)
            if is_of_fit:
                fit_params[name] = value
            if is_of_call:
                call[name] = value
            if not is_of_fit and not is_of_call:
                unknown[name] = value
        raise_for_params(unknown, self, "fit")
        return fit_params, call

    def _without_bills(self, call):
        """Split the bills of rows from the keywords of calls about these rows.

        Bills that are known before a call are among the keywords, too.

        Returns
        -------
        call : dict
        bills : array-like of shape (n_rows, n_choices), or None
        """
        bills = call.get("costs")
        if bills is None or self.estimator_.needs_costs_:
            return call, bills
        call = {name: value for name, value in call.items() if name != "costs"}
        return call, bills

    def _routed_call(self, call):
        """Return the keywords of a call of the wrapped estimator.

        With metadata routing, `call` has the names that the estimator requests for
        `predict`.
        """
        if routing_enabled():
            routed = process_routing(self, "predict", **call)
            return dict(routed["estimator"]["predict"])
        return call

    def _check_input(self, X, y, groups, keywords, *, reset):
        """Check rows, their targets and groups, and return them (`_CheckedRows`).

        `keywords` are other values for each row, whose number of rows is checked. If
        `reset` is True, the attributes that describe the columns of `X` are set.
        """
        if y is None:
            raise ValueError(
                "CertifiedRouter requires y to be passed, but the target y is None: a "
                "promise rests on what the right answers are."
            )
        refuse_masked(y=y, groups=groups)
        check_rows_match(X=X, y=y, groups=groups, **keywords)
        X = check_rows(self, X, reset=reset)
        check_consistent_length(X, y)
        bills = keywords.get("costs")
        if bills is not None and num_samples(bills) != num_samples(X):
            raise ValueError(
                f"costs must have one row for each of the {num_samples(X)} rows of X, "
                f"got {num_samples(bills)} rows."
            )
        if self.loss is None:
            refuse_missing(y=y)
        targets = _as_array(y)
        return _CheckedRows(X, y, targets, groups_of_rows(groups, targets))

    def _targets(self, y):
        """Return targets as an array, with qualities in the order of the choices."""
        model = self.estimator_
        if not (is_classifier(model) or is_regressor(model)):
            y = in_order(y, models_of(model), "y")
        return _as_array(y)

    def _check_evidence(self, rows, bills):
        """Raise an error if rows cannot be evidence, before a model is called.

        Parameters
        ----------
        rows : _CheckedRows
        bills : array-like of shape (n_rows, n_choices), or None
        """
        model = self.estimator_
        targets = self._targets(rows.y)
        objective = loss_of(model, targets, self.loss, self.loss_range).objective
        check_reference(self.reference, model.single_choices_, objective)
        if self.loss is None:
            self._check_targets(targets)
        if objective.classes is not None:
            # Such a quality has no number for a label that is not a class.
            check_known_labels(targets, objective.classes)
        if bills is not None:
            check_bills(model, num_samples(rows.X), bills)

    def _check_targets(self, targets):
        """Raise a ValueError if answers of the estimator cannot fit targets."""
        model = self.estimator_
        has_classes = isinstance(getattr(model, "classes_", None), np.ndarray)
        if has_classes or not is_classifier(model):
            checked_targets(targets, model)

    def _certify(self, rows, *, order, budgets, call, bills, maybe_fitted_on):
        """Call the estimator and the references on evidence rows, and set `_selection`.

        Parameters
        ----------
        rows : _CheckedRows
        order : ndarray of int
            Positions of the evidence rows in `rows`, in random order.
        budgets : ndarray
            In decreasing order, from infinity.
        call : dict
            Keywords of calls about all `rows`.
        bills : array-like of shape (n_rows, n_choices), or None
            Bill of each choice on all `rows`.
        maybe_fitted_on : bool
            True if the wrapped estimator may have been fitted on these rows.
        """
        router = with_cache(self.estimator_)
        all_targets = self._targets(rows.y)
        loss = loss_of(router, all_targets, self.loss, self.loss_range)
        evidence_rows = EvidenceRows(
            X=_safe_indexing(rows.X, order),
            y=all_targets[order],
            groups=None if rows.groups is None else rows.groups[order],
            call=check_method_params(rows.X, call, indices=order),
            bills=None if bills is None else _safe_indexing(bills, order),
        )
        self._check_labels_and_groups(evidence_rows)
        evidence = collect(
            router,
            budgets,
            evidence_rows,
            reference=self.reference,
            loss=loss,
            from_single=self.max_loss is not None,
        )
        self._check_ranges(evidence, loss)
        selection = Selection(
            evidence=evidence,
            loss_range=loss.range,
            range_is_given=self.loss_range is not None,
            unit=loss.unit,
            max_loss=self.max_loss,
            max_cost=self.max_cost,
            confidence=self.confidence,
            fallback=self.fallback,
        )
        # Raises an error if nothing can be promised.
        certificate = selection.certificate(check_budget(self.budget))
        if maybe_fitted_on:
            # This warns if the estimator was fitted on some of the rows.
            count_seen(self.estimator_, evidence_rows.X, "they are no evidence")
        warn_of_no_saving(certificate)
        self._selection = selection

    def _check_labels_and_groups(self, evidence_rows):
        """Raise a ValueError if y has no known label, or a group has no rows.

        `evidence_rows` is an `EvidenceRows`.
        """
        classes = getattr(self, "classes_", None)
        y = evidence_rows.y
        if self.loss is None and y.ndim == 1 and isinstance(classes, np.ndarray):
            check_some_known(y, classes)
        # Without groups, `_group_values` is empty.
        has_rows = np.isin(self._group_values, evidence_rows.groups)
        n_missing = int((~has_rows).sum())
        if n_missing:
            raise ValueError(
                f"groups: {n_missing} of {len(self._group_values)} have no evidence "
                "rows, so that nothing can be promised within them. Give more rows, or "
                "join small groups."
            )

    def _check_ranges(self, evidence, loss):
        """Raise a ValueError if costs or losses of evidence rows are out of range.

        Parameters
        ----------
        evidence : Evidence
        loss : Loss
        """
        largest_cost = float(evidence.costs.max())
        if self.max_cost is not None and largest_cost > self.max_cost:
            raise ValueError(
                f"max_cost={self.max_cost!r} is below what an evidence row has cost, "
                f"{largest_cost:.17g}."
            )
        # (n_rows, n_points, n_references)
        differences = (
            evidence.losses[:, :, None] - evidence.reference_losses[:, None, :]
        )
        largest_difference = np.abs(differences).max()
        # NaN must be refused as well: a comparison with NaN is False.
        if not largest_difference <= loss.range * (1 + LIMIT_ROOM):
            raise ValueError(
                f"Losses of a row differ by {largest_difference:.6g}, more than "
                f"loss_range={loss.range!r}, which must be what no row can exceed."
            )

    # The guarantee --------------------------------------------------------------------

    def _smallest_budget(self):
        """Return the smallest budget that can be promised. Infinity: there is none."""
        return self._selection.smallest_budget()

    @property
    def operating_points_(self):
        """All operating points with their bounds, for the present budget."""
        check_is_fitted(self)
        return self._selection.operating_points(check_budget(self.budget))

    @property
    def certificate_(self):
        """The guarantee at the present budget (:class:`Certificate`)."""
        check_is_fitted(self)
        return self._selection.certificate(check_budget(self.budget))

    def certify_batch(self, X, *, n_labels=100, label_cost=None, **call):
        """Answer a batch of known rows, with a guarantee for these rows.

        The reference's answers are bought for `n_labels` of the rows, drawn at random
        without replacement, and used. The other rows are answered at the cheapest
        operating point of the path that these labels certify: with probability
        `confidence` over the draw, the mean loss of the finished batch is at most
        `max_loss`. The reference's answers are the truth here. If losses are 0 and 1,
        the test is exact, by the hypergeometric law (see :ref:`guarantees`).
        No target is needed, and no `fit` with a
        :class:`~sklearn.frozen.FrozenEstimator`.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            All rows of the batch.

        n_labels : int, default=100
            The label budget: number of rows that the reference is asked about. 100 to
            150 are about best if a tenth of the rows may differ. ``ceil(1 / max_loss)``
            is far too small.

        label_cost : float, default=None
            Cost of an answer of the reference. None takes the known cost of a single
            choice, or of the estimator without a budget.

        **call : keyword arguments
            Keywords of calls of the wrapped estimator about these rows.

        Returns
        -------
        namedtuple
            ``y_pred``, ``route`` (-1 if the answer is of a reference that is no choice)
            and ``cost`` of each row; ``labelled``, the rows whose answers were bought,
            in the order drawn; and ``certificate`` (:class:`Certificate`). The cost of
            a labelled row is the cost of the bought answer, plus an upper bound of the
            cost of all other answers that were tried.

        Raises
        ------
        ValueError
            If this number of labels can promise nothing: the error comes before an
            answer is bought. If the labels do not even certify the safe end of the
            path: the message has the loss that they can promise. If the batch costs
            more than `budget`. `fallback` has no effect: the safe way is then to ask
            the reference about every row, which the caller decides.

        Warns
        -----
        UserWarning
            If the batch costs no less than the reference's answers to all of it.

        Notes
        -----
        `reference` is ``"full"``, the name of a single choice, or a fitted estimator,
        such as a person behind a `predict`. ``"best"`` is not known without labels.
        `max_loss` is the share of the rows whose answers may differ, or with `loss` the
        mean of ``loss(bought, answer)``. For a router that measures labels or numbers
        by its own `quality`, it is the mean quality that an answer loses against the
        bought one. Members are called once about a labelled row, for all operating
        points together. Ten more rows set the scale of the budgets. If deciding itself
        calls members, as routers that look at a first answer do, the calls about these
        ten rows are not part of `cost`.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.frozen import FrozenEstimator
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from sklearn.svm import SVC
        >>> from skroute.certified import CertifiedRouter
        >>> from skroute.routing import OccamRouterClassifier
        >>> X, y = load_digits(return_X_y=True)
        >>> members = [("bayes", GaussianNB()), ("svm", SVC())]
        >>> router = OccamRouterClassifier(members, costs=[1, 10])
        >>> frozen = FrozenEstimator(router.fit(X[:800], y[:800]))
        >>> certified = CertifiedRouter(
        ...     frozen, max_loss=0.1, reference="svm", random_state=0
        ... )
        >>> batch = certified.certify_batch(X[800:], n_labels=100)
        >>> print(batch.certificate)
        With a confidence of 0.95, the mean loss against svm on this batch of 997 ...
        >>> svm_answers = router.named_estimators_["svm"].predict(X[800:])
        >>> bool((batch.y_pred != svm_answers).mean() <= 0.1)
        True
        """
        self._validate_params()
        if not is_frozen(self.estimator):
            check_is_fitted(self)
        # `choices_` is set last in `fit`: after a failure it is missing.
        if hasattr(self, "choices_"):
            router = self.estimator_
        else:
            router = unfrozen(self.estimator)
        self._check_estimator(router)
        check_is_fitted(router)
        check_rows_match(X=X, **call)
        X = check_rows(router, X, reset=False)
        return certify_batch(
            self,
            router,
            X,
            n_labels=n_labels,
            label_cost=label_cost,
            call=self._routed_call(call),
        )

    def monitor(self, *, audit_rate=0.1, false_alarm=0.05, random_state=None):
        """Return a monitor for the guarantee.

        Parameters
        ----------
        audit_rate : float
            As in :class:`PromiseMonitor`.

        false_alarm : float
            As in :class:`PromiseMonitor`.

        random_state : int, RandomState instance or None, default=None
            As in :class:`PromiseMonitor`.

        Returns
        -------
        PromiseMonitor
            Feed it with costs and losses.
        """
        certificate = self.certificate_
        if not certificate.promised:
            raise ValueError(
                "There is nothing to watch: the certificate promises nothing."
            )
        max_loss = certificate.max_loss
        loss_range = self._selection.loss_range
        if max_loss is not None and max_loss >= loss_range:
            # The promise is true for all rows: there is nothing to watch.
            max_loss = None
        budget = certificate.budget
        _, largest_cost = self._selection.cost_range()
        # A cost that exceeds the largest one by rounding alone is not cut off.
        max_cost = largest_cost * (1 + LIMIT_ROOM)
        if budget is not None and budget >= largest_cost:
            # Only costs above all costs of the evidence can break this promise. They
            # must not be cut off at the largest one. None is the monitor's default.
            max_cost = None
        return PromiseMonitor(
            max_loss=max_loss,
            budget=budget,
            loss_range=loss_range,
            max_cost=max_cost,
            audit_rate=audit_rate,
            false_alarm=false_alarm,
            random_state=random_state,
        )

    def stream(self, budget_total, **options):
        """Return a stream at the certified budget, with a total that is never exceeded.

        Parameters
        ----------
        budget_total : float
            Hard cap on the sum of all costs.

        **options : keyword arguments
            Keywords of the wrapped estimator's `stream`, such as ``ledger`` and
            ``max_costs``. With ``n_expected``, a warning says that nothing is promised:
            the stream follows what is left of the total, in place of the certified
            budget.

        Returns
        -------
        skroute.routing.BudgetStream
            A thread-safe stream. Every request is decided as by `route`, at the present
            operating point, and the guarantee holds while the total lasts. If too
            little of the total is left, a request gets a cheaper choice or none.
            Nothing is promised about such requests, and about requests while choices
            are excluded.
        """
        certificate = self.certificate_
        model = copy(self.estimator_)
        if not hasattr(model, "stream"):
            raise ValueError(
                f"{type(model).__name__} has no method stream, since it pays while it "
                "decides. Use skroute.routing.BudgetStream(certified, budget_total, "
                "max_costs=...), without n_expected."
            )
        n_expected = options.get("n_expected")
        if n_expected is not None:
            warn(
                f"n_expected={n_expected!r}: the stream follows what is left of the "
                "total, and not the certified budget. Nothing is promised about its "
                "decisions. With n_expected=None it stays at this budget."
            )
        if "costs" in self._selection.evidence.call_keywords:
            warn(
                "costs: the evidence was decided with the costs of each row. The "
                "certificate is about requests whose costs are known before they are "
                "decided."
            )
        model.budget = certificate.operating_budget
        stream = model.stream(budget_total, **options)
        if certificate.single is not None:
            # Each request is answered by the single choice.
            other_choices = [
                name for name in model.choices_ if name != certificate.single
            ]
            stream.exclude(other_choices)
        return stream

    # Predict --------------------------------------------------------------------------

    @property
    def call_parameters(self):
        """Keywords of the calls: those of the wrapped estimator."""
        return self._wrapped().call_parameters

    def _wrapped(self):
        """Return the fitted wrapped estimator, or before `fit` the given one."""
        if "estimator_" in vars(self):
            return self.estimator_
        return unfrozen(self.estimator)

    def make_call(self, budget=None, **parameters):
        """Return the parameters of a call as one object.

        Parameters
        ----------
        budget : float, default=None
            Promised mean cost per sample of this call. None takes that of the
            constructor.

        **parameters : keyword arguments
            Keywords of the wrapped estimator. With metadata routing they have the names
            that it requests for `predict`.

        Returns
        -------
        Call
            The call, for :meth:`plan`.
        """
        return super().make_call(budget, **self._routed_call(parameters))

    def _plan(self, X, call):
        """Return the plan of the wrapped estimator at the certified operating point.

        The `state` of the plan is the plan of the wrapped estimator.
        """
        evidence = self._selection.evidence
        # Index of the operating point.
        point = self._selection.point(call.budget)
        keywords = call.keywords
        if "costs" in evidence.call_keywords and "costs" not in keywords:
            raise ValueError(
                "costs are missing: the evidence was decided with the costs of each "
                "row, so that the certificate is about such calls. Give costs, or fit "
                "without them."
            )
        restrictions = set(_RESTRICTIONS).intersection(keywords)
        new_restrictions = restrictions - evidence.call_keywords
        if new_restrictions:
            warn(
                f"{' and '.join(sorted(new_restrictions))}: the evidence says nothing "
                "about such calls. The guarantee of certificate_ does not hold for "
                "them."
            )
        model = self.estimator_
        # A call with new restrictions may exclude the single choice.
        is_single = point == 0 and evidence.single is not None
        if is_single and not new_restrictions:
            plan = model.plan_single(X, evidence.single, model.make_call(**keywords))
            return Plan(plan.route, plan.cost, state=plan)
        try:
            inner_call = model.make_call(float(evidence.budgets[point]), **keywords)
            plan = model.plan(X, inner_call)
        except ValueError as error:
            if restrictions:
                error.add_note(
                    "The budget is that of the operating point; estimator_ takes yours."
                )
            raise
        return plan._replace(state=plan)

    def _answer(self, plan, response):
        """Return the answers of the wrapped estimator to the rows of a plan.

        `response` is the method that answers, such as ``"predict"``.
        """
        return self.estimator_.answer(plan.state, response)

    def _single_choices(self):
        """Return the names of the choices that can answer all rows alone."""
        return self.estimator_.single_choices_

    def _plan_single(self, X, name, call):
        """Return the plan of the wrapped estimator in which one model answers."""
        model = self.estimator_
        plan = model.plan_single(X, name, model.make_call(**call.keywords))
        return plan._replace(state=plan)

    def bill(self, plan, costs):
        """Return the bill of each row of a plan, from the bill of each choice.

        Parameters
        ----------
        plan : Plan
            From :meth:`plan` or :meth:`plan_single`.

        costs : {array-like, dataframe} of shape (n_samples, n_choices)
            As the wrapped estimator takes it.

        Returns
        -------
        ndarray of shape (n_samples,), dtype=float64
        """
        return self.estimator_.bill(plan.state, costs)

    @property
    def needs_costs_(self):
        """True if calls of the wrapped estimator, and so calls here, need ``costs``."""
        check_is_fitted(self)
        return self.estimator_.needs_costs_

    def _offers_proba(self):
        """Return True if the wrapped estimator has `predict_proba`."""
        return hasattr(self._wrapped(), "predict_proba")

    def _share_cache(self, cache):
        """Give the wrapped estimator a new cache that adds to the counts of `cache`."""
        self.estimator_ = with_cache(self.estimator_, cache.row_counts)

    def score(self, X, y, sample_weight=None, budget=None, **call):
        """Return the score of the answers, of the kind that the wrapped estimator has.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,) or (n_samples, n_choices)
            True labels, true numbers, or the quality of each choice. A frame of
            qualities is read by name.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            As in `predict_routed`.

        **call : keyword arguments
            Keywords of the wrapped estimator, as in `predict_routed`.

        Returns
        -------
        float
            Accuracy of labels, Jaccard score of label sets, R2 of numbers, or mean
            quality of the choices. Rows that abstain are left out.
        """
        check_rows_match(X=X, y=y, sample_weight=sample_weight, **call)
        check_is_fitted(self)
        if is_classifier(self.estimator_) or is_regressor(self.estimator_):
            refuse_missing(y=y)
        # Wrong targets and weights are refused before a model is called.
        targets = self._targets(y)
        self._check_targets(targets)
        check_consistent_length(X, targets)
        weight = check_row_weights(sample_weight, num_samples(X))
        routed = self.predict_routed(X, budget=budget, **call)
        rows = answered_rows(self, routed.route)
        if not len(rows):
            return np.nan
        weight = weight[rows]
        if is_regressor(self.estimator_):
            # An array of answers with rows that abstain has objects. Here they become
            # numbers.
            answers = np.array(routed.y_pred[rows].tolist())
            return float(r2_score(targets[rows], answers, sample_weight=weight))
        quality = OF_LABELS["accuracy"].of_routed(targets, routed, self.estimator_)
        quality = check_numbers(quality[rows], "y")
        return float(np.average(quality, weights=weight))

    # scikit-learn ---------------------------------------------------------------------

    def __sklearn_tags__(self):
        inner = unfrozen(self.estimator)
        if hasattr(inner, "__sklearn_tags__"):
            return get_tags(inner)
        # Tags are read before parameters are validated: `fit` refuses such an
        # estimator.
        return super().__sklearn_tags__()

    def get_metadata_routing(self):
        """Return the metadata routing of this object: see the scikit-learn user guide.

        Returns
        -------
        MetadataRouter
            The routing of this estimator.
        """
        mapping = MethodMapping()
        # Keywords about rows are requested for `predict`, and used for every call.
        for caller in ("fit", "predict", "predict_proba", "score"):
            mapping.add(caller=caller, callee="predict")
        if not is_frozen(self.estimator):
            mapping.add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=unfrozen(self.estimator), method_mapping=mapping)


def _as_array(y):
    """Return targets as an array, of one axis if they have one column."""
    if issparse(y):
        y = y.toarray()
    values = np.asarray(on_host(y))
    if values.ndim == 2 and values.shape[1] == 1:
        return column_or_1d(values, warn=True)
    return values
