"""Generators of problems for which the best decisions are known."""

from typing import Any

import numpy as np
from scipy.special import expit, logit
from sklearn.utils import Bunch, check_random_state

from skroute.utils._compat import Integral, Interval, Real, validate_params


@validate_params(
    {
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "n_models": [Interval(Integral, 1, None, closed="left")],
        "n_features": [Interval(Integral, 1, None, closed="left")],
        "n_classes": [Interval(Integral, 2, None, closed="left")],
        "n_regions": [Interval(Integral, 1, None, closed="left")],
        "specialization": [Interval(Real, 0.0, None, closed="left")],
        "accuracy": [tuple],
        "cost_ratio": [Interval(Real, 1.0, None, closed="left")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_routing_problem(
    n_samples: int = 1000,
    n_models: int = 4,
    *,
    n_features: int = 5,
    n_classes: int = 3,
    n_regions: int = 8,
    specialization: float = 1.0,
    accuracy: tuple[float, float] = (0.6, 0.9),
    cost_ratio: float = 10.0,
    random_state: Any = None,
) -> Bunch:
    r"""Make rows, models that are each good on some of the rows, and prices.

    The mechanism:

    1. Rows are uniform in the unit cube. `n_regions` points are uniform in the same
       cube. The region of a row is the number of the nearest point.
    2. Model :math:`i` costs :math:`c_i`. Costs are spaced geometrically from
       :math:`1 / \text{cost\_ratio}` to 1. Base accuracies :math:`a_i` are spaced
       evenly from ``accuracy[0]`` to ``accuracy[1]``: a more expensive model is better
       on the whole.
    3. In region :math:`r` model :math:`i` is right with probability
       :math:`\sigma(\operatorname{logit}(a_i) + \text{specialization} \cdot z_{ir})`,
       with independent standard normal :math:`z_{ir}`.
    4. Labels are uniform over the classes and independent of the features, so that only
       the choice of the model matters. A model answers the label with its probability.
       Otherwise it answers any other class with equal probability. The models are
       independent.

    The output ``success`` shows the best possible routing. A router that sees only the
    rows cannot have a higher expected quality than one that decides by ``success``.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of rows.

    n_models : int, default=4
        Number of models.

    n_features : int, default=5
        Number of features. More of them make the regions harder to learn.

    n_classes : int, default=3
        Number of classes.

    n_regions : int, default=8
        Number of regions. More of them need more rows to learn.

    specialization : float, default=1.0
        Standard deviation, between regions, of the logit of a model's accuracy. With 0,
        the features do not show which model is right. A higher value leaves more to
        gain by routing.

    accuracy : tuple of (float, float), default=(0.6, 0.9)
        Base accuracy of the cheapest and of the most expensive model, between 0 and 1
        exclusive.

    cost_ratio : float, default=10.0
        Cost of the most expensive model, which is 1, divided by the cost of the
        cheapest.

    random_state : int, RandomState instance or None, default=None
        Determines rows, regions, labels and answers. Pass an int for the same output at
        every call.

    Returns
    -------
    :class:`~sklearn.utils.Bunch`
        Dictionary-like, with

        data : ndarray of shape (n_samples, n_features), dtype=float64
            The rows.
        target : ndarray of shape (n_samples,), dtype=int64
            The labels.
        predictions : ndarray of shape (n_samples, n_models), dtype=int64
            The answer of each model.
        quality : ndarray of shape (n_samples, n_models), dtype=float64
            1 where the answer is right, else 0.
        success : ndarray of shape (n_samples, n_models), dtype=float64
            The probability that the answer is right.
        costs : ndarray of shape (n_models,), dtype=float64
            Cost per call of each model, rising.
        model_names : list of str
            ``"model_0"`` and so on, in the order of the columns and of `costs`.
        region : ndarray of shape (n_samples,), dtype=int64
            The region of each row.

    Examples
    --------
    >>> from skroute.datasets import make_routing_problem
    >>> problem = make_routing_problem(10_000, n_models=3, random_state=0)
    >>> problem.costs.round(3)
    array([0.1  , 0.316, 1.   ])
    >>> problem.quality.mean(axis=0).round(2)
    array([0.55, 0.72, 0.89])

    Free choice among the three would be right far more often than the best of them:

    >>> float(problem.quality.max(axis=1).mean().round(2))
    0.98
    """
    if len(accuracy) != 2 or not all(0 < value < 1 for value in accuracy):
        raise ValueError(
            "accuracy must be a pair of numbers between 0 and 1 exclusive, for the "
            f"cheapest and for the most expensive model, got {accuracy!r}."
        )
    random_state = check_random_state(random_state)
    data = random_state.uniform(size=(n_samples, n_features))
    centers = random_state.uniform(size=(n_regions, n_features))
    # Squared distance to each centre, without the squared length of the row, which is
    # the same for all centres.
    region = np.argmin((centers**2).sum(axis=1) - 2 * data @ centers.T, axis=1)
    base_skill = logit(np.linspace(*accuracy, n_models))
    skill_of_region = random_state.standard_normal((n_regions, n_models))
    # (n_regions, n_models)
    success_of_region = expit(base_skill + specialization * skill_of_region)
    success = success_of_region[region]
    target = random_state.randint(n_classes, size=n_samples)
    is_right = random_state.uniform(size=(n_samples, n_models)) < success
    # A wrong answer is the label plus a shift, which is never 0.
    shift = random_state.randint(1, n_classes, size=(n_samples, n_models))
    predictions = (target[:, None] + np.where(is_right, 0, shift)) % n_classes
    return Bunch(
        data=data,
        target=target,
        predictions=predictions,
        quality=is_right.astype(np.float64),
        success=success,
        costs=np.geomspace(1 / cost_ratio, 1.0, n_models),
        model_names=[f"model_{i}" for i in range(n_models)],
        region=region,
    )


@validate_params(
    {
        "n_samples": [Interval(Integral, 8, None, closed="left")],
        "noise": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_four_clusters(n_samples=400, *, noise=0.25, random_state=None):
    """Make four clusters in which the best single feature is a bad first purchase.

    The paper's Synthetic-2: two features of equal cost and four clusters of two
    classes. If a linear model gets a single feature, feature 0 is the best: it isolates
    cluster 1. But feature 1 separates cluster 3 from cluster 4, and both from clusters
    1 and 2. If every row buys feature 1, and only clusters 1 and 2 buy feature 0, the
    cost is 1.5 on average and every answer is correct. If every row buys feature 0
    first, three clusters need both features, and the cost is 1.75.

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
        Number of rows. The sizes of the clusters differ by at most one.

    noise : float, default=0.25
        Standard deviation around the centres. Deviations are cut at three standard
        deviations. With the default the clusters do not overlap.

    random_state : int, RandomState instance or None, default=None
        Determines noise and order. Pass an int for the same output at every call.

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
    F. Nan, V. Saligrama, "Adaptive Classification for Prediction Under a Budget",
    NeurIPS 2017, section 5, figure 3.

    Examples
    --------
    >>> from skroute.datasets import make_four_clusters
    >>> X, y, cluster = make_four_clusters(8, random_state=0)
    >>> X.shape, sorted(cluster.tolist())
    ((8, 2), [1, 1, 2, 2, 3, 3, 4, 4])
    """
    rng = check_random_state(random_state)
    # Cluster of each row, from 0: its position in `centres`.
    cluster = rng.permutation(np.arange(n_samples) % 4)
    centres = np.array([[-2.0, 2.0], [2.0, 2.0], [2.0, -2.0], [2.0, -6.0]])
    class_of_cluster = np.array([0, 1, 0, 1])
    deviation = np.clip(rng.standard_normal((n_samples, 2)), -3, 3)
    X = centres[cluster] + noise * deviation
    # Clusters are counted from 1 in the paper.
    return X, class_of_cluster[cluster], cluster + 1
