"""Consume the messages of one entity without sessions: receive, call handlers, settle."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

from sbredis.model import ServiceBusReceivedMessage
from sbredis.workers.declaring._handlers import EntityPlan, HandlerPlan
from sbredis.workers.declaring._outcomes import Complete
from sbredis.workers.running._calls import UNCHANGED, Call
from sbredis.workers.running._handling import Handling
from sbredis.workers.running._locks import Renewable, snapshot
from sbredis.workers.running._prefetching import Prefetching
from sbredis.workers.running._settling import Settlements

__all__ = ["CANCELLING", "Consumer", "Running"]

_log = logging.getLogger("sbredis.worker")
CANCELLING = 5.0
"""The seconds that cancelled handlers get to end."""


@runtime_checkable
class Gate(Protocol):
    """Middleware that says how many handlers may start."""

    def room(self, now: float) -> int:
        """Return the number of handlers that may start now."""
        ...

    def wait(self, now: float) -> float | None:
        """Return the seconds after which a handler may start; ``None`` if time alone does not matter."""
        ...


class Running:
    """The calls of one entity that are running, and the room for more.

    A finished handler makes room at once; its settlement does not occupy the room. But nothing new starts while more
    settlements are unanswered than handlers may run.
    """

    def __init__(self, plan: EntityPlan, handling: Handling, settlements: Settlements) -> None:
        self.plan = plan
        self.handling = handling
        self.settlements = settlements
        self.place = settlements.place
        self._most = plan.settings.max_concurrent_calls
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._running: dict[asyncio.Task[None], Call] = {}
        batches = max(handler.settings.batch or 1 for handler in plan.handlers)
        self._most_unanswered = self._most * batches
        settlements.when_settled = self._make_room
        self._gates = [each for handler in plan.handlers for each in handler.middleware if isinstance(each, Gate)]

    @property
    def room(self) -> int:
        """The number of handlers that may start now."""
        if self.settlements.unacknowledged > self._most_unanswered:
            return 0
        room = self._most - len(self._running)
        if self._gates:
            now = self._loop.time()
            room = min(room, *(gate.room(now) for gate in self._gates))
        return room

    async def room_for_one(self) -> int:
        """Wait until a handler may start. Return how many may start."""
        while (room := self.room) <= 0:
            self._room.clear()
            now = self._loop.time()
            waits = [wait for gate in self._gates if (wait := gate.wait(now)) is not None]
            with suppress(TimeoutError):
                async with asyncio.timeout(max(waits, default=None)):
                    await self._room.wait()
        return room

    def start(self, call: Call, work: Coroutine[Any, Any, None]) -> None:
        """Run a call in a task of its own."""
        task = self._loop.create_task(work)
        self._running[task] = call
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        call = self._running.pop(task)
        self._make_room()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s ended in a way that was not expected", call.handler.name, exc_info=error)

    def _make_room(self) -> None:
        self._room.set()  # the consumer counts again, and asks its gates when to count next

    # -- locks ---------------------------------------------------------------------------------------------------------

    def renewables(self) -> Iterable[Renewable]:
        """Return the messages that handlers work on now. Called in another thread."""
        limit = self.plan.settings.max_auto_lock_renewal_duration
        ends = -math.inf if limit is None else time.monotonic() - limit
        calls = [call for call in snapshot(self._running.values()) if call.began > ends]
        return [message for call in calls for message in call.messages]

    def lost(self, renewable: Renewable) -> bool:
        """End the call of a message whose lock was lost: cancel a coroutine, kill a process, and tell a thread."""
        for task, call in self._running.items():
            if any(message is renewable for message in call.messages):
                call.lock_lost = True
                self.place.counts.locks_lost += 1
                if call.handler.execution != "thread" and call.handler.settings.batch is None:
                    call.dropped = True
                    task.cancel()
                return True
        return False

    # -- the end -------------------------------------------------------------------------------------------------------

    async def finish(self, seconds: float) -> None:
        """Let the running handlers finish. Cancel the rest, and give their messages back uncounted."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=seconds)
        left = dict(self._running)
        for task, call in left.items():
            call.dropped = True
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=CANCELLING)
            messages = [message for call in left.values() if not call.settled for message in call.messages]
            await self.settlements.release(messages, interrupted=True)
        await self.settlements.all_settled()


class Consumer(Running):
    """The consumer of one entity. It asks for as many messages as handlers may start, so no message waits here.

    The receiver fetches further messages ahead if the handlers are fast.
    """

    def __init__(
        self, plan: EntityPlan, handling: Handling, settlements: Settlements, prefetching: Prefetching
    ) -> None:
        super().__init__(plan, handling, settlements)
        self._prefetching = prefetching

    async def consume(self) -> None:
        """Receive messages and start handlers until cancelled. Errors of the receiver reach the caller."""
        while True:
            room = await self.room_for_one()
            self._prefetch(self._prefetching.size)
            messages = await self.place.receiver.receive_messages(room, 60, gather=False)
            self.place.counts.received += len(messages)
            for message in messages:
                self._begin(message)

    def _prefetch(self, size: int) -> None:
        receiver = self.place.receiver
        if abs(size - receiver.prefetch_count) * 4 > receiver.prefetch_count:  # not for every small change
            receiver.prefetch_count = size
        if (warning := self._prefetching.warning()) is not None:
            _log.warning("%s: %s", self.plan.source.path, warning)

    async def finish(self, seconds: float) -> None:
        """Give back what was fetched ahead, let the running handlers finish, and give the rest back uncounted."""
        self.place.receiver.prefetch_count = 0
        await super().finish(seconds)

    def _begin(self, message: ServiceBusReceivedMessage) -> None:
        chosen = self.handling.choose(message)
        if isinstance(chosen, HandlerPlan):
            call = Call(self.place, chosen, (message,))
            self.start(call, self._run(call))
        else:
            self.settlements.settle_soon(Call(self.place, self.plan.handlers[0], (message,)), chosen)

    async def _run(self, call: Call) -> None:
        outcome = await self.handling.outcome_of(call)
        if call.lock_lost:
            _log.warning("%s: the result of a handler is dropped, because its lock was lost", call.entity)
            return
        if outcome is None or call.dropped:
            return
        if type(outcome) is Complete and call.sends is None and call.state is UNCHANGED and call.once is None:
            self.settlements.complete_soon(call.message)
        else:
            self.settlements.settle_soon(call, outcome)
