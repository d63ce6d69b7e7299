"""The torch side of a multi-exit net's `fit` and of its pickling.

Imported where it is used, since it imports torch.
"""

import io
from copy import deepcopy

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from skroute.members._exit_run import (
    ExitParts,
    ExitRun,
    as_tensor,
    device_of,
    head_scores,
    tensors_of,
)

__all__ = ["AllExits", "ExitParts", "ExitRun", "SummedCrossEntropy"]


class AllExits(nn.Module):
    """Scores of every exit in one pass, for training all heads together."""

    def __init__(self, parts):
        super().__init__()
        self.stages = nn.ModuleList(parts.stages)
        self.heads = nn.ModuleList(parts.heads)
        self.cast = parts.cast

    def forward(self, X):
        """Scores of each exit, the last one first: skorch predicts with the first."""
        scores, state = [], self.cast(X)
        for stage, head in zip(self.stages, self.heads):
            state = stage(state)
            scores.append(head_scores(head, state))
        return tuple(scores[::-1])


class SummedCrossEntropy(nn.CrossEntropyLoss):
    """Weighted sum of the cross-entropies of all exits."""

    def __init__(self, exit_weights):
        super().__init__()
        self.exit_weights = [float(weight) for weight in exit_weights]

    def forward(self, scores, target):
        """Loss of the scores as :class:`AllExits` gives them."""
        losses = [super(SummedCrossEntropy, self).forward(part, target) for part in scores[::-1]]
        return sum(weight * loss for weight, loss in zip(self.exit_weights, losses))


def find_parts(module, names, attribute):
    """Submodules by name; where there are no names, the children of ``module.<attribute>``."""
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


def look_at(module, stages, heads, X, classes):
    """The parts of a net, checked by passing two rows, then one; that also sizes lazy layers."""
    if not stages or len(stages) != len(heads):
        raise ValueError(
            f"There must be one head for each stage, got {len(stages)} stages and "
            f"{len(heads)} heads."
        )
    if len(devices := {str(parameter.device) for parameter in module.parameters()}) > 1:
        raise ValueError(
            f"module is spread over the devices {sorted(devices)!r}; a MultiExitClassifier keeps "
            "its net on one. Move it, or name the one in device."
        )
    module.eval()
    embeds = any(isinstance(part, (nn.Embedding, nn.EmbeddingBag)) for part in stages[0].modules())
    parts = ExitParts(module, stages, heads, len(classes), embeds)
    # Not inference_mode: parameters made in it could not be trained.
    with torch.no_grad():
        for n in (2, 1):
            # A stage may work in place, on the caller's rows.
            state = parts.cast(as_tensor(X[:n]).clone()).to(device_of(module))
            for k, (stage, head) in enumerate(zip(stages, heads)):
                state = stage(state)
                _check_state(state, n, f"stage {k}")
                _check_head(head, state, n, k, classes)
    return parts


def _check_state(state, n, stage):
    shapes = [tuple(tensor.shape) for tensor in tensors_of(state, stage)]
    if not shapes or any(len(shape) == 0 or shape[0] != n for shape in shapes):
        raise ValueError(
            f"Each tensor of a hidden state must have one entry for each row along its first axis, "
            f"got the shapes {shapes!r} for {n} rows from {stage}, counted from 0. Make a tensor "
            "that all rows share a buffer of the module, or expand it."
        )


def _check_head(head, state, n, k, classes):
    scores = head_scores(head, state)
    n_scores = scores.shape[1] if len(scores) == n else None
    if n_scores != len(classes):
        raise ValueError(
            f"Head {k} gives {n_scores} scores for each row, but y has {len(classes)} classes: "
            f"{classes.tolist()!r}."
        )


def train(parts, X, y, exit_weights, net_params):
    """Train all exits together with skorch, in place; returns its history."""
    from skorch import NeuralNetClassifier

    params = dict(net_params)
    size = params["batch_size"]
    normalises = any(isinstance(part, _BatchNorm) for part in parts.module.modules())
    if normalises and len(y) > size and len(y) % size == 1 and params["train_split"] is None:
        # Of a single row batch normalisation knows no variance. It is another row in each epoch.
        params.setdefault("iterator_train__drop_last", True)
    net = NeuralNetClassifier(AllExits(parts), criterion=SummedCrossEntropy(exit_weights), **params)
    # On the host: on a device each row would be taken in a launch of its own.
    net.fit(as_tensor(X).cpu(), torch.as_tensor(y, dtype=torch.int64))
    for parameter in parts.module.parameters():
        parameter.grad = None
    return [
        {key: value for key, value in epoch.items() if key != "batches"} for epoch in net.history
    ]


def own_module(module, device, *, trained):
    """The module to work on: a copy, if `fit` would change the one that was given."""
    lazy = any(is_lazy(parameter) for parameter in module.parameters())
    device = device_of(module) if device is None else device
    keeps = trained and not lazy and device_of(module) == device
    return module if keeps else deepcopy(module).to(device)


def modules_to_host(state):
    """The state of an estimator with its modules on the host."""
    modules = {
        name: state[name]
        for name in ("module", "module_")
        if isinstance(state.get(name), nn.Module) and device_of(state[name]).type != "cpu"
    }
    if not modules:
        return state
    # In one go: a module that is both stays one. A full device could not hold a copy.
    buffer = io.BytesIO()
    torch.save(modules, buffer)
    buffer.seek(0)
    return state | torch.load(buffer, map_location="cpu", weights_only=False)
