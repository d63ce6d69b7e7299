"""Several tests in one promise."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skroute.guarantees._means import check_numbers
from skroute.utils._compat import Interval, Real, validate_params


@validate_params(
    {
        "p_values": ["array-like"],
        "confidence": [Interval(Real, 0, 1, closed="neither")],
    },
    prefer_skip_nested_validation=True,
)
def fixed_sequence_test(p_values: ArrayLike, *, confidence: float = 0.95) -> NDArray[np.bool_]:
    r"""Which candidates keep their promises, tested in a fixed order until the first fails.

    Learn then Test [1]_ with fixed sequence testing (proposition 2 there): every candidate is
    tested at the full level, and none after the first that is not certified. With probability
    `confidence` no certified candidate breaks its promise, so that any of them may be chosen
    by looking at the same rows.

    Parameters
    ----------
    p_values : array-like of shape (n_candidates,) or (n_candidates, n_risks)
        p-values of "the promise is broken", in an order that was fixed before the rows were
        seen, the safest candidate first. With several risks a candidate is certified only if
        all of its promises are: the p-value of "one of them is broken" is the largest of
        theirs (an intersection-union test), which costs no confidence.

    confidence : float, default=0.95
        Probability that no promise of a certified candidate is broken. Raising it certifies
        fewer.

    Returns
    -------
    ndarray of shape (n_candidates,), dtype=bool
        True for a first stretch of the candidates, perhaps none.

    Raises
    ------
    ValueError
        If a p-value is not in [0, 1].

    See Also
    --------
    mean_p_value : p-values for means.

    Notes
    -----
    Several sequences, from other ends or along other paths, share the level: two of them get
    ``confidence = 1 - (1 - c) / 2`` each.

    References
    ----------
    .. [1] A. N. Angelopoulos, S. Bates, E. J. Candes, M. I. Jordan, L. Lei, "Learn then Test:
       Calibrating predictive algorithms to achieve risk control", 2021, arXiv 2110.01052.

    Examples
    --------
    >>> from skroute.guarantees import fixed_sequence_test
    >>> fixed_sequence_test([0.001, 0.04, 0.2, 0.01])
    array([ True,  True, False, False])
    >>> fixed_sequence_test([[0.001, 0.002], [0.01, 0.3]])
    array([ True, False])
    """
    checked = check_numbers(p_values, "p_values", max_ndim=2)
    if checked.min() < 0 or checked.max() > 1:
        raise ValueError(
            "p_values must be numbers in [0, 1] of shape (n_candidates,) or (n_candidates, "
            f"n_risks), got shape {checked.shape} from {checked.min():.17g} to "
            f"{checked.max():.17g}."
        )
    worst = checked.reshape(len(checked), -1).max(axis=1)
    # 1 - confidence is rounded: a p-value that equals the level is not lost to the last bit.
    return np.logical_and.accumulate(worst <= (1 - confidence) * (1 + 1e-12))
