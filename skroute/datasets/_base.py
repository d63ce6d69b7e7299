"""Where data sets live, and how a missing one is fetched.

Every set is one file below the data home. A fetcher reads it from there and compares it
with the known content; where it is absent, the raw files are downloaded from their public
origin, converted, compared as well and only then put in place.
"""

import hashlib
import io
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np

from skroute.utils._compat import validate_params

logger = logging.getLogger(__name__)

# Text columns are lists: as arrays of fixed width, long prompts would need gigabytes.
Arrays = dict[str, Any]

GITHUB = "https://raw.githubusercontent.com"

# Seconds: until an address counts as silent, and between two attempts at one.
_TIMEOUT = 30.0
_DELAY = 1.0
# Further attempts at an address after one that failed.
_N_RETRIES = 3

# Constraints that all fetchers share.
FETCH_PARAMS = {
    "data_home": [str, os.PathLike, None],
    "download_if_missing": ["boolean"],
}


@validate_params({"data_home": [str, os.PathLike, None]}, prefer_skip_nested_validation=True)
def get_data_home(data_home: str | os.PathLike[str] | None = None) -> str:
    """Folder in which data sets are looked up and kept.

    The folder is not created: a fetcher does that when it has something to put there.

    Parameters
    ----------
    data_home : str or path-like, default=None
        The folder. None takes the environment variable ``SKROUTE_DATA`` and, where that
        is not set, ``~/skroute_data``.

    Returns
    -------
    str
        The folder, with ``~`` expanded.

    Examples
    --------
    >>> from skroute.datasets import get_data_home
    >>> get_data_home("somewhere")
    'somewhere'
    """
    if data_home is None:
        data_home = os.environ.get("SKROUTE_DATA") or os.path.join("~", "skroute_data")
    return os.path.expanduser(os.fspath(data_home))


def load_npz(path: Path) -> Arrays:
    """Arrays of an ``.npz`` file."""
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def dump_npz(arrays: Arrays) -> bytes:
    """Content of an ``.npz`` file."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


class Origin(NamedTuple):
    """How to obtain one data file.

    Attributes
    ----------
    path : str
        The converted file, relative to the data home.

    urls : mapping from str to sequence of str
        For each raw file the addresses that hold it, tried in turn.

    convert : callable
        From a mapping of raw file names to bytes to the arrays of the data set.

    digest : str
        :func:`content_digest` of the arrays.

    size : str
        Rough size of the download, for the message.

    load : callable
        From a path to the arrays.

    dump : callable
        From the arrays to the bytes of the file.
    """

    path: str
    urls: Mapping[str, Sequence[str]]
    convert: Callable[[dict[str, bytes]], Arrays]
    digest: str
    size: str
    load: Callable[[Path], Arrays] = load_npz
    dump: Callable[[Arrays], bytes] = dump_npz


def github(repository, commit, path):
    """Address of a file of a public repository at a pinned commit."""
    return f"{GITHUB}/{repository}/{commit}/{path}"


def content_digest(arrays: Mapping[str, Any]) -> str:
    """SHA-256 of names, types, shapes and values of arrays.

    A checksum of the file would depend on the compression library; this does not.

    Parameters
    ----------
    arrays : mapping from str to ndarray or list of str

    Returns
    -------
    str
        Hexadecimal digest.
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        if isinstance(array, list):
            # Lengths first: no text can pass for the end of another or for a separator.
            texts = [text.encode() for text in array]
            digest.update(f"{name} text {[len(text) for text in texts]}\n".encode())
            digest.update(b"".join(texts))
            continue
        array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def download(urls):
    """Bytes of the first address that answers; the error of the last one, when none does."""
    for url in urls:
        for attempts_left in range(_N_RETRIES, -1, -1):
            try:
                logger.info("Downloading %s", url)
                with urlopen(url, timeout=_TIMEOUT) as response:
                    return response.read()
            except (OSError, HTTPException) as error:
                # What http.client raises for a transfer that breaks off is no OSError.
                broken = isinstance(error, HTTPException)
                failure = OSError(f"Broken transfer: {error!r}") if broken else error
                # An address that has nothing now will not have it in a second.
                if isinstance(error, HTTPError) and error.code in (403, 404, 410):
                    break
                if attempts_left:
                    warnings.warn(f"Retry downloading from {url}: {failure}", stacklevel=2)
                    time.sleep(_DELAY)
    failure.add_note(f"This happened while downloading {urls!r}.")
    raise failure


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        # Also after Ctrl-C: half a file would be read as the data set the next time.
        os.unlink(temporary)
        raise


def load_or_fetch(origin: Origin, *, data_home, download_if_missing):
    """Arrays of a data set, from the data home or else from its origin.

    Parameters
    ----------
    origin : Origin
        Where the set is and where it comes from.

    data_home : str, path-like or None
        See :func:`get_data_home`.

    download_if_missing : bool
        Whether to download a set that is not in the data home.

    Returns
    -------
    arrays : dict of str to ndarray
    path : Path
        The file that holds them.

    Raises
    ------
    OSError
        If the file is there and is not the known data set; if it is absent and must not,
        or cannot, be downloaded; if what was downloaded is not the known data set.
    """
    path = Path(get_data_home(data_home)) / origin.path
    if path.is_file():
        arrays, amiss = known_arrays(origin.load, path, origin.digest)
        if arrays is None:
            raise OSError(
                f"{path} is not the known data set: {amiss}. The file was damaged or changed. "
                f"Delete it, and the next call downloads it again ({origin.size})."
            )
        return arrays, path
    if not download_if_missing:
        raise OSError(
            f"{path} is absent and download_if_missing=False. Set data_home or the environment "
            "variable SKROUTE_DATA to the folder that holds it, or allow the download of "
            f"{origin.size}."
        )
    logger.warning(
        "%s is absent: downloading %s from %s",
        path,
        origin.size,
        ", ".join(urls[0] for urls in origin.urls.values()),
    )
    raw = {name: download(urls) for name, urls in origin.urls.items()}
    arrays, amiss = known_arrays(origin.convert, raw, origin.digest)
    if arrays is None:
        raise OSError(
            f"The data set downloaded for {path} is not the known one: {amiss}. The origin has "
            "changed or the transfer was damaged; nothing was written."
        )
    write_atomically(path, origin.dump(arrays))
    return arrays, path


def known_arrays(read, source, digest):
    """Arrays that `read` makes of a source, and what is amiss where they are not the known ones."""
    try:
        arrays = read(source)
        found = content_digest(arrays)
    except Exception as error:
        # Damaged bytes fail in as many ways as there are formats.
        return None, f"it cannot be read ({error!r})"
    if found != digest:
        return None, f"its content has sha256 {found}, expected {digest}"
    return arrays, ""
