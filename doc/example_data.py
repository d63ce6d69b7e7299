"""Which examples can run: one whose data is absent and cannot be had is shown without output."""

import ast
import re

from skroute import datasets


def fetches(path):
    """Calls of fetchers in an example: names with their arguments."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = getattr(getattr(node, "func", None), "id", "")
        if (
            isinstance(node, ast.Call)
            and hasattr(datasets, name)
            and name.startswith("fetch_")
        ):
            arguments = tuple(ast.literal_eval(argument) for argument in node.args)
            yield name, arguments


def examples_without_data(folder):
    """Examples below a folder whose data is not there, with the reason."""
    reasons = {}
    without = {}
    for path in sorted(folder.rglob("plot_*.py")):
        for call in fetches(path):
            if call not in reasons:
                name, arguments = call
                try:
                    getattr(datasets, name)(*arguments)
                    reasons[call] = None
                except OSError as error:
                    reasons[call] = f"{name}: {error}"
            if reasons[call]:
                without[path.name] = reasons[call]
    return without


def pattern_of_the_rest(without):
    """Pattern of the examples that run."""
    if not without:
        return r"/plot_"
    return rf"/(?!({'|'.join(map(re.escape, without))})$)plot_"
