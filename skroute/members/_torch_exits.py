"""The torch side of nets with exits: stages and heads, their training, a pass of rows through them.

Imported where it is used, since it imports torch.
"""

import io
from collections.abc import Mapping
from copy import copy, deepcopy
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from sklearn.utils import gen_batches
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from skroute.utils._compat import _safe_indexing, num_samples
from skroute.utils._optional import import_optional


class AllExits(nn.Module):
    """The stages and heads of a net, and the scores of every exit, to train all heads together."""

    def __init__(self, stages, heads):
        super().__init__()
        self.stages, self.heads = nn.ModuleList(stages), nn.ModuleList(heads)
        embeddings = (nn.Embedding, nn.EmbeddingBag)
        self.looks_up = any(
            isinstance(part, embeddings) for part in self.stages[0].modules()
        )

    def cast(self, X):
        """A tensor of rows in the type that the first stage takes; whole numbers to look up."""
        if self.looks_up and not X.is_floating_point():
            return X.to(torch.int64)
        floating = (p.dtype for p in self.parameters() if p.is_floating_point())
        return X.to(next(floating, torch.get_default_dtype()))

    def first_state(self, X, rows):
        """A copy of some rows as the first stage takes them, which may work in place."""
        return self.cast(torch.as_tensor(_safe_indexing(X, rows))).to(device_of(self))

    def scores(self, exit, state):
        """Scores of a head, which may work in place: it is given a copy. Of one it makes two."""
        scores = self.heads[exit](map_state(torch.clone, state))
        scores = scores.reshape(len(scores), -1)
        return nn.functional.pad(scores, (1, 0)) if scores.shape[1] == 1 else scores

    def forward(self, X):
        """Scores of each exit, the last one first: skorch predicts with the first."""
        scores, state = [], self.cast(X)
        for exit, stage in enumerate(self.stages):
            state = stage(state)
            scores.append(self.scores(exit, state))
        return tuple(scores[::-1])


def device_of(module):
    """Where a module's parameters are."""
    return next(
        (parameter.device for parameter in module.parameters()), torch.device("cpu")
    )


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
    return map_state(lambda tensor: tensor[torch.as_tensor(rows)], state)


class SummedCrossEntropy(nn.CrossEntropyLoss):
    """Weighted sum of the cross-entropies of all exits."""

    def __init__(self, exit_weights):
        super().__init__()
        self.exit_weights = exit_weights

    def forward(self, scores, target):
        """Loss of the scores as :class:`AllExits` gives them."""
        losses = (
            nn.functional.cross_entropy(part, target) for part in reversed(scores)
        )
        return sum(weight * loss for weight, loss in zip(self.exit_weights, losses))


def available_device(device):
    """The torch device of this name, or a ValueError that says why there is none."""
    try:
        one = torch.zeros(1, device=device)
        one.item()
    # By what is amiss: no such name, no driver, "meta" (which computes nothing): RuntimeError;
    # a build without CUDA or XPU: AssertionError; a backend that is a package of its own (hpu):
    # ImportError.
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ValueError(
            f'device={str(device)!r} is not available here ({error}). Use device=None or "cpu".'
        ) from error
    return one.device


def build(module, n_features, n_classes, device, *, trained):
    """The module to work on: a new one, or the one given; a copy of it if `fit` would change it."""
    if isinstance(module, nn.Module):
        lazy = any(is_lazy(parameter) for parameter in module.parameters())
        keeps = trained and not lazy and device in (None, device_of(module))
        built = module if keeps else deepcopy(module)
    else:
        built = module(n_features, n_classes)
        if not isinstance(built, nn.Module):
            raise TypeError(
                "module must be a torch.nn.Module or a function (n_features, n_classes) that "
                f"returns one, got {module!r}, which returned {built!r}."
            )
    return built if device is None else built.to(device)


def find_exits(module, stages, heads):
    """The stages and heads of a module by name."""
    stages = _find_parts(module, stages, "stages")
    heads = _find_parts(module, heads, "heads")
    if not stages or len(stages) != len(heads):
        raise ValueError(
            f"There must be one head for each stage, got {len(stages)} stages and "
            f"{len(heads)} heads."
        )
    return AllExits(stages, heads)


def _find_parts(module, names, attribute):
    """Submodules by name; where there are no names, the children of ``module.<attribute>``."""
    has = [name for name, _ in module.named_children()]
    if names is None:
        parts = getattr(module, attribute, None)
        if not isinstance(parts, (nn.ModuleList, nn.Sequential)):
            raise ValueError(
                f"{attribute}=None needs a module with a ModuleList {attribute!r}, got "
                f"{type(module).__name__} without. Give the names of its submodules: {has!r}."
            )
        return list(parts)
    names = [[part] if isinstance(part, str) else list(part) for part in names]
    known = dict(module.named_modules(remove_duplicate=False))
    if unknown := [name for part in names for name in part if name not in known]:
        raise ValueError(
            f"{attribute} names {unknown[0]!r}, which is no submodule of "
            f"{type(module).__name__}; it has {has!r}."
        )
    return [nn.Sequential(*(known[name] for name in part)) for part in names]


def look_at(exits, X, classes):
    """Check stages and heads by passing two rows, then one; that also sizes lazy layers."""
    if len(devices := {str(parameter.device) for parameter in exits.parameters()}) > 1:
        raise ValueError(
            f"module is spread over the devices {sorted(devices)!r}; a MultiExitClassifier keeps "
            "its net on one. Move it, or name the one in device."
        )
    exits.eval()
    # Not inference_mode: parameters made in it could not be trained.
    with torch.no_grad():
        for n in (2, 1):
            state = exits.first_state(X, np.arange(n))
            for k, stage in enumerate(exits.stages):
                state, shapes = stage(state), []
                map_state(
                    lambda part, shapes=shapes: shapes.append(tuple(part.shape)), state
                )
                if not shapes or any(shape[:1] != (n,) for shape in shapes):
                    raise ValueError(
                        "Each tensor of a hidden state must have one entry for each row along "
                        f"its first axis, got the shapes {shapes!r} for {n} rows from stage {k}, "
                        "counted from 0. Make a tensor that all rows share a buffer of the "
                        "module, or expand it."
                    )
                scores = exits.scores(k, state)
                if scores.shape != (n, len(classes)):
                    raise ValueError(
                        f"Head {k} gives {scores.shape[1]} scores for each of {len(scores)} rows, "
                        f"but there are {n} rows and {len(classes)} classes: {classes.tolist()!r}."
                    )


def train(exits, X, y, exit_weights, net_params, *, batch_size, **own):
    """Train all exits together with skorch, in place; returns its history."""
    skorch = import_optional("skorch", "MultiExitClassifier")
    params = {
        "optimizer": torch.optim.Adam,
        "train_split": None,
        "verbose": 0,
        "iterator_train__shuffle": True,
        **(net_params or {}),
    }
    normalises = any(isinstance(part, _BatchNorm) for part in exits.modules())
    if (
        normalises
        and len(y) % batch_size == 1 < len(y)
        and params["train_split"] is None
    ):
        # Of a single row batch normalisation knows no variance. It is another row in each epoch.
        params.setdefault("iterator_train__drop_last", True)
    own |= {
        "criterion": SummedCrossEntropy(exit_weights),
        "device": str(device_of(exits)),
    }
    net = skorch.NeuralNetClassifier(exits, batch_size=batch_size, **own, **params)
    # On the host: on a device each row would be taken in a launch of its own. A tensor on memory
    # that may not be written to is not allowed.
    is_tensor = isinstance(X, torch.Tensor)
    X = (
        X.cpu()
        if is_tensor
        else torch.as_tensor(np.require(X, requirements=["C", "W"]))
    )
    net.fit(X, torch.as_tensor(y))
    exits.zero_grad()
    return [
        {key: value for key, value in epoch.items() if key != "batches"}
        for epoch in net.history
    ]


def on_the_host(state):
    """The state of an estimator with its modules in host memory."""
    modules = {
        name: part
        for name, part in state.items()
        if isinstance(part, nn.Module) and device_of(part).type != "cpu"
    }
    # In one go: a module that is both stays one. A full device could not hold a copy.
    buffer = io.BytesIO()
    torch.save(modules, buffer)
    buffer.seek(0)
    return state | torch.load(buffer, map_location="cpu", weights_only=False)


class ExitRun:
    """One pass of some rows through the stages of a net, row by row as far as asked.

    What a stage made of a row is held until the row goes on or is released, and is where the
    next stage starts: no stage sees a row twice. ``depth`` says for each row how many stages it
    has been through: 0 again for rows that were released, which start from the beginning.
    """

    def __init__(self, exits, n_classes, X, batch_size):
        self.exits, self.n_classes = exits, n_classes
        self.X, self.batch_size = X, batch_size
        self.depth = np.zeros(num_samples(X), dtype=np.int64)
        # By depth: the rows that wait there and their states, in the parts that they came in.
        self._held: dict[int, list[tuple[np.ndarray, Any]]] = {}

    def branch(self):
        """A run that goes on from here, and leaves this one where it is."""
        run = copy(self)
        run.depth, run._held = self.depth.copy(), self._held.copy()
        return run

    def logits(self, exit, rows=None):
        """Scores of one exit, from 0, for some rows, which go through the stages up to it.

        No row is given twice, and none has been as far as this exit; None means all rows. The
        heads of exits that are passed on the way are not evaluated. Returns an ndarray of shape
        (n_rows, n_classes), float64.
        """
        rows = (
            np.arange(len(self.depth))
            if rows is None
            else np.asarray(rows, dtype=np.int64)
        )
        depths = self.depth[rows]
        if depths.max(initial=0) > exit:
            raise ValueError(
                f"Exit {exit} has been passed already by some of these rows."
            )
        out = np.empty((len(rows), self.n_classes))
        with torch.inference_mode():
            for depth in np.unique(depths):
                at = np.flatnonzero(depths == depth)
                out[at] = self._advance(rows[at], depth, exit)
        return out

    def proba(self, exit, rows=None):
        """Class probabilities of one exit; parameters and shape as of :meth:`logits`."""
        return softmax(self.logits(exit, rows), axis=1)

    def release(self, rows):
        """Hold no longer what rows need to go on, by position: those that will not."""
        self.depth[rows] = 0
        for depth in self._held:
            self._tidy(depth)

    def _advance(self, rows, depth, exit):
        """Scores of an exit for rows of one depth; after a failure those of some batches are on."""
        scores = []
        if depth:
            held, waiting = self._tidy(depth)
            # Of a row that was released and came again, the last place.
            place = np.empty(len(self.depth), dtype=np.int64)
            place[held] = np.arange(len(held))
        for batch in gen_batches(len(rows), self.batch_size):
            some = rows[batch]
            # A stage may work in place: both are copies.
            if depth:
                state = take_rows(waiting, place[some])
            else:
                state = self.exits.first_state(self.X, some)
            for stage in self.exits.stages[depth : exit + 1]:
                state = stage(state)
            # Not the other way round: some devices know no float64.
            scores.append(self.exits.scores(exit, state).cpu().double().numpy())
            self.depth[some] = exit + 1
            if exit + 1 < len(self.exits.stages):
                self._held[exit + 1] = [*self._held.get(exit + 1, []), (some, state)]
        if depth:
            self._tidy(depth)
        return np.concatenate(scores)

    def _tidy(self, depth):
        """The rows held at a depth and their states, joined; rows that left go once they are most.

        A copy each time that some rows leave would cost more than what it frees.
        """
        rows, states = zip(*self._held[depth])
        rows = np.concatenate(rows)
        state = (
            map_state(lambda *parts: torch.cat(parts), *states)
            if states[1:]
            else states[0]
        )
        stays = np.flatnonzero(self.depth[rows] == depth)
        if 2 * len(stays) < len(rows):
            rows, state = rows[stays], take_rows(state, stays)
        self._held[depth] = [(rows, state)]
        return rows, state
