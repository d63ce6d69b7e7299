"""How a missing data set is fetched: nothing here leaves the machine."""

import http.server
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skroute.datasets import _base, get_data_home
from skroute.datasets._base import (
    Origin,
    content_digest,
    download,
    load_or_fetch,
    write_atomically,
)

FETCH = {"download_if_missing": True}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(_base, "_DELAY", 0.0)
    monkeypatch.setattr(_base, "_N_RETRIES", 0)


def arrays_of(raw):
    return {"x": np.array(raw["numbers"].split(), dtype=np.int64)}


@pytest.fixture
def origin(tmp_path):
    """A data set of three numbers whose origin is a local file."""
    source = tmp_path / "origin" / "numbers.txt"
    source.parent.mkdir()
    source.write_bytes(b"1 2 3")
    return Origin(
        path="folder/numbers.npz",
        urls={"numbers": [source.as_uri()]},
        convert=arrays_of,
        digest=content_digest({"x": np.array([1, 2, 3])}),
        size="5 bytes",
    )


class Server:
    """An HTTP server that answers with a list of statuses or functions, one a request."""

    def __init__(self):
        self.statuses = []
        self.requested = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requested.append(self.path)
                answer = outer.statuses.pop(0)
                if callable(answer):
                    answer(self)
                    self.close_connection = True
                    return
                self.send_response(answer)
                self.end_headers()
                if answer == 200:
                    self.wfile.write(b"content")

            def log_message(self, *args):
                pass

        self.http = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


def content(body, *, length=None):
    """An answer with the body, announced with its length or another one."""

    def answer(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def bad_chunk(handler):
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"zz\r\nabc")


# Transfers that go wrong on the way. What http.client raises for them is no OSError.
BROKEN = {
    "truncated": content(b"1 2", length=500),
    "no status line": lambda handler: handler.wfile.write(b"NOTHTTP\r\n\r\n"),
    "bad chunk": bad_chunk,
    "nothing": lambda handler: None,
}


@pytest.fixture(params=BROKEN)
def broken(request):
    return BROKEN[request.param]


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, daemon=True)
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


class TestDataHome:
    def test_argument_wins(self, monkeypatch):
        monkeypatch.setenv("SKROUTE_DATA", "from_environment")
        assert get_data_home("given") == "given"
        assert get_data_home(Path("given")) == "given"

    def test_environment(self, monkeypatch):
        monkeypatch.setenv("SKROUTE_DATA", "from_environment")
        assert get_data_home() == "from_environment"

    @pytest.mark.parametrize("value", [None, ""])
    def test_default_is_below_the_home_folder(self, monkeypatch, tmp_path, value):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("SKROUTE_DATA", raising=False)
        if value is not None:
            monkeypatch.setenv("SKROUTE_DATA", value)
        assert get_data_home() == str(tmp_path / "skroute_data")

    def test_tilde_is_expanded(self, monkeypatch, tmp_path):
        monkeypatch.setenv("HOME", str(tmp_path))
        assert get_data_home("~/here") == str(tmp_path / "here")

    def test_neither_import_nor_a_failed_read_makes_a_folder(self, tmp_path):
        code = (
            "from skroute.datasets import fetch_llmrouter\n"
            "try:\n    fetch_llmrouter(download_if_missing=False)\n"
            "except OSError:\n    print('absent')\n"
        )
        environment = {**os.environ, "HOME": str(tmp_path), "SKROUTE_DATA": ""}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert done.stdout == "absent\n", done.stderr
        assert list(tmp_path.iterdir()) == []


class TestDownload:
    def test_first_address(self, server):
        server.statuses = [200]
        assert download([server.url + "/a"]) == b"content"

    def test_next_address_at_once_when_the_first_has_it_not(self, server, monkeypatch):
        monkeypatch.setattr(_base, "_N_RETRIES", 3)
        server.statuses = [404, 200]
        urls = [server.url + "/a", server.url + "/b"]
        assert download(urls) == b"content"
        assert server.requested == ["/a", "/b"]

    def test_retries_and_says_so(self, server, monkeypatch):
        monkeypatch.setattr(_base, "_N_RETRIES", 2)
        server.statuses = [503, 503, 200]
        with pytest.warns(UserWarning, match=r"Retry downloading from http://127.*503"):
            assert download([server.url]) == b"content"
        assert len(server.requested) == 3

    def test_waits_between_attempts(self, server, monkeypatch):
        waited = []
        monkeypatch.setattr(_base.time, "sleep", waited.append)
        monkeypatch.setattr(_base, "_N_RETRIES", 2)
        monkeypatch.setattr(_base, "_DELAY", 1.5)
        server.statuses = [500, 500, 200]
        with pytest.warns(UserWarning, match="Retry"):
            download([server.url])
        assert waited == [1.5, 1.5]

    def test_last_error_comes_through_with_the_addresses(self, server):
        server.statuses = [404, 410]
        urls = [server.url + "/a", server.url + "/b"]
        with pytest.raises(OSError, match="410") as caught:
            download(urls)
        assert repr(urls) in caught.value.__notes__[0]

    def test_broken_transfer_is_tried_again(self, server, broken, monkeypatch):
        monkeypatch.setattr(_base, "_N_RETRIES", 1)
        server.statuses = [broken, 200]
        with pytest.warns(UserWarning, match="Retry"):
            assert download([server.url]) == b"content"

    def test_broken_transfer_then_next_address(self, server, broken):
        server.statuses = [broken, 200]
        assert download([server.url + "/a", server.url + "/b"]) == b"content"
        assert server.requested == ["/a", "/b"]

    def test_broken_transfer_alone_is_an_os_error(self, server, broken):
        server.statuses = [broken]
        with pytest.raises(OSError) as caught:
            download([server.url])
        assert repr([server.url]) in caught.value.__notes__[0]

    def test_unreachable_host(self):
        with pytest.raises(OSError, match="refused"):
            download(["http://127.0.0.1:9"])


class TestLoadOrFetch:
    def test_downloads_once_then_reads(self, origin, tmp_path, caplog):
        home = tmp_path / "home"
        arrays, path = load_or_fetch(origin, data_home=home, **FETCH)
        assert path == home / "folder" / "numbers.npz"
        np.testing.assert_array_equal(arrays["x"], [1, 2, 3])
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert f"{path} is absent: downloading 5 bytes from file://" in record.getMessage()
        assert [file.name for file in path.parent.iterdir()] == ["numbers.npz"]

        offline = origin._replace(urls={"numbers": ["file:///nowhere"]})
        again, _ = load_or_fetch(offline, data_home=home, **FETCH)
        np.testing.assert_array_equal(again["x"], arrays["x"])

    def test_absent_and_not_allowed_to_download(self, origin, tmp_path):
        with pytest.raises(OSError) as caught:
            load_or_fetch(
                origin, data_home=tmp_path / "home", **{**FETCH, "download_if_missing": False}
            )
        assert str(caught.value) == (
            f"{tmp_path / 'home' / 'folder' / 'numbers.npz'} is absent and "
            "download_if_missing=False. Set data_home or the environment variable SKROUTE_DATA "
            "to the folder that holds it, or allow the download of 5 bytes."
        )
        assert not (tmp_path / "home").exists()

    def test_other_content_is_refused(self, origin, tmp_path):
        (tmp_path / "origin" / "numbers.txt").write_bytes(b"1 2 4")
        found = content_digest({"x": np.array([1, 2, 4])})
        message = re.escape(f"has sha256 {found}, expected {origin.digest}")
        with pytest.raises(OSError, match=message):
            load_or_fetch(origin, data_home=tmp_path / "home", **FETCH)
        assert not (tmp_path / "home").exists()

    def test_only_damaged_content_is_an_os_error(self, origin, tmp_path, server):
        server.statuses = [content(b"<html>")]
        origin = origin._replace(urls={"numbers": [server.url]})
        with pytest.raises(OSError, match="is not the known one") as caught:
            load_or_fetch(origin, data_home=tmp_path / "home", **FETCH)
        assert str(tmp_path / "home" / "folder" / "numbers.npz") in str(caught.value)
        assert not (tmp_path / "home").exists()

    def test_kept_file_is_compared_on_every_load(self, origin, tmp_path):
        _, path = load_or_fetch(origin, data_home=tmp_path, **FETCH)
        good = path.read_bytes()
        tampered = _base.dump_npz({"x": np.array([3, 2, 1])})
        more = _base.dump_npz({"x": np.array([1, 2, 3]), "y": np.arange(2)})
        # Cut anywhere, changed anywhere, replaced: never returned, never another error.
        damaged = [good[:cut] for cut in range(0, len(good), 16)]
        damaged += [
            good[:at] + bytes([good[at] ^ 255]) + good[at + 1 :] for at in range(0, len(good), 5)
        ]
        for bad in [*damaged, tampered, more, b"text", b""]:
            path.write_bytes(bad)
            try:
                arrays, _ = load_or_fetch(origin, data_home=tmp_path, **FETCH)
            except OSError as error:
                assert f"{path} is not the known data set" in str(error)  # noqa: PT017
                assert "Delete it" in str(error)  # noqa: PT017
            else:
                # A byte that zip files do not use.
                np.testing.assert_array_equal(arrays["x"], [1, 2, 3])
                assert list(arrays) == ["x"]
            assert path.read_bytes() == bad

    def test_interrupted_download_leaves_nothing(self, origin, tmp_path, monkeypatch):
        def interrupt(*args, **kwargs):
            raise KeyboardInterrupt

        monkeypatch.setattr(_base, "urlopen", interrupt)
        with pytest.raises(KeyboardInterrupt):
            load_or_fetch(origin, data_home=tmp_path / "home", **FETCH)
        assert not (tmp_path / "home").exists()

    @pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
    def test_interrupted_write_leaves_nothing(self, origin, tmp_path, monkeypatch, error):
        def interrupt(source, target):
            assert Path(source).stat().st_size > 0
            raise error

        monkeypatch.setattr(_base.os, "replace", interrupt)
        with pytest.raises(error):
            load_or_fetch(origin, data_home=tmp_path / "home", **FETCH)
        assert list((tmp_path / "home" / "folder").iterdir()) == []


def test_write_replaces_the_file(tmp_path):
    path = tmp_path / "a" / "b.txt"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


class TestContentDigest:
    def test_does_not_depend_on_layout_or_byte_order(self):
        x = np.arange(6, dtype="<i4").reshape(2, 3)
        digest = content_digest({"x": x})
        assert content_digest({"x": np.asfortranarray(x)}) == digest
        assert content_digest({"x": x.astype(">i4")}) == digest

    @pytest.mark.parametrize(
        "other",
        [
            {"y": np.arange(6).reshape(2, 3)},
            {"x": np.arange(6)},
            {"x": np.arange(6).reshape(2, 3).astype(np.int32)},
            {"x": np.arange(1, 7).reshape(2, 3)},
            {"x": np.arange(6).reshape(2, 3), "y": np.arange(2)},
            {"x": ["a", "b"]},
            {"x": ["ab"]},
        ],
    )
    def test_depends_on_everything_else(self, other):
        assert content_digest(other) != content_digest({"x": np.arange(6).reshape(2, 3)})

    @given(st.data())
    def test_no_two_columns_of_texts_are_alike(self, data):
        """Texts cut from one string at two sets of places."""
        text = data.draw(st.text("a\0\nb text1", max_size=12))
        cuts = st.lists(st.integers(0, len(text)), min_size=2, max_size=2).map(sorted)
        a, b = (
            [text[i:j] for i, j in zip([0, *at], [*at, len(text)])]
            for at in (data.draw(cuts), data.draw(cuts))
        )
        assert (content_digest({"x": a}) == content_digest({"x": b})) == (a == b)
