"""Random numbers that belong to rows, whatever batch and container the rows come in."""

import sys
from decimal import Decimal
from hashlib import blake2b
from numbers import Real

import numpy as np

from skroute.utils._compat import _safe_indexing, num_samples
from skroute.utils._frames import as_rows, cells_of, is_arrow, is_frame
from skroute.utils._tensors import on_host, torch_of

# Values that are hashed at a time: they fit into a cache, and X is never copied as a whole.
_BLOCK = 1 << 15
_ODD = np.uint64(0x9E3779B97F4A7C15)
_COLUMN = np.uint64(0xD1B54A32D192ED03)
_GOLDEN = 0.6180339887498949
_NAN = np.uint64(0x7FF8000000000000)


def row_uniforms(X, n_columns, random_state=0, request_id=None):
    """Uniform numbers in [0, 1) for each row, ndarray of shape (n_rows, n_columns).

    They depend on what is in the row, or on its id, on how often it came before in `X`, and on
    `random_state`.
    """
    keys = row_keys(_source(X, request_id))
    keys = _mixed(keys + _times_seen(keys) * _COLUMN)
    columns = np.arange(n_columns, dtype=np.uint64) + np.uint64(1 + random_state * n_columns)
    return _uniform(_mixed(keys[:, np.newaxis] * _ODD + columns * _COLUMN))


def tie_draws(X, request_id=None):
    """From positions of rows of `X` to a uniform number for each, which divides ties.

    Equal rows of a call are spread evenly, by golden-ratio steps from a hash of the row.
    """
    source = _source(X, request_id)

    def draw(rows):
        keys = row_keys(_safe_indexing(source, rows))
        first = _uniform(_mixed(keys * _ODD + _COLUMN))
        return (first + _GOLDEN * _times_seen(keys)) % 1.0

    return draw


def _source(X, request_id):
    """What the draws of rows are made of."""
    if request_id is None:
        return X
    source = np.asarray(request_id)
    if source.shape != (num_samples(X),):
        raise ValueError(
            f"request_id must have one entry for each of {num_samples(X)} rows, got shape "
            f"{source.shape}."
        )
    # Whole numbers by their digits: as floats, neighbours beyond 2**53 are one.
    source = source.astype(str) if source.dtype.kind in "iu" else source
    return source.reshape(-1, 1)


def row_keys(X):
    """A number for each row, equal where the rows hold equal values, ndarray of uint64.

    Numbers are compared as float64, 0 equals -0, missing values are alike; other values are
    compared by their text.
    """
    n = num_samples(X)
    helper = sys.modules.get("skorch.helper")
    if helper is not None and isinstance(X, helper.SliceDataset):
        # It refers to rows and has not read them.
        positions = X.indices_ if X.indices is not None else np.arange(n)
        return _mixed(np.asarray(positions, dtype=np.uint64) + _ODD)
    if hasattr(X, "tocsr"):
        X = X.tocsr()
        terms = _terms(_bits(X.data)) * _weights(X.shape[1])[X.indices]
        # Running sums wrap around and differences come out right; X may have empty rows.
        sums = np.r_[np.uint64(0), np.cumsum(terms, dtype=np.uint64)]
        return sums[X.indptr[1:]] - sums[X.indptr[:-1]]
    values = X if torch_of(X) is not None else _array(X)
    values = values.reshape(n, -1)
    weights = _weights(values.shape[1])
    if torch_of(X) is not None or values.dtype.kind in "biuf":
        step = max(1, _BLOCK // max(1, values.shape[1]))
        blocks = (on_host(values[start : start + step]) for start in range(0, n, step))
        return np.concatenate([_terms(_bits(block)) @ weights for block in blocks])
    columns = (_terms(_object_bits(column.tolist())) for column in values.T)
    return sum(
        (terms * weight for terms, weight in zip(columns, weights)),
        start=np.zeros(n, dtype=np.uint64),
    )


def _array(X):
    """Rows as an array, of objects where they are no rows of numbers."""
    if is_arrow(X) and is_frame(X):
        return np.column_stack([cells_of(column) for column in X.columns])
    if hasattr(X, "to_numpy"):
        return np.asarray(X.to_numpy())
    try:
        values = np.asarray(as_rows(X))
    except ValueError:
        values = np.empty(0)
    if hasattr(X, "__array__") or len(values) == num_samples(X):
        return values
    values = np.empty(num_samples(X), dtype=object)
    values[:] = list(X)
    return values


def _uniform(bits):
    return (bits >> np.uint64(11)).astype(np.float64) / 2.0**53


def _mixed(x):
    """The finaliser of splitmix64: neighbouring inputs give unrelated outputs."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _weights(n_columns):
    """An odd number for each column."""
    return _mixed(np.arange(1, n_columns + 1, dtype=np.uint64) * _ODD) | np.uint64(1)


def _bits(values):
    """The bits of numbers as float64; of every missing one the same."""
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
    """As `_bits` for a list of any values."""
    if all(kind in (int, float, bool) for kind in set(map(type, column))):
        return _bits(column)
    return np.array([_bits_of(value) for value in column], dtype=np.uint64)


def _bits_of(value):
    if isinstance(value, (Real, Decimal)):
        return _bits([float(value)])[0]
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return _NAN
    text = value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")
    return np.frombuffer(blake2b(text, digest_size=8).digest(), dtype=np.uint64)[0]


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
