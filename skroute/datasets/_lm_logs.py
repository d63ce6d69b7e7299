"""Language models on the same prompts, with what each answer cost: four more logs."""

import json
import os
from functools import partial

import numpy as np
from sklearn.utils import Bunch

from skroute.datasets._base import FETCH_PARAMS, Arrays, Origin, github, load_or_fetch
from skroute.datasets._llm import dump_table, read_table, texts
from skroute.utils._compat import Integral, Interval, StrOptions, validate_params

_PARETOBANDIT = ("ParetoBandit/ParetoBandit", "4ea4ec910086164cff77fe6fe69929b653253110")
_PARETOBANDIT_FOUR = ("ParetoBandit/ParetoBandit", "8f5758b7a8b9053e135cd097ad184eb1eb35b636")
# By price; the third is in the files of four models only.
_PARETOBANDIT_MODELS = (
    "meta-llama/llama-3.1-8b-instruct",
    "mistralai/mistral-large-2512",
    "google/gemini-2.5-flash",
    "google/gemini-2.5-pro",
)
_HOME = {"data_home": FETCH_PARAMS["data_home"]}


def _paretobandit_names(n_models):
    """Models in the files, as the source names them."""
    return [name for name in _PARETOBANDIT_MODELS if n_models == 4 or "flash" not in name]


def load_paretobandit(path, n_models):
    """Arrays of one split from its compressed CSV file."""
    table = read_table(path)
    names = [name.split("/")[1] for name in _paretobandit_names(n_models)]
    return {
        "prompt": table["prompt"],
        "source": table["source"],
        "quality": np.array([table[f"reward_{name}"] for name in names]).T.astype(np.float64),
        "cost": np.array([table[f"cost_{name}"] for name in names]).T.astype(np.float64),
    }


def dump_paretobandit(arrays: Arrays, n_models) -> bytes:
    """Content of the compressed CSV file of one split."""
    columns = {"prompt": arrays["prompt"], "source": arrays["source"]}
    for j, name in enumerate(_paretobandit_names(n_models)):
        columns[f"reward_{name.split('/')[1]}"] = arrays["quality"][:, j].tolist()
        columns[f"cost_{name.split('/')[1]}"] = arrays["cost"][:, j].tolist()
    return dump_table(columns)


def convert_paretobandit(raw: dict[str, bytes], n_models) -> Arrays:
    """Arrays of one split from its records, one a line."""
    rows = [json.loads(line) for line in raw["records"].decode("utf-8").splitlines()]
    names = _paretobandit_names(n_models)

    def numbers(kind):
        return np.array([[row["arms"][name][kind] for name in names] for row in rows], dtype=float)

    return {
        "prompt": [row["prompt"] for row in rows],
        "source": [row["source"] for row in rows],
        "quality": numbers("reward"),
        "cost": numbers("cost"),
    }


_PARETOBANDIT_DIGESTS = {
    ("val", 3): "6e93aba1584396a3f513d233ebbdf25594808e932a702b91a80ad751121422e2",
    ("test", 3): "1ab00ed7e74ef6971fc3acec5baf6ba4b97fdb49ca7dcb1ead33480505d4d995",
    ("val", 4): "bb915108279a3fe708ef1efa98625bc879a82ed4dfa39cee3c6e45787d0075c1",
    ("test", 4): "2ae8527504611e90743f25f02dcd1e0a0410d474443ffc66806a22ab9f21d8b4",
}


def paretobandit_origin(split, n_models):
    """The origin of one of the four files."""
    name = split if n_models == 3 else f"{split}_k4"
    source = _PARETOBANDIT if n_models == 3 else _PARETOBANDIT_FOUR
    return Origin(
        path=f"paretobandit/{name}.csv.gz",
        urls={"records": [github(*source, f"data_collection/rewards/{name}.jsonl")]},
        convert=partial(convert_paretobandit, n_models=n_models),
        digest=_PARETOBANDIT_DIGESTS[split, n_models],
        size="1.5 MB",
        load=partial(load_paretobandit, n_models=n_models),
        dump=partial(dump_paretobandit, n_models=n_models),
    )


def _owned(path, digest, load=None):
    """A file that is read only from a folder that the user has."""
    more = {} if load is None else {"load": load}
    return Origin(path=path, urls={}, convert=dict, digest=digest, size="nothing", **more)


def load_prompts(path):
    """Prompts and their ids from a compressed CSV file."""
    table = read_table(path)
    return {"query_id": table["query_id"], "prompt": table["prompt"]}


def load_greenserv_log(path):
    """Arrays of the log of GreenServ."""
    table = read_table(path)
    whole = {name: np.array(table[name]).astype(np.int64) for name in ("run", "step", "query_id")}
    real = {
        name: np.array(table[name]).astype(np.float64)
        for name in ("reward", "optimal_reward", "propensity")
    }
    return {"policy": table["policy"], "model": table["model"], **whole, **real}


CASCADES = {
    "MMLU": (
        _owned(
            "cascades/mmlu.npz", "abf74775abbd011b683bee87393c1b34639aec7c4a04b49198afe28788d52053"
        ),
        _owned(
            "cascades/mmlu_prompts.csv.gz",
            "e9b4fe92f13dd3cf0a445a23872b710f49b80bcddb4b904cde4b339212defe9d",
            load_prompts,
        ),
    ),
    "TriviaQA": (
        _owned(
            "cascades/triviaqa.npz",
            "48b8dbb1c3c93af0939a6c9bd99e4dd63ad6037f0f2aedc72015af16532f72e3",
        ),
        _owned(
            "cascades/triviaqa_prompts.csv.gz",
            "f7579db80acc4ac78c2cc427951fd461f9ccb7e6598f6375497da9805d62294a",
            load_prompts,
        ),
    ),
}
CARROT = _owned(
    "carrot/leaderboard.npz", "416e93de519da7d41086ff3a6f1449286b67484c208d063a50b9c170c69fe64c"
)
GREENSERV = (
    _owned(
        "greenserv/log.csv.gz",
        "ea45d2370873a0ae2c943555d21cace4c0982272b3934367a95d12fa057cf694",
        load_greenserv_log,
    ),
    _owned(
        "greenserv/queries.csv.gz",
        "62b705556039c7f1d1f99a830c21cce9e3f27720fa9b9fd5addddb3cba008280",
        load_prompts,
    ),
)

_PARETOBANDIT_DESCR = """{n_models} language models on {n} prompts, and each answer's cost.

Quality in [0, 1], given by one judge model on a rubric; the cost of an answer in US dollars
varies from prompt to prompt. The prompts come from nine public benchmarks, which have licences of
their own. The four-model files lack 19 and 31 of the rows. The authors' train split is not public.

Origin: github.com/ParetoBandit/ParetoBandit, data_collection/rewards, Apache-2.0.
"""
_CASCADES_DESCR = """Nine language models on {name}, with confidence, cost and time.

Cost is in US dollars, the call for the confidence included. The train rows of MMLU are of another
kind than its test rows (the benchmark's own parts), and few.

Origin: github.com/mzelling/rational-llm-cascades, commit 0d9c861. No licence is stated: skroute
neither ships nor downloads it. Paper: Zellinger and Thomson, arXiv 2501.09345.
"""
_CARROT_DESCR = """18 open language models on 21,065 items of 38 tasks (Open LLM Leaderboard 2).

No prompts: the task is the only feature. Prices are US dollars per million tokens.

Origin: github.com/somerstep/CARROT, commit 2d47d1f. No licence is stated: skroute neither ships
nor downloads it. Paper: Somerstep et al., CARROT, arXiv 2502.03261.
"""
_GREENSERV_DESCR = """A bandit log: which of 16 language models was asked, and what came back.

Five runs of two policies over the same 2,500 queries. Reward is half accuracy and half energy
saved. The propensities of epsilon_greedy were found by replaying the source's policy.

Origin: github.com/TZData1/llm-inference-router, commit 8e055dd. No licence is stated: skroute
neither ships nor downloads it, and the prompts have licences of their own.
"""


def _read(origin, data_home, download_if_missing=False):
    return load_or_fetch(origin, data_home=data_home, download_if_missing=download_if_missing)


@validate_params(
    {"n_models": [Interval(Integral, 3, 4, closed="both")], **FETCH_PARAMS},
    prefer_skip_nested_validation=True,
)
def fetch_paretobandit(
    n_models: int = 3,
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
) -> Bunch:
    """Load how well three or four language models answer prompts, and each answer's cost.

    3,609 prompts with three models, 3,559 with four. The most expensive model is .009 better
    than the one at 1/29 of its cost.

    Parameters
    ----------
    n_models : {3, 4}, default=3
        4 adds gemini-2.5-flash and leaves out the rows that have no score for it.

    data_home : str or path-like, default=None
        Folder to look in and to download to, see :func:`get_data_home`. None takes the
        environment variable ``SKROUTE_DATA`` and, where that is not set,
        ``~/skroute_data``.

    download_if_missing : bool, default=True
        Whether to download the set where the file is absent. If False, an absent file is
        an error.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like, with

        data : ndarray of shape (n_samples,), dtype=object
            The prompts.
        quality : ndarray of shape (n_samples, n_models), dtype=float64
            The judge's score of each answer, in [0, 1].
        costs : ndarray of shape (n_samples, n_models), dtype=float64
            What each answer cost, in US dollars.
        model_names : list of str
            The models, the columns of `quality` and `costs`.
        source : ndarray of shape (n_samples,), dtype=object
            The benchmark that a prompt is from.
        is_test : ndarray of shape (n_samples,), dtype=bool
            The authors' test rows; the others are their validation rows.
        DESCR : str
            Description, origin and licence of the set.
        filenames : list of str
            The files that were read.

    Raises
    ------
    OSError
        If the file is absent and `download_if_missing` is False, if no address of the
        origin answers, or if what was downloaded is not the known data set.

    Examples
    --------
    >>> from skroute.datasets import fetch_paretobandit
    >>> log = fetch_paretobandit()  # doctest: +SKIP
    >>> log.quality[log.is_test].mean(axis=0).round(3)  # doctest: +SKIP
    array([0.793, 0.923, 0.932])
    """
    parts = [
        _read(paretobandit_origin(split, n_models), data_home, download_if_missing)
        for split in ("val", "test")
    ]
    val, test = (arrays for arrays, _ in parts)
    return Bunch(
        data=texts(val["prompt"] + test["prompt"]),
        quality=np.vstack([val["quality"], test["quality"]]),
        costs=np.vstack([val["cost"], test["cost"]]),
        model_names=[name.split("/")[1] for name in _paretobandit_names(n_models)],
        source=texts(val["source"] + test["source"]),
        is_test=np.repeat([False, True], [len(val["prompt"]), len(test["prompt"])]),
        DESCR=_PARETOBANDIT_DESCR.format(
            n_models=("Three", "Four")[n_models - 3], n=len(val["prompt"]) + len(test["prompt"])
        ),
        filenames=[str(path) for _, path in parts],
    )


@validate_params({"name": [StrOptions(set(CASCADES))], **_HOME}, prefer_skip_nested_validation=True)
def fetch_cascades(name: str, *, data_home: str | os.PathLike[str] | None = None) -> Bunch:
    """Load nine language models' answers with confidence and cost, from a folder you have.

    The source states no licence, so that the files are never downloaded: they are read from the
    folder ``cascades`` of the data home.

    Parameters
    ----------
    name : {"MMLU", "TriviaQA"}
        The set: 1,816 or 1,300 questions.

    data_home : str or path-like, default=None
        Folder to look in, see :func:`get_data_home`. None takes the
        environment variable ``SKROUTE_DATA`` and, where that is not set,
        ``~/skroute_data``.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like, with

        data : ndarray of shape (n_samples,), dtype=object
            The prompts.
        quality : ndarray of shape (n_samples, 9), dtype=uint8
            1 where the answer is right.
        confidence : ndarray of shape (n_samples, 9), dtype=float32
            A log-probability, at most 0; -inf occurs.
        costs : ndarray of shape (n_samples, 9), dtype=float64
            What each answer cost, in US dollars, its confidence included.
        seconds : ndarray of shape (n_samples, 9), dtype=float64
            How long the client waited.
        model_names : list of str
            The models, the columns of these.
        chain : list of str
            The chain of the authors that a model belongs to, in the order of asking.
        is_test : ndarray of shape (n_samples,), dtype=bool
            The authors' test rows.
        DESCR : str
            Description and origin of the set.
        filenames : list of str
            The files that were read.

    Raises
    ------
    OSError
        If a file is absent or is not the known one.

    Examples
    --------
    >>> from skroute.datasets import fetch_cascades
    >>> log = fetch_cascades("MMLU")  # doctest: +SKIP
    >>> log.quality.shape  # doctest: +SKIP
    (1816, 9)
    """
    answers, asked = (_read(origin, data_home) for origin in CASCADES[name])
    arrays = answers[0]
    prompts = dict(zip(asked[0]["query_id"], asked[0]["prompt"]))
    return Bunch(
        data=texts([prompts[key] for key in arrays["query_id"].tolist()]),
        quality=arrays["correctness"],
        confidence=arrays["confidence"],
        costs=arrays["cost"],
        seconds=arrays["latency_ms"].astype(np.float64) / 1000,
        model_names=arrays["model_names"].tolist(),
        chain=arrays["chain"].tolist(),
        is_test=arrays["is_test"],
        DESCR=_CASCADES_DESCR.format(name=name),
        filenames=[str(answers[1]), str(asked[1])],
    )


@validate_params(_HOME, prefer_skip_nested_validation=True)
def fetch_carrot(*, data_home: str | os.PathLike[str] | None = None) -> Bunch:
    """Load which of 18 open language models solve which task items, from a folder you have.

    The source states no licence, so that the file is never downloaded: it is read from the
    folder ``carrot`` of the data home.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder to look in, see :func:`get_data_home`. None takes the
        environment variable ``SKROUTE_DATA`` and, where that is not set,
        ``~/skroute_data``.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like, with

        task : ndarray of shape (21065,), dtype=str
            The task of each item, one of 38; the only feature.
        group : ndarray of shape (21065,), dtype=str
            The benchmark that the task belongs to.
        quality : ndarray of shape (21065, 18), dtype=uint8
            1 where the model is right.
        costs : ndarray of shape (18,), dtype=float64
            Price of each model in US dollars per million tokens.
        model_names : list of str
            The models, the columns of `quality`.
        is_test : ndarray of shape (21065,), dtype=bool
            The authors' random fifth.
        DESCR : str
            Description and origin of the set.
        filename : str
            The file that was read.

    Raises
    ------
    OSError
        If a file is absent or is not the known one.

    Examples
    --------
    >>> from skroute.datasets import fetch_carrot
    >>> log = fetch_carrot()  # doctest: +SKIP
    >>> round(float(log.quality.mean(axis=0).max()), 4)  # doctest: +SKIP
    0.5586
    """
    arrays, path = _read(CARROT, data_home)
    return Bunch(
        task=arrays["task_names"][arrays["task_id"]],
        group=arrays["task_group"][arrays["task_id"]],
        quality=arrays["correctness"],
        costs=arrays["price_per_mtoken"],
        model_names=arrays["model_names"].tolist(),
        is_test=arrays["is_test"],
        DESCR=_CARROT_DESCR,
        filename=str(path),
    )


@validate_params(_HOME, prefer_skip_nested_validation=True)
def fetch_greenserv(*, data_home: str | os.PathLike[str] | None = None) -> Bunch:
    """Load a log of one answer a request by 16 language models, from a folder you have.

    A choice, its probability and what came back, for policies from logs. The source states no
    licence, so that the files are never downloaded: they are read from the folder ``greenserv``
    of the data home.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder to look in, see :func:`get_data_home`. None takes the
        environment variable ``SKROUTE_DATA`` and, where that is not set,
        ``~/skroute_data``.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like, with

        data : ndarray of shape (25000,), dtype=object
            The prompts.
        choice : ndarray of shape (25000,), dtype=object
            The model that was asked.
        reward : ndarray of shape (25000,), dtype=float64
            What came back, in [0, 1].
        propensity : ndarray of shape (25000,), dtype=float64
            Probability of the choice.
        best_reward : ndarray of shape (25000,), dtype=float64
            The best reward of the 16 models on this prompt.
        policy : ndarray of shape (25000,), dtype=object
            ``"random"`` or ``"epsilon_greedy"``.
        run : ndarray of shape (25000,), dtype=int64
            0 to 4.
        query_id : ndarray of shape (25000,), dtype=int64
            Which of the 2,500 prompts; every policy of every run meets each once.
        DESCR : str
            Description and origin of the set.
        filenames : list of str
            The files that were read.

    Raises
    ------
    OSError
        If a file is absent or is not the known one.

    Examples
    --------
    >>> from skroute.datasets import fetch_greenserv
    >>> log = fetch_greenserv()  # doctest: +SKIP
    >>> round(float(log.reward[log.policy == "random"].mean()), 4)  # doctest: +SKIP
    0.6737
    """
    (arrays, path), (asked, prompts_path) = (_read(origin, data_home) for origin in GREENSERV)
    prompts = dict(zip(map(int, asked["query_id"]), asked["prompt"]))
    return Bunch(
        data=texts([prompts[key] for key in arrays["query_id"].tolist()]),
        choice=texts(arrays["model"]),
        reward=arrays["reward"],
        propensity=arrays["propensity"],
        best_reward=arrays["optimal_reward"],
        policy=texts(arrays["policy"]),
        run=arrays["run"],
        query_id=arrays["query_id"],
        DESCR=_GREENSERV_DESCR,
        filenames=[str(path), str(prompts_path)],
    )
