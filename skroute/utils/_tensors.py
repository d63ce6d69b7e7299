"""Torch tensors and data sets as rows, without importing torch.

Whoever passes one has loaded torch; a process without torch in ``sys.modules`` has none.
"""

import sys

from skroute.utils._optional import import_optional


def torch_of(X):
    """The torch module if `X` is a tensor, else None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(X, torch.Tensor) else None


def holds_numbers(X):
    """Whether the type of `X` says numbers: a tensor, or an array of a numeric dtype."""
    return torch_of(X) is not None or getattr(getattr(X, "dtype", None), "kind", "O") in "biuf"


def on_host(array):
    """A tensor as a NumPy array in host memory; anything else as it is."""
    return array if torch_of(array) is None else array.detach().cpu().numpy()


def beside(X, values):
    """An array as a tensor on the device of the tensor `X`."""
    return torch_of(X).as_tensor(values, device=X.device)


def indexable_dataset(X):
    """A torch data set that rows can be taken from; anything else as it is.

    skorch's SliceDataset refers to rows without reading them: they are loaded in the
    batches of the net that is asked about them.
    """
    data = getattr(sys.modules.get("torch"), "utils", None)
    data = getattr(data, "data", None)
    if data is None or not isinstance(X, data.Dataset):
        return X
    return import_optional("skorch.helper", "A torch Dataset as X").SliceDataset(X)
