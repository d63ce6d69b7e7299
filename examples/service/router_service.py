"""Chat completions routed among providers under one total, by any number of workers.

`make_app` is the application around a stream and providers; `app_of_settings` makes that of a
worker, from the settings and the router that `run.serve` has read.
"""

import asyncio
import json
import logging
import os
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic, perf_counter, thread_time
from typing import NamedTuple

import aiohttp
import joblib
import numpy as np
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Summary,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector
from providers import ChatProvider, NotCharged
from request_features import features
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from skroute.certified import CertifiedRouter
from skroute.ledgers import (
    AlreadyCommittedError,
    BudgetExhaustedError,
    RedisLedger,
    SQLiteLedger,
)

log = logging.getLogger("uvicorn.error")

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
REQUESTS = Counter("skroute_requests", "Requests by choice and outcome", ["choice", "outcome"])
COST = Counter("skroute_committed_cost", "Cost committed by this service", ["choice"])
OWN = Histogram("skroute_own_seconds", "Of a request, without the provider", buckets=_SECONDS)
CPU = Summary("skroute_booking_cpu_seconds", "Processor time of an estimate or a booking")
CALL = Histogram("skroute_call_seconds", "Of the provider's calls", ["choice"])
# The largest over workers, also over those that have died: an alarm stays until a restart.
ALARM = Gauge("skroute_alarm", "A promise is broken", ["kind"], multiprocess_mode="max")


class Limits(NamedTuple):
    """What a request may ask for. The bounds of its cost follow from it.

    Attributes
    ----------
    request_bytes : int
        Longer requests are refused.
    max_tokens : int
        Of an answer; requests for more get so many.
    failures : int
        After so many failures in a row a provider is left out,
    pause : float
        for so many seconds.
    """

    request_bytes: int = 8192
    max_tokens: int = 512
    failures: int = 5
    pause: float = 30.0


class Refused(Exception):
    """A request that gets an error in OpenAI's form."""

    def __init__(self, status, message, code):
        self.response = JSONResponse(
            {"error": {"message": message, "type": "invalid_request_error", "code": code}}, status
        )


class Service:
    """One worker: decide, reserve, call, commit.

    Parameters
    ----------
    stream : BudgetStream
        With the ledger that all workers share.
    providers : mapping from str to callable
        One for each choice of the stream, see `providers`.
    limits : Limits, default=None
    monitor : PromiseMonitor, default=None
        Fed with the cost of each answer.
    """

    def __init__(self, stream, providers, limits=None, monitor=None):
        self.stream, self.providers = stream, providers
        self.limits, self.monitor = limits or Limits(), monitor
        if missing := set(stream.router.choices_) - set(providers):
            raise ValueError(f"There is no provider for the choice {sorted(missing)[0]!r}.")
        # What waits for a network is done beside the loop that serves the requests. A booking in
        # a file of this host takes less than to hand it to a thread and to be woken by it.
        self._beside = isinstance(stream.ledger, RedisLedger)
        # One thread: a request sees what an earlier one of this worker has paid.
        self._bookings = ThreadPoolExecutor(1, thread_name_prefix="bookings")
        self._failed = dict.fromkeys(providers, 0)
        self._back = {}

    @staticmethod
    def _booked(function, *arguments):
        start = thread_time()
        try:
            return function(*arguments)
        finally:
            CPU.observe(thread_time() - start)

    async def _book(self, function, *arguments):
        if not self._beside:
            return self._booked(function, *arguments)
        booking = self._bookings.submit(self._booked, function, *arguments)
        return await asyncio.wrap_future(booking)

    def _book_without_waiting(self, function, *arguments):
        """Who comes again under its key before it is booked, to another worker, is called again."""
        if self._beside:
            self._bookings.submit(self._booked, function, *arguments)
        else:
            self._booked(function, *arguments)

    async def close(self):
        """Wait until everything is booked."""
        if self._beside:
            await self._book(int)

    async def chat(self, request):
        """``POST /v1/chat/completions``."""
        start = perf_counter()
        try:
            body = await self._body(request)
            ticket = await self._ticket(body, request.headers.get("idempotency-key"))
        except Refused as refused:
            return refused.response
        called = perf_counter()
        key = f"{ticket.stream}-{ticket.id}"
        try:
            reply = await self.providers[ticket.name](body, key)
            if not 0 <= reply.cost < float("inf"):
                raise ValueError("a cost that is none")
        except NotCharged as failure:
            await self._book(self.stream.refund, ticket)
            self._note_failure(ticket.name)
            REQUESTS.labels(ticket.name, "refunded").inc()
            log.warning("%s failed: %s", ticket.name, failure)
            return Refused(502, f"{ticket.name} failed; nothing was paid.", "failed").response
        except Exception as failure:
            # It may have been paid. The money stays reserved until the provider is asked.
            self._note_failure(ticket.name)
            REQUESTS.labels(ticket.name, "unknown").inc()
            log.warning("%s broke off: %s, ticket %s", ticket.name, type(failure).__name__, key)
            return Refused(504, f"{ticket.name} broke off.", "unknown").response
        answered = perf_counter()
        self._failed[ticket.name] = 0
        self._book_without_waiting(self._commit, ticket, reply.cost)
        CALL.labels(ticket.name).observe(answered - called)
        own = perf_counter() - answered + called - start
        OWN.observe(own)
        headers = {
            "x-skroute-choice": ticket.name,
            "x-skroute-cost": f"{reply.cost:.17g}",
            "x-skroute-own-ms": f"{1000 * own:.3f}",
        }
        return JSONResponse(reply.body, headers=headers)

    async def _body(self, request):
        """The request, checked before anything is reserved."""
        raw = bytearray()
        async for part in request.stream():
            raw += part
            if len(raw) > self.limits.request_bytes:
                message = f"A request may have {self.limits.request_bytes} bytes."
                raise Refused(413, message, "too_large")
        try:
            body = json.loads(raw)
            messages = body["messages"]
            texts = all(isinstance(m["role"] + m["content"], str) for m in messages)
        except (ValueError, KeyError, TypeError):
            messages, texts = None, False
        if not texts or not isinstance(messages, list) or not messages:
            message = "messages must be a list of {'role': str, 'content': str}, not empty."
            raise Refused(400, message, "invalid_messages")
        if body.get("model", "auto") != "auto":
            raise Refused(404, "The only model is 'auto'.", "model_not_found")
        if body.get("stream") or body.get("n", 1) != 1:
            raise Refused(400, "stream and n are not supported.", "unsupported")
        most = self.limits.max_tokens
        asked = body.pop("max_completion_tokens", body.get("max_tokens", most))
        if not isinstance(asked, int) or isinstance(asked, bool) or asked < 1:
            raise Refused(400, "max_tokens must be a positive int.", "invalid_max_tokens")
        return body | {"max_tokens": min(asked, most)}

    async def _ticket(self, body, key):
        self._include()
        try:
            return await self._book(self._decide, body["messages"], key)
        except BudgetExhaustedError as error:
            REQUESTS.labels("none", "rejected").inc()
            raise Refused(429, "The budget is used up.", "insufficient_quota") from error
        except AlreadyCommittedError as error:
            message = "The request of this Idempotency-Key was answered and paid."
            raise Refused(409, message, "already_answered") from error

    def _decide(self, messages, key):
        """Estimate and reserve: `stream.route` without a booking for the time of the estimate."""
        quality = self.stream.router.predict_quality(np.array([features(messages)]))
        return self.stream.reserve(quality[0], key=key)

    def _commit(self, ticket, cost):
        REQUESTS.labels(ticket.name, "answered").inc()
        try:
            self.stream.commit(ticket, cost)
        except BudgetExhaustedError:
            log.exception("The cost of %s was above its bound, or late", ticket.name)
        except ValueError:
            # The same request came twice, one call answered both, and the other one has paid.
            return
        except Exception:
            log.exception("Ticket %s-%s is paid and not booked", ticket.stream, ticket.id)
            return
        COST.labels(ticket.name).inc(cost)
        if self.monitor is not None:
            known = len(self.monitor.alarms_)
            self.monitor.update(cost=cost)
            for alarm in self.monitor.alarms_[known:]:
                ALARM.labels(alarm.kind).set(1)
                log.warning("A promise is broken: %s", alarm)

    def _note_failure(self, name):
        """Leave a provider out that fails again and again, unless it is the last one."""
        self._failed[name] += 1
        if self._failed[name] >= self.limits.failures and name not in self._back:
            try:
                self.stream.exclude([name])
            except ValueError:
                return
            self._back[name] = monotonic() + self.limits.pause

    def _include(self):
        for name in [name for name, until in self._back.items() if monotonic() >= until]:
            del self._back[name]
            self._failed[name] = 0
            self.stream.include([name])

    def collect(self):
        """The books, read when Prometheus asks."""
        books = self.stream.books()
        for name in ("total", "spent", "reserved", "n_open", "n_expired", "n_rejected"):
            found = GaugeMetricFamily(f"skroute_books_{name}", "Of the shared purse")
            found.add_metric([], getattr(books, name))
            yield found

    async def metrics(self, request):
        """``GET /metrics``, of all workers."""
        registry = CollectorRegistry()
        registry.register(self)
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            MultiProcessCollector(registry)
            text = await self._book(generate_latest, registry)
        else:
            text = await self._book(generate_latest, registry) + generate_latest()
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def health(self, request):
        """``GET /healthz``: the ledger answers."""
        await self._book(self.stream.books)
        return JSONResponse({"status": "ok"})


def make_app(service, *, certificate="", close=None):
    """The application of one worker.

    Parameters
    ----------
    service : Service
    certificate : str, default=""
        What ``GET /certificate`` says.
    close : coroutine function, default=None
        Awaited when the worker ends.
    """

    @asynccontextmanager
    async def lifespan(app):
        yield
        await service.close()
        if close is not None:
            await close()

    async def certified(request):
        return JSONResponse({"certificate": certificate})

    async def models(request):
        return JSONResponse({"object": "list", "data": [{"id": "auto", "object": "model"}]})

    return Starlette(
        routes=[
            Route("/v1/chat/completions", service.chat, methods=["POST"]),
            Route("/v1/models", models),
            Route("/metrics", service.metrics),
            Route("/certificate", certified),
            Route("/healthz", service.health),
        ],
        lifespan=lifespan,
    )


def read_settings(path):
    """The settings of a TOML file, paths beside it, as a dict."""
    path = Path(path)
    settings = tomllib.loads(path.read_text(encoding="utf-8"))
    settings["folder"] = path.resolve().parent
    return settings


def make_providers(settings, client):
    """The providers that the settings name."""
    return {name: ChatProvider(client, **of) for name, of in settings["providers"].items()}


def make_stream(settings, router, providers):
    """The stream that all workers share."""
    money, limits = settings["money"], Limits(**settings.get("limits", {}))
    timeout = money.get("timeout", 600.0)
    if "redis" in money:
        ledger = RedisLedger(money["redis"], timeout=timeout)
    else:
        ledger = SQLiteLedger(settings["folder"] / money["sqlite"], timeout=timeout)
    bounds = limits.request_bytes, limits.max_tokens
    most = {name: provider.most_cost(*bounds) for name, provider in providers.items()}
    return router.stream(
        money["total"],
        max_costs={name: most[name] for name in router.choices_},
        ledger=ledger,
        purse=money.get("purse", "chat"),
        period=money.get("period"),
    )


def read_router(settings):
    """The router that the settings name."""
    return joblib.load(settings["folder"] / settings["router"])


def make_client(settings):
    """One pool of connections for all providers, made where the event loop runs."""
    # Idle connections are left before a provider closes them under a request.
    pool = aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0)
    timeout = aiohttp.ClientTimeout(settings.get("call_timeout", 60.0))
    return aiohttp.ClientSession(connector=pool, timeout=timeout)


def warm_up(router):
    """The first decision of a process loads kernels: not in somebody's request."""
    stream = router.stream(float(np.finfo(float).max))
    stream.router.predict_quality(np.array([features([{"role": "user", "content": "warm up"}])]))


def app_of_settings(settings, router):
    """What uvicorn calls in each worker, inside its event loop."""
    client = make_client(settings)
    providers = make_providers(settings, client)
    monitor, certificate = None, "none: the router is not a CertifiedRouter"
    if isinstance(router, CertifiedRouter):
        certificate = str(router.certificate_)
        # Each worker watches its own requests; together they keep to one false alarm rate.
        share = 0.05 / settings.get("workers", 4)
        monitor = router.monitor(false_alarm=share)
    stream = make_stream(settings, router, providers)
    service = Service(stream, providers, Limits(**settings.get("limits", {})), monitor)
    return make_app(service, certificate=certificate, close=client.close)


async def reconcile(stream, providers):
    """Settle what a crash has cut off, by what the providers have counted.

    Call it while no worker runs: a call that is under way has a ticket like one cut off.

    Returns
    -------
    tuple of int
        How many were paid and are committed, how many never came and are refunded, and how
        many nobody knows of, which stay.
    """
    counts = [0, 0, 0]
    for ticket in stream.unsettled():
        cost = await providers[ticket.name].charged(f"{ticket.stream}-{ticket.id}")
        if cost is None:
            counts[2] += 1
        elif cost == 0:
            stream.refund(ticket)
            counts[1] += 1
        else:
            stream.commit(ticket, cost)
            counts[0] += 1
    return tuple(counts)
