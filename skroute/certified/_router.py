"""A promise around any decision estimator."""

from copy import copy, deepcopy
from inspect import signature

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

from skroute.base import CostAwareMixin, Plan, check_rows, note_failure
from skroute.base._inspection import (
    answered_rows,
    is_frozen,
    models_of,
    takes_keyword,
    unfrozen,
)
from skroute.certified._batch import certify_batch
from skroute.certified._certificate import warn_of_no_saving
from skroute.certified._evidence import collect, groups_of_rows, operating_budgets
from skroute.certified._loss import loss_of
from skroute.certified._monitor import PromiseMonitor
from skroute.certified._selection import Selection
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
from skroute.utils._validation import (
    check_numbers,
    check_row_weights,
    check_some_known,
    refuse_masked,
    refuse_missing,
    warn,
)

# Around a fitted estimator: the share of the rows that only set the scale of the operating points,
# and how many are enough where that is more. Each is a row less of evidence.
_SCALE_SHARE, _SCALE_ROWS = 0.05, 5

UNWEIGHTED = (
    "sample_weight: a certificate counts every evidence row once. For a promise about a weighted "
    "population draw the evidence by its weights, with kept = rng.random(n_rows) < weight / "
    "weight.max(), and give the rows that are kept. Weights for learning alone reach `fit` of an "
    "estimator that is not fitted by scikit-learn's metadata routing."
)


class CertifiedRouter(CostAwareMixin, BaseEstimator):
    r"""Guarantee a limit on the loss, the cost or both, for any estimator that makes decisions.

    A decision estimator is a path of policies from cheap to expensive; its budget picks one. On
    rows that nothing was learned from, the point of the path is picked such that, with
    probability `confidence` over these rows,

    - the expected loss against a reference is at most `max_loss`, and
    - the expected cost is at most `budget`.

    With `max_loss` it is the **cheapest** such point, with `budget` alone the one of the best
    quality. Afterwards the router predicts as the wrapped estimator does at that point, and
    ``certificate_`` says what is promised.

    Parameters
    ----------
    estimator : decision estimator
        An estimator of skroute with ``predict_routed``. It is cloned and fitted on the rows that
        are not held out. A fitted one is passed as :class:`~sklearn.frozen.FrozenEstimator`; the
        rows given to `fit` are then evidence, but for one in a hundred (at least five), which set
        the scale of the budgets that are tried.

    max_loss : float, default=None
        Largest expected loss against the reference, as a mean over rows. Losses are signed:
        rows that the router gets right and the reference wrong count for it. Raising it saves
        more. None promises no loss.

    budget : float, default=None
        Largest expected cost per row. None and infinity promise no cost. Raising it buys
        better answers, or changes nothing where `max_loss` is given.

    reference : "best", "full", str or fitted estimator, default="best"
        What the loss is measured against. ``"best"`` is every single choice, and so the best one: a
        member of the wrapped estimator, or a column of logged qualities; where there are none it is
        ``"full"``, the wrapped estimator without a budget (not the full model of a gate or an early
        exit, which is its ``estimator_``). A name is that single choice. A reference that is called
        is called on **all** evidence rows.

    loss : callable, default=None
        ``loss(y_true, y_pred)`` returns the loss of each row. None is minus the wrapped
        estimator's own `quality`, such as money for a cost matrix; without one, 1 for a wrong
        label and 0 for the right one; one minus the logged quality of the choice where y has a
        column per choice; one minus the overlap of label sets where y is an indicator matrix.
        The certificate says the unit.

    loss_range : float, default=None
        What two losses of a row can differ by at most. None takes what is known of labels, cost
        matrices, probabilities and qualities from 0 to 1; it must be given beside `loss`, for
        errors of numbers and for functions. Raising it needs more rows.

    max_cost : float, default=None
        What a row can cost at most, for the promise of `budget`. None takes the largest cost
        that is seen, and the certificate says so.

    groups : "class" or array-like of shape (n_samples,), default=None
        The loss is promised within each class of y, or within each group of the rows given to
        `fit`, and not only on average over them. It needs enough evidence rows in each.

    confidence : float, default=0.95
        Probability, over the evidence rows, that all of the promise is true. Raising it
        needs more rows.

    calibration : float, default=0.3
        Share of the rows that is held out as evidence. Raising it promises more and leaves
        less to learn from. It plays no part around a fitted estimator.

    n_points : int, default=50
        Budgets along the path, from the smallest feasible to unlimited. More of them ask for no
        answer twice.

    fallback : {"raise", "safe"}, default="raise"
        Where `max_loss` cannot be promised: an error that says what can, or the unlimited plan
        with a certificate that promises nothing. A `budget` that cannot be promised is always
        an error.

    random_state : int, RandomState instance or None, default=None
        Determines the evidence rows and their order. Pass an int for the same result at every fit.

    Attributes
    ----------
    choices_ : list of str
        Choices of the wrapped estimator.

    estimator_ : decision estimator
        The wrapped estimator, fitted. It is a copy: what the owner of a frozen one sets later,
        its prices included, changes nothing here.

    certificate_ : Certificate
        What is promised at the present `budget`.

    operating_points_ : namedtuple
        Every operating point that was tried, from the safe end on, one entry per point:
        ``budget``, ``loss`` and ``cost`` (means on the evidence rows), ``loss_upper`` and
        ``cost_upper`` (bounds of each point for itself), ``certified``; and ``single``, the
        choice that answers every row at the first point, or None.

    abstain_quality_ : float or None
        Quality of a row that abstains. None if the wrapped estimator never abstains.

    min_budget_ : float
        The smallest budget that can be promised beside `max_loss`; infinity where none can.

    classes_ : ndarray of shape (n_classes,)
        Class labels, where the wrapped estimator has them.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    CertificateDisplay : Picture of the bounds over the operating points.
    PromiseMonitor : Whether a promise still holds.
    skroute.guarantees.rows_needed : How many evidence rows a promise takes.

    Notes
    -----
    Operating points are tested from the safe end, each at the full level until the first that
    fails (Learn then Test with fixed sequence testing [1]_). The safe end is the single choice
    that the loss is measured against, answering every row, and the unlimited plan after it.
    Losses of 0 and 1, which labels and whole-numbered qualities give, are tested exactly
    (``method="trinomial"`` of :func:`~skroute.guarantees.mean_p_value`), others by betting [2]_.
    The cost is tested likewise, from the cheap end. Both promises together take half of the
    level each. Several references and groups cost nothing: the worst one counts. Several
    estimators share the level by hand: certify each of K with a confidence of
    ``1 - (1 - confidence) / K`` on the same rows, and take the cheapest.

    What certifying costs: each member is asked at most once about an evidence row, for all
    operating points and the reference together, and each row is read once by what estimates;
    ``certificate_.calls`` has the answers that were asked for. ``reference="best"`` asks every
    member about every evidence row. Logged qualities cost no call.

    The means in the certificate are from the rows that chose the operating point, and a little too
    good; what is promised is not. `fit` and `recertify` warn where what is certified saves nothing.

    A budget given to a call takes the place of the constructor's: that promise holds for each
    budget that was not chosen by looking at the evidence. Costs are those of ``predict_cost``;
    where calls turn out to cost something else, by a log that the wrapped estimator was fitted
    on, no budget can be promised.

    Every evidence row counts once. For a promise about a **weighted population** give evidence that
    is drawn by the weights, ``kept = rng.random(n_rows) < weight / weight.max()``.

    What the wrapped estimator takes about the rows of a call, such as ``costs`` or ``size``, is
    taken by every call here, and by `fit`, :meth:`recertify` and :meth:`certify_batch` for the
    evidence rows; with metadata routing it is what the estimator requests for its `predict`.
    Operating points below what rows cost at least, by the ``costs`` given, are left out.

    References
    ----------
    .. [1] A. N. Angelopoulos et al., "Learn then Test: Calibrating predictive algorithms to
       achieve risk control", 2021, arXiv 2110.01052.
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
    With a confidence of 0.95, the mean loss against the best single choice is at most 0.05 ...
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
        """Fit the estimator, unless it is frozen, and certify it on rows that were not used to fit.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Training rows, or around a fitted estimator evidence rows.

        y : array-like of shape (n_samples,) or (n_samples, n_choices)
            Targets as the wrapped estimator takes them; a frame of qualities is read by name.

        **params : dict
            What `fit` of the wrapped estimator, or its calls, take about these rows, by name or
            through metadata routing.

        Returns
        -------
        self
            Fitted estimator; after a failure it is not fitted.

        Raises
        ------
        TypeError
            For ``sample_weight`` without metadata routing. The bound of a certificate holds for
            a mean over rows that were drawn alike, so every evidence row counts once. Draw the
            evidence by the weights instead, see the notes of the class. With metadata routing,
            the weights reach `fit` of an estimator that is not fitted, and no evidence row.

        Warns
        -----
        UserWarning
            Where what is certified saves nothing, or evidence rows equal rows that a fitted
            estimator was fitted on.
        """
        if params.get("choice") is not None:
            raise TypeError(
                "A log of one answer for each request cannot be certified: what other choices "
                "would have answered is not known. skroute.metrics.off_policy_curve has intervals "
                "for such logs; a certificate takes rows with the outcome of every choice."
            )
        if params.get("sample_weight") is not None and not routing_enabled():
            raise TypeError(UNWEIGHTED)
        return super().fit(X, y, **params)

    def _fit(self, X, y, *, task, **params):
        self._check_estimator(unfrozen(self.estimator))
        if self.max_loss is None and self.budget is None:
            raise ValueError(
                "There is nothing to promise: give max_loss, the largest mean loss against the "
                "reference, budget, the largest mean cost, or both."
            )
        X, values, groups = self._checked(X, y, self.groups, params, reset=True)
        # Before anything is asked: a fitted estimator may know more classes than y has.
        loss = loss_of(unfrozen(self.estimator), values, self.loss, self.loss_range)
        if self.max_loss is not None and self.max_loss > loss.range:
            raise ValueError(
                f"max_loss={self.max_loss!r} promises nothing: losses of a row differ by at most "
                f"{loss.range:.6g} ({loss.unit}). Give a share of that, for example "
                f"{0.01 * loss.range:.3g}."
            )
        learned, call = self._split(params)
        n, frozen = num_samples(X), is_frozen(self.estimator)
        n_rest = min(max(1, round(n * _SCALE_SHARE)), max(_SCALE_ROWS, n // 100))
        if not frozen:
            n_rest = n - max(1, round(n * self.calibration))
        if not 0 < n_rest < n:
            raise ValueError(
                f"n_samples={n} leaves no evidence rows, or none to learn from, at "
                f"calibration={self.calibration!r}: give more rows."
            )
        order = check_random_state(self.random_state).permutation(n)
        rest, rows = np.sort(order[:n_rest]), order[n_rest:]
        X_rest, model = _safe_indexing(X, rest), clone(self.estimator)
        with task.step("fit estimator"), note_failure("estimator", n_rest, "fit"):
            learned = check_method_params(X, learned, indices=rest)
            y_rest = _safe_indexing(values if is_classifier(model) else y, rest)
            # A frozen one says here whether it is fitted, and learns nothing.
            model.fit(X_rest, y_rest, **learned)
        self.estimator_ = copy(unfrozen(model))
        if hasattr(self.estimator_, "costs"):
            # Prices act at once: those that its owner writes into later were not certified.
            self.estimator_.costs = deepcopy(self.estimator_.costs)
        if hasattr(self.estimator_, "classes_"):
            self.classes_ = self.estimator_.classes_
        self.abstain_quality_ = getattr(self.estimator_, "abstain_quality_", None)
        self._y_ndim, self._group_values = (
            values.ndim,
            np.unique([] if groups is None else groups),
        )
        if isinstance(self.groups, str) and hasattr(self, "classes_"):
            self._group_values = np.union1d(self._group_values, self.classes_)
        call_rest = check_method_params(X, call, indices=rest)
        budgets = operating_budgets(
            with_cache(self.estimator_), X_rest, self.n_points, call_rest
        )
        with task.step("collect evidence"):
            self._weigh(X, y, groups, rows, budgets, call, seen=frozen)
        self.choices_ = list(self.estimator_.choices_)

    def recertify(self, X, y, groups=None, **call):
        """Certify again on new evidence rows, without a new fit.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows that nothing was learned from; all of them are evidence.

        y : array-like of shape (n_samples,) or (n_samples, n_choices)
            Their targets, as in `fit`; a frame of qualities is read by name.

        groups : array-like of shape (n_samples,), default=None
            Their groups, where the constructor's `groups` is an array.

        **call : keyword arguments
            What calls of the wrapped estimator take about these rows.

        Returns
        -------
        self
            With another operating point and certificate; unchanged after an error. It warns as
            `fit` does.
        """
        check_is_fitted(self)
        if "sample_weight" in call:
            raise TypeError(UNWEIGHTED)
        given = self.groups if isinstance(self.groups, str) else groups
        if self.groups is not None and given is None:
            raise ValueError(
                "groups must be given for the new rows, as they were in fit."
            )
        X, values, groups = self._checked(X, y, given, call, reset=False)
        if values.ndim != self._y_ndim:
            raise ValueError(
                f"y must have as many axes as in fit, {self._y_ndim}, got shape {values.shape}."
            )
        rows = check_random_state(self.random_state).permutation(num_samples(X))
        points = self._selection.evidence
        budgets = points.budgets[int(points.single is not None) :]
        self._weigh(X, y, groups, rows, budgets, self._call_of(call), seen=True)
        return self

    def _check_estimator(self, model):
        """Refuse what is no decision estimator, or decides for all rows of a call together."""
        if not isinstance(model, CostAwareMixin) or isinstance(model, CertifiedRouter):
            raise ValueError(
                "estimator must be a decision estimator of skroute, which has a budget and "
                f"predict_routed, got {type(model).__name__}. The steps of a pipeline before it "
                "belong into its members or its quality_estimator; of a fitted pipeline or search "
                "give FrozenEstimator(pipeline[-1]) with the transformed rows, or "
                "FrozenEstimator(search.best_estimator_); of a CertifiedRouter its estimator."
            )
        if getattr(model, "policy", None) == "batch":
            raise ValueError(
                'estimator has policy="batch", which decides for all rows of a call together: '
                "what the evidence rows say then holds for no other number of rows. Take "
                'policy="online".'
            )

    def _split(self, params):
        """What of the parameters of `fit` is for the wrapped `fit`, and what for its calls."""
        model = unfrozen(self.estimator)
        if routing_enabled():
            routed = self._route_metadata(params)["estimator"]
            return dict(routed.get("fit", {})), dict(routed.get("predict", {}))
        if is_frozen(self.estimator):
            return {}, params
        known = signature(model.fit).parameters
        learned = {name: value for name, value in params.items() if name in known}
        call = {
            name: value for name, value in params.items() if takes_keyword(model, name)
        }
        unknown = {
            name: params[name] for name in params.keys() - learned.keys() - call.keys()
        }
        raise_for_params(unknown, self, "fit")
        return learned, call

    def _call_of(self, call):
        """What a call of the wrapped estimator is told, by what it requests or by name."""
        if routing_enabled():
            return dict(
                process_routing(self, "predict", **call)["estimator"]["predict"]
            )
        return call

    def _checked(self, X, y, groups, call, *, reset):
        """Rows, their targets as an array, and their groups."""
        if y is None:
            raise ValueError(
                "CertifiedRouter requires y to be passed, but the target y is None: a promise "
                "rests on what the right answers are."
            )
        refuse_masked(y=y, groups=groups)
        check_rows_match(X=X, y=y, groups=groups, **call)
        X = check_rows(self, X, reset=reset)
        check_consistent_length(X, y)
        if self.loss is None:
            refuse_missing(y=y)
        values = _array(y)
        return X, values, groups_of_rows(groups, values)

    def _values(self, y):
        """Targets as an array; qualities of choices in the order of the fitted estimator's."""
        model = self.estimator_
        if not (is_classifier(model) or is_regressor(model)):
            y = in_order(y, models_of(model), "y")
        return _array(y)

    def _weigh(self, X, y, groups, rows, budgets, call, *, seen):
        """Call everything on the evidence rows, in the order of `rows`, and bound it.

        `seen` says whether the wrapped estimator may have been fitted on them.
        """
        walked, X_rows = with_cache(self.estimator_), _safe_indexing(X, rows)
        values = self._values(y)
        loss, values = loss_of(walked, values, self.loss, self.loss_range), values[rows]
        groups = None if groups is None else groups[rows]
        classes = getattr(self, "classes_", None)
        if self.loss is None and values.ndim == 1 and isinstance(classes, np.ndarray):
            check_some_known(values, classes)
        if missing := int((~np.isin(self._group_values, groups)).sum()):
            raise ValueError(
                f"groups: {missing} of {len(self._group_values)} have no evidence rows, so that "
                "nothing can be promised within them. Give more rows, or join small groups."
            )
        evidence = collect(
            walked,
            budgets,
            X_rows,
            values,
            check_method_params(X, call, indices=rows),
            reference=self.reference,
            loss=loss,
            group=groups,
            from_single=self.max_loss is not None,
        )
        largest = float(evidence.costs.max())
        if self.max_cost is not None and largest > self.max_cost:
            raise ValueError(
                f"max_cost={self.max_cost!r} is below what an evidence row has cost, "
                f"{largest:.17g}."
            )
        differ = np.abs(
            evidence.losses[:, :, None] - evidence.references[:, None, :]
        ).max()
        if not differ <= loss.range * (1 + LIMIT_ROOM):
            raise ValueError(
                f"Losses of a row differ by {differ:.6g}, more than loss_range={loss.range!r}, "
                "which must be what no row can exceed."
            )
        selection = Selection(
            evidence,
            loss.range,
            self.loss_range is not None,
            loss.unit,
            self.max_loss,
            self.max_cost,
            self.confidence,
            self.fallback,
        )
        # Raises where nothing can be promised.
        certificate = selection.certificate(self._effective_budget(None))
        if seen:
            count_seen(self.estimator_, X_rows, "they are no evidence")
        warn_of_no_saving(certificate)
        self._selection = selection

    # What is promised -----------------------------------------------------------------

    def _smallest_budget(self):
        selection = self._selection
        if not selection.evidence.costs_known:
            return np.inf
        loss, cost = selection.certified(np.finfo(float).max)
        return cost[loss].min(initial=np.inf)

    @property
    def operating_points_(self):
        """All operating points with their bounds, for the present budget."""
        check_is_fitted(self)
        return self._selection.operating_points(self._effective_budget(None))

    @property
    def certificate_(self):
        """The guarantee at the present budget (:class:`Certificate`)."""
        check_is_fitted(self)
        return self._selection.certificate(self._effective_budget(None))

    def certify_batch(self, X, *, n_labels=100, label_cost=None, **call):
        """Answer a batch of known rows, with a guarantee for these rows.

        The reference's answers are bought for `n_labels` of the rows, drawn at random without
        replacement, and used. The rest is answered at the cheapest operating point of the path
        that these labels vouch for: with probability `confidence` over the draw the mean loss
        of the finished batch against the reference's answers, which are the truth here, is at
        most `max_loss`. Where losses are 0 and 1 the test is exact, by the hypergeometric law
        (:ref:`guarantees` has the proof). No target is needed, and around a
        :class:`~sklearn.frozen.FrozenEstimator` no `fit` either.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            All rows of the batch.

        n_labels : int, default=100
            The label budget: for so many rows the reference is asked. 100 to 150 are about best
            where a tenth of the rows may differ; ``ceil(1 / max_loss)`` is far too few.

        label_cost : float, default=None
            What an answer of the reference costs. None takes the price that is known: of a
            single choice, or of the estimator without a budget.

        **call : keyword arguments
            What calls of the wrapped estimator take about these rows.

        Returns
        -------
        namedtuple
            ``y_pred``, ``route`` (-1 where a reference answered that is no choice) and ``cost``
            of each row; ``labelled``, the rows that answers were bought for, in the order drawn;
            and ``certificate`` (:class:`Certificate`). The costs count what was bought and what
            was tried beside it on the labelled rows, there at the most that it can have cost.

        Raises
        ------
        ValueError
            If so few labels can promise nothing, before any is bought; if these labels do not
            vouch even for the safe end of the path, with what they can promise; or if the
            batch costs more than `budget`. `fallback` plays no part: the safe way is then to
            ask the reference about every row, which the caller decides.

        Warns
        -----
        UserWarning
            Where the batch costs no less than the reference's answers to all of it.

        Notes
        -----
        `reference` is ``"full"``, the name of a single choice, or a fitted estimator, such as a
        person behind a `predict`; ``"best"`` cannot be known without labels. `max_loss` is the
        share of the rows whose answers may differ, or with `loss` the mean of
        ``loss(bought, answer)``. Of a router that measures labels or numbers by its own `quality`
        it is the mean of what an answer loses beside the bought one, by that quality.
        Members are asked once about a labelled row, for all operating points together.
        Ten rows more set the scale of the budgets. Where deciding itself asks members, as
        FrugalMCT and Sequential do, these ten are asked beside what `cost` says.

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
        >>> certified = CertifiedRouter(frozen, max_loss=0.1, reference="svm", random_state=0)
        >>> batch = certified.certify_batch(X[800:], n_labels=100)
        >>> print(batch.certificate)
        With a confidence of 0.95, the mean loss against svm on this batch of 997 rows is at ...
        >>> bool((batch.y_pred != router.named_estimators_["svm"].predict(X[800:])).mean() <= 0.1)
        True
        """
        self._validate_params()
        if not is_frozen(self.estimator):
            check_is_fitted(self)
        router = (
            self.estimator_ if hasattr(self, "choices_") else unfrozen(self.estimator)
        )
        self._check_estimator(router)
        check_is_fitted(router)
        check_rows_match(X=X, **call)
        X = check_rows(router, X, reset=False)
        return certify_batch(self, router, X, n_labels, label_cost, self._call_of(call))

    def monitor(self, *, audit_rate=0.02, false_alarm=0.05, random_state=None):
        """A monitor for the guarantee.

        Parameters
        ----------
        audit_rate, false_alarm, random_state
            As in :class:`PromiseMonitor`.

        Returns
        -------
        PromiseMonitor
            To be fed with costs and losses.
        """
        certificate, loss_range = self.certificate_, self._selection.loss_range
        if not certificate.promised:
            raise ValueError(
                "There is nothing to watch: the certificate promises nothing."
            )
        max_loss, budget = certificate.max_loss, certificate.budget
        most = self._selection.cost_range()[1]
        # A budget above all that was seen is broken by costs that were not.
        beyond = budget is not None and budget >= most
        return PromiseMonitor(
            max_loss=None if max_loss is None or max_loss >= loss_range else max_loss,
            budget=budget,
            loss_range=loss_range,
            max_cost=None if beyond else most * (1 + LIMIT_ROOM),
            audit_rate=audit_rate,
            false_alarm=false_alarm,
            random_state=random_state,
        )

    def stream(self, budget_total, **options):
        """A stream at the certified budget: thread-safe, with a total that is never exceeded.

        Parameters
        ----------
        budget_total : float
            Hard cap on the sum of all costs.

        **options : keyword arguments
            Of the wrapped estimator's `stream`, such as ``ledger`` and ``max_costs``.

        Returns
        -------
        skroute.routing.BudgetStream
            Every request is decided as `route` does it, at the operating point of now, and what
            is certified holds while the total lasts. A request that finds too little of it left
            gets a cheaper choice or none, and about such requests nothing is promised; nor while
            it excludes choices.
        """
        certificate, model = self.certificate_, copy(self.estimator_)
        if not hasattr(model, "stream"):
            raise ValueError(
                f"{type(model).__name__} has no streams: it decides row by row."
            )
        if "costs" in self._selection.evidence.told:
            warn(
                "costs: the evidence was decided with the costs of each row. The certificate is "
                "about requests whose costs are known before they are decided."
            )
        model.budget = certificate.operating_budget
        stream = model.stream(budget_total, **options)
        if certificate.single is not None:
            stream.exclude(
                [name for name in model.choices_ if name != certificate.single]
            )
        return stream

    # Predict --------------------------------------------------------------------------

    @property
    def call_parameters(self):
        """Keywords of the calls: those of the wrapped estimator."""
        inner = vars(self).get("estimator_", unfrozen(self.estimator))
        return inner.call_parameters

    def make_call(self, budget=None, **parameters):
        """Return what a call asks for, as one object.

        Parameters
        ----------
        budget : float, default=None
            Mean cost per sample that is promised for this call. None takes the constructor's.

        **parameters : keyword arguments
            Keywords of the wrapped estimator. With metadata routing they have the names that it
            requests for `predict`.

        Returns
        -------
        Call
        """
        return super().make_call(budget, **self._call_of(parameters))

    def _plan(self, X, call):
        evidence = self._selection.evidence
        point = self._selection.point(call.budget)
        keywords = call.keywords()
        if "costs" in evidence.told and "costs" not in keywords:
            raise ValueError(
                "costs are missing: the evidence was decided with the costs of each row, so that "
                "the certificate is about such calls. Give costs, or fit without them."
            )
        restrictions = {"costs", "exclude", "allowed"}.intersection(keywords)
        if untold := restrictions - evidence.told:
            warn(
                f"{' and '.join(sorted(untold))}: the evidence says nothing of such calls, so that "
                "nothing is promised about them, whatever certificate_ says of others."
            )
        model = self.estimator_
        if point == 0 and evidence.single is not None and not untold:
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
        # The state is the plan of the wrapped estimator.
        return self.estimator_.answer(plan.state, response)

    def _offers_proba(self):
        return hasattr(
            vars(self).get("estimator_", unfrozen(self.estimator)), "predict_proba"
        )

    def _share_cache(self, cache):
        """Give the wrapped estimator a cache of its own, with the counts of this one."""
        self.estimator_ = with_cache(self.estimator_, cache.row_counts)

    def score(self, X, y, sample_weight=None, budget=None, **call):
        """Return the score of the answers, of the kind that the wrapped estimator has.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        y : array-like of shape (n_samples,) or (n_samples, n_choices)
            True labels, true numbers, or the quality of each choice; a frame of that is read by
            name.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            As in `predict_routed`.

        **call : keyword arguments
            Keywords of the wrapped estimator, as in `predict_routed`.

        Returns
        -------
        float
            Accuracy of labels (of several, the mean of labels in common by labels in either), R2
            of numbers, or the mean quality of the choices made. Rows that abstain are
            left out.
        """
        check_rows_match(X=X, y=y, sample_weight=sample_weight, **call)
        check_is_fitted(self)
        if is_classifier(self.estimator_) or is_regressor(self.estimator_):
            refuse_missing(y=y)
        # Refused before a model is asked.
        weight = check_row_weights(sample_weight, num_samples(X))
        routed = self.predict_routed(X, budget=budget, **call)
        rows, model, y = (
            answered_rows(self, routed.route),
            self.estimator_,
            self._values(y),
        )
        check_consistent_length(X, y)
        if not len(rows):
            return np.nan
        weight = weight[rows]
        if is_regressor(model):
            answers = np.array(routed.y_pred[rows].tolist())
            return float(r2_score(y[rows], answers, sample_weight=weight))
        quality = check_numbers(
            OF_LABELS["accuracy"].of_routed(y, routed, model)[rows], "y"
        )
        return float(np.average(quality, weights=weight))

    # scikit-learn ---------------------------------------------------------------------

    def __sklearn_tags__(self):
        inner = unfrozen(self.estimator)
        # Tags are asked for before parameters are validated; fit will say it.
        return (
            get_tags(inner)
            if hasattr(inner, "__sklearn_tags__")
            else super().__sklearn_tags__()
        )

    def get_metadata_routing(self):
        """Metadata routing of this object: see the scikit-learn user guide.

        Returns
        -------
        MetadataRouter
        """
        mapping = MethodMapping()
        # What is said about rows is requested for `predict`, and serves every call.
        for caller in ("fit", "predict", "predict_proba", "score"):
            mapping.add(caller=caller, callee="predict")
        if not is_frozen(self.estimator):
            mapping.add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=unfrozen(self.estimator), method_mapping=mapping)


def _array(y):
    """Targets as an array, of one axis where they have one column."""
    values = np.asarray(on_host(y.toarray() if issparse(y) else y))
    if values.ndim == 2 and values.shape[1] == 1:
        return column_or_1d(values, warn=True)
    return values
