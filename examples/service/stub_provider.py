"""A provider on loopback that counts what it charges: ``python stub_provider.py PORT``."""

import asyncio
import random
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

charged = {}


async def complete(request):
    """Charge each Idempotency-Key once; 5 % of the calls fail and cost nothing."""
    body, key = await request.json(), request.headers["idempotency-key"]
    if key not in charged:
        if random.random() < 0.05:
            return JSONResponse({"error": {"message": "overloaded"}}, 503)
        n_words = sum(len(message["content"].split()) for message in body["messages"])
        n_answered = min(body["max_tokens"], random.randint(20, 200))
        charged[key] = {"prompt_tokens": n_words, "completion_tokens": n_answered}
        await asyncio.sleep(random.uniform(0.02, 0.08))
    message = {"role": "assistant", "content": f"{body['model']} says so."}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return JSONResponse({"object": "chat.completion", "choices": choices, "usage": charged[key]})


async def usage(request):
    found = charged.get(request.path_params["key"])
    return JSONResponse({"usage": found}, 200 if found else 404)


app = Starlette(
    routes=[
        Route("/v1/chat/completions", complete, methods=["POST"]),
        Route("/usage/{key}", usage),
        Route("/counts", lambda request: JSONResponse(charged)),
    ]
)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
