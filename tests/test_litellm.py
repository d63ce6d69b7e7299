"""The strategy for LiteLLM's router, with LiteLLM itself and answers that it makes up."""

import asyncio
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from skroute.ledgers import BudgetExhaustedError
from skroute.routing import BudgetRouter

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
litellm = pytest.importorskip("litellm")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "service"))


def setting(total, **told):
    from litellm_strategy import SkrouteStrategy

    rng = np.random.default_rng(0)
    X = rng.uniform(size=(200, 1))
    Q = np.column_stack([1 - X[:, 0], np.full(200, 0.9)])
    router = BudgetRouter(Ridge(), costs={"small": 1e-4, "large": 1e-3}, budget=5e-4).fit(X, Q)
    stream = router.stream(total, max_costs=[2e-4, 2e-3])
    prices = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
    deployments = [
        {
            "model_name": name,
            "litellm_params": {"model": f"openai/stub-{name}", "api_key": "none", **prices, **told},
        }
        for name in ("large", "small")
    ]
    llm = litellm.Router(model_list=deployments, num_retries=0)
    strategy = SkrouteStrategy(llm, stream, lambda messages: [[len(messages[0]["content"]) / 100]])
    llm.set_custom_routing_strategy(strategy)
    # LiteLLM keeps one callback of each class for the whole process.
    litellm.logging_callback_manager._reset_all_callbacks()
    litellm.callbacks = [strategy]
    return llm, stream, strategy


def ask(llm, length):
    return asyncio.run(asked(llm, [{"role": "user", "content": "x" * length}]))


async def asked(llm, messages):
    try:
        return await llm.acompletion(model="small", messages=messages)
    finally:
        # Callbacks run beside the answer.
        (strategy,) = litellm.callbacks
        for _ in range(100):
            await asyncio.sleep(0.1)
            if not strategy.open:
                break


def test_calls_are_routed_and_booked():
    llm, stream, strategy = setting(1.0, mock_response="an answer")
    easy, hard = ask(llm, 5), ask(llm, 95)
    assert (easy.model, hard.model) == ("stub-small", "stub-large")
    books = stream.books()
    usage = [answer.usage for answer in (easy, hard)]
    paid = sum(1e-6 * one.prompt_tokens + 2e-6 * one.completion_tokens for one in usage)
    assert books.n_committed == 2 and books.reserved == 0 and not strategy.open
    assert books.spent == pytest.approx(paid)


def test_a_failed_call_is_refunded_and_an_empty_purse_raises():
    llm, stream, _ = setting(1.0, mock_response="litellm.RateLimitError")
    with pytest.raises(litellm.RateLimitError):
        ask(llm, 1)
    assert stream.books().spent == 0 and stream.books().n_open == 0
    llm, stream, _ = setting(3e-4, mock_response="an answer")
    # Another worker's call is under way.
    stream.route([[0.01]])
    with pytest.raises(BudgetExhaustedError):
        ask(llm, 1)


def test_every_choice_needs_a_deployment():
    from litellm_strategy import SkrouteStrategy

    llm, stream, _ = setting(1.0)
    stream.router.choices_ = ["small", "huge"]
    with pytest.raises(ValueError, match="No deployment has the model_name 'huge'"):
        SkrouteStrategy(llm, stream, None)
