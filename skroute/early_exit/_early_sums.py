"""What early exits of regressors and rankers share: fitting, budgets, what was considered."""

import warnings
from reprlib import repr as short_repr

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.utils import check_array, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import column_or_1d

from skroute.base import CostAwareMixin, Plan, check_rows, inherit_member_tags
from skroute.early_exit._calibration import (
    Tradeoff,
    affordable,
    allowed_wrong,
    fixed_sequence,
    upper_bound,
)
from skroute.early_exit._sum_ensembles import SumEnsemble
from skroute.forests._wrapped import take_apart
from skroute.utils._compat import Integral, Interval, Real, RealNotInt, VisualBlock
from skroute.utils._frozen import unfrozen
from skroute.utils._tensors import on_host

COMMON = {
    "estimator": "no_validation",
    "alpha": [Interval(Real, 0, 1, closed="left")],
    "calibration": [Interval(RealNotInt, 0, 1, closed="neither")],
    "confidence": [Interval(Real, 0, 1, closed="neither")],
    "guarantee": ["boolean"],
    "budget": [Interval(Real, 0, None, closed="both"), None],
    "n_jobs": [Integral, None],
    "random_state": ["random_state"],
}


class EarlySums(CostAwareMixin, RegressorMixin, MetaEstimatorMixin, BaseEstimator):
    """An ensemble of trees with one output that is evaluated member by member.

    A leaf implements ``_learn(engine, reading, X, held_out, task, ...)``.
    """

    def _fitted_ensemble(self):
        """What `optimize` evaluates: the ensemble of an earlier fit, or a frozen one."""
        ensemble = SumEnsemble(self.estimator)
        if hasattr(self, "estimator_") and not ensemble.frozen:
            return SumEnsemble(self.estimator_)
        if not ensemble.frozen:
            raise ValueError(
                "optimize needs a fitted ensemble: call fit first, or pass "
                f"FrozenEstimator(ensemble), got estimator={short_repr(self.estimator)}."
            )
        ensemble.check()
        return SumEnsemble(ensemble.fitted(None, None, {}))

    def _choose(self, policies, cost, changed, unit):
        """Set what was considered and what is in use.

        Parameters
        ----------
        policies : list
            From cautious to hurried.

        cost : ndarray of shape (n_policies,)
        changed : ndarray of shape (n_policies, n_units), dtype=bool
            On calibration rows, or groups of them, whether a policy changes too much.

        unit : {"row", "group"}

        Returns
        -------
        policy
        """
        n = changed.shape[1]
        # Those that a policy or a more cautious one changes: the count that grows.
        so_far = np.logical_or.accumulate(changed, axis=0).sum(axis=1)
        allowed = allowed_wrong(n, self.alpha, self.confidence, self.guarantee)
        chosen = max(0, fixed_sequence(so_far, allowed))
        share = changed.mean(axis=1) if n else np.zeros(len(policies))
        self.tradeoff_ = Tradeoff(policies, cost, share, chosen)
        self.disagreement_ = float(share[chosen])
        bound = upper_bound(allowed, n, self.confidence) if chosen else 0.0
        self.disagreement_bound_ = float(bound)
        if not chosen:
            self._warn_of_no_exit(n, unit)
        return policies[chosen]

    def _warn_of_no_exit(self, n, unit):
        warnings.warn(
            f"No early exit keeps alpha={self.alpha!r} on {n} calibration {unit}s: every member is "
            f"evaluated on every row. Give more {unit}s, hold out a larger share of them, or allow "
            "more.",
            UserWarning,
            stacklevel=9,
        )

    def _finish(self, order, n_members):
        self.order_ = order
        affordable(self.tradeoff_, self._effective_budget(None))
        self.choices_ = [str(k) for k in range(n_members + 1)]

    def _least(self):
        return self.tradeoff_.cost.min()

    def _planned(self, members, state):
        return Plan(members, members.astype(np.float64), state)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        model = unfrozen(self.estimator)
        tags.input_tags.allow_nan = True
        if hasattr(model, "__sklearn_tags__"):
            inherit_member_tags(tags, [model])
            # What stands before the ensemble may read missing values.
            tags.input_tags.allow_nan |= bool(take_apart(model).before)
            poor = get_tags(model).regressor_tags
            if poor is not None and tags.regressor_tags is not None:
                tags.regressor_tags.poor_score |= poor.poor_score
        return tags

    def get_metadata_routing(self):
        """Metadata routing of this object: see the scikit-learn user guide.

        Returns
        -------
        MetadataRouter
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        mapping = MethodMapping().add(caller="fit", callee="fit")
        if hasattr(self.estimator, "get_metadata_routing"):
            router.add(estimator=self.estimator, method_mapping=mapping)
        return router

    def _sk_visual_block_(self):
        return VisualBlock("parallel", [self.estimator], names=["estimator"])

    def _checked(self, X):
        return check_rows(self, X, reset=True)

    def _checked_target(self, y):
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. For a "
                "frozen ensemble, optimize(X) needs none."
            )
        y = check_array(on_host(y), ensure_2d=False, dtype="numeric", input_name="y")
        return column_or_1d(y, warn=True)
