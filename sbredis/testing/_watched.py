"""The parts of a worker that a test replaces: they tell what happens, and their time is the clock of the bus."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sbredis.model import ServiceBusReceivedMessage, hold_of
from sbredis.testing._clock import MovableClock
from sbredis.testing._records import Records
from sbredis.workers import Abandon, Outcome
from sbredis.workers.declaring._handlers import EntityPlan, HandlerPlan
from sbredis.workers.running._calls import CallOrigin, HandlerCall
from sbredis.workers.running._handling import Handling
from sbredis.workers.running._injecting import Scopes
from sbredis.workers.running._settling import CallSettler
from sbredis.workers.schedules._time import Time

__all__ = ["BusTime", "WatchedHandling", "WatchedSettlements"]

_PATIENCE = 0.02
"""The longest wait for messages, in seconds of real time, before a receiver looks whether it shall still wait."""


class BusTime(Time):
    """The time of a worker that runs on a bus: the clock of the bus."""

    def __init__(self, clock: MovableClock) -> None:
        self._clock = clock
        self._hurrying = 0
        self._waits: dict[object, float] = {}
        """The ends of the waits that are under way."""
        self._by_day: dict[asyncio.Task[Any] | None, datetime | None] = {}
        """The tasks that wait for times of day, each with the time for which it waits now."""

    def now(self) -> float:
        """Return the time of the bus in seconds."""
        return self._clock.now()

    def utc(self) -> datetime:
        """Return the time of the bus."""
        return datetime.fromtimestamp(self._clock.utc(), UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait until the bus is ahead by a number of seconds."""
        await self.wait(asyncio.Event(), seconds)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> None:
        """Wait until an event is set, or until the bus is ahead by a number of seconds."""
        if event.is_set():
            return
        moved, key = asyncio.Event(), object()
        ends = None if seconds is None else self.now() + seconds
        if ends is not None and self._by_day.get(asyncio.current_task()) is None:
            self._waits[key] = ends
        unwatch = self._clock.when_moved(moved.set)
        set_ = asyncio.ensure_future(event.wait())
        try:
            while not set_.done() and (ends is None or self.now() < ends):
                moved.clear()
                turned = asyncio.ensure_future(moved.wait())
                timeout = None if ends is None else ends - self.now()
                try:
                    await asyncio.wait((set_, turned), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    turned.cancel()
        finally:
            set_.cancel()
            unwatch()
            self._waits.pop(key, None)

    async def until(self, when: datetime, seconds: float) -> None:
        """Wait until the bus has reached a time of day, or for a minute."""
        task = asyncio.current_task()
        self._by_day[task] = when
        try:
            await super().until(when, seconds)
        finally:
            self._by_day[task] = None

    @property
    def ticking(self) -> bool:
        """Whether the time has come for which a task waits, and the task does not wait again yet."""
        self._by_day = {task: when for task, when in self._by_day.items() if task is not None and not task.done()}
        return any(when is None or when <= self.utc() for when in self._by_day.values())

    @property
    def day_tasks(self) -> int:
        """The number of tasks that have waited for times of day."""
        return len(self._by_day)

    @property
    def next_wait(self) -> float | None:
        """The seconds until the first wait ends that does not wait for a time of day; ``None`` if there is none."""
        now = self.now()
        return min((end - now for end in self._waits.values() if end > now), default=None)

    @property
    def hurried(self) -> bool:
        """Whether a test waits until the worker is idle."""
        return self._hurrying > 0

    @contextmanager
    def hurry(self) -> Generator[None]:
        """Let nothing wait for further messages while the block runs."""
        self._hurrying += 1
        try:
            yield
        finally:
            self._hurrying -= 1

    def patience(self, seconds: float) -> float:
        """Return for how many of these seconds a receiver waits for messages before it looks at the time again."""
        return max(0.0, min(seconds, _PATIENCE))


class WatchedHandling(Handling):
    """Calls handlers, and records their calls. Delays have no jitter."""

    def __init__(self, records: Records, plan: EntityPlan, **given: Any) -> None:
        super().__init__(plan, **given, draw=lambda: 1.0)
        self._records = records

    def choose(self, message: ServiceBusReceivedMessage) -> HandlerPlan | Outcome:
        """Return the handler that takes a message, or the outcome of a message that no handler takes."""
        self._records.received(message)
        return super().choose(message)

    async def outcomes_of(self, call: HandlerCall, scopes: Scopes | None = None) -> Sequence[Outcome | None]:
        """Run a call, and return the outcome of each message."""
        handling = super().outcomes_of(call, scopes)
        self._records.began(call, handling)
        try:
            outcomes = await handling
        except BaseException:
            self._records.cancelled(call)
            raise
        self._records.ended(call, outcomes, dropped=call.state.is_dropped)
        return outcomes

    def judged(self, call: HandlerCall, error: BaseException) -> list[Outcome | None]:
        """Return what becomes of each message, and record the error."""
        outcomes = super().judged(call, error)  # a cancellation is raised again here
        self._records.raised(call, error)
        return outcomes


class WatchedSettlements(CallSettler):
    """Settles messages, and records their outcomes."""

    def __init__(self, records: Records, time: Time, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._records = records
        self._time = time

    async def settle(self, call: HandlerCall, outcome: Outcome) -> Outcome:
        """Settle the messages of a call."""
        try:
            return await super().settle(call, outcome)
        finally:
            self._records.finished(call.messages)

    async def complete(self, batch: list[ServiceBusReceivedMessage]) -> None:
        """Complete messages together."""
        try:
            await super().complete(batch)
        finally:
            self._records.finished(batch)

    async def release(
        self,
        messages: Sequence[ServiceBusReceivedMessage],
        *,
        origin: CallOrigin | None = None,
        interrupted: bool = False,
    ) -> None:
        """Give messages back, and record those that no handler has begun."""
        try:
            await super().release(messages, origin=origin, interrupted=interrupted)
        finally:
            self._records.given_back(messages)

    def noted(self, messages: Sequence[ServiceBusReceivedMessage], outcome: Outcome) -> None:
        """Count and record messages that are settled."""
        super().noted(messages, outcome)
        if isinstance(outcome, Abandon) and outcome.delay:
            for message in messages:  # there may be none
                if (session := hold_of(message).session) is not None:
                    self._records.held_back[self.entity, session] = self._time.now() + outcome.delay
        self._records.settled(self.entity, messages, outcome)

    def failed(self, messages: Sequence[ServiceBusReceivedMessage], error: Exception) -> None:
        """Count, report and record messages that could not be settled."""
        super().failed(messages, error)
        self._records.not_settled(self.entity, messages, error)
