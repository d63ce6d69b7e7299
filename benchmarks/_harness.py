"""What every benchmark needs: contenders in turn in one process, tables, claims, a JSON file.

A benchmark measures, prints its tables with :func:`table`, says with :func:`claim` what each
number that matters is to be compared with, and hands both to :func:`save`. The site's report
page (doc/benchmark_report.py) and the README's table (benchmarks/readme.py) are made of these
files and know no benchmark by name.
"""

import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

KEPT = Path(__file__).parent / "results"
# A run that is smaller than its benchmark's own size is told to write elsewhere.
RESULTS = Path(os.environ.get("SKROUTE_BENCH_RESULTS") or KEPT)
# The references of the tests are contenders too: `from tests...` works from any folder.
sys.path.append(str(Path(__file__).parents[1]))
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "lightgbm", "highspy")
_START = time.perf_counter()
_since = _START
_TABLES = []


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
    _TABLES.append({"title": title, "header": text[0], "rows": text[1:]})
    widths = [max(len(row[column]) for row in text) for column in range(len(header))]
    print(f"\n{title}\n{'-' * len(title)}")
    for row in text:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths)))


def _cell(value):
    return f"{value:.5g}" if isinstance(value, (float, np.floating)) else str(value)


def claim(key, what, measured, *, peer=None, against="", better="higher", within=0.0, **more):
    """One measured number and what it is compared with.

    Parameters
    ----------
    key : str
        Name of the number, unique in its benchmark; the README refers to it.

    what : str
        What was measured: data, method, quantity.

    measured : float

    peer : float, default=None
        The same number for the peer in the same run, or as published. None: there is nothing to
        compare with, or the data or the machine differ; `why` then says so.

    against : str, default=""
        Who the peer is.

    better : {"higher", "lower"}, default="higher"

    within : float, default=0.0
        Differences up to this count as equal: the noise of the measurement.

    **more
        `unit`: shown after the numbers. `digits`: significant digits shown, 3 by default.
        `bar`: what the project asks of itself. `published`: the paper's number on other data.
        `why`: the reason, where skroute is behind or nothing can be compared.

    Returns
    -------
    dict
        The arguments, and the `verdict`: "ahead", "equal", "behind" or "not comparable"; with
        a `bar`, whether it is `met`.
    """
    if unknown := set(more) - {"unit", "digits", "bar", "published", "why"}:
        raise TypeError(f"claim {key!r} has unknown entries {sorted(unknown)}.")
    sign = {"higher": 1.0, "lower": -1.0}[better]
    found = {"key": key, "what": what, "measured": float(measured), "better": better, **more}
    if peer is None:
        found["verdict"] = "not comparable"
    else:
        lead = sign * (found["measured"] - peer)
        found["verdict"] = "equal" if abs(lead) <= within else "ahead" if lead > 0 else "behind"
        found["peer"] = float(peer)
    if against:
        found["against"] = against
    if "bar" in more:
        found["met"] = bool(sign * (found["measured"] - more["bar"]) >= 0)
    return found


def tables_so_far():
    """The tables printed by this process, for a piece."""
    return list(_TABLES)


def keep_piece(folder, part, seed, record):
    """Write what one seed of one part of a benchmark gave: ``<folder>/<part>-<seed>.json``.

    Pieces are measured by independent processes, on any machine, and put together by
    :func:`read_pieces`. None as `folder` keeps nothing.
    """
    if folder is None:
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    global _since
    minutes, _since = (time.perf_counter() - _since) / 60, time.perf_counter()
    found = {"part": part, "seed": seed, "record": record, "measured": provenance()}
    text = json.dumps(found | {"minutes": minutes}, default=_plain)
    (Path(folder) / f"{part}-{seed}.json").write_text(text)


def read_pieces(folder):
    """Records by part, in the order of their seeds, and what most of them were measured on."""
    found = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*-*.json"))]
    records, measured = {}, {}
    for piece in sorted(found, key=lambda piece: piece["seed"]):
        records.setdefault(piece["part"], []).append(piece["record"])
        own = piece["measured"]
        if own["commit"] == "unknown":
            own["commit"] = _commit()
        measured.setdefault(json.dumps(own), []).append(own)
    most = max(measured.values(), key=len)[0]
    return records, most | {"minutes": round(sum(piece["minutes"] for piece in found), 1)}


def standard_error(gaps, tested):
    """Of the mean over splits of differences, row by row.

    Splits differ in all that was fitted, and a row that several splits test differs from others
    in each of them: the variance has both (A. C. Cameron, J. B. Gelbach, D. L. Miller, "Robust
    Inference With Multiway Clustering", 2011). It is not less than that of independent rows.

    Parameters
    ----------
    gaps : list of ndarray of shape (n_rows,)
        For each split.
    tested : list of ndarray of shape (n_rows,), dtype=int
        Which row of the table each is.
    """
    n_splits, mean = len(gaps), np.mean([gap.mean() for gap in gaps])
    parts = [(gap - mean) / (len(gap) * n_splits) for gap in gaps]
    cells = sum((part**2).sum() for part in parts)
    _, row = np.unique(np.concatenate(tested), return_inverse=True)
    rows = (np.bincount(row, np.concatenate(parts)) ** 2).sum()
    splits = sum(part.sum() ** 2 for part in parts) * n_splits / max(n_splits - 1, 1)
    return float(np.sqrt(max(rows + splits - cells, cells)))


def save(name, payload, *, title="", claims=(), tables=(), write=True, measured=None):
    """Write a result with what it was measured on to ``benchmarks/results/<name>.json``.

    Parameters
    ----------
    name : str

    payload : JSON-serialisable

    title : str, default=""
        Heading on the report page: the paper, or what it is about.

    claims : sequence of dict, default=()
        From :func:`claim`. Printed as a last table.

    tables : sequence of dict, default=()
        Tables of an earlier record that are kept, in front of those of this run.

    write : bool, default=True
        False for a short run: its claims are computed and printed, so that they cannot rot, but
        its numbers are not worth keeping.

    measured : dict, default=None
        From :func:`read_pieces`, where and when it was measured. None: here and now.
    """
    tables = sorted([*tables, *_TABLES], key=lambda one: one["title"]) if tables else list(_TABLES)
    if claims:
        keys = [found["key"] for found in claims]
        assert len(set(keys)) == len(keys), f"claims of {name!r} share a key: {keys}"
        rows = [
            [c["what"], c["measured"], c.get("unit", ""), c.get("peer", "-"), c["verdict"]]
            + [c.get("bar", "-"), c.get("met", "-")]
            for c in claims
        ]
        table(
            "Claims" if write else "Claims (short run: only the full run says something)",
            ["what", "measured", "unit", "peer", "verdict", "bar", "met"],
            rows,
        )
    _TABLES.clear()
    if not write:
        return
    RESULTS.mkdir(parents=True, exist_ok=True)
    record = {
        "title": title or name,
        "command": command(name),
        "minutes": round((time.perf_counter() - _START) / 60, 1),
        **(measured or provenance()),
        "claims": list(claims),
        "tables": tables,
        "result": payload,
    }
    path = RESULTS / f"{name}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=1, default=_plain, ensure_ascii=False) + "\n")
    temporary.replace(path)


def report(names, *, since=0.0):
    """Every claim of some benchmarks, behind first.

    Of each benchmark the record that was written last: in `KEPT`, or of a smaller run in its
    folder `hour`.

    Parameters
    ----------
    names : iterable of str

    since : float, default=0.0
        Seconds since the epoch: an older record is marked with its day and commit.

    Returns
    -------
    str
    """
    claims, absent = [], []
    for name in sorted(names):
        paths = [KEPT / f"{name}.json", KEPT / "hour" / f"{name}.json"]
        if not (paths := [path for path in paths if path.is_file()]):
            absent.append(name)
            continue
        path = max(paths, key=lambda path: path.stat().st_mtime)
        record = json.loads(path.read_text(encoding="utf-8"))
        marks = ["smaller run"] if path.parent != KEPT else []
        if path.stat().st_mtime < since:
            marks.append(f"of {record['date']}, commit {record['commit']}")
        mark = f" [{', '.join(marks)}]" if marks else ""
        claims += [(f"{name}{mark}", one) for one in record["claims"]]
    lines = []
    for verdict in ("behind", "equal", "not comparable", "ahead"):
        own = [(name, one) for name, one in claims if one["verdict"] == verdict]
        lines += ["", f"{verdict} ({len(own)} of {len(claims)} claims)"]
        lines += [f"  {name}: {_sentence(one)}" for name, one in own]
    missed = [(name, one) for name, one in claims if one.get("met") is False]
    lines += ["", f"bars missed ({len(missed)} of {sum('bar' in one for _, one in claims)})"]
    lines += [f"  {name}: {_sentence(one)}" for name, one in missed]
    if absent:
        lines += ["", f"without a record: {', '.join(absent)}"]
    return "\n".join(lines)


def _sentence(found):
    """A claim in a line."""
    unit = f" {found['unit']}" if found.get("unit") else ""
    text = f"{found['what']}: {found['measured']:.4g}{unit}"
    if "peer" in found:
        text += f" beside {found['peer']:.4g} of {found.get('against') or 'the peer'}"
    if "bar" in found:
        text += f", bar {found['bar']:.4g}{'' if found['met'] else ' (missed)'}"
    shown = found.get("why") and found["verdict"] in ("behind", "not comparable")
    return text + (f" ({found['why']})" if shown else "")


def command(name):
    """What makes a record: its make target, or this process's own command if that has options."""
    script, *options = sys.argv
    if not options or Path(script).resolve().parent != Path(__file__).resolve().parent:
        return f"make bench-{name}"
    # Of a path its last part: where somebody's files are is nobody's business.
    options = [Path(one).name if Path(one).is_absolute() else one for one in options]
    return f"python benchmarks/{Path(script).name} {' '.join(options)}"


def provenance():
    """Date, commit, versions and machine; no host name, no path."""
    import skroute

    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": _commit(),
        "versions": {
            "skroute": skroute.__version__,
            "python": platform.python_version(),
            **{package: _version(package) for package in PACKAGES},
        },
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.system()},
    }


def _version(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def _commit():
    """Short id of the commit, with a + if the working tree differs from it."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], **_QUIET).stdout.strip()
        # Fresh results of this same run are no change of the code.
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", "../skroute", "*.py"], **_QUIET
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed.stdout.strip() else "")


_QUIET = {"check": True, "capture_output": True, "text": True}


def _cpu():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _plain(value):
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else float(value)
