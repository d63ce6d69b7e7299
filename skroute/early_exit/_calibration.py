"""How far to go: calibration on rows that nothing else has looked at."""

import numpy as np

from skroute.early_exit._thresholds import is_wrong, running_values


def hold_out(n, share, rng, y=None):
    """Split rows into those to fit on and those held out.

    Parameters
    ----------
    n : int
    share : float
        Share held out; one row at least, and not all.

    rng : RandomState
    y : ndarray of shape (n,), default=None
        One row at least of each class is kept to fit on.

    Returns
    -------
    kept, held_out : ndarray of int
        Sorted.
    """
    order = rng.permutation(n)
    if y is not None:
        first = np.unique(y[order], return_index=True)[1]
        order = np.concatenate([order[first], np.delete(order, first)])
    n_held_out = min(max(1, round(share * n)), n - 1)
    return np.sort(order[: n - n_held_out]), np.sort(order[n - n_held_out :])


def upper_bound(n_wrong, n_samples, confidence):
    """Exact binomial (Clopper-Pearson) upper confidence limit of a share.

    Parameters
    ----------
    n_wrong, n_samples : int
    confidence : float

    Returns
    -------
    float
    """
    from scipy.special import betaincinv

    if n_wrong >= n_samples:
        return 1.0
    return float(betaincinv(n_wrong + 1, n_samples - n_wrong, confidence))


def allowed_wrong(n_samples, alpha, confidence, guarantee):
    """Wrong answers on calibration rows that are compatible with `alpha`.

    Parameters
    ----------
    n_samples : int
        Calibration rows.

    alpha : float
    confidence : float
    guarantee : bool
        Whether the upper bound must meet `alpha`, or the expectation
        (``(k + 1) / (n + 1) <= alpha``, conformal risk control).

    Returns
    -------
    int
        -1 when there are too few rows for any.
    """
    if not guarantee:
        return int(np.floor(alpha * (n_samples + 1) + 1e-9)) - 1
    lowest, highest = -1, n_samples
    while lowest < highest:
        middle = (lowest + highest + 1) // 2
        if upper_bound(middle, n_samples, confidence) <= alpha:
            lowest = middle
        else:
            highest = middle - 1
    return lowest


def fixed_sequence(n_wrong, allowed):
    """The last policy before the first that makes too many errors.

    Policies are tried from the most cautious on, in an order fixed beforehand. If the
    true share of the policy returned is above the limit that belongs to `allowed`, then
    so is that of some first policy in the sequence, and that one passed by chance: the
    limit of a single test holds for the whole search.

    Parameters
    ----------
    n_wrong : ndarray of shape (n_policies,)
        Errors on the calibration rows.

    allowed : int

    Returns
    -------
    int
        Index of the policy, -1 when the first fails.
    """
    failed = np.flatnonzero(np.asarray(n_wrong) > allowed)
    return int(failed[0]) - 1 if len(failed) else len(n_wrong) - 1


def judge(policies, values, bad, spent):
    """What each policy does on rows.

    Parameters
    ----------
    policies : list of ExitThresholds
    values, bad : ndarray of shape (n_members, n_samples)
        From :func:`running_values`.

    spent : ndarray of shape (n_members,)
        Cost up to each position.

    Returns
    -------
    cost : ndarray of shape (n_policies,)
        Summed over the rows.

    wrong : ndarray of shape (n_policies, n_members), dtype=int64
        Rows that leave with another answer at each position.
    """
    cost = np.empty(len(policies))
    wrong = np.empty((len(policies), len(spent)), dtype=np.int64)
    for i, policy in enumerate(policies):
        position, side = policy.leaving(values)
        cost[i] = spent[position].sum()
        wrong[i] = np.bincount(position[is_wrong(position, side, bad)], minlength=len(spent))
    return cost, wrong


def cross_fit(recipe, scores, offset, beta, costs, fold, task):
    """Judge a recipe on all rows, each by what was learned without its fold.

    Policies with the same index were made in the same way, by the same price of an error,
    on each set of folds and, in the end, on all rows: what is pooled is how the recipe
    does on rows that it has not seen. The last fit has more rows than any of these.

    Parameters
    ----------
    recipe : Recipe
    scores, offset, beta, costs
        As for :meth:`Recipe.learn`.

    fold : ndarray of shape (n_samples,), dtype=int
        Fold of each row, 0, 1, ...

    task : callable
        Called with the name of a fold; a context manager that gives what
        :meth:`Recipe.learn` takes as ``on_position``.

    Returns
    -------
    cost, wrong
        As from :func:`judge`.
    """
    cost, wrong = 0.0, 0
    n_folds = int(fold.max()) + 1
    for left_out in range(n_folds):
        with task(f"calibrate on fold {left_out + 1} of {n_folds}") as on_position:
            order, policies, _, _ = recipe.learn(
                np.compress(fold != left_out, scores, axis=1), offset, beta, costs, on_position
            )
        values, bad = running_values(
            np.compress(fold == left_out, scores, axis=1), order, offset, beta
        )
        fold_cost, fold_wrong = judge(policies, values, bad, np.cumsum(costs[order]))
        cost, wrong = cost + fold_cost, wrong + fold_wrong
    return cost, wrong
