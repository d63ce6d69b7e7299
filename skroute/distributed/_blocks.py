"""Dask collections as lists of blocks of rows."""

import reprlib
from typing import Any


def is_collection(X):
    """Whether rows are a Dask array or data frame. Does not import Dask."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "to_delayed")


def row_blocks(X: Any, **beside: Any):
    """Blocks of rows of a Dask collection, each with those of what goes with it.

    Parameters
    ----------
    X : dask array or data frame
        A row is one piece: other axes are made so.

    **beside : dask arrays, data frames or series, or anything else
        Collections in the same blocks, or a ValueError; an array of known sizes is divided as X
        is. What is no collection goes with every block as it is.

    Returns
    -------
    blocks : list of delayed
    sizes : tuple of int or float
        Rows of each block; NaN where it is not known.
    beside : list of dict
        For each block what goes with it.
    """
    blocks, sizes = _parts(X)
    told: list[dict[str, Any]] = [{} for _ in blocks]
    for name, other in beside.items():
        if not is_collection(other):
            for one in told:
                one[name] = other
            continue
        parts, found = _parts(other, sizes)
        known = ((a, b) for a, b in zip(found, sizes) if a == a and b == b)
        if len(parts) != len(blocks) or any(a != b for a, b in known):
            raise ValueError(
                f"{name} must have the rows of X in the same blocks: X has {len(blocks)} blocks "
                f"of {reprlib.repr(sizes)} rows, {name} {len(parts)} of {reprlib.repr(found)}."
            )
        for one, part in zip(told, parts):
            one[name] = part
    return blocks, sizes, told


def _parts(collection, sizes=None):
    if not hasattr(collection, "chunks"):
        parts = collection.to_delayed()
        return list(parts), (float("nan"),) * len(parts)
    array = collection.rechunk(dict.fromkeys(range(1, collection.ndim), -1))
    # Of blocks of unknown sizes the sum is not known, which equals nothing.
    if sizes is not None and sum(sizes) == sum(array.chunks[0]):
        array = array.rechunk({0: tuple(sizes)})
    return list(array.to_delayed().ravel()), array.chunks[0]
