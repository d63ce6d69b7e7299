"""Raw files to arrays: small files by hand, and every real set written back to raw."""

import io
import json
from pathlib import PurePosixPath

import numpy as np
import pytest
from scipy.io import savemat

from skroute.datasets import _frugal, _frugal_sets, _llm, _lm_logs, _studies, _tables
from skroute.datasets._base import content_digest, load_or_fetch

ADULT_DATA = b"""\
39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, \
2174, 0, 40, United-States, <=50K
50, ?, 83311, Masters, 13, Divorced, ?, Husband, Black, Female, 0, 0, 13, ?, >50K

"""
ADULT_TEST = b"""\
|1x3 Cross validator
25, Private, 226802, 11th, 7, Never-married, Sales, Own-child, Black, Male, 0, 0, 40, \
Cuba, >50K.
"""


def test_adult():
    arrays = _tables.convert_adult({"adult.data": ADULT_DATA, "adult.test": ADULT_TEST})
    assert arrays["X"].tolist() == [
        [39, 1, 77516, 1, 13, 1, 0, 1, 1, 1, 2174, 0, 40, 1],
        [50, -1, 83311, 2, 13, 0, -1, 0, 0, 0, 0, 0, 13, -1],
        [25, 0, 226802, 0, 7, 1, 1, 2, 0, 1, 0, 0, 40, 0],
    ]
    assert arrays["y"].tolist() == [0, 1, 1]
    assert arrays["is_test"].tolist() == [False, False, True]
    assert arrays["categories_native_country"].tolist() == ["Cuba", "United-States"]
    assert arrays["categories_workclass"].tolist() == ["Private", "State-gov"]


@pytest.mark.parametrize("header", [b"", b"Letter,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16\n"])
def test_letter(header):
    line = b"T,2,8,3,5,1,8,13,0,6,6,10,8,0,8,0,8\n"
    arrays = _tables.convert_letter({"letter-recognition.data": header + line * 2})
    assert arrays["X"].tolist() == [[2, 8, 3, 5, 1, 8, 13, 0, 6, 6, 10, 8, 0, 8, 0, 8]] * 2
    assert arrays["y"].tolist() == ["T", "T"]
    assert arrays["X"].dtype == np.uint8


def test_frugalml():
    entry = _frugal_sets.LogSet(
        "words", _frugal_sets.Apis((7, 9), ("A", "B"), (2.0, 1.0)), ("x",), ""
    )
    raw = {
        "TrueLabel": b"0\n1\n2\n",
        "PredictedLabel 7": b"0\n0\n2\n",
        "PredictedLabel 9": b"1.000000e+00\n1.000000e+00\n0.000000e+00\n",
        "Confidence 7": b"5.0e-01\n1.0e+00\n0.0e+00\n",
        "Confidence 9": b"0.25\n0.5\n0.75\n",
        "ImageName": b"a.wav,\nb.wav,\nc.wav",
    }
    arrays = _frugal.convert_frugalml(raw, entry)
    assert arrays["predicted_label"].tolist() == [[0, 1], [0, 1], [2, 0]]
    assert arrays["reward"].tolist() == [[1, 0], [0, 1], [1, 0]]
    assert arrays["confidence"].tolist() == [[0.5, 0.25], [1.0, 0.5], [0.0, 0.75]]
    assert arrays["sample_id"].tolist() == ["a.wav", "b.wav", "c.wav"]
    assert arrays["price_per_10k"].tolist() == [2.0, 1.0]

    without = {key: raw[key] for key in raw if key[:4] in ("True", "Pred")}
    assert "confidence" not in _frugal.convert_frugalml(without, entry)


def test_frugalmct_labels():
    entry = _frugal_sets.LogSet(
        "tags", _frugal_sets.Apis((4, 5), ("A", "B"), (2.0, 1.0)), ("cat", "dog"), ""
    )
    named = [
        {"transcription": "cat", "confidence": 0.5},
        {"transcription": "cat", "confidence": 0.75},
        {"transcription": "unicorn", "confidence": 0.9},
    ]
    raw = {
        "ImageName": b"one.jpg,\ntwo.jpg",
        "Reward 4": b"1.0e+00\n3.333333333333333148e-01\n",
        "Reward 5": b"0\n0\n",
        "TrueLabel": json.dumps(
            {"two": [{"transcription": "cat"}, {"transcription": "dog"}], "one": []}
        ).encode(),
        "PredictedLabel 5": json.dumps({"one": [], "two": named}).encode(),
    }
    arrays = _frugal.convert_frugalmct(raw, entry, (5,))
    assert arrays["y_true"].tolist() == [[False, False], [True, True]]
    assert arrays["scores"].tolist() == [[[0.0, 0.0]], [[0.75, 0.0]]]
    np.testing.assert_allclose(arrays["reward"], [[1, 0], [1 / 3, 0]], rtol=1e-6)


def test_llmrouter_prompt_of_two_tasks_carries_the_first():
    names = list(_llm._LLMROUTER_MODELS)
    scores = dict(zip(reversed(names), range(9)))
    raw = {
        "train": json.dumps([{"question": "p", "scores": scores, "cluster_id": 2}]).encode(),
        "test": json.dumps(
            [{"question": "q", "scores": scores}, {"question": "p", "scores": scores}]
        ).encode(),
        "queries train": b'{"query": "p", "task_name": "a", "metric": "m", "choices": []}\n'
        b'{"query": "p", "task_name": "b", "metric": "n"}\n',
        "queries test": b'{"query": "q", "task_name": "c", "metric": "o"}\n'
        b'{"query": "p", "task_name": "d", "metric": "o"}\n',
    }
    arrays = _llm.convert_llmrouter(raw)
    assert arrays["task"] == ["a", "c", "a"]
    assert arrays["metric"] == ["m", "o", "m"]
    assert arrays["cluster_id"].tolist() == [2, -1, -1]
    assert arrays["is_test"].tolist() == [False, True, True]
    assert arrays["in_train"].tolist() == [False, False, True]
    assert arrays["quality"][0].tolist() == list(range(8, -1, -1))


# The same sets as raw files, in the layout of their origins.


def _lines(values, fmt):
    return "".join(fmt % value + "\n" for value in values).encode()


def _csv(rows, separator=","):
    return "".join(separator.join(map(str, row)) + "\n" for row in rows).encode()


def raw_adult(arrays):
    names = arrays["feature_names"].tolist()
    columns = []
    for name, column in zip(names, arrays["X"].T):
        key = f"categories_{name.replace('-', '_')}"
        columns.append([*arrays[key].tolist(), "?"] if key in arrays else None)
        columns[-1] = [columns[-1][v] for v in column] if columns[-1] else column.tolist()
    rows = list(zip(*columns, arrays["target_names"][arrays["y"]].tolist()))
    n = int((~arrays["is_test"]).sum())
    test = [(*row[:-1], row[-1] + ".") for row in rows[n:]]
    return {
        "adult.data": _csv(rows[:n], ", ") + b"\n",
        "adult.test": b"|1x3 Cross validator\n" + _csv(test, ", "),
    }


def raw_letter(arrays):
    rows = [(letter, *row) for letter, row in zip(arrays["y"], arrays["X"].tolist())]
    return {"letter-recognition.data": _csv(rows)}


def raw_covertype(arrays):
    rows = [(*row, label) for row, label in zip(arrays["X"].tolist(), arrays["y"])]
    return {"covtype.csv": _csv([[*arrays["feature_names"], "Cover_Type"], *rows])}


def raw_usps(arrays, *, by_column=False, unit=False):
    pixels = arrays["X"].reshape(-1, 16, 16)
    pixels = (pixels.transpose(0, 2, 1) if by_column else pixels).reshape(-1, 256)
    file = io.BytesIO()
    savemat(
        file,
        {"fea": pixels / 255.0 if unit else pixels, "gnd": arrays["y"][:, None] + 1.0},
        do_compression=True,
    )
    return {"USPS.mat": file.getvalue()}


@pytest.mark.parametrize(
    "origin, raw",
    [
        (_tables.ADULT, raw_adult),
        (_tables.LETTER, raw_letter),
        (_tables.COVERTYPE_SAMPLE, raw_covertype),
        (_tables.USPS, raw_usps),
        (_tables.USPS, lambda arrays: raw_usps(arrays, by_column=True)),
        (_tables.USPS, lambda arrays: raw_usps(arrays, unit=True)),
    ],
    ids=["adult", "letter", "covertype", "usps", "usps by column", "usps in [0, 1]"],
)
def test_tables_from_raw(data_home, origin, raw):
    arrays = origin.load(data_home / origin.path)
    assert content_digest(arrays) == origin.digest
    converted = origin.convert(raw(arrays))
    assert set(converted) == set(arrays)
    assert content_digest(converted) == origin.digest


def raw_frugalml(arrays):
    raw = {"TrueLabel": _lines(arrays["y_true"], "%d")}
    for j, api in enumerate(arrays["api_ids"]):
        raw[f"PredictedLabel {api}"] = _lines(arrays["predicted_label"][:, j], "%d")
        if "confidence" in arrays:
            raw[f"Confidence {api}"] = _lines(arrays["confidence"][:, j], "%.18e")
    if "sample_id" in arrays:
        raw["ImageName"] = ",\n".join(arrays["sample_id"]).encode()
    return raw


def raw_frugalmct(arrays):
    raw = {"ImageName": ",\n".join(arrays["sample_id"]).encode()}
    for j, api in enumerate(arrays["api_ids"]):
        raw[f"Reward {api}"] = _lines(arrays["reward"][:, j], "%.18e")
    if "scores" in arrays:
        stems = [PurePosixPath(name).stem for name in arrays["sample_id"]]
        names = arrays["label_names"].tolist()
        raw["TrueLabel"] = json.dumps(
            {
                stem: [{"transcription": names[j]} for j in np.flatnonzero(row)]
                for stem, row in zip(stems, arrays["y_true"])
            }
        ).encode()
        for k, api in enumerate(arrays["scores_api_ids"]):
            raw[f"PredictedLabel {api}"] = json.dumps(
                {
                    stem: [
                        {"transcription": names[j], "confidence": float(row[j])}
                        for j in np.flatnonzero(row)
                    ]
                    for stem, row in zip(stems, arrays["scores"][:, k])
                }
            ).encode()
    return raw


@pytest.mark.parametrize("name", _frugal.FRUGALML)
def test_frugalml_from_raw(data_home, name):
    origin = _frugal.frugalml_origin(name)
    arrays = origin.load(data_home / origin.path)
    assert content_digest(arrays) == origin.digest
    if len(arrays["y_true"]) > 50_000:
        return  # Text of this size takes seconds and adds nothing.
    raw = raw_frugalml(arrays)
    assert set(raw) == set(origin.urls)
    assert content_digest(origin.convert(raw)) == origin.digest


@pytest.mark.parametrize("name", _frugal.FRUGALMCT)
def test_frugalmct_from_raw(data_home, name):
    origin = _frugal.frugalmct_origin(name)
    arrays = origin.load(data_home / origin.path)
    assert content_digest(arrays) == origin.digest
    if len(arrays["reward"]) > 50_000:
        return  # As above.
    raw = raw_frugalmct(arrays)
    assert set(raw) == set(origin.urls)
    assert content_digest(origin.convert(raw)) == origin.digest


def raw_mmlu(arrays):
    subjects = np.array(arrays["subject"])
    raw = {}
    for subject in dict.fromkeys(arrays["subject"]):
        rows = np.flatnonzero(subjects == subject)
        quoted = [arrays["prompt"][i].replace('"', '""') for i in rows]
        answers = np.where(arrays["quality"][rows] == 1, "True", "False").tolist()
        raw[subject] = (
            "prompt,mixtral-8x7b-instruct-v0.1,gpt-4-1106-preview\n"
            + "".join(f'"{text}",{a},{b}\n' for text, (a, b) in zip(quoted, answers))
        ).encode()
    raw["contaminated"] = "\n".join(
        json.dumps({"train_prompt": "x", "eval_prompt": arrays["prompt"][i]})
        for i in np.flatnonzero(arrays["contaminated"])
    ).encode()
    return raw


def raw_llmrouter(arrays):
    names = list(_llm._LLMROUTER_MODELS)
    records = [
        {"question": prompt, "scores": dict(zip(names, scores)), "cluster_id": cluster}
        for prompt, scores, cluster in zip(
            arrays["prompt"], arrays["quality"].tolist(), arrays["cluster_id"].tolist()
        )
    ]
    queries = [
        json.dumps({"task_name": task, "query": prompt, "metric": metric})
        for task, prompt, metric in zip(arrays["task"], arrays["prompt"], arrays["metric"])
    ]
    n = int((~arrays["is_test"]).sum())
    return {
        "train": json.dumps(records[:n]).encode(),
        "test": json.dumps(records[n:]).encode(),
        "queries train": "\n".join(queries[:n]).encode(),
        "queries test": "\n".join(queries[n:]).encode(),
    }


def raw_paretobandit(arrays):
    names = _lm_logs._paretobandit_names(arrays["quality"].shape[1])
    lines = []
    for row, prompt in enumerate(arrays["prompt"]):
        arms = {
            name: {"reward": arrays["quality"][row, j], "cost": arrays["cost"][row, j]}
            for j, name in enumerate(names)
        }
        # The source has the models in another order where there are four.
        record = {"prompt": prompt, "arms": dict(reversed(arms.items()))}
        lines.append(json.dumps({**record, "source": arrays["source"][row]}))
    return {"records": "\n".join(lines).encode()}


def raw_spam(arrays):
    rows = zip(arrays["X"].astype(str).tolist(), arrays["y"].tolist())
    return {"spam.csv": _csv([["Cont 1", "Outcome"], *([*x, y] for x, y in rows)])}


@pytest.mark.parametrize(
    "origin, raw",
    [
        (_llm.MMLU, raw_mmlu),
        (_llm.LLMROUTER, raw_llmrouter),
        (_lm_logs.paretobandit_origin("val", 3), raw_paretobandit),
        (_lm_logs.paretobandit_origin("test", 4), raw_paretobandit),
        (_studies.SPAM, raw_spam),
    ],
    ids=["mmlu", "llm", "pareto", "pareto four", "spam"],
)
def test_language_models_from_raw_and_to_disk(data_home, tmp_path, origin, raw):
    arrays = origin.load(data_home / origin.path)
    assert content_digest(arrays) == origin.digest
    files = raw(arrays)
    assert set(files) == set(origin.urls)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    local = origin._replace(urls={name: [(tmp_path / name).as_uri()] for name in files})
    home = tmp_path / "home"
    fetched, path = load_or_fetch(local, data_home=home, download_if_missing=True)
    assert content_digest(fetched) == origin.digest
    assert content_digest(origin.load(path)) == origin.digest


def test_every_address_is_pinned():
    origins = [
        _tables.ADULT,
        _tables.LETTER,
        _tables.COVERTYPE_SAMPLE,
        _tables.USPS,
        *map(_frugal.frugalml_origin, _frugal.FRUGALML),
        *map(_frugal.frugalmct_origin, _frugal.FRUGALMCT),
        _llm.MMLU,
        _llm.LLMROUTER,
        *(_lm_logs.paretobandit_origin(part, n) for part in ("val", "test") for n in (3, 4)),
        _studies.SPAM,
    ]
    for origin in origins:
        assert len(origin.digest) == 64
        for urls in origin.urls.values():
            # The last address is a commit, which cannot change.
            assert urls[-1].startswith("https://raw.githubusercontent.com/")
            assert len(urls[-1].split("/")[5]) == 40
