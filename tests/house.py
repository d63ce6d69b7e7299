"""What the code base weighs, counted: `python -m tests.house` prints it, a guard holds it.

Code lines are lines that hold a token of code: no docstrings, comments or blank lines.
"""

import ast
import io
import sys
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "skroute"

# What is not to be exceeded. A class, a module and a signature are read in one go.
LIMITS = {
    "code lines of a module": 400,
    "code lines of a class": 250,
    "parameters of a constructor": 13,
    "arguments of a kernel": 10,
    "depth of own classes": 3,
}


def docstring_lines(tree):
    """Lines that docstrings stand on."""
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                if isinstance(first.value.value, str):
                    lines |= set(range(first.lineno, first.end_lineno + 1))
    return lines


def code_lines(source):
    """Numbers of the lines that hold code."""
    empty = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in empty:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return lines - docstring_lines(ast.parse(source))


def arguments(function):
    """Names of a function's arguments, `self` left out."""
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [argument.arg for argument in every if argument.arg != "self"]


def is_kernel(function):
    """Whether a function is compiled by numba."""
    return any("njit" in ast.unparse(decorator) for decorator in function.decorator_list)


def base_names(node):
    """Names of the classes that a class is derived from."""
    return [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]


def depth(name, bases):
    """How many own classes stand above one another; mixins do not count."""
    if name not in bases or name.endswith("Mixin"):
        return 0
    return 1 + max((depth(base, bases) for base in bases[name]), default=0)


def measure(sources):
    """What every module, class, constructor and kernel of some sources weighs.

    Parameters
    ----------
    sources : mapping from str to str
        Source by module.

    Returns
    -------
    dict from str to dict from str to int
        For each key of `LIMITS` the amount of each thing that has it.
    """
    found = {key: {} for key in LIMITS}
    bases = {}
    for module, source in sources.items():
        lines = code_lines(source)
        found["code lines of a module"][module] = len(lines)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = base_names(node)
                span = range(node.lineno, node.end_lineno + 1)
                name = f"{module}.{node.name}"
                found["code lines of a class"][name] = len(lines.intersection(span))
                for part in node.body:
                    if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                        found["parameters of a constructor"][name] = len(arguments(part))
            elif isinstance(node, ast.FunctionDef) and is_kernel(node):
                name = f"{module}.{node.name}"
                found["arguments of a kernel"][name] = len(arguments(node))
    found["depth of own classes"] = {name: depth(name, bases) for name in bases}
    return found


def too_much(sources):
    """What exceeds the limits, a line for each."""
    return [
        f"{name} has {amount}, {LIMITS[key]} {key} are allowed"
        for key, amounts in measure(sources).items()
        for name, amount in sorted(amounts.items())
        if amount > LIMITS[key]
    ]


def module_imports(module, source, modules):
    """Modules of the package that a module imports, also inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def import_circles(sources):
    """Modules that import one another, each circle once."""
    # A room's `__init__` is left out: it gathers its own modules, which import it by name.
    modules = {name for name in sources if not name.endswith(".__init__")}
    edges = {
        name: set(module_imports(name, sources[name], modules)) & modules - {name}
        for name in modules
    }
    circles, done = [], set()

    def visit(name, path):
        if name in path:
            circle = path[path.index(name) :]
            if not any(set(circle) == set(other) for other in circles):
                circles.append(circle)
            return
        if name in done:
            return
        for other in sorted(edges[name]):
            visit(other, [*path, name])
        done.add(name)

    for name in sorted(modules):
        visit(name, [])
    return circles


def package_sources(package=PACKAGE):
    """Source of every module of the package, by dotted name."""
    return {
        ".".join([package.name, *path.relative_to(package).with_suffix("").parts]): path.read_text()
        for path in sorted(package.rglob("*.py"))
    }


def main(package=PACKAGE):
    """Print the whole, the largest of each kind, and the circles."""
    sources = package_sources(Path(package))
    found = measure(sources)
    print(f"{sum(found['code lines of a module'].values()):,} code lines")
    for key, amounts in found.items():
        largest = sorted(amounts, key=amounts.get, reverse=True)[:5]
        print(f"{key} (at most {LIMITS[key]}):")
        for name in largest:
            print(f"  {amounts[name]:5d} {name}")
    print(f"import circles: {import_circles(sources) or 'none'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
