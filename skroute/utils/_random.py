"""One seed for a fit that starts several random generators."""

from numbers import Integral

from sklearn.utils import check_random_state

# Number of seeds that a RandomState of numpy takes: those of 32 bits.
N_SEEDS = 2**32


def seed_of(random_state):
    """Return the seed of a fit: `random_state` if it is an integer, or a drawn one.

    Parameters
    ----------
    random_state : int, RandomState instance or None
        None draws from numpy's global generator.

    Returns
    -------
    int
        At least 0 and below `N_SEEDS`.
    """
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(N_SEEDS, dtype="int64"))
