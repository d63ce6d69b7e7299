"""A provider on this machine that counts what it charges: ``python stub_provider.py PORT``."""

import asyncio
import random
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

charged = []


async def complete(request):
    """5 % of the calls fail and cost nothing."""
    if random.random() < 0.05:
        return JSONResponse({"error": {"message": "overloaded"}}, 503)
    body = await request.json()
    n_read = sum(len(message["content"].split()) for message in body["messages"])
    n_written = min(body["max_tokens"], random.randint(20, 200))
    charged.append((body["model"], n_read, n_written))
    await asyncio.sleep(random.uniform(0.02, 0.08))
    message = {"role": "assistant", "content": f"An answer of {body['model']}."}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    usage = {"prompt_tokens": n_read, "completion_tokens": n_written}
    return JSONResponse(
        {"object": "chat.completion", "choices": choices, "usage": usage}
    )


app = Starlette(
    routes=[
        Route("/v1/chat/completions", complete, methods=["POST"]),
        Route("/charged", lambda request: JSONResponse(charged)),
    ]
)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
