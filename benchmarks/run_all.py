"""Run the benchmarks, each in a process of its own: ``python benchmarks/run_all.py``.

Those that measure no time run two at once, the others alone and after them. Without `--full`,
those in `SIZES` run with fewer repetitions than their own defaults, so that the whole ends in less
than an hour on two cores; the saved results name the command that made them. A benchmark that is
named on the command line (`make bench-logs`) runs at its own defaults.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
# No claim of theirs is a time.
STATISTICS = "acquisition budgets frugal gating guarantees logs objectives where".split()
# At their own defaults these take an hour or more.
SIZES = {
    "acquisition": ["--seeds", "0"],
    "budgets": ["--splits", "20"],
    "estimates": ["--rows", "1000"],
    "gating": ["--seeds", "10", "11"],
    "logs": ["--logs", "20"],
}


def name_of(script):
    return script.stem.removeprefix("bench_")


def plan(names=(), *, short=False, full=False):
    """Commands of the benchmarks: those that run side by side, and those that run alone.

    Parameters
    ----------
    names : sequence of str
        These alone; empty takes all.

    short, full : bool

    Returns
    -------
    together, alone : dict from str to list of str
    """
    # What needs a CUDA device says so and ends where there is none; --short runs anywhere.
    scripts = sorted(HERE.glob("bench_*.py")) + sorted(HERE.glob("cuda_*.py"))
    scripts = {name_of(script): script for script in scripts}
    if unknown := set(names) - set(scripts):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(scripts)}")
    together, alone = {}, {}
    for name in names or scripts:
        sized = [] if names or full else SIZES.get(name, [])
        command = [str(scripts[name]), *(["--short"] if short else sized)]
        (together if name in STATISTICS else alone)[name] = command
    return together, alone


def run(name, command, *, apart):
    """Seconds and exit code of one benchmark; `apart` prints what it says at its end."""
    began = time.perf_counter()
    if apart:
        # Two at once must not take two threads each.
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        done = subprocess.run(
            [sys.executable, *command],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        print(f"\n=== {name}\n{done.stdout}", flush=True)
    else:
        print(f"\n=== {name}", flush=True)
        done = subprocess.run([sys.executable, *command])
    return name, time.perf_counter() - began, done.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="seconds instead of minutes each")
    parser.add_argument("--full", action="store_true", help="all at their own defaults; hours")
    parser.add_argument("only", nargs="*", help="names of benchmarks, without bench_ and .py")
    arguments = parser.parse_args()
    start = time.perf_counter()
    together, alone = plan(arguments.only, short=arguments.short, full=arguments.full)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(run, *one, apart=len(together) > 1) for one in together.items()]
        ended = [one.result() for one in asked]
    ended += [run(*one, apart=False) for one in alone.items()]
    print("\n" + "\n".join(f"{name:>16} {seconds:6.0f} s" for name, seconds, _ in ended))
    print(f"{len(ended)} benchmarks in {(time.perf_counter() - start) / 60:.1f} minutes")
    # One that fails does not cost the others their run.
    if failed := [name for name, _, code in ended if code]:
        sys.exit(f"failed: {', '.join(failed)}")
    if not arguments.short:
        print("`make readme` takes the new results into the README.")


if __name__ == "__main__":
    main()
