"""Hash keys of rows, and random numbers that are computed from these keys.

The number that is drawn for a row depends on the values in the row. It does not depend
on the batch or on the container that the row comes in. Rows with equal values have
equal keys, and their draws are told apart by how often the row came before.
"""

import sys
from decimal import Decimal
from functools import partial
from hashlib import blake2b
from numbers import Real

import numpy as np

from skroute.utils._compat import _safe_indexing, num_samples
from skroute.utils._frames import as_rows, cells_of, is_arrow, is_frame
from skroute.utils._tensors import on_host, torch_of

# Number of values that are hashed at a time. Their 256 kB fit into a processor's cache,
# and X is never copied as a whole.
_BLOCK = 1 << 15

# The golden ratio minus 1. Its multiples modulo 1 are spread evenly over [0, 1).
GOLDEN = 0.6180339887498949

# 2**64 times the golden ratio minus 1: the step of the generator splitmix64.
_STEP = np.uint64(0x9E3779B97F4A7C15)

# The step from one column of draws to the next, an odd number: 2**64 divided by 1.2207,
# the root of x**4 = x + 1. (The golden ratio is the root of x**2 = x + 1.)
_COLUMN_STEP = np.uint64(0xD1B54A32D192ED03)

# The two multipliers of the finaliser of splitmix64.
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)

# Bits of every missing value.
_NAN = np.uint64(0x7FF8000000000000)


# Random numbers that are drawn by keys ------------------------------------------------


def row_uniforms(X, n_columns, random_state=0, request_id=None):
    """Return uniform numbers in [0, 1) for each row.

    They depend on the values in the row, or on its id, on the number of equal rows
    before it, and on `random_state`.

    Parameters
    ----------
    X : indexable of n_rows rows
    n_columns : int
        Numbers for each row.
    random_state : int, default=0
        Another number gives other draws.
    request_id : array-like of shape (n_rows,), default=None
        Ids that are hashed in place of the rows.

    Returns
    -------
    ndarray of shape (n_rows, n_columns)
    """
    keys = row_keys(_hashed_source(X, request_id))
    # Equal rows get different keys, by the number of equal rows before each of them.
    keys = _mixed(keys + _n_equal_before(keys) * _COLUMN_STEP)
    # Each pair of a column and a `random_state` has its own number. State 0 has the
    # numbers 1 to `n_columns`, and state 1 has the next `n_columns` numbers.
    first_column = np.uint64(1 + random_state * n_columns)
    columns = np.arange(n_columns, dtype=np.uint64) + first_column
    # A key for each cell of the result.
    cell_keys = keys[:, np.newaxis] * _STEP + columns * _COLUMN_STEP
    return _uniform(_mixed(cell_keys))


def tie_draws(X, request_id=None):
    """Return a function that draws a uniform number for each of some rows of `X`.

    The numbers divide ties. The numbers of equal rows of one call are spread evenly.

    Parameters
    ----------
    X : indexable of n_rows rows
    request_id : array-like of shape (n_rows,), default=None
        Ids that are hashed in place of the rows.

    Returns
    -------
    callable
        ``draw(rows)`` takes positions, and returns numbers in [0, 1) of shape
        (n_selected_rows,).
    """
    return partial(_tie_draws_at, _hashed_source(X, request_id))


def _tie_draws_at(source, rows):
    """Return a uniform number in [0, 1) for each of some rows, to divide ties.

    Parameters
    ----------
    source : indexable of n_rows rows
    rows : ndarray of shape (n_selected_rows,), dtype=int
        Positions of the rows.

    Returns
    -------
    ndarray of shape (n_selected_rows,), dtype=float64
    """
    keys = row_keys(_safe_indexing(source, rows))
    # Equal keys get the same number here. `_spread_evenly` makes their numbers differ.
    first = _uniform(_mixed(keys * _STEP + _COLUMN_STEP))
    return _spread_evenly(first, keys)


def even_draws(keys):
    """Return a number in [0, 1) for each key, spread evenly for equal keys.

    Parameters
    ----------
    keys : ndarray of shape (n_rows,), dtype=uint64

    Returns
    -------
    ndarray of shape (n_rows,), dtype=float64
    """
    return _spread_evenly(_uniform(keys), keys)


def _spread_evenly(first, keys):
    """Return numbers in [0, 1) that are spread evenly for equal keys.

    A step (`GOLDEN`) is added to a number for each equal key before it, modulo 1.

    Parameters
    ----------
    first : ndarray of shape (n_rows,)
        Number in [0, 1) of each row, equal for equal keys.
    keys : ndarray of shape (n_rows,), dtype=uint64

    Returns
    -------
    ndarray of shape (n_rows,), dtype=float64
    """
    return (first + GOLDEN * _n_equal_before(keys)) % 1.0


def _hashed_source(X, request_id):
    """Return the rows to hash: those of X, or the ids as rows of one column.

    Parameters
    ----------
    X : indexable of n_rows rows
    request_id : array-like of shape (n_rows,), or None
        None: the rows themselves are hashed.

    Returns
    -------
    indexable of n_rows rows
    """
    if request_id is None:
        return X
    ids = np.asarray(request_id)
    if ids.shape != (num_samples(X),):
        raise ValueError(
            f"request_id must have one entry for each of {num_samples(X)} rows, got "
            f"shape {ids.shape}."
        )
    if ids.dtype.kind in "iu":
        # Whole numbers are hashed by their digits. As floats, neighbours beyond 2**53
        # would be equal.
        ids = ids.astype(str)
    return ids.reshape(-1, 1)


def _n_equal_before(keys):
    """Return for each key the number of equal keys before it.

    Parameters
    ----------
    keys : ndarray of shape (n_rows,), dtype=uint64

    Returns
    -------
    ndarray of shape (n_rows,), dtype=uint64
    """
    if not len(keys):
        return np.empty(0, dtype=np.uint64)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    # True for the first one of each run of equal keys.
    is_first = np.append(True, ordered[1:] != ordered[:-1])
    positions = np.arange(len(keys))
    # Position of the first key of the run that each key is in.
    first_positions = np.maximum.accumulate(np.where(is_first, positions, 0))
    n_before = np.empty(len(keys), dtype=np.uint64)
    n_before[order] = positions - first_positions
    return n_before


# Keys: hashes of rows -----------------------------------------------------------------


def feature_keys(values):
    """Return a hash key of each row of a table of floats, equal for equal rows.

    The columns are hashed one after another. Gates draw by these keys, since their
    tables are always dense.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns), dtype=float64
        0 equals -0, and NaN equals NaN.

    Returns
    -------
    ndarray of shape (n_rows,), dtype=uint64
    """
    # All keys start at the same number.
    keys = np.full(len(values), _STEP, dtype=np.uint64)
    # The bits of each column are mixed into the keys, with shifts and factors of the
    # finaliser of splitmix64.
    for bits in np.ascontiguousarray(_float_bits(values)).T:
        keys = (keys ^ bits) * _FIRST_FACTOR
        keys = (keys ^ (keys >> np.uint64(27))) * _SECOND_FACTOR
        keys ^= keys >> np.uint64(31)
    return keys


def row_keys(X):
    """Return a hash key of each row, equal for rows with equal values.

    Numbers are compared as float64, 0 equals -0, and missing values are alike. Other
    values are compared by their text. A key is a sum over the columns, so that zeros of
    a sparse matrix add nothing.

    Parameters
    ----------
    X : array-like, sparse matrix, dataframe, tensor or skorch.helper.SliceDataset

    Returns
    -------
    ndarray of shape (n_rows,), dtype=uint64
    """
    skorch_helper = sys.modules.get("skorch.helper")
    # None: skorch is not loaded, so that X is not from it.
    if skorch_helper is not None and isinstance(X, skorch_helper.SliceDataset):
        # Rows of a data set are not read. Their positions give the keys.
        return _keys_of_unread(X)
    if hasattr(X, "tocsr"):
        return _keys_of_sparse(X.tocsr())
    is_tensor = torch_of(X) is not None
    values = X if is_tensor else _as_array(X)
    values = values.reshape(num_samples(X), -1)
    if is_tensor or values.dtype.kind in "biuf":
        return _keys_of_numbers(values)
    return _keys_of_objects(values)


def _keys_of_unread(dataset):
    """Return keys of the rows of a data set by their positions, without reading rows.

    Parameters
    ----------
    dataset : skorch.helper.SliceDataset

    Returns
    -------
    ndarray of shape (n_rows,), dtype=uint64
    """
    positions = dataset.indices_
    if dataset.indices is None:  # all rows
        positions = np.arange(num_samples(dataset))
    return _mixed(np.asarray(positions, dtype=np.uint64) + _STEP)


def _keys_of_sparse(matrix):
    """Return a hash key of each row of a CSR matrix."""
    # The weight of the column of each stored cell.
    weights = _column_weights(matrix.shape[1])[matrix.indices]
    terms = _terms(_float_bits(matrix.data)) * weights
    # The sum of a row is the difference of two running sums: before the next row and
    # before this one. Running sums overflow, modulo 2**64, and their differences are
    # still right. A row without cells has the sum 0.
    sums = np.append(np.uint64(0), np.cumsum(terms, dtype=np.uint64))
    return sums[matrix.indptr[1:]] - sums[matrix.indptr[:-1]]


def _keys_of_numbers(values):
    """Return a hash key of each row of a table of numbers, which may be a tensor.

    Parameters
    ----------
    values : ndarray or tensor of shape (n_rows, n_columns)

    Returns
    -------
    ndarray of shape (n_rows,), dtype=uint64
        Sums of products, modulo 2**64.
    """
    n_rows, n_columns = values.shape
    weights = _column_weights(n_columns)
    # Number of rows that are hashed at a time.
    n_rows_of_block = max(1, _BLOCK // max(1, n_columns))
    keys = np.empty(n_rows, dtype=np.uint64)
    for start in range(0, n_rows, n_rows_of_block):
        stop = start + n_rows_of_block
        block = on_host(values[start:stop])
        keys[start:stop] = _terms(_float_bits(block)) @ weights
    return keys


def _keys_of_objects(values):
    """Return a hash key of each row of a table of any values."""
    keys = np.zeros(len(values), dtype=np.uint64)
    for column, weight in zip(values.T, _column_weights(values.shape[1])):
        keys += _terms(_object_bits(column.tolist())) * weight
    return keys


def _as_array(X):
    """Return rows as an array for hashing.

    Parameters
    ----------
    X : array-like, dataframe or Arrow table

    Returns
    -------
    ndarray of shape (n_rows, ...)
        Numbers or other values. If NumPy makes no table of the rows, each row is one
        object.
    """
    if is_arrow(X) and is_frame(X):
        return np.column_stack([cells_of(column) for column in X.columns])
    if hasattr(X, "to_numpy"):
        return np.asarray(X.to_numpy())
    try:
        values = np.asarray(as_rows(X))
    except ValueError:
        # Rows of different lengths. The empty array stands for "no table": its length
        # is not the number of rows.
        values = np.empty(0)
    if hasattr(X, "__array__") or len(values) == num_samples(X):
        return values
    # Each row is one object.
    values = np.empty(num_samples(X), dtype=object)
    values[:] = list(X)
    return values


# Bits of values, from which keys are made ---------------------------------------------


def _uniform(keys):
    """Return the upper 53 bits of each key as a number in [0, 1).

    A float has 53 significant bits. A key has 64, so that 11 are dropped.
    """
    return (keys >> np.uint64(11)).astype(np.float64) / 2.0**53


def _mixed(x):
    """Return keys with mixed bits, by the finaliser of splitmix64.

    The bits of the result look unrelated to the bits of `x`. The shifts are those of
    the published generator.

    Parameters
    ----------
    x : ndarray of uint64

    Returns
    -------
    ndarray of uint64, of the shape of `x`
    """
    x = (x ^ (x >> np.uint64(30))) * _FIRST_FACTOR
    x = (x ^ (x >> np.uint64(27))) * _SECOND_FACTOR
    return x ^ (x >> np.uint64(31))


def _column_weights(n_columns):
    """Return an odd number for each column, (n_columns,), as ndarray of uint64.

    Multiplication by an odd number loses no bit, modulo 2**64.
    """
    column_numbers = np.arange(1, n_columns + 1, dtype=np.uint64)
    # With bit 0 set, a number is odd.
    return _mixed(column_numbers * _STEP) | np.uint64(1)


def _terms(bits):
    """Return the mixed bits of each number: the terms whose sum is the key of a row.

    `bits` is an ndarray of uint64, and so is the result. 0 stays 0.
    """
    bits = bits ^ (bits >> np.uint64(32))
    bits *= _FIRST_FACTOR
    bits ^= bits >> np.uint64(29)
    return bits


def _float_bits(values):
    """Return the bits of numbers in double precision, as ndarray of uint64.

    0 and -0 have the same bits, and all missing values have the same bits.
    """
    values = np.array(values, dtype=np.float64)
    # -0 + 0 is 0.
    values += 0.0
    # A view of the copy above.
    bits = values.view(np.uint64)
    bits[np.isnan(values)] = _NAN
    return bits


def _object_bits(column):
    """Return the bits of each value of a list, as ndarray of uint64.

    Parameters
    ----------
    column : list of n_rows values of any type
    """
    types = set(map(type, column))
    if types <= {int, float, bool}:
        return _float_bits(column)
    return np.array([_bits_of(value) for value in column], dtype=np.uint64)


def _bits_of(value):
    """Return the bits of a number as float64, or else a hash of the value's text."""
    if isinstance(value, (Real, Decimal)):
        return _float_bits([float(value)])[0]
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return _NAN
    if isinstance(value, bytes):
        content = value
    else:
        # Texts with a lone half of a surrogate pair are hashed as well.
        content = str(value).encode(errors="surrogatepass")
    digest = blake2b(content, digest_size=8).digest()
    return np.frombuffer(digest, dtype=np.uint64)[0]
