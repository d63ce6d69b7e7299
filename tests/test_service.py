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
    pytest.importorskip(
        package, reason="the packages of skroute-ml[service] are not installed"
    )

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "service"
sys.path.insert(0, str(FOLDER))
# Where workers count; in this process counts are in memory or there, as the first import found.
os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", tempfile.mkdtemp())

import httpx  # noqa: E402
import router_service  # noqa: E402
import run  # noqa: E402

from skroute.routing import BudgetRouter  # noqa: E402
from tests.ledgers.servers import free_port  # noqa: E402


def ask(text="Name a river.", **more):
    return {"messages": [{"role": "user", "content": text}], **more}


class Provider:
    """A provider that charges 2 for a call, or fails with a given error."""

    def __init__(self):
        self.error, self.asked = None, []

    async def __call__(self, body):
        self.asked.append(body)
        if self.error is not None:
            raise self.error
        return {"model": "stub"}, 2.0


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
        return router.stream(total, max_costs=[4.0, 8.0]), {
            name: Provider() for name in costs
        }

    return make


def call(app, *requests):
    """The answers to requests one after another: a body, its bytes, or the path of a page."""

    async def answers():
        transport, found = httpx.ASGITransport(app), []
        async with httpx.AsyncClient(
            transport=transport, base_url="http://service"
        ) as client:
            for request in requests:
                if isinstance(request, str):
                    found.append(await client.get(request))
                    continue
                content = {"content" if isinstance(request, bytes) else "json": request}
                found.append(await client.post("/v1/chat/completions", **content))
        return found

    return asyncio.run(answers())


def test_a_request_is_decided_called_and_paid(make):
    stream, providers = make()
    app = router_service.make_app(stream, providers)
    hard = ask("why " * 6 + "name a river.", max_tokens=10**6)
    easy, hard, page = call(app, ask(), hard, "/metrics")
    assert easy.json() == {"model": "stub"} == hard.json()
    assert [found.headers["x-skroute-choice"] for found in (easy, hard)] == [
        "small",
        "large",
    ]
    assert providers["large"].asked[0]["max_tokens"] == router_service.MAX_TOKENS
    status = stream.status()
    assert (status.spent, status.reserved, status.n_open) == (4.0, 0.0, 0)
    assert re.search(r"^skroute_spent 4.0$", page.text, re.MULTILINE)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        {},
        {"messages": [{"role": "user", "content": 3}]},
        ask(stream=True),
        ask(n=2),
        ask(max_tokens=0),
        ask("long " * 3000),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_reserved(make, body):
    stream, providers = make()
    (found,) = call(router_service.make_app(stream, providers), body)
    assert found.status_code == 400 and found.json()["error"]["message"]
    assert stream.books().n_started == 0 and not providers["small"].asked


def test_the_total_is_not_exceeded(make):
    stream, providers = make(total=9.0)
    found = call(router_service.make_app(stream, providers), *5 * [ask()])
    # After three calls 3 is left, less than the 4 that a call of the cheapest model may cost.
    assert [one.status_code for one in found] == [200, 200, 200, 429, 429]
    assert stream.status().spent == 6.0 == 2.0 * len(providers["small"].asked)


def test_a_failed_call_is_refunded_and_an_unknown_one_counts_in_full(make):
    stream, providers = make()
    app, provider = router_service.make_app(stream, providers), providers["small"]
    provider.error = router_service.NotCharged("status 503")
    assert call(app, ask())[0].status_code == 502
    assert stream.status().spent == 0.0
    provider.error = TimeoutError("late")
    assert call(app, ask())[0].status_code == 504
    assert stream.status().spent == 4.0 and stream.status().n_open == 0


@contextmanager
def started(script, *arguments, port):
    """A process of the example, once it listens at a port."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment.pop("PROMETHEUS_MULTIPROC_DIR")
    process = subprocess.Popen(
        [sys.executable, FOLDER / script, *arguments], env=environment
    )
    try:
        for _ in range(1200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            # uvicorn's supervisor can miss the signal while it starts a killed worker
            # again. How it ends is not what is tested.
            for pid in [*workers(process.pid), process.pid]:
                os.kill(pid, signal.SIGKILL)
            process.wait(60)


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="workers are found in /proc"
)
def test_two_workers_share_a_total_when_one_is_killed(tmp_path):
    """What the provider charges is spent, or still reserved by the killed worker."""
    stub_port, port = free_port(), free_port()
    run.write_demo(tmp_path, f"http://127.0.0.1:{stub_port}/v1")
    with (
        started("stub_provider.py", str(stub_port), port=stub_port),
        started("run.py", str(tmp_path), str(port), "2", port=port) as server,
    ):
        statuses = asyncio.run(send(port, 80, server.pid))
        page = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        charged = httpx.get(f"http://127.0.0.1:{stub_port}/charged").json()
    assert set(statuses) <= {200, 502} and statuses.count(200) >= 60
    prices = {f"stub-{name}": price for name, price in run.PRICES.items()}
    bill = sum(
        prices[name][0] * read + prices[name][1] * written
        for name, read, written in charged
    )
    amounts = dict(
        re.findall(r"^skroute_(spent|reserved|n_open) (.*)$", page, re.MULTILINE)
    )
    spent, reserved, n_open = (
        float(amounts[name]) for name in ("spent", "reserved", "n_open")
    )
    assert spent <= bill + 1e-6 and bill <= spent + reserved + 1e-6
    assert bill == pytest.approx(spent) or n_open > 0


def workers(pid):
    """The workers that a supervisor has started; others of its children serve no requests."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if (
                parent == pid
                and b"spawn_main" in (stat.parent / "cmdline").read_bytes()
            ):
                found.append(int(stat.parent.name))
        except OSError:
            continue
    return found


async def send(port, n_requests, pid):
    """Statuses of requests, of which each is sent until it is answered; a worker is killed."""
    url = f"http://127.0.0.1:{port}/v1/chat/completions"

    async def one(client, i):
        if i == n_requests // 2:
            os.kill(workers(pid)[0], signal.SIGKILL)
        for _ in range(600):
            try:
                return (await client.post(url, json=ask(f"why {i}"))).status_code
            except httpx.TransportError:
                await asyncio.sleep(0.1)
        return 0

    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:
        # Workers start in turn: the first answers before the other one listens.
        first = await one(client, 0)
        return [
            first,
            *await asyncio.gather(*(one(client, i) for i in range(1, n_requests))),
        ]
