"""A Redis server of the tests' own, on a free port, for as long as the process runs."""

import atexit
import functools
import shutil
import socket
import subprocess
import tempfile
import time

import pytest

REDIS = shutil.which("redis-server")


def why_no_redis():
    """Why tests of Redis are skipped, or an empty string."""
    if REDIS is None:
        return "redis-server is not installed (apt-get install redis-server)"
    try:
        import redis  # noqa: F401
    except ImportError:
        return "the package redis is not installed"
    return ""


needs_redis = pytest.mark.skipif(
    bool(why_no_redis()), reason=why_no_redis() or "there is one"
)


def free_port():
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@functools.cache
def redis_url():
    """Return the address of this process's own server, which the first call starts."""
    import redis

    folder = tempfile.TemporaryDirectory()
    port = free_port()
    command = [REDIS, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir"]
    server = subprocess.Popen([*command, folder.name], stdout=subprocess.DEVNULL)

    def stop():
        server.kill()
        server.wait()
        folder.cleanup()

    atexit.register(stop)
    client = redis.Redis(port=port)
    for _ in range(500):
        try:
            client.ping()
            return f"redis://127.0.0.1:{port}/0"
        except redis.exceptions.ConnectionError:
            time.sleep(0.02)
    raise RuntimeError("redis-server did not answer within 10 seconds")
