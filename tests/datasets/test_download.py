"""Downloads of a missing data set. All servers are on this machine."""

import re
import socketserver
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
    dump_npz,
    load_npz,
    load_or_fetch,
)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(_base, "_DELAY", 0.0)


@pytest.fixture
def origin(tmp_path):
    """A data set of three numbers whose origin is a local file."""
    source = tmp_path / "origin" / "numbers.txt"
    source.parent.mkdir()
    source.write_bytes(b"1 2 3")
    return Origin(
        path="folder/numbers.npz",
        urls={"numbers": [source.as_uri()]},
        convert=lambda raw: dump_npz(
            {"x": np.array(raw["numbers"].split(), dtype=np.int64)}
        ),
        load=load_npz,
        digest=content_digest({"x": np.array([1, 2, 3])}),
        size="5 bytes",
    )


def answer(body=b"", *, status="200 OK", length=None):
    """Return the answer of a server: the body, with its length or another one."""
    length = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n".encode() + body


# Transfers that go wrong on the way. What http.client raises for them is no OSError.
BROKEN = {
    "busy": answer(status="503 Service Unavailable"),
    "truncated": answer(b"1 2", length=500),
    "no status line": b"NOTHTTP\r\n\r\n",
    "bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
    "nothing": b"",
}


@pytest.fixture
def server():
    """A server that says what stands in a list, one entry a request."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            request = iter(self.rfile.readline, b"\r\n")
            server.requested.append(next(request).split()[1].decode())
            list(request)
            self.wfile.write(server.answers.pop(0))

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        server.answers, server.requested = [], []
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("value", [None, ""])
def test_data_home(monkeypatch, tmp_path, value):
    monkeypatch.setenv("SKROUTE_DATA", "from_environment")
    assert get_data_home() == "from_environment"
    assert get_data_home("given") == get_data_home(Path("given")) == "given"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SKROUTE_DATA")
    if value is not None:
        monkeypatch.setenv("SKROUTE_DATA", value)
    assert get_data_home() == str(tmp_path / "skroute_data")
    assert get_data_home("~/here") == str(tmp_path / "here")


class TestDownload:
    def test_next_address_at_once_when_the_first_has_it_not(self, server):
        server.answers = [answer(status="404 Not Found"), answer(b"content")]
        assert download([server.url + "/a", server.url + "/b"]) == b"content"
        assert server.requested == ["/a", "/b"]

    @pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
    def test_what_goes_wrong_is_tried_again_after_a_pause(
        self, server, broken, monkeypatch
    ):
        waited = []
        monkeypatch.setattr(_base.time, "sleep", waited.append)
        monkeypatch.setattr(_base, "_DELAY", 1.5)
        server.answers = [broken, broken, answer(b"content")]
        assert download([server.url]) == b"content"
        assert waited == [1.5, 1.5]
        server.answers = [broken] * 4
        with pytest.raises(OSError, match="The download failed") as caught:
            download([server.url])
        assert repr([server.url]) in str(caught.value)


class TestLoadOrFetch:
    def test_downloads_once_then_reads(self, origin, tmp_path, caplog):
        home = tmp_path / "home"
        arrays, path = load_or_fetch(origin, home, True)
        assert path == home / "folder" / "numbers.npz"
        np.testing.assert_array_equal(arrays["x"], [1, 2, 3])
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert (
            f"{path} is absent: downloading 5 bytes from file://" in record.getMessage()
        )
        assert [file.name for file in path.parent.iterdir()] == ["numbers.npz"]
        offline = origin._replace(urls={"numbers": ["file:///nowhere"]})
        again, _ = load_or_fetch(offline, home, True)
        np.testing.assert_array_equal(again["x"], arrays["x"])

    def test_absent_and_not_allowed_to_download(self, origin, tmp_path):
        with pytest.raises(OSError) as caught:
            load_or_fetch(origin, tmp_path / "home", False)
        assert str(caught.value) == (
            f"{tmp_path / 'home' / 'folder' / 'numbers.npz'} is absent and "
            "download_if_missing=False. Set data_home or the environment variable SKROUTE_DATA "
            "to the folder that holds it, or allow the download of 5 bytes."
        )
        assert not (tmp_path / "home").exists()

    @pytest.mark.parametrize(
        "body, amiss", [(b"1 2 4", "has sha256 {found}"), (b"<html>", "read")]
    )
    def test_other_content_is_refused(self, origin, tmp_path, body, amiss):
        (tmp_path / "origin" / "numbers.txt").write_bytes(body)
        amiss = amiss.format(found=content_digest({"x": np.array([1, 2, 4])}))
        with pytest.raises(OSError, match=f"is not the known one: .*{amiss}") as caught:
            load_or_fetch(origin, tmp_path / "home", True)
        assert str(tmp_path / "home" / "folder" / "numbers.npz") in str(caught.value)
        assert not (tmp_path / "home").exists()

    def test_kept_file_is_compared_on_every_load(self, origin, tmp_path):
        _, path = load_or_fetch(origin, tmp_path, True)
        good = path.read_bytes()
        tampered = dump_npz({"x": np.array([3, 2, 1])})
        more = dump_npz({"x": np.array([1, 2, 3]), "y": np.arange(2)})
        # Cut anywhere, changed anywhere, replaced: never returned, never another error.
        damaged = [good[:cut] for cut in range(0, len(good), 16)]
        for position in range(0, len(good), 5):
            changed = bytearray(good)
            changed[position] ^= 255
            damaged.append(bytes(changed))
        for bad in [*damaged, tampered, more, b"text", b""]:
            path.write_bytes(bad)
            try:
                arrays, _ = load_or_fetch(origin, tmp_path, True)
            except OSError as error:
                message = re.escape(f"{path} is not the known data set") + ".*Delete it"
                assert re.match(message, str(error))  # noqa: PT017
            else:
                # A byte that zip files do not use.
                np.testing.assert_array_equal(arrays["x"], [1, 2, 3])
                assert list(arrays) == ["x"]
            assert path.read_bytes() == bad

    @pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
    @pytest.mark.parametrize("where, name", [(_base, "urlopen"), (_base.os, "replace")])
    def test_what_is_interrupted_leaves_nothing(
        self, origin, tmp_path, monkeypatch, error, where, name
    ):
        def interrupt(*args, **kwargs):
            raise error

        monkeypatch.setattr(where, name, interrupt)
        with pytest.raises(error):
            load_or_fetch(origin, tmp_path / "home", True)
        assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file()]


class TestContentDigest:
    def test_does_not_depend_on_layout_or_byte_order(self):
        x = np.arange(6, dtype="<i4").reshape(2, 3)
        digest = content_digest({"x": x})
        assert content_digest({"x": np.asfortranarray(x)}) == digest
        assert content_digest({"x": x.astype(">i4")}) == digest

    def test_depends_on_everything_else(self):
        x = np.arange(6).reshape(2, 3)
        others = [{"y": x}, {"x": x.ravel()}, {"x": x.astype(np.int32)}, {"x": x + 1}]
        for other in [*others, {"x": x, "y": np.arange(2)}, {"x": ["a", "b"]}]:
            assert content_digest(other) != content_digest({"x": x})

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
