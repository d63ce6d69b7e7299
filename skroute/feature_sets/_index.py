"""The Poly-Dom index: from a size and a budget to a feature set in two binary searches."""

import numpy as np

from skroute.metrics import pareto_front


def broadcast_queries(size, budget):
    """Sizes and budgets as flat arrays of equal length, and the shape they came in."""
    size, budget = np.asarray(size, dtype=np.float64), np.asarray(budget, dtype=np.float64)
    shape = np.broadcast_shapes(size.shape, budget.shape)
    # Copies: one layout and one kind of memory is one compiled kernel.
    return (*(np.broadcast_to(part, shape).flatten() for part in (size, budget)), shape)


class PolyDomIndex:
    """Skylines of the candidate curves over all sizes, in flat arrays (Section 4).

    Built by :func:`build_index`. A skyline lists curves by rising cost and rising
    quality; it is valid from ``breaks[r]`` up to ``breaks[r + 1]``, that size excluded.

    Parameters
    ----------
    coef : ndarray of shape (n_candidates, degree + 1)
        Cost polynomials of the candidates in the size, lowest degree first.

    quality : ndarray of shape (n_candidates,)
        Their qualities.

    breaks : ndarray of shape (n_ranges,)
        First size of each range.

    offsets : ndarray of shape (n_ranges + 1,)
        Where the skyline of each range starts in `skylines`.

    skylines : ndarray of int32
        Positions of candidates.

    n_crossings : int
        Crossings that the sweep went over; the index stores ``n_ranges - 1`` of them.
    """

    def __init__(self, coef, quality, breaks, offsets, skylines, n_crossings):
        self.coef = coef
        self.quality = quality
        self.breaks = breaks
        self.offsets = offsets
        self.skylines = skylines
        self.n_crossings = n_crossings

    @property
    def n_ranges(self):
        """Number of size ranges that have a skyline of their own."""
        return len(self.breaks)

    @property
    def nbytes(self):
        """Bytes of the stored skylines and their ranges."""
        return self.breaks.nbytes + self.offsets.nbytes + self.skylines.nbytes

    def lookup(self, size, budget):
        """Best candidate within the budget.

        Parameters
        ----------
        size : array-like of float
            Sizes, not negative.

        budget : array-like of float
            Budgets, broadcast against `size`.

        Returns
        -------
        ndarray of int64
            Position of the candidate, -1 where none fits the budget. Of candidates with
            equal quality the cheaper one.
        """
        from skroute.feature_sets._kernels import lookup

        size, budget, shape = broadcast_queries(size, budget)
        found = lookup(self.breaks, self.offsets, self.skylines, self.coef, size, budget)
        return found.reshape(shape)

    def goals(self, budget):
        """Choices that any-time retrieval may end at, the least preferred first.

        Parameters
        ----------
        budget : float
            The item's budget; of no influence here.

        Returns
        -------
        ndarray of int64
            All candidates by quality.
        """
        return np.argsort(self.quality, kind="stable")

    def skyline(self, size):
        """Candidates that are the best for some budget at one size.

        Parameters
        ----------
        size : float
            A size.

        Returns
        -------
        ndarray of int64
            Positions of candidates, by rising cost and rising quality.
        """
        here = np.searchsorted(self.breaks, size, side="right") - 1
        found = self.skylines[self.offsets[here] : self.offsets[here + 1]].astype(np.int64)
        # At a break itself two costs may tie: the worse of the two is dominated.
        cost = evaluate_costs(self.coef[found], size)
        return found[np.append(cost[:-1] < cost[1:], True)]


class CandidateScan:
    """Naive-Lookup: every query looks at every candidate.

    What is left when costs are arbitrary functions of the size, whose crossings cannot
    be enumerated, and the baseline for :class:`PolyDomIndex`.

    Parameters
    ----------
    cost : callable
        Called as ``cost(sizes)`` with an array; returns the cost of every candidate at
        every size, of shape (n_candidates, n_sizes).

    quality : ndarray of shape (n_candidates,)
        Qualities of the candidates.
    """

    def __init__(self, cost, quality):
        self.cost = cost
        self.quality = quality

    def lookup(self, size, budget):
        """Best candidate within the budget, as :meth:`PolyDomIndex.lookup`.

        Parameters
        ----------
        size, budget : array-like of float
            Broadcast against each other.

        Returns
        -------
        ndarray of int64
        """
        size, budget, shape = broadcast_queries(size, budget)
        found = np.empty(len(size), dtype=np.int64)
        # Blocks that stay near the processor cache.
        step = max(1, 200_000 // max(1, len(self.quality)))
        for start in range(0, len(found), step):
            stop = start + step
            cost = self.cost(size[start:stop])
            found[start:stop] = naive_choice(cost, self.quality, budget[start:stop])
        return found.reshape(shape)

    def skyline(self, size):
        """Candidates that are the best for some budget at one size.

        Parameters
        ----------
        size : float
            A size.

        Returns
        -------
        ndarray of int64
            Positions of candidates, by rising cost and rising quality.
        """
        return pareto_front(self.cost(np.array([size]))[:, 0], self.quality)


def evaluate_costs(coef, size):
    """Cost of curves at sizes, rounded exactly as the kernels do.

    Parameters
    ----------
    coef : ndarray of shape (n_curves, degree + 1)
        Polynomials, lowest degree first.

    size : float or ndarray of shape (n_sizes,)
        Sizes.

    Returns
    -------
    ndarray of shape (n_curves,) or (n_curves, n_sizes)
    """
    size = np.asarray(size, dtype=np.float64)
    value = np.zeros((len(coef), *size.shape))
    for power in range(coef.shape[1] - 1, -1, -1):
        value = value * size + coef[:, power].reshape(-1, *[1] * size.ndim)
    return value


def naive_choice(cost, quality, budget):
    """Best affordable row of each column.

    Parameters
    ----------
    cost : ndarray of shape (n_candidates, n_queries)
        Costs.

    quality : ndarray of shape (n_candidates,)
        Qualities.

    budget : ndarray of shape (n_queries,)
        Budgets.

    Returns
    -------
    ndarray of shape (n_queries,), dtype=int64
        Row, or -1 where none fits; of equal qualities the cheaper, then the first.
    """
    fits = cost <= budget
    best = np.where(fits, quality[:, None], -np.inf).max(axis=0)
    equal = fits & (quality[:, None] == best)
    choice = np.where(equal, cost, np.inf).argmin(axis=0)
    return np.where(fits.any(axis=0), choice, -1)


def build_index(coef, quality, *, low=0.0, high=np.inf, index_all=False):
    """Sweep the crossings of the cost curves and store the skylines between them.

    Algorithm 3 (PolyDomIntersections): the curves are kept in order of cost, a priority
    queue holds the next crossing of each pair of neighbours, and a skyline is stored only
    where it changes (Theorem 3.13). Several curves through one point, curves that touch,
    coincide or tie at `low`, and equal qualities need no special data: a crossing is
    the first floating-point size at which one curve costs strictly more than the other.

    Parameters
    ----------
    coef : array-like of shape (n_candidates, degree + 1)
        Cost polynomials, lowest degree first, with coefficients that are not negative.

    quality : array-like of shape (n_candidates,)
        Qualities.

    low, high : float, default=0 and infinity
        Range of sizes to index. A narrower range makes a smaller index.

    index_all : bool, default=False
        Store a skyline at every crossing (Poly-Dom-Index-All), for comparison.

    Returns
    -------
    PolyDomIndex
    """
    from skroute.feature_sets._kernels import sweep

    coef = np.ascontiguousarray(coef, dtype=np.float64)
    quality = np.ascontiguousarray(quality, dtype=np.float64)
    order = np.lexsort((np.arange(len(coef)), -quality, evaluate_costs(coef, low)))
    breaks, offsets, skylines, n_crossings = sweep(
        coef, quality, order, float(low), float(high), int(not index_all)
    )
    return PolyDomIndex(coef, quality, breaks, offsets, skylines, int(n_crossings))
