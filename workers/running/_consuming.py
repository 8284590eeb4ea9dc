"""Consume the messages of one entity without sessions: receive, call handlers, settle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.workers.declaring._handlers import EntityPlan, HandlerPlan
from sbredis.workers.declaring._outcomes import Complete, Outcome
from sbredis.workers.running._calls import UNCHANGED, Call, Place
from sbredis.workers.running._handling import Handling
from sbredis.workers.running._settling import Settlements

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusReceiver

__all__ = ["Consumer"]

_log = logging.getLogger("sbredis.worker")


class Consumer:
    """The consumer of one entity.

    It asks for as many messages as it may start handlers, so nothing waits here. A finished handler makes room at
    once; its settlement does not occupy the room. But nothing new starts while too many settlements are unanswered.
    """

    def __init__(
        self, plan: EntityPlan, handling: Handling, receiver: ServiceBusReceiver, settlements: Settlements
    ) -> None:
        self._plan = plan
        self._handling = handling
        self._receiver = receiver
        self._settlements = settlements
        settlements.when_settled = self._settled
        self._most = plan.settings.max_concurrent_calls
        self._place = Place(plan.source.path, receiver, settlements)
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._running: dict[asyncio.Task[Any], Call] = {}

    @property
    def room(self) -> int:
        """The number of handlers that may start now."""
        if self._settlements.unacknowledged > self._most:
            return 0
        return self._most - len(self._running)

    @property
    def calls(self) -> Sequence[Call]:
        """The calls that are running."""
        return list(self._running.values())

    def _settled(self) -> None:
        if self.room > 0:
            self._room.set()

    async def consume(self) -> None:
        """Receive messages and start handlers until cancelled. Errors of the receiver reach the caller."""
        while True:
            while self.room <= 0:
                self._room.clear()
                await self._room.wait()
            for message in await self._receiver.receive_messages(self.room, 60, gather=False):
                self._begin(message)

    def _begin(self, message: ServiceBusReceivedMessage) -> None:
        chosen = self._handling.choose(message)
        if isinstance(chosen, HandlerPlan):
            call = Call(self._place, chosen, (message,))
            task = self._loop.create_task(self._run(call))
            self._running[task] = call
            task.add_done_callback(self._ended)
        else:
            self._settlements.settle_soon(Call(self._place, self._plan.handlers[0], (message,)), chosen)

    async def _run(self, call: Call) -> Outcome | None:
        return await self._handling.outcome_of(call)

    def _ended(self, task: asyncio.Task[Outcome | None]) -> None:
        call = self._running.pop(task)
        if self._settlements.unacknowledged <= self._most:
            self._room.set()
        if task.cancelled() or call.dropped:
            return
        error = task.exception()
        if error is not None:
            _log.error("%s ended in a way that was not expected", call.handler.name, exc_info=error)
            return
        outcome = task.result()
        if outcome is None:
            return
        if type(outcome) is Complete and call.sends is None and call.state is UNCHANGED and call.once is None:
            self._settlements.complete_soon(call.message)
        else:
            self._settlements.settle_soon(call, outcome)

    async def finish(self, seconds: float) -> None:
        """Let the running handlers finish. Cancel the rest, and give their messages back uncounted."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=seconds)
        left = dict(self._running)
        for task, call in left.items():
            call.dropped = True
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=5)
            await self._settlements.release(
                [each for call in left.values() for each in call.messages], interrupted=True
            )
        try:
            await self._settlements.all_settled()
        except ServiceBusError as error:
            _log.warning("%s: %s", self._plan.source.path, error)
