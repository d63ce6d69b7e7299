"""A pass of rows through a net with exits, in which no stage sees a row twice.

Imported where it is used, since it imports torch.
"""

from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from torch import nn

from skroute.utils._compat import _safe_indexing, num_samples


class AllExits(nn.Module):
    """The stages and heads of a net, and the scores of every exit, to train all heads together."""

    def __init__(self, stages, heads):
        super().__init__()
        self.stages, self.heads = nn.ModuleList(stages), nn.ModuleList(heads)
        embeddings = (nn.Embedding, nn.EmbeddingBag)
        self.looks_up = any(isinstance(part, embeddings) for part in self.stages[0].modules())

    def cast(self, X):
        """A tensor of rows in the type that the first stage takes; whole numbers to look up."""
        if self.looks_up and not X.is_floating_point():
            return X.to(torch.int64)
        floating = (p.dtype for p in self.parameters() if p.is_floating_point())
        return X.to(next(floating, torch.get_default_dtype()))

    def scores(self, exit, state):
        """Scores of a head, which may work in place: it is given a copy. Of one it makes two."""
        scores = self.heads[exit](map_state(torch.clone, state))
        scores = scores.reshape(len(scores), -1)
        if scores.shape[1] > 1:
            return scores
        return torch.cat([torch.zeros_like(scores), scores], dim=1)

    def forward(self, X):
        """Scores of each exit, the last one first: skorch predicts with the first."""
        scores, state = [], self.cast(X)
        for exit, stage in enumerate(self.stages):
            state = stage(state)
            scores.append(self.scores(exit, state))
        return tuple(scores[::-1])


def device_of(module):
    """Where a module's parameters are."""
    parameter = next(module.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


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
    if not isinstance(first, (tuple, list)):
        raise TypeError(
            "A hidden state may hold tensors and None, in tuples, lists and mappings; it cannot "
            f"hold a {type(first).__name__}."
        )
    parts = [map_state(function, *group) for group in zip(*states)]
    return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)


def take_rows(state, rows):
    """A copy of some rows of a hidden state."""

    def taken(tensor):
        return tensor.index_select(0, torch.as_tensor(rows, device=tensor.device))

    return map_state(taken, state)


class ExitRun:
    """One pass of some rows through the stages of a net, row by row as far as asked.

    What a stage made of a row is held until the row goes on or is released, and is where
    the next stage starts: no stage sees a row twice.

    Parameters
    ----------
    exits : AllExits

    n_classes : int

    X : array-like or tensor of shape (n_samples, ...)

    batch_size : int
        Rows evaluated together.

    Attributes
    ----------
    depth : ndarray of shape (n_samples,), dtype=int64
        Stages that each row has been through; 0 again for rows that were released: asked
        again, these start from the beginning.
    """

    def __init__(self, exits, n_classes, X, batch_size):
        self.exits, self.n_classes = exits, n_classes
        self.X, self.batch_size = X, batch_size
        self.depth = np.zeros(num_samples(X), dtype=np.int64)
        # By depth: the rows that wait there, and their states.
        self._held: dict[int, tuple[np.ndarray, Any]] = {}

    @property
    def n_held(self):
        """Number of rows whose hidden states are in memory."""
        return sum(len(rows) for rows, _ in self._held.values())

    def branch(self):
        """A run that goes on from here, and leaves this one where it is."""
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
        out = np.empty((len(rows), self.n_classes))
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
        for depth in list(self._held):
            self._drop(depth)

    def _advance(self, rows, depth, exit, keep):
        """Scores of an exit for rows of one depth, batch by batch."""
        held, waiting = self._held.get(depth, (rows, None))
        # Of a row that was released and came again, the last place.
        place = np.empty(len(self.depth), dtype=np.int64)
        place[held] = np.arange(len(held))
        stages, last = list(self.exits.stages)[depth : exit + 1], exit + 1 == len(self.exits.stages)
        scores, states = [], []
        try:
            for start in range(0, len(rows), self.batch_size):
                some = rows[start : start + self.batch_size]
                # A stage may work in place: both are copies.
                if depth:
                    state = take_rows(waiting, place[some])
                else:
                    state = self.exits.cast(as_tensor(_safe_indexing(self.X, some)))
                    state = state.to(device_of(self.exits))
                for stage in stages:
                    state = stage(state)
                # Not the other way round: some devices know no float64.
                scores.append(self.exits.scores(exit, state).cpu().double().numpy())
                if keep and not last:
                    states.append(state)
        finally:
            # What a call that fails has not come to stays where it was.
            done = rows[: sum(map(len, scores))]
            self.depth[done] = exit + 1 if last else 0
            if depth:
                self._drop(depth)
            if states:
                self._hold(done, exit + 1, states)
        return np.concatenate(scores)

    def _drop(self, depth):
        """Hold no longer the states at a depth of rows that are elsewhere, once they are most."""
        held, state = self._held.pop(depth)
        stays = np.flatnonzero(self.depth[held] == depth)
        # A copy each time that some rows leave would cost more than what it frees.
        if 2 * len(stays) >= len(held):
            self._held[depth] = held, state
        elif len(stays):
            self._held[depth] = held[stays], take_rows(state, stays)

    def _hold(self, rows, depth, states):
        held, every = rows, states
        if depth in self._held:
            held, state = self._held[depth]
            held, every = np.concatenate([held, rows]), [state, *states]
        one = every[0] if len(every) == 1 else map_state(lambda *parts: torch.cat(parts), *every)
        self._held[depth] = held, one
        self.depth[rows] = depth
