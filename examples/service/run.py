"""The one command: ``python run.py service.toml``, or ``python run.py --demo`` for a first look.

It settles what an earlier run has left open and then serves, with so many workers as the file says.
``--demo`` first fits a router on a made-up log, starts a stub provider on loopback, and
writes the settings to a temporary folder.
"""

import argparse
import asyncio
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Prices of a token in millionths of a dollar.
PRICES = {"small": (0.05, 0.2), "medium": (0.4, 1.6), "large": (2.5, 10.0)}
_WORDS = (
    "name list say what is the of a city river animal colour prove derive integral theorem why "
    "compare refactor optimise sum code"
).split()


def demo_prompts(rng, n_prompts):
    """Conversations of one message."""
    return [
        [{"role": "user", "content": " ".join(rng.choice(_WORDS, rng.integers(3, 40))) + "?"}]
        for _ in range(n_prompts)
    ]


def demo_router(n_rows=2000, seed=0):
    """A certified router that is fitted on a made-up log of qualities."""
    import numpy as np
    from request_features import features

    from skroute.certified import CertifiedRouter
    from skroute.quality import QualityRegressor
    from skroute.routing import BudgetRouter

    rng = np.random.default_rng(seed)
    X = np.array([features(messages) for messages in demo_prompts(rng, n_rows)])
    hard = np.minimum(X[:, 7], 8.0)[:, None]
    Q = rng.random((n_rows, 3)) < 0.97 - hard * [0.09, 0.03, 0.01]
    # An answer has 110 tokens in the mean, a prompt as many as words.
    means = [20 * price[0] + 110 * price[1] for price in PRICES.values()]
    estimator = QualityRegressor(family=["trees", "linear"], cv=3)
    router = BudgetRouter(estimator, cv=3, costs=dict(zip(PRICES, means)))
    certified = CertifiedRouter(
        router, max_loss=0.05, reference="large", n_points=20, random_state=0
    )
    return certified.fit(X, Q.astype(float))


def write_settings(folder, router, url, *, port, workers=4, total=1e6, timeout=600.0):
    """A folder to serve from: the router and ``service.toml``."""
    import joblib

    joblib.dump(router, folder / "router.joblib")
    lines = [
        'router = "router.joblib"',
        f'host = "127.0.0.1"\nport = {port}\nworkers = {workers}',
        f'[money]\ntotal = {float(total)!r}\nsqlite = "ledger.sqlite"\ntimeout = {timeout!r}',
        "[limits]\nrequest_bytes = 4096\nmax_tokens = 256",
    ]
    for name, (read, written) in PRICES.items():
        lines.append(f'[providers.{name}]\nurl = "{url}/v1"\nmodel = "stub-{name}"')
        lines.append(f"input_price = {read}\noutput_price = {written}")
        lines.append(f'usage_url = "{url}/usage"')
    path = folder / "service.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def free_port():
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_stub(port, mean_seconds=0.05, failures=0.0):
    """The stub provider as a process of its own, once it listens."""
    command = [sys.executable, str(HERE / "stub_provider.py"), str(port)]
    process = subprocess.Popen([*command, str(mean_seconds), str(failures)])
    wait_for(port)
    return process


def wait_for(port, seconds=300.0):
    """Wait until somebody listens."""
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def settle(path):
    """Settle what earlier workers have left open."""
    import router_service as of

    settings = of.read_settings(path)
    return _settle(settings, of.read_router(settings))


def _settle(settings, router):
    from router_service import make_client, make_providers, make_stream, reconcile

    async def settled():
        async with make_client(settings) as client:
            providers = make_providers(settings, client)
            return await reconcile(make_stream(settings, router, providers), providers)

    return asyncio.run(settled())


def serve(path):
    """Settle, then serve until a signal ends it."""
    # prometheus_client keeps the counts of each worker in a file. It reads the folder's name when
    # it is imported, in this process too: a single worker runs here.
    counts = Path(path).resolve().parent / "metrics"
    shutil.rmtree(counts, ignore_errors=True)
    counts.mkdir()
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(counts)

    import router_service as of

    settings = of.read_settings(path)
    router = of.read_router(settings)
    committed, refunded, unknown = _settle(settings, router)
    if committed or refunded or unknown:
        print(
            f"Of an earlier run: {committed} calls were paid and are booked, {refunded} were never "
            f"made and are refunded, {unknown} wait for somebody who knows."
        )
    n_workers = settings.get("workers", 4)
    address = settings.get("host", "127.0.0.1"), settings.get("port", 8000)
    # An error where another program listens there: workers would share the port with it.
    socket.create_server(address).close()
    if n_workers == 1:
        work(settings, router, address)
    else:
        supervise(n_workers, work, (settings, router, address))


def work(settings, router, address):
    """One worker, until a signal ends it and what is under way is answered."""
    import uvicorn
    from router_service import app_of_settings, warm_up

    warm_up(router)
    app = partial(app_of_settings, settings, router)
    config = uvicorn.Config(app, factory=True, log_level="warning", access_log=False)
    # Each worker has a queue of its own, and the kernel deals connections out evenly: from one
    # queue, whoever is ready first takes them all.
    shared = hasattr(socket, "SO_REUSEPORT")
    with socket.create_server(address, backlog=2048, reuse_port=shared) as listening:
        uvicorn.Server(config).run(sockets=[listening])


def supervise(n_workers, function, arguments):
    """Keep so many processes at work until SIGTERM or SIGINT; then end them.

    They are forked from this process, which has read the router but not used it: a worker that
    imports everything for itself takes five seconds of processor time before it answers.
    """
    processes = multiprocessing.get_context("fork")
    ended = []

    def begin():
        worker = processes.Process(target=function, args=arguments)
        worker.start()
        return worker

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.append(True))
    workers = [begin() for _ in range(n_workers)]
    while not ended:
        wait([worker.sentinel for worker in workers], timeout=0.2)
        if dead := [worker for worker in workers if not worker.is_alive()]:
            print(f"{len(dead)} of {n_workers} workers died and are started anew.", flush=True)
            workers = [worker for worker in workers if worker not in dead]
            # One that dies as it starts must not keep the processor busy.
            time.sleep(0.1)
            workers += [begin() for _ in dead]
    while any(worker.is_alive() for worker in workers):
        # Again and again: the first may come before a worker listens to signals.
        for worker in workers:
            worker.terminate()
            worker.join(0.2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("settings", nargs="?", help="a TOML file")
    parser.add_argument("--demo", action="store_true", help="with a stub provider on loopback")
    arguments = parser.parse_args()
    if not arguments.demo:
        if arguments.settings is None:
            parser.error("name a TOML file, or give --demo")
        serve(arguments.settings)
        return
    stub_port, port = free_port(), free_port()
    stub = start_stub(stub_port, 0.2)
    try:
        with tempfile.TemporaryDirectory() as name:
            url = f"http://127.0.0.1:{stub_port}"
            path = write_settings(Path(name), demo_router(), url, port=port)
            print(
                f"curl http://127.0.0.1:{port}/v1/chat/completions -d "
                """'{"messages": [{"role": "user", "content": "Name a river."}]}'"""
            )
            serve(path)
    finally:
        stub.terminate()
        stub.wait()


if __name__ == "__main__":
    main()
