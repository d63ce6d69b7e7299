"""The ledgers of streams: what a booking costs, and what a storm of killed workers leaves.

A. Microseconds of reserve and commit in memory; pairs a second of SQLite and Redis,
from processes
   with threads.
B. The storm: processes x threads spend one total with random costs and failures, and
are killed
   with SIGKILL at random instants. Never above the total; what is booked is what the
   providers counted, calls that a kill cut off accounted by name.
C. The storm with a window (``--part window`` alone): the largest number of decisions
for one choice
   in any interval of the window's length, and its limit. Processes want this choice
   alone.

Redis is measured where `redis-server` and the package redis are.
"""

import argparse
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from _common import record, table

COSTS = [1.0, 2.0, 5.0]
MAX_COSTS = [1.5, 3.0, 7.5]


def make_router():
    """A router of three choices on made-up rows."""
    from sklearn.linear_model import Ridge

    from skroute.routing import BudgetRouter

    rng = np.random.default_rng(0)
    X = rng.uniform(size=(500, 2))
    Q = np.column_stack([1 - X[:, 0], 0.5 + 0.3 * X[:, 1], np.full(500, 0.8)])
    return BudgetRouter(Ridge(alpha=1e-3), cv=2, costs=COSTS, budget=2.5).fit(X, Q)


def work(folder, seed, n_threads, n_requests, killed):
    """What one worker process does; with `killed` a failed run is started again by the parent."""
    from skroute.ledgers import BudgetExhaustedError

    stream = pickle.loads((folder / "stream.pickle").read_bytes())
    started = [0] * n_threads

    def serve(thread):
        rng = np.random.default_rng([seed, thread])
        qualities = rng.uniform(size=(1000, 3))
        log = (folder / f"provider-{seed}-{thread}.log").open("a") if killed else None
        for i in range(n_requests // n_threads):
            try:
                ticket = stream.reserve(qualities[i % 1000])
            except BudgetExhaustedError:
                return
            started[thread] += 1
            if not killed:
                stream.commit(ticket)
            elif rng.random() < 0.05:
                stream.refund(ticket)
            else:
                # Multiples of 1/4: sums are exact. The provider counts before we know.
                cost = ticket.cost * rng.integers(2, 7) / 4
                log.write(f"{ticket.id} {cost}\n")
                log.flush()
                stream.commit(ticket, cost)

    (folder / f"ready-{seed}").touch()
    while not (folder / "go").exists():
        time.sleep(0.001)
    start = time.perf_counter()
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(serve, range(n_threads)))
    seconds = time.perf_counter() - start
    (folder / f"done-{seed}").write_text(f"{sum(started)} {seconds}")


def start_worker(folder, *numbers):
    """A process that does `work` with these numbers."""
    told = [str(folder), *(str(int(number)) for number in numbers)]
    return subprocess.Popen([sys.executable, __file__, "--worker", *told])


def work_in_window(folder, seed):
    """Make calls of the dearest choice until the money is spent; wait for its window."""
    from skroute.ledgers import BudgetExhaustedError, WindowFullError

    stream = pickle.loads((folder / "stream.pickle").read_bytes())
    rng = np.random.default_rng(seed)
    log = (folder / f"provider-{seed}.log").open("a")
    while True:
        before = time.time()
        try:
            ticket = stream.reserve([0.0, 0.0, 1.0], exclude=["choice0", "choice1"])
        except BudgetExhaustedError:
            return
        except WindowFullError:
            time.sleep(rng.uniform(0, 0.01))
            continue
        # The decision was made between these two moments.
        log.write(f"{ticket.id} {before!r} {time.time()!r}\n")
        log.flush()
        if rng.random() < 0.05:
            stream.refund(ticket)
        else:
            stream.commit(ticket)


def window_storm(router, ledger, *, n_workers, n_calls, n_kills, seed=0):
    """Kill workers that share a budget and a window, and count what both have let through."""
    from skroute.ledgers import Window

    limit = 100
    seconds = 0.5
    rng = np.random.default_rng(seed)
    total = COSTS[2] * n_calls
    windows = {"choice2": [Window("requests", limit, seconds)]}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stream = router.stream(total, ledger=ledger, windows=windows)
        (folder / "stream.pickle").write_bytes(pickle.dumps(stream))

        def start(worker_seed):
            command = [sys.executable, __file__, "--window-worker"]
            return subprocess.Popen([*command, str(folder), str(worker_seed)])

        workers = [start(i) for i in range(n_workers)]
        n_killed = 0
        most_money = 0.0
        most_in_window = 0.0
        started = time.perf_counter()
        while any(worker.poll() is None for worker in workers):
            books = stream.books()
            in_window = ledger.books(f"choice2: requests in {seconds:g} s").reserved
            most_money = max(most_money, books.spent + books.reserved)
            most_in_window = max(most_in_window, in_window)
            alive = [worker for worker in workers if worker.poll() is None]
            is_due = books.spent > 0.9 * total * (n_killed + 1) / (n_kills + 1)
            if n_killed < n_kills and is_due and alive:
                time.sleep(rng.uniform(0, 0.02))
                victim = alive[rng.integers(len(alive))]
                victim.kill()
                victim.wait()
                workers.append(start(n_workers + n_killed))
                n_killed += 1
            time.sleep(0.01)
        elapsed = time.perf_counter() - started
        lines = []
        for path in folder.glob("provider-*.log"):
            for line in path.read_text().splitlines():
                number, before, after = line.split(" ")
                lines.append((float(before), float(after), int(number)))
        decisions = np.array(lines)
        # Decisions that have surely been made within an interval: those that began
        # after its start and ended before its end.
        most_sure = 0
        ends = np.sort(decisions[:, 1])
        starts_in_order = decisions[np.argsort(decisions[:, 1]), 0]
        for start_of_interval in decisions[:, 0]:
            last = np.searchsorted(ends, start_of_interval + seconds)
            most_sure = max(
                most_sure, int((starts_in_order[:last] >= start_of_interval).sum())
            )
        n_logged = len(decisions)
        n_doubled = n_logged - len(np.unique(decisions[:, 2]))
        cut_off = stream.unsettled()
        for ticket in cut_off:
            stream.commit(ticket)
        books = stream.books()
    return {
        "calls": books.n_committed + books.n_refunded,
        "kills": n_killed,
        "limit": limit,
        "most in the window": most_in_window,
        "most by the logs": most_sure,
        "above the total": max(most_money - total, 0.0),
        "used, share": books.spent / total,
        "cut off": len(cut_off),
        "tickets sold twice": n_doubled,
        "seconds": elapsed,
        "least seconds": seconds * (n_logged / limit - 1),
    }


def start_redis(folder):
    """A server and its url; None and None where it or its client is not installed."""
    if find_spec("redis") is None or shutil.which("redis-server") is None:
        print("Redis is left out: it needs redis-server and the package redis.")
        return None, None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    server = subprocess.Popen(
        [*command, "--dir", str(folder)], stdout=subprocess.DEVNULL
    )
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return server, f"redis://127.0.0.1:{port}/0"
        except ConnectionError:
            time.sleep(0.02)
    raise RuntimeError("redis-server does not answer")


def in_memory(router, n_pairs):
    """Microseconds of a pair: the least over repeats, since the machine may be busy."""
    values = router.predict_quality(np.random.default_rng(1).uniform(size=(n_pairs, 2)))
    seconds = {"unknown number": [], "known number": []}
    for _ in range(30):
        for found, n_expected in zip(seconds.values(), (None, 10**7)):
            stream = router.stream(1e9, n_expected)
            start = time.perf_counter()
            for value in values:
                stream.commit(stream.reserve(value))
            found.append(time.perf_counter() - start)
    return {name: 1e6 * min(found) / n_pairs for name, found in seconds.items()}


def throughput(router, ledger, n_workers, n_threads, n_pairs):
    """Pairs a second of all workers, from the first one's start to the last one's end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stream = router.stream(1e12, ledger=ledger, purse=uuid.uuid4().hex)
        (folder / "stream.pickle").write_bytes(pickle.dumps(stream))
        workers = [
            start_worker(folder, seed, n_threads, n_pairs // n_workers, False)
            for seed in range(n_workers)
        ]
        while len(list(folder.glob("ready-*"))) < n_workers:
            time.sleep(0.01)
        (folder / "go").touch()
        for worker in workers:
            worker.wait()
        done = [path.read_text().split() for path in folder.glob("done-*")]
        assert len(done) == n_workers
        return sum(int(n) for n, _ in done) / max(float(seconds) for _, seconds in done)


def storm(router, ledger, *, n_workers, n_threads, n_requests, n_kills, seed=0):
    """Kill workers while they spend, reconcile what is named, and count."""
    rng = np.random.default_rng(seed)
    # About what so many requests want at the mean budget; they want more than there is.
    total = float(int(2.0 * n_requests))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stream = router.stream(total, max_costs=MAX_COSTS, ledger=ledger)
        (folder / "stream.pickle").write_bytes(pickle.dumps(stream))
        (folder / "go").touch()
        workers = [
            start_worker(folder, i, n_threads, 10 * n_requests, True)
            for i in range(n_workers)
        ]
        next_seed, killed, worst, start = n_workers, 0, 0.0, time.perf_counter()
        while any(worker.poll() is None for worker in workers):
            books = stream.books()
            worst = max(worst, books.spent + books.reserved)
            alive = [worker for worker in workers if worker.poll() is None]
            if killed < n_kills and books.spent > 0.9 * total * (killed + 1) / (
                n_kills + 1
            ):
                time.sleep(rng.uniform(0, 0.02))
                victim = alive[rng.integers(len(alive))]
                victim.kill()
                victim.wait()
                killed += 1
                workers.append(
                    start_worker(folder, next_seed, n_threads, 10 * n_requests, True)
                )
                next_seed += 1
            time.sleep(0.02)
        seconds = time.perf_counter() - start
        called, doubled = {}, 0
        for path in folder.glob("provider-*.log"):
            for line in path.read_text().splitlines():
                number, cost = line.split(" ")
                doubled += int(number) in called
                called[int(number)] = float(cost)
        named = stream.unsettled()
        n_called = 0
        for ticket in named:
            if ticket.id in called:
                n_called += 1
                stream.commit(ticket, called[ticket.id])
            else:
                stream.refund(ticket)
        books = stream.books()
        worst = max(worst, books.spent + books.reserved)
    return {
        "requests": books.n_committed + books.n_refunded,
        "kills": killed,
        "above the total": max(worst - total, 0.0),
        "used, share": books.spent / total,
        "booked less counted": abs(books.spent - sum(called.values())),
        "cut off": len(named),
        "cut off and called": n_called,
        "tickets sold twice": doubled,
        "seconds": seconds,
    }


def report_windows(router, short):
    """Print part C for each ledger that processes share."""
    from skroute.ledgers import RedisLedger, SQLiteLedger

    size = {"n_workers": 8, "n_calls": 10_000, "n_kills": 50}
    if short:
        size = {"n_workers": 2, "n_calls": 150, "n_kills": 1}
    rows = []
    with tempfile.TemporaryDirectory() as name:
        server, url = start_redis(name)
        ledgers = {"SQLite": SQLiteLedger(Path(name) / "window.sqlite")}
        if server is not None and not short:
            ledgers["Redis"] = RedisLedger(url, prefix="window")
        try:
            for kind, ledger in ledgers.items():
                counts = window_storm(router, ledger, **size)
                rows.append([kind, *counts.values()])
        finally:
            if server is not None:
                server.kill()
                server.wait()
    table("C. The storm with a window", ["ledger", *counts], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument(
        "--divide", type=int, default=1, help="pairs, requests and kills by this"
    )
    parser.add_argument("--worker", nargs=5)
    parser.add_argument("--window-worker", nargs=2)
    parser.add_argument("--part", choices=["window"], help="only the windows (C)")
    arguments = parser.parse_args()
    if arguments.window_worker:
        folder, seed = arguments.window_worker
        work_in_window(Path(folder), int(seed))
        return
    if arguments.worker:
        folder, *numbers = arguments.worker
        work(Path(folder), *map(int, numbers))
        return
    short, parts = arguments.short, arguments.divide
    from skroute.ledgers import RedisLedger, SQLiteLedger

    router = make_router()
    if arguments.part == "window":
        report_windows(router, short)
        return
    least = in_memory(router, 100 if short else 1000)
    table(
        "In memory, us of reserve and commit (least of 30)",
        list(least),
        [list(least.values())],
    )
    n_workers, n_threads, n_pairs = (1, 2, 300) if short else (2, 4, 40_000 // parts)
    size = {"n_workers": 1, "n_threads": 2, "n_requests": 300, "n_kills": 1}
    if not short:
        size = {"n_workers": 8, "n_threads": 4, "n_requests": 200_000, "n_kills": 50}
    size |= {key: size[key] // parts for key in ("n_requests", "n_kills")}
    rates, storms = {}, {}
    with tempfile.TemporaryDirectory() as name:
        server, url = start_redis(name)
        kinds = {
            "SQLite": lambda purpose: SQLiteLedger(Path(name) / f"{purpose}.sqlite")
        }
        if server is not None:
            kinds["Redis"] = lambda purpose: RedisLedger(url, prefix=purpose)
        try:
            for kind, make in kinds.items():
                rates[kind] = throughput(
                    router, make("rate"), n_workers, n_threads, n_pairs
                )
                if not short or kind == "SQLite":
                    storms[kind] = storm(router, make("storm"), **size)
        finally:
            if server is not None:
                server.kill()
                server.wait()
    table("Pairs a second (2,000 are asked)", list(rates), [list(rates.values())])
    rows = [[kind, *found.values()] for kind, found in storms.items()]
    table("The storm", ["ledger", *next(iter(storms.values()))], rows)
    report_windows(router, short)
    if not short:
        record("ledger")


if __name__ == "__main__":
    main()
