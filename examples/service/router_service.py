"""Chat completions in OpenAI's format, routed among providers under one budget.

`make_app` is the application around a stream and providers; `app_of_folder` makes that of a
worker, from the folder that the environment variable ``SKROUTE_SERVICE`` names.
"""

import json
import os
import tomllib
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import joblib
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from skroute.ledgers import AlreadyCommittedError, BudgetExhaustedError, SQLiteLedger

MAX_BYTES, MAX_TOKENS = 4096, 256
REQUESTS = Counter("skroute_requests", "Requests by choice and outcome", ["choice", "outcome"])
SECONDS = Histogram("skroute_call_seconds", "Duration of the providers' calls", ["choice"])


def features(messages):
    """What the router sees of a conversation. Replace it by an embedding."""
    words = " ".join(message["content"] for message in messages).lower().split()
    hard = {"prove", "derive", "integral", "optimise", "refactor", "theorem", "why", "compare"}
    return [len(messages), len(words), sum(map(len, words)), sum(word in hard for word in words)]


class NotCharged(Exception):
    """The call failed before it could cost anything."""


class ChatProvider:
    """A provider with the HTTP interface of OpenAI's chat completions; prices are per token."""

    def __init__(self, client, *, url, model, input_price, output_price, usage_url, key=None):
        self.client, self.url, self.model, self.usage_url = client, url, model, usage_url
        self.input_price, self.output_price = input_price, output_price
        # `key` names an environment variable; one that is missing is an error at the start.
        self.headers = {"Authorization": f"Bearer {os.environ[key]}"} if key else {}
        # No token is shorter than a byte.
        self.max_cost = MAX_BYTES * input_price + MAX_TOKENS * output_price

    def cost_of(self, usage):
        read, written = usage["prompt_tokens"], usage["completion_tokens"]
        return read * self.input_price + written * self.output_price

    async def __call__(self, body, key):
        """The completion and its cost."""
        headers = self.headers | {"Idempotency-Key": key}
        url, body = f"{self.url}/chat/completions", body | {"model": self.model}
        try:
            async with self.client.post(url, json=body, headers=headers) as found:
                if 400 <= found.status < 500 or found.status == 503:
                    raise NotCharged(f"status {found.status}")
                found.raise_for_status()
                reply = await found.json()
        except aiohttp.ClientConnectorError as error:
            raise NotCharged("no connection") from error
        return reply, self.cost_of(reply["usage"])

    async def charged(self, key):
        """What the call of a key was charged, 0.0 if it never came."""
        async with self.client.get(f"{self.usage_url}/{key}", headers=self.headers) as found:
            if found.status == 404:
                return 0.0
            found.raise_for_status()
            return self.cost_of((await found.json())["usage"])


def refused(status, message):
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error"}}, status)


async def read_body(request):
    """The request as a dict, or ValueError."""
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > MAX_BYTES:
            raise ValueError(f"A request may have at most {MAX_BYTES} bytes.")
    try:
        body = json.loads(raw)
        messages = body["messages"]
        valid = isinstance(messages, list) and messages
        valid = valid and all(isinstance(m["role"] + m["content"], str) for m in messages)
    except (ValueError, KeyError, TypeError):
        valid = False
    if not valid:
        raise ValueError("messages must be a non-empty list of {'role': str, 'content': str}.")
    if body.get("stream") or body.get("n", 1) != 1:
        raise ValueError("stream and n are not supported.")
    n_tokens = body.get("max_tokens", MAX_TOKENS)
    if type(n_tokens) is not int or n_tokens < 1:
        raise ValueError(f"max_tokens must be a positive int, got {n_tokens!r}.")
    return body | {"max_tokens": min(n_tokens, MAX_TOKENS)}


def make_app(stream, providers, lifespan=None):
    """The application of one worker: decide and reserve, call, answer, commit."""

    def commit(ticket, cost):
        try:
            stream.commit(ticket, cost)
        except ValueError:
            # The same request came twice at once and shares a ticket; the other call has paid.
            return
        REQUESTS.labels(ticket.name, "answered").inc()

    async def chat(request):
        try:
            body = await read_body(request)
        except ValueError as error:
            return refused(400, str(error))
        row, key = [features(body["messages"])], request.headers.get("idempotency-key")
        try:
            ticket = await run_in_threadpool(stream.route, row, key=key)
        except BudgetExhaustedError:
            REQUESTS.labels("none", "rejected").inc()
            return refused(429, "The budget is used up.")
        except AlreadyCommittedError:
            return refused(409, "The request of this Idempotency-Key was answered and paid.")
        try:
            with SECONDS.labels(ticket.name).time():
                reply, cost = await providers[ticket.name](body, f"{ticket.stream}-{ticket.id}")
        except NotCharged as failure:
            await run_in_threadpool(stream.refund, ticket)
            REQUESTS.labels(ticket.name, "refunded").inc()
            return refused(502, f"{ticket.name} failed and charged nothing: {failure}.")
        except Exception as failure:
            # It may have been charged: the money stays reserved until `settle` asks the provider.
            REQUESTS.labels(ticket.name, "unknown").inc()
            return refused(504, f"{ticket.name} broke off: {type(failure).__name__}.")
        booking = BackgroundTask(commit, ticket, cost)
        return JSONResponse(reply, headers={"x-skroute-choice": ticket.name}, background=booking)

    def metrics(request):
        books, registry = stream.books(), CollectorRegistry()
        for name in ("total", "spent", "reserved", "n_open", "n_expired", "n_rejected"):
            Gauge(f"skroute_{name}", "Of all workers", registry=registry).set(getattr(books, name))
        MultiProcessCollector(registry)
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    routes = [Route("/v1/chat/completions", chat, methods=["POST"]), Route("/metrics", metrics)]
    return Starlette(routes=routes, lifespan=lifespan)


def read_folder(folder, client):
    """Stream and providers of ``router.joblib`` and ``service.toml`` in a folder."""
    folder = Path(folder)
    settings = tomllib.loads((folder / "service.toml").read_text(encoding="utf-8"))
    providers = {name: ChatProvider(client, **of) for name, of in settings["providers"].items()}
    stream = joblib.load(folder / "router.joblib").stream(
        settings["total"],
        max_costs={name: provider.max_cost for name, provider in providers.items()},
        ledger=SQLiteLedger(folder / "ledger.sqlite", timeout=600.0),
    )
    return stream, providers


def app_of_folder():
    client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60.0))

    @asynccontextmanager
    async def lifespan(app):
        async with client:
            yield

    return make_app(*read_folder(os.environ["SKROUTE_SERVICE"], client), lifespan)


async def settle(stream, providers):
    """Book what a crash has cut off, as the providers have counted it.

    Call it while no worker runs: a call under way has a ticket like one that was cut off.
    """
    for ticket in stream.unsettled():
        cost = await providers[ticket.name].charged(f"{ticket.stream}-{ticket.id}")
        if cost:
            stream.commit(ticket, cost)
        else:
            stream.refund(ticket)
