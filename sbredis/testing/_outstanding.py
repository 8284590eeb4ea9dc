"""The work that is left for a worker on a bus: in the worker itself, and in the entities that it handles."""

from __future__ import annotations

import time
import types
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sbredis._counting import counted
from sbredis.client import deadline_of
from sbredis.engine import Awoken, CallId, Partition, Request, SidePrefix
from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusReceivedMessage, hold_of
from sbredis.testing._contents import BusContents
from sbredis.testing._records import Records, Working
from sbredis.testing._watched import BusTime
from sbredis.workers.running._runtime import Runtime
from sbredis.workers.running._serving import Service

if TYPE_CHECKING:
    from sbredis.client import Entity

__all__ = ["Outstanding", "outstanding", "paused_by"]

_SIDES: dict[str | None, SidePrefix] = {None: "", "$DeadLetterQueue": "d", "$Transfer/$DeadLetterQueue": "t"}
_SHOWN = 5
_Kind = Literal[
    "active",
    "active in the paused entity",
    "deferred",
    "delayed",
    "delayed with its session",
    "in work",
    "locked, and not settled by the handler that had it",
    "locked, but not by a handler of this worker",
    "scheduled",
]
_STATES: dict[str, _Kind] = {"a": "active", "f": "deferred", "s": "scheduled", "w": "delayed"}
_NOW: Container[_Kind] = ("active", "in work", "locked, but not by a handler of this worker")


@dataclass(slots=True)
class Outstanding:
    """The work that is left."""

    busy: bool = False
    """Whether work is left that the worker does without a move of the clock."""
    paused: bool = False
    """Whether messages are active in an entity that is paused until some later time."""
    later: bool = False
    """Whether work is left that begins when the clock has moved."""
    lines: list[str] = field(default_factory=list[str])
    entities: list[Entity] = field(default_factory=list["Entity"])
    """The entities in which something may become due."""
    waits: list[float] = field(default_factory=list[float])
    """The seconds until some other waits end."""

    def described(self) -> str:
        """Return the work that is left as lines of text."""
        return "".join(f"\n- {line}" for line in self.lines or ["nothing is outstanding"])

    async def next_due(self) -> float | None:
        """Return the seconds until something is due; ``None`` if nothing will be due."""

        def make(partition: Partition, call_id: CallId) -> Request[Awoken]:
            return partition.due(CallId("", 0, call_id.now))

        found = [wait + 0.001 for wait in self.waits]  # a millisecond is the unit of the partitions
        for entity in self.entities:
            for number in entity.numbers:
                awoken = await entity.partition_client(number).call("u", make, deadline_of(None))
                if awoken.due > 0:
                    found.append(awoken.due / 1000)
        return min(found, default=None)


async def outstanding(
    contents: BusContents, runtime: Runtime, records: Records, clock: BusTime, *, all_: bool
) -> Outstanding:
    """Return the work that is left. Without ``all_``, the entities are looked at only if the worker does nothing."""
    left = Outstanding()
    for work in records.working.values():
        left.busy = True
        left.lines.append(_described(work))
    if records.orders:
        left.busy = True
        left.lines.append(f"{counted(len(records.orders), 'message')} without a handler to be settled")
    if clock.ticking:
        left.busy = True
        left.lines.append("a schedule is due and not sent yet")
    if left.busy and not all_:
        return left
    topics: dict[str, None] = {}
    for service in runtime.services:
        source = service.plan.source
        if source.topic is not None:
            topics[source.topic] = None
        try:
            entity = await contents.queue_or_subscription(source.topic or source.name, source.topic and source.name)
            messages = await contents.peek_all(entity, _SIDES[source.sub_queue])
        except ServiceBusError as error:
            left.lines.append(f"{service.entity} cannot be looked at: {error}")
            continue
        left.entities.append(entity)
        _add(left, service, messages, records, clock)
    for topic in topics:
        scheduled = await contents.scheduled(topic)
        if scheduled:
            left.later = True
            left.entities.append(await contents.entity(topic))
            left.lines.append(f"{topic}: {_listed(scheduled, 'scheduled')}")
    return left


def _add(
    left: Outstanding,
    service: Service,
    messages: Sequence[ServiceBusReceivedMessage],
    records: Records,
    clock: BusTime,
) -> None:
    """Add the messages of one entity."""
    path, now = service.entity, clock.now()
    by = paused_by(service, now)
    groups: dict[_Kind, list[ServiceBusReceivedMessage]] = {}
    for message in messages:
        kind = _kind_of(message, path, records, now)
        if kind == "active" and by:
            kind = "active in the paused entity"
        groups.setdefault(kind, []).append(message)
    for kind, group in groups.items():
        if kind == "deferred":
            continue
        if kind != "in work":
            left.lines.append(f"{path}: {_listed(group, kind)}")
        left.busy = left.busy or kind in _NOW
        left.later = left.later or kind not in _NOW
        left.paused = left.paused or kind == "active in the paused entity"
    if by:
        left.lines.append(f"{path} is paused until the clock has moved: {by}")
    left.waits.extend(wait for gate in service.consumer.gates.closed(now) if (wait := gate.wait(now)))
    if service.paused_by is not None and clock.next_wait is not None:
        left.waits.append(clock.next_wait)
    left.waits.extend(until - now for (entity, _), until in records.held_back.items() if entity == path and until > now)


def paused_by(service: Service, now: float) -> str:
    """Return why a worker does not receive from an entity now: an error, and middleware; nothing if it does."""
    closed = [type(gate).__name__ for gate in service.consumer.gates.closed(now)]
    return ", ".join([*closed, *([] if service.why_paused is None else [service.why_paused])])


def _kind_of(message: ServiceBusReceivedMessage, path: str, records: Records, now: float) -> _Kind:
    """Return what a message waits for."""
    state = hold_of(message).delivery.state
    if records.held_back.get((path, message.session_id or ""), 0.0) > now:
        return "delayed with its session"
    if state not in {"g", "l"}:
        return _STATES[state]
    if (path, message.sequence_number) in records.left:
        return "locked, and not settled by the handler that had it"
    number = message.sequence_number
    if any((each.entity, each.message.sequence_number) == (path, number) for each in records.in_work):
        return "in work"
    return "locked, but not by a handler of this worker"


def _listed(messages: Sequence[ServiceBusReceivedMessage], state: str) -> str:
    numbers = ", ".join(str(message.sequence_number) for message in messages[:_SHOWN])
    more = "" if len(messages) <= _SHOWN else f" and {len(messages) - _SHOWN} more"
    return f"message{'s' if len(messages) > 1 else ''} {numbers}{more}: {state}"


def _described(work: Working) -> str:
    handled, took = work.handled, time.monotonic() - work.began
    name = getattr(handled.handler, "__qualname__", repr(handled.handler))
    number, attempt = handled.message.sequence_number, handled.message.delivery_count
    what = f"has run for {took:.1f} s" if work.running else "has ended, and its outcome is not acknowledged yet"
    place = _place(work.coroutine) if work.running else ""
    return f"{handled.entity}: {name} {what} with message {number}, attempt {attempt}{place}"


def _place(coroutine: Any) -> str:
    """Return the line of the application at which a coroutine waits; nothing if it waits elsewhere."""
    found = ""
    while isinstance(coroutine, types.CoroutineType):
        frame = coroutine.cr_frame
        if frame is not None:
            folder = frame.f_code.co_filename
            if "sbredis" not in Path(folder).parts and "asyncio" not in Path(folder).parts:
                found = f", at {folder}:{frame.f_lineno}"
        coroutine = coroutine.cr_await
    return found
