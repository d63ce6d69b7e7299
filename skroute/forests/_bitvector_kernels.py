"""Compiled evaluation by bit vectors. Imported on first use.

A block of rows is binned once, to the columns of a
:class:`skroute.forests._bitvector.BitTrees`. Ranges of its trees are then evaluated on
the codes. Early exit evaluates further ranges after some rows have left.

`remaining` has a number for each row. Each bit of the number belongs to a leaf of a
tree. The bit is 1 if the row can still reach this leaf after the tests so far. In
`all_leaves`, each bit is 1. A test has a number `clear`. Its bits are 1 for the leaves
that a row can still reach after going right.

Oblivious trees have signed numbers, with a bit for each level instead of each leaf. A
test clears the bit of its level if the row goes right. After all tests, `remaining` is
the bitwise complement of the leaf's number.

Some positions are made unsigned before they are used (``np.uint64(row)``). For a signed
position, numba adds a branch: a negative one counts from the end.
"""

import numpy as np
from llvmlite import ir
from numba import config, njit
from numba.extending import intrinsic

from skroute.forests._trees import ZERO

# Number of rows that are evaluated together. Their codes stay in the cache of the
# processor.
BLOCK = 1024
# Unused entries at the end of each column of a block. Columns that are a power of two
# apart would share lines of the cache.
GAP = 32
# If the cuts of a column have at most this many bytes, each cell is compared with each
# cut. Among more cuts, the code of a cell is searched by halving.
_MOST_COUNTED_BYTES = 1024
# Number of columns whose cells are read together, row by row.
_COLUMNS_TOGETHER = 32


@intrinsic
def _lowest_bit(context, x):
    """Return the position of the lowest bit of `x` that is set. `x` must not be 0.

    A signed `x` is the complement of the number that is returned, see `_bitvector`.
    """

    def build(context, builder, signature, args):
        if x.signed:
            return builder.not_(args[0])
        never_zero = ir.Constant(ir.IntType(1), 1)
        return builder.cttz(args[0], never_zero)

    return x(x), build


def _interpreted_lowest_bit(x):
    """Return what `_lowest_bit` returns, for runs in which numba does not compile."""
    x = int(x)
    if x < 0:
        # `x` is the complement of a leaf's number, as oblivious trees have it.
        return ~x
    # `x & -x` has the lowest bit of `x` alone.
    return (x & -x).bit_length() - 1


if getattr(config, "DISABLE_JIT", False):
    _lowest_bit = _interpreted_lowest_bit  # type: ignore[assignment]


@njit(cache=True, nogil=True)
def _count_cuts(cells, n_rows, cuts, count, code):
    """Write into `code` how many of the sorted thresholds `cuts` are below each cell.

    Four cuts at a time are compared with all rows.

    Parameters
    ----------
    cells : ndarray of shape (n,)
    n_rows : int
        Only the first `n_rows` cells are used.

    cuts : ndarray of shape (n_cuts,)
    count : ndarray of shape (n,), dtype=int32 or int64
        Overwritten. Vector instructions are widest if an entry of `count` has as many
        bytes as a cell.

    code : ndarray of shape (n,), dtype=uint16
    """
    # `count_type(True)` is 1.
    count_type = count.dtype.type
    count[:n_rows] = 0
    n_in_fours = len(cuts) // 4 * 4
    for k in range(0, n_in_fours, 4):
        cut_0 = cuts[k]
        cut_1 = cuts[k + 1]
        cut_2 = cuts[k + 2]
        cut_3 = cuts[k + 3]
        for j in range(n_rows):
            cell = cells[j]
            count[j] += (
                count_type(cell > cut_0)
                + count_type(cell > cut_1)
                + count_type(cell > cut_2)
                + count_type(cell > cut_3)
            )
    # At most three cuts are left.
    for k in range(n_in_fours, len(cuts)):
        cut = cuts[k]
        for j in range(n_rows):
            count[j] += count_type(cells[j] > cut)
    for j in range(n_rows):
        code[j] = np.uint16(count[j])


@njit(cache=True, nogil=True)
def _search_cuts(cells, n_rows, cuts, least_below, code):
    """Write what `_count_cuts` writes into `code`, by bisection: for many cuts.

    All rows take each step together.

    Parameters
    ----------
    cells, n_rows, code
        As for :func:`_count_cuts`.

    cuts : ndarray of shape (n_cuts,)
        At least one.

    least_below : ndarray of shape (n,), dtype=int32
        Overwritten: the number of cuts that are surely below each cell.
    """
    # The number of cuts below a cell is from `least_below` to ``least_below + n_left``.
    least_below[:n_rows] = 0
    n_left = np.int32(len(cuts))
    while n_left > 1:
        n_half = n_left >> 1
        for j in range(n_rows):
            # If the cell is above the last cut of the first half, it is above all of
            # this half.
            last_of_half = cuts[least_below[j] + n_half - 1]
            least_below[j] += n_half if cells[j] > last_of_half else np.int32(0)
        n_left -= n_half
    # One cut is left. The comparison with it adds 0 or 1.
    for j in range(n_rows):
        code[j] = np.uint16(least_below[j] + (cells[j] > cuts[least_below[j]]))


@njit(cache=True, nogil=True)
def _bin_column(cells, n_rows, columns, c, scratch, code):
    """Write the 16-bit codes of the first `n_rows` cells of column `c` into `code`.

    Parameters
    ----------
    cells : ndarray of shape (n,)
        Value of each row in the feature of the column.

    n_rows : int
        Only the first `n_rows` cells are used.

    columns : Columns
    c : int
        Number of the column.

    scratch : ndarray of shape (n,), dtype=int64
        Memory that is overwritten.

    code : ndarray of shape (n,), dtype=uint16
        The codes are written here.
    """
    cuts = columns.cuts[columns.start[c] : columns.start[c + 1]]
    limit = columns.limit[c]
    # The limit of a column of numbers, `NO_LIMIT`, is negative.
    if limit >= 0:
        # A column of categories.
        for j in range(n_rows):
            # Truncation as in C: -0.5 is category 0. All other numbers, and NaN, get
            # the code `limit`, which is in no set.
            code[j] = np.uint16(np.int32(cells[j]) if -1 < cells[j] < limit else limit)
    elif len(cuts) * cells.itemsize > _MOST_COUNTED_BYTES:
        _search_cuts(cells, n_rows, cuts, scratch.view(np.int32), code)
    elif cells.itemsize == 4:
        # Single precision: counts have as many bytes as cells.
        _count_cuts(cells, n_rows, cuts, scratch.view(np.int32), code)
    else:
        _count_cuts(cells, n_rows, cuts, scratch, code)
    missing = columns.missing[c]
    # NaN is above no cut, so that its code is 0 already.
    if missing != 0:
        for j in range(n_rows):
            # NaN is not equal to itself.
            code[j] = missing if cells[j] != cells[j] else code[j]
    if columns.zero_missing[c]:
        for j in range(n_rows):
            code[j] = missing if abs(np.float64(cells[j])) <= ZERO else code[j]


@njit(cache=True, nogil=True)
def bin_rows(X, rows, n_rows, columns, used, codes):
    """Write the 16-bit codes of the cells of rows into `codes`, column by column.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    rows : ndarray of int
        Rows of `X`, none of them negative.

    n_rows : int
        Only the first `n_rows` rows of `rows` are binned.

    columns : Columns
    used : ndarray of shape (n_columns,), dtype=bool
        True for the columns to bin. The codes of others are left as they are.

    codes : ndarray of shape (n_columns, n), dtype=uint16
        The codes are written here. `n` is at least `n_rows`.
    """
    feature = columns.feature
    n_columns = len(feature)
    # Memory for `_bin_column`.
    scratch = np.empty(n_rows, dtype=np.int64)
    n_together = min(n_columns, _COLUMNS_TOGETHER)
    # Cells of the columns ``first, ..., last - 1``, one column after the other.
    cells = np.empty((n_together, n_rows + GAP), dtype=columns.cuts.dtype)
    for first in range(0, n_columns, _COLUMNS_TOGETHER):
        last = min(first + _COLUMNS_TOGETHER, n_columns)
        for j in range(n_rows):
            row = X[np.uint64(rows[j])]
            for c in range(first, last):
                cells[c - first, j] = row[np.uint64(feature[c])]
        for c in range(first, last):
            if used[c]:
                _bin_column(cells[c - first], n_rows, columns, c, scratch, codes[c])


@njit(cache=True, nogil=True, inline="always")
def _apply_four_tests(codes, n_rows, k, reads, cuts, clears, all_leaves, remaining):
    """Clear in `remaining` the leaves that rows cannot reach after four tests.

    The tests are ``k, ..., k + 3``, all of them on numbers. Parameters are those of
    :func:`find_leaves`, and a number `all_leaves` in which all bits are set. Each row's
    number in `remaining` is read and written once for four tests.
    """
    column_0 = reads[k]
    column_1 = reads[k + 1]
    column_2 = reads[k + 2]
    column_3 = reads[k + 3]
    cut_0 = np.uint16(cuts[k])
    cut_1 = np.uint16(cuts[k + 1])
    cut_2 = np.uint16(cuts[k + 2])
    cut_3 = np.uint16(cuts[k + 3])
    clear_0 = clears[k]
    clear_1 = clears[k + 1]
    clear_2 = clears[k + 2]
    clear_3 = clears[k + 3]
    for j in range(n_rows):
        remaining_0 = clear_0 if codes[column_0, j] > cut_0 else all_leaves
        remaining_1 = clear_1 if codes[column_1, j] > cut_1 else all_leaves
        remaining_2 = clear_2 if codes[column_2, j] > cut_2 else all_leaves
        remaining_3 = clear_3 if codes[column_3, j] > cut_3 else all_leaves
        remaining[j] &= (remaining_0 & remaining_1) & (remaining_2 & remaining_3)


@njit(cache=True, nogil=True, inline="always")
def _apply_test(codes, n_rows, column, cut, clear, all_leaves, remaining):
    """Clear in `remaining` the leaves that rows cannot reach after a test on numbers.

    A row goes right if its code in `column` is above `cut`. It keeps the leaves in
    `clear`. `codes`, `n_rows` and `remaining` are as in :func:`find_leaves`. In the
    number `all_leaves`, all bits are set.
    """
    code_of_cut = np.uint16(cut)
    for j in range(n_rows):
        remaining[j] &= clear if codes[column, j] > code_of_cut else all_leaves


@njit(cache=True, nogil=True, inline="always")
def _apply_category_test(
    codes, n_rows, column, first_word, words, clear, all_leaves, remaining
):
    """Clear in `remaining` leaves that rows cannot reach after a test on categories.

    The bit set of the test starts at ``words[first_word]``. Rows whose code in `column`
    is in the set go left. The other rows go right, and keep the leaves in `clear`.
    `codes`, `n_rows` and `remaining` are as in :func:`find_leaves`. In the number
    `all_leaves`, all bits are set.
    """
    for j in range(n_rows):
        code = np.int32(codes[column, j])
        # A word has 32 bits: the code is 32 times the number of its word, plus its bit.
        word = words[first_word + (code >> 5)]
        is_member = (word >> np.uint32(code & 31)) & np.uint32(1)
        remaining[j] &= all_leaves if is_member else clear


@njit(cache=True, nogil=True, inline="always")
def find_leaves(codes, n_rows, span, limit, reads, cuts, clears, words, remaining):
    """Write the leaf of each row in one tree into `remaining`, coded as bits.

    Parameters
    ----------
    codes : uint16 ndarray of shape (n_columns, n)
        Codes of the rows by column. `n` is at least `n_rows`.

    n_rows : int
    span : (int, int)
        The first test of the tree, and the one behind its last.

    limit : ndarray of shape (n_columns,)
        As in `Columns`: `NO_LIMIT`, which is negative, for a column of numbers.

    reads, cuts, clears : ndarray of shape (n_tests,)
        The fields `column`, `cut` and `clear` of `BitTrees`.

    words : ndarray
        As in `BitTrees`.

    remaining : ndarray of shape (n,), dtype of `clears`
        Overwritten. The leaf of a row is the lowest bit that is set, which `add_values`
        reads.
    """
    first_test = span[0]
    end = span[1]  # behind the last test
    # All bits are set. For oblivious trees the type is signed, and this number is -1:
    # the complement of 0, which is the number of the first leaf.
    all_leaves = ~clears.dtype.type(0)
    is_oblivious = all_leaves < 0
    has_tests = first_test < end
    # A tree without tests has one leaf, whose bit is the lowest one.
    at_root = all_leaves if has_tests or is_oblivious else clears.dtype.type(1)
    for j in range(n_rows):
        remaining[j] = at_root
    # Position of the next test.
    k = first_test
    # Columns of categories come last: the last column shows if there is one. `limit` is
    # negative for columns of numbers.
    has_categories = len(limit) > 0 and limit[-1] >= 0
    if not has_categories:
        while k + 4 <= end:
            _apply_four_tests(
                codes, n_rows, k, reads, cuts, clears, all_leaves, remaining
            )
            k += 4
    while k < end:
        column = reads[k]
        if limit[column] < 0:
            _apply_test(
                codes, n_rows, column, cuts[k], clears[k], all_leaves, remaining
            )
        else:
            _apply_category_test(
                codes, n_rows, column, cuts[k], words, clears[k], all_leaves, remaining
            )
        k += 1


@njit(cache=True, nogil=True, inline="always")
def add_values(values, first_leaf, k, remaining, n_rows, total):
    """Add column `k` of the leaf values of one tree to the sums `total` of the rows.

    Parameters
    ----------
    values : ndarray of shape (n_leaves, width)
    first_leaf : int
        Position of the first leaf of the tree.

    k : int
        Column of `values`: the output, or 0 if the leaves have one value.

    remaining : ndarray of at least `n_rows` numbers
        From `find_leaves`: the lowest bit of each row's number is its leaf.

    n_rows : int
        Only the first `n_rows` rows are used.

    total : ndarray of at least `n_rows` numbers
        Sums of the rows for this output. Changed.
    """
    for j in range(n_rows):
        leaf = np.uint64(first_leaf) + np.uint64(_lowest_bit(remaining[j]))
        total[j] += values[leaf, k]


@njit(cache=True, nogil=True)
def _used_columns(bits, first_tree, last_tree, column_of_output):
    """Return a mask of the columns that trees ``first_tree, ..., last_tree - 1`` test.

    Parameters
    ----------
    bits : BitTrees
    first_tree, last_tree : int
        The first tree, and the one behind the last.

    column_of_output : ndarray of shape (n_outputs,), dtype=int64
        As in :func:`add_members`. A tree is left out if its output has no column (-1).

    Returns
    -------
    ndarray of shape (n_columns,), dtype=bool
    """
    used = np.zeros(len(bits.columns.limit), dtype=np.bool_)
    for t in range(first_tree, last_tree):
        output = bits.outputs[t]
        # A negative output is `ALL_OUTPUTS`. Such a tree is never left out.
        if output >= 0 and column_of_output[output] < 0:
            continue
        for k in range(bits.test_start[t], bits.test_start[t + 1]):
            used[bits.column[k]] = True
    return used


@njit(cache=True, nogil=True)
def _read_sums(out, begin, n_rows, total):
    """Copy `n_rows` rows of `out`, from row `begin` on, into the columns of `total`.

    `total` has shape (n_columns of `out`, n_rows).
    """
    for k in range(out.shape[1]):
        for j in range(n_rows):
            total[k, j] = out[begin + j, k]


@njit(cache=True, nogil=True)
def _write_sums(total, begin, n_rows, out):
    """Copy the columns of `total` into `n_rows` rows of `out`, from row `begin` on."""
    for k in range(out.shape[1]):
        for j in range(n_rows):
            out[begin + j, k] = total[k, j]


@njit(cache=True, nogil=True)
def add_members(X, start, stop, bits, first, last, column_of_output, out):
    """Add the leaf values of the members ``first:last`` to ``out[start:stop]``.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    start, stop : int
        The first row of `X` and of `out`, and the one behind the last.

    bits : BitTrees
    first, last : int
        The first member, and the one behind the last.

    column_of_output : ndarray of shape (n_outputs,), dtype=int64
        Column of `out` that each output adds to, -1 for none.

    out : ndarray of shape (n_samples, n_columns)
        Sums of the rows. Changed in place: each addition is rounded to its dtype.
    """
    # Fields are read once: access to a tuple of arrays takes longer than a tree does.
    columns = bits.columns
    # For each column, the first code that is in no list of categories. `NO_LIMIT` for a
    # column of numbers.
    limit = columns.limit
    # Column, threshold code and leaves kept on the right, of each test.
    reads = bits.column
    cuts = bits.cut
    clears = bits.clear
    # Bit sets of the tests on categories.
    words = bits.words
    values = bits.values
    test_start = bits.test_start
    leaf_start = bits.leaf_start
    outputs = bits.outputs
    first_tree = bits.member_start[first]
    last_tree = bits.member_start[last]
    used = _used_columns(bits, first_tree, last_tree, column_of_output)
    block = min(BLOCK, stop - start)
    codes = np.empty((len(used), block + GAP), dtype=np.uint16)
    remaining = np.empty(block, dtype=clears.dtype)
    # Sums of the rows of a block, by column of `out`.
    total = np.empty((out.shape[1], block), dtype=out.dtype)
    for begin in range(start, stop, block):
        n_rows = min(block, stop - begin)
        bin_rows(X, np.arange(begin, begin + n_rows), n_rows, columns, used, codes)
        _read_sums(out, begin, n_rows, total)
        for t in range(first_tree, last_tree):
            # The output that the tree adds to, -1 if its leaves have a value for each.
            output = outputs[t]
            if output >= 0 and column_of_output[output] < 0:
                # The sums of the tree's output are not asked for.
                continue
            span = test_start[t], test_start[t + 1]
            find_leaves(
                codes, n_rows, span, limit, reads, cuts, clears, words, remaining
            )
            if output >= 0:
                # The leaves have one value, in column 0 of `values`.
                add_values(
                    values,
                    leaf_start[t],
                    0,
                    remaining,
                    n_rows,
                    total[column_of_output[output]],
                )
                continue
            # The output is -1: the leaves have a value for each output.
            for k in range(len(column_of_output)):
                if column_of_output[k] >= 0:
                    add_values(
                        values,
                        leaf_start[t],
                        k,
                        remaining,
                        n_rows,
                        total[column_of_output[k]],
                    )
        _write_sums(total, begin, n_rows, out)
