"""A router whose calls take a keyword: names of members that are not asked."""

import numpy as np
from own_router import RidgeRouterClassifier

from skroute.assignment import assignment_path, choose_at_price
from skroute.base import CallParameter, Plan, check_affordable

EXCLUDE = CallParameter(
    "exclude",
    "list of str, default=None",
    "Names of members that are not asked in this call.",
)


class ExcludingRouterClassifier(RidgeRouterClassifier):
    """Route each row among the members that are not excluded."""

    call_parameters = (EXCLUDE,)

    def kept_choices(self, exclude):
        """Return the positions of the choices that are left."""
        excluded = set() if exclude is None else set(exclude)
        unknown = sorted(excluded - set(self.choices_))
        if unknown:
            raise ValueError(
                f"exclude={exclude!r} has {unknown!r}, which is not among "
                f"{self.choices_!r}. Give names of members."
            )
        kept = [k for k, name in enumerate(self.choices_) if name not in excluded]
        if not kept:
            raise ValueError(f"exclude={exclude!r} leaves no member. Exclude fewer.")
        return np.array(kept)

    def _plan(self, X, call):
        kept = self.kept_choices(call.exclude)
        costs = self.costs_[kept]
        check_affordable(call.budget, costs.min())
        # A price among the members that are left: the money goes to these.
        path = assignment_path(self.estimates_[:, kept], costs)
        estimates = self.ridge_.predict(X)[:, kept]
        chosen = choose_at_price(estimates, costs, path.price(call.budget))
        return Plan(kept[chosen], costs[chosen])
