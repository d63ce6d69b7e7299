"""Dask collections as lists of blocks of rows."""

import math
import reprlib
from typing import Any, NamedTuple


class RowBlocks(NamedTuple):
    """Blocks of rows of a Dask collection, and of arguments with the same rows.

    A companion is such an argument, for example the costs of the rows.

    Attributes
    ----------
    blocks : list of delayed
        The rows of each block.
    sizes : tuple of int or float
        Number of rows of each block. NaN if it is not known.
    companions : list of dict
        One dict for each block, from the name of each companion to its block. A
        companion that is no collection stands there as it is.
    """

    blocks: list[Any]
    sizes: tuple[Any, ...]
    companions: list[dict[str, Any]]


def is_collection(X):
    """Return True for a Dask array or data frame. Dask is not imported."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "to_delayed")


def row_blocks(X: Any, **companions: Any) -> RowBlocks:
    """Return the row blocks of a Dask collection and of arguments with the same rows.

    Parameters
    ----------
    X : dask array or data frame
        Chunks of an array are merged along all axes but the first.

    **companions : dask arrays, data frames or series, or anything else
        Collections must have the same blocks as X. An array of known sizes is divided
        as X is. A value that is no collection goes with every block as it is.

    Returns
    -------
    RowBlocks

    Raises
    ------
    ValueError
        If a collection has other blocks.
    """
    blocks, sizes = _split_rows(X)
    companions_of_blocks: list[dict[str, Any]] = [{} for _ in blocks]
    for name, companion in companions.items():
        if not is_collection(companion):
            for companions_of_block in companions_of_blocks:
                companions_of_block[name] = companion
            continue
        other_blocks, other_sizes = _split_rows(companion, sizes)
        if not _may_be_equal(sizes, other_sizes):
            raise ValueError(
                f"{name} must have the rows of X in the same blocks: X has "
                f"{len(blocks)} blocks of {reprlib.repr(sizes)} rows, {name} "
                f"{len(other_blocks)} of {reprlib.repr(other_sizes)}."
            )
        for companions_of_block, block in zip(
            companions_of_blocks, other_blocks, strict=True
        ):
            companions_of_block[name] = block
    return RowBlocks(blocks, sizes, companions_of_blocks)


def _may_be_equal(sizes, other_sizes):
    """Return True if the numbers of blocks, and all known sizes, are equal."""
    if len(sizes) != len(other_sizes):
        return False
    for size, other_size in zip(sizes, other_sizes, strict=True):
        # A size of NaN is not known, and may be equal to any other.
        are_known = not (math.isnan(size) or math.isnan(other_size))
        if are_known and size != other_size:
            return False
    return True


def _split_rows(collection, sizes=None):
    """Return the blocks of rows of a collection, and their sizes.

    Parameters
    ----------
    collection : dask array or data frame
    sizes : tuple of int or float, default=None
        Sizes of the returned blocks, for an array with as many rows in total. None
        keeps the chunks of the array.

    Returns
    -------
    blocks : list of delayed
    sizes : tuple of int or float
    """
    if not hasattr(collection, "chunks"):
        # The partitions of a data frame have unknown sizes.
        partitions = list(collection.to_delayed())
        return partitions, (math.nan,) * len(partitions)
    other_axes = range(1, collection.ndim)
    # -1 makes one chunk of an axis.
    array = collection.rechunk(dict.fromkeys(other_axes, -1))
    # A sum with unknown sizes is NaN, which is equal to nothing.
    if sizes is not None and sum(sizes) == sum(array.chunks[0]):
        array = array.rechunk({0: tuple(sizes)})
    return list(array.to_delayed().ravel()), array.chunks[0]
