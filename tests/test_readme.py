"""The README says what is so: its example runs and prints what it says, its links exist."""

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_example_prints_what_it_says():
    """But for the last digits, which depend on the processor."""
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    told = re.findall(r"^# .*?(\d+\.\d+).*?(\d+\.\d+)", code, re.MULTILINE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    found = [tuple(re.findall(r"\d+\.\d+", line)) for line in printed.getvalue().splitlines()]
    assert len(told) == len(found) > 0
    for expected, got in zip(told, found):
        assert all(abs(float(a) - float(b)) < 0.051 for a, b in zip(expected, got))


def test_commands_and_links_exist():
    make = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"(?:`|\$ )make ([\w-]+)", README)):
        if target.startswith("bench-"):
            assert (ROOT / "benchmarks" / f"bench_{target.removeprefix('bench-')}.py").is_file()
        else:
            assert f"\n{target}:" in make, target
    for path in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / path).exists(), path
