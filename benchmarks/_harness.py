"""What every benchmark needs: contenders in turn in one process, a table, a JSON file."""

import json
import os
import platform
import time
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"


def alternate(contenders, repeats=5, warmup=1):
    """Time callables in turn, A B A B ..., so that a drifting machine hits all alike.

    Parameters
    ----------
    contenders : mapping from str to callable
        Each is called without arguments.

    repeats : int, default=5
        Timed calls of each.

    warmup : int, default=1
        Calls of each that are not timed (compilation, caches).

    Returns
    -------
    dict from str to float
        Median seconds.
    """
    for call in contenders.values():
        for _ in range(warmup):
            call()
    seconds = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, call in contenders.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in seconds.items()}


def table(title, header, rows):
    """Print one table with aligned columns.

    Parameters
    ----------
    title : str
    header : sequence of str
    rows : sequence of sequences
        Cells; floats are printed with five significant digits.
    """
    text = [[_cell(value) for value in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in text) for column in range(len(header))]
    print(f"\n{title}\n{'-' * len(title)}")
    for row in text:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths)))


def _cell(value):
    return f"{value:.5g}" if isinstance(value, (float, np.floating)) else str(value)


def save(name, payload):
    """Write a result with what it was measured on to ``benchmarks/results/<name>.json``.

    Parameters
    ----------
    name : str
    payload : JSON-serialisable
    """
    import sklearn

    import skroute

    RESULTS.mkdir(exist_ok=True)
    record = {
        "skroute": skroute.__version__,
        "scikit-learn": sklearn.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "result": payload,
    }
    path = RESULTS / f"{name}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=1, default=float) + "\n")
    temporary.replace(path)
