"""The family of estimators that `QualityRegressor` compares, each a function on arrays.

All read `Rows` and outcomes less their mean, and give a predictor with three methods:
``predict(rows)``, deviations from the mean; ``weighted(level, difference, sizes)``, the same
predictor with its outputs mapped by :func:`split_outputs`; and ``ready()``, a function
``(rows, out)`` that adds the deviations to `out`, with all that it needs laid out.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from skroute.quality._trees import Trees, boosted_trees, extra_trees

# A tree sees at most this many rows, a cut compares at most this many features, and the linear
# members take at most this many columns: time is bounded.
MOST_ROWS = 10_000
MOST_CANDIDATES = 40
MOST_COLUMNS = 1000
MOST_SEARCHED = 20_000
_CENTRES = 200
_PENALTIES = np.geomspace(1e-4, 1e3, 22)


class Rows(NamedTuple):
    """Rows in two scales, float32.

    Attributes
    ----------
    standard : ndarray of shape (n_rows, n_features)
        Each feature with mean 0 and standard deviation 1.
    plain : ndarray of shape (n_rows, n_features)
        As given, all features in one unit: those of an embedding weigh as they vary.
    """

    standard: np.ndarray
    plain: np.ndarray

    def __getitem__(self, rows):
        return Rows(self.standard[rows], self.plain[rows])


def split_outputs(values, level, difference, sizes=1.0):
    """Weigh the mean over choices, and what tells them apart.

    Parameters
    ----------
    values : ndarray of shape (..., n_outputs)
    level, difference : float
        Weights of the mean over outputs and of the deviations from it.
    sizes : ndarray of shape (n_outputs,), default=1.0
        What the outputs are multiplied by then.

    Returns
    -------
    ndarray of the same shape
    """
    mean = values.mean(axis=-1, keepdims=True)
    return (difference * (values - mean) + level * mean) * sizes


def _predicted(part, rows, n_outputs):
    out = np.zeros((len(rows.standard), n_outputs))
    part.ready()(rows, out)
    return out


class Forest(NamedTuple):
    """Trees as a predictor."""

    trees: Trees

    def predict(self, rows):
        return self.trees.predict(rows.standard)

    def ready(self):
        add = self.trees.ready()
        return lambda rows, out: add(rows.standard, out)

    def weighted(self, level, difference, sizes=1.0):
        values = split_outputs(self.trees.values, level, difference, sizes)
        return Forest(self.trees._replace(values=values.astype(np.float32)))


class Linear(NamedTuple):
    """Some columns of the rows by a matrix.

    Attributes
    ----------
    columns : ndarray of int or None
        None takes all.
    plain : bool
        Which scale of the rows.
    coef : ndarray of shape (n_columns, n_outputs)
    offset : ndarray of shape (n_outputs,)
    """

    columns: np.ndarray | None
    plain: bool
    coef: np.ndarray
    offset: np.ndarray

    def predict(self, rows):
        X = rows.plain if self.plain else rows.standard
        return self.of(X if self.columns is None else X[:, self.columns])

    def of(self, X):
        return X.astype(np.float64) @ self.coef + self.offset

    def ready(self):
        def add(rows, out):
            out += self.predict(rows)

        return add

    def weighted(self, level, difference, sizes=1.0):
        coef, offset = (
            split_outputs(a, level, difference, sizes).astype(a.dtype)
            for a in (self.coef, self.offset)
        )
        return self._replace(coef=coef, offset=offset)


class Landmarks(NamedTuple):
    """Gaussian similarities to centres by a matrix: neighbours without their rows.

    Attributes
    ----------
    centres : ndarray of shape (n_centres, n_features), dtype=float32
    gamma : float
        Of ``exp(-gamma * squared distance)``.
    cosine : bool
        Whether rows are taken as they are and scaled to length one.
    linear : Linear
    """

    centres: np.ndarray
    gamma: float
    cosine: bool
    linear: Linear

    def similarities(self, rows):
        return self._similarities()(rows)

    def _similarities(self):
        from skroute.quality._predict_kernels import exponents

        centres, gamma = np.ascontiguousarray(self.centres.T), np.float32(self.gamma)

        def of(rows):
            X = unit_rows(rows.plain) if self.cosine else rows.standard
            out = np.empty((len(X), centres.shape[1]), dtype=np.float32)
            exponents(X, centres, gamma, out)
            return np.exp(out, out=out)

        return of

    def predict(self, rows):
        return _predicted(self, rows, len(self.linear.offset))

    def ready(self):
        similarities, linear = self._similarities(), self.linear

        def add(rows, out):
            out += linear.of(similarities(rows))

        return add

    def weighted(self, level, difference, sizes=1.0):
        return self._replace(linear=self.linear.weighted(level, difference, sizes))


class Neighbors(NamedTuple):
    """Mean outcome of the nearest rows.

    Attributes
    ----------
    searched : ndarray of shape (n_rows, n_features), dtype=float32
        The rows of `fit`.
    outcomes : ndarray of shape (n_rows, n_outputs), dtype=float32
        Less their mean.
    metric : {"cosine", "euclidean", "chebyshev"}
    k : int
    """

    searched: np.ndarray
    outcomes: np.ndarray
    metric: str
    k: int

    def predict(self, rows):
        return _predicted(self, rows, self.outcomes.shape[1])

    def ready(self):
        search = searching(self.searched, self.metric, self.k)

        def add(rows, out):
            X = unit_rows(rows.plain) if self.metric == "cosine" else rows.standard
            out += self.outcomes[search(X)].mean(axis=1, dtype=np.float64)

        return add

    def weighted(self, level, difference, sizes=1.0):
        outcomes = split_outputs(self.outcomes, level, difference, sizes).astype(np.float32)
        return self._replace(outcomes=outcomes)


def pack(part):
    """A predictor as the name of its type and plain arrays, trees in half precision."""
    if isinstance(part, Forest):
        trees, unit = part.trees, part.trees.unit()
        small = np.int16 if trees.feature.max(initial=0) < 2**15 else np.int32
        halves = (trees.values / unit).astype(np.float16)
        return "Forest", [
            trees.roots,
            trees.feature.astype(small),
            trees.threshold,
            trees.child,
            halves,
            unit,
        ]
    if isinstance(part, Landmarks):
        return "Landmarks", [*part[:-1], *part.linear]
    if isinstance(part, Neighbors):
        return "Neighbors", [part.searched.astype(np.float16), *part[1:]]
    return type(part).__name__, list(part)


def unpack(kind, values):
    """What :func:`pack` packed."""
    if kind == "Forest":
        roots, feature, threshold, child, halves, unit = values
        leaves = halves.astype(np.float32) * np.asarray(unit, dtype=np.float32)
        return Forest(Trees(roots, feature.astype(np.int32), threshold, child, leaves))
    if kind == "Landmarks":
        return Landmarks(*values[:3], Linear(*values[3:]))
    if kind == "Neighbors":
        return Neighbors(values[0].astype(np.float32), *values[1:])
    return Linear(*values)


def unit_rows(X):
    """Rows scaled to length one; rows of zeros stay."""
    from skroute.quality._predict_kernels import unit_lengths

    out = np.empty_like(X)
    unit_lengths(X, out)
    return out


def nearest(rows, X, metric, k):
    """Positions of the `k` nearest rows to each of X, nearest first."""
    return searching(rows, metric, k)(X)


def searching(rows, metric, k):
    """A function that gives the positions of the `k` nearest rows to each of X, nearest first."""
    from skroute.quality._search import HostRows

    k = min(k, len(rows))
    # Of rows of length one the order by angle is that by distance.
    name = "euclidean" if metric == "cosine" else metric
    index = HostRows(np.ascontiguousarray(rows), np.zeros((len(rows), 1)), name)
    return lambda X: index.map(lambda some: (index.k_nearest(some, k).rows,), X, k)[0]


def trees(rows, D, seed, share=1.0):
    """Extremely randomised trees with small leaves."""
    leaf = int(np.clip(len(D) // 1000, 5, 100))
    return _forest(rows.standard, D, seed, max(5, round(60 * share)), leaf)


def coarse_trees(rows, D, seed, share=1.0):
    """The same with leaves of a hundredth of the rows, for noisy outcomes."""
    leaf = int(np.clip(len(D) // 100, 15, 500))
    return _forest(rows.standard, D, seed, max(5, round(40 * share)), leaf)


def _forest(X, D, seed, n_trees, min_leaf):
    found = extra_trees(
        X,
        D,
        n_trees=n_trees,
        min_leaf=min_leaf,
        n_candidates=candidates(X.shape[1]),
        seed=seed,
        most_rows=MOST_ROWS,
    )
    return Forest(found)


def candidates(n_features):
    """Features that are tried at a cut."""
    return int(np.clip(np.ceil(0.3 * n_features), min(3, n_features), MOST_CANDIDATES))


def boosted(rows, D, seed, share=1.0):
    """Shallow trees, each on what is left over."""
    found = boosted_trees(
        rows.standard,
        D,
        n_trees=60,
        min_leaf=int(np.clip(len(D) // 50, 5, 50)),
        n_candidates=candidates(rows.standard.shape[1]),
        max_depth=4,
        rate=0.1,
        seed=seed,
        most_rows=MOST_ROWS,
    )
    return Forest(found)


def linear(rows, D, seed, share=1.0, plain=False):
    """Ridge on factors that the choices share, each with a penalty of its own."""
    X = rows.plain if plain else rows.standard
    columns = None
    if X.shape[1] > MOST_COLUMNS:
        strength = np.abs(X.T @ D.astype(np.float32)).sum(axis=1)
        columns = np.sort(np.argsort(-strength, kind="stable")[:MOST_COLUMNS])
        X = X[:, columns]
    return shared_ridge(X, D)._replace(columns=columns, plain=plain)


def plain_linear(rows, D, seed, share=1.0):
    """The same on features as they are: those that vary most are shrunk least."""
    return linear(rows, D, seed, plain=True)


def shared_ridge(X, D):
    """Ridge regression of several outputs, shrunk on their common factors.

    The outputs are rotated to their principal components. Each component gets the penalty of
    least generalised cross-validation, so that what choices have in common, which varies
    most, is shrunk least.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns)
    D : ndarray of shape (n_rows, n_outputs)

    Returns
    -------
    Linear
    """
    centre = X.mean(axis=0, dtype=np.float64)
    Z = X.astype(np.float64) - centre
    mean = D.mean(axis=0)
    rotation = np.linalg.eigh((D - mean).T @ (D - mean))[1]
    targets = (D - mean) @ rotation
    n = len(Z)
    squares, basis = np.linalg.eigh(Z.T @ Z)
    keep = squares > 1e-10 * max(squares[-1], 1e-300)
    squares, basis = squares[keep], basis[:, keep]
    if len(squares) == 0:
        return Linear(None, False, np.zeros((X.shape[1], D.shape[1])), mean)
    along = basis.T @ (Z.T @ targets)
    penalties = _PENALTIES * squares.mean()
    shrink = squares / (squares + penalties[:, None])
    freedom = np.minimum(shrink.sum(axis=1), n - 2)
    explained = ((2 * shrink - shrink**2) / squares) @ along**2
    residual = np.maximum((targets**2).sum(axis=0) - explained, 0)
    criterion = residual / np.maximum(n - 1 - freedom, 1)[:, None] ** 2
    best = criterion.argmin(axis=0)
    coef = basis @ (along * (shrink / squares)[best].T) @ rotation.T
    return Linear(None, False, coef, mean - centre @ coef)


def landmarks(rows, D, seed, share=1.0, cosine=False):
    """Ridge on similarities to the centres of clusters."""
    rng = np.random.RandomState(seed)
    sample = rng.permutation(len(D))[: 20 * _CENTRES]
    sample = unit_rows(rows.plain[sample]) if cosine else rows.standard[sample]
    centres = cluster_centres(sample, max(1, min(_CENTRES, len(D) // 4)))
    one, other = np.array_split(sample[:300], 2)
    apart = ((one[:, None] - other[None]) ** 2).sum(axis=-1, dtype=np.float64)
    typical = np.median(apart[apart > 0]) if (apart > 0).any() else 1.0
    found = Landmarks(np.ascontiguousarray(centres, np.float32), 1 / float(typical), cosine, None)
    return found._replace(linear=shared_ridge(found.similarities(rows), D))


def cluster_centres(X, n_centres, n_rounds=3):
    """Centres of clusters, by a few rounds of Lloyd's algorithm from the first rows.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        In random order.
    n_centres : int
    n_rounds : int, default=3

    Returns
    -------
    ndarray of shape (at most n_centres, n_features)
    """
    centres = np.unique(X[:n_centres], axis=0)
    for _ in range(n_rounds):
        near = np.argmin(np.einsum("ij,ij->i", centres, centres) - 2 * (X @ centres.T), axis=1)
        counts = np.bincount(near, minlength=len(centres))
        members = csr_array((np.ones(len(X)), near, np.arange(len(X) + 1)), (len(X), len(centres)))
        sums = members.T @ X.astype(np.float64)
        centres = (sums[counts > 0] / counts[counts > 0, None]).astype(X.dtype)
    return centres


def cosine_landmarks(rows, D, seed, share=1.0):
    """The same on rows of length one."""
    return landmarks(rows, D, seed, cosine=True)


def neighbors(metric):
    """A member that keeps the rows, and averages about the square root of their number."""

    def fit(rows, D, seed, share=1.0):
        searched = unit_rows(rows.plain) if metric == "cosine" else rows.standard
        k = max(1, round(len(D) ** 0.5))
        # What half precision holds, in which they are pickled.
        halves = np.clip(searched, -6e4, 6e4).astype(np.float16)
        return Neighbors(halves.astype(np.float32), D.astype(np.float32), metric, k)

    return fit


MEMBERS = {
    "trees": trees,
    "coarse trees": coarse_trees,
    "boosted": boosted,
    "linear": linear,
    "plain linear": plain_linear,
    "landmarks": landmarks,
    "cosine landmarks": cosine_landmarks,
}
NEIGHBORS = {
    f"{metric} neighbors": neighbors(metric) for metric in ("cosine", "euclidean", "chebyshev")
}
