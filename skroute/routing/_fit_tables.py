"""Tables that a `BudgetRouter` is fitted on: quality, and a price list or a log of costs."""

import numpy as np
from sklearn.utils import check_array

from skroute.utils._named import columns_of, in_order
from skroute.utils._validation import refuse_masked


def check_fit_costs(router, costs, shape):
    """Costs of the choices of `fit`, one for each or one for each row and choice.

    Parameters
    ----------
    router : BudgetRouter
    costs : array-like or None
        What `fit` was given.
    shape : tuple of int
        Of the table of quality.

    Returns
    -------
    ndarray of shape (n_choices,) or (n_rows, n_choices)
    """
    if router.costs is not None:
        if router.cost_estimator is not None:
            raise ValueError(
                "cost_estimator learns costs per row, but the constructor has fixed "
                f"costs={router.costs!r}. Leave one of them out."
            )
        fixed = router._fixed_costs()
        if costs is None:
            return fixed
    if costs is None:
        raise ValueError(
            f"costs must say what each of {router._names!r} costs, got None. Give a mapping or "
            "an array to the constructor, or one cost per row and choice to fit."
        )
    return check_row_costs(costs, router._frame_columns, shape)


def check_row_costs(costs, columns, shape):
    """Costs of each row and choice, none of them negative."""
    costs = check_matrix(costs, "costs", columns)
    if costs.shape != shape:
        raise ValueError(
            f"costs must have one cost per row and choice, shape {shape}, got {costs.shape}."
        )
    if costs.min() < 0:
        raise ValueError(f"costs must not be negative, got {float(costs.min())!r}.")
    return costs


def column_names(frame):
    """The columns of a data frame as strings; None of anything else."""
    columns = columns_of(frame)
    if columns is None:
        return None
    names = [str(column) for column in columns]
    if len(set(names)) < len(names):
        raise ValueError(f"y must not have two columns of the same name, got {names!r}.")
    return names


def check_matrix(matrix, name, columns=None, allow_nan=False):
    """A matrix with one column per choice; a frame's columns in the order that fit saw."""
    refuse_masked(**{name: matrix})
    if columns is not None:
        matrix = in_order(matrix, columns, name)
    found = np.asarray(matrix)
    readable = True
    if found.dtype.kind in "OUS":
        try:
            found = found.astype(np.float64)
        except (TypeError, ValueError):
            readable = False
    if not readable:
        # Outside, so that what numpy said, which quotes the entry, is not told along.
        raise ValueError(f"{name} must be numbers, one column for each choice.")
    found = check_array(
        found,
        dtype=np.float64,
        ensure_2d=False,
        input_name=name,
        ensure_all_finite="allow-nan" if allow_nan else True,
    )
    return found.reshape(len(found), -1)
