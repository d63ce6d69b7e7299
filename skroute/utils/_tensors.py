"""Torch tensors, data sets and devices, without importing torch before it is asked for.

Whoever passes a tensor has loaded torch; a process without torch in ``sys.modules`` has
none.
"""

import sys

from skroute.utils._optional import import_optional


def torch_of(X):
    """The torch module if `X` is a tensor, else None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(X, torch.Tensor) else None


def holds_numbers(X):
    """Whether the type of `X` says numbers: a tensor, or an array of a numeric dtype."""
    return (
        torch_of(X) is not None
        or getattr(getattr(X, "dtype", None), "kind", "O") in "biuf"
    )


def on_host(array):
    """A tensor as a NumPy array in host memory; anything else as it is.

    bfloat16 and the floats of 8 bits, which NumPy does not know, become float32.
    """
    if torch_of(array) is None:
        return array
    array = array.detach().cpu()
    try:
        return array.numpy()
    except TypeError:
        return array.float().numpy()


def _is_a(X, module, name):
    """Whether `X` is an instance of a class, if its module is loaded."""
    return isinstance(X, getattr(sys.modules.get(module), name, ()))


def is_dataset(X):
    """Whether `X` is a torch data set, or skorch's view of one."""
    return _is_a(X, "torch.utils.data", "Dataset") or _is_a(
        X, "skorch.helper", "SliceDataset"
    )


def indexable_dataset(X):
    """A torch data set that rows can be taken from; anything else as it is.

    skorch's SliceDataset refers to rows without reading them: they are loaded in the
    batches of the net that is asked about them.
    """
    if not _is_a(X, "torch.utils.data", "Dataset"):
        return X
    return import_optional("skorch.helper", "A torch Dataset as X").SliceDataset(X)
