"""What a call of a decision estimator takes beside rows and budget."""

import inspect


def takes(estimator, keyword):
    """Whether `predict`, `route` and the other calls of an estimator take a keyword.

    Examples
    --------
    >>> from skroute.routing import BudgetRouter
    >>> from skroute.utils._calls import takes
    >>> takes(BudgetRouter(costs=[1, 2]), "exclude"), takes(BudgetRouter(costs=[1, 2]), "moon")
    (True, False)
    """
    return keyword in inspect.signature(estimator.route).parameters
