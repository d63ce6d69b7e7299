"""Requests of a stream whose router asks models, or buys features, while it decides."""

import numpy as np

from skroute.base import affords
from skroute.ledgers import Offer


def money_per_request(books):
    """Return the money that is left, divided by the number of requests that are left.

    Parameters
    ----------
    books : Books
        They have the number of expected requests, and count the present one already.

    Returns
    -------
    float
    """
    # `n_started` counts the present request, which is still to be paid. If more
    # requests than expected have come, it is the last.
    n_left = max(books.n_expected - books.n_started + 1, 1)
    return (books.total - books.spent - books.pending) / n_left


class PlannedRequests:
    """Decisions on the requests of a router that pays while it decides.

    What a request costs is known after its decision. Before it, the largest amount that
    a request can cost is reserved. Planned requests do not change: new exclusions make
    new ones.

    Parameters
    ----------
    router : decision estimator
        Fitted.

    mean : float
        Mean budget per request, if the number of requests is not known.

    largest_cost : float
        The largest amount that a request can cost.

    excluded : frozenset of str
        Names of choices that no request gets.

    Attributes
    ----------
    floor : float
        Smallest mean budget of the router.

    pacer : None
        There are no limits next to the budget.
    """

    pacer = None

    def __init__(self, router, mean, largest_cost, excluded):
        self.router = router
        self.mean = mean
        self.largest_cost = largest_cost
        self.excluded = excluded
        self.floor = router.min_budget_
        if not affords(largest_cost, self.floor):
            raise ValueError(
                f"max_costs={largest_cost!r} is below the smallest mean cost of a "
                f"request, {self.floor:.6g}. It must be the largest cost of a request."
            )
        # Names that the router does not know raise an error now, not at the first
        # request.
        self.make_call(mean, ())

    def excludable(self):
        """Return the names that can be excluded, if the router takes `exclude`."""
        return self.router.choices_

    @property
    def asked_first(self):
        """Names that cannot be excluded: none here. The router may refuse some."""
        return ()

    def make_call(self, budget, exclude):
        """Return the call of a request (`Call`).

        Parameters
        ----------
        budget : float
            Mean budget of this request. The router's smallest budget replaces a smaller
            one.
        exclude : sequence of str
            Names that this request must not get, in addition to those of all requests.
        """
        budget = max(budget, self.floor)
        names = sorted(self.excluded.union(exclude))
        if not names:
            # Not all routers take the keyword.
            return self.router.make_call(budget)
        return self.router.make_call(budget, exclude=names)

    def plan(self, x, books, exclude):
        """Decide on one request, which asks models or buys features (`Plan`).

        Parameters
        ----------
        x : indexable
            The validated row.
        books : Books
            Those of the stream, which count this request already.
        exclude : sequence of str
            Names that this request must not get.
        """
        budget = self.mean
        if books.n_expected is not None:
            budget = money_per_request(books)
        return self.router.plan(x, self.make_call(budget, exclude))

    def offer_of(self, plan):
        """Return the decision on one request as an `Offer`, which is paid already."""
        choice = int(plan.route[0])
        cost = float(np.asarray(plan.cost)[0])
        name = self.router.choices_[choice]
        # Deciding has paid for the whole request, so that the call costs nothing more.
        return Offer(choice, name, cost=0.0, deciding=cost, reserved=cost)
