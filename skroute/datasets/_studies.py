"""Three small sets of papers on guarantees and on buying features."""

import os

import numpy as np
from sklearn.utils import Bunch

from skroute.datasets._base import FETCH_PARAMS, Arrays, Origin, github, load_or_fetch
from skroute.utils._compat import StrOptions, validate_params

_SPAM = ("iancovert/dynamic-selection", "f348c26744950d48ab109ad5dd244373a2585d9d")
_SPAM_WORDS = (
    "make address all 3d our over remove internet order mail receive will people report addresses "
    "free business email you credit your font 000 money hp hpl george 650 lab labs telnet 857 data "
    "415 85 technology 1999 parts pm direct cs meeting original project re edu table conference"
).split()
_SPAM_COLUMNS = [
    *(f"word_freq_{word}" for word in _SPAM_WORDS),
    *(f"char_freq_{char}" for char in ";([!$#"),
    *(f"capital_run_length_{kind}" for kind in ("average", "longest", "total")),
]
_HOME = {"data_home": FETCH_PARAMS["data_home"]}


def convert_spam(raw: dict[str, bytes]) -> Arrays:
    """Arrays of Spambase from the table of the paper's authors, with their split."""
    lines = raw["spam.csv"].decode("ascii").splitlines()[1:]
    values = np.array([line.split(",") for line in lines]).astype(np.float64)
    order = np.random.default_rng(0).permutation(len(values))
    fifth = len(values) // 5
    rows = np.arange(len(values))
    return {
        "X": values[:, :-1].astype(np.float32),
        "y": values[:, -1].astype(np.uint8),
        "feature_names": np.array(_SPAM_COLUMNS),
        "is_val": np.isin(rows, order[fifth : 2 * fifth]),
        "is_test": np.isin(rows, order[:fifth]),
    }


SPAM = Origin(
    path="spam/spam.npz",
    urls={"spam.csv": [github(*_SPAM, "datasets/spam.csv")]},
    convert=convert_spam,
    digest="90e9d2d437238f9d581980ad14056a5b7e2e9eeaae2405a4c6b3b9d80bc1f4c7",
    size="1.1 MB",
)


def _owned(path, digest):
    """A file that is read only from a folder that the user has."""
    return Origin(path=path, urls={}, convert=dict, digest=digest, size="nothing")


CALM = _owned("calm/cnndm.npz", "5c00b8b7699125540264f6c5329904f9e8fecc3e6b9e88c660f8076285350da3")
SUPG = {
    "TACRED": _owned(
        "supg/tacred.npz", "c8d93f32dfca1335aea510c9106378f116ba0509867d311c4038ffa79dcc9915"
    ),
    "OntoNotes": _owned(
        "supg/onto.npz", "5beb4b34ecadef8a7e746ea815070844220753b02aa7f2d415fe0ba5587c984f"
    ),
}

_SPAM_DESCR = """Spambase: whether an e-mail is spam, from 57 frequencies.

4,601 rows; 391 repeat an earlier one, and 92 of the 920 test rows also stand in train or
validation. The split is that of Covert et al., Learning to maximize mutual information for
dynamic feature selection, ICML 2023.

Origin: UCI (Hopkins et al.), CC BY 4.0, by way of github.com/iancovert/dynamic-selection.
"""
_CALM_DESCR = """Early exit of a summariser at 100 thresholds: layers and losses of 2,000 texts.

Origin: github.com/metodj/RC-EENN, commit 3db9a52. No licence is stated: skroute neither ships nor
downloads it. Paper: Jazbec et al., Fast yet safe: early-exiting with risk control, arXiv
2405.20915.
"""
_SUPG_DESCR = """A cheap proxy's scores and an expensive oracle's answers, positives rare ({name}).

Origin: github.com/stanford-futuredata/supg, commit cff4e7e, Apache-2.0; read from a folder only,
since the raw files are in another form. Paper: Kang et al., Approximate selection with guarantees
using proxies, arXiv 2004.00827.
"""


@validate_params(FETCH_PARAMS, prefer_skip_nested_validation=True)
def fetch_spam(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
) -> Bunch:
    """Load Spambase: whether an e-mail is spam.

    4,601 rows, 57 features, two classes, split into 2,761 / 920 / 920 rows as in a paper on
    buying features one by one. 0.2 MB on disk, 1.1 MB to download.

    Parameters
    ----------
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

        data : ndarray of shape (4601, 57), dtype=float32
            Frequencies of words and characters in percent, lengths of runs of capitals.
        target : ndarray of shape (4601,), dtype=uint8
            1 for spam.
        feature_names : list of str
            Names of the columns of `data`.
        is_val : ndarray of shape (4601,), dtype=bool
            Rows that the paper validates on.
        is_test : ndarray of shape (4601,), dtype=bool
            Rows that the paper tests on.
        DESCR : str
            Description, origin and licence of the set.
        filename : str
            The file that was read.

    Raises
    ------
    OSError
        If the file is absent and `download_if_missing` is False, if no address of the
        origin answers, or if what was downloaded is not the known data set.

    Examples
    --------
    >>> from skroute.datasets import fetch_spam
    >>> spam = fetch_spam()  # doctest: +SKIP
    >>> round(float(spam.target.mean()), 3)  # doctest: +SKIP
    0.394
    """
    arrays, path = load_or_fetch(SPAM, data_home=data_home, download_if_missing=download_if_missing)
    return Bunch(
        data=arrays["X"],
        target=arrays["y"],
        feature_names=arrays["feature_names"].tolist(),
        is_val=arrays["is_val"],
        is_test=arrays["is_test"],
        DESCR=_SPAM_DESCR,
        filename=str(path),
    )


@validate_params(_HOME, prefer_skip_nested_validation=True)
def fetch_calm(*, data_home: str | os.PathLike[str] | None = None) -> Bunch:
    """Load the losses of a summariser that stops early, from a folder you have.

    Which of 100 thresholds keeps a promised loss? The source states no licence, so that the
    file is never downloaded: it is read from the folder ``calm`` of the data home.

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

        losses : ndarray of shape (2000, 100), dtype=float32
            What each text loses at each threshold, in a ROUGE score; negative where the short
            run writes the better summary.
        costs : ndarray of shape (100,), dtype=float64
            Mean layers at each threshold, 14.88 down to 4.13.
        thresholds : ndarray of shape (100,), dtype=float64
            1 down to .01.
        full_quality : ndarray of shape (2000,), dtype=float32
            The score of the whole net.
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
    >>> from skroute.datasets import fetch_calm
    >>> calm = fetch_calm()  # doctest: +SKIP
    >>> calm.losses.shape  # doctest: +SKIP
    (2000, 100)
    """
    arrays, path = load_or_fetch(CALM, data_home=data_home, download_if_missing=False)
    return Bunch(
        losses=arrays["losses"].T,
        costs=arrays["layers"],
        thresholds=arrays["thresholds"],
        full_quality=arrays["score_full"],
        DESCR=_CALM_DESCR,
        filename=str(path),
    )


@validate_params({"name": [StrOptions(set(SUPG))], **_HOME}, prefer_skip_nested_validation=True)
def fetch_supg(name: str, *, data_home: str | os.PathLike[str] | None = None) -> Bunch:
    """Load a proxy's scores beside an oracle's answers, from a folder you have.

    Read from the folder ``supg`` of the data home; never downloaded.

    Parameters
    ----------
    name : {"TACRED", "OntoNotes"}
        The set: 22,631 or 11,165 rows, 2.4 and 2.5 % of them positive.

    data_home : str or path-like, default=None
        Folder to look in, see :func:`get_data_home`. None takes the
        environment variable ``SKROUTE_DATA`` and, where that is not set,
        ``~/skroute_data``.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like, with

        scores : ndarray of shape (n_samples,), dtype=float32
            The proxy's score, in (0, 1).
        target : ndarray of shape (n_samples,), dtype=uint8
            The oracle's answer.
        DESCR : str
            Description, origin and licence of the set.
        filename : str
            The file that was read.

    Raises
    ------
    OSError
        If a file is absent or is not the known one.

    Examples
    --------
    >>> from skroute.datasets import fetch_supg
    >>> int(fetch_supg("TACRED").target.sum())  # doctest: +SKIP
    534
    """
    arrays, path = load_or_fetch(SUPG[name], data_home=data_home, download_if_missing=False)
    return Bunch(
        scores=arrays["proxy_score"],
        target=arrays["label"],
        DESCR=_SUPG_DESCR.format(name=name),
        filename=str(path),
    )
