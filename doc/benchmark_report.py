"""The report page from the JSON files of the last full benchmark run.

``benchmarks/results/*.json`` go in, one page of reStructuredText comes out; nothing here knows a
benchmark by name. A file that says ``placeholder`` is shown with a warning.
"""

import json

VERDICTS = {
    "behind": "Behind",
    "equal": "Equal",
    "not comparable": "Not comparable",
    "ahead": "Ahead",
}

_HEAD = """\
.. This page is written by doc/benchmark_report.py from benchmarks/results/*.json.

.. _benchmarks:

==========
Benchmarks
==========

Where skroute is ahead, equal and behind, and where nothing can be compared and why. Numbers are of
runs at each benchmark's own size: ``make bench-NAME`` runs one alone and prints the tables below,
``python benchmarks/run_all.py --full`` all of them, in hours. ``make bench`` takes an hour; what it
measures in a smaller size lies beside these records and replaces none, and its report lists every
claim, the ones behind first. Every benchmark names its data, split and seeds in its file in
``benchmarks/``, compares contenders in one process, and reports out-of-sample numbers only. Times
are medians of alternating calls, and ratios of times carry over to another machine better than
times do.

*Peer* is the best that something else does in the same run, or the paper's number on the same
data. A difference within the noise of the measurement is *equal*. *Bar* is what the project asked
of itself before it measured. A *published* number on other data or another machine is shown and
not compared.
"""


def load_results(folder):
    """Records of all benchmarks, by name.

    Parameters
    ----------
    folder : pathlib.Path

    Returns
    -------
    dict from str to dict
    """
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
    }


def number(value, digits=3):
    """A number as a reader wants it: few digits, no exponent unless it is tiny or huge."""
    if isinstance(value, str):
        return value
    if value == 0:
        return "0"
    if abs(value) >= 10**digits:
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    return text if "e" in text or "." not in text else text.rstrip("0").rstrip(".")


def report(results, absent=()):
    """The whole page.

    Parameters
    ----------
    results : dict from str to dict
        From :func:`load_results`.

    absent : sequence of str, default=()
        Benchmarks without a result.

    Returns
    -------
    str
        reStructuredText.
    """
    parts = [_HEAD]
    stale = [name for name, record in results.items() if "placeholder" in record]
    if stale:
        parts.append(_admonition("warning", "Not of one full run: " + ", ".join(stale) + "."))
    if absent:
        parts.append(_admonition("warning", "No results in the repo: " + ", ".join(absent) + "."))
    if results:
        parts += [_summary(results), _short_lists(results), _published(results)]
    parts += [_section(name, record) for name, record in results.items()]
    if results:
        parts.append(_provenance(results))
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(results):
    rows = []
    for name, record in results.items():
        verdicts = [c["verdict"] for c in record.get("claims", ())]
        counts = [str(verdicts.count(v)) for v in ("ahead", "equal", "behind", "not comparable")]
        missed = sum(c.get("met") is False for c in record.get("claims", ()))
        asked = sum("met" in c for c in record.get("claims", ()))
        link = f":ref:`{_text(record['title'])} <benchmark-{name}>`"
        rows.append([link, *counts, f"{asked - missed} of {asked}" if asked else "none asked"])
    header = ["benchmark", "ahead", "equal", "behind", "not comparable", "bars met"]
    return _heading("In short", "-") + "\n\n" + _table(header, rows, "40 10 10 10 15 15")


def _short_lists(results):
    """What a reader should know first: behind, missed bars, equal, not comparable."""
    text = []
    for verdict in ("behind", "equal"):
        lines = [
            _line(name, claim)
            for name, record in results.items()
            for claim in record.get("claims", ())
            if claim["verdict"] == verdict
        ]
        if lines:
            text += [_heading(VERDICTS[verdict], "-"), "\n".join(lines)]
    lines = [
        f"- {_text(c['what'])}: {_measured(c)}, asked {number(c['bar'])} "
        f"(:ref:`{name} <benchmark-{name}>`)"
        for name, record in results.items()
        for c in record.get("claims", ())
        if c.get("met") is False
    ]
    if lines:
        text += [_heading("Bars that were missed", "-"), "\n".join(lines)]
    return "\n\n".join(text)


def _published(results):
    """What the papers report, beside what was measured here."""
    rows = [
        [
            _text(c["what"]),
            _measured(c),
            _text(number(c["published"]) if "published" in c else number(c["peer"])),
            VERDICTS[c["verdict"]].lower() + (f": {_text(c['why'])}" if c.get("why") else ""),
            f"``{record['command']}``",
        ]
        for record in results.values()
        for c in record.get("claims", ())
        if "published" in c or "published" in c.get("against", "")
    ]
    if not rows:
        return ""
    header = ["what", "here", "published", "comparable?", "command"]
    text = (
        "Each paper's main number, redrawn on the data at hand. The tables that go with it are in "
        "the paper's section below; its figure is in the part of the "
        ":doc:`gallery </auto_examples/index>` that reproduces papers."
    )
    heading = _heading("Beside the published numbers", "-")
    return f"{heading}\n\n{text}\n\n" + _table(header, rows, "30 12 22 20 16", "benchmark-claims")


def _line(name, claim):
    known = claim["verdict"] == "behind" and claim.get("why")
    why = f" Why: {_text(claim['why'])}." if known else ""
    digits = claim.get("digits", 3)
    return (
        f"- {_text(claim['what'])}: {_measured(claim)} beside {number(claim['peer'], digits)} "
        f"of {_text(claim.get('against', 'the peer'))} (:ref:`{name} <benchmark-{name}>`).{why}"
    )


def _measured(claim):
    unit = claim.get("unit", "")
    return number(claim["measured"], claim.get("digits", 3)) + (f" {unit}" if unit else "")


def _section(name, record):
    title = _text(record["title"])
    parts = [f".. _benchmark-{name}:", _heading(title, "-")]
    run = f"``{record['command']}``"
    if record.get("minutes"):
        run += f", {record['minutes']:g} minutes"
    parts.append(run)
    if "placeholder" in record:
        parts.append(_admonition("note", record["placeholder"]))
    if record.get("claims"):
        rows = [
            [
                _text(c["what"]),
                _measured(c),
                f"{number(c['peer'], c.get('digits', 3))}" if "peer" in c else "",
                _text(c.get("against", "")),
                VERDICTS[c["verdict"]].lower(),
                number(c["bar"]) + (" (met)" if c["met"] else " (missed)") if "bar" in c else "",
                _remark(c),
            ]
            for c in record["claims"]
        ]
        header = ["what", "measured", "peer", "who", "verdict", "bar", "remark"]
        parts.append(_table(header, rows, "24 10 7 18 11 9 21", "benchmark-claims"))
    # A part that was not measured leaves a table without rows.
    for table in filter(lambda one: one["rows"], record.get("tables", ())):
        if table["title"].startswith("Claims"):
            continue
        inner = _table(table["header"], table["rows"], None, "benchmark-table")
        parts.append(f".. dropdown:: {_text(table['title'])}\n\n{_indent(inner)}")
    return "\n\n".join(parts)


def _remark(claim):
    remarks = []
    if "published" in claim:
        remarks.append(f"published: {_text(number(claim['published']))}")
    if claim.get("why") and claim["verdict"] in ("behind", "not comparable"):
        remarks.append(_text(claim["why"]))
    return "; ".join(remarks)


def _provenance(results):
    rows = [
        [
            name,
            record["date"],
            f"``{record['commit']}``",
            ", ".join(f"{package} {v}" for package, v in record["versions"].items()),
            f"{record['machine']['cpu']}, {record['machine']['cores']} cores",
        ]
        for name, record in results.items()
    ]
    # A record of parts says of each when it was measured.
    for name, record in results.items():
        result = record.get("result")
        own = result.get("measured", {}) if isinstance(result, dict) else {}
        rows += [
            [f"{name}, {_text(part)}", about["date"], f"``{about['commit']}``", "", ""]
            for part, about in own.items()
        ]
    header = ["benchmark", "date", "commit", "versions", "machine"]
    return _heading("Measured on", "-") + "\n\n" + _table(header, rows, "12 12 13 45 18")


def _heading(text, rule):
    return f"{text}\n{rule * len(text)}"


def _admonition(kind, text):
    return f".. {kind}::\n\n   {_text(text)}"


def _text(text):
    """Plain text, with what reStructuredText would read as markup escaped."""
    return "".join(f"\\{letter}" if letter in "*`|_\\" else letter for letter in str(text))


def _indent(text):
    return "\n".join(f"   {line}" if line else "" for line in text.splitlines())


def _table(header, rows, widths, name=None):
    lines = [".. list-table::", "   :header-rows: 1"]
    if widths:
        lines.append(f"   :widths: {widths}")
    if name:
        lines.append(f"   :class: {name}")
    lines.append("")
    for row in [header, *rows]:
        for position, cell in enumerate(row):
            # Cells of measured tables are plain; those made here may hold roles.
            text = cell if name != "benchmark-table" else _text(cell)
            bullet = "   * - " if position == 0 else "     - "
            lines.append((bullet + str(text)).rstrip())
    return "\n".join(lines)


def write_report(results_folder, page):
    """Write the page unless it is there already with the same text.

    Parameters
    ----------
    results_folder : pathlib.Path
    page : pathlib.Path
    """
    results = load_results(results_folder)
    scripts = sorted(results_folder.parent.glob("bench_*.py"))
    names = [path.stem.removeprefix("bench_") for path in scripts]
    text = report(results, [name for name in names if name not in results])
    if not page.exists() or page.read_text(encoding="utf-8") != text:
        page.write_text(text, encoding="utf-8")
