"""One budget over more rows than fit a memory: Dask over Parquet.

Rows of seven values are written to Parquet in parts of a million, and solved under one
budget by `skroute.distributed.solve_assignment` on Dask's threads. Beside it: one pass
that only reads the same files and takes the argmax at a given price; the solver in
memory, at a million rows; other divisions into blocks. ``--rows`` says how many rows
(10^7; 10^8 takes 6 GB of disk).
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _common import record, table

from skroute.assignment import solve_assignment
from skroute.distributed import solve_assignment as solve_distributed
from skroute.distributed import solve_in_passes

COSTS = np.array([0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0])
BUDGET = 1.5
PART = 1_000_000


def make_part(seed, n_rows):
    """Values of one part: the more expensive, the better, with noise."""
    rng = np.random.default_rng(seed)
    values = rng.beta(2 + np.log2(1 + COSTS), 2, size=(n_rows, len(COSTS)))
    return np.ascontiguousarray(values)


def write(folder, n_rows, part_rows):
    """Values in Parquet files, one for each part."""
    folder.mkdir()
    paths = []
    for i, start in enumerate(range(0, n_rows, part_rows)):
        values = make_part(i, min(part_rows, n_rows - start))
        paths.append((folder / f"{i:05d}.parquet", len(values)))
        pq.write_table(
            pa.table({f"v{k}": column for k, column in enumerate(values.T)}),
            paths[i][0],
        )
    return paths


def read(path):
    # One thread: Dask has its own.
    columns = pq.read_table(path, use_threads=False).columns
    return np.column_stack([column.to_numpy() for column in columns])


def as_dask(paths):
    shapes = [(path, (n, len(COSTS))) for path, n in paths]
    return da.concatenate(
        [
            da.from_delayed(dask.delayed(read)(path), shape, np.float64)
            for path, shape in shapes
        ]
    )


def count(blocks, choose=lambda part: part):
    """How many rows have each choice, in one pass."""

    def counts(part):
        return np.bincount(choose(part), minlength=len(COSTS))[None]

    parts = [dask.delayed(counts)(part) for part in blocks.to_delayed().ravel()]
    return np.concatenate(dask.compute(*parts)).sum(axis=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--rows", type=float, default=1e7)
    arguments = parser.parse_args()
    short = arguments.short
    sizes = [20_000, 40_000] if short else [1_000_000, int(arguments.rows)]
    part_rows = 10_000 if short else PART
    dask.config.set(scheduler="threads", num_workers=2)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        # Compiles.
        solve_distributed(
            as_dask(write(Path(name) / "first", 1000, 500)), COSTS, BUDGET
        )
        for n_rows in sizes:
            paths = write(Path(name) / str(n_rows), n_rows, part_rows)
            start = time.perf_counter()
            found = solve_distributed(as_dask(paths), COSTS, BUDGET)
            counts, plan = count(found.choices), found.plan
            seconds = time.perf_counter() - start
            assert counts.sum() == n_rows == plan.n_rows
            start = time.perf_counter()
            count(
                as_dask(paths),
                lambda part, plan=plan: (part - plan.price * COSTS).argmax(axis=1),
            )
            alone = time.perf_counter() - start
            left = BUDGET - counts @ COSTS / n_rows
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            rows.append(
                [
                    n_rows,
                    seconds,
                    alone,
                    seconds / alone,
                    plan.n_passes,
                    plan.gap,
                    left,
                    peak,
                ]
            )
            for path, _ in paths:
                path.unlink()
        # In memory, and other divisions.
        n_rows = 20_000 if short else 1_000_000
        values = np.concatenate(
            [make_part(i, part_rows) for i in range(n_rows // part_rows)]
        )
        expected = solve_assignment(values, COSTS, BUDGET).objective
        objectives = []
        for n_blocks in (1, 2, 16, 160):
            blocks = [(part, COSTS) for part in np.array_split(values, n_blocks)]
            objectives.append(solve_in_passes(blocks, BUDGET).objective)
    table(
        "One budget, seven choices, Parquet, two threads",
        [
            "rows",
            "s",
            "s of one pass",
            "ratio",
            "passes",
            "gap",
            "budget left",
            "peak GiB",
        ],
        rows,
    )
    apart = max(abs(one - expected) for one in objectives) / expected
    table("Objective at 1, 2, 16, 160 blocks less in memory", ["relative"], [[apart]])
    if not short:
        record("scale")


if __name__ == "__main__":
    main()
