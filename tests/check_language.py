"""Check the rules of language that a script can see: names, and words of docstrings.

Run from the root by `make lint`, with the folders to check as arguments. It prints the place
of each finding, and exits with 1 if there is one. A function is no better for passing: the
rules that only a reader can check matter more (`doc/contributing/maintaining.rst`).
"""

import ast
import io
import pathlib
import re
import sys
import tokenize

# Names that do not say what a value is.
BANNED_NAMES = {
    "anew",
    "at",
    "each",
    "every",
    "found",
    "given",
    "how",
    "kept",
    "known",
    "of",
    "one",
    "own",
    "part",
    "told",
}
# Files that are not checked, with the reason.
ALLOWED_FILES: dict = {}
# Public names, and names of the papers, that users know.
ALLOWED_NAMES = {
    "known": "parameter of SequentialFeatureClassifier",
}
# A docstring starts with a verb (functions) or with a noun (classes), not with these words.
BANNED_STARTS = re.compile(
    r"(Of|To|What|Whether|Where|Which|Nor|Those|Whoever|Whatever|How)\b"
)
BANNED_WORDS = re.compile(
    r"\b(so many|so few|anew|foretell\w*|vouch\w*|dear|dearer|dearest|amiss|whatever"
    r"|whichever|whoever|handed over|hands over|handing over|is none of|(?<!there )are no\b"
    r"|worse than a coin|boast\w*|docked|beside (?:it|them|the))\b",
    re.IGNORECASE,
)


def names_of(function):
    """Return the parameters and local names of a function, with their lines."""
    arguments = function.args
    parameters = arguments.posonlyargs + arguments.args + arguments.kwonlyargs
    names = [(argument.arg, argument.lineno) for argument in parameters]
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append((node.id, node.lineno))
    return names


def check_names(tree):
    """Yield the line and text of each banned name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for name, line in names_of(node):
            if name in BANNED_NAMES and name not in ALLOWED_NAMES:
                yield line, f"the name {name!r} does not say what the value is"


def check_docstrings(tree):
    """Yield the line and text of each docstring with a banned start or word."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if not isinstance(node, documented):
            continue
        text = ast.get_docstring(node)
        if text is None:
            continue
        line = node.body[0].lineno
        start = BANNED_STARTS.match(text)
        if start is not None:
            yield line, f"a docstring starts with {start.group()!r}"
        for word in BANNED_WORDS.findall(text):
            yield line, f"a docstring has the words {word!r}"


def check_comments(source):
    """Yield the line and text of each comment with a banned word."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        for word in BANNED_WORDS.findall(token.string):
            yield token.start[0], f"a comment has the words {word!r}"


def findings(path):
    """Return the lines and texts of all findings in one file, in the order of lines."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    names = check_names(tree)
    docstrings = check_docstrings(tree)
    comments = check_comments(source)
    return sorted({*names, *docstrings, *comments})


def main(folders):
    """Print all findings. Return 1 if there is one, else 0."""
    n_findings = 0
    for folder in folders:
        root = pathlib.Path(folder)
        paths = [root] if root.is_file() else sorted(root.rglob("*.py"))
        for path in paths:
            if path.as_posix() in ALLOWED_FILES:
                continue
            for line, text in findings(path):
                print(f"{path}:{line}: {text}")
                n_findings += 1
    return int(n_findings > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
