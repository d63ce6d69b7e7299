"""Nearest neighbours on a torch device, with the answers of the CPU kernels.

The search has two steps, as in :mod:`skroute.quality._kernels`. Distances of codes in float32
bound the true ones, and only the pairs of a query and a row that may be among the nearest get
theirs in float64. Ties go to the row that comes first. Under chebyshev the distances are
those of the kernels to the last bit. Under the other two a float64 sum is rounded by the
order of its terms, so that rows whose distances agree to some 15 digits without being equal
may be ordered differently.
"""

import numpy as np
from sklearn.utils import gen_batches
from sklearn.utils.validation import validate_data

from skroute.quality._search import METRICS, Nearest
from skroute.utils._optional import import_optional
from skroute.utils._tensors import check_tensor, on_host, torch_of

# Elements of the largest temporary arrays: distances of codes, and differences in float64.
_CODE_DISTANCES = 2**25
_DIFFERENCES = 2**24
_ORDERS = {0: np.inf, 1: 1.0, 2: 2.0}


class DeviceRows:
    """Reference rows on a device, and their codes.

    A code is the value centred, divided by a power of two that brings all within [-1, 1],
    in float32.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features), float32 or float64
    y : ndarray of shape (n_rows, n_outputs), dtype=float64
        Their outcomes.

    metric : {"chebyshev", "manhattan", "euclidean"}
    device : torch.device or str
    """

    def __init__(self, X, y, metric, device):
        self.torch = torch = import_optional("torch", "DeviceRows")
        self.outcomes = y
        self.device = device
        self.metric = METRICS[metric]
        self.rows = torch.tensor(X, device=device)
        low, high = self.rows.amin(dim=0).double(), self.rows.amax(dim=0).double()
        self.centre = low / 2 + high / 2
        largest = float((high - self.centre).max())
        self.scale = 2.0 ** np.ceil(np.log2(largest)) if 0 < largest < 2.0**1023 else 1.0
        self.codes, norms = self._encode(self.rows)
        self.largest = norms.max()
        self.factor = 1.0 + 2.0**-22 * (self.rows.shape[1] + 8)

    def _encode(self, rows):
        """Codes, and their norms in float64."""
        values = (rows.double() - self.centre) / self.scale
        norms = self.torch.linalg.vector_norm(values, ord=_ORDERS[self.metric], dim=1)
        return values.float(), norms

    def check(self, estimator, X):
        """Rows to be estimated, tensors where they are."""
        if torch_of(X) is None:
            types = [np.float64, np.float32]
            return validate_data(estimator, X, dtype=types, order="C", reset=False)
        X = check_tensor(X)
        if X.ndim != 2:
            raise ValueError(f"Expected 2D rows, got a tensor of shape {tuple(X.shape)}.")
        validate_data(estimator, X, reset=False, skip_check_array=True)
        return X if X.dtype in (self.torch.float32, self.torch.float64) else X.double()

    def map(self, estimate, Q, n_neighbors=1, n_jobs=None):
        """Call ``estimate(queries)`` on batches of queries, and stack the results.

        Parameters
        ----------
        estimate : callable
            From a tensor of rows on the device to a tuple of arrays with one row for each.

        Q : ndarray or tensor of shape (n_queries, n_features)
        n_neighbors, n_jobs : object
            Of no effect here.

        Returns
        -------
        tuple of ndarrays
        """
        parts = [estimate(queries) for queries in self.batches(Q)]
        return tuple(np.concatenate(arrays) for arrays in zip(*parts))

    def batches(self, Q):
        """Queries on the device, in batches that bound the memory of a search.

        Parameters
        ----------
        Q : ndarray or tensor of shape (n_queries, n_features)

        Yields
        ------
        tensor
        """
        for rows in gen_batches(len(Q), max(1, _CODE_DISTANCES // len(self.rows))):
            part = Q[rows]
            if torch_of(part) is None:
                # A tensor on memory that may not be written to is not allowed.
                part = np.require(part, requirements=["C", "W"])
            yield self.torch.as_tensor(part, device=self.rows.device)

    def pairs(self, queries, n_groups, k):
        """Pairs of a query and a row that may be among the `k` nearest of a group of rows.

        Parameters
        ----------
        queries : tensor of shape (n_queries, n_features)
        n_groups : int
            Groups of successive rows, all of one size.
        k : int

        Returns
        -------
        query, row : tensor of shape (n_pairs,), int64
            By query, then by row.
        distance : tensor of shape (n_pairs,), float64
            Squared for euclidean.
        """
        torch = self.torch
        codes, norms = self._encode(queries)
        near = torch.cdist(
            codes,
            self.codes,
            p=_ORDERS[self.metric],
            compute_mode="donot_use_mm_for_euclid_dist",
        )
        # Rounding a value to float32 moves a distance by at most 2^-24 of the norms; each
        # operation after it by 2^-24 of the result. Twice that, and once more for the way
        # back: a row is left out only if its distance is certainly larger.
        near = near.view(len(queries), n_groups, -1)
        slack = (2.0**-22 * (self.largest + norms) + 1e-30)[:, None]
        kth = torch.topk(near, k, dim=2, largest=False).values.amax(dim=2).double()
        bound = ((kth * self.factor + 2 * slack) * self.factor).float()
        # Rounded up: comparing in float32 must not lose a row at the bound.
        bound = torch.nextafter(bound, torch.full_like(bound, np.inf))[:, :, None]
        # Values too large for float32 have codes that say nothing, NaN in the end.
        possible = (near > bound).logical_not_().view(len(queries), -1)
        del near
        query, row = torch.nonzero(possible, as_tuple=True)
        distance = torch.empty(len(query), dtype=torch.float64, device=query.device)
        for part in gen_batches(len(query), max(1, _DIFFERENCES // queries.shape[1])):
            difference = self.rows[row[part]].double()
            difference -= queries[query[part]]
            if self.metric == 0:
                distance[part] = difference.abs_().amax(dim=1)
            elif self.metric == 1:
                distance[part] = difference.abs_().sum(dim=1)
            else:
                distance[part] = difference.square_().sum(dim=1)
        return query, row, distance

    def k_nearest(self, queries, k):
        """The `k` nearest rows to each query by distance, then by row.

        Parameters
        ----------
        queries : tensor of shape (n_queries, n_features)
        k : int

        Returns
        -------
        Nearest
        """
        distances, rows, (query, row, distance) = self._nearest(queries, k)
        n_queries = len(queries)

        def at_distance(some, at):
            torch, place = self.torch, query.device
            limits = torch.full((n_queries,), -1.0, dtype=distance.dtype, device=place)
            limits[some] = torch.as_tensor(at, device=place)
            inside = distance == limits[query]
            whose = query[inside]
            values = torch.as_tensor(self.outcomes[on_host(row[inside])], device=place)
            sums = torch.zeros((n_queries, values.shape[1]), dtype=values.dtype, device=place)
            squares = sums.clone()
            sums.index_add_(0, whose, values)
            squares.index_add_(0, whose, values**2)
            counts = torch.bincount(whose, minlength=n_queries)
            return tuple(on_host(found[some]) for found in (counts, sums, squares))

        return Nearest(on_host(distances), on_host(rows), at_distance)

    def _nearest(self, queries, k):
        """Distances and rows of the `k` nearest; and of more pairs, all at these distances."""
        query, row, distance = pairs = self.pairs(queries, 1, k)
        # Two stable sorts of pairs that are in the order of rows.
        order = distance.argsort(stable=True)
        order = order[query[order].argsort(stable=True)]
        counts = self.torch.bincount(query, minlength=len(queries))
        first = counts.cumsum(0) - counts
        nearest = order[first[:, None] + self.torch.arange(k, device=query.device)]
        return distance[nearest], row[nearest], pairs

    def nearest_of_subsets(self, queries, starts):
        """Nearest row of each subset to each query; of equally near rows the first.

        Parameters
        ----------
        queries : tensor of shape (n_queries, n_features)
        starts : ndarray of shape (n_subsets + 1,)
            First row of each subset, and the number of rows; all of one size.

        Returns
        -------
        ndarray of shape (n_queries, n_subsets), dtype=int64
        """
        n_subsets, size = len(starts) - 1, int(starts[1])
        query, row, distance = self.pairs(queries, n_subsets, 1)
        group = query * n_subsets + row // size
        order = distance.argsort(stable=True)
        order = order[group[order].argsort(stable=True)]
        counts = self.torch.bincount(group, minlength=len(queries) * n_subsets)
        return on_host(row[order[counts.cumsum(0) - counts]].view(len(queries), n_subsets))
