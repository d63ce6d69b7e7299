"""Import time beside scikit-learn's, in fresh processes. ``python benchmarks/bench_import.py``"""

import argparse
import subprocess
import sys

from _common import alternate, record, table


def importer(module):
    return lambda: subprocess.run(
        [sys.executable, "-c", f"import {module}"], check=True
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    modules = ["sklearn.ensemble", "skroute", "skroute.routing"]
    seconds = alternate({m: importer(m) for m in modules}, repeats=1 if short else 11)
    rows = [[m, seconds[m], seconds[m] / seconds["sklearn.ensemble"]] for m in modules]
    table(
        "Import in a fresh process", ["module", "seconds", "ratio (skroute <= 2)"], rows
    )
    if not short:
        record("import")


if __name__ == "__main__":
    main()
