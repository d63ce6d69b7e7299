"""Torch tensors, data sets and devices, without importing torch.

A process that passes a tensor has imported torch, so that ``sys.modules`` has it.
"""

import sys

from skroute.utils._optional import import_optional


def torch_of(X):
    """Return the torch module if `X` is a tensor, else None."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(X, torch.Tensor):
        return torch
    return None


def holds_numbers(X):
    """Return True for a tensor and for an array of a numeric dtype."""
    if torch_of(X) is not None:
        return True
    dtype = getattr(X, "dtype", None)
    # Objects (O) stand for values without a dtype.
    kind = getattr(dtype, "kind", "O")
    # Kinds of dtypes: booleans, whole numbers with and without sign, floats.
    return kind in "biuf"


def on_host(array):
    """Return a tensor as a NumPy array in host memory. Anything else is returned as is.

    NumPy does not have bfloat16 and floats of 8 bits. They become float32.
    """
    if torch_of(array) is None:
        return array
    array = array.detach().cpu()
    try:
        return array.numpy()
    except TypeError:
        # NumPy does not have the dtype.
        return array.float().numpy()


def _is_a(X, module, name):
    """Return True if `X` is an instance of the class `name` of a loaded module.

    Parameters
    ----------
    X : object
    module : str
        Full name of the module of the class. It is not imported.
    name : str
        Name of the class.
    """
    # None if the module is not loaded.
    loaded_module = sys.modules.get(module)
    # The empty tuple stands for a class that is not loaded: it has no instance.
    cls = getattr(loaded_module, name, ())
    return isinstance(X, cls)


def is_dataset(X):
    """Return True for a torch data set, or skorch's view of one."""
    if _is_a(X, "torch.utils.data", "Dataset"):
        return True
    return _is_a(X, "skorch.helper", "SliceDataset")


def indexable_dataset(X):
    """Return a torch data set that can be indexed. Anything else is returned as is.

    skorch's SliceDataset refers to rows without reading them. A net loads them batch by
    batch.
    """
    if not _is_a(X, "torch.utils.data", "Dataset"):
        return X
    return import_optional("skorch.helper", "A torch Dataset as X").SliceDataset(X)
