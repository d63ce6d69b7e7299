"""The torch side of a multi-exit net's `fit` and of its pickling.

Imported where it is used, since it imports torch.
"""

import io
from copy import deepcopy

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from skroute.members._exit_run import AllExits, ExitRun, as_tensor, device_of, map_state

__all__ = ["ExitRun"]


class SummedCrossEntropy(nn.CrossEntropyLoss):
    """Weighted sum of the cross-entropies of all exits."""

    def __init__(self, exit_weights):
        super().__init__()
        self.exit_weights = [float(weight) for weight in exit_weights]

    def forward(self, scores, target):
        """Loss of the scores as :class:`AllExits` gives them."""
        losses = [super(SummedCrossEntropy, self).forward(part, target) for part in scores[::-1]]
        return sum(weight * loss for weight, loss in zip(self.exit_weights, losses))


def available_device(device):
    """The torch device of this name, or a ValueError that says why there is none."""
    if not isinstance(device, (str, torch.device)):
        raise ValueError(f"device must be a str, a torch.device or None, got {device!r}.")
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
    parts = [[known[name] for name in part] for part in names]
    return [part[0] if len(part) == 1 else nn.Sequential(*part) for part in parts]


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
            # A stage may work in place, on the caller's rows.
            state = exits.cast(as_tensor(X[:n]).clone()).to(device_of(exits))
            for k, stage in enumerate(exits.stages):
                state = stage(state)
                _check_state(state, n, k)
                scores = exits.scores(k, state)
                n_scores = scores.shape[1] if len(scores) == n else None
                if n_scores != len(classes):
                    raise ValueError(
                        f"Head {k} gives {n_scores} scores for each row, but y has "
                        f"{len(classes)} classes: {classes.tolist()!r}."
                    )


def _check_state(state, n, stage):
    shapes = []
    map_state(lambda tensor: shapes.append(tuple(tensor.shape)), state)
    if not shapes or any(shape[:1] != (n,) for shape in shapes):
        raise ValueError(
            f"Each tensor of a hidden state must have one entry for each row along its first axis, "
            f"got the shapes {shapes!r} for {n} rows from stage {stage}, counted from 0. Make a "
            "tensor that all rows share a buffer of the module, or expand it."
        )


def train(exits, X, y, exit_weights, net_params):
    """Train all exits together with skorch, in place; returns its history."""
    from skorch import NeuralNetClassifier

    params = {
        "optimizer": torch.optim.Adam,
        "train_split": None,
        "verbose": 0,
        "iterator_train__shuffle": True,
        "device": str(device_of(exits)),
        **net_params,
    }
    size = params["batch_size"]
    normalises = any(isinstance(part, _BatchNorm) for part in exits.modules())
    if normalises and len(y) > size and len(y) % size == 1 and params["train_split"] is None:
        # Of a single row batch normalisation knows no variance. It is another row in each epoch.
        params.setdefault("iterator_train__drop_last", True)
    net = NeuralNetClassifier(exits, criterion=SummedCrossEntropy(exit_weights), **params)
    # On the host: on a device each row would be taken in a launch of its own.
    net.fit(as_tensor(X).cpu(), torch.as_tensor(y, dtype=torch.int64))
    exits.zero_grad()
    return [
        {key: value for key, value in epoch.items() if key != "batches"} for epoch in net.history
    ]


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
