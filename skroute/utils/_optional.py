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
    """Import an optional module for a `caller`, or say in an ImportError which extra has it."""
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
    """The matplotlib axes that a display draws on; None makes a new figure."""
    pyplot = import_optional("matplotlib.pyplot", f"{type(display).__name__}.plot")
    if ax is None:
        # Constrained: a legend beside the axes keeps its place when the figure is saved.
        _, ax = pyplot.subplots(layout="constrained")
    return ax
