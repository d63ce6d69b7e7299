"""A batch of known rows: exact promises from labels bought on a few of them."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from skroute.guarantees._means import check_numbers
from skroute.utils._compat import Interval, Real, validate_params


class BatchCertificate(NamedTuple):
    """Which rows of a batch the cheap model may answer.

    Attributes
    ----------
    serve : ndarray of shape (n_rows,), dtype=bool
        Rows that are left to the cheap model. The labelled rows keep the answers that were
        bought; all others go to the expensive model.

    tolerated : int
        Disagreements among the labelled rows up to which the rows in front of them may be
        served; -1 where these labels can promise nothing.

    allowed : int
        Disagreements in the finished batch that the agreement asked for leaves room for.
    """

    serve: NDArray[np.bool_]
    tolerated: int
    allowed: int


@lru_cache(maxsize=256)
def tolerated_disagreements(n_rows, n_labelled, allowed, level):
    """The largest c with P[Hyp(n_rows, allowed + 1 + d, n_labelled) <= d] <= level, all d <= c.

    Returns
    -------
    int
        -1 where even d = 0 is too probable.
    """
    from scipy.stats import hypergeom

    if allowed >= n_rows:
        return n_labelled
    d = np.arange(min(n_labelled, n_rows - allowed - 1) + 1)
    probable = hypergeom.cdf(d, n_rows, allowed + 1 + d, n_labelled) > level
    # So many labelled ones that too few rows are left to break the promise are no matter.
    return int(np.argmax(probable)) - 1 if probable.any() else n_labelled


def smallest_allowed(n_rows, n_labelled, found, level):
    """The fewest unlabelled disagreements that `found` labelled ones can vouch for.

    Returns
    -------
    int
    """
    low, high = -1, n_rows
    while high - low > 1:
        middle = (low + high) // 2
        if tolerated_disagreements(n_rows, n_labelled, middle, level) >= found:
            high = middle
        else:
            low = middle
    return high


def labels_needed(n_rows, allowed, level, share=0.0):
    """About how many labels promise `allowed` disagreements, if `share` of them disagree.

    Returns
    -------
    float
        Infinity where that share alone is too much.
    """
    k = 1
    while k <= n_rows:
        if tolerated_disagreements(n_rows, k, allowed, level) >= share * k:
            return float(k)
        k = max(k + 1, int(1.05 * k))
    return np.inf


@validate_params(
    {
        "scores": ["array-like"],
        "labelled": ["array-like"],
        "disagrees": ["array-like"],
        "agreement": [Interval(Real, 0, 1, closed="both")],
        "confidence": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def finite_population_test(
    scores: ArrayLike,
    labelled: ArrayLike,
    disagrees: ArrayLike,
    *,
    agreement: float = 0.9,
    confidence: float = 0.95,
    random_state: int | np.random.RandomState | None = None,
) -> BatchCertificate:
    """Serve as much of a batch as possible by the cheap model, in agreement with the expensive.

    A number of rows that is fixed beforehand is drawn uniformly **without replacement**, and
    the expensive model's answers to them are bought. The longest stretch of rows by falling
    score in which at most `tolerated` of the bought answers differ from the cheap ones is
    served by the cheap model; the bought answers are used. With probability `confidence` over
    the draw the finished batch agrees with the expensive model on at least a share
    `agreement` of its rows. The test is exact, by the hypergeometric law, for all stretches at
    once; the user guide (:ref:`guarantees`) has the proof.

    Parameters
    ----------
    scores : array-like of shape (n_rows,)
        How sure it is that the cheap answer agrees; only the order counts. They must not
        depend on the bought answers. Better scores serve more rows; the promise does not need
        them to be good.

    labelled : array-like of shape (n_labelled,), dtype=int
        Positions of the rows whose expensive answers were bought.

    disagrees : array-like of shape (n_labelled,), dtype=bool
        Whether the two answers to these rows differ.

    agreement : float, default=0.9
        Share of rows of the batch on which the answers given are to agree with the expensive
        model's. Raising it serves fewer rows.

    confidence : float, default=0.95
        Probability of the promise, over the draw of the labelled rows. Raising it serves
        fewer rows.

    random_state : int, RandomState instance or None, default=None
        Puts rows of equal score in random order.

    Returns
    -------
    BatchCertificate
        Named tuple ``(serve, tolerated, allowed)``.

    Raises
    ------
    ValueError
        If a row is labelled twice or does not exist.

    Examples
    --------
    Of 1,000 answers 90 are wrong, mostly those of which the model is unsure.

    >>> import numpy as np
    >>> from skroute.guarantees import finite_population_test
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.random(1000)
    >>> differ = rng.random(1000) < 0.3 * (1 - scores) ** 2
    >>> rows = rng.choice(1000, 100, replace=False)
    >>> found = finite_population_test(scores, rows, differ[rows], random_state=0)
    >>> bool(found.serve.mean() > 0.5), bool((differ & found.serve).mean() <= 0.1)
    (True, True)
    """
    score = check_numbers(scores, "scores")
    differs = check_numbers(disagrees, "disagrees")
    n = len(score)
    positions = check_numbers(labelled, "labelled")
    rows = positions.astype(np.int64) if np.asarray(labelled).dtype.kind != "b" else -np.ones(1)
    if positions.min() < 0 or positions.max() >= n or not np.array_equal(rows, positions):
        raise ValueError(f"labelled must be positions of rows, whole numbers from 0 to {n - 1}.")
    if len(rows) != len(differs):
        raise ValueError(
            f"labelled and disagrees must have one entry per labelled row each, got {len(rows)} "
            f"and {len(differs)}."
        )
    if len(np.unique(rows)) != len(rows):
        raise ValueError("labelled names a row twice: draw the rows without replacement.")
    if not np.isin(differs, (0, 1)).all():
        raise ValueError("disagrees must be True or False for each labelled row.")
    allowed = int(np.floor((1 - agreement) * n + 1e-9))
    tolerated = tolerated_disagreements(n, len(rows), allowed, 1 - confidence)
    serve = np.zeros(n, dtype=bool)
    if tolerated >= 0:
        order = np.lexsort((check_random_state(random_state).random_sample(n), -score))
        found = np.zeros(n, dtype=np.int64)
        found[rows] = differs
        serve[order[: np.searchsorted(np.cumsum(found[order]), tolerated, side="right")]] = True
        serve[rows] = False
    return BatchCertificate(serve, tolerated, allowed)
