"""How much a log says of a policy that is not the one that wrote it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Overlap(NamedTuple):
    """What a log of one answer per request says where a policy would go.

    Attributes
    ----------
    choices : list of str
        Names of the choices, in the order of the arrays.

    n_rows : ndarray of shape (n_choices,), dtype=int64
        Logged answers of each choice.

    effective_sample_size : ndarray of shape (n_choices,), dtype=float64
        ``(sum w)^2 / sum w^2`` of its rows, with ``w = 1 / propensity``: as many rows of
        equal weight would say as much.

    max_weight : ndarray of shape (n_choices,), dtype=float64
        The largest ``1 / propensity`` of its rows: one row stands for so many.

    needed : ndarray of shape (n_choices,), dtype=float64
        Share of the rows that the policy sends to each choice.

    matched : ndarray of shape (n_choices,), dtype=int64
        Of these rows those on which the log made the same choice.

    never : list of str
        Choices that the policy makes on rows of which the log made none like it: what they
        are worth there is extrapolated.

    estimated : bool
        Whether propensities are estimates.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.routing import BudgetRouter
    >>> rng = np.random.default_rng(0)
    >>> X, choice = rng.random((400, 1)), rng.integers(0, 2, 400)
    >>> q = np.where(choice == 1, 0.8, 1 - X[:, 0])
    >>> router = BudgetRouter(Ridge(), costs=[1, 3], budget=2)
    >>> overlap = router.fit(X, q, choice=choice, propensity=np.full(400, 0.5)).overlap_
    >>> overlap.n_rows, overlap.max_weight, overlap.never
    (array([195, 205]), array([2., 2.]), [])
    """

    choices: list[str]
    n_rows: NDArray[np.int64]
    effective_sample_size: NDArray[np.float64]
    max_weight: NDArray[np.float64]
    needed: NDArray[np.float64]
    matched: NDArray[np.int64]
    never: list[str]
    estimated: bool
