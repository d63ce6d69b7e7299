"""Providers of chat completions behind one kind of callable.

A provider is called with an OpenAI-style request and the key of the ticket, and gives a `Reply`.
It raises `NotCharged` where the call certainly cost nothing; any other exception leaves the money
reserved until `charged` has said what became of the call. Whatever has ``most_cost``,
``__call__`` and ``charged`` serves: `ChatProvider` is the one for providers that speak HTTP.
"""

import os
from typing import Any, NamedTuple

import aiohttp


class NotCharged(Exception):
    """The call failed before it could cost anything."""


class Reply(NamedTuple):
    """An answer, and what it has cost.

    Attributes
    ----------
    body : dict
        An OpenAI-style chat completion.
    cost : float
        From the tokens that the provider has counted.
    """

    body: dict[str, Any]
    cost: float


class ChatProvider:
    """A provider with the interface of OpenAI's chat completions.

    Parameters
    ----------
    client : aiohttp.ClientSession
        httpx's pool looks at each of its connections for each call: 120 calls under way cost a
        worker more than all the rest.
    url : str
        What ``/chat/completions`` is added to.
    model : str
        The provider's own name of the model.
    input_price, output_price : float
        Of a token, in the unit of the router's costs.
    api_key_env : str, default=None
        Environment variable that holds the key.
    usage_url : str, default=None
        Where ``GET usage_url/<key>`` says what a call was charged, as ``{"usage": {...}}``, or
        404 for a call that never came. None: calls that were cut off are named, not settled.
    """

    def __init__(
        self, client, *, url, model, input_price, output_price, api_key_env=None, usage_url=None
    ):
        self.client, self.model, self.usage_url = client, model, usage_url
        self.url = f"{url.rstrip('/')}/chat/completions"
        self.input_price, self.output_price = float(input_price), float(output_price)
        # A key that is missing is said at the start, not at the first request.
        self.headers = {} if api_key_env is None else _authorization(api_key_env)

    def most_cost(self, n_bytes, max_tokens):
        """The most that a request of so many bytes can cost: no token is less than a byte."""
        return n_bytes * self.input_price + max_tokens * self.output_price

    def cost_of(self, usage):
        """The cost of the tokens that the provider has counted."""
        tokens = usage["prompt_tokens"], usage["completion_tokens"]
        return tokens[0] * self.input_price + tokens[1] * self.output_price

    async def __call__(self, request, key):
        # The key makes a repeated call one call, where the provider keeps to it.
        headers = self.headers | {"Idempotency-Key": key}
        request = request | {"model": self.model}
        try:
            async with self.client.post(self.url, json=request, headers=headers) as found:
                if 400 <= found.status < 500 or found.status == 503:
                    raise NotCharged(f"status {found.status}")
                found.raise_for_status()
                body = await found.json()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotCharged(f"no connection ({type(error).__name__})") from error
        return Reply(body, self.cost_of(body["usage"]))

    async def charged(self, key):
        """What the call of a key was charged, 0.0 if it never came, None if nobody knows."""
        if self.usage_url is None:
            return None
        url = f"{self.usage_url.rstrip('/')}/{key}"
        async with self.client.get(url, headers=self.headers) as found:
            if found.status == 404:
                return 0.0
            found.raise_for_status()
            return self.cost_of((await found.json())["usage"])


def _authorization(name):
    if not (secret := os.environ.get(name)):
        raise ValueError(f"The environment variable {name!r} must hold the provider's key.")
    return {"Authorization": f"Bearer {secret}"}
