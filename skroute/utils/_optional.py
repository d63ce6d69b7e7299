"""Optional dependencies: imported where they are used, never with skroute."""

import importlib

# Extras of another name than their package.
_EXTRAS = {"skorch": "torch", "matplotlib": "plot", "vl_convert": "report"}


def import_optional(module, caller):
    """Import an optional module for a `caller`, or say in an ImportError which extra has it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise ImportError(
            f"{caller} needs {package}, which is not installed: pip install "
            f"'skroute-ml[{_EXTRAS.get(package, package)}]'."
        ) from error


def axes_of(display, ax):
    """The matplotlib axes that a display draws on; None makes a new figure."""
    pyplot = import_optional("matplotlib.pyplot", f"{type(display).__name__}.plot")
    if ax is None:
        # Constrained: a legend beside the axes keeps its place when the figure is
        # saved.
        _, ax = pyplot.subplots(layout="constrained")
    return ax
