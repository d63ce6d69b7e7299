"""The folder of data sets, and the download of a missing one.

Each set is one file in the data home. A fetcher compares the digest of the content with
the known digest. If the file is absent, the raw files are downloaded from their public
origin and converted. The result is compared, too, before the file is written.
"""

import hashlib
import io
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import numpy as np

from skroute.utils._compat import validate_params

logger = logging.getLogger(__name__)

# Arrays by name. Columns of texts are lists, since arrays of fixed width would need
# gigabytes for long prompts.
Arrays = dict[str, Any]

# Number of tries to download from one address. Most failures of a network pass within
# seconds.
_N_ATTEMPTS = 4
# Seconds between two tries.
_DELAY = 1.0
# Seconds without an answer after which a try has failed.
_TIMEOUT = 30.0
# HTTP codes of failures that do not pass within seconds: forbidden, not found, gone.
_LASTING_CODES = (403, 404, 410)

# Constraints of the parameters that all fetchers have.
FETCH_PARAMS = {
    "data_home": [str, os.PathLike, None],
    "download_if_missing": ["boolean"],
}


@validate_params(
    {"data_home": [str, os.PathLike, None]}, prefer_skip_nested_validation=True
)
def get_data_home(data_home: str | os.PathLike[str] | None = None) -> str:
    """Return the folder from which data sets are read, and in which they are stored.

    The folder is not created. A fetcher creates it when it writes a file.

    Parameters
    ----------
    data_home : str or path-like, default=None
        The folder. None takes the environment variable ``SKROUTE_DATA`` or, if that is
        not set, ``~/skroute_data``.

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


class Origin(NamedTuple):
    """The origin of one data file: its addresses, its conversion and its digest.

    Attributes
    ----------
    path : str
        Path of the file in the data home.

    urls : mapping from str to sequence of str
        For each raw file the addresses that may have it, in the order of the tries.

    convert : callable
        Returns the content of the file from a dict: the content of each raw file, by
        its name.

    load : callable
        Returns the arrays of the data set from the content of the file.

    digest : str
        :func:`content_digest` of the arrays.

    size : str
        Approximate size of the download, for messages.
    """

    path: str
    urls: Mapping[str, Sequence[str]]
    convert: Callable[[dict[str, bytes]], bytes]
    load: Callable[[bytes], Arrays]
    digest: str
    size: str


def github(repository, commit, path):
    """Return the address of a file of a public repository at a pinned commit."""
    return f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"


def load_npz(content: bytes) -> Arrays:
    """Return the arrays of an ``.npz`` file."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return dict(file)


def dump_npz(arrays: Arrays) -> bytes:
    """Return the content of an ``.npz`` file."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def content_digest(arrays: Mapping[str, Any]) -> str:
    """Return the SHA-256 of names, types, shapes and values of arrays.

    A digest of the file would depend on its compression.

    Parameters
    ----------
    arrays : mapping from str to ndarray or list of str

    Returns
    -------
    str
        Hexadecimal digits.
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        if isinstance(array, list):
            # The lengths come first, so that no other texts have the same bytes.
            texts = [text.encode() for text in array]
            digest.update(f"{name} text {[len(text) for text in texts]}\n".encode())
            digest.update(b"".join(texts))
            continue
        # Little-endian, so that the digest is the same on every machine.
        array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def download(urls):
    """Return the content of the first address that answers.

    Parameters
    ----------
    urls : sequence of str
        Addresses of the same file, in the order of the tries.

    Returns
    -------
    bytes
    """
    for url in urls:
        for _ in range(_N_ATTEMPTS):
            try:
                logger.info("Downloading %s", url)
                with urlopen(url, timeout=_TIMEOUT) as response:
                    return response.read()
            except (OSError, HTTPException) as error:
                failure = error  # the last one is in the message
                if getattr(error, "code", None) in _LASTING_CODES:
                    break  # try the next address
                time.sleep(_DELAY)
    raise OSError(
        f"The download failed ({failure!r}) from each of {urls!r}."
    ) from failure


def load_or_fetch(origin: Origin, data_home, download_if_missing):
    """Return the arrays of a data set and its path. A missing file is downloaded.

    Parameters
    ----------
    origin : Origin

    data_home : str, path-like or None
        As in :func:`get_data_home`.

    download_if_missing : bool
        If False, a missing file is an error.

    Returns
    -------
    arrays : dict of str to ndarray or list of str

    path : pathlib.Path
    """
    path = Path(get_data_home(data_home)) / origin.path
    is_present = path.is_file()
    # `raw` has the contents of the raw files, by name.
    if is_present:
        raw = {}  # the converted file is there, and raw files are not needed
    elif download_if_missing:
        first_urls = ", ".join(urls[0] for urls in origin.urls.values())
        logger.warning(
            "%s is absent: downloading %s from %s", path, origin.size, first_urls
        )
        raw = {name: download(urls) for name, urls in origin.urls.items()}
    else:
        raise OSError(
            f"{path} is absent and download_if_missing=False. Set data_home or the "
            "environment variable SKROUTE_DATA to the folder that holds it, or allow "
            f"the download of {origin.size}."
        )
    try:
        content = path.read_bytes() if is_present else origin.convert(raw)
        arrays = origin.load(content)
        digest = content_digest(arrays)
        # This text is shown only if the digests differ.
        problem = f"its content has sha256 {digest}, expected {origin.digest}"
    except Exception as error:
        # Damaged content can raise any error. A `digest` of None is never the expected
        # one.
        digest = None
        problem = f"it cannot be read ({error!r})"
    if digest != origin.digest and is_present:
        raise OSError(
            f"{path} is not the known data set: {problem}. The file was damaged or "
            f"changed. Delete it, and the next call downloads it again ({origin.size})."
        )
    if digest != origin.digest:
        raise OSError(
            f"The data set downloaded for {path} is not the known one: {problem}. The "
            "origin has changed or the transfer was damaged; nothing was written."
        )
    if not is_present:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The file is there whole or not at all, also after Ctrl-C.
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            temporary_path = Path(folder, path.name)
            temporary_path.write_bytes(content)
            os.replace(temporary_path, path)
    return arrays, path
