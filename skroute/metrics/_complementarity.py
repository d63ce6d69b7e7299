"""Which models are right where others fail."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array


def complementarity_matrix(Q: ArrayLike) -> NDArray[np.float64]:
    """Share of the rows on which one model is right and another fails.

    Entry ``(i, j)`` is the mean over the rows of ``max(Q[:, i] - Q[:, j], 0)``: for right
    and wrong answers the share of rows on which model `i` (the row) is right and model `j`
    (the column) is wrong, as in OCCAM, figure 15 [1]_; for other qualities how much better
    `i` is on the rows where it is better. A large entry on both sides of the diagonal says
    that routing between the two has something to gain.

    Parameters
    ----------
    Q : array-like of shape (n_samples, n_models)
        Quality of each model on each row: 1 or 0, or a number, higher is better; NaN where
        it is not known.

    Returns
    -------
    ndarray of shape (n_models, n_models), dtype=float64
        The diagonal is 0. ``M[i, j] - M[j, i]`` is the difference of the mean qualities. Each
        pair is compared on the rows on which both are known; NaN where there is none.

    Raises
    ------
    ValueError
        If `Q` does not have two axes or a value is infinite.

    References
    ----------
    .. [1] D. Ding et al. (2024). OCCAM: Towards cost-efficient and accuracy-aware
       classification inference. Appendix A.10. arXiv:2406.04508

    Examples
    --------
    >>> from skroute.metrics import complementarity_matrix
    >>> complementarity_matrix([[1, 1], [0, 1], [0, 1], [1, 0]])
    array([[0.  , 0.25],
           [0.5 , 0.  ]])
    """
    quality = check_array(Q, dtype=np.float64, input_name="Q", ensure_all_finite="allow-nan")
    found = np.empty((quality.shape[1], quality.shape[1]))
    # One model at a time, so that no array larger than Q is made.
    for i, column in enumerate(quality.T):
        better = np.maximum(column[:, None] - quality, 0.0)
        known = ~np.isnan(better)
        n = known.sum(axis=0)
        total = np.where(known, better, 0.0).sum(axis=0)
        found[i] = np.divide(total, n, out=np.full(len(n), np.nan), where=n > 0)
    return found
