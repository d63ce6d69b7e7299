"""Answers of language models to prompts: RouteLLM's MMLU and LLMRouter."""

import csv
import gzip
import io
import json
import os

import numpy as np
from sklearn.utils import Bunch

from skroute.datasets._base import FETCH_PARAMS, Arrays, Origin, github, load_or_fetch
from skroute.utils._compat import validate_params

# Repositories of the sources, each at a pinned commit.
_ROUTELLM = ("lm-sys/RouteLLM", "0b64fdafe049e596a3f5657c219329f24af24198")
_LLMROUTER = ("ulab-uiuc/LLMRouter", "4e7a796942ce26e9d5f2b93191c7c2585c99c2e3")

# Models and prices in US dollars per million tokens, in the order of the columns.
_MMLU_MODELS = {
    "mistralai/Mixtral-8x7B-Instruct-v0.1": 0.24,
    "gpt-4-1106-preview": 24.7,
}
# Subjects of MMLU, in the order of the rows. The source has one file for each.
_SUBJECTS = """
    abstract_algebra anatomy astronomy business_ethics clinical_knowledge
    college_biology college_chemistry college_computer_science college_mathematics
    college_medicine college_physics computer_security conceptual_physics econometrics
    electrical_engineering elementary_mathematics formal_logic global_facts
    high_school_biology high_school_chemistry high_school_computer_science
    high_school_european_history high_school_geography
    high_school_government_and_politics high_school_macroeconomics
    high_school_mathematics high_school_microeconomics high_school_physics
    high_school_psychology high_school_statistics high_school_us_history
    high_school_world_history human_aging human_sexuality international_law
    jurisprudence logical_fallacies machine_learning management marketing
    medical_genetics miscellaneous moral_disputes moral_scenarios nutrition philosophy
    prehistory professional_accounting professional_law professional_medicine
    professional_psychology public_relations security_studies sociology
    us_foreign_policy virology world_religions
""".split()

# Models and prices in US dollars per million tokens, in the order of the columns: by
# price, then by name.
_LLMROUTER_MODELS = {
    "gemma-2-9b-it": 0.1,
    "codegemma-7b": 0.2,
    "llama-3.1-8b-instruct": 0.2,
    "llama3-chatqa-1.5-8b": 0.2,
    "mistral-7b-instruct-v0.3": 0.2,
    "qwen2.5-7b-instruct": 0.2,
    "llama-3.1-nemotron-51b-instruct": 0.9,
    "llama-3.3-nemotron-super-49b-v1": 0.9,
    "llama3-chatqa-1.5-70b": 0.9,
}


def read_table(content):
    """Return the columns of a compressed CSV file (bytes): lists of str by name."""
    text = io.StringIO(gzip.decompress(content).decode("utf-8"), newline="")
    header, *rows = csv.reader(text)
    columns = [list(column) for column in zip(*rows)]
    return dict(zip(header, columns))


def dump_table(columns):
    """Return the content of a compressed CSV file, equal for equal columns.

    `columns` is a dict from names to sequences of equal length.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values()))
    # The time of writing is 0. Otherwise the content would differ at each call.
    return gzip.compress(text.getvalue().encode("utf-8"), mtime=0)


def load_mmlu(content: bytes) -> Arrays:
    """Return the arrays of MMLU from ``mmlu.csv.gz``."""
    table = read_table(content)
    # Texts "0" and "1", (n_models, n_rows) in the order of `_MMLU_MODELS`.
    correct = [table["mixtral_correct"], table["gpt4_correct"]]
    return {
        "subject": table["subject"],
        "prompt": table["prompt"],
        "quality": np.array(correct).T.astype(np.uint8),
        "contaminated": np.array(table["contaminated"]) == "1",
    }


def convert_mmlu(raw: dict[str, bytes]) -> bytes:
    """Return the content of ``mmlu.csv.gz``, made from the raw files.

    `raw` has the files by the names in ``MMLU.urls``: a CSV file for each subject, and
    the contaminated prompts, one JSON record per line.
    """
    lines = raw["contaminated"].decode().splitlines()
    contaminated = {json.loads(line)["eval_prompt"] for line in lines}
    rows: list[list] = []
    for subject in _SUBJECTS:
        text = io.StringIO(raw[subject].decode("utf-8"), newline="")
        for row in csv.DictReader(text):
            # 1 if the answer of a model is right, else 0. The columns of the two models
            # begin with "mixtral-" and "gpt-". Other columns get useless entries.
            is_right = {}
            for name, answer in row.items():
                is_right[name.split("-")[0]] = int(answer == "True")
            prompt = row["prompt"]
            rows.append(
                [
                    len(rows),
                    subject,
                    prompt,
                    is_right["mixtral"],
                    is_right["gpt"],
                    int(prompt in contaminated),
                ]
            )
    names = "id subject prompt mixtral_correct gpt4_correct contaminated".split()
    return dump_table(dict(zip(names, zip(*rows))))


def load_llmrouter(content: bytes) -> Arrays:
    """Return the arrays of LLMRouter from ``scores.csv.gz``."""
    table = read_table(content)
    # Texts of numbers, (n_models, n_rows)
    scores = [table[name] for name in _LLMROUTER_MODELS]
    return {
        "prompt": table["prompt"],
        "task": table["task"],
        "metric": table["metric"],
        "quality": np.array(scores).T.astype(np.float64),
        "cluster_id": np.array(table["cluster_id"]).astype(np.int64),
        "is_test": np.array(table["split"]) == "test",
        "in_train": np.array(table["in_train"]) == "1",
    }


def convert_llmrouter(raw: dict[str, bytes]) -> bytes:
    """Return the content of ``scores.csv.gz``, made from records and their queries.

    `raw` has the files by the names in ``LLMROUTER.urls``.
    """
    # Task and metric of each prompt.
    task_and_metric: dict[str, tuple[str, str]] = {}
    for name in ("queries train", "queries test"):
        for line in raw[name].decode("utf-8").splitlines():
            query = json.loads(line)
            entry = (query["task_name"], query["metric"])
            # A prompt of two tasks gets the first task.
            task_and_metric.setdefault(query["query"], entry)
    train = json.loads(raw["train"])
    test = json.loads(raw["test"])
    records = train + test
    prompts = [record["question"] for record in records]
    train_prompts = set(prompts[: len(train)])
    # 1 for test rows whose prompt is also in train, else 0. Train rows have 0.
    in_train = [0] * len(train)
    for record in test:
        in_train.append(int(record["question"] in train_prompts))
    columns = {
        "id": range(len(records)),
        "split": ["train"] * len(train) + ["test"] * len(test),
        "task": [task_and_metric[prompt][0] for prompt in prompts],
        "metric": [task_and_metric[prompt][1] for prompt in prompts],
        # -1: test records have no cluster.
        "cluster_id": [record.get("cluster_id", -1) for record in records],
        "in_train": in_train,
        "prompt": prompts,
    }
    for name in _LLMROUTER_MODELS:
        scores = np.array([record["scores"][name] for record in records], float)
        # The file has scores with ten decimals. This rounding is part of the digest.
        columns[name] = np.round(scores, 10).tolist()
    return dump_table(columns)


# Paths of the raw files of MMLU, by name.
_MMLU_FILES = {subject: f"responses/mmlu_{subject}.csv" for subject in _SUBJECTS}
_MMLU_FILES["contaminated"] = "contaminated_prompts.jsonl"

MMLU = Origin(
    path="routellm/mmlu.csv.gz",
    # One address for each file.
    urls={
        name: [github(*_ROUTELLM, f"routellm/evals/mmlu/{path}")]
        for name, path in _MMLU_FILES.items()
    },
    convert=convert_mmlu,
    digest="d77118e2710498216119f60846ce405164807af85343fa8cb380ac9c3db30d42",
    size="8 MB",
    load=load_mmlu,
)

# Paths of the raw files of LLMRouter, by name.
_LLMROUTER_FILES = {
    "train": "dcrouter_preprocessed/train.json",
    "test": "dcrouter_preprocessed/test.json",
    "queries train": "example_data/query_data/default_query_train.jsonl",
    "queries test": "example_data/query_data/default_query_test.jsonl",
}

LLMROUTER = Origin(
    path="llmrouter/scores.csv.gz",
    # One address for each file.
    urls={
        name: [github(*_LLMROUTER, f"data/{path}")]
        for name, path in _LLMROUTER_FILES.items()
    },
    convert=convert_llmrouter,
    digest="a624c56cfb779d7c49c4106ee9a827edd420666f34865fc95a92458fe58cf17e",
    size="10 MB",
    load=load_llmrouter,
)

_MMLU_DESCR = """MMLU answered by two language models (RouteLLM).

Correctness of the answers of Mixtral-8x7B-Instruct-v0.1 and gpt-4-1106-preview to each
of 14,042 questions of MMLU (57 subjects, sorted). The source has no prices. The prices
here, in US dollars per million tokens, are those of the paper, quoted second-hand. 105
prompts repeat an earlier one.

Origin: github.com/lm-sys/RouteLLM, commit 0b64fda, Apache-2.0. Paper: Ong et al.,
RouteLLM: Learning to route LLMs with preference data, arXiv 2406.18665. Questions:
Hendrycks et al., Measuring massive multitask language understanding, ICLR 2021.
"""

_LLMROUTER_DESCR = """Nine language models on prompts of 14 benchmarks (LLMRouter).

Scores in [0, 1] on 5,608 train and 500 test prompts, with prices in US dollars per
million tokens, the same for input and output. About 97 % of the scores are 0 or 1, the
others are F1 or coverage values. Train has 14 tasks, and test has 10 of them in another
mix. For a fair estimate, split the train rows. 119 test prompts are also in train. The
scores depend on how the source parsed the answers. They do not rank models in general.

Origin: github.com/ulab-uiuc/LLMRouter, commit 4e7a796, MIT. The prompts come from the
benchmarks named in the task, which have licences of their own.
"""


@validate_params(FETCH_PARAMS, prefer_skip_nested_validation=True)
def fetch_routellm_mmlu(
    *, data_home: str | os.PathLike[str] | None = None, download_if_missing: bool = True
) -> Bunch:
    """Load the correctness of two language models' answers to the questions of MMLU.

    RouteLLM is evaluated on this log of 14,042 questions [1]_. Mixtral-8x7B is right on
    68.1 % of them, and GPT-4 on 80.6 %. The log has 2 MB on disk, and 8 MB to download.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder to look in and to download to, as in :func:`get_data_home`.

    download_if_missing : bool, default=True
        If True, a missing file is downloaded. If False, it is an error.

    Returns
    -------
    :class:`~sklearn.utils.Bunch`
        Dictionary-like, with

        data : ndarray of shape (14042,), dtype=object
            The prompts: a question and four choices.
        quality : ndarray of shape (14042, 2), dtype=uint8
            1 where the model is right.
        costs : ndarray of shape (2,), dtype=float64
            Price of each model in US dollars per million tokens. The source has no
            prices. These are the paper's, quoted second-hand.
        model_names : list of str
            The models, the columns of `quality`.
        subject : ndarray of shape (14042,), dtype=object
            The subject of each question, one of 57. Rows are sorted by subject.
        contaminated : ndarray of shape (14042,), dtype=bool
            True for the 5 rows that the authors leave out of their evaluation.
        DESCR : str
            Description, origin and licence of the set.
        filename : str
            The file that was read.

    Raises
    ------
    OSError
        If the file is absent and may not be downloaded, if no address of the origin
        answers, or if the content is not that of the known data set.

    References
    ----------
    .. [1] I. Ong et al. (2024). RouteLLM: Learning to route LLMs with preference data.
       arXiv:2406.18665

    Examples
    --------
    >>> from skroute.datasets import fetch_routellm_mmlu
    >>> log = fetch_routellm_mmlu()  # doctest: +SKIP
    >>> log.quality.mean(axis=0).round(3)  # doctest: +SKIP
    array([0.681, 0.806])
    """
    arrays, path = load_or_fetch(MMLU, data_home, download_if_missing)
    return Bunch(
        data=np.array(arrays["prompt"], dtype=object),
        quality=arrays["quality"],
        costs=np.array(list(_MMLU_MODELS.values())),
        model_names=list(_MMLU_MODELS),
        subject=np.array(arrays["subject"], dtype=object),
        contaminated=arrays["contaminated"],
        DESCR=_MMLU_DESCR,
        filename=str(path),
    )


@validate_params(FETCH_PARAMS, prefer_skip_nested_validation=True)
def fetch_llmrouter(
    *, data_home: str | os.PathLike[str] | None = None, download_if_missing: bool = True
) -> Bunch:
    """Load the scores of nine language models on prompts of 14 benchmarks.

    The log has 5,608 train and 500 test prompts. On the train prompts the best single
    model scores 0.621 on average, and the best model of each prompt 0.802. The log has
    0.7 MB on disk, and 10 MB to download.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder to look in and to download to, as in :func:`get_data_home`.

    download_if_missing : bool, default=True
        If True, a missing file is downloaded. If False, it is an error.

    Returns
    -------
    :class:`~sklearn.utils.Bunch`
        Dictionary-like, with

        data : ndarray of shape (6108,), dtype=object
            The prompts.
        quality : ndarray of shape (6108, 9), dtype=float64
            Score of each model, in [0, 1].
        costs : ndarray of shape (9,), dtype=float64
            Price of each model in US dollars per million tokens.
        model_names : list of str
            The models, the columns of `quality`.
        is_test : ndarray of shape (6108,), dtype=bool
            True for the source's test rows. Their mix of tasks differs from that of
            train. For a fair estimate, split the train rows.
        in_train : ndarray of shape (6108,), dtype=bool
            True for test rows whose prompt is also in train.
        task : ndarray of shape (6108,), dtype=object
            The benchmark.
        metric : ndarray of shape (6108,), dtype=object
            How an answer was scored.
        cluster_id : ndarray of shape (6108,), dtype=int64
            The source's grouping of the train rows into 3 clusters. -1 in test.
        DESCR : str
            Description, origin and licence of the set.
        filename : str
            The file that was read.

    Raises
    ------
    OSError
        If the file is absent and may not be downloaded, if no address of the origin
        answers, or if the content is not that of the known data set.

    Examples
    --------
    >>> from skroute.datasets import fetch_llmrouter
    >>> log = fetch_llmrouter()  # doctest: +SKIP
    >>> round(float(log.quality[~log.is_test].mean(axis=0).max()), 4)  # doctest: +SKIP
    0.6213
    """
    arrays, path = load_or_fetch(LLMROUTER, data_home, download_if_missing)
    return Bunch(
        data=np.array(arrays["prompt"], dtype=object),
        quality=arrays["quality"],
        costs=np.array(list(_LLMROUTER_MODELS.values())),
        model_names=list(_LLMROUTER_MODELS),
        is_test=arrays["is_test"],
        in_train=arrays["in_train"],
        task=np.array(arrays["task"], dtype=object),
        metric=np.array(arrays["metric"], dtype=object),
        cluster_id=arrays["cluster_id"],
        DESCR=_LLMROUTER_DESCR,
        filename=str(path),
    )
