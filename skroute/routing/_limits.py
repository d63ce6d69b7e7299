"""Choices that a call may not make: models that are down, and limits of single rows."""

from typing import NamedTuple

import numpy as np

from skroute.utils._named import in_order


class Limits(NamedTuple):
    """What the choices of a call are limited to.

    Attributes
    ----------
    kept : ndarray of shape (n_kept,), dtype=int64
        Positions of the choices that are not excluded.
    allowed : ndarray of shape (n_samples, n_kept), dtype=bool, or None
    """

    kept: np.ndarray
    allowed: np.ndarray | None


def limits_of(names, n_samples, exclude, allowed):
    """Choices that are left, and which of them each row may make; before any call.

    Parameters
    ----------
    names : list of str
        The choices.
    n_samples : int
    exclude : sequence of str or None
    allowed : {array-like, dataframe} of shape (n_samples, n_choices) or None
        A frame is read by column name.

    Returns
    -------
    Limits

    Raises
    ------
    ValueError
        For names and shapes that are none of the choices', or where nothing is left.
    """
    if isinstance(exclude, str):
        raise ValueError(f"exclude must be a list of names, got {exclude!r}.")
    exclude = [] if exclude is None else list(exclude)
    if unknown := [name for name in exclude if name not in names]:
        raise ValueError(f"exclude names {unknown!r}, which are not among {names!r}.")
    kept = np.array([k for k, name in enumerate(names) if name not in exclude], dtype=np.int64)
    if not len(kept):
        raise ValueError(f"exclude={exclude!r} leaves no choice: {names!r} are all there are.")
    if allowed is None:
        return Limits(kept, None)
    allowed = np.asarray(in_order(allowed, names, "allowed"))
    if allowed.dtype != bool or allowed.shape != (n_samples, len(names)):
        raise ValueError(
            f"allowed must be booleans of shape ({n_samples}, {len(names)}), a column for "
            f"each of {names!r}, got {allowed.dtype} of shape {allowed.shape}."
        )
    allowed = allowed[:, kept]
    if len(without := np.flatnonzero(~allowed.any(axis=1))):
        raise ValueError(
            f"allowed leaves row {without[0]} and {len(without) - 1} others no choice"
            + (f", with {exclude!r} excluded." if exclude else ".")
        )
    return Limits(kept, allowed)


def stand_ins(values, costs, allowed):
    """Values and costs in which the cheapest choice allowed stands for those that are not.

    Returns
    -------
    values, costs : ndarray of shape (n_samples, n_choices)
    stand_in : ndarray of shape (n_samples,), dtype=int64
        The choice that is meant where one is made that is not allowed.
    """
    rows = np.arange(len(values))
    costs = np.broadcast_to(costs, values.shape)
    cost = np.where(allowed, costs, np.inf)
    # Of equal costs the better one.
    cheapest = np.where(cost == cost.min(axis=1, keepdims=True), values, -np.inf).argmax(axis=1)
    values = np.where(allowed, values, values[rows, cheapest][:, np.newaxis])
    costs = np.where(allowed, costs, costs[rows, cheapest][:, np.newaxis])
    return values, costs, cheapest
