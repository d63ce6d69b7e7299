"""Answers and prices of commercial prediction APIs: FrugalML and FrugalMCT."""

import json
import os
from functools import partial
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import Bunch, check_random_state

from skroute.datasets._base import (
    FETCH_PARAMS,
    Origin,
    dump_npz,
    github,
    load_npz,
    load_or_fetch,
)
from skroute.datasets._frugal_sets import FRUGALMCT, FRUGALML, LogSet
from skroute.utils._compat import Integral, Interval, Real, StrOptions, validate_params
from skroute.utils._typing import NDArray

# Repositories of the sources, each at a pinned commit.
_FRUGALML = ("lchen001/FrugalML", "96712f670e219236e2a193f644cf501153f8179d")
_FRUGALMCT = ("lchen001/FrugalMCT", "850a2b6fd83155ee2257f2e648e1967b5b157873")

# Sets of FrugalMCT whose labels and scores are public, with the ids of the services
# that have scores.
_WITH_SCORES = {"PASCAL": (0, 2, 6), "MIR": (0,)}


def _numbers(raw):
    """Return the numbers of a text file, from its bytes, as an array of float64."""
    return np.array(raw.split(), dtype=np.float64)


def _names(raw):
    """Return the names of a text file, from its bytes, as an array of str.

    There is one name per line. Each except the last ends with a comma.
    """
    return np.array([line.rstrip(",") for line in raw.decode("utf-8").split()])


def _columns(raw, kind, ids, dtype):
    """Return one column per service, from text files with one number per line.

    Parameters
    ----------
    raw : dict of str to bytes
        Contents of the files. A name is a kind and the id of a service, such as
        ``"PredictedLabel 0"``.

    kind : str
        Such as ``"PredictedLabel"``.

    ids : sequence of int
        Ids of the services.

    dtype : dtype

    Returns
    -------
    ndarray of shape (n_rows, n_services)
    """
    columns = [_numbers(raw[f"{kind} {api}"]) for api in ids]
    return np.column_stack(columns).astype(dtype)


def convert_frugalml(raw: dict[str, bytes], entry: LogSet) -> bytes:
    """Convert the text files of a FrugalML set to the content of one ``.npz`` file.

    Parameters
    ----------
    raw : dict of str to bytes
        Contents of the raw files, by name.

    entry : LogSet
        The set.

    Returns
    -------
    bytes
        Content of the ``.npz`` file.
    """
    ids = entry.apis.ids
    y_true = _numbers(raw["TrueLabel"]).astype(np.int8)
    predicted = _columns(raw, "PredictedLabel", ids, dtype=np.int8)
    arrays = {
        "y_true": y_true,
        "predicted_label": predicted,
        "reward": (predicted == y_true[:, None]).astype(np.uint8),
        **entry.apis.arrays(),
    }
    # AFFECTNET has neither names nor scores.
    if "ImageName" in raw:
        arrays["confidence"] = _columns(raw, "Confidence", ids, np.float32)
        arrays["sample_id"] = _names(raw["ImageName"])
    return dump_npz(arrays)


class _LabelEntry(NamedTuple):
    """A label that a JSON file of FrugalMCT gives an item.

    Attributes
    ----------
    row : int
        Row of the item.

    column : int
        Column of the label.

    fields : dict
        The source's record of the label, such as its ``"confidence"``.
    """

    row: int
    column: int
    fields: dict


def convert_frugalmct(raw: dict[str, bytes], entry: LogSet, with_scores) -> bytes:
    """Convert the text and JSON files of a FrugalMCT set to one ``.npz`` file.

    Parameters
    ----------
    raw : dict of str to bytes
        Contents of the raw files, by name.

    entry : LogSet
        The set.

    with_scores : sequence of int
        Ids of the services whose labels and scores are read. Empty if the set has none.

    Returns
    -------
    bytes
        Content of the ``.npz`` file.
    """
    sample_id = _names(raw["ImageName"])
    arrays = {
        "reward": _columns(raw, "Reward", entry.apis.ids, np.float32),
        "sample_id": sample_id,
        **entry.apis.arrays(),
    }
    if with_scores:
        arrays |= _labels_and_scores(raw, entry, sample_id, with_scores)
    return dump_npz(arrays)


def _labels_and_scores(raw, entry, sample_id, with_scores):
    """Return the true labels and the scores of a FrugalMCT set, as arrays by name.

    Parameters
    ----------
    raw, entry, with_scores
        As in :func:`convert_frugalmct`.

    sample_id : ndarray of str of shape (n_rows,)
        File name of each item.

    Returns
    -------
    dict of str to ndarray
    """
    # Rows are items, and columns are labels.
    column_of_label = {}
    for column, label_name in enumerate(entry.label_names):
        column_of_label[label_name] = column
    row_of_item = {}
    for row, file_name in enumerate(sample_id):
        row_of_item[PurePosixPath(file_name).stem] = row
    n_rows = len(row_of_item)
    n_labels = len(column_of_label)
    y_true = np.zeros((n_rows, n_labels), dtype=bool)
    for label in _label_entries(raw["TrueLabel"], row_of_item, column_of_label):
        y_true[label.row, label.column] = True
    scores = np.zeros((n_rows, len(with_scores), n_labels), dtype=np.float32)
    for position, api in enumerate(with_scores):
        content = raw[f"PredictedLabel {api}"]
        for label in _label_entries(content, row_of_item, column_of_label):
            cell = (label.row, position, label.column)
            # If a label occurs twice, the larger score counts.
            scores[cell] = max(scores[cell], label.fields["confidence"])
    return {
        "y_true": y_true,
        "scores": scores,
        "label_names": np.array(entry.label_names),
        "scores_api_ids": np.array(with_scores, dtype=np.int32),
    }


def _label_entries(content, row_of_item, column_of_label):
    """Yield the labels of the items in a JSON file.

    Labels that `column_of_label` does not have are left out.

    Parameters
    ----------
    content : bytes
        The file: by the name of each item, a list of records of its labels.

    row_of_item : dict of str to int
        Row of each item, by its file name without the ending.

    column_of_label : dict of str to int
        Column of each label of the data set.

    Yields
    ------
    _LabelEntry
    """
    for file_name, records in json.loads(content).items():
        item = PurePosixPath(file_name).stem
        for record in records:
            # A service may return labels that the data set does not have.
            column = column_of_label.get(record["transcription"])
            if column is not None:
                yield _LabelEntry(row_of_item[item], column, record)


def _addresses(source, name, apis, *kinds):
    """Return the addresses that may have a file, in the order of the tries.

    Parameters
    ----------
    source : (str, str)
        Repository and commit.

    name : str
        Name of the set.

    apis : sequence of int
        Ids of the services. Any of them may have the file.

    *kinds : str
        Names that the file may have, such as ``"TrueLabel"``.

    Returns
    -------
    list of str
        One address for each service and each name.
    """
    folder = f"dataset/mlserviceperformance_{name}"
    addresses = []
    for api in apis:
        for kind in kinds:
            addresses.append(github(*source, f"{folder}/Model{api}_{kind}.txt"))
    return addresses


# Names that a service's file of predicted labels may have, in the order of the tries.
# If the labels were recoded, the source has both files, and the first one is used.
_PREDICTED = ("PredictedLabel", "OriginalPredictedLabel")


def frugalml_origin(name: str) -> Origin:
    """Return the origin of a FrugalML set: addresses, conversion and digest."""
    entry = FRUGALML[name]
    ids = entry.apis.ids
    # Each raw file has a list of addresses, which are tried until one has the file.
    addresses_of = partial(_addresses, _FRUGALML, name)
    # The true labels and the names are equal for all services. So the first file that
    # is found, of any service, is used.
    urls = {"TrueLabel": addresses_of(ids, "TrueLabel")}
    for api in ids:
        urls[f"PredictedLabel {api}"] = addresses_of([api], *_PREDICTED)
    if name != "AFFECTNET":
        urls["ImageName"] = addresses_of(ids, "ImageName")
        for api in ids:
            urls[f"Confidence {api}"] = addresses_of([api], "Confidence")
    convert = partial(convert_frugalml, entry=entry)
    return Origin(
        path=f"frugalml/{name}.npz",
        urls=urls,
        convert=convert,
        load=load_npz,
        digest=entry.digest,
        size="up to 10 MB",
    )


def frugalmct_origin(name: str) -> Origin:
    """Return the origin of a FrugalMCT set: addresses, conversion and digest."""
    entry = FRUGALMCT[name]
    ids = entry.apis.ids
    with_scores = _WITH_SCORES.get(name, ())  # empty: only the accuracy is public
    # Each raw file has a list of addresses, which are tried until one has the file.
    addresses_of = partial(_addresses, _FRUGALMCT, name)
    # The true labels and the names are equal for all services. So the first file that
    # is found, of any service, is used.
    urls = {"ImageName": addresses_of(ids, "ImageName")}
    for api in ids:
        urls[f"Reward {api}"] = addresses_of([api], "Reward")
    if with_scores:
        urls["TrueLabel"] = addresses_of(ids, "TrueLabel")
    for api in with_scores:
        urls[f"PredictedLabel {api}"] = addresses_of([api], *_PREDICTED)
    convert = partial(convert_frugalmct, entry=entry, with_scores=with_scores)
    return Origin(
        path=f"frugalmct/{name}.npz",
        urls=urls,
        convert=convert,
        load=load_npz,
        digest=entry.digest,
        size="up to 20 MB",
    )


_FRUGALML_DESCR = """{name}: answers of commercial APIs for {task} (FrugalML).

Labels and scores of three commercial services and one open-source model on a public
test set of {n} items, with prices in US dollars per 10,000 calls. The items themselves
are not part of it and have licences of their own.

Origin: github.com/lchen001/FrugalML, commit 96712f6, Apache-2.0. Paper: Chen, Zaharia,
Zou, FrugalML: How to use ML prediction APIs more accurately and cheaply, NeurIPS 2020,
arXiv 2006.07512.
"""

_FRUGALMCT_DESCR = """{name}: answers of commercial APIs for {task} (FrugalMCT).

Accuracy of three commercial services and one open-source model on each of {n} items,
with prices in US dollars per 10,000 calls.{extra} The items themselves are not part of
it and have licences of their own.

Origin: github.com/lchen001/FrugalMCT, commit 850a2b6, Apache-2.0. Paper: Chen, Zaharia,
Zou, Efficient online ML API selection for multi-label classification tasks, ICML 2022,
arXiv 2102.09127.
"""


@validate_params(
    {"name": [StrOptions(set(FRUGALML))], **FETCH_PARAMS},
    prefer_skip_nested_validation=True,
)
def fetch_frugalml(
    name: str,
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
) -> Bunch:
    """Load answers of commercial APIs to single-label tasks, with scores and prices.

    FrugalML asks one service, and then perhaps another. This is the log of one of its
    data sets [1]_: three services and one cheap open-source model on the same rows.
    Rows have the order of the source. YELP, IMDB, WAIMAI, DIGIT, AUDIOMNIST and COMMAND
    are sorted by class. Shuffle them before you split. The authors' split is
    :func:`frugal_split`.

    The paper has twelve sets. Nine of them could be checked as a whole. RAFDB, SHOP and
    FLUENT are not offered.

    Parameters
    ----------
    name : str
        The set: faces (FERPLUS, EXPW, AFFECTNET), sentiment of texts (YELP, IMDB,
        WAIMAI) or spoken words (DIGIT, AUDIOMNIST, COMMAND). A set has 2,000 (DIGIT) to
        287,401 (AFFECTNET) rows. It has at most 1.2 MB on disk, and 10 MB to download.

    data_home : str or path-like, default=None
        Folder to look in and to download to, as in :func:`get_data_home`.

    download_if_missing : bool, default=True
        If True, a missing file is downloaded. If False, it is an error.

    Returns
    -------
    :class:`~sklearn.utils.Bunch`
        Dictionary-like, with

        predictions : ndarray of shape (n_samples, 4), dtype=int8
            The class that each service answered.
        scores : ndarray of shape (n_samples, 4), dtype=float32, or None
            The score of each answer, in [0, 1]. Absent (None) in AFFECTNET.
        target : ndarray of shape (n_samples,), dtype=int8
            The true class.
        quality : ndarray of shape (n_samples, 4), dtype=uint8
            1 where ``predictions`` is right.
        costs : ndarray of shape (4,), dtype=float64
            Price of each service in US dollars per 10,000 calls.
        model_names : list of str
            The services, in the order of the columns and of `costs`.
        target_names : list of str
            The classes. In the speech sets the last one stands for "no such word".
        sample_id : ndarray of shape (n_samples,), dtype=str, or None
            File names. They are not unique in COMMAND, and absent (None) in AFFECTNET.
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
    .. [1] L. Chen, M. Zaharia, J. Zou (2020). FrugalML: How to use ML prediction APIs
       more accurately and cheaply. NeurIPS. arXiv:2006.07512

    Examples
    --------
    >>> from skroute.datasets import fetch_frugalml
    >>> log = fetch_frugalml("FERPLUS")  # doctest: +SKIP
    >>> log.model_names  # doctest: +SKIP
    ['Google', 'FacePP', 'Microsoft', 'GitHub(CNN)']
    >>> log.quality.mean(axis=0).round(3)  # doctest: +SKIP
    array([0.677, 0.684, 0.814, 0.651])
    """
    arrays, path = load_or_fetch(frugalml_origin(name), data_home, download_if_missing)
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
        DESCR=_FRUGALML_DESCR.format(
            name=name, task=entry.task, n=len(arrays["y_true"])
        ),
        filename=str(path),
    )


@validate_params(
    {"name": [StrOptions(set(FRUGALMCT))], **FETCH_PARAMS},
    prefer_skip_nested_validation=True,
)
def fetch_frugalmct(
    name: str,
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
) -> Bunch:
    """Load the accuracy of commercial APIs on multi-label tasks, with prices.

    FrugalMCT combines the answers of two services. This is the log of one of its data
    sets [1]_: three services and one cheap open-source model on the same rows. PASCAL
    (three services) and MIR (one) also have the labels and their scores. In the other
    seven sets, only the accuracy of each answer is public for all rows.

    Parameters
    ----------
    name : str
        The set: image labels (PASCAL, MIR, COCO), named entities (CONLL, GMB, ZHNER) or
        scene text (LSVT, MTWI, ReCTS). A set has 9,742 (MTWI) to 123,287 (COCO) rows.
        It has at most 1.2 MB on disk, and 20 MB to download.

    data_home : str or path-like, default=None
        Folder to look in and to download to, as in :func:`get_data_home`.

    download_if_missing : bool, default=True
        If True, a missing file is downloaded. If False, it is an error.

    Returns
    -------
    :class:`~sklearn.utils.Bunch`
        Dictionary-like, with

        quality : ndarray of shape (n_samples, 4), dtype=float32
            Accuracy of each service's label set, in [0, 1]. In PASCAL it is the Jaccard
            index of the labels with a positive score and the true labels. In MIR it
            cannot be computed from `scores` and `target`, since the source used another
            list of true labels.
        costs : ndarray of shape (4,), dtype=float64
            Price of each service in US dollars per 10,000 calls.
        model_names : list of str
            The services, the columns of `quality`.
        sample_id : ndarray of shape (n_samples,), dtype=str
            File names, unique.
        target : ndarray of shape (n_samples, n_labels), dtype=bool, or None
            True labels. Only PASCAL (20 labels) and MIR (24) have them.
        scores : ndarray of shape (n_samples, n_scored, n_labels), or None
            The largest score of a label by a service, 0 if the service did not name the
            label. Only PASCAL and MIR have scores.
        scores_columns : ndarray of shape (n_scored,), dtype=int64, or None
            The column of `quality` that each service in `scores` has.
        target_names : list of str
            The labels. Empty if `target` is None.
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
    .. [1] L. Chen, M. Zaharia, J. Zou (2022). Efficient online ML API selection for
       multi-label classification tasks. ICML. arXiv:2102.09127

    Examples
    --------
    >>> from skroute.datasets import fetch_frugalmct
    >>> log = fetch_frugalmct("PASCAL")  # doctest: +SKIP
    >>> log.model_names  # doctest: +SKIP
    ['Google', 'Microsoft', 'EveryPixel', 'GitHub(SSD)']
    >>> log.quality.mean(axis=0).round(3)  # doctest: +SKIP
    array([0.545, 0.748, 0.679, 0.493])
    """
    arrays, path = load_or_fetch(frugalmct_origin(name), data_home, download_if_missing)
    entry = FRUGALMCT[name]
    # Column of each service that has scores. None: no service has scores.
    columns = None
    extra = ""  # a sentence of the description
    if "scores_api_ids" in arrays:
        scored_apis = arrays["scores_api_ids"]
        columns = np.array([entry.apis.ids.index(api) for api in scored_apis])
        extra = " Labels and scores of some services are included."
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
    """Split rows as the authors of the API routers FrugalML and FrugalMCT do.

    The rows are permuted as after ``numpy.random.seed(random_state)``. The first rows
    of the permutation are for training. The authors use the seeds 1, 5, 10, 50 and 100,
    and a share of 0.5.

    Parameters
    ----------
    n_samples : int
        Number of rows.

    random_state : int, RandomState instance or None
        Determines the permutation. Pass an int for the authors' split. The global
        random state does not change then.

    train_share : float, default=0.5
        Share of the rows for training. Their number is rounded down. The other rows are
        for testing.

    Returns
    -------
    train : ndarray of shape (n_train,), dtype=int64
        Rows for training.

    test : ndarray of shape (n_samples - n_train,), dtype=int64
        Rows for testing.

    Raises
    ------
    ValueError
        If there is no row for training.

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
            f"train_share={train_share!r} of n_samples={n_samples!r} leaves no row to "
            f"train on; it must be at least {1 / n_samples:.3g}."
        )
    permutation = check_random_state(random_state).permutation(n_samples)
    return permutation[:n_train], permutation[n_train:]
