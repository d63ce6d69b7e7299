"""The two synthetic pictures of Nan and Saligrama (2017)."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state

from skroute.utils._compat import Interval, validate_params

_COMMON = {
    "n_samples": [Interval(Integral, 8, None, closed="left")],
    "random_state": ["random_state"],
}


@validate_params(
    {**_COMMON, "noise": [Interval(Real, 0, None, closed="left")]},
    prefer_skip_nested_validation=True,
)
def make_four_clusters(n_samples=400, *, noise=0.25, random_state=None):
    """Four clusters in which the feature to buy depends on the model that follows.

    The paper's Synthetic-2: two features of equal cost and four clusters of two classes.
    Feature 0 alone looks best to a single linear model: it isolates cluster 1. But feature
    1 separates cluster 3 from cluster 4, and both from the other two. Buying feature 1
    for every row and feature 0 for clusters 1 and 2 only costs 1.5 on average and answers
    every row correctly; starting from feature 0, three clusters need both and it is 1.75.

    ======= ============= ============= ===== =====
    cluster feature 0     feature 1     class share
    ======= ============= ============= ===== =====
    1       -2            +2            0     1/4
    2       +2            +2            1     1/4
    3       +2            -2            0     1/4
    4       +2            -6            1     1/4
    ======= ============= ============= ===== =====

    Parameters
    ----------
    n_samples : int, default=400
        Rows; the clusters' sizes differ by at most one.

    noise : float, default=0.25
        Standard deviation around the centres, cut at three standard deviations so that
        the clusters do not overlap at the default.

    random_state : int, RandomState instance or None, default=None
        Generates noise and order.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The features.

    y : ndarray of shape (n_samples,), dtype=int64
        The classes.

    cluster : ndarray of shape (n_samples,), dtype=int64
        Cluster of each row, 1 to 4.

    References
    ----------
    F. Nan, V. Saligrama, "Adaptive Classification for Prediction Under a Budget", NeurIPS
    2017, section 5, figure 3.

    Examples
    --------
    >>> from skroute.datasets import make_four_clusters
    >>> X, y, cluster = make_four_clusters(8, random_state=0)
    >>> X.shape, sorted(cluster.tolist())
    ((8, 2), [1, 1, 2, 2, 3, 3, 4, 4])
    """
    rng = check_random_state(random_state)
    cluster = rng.permutation(np.arange(n_samples) % 4)
    centres = np.array([[-2.0, 2.0], [2.0, 2.0], [2.0, -2.0], [2.0, -6.0]])
    classes = np.array([0, 1, 0, 1])
    spread = np.clip(rng.standard_normal((n_samples, 2)), -3, 3)
    return centres[cluster] + noise * spread, classes[cluster], cluster + 1


@validate_params(_COMMON, prefer_skip_nested_validation=True)
def make_hard_centre(n_samples=600, *, random_state=None):
    """Two classes that a line separates except near the middle.

    In the manner of the paper's Synthetic-1: far from the centre the sign of feature 0 is
    the class; inside the unit disk the class follows a spiral that a small model cannot
    draw. A gate learns to send the disk to the full model and to keep the rest.

    Parameters
    ----------
    n_samples : int, default=600
        Rows; half of them lie in the disk.

    random_state : int, RandomState instance or None, default=None
        Generates the rows.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The features, within 3 of the centre.

    y : ndarray of shape (n_samples,), dtype=int64
        The classes.

    References
    ----------
    F. Nan, V. Saligrama, "Adaptive Classification for Prediction Under a Budget", NeurIPS
    2017, section 5, figure 2.

    Examples
    --------
    >>> from skroute.datasets import make_hard_centre
    >>> X, y = make_hard_centre(100, random_state=0)
    >>> X.shape, sorted(set(y.tolist()))
    ((100, 2), [0, 1])
    """
    rng = check_random_state(random_state)
    inside = rng.permutation(np.arange(n_samples) % 2 == 0)
    squared = np.where(inside, rng.uniform(0, 1, n_samples), rng.uniform(1.2, 9, n_samples))
    radius = np.sqrt(squared)
    angle = rng.uniform(-np.pi, np.pi, n_samples)
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    spiral = np.cos(angle - 2 * np.pi * radius) > 0
    return X, np.where(inside, spiral, X[:, 0] > 0).astype(np.int64)
