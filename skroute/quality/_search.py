"""Nearest neighbours by the kernels: reference rows ready to be searched, in threads."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils import gen_batches
from sklearn.utils.parallel import Parallel, delayed

from skroute.utils._compat import threadpool_controller
from skroute.utils._validation import checked_rows

METRICS = {"chebyshev": 0, "manhattan": 1, "euclidean": 2}

# Queries per call of a kernel: their codes and a block of rows stay in the cache. A product of
# matrices (euclidean) is faster for more.
_QUERIES = 64
_QUERIES_OF_PRODUCT = 256
_ENCODED_ROWS = 1024
# Codes in float32 beyond this are clipped, their squares would overflow.
_LARGEST_CODE = 1e15


class References(NamedTuple):
    """What the kernels know of the reference rows.

    Attributes
    ----------
    metric : int
        From `METRICS`.

    codes : ndarray of shape (n_rows, n_blocks, block), uint16 or float32
        From which distances are bounded.

    excess : ndarray of shape (n_rows,), dtype=float64
        By how much the distance of codes may be short of the distance of the rows, for the
        code of each row: it was clipped (chebyshev, in units of `scale`), or it comes from a
        product that rounds (euclidean, squared).

    squares : ndarray of shape (n_rows,), dtype=float32
        Squared lengths of the codes, less all that rounding adds to products (euclidean).

    rows : ndarray of shape (n_rows, n_features), float32 or float64

    scale, factor : float
        Unit of the codes, and allowance for rounding as a factor.
    """

    metric: int
    codes: np.ndarray
    excess: np.ndarray
    squares: np.ndarray
    rows: np.ndarray
    scale: float
    factor: float


class Queries(NamedTuple):
    """What the kernels know of the queries.

    Attributes
    ----------
    codes : ndarray of shape (n_queries, n_blocks, block), uint16 or float32

    slack : ndarray of shape (n_queries,), dtype=float64
        Allowance for rounding that is added, in units of `scale`; chebyshev needs none.

    excess, squares : ndarray of shape (n_queries,), float64 and float32
        As those of the rows.

    rows : ndarray of shape (n_queries, n_features), dtype=float64
    """

    codes: np.ndarray
    slack: np.ndarray
    excess: np.ndarray
    squares: np.ndarray
    rows: np.ndarray


class Nearest(NamedTuple):
    """The nearest rows of some queries.

    Attributes
    ----------
    distances, rows : ndarray of shape (n_queries, k)
        By distance, then by row.

    at_distance : callable
        ``at_distance(some, distance)`` gives, for the queries at the positions `some`, the
        number of rows at exactly that distance, the sums of their outcomes and of the
        squares of these.
    """

    distances: np.ndarray
    rows: np.ndarray
    at_distance: Callable[[np.ndarray, np.ndarray], tuple[Any, ...]]


def read_only(array):
    """A view in C order that cannot be written to.

    Kernels are compiled for flags as for types: arrays come to them in one form, whatever
    arrays, memory maps and orders the user has.
    """
    view = np.ascontiguousarray(array).view(np.ndarray)
    view.flags.writeable = False
    return view


class HostRows:
    """Reference rows in host memory, ready to be searched by the kernels.

    A code of each row bounds its distance from below. Features come first if they vary
    more, so that a far row shows early, and are padded with zeros to full blocks.

    For ``metric="chebyshev"`` the code of a value is its bin of width `scale` in uint16: the
    values of some rows span 2**14 bins in the middle of the range, and what lies beyond the
    range is clipped to 0..65535. Two values whose codes differ by c are more than
    ``(c - 1) * scale`` apart, and clipping can only bring codes nearer, so outliers cost no
    accuracy. For the other metrics the code is the value in float32, centred and divided
    by `scale`.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features), float32 or float64
        The reference rows.

    y : ndarray of shape (n_rows, n_outputs), dtype=float64
        Their outcomes.

    metric : {"chebyshev", "manhattan", "euclidean"}

    device : object, default=None
        For what device they stand in.
    """

    def __init__(self, X, y, metric, device=None):
        self.outcomes = read_only(y)
        self.device = device
        self.most_queries = _QUERIES_OF_PRODUCT if metric == "euclidean" else _QUERIES
        n_rows, n_features = X.shape
        # Any centre, scale and order give the same neighbours, so some of the rows will do.
        sample = X[:: max(1, n_rows // _ENCODED_ROWS)].astype(np.float64)
        low, high = sample.min(axis=0), sample.max(axis=0)
        spread = np.std(sample * (1 / max(1, np.abs(sample).max())), axis=0)
        self.order = order = np.argsort(-spread, kind="stable")
        low, high = low[order], high[order]
        self.centre = low / 2 + high / 2
        if metric == "chebyshev":
            block, dtype = 256, np.uint16
            with np.errstate(over="ignore"):
                span = min((high - low).max(), np.finfo(np.float64).max)
            scale = span / 2**14
            # Binning is done in float64 and its one unit of error is in the kernel.
            factor = 1.0 + 1e-9
        else:
            block, dtype = 64, np.float32
            # Near most rows, whose codes are short then and lose little to rounding.
            self.centre = np.partition(sample, len(sample) // 2, axis=0)[len(sample) // 2, order]
            with np.errstate(over="ignore"):
                scale = max(
                    np.abs(X[rows][:, order] - self.centre).max()
                    for rows in gen_batches(n_rows, _ENCODED_ROWS)
                )
            fits = 0 < scale < np.finfo(np.float64).max
            scale = 2.0 ** np.ceil(np.log2(scale)) if fits else scale
            # Each operation of the sum moves a distance by 2^-24 of the result; twice that.
            factor = 1.0 + 2.0**-23 * (n_features + 8)
        self.references = References(
            METRICS[metric],
            np.zeros((n_rows, -(-n_features // block), block), dtype=dtype),
            np.zeros(n_rows),
            np.zeros(n_rows, dtype=np.float32),
            read_only(X),
            float(scale) if 0 < scale < np.inf else 1.0,
            factor,
        )
        # The largest norm of a code; 0 for chebyshev.
        self.largest = 0.0
        kept = self.references
        for rows in gen_batches(n_rows, _ENCODED_ROWS):
            kept.codes[rows], norms, kept.excess[rows], kept.squares[rows] = self._encode(X[rows])
            self.largest = max(self.largest, float(norms.max()))

    def _encode(self, X):
        """Codes of rows, their norms (0 for chebyshev), excess and squares."""
        metric, codes = self.references.metric, self.references.codes
        codes = np.zeros((len(X), *codes.shape[1:]), dtype=codes.dtype)
        used, nothing = codes.reshape(len(X), -1)[:, : X.shape[1]], np.zeros(len(X))
        with np.errstate(over="ignore"):
            values = (X[:, self.order] - self.centre) / self.references.scale
        if metric == 0:
            bins = np.floor(values) + 2.0**15
            used[:] = clipped = np.clip(bins, 0.0, 2.0**16 - 1)
            return codes, nothing, np.abs(bins - clipped).max(axis=1), nothing
        used[:] = np.clip(values, -_LARGEST_CODE, _LARGEST_CODE)
        norms = np.linalg.norm(used.astype(np.float64), ord=metric, axis=1)
        excess = squares = nothing
        if metric == 2:
            # The product of two rows of n features is off by n * 2^-24 of their lengths, summed
            # in any order, hence a squared distance by no more than that of both squares; and by
            # 6 units more for the sum of the three. Twice that, and underflow.
            error = norms**2 * (self.references.factor - 1.0) + 1e-30
            squares, excess = norms**2 - error, 2 * error
        norms[np.abs(values).max(axis=1) > _LARGEST_CODE] = np.inf
        return codes, norms, excess, squares

    def ready(self, Q):
        """Queries as the kernels take them.

        Parameters
        ----------
        Q : ndarray of shape (n_queries, n_features)

        Returns
        -------
        Queries
        """
        Q = read_only(np.asarray(Q, dtype=np.float64))
        codes, slack, excess, squares = self._encode(Q)
        if self.references.metric != 0:
            # Rounding values to float32 moves a distance by at most 2^-24 of the two norms;
            # twice that, and underflow.
            slack = 2.0**-23 * (self.largest + slack) + 1e-20
        return Queries(codes, slack, excess, squares.astype(np.float32), Q)

    def check(self, estimator, X):
        """Rows to be estimated, as an array."""
        return checked_rows(estimator, X)

    def map(self, estimate, Q, n_neighbors, n_jobs=None):
        """Call ``estimate(queries)`` on batches of queries, in threads, and stack the results.

        Parameters
        ----------
        estimate : callable
            From `Queries` to a tuple of arrays with one row for each.

        Q : ndarray of shape (n_queries, n_features)

        n_neighbors : int
            Neighbours of a query; bounds the memory of a batch.

        n_jobs : int, default=None
            Threads, as in joblib.

        Returns
        -------
        tuple of ndarrays
        """

        def batch(rows):
            return estimate(self.ready(Q[rows]))

        at_most = max(1, 2**22 // n_neighbors)
        products = self.references.metric == 2 and len(Q) > 1
        # Threads of a product would wait for each other at every block of rows.
        limit = threadpool_controller().limit
        with limit(limits=1, user_api="blas") if products else nullcontext():
            if len(Q) <= min(_QUERIES, at_most):
                return estimate(self.ready(Q))
            each = -(-len(Q) // effective_n_jobs(n_jobs))
            each = int(np.clip(each, _QUERIES, self.most_queries))
            batches = list(gen_batches(len(Q), min(each, at_most)))
            parts = Parallel(n_jobs=n_jobs, require="sharedmem")(
                delayed(batch)(rows) for rows in batches
            )
        return tuple(np.concatenate(arrays) for arrays in zip(*parts))

    def k_nearest(self, queries, k):
        """The `k` nearest rows to each query.

        Parameters
        ----------
        queries : Queries
        k : int

        Returns
        -------
        Nearest
        """
        from skroute.quality._kernels import k_nearest, sums_at_distance

        def at_distance(some, distance):
            *codes, rows = (values[some] for values in queries)
            part = Queries(*codes, read_only(rows))
            return sums_at_distance(self.references, part, self.outcomes, read_only(distance))

        return Nearest(*k_nearest(self.references, queries, k), at_distance)

    def nearest_of_subsets(self, queries, starts):
        """Nearest row of each subset to each query; of equally near rows the first.

        Parameters
        ----------
        queries : Queries
        starts : ndarray of shape (n_subsets + 1,), dtype=int64
            First row of each subset, and the number of rows.

        Returns
        -------
        ndarray of shape (n_queries, n_subsets), dtype=int64
        """
        from skroute.quality._kernels import nearest_of_subsets

        return nearest_of_subsets(self.references, queries, read_only(starts))[1]
