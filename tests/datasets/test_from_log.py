"""Tables of a log with one line per call, beside loops over its lines."""

import numpy as np
import pandas as pd
import pytest

from skroute.datasets import tables_from_log
from skroute.routing import BudgetRouter

NAMES = {
    "request": "trace_id",
    "choice": "model",
    "quality": "score",
    "features": ["words", "team"],
    "cost": "spend",
    "amounts": ["seconds"],
}


def made_log(n_lines=600, seed=0):
    """A log with retries, cached answers, missing scores, labels and costs."""
    rng = np.random.default_rng(seed)
    trace = rng.integers(0, 200, n_lines)
    log = pd.DataFrame(
        {
            "trace_id": [f"t{i}" for i in trace],
            "model": rng.choice(["small", "middle", "large"], n_lines),
            "words": 10.0 + trace,
            "team": np.where(trace % 2, "a", "b"),
            "spend": rng.integers(1, 20, n_lines) / 4,
            "seconds": rng.integers(1, 40, n_lines) / 8,
            "score": rng.integers(0, 5, n_lines) / 4,
            "cache_hit": rng.choice(["True", "False", ""], n_lines, p=[0.1, 0.8, 0.1]),
        }
    )
    log.loc[log.cache_hit == "True", "spend"] = 0.0
    log.loc[rng.random(n_lines) < 0.5, "score"] = np.nan
    log.loc[rng.random(n_lines) < 0.05, "spend"] = np.nan
    log.loc[rng.random(n_lines) < 0.03, "trace_id"] = None
    log.loc[rng.random(n_lines) < 0.03, "model"] = None
    # A model that nobody has scored.
    log.loc[rng.random(n_lines) < 0.02, ["model", "score"]] = ["unscored", np.nan]
    return log


def tables_by_hand(log, is_cached, repeated):
    """Dicts of the cells, line by line."""
    scores, costs, seconds = {}, {}, {}
    for line, is_from_cache in zip(log.itertuples(), is_cached):
        if pd.isna(line.trace_id) or pd.isna(line.model):
            continue
        cell = line.trace_id, line.model
        if not np.isnan(line.score):
            scores.setdefault(cell, []).append(line.score)
        if not is_from_cache:
            seconds.setdefault(cell, []).append(line.seconds)
            if not np.isnan(line.spend):
                costs.setdefault(cell, []).append(line.spend)
    if repeated == "retry":
        merge = {"Q": lambda values: values[-1], "C": sum, "S": sum}
    else:
        merge = {"Q": np.mean, "C": np.mean, "S": np.mean}
    tables = {}
    for name, cells in (("Q", scores), ("C", costs), ("S", seconds)):
        tables[name] = {cell: merge[name](values) for cell, values in cells.items()}
    return tables


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("flags", ["cache_hit", None])
@pytest.mark.parametrize("repeated", ["retry", "draw"])
def test_tables_and_counts_are_those_of_loops(repeated, flags, library):
    log = made_log()
    given = log
    if library == "polars":
        given = pytest.importorskip("polars").DataFrame(
            {
                name: [None if pd.isna(cell) else cell for cell in log[name]]
                for name in log
            }
        )
    tables = tables_from_log(given, **NAMES, cached=flags, repeated=repeated)
    is_cached = log.spend == 0 if flags is None else log.cache_hit == "True"
    expected = tables_by_hand(log, is_cached, repeated)
    requests = []
    for label in log.trace_id.dropna().drop_duplicates():
        if any((label, name) in expected["Q"] for name in ("small", "middle", "large")):
            requests.append(label)
    assert tables.requests.tolist() == requests
    assert list(tables.Q.columns) == ["large", "middle", "small"]
    assert type(tables.Q) is type(tables.C) is type(tables.X) is type(given)
    frames = {"Q": tables.Q, "C": tables.C, "S": tables.amounts["seconds"]}
    for name, frame in frames.items():
        values = frame.to_numpy()
        for i, label in enumerate(requests):
            for k, model in enumerate(frame.columns):
                cell = expected[name].get((label, model), np.nan)
                assert values[i, k] == pytest.approx(cell, nan_ok=True)
    first = log[log.model.isin(tables.record.choices)].drop_duplicates("trace_id")
    first = first.set_index("trace_id").loc[requests]
    np.testing.assert_array_equal(tables.X["words"].to_numpy(), first.words)
    assert list(tables.X["team"]) == first.team.tolist()

    record = tables.record
    labelled = log.dropna(subset=["trace_id", "model"])
    used = labelled[labelled.trace_id.isin(requests) & (labelled.model != "unscored")]
    assert record.n_lines == 600
    assert record.n_without_label == 600 - len(labelled)
    assert record.n_unscored_lines == len(labelled) - len(used)
    assert record.n_repeated == used.duplicated(["trace_id", "model"]).sum()
    assert record.n_cached == is_cached[used.index].sum()
    assert record.n_zero_costs == (used.spend == 0).sum()
    assert record.dropped_choices == ["unscored"]
    assert record.n_changed_requests == 0
    Q = tables.Q.to_numpy()
    known = ~np.isnan(Q)
    np.testing.assert_array_equal(record.n_scored, known.sum(axis=0))
    np.testing.assert_array_equal(
        record.overlap[0, 1], (known[:, 0] & known[:, 1]).sum()
    )
    np.testing.assert_array_equal(
        record.n_by_answers, [(known.sum(axis=1) == n).sum() for n in (1, 2, 3)]
    )
    np.testing.assert_allclose(record.mean_quality, np.nanmean(Q, axis=0))
    assert record.n_dropped_requests == log.trace_id.nunique() - len(requests)


def test_the_record_prints_as_a_short_table():
    text = str(tables_from_log(made_log(), **NAMES).record)
    lines = text.split("\n")
    assert len(lines) < 20 and max(len(line) for line in lines) < 80
    for words in ("merged: repeated calls", "choices with a score: 3", "mean cost"):
        assert words in text
    assert lines[-1] == "without a score, dropped: unscored"


def test_a_free_choice_is_free_and_not_cached():
    log = pd.DataFrame(
        {
            "prompt": ["a", "a", "b", "b"],
            "model": ["own", "bought", "own", "bought"],
            "spend": [0.0, 0.0, 0.0, 2.0],
            "score": [1.0, 1.0, 0.0, 1.0],
        }
    )
    names = {"request": "prompt", "choice": "model", "quality": "score"}
    tables = tables_from_log(log, **names, cost="spend")
    np.testing.assert_array_equal(tables.C["own"], [0.0, 0.0])
    np.testing.assert_array_equal(tables.C["bought"], [np.nan, 2.0])
    assert (tables.record.n_cached, tables.record.n_zero_costs) == (1, 3)
    assert tables.X.tolist() == tables.requests.tolist() == ["a", "b"]
    # Without costs, nothing is known of them.
    assert np.isnan(tables_from_log(log, **names).C.to_numpy()).all()


def test_requests_with_changing_features_are_counted_and_the_first_line_is_used():
    log = made_log()
    log.loc[log.index[log.trace_id == "t7"][-1], "words"] = -1.0
    tables = tables_from_log(log, **NAMES)
    assert tables.record.n_changed_requests <= 1
    assert -1.0 not in tables.X["words"].tolist()


def test_the_tables_fit_a_router():
    rng = np.random.default_rng(0)
    x = rng.random(300)
    lines = []
    for i in range(300):
        for model, score, spend in (
            ("small", 1 - x[i], 1.0),
            ("large", 0.8, 4.0 + x[i]),
        ):
            if rng.random() < 0.8:
                lines.append((i, x[i], model, score, spend))
    log = pd.DataFrame(lines, columns=["trace_id", "x", "model", "score", "spend"])
    tables = tables_from_log(
        log,
        request="trace_id",
        choice="model",
        quality="score",
        cost="spend",
        features=["x"],
    )
    router = BudgetRouter(costs={"large": 4.5, "small": 1.0}, budget=2.5)
    with_costs = tables.C.notna().all(axis=1)
    assert with_costs.sum() > 150
    router.fit(tables.X[with_costs], tables.Q[with_costs], costs=tables.C[with_costs])
    assert router.choices_ == ["large", "small"]
    route = router.route(pd.DataFrame({"x": [0.02, 0.98]}))
    assert [router.choices_[k] for k in route] == ["small", "large"]


def test_one_answer_is_for_logs_of_one_answer():
    log = made_log().dropna(subset=["score"]).drop_duplicates("trace_id")
    log = log[log.cache_hit != "True"].dropna(subset=["trace_id", "model"])
    answer = tables_from_log(log, **NAMES).one_answer()
    assert answer.choice.tolist() == log.model.tolist()
    np.testing.assert_array_equal(answer.quality, log.score)
    np.testing.assert_array_equal(answer.cost, log.spend)
    with pytest.raises(ValueError, match="requests have scores of several choices"):
        tables_from_log(made_log(), **NAMES).one_answer()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"request": "id"}, "The log has no column 'id'"),
        ({"amounts": "seconds"}, "amounts must be a sequence"),
        ({"repeated": "sum"}, 'repeated must be "retry" or "draw"'),
        ({"cost": "team"}, "'team' must hold numbers"),
        ({"quality": "team"}, "'team' must hold numbers"),
        ({"cached": "team"}, "must hold True or False, got"),
        ({"cost": "negative"}, "'negative' must be at least 0, got -1.0"),
        ({"quality": "infinite"}, "must be finite"),
        ({"quality": "nothing"}, "there is nothing to learn from"),
    ],
)
def test_bad_logs(change, message):
    log = made_log().assign(negative=-1.0, infinite=np.inf, nothing=np.nan)
    with pytest.raises(ValueError, match=message):
        tables_from_log(log, **{**NAMES, **change})
    for no_frame in ([1], np.ones((3, 2)), log["score"], None, {"score": [1]}):
        with pytest.raises(TypeError, match="log must be a data frame of pandas"):
            tables_from_log(no_frame, **NAMES)
