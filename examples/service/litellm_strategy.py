"""LiteLLM's router by skroute: which deployment answers, from one total.

    strategy = SkrouteStrategy(router, stream, lambda messages: [features(messages)])
    router.set_custom_routing_strategy(strategy)
    litellm.callbacks = [strategy]

`stream` is ``BudgetRouter.stream(...)`` with a choice for each ``model_name`` of the deployments.
What a call can cost at most is reserved before it, LiteLLM's own count of its cost is committed
after it, and a call that failed is refunded; LiteLLM's retries are calls of their own.
"""

import asyncio

from litellm.integrations.custom_logger import CustomLogger
from litellm.types.router import CustomRoutingStrategyBase


class SkrouteStrategy(CustomLogger, CustomRoutingStrategyBase):
    """A routing strategy and the callback that books what it has chosen.

    Parameters
    ----------
    router : litellm.Router
        Each choice of the stream's router is the ``model_name`` of some of its deployments, of
        which the first is taken.
    stream : BudgetStream
        With `max_costs` of a call; any ledger.
    rows : callable
        From the messages of a request to one row of what the stream's router was fitted on.
    """

    def __init__(self, router, stream, rows):
        super().__init__()
        self.deployments = {one["model_name"]: one for one in reversed(router.model_list)}
        if missing := set(stream.router.choices_) - set(self.deployments):
            raise ValueError(f"No deployment has the model_name {sorted(missing)[0]!r}.")
        self.stream, self.rows, self.open = stream, rows, {}

    def get_available_deployment(
        self, model, messages=None, input=None, specific_deployment=False, request_kwargs=None
    ):
        """The deployment that answers; its most is reserved. An exhausted budget raises."""
        ticket = self.stream.route(self.rows(messages))
        self.open[ticket.id] = ticket
        if request_kwargs is not None:
            request_kwargs.setdefault("metadata", {})["skroute"] = ticket.id
        return self.deployments[ticket.name]

    async def async_get_available_deployment(self, *args, **kwargs):
        """As `get_available_deployment`, beside the event loop: a ledger may wait."""
        return await asyncio.to_thread(self.get_available_deployment, *args, **kwargs)

    def log_success_event(self, kwargs, response_obj, start_time, end_time):
        """Commit what LiteLLM says that the call has cost, or what was expected of it."""
        if (ticket := self._ticket(kwargs)) is not None:
            self.stream.commit(ticket, kwargs.get("response_cost") or None)

    def log_failure_event(self, kwargs, response_obj, start_time, end_time):
        """Refund: a provider charges nothing for what has failed."""
        if (ticket := self._ticket(kwargs)) is not None:
            self.stream.refund(ticket)

    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        """As `log_success_event`."""
        await asyncio.to_thread(self.log_success_event, kwargs, response_obj, start_time, end_time)

    async def async_log_failure_event(self, kwargs, response_obj, start_time, end_time):
        """As `log_failure_event`."""
        await asyncio.to_thread(self.log_failure_event, kwargs, response_obj, start_time, end_time)

    def _ticket(self, kwargs):
        metadata = (kwargs.get("litellm_params") or {}).get("metadata") or {}
        return self.open.pop(metadata.get("skroute"), None)
