"""Consume the messages of an entity with sessions: accept sessions, and handle the messages of each in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from sbredis.exceptions import SessionLockLostError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.workers.declaring._handlers import EntityPlan, HandlerPlan
from sbredis.workers.declaring._outcomes import Abandon, Outcome
from sbredis.workers.running._batches import calls_of, filled, settle_parts
from sbredis.workers.running._calls import Call
from sbredis.workers.running._consuming import CANCELLING
from sbredis.workers.running._handling import Handling
from sbredis.workers.running._injecting import Scopes
from sbredis.workers.running._locks import Renewable, snapshot
from sbredis.workers.running._settling import Settlements

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusClient, ServiceBusSession, ServiceBusSessionReceiver

__all__ = ["SessionConsumer"]

_log = logging.getLogger("sbredis.worker")
_AHEAD: Final = 10
"""The number of messages of a session that are received with one call."""
SettlementsOf = Callable[["ServiceBusSessionReceiver"], Settlements]


class SessionConsumer:
    """The consumer of one entity with sessions.

    Each session is held by a task of its own, which handles one message after the other: the next call waits until the
    outcome of the one before it is acknowledged. The task gives the session back when no message has come for a while,
    when it has held the session for long enough, and after a message that comes again: nothing may overtake it.
    """

    def __init__(
        self, plan: EntityPlan, handling: Handling, client: ServiceBusClient, settlements_of: SettlementsOf, app: Scopes
    ) -> None:
        self._plan = plan
        self._handling = handling
        self._client = client
        self._settlements_of = settlements_of
        self._app = app
        self._room = asyncio.Event()
        self._held: dict[asyncio.Task[None], Call | None] = {}
        self._sessions: dict[asyncio.Task[None], ServiceBusSession] = {}
        self._stopping = False

    async def consume(self) -> None:
        """Accept sessions until cancelled. Errors of accepting reach the caller."""
        source = self._plan.source
        names = (source.name,) if source.topic is None else (source.topic, source.name)
        while True:
            while len(self._held) >= self._plan.settings.max_concurrent_calls:
                self._room.clear()
                await self._room.wait()
            receiver = await self._client.accept_next_session(*names, max_wait_time=60)
            if receiver is not None:
                task = asyncio.get_running_loop().create_task(self._hold(receiver))
                self._held[task] = None
                self._sessions[task] = receiver.session
                task.add_done_callback(self._given_back)

    def _given_back(self, task: asyncio.Task[None]) -> None:
        del self._held[task], self._sessions[task]
        self._room.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("%s: a session was given back after an error: %s", self._plan.source.path, error)

    async def _hold(self, receiver: ServiceBusSessionReceiver) -> None:
        task: Any = asyncio.current_task()
        settlements = self._settlements_of(receiver)
        scopes = self._app.inner("session")
        settings = self._plan.settings
        loop = asyncio.get_running_loop()
        ends, left = loop.time() + settings.max_session_time, settings.max_session_messages
        most = max(handler.settings.batch or _AHEAD for handler in self._plan.handlers)
        wait = min(handler.settings.batch_wait for handler in self._plan.handlers) if self._plan.in_batches else 0.0
        handle_all = self._handle_batch if self._plan.in_batches else self._handle_all
        try:
            while not self._stopping and loop.time() < ends and left != 0:
                wanted = most if left is None else min(most, left)
                messages = await filled(receiver, wanted, settings.session_idle_timeout, wait)
                if not messages or not await handle_all(task, settlements, messages, scopes, ends):
                    break
                left = None if left is None else left - len(messages)
        except SessionLockLostError as error:
            _log.warning("%s: %s", self._plan.source.path, error)
        except asyncio.CancelledError:
            call = self._held[task]
            if call is not None and not call.settled and not call.lock_lost:
                await settlements.release(call.messages, interrupted=True)
            raise
        finally:
            self._held[task] = None
            await receiver.close()
            await scopes.close()

    async def _handle_all(
        self,
        task: asyncio.Task[None],
        settlements: Settlements,
        messages: Sequence[ServiceBusReceivedMessage],
        scopes: Scopes,
        ends: float,
    ) -> bool:
        """Handle messages in their order. Return whether the session may be kept."""
        loop = asyncio.get_running_loop()
        settlements.place.counts.received += len(messages)
        for message in messages:
            if self._stopping or loop.time() >= ends:
                return False
            chosen = self._handling.choose(message)
            handler = chosen if isinstance(chosen, HandlerPlan) else self._plan.handlers[0]
            call = self._held[task] = Call(settlements.place, handler, (message,))
            outcome: Outcome | None
            if isinstance(chosen, Outcome):
                outcome = chosen
            else:
                outcome = await self._handling.outcome_of(call, scopes)
            if outcome is not None:
                outcome = await settlements.settle_reporting(call, outcome)
                if outcome is None or isinstance(outcome, Abandon):
                    return False
            self._held[task] = None
        return True

    async def _handle_batch(
        self,
        task: asyncio.Task[None],
        settlements: Settlements,
        messages: Sequence[ServiceBusReceivedMessage],
        scopes: Scopes,
        ends: float,
    ) -> bool:
        """Handle messages in batches. Return whether the session may be kept."""
        del ends
        calls, others = calls_of(messages, self._handling, settlements.place, self._plan)
        again = any(isinstance(outcome, Abandon) for _, outcome in others)
        for call, outcome in others:
            await settlements.settle_reporting(call, outcome)
        for call in calls:
            self._held[task] = call
            outcomes = await self._handling.outcomes_of(call, scopes)
            await settle_parts(settlements, call, outcomes)
            again = again or any(isinstance(outcome, Abandon) for outcome in outcomes)
        self._held[task] = None
        return not again

    # -- locks ---------------------------------------------------------------------------------------------------------

    def renewables(self) -> Iterable[Renewable]:
        """Return the sessions that are held. Called in another thread."""
        return snapshot(self._sessions.values())

    def lost(self, renewable: Renewable) -> bool:
        """End the work on a session whose lock was lost."""
        for task, session in self._sessions.items():
            if session is renewable:
                call = self._held[task]
                if call is not None:
                    call.lock_lost = call.dropped = True
                    call.place.counts.locks_lost += 1
                task.cancel()
                return True
        return False

    # -- the end -------------------------------------------------------------------------------------------------------

    async def finish(self, seconds: float) -> None:
        """Let the running handlers finish. Cancel the rest, and give their messages back uncounted."""
        self._stopping = True
        if self._held:
            await asyncio.wait(set(self._held), timeout=seconds)
        left = set(self._held)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=CANCELLING)
