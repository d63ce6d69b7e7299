"""What an online router believes of its choices: linear models that forget, in closed form."""

import math
from dataclasses import dataclass, field

import numpy as np

# Weight of what is assumed of a choice's noise before it has shown its own, in outcomes; and how
# many outcomes the noise is a mean over.
_NOISE_PRIOR, _NOISE_MEMORY = 10, 300
# Variance of the level of a choice of which nothing is known, in units of the noise; the level's
# drift never makes it less certain than this.
LEVEL_VARIANCE = 4.0
# A smaller one is as good as none, and its inverse no number.
_LEAST_ALPHA = 1e-12
# The same of a choice that is expected to be as others are, or as a fitted router says.
NEWCOMER_VARIANCE, PRIOR_VARIANCE = 0.3, 0.05
# Noise before any outcome: that of qualities between 0 and 1.
_NOISE_UNKNOWN = 0.1
QUALITY, COST = 0, 1
# How fast a level goes back to its usual one, in units of the drift's rate; and over how many
# outcomes of a choice the usual level is a mean.
RETURN, USUAL = 4.0, 1000


@dataclass
class Beliefs:
    """Bayesian linear regression of quality, and of cost over the price list's, per choice.

    Attributes
    ----------
    mean : ndarray of shape (n_choices, 2, n_features)
        Weights of quality and of cost; the first feature is 1, its weight is the level.

    cov : ndarray of shape (n_choices, 2, n_features, n_features)
        Their covariance, in units of the noise.

    noise : ndarray of shape (n_choices, 2)
        Variance of the noise.

    n_told : ndarray of shape (n_choices, 2), dtype=int64
        Outcomes told.

    seen : ndarray of shape (n_choices, 2), dtype=int64
        The request up to which the level has drifted.

    usual : ndarray of shape (n_choices,)
        Level of quality over the long run, to which it returns while nothing is told: a failure
        may have passed.
    """

    mean: np.ndarray
    cov: np.ndarray
    noise: np.ndarray
    n_told: np.ndarray
    seen: np.ndarray
    usual: np.ndarray
    alpha: float = field(default=10.0)
    drift: float = field(default=0.0)

    def look(self, x, now):
        """Estimates (n_choices, 2) for a request now, and the variances of those of quality."""
        from skroute.routing._kernels import look

        back, seen = RETURN * self.drift, self.seen
        return look(x, self.mean, self.cov, self.usual, seen, now, self.drift, back, LEVEL_VARIANCE)


def new_beliefs(n_choices, n_features, alpha, drift, *, now=0, level=LEVEL_VARIANCE):
    """Nothing known: the level is uncertain, slopes are shrunk to 0 by `alpha` outcomes."""
    beliefs = Beliefs(
        np.zeros((n_choices, 2, n_features)),
        np.empty((n_choices, 2, n_features, n_features)),
        np.full((n_choices, 2), np.nan),
        np.zeros((n_choices, 2), np.int64),
        np.full((n_choices, 2), now, np.int64),
        np.zeros(n_choices),
        alpha,
        drift,
    )
    variance = np.full(n_features, 1.0 / max(alpha, _LEAST_ALPHA))
    variance[0] = level
    beliefs.cov[:] = np.diag(variance)
    beliefs.mean[:, COST, 0] = 1.0
    return beliefs


def learn_outcome(beliefs, choice, target, x, value, *, made, now):
    """Condition on one outcome: a Kalman step (the filter of West and Harrison 1997, ch. 4).

    The level drifts by a random walk of variance `drift` a request. Of an outcome that comes
    late, the drift between its request and now counts as noise. Without drift the state after a
    set of outcomes does not depend on their order.

    Parameters
    ----------
    beliefs : Beliefs
        Changed in place.
    choice, target : int
        Which model; QUALITY or COST.
    x : ndarray of shape (n_features,)
    value : float
    made, now : int
        Number of the request, and of the newest one.
    """
    from skroute.routing._kernels import learn

    cov, mean = beliefs.cov[choice, target], beliefs.mean[choice, target]
    since = now - int(beliefs.seen[choice, target])
    if since > 0 and beliefs.drift:
        if target == QUALITY:
            gap = beliefs.usual[choice] - mean[0]
            mean[0] -= math.expm1(-RETURN * beliefs.drift * since) * gap
        cov[0, 0] += min(beliefs.drift * since, max(LEVEL_VARIANCE - cov[0, 0], 0.0))
    beliefs.seen[choice, target] += max(since, 0)
    weight = 1.0 / (1.0 + beliefs.drift * max(now - made, 0))
    surprise, spread = learn(x, value, weight, mean, cov)
    n = int(beliefs.n_told[choice, target])
    beliefs.n_told[choice, target] = n + 1
    if target == QUALITY:
        beliefs.usual[choice] += max(4 / (n + 4), 1 / USUAL) * (mean[0] - beliefs.usual[choice])
    squared = surprise * surprise / spread
    if n == 0:
        # The first surprise is against no knowledge at all.
        return
    noise = float(beliefs.noise[choice, target])
    if math.isnan(noise):
        beliefs.noise[choice, target] = squared
    else:
        beliefs.noise[choice, target] += (squared - noise) / min(n, _NOISE_MEMORY)


def noise_of(beliefs):
    """Variance of the quality's noise per choice, at least the mean over those that showed theirs.

    A choice that happened to be constant is not known the better for it: its outcomes may be
    those of a failure that passes.
    """
    from skroute.routing._kernels import common_noise

    noise, n_told = beliefs.noise[:, QUALITY], beliefs.n_told[:, QUALITY]
    return common_noise(noise, n_told, _NOISE_PRIOR, _NOISE_UNKNOWN)


def added(beliefs, new):
    """Beliefs with those of further choices behind."""
    parts = ("mean", "cov", "noise", "n_told", "seen", "usual")
    joined = [np.concatenate([getattr(beliefs, part), getattr(new, part)]) for part in parts]
    return Beliefs(*joined, beliefs.alpha, beliefs.drift)


def kept(beliefs, choices):
    """Beliefs of some choices, as a copy."""
    parts = ("mean", "cov", "noise", "n_told", "seen", "usual")
    return Beliefs(*[getattr(beliefs, p)[choices] for p in parts], beliefs.alpha, beliefs.drift)


def newcomer(beliefs, now):
    """A choice of which nothing is known: it is expected to be as the others are on average."""
    new = new_beliefs(
        1, beliefs.mean.shape[2], beliefs.alpha, beliefs.drift, now=now, level=NEWCOMER_VARIANCE
    )
    told = beliefs.n_told[:, QUALITY] > 0
    if told.any():
        new.mean[0, QUALITY] = beliefs.mean[told, QUALITY].mean(axis=0)
        new.usual[:] = new.mean[0, QUALITY, 0]
    return new
