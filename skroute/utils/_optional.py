"""Optional dependencies: imported where they are used, never with skroute."""

import importlib

_EXTRAS = {
    "cvxpy": "cvxpy",
    "torch": "torch",
    "skorch": "torch",
    "matplotlib": "plot",
    "redis": "redis",
    "dask": "dask",
    "distributed": "dask",
    "pyarrow": "parquet",
    "vl_convert": "report",
}


def import_optional(module, caller):
    """Import an optional dependency or say which extra provides it.

    Parameters
    ----------
    module : str
        Dotted name of the module, for example ``"matplotlib.pyplot"``.

    caller : str
        What needs it; starts the error message.

    Returns
    -------
    module
        The imported module.

    Raises
    ------
    ImportError
        When the module is not installed. The message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        if error.name is None or error.name.split(".")[0] != package:
            raise
        extra = _EXTRAS.get(package)
        how = f"pip install 'skroute-ml[{extra}]'" if extra else f"pip install {package}"
        raise ImportError(f"{caller} needs {package}, which is not installed: {how}.") from error


def axes_of(display, ax):
    """The matplotlib axes that a display draws on.

    Parameters
    ----------
    display : object
        Who draws, for the error message.

    ax : matplotlib Axes or None
        Those given; None makes a new figure.

    Returns
    -------
    matplotlib Axes
    """
    pyplot = import_optional("matplotlib.pyplot", f"{type(display).__name__}.plot")
    if ax is None:
        # Constrained: a legend beside the axes keeps its place when the figure is saved.
        _, ax = pyplot.subplots(layout="constrained")
    return ax
