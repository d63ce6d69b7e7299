"""Answers and prices of commercial prediction APIs: FrugalML and FrugalMCT."""

import json
import os
from functools import partial
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch, check_random_state

from skroute.datasets._base import FETCH_PARAMS, Arrays, Origin, github, load_or_fetch
from skroute.utils._compat import Integral, Interval, Real, StrOptions, validate_params

_FRUGALML = ("lchen001/FrugalML", "96712f670e219236e2a193f644cf501153f8179d")
_FRUGALMCT = ("lchen001/FrugalMCT", "850a2b6fd83155ee2257f2e648e1967b5b157873")


class _Apis(NamedTuple):
    """The services that answered a group of data sets: the columns."""

    ids: tuple[int, ...]
    names: tuple[str, ...]
    prices: tuple[float, ...]

    def arrays(self) -> Arrays:
        return {
            "api_ids": np.array(self.ids, dtype=np.int32),
            "api_names": np.array(self.names),
            "price_per_10k": np.array(self.prices, dtype=np.float64),
        }


class _LogSet(NamedTuple):
    """One data set: what it is about, who answered, the digest of its arrays."""

    task: str
    apis: _Apis
    label_names: tuple[str, ...]
    digest: str


_FACE = _Apis(
    (0, 1, 2, 100), ("Google", "FacePP", "Microsoft", "GitHub(CNN)"), (15.0, 5.0, 10.0, 0.001)
)
_TEXT = _Apis(
    (0, 3, 4, 100), ("Google", "Baidu", "Amazon", "GitHub(Vader)"), (2.5, 3.5, 0.75, 0.001)
)
_CHINESE_TEXT = _Apis(
    (0, 3, 4, 100), ("Google", "Baidu", "Amazon", "GitHub(Bixin)"), (2.5, 3.5, 0.75, 0.001)
)
_SPEECH = _Apis(
    (0, 2, 5, 101), ("Google", "Microsoft", "IBM", "GitHub(DeepSpeech)"), (60.0, 41.0, 25.0, 0.02)
)
_IMAGE_TAGS = _Apis(
    (0, 2, 6, 100000),
    ("Google", "Microsoft", "EveryPixel", "GitHub(SSD)"),
    (15.0, 10.0, 6.0, 0.001),
)
_ENTITIES = _Apis(
    (4, 5, 0, 100001), ("Amazon", "IBM", "Google", "GitHub(Spacy)"), (3.0, 30.0, 10.0, 0.001)
)
_SCENE_TEXT = _Apis(
    (999, 88, 9, 1001), ("Google", "iFLYTEK", "Tencent", "GitHub(SSD)"), (15.0, 50.0, 210.0, 0.001)
)

_EMOTIONS = ("anger", "disgust", "fear", "happy", "sad", "surprise", "neutral")
_SENTIMENTS = ("positive", "negative")
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_COMMANDS = (
    *_DIGITS,
    *(
        "bed",
        "bird",
        "cat",
        "dog",
        "down",
        "go",
        "happy",
        "house",
        "left",
        "marvin",
        "no",
        "off",
        "on",
        "right",
        "sheila",
        "stop",
        "tree",
        "up",
        "wow",
        "yes",
        "(none of the 30 words)",
    ),
)

FRUGALML = {
    "FERPLUS": _LogSet(
        "facial emotion recognition",
        _FACE,
        _EMOTIONS,
        "21d06d1c12ab1e84f3936935654b08fd830bc9a7601383478c8857b40391dfca",
    ),
    "EXPW": _LogSet(
        "facial emotion recognition",
        _FACE,
        _EMOTIONS,
        "528940b2e3477f51fdc664c9aa59e79d2f55dfe08e978d4eeb2cfd0c289ca1f3",
    ),
    "AFFECTNET": _LogSet(
        "facial emotion recognition",
        _FACE,
        _EMOTIONS,
        "a176d03a1aab1a56b769a82aa6ee494da88319313b53077d4a08e91833611f3c",
    ),
    "YELP": _LogSet(
        "sentiment analysis",
        _TEXT,
        _SENTIMENTS,
        "012ad850f17ac99964336c3ba09143f3dd1d8b7ef3d11c5a615ced46446f83ed",
    ),
    "IMDB": _LogSet(
        "sentiment analysis",
        _TEXT,
        _SENTIMENTS,
        "a063a1dfc738dd496f7c6f6ca976c4976aad241621fc85fcfb93e0c3a392c89d",
    ),
    "WAIMAI": _LogSet(
        "sentiment analysis",
        _CHINESE_TEXT,
        _SENTIMENTS,
        "235381ed1944ff7cd4b9eac7296acde817ea1a10be9b70cb23a622a359815f3b",
    ),
    "DIGIT": _LogSet(
        "speech to text",
        _SPEECH,
        (*_DIGITS, "(no digit)"),
        "0bb4d4d499abe3b790c6761232377277711e8a4efc55342e7825ff818d3616e7",
    ),
    "AUDIOMNIST": _LogSet(
        "speech to text",
        _SPEECH,
        (*_DIGITS, "(no digit)"),
        "eb0c6cf9ab2c3c63693dca6114fb119f0e8b2cda8885238d8eacf9c9b2ad5872",
    ),
    "COMMAND": _LogSet(
        "speech to text",
        _SPEECH,
        _COMMANDS,
        "539331655154d5bc177aed52ad2e17c1cebe3138c7d94ce00c4fdccaaf36d9d0",
    ),
}

FRUGALMCT = {
    "PASCAL": _LogSet(
        "multi-label image classification",
        _IMAGE_TAGS,
        (
            "person",
            "bird",
            "cat",
            "cow",
            "dog",
            "horse",
            "sheep",
            "aeroplane",
            "bicycle",
            "boat",
            "bus",
            "car",
            "motorbike",
            "train",
            "bottle",
            "chair",
            "diningtable",
            "pottedplant",
            "sofa",
            "tvmonitor",
        ),
        "21300102b96ccbc33e462798e7c3e1012e2c4773d09bfea15053e43dbcf50990",
    ),
    "MIR": _LogSet(
        "multi-label image classification",
        _IMAGE_TAGS,
        (
            "animals",
            "baby",
            "bird",
            "car",
            "clouds",
            "dog",
            "female",
            "flower",
            "food",
            "indoor",
            "lake",
            "male",
            "night",
            "people",
            "plant_life",
            "portrait",
            "river",
            "sea",
            "sky",
            "structures",
            "sunset",
            "transport",
            "tree",
            "water",
        ),
        "e174d32734ca4c970dba9f6e86e144ba2654676e5e5c35560005d3d858144fc7",
    ),
    "COCO": _LogSet(
        "multi-label image classification",
        _IMAGE_TAGS,
        (),
        "5f1b7b3c23467e1019b8214a62038c93c06adcc6ed84d8618c84f1b639de74b3",
    ),
    "CONLL": _LogSet(
        "named entity recognition",
        _ENTITIES,
        (),
        "474eeea6d2e383a82f2f16180d85a0c1f3efb3873af44aafed99368c9a4097e4",
    ),
    "GMB": _LogSet(
        "named entity recognition",
        _ENTITIES,
        (),
        "53dbdd1b9334d3752670cdf64ede0fac46ce2d6ca0fe50f416cdd2f4a153c953",
    ),
    "ZHNER": _LogSet(
        "named entity recognition",
        _ENTITIES,
        (),
        "9d72c3f4b75ebe27429b98d6fc43dcfab0759e259622f0f49bf6cf4d14e6063b",
    ),
    "LSVT": _LogSet(
        "scene text recognition",
        _SCENE_TEXT,
        (),
        "b6a72baae6e1e019f801b785d82247bdcd09de0883982e42daba396a3c0347cf",
    ),
    "MTWI": _LogSet(
        "scene text recognition",
        _SCENE_TEXT,
        (),
        "a8faf210fe2e5e215873c59907118aab9db01d64d6e13e9db40a6460e4b1a04c",
    ),
    "ReCTS": _LogSet(
        "scene text recognition",
        _SCENE_TEXT,
        (),
        "9da05226c52a6c860b3a7fcfa54631ea9b6845e732146e6800a35625bc790df3",
    ),
}

# The services of which FrugalMCT has the labels and scores, not only the accuracy.
_WITH_SCORES = {"PASCAL": (0, 2, 6), "MIR": (0,)}


def _numbers(raw):
    return np.array(raw.split(), dtype=np.float64)


def _names(raw):
    """Names that stand one a line, each but the last with a comma."""
    return np.array([line.rstrip(",") for line in raw.decode("utf-8").split()])


def convert_frugalml(raw: dict[str, bytes], entry: _LogSet) -> Arrays:
    """Arrays of a FrugalML set from its text files, one number a line."""
    y_true = _numbers(raw["TrueLabel"]).astype(np.int8)
    predicted = np.column_stack(
        [_numbers(raw[f"PredictedLabel {i}"]) for i in entry.apis.ids]
    ).astype(np.int8)
    arrays = {
        "y_true": y_true,
        "predicted_label": predicted,
        "reward": (predicted == y_true[:, None]).astype(np.uint8),
        **entry.apis.arrays(),
    }
    if "ImageName" in raw:
        arrays["confidence"] = np.column_stack(
            [_numbers(raw[f"Confidence {i}"]) for i in entry.apis.ids]
        ).astype(np.float32)
        arrays["sample_id"] = _names(raw["ImageName"])
    return arrays


def convert_frugalmct(raw: dict[str, bytes], entry: _LogSet, with_scores) -> Arrays:
    """Arrays of a FrugalMCT set from its text files and, for labels, JSON files."""
    sample_id = _names(raw["ImageName"])
    arrays = {
        "reward": np.column_stack([_numbers(raw[f"Reward {i}"]) for i in entry.apis.ids]).astype(
            np.float32
        ),
        "sample_id": sample_id,
        **entry.apis.arrays(),
    }
    if with_scores:
        column = {label: j for j, label in enumerate(entry.label_names)}
        row = {PurePosixPath(name).stem: i for i, name in enumerate(sample_id)}
        y_true = np.zeros((len(row), len(column)), dtype=bool)
        for name, labels in json.loads(raw["TrueLabel"]).items():
            for label in labels:
                y_true[row[PurePosixPath(name).stem], column[label["transcription"]]] = True
        scores = np.zeros((len(row), len(with_scores), len(column)), dtype=np.float32)
        for k, api in enumerate(with_scores):
            for name, labels in json.loads(raw[f"PredictedLabel {api}"]).items():
                for label in labels:
                    # A service may name a label twice, and labels that nobody asked for.
                    if (j := column.get(label["transcription"])) is not None:
                        i = row[PurePosixPath(name).stem]
                        scores[i, k, j] = max(scores[i, k, j], label["confidence"])
        arrays |= {
            "y_true": y_true,
            "scores": scores,
            "label_names": np.array(entry.label_names),
            "scores_api_ids": np.array(with_scores, dtype=np.int32),
        }
    return arrays


def _addresses(source, name, apis, *kinds):
    """Where a file may be that is the same for each of `apis`, under each of `kinds`."""
    folder = f"dataset/mlserviceperformance_{name}"
    return [github(*source, f"{folder}/Model{i}_{kind}.txt") for i in apis for kind in kinds]


def frugalml_origin(name: str) -> Origin:
    """The origin of a FrugalML set."""
    entry = FRUGALML[name]
    ids = entry.apis.ids
    where = partial(_addresses, _FRUGALML, name)
    urls = {"TrueLabel": where(ids, "TrueLabel")}
    for i in ids:
        # Where the coding was not changed, a service has one of the two files only.
        urls[f"PredictedLabel {i}"] = where([i], "PredictedLabel", "OriginalPredictedLabel")
    if name != "AFFECTNET":
        urls["ImageName"] = where(ids, "ImageName")
        for i in ids:
            urls[f"Confidence {i}"] = where([i], "Confidence")
    return Origin(
        path=f"frugalml/{name}.npz",
        urls=urls,
        convert=partial(convert_frugalml, entry=entry),
        digest=entry.digest,
        size="up to 10 MB",
    )


def frugalmct_origin(name: str) -> Origin:
    """The origin of a FrugalMCT set."""
    entry = FRUGALMCT[name]
    ids = entry.apis.ids
    where = partial(_addresses, _FRUGALMCT, name)
    urls = {"ImageName": where(ids, "ImageName")}
    for i in ids:
        urls[f"Reward {i}"] = where([i], "Reward")
    with_scores = _WITH_SCORES.get(name, ())
    if with_scores:
        urls["TrueLabel"] = where(ids, "TrueLabel")
    for i in with_scores:
        urls[f"PredictedLabel {i}"] = where([i], "PredictedLabel", "OriginalPredictedLabel")
    return Origin(
        path=f"frugalmct/{name}.npz",
        urls=urls,
        convert=partial(convert_frugalmct, entry=entry, with_scores=with_scores),
        digest=entry.digest,
        size="up to 20 MB",
    )


_FRUGALML_DESCR = """{name}: answers of commercial APIs for {task} (FrugalML).

Labels and scores of three commercial services and one open-source model on a public test
set of {n} items, with prices in US dollars per 10,000 calls. The items themselves are
not part of it and have licences of their own.

Origin: github.com/lchen001/FrugalML, commit 96712f6, Apache-2.0. Paper: Chen, Zaharia, Zou,
FrugalML: How to use ML prediction APIs more accurately and cheaply, NeurIPS 2020,
arXiv 2006.07512.
"""

_FRUGALMCT_DESCR = """{name}: answers of commercial APIs for {task} (FrugalMCT).

Accuracy of three commercial services and one open-source model on each of {n} items, with
prices in US dollars per 10,000 calls.{extra} The items themselves are not part of it and
have licences of their own.

Origin: github.com/lchen001/FrugalMCT, commit 850a2b6, Apache-2.0. Paper: Chen, Zaharia, Zou,
Efficient online ML API selection for multi-label classification tasks, ICML 2022,
arXiv 2102.09127.
"""


@validate_params(
    {"name": [StrOptions(set(FRUGALML))], **FETCH_PARAMS}, prefer_skip_nested_validation=True
)
def fetch_frugalml(
    name: str,
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
) -> Bunch:
    """Load what commercial APIs answered to single-label tasks, with scores and prices.

    The log of a FrugalML data set [1]_: three services and one cheap open-source model on
    the same rows. Rows stand in the order of the source; YELP, IMDB, WAIMAI, DIGIT,
    AUDIOMNIST and COMMAND are sorted by class, so shuffle before you split (for the
    authors' split see :func:`frugal_split`).

    The paper has twelve sets; these are the nine of them that could be checked as a whole.
    RAFDB, SHOP and FLUENT are not offered.

    Parameters
    ----------
    name : str
        The set. Faces (FERPLUS, EXPW, AFFECTNET), sentiment of texts (YELP, IMDB, WAIMAI),
        spoken words (DIGIT, AUDIOMNIST, COMMAND). 2,000 (DIGIT) to 287,401 (AFFECTNET)
        rows; at most 1.2 MB on disk, 10 MB to download.

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

        predictions : ndarray of shape (n_samples, 4), dtype=int8
            The class that each service answered.
        scores : ndarray of shape (n_samples, 4), dtype=float32, or None
            The score of that answer, in [0, 1]. Absent (None) in AFFECTNET.
        target : ndarray of shape (n_samples,), dtype=int8
            The true class.
        quality : ndarray of shape (n_samples, 4), dtype=uint8
            1 where ``predictions`` is right.
        costs : ndarray of shape (4,), dtype=float64
            Price of each service in US dollars per 10,000 calls.
        model_names : list of str
            The services, the columns of all of these.
        target_names : list of str
            The classes. In the speech sets the last one stands for "no such word".
        sample_id : ndarray of shape (n_samples,), dtype=str, or None
            File names; not unique in COMMAND, absent (None) in AFFECTNET.
        DESCR : str
            Description, origin and licence of the set.
        filename : str
            The file that was read.

    Raises
    ------
    OSError
        If the file is absent and `download_if_missing` is False, if no address of the
        origin answers, or if what was downloaded is not the known data set.

    References
    ----------
    .. [1] L. Chen, M. Zaharia, J. Zou (2020). FrugalML: How to use ML prediction APIs more
       accurately and cheaply. NeurIPS. arXiv:2006.07512

    Examples
    --------
    >>> from skroute.datasets import fetch_frugalml
    >>> log = fetch_frugalml("FERPLUS")  # doctest: +SKIP
    >>> log.model_names  # doctest: +SKIP
    ['Google', 'FacePP', 'Microsoft', 'GitHub(CNN)']
    >>> [round(float(accuracy), 3) for accuracy in log.quality.mean(axis=0)]  # doctest: +SKIP
    [0.677, 0.684, 0.814, 0.651]
    """
    arrays, path = load_or_fetch(
        frugalml_origin(name),
        data_home=data_home,
        download_if_missing=download_if_missing,
    )
    entry = FRUGALML[name]
    return Bunch(
        predictions=arrays["predicted_label"],
        scores=arrays.get("confidence"),
        target=arrays["y_true"],
        quality=arrays["reward"],
        costs=arrays["price_per_10k"],
        model_names=arrays["api_names"].tolist(),
        target_names=list(entry.label_names),
        sample_id=arrays.get("sample_id"),
        DESCR=_FRUGALML_DESCR.format(name=name, task=entry.task, n=len(arrays["y_true"])),
        filename=str(path),
    )


@validate_params(
    {"name": [StrOptions(set(FRUGALMCT))], **FETCH_PARAMS}, prefer_skip_nested_validation=True
)
def fetch_frugalmct(
    name: str,
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
) -> Bunch:
    """Load how well commercial APIs answered multi-label tasks, with prices.

    The log of a FrugalMCT data set [1]_: three services and one cheap open-source model on
    the same rows. For PASCAL (three services) and MIR (one) the labels and their scores are
    there too; of the other seven sets only the accuracy of each answer is public as a whole.

    Parameters
    ----------
    name : str
        The set. Image labels (PASCAL, MIR, COCO), named entities (CONLL, GMB, ZHNER), scene
        text (LSVT, MTWI, ReCTS). 9,742 (MTWI) to 123,287 (COCO) rows; at most 1.2 MB on
        disk, 20 MB to download.

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

        quality : ndarray of shape (n_samples, 4), dtype=float32
            Accuracy of each service's label set, in [0, 1]. In PASCAL it is the Jaccard
            index of the labels with a positive score and the true ones; in MIR the source
            used another list of true labels, so it cannot be had from `scores`.
        costs : ndarray of shape (4,), dtype=float64
            Price of each service in US dollars per 10,000 calls.
        model_names : list of str
            The services, the columns of `quality`.
        sample_id : ndarray of shape (n_samples,), dtype=str
            File names, unique.
        target : ndarray of shape (n_samples, n_labels), dtype=bool, or None
            True labels; PASCAL (20) and MIR (24) only.
        scores : ndarray of shape (n_samples, n_scored, n_labels), dtype=float32, or None
            The largest score that a service gave a label, 0 where it did not name it;
            PASCAL and MIR only.
        scores_columns : ndarray of shape (n_scored,), dtype=int64, or None
            The column of `quality` that each service in `scores` has.
        target_names : list of str
            The labels; empty where `target` is None.
        DESCR : str
            Description, origin and licence of the set.
        filename : str
            The file that was read.

    Raises
    ------
    OSError
        If the file is absent and `download_if_missing` is False, if no address of the
        origin answers, or if what was downloaded is not the known data set.

    References
    ----------
    .. [1] L. Chen, M. Zaharia, J. Zou (2022). Efficient online ML API selection for
       multi-label classification tasks. ICML. arXiv:2102.09127

    Examples
    --------
    >>> from skroute.datasets import fetch_frugalmct
    >>> log = fetch_frugalmct("PASCAL")  # doctest: +SKIP
    >>> log.model_names  # doctest: +SKIP
    ['Google', 'Microsoft', 'EveryPixel', 'GitHub(SSD)']
    >>> [round(float(accuracy), 3) for accuracy in log.quality.mean(axis=0)]  # doctest: +SKIP
    [0.545, 0.748, 0.679, 0.493]
    """
    arrays, path = load_or_fetch(
        frugalmct_origin(name),
        data_home=data_home,
        download_if_missing=download_if_missing,
    )
    entry = FRUGALMCT[name]
    columns = None
    if "scores_api_ids" in arrays:
        columns = np.array([entry.apis.ids.index(i) for i in arrays["scores_api_ids"]])
    extra = " Labels and scores of some services are included." if columns is not None else ""
    return Bunch(
        quality=arrays["reward"],
        costs=arrays["price_per_10k"],
        model_names=arrays["api_names"].tolist(),
        sample_id=arrays["sample_id"],
        target=arrays.get("y_true"),
        scores=arrays.get("scores"),
        scores_columns=columns,
        target_names=list(entry.label_names),
        DESCR=_FRUGALMCT_DESCR.format(
            name=name, task=entry.task, n=len(arrays["reward"]), extra=extra
        ),
        filename=str(path),
    )


@validate_params(
    {
        "n_samples": [Interval(Integral, 2, None, closed="left")],
        "random_state": ["random_state"],
        "train_share": [Interval(Real, 0.0, 1.0, closed="neither")],
    },
    prefer_skip_nested_validation=True,
)
def frugal_split(
    n_samples: int, random_state: Any, train_share: float = 0.5
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split rows as the authors of FrugalML and FrugalMCT do.

    ``numpy.random.seed(random_state)``, a permutation of the rows, its first part trains.
    The authors use 1, 5, 10, 50 and 100 and a share of 0.5.

    Parameters
    ----------
    n_samples : int
        Number of rows.

    random_state : int, RandomState instance or None
        Determines the permutation. Pass an int for the authors' split; the global random
        state is then not touched.

    train_share : float, default=0.5
        Share of rows that train, rounded down; the others test.

    Returns
    -------
    train : ndarray of shape (n_train,), dtype=int64
        Rows that train.

    test : ndarray of shape (n_samples - n_train,), dtype=int64
        Rows that test.

    Raises
    ------
    ValueError
        If one of the two parts is empty.

    Examples
    --------
    >>> from skroute.datasets import frugal_split
    >>> train, test = frugal_split(6, random_state=1)
    >>> train, test
    (array([2, 1, 4]), array([0, 3, 5]))
    """
    n_train = int(n_samples * train_share)
    if n_train == 0:
        raise ValueError(
            f"train_share={train_share!r} of n_samples={n_samples!r} leaves no row to train on; "
            f"it must be at least {1 / n_samples:.3g}."
        )
    permutation = check_random_state(random_state).permutation(n_samples)
    return permutation[:n_train], permutation[n_train:]
