"""The interface by which a stream decides about requests that come one by one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from skroute.utils._typing import NDArray


class RequestEstimates(NamedTuple):
    """Estimated quality of each choice for a request, and answers already paid for.

    Attributes
    ----------
    quality : ndarray of shape (n_samples, n_offered)
        Estimated quality of each choice that is offered.

    state : object, default=None
        What deciding has computed already, as in :attr:`Plan.state`. The stream puts it
        into the plan that `answer` gets.

    answers : mapping from int to object, default={}
        Answers to the first row that deciding has paid for, by index into ``choices_``.
        A ticket shows them, so that the user makes no second call.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.base import RequestEstimates
    >>> RequestEstimates(np.array([[0.5, 0.9]])).state is None
    True
    """

    quality: NDArray[np.float64]
    state: Any = None
    answers: Mapping[int, Any] = {}


class RequestPolicy(ABC):
    """Interface of policies that decide on requests one by one.

    A decision estimator that can be streamed has a method ``request_policy(budget,
    exclude=())``, which returns an object of a subclass. This object stands for the
    fitted estimator at its present parameters, and does not change. A subclass writes
    :meth:`price_at` and :meth:`estimate`. The choices that cost more than the money
    that is left are not considered. From the others, the request gets the choice with
    the largest ``quality - penalty - price * cost``. Ties go to the cheaper choice.

    Parameters
    ----------
    positions : array-like of int of shape (n_offered,)
        Choices that are offered: a request gets one of them. They are rising indices
        into ``choices_``.

    costs : array-like of shape (n_offered,) or None
        Cost of a call of each choice that is offered, the cost of deciding left out.
        None if each request has costs of its own.

    deciding_cost : float, default=0.0
        Cost of deciding about one request. It is spent even if the call fails.

    smallest_budget : float, default=None
        Mean cost of the cheapest plan. None is the cost of the cheapest choice and of
        deciding. It is required if `costs` is None.

    penalty : array-like of shape (n_offered,), default=None
        Amounts that are subtracted from the estimated quality. None is 0 for each.

    excludable : sequence of str, default=None
        Names that `exclude` takes. None is ``choices_`` of the estimator.

    asked_first : sequence of str, default=()
        Names of models that are called for every request, in order to decide. They
        cannot be excluded.

    estimates_costs : bool, default=False
        True if `costs` is None and :meth:`estimate_costs` is written. The stream then
        requires ``max_costs``.

    quotes_costs : bool, default=False
        True if the costs that decide are quotes or list prices, which differ from the
        bill. The stream then requires ``max_costs``.

    Examples
    --------
    >>> import numpy as np
    >>> from skroute.base import RequestEstimates, RequestPolicy
    >>> class FixedPrice(RequestPolicy):
    ...     def price_at(self, budget):
    ...         return 0.1
    ...     def estimate(self, X):
    ...         return RequestEstimates(np.tile([0.5, 0.9], (len(X), 1)))
    >>> policy = FixedPrice([0, 1], [1.0, 3.0], deciding_cost=0.5)
    >>> policy.smallest_budget
    1.5
    """

    def __init__(
        self,
        positions,
        costs,
        *,
        deciding_cost: float = 0.0,
        smallest_budget: float | None = None,
        penalty=None,
        excludable: Sequence[str] | None = None,
        asked_first: Sequence[str] = (),
        estimates_costs: bool = False,
        quotes_costs: bool = False,
    ):
        self.positions = np.asarray(positions, dtype=np.int64)
        self.costs = None if costs is None else np.asarray(costs, dtype=np.float64)
        self.deciding_cost = float(deciding_cost)
        if smallest_budget is None:
            if self.costs is None:
                raise ValueError(
                    "smallest_budget must be given where costs is None, got None: it "
                    "is the mean cost of the cheapest plan."
                )
            smallest_budget = self.costs.min() + self.deciding_cost
        self.smallest_budget = float(smallest_budget)
        if penalty is None:
            penalty = np.zeros(len(self.positions))
        self.penalty = np.asarray(penalty, dtype=np.float64)
        self.excludable = excludable
        self.asked_first = asked_first
        self.estimates_costs = estimates_costs
        self.quotes_costs = quotes_costs

    @abstractmethod
    def price_at(self, budget: float) -> float:
        """Return the dual price of a mean budget per request: quality per unit of cost.

        Parameters
        ----------
        budget : float
            At least `smallest_budget`. The cost of deciding is included.

        Returns
        -------
        float
            Quality that a unit of cost must bring. The price does not rise with the
            budget. With an infinite price, the cheapest choice is taken.
        """

    @abstractmethod
    def estimate(self, X: Any) -> RequestEstimates:
        """Estimate the quality of each choice that a request may get.

        Parameters
        ----------
        X : indexable of shape (n_samples, n_features)
            Validated rows. A stream gives one row.

        Returns
        -------
        RequestEstimates
        """

    def estimate_costs(self, X: Any) -> np.ndarray:
        """Estimate the cost of each choice. Needed only if `estimates_costs` is True.

        Parameters
        ----------
        X : indexable of shape (n_samples, n_features)
            Validated rows.

        Returns
        -------
        ndarray of shape (n_samples, n_offered)
        """
        raise NotImplementedError(
            f"{type(self).__name__} has estimates_costs=True and no method "
            "estimate_costs. Write this method."
        )
