"""The range of budgets of a router with one `PricedPolicy`."""

import numpy as np


class RowTablesMixin:
    """Mixin for routers with one `PricedPolicy`."""

    def _range_of_budgets(self, kept):
        """The smallest and the largest budget that is of use, by the log."""
        policy = self._policy_at(np.inf).restricted(kept)
        return policy.least, max(float(policy.path.budgets[-1]) + policy.deciding, policy.least)
