"""Nearest neighbours on a torch device, with the answers of the CPU kernels.

The search has two steps, as in :mod:`skroute.quality._kernels`. Distances of codes in float32
bound the true ones, and only the pairs of a query and a row that may be among the nearest get
theirs in float64. Ties go to the row that comes first. Under chebyshev the distances are
those of the kernels to the last bit. Under the other two a float64 sum is rounded by the
order of its terms, so that rows whose distances agree to some 15 digits without being equal
may be ordered differently.
"""

import warnings

import numpy as np
from sklearn.utils import gen_batches
from sklearn.utils.validation import validate_data

from skroute.quality._bagging import subsets_mean, weighted_neighbors
from skroute.quality._search import METRICS
from skroute.utils._optional import import_optional
from skroute.utils._tensors import torch_of

# Elements of the largest temporary arrays: distances of codes, and differences in float64.
_CODE_DISTANCES = 2**25
_DIFFERENCES = 2**24
_ORDERS = {0: np.inf, 1: 1.0, 2: 2.0}


def available_device(device):
    """The torch device of that name, or why there is none.

    Parameters
    ----------
    device : str

    Returns
    -------
    torch.device

    Raises
    ------
    ImportError
        Without torch, naming the extra.
    ValueError
        If this machine has no such device.
    """
    torch = import_optional("torch", f"device={device!r}")
    try:
        found = torch.device(device)
        torch.zeros(1, dtype=torch.float64, device=found).item()
    # By what is amiss: no such name, no driver, "meta" (which computes nothing): RuntimeError;
    # a build without CUDA or XPU: AssertionError; no float64 (MPS): TypeError; a backend that
    # is a package of its own (hpu): ImportError.
    except (RuntimeError, AssertionError, TypeError, ImportError) as error:
        raise ValueError(
            f"device={device!r} is not available here ({error}). Use device=None for the CPU "
            'kernels, or "cpu" for torch on the CPU.'
        ) from error
    return found


def device_or_none(device):
    """As :func:`available_device`, for a fitted estimator that came from another machine."""
    try:
        return available_device(device)
    except (ImportError, ValueError) as error:
        warnings.warn(
            f"The CPU kernels answer instead of torch, with the same result: {error}",
            UserWarning,
            stacklevel=3,
        )
        return None


def check_queries(estimator, X):
    """A tensor of rows, checked where it is.

    Parameters
    ----------
    estimator : BaggedNeighborsRegressor
        Fitted.
    X : tensor

    Returns
    -------
    tensor of shape (n_queries, n_features), float32 or float64

    Raises
    ------
    ValueError
    """
    torch = torch_of(X)
    if X.ndim != 2 or len(X) == 0:
        raise ValueError(f"Expected 2D rows, at least one, got a tensor of shape {tuple(X.shape)}.")
    validate_data(estimator, X, reset=False, skip_check_array=True)
    X = X.detach()
    X = X if X.dtype in (torch.float32, torch.float64) else X.double()
    if not torch.isfinite(X).all():
        raise ValueError("Input X contains NaN or infinity.")
    return X


class DeviceRows:
    """Reference rows on a device, and their codes.

    A code is the value centred, divided by a power of two that brings all within [-1, 1],
    in float32.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features), float32 or float64
    metric : {"chebyshev", "manhattan", "euclidean"}
    device : torch.device
    """

    def __init__(self, X, metric, device):
        self.torch = torch = import_optional("torch", "DeviceRows")
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

    def batches(self, Q):
        """Slices of the queries with their rows on the device, the memory of each bounded.

        Parameters
        ----------
        Q : ndarray or tensor of shape (n_queries, n_features)

        Yields
        ------
        rows : slice
        queries : tensor
        """
        for rows in gen_batches(len(Q), max(1, _CODE_DISTANCES // len(self.rows))):
            yield rows, self.torch.as_tensor(Q[rows], device=self.rows.device)

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
        distances : tensor of shape (n_queries, k), float64
        rows : tensor of shape (n_queries, k), int64
        pairs : tuple of tensors
            Query, row and distance of more pairs, among them all at these distances.
        """
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
        tensor of shape (n_queries, n_subsets), int64
        """
        n_subsets, size = len(starts) - 1, int(starts[1])
        query, row, distance = self.pairs(queries, n_subsets, 1)
        group = query * n_subsets + row // size
        order = distance.argsort(stable=True)
        order = order[group[order].argsort(stable=True)]
        counts = self.torch.bincount(group, minlength=len(queries) * n_subsets)
        return row[order[counts.cumsum(0) - counts]].view(len(queries), n_subsets)


def exact_estimate(index, weights, y, Q, return_std):
    """As :func:`skroute.quality._bagging.exact_estimate`, searched on a device.

    Parameters
    ----------
    index : DeviceRows
    weights : ndarray of shape (n_neighbors,)
    y : ndarray of shape (n_rows, n_outputs)
    Q : ndarray or tensor of shape (n_queries, n_features)
    return_std : bool

    Returns
    -------
    tuple of ndarrays of shape (n_queries, n_outputs)
    """
    torch = index.torch
    n_neighbors = len(weights)
    outcomes = torch.as_tensor(y, device=index.rows.device)
    parts = []
    for _, queries in index.batches(Q):
        k, n_queries = min(n_neighbors + 1, len(y)), len(queries)
        distances, rows, pairs = index.k_nearest(queries, k)

        def tied(crossing, at, pairs=pairs, n_queries=n_queries):
            """Number of rows at a distance, sum of their outcomes and of the squares."""
            query, row, distance = pairs
            limits = torch.full((n_queries,), -1.0, dtype=distance.dtype, device=query.device)
            limits[crossing] = torch.as_tensor(at, device=query.device)
            inside = distance == limits[query]
            query, values = query[inside], outcomes[row[inside]]
            sums = torch.zeros((n_queries, values.shape[1]), dtype=values.dtype)
            sums = sums.to(query.device)
            squares = sums.clone()
            sums.index_add_(0, query, values)
            squares.index_add_(0, query, values**2)
            counts = torch.bincount(query, minlength=n_queries)
            return tuple(found[crossing].cpu().numpy() for found in (counts, sums, squares))

        parts.append(
            weighted_neighbors(
                weights, distances.cpu().numpy(), rows.cpu().numpy(), y, tied, return_std
            )
        )
    return tuple(np.concatenate(arrays) for arrays in zip(*parts))


def subsets_estimate(index, starts, y, Q, return_std):
    """As :func:`skroute.quality._bagging.subsets_estimate`, searched on a device.

    Parameters
    ----------
    index : DeviceRows
    starts : ndarray of shape (n_subsets + 1,)
    y : ndarray of shape (n_rows, n_outputs)
    Q : ndarray or tensor of shape (n_queries, n_features)
    return_std : bool

    Returns
    -------
    tuple of ndarrays of shape (n_queries, n_outputs)
    """
    parts = [
        subsets_mean(y[index.nearest_of_subsets(queries, starts).cpu().numpy()], return_std)
        for _, queries in index.batches(Q)
    ]
    return tuple(np.concatenate(arrays) for arrays in zip(*parts))
