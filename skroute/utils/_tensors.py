"""Torch tensors, data sets and devices, without importing torch before it is asked for.

Whoever passes a tensor has loaded torch; a process without torch in ``sys.modules`` has none.
"""

import sys

from skroute.utils._compat import InvalidParameterError
from skroute.utils._optional import import_optional

# Rows of a tensor that are looked at together.
_ROWS = 8192


def torch_of(X):
    """The torch module if `X` is a tensor, else None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(X, torch.Tensor) else None


def holds_numbers(X):
    """Whether the type of `X` says numbers: a tensor, or an array of a numeric dtype."""
    return torch_of(X) is not None or getattr(getattr(X, "dtype", None), "kind", "O") in "biuf"


def on_host(array):
    """A tensor as a NumPy array in host memory; anything else as it is.

    bfloat16 and the floats of 8 bits, which NumPy does not know, become float32.
    """
    if (torch := torch_of(array)) is None:
        return array
    array = array.detach().cpu()
    known = not array.is_floating_point() or array.dtype in (
        torch.float16,
        torch.float32,
        torch.float64,
    )
    return (array if known else array.float()).numpy()


def check_tensor(X):
    """A tensor of rows as an estimator may calculate with it: what arrays are checked for.

    Parameters
    ----------
    X : tensor

    Returns
    -------
    tensor
        Without its history.

    Raises
    ------
    ValueError
        If it has no rows, no columns, complex numbers, NaN or infinity.
    """
    torch = torch_of(X)
    if X.ndim < 2 or len(X) == 0:
        raise ValueError(
            f"Expected 2D rows or images, at least one, got a tensor of shape {tuple(X.shape)}."
        )
    if X.is_complex():
        raise ValueError(f"Complex data not supported, got a tensor of {X.dtype}.")
    X = X.detach()
    # Part by part: a mask of all rows would be of their size.
    if not all(bool(torch.isfinite(part).all()) for part in X.split(_ROWS)):
        raise ValueError("Input X contains NaN or infinity.")
    return X


def _is_torch_dataset(X):
    data = getattr(getattr(sys.modules.get("torch"), "utils", None), "data", None)
    return data is not None and isinstance(X, data.Dataset)


def is_dataset(X):
    """Whether `X` is a torch data set, or skorch's view of one."""
    view = getattr(sys.modules.get("skorch.helper"), "SliceDataset", None)
    return _is_torch_dataset(X) or (view is not None and isinstance(X, view))


def indexable_dataset(X):
    """A torch data set that rows can be taken from; anything else as it is.

    skorch's SliceDataset refers to rows without reading them: they are loaded in the
    batches of the net that is asked about them.
    """
    if not _is_torch_dataset(X):
        return X
    return import_optional("skorch.helper", "A torch Dataset as X").SliceDataset(X)


def check_device_parameter(estimator):
    """Refuse a `device` that names none: scikit-learn's constraints do not know torch's.

    Raises
    ------
    InvalidParameterError
    """
    torch, device = sys.modules.get("torch"), estimator.device
    if not isinstance(device, (str, type(None))) and not (
        torch is not None and isinstance(device, torch.device)
    ):
        raise InvalidParameterError(
            f"The 'device' parameter of {type(estimator).__name__} must be an instance of 'str', "
            f"an instance of 'torch.device' or None. Got {device!r} instead."
        )


def available_device(device, *, dtype="float32", advice='Use device=None or "cpu".'):
    """The torch device of this name, or why there is none.

    Parameters
    ----------
    device : str or torch.device

    dtype : str, default="float32"
        What it must be able to hold.

    advice : str
        What to do about it, as a sentence that ends the message.

    Returns
    -------
    torch.device

    Raises
    ------
    ImportError
        Without torch, naming the extra.

    ValueError
        If this machine has no such device.
    """
    torch = import_optional("torch", f"device={str(device)!r}")
    try:
        found = torch.device(device)
        torch.zeros(1, dtype=getattr(torch, dtype), device=found).item()
    # By what is amiss: no such name, no driver, "meta" (which computes nothing): RuntimeError;
    # a build without CUDA or XPU: AssertionError; no float64 (MPS): TypeError; a backend that
    # is a package of its own (hpu): ImportError.
    except (RuntimeError, AssertionError, TypeError, ImportError) as error:
        raise ValueError(
            f"device={str(device)!r} is not available here ({error}). {advice}"
        ) from error
    return found
