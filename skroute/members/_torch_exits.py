"""The torch side of multi-exit nets: stages, heads, and runs that never repeat a stage.

Imported where it is used, since it imports torch.
"""

from copy import copy, deepcopy

import numpy as np
import torch
from scipy.special import softmax
from sklearn.utils import _safe_indexing
from torch import nn

from skroute.utils._compat import num_samples


class AllExits(nn.Module):
    """Scores of every exit in one pass, for training all heads together.

    Parameters
    ----------
    stages, heads : sequence of nn.Module
        Of equal length.
    """

    def __init__(self, stages, heads):
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.heads = nn.ModuleList(heads)

    def forward(self, X):
        """Scores of each exit, the last one first: skorch predicts with the first."""
        scores = []
        for stage, head in zip(self.stages, self.heads):
            X = stage(X)
            scores.append(two_columns(head(X)))
        return tuple(scores[::-1])


class SummedCrossEntropy(nn.CrossEntropyLoss):
    """Weighted sum of the cross-entropies of all exits.

    Parameters
    ----------
    exit_weights : sequence of float
        One for each exit, the first exit first.
    """

    def __init__(self, exit_weights):
        super().__init__()
        self.exit_weights = [float(weight) for weight in exit_weights]

    def forward(self, scores, target):
        """Loss of the scores as :class:`AllExits` gives them."""
        losses = [super(SummedCrossEntropy, self).forward(part, target) for part in scores[::-1]]
        return sum(weight * loss for weight, loss in zip(self.exit_weights, losses))


def two_columns(scores):
    """A single score per row, for two classes, as the scores of both."""
    scores = scores.reshape(len(scores), -1)
    if scores.shape[1] == 1:
        return torch.cat([torch.zeros_like(scores), scores], dim=1)
    return scores


def find_parts(module, names, attribute):
    """Submodules by name.

    Parameters
    ----------
    module : nn.Module
    names : sequence of str or of sequence of str, or None
        Dotted names as for ``module.get_submodule``; several for one part are applied one
        after the other. None takes the children of ``module.<attribute>``.

    attribute : {"stages", "heads"}
        Also the parameter's name in messages.

    Returns
    -------
    list of nn.Module
    """
    if names is None:
        parts = getattr(module, attribute, None)
        if not isinstance(parts, (nn.ModuleList, nn.Sequential)):
            raise ValueError(
                f"{attribute}=None needs a module with a ModuleList {attribute!r}, got "
                f"{type(module).__name__} without. Give the names of its submodules: "
                f"{[name for name, _ in module.named_children()]!r}."
            )
        return list(parts)
    return [_find_part(module, part, attribute) for part in names]


def _find_part(module, part, attribute):
    found = []
    for name in [part] if isinstance(part, str) else part:
        try:
            found.append(module.get_submodule(name))
        except AttributeError as error:
            raise ValueError(
                f"{attribute} names {name!r}, which is no submodule of {type(module).__name__}; "
                f"it has {[name for name, _ in module.named_children()]!r}."
            ) from error
    return found[0] if len(found) == 1 else nn.Sequential(*found)


def widths(exits, rows):
    """Number of scores that each head gives; also settles the sizes of lazy layers."""
    # Not inference_mode: parameters made in it could not be trained.
    with torch.no_grad():
        scores = exits.eval()(rows.to(device_of(exits)))
    return [part.shape[1] for part in scores[::-1]]


def device_of(module):
    """Where a module's parameters are."""
    parameter = next(module.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def dtype_of(module):
    """Floating type of a module's parameters."""
    floating = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(floating, torch.get_default_dtype())


def takes_indices(stage):
    """Whether a stage looks its integers up instead of calculating with them."""
    return any(isinstance(part, (nn.Embedding, nn.EmbeddingBag)) for part in stage.modules())


def as_tensor(X, stage, dtype):
    """Rows as the first stage takes them, where they are."""
    if not isinstance(X, torch.Tensor):
        # A tensor on memory that may not be written to is not allowed.
        X = torch.as_tensor(np.require(X, requirements=["C", "W"]))
    if takes_indices(stage) and not X.is_floating_point():
        return X.to(torch.int64)
    return X.to(dtype)


def moved(module, device):
    """A copy of a module on another device; the module itself where it is there."""
    return module if device_of(module) == torch.device(device) else deepcopy(module).to(device)


def available_device(name):
    """The device of this name, or the CPU on a machine without it."""
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError):
        return torch.device("cpu")
    return torch.device(name)


def take_rows(state, rows):
    """Rows of a hidden state: a tensor, or tensors in tuples, lists and mappings."""
    if isinstance(state, torch.Tensor):
        return state.index_select(0, torch.as_tensor(rows, device=state.device))
    if isinstance(state, dict):
        return {key: take_rows(part, rows) for key, part in state.items()}
    return type(state)(take_rows(part, rows) for part in state)


def join_rows(states):
    """Hidden states of several groups of rows as one."""
    first = states[0]
    if len(states) == 1:
        return first
    if isinstance(first, torch.Tensor):
        return torch.cat(states)
    if isinstance(first, dict):
        return {key: join_rows([state[key] for state in states]) for key in first}
    return type(first)(map(join_rows, map(list, zip(*states))))


class ExitRun:
    """One pass of some rows through the stages of a net, row by row as far as asked.

    What a stage made of a row is kept until the row goes on, and is where the next stage
    starts: no stage sees a row twice.

    Parameters
    ----------
    module : nn.Module
        What the stages and heads are part of.

    stages, heads : sequence of nn.Module

    X : array-like or tensor of shape (n_samples, ...)

    batch_size : int
        Rows evaluated together.

    Attributes
    ----------
    depth : ndarray of shape (n_samples,), dtype=int64
        Stages that each row has been through.
    """

    def __init__(self, module, stages, heads, X, batch_size):
        self.module = module
        self.stages = stages
        self.heads = heads
        self.X = X
        self.batch_size = batch_size
        n = num_samples(X)
        self.depth = np.zeros(n, dtype=np.int64)
        # A row's hidden state is row `_at` of the block `_block`.
        self._block = np.full(n, -1)
        self._at = np.zeros(n, dtype=np.int64)
        self._hidden = {}
        self._waiting = {}
        self._n_blocks = 0

    def branch(self):
        """A run that goes on from here, and leaves this one where it is."""
        run = copy(self)
        for name in ("depth", "_block", "_at", "_hidden", "_waiting"):
            setattr(run, name, getattr(self, name).copy())
        return run

    def logits(self, exit, rows=None):
        """Scores of one exit for some rows, which go through the stages up to it.

        Parameters
        ----------
        exit : int
            From 0. The heads of exits that are passed on the way are not evaluated.

        rows : ndarray of int, default=None
            Positions of the rows, none of which has been as far as this exit. None means
            all rows.

        Returns
        -------
        ndarray of shape (len(rows), n_classes), dtype=float64
        """
        rows = np.arange(len(self.depth)) if rows is None else np.asarray(rows)
        if len(rows) and self.depth[rows].max() > exit:
            raise ValueError(f"Exit {exit} has been passed already by some of these rows.")
        parts = []
        # Rows of equal depth go through the same stages.
        order = np.argsort(self.depth[rows], kind="stable")
        bounds = np.flatnonzero(np.diff(self.depth[rows[order]])) + 1
        with torch.inference_mode():
            for group in np.split(order, bounds):
                for start in range(0, len(group), self.batch_size):
                    batch = rows[group[start : start + self.batch_size]]
                    parts.append(self._advance(batch, exit))
        scores = np.concatenate(parts)
        out = np.empty_like(scores)
        out[order] = scores
        return out

    def proba(self, exit, rows=None):
        """Class probabilities of one exit; parameters and shape as of :meth:`logits`."""
        return softmax(self.logits(exit, rows), axis=1)

    def _advance(self, rows, exit):
        state = self._take(rows)
        for stage in self.stages[self.depth[rows[0]] : exit + 1]:
            state = stage(state)
        scores = two_columns(self.heads[exit](state)).double().cpu().numpy()
        self.depth[rows] = exit + 1
        self._block[rows] = self._n_blocks
        self._at[rows] = np.arange(len(rows))
        if exit + 1 < len(self.stages):
            self._hidden[self._n_blocks] = state
            self._waiting[self._n_blocks] = len(rows)
        self._n_blocks += 1
        return scores

    def _take(self, rows):
        """Hidden states of rows of equal depth, which leave where they were."""
        if self.depth[rows[0]] == 0:
            part = as_tensor(_safe_indexing(self.X, rows), self.stages[0], dtype_of(self.module))
            return part.to(device_of(self.module))
        numbers, of_row = np.unique(self._block[rows], return_inverse=True)
        states, order = [], []
        for position, number in enumerate(numbers):
            here = np.flatnonzero(of_row == position)
            state, at = self._hidden[number], self._at[rows[here]]
            order.append(here)
            states.append(state if _is_whole(at, state) else take_rows(state, at))
            self._waiting[number] -= len(at)
            if self._waiting[number] == 0:
                del self._hidden[number], self._waiting[number]
        order = np.concatenate(order)
        state = join_rows(states)
        if np.array_equal(order, np.arange(len(order))):
            return state
        return take_rows(state, np.argsort(order))


def _is_whole(at, state):
    while not isinstance(state, torch.Tensor):
        state = next(iter(state.values() if isinstance(state, dict) else state))
    return len(at) == len(state) and np.array_equal(at, np.arange(len(at)))


def train(exits, X, y, exit_weights, net_params):
    """Train all exits together with skorch.

    Parameters
    ----------
    exits : AllExits
        Trained in place.

    X : tensor
    y : ndarray of int
    exit_weights : sequence of float
    net_params : dict
        Parameters of :class:`skorch.NeuralNetClassifier`.

    Returns
    -------
    list of dict
        skorch's history, one entry for each epoch.
    """
    from skorch import NeuralNetClassifier

    net = NeuralNetClassifier(exits, criterion=SummedCrossEntropy(exit_weights), **net_params)
    net.fit(X, torch.as_tensor(y, dtype=torch.int64))
    return [
        {key: value for key, value in epoch.items() if key != "batches"} for epoch in net.history
    ]


class seeded:
    """Torch's random numbers from a seed, and afterwards as if nothing had been drawn."""

    def __init__(self, seed):
        self.seed = seed

    def __enter__(self):
        devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else []
        self._fork = torch.random.fork_rng(devices=list(devices))
        self._fork.__enter__()
        torch.manual_seed(self.seed)

    def __exit__(self, *error):
        return self._fork.__exit__(*error)
