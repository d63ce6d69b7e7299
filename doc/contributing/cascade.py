"""A confidence cascade: ask members by rising cost until one is sure enough."""

import numpy as np

from skroute.base import Plan, check_affordable
from skroute.base._calls import REQUEST_ID
from skroute.routing.from_answers._combining import CombiningRouter
from skroute.routing.parts._mixtures import best_mixture
from skroute.routing.parts._targets import SingleLabel
from skroute.utils._compat import Integral, Interval, num_samples


class CascadeClassifier(CombiningRouter):
    """Ask members by rising cost; take the first answer whose score is high enough."""

    _parameter_constraints = {
        **CombiningRouter._parameter_constraints,
        "n_thresholds": [Interval(Integral, 2, None, closed="left")],
        "cv": ["cv_object"],
    }
    _target_kinds = (SingleLabel,)
    call_parameters = (REQUEST_ID,)

    def __init__(self, estimators, *, costs, budget=None, n_thresholds=20, cv=5, n_jobs=None):
        self.estimators = estimators
        self.costs = costs
        self.budget = budget
        self.n_thresholds = n_thresholds
        self.cv = cv
        self.n_jobs = n_jobs

    def _learn(self, X, answers):
        self._order, rows = (
            np.argsort(self._members.costs_of_fit, kind="stable"),
            np.arange(len(answers.target)),
        )
        scores = np.stack([answers.responses[k] for k in self._order], axis=1)
        right = scores.argmax(axis=2) == answers.target[:, np.newaxis]
        thresholds = np.linspace(0, 1, self.n_thresholds)
        sure = scores.max(axis=2) >= thresholds[:, np.newaxis, np.newaxis]
        sure[:, :, -1] = True
        stop = sure.argmax(axis=2)
        cost, quality = (
            np.cumsum(self._members.costs_of_fit[self._order])[stop],
            1.0 * right[rows, stop],
        )

        self.mixture_, kept = best_mixture(cost.mean(axis=1), quality.mean(axis=1))
        self._thresholds = thresholds[kept]
        chains = [self._order[: k + 1] for k in range(len(self._order))]
        self._set_choices(
            [" > ".join(answers.names[k] for k in chain) for chain in chains],
            [np.isin(np.arange(len(chains)), chain) for chain in chains],
            np.eye(len(chains))[self._order],
        )

    def _plan(self, X, call):
        check_affordable(call.budget, self.min_budget_)
        rule = self.mixture_.draw(X, call.budget, call.request_id)
        threshold = self._thresholds[rule]
        ask = self._asked_answers(X)
        active = np.arange(num_samples(X))
        route = np.zeros(len(active), dtype=np.int64)
        for step, member in enumerate(self._order[:-1]):
            active = active[ask(member, active).max(axis=1) < threshold[active]]
            if len(active) == 0:
                break
            route[active] = step + 1
        return Plan(route, self.choice_costs_[route], ask)
