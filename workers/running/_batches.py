"""Consume the messages of one entity in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sbredis.model import ServiceBusReceivedMessage
from sbredis.workers.declaring._handlers import EntityPlan, HandlerPlan
from sbredis.workers.declaring._outcomes import Complete, DeadLetter, Outcome
from sbredis.workers.running._calls import Call, Place
from sbredis.workers.running._consuming import Running
from sbredis.workers.running._handling import Handling
from sbredis.workers.running._injecting import decoded
from sbredis.workers.running._settling import Settlements
from sbredis.workers.running._time import Time

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusReceiver

__all__ = ["BatchConsumer", "calls_of", "filled", "settle_parts"]


async def filled(
    receiver: ServiceBusReceiver, most: int, first_wait: float, wait: float, time: Time
) -> list[ServiceBusReceivedMessage]:
    """Receive a batch: wait for its first message, and then until it is full or has waited long enough."""
    found = await _first(receiver, most, first_wait, time)
    ends = time.now() + wait
    try:
        while found and len(found) < most and (left := ends - time.now()) > 0 and not time.hurried:
            found += await receiver.receive_messages(most - len(found), time.patience(left), gather=False)
    except BaseException:
        for message in found:
            await receiver.release_message(message)
        raise
    return found


async def _first(receiver: ServiceBusReceiver, most: int, wait: float, time: Time) -> list[ServiceBusReceivedMessage]:
    ends = time.now() + wait
    while True:
        found = await receiver.receive_messages(most, time.patience(ends - time.now()), gather=False)
        if found or time.hurried or time.now() >= ends:
            return found


def calls_of(
    messages: Sequence[ServiceBusReceivedMessage], handling: Handling, place: Place, plan: EntityPlan
) -> tuple[list[Call], list[tuple[Call, Outcome]]]:
    """Return the calls for a batch, one for each handler; and the messages that no handler gets, with outcomes.

    A body that does not decode is dead-lettered alone.
    """
    place.counts.received += len(messages)
    by_handler: dict[int, tuple[HandlerPlan, list[ServiceBusReceivedMessage]]] = {}
    others: list[tuple[Call, Outcome]] = []
    for message in messages:
        chosen = handling.choose(message)
        if isinstance(chosen, HandlerPlan):
            by_handler.setdefault(id(chosen), (chosen, []))[1].append(message)
        else:
            others.append((Call(place, plan.handlers[0], (message,)), chosen))
    calls: list[Call] = []
    for handler, own in by_handler.values():
        body = handler.signature.body
        fit: list[ServiceBusReceivedMessage] = []
        bodies: list[object] = []
        for message in own:
            try:
                bodies.append(None if body is None else decoded(message, body.type))
                fit.append(message)
            except DeadLetter as outcome:
                others.append((Call(place, handler, (message,)), handling.unfit(message, outcome)))
        if fit:
            call = Call(place, handler, fit)
            call.bodies = bodies
            calls.append(call)
    return calls, others


async def settle_parts(
    settlements: Settlements, call: Call, outcomes: Sequence[Outcome | None]
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
        works.append(settlements.settle_reporting(call.part(done, with_sends=True), Complete()))
    return await asyncio.gather(*works)


class BatchConsumer(Running):
    """The consumer of one entity whose handlers take batches."""

    def __init__(self, plan: EntityPlan, handling: Handling, settlements: Settlements) -> None:
        super().__init__(plan, handling, settlements)
        self._size = max(handler.settings.batch or 1 for handler in plan.handlers)
        self._wait = min(handler.settings.batch_wait for handler in plan.handlers)

    async def consume(self) -> None:
        """Receive batches and start handlers until cancelled. Errors of the receiver reach the caller."""
        while True:
            await self.room_for_one()
            messages = await filled(self.place.receiver, self._size, 60, self._wait, self.handling.time)
            if self.gates:
                messages = self.admitted(messages, self._size)
                if not messages:
                    continue
            calls, others = calls_of(messages, self.handling, self.place, self.plan)
            for call, outcome in others:
                self.settlements.settle_soon(call, outcome)
            for call in calls:
                self.start(call, self._run(call))

    async def _run(self, call: Call) -> None:
        outcomes = await self.handling.outcomes_of(call)
        if call.cut_off and not (call.dropped or call.settled):
            call.settled = all(isinstance(outcome, Complete) for outcome in outcomes)
            call.dropped = not call.settled
        if not call.dropped:  # messages whose locks were lost fail to be settled, each by itself
            self.settlements.start(settle_parts(self.settlements, call, outcomes), len(call.messages))
