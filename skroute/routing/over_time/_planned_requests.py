"""Requests of a stream whose router pays, for models or features, while it decides."""

import numpy as np

from skroute.base import affords
from skroute.ledgers import Offer


def money_per_request(books):
    """Return the money that is left, divided by the number of requests that are left.

    Parameters
    ----------
    books : Books
        Its `n_expected` is not None. It counts the present request already.

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

    The cost of a request is known after its decision. Before the decision, the stream
    reserves the largest amount that a request can cost. An object does not change: for
    new exclusions, the stream makes a new object.

    Parameters
    ----------
    router : decision estimator
        Fitted.

    mean : float
        Mean budget per request. It is used if the number of requests is not known.

    largest_cost : float
        The largest amount that a request can cost.

    excluded : frozenset of str
        Names of choices that no request gets.

    Attributes
    ----------
    floor : float
        Smallest mean budget of the router.

    pacer : None
        The budget is the only limit. (`Offers` may have a `LimitPacer` here.)
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
        # The returned call is not used. `make_call` raises an error now, and not at the
        # first request, if the router does not know a name in `excluded`.
        self.make_call(mean, exclude=())

    def excludable(self):
        """Return the names that can be excluded, if the router takes `exclude`."""
        return self.router.choices_

    @property
    def asked_first(self):
        """Names of models that are called for each request: none, an empty tuple.

        The stream refuses to exclude such names. Here the router itself refuses them,
        in `make_call`.
        """
        return ()

    def make_call(self, budget, exclude):
        """Return the budget and the exclusions of one request as a `Call`.

        Parameters
        ----------
        budget : float
            Mean budget of this request. It is raised to the router's smallest budget.
        exclude : sequence of str
            Names that this request must not get, in addition to those of all requests.
        """
        budget = max(budget, self.floor)
        names = sorted(self.excluded.union(exclude))
        if not names:
            # Without exclusions, the keyword is left out: not all routers take it.
            return self.router.make_call(budget)
        return self.router.make_call(budget, exclude=names)

    def plan(self, x, books, exclude):
        """Decide on one request at the mean budget that is left, and return its `Plan`.

        Its cost is the cost of the models that were asked, or of the bought features.

        Parameters
        ----------
        x : indexable
            One row.
        books : Books
            Amounts and counts of the stream. They count this request already.
        exclude : sequence of str
            Names that this request must not get.
        """
        budget = self.mean
        if books.n_expected is not None:
            budget = money_per_request(books)
        return self.router.plan(x, self.make_call(budget, exclude))

    def offer_of(self, plan):
        """Return the `Offer` of a decided request, with all its cost as `deciding`.

        `plan` is the `Plan` of this request, with one row. Models were asked, or
        features bought, while the request was decided.
        """
        choice = int(plan.route[0])
        cost = float(np.asarray(plan.cost)[0])
        name = self.router.choices_[choice]
        # `cost` of an offer is that of a call after deciding, which does not happen.
        return Offer(choice, name, cost=0.0, deciding=cost, reserved=cost)
