"""The torch side of a multi-exit net's `fit` and of its pickling.

Imported where it is used, since it imports torch.
"""

import warnings
from copy import deepcopy

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from skroute.members._exit_run import (
    ExitParts,
    ExitRun,
    OnCopy,
    as_tensor,
    device_of,
    tensors_of,
    two_columns,
)
from skroute.utils._tensors import available_device

__all__ = ["AllExits", "ExitParts", "ExitRun", "SummedCrossEntropy"]


class AllExits(nn.Module):
    """Scores of every exit in one pass, for training all heads together.

    Parameters
    ----------
    parts : ExitParts
    """

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
            scores.append(two_columns(head(state)))
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


def is_module(candidate):
    """Whether something is a torch module."""
    return isinstance(candidate, nn.Module)


# Parts ------------------------------------------------------------------------------


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


def look_at(module, stages, heads, X, classes):
    """What `fit` must know of a net: the parts, after passing two rows, then one.

    This also settles the sizes of lazy layers.

    Parameters
    ----------
    module : nn.Module
    stages, heads : list of nn.Module
    X : array-like or tensor
        The rows; neither they nor all of them are touched.

    classes : ndarray
        The labels.

    Returns
    -------
    parts : ExitParts
    copied : list of bool
        For each head whether it works in place, and is given a copy.

    Raises
    ------
    TypeError
        For hidden states that rows cannot be taken from.

    ValueError
        For these, and for numbers of stages, heads, devices or scores that do not fit.
    """
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
    parts = ExitParts(module, stages, heads, len(classes))
    copied = [False] * len(heads)
    # Not inference_mode: parameters made in it could not be trained.
    with torch.no_grad():
        for n in (2, 1):
            # A stage may work in place, on the caller's rows.
            rows = as_tensor(X[:n]).clone()
            parts, state = _first_state(parts, rows)
            for k, head in enumerate(heads):
                state = state if k == 0 else stages[k](state)
                _check_state(state, n, f"stage {k}")
                copied[k] |= _check_head(head, state, n, k, classes)
    return with_copies(parts, copied), copied


def with_copies(parts, copied):
    """Parts whose heads leave the states as they are."""
    heads = [OnCopy(head) if copy else head for head, copy in zip(parts.heads, copied)]
    return parts._replace(heads=heads)


def _first_state(parts, rows):
    """What the first stage makes of rows, whole numbers being looked up if it can do that."""
    first, device = parts.stages[0], device_of(parts.module)
    embeds = any(isinstance(part, (nn.Embedding, nn.EmbeddingBag)) for part in first.modules())
    if not embeds or rows.is_floating_point():
        return parts, first(parts.cast(rows).to(device))
    try:
        looks_up = parts._replace(looks_up=True)
        return looks_up, first(looks_up.cast(rows).to(device))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        # The embedding may be one of positions, beside layers that calculate with the rows.
        try:
            return parts, first(parts.cast(rows).to(device))
        except (RuntimeError, TypeError, ValueError, IndexError):
            raise error from None


def _check_state(state, n, stage):
    try:
        tensors = tensors_of(state)
    except TypeError as error:
        raise TypeError(
            f"{error} It may hold tensors and None, in tuples, lists and mappings; this is what "
            f"{stage}, counted from 0, returned."
        ) from None
    shapes = [tuple(tensor.shape) for tensor in tensors]
    if not shapes or any(len(shape) == 0 or shape[0] != n for shape in shapes):
        raise ValueError(
            f"Each tensor of a hidden state must have one entry for each row along its first axis, "
            f"got the shapes {shapes!r} for {n} rows from {stage}, counted from 0. Make a tensor "
            "that all rows share a buffer of the module, or expand it."
        )


def _check_head(head, state, n, k, classes):
    """Whether a head changes the state that it is given, or the training of it would."""
    tensors = tensors_of(state)
    before = [(tensor._version, tensor.clone()) for tensor in tensors]
    scores = head(state)
    n_scores = two_columns(scores).shape[1] if len(scores) == n else None
    if n_scores != len(classes):
        raise ValueError(
            f"Head {k} gives {n_scores} scores for each row, but y has {len(classes)} classes: "
            f"{classes.tolist()!r}."
        )
    # Dropout works in place only in training.
    return any(getattr(part, "inplace", False) for part in head.modules()) or any(
        tensor._version != version or not torch.equal(tensor, old)
        for tensor, (version, old) in zip(tensors, before)
    )


# Training ---------------------------------------------------------------------------


def train(parts, X, y, exit_weights, net_params):
    """Train all exits together with skorch, in place.

    Parameters
    ----------
    parts : ExitParts
    X : array-like or tensor
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

    params = dict(net_params)
    size = params["batch_size"]
    normalises = any(isinstance(part, _BatchNorm) for part in parts.module.modules())
    if normalises and len(y) > size and len(y) % size == 1 and params["train_split"] is None:
        # Of a single row batch normalisation knows no variance. It is another row in each epoch.
        params.setdefault("iterator_train__drop_last", True)
    net = NeuralNetClassifier(AllExits(parts), criterion=SummedCrossEntropy(exit_weights), **params)
    try:
        # On the host: on a device each row would be taken in a launch of its own.
        net.fit(as_tensor(X).cpu(), torch.as_tensor(y, dtype=torch.int64))
    except ValueError as error:
        if "more than 1 value per channel" in str(error):
            error.add_note(
                f"Batch normalisation cannot train on a batch of one row (batch_size={size!r}). "
                'Give another batch_size, or net_params={"iterator_train__drop_last": True}.'
            )
        raise
    for parameter in parts.module.parameters():
        parameter.grad = None
    return [
        {key: value for key, value in epoch.items() if key != "batches"} for epoch in net.history
    ]


class seeded:
    """Random numbers of torch from a seed, and afterwards as if none had been drawn.

    The generators of the host and of the devices that are added are seeded; of others
    nothing is asked, since that would set them up.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed):
        self.seed = seed
        self.devices = {}

    def __enter__(self):
        self._state = torch.random.get_rng_state()
        torch.random.default_generator.manual_seed(self.seed)
        return self

    def add(self, device):
        """Seed a device too, and the others again; False where that has been done."""
        device = torch.device(device)
        if device.type in ("cpu", "meta") or device in self.devices:
            return False
        backend = getattr(torch, device.type)
        # Metal has one device, and does not ask which.
        where = () if device.type == "mps" else (device,)
        self.devices[device] = backend.get_rng_state(*where)
        torch.random.default_generator.manual_seed(self.seed)
        for device in self.devices:
            if device.type == "mps":
                torch.mps.manual_seed(self.seed)
            else:
                with torch.get_device_module(device).device(device):
                    torch.get_device_module(device).manual_seed(self.seed)
        return True

    def __exit__(self, *error):
        torch.random.set_rng_state(self._state)
        for device, state in self.devices.items():
            where = () if device.type == "mps" else (device,)
            getattr(torch, device.type).set_rng_state(state, *where)


# Copies and devices -----------------------------------------------------------------


def copied(module, device):
    """A copy of a module on a device, of which nothing is made twice on the device it is on."""
    made = {}
    if device_of(module) != device:
        for tensor in [*module.parameters(), *module.buffers()]:
            if is_lazy(tensor):
                continue
            copy = tensor.detach().to(device)
            if isinstance(tensor, nn.Parameter):
                copy = nn.Parameter(copy, requires_grad=tensor.requires_grad)
            made[id(tensor)] = copy
    try:
        return deepcopy(module, made).to(device)
    except RuntimeError as error:
        error.add_note(
            "module cannot be copied. The weights of torch.nn.utils.weight_norm cannot be: use "
            "torch.nn.utils.parametrizations.weight_norm, or give a function that builds it."
        )
        raise


def own_module(module, device, *, trained):
    """The module to work on: a copy, if `fit` would change the one that was given.

    Parameters
    ----------
    module : nn.Module
    device : torch.device or None
    trained : bool
        Whether it is taken as it is.
    """
    lazy = any(is_lazy(parameter) for parameter in module.parameters())
    device = device_of(module) if device is None else device
    if trained and not lazy and device_of(module) == device:
        return module
    return copied(module, device)


def modules_to_host(state):
    """The state of an estimator with its modules on the host, and where they were."""
    devices, made = {}, {}
    for name in ("module", "module_"):
        module = state.get(name)
        if not isinstance(module, nn.Module) or (place := device_of(module)).type == "cpu":
            continue
        devices[name] = str(place)
        # One object for both, if it is.
        if id(module) not in made:
            made[id(module)] = copied(module, torch.device("cpu"))
        state[name] = made[id(module)]
    return {**state, "_devices": devices} if devices else state


def modules_to_devices(state):
    """The state as it was before :func:`modules_to_host`, as far as this machine can."""
    for name, device in state.pop("_devices", {}).items():
        state[name] = state[name].to(device_or_nearest(device))
    return state


def device_or_nearest(name):
    """The device of this name; without it another of its kind, else the host, and a warning."""
    nearest = [torch.device("cpu")]
    for device in (name, name.split(":")[0]):
        try:
            nearest.insert(0, available_device(device))
            break
        except (ImportError, ValueError) as error:
            reason = str(error)
    if str(nearest[0]) != name:
        warnings.warn(
            f"A net that was on {name!r} is loaded on {str(nearest[0])!r}: {reason}",
            UserWarning,
            stacklevel=2,
        )
    return nearest[0]
