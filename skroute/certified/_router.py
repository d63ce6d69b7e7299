"""A promise around any decision estimator."""

import warnings

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils import (
    _safe_indexing,
    check_random_state,
    get_tags,
)
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted

from skroute.base import (
    CostAwareMixin,
    Plan,
    check_budget,
    inherit_member_tags,
    note_failure,
)
from skroute.certified._candidates import (
    ContextOfCandidates,
    check_online,
    context_of_rows,
    detached,
    is_frozen,
    named_candidates,
    unfrozen,
)
from skroute.certified._evidence import (
    Told,
    check_groups,
    check_known,
    operating_budgets,
    single_costs,
)
from skroute.certified._losses import measure_of
from skroute.certified._renewal import UNWEIGHTED, CertifiedRenewal
from skroute.certified._tables import affordable
from skroute.certified._uses import CertifiedUses
from skroute.metrics._report import ReportMixin
from skroute.utils._compat import (
    HasMethods,
    Integral,
    Interval,
    Real,
    StrOptions,
    VisualBlock,
    check_method_params,
    num_samples,
    routing_enabled,
)
from skroute.utils._named import check_rows_match
from skroute.utils._validation import check_weights

# Around fitted estimators: the share of the rows that only set the scale of the operating points,
# and how many are enough where that is more. Each is a row less of evidence.
_SCALE_SHARE, _SCALE_ROWS = 0.05, 5


class CertifiedRouter(ReportMixin, CertifiedUses, CertifiedRenewal, CostAwareMixin, BaseEstimator):
    r"""Promise a loss, a cost, or both, about any decision estimator.

    A decision estimator is a path of policies from cheap to expensive; its budget picks one. On
    rows that nothing was learned from, the point of the path is picked such that, with
    probability `confidence` over these rows,

    - the expected loss against a reference is at most `max_loss`, and
    - the expected cost is at most `budget`.

    With `max_loss` it is the **cheapest** such point: a *loss budget*, "the cheapest within one
    point of the best". With `budget` alone it is the one of the best quality. Afterwards the
    router predicts as the wrapped estimator does at that point, and ``certificate_`` says what
    is promised.

    Parameters
    ----------
    estimator : decision estimator or list of (str, decision estimator)
        Estimators of skroute with ``predict_routed``. Each is cloned and fitted on the rows
        that are not held out. Fitted ones are passed as
        :class:`~sklearn.frozen.FrozenEstimator`; if all are, the rows given to `fit` are
        evidence, but for one in a hundred (at least five), which set the scale of the budgets
        that are tried. A search, such as :class:`~sklearn.model_selection.GridSearchCV`, stands for
        what it finds on those rows, or has found. Of several candidates the best certified one is
        used; they share the level, which costs little, and the data choose.

    max_loss : float, default=None
        Largest expected loss against the reference, as a mean over rows. Losses are signed:
        rows that the router gets right and the reference wrong count for it. Raising it saves
        more. None promises no loss.

    budget : float, default=None
        Largest expected cost per row. None and infinity promise no cost. Raising it buys
        better answers, or changes nothing where `max_loss` is given.

    reference : "best", "full", str or fitted estimator, default="best"
        What the loss is measured against. ``"best"`` is every single choice, and so the best
        one, whichever it is: a member of the wrapped estimator, or a column of logged
        qualities; where there are no single choices it is ``"full"``, the wrapped estimator
        without a budget (of a gate or an early exit that is not the full model, which is
        its ``estimator_``). A name is that single choice. A reference that is called is called on
        **all** evidence rows.

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
        less to learn from. It plays no part around fitted estimators.

    n_points : int, default=50
        Budgets along each path, from the smallest feasible to unlimited. More of them ask for no
        answer twice.

    fallback : {"raise", "safe"}, default="raise"
        Where `max_loss` cannot be promised: an error that says what can, or the unlimited plan
        with a certificate that promises nothing. A `budget` that cannot be promised is always
        an error.

    random_state : int, RandomState instance or None, default=None
        Draws the evidence rows and their order.

    Attributes
    ----------
    choices_ : list of str
        Choices of the wrapped estimator, with its name before them where there are several.

    estimators_ : list of decision estimators
        The fitted candidates.

    classes_ : ndarray of shape (n_classes,)
        Class labels, where the wrapped estimator has them.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    CertificateDisplay : Picture of the bounds over the operating points.
    skroute.guarantees.rows_needed : How many evidence rows a promise takes.

    Notes
    -----
    Operating points are tested from the safe end, the unlimited plan, each at the full level
    until the first that fails (Learn then Test with fixed sequence testing). Losses of 0 and 1,
    which labels and whole-numbered qualities give, are tested exactly
    (``method="trinomial"`` of :func:`~skroute.guarantees.mean_p_value`), others by betting. The
    cost is tested likewise, from the cheap end. Both promises together take half of the level
    each, and K candidates a K-th. Several references and groups cost nothing: the worst one
    counts.

    What certifying costs: each member is asked at most once about an evidence row, for all
    operating points and the reference together, and each row is read once by what estimates;
    ``certificate_.calls`` has the answers that were asked for. ``reference="best"`` asks every
    member about every evidence row. Logged qualities cost no call. What a member answers alone is
    what the wrapped estimator would answer with it, so that a member that is asked for
    probabilities is not asked for labels as well.

    The saving and the other means in the certificate are from the rows that chose the
    operating point, and a little too good; what is promised is not.

    A budget given to a call takes the place of the constructor's: that promise holds for each
    budget that was not chosen by looking at the evidence.

    Every evidence row counts once, also where scikit-learn's metadata routing tells `fit` of the
    wrapped estimators a `sample_weight`: that is for learning alone. For a promise about a
    **weighted population** give evidence that is drawn by the weights, ``kept = rng.random(n_rows)
    < weight / weight.max()``: about ``weight.sum() / weight.max()`` rows are left, which is how
    many the promise has to rest on. No later row may weigh more than the largest weight.

    What the wrapped estimators take about the rows of a call, such as ``costs`` or ``size``, is
    taken by every call here, and by `fit` (around fitted estimators, or with metadata routing),
    :meth:`recertify` and :meth:`certify_batch` for the evidence rows. With metadata routing a
    candidate is told what it requests for its `predict`.

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
        "estimator": [HasMethods("fit"), list],
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

    _call_context = ContextOfCandidates()

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

    def fit(self, X, y=None, costs=None, **params):
        """Fit what is to be fitted, and certify it on rows that are held out.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Training rows, or around fitted estimators evidence rows.

        y : array-like of shape (n_samples,) or (n_samples, n_choices)
            Targets as the wrapped estimators take them; a frame of qualities is read by name.

        costs : {array-like, dataframe} of shape (n_samples, n_choices), default=None
            What each choice has cost on each row; a frame is read by name. A router that
            decides by the costs of its rows is told them. One that decides by fixed or learned
            prices is not: what is promised, and counted, is then what calls have cost, and a
            router whose own `fit` takes `costs` is fitted on them as well.

        **params : dict
            What the wrapped estimators are told about these rows, or metadata for their `fit`
            through metadata routing.

        Returns
        -------
        self
            Fitted estimator; after a failure it is not fitted.
        """
        if params.get("choice") is not None:
            raise TypeError(
                "A log of one answer for each request cannot be certified: what other choices "
                "would have answered is not known. skroute.metrics.off_policy_curve has intervals "
                "for such logs; a certificate takes rows with the outcome of every choice."
            )
        if params.get("sample_weight") is not None:
            frozen = all(map(is_frozen, self._candidates()[1]))
            if frozen or not routing_enabled():
                raise TypeError(
                    f"{UNWEIGHTED} Weights for learning alone reach `fit` of what is not fitted "
                    "by scikit-learn's metadata routing."
                )
        params = params if costs is None else {**params, "costs": costs}
        return super().fit(X, y, **params)

    def _fit(self, X, y, *, task, **params):
        names, candidates = self._candidates()
        if self.max_loss is None and self.budget is None:
            raise ValueError(
                "There is nothing to promise: give max_loss, the largest mean loss against the "
                "reference, budget, the largest mean cost, or both."
            )
        if len(getattr(y, "shape", ())) == 2:
            check_rows_match(X=X, y=y, costs=params.get("costs"))
        X, target, groups = self._checked(X, y, self.groups, reset=True)
        y = target.values
        # Before anything is asked: fitted ones may know more classes than y has.
        measure = measure_of(names, [*map(unfrozen, candidates)], y, self.loss, self.loss_range)
        self._check_max_loss(measure)
        n, frozen = num_samples(X), all(map(is_frozen, candidates))
        fit_params, said, costs = self._route_fit(params)
        self._check_bills(candidates, costs)
        rng = check_random_state(self.random_state)
        order = rng.permutation(n)
        n_rest = min(max(1, round(n * _SCALE_SHARE)), max(_SCALE_ROWS, n // 100))
        if not frozen:
            n_rest = n - max(1, round(n * self.calibration))
        if not 0 < n_rest < n:
            raise ValueError(
                f"n_samples={n} leaves no evidence rows, or none to learn from, at "
                f"calibration={self.calibration!r}: give more rows."
            )
        rest, rows = np.sort(order[:n_rest]), order[n_rest:]
        X_rest, y_rest = _safe_indexing(X, rest), target.of_rows(rest)
        steps = [task.step(f"fit {name}") for name in names]
        fitted = []
        for name, model, step in zip(names, candidates, steps):
            with step:
                model = clone(model)
                if not is_frozen(model):
                    check_weights(fit_params[name], n)
                    extra = check_method_params(X, fit_params[name], indices=rest)
                    with note_failure(name, len(rest), "fit"):
                        model.fit(X_rest, y[rest] if is_classifier(model) else y_rest, **extra)
                check_online(name, unfrozen(model))
                # What the owner of a fitted one changes later was not certified.
                fitted.append(detached(model))
        for name, model in zip(names, fitted):
            check_is_fitted(model)
            target.of_path(model)
            if not np.array_equal(_classes(model), _classes(fitted[0])):
                raise ValueError(f"{name!r} knows other classes than {names[0]!r}.")
        self.estimators_ = fitted
        self._names, self._y_ndim = names, y.ndim
        if _classes(fitted[0]) is not None:
            self.classes_ = _classes(fitted[0])
        classes = _classes(fitted[0])
        check_known(y, classes, self.loss)
        self._group_values = None if groups is None else np.unique(groups)
        if isinstance(self.groups, str) and classes is not None:
            self._group_values = np.union1d(self._group_values, classes)
        if groups is not None:
            check_groups(groups[rows], self._group_values)
        budgets = [
            operating_budgets(m, X_rest, self.n_points, context_of_rows(X, said[name], rest))
            for name, m in zip(names, fitted)
        ]
        if frozen:
            self._warn_of_seen(X, rows)
        with task.step("collect evidence"):
            self._weigh(X, target, groups, rows, budgets, said, costs)
        # Raises where nothing can be promised.
        self._selection.point(check_budget(self.budget))
        prefixes = [f"{name}: " for name in names] if len(names) > 1 else [""]
        choices = [prefix + c for prefix, m in zip(prefixes, fitted) for c in m.choices_]
        self._offsets = np.cumsum([0] + [len(model.choices_) for model in fitted])[:-1]
        self.choices_ = choices

    def _candidates(self):
        """Names and models, each of them a decision estimator."""
        return named_candidates(self.estimator)

    def _asked(self):
        """Names and models that calls go to: after `fit` those that were fitted then."""
        fitted = self.__sklearn_is_fitted__()
        return (self._names, self.estimators_) if fitted else self._candidates()

    # Which operating point ------------------------------------------------------------

    def _least(self):
        return self._selection.least()

    @property
    def operating_points_(self):
        """All candidates with bounds, for the present budget (:class:`OperatingPoints`)."""
        check_is_fitted(self)
        return self._selection.operating_points(check_budget(self.budget))

    @property
    def certificate_(self):
        """What is promised at the present budget (:class:`Certificate`)."""
        check_is_fitted(self)
        return self._selection.certificate(check_budget(self.budget))

    # Predict --------------------------------------------------------------------------

    def _plan(self, X, budget, **context):
        selection = self._selection_of(context)
        k, evidence = selection.point(budget), selection.evidence
        if selection is not self._selection and not selection.vouches(budget):
            warnings.warn(
                f"exclude={context['exclude']!r}: max_loss={self.max_loss!r} cannot be promised "
                "about what is left, and nothing is; its unlimited plan decides.",
                UserWarning,
                stacklevel=3,
            )
        owner = int(evidence.path[k])
        model = self.estimators_[owner]
        said = self._said(context)[self._names[owner]]
        X, j = model._check_X(X), int(evidence.single[k])
        if j >= 0 and context.get("allowed") is None:
            cost = single_costs(model, X, j, Told(None, said))
            plan = Plan(np.full(num_samples(X), j), cost)
        else:
            operating = affordable(model, float(evidence.budget[k]), said.get("exclude"))
            plan = model._plan(X, operating, **said)
        return plan._replace(route=plan.route + self._offsets[owner], state=(owner, plan))

    def _answer(self, X, plan, response):
        owner, inner = plan.state
        model = self.estimators_[owner]
        return model._answer(model._check_X(X), inner, response)

    def _offers_proba(self):
        models = vars(self).get("estimators_") or [unfrozen(m) for m in self._candidates()[1]]
        return all(hasattr(model, "predict_proba") for model in models)

    # scikit-learn ---------------------------------------------------------------------

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        try:
            _, models = self._candidates()
        except ValueError:
            return tags
        first = get_tags(unfrozen(models[0]))
        tags.estimator_type = first.estimator_type
        tags.classifier_tags = first.classifier_tags
        tags.target_tags = first.target_tags
        return inherit_member_tags(tags, models)

    def get_metadata_routing(self):
        """Metadata routing of this object: see the scikit-learn user guide.

        Returns
        -------
        MetadataRouter
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        for name, model in zip(*self._candidates()):
            mapping = MethodMapping()
            # What is said about rows is requested for `predict`, and serves every call.
            for caller in ("fit", "predict", "predict_proba", "score"):
                mapping.add(caller=caller, callee="predict")
            if not is_frozen(model):
                mapping.add(caller="fit", callee="fit")
            router.add(**{name: unfrozen(model)}, method_mapping=mapping)
        return router

    def _sk_visual_block_(self):
        names, models = self._candidates()
        return VisualBlock("parallel", models, names=names)


def _classes(model):
    return getattr(model, "classes_", None)
