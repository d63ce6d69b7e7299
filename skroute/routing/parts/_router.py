"""What every router is: the calls with what may be left out of them, and validation figures."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skroute.base import CallParameter, CostAwareMixin, Plan, affords, check_affordable
from skroute.base._inspection import models_of
from skroute.ledgers import Ledger
from skroute.routing.parts._log import kept_choices
from skroute.utils._cache import cache_of
from skroute.utils._compat import Interval, Real, num_samples
from skroute.utils._tolerances import ROUNDING

BUDGET = [Interval(Real, 0, None, closed="both"), None]
# Draws of validation rows for the standard error of a budget.
_N_RESAMPLES = 200


class SmallestBudget(NamedTuple):
    """The smallest budget that reaches a quality on validation rows.

    Attributes
    ----------
    budget : float
        Mean cost per sample. NaN where no budget reaches the quality on the validation rows: it
        may be above what the choices can do, and where routing gains nothing also the quality of
        the best single choice is out of reach. (Not infinite: that is a budget without a limit.)

    budget_se : float
        Its standard error, over samples of the validation rows. NaN where `budget` is NaN.

    quality : float
        The quality that was to be reached.

    reached : float
        Share of the samples of rows in which some budget reaches it.
    """

    budget: float
    budget_se: float
    quality: float
    reached: float


def _decides_by_price(router):
    return hasattr(router, "_policy")


COSTS = CallParameter(
    "costs",
    "array-like or dataframe of shape (n_samples, n_choices), default=None",
    """Cost of each choice for each row, for a router that was fitted on costs of rows;
    `predict_cost` reports them. A router with a price list refuses them and reports the list.
    What calls of the log have cost beyond it is in ``expected_cost``.""",
)


class Router(CostAwareMixin):
    """Mixin for estimators that choose, per row, which model answers.

    A subclass writes the methods of :class:`~skroute.base.CostAwareMixin`. A router that decides
    by the price of its budget also writes

    ``_policy() -> Policy``
        Return the fitted policy at the parameters of now. ``_smallest_budget()``, validation
        figures and streams follow from it.

    Any other router writes

    ``_validated(budget) -> Validated``
        Return mean quality and cost on validation rows, with their standard errors. A router
        whose log cannot judge all budgets replaces it, and ``_judged_curve()``, too.
    """

    def _smallest_budget(self):
        return self._policy().least

    def _single_choices(self):
        return models_of(self)

    def _plan_single(self, X, name, call):
        n_rows = num_samples(X)
        choice = self.choices_.index(name)
        cost = float(self.costs_[choice])
        return Plan(np.full(n_rows, choice), np.full(n_rows, cost))

    # What decisions came to in fit ------------------------------------------------------------

    def _validated(self, budget):
        """Quality and cost of decisions on rows that they were not learned from (`Validated`)."""
        return self._policy().validated(budget)

    def _judged_curve(self):
        """Return budgets, and the validation of the decisions at each of them."""
        return self._policy().curve

    def _figures(self):
        check_is_fitted(self)
        budget = self._effective_budget(None)
        check_affordable(budget, self._smallest_budget())
        return self._validated(budget)

    @property
    def validation_quality_(self):
        """Mean quality, at `budget`, of rows decided by what was learned from other rows."""
        return self._figures().quality

    @property
    def validation_quality_se_(self):
        """Standard error of `validation_quality_` as an estimate for new rows."""
        return self._figures().quality_se

    @property
    def validation_cost_(self):
        """What these decisions cost on average, by the log."""
        return self._figures().cost

    @property
    def validation_cost_se_(self):
        """Standard error of `validation_cost_` as an estimate for new rows."""
        return self._figures().cost_se

    # Streams ----------------------------------------------------------------------------------

    def _stream_policy(self, budget, excluded):
        """The policy of a stream with a mean budget, and the choices that are its columns."""
        kept, _ = kept_choices(self.choices_, 1, excluded, None)
        return self._policy().restricted(kept), kept

    def _asked_first(self, kept):
        """Names of members that deciding between some choices asks."""
        return []

    def _excludable(self):
        """Names that `exclude` knows."""
        return self.choices_

    def _look(self, X, kept):
        """What is known of rows before they are decided between some choices.

        What the quality estimator reads, what answering must not pay for twice, and of a single
        row the answers of choices that deciding has paid for.
        """
        return X, None, {}

    def _estimated(self, X, policy):
        """Estimates, and what deciding leaves for answering; within a sweep over budgets once."""

        def estimate():
            features, state, _ = self._look(X, policy.kept)
            return policy.estimates(features), state

        key = ("estimates", id(policy.estimator), tuple(policy.kept))
        return cache_of(self).get_or_compute(key, estimate, keep_alive=policy.estimator)

    @available_if(_decides_by_price)
    def predict_quality(self, X, return_std=False):
        """Estimated quality of each choice for each row, before the penalty.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows; a member that embeds is called on them.

        return_std : bool, default=False
            Whether to return the standard deviation of each estimate's error, too.

        Returns
        -------
        quality : ndarray of shape (n_samples, n_choices)
            In the unit of quality.

        std : ndarray of shape (n_samples, n_choices)
            Only if `return_std`.
        """
        policy, X = self._policy(), self._check_rows(X)
        features, _, _ = self._look(X, policy.kept)
        return (
            policy.estimates_and_std(features)
            if return_std
            else policy.estimates(features)
        )

    @available_if(_decides_by_price)
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
    ) -> Any:
        """A budget for requests that come one by one, safe in threads and, shared, processes.

        Parameters
        ----------
        budget_total : float
            Hard cap on the sum of all costs, in the unit of `costs`.

        n_expected : int, default=None
            Number of requests to come, retries included. None is unknown: then each is
            priced at the router's `budget`, and the total is a cap on top.

        max_costs : mapping from str to float or array-like of shape (n_choices,), \
default=None
            The most that a call of each choice can cost, which is what is reserved. None
            reserves the costs themselves; required where they are estimated.

        ledger : Ledger, default=None
            Where the books are kept, see :mod:`skroute.ledgers`. None keeps them in this
            process.

        purse : str, default="stream"
            Name of the purse in the ledger. Streams of the same name and ledger share it.

        within : sequence of str, default=()
            Further purses of the ledger, opened before, that every request is paid from too.

        period : {"day", "month"} or float, default=None
            After what time the books begin anew: UTC days, UTC months or so many seconds.

        Returns
        -------
        BudgetStream
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
        )

    @available_if(_decides_by_price)
    def smallest_budget(self, quality=None):
        """The smallest budget that reaches a quality on validation rows.

        Parameters
        ----------
        quality : float, default=None
            Mean quality to reach. None is that of the best single choice, asked for every row.

        Returns
        -------
        SmallestBudget
            Named tuple ``(budget, budget_se, quality, reached)``; `budget` is NaN where no budget
            reaches the quality, and `reached` says how often one does.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.linear_model import Ridge
        >>> from skroute.routing import BudgetRouter
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(size=(500, 1))
        >>> Q = np.column_stack([X[:, 0] > 0.3, np.ones(500)]).astype(float)
        >>> found = BudgetRouter(Ridge(), costs=[1, 10]).fit(X, Q).smallest_budget(0.95)
        >>> 2.5 < found.budget < 3.5 and found.budget_se < 1
        True
        """
        policy = self._policy()
        if quality is None:
            quality = float(np.nanmax(self.mean_quality_))
        budgets, found = self._judged_curve()
        if not len(budgets):
            return SmallestBudget(np.nan, np.nan, float(quality), 0.0)
        rows = np.array([each.quality for each in found])
        weight = np.ones(rows.shape[1]) if policy.weight is None else policy.weight
        n_rows, rng = rows.shape[1], np.random.default_rng(0)
        # How often each row is in each sample of the rows; the first sample is all of them.
        drawn = rng.multinomial(n_rows, np.full(n_rows, 1 / n_rows), _N_RESAMPLES)
        weights = np.vstack([np.ones(n_rows), drawn]) * weight
        means = weights @ rows.T / weights.sum(axis=1, keepdims=True)
        first, *sample = [_first_reaching(budgets, mean, quality) for mean in means]
        found = [budget for budget in sample if not np.isnan(budget)]
        # What is NaN has no standard error.
        error = np.nan if np.isnan(first) else float(np.std(found))
        return SmallestBudget(first, error, float(quality), len(found) / _N_RESAMPLES)

    @property
    def quality_std_(self):
        """Sigma, the out-of-sample standard deviation of the estimation error."""
        return self._policy().sigma

    @property
    def mean_quality_(self):
        """Mean quality of each choice on the rows of `fit`, ndarray of shape (n_choices,)."""
        policy = self._policy()
        return np.average(policy.quality, axis=0, weights=policy.weight)

    @property
    def price_path_(self):
        """Price for every budget, what deciding costs not included (AssignmentPath)."""
        return self._policy().path

    @property
    def price_(self):
        """Price at `budget`; infinite where it is the smallest feasible one."""
        policy = self._policy()
        return float(policy.rule(self._effective_budget(None)).price)


def _first_reaching(budgets, mean, quality):
    """The budget at which a curve first reaches a quality, between its points by a line."""
    # A mean just below the quality asked for reaches it. No part of the tolerance has a unit.
    is_close = np.isclose(mean, quality, atol=ROUNDING * np.abs(mean).max())
    reaching = np.flatnonzero(affords(mean, quality) | is_close)
    if not len(reaching):
        return np.nan
    at = reaching[0]
    if at == 0 or mean[at] == mean[at - 1]:
        return float(budgets[at])
    share = (quality - mean[at - 1]) / (mean[at] - mean[at - 1])
    return float(budgets[at - 1] + share * (budgets[at] - budgets[at - 1]))
