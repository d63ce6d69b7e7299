"""A provider that answers on loopback, counts what it charges, and can be slow and fail.

``python stub_provider.py PORT [MEAN_SECONDS [SHARE_OF_FAILURES]]``. A call with an
``Idempotency-Key`` that it has answered is answered again and charged once. ``GET /usage/<key>``
says what a call was charged, ``GET /counts`` all of them.
"""

import asyncio
import random
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route


def make_stub(mean_seconds=0.05, failures=0.0, seed=0):
    """The application of a provider.

    Parameters
    ----------
    mean_seconds : float, default=0.05
        Answers take between half of it and one and a half.
    failures : float, default=0.0
        Share of calls that are refused with status 503 and charged nothing.
    seed : int, default=0
    """
    rng, charged, n_calls = random.Random(seed), {}, {}

    async def complete(request):
        body, key = await request.json(), request.headers["idempotency-key"]
        n_calls[key] = n_calls.get(key, 0) + 1
        if key not in charged:
            if rng.random() < failures:
                return JSONResponse({"error": {"message": "overloaded"}}, 503)
            n_words = sum(len(m["content"].split()) for m in body["messages"])
            n_answered = min(body["max_tokens"], rng.randint(20, 200))
            # Charged before it is answered: whoever hangs up pays.
            tokens = {"prompt_tokens": n_words, "completion_tokens": n_answered}
            charged[key] = tokens | {"model": body["model"]}
            await asyncio.sleep(mean_seconds * rng.uniform(0.5, 1.5))
        return JSONResponse(
            {
                "id": f"chatcmpl-{key}",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": f"{body['model']} says so."},
                        "finish_reason": "stop",
                    }
                ],
                "usage": charged[key],
            }
        )

    async def usage(request):
        found = charged.get(request.path_params["key"])
        return JSONResponse({"usage": found}, 200 if found else 404)

    async def counts(request):
        return JSONResponse({"charged": charged, "n_calls": n_calls})

    return Starlette(
        routes=[
            Route("/v1/chat/completions", complete, methods=["POST"]),
            Route("/usage/{key}", usage),
            Route("/counts", counts),
        ]
    )


if __name__ == "__main__":
    port, *numbers = sys.argv[1:]
    stub = make_stub(*map(float, numbers))
    uvicorn.run(stub, host="127.0.0.1", port=int(port), log_level="warning", access_log=False)
