"""One budget over more rows than fit a memory: Dask over Parquet.

Rows of seven values are written to Parquet in parts of a million, and solved under one budget by
`skroute.distributed.solve_assignment` on Dask's threads. Beside it: one pass that only reads the
same files and takes the argmax at a given price; the solver in memory, at a million rows; other
divisions into blocks. ``--rows`` says how many rows (10^7; 10^8 takes 6 GB of disk).
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from _common import record, table

COSTS = np.array([0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0])
BUDGET = 1.5
PART = 1_000_000


def make_part(seed, n_rows):
    """Values of one part: the more expensive, the better, with noise."""
    rng = np.random.default_rng(seed)
    values = rng.beta(2 + np.log2(1 + COSTS), 2, size=(n_rows, len(COSTS)))
    return np.ascontiguousarray(values)


def write(folder, n_rows, part_rows):
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = []
    for i, start in enumerate(range(0, n_rows, part_rows)):
        values = make_part(i, min(part_rows, n_rows - start))
        path = folder / f"{i:05d}.parquet"
        pq.write_table(pa.table({f"v{k}": values[:, k] for k in range(len(COSTS))}), path)
        paths.append((path, len(values)))
    return paths


def read(path):
    import pyarrow.parquet as pq

    # One thread: Dask has its own.
    columns = pq.read_table(path, use_threads=False).columns
    return np.column_stack([column.to_numpy() for column in columns])


def as_dask(paths):
    import dask
    import dask.array as da

    parts = [
        da.from_delayed(dask.delayed(read)(path), (n, len(COSTS)), np.float64) for path, n in paths
    ]
    return da.concatenate(parts)


def solve(paths):
    """Seconds of finding the plan and of writing the choices down, and what was found."""
    from skroute.distributed import solve_assignment

    start = time.perf_counter()
    found = solve_assignment(as_dask(paths), COSTS, BUDGET)
    counts = found.choices.map_blocks(
        lambda part: np.bincount(part, minlength=len(COSTS))[None], dtype=np.int64,
        new_axis=1, chunks=(1, len(COSTS)),
    ).compute().sum(axis=0)  # fmt: skip
    return time.perf_counter() - start, found.plan, counts


def argmax_pass(paths, price):
    """Seconds of one pass that reads and takes the best at a price."""
    start = time.perf_counter()
    values = as_dask(paths)
    best = values.map_blocks(
        lambda part: np.bincount(
            (part - price * COSTS).argmax(axis=1), minlength=len(COSTS)
        )[None],
        dtype=np.int64, chunks=(1, len(COSTS)),
    )  # fmt: skip
    best.compute()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--rows", type=float, default=1e7)
    arguments = parser.parse_args()
    try:
        import dask
        import pyarrow  # noqa: F401
    except ImportError as error:
        print(f"Left out: {error}.")
        return
    from skroute.assignment import solve_assignment
    from skroute.distributed import solve_in_passes

    short = arguments.short
    sizes = [20_000, 40_000] if short else [1_000_000, int(arguments.rows)]
    part_rows = 10_000 if short else PART
    dask.config.set(scheduler="threads", num_workers=2)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        solve(write(Path(name), 1000, 500))  # compiles
        for n_rows in sizes:
            folder = Path(name) / str(n_rows)
            folder.mkdir()
            paths = write(folder, n_rows, part_rows)
            seconds, plan, counts = solve(paths)
            assert counts.sum() == n_rows == plan.n_rows
            spent = counts @ COSTS / n_rows
            alone = argmax_pass(paths, plan.price)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            rows.append([n_rows, seconds, alone, seconds / alone, plan.gap, BUDGET - spent, peak])
            for path, _ in paths:
                path.unlink()
        # In memory, and other divisions.
        n_rows = 20_000 if short else 1_000_000
        values = np.concatenate([make_part(i, part_rows) for i in range(n_rows // part_rows)])
        expected = solve_assignment(values, COSTS, BUDGET).objective
        objectives = []
        for n_blocks in (1, 2, 16, 160):
            blocks = [(part, COSTS) for part in np.array_split(values, n_blocks)]
            objectives.append(solve_in_passes(blocks, BUDGET).objective)
    table(
        "One budget, seven choices, Parquet, two threads",
        ["rows", "s", "s of one pass", "ratio", "gap", "budget left", "peak GiB"],
        rows,
    )
    apart = max(abs(one - expected) for one in objectives) / expected
    table("Objective at 1, 2, 16, 160 blocks less in memory", ["relative"], [[apart]])
    if not short:
        record("scale")


if __name__ == "__main__":
    main()
