"""The synthetic feature sets on which the Poly-Dom paper compares its algorithms."""

import numpy as np


def make_feature_sets(n_features, p_helpful=0.2, interaction=0.0, random_state=None):
    """Features with random cost polynomials, and the accuracy of every set of them.

    The generator of Battle, Benson, Parameswaran and Wu (2014), "Synthetic Prediction":

    - a feature costs ``a0 + a1 * n + a2 * n ** 2`` on an item of size n, with `a0` and `a1` uniform
      in [0, 100] and `a2` in [0, 1]; a set costs the sum;
    - alone it has an accuracy uniform in [0.7, 1] with probability `p_helpful`, else in [0, 0.5];
    - a set has the mean of the accuracies of its features, from the best on with weights 1, w,
      w ** 2 ..., `w` being `interaction`, which are normalised over all features. With
      0 a set is as accurate as its best feature; with 1 no feature can be left out.

    Returns the polynomials, of shape (n_features, 3), lowest degree first, and the
    accuracies by bit mask of the set; the empty set has 0.
    """
    rng = np.random.RandomState(random_state)
    coef = rng.uniform(size=(n_features, 3)) * [100.0, 100.0, 1.0]
    helpful = rng.uniform(size=n_features) < p_helpful
    good, poor = rng.uniform(0.7, 1.0, n_features), rng.uniform(0.0, 0.5, n_features)
    single = np.where(helpful, good, poor)
    # From the worst feature to the best: a better one in front of a set moves all
    # others back.
    accuracy, masks = np.zeros(1), np.zeros(1, dtype=np.int64)
    for j in np.argsort(single, kind="stable"):
        accuracy = np.concatenate([accuracy, single[j] + interaction * accuracy])
        masks = np.concatenate([masks, masks | 1 << int(j)])
    by_mask = np.empty(len(masks))
    by_mask[masks] = accuracy / np.sum(
        interaction ** np.arange(n_features, dtype=float)
    )
    return coef, by_mask
