"""Route a data set that fits no memory: Parquet in, Parquet out, part by part."""

import json
import os
import pickle
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np

from skroute.base import check_affordable, check_budget, note_failure
from skroute.distributed import solve_in_passes
from skroute.routing._draws import SeenRows, tie_draws
from skroute.routing._one_budget import policy_of_plain, room_of
from skroute.routing._parquet_source import open_source
from skroute.utils._compat import Integral
from skroute.utils._optional import import_optional

_PLAN = "_skroute.json"


class RoutedFiles(NamedTuple):
    """What `route_batch` has written.

    Attributes
    ----------
    n_rows : int
        Rows of all parts.

    n_parts : int
        Files, one for each file of the source.

    n_resumed : int
        Files that were there already, from a run that was cut off.

    cost : float
        Mean of the column ``cost``, as the router's `predict_cost`: deciding included.

    quality : float
        Mean estimated quality of the choices made.

    expected_cost : float
        Mean of the column ``expected_cost``: what the choices are expected to cost in truth.
        Another number than `cost` where the router was fitted on a log of costs beside its
        fixed ones; the budget is then one of this.
    """

    n_rows: int
    n_parts: int
    n_resumed: int
    cost: float
    quality: float
    expected_cost: float


def route_batch(
    router: Any,
    source: Any,
    target: Any,
    *,
    budget: float | None = None,
    policy: str | None = None,
    columns: Any = None,
    keep: Any = (),
    batch_rows: int = 65_536,
) -> RoutedFiles:
    """Decide for every row of a Parquet data set, with a bounded memory.

    For each file of the source it writes one of the same rows with the columns ``choice``
    (its name), ``cost`` (as `predict_cost`), ``quality`` (estimated, before the penalty) and
    ``expected_cost`` (as ``predict_routed``). A run that was cut off goes on where it was:
    parts are written whole or not at all.

    Parameters
    ----------
    router : BudgetRouter or OccamRouterClassifier
        Fitted, with fixed costs and ``objective="mean"``.

    source : str or path-like
        A Parquet file, or a folder of them.

    target : str or path-like
        Folder for the parts, not in the source; made where there is none.

    budget : float, default=None
        Mean cost per row; None takes the router's own.

    policy : {"online", "batch"}, default=None
        ``"online"`` decides each row as ``router.route`` does on the whole table, in the
        order of the files' names: one pass, the budget holds on average. Rows that are tied
        at the price are remembered, 16 bytes for each that differs.
        ``"batch"`` makes it a hard cap over all rows: estimates are kept beside the target
        while it runs, and passed over a few times. (For a router fitted on a log of costs
        beside its fixed ones it is a cap on the fixed costs that go with the budget.) None
        takes the router's own.

    columns : sequence of str, default=None
        The columns that the router reads. None takes the names that it was fitted with,
        or else all but those in `keep`.

    keep : sequence of str, default=()
        Columns of the source that the parts have too, for example an id.

    batch_rows : int, default=65536
        Rows in memory at a time.

    Returns
    -------
    RoutedFiles

    Raises
    ------
    ValueError
        For a budget below the cheapest plan; before anything is written, for a file that
        cannot be read, lacks a column or has it in a type that does not go with that of the
        others; or for a target that holds parts of another run: of another router, budget
        or source, or of files that were written again.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq
    >>> from sklearn.linear_model import Ridge
    >>> from skroute.routing import BudgetRouter, route_batch
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> Q = np.column_stack([1 - X[:, 0], np.full(100, 0.9)])
    >>> router = BudgetRouter(Ridge(alpha=1e-3), costs={"small": 1, "large": 5}, budget=3).fit(X, Q)
    >>> folder = tempfile.TemporaryDirectory()
    >>> source, target = Path(folder.name) / "in.parquet", Path(folder.name) / "out"
    >>> pq.write_table(pa.table({"id": range(100), "x": X[:, 0]}), source)
    >>> done = route_batch(router, source, target, policy="batch", keep=["id"])
    >>> done.n_rows, done.cost <= 3
    (100, True)
    >>> pq.read_table(target)["choice"][:2].to_pylist()
    ['small', 'small']
    >>> folder.cleanup()
    """
    import_optional("pyarrow.parquet", "route_batch")
    priced = policy_of_plain(router, "route files")
    for name, path in (("source", source), ("target", target)):
        if not isinstance(path, (str, os.PathLike)) or not str(path):
            raise TypeError(f"{name} must be a path, got {path!r}.")
    for name, told in (("columns", columns), ("keep", keep)):
        if told is not None and (isinstance(told, str) or not np.iterable(told)):
            raise TypeError(f"{name} must be a sequence of names of columns, got {told!r}.")
        if told is not None and (wrong := [one for one in told if not isinstance(one, str)]):
            raise TypeError(f"{name} must be a sequence of str, got {wrong[0]!r} in it.")
    if not isinstance(batch_rows, Integral) or isinstance(batch_rows, bool) or batch_rows < 1:
        raise ValueError(f"batch_rows must be a positive int, got {batch_rows!r}.")
    policy = router.policy if policy is None else policy
    if policy not in ("online", "batch"):
        raise ValueError(f'policy must be "online" or "batch", got {policy!r}.')
    budget = router._effective_budget(None) if budget is None else check_budget(budget)
    # Before anything is written.
    check_affordable(budget, priced.least)
    source, target = Path(source), Path(target)
    if not source.exists():
        raise FileNotFoundError(f"There is no source {str(source)!r}.")
    if source.resolve() in (target.resolve(), *target.resolve().parents):
        raise ValueError(
            f"target must not be the source or lie in it, got {str(target)!r}: name another folder."
        )
    files = open_source(source, getattr(router, "feature_names_in_", None), columns, keep)
    job = _Job(router, priced, target, budget, files, int(batch_rows))
    job.begin(policy)
    try:
        decide = job.online if policy == "online" else job.capped(files.fragments)
        parts = [job.write(*numbered, decide) for numbered in enumerate(files.fragments)]
    except BaseException:
        job.undo()
        raise
    job.clean()
    sums = np.sum([part[1:] for part in parts], axis=0) if parts else np.zeros(4)
    n_rows = int(sums[0])
    mean = sums[1:] / max(n_rows, 1)
    return RoutedFiles(n_rows, len(parts), sum(part[0] for part in parts), *map(float, mean))


class _Job:
    """One run: what it decides by, and where its parts stand."""

    def __init__(self, router, priced, target, budget, files, batch_rows):
        self.router, self.priced, self.target = router, priced, target
        self.budget, self.files, self.batch_rows = budget, files, batch_rows
        self.seen, self.tied = SeenRows(), []

    def begin(self, policy):
        """Note what the parts will be of; refuse a folder that has parts of something else."""
        stats = [(Path(one.path).name, os.stat(one.path)) for one in self.files.fragments]
        sources = [[name, found.st_size, found.st_mtime_ns] for name, found in stats]
        plan = {
            "router": _identity(self.router, self.priced),
            "choices": [str(name) for name in self.router.choices_],
            "budget": repr(self.budget),
            "policy": policy,
            "columns": self.files.columns,
            "keep": self.files.keep,
            "sources": sources,
        }
        # Folders that this run makes, the outermost last.
        folders = [self.target, *self.target.parents]
        self.made = list(takewhile(lambda folder: not folder.exists(), folders))
        self.target.mkdir(parents=True, exist_ok=True)
        note = self.target / _PLAN
        if not self.has_any():
            _write_whole(note, lambda path: path.write_text(json.dumps(plan)))
        elif not note.exists():
            raise ValueError(f"{self.target.name!r} has parts that are not of this run.")
        elif (was := json.loads(note.read_text())) != plan:
            differs = [name for name in plan if was.get(name) != plan[name]]
            raise ValueError(
                f"{self.target.name!r} holds parts of another run: {differs} differ. Use another "
                "folder, or empty it."
            )

    def has_any(self):
        """Whether there is anything that a run can go on from."""
        own = ("part-*.parquet", "_estimates/*.npy", "_ties/*.npy")
        return any(True for pattern in own for _ in self.target.glob(pattern))

    def undo(self):
        """After a failure: leave what a run can go on from, or else nothing."""
        if self.has_any():
            return
        (self.target / _PLAN).unlink(missing_ok=True)
        for folder in (self.target / "_estimates", self.target / "_ties", *self.made):
            with suppress(OSError):
                folder.rmdir()

    def rows(self, fragment):
        """Batches of a file with what the router reads of them."""
        named, columns = hasattr(self.router, "feature_names_in_"), self.files.columns
        for batch in self.files.batches(fragment, self.batch_rows):
            part = batch.select(columns)
            if named:
                yield batch, part.to_pandas()
            elif len(columns) == 1 and "string" in str(part.schema.types[0]):
                yield batch, part.column(0).to_pylist()
            else:
                found = [column.to_numpy(zero_copy_only=False) for column in part.columns]
                yield batch, np.column_stack(found)

    def online(self, number, start, X, estimates):
        """Choices of rows that are decided alone, those that are tied as in one table."""
        draw = tie_draws(X, seen=self)
        values, costs = estimates - self.priced.docked, self.priced.planned
        return self.priced.decide(values, costs, self.budget, policy="online", draw=draw).route

    def add(self, keys):
        """How often tied rows came before, in any part."""
        self.tied.append(keys)
        return self.seen.add(keys)

    def capped(self, fragments):
        """Choices under one cap over all rows, from estimates that are kept on disk."""
        folder = self.target / "_estimates"
        folder.mkdir(exist_ok=True)
        for number, fragment in enumerate(fragments):
            path = folder / f"{number:05d}.npy"
            if not path.exists():
                _write_whole(path, lambda part, fragment=fragment: self._estimate(part, fragment))
        blocks = [
            (lambda path=folder / f"{number:05d}.npy", low=low: self._block(path, low))
            for number, fragment in enumerate(fragments)
            for low in range(0, max(fragment.count_rows(), 1), self.batch_rows)
            if fragment.count_rows()
        ]
        firsts = np.cumsum([0, *[-(-one.count_rows() // self.batch_rows) for one in fragments]])
        plan = solve_in_passes(blocks, room_of(self.priced, self.budget)) if blocks else None

        def decide(number, start, X, estimates):
            # Batches of a file need not have the rows of a block.
            out, done = [], 0
            while done < len(estimates):
                block, offset = divmod(start + done, self.batch_rows)
                values, costs = blocks[firsts[number] + block]()
                chosen = plan.choices(int(firsts[number] + block), values, costs)[offset:]
                out.append(chosen[: len(estimates) - done])
                done += len(out[-1])
            return np.concatenate(out)

        return decide

    def _estimate(self, path, fragment):
        shape = (fragment.count_rows(), len(self.router.choices_))
        table = np.lib.format.open_memmap(path, "w+", np.float64, shape)
        start = 0
        for batch, X in self.rows(fragment):
            table[start : start + batch.num_rows] = self.read(fragment, X)
            start += batch.num_rows
        table.flush()

    def read(self, fragment, X):
        """Estimated quality of rows of a file; a failure says which file it was."""
        with note_failure(Path(fragment.path).name, len(X), "the quality estimate"):
            return self.router.predict_quality(X)

    def estimates(self, number, fragment, start, X):
        """Quality of rows of a file: those on disk, where they were estimated before."""
        path = self.target / "_estimates" / f"{number:05d}.npy"
        if path.exists():
            return np.load(path, mmap_mode="r")[start : start + len(X)]
        return self.read(fragment, X)

    def _block(self, path, low):
        table = np.load(path, mmap_mode="r")
        return table[low : low + self.batch_rows] - self.priced.docked, self.priced.planned

    def write(self, number, fragment, decide):
        """One part: whether it was there, its rows, and the sums of cost and quality."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.target / f"part-{number:05d}.parquet"
        ties = self.target / "_ties" / f"{number:05d}.npy"
        if path.exists():
            if ties.exists():
                self.seen.add(np.load(ties))
            return [1, *json.loads(pq.ParquetFile(path).metadata.metadata[b"skroute"])]
        costs, deciding = self.priced.planned, self.priced.deciding
        expected = costs
        if self.priced.costs is not costs:
            expected = costs * self.priced.correction(self.budget).cost
        names = pa.array([str(name) for name in self.router.choices_])
        kept = [self.files.schema.field(name) for name in self.files.keep]
        figures = [(name, pa.float64()) for name in ("cost", "quality", "expected_cost")]
        own = [("choice", pa.dictionary(pa.int32(), pa.string())), *figures]
        schema = pa.schema([*kept, *(pa.field(*one) for one in own)])
        sums, self.tied = np.zeros(4), []

        def fill(part):
            start = 0
            with pq.ParquetWriter(part, schema) as writer:
                for batch, X in self.rows(fragment):
                    estimates = self.estimates(number, fragment, start, X)
                    route = decide(number, start, X, estimates)
                    start += len(route)
                    quality = estimates[np.arange(len(route)), route]
                    found = [costs[route] + deciding, quality, expected[route] + deciding]
                    choice = pa.DictionaryArray.from_arrays(route.astype(np.int32), names)
                    columns = [batch.column(name) for name in self.files.keep]
                    columns += [choice, *map(pa.array, found)]
                    writer.write_batch(pa.record_batch(columns, schema=schema))
                    sums[:] += len(route), *map(np.sum, found)
                writer.add_key_value_metadata({"skroute": json.dumps(sums.tolist())})

        def keep_ties():
            # Before the part is there: without them the next parts could not go on.
            if self.tied:
                ties.parent.mkdir(exist_ok=True)
                keys = np.concatenate(self.tied)
                _write_whole(ties, lambda part: _save(part, keys))

        _write_whole(path, fill, before=keep_ties)
        return [0, *sums]

    def clean(self):
        """Drop what only a run that goes on needs."""
        for name in ("_estimates", "_ties"):
            for path in (self.target / name).glob("*.npy"):
                path.unlink()
            if (self.target / name).exists():
                (self.target / name).rmdir()


def _identity(router, priced):
    """A hash of what decides: the fitted policy, and what embeds rows before it."""
    try:
        return joblib.hash([priced, getattr(router, "_embedder", None)])
    except (pickle.PicklingError, AttributeError, TypeError):
        # What cannot be pickled is known by its estimates of the rows that it was fitted on.
        state = [priced.estimate, priced.alone, priced.quality, priced.planned, priced.docked]
        return joblib.hash([*state, priced.path.prices, priced.deciding])


def _save(path, array):
    with open(path, "wb") as file:
        np.save(file, array)


def _write_whole(path, write, before=None):
    """Write a file under another name, then give it its own: it is there whole or not at all."""
    temporary = path.with_name(f"_{path.name}.tmp")
    try:
        write(temporary)
        if before is not None:
            before()
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
