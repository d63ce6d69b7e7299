"""The served example: its rules in one process, and two workers of which one is killed."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from sklearn.linear_model import Ridge

for package in ("aiohttp", "httpx", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package, reason="the packages of skroute-ml[service] are not installed")

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "service"
sys.path.insert(0, str(FOLDER))
# Where workers count; in this process counts are in memory or there, as the first import found.
os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", tempfile.mkdtemp())

import httpx  # noqa: E402
import router_service  # noqa: E402
import run  # noqa: E402

from skroute.routing import BudgetRouter  # noqa: E402


def ask(text="Name a river.", **more):
    return {"messages": [{"role": "user", "content": text}], **more}


class Provider:
    """One that does as it is told, and charges each key 2 once."""

    def __init__(self):
        self.fails, self.counted, self.asked = None, {}, []

    async def __call__(self, body, key):
        self.asked.append(body)
        if not isinstance(self.fails, router_service.NotCharged):
            self.counted[key] = 2.0
        if self.fails is not None:
            raise self.fails
        return {"model": "told"}, 2.0

    async def charged(self, key):
        return self.counted.get(key, 0.0)


@pytest.fixture
def make():
    X = [
        router_service.features(ask("why " * (i % 7) + "name a river.")["messages"])
        for i in range(60)
    ]
    Q = [[1 - x[3] / 10, 0.9] for x in X]
    costs = {"small": 1.0, "large": 5.0}
    router = BudgetRouter(Ridge(), costs=costs, budget=3, cv=2).fit(X, Q)

    def make(total=100.0):
        return router.stream(total, max_costs=[4.0, 8.0]), {name: Provider() for name in costs}

    return make


def call(app, *requests):
    """Answers to requests in turn: a body or bytes, or with headers, or a path to get."""

    async def answers():
        transport, found = httpx.ASGITransport(app), []
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            for request in requests:
                if isinstance(request, str):
                    found.append(await client.get(request))
                    continue
                body, headers = request if isinstance(request, tuple) else (request, {})
                content = {"content": body} if isinstance(body, bytes) else {"json": body}
                post = client.post("/v1/chat/completions", headers=headers, **content)
                found.append(await post)
        return found

    return asyncio.run(answers())


def test_an_answer_is_decided_called_and_paid(make):
    stream, told = make()
    app = router_service.make_app(stream, told)
    hard = ask("why " * 6 + "name a river.", max_tokens=10**6)
    easy, hard, page = call(app, ask(), hard, "/metrics")
    assert easy.json() == {"model": "told"} == hard.json()
    assert [found.headers["x-skroute-choice"] for found in (easy, hard)] == ["small", "large"]
    assert told["large"].asked[0]["max_tokens"] == router_service.MAX_TOKENS
    assert stream.status()[1:5] == (4.0, 0.0, 0, 2)
    assert re.search(r"^skroute_spent 4.0$", page.text, re.MULTILINE)


def test_an_answer_does_not_wait_for_its_booking(make):
    stream, told = make()
    app, open_at = router_service.make_app(stream, told), []

    async def watched(scope, receive, send):
        async def look(message):
            open_at.append((message["type"], stream.status().n_open))
            await send(message)

        await app(scope, receive, look)

    call(watched, ask())
    assert open_at[-1] == ("http.response.body", 1) and stream.status().n_open == 0


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        {},
        {"messages": []},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": 3}]},
        {"messages": {"role": "user"}},
        ask(stream=True),
        ask(n=2),
        ask(max_tokens=0),
        ask(max_tokens="many"),
        ask("long " * 3000),
    ],
)
def test_what_is_no_request_is_refused_before_anything_is_reserved(make, body):
    stream, told = make()
    (found,) = call(router_service.make_app(stream, told), body)
    assert found.status_code == 400 and found.json()["error"]["message"]
    assert stream.books().n_started == 0 and not told["small"].asked


def test_the_total_holds_and_keys_are_paid_once(make):
    stream, told = make(total=9.0)
    key = {"idempotency-key": "one"}
    found = call(router_service.make_app(stream, told), *2 * [(ask(), key)], *4 * [ask()])
    # What is left, 1 or 3, is less than the 4 that a call of the cheapest may cost.
    assert [one.status_code for one in found] == [200, 409, 200, 200, 429, 429]
    assert stream.status().spent == 6.0 == sum(told["small"].counted.values())


def test_what_fails_is_refunded_and_what_breaks_off_waits_for_the_provider(make):
    stream, told = make()
    app, provider = router_service.make_app(stream, told), told["small"]
    provider.fails = router_service.NotCharged("status 503")
    assert call(app, ask())[0].status_code == 502
    assert stream.status()[1:4] == (0.0, 0.0, 0)
    provider.fails = TimeoutError("late")
    assert [found.status_code for found in call(app, ask(), ask())] == [504, 504]
    assert stream.status().n_open == 2
    # One of them never reached the provider.
    provider.counted.popitem()
    asyncio.run(router_service.settle(stream, told))
    assert stream.status()[1:5] == (2.0, 0.0, 0, 1)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def started(script, *arguments, port):
    """A process of the example, once it listens at a port."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment.pop("PROMETHEUS_MULTIPROC_DIR")
    process = subprocess.Popen([sys.executable, FOLDER / script, *arguments], env=environment)
    try:
        for _ in range(1200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="workers are found in /proc")
def test_workers_behind_one_port_lose_nothing_when_one_is_killed(tmp_path):
    """A worker dies under load, the service ends; what is booked is what the provider counted."""
    stub_port, port = free_port(), free_port()
    run.write_demo(tmp_path, f"http://127.0.0.1:{stub_port}")
    with (
        started("stub_provider.py", str(stub_port), port=stub_port),
        started("run.py", str(tmp_path), str(port), "2", port=port) as server,
    ):
        statuses = asyncio.run(storm(port, 80, server.pid))
        text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        server.send_signal(signal.SIGTERM)
        server.wait(60)
        stream, _ = asyncio.run(run.settle(tmp_path))
        counted = httpx.get(f"http://127.0.0.1:{stub_port}/counts").json()
    assert set(statuses) <= {200, 409} and statuses.count(200) >= 75
    assert sum(map(float, re.findall(r"^skroute_requests_total.*answered.*} (.*)$", text, re.M)))
    books = stream.books()
    assert books.n_open == books.n_expired == 0 and books.n_committed == len(counted)


def workers(pid):
    """The workers that a supervisor has started; others of its children serve no requests."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"spawn_main" in (stat.parent / "cmdline").read_bytes():
                found.append(int(stat.parent.name))
        except OSError:
            continue
    return found


async def storm(port, n_requests, pid):
    """Requests sent again under their keys until answered; a worker is killed halfway."""
    url = f"http://127.0.0.1:{port}/v1/chat/completions"

    async def one(client, i):
        if i == n_requests // 2:
            os.kill(workers(pid)[0], signal.SIGKILL)
        for _ in range(600):
            headers = {"idempotency-key": f"request {i}"}
            try:
                found = await client.post(url, json=ask(f"why {i}"), headers=headers)
            except httpx.TransportError:
                await asyncio.sleep(0.1)
                continue
            if found.status_code not in (502, 503):
                return found.status_code
        return 0

    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:
        # Workers start in turn: the first answers before the other one listens.
        first = await one(client, 0)
        return [first, *await asyncio.gather(*(one(client, i) for i in range(1, n_requests)))]
