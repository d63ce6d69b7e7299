"""Random numbers that belong to rows, whatever batch and container the rows come in."""

import sys
from hashlib import blake2b
from numbers import Real

import numpy as np
from sklearn.utils import _safe_indexing

from skroute.utils._compat import num_samples
from skroute.utils._tensors import torch_of

# Values that are hashed at a time: they fit into a cache, and X is never copied as a whole.
_BLOCK = 1 << 15
_CUDA_BLOCK = 1 << 24
_ODD = np.uint64(0x9E3779B97F4A7C15)
_COLUMN = np.uint64(0xD1B54A32D192ED03)
_GOLDEN = 0.6180339887498949
_NAN = np.uint64(0x7FF8000000000000)


def row_uniforms(X, n_columns, random_state=0):
    """Uniform numbers in [0, 1) for each row, from what is in the row.

    A row gets the same numbers in every batch and container. Of equal rows in one call
    each gets its own: the numbers of the first, the second, ... time that it is seen.

    Parameters
    ----------
    X : indexable of n_samples rows
        Rows of a torch data set are not read: their positions in it stand for them.

    n_columns : int

    random_state : int, default=0

    Returns
    -------
    ndarray of shape (n_samples, n_columns)
    """
    keys = row_keys(X)
    keys = _mixed(keys + _times_seen(keys) * _COLUMN)
    columns = np.arange(n_columns, dtype=np.uint64) + np.uint64(1 + random_state * n_columns)
    mixed = _mixed(keys[:, np.newaxis] * _ODD + columns * _COLUMN)
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53


def tie_draws(X, request_id=None, seen=None):
    """From positions of rows of `X` to a uniform number for each, from what is in the row.

    Of equal rows in one call the numbers are spread evenly, so that the right share of them
    goes each way.

    Parameters
    ----------
    X : indexable of n_samples rows
    request_id : array-like of shape (n_samples,), default=None
        What stands for the rows: then equal rows in calls of one row each differ too.
    seen : SeenRows, default=None
        Rows drawn for in earlier batches of the same table; those of this one are added.

    Raises
    ------
    ValueError
        If there is not one for each row.
    """
    source = X
    if request_id is not None:
        source = np.asarray(request_id)
        if source.shape != (num_samples(X),):
            raise ValueError(
                f"request_id must have one entry for each of {num_samples(X)} rows, got shape "
                f"{source.shape}."
            )
        # Whole numbers by their digits: as floats, neighbours beyond 2**53 are one.
        source = source.astype(str) if source.dtype.kind in "iu" else source
        source = source.reshape(-1, 1)

    def draw(rows):
        keys = row_keys(_safe_indexing(source, rows))
        first = (_mixed(keys * _ODD + _COLUMN) >> np.uint64(11)).astype(np.float64) / 2.0**53
        times = _times_seen(keys)
        if seen is not None:
            times += seen.add(keys)
        return (first + _GOLDEN * times) % 1.0

    return draw


class SeenRows:
    """How often rows were seen, by their keys: 16 bytes for each that differs."""

    def __init__(self):
        self._runs = []

    def add(self, keys):
        """How often each key was seen in earlier calls; then these count too.

        Parameters
        ----------
        keys : ndarray of shape (n_rows,), dtype=uint64

        Returns
        -------
        ndarray of shape (n_rows,), dtype=uint64
        """
        before = np.zeros(len(keys), dtype=np.uint64)
        for known, counts in self._runs:
            at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            before += np.where(known[at] == keys, counts[at], np.uint64(0))
        if len(keys):
            self._runs.append(_summed(keys, np.ones(len(keys), dtype=np.uint64)))
        # Runs at least double in length, so that there are few and merging is cheap.
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            last = [self._runs.pop(), self._runs.pop()]
            self._runs.append(_summed(*map(np.concatenate, zip(*last))))
        return before


def _summed(keys, counts):
    """Keys in order, each once, with the sums of their counts."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
    return keys[starts], np.add.reduceat(counts[order], starts)


def row_keys(X):
    """A number for each row, equal where the rows hold equal values.

    Zeros count nothing, so that a sparse row has the key of the dense one. Numbers are
    compared as float64, all else by its text.

    Parameters
    ----------
    X : indexable of n_samples rows

    Returns
    -------
    ndarray of shape (n_samples,), dtype=uint64
    """
    n = num_samples(X)
    if _is_lazy(X):
        positions = X.indices_ if X.indices is not None else np.arange(n)
        return _mixed(np.asarray(positions, dtype=np.uint64) + _ODD)
    if hasattr(X, "tocsr"):
        return _sparse_keys(X.tocsr(), n)
    if (torch := torch_of(X)) is not None:
        return _tensor_keys(X, n, torch)
    values = _array(X)
    values = values.reshape(n, -1)
    weights = _weights(values.shape[1])
    if values.dtype.kind in "biuf":
        step = max(1, _BLOCK // max(1, values.shape[1]))
        parts = [
            _terms(_bits(values[start : start + step])) @ weights for start in range(0, n, step)
        ]
        return np.concatenate(parts)
    return sum(
        (_terms(_object_bits(column)) * weight for column, weight in zip(values.T, weights)),
        start=np.zeros(n, dtype=np.uint64),
    )


def has_own_keys(X):
    """Whether equal rows of other tables have the keys of these."""
    return not _is_lazy(X)


def _is_lazy(X):
    """Whether X is skorch's SliceDataset, which refers to rows and has not read them."""
    helper = sys.modules.get("skorch.helper")
    return helper is not None and isinstance(X, helper.SliceDataset)


def _array(X):
    """Rows in host memory as an array, of objects where they are no rows of numbers."""
    if hasattr(X, "to_numpy"):
        return np.asarray(X.to_numpy())
    if hasattr(X, "__array__"):
        return np.asarray(X)
    try:
        values = np.asarray(X)
    except ValueError:
        values = np.empty(0)
    if values.dtype.kind in "biuf" and len(values) == num_samples(X):
        return values
    values = np.empty(num_samples(X), dtype=object)
    values[:] = list(X)
    return values


def _mixed(x):
    """The finaliser of splitmix64: neighbouring inputs give unrelated outputs."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _weights(n_columns):
    """An odd number for each column."""
    return _mixed(np.arange(1, n_columns + 1, dtype=np.uint64) * _ODD) | np.uint64(1)


def _bits(values):
    """The float64 of each value as an integer; one zero, and one value that is missing."""
    values = np.array(values, dtype=np.float64)
    values += 0.0
    bits = values.view(np.uint64)
    bits[np.isnan(values)] = _NAN
    return bits


def _terms(bits):
    """Bits spread over all places, as sums of products need them; 0 stays 0."""
    bits = bits ^ (bits >> np.uint64(32))
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(29)
    return bits


def _object_bits(column):
    """As `_bits` for a column of any values."""
    column = column.tolist()
    if all(kind in (int, float, bool) for kind in set(map(type, column))):
        return _bits(column)
    return np.array([_bits_of(value) for value in column], dtype=np.uint64)


def _bits_of(value):
    if isinstance(value, Real):
        return _bits([float(value)])[0]
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return _NAN
    text = value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")
    return np.frombuffer(blake2b(text, digest_size=8).digest(), dtype=np.uint64)[0]


def _sparse_keys(X, n):
    terms = _terms(_bits(X.data)) * _weights(X.shape[1])[X.indices]
    # Running sums wrap around and differences come out right; X may have empty rows.
    sums = np.r_[np.uint64(0), np.cumsum(terms, dtype=np.uint64)]
    return sums[X.indptr[1:]] - sums[X.indptr[:-1]]


def _tensor_keys(X, n, torch):
    """As for arrays, block by block, on the device of X where it has float64."""
    flat = X.detach().reshape(n, -1)
    weights = _weights(flat.shape[1])
    step = max(1, (_CUDA_BLOCK if flat.is_cuda else _BLOCK) // max(1, flat.shape[1]))
    parts = []
    for start in range(0, n, step):
        block = flat[start : start + step]
        if not block.is_cuda:
            # Also devices without float64; the widening is exact.
            wide = block.cpu() if block.dtype in (torch.float64, torch.int64) else block.float()
            parts.append(_terms(_bits(wide.cpu().numpy())) @ weights)
            continue
        parts.append(_cuda_keys(block, weights, torch))
    return np.concatenate(parts)


def _cuda_keys(block, weights, torch):
    """`_terms(_bits(block)) @ weights` in int64, which wraps around like uint64."""

    def signed(number):
        return int(np.uint64(number).astype(np.int64))

    def shifted(x, places):
        return (x >> places) & ((1 << (64 - places)) - 1)

    values = block.double() + 0.0
    bits = values.view(torch.int64)
    bits = torch.where(torch.isnan(values), signed(_NAN), bits)
    bits = (bits ^ shifted(bits, 32)) * signed(0xBF58476D1CE4E5B9)
    bits = bits ^ shifted(bits, 29)
    weights = torch.as_tensor(weights.view(np.int64), device=block.device)
    return (bits * weights).sum(dim=1).cpu().numpy().view(np.uint64)


def _times_seen(keys):
    """For each row how many equal ones come before it."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]] if len(keys) else np.empty(0, dtype=bool)
    position = np.arange(len(keys))
    start = np.maximum.accumulate(np.where(first, position, 0))
    seen = np.empty(len(keys), dtype=np.uint64)
    seen[order] = position - start
    return seen
