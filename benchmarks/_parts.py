"""A benchmark in parts: each is measured alone, where and when it suits, and one record has all.

python benchmarks/bench_X.py                          # all parts
python benchmarks/bench_X.py --part A B               # these; the others are kept as they are
python benchmarks/bench_X.py --part A --into a.json   # into a file, also on another machine
python benchmarks/bench_X.py --merge a.json b.json    # the record from files and what is kept
"""

import argparse
import json
import time
from pathlib import Path

from _harness import RESULTS, _plain, provenance, save


def run(name, doc, parts, show, title):
    """Measure what the command line asks for, print it and write it down.

    Parameters
    ----------
    name : str
        Of the record.

    doc : str
        Its first line says what the benchmark is.

    parts : mapping from str to callable
        Called with whether it is a short run; returns what JSON can hold.

    show : callable
        From the results by part, of which some may be missing, to the payload and the claims;
        prints the tables.

    title : str
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="fewer trees and rows, seconds")
    parser.add_argument("--part", nargs="+", choices=list(parts), help="these alone")
    parser.add_argument("--into", help="a file for the parts measured, in place of the record")
    parser.add_argument("--merge", nargs="+", default=[], help="files written with --into")
    given = parser.parse_args()
    asked = given.part or ([] if given.merge else list(parts))
    kept, path = {"parts": {}, "measured": {}}, RESULTS / f"{name}.json"
    files = [json.loads(Path(file).read_text()) for file in given.merge]
    if (given.part or given.merge) and path.is_file() and not given.short:
        files = [json.loads(path.read_text())["result"], *files]
    for file in files:
        for about in file.get("measured", {}).values():
            # Measured on a copy without a repo.
            about["commit"] = about["commit"].replace("unknown", provenance()["commit"])
        for what in kept:
            kept[what] |= file.get(what, {})
    found = {what: {} for what in kept}
    for part in asked:
        print(f"part {part!r}", flush=True)
        start = time.process_time()
        result = json.loads(json.dumps(parts[part](given.short), default=_plain))
        about = provenance()
        found["parts"][part] = result
        found["measured"][part] = {
            "date": about["date"],
            "commit": about["commit"],
            "cpu": about["machine"]["cpu"],
            "processor_minutes": round((time.process_time() - start) / 60, 1),
        }
    if given.into:
        Path(given.into).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    every = {}
    for what in kept:
        known = kept[what] | found[what]
        every[what] = {part: known[part] for part in parts if part in known}
    payload, claims = show(found["parts"] if given.into else every["parts"])
    write = not (given.short or given.into)
    save(name, payload | every, title=title, claims=claims, write=write)
