"""Consume the messages of one entity in batches."""

from __future__ import annotations

import asyncio
import logging
import time as clock
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from sbredis.model import ServiceBusReceivedMessage
from sbredis.workers.declaring._handlers import EntityPlan, HandlerPlan
from sbredis.workers.declaring._outcomes import Complete, DeadLetter, Outcome
from sbredis.workers.included._breaker import CircuitBreaker
from sbredis.workers.included._logging import Logging
from sbredis.workers.running._call_states import CallTask
from sbredis.workers.running._calls import CallOrigin, HandlerCall
from sbredis.workers.running._consuming import CANCELLING, RunningCalls
from sbredis.workers.running._handling import Handling
from sbredis.workers.running._injecting import decoded
from sbredis.workers.running._locks import Renewable, snapshot
from sbredis.workers.running._settling import CallSettler
from sbredis.workers.running._suspects import Alone
from sbredis.workers.schedules._time import Time

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusReceiver

__all__ = ["BatchConsumer", "BatchSize", "call_of", "filled", "settle_parts"]

_log = logging.getLogger("sbredis.worker")
_FITTING: Final = 64
"""The number of batches after which a larger size is tried."""


class BatchSize:
    """The largest number of messages in a batch of one entity.

    It is what the handlers say, until a batch and what its handler has sent do not fit into one transaction. How much a
    handler sends is not known before. So the size is then halved, and the messages come again in smaller batches. A
    single message may have been the cause. So after a number of batches that did fit, the size is doubled again, and
    this number is doubled each time that the larger size fails.
    """

    def __init__(self, plan: EntityPlan) -> None:
        self._entity = plan.source.path
        self.most = self._wanted = plan.handlers[0].settings.batch or 1
        self._patience = self._left = _FITTING
        self._trying = False
        """Whether the size was doubled, and no batch has failed since."""

    def adapt(self, call: HandlerCall) -> None:
        """Change the size after a call, if it did not fit into a transaction, or if many calls did."""
        size = len(call.messages)
        if not call.additions.overfull:
            if self.most < self._wanted:
                self._left -= 1
                if self._left == 0:
                    self._resize(min(self.most * 2, self._wanted), trying=True)
        elif 0 < size // 2 < self.most:
            if self._trying:
                self._patience *= 2
            self._resize(size // 2, trying=False)
            _log.warning(
                "%s: a batch of %d messages and what %s has sent do not fit into one transaction, so a batch has up to "
                "%d messages for a while: set batch=%d, or send less",
                *(self._entity, size, call.handler.name, self.most, self.most),
            )

    def _resize(self, most: int, *, trying: bool) -> None:
        self.most, self._trying, self._left = most, trying, self._patience


def _goes_on() -> bool:
    return True


async def filled(
    receiver: ServiceBusReceiver,
    most: int,
    first_wait: float,
    wait: float,
    time: Time,
    *,
    found: list[ServiceBusReceivedMessage] | None = None,
    goes_on: Callable[[], bool] = _goes_on,
) -> list[ServiceBusReceivedMessage]:
    """Receive a batch: wait for its first message, and then until it is full or has waited long enough.

    The messages are added to ``found`` as they come. A wait that was ended begins again while ``goes_on`` says so.
    """
    found = [] if found is None else found
    found += await _first(receiver, most, first_wait, time, goes_on)
    ends = time.now() + wait
    try:
        while found and len(found) < most and (left := ends - time.now()) > 0 and not time.hurried and goes_on():
            found += await receiver.receive_messages(most - len(found), time.patience(left), gather=False)
    except BaseException:
        for message in found:
            await receiver.release_message(message)
        raise
    return found


async def _first(
    receiver: ServiceBusReceiver, most: int, wait: float, time: Time, goes_on: Callable[[], bool]
) -> list[ServiceBusReceivedMessage]:
    ends = time.now() + wait
    while True:
        found = await receiver.receive_messages(most, time.patience(ends - time.now()), gather=False)
        if found or time.hurried or time.now() >= ends or not goes_on():
            return found


def call_of(
    handler: HandlerPlan, messages: Sequence[ServiceBusReceivedMessage], handling: Handling, origin: CallOrigin
) -> tuple[HandlerCall | None, list[tuple[HandlerCall, Outcome]]]:
    """Return the call of a handler, and the messages whose bodies do not decode, with their outcomes.

    There is no call if no body decodes.
    """
    body = handler.signature.body
    fit: list[ServiceBusReceivedMessage] = []
    bodies: list[object] = []
    others: list[tuple[HandlerCall, Outcome]] = []
    for message in messages:
        try:
            bodies.append(None if body is None else decoded(message, body.type))
            fit.append(message)
        except DeadLetter as outcome:
            others.append((HandlerCall(origin, handler, (message,)), handling.unfit(message, outcome)))
    if not fit:
        return None, others
    call = HandlerCall(origin, handler, fit)
    call.bodies = bodies
    return call, others


def _may_send(handler: HandlerPlan) -> bool:
    """Return whether a handler or its middleware may send something in the transaction that completes its messages."""
    silent = all(isinstance(each, (CircuitBreaker, Logging)) for each in handler.middleware)
    return handler.signature.wants_context or not silent


def _calls_of(
    messages: Sequence[ServiceBusReceivedMessage], handling: Handling, origin: CallOrigin, plan: EntityPlan
) -> tuple[list[HandlerCall], list[tuple[HandlerCall, Outcome]]]:
    """Return the calls for a batch, and the messages that no handler gets, with outcomes.

    There is a call for each handler and, if the handler may send something, for each partition: a transaction settles
    messages of one partition.
    """
    origin.counts.received += len(messages)
    senders = {id(handler) for handler in plan.handlers if _may_send(handler)}
    groups: dict[tuple[int, int], tuple[HandlerPlan, list[ServiceBusReceivedMessage]]] = {}
    others: list[tuple[HandlerCall, Outcome]] = []
    for message in messages:
        chosen = handling.choose(message)
        if isinstance(chosen, HandlerPlan):
            partition = message.sequence_number >> 48 if id(chosen) in senders else 0
            groups.setdefault((id(chosen), partition), (chosen, []))[1].append(message)
        else:
            others.append((HandlerCall(origin, plan.handlers[0], (message,)), chosen))
    calls: list[HandlerCall] = []
    for handler, own in groups.values():
        call, unfit = call_of(handler, own, handling, origin)
        others += unfit
        if call is not None:
            calls.append(call)
    return calls, others


async def settle_parts(
    settlements: CallSettler, call: HandlerCall, outcomes: Sequence[Outcome | None]
) -> list[Outcome | None]:
    """Settle the messages of a batch, each by its own outcome. Errors are reported.

    Returns the outcomes that the messages got, in any order; ``None`` for those that could not be settled.
    """
    done = [message for message, outcome in zip(call.messages, outcomes, strict=True) if isinstance(outcome, Complete)]
    works = [
        settlements.settle_reporting(call.part((message,)), outcome)
        for message, outcome in zip(call.messages, outcomes, strict=True)
        if outcome is not None and not isinstance(outcome, Complete)
    ]
    if done:
        works.append(settlements.settle_reporting(call.part(done, with_additions=True), Complete()))
    return await asyncio.gather(*works)


class BatchConsumer(RunningCalls):
    """The consumer of one entity whose handlers take batches.

    Messages that were received together may need several calls: one for each handler, and for each partition. Calls for
    which there is no room yet wait, and their locks are renewed.
    """

    def __init__(
        self, plan: EntityPlan, handling: Handling, settlements: CallSettler, alone: Alone | None = None
    ) -> None:
        super().__init__(plan, handling, settlements, alone)
        self._size = BatchSize(plan)
        self._wait = plan.handlers[0].settings.batch_wait
        self._ready: deque[HandlerCall] = deque()
        """The calls that wait for room."""
        self._filling: list[ServiceBusReceivedMessage] = []
        """The messages of the batch that is being received."""

    async def consume(self) -> None:
        """Receive batches and start handlers until cancelled. Errors of the receiver reach the caller."""
        while True:
            await self.take_suspects()
            await self.room_for_one()
            most = self.handling.limit.at_most(self._size.most)
            receiver, time = self.origin.receiver, self.handling.time
            messages: list[ServiceBusReceivedMessage] = []
            self._filling = messages
            await filled(receiver, most, 60, self._wait, time, found=messages, goes_on=self._goes_on)
            self._filling = []
            messages = await self.innocent(messages)
            if self.gates:
                messages = self.admitted(messages, self._size.most)
            if not self.alone.lets_begin(self):
                self.give_back(messages)
                continue
            messages = self.begun(messages)
            if messages:
                self._ready.extend(self._calls_for(messages))
                await self._start_ready()

    def start_messages(self, messages: list[ServiceBusReceivedMessage]) -> None:
        """Start the handlers of messages, for which there is room."""
        for call in self._calls_for(messages):
            call.began = clock.monotonic()
            self.start(call, self._run(call))

    def _calls_for(self, messages: list[ServiceBusReceivedMessage]) -> list[HandlerCall]:
        """Return the calls of the handlers that take messages. Settle the messages that no handler takes."""
        calls, others = _calls_of(messages, self.handling, self.origin, self.plan)
        for call, outcome in others:
            self.settlements.settle_soon(call, outcome)
        return calls

    @property
    def held(self) -> int:
        return super().held + len(self._ready) + len(self._filling)

    def _goes_on(self) -> bool:
        """Return whether to wait for more messages: no suspects are to be taken, here or by another consumer."""
        return self.alone.lets_begin(self) and not self._taking.suspects_wait

    async def _start_ready(self) -> None:
        """Start the calls that wait, as room comes. If a gate closes meanwhile, give their messages back."""
        while self._ready:
            await self.free_slot()
            if self.gates and self.gates.room(self.handling.time.now(), 1) <= 0:
                self.give_back(self._taken())
                return
            call = self._ready.popleft()
            call.began = clock.monotonic()
            self.start(call, self._run(call))

    def _taken(self) -> list[ServiceBusReceivedMessage]:
        """Return the messages of the calls that wait, and forget these calls."""
        messages = [message for call in self._ready for message in call.messages]
        self._ready.clear()
        return messages

    async def _run(self, call: HandlerCall) -> None:
        ended = [message for message in call.messages if self.has_ended(message)]
        if ended:
            self._leave_out(call, ended)
        if not call.messages:
            return
        self.handling.note_beginning(self.origin, call.messages)
        outcomes = await self.handling.outcomes_of(call)
        if call.additions.overfull:  # before its messages come again
            self._size.adapt(call)
        if call.end(outcomes) is CallTask.SETTLE:  # messages whose locks were lost fail to be settled, each by itself
            self.settlements.start(self._settle(call, outcomes), len(call.messages))
        elif call.state.is_free:
            self._size.adapt(call)

    async def _settle(self, call: HandlerCall, outcomes: Sequence[Outcome | None]) -> None:
        await settle_parts(self.settlements, call, outcomes)
        self._size.adapt(call)

    def renewables(self) -> Iterable[Renewable]:
        """Return the messages that handlers work on now, or will work on soon. Called in another thread."""
        waiting = snapshot(self._ready)
        return [*(message for call in waiting for message in call.messages), *super().renewables()]

    def lost(self, renewable: Renewable) -> bool:
        """End the work on a message whose lock was lost. A batch that waits is called without it."""
        for call in self._ready:
            for message in call.messages:
                if message is renewable:
                    self._leave_out(call, [message])
                    if not call.messages:
                        self._ready.remove(call)
                    return True
        return super().lost(renewable)

    def _leave_out(self, call: HandlerCall, lost: Sequence[ServiceBusReceivedMessage]) -> None:
        """Give messages of a call back that has not begun, because their locks are lost. The others stay in it."""
        self.origin.counts.locks_lost += len(lost)
        call.leave_out(lost)
        self.give_back(lost)

    async def finish(self, seconds: float, cancelling: float = CANCELLING) -> None:
        """Give back the messages of calls that wait, let the running handlers finish, and give the rest back."""
        await self.settlements.release(self._taken())
        await super().finish(seconds, cancelling)
