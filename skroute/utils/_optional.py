"""Optional dependencies: imported where they are used, never with skroute."""

import importlib

# The extra of skroute that installs a package, if their names differ.
_EXTRAS = {"skorch": "torch", "matplotlib": "plot", "vl_convert": "report"}


def import_optional(module, caller):
    """Import an optional module, or raise an ImportError that says how to install it.

    Parameters
    ----------
    module : str
        Full name of the module, such as ``"matplotlib.pyplot"``.
    caller : str
        Name of what needs the module, for the message.

    Returns
    -------
    module
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        # `error.name` is the missing module, or None if the error does not name it.
        if error.name is None or error.name.split(".")[0] != package:
            # The package is installed, but lacks a module that it imports itself.
            raise
        raise ImportError(
            f"{caller} needs {package}, which is not installed: pip install "
            f"'skroute-ml[{_EXTRAS.get(package, package)}]'."
        ) from error


def axes_of(display, ax):
    """Return the matplotlib axes `ax`, or for None the axes of a new figure.

    `display` is the object that draws on them, for the message if matplotlib is not
    installed.
    """
    pyplot = import_optional("matplotlib.pyplot", f"{type(display).__name__}.plot")
    if ax is None:
        # With this layout, a legend next to the axes keeps its place in a saved figure.
        _, ax = pyplot.subplots(layout="constrained")
    return ax


def check_style(caller, method, data, style):
    """Raise matplotlib's error if a method does not take some keyword arguments.

    Displays call it before a model is called. It draws on axes of its own.

    Parameters
    ----------
    caller : str
        Name of the display, for the message if matplotlib is not installed.
    method : str
        Name of a method of matplotlib's axes, such as ``"plot"``.
    data : tuple
        Its positional arguments.
    style : dict or None
        Its keyword arguments.
    """
    figure = import_optional("matplotlib.figure", caller).Figure()
    getattr(figure.add_subplot(), method)(*data, **(style or {}))
