"""What the benchmark scripts share: contenders timed in turn, tables, and a record of a run.

A script prints tables and writes them to ``benchmarks/results/<name>.json`` with date,
commit, versions and machine. Numbers in README and guide are copied by hand from such a
record.
"""

import json
import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "lightgbm")
_TABLES = []


def alternate(contenders, repeats=5, warmup=1):
    """Median seconds of callables by name, timed in turn: a drifting machine hits all alike."""
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
    """Print a table with aligned columns, and keep it for `record`."""
    _TABLES.append(
        {"title": title, "header": list(header), "rows": [list(row) for row in rows]}
    )
    text = [[_cell(value) for value in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in text) for column in range(len(header))]
    print(f"\n{title}\n{'-' * len(title)}")
    for row in text:
        print(
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths)), flush=True
        )


def record(name):
    """Write all tables that were printed, and what they were measured on."""
    measured = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": _commit(),
        "versions": {package: version(package) for package in PACKAGES},
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "system": platform.system(),
            "python": platform.python_version(),
        },
    }
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(measured | {"tables": _TABLES}, indent=1, default=_plain)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    _TABLES.clear()


def standard_error(gaps, tested):
    """Of the mean over splits of paired differences, splits and shared rows taken together.

    `gaps` has one array of differences for each split, `tested` the rows that they
    stand for.
    """
    n_splits, mean = len(gaps), np.mean([gap.mean() for gap in gaps])
    parts = [(gap - mean) / (len(gap) * n_splits) for gap in gaps]
    cells = sum((part**2).sum() for part in parts)
    _, row = np.unique(np.concatenate(tested), return_inverse=True)
    rows = (np.bincount(row, np.concatenate(parts)) ** 2).sum()
    splits = sum(part.sum() ** 2 for part in parts) * n_splits / max(n_splits - 1, 1)
    return float(np.sqrt(max(rows + splits - cells, cells)))


def _cell(value):
    return f"{value:.5g}" if isinstance(value, (float, np.floating)) else str(value)


def _plain(value):
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)


def _commit():
    """Short id of the commit, with a + if the working tree differs from it."""

    def git(*words):
        where = ["git", "-C", str(Path(__file__).parent), *words]
        return subprocess.run(where, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "../skroute", "*.py")
    return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")


def _cpu():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [
        line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
    ]
    return names[0] if names else platform.machine()
