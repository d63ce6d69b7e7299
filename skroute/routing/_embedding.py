"""The output of a layer of a member net, taken while the net answers."""

import threading

import numpy as np
from sklearn import get_config
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags

from skroute.base import note_failure
from skroute.utils._compat import num_samples
from skroute.utils._optional import import_optional


def inner_net(member):
    """The model that a frozen estimator or a pipeline ends in."""
    while True:
        if isinstance(member, FrozenEstimator):
            member = member.estimator
        elif hasattr(member, "steps"):
            member = member.steps[-1][1]
        else:
            return member


def is_frozen(member):
    """Whether the net that a member ends in is a frozen one."""
    while not isinstance(member, FrozenEstimator):
        if not hasattr(member, "steps"):
            return False
        member = member.steps[-1][1]
    return True


def reads_tensors(estimator):
    """Whether scikit-learn's array API dispatch is on and every step supports it."""
    if estimator is None or not get_config()["array_api_dispatch"]:
        return False
    steps = [step for _, step in getattr(estimator, "steps", [(None, estimator)])]
    return all(
        getattr(step, "_reads_tensors", False) or get_tags(step).array_api_support for step in steps
    )


def check_layer(name, member, layer):
    """Before anything is fitted: the member is a net that has layers, as far as is known.

    Parameters
    ----------
    name : str
    member : estimator
    layer : str

    Raises
    ------
    ImportError
        Without torch, naming the extra.
    ValueError
    """
    import_optional("torch", f"embedding layer {layer!r}")
    net = inner_net(member)
    if not hasattr(net, "module"):
        raise ValueError(
            f"embedding={(name, layer)!r} needs a net with a module, as skorch's have, but "
            f"{name!r} is {member!r}."
        )
    if not is_frozen(member):
        raise ValueError(
            f"embedding layer {layer!r} needs a net that does not learn from the rows given to "
            f"fit, since its layer would know their labels: give {name!r} as FrozenEstimator(net) "
            "of a net fitted on other rows."
        )
    if hasattr(net, "module_"):
        find_layer(name, net, layer)


def find_layer(name, net, layer):
    """The submodule of a fitted net.

    Parameters
    ----------
    name : str
    net : skorch net
    layer : str
        Path of attributes from the module, as in ``torch.nn.Module.get_submodule``.

    Returns
    -------
    torch.nn.Module

    Raises
    ------
    ValueError
        Naming the layers that there are.
    """
    torch = import_optional("torch", f"embedding layer {layer!r}")
    if any(isinstance(part, torch.nn.DataParallel) for part in net.module_.modules()):
        raise ValueError(
            f"embedding layer {layer!r} needs a net without DataParallel, whose replicas answer in "
            f"threads of their own: give {name!r} as the module that it wraps."
        )
    try:
        return net.module_.get_submodule(layer)
    except AttributeError:
        known = [path for path, _ in net.module_.named_modules() if path]
        raise ValueError(f"{layer!r} is not a layer of {name!r}, which has {known!r}.") from None


def call_with_layer(name, member, layer, call, X, *, as_tensor=False):
    """Ask a net and keep what a layer gives on the way: one forward pass per row.

    Parameters
    ----------
    name : str
    member : estimator
        Fitted; ends in a net with a ``module_``.
    layer : str
    call : callable
        ``call(X)`` asks the member about all rows, once, in order.
    X : indexable
    as_tensor : bool, default=False
        Whether the embedding stays a tensor on the net's device.

    Returns
    -------
    answer : object
        What `call` returns.
    embedding : ndarray or tensor of shape (n_samples, n_outputs)
        Outputs of the layer, one row per sample, in float32.
    """
    torch = import_optional("torch", f"embedding layer {layer!r}")
    caller, parts = threading.get_ident(), []

    def keep(module, inputs, output):
        # Of calls from several threads each keeps its own rows.
        if threading.get_ident() != caller:
            return
        if not isinstance(output, torch.Tensor):
            raise TypeError(f"The layer {layer!r} must give a tensor, got {type(output)!r}.")
        part = output.detach().flatten(1) if output.ndim > 1 else output.detach()[:, None]
        # A copy: the next layer may work in place.
        device = output.device if as_tensor else "cpu"
        parts.append(part.to(device=device, dtype=torch.float32, copy=True))

    handle = find_layer(name, inner_net(member), layer).register_forward_hook(keep)
    n = num_samples(X)
    try:
        with note_failure(name, n, f"the layer {layer!r}"):
            answer = call(X)
    finally:
        handle.remove()
    n_kept = sum(len(part) for part in parts)
    if n_kept != n:
        raise ValueError(
            f"The layer {layer!r} of {name!r} gave {n_kept} rows for {n}: it must be called once "
            "for each batch, and rows must be the first axis of its output. (A module under "
            "torch.compile may not call hooks; embed with a net that is not compiled.)"
        )
    embedding = torch.cat(parts)
    return answer, embedding if as_tensor else np.ascontiguousarray(embedding.numpy())
