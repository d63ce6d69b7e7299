"""The served example under load: examples/service, on loopback, with a stub provider.

500 connections send 200 requests a second to four workers for two minutes, to a provider that takes
2.4 seconds, so that about 480 are under way at any time. The service is ended and started again in
the middle, a worker is killed at three quarters. Measured: the router's own share of a request (all
of it but the provider's call), whether the total held, and whether the books are the provider's.

The machine is also that of the provider and of the clients; on a busy one the own share is mostly
waiting for the processor, beside which stands the processor time that it takes. ``--rate`` and
``--seconds`` make the run smaller. It ends 75 seconds after the load would have, at the latest:
requests that are not answered by then are counted as that.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
from _common import record, table

ROOT = Path(__file__).resolve().parents[1]
SERVICE = ROOT / "examples" / "service"
sys.path.insert(0, str(SERVICE))
NEEDED = ("aiohttp", "starlette", "uvicorn", "prometheus_client")


class Load:
    """Requests at a rate from many connections, each sent again under its key until answered."""

    def __init__(self, port, bodies, rate):
        self.port, self.bodies, self.rate = port, bodies, rate
        self.next, self.under_way, self.most_under_way = 0, 0, 0
        self.statuses, self.own, self.lag, self.again = {}, [], [], 0

    async def run(self, n_connections, until):
        """All requests, or those that are answered until then; returns the seconds they took."""
        self.start = time.perf_counter()
        tasks = [asyncio.create_task(self._connection()) for _ in range(n_connections)]
        while time.perf_counter() < until:
            done, waiting = await asyncio.wait(tasks, timeout=5)
            for task in done:
                task.result()
            self._say()
            if not waiting:
                break
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return time.perf_counter() - self.start

    def _say(self):
        last = self.own[-500:]
        print(
            f"{time.perf_counter() - self.start:6.0f} s: {self.next} of {len(self.bodies)} sent, "
            f"{self.under_way} under way, {self.again} sent again, "
            f"{self.lag[-1] if self.lag else 0:.1f} s late, "
            f"own share lately {np.median(last) if last else 0:.1f} ms, "
            f"load of the machine {os.getloadavg()[0]:.1f}",
            flush=True,
        )

    async def _connection(self):
        streams = None
        while self.next < len(self.bodies):
            i = self.next
            self.next += 1
            due = self.start + i / self.rate
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            self.lag.append(time.perf_counter() - due)
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
            for attempt in itertools.count():
                try:
                    if streams is None:
                        streams = await asyncio.open_connection("127.0.0.1", self.port)
                    status, own = await self._send(*streams, i)
                except (OSError, asyncio.IncompleteReadError):
                    if streams is not None:
                        streams[1].close()
                    streams, status = None, 0
                if status not in (0, 502, 503, 504):
                    break
                self.again += 1
                # As OpenAI's client waits: longer each time, and not all at once.
                await asyncio.sleep(min(0.5 * 2**attempt, 4) * random.uniform(0.75, 1.25))
            self.under_way -= 1
            self.statuses[status] = self.statuses.get(status, 0) + 1
            if own is not None:
                self.own.append(own)
        if streams is not None:
            streams[1].close()

    async def _send(self, reader, writer, i):
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: service\r\n"
            f"idempotency-key: request {i}\r\ncontent-length: {len(self.bodies[i])}\r\n\r\n"
        )
        writer.write(head.encode() + self.bodies[i])
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
        await reader.readexactly(int(headers["content-length"]))
        own = headers.get("x-skroute-own-ms")
        return int(head[0].split(" ")[1]), None if own is None else float(own)


def start_service(path, port):
    """The service, once it listens."""
    import run as command

    beside = os.environ.get("PYTHONPATH")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), beside]))}
    # A group of its own, so that its workers end with it whatever happens.
    command_line = [sys.executable, str(SERVICE / "run.py"), path]
    server = subprocess.Popen(command_line, env=environment, start_new_session=True)
    try:
        command.wait_for(port, 60)
        # The first worker listens; the others do as soon.
        time.sleep(1)
    except OSError:
        kill(server)
        raise
    return server


def end(server):
    """SIGTERM: what is under way is answered; after 30 seconds no more is waited for."""
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        print("The service did not end by itself and is killed.", flush=True)
        kill(server)


def kill(process):
    """It, and its workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def workers_of(server):
    """Process ids of its workers."""
    # Of the machine's own list where there is one: small images have no `ps`.
    if not Path("/proc/self/stat").exists():
        found = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True).stdout
        rows = [map(int, line.split()) for line in found.splitlines()[1:]]
        return [pid for pid, parent in rows if parent == server.pid]
    workers = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # After the name, which may hold anything: state, parent.
            if int(stat.read_text().rpartition(")")[2].split()[1]) == server.pid:
                workers.append(int(stat.parent.name))
    return workers


async def disturbed(load, n_connections, seconds, until, server, path):
    """The load; in the middle the service is started anew, later a worker is killed."""
    task = asyncio.create_task(load.run(n_connections, until))
    down = 0.0
    if server is not None:
        await asyncio.sleep(seconds / 2)
        start = time.perf_counter()
        print("The service is ended and started anew.", flush=True)
        await asyncio.to_thread(end, server[0])
        server[0] = await asyncio.to_thread(start_service, path, load.port)
        down = time.perf_counter() - start
        await asyncio.sleep(seconds / 4)
        print("A worker is killed.", flush=True)
        os.kill(workers_of(server[0])[0], signal.SIGKILL)
    return await task, down


def fetch(url):
    with urllib.request.urlopen(url, timeout=20) as found:
        return found.read().decode()


def measure(*, n_workers, n_connections, rate, seconds, provider_seconds, n_rows, restart):
    """One run, as a dict of numbers."""
    import run as command
    from router_service import make_providers, make_stream, read_settings

    until = time.perf_counter() + seconds + 60
    rng = np.random.default_rng(1)
    bodies = [
        json.dumps({"messages": messages}).encode()
        for messages in command.demo_prompts(rng, int(rate * seconds))
    ]
    router = command.demo_router(n_rows)
    # What so many requests want is a tenth more than there is.
    total = 0.9 * len(bodies) * router.certificate_.cost
    stub_port, port = command.free_port(), command.free_port()
    with tempfile.TemporaryDirectory() as name:
        url = f"http://127.0.0.1:{stub_port}"
        path = command.write_settings(
            Path(name), router, url, port=port, workers=n_workers, total=total
        )
        stub = command.start_stub(stub_port, provider_seconds)
        server = [start_service(path, port)]
        try:
            load, begun = Load(port, bodies, rate), time.process_time()
            took, down = asyncio.run(
                disturbed(load, n_connections, seconds, until, server if restart else None, path)
            )
            client = time.process_time() - begun
            text = fetch(f"http://127.0.0.1:{port}/metrics")
            end(server[0])
            counts = json.loads(fetch(f"{url}/counts"))
            settled = command.settle(path)
            settings = read_settings(path)
            providers = make_providers(settings, None)
            books = make_stream(settings, router, providers).books()
            # The ledger knows costs, the provider tokens: count these in money once more.
            counted = sum_of(counts["charged"])
        finally:
            kill(server[0])
            stub.kill()
            stub.wait()
    n_answered = sum(load.statuses.values())
    return {
        "requests": len(bodies),
        "answered": load.statuses.get(200, 0),
        "refused, total used up": load.statuses.get(429, 0),
        "answered before": load.statuses.get(409, 0),
        "not answered": len(bodies) - n_answered,
        "sent again": load.again,
        "a second": n_answered / (took - down),
        "most under way": load.most_under_way,
        "load of the machine": os.getloadavg()[0],
        "own ms, median": float(np.percentile(load.own, 50)),
        "own ms, p99": float(np.percentile(load.own, 99)),
        "own processor time, ms, mean": 1000 * processor_time(text),
        "client's processor time, ms, mean": 1000 * client / max(n_answered, 1),
        "sent late, s, p99": float(np.percentile(load.lag, 99)),
        "seconds down": down,
        "cut off, paid and unpaid": settled[:2],
        "spent above total": max(books.spent - books.total, 0.0),
        "share of total used": books.spent / books.total,
        "calls booked less charged": books.n_committed - len(counts["charged"]),
        "booked less counted": abs(books.spent - counted) / books.spent,
    }


def processor_time(text):
    """Seconds of estimates and bookings for each request that was answered since the restart."""
    total = {
        name: sum(float(line.split(" ")[1]) for line in text.splitlines() if line.startswith(name))
        for name in ("skroute_booking_cpu_seconds_sum", "skroute_own_seconds_count")
    }
    return total["skroute_booking_cpu_seconds_sum"] / total["skroute_own_seconds_count"]


def sum_of(charged):
    """What the provider has counted, in money."""
    import run as command

    total = 0.0
    for usage in charged.values():
        read, written = command.PRICES[usage["model"].removeprefix("stub-")]
        total += usage["prompt_tokens"] * read + usage["completion_tokens"] * written
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    arguments = parser.parse_args()
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        print(f"Not run: {', '.join(missing)} not installed (pip install skroute-ml[service]).")
        return
    size = {
        "n_workers": 4,
        "n_connections": 500,
        "rate": arguments.rate,
        "seconds": arguments.seconds,
        "provider_seconds": 2.4,
        "n_rows": 2000,
        "restart": True,
    }
    if arguments.short:
        size |= {"n_workers": 1, "n_connections": 10, "rate": 40, "seconds": 1.0}
        size |= {"provider_seconds": 0.05, "n_rows": 600, "restart": False}
    result = measure(**size)
    table("The served example under load", ["number", "value"], list(result.items()))
    if not arguments.short:
        record("service")


if __name__ == "__main__":
    main()
