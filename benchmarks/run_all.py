"""Run every benchmark, each in a process of its own: ``python benchmarks/run_all.py``."""

import argparse
import subprocess
import sys
import time
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="seconds instead of minutes each")
    parser.add_argument("only", nargs="*", help="names of benchmarks, without bench_ and .py")
    arguments = parser.parse_args()
    here = Path(__file__).parent
    # What needs a CUDA device says so and ends where there is none; --short runs anywhere.
    scripts = sorted(here.glob("bench_*.py")) + sorted(here.glob("cuda_*.py"))
    if arguments.only:
        scripts = [path for path in scripts if path.stem.removeprefix("bench_") in arguments.only]
    start, failed = time.perf_counter(), []
    for script in scripts:
        print(f"\n=== {script.name}", flush=True)
        command = [sys.executable, str(script), *(["--short"] if arguments.short else [])]
        began = time.perf_counter()
        # One that fails does not cost the others their run.
        if subprocess.run(command).returncode:
            failed.append(script.name)
        print(f"{script.name}: {time.perf_counter() - began:.0f} s", flush=True)
    print(f"\n{len(scripts)} benchmarks in {(time.perf_counter() - start) / 60:.1f} minutes")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    if not arguments.short:
        print("`make readme` takes the new results into the README.")


if __name__ == "__main__":
    main()
