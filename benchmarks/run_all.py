"""Run the benchmarks, each in a process of its own: ``python benchmarks/run_all.py``.

Those that measure no time run two at once, the others alone and after them. Without `--full` or
names the whole ends in an hour on two cores: `HOUR` says what is smaller or left out then. **A
job that is smaller than its benchmark's own size writes beside the record, to
benchmarks/results/hour/, and never over it**; one of full size replaces its record, one of a part
at full size that part of it. One that takes longer than its limit is ended and named, and the
others go on; where the hour is over, those not begun are named. At the end stand every claim of
every benchmark, behind first, and how each job ended; the same is in results/hour/report.txt.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from _harness import KEPT, report

HERE = Path(__file__).parent
# No claim of theirs is a time. The longest begin, so that both cores end at the same time.
STATISTICS = "acquisition gating guarantees logs budgets frugal objectives".split()
MINUTES = 59
_RUNNING = []
LIMIT = 20


class Job(NamedTuple):
    """One process.

    Attributes
    ----------
    name : str
        Of the benchmark.
    options : tuple of str
    alone : bool
        With nothing beside it: it measures time.
    smaller : bool
        Its record is poorer than that of the benchmark's own size, and lies beside it.
    """

    name: str
    options: tuple = ()
    alone: bool = False
    smaller: bool = False


def smaller(name, options, *, alone=False):
    return Job(name, tuple(options.split()), alone, True)


# What the hour runs in place of a benchmark's own size; at that, these take from ten minutes to
# many hours.
HOUR = {
    "acquisition": [Job("acquisition", ("--quick",))],
    "budgets": [smaller("budgets", "--splits 5")],
    "early_exit": [Job("early_exit", ("--part", "speed", "search"), True)],
    # Parts are kept as pieces, which the last one reads.
    "estimates": [
        smaller("estimates", "--part made_up --rows 1000"),
        smaller("estimates", "--part tables --rows 1000 --fold 0"),
        smaller("estimates", "--part searches --rows 1000", alone=True),
        smaller("estimates", "--part speed --rows 1000", alone=True),
        smaller("estimates", "--merge --rows 1000", alone=True),
    ],
    # All but COMMAND, of 32,000 rows.
    "frugal": [
        smaller(
            "frugal",
            "--seeds 1 --sets AUDIOMNIST,FERPLUS,WAIMAI,EXPW,DIGIT,YELP,IMDB,PASCAL",
        )
    ],
    "gating": [Job("gating", ("--quick",))],
    "ledger": [smaller("ledger", "--divide 10", alone=True)],
    "logs": [smaller("logs", "--logs 10")],
    # Each replaces its own parts of the record.
    "objectives": [
        Job("objectives", ("--sets", "made up,Adult")),
        Job("objectives", ("--sets", "Covertype,regression")),
    ],
    "occam": [Job("occam", ("--part", "usps"), True)],
    # Their few times are those beside another benchmark.
    "lifecycle": [smaller("lifecycle", "")],
    "llm_routing": [smaller("llm_routing", "")],
    "online": [smaller("online", "")],
    "scale": [smaller("scale", "--rows 3e6", alone=True)],
    "service": [smaller("service", "--seconds 40", alone=True)],
}


def plan(names=(), *, short=False, full=False):
    """The jobs in the order in which they begin: those side by side, then those alone.

    Parameters
    ----------
    names : sequence of str
        These benchmarks alone, at their own size; empty takes all.

    short, full : bool

    Returns
    -------
    list of Job
    """
    # What needs a CUDA device says so and ends where there is none; --short runs anywhere.
    known = [path.stem.removeprefix("bench_") for path in scripts()]
    if unknown := set(names) - set(known):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    jobs = []
    for name in names or known:
        whole = [Job(name, ("--short",) if short else (), name not in STATISTICS)]
        jobs += whole if names or full or short else HOUR.get(name, whole)

    def place(job):
        # What the list does not name comes behind its longest three.
        return job.alone, STATISTICS.index(job.name) if job.name in STATISTICS else 2.5

    return sorted(jobs, key=place)


def scripts():
    return sorted(HERE.glob("bench_*.py")) + sorted(HERE.glob("cuda_*.py"))


class Ended(NamedTuple):
    """What became of a job: `how` is "ended", "failed" or what the limit did."""

    job: Job
    seconds: float
    how: str


def run(job, *, apart, limit, until=float("inf")):
    """Run one job; `apart` prints what it says when it is over.

    Parameters
    ----------
    job : Job

    apart : bool

    limit : float
        Seconds.

    until : float, default=inf
        Time (of `time.perf_counter`) at which everything is to be over.

    Returns
    -------
    Ended
    """
    began = time.perf_counter()
    limit = min(limit, until - began)
    if limit <= 0:
        return Ended(job, 0.0, "not begun: the hour was over")
    (script,) = [path for path in scripts() if path.stem.removeprefix("bench_") == job.name]
    environment = dict(os.environ)
    if apart:
        # Two at once must not take two threads each.
        environment.setdefault("OMP_NUM_THREADS", "1")
    if job.smaller:
        environment["SKROUTE_BENCH_RESULTS"] = str(KEPT / "hour")
    with tempfile.TemporaryFile("w+") as said:
        where = {"stdout": said, "stderr": subprocess.STDOUT} if apart else {}
        heading = f"\n=== {' '.join([job.name, *job.options])}"
        if not apart:
            print(heading, flush=True)
        # In a session of its own: what it has started ends with it.
        process = subprocess.Popen(
            [sys.executable, str(script), *job.options],
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **where,
        )
        _RUNNING.append(process)
        try:
            code = process.wait(limit)
            how = "failed" if code else "ended"
        except subprocess.TimeoutExpired:
            how = f"stopped after {limit:.0f} s"
        finally:
            stop(process)
        if apart:
            said.seek(0)
            print(f"{heading}\n{said.read()}", flush=True)
    return Ended(job, time.perf_counter() - began, how)


def stop(process):
    """End what is left of a process and of those it has started."""
    if hasattr(os, "killpg"):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    elif process.poll() is None:
        process.kill()
    process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="seconds instead of minutes each")
    parser.add_argument("--full", action="store_true", help="all at their own defaults; hours")
    parser.add_argument("--limit", type=float, help="minutes of a benchmark at most")
    parser.add_argument("only", nargs="*", help="names of benchmarks, without bench_ and .py")
    arguments = parser.parse_args()
    hour = not (arguments.only or arguments.short or arguments.full)
    start, began = time.perf_counter(), time.time()
    jobs = plan(arguments.only, short=arguments.short, full=arguments.full)
    limit = {"limit": 60 * (arguments.limit or (LIMIT if hour else 24 * 60))}
    if hour:
        limit["until"] = start + 60 * MINUTES
        for old in (KEPT / "hour").glob("*"):
            old.unlink()
    together = [job for job in jobs if not job.alone]
    # They have sessions of their own: who ends this ends them, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(run, job, apart=len(together) > 1, **limit) for job in together]
        try:
            ended = [one.result() for one in asked]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in _RUNNING:
                if process.poll() is None:
                    stop(process)
            raise
    ended += [run(job, apart=False, **limit) for job in jobs if job.alone]
    lines = [
        f"{one.seconds:6.0f} s  {' '.join([one.job.name, *one.job.options])}: {one.how}"
        for one in ended
    ]
    took = (time.perf_counter() - start) / 60
    lines.append(f"{len(ended)} jobs in {took:.1f} minutes")
    text = "\n".join(lines)
    if not arguments.short:
        text = report({one.job.name for one in ended}, since=began) + "\n\n" + text
    print("\n" + text)
    if hour:
        (KEPT / "hour").mkdir(parents=True, exist_ok=True)
        (KEPT / "hour" / "report.txt").write_text(text + "\n")
    # One that fails does not cost the others their run.
    if failed := [one for one in ended if one.how != "ended"]:
        sys.exit("\n".join(f"{one.job.name} {one.how}" for one in failed))
    if not arguments.short:
        print("`make readme` takes the new records into the README.")


if __name__ == "__main__":
    main()
