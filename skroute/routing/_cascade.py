"""CascadeRouter: ask one model after another, for as long as the next answer is worth it."""

from collections.abc import Mapping

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.model_selection import KFold
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted

from skroute.base import (
    CostAwareMixin,
    Plan,
    Routed,
    check_affordable,
    check_budget,
    check_rows,
    inherit_member_tags,
    note_failure,
)
from skroute.metrics._report import ReportMixin
from skroute.routing._abstaining import ABSTAIN_COST, ABSTAIN_NAME
from skroute.routing._cascade_checks import (
    check_fit_costs,
    check_folds,
    check_names,
    check_order,
)
from skroute.routing._cascade_known import nested_known
from skroute.routing._cascade_learn import learn_path
from skroute.routing._cascade_log import as_columns, names_of_columns, split_signals
from skroute.routing._cascade_rules import Log, candidates, fixed_order
from skroute.routing._cascade_run import CascadeRun
from skroute.routing._cascade_walk import known_scores, walk
from skroute.routing._fit_tables import check_matrix, check_row_costs, column_names
from skroute.routing._mixtures import Mixture
from skroute.routing._priced import cross_fit
from skroute.routing._priced_views import standard_error
from skroute.routing._values import check_default_reads, default_quality_estimator
from skroute.utils._compat import (
    HasMethods,
    Integral,
    Interval,
    Real,
    check_sample_weight,
    num_samples,
)
from skroute.utils._named import check_rows_match

# Answers that make an array of a type of their own.
_PLAIN = str, (bool, np.bool_), (int, float, np.number)


class CascadeRouter(ReportMixin, CostAwareMixin, MetaEstimatorMixin, BaseEstimator):
    r"""Ask one model after another; what an answer shows decides whether to ask another.

    For whoever has a log of what several models made of past requests: how good each
    answer was, what it cost, and what it showed of itself (its signals: a confidence, its
    length, a judge's score), which is seen only once the answer is paid for. After each
    answer the row is answered, asks any model that it has not asked yet, or is handed over
    to a person, whichever is worth most:

    .. math:: \max\Bigl(\hat q_S(x, s), \; \max_{k \notin S} \hat V_{S \cup k}(x, s) - p\, c_k,
        \; \bar q - a\Bigr),

    with :math:`S` the models asked so far, :math:`s` their signals, :math:`p` the price of
    the budget, :math:`\bar q` the best quality in the log and :math:`a` the `abstain_cost`.

    `fit` compares this with its special cases on rows that fitted neither: each model
    alone, one-shot routing by X, every fixed order of up to `max_calls` models with a
    threshold after each (FrugalGPT's cascade [1]_). At each price the simplest that is
    within a quarter of a standard error of the best is taken, and judged by rows that did
    not choose it: a log of 300 rows makes some of a hundred cascades look better than they
    are.

    Parameters
    ----------
    quality_estimator : multi-output regressor, default=None
        Maps X to the quality of each model, before any call. None takes
        :class:`~skroute.quality.QualityRegressor`. Not used where X is None. It is fitted
        without each fold, and without each two: 16 times for five folds.

    costs : mapping from str to float or array-like of shape (n_models,), default=None
        Cost per call of each model. None when costs differ from row to row: then `fit`
        takes them as ``costs``, an array of shape (n_samples, n_models), and decides by
        their means.

    budget : float, default=None
        Mean cost per sample, in the unit of `costs`, all calls included. None is
        unlimited. Raising it buys more answers and more expensive ones.

    order : list of str, default=None
        Models in the order in which they are asked, beginning with the first: one fixed
        cascade. None compares all orders and all sets.

    max_calls : int, default=3
        Calls per row at most, where `order` is None. Raising it compares more cascades:
        the sets of up to that many models, at most 1023.

    abstain_cost : float, default=None
        What it costs, in units of quality, to hand a row over instead of answering it: the
        row counts as the best quality in the log minus this. None never does. Raising it
        hands fewer rows over.

    n_prices : int, default=24
        Prices that are fitted. Raising it follows the budget more closely.

    cv : int, splitter or iterable of splits, default=5
        Folds that compare the candidates, and make estimates from X out-of-sample; an int
        shuffles with a fixed seed. Rows that belong together must stay together: give a
        list of (train, test), or a splitter by groups, which gets ``groups`` through
        metadata routing.

    n_jobs : int, default=None
        Folds fitted in parallel.

    Attributes
    ----------
    choices_ : list of str
        What `route` indexes: the models, one of which answers, and ``"abstain"`` where an
        `abstain_cost` is given. Models are named by the columns of Q where it is a data
        frame, else the keys of `costs`, else ``"choice0"``, ``"choice1"``, ...

    model_names_ : list of str
        Names of the models.

    costs_ : ndarray of shape (n_models,)
        Cost of each model's call; the mean of the log where costs are per row.

    abstain_quality_ : float or None
        What a row counts as that is handed over; None where none is.

    mean_quality_ : ndarray of shape (n_models,)
        Mean logged quality of each model.

    quality_estimator_ : estimator or None
        Fitted on all rows; None where `fit` got no X.

    mixture_ : Mixture
        Validated mean cost and quality of the rules at each price, by rising cost. The
        rows that chose a rule do not judge its quality.

    rule_names_ : list of str
        The rules of `mixture_` in words: the models in the order that they are asked in,
        ``"small > large"``, or how many of them in any order.

    min_budget_ : float
        The smallest feasible budget.

    validation_quality_ : float
        Quality of `mixture_` at `budget`.

    validation_cost_ : float
        Its cost.

    validation_quality_se_, validation_cost_se_ : float
        Standard errors of the two, as estimates for new rows.

    n_features_in_ : int
        Number of features seen during `fit`, where X has columns.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features seen during `fit`, where all are strings.

    See Also
    --------
    BudgetRouter : One call per row, chosen by X alone.
    SequentialRouterClassifier : The same with classifiers that it fits, calls and combines.

    Notes
    -----
    Calls take, beside X and budget,

    - ``signals``: recorded, as in `fit`, or a mapping from model to a function of row
      positions, called once with the rows that pay for it. `predict` then names the model
      whose answer to use, or ``"abstain"``;
    - ``models``: instead of it a mapping from model to a callable of rows of X, which
      returns a tuple ``(answers, signals)`` or ``(answers, signals, costs)``. Only rows
      that pay for a call are in it. `predict` then gives the answers, None where a row is
      handed over;
    - ``costs``: what each call would cost, of shape (n_samples, n_models). It is counted by
      `predict_cost` and decides nothing;
    - ``request_id``, of shape (n_samples,): what draws are made of, in place of the row.

    Signals enter as normal scores of their ranks: a probability, its logarithm and its
    logit are the same signal. Quality is scaled to [0, 1] by its range in the log.

    For a budget between two rules, which of them a row follows is drawn from a hash of its
    ``request_id``, else of the row, else, where X is None, of its position in the call. The budget
    holds on average over what differs in that: calls of one row each without X all draw the same,
    and need ``request_id`` (or :meth:`start`, which draws anew).

    References
    ----------
    .. [1] L. Chen, M. Zaharia, J. Zou, "FrugalGPT: How to Use Large Language Models While
       Reducing Cost and Improving Performance", TMLR 2024, section 3.
    .. [2] M. J. Zellinger, M. Thomson, "Rational Tuning of LLM Cascades via Probabilistic
       Modeling", arXiv:2501.09345, 2025; and with R. Liu, "Cost-Saving LLM Cascades with
       Early Abstention", arXiv:2502.09054, 2025.
    .. [3] J. N. Tsitsiklis, B. Van Roy, "Regression Methods for Pricing Complex
       American-Style Options", IEEE Transactions on Neural Networks 12, 2001.

    Examples
    --------
    Two models; the small one knows when it is wrong.

    >>> import numpy as np
    >>> from skroute.routing import CascadeRouter
    >>> rng = np.random.default_rng(0)
    >>> sure = rng.uniform(size=400)
    >>> Q = np.column_stack([sure > rng.uniform(size=400), rng.uniform(size=400) < 0.9])
    >>> router = CascadeRouter(costs={"small": 1, "large": 10}, budget=6)
    >>> router = router.fit(None, Q, signals={"small": sure})
    >>> router.predict(None, signals={"small": [0.01, 0.99]}).tolist()
    ['large', 'small']
    >>> router.predict_cost(None, signals={"small": [0.01, 0.99]})
    array([11.,  1.])
    """

    _call_context = ("signals", "models", "costs", "request_id")

    _parameter_constraints: dict = {
        "quality_estimator": [HasMethods(["fit", "predict"]), None],
        "costs": [dict, "array-like", None],
        "budget": [Interval(Real, 0, None, closed="both"), None],
        "order": ["array-like", None],
        "max_calls": [Interval(Integral, 1, None, closed="left")],
        "abstain_cost": ABSTAIN_COST,
        "n_prices": [Interval(Integral, 1, None, closed="left")],
        "cv": ["cv_object"],
        "n_jobs": [
            Interval(Integral, None, -1, closed="right"),
            Interval(Integral, 1, None, closed="left"),
            None,
        ],
    }

    def __init__(
        self,
        quality_estimator=None,
        *,
        costs=None,
        budget=None,
        order=None,
        max_calls=3,
        abstain_cost=None,
        n_prices=24,
        cv=5,
        n_jobs=None,
    ):
        self.quality_estimator = quality_estimator
        self.costs = costs
        self.budget = budget
        self.order = order
        self.max_calls = max_calls
        self.abstain_cost = abstain_cost
        self.n_prices = n_prices
        self.cv = cv
        self.n_jobs = n_jobs

    def fit(self, X, y, costs=None, signals=None, **params):
        """Learn from a log which model to ask first and when to ask another.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features) or None
            What is known of the requests before any call. None is nothing.

        y : {array-like, dataframe} of shape (n_samples, n_models) or (n_samples,)
            Q: quality of each model's answer on each row, higher is better. Measured on
            rows that the models were not fitted on.

        costs : {array-like, dataframe} of shape (n_samples, n_models), default=None
            What each model cost on each row. Only where the constructor's `costs` is None.

        signals : mapping from str to array-like, data frame, or array-like, default=None
            What each answer shows: for a model an array of shape (n_samples,) or
            (n_samples, n_signals) of numbers, NaN where missing; for all at once a data frame
            with a column for each model, found by name, or an array of shape
            (n_samples, n_models) or (n_samples, n_models, n_signals). A model that shows
            nothing may be left out. None: no answer shows anything.

        **params : dict
            Metadata through metadata routing: for `quality_estimator` and for the
            splitter in `cv`, such as ``groups``.

        Returns
        -------
        self
            Fitted router.

        Raises
        ------
        ValueError
            For quality, costs or signals of the wrong shape or that are no numbers, or a
            budget below the cheapest rule.
        """
        return super().fit(X, y, costs=costs, signals=signals, **params)

    def _fit(self, X, y, *, task, costs=None, signals=None, **params):
        routed = self._route_metadata(params)
        if y is None:
            raise ValueError("CascadeRouter requires y to be passed, but the target y is None.")
        self._informed = X is not None
        if X is None and signals is None:
            raise ValueError(
                "X and signals are both None: there is nothing to decide by. Give what is known "
                "of the requests, or what the models' answers show."
            )
        if self._informed:
            X = check_rows(self, X, reset=True)
            if self.quality_estimator is None:
                check_default_reads(X)
        check_rows_match(X=X, y=y, costs=costs, signals=signals)
        self._frame_columns = column_names(y)
        quality = check_matrix(y, "y")
        check_consistent_length(*([X] if self._informed else []), quality)
        self.model_names_ = check_names(self, quality.shape[1])
        # Frames of costs and of quality are read by these names from here on.
        self._frame_columns = self.model_names_ if self._named else None
        row_costs = check_fit_costs(self, costs, quality.shape)
        columns = self._check_signals(signals, len(quality))
        n_models = quality.shape[1]
        order = check_order(self.order, self.model_names_, self.max_calls)

        folds = check_folds(self.cv, X, quality, routed["splitter"]["split"])
        known, nested = np.empty((len(quality), 0)), [None] * len(folds)
        self.quality_estimator_ = None
        if self._informed:
            estimator, meta = self._quality_estimator(), routed["quality_estimator"]["fit"]
            with note_failure("quality_estimator", len(quality), "the quality estimate"):
                self.quality_estimator_, known = cross_fit(
                    estimator, X, quality, folds, task, self.n_jobs, meta, "quality_estimator"
                )
                nested = nested_known(
                    estimator, X, quality, folds, task=task, n_jobs=self.n_jobs, fit_params=meta
                )
        self._low, self._span = float(quality.min()), float(np.ptp(quality)) or 1.0
        self.mean_quality_ = quality.mean(axis=0)
        self.costs_ = row_costs.mean(axis=0)
        abstain, worth = None, 0.0
        if self.abstain_cost is not None:
            best = (float(quality.max()) - self._low) / self._span
            abstain, worth = "early", best - self.abstain_cost / self._span
        log = Log((quality - self._low) / self._span, row_costs, columns, known, worth)
        if order is None:
            by_cost = np.argsort(self.costs_, kind="stable").tolist()
            calls = self.max_calls if any(part.shape[1] for part in columns) else 1
            compared = candidates(n_models, calls, by_cost, self._informed, abstain)
        else:
            compared = [fixed_order(n_models, order, abstain)]
        with task.step("compare cascades"):
            n_alone = 0 if order is not None else n_models
            found = learn_path(compared, log, folds, nested, self.n_prices, n_alone, self.n_jobs)
        self._reader, self._rules, self._found = found.reader, found.rules, found
        means = found.cost.mean(axis=1), self._low + self._span * found.quality.mean(axis=1)
        self.mixture_ = Mixture(*means)
        self.rule_names_ = [self._describe(rule.fitted.cascade) for rule in self._rules]
        budget = check_budget(self.budget)
        check_affordable(budget, float(self.mixture_.cost[0]))
        self.choices_ = [*self.model_names_, *([ABSTAIN_NAME] if abstain else [])]

    def _describe(self, cascade):
        if cascade.chain is None:
            return f"{cascade.n_calls} of {', '.join(self.model_names_)} in any order"
        return " > ".join(self.model_names_[k] for k in cascade.chain)

    def _check_signals(self, signals, n_rows):
        by_name = split_signals(signals, self.model_names_)
        self._signal_names = [
            names_of_columns(by_name.get(name), f"signals of {name!r}")
            for name in self.model_names_
        ]
        return [as_columns(by_name.get(name), name, n_rows) for name in self.model_names_]

    def _least(self):
        return self.mixture_.cost[0]

    @property
    def validation_quality_(self):
        """Mean quality of the rules at `budget` on rows that neither fitted nor chose them."""
        return self.mixture_.quality_at(self._effective_budget(None))

    @property
    def validation_cost_(self):
        """Mean cost of the rules at `budget` on rows that did not fit them."""
        low, high, share = self.mixture_.share(self._effective_budget(None))
        cost = self.mixture_.cost
        return float((1 - share) * cost[low] + share * cost[high])

    def _standard_errors(self):
        cost, quality = self._found.validated(*self.mixture_.share(self._effective_budget(None)))
        fold = self._found.fold
        return standard_error(cost, fold), self._span * standard_error(quality, fold)

    @property
    def validation_quality_se_(self):
        """Standard error of `validation_quality_` as an estimate for new rows."""
        return self._standard_errors()[1]

    @property
    def validation_cost_se_(self):
        """Standard error of `validation_cost_` as an estimate for new rows."""
        return self._standard_errors()[0]

    def _check_X(self, X):
        if self._informed:
            return super()._check_X(X)
        if X is not None and (isinstance(X, (str, bytes, Mapping)) or np.isscalar(X)):
            raise TypeError(f"X must be rows, or None, got {type(X).__name__}.")
        return X

    def _plan(self, X, budget, **context):
        path = walk(self, X, budget, **context)
        cost = (path.asked.costs * path.asked.asked).sum(axis=1)
        return Plan(path.route, cost, path, self._low + self._span * path.quality)

    def _answer(self, X, plan, response):
        asked, n_models = plan.state.asked, len(self.model_names_)
        if asked.models is None:
            return np.asarray(self.choices_ if self._named else [*range(n_models), -1])[plan.route]
        answers = np.full(len(plan.route), None, dtype=object)
        for k in np.unique(plan.route[plan.route < n_models]):
            rows = np.flatnonzero(plan.route == k)
            answers[rows] = asked.answer(int(k), rows)
        plain = any(all(isinstance(a, kinds) for a in answers) for kinds in _PLAIN)
        # What is of several kinds, or a list, stays what the models said.
        return np.array(answers.tolist()) if plain else answers

    def _alone(self, X, name, response, costs=None, **call):
        """Every row answered by one model, without a decision."""
        n, at = num_samples(X), self.model_names_.index(name)
        row_costs = np.tile(self.costs_, (n, 1))
        if costs is not None:
            row_costs = check_row_costs(costs, self._frame_columns, row_costs.shape)
        answers = np.full(n, name if self._named else at)
        return Routed(answers, np.full(n, at), row_costs[:, at])

    def models_asked(self, X, budget=None, **context):
        """Which models each row pays for.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features) or None
            The rows.

        budget : float, default=None
            Mean cost per sample for this call. None takes the constructor's.

        **context : keyword arguments
            ``signals``, ``models``, ``costs`` and ``request_id``, as in the notes.

        Returns
        -------
        ndarray of shape (n_samples, n_models), dtype=bool
            Columns in the order of ``model_names_``.
        """
        return self._path(X, budget, context).asked.asked

    def predict_quality(self, X, budget=None, **context):
        """Estimated quality of the answer given: what to rank rows by that a person checks.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features) or None
            The rows.

        budget : float, default=None
            Mean cost per sample for this call. None takes the constructor's.

        **context : keyword arguments
            ``signals``, ``models``, ``costs`` and ``request_id``, as in the notes.

        Returns
        -------
        ndarray of shape (n_samples,)
            In the unit of Q; of rows that are handed over, what that counts as.
        """
        return self._low + self._span * self._path(X, budget, context).quality

    def _path(self, X, budget, context):
        check_is_fitted(self)
        X = self._check_X(X)
        return walk(self, X, self._effective_budget(budget), **context)

    def start(self, x=None, *, budget=None, random_state=None):
        """Begin one request, whose models the caller asks.

        Parameters
        ----------
        x : row, default=None
            What is known of the request: one row as in `fit`, without its outer dimension, or
            a table with one row, as streams take it. None where `fit` got no X.

        budget : float, default=None
            Mean cost per request. None takes the constructor's.

        random_state : int, RandomState instance or None, default=None
            Which of two rules the request follows, where the budget lies between them.

        Returns
        -------
        CascadeRun
            Its ``next`` says what to ask; ``observe`` tells it what came back.

        Examples
        --------
        >>> import numpy as np
        >>> from skroute.routing import CascadeRouter
        >>> rng = np.random.default_rng(0)
        >>> sure = rng.uniform(size=400)
        >>> Q = np.column_stack([sure > rng.uniform(size=400), rng.uniform(size=400) < 0.9])
        >>> router = CascadeRouter(costs={"small": 1, "large": 10})
        >>> run = router.fit(None, Q, signals={"small": sure}).start()
        >>> while run.next is not None:
        ...     # call the model named run.next here
        ...     run.observe(run.next, signals=[0.01] if run.next == "small" else None)
        >>> run.answer
        'large'
        """
        check_is_fitted(self)
        budget = self._effective_budget(budget)
        check_affordable(budget, self._least())
        if not self._informed and x is not None:
            raise ValueError("x must be None: fit got no X, so that nothing can be read of a row.")
        if self._informed:
            if x is None:
                raise ValueError("x must be a row like those of fit, got None.")
            nested = isinstance(x, list | tuple) and len(x) > 0 and isinstance(x[0], list | tuple)
            if not nested and getattr(x, "ndim", 1) != 2:
                x = x.to_frame().T if hasattr(x, "to_frame") else [x]
            elif num_samples(x) != 1:
                raise ValueError(f"x must be one row, got a table of {num_samples(x)}.")
            x = self._check_X(x)
        known = known_scores(self, [None] if x is None else x)
        low, high, share = self.mixture_.share(budget)
        drawn = check_random_state(random_state).uniform()
        return CascadeRun(self, self._rules[high if drawn < share else low], known)

    def score(self, X, y, sample_weight=None, budget=None, **context):
        """Realised mean quality of the choices made; a row handed over counts as in `fit`.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features) or None
            The rows.

        y : {array-like, dataframe} of shape (n_samples, n_models)
            Q: quality of each model's answer on each row, with the columns that `fit` saw.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        budget : float, default=None
            Mean cost per sample for this call; None takes the constructor's,
            ``numpy.inf`` is unlimited.

        **context : keyword arguments
            ``signals``, ``models``, ``costs`` and ``request_id``, as in the notes.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        check_rows_match(X=X, y=y)
        quality = check_matrix(y, "y", self._frame_columns)
        if quality.shape[1] != len(self.model_names_):
            raise ValueError(
                f"y must have the {len(self.model_names_)} columns that fit saw, got "
                f"{quality.shape[1]}."
            )
        if X is not None:
            check_consistent_length(X, quality)
        route = self.route(X, budget=budget, **context)
        weight = check_sample_weight(sample_weight, quality)
        return float(np.average(self._realised(quality, route), weights=weight))

    @property
    def abstain_quality_(self):
        """What a row counts as that is handed over; None where none is."""
        check_is_fitted(self)
        if self.choices_[-1] != ABSTAIN_NAME or self.abstain_cost is None:
            return None
        return self._rules[0].fitted.abstain * self._span + self._low

    def _realised(self, quality, route):
        handed = self._rules[0].fitted.abstain * self._span + self._low
        every = np.column_stack([quality, np.full(len(quality), handed)])
        return every[np.arange(len(route)), route]

    def get_metadata_routing(self):
        """Metadata routing of this object.

        Returns
        -------
        MetadataRouter
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        fit = MethodMapping().add(caller="fit", callee="fit")
        router.add(quality_estimator=self._quality_estimator(), method_mapping=fit)
        split = MethodMapping().add(caller="fit", callee="split")
        # An iterable of splits takes nothing, and may be read once only.
        splitter = self.cv if hasattr(self.cv, "split") else KFold()
        return router.add(splitter=splitter, method_mapping=split)

    def _quality_estimator(self):
        if self.quality_estimator is None:
            return default_quality_estimator()
        return self.quality_estimator

    def __sklearn_tags__(self):
        tags = inherit_member_tags(super().__sklearn_tags__(), [self._quality_estimator()])
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags
