"""What routers show of the `PricedPolicy` that they decide by."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skroute.base import check_budget
from skroute.routing._abstaining import Beside
from skroute.routing._fit_warnings import warn_of_slack
from skroute.routing._limits import limits_of
from skroute.routing._newcomers import base_of
from skroute.routing._priced import cost_error
from skroute.routing._report_tables import ReportTablesMixin
from skroute.routing._row_tables import RowTablesMixin
from skroute.routing._stream import StreamMixin
from skroute.routing._validation import standard_error
from skroute.utils._compat import Real, num_samples
from skroute.utils._once import once_of


def check_lambda(reg_lambda):
    """Refuse a penalty that is none: it may have been set after `fit`."""
    if not (isinstance(reg_lambda, Real) and 0 <= reg_lambda < np.inf):
        raise ValueError(f"reg_lambda must be a finite number from 0 up, got {reg_lambda!r}.")


class PricedMixin(StreamMixin):
    """Mixin for routers that decide by a `PricedPolicy`.

    A subclass implements ``_policy()``, which returns the policy by the parameters of now,
    and what streams need.
    """

    @property
    def price_path_(self):
        """Price for every budget, what deciding costs not included (AssignmentPath)."""
        return self._policy().path

    @property
    def price_(self):
        """Price at `budget`; infinite where it is the smallest feasible one."""
        return float(self._policy().price(self._effective_budget(None)))

    def _policy_at(self, budget):
        """The policy that decides at a budget."""
        return self._policy()

    def _respond(self, X, response, *, budget=None, **context):
        found = super()._respond(X, response, budget=budget, **context)
        if budget is not None and context.get("costs") is None:
            warn_of_slack(self._policy_at(check_budget(budget)), budget, stacklevel=4)
        return found

    def _not_plain(self):
        """Why the policy is more than estimates and a price for each budget; None if not."""
        return None

    def _validation(self):
        """Quality and cost of each row of `fit` under the cross-fitted decisions."""
        found = self._policy().validate(self._effective_budget(None))
        return found.quality, found.cost

    @property
    def validation_quality_(self):
        """Mean logged quality of the cross-fitted decisions at `budget`, out of sample.

        Each row of `fit` is decided by estimates and at a price that were learned without
        its fold.
        """
        return float(np.average(self._validation()[0], weights=self._policy().weight))

    @property
    def validation_quality_se_(self):
        """Standard error of `validation_quality_` as an estimate for new rows.

        As `validation_cost_se_`.
        """
        policy = self._policy()
        return standard_error(self._validation()[0], policy.part, policy.weight)

    @property
    def validation_cost_(self):
        """What these decisions cost on average, by the log."""
        return float(np.average(self._validation()[1], weights=self._policy().weight))

    @property
    def validation_cost_se_(self):
        """Standard error of `validation_cost_` as an estimate for new rows.

        It is that of a mean over as many rows: where the rows of `fit` happen to be cheap, new
        ones are above the budget. Least squares and nearest neighbours of skroute leave out each
        row alone, and what such rows cost differs by nothing else. Of other estimators the means
        of folds are looked at: where they differ by more, since each has learned something else,
        the figure is theirs; five folds say it roughly, so that by chance that of one fit may be
        half as large again as that of another. Where choices are about as good, the fit of all
        rows may prefer another one than the folds': by how much is part of the figure.
        """
        return cost_error(self._policy(), self._effective_budget(None))

    def _least(self):
        return self._policy().least


class LoggedMixin(ReportTablesMixin, RowTablesMixin, PricedMixin):
    """Mixin for routers with one `PricedPolicy` over all of their choices.

    A subclass implements ``_estimates_and_state(X, of)``: ``of(features)`` for the features
    of the rows, the quality of each choice for each row, and the answers that came with them.
    """

    def _estimates(self, X, of):
        return self._estimates_and_state(X, of)[0]

    def _estimated(self, X, policy):
        """Estimates by a policy, before the penalty, and answers; within a walk made once."""
        kept = None if policy.kept is None else tuple(policy.kept)
        return once_of(self).whole(
            ("estimates", id(policy.estimator), kept),
            lambda: self._estimates_and_state(X, policy.estimates),
            of=policy.estimator,
        )

    @property
    def quality_estimator_(self):
        """The accuracy estimator, fitted on all rows."""
        found = base_of(self._policy())[0]
        return found.estimator if isinstance(found, Beside) else found

    @property
    def mean_quality_(self):
        """Mean quality of each choice on the rows of `fit`, ndarray of shape (n_choices,)."""
        policy = self._policy()
        return np.average(policy.quality, axis=0, weights=policy.weight)

    @property
    def quality_std_(self):
        """Sigma, the out-of-sample standard deviation of the estimation error."""
        return self._policy().sigma

    def predict_quality(self, X, return_std=False, exclude=None, allowed=None):
        """Estimated quality of each choice, before the penalty.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            The rows.

        return_std : bool, default=False
            Whether to return the uncertainty of each estimate as well.

        exclude : list of str, default=None
            Names of choices that are not to be had, as in `route`.

        allowed : {array-like, dataframe} of shape (n_samples, n_choices), default=None
            Which choices each row may make, as in `route`.

        Returns
        -------
        quality : ndarray of shape (n_samples, n_choices)
            Columns in the order of ``choices_``; NaN where a row may not make the choice.

        std : ndarray of shape (n_samples, n_choices)
            Only if `return_std`. Where ``predict`` of `quality_estimator` takes
            ``return_std``, as that of :class:`~skroute.quality.QualityRegressor` does, its
            own standard error of the estimate. Else the root mean squared error
            of the cross-fitted estimates of about the same size, in which the spread of
            single outcomes is included.

        Notes
        -----
        These are estimates before a choice is made. The best-looking one of several is
        better in estimate than in truth; ``predict_routed(X).expected_quality`` is
        corrected for that. Of a choice that was added after `fit` they are careful ones, which
        rows are decided by: 1.25 standard errors below what is expected of it.
        """
        check_is_fitted(self)
        policy = self._policy()
        X = self._check_X(X)
        limits = limits_of(self.choices_, num_samples(X), exclude, allowed)
        if exclude is None and allowed is None:
            of = policy.estimates_and_std if return_std else policy.estimates
            return self._estimates(X, of)
        free = np.zeros((num_samples(X), len(self.choices_)), dtype=bool)
        free[:, limits.kept] = True if limits.allowed is None else limits.allowed
        if not return_std:
            return np.where(free, self._estimates(X, policy.estimates), np.nan)
        found = self._estimates(X, policy.estimates_and_std)
        return tuple(np.where(free, part, np.nan) for part in found)
