"""Where data sets live, and how a missing one is fetched.

Every set is one file below the data home. A fetcher compares its content with the known
digest; where the file is absent, the raw files are downloaded from their public origin
and converted, compared as well, and only then put in place.
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

# Text columns are lists: as arrays of fixed width, long prompts would need gigabytes.
Arrays = dict[str, Any]

_N_ATTEMPTS = 4
_DELAY = 1.0

# Constraints that all fetchers share.
FETCH_PARAMS = {
    "data_home": [str, os.PathLike, None],
    "download_if_missing": ["boolean"],
}


@validate_params(
    {"data_home": [str, os.PathLike, None]}, prefer_skip_nested_validation=True
)
def get_data_home(data_home: str | os.PathLike[str] | None = None) -> str:
    """Folder that data sets are read from and stored in.

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


class Origin(NamedTuple):
    """How to obtain one data file: for each raw file the addresses that may hold it, in turn.

    `path` is relative to the data home. `convert` makes the content of the file of the
    raw files by name, and `load` the arrays of the data set of that content; `digest`
    is their :func:`content_digest`. `size` is roughly that of the download, for the
    message.
    """

    path: str
    urls: Mapping[str, Sequence[str]]
    convert: Callable[[dict[str, bytes]], bytes]
    load: Callable[[bytes], Arrays]
    digest: str
    size: str


def github(repository, commit, path):
    """Address of a file of a public repository at a pinned commit."""
    return f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"


def load_npz(content: bytes) -> Arrays:
    """Arrays of an ``.npz`` file."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return dict(file)


def dump_npz(arrays: Arrays) -> bytes:
    """Content of an ``.npz`` file."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def content_digest(arrays: Mapping[str, Any]) -> str:
    """SHA-256 of names, types, shapes and values: that of a file depends on the compression."""
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
    """Bytes of the first address that answers."""
    for url in urls:
        for _ in range(_N_ATTEMPTS):
            try:
                logger.info("Downloading %s", url)
                with urlopen(url, timeout=30.0) as response:
                    return response.read()
            except (OSError, HTTPException) as error:
                failure = error
                # An address that has nothing now will not have it in a second.
                if getattr(error, "code", None) in (403, 404, 410):
                    break
                time.sleep(_DELAY)
    raise OSError(
        f"The download failed ({failure!r}) from each of {urls!r}."
    ) from failure


def load_or_fetch(origin: Origin, data_home, download_if_missing):
    """Arrays of a data set and the path of its file, which is downloaded where it is absent."""
    path = Path(get_data_home(data_home)) / origin.path
    if present := path.is_file():
        raw = {}
    elif download_if_missing:
        first = [urls[0] for urls in origin.urls.values()]
        logger.warning(
            "%s is absent: downloading %s from %s", path, origin.size, ", ".join(first)
        )
        raw = {name: download(urls) for name, urls in origin.urls.items()}
    else:
        raise OSError(
            f"{path} is absent and download_if_missing=False. Set data_home or the "
            "environment variable SKROUTE_DATA to the folder that holds it, or allow "
            f"the download of {origin.size}."
        )
    try:
        content = path.read_bytes() if present else origin.convert(raw)
        arrays = origin.load(content)
        found = content_digest(arrays)
        amiss = f"its content has sha256 {found}, expected {origin.digest}"
    except Exception as error:
        # Damaged bytes fail in as many ways as there are formats.
        found, amiss = None, f"it cannot be read ({error!r})"
    if found != origin.digest:
        raise OSError(
            f"{path} is not the known data set: {amiss}. The file was damaged or "
            f"changed. Delete it, and the next call downloads it again ({origin.size})."
            if present
            else f"The data set downloaded for {path} is not the known one: {amiss}. The origin "
            "has changed or the transfer was damaged; nothing was written."
        )
    if not present:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The file is there whole or not at all, also after Ctrl-C.
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            written = Path(folder, path.name)
            written.write_bytes(content)
            os.replace(written, path)
    return arrays, path
