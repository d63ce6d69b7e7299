"""Tables with features and labels: Adult, Letter, Covertype (a sample), USPS."""

import io
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import Bunch

from skroute.datasets._base import (
    FETCH_PARAMS,
    Arrays,
    Origin,
    content_digest,
    github,
    load_or_fetch,
)
from skroute.utils._compat import validate_params
from skroute.utils._optional import import_optional

_TABLE_PARAMS = {**FETCH_PARAMS, "return_X_y": ["boolean"], "as_frame": ["boolean"]}

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"

# Column name and, for a categorical column, True.
_ADULT_COLUMNS = {
    "age": False,
    "workclass": True,
    "fnlwgt": False,
    "education": True,
    "education-num": False,
    "marital-status": True,
    "occupation": True,
    "relationship": True,
    "race": True,
    "sex": True,
    "capital-gain": False,
    "capital-loss": False,
    "hours-per-week": False,
    "native-country": True,
}
_COVER_TYPES = [
    "Spruce/Fir",
    "Lodgepole Pine",
    "Ponderosa Pine",
    "Cottonwood/Willow",
    "Aspen",
    "Douglas-fir",
    "Krummholz",
]
_LETTER_COLUMNS = [
    "x-box",
    "y-box",
    "width",
    "high",
    "onpix",
    "x-bar",
    "y-bar",
    "x2bar",
    "y2bar",
    "xybar",
    "x2ybr",
    "xy2br",
    "x-ege",
    "xegvy",
    "y-ege",
    "yegvx",
]


def _csv_rows(raw, n_fields):
    """Fields of each line that has `n_fields` of them; headers and comments have not."""
    lines = raw.decode("ascii").splitlines()
    rows = ([field.strip() for field in line.split(",")] for line in lines)
    return [row for row in rows if len(row) == n_fields]


def convert_adult(raw: dict[str, bytes]) -> Arrays:
    """Arrays of Adult from ``adult.data`` (train) and ``adult.test``."""
    train = _csv_rows(raw["adult.data"], 15)
    test = _csv_rows(raw["adult.test"], 15)
    *columns, labels = zip(*(train + test))
    X = np.empty((len(labels), len(columns)), dtype=np.int32)
    arrays = {
        "X": X,
        # In adult.test each label ends with a full stop.
        "y": np.array([label.rstrip(".") == ">50K" for label in labels], dtype=np.uint8),
        "is_test": np.arange(len(labels)) >= len(train),
        "feature_names": np.array(list(_ADULT_COLUMNS)),
        "is_categorical": np.array(list(_ADULT_COLUMNS.values())),
        "target_names": np.array(["<=50K", ">50K"]),
    }
    for j, ((name, categorical), column) in enumerate(zip(_ADULT_COLUMNS.items(), columns)):
        if categorical:
            categories = sorted(set(column) - {"?"})
            code = {category: i for i, category in enumerate(categories)} | {"?": -1}
            X[:, j] = [code[value] for value in column]
            arrays[_categories_key(name)] = np.array(categories)
        else:
            X[:, j] = [int(value) for value in column]
    return arrays


def _categories_key(name):
    return f"categories_{name.replace('-', '_')}"


def convert_letter(raw: dict[str, bytes]) -> Arrays:
    """Arrays of Letter from ``letter-recognition.data``, with or without a header."""
    rows = [row for row in _csv_rows(raw["letter-recognition.data"], 17) if len(row[0]) == 1]
    return {
        "X": np.array([row[1:] for row in rows]).astype(np.uint8),
        "y": np.array([row[0] for row in rows]),
        "feature_names": np.array(_LETTER_COLUMNS),
        "is_test": np.arange(len(rows)) >= 16_000,
    }


def convert_covertype(raw: dict[str, bytes]) -> Arrays:
    """Arrays of the Covertype sample from ``covtype.csv``, which has a header."""
    names, *rows = _csv_rows(raw["covtype.csv"], 55)
    table = np.array(rows).astype(np.int16)
    return {
        "X": table[:, :-1],
        "y": table[:, -1].astype(np.uint8),
        "is_test": np.arange(len(table)) >= 10_000,
        "feature_names": np.array(names[:-1]),
    }


def convert_usps(raw: dict[str, bytes]) -> Arrays:
    """Arrays of USPS from ``USPS.mat``: ``fea`` of (11000, 256), ``gnd`` with 1 to 10."""
    from scipy.io import loadmat

    file = loadmat(io.BytesIO(raw["USPS.mat"]))
    pixels = file["fea"]
    if pixels.max() <= 1:
        pixels = np.rint(pixels * 255.0)
    pixels = pixels.astype(np.uint8)
    n = len(pixels)
    is_test = np.ones(n, dtype=bool)
    is_test[np.random.RandomState(0).permutation(n)[: int(0.7 * n)]] = False
    arrays = {"X": pixels, "y": (file["gnd"].ravel() - 1).astype(np.uint8), "is_test": is_test}
    if content_digest(arrays) != USPS.digest:
        # MATLAB tools write an image column by column, others row by row, as here.
        arrays["X"] = np.ascontiguousarray(
            pixels.reshape(n, 16, 16).transpose(0, 2, 1).reshape(n, 256)
        )
    return arrays


ADULT = Origin(
    path="adult/adult.npz",
    urls={
        name: [
            f"{_UCI}/adult/{name}",
            github("YuzhongHuangCS/fairness", "ef1ea6d183f075abb5a903c1781dad2bd7be929f", name),
        ]
        for name in ("adult.data", "adult.test")
    },
    convert=convert_adult,
    digest="e74fa733de4aabbeaf917ea0ce90eb2535c0b46c12b51ce4ad25dd5ff85738e8",
    size="6 MB",
)

LETTER = Origin(
    path="letter/letter.npz",
    urls={
        "letter-recognition.data": [
            f"{_UCI}/letter-recognition/letter-recognition.data",
            github(
                "davidgasquez/letter-recognition",
                "2735ea914041060ca6e28fd38bfe7071f2e54ee9",
                "letter-recognition.data",
            ),
        ]
    },
    convert=convert_letter,
    digest="11549bb0544b72097566ea923c0e91441b3aa96c01402b4b7e3afabcb2fa4689",
    size="0.7 MB",
)

COVERTYPE_SAMPLE = Origin(
    path="covtype/covtype15k.npz",
    urls={
        "covtype.csv": [
            github(
                "lijiangjie50-png/eco-mind-live",
                "d925dc210945cf68b814a20773905bbff8536a59",
                "covtype.csv",
            )
        ]
    },
    convert=convert_covertype,
    digest="168c6e27e04a468e467c70bfda0afa18655a93b51f2a727e6ee8ef36508d2327",
    size="2 MB",
)

USPS = Origin(
    path="usps/usps.npz",
    urls={
        "USPS.mat": [
            github("se2/cis602-01-a3", "9b711514a372f70981eb101b719fa78cd1ec9ba9", "USPS.mat")
        ]
    },
    convert=convert_usps,
    digest="6d04b4ee2ef34460a4455486fa85b12247995ca9b6914520daae3a488a08b462",
    size="3 MB",
)


class _Table(NamedTuple):
    """A table: where it comes from, what is said of it, and what goes into its Bunch.

    Attributes
    ----------
    origin : Origin
        The arrays ``X``, ``y`` and ``is_test``, and more.

    DESCR : str
        Description, origin and licence.

    details : callable
        From the arrays to the further entries: ``feature_names``, ``target_names``, ...
    """

    origin: Origin
    DESCR: str
    details: Callable[[Arrays], dict[str, Any]]


_ADULT_DESCR = """Adult (census income), Becker and Kohavi, UCI Machine Learning Repository.

48,842 persons, 14 features (8 of them categorical), two classes: income above 50,000
US dollars a year (23.9 %) or not. The split is the official one, 32,561 / 16,281.
A categorical column holds the index into ``categories``; -1 is a missing value
(6,465 cells). Licence: CC BY 4.0.
"""
_LETTER_DESCR = """Letter recognition, Frey and Slate 1991, UCI Machine Learning Repository.

20,000 images of the 26 capital letters, 16 integer features from 0 to 15. The split is
the usual one: the first 16,000 rows train, the last 4,000 test. Licence: CC BY 4.0.
"""
_COVERTYPE_DESCR = """Covertype, Blackard and Dean, UCI Machine Learning Repository: a sample.

15,000 of the 581,012 rows, drawn at random and published in a public repository; class
shares are within one point of the full data. It is neither the full set, which
sklearn.datasets.fetch_covtype loads, nor the balanced 15,120 rows of Kaggle. Ten
numeric columns, then 4 wilderness and 40 soil indicators; seven classes. The first
10,000 rows train, the last 5,000 test. Licence: CC BY 4.0.
"""
_USPS_DESCR = """USPS handwritten digits, the version with 11,000 images, 1,100 per class.

16 x 16 grey pixels from 0 to 255, row by row, sorted by class. It is not the version
with 7,291 / 2,007 images. The split is made here: the first 70 % of
numpy.random.RandomState(0).permutation(11000) train. Licence: none stated.
"""


def _adult_details(arrays):
    return {
        "feature_names": arrays["feature_names"].tolist(),
        "target_names": arrays["target_names"].tolist(),
        "is_categorical": arrays["is_categorical"],
        "categories": {
            name: arrays[_categories_key(name)].tolist()
            for name, categorical in _ADULT_COLUMNS.items()
            if categorical
        },
    }


def _letter_details(arrays):
    return {
        "feature_names": arrays["feature_names"].tolist(),
        "target_names": np.unique(arrays["y"]).tolist(),
    }


def _covertype_details(arrays):
    return {"feature_names": arrays["feature_names"].tolist(), "target_names": _COVER_TYPES}


def _usps_details(arrays):
    return {
        "feature_names": [f"pixel_{row}_{column}" for row in range(16) for column in range(16)],
        "target_names": [str(digit) for digit in range(10)],
        "images": arrays["X"].reshape(-1, 16, 16),
    }


TABLES = {
    "adult": _Table(ADULT, _ADULT_DESCR, _adult_details),
    "letter": _Table(LETTER, _LETTER_DESCR, _letter_details),
    "covertype sample": _Table(COVERTYPE_SAMPLE, _COVERTYPE_DESCR, _covertype_details),
    "usps": _Table(USPS, _USPS_DESCR, _usps_details),
}


def _fetch_table(name, data_home, download_if_missing, return_X_y, as_frame):
    """The Bunch, or the pair, that all fetchers of tables return."""
    table = TABLES[name]
    arrays, path = load_or_fetch(
        table.origin, data_home=data_home, download_if_missing=download_if_missing
    )
    data, target, frame = arrays["X"], arrays["y"], None
    details = table.details(arrays)
    if as_frame:
        pandas = import_optional("pandas", "as_frame=True")
        columns = dict(zip(details["feature_names"], data.T))
        for column, categories in details.get("categories", {}).items():
            columns[column] = pandas.Categorical.from_codes(columns[column], categories)
        data = pandas.DataFrame(columns)
        target = pandas.Series(target, name="target")
        frame = pandas.concat([data, target], axis=1)
    if return_X_y:
        return data, target
    return Bunch(
        data=data,
        target=target,
        is_test=arrays["is_test"],
        frame=frame,
        DESCR=table.DESCR,
        filename=str(path),
        **details,
    )


@validate_params(_TABLE_PARAMS, prefer_skip_nested_validation=True)
def fetch_adult(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Any:
    """Load Adult: whether a person earns more than 50,000 dollars a year.

    48,842 rows, 14 features (8 of them categorical), two classes, the official split of
    32,561 / 16,281 rows. About 0.6 MB on disk, 6 MB to download from the UCI Machine
    Learning Repository or, where that does not answer, from a copy.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder to look in and to download to, see :func:`get_data_home`. None takes the
        environment variable ``SKROUTE_DATA`` and, where that is not set,
        ``~/skroute_data``.

    download_if_missing : bool, default=True
        Whether to download the set where the file is absent. If False, an absent file is
        an error.

    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of the :class:`~sklearn.utils.Bunch`.

    as_frame : bool, default=False
        Whether `data` is a pandas data frame and `target` a series. Needs pandas.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like, with

        data : ndarray of shape (48_842, 14), dtype=int32, or DataFrame
            The features.
        target : ndarray of shape (48_842,), dtype=uint8, or Series
            The labels.
        is_test : ndarray of shape (48_842,), dtype=bool
            The rows that belong to the test set.
        feature_names : list of str
            Names of the columns of `data`.
        target_names : list of str
            Names of the classes.
        is_categorical : ndarray of shape (14,), dtype=bool
            Columns that hold an index into `categories`; -1 is a missing value. With
            ``as_frame=True`` these columns are categorical and missing values NaN.
        categories : dict of str to list of str
            The categories of each categorical column.
        frame : DataFrame
            `data` and `target` in one frame; only with ``as_frame=True``.
        DESCR : str
            Description, origin and licence of the set.
        filename : str
            The file that was read.

    (data, target) : tuple
        Only with ``return_X_y=True``.

    Raises
    ------
    OSError
        If the file is absent and `download_if_missing` is False, if no address of the
        origin answers, or if what was downloaded is not the known data set.

    Examples
    --------
    >>> from skroute.datasets import fetch_adult
    >>> X, y = fetch_adult(return_X_y=True)  # doctest: +SKIP
    >>> X.shape  # doctest: +SKIP
    (48842, 14)
    """
    return _fetch_table("adult", data_home, download_if_missing, return_X_y, as_frame)


@validate_params(_TABLE_PARAMS, prefer_skip_nested_validation=True)
def fetch_letter(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Any:
    """Load Letter: which of 26 letters an image shows.

    20,000 rows, 16 features, 26 classes, the usual split of 16,000 / 4,000 rows. About
    0.2 MB on disk, 0.7 MB to download from the UCI Machine Learning Repository or, where
    that does not answer, from a copy.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder to look in and to download to, see :func:`get_data_home`. None takes the
        environment variable ``SKROUTE_DATA`` and, where that is not set,
        ``~/skroute_data``.

    download_if_missing : bool, default=True
        Whether to download the set where the file is absent. If False, an absent file is
        an error.

    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of the :class:`~sklearn.utils.Bunch`.

    as_frame : bool, default=False
        Whether `data` is a pandas data frame and `target` a series. Needs pandas.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like, with

        data : ndarray of shape (20_000, 16), dtype=uint8, or DataFrame
            The features.
        target : ndarray of shape (20_000,), dtype=str, or Series
            The labels.
        is_test : ndarray of shape (20_000,), dtype=bool
            The rows that belong to the test set.
        feature_names : list of str
            Names of the columns of `data`.
        target_names : list of str
            Names of the classes.
        frame : DataFrame
            `data` and `target` in one frame; only with ``as_frame=True``.
        DESCR : str
            Description, origin and licence of the set.
        filename : str
            The file that was read.

    (data, target) : tuple
        Only with ``return_X_y=True``.

    Raises
    ------
    OSError
        If the file is absent and `download_if_missing` is False, if no address of the
        origin answers, or if what was downloaded is not the known data set.

    Examples
    --------
    >>> from skroute.datasets import fetch_letter
    >>> X, y = fetch_letter(return_X_y=True)  # doctest: +SKIP
    >>> X.shape  # doctest: +SKIP
    (20000, 16)
    """
    return _fetch_table("letter", data_home, download_if_missing, return_X_y, as_frame)


@validate_params(_TABLE_PARAMS, prefer_skip_nested_validation=True)
def fetch_covertype_sample(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Any:
    """Load a sample of Covertype: which trees grow on a patch of forest.

    15,000 of the 581,012 rows, 54 features, seven classes, split into 10,000 / 5,000 rows.
    About 0.3 MB on disk, 2 MB to download. :func:`sklearn.datasets.fetch_covtype` loads
    all rows; the sample cannot be drawn from those, since its row numbers are not known.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder to look in and to download to, see :func:`get_data_home`. None takes the
        environment variable ``SKROUTE_DATA`` and, where that is not set,
        ``~/skroute_data``.

    download_if_missing : bool, default=True
        Whether to download the set where the file is absent. If False, an absent file is
        an error.

    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of the :class:`~sklearn.utils.Bunch`.

    as_frame : bool, default=False
        Whether `data` is a pandas data frame and `target` a series. Needs pandas.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like, with

        data : ndarray of shape (15_000, 54), dtype=int16, or DataFrame
            The features.
        target : ndarray of shape (15_000,), dtype=uint8, or Series
            The labels.
        is_test : ndarray of shape (15_000,), dtype=bool
            The rows that belong to the test set.
        feature_names : list of str
            Names of the columns of `data`.
        target_names : list of str
            Names of the classes.
        frame : DataFrame
            `data` and `target` in one frame; only with ``as_frame=True``.
        DESCR : str
            Description, origin and licence of the set.
        filename : str
            The file that was read.

    (data, target) : tuple
        Only with ``return_X_y=True``.

    Raises
    ------
    OSError
        If the file is absent and `download_if_missing` is False, if no address of the
        origin answers, or if what was downloaded is not the known data set.

    Examples
    --------
    >>> from skroute.datasets import fetch_covertype_sample
    >>> X, y = fetch_covertype_sample(return_X_y=True)  # doctest: +SKIP
    >>> X.shape  # doctest: +SKIP
    (15000, 54)
    """
    return _fetch_table("covertype sample", data_home, download_if_missing, return_X_y, as_frame)


@validate_params(_TABLE_PARAMS, prefer_skip_nested_validation=True)
def fetch_usps(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Any:
    """Load USPS: which digit an image of 16 x 16 pixels shows.

    11,000 rows, 256 features, ten classes with 1,100 rows each, sorted by class; the split
    is 7,699 / 3,301 rows. About 1.6 MB on disk, 3 MB to download.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder to look in and to download to, see :func:`get_data_home`. None takes the
        environment variable ``SKROUTE_DATA`` and, where that is not set,
        ``~/skroute_data``.

    download_if_missing : bool, default=True
        Whether to download the set where the file is absent. If False, an absent file is
        an error.

    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of the :class:`~sklearn.utils.Bunch`.

    as_frame : bool, default=False
        Whether `data` is a pandas data frame and `target` a series. Needs pandas.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like, with

        data : ndarray of shape (11_000, 256), dtype=uint8, or DataFrame
            The features.
        target : ndarray of shape (11_000,), dtype=uint8, or Series
            The labels.
        is_test : ndarray of shape (11_000,), dtype=bool
            The rows that belong to the test set.
        feature_names : list of str
            Names of the columns of `data`.
        target_names : list of str
            Names of the classes.
        images : ndarray of shape (11000, 16, 16), dtype=uint8
            The rows of `data` as images.
        frame : DataFrame
            `data` and `target` in one frame; only with ``as_frame=True``.
        DESCR : str
            Description, origin and licence of the set.
        filename : str
            The file that was read.

    (data, target) : tuple
        Only with ``return_X_y=True``.

    Raises
    ------
    OSError
        If the file is absent and `download_if_missing` is False, if no address of the
        origin answers, or if what was downloaded is not the known data set.

    Examples
    --------
    >>> from skroute.datasets import fetch_usps
    >>> X, y = fetch_usps(return_X_y=True)  # doctest: +SKIP
    >>> X.shape  # doctest: +SKIP
    (11000, 256)
    """
    return _fetch_table("usps", data_home, download_if_missing, return_X_y, as_frame)
