"""The base of routers that decide by the price of a budget."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from skroute.base import CallParameter, RequestPolicy, affords
from skroute.ledgers import Ledger, Window
from skroute.routing.parts._log import kept_choices
from skroute.routing.parts._requests import PricedRequests
from skroute.routing.parts._router import Router
from skroute.utils._cache import cache_of
from skroute.utils._tables import Column, RecordList, Table, share_column
from skroute.utils._tolerances import ROUNDING
from skroute.utils._validation import warn

# Number of bootstrap samples of the validation rows. A standard deviation over 200
# samples has an error of 5 %, which is 1 / sqrt(2 * 200).
_N_RESAMPLES = 200


class DecisionInputs(NamedTuple):
    """Features that deciding on the rows of a call reads, and answers paid for already.

    Attributes
    ----------
    features : indexable
        The rows of the quality estimator: X, or an embedding of X.

    state : dict, MemberAnswers or None
        Answers that deciding has paid for. The keys of a dict are pairs (position of
        the member, method). None if deciding has called no member.

    answers : dict
        Answers to the first row that deciding has paid for, by position of the choice.
    """

    features: Any
    state: Any
    answers: dict


class SmallestBudget(NamedTuple):
    """The smallest budget that reaches a quality on validation rows.

    Attributes
    ----------
    budget : float
        Mean cost per sample. NaN if no budget reaches the quality on the validation
        rows. If routing gains nothing, even the quality of the best single choice is
        out of reach. (It is not infinite, since infinity is a budget without a limit.)

    budget_se : float
        Standard error of `budget`, over samples of the validation rows. NaN if no
        sample reaches the quality.

    quality : float
        The quality to reach.

    reached : float
        Share of the samples of the validation rows in which this budget reaches
        `quality`. It is usually about one half, since a smaller budget is not enough on
        the validation rows. 0 if `budget` is NaN.
    """

    budget: float
    budget_se: float
    quality: float
    reached: float

    def __repr__(self) -> str:
        return str(self._table())

    def to_frame(self) -> Any:
        """Return the result as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row, with the fields as columns.
        """
        return self._table().to_frame()

    def _table(self):
        """Return the result as a `Table` of one row."""
        return Table(
            "SmallestBudget",
            [
                Column("budget", [self.budget], unit="per row", missing="not reached"),
                Column("budget_se", [self.budget_se], missing="not reached"),
                Column("quality", [self.quality], unit="mean, to be reached"),
                share_column(
                    "reached",
                    [self.reached],
                    label="reached in",
                    whole="the resamples of the validation rows, at this budget",
                ),
            ],
        )


def inputs_of_rows(X):
    """Return X itself as the features that deciding reads, without a call of a member.

    Returns
    -------
    DecisionInputs
    """
    return DecisionInputs(X, state=None, answers={})


def estimate_once(router, policy, compute_inputs):
    """Return quality estimates and paid answers, computed once for a sweep of budgets.

    Parameters
    ----------
    router : Router
        Its calls at several budgets, a sweep, share a cache.
    policy : Policy
    compute_inputs : callable
        ``compute_inputs()`` returns what deciding reads (`DecisionInputs`).

    Returns
    -------
    estimates : ndarray of shape (n_rows, n_choices)
    state : dict, MemberAnswers or None
        As in `DecisionInputs`.
    """

    def estimate():
        """Return estimates and paid answers for the rows of the call."""
        features, state, _ = compute_inputs()
        return policy.estimates(features), state

    # The key has the id of the estimator. The cache keeps the estimator alive, so that
    # no other object gets this id.
    key = ("estimates", id(policy.estimator), tuple(policy.choice_positions))
    return cache_of(router).get_or_compute(key, estimate, keep_alive=policy.estimator)


COSTS = CallParameter(
    "costs",
    "array-like or dataframe of shape (n_samples, n_choices), default=None",
    """Cost of each choice for each row, known before the call, for a router that was
    fitted on such costs, or in place of the estimates of its `cost_estimator`. They
    are the bills. A router with a price list or with quotes refuses them.""",
)
QUOTED_COSTS = CallParameter(
    "quoted_costs",
    "array-like or dataframe of shape (n_samples, n_choices), default=None",
    """Quote of each choice for each row, known before the call, for a router that was
    fitted with ``quoted_costs``. Rows are decided by the quotes, and the budget is
    kept in bills.""",
)


class PricedRouter(Router):
    """Mixin for routers whose `Policy` decides each row by the price of the budget.

    A subclass writes the methods of :class:`~skroute.base.CostAwareMixin` but for
    ``_smallest_budget``, and

    ``_policy() -> Policy``
        Return the fitted policy at the present values of the parameters. The smallest
        budget, validation figures and streams follow from it.

    It may replace four methods:

    ``_decision_inputs(X, positions) -> DecisionInputs``
        Compute what the quality estimator reads. The default is X itself.

    ``_validated(budget) -> ValidationMeans``, ``_validation_curve()``
        Return validation figures at a budget, and budgets with their `Validation`. A
        router whose log has no outcomes at some budgets replaces both.

    ``request_policy(budget, exclude=()) -> RequestPolicy``
        Return what decides the requests of a stream. The default prices the choices of
        ``_policy()``, and deciding calls no member.

    It has the attribute ``costs_``, the cost of each choice. It may replace the
    property ``mean_quality_``, which is computed from ``_policy()``.
    """

    def _smallest_budget(self):
        """Return the mean cost of the cheapest plan."""
        return self._policy().least

    # Validation -----------------------------------------------------------------------

    def _validated(self, budget):
        """Return means of cross-fitted decisions at a budget (`ValidationMeans`)."""
        return self._policy().validated(budget)

    def _validation_curve(self):
        """Return an array of budgets, and the list of their `Validation`."""
        return self._policy().curve

    @property
    def quality_std_(self):
        """Standard deviation of the error of each choice's quality estimates.

        The errors are out of fold, shape (n_choices,).
        """
        return self._policy().sigma

    @property
    def mean_quality_(self):
        """Mean quality of each choice on the rows of `fit`, shape (n_choices,)."""
        policy = self._policy()
        return np.average(policy.quality, axis=0, weights=policy.weight)

    @property
    def price_path_(self):
        """Dual price of each budget, cost of deciding excluded (`AssignmentPath`)."""
        return self._policy().path

    @property
    def price_(self):
        """Dual price of the parameter `budget`: quality that a unit of cost must bring.

        It is infinite at the smallest feasible budget.
        """
        policy = self._policy()
        return float(policy.rule(self._effective_budget(None)).price)

    # Streams --------------------------------------------------------------------------

    def request_policy(
        self, budget: float, exclude: Sequence[str] = ()
    ) -> RequestPolicy:
        """Return the `RequestPolicy` for requests that come one by one.

        Parameters
        ----------
        budget : float
            Mean budget per request, in the unit of `costs`. It is not read here: the
            price follows from ``price_at`` of the result.

        exclude : sequence of str, default=()
            Names of choices that are not offered.

        Returns
        -------
        RequestPolicy
            It is that of the present parameters, and does not follow later changes.
        """
        return self._priced_requests(exclude, asked_first=())

    def _priced_requests(
        self, exclude, *, asked_first, cost_estimator=None, quotes_costs=False
    ):
        """Return the policy of requests at the present parameters (`PricedRequests`).

        Parameters
        ----------
        exclude : sequence of str
            Names of choices that are not offered.

        asked_first, cost_estimator, quotes_costs
            As in `PricedRequests`.

        Returns
        -------
        PricedRequests
        """
        # A request is one row. None: it has no table of allowed choices.
        positions, _ = kept_choices(self.choices_, 1, exclude, None)
        return PricedRequests(
            self._policy().restricted(positions),
            positions,
            compute_inputs=self._decision_inputs,
            excludable=self.choices_,
            asked_first=asked_first,
            cost_estimator=cost_estimator,
            quotes_costs=quotes_costs,
        )

    def _decision_inputs(self, X, positions):
        """Return X itself, which the quality estimator reads (`DecisionInputs`)."""
        return inputs_of_rows(X)

    def predict_quality(self, X, return_std=False):
        """Estimate the quality of each choice for each row.

        These are the estimates themselves. Rows are decided by the estimates less a
        penalty of `reg_lambda` standard deviations, if the router has this parameter.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows. If `embedding` is the name of a member, this member is called on
            all rows.

        return_std : bool, default=False
            If True, the standard deviation of each estimate's error is returned, too.

        Returns
        -------
        quality : ndarray of shape (n_samples, n_choices)
            Expected quality, in the unit of the quality in `fit`.

        std : ndarray of shape (n_samples, n_choices)
            Standard deviations of the errors of `quality`. Only if `return_std`.
        """
        policy = self._policy()
        X = self._check_rows(X)
        features, _, _ = self._decision_inputs(X, policy.choice_positions)
        if return_std:
            return policy.estimates_and_std(features)
        return policy.estimates(features)

    def stream(
        self,
        budget_total: float,
        n_expected: int | None = None,
        *,
        max_costs: Any = None,
        ledger: Ledger | None = None,
        purse: str = "stream",
        within: Sequence[str] = (),
        period: str | float | None = None,
        windows: Mapping[str, Sequence[Window]] | None = None,
    ) -> Any:
        """Return a stream: a total budget for requests that come one by one.

        The stream can be used by several threads and, with a shared ledger, by several
        processes.

        Parameters
        ----------
        budget_total : float
            Hard cap on the sum of all costs, in the unit of `costs`.

        n_expected : int, default=None
            Number of requests to come. A request that is routed again with its `key`
            counts once. If it is None, each request is priced at the router's `budget`,
            and the total is a cap.

        max_costs : mapping from str to float or array-like of shape (n_choices,), \
default=None
            Maximal cost of a call of each choice. This amount is reserved. None
            reserves the costs themselves. It is required if costs are estimated.

        ledger : Ledger, default=None
            The ledger of the bookings, see :mod:`skroute.ledgers`. None keeps them in
            this process.

        purse : str, default="stream"
            Name of the purse, the total budget's account in the ledger. Streams of the
            same name and ledger share it.

        within : sequence of str, default=()
            Names of further open purses of the ledger. Every request is also paid from
            these purses.

        period : {"day", "month"} or float, default=None
            Time after which the total is available again: a UTC day, a UTC month, or a
            number of seconds.

        windows : mapping from str to sequence of Window, default=None
            Limits on the calls of choices in any interval of some seconds, such as
            requests or tokens a minute, see :class:`~skroute.ledgers.Window`.

        Returns
        -------
        BudgetStream
            The stream, with nothing spent.
        """
        # Streams are built on routers, so they are imported here alone.
        from skroute.routing.over_time._stream import BudgetStream

        return BudgetStream(
            self,
            budget_total,
            n_expected,
            max_costs=max_costs,
            ledger=ledger,
            purse=purse,
            within=within,
            period=period,
            windows=windows,
        )

    def smallest_budget(self, quality=None):
        """Return the smallest budget that reaches a quality on validation rows.

        Parameters
        ----------
        quality : float, default=None
            Mean quality to reach. None is the quality of the best single choice.

        Returns
        -------
        SmallestBudget
            Named tuple ``(budget, budget_se, quality, reached)``. `budget_se` is the
            standard error of `budget`. `reached` is the share of bootstrap samples of
            the rows on which `budget` reaches the quality. `budget` is NaN if no budget
            reaches the quality. On new rows, the mean quality is as often below
            `quality` as above it. For a promise, use
            :class:`~skroute.certified.CertifiedRouter`.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.linear_model import Ridge
        >>> from skroute.routing import BudgetRouter
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(size=(500, 1))
        >>> Q = np.column_stack([X[:, 0] > 0.3, np.ones(500)]).astype(float)
        >>> router = BudgetRouter(Ridge(), costs=[1, 10]).fit(X, Q)
        >>> smallest = router.smallest_budget(0.95)
        >>> 2.5 < smallest.budget < 3.5 and smallest.budget_se < 1
        True
        """
        policy = self._policy()
        if quality is None:
            quality = float(np.nanmax(self.mean_quality_))
        budgets, validations = self._validation_curve()
        if not len(budgets):
            return SmallestBudget(np.nan, np.nan, float(quality), 0.0)
        # Quality of each row at each budget: (n_budgets, n_rows)
        qualities = np.array([validation.quality for validation in validations])
        n_rows = qualities.shape[1]
        weight = np.ones(n_rows) if policy.weight is None else policy.weight

        rng = np.random.default_rng(0)
        # How often each row is in each bootstrap sample: (n_resamples, n_rows)
        counts = rng.multinomial(n_rows, np.full(n_rows, 1 / n_rows), _N_RESAMPLES)
        # The first sample is the rows themselves: (n_resamples + 1, n_rows)
        weights = np.vstack([np.ones(n_rows), counts]) * weight
        # Mean quality of each sample at each budget: (n_resamples + 1, n_budgets)
        means = weights @ qualities.T / weights.sum(axis=1, keepdims=True)
        means_of_rows = means[0]
        budget = _first_reaching(budgets, means_of_rows, quality)
        if np.isnan(budget):
            return SmallestBudget(np.nan, np.nan, float(quality), 0.0)
        # Smallest budgets of the samples in which some budget reaches `quality`.
        smallest_budgets = []
        n_reached = 0
        for means_of_sample in means[1:]:
            budget_of_sample = _first_reaching(budgets, means_of_sample, quality)
            if not np.isnan(budget_of_sample):
                smallest_budgets.append(budget_of_sample)
            mean_of_sample = np.interp(budget, budgets, means_of_sample)
            if _reaches(mean_of_sample, quality):
                n_reached += 1
        self._warn_of_single_choice(budget, quality)
        return SmallestBudget(
            budget=budget,
            # NaN: no sample reaches the quality.
            budget_se=float(np.std(smallest_budgets)) if smallest_budgets else np.nan,
            quality=float(quality),
            reached=float(n_reached / _N_RESAMPLES),
        )

    def _warn_of_single_choice(self, budget, quality):
        """Warn if one model alone reaches a quality, and costs less than the router.

        The quality of a model is its mean on the rows of `fit`.

        Parameters
        ----------
        budget : float
            Mean cost per row at which the router reaches the quality.
        quality : float
        """
        policy = self._policy()
        names = self.single_choices_
        # Quality and cost of each model if it answers all rows. A model that never
        # answers alone is not among the choices, and has no quality.
        means = np.full(len(names), np.nan)
        for position, name in enumerate(names):
            if name in self.choices_:
                means[position] = self.mean_quality_[self.choices_.index(name)]
        if policy.paid.ndim == 2:
            # Mean bill of each choice. Models come first, then abstaining.
            bills = np.average(policy.paid, axis=0, weights=policy.weight)
        else:
            bills = self.costs_
        bills = bills[: len(names)]  # without abstaining
        # A comparison with NaN is False: a model without a quality is not better.
        is_better = (means >= quality) & (bills < budget * (1 - ROUNDING))
        if not is_better.any():
            return
        cheapest = int(np.where(is_better, bills, np.inf).argmin())
        warn(
            f"{names[cheapest]!r} alone has a quality of "
            f"{means[cheapest]:.4g} on the rows of fit, and costs "
            f"{bills[cheapest]:.6g} per row. The router reaches {quality:.4g} only at "
            f"{budget:.6g}: for this quality, use that choice for all rows."
        )


class LimitedRouter(PricedRouter):
    """Mixin for priced routers with the parameters `limits` and `capacities`."""

    @property
    def limits_(self):
        """State of the budget and of each further limit, a list of `LimitState`.

        It is empty without further limits. It prints as a table, and has a method
        ``to_frame``.
        """
        policy = self._policy()
        states = []
        if policy.limits is not None:
            states = policy.limit_states(self._effective_budget(None))
        title = "Limits of a router (means per row)"
        return RecordList(states, title, labels={"most": "limit"})


def _reaches(means, quality):
    """Return True where a mean quality is at least `quality`, up to rounding.

    `means` is a float or an array. The tolerance is relative to its largest absolute
    value.
    """
    is_close = np.isclose(means, quality, atol=ROUNDING * np.abs(means).max())
    return affords(means, quality) | is_close


def _first_reaching(budgets, means, quality):
    """Return the smallest budget whose mean reaches `quality`, or NaN if none does.

    Between two budgets the mean quality is interpolated.

    Parameters
    ----------
    budgets : ndarray of shape (n_budgets,)
        Rising budgets.
    means : ndarray of shape (n_budgets,)
        Mean quality at each of them.
    quality : float
        The mean quality that is enough.

    Returns
    -------
    float
    """
    reaching = np.flatnonzero(_reaches(means, quality))
    if not len(reaching):
        return np.nan
    first = reaching[0]
    # The first budget has none before it to interpolate from. Equal means would be a
    # division by 0 below.
    if first == 0 or means[first] == means[first - 1]:
        return float(budgets[first])
    share = (quality - means[first - 1]) / (means[first] - means[first - 1])
    step = budgets[first] - budgets[first - 1]
    return float(budgets[first - 1] + share * step)
