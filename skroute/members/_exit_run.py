"""A pass of rows through a net with exits, in which no stage sees a row twice.

Imported where it is used, since it imports torch.
"""

from collections.abc import Mapping
from copy import copy
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import softmax
from torch import nn

from skroute.utils._compat import _safe_indexing, num_samples


class ExitParts(NamedTuple):
    """The parts of a net with exits: stages and heads, of equal length, and what they are part of.

    `looks_up` says whether the first stage takes whole numbers as such, for an embedding.
    """

    module: nn.Module
    stages: list[nn.Module]
    heads: list[nn.Module]
    n_classes: int
    looks_up: bool = False

    def cast(self, X):
        """A tensor of rows in the type that the first stage takes."""
        if self.looks_up and not X.is_floating_point():
            return X.to(torch.int64)
        return X.to(dtype_of(self.module))


def device_of(module):
    """Where a module's parameters are."""
    parameter = next(module.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def dtype_of(module):
    """Floating type of a module's parameters."""
    floating = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(floating, torch.get_default_dtype())


def two_columns(scores):
    """A single score per row, for two classes, as the scores of both."""
    scores = scores.reshape(len(scores), -1)
    if scores.shape[1] == 1:
        return torch.cat([torch.zeros_like(scores), scores], dim=1)
    return scores


def head_scores(head, state):
    """Scores of a head, which may work in place: it is given a copy."""
    return two_columns(head(map_state(torch.clone, state)))


def as_tensor(X):
    """Rows as a tensor, where they are."""
    if isinstance(X, torch.Tensor):
        return X
    # A tensor on memory that may not be written to is not allowed.
    return torch.as_tensor(np.require(X, requirements=["C", "W"]))


# Hidden states: tensors, or tensors and None in tuples, lists and mappings of any type.


def map_state(function, *states):
    """What a function makes of the tensors at each place of hidden states of one form."""
    first = states[0]
    if isinstance(first, torch.Tensor):
        return function(*states)
    if first is None:
        return None
    if isinstance(first, Mapping):
        out = copy(first)
        for key in first:
            out[key] = map_state(function, *(state[key] for state in states))
        return out
    parts = [map_state(function, *group) for group in zip(*states)]
    return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)


def tensors_of(state, stage):
    """The tensors of a hidden state that a stage returned."""
    if isinstance(state, torch.Tensor):
        return [state]
    if state is None:
        return []
    if isinstance(state, Mapping):
        state = list(state.values())
    if isinstance(state, (tuple, list)):
        return [tensor for part in state for tensor in tensors_of(part, stage)]
    raise TypeError(
        f"A hidden state may hold tensors and None, in tuples, lists and mappings; that of {stage} "
        f"(counted from 0) cannot hold a {type(state).__name__}."
    )


def take_rows(state, rows):
    """A copy of some rows of a hidden state."""

    def taken(tensor):
        return tensor.index_select(0, torch.as_tensor(rows, device=tensor.device))

    return map_state(taken, state)


def join_rows(states):
    """Hidden states of several groups of rows as one."""
    return states[0] if len(states) == 1 else map_state(lambda *parts: torch.cat(parts), *states)


class ExitRun:
    """One pass of some rows through the stages of a net, row by row as far as asked.

    What a stage made of a row is held until the row goes on or is released, and is where
    the next stage starts: no stage sees a row twice.

    Parameters
    ----------
    parts : ExitParts

    X : array-like or tensor of shape (n_samples, ...)

    batch_size : int
        Rows evaluated together.

    Attributes
    ----------
    depth : ndarray of shape (n_samples,), dtype=int64
        Stages that each row has been through; 0 again for rows that were released, or
        lost in a call that failed: asked again, these start from the beginning.
    """

    def __init__(self, parts, X, batch_size):
        self.parts = parts
        self.X = X
        self.batch_size = batch_size
        self.depth = np.zeros(num_samples(X), dtype=np.int64)
        # By depth: the rows that wait there, and their states.
        self._held: dict[int, tuple[np.ndarray, Any]] = {}
        self._shared = False

    @property
    def n_held(self):
        """Number of rows whose hidden states are in memory."""
        return sum(len(rows) for rows, _ in self._held.values())

    def branch(self):
        """A run that goes on from here, and leaves this one where it is."""
        # A stage may work in place: from now on, both give it copies.
        self._shared = True
        run = copy(self)
        run.depth, run._held = self.depth.copy(), self._held.copy()
        return run

    def logits(self, exit, rows=None, *, keep=True):
        """Scores of one exit for some rows, which go through the stages up to it.

        Parameters
        ----------
        exit : int
            From 0. The heads of exits that are passed on the way are not evaluated.

        rows : ndarray of int, default=None
            Positions of the rows, none twice, none of which has been as far as this exit.
            None means all rows.

        keep : bool, default=True
            Whether rows may go on. Their hidden states are not held otherwise.

        Returns
        -------
        ndarray of shape (len(rows), n_classes), dtype=float64
        """
        rows = np.arange(len(self.depth)) if rows is None else np.asarray(rows, dtype=np.int64)
        depths = self.depth[rows]
        if depths.max(initial=0) > exit:
            raise ValueError(f"Exit {exit} has been passed already by some of these rows.")
        out = np.empty((len(rows), self.parts.n_classes))
        with torch.inference_mode():
            for depth in np.unique(depths):
                at = np.flatnonzero(depths == depth)
                out[at] = self._advance(rows[at], depth, exit, keep)
        return out

    def proba(self, exit, rows=None, *, keep=True):
        """Class probabilities of one exit; parameters and shape as of :meth:`logits`."""
        return softmax(self.logits(exit, rows, keep=keep), axis=1)

    def release(self, rows):
        """Hold no longer what rows need to go on, which is for rows that will not.

        Parameters
        ----------
        rows : ndarray of int
            Positions of the rows.
        """
        self.depth[rows] = 0
        for depth, (held, _) in list(self._held.items()):
            self._keep(depth, self.depth[held] == depth)

    def _keep(self, depth, stays):
        held, state = self._held.pop(depth)
        if stays.all():
            self._held[depth] = held, state
        elif stays.any():
            self._held[depth] = held[stays], take_rows(state, np.flatnonzero(stays))

    def _advance(self, rows, depth, exit, keep):
        """Scores of an exit for rows of one depth, batch by batch."""
        taken = self._take(rows, depth) if depth else None
        scores, states, last = [], [], exit + 1 == len(self.parts.stages)
        try:
            for start in range(0, len(rows), self.batch_size):
                at = slice(start, start + self.batch_size)
                if depth:
                    state = map_state(itemgetter(at), taken)
                else:
                    rows_here = as_tensor(_safe_indexing(self.X, rows[at]))
                    state = self.parts.cast(rows_here).to(device_of(self.parts.module))
                for stage in self.parts.stages[depth : exit + 1]:
                    state = stage(state)
                # Not the other way round: some devices know no float64.
                scores.append(head_scores(self.parts.heads[exit], state).cpu().double().numpy())
                if keep and not last:
                    states.append(state)
        finally:
            # What a call that fails has not come to starts from X again.
            done = rows[: sum(map(len, scores))]
            if last:
                self.depth[done] = exit + 1
            elif states:
                self._hold(done, exit + 1, states)
        return np.concatenate(scores)

    def _take(self, rows, depth):
        """The states of rows of one depth, which are held no longer."""
        self.depth[rows] = 0
        held, state = self._held[depth]
        at = np.empty(len(self.depth), dtype=np.int64)
        at[held] = np.arange(len(held))
        self._keep(depth, self.depth[held] == depth)
        if np.array_equal(rows, held):
            return map_state(torch.clone, state) if self._shared else state
        return take_rows(state, at[rows])

    def _hold(self, rows, depth, states):
        if depth in self._held:
            held, state = self._held[depth]
            rows, states = np.concatenate([held, rows]), [state, *states]
        self.depth[rows] = depth
        self._held[depth] = rows, join_rows(states)
