"""The synthetic feature sets on which the Poly-Dom paper compares its algorithms."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils import Bunch, check_random_state

from skroute.utils._compat import Interval, validate_params


@validate_params(
    {
        "n_features": [Interval(Integral, 1, 20, closed="both")],
        "p_helpful": [Interval(Real, 0, 1, closed="both")],
        "interaction": [Interval(Real, 0, 1, closed="both")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_feature_sets(n_features=10, *, p_helpful=0.2, interaction=0.0, random_state=None):
    """Features with random cost polynomials, and the accuracy of every set of them.

    The generator of the synthetic experiments in [1]_. No data and no models: what a
    set would reach is given, so that search, index and lookup can be studied alone.

    - Cost of a feature on an item of size `n`: ``a0 + a1 * n + a2 * n ** 2`` with `a0`
      and `a1` uniform in [0, 100] and `a2` uniform in [0, 1]. A set costs the sum.
    - Accuracy of a single feature: uniform in [0.7, 1] with probability `p_helpful`, else
      uniform in [0, 0.5].
    - Accuracy of a set: mean of the accuracies of its features, sorted from the best,
      with weights ``1, w, w ** 2, ...``, `w` being `interaction`; the weights are
      normalised over all `n_features`, so that more features never hurt.

    Parameters
    ----------
    n_features : int, default=10
        Number of features, at most 20: there are ``2 ** n_features`` sets.

    p_helpful : float, default=0.2
        Probability that a feature is helpful. More helpful features put more sets on the
        skyline.

    interaction : float, default=0.0
        Weight `w` of each further feature relative to the one before. 0: a set is as
        accurate as its best feature (the paper's max combiner), and few sets are worth
        training. 1: every feature adds to every set, and none can be left out.

    random_state : int, RandomState instance or None, default=None
        Seed.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With attributes

        coef : ndarray of shape (n_features, 3)
            Cost polynomials, lowest degree first.
        accuracy : ndarray of shape (2 ** n_features,)
            Accuracy of each set; entry `mask` is the set of the features ``j`` with bit
            ``1 << j`` in `mask`. Entry 0, the empty set, is 0.

    References
    ----------
    .. [1] L. Battle, E. Benson, A. Parameswaran, E. Wu. "Indexing Cost Sensitive
       Prediction". arXiv 1408.4072, 2014. Section "Synthetic Prediction".

    Examples
    --------
    >>> from skroute.datasets import make_feature_sets
    >>> data = make_feature_sets(3, p_helpful=0.5, random_state=0)
    >>> data.coef.shape, data.accuracy.shape
    ((3, 3), (8,))
    >>> bool(data.accuracy[0b111] == data.accuracy[[0b001, 0b010, 0b100]].max())
    True
    """
    rng = check_random_state(random_state)
    coef = rng.uniform(size=(n_features, 3)) * [100.0, 100.0, 1.0]
    helpful = rng.uniform(size=n_features) < p_helpful
    single = np.where(
        helpful,
        rng.uniform(0.7, 1.0, size=n_features),
        rng.uniform(0.0, 0.5, size=n_features),
    )
    # From the worst feature to the best: putting a better one in front of a set moves all
    # others back by one weight.
    accuracy = np.zeros(1)
    masks = np.zeros(1, dtype=np.int64)
    for j in np.argsort(single, kind="stable"):
        accuracy = np.concatenate([accuracy, single[j] + interaction * accuracy])
        masks = np.concatenate([masks, masks | 1 << int(j)])
    by_mask = np.empty(len(masks))
    by_mask[masks] = accuracy / np.sum(interaction ** np.arange(n_features, dtype=float))
    return Bunch(coef=coef, accuracy=by_mask)
