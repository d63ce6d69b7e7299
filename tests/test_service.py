"""The served example: its rules in one process, and all of it with workers that are killed."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge

for package in ("aiohttp", "httpx", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package, reason="the packages of skroute-ml[service] are not installed")

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "service"
sys.path.insert(0, str(FOLDER))

import httpx  # noqa: E402
import providers as of_providers  # noqa: E402
import request_features  # noqa: E402
import router_service  # noqa: E402
import run as command  # noqa: E402

from skroute.certified import PromiseMonitor  # noqa: E402
from skroute.routing import BudgetRouter  # noqa: E402

COSTS = {"small": 1.0, "large": 5.0}


def ask(text="Name a river.", **more):
    return {"messages": [{"role": "user", "content": text}], **more}


class Told:
    """A provider that does as it is told, and charges each key once."""

    def __init__(self, cost=2.0):
        self.cost, self.fails, self.counted, self.asked = cost, None, {}, []

    async def __call__(self, request, key):
        self.asked.append(request)
        if self.fails is not None:
            if not isinstance(self.fails, of_providers.NotCharged):
                self.counted[key] = self.cost
            raise self.fails
        self.counted[key] = self.cost
        return of_providers.Reply({"model": "told"}, self.cost)

    async def charged(self, key):
        return self.counted.get(key, 0.0)


def make_service(total=100.0, **more):
    rows = [[{"role": "user", "content": "why " * (i % 7) + "name"}] for i in range(60)]
    X = np.array([request_features.features(row) for row in rows])
    Q = np.column_stack([1 - X[:, 7] / 10, np.full(60, 0.9)])
    router = BudgetRouter(Ridge(), costs=COSTS, budget=3, cv=2).fit(X, Q)
    stream = router.stream(total, max_costs=[4.0, 8.0])
    told = {name: Told() for name in COSTS}
    return router_service.Service(stream, told, **more), told


def call(service, *requests, booked=True):
    """Answers to requests, in turn; a request is a body, or a body and headers."""
    app = router_service.make_app(service, certificate="promised")

    async def answers():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            found = []
            for request in requests:
                if isinstance(request, str):
                    found.append(await client.get(request))
                    continue
                body, headers = request if isinstance(request, tuple) else (request, {})
                content = {"content": body} if isinstance(body, bytes) else {"json": body}
                post = client.post("/v1/chat/completions", headers=headers, **content)
                found.append(await post)
            if booked:
                await service.close()
            return found

    return asyncio.run(answers())


def test_an_answer_is_decided_called_and_paid():
    service, told = make_service()
    easy, hard = call(service, ask(), ask("why why why why why why", max_tokens=10**6))
    assert easy.json() == {"model": "told"} == hard.json()
    assert [found.headers["x-skroute-choice"] for found in (easy, hard)] == ["small", "large"]
    assert float(easy.headers["x-skroute-own-ms"]) > 0
    assert told["large"].asked[0]["max_tokens"] == service.limits.max_tokens
    assert service.stream.status()[1:5] == (4.0, 0.0, 0, 2)
    pages = call(service, "/healthz", "/certificate", "/v1/models", "/metrics")
    assert pages[1].json() == {"certificate": "promised"} and pages[2].json()["data"]
    assert re.search(r"^skroute_books_spent 4.0$", pages[3].text, re.MULTILINE)


def test_an_answer_does_not_wait_for_its_booking(monkeypatch, caplog):
    service, _ = make_service()
    # As with books in Redis.
    service._beside = True
    go, commit = threading.Event(), service.stream.commit
    monkeypatch.setattr(
        service.stream, "commit", lambda *of: (go.wait(20), time.sleep(0.3), commit(*of))
    )
    (found,) = call(service, ask(), booked=False)
    assert found.status_code == 200 and service.stream.status().n_open == 1
    go.set()
    asyncio.run(service.close())
    assert service.stream.status()[1:4] == (2.0, 0.0, 0)
    # One that fails stays open, is named, and is settled when the provider is asked.
    counted = cost_counted()
    monkeypatch.setattr(service.stream, "commit", lambda *of: 1 / 0)
    (found,) = call(service, ask())
    assert found.status_code == 200 and service.stream.status().n_open == 1
    assert "is paid and not booked" in caplog.text
    # One that another call of the same request has paid is none of ours.
    caplog.clear()
    monkeypatch.setattr(service.stream, "commit", lambda *of: commit(*of) or commit(*of))
    (found,) = call(service, ask())
    assert found.status_code == 200 and not caplog.text
    assert cost_counted() == counted


def cost_counted():
    """What the metrics of this process say that answers have cost."""
    (found,) = router_service.COST.collect()
    return sum(one.value for one in found.samples if one.name.endswith("_total"))


def test_bookings_beside_the_loop_are_made_in_turn_and_do_not_hold_it_up(monkeypatch):
    service, told = make_service()
    service._beside = True
    stream = service.stream
    commit, reserve = stream.commit, stream.reserve
    monkeypatch.setattr(stream, "commit", lambda *of: (time.sleep(0.3), commit(*of)))
    # What was answered is paid for whoever comes next, whether it was booked or waits for it.
    again = ask(), {"idempotency-key": "one"}
    assert [found.status_code for found in call(service, again, again)] == [200, 409]
    assert len(told["small"].asked) == 1
    go, waited = threading.Event(), []
    monkeypatch.setattr(
        stream, "reserve", lambda *of, **more: waited.append(go.wait(5)) or reserve(*of, **more)
    )

    async def both():
        transport = httpx.ASGITransport(router_service.make_app(service, certificate="promised"))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            slow = asyncio.create_task(client.post("/v1/chat/completions", json=ask()))
            await asyncio.sleep(0.2)
            other = await client.get("/certificate")
            go.set()
            return other, await slow

    other, slow = asyncio.run(both())
    assert other.json() == {"certificate": "promised"} and slow.status_code == 200
    assert waited == [True]


@pytest.mark.parametrize(
    "body, status",
    [
        (b"{", 400),
        (b"[]", 400),
        ({}, 400),
        ({"messages": []}, 400),
        ({"messages": [{"role": "user"}]}, 400),
        ({"messages": [{"role": "user", "content": 3}]}, 400),
        ({"messages": {"role": "user"}}, 400),
        (ask(model="other"), 404),
        (ask(stream=True), 400),
        (ask(n=2), 400),
        (ask(max_tokens=0), 400),
        (ask(max_tokens="many"), 400),
        (ask("long " * 3000), 413),
    ],
)
def test_what_is_no_request_is_refused_before_anything_is_reserved(body, status):
    service, told = make_service()
    (found,) = call(service, body)
    assert found.status_code == status and found.json()["error"]["message"]
    assert service.stream.books().n_started == 0 and not told["small"].asked


def test_the_total_holds_and_keys_are_paid_once():
    service, told = make_service(total=9.0)
    key = {"idempotency-key": "one"}
    found = call(service, (ask(), key), (ask(), key), ask(), ask(), ask(), ask())
    # What is left, 1, is less than the 4 that a call of the cheapest may cost.
    assert [one.status_code for one in found] == [200, 409, 200, 200, 429, 429]
    assert service.stream.status().spent == 6.0 == sum(told["small"].counted.values())


def test_what_fails_is_refunded_and_what_breaks_off_waits_for_the_provider():
    service, told = make_service()
    told["small"].fails = of_providers.NotCharged("status 503")
    assert call(service, ask())[0].status_code == 502
    assert service.stream.status()[1:4] == (0.0, 0.0, 0)
    told["small"].fails = TimeoutError("late")
    assert call(service, ask())[0].status_code == 504
    told["small"].fails = None
    told["small"].cost = float("nan")
    assert call(service, ask())[0].status_code == 504
    told["small"].cost = 2.0
    assert service.stream.status().n_open == 2
    # One was charged 2, of the other the provider says something that is no amount.
    (_, second), counted = service.stream.unsettled(), told["small"].counted
    assert counted.pop(f"{second.stream}-{second.id}") != 0
    assert asyncio.run(router_service.reconcile(service.stream, told)) == (1, 1, 0)
    assert service.stream.status()[1:4] == (2.0, 0.0, 0)


def test_a_provider_that_fails_is_left_out_for_a_while(monkeypatch):
    service, told = make_service(limits=router_service.Limits(failures=2, pause=30.0))
    now = 100.0
    monkeypatch.setattr(router_service, "monotonic", lambda: now)
    told["small"].fails = of_providers.NotCharged("status 503")
    assert [found.status_code for found in call(service, *[ask()] * 3)] == [502, 502, 200]
    assert call(service, ask())[0].headers["x-skroute-choice"] == "large"
    told["small"].fails, now = None, 131.0
    assert call(service, ask())[0].headers["x-skroute-choice"] == "small"
    # The last one is never left out.
    for provider in told.values():
        provider.fails = of_providers.NotCharged("status 503")
    assert {found.status_code for found in call(service, *[ask()] * 8)} == {502}


def test_a_broken_promise_is_told_to_prometheus():
    service, _ = make_service(1e6, monitor=PromiseMonitor(budget=1.0))
    call(service, *[ask()] * 40)
    found = call(service, "/metrics")[0].text
    assert re.search(r'^skroute_alarm\{kind="cost"\} 1.0$', found, re.MULTILINE)


def test_providers_that_are_missing_are_named():
    service, told = make_service()
    with pytest.raises(ValueError, match="There is no provider for the choice 'large'"):
        router_service.Service(service.stream, {"small": told["small"]})


def test_a_key_that_is_not_there_is_said_at_the_start(monkeypatch):
    monkeypatch.delenv("NO_KEY", raising=False)
    prices = {"input_price": 1, "output_price": 2}
    with pytest.raises(ValueError, match="The environment variable 'NO_KEY' must hold"):
        of_providers.ChatProvider(None, url="", model="", api_key_env="NO_KEY", **prices)
    provider = of_providers.ChatProvider(None, url="http://there/v1/", model="m", **prices)
    assert provider.url == "http://there/v1/chat/completions"
    assert provider.most_cost(100, 10) == 120
    assert asyncio.run(provider.charged("key")) is None


@pytest.mark.skipif(sys.platform == "win32", reason="workers are killed by SIGKILL")
def test_workers_behind_one_port_lose_nothing_when_one_is_killed(tmp_path):
    """One command, two workers, a stub provider; a worker dies, the service ends and is settled."""
    X = [command.demo_prompts(np.random.default_rng(0), 60)[i] for i in range(60)]
    features = np.array([request_features.features(row) for row in X])
    Q = np.column_stack([1 - features[:, 7] / 10, np.full(60, 0.85), np.full(60, 0.9)])
    costs = {"small": 23.0, "medium": 184.0, "large": 1150.0}
    router = BudgetRouter(Ridge(), costs=costs, budget=300, cv=2).fit(features, Q)
    stub_port, port = command.free_port(), command.free_port()
    path = command.write_settings(
        tmp_path, router, f"http://127.0.0.1:{stub_port}", port=port, workers=2
    )
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    stub = command.start_stub(stub_port, 0.05, 0.05)
    server = subprocess.Popen([sys.executable, str(FOLDER / "run.py"), path], env=environment)
    try:
        command.wait_for(port)
        with httpx.Client(timeout=120) as client:
            first = client.post(url, json=ask())
            assert first.json()["object"] == "chat.completion"
            statuses = asyncio.run(storm(url, 80, children(server.pid)))
            text = client.get(f"http://127.0.0.1:{port}/metrics").text
            counted = client.get(f"http://127.0.0.1:{stub_port}/counts").json()["charged"]
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) is not None
        assert set(statuses) <= {200, 409} and statuses.count(200) >= 75
        # By the workers that were there at some time together.
        assert sum(
            map(
                float,
                re.findall(r"^skroute_requests_total\{.*answered.*\} (.*)$", text, re.MULTILINE),
            )
        )
        assert command.settle(path)[2] == 0
        settings = router_service.read_settings(path)
        made = router_service.make_providers(settings, None)
        books = router_service.make_stream(settings, router, made).books()
        assert books.n_open == books.n_expired == 0 and books.n_committed == len(counted)
    finally:
        for process in (server, stub):
            process.kill()
            process.wait()


def children(pid):
    """Workers of a supervisor."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = status.read_text().rsplit(") ", 1)[1].split()[1]
        except OSError:
            continue
        if int(parent) == pid:
            found.append(int(status.parent.name))
    return found


async def storm(url, n_requests, workers):
    """Requests of many connections, sent again under their keys until answered."""
    limit = httpx.Limits(max_keepalive_connections=0)
    killed = asyncio.Event()

    async def one(client, i):
        if i == n_requests // 2 and workers and hasattr(signal, "SIGKILL"):
            os.kill(workers[0], signal.SIGKILL)
            killed.set()
        for _ in range(600):
            try:
                found = await client.post(
                    url, json=ask(f"why {i}"), headers={"idempotency-key": f"request {i}"}
                )
            except httpx.TransportError:
                await asyncio.sleep(0.1)
                continue
            if found.status_code not in (502, 503):
                return found.status_code
        return 0

    async with httpx.AsyncClient(timeout=120, limits=limit) as client:
        found = await asyncio.gather(*[one(client, i) for i in range(n_requests)])
    assert killed.is_set() or not workers
    return found
