"""Chat completions in OpenAI's format, routed among providers under one total budget.

`make_app` makes the application from a stream and providers. A worker runs `app_of_folder`: it
reads the folder that the environment variable ``SKROUTE_SERVICE`` names.
"""

import json
import os
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import joblib
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from skroute.ledgers import BudgetExhaustedError, SQLiteLedger

MAX_BYTES, MAX_TOKENS = 4096, 256
REQUESTS = Counter(
    "skroute_requests", "Requests by choice and outcome", ["choice", "outcome"]
)
SECONDS = Histogram(
    "skroute_call_seconds", "Duration of the providers' calls", ["choice"]
)


def features(messages):
    """What the router sees of a conversation. Replace it by an embedding."""
    words = " ".join(message["content"] for message in messages).lower().split()
    hard = {
        "prove",
        "derive",
        "integral",
        "optimise",
        "refactor",
        "theorem",
        "why",
        "compare",
    }
    return [
        len(messages),
        len(words),
        sum(map(len, words)),
        sum(word in hard for word in words),
    ]


class NotCharged(Exception):
    """The call failed before it could cost anything."""


class ChatProvider:
    """A provider with the HTTP interface of OpenAI's chat completions; prices are per token."""

    def __init__(self, client, *, url, model, input_price, output_price, key=None):
        self.client, self.url, self.model = client, url, model
        self.input_price, self.output_price = input_price, output_price
        # `key` names an environment variable.
        self.headers = {"Authorization": f"Bearer {os.environ[key]}"} if key else {}
        # A token has at least one byte, so a text has at most as many tokens as bytes.
        self.max_cost = MAX_BYTES * input_price + MAX_TOKENS * output_price

    async def __call__(self, body):
        """The completion and its cost."""
        url, body = f"{self.url}/chat/completions", body | {"model": self.model}
        try:
            async with self.client.post(url, json=body, headers=self.headers) as found:
                if 400 <= found.status < 500 or found.status == 503:
                    raise NotCharged(f"status {found.status}")
                found.raise_for_status()
                reply = await found.json()
        except aiohttp.ClientConnectorError as error:
            raise NotCharged("no connection") from error
        n_read, n_written = (
            reply["usage"]["prompt_tokens"],
            reply["usage"]["completion_tokens"],
        )
        return reply, n_read * self.input_price + n_written * self.output_price


def read_body(raw):
    """The request as a dict; its size and its `max_tokens` bound what a call can cost."""
    if len(raw) > MAX_BYTES:
        raise ValueError(f"A request may have at most {MAX_BYTES} bytes.")
    try:
        body = json.loads(raw)
        messages = body["messages"]
        valid = messages and all(
            isinstance(m["role"] + m["content"], str) for m in messages
        )
    except (ValueError, KeyError, TypeError):
        valid = False
    if not valid:
        raise ValueError(
            "messages must be a non-empty list of {'role': str, 'content': str}."
        )
    if body.get("stream") or body.get("n", 1) != 1:
        raise ValueError("stream and n are not supported.")
    n_tokens = body.get("max_tokens", MAX_TOKENS)
    if type(n_tokens) is not int or n_tokens < 1:
        raise ValueError(f"max_tokens must be a positive int, got {n_tokens!r}.")
    return body | {"max_tokens": min(n_tokens, MAX_TOKENS)}


def make_app(stream, providers, lifespan=None):
    """The application of one worker: decide and reserve, call, commit, answer."""

    def refused(status, message, choice="none", outcome="refused"):
        REQUESTS.labels(choice, outcome).inc()
        return JSONResponse({"error": {"message": message}}, status)

    async def chat(request):
        try:
            body = read_body(await request.body())
        except ValueError as error:
            return refused(400, str(error))
        try:
            ticket = await run_in_threadpool(stream.route, [features(body["messages"])])
        except BudgetExhaustedError:
            return refused(429, "The budget is used up.")
        try:
            with SECONDS.labels(ticket.name).time():
                reply, cost = await providers[ticket.name](body)
        except NotCharged as failure:
            await run_in_threadpool(stream.refund, ticket)
            return refused(502, f"The call failed: {failure}.", ticket.name, "refunded")
        except Exception as failure:
            # It may have been charged: count the most that it can cost.
            await run_in_threadpool(stream.commit, ticket, ticket.reserved)
            return refused(
                504, f"The call failed: {failure!r}.", ticket.name, "unknown"
            )
        await run_in_threadpool(stream.commit, ticket, cost)
        REQUESTS.labels(ticket.name, "answered").inc()
        return JSONResponse(reply, headers={"x-skroute-choice": ticket.name})

    def metrics(request):
        books, registry = stream.books(), CollectorRegistry()
        for name in ("total", "spent", "reserved", "n_open", "n_expired", "n_rejected"):
            Gauge(f"skroute_{name}", "Of all workers", registry=registry).set(
                getattr(books, name)
            )
        MultiProcessCollector(registry)
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    routes = [
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/metrics", metrics),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def app_of_folder():
    """The application of ``router.joblib``, ``service.json`` and ``ledger.sqlite`` in a folder."""
    folder = Path(os.environ["SKROUTE_SERVICE"])
    settings = json.loads((folder / "service.json").read_text(encoding="utf-8"))
    client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60.0))
    providers = {
        name: ChatProvider(client, **of) for name, of in settings["providers"].items()
    }
    stream = joblib.load(folder / "router.joblib").stream(
        settings["total"],
        max_costs={name: provider.max_cost for name, provider in providers.items()},
        # If a worker is killed, what it has reserved becomes free after this time.
        ledger=SQLiteLedger(folder / "ledger.sqlite", timeout=600.0),
    )

    @asynccontextmanager
    async def lifespan(app):
        async with client:
            yield

    return make_app(stream, providers, lifespan)
