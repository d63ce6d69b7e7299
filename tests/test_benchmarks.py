"""The benchmark framework and the report page that is made of its files."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
for folder in ("benchmarks", "doc"):
    sys.path.insert(0, str(ROOT / folder))

import _harness  # noqa: E402
import benchmark_report  # noqa: E402
import run_all  # noqa: E402


@pytest.mark.parametrize(
    "measured, about, verdict",
    [
        (2.0, {"peer": 1}, "ahead"),
        (0.5, {"peer": 1}, "behind"),
        (0.5, {"peer": 1, "better": "lower"}, "ahead"),
        (1.01, {"peer": 1, "within": 0.02}, "equal"),
        (np.nan, {"peer": 1}, "behind"),
        (2.0, {}, "not comparable"),
    ],
)
def test_verdict(measured, about, verdict):
    assert _harness.claim("key", "what", measured, **about)["verdict"] == verdict


@pytest.mark.parametrize("better, met", [("higher", False), ("lower", True)])
def test_bar(better, met):
    assert _harness.claim("key", "what", 3, better=better, bar=4)["met"] is met


def test_claim_takes_no_unknown_entry():
    with pytest.raises(TypeError, match=r"'key' has unknown entries \['unti'\]"):
        _harness.claim("key", "what", 1, unti="s")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(_harness, "RESULTS", tmp_path)
    return tmp_path


def test_save_keeps_tables_claims_and_what_they_were_measured_on(folder, capsys):
    _harness.table("A *title*", ["a", "b"], [["x_y", 1.23456789]])
    claims = [_harness.claim("k", "speed", 3, peer=1, bar=4, unit="times")]
    payload = {"array": np.arange(2), "scalar": np.float64(1.5), "flag": np.bool_(True)}
    _harness.save("thing", payload, title="Thing", claims=claims)
    record = json.loads((folder / "thing.json").read_text())
    assert record["result"] == {"array": [0, 1], "scalar": 1.5, "flag": True}
    assert record["command"] == "make bench-thing"
    assert record["tables"] == [
        {"title": "A *title*", "header": ["a", "b"]} | {"rows": [["x_y", "1.2346"]]}
    ]
    assert record["claims"][0]["verdict"] == "ahead"
    assert record["versions"]["skroute"] and record["machine"]["cores"]
    assert "Claims" in capsys.readouterr().out

    page = benchmark_report.report({"thing": record}, ["other"])
    assert "No results in the repo: other." in page
    assert ".. dropdown:: A \\*title\\*" in page and "x\\_y" in page
    assert "4 (missed)" in page and "3 times" in page


@pytest.mark.parametrize(
    "argv, said",
    [
        (["benchmarks/bench_thing.py"], "make bench-thing"),
        (["bench_thing.py", "--logs", "20"], "python benchmarks/bench_thing.py --logs 20"),
        (["bench_other.py", "--merge", "/elsewhere/x/b.json"], "python benchmarks/bench_other.py "),
        (["/usr/bin/pytest", "-q"], "make bench-thing"),
    ],
)
def test_a_record_names_the_command_that_made_it(argv, said, monkeypatch):
    script = Path(argv[0])
    script = script if script.is_absolute() else ROOT / "benchmarks" / script.name
    monkeypatch.setattr(sys, "argv", [str(script), *argv[1:]])
    assert _harness.command("thing").startswith(said)
    # As it is typed.
    monkeypatch.chdir(ROOT)
    sys.argv[0] = argv[0] if script.parent.name != "benchmarks" else f"benchmarks/{script.name}"
    assert _harness.command("thing").startswith(said)
    assert "elsewhere" not in _harness.command("thing")


def test_all_benchmarks_are_planned_and_those_named_at_their_own_size():
    every = {path.stem.removeprefix("bench_") for path in (ROOT / "benchmarks").glob("bench_*.py")}
    jobs = run_all.plan()
    assert every | {"cuda_neural"} == {job.name for job in jobs}
    assert [job.alone for job in jobs] == sorted(job.alone for job in jobs)
    # A name that is no benchmark would be sized, or run beside another, without a word.
    assert set(run_all.HOUR) | set(run_all.STATISTICS) <= every
    assert all(job.name == name for name, own in run_all.HOUR.items() for job in own)
    (logs,) = [job for job in jobs if job.name == "logs"]
    assert logs.smaller and logs.options[0] == "--logs" and not logs.alone
    for own in (run_all.plan(["logs"]), run_all.plan(full=True), run_all.plan(short=True)):
        assert not any(job.smaller for job in own)
        assert {job.options for job in own} <= {(), ("--short",)}


@pytest.fixture
def scripts(tmp_path, monkeypatch, folder):
    """A folder for benchmarks; its records lie apart from the repo's."""
    monkeypatch.setattr(run_all, "HERE", tmp_path / "scripts")
    monkeypatch.setattr(run_all, "KEPT", folder)
    monkeypatch.setattr(_harness, "KEPT", folder)
    monkeypatch.setattr(sys, "argv", ["run_all.py"])
    (tmp_path / "scripts").mkdir()
    return tmp_path / "scripts"


def test_one_that_fails_or_hangs_costs_the_others_nothing(scripts, monkeypatch, capsys):
    (scripts / "bench_frugal.py").write_text("import sys; print('was here'); sys.exit(3)")
    # What it has started ends with it, and does not keep its output open.
    (scripts / "bench_logs.py").write_text(
        "import subprocess, sys\n"
        "print('hangs', flush=True)\n"
        "subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    )
    (scripts / "bench_budgets.py").write_text("print('and here')")
    monkeypatch.setattr(sys, "argv", ["run_all.py", "--full", "--limit", "0.02"])
    with pytest.raises(SystemExit, match="(?s)logs stopped after 1 s\nfrugal failed"):
        run_all.main()
    said = capsys.readouterr().out
    assert "was here" in said and "hangs" in said and "and here" in said
    assert "3 jobs in" in said and "budgets: ended" in said
    assert "without a record: budgets, frugal, logs" in said


def test_a_smaller_run_lies_beside_the_record_and_the_report_has_every_claim(
    scripts, monkeypatch, capsys, folder
):
    text = """
import sys
sys.path.insert(0, {benchmarks!r})
import _harness
own = [_harness.claim(f"{{v}}-{{i}}", f"{{v}} {{i}} of {name}", 1, peer=p, why="so it is", bar=2)
       for v, p in (("ahead", 0), ("equal", 1), ("behind", 2), ("alone", None)) for i in range(2)]
_harness.save({name!r}, sys.argv[1:], claims=own)
"""
    for name in ("logs", "where"):
        own = text.format(benchmarks=str(ROOT / "benchmarks"), name=name)
        (scripts / f"bench_{name}.py").write_text(own)
    (folder / "logs.json").write_text('"the full record"')
    # The benchmarks are processes of their own: their records go where the run says.
    monkeypatch.setenv("SKROUTE_BENCH_RESULTS", str(folder))
    run_all.main()
    assert (folder / "logs.json").read_text() == '"the full record"'
    assert json.loads((folder / "hour" / "logs.json").read_text())["result"][0] == "--logs"
    assert json.loads((folder / "where.json").read_text())["result"] == []
    said = (folder / "hour" / "report.txt").read_text()
    assert said.strip() in capsys.readouterr().out
    begins = [said.index(f"{name} (4 of 16 claims)") for name in
              ("behind", "equal", "not comparable", "ahead")]  # fmt: skip
    assert begins == sorted(begins)
    assert "bars missed (16 of 16)" in said
    assert "  logs [smaller run]: behind 1 of logs: 1 beside 2 of the peer, bar 2 (missed)" in said
    assert "  where: alone 0 of where: 1, bar 2 (missed) (so it is)" in said
    # What was not measured in this run says so.
    earlier = _harness.report(["where"], since=time.time() + 60)
    assert "  where [of 20" in earlier and "(2 of 8 claims)" in earlier


def test_what_the_hour_has_no_time_for_is_not_begun(scripts):
    ended = run_all.run(run_all.Job("logs"), apart=True, limit=60, until=time.perf_counter() - 1)
    assert ended.how == "not begun: the hour was over"


def test_a_short_run_prints_its_claims_and_writes_nothing(folder, capsys):
    _harness.save("thing", {}, claims=[_harness.claim("k", "speed", 3)], write=False)
    assert not list(folder.iterdir())
    assert "short run" in capsys.readouterr().out


def test_claims_of_one_key_are_an_error(folder):
    with pytest.raises(AssertionError, match="share a key"):
        _harness.save("thing", {}, claims=[_harness.claim("k", "a", 1)] * 2)


def test_report_lists_what_is_behind_first_with_its_reason():
    claims = [
        _harness.claim("a", "this one", 1, peer=2, against="the peer", why="it sorts less"),
        _harness.claim("b", "that one", 2, peer=2, against="the peer", why="not shown"),
    ]
    record = {"title": "T", "command": "make bench-t", "claims": claims, **_harness.provenance()}
    assert "published numbers" not in benchmark_report.report({"t": record})
    claims.append(_harness.claim("c", "trees", 40, published=41, why="another ensemble"))
    page = benchmark_report.report({"t": record | {"placeholder": "old"}})
    beside = page.split("Beside the published numbers")[1].split(".. _benchmark-t:")[0]
    assert re.search(r"trees\n     - 40\n     - 41\n     - not comparable: another", beside)
    assert page.index("Behind") < page.index("Equal") < page.index(".. _benchmark-t:")
    assert "this one: 1 beside 2 of the peer (:ref:`t <benchmark-t>`). Why: it sorts less." in page
    assert "not shown" not in page
    assert "t, speed" not in page
    parts = {"measured": {"speed": {"date": "2026-01-02", "commit": "c0ffee"}}}
    page_of_parts = benchmark_report.report({"t": record | {"result": parts}})
    assert re.search(r"t, speed\n     - 2026-01-02\n     - ``c0ffee``", page_of_parts)
    assert "Not of one full run: t." in page


@pytest.mark.parametrize(
    "value, digits, text",
    [(31.42, 3, "31.4"), (4681.4, 3, "4,681"), (0.62, 4, "0.62"), (0, 3, "0"), (40.0, 3, "40")]
    + [(2.2e-06, 3, "2.2e-06"), ("two", 3, "two"), (100.0, 3, "100"), (1000000.0, 3, "1,000,000")],
)
def test_number(value, digits, text):
    assert benchmark_report.number(value, digits) == text


def test_write_report_leaves_an_unchanged_page_alone(folder, tmp_path):
    page = tmp_path / "page.rst"
    benchmark_report.write_report(folder, page)
    before = page.stat().st_mtime_ns
    benchmark_report.write_report(folder, page)
    assert page.stat().st_mtime_ns == before


def test_claims_follow_from_the_results():
    """In a process of its own: the benchmarks set the number of threads."""
    script = """
import importlib, json, math, sys
from pathlib import Path

for path in sorted(Path("results").glob("*.json")):
    record = json.loads(path.read_text())
    try:
        module = importlib.import_module(f"bench_{path.stem}")
    except ModuleNotFoundError as error:
        print(f"{path.stem}: not checked, {error}")  # an optional dependency
        continue
    if not hasattr(module, "claims"):
        continue  # a plain script, which records tables
    made = module.claims(record["result"])
    kept = {claim["key"]: claim for claim in record["claims"]}
    assert {claim["key"] for claim in made} == set(kept), path.stem
    for claim in made:
        measured = kept[claim["key"]]["measured"]
        assert math.isclose(claim["measured"], measured, rel_tol=1e-9), (path.stem, claim["key"])
        assert claim["verdict"] == kept[claim["key"]]["verdict"], (path.stem, claim["key"])
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(RESULTS.parent)])}
    folder = RESULTS.parent
    subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, check=True)


def test_the_noise_of_test_rows_is_that_of_rows_and_not_of_draws():
    """Budgets: what a mean of fresh rows varies by, equal rows that are tied drawn evenly."""
    script = """
import numpy as np
import bench_budgets as bench
from skroute.routing._draws import tie_draws
from skroute.routing._policy import Choices

for apart in (False, True):
    means, told, naive = [], [], []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        tied = rng.random(200) < 0.5
        X = np.column_stack([tied, rng.random(200) if apart else np.zeros(200)]).astype(float)
        choices = Choices(np.zeros(200, int), tied.astype(int), np.where(tied, 0.3, 0.0))
        table = np.tile([1.0, 5.0], (200, 1))
        up = tied & (tie_draws(X)(np.arange(200)) < choices.share)
        cost = table[np.arange(200), up.astype(int)]
        means.append(cost.mean())
        told.append(np.hypot(*bench.test_noise(choices, table, X)))
        naive.append(cost.std() / 200**0.5)
    spread = np.std(means)
    assert 0.85 < np.sqrt(np.mean(np.square(told))) / spread < 1.15, apart
    # The mutation: rows as if each were drawn alone.
    assert apart or np.mean(naive) > 1.5 * spread
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(RESULTS.parent)])}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)


def test_the_best_member_is_picked_on_rows_that_do_not_judge_it():
    """Estimates: members that are alike are not ahead by luck; one that is better is found."""
    script = """
import numpy as np
import bench_estimates as bench

def tables(ahead, n_draws=40):
    for seed in range(n_draws):
        gain = np.random.default_rng(seed).normal(size=(len(bench.KNOWN) + 1, 500))
        gain[0] += ahead
        yield dict(zip([*bench.KNOWN, bench.DEFAULT], gain))

def judged(ahead):
    found = [bench.behind_unseen(gain, draws=10) for gain in tables(ahead)]
    return np.mean(found), np.std(found) / len(found) ** 0.5

mean, se = judged(0.0)
assert abs(mean) < 4 * se, (mean, se)
# The mutation: the rows that pick judge as well.
lucky = [100 * max(g.mean() for g in gain.values()) for gain in tables(0.0)]
lucky = np.array(lucky) - [100 * gain[bench.DEFAULT].mean() for gain in tables(0.0)]
assert lucky.mean() > 4 * se
mean, se = judged(1.0)
assert abs(mean - 100) < 4 * se, (mean, se)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(RESULTS.parent)])}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_committed_results(path):
    """What is in the repo is complete, named after its benchmark, and tells of no machine."""
    record = json.loads(path.read_text(encoding="utf-8"))
    assert (ROOT / "benchmarks" / f"bench_{path.stem}.py").is_file()
    # Of a run with options the command itself.
    assert record["command"].startswith((f"make bench-{path.stem}", "python benchmarks/bench_"))
    for entry in ("title", "date", "commit", "versions", "machine", "claims", "tables", "result"):
        assert entry in record
    assert set(record["machine"]) == {"cpu", "cores", "system"}
    assert all(claim["verdict"] in benchmark_report.VERDICTS for claim in record["claims"])
    assert not re.search(r'(^|[\s"(])/\w+/', path.read_text()), "an absolute path"
